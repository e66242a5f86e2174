"""What the node of a NodeClaim will be like that is not launched yet: as planned, or as far as its requirements decide it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim, requirements_of
from provisioner.cloudprovider.types import InstanceType, Offering
from provisioner.values.quantity import QuantityError
from provisioner.values.requirement import RequirementError, Requirements
from provisioner.values.resources import Resources

_DECIDED: Final = (
    names.NODEPOOL_LABEL,
    names.INSTANCE_TYPE_LABEL,
    names.ZONE_LABEL,
    names.CAPACITY_TYPE_LABEL,
    names.ARCH_LABEL,
    names.OS_LABEL,
)
"""What the launch decides, whether or not the claim requires something of it."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A node to come.

    Attributes:
        capacity, allocatable: of the planned type; without a plan the least of each resource that any possible type has.
        likely: labels of the planned type, which a launch may still replace by another.
        certain: labels that the node will have whatever it becomes; none where a plan says what it becomes.
    """

    capacity: Resources
    allocatable: Resources
    likely: Mapping[str, str]
    certain: Mapping[str, str]


def expected_of(claim: NodeClaim, types: Mapping[str, InstanceType]) -> Expected | None:
    """What the node of a claim will be like; None where no known type would do.

    Availability does not count: what is known of it may be old, and the claim is launched later.

    Cost: O(1) with a plan or one instance type, else O(types and their offerings).
    """
    name = planned_type(claim)
    if name:
        kind = types.get(name)
        if kind is None:
            return None
        labels = _labels(kind)
        return Expected(kind.capacity, kind.allocatable, labels, {} if is_planned(claim) else labels)
    found = _possible(claim, types.values())
    if not found:
        return None
    capacity, allocatable = found[0][0].capacity, found[0][0].allocatable
    for kind, _ in found[1:]:
        capacity, allocatable = capacity.minimum(kind.capacity), allocatable.minimum(kind.allocatable)
    labels = _common(found)
    return Expected(capacity, allocatable, labels, labels)


def claim_labels(claim: NodeClaim) -> Mapping[str, str]:
    """Labels that the claim's Node will carry, as far as the claim itself decides them."""
    single = {
        key: value
        for key, requirement in claim_requirements(claim).items()
        if (value := requirement.single_value) is not None
    }
    planned = claim.metadata.annotations.get(names.PLANNED_OFFERING_ANNOTATION, "")
    if planned.count("/") == 2 and not claim.status.provider_id:
        kind, zone, capacity_type = planned.split("/")
        single |= {
            names.INSTANCE_TYPE_LABEL: kind,
            names.ZONE_LABEL: zone,
            names.CAPACITY_TYPE_LABEL: capacity_type,
        }
    return {**single, **claim.metadata.labels}


def own_labels(claim: NodeClaim) -> dict[str, str]:
    """The labels of its Node that the claim alone decides: its pool, what it was launched as, and what it requires.

    A kubelet may write other values on its own Node, which kube-scheduler reads until they are put back. Cost: O(requirements).
    """
    labels = claim.metadata.labels
    keys = {one.key for one in claim.spec.requirements}.union(_DECIDED)
    return {key: labels[key] for key in keys if key in labels}


def claim_requirements(claim: NodeClaim) -> Requirements:
    """spec.requirements as values; none where they cannot be read: one bad claim must not hide all nodes."""
    try:
        return requirements_of(claim.spec.requirements)
    except RequirementError:
        return Requirements.of(())


def planned_type(claim: NodeClaim) -> str:
    """The instance type that the claim was launched as, is planned as, or names alone; "" where it may become one of several."""
    return claim_labels(claim).get(names.INSTANCE_TYPE_LABEL, "")


def is_planned(claim: NodeClaim) -> bool:
    """Whether the claim was made for pods, or to replace a node; not by a user, nor for a static NodePool."""
    return names.PLANNED_OFFERING_ANNOTATION in claim.metadata.annotations


def _possible(claim: NodeClaim, types: Iterable[InstanceType]) -> list[tuple[InstanceType, tuple[Offering, ...]]]:
    """The types that a provider may launch the claim as, each with its offerings that go with the requirements."""
    try:
        requirements = requirements_of(claim.spec.requirements)
        requests = Resources.parse(claim.spec.resources.requests)
    except (RequirementError, QuantityError):
        return []  # nobody launches it
    wanted = requirements.requirement(names.INSTANCE_TYPE_LABEL)
    found = []
    for kind in types:
        if not wanted.has(kind.name) or not requests.fits(kind.allocatable):
            continue
        if requirements.conflict(kind.requirements) is not None:
            continue
        offerings = tuple(one for one in kind.offerings if requirements.conflict(one.requirements) is None)
        if offerings:
            found.append((kind, offerings))
    return found


def _common(some: Sequence[tuple[InstanceType, tuple[Offering, ...]]]) -> dict[str, str]:
    """The labels on which all of these types, one at least, agree; zone and capacity type as these offerings say, where there are any."""
    agreed = _labels(some[0][0])
    for kind, _ in some[1:]:
        agreed = {
            key: value for key, value in agreed.items() if kind.requirements.requirement(key).single_value == value
        }
    offerings = [offering for _, those in some for offering in those]
    for key, told in (
        (names.ZONE_LABEL, {one.zone for one in offerings}),
        (names.CAPACITY_TYPE_LABEL, {one.capacity_type for one in offerings}),
    ):
        if len(told) == 1 and (value := next(iter(told))):
            agreed[key] = value
    return agreed


def _labels(kind: InstanceType) -> dict[str, str]:
    return {key: value for key, one in kind.requirements.items() if (value := one.single_value) is not None}
