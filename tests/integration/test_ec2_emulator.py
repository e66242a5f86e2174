"""The emulator of EC2, seen through boto3's own client over HTTP: what it must get right for the tests that stand on it."""

import base64
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import pytest
import urllib3
from botocore.config import Config
from botocore.exceptions import ClientError, HTTPClientError

from provisioner.apis.core import Node
from provisioner.apis.meta import is_true
from provisioner.ec2.access import wire
from provisioner.ec2.access.client import AwsClients, CallPolicy
from provisioner.ec2.instances.instances import Ec2Instance
from provisioner.ec2.launch.userdata.inputs import JoinedCluster
from provisioner.ec2.launch.userdata.rendering import encoded, render
from provisioner.ec2.market import reads
from provisioner.ec2.market.prices import PriceBook
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.resources import NODES
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.support.clock import SystemClock
from tests.support import ec2pages
from tests.support.clock import NOON
from tests.support.ec2 import ClusterOfNodes, Ec2, Fault, in_turn
from tests.support.ec2.interfaces import check_interfaces
from tests.support.ec2.protocol import AwsError
from tests.support.ec2.templates import LaunchTemplates
from tests.support.eventually import PATIENCE, eventually
from tests.support.userdata import node as node_input
from tests.support.verdict_cases import user_data_case

FACTOR = 50.0
ONCE = Config(retries={"total_max_attempts": 1}, read_timeout=10)
AL2023 = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/{}/standard/recommended/image_id"
NAMES = (f"dovetail.dev/{number}" for number in itertools.count())
IMAGE_NUMBERS = itertools.count(0xEC2000)
TOKENS = (f"token-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def ec2() -> Iterator[Ec2]:
    """One that calls as often as it likes, in which time runs fifty times as fast."""
    with Ec2.start(None, clock_factor=FACTOR, data="small", rate_limits=False) as running:
        yield running


@pytest.fixture(autouse=True)
def no_faults(request: pytest.FixtureRequest) -> Iterator[None]:
    """A fault script ends with its test."""
    yield
    if "ec2" in request.fixturenames:
        request.getfixturevalue("ec2").script()


def call(ec2: Ec2, action: str, service: str = "ec2", **parameters: Any) -> Any:
    """One attempt of one call."""
    return getattr(ec2.client(service, config=ONCE), action)(**parameters)


def all_seen(ec2: Ec2, instances: list[str]) -> bool:
    """Whether calls that name these instances know all of them: each is shown a moment after its launch, at times of its own."""
    found = call(ec2, "describe_instances", Filters=[{"Name": "instance-id", "Values": instances}])
    return sum(len(one["Instances"]) for one in found["Reservations"]) == len(instances)


def code_of(ask: Callable[[], Any]) -> tuple[str, str]:
    """The error that a call ends in."""
    with pytest.raises(ClientError) as raised:
        ask()
    told = raised.value.response["Error"]
    return told["Code"], told["Message"]


def image(ec2: Ec2, arch: str = "x86_64") -> str:
    found: str = call(ec2, "get_parameter", "ssm", Name=AL2023.format(arch))["Parameter"]["Value"]
    return found


def template(ec2: Ec2, **data: Any) -> str:
    """A new launch template, by its name."""
    name = next(NAMES)
    usual = {
        "ImageId": image(ec2),
        "IamInstanceProfile": {"Name": ec2.vpc.profile},
        "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": list(ec2.vpc.groups)}],
    }
    call(ec2, "create_launch_template", LaunchTemplateName=name, LaunchTemplateData=usual | data)
    return name


def fleet(
    ec2: Ec2,
    types: Sequence[str] = ("m5.large",),
    *,
    zones: Sequence[int] = (0,),
    count: int = 1,
    kind: str = "on-demand",
    strategy: str = "",
    name: str = "",
    override: Mapping[str, Any] | None = None,
    **more: Any,
) -> Any:
    """CreateFleet over types x zones, priorities rising in that order."""
    places = [list(ec2.vpc.subnets.items())[index] for index in zones]
    overrides = [
        {
            "InstanceType": one,
            "SubnetId": subnet,
            "AvailabilityZone": zone,
            "Priority": float(number),
            **(override or {}),
        }
        for number, (one, (zone, subnet)) in enumerate(itertools.product(types, places))
    ]
    usual = "price-capacity-optimized" if kind == "spot" else "lowest-price"
    options = {"SpotOptions" if kind == "spot" else "OnDemandOptions": {"AllocationStrategy": strategy or usual}}
    return call(
        ec2,
        "create_fleet",
        **{
            "Type": "instant",
            "LaunchTemplateConfigs": [
                {
                    "LaunchTemplateSpecification": {"LaunchTemplateName": name or template(ec2), "Version": "$Latest"},
                    "Overrides": overrides,
                }
            ],
            "TargetCapacitySpecification": {"TotalTargetCapacity": count, "DefaultTargetCapacityType": kind},
            **options,
            **more,
        },
    )


def launched(answer: Any) -> Counter[tuple[str, str]]:
    """(type, zone) to how many."""
    found: Counter[tuple[str, str]] = Counter()
    for entry in answer["Instances"]:
        overrides = entry["LaunchTemplateAndOverrides"]["Overrides"]
        found[overrides["InstanceType"], overrides["AvailabilityZone"]] += len(entry["InstanceIds"])
    return found


def ids(answer: Any) -> list[str]:
    return [one for entry in answer["Instances"] for one in entry["InstanceIds"]]


def seen(ec2: Ec2, instance_id: str) -> Any:
    """One instance as DescribeInstances tells it, once it does."""

    def look() -> Any:
        found = call(ec2, "describe_instances", Filters=[{"Name": "instance-id", "Values": [instance_id]}])
        return [one for entry in found["Reservations"] for one in entry["Instances"]]

    return eventually(look, f"{instance_id} is told of")[0]


# ---------------------------------------------------------------------- CreateFleet


@dataclass(frozen=True)
class FleetCase:
    """What is asked, and what must come of it: by index of type and zone how many, and the codes of the errors."""

    kind: str = "on-demand"
    strategy: str = ""
    types: tuple[str, ...] = ("m5.large", "c5.large", "t3.small")
    zones: tuple[int, ...] = (0, 1)
    count: int = 1
    override: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)
    want: Mapping[str, int] = field(default_factory=dict)
    codes: tuple[str, ...] = ()


def short(**match: Any) -> Fault:
    """Nothing is left of these offerings, but for `available`."""
    available = match.pop("available", 0)
    return Fault(
        "*", "shortage", match={name.replace("_", "-"): value for name, value in match.items()}, available=available
    )


NO_CAPACITY = "InsufficientInstanceCapacity"
FLEETS = {
    "the lowest price is taken": FleetCase(want={"t3.small": 1}),
    "all of a fleet are of one offering while it lasts": FleetCase(count=7, want={"t3.small": 7}),
    "prioritized goes by priority": FleetCase(strategy="prioritized", want={"m5.large": 1}),
    "what is short is told and passed over": FleetCase(
        faults=(short(instance_type="t3.small"),), want={"c5.large": 1}, codes=(NO_CAPACITY, NO_CAPACITY)
    ),
    "a zone may be short": FleetCase(
        types=("t3.small",), faults=(short(zone="*a"),), want={"t3.small": 1}, codes=(NO_CAPACITY,)
    ),
    "a shortage of spot leaves on demand alone": FleetCase(faults=(short(capacity_type="spot"),), want={"t3.small": 1}),
    "a family may be short": FleetCase(faults=(short(family="t3"),), want={"c5.large": 1}, codes=(NO_CAPACITY,) * 2),
    "what is left of an offering is taken first": FleetCase(
        count=5,
        zones=(0,),
        faults=(short(instance_type="t3.small", available=2),),
        want={"t3.small": 2, "c5.large": 3},
        codes=(NO_CAPACITY,),
    ),
    "a fleet may be partial": FleetCase(
        count=5,
        zones=(0,),
        types=("t3.small", "c5.large"),
        faults=(short(available=2),),
        want={"t3.small": 2, "c5.large": 2},
        codes=(NO_CAPACITY, NO_CAPACITY),
    ),
    "nothing at all is an answer too": FleetCase(faults=(short(),), codes=(NO_CAPACITY,) * 6),
    "a least target is all or nothing": FleetCase(
        count=5,
        zones=(0,),
        types=("t3.small",),
        faults=(short(available=2),),
        more={
            "OnDemandOptions": {
                "AllocationStrategy": "lowest-price",
                "MinTargetCapacity": 3,
                "SingleInstanceType": True,
            }
        },
        codes=(NO_CAPACITY,),
    ),
    "a least target is reached in one zone": FleetCase(
        count=4,
        types=("t3.small",),
        faults=(short(zone="*a", available=3), short(zone="*b", available=4)),
        more={"OnDemandOptions": {"MinTargetCapacity": 4, "SingleInstanceType": True}},
        want={"t3.small": 4},
    ),
    "a least target that no zone has alone": FleetCase(
        count=4,
        types=("t3.small",),
        faults=(short(zone="*a", available=3), short(zone="*b", available=3)),
        more={"OnDemandOptions": {"MinTargetCapacity": 4, "SingleInstanceType": True}},
        codes=(NO_CAPACITY, NO_CAPACITY),
    ),
    "a least target of several types in a zone": FleetCase(
        count=4,
        zones=(0,),
        types=("t3.small", "c5.large"),
        faults=(short(available=2),),
        more={"OnDemandOptions": {"MinTargetCapacity": 4, "SingleAvailabilityZone": True}},
        want={"t3.small": 2, "c5.large": 2},
        codes=(NO_CAPACITY,),
    ),
    "a least target of spot": FleetCase(
        kind="spot",
        count=4,
        zones=(0,),
        types=("m5.large",),
        faults=(short(available=3),),
        more={"SpotOptions": {"MinTargetCapacity": 4, "SingleAvailabilityZone": True}},
        codes=(NO_CAPACITY,),
    ),
    "the cheapest of the region may be short": FleetCase(faults=(short(cheapest=1.0),), codes=(NO_CAPACITY,) * 6),
    "spot below its price is refused": FleetCase(
        kind="spot",
        types=("m5.large",),
        zones=(0,),
        override={"MaxPrice": "0.001"},
        codes=("SpotMaxPriceTooLow",),
    ),
    "spot above its price is sold": FleetCase(
        kind="spot", types=("m5.large",), zones=(0,), override={"MaxPrice": "0.2"}, want={"m5.large": 1}
    ),
    "spot by priority within deep pools": FleetCase(
        kind="spot", strategy="capacity-optimized-prioritized", types=("m5.large",), zones=(0,), want={"m5.large": 1}
    ),
    "a type of another architecture than the image": FleetCase(
        types=("m6g.large",), zones=(0,), codes=("InvalidParameterValue",)
    ),
    "a type that does not exist": FleetCase(types=("m5.tiny",), zones=(0,), codes=("InvalidParameterValue",)),
    "an image that does not exist": FleetCase(
        zones=(0,), types=("m5.large",), override={"ImageId": "ami-0123456789abcdef0"}, codes=("InvalidAMIID.NotFound",)
    ),
    "an image id that is none": FleetCase(
        zones=(0,), types=("m5.large",), override={"ImageId": "windows"}, codes=("InvalidAMIID.Malformed",)
    ),
    "a subnet that does not exist": FleetCase(
        zones=(0,), types=("m5.large",), override={"SubnetId": "subnet-0123"}, codes=("InvalidSubnetID.NotFound",)
    ),
    "another code may be scripted": FleetCase(
        zones=(0,),
        types=("m5.large",),
        faults=(Fault("*", "shortage", code="VcpuLimitExceeded", message="You have requested more vCPU capacity"),),
        codes=("VcpuLimitExceeded",),
    ),
}


