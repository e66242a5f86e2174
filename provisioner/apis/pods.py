"""The compact pod: what we keep of each, a few hundred bytes, with everything equal pods share in one `PodShape`.

Decoding is the hottest path of every program (100,000 pods at a start), so it reads the parts that make up the shape
only as raw text. A digest of that text finds the shape; only the first pod of a class has its spec decoded.
"""

import contextlib
import enum
import functools
import hashlib
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

import msgspec
from msgspec import UNSET, Raw, UnsetType, field

from provisioner.apis import names
from provisioner.apis.core import (
    Affinity,
    Amounts,
    Container,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodSchedulingGate,
    PodSpec,
    ResourceRequirements,
    TopologySpreadConstraint,
    VolumeMount,
)
from provisioner.apis.footprint import AMOUNTS_BYTES, CLASS_BYTES, CONSTRAINT_BYTES, CONSTRAINT_COST, footprint, within
from provisioner.apis.meta import Object, ObjectMeta, OwnerReference, key_of
from provisioner.apis.shapes import (
    PodShape,
    ResizeStatus,
    cut_shape,
    interned_shapes,
    is_over_budget,
    names_too_much,
    selected_labels,
    shape_of,
    unreadable_shape,
)
from provisioner.values.duration import DurationError, parse_duration
from provisioner.values.taints import tolerates

__all__ = [
    "DoNotDisrupt",
    "Guard",
    "Pod",
    "PodAmounts",
    "PodShape",
    "decode_pod",
    "do_not_disrupt",
    "for_architectures",
    "is_active",
    "is_daemon",
    "is_drainable",
    "is_evictable",
    "is_mirror",
    "is_pending",
    "is_reschedulable",
    "is_stuck_terminating",
    "is_terminal",
    "is_waiting_for_eviction",
    "opted_out",
    "pod_of",
    "read_architectures",
    "read_do_not_disrupt",
]

