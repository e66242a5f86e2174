"""From open claims to planned ones: the types that are left, the cheapest of them, and what the NodeClaim will say."""

import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from msgspec.structs import replace

from provisioner.apis.names import CAPACITY_TYPE_LABEL, INSTANCE_TYPE_LABEL, restricted
from provisioner.apis.pods import Pod
from provisioner.cloudprovider.types import DEAREST_ALTERNATIVE, Offering, expected_price
from provisioner.scheduling.capacity.catalogue import PricedOffering
from provisioner.scheduling.capacity.offers import OfferState, PreparedPool, Ranked
from provisioner.scheduling.capacity.places import Place, PoolAccount
from provisioner.scheduling.capacity.pool_limits import LimitLedger, shares
from provisioner.scheduling.capacity.prepared_types import SIMULATED_LABELS
from provisioner.scheduling.constraints.bitsets import mask_of, members
from provisioner.scheduling.constraints.vectors import ATTACHABLE
from provisioner.scheduling.result import MAX_INSTANCE_TYPES, LaunchReason, PlannedClaim
from provisioner.values.requirement import Operator, Requirement, Requirements
from provisioner.values.resources import EMPTY, Resources


@dataclass(frozen=True, slots=True)
class _Choice:
    """What claims of one state with the same load and the same types left have in common."""

    requirements: Requirements
    labels: dict[str, str]
    part: "_Part"
    reason: LaunchReason


def finish(claims: Iterable[Place]) -> tuple[PlannedClaim, ...]:
    """Settle every claim on its cheapest offering; alike ones are worked out once. Cost: O(claims), O(choices x types).

    The lists of types are cut so that a pool's limits are kept whatever type each claim comes to be.
    """
    fits = [*map(_fit, claims)]
    types = _Types()
    types.share_limits(fits)
    return tuple([_finished(fit, types) for fit in fits])


@dataclass(frozen=True, slots=True)
class _Left:
    """The types that are left for a claim, and how many of those that fit were refused."""

    ranks: int
    over_limits: int


class _Types:
    """Which types are left for each claim of one answer; claims that are alike are looked at once."""

    def __init__(self) -> None:
        self._extra: Final[dict[PoolAccount, Mapping[str, int]]] = {}
        self._left: Final[dict[tuple[Ranked, int, tuple[tuple[str, int], ...]], _Left]] = {}
        self._charges: Final[dict[tuple[Ranked, int], dict[str, int]]] = {}
        self._alike: Final[dict[tuple[OfferState, int], _Choice]] = {}

    def share_limits(self, fits: Sequence["_Fit"]) -> None:
        """Find, by pool, how much more than its charge each of its claims may come to be; pools whose limits are far are left out."""
        for account, claims in Counter(map(_account_of, fits)).items():
            ledger = account.ledger
            if ledger is None:
                continue
            left = dict(ledger.remaining)
            if not account.exact:  # then nothing was charged
                catalogue = account.offer.catalogue
                if all(claims * catalogue.largest(name) <= amount for name, amount in left.items()):
                    continue
                alike = Counter([(ranked, ranks) for _, mine, _, ranked, _, ranks in fits if mine is account])
                for (ranked, ranks), count in alike.items():
                    for name, amount in self._charge(account, ranked, ranks, left).items():
                        left[name] -= amount * count
            self._extra[account] = shares(left, claims)

    def choice(self, claim: Place, account: PoolAccount, state: OfferState, ranked: Ranked, ranks: int) -> "_Choice":
        """What a claim comes to be that fits on the types of `ranks`."""
        if account.exact or claim.min_values is not None:
            return self._choice(claim, account, state, ranked, ranks)
        alike = state, ranks
        found = self._alike.get(alike)
        if found is None:
            found = self._alike[alike] = self._choice(claim, account, state, ranked, ranks)
        return found

    def _choice(self, claim: Place, account: PoolAccount, state: OfferState, ranked: Ranked, ranks: int) -> "_Choice":
        """The same, remembered with the state from one question to the next."""
        left, lowered = self._of(claim, account, ranked, ranks), claim.min_values
        key: object = ranks
        if left is not None or lowered is not None:
            charged = tuple(claim.charge.items()) if account.exact and account.ledger is not None else ()
            key = ranks, left, charged, None if lowered is None else tuple(lowered.items())
        found: _Choice | None = state.choices.get(key)
        if found is None:
            found = _choose(account.offer, state, ranked, left or _Left(ranks, 0), lowered)
            state.choices[key] = found
        return found

    def _of(self, claim: Place, account: PoolAccount, ranked: Ranked, ranks: int) -> _Left | None:
        """What is left of `ranks`, the types that a claim fits on; None where all are."""
        if account.ledger is None or (not account.exact and account not in self._extra):
            return None
        exact = account.exact and account.ledger is not None
        key = ranked, ranks, tuple(claim.charge.items()) if exact else ()
        found = self._left.get(key)
        if found is None:
            found = self._left[key] = self._narrowed(claim, account, ranked, ranks)
        return found

    def _narrowed(self, claim: Place, account: PoolAccount, ranked: Ranked, ranks: int) -> _Left:
        exact, extra = account.exact, self._extra.get(account)
        allowed = ranks
        if exact and account.ledger is not None:
            allowed = _within_limits(claim, account.ledger, ranked, ranks, extra or {})
        left = allowed
        if not exact and extra is not None and account.ledger is not None:
            left = _cut(account.ledger, ranked, allowed, self._charge(account, ranked, allowed, extra), extra)
        return _Left(left, ranks.bit_count() - left.bit_count())

    def _charge(self, account: PoolAccount, ranked: Ranked, ranks: int, limited: Iterable[str]) -> dict[str, int]:
        """What the cheapest of these types counts against limits."""
        key = ranked, ranks & -ranks
        found = self._charges.get(key)
        if found is None:
            row = ranked.priced[next(members(ranks))].row
            found = self._charges[key] = {name: account.offer.catalogue.amount(row, name) for name in limited}
        return found


