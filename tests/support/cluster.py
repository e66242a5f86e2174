"""Short ways to write the objects of a cluster, and a `Cluster` that they can be put into."""

import itertools
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from provisioner.apis import names
from provisioner.apis.core import Node, PodDisruptionBudget
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.meta import OwnerReference
from provisioner.apis.plan import Plan, PlanEntry, encode_plan
from provisioner.apis.pods import Pod
from provisioner.cloudprovider.kwok import catalogue
from provisioner.cloudprovider.types import InstanceType
from provisioner.state.checking import CheckedCluster
from provisioner.state.keys import NodeKey
from provisioner.state.snapshot import NodeView
from tests.support.clock import NOON, FakeClock
from tests.support.problems import shape

_numbers = itertools.count(1)
TYPES: Mapping[str, InstanceType] = {one.name: one for one in catalogue.generated().types}


def refused(one: Pod, text: str) -> Pod:
    """The pod as kube-scheduler writes now that it has no node for it."""
    return msgspec.structs.replace(
        one,
        unschedulable=True,
        scheduled_reason=names.UNSCHEDULABLE,
        scheduled_message=text,
        resource_version=str(next(_numbers)),
    )


def pod(name: str, *, owner: str = "rs", node: str = "", uid: str = "", cpu: str = "1", **changes: Any) -> Pod:
    """One pod of a ReplicaSet, of one CPU and 1 GiB unless told otherwise."""
    kind = changes.pop("kind", "ReplicaSet")
    reference = (
        OwnerReference(api_version="apps/v1", kind=kind, name=owner, uid=owner, controller=True) if owner else None
    )
    given: dict[str, Any] = {
        "name": name,
        "namespace": "default",
        "uid": uid or name,
        "resource_version": str(next(_numbers)),
        "shape": shape(cpu=cpu, priority=changes.pop("priority", 0)),
        "created": NOON,
        "owner": reference,
        "node_name": node,
        "phase": "Running" if node else "Pending",
    }
    return Pod(**{**given, **changes})


def bound(one: Pod, node: str) -> Pod:
    """The same pod, on a node."""
    return msgspec.structs.replace(one, node_name=node)


def claim(
    name: str,
    *,
    pool: str = "general",
    planned: str = "c-4x-amd64-linux",
    pods: tuple[Pod, ...] = (),
    true: tuple[str, ...] = (),
    since: datetime = NOON,
    version: int | None = None,
    provider_id: str = "",
    **metadata: Any,
) -> NodeClaim:
    """A NodeClaim as far as the conditions in `true` say, planned for `pods`."""
    kind = TYPES[planned]
    launched = bool(provider_id)
    body: dict[str, Any] = {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "generation": 1,
            "resourceVersion": str(version if version is not None else next(_numbers)),
            "creationTimestamp": NOON.isoformat(),
            "finalizers": [names.TERMINATION_FINALIZER],
            "labels": {names.NODEPOOL_LABEL: pool},
            "annotations": {
                names.PLANNED_OFFERING_ANNOTATION: f"{planned}/test-zone-a/spot",
                **({names.PLAN_ANNOTATION: plan_text(pods)} if pods else {}),
            },
            **metadata,
        },
        "spec": {
            "requirements": [{"key": names.ARCH_LABEL, "operator": "In", "values": ["amd64"]}],
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "resources": {"requests": {"cpu": "1"}},
        },
        "status": {
            "conditions": [
                {"type": one, "status": "True", "reason": one, "message": "", "lastTransitionTime": since.isoformat()}
                for one in true
            ],
            **(
                {
                    "providerID": provider_id,
                    "capacity": kind.capacity.to_wire(),
                    "allocatable": kind.allocatable.to_wire(),
                }
                if launched
                else {}
            ),
        },
    }
    return msgspec.convert(body, NodeClaim, strict=False)


def plan_text(pods: tuple[Pod, ...]) -> str:
    """A plan with one entry a pod."""
    entries = [
        PlanEntry(owner=one.owner.uid if one.owner else "", klass=one.shape.key, count=1, uids=(one.uid,))
        for one in pods
    ]
    return encode_plan(Plan(pods=tuple(entries)))


