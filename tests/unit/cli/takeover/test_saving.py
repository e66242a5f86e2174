"""The saving compares the same pods on both sides."""

from typing import Any

import msgspec
import pytest

from provisioner.cli.plan.planning import PlanSettings
from provisioner.cli.takeover.saving import TakeoverSaving, saving_of
from tests.support.clock import FakeClock
from tests.support.manifests import plan_objects

Wire = dict[str, Any]
CLOCK = FakeClock()
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "Ready",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def pool(name: str, *, status: str = "True", message: str = "", **spec: Any) -> Wire:
    requirements = [{"key": "team", "operator": "In", "values": [name]}]
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name, "uid": name},
        "spec": {"template": {"spec": {"nodeClassRef": reference, "requirements": requirements}}, **spec},
        "status": {"conditions": [{**READY, "status": status, "message": message}]},
    }


def node(name: str, team: str, kind: str = "c-8x-amd64-linux") -> Wire:
    labels = {
        "karpenter.sh/nodepool": team,
        "team": team,
        "node.kubernetes.io/instance-type": kind,
        "topology.kubernetes.io/zone": "test-zone-a",
        "karpenter.sh/capacity-type": "on-demand",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
    }
    room = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": labels},
        "spec": {"providerID": f"kwok://{name}"},
        "status": {"capacity": room, "allocatable": room, "conditions": [READY]},
    }


def pod(name: str, on: str, team: str) -> Wire:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "nodeName": on,
            "nodeSelector": {"team": team},
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        },
        "status": {"phase": "Running"},
    }


def compared(*documents: Wire) -> TakeoverSaving:
    listed = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": list(documents)})
    objects = plan_objects(listed, "all.json")
    assert objects.problems == []
    return saving_of(objects, "auto", PlanSettings(improve=False), CLOCK)


A = [pool("a"), node("a1", "a"), node("a2", "a"), pod("p1", "a1", "a"), pod("p2", "a2", "a")]


def test_two_half_empty_nodes_become_one() -> None:
    found = compared(*A).for_programs()
    assert (found["pods"], found["nodesNow"], found["nodesPlanned"], found["leftOut"]) == (2, 2, 1, [])
    assert found["savingPerMonth"] == pytest.approx(found["perMonthNow"] - found["perMonthPlanned"])
    assert found["savingPerMonth"] > 0
    assert any(line.startswith("This plan saves") for line in compared(*A).lines())


def test_a_plan_that_costs_the_same_says_so() -> None:
    packed_node = node("a1", "a", "c-2x-amd64-linux")
    packed_node["metadata"]["labels"]["karpenter.sh/capacity-type"] = "spot"
    packed = compared(pool("a"), packed_node, pod("p1", "a1", "a")).lines()
    assert "This plan costs the same." in packed


NOT_SERVED: dict[str, Wire] = {
    "it is not Ready (no subnets)": pool("b", status="False", message="no subnets"),
    "its limit of cpu is 0": pool("b", limits={"cpu": "0"}),
    "it is static": pool("b", replicas=1),
}


@pytest.mark.parametrize("why", NOT_SERVED)
def test_a_pool_that_cannot_launch_and_its_nodes_are_on_neither_side(why: str) -> None:
    """Of 60 pods on the nodes of three NodePools, only those count that the plan can place."""
    alone = compared(*A).for_programs()
    found = compared(*A, NOT_SERVED[why], node("b1", "b"), pod("p3", "b1", "b")).for_programs()
    assert f'NodePool "b": {why}' in found["leftOut"]
    assert {k: v for k, v in found.items() if k != "leftOut"} == {k: v for k, v in alone.items() if k != "leftOut"}


def test_a_node_without_a_price_is_on_neither_side() -> None:
    found = compared(*A, node("a3", "a", "made-up"), pod("p3", "a3", "a")).for_programs()
    assert (found["pods"], found["nodesNow"]) == (2, 2)
    assert found["leftOut"] == ["1 pod on 1 node (a3): the catalogue has no price for its instance type"]


def test_pods_that_wait_are_not_compared() -> None:
    found = compared(*A, pod("p3", "", "a")).for_programs()
    assert (found["pods"], found["leftOut"]) == (2, ["1 pod without a node"])


def test_nothing_to_compare_is_said() -> None:
    assert compared(pool("a")).lines() == ["There is nothing to compare."]
