"""The health server on a real socket."""

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from provisioner.support import health, metrics
from provisioner.support.health import HealthServer


@pytest.fixture
def complaints() -> dict[str, str]:
    return {"caches": "", "crds": ""}


@pytest.fixture
def server(complaints: dict[str, str]) -> Iterator[HealthServer]:
    checks = {"caches": lambda: complaints["caches"], "crds": lambda: complaints["crds"]}
    server = health.serve(
        0, "127.0.0.1", checks, live_checks={"alive": lambda: complaints.get("alive", "")}, profiling=True
    )
    yield server
    server.stop()


def get(server: HealthServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_ready_means_that_nothing_complains(server: HealthServer, complaints: dict[str, str]) -> None:
    assert get(server, "/readyz") == (200, "[+] caches: ok\n[+] crds: ok\nok\n")
    complaints["caches"] = "pods are not synced"
    assert get(server, "/readyz?verbose") == (503, "[-] caches: pods are not synced\n[+] crds: ok\nnot ok\n")
    assert get(server, "/healthz")[0] == 200


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


def test_stacks_show_every_thread(server: HealthServer) -> None:
    assert "MainThread:" in get(server, "/debug/stacks")[1]


def test_other_paths_are_not_found(server: HealthServer) -> None:
    assert get(server, "/etc/passwd") == (404, "not found\n")


def test_idle_connections_do_not_exhaust_it(server: HealthServer) -> None:
    before = threading.active_count()
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(60)]
    try:
        assert threading.active_count() - before <= health.MAX_CONNECTIONS
    finally:
        for connection in idle:
            connection.close()
    for _ in range(50):
        try:
            assert get(server, "/healthz")[0] == 200
            break
        except (urllib.error.URLError, ConnectionError):
            threading.Event().wait(0.1)
    else:
        pytest.fail("it never came back")


def test_a_port_that_is_taken_is_named(server: HealthServer) -> None:
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{server.port}"):
        health.serve(server.port, "127.0.0.1")
