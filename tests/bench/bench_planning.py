"""What fleets cost beside their proved bound, in CPU time of one process; `make bench` runs it and keeps results/planning.json.

EC2's types at us-east-1's on-demand prices (636 of c, m and r, amd64), three DaemonSets a node, pods pending all at once, three
seeds. Each row names its bound: "duals" are those of the linear program over resources, "loads" the higher of these and what column
generation proves (`packing.knapsack`); `tests/unit/packing` holds both against every fleet of a few pods. "Whole GPUs" is an integer
program of this benchmark alone (`tests/support/gpu_bound`). Rows of the table of issues that are measured elsewhere: consolidation in
`bench_disruption`, the real plane by `dovetail bench-cluster`. Beside the plan: scheduling's own answer, and first fit by decreasing size: the cheaper one of scheduling's and of
Karpenter's rule (`simulator.karpenter`).
CPU seconds are of `improve` alone, judging included; what scheduling took stands beside it. Spot costs what its launch is expected to cost
(`expected_price`), at made-up prices; the bound of these rows counts the least prices, and is not asked about.
"""

import math
import random
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from provisioner.apis.pods import Pod
from provisioner.cloudprovider.types import InstanceType, expected_price
from provisioner.lab.harness.results import Figure, Goal, at_least, at_most, write
from provisioner.packing.dual_prices import prices_of
from provisioner.packing.interruption_cost import expected
from provisioner.packing.model import models_of
from provisioner.packing.planner import PATIENCE, SEARCH_SHARE
from provisioner.packing.process import PlannerProcess, ProcessReply
from provisioner.scheduling.becoming import labels_of, with_pods
from provisioner.scheduling.improvement.acceptance import weighed
from provisioner.scheduling.improvement.partitions import MOST_PODS, cheapest
from provisioner.scheduling.judging import design_of
from provisioner.scheduling.prepared import prepare
from provisioner.scheduling.problem import Bin, World
from provisioner.scheduling.result import Result
from provisioner.simulator.karpenter.provisioning import provision
from provisioner.support.clock import SystemClock
from tests.bench.machine import peak_megabytes
from tests.support import gpu_bound, priced_fleets
from tests.support.improving import Plan, improve
from tests.support.partitions import usd_of_groups
from tests.support.priced_fleets import GPU
from tests.support.problems import pod, shape

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]  # minutes, and several times that on a slow machine

RESULTS = Path(__file__).parents[2] / "results"
SEEDS = (1, 2, 3)
SIZES = (1_000, 5_000, 20_000)
HUGE = 100_000
WITHOUT_END = 10**9
PROBLEMS = 500
ENDS = {1_000: 0.7, 5_000: 2.2, 20_000: 1.3, HUGE: 8.0}
"""CPU seconds after which nothing more is tried; the rest is for reading the answer before and judging it after."""
SECONDS = {1_000: 1.0, 5_000: 3.0, 20_000: 3.0, HUGE: 15.0}
_FLEXIBLE = 15
SAVING = {"micro": 5.0, "batch": 5.0, "zonal": 5.0}
"""Percent below first fit at least; memory-heavy pods leave 1 to 4."""


@dataclass(frozen=True)
class Measured:
    """One run."""

    plan: Plan
    seconds: float
    scheduling_usd: float
    scheduling_seconds: float
    karpenter_usd: float


def measured(kind: str, count: int, seed: int) -> Measured:
    prepared = prepare(priced_fleets.world_of(priced_fleets.ec2_types()))
    pods = priced_fleets.workload(kind, count, seed)
    prepared.solve(pods)  # what a pool can make is known in the product
    began = time.process_time()
    result = prepared.solve(pods)
    solved = time.process_time()
    end = solved + ENDS[count]
    plan = improve(prepared, pods, result, expired=lambda: time.process_time() > end, iterations=WITHOUT_END, seed=seed)
    seconds = time.process_time() - solved
    assert prepared.judge(design_of(plan.result)).legal
    assert sum(len(claim.pods) for claim in plan.result.claims) == count
    fit = karpenters_usd(priced_fleets.ec2_types(), kind, count, seed)
    return Measured(plan, seconds, result.usd_per_hour, solved - began, fit)


def gap_goal(kind: str, count: int) -> Goal:
    return at_most(3.0 if kind in ("zonal", "hosts") or count <= 1_000 else 2.0)