@pytest.mark.parametrize("case", FLEETS.values(), ids=FLEETS)
def test_fleets(ec2: Ec2, case: FleetCase) -> None:
    ec2.script(case.faults)
    answer = fleet(
        ec2,
        case.types,
        zones=case.zones,
        count=case.count,
        kind=case.kind,
        strategy=case.strategy,
        override=case.override,
        **case.more,
    )
    by_type: Counter[str] = Counter()
    for (name, _), number in launched(answer).items():
        by_type[name] += number
    assert by_type == dict(case.want)
    assert [one["ErrorCode"] for one in answer["Errors"]] == list(case.codes)
    for error in answer["Errors"]:
        assert error["Lifecycle"] == case.kind
        assert error["LaunchTemplateAndOverrides"]["Overrides"]["InstanceType"] in case.types
    states = {one["id"]: one["state"] for one in ec2.instances()}
    assert all(states[one] in {"pending", "running"} for one in ids(answer))


def test_spot_takes_the_cheapest_of_the_deep_pools(ec2: Ec2) -> None:
    types = ("m5.large", "c5.large", "r5.large", "m6i.large", "c6i.large", "r6i.large")
    answer = fleet(ec2, types, zones=(0, 1, 2), kind="spot")
    (place,) = launched(answer)
    prices = ec2.prices((name, zone, "spot") for name in types for zone in ec2.vpc.zones)
    assert prices[*place, "spot"] <= sorted(prices.values())[len(prices) // 2]
    on_demand = ec2.prices((name, ec2.vpc.zones[0], "on-demand") for name in types)
    for (name, _, _), price in prices.items():
        assert 0.25 <= price / on_demand[name, ec2.vpc.zones[0], "on-demand"] <= 0.6


REFUSED: dict[str, tuple[Mapping[str, Any], str]] = {
    "a template that does not exist": (
        {
            "LaunchTemplateConfigs": [
                {"LaunchTemplateSpecification": {"LaunchTemplateName": "none", "Version": "$Latest"}}
            ]
        },
        "InvalidLaunchTemplateName.NotFoundException",
    ),
    "more than 50 templates": (
        {"LaunchTemplateConfigs": [{"LaunchTemplateSpecification": {"LaunchTemplateName": "none"}}] * 51},
        "InvalidParameterValue",
    ),
    "a least target anywhere": ({"OnDemandOptions": {"MinTargetCapacity": 1}}, "InvalidParameterCombination"),
    "a least target of spot anywhere": (
        {"kind": "spot", "SpotOptions": {"MinTargetCapacity": 1, "SingleInstanceType": False}},
        "InvalidParameterCombination",
    ),
    "a least target above 1000": (
        {"count": 1001, "OnDemandOptions": {"MinTargetCapacity": 1001, "SingleAvailabilityZone": True}},
        "InvalidParameterValue",
    ),
    "a least target of a fleet that is kept up": (
        {"Type": "maintain", "OnDemandOptions": {"MinTargetCapacity": 1, "SingleAvailabilityZone": True}},
        "InvalidParameterCombination",
    ),
    "a strategy of the other market": (
        {"OnDemandOptions": {"AllocationStrategy": "price-capacity-optimized"}},
        "InvalidFleetConfig",
    ),
    "a dry run": ({"DryRun": True}, "DryRunOperation"),
    "tags that are AWS's own": (
        {"TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "aws:x", "Value": ""}]}]},
        "InvalidParameterValue",
    ),
}


@pytest.mark.parametrize(("more", "code"), REFUSED.values(), ids=REFUSED)
def test_fleets_that_are_refused(ec2: Ec2, more: Mapping[str, Any], code: str) -> None:
    before = len(ec2.instances())
    assert code_of(lambda: fleet(ec2, **more))[0] == code
    assert len(ec2.instances()) == before


def test_a_client_token_launches_once(ec2: Ec2) -> None:
    name, token = template(ec2), next(TOKENS)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: fleet(ec2, count=3, name=name, ClientToken=token), range(8)))
    assert len({tuple(ids(one)) for one in answers}) == 1
    found = [one for one in ec2.instances() if one["id"] in ids(answers[0])]
    assert len(found) == 3
    assert code_of(lambda: fleet(ec2, count=4, name=name, ClientToken=token))[0] == "IdempotentParameterMismatch"


def test_a_repeated_call_need_not_answer_the_same(ec2: Ec2) -> None:
    name, token = template(ec2), next(TOKENS)
    ec2.script(
        [Fault("CreateFleet", "replay", times=1), Fault("CreateFleet", "replay", code="RequestInProgress", times=2)]
    )
    first = fleet(ec2, count=2, name=name, ClientToken=token)
    again = fleet(ec2, count=2, name=name, ClientToken=token)
    assert (again["FleetId"], ids(again), again["Errors"]) == (first["FleetId"], [], [])
    assert code_of(lambda: fleet(ec2, count=2, name=name, ClientToken=token))[0] == "RequestInProgress"
    assert ids(fleet(ec2, count=2, name=name, ClientToken=token)) == ids(first)


def test_a_client_token_is_forgotten_a_day_after_its_last_instance_ended() -> None:
    with Ec2.start(None, clock_factor=FACTOR, data="small", rate_limits=False) as own:
        name, token = template(own), next(TOKENS)
        first = ids(fleet(own, count=2, name=name, ClientToken=token))
        own.skip(30 * 86400)
        assert ids(fleet(own, count=2, name=name, ClientToken=token)) == first, "they run"
        call(own, "terminate_instances", InstanceIds=first)
        eventually(lambda: len(own.instances("terminated")) == 2, "they have ended")
        assert ids(fleet(own, count=2, name=name, ClientToken=token)) == first, "the same answer, older than their end"
        own.skip(2 * 86400)
        again = ids(fleet(own, count=2, name=name, ClientToken=token))
        assert len(again) == 2
        assert not {*again} & {*first}


def test_an_instant_fleet_may_have_more_than_300_overrides(ec2: Ec2) -> None:
    types = tuple(one["InstanceType"] for one in call(ec2, "describe_instance_types", MaxResults=100)["InstanceTypes"])
    many: dict[str, Any] = {"types": types * 2, "zones": (0, 1), "count": 1}
    assert len(ids(fleet(ec2, **many))) == 1
    assert code_of(lambda: fleet(ec2, **many, Type="request")) == (
        "InvalidParameterValue",
        "The number of overrides exceeds the maximum of 300.",
    )


def test_spot_comes_from_several_pools() -> None:
    with Ec2.start(None, clock_factor=FACTOR, data="small", rate_limits=False) as own:
        answer = fleet(own, ("m5.large", "c5.large", "r5.large"), zones=(0, 1, 2), kind="spot", count=30)
        pools = launched(answer)
        assert pools.total() == 30
        assert len(pools) > 1
        assert len(answer["Instances"]) == len(pools), "one entry for each"
        lowest = fleet(own, ("m5.large", "c5.large"), zones=(0, 1), kind="spot", strategy="lowest-price", count=30)
        assert len(launched(lowest)) == 1, "InstancePoolsToUseCount is 1 unless the request says more"


def test_a_type_that_its_zone_does_not_have(ec2: Ec2) -> None:
    (error,) = fleet(ec2, ("a1.large",), zones=(1,), override={"ImageId": image(ec2, "arm64")})["Errors"]
    assert error["ErrorCode"] == "InvalidFleetConfiguration"
    assert "not supported in your requested Availability Zone" in error["ErrorMessage"]


HARDWARE: dict[str, tuple[str, Mapping[str, Any], Mapping[str, Any], str]] = {
    "an image for UEFI on a type without": ("m5.metal", {"boot_mode": "uefi"}, {}, "boot mode uefi"),
    "an image for UEFI on a type with it": ("m5.large", {"boot_mode": "uefi"}, {}, ""),
    "an image that prefers UEFI": ("m5.metal", {"boot_mode": "uefi-preferred"}, {}, ""),
    "an image that does not say": ("m5.metal", {}, {}, ""),
    "an image without ENA": ("m5.large", {"ena": False}, {}, "ENA"),
    "an EFA interface where there is none": ("m5.large", {}, {"InterfaceType": "efa"}, "EFA"),
    "an EFA interface where there is one": ("c6i.32xlarge", {}, {"InterfaceType": "efa"}, ""),
}


@pytest.mark.parametrize(("kind", "made", "interface", "said"), HARDWARE.values(), ids=HARDWARE)
def test_hardware_that_an_image_needs(
    ec2: Ec2, kind: str, made: Mapping[str, Any], interface: Mapping[str, Any], said: str
) -> None:
    image_id = ec2.add_image(f"ami-{next(IMAGE_NUMBERS):017x}", "ours", family="al2023", **made)
    interfaces = [{"DeviceIndex": 0, "Groups": list(ec2.vpc.groups), **interface}]
    answer = fleet(ec2, (kind,), name=template(ec2, ImageId=image_id, NetworkInterfaces=interfaces))
    assert len(ids(answer)) == (0 if said else 1)
    if said:
        (error,) = answer["Errors"]
        assert error["ErrorCode"] == "InvalidParameterCombination"
        assert said in error["ErrorMessage"]


