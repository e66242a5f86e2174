"""What fleets cost beside their proved bound, in CPU time of one process; `make bench` runs it and keeps results/planning.json.

EC2's types at us-east-1's on-demand prices (636 of c, m and r, amd64), three DaemonSets a node, pods pending all at once, three
seeds. The bound is that of the linear program over resources, of which `tests/unit/planning/test_prices.py` proves that nothing is
cheaper. Beside the plan: scheduling's own answer, and first fit by decreasing size: the cheaper one of scheduling's and of
Karpenter's rule (`tests/support/firstfit`).
CPU seconds are of `improve` alone, judging included; what scheduling took stands beside it.
"""

import math
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from provisioner.cli.harness.results import Figure, Goal, at_least, at_most, write
from provisioner.planning.planner import Plan, improve
from provisioner.scheduling.judging import design_of
from provisioner.scheduling.prepared import prepare
from tests.support import firstfit, priced_fleets

pytestmark = pytest.mark.bench

RESULTS = Path(__file__).parents[2] / "results"
SEEDS = (1, 2, 3)
SIZES = (1_000, 5_000, 20_000)
WITHOUT_END = 10**9
ENDS = {1_000: 0.7, 5_000: 2.2, 20_000: 1.3}
"""CPU seconds after which nothing more is tried; the rest is for reading the answer before and judging it after."""
SECONDS = {1_000: 1.0, 5_000: 3.0, 20_000: 3.0}
_MOST_FITTED = 5_000
SAVING = {"micro": 5.0, "batch": 5.0, "zonal": 5.0}
"""Percent below first fit at least; memory-heavy pods leave 1 to 4."""


@dataclass(frozen=True)
class Measured:
    """One run."""

    plan: Plan
    seconds: float
    scheduling_usd: float
    scheduling_seconds: float
    first_fit_usd: float


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
    first_fit = result.usd_per_hour  # the other one is slow, and costs as much where zones are not spread
    if count <= _MOST_FITTED:
        first_fit = min(
            first_fit, firstfit.usd_per_hour(priced_fleets.ec2_types(), priced_fleets.deployments(kind, count, seed))
        )
    return Measured(plan, seconds, result.usd_per_hour, solved - began, first_fit)


def gap_goal(kind: str, count: int) -> Goal:
    return at_most(3.0 if kind == "zonal" or count <= 1_000 else 2.0)


@pytest.mark.parametrize("kind", ["micro", "batch", "memory", "zonal"])
def test_fleets_come_near_their_bound(kind: str) -> None:
    figures = []
    for count in SIZES:
        runs = [measured(kind, count, seed) for seed in SEEDS]
        for seed, run in zip(SEEDS, runs, strict=True):
            plan = run.plan
            over = 100 * (run.scheduling_usd / plan.usd_at_least - 1)
            fit = 100 * (run.first_fit_usd / plan.usd_at_least - 1)
            print(
                f"{kind} {count:,} seed {seed}: {plan.usd_per_hour:.2f} $/h over a bound of {plan.usd_at_least:.2f}: "
                f"+{100 * plan.gap:.2f} % in {run.seconds:.2f} s ({plan.stage}, {plan.steps} rounds); scheduling "
                f"{run.scheduling_usd:.2f} (+{over:.1f} %) in {run.scheduling_seconds:.2f} s; first fit "
                f"{run.first_fit_usd:.2f} (+{fit:.1f} %)"
            )
        saved = [100 * (1 - run.plan.usd_per_hour / run.first_fit_usd) for run in runs]
        name = f"{kind} {count:,}"
        figures += [
            Figure(
                f"{name}, over the bound, worst seed",
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
    write(RESULTS, f"planning-{kind}", figures)
    print(*(figure.line() for figure in figures), sep="\n")
    assert all(not math.isnan(figure.value) for figure in figures)
    missed = [figure.line() for figure in figures if figure.met is False]
    assert not missed, "\n".join(missed)
