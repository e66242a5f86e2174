"""Preemption of the model of kube-scheduler: who goes, and when nobody does."""

from dataclasses import dataclass
from typing import Any

import pytest

from provisioner.simulator.preemption import PreemptionCandidate, importance, preferred
from provisioner.simulator.simulation import simulated
from provisioner.simulator.workload import Arrival
from tests.unit.simulator.days import budget, pool, setting, template
from tests.unit.simulator.test_kube_scheduler import Cluster


@dataclass(frozen=True)
class Pod:
    """A victim."""

    priority: int
    since: float = 0.0


def on(node: str, *pods: Pod, violations: int = 0) -> PreemptionCandidate[Pod]:
    return PreemptionCandidate(node, pods, violations)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (on("a", Pod(9), Pod(9)), on("b", Pod(1), violations=1)),
        (on("a", Pod(5), Pod(5)), on("b", Pod(6))),
        (on("a", Pod(5), Pod(1)), on("b", Pod(5), Pod(2))),
        (on("a", Pod(5)), on("b", Pod(5), Pod(-2_000_000))),
        (on("a", Pod(5, 20.0), Pod(1, 1.0)), on("b", Pod(5, 10.0), Pod(1, 30.0))),
    ],
)
def test_the_node_that_hurts_least_is_preferred(
    better: PreemptionCandidate[Pod], worse: PreemptionCandidate[Pod]
) -> None:
    assert preferred([worse, better]) is better
    assert preferred([better, worse]) is better


def test_of_equal_nodes_the_first_is_preferred_and_of_equal_pods_the_older_is_more_important() -> None:
    first, second = on("a", Pod(5)), on("b", Pod(5))
    assert preferred([first, second]) is first
    assert sorted([Pod(1, 1.0), Pod(5, 9.0), Pod(5, 2.0)], key=importance) == [Pod(5, 2.0), Pod(5, 9.0), Pod(1, 1.0)]


def leaving(cluster: Cluster) -> set[str]:
    cluster.places()
    return {one["metadata"]["name"] for one in cluster.server.all("pods") if "deletionTimestamp" in one["metadata"]}


def nominated(cluster: Cluster, name: str) -> str:
    found: str = cluster.server.objects["pods"][f"default/{name}"]["status"].get("nominatedNodeName", "")
    return found


def filled() -> Cluster:
    """Two nodes: on one a pod of priority 5, on the other two of priority 1."""
    cluster = Cluster()
    for name, pods in (("a", (("five", "4", 5),)), ("b", (("one", "2", 1), ("other", "2", 1)))):
        cluster.node(name)
        for pod, cpu, priority in pods:
            cluster.pod(pod, cpu=cpu, priority=priority)
        cluster.places()
    return cluster


def test_the_least_important_pods_go_and_only_as_many_as_must() -> None:
    cluster = filled()
    cluster.pod("urgent", cpu="2", priority=10)
    assert leaving(cluster) == {"other"}, "one of the two is enough, and they began at the same time"
    assert nominated(cluster, "urgent") == "b"
    assert cluster.places()["urgent"] == ""
    cluster.server.drop("pods", "other", "default")
    assert cluster.places() == {"five": "a", "one": "b", "urgent": "b"}


def test_another_that_is_as_important_takes_other_victims() -> None:
    cluster = filled()
    cluster.pod("urgent", cpu="2", priority=10)
    cluster.places()
    cluster.pod("too", cpu="2", priority=10)
    assert leaving(cluster) == {"other", "one"}
    cluster.pod("late", cpu="2", priority=10)
    assert leaving(cluster) == {"other", "one", "five"}


def test_a_more_important_one_takes_the_place_of_one_that_is_nominated() -> None:
    cluster = filled()
    cluster.pod("urgent", cpu="4", priority=10)
    assert (leaving(cluster), nominated(cluster, "urgent")) == ({"one", "other"}, "b")
    cluster.pod("pressing", cpu="4", priority=20)
    assert leaving(cluster) == {"one", "other", "five"}
    assert (nominated(cluster, "pressing"), nominated(cluster, "urgent")) == ("b", "a")


@pytest.mark.parametrize(
    "spec",
    [
        {"priority": 1},
        {"priority": 10, "preemptionPolicy": "Never"},
        {"priority": 10, "nodeSelector": {"zone": "none"}},
        {"priority": 10, "cpu": "5"},
    ],
)
def test_nobody_goes_for_one_that_gains_nothing_or_may_not(spec: dict[str, Any]) -> None:
    cluster = filled()
    cluster.pod("pod", **{"cpu": "2", **spec})
    assert leaving(cluster) == set()
    assert nominated(cluster, "pod") == ""


def test_budgets_are_broken_only_where_nothing_else_helps() -> None:
    cluster = Cluster()
    for node, app in (("a", "kept"), ("b", "free")):
        cluster.node(node)
        cluster.pod(f"{app}-1", app, cpu="4", priority=1 if app == "kept" else 2)
        cluster.places()
    cluster.server.store("poddisruptionbudgets", {**budget("kept"), "status": {"disruptionsAllowed": 0}})
    cluster.pod("urgent", cpu="3", priority=10)
    assert leaving(cluster) == {"free-1"}, "though it is more important"
    cluster.pod("too", cpu="3", priority=10)
    assert leaving(cluster) == {"free-1", "kept-1"}


def test_of_a_node_a_pod_without_a_budget_goes_first() -> None:
    cluster = Cluster()
    cluster.node("a")
    cluster.pod("kept-1", "kept", cpu="2", priority=1)
    cluster.pod("free-1", "free", cpu="2", priority=2)
    cluster.places()
    cluster.server.store("poddisruptionbudgets", {**budget("kept"), "status": {"disruptionsAllowed": 0}})
    cluster.pod("urgent", cpu="2", priority=10)
    assert leaving(cluster) == {"free-1"}


def test_in_a_day_classes_give_priority_and_whoever_is_preempted_gets_another_node() -> None:
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    small = pool(sizes=("4",), consolidateAfter="Never")
    day = setting(
        Arrival(at=5, name="batch", template=template("batch", cpu="3"), count=3),
        Arrival(at=200, name="web", template=template("web", cpu="3", priorityClassName="high"), count=2),
        seconds=400,
        objects=(small, high),
    )
    found = simulated(day, 1)
    assert found.evictions == {"Preempted": 2}
    assert (found.pods, found.unbound, found.launches) == (3 + 2 + 2, 0, 5)
    polite = {**high, "preemptionPolicy": "Never"}
    plain = simulated(setting(*day.day.changes, seconds=400, objects=(small, polite)), 1)
    assert (plain.evictions, plain.launches) == ({}, 5)
