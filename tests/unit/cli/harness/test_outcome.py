"""The demo's last line and exit status."""

import dataclasses
import math

import pytest

from provisioner.cli.harness.outcome import DemoResult

GOOD = DemoResult(
    pods=1000,
    running=1000,
    nodes=61,
    usd_per_hour=23.456,
    placement_percent=99.87,
    first_running_seconds=3.21,
    all_running_seconds=14.04,
    nodes_left=0,
)


def test_a_good_run_ends_with_this_line() -> None:
    assert GOOD.line() == (
        "demo ok: 1000/1000 pods running, 61 nodes, 23.46 $/h, planned placement 99.8 %, "
        "first pod running after 3.2 s, all after 14.0 s, 0 nodes left"
    )
    assert GOOD.exit_code == 0


def test_a_perfect_placement_is_printed_without_decimals() -> None:
    assert "planned placement 100 %" in dataclasses.replace(GOOD, placement_percent=100.0).line()


def test_exactly_99_percent_is_enough() -> None:
    assert dataclasses.replace(GOOD, placement_percent=99.0).exit_code == 0


def test_without_a_goal_placement_is_only_told() -> None:
    outcome = dataclasses.replace(GOOD, placement_percent=41.0, placement_goal=None)
    assert outcome.exit_code == 0
    assert "planned placement 41 %" in outcome.line()


BAD = {
    "a pod that does not run": ({"running": 999}, "999 of 1000 pods were running when the time was up"),
    "a node that is left": ({"nodes_left": 1}, "1 nodes were left after every Deployment was scaled to 0"),
    "placement just below its goal": ({"placement_percent": 98.99}, "planned placement 98.9 % is below 99 %"),
    "nominated pods just below their goal": (
        {"nomination_goal": 95.0, "nominated_percent": 94.99},
        "placement of the nominated pods 94.9 % is below 95 %",
    ),
    "no plan at all": ({"placement_percent": math.nan}, "no pod had a plan"),
    "nothing ever ran": (
        {"running": 0, "first_running_seconds": math.nan, "all_running_seconds": math.nan},
        "0 of 1000 pods were running",
    ),
}


@pytest.mark.parametrize(("change", "want"), BAD.values(), ids=BAD)
def test_a_bad_run_says_what_failed_and_exits_1(change: dict[str, float], want: str) -> None:
    outcome = dataclasses.replace(GOOD, **change)  # type: ignore[arg-type]
    assert outcome.line().startswith("demo failed: ")
    assert want in outcome.line()
    assert outcome.exit_code == 1


def test_every_problem_is_named() -> None:
    outcome = dataclasses.replace(GOOD, running=1, nodes_left=2, placement_percent=3.0)
    assert len(outcome.problems()) == 3
