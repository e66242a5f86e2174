"""Structural hashes: hashstructure's format 2 over 64-bit FNV-1, as Go programs write them on objects.

Lists are sets (two equal elements cancel each other), absent fields are skipped, the order of a struct's fields counts.
None stands for a field that is skipped. Source: core spec 1.1, AWS spec 1.5.
"""

from collections.abc import Iterable, Mapping
from typing import Final

_OFFSET: Final = 14695981039346656037
_PRIME: Final = 1099511628211
_MASK: Final = 2**64 - 1

Fields = Iterable[tuple[str, int | None]]


def fnv(data: bytes) -> int:
    """64-bit FNV-1: multiply, then XOR (1a does it the other way round)."""
    digest = _OFFSET
    for byte in data:
        digest = digest * _PRIME & _MASK ^ byte
    return digest


def string(value: str) -> int:
    """Hash of a string."""
    return fnv(value.encode())


def given(value: str) -> int | None:
    """Empty strings are skipped within a struct, not within a map."""
    return string(value) if value else None


def integer(value: int, size: int = 8) -> int:
    """Hash of a signed integer of `size` bytes."""
    return fnv(value.to_bytes(size, "little", signed=True))


def mapping(entries: Mapping[str, int]) -> int:
    """Hash of a map from strings to values that are hashed already."""
    combined = 0
    for key, value in entries.items():
        combined ^= _pair(string(key), value)
    return _finish(combined)


def strings(entries: Mapping[str, str]) -> int:
    """Hash of a map from strings to strings."""
    return mapping({key: string(value) for key, value in entries.items()})


def unordered(elements: Iterable[int]) -> int:
    """Hash of a list of values that are hashed already."""
    combined = 0
    for element in elements:
        combined ^= element
    return combined


def record(name: str, fields: Fields) -> int:
    """Hash of a struct: its type's name and the fields in the order of their declaration."""
    combined = string(name)
    for field, value in fields:
        if value is not None:
            combined = _finish(combined ^ _pair(string(field), value))
    return combined


def _pair(left: int, right: int) -> int:
    return fnv(left.to_bytes(8, "little") + right.to_bytes(8, "little"))


def _finish(value: int) -> int:
    return fnv(value.to_bytes(8, "little"))
