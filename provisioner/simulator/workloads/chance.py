"""Numbers that follow no pattern, the same ones for the same seed: on every machine, and with every version of Python. Pure."""

import math
from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK: Final = (1 << 64) - 1


class Chance:
    """Draws, one after another. Source: SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014)."""

    __slots__ = ("_state",)

    def __init__(self, seed: int, purpose: str = "") -> None:
        """Draws for another purpose have nothing to do with these, so that one more of one kind changes nothing of another."""
        state = seed & _MASK
        for byte in purpose.encode():
            state = (state * 1_099_511_628_211 + byte) & _MASK
        self._state = state

    def _next(self) -> int:
        self._state = (self._state + _STEP) & _MASK
        value = self._state
        value = ((value ^ value >> 30) * _FIRST) & _MASK
        value = ((value ^ value >> 27) * _SECOND) & _MASK
        return value ^ value >> 31

    def share(self) -> float:
        """From 0, and less than 1."""
        return (self._next() >> 11) / (1 << 53)

    def within(self, low: float, high: float) -> float:
        """From `low` to `high`."""
        return low + (high - low) * self.share()

    def one_of(self, options: Sequence[T]) -> T:
        """Any of them, each as likely."""
        return options[self._next() % len(options)]

    def gap(self, mean: float) -> float:
        """Until the next of what comes independently (exponential)."""
        return -mean * math.log(1.0 - self.share())

    def heavy(self, median: float, tail: float) -> float:
        """Mostly about the median and now and then very much more (Pareto): the smaller `tail`, the more of it; at 1 and less there is no mean."""
        return float(median * (2.0 * (1.0 - self.share())) ** (-1.0 / tail))

    def around(self, median: float, spread: float) -> float:
        """Log-normal: a `spread` of 0.7 halves or doubles it in a third of all draws."""
        normal = math.sqrt(-2.0 * math.log(1.0 - self.share())) * math.cos(2.0 * math.pi * self.share())
        return median * math.exp(spread * normal)
