import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from botocore.validate import ParamValidator

from provisioner.apis.ec2 import EC2NodeClass, NetworkInterface
from provisioner.ec2.launch import templates
from provisioner.ec2.launch.templates import CONFIG_KEY, InstanceSpec, TemplateUses
from tests.support.clock import NOON
from tests.support.servicemodel import model

INSTANCE = InstanceSpec("ami-1", "dXNlciBkYXRh", "profile", ("sg-1", "sg-2"), "on-demand")
TAGS = {"eks:eks-cluster-name": "prod", "karpenter.sh/nodepool": "default"}
LISTED = [{"Key": "eks:eks-cluster-name", "Value": "prod"}, {"Key": "karpenter.sh/nodepool", "Value": "default"}]
GROUPS = {"Groups": ["sg-1", "sg-2"]}


def made(
    spec: Mapping[str, Any] | None = None,
    instance: InstanceSpec = INSTANCE,
    region: str = "us-east-1",
    *,
    reservations: bool = True,
) -> templates.LaunchTemplate:
    own = {"amiFamily": "AL2023", **(spec or {})}
    node_class = msgspec.convert({"metadata": {"name": "default"}, "spec": own}, EC2NodeClass)
    return templates.template(node_class, instance, TAGS, region, reservations=reservations)


def test_the_whole_of_a_plain_one() -> None:
    assert made().data == {
        "ImageId": "ami-1",
        "UserData": "dXNlciBkYXRh",
        "IamInstanceProfile": {"Name": "profile"},
        "Monitoring": {"Enabled": False},
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpProtocolIpv6": "disabled",
            "HttpPutResponseHopLimit": 1,
            "HttpTokens": "required",
            "InstanceMetadataTags": "disabled",
        },
        "NetworkInterfaces": [{"DeviceIndex": 0, **GROUPS}],
        "Placement": {"Tenancy": "default"},
        "BlockDeviceMappings": [
            {"DeviceName": "/dev/xvda", "Ebs": {"Encrypted": True, "VolumeSize": 20, "VolumeType": "gp3"}}
        ],
        "CapacityReservationSpecification": {"CapacityReservationPreference": "none"},
        "TagSpecifications": [{"ResourceType": "network-interface", "Tags": LISTED}],
    }


@dataclass(frozen=True)
class Case:
    want: dict[str, Any]
    spec: Mapping[str, Any] = field(default_factory=dict)
    instance: InstanceSpec = INSTANCE
    region: str = "us-east-1"


