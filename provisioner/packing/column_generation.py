"""Column generation from a seed: a linear program over whole node loads, whose duals say what each pod is worth beside the others."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import highspy
import numpy as np
from numpy.typing import NDArray

from provisioner.packing.dual_prices import quiet
from provisioner.packing.knapsack import NANO, Knapsacks
from provisioner.packing.patterns import Arrays, Counts
from provisioner.packing.ruin_recreate import FleetArrays, NoPlaceError, Search

_SMOOTHING: Final = 0.5
_MOST_NEW: Final = 40
_ENOUGH: Final = 2e-4
_PAYS: Final = 1 + 1e-6
_EXACT: Final = 2
"""So many times as many rounds where each of them is quick and brings the best loads."""


class Master:
    """The program: every load once, as often as one likes, every pod at least once, and no limit exceeded."""

    def __init__(self, arrays: Arrays) -> None:
        demand, budget = arrays.demand, arrays.budget
        self._price: Final = arrays.price
        self._charge: Final = arrays.charge
        self._unit: Final = np.maximum(arrays.charge.max(0, initial=1.0), 1.0)
        self._solver: Final = quiet()
        self._solver.setOptionValue("presolve", "off")
        self._pods: Final = len(demand)
        count = len(demand) + len(budget)
        infinite = highspy.kHighsInf
        low = np.concatenate([demand.astype(float), np.full(len(budget), -infinite)])
        top = np.concatenate([np.full(len(demand), infinite), budget / self._unit])
        empty = np.zeros(0)
        self._solver.addRows(count, low, top, 0, np.zeros(count, np.int32), np.zeros(0, np.int32), empty)
        self._seen: Final[set[tuple[int, bytes]]] = set()
        self.slots: Final[list[int]] = []
        self.loads: Final[list[Counts]] = []

    def add(self, slots: NDArray[np.int64], loads: Counts) -> int:
        """Put loads in that are not there yet; how many."""
        before = len(self.slots)
        for slot, load in zip(slots.tolist(), loads, strict=True):
            key = (slot, load.tobytes())
            if key not in self._seen:
                self._seen.add(key)
                items = np.flatnonzero(load)
                charged = np.flatnonzero(self._charge[slot])
                rows = np.concatenate([items, self._pods + charged]).astype(np.int32)
                amounts = np.concatenate([load[items], (self._charge[slot] / self._unit)[charged]])
                self._solver.addCol(float(self._price[slot]), 0, highspy.kHighsInf, len(rows), rows, amounts)
                self.slots.append(slot)
                self.loads.append(load)
        return len(self.slots) - before

    def solve(self) -> "Solved | None":
        """The cheapest use of the loads that are there; None where none of them keeps the limits."""
        self._solver.run()
        if self._solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        solution = self._solver.getSolution()
        usd = float(self._solver.getInfo().objective_function_value)
        duals = np.array(solution.row_dual)
        tolls = np.maximum(0, -duals[self._pods :]) / self._unit
        return Solved(usd, np.maximum(0, duals[: self._pods]), tolls, np.array(solution.col_value))


@dataclass(frozen=True, slots=True)
class Solved:
    """An answer of the program.

    Attributes:
        usd: its price.
        duals: of the pods.
        tolls: by limit, USD per hour for a unit that counts against it.
        uses: how often each load is used.
    """

    usd: float
    duals: NDArray[np.float64]
    tolls: NDArray[np.float64]
    uses: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Generated:
    """What came of it.

    Attributes:
        loads: of a fleet; None where limits have no place for what is left over once loads are used whole times, or no mix of the
            seeds keeps them.
        usd_at_least: per hour: no fleet for these pods costs less. 0 where nothing is proved.
    """

    loads: Counts | None
    usd_at_least: float = 0.0


def generated(
    search: Search, seeds: Sequence[FleetArrays], rounds: int, knapsacks: Knapsacks | None = None
) -> Generated:
    """Loads of a fleet, from those of `seeds` and those that pay beside them.

    Every different load of the seeds is taken: without some of them the answer is worse than the seeds. With `knapsacks` the loads
    that pay best are found for certain, up to `_EXACT` times as many rounds; without, by the fill that the dive uses.
    """
    master = Master(search.arrays)
    for one in seeds:
        master.add(one.slots, one.loads)
    solved = master.solve()
    if solved is None:
        return Generated(None)
    generation = _Generation(search, master, knapsacks)
    for _ in range(rounds if knapsacks is None else _EXACT * rounds):
        if search.expired() or not generation.grown(solved):
            break
        solved = master.solve() or solved
        if solved.usd - generation.bound < _ENOUGH * solved.usd:
            break
    try:
        loads = _rounded(search, master, solved.uses, np.maximum(solved.duals, 0.3 * search.worth))
    except NoPlaceError:
        return Generated(None, generation.usd_at_least)
    return Generated(loads, generation.usd_at_least)


class _Generation:
    """The rounds of one generation.

    Attributes:
        bound: about the least that the program can come to; an estimate without knapsacks.
        usd_at_least: as of `Generated`.
    """

    def __init__(self, search: Search, master: Master, knapsacks: Knapsacks | None) -> None:
        self.search: Final = search
        self.master: Final = master
        self.knapsacks: Final = knapsacks
        self.centre = search.worth
        self.bound = 0.0
        self.usd_at_least = 0.0

    def grown(self, solved: Solved) -> int:
        """Put loads into the program that pay at its duals, or at duals nearer to the best ones so far; how many."""
        a = self.search.arrays
        price = a.price + a.charge @ solved.tolls
        for smoothing in (_SMOOTHING, 0.0):
            worth = smoothing * self.centre + (1 - smoothing) * solved.duals
            for slots, loads in self._priced(worth, price, float(a.budget @ solved.tolls)):
                pays = (loads @ solved.duals) / price[slots]
                order = np.argsort(-pays, kind="stable")
                order = order[pays[order] > _PAYS][:_MOST_NEW]
                new = self.master.add(slots[order], loads[order])
                if new:
                    return new
        return 0

    def _priced(
        self, worth: NDArray[np.float64], price: NDArray[np.float64], tolls: float
    ) -> Iterator[tuple[NDArray[np.int64], Counts]]:
        """Good loads by slot at these worths: the best ones, where they can be found, then others."""
        a = self.search.arrays
        if self.knapsacks is not None:
            whole = np.floor(worth * NANO).astype(np.int64)
            table = self.knapsacks.table(whole)
            values = self.knapsacks.values(table)
            self.usd_at_least = max(self.usd_at_least, self.knapsacks.usd_at_least(whole, table))
            self._heed(worth, float((values / price).max()), tolls)
            slots = np.argsort(-values / price, kind="stable")[:_MOST_NEW]
            loads = np.array([self.knapsacks.load(table, whole, slot) for slot in slots.tolist()], dtype=np.int32)
            slots, loads = np.concatenate([slots, slots]), np.concatenate([loads, np.minimum(loads, a.demand)])
            fits = (loads @ a.need.astype(np.float64) <= a.room[slots]).all(1) & (loads <= a.most).all(1)
            yield slots[fits], loads[fits]
        slots, loads = self.search.priced(worth, 0.2)
        if self.knapsacks is None:
            self._heed(worth, float(((loads @ worth) / price[slots]).max()), tolls)
        yield slots, loads

    def _heed(self, worth: NDArray[np.float64], highest: float, tolls: float) -> None:
        """Whether these worths prove more than those before, or seem to; `tolls`: for the whole budgets of limits."""
        bound = float(self.search.arrays.demand @ worth) / max(highest, 1.0) - tolls
        if bound > self.bound:
            self.bound, self.centre = bound, worth / max(highest, 1.0)


def _rounded(search: Search, master: Master, uses: NDArray[np.float64], worth: NDArray[np.float64]) -> Counts:
    """Whole times of the loads, most used first, and a dive for what is left."""
    left, budget = search.arrays.demand.copy(), search.arrays.budget.copy()
    made: list[Counts] = []
    for number in np.argsort(-uses, kind="stable").tolist():
        times = int(uses[number] + 1e-6)
        if times < 1:
            break
        load = master.loads[number]
        items = np.flatnonzero(load)
        times = min(times, int((left[items] // load[items]).min()))  # 0 for a load of more pods than there are
        if times > 0:
            left -= times * load
            budget -= times * search.arrays.charge[master.slots[number]]
            made += [load] * times
    if left.any():
        made.append(search.dive(left, noise=0.05, worth=worth, budget=budget if len(budget) else None))
    return np.concatenate([one.reshape(-1, len(left)) for one in made])
