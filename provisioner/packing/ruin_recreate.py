"""Fleets in arrays: a dive from nothing, and ruin and recreate."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from provisioner.packing.patterns import Arrays, Counts, Floats, fill

_NEAR: Final = 0.9
"""Slots that could be worth so much of their price, at the going rates, are tried; others only for what is left at last."""
_FEWEST: Final = 12
_MOST_ITEMS: Final = 160
"""So many kinds of pods are looked at for one round of nodes, drawn at random of more."""
_MOST_ROWS: Final = 128
"""So many pairs of a slot and a set of weights are tried for one round of nodes, drawn at random of more."""
_MOST_RUINED: Final = 14
_MOST_AT_ONCE: Final = 8
"""Dives that are filled in step,"""
_ROWS_IN_STEP: Final = 64
"""rows of each of them,"""
_CELLS: Final = 80_000
"""and rows times items of them all: with fewer, a step takes nearly as long."""
_SLACK: Final = 0.985
"""Nodes worth so much of the best one's ratio are taken in the same round."""
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
class FleetArrays:
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
        self.near: Final = self._near_slots()

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

    def fleet(self, loads: Counts, toll: float = 1.0) -> FleetArrays:
        """The cheapest slot for each load, at so much of the tolls."""
        a = self.arrays
        used = loads @ a.need.astype(np.float64)
        order = np.argsort(a.price + toll * self.tolls, kind="stable") if self.tolls.any() else a.order
        fits = np.ones((len(loads), len(order)), dtype=bool)
        for d in range(used.shape[1]):
            fits &= used[:, d : d + 1] <= a.room[order, d][None, :]
        fits &= ((loads > 0).astype(np.float32) @ (~a.allowed[:, order]).astype(np.float32)) == 0
        if not fits.any(1).all():
            raise ValueError("a load cannot be placed")
        slots = order[fits.argmax(1)]
        return FleetArrays(slots, loads, float(a.price[slots].sum()))

    def lawful(self, loads: Counts) -> FleetArrays | None:
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
        return FleetArrays(slots, loads, float(a.price[slots].sum()))

    def dive(
        self,
        demand: Counts,
        *,
        noise: float = 0.0,
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
            share: see `patterns.fill`.
            worth: other worths of pods than the going ones.
            toll: how much of the tolls is added to prices.
            budget: what the nodes may count against limits; None for any amount.
            scarce: where it is not 0, nodes for the scarce items are made first, so that others fill what is left of them; these count
                with so many times their worth.

        Raises:
            NoPlaceError: no slot is left for some pods.
        """
        (found,) = self._dived([_Dive(self, demand, noise, share, worth, toll, budget, scarce)])
        if found is None:
            raise NoPlaceError
        return found

    def _dived(self, dives: "Sequence[_Dive]") -> list[Counts | None]:
        """The loads of each, all filled in step: small arrays take as long as those of several dives together. None where no slot is left."""
        a = self.arrays
        while going := [one for one in dives if one.draw()]:
            active = np.flatnonzero(np.any([one.open_to for one in going], axis=0))
            worths = [one.noisy(active) for one in going]
            rests = [np.broadcast_to(one.rest()[active], worth.shape) for one, worth in zip(going, worths, strict=True)]
            slots = np.concatenate([one.slots for one in going])
            loads = fill(
                a.need[active],
                np.concatenate(worths),
                a.room[slots],
                self._fits[slots][:, active],
                np.concatenate(rests),
                np.concatenate([one.weights for one in going]),
                np.concatenate([np.full(len(one.slots), one.share, dtype=np.float32) for one in going]),
            )
            start = 0
            for one in going:
                one.take(active, loads[start : start + len(one.slots)])
                start += len(one.slots)
        return [one.loads() for one in dives]

    def pairs(self, some: NDArray[np.int64]) -> int:
        """Pairs of one of these slots and a set of weights."""
        return len(some) * len(self._weights)

    def drawn(self, some: NDArray[np.int64], most: int) -> tuple[NDArray[np.int64], Floats]:
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

    def ruin(self, fleet: FleetArrays, rounds: int, *, least: float = 0.0) -> FleetArrays:
        """Make other nodes of the pods of a few, those first that are worth least for their price; keep what is cheaper, until it costs `least`.

        Where few pods are concerned, several such choices are tried at once; of those that have nodes in common, the best one is kept.
        The fleet keeps the limits, and so does what comes of it.
        """
        a = self.arrays
        loads, slots = fleet.loads, fleet.slots
        prices = a.price[slots]
        limited = bool(self.tolls.any())
        done = 0
        while done < rounds and not self.expired() and prices.sum() > least:
            at_once = 1 if limited else min(rounds - done, self._at_once(loads))
            done += at_once
            self.steps += at_once
            worths = (loads @ self.worth) / prices
            choices = [self._chosen(worths, 1 if limited else 2) for _ in range(at_once)]
            others = self._again(loads, slots, choices, limited=limited)
            tried = [
                (float(prices[chosen].sum()) - other.usd, chosen, other)
                for chosen, other in zip(choices, others, strict=True)
                if other is not None
            ]
            keep = np.ones(len(loads), dtype=bool)
            new: list[FleetArrays] = []
            for saved, chosen, other in sorted(tried, key=lambda entry: -entry[0]):
                if saved <= _EPSILON or not keep[chosen].all():
                    continue
                left = keep.copy()
                left[chosen] = False
                made = [*new, other]
                if len(a.budget) and not self.within(np.concatenate([slots[left], *[one.slots for one in made]])):
                    continue
                keep, new = left, made
            if new:
                loads = np.concatenate([loads[keep], *[one.loads for one in new]])
                slots = np.concatenate([slots[keep], *[one.slots for one in new]])
                prices = a.price[slots]
        return FleetArrays(slots, loads, float(prices.sum()))

    def _at_once(self, loads: Counts) -> int:
        """Choices that are tried together, so that their arrays are of a size that is worth a step."""
        kinds = int(np.count_nonzero(loads.any(0)))
        return max(1, min(_MOST_AT_ONCE, _CELLS // (_ROWS_IN_STEP * max(1, kinds))))

    def _chosen(self, worths: NDArray[np.float64], fewest: int) -> NDArray[np.int64]:
        """Some nodes, rather those that are worth little for their price; `worths`: for each, what it is worth for its price."""
        nodes = len(worths)
        some = int(self.rng.integers(fewest, min(nodes, _MOST_RUINED) + 1)) if nodes > 2 else nodes
        score = worths * (1 + 0.12 * self.rng.standard_normal(nodes))
        return np.argpartition(score, some - 1)[:some] if some < nodes else np.arange(nodes)

    def _again(
        self, loads: Counts, slots: NDArray[np.int64], choices: Sequence[NDArray[np.int64]], *, limited: bool
    ) -> list[FleetArrays | None]:
        """Other nodes for the pods of each choice; None where there are none beside the nodes that stay."""
        a, dives, tolls = self.arrays, [], []
        rows = _MOST_ROWS if len(choices) == 1 else _ROWS_IN_STEP
        for chosen in choices:
            noise = float(self.rng.choice([0.03, 0.08, 0.2]))
            scarce = float(self.rng.choice(_SCARCE)) if self.scarce.any() else 0.0
            toll, budget = 1.0, None
            if limited:
                toll = float(self.rng.choice([0.0, 0.5, 1.0, 2.0]))
                others = np.delete(slots, chosen)
                budget = a.budget - a.charge[others].sum(0)
            tolls.append(toll)
            dives.append(_Dive(self, loads[chosen].sum(0), noise, 1.0, None, toll, budget, scarce, rows))
        return [
            None if found is None else self.fleet(found, toll)
            for found, toll in zip(self._dived(dives), tolls, strict=True)
        ]


class _Dive:
    """A dive on its way; see `Search.dive`.

    Attributes:
        slots, weights: of this round.
        open_to: the items of this round.
    """

    def __init__(
        self,
        search: Search,
        demand: Counts,
        noise: float,
        share: float,
        worth: NDArray[np.float64] | None,
        toll: float,
        budget: NDArray[np.float64] | None,
        scarce: float,
        most_rows: int = _MOST_ROWS,
    ) -> None:
        self.share: Final = share
        self._search: Final = search
        self._noise: Final = noise
        self._scarce: Final = search.scarce if scarce else None
        self._price: Final = search.arrays.price + toll * search.tolls
        values = search.worth if worth is None else worth
        self._values: Final = np.where(search.scarce, scarce * values, values) if scarce else values
        self._left = demand.copy()
        self._budget = None if budget is None else budget.copy()
        self._near = search.near
        self._rows = self._most_rows = most_rows
        self._made: Final[list[Counts]] = []
        self._times: Final[list[int]] = []
        self._stuck = False

    def draw(self) -> bool:
        """Choose what the next round is about; whether there is one."""
        if self._stuck or not self._left.any():
            return False
        search = self._search
        self.open_to = self._left > 0
        active = np.flatnonzero(self.open_to)
        if len(active) > _MOST_ITEMS:
            self.open_to = np.zeros(len(self._left), dtype=bool)
            self.open_to[search.rng.choice(active, _MOST_ITEMS, replace=False)] = True
        open_slots = self._near
        if self._budget is not None:
            open_slots = open_slots[(search.arrays.charge[open_slots] <= self._budget).all(1)]
        self._pairs = search.pairs(open_slots)
        self.slots, self.weights = search.drawn(open_slots, self._most_rows)
        return True

    def noisy(self, active: NDArray[np.int64]) -> Floats:
        """Worths by row and item."""
        own = self._values[active]
        shape = len(self.slots), len(active)
        if not self._noise:
            return np.broadcast_to(own.astype(np.float32), shape)
        drawn = self._search.rng.standard_normal(shape, dtype=np.float32)
        worths: Floats = (own * np.exp(self._noise * drawn)).astype(np.float32)
        return worths

    def rest(self) -> Counts:
        """The most of each item that a node may take in this round."""
        return np.where(self.open_to, np.minimum(self._search.arrays.most, self._left), 0)

    def take(self, active: NDArray[np.int64], loads: Counts) -> None:
        """Make nodes of the best of these loads; `active`: the items of their columns."""
        price = self._price[self.slots]
        ratio = (loads @ self._values[active]) / price
        if self._scarce is not None and (rare := self._scarce[active] & self.open_to[active]).any():
            ratio[loads[:, rare].sum(1) == 0] = 0
        if not ratio.max(initial=0) > 0:
            self._look_further()
            return
        self._most_rows = self._rows
        least = _SLACK * ratio.max()
        for row in np.argsort(-ratio, kind="stable").tolist():
            if ratio[row] < least:
                break
            count = self._times_of(active, loads[row], self.slots[row])
            if count:
                whole = np.zeros(len(self._left), dtype=np.int32)
                whole[active] = loads[row]
                self._left -= count * whole
                self._made.append(whole)
                self._times.append(count)

    def _times_of(self, active: NDArray[np.int64], load: Counts, slot: np.int64) -> int:
        """How many such nodes there are pods for; they are counted against limits."""
        items = np.flatnonzero(load)
        count = int((self._left[active[items]] // load[items]).min())
        if self._budget is None:
            return count
        charge = self._search.arrays.charge[slot]
        if (charge * count > self._budget).any():
            charged = charge > 0
            count = int((self._budget[charged] // charge[charged]).min())
        self._budget -= count * charge
        return count

    def _look_further(self) -> None:
        """After a round in which no pod found a place: all rows, then all slots."""
        if self._most_rows < self._pairs:
            self._most_rows = self._pairs
        elif len(self._near) < len(self._price):
            self._near = np.arange(len(self._price))
        else:
            self._stuck = True

    def loads(self) -> Counts | None:
        """One for each node; None where some pods found no place."""
        return None if self._stuck else np.repeat(np.array(self._made, dtype=np.int32), self._times, axis=0)
