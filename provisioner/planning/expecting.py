"""What launches of spot are expected to cost beyond the least price, as a surcharge on the slots of a model. Pure.

Which instance types a launch may take is known once a node has its pods (`cloudprovider.types.expected_price`); while nodes are looked for,
it is estimated from what pods will probably take of each slot.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from provisioner.planning.model import Model, Node, Slot
from provisioner.planning.prices import Prices
from provisioner.scheduling.bits import mask_of

_FULL: Final = 0.99
"""So full the planner makes nodes of what has a price."""
_PRICED: Final = 0.02
"""Of what all of a node is worth: a resource that is worth less is taken as the pods take it on average."""


def expected(model: Model, prices: Prices) -> Model:
    """The model with its slots at the price that is expected of them; itself where the cloud takes the cheapest type of all.

    Args:
        model: its slots as they are made.
        prices: of its market: which resources fill nodes.

    Cost: O(slots² x dimensions) in numpy.
    """
    if all(one.alternatives <= 1 for one in model.slots):
        return model
    width = len(model.market.names)
    rates = np.array([[float(rate) for rate in some] for some in prices.rates]).max(0)
    demand = np.array([[amount * len(one.pods) for amount in one.need[:width]] for one in model.items], float).sum(0)
    kinds: defaultdict[tuple[int, str, str], list[int]] = defaultdict(list)
    for number, slot in enumerate(model.slots):
        if slot.alternatives > 1:
            kinds[slot.offer, slot.zone, slot.capacity_type].append(number)
    slots = list(model.slots)
    for numbers in kinds.values():
        some = [slots[number] for number in numbers]
        for number, more in zip(numbers, _surpluses(some, rates, demand), strict=True):
            slots[number] = replace(slots[number], surplus=more)
    return replace(model, slots=tuple(slots))


def usd_per_hour(model: Model, nodes: Sequence[Node]) -> float:
    """What nodes are expected to cost now that their pods are known, with the penalty of their NodePools for each. Cost: O(nodes x slots)."""
    width = len(model.items[0].need)
    rooms = np.array([one.room[:width] for one in model.slots], float)
    usd = np.array([float(one.usd) for one in model.slots])
    kinds: defaultdict[tuple[int, str, str], list[int]] = defaultdict(list)
    for number in np.argsort(usd, kind="stable").tolist():
        slot = model.slots[number]
        if slot.alternatives > 1:
            kinds[slot.offer, slot.zone, slot.capacity_type].append(number)
    order_of = {key: np.array(some) for key, some in kinds.items()}
    rare = mask_of(
        number for number, slot in enumerate(model.slots) if slot.rare
    )  # not planned, and launched all the same
    total = 0.0
    for node in nodes:
        slot = model.slots[node.slot]
        total += model.weight(node)
        if slot.alternatives <= 1:
            continue
        used, allowed = np.zeros(width), -1
        for number, count in node.load:
            used += np.array(model.items[number].need, float) * count
            allowed &= model.items[number].allowed
        order = order_of[slot.offer, slot.zone, slot.capacity_type]
        fit = order[(rooms[order] >= used).all(1)].tolist()
        holding = [number for number in fit if (allowed | rare) >> number & 1][: slot.alternatives]
        total += float(usd[holding].mean()) - float(slot.usd) - slot.surplus
    return total


def _surpluses(slots: list[Slot], rates: NDArray[np.float64], demand: NDArray[np.float64]) -> list[float]:
    """How much more than its least price a node of each slot is expected to cost."""
    rooms = np.maximum(0.0, np.array([one.room[: len(rates)] for one in slots], float))
    usd = np.array([float(one.usd) for one in slots])
    order = np.argsort(usd, kind="stable")
    worth = rooms * rates
    binding = worth.argmax(1)
    every = np.arange(len(slots))
    average = rooms[every, binding, None] * demand / np.maximum(demand[binding], 1.0)[:, None]
    priced = worth >= _PRICED * worth.sum(1, keepdims=True)
    least = _FULL * np.where(priced, rooms, np.minimum(rooms, average))
    found = []
    for number, slot in enumerate(slots):
        holding = order[(rooms[order] >= least[number]).all(1)][: slot.alternatives]
        found.append(max(0.0, float(usd[holding].mean() - usd[number])))
    return found
