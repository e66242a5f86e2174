"""The table of the solver that is asked many times, in CPU seconds of one process; `make bench` keeps results/prepare.json.

Goals are meant for a machine whose calibration loop takes 0.069 s, and scale with it. Every row runs in a process of its own and says
the median and the best of five runs (fewer where one takes long), and the memory that stays (PSS once inputs and answers are dropped)
above what the process had before. Figures of the solver before it could be prepared: data/prepare-before.json.
"""

import ctypes
import dataclasses
import gc
import json
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from msgspec.structs import replace as changed

from provisioner.apis import names
from provisioner.apis.core import NodeSelectorTerm
from provisioner.apis.meta import OwnerReference
from provisioner.apis.pods import Pod
from provisioner.apis.selections import MOST_ELEMENTS
from provisioner.lab.harness.machine import calibration, slowness
from provisioner.lab.harness.results import Figure, at_most, write
from provisioner.packing.protocol import Receiver, Sender
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.problem import Bin, Changes, World
from provisioner.scheduling.result import Result
from provisioner.support.garbage import collect_seldom
from provisioner.values.requirement import Operator, Requirement
from provisioner.values.resources import Resources
from tests.bench.bench_scheduling import interned
from tests.support import loads, maxima, mixes
from tests.support.agreement import answers_that_agree
from tests.support.problems import instance_type, pod, pool, shape, term
from tests.support.question import Problem, solve
from tests.support.rich import Stock

pytestmark = pytest.mark.bench

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
RUNS, LONG = 5, 8.0
"""So many runs; one only where it takes longer than so many seconds."""
ZONE, HOST = names.ZONE_LABEL, names.HOSTNAME_LABEL
FAMILY = "provider.example/family"


@dataclass(frozen=True)
class Row:
    """What is measured.

    Attributes:
        asked: makes the question.
        seconds: at most.
        memory: MB that may stay, None where it does not matter.
        left: pods without a place.
        claims: at most so many; None where nobody counts.
        usd: USD per hour of an answer that is legal, and that this one must not be dearer than; None where nobody compares.
        warm: the catalogue is known from a world before, as it always is in a program that runs; else all is new.
    """

    asked: Callable[[], Problem]
    seconds: float
    memory: float | None = None
    left: int = 0
    claims: int | None = None
    warm: bool = False
    usd: Callable[[], float] | None = None


def on(*pods: Pod, **more: object) -> Problem:
    return Problem(pods=pods, pools=(loads.ec2_pool(),), hostname_domains=3, **more)  # type: ignore[arg-type]


def diverse(count: int) -> Callable[[], Problem]:
    return lambda: Problem(pods=interned(mixes.diverse(count)), pools=(mixes.fake_pool(),))


def own_selectors() -> Problem:
    team = Requirement.of("team", Operator.EXISTS)
    return Problem(pods=loads.own_selectors(5_000), pools=(loads.ec2_pool("default", team),))


def long_filters() -> Problem:
    """As many node selector terms a pod as are read, all unlike, and 20 NodePools: a tenant's dearest pods by the byte."""
    pools = tuple(loads.ec2_pool(f"pool-{number:03d}") for number in range(20))

    def terms(pod: int) -> list[NodeSelectorTerm]:
        return [term((ZONE, "NotIn", [f"zone-{pod}-{number}"])) for number in range(MOST_ELEMENTS)]

    return Problem(pods=tuple(pod(f"pod-{number}", shape(terms=terms(number))) for number in range(100)), pools=pools)


def torn_team() -> Problem:
    types = tuple(instance_type(f"{cpu} CPUs", str(cpu), f"{cpu}Gi", cpu / 2, zones=("a", "b", "c")) for cpu in (2, 8))
    return Problem(pods=loads.torn_team(200, 10), pools=(pool(types=types),))


def many_pools() -> Problem:
    pools = tuple(loads.ec2_pool(f"pool-{number:03d}") for number in range(500))
    return Problem(pods=loads.too_large(20_000), pools=pools)


