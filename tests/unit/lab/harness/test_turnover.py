"""Which nodes left, when, and how many pods were up meanwhile; time is told by the test."""

import json
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.pods import Pod, decode_pod
from provisioner.kube.resources import NODES
from provisioner.lab.harness.turnover import Turnover, rounds


def node(name: str = "n", *, tainted: bool = False, deleted: bool = False) -> Node:
    document: dict[str, Any] = {"metadata": {"name": name}, "spec": {}, "status": {}}
    if tainted:
        document["spec"]["taints"] = [{"key": names.DISRUPTED_TAINT.key, "effect": "NoSchedule"}]
    if deleted:
        document["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    return NODES.decode(json.dumps(document).encode())


def pod(uid: str, *, node: str = "n", ready: bool = True, deleted: bool = False, owner: str = "ReplicaSet") -> Pod:
    reference = {"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "o", "controller": True}
    metadata: dict[str, Any] = {"name": uid, "namespace": "fleet", "uid": uid, "ownerReferences": [reference]}
    if deleted:
        metadata["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
    document = {"metadata": metadata, "spec": {"nodeName": node, "containers": [{"name": "main"}]}, "status": status}
    return decode_pod(json.dumps(document).encode())


@pytest.mark.parametrize("first", [{"tainted": True}, {"deleted": True}], ids=["by its taint", "by its deletion"])
def test_a_node_leaves_from_what_is_seen_first_until_it_is_gone(first: dict[str, bool]) -> None:
    seen = Turnover()
    seen.saw_node(node(), 1.0)
    assert (seen.leaving(), seen.last(), seen.nodes()) == (0, None, frozenset({"n"}))
    seen.saw_node(node("n", **first), 2.0)
    seen.saw_node(node(tainted=True, deleted=True), 3.0)
    assert (seen.began(), seen.leaving(), seen.last()) == ({"n": 2.0}, 1, 2.0)
    seen.saw_node(node(tainted=True, deleted=True), 4.0, deleted=True)
    assert (seen.gone(), seen.leaving(), seen.last(), seen.nodes()) == ({"n": 4.0}, 0, 4.0, frozenset())


def test_a_node_whose_disruption_is_called_off_did_not_leave() -> None:
    seen = Turnover()
    seen.saw_node(node(tainted=True), 1.0)
    seen.saw_node(node(), 2.0)
    assert (seen.began(), seen.leaving()) == ({}, 0)


def test_the_fewest_pods_that_were_up_are_remembered_from_the_moment_on_that_is_asked() -> None:
    seen = Turnover()
    for uid in "abc":
        seen.saw_pod(pod(uid), 1.0)
    seen.saw_pod(pod("a", ready=False), 2.0)
    seen.saw_pod(pod("a"), 3.0)
    seen.note_least("fleet")
    assert seen.least("fleet") == 3
    seen.saw_pod(pod("b", deleted=True), 4.0)
    seen.saw_pod(pod("b", deleted=True), 5.0, deleted=True)
    seen.saw_pod(pod("d"), 6.0)
    assert seen.least("fleet") == 2
    assert seen.up("fleet") == {"a": 3.0, "c": 1.0, "d": 6.0}


def test_a_node_is_empty_from_its_last_pod_on_whatever_daemons_do() -> None:
    seen = Turnover()
    for uid in "ab":
        seen.saw_pod(pod(uid), 1.0)
    seen.saw_pod(pod("a"), 2.0, deleted=True)
    seen.saw_pod(pod("b"), 3.0, deleted=True)
    seen.saw_pod(pod("c", owner="DaemonSet"), 4.0)
    seen.saw_pod(pod("c", owner="DaemonSet"), 5.0, deleted=True)
    assert seen.emptied() == {"n": 3.0}


def test_a_round_ends_where_nothing_begins_to_leave_for_a_while() -> None:
    assert rounds([]) == 0
    assert rounds([9.0, 1.0, 2.0, 6.5, 30.0]) == 2
