"""What discovery means for the conditions of a class. Pure.

A call that fails never takes away what works: a condition that is True for the spec as it stands stays so, with the failure in its message. Every
message names the field and says what to change. Source: spec/karpenter-aws.md 1.4.
Differs: the condition names a failed call, which the provider only logs; a reservation or group that is not there is named.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from provisioner.apis import ec2, names
from provisioner.apis.conditions import DEPENDENCIES_NOT_READY
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.meta import Condition, condition
from provisioner.ec2.access.errors import FailureKind
from provisioner.ec2.market.instance_types import PlacementGroup
from provisioner.ec2.nodeclass import groups, reservations, subnets
from provisioner.ec2.nodeclass.discovery import DiscoveryError, FoundImages
from provisioner.values import printable
from provisioner.values.message import ConditionMessage, Said

MINUTE: Final = 60.0
RETRY: Final = 10.0
DISCOVERY_FAILED: Final = "DiscoveryFailed"
_NAMED: Final = 5
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", re.ASCII)


@dataclass(frozen=True)
class ClassFinding:
    """One condition, and what belongs to it.

    Attributes:
        kind: type of the condition.
        status: "True", "False" or "Unknown".
        reason: "" is the type's name.
        fields: of the class's status, by wire name; None removes one.
        look_again: seconds until the same should be asked again; None: not before something changes.
        warnings: what is odd but does no harm.
    """

    kind: str
    status: str
    reason: str = ""
    message: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    look_again: float | None = None
    warnings: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether the condition is True."""
        return self.status == names.TRUE


def of_images(found: FoundImages, minor: int) -> ClassFinding:
    """AMIsReady."""
    listed = {"amis": _wire(found.amis)}
    if not found.amis:
        sought = Said(f"; looked for {printable.listed(found.absent, _NAMED)}") if found.absent else ""
        return ClassFinding(
            ec2.AMIS_READY,
            names.FALSE,
            ec2.AMI_NOT_FOUND,
            f"spec.amiSelectorTerms select no image that nodes of Kubernetes 1.{minor} can boot{sought}",
            listed,
            MINUTE,
            _failed(found.failures),
        )
    deprecated = [one.id for one in found.amis if one.deprecated]
    warnings = (
        Said(
            f"spec.amiSelectorTerms: {printable.listed(deprecated, _NAMED)} is deprecated by its owner and may be "
            "removed; select a newer image"
        ),
    )
    return ClassFinding(
        ec2.AMIS_READY,
        names.TRUE,
        "",
        "; ".join(found.failures),
        fields=listed,
        look_again=MINUTE if found.failures else 5 * MINUTE,
        warnings=(*_failed(found.failures), *(warnings if deprecated else ())),
    )


def of_unsupported_alias(problem: str) -> ClassFinding:
    """AMIsReady, for an alias without images for this minor; `problem` as `validation.unsupported_alias` says it."""
    return ClassFinding(
        ec2.AMIS_READY,
        names.FALSE,
        ec2.UNSUPPORTED_ALIAS,
        f"spec.amiSelectorTerms: {problem}; select another alias",
        {"amis": None},
        5 * MINUTE,
    )


def of_subnets(found: Iterable[subnets.Subnet], refresh: float) -> ClassFinding:
    """SubnetsReady; `refresh` in seconds."""
    found = tuple(found)
    listed = {"subnets": _wire(subnets.to_status(found))}
    if not found:
        return ClassFinding(
            ec2.SUBNETS_READY,
            names.FALSE,
            ec2.SUBNETS_NOT_FOUND,
            "spec.subnetSelectorTerms select no subnet; check the IDs, the tags and the Region",
            listed,
            MINUTE,
        )
    return ClassFinding(ec2.SUBNETS_READY, names.TRUE, fields=listed, look_again=refresh)


def of_groups(found: Iterable[groups.FoundSecurityGroup], places: Iterable[subnets.Subnet]) -> ClassFinding:
    """SecurityGroupsReady; `places` are the subnets that the groups are used in."""
    found = tuple(found)
    listed = {"securityGroups": _wire(groups.to_status(found))}
    if not found:
        return ClassFinding(
            ec2.SECURITY_GROUPS_READY,
            names.FALSE,
            ec2.SECURITY_GROUPS_NOT_FOUND,
            "spec.securityGroupSelectorTerms select no security group; check the IDs, the names, the tags and the "
            "Region",
            listed,
            MINUTE,
        )
    networks = {one.vpc for one in found if one.vpc}
    outside = sorted(one.id for one in places if one.vpc and networks and {one.vpc} != networks)
    warning = Said(
        f"spec.securityGroupSelectorTerms select groups of {printable.listed(sorted(networks), _NAMED)}, but "
        f"{printable.listed(outside, _NAMED)} belongs to another VPC; no instances can be launched there"
    )
    return ClassFinding(
        ec2.SECURITY_GROUPS_READY,
        names.TRUE,
        fields=listed,
        look_again=5 * MINUTE,
        warnings=(warning,) if outside else (),
    )


def _reservation_missing(place: int, reservation: str) -> str:
    """`place` counts from 0."""
    return Said(
        f"spec.capacityReservationSelectorTerms[{place}]: capacity reservation {reservation} does not exist or is not "
        "active"
    )


