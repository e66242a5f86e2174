"""The demo's last line and exit status."""

import dataclasses
import math
from typing import Any

import pytest

from provisioner.lab.harness.outcome import DemoResult
from provisioner.lab.harness.placement import Placement
from provisioner.lab.harness.running import DemoRun
from provisioner.lab.harness.scoreboard import RunCounts

RUN = DemoRun(
    pods=1000,
    counts=RunCounts(nodes=61, running=1000, usd_per_hour=23.456),
    placement=Placement(planned=10_000, on_plan=9987, absorbed=13, unbound=0),
    nominations=Placement(planned=0, on_plan=0, absorbed=0, unbound=0),
    first_running_seconds=3.21,
    all_running_seconds=14.04,
    bound_per_second=120.0,
    last_claim_after_window_seconds=0.4,
    cpu_utilisation=0.96,
    memory_utilisation=0.8,
    memory_megabytes={},
    cpu_seconds={},
)
GOOD = DemoResult(RUN, nodes_left=0)


def share(percent: float) -> Placement:
    """So many of the planned pods run where they were planned."""
    return Placement(planned=10_000, on_plan=round(100 * percent), absorbed=0, unbound=0)


def of(
    nodes_left: int = 0, placement_goal: float | None = 99.0, nomination_goal: float | None = None, **run: object
) -> DemoResult:
    """The good run, but for this."""
    return DemoResult(dataclasses.replace(RUN, **run), nodes_left, placement_goal, nomination_goal)  # type: ignore[arg-type]


def test_a_good_run_ends_with_this_line() -> None:
    assert GOOD.line() == (
        "demo ok: 1000/1000 pods running, 61 nodes, 23.46 $/h, planned placement 99.8 %, "
        "first pod running after 3.2 s, all after 14.0 s, 0 nodes left"
    )
    assert GOOD.exit_code == 0


def test_a_perfect_placement_is_printed_without_decimals() -> None:
    assert "planned placement 100 %" in of(placement=share(100)).line()


def test_exactly_99_percent_is_enough() -> None:
    assert of(placement=share(99)).exit_code == 0


def test_without_a_goal_placement_is_only_told() -> None:
    outcome = of(placement=share(41), placement_goal=None)
    assert outcome.exit_code == 0
    assert "planned placement 41 %" in outcome.line()


BAD = {
    "a pod that does not run": (
        {"counts": RunCounts(running=999)},
        "999 of 1000 pods were running when the time was up",
    ),
    "a node that is left": ({"nodes_left": 1}, "1 nodes were left after every Deployment was scaled to 0"),
    "placement just below its goal": ({"placement": share(98.99)}, "planned placement 98.9 % is below 99 %"),
    "nominated pods just below their goal": (
        {"nomination_goal": 95.0, "nominations": share(94.99)},
        "placement of the nominated pods 94.9 % is below 95 %",
    ),
    "no plan at all": ({"placement": Placement(0, 0, 0, 0)}, "no pod had a plan"),
    "nothing ever ran": (
        {"counts": RunCounts(), "first_running_seconds": math.nan, "all_running_seconds": math.nan},
        "0 of 1000 pods were running",
    ),
}


@pytest.mark.parametrize(("change", "want"), BAD.values(), ids=BAD)
def test_a_bad_run_says_what_failed_and_exits_1(change: dict[str, Any], want: str) -> None:
    outcome = of(**change)
    assert outcome.line().startswith("demo failed: ")
    assert want in outcome.line()
    assert outcome.exit_code == 1


def test_every_problem_is_named() -> None:
    outcome = of(counts=RunCounts(running=1), nodes_left=2, placement=share(3))
    assert len(outcome.problems()) == 3