ENA, B300 = (0, 0, "interface"), "p6-b300.48xlarge"
INTERFACES: dict[str, tuple[str, list[tuple[int, int, str]], Mapping[str, Any], str]] = {
    "as AWS recommends": ("p5.48xlarge", [ENA, (0, 1, "efa-only"), (1, 0, "efa-only")], {}, ""),
    "EFA with ENA first": ("p5.48xlarge", [(0, 0, "efa"), (1, 1, "efa-only")], {}, ""),
    "a first card that takes none": (B300, [(0, 0, "efa"), (1, 1, "efa")], {}, "not supported on network card 0"),
    "nor one beside its primary one": (B300, [ENA, (0, 1, "efa-only")], {}, "not supported on network card 0"),
    "its other cards do": (B300, [ENA, *((card, 0, "efa-only") for card in range(1, 17))], {}, ""),
    "a card that is not there": ("c5n.18xlarge", [ENA, (1, 0, "efa-only")], {}, "card index 1 is not valid"),
    "a device that a card has not": ("p5.48xlarge", [ENA, (2, 2, "efa")], {}, "from 0 to 1"),
    "the primary one is EFA-only": ("p5.48xlarge", [(0, 0, "efa-only")], {}, "cannot be the primary"),
    "no primary one": ("p5.48xlarge", [(1, 0, "efa-only")], {}, "A primary network interface"),
    "two at one place": ("p5.48xlarge", [ENA, ENA], {}, "More than one network interface"),
    "two EFAs of one card": ("p4d.24xlarge", [(0, 0, "efa"), (0, 1, "efa-only")], {}, "one EFA interface only"),
    "more than the type can have": ("i7ie.48xlarge", [(0, 0, "efa"), (1, 0, "efa-only")], {}, "exceed the limit of 1"),
    "EFA-only with addresses": (
        "p5.48xlarge",
        [ENA, (1, 0, "efa-only")],
        {"Ipv4PrefixCount": 1},
        "do not support IP addresses",
    ),
    "public addresses of several": (
        "m5.large",
        [ENA, (0, 1, "interface")],
        {"AssociatePublicIpAddress": True},
        "multiple network interfaces",
    ),
    "no public addresses of several": (
        "m5.large",
        [ENA, (0, 1, "interface")],
        {"AssociatePublicIpAddress": False},
        "",
    ),
}


@pytest.mark.parametrize(("name", "wanted", "more", "said"), INTERFACES.values(), ids=INTERFACES)
def test_network_interfaces_are_looked_at_card_by_card(
    name: str, wanted: list[tuple[int, int, str]], more: Mapping[str, Any], said: str
) -> None:
    asked = [
        {"NetworkCardIndex": card, "DeviceIndex": device, "InterfaceType": kind, **more}
        for card, device, kind in wanted
    ]
    described = ec2pages.described_types()[name]
    if not said:
        check_interfaces(described, asked)
        return
    with pytest.raises(AwsError, match=said):
        check_interfaces(described, asked)


def test_a_template_is_applied_in_full(ec2: Ec2) -> None:
    name = template(
        ec2,
        UserData=base64.b64encode(b"#!/bin/bash").decode(),
        BlockDeviceMappings=[
            {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 77, "VolumeType": "io2", "Encrypted": True}}
        ],
        MetadataOptions={"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        Monitoring={"Enabled": True},
        Placement={"Tenancy": "dedicated"},
        NetworkInterfaces=[
            {"DeviceIndex": 0, "NetworkCardIndex": 0, "InterfaceType": "interface", "Groups": list(ec2.vpc.groups)},
            {"DeviceIndex": 1, "NetworkCardIndex": 0, "InterfaceType": "efa-only", "Groups": list(ec2.vpc.groups)},
        ],
        CapacityReservationSpecification={"CapacityReservationPreference": "none"},
    )
    tags = [
        {"ResourceType": kind, "Tags": [{"Key": "kind", "Value": kind}]} for kind in ("instance", "volume", "fleet")
    ]
    (instance_id,) = ids(fleet(ec2, ("c6i.32xlarge",), name=name, kind="spot", TagSpecifications=tags))
    one = seen(ec2, instance_id)
    assert one["IamInstanceProfile"]["Arn"].endswith(f"instance-profile/{ec2.vpc.profile}")
    assert [group["GroupId"] for group in one["SecurityGroups"]] == list(ec2.vpc.groups)
    assert one["MetadataOptions"]["HttpTokens"] == "required"
    assert one["Monitoring"]["State"] == "enabled"
    assert one["Placement"]["Tenancy"] == "dedicated"
    assert one["Placement"]["AvailabilityZoneId"] == "usw2-az2"
    assert one["CapacityReservationSpecification"]["CapacityReservationPreference"] == "none"
    assert [interface["InterfaceType"] for interface in one["NetworkInterfaces"]] == ["interface", "efa-only"]
    assert one["InstanceLifecycle"] == "spot"
    assert one["SpotInstanceRequestId"].startswith("sir-")
    assert {"Key": "kind", "Value": "instance"} in one["Tags"]
    assert one["PrivateDnsName"].endswith(".us-west-2.compute.internal")
    volumes = call(ec2, "describe_volumes", VolumeIds=[one["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]])["Volumes"]
    assert [(row["Size"], row["VolumeType"], row["Encrypted"]) for row in volumes] == [(77, "io2", True)]
    assert volumes[0]["Tags"] == [{"Key": "kind", "Value": "volume"}]


WRONG_TEMPLATES: dict[str, tuple[Mapping[str, Any], str, str]] = {
    "an instance profile that does not exist": (
        {"IamInstanceProfile": {"Name": "nobody"}},
        "InvalidParameterValue",
        "Invalid IAM Instance Profile name",
    ),
    "a security group of another network": (
        {"NetworkInterfaces": [{"DeviceIndex": 0, "Groups": ["sg-0d0e7a1100000003"]}]},
        "InvalidParameter",
        "belong to different networks",
    ),
    "a placement group that does not exist": (
        {"Placement": {"GroupId": "pg-0123456789abcdef0"}},
        "InvalidPlacementGroupId.NotFound",
        "does not exist",
    ),
    "a reservation that does not exist": (
        {"CapacityReservationSpecification": {"CapacityReservationTarget": {"CapacityReservationId": "cr-0"}}},
        "InvalidCapacityReservationId.NotFound",
        "does not exist",
    ),
}


@pytest.mark.parametrize(("data", "code", "said"), WRONG_TEMPLATES.values(), ids=WRONG_TEMPLATES)
def test_templates_that_cannot_launch(ec2: Ec2, data: Mapping[str, Any], code: str, said: str) -> None:
    answer = fleet(ec2, name=template(ec2, **data))
    assert not answer["Instances"]
    (error,) = answer["Errors"]
    assert error["ErrorCode"] == code
    assert said in error["ErrorMessage"]


# ---------------------------------------------------------------------- instances


def test_the_life_of_an_instance(ec2: Ec2) -> None:
    subnet = ec2.vpc.subnets[ec2.vpc.zones[2]]

    def free() -> int:
        found: int = call(ec2, "describe_subnets", SubnetIds=[subnet])["Subnets"][0]["AvailableIpAddressCount"]
        return found

    before = free()
    found = ids(fleet(ec2, zones=(2,), count=3))
    assert free() == before - 3
    assert {seen(ec2, one)["SubnetId"] for one in found} == {subnet}
    eventually(lambda: all(seen(ec2, one)["State"]["Name"] == "running" for one in found), "they run")
    changes = call(ec2, "terminate_instances", InstanceIds=found)["TerminatingInstances"]
    assert {(one["PreviousState"]["Name"], one["CurrentState"]["Name"]) for one in changes} == {
        ("running", "shutting-down")
    }
    eventually(lambda: all(seen(ec2, one)["State"]["Name"] == "terminated" for one in found), "they are gone")
    assert free() == before
    assert (
        call(ec2, "terminate_instances", InstanceIds=found[:1])["TerminatingInstances"][0]["CurrentState"]["Code"] == 48
    )
    ec2.skip(4000)
    assert code_of(lambda: call(ec2, "terminate_instances", InstanceIds=["i-0123456789abcdef0"]))[0] == (
        "InvalidInstanceID.NotFound"
    )


def test_one_unknown_instance_fails_the_whole_call(ec2: Ec2) -> None:
    (known,) = ids(fleet(ec2))
    seen(ec2, known)
    for action in ("describe_instances", "terminate_instances"):
        code, message = code_of(lambda name=action: call(ec2, name, InstanceIds=[known, "i-0123456789abcdef0"]))  # type: ignore[misc]
        assert code == "InvalidInstanceID.NotFound"
        assert "i-0123456789abcdef0" in message
    assert seen(ec2, known)["State"]["Name"] in {"pending", "running"}
    malformed = code_of(lambda: call(ec2, "describe_instances", InstanceIds=["node-1"]))[0]
    assert malformed == "InvalidInstanceID.Malformed"


def test_a_protected_instance_holds_those_of_its_zone(ec2: Ec2) -> None:
    answer = fleet(ec2, zones=(0,), count=2), fleet(ec2, zones=(1,), count=2)
    (guarded, beside), elsewhere = (ids(one) for one in answer)
    eventually(lambda: all_seen(ec2, [guarded, beside, *elsewhere]), "EC2 knows them")
    ec2.protect(guarded)
    code, message = code_of(lambda: call(ec2, "terminate_instances", InstanceIds=[guarded, beside, *elsewhere]))
    assert code == "OperationNotPermitted"
    assert guarded in message
    states = {one["id"]: one["state"] for one in ec2.instances()}
    assert {states[one] for one in (guarded, beside)} <= {"pending", "running"}
    assert {states[one] for one in elsewhere} <= {"shutting-down", "terminated"}
    ec2.protect(guarded, really=False)
    assert call(ec2, "terminate_instances", InstanceIds=[guarded, beside])["TerminatingInstances"]


def test_protection_by_template_is_not_for_spot(ec2: Ec2) -> None:
    name = template(ec2, DisableApiTermination=True)
    (bought,), (spot,) = ids(fleet(ec2, name=name)), ids(fleet(ec2, name=name, kind="spot"))
    eventually(lambda: all_seen(ec2, [bought, spot]), "EC2 knows them")
    assert call(ec2, "terminate_instances", InstanceIds=[spot])
    assert code_of(lambda: call(ec2, "terminate_instances", InstanceIds=[bought]))[0] == "OperationNotPermitted"
    assert code_of(lambda: ec2.protect(spot))[0] == "UnsupportedOperation"
    ec2.protect(bought, really=False)


def test_an_instance_that_no_read_tells_of(ec2: Ec2) -> None:
    (hidden,), (other,) = ids(fleet(ec2)), ids(fleet(ec2))
    eventually(lambda: all_seen(ec2, [hidden, other]), "EC2 knows them")
    ec2.script([Fault("", "unseen", match={"instance": hidden}, seconds=10_000)])
    listed = call(ec2, "describe_instances", Filters=[{"Name": "instance-id", "Values": [hidden, other]}])
    assert [one["InstanceId"] for entry in listed["Reservations"] for one in entry["Instances"]] == [other]
    for action in ("describe_instances", "describe_instance_status"):
        code = code_of(lambda action=action: call(ec2, action, InstanceIds=[hidden]))[0]  # type: ignore[misc]
        assert code == "InvalidInstanceID.NotFound"
    assert call(ec2, "create_tags", Resources=[hidden], Tags=[{"Key": "a", "Value": "b"}]), "writes know it"
    ec2.skip(10_000)
    assert all_seen(ec2, [hidden])


def test_reads_lag_behind_writes() -> None:
    """Each instance and each template by a time of its own: its birth, its tags and its end."""
    with Ec2.start(None, clock_factor=0.1, data="small", rate_limits=False, lag=30.0) as slow:
        name = template(slow)
        found = ids(fleet(slow, count=20, name=name))
        assert not call(slow, "describe_launch_templates")["LaunchTemplates"]
        assert not call(slow, "describe_instances")["Reservations"]
        slow.skip(15)
        assert 0 < len(call(slow, "describe_instances")["Reservations"]) < 20
        slow.skip(16)
        assert call(slow, "describe_launch_templates")["LaunchTemplates"]
        assert all_seen(slow, found)
        call(slow, "create_tags", Resources=found, Tags=[{"Key": "a", "Value": "b"}])
        call(slow, "terminate_instances", InstanceIds=found)
        states, tagged = looked(slow)
        assert states.keys() <= {"pending", "running"}
        assert tagged == 0
        slow.skip(60)
        eventually(lambda: len(slow.instances("terminated")) == 20, "they have ended")
        assert looked(slow)[0]["terminated"] < 20
        slow.skip(31)
        assert looked(slow) == ({"terminated": 20}, 20)


def looked(ec2: Ec2) -> tuple[Counter[str], int]:
    """How many instances are told to be in each state, and how many to have the tag "a"."""
    rows = [one for entry in call(ec2, "describe_instances")["Reservations"] for one in entry["Instances"]]
    return Counter(one["State"]["Name"] for one in rows), sum(
        any(tag["Key"] == "a" for tag in one["Tags"]) for one in rows
    )


def test_filters_have_limits(ec2: Ec2) -> None:
    def ask(filters: int, values: int) -> Any:
        names = [{"Name": f"tag:{number}", "Values": ["x"] * values} for number in range(filters)]
        return call(ec2, "describe_instances", Filters=names)

    assert not ask(50, 200)["Reservations"]
    assert code_of(lambda: ask(51, 1))[0] == "FilterLimitExceeded"
    assert code_of(lambda: ask(1, 201))[0] == "FilterLimitExceeded"


def test_pages_and_filters_of_instances(ec2: Ec2) -> None:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "pages", "Value": "yes"}, {"Key": "n", "Value": "abc"}]}]
    found = ids(fleet(ec2, count=12, TagSpecifications=tags))
    for one in found:
        seen(ec2, one)

    def ask(*filters: tuple[str, str]) -> list[str]:
        rows = [{"Name": name, "Values": [value]} for name, value in filters]
        pages = ec2.client("ec2").get_paginator("describe_instances").paginate(Filters=rows, MaxResults=5)
        return [one["InstanceId"] for page in pages for entry in page["Reservations"] for one in entry["Instances"]]

    assert sorted(ask(("tag-key", "pages"))) == sorted(found)
    assert sorted(ask(("tag:pages", "y*"), ("instance-type", "m5.*"))) == sorted(found)
    assert ask(("tag:pages", "no")) == []
    assert code_of(lambda: ask(("no-such-filter", "x")))[0] == "InvalidParameterValue"


