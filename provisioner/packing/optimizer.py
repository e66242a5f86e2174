"""A cheaper answer than scheduling's to the same question, and a proved bound beside it.

Stages, each of which leaves an answer: scheduling's own (first fit by decreasing size); dives by worth; column generation where
there are few kinds of pods; ruin and recreate on the best of them. The cheapest one is proposed (`propose`), judged by scheduling as
a whole, and taken where it is legal and costs less (`taken`); else scheduling's answer stays. What the planner leaves as it is: see
`model`.

Where the first dive would exceed a pool's limits, nodes are compared with a toll for what they count against them, and every fleet that
is looked at keeps them; nodes of a pool with minValues are of several instance types each (`envelopes`). Zones are those that
scheduling chose. Spot is planned at the price that is expected of a launch (`expected_price`), on nodes of which 15 instance
types could take the place where there are so many; bounds go by the lowest price.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from provisioner.apis.pods import Pod
from provisioner.packing.column_generation import generated
from provisioner.packing.dual_prices import Prices, prices_of
from provisioner.packing.interruption_cost import expected, usd_per_hour
from provisioner.packing.knapsack import Knapsacks
from provisioner.packing.model import Model, PackingMarket, PackingNode, Vector, models_of
from provisioner.packing.patterns import Counts, arrays_of, weights_of
from provisioner.packing.ruin_recreate import FleetArrays, NoPlaceError, Search
from provisioner.scheduling.improvement.acceptance import EPSILON_USD, weighed
from provisioner.scheduling.improvement.granted import granted
from provisioner.scheduling.judging import DesignedNode
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.result import PlannedClaim, Result

ITERATIONS: Final = 60
"""Rounds of ruin and recreate where nobody says how many."""
_FEW_KINDS: Final = 64
"""With more kinds of pods, column generation takes long and gains nothing over a dive."""
_COLUMN_ROUNDS: Final = 30
_GENERATIONS: Final = 4
"""Times that columns are generated where the best loads are not found for certain."""
_DIVES: Final = ((0.0, 1.0), (0.1, 1.0), (0.1, 0.5))
"""(noise, share) of each dive."""
_SCARCE_DIVES: Final = (1.0, 3.0)
"""How much scarce pods count in further dives, which place them first."""
_DONE: Final = 1.001
"""An answer that costs so much of the bound is not improved any more."""

SCHEDULING: Final = "scheduling"
_MOVED: Final = "moved"
"""Pods share nodes as in scheduling's answer; these are of cheaper slots, as of another NodePool of the same weight."""


@dataclass(frozen=True, slots=True)
class PackingProposal:
    """A fleet that nobody has judged yet.

    Attributes:
        usd_at_least: per hour: no plan for the same pods costs less. Proved in exact arithmetic.
        stage: that found it: "scheduling" where nothing cheaper was found.
        steps: rounds of ruin and recreate.
        kept: claims of scheduling's answer that stay as they are.
        nodes: instead of all the others; None where nothing cheaper was found.
    """

    usd_at_least: float
    stage: str = SCHEDULING
    steps: int = 0
    kept: tuple[PlannedClaim, ...] = ()
    nodes: tuple[DesignedNode, ...] | None = None


def never() -> bool:
    """A deadline that does not come."""
    return False


@dataclass(frozen=True, slots=True)
class FleetPrices:
    """What new nodes for some pods cost.

    Attributes:
        usd_greedy: per hour, as scheduling would place them.
        usd_at_least: as of `PackingProposal`.
        placed: for how many pods; the others found no place, or no time was left for them.
    """

    usd_greedy: float
    usd_at_least: float
    placed: int


