"""What launches of spot are expected to cost beyond the least price, as a surcharge on the slots of a model.

Which instance types a launch may take is known once a node has its pods (`cloudprovider.types.expected_price`); while nodes are looked for,
it is estimated from what pods will probably take of each slot.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from provisioner.cloudprovider.types import DEAREST_ALTERNATIVE
from provisioner.packing.dual_prices import Prices
from provisioner.packing.model import Model, PackingNode, Slot

_FULL: Final = 0.99
"""So full the planner makes nodes of what has a price."""
_PRICED: Final = 0.02
"""Of what all of a node is worth: a resource that is worth less is taken as the pods take it on average."""
_AT_ONCE: Final = 256
"""Slots that are compared with all others in one step."""


def expected(model: Model, prices: Prices) -> Model:
    """The model with its slots at the price that is expected of them; itself where the cloud takes the cheapest type of all.

    Args:
        model: its slots as they are made.
        prices: of its market: which resources fill nodes.

    Cost: O(slots² x dimensions) in numpy.
    """
    if not model.items or all(one.alternatives <= 1 for one in model.slots):
        return model
    width = len(model.market.names)
    rates = np.array([[float(rate) for rate in some] for some in prices.rates]).max(0)
    demand = np.array([[amount * len(one.pods) for amount in one.need[:width]] for one in model.items], float).sum(0)
    planned: defaultdict[_Kind, list[int]] = defaultdict(list)
    for number, slot in enumerate(model.slots):
        if slot.alternatives > 1 and not slot.lone:
            planned[_kind(slot)].append(number)
    launched = _launched(model)
    slots = list(model.slots)
    for kind, numbers in planned.items():
        some, ways = ([model.slots[number] for number in own] for own in (numbers, launched[kind]))
        for number, more in zip(numbers, _surpluses(some, ways, rates, demand), strict=True):
            if more > 0:
                slots[number] = replace(slots[number], surplus=more)
    return replace(model, slots=tuple(slots))


def usd_per_hour(model: Model, nodes: Sequence[PackingNode]) -> float:
    """What nodes are expected to cost now that their pods are known, with the penalty of their NodePools for each. Cost: O(nodes x slots)."""
    width = len(model.items[0].need)
    rooms = np.array([one.room[:width] for one in model.slots], float)
    usd = np.array([float(one.usd) for one in model.slots])
    on_demand = np.array([one.on_demand for one in model.slots])
    both = bool(np.isfinite(on_demand).any())
    order_of = {kind: np.array(some) for kind, some in _launched(model).items()}
    total = 0.0
    for node in nodes:
        slot = model.slots[node.slot]
        total += model.weight(node)
        if slot.alternatives <= 1:
            continue
        used, launched = np.zeros(width), -1
        for number, count in node.load:
            used += np.array(model.items[number].need, float) * count
            launched &= model.items[number].launched
        order = order_of[_kind(slot)]
        fitting = (number for number in order[(rooms[order] >= used).all(1)].tolist() if launched >> number & 1)
        holding = list(islice(fitting, slot.alternatives))
        # a launch that may be on-demand may be of any type on which its pods fit
        dearest = min((on_demand[number] for number in chain(holding, fitting)), default=math.inf) if both else math.inf
        if holding:
            (mean,) = _means(usd[holding], np.ones((1, len(holding)), dtype=bool), np.array([dearest])).tolist()
            total += mean - float(slot.usd) - slot.surplus
    return total


_Kind = tuple[int, str, str]


def _kind(slot: Slot) -> _Kind:
    return slot.offer, slot.zone, slot.capacity_type


def _launched(model: Model) -> dict[_Kind, list[int]]:
    """The slots of one instance type each, of which launches take some, cheapest first; a pool with minValues is planned by others."""
    found: defaultdict[_Kind, list[int]] = defaultdict(list)
    for number in sorted(range(len(model.slots)), key=lambda one: float(model.slots[one].usd)):
        slot = model.slots[number]
        if slot.alternatives > 1 and not slot.rows:
            found[_kind(slot)].append(number)
    return found


def _surpluses(
    slots: list[Slot], ways: list[Slot], rates: NDArray[np.float64], demand: NDArray[np.float64]
) -> list[float]:
    """How much more than its least price a node of each slot is expected to cost; `ways`: what launches may take, cheapest first."""
    width = len(rates)
    rooms, theirs = (np.maximum(0.0, np.array([one.room[:width] for one in some], float)) for some in (slots, ways))
    usd, own = (np.array([float(one.usd) for one in some]) for some in (ways, slots))
    on_demand = np.array([one.on_demand for one in ways])
    most = np.array([one.alternatives for one in slots])
    worth = rooms * rates
    binding = worth.argmax(1)
    every = np.arange(len(slots))
    average = rooms[every, binding, None] * demand / np.maximum(demand[binding], 1.0)[:, None]
    priced = worth >= _PRICED * worth.sum(1, keepdims=True)
    least = _FULL * np.where(priced, rooms, np.minimum(rooms, average))
    found: list[float] = []
    for start in range(0, len(slots), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        holding = np.ones((len(least[some]), len(ways)), dtype=bool)
        for d in range(width):
            holding &= theirs[:, d] >= least[some, d, None]
        dearest = np.where(holding, on_demand, math.inf).min(1, initial=math.inf)
        holding &= holding.cumsum(1) <= most[some, None]
        found += np.maximum(0.0, _means(usd, holding, dearest) - own[some]).tolist()
    return found


def _means(usd: NDArray[np.float64], holding: NDArray[np.bool_], on_demand: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each row, as `expected_price` has it of those of `usd`, cheapest first, that it holds; 0 where it holds none."""
    cheapest = np.where(holding.any(1), usd[holding.argmax(1)], 0.0)
    counted = holding & (usd <= np.maximum(cheapest, np.minimum(DEAREST_ALTERNATIVE * cheapest, on_demand))[:, None])
    return np.where(cheapest > 0, np.where(counted, usd, 0.0).sum(1) / np.maximum(counted.sum(1), 1), cheapest)
