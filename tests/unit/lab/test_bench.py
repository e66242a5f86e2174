"""`dovetail bench-cluster`: its cases, and in which modes each runs."""

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from provisioner.lab import bench, bench_disruption
from provisioner.lab.bench import CASES, command, modes, title, together
from provisioner.lab.bench_disruption import CPU_USED
from provisioner.lab.bench_scheduling import ThroughputSample, attempts, scheduled_per_second
from provisioner.lab.harness.bench import Bench
from provisioner.lab.harness.machine import REFERENCE
from provisioner.lab.harness.modes import Mode
from provisioner.lab.harness.results import Figure

RUNS = {
    "a case that buys nodes runs in every mode": ("basic", None, tuple(Mode)),
    "one that renews them runs as users run it": ("drift", None, (Mode.EVERYTHING_ON,)),
    "and in every mode when asked": ("drift", "all", tuple(Mode)),
    "one that has both in the one run runs once": ("throughput", "all", (Mode.EVERYTHING_ON,)),
    "a mode alone": ("basic", "all-off", (Mode.ALL_OFF,)),
}


@pytest.mark.parametrize(("case", "asked", "want"), RUNS.values(), ids=RUNS)
def test_modes(case: str, asked: str | None, want: tuple[Mode, ...]) -> None:
    assert modes(case, asked) == want


def test_the_help_names_every_case() -> None:
    text = CliRunner().invoke(command, ["--help"]).output
    assert bench_disruption.CASES.keys() < CASES.keys()
    assert [name for name in CASES if name not in text] == []


CPU = {name: f"{title(name, Mode.EVERYTHING_ON)}{CPU_USED}" for name in ("consolidation", "drift", "empty")}


def test_consolidation_and_drift_have_one_goal_for_their_cpu_time() -> None:
    assert together({CPU["consolidation"]: 50.0, CPU["empty"]: 9.0}) is None
    measured = {CPU["consolidation"]: 50.0, CPU["drift"]: 41.0, CPU["empty"]: 9.0}
    figure = together(measured)
    assert figure is not None
    assert figure.to_json() == {
        "name": "consolidation and drift: CPU of the provisioner",
        "value": 91.0,
        "unit": "s",
        "goal": "<= 90",
        "met": False,
        "karpenter": "660 s",
    }


def test_its_figure_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(_bench: Bench, _mode: Mode, prefix: str) -> list[Figure]:
        return [Figure(f"{prefix}{CPU_USED}", 40.0, "s")]

    for name in CASES:
        monkeypatch.setitem(CASES, name, measured)
    monkeypatch.setattr(bench, "calibration", lambda: 2 * REFERENCE)
    assert CliRunner().invoke(command, ["all", "--results", str(tmp_path)]).exit_code == 0
    (kept,) = json.loads((tmp_path / "bench-cpu.json").read_text())
    assert (kept["value"], kept["goal"], kept["met"]) == (80.0, "<= 180", True)


SAMPLES = {
    "from the last look at none to the first at all": ([(0, 0), (1, 0), (2, 40), (3, 100), (4, 100)], 50),
    "seen only while it was at it": ([(2, 40), (3, 100)], 60),
    "all between two looks": ([(1, 0), (1.5, 20)], 40),
}


@pytest.mark.parametrize(("looks", "want"), SAMPLES.values(), ids=SAMPLES)
def test_pods_scheduled_per_second(looks: list[tuple[float, float]], want: float) -> None:
    assert scheduled_per_second([ThroughputSample(*one) for one in looks]) == want


@pytest.mark.parametrize("looks", [[], [(1, 0), (2, 0)], [(1, 20), (2, 20)]], ids=["never", "none", "over before"])
def test_what_was_not_seen_is_no_number(looks: list[tuple[float, float]]) -> None:
    assert math.isnan(scheduled_per_second([ThroughputSample(*one) for one in looks]))


def test_pods_of_all_profiles_that_were_given_a_node_are_counted() -> None:
    page = """\
# TYPE scheduler_schedule_attempts_total counter
scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 17
scheduler_schedule_attempts_total{profile="default-scheduler",result="unschedulable"} 900
scheduler_schedule_attempts_total{profile="dovetail-scheduler",result="scheduled"} 3
scheduler_scheduling_attempt_duration_seconds_count{profile="x",result="scheduled"} 5
"""
    assert attempts(page) == 20
