"""Deployments, StatefulSets, Jobs and the like to the pods that they will make."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from provisioner.apis import names
from provisioner.apis.core import JobSpec, PersistentVolumeClaimTemplate, PodSpec, PodTemplateSpec
from provisioner.apis.meta import Object, ObjectMeta, OwnerReference, controller_of
from provisioner.apis.pods import Pod, SchedulingGroup, kept_annotations
from provisioner.apis.shapes import PodShape, altered_shape
from provisioner.apis.templates import controller, own_claims
from provisioner.apis.vpa import made_by

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


class _Ordinals(Object, frozen=True, kw_only=True):
    start: int = 0


class _GroupedSpec(PodSpec, frozen=True, kw_only=True):
    scheduling_group: SchedulingGroup | None = None


class GroupedTemplate(PodTemplateSpec, frozen=True, kw_only=True):
    """A template that may name the PodGroup of its pods."""

    spec: _GroupedSpec = _GroupedSpec()

    @property
    def group(self) -> str:
        """The name of the PodGroup, "" for none."""
        return self.spec.scheduling_group.pod_group_name if self.spec.scheduling_group is not None else ""


class _Spec(JobSpec, frozen=True, kw_only=True):
    replicas: int | None = None
    suspend: bool = False
    template: GroupedTemplate = GroupedTemplate()
    volume_claim_templates: tuple[PersistentVolumeClaimTemplate, ...] = ()
    ordinals: _Ordinals | None = None


class _Status(Object, frozen=True, kw_only=True):
    completion_time: str | None = None


class _Workload(Object, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_decode: Final = msgspec.json.Decoder(_Workload).decode
_template: Final = msgspec.json.Decoder(GroupedTemplate).decode


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
    template: GroupedTemplate
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
        count = 0 if spec.suspend or one.status.completion_time else spec.at_once
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
        owner=controller_of(metadata),
        replicas=count,
        template=_with_minimum(spec.template, count) if kind == "Job" else spec.template,
        claims=claims,
        first=max(0, spec.ordinals.start) if kind == "StatefulSet" and spec.ordinals is not None else 0,
    )


def _with_minimum(template: GroupedTemplate, count: int) -> GroupedTemplate:
    """The template of a Job, with the number of pods that its gang needs at once: where nobody writes it, all that it runs at the same time."""
    notes = template.metadata.annotations
    if names.GANG not in notes or names.GANG_MINIMUM in notes or not count:
        return template
    metadata = msgspec.structs.replace(template.metadata, annotations={**notes, names.GANG_MINIMUM: str(count)})
    return msgspec.structs.replace(template, metadata=metadata)


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
            if (made := made_by(pod)).kind == "Deployment":
                owners.add((made.kind, made.namespace, made.name))
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
    owner = None if one.alone else controller(one.kind, one.name, uid)
    annotations = kept_annotations(one.template.metadata.annotations)
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
            annotations=annotations,
            owner=owner,
            group=one.template.group,
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
    namespace, kind, name = made_by(pod)
    return f"{kind} {namespace}/{name}"