@pytest.mark.parametrize("kind", ["micro", "batch", "memory", "zonal", "hosts"])
def test_fleets_come_near_their_bound(kind: str) -> None:
    kept(f"planning-{kind}", [figure for count in SIZES for figure in figures_of(kind, count)])


@pytest.mark.parametrize("kind", ["micro", "batch", "memory", "zonal"])
def test_a_hundred_thousand_pods(kind: str) -> None:
    kept(f"planning-huge-{kind}", figures_of(kind, HUGE))


@pytest.mark.parametrize("kind", ["micro", "batch", "memory", "zonal"])
def test_memory_of_the_planning_process(kind: str) -> None:
    """The process that the provisioner starts, asked as the provisioner asks it."""
    prepared, clock = prepare(priced_fleets.world_of(priced_fleets.ec2_types())), SystemClock()
    result = prepared.solve(priced_fleets.workload(kind, HUGE))
    process = PlannerProcess(clock)
    try:
        now = clock.monotonic()
        reply = process.ask(
            prepared.world,
            result,
            search_until=now + PATIENCE.seconds(HUGE) * SEARCH_SHARE,
            wait_until=now + 60,
            rounds=WITHOUT_END,
            seed=0,
        )
        assert isinstance(reply, ProcessReply)
        assert process.pid is not None
        peak = peak_megabytes(process.pid)
    finally:
        process.stop()
        process.tidy()
    kept(f"planning-memory-{kind}", [Figure(f"{kind} {HUGE:,}, planning process, peak", peak, "MB", at_most(300.0))])


def figures_of(kind: str, count: int) -> list[Figure]:
    runs = [measured(kind, count, seed) for seed in SEEDS]
    for seed, run in zip(SEEDS, runs, strict=True):
        plan = run.plan
        over = 100 * (run.scheduling_usd / plan.usd_at_least - 1)
        fit = 100 * (run.karpenter_usd / plan.usd_at_least - 1)
        print(
            f"{kind} {count:,} seed {seed}: {plan.usd_per_hour:.2f} $/h over a bound of {plan.usd_at_least:.2f}: "
            f"+{100 * plan.gap:.2f} % in {run.seconds:.2f} s ({plan.stage}, {plan.steps} rounds); scheduling "
            f"{run.scheduling_usd:.2f} (+{over:.1f} %) in {run.scheduling_seconds:.2f} s; Karpenter's rule "
            f"{run.karpenter_usd:.2f} (+{fit:.1f} %)"
        )
    saved = [100 * (1 - run.plan.usd_per_hour / min(run.scheduling_usd, run.karpenter_usd)) for run in runs]
    name = f"{kind} {count:,}"
    return [
        Figure(
            f"{name}, over the bound (loads), worst seed",
            100 * max(run.plan.gap for run in runs),
            "%",
            gap_goal(kind, count),
        ),
        Figure(
            f"{name}, CPU seconds, median",
            statistics.median(run.seconds for run in runs),
            "s",
            at_most(SECONDS[count]),
        ),
        Figure(f"{name}, below first fit, least", min(saved), "%", at_least(SAVING.get(kind, 0.0))),
    ]


def kept(name: str, figures: list[Figure]) -> None:
    write(RESULTS, name, figures)
    print(*(figure.line() for figure in figures), sep="\n")
    assert all(not math.isnan(figure.value) for figure in figures)
    missed = [figure.line() for figure in figures if figure.met is False]
    assert not missed, "\n".join(missed)


def improved(world: World, pods: tuple[Pod, ...], seconds: float, seed: int = 0) -> tuple[Result, Plan, float]:
    """Scheduling's answer, the plan, and the CPU seconds that the plan took."""
    prepared = prepare(world)
    prepared.solve(pods)
    result = prepared.solve(pods)
    began = time.process_time()
    end = began + seconds
    plan = improve(prepared, pods, result, expired=lambda: time.process_time() > end, iterations=WITHOUT_END, seed=seed)
    taken = time.process_time() - began
    assert prepared.judge(design_of(plan.result)).legal
    return result, plan, taken