def with_min_values() -> Problem:
    family = Requirement.of(FAMILY, Operator.EXISTS, (), min_values=5)
    pods = tuple(loads.deployments(2_000, 10))
    pool = loads.ec2_pool("default", family, types=loads.many_types())
    return Problem(pods=pods, pools=(pool,), well_known=frozenset({FAMILY}))


def with_reservations() -> Problem:
    pool = loads.ec2_pool("default", types=loads.reserving_types())
    return Problem(pods=loads.own_requests(5_000), pools=(pool,), reservation_label=loads.RESERVATION_LABEL)


def spread_hosts(pods: int, **more: object) -> Callable[[], Problem]:
    def asked() -> Problem:
        spread = (loads.over(HOST, "web", **more),)
        of = shape("2", "2Gi", labels={"app": "web"}, topology_spread_constraints=spread)
        return on(*loads.copies(pods, of, "web"))

    return asked


def beside(plain: int, spread: int) -> Callable[[], Problem]:
    return lambda: on(*loads.plain_and_spread(plain, spread))


def a_node_each(plain: int, spread: int) -> Callable[[], float]:
    """What plain pods cost by themselves, with a node for each pod that is spread."""

    def usd() -> float:
        pods = loads.plain_and_spread(plain, spread)
        alone, one = solve(on(*pods[:plain])), solve(on(pods[-1]))
        return alone.usd_per_hour + spread * one.usd_per_hour

    return usd


BOTH = (HOST, ZONE)
ROWS: dict[str, Row] = {
    **{
        f"diverse {count:,}": Row(diverse(count), count / rate, warm=True)
        for count, rate in ((1_000, 104_000), (5_000, 162_000), (20_000, 250_000), (100_000, 353_000))
    },
    "own requests, 20k": Row(lambda: on(*loads.own_requests(20_000)), 0.4),
    "own nodeSelector value, 5k": Row(own_selectors, 0.6, memory=100),
    "10 replicas, zone spread, a host each, 20k": Row(
        lambda: on(*loads.deployments(2_000, 10, spread=(ZONE,), apart=HOST)), 0.6
    ),
    "10 replicas, host and zone spread, 20k": Row(lambda: on(*loads.deployments(2_000, 10, spread=BOTH)), 0.8),
    "10 replicas, host and zone spread, 20k, and 5 impossible": Row(
        lambda: on(*loads.deployments(2_000, 10, spread=BOTH), *loads.impossible()), 0.9, left=2
    ),
    "one Deployment of 10k, host and zone spread, and 5 impossible": Row(
        lambda: on(*loads.big_spread(), *loads.impossible()), 0.4, left=2
    ),
    "500 NodePools, none fits, 20k": Row(many_pools, 2, memory=200, left=20_000),
    f"100 pods of {MOST_ELEMENTS} node selector terms, 20 NodePools": Row(long_filters, 0.3),
    "2,000 pods of one team, spread together, most near their own": Row(torn_team, 1.5),
    "minValues 5, 1,000 types, 6 zones, 20k": Row(with_min_values, 0.5),
    "50 reservations, own requests, 5k": Row(with_reservations, 0.3),
    **{
        f"hostname spread, {pods} pods of 2 CPUs{words}": Row(spread_hosts(pods, **more), 0.4, claims=claims)
        for pods, claims in ((19, 3), (250, 3), (500, 6))
        for words, more in (("", {}), (", minDomains 3", {"min_domains": 3}))
    },
    **{
        f"hostname spread beside plain pods, {plain} and {spread}": Row(
            beside(plain, spread), 0.5, usd=a_node_each(plain, spread)
        )
        for plain, spread in ((100, 200), (50, 500), (300, 300), (200, 2_000))
    },
}


