"""What the observer makes of pods, nodes and claims; time is told by the test."""

import json
import math
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim, NodeClaimSpec, NodeClaimStatus, NodeClassReference
from provisioner.apis.meta import ObjectMeta
from provisioner.apis.plan import Plan, PlanEntry, encode_plan
from provisioner.apis.pods import Pod, decode_pod
from provisioner.kube.resources import NODES
from provisioner.lab.harness.placement import Placement
from provisioner.lab.harness.scoreboard import PRICE_LABEL, RunCounts, Scoreboard
from tests.support.pod_waits import pod_waits


def pod(
    uid: str,
    *,
    node: str = "",
    phase: str = "Pending",
    owner: str = "ReplicaSet",
    stamped: bool = False,
    nominated: str = "",
) -> Pod:
    document: dict[str, Any] = {
        "metadata": {
            "name": uid,
            "namespace": "default",
            "uid": uid,
            "creationTimestamp": "2026-11-21T12:00:00Z",
            "annotations": {names.STAMPED_ANNOTATION: "arch"} if stamped else {},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "o", "controller": True}],
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}],
        },
        "status": {"phase": phase, "nominatedNodeName": nominated},
    }
    return decode_pod(json.dumps(document).encode())


def node(name: str, price: str = "0.5", annotations: dict[str, str] | None = None) -> Node:
    document = {
        "metadata": {"name": name, "labels": {PRICE_LABEL: price}, "annotations": annotations or {}},
        "status": {"allocatable": {"cpu": "2", "memory": "2Gi"}},
    }
    return NODES.decode(json.dumps(document).encode())


def plan_for(*uids: str) -> str:
    klass = pod("any").shape.key
    return encode_plan(Plan(pods=(PlanEntry(owner="o", klass=klass, count=len(uids), uids=uids),)))


def claim(name: str, plan: str = "", node_name: str = "") -> NodeClaim:
    reference = NodeClassReference(group="karpenter.kwok.sh", kind="KWOKNodeClass", name="default")
    return NodeClaim(
        metadata=ObjectMeta(name=name, annotations={names.PLAN_ANNOTATION: plan} if plan else {}),
        spec=NodeClaimSpec(node_class_ref=reference, requirements=()),
        status=NodeClaimStatus(node_name=node_name),
    )


def test_an_empty_board_counts_nothing() -> None:
    assert Scoreboard().counts() == RunCounts()


def test_a_run_from_pending_to_running_and_back() -> None:
    board = Scoreboard()
    board.pod(pod("a", stamped=True), 1.0)
    board.pod(pod("b"), 2.0)
    assert board.counts() == RunCounts(pods=2, pending=2, stamped=1)
    board.claim(claim("c1", plan_for("a")), 3.0)
    assert board.counts() == RunCounts(pods=2, pending=2, planned=1, claims=1, stamped=1)
    board.node(node("n1"))
    board.pod(pod("a", node="n1", stamped=True), 4.0)
    board.pod(pod("a", node="n1", phase="Running", stamped=True), 5.0)
    board.pod(pod("a", node="n1", phase="Running", stamped=True), 6.0)
    assert board.counts() == RunCounts(
        pods=2, pending=1, planned=1, claims=1, nodes=1, running=1, stamped=1, usd_per_hour=0.5
    )
    assert (board.bound_moments(), board.running_moments()) == ([4.0], [5.0])
    assert board.claimed_moments() == {"a": 3.0}
    assert board.added_moments() == {"a": 1.0, "b": 2.0}
    for uid in ("a", "b"):
        board.pod(pod(uid), 7.0, deleted=True)
    board.claim(claim("c1"), 8.0, deleted=True)
    board.node(node("n1"), deleted=True)
    assert board.counts() == RunCounts()
    assert board.claim_moments() == [3.0]


def test_daemons_are_in_no_count_but_use_their_node() -> None:
    board = Scoreboard()
    board.node(node("n1"))
    board.pod(pod("d", node="n1", phase="Running", owner="DaemonSet"), 1.0)
    assert board.counts() == RunCounts(nodes=1, usd_per_hour=0.5)
    assert board.running_moments() == []
    assert board.utilisation("cpu") == 0.25


def test_a_pod_that_was_deleted_before_it_was_seen_is_nothing() -> None:
    board = Scoreboard()
    board.pod(pod("a"), 1.0, deleted=True)
    assert board.counts().pods == 0


