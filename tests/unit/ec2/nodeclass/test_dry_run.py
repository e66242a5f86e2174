"""What is rehearsed, and how long user data becomes."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from botocore.validate import ParamValidator

from provisioner.apis.ec2 import AMI, EC2NodeClass
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.cloudprovider.types import InstanceType, Offering
from provisioner.ec2 import labels
from provisioner.ec2.launch import orders
from provisioner.ec2.launch.orders import OrderContext, launch_tags
from provisioner.ec2.launch.userdata.inputs import JoinedCluster
from provisioner.ec2.market.instance_types import PlacementGroup
from provisioner.ec2.nodeclass.dry_run import (
    STAND_IN_POOL,
    Choice,
    choose,
    rehearsed,
    run_request,
    sized,
    user_data,
)
from provisioner.ec2.nodeclass.images import NEURON, NVIDIA, STANDARD, Variant, chosen, images_of
from provisioner.values.requirement import Operator, Requirement, Requirements
from provisioner.values.resources import Resources
from tests.support.clock import NOON
from tests.support.servicemodel import model

CLUSTER = JoinedCluster("c", "https://api", "Q0E=", 33, "10.100.0.0/16", "10.100.0.10")


def image(name: str, variant: Variant, arch: str = "x86_64") -> AMI:
    row = {"ImageId": f"ami-{name}", "Name": name, "Architecture": arch, "CreationDate": "2026-01-01T00:00:00Z"}
    return chosen(images_of([row], NOON), {f"ami-{name}": [variant]})[0]


PLAIN, ARM = image("plain", STANDARD), image("arm", STANDARD, "arm64")
GPU, CORE = image("gpu", NVIDIA), image("core", NEURON)


def class_of(*amis: AMI, **spec: Any) -> EC2NodeClass:
    terms = spec.pop("amiSelectorTerms", [{"alias": "al2023@latest"}])
    written = {"metadata": {"name": "default"}, "spec": {"amiSelectorTerms": terms, **spec}}
    return msgspec.convert({**written, "status": {"amis": msgspec.to_builtins(amis)}}, EC2NodeClass)


def instance(name: str, price: float, arch: str = "amd64", gpus: str = "") -> InstanceType:
    absent = Requirement.of("karpenter.k8s.aws/instance-gpu-count", Operator.DOES_NOT_EXIST)
    requirements = Requirements.of(
        [
            Requirement.of("node.kubernetes.io/instance-type", "In", [name]),
            Requirement.of("kubernetes.io/arch", "In", [arch]),
            Requirement.of("karpenter.k8s.aws/instance-accelerator-count", Operator.DOES_NOT_EXIST),
            Requirement.of("karpenter.k8s.aws/instance-gpu-count", "In", [gpus]) if gpus else absent,
        ]
    )
    place = {"topology.kubernetes.io/zone": "a", "karpenter.sh/capacity-type": "on-demand"}
    offering = Offering(Requirements.from_labels(place), price, available=True)
    return InstanceType(name, requirements, Resources.of({}), Resources.of({}), (offering,))


def pool(name: str = "general", **requirements: str) -> NodePool:
    keys = {"arch": "kubernetes.io/arch", "type": "node.kubernetes.io/instance-type"}
    listed = [{"key": keys[key], "operator": "In", "values": [value]} for key, value in requirements.items()]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    template = {"spec": {"requirements": listed, "nodeClassRef": reference}}
    return msgspec.convert({"metadata": {"name": name}, "spec": {"template": template}}, NodePool)


TYPES = (
    instance("m5.large", 2),
    instance("c5.large", 1),
    instance("m6g.large", 0.5, "arm64"),
    instance("g5.large", 9, gpus="1"),
)
CHOICES: dict[str, tuple[EC2NodeClass, tuple[InstanceType, ...], list[NodePool], tuple[str, str] | None]] = {
    "no images": (class_of(), TYPES, [], None),
    "the cheapest type of the first plain image": (class_of(GPU, PLAIN, ARM), TYPES, [], ("c5.large", "ami-plain")),
    "images in the order of the status": (class_of(ARM, PLAIN), TYPES, [], ("m6g.large", "ami-arm")),
    "what a pool allows": (class_of(PLAIN), TYPES, [pool(type="m5.large")], ("m5.large", "ami-plain")),
    "what any pool allows": (
        class_of(PLAIN),
        TYPES,
        [pool(type="m5.large"), pool(type="c5.large")],
        ("c5.large", "ami-plain"),
    ),
    "an architecture that only one image has": (
        class_of(PLAIN, ARM),
        TYPES,
        [pool(arch="arm64")],
        ("m6g.large", "ami-arm"),
    ),
    "an image for accelerators when there is no other": (class_of(GPU), TYPES, [], ("g5.large", "ami-gpu")),
    "types are not known yet": (class_of(GPU, PLAIN), (), [], ("m5.large", "ami-plain")),
    "types are not known yet, of arm": (class_of(ARM), (), [], ("m6g.large", "ami-arm")),
    "nothing goes with the image": (class_of(CORE), TYPES, [], ("m5.large", "ami-core")),
    "Windows has a type of its own": (
        class_of(PLAIN, amiSelectorTerms=[{"alias": "windows2022@latest"}]),
        TYPES,
        [],
        ("m5.large", "ami-plain"),
    ),
}


@pytest.mark.parametrize("case", CHOICES.values(), ids=CHOICES)
def test_what_is_rehearsed(
    case: tuple[EC2NodeClass, tuple[InstanceType, ...], list[NodePool], tuple[str, str] | None],
) -> None:
    node_class, types, pools, want = case
    choice = choose(node_class, types, pools)
    assert (None if choice is None else (choice.instance_type, choice.image.id)) == want


def test_the_longest_user_data_of_all_pools_counts() -> None:
    node_class = class_of(PLAIN)
    alone, _ = sized(node_class, CLUSTER, [])
    short, _ = sized(node_class, CLUSTER, [pool("a")])
    both, _ = sized(node_class, CLUSTER, [pool("a"), pool("a" * 60)])
    assert both > max(alone, short)
    assert alone == len(user_data(node_class, CLUSTER, None).encode())


SIZES: dict[str, tuple[int, str, bool]] = {
    "small": (100, "", False),
    "close to the limit": (15_000, "", True),
    "too much": (17_000, "UserDataSizeLimitExceeded", False),
}


@pytest.mark.parametrize("case", SIZES.values(), ids=SIZES)
def test_what_is_said_about_the_size(case: tuple[int, str, bool]) -> None:
    length, reason, warned = case
    node_class = class_of(PLAIN, amiFamily="Custom", userData="x" * length, amiSelectorTerms=[{"id": "ami-1"}])
    size, result = sized(node_class, CLUSTER, [])
    assert (size, result.reason, bool(result.warnings)) == (length, reason, warned)


def test_tags_of_a_launch_are_those_that_policies_ask_for() -> None:
    node_class = class_of(tags={"team": "a", "karpenter.sh/nodepool": "stolen"})
    assert launch_tags(node_class, STAND_IN_POOL, "c") == {
        "team": "a",
        "kubernetes.io/cluster/c": "owned",
        "karpenter.sh/nodepool": STAND_IN_POOL,
        "eks:eks-cluster-name": "c",
        "karpenter.k8s.aws/ec2nodeclass": "default",
    }


READY = {
    "type": "Ready",
    "status": "True",
    "reason": "Ready",
    "message": "",
    "lastTransitionTime": "2026-11-21T12:00:00Z",
}
SPECS: dict[str, dict[str, Any]] = {
    "a plain class": {},
    "a public address": {"associatePublicIPAddress": True},
    "several interfaces": {
        "networkInterfaces": [
            {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
            {"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"},
            {"networkCardIndex": 1, "deviceIndex": 0, "interfaceType": "efa-only"},
        ]
    },
    "prefixes and connection tracking": {"ipPrefixCount": 2, "connectionTracking": {"udpTimeout": 30}},
    "metadata options, devices, monitoring and CPU options": {
        "metadataOptions": {"httpTokens": "optional", "httpPutResponseHopLimit": 2},
        "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "30Gi", "encrypted": True}}],
        "detailedMonitoring": True,
        "cpuOptions": {"nestedVirtualization": "enabled"},
    },
}
TENANCY = {"key": labels.TENANCY, "operator": "In", "values": ["dedicated"]}


@pytest.mark.parametrize("group", [None, PlacementGroup("pg-1", "cluster")], ids=["", "in a placement group"])
@pytest.mark.parametrize("listed", [[], [TENANCY]], ids=["", "dedicated"])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_the_dry_run_asks_for_what_a_launch_asks_for(
    spec: dict[str, Any], listed: list[dict[str, Any]], group: PlacementGroup | None
) -> None:
    """All but user data and tags, which no dry run depends on; and RunInstances names every interface."""
    status = {
        "amis": msgspec.to_builtins((PLAIN,)),
        "subnets": [{"id": "subnet-a", "zone": "a", "zoneID": "id-a"}],
        "securityGroups": [{"id": "sg-2"}, {"id": "sg-1"}],
        "instanceProfile": "profile",
        "conditions": [READY],
    }
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    node_class = msgspec.convert({"metadata": {"name": "default"}, "spec": spec, "status": status}, EC2NodeClass)
    template = {"spec": {"requirements": listed, "nodeClassRef": reference}}
    mine = msgspec.convert({"metadata": {"name": "general"}, "spec": {"template": template}}, NodePool)
    claim = msgspec.convert(
        {
            "metadata": {"name": "general-1", "uid": "u", "labels": {"karpenter.sh/nodepool": "general"}},
            "spec": {"nodeClassRef": reference, "requirements": listed, "resources": {"requests": {"cpu": "1"}}},
        },
        NodeClaim,
    )
    sold = replace(TYPES[0], capacity=Resources.of({"cpu": 2000, "memory": 2**33, "pods": 29}))
    around = OrderContext(node_class, (sold,), CLUSTER, "us-east-1", {"a": "subnet-a"}, lambda _: 29, group=group)
    (launched,) = orders.order_of(claim, around).needed
    made = rehearsed(node_class, Choice("m5.large", PLAIN), mine, CLUSTER, group, "us-east-1")
    beside = {"UserData", "TagSpecifications"}
    assert {key: one for key, one in made.data.items() if key not in beside} == {
        key: one for key, one in launched.data.items() if key not in beside
    }
    asked = run_request(Choice("m5.large", PLAIN), made, node_class.status.subnets[0], made.tags)
    assert asked["NetworkInterfaces"] == [{**one, "SubnetId": "subnet-a"} for one in launched.data["NetworkInterfaces"]]
    shape = model("ec2").operation_model("RunInstances").input_shape
    report = ParamValidator().validate(asked, shape)
    assert not report.has_errors(), report.generate_report()
