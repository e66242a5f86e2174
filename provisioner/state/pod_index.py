"""Every unfinished pod: by UID, by the Node that it is bound to, and those that wait for one. Not thread-safe."""

from bisect import bisect_left
from collections import Counter

from provisioner.apis.pods import Pod, is_terminal
from provisioner.state.room_ledger import RoomLedger
from provisioner.values.resources import Resources


def _rank(pod: Pod) -> tuple[str, str]:
    """Made whenever it is asked for: kept, it would be a sixth of what is kept of a pod."""
    return pod.key, pod.uid


class _OnNode:
    """The pods of one Node in order of name."""

    __slots__ = ("pods",)

    def __init__(self) -> None:
        self.pods: list[Pod] = []

    def put(self, pod: Pod) -> None:
        at, known = self._place(pod)
        if known:
            self.pods[at] = pod
        else:
            self.pods.insert(at, pod)

    def drop(self, pod: Pod) -> None:
        at, known = self._place(pod)
        if known:
            del self.pods[at]

    def _place(self, pod: Pod) -> tuple[int, bool]:
        """Where a pod is, or belongs, and whether it is there."""
        rank = _rank(pod)
        at = bisect_left(self.pods, rank, key=_rank)
        return at, at < len(self.pods) and _rank(self.pods[at]) == rank


class PodIndex:
    """See the module. Every event is O(log pods of one Node); nothing is kept of a Node without pods."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._on: dict[str, _OnNode] = {}
        self._waiting: dict[str, Pod] = {}
        self._room = RoomLedger()
        self._living: Counter[str] = Counter()  # by UID of the controller

    def put(self, pod: Pod) -> Pod | None:
        """A pod as it is now; as it was before. A finished one is dropped."""
        if is_terminal(pod):
            return self.drop(pod.uid)
        known = self._pods.get(pod.uid)
        if known is not None and known.node_name and known.node_name != pod.node_name:
            self._unbind(known)
        if known is not None:
            self._count(known, -1)
        self._count(pod, 1)
        self._pods[pod.uid] = pod
        if pod.node_name:
            self._on.setdefault(pod.node_name, _OnNode()).put(pod)
            self._room.bind(pod.uid, pod.node_name, pod.shape.requests)
        if pod.node_name or pod.deleted is not None or pod.gated:
            self._waiting.pop(pod.uid, None)
        else:
            self._waiting[pod.uid] = pod
        return known

    def drop(self, uid: str) -> Pod | None:
        """A pod is gone or finished; as it was before."""
        known = self._pods.pop(uid, None)
        self._waiting.pop(uid, None)
        if known is not None:
            self._count(known, -1)
            if known.node_name:
                self._unbind(known)
        return known

    def get(self, uid: str) -> Pod | None:
        """One unfinished pod."""
        return self._pods.get(uid)

    def all(self) -> list[Pod]:
        """Every unfinished pod."""
        return list(self._pods.values())

    def on(self, node_name: str) -> tuple[Pod, ...]:
        """The pods bound to one Node, terminating ones included, by name."""
        here = self._on.get(node_name)
        return tuple(here.pods) if here is not None else ()

    def used(self, node_name: str) -> Resources:
        """What the pods on one Node request together. O(1)."""
        return self._room.used(node_name)

    def living_of(self, controller: str) -> int:
        """How many unfinished pods of a controller, by its UID, are not being deleted. O(1)."""
        return self._living[controller]

    def is_waiting(self, uid: str) -> bool:
        """Whether a pod is unbound, ungated and living."""
        return uid in self._waiting

    def waiting(self) -> list[Pod]:
        """Every unbound, ungated, living pod, planned or not."""
        return list(self._waiting.values())

    @property
    def waiting_count(self) -> int:
        """How many of these there are."""
        return len(self._waiting)

    @property
    def node_names(self) -> set[str]:
        """The Nodes that have pods, known or not."""
        return set(self._on)

    def _count(self, pod: Pod, more: int) -> None:
        if pod.owner is None or pod.deleted is not None:
            return
        if count := self._living[pod.owner.uid] + more:
            self._living[pod.owner.uid] = count
        else:
            del self._living[pod.owner.uid]

    def _unbind(self, pod: Pod) -> None:
        self._room.release(pod.uid)
        here = self._on.get(pod.node_name)
        if here is not None:
            here.drop(pod)
            if not here.pods:
                del self._on[pod.node_name]
