"""CapacityBuffers as pods that nobody made: how many, and what they look like. Source: core spec 1.4, 3.12.

Differs: virtual pods have the least priority and are placed after every pod that exists (Karpenter sorts them by size among these); a
provisioningStrategy that is not ours is left to others; limits that share no resource with the pod, and no other size, keep nothing.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from provisioner.apis import names
from provisioner.apis.buffer import ACTIVE_CAPACITY, CapacityBuffer
from provisioner.apis.core import PersistentVolumeClaimTemplate, PodTemplateSpec
from provisioner.apis.footprint import OBJECT_BYTES, footprint, keeps_too_much
from provisioner.apis.meta import ObjectMeta
from provisioner.apis.pods import Pod, pod_of
from provisioner.apis.stamping import StampFacts
from provisioner.apis.templates import NO_ADMISSION, Admission, Admitted, admitted, admitted_pods, own_claims
from provisioner.values.message import Said
from provisioner.values.quantity import QuantityError
from provisioner.values.resources import Resources

MOST_UNITS: Final = 1000
"""Of one buffer."""
LEAST_PRIORITY: Final = -(2**31)


class ResolutionError(Exception):
    """A buffer that cannot be resolved; `str` is the condition's message, `reason` its reason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason, message)
        self.reason, self.message = reason, message

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class BufferTemplate:
    """What one unit of a buffer looks like.

    Attributes:
        name: of the PodTemplate; "" for a workload's.
        generation: of the PodTemplate or the workload.
        replicas: of the workload; None for a PodTemplate.
        claims: what each pod of a StatefulSet gets a PersistentVolumeClaim of its own from.
    """

    pod: PodTemplateSpec
    name: str = ""
    generation: int = 0
    replicas: int | None = None
    claims: tuple[PersistentVolumeClaimTemplate, ...] = ()


def is_ours(buffer: CapacityBuffer) -> bool:
    """Whether the room is to be kept by nodes that run."""
    return (
        buffer.spec.provisioning_strategy in (None, "", ACTIVE_CAPACITY) and buffer.metadata.deletion_timestamp is None
    )


def is_virtual(pod: Pod) -> bool:
    """Whether a pod stands for room that is kept, for a buffer or a ProvisioningRequest, and does not exist."""
    return names.BUFFER_FAKE_POD in pod.annotations


def _is_of_buffer(pod: Pod) -> bool:
    return is_virtual(pod) and names.BUFFER_NAME in pod.annotations


def buffer_of(pod: Pod) -> str:
    """The buffer of a virtual pod, as "namespace/name"."""
    return f"{pod.namespace}/{pod.annotations[names.BUFFER_NAME]}"


def _pod_template_unreadable(error: str) -> str:
    return Said(f"the pod template cannot be read: {error}")


def virtual_pods(
    buffer: CapacityBuffer,
    template: BufferTemplate,
    admission: Admission = NO_ADMISSION,
    facts: StampFacts | None = None,
) -> tuple[tuple[Pod, ...], tuple[str, ...]]:
    """The pods that a buffer keeps room for, and the classes that they name and nobody knows; their UIDs are stable.

    Args:
        buffer: it.
        template: what a unit looks like.
        admission: what the cluster makes of it.
        facts: what the webhook goes by; None where nothing is known of that.

    Raises:
        ResolutionError: the template or the limits cannot be read, or no such pod can be.
    """
    meta = buffer.metadata
    made = unit_of(template.pod, meta.namespace, admission, template.claims)
    facts = StampFacts(meta.namespace, {}) if facts is None else facts
    requests = made.shape(meta.namespace).requests
    count, standing = _units(buffer, template, requests), template.replicas or 0
    marks = {names.BUFFER_FAKE_POD: "true", names.BUFFER_NAME: meta.name, names.BUFFER_NAMESPACE: meta.namespace}
    alike = copies(template.pod, admission, facts, count, standing, template.claims, priority=LEAST_PRIORITY)
    each = itertools.chain.from_iterable(itertools.repeat(one, some) for some, one in alike)
    units = tuple(
        named(one, f"capacity-buffer-{meta.name}-{number}", f"{meta.uid}-{number}", marks)
        for number, one in enumerate(each)
    )
    return units, made.unknown


