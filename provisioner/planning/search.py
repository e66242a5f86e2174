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
_EPSILON: Final = 1e-9
_LEAST_WORTH: Final = 1e-6
"""Of the worth of the dearest pod: a pod that costs nothing at the going rates must find a place too."""


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
    ) -> None:
        """`room_worth`: of all that a slot has, at the going rates."""
        self.arrays: Final = arrays
        self.worth: Final = np.maximum(worth, _LEAST_WORTH * float(worth.max()) or 1.0)
        self.rng: Final = np.random.default_rng(seed)
        self.expired: Final = expired
        self.steps = 0
        self._weights: Final = weights
        self._fits: Final = np.ascontiguousarray(arrays.allowed.T)
        self._room_worth: Final = room_worth
        self._near: Final = self._near_slots()

    def _near_slots(self) -> NDArray[np.int64]:
        """The slots whose room is worth nearly their price at the going rates, and for every kind of item the best one."""
        a = self.arrays
        worth = self._room_worth / a.price
        near = worth >= _NEAR * worth.max()
        near[np.argsort(-worth, kind="stable")[:_FEWEST]] = True
        kinds, index = np.unique(a.allowed, axis=0, return_index=True)
        for item in index[~(kinds[:, near].any(1))].tolist():
            able = np.flatnonzero(a.allowed[item])
            if len(able):
                near[able[worth[able].argmax()]] = True
        return np.flatnonzero(near)

    def fleet(self, loads: Counts) -> Fleet:
        """The cheapest slot for each load."""
        a = self.arrays
        used = loads @ a.need.astype(np.float64)
        order = a.order
        fits = np.ones((len(loads), len(order)), dtype=bool)
        for d in range(used.shape[1]):
            fits &= used[:, d : d + 1] <= a.room[order, d][None, :]
        fits &= ((loads > 0).astype(np.float32) @ (~a.allowed[:, order]).astype(np.float32)) == 0
        if not fits.any(1).all():
            raise ValueError("a load fits nowhere")
        slots = order[fits.argmax(1)]
        return Fleet(slots, loads, float(a.price[slots].sum()))

    def dive(
        self,
        demand: Counts,
        *,
        noise: float = 0.0,
        slack: float = 0.985,
        share: float = 1.0,
        worth: NDArray[np.float64] | None = None,
    ) -> Counts:
        """Loads for all of `demand`: again and again the nodes that are worth most for their price, as often as there are pods.

        Args:
            demand: pods by item.
            noise: how far worths are changed, by row.
            slack: nodes worth so much of the best one's ratio are taken in the same round.
            share: see `patterns.fill`.
            worth: other worths of pods than the going ones.
        """
        a = self.arrays
        left = demand.copy()
        made: list[Counts] = []
        times: list[int] = []
        every = np.repeat(self._near, len(self._weights))
        all_weights = np.tile(self._weights, (len(self._near), 1))
        most_rows = _MOST_ROWS
        values = self.worth if worth is None else worth
        while True:
            active = np.flatnonzero(left)
            if not len(active):
                break
            if len(active) > _MOST_ITEMS:
                active = np.sort(self.rng.choice(active, _MOST_ITEMS, replace=False))
            slots, weights = self._drawn(every, all_weights, most_rows)
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
            ratio = (loads @ own) / a.price[slots]
            if not ratio.max() > 0:
                if most_rows >= len(every):
                    raise ValueError("a pod fits nowhere, or is worth nothing")
                most_rows = len(every)
                continue
            most_rows = _MOST_ROWS
            least = slack * ratio.max()
            for row in np.argsort(-ratio, kind="stable").tolist():
                if ratio[row] < least:
                    break
                load = loads[row]
                items = np.flatnonzero(load)
                count = int((left[active[items]] // load[items]).min())
                if count:
                    left[active[items]] -= count * load[items]
                    whole = np.zeros(len(left), dtype=np.int32)
                    whole[active] = load
                    made.append(whole)
                    times.append(count)
        return np.repeat(np.array(made, dtype=np.int32), times, axis=0)

    def _drawn(self, slots: NDArray[np.int64], weights: Floats, most: int) -> tuple[NDArray[np.int64], Floats]:
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
        """Make other nodes of the pods of a few, those first that are worth least for their price; keep what is cheaper, until it costs `least`."""
        a, rng = self.arrays, self.rng
        loads, slots = fleet.loads, fleet.slots
        prices = a.price[slots]
        for _ in range(rounds):
            if self.expired() or prices.sum() <= least:
                break
            self.steps += 1
            nodes = len(loads)
            some = int(rng.integers(2, min(nodes, _MOST_RUINED) + 1)) if nodes > 2 else nodes
            score = (loads @ self.worth) / prices * (1 + 0.12 * rng.standard_normal(nodes))
            chosen = np.argpartition(score, some - 1)[:some] if some < nodes else np.arange(nodes)
            other = self.fleet(self.dive(loads[chosen].sum(0), noise=float(rng.choice([0.03, 0.08, 0.2]))))
            if other.usd < prices[chosen].sum() - _EPSILON:
                keep = np.ones(nodes, dtype=bool)
                keep[chosen] = False
                loads = np.concatenate([loads[keep], other.loads])
                slots = np.concatenate([slots[keep], other.slots])
                prices = a.price[slots]
        return Fleet(slots, loads, float(prices.sum()))


def _ones(count: int) -> Floats:
    return np.ones(count, dtype=np.float32)
