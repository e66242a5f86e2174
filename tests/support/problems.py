"""Short ways to write the parts of a scheduling problem; every argument has a harmless default."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from provisioner.apis import names
from provisioner.apis.core import (
    Affinity,
    Container,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodSpec,
    ResourceRequirements,
)
from provisioner.apis.pods import Pod, PodShape
from provisioner.apis.shapes import shape_of
from provisioner.cloudprovider.types import InstanceType, Offering
from provisioner.scheduling.problem import Bin, Pool, Problem
from provisioner.values.requirement import Requirement, Requirements
from provisioner.values.resources import Resources
from provisioner.values.taints import Taint, Toleration

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
    startup_taints: Iterable[Taint] = (),
    limits: Mapping[str, str] | None = None,
    min_values: Mapping[str, int] | None = None,
) -> Pool:
    """A NodePool as scheduling sees it; `limits` are what remains of them."""
    own = Requirements.from_labels({names.NODEPOOL_LABEL: name, **(labels or {})}).merged(requirements(*wanted))
    minimum = Requirements.of(
        Requirement.of(key, "Exists", (), min_values=count) for key, count in (min_values or {}).items()
    )
    return Pool(
        name=name,
        requirements=own.merged(minimum),
        instance_types=types,
        weight=weight,
        taints=tuple(taints),
        startup_taints=tuple(startup_taints),
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
) -> Bin:
    """A Node with so much room left."""
    return Bin(
        name=name,
        labels={names.HOSTNAME_LABEL: name, names.OS_LABEL: "linux", **(labels or {})},
        room=Resources.parse({"cpu": cpu, "memory": memory, "pods": str(max_pods), **(more or {})}),
        taints=tuple(taints),
        node_name=name,
    )


def problem(
    of: Iterable[Pod],
    *pools: Pool,
    bins: Iterable[Bin] = (),
    daemons: Iterable[PodShape] = (),
) -> Problem:
    return Problem(pods=tuple(of), pools=pools, bins=tuple(bins), daemons=tuple(daemons), well_known=WELL_KNOWN)
