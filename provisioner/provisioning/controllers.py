"""The controllers of this room: what waits is planned in batches."""

from functools import partial

from provisioner.apis.meta import key_of
from provisioner.packing.planner import Planner
from provisioner.provisioning.batcher import Intake
from provisioner.provisioning.gang_jobs import GangJobs
from provisioner.provisioning.pod_groups import pod_group_controllers
from provisioner.provisioning.provisioner import ProvisioningController
from provisioner.provisioning.retry_triggers import concerns_placement
from provisioner.runtime.base import Base
from provisioner.runtime.changes import (
    NodeChanged,
    NodeClaimChanged,
    NodeClassChanged,
    NodeOverlayChanged,
    NodePoolChanged,
    PodChanged,
    SurroundingChanged,
)
from provisioner.runtime.controller import Controller


def controllers(base: Base, intake: Intake, planner: Planner, provisioner: ProvisioningController) -> list[Controller]:
    """Who plans; it is told pods, and what may let others be placed, so nothing that it watches is a key.

    And who finds out whether there are PodGroups, what Jobs say of gangs, and how many pods owners want.
    """
    again, cluster = base.plan_again, base.cluster

    def pod_heard(change: PodChanged) -> None:
        pod = change.new
        if pod is not None and not pod.node_name and pod.deleted is None:
            intake.pod_seen(pod)

    def node_heard(change: NodeChanged) -> None:
        node = change.new
        if node is None or node.metadata.deletion_timestamp is None or cluster.claim_of(node) is None:
            return
        if cluster.bound_to(node.metadata.name):
            again(f"node/{node.metadata.name}")

    def claim_heard(change: NodeClaimChanged) -> None:
        if change.new is None:
            again(f"claim/{change.latest.name}")

    def pool_heard(change: NodePoolChanged) -> None:
        old, new, pool = change.old, change.new, change.latest
        if old is None or new is None or old.metadata.generation != new.metadata.generation:
            again(f"pool/{pool.name}/{pool.metadata.generation}")

    def surrounding_heard(change: SurroundingChanged) -> None:
        thing = change.latest
        if concerns_placement(change):
            again(f"{type(thing).__name__}/{key_of(thing.metadata)}")

    return [
        Controller(
            runner=intake.poller,
            watches={
                PodChanged: pod_heard,
                NodeChanged: node_heard,
                NodeClaimChanged: claim_heard,
                NodePoolChanged: pool_heard,
                NodeClassChanged: lambda change: again(f"class/{change.latest.metadata.name}"),
                NodeOverlayChanged: lambda change: again(f"overlay/{change.latest.metadata.name}"),
                SurroundingChanged: surrounding_heard,
            },
            initial=partial(intake.begin, provisioner.run),
            closing=planner.stop,
        ),
        *pod_group_controllers(base),
        GangJobs(cluster, base.client, base.clock).controller(),
        *([intake.expected.controller()] if intake.expected is not None else []),
    ]
