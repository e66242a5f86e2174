"""Capacity reservations, capacity blocks and placement groups.

Sources: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-capacity-reservations.html and, for how many instances a spread group takes in a zone,
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/placement-strategies.html
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from tests.support.ec2.filters import next_token, paged, selected, tag_list, tags_of
from tests.support.ec2.protocol import AwsError

SPREAD_LIMIT: Final = 7
CAPACITY_BLOCK: Final = "capacity-block"


@dataclass
class Reservation:
    """A capacity reservation; a block where `kind` says so."""

    id: str
    instance_type: str
    zone: str
    zone_id: str
    total: int
    owner: str
    created: datetime
    match: str = "targeted"
    kind: str = "default"
    interruptible: bool = False
    state: str = "active"
    ends: datetime | None = None
    tags: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    @property
    def available(self) -> int:
        """Instances left."""
        return max(0, self.total - len(self.used)) if self.state == "active" else 0


@dataclass
class PlacementGroup:
    """A placement group; `members` by zone."""

    id: str
    name: str
    strategy: str
    partitions: int = 0
    spread_level: str = ""
    state: str = "available"
    tags: dict[str, str] = field(default_factory=dict)
    members: dict[str, set[str]] = field(default_factory=dict)
    given: int = 0


class Pools:
    """Those of the account in the region."""

    def __init__(self, account: str) -> None:
        self._account = account
        self.reservations: dict[str, Reservation] = {}
        self.groups: dict[str, PlacementGroup] = {}

    def reservation(self, reservation_id: str) -> Reservation:
        """By id.

        Raises:
            AwsError: there is none.
        """
        found = self.reservations.get(reservation_id)
        if found is None:
            raise AwsError(
                "InvalidCapacityReservationId.NotFound", f"The capacity reservation '{reservation_id}' does not exist."
            )
        return found

    def group(self, *, group_id: str = "", name: str = "") -> PlacementGroup:
        """By id or name.

        Raises:
            AwsError: there is none.
        """
        for one in self.groups.values():
            if one.id == group_id or (name and one.name == name):
                return one
        if group_id:
            raise AwsError("InvalidPlacementGroupId.NotFound", f"The placement group '{group_id}' does not exist.")
        raise AwsError("InvalidPlacementGroup.Unknown", f"The placement group '{name}' is unknown.")

    def create_reservation(self, request: Mapping[str, Any], zone_id: str, now: datetime) -> dict[str, Any]:
        """CreateCapacityReservation; EC2 always has what is reserved."""
        made = Reservation(
            f"cr-{len(self.reservations) + 1:017x}",
            request["InstanceType"],
            request["AvailabilityZone"],
            zone_id,
            int(request["InstanceCount"]),
            self._account,
            now,
            match=request.get("InstanceMatchCriteria", "open"),
            tags=tags_of(request, "capacity-reservation"),
        )
        self.reservations[made.id] = made
        return {"CapacityReservation": _reservation(made)}

    def cancel_reservation(self, request: Mapping[str, Any]) -> set[str]:
        """CancelCapacityReservation; the instances that leave it, and run on."""
        found = self.reservation(request["CapacityReservationId"])
        found.state = "cancelled"
        left, found.used = found.used, set()
        return left

    def describe_reservations(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """DescribeCapacityReservations."""
        wanted = request.get("CapacityReservationIds")
        chosen = [self.reservation(one) for one in wanted] if wanted else list(self.reservations.values())
        chosen = selected(chosen, request.get("Filters"), _reservation_facts, lambda one: one.tags)
        page, token = paged(chosen, request, least=1)
        return {"CapacityReservations": [_reservation(one) for one in page], **next_token(token)}

    def create_group(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """CreatePlacementGroup."""
        name = request["GroupName"]
        if name in self.groups:
            raise AwsError("InvalidPlacementGroup.Duplicate", f"The placement group '{name}' already exists.")
        strategy = request.get("Strategy", "cluster")
        made = PlacementGroup(
            f"pg-{len(self.groups) + 1:017x}",
            name,
            strategy,
            int(request.get("PartitionCount", 2)) if strategy == "partition" else 0,
            request.get("SpreadLevel", "rack") if strategy == "spread" else "",
            tags=tags_of(request, "placement-group"),
        )
        self.groups[name] = made
        return {"PlacementGroup": _group(made)}

    def delete_group(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """DeletePlacementGroup."""
        found = self.group(name=request["GroupName"])
        if any(found.members.values()):
            raise AwsError("InvalidPlacementGroup.InUse", f"The placement group '{found.name}' is in use.")
        del self.groups[found.name]
        return {}

    def describe_groups(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """DescribePlacementGroups."""
        ids, names = request.get("GroupIds") or (), request.get("GroupNames") or ()
        chosen = [self.group(group_id=one) for one in ids] + [self.group(name=one) for one in names]
        if not ids and not names:
            chosen = list(self.groups.values())
        chosen = selected(chosen, request.get("Filters"), _group_facts, lambda one: one.tags)
        return {"PlacementGroups": [_group(one) for one in chosen]}


def _reservation(one: Reservation) -> dict[str, Any]:
    return {
        "CapacityReservationId": one.id,
        "OwnerId": one.owner,
        "CapacityReservationArn": f"arn:aws:ec2:{one.zone[:-1]}:{one.owner}:capacity-reservation/{one.id}",
        "AvailabilityZone": one.zone,
        "AvailabilityZoneId": one.zone_id,
        "InstanceType": one.instance_type,
        "InstancePlatform": "Linux/UNIX",
        "Tenancy": "default",
        "TotalInstanceCount": one.total,
        "AvailableInstanceCount": one.available,
        "EbsOptimized": False,
        "EphemeralStorage": False,
        "State": one.state,
        "StartDate": one.created,
        "EndDate": one.ends,
        "EndDateType": "limited" if one.ends else "unlimited",
        "InstanceMatchCriteria": one.match,
        "CreateDate": one.created,
        "ReservationType": one.kind,
        "Interruptible": one.interruptible,
        "Tags": tag_list(one.tags),
    }


def _group(one: PlacementGroup) -> dict[str, Any]:
    return {
        "GroupName": one.name,
        "GroupId": one.id,
        "State": one.state,
        "Strategy": one.strategy,
        "PartitionCount": one.partitions or None,
        "SpreadLevel": one.spread_level or None,
        "Tags": tag_list(one.tags),
    }


def _reservation_facts(one: Reservation) -> Mapping[str, Iterable[str]]:
    return {
        "instance-type": (one.instance_type,),
        "owner-id": (one.owner,),
        "state": (one.state,),
        "availability-zone": (one.zone,),
        "instance-match-criteria": (one.match,),
        "tenancy": ("default",),
    }


def _group_facts(one: PlacementGroup) -> Mapping[str, Iterable[str]]:
    return {
        "group-name": (one.name,),
        "state": (one.state,),
        "strategy": (one.strategy,),
        "spread-level": (one.spread_level,) if one.spread_level else (),
    }