@pytest.mark.parametrize("kind", ["micro", "batch", "memory", "zonal"])
def test_pools_of_at_most_32_cpus(kind: str) -> None:
    types = priced_fleets.ec2_types(most_cpus=32)
    gaps, saved = [], []
    for seed in SEEDS:
        result, plan, seconds = improved(
            priced_fleets.world_of(types), priced_fleets.workload(kind, 5_000, seed), ENDS[5_000], seed
        )
        fit = karpenters_usd(types, kind, 5_000, seed)
        least = min(fit, result.usd_per_hour)
        gaps.append(100 * plan.gap)
        saved.append(100 * (1 - plan.usd_per_hour / least))
        print(
            f"{kind}, 32 cpus, seed {seed}: {plan.usd_per_hour:.2f} $/h over {plan.usd_at_least:.2f} (loads): +{plan.gap:.2%} "
            f"in {seconds:.2f} s; scheduling {result.usd_per_hour:.2f}, Karpenter's rule {fit:.2f}"
        )
    figures = [
        Figure(
            f"{kind} 5,000, nodes of 32 cpus, over the bound (loads), worst seed",
            max(gaps),
            "%",
            at_most(3.5),
        ),
        Figure(f"{kind} 5,000, nodes of 32 cpus, below first fit, least", min(saved), "%", at_least(0.0)),
    ]
    kept(f"planning-32-cpus-{kind}", figures)


def test_gpus_and_two_architectures() -> None:
    types = priced_fleets.ec2_types(gpus=True)
    gaps: list[float] = []
    saved: list[float] = []
    arms: dict[tuple[str, int], list[float]] = {
        (kind, count): [] for kind in ("micro", "arches") for count in SIZES[:2]
    }
    for seed in SEEDS:
        result, plan, seconds = improved(
            priced_fleets.world_of(types), priced_fleets.workload("gpu", 1_000, seed), ENDS[1_000], seed
        )
        plain = sum(
            "g" in claim.planned_type[:2] and not any(GPU in pod.shape.requests for pod in claim.pods)
            for claim in plan.result.claims
        )
        assert not plain, "nodes with GPUs and without a pod that asks for one"
        fit = karpenters_usd(types, "gpu", 1_000, seed)
        saved.append(100 * (1 - plan.usd_per_hour / min(fit, result.usd_per_hour)))
        least = gpu_bound.usd_at_least(types, priced_fleets.workload("gpu", 1_000, seed))
        gaps.append(100 * (plan.usd_per_hour / least - 1))
        print(
            f"gpu seed {seed}: {plan.usd_per_hour:.2f} $/h over {least:.2f} (whole GPUs) in {seconds:.2f} s; "
            f"scheduling {result.usd_per_hour:.2f}, Karpenter's rule {fit:.2f}"
        )
        both = priced_fleets.ec2_types(arches=("amd64", "arm64"))
        for (kind, count), overs in arms.items():
            result, plan, seconds = improved(
                priced_fleets.world_of(both), priced_fleets.workload(kind, count, seed), ENDS[count], seed
            )
            overs.append(100 * plan.gap)
            fit = karpenters_usd(both, kind, count, seed)
            print(
                f"two architectures, {kind} {count:,} seed {seed}: {plan.usd_per_hour:.2f} $/h, +{plan.gap:.2%} in {seconds:.2f} s; "
                f"scheduling {result.usd_per_hour:.2f}, Karpenter's rule {fit:.2f}"
            )
    figures = [
        Figure("gpu 1,000, over the bound (whole GPUs), worst seed", max(gaps), "%", at_most(2.0)),
        Figure("gpu 1,000, below first fit, least", min(saved), "%", at_least(5.0)),
        *(
            Figure(
                f"two architectures, {kind} {count:,}, over the bound (loads), worst seed",
                max(some),
                "%",
                at_most(2.0) if kind == "arches" else gap_goal(kind, count),
            )
            for (kind, count), some in arms.items()
        ),
    ]
    kept("planning-kinds", figures)


