"""Sets of small integers as one integer: bit i stands for member i."""

from collections.abc import Iterable, Iterator
from typing import Final

_WORD: Final = 8  # bytes
_WIDE, _DENSE = 2048, 64
"""Bits of a set, and members of it, from which on it is taken apart word by word: to take a member out of an integer is to copy it."""


def members(mask: int) -> Iterator[int]:
    """The members of `mask`, ascending."""
    if mask.bit_length() > _WIDE and mask.bit_count() > _DENSE:
        data = mask.to_bytes((mask.bit_length() + 7) // 8, "little")
        for start in range(0, len(data), _WORD):
            first = start * 8
            for number in members(int.from_bytes(data[start : start + _WORD], "little")):
                yield first + number
        return
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def mask_of(numbers: Iterable[int]) -> int:
    """The set of `numbers`, none of them negative. Cost: O(numbers + largest), however many there are."""
    chosen = list(numbers)
    if not chosen:
        return 0
    if len(chosen) == 1:
        return 1 << chosen[0]
    buffer = bytearray((max(chosen) >> 3) + 1)
    for number in chosen:
        buffer[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(buffer, "little")
