"""When consolidation looks at the nodes again, and which of them it leaves alone for now. Source: core spec 6.5, 6.10, 6.11, 6.13.

Differs: Karpenter looks again when its state changed, but not for prices and PodDisruptionBudgets, and waits 15 s before each command while
nothing else is decided; here a node must have been still for as long before it is looked at.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from provisioner.apis.pods import is_reschedulable
from provisioner.disruption.methods import consolidation_multi, consolidation_single
from provisioner.scheduling.prepared import Prepared
from provisioner.state.snapshot import NodeView, Snapshot

#: Between two passes at the least; and no shorter than the last one took, so that half of a core is left for everything else.
PASS_SECONDS: Final = 10.0
#: A pass is made after so long though nothing changed: what a node may save depends on the hour too.
MOST_SECONDS: Final = 300.0
#: For so long nothing must have happened on a node before consolidation touches it.
STILL_SECONDS: Final = 15.0
#: A pass of a method ends after so long; what it found until then counts.
TIMEOUTS: Final[Mapping[str, float]] = {consolidation_multi.METHOD: 60.0, consolidation_single.METHOD: 180.0}


class Stillness:
    """Since when nothing has happened on each node, by a clock that does not jump; memory of this process only.

    One thread notes, any may ask.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[NodeView, tuple[object, ...], float]] = {}

    def note(self, snapshot: Snapshot, now: float) -> None:
        """What is there now. Cost: O(nodes), and the pods of those that changed."""
        known, seen = self._known, dict[str, tuple[NodeView, tuple[object, ...], float]]()
        for node in snapshot.nodes:
            if node.claim is None:
                continue
            before = known.get(node.key.name)
            looks = before[1] if before is not None and before[0] is node else _looks(node)
            moves = node.nominated or node.deleting or not node.initialized
            since = now if moves or before is None or before[1] != looks else before[2]
            seen[node.key.name] = (node, looks, since)
        self._known = seen

    def forget(self) -> None:
        """Nobody saw what happened."""
        self._known = {}

    def restless(self, snapshot: Snapshot, now: float) -> frozenset[str]:
        """NodeClaims of a snapshot on whose node something happened a moment ago, or that were not noted yet."""
        known = self._known
        return frozenset(
            node.key.name
            for node in snapshot.nodes
            if node.claim is not None
            and (
                (one := known.get(node.key.name)) is None
                or now - one[2] < STILL_SECONDS
                or (one[0] is not node and one[1] != _looks(node))
            )
        )


def _looks(node: NodeView) -> tuple[object, ...]:
    here = tuple(pod.uid for pod in node.pods if pod.deleted is None and is_reschedulable(pod))
    return (node.initialized, node.nominated, node.deleting, here)


class Passes:
    """Whether a pass is due: nothing is asked again while nothing has changed since a pass that found nothing. Not thread-safe."""

    def __init__(self) -> None:
        self._ended: float | None = None
        self._lasted = 0.0
        self._settled: tuple[tuple[object, ...], datetime | None] | None = None

    def rests(self, now: float) -> bool:
        """Whether the last pass ended a moment ago, whatever has changed since."""
        return self._ended is not None and now - self._ended < max(PASS_SECONDS, self._lasted)

    def is_due(self, looks: tuple[object, ...], at: datetime, now: float) -> bool:
        """Whether to look again.

        Args:
            looks: everything that the answer depends on; compared by identity.
            at: the wall clock.
            now: the monotonic one.
        """
        if self._ended is None or self._settled is None or now - self._ended >= MOST_SECONDS:
            return True
        before, recheck = self._settled
        same = len(before) == len(looks) and all(one is other for one, other in zip(before, looks, strict=True))
        return not same or (recheck is not None and recheck <= at)

    def ended(
        self, looks: tuple[object, ...], recheck: datetime | None, started: float, now: float, *, settled: bool
    ) -> None:
        """A pass is over; `settled` where it found nothing to do and came to every node, until `recheck` if nothing changes."""
        self._ended, self._lasted = now, now - started
        self._settled = (looks, recheck) if settled else None


def looks_of(snapshot: Snapshot, prepared: Prepared | None) -> tuple[object, ...]:
    """Everything that an answer of consolidation depends on, besides the time; each the same object while nothing of it changes."""
    types = tuple(pool.instance_types for pool in prepared.world.pools) if prepared is not None else ()
    return (
        snapshot.nodes,
        snapshot.pools,
        snapshot.daemons,
        snapshot.around,
        snapshot.pending,
        snapshot.leaving,
        snapshot.pod_budgets,
        snapshot.commands,
        *types,
    )
