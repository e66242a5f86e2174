"""The extender in a simulated day: kube-scheduler asks it, and its own code answers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest

from extender import metrics
from provisioner.simulator.api_server import Wire
from provisioner.simulator.simulation import simulated
from provisioner.simulator.workload import Arrival, Scale
from tests.unit.simulator.days import pool, setting, template
from tests.unit.simulator.test_kube_scheduler import Cluster
from tests.unit.simulator.test_preemption import filled, leaving, nominated


class Says:
    """An extender that lets pods have some nodes only."""

    def __init__(self, *passing: str, scores: Mapping[str, int] | None = None) -> None:
        self.passing, self._scores = passing, scores or {}
        self.asked: list[Sequence[str]] = []

    def filtered(self, pod: Wire, nodes: Sequence[str]) -> list[str]:
        assert pod["metadata"]["name"]
        self.asked.append(nodes)
        return [one for one in nodes if one in self.passing]

    def scores(self, pod: Wire, nodes: Sequence[str]) -> Mapping[str, int]:
        return self._scores

    def preemptible(self, pod: Wire, victims: Mapping[str, tuple[Iterable[str], int]]) -> Collection[str]:
        return set(victims) & set(self.passing)


def test_a_pod_gets_only_nodes_that_the_extender_lets_pass_and_is_tried_again_when_it_touches_one() -> None:
    cluster, says = Cluster(), Says("small")
    cluster.scheduler.extender = says
    cluster.node("large", cpu="64")
    cluster.node("small")
    cluster.node("tiny", cpu="500m")
    cluster.pod("one")
    cluster.pod("big", cpu="8")
    assert cluster.places() == {"one": "small", "big": ""}
    assert ["large", "small"] in [sorted(one) for one in says.asked], "of those that its own filters let pass"
    says.passing = ("large",)
    assert cluster.places()["big"] == ""
    cluster.server.change("nodes", "tiny", {"metadata": {"annotations": {"touched": "now"}}})
    assert cluster.places()["big"] == "large"


def test_a_class_is_not_given_up_because_the_extender_refuses_one_of_its_pods() -> None:
    class Second(Says):
        def filtered(self, pod: Wire, nodes: Sequence[str]) -> list[str]:
            return list(nodes) if pod["metadata"]["name"] == "second" else []

    cluster = Cluster()
    cluster.scheduler.extender = Second()
    cluster.node("a")
    cluster.pod("first")
    cluster.pod("second")
    assert cluster.places() == {"first": "", "second": "a"}


def test_its_scores_are_added_and_a_nominated_node_must_pass_too() -> None:
    cluster = Cluster()
    cluster.scheduler.extender = Says("large", "small", scores={"small": 500})
    cluster.node("large", cpu="64")
    cluster.node("small")
    cluster.node("other")
    cluster.pod("one")
    cluster.pod("planned", status={"nominatedNodeName": "other"})
    assert cluster.places() == {"one": "small", "planned": "small"}


def test_it_may_refuse_preemption() -> None:
    cluster = filled()
    cluster.scheduler.extender = Says()
    cluster.pod("urgent", cpu="2", priority=10)
    assert (leaving(cluster), nominated(cluster, "urgent")) == (set(), "")
    cluster = filled()
    cluster.scheduler.extender = Says("a")
    cluster.pod("urgent", cpu="2", priority=10)
    assert (leaving(cluster), nominated(cluster, "urgent")) == ({"five"}, "a"), "though the other would be cheaper"


def answers() -> dict[tuple[str, str], float]:
    """How often the extender has answered what, and how often it gave up."""
    found = {
        (one.labels["verb"], one.labels["answer"]): one.value
        for one in next(iter(metrics.REQUESTS.collect())).samples
        if one.name.endswith("_total")
    }
    passed = {
        ("passed", one.labels["reason"]): one.value
        for one in next(iter(metrics.PASSED.collect())).samples
        if one.name.endswith("_total")
    }
    return {**found, **passed}


@pytest.mark.parametrize("nominate", ["true", "auto"])
def test_in_a_day_planned_pods_are_steered_to_their_nodes(nominate: str) -> None:
    day = setting(
        Arrival(at=5, name="web", template=template("web"), count=6),
        Arrival(at=20, name="small", template=template("small", cpu="300m"), count=8),
        Scale(at=130, name="web", count=9),
        seconds=260,
        objects=(pool(consolidateAfter="Never"),),
        extender=True,
    )
    day = replace(day, options=replace(day.options, nominate=nominate))
    before = answers()
    found = simulated(day, 1)
    after = answers()
    told: dict[Any, float] = {key: count - before.get(key, 0) for key, count in after.items()}
    assert (found.pods, found.unbound) == (17, 0)
    assert told[("filter", "steered")] > 0
    assert not any(count for (verb, _), count in told.items() if verb == "passed"), "it is neither late nor broken"
    assert asdict(simulated(day, 1)) == asdict(found), "the same seed, the same day"
