"""What disruption simulates in: `DisruptionWorlds`."""

import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from provisioner.apis.karpenter import NodePool
from provisioner.apis.pods import Pod
from provisioner.cloudprovider.types import InstanceType
from provisioner.disruption.allowance import soonest
from provisioner.disruption.commands.validation import with_room
from provisioner.disruption.proposal import Blocked, Proposal
from provisioner.disruption.refusals import NONE as NO_REFUSALS
from provisioner.disruption.simulation.turns import in_turn
from provisioner.disruption.view import MethodAnswer
from provisioner.provisioning.worlds import Worlds
from provisioner.scheduling.improvement.limits_after import without_charges
from provisioner.scheduling.judging import Design, designed
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.state.cluster import Cluster
from provisioner.state.keys import NodeKey
from provisioner.state.snapshot import Snapshot
from provisioner.support.clock import Clock

#: Instance types, their prices and their offerings change without an event; a world is made anew after so long.
WORLD_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class _World:
    """A world with what it was made from, and when."""

    around: tuple[object, ...]
    at: float
    prepared: Prepared


class DisruptionWorlds:
    """Keeps the world of the last instant, and who was refused in it. Any thread may ask.

    Attributes:
        source: makes the worlds.
        refusals: what simulations have found of pods that are refused; a value.
    """

    def __init__(self, cluster: Cluster, source: Worlds, clock: Clock) -> None:
        self._cluster, self.source, self._clock = cluster, source, clock
        self._preparing, self._refusing = threading.Lock(), threading.Lock()
        self._prepared: _World | None = None
        self.refusals = NO_REFUSALS

    def types_of(self, pool: NodePool) -> tuple[InstanceType, ...]:
        return self.source.types_of(pool) if self.source.manages(pool) else ()

    def at(self, snapshot: Snapshot) -> Prepared:
        """The world of an instant, made from that of the last one; the same while nothing changes, for whoever asks. Any thread may."""
        around = (snapshot.nodes, snapshot.pools, snapshot.daemons, snapshot.around)
        with self._preparing:
            known, now = self._prepared, self._clock.monotonic()
            old = known is None or now - known.at > WORLD_SECONDS
            if known is None or old or any(one is not other for one, other in zip(known.around, around, strict=True)):
                world = self.source.of(snapshot).world
                prepared = prepare(world, known.prepared if known is not None else None)
                known = self._prepared = _World(around, now, prepared)
            return known.prepared

    def roomy(self, proposals: Sequence[Proposal], then: Snapshot) -> tuple[Sequence[Proposal], Sequence[Blocked]]:
        """The proposals for whose pods there is still a place, as things are now, less those that wait for their turn; and the nodes of these."""
        if not any(one.placements or one.replacements for one in proposals):
            return proposals, ()
        now = self._cluster.snapshot()
        keys = self.source.default_keys
        unplanned = {pod.uid for pod in now.leaving}  # where they will be is not known, so they count where they are
        under_way = {
            str(node.key) for node in now.nodes if node.deleting and unplanned.isdisjoint(pod.uid for pod in node.pods)
        }
        # made once, where it is asked for: the other thread has a world of another instant
        world = functools.cache(lambda: self.at(now))

        def legal(some: Sequence[Proposal]) -> bool:
            names = {name for one in some for name in one.candidates}
            prepared = without_charges(world(), [node for node in now.nodes if node.key.name in names])
            going = {
                late: {str(NodeKey(name)) for one in some if one.late is late for name in one.candidates}
                for late in (False, True)
            }
            placements: dict[str, tuple[Pod, ...]] = {}
            for one in some:
                placements.update((name, placements.get(name, ()) + pods) for name, pods in one.placements.items())
            design = Design(tuple(new for one in some for new in designed(one.replacements)), placements)
            return prepared.judge(design, leaving=going[False] | under_way, gone=going[True]).legal

        return in_turn(with_room(proposals, then, now, legal, by_default=bool(keys)), now, keys)

    def with_room_for(self, snapshot: Snapshot, virtual: tuple[Pod, ...] = ()) -> Snapshot:
        """The instant with the pods that take room of their own: virtual ones of buffers, too, and none that is refused wherever it has a place."""
        over = self.refusals.over(self._clock.monotonic())
        waiting = tuple(pod for pod in snapshot.waiting if pod.uid not in over) if over else snapshot.waiting
        return replace(snapshot, waiting=waiting + virtual) if virtual or over else snapshot

    def note_refusals(self, answer: MethodAnswer, snapshot: Snapshot) -> MethodAnswer:
        """Remember who had a place in the world that a method looked at, although it is refused; the answer, asked again when it gives that up."""
        with self._refusing:
            now = self._clock.monotonic()
            if answer.judged or self.refusals.known:
                unbound = {pod.uid for pod in self._cluster.waiting()}
                self.refusals = self.refusals.noted(answer.judged, unbound, now)
            left = self.refusals.next_over(now)
        return (
            replace(answer, recheck_at=soonest(answer.recheck_at, snapshot.at + left)) if left is not None else answer
        )

    def refused(self) -> tuple[tuple[Pod, str], ...]:
        """The pods that take no room in simulations, each with the key of the node that has a place for it. Any thread may ask."""
        over = self.refusals.over(self._clock.monotonic())
        return tuple((pod, node) for uid, node in sorted(over.items()) if (pod := self._cluster.pod(uid)) is not None)
