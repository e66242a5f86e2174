"""What `dovetail simulate` costs: work and CPU of half an hour at n nodes and at twice as many, and memory; `make bench` keeps results/simulate.json.

Half an hour from noon of a made-up day: services that follow the sun, bursts and jobs, about forty arrivals a day and node, nodes of 4 and 8 CPUs that are
consolidated after a minute, planner on. Each run is a process of its own. Work is calls of functions, which any machine counts alike; CPU is that of
processes, those of the planner included. `SIMULATE_NODES=30,100,250,500` for a curve, `SIMULATE_HOURS=1` for an hour, `SIMULATE_INTERVALS=60` for looks
at all nodes every 60 s alone.
"""

import cProfile
import os
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.lab.harness.results import Figure, at_most, write
from provisioner.options import Options
from provisioner.simulator.simulation import SimulationSetting, simulated
from provisioner.simulator.workloads.generator import (
    BurstSettings,
    DaySettings,
    JobSettings,
    NightBatchSettings,
    ServiceSettings,
    generate,
)
from provisioner.support import logs
from tests.bench.machine import peak_megabytes
from tests.unit.simulator.days import offer

pytestmark = [pytest.mark.bench, pytest.mark.timeout(14_400)]

RESULTS = Path(__file__).parents[2] / "results"
NODES = tuple(map(int, os.environ.get("SIMULATE_NODES", "15,30").split(",")))
HOURS = float(os.environ.get("SIMULATE_HOURS", "0.5"))
INTERVALS = tuple(map(float, os.environ.get("SIMULATE_INTERVALS", "0,60").split(",")))
NOON = 12.0
MORE_WORK, MORE_CPU = 1.15, 1.5
"""Of an arrival, where there are twice as many nodes and arrivals: 2.3 times the work in all. CPU is told by the machine, which may be busy."""
REGRESSION = 2.0
"""With seldom looks at all nodes, work misses its goal (1.5 of 15 and 30 nodes in half an hour, 0.8 in an hour), which is printed; this fails."""
MOST_MEGABYTES = 1024.0
_figures: list[Figure] = []


@pytest.fixture(scope="module", autouse=True)
def results() -> Iterator[None]:
    yield
    write(RESULTS, "simulate", _figures)


def settings(nodes: int) -> DaySettings:
    """A day of so many nodes, about; arrivals grow with them."""
    share = nodes / 500
    return DaySettings(
        hours=HOURS,
        starts_at_hour=NOON if HOURS < 24 else 0.0,
        spot=0.0,
        services=ServiceSettings(count=max(4, round(200 * share)), pods=round(8000 * share)),
        bursts=BurstSettings(per_day=20 * share),
        jobs=JobSettings(per_hour=150 * share),
        night_batch=NightBatchSettings(jobs=max(2, round(40 * share)), pods=round(1500 * share)),
    )


def pool() -> dict[str, Any]:
    """Nodes of two sizes, consolidated after a minute."""
    values = {
        names.CAPACITY_TYPE_LABEL: [names.CAPACITY_ON_DEMAND],
        names.ARCH_LABEL: ["amd64"],
        names.OS_LABEL: ["linux"],
        names.KWOK_INSTANCE_CPU_LABEL: ["4", "8"],
    }
    node = {
        "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        "requirements": [{"key": key, "operator": "In", "values": some} for key, some in values.items()],
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {"template": {"spec": node}, "disruption": {"consolidateAfter": "1m"}},
    }


@dataclass(frozen=True)
class _Cost:
    """What one run took. `calls`: of functions; 0 where they were not counted."""

    arrivals: int
    most_nodes: int
    passes: int
    seconds: float
    calls: int
    megabytes: float


def took(nodes: int, interval: float, *, counted: bool) -> _Cost:
    """One simulation, in this process."""
    logs.configure("error")
    options = Options.parse(["--history-duration=0s"], {})
    setting = SimulationSetting(generate(settings(nodes), 1), (pool(),), offer(), options, (40.0,), interval)
    profile, began = cProfile.Profile(), time.process_time()
    if counted:
        profile.enable()
    found = simulated(setting, 1)
    profile.disable()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.process_time() - began + children.ru_utime + children.ru_stime
    calls = sum(one.callcount for one in profile.getstats())
    return _Cost(found.pods, found.most_nodes, found.passes, seconds, calls, peak_megabytes())


def alone(nodes: int, interval: float, *, counted: bool = False) -> _Cost:
    """The same in a process of its own, so that its memory is nobody else's."""
    with ProcessPoolExecutor(1, get_context("spawn")) as processes:
        return processes.submit(took, nodes, interval, counted=counted).result()


@pytest.mark.parametrize("interval", INTERVALS)
def test_a_simulation_of_twice_as_many_nodes_takes_twice_the_work(interval: float) -> None:
    figures: list[Figure] = []
    every = f"every {interval:g} s" if interval else "full fidelity"
    costs = {nodes: alone(nodes, interval) for nodes in NODES}
    for nodes, cost in costs.items():
        head = f"{every}, {nodes} nodes"
        figures += [
            Figure(f"{head}: most at a time", cost.most_nodes, "nodes"),
            Figure(f"{head}: arrivals", cost.arrivals, "pods"),
            Figure(f"{head}: rounds of controllers", cost.passes, "rounds"),
            Figure(f"{head}: CPU", cost.seconds, "s"),
            Figure(f"{head}: CPU of an arrival", 1000 * cost.seconds / cost.arrivals, "ms"),
            Figure(f"{head}: memory at most", cost.megabytes, "MB", at_most(MOST_MEGABYTES)),
        ]
    for nodes, cost in costs.items():
        if (twice := costs.get(2 * nodes)) is None:
            continue
        head = f"{every}, {nodes} and {2 * nodes} nodes"
        work = [alone(some, interval, counted=True) for some in (nodes, 2 * nodes)]
        calls = [one.calls / one.arrivals for one in work]
        seconds = [one.seconds / one.arrivals for one in (cost, twice)]
        figures += [
            Figure(f"{head}: arrivals, ratio", twice.arrivals / cost.arrivals, ""),
            Figure(f"{head}: calls of functions of an arrival, ratio", calls[1] / calls[0], "", at_most(MORE_WORK)),
            Figure(f"{head}: CPU of an arrival, ratio", seconds[1] / seconds[0], "", at_most(MORE_CPU)),
        ]
    _figures.extend(figures)
    for one in figures:
        print(one.line(), flush=True)
    assert all(cost.megabytes <= MOST_MEGABYTES for cost in costs.values())
    assert all(one.value <= REGRESSION for one in figures if one.name.endswith("an arrival, ratio"))