def priced(
    prepared: Prepared, classes: Sequence[Pod], counts: Sequence[int], *, expired: Callable[[], bool] = never
) -> FleetPrices:
    """What new nodes cost for so many pods of each class, and must cost. Looks for nothing better."""
    pods = [
        msgspec.structs.replace(one, uid=f"{one.uid}/{number}", name=f"{one.name}-{number}")
        for one, count in zip(classes, counts, strict=True)
        for number in range(count)
    ]
    result = prepared.solve(pods, expired=expired, explain=False)
    placed = {pod.uid for pod in result.placed}
    least = result.usd_at_least or 0.0
    if result.claims:
        model = next(models_of(prepared.setting([pod for pod in pods if pod.uid in placed]), result))
        least = max(least, prices_of(model.market).usd_at_least)
    return FleetPrices(result.usd_per_hour, min(least, result.usd_per_hour), len(placed))


def propose(
    prepared: Prepared,
    pods: Iterable[Pod],
    result: Result,
    *,
    expired: Callable[[], bool] = never,
    iterations: int = ITERATIONS,
    seed: int = 0,
) -> PackingProposal:
    """Look for a cheaper fleet for the pods that scheduling placed, and leave it to others to judge it.

    Args:
        prepared: the world that `result` is about.
        pods: what `prepared.solve` was asked.
        result: what it answered.
        expired: says that time is up; after one dive at the least, the best fleet so far is the answer.
        iterations: most rounds of ruin and recreate. With `expired` never true, equal arguments give equal plans.
        seed: of what is left to chance.

    Cost: 1 to 3 s of one core for 1,000 to 20,000 pods with the default iterations; what a dive costs depends on kinds of
    pods more than on pods.
    """
    placed = {pod.uid for pod in result.placed}
    setting = prepared.setting([pod for pod in pods if pod.uid in placed])
    own = granted(prepared, setting, result)
    setting = setting if own is None else own.setting
    best = weighed(prepared, result.claims) - EPSILON_USD
    proposal = PackingProposal(0.0)
    for plain in models_of(setting, result):
        prices = prices_of(plain.market)
        proposal = replace(proposal, usd_at_least=max(proposal.usd_at_least, prices.usd_at_least))
        model = expected(plain, prices)
        # what a launch is expected to cost is known of whole nodes only, so nodes that look best at the least price are compared too
        for tried, rounds in ((plain, 0), (model, iterations)) if model is not plain else ((plain, iterations),):
            if not tried.nodes or (proposal.steps and expired()):
                continue
            stages = _stages(tried, prices, seed, expired)
            nodes, stage, steps = stages.run(rounds)
            least = max(proposal.usd_at_least, stages.usd_at_least)
            proposal = replace(proposal, usd_at_least=least, steps=proposal.steps + steps)
            if stage == SCHEDULING:
                continue
            worth = weighed(prepared, model.kept) + usd_per_hour(tried, nodes)
            if worth < best:
                best, made = worth, tried.designed(setting, nodes)
                proposal = replace(proposal, stage=stage, kept=model.kept, nodes=made)
    return proposal


def _stages(model: Model, prices: Prices, seed: int, expired: Callable[[], bool]) -> "_Stages":
    """The stages for a model: with tolls where a dive would not keep the limits without."""
    own, groups = prices, [one.group for one in model.items]
    if model.market.free or any(one.surplus for one in model.slots):
        # what is left of one resource on existing nodes is taken off the bound, and makes none of the others cheaper on new ones
        own, groups = _own(model, 1.0, prices)
    stages = _Stages(model, own, groups, None, seed, expired)
    used = stages.used()
    if used is None:
        return stages
    usd = sum(model.weight(one) for one in model.nodes if one.slot >= 0) or math.inf
    tolls = [0.0] * len(used)
    for share in _SHARES:
        market = model.own_market(share)
        tried = prices_of(market)
        if tried.usd_at_least <= usd:  # else nothing fits into so little
            own, tolls = replace(tried, usd_at_least=prices.usd_at_least), list(tried.tolls)
            groups = _groups(model, market)
            break
    price = float(stages.arrays.price.mean())
    for number, (limit, amount) in enumerate(zip(model.limits, used, strict=True)):
        if amount > limit.budget and limit.largest:
            tolls[number] = tolls[number] or _LEAST_TOLL * price / limit.largest
    return _Stages(model, own, groups, np.array(tolls), seed, expired)


