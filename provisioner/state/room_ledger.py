"""The node ledger: how much room each node has left, by the pods that are bound to it.

Plain bookkeeping without I/O or locks: the owner serialises calls. Events may come in any order, a pod before its
node too; the same facts give the same ledger.
"""

import msgspec

from provisioner.values.resources import EMPTY, Resources


class _Entry(msgspec.Struct, frozen=True, gc=False):
    node: str
    requests: Resources
    daemon: bool


class RoomLedger:
    """Allocatable less the requests of bound pods, per node.

    Every call is O(1) in nodes and pods. Finished pods (Succeeded, Failed) use no room: the caller releases them.
    """

    __slots__ = ("_allocatable", "_daemons", "_pods", "_used")

    def __init__(self) -> None:
        self._allocatable: dict[str, Resources] = {}
        self._pods: dict[str, _Entry] = {}  # by pod UID
        self._used: dict[str, Resources] = {}  # node -> sum over its pods; absent where it has none
        self._daemons: dict[str, Resources] = {}  # node -> the part of `_used` that belongs to DaemonSets

    def __repr__(self) -> str:
        return f"Ledger({len(self._allocatable)} nodes, {len(self._pods)} pods)"

    def __contains__(self, node: object) -> bool:
        return node in self._allocatable

    def set_node(self, name: str, allocatable: Resources) -> None:
        """A node is there, or its allocatable changed."""
        self._allocatable[name] = allocatable

    def drop_node(self, name: str) -> None:
        """A node is gone; pods that are still bound to it stay entered until they are released."""
        self._allocatable.pop(name, None)

    def bind(self, uid: str, node: str, requests: Resources, *, daemon: bool = False) -> None:
        """Enter the pod `uid` on `node`; whatever was entered for it before is replaced.

        Args:
            uid: the pod.
            node: where it is bound, known here or not.
            requests: what it takes, its `pods: 1` included.
            daemon: whether a DaemonSet owns it.
        """
        entry = _Entry(node, requests, daemon)
        if self._pods.get(uid) == entry:
            return
        self.release(uid)
        self._pods[uid] = entry
        self._add(entry)

    def release(self, uid: str) -> None:
        """The pod is gone or finished; nothing happens where it was not entered."""
        entry = self._pods.pop(uid, None)
        if entry is not None:
            self._subtract(entry)

    def allocatable(self, node: str) -> Resources:
        """What the node offers to pods; EMPTY while the node is not known."""
        return self._allocatable.get(node, EMPTY)

    def used(self, node: str) -> Resources:
        """The sum of requests of the pods bound to the node."""
        return self._used.get(node, EMPTY)

    def daemons(self, node: str) -> Resources:
        """The part of `used` that belongs to pods of DaemonSets."""
        return self._daemons.get(node, EMPTY)

    def room(self, node: str) -> Resources:
        """Allocatable less used; negative where the node is overcommitted, or has pods and is not known."""
        return self.allocatable(node) - self.used(node)

    def _add(self, entry: _Entry) -> None:
        self._used[entry.node] = self.used(entry.node) + entry.requests
        if entry.daemon:
            self._daemons[entry.node] = self.daemons(entry.node) + entry.requests

    def _subtract(self, entry: _Entry) -> None:
        _reduce(self._used, entry)
        if entry.daemon:
            _reduce(self._daemons, entry)


def _reduce(sums: dict[str, Resources], entry: _Entry) -> None:
    left = sums.get(entry.node, EMPTY) - entry.requests
    if any(left.values()):
        sums[entry.node] = left
    else:
        sums.pop(entry.node, None)  # names of gone nodes must not pile up
