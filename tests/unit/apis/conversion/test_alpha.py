"""What a Provisioner and an AWSNodeTemplate become, and what has no equivalent."""

import tracemalloc
from typing import Any

import pytest

from provisioner.apis.conversion.alpha import Translation, provisioner, template

PROVIDER = {
    "instanceProfile": "nodes",
    "subnetSelector": {"team": "a"},
    "securityGroupSelector": {"team": "a"},
}


def made(spec: dict[str, Any], cluster: str = "", templates: dict[str, Any] | None = None) -> Translation:
    whole = {"provider": PROVIDER, **spec}
    if "providerRef" in spec:
        del whole["provider"]
    return provisioner({"metadata": {"name": "p"}, "spec": whole}, templates or {}, cluster)


def pool(spec: dict[str, Any]) -> dict[str, Any]:
    found = made(spec)
    assert found.errors == ()
    (one,) = (one for one in found.objects if one["kind"] == "NodePool")
    return one


def of_template(spec: dict[str, Any], cluster: str = "") -> dict[str, Any]:
    found = template({"metadata": {"name": "t"}, "spec": {**PROVIDER, **spec}}, cluster)
    assert found.errors == ()
    found_spec: dict[str, Any] = found.objects[0]["spec"]
    return found_spec


DISRUPTION = {
    "nothing is said": ({}, {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}),
    "empty nodes go": (
        {"ttlSecondsAfterEmpty": 30},
        {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s"},
    ),
    "empty nodes go at once": (
        {"ttlSecondsAfterEmpty": 0, "consolidation": {"enabled": False}},
        {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s"},
    ),
    "nodes are consolidated": (
        {"consolidation": {"enabled": True}},
        {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"},
    ),
    "consolidation is off": (
        {"consolidation": {"enabled": False}},
        {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"},
    ),
}


@pytest.mark.parametrize(("spec", "wanted"), DISRUPTION.values(), ids=DISRUPTION)
def test_disruption(spec: dict[str, Any], wanted: dict[str, Any]) -> None:
    found = pool(spec)["spec"]["disruption"]
    assert {key: found[key] for key in wanted} == wanted
    assert {"nodes": "0", "reasons": ["Drifted"]} in found["budgets"]


@pytest.mark.parametrize(("seconds", "wanted"), [(None, "Never"), (0, "0s"), (900, "900s")])
def test_expiry(seconds: int | None, wanted: str) -> None:
    spec = {} if seconds is None else {"ttlSecondsUntilExpired": seconds}
    assert pool(spec)["spec"]["template"]["spec"]["expireAfter"] == wanted


def required(spec: dict[str, Any]) -> dict[str, Any]:
    found = pool(spec)["spec"]["template"]["spec"]["requirements"]
    return {one["key"]: (one["operator"], one.get("values")) for one in found}


def test_the_defaults_of_that_version_are_written_out() -> None:
    assert required({}) == {
        "kubernetes.io/os": ("In", ["linux"]),
        "kubernetes.io/arch": ("In", ["amd64"]),
        "karpenter.sh/capacity-type": ("In", ["on-demand"]),
        "karpenter.k8s.aws/instance-category": ("In", ["c", "m", "r"]),
        "karpenter.k8s.aws/instance-generation": ("Gt", ["2"]),
    }


@pytest.mark.parametrize(
    "key",
    [
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
        "karpenter.k8s.aws/instance-family",
        "karpenter.k8s.aws/instance-category",
        "karpenter.k8s.aws/instance-generation",
    ],
)
def test_families_are_a_default_only_where_nothing_is_said_of_types(key: str) -> None:
    found = required({"requirements": [{"key": key, "operator": "In", "values": ["a"]}]})
    assert len(found) == 4
    assert ("Gt", ["2"]) not in found.values()


def test_an_alias_of_a_label_counts_as_the_label() -> None:
    found = required({"requirements": [{"key": "beta.kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]})
    assert found["kubernetes.io/arch"] == ("In", ["arm64"])


def test_nodes_that_were_not_consolidated_are_not_disrupted() -> None:
    spec = {"annotations": {"karpenter.sh/do-not-consolidate": "true", "a": "b"}}
    annotations = pool(spec)["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {"karpenter.sh/do-not-disrupt": "true", "a": "b"}
    other = {"annotations": {"karpenter.sh/do-not-consolidate": "false"}}
    assert pool(other)["spec"]["template"]["metadata"] == other


def test_labels_taints_limits_and_weight_come_along() -> None:
    found = pool(
        {
            "labels": {"team": "a"},
            "annotations": {"a": "b"},
            "taints": [{"key": "k", "effect": "NoSchedule"}],
            "startupTaints": [{"key": "s", "effect": "NoExecute"}],
            "limits": {"resources": {"cpu": "10"}},
            "weight": 7,
        }
    )
    assert found["spec"]["template"]["metadata"] == {"labels": {"team": "a"}, "annotations": {"a": "b"}}
    assert [one["key"] for one in found["spec"]["template"]["spec"]["taints"]] == ["k"]
    assert [one["key"] for one in found["spec"]["template"]["spec"]["startupTaints"]] == ["s"]
    assert (found["spec"]["limits"], found["spec"]["weight"]) == ({"cpu": "10"}, 7)
    assert found["metadata"]["annotations"] == {"karpenter.sh/provisioner-name": "p"}


def test_a_kubelet_configuration_makes_a_node_class_of_its_own() -> None:
    kubelet = {"maxPods": 20, "containerRuntime": "containerd"}
    found = made({"providerRef": {"name": "t"}, "kubeletConfiguration": kubelet}, templates={"t": {"spec": PROVIDER}})
    node_class, node_pool = found.objects
    assert (node_class["metadata"]["name"], node_class["spec"]["kubelet"]) == ("t-p", {"maxPods": 20})
    assert node_pool["spec"]["template"]["spec"]["nodeClassRef"]["name"] == "t-p"


def test_without_a_kubelet_configuration_the_template_is_the_class() -> None:
    (node_pool,) = made({"providerRef": {"name": "t"}}).objects
    assert node_pool["spec"]["template"]["spec"]["nodeClassRef"] == {
        "group": "karpenter.k8s.aws",
        "kind": "EC2NodeClass",
        "name": "t",
    }


CLASSES = {
    "AL2 by default": ({}, {"amiFamily": "AL2", "amiSelectorTerms": [{"alias": "al2@latest"}]}),
    "a family": ({"amiFamily": "Bottlerocket"}, {"amiSelectorTerms": [{"alias": "bottlerocket@latest"}]}),
    "images by name and owner": (
        {"amiFamily": "Custom", "amiSelector": {"aws::name": "x,y", "aws::owners": "self"}},
        {"amiSelectorTerms": [{"name": "x", "owner": "self"}, {"name": "y", "owner": "self"}]},
    ),
    "images by id": ({"amiSelector": {"aws-ids": "ami-1, ami-2"}}, {"amiSelectorTerms": [{"id": "ami-1"}, {"id": "ami-2"}]}),
    "subnets by id": ({"subnetSelector": {"aws-ids": "subnet-1"}}, {"subnetSelectorTerms": [{"id": "subnet-1"}]}),
    "one of two values": (
        {"subnetSelector": {"Name": "a,b", "team": "*"}},
        {"subnetSelectorTerms": [{"tags": {"Name": "a", "team": "*"}}, {"tags": {"Name": "b", "team": "*"}}]},
    ),
    "no metadata options": ({}, {"metadataOptions": {"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 2, "httpTokens": "required"}}),
    "some metadata options": (
        {"metadataOptions": {"httpEndpoint": "enabled"}},
        {"metadataOptions": {"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 1, "httpTokens": "optional"}},
    ),
    "sizes of volumes": (
        {"blockDeviceMappings": [{"deviceName": "a", "ebs": {"volumeSize": "100Gi"}}, {"deviceName": "b", "ebs": {"volumeSize": 20_000_000_000}}]},
        {"blockDeviceMappings": [{"deviceName": "a", "ebs": {"volumeSize": "100Gi"}}, {"deviceName": "b", "ebs": {"volumeSize": "19Gi"}}]},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "wanted"), CLASSES.values(), ids=CLASSES)
def test_node_classes(spec: dict[str, Any], wanted: dict[str, Any]) -> None:
    found = of_template(spec)
    assert {key: found[key] for key in wanted} == wanted


def test_without_a_selector_the_cluster_tag_is_meant() -> None:
    found = template({"metadata": {"name": "t"}, "spec": {"instanceProfile": "nodes"}}, "blue")
    tag = [{"tags": {"kubernetes.io/cluster/blue": "*"}}]
    spec = found.objects[0]["spec"]
    assert (spec["subnetSelectorTerms"], spec["securityGroupSelectorTerms"]) == (tag, tag)


REFUSED = {
    "a ttl and consolidation": ({"ttlSecondsAfterEmpty": 1, "consolidation": {"enabled": True}}, "spec"),
    "neither provider nor providerRef": ({"provider": None}, "spec"),
    "half a taint": ({"taints": [{"key": "a"}]}, "spec.taints[0].effect"),
    "an unknown field": ({"ttlSecondsAfterEmtpy": 30}, "spec.ttlSecondsAfterEmtpy"),
    "an unknown field of the provider": ({"provider": {**PROVIDER, "subnets": {}}}, "spec.provider.subnets"),
    "a launch template": ({"provider": {**PROVIDER, "launchTemplate": "x"}}, "spec.provider.launchTemplate"),
    "no instance profile": ({"provider": {**PROVIDER, "instanceProfile": None}}, "spec.provider.instanceProfile"),
    "Ubuntu": ({"provider": {**PROVIDER, "amiFamily": "Ubuntu"}}, "spec.provider.amiFamily"),
    "no selector, no cluster": ({"provider": {**PROVIDER, "subnetSelector": {}}}, "spec.provider.subnetSelector"),
    "ids and tags": (
        {"provider": {**PROVIDER, "subnetSelector": {"aws-ids": "subnet-1", "a": "b"}}},
        "spec.provider.subnetSelector",
    ),
    "dockerd": (
        {"kubeletConfiguration": {"containerRuntime": "dockerd"}},
        "spec.kubeletConfiguration.containerRuntime",
    ),
    "a label that v1 restricts": ({"labels": {"karpenter.sh/provisioner-name": "a"}}, ""),
    "a template that is not there": (
        {"providerRef": {"name": "t"}, "kubeletConfiguration": {"maxPods": 1}},
        "spec.providerRef.name",
    ),
}


@pytest.mark.parametrize(("spec", "path"), REFUSED.values(), ids=REFUSED)
def test_what_has_no_equivalent_is_named_and_nothing_is_made(spec: dict[str, Any], path: str) -> None:
    found = made(spec)
    assert path in [one.path for one in found.errors]
    assert found.objects == ()


def test_a_selector_with_very_many_values_is_refused() -> None:
    values = ",".join(map(str, range(1000)))
    found = made({"provider": {**PROVIDER, "subnetSelector": {"a": values, "b": values, "c": values}}})
    assert [one.path for one in found.errors] == ["spec.provider.subnetSelector"]


def test_names_that_no_label_can_hold_are_refused() -> None:
    found = provisioner({"metadata": {"name": "p" * 64}, "spec": {"provider": PROVIDER}}, {})
    assert [one.path for one in found.errors] == ["metadata.name"]


def test_nulls_in_the_provider_are_absence() -> None:
    found = made({"provider": {**PROVIDER, "subnetSelector": {"team": "a", "other": None}, "launchTemplate": None}})
    assert found.errors == ()
    assert found.objects[0]["spec"]["subnetSelectorTerms"] == [{"tags": {"team": "a"}}]


def test_a_selector_of_too_many_images_is_counted_not_made() -> None:
    many = ",".join("n" * 300)
    spec = {**PROVIDER, "amiSelector": {"aws::name": many, "aws::owners": many}}
    template({"metadata": {"name": "t"}, "spec": PROVIDER})  # what is made once is there
    tracemalloc.start()
    try:
        found = template({"metadata": {"name": "t"}, "spec": spec})
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 2 * 2**20  # bytes; the terms would be nine times as many
    assert [str(one) for one in found.errors] == [
        "spec.amiSelector: its values separated by commas make 90000 terms; the maximum is 30"
    ]
