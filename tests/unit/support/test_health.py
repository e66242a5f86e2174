"""The health server on a real socket."""

import contextlib
import gzip
import threading
import time
import tracemalloc
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from provisioner.support import health, heartbeat, metrics
from provisioner.support.health import HealthServer
from provisioner.support.heartbeat import Pulses
from provisioner.support.http.values import HttpRequest, Limits
from tests.support import rawhttp
from tests.support.clock import FakeClock
from tests.support.rawhttp import Address, Desk


@pytest.fixture
def complaints() -> dict[str, str]:
    return {"caches": "", "crds": ""}


@pytest.fixture
def server(complaints: dict[str, str]) -> Iterator[HealthServer]:
    checks = {"caches": lambda: complaints["caches"], "crds": lambda: complaints["crds"]}
    server = health.serve(
        0,
        "127.0.0.1",
        checks,
        live_checks={"alive": lambda: complaints.get("alive", "")},
        notes={"objects": lambda: complaints.get("objects", "")},
        profiling=True,
    )
    yield server
    server.stop()


def get(server: HealthServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_ready_means_that_nothing_complains(server: HealthServer, complaints: dict[str, str]) -> None:
    assert get(server, "/readyz") == (200, "[+] caches: ok\n[+] crds: ok\nok\n")
    complaints["caches"] = "pods are not synced"
    assert get(server, "/readyz?verbose") == (503, "[-] caches: pods are not synced\n[+] crds: ok\nnot ok\n")
    assert get(server, "/healthz")[0] == 200


def test_a_note_is_told_and_leaves_the_process_ready(server: HealthServer, complaints: dict[str, str]) -> None:
    complaints["objects"] = "Pod shop/evil: no JSON"
    assert get(server, "/readyz") == (200, "[+] caches: ok\n[+] crds: ok\n[!] objects: Pod shop/evil: no JSON\nok\n")


def test_a_check_that_raises_is_a_complaint(server: HealthServer, complaints: dict[str, str]) -> None:
    del complaints["crds"]
    status, text = get(server, "/readyz")
    assert status == 503
    assert "[-] crds: the check failed: 'crds'" in text


def test_dead_is_dead(server: HealthServer, complaints: dict[str, str]) -> None:
    complaints["alive"] = "the leader's thread ended"
    assert get(server, "/healthz")[0] == 503


def test_metrics_are_served(server: HealthServer) -> None:
    metrics.counter("dovetail_test_served_total", "Test.").inc()
    status, text = get(server, "/metrics")
    assert status == 200
    assert "dovetail_test_served_total 1.0" in text
    assert "process_cpu_seconds_total" in text


def test_many_who_ask_for_metrics_share_an_answer(server: HealthServer) -> None:
    """A render of a large registry takes a while: 64 of them, one after the other, kept probes waiting until they failed."""
    renders = 0

    def slow_lines() -> Iterator[str]:
        nonlocal renders
        renders += 1
        time.sleep(0.2)
        yield "dovetail_test_slow 1\n"

    remove = metrics.written_by(slow_lines)
    try:
        with ThreadPoolExecutor(40) as many:
            answers = list(many.map(lambda _: get(server, "/metrics"), range(40)))
    finally:
        remove()
    assert all(status == 200 and "dovetail_test_slow 1" in text for status, text in answers)
    assert renders < 10


def test_who_cannot_read_gzip_shares_one_text() -> None:
    """One each was as much memory as a stranger liked."""
    rendered = health._Rendered()
    before = rendered.answer(HttpRequest("GET", "/metrics")).body
    rendered._until = float("inf")  # no other is rendered
    one, two = (rendered.answer(HttpRequest("GET", "/metrics")).body for _ in range(2))
    assert b"process_cpu_seconds_total" in one
    assert one is two
    rendered._until = 0.0
    metrics.counter("dovetail_test_shared_total", "Test.").inc()
    later = rendered.answer(HttpRequest("GET", "/metrics")).body
    assert b"dovetail_test_shared_total" in later
    assert b"dovetail_test_shared_total" not in before


ENCODINGS = {
    "as Prometheus asks": ("gzip", True),
    "one of several": ("deflate, gzip;q=0.5", True),
    "refused": ("gzip;q=0, identity", False),
    "another one": ("zstd", False),
    "nothing said": ("", False),
}


@pytest.mark.parametrize(("accepts", "packed"), ENCODINGS.values(), ids=ENCODINGS)
def test_metrics_are_compressed_for_who_accepts_that(server: HealthServer, accepts: str, packed: bool) -> None:
    asked = urllib.request.Request(f"http://127.0.0.1:{server.port}/metrics", headers={"Accept-Encoding": accepts})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        assert (answer.headers["content-encoding"] == "gzip") is packed
        text = gzip.decompress(answer.read()) if packed else answer.read()
    assert b"process_cpu_seconds_total" in text


def test_the_metrics_of_a_large_cluster_are_never_in_memory_as_a_whole(server: HealthServer) -> None:
    """With 100,000 pods they are tens of megabytes, of which one copy was kept from scrape to scrape."""
    bulk = 24 * 2**20
    series = 'karpenter_pods_state{name="web-%d",namespace="default",owner="' + "x" * 900 + '",phase="Running"} 1\n'
    count = bulk // len(series)
    remove = metrics.written_by(lambda: (series % number for number in range(count)))
    asked = urllib.request.Request(f"http://127.0.0.1:{server.port}/metrics", headers={"Accept-Encoding": "gzip"})
    tracemalloc.start()
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            packed = answer.read()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        remove()
    assert gzip.decompress(packed).count(b"karpenter_pods_state{") == count
    assert most < bulk / 4


def test_stacks_show_every_thread(server: HealthServer) -> None:
    assert "MainThread:" in get(server, "/debug/stacks")[1]


def test_other_paths_are_not_found(server: HealthServer) -> None:
    assert get(server, "/etc/passwd") == (404, "not found\n")


def test_slow_clients_do_not_keep_it_from_answering(server: HealthServer) -> None:
    """Sixteen were enough to stop it, and with it every program whose kubelet got no answer."""

    def threads() -> int:
        return sum(thread.name.startswith("metrics") for thread in threading.enumerate())

    assert get(server, "/healthz")[0] == 200
    before = threads()
    address = Address(server.port)
    try:
        for number in range(3 * health.LIMITS.connections):
            peer = address.tcp()
            with contextlib.suppress(OSError):  # it may have made room already
                peer.send((b"", b"GET /healthz HTTP/1.1\r\nHost: ", rawhttp.get("/metrics"))[number % 3])
        assert get(server, "/healthz")[0] == 200
        assert threads() <= before, "those of an earlier server may just have ended"
    finally:
        address.leave()


def test_only_reading_is_allowed(server: HealthServer) -> None:
    address = Address(server.port)
    assert address.ask(b"DELETE /healthz HTTP/1.1\r\nHost: x\r\n\r\n").status == 405
    assert address.ask(rawhttp.post(b"x", "/healthz")).status == 413
    address.leave()


def test_a_check_may_go_through_a_server() -> None:
    desk = Desk()
    with rawhttp.serving(desk, Limits(answer_seconds=0.2), threads=1) as (served, address):
        check = health.through(served, "/page", 20)
        assert check() == ""
        assert health.through(served, "/broken", 20)() == "GET /broken answered 500: internal error"
        address.peer().send(rawhttp.get("/hang"))
        assert desk.hung.acquire(timeout=20)
        asked = len(desk.requests)
        assert check() == "", "an answer is kept for a second"
        assert len(desk.requests) == asked
        complaint = health.through(served, "/page", 20)()
        assert complaint == "GET /page answered 503: service unavailable"
        desk.go_on.set()


def test_a_check_through_a_server_that_is_gone_complains() -> None:
    with rawhttp.serving() as (served, _):
        pass
    assert health.through(served, "/page", 0.05)().endswith("the server test has ended")


def test_probes_have_an_address_of_their_own() -> None:
    running = health.serve_all(("127.0.0.1", 0), ("127.0.0.1", 0), checks={"a": lambda: ""}, live_checks={})
    try:
        figures, probes = running
        assert [get(figures, page)[0] for page in ("/metrics", "/readyz", "/healthz")] == [200, 200, 200]
        assert [get(probes, page)[0] for page in ("/metrics", "/readyz", "/healthz")] == [404, 200, 200]
        taken = health.serve_all(("127.0.0.1", figures.port), None, checks={}, live_checks={})
        assert taken == [], "no reason for the program itself to end"
    finally:
        for each in running:
            each.stop()


def test_a_port_that_is_taken_is_named(server: HealthServer) -> None:
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{server.port}"):
        health.serve(server.port, "127.0.0.1")


def test_a_program_is_alive_only_while_its_clients_are_answered_and_its_threads_live(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server whose threads all hang would pass a probe that has a thread of its own."""
    desk, pulses = Desk(), Pulses(FakeClock())
    monkeypatch.setattr(heartbeat, "_OURS", pulses)
    with rawhttp.serving(desk, Limits(answer_seconds=0.2), threads=1) as (served, address):
        checks = health.live_checks(served, "reviews")
        assert {name: check() for name, check in checks.items()} == {"reviews": "", "threads": ""}
        address.peer().send(rawhttp.get("/hang"))
        assert desk.hung.acquire(timeout=20)
        pulses.died("watch-pods", RecursionError("too deep"))
        found = {name: check() for name, check in health.live_checks(served, "reviews").items()}
        assert found["reviews"].startswith("GET /healthz answered 503")
        assert found["threads"].startswith("thread watch-pods ended")
        desk.go_on.set()
