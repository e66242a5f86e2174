"""The account: everything that EC2 and the other services know, and the actions on it.

Sources: what is written shows late (https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html); client tokens
(https://docs.aws.amazon.com/AWSEC2/latest/APIReference/Run_Instance_Idempotency.html); boot modes (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ami-boot.html).
"""

import functools
import hashlib
import ipaddress
import itertools
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.ec2 import fleet, hardware, instances
from tests.support.ec2.faults import Script
from tests.support.ec2.filters import check_tags, tags_of
from tests.support.ec2.fleet import Candidate
from tests.support.ec2.images import Image, Images
from tests.support.ec2.instances import Instance, Instances
from tests.support.ec2.interfaces import check_interfaces
from tests.support.ec2.market import ON_DEMAND, SPOT, Market, chance
from tests.support.ec2.network import Network, SecurityGroup, Subnet
from tests.support.ec2.pools import SPREAD_LIMIT, Pools
from tests.support.ec2.protocol import AwsError, ec2_answer, ec2_page, stamp
from tests.support.ec2.shortages import shortage
from tests.support.ec2.templates import LaunchTemplates, check_user_data
from tests.support.ec2.timing import Timing

ACCOUNT: Final = "123456789012"
VPC, OTHER_VPC = "vpc-0d0e7a1100000001", "vpc-0d0e7a1100000002"
_DENIAL: Final = "You are not authorized to perform this operation."
USER_INITIATED: Final = "Client.UserInitiatedShutdown"
TOKEN_SECONDS: Final = 86_400.0
_BOOT_SECONDS: Final = (5.0, 20.0)
_ENDED_SECONDS: Final = 2.0
_MOST_LAG_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Setup:
    """How an emulator is started; all of it is plain JSON.

    Attributes:
        name: of the cluster; it tags what is seeded.
        endpoint: of its API server; "" has no cluster, so no instance ever joins.
        ca_bundle: base64 PEM.
        kubeconfig: path of an admin's.
        version: of Kubernetes, as EKS tells it.
        factor: how many of EC2's seconds pass in a real one.
        data: "full" or "small".
        rates: whether EC2's own rate limits hold.
        policies: IAM policy documents of the caller; empty: everything is allowed.
        quotas: vCPUs by "on-demand" and "spot"; missing: no limit.
        service_cidr: of the cluster's Services; an IPv6 one makes its pods have IPv6 addresses.
        lag: up to so many of EC2's seconds pass between a write and its being seen by Describe*, for every instance and template
            another time. Source: Amazon EC2 Developer Guide, eventual-consistency.
    """

    name: str = "dovetail"
    endpoint: str = ""
    ca_bundle: str = ""
    kubeconfig: str = ""
    version: str = "1.36"
    region: str = "us-west-2"
    seed: int = 1
    factor: float = 1.0
    data: str = "full"
    rates: bool = True
    service_cidr: str = "10.96.0.0/16"
    policies: tuple[Mapping[str, Any], ...] = ()
    quotas: Mapping[str, int] = field(default_factory=dict)
    spot_role: bool = True
    lag: float = 0.0

    @property
    def ipv6(self) -> bool:
        """Whether pods of the cluster have IPv6 addresses."""
        return ":" in self.service_cidr


@dataclass(frozen=True)
class _Used:
    """A client token of a fleet: what was asked with it, what was answered, when, and the instances."""

    asked: str
    answer: dict[str, Any]
    at: float
    instances: list[Instance]


