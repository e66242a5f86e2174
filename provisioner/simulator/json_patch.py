"""A strict JSON Patch (RFC 6902) for tests: add, replace, remove, test; every parent must exist, as in the API server."""

import copy
from collections.abc import Sequence
from typing import Any

import msgspec

from provisioner.apis.podpatch import Operation


class PatchError(AssertionError):
    """The API server would refuse this patch."""


def apply(document: Any, operations: Sequence[Operation | dict[str, Any]]) -> Any:
    """The patched document; the one given is left as it is."""
    result = copy.deepcopy(document)
    for operation in msgspec.json.decode(msgspec.json.encode(operations)):
        parts = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        parent = result
        for part in parts[:-1]:
            parent = _member(parent, part)
        _change(parent, parts[-1], operation)
    return result


def _member(parent: Any, part: str) -> Any:
    try:
        return parent[int(part)] if isinstance(parent, list) else parent[part]
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise PatchError(f"no parent {part!r}") from error


def _change(parent: Any, last: str, operation: dict[str, Any]) -> None:
    match operation["op"], parent:
        case "test", list() | dict():
            missing = isinstance(parent, dict) and last not in parent  # which is null, as in the API server
            if (None if missing else _member(parent, last)) != operation["value"]:
                raise PatchError(f"test failed at {operation['path']}")
        case "add", list():
            parent.insert(len(parent) if last == "-" else int(last), operation["value"])
        case "add", dict():
            parent[last] = operation["value"]
        case "replace", list() | dict():
            _member(parent, last)
            index: Any = int(last) if isinstance(parent, list) else last
            parent[index] = operation["value"]
        case "remove", list():
            _member(parent, last)
            del parent[int(last)]
        case "remove", dict():
            if parent.pop(last, None) is None:
                raise PatchError(f"nothing to remove at {operation['path']}")
        case _:
            raise PatchError(f"cannot {operation['op']} at {operation['path']}")
