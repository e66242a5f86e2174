"""A provisioner that is asked to stop: at any moment of its start, and while the API server says nothing. Kubernetes kills after 30 s."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.kube.client import Client
from provisioner.kube.errors import NotFound
from provisioner.kube.resources import LEASES
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.operator.main import STOP_SECONDS
from tests.support.apiproxy import ApiProxy, Rule
from tests.support.eventually import PATIENCE, eventually

pytestmark = pytest.mark.plane

#: An idle machine needs a second where nothing hangs, and ten where everything does.
SECONDS = STOP_SECONDS + 5.0 * PATIENCE


@pytest.fixture
def proxy(plane: DevCluster, client: Client) -> Iterator[ApiProxy]:
    with contextlib.closing(ApiProxy(plane)) as one:
        yield one


@contextlib.contextmanager
def started(kubeconfig: str, lease: str, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A provisioner that stands for this Lease; killed at the end where it has not stopped."""
    own = ("--bind-address=127.0.0.1", "--metrics-port=0", "--health-probe-port=0", "--report-port=0")
    flags = (f"--leader-election-name={lease}", "--leader-election-namespace=default")
    command = (sys.executable, "-m", "provisioner.cli.main", "provisioner", "--kubeconfig", kubeconfig, *own, *flags)
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def status(process: "subprocess.Popen[bytes]", log: Path) -> int:
    """With which status it ends, in time."""
    try:
        return process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"it has not ended within {SECONDS:g} s:\n{log.read_text()}") from None


def holder(client: Client, lease: str) -> str:
    try:
        return client.get(LEASES, lease, "default").spec.holder_identity or ""
    except NotFound:
        return ""


@pytest.mark.parametrize("pause", [0.0, 0.1, 0.3])
def test_the_lease_is_given_back_whenever_the_signal_comes(
    plane: DevCluster, client: Client, tmp_path: Path, pause: float
) -> None:
    lease, log = f"of-a-stop-{pause:g}", tmp_path / "log"
    with started(str(plane.kubeconfig), lease, log) as process:
        eventually(lambda: holder(client, lease), "it leads", 60, 0.01)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(pause)
        process.terminate()
        assert status(process, log) == 0, log.read_text()
    assert holder(client, lease) == "", log.read_text()


@pytest.mark.parametrize("leads", [False, True], ids=["during its start", "while it leads"])
def test_an_api_server_that_answers_nothing_holds_up_no_stop(
    client: Client, proxy: ApiProxy, tmp_path: Path, leads: bool
) -> None:
    lease, log = f"of-silence-{leads:d}", tmp_path / "log"
    silence = Rule("hang", watches=True)
    if not leads:
        proxy.add(silence)
    with started(proxy.kubeconfig(), lease, log) as process:
        if leads:
            eventually(lambda: holder(client, lease), "it leads", 60)
            proxy.add(silence)
        eventually(lambda: silence.hits >= 10, "it waits for many answers", 60)
        process.terminate()
        assert status(process, log) in (0, 1), log.read_text()
    proxy.remove(silence)
