"""From a planned claim to the NodeClaim that is written; pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from provisioner.apis import names
from provisioner.apis.hash import HASH_VERSION, nodepool_hash
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.plan import Plan, PlanEntry, fitting_text
from provisioner.apis.pods import Pod
from provisioner.scheduling.result import PlannedClaim

API_VERSION = "karpenter.sh/v1"


def plan_of(pods: tuple[Pod, ...]) -> Plan:
    """The plan for these pods: equal pods of one owner are one entry."""
    groups: dict[tuple[str, str], list[str]] = {}
    for pod in pods:
        owner = pod.owner.uid if pod.owner is not None else ""
        groups.setdefault((owner, pod.shape.key), []).append(pod.uid)
    return Plan(
        pods=tuple(
            PlanEntry(owner=owner, klass=klass, count=len(uids), uids=tuple(sorted(uids)))
            for (owner, klass), uids in sorted(groups.items())
        )
    )


def plan_text(pods: tuple[Pod, ...]) -> str:
    """The annotation's text for these pods; see `fitting_text`."""
    return fitting_text(plan_of(pods))


def claim_body(planned: PlannedClaim, pool: NodePool, name: str) -> dict[str, Any]:
    """The NodeClaim to create for `planned`, from its NodePool's template.

    The finalizer stands in it from the start and the plan is written with it, so that neither costs a write.
    Source: core spec 1.2, 3.7.
    """
    template = pool.spec.template
    reference = pool.node_class_ref
    labels: dict[str, str] = {
        **pool.labels,
        **planned.labels,
        names.NODEPOOL_LABEL: pool.metadata.name,
        names.nodeclass_label(reference.group, reference.kind): reference.name,
    }
    annotations: dict[str, str] = {
        **pool.annotations,
        names.NODEPOOL_HASH: nodepool_hash(template),
        names.NODEPOOL_HASH_VERSION: HASH_VERSION,
        names.MIN_VALUES_RELAXED: "true" if planned.min_values_relaxed else "false",
        names.PLANNED_OFFERING_ANNOTATION: f"{planned.planned_type}/{planned.planned_zone}/{planned.planned_capacity_type}",
    }
    if text := plan_text(planned.pods):
        annotations[names.PLAN_ANNOTATION] = text
    # what the template leaves out is left out: absent and empty differ in the hash and in kubectl
    given: dict[str, Any] = msgspec.to_builtins(template.spec)
    spec = {
        key: given[key] for key in ("taints", "startupTaints", "terminationGracePeriod", "expireAfter") if key in given
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "NodeClaim",
        "metadata": {
            "name": name,
            "generateName": f"{pool.metadata.name}-",
            "labels": labels,
            "annotations": annotations,
            "finalizers": [names.TERMINATION_FINALIZER],
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": "NodePool",
                    "name": pool.metadata.name,
                    "uid": pool.metadata.uid,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            **spec,
            "nodeClassRef": given["nodeClassRef"],
            "requirements": planned.requirements.to_wire(),
            "resources": {"requests": planned.requests.to_wire()},
        },
    }


def as_claim(body: Mapping[str, Any]) -> NodeClaim:
    """The body as it will be read back, for the state to know it before the API server does."""
    return msgspec.convert(body, NodeClaim, strict=False)