def unit_of(
    template: PodTemplateSpec,
    namespace: str,
    admission: Admission,
    claims: tuple[PersistentVolumeClaimTemplate, ...] = (),
) -> Admitted:
    """What the cluster makes of a template, for pods that nobody makes.

    Raises:
        ResolutionError: the template cannot be read, or no such pod can be.
    """
    if footprint((template, claims), OBJECT_BYTES) > OBJECT_BYTES:
        text = keeps_too_much(OBJECT_BYTES // 1024)
        raise ResolutionError("ResolutionFailed", _pod_template_unreadable(text))
    made = admitted(template, namespace, admission)
    if made.refusal:
        raise ResolutionError("ResolutionFailed", f"the API server refuses pods of the template: {made.refusal}")
    shape = made.shape(namespace)
    if shape.error:
        raise ResolutionError("ResolutionFailed", _pod_template_unreadable(shape.error))
    return made


def copies(
    template: PodTemplateSpec,
    admission: Admission,
    facts: StampFacts,
    count: int,
    standing: int = 0,
    claims: tuple[PersistentVolumeClaimTemplate, ...] = (),
    *,
    priority: int | None = None,
) -> list[tuple[int, Pod]]:
    """So many pods of a template, without names, by what they become; `priority` instead of their own."""
    made = admitted_pods(template, admission, facts, count, standing)
    return [(some, _unit(one.template, facts.namespace, claims, priority)) for some, one in made]


def named(unit: Pod, name: str, uid: str, marks: Mapping[str, str]) -> Pod:
    """One of several equal pods that nobody makes; `marks` say whose it is, and hold `BUFFER_FAKE_POD`."""
    return msgspec.structs.replace(unit, name=name, uid=uid, annotations=marks, unschedulable=True)


def _unit(
    template: PodTemplateSpec, namespace: str, claims: tuple[PersistentVolumeClaimTemplate, ...], priority: int | None
) -> Pod:
    spec = msgspec.structs.replace(
        template.spec,
        priority=template.spec.priority if priority is None else priority,
        priority_class_name="" if priority is not None else template.spec.priority_class_name,
        node_name="",
        scheduling_gates=(),
        volumes=own_claims(template.spec.volumes, claims, {}),
    )
    return pod_of(ObjectMeta(namespace=namespace, labels=template.metadata.labels), spec)


def _units(buffer: CapacityBuffer, template: BufferTemplate, requests: Resources) -> int:
    spec = buffer.spec
    sizes = [spec.replicas] if spec.replicas is not None else []
    if spec.percentage is not None and template.replicas is not None:
        sizes.append(max(1, -(-template.replicas * spec.percentage // 100)))
    try:
        limits = Resources.parse(spec.limits)
    except QuantityError as error:
        raise ResolutionError("ResolutionFailed", f"spec.limits: {error}") from None
    within = [limit // requests[name] for name, limit in limits.items() if requests.get(name, 0) > 0]
    if not sizes and not within:
        return 0
    wanted = max(sizes) if sizes else min(within)
    return max(0, min([wanted, MOST_UNITS, *within]))


class RoomKeeper(Protocol):
    """Whoever keeps room for pods to come; any thread may ask."""

    def pods(self) -> tuple[Pod, ...]:
        """The virtual pods that need it; the same object while nothing changed."""
        ...

    def keeps(self, node: str) -> bool:
        """Whether a node, by its key, keeps room for some; yes while nobody knows."""
        ...


@dataclass(frozen=True, slots=True)
class BufferRoom:
    """How far one pass has found room for the buffers.

    Attributes:
        ready: by buffer, units that fit on nodes that are initialized.
        units: by buffer, units in all.
        nodes: keys of the nodes that keep room for some.
    """

    ready: Mapping[str, int]
    units: Mapping[str, int]
    nodes: frozenset[str]

    def has_room(self, buffer: str) -> bool:
        """Whether every unit of a buffer fits on nodes that are there."""
        return self.ready.get(buffer, 0) >= self.units.get(buffer, 0)


NOTHING_KEPT: Final = BufferRoom({}, {}, frozenset())


def kept(virtual: Iterable[Pod], existing: Mapping[str, tuple[Pod, ...]], initialized: Iterable[str]) -> BufferRoom:
    """What a result says of the virtual pods that it was asked for.

    Args:
        virtual: they.
        existing: pods by key of the existing node that takes them; others than those of buffers are looked over.
        initialized: keys of the nodes that are.
    """
    there = set(initialized)
    placed = [(key, buffer_of(pod)) for key, pods in existing.items() for pod in pods if _is_of_buffer(pod)]
    ready = Counter(buffer for key, buffer in placed if key in there)
    return BufferRoom(ready, Counter(map(buffer_of, virtual)), frozenset(key for key, _ in placed))
