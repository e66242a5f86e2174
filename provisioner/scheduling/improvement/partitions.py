"""The cheapest way to share new nodes among a few pods: of all their partitions, by price, the first that the judge lets stand.

A pod keeps what scheduling's answer gave it: its existing node, the wishes that it was granted, the weight of its NodePool, and the domain of each
label over which it is tied to others. Of NodePools of one weight the cheaper one is taken. A claim stays as it is where it draws from a
reservation, where its pool's minValues were relaxed for it, where its pool is packed greedily, and where a pod of it wants to be beside others on
its node or claims devices.
"""

import functools
import heapq
import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, TypeAlias

import msgspec

from provisioner.apis.names import CAPACITY_TYPE_LABEL, ZONE_LABEL
from provisioner.apis.pods import Pod
from provisioner.scheduling.attempts.finishing import expected_usd
from provisioner.scheduling.capacity.offers import OfferState, PreparedPool, pin
from provisioner.scheduling.capacity.places import bought
from provisioner.scheduling.constraints.classes import PodClass, said
from provisioner.scheduling.constraints.filters import TRIVIAL, FilterTerm
from provisioner.scheduling.constraints.ports import TakenPorts
from provisioner.scheduling.improvement.acceptance import EPSILON_USD, is_cheaper, settled, weighed
from provisioner.scheduling.improvement.granted import Granted, granted
from provisioner.scheduling.improvement.limits_after import limits_after
from provisioner.scheduling.judging import DesignedNode, design_of
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.problem import Packing
from provisioner.scheduling.result import PlannedClaim, Result

MOST_PODS: Final = 9
"""On new nodes; nine have 21,147 partitions."""
_MOST_SPLITS: Final = 3**MOST_PODS
"""Ways to part any of the pods in two: as many as nine different ones have, and fewer than a hundred equal ones."""
_MOST_LOOKS: Final = 1_600
"""Prices of nodes; where they do not suffice, those of the most pods are left out."""
_SPOT_LOOKS: Final = 3
"""What a price counts that is a mean of several instance types."""
_STATE_LOOKS: Final = 8
"""What it counts that another pod leaves a node fewer instance types, which are looked at anew: it takes a hundred times as long as a price."""
_MOST_STATES: Final = 4
"""Alternatives (node selector terms) of the pods of one node that are followed."""
_MOST_STEPS: Final = 200
_MOST_JUDGED: Final = 600
"""Pods that are judged, those of each partition anew; at least one partition is."""
_MOST_SAID: Final = 512
"""Elements of the lists by which all pods together say where they may run; with more, each judgement is dear."""
_NOWHERE: Final = float("inf")


def are_few(prepared: Prepared, result: Result) -> bool:
    """Whether so few pods are on new nodes of NodePools that are packed by cost that this search is theirs; more are the planner's."""
    return len(_again(prepared, result)) <= MOST_PODS


def _again(prepared: Prepared, result: Result) -> list[Pod]:
    """The pods on new nodes of NodePools that are packed by cost."""
    packed = {pool.name for pool in prepared.world.pools if pool.packing is Packing.COST}
    return [pod for claim in result.claims if claim.pool in packed for pod in claim.pods]


def split_little(pods: Iterable[Pod]) -> bool:
    """Whether there are few ways to share nodes among some pods: they are few, or most of them are equal."""
    return _splits(Counter([pod.shape.key for pod in pods]).values()) <= _MOST_SPLITS


