"""kube-scheduler itself judges what the solver plans, with our extender and without: see tests/support/judge.py."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.errors import NotFound
from provisioner.kube.resources import NAMESPACES, SERVICEACCOUNTS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.progress import progress_for
from provisioner.support.clock import SystemClock
from tests.support import judge
from tests.support.eventually import PATIENCE, eventually
from tests.support.judge import Scenario, Verdict
from tests.support.scenarios import SCENARIOS

pytestmark = pytest.mark.plane

REPOSITORY = Path(__file__).parents[2]
SYSTEM = "dovetail-system"
AT_ONCE = 6


PLANNERS: Mapping[str, judge.Planner] = {"s": judge.by_the_solver, "c": judge.by_the_checker}
"""By the letter that stands before the number in a scenario's name."""


def scenario_of(test: str, name: str) -> Scenario:
    """The scenario as it is judged; the checker's own plan is always followed to the letter."""
    return replace(SCENARIOS[name], claims=None, free=False) if test == "c" else SCENARIOS[name]


# --- the planes ---


def _cluster(*, extender: bool) -> Iterator[tuple[DevCluster, Client]]:
    plane = DevCluster(temporary=True, extender=extender, progress=progress_for(sys.__stderr__))
    plane.up()
    try:
        clock = SystemClock()
        connection = connect(
            str(plane.kubeconfig), user_agent="dovetail-judge", clock=clock, qps=2000, burst=2000, pool_size=32
        )
        yield plane, Client(connection, clock)
    finally:
        plane.down()


class Court:
    """Judges scenarios in the background; the verdict of each is waited for by its own test."""

    def __init__(self, bench: judge.Bench, wanted: Mapping[str, list[str]]) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE)
        numbers = {name: number for number, name in enumerate(SCENARIOS)}
        self._verdicts: dict[tuple[str, str], Future[Verdict]] = {
            (test, name): self._pool.submit(bench.judge, f"{test}{numbers[name]:02d}", scenario_of(test, name), planner)
            for test, planner in PLANNERS.items()
            for name in wanted.get(test, ())
        }

    def verdict(self, test: str, name: str) -> Verdict:
        return self._verdicts[test, name].result(timeout=300 * PATIENCE)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _asked(request: pytest.FixtureRequest, **tests: str) -> dict[str, list[str]]:
    """The scenarios that this run asks for, by planner."""
    items = [one for one in request.session.items if isinstance(one, pytest.Function) and one.path == request.path]
    return {
        planner: [str(one.callspec.params["name"]) for one in items if one.originalname == test]
        for planner, test in tests.items()
    }


@pytest.fixture(scope="module")
def plain(request: pytest.FixtureRequest) -> Iterator[Court]:
    """kube-scheduler by itself."""
    for _, client in _cluster(extender=False):
        bench = judge.Bench(client, extender=False)
        court = Court(
            bench, _asked(request, s="test_kube_scheduler_agrees", c="test_kube_scheduler_agrees_with_the_checker")
        )
        try:
            yield court
        finally:
            court.close()
            bench.close()


@pytest.fixture(scope="module")
def extended(request: pytest.FixtureRequest) -> Iterator[Court]:
    """kube-scheduler with the extender."""
    for plane, client in _cluster(extender=True):
        plane.kubectl("apply", "--server-side", "-f", str(REPOSITORY / "manifests" / "crds"))
        plane.await_definitions()
        client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})

        def account(client: Client = client) -> bool:
            with contextlib.suppress(NotFound):
                return bool(client.get(SERVICEACCOUNTS, "default", SYSTEM).metadata.name)
            return False

        eventually(account, "the namespace is ready")
        bench = judge.Bench(client, extender=True)
        with _extender(plane):
            court = Court(bench, _asked(request, s="test_kube_scheduler_agrees_with_the_extender"))
            try:
                yield court
            finally:
                court.close()
                bench.close()


@contextlib.contextmanager
def _extender(plane: DevCluster) -> Iterator[None]:
    """The program as a child, in a process group of its own."""
    arguments = {
        "--kubeconfig": str(plane.kubeconfig),
        "--bind": f"127.0.0.1:{plane.ports['extender']}",
        "--metrics-bind": f"127.0.0.1:{plane.ports['extender-metrics']}",
        "--namespace": SYSTEM,
    }
    with (plane.dir / "extender.log").open("ab") as log:
        child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "provisioner.cli.main",
                "extender",
                *(part for pair in arguments.items() for part in pair),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=REPOSITORY,
        )
    try:
        ready = f"http://127.0.0.1:{plane.ports['extender-metrics']}/readyz"
        eventually(lambda: judge.answers(ready), "the extender is ready", 30.0)
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(10)


# --- the tests ---


def test_there_are_enough_scenarios() -> None:
    assert len(SCENARIOS) >= 60
    assert sum(1 for one in SCENARIOS.values() if one.extended) >= 20


@pytest.mark.parametrize("name", SCENARIOS)
def test_kube_scheduler_agrees(plain: Court, name: str) -> None:
    assert judge.complaint(SCENARIOS[name], plain.verdict("s", name), extender=False) == ""


@pytest.mark.parametrize("name", [name for name, one in SCENARIOS.items() if one.extended])
def test_kube_scheduler_agrees_with_the_extender(extended: Court, name: str) -> None:
    assert judge.complaint(SCENARIOS[name], extended.verdict("s", name), extender=True) == ""


@pytest.mark.parametrize("name", SCENARIOS)
def test_kube_scheduler_agrees_with_the_checker(plain: Court, name: str) -> None:
    """The second judge itself is judged: what it thinks legal is bound as it says, what it refuses is not.

    Its plan takes the first place that fits, so it may leave pods that a better plan places.
    """
    verdict = plain.verdict("c", name)
    assert judge.complaint(replace(scenario_of("c", name), left=verdict.left), verdict, extender=False) == ""
