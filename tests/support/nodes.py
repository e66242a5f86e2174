"""The Nodes of a cluster that is only a dictionary: an API server's answers, and a watch that lags until it catches up."""

import itertools
from collections import Counter
from collections.abc import Callable

import msgspec

from provisioner.apis.core import Node
from provisioner.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from provisioner.kube.resources import Resource
from provisioner.kube.store import Store
from provisioner.support.workers import ReconcileResult
from tests.support.clock import NOON


class FakeNodes:
    """An API server for Nodes alone, and the store of a watch on it.

    Attributes:
        server: what the API server has.
        store: what the watch has shown, as of the last `sync`.
        requests: how many of each verb the server got.
        failing: raised instead of the next answers, in order.
        meanwhile: called in the middle of each create and delete, after the Node is stored, or gone.
    """

    def __init__(self) -> None:
        self.server: dict[str, Node] = {}
        self.store: Store[Node] = Store()
        self.requests: Counter[str] = Counter()
        self.failing: list[ApiError] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self._uids = itertools.count(1)

    def sync(self) -> None:
        """Let the watch catch up."""
        for gone in {node.metadata.name for node in self.store.list()} - self.server.keys():
            self.store.remove(gone)
        for name, node in self.server.items():
            self.store.put(name, node)

    def get(self, _resource: Resource[Node], name: str, /) -> Node:
        self._request("get")
        if name not in self.server:
            raise NotFound(404, "NotFound", name)
        return self.server[name]

    def create(self, _resource: Resource[Node], body: object, /, *, retry: bool = False) -> Node:
        self._request("create")
        assert retry, "an answer that gets lost must not end a launch"
        node = msgspec.json.decode(msgspec.json.encode(body), type=Node)
        if node.metadata.name in self.server:
            raise AlreadyExists(409, "AlreadyExists", node.metadata.name)
        self.server[node.metadata.name] = node
        self.change(node.metadata.name, uid=f"node-uid-{next(self._uids)}", creation_timestamp=NOON)
        stored = self.server[node.metadata.name]
        self.meanwhile()
        return stored

    def patch(
        self, _resource: Resource[Node], name: str, body: object, /, namespace: str = "", subresource: str = ""
    ) -> Node:
        """Of the status alone, as a merge patch."""
        self._request("patch")
        assert not namespace
        assert subresource == "status"
        if name not in self.server:
            raise NotFound(404, "NotFound", name)
        wire = msgspec.to_builtins(self.server[name])
        told = msgspec.to_builtins(body)["status"]
        wire["status"]["nodeInfo"] = {**wire["status"].get("nodeInfo", {}), **told["nodeInfo"]}
        self.server[name] = msgspec.convert(wire, Node, strict=False)
        return self.server[name]

    def delete(self, _resource: Resource[Node], name: str, /, *, uid: str = "") -> None:
        self._request("delete")
        node = self.server.get(name)
        if node is None:
            raise NotFound(404, "NotFound", name)
        if uid and uid != node.metadata.uid:
            raise Conflict(409, "Conflict", name)
        if node.metadata.finalizers:
            self.change(name, deletion_timestamp=NOON)
        else:
            del self.server[name]
        self.meanwhile()

    def change(self, name: str, **metadata: object) -> None:
        """Write some metadata of a Node, as others do."""
        node = self.server[name]
        changed = msgspec.structs.replace(node.metadata, **metadata)
        self.server[name] = msgspec.structs.replace(node, metadata=changed)

    def _request(self, verb: str) -> None:
        self.requests[verb] += 1
        if self.failing:
            raise self.failing.pop(0)


class ManualQueue:
    """A delay queue that runs nothing by itself.

    Attributes:
        waiting: key to the delay in seconds that was asked for.
    """

    def __init__(self, run: Callable[[str], ReconcileResult | None]) -> None:
        self._run = run
        self.waiting: dict[str, float] = {}
        self.started = False

    def start(self) -> None:
        self.started = True

    def stop(self) -> None:
        self.started = False

    def add_after(self, key: str, seconds: float, /) -> None:
        assert self.started, "a queue without threads runs nothing"
        self.waiting[key] = seconds

    def run(self, key: str) -> ReconcileResult | None:
        """The delay of `key` is over."""
        del self.waiting[key]
        result = self._run(key)
        if result is not None and result.failed:
            self.waiting[key] = 0.1
        return result
