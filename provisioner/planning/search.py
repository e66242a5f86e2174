"""Fleets in arrays: a dive from nothing, and ruin and recreate."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from provisioner.planning.patterns import Arrays, Counts, Floats, fill

_NEAR: Final = 0.9
"""Slots that could be worth so much of their price, at the going rates, are tried; others only for what is left at last."""
_FEWEST: Final = 12
_MOST_ITEMS: Final = 160
"""So many kinds of pods are looked at for one round of nodes, drawn at random of more."""
_MOST_ROWS: Final = 128
"""So many pairs of a slot and a set of weights are tried for one round of nodes, drawn at random of more."""
_MOST_RUINED: Final = 14
_SCARCE: Final = (0.0, 1.0, 3.0)
"""What scarce pods count in a round, times their worth at the going rates; 0 where they do not come first."""
_TOLLS: Final = (0.5, 1.0, 2.0, 8.0, 1000.0)
"""How much of the tolls is tried until slots keep the limits."""
_EPSILON: Final = 1e-9
_LEAST_WORTH: Final = 1e-6
"""Of the worth of the dearest pod: a pod that costs nothing at the going rates must find a place too."""


class NoPlaceError(Exception):
    """No slot is left for some pods: what limits allow is used up."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Nodes: the slot of each, and its pods by item."""

    slots: NDArray[np.int64]
    loads: Counts
    usd: float


