"""Deadlines and leave of single requests, against servers on loopback that hang in every phase."""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from certs.authority import Authority
from provisioner.kube.config import ApiConnection, connect
from provisioner.kube.errors import ConnectionFailed
from provisioner.kube.sending import SendAttempt, Sweeper
from provisioner.support import heartbeat
from provisioner.support.clock import SystemClock
from tests.support.eventually import eventually

Behaviour = Callable[[socket.socket], None]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class Server:
    """Does one thing with each connection, whatever is asked; `received` is all that came. Every thread closes the socket that it serves."""

    def __init__(self, behave: Behaviour, context: ssl.SSLContext | None = None) -> None:
        self._behave, self._context = behave, context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.received: list[bytes] = []
        self.port: int = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join(10)  # nobody is let in after this
        self._listener.close()
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in (self._accepting, *self._threads))

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(one)
            self._threads.append(threading.Thread(target=self._serve, args=(one,), daemon=True))
            self._threads[-1].start()

    def _serve(self, one: socket.socket) -> None:
        with one, contextlib.suppress(OSError):
            if self._context is None:
                self._answer(one)
                return
            with self._context.wrap_socket(one, server_side=True, do_handshake_on_connect=False) as wrapped:
                self._sockets.append(wrapped)  # it has taken the descriptor over
                wrapped.do_handshake()
                self._answer(wrapped)

    def _answer(self, one: socket.socket) -> None:
        while data := one.recv(65536):
            self.received.append(data)
            if b"\r\n\r\n" in data:
                self._behave(one)


def answer(one: socket.socket) -> None:
    one.sendall(HEAD + b"{}")


def silent(one: socket.socket) -> None:
    while one.recv(65536):
        pass


def drip(head: bytes, piece: bytes) -> Behaviour:
    def behave(one: socket.socket) -> None:
        one.sendall(b"HTTP/1.1 200 OK\r\n" + head)
        while True:
            one.sendall(piece)
            time.sleep(0.05)

    return behave


drip_headers = drip(b"x: ", b"y")
drip_body = drip(b"content-length: 100000\r\n\r\n", b" ")
drip_chunks = drip(b"transfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n")


def kubeconfig(path: Path, server: str, **cluster: object) -> str:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