@pytest.mark.parametrize("kind", ["micro", "batch", "memory", "zonal"])
def test_spot_at_the_price_that_is_paid(kind: str) -> None:
    spot = priced_fleets.ec2_types(capacity_type="spot")
    lowest = tuple(replace(one, offerings=tuple(replace(way, alternatives=1) for way in one.offerings)) for one in spot)
    offering_of = {one.name: one.offerings[0] for one in spot}

    def paid(plan: Plan) -> float:
        claims = plan.result.claims
        return sum(expected_price([offering_of[name] for name in claim.instance_types]) for claim in claims)

    saved, better, rare = [], [], 0
    for seed in SEEDS:
        pods = priced_fleets.workload(kind, 1_000, seed)
        result, plan, seconds = improved(priced_fleets.world_of(spot), pods, ENDS[1_000], seed)
        _, naive, _ = improved(priced_fleets.world_of(lowest), pods, ENDS[1_000], seed)
        fit = karpenters_usd(spot, kind, 1_000, seed)
        rare += sum(len(claim.instance_types) < _FLEXIBLE for claim in plan.result.claims)
        saved.append(100 * (1 - plan.usd_per_hour / min(fit, result.usd_per_hour)))
        better.append(100 * (1 - paid(plan) / paid(naive)))
        print(
            f"spot {kind} 1,000 seed {seed}: {plan.usd_per_hour:.2f} $/h expected in {seconds:.2f} s; planned at the lowest prices "
            f"{paid(naive):.2f}, scheduling {result.usd_per_hour:.2f}, Karpenter's rule {fit:.2f}; lowest prices {plan.usd_at_least:.2f}"
        )
    figures = [
        Figure(f"spot {kind} 1,000, nodes of fewer than 15 instance types", rare, "nodes", at_most(0)),
        Figure(f"spot {kind} 1,000, below first fit, least", min(saved), "%", at_least(5.0)),
        Figure(
            f"spot {kind} 1,000, below plans at the lowest prices, mean", statistics.mean(better), "%", at_least(-1.0)
        ),
    ]
    kept(f"planning-spot-{kind}", figures)


def test_what_spot_costs_with_several_node_pools_is_estimated_in_no_time() -> None:
    types = priced_fleets.ec2_types("cmrt", ("amd64", "arm64"), capacity_type="spot")
    world = priced_fleets.world_of(types)
    (pool,) = world.pools
    world = replace(world, pools=tuple(replace(pool, name=f"pool-{number}") for number in range(3)))
    some = priced_fleets.workload("zonal", 200)
    prepared = prepare(world)
    setting, result = prepared.setting(some), prepared.solve(some)
    made, found = [], []
    for _ in range(3):
        began = time.process_time()
        (model, *_) = models_of(setting, result)
        prices = prices_of(model.market)
        read = time.process_time()
        expected(model, prices)
        made.append(read - began)
        found.append(time.process_time() - read)
    share = min(found) / min(made)
    name = "spot in three NodePools, estimate of what it costs, of the time that its model takes"
    kept("planning-expecting", [Figure(name, share, "times", at_most(1.5))])


@pytest.mark.parametrize(("count", "most"), [(1_000, 10.0), (5_000, 6.0)])
def test_pods_that_arrive_in_five_batches(count: int, most: float) -> None:
    """Each batch is planned beside the nodes of those before, which are launched as planned. Bound: duals of all pods at once."""
    figures = []
    for kind in ("micro", "batch", "memory", "zonal"):
        gaps, fits = [], []
        for seed in SEEDS:
            world = priced_fleets.world_of(priced_fleets.ec2_types())
            pods = priced_fleets.workload(kind, count, seed)
            prepared = prepare(world)
            all_at_once = prepared.solve(pods)
            bound = improve(prepared, pods, all_at_once, expired=lambda: True, iterations=0).usd_at_least
            usd = 0.0
            bins: tuple[Bin, ...] = ()
            fit, fit_bins = 0.0, tuple[Bin, ...]()
            for batch in range(5):
                theirs = provision(prepare(replace(world, bins=fit_bins)), pods[batch::5])
                fit, fit_bins = fit + theirs.usd_per_hour, _launched(fit_bins, theirs)
                _, plan, _ = improved(replace(world, bins=bins), pods[batch::5], ENDS[count] / 2, seed)
                usd += plan.usd_per_hour
                bins = _launched(bins, plan.result)
            gaps.append(100 * (usd / bound - 1))
            fits.append(100 * (fit / bound - 1))
        print(
            f"{kind} {count:,} in five batches: {', '.join(f'+{gap:.2f} %' for gap in gaps)}; "
            f"Karpenter's rule {', '.join(f'+{gap:.1f} %' for gap in fits)}"
        )
        figures.append(
            Figure(
                f"{kind} {count:,} in five batches, over the bound (duals), worst seed", max(gaps), "%", at_most(most)
            )
        )
    kept(f"planning-batches-{count}", figures)


