"""VerticalPodAutoscalers, and pods that they size, for tests."""

from typing import Any

import msgspec

from provisioner.apis.pods import Pod, decode_pod
from provisioner.apis.vpa import VerticalPodAutoscaler
from provisioner.kube.resources import AUTOSCALERS
from tests.support.pods import Wire

REPLICA_SET = "web-5d4f8c7b9"


def autoscaler(
    name: str = "web",
    *,
    namespace: str = "shop",
    target: tuple[str, str] | None = ("Deployment", "web"),
    mode: str | None = None,
    policies: tuple[Wire, ...] = (),
    created: str = "2026-11-01T00:00:00Z",
    **targets: Any,
) -> VerticalPodAutoscaler:
    """One as the API server sends it; `targets` by container."""
    return AUTOSCALERS.decode(
        msgspec.json.encode(
            wire_autoscaler(
                name, namespace=namespace, target=target, mode=mode, policies=policies, created=created, **targets
            )
        )
    )


def wire_autoscaler(
    name: str,
    *,
    namespace: str,
    target: tuple[str, str] | None = ("Deployment", "web"),
    mode: str | None = None,
    policies: tuple[Wire, ...] = (),
    created: str = "",
    **targets: Any,
) -> Wire:
    """Likewise in JSON; without a time it may be created."""
    meta = {"name": name, "namespace": namespace} | ({"uid": name, "creationTimestamp": created} if created else {})
    spec: Wire = {"resourcePolicy": {"containerPolicies": list(policies)}} if policies else {}
    if target is not None:
        spec["targetRef"] = {"apiVersion": "apps/v1", "kind": target[0], "name": target[1]}
    if mode is not None:
        spec["updatePolicy"] = {"updateMode": mode}
    said = [
        {"containerName": container, "target": amounts, "lowerBound": amounts, "upperBound": amounts}
        for container, amounts in targets.items()
    ]
    status = {"recommendation": {"containerRecommendations": said}} if said else {}
    return {
        "apiVersion": AUTOSCALERS.api_version,
        "kind": AUTOSCALERS.kind,
        "metadata": meta,
        "spec": spec,
        "status": status,
    }


def sized_pod(
    name: str = "p",
    *,
    node: str = "",
    owner: tuple[str, str] | None = ("ReplicaSet", REPLICA_SET),
    labels: dict[str, str] | None = None,
    spec: Wire | None = None,
    **containers: Any,
) -> Pod:
    """A pod of Deployment web, with what each container asks for; `containers` by name, their resources or requests alone."""
    meta: Wire = {
        "name": name,
        "namespace": "shop",
        "uid": name,
        "labels": {"app": "web", "pod-template-hash": "5d4f8c7b9"} if labels is None else labels,
        "creationTimestamp": "2026-11-02T00:00:00Z",
    }
    if owner is not None:
        kind, whose = owner
        meta["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": kind, "name": whose, "uid": whose, "controller": True}
        ]
    made: list[dict[str, Any]] = [
        {"name": key, "resources": value if {"requests", "limits"} & value.keys() else {"requests": value}}
        for key, value in (containers or {"app": {"cpu": "100m"}}).items()
    ]
    phase = "Running" if node else "Pending"
    wire = {"metadata": meta, "spec": {"containers": made, "nodeName": node} | (spec or {}), "status": {"phase": phase}}
    return decode_pod(msgspec.json.encode(wire), amounts=True)