def pss() -> float:
    """MB of this process that are its own."""
    text = Path("/proc/self/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def settled() -> float:
    """The memory once everything that can go is gone."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return pss()


def runs_of(run: Callable[[], object], beside: Callable[[], object] | None = None) -> list[float]:
    """CPU seconds of each run; of the first alone where that is long. `beside` is called after each."""
    taken: list[float] = []
    while len(taken) < RUNS and (not taken or taken[-1] <= LONG):
        gc.collect()
        started = time.process_time()
        run()
        taken.append(time.process_time() - started)
        if beside is not None:
            beside()
    return taken


def median_of(run: Callable[[], object]) -> float:
    """CPU seconds of one run."""
    return statistics.median(runs_of(run))


def measured(row: Row) -> dict[str, float]:
    collect_seldom()
    problem = row.asked()
    known = prepare(replace(problem, pods=())) if row.warm else None
    if known is not None:
        known.solve(problem.pods[:10])
    before = settled()
    kept: list[Prepared] = []
    result: Result | None = None

    def ask() -> None:
        nonlocal result
        result = None
        kept[:] = [prepare(problem, known)]
        result = kept[0].solve(problem.pods)

    loops: list[float] = []  # right beside each run: what else runs on this machine slows both
    taken = runs_of(ask, lambda: loops.append(calibration()))
    assert result is not None
    figures = {
        "seconds": statistics.median(taken),
        "best": min(taken),
        "claims": len(result.claims),
        "unplaced": len(result.unplaced),
        "usd": result.usd_per_hour,
    }
    if row.usd is not None:
        figures["usd of a node each"] = row.usd()
        figures["usd at least"] = result.usd_at_least or 0.0
    result = None
    figures["kept"] = settled() - before
    figures["calibration"] = statistics.median(loops)
    return figures


# --- what is kept after many problems ---


def unlike(number: int) -> Problem:
    """One of 20 problems that have little in common."""
    kinds: list[Callable[[], Problem]] = [
        lambda: on(*loads.own_requests(20_000, start=1_000 * number)),
        lambda: on(*loads.deployments(2_000, 10, prefix=f"p{number}")),
        lambda: on(*loads.deployments(2_000, 10, spread=(ZONE,), prefix=f"z{number}")),
        lambda: on(*loads.deployments(200, 100, apart="", spread=(HOST,), prefix=f"h{number}")),
    ]
    return kinds[number % len(kinds)]()


def kept_after_many() -> dict[str, float]:
    collect_seldom()
    solve(on(*loads.own_requests(10)))
    before = settled()
    started = time.process_time()
    for number in range(20):
        solve(unlike(number))
    seconds = time.process_time() - started
    return {"seconds": seconds, "kept": settled() - before, "calibration": calibration()}


# --- 5,000 nodes with 50,000 pods ---

NODES, RUNNING = 5_000, 50_000


def plain_cluster(room: int = 4) -> World:
    """100 Deployments of 500 without any tie."""
    return World(pools=(loads.ec2_pool(),), bins=loads.cluster(NODES, loads.deployments(100, 500), room=room))


def tied_cluster(room: int = 4) -> World:
    """2,000 Deployments of 25, each a host apart and spread over hosts and zones."""
    running = loads.deployments(2_000, 25, spread=BOTH, apart=HOST, soft_hosts=True)
    return World(pools=(loads.ec2_pool(),), bins=loads.cluster(NODES, running, room=room), hostname_domains=3)


def afresh(world: World) -> World:
    """The same with nodes that nobody has looked at."""
    return replace(world, bins=tuple([replace(one) for one in world.bins]))


def with_one_more(one: Bin, number: int) -> Bin:
    """The node, and a pod of a Deployment that runs already is bound to it."""
    pod = changed(one.pods[0], name=f"more-{number}", uid=f"uid-more-{number}")
    return replace(one, pods=(*one.pods, pod))


def updates(prepared: Prepared, count: int) -> float:
    """Milliseconds of an update after so many pods."""
    bins = prepared.world.bins

    def changes(turn: int) -> Changes:
        some = [with_one_more(bins[(turn * 131 + step * 7) % NODES], step) for step in range(count)]
        return Changes(bins={one.name: one for one in some})

    made = iter([changes(turn) for turn in range(RUNS)])
    return 1000 * median_of(lambda: prepared.updated(next(made)))


def five_thousand(cluster: Callable[[], World]) -> dict[str, float]:
    collect_seldom()
    world = cluster()
    known = prepare(replace(world, bins=()))
    before = settled()
    prepared = [prepare(afresh(world), known)]
    prepared[0].solve(loads.own_requests(1))
    kept = settled() - before
    worlds = iter([afresh(world) for _ in range(RUNS)])
    prepared.clear()
    seconds = median_of(lambda: prepare(next(worlds), known))
    one = prepare(world, known)
    one.solve(loads.own_requests(1))
    return {
        "prepare": seconds,
        "kept": kept,
        "updated after 1 pod": updates(one, 1),
        "updated after 100 pods": updates(one, 100),
        "calibration": calibration(),
    }


def what_if(cluster: Callable[[], World], *, no: bool) -> dict[str, float]:
    """One node leaves, of 40 in turn: do its pods find a place? With `no` there is none, and no new node may be made."""
    collect_seldom()
    world = cluster()
    if no:
        full = Resources.of({"cpu": 0, "memory": 0, "pods": 0})
        world = replace(world, bins=tuple([replace(one, room=full) for one in world.bins]))
    prepared = prepare(world)
    answers = set()
    taken = []
    for number in range(60):
        one = world.bins[number * 79 % NODES]
        gc.collect()
        started = time.process_time()
        result = prepared.solve(
            one.pods,
            leaving={one.name},
            max_new=0 if no else 1,
            effort=0,
            stop_at_first_unplaced=no,
            explain=False,
        )
        taken.append(time.process_time() - started)
        answers.add(not result.unplaced)
    print(answers, file=sys.stderr)
    return {
        "milliseconds": 1000 * statistics.median(taken[20:]),
        "first": 1000 * taken[0],
        "yes": float(True in answers),
        "calibration": calibration(),
    }


# --- two threads, and another process ---


def two_threads() -> dict[str, float]:
    """How many answers of two threads over one world, for a minute, were what one thread is answered; any other one raises."""
    chance, stock = random.Random(12), Stock(20260503)
    worlds = [stock.drawn(chance) for _ in range(4)]
    compared = answers_that_agree(worlds, [stock.drawn(chance).pods for _ in range(6)], 60.0)
    return {"compared": compared, "calibration": calibration()}


DEADLINE = 2.0


def at_the_maxima() -> dict[str, float]:
    """Pods as large as they may be, by one list and by all: how long the worst question goes on after its time, wall clock."""
    collect_seldom()
    over, before = 0.0, settled()

    def late(kinds: Sequence[str], pods: int, cpu: str) -> float:
        """Nothing of one question is left at the next."""
        asked = maxima.asked(kinds, MOST_ELEMENTS if len(kinds) == 1 else 48, pods, 100, cpu)
        prepared = prepare(asked)
        end = time.monotonic() + DEADLINE
        prepared.solve(asked.pods, expired=lambda: time.monotonic() >= end)
        return time.monotonic() - end

    for pods in (5, 50):
        for kinds in (*([kind] for kind in maxima.KINDS), maxima.TOGETHER):
            for cpu in ("1m", "99"):
                over = max(over, seconds := late(kinds, pods, cpu))
                if seconds > 0.5:
                    print(pods, kinds, cpu, round(seconds, 2), file=sys.stderr)
    return {"after the deadline": over, "kept": settled() - before, "calibration": calibration()}


def to_the_planner(asked: Callable[[], Problem]) -> dict[str, float]:
    """A question and scheduling's answer on their way to the planning process; every pod runs, has an owner and a node."""
    collect_seldom()
    problem = asked()
    owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="uid-web", controller=True)
    bound = [
        changed(pod, uid=f"0b7a1f6e-6f0c-4d1e-9d5e-{number:012d}", owner=owner, node_name=f"node-{number % 999}")
        for number, pod in enumerate(problem.pods)
    ]
    result = prepare(problem).solve(bound)
    world = World(**{one.name: getattr(problem, one.name) for one in dataclasses.fields(World)})
    sender, receiver = Sender(), Receiver()

    def written() -> bytes:
        return sender.asked(world, result, deadline=0.0, rounds=0, seed=0)[1]

    first = written()
    assert receiver.question(first)[0].pods == result.placed
    again = written()
    return {
        "question bytes": len(again),
        "question written": 1000 * median_of(written),
        "question read": 1000 * median_of(lambda: receiver.question(again)),
        "calibration": calibration(),
    }


