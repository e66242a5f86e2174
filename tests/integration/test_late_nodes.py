"""Nodes on which a device plugin or a CSI driver registers long after they are ready: on a real control plane, with settings as they come."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import EBS_DRIVER, Node
from provisioner.apis.meta import is_true
from provisioner.cloudprovider.kwok.provider import NodeClient
from provisioner.kube.client import Client
from provisioner.kube.errors import NotFound
from provisioner.kube.resources import (
    CSIDRIVERS,
    CSINODES,
    NODES,
    PODS,
    PVCS,
    PVS,
    Resource,
)
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.support.metrics import REGISTRY
from tests.support.eventually import eventually
from tests.support.provisioner import SECONDS, InProcess, Plot

pytestmark = [pytest.mark.plane, pytest.mark.timeout(300)]

GPU = "nvidia.com/gpu"
ZONE = "test-zone-a"
LATE_SECONDS = 10.0
"""More than Dovetail waits for a node to be complete before it lets pods in."""
MUST = "must-be-there.example.com"


class WithoutDevices:
    """Makes Nodes as a kubelet does: no device plugin has registered yet."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.get, self.patch, self.delete = client.get, client.patch, client.delete

    def create(self, resource: Resource[Node], body: object, /, *, retry: bool = False) -> Node:
        assert isinstance(body, Node)
        status = msgspec.structs.replace(body.status, capacity=_bare(body), allocatable=_bare(body))
        return self._client.create(resource, msgspec.structs.replace(body, status=status), retry=retry)


def _bare(node: Node) -> dict[str, Any]:
    return {name: amount for name, amount in node.status.allocatable.items() if name != GPU}


def joining(client: Client) -> NodeClient:
    return WithoutDevices(client)


@pytest.fixture(scope="module")
def provisioner(plane: DevCluster, client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    place = {names.ZONE_LABEL: ZONE, names.CAPACITY_TYPE_LABEL: names.CAPACITY_ON_DEMAND}
    requirements = [{"key": key, "operator": "In", "values": [value]} for key, value in place.items()]
    sold = {
        "name": "g-4x-amd64-linux",
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "4", "memory": "16Gi", "pods": "110", "ephemeral-storage": "20Gi", GPU: "1"},
        "offerings": [{"Price": 1.0, "Available": True, "Requirements": requirements}],
    }
    types = tmp_path_factory.mktemp("types") / "types.json"
    types.write_text(json.dumps([sold]))
    # by its name alone kwok counts as a cloud on whose nodes no CSI driver ever runs
    with InProcess(str(plane.kubeconfig), joining=joining, instance_types_file_path=str(types), provider="late") as one:
        yield one


@pytest.fixture
def plot(client: Client, provisioner: InProcess) -> Iterator[Plot]:
    one = Plot(client)
    yield one
    one.clear()


def device_plugin(plot: Plot, node: str) -> None:
    plot.client.patch(
        NODES, node, {"status": {"capacity": {GPU: "1"}, "allocatable": {GPU: "1"}}}, subresource="status"
    )


def csi_driver(name: str) -> Callable[[Plot, str], None]:
    def registers(plot: Plot, node: str) -> None:
        """As the kubelet does when the driver comes up: the labels of its topology first, then its CSINode."""
        plot.client.patch(NODES, node, {"metadata": {"labels": {names.EBS_ZONE_LABEL: ZONE}}})
        drivers = [{"name": name, "nodeID": node, "allocatable": {"count": 20}}]
        plot.client.create(CSINODES, _of(CSINODES, {"metadata": {"name": node}, "spec": {"drivers": drivers}}))

    return registers


def _of(resource: Resource[Any], body: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}


def with_disk(plot: Plot, driver: str, label: str) -> list[tuple[Resource[Any], str]]:
    """A volume of the driver that nodes with a label of this name reach, and its claim `data`; what is to be removed in the end."""
    body = {"metadata": {"name": driver}, "spec": {"preventPodSchedulingIfMissing": driver == MUST}}
    plot.client.create(CSIDRIVERS, _of(CSIDRIVERS, body))
    expressions = [{"key": label, "operator": "In", "values": [ZONE]}]
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "storageClassName": plot.name,
        "csi": {"driver": driver, "volumeHandle": plot.name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}},
    }
    plot.client.create(PVS, _of(PVS, {"metadata": {"name": plot.name}, "spec": spec}))
    asked = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": plot.name,
        "volumeName": plot.name,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    plot.client.create(PVCS, _of(PVCS, {"metadata": {"name": "data"}, "spec": asked}), plot.name)
    eventually(lambda: plot.client.get(PVCS, "data", plot.name).status.phase == "Bound", "the claim is bound", SECONDS)
    return [(PVS, plot.name), (CSIDRIVERS, driver)]


DISK: dict[str, Any] = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
KINDS: dict[str, tuple[str, str, Callable[[Plot, str], None]]] = {
    "a device plugin": ("", "", device_plugin),
    "a CSI driver that must be there": (MUST, names.ZONE_LABEL, csi_driver(MUST)),
    "a CSI driver for whose topology a volume asks": (EBS_DRIVER, names.EBS_ZONE_LABEL, csi_driver(EBS_DRIVER)),
}


def is_awaited(plot: Plot, driver: str) -> bool:
    """Whether kube-scheduler refuses the pod until then. API servers before Kubernetes 1.37 do not keep what the CSIDriver says."""
    return driver != MUST or bool(plot.client.get(CSIDRIVERS, MUST).spec.prevent_pod_scheduling_if_missing)


def misses() -> float:
    found = [
        sample.value
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.name == "dovetail_plan_misses_total"
    ]
    return sum(found)


@pytest.mark.parametrize(("driver", "label", "registers"), KINDS.values(), ids=KINDS)
def test_one_node_is_made_where_what_its_pod_needs_registers_ten_seconds_late(
    plot: Plot, driver: str, label: str, registers: Callable[[Plot, str], None]
) -> None:
    plot.pool(delay="1s", disruption={"consolidateAfter": "Never"})
    made = with_disk(plot, driver, label) if driver else []
    before = misses()
    try:
        limits: dict[str, Any] = {} if driver else {"limits": {GPU: "1"}}
        container = {"name": "main", "image": "none.invalid/none", "resources": {"requests": {"cpu": "1"}, **limits}}
        volumes = DISK if driver else {}
        plot.deploy("late", 1, containers=[container], **volumes)

        def let_in() -> str:
            found = [one for one in plot.nodes() if names.REGISTERED_LABEL in one.metadata.labels]
            ready = [one.metadata.name for one in found if is_true(one.status.conditions, names.READY)]
            return ready[0] if ready else ""

        node = eventually(let_in, "a node is let in", SECONDS, 0.1)
        time.sleep(LATE_SECONDS)  # the fault is what happens meanwhile
        if is_awaited(plot, driver):
            assert plot.running() == 0
        else:
            plot.await_running(1)
        made.append((CSINODES, node))
        registers(plot, node)
        plot.await_running(1)
        assert [one.node_name for one in plot.client.list(PODS, plot.name)] == [node]
        assert len(plot.claims()) == 1
        assert misses() == before
        eventually(lambda: len(plot.initialized()) == 1, "the node is initialized", SECONDS)
    finally:
        for resource, name in made:
            with contextlib.suppress(NotFound):
                plot.client.delete(resource, name)
