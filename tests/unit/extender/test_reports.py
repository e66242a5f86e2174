"""Reports: on the wire, from the queue, to a leader that may or may not be there."""

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certs.authority import Authority
from extender import reports as sending
from extender.reports import CAPACITY, FAILURES_IN_A_ROW, AddressError, ClientIdentity, Reporter, check_address
from provisioner.apis.core import Lease
from provisioner.apis.meta import ObjectMeta
from provisioner.apis.reports import (
    MAX_BYTES,
    MAX_REPORTS,
    REPORTS_URL_ANNOTATION,
    PodReport,
    ReportReason,
    ReportsError,
    decode_reports,
    encode_reports,
)
from provisioner.support import metrics
from tests.support.clock import FakeClock

ONE = PodReport(uid="u", node="n", reason=ReportReason.HELD)


def test_the_body_is_golden() -> None:
    assert encode_reports([ONE, PodReport(uid="v", reason=ReportReason.EMPTIED)]) == (
        b'{"reports":[{"uid":"u","node":"n","reason":"held"},{"uid":"v","node":"","reason":"emptied"}]}'
    )


text = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@given(
    st.lists(
        st.builds(
            lambda uid, node, reason: PodReport(uid=uid, node=node, reason=reason),
            text,
            text,
            st.sampled_from(ReportReason),
        )
    )
)
def test_what_is_sent_is_what_is_read(reports: list[PodReport]) -> None:
    assert decode_reports(encode_reports(reports)) == tuple(reports)


def test_fields_of_later_versions_are_skipped() -> None:
    assert decode_reports(b'{"v":2,"reports":[{"uid":"u","node":"n","reason":"held","since":3}]}') == (ONE,)


BAD = {
    "no JSON": (b"{", "not reports"),
    "no UTF-8": (b'{"reports":[{"uid":"\xff","reason":"held"}]}', "not reports"),
    "no object": (b"[]", "not reports"),
    "no reports": (b"{}", "not reports"),
    "an unknown reason": (b'{"reports":[{"uid":"u","reason":"bored"}]}', "bored"),
    "no uid": (b'{"reports":[{"reason":"held"}]}', "uid"),
    "an empty uid": (b'{"reports":[{"uid":"","reason":"held"}]}', r"reports\[0\].uid"),
    "a long uid": (b'{"reports":[{"uid":"' + b"u" * 300 + b'","reason":"held"}]}', "300 characters"),
    "a long node": (b'{"reports":[{"uid":"u","node":"' + b"n" * 300 + b'","reason":"held"}]}', r"reports\[0\].node"),
    "too many": (encode_reports([ONE] * (MAX_REPORTS + 1)), f"the maximum is {MAX_REPORTS}"),
    "too long": (b" " * (MAX_BYTES + 1), f"the maximum is {MAX_BYTES}"),
}


@pytest.mark.parametrize(("body", "says"), BAD.values(), ids=BAD)
def test_a_body_that_is_none_is_refused(body: bytes, says: str) -> None:
    with pytest.raises(ReportsError, match=says):
        decode_reports(body)


# --- addresses ------------------------------------------------------------------------------------------------------

FULL = ClientIdentity("ca", "cert", "key")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/reports", "http://[::1]:1/reports", "http://localhost/reports", "https://10.0.0.1:1/r"]
)
def test_addresses_that_may_be_used(url: str) -> None:
    check_address(url, FULL)
    with pytest.raises(AddressError):
        check_address(url.replace("//", "//user:password@"), FULL)


REFUSED = {
    "http://10.0.0.1/reports": "plain http to another host",
    "http://localhost.example.org/reports": "plain http",
    "ftp://127.0.0.1/reports": "not an http or https",
    "https:///reports": "with a host",
    "not a url": "not an http or https",
    "http://[::1/": "not a URL",
    "http://127.0.0.1:99999/": "not a URL",
    "http://me:secret@127.0.0.1/": "contains credentials",
}


