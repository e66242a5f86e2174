"""Workloads of a thousand pods in many Deployments, and EC2's instance types as a catalogue of kwok's: what packing is measured on.

Everything follows from the numbers given; nothing is read from a cloud.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

from provisioner.apis import names
from provisioner.cloudprovider.kwok.catalogue import ZONES
from provisioner.ec2 import labels
from provisioner.ec2.market.static_data import on_demand_prices, published_types
from provisioner.lab.harness.workload import Document, deployment, namespace, spread
from provisioner.values.resources import Resources

NAMESPACE: Final = "packing"
_KEPT: Final = Resources.parse({"cpu": "100m", "memory": "10Mi"})
"""What a kwok node keeps for itself of what the file says."""
_GIB_IN_MIB: Final = 1024
_ROUND_CPUS: Final = (50, 100, 150, 200, 250, 300, 400, 500, 750, 1000, 1500, 2000)
_ROUND_MIB: Final = (64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)

Size = tuple[int, int, int]
"""Millicores, MiB, replicas."""


def _micro(draw: random.Random) -> Size:
    """Services: many small pods of round sizes, 2 to 3 GiB a CPU."""
    cpu = draw.choice(_ROUND_CPUS)
    memory = cpu / 1000 * _GIB_IN_MIB * draw.lognormvariate(0.95, 0.6)
    return cpu, min(_ROUND_MIB, key=lambda one: abs(one - memory)), draw.randint(1, 16)


def _batch(draw: random.Random) -> Size:
    """Jobs: half a CPU to sixteen, with 1 to 8 GiB each."""
    cpu = draw.choice((500, 1000, 1000, 2000, 2000, 3000, 4000, 6000, 8000, 16000))
    return cpu, int(cpu / 1000 * _GIB_IN_MIB * draw.choice((1, 1.5, 2, 2, 3, 4, 6, 8))), draw.randint(5, 60)


def _memory(draw: random.Random) -> Size:
    """Caches and databases: 4 to 24 GiB a CPU."""
    cpu = draw.choice((250, 500, 1000, 1000, 2000, 4000))
    return cpu, int(cpu / 1000 * _GIB_IN_MIB * draw.choice((4, 6, 8, 8, 10, 12, 16, 24))), draw.randint(2, 20)


MIXES: Final[dict[str, Callable[[random.Random], Size]]] = {
    "micro": _micro,
    "batch": _batch,
    "memory": _memory,
    "zonal": _micro,
}
"""By name: how a Deployment is drawn. Of "zonal", every second one is spread hard over zones."""


def mix(kind: str, pods: int) -> list[Document]:
    """The namespace and Deployments of so many pods in all; the same every time."""
    draw = random.Random(f"{kind} {pods}")
    found = [namespace(NAMESPACE)]
    left = pods
    while left:
        cpu, memory, replicas = MIXES[kind](draw)
        replicas = min(replicas, left)
        left -= replicas
        name = f"{kind}-{len(found):03}"
        document = deployment(name, NAMESPACE, replicas, {"cpu": f"{cpu}m", "memory": f"{memory}Mi"})
        if kind == "zonal" and len(found) % 2:
            spread(document, names.ZONE_LABEL)
        found.append(document)
    return found


def write_catalogue(path: Path) -> int:
    """Write EC2's types of families c, m and r from the third generation on, on demand in us-east-1, for amd64, as kwok reads them.

    Returns:
        How many there are.
    """
    prices = on_demand_prices()["us-east-1"].prices
    entries = []
    for row in published_types():
        name = row["instance_type"]
        if (
            row[labels.CATEGORY] not in "cmr"
            or int(row[labels.GENERATION]) <= 2
            or row[names.ARCH_LABEL] != "amd64"
            or "metal" in name
            or not prices.get(name)
        ):
            continue
        room = Resources.parse({key: row[key] for key in ("cpu", "memory", "pods")} | {"ephemeral-storage": "17Gi"})
        offerings = [
            {
                "Price": prices[name],
                "Available": True,
                "Requirements": [
                    {"key": names.ZONE_LABEL, "operator": "In", "values": [zone]},
                    {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": [names.CAPACITY_ON_DEMAND]},
                ],
            }
            for zone in ZONES[:3]
        ]
        entries.append(
            {
                "name": name,
                "architecture": "amd64",
                "operatingSystems": ["linux"],
                "resources": (room + _KEPT).to_wire(),
                "offerings": offerings,
            }
        )
    path.write_text(json.dumps(entries), encoding="utf-8")
    return len(entries)
