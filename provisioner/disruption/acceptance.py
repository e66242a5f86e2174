"""Whether a consolidation pays: by what it saves within a horizon, as Karpenter says, or by a pool's Balanced rule."""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from provisioner.apis import names
from provisioner.apis.pods import is_reschedulable
from provisioner.disruption import costs
from provisioner.disruption.candidates import Candidate, CandidateTypes
from provisioner.disruption.proposal import Score
from provisioner.disruption.replacement import NO_CHEAPER_NODE
from provisioner.disruption.view import Acceptance, DisruptionView
from provisioner.scheduling.result import PlannedClaim
from provisioner.values.message import Said
from provisioner.values.quantity import QuantityError
from provisioner.values.resources import EMPTY, Resources

BALANCED: Final = "Balanced"
HORIZON: Final = timedelta(hours=4)
"""A saving counts for so long, and no longer than the nodes that go would have lived."""
PROMPT: Final = timedelta(hours=1)
"""What pays within so long comes first: a move that pays late takes no node from one that pays soon."""
WHOLE: Final = HORIZON / timedelta(hours=1)
"""The same in hours."""
EVICTION_USD: Final = 0.001
"""What the eviction of an ordinary pod may cost; see `costs.eviction_cost`."""
OVERLAP: Final = timedelta(minutes=3)
"""For so long a replacement runs beside what it replaces: it is launched and its daemons come up before the first pod moves."""
THRESHOLD: Final = 0.5
"""The least score of a Balanced pool: the share of its cost that is saved, by the share of its disruption that it takes."""
APART: Final = timedelta(minutes=1)
"""Nodes that were created farther apart than this were not bought together."""
_HOUR: Final = timedelta(hours=1)
_FULL: Final = 0.95
"""A node whose pods ask for less than this share of what it was bought for is not what it was bought for."""
_LOOSE: Final = 0.05
"""A plan that was dearer than its lower bound by more than this share may be mended."""
_OFFERING: Final = (names.INSTANCE_TYPE_LABEL, names.ZONE_LABEL, names.CAPACITY_TYPE_LABEL)


def brings(saving: float, evictions_usd: float, new_usd: float, hours: float = WHOLE) -> float:
    """USD that nodes bring if others take their place, less what it costs; see `AcceptanceRule.gain`.

    Args:
        saving: USD per hour.
        evictions_usd: of their pods, USD.
        new_usd: price of those that come, USD per hour.
        hours: for so long the saving counts.
    """
    return saving * hours - evictions_usd - new_usd * (OVERLAP / _HOUR)


class AcceptanceRule:
    """Says which moves pay. A move of nodes of a Balanced pool needs that pool's consent, others what the flag demands.

    Moves that pay soon come first; relaxed once, the rule lets those pay that bring more than they cost at all, and then any saving, if the flag says so.

    Cost: the sums of a Balanced pool are taken once, over all of its nodes.
    """

    def __init__(self, view: DisruptionView, types: CandidateTypes) -> None:
        self._view: Final = view
        self._types: Final = types
        self._totals: Final[dict[str, tuple[float, float]]] = {}
        self._stage = 0
        self.rejected: Final[list[Score]] = []
        """Of the moves that a Balanced pool refused."""

    def relax(self) -> bool:
        """Let more moves pay from now on; returns whether there are more to let pay. What was rejected is to be asked again then."""
        last = 2 if self._view.settings.acceptance is Acceptance.KARPENTER else 1
        if self._stage == last:
            return False
        self._stage += 1
        self.rejected.clear()
        return True

    @property
    def _relaxed(self) -> bool:
        """Any saving pays."""
        return self._stage == 2

    @property
    def hours(self) -> float:
        """For so long a saving counts by now."""
        return WHOLE if self._stage else PROMPT / _HOUR

    def gain(self, some: Sequence[Candidate], saving: float, new_usd: float, hours: float | None = None) -> float:
        """USD that the move brings within the time for which savings count, less what it costs; only where this is above 0 it pays.

        It costs the evictions of the pods that move, of which each is a restart, and for `OVERLAP` the price of what comes. That is the
        price of the launch, and of the daemons, which run twice meanwhile; they are neither evicted nor moved, so nothing else is counted
        for them. Where nothing comes, the move costs the evictions alone.

        Args:
            some: the nodes that go.
            saving: USD per hour.
            new_usd: price of what takes their place, USD per hour.
            hours: for which savings count; as by now unless told otherwise.
        """
        if saving <= 0:
            return saving
        hours = self._hours(some, self.hours if hours is None else hours)
        if self._relaxed or all(_is_balanced(one) for one in some):
            return saving * hours
        return brings(saving, sum(map(self.evictions_usd, some)), new_usd, hours)

    def most_one_by_one(self, some: Sequence[Candidate], turn: timedelta) -> float:
        """USD per hour below which a new node may come for nodes that go to it one after another, in this order.

        Whoever goes later is paid for until its turn. Nothing holds the others to it: if none goes but the first, the new node is too large for as
        long as it is settled (`is_settled`), and that may cost no more than the whole move brings.

        Args:
            some: the nodes that go.
            turn: from one to the next.
        """
        hours = self._hours(some, WHOLE)
        whole = sum(one.usd_per_hour for one in some)
        late = sum(turns * one.usd_per_hour for turns, one in enumerate(some)) * (turn / _HOUR)
        paid = whole * hours + some[0].usd_per_hour * WHOLE - sum(map(self.evictions_usd, some)) - late
        return paid / (hours + WHOLE + OVERLAP / _HOUR)

    def lasts(self, one: Candidate) -> bool:
        """Whether a node would live for as long as a saving counts by now."""
        return self._hours((one,), self.hours) >= self.hours

    def evictions_usd(self, one: Candidate) -> float:
        """What it costs to evict the pods of a node; 0 where every saving pays."""
        if self._relaxed:
            return 0.0
        return EVICTION_USD * one.evictions

    def refusal(self, some: Sequence[Candidate], saving: float, new_usd: float) -> str:
        """Why the move does not pay, as users read it; "" where it does."""
        if saving <= 0:
            return NO_CHEAPER_NODE
        if self.gain(some, saving, new_usd) <= 0:
            return Said(
                f"Saving ${saving:.2f} per hour does not justify moving {sum(len(one.pods) for one in some)} pods"
            )
        for score in self.scores(some, saving):
            if score.value < THRESHOLD:
                self.rejected.append(score)
                return Said(
                    f'NodePool "{score.pool}" balances savings with disruption: score {score.value:.2f} < threshold '
                    f"{THRESHOLD:.2f}"
                )
        return ""

    def scores(self, some: Sequence[Candidate], saving: float) -> tuple[Score, ...]:
        """The score of a move for each Balanced pool that it takes nodes of, by name. Source: core spec 6.12."""
        whole = sum(one.usd_per_hour for one in some)
        found = []
        for name in sorted({one.node.pool for one in some if _is_balanced(one)}):
            mine = [one for one in some if one.node.pool == name]
            share = sum(one.usd_per_hour for one in mine) / whole if whole > 0 else 0.0
            found.append(self._score(name, saving * share, sum(one.cost for one in mine)))
        return tuple(found)

    def _score(self, pool: str, saving: float, disruption: float) -> Score:
        price, total = self._total(pool)
        if price <= 0 or total <= 0 or saving <= 0:
            return Score(pool, 0.0, 0.0, 0.0)
        saved, disrupted = saving / price, disruption / total
        return Score(pool, math.inf if disruption <= 0 else saved / disrupted, saved, disrupted)

    def _total(self, pool: str) -> tuple[float, float]:
        found = self._totals.get(pool)
        if found is None:
            nodes = [one for one in self._view.snapshot.nodes if one.claim is not None and one.pool == pool]
            price = sum(costs.price_of(one.labels, self._types.of(one)) for one in nodes)
            disruption = sum(costs.reschedule_cost(pod for pod in one.pods if is_reschedulable(pod)) for one in nodes)
            found = self._totals[pool] = price, disruption
        return found

    def _hours(self, some: Iterable[Candidate], most: float) -> float:
        left = [costs.time_left(one.claim, self._view.snapshot.at) for one in some]
        shortest = min((one for one in left if one is not None), default=HORIZON)
        return max(0.0, min(most, shortest / _HOUR))


