"""Objects as the API server might send them, of which one list or map is full: made of the Structs that programs decode."""

import functools
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from msgspec import inspect

Path: TypeAlias = tuple[str, ...]
_TEXTS: Final = {
    "operator": "In",
    "restartPolicy": "Always",
    "effect": "NoSchedule",
    "whenUnsatisfiable": "DoNotSchedule",
    "status": "False",
}
_IDENTITY: Final = {"name": "one", "namespace": "shop", "uid": "1", "resourceVersion": "7"}
_TIME: Final = "2026-11-21T10:00:00Z"
_NUMBER: Final = 7_654_321
"""Stands for the number of an element in what is made of it."""
_HERE: Final = '"@elements@"'
_MOST_DEPTH: Final = 12


def paths(kind: type) -> list[Path]:
    """Every list and map of a Struct, in it and in what it holds; "*" stands for an element."""
    return sorted(set(_paths(inspect.type_info(kind), ())))


def rows(kinds: Mapping[str, type]) -> list[tuple[str, Path]]:
    """Every list and map of all of these kinds."""
    return list(itertools.chain.from_iterable(((name, path) for path in paths(kind)) for name, kind in kinds.items()))


def ids(some: list[tuple[str, Path]]) -> list[str]:
    """Names of rows: the kind, and where the object is full."""
    return [f"{name}: {'.'.join(path)}" for name, path in some]


def filled(kind: type, path: Path, count: int, first: int = 0) -> bytes:
    """An object whose list or map at `path` has so many elements, no two of which say the same; nothing else but its name.

    The elements are numbered from `first`.
    """
    before, element, after = _parts(kind, path)
    return before + b",".join(_numbered(element, first + number) for number in range(count)) + after


def of_bytes(kind: type, path: Path, size: int, first: int = 0) -> bytes:
    """Likewise, of about this size as JSON."""
    return filled(kind, path, size // (len(_numbered(_parts(kind, path)[1], 12_345)) + 1), first)


def full(kind: type, count: int) -> bytes:
    """An object of which every list and map that is not in another one has so many elements."""
    outer = [path for path in paths(kind) if "*" not in path and path[0] != "metadata"]
    whole: dict[str, Any] = {"metadata": dict(_IDENTITY)}
    for path in outer:
        merge(whole, json.loads(filled(kind, path, count)))
    return json.dumps(whole, separators=(",", ":")).encode()


def merge(into: dict[str, Any], other: dict[str, Any]) -> None:
    """Say in one object what another says too; of lists that both have, those of the other."""
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value


def _numbered(element: bytes, number: int) -> bytes:
    return element.replace(b"%d" % _NUMBER, b"%d" % number)


@functools.cache
def _parts(kind: type, path: Path) -> tuple[bytes, bytes, bytes]:
    """What comes before the elements, one of them, and what comes after."""
    made, element = _on_the_way(inspect.type_info(kind), path)
    made["metadata"] = _IDENTITY | made.get("metadata", {})
    before, after = json.dumps(made, separators=(",", ":")).split(_HERE)
    if isinstance(element, dict) and list(element) == [_HERE]:
        before, after, element = f"{before[:-1]}{{", f"}}{after[1:]}", element[_HERE]
        text = f'"k{_NUMBER}":{json.dumps(element, separators=(",", ":"))}'
    else:
        text = json.dumps(element, separators=(",", ":"))
    return before.encode(), text.encode(), after.encode()


def _on_the_way(of: inspect.Type, path: Path) -> tuple[Any, Any]:
    """The object with a mark for the elements, and one of these; of a map in a dict of its own."""
    of = _chosen(of)
    if isinstance(of, inspect.StructType):
        field = next(one for one in of.fields if one.encode_name == path[0])
        own = {one.encode_name: _element(one.type, one.encode_name, 0) for one in of.fields if one.required}
        inner, element = _on_the_way(field.type, path[1:])
        return own | {path[0]: inner}, element
    item = _item(of)
    assert item is not None
    is_map = isinstance(of, inspect.DictType)
    if not path:
        element = _element(item, "", 0)
        return [_HERE.strip('"')], {_HERE: element} if is_map else element
    inner, element = _on_the_way(item, path[1:])
    return {"k": inner} if is_map else [inner], element


def _paths(of: inspect.Type, path: Path) -> Iterator[Path]:
    of = _chosen(of)
    if len(path) > _MOST_DEPTH:
        return
    if isinstance(of, inspect.StructType):
        for field in of.fields:
            yield from _paths(field.type, (*path, field.encode_name))
    elif (item := _item(of)) is not None:
        yield path
        yield from _paths(item, (*path, "*"))


def _chosen(of: inspect.Type) -> inspect.Type:
    if isinstance(of, inspect.Metadata):
        return _chosen(of.type)
    if isinstance(of, inspect.UnionType):
        some = [one for one in of.types if not isinstance(one, inspect.NoneType)]
        return _chosen(next((one for one in some if isinstance(one, inspect.StrType)), some[0]))
    return of


def _item(of: inspect.Type) -> inspect.Type | None:
    if isinstance(of, inspect.DictType):
        return of.value_type
    if isinstance(of, inspect.VarTupleType | inspect.ListType | inspect.SetType | inspect.FrozenSetType):
        return of.item_type
    return None


def _element(of: inspect.Type, name: str, depth: int) -> Any:
    """A value that says everything once."""
    of = _chosen(of)
    match of:
        case inspect.StructType():
            found = ((one, _element(one.type, one.encode_name, depth + 1)) for one in of.fields)
            return {one.encode_name: value for one, value in found if depth < _MOST_DEPTH or one.required}
        case inspect.DictType():
            return {f"k{_NUMBER}": _element(of.value_type, "", depth + 1)}
        case inspect.StrType():
            return _TEXTS.get(name, f"{_NUMBER}")
        case inspect.BoolType():
            return True
        case inspect.IntType() | inspect.FloatType():
            return _NUMBER
        case inspect.DateTimeType():
            return _TIME
        case _:
            item = _item(of)
            return [] if item is None else [_element(item, "", depth + 1)]
