"""What fleets are planned for: EC2's instance types at us-east-1's prices, from the repository's own tables, and made-up workloads.

The workloads are drawn with numpy's generator; the same kind, size and seed give the same pods.
"""

import functools
import itertools
import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from provisioner.apis import names
from provisioner.apis.core import (
    Affinity,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from provisioner.apis.meta import LabelSelector
from provisioner.apis.pods import Pod, PodShape
from provisioner.cloudprovider.types import InstanceType, Offering
from provisioner.ec2.market.static_data import on_demand_prices, published_types
from provisioner.scheduling.problem import SchedulingPool, World
from provisioner.values.requirement import Operator, Requirement, Requirements
from provisioner.values.resources import Resources
from tests.support.problems import pods, shape

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
GPU = "nvidia.com/gpu"
CATEGORY = "karpenter.k8s.aws/instance-category"
CPU_LABEL = "karpenter.k8s.aws/instance-cpu"
WELL_KNOWN = frozenset({CATEGORY, CPU_LABEL})


@functools.cache
def ec2_types(
    categories: str = "cmr",
    arches: tuple[str, ...] = ("amd64",),
    *,
    gpus: bool = False,
    most_cpus: int = 0,
    capacity_type: str = names.CAPACITY_ON_DEMAND,
) -> tuple[InstanceType, ...]:
    """Types of generation 3 and later, no bare metal, in three zones at one price; with `gpus`, NVIDIA's of any family.

    Spot costs from 0.28 to 0.55 of it, by the name of the type, and a launch takes one of the 15 cheapest.
    """
    prices = on_demand_prices()["us-east-1"].prices
    found = []
    for row in published_types():
        price = prices.get(row["instance_type"], 0)
        chosen = row[CATEGORY] in categories and int(row["karpenter.k8s.aws/instance-generation"]) >= 3
        if price <= 0 or row[names.ARCH_LABEL] not in arches or "metal" in row["instance_type"]:
            continue
        if not (chosen and not row[GPU]) and not (gpus and row[GPU]):
            continue
        if most_cpus and int(row[CPU_LABEL]) > most_cpus:
            continue
        found.append(_type(row, price, capacity_type))
    return tuple(found)


def _type(row: Mapping[str, str], price: float, capacity_type: str) -> InstanceType:
    alternatives = 1
    if capacity_type == names.CAPACITY_SPOT:
        share = zlib.crc32(row["instance_type"].encode()) / 2**32
        price, alternatives = round(price * (0.28 + 0.27 * share), 4), 15
    allocatable = {"cpu": row["cpu"], "memory": row["memory"], "pods": row["pods"], "ephemeral-storage": "17Gi"}
    if row[GPU]:
        allocatable[GPU] = row[GPU]
    cpus = int(row[CPU_LABEL])
    capacity = Resources.parse(
        allocatable | {"cpu": str(cpus), "memory": f"{row['karpenter.k8s.aws/instance-memory']}Mi"}
    )
    labels = {
        names.INSTANCE_TYPE_LABEL: (row["instance_type"],),
        names.ARCH_LABEL: (row[names.ARCH_LABEL],),
        names.OS_LABEL: ("linux",),
        names.ZONE_LABEL: ZONES,
        names.CAPACITY_TYPE_LABEL: (capacity_type,),
        CATEGORY: (row[CATEGORY],),
        CPU_LABEL: (row[CPU_LABEL],),
    }
    return InstanceType(
        name=row["instance_type"],
        requirements=Requirements.of(Requirement.of(key, Operator.IN, values) for key, values in labels.items()),
        capacity=capacity,
        overhead=capacity - Resources.parse(allocatable),
        offerings=tuple(
            Offering(
                Requirements.from_labels({names.CAPACITY_TYPE_LABEL: capacity_type, names.ZONE_LABEL: zone}),
                price,
                alternatives=alternatives,
            )
            for zone in ZONES
        ),
    )


DAEMONS = (shape("100m", "100Mi"), shape("50m", "100Mi"), shape("50m", "100Mi"))
"""Three DaemonSets that run on every node: 200m and 300Mi together."""


def world_of(types: Iterable[InstanceType], **more: object) -> World:
    """One NodePool with these types, and the DaemonSets."""
    pool = SchedulingPool(
        name="default",
        requirements=Requirements.from_labels({names.NODEPOOL_LABEL: "default"}),
        instance_types=tuple(types),
        template="template of default",
    )
    return World(pools=(pool,), daemons=DAEMONS, well_known=WELL_KNOWN, **more)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Deployment:
    """Equal pods: millicores and MiB each, GPUs, how many, whether they are spread over zones or one a node, the maxSkew of their spread over
    hosts, and the only architecture that their image is for."""

    cpu: int
    memory: int
    gpus: int
    zonal: bool
    apart: bool
    replicas: int
    skew: int = 0
    arch: str = ""


ARCHES = ("", "amd64", "arm64")
_CPUS = np.array([25, 50, 100, 150, 200, 250, 300, 400, 500, 750, 1000, 1500, 2000])
_MEMORIES = np.array([32, 64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096])


def deployments(kind: str, count: int, seed: int = 1) -> list[Deployment]:
    """Workloads as micro services, batch jobs and caches have them, `count` pods in all.

    micro: geometric replicas, log-normal sizes, most of them round. batch: 0.5 to 16 cpus with 1 to 8 GiB each. memory: 4 to
    24 GiB a cpu. gpu: micro, and 6 % with GPUs. zonal: micro, 60 % spread over three zones, 15 % one a node.
    hosts: micro, 30 % spread over hosts by a maxSkew of 1 to 3, 20 % one a node. arches: micro, a third each for both
    architectures, for amd64 and for arm64.
    """
    rng = np.random.default_rng(seed + sum(map(ord, {"memory": "mem"}.get(kind, kind))))
    found: list[Deployment] = []
    left = count
    while left:
        one = _deployment(kind, rng)
        replicas = min(one.replicas, left)
        left -= replicas
        arch = ARCHES[len(found) % len(ARCHES)] if kind == "arches" else ""
        found.append(replace(one, replicas=replicas, arch=arch))
    return found


def _deployment(kind: str, rng: np.random.Generator) -> Deployment:
    if kind == "batch":
        sizes = [500, 1000, 2000, 3000, 4000, 6000, 8000, 12000, 16000]
        cpu = int(rng.choice(sizes, p=[0.15, 0.2, 0.2, 0.1, 0.15, 0.05, 0.08, 0.03, 0.04]))
        ratio = rng.choice([1, 1.5, 2, 3, 4, 6, 8], p=[0.1, 0.15, 0.25, 0.15, 0.2, 0.1, 0.05])
        return Deployment(cpu, int(cpu / 1000 * 1024 * ratio), 0, False, False, int(min(rng.geometric(0.03), 200)))
    if kind == "memory":
        cpu = int(rng.choice([250, 500, 1000, 2000, 4000, 8000], p=[0.15, 0.25, 0.25, 0.2, 0.1, 0.05]))
        ratio = rng.choice([4, 6, 8, 10, 12, 16, 24], p=[0.1, 0.15, 0.3, 0.15, 0.15, 0.1, 0.05])
        return Deployment(cpu, int(cpu / 1000 * 1024 * ratio), 0, False, False, int(min(rng.geometric(0.1), 40)))
    c = float(np.exp(rng.normal(math.log(220), 0.9)))
    m = c / 1000 * 1024 * float(np.exp(rng.normal(math.log(2.6), 0.6)))
    if rng.random() < 0.85:
        c = _CPUS[np.argmin(abs(np.log(_CPUS / c)))]
        m = _MEMORIES[np.argmin(abs(np.log(_MEMORIES / max(m, 16))))]
    cpu, memory, replicas = max(10, int(c)), max(16, int(m)), int(min(max(1, rng.geometric(0.12)), 60))
    gpus, zonal, apart = 0, False, False
    if kind == "gpu" and rng.random() < 0.06:
        gpus = int(rng.choice([1, 1, 1, 2, 4, 8]))
        cpu = int(rng.choice([3000, 6000, 10000])) * max(1, gpus // 2)
        memory = int(rng.choice([12, 24, 40])) * 1024 * max(1, gpus // 2)
        replicas = int(rng.integers(1, 6))
    if kind == "zonal":
        draw = rng.random()
        zonal, apart = bool(draw < 0.6), bool(draw > 0.85)
        replicas = max(replicas, 2) if zonal else min(replicas, 5) if apart else replicas
    skew = 0
    if kind == "hosts":
        draw = rng.random()
        skew, apart = int(rng.integers(1, 4)) if draw < 0.3 else 0, bool(draw > 0.8)
        replicas = min(replicas, 5) if apart else min(replicas, 4 * skew) if skew else replicas
    return Deployment(cpu, memory, gpus, zonal, apart, replicas, skew)


def workload(kind: str, count: int, seed: int = 1) -> tuple[Pod, ...]:
    """The pods of `deployments`; each Deployment has a label of its own."""
    made = [pods(one.replicas, _shape(one, f"d{n}"), f"d{n}") for n, one in enumerate(deployments(kind, count, seed))]
    return tuple(itertools.chain.from_iterable(made))


def _shape(one: Deployment, name: str) -> PodShape:
    labels = {"app": name}
    selector = LabelSelector(match_labels=labels)
    over_zones = TopologySpreadConstraint(max_skew=1, topology_key=names.ZONE_LABEL, label_selector=selector)
    over_hosts = TopologySpreadConstraint(max_skew=one.skew, topology_key=names.HOSTNAME_LABEL, label_selector=selector)
    affinity = None
    if one.apart:
        term = PodAffinityTerm(topology_key=names.HOSTNAME_LABEL, label_selector=selector)
        affinity = Affinity(pod_anti_affinity=PodAffinity(required=(term,)))
    return shape(
        f"{one.cpu}m",
        f"{one.memory}Mi",
        more={GPU: str(one.gpus)} if one.gpus else None,
        selector={names.ARCH_LABEL: one.arch} if one.arch else None,
        labels=labels,
        affinity=affinity,
        topology_spread_constraints=(over_zones,) if one.zonal else (over_hosts,) if one.skew else (),
    )
