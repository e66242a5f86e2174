"""Assignments: which planned pod keeps room on which node. Not thread-safe, no clock: the owner serialises calls.

Equal pods of one owner are interchangeable: where a planned pod ends before it was bound, its assignment is vacant for a
while, and the next equal pod takes it over. Times are monotonic seconds.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from provisioner.apis import names
from provisioner.apis.pods import Pod, PodShape
from provisioner.state.keys import NodeKey
from provisioner.state.promises import Family
from provisioner.values.resources import EMPTY, Resources


@dataclass(slots=True, eq=False)
class Assignment:
    """Room that one node keeps for one planned pod.

    Attributes:
        uid: of the pod; "" while it is gone and an equal one may take over.
        shape: the pod's; None where it was never seen.
        made_at: when it was planned, or (by another leader) read.
        vacant_since: since when `uid` is "".
        taken_at: when its pod took it over; minus infinity while it is the first one's.
        leaves: the Node that the pod before it ran on, "" for none.
        renews: whether the last pod of it ran, so that its successor has the time of any pod.
        open_since: since when the node takes the pod, as far as we saw; None while a taint that will fall is on it.
        came_open: the pod was created after the node had opened: nothing that is said of it is older.
        waiting: pods that waited for a node at that moment.
        nodes, tainted: Nodes that there were at that moment, and how many of them had a taint that the pod does not tolerate.
        nominated: the pod's UID and the Node that it was last seen nominated to; empty for none.
        said: what kube-scheduler said of the pod when the node opened to it; what it says later is about this node too.
    """

    key: NodeKey
    family: Family
    uid: str
    shape: PodShape | None
    made_at: float
    vacant_since: float | None = None
    taken_at: float = float("-inf")
    leaves: str = ""
    renews: bool = False
    open_since: float | None = None
    came_open: bool = False
    waiting: int = 0
    nodes: int = 0
    tainted: int = 0
    nominated: tuple[str, str] = ("", "")
    said: str = ""

    @property
    def requests(self) -> Resources:
        """The room that is kept."""
        return self.shape.requests if self.shape is not None else EMPTY


class Assignments:
    """Every live assignment, by pod and by node. Each call is O(1), or O(assignments of one node) where it says so."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Assignment] = {}
        self._of: dict[NodeKey, dict[Assignment, None]] = {}  # in the order in which they were made
        self._made: dict[NodeKey, Counter[float]] = {}  # how many of each time
        self._vacant: dict[Family, dict[Assignment, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def __iter__(self) -> Iterator[Assignment]:
        for mine in self._of.values():
            yield from mine

    # ------------------------------------------------------------------ changes

    def assign(self, key: NodeKey, pod: Pod, now: float) -> Assignment:
        """Keep room for a pod that has none kept yet."""
        return self._add(Assignment(key, Family.of(pod), pod.uid, pod.shape, now))

    def reserve(self, key: NodeKey, family: Family, now: float) -> Assignment:
        """Keep room for a successor of a pod that is gone already."""
        return self._add(Assignment(key, family, "", None, now, vacant_since=now))

    def vacate(self, one: Assignment, node: str, now: float) -> None:
        """The pod, which ran on this Node ("" for none), is gone: the next equal one may take over."""
        self._by_uid.pop(one.uid, None)
        one.uid, one.vacant_since, one.said = "", now, ""
        one.leaves, one.renews = node or one.leaves, bool(node)
        self._vacant.setdefault(one.family, {})[one] = None

    def take_over(self, pod: Pod, now: float) -> Assignment | None:
        """Give a pod without assignment the oldest vacant one of its family; None where there is none, or it has no owner."""
        family = Family.of(pod)
        vacant = self._vacant.get(family)
        if not vacant:
            return None
        one = next(iter(vacant))
        self._unlist(one)
        one.uid, one.vacant_since, one.shape = pod.uid, None, pod.shape
        if one.renews:
            one.taken_at = now
        self._by_uid[pod.uid] = one
        return one

    def swap(self, one: Assignment, other: Assignment) -> None:
        """Let two assignments of one family change pods; one of them may be vacant."""
        for each in (one, other):
            self._by_uid.pop(each.uid, None)
            self._unlist(each)
        one.uid, other.uid = other.uid, one.uid
        one.shape, other.shape = other.shape, one.shape
        one.vacant_since, other.vacant_since = other.vacant_since, one.vacant_since
        one.taken_at, other.taken_at = other.taken_at, one.taken_at
        one.leaves, other.leaves = other.leaves, one.leaves
        one.renews, other.renews = other.renews, one.renews
        for each in (one, other):
            each.said = ""
            if each.uid:
                self._by_uid[each.uid] = each
            else:
                self._vacant.setdefault(each.family, {})[each] = None

    def end(self, one: Assignment) -> None:
        """The room is not kept any longer."""
        self._by_uid.pop(one.uid, None)
        self._unlist(one)
        mine = self._of.get(one.key)
        if mine is not None:
            if one in mine:
                del mine[one]
                self._made[one.key][one.made_at] -= 1
                if not self._made[one.key][one.made_at]:
                    del self._made[one.key][one.made_at]
            if not mine:
                del self._of[one.key], self._made[one.key]

    # ------------------------------------------------------------------ questions

    def of_pod(self, uid: str) -> Assignment | None:
        """The assignment of one pod."""
        return self._by_uid.get(uid)

    def on(self, key: NodeKey) -> tuple[Assignment, ...]:
        """The assignments of one node, in the order in which they were made."""
        return tuple(self._of.get(key, ()))

    def made_at(self, key: NodeKey) -> Collection[float]:
        """When the assignments of one node were made: one time for each batch."""
        return self._made.get(key, {}).keys()

    def has(self, key: NodeKey) -> bool:
        """Whether a node keeps room for anybody."""
        return key in self._of

    @property
    def keys(self) -> list[NodeKey]:
        """Every node that keeps room, in order."""
        return sorted(self._of)

    def vacant(self) -> list[Assignment]:
        """Those that wait for a successor."""
        return [one for mine in self._vacant.values() for one in mine]

    def kept(self, key: NodeKey) -> Resources:
        """The room that a node keeps for all its planned pods. O(assignments of the node)."""
        total = EMPTY
        for one in self._of.get(key, ()):
            total += one.requests
        return total

    def first_to_go(self, key: NodeKey) -> list[Assignment]:
        """The assignments of a node in the order in which they give way: lowest priority first, then the largest."""
        return sorted(self._of.get(key, ()), key=_rank)

    # ------------------------------------------------------------------ helpers

    def _add(self, one: Assignment) -> Assignment:
        self._of.setdefault(one.key, {})[one] = None
        self._made.setdefault(one.key, Counter())[one.made_at] += 1
        if one.uid:
            self._by_uid[one.uid] = one
        else:
            self._vacant.setdefault(one.family, {})[one] = None
        return one

    def _unlist(self, one: Assignment) -> None:
        vacant = self._vacant.get(one.family)
        if vacant is not None:
            vacant.pop(one, None)
            if not vacant:
                del self._vacant[one.family]


def _rank(one: Assignment) -> tuple[int, int, str]:
    shape = one.shape
    return (shape.priority, -shape.requests.get(names.CPU, 0), one.uid) if shape is not None else (0, 0, one.uid)
