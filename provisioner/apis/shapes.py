"""What decides where a pod may run: one immutable, interned value that all equal pods share.

Effective requests follow kube-scheduler (k8s.io/component-helpers/resource): containers are added up; init
containers set a floor, each together with the sidecars started before it; pod-level resources replace the sums
of cpu, memory and huge pages; overhead comes on top. Sums are exact and rounded up once.

While a resize is under way, what is asked, allocated and in use differ. kube-scheduler 1.36 takes the largest of the three for
each container and adds up; 1.37 adds up three times and takes the largest sum. The larger of both counts, whatever the
API server's version: who decodes a pod need not know it, the three programs agree, and a node is never promised more than either
scheduler would put on it. The two are equal for a pod of which its kubelet has told nothing, so for all that wait for a node. They
differ until a resize has ended, by what a pod trades between its containers (1.37 counts less), and by what its kubelet tells of plain
init containers and of the pod as a whole (1.37 may count more). So much room of one node is left unused for so long.
"""

import functools
import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, Literal
from weakref import WeakValueDictionary

import msgspec

from provisioner.apis import names
from provisioner.apis.core import (
    Affinity,
    Amounts,
    Container,
    ContainerPort,
    NodeAffinity,
    NodeSelector,
    PodAffinity,
    PodAffinityTerm,
    PodResourceClaim,
    PodSpec,
    ResourceRequirements,
    TopologySpreadConstraint,
    Volume,
)
from provisioner.apis.footprint import CLASS_BYTES, CONSTRAINT_BYTES, POD_BYTES, footprint, within
from provisioner.apis.meta import LabelSelector, Object
from provisioner.values.message import Said
from provisioner.values.quantity import Quantity, QuantityError
from provisioner.values.resources import EMPTY, PLENTIFUL, Resources
from provisioner.values.taints import Toleration

KEY_HEX: Final = 16
_FEW_AMOUNTS: Final = 16
_NANOS_PER_MILLI = 10**6
_NANOS_PER_UNIT = 10**9
_Exact = dict[str, int]  # resource -> billionths of a unit


class ContainerStatus(Object, frozen=True, kw_only=True):
    """What the kubelet has given to a container."""

    name: str = ""
    allocated_resources: Amounts = msgspec.field(default_factory=dict)
    resources: ResourceRequirements | None = None


class ResizeStatus(Object, frozen=True, kw_only=True):
    """The part of a pod's status that its effective requests depend on."""

    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    allocated_resources: Amounts = msgspec.field(default_factory=dict)
    resources: ResourceRequirements | None = None


_NOTHING_TOLD: Final = ResizeStatus()


class PodShape(msgspec.Struct, frozen=True, kw_only=True, eq=False, weakref=True, dict=True):
    """The class of a pod: equal pods have one shape, the same object within a process.

    Attributes:
        key: 16 hex digits over everything below; equal in every process, whatever the order of dicts.
        labels: less those that differ between brothers (pod name, index), unless the pod's own terms name them.
        requests: effective, with `pods: 1`.
        limits: effective.
        affinity: of a DaemonSet's pod without the field that pins it to its node.
        host_ports: every port of the node that the pod takes.
        volumes: only those with a claim.
        features: that the kubelet of its node must declare, sorted (see `features_of`).
        error: "" or why this pod cannot be judged; it must not be planned, and requests are empty where they cannot be read.
        unjudged: it says more than is kept of a pod, so it may match any selector (see `cut_shape`).
    """

    key: str
    namespace: str
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    requests: Resources = EMPTY
    limits: Resources = EMPTY
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    spread: tuple[TopologySpreadConstraint, ...] = ()
    host_ports: tuple[ContainerPort, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    priority: int = 0
    priority_class_name: str = ""
    scheduler_name: str = names.DEFAULT_SCHEDULER_NAME
    preemption_policy: str = ""
    runtime_class_name: str = ""
    features: tuple[str, ...] = ()
    error: str = ""
    unjudged: bool = False

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, PodShape) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def __reduce__(self) -> tuple[object, ...]:
        return _of_key, (self.key, _fields(self))  # one object for all equal ones in the other process, too

    def __repr__(self) -> str:
        return f"PodShape({self.key} {self.namespace} {dict(self.requests)}{' ' + self.error if self.error else ''})"

    @property
    def derived(self) -> dict[str, object]:
        """What others conclude from this value alone and keep with it, so that it is concluded once per class."""
        return self.__dict__


