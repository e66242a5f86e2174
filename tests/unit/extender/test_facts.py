"""Objects as the API server sends them, and the facts that are kept of them."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from extender.facts import Timeline, claim_facts, decode_member, node_facts
from extender.plan import Family
from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.plan import Plan, PlanEntry, encode_plan
from provisioner.values.resources import EMPTY, Resources
from tests.support.clock import NOON

TIMELINE = Timeline(NOON, 1000.0)
PLAN = Plan(pods=(PlanEntry(owner="rs", klass="k", count=1, uids=("u",)),))


def node(**changes: Any) -> Node:
    document = {
        "metadata": {"name": "n1", "creationTimestamp": "2026-11-21T11:59:00Z"},
        "spec": {"providerID": "p"},
        "status": {
            "allocatable": {"cpu": "3900m", "memory": "1Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T11:59:50Z"}],
        },
    }
    for path, value in changes.items():
        target: Any = document
        *parents, last = path.split("__")
        for parent in parents:
            target = target[parent]
        target[last] = value
    return msgspec.json.decode(msgspec.json.encode(document), type=Node)


def test_a_node_that_is_ready() -> None:
    facts = node_facts(node(), TIMELINE)
    assert (facts.name, facts.provider_id, facts.claim, facts.problem) == ("n1", "p", "", "")
    assert facts.allocatable == Resources.of({"cpu": 3900, "memory": 1 << 30, "pods": 110})
    assert (facts.schedulable, facts.ready_at, facts.leaving) == (True, 990.0, False)


NOT_SCHEDULABLE = {
    "not ready": node(status__conditions=[{"type": "Ready", "status": "False"}]),
    "without conditions": node(status__conditions=[]),
    "unregistered": node(spec__taints=[{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]),
    "not-ready taint": node(spec__taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]),
    "managed and not initialized": node(metadata__labels={names.NODEPOOL_LABEL: "general"}),
}


@pytest.mark.parametrize("one", NOT_SCHEDULABLE.values(), ids=NOT_SCHEDULABLE)
def test_nodes_that_are_still_coming(one: Node) -> None:
    assert not node_facts(one, TIMELINE).schedulable


def test_a_managed_node_that_is_initialized_and_one_with_other_taints_are_schedulable() -> None:
    labels = {names.NODEPOOL_LABEL: "general", names.INITIALIZED_LABEL: "true"}
    assert node_facts(node(metadata__labels=labels), TIMELINE).schedulable
    assert node_facts(node(spec__taints=[{"key": "team", "effect": "NoSchedule"}]), TIMELINE).schedulable


def test_nodes_that_leave() -> None:
    assert node_facts(node(spec__taints=[{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]), TIMELINE).leaving
    assert node_facts(node(metadata__deletionTimestamp="2026-11-21T12:00:00Z"), TIMELINE).leaving


def test_the_owner_reference_names_the_claim() -> None:
    owners = [{"kind": "Other", "name": "x"}, {"kind": "NodeClaim", "name": "c1"}]
    assert node_facts(node(metadata__ownerReferences=owners), TIMELINE).claim == "c1"


def test_a_plan_on_a_node() -> None:
    facts = node_facts(node(metadata__annotations={names.PLAN_ANNOTATION: encode_plan(PLAN)}), TIMELINE)
    assert facts.plan == PLAN


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"metadata__annotations": {names.PLAN_ANNOTATION: "nonsense"}}, "dovetail.dev/plan: not a plan"),
        ({"metadata__annotations": {names.PLAN_ANNOTATION: '{"v":9,"pods":[]}'}}, "version 9"),
        ({"status__allocatable": {"cpu": "four"}}, "four"),
    ],
)
def test_a_part_that_cannot_be_read_is_named_and_left_out(changes: dict[str, Any], says: str) -> None:
    facts = node_facts(node(**changes), TIMELINE)
    assert says in facts.problem
    assert facts.plan == Plan()
    assert (facts.allocatable == EMPTY) == ("status__allocatable" in changes)


def claim(**meta: Any) -> NodeClaim:
    document = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "c1", "creationTimestamp": "2026-11-21T11:59:00Z", **meta},
        "spec": {
            "nodeClassRef": {"group": "g", "kind": "k", "name": "n"},
            "requirements": [],
            "resources": {"requests": {"cpu": "2", "pods": "3"}},
        },
        "status": {"providerID": "p", "nodeName": "n1"},
    }
    return msgspec.json.decode(msgspec.json.encode(document), type=NodeClaim)


def test_a_claim() -> None:
    facts = claim_facts(claim(annotations={names.PLAN_ANNOTATION: encode_plan(PLAN)}), TIMELINE)
    assert (facts.name, facts.born_at, facts.node, facts.provider_id, facts.leaving) == ("c1", 940.0, "n1", "p", False)
    assert (facts.requests, facts.plan) == (Resources.of({"cpu": 2000, "pods": 3}), PLAN)
    assert claim_facts(claim(deletionTimestamp="2026-11-21T12:00:00Z"), TIMELINE).leaving
    assert "not a plan" in claim_facts(claim(annotations={names.PLAN_ANNOTATION: "{"}), TIMELINE).problem


def pod(**changes: Any) -> bytes:
    document: dict[str, Any] = {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": "7",
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "o", "controller": True}
            ],
        },
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}], "priority": 3},
        "status": {"phase": "Pending"},
    }
    for part, values in changes.items():
        document[part].update(values)
    return msgspec.json.encode(document)


def test_a_pod() -> None:
    one = decode_member(pod())
    assert (one.uid, one.namespace, one.name, one.resource_version, one.owner) == ("u", "ns", "p", "7", "o")
    assert (one.requests, one.priority, one.waiting) == (Resources.of({"cpu": 500, "pods": 1}), 3, True)
    assert one.family == Family("o", one.klass)
    assert one.shape is decode_member(pod(metadata={"uid": "v"})).shape


def test_pods_that_do_not_wait() -> None:
    assert not decode_member(pod(spec={"nodeName": "n1"})).waiting
    assert not decode_member(pod(status={"phase": "Succeeded"})).waiting
    assert not decode_member(pod(spec={"schedulingGates": [{"name": "g"}]})).waiting
    assert not decode_member(pod(metadata={"deletionTimestamp": "2026-11-21T12:00:00Z"})).waiting


def test_daemons_and_static_pods() -> None:
    daemon = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ds", "uid": "o", "controller": True}
    assert decode_member(pod(metadata={"ownerReferences": [daemon]})).daemon
    assert decode_member(pod(metadata={"annotations": {names.CONFIG_MIRROR: "x"}})).static
    alone = decode_member(pod(metadata={"ownerReferences": []}))
    assert (alone.daemon, alone.static, alone.owner) == (False, False, "")


def test_instants_keep_their_distance_on_the_monotonic_clock() -> None:
    assert TIMELINE.at(NOON + timedelta(seconds=90)) == 1090.0
