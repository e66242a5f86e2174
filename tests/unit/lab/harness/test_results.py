"""Figures, goals and the results file."""

import json
import math
from pathlib import Path

import pytest

from provisioner.lab.harness.results import Figure, Goal, at_least, at_most, percentile, write

GOALS = {
    "at most is met below the goal": (at_most(25), 24.9, True),
    "at most is met on the goal": (at_most(25), 25.0, True),
    "at most is missed above the goal": (at_most(25), 25.1, False),
    "at least is met on the goal": (at_least(99), 99.0, True),
    "at least is missed below the goal": (at_least(99), 98.999, False),
    "an unmeasured value misses an upper limit": (at_most(25), math.nan, False),
    "an unmeasured value misses a lower limit": (at_least(0), math.nan, False),
}


@pytest.mark.parametrize(("goal", "value", "want"), GOALS.values(), ids=GOALS)
def test_goal(goal: Goal, value: float, want: bool) -> None:
    assert Figure("x", value, "s", goal).met is want


def test_the_goal_of_a_time_is_longer_on_a_slow_machine_but_for_what_is_waited() -> None:
    assert Figure("x", 299, "s", at_most(210, waits=120)).where_slow(2.0) == Figure(
        "x", 299, "s", at_most(300, waits=120)
    )
    for figure in (Figure("x", 3, "MB", at_most(2)), Figure("x", 3, "s")):
        assert figure.where_slow(2.0) == figure


def test_a_figure_without_goal_is_neither_met_nor_missed() -> None:
    assert Figure("x", 3, "s").met is None
    assert Figure("x", 3, "s").line() == "x: 3 s"


LINES = {
    "met": (Figure("time", 12.5, "s", at_most(25)), "time: 12.5 s (goal <= 25: met)"),
    "missed is printed": (Figure("time", 31, "s", at_most(25)), "time: 31 s (goal <= 25: MISSED)"),
    "unmeasured is printed": (Figure("time", math.nan, "s", at_most(25)), "time: not measured (goal <= 25: MISSED)"),
    "Karpenter's figure stands beside": (
        Figure("time", 12.5, "s", at_most(25), "432 s"),
        "time: 12.5 s (goal <= 25: met; Karpenter: 432 s)",
    ),
    "and without a goal": (Figure("nodes", 4, "", None, "110"), "nodes: 4 (Karpenter: 110)"),
    "no unit leaves no blank": (Figure("nodes", 4, ""), "nodes: 4"),
}


@pytest.mark.parametrize(("figure", "want"), LINES.values(), ids=LINES)
def test_line(figure: Figure, want: str) -> None:
    assert figure.line() == want


def test_the_file_is_a_list_of_name_value_unit_goal_met(tmp_path: Path) -> None:
    figures = [Figure("a", 1.23456789, "s", at_most(2)), Figure("b", math.nan, "MB", at_most(2)), Figure("c", 3, "")]
    path = write(tmp_path / "results", "demo", figures)
    assert path == tmp_path / "results" / "demo.json"
    assert json.loads(path.read_text()) == [
        {"name": "a", "value": 1.2346, "unit": "s", "goal": "<= 2", "met": True},
        {"name": "b", "value": None, "unit": "MB", "goal": "<= 2", "met": False},
        {"name": "c", "value": 3, "unit": "", "goal": None, "met": None},
    ]
    assert [entry.name for entry in path.parent.iterdir()] == ["demo.json"]


PERCENTILES = {
    "the median of five": ([5, 1, 4, 2, 3], 50, 3),
    "the median of four is the lower one": ([1, 2, 3, 4], 50, 2),
    "p99 of a hundred is the 99th": (list(range(1, 101)), 99, 99),
    "p99 of few is the largest": ([1, 9, 3], 99, 9),
    "of one value": ([7], 1, 7),
}


@pytest.mark.parametrize(("values", "percent", "want"), PERCENTILES.values(), ids=PERCENTILES)
def test_percentile(values: list[float], percent: float, want: float) -> None:
    assert percentile(values, percent) == want


def test_a_percentile_of_nothing_is_not_measured() -> None:
    assert math.isnan(percentile([], 50))
