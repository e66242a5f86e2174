"""Applying example documents to a cluster, scaling what was applied, and waiting for what must be there first."""

import json
import time
from collections.abc import Iterable
from typing import Any

from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError
from provisioner.kube.resources import (
    CRDS,
    DAEMONSETS,
    DEPLOYMENTS,
    EC2NODECLASSES,
    KWOKNODECLASSES,
    NAMESPACES,
    NODEPOOLS,
    PDBS,
    Resource,
)
from provisioner.lab.harness.workload import Document, ExampleError, load, manifests

MANAGER = "dovetail-demo"
WAIT_SECONDS = 90.0
POLL_SECONDS = 0.1
RESOURCES: dict[str, Resource[Any]] = {
    one.kind: one
    for one in (CRDS, DAEMONSETS, DEPLOYMENTS, EC2NODECLASSES, KWOKNODECLASSES, NAMESPACES, NODEPOOLS, PDBS)
}


def apply(client: Client, documents: Iterable[Document]) -> None:
    """Server-side apply, in order.

    Raises:
        ExampleError: a kind that no example uses.
        ApiError: the API server refused a document; nothing after it was applied.
    """
    for document in documents:
        resource = RESOURCES.get(document["kind"])
        if resource is None:
            known = ", ".join(sorted(RESOURCES))
            raise ExampleError(f"{document['kind']} {document['metadata']['name']}: only {known} can be applied")
        metadata = document["metadata"]
        path = resource.path(metadata.get("namespace", ""), metadata["name"])
        query = {"fieldManager": MANAGER, "force": "true"}
        # Raw, because the answer is of no interest: some kinds come back half filled.
        client.raw("PATCH", path, document, query, content_type="application/apply-patch+yaml")


def apply_crds(client: Client) -> int:
    """Apply every file of manifests/crds and wait until all are established; returns how many.

    Raises:
        ExampleError: there are none, or they were not established in time.
    """
    paths = sorted((manifests() / "crds").glob("*.yaml"))
    documents = [document for path in paths for document in load(path)]
    if not documents:
        raise ExampleError(f"{manifests() / 'crds'} holds no CRDs: write them with `make manifests`")
    apply(client, documents)
    deadline = time.monotonic() + WAIT_SECONDS
    for document in documents:
        _wait(client, CRDS, document["metadata"]["name"], "Established", deadline)
    return len(documents)


def scale(client: Client, documents: Iterable[Document], replicas: int) -> None:
    """Set the replicas of every Deployment among the documents."""
    for document in documents:
        if document["kind"] != "Deployment":
            continue
        metadata = document["metadata"]
        client.patch(DEPLOYMENTS, metadata["name"], {"spec": {"replicas": replicas}}, namespace=metadata["namespace"])


def wait_pools_ready(client: Client, names: Iterable[str]) -> None:
    """Wait until every NodePool has the condition Ready=True.

    Raises:
        ExampleError: one had not; the message holds its conditions.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    for name in names:
        _wait(client, NODEPOOLS, name, "Ready", deadline)


def _wait(client: Client, resource: Resource[Any], name: str, condition: str, deadline: float) -> None:
    while (conditions := _conditions(client, resource.path("", name))).get(condition) != "True":
        if time.monotonic() > deadline:
            raise ExampleError(f"{resource.kind} {name} was not {condition} in time; conditions: {conditions}")
        time.sleep(POLL_SECONDS)


def _conditions(client: Client, path: str) -> dict[str, str]:
    try:
        found = json.loads(client.raw("GET", path))
    except ApiError:
        return {}
    conditions = found.get("status", {}).get("conditions") or ()  # null for a moment after creation
    return {condition["type"]: condition["status"] for condition in conditions}
