"""Who makes pods: what is taken away is made again, what has ended is not."""

from typing import Any

import pytest

from provisioner.apis import names
from provisioner.simulator.api_server import ApiServer
from provisioner.simulator.errors import SimulationError
from provisioner.simulator.owners import Owners
from provisioner.simulator.virtual_time import Agenda, VirtualClock
from provisioner.simulator.workload import Arrival, End, Scale
from tests.unit.simulator.days import template


class Cluster:
    """An API server and the owners."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.agenda = Agenda(self.clock)
        self.server = ApiServer(self.clock)
        self.owners = Owners(self.server, self.clock, self.agenda)
        self.server.told = self.owners.heard

    def pods(self) -> list[str]:
        """Names of those that are wanted, once nothing happens any more."""
        while self.agenda.turn(self.clock.seconds):
            pass
        return [
            one["metadata"]["name"] for one in self.server.all("pods") if "deletionTimestamp" not in one["metadata"]
        ]

    def pod(self, name: str) -> dict[str, Any]:
        found = self.server.get("pods", name, "default")
        assert found is not None
        return found

    def finish(self, name: str) -> None:
        self.owners.finished(name, "default", self.pod(name)["metadata"]["uid"])


def test_a_deployment_replaces_what_is_taken_away_and_scales() -> None:
    cluster = Cluster()
    cluster.owners.arrive(Arrival(at=0, name="web", template=template("web"), count=3))
    assert cluster.pods() == ["web-0", "web-1", "web-2"]
    cluster.server.remove("pods", "web-1", "default")
    assert cluster.pods() == ["web-0", "web-2", "web-3"]
    cluster.owners.scale(Scale(at=1, name="web", count=1))
    assert len(cluster.pods()) == 1
    cluster.owners.end(End(at=2, name="web"))
    assert cluster.pods() == []
    assert not cluster.server.all("deployments")


@pytest.mark.parametrize("count", range(9))
def test_a_deployment_shrinks_as_a_replica_set_does(count: int) -> None:
    """Without a node, not running, of least deletion cost, with most of its kind on the node, youngest."""
    cluster = Cluster()
    cluster.owners.arrive(Arrival(at=0, name="web", template=template("web"), count=9))
    began = cluster.clock.stamp()
    cluster.clock.forward(600)
    late = cluster.clock.stamp()
    for number, node in enumerate(("a", "a", "a", "b", "b", "c", "d", "e", "")):
        status = {"phase": "Pending" if node == "e" else "Running", "startTime": late if number == 4 else began}
        costs = {5: "-1", 0: "5"}
        annotations = {names.POD_DELETION_COST: costs[number]} if number in costs else {}
        placed = {"spec": {"nodeName": node}, "status": status} if node else {}
        body = {"metadata": {"annotations": annotations}, **placed}
        cluster.server.change("pods", f"web-{number}", body, "default")
    cluster.clock.forward(30)
    cluster.owners.scale(Scale(at=1, name="web", count=count))
    equal = ["web-1", "web-2"]
    order = ["web-0", "web-6", "web-3", "web-4", *equal, "web-5", "web-7", "web-8"]
    if count == 5:
        (left,) = set(cluster.pods()) - set(order[:4])
        assert left in equal
    else:
        assert cluster.pods() == sorted(order[:count])


@pytest.mark.parametrize(("ages", "alike"), [((63, 65), True), ((68, 69), False)])
def test_ages_of_pods_count_by_powers_of_two_of_nanoseconds(ages: tuple[int, int], alike: bool) -> None:
    """2**36 ns are 68.7 s: which of two pods goes does not depend on their ages, or the younger does."""
    gone = set()
    for each in (ages, ages[::-1]):
        cluster = Cluster()
        cluster.owners.arrive(Arrival(at=0, name="web", template=template("web"), count=2))
        for number in sorted(range(2), key=lambda one: -each[one]):
            cluster.clock.forward(max(ages) - each[number] - cluster.clock.seconds)
            status = {"phase": "Running", "startTime": cluster.clock.stamp()}
            placed = {"spec": {"nodeName": f"n{number}"}, "status": status}
            cluster.server.change("pods", f"web-{number}", placed, "default")
        cluster.clock.forward(max(ages) - cluster.clock.seconds)
        cluster.owners.scale(Scale(at=1, name="web", count=1))
        gone |= {"web-0", "web-1"} - set(cluster.pods())
    assert len(gone) == (1 if alike else 2)


def test_a_deployment_that_grows_looks_at_none_of_its_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, looked_at = Cluster(), list[str]()
    cluster.owners.arrive(Arrival(at=0, name="web", template=template("web"), count=3))
    assert len(cluster.pods()) == 3
    get = cluster.server.get

    def noted(plural: str, name: str, namespace: str = "") -> dict[str, Any] | None:
        looked_at.append(plural)
        return get(plural, name, namespace)

    monkeypatch.setattr(cluster.server, "get", noted)
    cluster.owners.scale(Scale(at=1, name="web", count=4))
    assert "pods" not in looked_at
    cluster.owners.scale(Scale(at=2, name="web", count=3))
    assert "pods" in looked_at


def test_a_deployment_is_counted_and_its_replica_set_names_it() -> None:
    """Else a batch would wait for pods of the same namespace that never come; see `provisioning.expected_pods`."""
    cluster = Cluster()
    cluster.owners.arrive(Arrival(at=0, name="web", template=template("web"), count=3))
    for count in (3, 5):
        cluster.owners.scale(Scale(at=1, name="web", count=count))
        above, below = (cluster.server.get(plural, "web", "default") for plural in ("deployments", "replicasets"))
        assert above is not None
        assert below is not None
        assert above["status"] == {"replicas": count, "observedGeneration": above["metadata"]["generation"]}
        (owner,) = below["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("Deployment", above["metadata"]["uid"], True)
        assert cluster.pod("web-0")["metadata"]["ownerReferences"][0]["uid"] == below["metadata"]["uid"]


def test_of_a_job_only_what_was_taken_away_is_made_again_with_its_own_lifetime() -> None:
    cluster = Cluster()
    job = Arrival(at=0, name="job", kind="Job", template=template("job"), count=2, lifetimes=(10.0, 20.0))
    cluster.owners.arrive(job)
    cluster.finish("job-0")
    cluster.server.remove("pods", "job-1", "default")
    assert cluster.pods() == ["job-2"]
    assert cluster.owners.lifetime(cluster.pod("job-2")) == 20.0
    cluster.finish("job-2")
    assert cluster.pods() == []
    assert not cluster.server.all("jobs")


def test_a_bare_pod_is_gone_for_good() -> None:
    cluster = Cluster()
    cluster.owners.arrive(Arrival(at=0, name="one", kind="Pod", template=template("one")))
    (name,) = cluster.pods()
    assert "ownerReferences" not in cluster.pod(name)["metadata"]
    cluster.server.remove("pods", name, "default")
    assert cluster.pods() == []


def test_two_of_a_name_are_refused() -> None:
    cluster = Cluster()
    one = Arrival(at=7, name="web", template=template("web"))
    cluster.owners.arrive(one)
    with pytest.raises(SimulationError, match="default/web arrives at 7 s, but is there already"):
        cluster.owners.arrive(one)


def test_daemons_run_on_the_nodes_that_they_want_and_go_with_them() -> None:
    cluster = Cluster()
    meta = {"name": "log", "namespace": "default"}
    wanted = template("log", nodeSelector={"disk": "fast"})
    cluster.server.store("daemonsets", {"metadata": meta, "spec": {"selector": {}, "template": wanted}})
    for name, disk in (("a", "fast"), ("b", "slow")):
        cluster.server.store("nodes", {"metadata": {"name": name, "labels": {"disk": disk}}, "spec": {}, "status": {}})
    assert cluster.pods() == ["log-a"]
    assert cluster.pod("log-a")["spec"]["nodeName"] == "a"
    cluster.server.remove("nodes", "a")
    assert cluster.pods() == []
