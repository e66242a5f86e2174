"""`dovetail bench-cluster`: its cases, and in which modes each runs."""

import pytest
from click.testing import CliRunner

from provisioner.cli import bench_disruption
from provisioner.cli.bench import CASES, command, modes
from provisioner.cli.harness.modes import Mode

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