def test_tags(ec2: Ec2) -> None:
    (known,) = ids(fleet(ec2))
    seen(ec2, known)
    call(ec2, "create_tags", Resources=[known], Tags=[{"Key": "Name", "Value": "node"}, {"Key": "other", "Value": ""}])
    call(ec2, "delete_tags", Resources=[known], Tags=[{"Key": "other"}])
    tags = {one["Key"]: one["Value"] for one in seen(ec2, known)["Tags"]}
    assert tags["Name"] == "node"
    assert "other" not in tags
    assert tags["aws:ec2:fleet-id"].startswith("fleet-")
    unknown = code_of(
        lambda: call(ec2, "create_tags", Resources=["i-0123456789abcdef0"], Tags=[{"Key": "a", "Value": "b"}])
    )
    assert unknown[0] == "InvalidInstanceID.NotFound"


def test_a_new_instance_is_not_known_everywhere_at_once() -> None:
    with Ec2.start(None, clock_factor=0.2, data="small") as slow:
        name = template(slow)
        found = ids(fleet(slow, count=20, name=name))
        listed = call(slow, "describe_instances")["Reservations"]
        assert len(listed) < 20
        slow.skip(1.0)
        assert len(call(slow, "describe_instances")["Reservations"]) == 20
        assert call(slow, "describe_instances", InstanceIds=found)["Reservations"]


def test_trouble_shows_in_the_status_of_instances(ec2: Ec2) -> None:
    broken, retired = ids(fleet(ec2, count=2))
    eventually(
        lambda: len([one for one in ec2.instances("running") if one["id"] in {broken, retired}]) == 2, "they run"
    )
    ec2.interrupt(broken, "impair", seconds=300)
    ec2.interrupt(retired, "schedule", code="maintenance", seconds=7200)

    def ask(name: str, value: str) -> list[Any]:
        answer = call(ec2, "describe_instance_status", Filters=[{"Name": name, "Values": [value]}])
        return [one for one in answer["InstanceStatuses"] if one["InstanceId"] in {broken, retired}]

    (one,) = ask("instance-status.status", "impaired")
    assert one["InstanceId"] == broken
    assert one["InstanceStatus"]["Details"][0]["Status"] == "failed"
    (two,) = ask("event.code", "system-maintenance")
    assert two["InstanceId"] == retired
    assert two["Events"][0]["NotBefore"] > two["Events"][0]["NotAfter"].replace(year=2020)
    ec2.interrupt(broken, "recover")
    assert not ask("instance-status.status", "impaired")


RUNS: dict[str, tuple[Mapping[str, Any], str]] = {
    "a dry run": ({"DryRun": True}, "DryRunOperation"),
    "no such type": ({"DryRun": True, "InstanceType": "m5.tiny"}, "InvalidParameterValue"),
    "no such profile": ({"DryRun": True, "IamInstanceProfile": {"Name": "nobody"}}, "InvalidParameterValue"),
    "no such template": (
        {"LaunchTemplate": {"LaunchTemplateName": "no"}},
        "InvalidLaunchTemplateName.NotFoundException",
    ),
    "a group of another network": ({"SecurityGroupIds": ["sg-0d0e7a1100000003"], "DryRun": True}, "InvalidParameter"),
    "an IPv6 address and a prefix": (
        {"NetworkInterfaces": [{"DeviceIndex": 0, "Ipv6AddressCount": 1, "Ipv6PrefixCount": 1}]},
        "InvalidParameterValue",
    ),
    "a primary IPv6 address and a prefix": (
        {"NetworkInterfaces": [{"DeviceIndex": 0, "PrimaryIpv6": True, "Ipv6PrefixCount": 1}]},
        "InvalidParameterCombination",
    ),
    "too much user data": ({"UserData": "x" * 20000}, "InvalidUserData.Malformed"),
}


@pytest.mark.parametrize(("more", "code"), RUNS.values(), ids=RUNS)
def test_runs_that_are_refused(ec2: Ec2, more: Mapping[str, Any], code: str) -> None:
    subnet = ec2.vpc.subnets[ec2.vpc.zones[0]]
    asked = {"InstanceType": "m5.large", "ImageId": image(ec2), "SubnetId": subnet, "MinCount": 1, "MaxCount": 1}
    assert code_of(lambda: call(ec2, "run_instances", **{**asked, **more}))[0] == code


def test_a_run_makes_instances_of_a_template(ec2: Ec2) -> None:
    name = template(ec2)
    subnet = ec2.vpc.subnets[ec2.vpc.zones[0]]
    asked: dict[str, Any] = {
        "LaunchTemplate": {"LaunchTemplateName": name},
        "InstanceType": "m5.large",
        "NetworkInterfaces": [{"DeviceIndex": 0, "SubnetId": subnet, "Groups": list(ec2.vpc.groups)}],
        "ClientToken": next(TOKENS),
    }
    answer = call(ec2, "run_instances", **asked, MinCount=1, MaxCount=2)
    assert [one["SubnetId"] for one in answer["Instances"]] == [subnet, subnet]
    assert answer["Instances"][0]["IamInstanceProfile"]["Arn"].endswith(ec2.vpc.profile)
    again = call(ec2, "run_instances", **asked, MinCount=1, MaxCount=2)
    assert [one["InstanceId"] for one in again["Instances"]] == [one["InstanceId"] for one in answer["Instances"]]


# ---------------------------------------------------------------------- launch templates


def test_launch_templates(ec2: Ec2) -> None:
    client = ec2.client("ec2", config=ONCE)
    name = next(NAMES)
    tags = [{"ResourceType": "launch-template", "Tags": [{"Key": "cluster", "Value": "a"}]}]
    asked = {
        "LaunchTemplateName": name,
        "LaunchTemplateData": {"ImageId": image(ec2)},
        "ClientToken": name,
        "TagSpecifications": tags,
    }
    first = client.create_launch_template(**asked)["LaunchTemplate"]
    assert client.create_launch_template(**asked)["LaunchTemplate"] == first
    other = {**asked, "ClientToken": "other"}
    assert (
        code_of(lambda: client.create_launch_template(**other))[0] == "InvalidLaunchTemplateName.AlreadyExistsException"
    )
    found = client.describe_launch_templates(Filters=[{"Name": "tag:cluster", "Values": ["a"]}])["LaunchTemplates"]
    assert [one["LaunchTemplateId"] for one in found] == [first["LaunchTemplateId"]]
    client.delete_launch_template(LaunchTemplateId=first["LaunchTemplateId"])
    for ask in (
        client.delete_launch_template,
        lambda **by: client.describe_launch_templates(LaunchTemplateNames=[by["LaunchTemplateName"]]),
    ):
        assert code_of(lambda ask=ask: ask(LaunchTemplateName=name))[0] == "InvalidLaunchTemplateName.NotFoundException"  # type: ignore[misc]
    gone = code_of(lambda: client.delete_launch_template(LaunchTemplateId=first["LaunchTemplateId"]))[0]
    assert gone == "InvalidLaunchTemplateId.NotFound"


