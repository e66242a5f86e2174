"""The controllers of this room, and how Nodes and instances end, for everybody."""

from dataclasses import dataclass

from provisioner.nodeclaims.controllers import Writers
from provisioner.runtime.base import Base
from provisioner.runtime.changes import NodeChanged, PodChanged
from provisioner.runtime.controller import Controller, Keys
from provisioner.runtime.live_reads import LiveReads
from provisioner.termination.controller import Termination
from provisioner.termination.disrupted_taint import DisruptedTaints
from provisioner.termination.eviction_queue import Evictions
from provisioner.termination.surge import Surges
from provisioner.termination.terminator import Terminator


@dataclass(frozen=True)
class Ends:
    """How Nodes are closed and drained, and instances terminated."""

    evictions: Evictions
    taints: DisruptedTaints
    terminator: Terminator
    live: LiveReads


def ends(base: Base, writing: Writers) -> Ends:
    """The end of Nodes and instances; the terminator alone ends instances, for everybody."""
    options, clock, cluster, client = base.options, base.clock, base.cluster, base.client
    evictions = Evictions(
        cluster,
        client,
        base.recorder,
        clock,
        workers=options.workers(10, 100),
        pause=base.caches.pause,
        holds=Surges(cluster, client, writing.claims, writing.plans, base.recorder, clock).holds,
    )
    taints = DisruptedTaints(client, clock, told=writing.claims.node_written)
    terminator = Terminator(
        base.provider, client, cluster.claims, evictions, taints, base.recorder, clock, volume_of=cluster.volume_of
    )
    return Ends(evictions, taints, terminator, LiveReads(cluster, client, base.recorder, clock))


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
