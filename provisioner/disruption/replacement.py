"""Which instance types a replacement may have so that it is surely cheaper. Source: core spec 6.9-6.11."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace as changed

from provisioner.apis import names
from provisioner.cloudprovider.types import (
    InstanceType,
    by_price,
    min_values_served,
    price_of_ways,
    worst_launch_price,
)
from provisioner.disruption.candidates import Candidate, CandidateTypes
from provisioner.disruption.view import DisruptionSettings
from provisioner.scheduling.result import PlannedClaim
from provisioner.values.message import Said
from provisioner.values.requirement import Operator, Requirement, Requirements

SPOT_TYPES: Final = 15
"""So many cheaper types a spot node needs before it is replaced by another, and so many the new one is launched from, so that one
replacement does not follow another."""
NO_CHEAPER_NODE: Final = Said("Can't replace with a cheaper node")
SPOT_TO_SPOT_DISABLED: Final = Said("SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node")


def settled(
    some: Sequence[Candidate],
    claims: Sequence[PlannedClaim],
    types: CandidateTypes,
    settings: DisruptionSettings,
    *,
    anew: bool = False,
) -> tuple[PlannedClaim, ...] | str:
    """The claims with only those types whose launch costs less than the candidates whatever becomes of it; else why there are none.

    Each of several claims may cost its share of what the candidates cost, by its planned price. Where spot and on-demand remain,
    spot is demanded, so that a shortage never ends in a dearer on-demand node. Whether a claim replaces spot by spot is a matter of the
    nodes whose pods it takes: that others go at the same time makes no difference.

    Args:
        some: the nodes that go.
        claims: what takes their place, at least one.
        types: of the pools.
        settings: the feature gate.
        anew: the pods are put together anew, so that nodes of a type that goes may come.
    """
    total = sum(one.usd_per_hour for one in some)
    planned = sum(one.usd_per_hour for one in claims)
    if planned >= total or total <= 0:
        return NO_CHEAPER_NODE
    found: list[PlannedClaim] = []
    for claim in claims:
        share = total / len(claims) if planned <= 0 else total * (claim.usd_per_hour / planned)
        takes = {pod.uid for pod in claim.pods}
        sources = [one for one in some if any(pod.uid in takes for pod in one.pods)]
        one = cheaper(some, claim, types.of_pool(claim.pool), settings, share, sources=sources, anew=anew)
        if isinstance(one, str):
            return one
        found.append(one)
    return tuple(found)


def too_few_spot_types(wanted: int, found: int) -> str:
    """Why a node is not replaced."""
    return Said(
        f"SpotToSpotConsolidation requires {wanted} cheaper instance type options than the current candidate "
        f"to consolidate, got {found}"
    )


def cheaper(
    some: Sequence[Candidate],
    claim: PlannedClaim,
    catalogue: Mapping[str, InstanceType],
    settings: DisruptionSettings,
    below: float,
    *,
    sources: Sequence[Candidate],
    anew: bool = False,
) -> PlannedClaim | str:
    """A claim with only those types whose launch costs less than `below` USD per hour whatever becomes of it; else why there are none.

    Args:
        some: the nodes that go.
        claim: what takes their place, or part of it.
        catalogue: instance types by name.
        settings: the feature gate.
        below: what it may cost.
        sources: the nodes that it replaces: whether spot is replaced by spot is a matter of these.
        anew: as of `settled`.
    """
    asked = claim.requirements
    types = [catalogue[name] for name in claim.instance_types if name in catalogue]
    spot, others = _with(asked, names.CAPACITY_SPOT), _buys(types, asked, names.CAPACITY_ON_DEMAND)
    from_spot = spot is not None and _buys(types, asked, names.CAPACITY_SPOT) and all(one.spot for one in sources)
    if from_spot:
        if not settings.spot_to_spot:
            return SPOT_TO_SPOT_DISABLED
        asked = spot or asked
    left = [one for one in types if one.lowest_price < below and worst_launch_price(one.offerings, asked) < below]
    if len(some) > 1 and not anew:
        left = _no_type_again(some, left, asked)
    if not left:
        return NO_CHEAPER_NODE
    if from_spot and len(sources) == 1:
        if len(left) < SPOT_TYPES:
            return too_few_spot_types(SPOT_TYPES, len(left))
        left = left[: max(SPOT_TYPES, min_values_served(left, asked).needed)]
    if not from_spot and spot is not None and others and _buys(left, asked, names.CAPACITY_SPOT):
        asked = spot
        left = [one for one in left if worst_launch_price(one.offerings, asked) < below]
    missing = min_values_served(left, asked).missing
    if missing:
        return Said("Filtering by price: minValues requirement is not met for label(s) ") + ", ".join(sorted(missing))
    return _narrowed(claim, left, asked)


def _narrowed(claim: PlannedClaim, types: Sequence[InstanceType], asked: Requirements) -> PlannedClaim | str:
    listed = [one.name for one in types]
    asked = asked.merged(Requirements.of([Requirement.of(names.INSTANCE_TYPE_LABEL, Operator.IN, sorted(listed))]))
    ways = by_price(types, asked)
    if not ways:
        return NO_CHEAPER_NODE
    kind, offering = ways[0]
    buyable = {one.name for one, _ in ways}
    return changed(
        claim,
        requirements=asked,
        instance_types=tuple(name for name in listed if name in buyable),
        planned_type=kind.name,
        planned_zone=offering.zone,
        planned_capacity_type=offering.capacity_type,
        usd_per_hour=price_of_ways(ways, asked),
        capacity=kind.capacity,
        allocatable=kind.allocatable,
    )


def _with(asked: Requirements, capacity_type: str) -> Requirements | None:
    """With this capacity type alone; None where it is not allowed."""
    if not asked.requirement(names.CAPACITY_TYPE_LABEL).has(capacity_type):
        return None
    return asked.merged(Requirements.of([Requirement.of(names.CAPACITY_TYPE_LABEL, Operator.IN, [capacity_type])]))


def _buys(types: Sequence[InstanceType], asked: Requirements, capacity_type: str) -> bool:
    only = _with(asked, capacity_type)
    return only is not None and any(math.isfinite(worst_launch_price(one.offerings, only)) for one in types)


def _no_type_again(some: Sequence[Candidate], types: Sequence[InstanceType], asked: Requirements) -> list[InstanceType]:
    """Where a type of the nodes that go is among them, only what is cheaper than the cheapest such node: else one of them could stay."""
    prices: dict[str, float] = {}
    for one in some:
        if one.instance_type is not None:
            prices[one.instance_type.name] = min(prices.get(one.instance_type.name, math.inf), one.usd_per_hour)
    least = min((prices[one.name] for one in types if one.name in prices), default=math.inf)
    return [one for one in types if worst_launch_price(one.offerings, asked) < least]
