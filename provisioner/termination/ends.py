"""How Nodes and instances end, for everybody."""

from dataclasses import dataclass

from provisioner.nodeclaims.writers import Writers
from provisioner.runtime.base import Base
from provisioner.runtime.live_reads import LiveReads
from provisioner.termination.deletion_guards import DeletionGuards
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
    guards: DeletionGuards


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
    caches = base.caches
    guards = DeletionGuards(
        cluster,
        client,
        writing.claims,
        base.recorder,
        clock,
        installed=caches.installation,
        read=caches.installations.synced.is_set,
        namespace=options.system_namespace,
        share=options.mass_deletion_guard,
    )
    return Ends(evictions, taints, terminator, LiveReads(cluster, client, base.recorder, clock), guards)