_Fit = tuple[Place, PoolAccount, OfferState, Ranked, Sequence[int], int]
"""(a claim, its pool, what it has become, its types in order of price, what its pods take, those of the types that hold it)"""
_account_of: Final = itemgetter(1)


def _fit(claim: Place) -> _Fit:
    account, state = claim.account, claim.settled or claim.state
    if account is None or state is None:
        raise ValueError("not a claim")
    ranked, load = state.ranked or account.offer.ranked(state), claim.load()
    return claim, account, state, ranked, load, ranked.thresholds.exceeding(load)


def _finished(fit: _Fit, types: _Types) -> PlannedClaim:
    claim, account, state, ranked, load, ranks = fit
    offer = account.offer
    choice = types.choice(claim, account, state, ranked, ranks)
    pods: list[Pod] = []
    for part, start, end in claim.placed:
        if end - start == 1:
            pods.append(part.pods[start])
        else:
            pods += part.pods[start:end]
    left = choice.part
    planned, offering = offer.catalogue.types[left.planned.row], left.planned.offering
    return PlannedClaim(  # by position, which is three times as quick: in the order of its fields
        offer.pool.name,
        offer.pool.template,
        choice.requirements,
        choice.labels,
        _requests(offer, load, left.overhead),
        tuple(pods),
        left.instance_types,
        planned.name,
        offering.zone,
        offering.capacity_type,
        left.usd_per_hour,
        planned.capacity,
        planned.allocatable,
        Resources.of(claim.charge) if account.exact and account.ledger is not None else left.charge,
        claim.min_values is not None,
        (claim.held,) if claim.held else (),
        left.prices,
        choice.reason,
    )


def _within_limits(claim: Place, ledger: LimitLedger, ranked: Ranked, ranks: int, extra: Mapping[str, int]) -> int:
    """Of the types that fit, those that the claim's share of the limits allows, from the cheapest one that its charge covers."""
    rows = ledger.allowed(claim.charge)
    for name, more in extra.items():
        rows &= ledger.within(name, claim.charge.get(name, 0) + more)
    covered = rows
    for name, amount in claim.charge.items():
        covered &= ledger.within(name, amount)
    kept = [rank for rank in members(ranks) if rows >> ranked.priced[rank].row & 1]
    # a cheaper type that a loosened limit would allow again was not charged
    first = next(number for number, rank in enumerate(kept) if covered >> ranked.priced[rank].row & 1)
    return mask_of(kept[first:])


def _cut(ledger: LimitLedger, ranked: Ranked, ranks: int, charge: Mapping[str, int], extra: Mapping[str, int]) -> int:
    """Of the types that fit, those that are not larger than the planned one and the claim's share."""
    rows = -1
    for name, more in extra.items():
        rows &= ledger.within(name, charge[name] + more)
    return mask_of(rank for rank in members(ranks) if rows >> ranked.priced[rank].row & 1)


def _requests(offer: PreparedPool, used: Sequence[int], overhead: Resources | None) -> Resources:
    """The pods' and the daemons'; volumes are no resource of a claim."""
    names = offer.dimensions.names
    if offer.dimensions.drivers or 0 in used:
        own = Resources.of(
            {
                name: amount
                for name, amount in zip(names, used, strict=True)
                if amount > 0 and not name.startswith(ATTACHABLE)
            }
        )
    else:
        own = Resources.in_order(names, tuple(used))
    return own if overhead is None else own + overhead


@dataclass(frozen=True, slots=True)
class _Part:
    """What claims with the same types left have in common, whatever else they say."""

    narrowed: Requirements
    instance_types: tuple[str, ...]
    prices: tuple[float, ...]
    planned: PricedOffering
    usd_per_hour: float
    overhead: Resources | None
    charge: Resources