IPV6 = replace(INSTANCE, ipv6=True)
CASES = {
    "spot requests are tagged": Case(
        {
            "TagSpecifications": [
                {"ResourceType": kind, "Tags": LISTED} for kind in ("network-interface", "spot-instances-request")
            ]
        },
        instance=replace(INSTANCE, capacity_type="spot"),
    ),
    "detailed monitoring": Case({"Monitoring": {"Enabled": True}}, {"detailedMonitoring": True}),
    "metadata options": Case(
        {
            "MetadataOptions": {
                "HttpEndpoint": "enabled",
                "HttpProtocolIpv6": "enabled",
                "HttpPutResponseHopLimit": 2,
                "HttpTokens": "optional",
                "InstanceMetadataTags": "disabled",
            }
        },
        {"metadataOptions": {"httpProtocolIPv6": "enabled", "httpPutResponseHopLimit": 2, "httpTokens": "optional"}},
    ),
    "metadata where IPv6 is not known": Case(
        {
            "MetadataOptions": {
                "HttpEndpoint": "enabled",
                "HttpPutResponseHopLimit": 1,
                "HttpTokens": "required",
                "InstanceMetadataTags": "disabled",
            }
        },
        region="us-iso-east-1",
    ),
    "no user data": Case({"UserData": None}, instance=replace(INSTANCE, user_data="")),
    "a Custom image brings its volumes": Case({"BlockDeviceMappings": None}, {"amiFamily": "Custom"}),
    "nested virtualization": Case(
        {"CpuOptions": {"NestedVirtualization": "enabled"}}, {"cpuOptions": {"nestedVirtualization": "enabled"}}
    ),
    "an enclave": Case({"EnclaveOptions": {"Enabled": True}}, {"enclaveOptions": {"enabled": True}}),
    "dedicated, in a partition": Case(
        {"Placement": {"Tenancy": "dedicated", "GroupId": "pg-1", "PartitionNumber": 2}},
        instance=replace(INSTANCE, tenancy="dedicated", group="pg-1", partition=2),
    ),
    "in a group": Case(
        {"Placement": {"Tenancy": "default", "GroupId": "pg-1"}}, instance=replace(INSTANCE, group="pg-1")
    ),
    "a reservation": Case(
        {
            "CapacityReservationSpecification": {
                "CapacityReservationPreference": "capacity-reservations-only",
                "CapacityReservationTarget": {"CapacityReservationId": "cr-1"},
            },
            "InstanceMarketOptions": None,
        },
        instance=replace(INSTANCE, reservation="cr-1"),
    ),
    "a capacity block": Case(
        {"InstanceMarketOptions": {"MarketType": "capacity-block"}},
        instance=replace(INSTANCE, reservation="cr-1", block=True),
    ),
    "an interruptible reservation": Case(
        {"InstanceMarketOptions": {"MarketType": "interruptible-capacity-reservation"}},
        instance=replace(INSTANCE, reservation="cr-1", interruptible=True),
    ),
    "a public address": Case(
        {"NetworkInterfaces": [{"DeviceIndex": 0, **GROUPS, "AssociatePublicIpAddress": False}]},
        {"associatePublicIPAddress": False},
    ),
    "IPv4 prefixes": Case(
        {"NetworkInterfaces": [{"DeviceIndex": 0, **GROUPS, "Ipv4PrefixCount": 2}]}, {"ipPrefixCount": 2}
    ),
    "IPv6": Case(
        {"NetworkInterfaces": [{"DeviceIndex": 0, **GROUPS, "PrimaryIpv6": True, "Ipv6AddressCount": 1}]},
        instance=IPV6,
    ),
    "IPv6 prefixes instead of an address": Case(
        {"NetworkInterfaces": [{"DeviceIndex": 0, **GROUPS, "Ipv6PrefixCount": 1}]}, {"ipPrefixCount": 1}, IPV6
    ),
    "connection tracking": Case(
        {"NetworkInterfaces": [{"DeviceIndex": 0, **GROUPS, "ConnectionTrackingSpecification": {"UdpTimeout": 30}}]},
        {"connectionTracking": {"udpTimeout": 30}},
    ),
    "one EFA": Case(
        {
            "NetworkInterfaces": [
                {"NetworkCardIndex": 0, "DeviceIndex": 0, "InterfaceType": "efa", **GROUPS, "Ipv4PrefixCount": 1}
            ]
        },
        {"ipPrefixCount": 1},
        replace(INSTANCE, interfaces=(NetworkInterface(interface_type="efa"),)),
    ),
    "several interfaces": Case(
        {
            "NetworkInterfaces": [
                {
                    "NetworkCardIndex": 0,
                    "DeviceIndex": 0,
                    "InterfaceType": "interface",
                    **GROUPS,
                    "AssociatePublicIpAddress": True,
                },
                {"NetworkCardIndex": 1, "DeviceIndex": 1, "InterfaceType": "efa-only", **GROUPS},
            ]
        },
        {"associatePublicIPAddress": True},
        replace(
            INSTANCE,
            interfaces=(
                NetworkInterface(interface_type="interface"),
                NetworkInterface(network_card_index=1, device_index=1, interface_type="efa-only"),
            ),
        ),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_in_a_template(case: Case) -> None:
    data = made(case.spec, case.instance, case.region).data
    assert {key: data.get(key) for key in case.want} == case.want


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_botocore_takes_it(case: Case) -> None:
    shape = model("ec2").operation_model("CreateLaunchTemplate").input_shape
    report = ParamValidator().validate(made(case.spec, case.instance, case.region).request(), shape)
    assert not report.has_errors(), report.generate_report()


def test_without_the_gate_reservations_are_not_spoken_of() -> None:
    assert "CapacityReservationSpecification" not in made(reservations=False).data


def test_equal_templates_have_one_name_different_ones_do_not() -> None:
    assert made() == made()
    named = {made(case.spec, case.instance, case.region).name for case in CASES.values()}
    assert len(named) == len(CASES)
    assert made().name not in named
    assert made({"enclaveOptions": {"enabled": False}}) == made()
    assert all(
        re.fullmatch(r"dovetail\.dev/[0-9a-f]{40}", name) for name in named
    )  # EC2 takes 3-128 of [a-zA-Z0-9().-/_]


def test_the_order_of_tags_does_not_matter() -> None:
    node_class = msgspec.convert({"spec": {"amiFamily": "AL2023"}}, EC2NodeClass)
    turned = dict(reversed(TAGS.items()))
    assert templates.template(node_class, INSTANCE, turned, "us-east-1").name == made().name


def test_clusters_of_one_account_share_nothing() -> None:
    node_class = msgspec.convert({"spec": {"amiFamily": "AL2023"}}, EC2NodeClass)
    other = {**TAGS, "eks:eks-cluster-name": "test"}
    assert templates.template(node_class, INSTANCE, other, "us-east-1").name != made().name


def test_its_words_for_people_hold_no_user_data() -> None:
    assert "dXNlciBkYXRh" not in repr(made())


OURS = {
    "one of ours": ("dovetail.dev/ab", {"eks:eks-cluster-name": "prod"}, True),
    "of another cluster": ("dovetail.dev/ab", {"eks:eks-cluster-name": "test"}, False),
    "one of Karpenter's": ("karpenter.k8s.aws/123", {"eks:eks-cluster-name": "prod"}, False),
    "untagged": ("dovetail.dev/ab", {}, False),
}


@pytest.mark.parametrize(("name", "tags", "want"), OURS.values(), ids=OURS)
def test_ours(name: str, tags: dict[str, str], want: bool) -> None:
    assert templates.ours(name, tags, "prod") is want


def test_a_template_goes_a_day_after_its_last_use() -> None:
    uses = TemplateUses()
    uses.used("a", NOON)
    uses.used("b", NOON + timedelta(hours=1))
    assert uses.expired(["a", "b"], NOON + timedelta(hours=23, minutes=59)) == ()
    assert uses.expired(["b", "a"], NOON + timedelta(hours=24)) == ("a",)
    uses.used("a", NOON + timedelta(hours=24))
    assert uses.expired(["a", "b"], NOON + timedelta(hours=25)) == ("b",)


def test_one_that_was_never_seen_used_has_a_day_from_now() -> None:
    uses = TemplateUses()
    assert uses.expired(["a"], NOON) == ()
    assert uses.expired(["a"], NOON + timedelta(hours=24)) == ("a",)


def test_those_that_are_gone_are_forgotten() -> None:
    uses = TemplateUses()
    uses.used("a", NOON)
    uses.expired([], NOON)
    assert len(uses) == 0


def test_uses_survive_a_restart() -> None:
    uses = TemplateUses()
    uses.used("a", NOON)
    again = TemplateUses()
    assert again.restore(uses.to_config(), NOON + timedelta(hours=23))
    assert again.expired(["a"], NOON + timedelta(hours=24)) == ("a",)


BAD = {
    "no JSON": "{",
    "another document": "[]",
    "another version": '{"v": 2, "uses": {}}',
    "a time beyond all calendars": '{"v": 1, "uses": {"a": 1000000000000000}}',
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_what_cannot_be_read_is_not(text: str) -> None:
    uses = TemplateUses()
    assert not uses.restore({CONFIG_KEY: text}, NOON)
    assert len(uses) == 0


def test_nothing_kept_is_fine_and_a_clock_that_was_ahead_keeps_nothing_longer() -> None:
    uses = TemplateUses()
    assert uses.restore({}, NOON)
    uses.used("a", NOON + timedelta(days=400))
    again = TemplateUses()
    assert again.restore(uses.to_config(), NOON)
    assert again.expired(["a"], NOON + timedelta(hours=24)) == ("a",)
