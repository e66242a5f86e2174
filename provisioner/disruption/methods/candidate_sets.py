"""Which nodes may be worth replacing together: by what they cost above the least that their pods can cost, estimated without a question.

A set is grown node by node, each time by those with which a single new node for all of their pods would bring most. What a set really
brings is then found out by a question, which also sees the room on other nodes, topology, limits and everything else.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from statistics import median_low
from typing import Final, TypeAlias

from provisioner.apis import names
from provisioner.cloudprovider.types import InstanceType, cheapest_offering
from provisioner.disruption.acceptance import AcceptanceRule, are_apart, brings
from provisioner.disruption.candidates import Candidate
from provisioner.disruption.price_history import NO_PRICE_HISTORY, PriceHistory
from provisioner.disruption.waste import Rates
from provisioner.scheduling.problem import SchedulingPool

MOST: Final = 10
"""Nodes of one set."""
_PARTNERS: Final = 48
"""Nodes that are looked at as the next one of a set, and as many of the first one's zone."""
_BEAM: Final = 3
"""Sets of one size that are grown further."""
_LULL: Final = 2
"""Sizes in a row that are no better than one before ends the growing."""
Labels: TypeAlias = tuple[str, ...]
ZONE: Final[Labels] = (names.ZONE_LABEL,)
POOL: Final[Labels] = (names.NODEPOOL_LABEL,)
_NOBODY: Final[Mapping[str, datetime]] = {}
_Load = tuple[int, int, int]
"""CPU in thousandths, memory in bytes, pods."""
_Priced = tuple[float, int, int, int, datetime | None]
"""(USD per hour, CPU, memory, pods, `PriceHistory.last_fall`)"""
PricedKind: TypeAlias = tuple[tuple[float, int, int, int], SchedulingPool, InstanceType]
"""((USD per hour, CPU, memory, pods), whose it is, what it is)"""
_Grown = tuple[float, tuple[str, ...], tuple[int, int, int, float, float]]
"""(what it may bring, its nodes, (their load, price, and what it costs to move their pods))"""


def margins(those: Sequence[Candidate], rates: Rates, rule: AcceptanceRule) -> dict[str, float]:
    """By NodeClaim, what each brings where its pods cost the least that they can on new nodes, in USD; less than nothing for most."""
    worth = rates.for_load(one.requests for one in those)
    least = {one.key: max(worth.of(one.requests), rates.of_extended(one.requests)) for one in those}
    return {
        one.key: brings(one.usd_per_hour - least[one.key], rule.evictions_usd(one), least[one.key], rule.hours)
        for one in those
    }


def priced_kinds(pools: Sequence[SchedulingPool]) -> tuple[PricedKind, ...]:
    """What pools can make, cheapest first, without what holds no more of anything than what costs less. Cost: O(types), and a look at those kept for each."""
    priced = []
    for place, pool in enumerate(pools):
        for number, kind in enumerate(pool.instance_types):
            offering = cheapest_offering(kind, pool.requirements)
            if offering is not None:
                priced.append((offering.price, *_room(kind.allocatable), place, number))
    kept: list[PricedKind] = []
    for price, cpu, memory, pods, place, number in sorted(priced):
        if not any(has[1] >= cpu and has[2] >= memory and has[3] >= pods for has, *_ in kept):
            kept.append(((price, cpu, memory, pods), pools[place], pools[place].instance_types[number]))
    return tuple(kept)


class NewNode:
    """What one new node for some pods costs, as far as sizes tell."""

    def __init__(self, kinds: Iterable[PricedKind], overhead: _Load, prices: PriceHistory = NO_PRICE_HISTORY) -> None:
        """Of what `priced_kinds` found; `overhead` is what DaemonSets take of a node."""
        kept: list[_Priced] = []
        for (price, cpu, memory, pods), pool, kind in kinds:
            fell = prices.last_fall(pool.name, kind, pool.requirements)
            kept.append((price, cpu - overhead[0], memory - overhead[1], pods - overhead[2], fell))
        self._cheapest: Final = tuple(kept)
        self.last_fall: Final = max((fell for *_, fell in kept if fell is not None), default=None)
        """When any of what is the cheapest for something became cheaper or available; None where nothing did."""

    def cheapest(self, cpu: int, memory: int, pods: int) -> tuple[float, datetime | None]:
        """The price of the cheapest that holds so much, and when it became cheaper or available; infinity where none does."""
        for price, most_cpu, most_memory, most_pods, fell in self._cheapest:
            if most_cpu >= cpu and most_memory >= memory and most_pods >= pods:
                return price, fell
        return math.inf, None


