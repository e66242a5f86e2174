"""Instances: their life, and what EC2 tells of them.

What is written shows late, by a time of its own for every instance (`Instance.lag`): its birth, its states and its tags.
Source: https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html
Termination protection holds all that are named with a protected one in one zone; those of other zones end, and the call fails all the same.
Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_TerminateInstances.html
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from tests.support.ec2.filters import check_tags, next_token, paged, selected, tag_list
from tests.support.ec2.protocol import AwsError, ec2_item

PENDING, RUNNING, SHUTTING_DOWN, TERMINATED, STOPPING, STOPPED = (
    "pending",
    "running",
    "shutting-down",
    "terminated",
    "stopping",
    "stopped",
)
_CODES: Final = {PENDING: 0, RUNNING: 16, SHUTTING_DOWN: 32, TERMINATED: 48, STOPPING: 64, STOPPED: 80}
STATE_REASONS: Final[Mapping[str, str]] = {
    "Server.InsufficientInstanceCapacity": "There was insufficient capacity available to satisfy the launch request.",
    "Server.InternalError": "Internal error on launch",
    "Server.ScheduledStop": "Stopped due to scheduled retirement",
    "Server.SpotInstanceShutdown": "Spot instance shutdown",
    "Server.SpotInstanceTermination": "Spot instance termination",
    "Client.InstanceInitiatedShutdown": "Instance initiated shutdown",
    "Client.InstanceTerminated": "Instance terminated",
    "Client.InternalError": "Client error on launch",
    "Client.InvalidSnapshot.NotFound": "The specified snapshot was not found.",
    "Client.UserInitiatedHibernate": "User initiated hibernate",
    "Client.UserInitiatedShutdown": "User initiated shutdown",
    "Client.VolumeLimitExceeded": "Volume limit exceeded",
}
"""Codes of StateReason, and what follows them in its message: all that are documented.

Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html; the words where instances were shown in public reports, such as
https://github.com/aws/karpenter-provider-aws/issues/1407, else those of the page.
"""

KEPT_SECONDS: Final = 3600.0
"""How long a terminated instance is still told of, in EC2's seconds."""


def described_state(name: str) -> dict[str, Any]:
    """A state as answers have it."""
    return {"Code": _CODES[name], "Name": name}