def _is_balanced(one: Candidate) -> bool:
    return one.pool.spec.disruption.consolidation_policy == BALANCED


def is_settled(one: Candidate, view: DisruptionView) -> bool:
    """Whether a node is so young, and still so much what it was bought for, that it is not replaced yet.

    Bought for means: of the type, zone and capacity type that were planned, at the price of then or less, and its pods ask for no less than
    they did. Such a node may be deleted where its pods fit elsewhere, and replaced by what could not be bought so at the time (`is_news`), or
    together with nodes of another batch (`are_apart`).
    Nor is one settled whose batch was packed far from the least price (`dovetail.dev/plan-gap`): its pods may cost less on other nodes at once.
    """
    created = one.claim.metadata.creation_timestamp
    if created is None or view.snapshot.at - created >= HORIZON:
        return False
    return _as_planned(one) and _as_full(one) and not _is_loose(one) and not _is_dearer(one, created, view)


def are_apart(some: Iterable[Candidate]) -> bool:
    """Whether nodes were bought for pods of several batches: no batch could buy one node for the pods of both. One whose age is not known does not count."""
    times = [at for one in some if (at := one.claim.metadata.creation_timestamp) is not None]
    return bool(times) and max(times) - min(times) > APART


def is_news(one: Candidate, claims: Iterable[PlannedClaim], types: CandidateTypes, view: DisruptionView) -> bool:
    """Whether everything that would take a node's place became available or cheaper after the node was created.

    Looks at the planned type of each claim, with whatever of its offerings the claim allows. See `PriceHistory` for offerings that come
    and go. That the move pays is another question.
    """
    created = one.claim.metadata.creation_timestamp
    kinds = [(claim, types.of_pool(claim.pool).get(claim.planned_type)) for claim in claims]
    return created is not None and all(
        kind is not None and view.prices.has_fallen(claim.pool, kind, claim.requirements, created)
        for claim, kind in kinds
    )


def _is_dearer(one: Candidate, created: datetime, view: DisruptionView) -> bool:
    labels, kind = one.node.labels, one.instance_type
    zone, capacity_type = labels.get(names.ZONE_LABEL, ""), labels.get(names.CAPACITY_TYPE_LABEL, "")
    return kind is not None and view.prices.has_risen(one.node.pool, kind, zone, capacity_type, created)


def _as_planned(one: Candidate) -> bool:
    planned = one.claim.metadata.annotations.get(names.PLANNED_OFFERING_ANNOTATION)
    return planned is None or planned.split("/") == offering_of(one)


def _is_loose(one: Candidate) -> bool:
    try:
        return float(one.claim.metadata.annotations.get(names.PLAN_GAP, "0")) > _LOOSE
    except ValueError:
        return False


def offering_of(one: Candidate) -> list[str]:
    """The type, zone and capacity type of a node; "" for what its labels do not say."""
    return [one.node.labels.get(key, "") for key in _OFFERING]


def _as_full(one: Candidate) -> bool:
    try:
        bought = Resources.parse(one.claim.spec.resources.requests)
    except QuantityError:
        bought = EMPTY
    now = one.node.used
    return all(now.amount(key) >= _FULL * bought.amount(key) for key in (names.CPU, names.MEMORY))
