"""Resource amounts as plain tuples over the few resources that one problem is about; the inner loop's arithmetic."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from provisioner.values.resources import Resources

Vector = tuple[int, ...]
Need = tuple[tuple[int, int], ...]
"""What one pod takes: (dimension, amount > 0)."""


@dataclass(frozen=True, slots=True)
class Dimensions:
    """The resources that anything in a problem asks for, in order of name; no other can ever be short."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, requests: Iterable[Resources]) -> "Dimensions":
        """Every resource of which any of `requests` wants more than 0."""
        return cls(tuple(sorted({name for one in requests for name, amount in one.items() if amount > 0})))

    def vector(self, resources: Resources) -> Vector:
        """The amounts of `resources` in order of dimension, 0 where absent."""
        return tuple(resources.amount(name) for name in self.names)

    def filled(self, need: Need) -> Vector:
        """The vector of a need."""
        amounts = dict(need)
        return tuple(amounts.get(d, 0) for d in range(len(self.names)))

    def need(self, resources: Resources) -> Need:
        """The dimensions of which `resources` wants something."""
        if tuple(resources) == self.names:
            return tuple((d, amount) for d, amount in enumerate(resources.values()) if amount > 0)
        return tuple((d, amount) for d, name in enumerate(self.names) if (amount := resources.amount(name)) > 0)


def most(room: Sequence[int], need: Need, limit: int) -> int:
    """How many times `need` can be taken from `room`, at most `limit`; room must not be negative."""
    for d, amount in need:
        times = room[d] // amount
        if times < limit:  # noqa: PLR1730 - min() is a call, and this is the innermost loop
            limit = times
    return limit


def frontier(vectors: Iterable[Vector]) -> tuple[Vector, ...]:
    """The vectors that no other one equals or exceeds everywhere: what fits any, fits one of these.

    Descending; equal vectors count once. Cost: O(distinct vectors x frontier).
    """
    kept: list[Vector] = []
    for vector in sorted(set(vectors), reverse=True):  # nothing later can exceed an earlier one everywhere
        if not any(all(map(_le, vector, one)) for one in kept):
            kept.append(vector)
    return tuple(kept)


def _le(left: int, right: int) -> bool:
    return left <= right
