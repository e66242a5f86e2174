"""Short ways to write the parts of a scheduling problem; every argument has a harmless default."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from provisioner.apis import names
from provisioner.apis.core import (
    Affinity,
    Container,
    CSIVolumeSource,
    EphemeralVolumeSource,
    LabelledMeta,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSource,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
    PersistentVolumeClaimTemplate,
    PersistentVolumeSpec,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    ResourceRequirements,
    StorageClass,
    StorageClassMeta,
    TopologySelectorLabelRequirement,
    TopologySelectorTerm,
    TopologySpreadConstraint,
    Volume,
    VolumeClaimMeta,
    VolumeNodeAffinity,
    VolumeResourceRequirements,
)
from provisioner.apis.meta import LabelSelector, OwnerReference
from provisioner.apis.pods import Pod, PodShape
from provisioner.apis.shapes import shape_of
from provisioner.cloudprovider.types import InstanceType, Offering
from provisioner.scheduling.problem import Bin, SchedulingPool, Storage
from provisioner.values.requirement import Requirement, Requirements
from provisioner.values.resources import Resources
from provisioner.values.taints import Taint, Toleration
from tests.support.question import Problem

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
WELL_KNOWN = frozenset({"provider.example/cpu", "provider.example/gpu"})

Expression = tuple[str, str, Sequence[str]]
"""(key, operator, values)"""


def expressions(wanted: Iterable[Expression]) -> tuple[NodeSelectorRequirement, ...]:
    return tuple(NodeSelectorRequirement(key=key, operator=operator, values=tuple(v)) for key, operator, v in wanted)


def term(*wanted: Expression, fields: Iterable[Expression] = ()) -> NodeSelectorTerm:
    return NodeSelectorTerm(match_expressions=expressions(wanted), match_fields=expressions(fields))


def required(*terms: NodeSelectorTerm) -> Affinity:
    return Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=terms)))


def shape(
    cpu: str = "1",
    memory: str = "1Gi",
    *,
    more: Mapping[str, str] | None = None,
    selector: Mapping[str, str] | None = None,
    terms: Sequence[NodeSelectorTerm] | None = None,
    affinity: Affinity | None = None,
    tolerations: Iterable[Toleration] = (),
    labels: Mapping[str, str] | None = None,
    namespace: str = "default",
    priority: int = 0,
    **spec: object,
) -> PodShape:
    requests: dict[str, str | int | float] = {"cpu": cpu, "memory": memory, **(more or {})}
    if terms is not None:
        affinity = required(*terms)
    return shape_of(
        PodSpec(
            containers=(Container(name="main", resources=ResourceRequirements(requests=requests)),),
            node_selector=dict(selector or {}),
            affinity=affinity,
            tolerations=tuple(tolerations),
            priority=priority,
            **spec,  # type: ignore[arg-type]
        ),
        namespace=namespace,
        labels=labels or {},
    )


def pod(name: str, of: PodShape | None = None, *, age: int = 0, gated: bool = False) -> Pod:
    """A pending pod; `age` in seconds, older ones were created earlier."""
    own = of or shape()
    return Pod(
        name=name,
        namespace=own.namespace,
        uid=f"uid-{name}",
        shape=own,
        labels=own.labels,
        created=EPOCH - timedelta(seconds=age),
        unschedulable=True,
        gated=gated,
    )


def pods(count: int, of: PodShape | None = None, prefix: str = "pod") -> tuple[Pod, ...]:
    return tuple(pod(f"{prefix}-{number:05d}", of) for number in range(count))


def requirements(*wanted: Expression) -> Requirements:
    return Requirements.of(Requirement.of(key, operator, values) for key, operator, values in wanted)


def offering(zone: str, price: float, capacity_type: str = "on-demand", *, available: bool = True) -> Offering:
    labels = {names.ZONE_LABEL: zone, names.CAPACITY_TYPE_LABEL: capacity_type}
    return Offering(Requirements.from_labels(labels), price, available)


def instance_type(
    name: str,
    cpu: str,
    memory: str,
    price: float = 1.0,
    *,
    arch: str = "amd64",
    zones: Sequence[str] = ("a", "b"),
    capacity_types: Sequence[str] = ("on-demand", "spot"),
    unavailable: Iterable[tuple[str, str]] = (),
    more: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    max_pods: int = 110,
    overhead: Mapping[str, str] | None = None,
    offerings: Sequence[Offering] | None = None,
) -> InstanceType:
    """A type whose spot costs half; `unavailable` holds (zone, capacity type)."""
    gone = set(unavailable)
    if offerings is None:
        offerings = [
            offering(zone, price / 2 if kind == "spot" else price, kind, available=(zone, kind) not in gone)
            for zone in zones
            for kind in capacity_types
        ]
    own = {
        names.INSTANCE_TYPE_LABEL: name,
        names.ARCH_LABEL: arch,
        names.OS_LABEL: "linux",
        "provider.example/cpu": cpu,
        **(labels or {}),
    }
    sets = requirements(
        (names.ZONE_LABEL, "In", sorted({one.zone for one in offerings} or {"a"})),
        (names.CAPACITY_TYPE_LABEL, "In", sorted({one.capacity_type for one in offerings} or {"on-demand"})),
    )
    return InstanceType(
        name=name,
        requirements=Requirements.from_labels(own).merged(sets),
        capacity=Resources.parse({"cpu": cpu, "memory": memory, "pods": str(max_pods), **(more or {})}),
        overhead=Resources.parse(overhead or {}),
        offerings=tuple(offerings),
    )


SMALL = instance_type("small", "2", "4Gi", 1.0)
MEDIUM = instance_type("medium", "4", "8Gi", 2.0)
LARGE = instance_type("large", "8", "16Gi", 4.0)
FAT = instance_type("fat", "4", "32Gi", 3.0)
ARM = instance_type("arm", "4", "8Gi", 1.5, arch="arm64")
GPU = instance_type("gpu", "8", "32Gi", 20.0, more={"example.com/gpu": "2"}, labels={"provider.example/gpu": "t4"})
TYPES = (SMALL, MEDIUM, LARGE, FAT, ARM, GPU)


def pool(
    name: str = "default",
    *wanted: Expression,
    types: tuple[InstanceType, ...] = TYPES,
    labels: Mapping[str, str] | None = None,
    weight: int = 0,
    taints: Iterable[Taint] = (),
    limits: Mapping[str, str] | None = None,
    min_values: Mapping[str, int] | None = None,
) -> SchedulingPool:
    """A NodePool as scheduling sees it; `limits` are what remains of them."""
    own = Requirements.from_labels({names.NODEPOOL_LABEL: name, **(labels or {})}).merged(requirements(*wanted))
    minimum = Requirements.of(
        Requirement.of(key, "Exists", (), min_values=count) for key, count in (min_values or {}).items()
    )
    return SchedulingPool(
        name=name,
        requirements=own.merged(minimum),
        instance_types=types,
        weight=weight,
        taints=tuple(taints),
        remaining=None if limits is None else Resources.parse(limits),
        template=f"template of {name}",
    )


def node(
    name: str,
    cpu: str = "4",
    memory: str = "8Gi",
    *,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Taint] = (),
    more: Mapping[str, str] | None = None,
    max_pods: int = 110,
    running: Iterable[Pod] = (),
    attach: Mapping[str, int] | None = None,
    leaving: bool = False,
    closed: bool = False,
) -> Bin:
    """A Node with so much room left, beside the pods that run on it."""
    return Bin(
        name=name,
        labels={names.HOSTNAME_LABEL: name, names.OS_LABEL: "linux", **(labels or {})},
        room=Resources.parse({"cpu": cpu, "memory": memory, "pods": str(max_pods), **(more or {})}),
        taints=tuple(taints),
        node_name=name,
        pods=tuple(running),
        attach_limits=dict(attach or {}),
        leaving=leaving,
        closed=closed,
    )


def problem(
    of: Iterable[Pod],
    *pools: SchedulingPool,
    bins: Iterable[Bin] = (),
    daemons: Iterable[PodShape] = (),
    **more: Any,
) -> Problem:
    """A problem; `more` are fields of `Problem`."""
    return Problem(pods=tuple(of), pools=pools, bins=tuple(bins), daemons=tuple(daemons), well_known=WELL_KNOWN, **more)


# --- pods that look at other pods ---


def app(name: str, **labels: str) -> LabelSelector:
    """Selects pods by their label `app`, and by others."""
    return LabelSelector(match_labels={"app": name, **labels})


def spread(key: str, of: LabelSelector | None, skew: int = 1, **more: Any) -> TopologySpreadConstraint:
    """A hard spread unless `more` says otherwise."""
    return TopologySpreadConstraint(topology_key=key, label_selector=of, max_skew=skew, **more)


def meant(key: str, of: LabelSelector | None, **more: Any) -> PodAffinityTerm:
    return PodAffinityTerm(topology_key=key, label_selector=of, **more)


def near(key: str, of: LabelSelector | None, **more: Any) -> Affinity:
    """Required affinity to such pods."""
    return Affinity(pod_affinity=PodAffinity(required=(meant(key, of, **more),)))


def apart(key: str, of: LabelSelector | None, **more: Any) -> Affinity:
    """Required anti-affinity to such pods."""
    return Affinity(pod_anti_affinity=PodAffinity(required=(meant(key, of, **more),)))


def of_app(name: str, cpu: str = "1", memory: str = "1Gi", **more: Any) -> PodShape:
    """A shape whose label `app` is `name`."""
    labels = {"app": name, **more.pop("labels", {})}
    return shape(cpu, memory, labels=labels, **more)


# --- volumes ---

DRIVER = "csi.example.com"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"


def uses(*claims: str) -> tuple[Volume, ...]:
    """Volumes of a pod by claim."""
    return tuple(
        Volume(name=f"v{number}", persistent_volume_claim=PersistentVolumeClaimSource(claim_name=claim))
        for number, claim in enumerate(claims)
    )


def scratch(kind: str) -> tuple[Volume, ...]:
    """An ephemeral volume of a class."""
    template = PersistentVolumeClaimTemplate(spec=PersistentVolumeClaimSpec(storage_class_name=kind))
    return (Volume(name="scratch", ephemeral=EphemeralVolumeSource(volume_claim_template=template)),)


def volume_claim(
    name: str,
    kind: str | None = "disk",
    volume: str = "",
    *,
    completed: bool = True,
    phase: str = "",
    modes: Sequence[str] = ("ReadWriteOnce",),
    namespace: str = "default",
    deleted: bool = False,
    owner: str = "",
    size: str = "",
    chosen: str = "",
    **more: Any,
) -> PersistentVolumeClaim:
    """A claim, bound where a volume is named; one made for an ephemeral volume is owned by its pod, by name.

    With `chosen` its volume is being made for the Node of this name.
    """
    return PersistentVolumeClaim(
        metadata=VolumeClaimMeta(
            name=name,
            namespace=namespace,
            uid=f"uid-{name}",
            annotations={
                **({BIND_COMPLETED: "yes"} if volume and completed else {}),
                **({names.SELECTED_NODE: chosen} if chosen else {}),
            },
            deletion_timestamp=EPOCH if deleted else None,
            owner_references=(
                OwnerReference(api_version="v1", kind="Pod", name=owner, uid=f"uid-{owner}", controller=True),
            )
            if owner
            else (),
        ),
        spec=PersistentVolumeClaimSpec(
            storage_class_name=kind,
            volume_name=volume,
            access_modes=tuple(modes),
            resources=VolumeResourceRequirements(requests={"storage": size} if size else {}),
            **more,
        ),
        status=PersistentVolumeClaimStatus(phase=phase or ("Bound" if volume else "Pending")),
    )


def volume(
    name: str,
    *zones: str,
    terms: Sequence[NodeSelectorTerm] = (),
    labels: Mapping[str, str] | None = None,
    driver: str = DRIVER,
    size: str = "",
    **more: Any,
) -> PersistentVolume:
    """A volume that can be reached from these zones, or where one of `terms` holds; from anywhere without either."""
    wanted = [*terms, *([term((names.ZONE_LABEL, "In", zones))] if zones else [])]
    return PersistentVolume(
        metadata=LabelledMeta(name=name, labels=dict(labels or {})),
        spec=PersistentVolumeSpec(
            **{
                "storage_class_name": "disk",
                "access_modes": ("ReadWriteOnce",),
                "capacity": {"storage": size} if size else {},
                "csi": CSIVolumeSource(driver=driver, volume_handle=name) if driver else None,
                "node_affinity": VolumeNodeAffinity(required=NodeSelector(node_selector_terms=tuple(wanted)))
                if wanted
                else None,
                **more,
            }
        ),
    )


def storage_class(
    name: str = "disk", *zones: str, mode: str = "WaitForFirstConsumer", provisioner: str = DRIVER
) -> StorageClass:
    """A class whose volumes can be made in these zones; anywhere without."""
    allowed = TopologySelectorTerm(
        match_label_expressions=(TopologySelectorLabelRequirement(key=names.ZONE_LABEL, values=zones),)
    )
    return StorageClass(
        metadata=StorageClassMeta(name=name),
        provisioner=provisioner,
        volume_binding_mode=mode,
        allowed_topologies=(allowed,) if zones else (),
    )


def storage(
    *objects: PersistentVolume | PersistentVolumeClaim | StorageClass,
    attach: Mapping[str, Mapping[str, int]] | None = None,
) -> Storage:
    """What is known of volumes; the class `disk`, which can everything everywhere, is always there."""
    return Storage(
        claims={
            f"{one.metadata.namespace}/{one.metadata.name}": one
            for one in objects
            if isinstance(one, PersistentVolumeClaim)
        },
        volumes={one.metadata.name: one for one in objects if isinstance(one, PersistentVolume)},
        classes={one.metadata.name: one for one in (storage_class(), *objects) if isinstance(one, StorageClass)},
        attach_limits=dict(attach or {}),
    )


def shuffled(asked: Problem, chance: random.Random) -> Problem:
    """The same problem, with everything in another order that does not matter."""

    def mixed(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(chance.sample(values, len(values)))

    return replace(
        asked,
        pods=mixed(asked.pods),
        pools=tuple(replace(one, instance_types=mixed(one.instance_types)) for one in mixed(asked.pools)),
        daemons=mixed(asked.daemons),
        bins=tuple(replace(one, pods=mixed(one.pods)) for one in asked.bins),
    )
