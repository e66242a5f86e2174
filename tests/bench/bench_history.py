"""What a history costs; keeps results/history.json.

Bytes are of a stream of 20 new pods a second, of 200 classes on 500 nodes, each bound after a second and gone ten minutes later: two hours of it, with
what 24 hours would take. The price of a fleet is that of 5,000 nodes with ten pods each, of 500 classes; a fifth has a pod with do-not-disrupt. CPU is that of one thread, for the events and the plan of a batch, and for telling both to the history; both are measured in one run.
"""

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import cast

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.pods import Pod, decode_pod
from provisioner.apis.shapes import PodShape
from provisioner.cloudprovider.types import CloudProvider
from provisioner.history.decisions import batch_planned
from provisioner.history.entries import BatchPlanned, BoundCauses, FleetBound
from provisioner.history.fleet_pricing import FleetPricing
from provisioner.history.keeper import HistoryBounds, HistoryKeeper, HistorySources, MemorySegments
from provisioner.lab.harness.results import Figure, at_most, percentile, write
from provisioner.packing.process import PlannerProcess
from provisioner.provisioning.worlds import Worlds
from provisioner.runtime.changes import PodChanged
from provisioner.scheduling.prepared import prepare
from provisioner.scheduling.result import Result
from provisioner.state.cluster import Cluster
from provisioner.support.clock import Clock, SystemClock
from tests.support import loads
from tests.support.clock import FakeClock
from tests.support.cluster import TYPES, bound, node, pod
from tests.support.disrupting import FakeCloud
from tests.support.fleets import Fleet
from tests.support.fleets import pool as fleet_pool
from tests.support.pods import wire_bytes, wire_pod
from tests.support.problems import pool as scheduling_pool
from tests.support.problems import problem, shape

pytestmark = pytest.mark.bench

ROOT = Path(__file__).parents[2]
RATE, SECONDS, LIFE_SECONDS = 20, 2 * 3600, 600
CLASSES, NODES = 200, 500
BATCHES, BATCH = 200, 20
FLEET, PODS_OF_NODE, FLEET_CLASSES = 5000, 10, 500
LONGEST_AGE = 600
"""Seconds between two prices, at the most."""
MIB = 1 << 20


def shapes() -> list[PodShape]:
    return [shape(cpu=f"{100 + number}m", labels={"app": f"app-{number}"}) for number in range(CLASSES)]


def kept(clock: Clock) -> tuple[HistoryKeeper, MemorySegments]:
    nodes = tuple(
        node(
            f"ip-10-0-{number // 250}-{number % 250}.ec2.internal",
            labels={
                names.NODEPOOL_LABEL: f"pool-{number % 5}",
                names.CAPACITY_TYPE_LABEL: "spot",
                names.INSTANCE_TYPE_LABEL: f"m{number % 7}.large",
                names.ZONE_LABEL: f"us-east-1{'abc'[number % 3]}",
                names.HOSTNAME_LABEL: f"ip-{number}",
            },
        )
        for number in range(NODES)
    )
    sources = HistorySources(tuple, lambda: nodes, tuple, tuple, lambda _labels, _annotations: 0.1)
    bounds = HistoryBounds(86400.0, 64 * MIB)
    store = MemorySegments(bounds)
    return HistoryKeeper(sources, store, bounds, clock, source="leader", changed=None), store


def test_bytes_of_pods_and_nodes() -> None:
    chance, clock = random.Random(1), FakeClock()
    keeper, store = kept(clock)
    keeper.flush()
    opening = len(keeper.open_segment())
    all_shapes, one = shapes(), pod("shape")
    ends: list[list[Pod]] = [[] for _ in range(SECONDS + LIFE_SECONDS + 1)]
    for second in range(SECONDS):
        for number in range(RATE):
            name = f"p-{second}-{number}"
            new = msgspec.structs.replace(
                one, name=name, uid=name, shape=chance.choice(all_shapes), created=clock.now()
            )
            keeper.heard(PodChanged(None, new))
            placed = bound(new, f"ip-10-0-{chance.randrange(2)}-{chance.randrange(250)}.ec2.internal")
            keeper.heard(PodChanged(new, placed))
            ends[second + chance.randrange(1, LIFE_SECONDS)].append(placed)
        for gone in ends[second]:
            keeper.heard(PodChanged(gone, None))
        keeper.flush()
        clock.advance(1)
    size = sum(map(len, store.segments())) + len(keeper.open_segment())
    pods = RATE * SECONDS
    told(
        "history",
        Figure("bytes of a pod, from its creation to its end", size / pods, "bytes", at_most(30)),
        Figure("bytes of a node at the beginning of a segment", opening / NODES, "bytes", at_most(100)),
        Figure("24 h of 20 pods a second", size * 86400 / SECONDS / MIB, "MiB", at_most(64)),
    )


