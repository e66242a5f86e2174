"""Reports of the extender: what one request is answered, and a server that takes them."""

import io
import urllib.error
import urllib.request

import pytest

from provisioner.apis.reports import MAX_BYTES, Reason, Report, encode_reports
from provisioner.controllers.reports import ReportServer, _take

BODY = encode_reports([Report(uid="a", reason=Reason.HELD)])
CASES: dict[str, tuple[str, str | None, bytes, int, str]] = {
    "a batch": ("/reports", str(len(BODY)), BODY, 204, ""),
    "another path": ("/metrics", str(len(BODY)), BODY, 404, "not found"),
    "a path below": ("/reports/x", str(len(BODY)), BODY, 404, "not found"),
    "no length": ("/reports", None, BODY, 411, "content-length is needed"),
    "a length that is no number": ("/reports", "-1", BODY, 411, "content-length is needed"),
    "a body too large, which is not read": ("/reports", str(MAX_BYTES + 1), b"", 413, f"at most {MAX_BYTES} bytes"),
    "no JSON": ("/reports", "4", b"what", 400, "not reports"),
    "an unknown reason": ("/reports", "45", b'{"reports": [{"uid": "a", "reason": "bored"}]}'[:45], 400, "not reports"),
    "nothing at all": ("/reports", "0", b"", 400, "not reports"),
}


@pytest.mark.parametrize(("path", "length", "body", "status", "text"), CASES.values(), ids=CASES.keys())
def test_a_request_is_answered(path: str, length: str | None, body: bytes, status: int, text: str) -> None:
    taken: list[Report] = []
    answer = _take(path, length, io.BytesIO(body).read, taken.extend)
    assert answer[0] == status
    assert answer[1].startswith(text)
    assert taken == ([Report(uid="a", reason=Reason.HELD)] if status == 204 else [])


def test_plain_http_is_refused_where_others_reach_it() -> None:
    with pytest.raises(ValueError, match="--report-cert-dir"):
        ReportServer("0.0.0.0", 0, lambda _: None, None)


def test_a_server_takes_reports_and_goes_on_after_a_bad_request() -> None:
    taken: list[Report] = []
    server = ReportServer("127.0.0.1", 0, taken.extend, None)
    server.start()
    try:
        assert server.url.startswith("http://127.0.0.1:")
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(urllib.request.Request(server.url, b"{}", method="POST"), timeout=30)
        with urllib.request.urlopen(urllib.request.Request(server.url, BODY, method="POST"), timeout=30) as answer:
            assert answer.status == 204
    finally:
        server.stop()
    assert [report.uid for report in taken] == ["a"]


def test_the_address_that_others_use_is_the_one_that_was_given() -> None:
    server = ReportServer("127.0.0.1", 0, lambda _: None, None, address="10.0.0.7:8444")
    server.stop()
    assert server.url == "http://10.0.0.7:8444/reports"
