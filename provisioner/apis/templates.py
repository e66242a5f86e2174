"""What the API server, its built-in admission and our webhook make of a template: the pod that a controller would create of it.

Whoever asks what pods will be before there are any asks here: DaemonSets, CapacityBuffers, `dovetail plan`, `dovetail why`. In the API server's
order: defaults of a Pod, LimitRanger, Priority, DefaultTolerationSeconds, ExtendedResourceToleration (of EKS only), RuntimeClass, webhooks. Source:
kubernetes 1.36 `pkg/apis/core/v1/defaults.go` and `plugin/pkg/admission`. Not known: what images were built for, and what other webhooks add.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from provisioner.apis import names
from provisioner.apis.core import (
    Amounts,
    Container,
    EphemeralVolumeSource,
    LimitRange,
    Node,
    PersistentVolumeClaimSource,
    PersistentVolumeClaimTemplate,
    PodSpec,
    PodTemplateSpec,
    PriorityClass,
    ResourceRequirements,
    RuntimeClass,
    Volume,
)
from provisioner.apis.meta import OwnerReference
from provisioner.apis.shapes import PodShape, is_pod_level, shape_of
from provisioner.apis.stamping import StampFacts, seats, stamped
from provisioner.values.message import Said
from provisioner.values.quantity import QuantityError
from provisioner.values.resources import Resources
from provisioner.values.taints import NO_EXECUTE, NO_SCHEDULE, Toleration

SYSTEM_PRIORITIES: Final[Mapping[str, int]] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
"""PriorityClasses that the API server makes itself."""
_GRACE_SECONDS: Final = 30
_PREEMPTS: Final = "PreemptLowerPriority"
_FOR_A_WHILE: Final = tuple(
    Toleration(key=key, operator="Exists", effect=NO_EXECUTE, toleration_seconds=300)
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
)


MOST_DEFAULTS: Final = 128
"""Resources for which the LimitRanges of a namespace count, the first by name: a pod of more says more than is kept of it."""


@dataclass(frozen=True, slots=True)
class ContainerDefaults:
    """What a container gets that it does not give itself: the LimitRanges of one namespace together."""

    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Admission:
    """What of a cluster decides what admission makes of a pod.

    Attributes:
        defaults: by namespace.
        runtime_classes: by name.
        priority_classes: by name; those of the system need not be among them.
        extended: whether pods tolerate taints whose keys are extended resources that they request, as on EKS.
    """

    defaults: Mapping[str, ContainerDefaults] = field(default_factory=dict)
    runtime_classes: Mapping[str, RuntimeClass] = field(default_factory=dict)
    priority_classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    extended: bool = False


NO_ADMISSION: Final = Admission()


@dataclass(frozen=True, slots=True)
class Admitted:
    """What becomes of a template.

    Attributes:
        template: with everything that a pod of it will have.
        refusal: why the API server creates no such pod; "" where it does.
        unknown: classes that it names and nobody knows; what they would add is left out, and the API server may refuse the pod.
    """

    template: PodTemplateSpec
    refusal: str = ""
    unknown: tuple[str, ...] = ()

    def shape(self, namespace: str, *, daemon: bool = False) -> PodShape:
        """The shape of its pods."""
        return shape_of(self.template.spec, namespace=namespace, labels=self.template.metadata.labels, daemon=daemon)


def admitted(template: PodTemplateSpec, namespace: str, admission: Admission = NO_ADMISSION) -> Admitted:
    """The pod that a cluster makes of a template, without the webhook. Cost: O(containers * `MOST_DEFAULTS` + tolerations²)."""
    spec = _limited(_defaulted(template.spec), admission.defaults.get(namespace))
    unknown = []
    priority, runtime = spec.priority_class_name, spec.runtime_class_name
    if priority and priority not in admission.priority_classes and priority not in SYSTEM_PRIORITIES:
        unknown.append(f"PriorityClass {priority}")
    if runtime and runtime not in admission.runtime_classes:
        unknown.append(f"RuntimeClass {runtime}")
    spec = _tolerating_for_a_while(_prioritized(spec, admission.priority_classes))
    if admission.extended:
        spec = _tolerating_its_resources(spec)
    spec, refusal = _run_by(spec, admission.runtime_classes.get(runtime))
    return Admitted(msgspec.structs.replace(template, spec=spec), refusal, tuple(unknown))


def admitted_pods(
    template: PodTemplateSpec, admission: Admission, facts: StampFacts, count: int = 1, standing: int = 0
) -> list[tuple[int, Admitted]]:
    """The next pods of a template, by what they become: they are all alike, but for a share on demand.

    Args:
        template: of them; `owned` where a workload makes them.
        admission: what built-in admission goes by.
        facts: what the webhook goes by, and their namespace.
        count: of pods.
        standing: pods that the owner has already.
    """
    made = admitted(template, facts.namespace, admission)
    if made.refusal:
        return [(count, made)]
    seated = seats(made.template, facts, count, standing)
    return [(some, replace(made, template=stamped(made.template, theirs))) for some, theirs in seated]


def are_of_eks(nodes: Iterable[Node]) -> bool:
    """Whether a cluster is EKS's, which no other object says: by the version of any kubelet ("v1.36.1-eks-1a2b3c4")."""
    return any("-eks-" in node.status.node_info.kubelet_version for node in nodes)


