"""What pods on one node can be worth at the most, exactly: where their sizes are multiples of a few units, by a table over room.

Only cpu and memory are looked at, and no node has too many pods of a kind: a node of which more is asked is worth no more than that.
So the worth of all pods, divided by what a table says that nodes are overpaid, is a lower bound on every fleet. It is higher than
that of the linear program over resources where pods are a large part of a node, and the loads in the table are the best there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Final

import numpy as np
from numpy.typing import NDArray

from provisioner.packing.model import Model
from provisioner.packing.patterns import Counts
from provisioner.scheduling.constraints.bitsets import members
from provisioner.values.resources import CPU, MEMORY

NANO: Final = 10**9
_MOST_WORK: Final = 30_000_000
"""Cells of a table times kinds of pods: a tenth of a second."""
_ROW: Final = 600
"""A row of a table takes as long for one kind of pods as so many cells, however short it is."""


@dataclass(frozen=True, slots=True)
class Knapsacks:
    """The question, in units.

    Attributes:
        needs: (cpu, memory) of one pod of each item.
        rooms: (cpu, memory) of each slot that the planner uses.
        ways: (cpu, memory) of every slot that the bound is about; `usd` is the price of each, exact and without any penalty.
        demand: pods of each item.
    """

    needs: tuple[tuple[int, int], ...]
    rooms: NDArray[np.int64]
    ways: NDArray[np.int64]
    usd: tuple[Fraction, ...]
    demand: tuple[int, ...]

    @classmethod
    def of(cls, model: Model, slots: Sequence[int]) -> "Knapsacks | None":
        """For these slots of a model. None where pods differ in where they may go, nodes may be had for nothing, or a table would be too large."""
        market, items = model.market, model.items
        names = market.names
        if (
            CPU not in names
            or MEMORY not in names
            or len({one.allowed for one in items}) != 1
            or len(market.groups) != 1
        ):
            return None
        d, e = names.index(CPU), names.index(MEMORY)
        prices: dict[tuple[int, int], Fraction] = {}
        unit, other = (gcd(*[one.need[n] for one in items]) or 1 for n in (d, e))
        for number in members(market.groups[0].allowed):
            slot = market.slots[number]
            room = max(0, slot.room[d]) // unit, max(0, slot.room[e]) // other
            prices[room] = min(prices.get(room, slot.usd), slot.usd)
        if market.free or market.supplies or not prices or min(prices.values()) <= 0:
            return None
        ways = np.array(list(prices), dtype=np.int64)
        needs = tuple([(one.need[d] // unit, one.need[e] // other) for one in items])
        rows, cells = (ways.max(0) + 1).tolist()
        if min(k for k, _ in needs) < 1 or rows * (cells + _ROW) * len(needs) > _MOST_WORK:
            return None
        rooms = [[max(0, model.slots[n].room[d]) // unit, max(0, model.slots[n].room[e]) // other] for n in slots]
        demand = tuple([len(one.pods) for one in items])
        return cls(needs, np.array(rooms, dtype=np.int64), ways, tuple(prices.values()), demand)

    def table(self, worth: NDArray[np.int64]) -> NDArray[np.int64]:
        """By cpu and memory, the most that pods may be worth that fit into so much; `worth` of one pod of each item."""
        cpus, memories = (int(one) + 1 for one in self.ways.max(0))
        found = np.zeros((cpus, memories), dtype=np.int64)
        paying = [
            (k, m, int(w)) for (k, m), w in zip(self.needs, worth.tolist(), strict=True) if w > 0 and m < memories
        ]
        for cpu in range(1, cpus):
            row = found[cpu]
            row[:] = found[cpu - 1]
            for k, m, w in paying:
                if k <= cpu:
                    np.maximum(row[m:], found[cpu - k, : memories - m] + w, out=row[m:])
        return found

    def load(self, table: NDArray[np.int64], worth: NDArray[np.int64], slot: int) -> Counts:
        """The pods that are worth what a table says of a slot; there may be fewer of an item."""
        cpu, memory = map(int, self.rooms[slot])
        counts = [0] * len(self.needs)
        paying = [
            (item, k, m, w) for item, ((k, m), w) in enumerate(zip(self.needs, worth.tolist(), strict=True)) if w > 0
        ]
        while table[cpu, memory]:
            whole = table[cpu, memory]
            for item, k, m, w in paying:
                if k <= cpu and m <= memory and table[cpu - k, memory - m] + w == whole:
                    counts[item] += 1
                    cpu, memory = cpu - k, memory - m
                    break
            else:
                cpu -= 1
        return np.array(counts, dtype=np.int32)

    def values(self, table: NDArray[np.int64]) -> NDArray[np.float64]:
        """The most that pods on a node of each slot may be worth, in USD per hour."""
        found: NDArray[np.float64] = table[self.rooms[:, 0], self.rooms[:, 1]] / NANO
        return found

    def usd_at_least(self, worth: NDArray[np.int64], table: NDArray[np.int64]) -> float:
        """No fleet for these pods costs less, in USD per hour: rounded down. Exact arithmetic."""
        values: list[int] = table[self.ways[:, 0], self.ways[:, 1]].tolist()
        overpaid = max(Fraction(value, NANO) / usd for value, usd in zip(values, self.usd, strict=True))
        total = sum(count * one for count, one in zip(self.demand, worth.tolist(), strict=True))
        found = Fraction(total, NANO) / overpaid if overpaid else Fraction(0)
        return found.numerator * 10**6 // found.denominator / 10**6
