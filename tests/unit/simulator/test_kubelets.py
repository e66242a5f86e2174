"""The status of PodDisruptionBudgets, as kube-controller-manager writes it."""

from math import inf
from typing import Any

import pytest

from provisioner.simulator.api_server import ApiServer
from provisioner.simulator.kubelets import Budgets
from provisioner.simulator.virtual_time import Agenda, VirtualClock
from tests.unit.simulator.days import budget


@pytest.mark.parametrize(
    ("allows", "ready", "allowed"),
    [
        ({"maxUnavailable": 1}, 10, 1),
        ({"maxUnavailable": 1}, 9, 0),
        ({"maxUnavailable": "25%"}, 10, 3),
        ({"minAvailable": 7}, 9, 2),
        ({"minAvailable": "95%"}, 10, 0),
        ({"maxUnavailable": 0}, 10, 0),
    ],
)
def test_what_a_budget_allows(allows: dict[str, object], ready: int, allowed: int) -> None:
    cluster = Cluster()
    for number in range(10):
        cluster.put(f"web-{number}", phase="Running" if number < ready else "Pending")
    cluster.put("other", namespace="shop")
    cluster.server.store("poddisruptionbudgets", budget("web", **allows))
    status = cluster.status()
    assert (status["expectedPods"], status["currentHealthy"]) == (10, ready)
    assert status["disruptionsAllowed"] == allowed


class Cluster:
    """An API server with a controller of budgets, and one ReplicaSet of ten pods."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.agenda, self.server = Agenda(self.clock), ApiServer(self.clock)
        self.server.told = Budgets(self.server, self.agenda, {"own": 10}.get).heard

    def put(self, name: str, namespace: str = "default", app: str = "web", phase: str = "Running") -> None:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "own", "controller": True}
        meta = {"name": name, "namespace": namespace, "labels": {"app": app}, "ownerReferences": [owner]}
        self.server.store("pods", {"metadata": meta, "spec": {}, "status": {"phase": phase}})

    def status(self, name: str = "web") -> dict[str, Any]:
        """Of a budget, once nothing happens any more."""
        while self.agenda.turn(self.clock.seconds):
            pass
        found = self.server.get("poddisruptionbudgets", name, "default")
        assert found is not None
        status: dict[str, Any] = found["status"]
        return status


def test_a_budget_follows_its_pods_and_its_selector() -> None:
    cluster = Cluster()
    cluster.server.store("poddisruptionbudgets", budget("web", maxUnavailable=8))
    assert cluster.status()["currentHealthy"] == 0
    healthy = []
    for change in (
        lambda: cluster.put("one"),
        lambda: cluster.put("two", phase="Pending"),
        lambda: cluster.put("two"),
        lambda: cluster.put("one", app="other"),  # the budget counts it no more
        lambda: cluster.put("one"),
        lambda: cluster.server.remove("pods", "two", "default"),
        lambda: cluster.server.drop("pods", "two", "default"),
        lambda: cluster.put("three", app="other"),
        lambda: cluster.server.store(
            "poddisruptionbudgets", budget("other") | {"metadata": {"name": "web", "namespace": "default"}}
        ),
    ):
        change()
        healthy.append(cluster.status()["currentHealthy"])
    assert healthy == [1, 1, 2, 1, 2, 1, 1, 1, 1]
    cluster.server.remove("poddisruptionbudgets", "web", "default")
    cluster.put("four", app="other")


def test_a_budget_is_reviewed_only_for_pods_that_it_counts() -> None:
    cluster = Cluster()
    cluster.server.store("poddisruptionbudgets", budget("web", maxUnavailable=1))
    cluster.put("one")
    cluster.status()
    for namespace, app in (("shop", "web"), ("default", "other")):
        cluster.put("one" if namespace == "shop" else "else", namespace, app)
        assert cluster.agenda.next_time() == inf