def child(name: str) -> None:
    """One row, told as JSON."""
    print(json.dumps(SPECIAL[name]() if name in SPECIAL else measured(ROWS[name])))


SPECIAL: dict[str, Callable[[], dict[str, float]]] = {
    "kept after 20 unlike problems of 20k": kept_after_many,
    "5,000 nodes, 100 plain Deployments": lambda: five_thousand(plain_cluster),
    "5,000 nodes, 2,000 tied Deployments": lambda: five_thousand(tied_cluster),
    "what-if, 100 plain Deployments": lambda: what_if(plain_cluster, no=False),
    "what-if, 100 plain Deployments, no": lambda: what_if(plain_cluster, no=True),
    "what-if, 2,000 tied Deployments": lambda: what_if(tied_cluster, no=False),
    "what-if, 2,000 tied Deployments, no": lambda: what_if(tied_cluster, no=True),
    "two threads over one world, a minute": two_threads,
    "solve at the maxima, deadline of 2 s": at_the_maxima,
    "to the planner, diverse 20,000": lambda: to_the_planner(diverse(20_000)),
    "to the planner, own requests, 20k": lambda: to_the_planner(lambda: on(*loads.own_requests(20_000))),
}
_FIVE_THOUSAND = {"prepare": 0.6, "kept": 150, "updated after 1 pod": 0.5, "updated after 100 pods": 10}
GOALS: dict[str, dict[str, float]] = {
    "kept after 20 unlike problems of 20k": {"kept": 50},
    "5,000 nodes, 100 plain Deployments": _FIVE_THOUSAND,
    "5,000 nodes, 2,000 tied Deployments": _FIVE_THOUSAND,
    "solve at the maxima, deadline of 2 s": {"after the deadline": 1.0, "kept": 100},
    "what-if, 100 plain Deployments": {"milliseconds": 2},
    "what-if, 100 plain Deployments, no": {"milliseconds": 6},
    "what-if, 2,000 tied Deployments": {"milliseconds": 5},
    "what-if, 2,000 tied Deployments, no": {"milliseconds": 15},
}
UNITS = {
    "seconds": "s",
    "best": "s",
    "claims": "claims",
    "unplaced": "pods",
    "usd": "$/h",
    "usd of a node each": "$/h",
    "usd at least": "$/h",
    "kept": "MB",
    "calibration": "s",
    "prepare": "s",
    "after the deadline": "s",
    "updated after 1 pod": "ms",
    "updated after 100 pods": "ms",
    "milliseconds": "ms",
    "compared": "answers",
    "question bytes": "bytes",
    "question written": "ms",
    "question read": "ms",
    "first": "ms",
}


