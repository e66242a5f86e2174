"""`dovetail record` on a real control plane, with a role that only reads, beside nodes that Karpenter and Cluster Autoscaler would have made."""

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from provisioner.apis import names
from provisioner.cli.ui.upstream import page_of_record
from provisioner.history.entries import (
    AnyHistoryEntry,
    ClassSeen,
    CommandSeen,
    EventTold,
    KindSeen,
    NodeSeen,
    PodsArrived,
    PodsBound,
    PodsEnded,
)
from provisioner.history.pod_classes import shape_of_class
from provisioner.history.stores import read_directory
from provisioner.kube.client import Client
from provisioner.kube.resources import EVENTS, NODES, PODS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.ui.page import Page
from tests.support.eventually import eventually
from tests.support.histories import entries_of
from tests.support.kubeconfigs import service_account_kubeconfig
from tests.support.provisioner import SECONDS, Plot, prepare, runs

pytestmark = pytest.mark.plane

ROLE = Path(__file__).parents[2] / "manifests/examples/record-role.yaml"
SYSTEM, ACCOUNT, PROGRAM = "dovetail-system", "dovetail-record", "record"
KARPENTERS = {
    names.NODEPOOL_LABEL: "general",
    names.CAPACITY_TYPE_LABEL: "on-demand",
    names.INSTANCE_TYPE_LABEL: "m5.large",
    names.ZONE_LABEL: "us-east-1a",
    names.REGION_LABEL: "us-east-1",
}
GROUPS = {
    "eks.amazonaws.com/nodegroup": "blue",
    "eks.amazonaws.com/capacityType": "SPOT",
    names.INSTANCE_TYPE_LABEL: "c5.large",
    names.ZONE_LABEL: "us-east-1b",
}


def node(client: Client, name: str, labels: dict[str, str]) -> None:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    client.create(
        NODES,
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {**labels, names.HOSTNAME_LABEL: name, names.KWOK_NODE: names.KWOK_NODE_FAKE},
                "annotations": {names.KWOK_NODE: names.KWOK_NODE_FAKE},
            },
            "spec": {"taints": [{"key": "record-test", "effect": "NoSchedule"}]},
            "status": {"capacity": amounts, "allocatable": amounts},
        },
    )


def pod(client: Client, namespace: str, name: str, on: str) -> None:
    containers = [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "250m"}}}]
    spec = {"nodeName": on, "containers": containers, "tolerations": [{"operator": "Exists"}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "recorded"}}, "spec": spec}
    client.create(PODS, body, namespace)


def event(client: Client, about: str) -> None:
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about}.1", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": about},
        "type": "Normal",
        "reason": "ScaleDown",
        "message": "node removed by cluster autoscaler",
        "source": {"component": "cluster-autoscaler"},
    }
    client.create(EVENTS, body, "default")


@pytest.fixture
def kubeconfig(plane: DevCluster, client: Client) -> Path:
    prepare(client)
    plane.kubectl("apply", "-f", "-", stdin=ROLE.read_text(encoding="utf-8"))
    return service_account_kubeconfig(plane, SYSTEM, ACCOUNT)


@pytest.fixture
def nodes(client: Client) -> Iterator[tuple[str, str]]:
    some = uuid.uuid4().hex[:6]
    made = f"karpenters-{some}", f"groups-{some}"
    node(client, made[0], KARPENTERS)
    node(client, made[1], GROUPS)
    yield made
    for one in made:
        client.delete(NODES, one)


def started(plane: DevCluster, kubeconfig: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "provisioner.cli.main", "record", "--kubeconfig", str(kubeconfig), *arguments]
    plane.start_program(PROGRAM, command)


def ready(plane: DevCluster) -> bool:
    return "Recording the cluster" in plane.log(PROGRAM).read_text(encoding="utf-8")


def told(directory: Path) -> list[AnyHistoryEntry]:
    assert read_directory(directory).problems == ()
    files = sorted(directory.glob("*.history"))
    return [one for _, one in entries_of([file.read_bytes() for file in files])]


def test_a_cluster_of_another_autoscaler_is_recorded_and_nothing_is_written(
    plane: DevCluster, client: Client, kubeconfig: Path, nodes: tuple[str, str], tmp_path: Path
) -> None:
    plot = Plot(client)
    started(plane, kubeconfig, str(tmp_path / "plain"))
    try:
        eventually(lambda: ready(plane), "it records", SECONDS)
        pod(client, plot.name, "first", nodes[0])
        pod(client, plot.name, "second", nodes[1])
        event(client, nodes[1])
        eventually(lambda: all(one.phase == "Running" for one in plot.pods("recorded")), "its pods run", SECONDS)
        client.delete(PODS, "second", plot.name, grace_seconds=0)
        eventually(lambda: len(plot.pods("recorded")) == 1, "one is gone", SECONDS)
    finally:
        plane.stop(PROGRAM)
        plot.clear()
    assert not runs(plane, PROGRAM)
    found = told(tmp_path / "plain")
    seen = {one.name: one for one in found if isinstance(one, NodeSeen)}
    kinds = {one.number: one.kind for one in found if isinstance(one, KindSeen)}
    first, second = (seen[name] for name in nodes)
    assert [(kinds[one.kind].group, kinds[one.kind].capacity_type) for one in (first, second)] == [
        ("general", "on-demand"),
        ("blue", "spot"),
    ]
    assert first.usd_per_hour > 0
    classes = {one.number for one in found if isinstance(one, ClassSeen) and one.pod_class.namespace == plot.name}
    assert len(classes) == 1
    (number,) = classes
    pod_class = next(one.pod_class for one in found if isinstance(one, ClassSeen) and one.number == number)
    assert shape_of_class(pod_class).requests["cpu"] == 250
    assert sum(one.count for one in found if isinstance(one, PodsArrived) and one.pod_class == number) == 2
    bound = [one.node for one in found if isinstance(one, PodsBound) and one.pod_class == number]
    assert set(bound) == {first.number, second.number}
    assert [one.node for one in found if isinstance(one, PodsEnded) and one.pod_class == number][:1] == [second.number]
    assert any(isinstance(one, EventTold) and (one.name, one.reason) == (nodes[1], "ScaleDown") for one in found)
    page = msgspec.json.decode(page_of_record(tmp_path / "plain", "recorded"), type=Page)
    shown = {one.name: one for one in page.nodes}
    assert [(shown[name].pool, shown[name].capacity_type) for name in nodes] == [
        ("general", "on-demand"),
        ("blue", "spot"),
    ]
    assert [sum(int(row[1]) for row in shown[name].pods) for name in nodes] == [1, 0]
    assert page.history is not None
    if not any(isinstance(one, CommandSeen) for one in found):  # of commands that another test left behind
        assert any(nodes[1] in one.text and one.reason == "ScaleDown" for one in page.history.decisions)


def test_the_role_only_reads(kubeconfig: Path, plane: DevCluster) -> None:
    rules = next(one for one in yaml.safe_load_all(ROLE.read_text(encoding="utf-8")) if one["kind"] == "ClusterRole")
    assert {verb for rule in rules["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    for verb, resource, want in (
        ("list", "nodes", "yes"),
        ("watch", "pods", "yes"),
        ("create", "pods", "no"),
        ("get", "secrets", "no"),
    ):
        answer = plane.kubectl("--kubeconfig", str(kubeconfig), "auth", "can-i", verb, resource, check=False)
        assert answer.strip() == want, (verb, resource)
