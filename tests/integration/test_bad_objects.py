"""Objects that only an attacker makes, on a real API server: they harm nobody but themselves."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from provisioner.kube.client import Client
from provisioner.kube.errors import NotFound
from provisioner.kube.resources import NAMESPACES, PODS, SERVICEACCOUNTS
from provisioner.lab.devcluster.cluster import DevCluster
from tests.support.eventually import eventually
from tests.support.kube import nested
from tests.support.provisioner import InProcess, Plot

pytestmark = pytest.mark.plane

LEVELS = 1000
APPS = 6


def evil(namespace: str, name: str) -> bytes:
    """A pod whose managed fields are nested deeply; whoever may create a pod may create this one."""
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "managedFields": [
                {
                    "manager": "me",
                    "operation": "Update",
                    "apiVersion": "v1",
                    "time": "2026-11-21T10:00:00Z",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": "HERE",
                }
            ],
        },
        "spec": {"containers": [{"name": "c", "image": "i"}], "schedulerName": "nobody"},
    }
    return json.dumps(pod).encode().replace(b'"HERE"', nested(LEVELS))


@pytest.fixture
def tenant(client: Client) -> Iterator[str]:
    """A namespace that is listed before all others."""
    name = "aaa-tenant"
    client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    eventually(lambda: client.list(SERVICEACCOUNTS, name), "the namespace can be used")
    yield name
    for pod in client.list(PODS, name):
        client.delete(PODS, pod.name, name, grace_seconds=0)
    try:
        client.delete(NAMESPACES, name)
    except NotFound:
        pass


def post(client: Client, namespace: str, name: str) -> None:
    client.raw("POST", PODS.path(namespace), evil(namespace, name))
    stored = client.raw("GET", PODS.path(namespace, name))
    with pytest.raises(RecursionError):
        json.loads(stored)


def test_pods_nested_a_thousand_levels_deep_stop_nothing(plane: DevCluster, client: Client, tenant: str) -> None:
    post(client, tenant, "before")
    plot = Plot(client)
    provisioner = InProcess(str(plane.kubeconfig))
    provisioner.start()
    try:
        post(client, tenant, "while-it-runs")
        plot.pool()
        for number in range(APPS):
            plot.deploy(f"web-{number}", 1)
        plot.await_running(APPS)
        caches = provisioner._caches
        for name in ("before", "while-it-runs"):
            eventually(lambda name=name: caches.pods.store.get(f"{tenant}/{name}"), f"{name} is seen")  # type: ignore[misc]
        told = caches.bad_objects()
        assert f"Pod {tenant}/before: read without the fields that are nested more than 128 levels deep" in told
        assert caches.problem() == ""
        assert caches.pods.relists == 1
    finally:
        plot.clear()
        provisioner.stop()
