"""Managed node groups become NodePools and EC2NodeClasses that the API server admits."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis.core import Node
from provisioner.apis.openapi import definition_of, violations
from provisioner.takeover.node_groups import ManagedNodeGroup, NodeGroupError, WrittenGroup, group_of, written

GROUP: dict[str, Any] = {
    "nodegroupName": "web",
    "clusterName": "prod",
    "releaseVersion": "1.36.1-20260923",
    "capacityType": "ON_DEMAND",
    "scalingConfig": {"minSize": 1, "maxSize": 10, "desiredSize": 3},
    "instanceTypes": ["m5.large", "m5a.large"],
    "subnets": ["subnet-0a1b2c3d", "subnet-0a1b2c3e"],
    "amiType": "AL2023_x86_64_STANDARD",
    "nodeRole": "arn:aws:iam::123456789012:role/path/nodes",
    "labels": {"team": "web", "eks.amazonaws.com/thing": "x"},
    "taints": [{"key": "only", "value": "web", "effect": "NO_SCHEDULE"}, {"key": "b", "effect": "NO_EXECUTE"}],
    "resources": {"autoScalingGroups": [{"name": "eks-web-123"}]},
    "diskSize": 50,
    "updateConfig": {"maxUnavailablePercentage": 33},
    "tags": {"env": "prod", "aws:x": "y", "kubernetes.io/cluster/prod": "owned"},
    "launchTemplate": None,
    "createdAt": 1.5,
}


def made(nodes: tuple[Node, ...] = (), **changes: Any) -> WrittenGroup:
    found = group_of({"nodegroup": {**GROUP, **changes}})
    assert found is not None
    return written(found, nodes)


def spec_of(found: WrittenGroup, kind: str) -> Any:
    return next(one["spec"] for one in found.documents if one["kind"] == kind)


def test_everything_that_both_have_is_carried_over() -> None:
    found = made()
    its_class, pool = spec_of(found, "EC2NodeClass"), spec_of(found, "NodePool")
    assert its_class["amiSelectorTerms"] == [{"alias": "al2023@v20260923"}]
    assert its_class["role"] == "nodes"
    assert its_class["subnetSelectorTerms"] == [{"id": "subnet-0a1b2c3d"}, {"id": "subnet-0a1b2c3e"}]
    assert its_class["tags"] == {"env": "prod"}
    assert its_class["blockDeviceMappings"][0]["ebs"]["volumeSize"] == "50Gi"
    assert its_class["metadataOptions"]["httpPutResponseHopLimit"] == 2
    template = pool["template"]
    assert template["metadata"] == {"labels": {"team": "web"}}
    assert template["spec"]["taints"] == [
        {"key": "only", "value": "web", "effect": "NoSchedule"},
        {"key": "b", "effect": "NoExecute"},
    ]
    wanted = {one["key"]: one["values"] for one in template["spec"]["requirements"]}
    assert wanted["node.kubernetes.io/instance-type"] == ["m5.large", "m5a.large"]
    assert (wanted["karpenter.sh/capacity-type"], wanted["kubernetes.io/arch"]) == (["on-demand"], ["amd64"])
    assert (pool["limits"], pool["disruption"]["budgets"]) == ({"nodes": "10"}, [{"nodes": "33%"}])
    assert found.notes == (
        "label eks.amazonaws.com/thing is not set on nodes of a NodePool",
        "the group keeps at least 1 nodes; nodes of a NodePool are removed when they are empty",
    )


FAMILIES: dict[str, tuple[str, str, str]] = {
    "AL2023_ARM_64_STANDARD": ("1.36.1-20260923", "al2023@v20260923", "arm64"),
    "AL2_x86_64": ("1.32.1-20250923", "al2@v20250923", "amd64"),
    "BOTTLEROCKET_ARM_64": ("1.40.0-abc123", "bottlerocket@v1.40.0", "arm64"),
    "BOTTLEROCKET_x86_64": ("", "bottlerocket@latest", "amd64"),
    "WINDOWS_CORE_2022_x86_64": ("1.36-2026.01.01", "windows2022@latest", "amd64"),
}


@pytest.mark.parametrize("kind", FAMILIES)
def test_families(kind: str) -> None:
    release, alias, arch = FAMILIES[kind]
    found = made(amiType=kind, releaseVersion=release)
    assert found.refusal == ""
    assert spec_of(found, "EC2NodeClass")["amiSelectorTerms"] == [{"alias": alias}]
    wanted = {one["key"]: one["values"] for one in spec_of(found, "NodePool")["template"]["spec"]["requirements"]}
    assert wanted["kubernetes.io/arch"] == [arch]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a custom AMI": ({"amiType": "CUSTOM"}, "custom AMI"),
    "a kind of AMI that nobody knows": ({"amiType": "AL2027"}, 'AMI type "AL2027"'),
    "a capacity block": ({"capacityType": "CAPACITY_BLOCK"}, "CAPACITY_BLOCK"),
    "no instance types, and no node": ({"instanceTypes": None}, "no instance types"),
    "no subnets": ({"subnets": []}, "lacks the cluster, the subnets or the node role"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_written_is_said(case: tuple[dict[str, Any], str]) -> None:
    changes, why = case
    found = made(**changes)
    assert why in found.refusal
    assert found.documents == ()


def test_nodes_tell_labels_and_types_that_the_description_lacks() -> None:
    labels = {
        "eks.amazonaws.com/nodegroup": "web",
        "kubernetes.io/hostname": "x",
        "node.kubernetes.io/instance-type": "c5.large",
        "example.com/team": "a",
        "rack": "1",
    }
    one = msgspec.convert({"metadata": {"name": "n1", "labels": labels}}, Node)
    two = msgspec.convert({"metadata": {"name": "n2", "labels": {**labels, "rack": "2"}}}, Node)
    other = msgspec.convert({"metadata": {"name": "n3", "labels": {"eks.amazonaws.com/nodegroup": "x"}}}, Node)
    found = made((one, two, other), instanceTypes=[], launchTemplate={"name": "lt", "id": "lt-1"})
    template = spec_of(found, "NodePool")["template"]
    assert template["metadata"]["labels"] == {"example.com/team": "a", "team": "web"}
    assert template["spec"]["requirements"][0]["values"] == ["c5.large"]
    assert "blockDeviceMappings" not in spec_of(found, "EC2NodeClass")
    assert any('launch template "lt" is not read' in one for one in found.notes)


def test_names_become_those_of_kubernetes() -> None:
    found = made(nodegroupName="Web_A")
    assert [one["metadata"]["name"] for one in found.documents] == ["web-a", "web-a"]


def test_names_that_a_shell_would_run_are_refused() -> None:
    with pytest.raises(NodeGroupError):
        group_of({"nodegroupName": "x; rm -rf /"})
    assert group_of({"kind": "NodePool"}) is None


KEYS = st.sampled_from(
    ["team", "a.b/c", "kubernetes.io/x", "karpenter.sh/x", "dovetail.dev/y", "x" * 70, "", "node.kubernetes.io/z"]
)
TEXTS = st.sampled_from(["", "v", "a b", "x" * 64, "-"])


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "labels": st.dictionaries(KEYS, TEXTS, max_size=3),
            "tags": st.dictionaries(KEYS, TEXTS, max_size=3),
            "taints": st.lists(
                st.fixed_dictionaries({"key": KEYS, "value": TEXTS, "effect": st.sampled_from(["NO_SCHEDULE", "x"])}),
                max_size=2,
            ),
            "subnets": st.lists(st.sampled_from(["subnet-0a1b2c3d", "x"]), max_size=2),
            "diskSize": st.integers(0, 100),
            "instanceTypes": st.lists(st.sampled_from(["m5.large", "x y"]), max_size=2),
        },
    )
)
def test_whatever_is_written_is_admitted(changes: dict[str, Any]) -> None:
    found = made(**changes)
    assert bool(found.documents) != bool(found.refusal)
    for one in found.documents:
        definition = definition_of(one["apiVersion"], one["kind"])
        assert definition is not None
        assert violations(definition, one) == []


def test_a_group_of_nothing_is_refused_not_raised() -> None:
    assert written(ManagedNodeGroup(nodegroup_name="x"), ()).refusal
