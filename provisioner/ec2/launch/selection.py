"""Which instance types and offerings one launch may take, of all that the class has. Pure.

Source: spec/karpenter-aws.md 5.2 and 5.3: same filters, same order, same names.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from provisioner.apis import names
from provisioner.cloudprovider.errors import InsufficientCapacityError
from provisioner.cloudprovider.types import (
    InstanceType,
    Offering,
    capacity_type_bought,
    cheapest_first,
    compatible_offerings,
    min_values_served,
)
from provisioner.ec2 import labels
from provisioner.ec2.launch.fleet import INTERRUPTIBLE
from provisioner.values.requirement import Requirement, Requirements
from provisioner.values.resources import Resources

MAX_TYPES: Final = 60
_EXOTIC: Final = (labels.NVIDIA_GPU, labels.AMD_GPU, labels.NEURON, labels.NEURON_CORE, labels.GAUDI)


@dataclass(frozen=True, slots=True)
class Selection:
    """What a launch may take.

    Attributes:
        types: cheapest first, at most 60, with the offerings that are left of them.
        capacity_type: what is bought: one for the whole launch.
        requirements: the claim's, pinned to that capacity type.
    """

    types: tuple[InstanceType, ...]
    capacity_type: str
    requirements: Requirements

    def offerings(self, instance_type: InstanceType) -> tuple[Offering, ...]:
        """The offerings of one of its types that the launch may take, cheapest first."""
        return compatible_offerings(instance_type, self.requirements)


def select(
    claim_name: str,
    instance_types: Sequence[InstanceType],
    requirements: Requirements,
    requests: Resources,
    *,
    best_effort: bool = False,
) -> Selection:
    """Choose what to ask EC2 for.

    Args:
        claim_name: for the error.
        instance_types: of the class, as the catalogue has them.
        requirements: of the claim.
        requests: what the instance must have room for.
        best_effort: whether minValues may be missed when the list is cut (MIN_VALUES_POLICY).

    Raises:
        InsufficientCapacityError: a filter left nothing; it is named.
    """
    flexible = not any(requirement.min_values for requirement in requirements.values())
    steps: list[tuple[str, Callable[[Sequence[InstanceType]], list[InstanceType]]]] = [
        ("compatible-launchable-filter", lambda types: _compatible(types, requirements, requests)),
        ("capacity-reservation-type-filter", lambda types: _one_reservation_type(types, requirements)),
        ("capacity-block-filter", lambda types: _one_capacity_block(types, requirements)),
        ("reserved-offering-filter", lambda types: _one_reservation_a_zone(types, requirements)),
    ]
    if flexible:
        steps.append(("exotic-instance-type-filter", _plain))
        steps.append(("spot-offering-filter", lambda types: _spot_below_on_demand(types, requirements)))
    left = list(instance_types)
    for name, step in steps:
        left = step(left)
        if not left:
            raise InsufficientCapacityError(claim_name, f"no instance type remains after the filter {name}")
    kind = _capacity_type(left, requirements)
    pinned = requirements.merged(Requirements.of([Requirement.of(names.CAPACITY_TYPE_LABEL, "In", [kind])]))
    cut = cheapest_first(left, requirements)[:MAX_TYPES]
    missing = min_values_served(cut, requirements).missing
    if missing and not best_effort:
        short = ", ".join(f"{key} has {count}" for key, count in missing.items())
        raise InsufficientCapacityError(
            claim_name, f"the {MAX_TYPES} cheapest instance types do not meet minValues: {short}"
        )
    return Selection(tuple(one for one in cut if compatible_offerings(one, pinned)), kind, pinned)


def _compatible(types: Iterable[InstanceType], requirements: Requirements, requests: Resources) -> list[InstanceType]:
    known = labels.WELL_KNOWN | names.WELL_KNOWN_LABELS
    return [
        one
        for one in types
        if requirements.incompatibility(one.requirements, known) is None
        and requests.fits(one.allocatable)
        and compatible_offerings(one, requirements)
    ]


def _reserved(one: InstanceType, requirements: Requirements) -> list[Offering]:
    return [
        offering
        for offering in compatible_offerings(one, requirements)
        if offering.capacity_type == names.CAPACITY_RESERVED
    ]


def reservation_type(offering: Offering) -> str:
    """An offering's kind of reservation: "" for one of demand, `labels.CAPACITY_BLOCK` or `fleet.INTERRUPTIBLE`."""
    found = offering.requirements
    if found.requirement(labels.RESERVATION_TYPE).single_value == labels.CAPACITY_BLOCK:
        return labels.CAPACITY_BLOCK
    return INTERRUPTIBLE if found.requirement(labels.RESERVATION_INTERRUPTIBLE).single_value == "true" else ""


