"""What discovery means for conditions: status, reason, the words for people, and when to look again."""

from typing import Any

import msgspec
import pytest

from provisioner.apis.ec2 import AMI, CapacityReservation, EC2NodeClass
from provisioner.apis.meta import Condition
from provisioner.ec2.access.errors import classify
from provisioner.ec2.market.instance_types import PlacementGroup
from provisioner.ec2.nodeclass import verdicts
from provisioner.ec2.nodeclass.discovery import DiscoveryError, FoundImages
from provisioner.ec2.nodeclass.groups import FoundSecurityGroup
from provisioner.ec2.nodeclass.reservations import FoundReservation
from provisioner.ec2.nodeclass.subnets import Subnet
from provisioner.ec2.nodeclass.verdicts import ClassFinding


def class_of(conditions: tuple[dict[str, Any], ...] = (), **spec: Any) -> EC2NodeClass:
    return msgspec.convert(
        {"metadata": {"generation": 3}, "spec": spec, "status": {"conditions": list(conditions)}}, EC2NodeClass
    )


GROUPS = (FoundSecurityGroup("sg-1", "nodes", "vpc-1"),)
BY_ID: dict[str, Any] = {"capacityReservationSelectorTerms": [{"id": "cr-1"}, {"tags": {"a": "b"}}]}
ONE = (CapacityReservation(id="cr-1"),)

FINDINGS: dict[str, tuple[ClassFinding, tuple[str, str, str, float | None, str]]] = {
    "images": (verdicts.of_images(FoundImages((AMI(id="ami-1"),)), 33), ("True", "", "", 300, "")),
    "no images": (
        verdicts.of_images(FoundImages((), ("/p",)), 33),
        ("False", "AMINotFound", "nodes of Kubernetes 1.33 can boot; looked for /p", 60, ""),
    ),
    "images, one not read": (
        verdicts.of_images(FoundImages((AMI(id="ami-1"),), (), ("ssm:GetParameter /p: slow",)), 33),
        ("True", "", "ssm:GetParameter /p: slow", 60, "using the previous result"),
    ),
    "a deprecated image": (
        verdicts.of_images(FoundImages((AMI(id="ami-1", deprecated=True),)), 33),
        ("True", "", "", 300, "spec.amiSelectorTerms: ami-1 is deprecated"),
    ),
    "an alias without images": (
        verdicts.of_unsupported_alias("no AL2"),
        ("False", "UnsupportedAlias", "spec.amiSelectorTerms: no AL2; select another alias", 300, ""),
    ),
    "subnets": (verdicts.of_subnets([Subnet("subnet-1", "a")], 90), ("True", "", "", 90, "")),
    "no subnets": (verdicts.of_subnets([], 90), ("False", "SubnetsNotFound", "spec.subnetSelectorTerms", 60, "")),
    "groups": (verdicts.of_groups(GROUPS, [Subnet("subnet-1", "a", vpc="vpc-1")]), ("True", "", "", 300, "")),
    "no groups": (
        verdicts.of_groups([], []),
        ("False", "SecurityGroupsNotFound", "spec.securityGroupSelectorTerms", 60, ""),
    ),
    "groups of another network": (
        verdicts.of_groups(GROUPS, [Subnet("subnet-1", "a", vpc="vpc-2")]),
        ("True", "", "", 300, "subnet-1 belongs to another VPC"),
    ),
    "no reservations wanted": (
        verdicts.of_reservations(class_of(), FoundReservation((), {}), None),
        ("True", "", "", None, ""),
    ),
    "reservations": (
        verdicts.of_reservations(class_of(**BY_ID), FoundReservation(ONE, {}), None),
        ("True", "", "", 60, ""),
    ),
    "a reservation that ends soon": (
        verdicts.of_reservations(class_of(**BY_ID), FoundReservation(ONE, {}), 12.5),
        ("True", "", "", 12.5, ""),
    ),
    "a reservation that ends now": (
        verdicts.of_reservations(class_of(**BY_ID), FoundReservation(ONE, {}), 0.01),
        ("True", "", "", 1, ""),
    ),
    "a reservation that is not there": (
        verdicts.of_reservations(class_of(**BY_ID), FoundReservation((), {}), None),
        ("True", "", "", 60, "spec.capacityReservationSelectorTerms[0]: capacity reservation cr-1 does not exist"),
    ),
    "no placement group wanted": (verdicts.of_group(None, wanted=False), ("True", "", "", None, "")),
    "a placement group": (
        verdicts.of_group(PlacementGroup("pg-1", "cluster"), wanted=True),
        ("True", "", "", 300, ""),
    ),
    "no such placement group": (
        verdicts.of_group(None, wanted=True),
        ("False", "PlacementGroupNotFound", "spec.placementGroupSelector", 60, ""),
    ),
    "a profile": (verdicts.of_profile("p"), ("True", "", "", 900, "")),
}


@pytest.mark.parametrize("case", FINDINGS.values(), ids=FINDINGS)
def test_findings(case: tuple[ClassFinding, tuple[str, str, str, float | None, str]]) -> None:
    found, (status, reason, message, again, warning) = case
    assert (found.status, found.reason, found.look_again) == (status, reason, again)
    assert message in found.message
    assert bool(found.message) is bool(message)
    assert warning in " ".join(found.warnings)
    assert bool(found.warnings) is bool(warning)


