"""The controllers of this room."""

from provisioner.nodeclaims.writers import Writers
from provisioner.nodepools.controller import PoolController, PoolHealth
from provisioner.nodepools.overlay_controller import OverlayStatus
from provisioner.runtime.base import NODEPOOL, POOL_DELAY_SECONDS, Base
from provisioner.runtime.caches import store_of
from provisioner.runtime.changes import (
    NodeChanged,
    NodeClaimChanged,
    NodeClassChanged,
    NodeOverlayChanged,
    NodePoolChanged,
)
from provisioner.runtime.controller import Controller, Keys


def controllers(base: Base, writing: Writers, health: PoolHealth) -> list[Controller]:
    """What the status of NodePools and NodeOverlays says; of NodeOverlays none where their feature gate is off."""
    caches, cluster = base.caches, base.cluster
    pools = PoolController(
        cluster,
        base.client,
        base.provider_for("nodepool"),
        writing.claims,
        base.clock,
        pool=caches.pools.store.get,
        class_generation=caches.class_generation,
        recorder=base.recorder,
        health=health,
        ready=lambda: base.plan_again("pools"),
    )
    overlays = OverlayStatus(base.client, caches.overlays, base.clock, store_of(caches.overlay_objects))

    def every(_: NodeClassChanged | None = None) -> Keys:
        return [pool.name for pool in caches.pools.store.list()]

    def claim_heard(change: NodeClaimChanged) -> Keys:
        pool = change.latest.pool
        return ((pool, POOL_DELAY_SECONDS),) if pool else ()

    def node_heard(change: NodeChanged) -> Keys:
        """A Node that is gone joins no claim any more."""
        claims = cluster.claims_with(change.latest.spec.provider_id) if change.new is None else ()
        return [(claim.pool, POOL_DELAY_SECONDS) for claim in claims if claim.pool]

    rows = [
        Controller(
            name=NODEPOOL,
            reconcile=pools.reconcile,
            watches={
                NodePoolChanged: lambda change: (change.latest.name,),
                NodeClassChanged: every,
                NodeClaimChanged: claim_heard,
                NodeChanged: node_heard,
            },
            initial=every,
        )
    ]
    if caches.overlay_objects is not None:
        rows.append(
            Controller(
                name="nodeoverlay",
                reconcile=overlays.reconcile,
                watches=dict.fromkeys((NodeOverlayChanged, NodePoolChanged), overlays.heard),
                initial=overlays.all,
            )
        )
    return rows
