"""Cases of `dovetail bench-cluster` on a small fleet: what each measures is there, and what it must not miss is met."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from provisioner.lab import bench_gangs, bench_scheduling
from provisioner.lab.bench_disruption import CASES, CPU_USED
from provisioner.lab.devcluster.progress import SILENT
from provisioner.lab.harness.bench import ALL_REPLACED, MUST, PODS_RUNNING, Bench, Case
from provisioner.lab.harness.modes import Mode
from provisioner.lab.harness.results import write

pytestmark = pytest.mark.plane


def run(case: Case, name: str, directory: Path) -> tuple[dict[str, dict[str, Any]], str]:
    """A quick run with everything on: the entries of its results by name, and all that was said."""
    said: list[str] = []
    bench = Bench(said.append, Console(file=io.StringIO(), width=200), SILENT, directory, quick=True)
    figures = case(bench, Mode.EVERYTHING_ON, f"{name}: ")
    path = write(directory, f"bench-{name}", figures)
    lines = "\n".join((*said, *(one.line() for one in figures)))
    assert not [one.line() for one in figures if one.name.endswith(MUST) and not one.met], lines
    return {entry["name"].removeprefix(f"{name}: "): entry for entry in json.loads(path.read_text())}, lines


def test_a_drifted_fleet_is_replaced_whole_and_every_pod_runs(tmp_path: Path) -> None:
    found, lines = run(CASES["drift"], "drift", tmp_path)
    assert found[PODS_RUNNING]["value"] == 12, lines
    assert found[ALL_REPLACED]["value"] >= found["nodes bought"]["value"] >= 6, lines
    assert found[CPU_USED]["value"] > 0, lines
    assert found["until nothing is replaced for 8 s"]["karpenter"] == "738 s"


@pytest.mark.judge
def test_a_rollout_of_twenty_deployments_lands_where_it_was_planned(tmp_path: Path) -> None:
    found, lines = run(bench_scheduling.CASES["rollout"], "rollout", tmp_path)
    assert found[PODS_RUNNING]["value"] == 60, lines
    assert found["nodes"]["value"] >= 12, lines
    assert found["pods with a plan"]["value"] >= 55, lines
    assert found["planned placement"]["value"] >= 95, lines  # of so few pods, one is more than the goal leaves


def test_throughput_is_measured_with_the_extender_and_without(tmp_path: Path) -> None:
    found, lines = run(bench_scheduling.CASES["throughput"], "throughput", tmp_path)
    assert found[PODS_RUNNING]["value"] == 20, lines
    for name in ("pods bound", bench_scheduling.ATTEMPTS, "choosing a node"):
        for which in ("with", "without"):
            assert (found[f"{name} {which} the extender"]["value"] or 0) > 0, lines
    assert found["share of the throughput that is left"]["value"] > 0, lines
    assert found[f"share of {bench_scheduling.ATTEMPTS} that is left"]["value"] > 0, lines


@pytest.mark.judge
def test_gangs_are_measured_with_those_that_fail(tmp_path: Path) -> None:
    found, lines = run(bench_gangs.CASES["gangs"], "gangs", tmp_path)
    assert found[PODS_RUNNING]["value"] == 27, lines
    for pods in (3, 24):
        assert found[f"{pods} pods on 3 nodes, NodeClaims"]["value"] >= 3, lines
        assert (found[f"{pods} pods on 3 nodes, last node ready to last pod bound"]["value"] or 0) > 0, lines
    assert (found["10 gangs that no node is large enough for, CPU of the extender"]["value"] or 0) > 0, lines
