"""Deployments, StatefulSets, Jobs and the like to the pods that they will make."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from provisioner.apis.core import PersistentVolumeClaimTemplate, PodTemplateSpec
from provisioner.apis.meta import Object, ObjectMeta, OwnerReference
from provisioner.apis.pods import Pod
from provisioner.apis.shapes import PodShape, altered_shape
from provisioner.apis.templates import own_claims

MAX_REPLICAS: Final = 100_000
MAX_PODS: Final = 200_000
MAX_CLAIMS: Final = 200_000
"""PersistentVolumeClaims that the pods of all StatefulSets have of their own."""
KINDS: Final[Mapping[str, frozenset[str]]] = {
    "": frozenset({"ReplicationController"}),
    "apps": frozenset({"Deployment", "ReplicaSet", "StatefulSet"}),
    "batch": frozenset({"Job"}),
}
"""Kinds that are expanded, by API group; the core group is ""."""
_HASH: Final = "pod-template-hash"


class _Ordinals(Object, frozen=True, kw_only=True):
    start: int = 0


class _Spec(Object, frozen=True, kw_only=True):
    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool = False
    template: PodTemplateSpec = PodTemplateSpec()
    volume_claim_templates: tuple[PersistentVolumeClaimTemplate, ...] = ()
    ordinals: _Ordinals | None = None


class _Status(Object, frozen=True, kw_only=True):
    completion_time: str | None = None


class _Workload(Object, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_decode: Final = msgspec.json.Decoder(_Workload).decode
_template: Final = msgspec.json.Decoder(PodTemplateSpec).decode


@dataclass(frozen=True, slots=True)
class Workload:
    """Equal pods that somebody wants.

    Attributes:
        file, named: for messages.
        kind, namespace, name, uid: its own; "" as uid where no API server gave it one.
        owner: who controls it, None for nobody.
        alone: it is a pod itself.
        bound: the Node that a pod names.
        claims: what each of its pods gets a PersistentVolumeClaim of its own from (volumeClaimTemplates).
        first: number of its first pod.
    """

    file: str
    named: str
    kind: str
    namespace: str
    name: str
    uid: str
    owner: OwnerReference | None
    replicas: int
    template: PodTemplateSpec
    alone: bool = False
    bound: str = ""
    claims: tuple[PersistentVolumeClaimTemplate, ...] = ()
    first: int = 0

    def claim_of(self, template: PersistentVolumeClaimTemplate, number: int) -> str:
        """The name of the PersistentVolumeClaim of its pod of that number."""
        return f"{template.metadata.name}-{self.name}-{number}"


def decode_workload(file: str, named: str, kind: str, data: bytes) -> Workload:
    """One workload.

    Raises:
        msgspec.DecodeError: a field is not as its kind should be.
        ValueError: its replicas are out of bounds.
    """
    one = _decode(data)
    spec, metadata = one.spec, one.metadata
    path = "spec.replicas"
    if kind == "Job":
        path = "spec.parallelism"
        wanted = 1 if spec.parallelism is None else spec.parallelism
        count = wanted if spec.completions is None else min(wanted, spec.completions)
        count = 0 if spec.suspend or one.status.completion_time else count
    else:
        count = 1 if spec.replicas is None else spec.replicas
    if not 0 <= count <= MAX_REPLICAS:
        raise msgspec.ValidationError(f"{count} is not between 0 and {MAX_REPLICAS:,} - at `$.{path}`")
    claims = spec.volume_claim_templates if kind == "StatefulSet" else ()
    for number, template in enumerate(claims):
        if not template.metadata.name:
            raise msgspec.ValidationError(
                f"a name is missing - at `$.spec.volumeClaimTemplates[{number}].metadata.name`"
            )
    return Workload(
        file=file,
        named=named,
        kind=kind,
        namespace=metadata.namespace or "default",
        name=metadata.name or metadata.generate_name,
        uid=metadata.uid,
        owner=next((each for each in metadata.owner_references if each.controller), None),
        replicas=count,
        template=spec.template,
        claims=claims,
        first=max(0, spec.ordinals.start) if kind == "StatefulSet" and spec.ordinals is not None else 0,
    )


def loose_pod(file: str, named: str, document: Mapping[str, Any]) -> Workload:
    """A pod as somebody wrote it: what the API server would add is added, as to templates.

    Raises:
        msgspec.DecodeError: a field is not as it should be.
    """
    template = _template(msgspec.json.encode(document))
    metadata = template.metadata
    spec = document.get("spec")
    node = spec.get("nodeName") if isinstance(spec, dict) else ""
    return Workload(
        file=file,
        named=named,
        kind="Pod",
        namespace=metadata.namespace or "default",
        name=metadata.name or metadata.generate_name,
        uid="",
        owner=None,
        replicas=1,
        template=template,
        alone=True,
        bound=node if isinstance(node, str) else "",
    )


def unexpanded(workloads: Iterable[Workload], pods: Iterable[Pod]) -> set[int]:
    """The workloads, by `id`, of which the pods are there already, or that a workload among them makes.

    A dump of a cluster has Deployments, their ReplicaSets and their pods: each pod is to count once.
    """
    workloads = list(workloads)
    owners: set[tuple[str, str, str]] = set()
    for pod in pods:
        if pod.owner is not None:
            owners.add((pod.owner.kind, pod.namespace, pod.owner.name))
            suffix = f"-{pod.labels.get(_HASH, '')}"
            if pod.owner.kind == "ReplicaSet" and len(suffix) > 1 and pod.owner.name.endswith(suffix):
                owners.add(("Deployment", pod.namespace, pod.owner.name.removesuffix(suffix)))
    known = {(one.kind, one.namespace, one.name) for one in workloads}
    for one in workloads:  # a ReplicaSet's pods are its Deployment's
        if one.owner is not None and (one.kind, one.namespace, one.name) in owners:
            owners.add((one.owner.kind, one.namespace, one.owner.name))
    return {
        id(one)
        for one in workloads
        if (one.kind, one.namespace, one.name) in owners
        or (one.owner is not None and (one.owner.kind, one.namespace, one.owner.name) in known)
    }


def expanded(one: Workload, shape: PodShape, there: Container[str] = ()) -> list[Pod]:
    """Its pods, without a node unless it is a pod that names one.

    Args:
        one: it.
        shape: of its pods, without the volumes of its claim templates.
        there: PersistentVolumeClaims that exist, by "namespace/name"; the others are yet to be made.

    Cost: O(its claims), and a shape for each pod of which one exists.
    """
    uid = one.uid or f"{one.kind}/{one.namespace}/{one.name}"
    owner = None if one.alone else OwnerReference(kind=one.kind, name=one.name, uid=uid, controller=True)
    gated = bool(one.template.spec.scheduling_gates)
    unmade = _with_claims(one, shape, {})  # of nearly every pod, so it is made once

    def own(number: int) -> PodShape:
        names = {each.metadata.name: one.claim_of(each, number) for each in one.claims}
        made = {volume: name for volume, name in names.items() if f"{one.namespace}/{name}" in there}
        return _with_claims(one, shape, made) if made else unmade

    return [
        Pod(
            name=one.name if one.alone else f"{one.name}-{number}",
            namespace=one.namespace,
            uid=f"{uid}/{number}",
            shape=own(number),
            labels=shape.labels,
            owner=owner,
            node_name=one.bound,
            gated=gated,
        )
        for number in range(one.first, one.first + one.replicas)
    ]


def _with_claims(one: Workload, shape: PodShape, made: Mapping[str, str]) -> PodShape:
    """The shape of a pod with its own claims; `made` are the names of those that exist, by template."""
    return altered_shape(shape, volumes=own_claims(shape.volumes, one.claims, made)) if one.claims else shape


def workload_of(pod: Pod) -> str:
    """Whose pod it is, for people: kind, namespace and name of what a user made."""
    if pod.owner is None:
        return f"Pod {pod.namespace}/{pod.name}"
    kind, name = pod.owner.kind, pod.owner.name
    suffix = f"-{pod.labels.get(_HASH, '')}"
    if kind == "ReplicaSet" and len(suffix) > 1 and name.endswith(suffix):
        kind, name = "Deployment", name.removesuffix(suffix)
    return f"{kind} {pod.namespace}/{name}"
