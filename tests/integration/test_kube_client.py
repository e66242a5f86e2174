"""The client's verbs, errors and costs on a real API server."""

import time
from collections.abc import Iterator

import pytest

from provisioner.apis.core import ObjectReference
from provisioner.cli.plan import live
from provisioner.cli.plan.command import reported
from provisioner.cli.plan.objects import PlanObjects
from provisioner.cli.plan.planning import PlanSettings
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.errors import (
    AlreadyExists,
    Conflict,
    ConnectionFailed,
    Forbidden,
    Invalid,
    NotFound,
    TooManyRequests,
)
from provisioner.kube.events import Recorder
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.support.clock import SystemClock
from provisioner.support.workers import pool, run_parallel
from provisioner.values.errors import UserError
from tests.support.eventually import PATIENCE, eventually
from tests.support.kube_proxy import proxy_to
from tests.support.kubeconfigs import user_kubeconfig

pytestmark = pytest.mark.plane

MAPS = resources.CONFIGMAPS
NAMESPACE = "kube-client"


@pytest.fixture(scope="module")
def kube(plane: DevCluster) -> Iterator[Client]:
    client = Client(connect(str(plane.kubeconfig), qps=0), SystemClock())
    client.create(resources.NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    yield client
    client.delete(resources.NAMESPACES, NAMESPACE)


def config_map(name: str, **data: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def test_an_object_is_made_changed_and_removed(kube: Client) -> None:
    made = kube.create(MAPS, config_map("life", a="1"), NAMESPACE)
    assert made.metadata.uid
    assert kube.patch(MAPS, "life", {"data": {"b": "2"}}, NAMESPACE).data == {"a": "1", "b": "2"}
    assert kube.patch(MAPS, "life", [{"op": "remove", "path": "/data/a"}], NAMESPACE, kind="json").data == {"b": "2"}
    now = kube.get(MAPS, "life", NAMESPACE)
    body = config_map("life", c="3") | {"metadata": {"name": "life", "resourceVersion": now.metadata.resource_version}}
    assert kube.replace(MAPS, "life", body, NAMESPACE).data == {"c": "3"}
    assert kube.apply(MAPS, "life", config_map("life", d="4"), "dovetail", NAMESPACE).data == {"c": "3", "d": "4"}
    assert kube.apply(MAPS, "life", config_map("life"), "dovetail", NAMESPACE).data == {"c": "3"}
    kube.delete(MAPS, "life", NAMESPACE, uid=made.metadata.uid)
    with pytest.raises(NotFound):
        kube.get(MAPS, "life", NAMESPACE)


def test_refusals_have_their_meaning(kube: Client, plane: DevCluster) -> None:
    made = kube.create(MAPS, config_map("refusals"), NAMESPACE)
    with pytest.raises(AlreadyExists):
        kube.create(MAPS, config_map("refusals"), NAMESPACE)
    with pytest.raises(Conflict) as conflict:
        kube.patch(MAPS, "refusals", {"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}}, NAMESPACE)
    assert not isinstance(conflict.value, AlreadyExists)
    with pytest.raises(Conflict):
        kube.delete(MAPS, "refusals", NAMESPACE, uid="another")
    with pytest.raises(Conflict):
        kube.delete(MAPS, "refusals", NAMESPACE, uid=made.metadata.uid, resource_version="1")
    with pytest.raises(Invalid) as invalid:
        kube.create(MAPS, config_map("Not_A_Name"), NAMESPACE)
    assert invalid.value.causes[0].startswith("metadata.name: Invalid value")
    with pytest.raises(NotFound):
        kube.raw("GET", "/apis/no.such.group/v1/things")
    stranger = Client(connect(str(user_kubeconfig(plane, "stranger"))), SystemClock())
    with pytest.raises(Forbidden, match='User "stranger" cannot list resource'):
        stranger.list(MAPS, NAMESPACE)


def test_a_list_is_whole_whatever_the_size_of_its_pages(kube: Client) -> None:
    with pool(8) as threads:
        run_parallel(threads, lambda number: kube.create(MAPS, config_map(f"page-{number}"), NAMESPACE), range(25))
    for limit in (0, 3, 25, 500):
        names = {item.metadata.name for item in kube.list(MAPS, NAMESPACE, limit=limit)}
        assert {f"page-{number}" for number in range(25)} <= names
    only = kube.list(MAPS, NAMESPACE, field_selector="metadata.name=page-7")
    assert [item.metadata.name for item in only] == ["page-7"]


def test_an_eviction_is_an_eviction(kube: Client) -> None:
    labels = {"app": "guarded"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "guarded", "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}], "schedulerName": "nobody"},
    }
    eventually(lambda: kube.list(resources.SERVICEACCOUNTS, NAMESPACE), "the new namespace has its service account")
    made = kube.create(resources.PODS, pod, NAMESPACE)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guard"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
    }
    kube.create(resources.PDBS, budget, NAMESPACE)
    kube.raw(
        "PATCH",
        resources.PODS.path(NAMESPACE, "guarded", "status"),
        {"status": {"phase": "Running"}},
        content_type="application/merge-patch+json",
    )
    with pytest.raises(TooManyRequests):
        kube.evict("guarded", NAMESPACE, made.uid)
    kube.delete(resources.PDBS, "guard", NAMESPACE)
    with pytest.raises(Conflict):
        kube.evict("guarded", NAMESPACE, "another")
    kube.evict("guarded", NAMESPACE, made.uid)
    with pytest.raises(NotFound):
        kube.evict("never-was", NAMESPACE, made.uid)


def test_events_are_accepted_counted_and_found(kube: Client) -> None:
    ref = ObjectReference(api_version="v1", kind="ConfigMap", name="told-about", namespace=NAMESPACE, uid="u")
    recorder = Recorder(kube, "karpenter", SystemClock())
    recorder.publish(ref, "Warning", "FailedScheduling", "no room", ttl=0)
    recorder.publish(ref, "Warning", "FailedScheduling", "no room", ttl=0)
    node = ObjectReference(api_version="v1", kind="Node", name="told-about-node", uid="n")
    recorder.publish(node, "Normal", "DisruptionBlocked", "pdb")
    recorder.stop()
    assert recorder.dropped == 0
    found = kube.list(resources.EVENTS, NAMESPACE, field_selector="involvedObject.name=told-about")
    assert [(event.reason, event.message, event.count, event.source.component) for event in found] == [
        ("FailedScheduling", "no room", 2, "karpenter")
    ]
    assert len(kube.list(resources.EVENTS, "default", field_selector="involvedObject.name=told-about-node")) == 1


def test_a_small_request_costs_about_a_millisecond_of_cpu(kube: Client) -> None:
    kube.create(MAPS, config_map("cost"), NAMESPACE)
    begun = time.process_time()
    for number in range(200):
        kube.patch(MAPS, "cost", {"data": {"n": str(number)}}, NAMESPACE)
    assert (time.process_time() - begun) / 200 < 0.003  # 0.7 ms on an idle core


def test_many_threads_share_the_pool(kube: Client) -> None:
    with pool(40) as threads:
        outcomes = run_parallel(
            threads, lambda number: kube.create(MAPS, config_map(f"many-{number}"), NAMESPACE), range(400)
        )
    assert [outcome.error for outcome in outcomes if outcome.error] == []


def test_what_is_urgent_does_not_wait_for_a_connection(plane: DevCluster) -> None:
    client = Client(connect(str(plane.kubeconfig), pool_size=1), SystemClock())

    def hold() -> None:
        client.raw("GET", "/api/v1/namespaces", query={"watch": "1", "timeoutSeconds": str(5 * PATIENCE)})

    with pool(1) as threads:
        begun = time.monotonic()
        threads.submit(hold)
        time.sleep(0.5 * PATIENCE)
        client.raw("GET", "/version", urgent=True)
        assert time.monotonic() - begun < 4.0 * PATIENCE
        client.raw("GET", "/version")
        assert time.monotonic() - begun >= 4.0 * PATIENCE


def test_a_server_that_is_not_there_is_a_connection_failure(
    plane: DevCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with proxy_to(plane.ports["kube-apiserver"]) as proxy:
        client = Client(
            connect(proxy.kubeconfig(plane.kubeconfig, tmp_path_factory.mktemp("kc") / "kubeconfig")), SystemClock()
        )
        client.raw("GET", "/version")
        proxy.shut()
        with pytest.raises(ConnectionFailed) as failed:
            client.create(MAPS, config_map("never"), NAMESPACE)
        assert "POST /api/v1/namespaces/kube-client/configmaps" in str(failed.value)
        proxy.reopen()
        client.raw("GET", "/version")


def test_a_plan_reads_a_live_cluster_and_changes_nothing(kube: Client, plane: DevCluster) -> None:
    requests = {"cpu": "3", "memory": "1Gi"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "waits"},
        "spec": {
            "nodeSelector": {"karpenter.kwok.sh/instance-cpu": "4"},
            "containers": [{"name": "c", "image": "x", "resources": {"requests": requests}}],
        },
    }
    kube.create(resources.PODS, pod, NAMESPACE)
    before = kube.get(resources.PODS, "waits", NAMESPACE)
    objects, clock = PlanObjects(), SystemClock()
    live.read(objects, str(plane.kubeconfig), "", clock)
    objects.pods = [one for one in objects.pods if one.namespace == NAMESPACE]  # other tests have pods of their own
    objects.nodes, objects.pools, objects.claims = [], [], []
    found = reported(objects, "kwok", (), PlanSettings(improve=False), clock)
    (group,) = found.plans[0].fleet.groups
    assert (group.instance_type, group.pods) == ("c-4x-amd64-linux", 1)
    assert kube.get(resources.PODS, "waits", NAMESPACE).uid == before.uid
    with pytest.raises(UserError, match="no-such-context"):
        live.read(PlanObjects(), str(plane.kubeconfig), "no-such-context", clock)
    kube.delete(resources.PODS, "waits", NAMESPACE)
