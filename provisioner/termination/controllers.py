"""The controllers of this room."""

from provisioner.nodeclaims.writers import Writers
from provisioner.runtime.base import Base
from provisioner.runtime.changes import NodeChanged, PodChanged
from provisioner.runtime.controller import Controller, Keys
from provisioner.termination.controller import Termination
from provisioner.termination.ends import Ends


def guarding(ending: Ends) -> list[Controller]:
    """What holds deletions until they are confirmed; before all others of a term."""
    return [Controller(name="deletion-guards", poll=ending.guards.poll, initial=ending.guards.begin)]


def controllers(base: Base, writing: Writers, ending: Ends) -> list[Controller]:
    """Who asks pods to leave, and who ends Nodes."""
    cluster, evictions = base.cluster, ending.evictions
    termination = Termination(
        cluster,
        base.client,
        base.provider_for("node.termination"),
        writing.claims,
        evictions,
        ending.taints,
        ending.terminator,
        base.recorder,
        base.clock,
        pods_are_stale=base.caches.pods_are_stale,
        postponed=ending.live.postponed,
        awaits=ending.guards.why,
    )

    def node_heard(change: NodeChanged) -> Keys:
        meta = change.latest.metadata
        return (meta.name,) if meta.deletion_timestamp is not None else ()

    def pod_heard(change: PodChanged) -> Keys:
        pod = change.latest
        node = cluster.node(pod.node_name) if pod.node_name and pod.deleted is not None else None
        return (pod.node_name,) if node is not None and node.metadata.deletion_timestamp is not None else ()

    def departs(change: PodChanged) -> None:
        if change.new is not None:
            evictions.departures.saw(change.new)

    return [
        Controller(runner=evictions.queue, watches={PodChanged: departs}),
        Controller(
            name="node.termination",
            reconcile=termination.reconcile,
            workers=base.options.workers(10, 100),
            watches={NodeChanged: node_heard, PodChanged: pod_heard},
            initial=lambda: [node.metadata.name for node in base.caches.nodes.store.list()],
        ),
    ]
