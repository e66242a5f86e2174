"""Sets of small integers as one integer: bit i stands for member i."""

from collections.abc import Iterable, Iterator


def members(mask: int) -> Iterator[int]:
    """The members of `mask`, ascending."""
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