def _part(offer: PreparedPool, state: OfferState, ranked: Ranked, ranks: int) -> _Part:
    priced = [ranked.priced[rank] for rank in members(ranks)]
    types = offer.catalogue.types
    named = _named(offer, state, priced)
    rows = mask_of(one.row for one in named)
    narrowed = [Requirement.of(INSTANCE_TYPE_LABEL, Operator.IN, [types[one.row].name for one in named])]
    capacity_types = [one for one in offer.catalogue.capacity_types(state.requirements, rows) if one]
    if capacity_types:
        narrowed.append(Requirement.of(CAPACITY_TYPE_LABEL, Operator.IN, capacity_types))
    limited = () if offer.pool.remaining is None else tuple(offer.pool.remaining)
    return _Part(
        narrowed=Requirements.of(narrowed),
        instance_types=tuple([types[one.row].name for one in priced]),
        prices=tuple([one.offering.price for one in priced]),
        planned=priced[0],
        usd_per_hour=expected_price(
            [one.offering for one in priced],
            _on_demand(offer, state, priced[0].offering, mask_of(one.row for one in priced)),
        ),
        overhead=_least_overhead(offer, rows) or None,
        charge=Resources.of({name: offer.catalogue.amount(priced[0].row, name) for name in limited}),
    )


def expected_usd(
    offer: PreparedPool, state: OfferState, used: Sequence[int], below: float = math.inf
) -> tuple[float, int]:
    """What a node of a state on which `used` fits is expected to cost, in USD per hour, and the row of its cheapest type; row -1 where there is none.

    Where that is `below` for no type, it is the least price: what is expected is no less.
    """
    ranked = offer.ranked(state)
    ranks = ranked.thresholds.exceeding(used)
    if not ranks or (offer.min_values and not offer.enough_values(state, offer.types.fitting(state.rows, used))):
        return math.inf, -1
    cheapest = ranked.priced[(ranks & -ranks).bit_length() - 1]
    first = cheapest.offering
    if first.alternatives <= 1 or first.price >= below:
        return first.price, cheapest.row
    near: list[Offering] = []
    for rank in members(ranks):
        one = ranked.priced[rank].offering
        if len(near) == first.alternatives or one.price > first.price * DEAREST_ALTERNATIVE:
            break  # the others count for nothing
        if one.capacity_type == first.capacity_type:
            near.append(one)
    both = bool(offer.catalogue.on_demand(state.requirements))
    on_demand = _on_demand(offer, state, first, offer.types.fitting(state.rows, used)) if both else math.inf
    return expected_price(near or [first], on_demand), cheapest.row


def _on_demand(offer: PreparedPool, state: OfferState, first: Offering, rows: int) -> float:
    """The least price of a claim of these types if it came to be on-demand; infinite where that does not matter."""
    if first.alternatives <= 1 or offer.min_values:
        return math.inf
    return next(
        (one.offering.price for one in offer.catalogue.on_demand(state.requirements) if rows >> one.row & 1), math.inf
    )


def _choose(
    offer: PreparedPool, state: OfferState, ranked: Ranked, left: _Left, lowered: Mapping[str, int] | None
) -> _Choice:
    ranks = left.ranks
    part: _Part | None = None if offer.min_values else ranked.parts.get(ranks)
    if part is None:
        part = _part(offer, state, ranked, ranks)
        if not offer.min_values:
            ranked.parts[ranks] = part
    requirements = Requirements.of(
        one if lowered is None or key not in lowered else replace(one, min_values=lowered[key] or None)
        for key, one in state.requirements.items()
        if key not in SIMULATED_LABELS
    ).merged(part.narrowed)
    return _Choice(
        requirements=requirements,
        labels={
            key: one.any_value()
            for key, one in requirements.items()
            if one.present and offer.types.gives(key) and not restricted(key, offer.well_known)
        },
        part=part,
        reason=_reason(offer, ranked, part, left, lowered),
    )


def _reason(
    offer: PreparedPool, ranked: Ranked, part: _Part, left: _Left, lowered: Mapping[str, int] | None
) -> LaunchReason:
    every, possible, matching = len(offer.catalogue.types), offer.base.rows.bit_count(), len(ranked.priced)
    kept = len(part.instance_types)
    kept_values = offer.min_values if lowered is None else lowered
    return LaunchReason(
        every,
        every - possible,
        possible - matching,
        matching - kept - left.over_limits,
        left.over_limits,
        tuple(sorted(kept_values.items())),
    )


def _named(offer: PreparedPool, state: OfferState, priced: list[PricedOffering]) -> list[PricedOffering]:
    """At most 600 of the types, the cheapest, and among them what the pool's minValues want."""
    if len(priced) <= MAX_INSTANCE_TYPES:
        return priced
    serving = {one.row for one in offer.serving(state, priced)}
    free = MAX_INSTANCE_TYPES - len(serving)
    named = []
    for one in priced:
        if one.row in serving:
            named.append(one)
        elif free > 0:
            free -= 1
            named.append(one)
    return named


def _least_overhead(offer: PreparedPool, rows: int) -> Resources:
    """What daemons take on any of the types at least. Source: core spec 3.7, the intersection's minimum."""
    different = {id(one): one for one in map(offer.types.overhead.__getitem__, members(rows))}.values()
    least = functools.reduce(Resources.minimum, different) if different else EMPTY
    return Resources.of({name: amount for name, amount in least.items() if amount})
