import subprocess
import sys
import threading
from pathlib import Path

import pytest

from provisioner.kube.lease import LostLease
from provisioner.kube.resources import CONFIGMAPS
from provisioner.lab.harness.workload import REPOSITORY
from provisioner.operator.main import ProvisionerProcess, main
from provisioner.options import Options
from provisioner.support import heartbeat
from provisioner.support.clock import SystemClock
from provisioner.support.heartbeat import Pulses
from tests.support.clock import FakeClock
from tests.support.kube import FakeApi, thing
from tests.support.rawhttp import Pki
from tests.unit.kube.test_lease import LeaseServer
from tests.unit.kube.test_sending import kubeconfig
from tests.unit.operator.test_leadership import Doomed


@pytest.fixture
def program(tmp_path: Path) -> ProvisionerProcess:
    """One that has not begun; its API server is not there."""
    return ProvisionerProcess(Options(kubeconfig=kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")))


def test_a_process_that_does_not_lead_can_write_nothing(program: ProvisionerProcess) -> None:
    with pytest.raises(LostLease, match="not the leader"):
        program._client.create(CONFIGMAPS, thing("a"), "ns")


def test_the_lease_is_written_by_a_process_that_does_not_lead_yet(
    program: ProvisionerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could ever be elected if the election asked the fence: none stands before it is won."""
    server, began = LeaseServer(), threading.Event()
    monkeypatch.setattr(program, "_connection", FakeApi(respond=server.respond, clock=SystemClock()))
    monkeypatch.setattr(program, "_begin", began.set)
    leading = threading.Thread(target=program._lead, args=(None, Doomed()))
    leading.start()
    try:
        assert began.wait(5)
        assert server.holder == program._identity
    finally:
        program._stopping.set()
        leading.join(10)


def test_its_requests_are_limited_as_its_flags_say(tmp_path: Path) -> None:
    config = kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")
    options = Options.parse(["--kube-client-qps=7", "--kube-client-burst=8", f"--kubeconfig={config}"], {})
    limiter = ProvisionerProcess(options)._connection.limiter
    assert (limiter.qps, limiter.burst) == (7, 8)


@pytest.mark.parametrize(
    ("flags", "certified", "url"),
    [
        pytest.param(["--bind-address=127.0.0.1"], True, "https://127.0.0.1:", id="where everything is served"),
        pytest.param(["--report-bind-address=127.0.0.1"], True, "https://127.0.0.1:", id="an address of their own"),
        pytest.param(["--bind-address=0.0.0.0"], False, "http://127.0.0.1:", id="here alone without certificates"),
    ],
)
def test_reports_are_taken_where_the_flags_say(flags: list[str], certified: bool, url: str, tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    flags = [*flags, f"--report-cert-dir={pki.ca.parent}"] if certified else flags
    config = kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")
    options = Options.parse([*flags, "--report-port=0", f"--kubeconfig={config}"], {})
    server = ProvisionerProcess(options)._report_server()
    assert server is not None
    server.start()
    server.stop()
    assert server.url.startswith(url)


def test_a_dead_thread_is_a_failed_liveness_check_unless_the_process_is_ending(
    program: ProvisionerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulses = Pulses(FakeClock())
    monkeypatch.setattr(heartbeat, "_OURS", pulses)
    assert program._threads() == ""
    pulses.died("watch-pods", RecursionError("too deep"))
    assert program._threads() == "thread watch-pods ended with RecursionError: too deep"
    program._stopping.set()
    assert program._threads() == ""


def test_the_program_loads_nothing_that_only_aws_or_the_issue_of_certificates_needs() -> None:
    look = "import sys, provisioner.operator.main as m; print('botocore' in sys.modules, 'cryptography' in sys.modules, m.__name__ in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", look], cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=60
    )
    assert answer.stdout.split() == ["False", "False", "True"]


def test_a_file_that_cannot_be_written_is_named_in_words(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([f"--log-output-paths={tmp_path}/no/log"]) == 2
    assert capsys.readouterr().err == f"dovetail provisioner: {tmp_path}/no/log: No such file or directory\n"


@pytest.mark.parametrize(
    ("flags", "pod", "refused"),
    [
        pytest.param(["--why-port=8445"], "10.96.0.1", True, id="in a pod without certificates"),
        pytest.param(["--why-port=8445", "--report-cert-dir=/certs"], "10.96.0.1", False, id="with certificates"),
        pytest.param(["--why-port=8445"], "", False, id="on a node of its own"),
        pytest.param([], "10.96.0.1", False, id="without the port"),
    ],
)
def test_whoever_may_ask_why_may_not_send_reports(
    flags: list[str],
    pod: str,
    refused: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", pod)
    assert main([*flags, f"--kubeconfig={tmp_path / 'none'}"]) == 2
    assert ("--why-port requires --report-cert-dir" in capsys.readouterr().err) is refused
