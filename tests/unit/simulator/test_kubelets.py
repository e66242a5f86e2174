"""The status of PodDisruptionBudgets, as kube-controller-manager writes it."""

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
    clock = VirtualClock()
    server = ApiServer(clock)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "own", "controller": True}
    for number in range(10):
        meta = {"name": f"web-{number}", "namespace": "default", "labels": {"app": "web"}, "ownerReferences": [owner]}
        server.store(
            "pods", {"metadata": meta, "spec": {}, "status": {"phase": "Running" if number < ready else "Pending"}}
        )
    other = {"name": "other", "namespace": "shop", "labels": {"app": "web"}, "ownerReferences": [owner]}
    server.store("pods", {"metadata": other, "spec": {}, "status": {"phase": "Running"}})
    wire = server.store("poddisruptionbudgets", budget("web", **allows))
    status = Budgets(server, Agenda(clock), {"own": 10}.get).status(wire)
    assert (status["expectedPods"], status["currentHealthy"]) == (10, ready)
    assert status["disruptionsAllowed"] == allowed
