"""The mixes that scheduling is measured by, from core spec 9.4: pods as decoded objects, and 400 instance types.

What was drawn at random was drawn once: tests/bench/data/diverse.txt holds for each pod its label, the label that it
selects, and the numbers of its cpu and memory.
"""

import functools
from pathlib import Path

from provisioner.apis import names
from provisioner.apis.core import (
    Affinity,
    Container,
    NodeAffinity,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PreferredSchedulingTerm,
    ResourceRequirements,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from provisioner.apis.meta import LabelSelector, ObjectMeta
from provisioner.cloudprovider.types import InstanceType, Offering
from provisioner.scheduling.problem import SchedulingPool
from provisioner.values.requirement import Operator, Requirement, Requirements
from provisioner.values.resources import Resources

DATA = Path(__file__).parents[1] / "bench" / "data" / "diverse.txt"
CPUS = ("100m", "250m", "500m", "1000m", "1500m")
MEMORIES = ("100Mi", "256Mi", "512Mi", "1024Mi", "2048Mi", "4096Mi")
ZONES = ("test-zone-1", "test-zone-2", "test-zone-3")
Decoded = tuple[ObjectMeta, PodSpec]
"""A pod as it is decoded from its manifest."""
_GIB = 2**30


@functools.cache
def drawn() -> tuple[str, ...]:
    """Four letters a pod."""
    return tuple(DATA.read_text().split())


def diverse(count: int) -> list[Decoded]:
    """A fifth each: generic, spread over zones, spread over hosts, affine to their own kind in a zone, one a host."""
    fifth = count // 5
    makers = [_generic] * fifth + [_over_zones] * fifth + [_over_hosts] * fifth + [_together] * fifth + [_apart] * fifth
    makers += [_generic] * (count - len(makers))
    return [make(number, drawn()[number]) for number, make in enumerate(makers)]


def preferring(count: int) -> list[Decoded]:
    """Pods of one class that prefer a zone, to be alone in their zone, and less so to be alone on their host."""
    labels = {"app": "nginx"}
    term = NodeSelectorTerm(
        match_expressions=(NodeSelectorRequirement(key=names.ZONE_LABEL, operator="In", values=("test-zone-1",)),)
    )
    affinity = Affinity(
        node_affinity=NodeAffinity(preferred=(PreferredSchedulingTerm(weight=1, preference=term),)),
        pod_anti_affinity=PodAffinity(
            preferred=(
                WeightedPodAffinityTerm(weight=10, pod_affinity_term=_near(names.ZONE_LABEL, labels)),
                WeightedPodAffinityTerm(weight=1, pod_affinity_term=_near(names.HOSTNAME_LABEL, labels)),
            )
        ),
    )
    size = drawn()[0]
    return [_pod(number, size, labels, affinity=affinity) for number in range(count)]


def _pod(number: int, draw: str, labels: dict[str, str], **spec: object) -> Decoded:
    requests: dict[str, str | int | float] = {"cpu": CPUS[int(draw[2])], "memory": MEMORIES[int(draw[3])]}
    containers = (Container(name="main", resources=ResourceRequirements(requests=requests)),)
    metadata = ObjectMeta(name=f"pod-{number}", namespace="default", uid=f"uid-{number}", labels=labels)
    return metadata, PodSpec(containers=containers, **spec)  # type: ignore[arg-type]


def _near(key: str, labels: dict[str, str]) -> PodAffinityTerm:
    return PodAffinityTerm(topology_key=key, label_selector=LabelSelector(match_labels=dict(labels)))


def _generic(number: int, draw: str) -> Decoded:
    return _pod(number, draw, {"my-label": draw[0]})


def _over_zones(number: int, draw: str, key: str = names.ZONE_LABEL) -> Decoded:
    selector = LabelSelector(match_labels={"my-label": draw[1]})
    constraint = TopologySpreadConstraint(max_skew=1, topology_key=key, label_selector=selector)
    return _pod(number, draw, {"my-label": draw[0]}, topology_spread_constraints=(constraint,))


def _over_hosts(number: int, draw: str) -> Decoded:
    return _over_zones(number, draw, names.HOSTNAME_LABEL)


def _together(number: int, draw: str) -> Decoded:
    labels = {"my-affininity": draw[0]}
    affinity = Affinity(pod_affinity=PodAffinity(required=(_near(names.ZONE_LABEL, labels),)))
    return _pod(number, draw, labels, affinity=affinity)


def _apart(number: int, draw: str) -> Decoded:
    labels = {"app": "nginx"}
    affinity = Affinity(pod_anti_affinity=PodAffinity(required=(_near(names.HOSTNAME_LABEL, labels),)))
    return _pod(number, draw, labels, affinity=affinity)


@functools.cache
def fake_types(count: int = 400) -> tuple[InstanceType, ...]:
    """Types of 1 to `count` cpus with 2 GiB each, spot in two zones and on demand in three, at one price."""
    return tuple(_fake_type(number) for number in range(1, count + 1))


def _fake_type(cpus: int) -> InstanceType:
    memory = 2 * cpus * _GIB
    price = 0.1 * cpus + 0.1 * memory / 1e9
    ways = [("spot", zone) for zone in ZONES[:2]] + [("on-demand", zone) for zone in ZONES]
    requirements = Requirements.of(
        (
            Requirement.of(names.INSTANCE_TYPE_LABEL, Operator.IN, (f"fake-it-{cpus - 1}",)),
            Requirement.of(names.ARCH_LABEL, Operator.IN, ("amd64",)),
            Requirement.of(names.OS_LABEL, Operator.IN, ("linux", "windows", "darwin")),
            Requirement.of(names.ZONE_LABEL, Operator.IN, ZONES),
            Requirement.of(names.CAPACITY_TYPE_LABEL, Operator.IN, ("spot", "on-demand")),
        )
    )
    return InstanceType(
        name=f"fake-it-{cpus - 1}",
        requirements=requirements,
        capacity=Resources.of({"cpu": 1000 * cpus, "memory": memory, "pods": 10 * cpus}),
        overhead=Resources.of({"cpu": 100, "memory": 10 * 2**20}),
        offerings=tuple(
            Offering(Requirements.from_labels({names.CAPACITY_TYPE_LABEL: kind, names.ZONE_LABEL: zone}), price)
            for kind, zone in ways
        ),
    )


def fake_pool() -> SchedulingPool:
    """The pool of the benchmark: no requirements, limits far away."""
    return SchedulingPool(
        name="default",
        requirements=Requirements.from_labels({names.NODEPOOL_LABEL: "default"}),
        instance_types=fake_types(),
        remaining=Resources.parse({"cpu": "10000000", "memory": "10000000Gi"}),
        template="template of default",
    )
