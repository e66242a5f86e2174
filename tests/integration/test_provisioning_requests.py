"""ProvisioningRequests on a real control plane, asked for as Kueue does: its calls are played back, and its rules for what it makes of conditions.

Source: kueue `pkg/controller/admissionchecks/provisioning/controller.go` at 006767fe: the request comes first, then its PodTemplates; Failed, and BookingExpired
before admission, ask for another one with a higher attempt; Provisioned=True admits, and pods get the annotations.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.crds import OFFERED
from provisioner.apis.meta import condition, is_true
from provisioner.apis.provisioning_request import (
    ATOMIC,
    BEST_EFFORT_ATOMIC,
    CHECK_CAPACITY,
    CLASSES,
    ProvisioningRequest,
)
from provisioner.kube.client import Client
from provisioner.kube.discovery import serves
from provisioner.kube.resources import OLD_PROVISIONINGREQUESTS, PODS, PODTEMPLATES, PROVISIONINGREQUESTS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.harness import applying
from tests.support.eventually import eventually
from tests.support.provisioner import SECONDS, TEAM, InProcess, Plot

pytestmark = pytest.mark.plane
MOST_ATTEMPTS = 3


@pytest.fixture(scope="module")
def provisioner(plane: DevCluster, client: Client) -> Iterator[InProcess]:
    applying.apply(client, [OFFERED.document()])
    for version in (PROVISIONINGREQUESTS, OLD_PROVISIONINGREQUESTS):
        eventually(lambda one=version: serves(client, one), "ProvisioningRequests are served", SECONDS)  # type: ignore[misc]
    with InProcess(str(plane.kubeconfig), provisioning_classes=CLASSES) as one:
        yield one


@pytest.fixture
def plot(client: Client, provisioner: InProcess) -> Iterator[Plot]:
    one = Plot(client)
    yield one
    for request in client.list(PROVISIONINGREQUESTS, one.name):
        client.delete(PROVISIONINGREQUESTS, request.metadata.name, one.name)
    one.clear()


class Workload:
    """One workload of Kueue, of equal pods; an attempt is one request."""

    def __init__(self, plot: Plot, klass: str, count: int, cpu: str = "3", **parameters: str) -> None:
        self.plot, self.klass, self.count, self.parameters = plot, klass, count, parameters
        resources = {"requests": {"cpu": cpu, "memory": "64Mi"}}
        self.spec = {
            "containers": [{"name": "c", "image": "x", "resources": resources}],
            "nodeSelector": {TEAM: plot.pool_names[0]},
            "tolerations": [{"key": TEAM, "operator": "Exists"}],
        }
        self.attempt = 0

    @property
    def name(self) -> str:
        return f"job-room-{self.attempt}"

    @property
    def request(self) -> ProvisioningRequest:
        return self.plot.client.get(PROVISIONINGREQUESTS, self.name, self.plot.name)

    def ask(self) -> None:
        """The next attempt: the request, then what it is for."""
        self.attempt += 1
        template = f"ppt-{self.name}-main"
        body = {
            "apiVersion": OLD_PROVISIONINGREQUESTS.api_version,  # Kueue writes the old version
            "kind": "ProvisioningRequest",
            "metadata": {"name": self.name},
            "spec": {
                "provisioningClassName": self.klass,
                "parameters": self.parameters,
                "podSets": [{"podTemplateRef": {"name": template}, "count": self.count}],
            },
        }
        made = self.plot.client.create(OLD_PROVISIONINGREQUESTS, body, self.plot.name)
        owner = {"apiVersion": made.api_version, "kind": made.kind, "name": self.name, "uid": made.metadata.uid}
        meta = {"name": template, "ownerReferences": [{**owner, "controller": True}]}
        self.plot.client.create(
            PODTEMPLATES,
            {"apiVersion": "v1", "kind": "PodTemplate", "metadata": meta, "template": {"spec": self.spec}},
            self.plot.name,
        )

    def says(self, kind: str) -> str:
        found = condition(self.request.status.conditions, kind)
        return f"{found.status} {found.reason}" if found is not None else ""

    def await_said(self, kind: str, text: str) -> None:
        eventually(lambda: self.says(kind) == text, f"{kind} is {text}", SECONDS, 0.2)

    def is_over(self) -> bool:
        """Whether another attempt is due, of a workload that is not admitted."""
        return any(is_true(self.request.status.conditions, one) for one in (names.FAILED, names.BOOKING_EXPIRED))

    def admit(self) -> None:
        """Its pods are made, with the annotations that say whose room they take."""
        notes = {names.CONSUMES[0]: self.name, "autoscaling.x-k8s.io/provisioning-class-name": self.klass}
        for number in range(self.count):
            meta = {"name": f"{self.name}-{number}", "annotations": notes}
            body: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": self.spec}
            self.plot.client.create(PODS, body, self.plot.name)


@pytest.mark.parametrize(("klass", "booked"), [(BEST_EFFORT_ATOMIC, "launched"), (ATOMIC, "ready")])
def test_nodes_are_launched_for_a_workload_once_and_its_pods_run_on_them(plot: Plot, klass: str, booked: str) -> None:
    plot.pool(delay="1s")
    job = Workload(plot, klass, 3)
    job.ask()
    job.await_said(names.PROVISIONED, "True CapacityIsProvisioned")
    made = {one.name for one in plot.claims()}
    assert len(made) == 3
    assert booked == "launched" or len(plot.initialized()) == 3
    assert not plot.pods()
    job.admit()
    plot.await_running(3)
    assert {one.name for one in plot.claims()} == made, "a second node was bought for a pod"
    assert {pod.node_name for pod in plot.pods()} == {one.metadata.name for one in plot.nodes()}
    job.await_said(names.BOOKING_EXPIRED, "True CapacityBookingConsumed")
    assert {one.name for one in plot.claims()} == made


def test_room_on_a_node_that_runs_is_found_and_used_and_nothing_is_launched(plot: Plot) -> None:
    plot.pool()
    plot.deploy("web", 1, cpu="1")
    plot.await_running(1)
    job = Workload(plot, CHECK_CAPACITY, 2, cpu="1")
    job.ask()
    job.await_said(names.PROVISIONED, "True CapacityIsFound")
    job.admit()
    plot.await_running(3)
    assert len(plot.claims()) == 1
    job.await_said(names.BOOKING_EXPIRED, "True CapacityBookingConsumed")


def test_a_shortage_is_three_attempts_and_one_may_succeed(plot: Plot) -> None:
    plot.pool()
    job = Workload(plot, CHECK_CAPACITY, 1, noRetry="true")
    for _ in range(2):
        job.ask()
        eventually(job.is_over, "there is no room", SECONDS, 0.2)
        assert job.says(names.FAILED) == "True CapacityIsNotFound"
    assert plot.claims() == []
    plot.deploy("web", 1, cpu="100m")
    plot.await_running(1)
    job.ask()
    assert job.attempt == MOST_ATTEMPTS
    job.await_said(names.PROVISIONED, "True CapacityIsFound")
    job.admit()
    plot.await_running(2)
    assert len(plot.claims()) == 1


def test_a_booking_that_has_expired_is_over_for_nodes_and_pods(plot: Plot) -> None:
    plot.pool()
    job = Workload(plot, BEST_EFFORT_ATOMIC, 2)
    job.ask()
    job.await_said(names.PROVISIONED, "True CapacityIsProvisioned")
    eventually(lambda: len(plot.initialized()) == 2, "two nodes are ready, empty, and stay", SECONDS, 0.2)
    long_ago = datetime.now(UTC) - timedelta(minutes=10)

    def aged() -> bool:
        """The time at which it was provisioned is ten minutes ago: nobody can wait for that."""
        status = msgspec.to_builtins(job.request.status.conditions)
        for one in status:
            if one["type"] == names.PROVISIONED:
                one["lastTransitionTime"] = long_ago.strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {"status": {"conditions": status}}
        plot.client.patch(PROVISIONINGREQUESTS, job.name, body, plot.name, subresource="status")
        return True

    eventually(aged, "the clock is turned", SECONDS)
    job.await_said(names.BOOKING_EXPIRED, "True CapacityReservationTimeExpired")
    plot.await_empty()
    assert job.is_over()
    job.ask()
    job.await_said(names.PROVISIONED, "True CapacityIsProvisioned")
    job.admit()
    plot.await_running(2)
    assert len(plot.claims()) == 2