def test_a_plan_on_a_node_counts_for_nothing() -> None:
    board = Scoreboard()
    board.node(node("n1", annotations={names.PLAN_ANNOTATION: plan_for("a")}))
    board.pod(pod("a", node="n1"), 2.0)
    assert board.placement() == Placement(planned=0, on_plan=0, absorbed=0, unbound=0)


def test_pods_that_are_bound_when_brothers_are_added_to_a_plan_do_not_make_the_figure_better() -> None:
    board = Scoreboard()
    board.claim(claim("c1", plan_for("a"), "n1"), 1.0)
    board.claim(claim("c2", plan_for("b"), "n2"), 1.0)
    board.pod(pod("b", node="n1"), 2.0)  # absorbed
    board.pod(pod("c"), 3.0)
    board.claim(claim("c1", plan_for("a", "b", "c"), "n1"), 4.0)
    board.pod(pod("a", node="n1"), 5.0)
    board.pod(pod("c", node="n1"), 5.0)
    assert board.placement() == Placement(planned=3, on_plan=2, absorbed=1, unbound=0)


def test_an_old_plan_told_again_does_not_take_the_pod_back() -> None:
    board = Scoreboard()
    board.claim(claim("failed", plan_for("a")), 1.0)
    board.claim(claim("second", plan_for("a"), "n2"), 2.0)
    board.claim(claim("failed", plan_for("a")), 3.0)  # its status changed, its plan did not
    board.pod(pod("a", node="n2"), 4.0)
    assert board.placement() == Placement(planned=1, on_plan=1, absorbed=0, unbound=0)
    assert board.claimed_moments() == {"a": 1.0}


def test_utilisation_is_the_mean_over_nodes() -> None:
    board = Scoreboard()
    for name in ("n1", "n2"):
        board.node(node(name))
    for uid in ("a", "b", "c", "d"):
        board.pod(pod(uid, node="n1"), 1.0)
    assert board.utilisation("cpu") == 0.5
    assert board.utilisation("memory") == 1.0
    assert board.utilisation("example.com/gpu") == 0


BAD = {
    "a price that is no number": node("n1", price="dear"),
    "no price": node("n1", price=""),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_node_without_price_costs_nothing(bad: Node) -> None:
    board = Scoreboard()
    board.node(bad)
    assert board.counts() == RunCounts(nodes=1)


def test_a_damaged_plan_is_counted_and_skipped() -> None:
    board = Scoreboard()
    board.claim(claim("c1", "{"), 1.0)
    assert board.undecodable == 1
    assert board.counts().claims == 1


def test_nominated_pods_are_judged_by_class_on_the_node_that_they_were_nominated_to() -> None:
    board = Scoreboard()
    for uid, nominated, bound in (
        ("a", "n1", "n2"),
        ("b", "n2", "n1"),
        ("c", "n1", "n3"),
        ("d", "n1", ""),
        ("e", "", "n1"),
    ):
        board.pod(pod(uid, nominated=nominated), 1.0)
        board.pod(pod(uid, node=bound), 2.0)
    assert board.nominations() == Placement(planned=4, on_plan=2, absorbed=1, unbound=1)


def test_a_nomination_that_was_taken_back_counts_and_the_last_one_decides() -> None:
    board = Scoreboard()
    for nominated in ("n1", "n2", ""):
        board.pod(pod("a", nominated=nominated), 1.0)
    board.pod(pod("a", node="n2"), 2.0)
    assert board.nominations().percent == 100


def test_what_is_nominated_while_it_is_bound_is_no_nomination() -> None:
    board = Scoreboard()
    board.pod(pod("a", node="n1", nominated="n1"), 1.0)
    assert board.nominations().planned == 0


def test_how_long_pods_wait_from_the_first_plan_until_they_are_bound() -> None:
    board = Scoreboard()
    board.claim(claim("early", plan_for("a")), 0.5)  # told of before its pod
    for uid in ("a", "b", "c", "d"):
        board.pod(pod(uid), 1.0)
    board.claim(claim("c1", plan_for("b", "c")), 2.0)
    board.claim(claim("c2", plan_for("b")), 7.0)  # planned again: the first time counts
    for uid in ("a", "b", "d"):
        board.pod(pod(uid, node="n1"), 9.0)
    waits = pod_waits(board, {"default"})
    assert {key: wait.seconds for key, wait in waits.items()} == {
        "default/a": 8.5,
        "default/b": 7.0,
        "default/c": math.inf,
        "default/d": 0.0,
    }
    assert pod_waits(board, {"other"}) == {}