def owned(template: PodTemplateSpec, kind: str) -> PodTemplateSpec:
    """A template that says which controller its pods will have, by the kind of the workload."""
    owner = controller({"Deployment": "ReplicaSet"}.get(kind, kind), "template", "template")
    metadata = msgspec.structs.replace(template.metadata, owner_references=(owner,))
    return msgspec.structs.replace(template, metadata=metadata)


def controller(kind: str, name: str, uid: str) -> OwnerReference:
    """What the pods of a workload of this kind say of it."""
    version = "batch/v1" if kind == "Job" else "apps/v1"
    return OwnerReference(api_version=version, kind=kind, name=name, uid=uid, controller=True)


def own_claims(
    volumes: Sequence[Volume], claims: Sequence[PersistentVolumeClaimTemplate], made: Mapping[str, str]
) -> tuple[Volume, ...]:
    """The volumes of a StatefulSet's pod: a claim that exists by its name, one that does not as the controller would make it.

    What is yet to be created is written like a generic ephemeral volume: to a scheduler that is the same, and such pods share one shape.

    Args:
        volumes: of the template.
        claims: volumeClaimTemplates.
        made: the names of those that exist, by template.
    """
    own = []
    for template in claims:
        name = template.metadata.name
        if name in made:
            own.append(Volume(name=name, persistent_volume_claim=PersistentVolumeClaimSource(claim_name=made[name])))
        else:
            source = EphemeralVolumeSource(volume_claim_template=PersistentVolumeClaimTemplate(spec=template.spec))
            own.append(Volume(name=name, ephemeral=source))
    named = {volume.name for volume in own}  # they come before volumes of the same name in the pod's template
    return (*(each for each in volumes if each.name not in named), *own)


# --- defaults of a Pod ----------------------------------------------------------------------------------------------


def _defaulted(spec: PodSpec) -> PodSpec:
    """With a scheduler and a grace period; limits are the requests that a container, or the pod as a whole, does not give itself."""
    grace = spec.termination_grace_period_seconds
    spec = msgspec.structs.replace(
        spec,
        scheduler_name=spec.scheduler_name or names.DEFAULT_SCHEDULER_NAME,
        termination_grace_period_seconds=_GRACE_SECONDS if grace is None else grace,
    )
    spec = _each_container(spec, lambda one: _completed(one, one.resources.limits, {}))
    given = spec.resources
    if given is None or not given.limits:
        return spec
    asked = {name for one in (*spec.containers, *spec.init_containers) for name in one.resources.requests}
    alone = msgspec.structs.replace(spec, resources=None, overhead={})
    total = shape_of(alone, namespace="", labels={}).requests.to_wire()
    summed: Amounts = {name: total.get(name, "0") for name in (names.CPU, names.MEMORY) if name in asked}
    limits = {name: amount for name, amount in given.limits.items() if is_pod_level(name)}
    own = ResourceRequirements(requests={**limits, **summed, **given.requests}, limits=given.limits)
    return msgspec.structs.replace(spec, resources=own)


def _each_container(spec: PodSpec, change: Callable[[Container], Container]) -> PodSpec:
    return msgspec.structs.replace(
        spec,
        containers=tuple(map(change, spec.containers)),
        init_containers=tuple(map(change, spec.init_containers)),
    )


def _completed(container: Container, requests: Amounts, limits: Amounts) -> Container:
    """With the amounts that it does not give itself."""
    given = container.resources
    if requests.keys() <= given.requests.keys() and limits.keys() <= given.limits.keys():
        return container
    whole = ResourceRequirements(requests={**requests, **given.requests}, limits={**limits, **given.limits})
    return msgspec.structs.replace(container, resources=whole)


# --- admission plugins ----------------------------------------------------------------------------------------------


def container_defaults(ranges: Iterable[LimitRange]) -> ContainerDefaults:
    """What LimitRanger adds to containers: of LimitRanges that differ, the first by name. Cost: O(what they say), sorted."""
    requests: Amounts = {}
    limits: Amounts = {}
    for one in sorted(ranges, key=lambda found: found.metadata.name):
        asked: Amounts = {}
        most: Amounts = {}
        for item in one.spec.limits:
            if item.type == "Container":
                own = {**item.max, **item.default}  # the API server completes the LimitRange itself like that
                most |= own
                asked |= {**item.min, **own, **item.default_request}
        for known, more in ((requests, asked), (limits, most)):
            for name, amount in more.items():
                if len(known) < MOST_DEFAULTS:
                    known.setdefault(name, amount)
        if len(requests) == len(limits) == MOST_DEFAULTS:
            break
    return ContainerDefaults(requests, limits)