_by_key: WeakValueDictionary[str, PodShape] = WeakValueDictionary()


def shape_of(
    spec: PodSpec,
    *,
    namespace: str,
    labels: Mapping[str, str],
    status: ResizeStatus | None = None,
    resize_infeasible: bool = False,
    daemon: bool = False,
) -> PodShape:
    """The shape of a pod; a quantity that cannot be read gives a shape with `error`, never an exception.

    Args:
        spec: of the pod.
        namespace: of the pod.
        labels: all of the pod's.
        status: what the kubelet has allocated; None, or nothing in it, for a pod that has no kubelet yet.
        resize_infeasible: the kubelet has refused the pod's resize.
        daemon: owned by a DaemonSet, whose controller pins each pod to one node.

    Cost: about 100 us; `decode_pod` calls it once for each new class.
    """
    if status == _NOTHING_TOLD:
        status = None
    try:
        if status is None and _is_simple(spec):
            container = spec.containers[0]
            requests = _alone(tuple(container.resources.requests.items()))
            limits = _limited(tuple(container.resources.limits.items()))
        else:
            requests = _effective("requests", spec, status, infeasible=resize_infeasible)
            limits = _effective("limits", spec, status, infeasible=resize_infeasible)
        error = ""
    except _UnreadableError as unreadable:
        requests, limits, error = EMPTY, EMPTY, str(unreadable)
    return _interned(
        {
            "namespace": sys.intern(namespace),
            "labels": _shared_labels(labels, spec),
            "requests": requests,
            "limits": limits,
            "node_selector": {sys.intern(key): sys.intern(value) for key, value in spec.node_selector.items()},
            "affinity": _unpinned(spec.affinity) if daemon else spec.affinity,
            "tolerations": spec.tolerations,
            "spread": spec.topology_spread_constraints,
            "host_ports": host_ports_of(spec),
            "volumes": tuple(volume for volume in spec.volumes if _has_claim(volume)),
            "resource_claims": spec.resource_claims,
            "priority": spec.priority or 0,
            "priority_class_name": spec.priority_class_name,
            "scheduler_name": spec.scheduler_name or names.DEFAULT_SCHEDULER_NAME,
            "preemption_policy": spec.preemption_policy,
            "runtime_class_name": spec.runtime_class_name,
            "features": features_of(spec),
            "error": error,
        }
    )


def unreadable_shape(namespace: str, labels: Mapping[str, str], error: str) -> PodShape:
    """The shape of a pod whose spec could not even be decoded."""
    return _interned({"namespace": namespace, "labels": dict(labels), "error": error})


_ALL: Final = LabelSelector()
_ALONE: Final = PodAffinityTerm(topology_key=names.HOSTNAME_LABEL, label_selector=_ALL, namespace_selector=_ALL)
_KEEPS_ALL_AWAY: Final = Affinity(pod_anti_affinity=PodAffinity(required=(_ALONE,)))
_PORT_BYTES: Final = 64
"""In memory. Of 256 ports, as many as may be planned, half of `CONSTRAINT_BYTES` are left."""
_LONGEST_NAME: Final = 253
_FEW_TEXTS: Final = 40
_SHORT_TEXTS: Final = 1024
"""Characters. So little is never too much, which is seen without counting bytes."""
_MOST_NAMES: Final = CLASS_BYTES // 64
"""Resources: so many names with amounts take more than `CLASS_BYTES` for sure."""
_PARTS: Final = 4
"""Requests, tolerations, volumes and ports: what is kept of each where there is too much of anything."""


