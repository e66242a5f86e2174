"""The provisioner on a real control plane: from a pending pod to a node, and back to nothing."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner

from provisioner.apis import names
from provisioner.apis.gangs import GroupSource
from provisioner.apis.hash import nodepool_hash
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import condition, is_true
from provisioner.apis.plan import decode_plan
from provisioner.cli.why.command import command as why_command
from provisioner.kube.client import Client
from provisioner.kube.resources import (
    CAPACITYBUFFERS,
    NODECLAIMS,
    NODEOVERLAYS,
    NODES,
    PODS,
    PODTEMPLATES,
    VOLUMEATTACHMENTS,
)
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.harness.memory import running
from provisioner.lab.harness.programs import PLANNER_MODULE
from provisioner.options import FeatureGates
from provisioner.support.metrics import REGISTRY
from tests.support.eventually import eventually
from tests.support.provisioner import SECONDS, TEAM, InProcess, Plot, conditions_of

pytestmark = pytest.mark.plane

NEVER = {"consolidateAfter": "Never"}


@pytest.fixture(scope="module")
def provisioner(plane: DevCluster, client: Client) -> Iterator[InProcess]:
    gates = FeatureGates(static_capacity=True, node_overlay=True, capacity_buffer=True)
    with InProcess(str(plane.kubeconfig), feature_gates=gates) as one:
        yield one


@pytest.fixture
def plot(client: Client, provisioner: InProcess) -> Iterator[Plot]:
    one = Plot(client)
    yield one
    one.clear()


def planned_pods(claim: NodeClaim) -> set[str]:
    plan = decode_plan(claim.metadata.annotations[names.PLAN_ANNOTATION])
    return {uid for entry in plan.pods for uid in entry.uids}


def test_a_deleted_claim_goes_with_its_node_and_not_when_it_is_looked_at_again(
    plot: Plot, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provisioner.lifecycle.controller.FINALIZE_REQUEUE_SECONDS", 3600.0)
    plot.pool(disruption=NEVER)
    plot.deploy("web", 1)
    (claim,) = eventually(plot.initialized, "the claim is initialised", SECONDS)
    client.delete(NODECLAIMS, claim.name)
    eventually(lambda: claim.name not in [one.name for one in plot.claims()], "the end of the Node ends it", SECONDS)


def test_without_the_feature_gate_a_pod_that_names_a_group_is_a_single_pod(plot: Plot, provisioner: InProcess) -> None:
    """The API server drops the group; with the gate: test_gangs."""
    plot.pool(disruption=NEVER)
    plot.deploy("web", 1, schedulingGroup={"podGroupName": "train"})
    plot.await_running(1)
    assert provisioner.caches.pod_groups[GroupSource.POD_GROUP] not in provisioner.caches.all


def test_one_pod_gets_one_node_which_goes_with_it(plot: Plot) -> None:
    pool = plot.pool(labels={"tier": "gold"})
    plot.deploy("web", 1)
    plot.await_running(1)
    (claim,) = eventually(plot.initialized, "the claim is initialised", SECONDS)
    (node,) = plot.nodes()
    (pod,) = plot.pods()

    told = conditions_of(claim)
    assert {kind: told.get(kind) for kind in ("Launched", "Registered", "Initialized", "Ready")} == dict.fromkeys(
        ("Launched", "Registered", "Initialized", "Ready"), "True"
    )
    assert planned_pods(claim) == {pod.uid}
    assert claim.name.startswith(f"{pool}-")
    assert claim.metadata.finalizers == (names.TERMINATION_FINALIZER,)
    assert [(one.kind, one.name) for one in claim.metadata.owner_references] == [("NodePool", pool)]
    assert claim.metadata.labels["tier"] == "gold"
    assert claim.metadata.labels["karpenter.kwok.sh/kwoknodeclass"] == pool
    assert claim.metadata.labels[names.INSTANCE_TYPE_LABEL] == node.metadata.labels[names.INSTANCE_TYPE_LABEL]
    assert claim.status.node_name == node.metadata.name == pod.node_name
    assert claim.status.provider_id == node.spec.provider_id

    assert [taint.key for taint in node.spec.taints] == [TEAM]
    assert node.metadata.labels["tier"] == "gold"
    assert {key: node.metadata.labels.get(key) for key in (names.REGISTERED_LABEL, names.INITIALIZED_LABEL)} == {
        names.REGISTERED_LABEL: "true",
        names.INITIALIZED_LABEL: "true",
    }
    assert names.TERMINATION_FINALIZER in node.metadata.finalizers
    assert [one.uid for one in node.metadata.owner_references] == [claim.metadata.uid]

    eventually(lambda: plot.node_pool(pool).status.nodes == 1, "1 node is told", SECONDS)
    status = plot.node_pool(pool).status
    assert str(status.resources["cpu"]) == str(node.status.capacity["cpu"])

    for kind in ("Launched", "Registered", "Initialized", "Ready"):
        events = eventually(partial(plot.events, kind, "NodeClaim", [claim.name]), f"{kind} is transition", SECONDS)
        transition = f"Status condition transitioned, Type: {kind}, Status: Unknown -> True, Reason: {kind}"
        assert [one.message[: len(transition)] for one in events] == [transition], events

    plot.scale("web", 0)
    plot.await_empty()
    eventually(lambda: plot.events("Finalized", "NodeClaim", [claim.name]), "its end is told", SECONDS)
    eventually(lambda: plot.node_pool(pool).status.nodes == 0, "0 nodes are told", SECONDS)
    status = plot.node_pool(pool).status
    assert {key: str(status.resources[key]) for key in ("cpu", "memory", "pods", "nodes")} == dict.fromkeys(
        ("cpu", "memory", "pods", "nodes"), "0"
    )


def test_a_claim_costs_at_most_six_writes_until_it_is_initialised(plot: Plot, provisioner: InProcess) -> None:
    """On a busy machine some cost one or two more: a write that conflicts, a Node that is ready late; when pods were bound there is told later."""
    pool = plot.pool(disruption=NEVER)
    before = provisioner.writes()
    plot.deploy("web", 20)
    eventually(lambda: len(plot.initialized(pool)) == 20, "20 claims are initialised", SECONDS, 0.2)
    after = provisioner.writes()
    spent = {
        what: after[what] - before.get(what, 0)
        for what in after
        if what.partition(" ")[2].partition("/")[0] in ("nodeclaims", "nodes") and after[what] > before.get(what, 0)
    }
    later = sum(one.status.last_pod_event_time is not None for one in plot.claims(pool))
    print(f"{sum(spent.values()) / 20:.2f} writes a claim, {later} of them of pods' times: {spent}")
    assert spent["create nodeclaims"] == spent["create nodes"] == 20
    assert sum(spent.values()) - later <= 6 * 20 + 12
    plot.await_running(20)


def test_a_slow_batch_does_not_hold_up_the_next(plot: Plot) -> None:
    slow = plot.pool("-slow", delay="20m")
    fast = plot.pool("-fast")
    plot.deploy("slow", 2, pool=slow)
    eventually(lambda: sum(bool(one.status.provider_id) for one in plot.claims(slow)) == 2, "two are launched", SECONDS)
    plot.deploy("fast", 2, pool=fast)
    plot.await_running(2, "fast")
    eventually(lambda: len(plot.initialized(fast)) == 2, "the fast ones are initialised", SECONDS)
    eventually(
        lambda: [conditions_of(one).get("Registered") for one in plot.claims(slow)] == ["Unknown", "Unknown"],
        "the slow ones are launched and not registered",
        SECONDS,
    )
    assert plot.nodes(slow) == []


def improved_plans() -> float:
    return REGISTRY.get_sample_value("dovetail_plans_total", {"outcome": "improved"}) or 0.0


def deploy_both(plot: Plot, name: str) -> None:
    """Pods that want CPU and pods that want memory: packed by size they share one node, which costs more than some of each shape."""
    tall = {"requests": {"cpu": "200m", "memory": "6Gi"}}
    plot.deploy(f"{name}-wide", 10, cpu="1")
    plot.deploy(f"{name}-tall", 10, containers=[{"name": "main", "image": "pause", "resources": tall}])


def test_nodes_are_chosen_by_cost_and_say_how_near_the_plan_comes_to_its_bound(
    plot: Plot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provisioner.packing.planner.Patience.seconds", lambda _self, _pods, _types: 9.0)
    plot.pool(cpu=(1, 2, 4, 8, 16, 32, 64), annotations={names.PACKING: "cost"})
    before, tries = improved_plans(), 0
    while (
        improved_plans() == before and tries < 4
    ):  # on a crowded node pods may come in two batches, or the answer late
        tries += 1
        deploy_both(plot, f"try{tries}")
        plot.await_running(20 * tries)
    assert improved_plans() > before
    for claim in plot.claims():
        said = claim.metadata.annotations
        cost, least = float(said[names.PLAN_COST]), float(said[names.PLAN_LOWER_BOUND])
        assert 0 < least <= cost
        assert float(said[names.PLAN_GAP]) == pytest.approx(cost / least - 1, abs=0.01)

    for pid in running(os.getpid(), PLANNER_MODULE):
        os.kill(pid, signal.SIGKILL)
    deploy_both(plot, "after")
    plot.await_running(20 * tries + 20)


def answers_of(code: str) -> float:
    return REGISTRY.get_sample_value("karpenter_pods_eviction_requests_total", {"code": code}) or 0.0


Asked = Callable[..., dict[str, Any]]


@pytest.fixture
def asked(plane: DevCluster) -> Asked:
    """What `dovetail why` says of this plane."""

    def ask(*arguments: str) -> dict[str, Any]:
        result = CliRunner().invoke(why_command, [*arguments, "-o", "json", "--kubeconfig", str(plane.kubeconfig)])
        assert result.exit_code == 0, result.output
        found: dict[str, Any] = json.loads(result.output)
        return found

    return ask


def attachment_to(node: str) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": f"csi-{node}"},
        "spec": {"attacher": "dovetail.example", "nodeName": node, "source": {"persistentVolumeName": f"pv-{node}"}},
    }


def test_a_termination_grace_period_ends_what_nobody_may_evict_and_its_volumes_are_awaited(plot: Plot) -> None:
    plot.pool(disruption=NEVER, template={"terminationGracePeriod": "10m"})
    plot.deploy("stubborn", 1, annotations={names.DO_NOT_DISRUPT: "true"}, terminationGracePeriodSeconds=3600)
    plot.await_running(1)
    (claim,) = eventually(plot.initialized, "the claim is initialised", SECONDS)
    node = claim.status.node_name
    plot.client.create(VOLUMEATTACHMENTS, attachment_to(node))
    plot.client.delete(NODECLAIMS, claim.name)

    def waits_for_volumes() -> bool:
        conditions = plot.client.get(NODECLAIMS, claim.name).status.conditions
        found = condition(conditions, names.VOLUMES_DETACHED)
        return is_true(conditions, names.DRAINED) and found is not None and found.reason == "AwaitingVolumeDetachment"

    eventually(waits_for_volumes, "the pod was deleted, and its volumes are awaited", SECONDS, 0.1)
    going = plot.client.get(NODECLAIMS, claim.name)
    assert going.metadata.deletion_timestamp is not None
    end = going.metadata.deletion_timestamp + timedelta(minutes=10)
    assert going.metadata.annotations[names.TERMINATION_TIMESTAMP] == f"{end:%Y-%m-%dT%H:%M:%SZ}"
    assert node in {one.metadata.name for one in plot.nodes()}
    plot.client.delete(VOLUMEATTACHMENTS, f"csi-{node}")
    eventually(lambda: claim.name not in {one.name for one in plot.claims()}, "its claim is gone", SECONDS)


def test_a_protected_pod_holds_the_drain_and_no_node_waits_empty_for_it(plot: Plot, asked: Asked) -> None:
    plot.pool(disruption=NEVER)
    plot.daemonset("agent")
    plot.deploy("guarded", 1, cpu="1")
    plot.deploy("stubborn", 1, cpu="1", annotations={names.DO_NOT_DISRUPT: "true"})
    plot.await_running(2)
    (node,), (claim,) = plot.nodes(), plot.claims()
    eventually(lambda: len(plot.pods("agent")) == 1, "the daemon's pod is there", SECONDS)
    plot.protect("guarded")
    refused = answers_of("429")

    plot.client.delete(NODES, node.metadata.name)
    eventually(lambda: answers_of("429") > refused, "the eviction was refused", SECONDS)
    eventually(lambda: plot.events("FailedDraining", "Node", [node.metadata.name]), "the Node says why", SECONDS)
    eventually(lambda: plot.events("FailedDraining", "NodeClaim", [claim.name]), "its claim says why", SECONDS)
    assert [one.name for one in plot.claims()] == [claim.name]  # a node that nobody may come to yet is not bought
    held = plot.client.get(NODES, node.metadata.name)
    assert names.DISRUPTED_TAINT.key in {taint.key for taint in held.spec.taints}
    assert held.metadata.labels[names.EXCLUDE_BALANCERS_LABEL] == names.EXCLUDE_BALANCERS_VALUE
    assert {pod.node_name for pod in plot.pods("guarded")} == {node.metadata.name}
    budget = f"PodDisruptionBudget {plot.name}/guarded never allows an eviction"

    def told() -> tuple[str, str, bool]:
        found = condition(plot.client.get(NODECLAIMS, claim.name).status.conditions, names.DRAINED)
        return ("", "", False) if found is None else (found.status, found.reason, budget in found.message)

    eventually(lambda: told() == ("Unknown", "Draining", True), told, SECONDS)
    why = eventually(lambda: blames(asked("node", node.metadata.name), budget), "why names the budget", SECONDS)
    assert why["state"] == "Terminating"
    assert {one["cause"] for one in why["drain"]["blockers"]} == {"impossible-pod-budget", "pod-protected"}

    plot.unprotect("guarded")
    eventually(
        lambda: {pod.node_name for pod in plot.pods("guarded")}.isdisjoint({node.metadata.name, ""}),
        "it has moved",
        SECONDS,
        0.2,
    )
    assert [one.metadata.name for one in plot.nodes() if one.metadata.name == node.metadata.name]
    (stubborn,) = plot.pods("stubborn")
    plot.client.patch(PODS, stubborn.name, {"metadata": {"annotations": {names.DO_NOT_DISRUPT: None}}}, plot.name)
    eventually(lambda: node.metadata.name not in {one.metadata.name for one in plot.nodes()}, "it is gone", SECONDS)
    eventually(lambda: claim.name not in {one.name for one in plot.claims()}, "its claim is gone", SECONDS)
    plot.await_running(2)


def blames(answer: dict[str, Any], budget: str) -> dict[str, Any]:
    """What `dovetail why` said, if it names that budget."""
    return answer if budget in answer["summary"] else {}


def test_limits_are_never_exceeded_and_pods_say_which(plot: Plot, asked: Asked) -> None:
    pool = plot.pool(disruption=NEVER, limits={"cpu": "8"})
    plot.deploy("web", 4)
    most = 0

    def seen() -> int:
        nonlocal most
        most = max(most, len(plot.claims()))
        return most

    def complaints(word: str) -> set[str]:
        seen()
        waiting = [pod.name for pod in plot.pods() if not pod.node_name]
        mine = [one for one in plot.events("FailedScheduling", "Pod", waiting) if one.source.component == "karpenter"]
        return {one.involved_object.name for one in mine if pool in one.message and word in one.message}

    plot.await_running(2)
    eventually(lambda: len(complaints("cpu")) == 2, "both pods name the limit of cpu", SECONDS, 0.2)
    assert seen() == 2
    assert plot.node_pool(pool).status.nodes <= 2
    waiting = next(pod for pod in plot.pods() if not pod.node_name)
    why = asked("pod", waiting.key)
    assert why["state"] == "Unschedulable"
    assert [one["type"] for one in why["reasons"] if one.get("nodePools") == [pool]] == ["LimitReached"]
    (mine,) = [one for one in why["nodePools"] if one["name"] == pool]
    assert "limit" in {one["cause"] for one in mine["refused"]}

    plot.change_pool(pool, limits={"cpu": "100", "nodes": "3"})
    plot.await_running(3)
    eventually(lambda: len(complaints("nodes")) == 1, "one pod names the limit of nodes", SECONDS, 0.2)
    assert seen() == 3

    plot.change_pool(pool, limits={"nodes": "4"})
    plot.await_running(4)
    assert seen() == 4


def test_a_budget_of_one_lets_empty_nodes_go_one_at_a_time(plot: Plot) -> None:
    plot.pool(disruption={"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s", "budgets": [{"nodes": "1"}]})
    plot.deploy("web", 3)
    plot.await_running(3)
    eventually(lambda: len(plot.initialized()) == 3, "three are initialised", SECONDS)
    most = 0

    def left() -> int:
        nonlocal most
        found = plot.claims()
        # one whose Node is gone, or whose instance is ending, counts against no budget any more, as in Karpenter
        nodes = {node.metadata.name for node in plot.nodes()}
        going = [one for one in found if one.metadata.deletion_timestamp is not None and one.status.node_name in nodes]
        most = max(most, sum(not is_true(one.status.conditions, names.INSTANCE_TERMINATING) for one in going))
        return len(found)

    def at_most(count: int) -> bool:
        return left() <= count

    plot.scale("web", 0)
    for count in (2, 1, 0):
        eventually(partial(at_most, count), f"at most {count} are left", SECONDS)
    assert most == 1


def test_a_budget_of_none_and_never_keep_empty_nodes(plot: Plot) -> None:
    none = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s", "budgets": [{"nodes": "0"}]}
    frozen = plot.pool("-frozen", disruption=none)
    never = plot.pool("-never", disruption={"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]})
    plot.deploy("frozen", 2, pool=frozen)
    plot.deploy("never", 1, pool=never)
    plot.await_running(3)
    for name in ("frozen", "never"):
        plot.scale(name, 0)
    blocked = eventually(
        lambda: plot.events("DisruptionBlocked", "NodePool", [frozen]), "the pool says that it is blocked", SECONDS
    )
    assert "No allowed disruptions for disruption reason Empty" in blocked[0].message
    assert len(plot.claims(frozen)) == 2
    assert all(one.metadata.deletion_timestamp is None for one in plot.claims(frozen))

    plot.change_pool(frozen, disruption={"budgets": [{"nodes": "100%"}]})
    plot.await_empty(frozen)
    (kept,) = plot.claims(never)
    assert kept.metadata.deletion_timestamp is None
    assert not is_true(kept.status.conditions, names.CONSOLIDATABLE)


def test_an_invalid_pool_says_so_and_the_others_work(plot: Plot) -> None:
    bad = plot.pool("-bad", ready=False, requirements=[{"key": "team", "operator": "Exists", "values": ["a"]}])
    lost = plot.pool("-lost", ready=False, node_class=False)
    good = plot.pool("-good")

    def told(pool: str, kind: str) -> tuple[str, str, str]:
        found = condition(plot.node_pool(pool).status.conditions, kind)
        return ("", "", "") if found is None else (found.status, found.reason, found.message)

    eventually(lambda: told(bad, names.READY)[0] == "False", "the bad pool is not Ready", SECONDS)
    status, reason, message = told(bad, names.VALIDATION_SUCCEEDED)
    assert (status, reason) == ("False", names.NODEPOOL_VALIDATION_FAILED)
    assert message.startswith("spec.template.spec.requirements[3]: ")
    eventually(lambda: told(lost, names.READY)[0] == "False", "the pool without class is not Ready", SECONDS)
    assert told(lost, names.NODECLASS_READY)[:2] == ("False", names.NODECLASS_NOT_FOUND)
    assert told(lost, names.VALIDATION_SUCCEEDED)[0] == "True"
    plot.deploy("web", 1)
    plot.await_running(1)
    assert {one.pool for one in plot.claims()} == {good}


def test_the_hash_is_written_and_follows_the_template(plot: Plot) -> None:
    pool = plot.pool()

    def hashed() -> str:
        return plot.node_pool(pool).metadata.annotations.get(names.NODEPOOL_HASH, "")

    first = eventually(hashed, "the pool has its hash", SECONDS)
    assert first == nodepool_hash(plot.node_pool(pool).spec.template)
    assert plot.node_pool(pool).metadata.annotations[names.NODEPOOL_HASH_VERSION] == "v3"
    plot.change_pool(pool, weight=7)
    plot.change_pool(pool, template={"metadata": {"labels": {"tier": "gold"}}})
    second = eventually(lambda: (found := hashed()) != first and found, "a label changes the hash", SECONDS)
    assert second == nodepool_hash(plot.node_pool(pool).spec.template)
    plot.deploy("web", 1)
    plot.await_running(1)
    assert [one.metadata.annotations[names.NODEPOOL_HASH] for one in plot.claims()] == [second]


def test_a_claim_that_nobody_can_read_stops_nothing(plot: Plot) -> None:
    pool = plot.pool()
    body = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": f"{plot.name}-odd", "labels": {names.NODEPOOL_LABEL: pool}},
        "spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": pool},
            "requirements": [{"key": "team", "operator": "Exists", "values": ["a"]}],
            "resources": {"requests": {"cpu": "1"}},
        },
    }
    plot.client.create(NODECLAIMS, body)
    odd = eventually(
        lambda: condition(plot.client.get(NODECLAIMS, f"{plot.name}-odd").status.conditions, names.LAUNCHED),
        "it says what is wrong",
        SECONDS,
    )
    assert odd is not None
    assert odd.status != "True"
    plot.deploy("web", 1)
    plot.await_running(1)
    assert [one.pool for one in eventually(plot.initialized, "its claim is initialised", SECONDS)] == [pool]


def test_a_static_pool_keeps_its_replicas_whatever_pods_there_are(plot: Plot, plane: DevCluster) -> None:
    pool = plot.pool(replicas=2)

    def staying() -> list[NodeClaim]:
        return [one for one in plot.initialized(pool) if one.metadata.deletion_timestamp is None]

    eventually(lambda: len(staying()) == 2, "two nodes are there without a pod", SECONDS)
    plane.kubectl("scale", "nodepools", pool, "--replicas=3")
    eventually(lambda: len(staying()) == 3, "kubectl scale adds one", SECONDS)
    eventually(lambda: plot.node_pool(pool).status.nodes == 3, "3 nodes are told", SECONDS)
    plot.deploy("web", 1)
    plot.await_running(1)
    (pod,) = plot.pods()
    assert len(plot.claims(pool)) == 3  # its room was there
    assert not any(is_true(one.status.conditions, names.CONSOLIDATABLE) for one in staying())

    plot.change_pool(pool, replicas=1)
    eventually(lambda: len(plot.claims(pool)) == 1, "the empty ones go", SECONDS)
    assert [(one.uid, one.node_name) for one in plot.pods()] == [(pod.uid, plot.claims(pool)[0].status.node_name)]

    plot.change_pool(pool, replicas=4, limits={"nodes": "2"})
    eventually(lambda: plot.events("NodeLimitReached", "NodePool", [pool]), "the limit is told", SECONDS)
    eventually(lambda: len(staying()) == 2, "the limit is kept", SECONDS)
    (lost, *_) = staying()
    plot.client.delete(NODECLAIMS, lost.name)
    eventually(
        lambda: len(staying()) == 2 and lost.name not in {one.name for one in plot.claims(pool)},
        "a node that is deleted is made again",
        SECONDS,
    )
    assert len(plot.claims(pool)) == 2


def test_an_overlay_changes_the_chosen_type_and_says_when_it_is_in_conflict(plot: Plot) -> None:
    pool = plot.pool()
    dear = "m-4x-amd64-linux"
    mine = {"key": names.NODEPOOL_LABEL, "operator": "In", "values": [pool]}
    this = {"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": [dear]}
    made: list[dict[str, Any]] = [
        {
            "metadata": {"name": pool},
            "spec": {"requirements": [mine, this], "price": "0.0001", "capacity": {"dovetail.example/device": "2"}},
        },
        {"metadata": {"name": f"{pool}-also"}, "spec": {"requirements": [mine], "priceAdjustment": "+10%"}},
    ]

    def told(name: str) -> tuple[str, str, str]:
        found = condition(plot.client.get(NODEOVERLAYS, name).status.conditions, names.VALIDATION_SUCCEEDED)
        return (found.status, found.reason, found.message) if found is not None else ("", "", "")

    try:
        for one in made:
            plot.client.create(NODEOVERLAYS, {"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", **one})
        eventually(lambda: told(pool)[:2] == ("False", "Conflict"), "of two equals one is in conflict", SECONDS)
        assert f"{pool}-also" in told(pool)[2]
        plot.client.patch(NODEOVERLAYS, pool, {"spec": {"weight": 10}})
        eventually(lambda: told(pool)[0] == "True", "the heavier one is in force", SECONDS)
        assert is_true(plot.client.get(NODEOVERLAYS, pool).status.conditions, names.READY)
        plot.deploy("web", 1, cpu="1")
        plot.await_running(1)
        (claim,), (node,) = plot.claims(), plot.nodes()
        assert claim.metadata.labels[names.INSTANCE_TYPE_LABEL] == dear
        assert (
            str(claim.status.capacity["dovetail.example/device"])
            == str(node.status.capacity["dovetail.example/device"])
            == "2"
        )
        assert claim.metadata.annotations[names.PRICE_OVERLAY_APPLIED] == "true"
        assert claim.metadata.annotations[names.CAPACITY_OVERLAY_APPLIED] == "true"
    finally:
        for one in made:
            plot.client.delete(NODEOVERLAYS, one["metadata"]["name"])


def test_a_capacity_buffer_keeps_empty_nodes_for_pods_to_come_and_they_go_with_it(plot: Plot) -> None:
    pool = plot.pool()
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "3"}}}
    spec = {
        "containers": [container],
        "nodeSelector": {TEAM: pool},
        "tolerations": [{"key": TEAM, "operator": "Exists"}],
    }
    plot.client.create(
        PODTEMPLATES,
        {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "unit"}, "template": {"spec": spec}},
        plot.name,
    )
    buffer = {
        "apiVersion": CAPACITYBUFFERS.api_version,
        "kind": "CapacityBuffer",
        "metadata": {"name": "room"},
        "spec": {"podTemplateRef": {"name": "unit"}, "replicas": 2},
    }
    plot.client.create(CAPACITYBUFFERS, buffer, plot.name)
    eventually(lambda: len(plot.initialized()) == 2, "two empty nodes are there", SECONDS, 0.2)
    kept = {one.name for one in plot.claims()}

    def told(kind: str) -> str:
        conditions = plot.client.get(CAPACITYBUFFERS, "room", plot.name).status.conditions
        return next((f"{one.status} {one.reason}" for one in conditions if one.type == kind), "")

    eventually(lambda: told("Provisioning") == "True FitsExistingCapacity", "the room is there", SECONDS, 0.2)
    assert told("ReadyForProvisioning") == "True Resolved"
    assert plot.client.get(CAPACITYBUFFERS, "room", plot.name).status.replicas == 2
    plot.deploy("web", 1)
    plot.await_running(1)
    assert plot.pods("web")[0].node_name in {one.status.node_name for one in plot.claims() if one.name in kept}
    eventually(lambda: len(plot.initialized()) == 3, "the room is there again", SECONDS, 0.2)
    assert kept < {one.name for one in plot.claims()}, "an empty node that keeps room was removed"
    assert plot.events("FailedScheduling", "Pod", ["capacity-buffer-room-0"]) == []
    plot.client.delete(CAPACITYBUFFERS, "room", plot.name)
    eventually(lambda: len(plot.claims()) == 1, "the room goes with its buffer", SECONDS, 0.2)
