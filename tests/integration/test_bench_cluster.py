"""One case of `dovetail bench-cluster` on a small fleet: what it measures is there, and what it must not miss is met."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from provisioner.cli.bench_disruption import CASES, CPU_USED
from provisioner.cli.harness.bench import ALL_REPLACED, MUST, PODS_RUNNING, Bench
from provisioner.cli.harness.modes import Mode
from provisioner.cli.harness.results import write
from provisioner.devcluster.progress import SILENT

pytestmark = pytest.mark.plane


def test_a_drifted_fleet_is_replaced_whole_and_every_pod_runs(tmp_path: Path) -> None:
    said: list[str] = []
    bench = Bench(said.append, Console(file=io.StringIO(), width=200), SILENT, tmp_path, quick=True)
    figures = CASES["drift"](bench, Mode.EVERYTHING_ON, "drift: ")
    path = write(tmp_path, "bench-drift", figures)
    lines = "\n".join((*said, *(one.line() for one in figures)))
    found = {entry["name"].removeprefix("drift: "): entry for entry in json.loads(path.read_text())}
    assert found[PODS_RUNNING]["value"] == 12, lines
    assert found[ALL_REPLACED]["value"] >= found["nodes bought"]["value"] >= 6, lines
    assert found[CPU_USED]["value"] > 0, lines
    assert found["until nothing is replaced for 8 s"]["karpenter"] == "738 s"
    assert not [one.line() for one in figures if one.name.endswith(MUST) and not one.met], lines
