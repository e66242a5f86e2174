"""Reports are optional: without the Secrets of manifests/ the programs run, and a wrong path is still an error."""

import socket
from pathlib import Path

import pytest

from extender import metrics
from extender.reports import ClientIdentity, Reporter
from provisioner.apis.core import Lease
from provisioner.apis.meta import ObjectMeta
from provisioner.apis.reports import REPORTS_URL_ANNOTATION, PodReport, ReportReason
from provisioner.operator.report_server import ReportServer, is_empty, serving_context
from tests.unit.certs.test_mutual import DUE_DAYS, SERVER_NAME, Server


def test_a_directory_without_any_certificate_is_empty(tmp_path: Path) -> None:
    assert is_empty(str(tmp_path))
    (tmp_path / "..data").mkdir()  # what the kubelet leaves in every Secret volume
    assert is_empty(str(tmp_path))


@pytest.mark.parametrize("name", ["tls.crt", "tls.key", "ca.crt"])
def test_a_directory_with_some_of_the_files_is_not_empty_and_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("")
    assert not is_empty(str(tmp_path))
    with pytest.raises(OSError):  # noqa: PT011 - OpenSSL words it
        serving_context(str(tmp_path)).current()


def test_a_directory_that_does_not_exist_is_a_mistake_not_an_empty_one(tmp_path: Path) -> None:
    assert not is_empty(str(tmp_path / "typo"))


def identity(directory: Path) -> ClientIdentity:
    return ClientIdentity(str(directory / "ca.crt"), str(directory / "tls.crt"), str(directory / "tls.key"), "name")


def test_an_extender_without_its_files_has_no_identity(tmp_path: Path) -> None:
    assert identity(tmp_path).is_absent


def test_an_extender_with_some_of_its_files_or_a_wrong_directory_is_told_so(tmp_path: Path) -> None:
    assert not identity(tmp_path / "typo").is_absent
    (tmp_path / "ca.crt").write_text("")
    assert not identity(tmp_path).is_absent
    with pytest.raises(FileNotFoundError):
        identity(tmp_path).version()


def test_an_extender_that_was_given_no_files_lacks_none() -> None:
    assert not ClientIdentity().is_absent


def count(outcome: str) -> float:
    return float(metrics.REPORTS.labels(outcome)._value.get())


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_reports_arrive_all_through_a_renewal_without_a_restart(tmp_path: Path) -> None:
    """The real programs' ends over IPv6, with files that a kubelet swaps under them, one pod after the other."""
    server = Server(tmp_path)
    server.round()
    server.deliver()
    taken: list[PodReport] = []
    desk = ReportServer("::1", 0, taken.extend, serving_context(str(tmp_path / "server")).current)
    desk.start()
    own = tmp_path / "client"
    files = ClientIdentity(str(own / "ca.crt"), str(own / "tls.crt"), str(own / "tls.key"), SERVER_NAME)
    reporter = Reporter(files, server.clock)
    before = count("failed")
    try:
        reporter.lease_changed(None, Lease(metadata=ObjectMeta(annotations={REPORTS_URL_ANNOTATION: desk.url})))
        sent = 0

        def report() -> None:
            nonlocal sent
            reporter._send([PodReport(uid=f"u{sent}", reason=ReportReason.HELD)])
            sent += 1

        def each_way() -> None:
            for name in ("server", "client"):
                report()
                server.deliver(name)
            report()

        report()
        leaf = server.data("server")["tls.crt"]
        server.clock.advance(DUE_DAYS * 86400)
        server.after_write = each_way
        for _ in range(60):
            server.round()
        assert server.data("server")["tls.crt"] != leaf
        assert server.data("server")["ca.crt"].count(b"BEGIN") == 1
        assert [one.uid for one in taken] == [f"u{number}" for number in range(sent)]
        assert sent >= 16
    finally:
        desk.stop()
    assert count("failed") == before
