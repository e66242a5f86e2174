"""From open claims to planned ones: the types that are left, the cheapest of them, and what the NodeClaim will say."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from provisioner.apis.names import CAPACITY_TYPE_LABEL, INSTANCE_TYPE_LABEL, restricted
from provisioner.apis.pods import Pod
from provisioner.cloudprovider.types import InstanceType, Offering
from provisioner.scheduling.bits import mask_of, members
from provisioner.scheduling.catalogue import Priced
from provisioner.scheduling.classes import PodClass
from provisioner.scheduling.limits import Ledger, shares
from provisioner.scheduling.offers import SIMULATED_LABELS, Offer, Ranked, State
from provisioner.scheduling.places import Account, Place
from provisioner.scheduling.result import MAX_INSTANCE_TYPES, PlannedClaim
from provisioner.scheduling.vectors import ATTACHABLE
from provisioner.values.requirement import Operator, Requirement, Requirements
from provisioner.values.resources import EMPTY, Resources


@dataclass(frozen=True, slots=True)
class _Choice:
    """What claims of one state with the same load and the same types left have in common."""

    requirements: Requirements
    labels: dict[str, str]
    instance_types: tuple[str, ...]
    planned: InstanceType
    offering: Offering
    overhead: Resources | None
    charge: Resources


def finish(claims: Iterable[Place], dropped: Collection[PodClass] = ()) -> tuple[PlannedClaim, ...]:
    """Settle every claim on its cheapest offering; alike ones are worked out once. Cost: O(claims), O(choices x types).

    The lists of types are cut so that a pool's limits are kept whatever type each claim comes to be. Pods of `dropped`
    classes are taken off again, and claims that were made for them alone.
    """
    opened = [claim for claim in claims if not dropped or _without(claim, dropped)]
    extra = _extras(opened)
    return tuple([_finished(claim, extra.get(claim.account)) for claim in opened])


def _without(claim: Place, dropped: Collection[PodClass]) -> bool:
    claim.placed = [part for part in claim.placed if part[0] not in dropped]
    return bool(claim.placed)


def _extras(claims: Sequence[Place]) -> dict[Account | None, Mapping[str, int]]:
    """By pool, how much more than its charge each of its claims may come to be; pools whose limits are far are left out."""
    by_account: dict[Account, list[Place]] = {}
    for claim in claims:
        if claim.account is not None and claim.account.ledger is not None:
            by_account.setdefault(claim.account, []).append(claim)
    found: dict[Account | None, Mapping[str, int]] = {}
    for account, mine in by_account.items():
        ledger = account.ledger
        if ledger is None:
            continue
        left = dict(ledger.remaining)
        largest = {name: account.offer.catalogue.largest(name) for name in left}
        if not account.exact:  # then nothing was charged
            if all(len(mine) * largest[name] <= amount for name, amount in left.items()):
                continue
            for claim in mine:
                charge = _chosen(claim, None)[0].charge
                for name in left:
                    left[name] -= charge.amount(name)
        found[account] = shares(left, len(mine))
    return found


def _chosen(claim: Place, extra: Mapping[str, int] | None) -> tuple[_Choice, bool]:
    """What becomes of a claim, and whether limits were looked at for every pod of it."""
    account, state = claim.account, claim.settled or claim.state
    if account is None or state is None:
        raise ValueError("not a claim")
    offer = account.offer
    ranked = state.ranked or offer.ranked(state)
    ranks = ranked.thresholds.exceeding(claim.load())
    exact = account.exact and account.ledger is not None
    if exact:
        ranks = _within_limits(claim, account, ranked, ranks, extra or {})
    if account.below is not None:
        ranks = mask_of(rank for rank in members(ranks) if ranked.priced[rank].offering.price < account.below)
    if not exact and extra is not None and account.ledger is not None:
        first = next(members(ranks))
        charge = {name: offer.catalogue.amount(ranked.priced[first].row, name) for name in extra}
        ranks = _cut(account.ledger, ranked, ranks, charge, extra)
    lowered = claim.min_values
    key: object = ranks
    if exact or lowered is not None:
        key = ranks, tuple(claim.charge.items()), None if lowered is None else tuple(lowered.items())
    choice: _Choice | None = state.choices.get(key)
    if choice is None:
        choice = state.choices[key] = _choose(offer, state, ranked, ranks, lowered)
    return choice, exact


def _finished(claim: Place, extra: Mapping[str, int] | None) -> PlannedClaim:
    choice, exact = _chosen(claim, extra)
    account = claim.account
    if account is None:
        raise ValueError("not a claim")
    offer, lowered = account.offer, claim.min_values
    pods: list[Pod] = []
    for part, start, end in claim.placed:
        if end - start == 1:
            pods.append(part.pods[start])
        else:
            pods += part.pods[start:end]
    planned, offering = choice.planned, choice.offering
    return PlannedClaim(  # by position, which is three times as quick: in the order of its fields
        offer.pool.name,
        offer.pool.template,
        choice.requirements,
        choice.labels,
        _requests(offer, claim.load(), choice),
        tuple(pods),
        choice.instance_types,
        planned.name,
        offering.zone,
        offering.capacity_type,
        offering.price,
        planned.capacity,
        planned.allocatable,
        Resources.of(claim.charge) if exact else choice.charge,
        lowered is not None,
        (claim.held,) if claim.held else (),
    )


def _within_limits(claim: Place, account: Account, ranked: Ranked, ranks: int, extra: Mapping[str, int]) -> int:
    """Of the types that fit, those that the claim's share of the limits allows, from the cheapest one that its charge covers."""
    ledger = account.ledger
    if ledger is None:
        return ranks
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


