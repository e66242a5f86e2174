"""Label keys: who may set what, and what legacy keys mean."""

import pytest

from provisioner.apis import names
from provisioner.values.taints import Taint

KEYS = {
    "the host's name": ("kubernetes.io/hostname", True),
    "a label of karpenter.sh": ("karpenter.sh/initialized", True),
    "a label below karpenter.sh": ("compatibility.karpenter.sh/provider", True),
    "a well-known label of karpenter.sh": ("karpenter.sh/capacity-type", False),
    "a domain that only ends alike": ("mykarpenter.sh/a", False),
    "a label of Kubernetes": ("node.kubernetes.io/anything", False),
    "a label without domain": ("karpenter.sh", False),
    "a label of one's own": ("example.com/team", False),
}


@pytest.mark.parametrize("name", KEYS)
def test_restricted(name: str) -> None:
    key, want = KEYS[name]
    assert names.restricted(key) is want


def test_a_providers_own_labels_are_not_restricted() -> None:
    key = "kwok.karpenter.sh/size"
    assert names.restricted(key)
    assert not names.restricted(key, names.WELL_KNOWN_LABELS | {key})


def test_legacy_keys_mean_the_stable_ones() -> None:
    assert names.normalized_label("beta.kubernetes.io/arch") == "kubernetes.io/arch"
    assert names.normalized_label("failure-domain.beta.kubernetes.io/zone") == "topology.kubernetes.io/zone"
    assert names.normalized_label("example.com/a") == "example.com/a"


def test_normalising_twice_changes_nothing() -> None:
    for key in (*names.LABEL_ALIASES, *names.WELL_KNOWN_LABELS):
        once = names.normalized_label(key)
        assert names.normalized_label(once) == once


def test_the_label_of_a_node_class() -> None:
    assert names.nodeclass_label("karpenter.k8s.aws", "EC2NodeClass") == "karpenter.k8s.aws/ec2nodeclass"


TAINTS = {
    "not ready": (Taint(key="node.kubernetes.io/not-ready", effect="NoExecute"), True),
    "not initialised, whatever the value": (
        Taint(key="node.cloudprovider.kubernetes.io/uninitialized", effect="NoSchedule", value="yes"),
        True,
    ),
    "waiting for readiness": (Taint(key="readiness.k8s.io/network", effect="NoSchedule", value="x"), True),
    "unreachable for pods that run": (Taint(key="node.kubernetes.io/unreachable", effect="NoExecute"), False),
    "disrupted": (names.DISRUPTED_TAINT, False),
    "unregistered": (names.UNREGISTERED_TAINT, True),
    "somebody's own": (Taint(key="dedicated", effect="NoSchedule"), False),
}


@pytest.mark.parametrize("name", TAINTS)
def test_which_taints_fall_by_themselves(name: str) -> None:
    taint, want = TAINTS[name]
    assert names.is_ephemeral(taint) is want