def _own(model: Model, share: float, prices: Prices) -> tuple[Prices, list[int]]:
    return replace(prices_of(market := model.own_market(share)), usd_at_least=prices.usd_at_least), _groups(
        model, market
    )


def _groups(model: Model, market: PackingMarket) -> list[int]:
    """The group of each item in a market of its own."""
    place = {one.allowed: number for number, one in enumerate(market.groups)}
    return [place[one.allowed] for one in model.items]


_SHARES: Final = (0.97, 1.0)
"""Tolls are those of limits that are a little lower, where that is possible: what is used of them comes in whole nodes."""
_LEAST_TOLL: Final = 0.1
"""Of what a node costs, for what the largest one counts against a limit that only whole nodes exceed."""
_TOLL_DIVES: Final = (
    (0.0, 1.0, 1.0),
    (0.1, 1.0, 1.0),
    (0.0, 1.0, 2.0),
    (0.1, 0.5, 1.0),
    (0.0, 1.0, 5.0),
    (0.0, 1.0, 0.3),
)
"""(noise, share, toll) of each dive that keeps limits."""


def _worths(model: Model, prices: Prices, groups: Iterable[int]) -> NDArray[np.float64]:
    """Of one pod of each item, in USD per hour; `groups`: of the market, by item."""
    width = len(model.market.names)
    known: dict[tuple[int, Vector], float] = {}
    found = []
    for group, one in zip(groups, model.items, strict=True):
        key = group, one.need[:width]
        if key not in known:
            known[key] = float(prices.worth(*key))
        found.append(known[key])
    return np.array(found)