def karpenters_usd(types: tuple[InstanceType, ...], kind: str, count: int, seed: int) -> float:
    """What a workload costs on the nodes that Karpenter makes for it, in USD per hour."""
    world = priced_fleets.world_of(types)
    return provision(prepare(world), priced_fleets.workload(kind, count, seed)).usd_per_hour


def _launched(bins: tuple[Bin, ...], result: Result) -> tuple[Bin, ...]:
    """The nodes that there are once a plan is carried out."""
    found = {one.name: one for one in bins}
    for name, some in result.existing.items():
        found[name] = with_pods(found[name], some)
    for claim in result.claims:
        name = f"n{len(found):05d}"
        found[name] = Bin(
            name=name,
            labels=labels_of(claim),
            room=claim.allocatable - claim.requests,
            pool=claim.pool,
            pods=claim.pods,
        )
    return tuple(found.values())


def test_five_hundred_random_problems_cost_no_more_than_first_fit() -> None:
    chance, over, above, dearer = random.Random(20261123), 0, 0, 0.0
    for number in range(PROBLEMS):
        kind = chance.choice(["micro", "batch", "memory", "zonal", "hosts", "gpu", "arches"])
        count, cpus = chance.choice([5, 12, 25, 60, 120]), chance.choice([0, 8, 32])
        arches = ("amd64", "arm64") if kind == "arches" else ("amd64",)
        types = priced_fleets.ec2_types(arches=arches, gpus=kind == "gpu", most_cpus=cpus)
        result, plan, _ = improved(
            priced_fleets.world_of(types), priced_fleets.workload(kind, count, number), 0.3, number
        )
        over += plan.usd_per_hour > result.usd_per_hour
        fit = karpenters_usd(types, kind, count, number)
        above += plan.usd_per_hour > fit + 1e-9
        if fit:  # else no type holds any of the pods
            dearer = max(dearer, 100 * (plan.usd_per_hour / fit - 1))
    figures = [
        Figure("500 random problems, dearer than scheduling's first fit", over, "problems", at_most(0)),
        Figure("500 random problems, dearer than Karpenter's rule", above, "problems"),
        Figure("500 random problems, dearer than Karpenter's rule by at most", dearer, "%"),
    ]
    kept("planning-random", figures)


@pytest.mark.parametrize("capacity_type", ["on-demand", "spot"])
def test_a_few_pods_cost_what_the_cheapest_of_all_partitions_costs(capacity_type: str) -> None:
    """One to nine pods of different sizes, three seeds each."""
    types = priced_fleets.ec2_types(capacity_type=capacity_type)
    prepared = prepare(replace(priced_fleets.world_of(types), daemons=()))
    seconds: list[float] = []
    over: list[float] = []
    below: list[float] = []
    for count in range(1, MOST_PODS + 1):
        for seed in SEEDS:
            chance = random.Random(1_000 * count + seed)
            pods = tuple(
                pod(f"p{n}", shape(f"{chance.randint(100, 9_000)}m", f"{chance.randint(128, 30_000)}Mi"))
                for n in range(count)
            )
            greedy = prepared.solve(pods)
            cheapest(prepared, greedy)  # what a pool can make is known in the product
            began = time.process_time()
            found = cheapest(prepared, greedy)
            seconds.append(time.process_time() - began)
            assert prepared.judge(design_of(found)).legal
            below.append(1 - found.usd_per_hour / greedy.usd_per_hour)
            least = usd_of_groups(prepared, pods, prepared.world.pools, spot=capacity_type == "spot")
            over.append(weighed(prepared, found.claims) / least - 1)
    name = f"1 to {MOST_PODS} pods, {capacity_type}"
    figures = [
        Figure(f"{name}, CPU, most", 1_000 * max(seconds), "ms", at_most(20.0)),
        Figure(f"{name}, below scheduling's own answer, mean", 100 * statistics.mean(below), "%", at_least(0.0)),
        Figure(f"{name}, above the cheapest of all partitions, most", 100 * max(over), "%", at_most(0.01)),
    ]
    kept(f"planning-few-{capacity_type}", figures)
