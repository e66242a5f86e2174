"""JSON patches of Nodes, guarded by what they were decided from."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from provisioner.apis.core import Node
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import Conflict, Invalid, NotFound
from provisioner.values.jsontext import pointer
from provisioner.values.message import Said

_TRIES = 6


_WHOLE = frozenset({"/spec/taints", "/metadata/labels", "/metadata/annotations"})


def merged(path: str, present: Mapping[str, str], wanted: Mapping[str, str]) -> list[dict[str, Any]]:
    """JSON patch operations that set keys of a map; the map is made where it is absent."""
    changes = {key: value for key, value in sorted(wanted.items()) if present.get(key) != value}
    if not changes:
        return []
    if not present:
        return [{"op": "add", "path": path, "value": changes}]
    return [{"op": "add", "path": path + pointer(key), "value": value} for key, value in changes.items()]


def appended(path: str, present: Iterable[str], key: str, value: object) -> list[dict[str, Any]]:
    """JSON patch operations that append one item to a list unless its key is there."""
    known = list(present)
    if key in known:
        return []
    return [
        {"op": "add", "path": f"{path}/-", "value": value} if known else {"op": "add", "path": path, "value": [value]}
    ]


def patch_node(client: Client, node: Node, patch_of: Callable[[Node], list[dict[str, Any]]]) -> Node:
    """Apply a guarded JSON patch, re-read and decided again when the guarded part changed meanwhile.

    Raises:
        NotFound: the Node is gone, though another one may have its name.
        ApiError: the last try's.
    """
    name, uid = node.metadata.name, node.metadata.uid
    for attempt in range(_TRIES):
        operations = patch_of(node)
        if not operations or all(operation["op"] == "test" for operation in operations):
            return node
        try:
            return client.patch(resources.NODES, name, _guarded(operations, node), kind="json")
        except (Invalid, Conflict):
            if attempt == _TRIES - 1:
                raise
            node = client.get(resources.NODES, name)
            if uid and node.metadata.uid != uid:
                raise NotFound(404, "NotFound", Said(f"Node {name} was deleted, and a new Node has its name")) from None
    raise AssertionError("the loop returns or raises")


def _guarded(operations: list[dict[str, Any]], node: Node) -> list[dict[str, Any]]:
    """For this very Node; with a test of the version where a map or list that others write too is made whole, and nothing else guards it."""
    if node.metadata.uid:
        operations = [{"op": "test", "path": "/metadata/uid", "value": node.metadata.uid}, *operations]
    tested = {operation["path"] for operation in operations if operation["op"] == "test"}
    if not any(operation["path"] in _WHOLE and operation["path"] not in tested for operation in operations):
        return operations
    guard = {"op": "test", "path": "/metadata/resourceVersion", "value": node.metadata.resource_version}
    return [guard, *operations]