class World:
    """One account in one region. `lock` guards all of it; actions are called with it held.

    Args:
        setup: how it was started.
        boots: what an instance does when it has booted; called without the lock.
        boots_again: likewise, when it has been rebooted, with its new boot ID.
        ends: likewise, when it has been terminated.
        told: gets events as EventBridge would, in the order of their happening.
    """

    def __init__(
        self,
        setup: Setup,
        profile_role: Callable[[str], tuple[str, str] | None],
        *,
        boots: Callable[[Instance], None],
        boots_again: Callable[[Instance, str], None],
        ends: Callable[[Instance], None],
        told: Callable[[dict[str, Any]], None],
    ) -> None:
        self.setup = setup
        self.lock = threading.RLock()
        self.timing = Timing(setup.factor)
        self.market = Market(setup.region, setup.seed, setup.data)
        self.network = Network(ACCOUNT)
        self.images = Images(ACCOUNT, setup.region)
        self.pools = Pools(ACCOUNT)
        self.templates = LaunchTemplates()
        self.script = Script(self.timing.seconds, self._cheapest)
        self.instances = Instances(self.script.unseen)
        self.volumes: dict[str, dict[str, Any]] = {}
        self._profile_role = profile_role
        self._boots, self._boots_again, self._ends, self._told = boots, boots_again, ends, told
        self._made = 0
        self._fleets: dict[str, _Used] = {}
        self._runs: dict[str, tuple[str, bytes]] = {}
        self._events = 0
        self._seed_network()

    # ------------------------------------------------------------------ seeding

    def _seed_network(self) -> None:
        discovery = {"karpenter.sh/discovery": self.setup.name}
        owned = {f"kubernetes.io/cluster/{self.setup.name}": "owned"}
        for index, zone in enumerate(self.market.zones[:3]):
            self.add_subnet(zone, f"10.0.{index * 32}.0/19", {**discovery, "Name": f"private-{zone}"})
        self.add_group("sg-0d0e7a1100000001", f"{self.setup.name}-node", VPC, {**discovery, **owned})
        self.add_group("sg-0d0e7a1100000002", "default", VPC, {})
        self.add_group("sg-0d0e7a1100000003", "elsewhere", OTHER_VPC, {})

    def add_subnet(self, zone: str, cidr: str, tags: Mapping[str, str], vpc: str = VPC) -> Subnet:
        """One more subnet."""
        subnet_id = f"subnet-{hashlib.blake2b(cidr.encode(), digest_size=9).hexdigest()[:17]}"
        made = Subnet(subnet_id, vpc, zone, self.market.zone_id(zone), ipaddress.IPv4Network(cidr), dict(tags))
        self.network.subnets[subnet_id] = made
        return made

    def add_group(self, group_id: str, name: str, vpc: str, tags: Mapping[str, str]) -> None:
        """One more security group."""
        self.network.groups[group_id] = SecurityGroup(group_id, name, vpc, dict(tags))

    @functools.lru_cache(maxsize=16)  # noqa: B019  (there is one world a process)
    def _cheapest(self, share: float) -> frozenset[tuple[str, str, str]]:
        zones = {one.zone for one in self.network.subnets.values()}
        return self.market.cheapest(share, zones, self.timing.now())

    # ------------------------------------------------------------------ launching

    def create_fleet(self, request: Mapping[str, Any], stale: float) -> dict[str, Any]:
        """CreateFleet."""
        kind = fleet.check(request)
        asked = fleet.fingerprint(request)
        token = request.get("ClientToken", "")
        used = self._fleets.get(token)
        if used is not None and self._has_expired(used):
            del self._fleets[token]
            used = None
        if used is not None:
            told = used.answer
            if used.asked != asked:
                raise AwsError(
                    "IdempotentParameterMismatch",
                    "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).",
                )
            if not request.get("DryRun"):
                trouble = self.script.replay(request)
                if trouble is not None and trouble.code:
                    raise AwsError(trouble.code, trouble.message or "by script", trouble.status)
                return told if trouble is None else {"FleetId": told["FleetId"], "Errors": [], "Instances": []}
        found = fleet.candidates(request, functools.partial(self._template, stale=stale), self._zone_of)
        if request.get("DryRun"):
            unknown = [one.instance_type for one in found if one.instance_type not in self.market.types]
            if unknown:
                raise AwsError("InvalidParameterValue", f"Invalid value '{unknown[0]}' for InstanceType.")
            raise dry_run()
        self._made += 1
        fleet_id = f"fleet-{self._hex('fleet', self._made, 8)}"
        tags = tags_of(request, "instance")
        volume_tags = tags_of(request, "volume")
        tried = fleet.ordered(found, request, kind, self.market, self.timing.now())
        budget = _total(request, kind)
        spent = 0.0

        def launch(one: Candidate) -> Instance:
            nonlocal spent
            price = (
                self.market.price(one.instance_type, one.zone, SPOT if kind == SPOT else ON_DEMAND, self.timing.now())
                if one.instance_type in self.market.types
                else 0.0
            )
            limit = one.override.get("MaxPrice")
            if kind == SPOT and limit and float(limit) < price:
                raise shortage("MaxPrice", limit=limit, price=f"{price:.4f}")
            if budget is not None and spent + price > budget:
                raise AwsError("MaxTotalPriceExceeded", "The maximum total price of the fleet is reached.")
            try:
                made = self.launch(one, kind, {**tags, "aws:ec2:fleet-id": fleet_id}, volume_tags, token)
            except AwsError as error:
                if error.code == "Unsupported" and "Availability Zone" in error.message:
                    said = error.message.partition(" Please")[0]
                    raise AwsError("InvalidFleetConfiguration", said) from None
                raise
            spent += price
            return made

        def depth(one: Candidate) -> float:
            return self.market.depth(one.instance_type, one.zone)

        if fleet.least_of(request, kind):
            launched, refused = fleet.allocate_whole(tried, request, kind, launch, depth, self._forget)
        else:
            launched, refused = fleet.allocate(tried, request, kind, launch, depth)
        answer = fleet.answer(fleet_id, launched, refused, SPOT if kind == SPOT else ON_DEMAND)
        if token:
            self._fleets[token] = _Used(
                asked, answer, self.timing.seconds(), [instance for _, made in launched for instance in made]
            )
        return answer

    def _has_expired(self, used: "_Used") -> bool:
        """Whether EC2 has forgotten a client token: a day after the last of its instances ended.

        Source: Amazon EC2 API Reference, "Ensuring idempotency" (Run_Instance_Idempotency), which says it of RunInstances and promises no less.
        """
        ended = [one.states[-1][0] for one in used.instances if one.state == instances.TERMINATED]
        if len(ended) < len(used.instances):
            return False
        return self.timing.seconds() - max([used.at, *ended]) > TOKEN_SECONDS

    def run_instances(self, request: Mapping[str, Any], stale: float) -> bytes:
        """RunInstances."""
        asked = fleet.fingerprint(request)
        token = request.get("ClientToken", "")
        if token in self._runs and not request.get("DryRun"):
            known, page = self._runs[token]
            if known != asked:
                raise AwsError(
                    "IdempotentParameterMismatch",
                    "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).",
                )
            return page
        template: Mapping[str, str] = {}
        data: Mapping[str, Any] = {}
        if specification := request.get("LaunchTemplate"):
            template, data = self._template(specification, stale=stale)
        data = {
            **data,
            **{
                name: value
                for name, value in request.items()
                if name not in {"LaunchTemplate", "TagSpecifications", "ClientToken", "DryRun"}
            },
        }
        if data.get("UserData"):
            check_user_data(data["UserData"])
        market = data.get("InstanceMarketOptions", {}).get("MarketType", "")
        kind = {
            "spot": SPOT,
            "capacity-block": fleet.CAPACITY_BLOCK,
            "interruptible-capacity-reservation": fleet.RESERVED,
        }.get(market, ON_DEMAND)
        one = fleet.candidate(
            template,
            data,
            {name: request[name] for name in ("InstanceType", "SubnetId", "ImageId") if name in request},
            self._zone_of,
        )
        self.check(one, kind)
        if request.get("DryRun"):
            raise dry_run()
        tags, volume_tags = tags_of(request, "instance"), tags_of(request, "volume")
        made: list[Instance] = []
        for _ in range(int(request.get("MaxCount", 1))):
            try:
                made.append(self.launch(one, kind, tags, volume_tags, token))
            except AwsError:
                if len(made) < int(request.get("MinCount", 1)):
                    for instance in made:
                        self._forget(instance)
                    raise
                break
        told = {
            "ReservationId": made[0].reservation_id,
            "OwnerId": ACCOUNT,
            "Instances": [instance.described() for instance in made],
        }
        page = ec2_answer("RunInstances", told)
        if token:
            self._runs[token] = asked, page
        return page

    def _template(self, specification: Mapping[str, Any], stale: float) -> tuple[Mapping[str, str], Mapping[str, Any]]:
        youngest = self.timing.seconds() - stale if stale else float("inf")
        found = self.templates.find(specification, youngest)
        number = found.version(str(specification.get("Version", "")))
        return {"LaunchTemplateId": found.id, "Version": str(number)}, found.versions[number - 1]

    def _zone_of(self, subnet: str) -> str:
        found = self.network.subnets.get(subnet)
        return found.zone if found else ""

    def check(self, one: Candidate, kind: str) -> tuple[Subnet, Image, list[str], dict[str, str] | None]:
        """What EC2 looks at before it looks for an instance.

        Raises:
            AwsError: the launch cannot be, whatever capacity there is.
        """
        described = self.market.types.get(one.instance_type)
        if described is None:
            raise AwsError("InvalidParameterValue", f"Invalid value '{one.instance_type}' for InstanceType.")
        if not one.subnet:
            raise AwsError("MissingInput", f"No subnets found for the default VPC '{VPC}'. Please specify a subnet.")
        subnet = self.network.subnet(one.subnet)
        zone = one.override.get("AvailabilityZone")
        if zone and zone != subnet.zone:
            raise AwsError("InvalidParameterValue", f"The availability zone {zone} is not that of subnet {subnet.id}.")
        if not self.market.is_offered(one.instance_type, subnet.zone):
            others = ", ".join(place for place in self.market.zones if self.market.is_offered(one.instance_type, place))
            raise AwsError(
                "Unsupported",
                f"Your requested instance type ({one.instance_type}) is not supported in your requested Availability Zone"
                f" ({subnet.zone}). Please retry your request by not specifying an Availability Zone or choosing {others}.",
            )
        usage = {SPOT: SPOT, fleet.CAPACITY_BLOCK: fleet.CAPACITY_BLOCK}.get(kind, ON_DEMAND)
        if usage not in self.market.usage_classes(one.instance_type):
            raise AwsError(
                "Unsupported",
                f"The requested configuration is currently not supported: {usage} for {one.instance_type}.",
            )
        image = self.images.image(one.image)
        architectures = described["ProcessorInfo"].get("SupportedArchitectures", ())
        if image.arch not in architectures:
            raise AwsError(
                "InvalidParameterValue",
                f"The architecture '{','.join(architectures)}' of the specified instance type does not match the architecture"
                f" '{image.arch}' of the specified AMI. Specify an instance type and an AMI that have matching architectures, and try again.",
            )
        interfaces = one.data.get("NetworkInterfaces") or ()
        _check_hardware(described, image)
        check_interfaces(described, interfaces)
        hardware.check_addresses(described, interfaces)
        hardware.check_tenancy(described, one.data.get("Placement") or {})
        _check_devices(image, one.data.get("BlockDeviceMappings") or ())
        groups = [group for interface in interfaces for group in interface.get("Groups") or ()]
        groups = list(dict.fromkeys(groups or one.data.get("SecurityGroupIds") or ["sg-0d0e7a1100000002"]))
        self.network.check(subnet, groups)
        return subnet, image, groups, self._profile(one.data.get("IamInstanceProfile") or {})

    def _profile(self, wanted: Mapping[str, str]) -> dict[str, str] | None:
        name = wanted.get("Name") or wanted.get("Arn", "").rpartition("/")[2]
        if not name:
            return None
        found = self._profile_role(name)
        if found is None:
            raise AwsError(
                "InvalidParameterValue",
                f"Value ({name}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
            )
        return {"Arn": found[0], "Id": f"AIPA{self._hex('profile', name, 8).upper()}"}

    def launch(
        self, one: Candidate, kind: str, tags: Mapping[str, str], volume_tags: Mapping[str, str], token: str
    ) -> Instance:
        """One instance.

        Raises:
            AwsError: there is none to be had, or the launch cannot be.
        """
        subnet, image, groups, profile = self.check(one, kind)
        interfaces = one.data.get("NetworkInterfaces") or [{"DeviceIndex": 0, "Groups": groups}]
        addressed = [interface for interface in interfaces if interface.get("InterfaceType") != "efa-only"]
        prefixes = sum(int(interface.get("Ipv4PrefixCount") or 0) for interface in addressed)
        subnet.check(len(addressed), prefixes)
        self._check_parameters(one, subnet.zone, kind)
        self._check_quota(one.instance_type, kind)
        placement, group = self._place(one, subnet.zone)
        reservation = self._reserve(one, subnet.zone, kind)
        if not reservation:
            self._check_capacity(one.instance_type, subnet.zone, kind)
        self._made += 1
        number = self._made
        instance_id = f"i-0{self._hex('machine', number, 8)}"
        blocks = [subnet.take_prefix() for _ in range(prefixes)]  # first: an address may be in the middle of one
        addresses = [*(subnet.take() for _ in addressed), *itertools.chain(*blocks)]
        address = addresses[0]
        now, seconds = self.timing.now(), self.timing.seconds()
        suffix = "ec2.internal" if self.setup.region == "us-east-1" else f"{self.setup.region}.compute.internal"
        named = [{"GroupId": group_id, "GroupName": self.network.groups[group_id].name} for group_id in groups]
        made = Instance(
            id=instance_id,
            reservation_id=f"r-0{self._hex('reservation', number, 8)}",
            instance_type=one.instance_type,
            zone=subnet.zone,
            zone_id=subnet.zone_id,
            subnet=subnet.id,
            vpc=subnet.vpc,
            image=image.id,
            arch=image.arch,
            address=address,
            dns=f"ip-{address.replace('.', '-')}.{suffix}",
            capacity_type=SPOT if kind == SPOT else ON_DEMAND,
            lifecycle={
                SPOT: SPOT,
                fleet.CAPACITY_BLOCK: "capacity-block",
                fleet.RESERVED: "interruptible-capacity-reservation",
            }.get(kind, ""),
            groups=named,
            interfaces=[
                self._interface(interface, number, index, subnet, addresses, addressed, named)
                for index, interface in enumerate(interfaces)
            ],
            volumes=[],
            data=one.data,
            tags={
                **tags_of(one.data, "instance"),
                **tags,
                **(
                    {
                        "aws:ec2launchtemplate:id": one.template["LaunchTemplateId"],
                        "aws:ec2launchtemplate:version": one.template["Version"],
                    }
                    if one.template
                    else {}
                ),
            },
            launched=now.replace(microsecond=0),
            born=seconds,
            visible=seconds
            + max(_MOST_LAG_SECONDS * chance(self.setup.seed, "visible", instance_id), self.lag(instance_id)),
            lag=self.lag(instance_id),
            protected=bool(one.data.get("DisableApiTermination")) and kind != SPOT,
            states=[(seconds, instances.PENDING)],
            profile=profile,
            spot_request=f"sir-{self._hex('spot', number, 4)}" if kind == SPOT else "",
            token=token,
            placement=placement,
            capacity_reservation=reservation,
            platform="windows" if image.family == "windows" else "",
            addresses=addresses,
        )
        made.tagged = [(seconds, made.tags)]
        made.volumes = self._volumes(made, image, {**tags_of(one.data, "volume"), **volume_tags})
        self.instances.all[instance_id] = made
        if reservation:
            self.pools.reservations[reservation].used.add(instance_id)
        if group:
            self.pools.groups[group].members.setdefault(subnet.zone, set()).add(instance_id)
        self._start(made)
        return made

    def lag(self, resource: str) -> float:
        """By how many seconds reads tell of a resource late."""
        return self.setup.lag * chance(self.setup.seed, "lag", resource)

    def _interface(
        self,
        asked: Mapping[str, Any],
        number: int,
        index: int,
        subnet: Subnet,
        addresses: list[str],
        addressed: list[Any],
        groups: list[dict[str, str]],
    ) -> dict[str, Any]:
        kind = asked.get("InterfaceType") or "interface"
        place = next((at for at, one in enumerate(addressed) if one is asked), None)
        described: dict[str, Any] = {
            "NetworkInterfaceId": f"eni-0{self._hex('interface', f'{number}/{index}', 8)}",
            "SubnetId": subnet.id,
            "VpcId": subnet.vpc,
            "OwnerId": ACCOUNT,
            "Status": "in-use",
            "InterfaceType": kind,
            "SourceDestCheck": True,
            "Groups": groups,
            "Attachment": {
                "AttachmentId": f"eni-attach-0{self._hex('attachment', f'{number}/{index}', 8)}",
                "DeviceIndex": asked.get("DeviceIndex", 0),
                "NetworkCardIndex": asked.get("NetworkCardIndex", 0),
                "Status": "attached",
                "DeleteOnTermination": True,
            },
        }
        if place is not None:
            described |= {
                "PrivateIpAddress": addresses[place],
                "PrivateIpAddresses": [{"Primary": True, "PrivateIpAddress": addresses[place]}],
            }
        return described

    def _volumes(self, instance: Instance, image: Image, tags: Mapping[str, str]) -> list[dict[str, Any]]:
        devices = {one["DeviceName"]: dict(one["Ebs"]) for one in image.devices}
        for one in instance.data.get("BlockDeviceMappings") or ():
            devices[one["DeviceName"]] = {**devices.get(one["DeviceName"], {}), **(one.get("Ebs") or {})}
        found = []
        for index, (name, ebs) in enumerate(devices.items()):
            volume_id = f"vol-0{self._hex('volume', f'{instance.id}/{index}', 8)}"
            keep = ebs.get("DeleteOnTermination", True) is False
            self.volumes[volume_id] = {
                "VolumeId": volume_id,
                "Size": ebs.get("VolumeSize", 8),
                "VolumeType": ebs.get("VolumeType", "gp2"),
                "Iops": ebs.get("Iops", 3000),
                "Throughput": ebs.get("Throughput"),
                "Encrypted": bool(ebs.get("Encrypted")),
                "KmsKeyId": ebs.get("KmsKeyId"),
                "SnapshotId": ebs.get("SnapshotId", ""),
                "AvailabilityZone": instance.zone,
                "CreateTime": instance.launched,
                "State": "in-use",
                "Attachments": [
                    {
                        "InstanceId": instance.id,
                        "Device": name,
                        "State": "attached",
                        "DeleteOnTermination": not keep,
                        "VolumeId": volume_id,
                    }
                ],
                "Tags": [{"Key": key, "Value": value} for key, value in sorted(tags.items())],
            }
            found.append(
                {
                    "DeviceName": name,
                    "Ebs": {
                        "VolumeId": volume_id,
                        "Status": "attached",
                        "AttachTime": instance.launched,
                        "DeleteOnTermination": not keep,
                    },
                }
            )
        return found

    def _check_quota(self, instance_type: str, kind: str) -> None:
        limit = self.setup.quotas.get(SPOT if kind == SPOT else ON_DEMAND)
        if limit is None:
            return
        wanted = self._vcpus(instance_type)
        running = sum(
            self._vcpus(one.instance_type)
            for one in self.instances.all.values()
            if one.state not in {instances.TERMINATED, instances.SHUTTING_DOWN}
            and (one.capacity_type == SPOT) == (kind == SPOT)
        )
        if running + wanted > limit:
            if kind == SPOT:
                raise shortage("DefaultTargetCapacityType")
            raise shortage("TotalTargetCapacity", limit=limit)

    def _vcpus(self, instance_type: str) -> int:
        return int(self.market.types[instance_type]["VCpuInfo"]["DefaultVCpus"])

    def _place(self, one: Candidate, zone: str) -> tuple[dict[str, Any], str]:
        asked = one.data.get("Placement") or {}
        placement: dict[str, Any] = {"Tenancy": asked.get("Tenancy", "default")}
        if not asked.get("GroupId") and not asked.get("GroupName"):
            return placement, ""
        group = self.pools.group(group_id=asked.get("GroupId", ""), name=asked.get("GroupName", ""))
        members = group.members.get(zone, set())
        if group.strategy == "spread" and len(members) >= SPREAD_LIMIT:
            raise shortage("GroupId", zone=zone)
        if group.strategy == "cluster" and any(group.members.get(other) for other in group.members if other != zone):
            raise AwsError(
                "InsufficientInstanceCapacity",
                f"The cluster placement group {group.name} is in another Availability Zone.",
            )
        placement |= {"GroupName": group.name, "GroupId": group.id}
        if group.strategy == "partition":
            placement["PartitionNumber"] = asked.get("PartitionNumber") or group.given % group.partitions + 1
            group.given += 1
        return placement, group.name

    def _reserve(self, one: Candidate, zone: str, kind: str) -> str:
        """The reservation that the instance uses; "" for none."""
        specification = one.data.get("CapacityReservationSpecification") or {}
        wanted = (specification.get("CapacityReservationTarget") or {}).get("CapacityReservationId", "")
        preference = specification.get("CapacityReservationPreference", "open")
        if wanted:
            found = self.pools.reservation(wanted)
            if found.available < 1 or (found.instance_type, found.zone) != (one.instance_type, zone):
                raise shortage("CapacityReservationId")
            if (found.kind == "capacity-block") != (kind == fleet.CAPACITY_BLOCK) or found.interruptible != (
                kind == fleet.RESERVED
            ):
                raise AwsError(
                    "InvalidParameterValue", f"The reservation {wanted} cannot be used by a launch of {kind}."
                )
            return str(wanted)
        if preference == "none" or kind != ON_DEMAND:
            return ""
        for other in self.pools.reservations.values():
            if (
                other.match == "open"
                and other.kind == "default"
                and not other.interruptible
                and other.available
                and (other.instance_type, other.zone) == (one.instance_type, zone)
            ):
                return other.id
        if preference == "capacity-reservations-only":
            raise AwsError(
                "ReservationCapacityExceeded",
                "There is no capacity reservation with matching attributes and available capacity.",
            )
        return ""

    def _check_capacity(self, instance_type: str, zone: str, kind: str) -> None:
        bought = SPOT if kind == SPOT else ON_DEMAND
        if kind == SPOT and not self.setup.spot_role:
            raise AwsError(
                "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
                "The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances.",
            )
        fault = self.script.shortage(instance_type, zone, bought)
        if fault is not None:
            usual = shortage("SpotOptions" if bought == SPOT else "InstanceType", type=instance_type, zone=zone)
            raise AwsError(fault.code or usual.code, fault.message or usual.message)

    def _check_parameters(self, one: Candidate, zone: str, kind: str) -> None:
        """Shortages by script that only launches with a certain parameter meet."""
        asked = json.dumps(one.data, default=str)
        fault = self.script.shortage(
            one.instance_type, zone, SPOT if kind == SPOT else ON_DEMAND, lambda parameter: f'"{parameter}"' in asked
        )
        if fault is not None:
            raise shortage(fault.parameter, type=one.instance_type, zone=zone, subnet=one.subnet)

    def _start(self, instance: Instance) -> None:
        seed = self.setup.seed
        self.timing.after(
            1.0 + 2.0 * chance(seed, "running", instance.id),
            lambda: self._turn(instance, instances.PENDING, instances.RUNNING),
        )
        least, most = _BOOT_SECONDS
        seconds = least + (most - least) * chance(seed, "boot", instance.id)
        seconds += self.script.slower(instance.instance_type, instance.zone, instance.capacity_type)
        self.timing.after(seconds, lambda: self._boot(instance))
        self._tell_state(instance, instances.PENDING)
        fault = self.script.ends_at_launch(instance.instance_type, instance.zone, instance.capacity_type)
        if fault is not None:
            self.timing.after(fault.seconds or _ENDED_SECONDS, lambda: self._end_at_launch(instance, fault.code))

    def _end_at_launch(self, instance: Instance, code: str) -> None:
        """EC2 gives it up; what the console shows first is always the server's, whoever's fault it is."""
        with self.lock:
            if instance.state in {instances.PENDING, instances.RUNNING}:
                self.end(instance, "Server.InternalError" if code == "Client.InternalError" else code, code)

    def _boot(self, instance: Instance) -> None:
        if instance.state in {instances.PENDING, instances.RUNNING}:
            self._turn(instance, instances.PENDING, instances.RUNNING)
            self._boots(instance)

    def _turn(self, instance: Instance, before: str, after: str) -> None:
        with self.lock:
            if instance.state != before:
                return
            instance.turn(after, self.timing.seconds())
            if after == instances.TERMINATED:
                self._release(instance)
            self._tell_state(instance, after)
        if after in {instances.TERMINATED, instances.STOPPED}:
            self._ends(instance)

    def _forget(self, instance: Instance) -> None:
        self._release(instance)
        instance.turn(instances.TERMINATED, self.timing.seconds())
        self.instances.all.pop(instance.id, None)

    def _release(self, instance: Instance) -> None:
        subnet = self.network.subnets[instance.subnet]
        for address in instance.addresses:
            subnet.give_back(address)
        instance.addresses = []
        for volume in instance.volumes:
            if volume["Ebs"]["DeleteOnTermination"]:
                self.volumes.pop(volume["Ebs"]["VolumeId"], None)
        if instance.capacity_reservation in self.pools.reservations:
            self.pools.reservations[instance.capacity_reservation].used.discard(instance.id)
        for group in self.pools.groups.values():
            for members in group.members.values():
                members.discard(instance.id)

    # ------------------------------------------------------------------ instances

    def describe_instances(self, request: Mapping[str, Any], stale: float) -> bytes:
        """DescribeInstances."""
        return ec2_page("DescribeInstances", self.instances.describe(request, self.timing.seconds(), stale))

    def cancel_reservation(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """CancelCapacityReservation. Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-reservations-release.html."""
        for one in self.pools.cancel_reservation(request):
            self.instances.all[one].leave_reservation()
        return {"Return": True}

    def terminate_instances(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """TerminateInstances: all or, where one id is unknown, none; of a zone with a protected one none."""
        found = self.instances.known(request.get("InstanceIds") or (), self.timing.seconds())
        if request.get("DryRun"):
            raise dry_run()
        protected = [one for one in found if one.protected]
        held = {one.zone for one in protected}
        changes = []
        for one in found:
            if one.zone in held:
                continue
            before = one.state
            if before not in {instances.SHUTTING_DOWN, instances.TERMINATED}:
                self.end(one, f"User initiated ({self.timing.now():%Y-%m-%d %H:%M:%S} GMT)", USER_INITIATED)
            changes.append(
                {
                    "InstanceId": one.id,
                    "PreviousState": instances.described_state(before),
                    "CurrentState": instances.described_state(one.state),
                }
            )
        if protected:
            raise AwsError(
                "OperationNotPermitted",
                f"The instance '{protected[0].id}' may not be terminated. Modify its 'disableApiTermination' instance attribute and try again.",
            )
        return {"TerminatingInstances": changes}

    def reboot_instances(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """RebootInstances: all or, where one id is unknown, none; those that end, or do not run, are ignored. It only queues them.

        Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RebootInstances.html
        """
        found = self.instances.known(request.get("InstanceIds") or (), self.timing.seconds())
        if request.get("DryRun"):
            raise dry_run()
        for one in found:
            if one.state != instances.RUNNING:
                continue
            one.boots += 1
            seconds = 20.0 + 40.0 * chance(self.setup.seed, "reboot", one.id, str(one.boots))
            self.timing.after(seconds, functools.partial(self._boots_again, one, f"{one.id}-{one.boots}"))
        return {}

    def modify_instance(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """ModifyInstanceAttribute, of termination protection alone; spot instances cannot have it."""
        (one,) = self.instances.known([request["InstanceId"]], self.timing.seconds())
        wanted = request.get("DisableApiTermination")
        if wanted is None:
            raise AwsError("InvalidParameterCombination", "No attributes specified.")
        if one.lifecycle == SPOT:
            raise AwsError("UnsupportedOperation", "You can't modify the attribute of a Spot Instance.")
        one.protected = bool(wanted.get("Value"))
        return {}

    def end(self, instance: Instance, reason: str, code: str) -> None:
        """Shut an instance down, and some seconds later it is terminated; `code` is that of its StateReason."""
        instance.reason, instance.reason_code, instance.ended = reason, code, self.timing.now()
        instance.turn(instances.SHUTTING_DOWN, self.timing.seconds())
        self._tell_state(instance, instances.SHUTTING_DOWN)
        seconds = 3.0 + 12.0 * chance(self.setup.seed, "end", instance.id)
        self.timing.after(seconds, lambda: self._turn(instance, instances.SHUTTING_DOWN, instances.TERMINATED))

    def stop(self, instance: Instance) -> None:
        """Stop an instance, as its owner or a retirement does."""
        instance.turn(instances.STOPPING, self.timing.seconds())
        self._tell_state(instance, instances.STOPPING)
        self.timing.after(5.0, lambda: self._turn(instance, instances.STOPPING, instances.STOPPED))

    def change_tags(self, request: Mapping[str, Any], *, remove: bool) -> dict[str, Any]:
        """CreateTags and DeleteTags; all resources or none."""
        if request.get("DryRun"):
            raise dry_run()
        tags = {one["Key"]: one.get("Value", "") for one in request.get("Tags") or ()}
        check_tags(tags)
        changes: list[Callable[[], None]] = []
        for resource in request.get("Resources") or ():
            kind = resource.rpartition("-")[0]
            if kind == "i":
                one = self.instances.known([resource], self.timing.seconds())[0]
                changes.append(
                    functools.partial(one.tag, {} if remove else tags, self.timing.seconds(), tags if remove else ())
                )
            else:
                changes.append(functools.partial(_retag, self._tags_of(resource, kind), tags, remove=remove))
        for change in changes:
            change()
        return {}

    def _tags_of(self, resource: str, kind: str) -> dict[str, str]:
        if kind == "lt":
            return self.templates.find({"LaunchTemplateId": resource}).tags
        found: dict[str, dict[str, Any]] = {
            "subnet": {one.id: one.tags for one in self.network.subnets.values()},
            "sg": {one.id: one.tags for one in self.network.groups.values()},
            "ami": {one.id: one.tags for one in self.images.images.values()},
            "cr": {one.id: one.tags for one in self.pools.reservations.values()},
            "pg": {one.id: one.tags for one in self.pools.groups.values()},
        }
        if resource not in found.get(kind, {}):
            raise AwsError("InvalidID", f"The ID '{resource}' is not valid")
        tags: dict[str, str] = found[kind][resource]
        return tags

    def describe_volumes(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """DescribeVolumes, by id or all."""
        wanted = request.get("VolumeIds")
        rows = [one for one in self.volumes.values() if not wanted or one["VolumeId"] in wanted]
        for one in request.get("Filters") or ():
            if one["Name"] != "attachment.instance-id":
                raise AwsError("InvalidParameterValue", f"The filter '{one['Name']}' is invalid")
            rows = [row for row in rows if row["Attachments"][0]["InstanceId"] in one["Values"]]
        return {"Volumes": rows}

    # ------------------------------------------------------------------ events

    def _tell_state(self, instance: Instance, state: str) -> None:
        self.tell(
            "aws.ec2",
            "EC2 Instance State-change Notification",
            {"instance-id": instance.id, "state": state},
            instance.id,
        )

    def tell(self, source: str, kind: str, detail: Mapping[str, Any], *instance_ids: str) -> dict[str, Any]:
        """An event as EventBridge writes it."""
        self._events += 1
        event = {
            "version": "0",
            "id": f"{self._hex('event', self._events, 4)}-0000-4000-8000-{self._events:012d}",
            "detail-type": kind,
            "source": source,
            "account": ACCOUNT,
            "time": stamp(self.timing.now())[:19] + "Z",
            "region": self.setup.region,
            "resources": [f"arn:aws:ec2:{self.setup.region}:{ACCOUNT}:instance/{one}" for one in instance_ids],
            "detail": dict(detail),
        }
        self._told(event)
        return event

    def _hex(self, kind: str, number: object, size: int) -> str:
        return hashlib.blake2b(f"{self.setup.seed}|{kind}|{number}".encode(), digest_size=size).hexdigest()


def _check_devices(image: Image, mappings: Iterable[Mapping[str, Any]]) -> None:
    """No volume is smaller than its snapshot. Source: https://github.com/aws/karpenter-provider-aws/issues/7928."""
    own = {one["DeviceName"]: one["Ebs"] for one in image.devices}
    for one in mappings:
        wanted = one.get("Ebs") or {}
        snapshot = own.get(one["DeviceName"])
        if snapshot is None or wanted.get("SnapshotId"):
            continue
        if (size := wanted.get("VolumeSize")) is not None and size < snapshot["VolumeSize"]:
            raise AwsError(
                "InvalidBlockDeviceMapping",
                f"Volume of size {size}GB is smaller than snapshot '{snapshot['SnapshotId']}', expect size>= {snapshot['VolumeSize']}GB",
            )


def _check_hardware(described: Mapping[str, Any], image: Image) -> None:
    """See that a type has the firmware and network adapter that an image wants.

    Source: Amazon EC2 User Guide, ami-boot and enhanced-networking-ena; the codes are not told there.

    Raises:
        AwsError: it has not.
    """
    name, network = described["InstanceType"], described.get("NetworkInfo") or {}
    boots = described.get("SupportedBootModes") or ()
    if boots and image.boot_mode in {"uefi", "legacy-bios"} and image.boot_mode not in boots:
        raise AwsError(
            "InvalidParameterCombination",
            f"The instance type {name} does not support the boot mode {image.boot_mode} of the specified AMI.",
        )
    if network.get("EnaSupport") == "required" and not image.ena:
        raise AwsError(
            "InvalidParameterCombination",
            f"Enhanced networking with the Elastic Network Adapter (ENA) is required for the '{name}' instance type."
            " Ensure that you are using an AMI that is enabled for ENA.",
        )


def dry_run() -> AwsError:
    """What a dry run that would succeed answers."""
    return AwsError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)


def denied(permission: str, resource: str = "*", message: str = "") -> AwsError:
    """What a call without permission answers; EC2's form."""
    said = (
        f"{_DENIAL} User: arn:aws:sts::{ACCOUNT}:assumed-role/karpenter/session is not authorized to perform:"
        f" {permission} on resource: {resource} because no identity-based policy allows the {permission} action."
    )
    return AwsError("UnauthorizedOperation", message or said, 403)


def _retag(kept: dict[str, str], tags: Mapping[str, str], *, remove: bool) -> None:
    if remove:
        for key in tags:
            kept.pop(key, None)
    else:
        kept.update(tags)


def _total(request: Mapping[str, Any], kind: str) -> float | None:
    options = request.get("SpotOptions" if kind == SPOT else "OnDemandOptions") or {}
    return float(options["MaxTotalPrice"]) if options.get("MaxTotalPrice") else None
