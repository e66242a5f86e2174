"""`dovetail bench-cluster`: its cases, and in which modes each runs."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from provisioner.cli import bench_disruption
from provisioner.cli.bench import CASES, command, modes, title, together
from provisioner.cli.bench_disruption import CPU_USED
from provisioner.cli.harness.bench import Bench
from provisioner.cli.harness.modes import Mode
from provisioner.cli.harness.results import Figure

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
    assert CliRunner().invoke(command, ["all", "--results", str(tmp_path)]).exit_code == 0
    (kept,) = json.loads((tmp_path / "bench-cpu.json").read_text())
    assert (kept["value"], kept["goal"], kept["met"]) == (80.0, "<= 90", True)
