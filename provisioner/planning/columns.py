"""Column generation from a seed: a linear program over whole node loads, whose duals say what each pod is worth beside the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import highspy
import numpy as np
from numpy.typing import NDArray

from provisioner.planning.patterns import Arrays, Counts
from provisioner.planning.prices import quiet
from provisioner.planning.search import Fleet, Search

_SMOOTHING: Final = 0.5
_MOST_NEW: Final = 40
_ENOUGH: Final = 2e-4
_PAYS: Final = 1 + 1e-6


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


def generated(search: Search, seeds: Sequence[Fleet], rounds: int) -> Counts | None:
    """Loads of a fleet, from those of `seeds` and those that pay beside them; None where no mix of the seeds keeps the limits.

    Every different load of the seeds is taken: without some of them the answer is worse than the seeds.

    Raises:
        NoPlaceError: limits have no place for what is left over once loads are used whole times.
    """
    a = search.arrays
    master = Master(a)
    for one in seeds:
        master.add(one.slots, one.loads)
    centre = search.worth
    best = 0.0
    solved = master.solve()
    if solved is None:
        return None
    for _ in range(rounds):
        if search.expired():
            break
        new = 0
        for smoothing in (_SMOOTHING, 0.0):
            worth = smoothing * centre + (1 - smoothing) * solved.duals
            slots, loads = search.priced(worth, 0.2)
            price = (a.price + a.charge @ solved.tolls)[slots]
            highest = float(((loads @ worth) / price).max())
            tolls = float(a.budget @ solved.tolls)
            bound = float(a.demand @ worth) / max(highest, 1.0) - tolls  # an estimate: pricing is no proof
            if bound > best:
                best, centre = bound, worth / max(highest, 1.0)
            pays = (loads @ solved.duals) / price
            order = np.argsort(-pays, kind="stable")
            order = order[pays[order] > _PAYS][:_MOST_NEW]
            new = master.add(slots[order], loads[order])
            if new:
                break
        if not new:
            break
        solved = master.solve() or solved
        if solved.usd - best < _ENOUGH * solved.usd:
            break
    return _rounded(search, master, solved.uses, np.maximum(solved.duals, 0.3 * search.worth))


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
        times = min(times, int((left[items] // load[items]).min()))
        if times > 0:
            left -= times * load
            budget -= times * search.arrays.charge[master.slots[number]]
            made += [load] * times
    if left.any():
        made.append(search.dive(left, noise=0.05, worth=worth, budget=budget if len(budget) else None))
    return np.concatenate([one.reshape(-1, len(left)) for one in made])
