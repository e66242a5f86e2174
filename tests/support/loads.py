"""What the rebuilt solver is measured by: every row of the table, as pods, pools and nodes over a catalogue like EC2's."""

import functools
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec.structs import replace as changed

from provisioner.apis import names
from provisioner.apis.core import (
    Affinity,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from provisioner.apis.meta import LabelSelector
from provisioner.apis.pods import Pod, PodShape
from provisioner.cloudprovider.kwok import catalogue
from provisioner.cloudprovider.types import InstanceType, Offering
from provisioner.scheduling.problem import Bin, SchedulingPool
from provisioner.values.requirement import Operator, Requirement, Requirements
from provisioner.values.resources import Resources
from tests.support.problems import near, of_app, pod, shape, spread

CATALOGUE = Path(__file__).parents[1] / "data" / "kwok-catalogue-ec2.json"
ZONES = ("test-zone-a", "test-zone-b", "test-zone-c")
CPUS = ("100m", "250m", "500m", "1", "2")
MEMORIES = ("128Mi", "256Mi", "512Mi", "1Gi", "2Gi", "4Gi")
RESERVATION_LABEL = "provider.example/reservation"
NODE_CPU, NODE_MEMORY = 8_000, 32 * 2**30


@functools.cache
def ec2() -> tuple[InstanceType, ...]:
    """The types of the recorded catalogue."""
    return tuple(catalogue.load(str(CATALOGUE)).types)


def ec2_pool(
    name: str = "default", *more: Requirement, types: tuple[InstanceType, ...] | None = None
) -> SchedulingPool:
    own = Requirements.from_labels({names.NODEPOOL_LABEL: name}).merged(Requirements.of(more))
    return SchedulingPool(name=name, requirements=own, instance_types=ec2() if types is None else types, template=name)


@functools.cache
def many_types(count: int = 1_000, zones: int = 6) -> tuple[InstanceType, ...]:
    """So many types of 40 families, on demand and spot in so many zones."""
    where = [f"zone-{number}" for number in range(zones)]
    return tuple(_made_type(number, where) for number in range(count))


def _made_type(number: int, zones: list[str]) -> InstanceType:
    family, size = number % 40, 1 + number // 40
    cpus, memory = 2 * size, (2 + family % 7) * 2 * size * 2**30
    price = 0.02 * cpus + 0.003 * memory / 2**30 + 0.0001 * family
    kinds = (("on-demand", 1.0), ("spot", 0.4))
    return InstanceType(
        name=f"f{family}.s{size}",
        requirements=Requirements.of(
            (
                Requirement.of(names.INSTANCE_TYPE_LABEL, Operator.IN, (f"f{family}.s{size}",)),
                Requirement.of(names.ARCH_LABEL, Operator.IN, ("amd64",)),
                Requirement.of(names.OS_LABEL, Operator.IN, ("linux",)),
                Requirement.of("provider.example/family", Operator.IN, (f"f{family}",)),
                Requirement.of(names.ZONE_LABEL, Operator.IN, zones),
                Requirement.of(names.CAPACITY_TYPE_LABEL, Operator.IN, [kind for kind, _ in kinds]),
            )
        ),
        capacity=Resources.of({"cpu": 1000 * cpus, "memory": memory, "pods": 110}),
        overhead=Resources.of({"cpu": 80, "memory": 300 * 2**20}),
        offerings=tuple(
            Offering(
                Requirements.from_labels({names.CAPACITY_TYPE_LABEL: kind, names.ZONE_LABEL: zone}),
                price * share * (1 + 0.01 * place),
            )
            for kind, share in kinds
            for place, zone in enumerate(zones)
        ),
    )


def reserving_types(reservations: int = 50) -> tuple[InstanceType, ...]:
    """The recorded types, of which so many have a reservation of 20 instances."""
    found = []
    for number, one in enumerate(ec2()):
        if number < reservations:
            labels = {
                names.CAPACITY_TYPE_LABEL: names.CAPACITY_RESERVED,
                names.ZONE_LABEL: ZONES[number % 3],
                RESERVATION_LABEL: f"cr-{number:04d}",
            }
            more = Offering(Requirements.from_labels(labels), 0.0001, reservation_capacity=20)
            kinds = one.requirements[names.CAPACITY_TYPE_LABEL].values | {names.CAPACITY_RESERVED}
            own = {key: known for key, known in one.requirements.items() if key != names.CAPACITY_TYPE_LABEL}
            asked = [*own.values(), Requirement.of(names.CAPACITY_TYPE_LABEL, Operator.IN, kinds)]
            one = replace(one, requirements=Requirements.of(asked), offerings=(*one.offerings, more))  # noqa: PLW2901
        found.append(one)
    return tuple(found)


# --- pods ---


def _size(number: int) -> tuple[str, str]:
    return CPUS[number % 5], MEMORIES[number % 6]


def plain_and_spread(plain: int, spread: int) -> tuple[Pod, ...]:
    """Pods of 1 CPU that nothing ties, then pods of 2 CPUs that are spread over hosts."""
    over_hosts = (over(names.HOSTNAME_LABEL, "web"),)
    tied = shape("2", "2Gi", labels={"app": "web"}, topology_spread_constraints=over_hosts)
    return (*copies(plain, shape("1", "1Gi"), "plain"), *copies(spread, tied, "web"))


def copies(count: int, of: PodShape, prefix: str) -> list[Pod]:
    return [pod(f"{prefix}-{number}", of) for number in range(count)]


def own_requests(count: int, start: int = 0) -> tuple[Pod, ...]:
    """Every pod its own size."""
    return tuple(
        pod(f"own-{number}", shape(f"{100 + number % 1777}m", f"{128 + number}Mi"))
        for number in range(start, start + count)
    )


def own_selectors(count: int) -> tuple[Pod, ...]:
    """Every pod its own value of the label `team`."""
    return tuple(
        pod(f"team-{number}", shape("500m", "512Mi", selector={"team": f"t{number}"})) for number in range(count)
    )


def selector_of(app: str) -> LabelSelector:
    return LabelSelector(match_labels={"app": app})


def over(key: str, app: str, **more: Any) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(max_skew=1, topology_key=key, label_selector=selector_of(app), **more)


def away(key: str, app: str) -> Affinity:
    term = PodAffinityTerm(topology_key=key, label_selector=selector_of(app))
    return Affinity(pod_anti_affinity=PodAffinity(required=(term,)))


def deployments(
    number: int,
    replicas: int,
    *,
    spread: Iterable[str] = (),
    apart: str = "",
    prefix: str = "app",
    soft_hosts: bool = False,
    **more: Any,
) -> Iterator[Pod]:
    """So many Deployments, each spread and kept apart by these labels; spread over hosts softly where asked."""
    for one in range(number):
        app = f"{prefix}-{one}"
        cpu, memory = _size(one)
        own: dict[str, Any] = dict(more)
        soft = {"when_unsatisfiable": "ScheduleAnyway"} if soft_hosts else {}
        constraints = tuple(over(key, app, **(soft if key == names.HOSTNAME_LABEL else {})) for key in spread)
        if constraints:
            own["topology_spread_constraints"] = constraints
        if apart:
            own["affinity"] = away(apart, app)
        yield from copies(replicas, shape(cpu, memory, labels={"app": app}, **own), app)


def impossible(replicas: int = 5) -> list[Pod]:
    """Replicas that want a zone each, of which there are three."""
    of = shape("500m", "512Mi", labels={"app": "apart"}, affinity=away(names.ZONE_LABEL, "apart"))
    return copies(replicas, of, "apart")


def big_spread(replicas: int = 10_000) -> list[Pod]:
    spread = (over(names.HOSTNAME_LABEL, "big"), over(names.ZONE_LABEL, "big"))
    return copies(replicas, shape("500m", "512Mi", labels={"app": "big"}, topology_spread_constraints=spread), "big")


def torn_team(deployments: int, replicas: int) -> tuple[Pod, ...]:
    """Deployments that a team's spread counts together, most with affinity to themselves: binding them in order takes a search."""
    team = LabelSelector(match_labels={"team": "t"})
    both = (spread(names.HOSTNAME_LABEL, team, 2), spread(names.ZONE_LABEL, team, 20))
    found: list[Pod] = []
    for number in range(deployments):
        name, labels = f"torn-{number}", {"team": "t"}
        own = near(names.ZONE_LABEL, selector_of(name)) if number % 4 else Affinity()
        cpu = ("250m", "500m", "1", "1500m")[number % 4]
        of = of_app(name, cpu, "10Mi", labels=labels, affinity=own, topology_spread_constraints=both)
        found += copies(replicas, of, name)
    return tuple(found)


def too_large(count: int) -> tuple[Pod, ...]:
    return tuple(pod(f"huge-{number}", shape(f"{500_000 + number}m", "1Gi")) for number in range(count))


# --- running ---


def cluster(nodes: int, running: Iterable[Pod], *, room: int = 4) -> tuple[Bin, ...]:
    """Nodes with these pods dealt round, and room for so many CPUs more on each."""
    every = list(running)
    chance = random.Random(17)
    return tuple(
        Bin(
            name=f"node-{number:05d}",
            node_name=f"node-{number:05d}",
            labels={
                names.HOSTNAME_LABEL: f"node-{number:05d}",
                names.ZONE_LABEL: ZONES[number % 3],
                names.NODEPOOL_LABEL: "default",
                names.INSTANCE_TYPE_LABEL: ec2()[number % len(ec2())].name,
                names.ARCH_LABEL: "amd64",
                names.OS_LABEL: "linux",
            },
            room=Resources.of(
                {
                    "cpu": chance.randrange(0, 1000 * room, 50),
                    "memory": chance.randrange(0, room * 2**31, 2**26),
                    "pods": 90,
                }
            ),
            pool="default",
            pods=tuple(bound(one, f"node-{number:05d}") for one in every[number::nodes]),
        )
        for number in range(nodes)
    )


def bound(one: Pod, node: str) -> Pod:
    return changed(one, node_name=node, scheduled=True, phase="Running")
