"""What a class alone can be wrong or odd about."""

from typing import Any

import msgspec
import pytest

from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.meta import ObjectMeta
from provisioner.ec2.launch.userdata.inputs import JoinedCluster
from provisioner.ec2.nodeclass.validation import (
    PUBLIC_ADDRESS_WITH_SEVERAL_INTERFACES,
    ClassGates,
    acceptance,
    offline,
    size_problem,
    size_warning,
    unsupported_alias,
    validate,
)
from provisioner.values import yamltext
from tests.support.verdict_cases import USER_DATA, user_data_case

CLUSTER = JoinedCluster("c", "https://c.eks.amazonaws.com", "Q0E=", 33, "10.100.0.0/16", "10.100.0.10")
AL2023 = [{"alias": "al2023@latest"}]
NODE_CONFIG = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n"


def class_of(**spec: Any) -> EC2NodeClass:
    return msgspec.convert({"spec": {"amiSelectorTerms": AL2023, **spec}}, EC2NodeClass)


REASONS: dict[str, tuple[dict[str, Any], str, str]] = {
    "nothing special": ({}, "", ""),
    "a kubelet field that is none": ({"kubelet": {"x": 1}}, "InvalidKubeletConfiguration", "spec.kubelet: x: unknown"),
    "an expression": (
        {"kubelet": {"maxPods": "1+1"}},
        "KubeletExpressionsDisabled",
        "enable the AWS feature gate NodeClassCEL",
    ),
    "a field that the family has no place for": (
        {"kubelet": {"port": 1}, "amiSelectorTerms": [{"alias": "bottlerocket@latest"}]},
        "UnsupportedKubeletConfiguration",
        "spec.kubelet: port",
    ),
    **{
        f"the tag {key}": ({"tags": {key: "a"}}, "TagValidationFailed", f"spec.tags[{key}]")
        for key in (
            "eks:eks-cluster-name",
            "kubernetes.io/cluster/c",
            "karpenter.sh/nodepool",
            "karpenter.sh/nodeclaim",
            "karpenter.k8s.aws/ec2nodeclass",
        )
    },
    "a tag of AWS itself": (
        {"tags": {"Aws:team": "a"}},
        "TagValidationFailed",
        "spec.tags[Aws:team]: keys that begin with aws: are reserved",
    ),
    "a tag key that is too long": ({"tags": {"k" * 129: "a"}}, "TagValidationFailed", "at most 128 characters"),
    "a tag value that is too long": ({"tags": {"k": "v" * 257}}, "TagValidationFailed", "spec.tags[k]: longer"),
    "tags as long as may be": ({"tags": {"k" * 128: "v" * 256}}, "", ""),
    "a tag without key": ({"tags": {"": "a"}}, "TagValidationFailed", "a key is empty"),
    "tags of one's own": ({"tags": {"Name": "a", "kubernetes.io/other": "b", "karpenter.sh/x": "c"}}, "", ""),
    "the kubelet comes before tags": (
        {"kubelet": {"x": 1}, "tags": {"karpenter.sh/nodepool": "a"}},
        "InvalidKubeletConfiguration",
        "",
    ),
    "user data that cannot be read": (
        {"userData": "MIME-Version: 1.0\n\nhello"},
        "InvalidUserData",
        "spec.userData: the MIME document has no Content-Type",
    ),
    "settings that are no TOML": (
        {"userData": "[settings", "amiSelectorTerms": [{"alias": "bottlerocket@latest"}]},
        "InvalidUserData",
        "not valid TOML",
    ),
    "AL2 with a broken MIME document": (
        {"userData": "Content-Type: text/plain\n\nx", "amiSelectorTerms": [{"alias": "al2@latest"}]},
        "InvalidUserData",
        "not multipart",
    ),
    "user data so long that it is not read": (
        {"userData": "#!/bin/sh\n" + "# a\n" * 20_000},
        "UserDataSizeLimitExceeded",
        "user data of 80010 bytes exceeds the EC2 limit",
    ),
    "comments that are left out may be long": (
        {"userData": "# a\n" * 10_000, "amiSelectorTerms": [{"alias": "bottlerocket@latest"}]},
        "",
        "",
    ),
    "Custom user data is the user's own business": ({"userData": "MIME-Version: x", "amiFamily": "Custom"}, "", ""),
}


SHARING: dict[str, tuple[str, bool, str]] = {
    "none": ("", False, ""),
    "off": ("disabled", False, ""),
    "by memory": ("memory", False, "DRADisabled"),
    "by anything": ("unlimited", False, "DRADisabled"),
    "by a number": ("4", False, "DRADisabled"),
    "by a number, with the gate": ("4", True, ""),
    "by memory, with the gate": ("memory", True, ""),
    "by nothing": ("0", True, "NVIDIAConsumableCapacityInvalid"),
    "by less": ("-1", False, "NVIDIAConsumableCapacityInvalid"),
    "by what nobody knows": ("Memory", True, "NVIDIAConsumableCapacityInvalid"),
}


