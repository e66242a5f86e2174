"""The demo's own code in a shorter run, and the main job with webhook and extender lost in the middle of it."""

import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from provisioner.lab.demo import run_demo
from provisioner.lab.devcluster.cluster import DevCluster, list_clusters
from provisioner.lab.devcluster.processes import marked
from provisioner.lab.devcluster.progress import SILENT
from provisioner.lab.harness import applying
from provisioner.lab.harness.running import scale_in, watch
from provisioner.lab.harness.scoreboard import RunCounts
from provisioner.lab.harness.session import EXTENDER, WEBHOOK, Setup, session
from provisioner.lab.harness.workload import REPOSITORY, example, of_kind, pods_of, scaled
from provisioner.support.clock import SystemClock
from tests.support.eventually import PATIENCE

pytestmark = pytest.mark.plane

WHOLE = 1000
THIRD = 330
DISTURBED_AT = 0.3  # of all pods run by then
RUN_SECONDS = 600.0 * PATIENCE
LIVENESS_SECONDS = 30.0


def test_a_shorter_demo_runs_every_pod_on_plan_and_leaves_nothing(tmp_path: Path) -> None:
    output = io.StringIO()
    # of so few pods one pair that kube-scheduler exchanges is 2 %; the goal of 99 % is the whole demo's
    outcome = replace(run_demo(Console(file=output, width=200), 100, tmp_path, SILENT), placement_goal=97.0)
    assert outcome.problems() == (), output.getvalue()
    assert outcome.line().startswith("demo ok: 100/100 pods running, "), outcome.line()
    assert outcome.line().endswith(", 0 nodes left"), outcome.line()
    figures = {entry["name"]: entry for entry in json.loads((tmp_path / "demo.json").read_text())}
    assert figures["workload running"] == {
        "name": "workload running",
        "value": 100,
        "unit": "pods",
        "goal": ">= 100",
        "met": True,
    }
    assert figures["planned placement"]["value"] >= 97
    assert figures["nodes left"]["value"] == 0
    assert figures["pods stamped"]["value"] >= 20, "arm64 by annotation and spot by namespace label"
    assert not [name for name in list_clusters(os.environ) if name.startswith(f"demo-{os.getpid()}")]


def test_a_shorter_demo_on_an_emulated_ec2_runs_every_pod_and_leaves_nothing(tmp_path: Path) -> None:
    output = io.StringIO()
    outcome = run_demo(Console(file=output, width=200), 48, tmp_path, SILENT, "aws")
    assert (outcome.out.counts.running, outcome.nodes_left) == (48, 0), output.getvalue()
    # so few pods get small instances, EC2 gives some bigger than planned, and pods that still wait take the room that is over
    assert outcome.out.placement.percent > 50, output.getvalue()
    lines = output.getvalue().splitlines()
    assert any(" x " in line and line.rstrip().endswith(("spot", "on-demand")) for line in lines), "instances by type"
    assert any("calls of ec2:CreateFleet" in line for line in lines), "calls by name"
    figures = {entry["name"]: entry for entry in json.loads((tmp_path / "demo-aws.json").read_text())}
    assert figures["cost"]["value"] > 0
    assert figures["memory of the provisioner"]["met"] is True


@pytest.mark.timeout(1500 * PATIENCE)
@pytest.mark.parametrize("stopped", [False, True], ids=["killed with -9", "stopped with SIGSTOP"])
@pytest.mark.parametrize("asked", [THIRD, pytest.param(WHOLE, marks=pytest.mark.judge)])
def test_every_pod_runs_with_webhook_and_extender(stopped: bool, asked: int, tmp_path: Path) -> None:
    """All twelve Deployments of the demo; `make test` takes a third of their pods."""
    workload = scaled(example("workload.yaml"), asked)
    deployments = of_kind(workload, "Deployment")
    first, second = deployments[::2], deployments[1::2]  # the second is created with a webhook that does not answer
    others = [document for document in workload if document["kind"] != "Deployment"]
    pods = pods_of(workload)
    assert pods == asked
    lines: list[str] = []

    def show(seconds: float, counts: RunCounts) -> None:
        lines.append(f"{seconds:.0f} s {counts}")

    def all_running(counts: RunCounts) -> bool:
        return counts.running >= pods

    with session(Setup("disturbed", logs=tmp_path / "logs"), lines.append) as run:
        run.apply_pools(example("nodepools.yaml"))
        began = run.clock.monotonic()
        applying.apply(run.client, [*others, *first])
        counts = watch(run, show, lambda now: now.running >= DISTURBED_AT * pods, began, RUN_SECONDS)
        assert counts.running >= DISTURBED_AT * pods, lines
        for name in (WEBHOOK, EXTENDER):
            (run.programs.pause if stopped else run.programs.kill)(name)
        applying.apply(run.client, second)
        if stopped:
            # A stopped extender costs kube-scheduler a second a pod: slow, but never in the way. Then its liveness probe acts.
            watch(run, show, all_running, run.clock.monotonic(), LIVENESS_SECONDS)
            for name in (WEBHOOK, EXTENDER):
                run.programs.kill(name)
                run.programs.start(run.program(name))
        counts = watch(run, show, all_running, began, RUN_SECONDS)
        assert (counts.pods, counts.running) == (pods, pods), (run.programs.healed, lines[-20:])
        left = scale_in(run, workload, show, RUN_SECONDS / 2)
        assert (left.pods, left.claims, left.nodes) == (0, 0, 0), lines[-20:]


def test_a_demo_that_is_interrupted_takes_its_cluster_down() -> None:
    _interrupted_demo(signal.SIGINT)


def test_a_demo_that_is_killed_takes_its_cluster_down() -> None:
    _interrupted_demo(signal.SIGKILL)


def _interrupted_demo(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "provisioner.cli.main", "demo", "--pods", "100"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        directory = DevCluster(f"demo-{demo.pid}").dir
        output = []
        try:
            for line in demo.stdout:
                output.append(line)
                if "is ready" in line:
                    break
            assert marked(directory), output
            demo.send_signal(number)
            rest = demo.stdout.read()
            status = demo.wait(timeout=60 * PATIENCE)
        finally:
            demo.kill()
    assert status == (130 if number == signal.SIGINT else -signal.SIGKILL), (output, rest)
    if number == signal.SIGINT:
        assert rest.splitlines()[-1] == "demo failed: interrupted by SIGINT"
    _wait_gone(directory)


def _wait_gone(directory: Path, seconds: float = 40.0) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + seconds * PATIENCE
    while directory.exists() or marked(directory):
        assert clock.monotonic() < deadline, marked(directory)
        clock.sleep(0.2)