def test_what_was_not_found_leaves_the_status() -> None:
    assert verdicts.of_subnets([], 60).fields == {"subnets": None}
    assert verdicts.of_groups(GROUPS, []).fields == {"securityGroups": [{"id": "sg-1", "name": "nodes"}]}


# --- calls that fail

DENIED = DiscoveryError("ec2:DescribeSubnets", classify("UnauthorizedOperation", "You are not authorized"))
THROTTLED = DiscoveryError("ec2:DescribeSubnets", classify("RequestLimitExceeded", "slow down"))
WRONG = DiscoveryError("ec2:DescribeSubnets", classify("InvalidParameterValue", "no"))
GOOD = {"type": "SubnetsReady", "status": "True", "observedGeneration": 3}
OLD = {**GOOD, "observedGeneration": 2}

FAILURES: dict[str, tuple[DiscoveryError, dict[str, Any] | None, tuple[str, str, float]]] = {
    "throttled, nothing known": (THROTTLED, None, ("Unknown", "DiscoveryFailed", 10)),
    "throttled, known": (THROTTLED, GOOD, ("True", "", 10)),
    "throttled, known of an older spec": (THROTTLED, OLD, ("Unknown", "DiscoveryFailed", 10)),
    "denied, nothing known": (DENIED, None, ("False", "Unauthorized", 60)),
    "denied, known": (DENIED, GOOD, ("True", "", 60)),
    "refused as it is": (WRONG, None, ("False", "DiscoveryFailed", 60)),
}


@pytest.mark.parametrize("case", FAILURES.values(), ids=FAILURES)
def test_failures(case: tuple[DiscoveryError, dict[str, Any] | None, tuple[str, str, float]]) -> None:
    error, known, want = case
    found = verdicts.after_failure(class_of(() if known is None else (known,)), "SubnetsReady", error)
    assert (found.status, found.reason, found.look_again) == want
    assert found.fields == {}
    assert "ec2:DescribeSubnets" in found.message


def test_a_group_that_cannot_be_looked_up_has_its_own_reason() -> None:
    reason = "PlacementGroupResolutionFailed"
    assert verdicts.after_failure(class_of(), "PlacementGroupReady", DENIED, reason).reason == reason
    assert verdicts.after_failure(class_of(), "PlacementGroupReady", THROTTLED, reason).reason == reason


DEPENDENCIES: dict[str, tuple[list[ClassFinding], tuple[str, str] | None]] = {
    "all good": ([ClassFinding("AMIsReady", "True"), ClassFinding("SubnetsReady", "True")], None),
    "one is not": (
        [ClassFinding("AMIsReady", "False", "x"), ClassFinding("SubnetsReady", "Unknown", "x")],
        ("False", "waiting for AMIsReady, SubnetsReady"),
    ),
    "one is not known": (
        [ClassFinding("AMIsReady", "True"), ClassFinding("InstanceProfileReady", "Unknown", "x")],
        ("Unknown", "waiting for InstanceProfileReady"),
    ),
    "a placement group stands in the templates": (
        [ClassFinding("PlacementGroupReady", "False", "x")],
        ("False", "waiting for PlacementGroupReady"),
    ),
    "a reservation does not": ([ClassFinding("CapacityReservationsReady", "False", "x")], None),
}


@pytest.mark.parametrize("case", DEPENDENCIES.values(), ids=DEPENDENCIES)
def test_dependencies(case: tuple[list[ClassFinding], tuple[str, str] | None]) -> None:
    findings, want = case
    found = verdicts.dependencies(findings)
    assert (None if found is None else (found.status, found.message)) == want
    assert found is None or found.reason == "DependenciesNotReady"


def now(kind: str, status: str, reason: str = "R", message: str = "") -> Condition:
    return Condition(type=kind, status=status, reason=reason, message=message)


WORSENED: dict[str, tuple[tuple[Condition, ...], tuple[Condition, ...], list[str]]] = {
    "still good": ((now("A", "True"),), (now("A", "True"),), []),
    "bad now": ((now("A", "True"),), (now("A", "False"),), ["A"]),
    "new and bad": ((), (now("A", "False"),), ["A"]),
    "bad as before": ((now("A", "False"),), (now("A", "False"),), []),
    "bad for another reason": ((now("A", "False"),), (now("A", "False", "S"),), ["A"]),
    "bad in other words": ((now("A", "False"),), (now("A", "False", "R", "x"),), ["A"]),
    "not known": ((), (now("A", "Unknown"),), []),
    "the root only repeats": ((), (now("Ready", "False"),), []),
    "waiting for others says nothing": ((), (now("A", "False", "DependenciesNotReady"),), []),
}


@pytest.mark.parametrize("case", WORSENED.values(), ids=WORSENED)
def test_what_is_worth_an_event(case: tuple[tuple[Condition, ...], tuple[Condition, ...], list[str]]) -> None:
    before, after, want = case
    assert [one.type for one in verdicts.worsened(before, after)] == want