@pytest.mark.parametrize("name", SHARING)
def test_how_gpus_are_to_be_shared(name: str) -> None:
    value, gate, reason = SHARING[name]
    metadata = ObjectMeta(name="a", annotations={"karpenter.k8s.aws/nvidia-consumable-capacity": value})
    node_class = msgspec.structs.replace(class_of(), metadata=metadata)
    assert validate(node_class, CLUSTER, ClassGates(gpu_sharing=gate)).reason == reason


def test_expressions_are_taken_where_their_gate_is_on() -> None:
    node_class = class_of(kubelet={"maxPods": "vcpus * 8"})
    assert validate(node_class, CLUSTER, ClassGates(expressions=True)).reason == ""
    assert offline(node_class).errors == ()


@pytest.mark.parametrize("name", REASONS)
def test_a_reason(name: str) -> None:
    spec, reason, words = REASONS[name]
    verdict = validate(class_of(**spec), CLUSTER)
    assert verdict.reason == reason
    assert words in verdict.message
    assert verdict.warnings == ()


@pytest.mark.parametrize("name", USER_DATA)
def test_user_data_of_which_nodes_never_join_and_which_nobody_reads(name: str) -> None:
    kind, words = USER_DATA[name]
    verdict = validate(msgspec.convert(user_data_case(name), EC2NodeClass), CLUSTER)
    if kind == "errors":
        assert (verdict.reason, verdict.warnings) == ("InvalidUserData", ())
        assert words in verdict.message
    else:
        (warning,) = verdict.warnings
        assert (verdict.reason, words in warning) == ("", True)


def test_a_class_that_was_in_use_before_is_used_as_long_as_its_user_data_stays() -> None:
    made = msgspec.convert(user_data_case("al2023-cloud-config"), EC2NodeClass)

    def with_annotations(**spec: Any) -> EC2NodeClass:
        wire = {
            "metadata": {"annotations": acceptance(made)},
            "spec": user_data_case("al2023-cloud-config")["spec"] | spec,
        }
        return msgspec.convert(wire, EC2NodeClass)

    kept = validate(with_annotations(tags={"a": "b"}), CLUSTER)
    assert (kept.reason, kept.warnings) == ("", (kept.kept,))
    assert "must be a NodeConfig" in kept.kept
    for spec in ({"userData": "a: b"}, {"kubelet": {"x": 1}}):
        assert validate(with_annotations(**spec), CLUSTER).reason
    assert acceptance(class_of(userData="#!/bin/sh")) == {}
    assert acceptance(class_of(userData="MIME-Version: 1.0\n\n")) == {}