def test_templates_and_their_versions_have_quotas() -> None:
    made, now = LaunchTemplates(), SystemClock().now()
    assert (made.limit, made.versions) == (5_000, 10_000)
    made.limit, made.versions = 2, 3
    for name in ("one", "two"):
        made.create({"LaunchTemplateName": name, "LaunchTemplateData": {}}, now, 0.0)
    with pytest.raises(AwsError, match="MaxTemplateLimitExceeded"):
        made.create({"LaunchTemplateName": "three", "LaunchTemplateData": {}}, now, 0.0)
    version = {"LaunchTemplateName": "one", "LaunchTemplateData": {}}
    assert [made.add_version(version)["LaunchTemplateVersion"]["VersionNumber"] for _ in range(2)] == [2, 3]
    with pytest.raises(AwsError, match="VersionLimitExceeded"):
        made.add_version(version)


@pytest.mark.parametrize(("size", "error"), [(6, ""), (4, "InvalidBlockDeviceMapping")])
def test_a_volume_holds_its_snapshot(ec2: Ec2, size: int, error: str) -> None:
    bottlerocket = next(
        one["ImageId"]
        for one in call(ec2, "describe_images", Owners=["amazon"])["Images"]
        if "bottlerocket" in one["Name"] and one["Architecture"] == "x86_64"
    )
    name = template(ec2, BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": size}}])
    answer = fleet(ec2, name=name, override={"ImageId": bottlerocket})
    assert [one["ErrorCode"] for one in answer.get("Errors", ())] == ([error] if error else [])


def test_user_data_has_a_limit(ec2: Ec2) -> None:
    def make(size: int) -> str:
        return template(ec2, UserData=base64.b64encode(b"x" * size).decode())

    assert make(16384)
    code, message = code_of(lambda: make(16385))
    assert code == "InvalidUserData.Malformed"
    assert "User data is limited to 16384 bytes" in message
    assert code_of(lambda: template(ec2, UserData="no base64!"))[0] == "InvalidUserData.Malformed"


# ---------------------------------------------------------------------- reservations and placement groups


def reserved(ec2: Ec2, reservation: str, **data: Any) -> str:
    specification = {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": reservation},
    }
    return template(ec2, CapacityReservationSpecification=specification, **data)


def test_a_reservation_is_used_up(ec2: Ec2) -> None:
    zone = ec2.vpc.zones[0]
    reservation = ec2.add_reservation("m5.large", zone, 2, tags={"team": "a"})
    ec2.script([short()])
    answer = fleet(ec2, name=reserved(ec2, reservation), count=3)
    assert len(ids(answer)) == 2
    assert [one["ErrorCode"] for one in answer["Errors"]] == ["ReservationCapacityExceeded"]
    one = seen(ec2, ids(answer)[0])
    assert one["CapacityReservationId"] == reservation
    (described,) = call(ec2, "describe_capacity_reservations", Filters=[{"Name": "tag:team", "Values": ["a"]}])[
        "CapacityReservations"
    ]
    assert (described["TotalInstanceCount"], described["AvailableInstanceCount"]) == (2, 0)
    eventually(lambda: all_seen(ec2, ids(answer)), "EC2 shows both")
    call(ec2, "terminate_instances", InstanceIds=ids(answer))
    eventually(
        lambda: (
            call(ec2, "describe_capacity_reservations", CapacityReservationIds=[reservation])["CapacityReservations"][
                0
            ]["AvailableInstanceCount"]
            == 2
        ),
        "it is free again",
    )


def test_instances_of_a_cancelled_reservation_run_on_outside_of_it(ec2: Ec2) -> None:
    reservation = ec2.add_reservation("m5.large", ec2.vpc.zones[0], 2)
    (instance,) = ids(fleet(ec2, name=reserved(ec2, reservation)))
    assert Ec2Instance.of(seen(ec2, instance)).capacity_type == "reserved"
    call(ec2, "cancel_capacity_reservation", CapacityReservationId=reservation)
    (described,) = call(ec2, "describe_capacity_reservations", CapacityReservationIds=[reservation])[
        "CapacityReservations"
    ]
    assert (described["State"], described["AvailableInstanceCount"]) == ("cancelled", 0)
    one = seen(ec2, instance)
    assert one["State"]["Name"] in {"pending", "running"}
    assert (one.get("CapacityReservationId"), Ec2Instance.of(one).capacity_type) == (None, "on-demand")
    refused = fleet(ec2, name=reserved(ec2, reservation))
    assert [one["ErrorCode"] for one in refused["Errors"]] == ["ReservationCapacityExceeded"]


@pytest.mark.parametrize(
    ("details", "kind", "lifecycle"),
    [
        ({"kind": "capacity-block", "seconds": 3600}, "capacity-block", "capacity-block"),
        ({"interruptible": True}, "reserved-capacity", "interruptible-capacity-reservation"),
    ],
    ids=["a capacity block", "an interruptible reservation"],
)
def test_reservations_with_a_market_of_their_own(
    ec2: Ec2, details: Mapping[str, Any], kind: str, lifecycle: str
) -> None:
    type_ = "m5.large" if kind != "capacity-block" else "p5.48xlarge"
    with Ec2.start(None, clock_factor=FACTOR, rate_limits=False) as full:
        zone = next(iter(full.vpc.zones))
        offered = call(
            full,
            "describe_instance_type_offerings",
            LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": [type_]}],
        )["InstanceTypeOfferings"]
        zones = [row["Location"] for row in offered if row["Location"] in full.vpc.zones]
        zone = zones[0]
        reservation = full.add_reservation(type_, zone, 1, **details)
        name = reserved(full, reservation, InstanceMarketOptions={"MarketType": lifecycle})
        answer = fleet(full, (type_,), zones=(list(full.vpc.zones).index(zone),), name=name, kind=kind)
        one = seen(full, ids(answer)[0])
        assert one["InstanceLifecycle"] == lifecycle
        assert one["CapacityReservationId"] == reservation
        plain = fleet(full, (type_,), zones=(list(full.vpc.zones).index(zone),), name=name)
        assert not plain["Instances"]


def test_placement_groups(ec2: Ec2) -> None:
    client = ec2.client("ec2", config=ONCE)
    spread = client.create_placement_group(GroupName="spread", Strategy="spread")["PlacementGroup"]
    parted = client.create_placement_group(GroupName="parted", Strategy="partition", PartitionCount=3)["PlacementGroup"]
    answer = fleet(ec2, name=template(ec2, Placement={"GroupId": spread["GroupId"]}), count=8)
    assert len(ids(answer)) == 7
    assert "limit of instances in this spread placement group" in answer["Errors"][0]["ErrorMessage"]
    placed = ids(fleet(ec2, name=template(ec2, Placement={"GroupId": parted["GroupId"]}), count=3))
    assert sorted(seen(ec2, one)["Placement"]["PartitionNumber"] for one in placed) == [1, 2, 3]
    chosen = template(ec2, Placement={"GroupId": parted["GroupId"], "PartitionNumber": 2})
    assert seen(ec2, ids(fleet(ec2, name=chosen))[0])["Placement"]["PartitionNumber"] == 2
    (described,) = client.describe_placement_groups(GroupNames=["parted"])["PlacementGroups"]
    assert (described["Strategy"], described["PartitionCount"]) == ("partition", 3)
    assert code_of(lambda: client.describe_placement_groups(GroupNames=["none"]))[0] == "InvalidPlacementGroup.Unknown"


# ---------------------------------------------------------------------- what there is to buy


def test_types_and_offerings_read_by_the_product(ec2: Ec2) -> None:
    client = ec2.session().create_client("ec2")
    bodies: list[bytes] = []
    client.meta.events.register("before-parse.ec2", lambda response_dict, **_: bodies.append(response_dict["body"]))
    wanted = [{"Name": "processor-info.supported-architecture", "Values": ["arm64"]}]
    for _ in client.get_paginator("describe_instance_types").paginate(Filters=wanted, MaxResults=20):
        pass
    found = [info for body in bodies for info in wire.instance_types(body)[0]]
    assert len(bodies) > 1
    assert {info.architectures for info in found} == {("arm64",)}
    assert next(info for info in found if info.name == "m6g.large").memory_mib == 8192
    assert code_of(lambda: call(ec2, "describe_instance_types", InstanceTypes=["m5.tiny"]))[0] == "InvalidInstanceType"
    bodies.clear()
    for _ in client.get_paginator("describe_instance_type_offerings").paginate(
        LocationType="availability-zone", MaxResults=500
    ):
        pass
    offered = [row for body in bodies for row in wire.offered(body)[0]]
    assert len(offered) == len(set(offered)) > 500
    assert {zone for _, zone in offered} == {f"us-west-2{letter}" for letter in "abcd"}


def test_spot_prices(ec2: Ec2) -> None:
    now = call(
        ec2,
        "describe_spot_price_history",
        StartTime="2030-01-01T00:00:00Z",
        ProductDescriptions=["Linux/UNIX", "Linux/UNIX (Amazon VPC)"],
        MaxResults=1000,
    )["SpotPriceHistory"]
    places = [(row["InstanceType"], row["AvailabilityZone"]) for row in now]
    assert len(places) == len(set(places)) > 400
    listed = ec2.prices((*place, "spot") for place in places[:50])
    for row in now[:50]:
        assert float(row["SpotPrice"]) == listed[row["InstanceType"], row["AvailabilityZone"], "spot"]


def test_the_price_list(ec2: Ec2) -> None:
    filters = [
        {"Type": "TERM_MATCH", "Field": field, "Value": value}
        for field, value in (("tenancy", "Shared"), ("productFamily", "Compute Instance"), ("regionCode", "us-west-2"))
    ]
    pages = list(
        ec2.client("pricing", region_name="us-east-1")
        .get_paginator("get_products")
        .paginate(ServiceCode="AmazonEC2", Filters=filters, MaxResults=100)
    )
    names = [json.loads(text)["product"]["attributes"]["instanceType"] for page in pages for text in page["PriceList"]]
    assert "m5.large" in names
    assert "m5.metal" not in names
    assert len(names) == len(set(names))


def test_another_partition_has_a_price_list_of_its_own() -> None:
    region = "eusc-de-east-1"
    book = PriceBook(region)
    with Ec2.start(None, data="small", region=region, rate_limits=False) as own:
        aws = AwsClients(CallPolicy(region), SystemClock(), own.session())
        assert book.current().is_estimated("m5.large")
        assert book.take_on_demand(reads.read_on_demand(aws, region), NOON)
        aws.close()
        abroad = own.client("pricing", region_name="us-east-1", config=ONCE)
        assert code_of(lambda: abroad.get_products(ServiceCode="AmazonEC2"))[0] == "UnrecognizedClientException"
        offered = own.prices([("m5.large", f"{region}a", "on-demand")])
    assert not book.current().is_estimated("m5.large")
    assert book.current().price("m5.large", f"{region}a", "on-demand") == pytest.approx(next(iter(offered.values())))


IMAGES = {
    "AL2023 of arm64": (
        "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/arm64/standard/recommended/image_id",
        "arm64",
    ),
    "AL2023 with Neuron": (
        "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/neuron/recommended/image_id",
        "x86_64",
    ),
    "AL2 with GPUs": ("/aws/service/eks/optimized-ami/1.32/amazon-linux-2-gpu/recommended/image_id", "x86_64"),
    "Bottlerocket": ("/aws/service/bottlerocket/aws-k8s-1.36/arm64/latest/image_id", "arm64"),
    "Bottlerocket of one version": ("/aws/service/bottlerocket/aws-k8s-1.36-nvidia/x86_64/1.46.0/image_id", "x86_64"),
    "Windows 2025": (
        "/aws/service/ami-windows-latest/Windows_Server-2025-English-Core-EKS_Optimized-1.36/image_id",
        "x86_64",
    ),
    "AL2023 of one release": (
        AL2023.format("x86_64").replace("recommended", "amazon-eks-node-al2023-x86_64-standard-1.36-v20260803"),
        "x86_64",
    ),
}


@pytest.mark.parametrize(("path", "arch"), IMAGES.values(), ids=IMAGES)
def test_images_by_parameter(ec2: Ec2, path: str, arch: str) -> None:
    image_id = call(ec2, "get_parameter", "ssm", Name=path)["Parameter"]["Value"]
    (found,) = call(
        ec2, "describe_images", Filters=[{"Name": "image-id", "Values": [image_id]}], IncludeDeprecated=True
    )["Images"]
    assert found["Architecture"] == arch
    assert found["State"] == "available"


def test_images_that_are_not_there_and_those_of_ones_own(ec2: Ec2) -> None:
    missing = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2/recommended/image_id"
    assert code_of(lambda: call(ec2, "get_parameter", "ssm", Name=missing))[0] == "ParameterNotFound"
    ec2.add_image("ami-00000000000000001", "my-image-1", created="2026-01-01T00:00:00+00:00", team="a")
    ec2.add_image("ami-00000000000000002", "my-image-2", arch="arm64")
    ec2.deprecate_image("ami-00000000000000001")
    mine = call(ec2, "describe_images", Owners=["self"], Filters=[{"Name": "name", "Values": ["my-*"]}])["Images"]
    assert [one["ImageId"] for one in mine] == ["ami-00000000000000001", "ami-00000000000000002"]
    assert mine[0]["DeprecationTime"] < "2027"
    by_tag = call(ec2, "describe_images", Filters=[{"Name": "tag:team", "Values": ["a"]}], IncludeDeprecated=True)[
        "Images"
    ]
    assert [one["Name"] for one in by_tag] == ["my-image-1"]
    before = image(ec2)
    ec2.release_images()
    assert image(ec2) != before


def test_subnets_and_security_groups_by_tag(ec2: Ec2) -> None:
    tagged = [{"Name": "tag:karpenter.sh/discovery", "Values": ["dovetail"]}]
    subnets = call(ec2, "describe_subnets", Filters=tagged)["Subnets"]
    assert {one["AvailabilityZone"]: one["SubnetId"] for one in subnets} == dict(ec2.vpc.subnets)
    groups = call(ec2, "describe_security_groups", Filters=tagged)["SecurityGroups"]
    assert [one["GroupId"] for one in groups] == list(ec2.vpc.groups)
    tiny = ec2.add_subnet(ec2.vpc.zones[0], "10.0.200.0/28", {"size": "tiny"})
    ec2.leave_addresses(tiny, 1)
    answer = fleet(ec2, count=3, override={"SubnetId": tiny})
    assert len(ids(answer)) == 1
    assert answer["Errors"][0]["ErrorCode"] == "InsufficientFreeAddressesInSubnet"


def prefixed(ec2: Ec2, count: int) -> str:
    """A template whose interface starts with so many IPv4 prefixes."""
    interface = {"DeviceIndex": 0, "Groups": list(ec2.vpc.groups), "Ipv4PrefixCount": count}
    return template(ec2, NetworkInterfaces=[interface])


def test_prefixes_are_blocks_of_16_contiguous_addresses(ec2: Ec2) -> None:
    subnet = ec2.add_subnet(ec2.vpc.zones[0], "10.0.202.0/25", {})

    def free() -> int:
        (found,) = call(ec2, "describe_subnets", SubnetIds=[subnet])["Subnets"]
        return int(found["AvailableIpAddressCount"])

    before = free()
    answer = fleet(ec2, name=prefixed(ec2, 2), override={"SubnetId": subnet})
    assert before - free() == 33
    eventually(lambda: all_seen(ec2, ids(answer)), "it is known everywhere")
    call(ec2, "terminate_instances", InstanceIds=ids(answer))
    ec2.skip(60)
    eventually(lambda: free() == before, "its addresses are free again")
    ec2.scatter_addresses(subnet)
    assert free() > 100
    (said,) = fleet(ec2, name=prefixed(ec2, 1), override={"SubnetId": subnet})["Errors"]
    assert said["ErrorCode"] == "InsufficientCidrBlocks"
    assert ids(fleet(ec2, override={"SubnetId": subnet}))  # single addresses there are
    ec2.leave_addresses(subnet, 16)
    (said,) = fleet(ec2, name=prefixed(ec2, 1), override={"SubnetId": subnet})["Errors"]
    assert said["ErrorCode"] == "InvalidParameterValue"
    assert "prefixes" in said["ErrorMessage"]


def test_a_shortage_of_one_parameter_is_for_launches_that_ask_for_it(ec2: Ec2) -> None:
    ec2.script([Fault("", "shortage", parameter="Ipv4PrefixCount")])
    (said,) = fleet(ec2, name=prefixed(ec2, 1))["Errors"]
    assert said["ErrorCode"] == "InsufficientCidrBlocks"
    assert ids(fleet(ec2))


# ---------------------------------------------------------------------- faults


@dataclass(frozen=True)
class FaultCase:
    """One fault and the error of a DescribeSubnets that it hits."""

    fault: Fault
    code: str
    status: int


FAULTS = {
    "throttled": FaultCase(Fault("Describe*", "throttled"), "RequestLimitExceeded", 503),
    "a server error": FaultCase(Fault("DescribeSubnets", "500"), "InternalError", 500),
    "denied": FaultCase(Fault("DescribeSubnets", "denied"), "UnauthorizedOperation", 403),
    "not found": FaultCase(Fault("DescribeSubnets", "not-found"), "InvalidSubnetID.NotFound", 400),
    "anything else": FaultCase(
        Fault("DescribeSubnets", "error", code="PendingVerification"), "PendingVerification", 400
    ),
}


@pytest.mark.parametrize("case", FAULTS.values(), ids=FAULTS)
def test_faults(ec2: Ec2, case: FaultCase) -> None:
    ec2.script([case.fault])
    with pytest.raises(ClientError) as raised:
        call(ec2, "describe_subnets")
    assert raised.value.response["Error"]["Code"] == case.code
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == case.status
    ec2.script()
    assert call(ec2, "describe_subnets")["Subnets"]


def test_faults_in_turn(ec2: Ec2) -> None:
    """One call of the SDK with its retries meets one after another; the first had its effect."""
    ec2.script(in_turn("CreateFleet", "timeout-after-effect", "throttled", "500"))
    before, name, token = len(ec2.instances()), template(ec2), next(TOKENS)
    for error in (HTTPClientError, ClientError, ClientError):
        with pytest.raises(error):
            fleet(ec2, count=2, name=name, ClientToken=token)
    assert len(ids(fleet(ec2, count=2, name=name, ClientToken=token))) == 2
    assert len(ec2.instances()) == before + 2
    assert [hit for _, hit in ec2.hits()] == [1, 1, 1]


def test_members_that_ec2_does_not_know_are_refused(ec2: Ec2) -> None:
    def ask(**more: str) -> tuple[int, bytes]:
        form = {"Action": "DescribeInstances", "Version": "2016-11-15", "Filter.1.Name": "instance-id", **more}
        answer = urllib3.request("POST", ec2.endpoint, body=urlencode(form), retries=False)
        return answer.status, answer.data

    assert ask(**{"Filter.1.Value.1": "i-1"})[0] == 200
    for unknown in ("Filters", "Filter.1.Valu.1", "Filter.one.Name"):
        status, told = ask(**{unknown: "x"})
        assert status == 400
        assert b"<Code>UnknownParameter</Code>" in told
    assert ec2.log()[-1].code == "UnknownParameter"


def test_faults_count(ec2: Ec2) -> None:
    ec2.script([Fault("DescribeSubnets", "throttled", times=2, after=1)])
    assert call(ec2, "describe_subnets")
    for _ in range(2):
        assert code_of(lambda: call(ec2, "describe_subnets"))[0] == "RequestLimitExceeded"
    assert call(ec2, "describe_subnets")


def test_faults_end(ec2: Ec2) -> None:
    ec2.script([Fault("*", "shortage", delay=1000, seconds=1000)])
    assert ids(fleet(ec2))
    ec2.skip(1000)
    assert not ids(fleet(ec2))
    ec2.skip(1000)
    assert ids(fleet(ec2))


def test_an_answer_is_lost_after_the_effect(ec2: Ec2) -> None:
    name, token = template(ec2), next(TOKENS)
    ec2.script([Fault("CreateFleet", "timeout-after-effect", times=1)])
    before = len(ec2.instances())
    with pytest.raises(HTTPClientError):
        fleet(ec2, name=name, ClientToken=token)
    assert len(ec2.instances()) == before + 1
    (found,) = ids(fleet(ec2, name=name, ClientToken=token))
    assert len(ec2.instances()) == before + 1
    assert found == ec2.instances()[-1]["id"]


def test_one_call_hangs_and_the_others_go_on(ec2: Ec2) -> None:
    ec2.script([Fault("CreateLaunchTemplate", "hang", seconds=1.5 * PATIENCE, match={"contains": "slow"})])
    data = {"ImageId": image(ec2)}
    started = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(call, ec2, "create_launch_template", LaunchTemplateName="slow-one", LaunchTemplateData=data)
        call(ec2, "create_launch_template", LaunchTemplateName="quick-one", LaunchTemplateData=data)
        assert not slow.done()
        slow.result(10 * PATIENCE)
    assert time.monotonic() - started >= 1.5 * PATIENCE


def test_stale_reads(ec2: Ec2) -> None:
    (known,) = ids(fleet(ec2))
    seen(ec2, known)
    name = template(ec2)
    ec2.script([Fault("*", "stale", seconds=3600)])
    assert code_of(lambda: call(ec2, "describe_instances", InstanceIds=[known]))[0] == "InvalidInstanceID.NotFound"
    missing = code_of(lambda: call(ec2, "describe_launch_templates", LaunchTemplateNames=[name]))[0]
    assert missing == "InvalidLaunchTemplateName.NotFoundException"
    assert code_of(lambda: fleet(ec2, name=name))[0] == "InvalidLaunchTemplateName.NotFoundException"


def test_ec2_limits_how_often_it_is_called() -> None:
    with Ec2.start(None, data="small") as limited:
        client = limited.client("ec2", config=ONCE)

        def ask(_: int) -> str:
            try:
                client.create_launch_template(LaunchTemplateName=f"limit-{_}", LaunchTemplateData={"ImageId": "ami-1"})
            except ClientError as error:
                return str(error.response["Error"]["Code"])
            return ""

        codes = Counter(map(ask, range(80)))
        assert 50 <= codes[""] < 80
        assert codes[""] + codes["RequestLimitExceeded"] == 80
        log = [one for one in limited.log() if one.action == "CreateLaunchTemplate"]
        assert Counter(one.code for one in log) == codes
        assert limited.calls()["CreateLaunchTemplate"] == 80


def test_quotas_and_the_spot_role() -> None:
    with Ec2.start(None, data="small", quotas={"on-demand": 4}, spot_role=False, rate_limits=False) as poor:
        answer = fleet(poor, count=3)
        assert len(ids(answer)) == 2
        assert answer["Errors"][0]["ErrorCode"] == "VcpuLimitExceeded"
        spot = fleet(poor, kind="spot")
        assert spot["Errors"][0]["ErrorCode"] == "AuthFailure.ServiceLinkedRoleCreationNotPermitted"


# ---------------------------------------------------------------------- permissions


POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Action": ["ec2:CreateLaunchTemplate"],
            "Resource": "arn:aws:ec2:*:*:launch-template/*",
            "Condition": {"StringEquals": {"aws:RequestTag/owner": "us"}},
        },
        {
            "Effect": "Allow",
            "Action": "ec2:CreateTags",
            "Resource": "*",
            "Condition": {
                "StringEquals": {"ec2:CreateAction": ["CreateLaunchTemplate"]},
                "ForAllValues:StringEquals": {"aws:TagKeys": ["owner", "Name"]},
            },
        },
        {"Effect": "Allow", "Action": "ec2:Describe*", "Resource": "*"},
        {"Effect": "Deny", "Action": "ec2:DescribeImages", "Resource": "*"},
        {"Effect": "Allow", "Action": "ssm:GetParameter", "Resource": "arn:aws:ssm:*::parameter/aws/service/*"},
    ],
}


