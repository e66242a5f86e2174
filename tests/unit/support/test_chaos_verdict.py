"""The judgement at the end of a run of chaos can fail: what it is told of is found, and nothing else."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.churn import NAMESPACE
from tests.chaos.verdict import (
    OWN_AGENT,
    PROVISIONER,
    Lives,
    deletions_past_the_eviction_api,
    instances_ended_with_live_pods,
    instances_of_two_claims,
    long_waits_without_a_cause,
    nodes_ended_with_live_pods,
)

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def pod(version: int, node: str = "", *, leaves: int | None = None) -> dict[str, Any]:
    """A pod of the churn; `leaves` is when it was asked to, in seconds after noon, with a grace period of 30 s."""
    meta: dict[str, Any] = {"uid": "p", "name": "web-1", "namespace": NAMESPACE, "resourceVersion": str(version)}
    if leaves is not None:
        ends = NOON.timestamp() + leaves + 30
        meta |= {
            "deletionTimestamp": datetime.fromtimestamp(ends, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "deletionGracePeriodSeconds": 30,
        }
    return {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": "Pending"}}


def node(version: int) -> dict[str, Any]:
    return {
        "metadata": {"uid": "n", "name": "n1", "resourceVersion": str(version)},
        "spec": {"providerID": "aws:///a/i-1"},
    }


def claim(uid: str, identity: str = "aws:///a/i-1") -> dict[str, Any]:
    return {"metadata": {"uid": uid, "name": "general-x"}, "status": {"providerID": identity}}


def instance(ended: int | None, why: str = "User initiated (2026-11-22 12:00:00 GMT)") -> dict[str, Any]:
    """It was asked to end so many seconds after noon."""
    at = "" if ended is None else datetime.fromtimestamp(NOON.timestamp() + ended, UTC).isoformat()
    return {"id": "i-1", "node": "n1", "ended": at, "terminated_by": "" if ended is None else why}


@pytest.mark.parametrize(
    ("leaves", "ended", "wrong"),
    [
        pytest.param(None, 60, 1, id="it still runs"),
        pytest.param(70, 60, 1, id="it was asked to leave afterwards"),
        pytest.param(50, 60, 0, id="it was asked to leave before"),
        pytest.param(None, None, 0, id="the instance runs too"),
    ],
)
def test_an_instance_that_ended_with_a_live_pod(leaves: int | None, ended: int | None, wrong: int) -> None:
    lives = Lives()
    lives.take_pod("ADDED", pod(1, "n1", leaves=leaves))
    lives.pods["p"].bound_at = NOON.timestamp()
    assert len(instances_ended_with_live_pods([instance(ended)], lives)) == wrong


def test_what_ec2_takes_back_may_have_pods() -> None:
    lives = Lives()
    lives.take_pod("ADDED", pod(1, "n1"))
    lives.pods["p"].bound_at = NOON.timestamp()
    taken = instance(60, "Server.SpotInstanceTermination: Spot instance termination")
    assert instances_ended_with_live_pods([taken], lives) == []


def test_a_node_that_went_with_a_live_pod() -> None:
    lives = Lives()
    lives.take_node("ADDED", node(1))
    lives.take_pod("ADDED", pod(2, "n1"))
    lives.take_node("DELETED", node(5))
    assert len(nodes_ended_with_live_pods(lives)) == 1
    assert nodes_ended_with_live_pods(lives, {"n1"}) == [], "nobody is gentle to a Node that was broken"
    lives.pods["p"].deleting = 4
    assert nodes_ended_with_live_pods(lives) == []


def test_an_instance_that_stood_on_two_claims() -> None:
    lives = Lives()
    for _ in range(2):
        lives.take_claim("MODIFIED", claim("a"))
    lives.take_claim("ADDED", claim("b", ""))
    assert instances_of_two_claims(lives) == []
    lives.take_claim("MODIFIED", claim("b"))
    assert len(instances_of_two_claims(lives)) == 1


@pytest.mark.parametrize(
    ("speaker", "about", "seconds", "wrong"),
    [
        pytest.param("", "p", 61, 1, id="nobody says why"),
        pytest.param("", "p", 59, 0, id="not for long yet"),
        pytest.param("default-scheduler", "p", 61, 1, id="kube-scheduler says what is there"),
        pytest.param(PROVISIONER, "other", 61, 1, id="the provisioner speaks of another pod"),
        pytest.param(PROVISIONER, "p", 61, 0, id="the provisioner says why"),
    ],
)
def test_a_pod_that_waits_for_a_minute(speaker: str, about: str, seconds: float, wrong: int) -> None:
    lives = Lives()
    lives.take_pod("ADDED", pod(1))
    lives.take_event("ADDED", {"involvedObject": {"kind": "Pod", "uid": about}, "reportingComponent": speaker})
    assert len(long_waits_without_a_cause(lives, lives.pods["p"].seen_at + seconds)) == wrong
    lives.take_pod("MODIFIED", pod(2, "n1"))
    assert long_waits_without_a_cause(lives, lives.pods["p"].bound_at + 600) == []


OURS = {"userAgent": f"{OWN_AGENT}/host_1"}
DELETIONS: dict[str, tuple[dict[str, Any], int]] = {
    "we delete it": (OURS, 1),
    "somebody else deletes it": ({"userAgent": "curl", "user": {"username": "eve"}}, 1),
    "we evict it": (OURS | {"verb": "create", "objectRef": {"subresource": "eviction"}}, 0),
    "we are refused": (OURS | {"responseStatus": {"code": 409}}, 0),
    "we delete all of a namespace": (OURS | {"verb": "deletecollection", "objectRef": {"name": ""}}, 1),
    "its ReplicaSet is scaled down": (
        {"user": {"username": "system:serviceaccount:kube-system:replicaset-controller"}},
        0,
    ),
    "the kubelet has ended it": ({"userAgent": "kwok/v0.7.0"}, 0),
    "a tenant of the test removes it": ({"userAgent": "dovetail-demo"}, 0),
    "its instance was interrupted": (OURS | {"objectRef": {"name": "web-2"}}, 0),
    "another object": (OURS | {"objectRef": {"resource": "nodes"}}, 0),
}


@pytest.mark.parametrize(("change", "wrong"), DELETIONS.values(), ids=DELETIONS)
def test_a_pod_that_was_deleted_past_the_eviction_api(change: dict[str, Any], wrong: int, tmp_path: Path) -> None:
    lives = Lives()
    lives.take_pod("ADDED", pod(1, "n1"))
    taken = pod(2, "n2")
    taken["metadata"] |= {"uid": "q", "name": "web-2"}
    lives.take_pod("ADDED", taken)
    about = {"resource": "pods", "namespace": NAMESPACE, "name": "web-1", **change.get("objectRef", {})}
    event = {"verb": "delete", "responseStatus": {"code": 200}, **change, "objectRef": about}
    log = tmp_path / "audit.log"
    log.write_text(json.dumps(event) + "\n")
    assert len(deletions_past_the_eviction_api(log, lives, frozenset({"n2"}))) == wrong


@pytest.mark.parametrize(("bound", "wrong"), [(5, 1), (9, 0)], ids=["before", "after"])
def test_a_pod_that_the_garbage_collector_removes_was_bound_before_or_after_its_node_was_gone(
    bound: int, wrong: int, tmp_path: Path
) -> None:
    lives = Lives()
    lives.take_node("ADDED", node(1))
    lives.take_node("DELETED", node(7))
    lives.take_pod("ADDED", pod(2))
    lives.take_pod("MODIFIED", pod(bound, "n1"))
    event = {
        "verb": "delete",
        "responseStatus": {"code": 200},
        "user": {"username": "system:serviceaccount:kube-system:pod-garbage-collector"},
        "objectRef": {"resource": "pods", "namespace": NAMESPACE, "name": "web-1"},
    }
    log = tmp_path / "audit.log"
    log.write_text(json.dumps(event) + "\n")
    found = deletions_past_the_eviction_api(log, lives)
    assert len(found) == wrong
    assert all("bound to n1 at 5, Pending; the Node was to go at" in one for one in found)


@pytest.mark.parametrize(("there", "wrong"), [((), 0), (("p",), 1)])
def test_a_pod_whose_end_nobody_saw_was_on_no_node_that_went_later(there: tuple[str, ...], wrong: int) -> None:
    seen = Lives()
    seen.take_node("ADDED", node(1))
    seen.take_pod("ADDED", pod(2, "n1"))
    seen.missed(seen.pods, there, 3)
    seen.take_node("DELETED", node(9))
    assert len(nodes_ended_with_live_pods(seen)) == wrong