@dataclass
class Instance:
    """One instance.

    Attributes:
        lifecycle: "", spot, capacity-block or interruptible-capacity-reservation.
        born: EC2's seconds.
        visible: from when on it is told of.
        lag: by how many seconds it is told of late, later too.
        protected: from TerminateInstances.
        boots: how often it has booted, or is about to.
        states: since when it is in which state; the last is the current one.
        reason: of its last state, for people.
        reason_code: likewise, one of `STATE_REASONS`; "" tells none.
        data: the launch template data that it was made from, all overrides applied.
    """

    id: str
    reservation_id: str
    instance_type: str
    zone: str
    zone_id: str
    subnet: str
    vpc: str
    image: str
    arch: str
    address: str
    dns: str
    capacity_type: str
    lifecycle: str
    groups: list[dict[str, str]]
    interfaces: list[dict[str, Any]]
    volumes: list[dict[str, Any]]
    data: Mapping[str, Any]
    tags: dict[str, str]
    launched: datetime
    born: float
    visible: float
    states: list[tuple[float, str]]
    lag: float = 0.0
    protected: bool = False
    boots: int = 1
    profile: dict[str, str] | None = None
    spot_request: str = ""
    token: str = ""
    placement: dict[str, Any] = field(default_factory=dict)
    capacity_reservation: str = ""
    platform: str = ""
    reason: str = ""
    reason_code: str = ""
    ended: datetime | None = None
    addresses: list[str] = field(default_factory=list)
    node: str = ""
    node_uid: str = ""
    joined: bool = False
    not_joined: str = ""
    interrupted: str = ""
    impaired: dict[str, float] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    tagged: list[tuple[float, dict[str, str]]] = field(default_factory=list)
    _xml: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """Now."""
        return self.states[-1][1]

    def state_at(self, instant: float) -> str:
        """As it was at an instant; "" before it was born."""
        return next((state for since, state in reversed(self.states) if since <= instant), "")

    def tags_at(self, instant: float) -> dict[str, str]:
        """Its tags as they were at an instant."""
        return next((tags for since, tags in reversed(self.tagged) if since <= instant), {})

    def turn(self, state: str, seconds: float) -> None:
        """Go over into another state."""
        self.states.append((seconds, state))
        self._xml.clear()

    def tag(self, tags: Mapping[str, str], seconds: float, remove: Iterable[str] = ()) -> None:
        """Change its tags.

        Raises:
            AwsError: EC2 would not take them.
        """
        kept = {key: value for key, value in {**self.tags, **tags}.items() if key not in set(remove)}
        check_tags({key: value for key, value in kept.items() if not key.startswith("aws:")})
        self.tags = kept
        self.tagged.append((seconds, kept))
        self._xml.clear()

    def leave_reservation(self) -> None:
        """Run on, on demand."""
        self.capacity_reservation = ""
        self._xml.clear()

    def item(self, state: str, tags: Mapping[str, str]) -> str:
        """Its XML in DescribeInstances, kept until something changes."""
        key = state if tags is self.tags else ""
        known = self._xml.get(key) if key else None
        if known is None:
            document = {
                "ReservationId": self.reservation_id,
                "OwnerId": "123456789012",
                "Groups": [],
                "Instances": [self.described(state, tags)],
            }
            known = ec2_item("DescribeInstances", "Reservations", document)
            if key:
                self._xml[key] = known
        return known

    def described(self, state: str = "", tags: Mapping[str, str] | None = None) -> dict[str, Any]:
        """As DescribeInstances tells it."""
        shown = state or self.state
        gone = shown == TERMINATED
        described: dict[str, Any] = {
            "InstanceId": self.id,
            "ImageId": self.image,
            "State": described_state(shown),
            "PrivateDnsName": "" if gone else self.dns,
            "PublicDnsName": "",
            "StateTransitionReason": self.reason,
            "InstanceType": self.instance_type,
            "LaunchTime": self.launched,
            "AmiLaunchIndex": 0,
            "ProductCodes": [],
            "Placement": {
                "AvailabilityZone": self.zone,
                "AvailabilityZoneId": self.zone_id,
                "Tenancy": "default",
                "GroupName": "",
                **self.placement,
            },
            "Platform": self.platform or None,
            "PlatformDetails": "Windows" if self.platform else "Linux/UNIX",
            "Monitoring": {"State": "enabled" if self.data.get("Monitoring", {}).get("Enabled") else "disabled"},
            "Architecture": self.arch,
            "RootDeviceType": "ebs",
            "RootDeviceName": self.volumes[0]["DeviceName"] if self.volumes else "/dev/xvda",
            "BlockDeviceMappings": [] if gone else self.volumes,
            "VirtualizationType": "hvm",
            "Hypervisor": "xen",
            "ClientToken": self.token,
            "EbsOptimized": False,
            "EnaSupport": True,
            "SecurityGroups": [] if gone else self.groups,
            "NetworkInterfaces": [] if gone else self.interfaces,
            "MetadataOptions": {"State": "applied", **self.data.get("MetadataOptions", {})},
            "CapacityReservationSpecification": self.data.get(
                "CapacityReservationSpecification", {"CapacityReservationPreference": "open"}
            ),
            "EnclaveOptions": {"Enabled": bool(self.data.get("EnclaveOptions", {}).get("Enabled"))},
            "Tags": tag_list(self.tags if tags is None else tags),
        }
        if not gone:
            described |= {"PrivateIpAddress": self.address, "SubnetId": self.subnet, "VpcId": self.vpc}
        if self.profile and not gone:
            described["IamInstanceProfile"] = self.profile
        if self.reason_code and shown not in {PENDING, RUNNING}:
            said = f"{self.reason_code}: {STATE_REASONS[self.reason_code]}"
            described["StateReason"] = {"Code": self.reason_code, "Message": said}
        if self.lifecycle:
            described["InstanceLifecycle"] = self.lifecycle
        if self.spot_request:
            described["SpotInstanceRequestId"] = self.spot_request
        if self.capacity_reservation:
            described["CapacityReservationId"] = self.capacity_reservation
        if self.data.get("CpuOptions"):
            described["CpuOptions"] = self.data["CpuOptions"]
        return described