def _limited(spec: PodSpec, own: ContainerDefaults | None) -> PodSpec:
    """LimitRanger: requests and limits are added independently, after the defaults above."""
    if own is None:
        return spec
    return _each_container(spec, lambda one: _completed(one, own.requests, own.limits))


def _prioritized(spec: PodSpec, classes: Mapping[str, PriorityClass]) -> PodSpec:
    """Priority: of the class, or of the default class with the least value. One that the template gives itself is taken at its word."""
    name = spec.priority_class_name
    if not name:
        defaults = [one for one in classes.values() if one.global_default]
        name = min(defaults, key=lambda one: (one.value, one.metadata.name)).metadata.name if defaults else ""
    known = classes.get(name)
    value = SYSTEM_PRIORITIES.get(name, 0) if known is None else known.value
    policy = _PREEMPTS if known is None else known.preemption_policy
    return msgspec.structs.replace(
        spec,
        priority_class_name=name,
        priority=value if spec.priority is None else spec.priority,
        preemption_policy=spec.preemption_policy or policy,
    )


def _tolerating_for_a_while(spec: PodSpec) -> PodSpec:
    """DefaultTolerationSeconds."""
    missing = tuple(
        one
        for one in _FOR_A_WHILE
        if not any(mine.key in ("", one.key) and mine.effect in ("", NO_EXECUTE) for mine in spec.tolerations)
    )
    return msgspec.structs.replace(spec, tolerations=spec.tolerations + missing) if missing else spec


def _tolerating_its_resources(spec: PodSpec) -> PodSpec:
    """ExtendedResourceToleration."""
    asked = {name for one in (*spec.containers, *spec.init_containers) for name in one.resources.requests}
    extended = sorted(
        name for name in asked if "/" in name and "kubernetes.io/" not in name and name[:9] != "requests."
    )
    wanted = (Toleration(key=name, operator="Exists", effect=NO_SCHEDULE) for name in extended)
    missing = tuple(one for one in wanted if one not in spec.tolerations)
    return msgspec.structs.replace(spec, tolerations=spec.tolerations + missing) if missing else spec


def _run_by(spec: PodSpec, known: RuntimeClass | None) -> tuple[PodSpec, str]:
    """RuntimeClass: its overhead, selector and tolerations; and why the pod is refused."""
    overhead = known.overhead.pod_fixed if known is not None and known.overhead is not None else {}
    if known is None or not overhead:
        if spec.overhead and (known is not None or not spec.runtime_class_name):
            return spec, Said("spec.overhead is set, but no RuntimeClass of the pod defines one; remove it")
    elif spec.overhead and not _equal(spec.overhead, overhead):
        return spec, Said(f"spec.overhead differs from that of RuntimeClass {known.metadata.name}; remove it")
    else:
        spec = msgspec.structs.replace(spec, overhead=overhead)
    if known is None or known.scheduling is None:
        return spec, ""
    selector = known.scheduling.node_selector
    for key, value in sorted(selector.items()):
        given = spec.node_selector.get(key, value)
        if given != value:
            return spec, Said(
                f"RuntimeClass {known.metadata.name} selects nodes with {key}={value}, but spec.nodeSelector has "
                f"{key}={given}; remove one of them"
            )
    tolerations = _merged((*spec.tolerations, *known.scheduling.tolerations))
    selector = {**spec.node_selector, **selector}
    return msgspec.structs.replace(spec, node_selector=selector, tolerations=tolerations), ""


def _equal(one: Amounts, other: Amounts) -> bool:
    try:
        return Resources.parse(one) == Resources.parse(other)
    except QuantityError:
        return one == other


def _merged(every: Sequence[Toleration]) -> tuple[Toleration, ...]:
    """Without those that another one makes superfluous; of equal ones the first stays."""
    kept: list[Toleration] = []
    for number, one in enumerate(every):
        later = (other for other in every[number + 1 :] if other != one)
        if not any(_covers(other, one) for other in (*kept, *later)):
            kept.append(one)
    return tuple(kept)


def _covers(wide: Toleration, narrow: Toleration) -> bool:
    """Whether all that `narrow` tolerates, for as long, `wide` does. Source: kubernetes `pkg/util/tolerations`."""
    if wide == narrow:
        return True
    if wide.key not in (narrow.key, "") or (not wide.key and wide.operator != "Exists"):
        return False
    if wide.effect not in (narrow.effect, ""):
        return False
    patience = wide.toleration_seconds if wide.effect == NO_EXECUTE else None
    if patience is not None and (narrow.toleration_seconds is None or patience < narrow.toleration_seconds):
        return False
    if wide.operator in ("", "Equal"):
        return narrow.operator in ("", "Equal") and wide.value == narrow.value
    return wide.operator == "Exists"