def test_policies_are_held() -> None:
    with Ec2.start(None, data="small", policies=[POLICY]) as strict:

        def make(**tags: str) -> Any:
            listed = [{"Key": key, "Value": value} for key, value in tags.items()]
            return call(
                strict,
                "create_launch_template",
                LaunchTemplateName=next(NAMES),
                LaunchTemplateData={"ImageId": image(strict)},
                TagSpecifications=[{"ResourceType": "launch-template", "Tags": listed}],
            )

        assert make(owner="us")
        assert code_of(lambda: make(owner="them"))[0] == "UnauthorizedOperation"
        assert code_of(lambda: make(owner="us", other="x"))[0] == "UnauthorizedOperation"
        assert call(strict, "describe_subnets")
        assert code_of(lambda: call(strict, "describe_images"))[0] == "UnauthorizedOperation"
        denied = code_of(lambda: call(strict, "describe_subnets", DryRun=True))[0]
        assert denied == "DryRunOperation"
        assert code_of(lambda: call(strict, "get_parameter", "ssm", Name="/mine"))[0] == "AccessDeniedException"
        # what can never be right is refused before anybody asks whose it is
        assert code_of(lambda: call(strict, "describe_images", Filters=[{"Name": "x", "Values": ["y"] * 201}]))[0] == (
            "FilterLimitExceeded"
        )
        refused: tuple[tuple[dict[str, Any], str], ...] = (
            ({"LaunchTemplateConfigs": []}, "MissingParameter"),
            ({"TargetCapacitySpecification": {"TotalTargetCapacity": 0}}, "InvalidTargetCapacitySpecification"),
            ({}, "UnauthorizedOperation"),
        )
        for members, code in refused:
            for dry in (False, True):
                asked: dict[str, Any] = {"name": "none", **members, "DryRun": dry}
                assert code_of(lambda asked=asked: fleet(strict, **asked))[0] == code  # type: ignore[misc]
        assert code_of(lambda: call(strict, "terminate_instances", InstanceIds=["node"]))[0] == (
            "InvalidInstanceID.Malformed"
        )
        unknown = "i-0123456789abcdef0"  # whether it is there is nobody's business without permission
        assert code_of(lambda: call(strict, "terminate_instances", InstanceIds=[unknown]))[0] == "UnauthorizedOperation"