class Instances:
    """All instances, the lately terminated included."""

    def __init__(self, unseen: Callable[[str], bool] = lambda _: False) -> None:
        self.all: dict[str, Instance] = {}
        self._unseen = unseen

    def known(self, instance_ids: Sequence[str], now: float) -> list[Instance]:
        """Those of these ids, in their order.

        Raises:
            AwsError: an id is none, or names no instance, or one that EC2 does not know everywhere yet.
        """
        check_ids(instance_ids)
        missing = [
            one
            for one in instance_ids
            if one not in self.all or self.all[one].visible > now or self._forgotten(self.all[one], now)
        ]
        if missing:
            ids = ", ".join(missing)
            said = (
                f"The instance ID '{ids}' does not exist"
                if len(missing) == 1
                else f"The instance IDs '{ids}' do not exist"
            )
            raise AwsError("InvalidInstanceID.NotFound", said)
        return [self.all[one] for one in dict.fromkeys(instance_ids)]

    def seen(self, instance_ids: Sequence[str], now: float) -> list[Instance]:
        """As `known`, for a call that reads.

        Raises:
            AwsError: as there, or one of them is not shown.
        """
        hidden = next((one for one in instance_ids if self._unseen(one)), None)
        if hidden is not None:
            raise AwsError("InvalidInstanceID.NotFound", f"The instance ID '{hidden}' does not exist")
        return self.known(instance_ids, now)

    def describe(self, request: Mapping[str, Any], now: float, stale: float = 0.0) -> str:
        """DescribeInstances; the inside of its page.

        Args:
            request: as it came.
            now: EC2's seconds.
            stale: how old the answer is.
        """
        then = now - stale
        wanted = request.get("InstanceIds")
        if wanted:
            if request.get("MaxResults"):
                raise AwsError(
                    "InvalidParameterCombination",
                    "The parameter instancesSet cannot be used with the parameter maxResults",
                )
            chosen = self.seen(wanted, then)
        else:
            chosen = [one for one in self.all.values() if one.visible <= then and not self._unseen(one.id)]
        shown = [
            (one, one.state_at(then - one.lag), one.tags_at(then - one.lag) if stale or one.lag else one.tags)
            for one in chosen
        ]
        shown = [row for row in shown if row[1] and not self._forgotten(row[0], then)]
        rows = selected(shown, request.get("Filters"), lambda row: _facts(row[0], row[1]), lambda row: row[2])
        page, token = paged(rows, request)
        inside = "".join(one.item(state, tags) for one, state, tags in page)
        following = f"<nextToken>{token}</nextToken>" if token else ""
        return f"<reservationSet>{inside}</reservationSet>{following}"

    def _forgotten(self, one: Instance, then: float) -> bool:
        since, state = one.states[-1]
        return state == TERMINATED and then - since > KEPT_SECONDS

    def describe_status(self, request: Mapping[str, Any], now: float, wall: datetime) -> dict[str, Any]:
        """DescribeInstanceStatus; running ones only, unless all are asked for."""
        wanted = request.get("InstanceIds")
        if wanted:
            chosen = self.seen(wanted, now)
        else:
            chosen = [one for one in self.all.values() if one.visible <= now and not self._unseen(one.id)]
        if not request.get("IncludeAllInstances"):
            chosen = [one for one in chosen if one.state == RUNNING]
        chosen = selected(chosen, request.get("Filters"), _status_facts, lambda one: one.tags)
        page, token = paged(chosen, request)
        return {"InstanceStatuses": [_status(one, now, wall) for one in page], **next_token(token)}


def check_ids(instance_ids: Iterable[str]) -> None:
    """See that these can be ids of instances.

    Raises:
        AwsError: one cannot.
    """
    for one in instance_ids:
        if not one.startswith("i-") or not all(sign in "0123456789abcdef" for sign in one[2:]) or len(one) < 10:
            raise AwsError("InvalidInstanceID.Malformed", f'Invalid id: "{one}"')


def _facts(one: Instance, state: str) -> Mapping[str, Iterable[str]]:
    return {
        "instance-state-name": (state,),
        "instance-state-code": (str(_CODES[state]),),
        "instance-id": (one.id,),
        "instance-type": (one.instance_type,),
        "instance-lifecycle": (one.lifecycle,) if one.lifecycle else (),
        "availability-zone": (one.zone,),
        "subnet-id": (one.subnet,),
        "vpc-id": (one.vpc,),
        "image-id": (one.image,),
        "architecture": (one.arch,),
        "private-dns-name": (one.dns,),
        "private-ip-address": (one.address,),
        "client-token": (one.token,) if one.token else (),
        "spot-instance-request-id": (one.spot_request,) if one.spot_request else (),
        "capacity-reservation-id": (one.capacity_reservation,) if one.capacity_reservation else (),
        "placement-group-name": (one.placement["GroupName"],) if one.placement.get("GroupName") else (),
        "instance.group-id": [group["GroupId"] for group in one.groups],
        "iam-instance-profile.arn": (one.profile["Arn"],) if one.profile else (),
        "reservation-id": (one.reservation_id,),
        "tenancy": (one.placement.get("Tenancy", "default"),),
        "key-name": (),
    }


def _status_facts(one: Instance) -> Mapping[str, Iterable[str]]:
    return {
        "instance-state-name": (one.state,),
        "instance-status.status": ("impaired" if "instance" in one.impaired else "ok",),
        "system-status.status": ("impaired" if "system" in one.impaired else "ok",),
        "event.code": [str(event["Code"]) for event in one.events],
        "availability-zone": (one.zone,),
        "event.instance-event-id": [str(event["InstanceEventId"]) for event in one.events],
    }


def _status(one: Instance, now: float, wall: datetime) -> dict[str, Any]:
    def summary(kind: str) -> dict[str, Any]:
        since = one.impaired.get(kind)
        if since is None:
            return {"Status": "ok", "Details": [{"Name": "reachability", "Status": "passed"}]}
        when = wall - timedelta(seconds=now - since)
        return {"Status": "impaired", "Details": [{"Name": "reachability", "Status": "failed", "ImpairedSince": when}]}

    return {
        "InstanceId": one.id,
        "AvailabilityZone": one.zone,
        "AvailabilityZoneId": one.zone_id,
        "InstanceState": described_state(one.state),
        "InstanceStatus": summary("instance"),
        "SystemStatus": summary("system"),
        "AttachedEbsStatus": summary("ebs"),
        "Events": one.events,
    }