class Sets:
    """Nodes that could be in a set, and how well they go together.

    Args:
        those: every node that could.
        kinds: which new ones may come.
        rates: prices per resource at which nothing is worth more than it costs.
        rule: what it costs to move the pods of a node, and for how long a saving counts.
        young: of those that are replaced only by what has become cheaper or available since then, or together with nodes of other batches
            (`are_apart`), when they were bought. Where that is nothing, they are in no set.
        prices: what offerings were like.

    Attributes:
        young: those of them that are in some set.
    """

    def __init__(
        self,
        those: Sequence[Candidate],
        kinds: Iterable[PricedKind],
        rates: Rates,
        rule: AcceptanceRule,
        young: Mapping[str, datetime] = _NOBODY,
        prices: PriceHistory = NO_PRICE_HISTORY,
    ) -> None:
        self._loads: Final = {one.key: _load(one) for one in those}
        self._new: Final = NewNode(kinds, _overhead(those, self._loads), prices)
        self._fallen: Final = {key for key, bought in young.items() if _is_before(bought, self._new.last_fall)}
        self.young: Final = dict(young) if are_apart(those) else {key: young[key] for key in self._fallen}
        those = [one for one in those if one.key in self.young or one.key not in young]
        self._costs: Final = {one.key: rule.evictions_usd(one) for one in those}
        self._hours: Final = rule.hours
        self.margins: Final[Mapping[str, float]] = margins(those, rates, rule)
        """The most that a node adds to what a set brings within the horizon, where its pods go to new nodes."""
        self._ranked: Final = sorted(those, key=lambda one: (-self.margins[one.key], one.key))
        self._alike: Final[dict[Labels, dict[tuple[str, ...], list[Candidate]]]] = {}

    def seeds(self) -> Iterable[Candidate]:
        """The nodes from which a set may grow: those that bring something themselves, most for each unit of disruption first."""
        some = (one for one in self._ranked if self.margins[one.key] > 0)
        return sorted(some, key=lambda one: (-self.margins[one.key] / one.cost, one.key))

    def grown(
        self, seed: Candidate, free: Callable[[Candidate], bool], alike: Labels = ()
    ) -> list[tuple[float, tuple[Candidate, ...]]]:
        """Sets with this node, each with what it may bring: the most promising first, none that brings nothing.

        Young nodes do not keep others from a set: sets without them are grown first, by themselves.

        Args:
            seed: the node.
            free: whether another one may be in a set.
            alike: only with nodes that have the same values of these labels; nothing where all have them.

        Cost: `MOST` times `_BEAM` times `_PARTNERS` estimates, twice that where some are young.
        """
        found: list[tuple[float, tuple[Candidate, ...]]] = []
        if alike and len(self._like(seed, alike)) == len(self._ranked):
            return found
        if seed.key not in self.young:
            found = self._grown(seed, lambda one: one.key not in self.young and free(one), alike)
        if self.young:
            mixed = self._grown(seed, lambda one: self._may_join(seed, one) and free(one), alike)
            found += [entry for entry in mixed if any(one.key in self.young for one in entry[1])]
            found.sort(key=lambda entry: (-entry[0], [one.key for one in entry[1]]))
        return found

    def _grown(
        self, seed: Candidate, free: Callable[[Candidate], bool], alike: Labels
    ) -> list[tuple[float, tuple[Candidate, ...]]]:
        promising = () if alike else self._first(self._ranked, seed, free)
        near = self._first(self._like(seed, alike or ZONE), seed, free)
        partners = {one.key: one for one in (*promising, *near)}
        beams: list[_Grown] = [(0.0, (seed.key,), (*self._loads[seed.key], seed.usd_per_hour, self._costs[seed.key]))]
        found: list[tuple[float, tuple[Candidate, ...]]] = []
        members = partners | {seed.key: seed}
        best, lull = -math.inf, 0
        while len(beams[0][1]) < MOST and lull < _LULL:
            larger: dict[frozenset[str], _Grown] = {}
            for _, some, (cpu, memory, pods, usd, cost) in beams:
                for key, one in partners.items():
                    if key in some:
                        continue
                    own = self._loads[key]
                    whole = (
                        cpu + own[0],
                        memory + own[1],
                        pods + own[2],
                        usd + one.usd_per_hour,
                        cost + self._costs[key],
                    )
                    price, _ = self._new.cheapest(*whole[:3])
                    gain = brings(whole[3] - price, whole[4], price, self._hours)
                    if gain > -math.inf:
                        larger[frozenset((*some, key))] = (gain, (*some, key), whole)
            if not larger:
                break
            beams = heapq.nsmallest(_BEAM, larger.values(), key=lambda entry: (-entry[0], entry[1]))
            found += [
                (gain, joined)
                for gain, some, whole in beams
                if gain > 0 and self._is_news(joined := tuple([members[key] for key in some]), whole[:3])
            ]
            lull = 0 if beams[0][0] > best else lull + 1
            best = max(best, beams[0][0])
        found.sort(key=lambda entry: (-entry[0], [one.key for one in entry[1]]))
        return found

    def _may_join(self, seed: Candidate, one: Candidate) -> bool:
        """Whether a set of these two may be news; see `_is_news`."""
        return one.key not in self.young or one.key in self._fallen or are_apart((seed, one))

    def _is_news(self, some: Sequence[Candidate], load: _Load) -> bool:
        """Whether no batch could buy the new node for all of these, or it became cheaper or available since the youngest was bought; or none is young."""
        bought = max((self.young[one.key] for one in some if one.key in self.young), default=None)
        return bought is None or are_apart(some) or _is_before(bought, self._new.cheapest(*load)[1])

    def _like(self, seed: Candidate, labels: Labels) -> list[Candidate]:
        """All with the same values of these labels, the most promising first."""
        known = self._alike.get(labels)
        if known is None:
            known = self._alike[labels] = {}
            for one in self._ranked:
                known.setdefault(_values(one, labels), []).append(one)
        return known.get(_values(seed, labels), [])

    @staticmethod
    def _first(some: Iterable[Candidate], seed: Candidate, free: Callable[[Candidate], bool]) -> list[Candidate]:
        found: list[Candidate] = []
        for one in some:
            if len(found) == _PARTNERS:
                break
            if one is not seed and free(one):
                found.append(one)
        return found


def _is_before(bought: datetime, fell: datetime | None) -> bool:
    return fell is not None and bought < fell


def _values(one: Candidate, labels: Labels) -> tuple[str, ...]:
    return tuple([one.node.labels.get(label, "") for label in labels])


def _room(amounts: Mapping[str, int]) -> _Load:
    return amounts.get(names.CPU, 0), amounts.get(names.MEMORY, 0), amounts.get(names.PODS, 0)


def _load(one: Candidate) -> _Load:
    return one.requests.amount(names.CPU), one.requests.amount(names.MEMORY), len(one.pods)


def _overhead(those: Iterable[Candidate], loads: Mapping[str, _Load]) -> _Load:
    """What is taken of a node besides pods that would move: half of the nodes have as little left of each."""
    taken = [
        [
            most - left - own
            for most, left, own in zip(
                _room(one.node.allocatable), _room(one.node.room + one.node.planned), loads[one.key], strict=True
            )
        ]
        for one in those
    ]
    cpu, memory, pods = ([max(0, one[d]) for one in taken] for d in range(3))
    return (median_low(cpu), median_low(memory), median_low(pods)) if taken else (0, 0, 0)
