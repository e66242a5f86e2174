"""From what was seen to the demo's figures and last line."""

import dataclasses
import math

from provisioner.cli.demo import figures_of, judge
from provisioner.cli.harness.placement import Placement
from provisioner.cli.harness.running import Run
from provisioner.cli.harness.scoreboard import Counts

RUN = Run(
    pods=1000,
    counts=Counts(pods=1000, planned=998, claims=61, nodes=60, running=1000, stamped=310, usd_per_hour=20.0),
    placement=Placement(planned=998, on_plan=997, absorbed=1, unbound=0),
    first_running_seconds=3.0,
    all_running_seconds=26.0,
    bound_per_second=120.0,
    last_claim_after_window_seconds=0.4,
    cpu_utilisation=0.96,
    memory_utilisation=0.8,
    memory_megabytes={"provisioner": 160.0, "webhook": 90.0, "extender": 80.0},
    cpu_seconds={"provisioner": 6.0, "webhook": 2.0, "extender": 2.0},
)
GOALS = {
    "workload running": ">= 1000",
    "planned placement": ">= 99",
    "all pods running": "<= 25",
    "last claim after the window": "<= 1",
    "memory of the provisioner": "<= 150",
    "memory of all programs": "<= 350",
}


def test_every_goal_of_the_issue_is_a_figure() -> None:
    goals = {figure.name: str(figure.goal) for figure in figures_of(RUN) if figure.goal is not None}
    assert goals == GOALS


def test_missed_goals_are_told_apart_from_met_ones() -> None:
    missed = {figure.name for figure in figures_of(RUN) if figure.met is False}
    assert missed == {"all pods running", "memory of the provisioner"}


def test_memory_of_a_program_that_is_gone_misses_the_goal_of_all() -> None:
    run = dataclasses.replace(RUN, memory_megabytes={"provisioner": 100.0, "webhook": math.nan})
    assert {figure.name: figure.met for figure in figures_of(run)}["memory of all programs"] is False


def test_missed_time_and_memory_do_not_fail_the_demo() -> None:
    outcome = judge(RUN, Counts())
    assert outcome.exit_code == 0
    assert outcome.line().startswith("demo ok: 1000/1000 pods running, 60 nodes, 20.00 $/h, planned placement 99.8 %")


def test_a_claim_that_is_left_counts_as_a_node_that_is_left() -> None:
    assert judge(RUN, Counts(claims=1)).nodes_left == 1
