"""Assignments: which planned pod keeps room on which node. Not thread-safe, no clock: the owner serialises calls.

Equal pods of one owner are interchangeable: where a planned pod ends before it was bound, its assignment is vacant for a
while, and the next equal pod takes it over. Times are monotonic seconds.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Self

from provisioner.apis import names
from provisioner.apis.pods import Pod, PodShape
from provisioner.state.keys import NodeKey
from provisioner.state.predictions import PodPredictions
from provisioner.state.promises import PodFamily, Promise, Promises
from provisioner.values.resources import EMPTY, Resources


@dataclass(slots=True, eq=False)
class Assignment(Promise):
    """Room that one node keeps for one planned pod.

    Attributes:
        shape: the pod's; None where it was never seen.
        successor: what its successor was planned as, where a pod that is to leave its node will ask for more when it is admitted again.
        made_at: when it was planned, or (by another leader) read.
        taken_at: when its pod took it over; minus infinity while it is the first one's.
        leaves: the Node that the pod before it ran on, "" for none.
        renews: whether the last pod of it ran, so that its successor has the time of any pod.
        open_since: since when the node takes the pod, as far as we saw; None while a taint that will fall is on it, or it lacks what the pod needs.
        lacks: whether the node, open to others, lacks something that the pod needs.
        complete: version of its Node when that had what the pod needs and it had lacked, 0 where it lacked nothing: what is said of an older pod is from
            before, and that no taint is counted does not tell that it is not.
        came_open: the pod was created after the node had opened: nothing that is said of it is older.
        waiting: pods that waited for a node at that moment.
        nodes, tainted: Nodes that there were at that moment, and how many of them had a taint that the pod does not tolerate.
        nominated: the pod's UID and the Node that it was last seen nominated to; empty for none.
        said: what kube-scheduler said of the pod when the node opened to it; what it says later is about this node too.
    """

    shape: PodShape | None = None
    successor: PodShape | None = None
    made_at: float = 0.0
    taken_at: float = float("-inf")
    leaves: str = ""
    renews: bool = False
    open_since: float | None = None
    lacks: bool = False
    complete: int = 0
    came_open: bool = False
    waiting: int = 0
    nodes: int = 0
    tainted: int = 0
    nominated: tuple[str, str] = ("", "")
    said: str = ""

    @property
    def requests(self) -> Resources:
        """The room that is kept."""
        own = self.shape.requests if self.shape is not None else EMPTY
        return own if self.successor is None else own.maximum(self.successor.requests)

    def exchange(self, other: Self) -> None:
        """What is said of a pod goes with it; of the other's place nothing was said yet."""
        Promise.exchange(self, other)
        self.shape, other.shape = other.shape, self.shape
        self.successor, other.successor = other.successor, self.successor
        self.taken_at, other.taken_at = other.taken_at, self.taken_at
        self.leaves, other.leaves = other.leaves, self.leaves
        self.renews, other.renews = other.renews, self.renews
        self.said = other.said = ""


class Assignments(Promises[Assignment]):
    """Every live assignment."""

    # ------------------------------------------------------------------ changes

    def assign(self, key: NodeKey, pod: Pod, now: float, family: PodFamily) -> Assignment:
        """Keep room for a pod that has none kept yet."""
        return self.add(Assignment(key, family, pod.uid, shape=pod.shape, made_at=now))

    def reserve(self, key: NodeKey, family: PodFamily, now: float) -> Assignment:
        """Keep room for a successor of a pod that is gone already."""
        return self.add(Assignment(key, family, "", now, made_at=now))

    def vacate(self, one: Assignment, node: str, now: float) -> None:
        """The pod, which ran on this Node ("" for none), is gone: the next equal one may take over."""
        self.take(one, "", now)
        one.said = ""
        one.leaves, one.renews = node or one.leaves, bool(node)

    def take_over(self, pod: Pod, now: float, key: NodeKey | None = None) -> Assignment | None:
        """Give a pod without assignment the oldest vacant one of its family (on this node); None where there is none, or it has no owner."""
        one = self.open_to(PodFamily.of(pod), key)
        if one is not None:
            self.take(one, pod.uid)
            one.shape, one.successor = pod.shape, None
            if one.renews:
                one.taken_at = now
        return one

    def expect(self, predictions: PodPredictions, pod_of: Callable[[str], Pod | None]) -> Iterator[Assignment]:
        """Those that keep more room from now on, since their pods are to leave their nodes and will ask for more: a plan that another leader wrote tells
        as which class such a pod was planned, and not what that asks for.

        Cost: O(assignments), where anything is predicted.
        """
        for one in self if predictions.by_target else ():
            pod = pod_of(one.uid) if one.successor is None else None
            if pod is None or not pod.node_name or one.family == PodFamily.of(pod):
                continue
            again = predictions.readmitted(pod)
            if again is not pod:
                one.successor = again.shape
                yield one

    # ------------------------------------------------------------------ questions

    def is_planned(self, uid: str) -> bool:
        """Whether some node keeps room for a pod."""
        return uid in self._by_uid

    def planned_at(self, claim: str) -> float:
        """When the first of the pods that are planned on a claim were; 0 without any."""
        return min(self.made_at(NodeKey(claim)), default=0.0)

    def made_at(self, key: NodeKey) -> Collection[float]:
        """When the assignments of one node were made: one time for each batch. O(assignments of the node)."""
        return {one.made_at for one in self._of.get(key, ())}

    def kept(self, key: NodeKey) -> Resources:
        """The room that a node keeps for all its planned pods. O(assignments of the node)."""
        total = EMPTY
        for one in self._of.get(key, ()):
            total += one.requests
        return total

    def first_to_go(self, key: NodeKey) -> list[Assignment]:
        """The assignments of a node in the order in which they give way: lowest priority first, then the largest."""
        return sorted(self._of.get(key, ()), key=_rank)


def _rank(one: Assignment) -> tuple[int, int, str]:
    shape = one.shape
    return (shape.priority, -shape.requests.get(names.CPU, 0), one.uid) if shape is not None else (0, 0, one.uid)
