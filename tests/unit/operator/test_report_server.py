"""Reports of the extender: what one request is answered, and a server that takes them."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.apis.reports import MAX_BYTES, PodReport, ReportReason, encode_reports
from provisioner.operator.report_server import ReportServer, serving_context, take
from provisioner.support.http.values import HttpRequest
from tests.support.rawhttp import Address, Pki, post

BODY = encode_reports([PodReport(uid="a", reason=ReportReason.HELD)])
CASES: dict[str, tuple[HttpRequest, int, str]] = {
    "a batch": (HttpRequest("POST", "/reports", body=BODY), 204, ""),
    "a batch with a query": (HttpRequest("POST", "/reports?x=1", body=BODY), 204, ""),
    "another path": (HttpRequest("POST", "/metrics", body=BODY), 404, "not found"),
    "a path below": (HttpRequest("POST", "/reports/x", body=BODY), 404, "not found"),
    "another method": (HttpRequest("GET", "/reports"), 405, "only POST"),
    "no JSON": (HttpRequest("POST", "/reports", body=b"what"), 400, "not reports"),
    "an unknown reason": (
        HttpRequest("POST", "/reports", body=b'{"reports": [{"uid": "a", "reason": "bored"}]}'),
        400,
        "not reports",
    ),
    "nothing at all": (HttpRequest("POST", "/reports"), 400, "not reports"),
}


@pytest.mark.parametrize(("request_", "status", "text"), CASES.values(), ids=CASES.keys())
def test_a_request_is_answered(request_: HttpRequest, status: int, text: str) -> None:
    taken: list[PodReport] = []
    answer = take(request_, taken.extend)
    assert answer.status == status
    assert answer.body.decode().startswith(text)
    assert taken == ([PodReport(uid="a", reason=ReportReason.HELD)] if status == 204 else [])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.7"])
def test_plain_http_is_refused_where_others_reach_it(host: str) -> None:
    with pytest.raises(ValueError, match="--report-cert-dir"):
        ReportServer(host, 0, lambda _: None, None)


@pytest.fixture
def taken() -> list[PodReport]:
    return []


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


@pytest.fixture
def mutual(pki: Pki, taken: list[PodReport]) -> Iterator[Address]:
    """A server over mTLS."""
    server = ReportServer("127.0.0.1", 0, taken.extend, serving_context(str(pki.ca.parent)).current)
    server.start()
    address = Address(server._server.port, tls=True)
    yield address
    address.leave()
    server.stop()


def test_a_server_takes_reports_and_goes_on_after_a_bad_request(taken: list[PodReport]) -> None:
    server = ReportServer("127.0.0.1", 0, taken.extend, None)
    server.start()
    assert server.url.startswith("http://127.0.0.1:")
    address = Address(server._server.port)
    try:
        assert address.ask(post(b"{}", "/reports")).status == 400
        assert address.ask(post(BODY, "/reports")).status == 204
        assert (
            address.ask(f"POST /reports HTTP/1.1\r\nHost: x\r\nContent-Length: {MAX_BYTES + 1}\r\n\r\n".encode()).status
            == 413
        )
    finally:
        address.leave()
        server.stop()
    assert [report.uid for report in taken] == ["a"]


def test_only_a_client_with_the_certificate_of_an_extender_may_report(
    mutual: Address, pki: Pki, taken: list[PodReport]
) -> None:
    """The CA may have signed others too: being known is not being the extender."""
    peer = mutual.peer(pki.client("dovetail-scheduler"))
    assert peer.ask(post(BODY, "/reports")).status == 204
    stranger = mutual.peer(pki.client("somebody"))
    assert stranger.ask(post(BODY, "/reports")).status == 403
    assert [report.uid for report in taken] == ["a"]


def test_a_client_without_a_certificate_is_not_even_read(mutual: Address, taken: list[PodReport]) -> None:
    try:
        peer = mutual.peer()
        peer.send(post(BODY, "/reports"))
        assert peer.is_ended()
    except OSError:
        pass  # the handshake may tell it already
    assert taken == []


def test_a_renewed_certificate_is_served_without_a_restart(mutual: Address, pki: Pki) -> None:
    client = pki.client("dovetail-scheduler")

    def shown() -> bytes | None:
        sock = mutual.peer(client).sock
        return sock.getpeercert(binary_form=True)  # type: ignore[attr-defined,no-any-return]

    before = shown()
    pki.renew()
    assert shown() != before


def test_certificates_may_come_after_the_server(tmp_path: Path, taken: list[PodReport]) -> None:
    """Their Secret is optional: a cluster without one gets it later, and nobody restarts the provisioner for it."""
    server = ReportServer("127.0.0.1", 0, taken.extend, serving_context(str(tmp_path)).current)
    server.start()
    address = Address(server._server.port, tls=True)
    try:
        assert not server.can_be_reached
        assert address.tcp().send(b"\x16").is_ended()
        pki = Pki(tmp_path)
        assert server.can_be_reached
        assert address.peer(pki.client("dovetail-scheduler")).ask(post(BODY, "/reports")).status == 204
    finally:
        address.leave()
        server.stop()


ADDRESSES = {
    "10.0.0.7:8444": "http://10.0.0.7:8444/reports",
    "reports.example.com:8444": "http://reports.example.com:8444/reports",
    "[fd00::7]:8444": "http://[fd00::7]:8444/reports",
    "fd00::7:8444": "http://[fd00::7]:8444/reports",  # $(POD_IP):8444 in a cluster of IPv6
}


@pytest.mark.parametrize(("address", "url"), ADDRESSES.items())
def test_the_address_that_others_use_is_the_one_that_was_given(address: str, url: str) -> None:
    server = ReportServer("127.0.0.1", 0, lambda _: None, None, address=address)
    server.stop()
    assert server.url == url


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_reports_arrive_over_ipv6(pki: Pki, taken: list[PodReport]) -> None:
    server = ReportServer("", 0, taken.extend, serving_context(str(pki.ca.parent)).current)
    server.start()
    client = pki.client("dovetail-scheduler")
    try:
        for host in ("::1", "127.0.0.1"):
            address = Address(server._server.port, tls=True, host=host)
            assert address.peer(client).ask(post(BODY, "/reports")).status == 204
            address.leave()
    finally:
        server.stop()
    assert len(taken) == 2


def test_two_hundred_silent_clients_make_no_threads(mutual: Address, pki: Pki) -> None:
    """They made one each."""

    def threads() -> int:
        return sum(thread.name.startswith("reports") for thread in threading.enumerate())

    assert mutual.peer(pki.client("dovetail-scheduler")).ask(post(BODY, "/reports")).status == 204
    before = threads()
    for _ in range(200):
        mutual.tcp()
    assert mutual.peer(pki.client("dovetail-scheduler")).ask(post(BODY, "/reports")).status == 204
    assert threads() == before
