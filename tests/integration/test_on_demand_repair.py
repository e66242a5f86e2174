"""Shares on demand that became wrong, with the real ReplicaSet controller, kube-scheduler, webhook and provisioner: repaired where pods ask for it."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from provisioner.apis import names
from provisioner.kube.client import Client
from provisioner.kube.resources import EVENTS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.shares.repair import MOST_ATTEMPTS
from tests.support.eventually import eventually
from tests.support.hook import Hook
from tests.support.provisioner import InProcess, Plot

pytestmark = pytest.mark.plane

PODS: Final = 10
SECONDS: Final = 240.0
"""Until pods count as settled, a launch, and the back-off of what was refused."""
HASTE: Final = {
    "controller.SETTLE_SECONDS": 10.0,
    "repair.SETTLE_SECONDS": 10.0,
    "controller.LOOK_SECONDS": 2.0,
    "controller.AGAIN_SECONDS": 5.0,
}
"""Instead of a minute, ten seconds and half a minute."""
SHARE: Final = {"dovetail.dev/on-demand": "30%"}
ASKS: Final = {**SHARE, "dovetail.dev/on-demand-repair": "evict"}


@pytest.fixture
def plot(plane: DevCluster, client: Client) -> Iterator[Plot]:
    """A provisioner that leads, and a NodePool of both capacity types."""
    with InProcess(str(plane.kubeconfig)):
        plot = Plot(client)
        both = {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["spot", "on-demand"]}
        plot.pool(cpu=8, requirements=[both])
        yield plot
        plot.clear()


@pytest.fixture
def hook(plane: DevCluster, client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hook]:
    """A webhook that counts pods; not started."""
    del client  # it has made the definitions
    hook = Hook(plane, tmp_path_factory.mktemp("certs"), "--on-demand-shares")
    try:
        yield hook
    finally:
        hook.close()


@pytest.fixture
def hasten(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From now on pods are taken for settled soon."""

    def hasten() -> None:
        for name, seconds in HASTE.items():
            monkeypatch.setattr(f"provisioner.shares.{name}", seconds)

    return hasten


def wire(plot: Plot, app: str) -> list[dict[str, Any]]:
    answer = plot.client.raw("GET", f"/api/v1/namespaces/{plot.name}/pods", query={"labelSelector": f"app={app}"})
    return [one for one in json.loads(answer)["items"] if "deletionTimestamp" not in one["metadata"]]


def uids(plot: Plot, app: str) -> set[str]:
    return {one["metadata"]["uid"] for one in wire(plot, app)}


def on_demand(plot: Plot, app: str) -> int:
    """Pods that run on nodes on demand."""
    capacity = {one.metadata.name: one.metadata.labels[names.CAPACITY_TYPE_LABEL] for one in plot.nodes()}
    running = [one for one in wire(plot, app) if one["status"]["phase"] == "Running"]
    return sum(capacity[one["spec"]["nodeName"]] != "spot" for one in running)


def told(plot: Plot, reason: str, kind: str) -> list[str]:
    """Events of objects in the namespace of the plot."""
    selector = f"reason={reason},involvedObject.kind={kind}"
    return [one.message for one in plot.client.list(EVENTS, plot.name, field_selector=selector)]


def test_pods_that_came_without_the_webhook_are_repaired_where_they_ask_and_budgets_allow_it(
    plot: Plot, hook: Hook, hasten: Callable[[], None]
) -> None:
    plot.deploy("asks", PODS, cpu="500m", annotations=ASKS)
    plot.deploy("silent", PODS, cpu="500m", annotations=SHARE)
    plot.deploy("guarded", PODS, cpu="500m", annotations=ASKS)
    plot.protect("guarded")
    plot.await_running(3 * PODS)
    before = {app: uids(plot, app) for app in ("asks", "silent", "guarded")}
    assert [on_demand(plot, app) for app in before] == [0, 0, 0]
    hook.start()
    hook.ask_patiently()
    hasten()  # and not before: an eviction that the webhook does not see is wasted
    eventually(lambda: on_demand(plot, "asks") == 1, "one pod of asks runs on demand", SECONDS, 0.5)
    assert len(uids(plot, "asks") & before["asks"]) == PODS - 1
    labels = [one["metadata"]["labels"].get("dovetail.dev/on-demand-share") for one in wire(plot, "asks")]
    assert sorted(map(str, labels)) == ["on-demand"] + ["spot"] * (PODS - 1)
    eventually(
        lambda: any("0 pods of ReplicaSet" in one and "requests 3" in one for one in told(plot, "Evicted", "Pod")),
        lambda: told(plot, "Evicted", "Pod"),
        SECONDS,
    )
    refused = eventually(
        lambda: told(plot, "OnDemandShareNotRepaired", "ReplicaSet"), "a ReplicaSet is told of its budget", SECONDS, 0.5
    )
    assert all("no PodDisruptionBudget of the pods allows an eviction" in one for one in refused)
    assert uids(plot, "guarded") == before["guarded"]
    plot.unprotect("guarded")
    eventually(lambda: on_demand(plot, "guarded") == 1, "one pod of guarded runs on demand", SECONDS, 0.5)
    assert len(uids(plot, "guarded") & before["guarded"]) == PODS - 1
    assert uids(plot, "silent") == before["silent"]
    assert len(uids(plot, "asks") & before["asks"]) == PODS - 1  # within two pods that is all


def test_a_webhook_that_is_gone_ends_it(plot: Plot, hasten: Callable[[], None]) -> None:
    hasten()
    plot.deploy("asks", PODS, cpu="500m", annotations=ASKS)
    plot.await_running(PODS)
    before = uids(plot, "asks")
    (said,) = eventually(
        lambda: told(plot, "OnDemandShareNotRepaired", "ReplicaSet"), "the ReplicaSet is told", 2 * SECONDS, 0.5
    )
    assert "Check that the webhook runs with --on-demand-shares" in said

    def attempts() -> list[str]:
        return [one for one in told(plot, "Evicted", "Pod") if "run on demand" in one]

    eventually(lambda: len(attempts()) >= MOST_ATTEMPTS, attempts, SECONDS)
    assert len(attempts()) == MOST_ATTEMPTS
    assert (
        len(before - uids(plot, "asks")) == 1
    )  # the second is the successor of the first: it came without the webhook, and last
