"""Resource amounts as plain tuples over the few resources that one problem is about; the inner loop's arithmetic."""

import functools
import operator
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.apis.core import ANY_NUMBER
from provisioner.scheduling.constraints.bitsets import mask_of
from provisioner.values.resources import Resources

Vector = tuple[int, ...]
ATTACHABLE: Final = "attachable-volumes-csi-"
"""Prefix of the resource that stands for volumes of one CSI driver on one node."""
Need = tuple[tuple[int, int], ...]
"""What one pod takes: (dimension, amount > 0)."""


@dataclass(frozen=True)
class Dimensions:
    """The resources that anything in a problem asks for, in order of name; no other can ever be short."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, requests: Iterable[Resources], drivers: Iterable[str] = ()) -> "Dimensions":
        """Every resource of which any of `requests` wants more than 0, and volumes of these CSI drivers."""
        names = {name for one in requests for name in one.wanted}
        return cls(tuple(sorted(names.union([ATTACHABLE + driver for driver in drivers]))))

    def vector(self, resources: Resources) -> Vector:
        """The amounts of `resources` in order of dimension, 0 where absent."""
        return resources.amounts_of(self.names)

    def room(self, resources: Resources, attach_limits: Mapping[str, int]) -> Vector:
        """As `vector`, with the limits on volumes by driver."""
        if not self.drivers:
            return self.vector(resources)
        return tuple(
            attach_limits.get(name[len(ATTACHABLE) :], ANY_NUMBER)
            if name.startswith(ATTACHABLE)
            else resources.amount(name)
            for name in self.names
        )

    @functools.cached_property
    def drivers(self) -> tuple[str, ...]:
        """The CSI drivers whose volumes are counted."""
        return tuple(name[len(ATTACHABLE) :] for name in self.names if name.startswith(ATTACHABLE))

    def filled(self, need: Need) -> Vector:
        """The vector of a need."""
        amounts = dict(need)
        return tuple(amounts.get(d, 0) for d in range(len(self.names)))

    def need(self, resources: Resources) -> Need:
        """The dimensions of which `resources` wants something."""
        return tuple((d, amount) for d, amount in enumerate(resources.amounts_of(self.names)) if amount > 0)


def most(room: Sequence[int], need: Need, limit: int) -> int:
    """How many times `need` can be taken from `room`, at most `limit`; below 0 where room is negative."""
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
        if not any(all(map(operator.le, vector, one)) for one in kept):
            kept.append(vector)
    return tuple(kept)


class Thresholds:
    """For many vectors: which of them have at least so much of a dimension, answered by one look-up.

    Cost: O(vectors x dimensions) once, then O(log vectors) a question, and O(changed) where some lie on top that changed.
    """

    def __init__(self, vectors: Sequence[Sequence[int]]) -> None:
        self.everything: Final = (1 << len(vectors)) - 1
        self._vectors: Final = vectors
        self._steps: Final[dict[int, _Steps]] = {}
        self._changed: Mapping[int, Sequence[int]] = {}
        self._untouched = -1

    def changed(self, vectors: Mapping[int, Sequence[int]]) -> "Thresholds":
        """As these, with other vectors for some numbers (of any length: those that came are numbered after the others)."""
        found = Thresholds(())
        every = {**self._changed, **vectors}
        if len(every) > _MOST_CHANGED:
            own = list(self._vectors)
            for number, vector in sorted(every.items()):
                if number < len(own):
                    own[number] = vector
                else:
                    own.append(vector)
            return Thresholds(own)
        found._vectors = self._vectors  # type: ignore[misc]
        found._steps = self._steps  # type: ignore[misc]
        found.everything = self.everything | mask_of(every)  # type: ignore[misc]
        found._changed = every
        found._untouched = ~mask_of(every)
        return found

    def with_at_least(self, d: int, amount: int) -> int:
        """The vectors with `amount` or more in dimension `d`."""
        steps = self._steps.get(d)
        found = (self._step(d) if steps is None else steps)[amount]
        if self._changed:
            found &= self._untouched
            for number, vector in self._changed.items():
                if vector[d] >= amount:
                    found |= 1 << number
        return found

    def holding(self, need: Need) -> int:
        """The vectors from which `need` can be taken once."""
        holding = self.everything
        for d, amount in need:
            holding &= self.with_at_least(d, amount)
        return holding

    def exceeding(self, used: Sequence[int]) -> int:
        """The vectors that are nowhere below `used`."""
        holding = self.everything
        if self._changed:
            for d, amount in enumerate(used):
                if amount > 0:
                    holding &= self.with_at_least(d, amount)
            return holding
        for d, amount in enumerate(used):
            if amount > 0:
                steps = self._steps.get(d)  # not by `with_at_least`: a call costs more
                holding &= (self._step(d) if steps is None else steps)[amount]
        return holding

    def _step(self, d: int) -> "_Steps":
        by_amount: dict[int, list[int]] = {}
        for number, vector in enumerate(self._vectors):
            by_amount.setdefault(vector[d], []).append(number)
        amounts = sorted(by_amount)
        masks = [0]
        mask = 0
        for amount in reversed(amounts):
            mask |= mask_of(by_amount[amount])
            masks.append(mask)
        masks.reverse()
        found = self._steps[d] = _Steps(amounts, masks)
        return found


_MOST_AMOUNTS: Final = 10_000
_MOST_CHANGED: Final = 128


class _Steps(dict[int, int]):
    """By amount, the vectors with at least that much of one dimension; looked up when it is first asked for."""

    def __init__(self, amounts: Sequence[int], masks: Sequence[int]) -> None:
        """`amounts` are distinct and ascending, with the mask of each; and one mask more for what exceeds them all."""
        super().__init__()
        self._amounts: Final = amounts
        self._masks: Final = masks

    def __missing__(self, amount: int) -> int:
        if len(self) >= _MOST_AMOUNTS:
            self.clear()
        mask = self[amount] = self._masks[bisect_left(self._amounts, amount)]
        return mask
