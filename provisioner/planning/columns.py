"""Column generation from a seed: a linear program over whole node loads, whose duals say what each pod is worth beside the others."""

from collections.abc import Sequence
from typing import Final

import highspy
import numpy as np
from numpy.typing import NDArray

from provisioner.planning.patterns import Counts
from provisioner.planning.prices import quiet
from provisioner.planning.search import Fleet, Search

_SMOOTHING: Final = 0.5
_MOST_NEW: Final = 40
_ENOUGH: Final = 2e-4
_PAYS: Final = 1 + 1e-6


class Master:
    """The program: every load once, as often as one likes, every pod at least once."""

    def __init__(self, demand: Counts, price: NDArray[np.float64]) -> None:
        self._price: Final = price
        self._solver: Final = quiet()
        self._solver.setOptionValue("presolve", "off")
        count = len(demand)
        top = np.full(count, highspy.kHighsInf)
        empty = np.zeros(0)
        self._solver.addRows(
            count, demand.astype(float), top, 0, np.zeros(count, np.int32), np.zeros(0, np.int32), empty
        )
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
                amounts = load[items].astype(float)
                self._solver.addCol(
                    float(self._price[slot]), 0, highspy.kHighsInf, len(items), items.astype(np.int32), amounts
                )
                self.slots.append(slot)
                self.loads.append(load)
        return len(self.slots) - before

    def solve(self) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        """Price, duals of the pods, and how often each load is used."""
        self._solver.run()
        solution = self._solver.getSolution()
        usd = float(self._solver.getInfo().objective_function_value)
        return usd, np.maximum(0, np.array(solution.row_dual)), np.array(solution.col_value)


def generated(search: Search, seeds: Sequence[Fleet], rounds: int) -> tuple[Fleet, NDArray[np.float64]]:
    """A fleet from the loads of `seeds` and those that pay beside them, and what pods are worth then.

    Every different load of the seeds is taken: without some of them the answer is worse than the seeds.
    """
    a = search.arrays
    master = Master(a.demand, a.price)
    for one in seeds:
        master.add(one.slots, one.loads)
    centre = search.worth
    best = 0.0
    usd, duals, uses = master.solve()
    for _ in range(rounds):
        if search.expired():
            break
        new = 0
        for smoothing in (_SMOOTHING, 0.0):
            worth = smoothing * centre + (1 - smoothing) * duals
            slots, loads = search.priced(worth, 0.2)
            highest = float(((loads @ worth) / a.price[slots]).max())
            bound = float(a.demand @ worth) / max(highest, 1.0)  # an estimate: pricing is no proof
            if bound > best:
                best, centre = bound, worth / max(highest, 1.0)
            pays = (loads @ duals) / a.price[slots]
            order = np.argsort(-pays, kind="stable")
            order = order[pays[order] > _PAYS][:_MOST_NEW]
            new = master.add(slots[order], loads[order])
            if new:
                break
        if not new:
            break
        usd, duals, uses = master.solve()
        if usd - best < _ENOUGH * usd:
            break
    worth = np.maximum(duals, 0.3 * search.worth)
    return _rounded(search, master, uses, worth), worth


def _rounded(search: Search, master: Master, uses: NDArray[np.float64], worth: NDArray[np.float64]) -> Fleet:
    """Whole times of the loads, most used first, and a dive for what is left."""
    left = search.arrays.demand.copy()
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
            made += [load] * times
    if left.any():
        made.append(search.dive(left, noise=0.05, worth=worth))
    return search.fleet(np.concatenate([one.reshape(-1, len(left)) for one in made]))