def _splits(counts: Iterable[int]) -> int:
    return math.prod([(count + 1) * (count + 2) // 2 for count in counts])


def say_little(pods: Iterable[Pod]) -> bool:
    """Whether pods say so little of where they may run that many judgements of them are cheap."""
    return sum(map(said, {id(pod.shape): pod.shape for pod in pods}.values())) <= _MOST_SAID


def cheapest(
    prepared: Prepared,
    result: Result,
    *,
    leaving: Collection[str] = (),
    max_new: int | None = None,
    grants: Granted | None = None,
) -> Result:
    """The cheapest legal answer for the pods that `result` has on new nodes, where these are few, or most of them equal.

    Args:
        prepared: the world that `result` is about.
        result: scheduling's.
        leaving: as of `Prepared.solve`: nodes that go; the answer is legal before and after.
        max_new: most claims.
        grants: what `result` granted, where somebody asked already.

    Returns:
        `result` itself where nothing cheaper was found; never one that is dearer, leaves others, or moves a pod that is on an existing node.

    Cost: some 20 ms, up to 1 s where each pod leaves other instance types; counted in steps: equal questions have equal answers.
    """
    pods = list(result.placed)
    if not (result.claims and split_little(_again(prepared, result)) and say_little(pods)):
        return result
    if _is_only_way(prepared, result, max_new):
        return result
    grants = grants or granted(prepared, prepared.setting(pods, leaving), result)
    if grants is None:
        return result
    again, kept = grants.split(result.claims)
    least = weighed(prepared, again)
    most = None if max_new is None else max_new - len(kept)
    if not again:
        return result
    search = _Search(grants, again, kept, least - EPSILON_USD)
    if not search.worth_it:
        return result
    judged = max(1, _MOST_JUDGED // len(pods))
    for blocks in itertools.islice(search.partitions(most), judged):
        found, _ = settled(prepared, grants.setting, result, kept, search.nodes(blocks))
        if (
            found is not None
            and is_cheaper(prepared, found, result)
            and (not leaving or prepared.judge(design_of(found), gone=leaving).legal)
        ):
            return found
    return result


def _is_only_way(prepared: Prepared, result: Result, max_new: int | None) -> bool:
    """Whether there is but one claim to have, and one NodePool for it: then scheduling has found its cheapest instance type."""
    first, *more = result.claims
    if more or (len(first.pods) > 1 and max_new != 1):
        return False
    weights = {pool.name: pool.weight for pool in prepared.world.pools}
    return list(weights.values()).count(weights[first.pool]) == 1


# --- the search ---


@dataclass(frozen=True, slots=True)
class _Item:
    """Equal pods.

    Attributes:
        terms: what they ask of a node, in the domains that they keep; one of them.
        step: what one pod counts in the number of a load.
    """

    one: PodClass
    pins: tuple[tuple[str, str], ...]
    weight: int
    terms: tuple[FilterTerm, ...]
    pods: tuple[Pod, ...]
    step: int


class _Block(msgspec.Struct, gc=False):
    """The cheapest node of a NodePool for some pods: its price with the penalty of the pool, and what it counts against each limit."""

    usd: float
    pool: str
    kind: str
    charge: tuple[int, ...]


_Part: TypeAlias = tuple[int, _Block]


class _Search:
    """Loads are numbers: a digit for each item, which says how many of its pods there are."""

    def __init__(
        self, grants: Granted, again: Sequence[PlannedClaim], kept: Sequence[PlannedClaim], below: float
    ) -> None:
        self._setting: Final = grants.setting
        self._below: Final = below
        pools = tuple([offer.pool for offer in grants.setting.offers])
        self._limits: Final = [
            (offer, name, left)
            for offer, pool in zip(grants.setting.offers, limits_after(pools, planned=kept) or pools, strict=True)
            for name, left in (pool.remaining or {}).items()
        ]
        groups: dict[tuple[PodClass, tuple[tuple[str, str], ...], int], list[Pod]] = {}
        for claim in again:
            weight = grants.offers[claim.pool].pool.weight
            for pod in claim.pods:
                one = grants.of[pod.uid]
                groups.setdefault((one, grants.pins(one, claim) or (), weight), []).append(pod)
        items: list[_Item] = []
        step = 1
        for (one, pins, weight), pods in groups.items():
            node_filter = one.narrowed(one.ladder[0].filter)
            own = TRIVIAL
            for key, value in pins:
                own = own.joined(pin(key, value))
            items.append(
                _Item(one, pins, weight, tuple([term.joined(own) for term in node_filter.terms]), tuple(pods), step)
            )
            step *= len(pods) + 1
        self._items: Final = items
        self.worth_it: Final = _splits(len(one.pods) for one in items) <= _MOST_SPLITS
        if not self.worth_it:
            return
        self._whole: Final = step - 1
        self._apart: Final = [[self._clash(one, other) for other in items] for one in items]
        digits = itertools.product(*[range(len(one.pods) + 1) for one in reversed(items)])
        self._counts: Final = [one[::-1] for one in digits]
        self._blocks: Final = self._priced()
        self._alone: Final = [some[0].usd if some else _NOWHERE for some in self._blocks]

    def _clash(self, one: _Item, other: _Item) -> bool:
        """Whether a pod of each can never be on one node."""
        left, right = one.one, other.one
        if one.weight != other.weight or TakenPorts(dict.fromkeys(left.facts.ports, 1)).clashing(right.facts.ports):
            return True
        scope = self._setting.scope
        if scope.empty:
            return False
        pairs = ((left, right), (right, left))
        return any(
            count.on_hosts and count in scope.including(met.facts.pod)
            for asking, met in pairs
            for count in asking.ladder[0].relations.apart
        )

    def _priced(self) -> list[tuple[_Block, ...]]:
        """For each load the cheapest node without limits and that of each NodePool that has some, the cheapest first."""
        setting, items = self._setting, self._items
        width = len(setting.bins.dimensions.names)
        offers = [offer for offer in setting.offers if offer.pool.packing is not Packing.GREEDY]
        costs = {offer.pool.name: _looks(offer) for offer in offers}
        blocks: list[tuple[_Block, ...]] = [()] * (self._whole + 1)
        states: dict[int, list[tuple[PreparedPool, list[OfferState]]]] = {}
        loads: dict[int, tuple[int, ...]] = {0: (0,) * width}
        looks = 0
        for number in sorted(range(1, self._whole + 1), key=lambda one: (sum(self._counts[one]), one)):
            counts = self._counts[number]
            last = max(i for i, count in enumerate(counts) if count)
            item = items[last]
            before = number - item.step
            if before and before not in states:
                continue  # fewer of these pods fit nowhere
            counts_before = self._counts[before]
            if any(count and self._apart[last][i] for i, count in enumerate(counts_before)):
                continue
            need = setting.needs[item.one]
            load = list(loads[before])
            for d, amount in need:
                load[d] += amount
            if before:
                known = states[before]
            else:
                known = [
                    (offer, [base])
                    for offer in offers
                    if offer.pool.weight == item.weight and offer.tolerated(item.one.ladder[0].filter)
                    if (base := self._base(offer)) is not None
                ]
            tolerant = [offer for offer, _ in known if offer.tolerated(item.one.ladder[0].filter)]
            own: list[tuple[PreparedPool, list[OfferState]]] = []
            best: dict[str, _Block] = {}
            for offer, some in known:
                if offer not in tolerant or looks >= _MOST_LOOKS:
                    continue
                narrower = _narrowed(offer, some, item.terms, repeated=counts_before[last] > 0)
                if before:  # else scheduling has looked at them
                    looks += _STATE_LOOKS * sum([all(one is not other for other in some) for one in narrower])
                fitting = []
                limited = offer.pool.name if offer.pool.remaining is not None else ""
                for state in narrower:
                    least = best[limited].usd if limited in best else _NOWHERE
                    usd, row = expected_usd(offer, state, load, least - offer.pool.node_penalty)
                    looks += costs[offer.pool.name]
                    total = usd + offer.pool.node_penalty
                    if row < 0 or (total >= self._below and costs[offer.pool.name] == 1):
                        continue  # with more pods it costs no less, where the price is no mean
                    fitting.append(state)
                    if total < least:
                        kind = offer.catalogue.types[row].name
                        best[limited] = _Block(total, offer.pool.name, kind, self._charge(offer, row))
                if fitting:
                    own.append((offer, fitting))
            if own:
                states[number], loads[number] = own, tuple(load)
                blocks[number] = tuple(sorted(best.values(), key=attrgetter("usd")))
        return blocks

    def _base(self, offer: PreparedPool) -> OfferState | None:
        """What a node of a pod's pool may be before it has pods: within limits, and what is reserved is left to those who have it."""
        base = bought(offer) or offer.base
        over = 0
        for one, name, left in self._limits:
            if one is offer:
                over |= ~offer.catalogue.within(name, left)
        return offer.without(base, base.rows & over) if over else base

    def _charge(self, offer: PreparedPool, row: int) -> tuple[int, ...]:
        return tuple([offer.catalogue.amount(row, name) if one is offer else 0 for one, name, _ in self._limits])

    def _parts(self, number: int) -> Iterator[int]:
        """The loads within one that have a pod of its first item."""
        counts = self._counts[number]
        first = next(i for i, count in enumerate(counts) if count)
        found = [0]
        for i, count in enumerate(counts):
            step = self._items[i].step
            found = [part + n * step for part in found for n in range(1 if i == first else 0, count + 1)]
        return iter(found)

    @functools.cached_property
    def _together(self) -> list[float]:
        """The least that any number of nodes for each load cost, whatever the judge says."""
        least = [0.0] * (self._whole + 1)
        usd = self._alone
        for number in range(1, self._whole + 1):
            best = usd[number]
            for part in self._parts(number):
                total = usd[part] + least[number - part]
                best = min(best, total)
            least[number] = best
        return least

    def partitions(self, most: int | None) -> Iterator[tuple[_Part, ...]]:
        """Partitions that cost less and keep the limits, the cheapest first, each as the loads of its nodes and these."""
        below, blocks = self._below, self._blocks
        turn = itertools.count()
        queue: list[tuple[float, int, float, tuple[_Part, ...], int, tuple[int, ...]]] = []
        if self._bound(self._whole, most) < below:
            left = tuple([left for _, _, left in self._limits])
            queue.append((0.0, next(turn), 0.0, (), self._whole, left))
        for _ in range(_MOST_STEPS):
            if not queue:
                return
            _, _, spent, made, rest, left = heapq.heappop(queue)
            if not rest:
                yield made
                continue
            more = None if most is None else most - len(made) - 1
            same = made and self._first(made[-1][0]) == self._first(rest)
            for part in self._parts(rest):
                if same and part > made[-1][0]:
                    continue  # the same partition in another order
                if not blocks[part]:
                    continue
                then_least = self._bound(rest - part, more)
                for block in blocks[part]:
                    paid = spent + block.usd
                    bound = paid + then_least
                    then = tuple([own - charge for own, charge in zip(left, block.charge, strict=True)])
                    if bound < below and all(own >= 0 for own in then):
                        heapq.heappush(queue, (bound, next(turn), paid, (*made, (part, block)), rest - part, then))

    def _bound(self, number: int, most: int | None) -> float:
        """What nodes for a load cost at least, where there are at most so many; two are rather tried than told."""
        if not number:
            return 0.0
        if most is None or most > 2:
            return self._together[number]
        return (_NOWHERE, self._alone[number], 0.0)[most]

    def _first(self, number: int) -> int:
        return next(i for i, count in enumerate(self._counts[number]) if count)

    def nodes(self, parts: Sequence[_Part]) -> list[DesignedNode]:
        """The nodes of a partition, with pods dealt out to them."""
        dealt = [0] * len(self._items)
        made = []
        for part, block in sorted(parts, key=lambda one: (-one[1].usd, one[0])):
            pods: list[Pod] = []
            said: dict[str, str] = {}
            for i, count in enumerate(self._counts[part]):
                if count:
                    pods += self._items[i].pods[dealt[i] : dealt[i] + count]
                    dealt[i] += count
                    said.update(self._items[i].pins)
            zone, kind = said.pop(ZONE_LABEL, ""), said.pop(CAPACITY_TYPE_LABEL, "")
            made.append(DesignedNode(block.pool, block.kind, zone, kind, tuple(pods), (), tuple(said.items())))
        return made


def _looks(offer: PreparedPool) -> int:
    """What a price of a pool's nodes counts."""
    several = any(one.offering.alternatives > 1 for one in offer.ranked(offer.base).priced)
    return _SPOT_LOOKS if several else 1


def _narrowed(
    offer: PreparedPool, some: Sequence[OfferState], terms: Sequence[FilterTerm], *, repeated: bool
) -> list[OfferState]:
    """The states after one more pod; a pod like one that is there narrows nothing."""
    if repeated:
        return list(some)
    found: dict[int, OfferState] = {}
    for state, term in itertools.product(some, terms):
        one = offer.narrowed(state, term)
        if one is not None:
            found[id(one)] = one
            if len(found) == _MOST_STATES:
                break
    return list(found.values())