class _Stages:
    """The search for one model.

    `groups`: of the prices, by item.

    Attributes:
        least: no nodes for its pods cost less, in USD per hour, as far as was known when it began.
        usd_at_least: the same, as column generation proved it; 0 where it did not.
    """

    def __init__(
        self,
        model: Model,
        prices: Prices,
        groups: Sequence[int],
        tolls: NDArray[np.float64] | None,
        seed: int,
        expired: Callable[[], bool],
    ) -> None:
        self.model: Final = model
        self.arrays, self.slots = arrays_of(model, sparing=tolls is not None)
        room_worth = self._room_worth(prices, groups)
        weights = weights_of(_used(model))
        self.search: Final = Search(
            self.arrays, _worths(model, prices, groups), room_worth, weights, seed, expired, tolls
        )
        self.least: Final = prices.usd_at_least - sum(one.usd_per_hour for one in model.kept)
        self.expired: Final = expired
        self.usd_at_least = 0.0
        self._tolls: Final = tolls is not None
        self._first: Final = self._dive(*_DIVES[0]) if model.limits else None

    def _room_worth(self, prices: Prices, groups: Sequence[int]) -> NDArray[np.float64]:
        """Of all that each slot has, in USD per hour, at the highest rates of the pods that it can take: those of others buy nothing there."""
        width = len(self.model.market.names)
        room = np.array([self.model.slots[n].room[:width] for n in self.slots.tolist()], dtype=np.float64)
        highest = np.zeros_like(room)
        group_of = np.array(groups)
        for group in sorted(set(groups)):
            taken = self.arrays.allowed[group_of == group].any(0)
            own = np.array([float(rate) for rate in prices.rates[group]])
            highest[taken] = np.maximum(highest[taken], own)
        worth: NDArray[np.float64] = (highest * room).sum(1)
        return worth

    def used(self) -> Sequence[float] | None:
        """What a dive counts against each limit; None where it keeps them all."""
        if self._first is None or self.search.within(self._first.slots):
            return None
        used: Sequence[float] = self.arrays.charge[self._first.slots].sum(0).tolist()
        return used

    def _dive(self, noise: float, share: float) -> FleetArrays:
        return self.search.fleet(self.search.dive(self.arrays.demand, noise=noise, share=share, toll=0.0), 0.0)

    def run(self, iterations: int) -> tuple[list[PackingNode], str, int]:
        """The nodes of the cheapest fleet, the stage that found it, and the rounds of ruin and recreate."""
        search = self.search
        seeds = [self._first] if self._first is not None else []
        fleets: list[tuple[FleetArrays, str]] = []

        def seen(loads: Counts, stage: str) -> None:
            fleet = search.lawful(loads)
            seeds.append(fleet or search.fleet(loads))
            if fleet is not None:
                fleets.append((fleet, stage))

        if self.model.familiar:
            seen(self._loads(), _MOVED)
        for loads in () if self._near(fleets) else self._dives():
            seen(loads, "dive")
            if self._done(fleets):
                break
        if len(self.model.items) <= _FEW_KINDS:
            knapsacks = None if self._tolls else Knapsacks.of(self.model, self.slots.tolist())
            for _ in range(_GENERATIONS):  # another one finds other loads, by other chances
                if self._done(fleets):
                    break
                made = generated(search, seeds, min(_COLUMN_ROUNDS, iterations), knapsacks)
                self.usd_at_least = max(self.usd_at_least, made.usd_at_least)
                if made.loads is not None:
                    seen(made.loads, "columns")
                if made.loads is None or self.usd_at_least:
                    break
        if not fleets:
            return list(self.model.nodes), SCHEDULING, search.steps
        best, stage = min(fleets, key=lambda entry: entry[0].usd)
        if iterations and not self._done(fleets):
            other = search.ruin(best, iterations, least=max(self.least, self.usd_at_least) * _DONE)
            if other.usd < best.usd - EPSILON_USD:
                best, stage = other, "recreate"
        return self._nodes(best), stage, search.steps

    def _dives(self) -> Iterator[Counts]:
        """Loads for all pods, one way after another."""
        search, demand = self.search, self.arrays.demand
        if not self._tolls:
            scarce = self.arrays.scarce.any()
            for noise, share in _DIVES:
                yield search.dive(demand, noise=noise, share=share)
                for times in _SCARCE_DIVES if scarce else ():
                    yield search.dive(demand, noise=noise, share=share, scarce=times)
            return
        for noise, share, toll in _TOLL_DIVES:
            try:
                yield search.dive(demand, noise=noise, share=share, toll=toll, budget=self.arrays.budget)
            except NoPlaceError:
                continue

    def _done(self, fleets: list[tuple[FleetArrays, str]]) -> bool:
        return self.expired() or self._near(fleets)

    def _near(self, fleets: list[tuple[FleetArrays, str]]) -> bool:
        return min((one.usd for one, _ in fleets), default=math.inf) <= self.least * _DONE

    def _loads(self) -> Counts:
        loads = np.zeros((len(self.model.nodes), len(self.model.items)), dtype=np.int32)
        for number, node in enumerate(self.model.nodes):
            for item, count in node.load:
                loads[number, item] = count
        return loads

    def _nodes(self, fleet: FleetArrays) -> list[PackingNode]:
        """Dearest first."""
        found: list[tuple[float, PackingNode]] = []
        for slot, load in zip(fleet.slots.tolist(), fleet.loads, strict=True):
            items = np.flatnonzero(load).tolist()
            own: NDArray[np.int64] = self.slots
            node = PackingNode(int(own[slot]), tuple([(item, int(load[item])) for item in items]))
            found.append((-float(self.arrays.price[slot]), node))
        return [node for _, node in sorted(found, key=lambda entry: (entry[0], entry[1].slot, entry[1].load))]


def _used(model: Model) -> list[str]:
    """The names of the dimensions of which any item needs something; ties between pods have none."""
    names = model.market.names
    width = len(model.items[0].need)
    return [names[d] if d < len(names) else "" for d in range(width) if any(one.need[d] for one in model.items)]
