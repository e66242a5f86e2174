"""How much memory a decoded value keeps. Pure."""

import sys
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from provisioner.values.message import Said

T = TypeVar("T")
POD_BYTES: Final = 16 * 1024
"""Memory that a pod may keep, its class included; its constraints are bounded apart (`CONSTRAINT_BYTES`)."""
CLASS_BYTES: Final = 11 * 1024
"""Of these, what the labels, amounts, volumes and names of its class may take. The rest is for what is the pod's own."""
CONSTRAINT_BYTES: Final = 32 * 1024
"""Text of affinity, spreads, tolerations, ports and device claims, and `CONSTRAINT_COST` for each object in it: all instance types of EC2 fit."""
CONSTRAINT_COST: Final = 24
OBJECT_BYTES: Final = 64 * 1024
"""Memory that any other object that tenants write may keep."""
AMOUNTS_BYTES: Final = 16 * 1024
"""Memory that the amounts of a pod's containers may keep besides, where they are asked for: those of some 18 containers."""
_SMALL: Final = 2048
"""Bytes of JSON that no decoder makes more than `OBJECT_BYTES` of: two bytes are never more than 64 in memory."""


def footprint(value: object, most: int) -> int:
    """Bytes of a value of Structs, mappings, lists and texts, all of it; counting ends where it is more than `most`.

    Cost: O(`most`), and O(1) Python steps for a list or map that is longer.
    """
    waiting: list[object] = [value]
    total = 0
    while waiting and total <= most:
        one = waiting.pop()
        if not one:  # None, "", (): there is one of each
            continue
        total += sys.getsizeof(one)
        if isinstance(one, msgspec.Struct):
            waiting += [getattr(one, name) for name in one.__struct_fields__]
        elif isinstance(one, Mapping):
            waiting += one.keys()
            waiting += one.values()
        elif isinstance(one, tuple | list):
            waiting += one
    return total


def within(values: Iterable[T], most: int) -> tuple[T, ...]:
    """The first of some values, as many as take no more than `most` bytes together."""
    kept = []
    for one in values:
        most -= footprint(one, most)
        if most < 0:
            break
        kept.append(one)
    return tuple(kept)


def keeps_little(data: bytes | msgspec.Raw, value: object) -> bool:
    """Whether what was decoded from `data` keeps no more than `OBJECT_BYTES`."""
    return len(data) <= _SMALL or footprint(value, OBJECT_BYTES) <= OBJECT_BYTES


def keeps_too_much(most: int) -> str:
    """Why an object that somebody wrote is ignored."""
    return Said(f"it needs more than {most} KiB of memory, the limit for an object")


def check_kept(data: bytes | msgspec.Raw, value: object) -> None:
    """Refuse an object that would keep more than `OBJECT_BYTES`: it counts as one that cannot be read.

    Raises:
        ValueError: it would.
    """
    if not keeps_little(data, value):
        raise ValueError(keeps_too_much(OBJECT_BYTES // 1024))