def node(
    name: str,
    *,
    provider_id: str = "",
    ready: bool = True,
    taints: tuple[Mapping[str, str], ...] = (),
    labels: Mapping[str, str] | None = None,
    kind: str = "c-4x-amd64-linux",
    **metadata: Any,
) -> Node:
    """A Node of one of the generated kwok types."""
    size = TYPES[kind]
    body = {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": str(next(_numbers)),
            "creationTimestamp": NOON.isoformat(),
            "labels": dict(labels or {}),
            **metadata,
        },
        "spec": {"providerID": provider_id or f"kwok://{name}", "taints": list(taints)},
        "status": {
            "capacity": size.capacity.to_wire(),
            "allocatable": size.allocatable.to_wire(),
            "conditions": [
                {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": NOON.isoformat()}
            ],
        },
    }
    return msgspec.convert(body, Node, strict=False)


def pool(name: str = "general", *, requirements: tuple[Mapping[str, Any], ...] = (), **spec: Any) -> NodePool:
    """A NodePool that is Ready; `spec` overrides its fields by wire name."""
    status = spec.pop(
        "status", {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": NOON.isoformat()}]}
    )
    template = spec.pop("template", {})
    body = {
        "metadata": {"name": name, "uid": f"uid-{name}", "generation": 1, "creationTimestamp": NOON.isoformat()},
        "spec": {
            "template": {
                "spec": {
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "requirements": list(requirements),
                    **template,
                }
            },
            **spec,
        },
        "status": status,
    }
    return msgspec.convert(body, NodePool, strict=False)


def pod_budget(
    name: str = "guard", *, healthy: int = 3, required: int = 2, allowed: int = 1, **spec: Any
) -> PodDisruptionBudget:
    """A PodDisruptionBudget of all pods in the namespace `default`, as its controller counted it."""
    body = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "generation": 1},
        "spec": {"selector": {}, **(spec or {"minAvailable": required})},
        "status": {
            "observedGeneration": 1,
            "currentHealthy": healthy,
            "desiredHealthy": required,
            "expectedPods": healthy,
            "disruptionsAllowed": allowed,
        },
    }
    return msgspec.convert(body, PodDisruptionBudget, strict=False)


class World:
    """A settled state on a clock that stands still; after every event it is compared with one made anew.

    One that is not settled yet waits for `cluster.settle`, as a process that reads its first lists.

    Attributes:
        types: instance types of every NodePool; no event tells when they change.
    """

    def __init__(self, *, settled: bool = True) -> None:
        self.clock = FakeClock()
        self.types: Mapping[str, InstanceType] = TYPES
        self.cluster = CheckedCluster(lambda _: self.types, self.clock)
        if settled:
            self.cluster.settle()

    def existing_node(self, name: str, *, pods: tuple[Pod, ...] = (), age: float = 0.0, **claim_fields: Any) -> None:
        """A launched, registered and initialised node named `name`, its claim planned for `pods`."""
        self.cluster.claim_changed(
            None,
            claim(
                name,
                pods=pods,
                provider_id=f"kwok://{name}",
                true=(names.LAUNCHED, names.REGISTERED, names.INITIALIZED),
                since=NOON - timedelta(seconds=age),
                **claim_fields,
            ),
        )
        self.cluster.node_changed(None, node(name, labels={names.NODEPOOL_LABEL: "general"}))

    def add(self, *pods: Pod) -> None:
        """Pods that the watch tells for the first time."""
        for one in pods:
            self.cluster.pod_changed(None, one)

    def view(self, key: str | NodeKey) -> NodeView:
        """One node of a fresh snapshot; a text is the name of a claim."""
        wanted = NodeKey(key) if isinstance(key, str) else key
        return next(found for found in self.cluster.snapshot().nodes if found.key == wanted)

    def assigned(self, claim_name: str) -> list[str]:
        """Names of the pods that a claim's node still keeps room for."""
        return [one.name for one in self.cluster.assigned(NodeKey(claim_name))]