class Search:
    """One model, its rates, and a source of chance.

    Attributes:
        worth: of one pod of each item.
        tolls: of each slot, for what it counts against limits, in USD per hour; 0 where limits hold nothing back.
        steps: rounds of ruin and recreate done.
    """

    def __init__(
        self,
        arrays: Arrays,
        worth: NDArray[np.float64],
        room_worth: NDArray[np.float64],
        weights: Floats,
        seed: int,
        expired: Callable[[], bool],
        tolls: NDArray[np.float64] | None = None,
    ) -> None:
        """`room_worth`: of all that a slot has, at the going rates. `tolls`: by limit, USD per hour for a unit that counts against it."""
        self.arrays: Final = arrays
        self.tolls: Final = np.zeros(len(arrays.price)) if tolls is None else arrays.charge @ tolls
        self.worth: Final = np.maximum(worth, _LEAST_WORTH * float(worth.max()) or 1.0)
        self.rng: Final = np.random.default_rng(seed)
        self.scarce: Final = arrays.scarce
        self.expired: Final = expired
        self.steps = 0
        self._weights: Final = weights
        self._fits: Final = np.ascontiguousarray(arrays.allowed.T)
        self._room_worth: Final = room_worth
        self._near: Final = self._near_slots()

    def _near_slots(self) -> NDArray[np.int64]:
        """The slots whose room is worth nearly their price at the going rates, and for every kind of item the best one."""
        a = self.arrays
        worth = self._room_worth / (a.price + self.tolls)
        near = worth >= _NEAR * worth.max()
        near[np.argsort(-worth, kind="stable")[:_FEWEST]] = True
        kinds, index = np.unique(a.allowed, axis=0, return_index=True)
        for item in index[~(kinds[:, near].any(1))].tolist():
            able = np.flatnonzero(a.allowed[item])
            if len(able):
                near[able[worth[able].argmax()]] = True
        return np.flatnonzero(near)

    def within(self, slots: NDArray[np.int64]) -> bool:
        """Whether nodes of these slots keep the limits."""
        return bool((self.arrays.charge[slots].sum(0) <= self.arrays.budget).all())

    def fleet(self, loads: Counts, toll: float = 1.0) -> Fleet:
        """The cheapest slot for each load, at so much of the tolls."""
        a = self.arrays
        used = loads @ a.need.astype(np.float64)
        order = np.argsort(a.price + toll * self.tolls, kind="stable") if self.tolls.any() else a.order
        fits = np.ones((len(loads), len(order)), dtype=bool)
        for d in range(used.shape[1]):
            fits &= used[:, d : d + 1] <= a.room[order, d][None, :]
        fits &= ((loads > 0).astype(np.float32) @ (~a.allowed[:, order]).astype(np.float32)) == 0
        if not fits.any(1).all():
            raise ValueError("a load fits nowhere")
        slots = order[fits.argmax(1)]
        return Fleet(slots, loads, float(a.price[slots].sum()))

    def lawful(self, loads: Counts) -> Fleet | None:
        """Slots for these loads that keep the limits together, the cheapest ones as far as there is something left; None where none were found."""
        free = self.fleet(loads, 0.0)
        if self.within(free.slots):
            return free
        a = self.arrays
        for toll in _TOLLS:
            found = self.fleet(loads, toll)
            if self.within(found.slots):
                break
        else:
            return None
        slots = found.slots.copy()
        left = a.budget - a.charge[slots].sum(0)
        saved = a.price[slots] - a.price[free.slots]
        for number in np.argsort(-saved, kind="stable").tolist():
            more = a.charge[free.slots[number]] - a.charge[slots[number]]
            if saved[number] > _EPSILON and (more <= left).all():
                left -= more
                slots[number] = free.slots[number]
        return Fleet(slots, loads, float(a.price[slots].sum()))

    def dive(
        self,
        demand: Counts,
        *,
        noise: float = 0.0,
        slack: float = 0.985,
        share: float = 1.0,
        worth: NDArray[np.float64] | None = None,
        toll: float = 1.0,
        budget: NDArray[np.float64] | None = None,
        scarce: float = 0.0,
    ) -> Counts:
        """Loads for all of `demand`: again and again the nodes that are worth most for their price, as often as there are pods.

        Args:
            demand: pods by item.
            noise: how far worths are changed, by row.
            slack: nodes worth so much of the best one's ratio are taken in the same round.
            share: see `patterns.fill`.
            worth: other worths of pods than the going ones.
            toll: how much of the tolls is added to prices.
            budget: what the nodes may count against limits; None for any amount.
            scarce: where it is not 0, nodes for the scarce items are made first, so that others fill what is left of them; these count
                with so many times their worth.

        Raises:
            NoPlaceError: no slot is left for some pods.
        """
        a = self.arrays
        price = a.price + toll * self.tolls
        rest_of = None if budget is None else budget.copy()
        left = demand.copy()
        made: list[Counts] = []
        times: list[int] = []
        near = self._near
        most_rows = _MOST_ROWS
        values = self.worth if worth is None else worth
        if scarce:
            values = np.where(self.scarce, scarce * values, values)
        while True:
            active = np.flatnonzero(left)
            if not len(active):
                break
            if len(active) > _MOST_ITEMS:
                active = np.sort(self.rng.choice(active, _MOST_ITEMS, replace=False))
            open_to = near
            if rest_of is not None:
                open_to = near[(a.charge[near] <= rest_of).all(1)]
            slots, weights = self._drawn(open_to, most_rows)
            own = values[active]
            noisy = own[None, :]
            if noise:
                noisy = own * np.exp(noise * self.rng.standard_normal((len(slots), len(active)), dtype=np.float32))
            rest = np.minimum(a.most, left)[active]
            loads = fill(
                a.need[active],
                noisy.astype(np.float32),
                a.room[slots],
                self._fits[slots][:, active],
                rest,
                weights,
                np.full(len(slots), share, dtype=np.float32),
            )
            ratio = (loads @ own) / price[slots]
            if scarce and (rare := self.scarce[active]).any():
                ratio[loads[:, rare].sum(1) == 0] = 0
            if not ratio.max(initial=0) > 0:
                if most_rows < len(open_to) * len(self._weights):
                    most_rows = len(open_to) * len(self._weights)
                elif len(near) < len(price):
                    near = np.arange(len(price))
                else:
                    raise NoPlaceError
                continue
            most_rows = _MOST_ROWS
            least = slack * ratio.max()
            for row in np.argsort(-ratio, kind="stable").tolist():
                if ratio[row] < least:
                    break
                load = loads[row]
                items = np.flatnonzero(load)
                count = int((left[active[items]] // load[items]).min())
                charge = a.charge[slots[row]]
                if rest_of is not None and (charge * count > rest_of).any():
                    charged = charge > 0
                    count = int((rest_of[charged] // charge[charged]).min())
                if count:
                    if rest_of is not None:
                        rest_of -= count * charge
                    left[active[items]] -= count * load[items]
                    whole = np.zeros(len(left), dtype=np.int32)
                    whole[active] = load
                    made.append(whole)
                    times.append(count)
        return np.repeat(np.array(made, dtype=np.int32), times, axis=0)

    def _drawn(self, some: NDArray[np.int64], most: int) -> tuple[NDArray[np.int64], Floats]:
        """Pairs of a slot and a set of weights, at most so many."""
        slots, weights = np.repeat(some, len(self._weights)), np.tile(self._weights, (len(some), 1))
        if len(slots) <= most:
            return slots, weights
        rows = self.rng.choice(len(slots), most, replace=False)
        return slots[rows], weights[rows]

    def priced(self, worth: NDArray[np.float64], noise: float) -> tuple[NDArray[np.int64], Counts]:
        """A good load for every slot and set of weights, at other worths than the going ones."""
        a = self.arrays
        slots = np.repeat(np.arange(len(a.price)), len(self._weights))
        weights = np.tile(self._weights, (len(a.price), 1))
        noisy = worth * np.exp(noise * self.rng.standard_normal((len(slots), len(worth)), dtype=np.float32))
        shares = np.where(self.rng.random(len(slots)) < 0.5, 1.0, 0.5).astype(np.float32)
        most = np.minimum(a.most, a.demand)
        return slots, fill(a.need, noisy.astype(np.float32), a.room[slots], self._fits[slots], most, weights, shares)

    def ruin(self, fleet: Fleet, rounds: int, *, least: float = 0.0) -> Fleet:
        """Make other nodes of the pods of a few, those first that are worth least for their price; keep what is cheaper, until it costs `least`.

        The fleet keeps the limits, and so does what comes of it.
        """
        a, rng = self.arrays, self.rng
        loads, slots = fleet.loads, fleet.slots
        prices = a.price[slots]
        limited = bool(self.tolls.any())
        for _ in range(rounds):
            if self.expired() or prices.sum() <= least:
                break
            self.steps += 1
            nodes = len(loads)
            fewest = 1 if limited else 2
            some = int(rng.integers(fewest, min(nodes, _MOST_RUINED) + 1)) if nodes > 2 else nodes
            score = (loads @ self.worth) / prices * (1 + 0.12 * rng.standard_normal(nodes))
            chosen = np.argpartition(score, some - 1)[:some] if some < nodes else np.arange(nodes)
            keep = np.ones(nodes, dtype=bool)
            keep[chosen] = False
            other = self._again(loads[chosen].sum(0), slots[keep], limited=limited)
            if other is not None and other.usd < prices[chosen].sum() - _EPSILON:
                if len(a.budget) and not self.within(np.concatenate([slots[keep], other.slots])):
                    continue
                loads = np.concatenate([loads[keep], other.loads])
                slots = np.concatenate([slots[keep], other.slots])
                prices = a.price[slots]
        return Fleet(slots, loads, float(prices.sum()))

    def _again(self, demand: Counts, others: NDArray[np.int64], *, limited: bool) -> Fleet | None:
        """Other nodes for some pods, beside `others`."""
        noise = float(self.rng.choice([0.03, 0.08, 0.2]))
        scarce = float(self.rng.choice(_SCARCE)) if self.scarce.any() else 0.0
        if not limited:
            return self.fleet(self.dive(demand, noise=noise, scarce=scarce))
        toll = float(self.rng.choice([0.0, 0.5, 1.0, 2.0]))
        try:
            budget = self.arrays.budget - self.arrays.charge[others].sum(0)
            return self.fleet(self.dive(demand, noise=noise, toll=toll, budget=budget, scarce=scarce), toll)
        except NoPlaceError:
            return None