@pytest.mark.parametrize(("url", "says"), REFUSED.items())
def test_addresses_that_may_not(url: str, says: str) -> None:
    with pytest.raises(AddressError, match=says) as caught:
        check_address(url, FULL)
    assert "secret" not in str(caught.value)


def test_https_needs_both_sides_certificates() -> None:
    with pytest.raises(AddressError, match="--reports-key"):
        check_address("https://10.0.0.1/", ClientIdentity("ca", "cert"))


# --- sending --------------------------------------------------------------------------------------------------------


class Leader:
    """Takes reports, answers with `status`."""

    def __init__(self, status: int = 204) -> None:
        self.batches: list[tuple[PodReport, ...]] = []
        leader = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                leader.batches.append(decode_reports(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def start(self) -> str:
        self.thread.start()
        return f"127.0.0.1:{self.server.server_address[1]}/reports"

    def stop(self) -> None:
        if self.thread.is_alive():
            self.server.shutdown()
            self.thread.join(5)
        self.server.server_close()


@pytest.fixture
def leader() -> Iterator[Leader]:
    made = Leader()
    yield made
    made.stop()


@pytest.fixture
def reporter() -> Iterator[Reporter]:
    made = Reporter(ClientIdentity(), FakeClock())
    made.start()
    yield made
    made.stop()


def lease(url: str) -> Lease:
    return Lease(metadata=ObjectMeta(name="l", annotations={REPORTS_URL_ANNOTATION: url} if url else {}))


def counted(outcome: str) -> float:
    return metrics.REGISTRY.get_sample_value("dovetail_extender_reports_total", {"outcome": outcome}) or 0.0


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_reports_go_to_the_leader_in_one_batch(leader: Leader, reporter: Reporter) -> None:
    reporter.lease_changed(None, lease(f"http://{leader.start()}"))
    reports = [PodReport(uid=f"u{i}", node="n", reason=ReportReason.HELD) for i in range(5)]
    for report in reports:
        reporter.put(report)
    wait(lambda: sum(map(len, leader.batches)) == 5)
    assert [report for batch in leader.batches for report in batch] == reports
    assert len(leader.batches) <= 2


def test_without_a_leader_reports_are_counted_and_forgotten(reporter: Reporter) -> None:
    before = counted("unaddressed")
    reporter.put(ONE)
    wait(lambda: counted("unaddressed") == before + 1)


def test_a_leader_that_goes_takes_its_address_along(reporter: Reporter) -> None:
    there = lease("http://127.0.0.1:1/reports")
    reporter.lease_changed(None, there)
    assert reporter.url == "http://127.0.0.1:1/reports"
    reporter.lease_changed(there, lease(""))
    assert reporter.url == ""
    reporter.lease_changed(None, there)
    reporter.lease_changed(there, None)
    assert reporter.url == ""


def test_an_address_that_may_not_be_used_is_none(reporter: Reporter) -> None:
    reporter.lease_changed(None, lease("http://10.0.0.1/reports"))
    assert reporter.url == ""


def test_a_leader_that_does_not_answer_stops_nothing(leader: Leader, reporter: Reporter) -> None:
    before = counted("failed")
    reporter.lease_changed(None, lease("http://127.0.0.1:9/reports"))
    reporter.put(ONE)
    wait(lambda: counted("failed") == before + 1)
    reporter.lease_changed(None, lease(f"http://{leader.start()}"))
    reporter.put(ONE)
    wait(lambda: leader.batches)


def test_a_leader_that_refuses_is_counted(reporter: Reporter) -> None:
    leader = Leader(status=503)
    try:
        before = counted("failed")
        reporter.lease_changed(None, lease(f"http://{leader.start()}"))
        reporter.put(ONE)
        wait(lambda: counted("failed") == before + 1)
    finally:
        leader.stop()


def test_after_failures_in_a_row_nothing_is_sent_for_a_while(leader: Leader) -> None:
    clock = FakeClock()
    reporter = Reporter(ClientIdentity(), clock)
    reporter.start()
    try:
        nowhere = "http://127.0.0.1:9/reports"
        reporter.lease_changed(None, lease(nowhere))
        for pause in (1.0, 2.0, 4.0, 8.0, 10.0, 10.0):
            for _ in range(FAILURES_IN_A_ROW if pause == 1.0 else 1):
                before = counted("failed")
                reporter.put(ONE)
                wait(lambda before=before: counted("failed") == before + 1)  # type: ignore[misc]
            paused, failed = counted("paused"), counted("failed")
            clock.advance(pause - 0.1)
            reporter.put(ONE)
            wait(lambda paused=paused: counted("paused") == paused + 1)  # type: ignore[misc]
            assert counted("failed") == failed, "nobody was asked"
            clock.advance(0.2)
        reporter.put(ONE)  # fails: the pause has begun anew
        wait(lambda: counted("failed") == failed + 1)
        reporter.lease_changed(None, lease(f"http://{leader.start()}"))  # another leader is asked at once
        reporter.put(ONE)
        wait(lambda: leader.batches)
    finally:
        reporter.stop()


def test_one_batch_that_gets_through_forgets_the_failures(leader: Leader, reporter: Reporter) -> None:
    url = f"http://{leader.start()}"
    for _ in range(3 * FAILURES_IN_A_ROW):
        reporter._sent(reporter.url, failed=True)
        reporter._sent(reporter.url, failed=True)
        reporter._sent(reporter.url, failed=False)
    before = counted("paused")
    reporter.lease_changed(None, lease(url))
    reporter.put(ONE)
    wait(lambda: leader.batches)
    assert counted("paused") == before


def test_the_queue_drops_the_oldest() -> None:
    reporter = Reporter(ClientIdentity(), FakeClock())
    before = counted("dropped")
    for number in range(CAPACITY + 3):
        reporter.put(PodReport(uid=f"u{number}", reason=ReportReason.HELD))
    assert counted("dropped") == before + 3
    assert [reporter._queue[0].uid, len(reporter._queue)] == ["u3", CAPACITY]


def test_https_proves_both_sides(tmp_path: Path, leader: Leader) -> None:
    import ssl

    now = FakeClock().now()
    authority = Authority.create("test", now - timedelta(days=1), 3650)
    server = authority.issue_server([], ["127.0.0.1"], now - timedelta(days=1), 3650)
    client = authority.issue_client("dovetail-extender", [], now - timedelta(days=1), 3650)
    files = {"ca": authority.certificate_pem, "server": server.cert_pem + server.key_pem}
    files |= {"cert": client.cert_pem, "key": client.key_pem}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server")
    context.load_verify_locations(tmp_path / "ca")
    context.verify_mode = ssl.CERT_REQUIRED
    leader.server.socket = context.wrap_socket(leader.server.socket, server_side=True)
    identity = ClientIdentity(str(tmp_path / "ca"), str(tmp_path / "cert"), str(tmp_path / "key"))
    reporter = Reporter(identity, FakeClock())
    reporter.start()
    try:
        reporter.lease_changed(None, lease(f"https://{leader.start()}"))
        reporter.put(ONE)
        wait(lambda: leader.batches == [(ONE,)])
    finally:
        reporter.stop()


def test_certificates_that_are_not_made_yet_are_no_fault(tmp_path: Path) -> None:
    """An optional Secret: its directory is mounted empty, and filled later."""
    named = ClientIdentity(*(str(tmp_path / name) for name in ("ca", "cert", "key")))
    assert named.is_absent
    (tmp_path / "ca").write_bytes(b"")
    assert not named.is_absent
    assert not ClientIdentity().is_absent
    assert not ClientIdentity("/none/ca").is_absent


def test_batches_are_gathered_for_at_most_a_tenth_of_a_second() -> None:
    assert sending.BATCH_SECONDS <= 0.1
    assert json.loads(encode_reports([])) == {"reports": []}
