"""A drifted node whose pods come back larger, on a real control plane: what is bought in its place, with predictions and without.

There is no VerticalPodAutoscaler here but its definition, cut down to what is read. The test writes the recommendation, and a MutatingAdmissionPolicy does
what VPA's admission webhook does: pods of the namespace are created with the recommended request.
"""

from collections.abc import Callable, Iterator

import pytest

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.kube.client import Client
from provisioner.kube.discovery import serves
from provisioner.kube.errors import NotFound
from provisioner.kube.resources import AUTOSCALERS, CRDS, PODS
from provisioner.lab.devcluster.cluster import DevCluster
from tests.support.autoscalers import wire_autoscaler
from tests.support.eventually import eventually
from tests.support.pods import Wire
from tests.support.provisioner import SECONDS, InProcess, Plot

pytestmark = pytest.mark.plane

NOW, THEN = "100m", "900m"
COUNT = 3
"""Pods: as they are, they fit on a node with two CPUs, and as they will be, on one with four."""
KEPT: Wire = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION: Wire = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": str(AUTOSCALERS),
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/63797"},
    },
    "spec": {
        "group": AUTOSCALERS.group,
        "scope": "Namespaced",
        "names": {"plural": AUTOSCALERS.plural, "kind": AUTOSCALERS.kind},
        "versions": [
            {
                "name": AUTOSCALERS.version,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": KEPT, "status": KEPT}}},
            }
        ],
    },
}
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICIES = ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings")


@pytest.fixture(scope="module")
def defined(client: Client) -> Iterator[None]:
    client.create(CRDS, DEFINITION)
    try:
        eventually(lambda: serves(client, AUTOSCALERS), "VerticalPodAutoscalers are served", SECONDS)
        yield
    finally:
        client.delete(CRDS, str(AUTOSCALERS))


def admit(client: Client, namespace: str) -> None:
    """From now on the pods of a namespace are created with the recommended request."""
    patch = f'JSONPatch{{op: "replace", path: "/spec/containers/0/resources/requests/cpu", value: "{THEN}"}}'
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    specs: dict[str, Wire] = {
        "MutatingAdmissionPolicy": {
            "reinvocationPolicy": "Never",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "resourceRules": [rule],
            },
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": f"[{patch}]"}}],
        },
        "MutatingAdmissionPolicyBinding": {"policyName": namespace},
    }
    for (kind, spec), plural in zip(specs.items(), POLICIES, strict=True):
        body = {"apiVersion": ADMISSION.removeprefix("/apis/"), "kind": kind, "metadata": {"name": namespace}}
        client.raw("POST", f"{ADMISSION}/{plural}", {**body, "spec": spec})
    requests = {"cpu": NOW}
    asked = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "asked"},
        "spec": {"containers": [{"name": "main", "image": "x", "resources": {"requests": requests}}]},
    }

    def applies() -> bool:
        answer = client.raw("POST", f"/api/v1/namespaces/{namespace}/pods", asked, {"dryRun": "All"})
        return PODS.decode(answer).shape.requests["cpu"] == 900

    eventually(applies, "the admission policy applies", SECONDS)


@pytest.fixture
def plot(client: Client) -> Iterator[Plot]:
    """Cleared by the test itself, while its provisioner runs."""
    one = Plot(client)
    yield one
    for plural in POLICIES:
        try:
            client.raw("DELETE", f"{ADMISSION}/{plural}/{one.name}")
        except NotFound:
            continue


def recommend(plot: Plot) -> None:
    body = wire_autoscaler("web", namespace=plot.name, main={"cpu": THEN})
    status = body.pop("status")
    plot.client.create(AUTOSCALERS, body, plot.name)
    plot.client.patch(AUTOSCALERS, "web", {"status": status}, plot.name, subresource="status")


def cpus(claims: list[NodeClaim]) -> list[str]:
    return sorted(one.metadata.labels.get(names.KWOK_INSTANCE_CPU_LABEL, "") for one in claims)


def drift(plot: Plot, pool: str, seen: Callable[[], object] = lambda: True) -> list[NodeClaim]:
    """Pods of web run on one node, are recommended more, and their node drifts; the NodeClaims that follow it."""
    plot.deploy("web", COUNT, cpu=NOW)
    plot.await_running(COUNT, "web")
    (old,) = plot.claims(pool)
    assert cpus([old]) == ["2"]
    recommend(plot)
    admit(plot.client, plot.name)
    eventually(seen, "the recommendation is known", SECONDS)
    plot.change_pool(pool, template={"metadata": {"labels": {"generation": "two"}}})

    def renewed() -> bool:
        large = [one for one in plot.pods("web") if one.phase == "Running" and one.shape.requests["cpu"] == 900]
        return len(large) == COUNT and old.name not in [one.name for one in plot.claims(pool)]

    eventually(renewed, "all pods run with the recommended request, and the old node is gone", SECONDS, 0.2)
    return plot.claims(pool)


def test_the_replacement_takes_the_pods_as_they_come_back(
    plane: DevCluster, client: Client, defined: None, plot: Plot
) -> None:
    with InProcess(str(plane.kubeconfig), vpa_predictions=True) as provisioner:
        try:
            pool = plot.pool(cpu=(2, 4))
            cluster = provisioner.caches.cluster
            found = drift(plot, pool, lambda: cluster.snapshot().predictions.by_target)
            assert cpus(found) == ["4"]
        finally:
            plot.clear()


def test_without_predictions_a_second_node_is_bought(
    plane: DevCluster, client: Client, defined: None, plot: Plot
) -> None:
    with InProcess(str(plane.kubeconfig)):
        try:
            pool = plot.pool(cpu=(2, 4))
            assert cpus(drift(plot, pool)) == ["2", "2"]
        finally:
            plot.clear()