def test_a_node_config_is_parsed_once_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once to tell it from a script, once as a NodeConfig; a look of the controller and a review of the webhook ask six times and more."""
    parsed, first = list[str](), yamltext.first

    def counted(text: str) -> yamltext.First:
        parsed.append(text)
        return first(text)

    monkeypatch.setattr(yamltext, "first", counted)
    node_class = class_of(userData=f"{NODE_CONFIG}spec: {{cluster: {{name: parsed-once}}, odd: 1}}\n")
    for _ in range(3):
        assert validate(node_class, CLUSTER).warnings
        assert not acceptance(node_class)
        assert not offline(node_class).errors
    assert len(parsed) == 2


def test_al2023_needs_the_service_cidr_and_no_other_family_does() -> None:
    without = JoinedCluster("c", "https://c", "Q0E=", 33)
    assert validate(class_of(), without).reason == "ClusterCIDRResolutionFailed"
    assert validate(class_of(amiSelectorTerms=[{"alias": "bottlerocket@latest"}]), without).reason == ""


SEVERAL = [
    {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
    {"networkCardIndex": 1, "deviceIndex": 0, "interfaceType": "efa-only"},
]
WARNINGS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a public address and several interfaces": (
        {"associatePublicIPAddress": True, "networkInterfaces": SEVERAL},
        (PUBLIC_ADDRESS_WITH_SEVERAL_INTERFACES,),
    ),
    "no public address and several interfaces": (
        {"associatePublicIPAddress": False, "networkInterfaces": SEVERAL},
        (),
    ),
    "a subnet by id and tags": (
        {"subnetSelectorTerms": [{"id": "subnet-1"}, {"id": "subnet-2", "tags": {"a": "b"}}]},
        ("spec.subnetSelectorTerms[1]: id and tags are mutually exclusive; tags are ignored",),
    ),
    "a group by id and name": (
        {"securityGroupSelectorTerms": [{"id": "sg-1", "name": "a"}]},
        ("spec.securityGroupSelectorTerms[0]: id cannot be combined with name or tags, which are ignored",),
    ),
    "a group by name and tags": (
        {"securityGroupSelectorTerms": [{"name": "a", "tags": {"a": "b"}}]},
        ("spec.securityGroupSelectorTerms[0]: name and tags are mutually exclusive; tags are ignored",),
    ),
    "a reservation by id and owner": (
        {"capacityReservationSelectorTerms": [{"id": "cr-1", "ownerID": "012345678901"}]},
        (
            (
                "spec.capacityReservationSelectorTerms[0]: id cannot be combined with tags, ownerID or instanceMatchCriteria, "
                "which are ignored"
            ),
        ),
    ),
    "an image by id and parameter": (
        {"amiSelectorTerms": [{"id": "ami-1", "ssmParameter": "/a"}], "amiFamily": "AL2023"},
        ("spec.amiSelectorTerms[0]: ssmParameter cannot be combined with another selector; use one of them",),
    ),
    "a volume without name": (
        {"blockDeviceMappings": [{"ebs": {"volumeSize": "20Gi"}}]},
        ("spec.blockDeviceMappings[0]: deviceName is missing; EC2 cannot launch instances without it",),
    ),
    "local disks of a Windows image": (
        {"instanceStorePolicy": "RAID0", "amiSelectorTerms": [{"alias": "windows2022@latest"}]},
        ("spec.instanceStorePolicy: has no effect on images of family Windows2022",),
    ),
    "Windows with IPv6": (
        {"amiSelectorTerms": [{"alias": "windows2022@latest"}], "kubelet": {"clusterDNS": ["fd00::a"]}},
        ("no instance is launched for this class because Windows nodes do not support IPv6, which this cluster uses",),
    ),
    "another cluster's name": (
        {"userData": f"{NODE_CONFIG}spec:\n  cluster:\n    name: other\n"},
        ('spec.userData: NodeConfig spec.cluster.name has the cluster name "other", but this cluster has "c"',),
    ),
    "nothing odd": (
        {
            "subnetSelectorTerms": [{"tags": {"a": "b"}}],
            "securityGroupSelectorTerms": [{"name": "a"}],
            "capacityReservationSelectorTerms": [{"tags": {"a": "b"}, "ownerID": "012345678901"}],
            "instanceStorePolicy": "RAID0",
        },
        (),
    ),
}


@pytest.mark.parametrize("name", WARNINGS)
def test_a_warning(name: str) -> None:
    spec, warnings = WARNINGS[name]
    verdict = validate(class_of(**spec), CLUSTER)
    assert (verdict.reason, verdict.warnings) == ("", warnings)


def test_warnings_are_there_beside_a_reason() -> None:
    verdict = validate(
        class_of(kubelet={"x": 1}, subnetSelectorTerms=[{"id": "subnet-1", "tags": {"a": "b"}}]), CLUSTER
    )
    assert verdict.reason == "InvalidKubeletConfiguration"
    assert len(verdict.warnings) == 1


ALIASES: dict[str, tuple[str, int, bool]] = {
    "AL2 in 1.32": ("al2@latest", 32, True),
    "AL2 in 1.33": ("al2@latest", 33, False),
    "AL2 of a version in 1.33": ("al2@v20240807", 33, False),
    "Windows 2025 in 1.34": ("windows2025@latest", 34, False),
    "Windows 2025 in 1.35": ("windows2025@latest", 35, True),
    "Windows 2022 in 1.31": ("windows2022@latest", 31, True),
    "AL2023 in 1.36": ("al2023@latest", 36, True),
}


@pytest.mark.parametrize("name", ALIASES)
def test_an_alias_that_aws_publishes_nothing_for(name: str) -> None:
    alias, minor, good = ALIASES[name]
    assert (unsupported_alias(class_of(amiSelectorTerms=[{"alias": alias}]), minor) == "") is good


def test_al2_by_id_is_the_user_s_business_in_every_version() -> None:
    assert unsupported_alias(class_of(amiSelectorTerms=[{"id": "ami-1"}], amiFamily="AL2"), 36) == ""


@pytest.mark.parametrize(
    ("size", "warned", "refused"),
    [(14744, False, False), (14745, True, False), (16384, True, False), (16385, True, True)],
)
def test_the_size_of_user_data(size: int, warned: bool, refused: bool) -> None:
    text = "x" * size
    assert (bool(size_warning(text)), bool(size_problem(text))) == (warned, refused)


def test_bytes_count_and_not_characters() -> None:
    assert size_problem("ü" * 8193)
    assert not size_problem("ü" * 8192)