def _cut(ledger: Ledger, ranked: Ranked, ranks: int, charge: Mapping[str, int], extra: Mapping[str, int]) -> int:
    """Of the types that fit, those that are not larger than the planned one and the claim's share."""
    rows = -1
    for name, more in extra.items():
        rows &= ledger.within(name, charge[name] + more)
    return mask_of(rank for rank in members(ranks) if rows >> ranked.priced[rank].row & 1)


def _requests(offer: Offer, used: Sequence[int], choice: _Choice) -> Resources:
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
    return own if choice.overhead is None else own + choice.overhead


@dataclass(frozen=True, slots=True)
class _Part:
    """What claims with the same types left have in common, whatever else they say."""

    narrowed: Requirements
    instance_types: tuple[str, ...]
    planned: Priced
    overhead: Resources | None
    charge: Resources


def _part(offer: Offer, state: State, ranked: Ranked, ranks: int) -> _Part:
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
        planned=priced[0],
        overhead=_least_overhead(offer, rows) or None,
        charge=Resources.of({name: offer.catalogue.amount(priced[0].row, name) for name in limited}),
    )


def _choose(offer: Offer, state: State, ranked: Ranked, ranks: int, lowered: Mapping[str, int] | None) -> _Choice:
    part: _Part | None = None if offer.min_values else ranked.parts.get(ranks)
    if part is None:
        part = _part(offer, state, ranked, ranks)
        if not offer.min_values:
            ranked.parts[ranks] = part
    requirements = Requirements.of(
        one if lowered is None or key not in lowered else _with_min_values(one, lowered[key])
        for key, one in state.requirements.items()
        if key not in SIMULATED_LABELS
    ).merged(part.narrowed)
    return _Choice(
        requirements=requirements,
        labels={
            key: one.any_value()
            for key, one in requirements.items()
            if one.present and offer.gives(key) and not restricted(key, offer.well_known)
        },
        instance_types=part.instance_types,
        planned=offer.catalogue.types[part.planned.row],
        offering=part.planned.offering,
        overhead=part.overhead,
        charge=part.charge,
    )


def _with_min_values(requirement: Requirement, min_values: int) -> Requirement:
    """The same requirement with other minValues."""
    parts = [
        Requirement.of(requirement.key, str(entry["operator"]), entry.get("values", ()))  # type: ignore[arg-type]
        for entry in requirement.to_wire()
    ]
    first, *rest = parts
    for one in rest:
        first = first.intersection(one)
    wanted = Requirement.of(requirement.key, Operator.EXISTS, (), min_values=min_values) if min_values else None
    return first if wanted is None else first.intersection(wanted)


def _named(offer: Offer, state: State, priced: list[Priced]) -> list[Priced]:
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


def _least_overhead(offer: Offer, rows: int) -> Resources:
    """What daemons take on any of the types at least. Source: core spec 3.7, the intersection's minimum."""
    least: Resources | None = None
    seen = set()
    for row in members(rows):
        overhead = offer.overhead[row]
        if id(overhead) not in seen:
            seen.add(id(overhead))
            least = overhead if least is None else least.minimum(overhead)
    return Resources.of({name: amount for name, amount in (least or EMPTY).items() if amount})
