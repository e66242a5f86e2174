"""How long the solver takes, in CPU time of this process; `make bench` runs it and keeps results/scheduling.json."""

import gc
import random
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pytest

from provisioner.apis import names
from provisioner.apis.pods import Pod, PodShape
from provisioner.cli.harness.results import Figure, Goal, at_least, at_most, write
from provisioner.cloudprovider.kwok.catalogue import generated
from provisioner.scheduling.problem import Bin, Pool, Problem
from provisioner.scheduling.result import Result
from provisioner.scheduling.solver import solve
from tests.support.problems import node, pods, pool, shape

pytestmark = pytest.mark.bench

RESULTS = Path(__file__).parents[2] / "results"
ROUNDS = 5
CATALOGUE = generated()
CPUS = ("100m", "250m", "500m", "900m", "1", "1500m")
MEMORIES = ("100Mi", "256Mi", "512Mi", "1Gi", "2Gi", "4Gi")


def kwok_pool(name: str = "general", most_cpu: int = 16) -> Pool:
    return pool(
        name,
        (names.KWOK_INSTANCE_CPU_LABEL, "Lt", [str(most_cpu + 1)]),
        (names.OS_LABEL, "In", ["linux"]),
        types=CATALOGUE.types,
    )


def asked(
    waiting: tuple[Pod, ...], *pools: Pool, bins: tuple[Bin, ...] = (), daemons: tuple[PodShape, ...] = ()
) -> Problem:
    return Problem(pods=waiting, pools=pools, bins=bins, daemons=daemons, well_known=CATALOGUE.well_known_labels)


def basic() -> Problem:
    """The mix of `make bench-cluster` case basic."""
    return asked(pods(500, shape("900m", "3100Mi"), "s") + pods(500, shape("3500m", "28Gi"), "b"), kwok_pool())


def mixed() -> Problem:
    """1,000 pods in 12 classes, some bound to an architecture, a capacity type or a zone, with a daemon."""
    special: tuple[dict[str, str], ...] = ({}, {}, {names.ARCH_LABEL: "arm64"}, {names.CAPACITY_TYPE_LABEL: "spot"})
    waiting: tuple[Pod, ...] = ()
    for number in range(12):
        of = shape(
            CPUS[number % 6], MEMORIES[(number * 5) % 6], selector=special[number % 4], labels={"app": f"{number}"}
        )
        waiting += pods(84 if number < 4 else 83, of, f"app-{number}")
    return asked(waiting, kwok_pool(), daemons=(shape("50m", "64Mi"),))


def diverse(count: int) -> tuple[Pod, ...]:
    chance = random.Random(42)
    classes = [shape(cpu, memory, labels={"app": str(app)}) for cpu in CPUS for memory in MEMORIES for app in range(20)]
    chosen = [chance.randrange(len(classes)) for _ in range(count)]
    return tuple(one for number, of in enumerate(classes) for one in pods(chosen.count(number), of, f"app-{number}"))


def busy_nodes() -> Problem:
    """2,000 pending pods on 5,000 nodes, nearly all of them full."""
    chance = random.Random(7)
    bins = tuple(
        node(
            f"node-{number:04d}",
            f"{chance.choice((0, 0, 0, 50, 200, 400))}m" if number % 10 else "8",
            f"{chance.choice((0, 64, 512))}Mi" if number % 10 else "16Gi",
            labels={names.ZONE_LABEL: f"test-zone-{'abcd'[number % 4]}", names.ARCH_LABEL: "amd64"},
        )
        for number in range(5000)
    )
    return asked(diverse(2000), kwok_pool(), bins=bins)


def nowhere() -> Problem:
    """15,000 pods, each a class of its own, that fit nowhere."""
    waiting = tuple(one for number in range(15_000) for one in pods(1, shape(f"{300_000 + number}m"), f"p-{number}"))
    return asked(waiting, kwok_pool("a"), kwok_pool("b"))


def calibration() -> float:
    """CPU seconds of a fixed loop, to compare machines by."""
    started = time.process_time()
    total = 0
    for number in range(3_000_000):
        total += number % 7
    assert total > 0
    return time.process_time() - started


def measure(problem: Problem) -> tuple[float, Result]:
    """The least CPU seconds of a few rounds, and the result."""
    result, best = solve(problem), float("inf")
    for _ in range(ROUNDS):
        gc.collect()
        started = time.process_time()
        result = solve(problem)
        best = min(best, time.process_time() - started)
    return best, result


def utilisation(result: Result, resource: str) -> float:
    """Percent of the planned types' allocatable that pods ask for, mean over machines."""
    return 100 * fmean(
        sum(one.shape.requests.amount(resource) for one in claim.pods) / claim.allocatable[resource]
        for claim in result.claims
    )


CASES: dict[str, tuple[Callable[[], Problem], Goal | None]] = {
    "basic 1,000 pods, 2 classes, 144 types": (basic, at_most(50)),
    "mixed 1,000 pods, 12 classes, 144 types": (mixed, at_most(50)),
    "diverse 20,000 pods, 720 classes, 144 types": (lambda: asked(diverse(20_000), kwok_pool()), None),
    "2,000 pods on 5,000 nodes": (busy_nodes, at_most(300)),
    "15,000 pods that fit nowhere": (nowhere, at_most(1000)),
}


def test_scheduling() -> None:
    figures = [Figure("calibration loop", calibration(), "s")]
    for name, (make, goal) in CASES.items():
        problem = make()
        seconds, result = measure(problem)
        figures.append(Figure(f"{name}: solve", seconds * 1000, "ms", goal))
        figures.append(Figure(f"{name}: rate", len(problem.pods) / seconds, "pods/s"))
        figures.append(Figure(f"{name}: claims", len(result.claims), "claims", at_most(145) if make is basic else None))
        if make is basic:
            figures.append(Figure(f"{name}: cpu", utilisation(result, "cpu"), "%", at_least(95)))
            figures.append(Figure(f"{name}: memory", utilisation(result, "memory"), "%", at_least(83)))
    for figure in figures:
        print(figure.line())
    write(RESULTS, "scheduling", figures)
    missed = [figure.line() for figure in figures if figure.met is False]
    assert not missed
