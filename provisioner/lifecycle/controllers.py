"""The controllers of this room: from the launch of a NodeClaim to a Node that takes pods."""

from collections.abc import Callable, Collection
from functools import partial
from itertools import chain

from provisioner.apis.core import CSINode
from provisioner.apis.karpenter import NodeClaim
from provisioner.lifecycle.consistency import Consistency
from provisioner.lifecycle.controller import Lifecycle, timeouts_of
from provisioner.lifecycle.gang_keeper import GangKeeper
from provisioner.lifecycle.garbage_collection import ClaimCollector
from provisioner.lifecycle.hydration import Hydration
from provisioner.lifecycle.nominations import Nominations
from provisioner.lifecycle.registration import Registrar
from provisioner.nodeclaims.writers import Writers
from provisioner.nodepools.controller import PoolHealth
from provisioner.runtime.base import NODECLAIM, Base
from provisioner.runtime.changes import NodeChanged, NodeClaimChanged, SurroundingChanged
from provisioner.runtime.controller import Controller, Keys
from provisioner.support.workers import WorkerPool
from provisioner.termination.ends import Ends


def controllers(
    base: Base,
    writing: Writers,
    ending: Ends,
    nominations: Nominations,
    threads: WorkerPool,
    health: PoolHealth,
    fits_elsewhere: Callable[[Collection[str], Collection[str]], bool],
    uncertain: Callable[[NodeClaim], bool],
) -> list[Controller]:
    """Launch, registration in `threads`, and what keeps NodeClaims and their Nodes true.

    `fits_elsewhere` says whether all pods that wait for NodeClaims would find other places now, for little more than others together cost that these are
    among; `uncertain` whether nobody knows now if the instance of a NodeClaim is there: the garbage collector leaves these alone.
    """
    caches, cluster, client, clock, writer = base.caches, base.cluster, base.client, base.clock, writing.claims
    registrar = Registrar(
        cluster,
        client,
        writer,
        base.recorder,
        threads,
        clock,
        nominations=nominations,
        again=base.claim_again,
        health=health.note,
        chance=base.chance(),
    )
    gangs = GangKeeper(
        cluster,
        writer,
        base.recorder,
        clock,
        elsewhere=fits_elsewhere,
        beside=caches.beside,
        postponed=ending.live.postponed,
    )
    lifecycle = Lifecycle(
        cluster,
        client,
        base.provider_for("nodeclaim.lifecycle"),
        ending.terminator,
        writer,
        base.recorder,
        clock,
        register=registrar.offer,
        health=health.note,
        nodes_are_stale=caches.nodes_are_stale,
        elsewhere=lambda name: fits_elsewhere([name], []),
        beside=caches.beside,
        gangs=gangs,
        paused=caches.launch_paused,
        timeouts=timeouts_of(base.options),
        postponed=ending.live.postponed,
        awaits=ending.guards.why,
    )
    consistency = Consistency(cluster, writer, base.recorder, clock, chance=base.chance())
    hydration = Hydration(cluster, base.provider, writer, base.recorder, clock)
    garbage = ClaimCollector(
        cluster,
        base.provider_for("nodeclaim.garbagecollection"),
        writer,
        uncertain=uncertain,
        postponed=ending.live.postponed,
    )

    def resumed() -> Keys:
        base.provider.listen(base.claim_again)
        base.provider.resume(cluster.claims())
        return [claim.name for claim in cluster.claims()]

    def claims_of(change: NodeChanged) -> Keys:
        return [claim.name for claim in cluster.claims_with(change.latest.spec.provider_id)]

    def of_csi_node(change: SurroundingChanged) -> Keys:
        """The claim whose Node a CSI driver has come to, or left."""
        one = change.latest
        node = cluster.node(one.metadata.name) if isinstance(one, CSINode) else None
        claim = cluster.claim_of(node) if node is not None else None
        return (claim.name,) if claim is not None else ()

    def hydrated_with(change: NodeChanged) -> Keys:
        claim = cluster.claim_of(change.latest)
        return hydration.seen(claim) if claim is not None else ()

    def every(seen: Callable[[NodeClaim], Keys]) -> Keys:
        return chain.from_iterable(map(seen, cluster.claims()))

    return [
        Controller(
            name=NODECLAIM,
            reconcile=lifecycle.reconcile,
            workers=base.options.workers(10, 100),
            watches={
                NodeClaimChanged: lambda change: (change.latest.name,),
                NodeChanged: claims_of,
                SurroundingChanged: of_csi_node,
            },
            initial=resumed,
        ),
        Controller(name="launch-sets", poll=gangs.poll),
        Controller(runner=registrar.poller, initial=nominations.begin, pools=(threads,)),
        Controller(
            name="nodeclaim.consistency",
            reconcile=consistency.reconcile,
            watches={NodeClaimChanged: lambda change: change.new and consistency.seen(change.new)},
            initial=lambda: every(partial(consistency.seen, at_start=True)),
        ),
        Controller(
            name="nodeclaim.hydration",
            reconcile=hydration.reconcile,
            watches={
                NodeClaimChanged: lambda change: change.new and hydration.seen(change.new),
                NodeChanged: hydrated_with,
            },
            initial=lambda: every(hydration.seen),
        ),
        Controller(name="nodeclaim.garbagecollection", poll=garbage.poll),
    ]