def is_over_budget(shape: PodShape) -> bool:
    """Whether all of this is more than is kept of a pod. Its constraints were bounded as text, before they were read."""
    labels, selector = shape.labels, shape.node_selector
    texts = (*labels, *labels.values(), *selector, *selector.values(), *shape.requests, *shape.limits)
    if not shape.volumes and not shape.host_ports and len(texts) <= _FEW_TEXTS and sum(map(len, texts)) <= _SHORT_TEXTS:
        return False
    own = (labels, dict(labels), selector, shape.requests.to_dict(), shape.limits.to_dict())
    ports = len(shape.host_ports) * _PORT_BYTES
    return ports > CONSTRAINT_BYTES or footprint((*own, shape.volumes, shape.scheduler_name), CLASS_BYTES) > CLASS_BYTES


def cut_shape(
    spec: PodSpec, *, namespace: str, status: ResizeStatus | None = None, resize_infeasible: bool = False
) -> PodShape:
    """What is kept of a pod that says more than `POD_BYTES`: what it takes of its node, and what it tolerates.

    Its labels are not known any more: it may match any selector. Nor is whom it must be kept apart from: where it says anything about
    that, nobody is planned onto its node. Of amounts, tolerations, claims and ports those that fit are kept: of amounts those of
    which every node has some come first, of tolerations that of a node that is drained. Amounts that are not kept are not read.

    Args: as of `shape_of`. Cost: O(spec).
    """
    mentioned = _mentioned(spec)
    few = PLENTIFUL & mentioned | set(sorted(mentioned - PLENTIFUL)[:_MOST_NAMES])
    affinity = spec.affinity.pod_anti_affinity if spec.affinity is not None else None
    room = CLASS_BYTES // _PARTS
    tolerations = sorted(spec.tolerations, key=lambda one: not one.tolerates(names.DISRUPTED_TAINT))
    shape = shape_of(
        msgspec.structs.replace(
            spec,
            node_selector={},
            affinity=_KEEPS_ALL_AWAY if affinity is not None and affinity.required else None,
            topology_spread_constraints=(),
            tolerations=within(tolerations, room),
            volumes=within((one for one in spec.volumes if one.persistent_volume_claim is not None), room),
            scheduler_name=spec.scheduler_name[:_LONGEST_NAME],
            resource_claims=(),
            containers=_asking_for(spec.containers, few),
            init_containers=_asking_for(spec.init_containers, few),
            resources=None if spec.resources is None else _only(spec.resources, few),
            overhead={name: spec.overhead[name] for name in few & spec.overhead.keys()},
        ),
        namespace=namespace,
        labels={},
        status=status,
        resize_infeasible=resize_infeasible,
    )
    amounts = sorted(shape.requests.items(), key=lambda one: (one[0] not in PLENTIFUL, one[0]))
    return altered_shape(
        shape,
        requests=Resources.of(dict(within(amounts, room))),
        limits=EMPTY,
        host_ports=within(shape.host_ports, room),
        error=Said(
            f"the labels, resource names and constraints of the pod exceed the limit of "
            f"{POD_BYTES // 1024} KiB for a pod; shorten them so that a node can be launched for it"
        ),
        unjudged=True,
    )


def names_too_much(spec: PodSpec) -> bool:
    """Whether a spec names more resources than is kept of a pod, which is seen without reading amounts."""
    return len(_mentioned(spec)) > _MOST_NAMES


def _mentioned(spec: PodSpec) -> set[str]:
    own = spec.resources or ResourceRequirements()
    every = (own, *(one.resources for one in (*spec.containers, *spec.init_containers)))
    return set(spec.overhead).union(*(one.requests for one in every), *(one.limits for one in every))


def _asking_for(containers: Iterable[Container], few: AbstractSet[str]) -> tuple[Container, ...]:
    return tuple(msgspec.structs.replace(one, resources=_only(one.resources, few)) for one in containers)


def _only(amounts: ResourceRequirements, few: AbstractSet[str]) -> ResourceRequirements:
    """Without limits, which are not kept."""
    return ResourceRequirements(requests={name: amounts.requests[name] for name in few & amounts.requests.keys()})


def altered_shape(shape: PodShape, **fields: Any) -> PodShape:
    """The shape that differs from `shape` in these fields alone; the same object where none differs."""
    return _interned(_fields(shape) | fields)