MESSAGE_LENGTH: Final = 1024
"""Characters that are kept of what kube-scheduler says about a pod."""
_LONGEST_KNOWN: Final = 4 * MESSAGE_LENGTH
"""Bytes of a text that is remembered as it was sent."""
_WORD_LENGTH: Final = 256
"""Characters that are kept of the phase and of a reason: a kubelet may write anything there."""
_MOST_GATES: Final = 8
STUCK_AFTER: Final = timedelta(minutes=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OWNER_LENGTH: Final = 317
"""Of an owner's name, UID and kind, and as long as an apiVersion can be: the API server checks none of them, and we write them into objects."""
_KEPT_FIRST: Final = (
    names.DO_NOT_DISRUPT,
    names.CONFIG_MIRROR,
    names.DISRUPTION_COST,
    names.POD_DELETION_COST,
    names.OWN_DELETION_COST,
    names.GANG,
    names.GANG_LABEL,
    names.GANG_MINIMUM,
    *names.VOLCANO_GROUPS,
    *names.CONSUMES,
)
_KEPT_ANNOTATIONS: Final = (
    "dovetail.dev/",
    "karpenter.sh/",
    "cluster-autoscaler.kubernetes.io/",
    "autoscaling.x-k8s.io/",
)
_NEVER_KEPT: Final = frozenset({names.ON_DEMAND_TICKET, names.BUFFER_FAKE_POD})
"""A ticket is of use to the webhook alone, and no pod that exists is virtual, whatever it says."""
_ANNOTATION_BYTES: Final = 2048
"""Memory that the annotations of a pod may keep, where there are many or long ones."""
_FEW_ANNOTATIONS: Final = 4
_SHORT_ANNOTATIONS: Final = 512
"""Characters of their values."""
_SHORT_CONSTRAINTS: Final = 1024
"""Bytes of constraints that cannot be too much, whatever they say."""
_NO_ANNOTATIONS: Final[Mapping[str, str]] = {}

_PINNED: Final = re.compile(rb'"matchFields":\[\{"key":"metadata\.name","operator":"In","values":\["[^"]*"\]\}\]')
_PER_POD: Final = tuple(label.encode() for label in sorted(names.PER_POD_LABELS))
_ALIKE: Final = names.TOPOLOGY_LABELS | {names.IMAGE_ARCH_PENDING}
"""Those of few values, which many brothers have in common."""
_UNIQUE: Final = tuple(label.encode() for label in sorted(names.PER_POD_LABELS - _ALIKE))


class PodAmounts(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """What each container of a pod asks for by itself; equal pods have one, the same object.

    Attributes:
        spec: names of containers, their and the pod's requests and limits of cpu and memory, and which are sidecars; nothing else.
    """

    spec: PodSpec


class Pod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One pod, as small as it can be.

    Attributes:
        labels: all of them; the very dict of the shape where the pod has none of its own.
        annotations: only those under dovetail.dev/, karpenter.sh/, cluster-autoscaler.kubernetes.io/, autoscaling.x-k8s.io/, the mirror mark,
            the deletion cost and the names of Volcano's PodGroups.
        deleted: when the kubelet may kill it (request plus grace), by the API server's clock; None while it is wanted.
        ends_in: seconds of grace that it was given when it was deleted.
        grace_seconds: terminationGracePeriodSeconds of its spec; None when absent.
        owner: its controller, None for a pod of its own.
        node_name: "" until it is bound.
        scheduled: PodScheduled is True.
        unschedulable: PodScheduled is False with reason Unschedulable.
        scheduled_reason: the reason of PodScheduled, "" without one.
        scheduled_message: what kube-scheduler said when it found no node for it, its beginning; "" while PodScheduled is
            not False.
        gated: scheduling gates are left.
        gates: names of the first few of them.
        group: the PodGroup that it belongs to, by name; "" for a single pod. Not part of its shape: groups of equal pods are of one class.
        shape: what decides where it may run, shared with its equals.
        amounts: None where nobody asked for it, or it is too much.
    """

    name: str
    namespace: str
    uid: str
    shape: PodShape
    amounts: PodAmounts | None = None
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    created: datetime = _EPOCH
    deleted: datetime | None = None
    ends_in: int = 0
    grace_seconds: int | None = None
    owner: OwnerReference | None = None
    node_name: str = ""
    nominated_node_name: str = ""
    phase: str = "Pending"
    scheduled: bool = False
    unschedulable: bool = False
    scheduled_reason: str = ""
    scheduled_message: str = ""
    ready: bool = False
    gated: bool = False
    gates: tuple[str, ...] = ()
    group: str = ""
    start_time: datetime | None = None

    @property
    def key(self) -> str:
        """As of `meta.key_of`."""
        return key_of(self)


# --- decoding --------------------------------------------------------------------------------------------------

_Text: TypeAlias = Raw | UnsetType


class _Metadata(Object, frozen=True, kw_only=True):
    name: str
    namespace: str = "default"
    uid: str = ""
    resource_version: str = ""
    labels: _Text = UNSET
    annotations: dict[str, str] = field(default_factory=dict)
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    owner_references: tuple[OwnerReference, ...] = ()


class _Container(Object, frozen=True, kw_only=True):
    name: str = ""
    resources: _Text = UNSET
    ports: _Text = UNSET
    restart_policy: _Text = UNSET
    restart_policy_rules: _Text = UNSET
    volume_mounts: _Text = UNSET


class _Volume(Object, frozen=True, kw_only=True):
    name: _Text = UNSET
    persistent_volume_claim: _Text = UNSET
    ephemeral: _Text = UNSET


class _Spec(Object, frozen=True, kw_only=True):
    node_name: str = ""
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    node_selector: _Text = UNSET
    affinity: _Text = UNSET
    tolerations: _Text = UNSET
    topology_spread_constraints: _Text = UNSET
    volumes: tuple[_Volume, ...] = ()
    priority: _Text = UNSET
    priority_class_name: _Text = UNSET
    scheduler_name: _Text = UNSET
    preemption_policy: _Text = UNSET
    runtime_class_name: _Text = UNSET
    overhead: _Text = UNSET
    resources: _Text = UNSET
    termination_grace_period_seconds: int | None = None
    host_network: _Text = UNSET
    host_users: _Text = UNSET
    scheduling_gates: tuple[Raw, ...] = ()
    scheduling_group: _Text = UNSET
    resource_claims: _Text = UNSET


class SchedulingGroup(Object, frozen=True, kw_only=True):
    """Which PodGroup a pod is of (Kubernetes 1.37)."""

    pod_group_name: str = ""


class _Condition(Object, frozen=True, kw_only=True):
    type: str
    status: str = ""
    reason: str = ""
    message: _Text = UNSET


class _ContainerStatus(Object, frozen=True, kw_only=True):
    name: _Text = UNSET
    allocated_resources: _Text = UNSET
    resources: _Text = UNSET


class _Status(Object, frozen=True, kw_only=True):
    phase: str = ""
    conditions: tuple[_Condition, ...] = ()
    nominated_node_name: str = ""
    start_time: datetime | None = None
    container_statuses: tuple[_ContainerStatus, ...] = ()
    init_container_statuses: tuple[_ContainerStatus, ...] = ()
    allocated_resources: _Text = UNSET
    resources: _Text = UNSET


class _Wire(Object, frozen=True, kw_only=True):
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Judged(Object, frozen=True, kw_only=True):
    """The same pod, with the parts that its shape is made of decoded."""

    spec: PodSpec = PodSpec()
    status: ResizeStatus = ResizeStatus()


_WIRE: Final = msgspec.json.Decoder(_Wire)
_JUDGED: Final = msgspec.json.Decoder(_Judged)
_SAID: Final = msgspec.json.Decoder(str)
_GATE: Final = msgspec.json.Decoder(PodSchedulingGate)
_GROUP: Final = msgspec.json.Decoder(SchedulingGroup)
_LABELS: Final = msgspec.json.Decoder(dict[str, str])
_AFFINITY: Final = msgspec.json.Decoder(Affinity | None)
_SPREAD: Final = msgspec.json.Decoder(tuple[TopologySpreadConstraint, ...] | None)
_TEXT: Final = msgspec.json.Encoder()

_by_text: WeakValueDictionary[bytes, PodShape] = WeakValueDictionary()
_owners: WeakValueDictionary[str, OwnerReference] = WeakValueDictionary()
_MOUNTS: Final = msgspec.json.Decoder(tuple[VolumeMount, ...] | None)
_MOUNT_OPTIONS: Final = b'"bindMountOptions"'
"""A key that stands in few pods: the mounts of others are not read."""
_TEXTS_PER_SHAPE: Final = 8
_TEXTS_AT_LEAST: Final = 1000
_amounts_by_text: WeakValueDictionary[bytes, PodAmounts] = WeakValueDictionary()


def decode_pod(data: bytes, *, amounts: bool = False) -> Pod:
    """The pod in the JSON that the API server sent, on request with what its containers ask for by themselves.

    A pod that cannot be judged (a quantity or a spec that cannot be read, or more than is kept of a pod) still decodes; its `shape.error` says why.

    Raises:
        msgspec.MsgspecError: no JSON, or not the metadata and status of a pod.

    Cost: 30-60 us for a pod of a known class, about 300 us for the first of its class; O(data).
    """
    wire = _WIRE.decode(data)
    meta, spec, status = wire.metadata, wire.spec, wire.status
    scheduled = unschedulable = ready = infeasible = False
    reason = message = ""
    for condition in status.conditions:
        match condition.type:
            case names.POD_SCHEDULED:
                scheduled = condition.status == names.TRUE
                if condition.status == names.FALSE and not isinstance(condition.message, UnsetType):
                    message = _message(bytes(condition.message))
                reason = sys.intern(condition.reason[:_WORD_LENGTH])
                unschedulable = condition.status == names.FALSE and reason == names.UNSCHEDULABLE
            case names.READY:
                ready = condition.status == names.TRUE
            case "PodResizePending":
                infeasible = condition.reason == "Infeasible"
            case _:
                pass
    owner = _controller(meta.owner_references)
    daemon = owner is not None and _is_daemon_set(owner)
    shape, labels = _shape_and_labels(data, wire, daemon=daemon, infeasible=infeasible)
    return Pod(
        name=meta.name,
        namespace=shape.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels=labels,
        annotations=kept_annotations(meta.annotations),
        created=meta.creation_timestamp or _EPOCH,
        deleted=meta.deletion_timestamp,
        ends_in=meta.deletion_grace_period_seconds or 0,
        grace_seconds=spec.termination_grace_period_seconds,
        owner=owner,
        node_name=sys.intern(spec.node_name),
        nominated_node_name=sys.intern(status.nominated_node_name),
        phase=sys.intern(status.phase[:_WORD_LENGTH]),
        scheduled=scheduled,
        unschedulable=unschedulable,
        scheduled_reason=reason,
        scheduled_message=message,
        ready=ready,
        gated=bool(spec.scheduling_gates),
        gates=_gates(spec.scheduling_gates),
        group="" if isinstance(spec.scheduling_group, UnsetType) else _group(bytes(spec.scheduling_group)),
        start_time=status.start_time,
        shape=shape,
        amounts=_amounts(data, spec) if amounts and not shape.error else None,
    )


def _amounts(data: bytes, wire: _Spec) -> PodAmounts | None:
    """None where they take more memory than is kept of them, or where there are none."""
    parts: list[bytes | Raw | UnsetType] = [wire.overhead, wire.resources]
    for mark, containers in ((b"c", wire.containers), (b"i", wire.init_containers)):
        for one in containers:
            parts += (mark, one.name.encode(), one.resources, one.restart_policy)
    digest = hashlib.blake2b(b"\0".join([b"" if part is UNSET else part for part in parts]), digest_size=16).digest()
    if (known := _amounts_by_text.get(digest)) is not None:
        return known
    try:
        spec = _JUDGED.decode(data).spec
    except msgspec.ValidationError:
        return None
    made = PodSpec(
        containers=tuple(map(_of_amounts, spec.containers)),
        init_containers=tuple(map(_of_amounts, spec.init_containers)),
        overhead=_sized(spec.overhead),
        resources=None if spec.resources is None else _amounts_of(spec.resources),
    )
    if not spec.containers or footprint(made, AMOUNTS_BYTES) > AMOUNTS_BYTES:
        return None
    return _amounts_by_text.setdefault(digest, PodAmounts(made))


def _of_amounts(one: Container) -> Container:
    return Container(name=one.name, resources=_amounts_of(one.resources), restart_policy=one.restart_policy)


def _amounts_of(own: ResourceRequirements) -> ResourceRequirements:
    return ResourceRequirements(requests=_sized(own.requests), limits=_sized(own.limits))


def _sized(amounts: Amounts) -> Amounts:
    return {name: amounts[name] for name in (names.CPU, names.MEMORY) if name in amounts}


def _gates(written: tuple[Raw, ...]) -> tuple[str, ...]:
    found = []
    for one in written[:_MOST_GATES]:
        with contextlib.suppress(msgspec.MsgspecError):
            found.append(_GATE.decode(one).name[:_WORD_LENGTH])
    return tuple(found)


def _group(written: bytes) -> str:
    with contextlib.suppress(msgspec.MsgspecError):
        return sys.intern(_GROUP.decode(written).pod_group_name[:_WORD_LENGTH])
    return ""


def pod_of(metadata: ObjectMeta, spec: PodSpec) -> Pod:
    """The pod that a decoded object is before anything has happened to it; equal ones share their shape.

    For programs that make pods themselves (benchmarks, what-if questions); what comes from the API server is read by
    `decode_pod`, which looks at the status too.
    """
    text = _TEXT.encode((metadata.namespace, metadata.labels, spec))
    shape = _by_text.get(text)
    if shape is None:
        shape = _remembered(text, shape_of(spec, namespace=metadata.namespace or "default", labels=metadata.labels))
    return Pod(
        name=metadata.name,
        namespace=shape.namespace,
        uid=metadata.uid,
        shape=shape,
        labels=shape.labels if len(shape.labels) == len(metadata.labels) else metadata.labels,
        created=metadata.creation_timestamp or _EPOCH,
    )


def _remembered(text: bytes, shape: PodShape) -> PodShape:
    if len(_by_text) > max(_TEXTS_AT_LEAST, _TEXTS_PER_SHAPE * interned_shapes()):
        _by_text.clear()  # it only saves work: many texts of few shapes must not pile up
    _by_text[text] = shape
    return shape


def _shape_and_labels(
    data: bytes, wire: _Wire, *, daemon: bool, infeasible: bool
) -> tuple[PodShape, Mapping[str, str]]:
    text = b"" if isinstance(wire.metadata.labels, UnsetType) else bytes(wire.metadata.labels)
    own: Mapping[str, str] | None = None
    over = len(text) > CLASS_BYTES
    if over:
        text = b""
    elif any(label in text for label in _PER_POD):
        if len(text) > _LONGEST_KNOWN or any(label in text for label in _UNIQUE):
            own, text = _split_labels(text)
        else:
            own, text = _known_split(text)
    mounts = _MOUNT_OPTIONS in bytes(data) and _mounts_with_options(wire.spec)  # of a list it is a part of a buffer
    digest = _digest(text, wire, daemon=daemon, infeasible=infeasible, own=own, over=over, mounts=mounts)
    shape = _by_text.get(digest)
    if shape is None:
        over = over or _says_too_much(wire.spec)  # what its answer depends on is part of the digest
        shape = _remembered(digest, _judge(data, wire, own, daemon=daemon, infeasible=infeasible, over=over))
    return shape, shape.labels if own is None or shape.unjudged else own


def _mounts_with_options(spec: _Spec) -> bool:
    for one in (*spec.containers, *spec.init_containers):
        if one.volume_mounts is not UNSET and _MOUNT_OPTIONS in bytes(one.volume_mounts):
            try:
                mounts = _MOUNTS.decode(one.volume_mounts) or ()
            except msgspec.MsgspecError:
                return True  # such a pod cannot be judged
            if any(mount.bind_mount_options for mount in mounts):
                return True
    return False


def _says_too_much(spec: _Spec) -> bool:
    """Whether the constraints alone are more than is kept of a pod, or what else cannot be less in memory than as text."""
    parts = (spec.affinity, spec.tolerations, spec.topology_spread_constraints, spec.resource_claims)
    size = sum([len(one) for one in parts if one is not UNSET])
    if size > _SHORT_CONSTRAINTS:
        objects = sum([bytes(one).count(b"{") for one in parts if one is not UNSET])
        if size + CONSTRAINT_COST * objects > CONSTRAINT_BYTES:
            return True
    rest = (spec.node_selector, spec.scheduler_name)
    return sum([len(one) for one in rest if one is not UNSET]) > CLASS_BYTES


def _split_labels(text: bytes) -> tuple[Mapping[str, str], bytes]:
    """The labels in this JSON, and those that brothers share in one canonical text."""
    own = {sys.intern(key): sys.intern(value) for key, value in _LABELS.decode(text).items()}
    return own, msgspec.json.encode({key: own[key] for key in own.keys() - names.PER_POD_LABELS}, order="sorted")


_known_split: Final = functools.lru_cache(maxsize=4096)(_split_labels)  # brothers in one zone have one dict


def _selected(affinity: bytes, spread: bytes) -> frozenset[str]:
    """Keys of the pods' labels that these terms, as the server wrote them, look at."""
    is_short = len(affinity) + len(spread) <= _LONGEST_KNOWN
    return _known_selected(affinity, spread) if is_short else _read_selected(affinity, spread)


def _read_selected(affinity: bytes, spread: bytes) -> frozenset[str]:
    try:
        return selected_labels(
            _AFFINITY.decode(affinity) if affinity else None, (_SPREAD.decode(spread) or ()) if spread else ()
        )
    except msgspec.MsgspecError:
        return names.PER_POD_LABELS  # a pod that cannot be judged shares its class with nobody


_known_selected: Final = functools.lru_cache(maxsize=4096)(_read_selected)


def _digest(
    labels: bytes,
    wire: _Wire,
    *,
    daemon: bool,
    infeasible: bool,
    own: Mapping[str, str] | None,
    over: bool,
    mounts: bool,
) -> bytes:
    """Of everything that the shape depends on, as the server wrote it; NUL cannot stand in JSON, so parts stay apart."""
    spec, status = wire.spec, wire.status
    parts: list[bytes | Raw | UnsetType] = [
        wire.metadata.namespace.encode(),
        labels,
        wire.metadata.annotations.get(names.IMAGE_ARCHITECTURES, "").encode("utf-8", "replace"),
        b"d" * daemon + b"i" * infeasible + b"o" * over + b"m" * mounts,
        spec.node_selector,
        spec.affinity,
        spec.tolerations,
        spec.topology_spread_constraints,
        spec.priority,
        spec.priority_class_name,
        spec.scheduler_name,
        spec.preemption_policy,
        spec.runtime_class_name,
        spec.overhead,
        spec.resources,
        spec.host_network,
        spec.host_users,
        spec.resource_claims,
        status.allocated_resources,
        status.resources,
    ]
    for container in spec.containers:
        parts += (b"c", container.name.encode(), container.resources, container.ports, container.restart_policy)
        parts.append(container.restart_policy_rules)
    for container in spec.init_containers:
        parts += (b"i", container.name.encode(), container.resources, container.ports, container.restart_policy)
        parts.append(container.restart_policy_rules)
    for volume in spec.volumes:
        if volume.persistent_volume_claim is not UNSET or volume.ephemeral is not UNSET:
            parts += (b"v", volume.name, volume.persistent_volume_claim, volume.ephemeral)
    for one in (*status.container_statuses, *status.init_container_statuses):
        if one.resources is not UNSET or one.allocated_resources is not UNSET:
            parts += (b"s", one.name, one.allocated_resources, one.resources)
    texts = [b"" if part is UNSET else part for part in parts]
    if own is not None:
        # The pod's own terms may select by a label that only it has; then its value belongs to its class.
        terms = (b"" if text is UNSET else bytes(text) for text in (spec.affinity, spec.topology_spread_constraints))
        named = own.keys() & names.PER_POD_LABELS & _selected(*terms)
        texts += (f"{key}={own[key]}".encode() for key in sorted(named))
    joined = b"\0".join(texts)
    if daemon:
        joined = _PINNED.sub(b"", joined)
    return hashlib.blake2b(joined, digest_size=16).digest()


def _judge(
    data: bytes, wire: _Wire, own: Mapping[str, str] | None, *, daemon: bool, infeasible: bool, over: bool
) -> PodShape:
    namespace = wire.metadata.namespace
    raw = wire.metadata.labels
    labels = own if own is not None else {} if over or isinstance(raw, UnsetType) else _LABELS.decode(raw)
    try:
        judged = _JUDGED.decode(data)
    except msgspec.ValidationError as error:
        return unreadable_shape(namespace, labels, str(error))
    if not over and not names_too_much(judged.spec):
        spec = for_architectures(judged.spec, read_architectures(wire.metadata.annotations))
        found = shape_of(
            spec, namespace=namespace, labels=labels, status=judged.status, resize_infeasible=infeasible, daemon=daemon
        )
        if not is_over_budget(found):
            return found
    return cut_shape(judged.spec, namespace=namespace, status=judged.status, resize_infeasible=infeasible)


def _controller(references: tuple[OwnerReference, ...]) -> OwnerReference | None:
    for reference in references:
        if reference.controller:
            mine = _cut(reference)
            known = _owners.get(mine.uid)
            if known == mine:
                return known
            _owners[mine.uid] = mine
            return mine
    return None


def _cut(reference: OwnerReference) -> OwnerReference:
    texts = reference.api_version, reference.kind, reference.name, reference.uid
    if max(map(len, texts)) <= _OWNER_LENGTH:
        return reference
    version, kind, name, uid = (text[:_OWNER_LENGTH] for text in texts)
    return msgspec.structs.replace(reference, api_version=version, kind=kind, name=name, uid=uid)


def _message(text: bytes) -> str:
    return _known_message(text) if len(text) <= _LONGEST_KNOWN else _read_message(text)


def _read_message(text: bytes) -> str:
    try:
        said: str = _SAID.decode(text)
    except msgspec.MsgspecError:
        return ""  # nobody's verdict: PodScheduled counts without it
    return said[:MESSAGE_LENGTH]


_known_message: Final = functools.lru_cache(maxsize=256)(_read_message)  # kube-scheduler says the same of many pods


def kept_annotations(annotations: dict[str, str]) -> Mapping[str, str]:
    """Those of a pod that anybody here asks for, within a budget."""
    if not annotations:
        return _NO_ANNOTATIONS
    kept = {
        sys.intern(key): value
        for key, value in annotations.items()
        if (key.startswith(_KEPT_ANNOTATIONS) and key not in _NEVER_KEPT) or key in _KEPT_FIRST
    }
    if not kept:
        return _NO_ANNOTATIONS
    if len(kept) > _FEW_ANNOTATIONS or sum(map(len, kept.values())) > _SHORT_ANNOTATIONS:
        return dict(within(sorted(kept.items(), key=lambda one: one[0] not in _KEPT_FIRST), _ANNOTATION_BYTES))
    return kept


# --- architectures of images ----------------------------------------------------------------------------------------

_ARCHITECTURES: Final = re.compile(r"[a-z0-9]{1,16}(,[a-z0-9]{1,16}){0,15}", re.ASCII)


def read_architectures(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The architectures that the pod's images were built for, as the webhook found out after it was admitted; empty where nothing is known."""
    text = annotations.get(names.IMAGE_ARCHITECTURES, "")
    return tuple(sorted(set(text.split(",")))) if _ARCHITECTURES.fullmatch(text) else ()


def for_architectures(spec: PodSpec, architectures: tuple[str, ...]) -> PodSpec:
    """The spec that requires one of these architectures of its node; the same where there are none, or where it says itself which it needs."""
    if not architectures or any(names.normalized_label(key) == names.ARCH_LABEL for key in spec.node_selector):
        return spec
    affinity = spec.affinity or Affinity()
    nodes = affinity.node_affinity or NodeAffinity()
    wanted = NodeSelectorRequirement(key=names.ARCH_LABEL, operator="In", values=architectures)
    terms = (NodeSelectorTerm(),) if nodes.required is None else nodes.required.node_selector_terms
    narrowed = tuple(
        msgspec.structs.replace(term, match_expressions=(*term.match_expressions, wanted))
        if nodes.required is None or term.match_expressions or term.match_fields
        else term  # it matches no node, and with a requirement would match some
        for term in terms
    )
    required = NodeSelector(node_selector_terms=narrowed)
    nodes = msgspec.structs.replace(nodes, required=required)
    return msgspec.structs.replace(spec, affinity=msgspec.structs.replace(affinity, node_affinity=nodes))


# --- questions about one pod -----------------------------------------------------------------------------------


def is_terminal(pod: Pod) -> bool:
    """Succeeded or Failed: it will not run again and takes no room."""
    return pod.phase in ("Succeeded", "Failed")


def is_active(pod: Pod) -> bool:
    """Neither done nor being deleted."""
    return pod.deleted is None and not is_terminal(pod)


def is_daemon(pod: Pod) -> bool:
    """Owned by a DaemonSet of Kubernetes' own API group; others of that kind place their pods by their own rules."""
    return pod.owner is not None and _is_daemon_set(pod.owner)


def is_critical(pod: Pod) -> bool:
    """Of a priority class that Kubernetes keeps for itself: drains evict it after the others."""
    return pod.shape.priority_class_name in names.CRITICAL_PRIORITY_CLASSES


def _is_daemon_set(owner: OwnerReference) -> bool:
    return owner.kind == "DaemonSet" and owner.api_version.partition("/")[0] == "apps"


def is_mirror(pod: Pod) -> bool:
    """A static pod of one kubelet, shown in the API: owned by its Node or marked as a mirror."""
    return names.CONFIG_MIRROR in pod.annotations or (pod.owner is not None and pod.owner.kind == "Node")


def is_reschedulable(pod: Pod) -> bool:
    """Needs room elsewhere when its node goes; a StatefulSet's pod also while it is being deleted."""
    returning = pod.deleted is not None and pod.owner is not None and pod.owner.kind == "StatefulSet"
    return (is_active(pod) or returning) and not is_daemon(pod) and not is_mirror(pod)


def is_pending(pod: Pod) -> bool:
    """Wants a node and has none, whatever kube-scheduler has said so far; gated pods do not want one yet."""
    return not pod.node_name and not pod.gated and is_active(pod) and not is_daemon(pod) and not is_mirror(pod)


def opted_out(pod: Pod) -> bool:
    """Whether the pod demands a node that is not ours, by a NodePool label that does not exist. Source: core spec 3.3."""
    affinity = pod.shape.affinity
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return False
    terms = affinity.node_affinity.required.node_selector_terms
    return bool(terms) and all(
        any(one.key == names.NODEPOOL_LABEL and one.operator == "DoesNotExist" for one in term.match_expressions)
        for term in terms
    )


class Guard(enum.Enum):
    """What the value of karpenter.sh/do-not-disrupt is."""

    ABSENT = enum.auto()
    INVALID = enum.auto()
    """Neither "true" nor a duration above 0; it is ignored."""
    FOR_GOOD = enum.auto()
    FOR_A_TIME = enum.auto()


class DoNotDisrupt(NamedTuple):
    """A pod's annotation karpenter.sh/do-not-disrupt.

    Attributes:
        guard: what its value is.
        until: when it ends by itself; None for any other guard, and while the pod has not started: a pod that has not is protected.
    """

    guard: Guard
    until: datetime | None = None

    def holds(self, now: datetime) -> bool:
        """Whether it forbids to disrupt the pod at `now`."""
        if self.guard is Guard.FOR_A_TIME:
            return self.until is None or now < self.until
        return self.guard is Guard.FOR_GOOD


_UNGUARDED: Final = DoNotDisrupt(Guard.ABSENT)
_INVALID: Final = DoNotDisrupt(Guard.INVALID)
_FOR_GOOD: Final = DoNotDisrupt(Guard.FOR_GOOD)
_UNSTARTED: Final = DoNotDisrupt(Guard.FOR_A_TIME)


def read_do_not_disrupt(pod: Pod) -> DoNotDisrupt:
    """What the pod's annotation says; a time that ends after the last date of calendars is for good. Source: core spec 6.2."""
    text = pod.annotations.get(names.DO_NOT_DISRUPT)
    if text is None:
        return _UNGUARDED
    if text == "true":
        return _FOR_GOOD
    try:
        protected = parse_duration(text)
        if protected <= timedelta(0):
            return _INVALID
        return _UNSTARTED if pod.start_time is None else DoNotDisrupt(Guard.FOR_A_TIME, pod.start_time + protected)
    except DurationError:
        return _INVALID
    except OverflowError:
        return _FOR_GOOD


def do_not_disrupt(pod: Pod, now: datetime) -> bool:
    """Whether the pod's annotation forbids to disrupt it at `now`."""
    return names.DO_NOT_DISRUPT in pod.annotations and read_do_not_disrupt(pod).holds(now)


def is_stuck_terminating(pod: Pod, now: datetime) -> bool:
    """Should have been gone for more than a minute; its kubelet is probably dead. What ends a node asks with pods of `eviction_queue.Departures`."""
    return pod.deleted is not None and now - pod.deleted > STUCK_AFTER  # the sum may lie beyond the last date


def _stays(pod: Pod) -> bool:
    return tolerates(pod.shape.tolerations, names.DISRUPTED_TAINT)


def is_drainable(pod: Pod, now: datetime) -> bool:
    """Leaves a node that is drained: does not tolerate the taint, is no mirror, is not stuck."""
    return not _stays(pod) and not is_mirror(pod) and not is_stuck_terminating(pod, now)


def is_waiting_for_eviction(pod: Pod, now: datetime) -> bool:
    """Keeps a drain from ending; pods that may not be disrupted do, until the grace period of the node."""
    return is_drainable(pod, now) and not is_terminal(pod)


def is_evictable(pod: Pod, now: datetime) -> bool:
    """May be sent to the eviction API at `now`."""
    return is_active(pod) and not _stays(pod) and not is_mirror(pod) and not do_not_disrupt(pod, now)
