"""How long the solver takes, in CPU time of one process; `make bench` runs it and keeps results/scheduling.json.

Each case runs in a process of its own, so that its peak memory is its own. Two rates a mix: *solve* from pods whose classes
are interned (as they are in the product once a pod is decoded) to the result with reasons, and *all* from decoded
objects, interning included.
"""

import gc
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.pods import Pod, pod_of
from provisioner.lab.harness.machine import calibration, slowness
from provisioner.lab.harness.results import Figure, Goal, at_least, at_most, write
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.problem import Bin, PreferencePolicy
from provisioner.scheduling.result import Result
from provisioner.support.garbage import collect_seldom
from provisioner.values.resources import Resources
from tests.bench.machine import peak_megabytes
from tests.support import mixes
from tests.support.problems import pods, shape
from tests.support.question import Problem

pytestmark = pytest.mark.bench

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
ROUNDS = 5
"""At least so many, and as many more as there is time for: what else runs on this machine only adds."""
SECONDS = 3.0
NODES = 5_000
RUNNING = 10


@dataclass(frozen=True)
class Case:
    """What is measured.

    Attributes:
        decoded: the pods to place, as decoded objects.
        problem: what is asked about them, once they are interned.
        goals: by figure.
    """

    decoded: Callable[[], list[mixes.Decoded]]
    problem: Callable[[tuple[Pod, ...]], Problem]
    goals: dict[str, Goal]


def interned(decoded: list[mixes.Decoded]) -> tuple[Pod, ...]:
    return tuple([pod_of(metadata, spec) for metadata, spec in decoded])


def on_new_nodes(of: tuple[Pod, ...]) -> Problem:
    return Problem(pods=of, pools=(mixes.fake_pool(),))


def ignoring(of: tuple[Pod, ...]) -> Problem:
    return replace(on_new_nodes(of), preferences=PreferencePolicy.IGNORE)


def among_busy_nodes(of: tuple[Pod, ...]) -> Problem:
    """5,000 nodes with 10 running pods each, of the same mix; one node in ten has room."""
    running = interned(mixes.diverse(NODES * RUNNING))
    full = Resources.of({"cpu": 50, "memory": 64 * 2**20, "pods": 10})
    roomy = Resources.of({"cpu": 8000, "memory": 16 * 2**30, "pods": 100})
    bins = tuple(
        Bin(
            name=f"node-{number}",
            node_name=f"node-{number}",
            labels={names.HOSTNAME_LABEL: f"node-{number}", names.ZONE_LABEL: mixes.ZONES[number % 3]},
            room=full if number % 10 else roomy,
            pods=running[number::NODES],
        )
        for number in range(NODES)
    )
    return Problem(pods=of, pools=(mixes.fake_pool(),), bins=bins)


def nowhere(of: tuple[Pod, ...]) -> Problem:
    """15,000 pods, each a class of its own, that fit nowhere."""
    huge = tuple(one for number in range(15_000) for one in pods(1, shape(f"{500 + number}"), f"huge-{number}"))
    pool = mixes.fake_pool()
    return Problem(pods=of + huge, pools=(replace(pool, name="a"), replace(pool, name="b")))


def in_gangs(of: tuple[Pod, ...], size: int, *others: Pod) -> Problem:
    """All or none of each so many, and of `others` one a gang."""
    gangs = [msgspec.structs.replace(pod, group=f"g{number // size}") for number, pod in enumerate(of)]
    gangs += [msgspec.structs.replace(pod, group=f"g{number}") for number, pod in enumerate(others)]
    keys = {f"{pod.namespace}/{pod.group}" for pod in gangs}
    return replace(on_new_nodes(tuple(gangs)), groups=dict.fromkeys(keys, size + bool(others)))


def half_placed(_: tuple[Pod, ...]) -> Problem:
    """200 gangs of 8; of every second one a pod fits nowhere."""
    return in_gangs(pods(1_400), 7, *pods(100, shape("999"), "huge"), *pods(100, prefix="small"))


