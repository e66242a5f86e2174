"""From open claims to planned ones: the types that are left, the cheapest of them, and what the NodeClaim will say."""

from collections.abc import Iterable
from dataclasses import dataclass

from provisioner.apis.names import CAPACITY_TYPE_LABEL, INSTANCE_TYPE_LABEL, restricted
from provisioner.apis.pods import Pod
from provisioner.cloudprovider.types import InstanceType, Offering
from provisioner.scheduling.bits import mask_of, members
from provisioner.scheduling.catalogue import Priced
from provisioner.scheduling.claims import OpenClaim
from provisioner.scheduling.offers import SIMULATED_LABELS, Offer, State
from provisioner.scheduling.result import MAX_INSTANCE_TYPES, PlannedClaim
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
    overhead: Resources


_Alike = tuple[int, Requirements, int, int]
"""Pool number by identity, requirements, types left, the charge's planned row."""


def finish(claims: Iterable[OpenClaim]) -> tuple[PlannedClaim, ...]:
    """Settle every claim on its cheapest offering; alike ones are worked out once."""
    choices: dict[_Alike, _Choice] = {}
    return tuple(_finished(claim, choices) for claim in claims)


def _finished(claim: OpenClaim, choices: dict[_Alike, _Choice]) -> PlannedClaim:
    offer, state = claim.offer, claim.state
    fitting = claim.fitting()
    planned = _planned_row(claim, fitting)
    alike = (id(offer), state.requirements, fitting, planned)
    choice = choices.get(alike)
    if choice is None:
        choice = choices[alike] = _choose(offer, state, fitting, planned)
    requests = choice.overhead
    pods: list[Pod] = []
    for members_, start, end in claim.placed:
        requests += members_.requests.scaled(end - start)
        pods.extend(members_.pods[start:end])
    return PlannedClaim(
        pool=offer.pool.name,
        template=offer.pool.template,
        requirements=choice.requirements,
        labels=choice.labels,
        requests=requests,
        pods=tuple(pods),
        instance_types=choice.instance_types,
        planned_type=choice.planned.name,
        planned_zone=choice.offering.zone,
        planned_capacity_type=choice.offering.capacity_type,
        usd_per_hour=choice.offering.price,
        capacity=choice.planned.capacity,
        allocatable=choice.planned.allocatable,
        charge=Resources.of(claim.charge),
    )


def _planned_row(claim: OpenClaim, fitting: int) -> int:
    """The cheapest type; under limits, of those that the claim's charge covers."""
    ledger = claim.offer.ledger
    if ledger is not None:
        for name, amount in claim.charge.items():
            fitting &= ledger.within(name, amount)
    return next(one.row for one in claim.offer.priced(claim.state) if fitting >> one.row & 1)


def _choose(offer: Offer, state: State, fitting: int, planned: int) -> _Choice:
    priced = [one for one in offer.priced(state) if fitting >> one.row & 1]
    first = next(number for number, one in enumerate(priced) if one.row == planned)
    priced = priced[first:]  # a cheaper type that a loosened limit would allow again was not charged
    types = offer.catalogue.types
    named = _named(offer, state, priced)
    rows = mask_of(one.row for one in named)
    narrowed = [
        Requirement.of(INSTANCE_TYPE_LABEL, Operator.IN, [types[one.row].name for one in named]),
    ]
    capacity_types = [one for one in offer.catalogue.capacity_types(state.requirements, rows) if one]
    if capacity_types:
        narrowed.append(Requirement.of(CAPACITY_TYPE_LABEL, Operator.IN, capacity_types))
    requirements = Requirements.of(
        one for key, one in state.requirements.items() if key not in SIMULATED_LABELS
    ).merged(Requirements.of(narrowed))
    return _Choice(
        requirements=requirements,
        labels={
            key: one.any_value()
            for key, one in requirements.items()
            if one.present and offer.gives(key) and not restricted(key, offer.well_known)
        },
        instance_types=tuple(types[one.row].name for one in priced),
        planned=types[planned],
        offering=priced[0].offering,
        overhead=_least_overhead(offer, rows),
    )


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
