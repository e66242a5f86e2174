"""What a plan promises, to whom and for how long: the rules of the state, which makes plans, and of the extender, which reads them.

A plan keeps room on one node for its pods. Room is owed to a pod as long as it has found no place that stays; pods of one owner and class
are brothers, and who takes a brother's place leaves its own in exchange. Times are seconds of one monotonic clock.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, Self, TypeVar

from provisioner.apis.pods import Pod, is_reschedulable, is_terminal
from provisioner.state.keys import NodeKey

VACANT_SECONDS: Final = 30.0
"""How long the place of a pod that is gone waits for the pod's successor."""

UNTIMED: Final = float("inf")
"""Since when a place is vacant that was found so by an event, which has no clock; the next look at the time says it."""

PLAN_SECONDS: Final = 900.0
"""How long a node that is not initialized keeps room."""


class PodFamily(NamedTuple):
    """Pods that are interchangeable: of one owner (UID, "" for none) and one class (`PodShape.key`)."""

    owner: str
    klass: str

    @classmethod
    def of(cls, pod: Pod) -> "PodFamily":
        """A pod's."""
        return cls(pod.owner.uid if pod.owner is not None else "", pod.shape.key)

    @property
    def has_brothers(self) -> bool:
        """Whether a pod of it may take another one's place; pods without an owner are equal, but nobody creates one again."""
        return bool(self.owner)


def is_over(pod: Pod) -> bool:
    """Whether a pod needs no place itself any more, and its successor may have it.

    An evicted pod's successor comes at once, long before the old one is gone; a StatefulSet's only afterwards.
    """
    return is_terminal(pod) or (pod.deleted is not None and (not pod.node_name or not is_reschedulable(pod)))


def ends_at(
    planned_at: float, initialized_at: float | None, hold_seconds: float, plan_seconds: float = PLAN_SECONDS
) -> float:
    """When room is not kept any longer for a pod that waits.

    Args:
        planned_at: when it was planned, or its plan grew last.
        initialized_at: when the node was; None while it is not.
        hold_seconds: as the plan says (`Plan.hold_seconds`).
        plan_seconds: how long a node that is not initialized keeps room.
    """
    if initialized_at is None:
        return planned_at + plan_seconds
    return max(planned_at, initialized_at) + hold_seconds


@dataclass(slots=True, eq=False)
class Promise:
    """The place of one planned pod on one node.

    Attributes:
        key: the node.
        family: of the pod.
        uid: of the pod; "" where it has none.
        vacant_since: since when the pod is waited for, or, where `uid` is "", its successor; None where nobody is.
    """

    key: NodeKey
    family: PodFamily
    uid: str
    vacant_since: float | None = None

    def exchange(self, other: Self) -> None:
        """Change pods with a place of the same family."""
        self.uid, other.uid = other.uid, self.uid
        self.vacant_since, other.vacant_since = other.vacant_since, self.vacant_since


P = TypeVar("P", bound=Promise)
K = TypeVar("K")


def taken(places: Iterable[P]) -> P | None:
    """Whose place a brother has that runs here, of those that nobody fills: a pod's that waits, by UID, before a vacant one; None where there is none."""
    return min(places, key=lambda one: (not one.uid, one.uid), default=None)


class Promises(Generic[P]):
    """Every place, by pod, by node and, while the next pod of a family has it, by family. Each call is O(1), or O(places of one node), unless it says more."""

    def __init__(self) -> None:
        self._by_uid: dict[str, P] = {}
        self._of: dict[NodeKey, dict[P, None]] = {}  # in the order in which they were made
        self._open: dict[PodFamily, dict[P, None]] = {}  # vacant, for the next of the family; the oldest first
        self._open_of: dict[str, dict[P, None]] = {}  # the same, by owner
        self._missed: dict[P, None] = {}  # vacant, for one pod

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def __iter__(self) -> Iterator[P]:
        for mine in self._of.values():
            yield from mine

    # ------------------------------------------------------------------ changes

    def add(self, one: P) -> P:
        """A pod is promised a place, or, where it is gone, its successor is."""
        self._of.setdefault(one.key, {})[one] = None
        self._enlist(one)
        return one

    def take(self, one: P, uid: str, since: float | None = None) -> None:
        """A pod without a place has this one from now on; `since` when it, or where `uid` is "" the next equal one, is waited for; None if nobody is."""
        self._unlist(one)
        one.uid, one.vacant_since = uid, since
        self._enlist(one)

    def swap(self, one: P, other: P) -> None:
        """Let two places of one family change pods; one of them may be vacant."""
        self._unlist(one)
        self._unlist(other)
        one.exchange(other)
        self._enlist(one)
        self._enlist(other)

    def end(self, one: P) -> None:
        """There is no such place any longer."""
        self._unlist(one)
        mine = self._of.get(one.key)
        if mine is not None:
            mine.pop(one, None)
            if not mine:
                del self._of[one.key]

    # ------------------------------------------------------------------ questions

    def of_pod(self, uid: str) -> P | None:
        """The place of one pod."""
        return self._by_uid.get(uid)

    def on(self, key: NodeKey) -> tuple[P, ...]:
        """The places of one node, in the order in which they were made."""
        return tuple(self._of.get(key, ()))

    def has(self, key: NodeKey) -> bool:
        """Whether anybody has a place on a node."""
        return key in self._of

    @property
    def keys(self) -> list[NodeKey]:
        """Every node with a place, in order."""
        return sorted(self._of)

    @property
    def any_open(self) -> bool:
        """Whether any place is taken over by the next pod of its family."""
        return bool(self._open)

    def vacant(self) -> list[P]:
        """Those that wait for a pod, or its successor."""
        return [*self._missed, *(one for mine in self._open.values() for one in mine)]

    def overdue(self, now: float) -> list[P]:
        """Those that have waited for one long enough. O(vacant ones)."""
        found = []
        for one in self.vacant():
            since = one.vacant_since if one.vacant_since is not None else now
            if since == UNTIMED:
                one.vacant_since = now
            elif now >= since + VACANT_SECONDS:
                found.append(one)
        return found

    def open_to(self, family: PodFamily, key: NodeKey | None = None) -> P | None:
        """The place that a pod of this family takes over: the oldest whose pod was there, and is gone; of a pod that is just bound only one there."""
        mine = self._open.get(family, {})
        return next(iter(mine), None) if key is None else next((one for one in self.on(key) if one in mine), None)

    def outgrown(self, owner: str) -> P | None:
        """The place that nobody waits for any longer once a pod of this owner comes that is of no family with an open place: the oldest of the owner's.

        The pod that is gone had another class than its owner makes, as one that somebody labeled, and this one is its successor.
        """
        return next(iter(self._open_of.get(owner, ())), None) if owner else None

    # ------------------------------------------------------------------ helpers

    def _enlist(self, one: P) -> None:
        if one.uid:
            self._by_uid[one.uid] = one
        if one.vacant_since is not None and one.uid:
            self._missed[one] = None
        elif one.vacant_since is not None:
            self._open.setdefault(one.family, {})[one] = None
            self._open_of.setdefault(one.family.owner, {})[one] = None

    def _unlist(self, one: P) -> None:
        self._by_uid.pop(one.uid, None)
        self._missed.pop(one, None)
        _strike(self._open, one.family, one)
        _strike(self._open_of, one.family.owner, one)


def _strike(some: dict[K, dict[P, None]], key: K, one: P) -> None:
    mine = some.get(key)
    if mine is not None:
        mine.pop(one, None)
        if not mine:
            del some[key]
