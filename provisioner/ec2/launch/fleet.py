"""CreateFleet: the request for a batch of equal instances, and what its answer means. Pure.

Source: spec/karpenter-aws.md 5.4 and 5.6; for MinTargetCapacity https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_OnDemandOptionsRequest.html and
API_SpotOptionsRequest.html: only fleets of type instant, 1000 at most, and SingleAvailabilityZone or SingleInstanceType must be there. Where it is not reached,
no instance is launched. Of one type in several zones all come from one zone (https://github.com/aws/aws-parallelcluster/issues/6950).
Differs: a client token and a tag per batch; at most 50 launch template configurations; the errors of one answer are judged together; NodeClaims that one gang
needs are launched all or none.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from provisioner.apis import names
from provisioner.ec2 import labels
from provisioner.ec2.access.errors import RESERVATION_EXCEEDED, Failure, FailureKind, FailureScope, classify
from provisioner.ec2.launch.launch_marks import BATCH_TAG, Mark
from provisioner.ec2.market.unavailable_offerings import OfferingKey, Shortages

MAX_CONFIGURATIONS: Final = 50
MAX_MINIMUM: Final = 1000
"""So many instances at most can be asked for all or none."""

INTERRUPTIBLE: Final = "interruptible"
_OF_ONE_OFFERING: Final = frozenset({FailureKind.INVALID, FailureKind.UNKNOWN})
_TAGGED: Final = ("instance", "volume", "fleet")
_SAYS_LITTLE: Final = ("MinTargetCapacity constraints", "review errors in the response")
"""In a message that says less of its override than any other: all together were too few, or, which says nothing, others could not be launched."""


@dataclass(frozen=True, slots=True)
class Override:
    """One offering that the fleet may take.

    Attributes:
        template: name of the launch template that instances of it are made from.
        subnet: where in its zone.
        reservation: the reservation that its template names, "" for none.
    """

    template: str
    offer: OfferingKey
    subnet: str
    image: str
    price: float
    reservation: str = ""


@dataclass(frozen=True, slots=True)
class Launched:
    """One instance of an answer."""

    instance: str
    instance_type: str
    zone: str
    subnet: str
    image: str
    capacity_type: str


@dataclass(frozen=True, slots=True)
class FleetRefused:
    """One error of an answer, with what it is about; fields are "" where EC2 does not say."""

    failure: Failure
    offer: OfferingKey
    subnet: str = ""
    reservation: str = ""


@dataclass(frozen=True, slots=True)
class FleetAnswer:
    """What an answer says: the instances by id, and every refusal once."""

    launched: tuple[Launched, ...]
    refused: tuple[FleetRefused, ...]


def request(
    overrides: Iterable[Override],
    *,
    capacity_type: str,
    count: int,
    tags: Mapping[str, str],
    mark: Mark,
    reservation_type: str = "",
    by_priority: bool = False,
    context: str = "",
    all_or_none: bool = False,
    dry_run: bool = False,
) -> dict[str, Any]:
    """The parameters of CreateFleet.

    Args:
        overrides: any order; of the same template, type and zone the cheapest stands. Where there are more than 50 templates, those
            with the cheapest overrides are kept.
        capacity_type: on-demand, spot or reserved; one for all.
        count: how many instances.
        tags: of fleet, instances and volumes; the batch's is added.
        mark: of any claim of the batch.
        reservation_type: for reserved: "" for one of demand, `labels.CAPACITY_BLOCK` or INTERRUPTIBLE.
        by_priority: whether prices were adjusted (NodeOverlay), so that EC2 must go by ours.
        context: of the class.
        all_or_none: whether `count` is the minimum, too; the overrides must be as `can_be_whole` wants them.
        dry_run: only ask whether we may.

    Raises:
        ValueError: there is no override, or no instance is wanted.
    """
    if count < 1:
        raise ValueError(f"a fleet of {count} instances")
    grouped = _grouped(overrides)
    if not grouped:
        raise ValueError("a fleet without overrides")
    marked = {**tags, BATCH_TAG: mark.tag}
    listed = [{"Key": key, "Value": marked[key]} for key in sorted(marked)]
    made: dict[str, Any] = {
        "Type": "instant",
        "ClientToken": mark.token,
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateName": template, "Version": "$Latest"},
                "Overrides": [
                    {
                        "InstanceType": one.offer.instance_type,
                        "SubnetId": one.subnet,
                        "ImageId": one.image,
                        "AvailabilityZone": one.offer.zone,
                        "Priority": one.price,
                    }
                    for one in inside
                ],
            }
            for template, inside in grouped
        ],
        "TargetCapacitySpecification": {
            "DefaultTargetCapacityType": _target(capacity_type, reservation_type),
            "TotalTargetCapacity": count,
        },
        "TagSpecifications": [{"ResourceType": kind, "Tags": listed} for kind in _TAGGED],
    }
    if capacity_type == names.CAPACITY_SPOT:
        strategy = "capacity-optimized-prioritized" if by_priority else "price-capacity-optimized"
        made["SpotOptions"] = {"AllocationStrategy": strategy}
    elif capacity_type == names.CAPACITY_RESERVED and reservation_type == INTERRUPTIBLE:
        made["ReservedCapacityOptions"] = {"ReservationTypes": ["interruptible-capacity-reservation"]}
    elif capacity_type == names.CAPACITY_ON_DEMAND or not reservation_type:
        made["OnDemandOptions"] = {"AllocationStrategy": "prioritized" if by_priority else "lowest-price"}
    if all_or_none:
        options = made["SpotOptions" if capacity_type == names.CAPACITY_SPOT else "OnDemandOptions"]
        options |= {"MinTargetCapacity": count, "SingleAvailabilityZone": True}
    if context:
        made["Context"] = context
    if dry_run:
        made["DryRun"] = True
    return made


def can_be_whole(overrides: Collection[Override], count: int, capacity_type: str, reservation_type: str) -> bool:
    """Whether EC2 can be asked to launch so many instances or none: of one zone, on-demand, spot or a reservation of demand.

    Of one instance type in several zones it could be asked, too, and would launch all of them in one zone, or none where only all zones together have
    enough.
    """
    kinds = capacity_type != names.CAPACITY_RESERVED or not reservation_type
    return kinds and count > 1 and len({one.offer.zone for one in overrides}) == 1


def outcome(answer: Mapping[str, Any], overrides: Sequence[Override], capacity_type: str) -> FleetAnswer:
    """Read the answer of CreateFleet. Of its errors those count that say most, see `_SAYS_LITTLE`.

    Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateFleetError.html: an error is told of each override that gave nothing, also
    where the reason is another one, or that the fleet had fewer instances than MinTargetCapacity. The texts are those of
    https://github.com/aws/aws-parallelcluster-node, src/slurm_plugin/fleet_manager.py and tests/slurm_plugin/test_fleet_manager.py; AWS documents none.

    Args:
        answer: as boto3 gives it.
        overrides: those of the request; they tell what EC2's echo leaves out.
        capacity_type: of the request.
    """
    by_place = {(one.offer.instance_type, one.subnet): one for one in overrides}
    by_zone = {(one.offer.instance_type, one.offer.zone): one for one in overrides}

    def asked(echo: Mapping[str, Any]) -> Override | None:
        name = echo.get("InstanceType", "")
        return by_place.get((name, echo.get("SubnetId", ""))) or by_zone.get((name, echo.get("AvailabilityZone", "")))

    launched: list[Launched] = []
    for entry in answer.get("Instances", ()):
        echo = _echo(entry)
        one = asked(echo)
        launched.extend(
            Launched(
                instance,
                entry.get("InstanceType") or echo.get("InstanceType", ""),
                echo.get("AvailabilityZone") or (one.offer.zone if one else ""),
                echo.get("SubnetId") or (one.subnet if one else ""),
                echo.get("ImageId") or (one.image if one else ""),
                capacity_type,
            )
            for instance in entry.get("InstanceIds", ())
        )
    refused: dict[FleetRefused, None] = {}
    errors = answer.get("Errors", ())
    least = min(map(_rank, errors), default=0)
    for entry in [one for one in errors if _rank(one) == least]:
        echo = _echo(entry)
        one = asked(echo)
        offer = (
            one.offer
            if one
            else OfferingKey(capacity_type, echo.get("InstanceType", ""), echo.get("AvailabilityZone", ""))
        )
        failure = classify(entry.get("ErrorCode", ""), entry.get("ErrorMessage", ""))
        subnet = echo.get("SubnetId") or (one.subnet if one else "")
        refused[FleetRefused(failure, offer, subnet, one.reservation if one else "")] = None
    return FleetAnswer(tuple(sorted(launched, key=lambda one: one.instance)), tuple(refused))


def _rank(error: Mapping[str, Any]) -> int:
    """How little an error says of its override."""
    message = error.get("ErrorMessage", "")
    return next((rank for rank, text in enumerate(_SAYS_LITTLE, 1) if text in message), 0)


def note(found: FleetAnswer, overrides: Iterable[Override], table: Shortages, now: datetime) -> tuple[str, ...]:
    """Tell the table of shortages what an answer taught.

    What is no shortage closes nothing as a rule: it may be wrong everywhere. Where EC2 refuses some offerings with it and gives others, or refuses them for
    other reasons, it is those offerings' (an image that a type cannot boot, a code that nobody knows), and the next order must not be of them alone.

    Returns:
        The reservations that turned out to be used up, in order. One that gave nothing for another reason is short, as an offering is.
    """
    offers = {(one.offer.instance_type, one.offer.zone): one.offer for one in overrides}
    instances: dict[OfferingKey, int] = {}
    for launched in found.launched:
        offer = offers.get((launched.instance_type, launched.zone))
        if offer is not None:
            instances[offer] = instances.get(offer, 0) + 1
    for offer, count in instances.items():
        table.succeeded(offer, now, count)
    empty = set()
    differ = bool(found.launched) or len({one.failure.code for one in found.refused}) > 1
    for one in found.refused:
        code, scope = one.failure.code, one.failure.scope
        if one.reservation and scope in {FailureScope.OFFERING, FailureScope.RESERVATION}:
            if code == RESERVATION_EXCEEDED:
                empty.add(one.reservation)
            else:
                table.reservation_failed(one.reservation, now, code)
        elif scope in {FailureScope.SUBNET, FailureScope.PREFIXES}:
            table.subnet_failed(one.subnet, now, code, prefixes=scope is FailureScope.PREFIXES)
        elif (
            differ
            and one.failure.kind in _OF_ONE_OFFERING
            and scope is FailureScope.NOTHING
            and one.offer.instance_type
            and not one.reservation
        ):
            table.failed(one.offer, now, code)
        elif one.offer.instance_type or scope in {FailureScope.CAPACITY_TYPE, FailureScope.FLEET_QUOTA}:
            table.failed(one.offer, now, code, scope)  # after the successes: a pool that gave some is empty now
    return tuple(sorted(empty))


def _target(capacity_type: str, reservation_type: str) -> str:
    if capacity_type != names.CAPACITY_RESERVED:
        return capacity_type
    return {labels.CAPACITY_BLOCK: "capacity-block", INTERRUPTIBLE: "reserved-capacity"}.get(
        reservation_type, names.CAPACITY_ON_DEMAND
    )


def _grouped(overrides: Iterable[Override]) -> list[tuple[str, list[Override]]]:
    """By template, the templates with the cheapest overrides first, at most 50."""
    cheapest: dict[tuple[str, str, str], Override] = {}
    for one in overrides:
        key = one.template, one.offer.instance_type, one.offer.zone
        known = cheapest.get(key)
        if known is None or _order(one) < _order(known):
            cheapest[key] = one
    groups: dict[str, list[Override]] = {}
    for one in sorted(cheapest.values(), key=_order):
        groups.setdefault(one.template, []).append(one)
    return list(groups.items())[:MAX_CONFIGURATIONS]


def _order(one: Override) -> tuple[float, OfferingKey, str, str]:
    return one.price, one.offer, one.template, one.subnet


def _echo(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = entry.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
    return found


def overrides_of(
    offers: Iterable[tuple[OfferingKey, float, str]],
    subnets: Mapping[str, str],
    template: Callable[[OfferingKey, str], tuple[str, str]],
) -> list[Override]:
    """Overrides for (offer, price, reservation), those in zones without a subnet left out.

    Args:
        offers: what the launch may take.
        subnets: zone to the subnet that is used there.
        template: launch template and image of an offer and a reservation.
    """
    made = []
    for offer, price, reservation in offers:
        subnet = subnets.get(offer.zone)
        if subnet is not None:
            name, image = template(offer, reservation)
            made.append(Override(name, offer, subnet, image, price, reservation))
    return made
