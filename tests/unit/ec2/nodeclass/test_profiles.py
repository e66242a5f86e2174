"""Instance profiles: names, whose they are, and which are garbage."""

from datetime import datetime, timedelta

import msgspec
import pytest

from provisioner.apis.ec2 import EC2NodeClass
from provisioner.ec2.nodeclass.profiles import Naming, Profile, garbage, role_name
from tests.support.clock import NOON

NAMING = Naming("c", "us-east-1")


def class_of(name: str = "default", uid: str = "u-1", **spec: object) -> EC2NodeClass:
    return msgspec.convert({"metadata": {"name": name, "uid": uid}, "spec": spec}, EC2NodeClass)


def test_path_and_tags_are_those_that_policies_of_karpenter_ask_for() -> None:
    node_class = class_of(tags={"team": "a", "kubernetes.io/cluster/c": "stolen"})
    assert NAMING.path(node_class) == "/karpenter/us-east-1/c/u-1/"
    assert NAMING.tags(node_class) == {
        "team": "a",
        "kubernetes.io/cluster/c": "owned",
        "eks:eks-cluster-name": "c",
        "karpenter.k8s.aws/ec2nodeclass": "default",
        "topology.kubernetes.io/region": "us-east-1",
    }


def test_a_name_follows_from_class_and_role_alone() -> None:
    first = NAMING.name(class_of(), "r")
    assert first == NAMING.name(class_of(), "r")
    others = [
        NAMING.name(class_of(uid="u-2"), "r"),
        NAMING.name(class_of(name="other"), "r"),
        NAMING.name(class_of(), "s"),
        Naming("c", "us-west-2").name(class_of(), "r"),
    ]
    assert len({first, *others}) == 5
    assert all(name.startswith("c_") and len(name) <= 22 for name in (first, *others))


def test_the_name_of_earlier_versions_is_the_hash_of_region_and_class() -> None:
    assert NAMING.former_name(class_of()) == "c_15843455441266977890"
    assert Naming("a b", "us-east-1").former_name(class_of()) == ""


@pytest.mark.parametrize("role", ["node", "/node", "/team/a/node", "arn:aws:iam::123456789012:role/team/node"])
def test_a_role_is_compared_by_its_name(role: str) -> None:
    assert role_name(role) == "node"


OWNED = {"kubernetes.io/cluster/c": "owned", "karpenter.k8s.aws/ec2nodeclass": "default"}
FORMER = NAMING.former_name(class_of())
OURS: dict[str, tuple[Profile, bool]] = {
    "made by us": (Profile("x", "/karpenter/us-east-1/c/u-1/", (), {}), True),
    "of another class": (Profile("x", "/karpenter/us-east-1/c/u-2/", (), {}), False),
    "of another cluster": (Profile("x", "/karpenter/us-east-1/d/u-1/", (), {}), False),
    "of the former name, with our tags": (Profile(FORMER, "/", (), OWNED), True),
    "of the former name, without tags": (Profile(FORMER, "/", (), {}), False),
    "of the former name, of another cluster": (
        Profile(FORMER, "/", (), {"kubernetes.io/cluster/d": "owned", "karpenter.k8s.aws/ec2nodeclass": "default"}),
        False,
    ),
    "of the former name, of another class": (
        Profile(FORMER, "/", (), {**OWNED, "karpenter.k8s.aws/ec2nodeclass": "other"}),
        False,
    ),
    "a stranger with our tags": (Profile("mine", "/", (), OWNED), False),
}


@pytest.mark.parametrize("case", OURS.values(), ids=OURS)
def test_whose_a_profile_is(case: tuple[Profile, bool]) -> None:
    profile, want = case
    assert NAMING.ours(profile, class_of()) is want


def made(name: str, minutes_ago: float, path: str = "/karpenter/us-east-1/c/u-9/") -> Profile:
    return Profile(name, path, (), {}, NOON - timedelta(minutes=minutes_ago))


GARBAGE: dict[str, tuple[Profile, dict[str, datetime], bool]] = {
    "an old one that nothing uses": (made("x", 61), {}, True),
    "one in use": (made("used", 61), {}, False),
    "one that was just made": (made("x", 59), {}, False),
    "one that was in use lately": (made("x", 61), {"x": NOON - timedelta(minutes=59)}, False),
    "one that was in use long ago": (made("x", 999), {"x": NOON - timedelta(minutes=60)}, True),
    "one of another cluster": (made("x", 61, "/karpenter/us-east-1/cc/u-9/"), {}, False),
    "one of another path": (made("x", 61, "/"), {}, False),
}


@pytest.mark.parametrize("case", GARBAGE.values(), ids=GARBAGE)
def test_what_is_garbage(case: tuple[Profile, dict[str, datetime], bool]) -> None:
    profile, seen, want = case
    assert garbage([profile], NAMING, {"used", ""}, seen, NOON) == ((profile.name,) if want else ())