def test_policy_simulation(ec2: Ec2) -> None:
    iam = ec2.client("iam")
    iam.create_role(RoleName="controller", AssumeRolePolicyDocument="{}")
    iam.put_role_policy(RoleName="controller", PolicyName="p", PolicyDocument=json.dumps(POLICY))
    answer = iam.simulate_principal_policy(
        PolicySourceArn="arn:aws:iam::123456789012:role/controller",
        ActionNames=["ec2:DescribeSubnets", "ec2:DescribeImages", "ec2:CreateLaunchTemplate", "sqs:ReceiveMessage"],
        ResourceArns=["arn:aws:ec2:us-west-2:123456789012:launch-template/*"],
        ContextEntries=[
            {"ContextKeyName": "aws:RequestTag/owner", "ContextKeyValues": ["us"], "ContextKeyType": "string"}
        ],
    )
    assert {one["EvalActionName"]: one["EvalDecision"] for one in answer["EvaluationResults"]} == {
        "ec2:DescribeSubnets": "allowed",
        "ec2:DescribeImages": "explicitDeny",
        "ec2:CreateLaunchTemplate": "allowed",
        "sqs:ReceiveMessage": "implicitDeny",
    }


def test_who_we_are_and_instance_profiles(ec2: Ec2) -> None:
    assert call(ec2, "get_caller_identity", "sts")["Account"] == "123456789012"
    iam = ec2.client("iam", config=ONCE)
    iam.create_instance_profile(
        InstanceProfileName="made", Path="/karpenter/us-west-2/c/uid/", Tags=[{"Key": "a", "Value": "b"}]
    )
    iam.add_role_to_instance_profile(InstanceProfileName="made", RoleName=ec2.vpc.role)
    listed = iam.list_instance_profiles(PathPrefix="/karpenter/us-west-2/c/")["InstanceProfiles"]
    assert [(one["InstanceProfileName"], one["Roles"][0]["RoleName"]) for one in listed] == [("made", ec2.vpc.role)]
    assert ids(fleet(ec2, name=template(ec2, IamInstanceProfile={"Name": "made"})))
    assert code_of(lambda: iam.get_instance_profile(InstanceProfileName="none"))[0] == "NoSuchEntity"
    ec2.script([Fault("GetInstanceProfile", "stale", seconds=3600)])
    assert code_of(lambda: iam.get_instance_profile(InstanceProfileName="made"))[0] == "NoSuchEntity"


# ---------------------------------------------------------------------- the cluster and its queue


def test_the_cluster_and_zonal_shifts(ec2: Ec2) -> None:
    cluster = call(ec2, "describe_cluster", "eks", name="dovetail")["cluster"]
    assert (cluster["version"], cluster["kubernetesNetworkConfig"]["serviceIpv4Cidr"]) == ("1.36", "10.96.0.0/16")
    assert code_of(lambda: call(ec2, "describe_cluster", "eks", name="other"))[0] == "ResourceNotFoundException"

    def away() -> list[str]:
        found = call(ec2, "get_managed_resource", "arc-zonal-shift", resourceIdentifier=cluster["arn"])
        return [one["awayFrom"] for one in found["zonalShifts"] if one["appliedStatus"] == "APPLIED"]

    assert away() == []
    ec2.shift(ec2.vpc.zones[0])
    assert away() == ["usw2-az2"]
    ec2.shift(ec2.vpc.zones[0], cancel=True)
    assert away() == []


def drained(ec2: Ec2, kind: str, instance_id: str, seconds: float = 5.0) -> list[dict[str, Any]]:
    """Events of one kind about one instance; all messages are deleted."""
    sqs = ec2.client("sqs")
    url = sqs.get_queue_url(QueueName=ec2.vpc.queue)["QueueUrl"]
    found: list[dict[str, Any]] = []
    ends = time.monotonic() + seconds * PATIENCE
    while not found and time.monotonic() < ends:
        answer = sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1, MessageSystemAttributeNames=["SentTimestamp"]
        )
        for message in answer.get("Messages", ()):
            assert int(message["Attributes"]["SentTimestamp"]) > 0
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            event = json.loads(message["Body"])
            if event["detail-type"] == kind and instance_id in json.dumps(event["detail"]):
                found.append(event)
    return found


def test_interruptions(ec2: Ec2) -> None:
    spot, other = ids(fleet(ec2, count=2, kind="spot"))
    ec2.interrupt(other, "rebalance")
    ec2.interrupt(other, "scheduled-change", seconds=3600)
    ec2.interrupt(spot, "spot")
    (rebalance,) = drained(ec2, "EC2 Instance Rebalance Recommendation", other)
    assert (rebalance["source"], rebalance["version"]) == ("aws.ec2", "0")
    eventually(lambda: spot not in {one["id"] for one in ec2.alive()}, "the spot instance is gone")
    assert other in {one["id"] for one in ec2.alive()}
    assert drained(ec2, "EC2 Instance State-change Notification", spot)


def test_interruptions_by_script(ec2: Ec2) -> None:
    found = set(ids(fleet(ec2, ("c5.large",), count=4, kind="spot")))
    spared = set(ids(fleet(ec2, ("c5.large",), count=1)))
    eventually(lambda: found | spared <= {one["id"] for one in ec2.instances("running")}, "they run")
    ec2.script([Fault("*", "interruption", times=3, match={"family": "c5"})])

    def left() -> set[str]:
        return (found | spared) & {one["id"] for one in ec2.alive()}

    eventually(lambda: len(left()) == 2, "three are gone")
    assert spared < left()


