"""What any legal answer must pay at the least, proved from prices and sizes alone."""

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from provisioner.scheduling.attempts.setting import Setting
from provisioner.scheduling.capacity.offers import PreparedPool
from provisioner.scheduling.constraints.bitsets import members
from provisioner.scheduling.constraints.classes import PodClass
from provisioner.scheduling.constraints.filters import TRIVIAL, NodeFilter
from provisioner.scheduling.constraints.vectors import Need, Vector
from provisioner.scheduling.result import Later

_SLACK: Final = 1 - 1e-9
"""Taken off for the rounding of sums."""
_NOWHERE: Final = float("inf")
_MOST_TERMS: Final = 16
"""Of a filter, that are looked at; of more, none: nodes that nobody chose cost no more."""
_MOST_NODES: Final = 200_000
"""Kinds of nodes that are looked at for all filters together, some 0.6 s; filters that come later are given all nodes."""


def lower_bound(
    setting: Setting, waiting: Mapping[PodClass, int], dropped: Collection[PodClass]
) -> Later[float | None]:
    """The least that any legal place costs for the same pods: of `setting`, without `dropped` classes and those of `waiting` from a number on."""

    def least() -> float | None:
        return usd_at_least(
            setting, {one: waiting.get(one, len(one.pods)) for one in setting.classes if one not in dropped}
        )

    return Later(least)


def usd_at_least(setting: Setting, placed: Mapping[PodClass, int]) -> float | None:
    """The least that new nodes cost in any legal answer that places so many pods of each class; None where prices are below 0.

    A node of `room` that costs `price` takes of no resource more than it has, so every pod on it pays at least
    `price / room` a unit, and no less than its cheapest rate on any node that may take it. What fits on existing nodes is
    given to those that would pay most. Of all resources, and of the cheapest node for any pod that no existing node may
    take, the dearest counts. What ties pods to others is not looked at: it can only make answers dearer.

    Cost: O(filters x pools x types), up to `_MOST_NODES`, + O(existing nodes that may take a pod).
    """
    groups: dict[tuple[NodeFilter, Need], int] = {}
    for one, count in placed.items():
        if count:
            key = one.filter, setting.needs[one]
            groups[key] = groups.get(key, 0) + count
    if not groups:
        return 0.0
    kinds = _Kinds(setting.offers)
    bins, least, takers = setting.bins, 0.0, 0
    loads: list[list[tuple[float, int]]] = [[] for _ in bins.dimensions.names]
    for (node_filter, need), count in groups.items():
        some = kinds.of(node_filter)
        if some.below_zero:
            return None
        for d, amount in need:
            loads[d].append((some.rate(d, need), amount * count))
        here = bins.admitting(node_filter) & bins.roomy(need)
        takers |= here
        if not here:
            least = max(least, some.cheapest(need))
    rooms = [bins.rooms[number] for number in members(takers)]
    for d, paying in enumerate(loads):
        least = max(least, _paid(paying, sum(max(0, one[d]) for one in rooms)))
    return least * _SLACK


def _paid(loads: Iterable[tuple[float, int]], room: int) -> float:
    """The least that is paid where so much is free, each unit of it worth what it saves."""
    paid = 0.0
    for rate, load in sorted(loads, reverse=True):
        free = min(room, load)
        room -= free
        if load > free and rate != _NOWHERE:
            paid += rate * (load - free)
    return paid


class _Kind:
    """New nodes that may take pods with one filter: price, and what there is for pods."""

    def __init__(self, nodes: Sequence[tuple[float, Vector]]) -> None:
        self.below_zero: Final = any(not price >= 0 for price, _ in nodes)
        self._by_price: Final = sorted(nodes, key=lambda one: one[0])
        self._by_rate: Final[dict[int, list[tuple[float, Vector]]]] = {}

    def rate(self, d: int, need: Need) -> float:
        """USD per hour and unit of a dimension that such a pod pays at the least; infinite where no new node takes it."""
        rates = self._by_rate.get(d)
        if rates is None:
            found = [(price / room[d], room) for price, room in self._by_price if room[d] > 0]
            rates = self._by_rate[d] = sorted(found, key=lambda one: one[0])
        return _first(rates, need)

    def cheapest(self, need: Need) -> float:
        """The price of the cheapest node that takes such a pod; 0 where none does."""
        price = _first(self._by_price, need)
        return 0.0 if price == _NOWHERE else price


def _first(nodes: Iterable[tuple[float, Vector]], need: Need) -> float:
    for value, room in nodes:
        for d, amount in need:
            if room[d] < amount:
                break
        else:
            return value
    return _NOWHERE


class _Kinds:
    """Kinds of new nodes, by filter."""

    def __init__(self, offers: Iterable[PreparedPool]) -> None:
        self._offers: Final = list(offers)
        self._known: Final[dict[NodeFilter, _Kind]] = {}
        self._left = _MOST_NODES

    def of(self, node_filter: NodeFilter) -> _Kind:
        """Every kind that may take pods with this filter, or more of them."""
        found = self._known.get(node_filter)
        if found is None:
            if self._left <= 0:
                return self._all
            terms = node_filter.terms if len(node_filter.terms) <= _MOST_TERMS else (TRIVIAL,)
            offers = [offer for offer in self._offers if offer.tolerated(node_filter)]
            nodes = [node for offer in offers for term in terms for node in offer.types.kinds(term)]
            self._left -= len(nodes) + len(terms) * len(self._offers)
            found = self._known[node_filter] = _Kind(nodes)
        return found

    @functools.cached_property
    def _all(self) -> _Kind:
        return _Kind([node for offer in self._offers for node in offer.types.kinds(TRIVIAL)])