@contextlib.contextmanager
def talking(
    tmp_path: Path, behave: Behaviour, *, tls: bool = False, pool_size: int = 4
) -> Iterator[tuple[ApiConnection, Server]]:
    context = None
    cluster: dict[str, object] = {}
    if tls:
        now = datetime.now(UTC)
        authority = Authority.create("test", now, days=1)
        leaf = authority.issue_server(["localhost"], ["127.0.0.1"], now, 1)
        (tmp_path / "ca.crt").write_bytes(authority.certificate_pem)
        (tmp_path / "tls.crt").write_bytes(leaf.cert_pem)
        (tmp_path / "tls.key").write_bytes(leaf.key_pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
        cluster["certificate-authority"] = str(tmp_path / "ca.crt")
    server = Server(behave, context)
    url = f"{'https' if tls else 'http'}://127.0.0.1:{server.port}"
    connection = connect(kubeconfig(tmp_path / "kubeconfig", url, **cluster), pool_size=pool_size)
    try:
        yield connection, server
    finally:
        connection.close()
        server.close()


HANGING = {
    "says nothing": silent,
    "sends a header byte by byte": drip_headers,
    "sends a body byte by byte": drip_body,
}


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("behave", HANGING.values(), ids=HANGING)
def test_a_server_that_hangs_is_given_up_when_the_time_is_up(tmp_path: Path, behave: Behaviour, tls: bool) -> None:
    with talking(tmp_path, behave, tls=tls) as (connection, _):
        begun = time.monotonic()
        with pytest.raises(ConnectionFailed) as failed:
            connection.request("POST", "/x", body=b"{}", read_timeout=20, total_timeout=0.6)
        assert time.monotonic() - begun < 10
        assert failed.value.maybe_applied


def test_headers_of_a_stream_must_come_in_time_and_its_body_has_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provisioner.kube.config.TOTAL_TIMEOUT_SECONDS", 0.6)
    with talking(tmp_path, drip_headers) as (connection, _), pytest.raises(ConnectionFailed, match=r"within 0\.6 s"):
        connection.stream("/x", read_timeout=20)
    with talking(tmp_path, drip_chunks) as (connection, _):
        stream = connection.stream("/x", read_timeout=20)
        begun = time.monotonic()
        for _piece in stream.stream(None):
            if time.monotonic() - begun > 1.5:
                break
        assert time.monotonic() - begun > 1.5
        stream.close()


def test_the_wait_for_a_free_connection_counts_too_and_nothing_was_sent(tmp_path: Path) -> None:
    with talking(tmp_path, silent, pool_size=1) as (connection, server):
        hanging = threading.Thread(target=lambda: _try(connection, total=3.0))
        hanging.start()
        eventually(lambda: server.received, "the first request is under way")
        with pytest.raises(ConnectionFailed) as failed:
            connection.request("POST", "/second", body=b"{}", total_timeout=0.5)
        assert not failed.value.maybe_applied
        hanging.join(15)
        assert not hanging.is_alive()
        assert b"/second" not in b"".join(server.received)


def garble(one: socket.socket) -> None:
    socket.socket.sendall(one, b"no record of TLS")


def test_a_request_may_have_arrived_where_tls_fails_afterwards(tmp_path: Path) -> None:
    with talking(tmp_path, garble, tls=True) as (connection, _), pytest.raises(ConnectionFailed, match="SSL") as failed:
        connection.request("POST", "/x", body=b"{}", total_timeout=10)
    assert failed.value.maybe_applied


def _try(connection: ApiConnection, total: float) -> None:
    with contextlib.suppress(ConnectionFailed):
        connection.request("GET", "/first", total_timeout=total)


class Wire:
    """A connection, as an attempt sees it; its socket notes what is done to it."""

    def __init__(self) -> None:
        self.attempt: SendAttempt | None = None
        self.sock = self
        self.shut: list[int] = []

    def shutdown(self, how: int) -> None:
        self.shut.append(how)


def test_a_connection_that_has_gone_on_to_another_request_is_not_cut_off() -> None:
    wire, first, second = Wire(), SendAttempt(0, None), SendAttempt(0, None)
    first.sends(wire)
    second.sends(wire)
    first.expire()
    assert wire.shut == []
    second.expire()
    assert wire.shut == [socket.SHUT_RDWR]


class NoLeaveError(Exception):
    pass


class Leave:
    """Permission as the test gives and takes it; `asked` counts."""

    def __init__(self, questions: int = 1000) -> None:
        self.asked, self._questions = 0, questions
        self.ended = threading.Event()

    def check(self) -> None:
        self.asked += 1
        if self.asked > self._questions or self.ended.is_set():
            raise NoLeaveError

    def left(self) -> float:
        return 0.0 if self.ended.is_set() else 5.0


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_without_leave_nothing_is_sent_and_the_next_request_is_served(tmp_path: Path, tls: bool) -> None:
    with talking(tmp_path, answer, tls=tls, pool_size=1) as (connection, server):
        for _ in range(3):
            with pytest.raises(NoLeaveError):
                connection.request("POST", "/guarded", body=b"{}", permit=Leave(0))
        assert connection.request("GET", "/free").status == 200
        assert b"/guarded" not in b"".join(server.received)


def test_leave_is_asked_for_again_before_the_body(tmp_path: Path) -> None:
    leave = Leave(1)
    with talking(tmp_path, answer, pool_size=1) as (connection, server):
        with pytest.raises(NoLeaveError):
            connection.request("POST", "/guarded", body=b"{}", permit=leave)
        assert leave.asked == 2
        eventually(lambda: server.received, "the headers have come")
        assert b"{}" not in b"".join(server.received), "headers alone do nothing"


def test_leave_is_asked_for_after_the_wait_for_a_connection(tmp_path: Path) -> None:
    leave = Leave()
    with talking(tmp_path, silent, pool_size=1) as (connection, server):
        hanging = threading.Thread(target=lambda: _try(connection, total=1.5))
        hanging.start()
        eventually(lambda: server.received, "the first request is under way")
        threading.Timer(0.5, leave.ended.set).start()
        with pytest.raises(NoLeaveError):
            connection.request("POST", "/late", body=b"{}", permit=leave)
        hanging.join(15)
        assert b"/late" not in b"".join(server.received)


def test_an_answer_is_waited_for_while_leave_is_extended_and_no_longer(tmp_path: Path) -> None:
    leave = Leave()
    with talking(tmp_path, drip_body) as (connection, _):
        begun = time.monotonic()
        threading.Timer(1.0, leave.ended.set).start()
        with pytest.raises(ConnectionFailed, match="the right to write ended") as failed:
            connection.request("POST", "/x", body=b"{}", read_timeout=20, permit=leave)
        assert 0.9 < time.monotonic() - begun < 10
        assert failed.value.maybe_applied


def test_a_thread_that_cuts_off_requests_and_hangs_is_hidden_by_no_other() -> None:
    """Seen: the election has a connection of its own, and its pulse took the place of the other one's."""
    before = set(heartbeat._OURS._pulses)
    sweepers = [Sweeper(SystemClock()) for _ in range(2)]
    for one in sweepers:
        with one.attempt(5, None):
            pass
    eventually(lambda: len(heartbeat._OURS._pulses.keys() - before) == 2, "both have a pulse")
    for one in sweepers:
        one.stop()
