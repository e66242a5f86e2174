"""Sets of small integers as one integer: bit i stands for member i."""

from collections.abc import Iterable, Iterator


def members(mask: int) -> Iterator[int]:
    """The members of `mask`, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def mask_of(numbers: Iterable[int]) -> int:
    """The set of `numbers`, none of them negative."""
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask
