"""Nodes that keep minValues for certain: as large as several instance types together, whatever pods are put there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from provisioner.scheduling.capacity.catalogue import PricedOffering
from provisioner.scheduling.capacity.offers import OfferState, PreparedPool
from provisioner.scheduling.constraints.bitsets import mask_of

Vector = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Envelope:
    """Several instance types as one.

    Attributes:
        row: the cheapest of them, and its price in `usd` per hour.
        room: of each dimension, the least that any of them has for pods.
        rows: one bit for each of them.
        holding: how many instance types have so much room.
    """

    row: int
    usd: float
    room: Vector
    rows: int
    holding: int


def envelopes(offer: PreparedPool, state: OfferState, priced: Sequence[PricedOffering]) -> Iterable[Envelope]:
    """For each type of a state the envelope with those that are nearest to it in size and bring the values that are wanted.

    Args:
        offer: a pool with minValues.
        state: of it, by which values count.
        priced: the types, cheapest first.

    Cost: O(types² x dimensions) in numpy, and for each type a walk until it has its values.
    """
    if not priced:
        return
    rooms = np.array([offer.room[one.row] for one in priced], dtype=np.float64)
    values = {
        key: [offer.catalogue.values_of(one.row, state.requirements[key]) for one in priced] for key in offer.min_values
    }
    seen: set[tuple[Vector, int]] = set()
    for number in range(len(priced)):
        loss = (1 - np.minimum(rooms, rooms[number]) / np.maximum(rooms[number], 1)).max(1)
        chosen = _chosen(offer, values, number, np.argsort(loss, kind="stable").tolist())
        if not chosen:
            continue
        some = [priced[one] for one in sorted(chosen)]
        room = tuple(map(min, zip(*[offer.room[one.row] for one in some], strict=True)))
        cheapest = some[0]
        if (room, cheapest.row) not in seen:
            seen.add((room, cheapest.row))
            holding = int((rooms >= np.array(room, dtype=np.float64)).all(1).sum())
            yield Envelope(cheapest.row, cheapest.offering.price, room, mask_of(one.row for one in some), holding)


def _chosen(
    offer: PreparedPool, values: dict[str, list[frozenset[str]]], number: int, order: Sequence[int]
) -> list[int]:
    """The type itself and the first in `order` that bring a value that is still wanted; none where values are too few."""
    seen = {key: set(some[number]) for key, some in values.items()}
    chosen = [number]
    for one in order:
        short = [key for key, wanted in offer.min_values.items() if len(seen[key]) < wanted]
        if not short:
            return chosen
        if any(not values[key][one] <= seen[key] for key in short):
            chosen.append(one)
            for key, some in seen.items():
                some.update(values[key][one])
    return chosen if all(len(seen[key]) >= wanted for key, wanted in offer.min_values.items()) else []