def of_reservations(
    node_class: EC2NodeClass, found: reservations.FoundReservation, next_change: float | None
) -> ClassFinding:
    """CapacityReservationsReady; `next_change` in seconds from now, None for never."""
    known = {one.id for one in found.reservations}
    missing = [
        _reservation_missing(place, term.id)
        for place, term in enumerate(node_class.spec.capacity_reservation_selector_terms)
        if term.id and term.id not in known
    ]
    again = min(MINUTE, MINUTE if next_change is None else max(1.0, next_change))
    return ClassFinding(
        ec2.CAPACITY_RESERVATIONS_READY,
        names.TRUE,
        fields={"capacityReservations": _wire(found.reservations)},
        look_again=again if node_class.spec.capacity_reservation_selector_terms else None,
        warnings=(
            *missing,
            *(Said(f"spec.capacityReservationSelectorTerms: {one}") for one in found.strange),
        ),
    )


def of_group(found: PlacementGroup | None, *, wanted: bool) -> ClassFinding:
    """PlacementGroupReady; `wanted` is whether the class selects one."""
    if wanted and found is None:
        return ClassFinding(
            ec2.PLACEMENT_GROUP_READY,
            names.FALSE,
            ec2.PLACEMENT_GROUP_NOT_FOUND,
            "spec.placementGroupSelector: the placement group does not exist in this Region; create it, or correct "
            "the selector",
            look_again=MINUTE,
        )
    return ClassFinding(ec2.PLACEMENT_GROUP_READY, names.TRUE, look_again=5 * MINUTE if wanted else None)


def of_profile(name: str) -> ClassFinding:
    """InstanceProfileReady, for a profile that is there."""
    return ClassFinding(
        ec2.INSTANCE_PROFILE_READY, names.TRUE, fields={"instanceProfile": name}, look_again=15 * MINUTE
    )


def dependencies(findings: Iterable[ClassFinding]) -> ClassFinding | None:
    """ValidationSucceeded while something that dry runs need is missing; None when nothing is."""
    needed = {
        ec2.AMIS_READY,
        ec2.SUBNETS_READY,
        ec2.SECURITY_GROUPS_READY,
        ec2.INSTANCE_PROFILE_READY,
        ec2.PLACEMENT_GROUP_READY,
    }
    bad = [one for one in findings if one.kind in needed and not one.good]
    if not bad:
        return None
    status = names.FALSE if any(one.status == names.FALSE for one in bad) else names.UNKNOWN
    return ClassFinding(
        ec2.VALIDATION_SUCCEEDED,
        status,
        DEPENDENCIES_NOT_READY,
        f"waiting for {', '.join(one.kind for one in bad)}",
    )


def using_previous_result(condition: str, error: str) -> ConditionMessage:
    """A call failed, and the condition is True from before."""
    return ConditionMessage(condition, names.TRUE, "", f"using the previous result: {error}")


def after_failure(
    node_class: EC2NodeClass, kind: str, error: DiscoveryError, reason: str = DISCOVERY_FAILED
) -> ClassFinding:
    """A condition whose call failed.

    Args:
        node_class: with its conditions so far.
        kind: type of the condition.
        error: what happened.
        reason: where the condition is not True from before.
    """
    refused = error.failure.kind in (FailureKind.DENIED, FailureKind.INVALID)
    again = MINUTE if refused else RETRY
    said = str(error)
    if holds(node_class, kind):
        return ClassFinding(*using_previous_result(kind, said), look_again=again, warnings=(said,))
    own = error.failure.reason if refused and _REASON.fullmatch(error.failure.reason) else reason
    status = names.FALSE if refused else names.UNKNOWN
    reason = own if reason == DISCOVERY_FAILED and error.failure.kind is FailureKind.DENIED else reason
    return ClassFinding(kind, status, reason, said, look_again=again)


def holds(node_class: EC2NodeClass, kind: str) -> bool:
    """Whether a condition is True for the spec as it stands."""
    known = condition(node_class.status.conditions, kind)
    return (
        known is not None and known.status == names.TRUE and known.observed_generation == node_class.metadata.generation
    )


def worsened(before: tuple[Condition, ...], after: tuple[Condition, ...]) -> tuple[Condition, ...]:
    """Conditions that are False now and were not, or for another reason; without Ready, which only repeats them."""
    return tuple(
        one
        for one in after
        if one.type != names.READY
        and one.status == names.FALSE
        and one.reason != DEPENDENCIES_NOT_READY
        and (
            (was := condition(before, one.type)) is None
            or (was.status, was.reason, was.message) != (one.status, one.reason, one.message)
        )
    )


def _image_term_failed(failure: str) -> str:
    """One term could not be looked up."""
    return Said(f"spec.amiSelectorTerms: {failure}; using the previous result")


def _failed(failures: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(_image_term_failed, failures))


def _wire(values: Iterable[msgspec.Struct]) -> list[Any] | None:
    """A list as a merge patch carries it; None for an empty one."""
    listed: list[Any] = msgspec.json.decode(msgspec.json.encode(list(values)))
    return listed or None
