"""What the hashes of a class are for: drift, and taking over claims of the former version."""

from typing import Any

import msgspec
import pytest

from provisioner.apis.ec2 import EC2NodeClassSpec
from provisioner.apis.ec2_hash import claim_stamp, class_stamp, former_hash, is_drifted, nodeclass_hash

HASH = "karpenter.k8s.aws/ec2nodeclass-hash"
VERSION = "karpenter.k8s.aws/ec2nodeclass-hash-version"
WIRE: dict[str, Any] = {"amiSelectorTerms": [{"alias": "al2023@latest"}], "role": "r", "kubelet": {"maxPods": 42}}
CA = "Q0E="


def spec_of(**changes: Any) -> EC2NodeClassSpec:
    return msgspec.convert(WIRE | changes, EC2NodeClassSpec)


SPEC = spec_of()
NOW = nodeclass_hash(SPEC, CA)
FORMER = former_hash(SPEC, CA) or "none"


def hashed(value: str, version: str) -> dict[str, str]:
    return {HASH: value, VERSION: version}


DRIFT: dict[str, tuple[dict[str, str], dict[str, str], bool]] = {
    "equal": (hashed("1", "v6"), hashed("1", "v6"), False),
    "different": (hashed("1", "v6"), hashed("2", "v6"), True),
    "different, of different versions": (hashed("1", "v6"), hashed("2", "v5"), False),
    "the claim has none": (hashed("1", "v6"), {}, False),
    "the class has none": ({}, hashed("1", "v6"), False),
    "the claim has no version": (hashed("1", "v6"), {HASH: "2"}, False),
    "neither has a version": ({HASH: "1"}, {HASH: "2"}, False),
    "neither has a hash": ({VERSION: "v6"}, {VERSION: "v6"}, False),
}


@pytest.mark.parametrize("name", DRIFT)
def test_drift(name: str) -> None:
    of_class, of_claim, want = DRIFT[name]
    assert is_drifted(of_class, of_claim) is want


# Annotations before, whether the claim is drifted already, what is patched, whether it has drifted from the stamped class.
TAKING_OVER: dict[str, tuple[dict[str, str], bool, dict[str, str], bool]] = {
    "of the former version, as the class is now": (hashed(FORMER, "v5"), False, hashed(NOW, "v6"), False),
    "of the former version, as the class was once": (hashed("17", "v5"), False, {VERSION: "v6"}, True),
    "of the former version, drifted already": (hashed("17", "v5"), True, {VERSION: "v6"}, True),
    "of the former version, drifted for another reason": (hashed(FORMER, "v5"), True, hashed(NOW, "v6"), False),
    "of an older version": (hashed("17", "v4"), False, hashed(NOW, "v6"), False),
    "of an older version, drifted already": (hashed("17", "v4"), True, {VERSION: "v6"}, True),
    "without version": ({HASH: "17"}, False, hashed(NOW, "v6"), False),
    "of ours": (hashed(NOW, "v6"), False, {}, False),
    "of ours, and drifted": (hashed("17", "v6"), False, {}, True),
    "without hash": ({}, False, {}, False),
}


@pytest.mark.parametrize("name", TAKING_OVER)
def test_a_claim(name: str) -> None:
    annotations, drifted, patch, want = TAKING_OVER[name]
    assert claim_stamp(annotations, SPEC, CA, drifted=drifted) == patch
    assert is_drifted(class_stamp(SPEC, CA), annotations | patch) is want


@pytest.mark.parametrize("name", TAKING_OVER)
def test_a_crash_before_the_class_is_stamped_changes_nothing(name: str) -> None:
    annotations, drifted, patch, _ = TAKING_OVER[name]
    assert claim_stamp(annotations | patch, SPEC, CA, drifted=drifted) == {}


def test_another_certificate_authority_is_drift() -> None:
    assert claim_stamp(hashed(FORMER, "v5"), SPEC, "T1RIRVI=", drifted=False) == {VERSION: "v6"}


UNSPEAKABLE: dict[str, dict[str, Any]] = {
    "a field of later versions": {"containerLogMaxSize": "50Mi"},
    "an expression": {"maxPods": "vcpus * 8"},
    "a number that is too large": {"maxPods": 2**31},
    "a switch for a number": {"podsPerCore": True},
    "a text for a switch": {"cpuCFSQuota": "true"},
    "a text for a map": {"kubeReserved": "cpu=1"},
    "a number for an amount": {"kubeReserved": {"cpu": 1}},
    "a period that is none": {"evictionSoftGracePeriod": {"memory.available": "soon"}},
}


@pytest.mark.parametrize("name", UNSPEAKABLE)
def test_what_the_former_version_had_no_words_for(name: str) -> None:
    spec = spec_of(kubelet=UNSPEAKABLE[name])
    assert former_hash(spec, CA) is None
    assert nodeclass_hash(spec, CA) != NOW
    assert claim_stamp(hashed(FORMER, "v5"), spec, CA, drifted=False) == {VERSION: "v6"}


def test_null_in_the_kubelet_is_absent_to_the_former_version() -> None:
    assert former_hash(spec_of(kubelet={"maxPods": 42, "clusterDNS": None, "kubeReserved": None}), CA) == FORMER


def test_no_kubelet_is_an_empty_one_to_this_version_only() -> None:
    wire = {key: value for key, value in WIRE.items() if key != "kubelet"}
    without, empty = msgspec.convert(wire, EC2NodeClassSpec), spec_of(kubelet={})
    assert nodeclass_hash(without) == nodeclass_hash(empty)
    assert former_hash(without) != former_hash(empty)


def test_the_order_of_the_kubelet_does_not_matter() -> None:
    one, other = (
        {"maxPods": 1, "featureGates": {"A": True, "B": False}},
        {"featureGates": {"B": False, "A": True}, "maxPods": 1},
    )
    assert nodeclass_hash(spec_of(kubelet=one)) == nodeclass_hash(spec_of(kubelet=other))
