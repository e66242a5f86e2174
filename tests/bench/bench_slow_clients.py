"""What the server of webhook and extender does while it is attacked; keeps results/slow_clients.json.

The program is a process of its own behind gunicorn, with reviews of 3 KB decided as the webhook does. Its clients share the
machine's cores, so their own work is in the figures.
"""

import contextlib
import json
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from provisioner.lab.harness.memory import pss_bytes
from provisioner.lab.harness.results import Figure, Goal, at_least, at_most, write
from tests.support.httpprogram import LIMITS, Running, running
from tests.support.rawhttp import Address, Peer, Pki, get, post

pytestmark = pytest.mark.bench

RESULTS = Path(__file__).parents[2] / "results"
SECONDS = 4.0
_figures: list[Figure] = []


def review() -> bytes:
    """A review of the size that real pods have."""
    variables = [{"name": f"VARIABLE_{index}", "value": "some value of usual length"} for index in range(25)]
    container = {"name": "main", "image": "registry.example.com/team/service:v1.2.3", "env": variables}
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "n",
        "operation": "CREATE",
        "object": {"metadata": {"generateName": "web-"}, "spec": {"containers": [container]}},
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


REVIEW = post(review(), "/mutate?timeout=2s", "Content-Type: application/json")


class _Client:
    """One kept-alive connection that asks anew as soon as it was answered."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        self.sock = sock
        self._read = b""
        self._began = 0.0

    def ask(self) -> None:
        self._began = time.perf_counter()
        self.sock.send(REVIEW)

    def answered(self) -> float | None:
        """Seconds that the present answer took, once all of it is there."""
        try:
            self._read += self.sock.recv(65536)
        except (ssl.SSLWantReadError, BlockingIOError):
            return None
        head, end, body = self._read.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]):
            return None
        assert head.startswith(b"HTTP/1.1 200"), head
        self._read = b""
        return time.perf_counter() - self._began


def load(address: Address, connections: int) -> list[float]:
    """Seconds of every answer of `SECONDS`, after one to warm up."""
    with selectors.DefaultSelector() as selector:
        for _ in range(connections):
            client = _Client(address.peer().sock)
            selector.register(client.sock, selectors.EVENT_READ, client)
            client.ask()
        taken: list[float] = []
        begins = time.perf_counter() + 1.0
        while (now := time.perf_counter()) < begins + SECONDS:
            for key, _ in selector.select(1.0):
                seconds = key.data.answered()
                if seconds is not None:
                    if now >= begins:
                        taken.append(seconds)
                    key.data.ask()
    return taken


def percentile(seconds: list[float], share: float) -> float:
    """In milliseconds."""
    ordered = sorted(seconds)
    return 1000 * ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def measured(name: str, address: Address, connections: int, rate: Goal | None, p99_ms: Goal | None) -> None:
    taken = load(address, connections)
    _figures.append(Figure(f"{name}: reviews per second, {connections} connections", len(taken) / SECONDS, "1/s", rate))
    _figures.append(Figure(f"{name}: p50, {connections} connections", percentile(taken, 0.5), "ms"))
    _figures.append(Figure(f"{name}: p99, {connections} connections", percentile(taken, 0.99), "ms", p99_ms))


@pytest.fixture(scope="module", autouse=True)
def results() -> Iterator[None]:
    yield
    for figure in _figures:
        print(figure.line())
    write(RESULTS, "slow_clients", _figures)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    pki = Pki(tmp_path_factory.mktemp("pki"))
    pem = pki.ca.parent / "tls.pem"
    pem.write_bytes(pki.key.read_bytes() + pki.certificate.read_bytes())
    with running(pem) as program:
        yield program


@pytest.fixture(scope="module")
def plain() -> Iterator[Running]:
    with running() as program:
        yield program


def drip(peer: Peer) -> None:
    with contextlib.suppress(OSError):
        peer.send(b"a")


def nothing(_: Peer) -> None:
    """Silence."""


ATTACKS: dict[str, tuple[int, Callable[[Address], Peer], Callable[[Peer], None]]] = {
    "300 silent connections": (300, lambda address: address.tcp(), nothing),
    "300 silent handshakes": (300, lambda address: address.peer(), nothing),
    "200 that drip a header": (
        200,
        lambda address: address.peer().send(b"POST /mutate HTTP/1.1\r\nHost: x\r\nA: "),
        drip,
    ),
    "200 that drip a body": (200, lambda address: address.peer().send(REVIEW[:-2000]), drip),
    "60 that take no answer": (60, lambda address: address.peer().send(get("/big") * 4), nothing),
}


@contextlib.contextmanager
def attacked(address: Address, name: str) -> Iterator[None]:
    """Attackers in a thread, who come back when they are ended."""
    count, begin, go_on = ATTACKS[name]
    target = Address(address.port, tls=address.tls)
    stop, there = threading.Event(), threading.Event()

    def attack() -> None:
        while not stop.is_set():
            peers = []
            for _ in range(count):
                with contextlib.suppress(OSError):
                    peers.append(begin(target))
            there.set()
            for _ in range(10):
                if stop.wait(0.5):
                    break
                for peer in peers:
                    go_on(peer)
            target.leave()

    thread = threading.Thread(target=attack)
    thread.start()
    there.wait(60)
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_quiet(tls: Running, plain: Running) -> None:
    measured("TLS", tls.address, 1, None, at_most(5))
    measured("TLS", tls.address, 50, at_least(1000), at_most(100))
    measured("plain", plain.address, 1, None, at_most(2))


@pytest.mark.parametrize("name", ATTACKS)
def test_attacked(tls: Running, plain: Running, name: str) -> None:
    with attacked(tls.address, name):
        measured(f"TLS, {name}", tls.address, 50, at_least(800), at_most(200))
        fresh = []
        for _ in range(100):
            began = time.perf_counter()
            assert tls.address.ask(REVIEW).status == 200
            fresh.append(time.perf_counter() - began)
            assert tls.is_alive()
        _figures.append(Figure(f"TLS, {name}: p99 of a new connection", percentile(fresh, 0.99), "ms", at_most(200)))
    with attacked(plain.address, name):
        measured(f"plain, {name}", plain.address, 1, None, at_most(5))


def test_a_flood_of_connections(tls: Running) -> None:
    """Each takes the place of another; a good one has to be through before its turn comes."""
    stop = threading.Event()

    def flood() -> None:
        held: deque[socket.socket] = deque()
        while not stop.is_set():
            with contextlib.suppress(OSError):
                held.append(socket.create_connection((tls.address.host, tls.address.port), 5))
            if len(held) > 1000:
                held.popleft().close()
        for sock in held:
            sock.close()

    threads = [threading.Thread(target=flood) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        fresh, failed = [], 0
        for _ in range(100):
            began = time.perf_counter()
            try:
                assert tls.address.ask(REVIEW).status == 200
            except OSError:
                failed += 1
            else:
                fresh.append(time.perf_counter() - began)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    _figures.append(Figure("a flood of connections: new ones that failed of 100", failed, "", at_most(5)))
    _figures.append(Figure("a flood of connections: p99 of a new one", percentile(fresh, 0.99), "ms", at_most(500)))


def test_memory(tmp_path: Path) -> None:
    """As many connections as are let in, after their handshake and with a part of a request."""
    pki = Pki(tmp_path)
    pem = tmp_path / "tls.pem"
    pem.write_bytes(pki.key.read_bytes() + pki.certificate.read_bytes())
    with running(pem) as program:
        assert program.address.ask(REVIEW).status == 200
        before = pss_of(program)
        for _ in range(LIMITS.connections):
            program.address.peer().send(REVIEW[:-1])
        assert program.is_alive()
        grown = pss_of(program) - before
    _figures.append(Figure("memory of as many TLS connections as there may be", grown, "MB", at_most(60)))


def pss_of(program: Running) -> float:
    """Of its processes together, in megabytes."""
    return pss_bytes(program.process.pid) / 1e6
