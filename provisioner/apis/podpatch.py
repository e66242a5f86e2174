"""The operations of a JSON Patch. Pure."""

from collections.abc import Iterable
from typing import Any

import msgspec

from provisioner.values.jsontext import pointer


class Operation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One JSON Patch operation (RFC 6902); `value` is left out for `remove`."""

    op: str
    path: str
    value: Any = msgspec.UNSET


def add(*parts: str | int, value: Any) -> Operation:
    """Sets a member or appends to an array; the parent must exist."""
    return Operation("add", pointer(*parts), value)


def replace(*parts: str | int, value: Any) -> Operation:
    """Replaces an existing member or element."""
    return Operation("replace", pointer(*parts), value)


def test(*parts: str | int, value: Any) -> Operation:
    """Makes the whole patch fail unless the member has this value."""
    return Operation("test", pointer(*parts), value)


def remove(*parts: str | int) -> Operation:
    """Removes an existing member."""
    return Operation("remove", pointer(*parts))


def patched(document: dict[str, Any], operations: Iterable[Operation]) -> dict[str, Any]:
    """A document, changed in place. Cost: O(operations + what they insert into lists)."""
    for operation in operations:
        *parts, last = (part.replace("~1", "/").replace("~0", "~") for part in operation.path.split("/")[1:])
        parent: Any = document
        for part in parts:
            parent = parent[int(part)] if isinstance(parent, list) else parent[part]
        where: Any = (len(parent) if last == "-" else int(last)) if isinstance(parent, list) else last
        match operation.op:
            case "remove":
                del parent[where]
            case "add" if isinstance(parent, list):
                parent.insert(where, operation.value)
            case _:
                parent[where] = operation.value
    return document