def test_a_message_comes_back_until_it_is_deleted(ec2: Ec2) -> None:
    sqs = ec2.client("sqs")
    url = sqs.create_queue(QueueName="mine")["QueueUrl"]
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(sqs.receive_message, QueueUrl=url, WaitTimeSeconds=10, VisibilityTimeout=1)
        sqs.send_message(QueueUrl=url, MessageBody="hello")
        started = time.monotonic()
        (message,) = waiting.result(10 * PATIENCE)["Messages"]
        assert time.monotonic() - started < 3 * PATIENCE, "not only at the end of the ten seconds"
    assert message["Body"] == "hello"
    (again,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
    assert again["MessageId"] == message["MessageId"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])
    assert code_of(lambda: sqs.get_queue_url(QueueName="none"))[0] == "AWS.SimpleQueueService.NonExistentQueue"


# ---------------------------------------------------------------------- instances that join


def test_the_emulator_starts_quickly_and_launches_hundreds_quickly() -> None:
    started = time.monotonic()
    with Ec2.start(None, clock_factor=FACTOR) as quick:
        assert time.monotonic() - started < 15 * PATIENCE  # 2 to 3 s on a machine that is idle
        found = ids(fleet(quick, count=500))
        assert len(set(found)) == 500
        eventually(lambda: len(quick.instances("running")) == 500, "they run")
        assert time.monotonic() - started < 30 * PATIENCE


@dataclass(frozen=True)
class JoinCase:
    """User data of a family, and what of it must show in the Node; `refusal` is why it never joins."""

    family: str
    path: str
    wrong: Mapping[str, str] = field(default_factory=dict)
    kubelet: Mapping[str, Any] = field(default_factory=dict)
    user_data: str = ""
    refusal: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


_AL2023 = AL2023.format("x86_64")
_BOTTLEROCKET = "/aws/service/bottlerocket/aws-k8s-1.36/x86_64/latest/image_id"
_WINDOWS = "/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.36/image_id"


def own_user_data(name: str) -> str:
    """Of an EC2NodeClass in tests/data/userdata."""
    return str(user_data_case(name)["spec"]["userData"])


JOINS = {
    "AL2023": JoinCase("AL2023", _AL2023, kubelet={"systemReserved": {"cpu": "100m"}}),
    "AL2023 beside a script": JoinCase("AL2023", _AL2023, user_data="#!/bin/bash\necho hello"),
    "AL2": JoinCase(
        "AL2",
        "/aws/service/eks/optimized-ami/1.32/amazon-linux-2/recommended/image_id",
        kubelet={"systemReserved": {"cpu": "100m"}},
    ),
    "Bottlerocket": JoinCase("Bottlerocket", _BOTTLEROCKET, kubelet={"systemReserved": {"cpu": "100m"}}),
    "Windows": JoinCase(
        "Windows2022",
        _WINDOWS,
        kubelet={"systemReserved": {"cpu": "100m"}},
    ),
    "another cluster": JoinCase("AL2023", _AL2023, {"name": "other"}, refusal="Unauthorized"),
    "another endpoint": JoinCase("AL2023", _AL2023, {"endpoint": "https://10.9.9.9"}, refusal="does not answer"),
    "Bottlerocket that waits": JoinCase(
        "Custom",
        _BOTTLEROCKET,
        user_data="[settings.autoscaling]\nshould-wait = true\n",
        refusal="auto scaling group",
    ),
    "another authority": JoinCase("Bottlerocket", _BOTTLEROCKET, {"ca_bundle": "Q0E="}, refusal="unknown authority"),
    "a label that kubelets may not set": JoinCase(
        "AL2023", _AL2023, labels={"node-role.kubernetes.io/x": ""}, refusal="labels specified with --node-labels"
    ),
    "no user data": JoinCase("Custom", _AL2023, refusal="no user data"),
    "two NodeConfigs in one text": JoinCase("AL2023", _AL2023, user_data=own_user_data("al2023-two-documents")),
    "cloud-config": JoinCase(
        "AL2023", _AL2023, user_data=own_user_data("al2023-cloud-config"), refusal="no kind None is registered"
    ),
    "another kind": JoinCase(
        "AL2023", _AL2023, user_data=own_user_data("al2023-wrong-kind"), refusal="no kind NodeConfigs is registered"
    ),
    "Windows with tags": JoinCase("Windows2022", _WINDOWS, user_data=own_user_data("windows-tags")),
    "Windows with tags in tags": JoinCase(
        "Custom",
        _WINDOWS,
        user_data="<powershell>\n<powershell>\n& $EKSBootstrapScriptFile\n</powershell>\n</powershell>",
        refusal="PowerShell",
    ),
}


def authority(plane: DevCluster) -> str:
    return base64.b64encode((plane.dir / "pki" / "ca.crt").read_bytes()).decode()


def test_instances_become_nodes_from_their_user_data_alone(plane: DevCluster) -> None:
    ca = authority(plane)
    joined: dict[str, str] = {}
    with Ec2.start(
        ClusterOfNodes("emulated", plane.host, ca, str(plane.kubeconfig)), clock_factor=10, rate_limits=False
    ) as ec2:
        for name, case in JOINS.items():
            facts = {
                "name": "emulated",
                "endpoint": plane.host,
                "ca_bundle": ca,
                "cidr": "10.96.0.0/16",
                "dns": "10.96.0.10",
            }
            cluster = JoinedCluster(**{"minor": 36, **facts, **case.wrong})  # type: ignore[arg-type]
            labels = {"karpenter.sh/nodepool": "p", **case.labels}
            text = render(
                node_input(case.family, cluster=cluster, kubelet=case.kubelet, labels=labels, user_data=case.user_data)
            )
            image_id = call(ec2, "get_parameter", "ssm", Name=case.path)["Parameter"]["Value"]
            data = {"UserData": encoded(text)} if text else {}
            (joined[name],) = ids(fleet(ec2, name=template(ec2, ImageId=image_id, **data)))

        def settled() -> dict[str, Any]:
            found = {one["id"]: one for one in ec2.instances()}
            done = all(one["joined"] or one["not_joined"] for one in found.values())
            return {name: found[instance] for name, instance in joined.items()} if done else {}

        instances = eventually(settled, "every instance has joined or given up", 60)
        client = Client(connect(str(plane.kubeconfig), user_agent="test", clock=SystemClock()), SystemClock())
        for name, case in JOINS.items():
            instance = instances[name]
            if case.refusal:
                assert not instance["joined"], name
                assert case.refusal in instance["not_joined"], name
                continue
            assert instance["joined"], (name, instance["not_joined"])
            check_node(client.get(NODES, instance["node"]), instance, case)
        call(ec2, "terminate_instances", InstanceIds=list(joined.values()))
        ec2.skip(20)
        nodes = {instance["node"] for instance in instances.values() if instance["joined"]}
        ec2.skip(60)
        eventually(
            lambda: not nodes & {one.metadata.name for one in client.list(NODES)},
            "the cloud controller deletes their Nodes",
            60,
        )


def test_nodes_of_an_ipv6_cluster_are_ready_on_nitro_only(plane: DevCluster) -> None:
    ca, cidr = authority(plane), "fd00:10::/108"
    where = ClusterOfNodes("emulated", plane.host, ca, str(plane.kubeconfig))
    client = Client(connect(str(plane.kubeconfig), user_agent="test", clock=SystemClock()), SystemClock())
    with Ec2.start(where, clock_factor=10, rate_limits=False, service_cidr=cidr) as ec2:
        described = ec2.client("eks").describe_cluster(name="emulated")["cluster"]["kubernetesNetworkConfig"]
        assert described == {"serviceIpv6Cidr": cidr, "ipFamily": "ipv6"}
        cluster = JoinedCluster(
            name="emulated", endpoint=plane.host, ca_bundle=ca, minor=36, cidr=cidr, dns="fd00:10::a"
        )
        text = encoded(render(node_input("AL2023", cluster=cluster, labels={}, user_data="")))
        address = [{"DeviceIndex": 0, "Groups": list(ec2.vpc.groups), "PrimaryIpv6": True, "Ipv6AddressCount": 1}]
        name = template(ec2, UserData=text, NetworkInterfaces=address)
        (refused,) = fleet(ec2, ("m3.medium",), name=name)["Errors"]
        assert refused["ErrorCode"] == "UnsupportedOperation"
        (t2,), (m5,) = (ids(fleet(ec2, (kind,), name=name)) for kind in ("t2.large", "m5.large"))

        def ready() -> dict[str, bool]:
            found = {one["id"]: one["node"] for one in ec2.instances() if one["joined"]}
            nodes = {one.metadata.name: one for one in client.list(NODES)}
            return {
                instance: is_true(nodes[node].status.conditions, "Ready")
                for instance, node in found.items()
                if node in nodes
            }

        eventually(lambda: ready() == {t2: False, m5: True}, "both have joined, and that on Nitro is Ready", 60)
        call(ec2, "terminate_instances", InstanceIds=[t2, m5])
        ec2.skip(80)
        eventually(lambda: not ready(), "their Nodes are gone", 60)


def check_node(node: Node, instance: Mapping[str, Any], case: JoinCase) -> None:
    """What user data, type and cloud make of a Node."""
    assert node.spec.provider_id == f"aws:///{instance['zone']}/{instance['id']}"
    assert {(one.key, one.value, one.effect) for one in node.spec.taints} >= {
        ("dedicated", "gpu", "NoSchedule"),
        ("karpenter.sh/unregistered", "", "NoExecute"),
    }
    labels = node.metadata.labels
    assert labels["karpenter.sh/nodepool"] == "p"
    assert labels["node.kubernetes.io/instance-type"] == "m5.large"
    assert labels["topology.kubernetes.io/zone"] == instance["zone"]
    assert labels["kubernetes.io/os"] == ("windows" if case.family.startswith("Windows") else "linux")
    assert node.status.capacity["pods"] == "58"
    kib = int(str(node.status.capacity["memory"]).removesuffix("Ki"))
    assert 0.925 * 8192 * 1024 < kib < 8192 * 1024
    reserved = 70 + (100 if case.kubelet else 0)
    assert node.status.allocatable["cpu"] == f"{2000 - reserved}m"
    # 3 interfaces of 10 addresses: 29 pods; 11 MiB each and 255, and 100 for eviction
    assert int(str(node.status.allocatable["memory"]).removesuffix("Ki")) == kib - (11 * 29 + 255 + 100) * 1024
