"""Good loads for single nodes, many at once: what a node of each slot would best hold, by worth.

Everything is in arrays here. Amounts are scaled to whole numbers below 2^24, needs rounded up and rooms down, so that
single precision is exact; who fits by them fits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from provisioner.packing.model import Model
from provisioner.values.resources import PLENTIFUL

Floats = NDArray[np.float32]
Counts = NDArray[np.int32]
Bits = NDArray[np.bool_]
_BITS: Final = 23
_LEAST_PRICE: Final = 1e-6
"""USD per hour: what costs nothing is not to be divided by."""
_AT_ONCE: Final = 256
"""Slots that are compared with all others in one step."""
_MOST: Final = 1 << 20
"""Stands for any number of pods."""
_TINY: Final = np.float32(1e-6)
"""Keeps quotients finite."""
_COMPACT: Final = 0.75
"""Rows are put together anew once fewer than such a share of them still take something."""


@dataclass(frozen=True, slots=True)
class Arrays:
    """A model in arrays: items by dimension, slots by dimension, and who may go where.

    Attributes:
        need, room: scaled.
        price: of slots, USD per hour, with what is added when fleets are compared.
        allowed: items by slots; where an item fits at all.
        most: of an item on a node.
        demand: pods of each item.
        order: slots by price.
        scarce: items that ask for an extended resource: rates say little of what comes in few, whole pieces.
        charge, budget: slots by limit, and of each limit what all nodes may count together; whole numbers below 2^53.
    """

    need: Floats
    room: Floats
    price: NDArray[np.float64]
    allowed: Bits
    most: Counts
    demand: Counts
    order: NDArray[np.int64]
    charge: NDArray[np.float64]
    budget: NDArray[np.float64]
    scarce: NDArray[np.bool_]


def arrays_of(model: Model, *, sparing: bool = False) -> tuple[Arrays, NDArray[np.int64]]:
    """The arrays of a model, and the numbers of the slots that are in them: none that another one beats everywhere.

    `sparing`: one that counts less against limits is not beaten either.
    """
    used = [d for d in range(len(model.items[0].need)) if any(one.need[d] for one in model.items)]
    needs = np.zeros((len(model.items), len(used)), dtype=np.float32)
    rooms = np.zeros((len(model.slots), len(used)), dtype=np.float32)
    for place, d in enumerate(used):
        own, have = [one.need[d] for one in model.items], [one.room[d] for one in model.slots]
        shift = max(0, max(*own, *have, 1).bit_length() - _BITS)
        needs[:, place] = [-(-amount >> shift) for amount in own]
        rooms[:, place] = [max(0, amount) >> shift for amount in have]
    price = np.array([max(float(one.usd), _LEAST_PRICE) + one.surplus + one.penalty for one in model.slots])
    kinds = list(dict.fromkeys([one.allowed for one in model.items]))
    width = -(-len(model.slots) // 8)
    packed = np.array([list(one.to_bytes(width, "little")) for one in kinds], dtype=np.uint8)
    masks = np.unpackbits(packed, axis=1, bitorder="little", count=len(model.slots)).astype(bool)
    charge = np.array([one.charge for one in model.slots], dtype=np.float64).reshape(len(model.slots), -1)
    budget = np.array([one.budget for one in model.limits], dtype=np.float64)
    keep = _undominated(np.hstack([rooms, -charge]) if sparing else rooms, price, masks)
    place_of = {one: number for number, one in enumerate(kinds)}
    rooms, price, charge = rooms[keep], price[keep], charge[keep]
    allowed = masks[:, keep][[place_of[one.allowed] for one in model.items]]
    for d in range(len(used)):
        allowed &= needs[:, d][:, None] <= rooms[:, d][None, :]
    demand = np.array([len(one.pods) for one in model.items], dtype=np.int32)
    most = np.array([one.most or _MOST for one in model.items], dtype=np.int32)
    order = np.argsort(price, kind="stable")
    extended = [d for d, name in enumerate(model.market.names) if name not in PLENTIFUL]
    scarce = np.array([any(one.need[d] for d in extended) for one in model.items], dtype=bool)
    return Arrays(needs, rooms, price, allowed, most, demand, order, charge, budget, scarce), keep


def _undominated(room: Floats, price: NDArray[np.float64], kinds: Bits) -> NDArray[np.int64]:
    """Slots that no other one beats: at most the price, at least the room, and open to at least the same kinds of items."""
    alive = np.flatnonzero(kinds.any(0))
    order = alive[np.lexsort((alive, -room[alive].sum(1), price[alive]))]
    # equal ones first: NodePools often differ in nothing that matters here
    looks = np.hstack([price[order, None], room[order], np.packbits(kinds[:, order], axis=0).T])
    order = order[np.sort(np.unique(looks, axis=0, return_index=True)[1])]
    rooms, masks = room[order], kinds[:, order]
    admitting: dict[bytes, list[int]] = {}
    for one, row in enumerate(np.packbits(masks, axis=0).T):
        admitting.setdefault(row.tobytes(), []).append(one)
    kept = np.ones(len(order), dtype=bool)
    for alike in admitting.values():
        others = np.flatnonzero((masks >= masks[:, alike[:1]]).all(0))
        for start in range(0, len(alike), _AT_ONCE):
            some = np.array(alike[start : start + _AT_ONCE])
            beaten = others[None, :] < some[:, None]
            for d in range(rooms.shape[1]):
                beaten &= rooms[others, d][None, :] >= rooms[some, d][:, None]
            kept[some] = ~beaten.any(1)
    return np.sort(order[kept])


WEIGHTS: Final = np.array([[1, 1, 0.3, 1], [1, 0.35, 0.2, 1], [0.35, 1, 0.2, 1], [0.6, 0.6, 1.2, 1]], dtype=np.float32)
"""How much a share of cpu, memory, pods and anything else counts when pods are put in order; a row each."""


def weights_of(names: Sequence[str]) -> Floats:
    """The rows of weights for dimensions of these names."""
    place = {"cpu": 0, "memory": 1, "pods": 2}
    return WEIGHTS[:, [place.get(name, 3) for name in names]]


@dataclass(frozen=True, slots=True)
class _Work:
    """Where a step of `fill` writes what the next one does not need: arrays of this size cost as much to make as to fill.

    Attributes:
        pulls: dimensions and a row of ones, by rows: what a unit of each resource weighs.
        density: rows by items: worth for weighted need.
        over: rows by items: what no longer fits.
        base: of each row, where it begins in the flat arrays.
    """

    pulls: Floats
    density: Floats
    over: Bits
    base: NDArray[np.int64]

    @classmethod
    def of(cls, rows: int, items: int, width: int) -> "_Work":
        return cls(
            np.ones((width + 1, rows), dtype=np.float32),
            np.empty((rows, items), dtype=np.float32),
            np.empty((rows, items), dtype=bool),
            np.arange(rows) * items,
        )


def fill(
    need: Floats, worth: Floats, room: Floats, allowed: Bits, most: Counts, weights: Floats, share: Floats
) -> Counts:
    """For every row, pods for one node: always the item that is worth most for its weighted share of what is left.

    Args:
        need: items by dimension.
        worth: of one pod: of an item, or of rows by items.
        room: rows by dimension.
        allowed: rows by items.
        most: pods that may be put on one node: of an item, or of rows by items.
        weights: rows by dimension.
        share: by row, how much of what would fit of an item is put there at once; 1 for all, less for better mixed nodes.

    Returns: pods, rows by items.

    Cost: rows x items x dimensions for each time that a row takes some of an item.
    """
    rows, width, items = len(room), need.shape[1], len(need)
    counts = np.zeros((rows, items), dtype=np.int32)
    columns, most_needed = np.ascontiguousarray(need.T), need.max(0).tolist()
    needed = columns > 0
    inverse = np.where(needed, 1 / np.maximum(columns, np.float32(1e-9)), np.float32(0))
    table = np.concatenate([columns, inverse, np.where(needed, np.float32(0), np.float32(_MOST))])
    pulled = np.concatenate([columns, np.full((1, items), _TINY)])
    uneven = bool((share != 1).any())
    live, left = np.arange(rows), np.array(room.T, dtype=np.float32, order="C")
    weights = np.ascontiguousarray(weights.T)
    # 0 for what no longer fits
    rank = np.ascontiguousarray(np.where(allowed & (most > 0), worth, np.float32(0)), dtype=np.float32)
    rest = np.array(np.broadcast_to(most, (rows, items)), dtype=np.float32, order="C")
    work = _Work.of(rows, items, width)
    while True:
        np.divide(weights, np.maximum(left, 1, out=work.pulls[:width]), out=work.pulls[:width])
        np.divide(rank, np.matmul(work.pulls.T, pulled, out=work.density), out=work.density)
        best = work.density.argmax(1)
        at = work.base + best
        going = work.density.ravel().take(at) > 0
        count = int(np.count_nonzero(going))
        if not count:
            return counts
        if count < _COMPACT * len(live):
            live, rank, rest, best, share = live[going], rank[going], rest[going], best[going], share[going]
            left, weights = np.ascontiguousarray(left[:, going]), np.ascontiguousarray(weights[:, going])
            work, going = _Work.of(count, items, width), going[going]
            at = work.base + best
        own, quotient, endless = table.take(best, axis=1).reshape(3, width, -1)
        quotient *= left
        quotient += endless
        take = quotient.min(0)
        take += np.float32(1e-3)
        np.floor(take, out=take)
        open_to = rest.ravel().take(at)
        np.minimum(take, open_to, out=take)
        if uneven:
            take *= share
            np.ceil(take, out=take)
        take *= going
        left -= own * take
        least = left.min(1).tolist()
        if min(least) < 0:  # a rounded quotient may be one too many
            over = (left < 0).any(0)
            take[over] -= 1
            left[:, over] += own[:, over]
        counts[live, best] += take.astype(np.int32)
        open_to -= take
        rest.ravel()[at] = open_to
        rank.ravel()[at[np.minimum(open_to, take) <= 0]] = 0
        for d in range(width):
            if least[d] < most_needed[d]:
                np.copyto(rank, 0, where=np.greater(columns[d], left[d][:, None], out=work.over))
