"""Labels and taints that nodes register with, and the DNS servers of their pods."""

from typing import Any

import pytest

from provisioner.ec2.launch.userdata.inputs import node_labels, node_taints
from provisioner.values.taints import Taint
from tests.support.userdata import TAINT, node

UNREGISTERED = Taint(key="karpenter.sh/unregistered", effect="NoExecute")
LABELS: dict[str, bool] = {
    "karpenter.sh/nodepool": True,
    "karpenter.k8s.aws/instance-family": True,
    "topology.k8s.aws/zone-id": True,
    "example.com/team": True,
    "team": True,
    "notkubernetes.io/a": True,
    "kubernetes.io/arch": False,
    "node.kubernetes.io/instance-type": False,
    "topology.kubernetes.io/zone": False,
    "k8s.io/a": False,
    "kwok.x-k8s.io/a": True,
    "a.k8s.io/b": False,
    "node-restriction.kubernetes.io/a": False,
    "a.node-restriction.kubernetes.io/b": False,
}


@pytest.mark.parametrize("key", LABELS)
def test_a_label(key: str) -> None:
    assert (key in node_labels({key: "v"}, "spot", "AL2023")) is LABELS[key]


def test_labels_are_sorted_and_tell_the_capacity_type() -> None:
    labels = node_labels({"z": "1", "karpenter.sh/capacity-type": "on-demand", "a": "2"}, "spot", "AL2")
    assert list(labels.items()) == [
        ("a", "2"),
        ("karpenter.sh/capacity-type", "spot"),
        ("karpenter.sh/do-not-sync-taints", "true"),
        ("z", "1"),
    ]


def test_taints_of_custom_images_are_synchronised() -> None:
    assert node_labels({}, "spot", "Custom") == {"karpenter.sh/capacity-type": "spot"}


TAINTS: dict[str, tuple[tuple[Taint, ...], tuple[Taint, ...], tuple[Taint, ...]]] = {
    "nothing but the one of registration": ((), (), (UNREGISTERED,)),
    "its own, then those of its start": (
        (TAINT,),
        (Taint("a", "NoExecute"),),
        (TAINT, Taint("a", "NoExecute"), UNREGISTERED),
    ),
    "the one of registration is there already": ((UNREGISTERED, TAINT), (), (UNREGISTERED, TAINT)),
    "it is there with a value": (
        (Taint("karpenter.sh/unregistered", "NoExecute", "x"),),
        (),
        (Taint("karpenter.sh/unregistered", "NoExecute", "x"),),
    ),
    "with another effect it is another": (
        (Taint("karpenter.sh/unregistered", "NoSchedule"),),
        (),
        (Taint("karpenter.sh/unregistered", "NoSchedule"), UNREGISTERED),
    ),
}


@pytest.mark.parametrize("name", TAINTS)
def test_taints(name: str) -> None:
    taints, startup, want = TAINTS[name]
    assert node_taints(taints, startup) == want


DNS: dict[str, tuple[dict[str, Any], tuple[str, ...], bool]] = {
    "the cluster's": ({}, ("10.100.0.10",), False),
    "the user's": ({"kubelet": {"clusterDNS": ["1.1.1.1", "2.2.2.2"]}}, ("1.1.1.1", "2.2.2.2"), False),
    "none of the user's": ({"kubelet": {"clusterDNS": []}}, ("10.100.0.10",), False),
    "the user's, of IPv6": ({"kubelet": {"clusterDNS": ["fd00::a"]}}, ("fd00::a",), True),
}


@pytest.mark.parametrize("name", DNS)
def test_dns_servers(name: str) -> None:
    changes, servers, ipv6 = DNS[name]
    one = node("AL2", **changes)
    assert (one.cluster_dns, one.ipv6) == (servers, ipv6)