def goals_of(name: str) -> dict[str, float]:
    row = ROWS.get(name)
    if row is None:
        return GOALS.get(name, {})
    found = {"seconds": row.seconds}
    if row.memory is not None:
        found["kept"] = row.memory
    if row.claims is not None:
        found["claims"] = row.claims
    return found


def told(name: str) -> list[Figure]:
    command = [sys.executable, "-c", f"from tests.bench import bench_prepare as b; b.child({name!r})"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    values = json.loads(done.stdout)
    speed = slowness(values["calibration"])
    figures = []
    for kind, value in values.items():
        goal = goals_of(name).get(kind)
        if kind == "usd":
            goal = values.get("usd of a node each")
        if goal is not None and UNITS.get(kind, "") in ("s", "ms"):
            goal *= speed
        figure = Figure(f"{name}: {kind}", value, UNITS.get(kind, ""), None if goal is None else at_most(goal))
        figures.append(figure)
        print(figure.line(), flush=True)
    return figures


def test_prepare() -> None:
    figures = [figure for name in (*ROWS, *SPECIAL) for figure in told(name)]
    write(RESULTS, "prepare", figures)
    for name, row in ROWS.items():
        value = next(one.value for one in figures if one.name == f"{name}: unplaced")
        assert value == row.left, name
        usd = {one.name: one for one in figures}[f"{name}: usd"]
        assert usd.goal is None or usd.goal.met_by(usd.value), name
    assert all(dataclasses.is_dataclass(one) for one in figures)