def grown_shape(shape: PodShape, spec: PodSpec) -> PodShape:
    """The shape of the same pod once its containers ask for what `spec` says, of which nothing else is read; never less than it asks for now.

    The same object where that is no more, and where the pod or an amount cannot be read. Cost: about 50 us.
    """
    if shape.error:
        return shape
    try:
        requests, limits = (_effective(kind, spec, None, infeasible=False) for kind in ("requests", "limits"))
    except _UnreadableError:
        return shape
    more = shape.requests.maximum(requests)
    if more == shape.requests:
        return shape
    return altered_shape(shape, requests=more, limits=shape.limits.maximum(limits))


def _fields(shape: PodShape) -> dict[str, Any]:
    """All but the key."""
    return {name: getattr(shape, name) for name in PodShape.__struct_fields__ if name != "key"}


def interned_shapes() -> int:
    """How many shapes are alive in this process."""
    return len(_by_key)


def _interned(fields: dict[str, Any]) -> PodShape:
    canonical = dict(fields)
    for name in ("requests", "limits"):
        if name in canonical:
            canonical[name] = canonical[name].to_dict()
    for name in ("features", "unjudged"):  # plans of older versions have the keys of those without
        if not canonical.get(name):
            canonical.pop(name, None)
    text = msgspec.json.encode(canonical, order="sorted")
    return _of_key(hashlib.blake2b(text, digest_size=KEY_HEX // 2).hexdigest(), fields)


def _of_key(key: str, fields: dict[str, Any]) -> PodShape:
    # setdefault of two threads may rarely keep two objects; they are equal, so only memory is lost.
    return _by_key.get(key) or _by_key.setdefault(key, PodShape(key=key, **fields))


def _shared_labels(labels: Mapping[str, str], spec: PodSpec) -> dict[str, str]:
    own = labels.keys() & names.PER_POD_LABELS
    if own:
        own -= selected_labels(spec.affinity, spec.topology_spread_constraints)
    return {sys.intern(key): sys.intern(labels[key]) for key in sorted(labels) if key not in own}


def selected_labels(affinity: Affinity | None, spread: Iterable[TopologySpreadConstraint]) -> frozenset[str]:
    """Keys of the labels of pods that these terms look at; labels of nodes and topology keys are something else."""
    terms: list[PodAffinityTerm | TopologySpreadConstraint] = list(spread)
    for group in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ():
        if group is not None:
            terms += [*group.required, *(one.pod_affinity_term for one in group.preferred)]
    keys: set[str] = set()
    for term in terms:
        keys.update(term.match_label_keys)
        if isinstance(term, PodAffinityTerm):
            keys.update(term.mismatch_label_keys)
        if term.label_selector is not None:
            keys.update(term.label_selector.match_labels)
            keys.update(one.key for one in term.label_selector.match_expressions)
    return frozenset(keys)


def _unpinned(affinity: Affinity | None) -> Affinity | None:
    """Without the matchFields by which the DaemonSet controller gives each pod its node."""
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return affinity
    terms = tuple(
        msgspec.structs.replace(term, match_fields=()) for term in affinity.node_affinity.required.node_selector_terms
    )
    left = tuple(dict.fromkeys(term for term in terms if term.match_expressions))
    required = NodeSelector(node_selector_terms=left) if left else None
    node_affinity: NodeAffinity | None = None
    if required is not None or affinity.node_affinity.preferred:
        node_affinity = msgspec.structs.replace(affinity.node_affinity, required=required)
    if node_affinity is None and affinity.pod_affinity is None and affinity.pod_anti_affinity is None:
        return None
    return msgspec.structs.replace(affinity, node_affinity=node_affinity)


def _has_claim(volume: Volume) -> bool:
    return volume.persistent_volume_claim is not None or volume.ephemeral is not None


def host_ports_of(spec: PodSpec) -> tuple[ContainerPort, ...]:
    """Ports of the node that the pod takes, sorted; on the host's network every port is one."""
    containers = (*spec.containers, *(one for one in spec.init_containers if one.restart_policy == "Always"))
    ports = {
        ContainerPort(host_port=number, protocol=port.protocol, host_ip=port.host_ip)
        for container in containers
        for port in container.ports
        if (number := port.host_port or (port.container_port if spec.host_network else 0))
    }
    return tuple(sorted(ports, key=lambda port: (port.host_port, port.protocol, port.host_ip)))


FEATURES: Final = ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport", "VolumeBindMountOptions")
"""That a pod can need of its kubelet."""


def features_of(spec: PodSpec) -> tuple[str, ...]:
    """Features without which kube-scheduler refuses a node to the pod (Node `status.declaredFeatures`), sorted.

    An API server whose gates are off refuses or drops the fields that need them, so nothing depends on its version.

    Source: k8s.io/component-helpers/nodedeclaredfeatures v0.37.2; that of v0.36.2 has the first two.
    Differs: mounts of ephemeral containers, which a pod gets once it runs, are not looked at.
    """
    containers = (*spec.containers, *spec.init_containers)
    needed = (
        any(rule.action == "RestartAllContainers" for one in containers for rule in one.restart_policy_rules),
        spec.host_network and spec.host_users is False,
        any(mount.bind_mount_options for one in containers for mount in one.volume_mounts),
    )
    return tuple(name for name, is_needed in zip(FEATURES, needed, strict=True) if is_needed)


# --- effective requests ----------------------------------------------------------------------------------------


class _UnreadableError(ValueError):
    """A quantity of the pod cannot be read."""


def _is_simple(spec: PodSpec) -> bool:
    """One container of few amounts and nothing on top of it: there is nothing to add up, and the sum may be remembered."""
    if len(spec.containers) != 1 or spec.init_containers or spec.overhead or spec.resources is not None:
        return False
    amounts = spec.containers[0].resources
    return len(amounts.requests) <= _FEW_AMOUNTS and len(amounts.limits) <= _FEW_AMOUNTS


@functools.lru_cache(maxsize=4096)  # sizes are few: most pods of a cluster share theirs with others
def _alone(requests: tuple[tuple[str, str | int | float], ...]) -> Resources:
    """What a pod of one container takes. Not kept where it cannot be read."""
    exact = _exact("spec.containers[0].resources.requests", dict(requests))
    return _rounded(exact | {names.PODS: _NANOS_PER_UNIT})


@functools.lru_cache(maxsize=4096)
def _limited(limits: tuple[tuple[str, str | int | float], ...]) -> Resources:
    return _rounded(_exact("spec.containers[0].resources.limits", dict(limits)))


def _effective(
    kind: Literal["requests", "limits"], spec: PodSpec, status: ResizeStatus | None, *, infeasible: bool
) -> Resources:
    """Of the pod as a whole; limits are not allocated, nor does a pod as a whole have others while it is resized."""
    total = _by_container(kind, spec, status, infeasible=infeasible)
    overhead = _exact("spec.overhead", spec.overhead)
    if kind == "limits":
        _add(total, {name: amount for name, amount in overhead.items() if total.get(name)})
        return _rounded(total)
    if status is not None:
        total = _largest([total, _by_sum(spec, status, infeasible=infeasible)])
    _add(total, overhead)
    return _rounded(total | {names.PODS: _NANOS_PER_UNIT})


def _by_container(
    kind: Literal["requests", "limits"], spec: PodSpec, status: ResizeStatus | None, *, infeasible: bool
) -> _Exact:
    """The largest for each container, added up. Source: k8s.io/component-helpers/resource v0.36.2 PodRequests."""
    given = _statuses(status)

    def most(where: str, own: ResourceRequirements, told: str, actual: ContainerStatus | ResizeStatus | None) -> _Exact:
        asked = _exact(f"{where}.{kind}", getattr(own, kind))
        if actual is None or actual.resources is None:
            return asked
        known = [_exact(f"{told}resources.{kind}", getattr(actual.resources, kind))]
        if kind == "requests":
            known.append(_exact(f"{told}allocatedResources", actual.allocated_resources))
        return _largest(known if infeasible else [asked, *known])

    def of_container(where: str, one: Container, *, resizable: bool) -> _Exact:
        actual = given.get(one.name) if resizable else None
        return most(f"{where}.resources", one.resources, f"status of {one.name}: ", actual)

    total = _pod_total(spec, of_container)
    if spec.resources is not None:
        effective = most("spec.resources", spec.resources, "status.", status if kind == "requests" else None)
        total |= {name: effective.get(name, 0) for name in getattr(spec.resources, kind) if is_pod_level(name)}
    return total


def _by_sum(spec: PodSpec, status: ResizeStatus, *, infeasible: bool) -> _Exact:
    """The largest of the sums of what is asked, allocated and in use. Source: k8s.io/component-helpers/resource v0.37.2 PodRequests."""
    given = _statuses(status)

    def asked(where: str, one: Container, **_: bool) -> _Exact:
        return _exact(f"{where}.resources.requests", one.resources.requests)

    def allocated(where: str, one: Container, **_: bool) -> _Exact:
        known = given.get(one.name)
        if known is not None and known.allocated_resources:
            return _exact(f"status of {one.name}: allocatedResources", known.allocated_resources)
        return {} if infeasible else asked(where, one)

    def in_use(where: str, one: Container, **_: bool) -> _Exact:
        known = given.get(one.name)
        if known is not None and known.resources is not None and known.resources.requests:
            return _exact(f"status of {one.name}: resources.requests", known.resources.requests)
        return allocated(where, one)

    told = status.resources.requests if status.resources is not None else {}
    whole = [_exact("status.allocatedResources", status.allocated_resources), _exact("status.resources.requests", told)]
    sums = whole if all(whole) else [_pod_total(spec, allocated), _pod_total(spec, in_use)]
    total = _largest(sums if infeasible else [*sums, _pod_total(spec, asked)])
    own = spec.resources.requests if spec.resources is not None else {}
    if any(map(is_pod_level, own)):
        over = [] if infeasible and status.resources is not None else [_exact("spec.resources.requests", own)]
        effective = _largest([*over, *whole] if status.resources is not None else over)
        total |= {name: amount for name, amount in effective.items() if is_pod_level(name)}
    return total


def _pod_total(spec: PodSpec, amounts: Callable[..., _Exact]) -> _Exact:
    """The sum over containers, or the most that any step of initialisation takes, whichever is larger."""
    total: _Exact = {}
    for position, container in enumerate(spec.containers):
        _add(total, amounts(f"spec.containers[{position}]", container, resizable=True))
    sidecars: _Exact = {}
    floor: _Exact = {}  # of all steps so far; a step changes what its own container names, and nothing else
    for position, container in enumerate(spec.init_containers):
        is_sidecar = container.restart_policy == "Always"
        own = amounts(f"spec.initContainers[{position}]", container, resizable=is_sidecar)
        if is_sidecar:
            _add(total, own)
            _add(sidecars, own)
        for name, amount in own.items():
            step = sidecars[name] if is_sidecar else amount + sidecars.get(name, 0)
            floor[name] = max(floor.get(name, step), step)
    return _largest([total, floor])


def _statuses(status: ResizeStatus | None) -> dict[str, ContainerStatus]:
    if status is None:
        return {}
    return {one.name: one for one in (*status.container_statuses, *status.init_container_statuses)}


def is_pod_level(name: str) -> bool:
    """Whether a pod as a whole may ask for it, in place of its containers."""
    return name in (names.CPU, names.MEMORY) or name.startswith(names.HUGEPAGES_PREFIX)


def _exact(where: str, wire: Amounts) -> _Exact:
    amounts: _Exact = {}
    for name, text in wire.items():
        try:
            amounts[name] = Quantity.parse(text).nanos
        except QuantityError as error:
            raise _UnreadableError(f"{where}[{name}]: {error}") from error
    return amounts


def _add(total: _Exact, more: _Exact) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _largest(vectors: Iterable[_Exact]) -> _Exact:
    largest: _Exact = {}
    for vector in vectors:
        for name, amount in vector.items():
            largest[name] = max(largest.get(name, amount), amount)
    return largest


def _rounded(exact: _Exact) -> Resources:
    return Resources.of(
        {
            name: -(-amount // (_NANOS_PER_MILLI if name == names.CPU else _NANOS_PER_UNIT))
            for name, amount in exact.items()
        }
    )
