"""EC2NodeClasses: conditions and status that follow from what was found, without a server."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis.ec2 import NODECLASS_CONDITIONS, NODECLASS_CONDITIONS_WITHOUT_RESERVATIONS, EC2NodeClass
from provisioner.apis.karpenter import NodeClaim
from provisioner.ec2.nodeclass.controller import changes, conditions_of, refers, with_fields
from provisioner.ec2.nodeclass.verdicts import ClassFinding
from tests.support.clock import NOON

KINDS = (
    "AMIsReady",
    "CapacityReservationsReady",
    "PlacementGroupReady",
    "SubnetsReady",
    "SecurityGroupsReady",
    "InstanceProfileReady",
    "ValidationSucceeded",
)
GOOD = [ClassFinding(kind, "True") for kind in KINDS]


def class_of(**status: Any) -> EC2NodeClass:
    metadata = {"name": "default", "generation": 2, "creationTimestamp": "2026-11-21T11:00:00Z"}
    return msgspec.convert({"metadata": metadata, "status": status}, EC2NodeClass)


def told(node_class: EC2NodeClass, findings: list[ClassFinding], seconds: float = 0) -> dict[str, tuple[str, str]]:
    conditions = conditions_of(NODECLASS_CONDITIONS, node_class, findings, NOON + timedelta(seconds=seconds))
    return {one.type: (one.status, one.reason) for one in conditions}


READY: dict[str, tuple[list[ClassFinding], tuple[str, str]]] = {
    "nothing was looked at": ([], ("Unknown", "ReconcilingDependents")),
    "everything is good": (GOOD, ("True", "Ready")),
    "one is not known": ([*GOOD, ClassFinding("SubnetsReady", "Unknown", "X")], ("Unknown", "ReconcilingDependents")),
    "one is bad": ([*GOOD, ClassFinding("SubnetsReady", "False", "X")], ("False", "UnhealthyDependents")),
    "one is missing": (GOOD[1:], ("Unknown", "ReconcilingDependents")),
}


@pytest.mark.parametrize("case", READY.values(), ids=READY)
def test_the_root_follows(case: tuple[list[ClassFinding], tuple[str, str]]) -> None:
    findings, want = case
    assert told(class_of(), findings)["Ready"] == want


def test_without_the_gate_reservations_have_no_say() -> None:
    findings = [one for one in GOOD if one.kind != "CapacityReservationsReady"]
    conditions = conditions_of(NODECLASS_CONDITIONS_WITHOUT_RESERVATIONS, class_of(), findings, NOON)
    assert {one.type: one.status for one in conditions}["Ready"] == "True"
    assert "CapacityReservationsReady" not in {one.type for one in conditions}


def test_a_condition_without_a_reason_has_its_type_as_reason_and_the_generation() -> None:
    conditions = conditions_of(NODECLASS_CONDITIONS, class_of(), GOOD, NOON)
    assert {one.reason for one in conditions} == {*KINDS, "Ready"}
    assert {one.observed_generation for one in conditions} == {2}


def test_the_same_findings_again_change_nothing() -> None:
    first = conditions_of(NODECLASS_CONDITIONS, class_of(), GOOD, NOON)
    again = class_of(conditions=msgspec.to_builtins(first))
    assert conditions_of(NODECLASS_CONDITIONS, again, GOOD, NOON + timedelta(hours=1)) == first
    assert changes(again.status, GOOD, first) == {}


SUBNETS = [{"id": "subnet-1", "zone": "a", "zoneID": "z"}]
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "found for the first time": ({}, {"subnets": SUBNETS}, {"subnets": SUBNETS}),
    "found again": ({"subnets": SUBNETS}, {"subnets": SUBNETS}, {}),
    "not found any more": ({"subnets": SUBNETS}, {"subnets": None}, {"subnets": None}),
    "never found": ({}, {"subnets": None}, {}),
    "not looked for": ({"subnets": SUBNETS}, {}, {}),
    "another profile": ({"instanceProfile": "a"}, {"instanceProfile": "b"}, {"instanceProfile": "b"}),
    "the same profile": ({"instanceProfile": "a"}, {"instanceProfile": "a"}, {}),
}


@pytest.mark.parametrize("case", CHANGES.values(), ids=CHANGES)
def test_what_is_written(case: tuple[dict[str, Any], dict[str, Any], dict[str, Any]]) -> None:
    status, fields, want = case
    node_class = class_of(**status)
    found = [ClassFinding("SubnetsReady", "True", fields=fields)]
    assert changes(node_class.status, found, node_class.status.conditions) == want


def test_later_steps_see_what_earlier_ones_found() -> None:
    node_class = class_of(instanceProfile="p", securityGroups=[{"id": "sg-1"}])
    found = [
        ClassFinding("SubnetsReady", "True", fields={"subnets": SUBNETS}),
        ClassFinding("SecurityGroupsReady", "False", fields={"securityGroups": None}),
    ]
    status = with_fields(node_class, found)
    assert [one.id for one in status.subnets] == ["subnet-1"]
    assert status.security_groups == ()
    assert status.instance_profile == "p"


REFERENCES: dict[str, tuple[dict[str, str], bool]] = {
    "of this class": ({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}, True),
    "of another class": ({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "other"}, False),
    "of another kind": ({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}, False),
}


@pytest.mark.parametrize("case", REFERENCES.values(), ids=REFERENCES)
def test_whose_claim_it_is(case: tuple[dict[str, str], bool]) -> None:
    reference, want = case
    claim = msgspec.convert({"metadata": {"name": "x"}, "spec": {"nodeClassRef": reference}}, NodeClaim)
    assert refers(claim, "default") is want
