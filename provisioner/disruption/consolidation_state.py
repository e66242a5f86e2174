"""When consolidation looks at the nodes again, and which of them it leaves alone for now. Source: core spec 6.5, 6.10, 6.11, 6.13.

Differs: Karpenter looks again when its state changed, but not for prices and PodDisruptionBudgets, and waits 15 s before each command while
nothing else is decided; here a node must have been still for as long before it is looked at.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import is_
from typing import Final

from provisioner.apis.pods import is_reschedulable
from provisioner.state.snapshot import NodeView, Snapshot

#: Between two passes at the least; and no shorter than the last one worked, so that half of a core is left for everything else.
PASS_SECONDS: Final = 10.0
#: A pass is made after so long though nothing changed: what a node may save depends on the hour too.
MOST_SECONDS: Final = 300.0
#: For so long nothing must have happened on a node before consolidation touches it.
STILL_SECONDS: Final = 15.0
#: A pass ends after so long; what it found until then counts.
TIMEOUT_SECONDS: Final = 180.0


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

    def restless(self, snapshot: Snapshot, now: float) -> dict[str, datetime]:
        """NodeClaims of a snapshot on whose node something happened a moment ago, or that were not noted yet, and until when they are left alone."""
        known, found = self._known, dict[str, datetime]()
        for node in snapshot.nodes:
            if node.claim is None:
                continue
            one = known.get(node.key.name)
            fresh = one is None or (one[0] is not node and one[1] != _looks(node))
            left = STILL_SECONDS if one is None or fresh else STILL_SECONDS - (now - one[2])
            if left > 0:
                found[node.key.name] = snapshot.at + timedelta(seconds=left)
        return found


def _looks(node: NodeView) -> tuple[object, ...]:
    here = tuple(pod.uid for pod in node.pods if pod.deleted is None and is_reschedulable(pod))
    return (node.initialized, node.nominated, node.deleting, here)


class Passes:
    """Whether a pass is due: nothing is asked again while nothing has changed since a pass that found nothing. Not thread-safe."""

    def __init__(self) -> None:
        self._ended: float | None = None
        self._worked = 0.0
        self._settled: tuple[Looks, datetime | None] | None = None

    def rests(self, now: float) -> bool:
        """Whether the last pass ended a moment ago, whatever has changed since."""
        return self._ended is not None and now - self._ended < max(PASS_SECONDS, self._worked)

    def is_due(self, looks: "Looks", at: datetime, now: float) -> bool:
        """Whether to look again.

        Args:
            looks: everything that the answer depends on.
            at: the wall clock.
            now: the monotonic one.
        """
        if self._ended is None or self._settled is None or now - self._ended >= MOST_SECONDS:
            return True
        before, recheck = self._settled
        return not before.same(looks) or (recheck is not None and recheck <= at)

    def ended(self, looks: "Looks", recheck: datetime | None, now: float, worked: float, *, settled: bool) -> None:
        """A pass is over that has worked for so long; `settled` where it found nothing to do and came to every node, until `recheck` if nothing changes."""
        self._ended, self._worked = now, worked
        self._settled = (looks, recheck) if settled else None


@dataclass(frozen=True, slots=True)
class Looks:
    """Everything that an answer of consolidation depends on, besides the time.

    Attributes:
        things: each the same object while nothing of it changes.
        values: each equal while nothing of it changes.
    """

    things: tuple[object, ...]
    values: tuple[object, ...]

    @classmethod
    def of(cls, snapshot: Snapshot, types: tuple[object, ...], values: tuple[object, ...]) -> "Looks":
        """Of an instant.

        Args:
            snapshot: it.
            types: the instance types of every pool.
            values: what budgets leave, and who is left alone.
        """
        things = (
            snapshot.nodes,
            snapshot.pools,
            snapshot.daemons,
            snapshot.around,
            snapshot.pending,
            snapshot.waiting,
            snapshot.leaving,
            snapshot.pod_budgets,
            snapshot.commands,
            snapshot.predictions,
            *types,
        )
        return cls(things, (snapshot.together, snapshot.consolidated, *values))

    def same(self, other: "Looks") -> bool:
        """Whether nothing has changed."""
        one, two = self.things, other.things
        return len(one) == len(two) and all(map(is_, one, two)) and self.values == other.values
