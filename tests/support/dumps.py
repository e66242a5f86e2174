"""Objects as `kubectl get -o json` writes them, and a cluster that is made of them."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.cli.why import gathering
from provisioner.cli.why.world import Local, local
from provisioner.options import Options
from tests.support.clock import NOON
from tests.support.cluster import claim, node, pool

ALL_TRUE = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)
READY = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": NOON.isoformat()}]}


def wire_pod(name: str, cpu: str = "1", *, on: str = "", **changes: Any) -> dict[str, Any]:
    """A pod of ReplicaSet web; bound where `on` names a node."""
    told = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/0 nodes are available"}
    ]
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "resourceVersion": "1",
            "creationTimestamp": NOON.isoformat(),
            "labels": {"app": "web"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
            ],
        },
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]},
        "status": {"phase": "Running", "startTime": NOON.isoformat(), **READY}
        if on
        else {"phase": "Pending", "conditions": told},
    }
    if on:
        body["spec"]["nodeName"] = on
    for path, value in changes.items():
        at, *parents, last = body, *path.split("__")
        for parent in parents:
            at = at.setdefault(parent, {})
        at[last] = value
    return body


def plain(thing: Any) -> dict[str, Any]:
    """As `kubectl get -o json` has it."""
    body: dict[str, Any] = dict(thing) if isinstance(thing, Mapping) else json.loads(msgspec.json.encode(thing))
    kinds: dict[type[Any], tuple[str, str]] = {
        NodeClaim: ("karpenter.sh/v1", "NodeClaim"),
        NodePool: ("karpenter.sh/v1", "NodePool"),
        Node: ("v1", "Node"),
    }
    version, kind = kinds.get(
        type(thing), (body.get("apiVersion", "policy/v1"), body.get("kind", "PodDisruptionBudget"))
    )
    return {"apiVersion": version, "kind": kind, **body}


def existing_node(name: str, **changes: Any) -> list[dict[str, Any]]:
    """An initialised node of type c-4x-amd64-linux for NOON and ever since."""
    labels = {
        names.NODEPOOL_LABEL: "general",
        names.INSTANCE_TYPE_LABEL: "c-4x-amd64-linux",
        names.ZONE_LABEL: "test-zone-a",
        names.CAPACITY_TYPE_LABEL: "on-demand",
        names.ARCH_LABEL: "amd64",
        names.OS_LABEL: "linux",
        names.REGISTERED_LABEL: "true",
        names.INITIALIZED_LABEL: "true",
    }
    made = claim(f"{name}-claim", provider_id=f"kwok://{name}", true=ALL_TRUE, labels=labels, **changes)
    body = plain(made)
    body["status"]["nodeName"] = name
    return [body, plain(node(name, labels=labels))]


def dumped(*things: Any, at: datetime = NOON + timedelta(hours=1)) -> Local:
    """The cluster of these and a NodePool, an hour after noon."""
    objects = gathering.WhyObjects()
    known = {(one.api_version, one.kind): one for one in (*gathering.NEEDED, *gathering.MORE)}
    for one in map(plain, (pool(), *things)):
        resource = known[one["apiVersion"], one["kind"]]
        objects.add(resource, (resource.decode(json.dumps(one).encode()),))
    return local(objects, Options(), at)