def _one_reservation_type(types: Sequence[InstanceType], requirements: Requirements) -> list[InstanceType]:
    """Of the kinds of reservations only the one with the cheapest; all pass where none is available."""
    found = [(one, offering) for one in types for offering in _reserved(one, requirements)]
    if not found:
        return list(types)
    chosen = min((offering.price, reservation_type(offering)) for _, offering in found)[1]
    kept: dict[str, list[Offering]] = {}
    for one, offering in found:
        if reservation_type(offering) == chosen:
            kept.setdefault(one.name, []).append(offering)
    return [replace(one, offerings=tuple(kept[one.name])) for one in types if one.name in kept]


def _one_capacity_block(types: Sequence[InstanceType], requirements: Requirements) -> list[InstanceType]:
    """EC2 takes one capacity block a call: the cheapest."""
    found = [(one, offering) for one in types for offering in _reserved(one, requirements)]
    if not found or reservation_type(found[0][1]) != labels.CAPACITY_BLOCK:
        return list(types)
    one, offering = min(
        found, key=lambda pair: (pair[1].price, pair[0].name, pair[1].zone)
    )  # exact: these are below a micro-USD
    return [replace(one, offerings=(offering,))]


def _one_reservation_a_zone(types: Sequence[InstanceType], requirements: Requirements) -> list[InstanceType]:
    """Of several reservations of a type in a zone the one with most instances left; all pass where none is available."""
    kept = []
    for one in types:
        best: dict[str, Offering] = {}
        for offering in _reserved(one, requirements):
            known = best.get(offering.zone)
            if known is None or offering.reservation_capacity > known.reservation_capacity:
                best[offering.zone] = offering
        if best:
            kept.append(replace(one, offerings=tuple(best[zone] for zone in sorted(best))))
    return kept or list(types)


def _plain(types: Sequence[InstanceType]) -> list[InstanceType]:
    """No bare metal and no accelerators, unless there is nothing else."""
    plain = [
        one
        for one in types
        if "metal" not in (one.requirements.requirement(labels.SIZE).single_value or "")
        and not any(one.capacity.amount(resource) for resource in _EXOTIC)
    ]
    return plain or list(types)


def _spot_below_on_demand(types: Sequence[InstanceType], requirements: Requirements) -> list[InstanceType]:
    """No spot instance that costs more than the cheapest on-demand one."""
    prices: dict[str, list[float]] = {}
    for one in types:
        for offering in compatible_offerings(one, requirements):
            prices.setdefault(offering.capacity_type, []).append(offering.price)
    if names.CAPACITY_SPOT not in prices or names.CAPACITY_ON_DEMAND not in prices:
        return list(types)
    limit = min(prices[names.CAPACITY_ON_DEMAND])
    kept = [
        replace(
            one,
            offerings=tuple(
                offering
                for offering in one.offerings
                if offering.capacity_type != names.CAPACITY_SPOT or offering.price <= limit
            ),
        )
        for one in types
    ]
    return [one for one in kept if compatible_offerings(one, requirements)]


def _capacity_type(types: Iterable[InstanceType], requirements: Requirements) -> str:
    """Reserved where any is to be had, else spot, else on-demand."""
    there = {offering.capacity_type for one in types for offering in compatible_offerings(one, requirements)}
    return capacity_type_bought(there) or names.CAPACITY_ON_DEMAND