def mix(count: int, solve_rate: float, all_rate: float) -> Case:
    goals = {"solve": at_least(solve_rate), "all": at_least(all_rate), "claims": at_most(count // 5)}
    return Case(lambda: mixes.diverse(count), on_new_nodes, goals)


def diverse(count: int) -> Callable[[], list[mixes.Decoded]]:
    return lambda: mixes.diverse(count)


PREFERENCES = {"solve": at_least(50_000), "all": at_least(20_000)}
CASES = {
    **{f"diverse {count:,}": mix(count, 50_000, 20_000) for count in (1, 50, 100, 500)},
    "diverse 1,000": mix(1_000, 50_000, 20_000),
    "diverse 5,000": mix(5_000, 120_000, 40_000),
    "diverse 20,000": mix(20_000, 150_000, 50_000),
    "diverse 100,000": mix(100_000, 150_000, 50_000),
    "preferences 4,000, respected": Case(lambda: mixes.preferring(4_000), on_new_nodes, PREFERENCES),
    "preferences 4,000, ignored": Case(lambda: mixes.preferring(4_000), ignoring, PREFERENCES),
    "2,000 pods, 5,000 nodes, 50,000 running": Case(diverse(2_000), among_busy_nodes, {"seconds": at_most(0.3)}),
    "8,000 equal pods in 1,000 gangs of 8": Case(
        list, lambda _: in_gangs(pods(8_000), 8), {"solve": at_least(500_000)}
    ),
    "8,000 diverse pods in 1,000 gangs of 8": Case(
        list, lambda _: in_gangs(interned(mixes.diverse(8_000)), 8), {"solve": at_least(40_000)}
    ),
    "one gang of 5,000": Case(list, lambda _: in_gangs(pods(5_000), 5_000), {"solve": at_least(500_000)}),
    "200 gangs, half of which cannot be placed": Case(list, half_placed, {"seconds": at_most(0.05)}),
    "15,000 pods that fit nowhere": Case(list, nowhere, {"seconds": at_most(1), "memory": at_most(300)}),
}
for _small in ("diverse 1", "diverse 50", "diverse 100", "diverse 500"):
    CASES[_small] = replace(CASES[_small], goals={})  # fixed costs decide; printed without a goal


UNPLACED = {"15,000 pods that fit nowhere", "200 gangs, half of which cannot be placed"}


def warm(problem: Problem) -> Prepared:
    """Everything that a running program has done long ago: its collector, modules, first calls, and a world of the same catalogue."""
    collect_seldom()
    known = prepare(replace(problem, bins=()))
    known.solve(interned(mixes.diverse(10)))
    return known


def rounds() -> Iterator[int]:
    """The number of each round."""
    end = time.monotonic() + SECONDS
    for number in itertools.count():
        if number >= ROUNDS and time.monotonic() >= end:
            return
        yield number


def measured(case: Case) -> dict[str, float]:
    """The best of a few rounds of each figure, in this process."""
    decoded = case.decoded()
    everything = float("inf")
    result: Result | None = None
    of: tuple[Pod, ...] = ()
    problem = case.problem(())
    known = warm(problem)

    def solve(of: Problem) -> Result:
        return prepare(of, known).solve(of.pods)

    for _ in rounds() if "all" in case.goals else range(1):
        of, result = (), None  # nothing of the last round is known any more
        gc.collect()
        started = time.process_time()
        of = interned(decoded)
        result = solve(replace(problem, pods=of + problem.pods))
        everything = min(everything, time.process_time() - started)
    problem = replace(problem, pods=of + problem.pods)
    seconds = float("inf")
    for _ in rounds():
        result = None
        gc.collect()
        started = time.process_time()
        result = solve(problem)
        seconds = min(seconds, time.process_time() - started)
    assert result is not None
    return {
        "seconds": seconds,
        "solve": len(problem.pods) / seconds,
        "all": len(problem.pods) / everything,
        "claims": len(result.claims),
        "unplaced": len(result.unplaced),
        "usd": result.usd_per_hour,
        "memory": peak_megabytes(),
        "calibration": calibration(),
    }


UNITS = {
    "seconds": "s",
    "solve": "pods/s",
    "all": "pods/s",
    "claims": "claims",
    "unplaced": "pods",
    "usd": "$/h",
    "memory": "MB",
    "calibration": "s",
}


def test_scheduling() -> None:
    figures = []
    for name, case in CASES.items():
        command = [sys.executable, "-c", f"from tests.bench import bench_scheduling as b; b.child({name!r})"]
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        values = json.loads(done.stdout)
        slow = slowness(values["calibration"])
        for kind, unit in UNITS.items():
            goal = case.goals.get(kind)
            if goal is not None and unit in ("s", "pods/s"):
                goal = replace(goal, value=goal.value * slow if unit == "s" else goal.value / slow)
            figures.append(Figure(f"{name}: {kind}", values[kind], unit, goal))
            print(figures[-1].line())
        assert (values["unplaced"] == 0) == (name not in UNPLACED)
        for kind in ("claims", "memory"):  # of times only the goals are printed: this machine may not be idle
            assert kind not in case.goals or case.goals[kind].met_by(values[kind])
    write(RESULTS, "scheduling", figures)


def child(name: str) -> None:
    """One case, told as JSON."""
    print(json.dumps(measured(CASES[name])))