def told(name: str, *figures: Figure) -> None:
    write(ROOT / "results", name, figures)
    for one in figures:
        print(one.line())
    assert all(one.goal is None or one.goal.met_by(one.value) for one in figures)


def seconds(work: Callable[[], object]) -> float:
    """CPU of this thread."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


def test_what_planning_pays_for_a_history() -> None:
    clock = SystemClock()
    keeper, _ = kept(clock)
    keeper.flush()
    cluster = Cluster(lambda _: TYPES, clock)
    cluster.settle()
    prepared = prepare(problem((), scheduling_pool(types=tuple(TYPES.values()))))
    base, heard, written = [], [], []
    for number in range(BATCHES):
        wires = [wire_bytes(wire_pod(number * BATCH + index)) for index in range(BATCH)]
        new: list[Pod] = []
        results: list[Result] = []

        def decide(wires: Sequence[bytes] = wires, new: list[Pod] = new, results: list[Result] = results) -> None:
            for data in wires:
                new.append(decode_pod(data))
                cluster.pod_changed(None, new[-1])
            cluster.snapshot()
            results.append(prepared.solve(new))

        def tell(new: Sequence[Pod] = new, number: int = number, results: list[Result] = results) -> None:
            for each in new:
                keeper.heard(PodChanged(None, each))
            keeper.tell(lambda tracker, _: tracker.entry(batch(str(number), results[0])))

        base.append(seconds(decide))
        heard.append(seconds(tell))
        written.append(seconds(keeper.flush))
    both = [sum(pair) for pair in zip(base, heard, strict=True)]
    told(
        "history-planning",
        Figure("a batch of 20 pods, p99", percentile(base, 99) * 1000, "ms of CPU"),
        Figure("with history, p99", percentile(both, 99) / percentile(base, 99), "times", at_most(1.03)),
        Figure("with history, median", median(both) / median(base), "times"),
        Figure("what the other thread writes of a batch, median", median(written) * 1000, "ms of CPU"),
    )


class Cloud(FakeCloud):
    kinds = tuple(one for one in loads.ec2() if one.capacity["cpu"] <= 32_000)


def test_how_often_a_large_fleet_is_priced() -> None:
    chance, cloud = random.Random(1), Cloud()
    kinds = [one for one in Cloud.kinds if one.name.endswith(".2xlarge")][:20]
    every = [
        shape(
            cpu=f"{chance.choice((250, 500, 750))}m",
            memory=f"{chance.choice((512, 1024, 2048))}Mi",
            labels={"app": f"app-{number}"},
        )
        for number in range(FLEET_CLASSES)
    ]
    fleet = Fleet([fleet_pool()], types=Cloud.kinds)
    for number in range(FLEET):
        name = f"n{number:05d}"
        pods = [
            loads.bound(pod(f"p-{number}-{each}", shape=chance.choice(every)), f"node-{name}")
            for each in range(PODS_OF_NODE)
        ]
        if number % 5 == 0:
            pods[0] = msgspec.structs.replace(pods[0], annotations={names.DO_NOT_DISRUPT: "true"})
        fleet.node(name, pods, kind=chance.choice(kinds), zone=chance.choice(("us-east-1a", "us-east-1b")))
    snapshot, clock = fleet.view().snapshot, SystemClock()
    process, found = PlannerProcess(clock), list[FleetBound | BoundCauses]()
    pricing = FleetPricing(lambda: snapshot, Worlds(cast(CloudProvider, cloud)), process, clock, found.append)
    try:
        assert process.await_start(clock.monotonic() + 60.0) is None
        rest = pricing.poll()
    finally:
        process.stop()
        process.tidy()
    bound, causes = found
    assert isinstance(bound, FleetBound)
    assert bound.pods == FLEET * PODS_OF_NODE
    told(
        "history-prices",
        Figure("greedy price and bound of 5,000 nodes", bound.cpu_seconds, "s of CPU"),
        Figure("what keeps 5,000 nodes from the bound", causes.cpu_seconds, "s of CPU"),
        Figure("until the next price at 2 % of a core", rest, "s", at_most(LONGEST_AGE)),
    )


def batch(number: str, result: Result) -> BatchPlanned:
    return batch_planned(
        number, BATCH, result, usd_saved=0.0, usd_at_least=result.usd_at_least, outcome="improved", seconds=0.1
    )
