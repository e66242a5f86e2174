"""Slow, silent and hostile clients against the server of webhook and extender, in a process of its own, by raw sockets.

While they are there, a good client is answered and the kubelet's probe too. No control plane is needed.
"""

import contextlib
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.httpprogram import LIMITS, THREADS, Running, running
from tests.support.rawhttp import Address, Peer, Pki, get, post

REVIEW = (
    b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","resource":{"group":"","version":"v1",'
    b'"resource":"pods"},"namespace":"n","operation":"CREATE","object":{"metadata":{"name":"p"},"spec":{"containers":[]}}}}'
)
MANY = 300
"""Connections of an attack; eight stopped the webhook, and there is room for 512."""


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pki = Pki(tmp_path_factory.mktemp("pki"))
    path = pki.ca.parent / "tls.pem"
    path.write_bytes(pki.key.read_bytes() + pki.certificate.read_bytes())
    return path


@pytest.fixture(scope="module")
def tls(pem: Path) -> Iterator[Running]:
    with running(pem) as program:
        yield program


@pytest.fixture(scope="module")
def plain() -> Iterator[Running]:
    with running() as program:
        yield program


@pytest.fixture(autouse=True)
def room() -> Iterator[None]:
    """Attackers need descriptors too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def stamps(program: Running) -> bool:
    """Whether a good client's review is answered."""
    answer = program.address.ask(post(REVIEW, "/mutate"))
    return answer.status == 200 and b'"allowed":true' in answer.body


ATTACKS: dict[str, Callable[[Address], Peer]] = {
    "nothing at all": lambda address: address.tcp(),
    "half a handshake": lambda address: address.tcp().send(b"\x16\x03\x01\x02\x00\x01"),
    "a handshake and nothing more": lambda address: address.peer(),
    "half a header": lambda address: address.peer().send(b"POST /mutate HTTP/1.1\r\nHost: "),
    "half a body": lambda address: address.peer().send(post(REVIEW, "/mutate")[:-1]),
    "half a chunk": lambda address: address.peer().send(
        b"POST /mutate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\nab"
    ),
    "a question whose answer is not taken": lambda address: address.peer().send(get("/big")),
    "many questions whose answers are not taken": lambda address: address.peer().send(get("/big") * 50),
    "a question, then silence": lambda address: address.peer().send(get("/healthz")),
    "noise": lambda address: address.peer().send(b"\0\1\2\3" * 1000),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
@pytest.mark.parametrize("kind", ["plain", "tls"])
def test_clients_that_send(attack: Callable[[Address], Peer], kind: str, request: pytest.FixtureRequest) -> None:
    program: Running = request.getfixturevalue(kind)
    for _ in range(MANY if "answer" not in request.node.callspec.id else MANY // 5):
        with contextlib.suppress(OSError):  # a plain server may end half a handshake at once
            attack(program.address)
    for _ in range(5):
        assert stamps(program)
        assert program.is_alive()
    program.address.leave()


@pytest.mark.parametrize("kind", ["plain", "tls"])
def test_drips_without_end(kind: str, request: pytest.FixtureRequest) -> None:
    """A byte now and then keeps every timeout of one read away."""
    program: Running = request.getfixturevalue(kind)
    heads = [program.address.peer().send(b"GET / HTTP/1.1\r\nHost: x\r\nA: ") for _ in range(MANY // 2)]
    bodies = [program.address.peer().send(post(b"x" * 100_000)[:200]) for _ in range(MANY // 2)]
    for _ in range(10):
        for peer in (*heads, *bodies):
            with contextlib.suppress(OSError):
                peer.send(b"a")
        assert stamps(program)
        assert program.is_alive()

    def all_ended() -> bool:
        for peer in (*heads, *bodies):
            with contextlib.suppress(OSError):
                peer.send(b"a")
        return all(peer.is_ended() for peer in (heads[0], bodies[0]))

    for peer in (heads[0], bodies[0]):
        peer.sock.settimeout(0.5)
    eventually(all_ended, "they are ended though they send", seconds=LIMITS.first_request_seconds * 4)
    program.address.leave()


def test_thousands_of_connections(tls: Running) -> None:
    """There is room for 512; the rest took the place of each other."""
    for _ in range(4):
        for _ in range(750):
            with contextlib.suppress(OSError):
                tls.address.tcp()
        assert stamps(tls)
        assert tls.is_alive()
    tls.address.leave()


def test_resets_in_the_middle_of_everything(tls: Running) -> None:
    for piece in (b"", b"\x16", b"POST /mut", post(REVIEW, "/mutate")[:-1], post(REVIEW, "/mutate"), get("/big")):
        for _ in range(30):
            with contextlib.suppress(OSError):
                tls.address.peer().send(piece).reset()
            tls.address.tcp().reset()
    assert stamps(tls)
    assert tls.is_alive()


def test_a_process_that_has_no_descriptors_left_goes_on(pem: Path) -> None:
    """Less than there are clients, and the watches and the probes of the process need some too."""
    with running(pem, descriptors=160) as program:
        for _ in range(3):
            for _ in range(400):
                with contextlib.suppress(OSError):
                    program.address.tcp()
            assert stamps(program)
            assert program.is_alive()
        program.address.leave()
        assert stamps(program)


def test_a_process_whose_other_parts_took_all_descriptors_comes_back(pem: Path) -> None:
    """The probes' clients are many as well: whoever comes then is turned away, and nothing spins or ends."""
    with running(pem, descriptors=160) as program:
        for _ in range(300):
            with contextlib.suppress(OSError):
                program.health.tcp()
            with contextlib.suppress(OSError):
                program.address.tcp()
        program.health.leave()
        program.address.leave()

        def is_back() -> bool:
            with contextlib.suppress(OSError):
                return stamps(program) and program.is_alive()
            return False

        eventually(is_back, "it is back")


def test_handlers_that_hang_are_seen_by_the_probe_and_cost_nobody_else_a_wait(pem: Path) -> None:
    with running(pem) as program:
        hanging = [program.address.peer().send(get("/hang")) for _ in range(THREADS - 1)]
        assert stamps(program)
        assert program.is_alive()
        hanging.append(program.address.peer().send(get("/hang")))
        assert {peer.answer().status for peer in hanging} == {503}
        answer = program.health.ask(get("/healthz"))
        assert (answer.status, b"GET /healthz answered 503" in answer.body) == (503, True)
        assert program.address.ask(post(REVIEW, "/mutate")).status == 503, (
            "at once, so that its client goes on without it"
        )


def test_a_signal_ends_it_while_clients_are_silent(pem: Path) -> None:
    with running(pem) as program:
        for _ in range(50):
            program.address.tcp()
            program.address.peer().send(b"GET / HT")
        program.process.terminate()
        assert program.process.wait(20) == 0


def test_a_thread_that_died_is_a_failed_liveness_check() -> None:
    with running() as program:
        assert program.address.ask(get("/die")).status == 200
        eventually(lambda: not program.is_alive(), "the kubelet is told")
        answer = program.health.ask(get("/healthz"))
        assert b"[-] threads: thread watch-pods ended with RecursionError: too deep" in answer.body
        assert b"[+] through: ok" in answer.body
