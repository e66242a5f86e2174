"""Objects as the API server sends them, and the facts that are kept of them."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from extender.facts import Timeline, claim_facts, decode_member, node_facts
from extender.server import MEMBERS
from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.launch_sets import LaunchSet, encode_sets
from provisioner.apis.plan import Plan, PlanEntry, encode_plan
from provisioner.state.promises import PodFamily
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
    facts = node_facts(node())
    assert (facts.name, facts.provider_id, facts.claim_uid, facts.problem) == ("n1", "p", "", "")
    assert facts.allocatable == Resources.of({"cpu": 3900, "memory": 1 << 30, "pods": 110})
    assert (facts.schedulable, facts.leaving, facts.disrupted) == (True, False, False)


NOT_SCHEDULABLE = {
    "not ready": node(status__conditions=[{"type": "Ready", "status": "False"}]),
    "without conditions": node(status__conditions=[]),
    "unregistered": node(spec__taints=[{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]),
    "not-ready taint": node(spec__taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]),
    "managed and not initialized": node(metadata__labels={names.NODEPOOL_LABEL: "general"}),
}


@pytest.mark.parametrize("one", NOT_SCHEDULABLE.values(), ids=NOT_SCHEDULABLE)
def test_nodes_that_are_still_coming(one: Node) -> None:
    assert not node_facts(one).schedulable


def test_a_managed_node_that_is_initialized_and_one_with_other_taints_are_schedulable() -> None:
    labels = {names.NODEPOOL_LABEL: "general", names.INITIALIZED_LABEL: "true"}
    assert node_facts(node(metadata__labels=labels)).schedulable
    assert node_facts(node(spec__taints=[{"key": "team", "effect": "NoSchedule"}])).schedulable


def test_nodes_that_leave() -> None:
    assert node_facts(node(spec__taints=[{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}])).disrupted
    assert node_facts(node(metadata__deletionTimestamp="2026-11-21T12:00:00Z")).leaving


OURS = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "c1", "uid": "u1"}


def test_the_owner_reference_has_the_uid_of_the_claim() -> None:
    owners = [{"kind": "Other", "name": "x", "uid": "x"}, {**OURS, "apiVersion": "example.com/v1", "uid": "y"}, OURS]
    assert node_facts(node(metadata__ownerReferences=owners)).claim_uid == "u1"
    assert node_facts(node(metadata__ownerReferences=owners[:2])).claim_uid == ""


def test_a_plan_that_a_kubelet_writes_on_its_own_node_lures_no_pods() -> None:
    lure = {names.PLAN_ANNOTATION: encode_plan(PLAN)}
    assert node_facts(node(metadata__annotations=lure)) == node_facts(node())


def test_an_amount_that_cannot_be_read_is_named_and_left_out() -> None:
    facts = node_facts(node(status__allocatable={"cpu": "four"}))
    assert "four" in facts.problem
    assert facts.allocatable == EMPTY


@pytest.mark.parametrize(
    ("text", "says"),
    [("nonsense", "dovetail.dev/plan: not a plan"), ('{"v":9,"pods":[]}', "version 9")],
)
def test_a_plan_that_cannot_be_read_is_named_and_left_out(text: str, says: str) -> None:
    facts = claim_facts(claim(annotations={names.PLAN_ANNOTATION: text}), TIMELINE)
    assert says in facts.problem
    assert facts.plan == Plan()


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
    assert (facts.name, facts.planned_at, facts.node, facts.provider_id, facts.leaving) == (
        "c1",
        940.0,
        "n1",
        "p",
        False,
    )
    assert (facts.requests, facts.plan) == (Resources.of({"cpu": 2000, "pods": 3}), PLAN)
    assert claim_facts(claim(deletionTimestamp="2026-11-21T12:00:00Z"), TIMELINE).leaving
    assert not facts.disrupted
    for mark in (names.COMMAND_ANNOTATION, names.COMMAND_MEMBER_ANNOTATION):
        assert claim_facts(claim(annotations={mark: "?"}), TIMELINE).disrupted
    assert not claim_facts(claim(annotations={names.REPLACES_ANNOTATION: "id"}), TIMELINE).disrupted
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
    assert (one.uid, one.name, one.resource_version, one.owner) == ("u", "ns/p", "7", "o")
    assert (one.requests, one.priority, one.waiting) == (Resources.of({"cpu": 500, "pods": 1}), 3, True)
    assert one.family == PodFamily("o", one.klass)
    assert one.shape is decode_member(pod(metadata={"uid": "v"})).shape


UNSCHEDULABLE = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
MEMBER = {"spec": {"schedulingGroup": {"podGroupName": "train"}}}


def test_a_pod_of_a_group() -> None:
    gang = {names.GANG: "train", names.GANG_MINIMUM: "2"}
    assert decode_member(pod(**MEMBER)).group == "ns/train"
    assert decode_member(pod(metadata={"annotations": gang})).group == "ns/gang/train/o/2"
    assert decode_member(pod()).group == ""


def test_of_members_alone_it_is_kept_that_kube_scheduler_found_no_room() -> None:
    assert decode_member(pod(**MEMBER, status=UNSCHEDULABLE)).refused
    assert not decode_member(pod(**MEMBER)).refused
    assert not decode_member(pod(spec={**MEMBER["spec"], "nodeName": "n1"}, status=UNSCHEDULABLE)).refused
    assert not decode_member(pod(status=UNSCHEDULABLE)).refused


def test_launch_sets_of_a_claim() -> None:
    mine = (LaunchSet(id="d1", group="ns/train", nodes=2),)
    assert claim_facts(claim(annotations={names.LAUNCH_SET: encode_sets(mine)}), TIMELINE).sets == mine
    bad = claim_facts(claim(annotations={names.LAUNCH_SET: '{"v":7}'}), TIMELINE)
    assert (bad.sets, names.LAUNCH_SET in bad.problem) == ((), True)


def test_what_many_pods_and_plans_say_is_one_text() -> None:
    uid = "5b1f2c1e-0000-4000-8000-000000000001"
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": uid, "controller": True}
    plan = encode_plan(Plan(pods=(PlanEntry(owner=uid, klass="9c6b8901222aca0c", count=1, uids=("u",)),)))
    one, other = (decode_member(pod(metadata={"uid": each, "ownerReferences": [owner]})) for each in "uv")
    here, there = (claim_facts(claim(annotations={names.PLAN_ANNOTATION: plan}), TIMELINE).plan.pods[0] for _ in "ab")
    assert one.owner == uid
    assert one.owner is other.owner is here.owner is there.owner
    assert here.klass is there.klass
    assert MEMBERS.key(one) is one.name


def test_pods_that_do_not_wait() -> None:
    assert not decode_member(pod(spec={"nodeName": "n1"})).waiting
    assert not decode_member(pod(status={"phase": "Succeeded"})).waiting
    assert not decode_member(pod(spec={"schedulingGates": [{"name": "g"}]})).waiting
    assert not decode_member(pod(metadata={"deletionTimestamp": "2026-11-21T12:00:00Z"})).waiting


DAEMONSET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ds", "uid": "o", "controller": True}


def term(*nodes: str, operator: str = "In") -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": list(nodes)}]}


def daemon(
    *terms: dict[str, Any], owner: dict[str, Any] | None = None, name: str = "ds-x7k2p", node_name: str = ""
) -> bytes:
    required = {"nodeSelectorTerms": list(terms)}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}} if terms else {}
    return pod(
        metadata={"name": name, "ownerReferences": [owner or DAEMONSET]},
        spec={"affinity": affinity, "nodeName": node_name},
    )


DAEMONS = {
    "pinned by one term": daemon(term("n1")),
    "pinned by every term": daemon(
        term("n1"), {**term("n1"), "matchExpressions": [{"key": "a", "operator": "Exists"}]}
    ),
    "bound to the node that it is pinned to": daemon(term("n1"), node_name="n1"),
    "of a long name": daemon(term("n1"), owner={**DAEMONSET, "name": "d" * 63}, name="d" * 58 + "x7k2p"),
    "of a former version": daemon(term("n1"), owner={**DAEMONSET, "apiVersion": "apps/v1beta2"}),
}
FAKES = {
    "pinned to no node": daemon(),
    "pinned in one of two terms": daemon(term("n1"), {"matchExpressions": [{"key": "a", "operator": "Exists"}]}),
    "pinned to either of two nodes": daemon(term("n1", "n2")),
    "pinned to a node in each term": daemon(term("n1"), term("n2")),
    "kept off a node": daemon(term("n1", operator="NotIn")),
    "bound to another node than it is pinned to": daemon(term("n1"), node_name="n2"),
    "owned by a DaemonSet of another group": daemon(term("n1"), owner={**DAEMONSET, "apiVersion": "apps.kruise.io/v1"}),
    "owned by a DaemonSet of the core group": daemon(term("n1"), owner={**DAEMONSET, "apiVersion": "v1"}),
    "owned by another kind": daemon(term("n1"), owner={**DAEMONSET, "kind": "ReplicaSet"}),
    "owned, but not controlled": daemon(term("n1"), owner={**DAEMONSET, "controller": False}),
    "owned by nobody in particular": daemon(term("n1"), owner={**DAEMONSET, "uid": ""}),
    "named after another": daemon(term("n1"), name="other-x7k2p"),
    "named like the DaemonSet itself": daemon(term("n1"), name="ds"),
}


@pytest.mark.parametrize("data", DAEMONS.values(), ids=DAEMONS)
def test_pods_that_the_daemonset_controller_made(data: bytes) -> None:
    assert decode_member(data).daemon


@pytest.mark.parametrize("data", FAKES.values(), ids=FAKES)
def test_pods_that_only_look_like_it(data: bytes) -> None:
    assert not decode_member(data).daemon


STATIC = {
    "a mirror's annotation": {"annotations": {names.CONFIG_MIRROR: "x"}},
    "a Node as owner": {
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n", "controller": True}]
    },
}


@pytest.mark.parametrize("metadata", STATIC.values(), ids=STATIC)
def test_a_pod_that_calls_itself_static_is_like_any_other(metadata: dict[str, Any]) -> None:
    """kube-scheduler never asks about real ones: they are bound when they are made."""
    one = decode_member(pod(metadata=metadata))
    assert one.waiting
    assert not one.daemon


def test_a_pod_without_an_owner() -> None:
    alone = decode_member(pod(metadata={"ownerReferences": []}))
    assert (alone.daemon, alone.owner) == (False, "")


def test_no_pod_of_another_namespace_is_a_brother_whatever_owner_it_names() -> None:
    here, there = decode_member(pod()), decode_member(pod(metadata={"namespace": "other"}))
    assert here.owner == there.owner
    assert here.family != there.family


def test_annotations_of_a_pod_steer_nothing() -> None:
    said = {
        names.PLAN_ANNOTATION: encode_plan(PLAN),
        names.HOLD_RELEASED_ANNOTATION: "x",
        names.STAMPED_ANNOTATION: "x",
    }
    assert decode_member(pod(metadata={"annotations": said})) == decode_member(pod())


def test_what_a_kubelet_may_label_its_node_with_tells_of_no_claim_and_no_plan() -> None:
    """NodeRestriction lets it set every label outside of kubernetes.io and k8s.io, ours too."""
    labels = {names.NODEPOOL_LABEL: "general", names.INITIALIZED_LABEL: "true", names.REGISTERED_LABEL: "true"}
    facts = node_facts(node(metadata__labels=labels))
    assert (facts.claim_uid, facts.leaving) == ("", False)


def test_instants_keep_their_distance_on_the_monotonic_clock() -> None:
    assert TIMELINE.at(NOON + timedelta(seconds=90)) == 1090.0
