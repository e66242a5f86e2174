"""What it costs that a batch ends early when nothing more can come, in virtual time; `make bench` runs it and keeps results/window.json.

By default a batch has a second for others that come, or ends 0.1 s after its last pod where all pods of its owners are there. Any other
`--batch-idle-duration` waits each time, and 1001 ms is as good as the default's second. Each row is a made-up rollout of 600 pods on kwok's catalogue, once
with each, planner on, and no node is disrupted. Workloads come as people and pipelines apply them: half of them 0.02 to 0.2 s after another, most others
within the second that is otherwise waited for, where ending early keeps apart what would have been planned together; the rest half a minute later. No
batch ends early after one that others followed: each run begins with a new leader, who does not know yet. What counts is the price of the fleet in the end,
as the mean of the seeds: one zonal rollout may cost 3 % more or 2 % less, as it falls out, so that row has most seeds, and the standard error is told. A row
fails where its mean is over the goal by more than two of these. Simulated API servers answer at once, so real batches end early less often.
"""

import math
import random
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.lab.harness.mixes import MIXES
from provisioner.lab.harness.results import Figure, at_most, write
from provisioner.lab.harness.workload import Document, deployment, spread
from provisioner.options import Options
from provisioner.simulator.ledger import Figures
from provisioner.simulator.simulation import SimulationSetting, simulated
from provisioner.simulator.workload import Arrival, Day, OwnerKind
from tests.unit.simulator.days import offer

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

RESULTS = Path(__file__).parents[2] / "results"
PODS = 600
SEEDS = {"on-demand": 6, "spot": 6, "zonal": 24}
SECONDS = 1200.0
PERCENT = 0.5
WAYS = {"early": "1s", "waiting": "1001ms"}
ROWS = {
    "on-demand": ("micro", names.CAPACITY_ON_DEMAND),
    "spot": ("batch", names.CAPACITY_SPOT),
    "zonal": ("zonal", names.CAPACITY_ON_DEMAND),
}
_figures: list[Figure] = []


@pytest.fixture(scope="module", autouse=True)
def results() -> Iterator[None]:
    yield
    for figure in _figures:
        print(figure.line())
    write(RESULTS, "window", _figures)


def day(kind: str, seed: int) -> Day:
    """Deployments of a mix until there are so many pods, each some time after the last; every fourth is a Job."""
    chance = random.Random(f"{kind} {seed}")
    changes: list[Arrival] = []
    at, left = 1.0, PODS
    while left:
        cpu, memory, replicas = MIXES[kind](chance)
        replicas = min(left, replicas)
        left -= replicas
        name = f"{kind}-{len(changes):03}"
        document = deployment(name, "window", replicas, {"cpu": f"{cpu}m", "memory": f"{memory}Mi"})
        if kind == "zonal" and len(changes) % 2:
            spread(document, names.ZONE_LABEL)
        owner: OwnerKind = "Job" if len(changes) % 4 == 3 and kind == "batch" else "Deployment"
        template = document["spec"]["template"]
        changes.append(Arrival(at=at, name=name, namespace="window", kind=owner, template=template, count=replicas))
        pause = chance.random()
        at += chance.uniform(0.02, 0.2) if pause < 0.5 else chance.uniform(0.2, 1.0) if pause < 0.85 else 30.0
    return Day(duration_seconds=SECONDS, changes=tuple(changes))


def pool(capacity_type: str) -> Document:
    """Nodes of any size that stay."""
    values = {
        names.CAPACITY_TYPE_LABEL: [capacity_type],
        names.ARCH_LABEL: ["amd64"],
        names.OS_LABEL: ["linux"],
    }
    node: dict[str, Any] = {
        "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        "expireAfter": "Never",
        "requirements": [{"key": key, "operator": "In", "values": some} for key, some in values.items()],
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "general"},
        "spec": {
            "template": {"spec": node},
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"},
        },
    }


def ran(simulated_day: Day, capacity_type: str, idle: str, seed: int) -> Figures:
    options = Options.parse(["--history-duration=0s", f"--batch-idle-duration={idle}"], {})
    setting = SimulationSetting(simulated_day, (pool(capacity_type),), offer(), options, (40.0,), pass_interval=300.0)
    return simulated(setting, seed)


@dataclass(frozen=True)
class _Pair:
    early: Figures
    waiting: Figures


def dollars(some: list[Figures]) -> float:
    return sum(one.samples[-1].usd_per_hour for one in some)


@pytest.mark.parametrize("row", ROWS)
def test_ending_early_costs_next_to_nothing(row: str) -> None:
    kind, capacity_type = ROWS[row]
    seeds = range(1, SEEDS[row] + 1)
    pairs = [_Pair(*(ran(day(kind, seed), capacity_type, idle, seed) for idle in WAYS.values())) for seed in seeds]
    assert not any(one.unbound for pair in pairs for one in (pair.early, pair.waiting))
    early, waiting = [one.early for one in pairs], [one.waiting for one in pairs]
    each = [100 * (dollars([one.early]) / dollars([one.waiting]) - 1) for one in pairs]
    more, error = statistics.mean(each), statistics.stdev(each) / math.sqrt(len(each))
    _figures.extend(
        [
            Figure(f"{row}: fleet, batches end early", dollars(early), "$/h"),
            Figure(f"{row}: fleet, a second waited", dollars(waiting), "$/h"),
            Figure(f"{row}: more, mean of {len(seeds)} seeds", more, "%", at_most(PERCENT)),
            Figure(f"{row}: standard error of the mean", error, "%"),
            Figure(f"{row}: more, of the seed with least", min(each), "%"),
            Figure(f"{row}: more, of the seed with most", max(each), "%"),
            Figure(
                f"{row}: pods waited, p50, sooner",
                statistics.mean(one.waiting.wait_p50 - one.early.wait_p50 for one in pairs),
                "s",
            ),
        ]
    )
    assert more - 2 * error <= PERCENT
