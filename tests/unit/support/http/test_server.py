"""The server against clients that are slow, silent, greedy or broken; a well-behaved one is answered all the while."""

import contextlib
import os
import resource
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from provisioner.support.http.server import PROMPT_SECONDS, HttpServer, listen
from provisioner.support.http.values import HttpRequest, Limits, Response
from provisioner.support.metrics import REGISTRY
from tests.support.eventually import eventually
from tests.support.rawhttp import Address, Desk, Peer, Pki, get, post, serving, trusting

ENDED_NAME = "dovetail_http_connections_ended_total"
REFUSED_NAME = "dovetail_http_requests_refused_total"
SECONDS = 0.3
ASKING = Limits(first_request_seconds=SECONDS, request_seconds=SECONDS)
ANSWERING = Limits(answer_seconds=SECONDS)
TAKING = Limits(taking_seconds=SECONDS, unsent_bytes=200_000_000)
IDLE = Limits(idle_seconds=SECONDS)
PATIENT = Limits(connections=24, first_request_seconds=60, request_seconds=60, idle_seconds=60, taking_seconds=60)


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.go_on.set()


def is_answered(address: Address) -> bool:
    """Whether a good client gets what it wants; on a busy machine it may itself be too slow for these short times."""

    def ask() -> bool:
        try:
            return address.ask(get()).status == 200
        except OSError:
            return False

    return eventually(ask, "a good client is answered")


def ended(reason: str) -> float:
    return REGISTRY.get_sample_value(ENDED_NAME, {"server": "test", "reason": reason}) or 0.0


def refused(reason: str) -> float:
    return REGISTRY.get_sample_value(REFUSED_NAME, {"server": "test", "reason": reason}) or 0.0


# --- what good clients send ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_requests_follow_each_other_on_one_connection(pki: Pki, tls: bool) -> None:
    with serving(pki=pki if tls else None) as (_, address):
        peer = address.peer()
        for body in (b"one", b"x" * 700_000, b""):
            answer = peer.ask(post(body, "/echo"))
            assert (answer.status, answer.body) == (200, body or b"/echo")
            assert "connection" not in answer.headers
            assert "date" in answer.headers


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_requests_that_come_at_once_are_answered_in_their_order(pki: Pki, tls: bool) -> None:
    with serving(pki=pki if tls else None) as (_, address):
        peer = address.peer().send(b"".join(post(f"{number}".encode()) for number in range(200)))
        assert [peer.answer().body for _ in range(200)] == [f"{number}".encode() for number in range(200)]


def test_who_asks_whether_to_go_on_is_told_so() -> None:
    with serving() as (_, address):
        peer = address.peer().send(post(b"abc", "/", "Expect: 100-continue")[:-3])
        assert peer.answer().status == 100
        assert peer.ask(b"abc").body == b"abc"


def test_answers_without_a_body_have_none() -> None:
    with serving() as (_, address):
        peer = address.peer().send(b"HEAD /page HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = peer.answer(bodiless=True)
        assert (answer.status, answer.headers["content-length"]) == (200, "5")
        answer = peer.ask(get("/nothing"))
        assert (answer.status, "content-length" in answer.headers, "content-type" in answer.headers) == (
            204,
            False,
            False,
        )
        assert peer.ask(get("/page")).body == b"/page"


@pytest.mark.parametrize(
    "request_", [b"GET / HTTP/1.0\r\n\r\n", get("/", "Connection: close")], ids=["an old client", "one that says so"]
)
def test_a_client_that_wants_no_more_is_let_go(request_: bytes) -> None:
    with serving() as (_, address):
        peer = address.peer()
        assert peer.ask(request_).headers["connection"] == "close"
        assert peer.is_ended()


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
def test_another_protocol_is_not_changed_to(protocol: str) -> None:
    with serving() as (_, address):
        peer = address.peer()
        assert peer.ask(get("/a", "Connection: Upgrade", f"Upgrade: {protocol}")).body == b"/a"
        assert peer.ask(get("/b")).body == b"/b"


def test_a_client_that_has_said_all_is_still_answered() -> None:
    with serving() as (_, address):
        peer = address.peer().send(post(b"abc"))
        peer.sock.shutdown(socket.SHUT_WR)
        assert peer.answer().body == b"abc"
        assert peer.is_ended()


def test_a_handler_gets_all_there_is_to_know(pki: Pki, desk: Desk) -> None:
    with serving(desk, pki=pki) as (_, address):
        peer = address.peer()
        peer.ask(post(b"abc", "/a%20b?c=d", "X-Two: 1", "X-Two: 2"))
        (request,) = desk.requests
        assert (request.method, request.target, request.path) == ("POST", "/a%20b?c=d", "/a%20b")
        assert [value for name, value in request.headers if name == b"x-two"] == [b"1", b"2"]
        assert (request.body, request.version, request.scheme) == (b"abc", "1.1", "https")
        host, port = peer.sock.getsockname()
        assert (request.client, request.server) == ((host, str(port)), (address.host, str(address.port)))
        assert request.peer_names == frozenset()


def test_an_answer_is_one_record(pki: Pki) -> None:
    """Two writes could be two segments, and the second one might wait for an ACK."""
    with serving(pki=pki) as (_, address):
        peer = address.peer().send(post(b"abc"))
        record = peer.sock.recv(65536)
        assert record.startswith(b"HTTP/1.1 200")
        assert record.endswith(b"\r\n\r\nabc")


def test_a_handler_that_fails_is_a_500_and_its_thread_goes_on(desk: Desk) -> None:
    with serving(desk, threads=1) as (_, address):
        peer = address.peer()
        assert [peer.ask(get(page)).status for page in ("/broken", "/leave", "/fine")] == [500, 500, 200]


# --- TLS ---------------------------------------------------------------------------------------------------------------


def test_a_new_certificate_is_shown_to_the_next_connection(pki: Pki) -> None:
    def shown(peer: Peer) -> bytes | None:
        assert isinstance(peer.sock, ssl.SSLSocket)
        return peer.sock.getpeercert(binary_form=True)

    with serving(pki=pki) as (_, address):
        before = address.peer()
        pki.renew()
        after = address.peer()
        assert shown(before) != shown(after)
        assert before.ask(get()).status == after.ask(get()).status == 200


def test_http_2_is_not_offered(pki: Pki) -> None:
    context = trusting()
    context.set_alpn_protocols(["h2", "http/1.1"])
    with serving(pki=pki) as (_, address):
        peer = address.peer(context)
        assert isinstance(peer.sock, ssl.SSLSocket)
        assert peer.sock.selected_alpn_protocol() != "h2"
        assert peer.ask(get()).status == 200


def test_whoever_does_not_speak_tls_is_let_go(pki: Pki) -> None:
    with serving(pki=pki) as (_, address):
        before = ended("handshake-failed")
        for noise in (get(), b"\0" * 100, b"\x16\x03\x01\xff\xff" + b"x" * 100):
            peer = address.tcp().send(noise)
            while not peer.is_ended():
                pass  # an alert may come first
            peer.close()
        gone = address.tcp().send(b"\x16\x03\x01\x02\x00")
        gone.reset()
        eventually(lambda: ended("handshake-failed") >= before + 4, "all four are counted")
        assert address.ask(get()).status == 200


# --- what bad clients send ------------------------------------------------------------------------------------------

BAD = {
    "noise": (b"\0\1\2\3\r\n\r\n", 400),
    "no request line": (b"nonsense\r\n\r\n", 400),
    "a length that is no number": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
    "two lengths": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
    "an unknown transfer coding": (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
    "a body in chunks": (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", 411),
    "chunks, and a length": (post(b"0\r\n\r\n", "/", "Transfer-Encoding: chunked"), 411),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "a huge header": (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 40_000, 431),
    "very many headers": (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: a\r\n" * 10_000, 431),
    "a huge path": (b"GET /" + b"a" * 40_000, 431),
    "a huge body, announced": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n", 413),
    "a huge body in chunks": (
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n10000\r\n" + b"x" * 65536 + b"\r\n10000\r\n",
        411,
    ),
}


@pytest.mark.parametrize(("noise", "status"), BAD.values(), ids=BAD.keys())
def test_a_bad_request_is_refused_and_its_connection_ends(noise: bytes, status: int, desk: Desk) -> None:
    with serving(desk, Limits(body_bytes=65_000)) as (_, address):
        peer = address.peer()
        answer = peer.ask(noise)
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert peer.is_ended()
        assert desk.requests == []
        assert address.ask(get()).status == 200


def test_a_refusal_reaches_a_client_that_is_still_sending() -> None:
    """A reset would take it from the client's buffer."""
    with serving(limits=Limits(body_bytes=10)) as (_, address):
        peer = address.peer().send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n")
        for _ in range(20):
            peer.send(b"x" * 10_000)
        assert peer.answer().status == 413


def test_clients_that_break_off_are_forgotten(desk: Desk) -> None:
    with serving(desk, threads=1) as (server, address):
        for piece in (b"", b"POST / HT", post(b"abc")[:-1], get("/hang"), get("/big")):
            address.peer().send(piece).reset()
        desk.go_on.set()
        eventually(lambda: not server.peers, "all are gone")
        assert address.ask(get()).status == 200


# --- clients without end --------------------------------------------------------------------------------------------

Opening = Callable[[Address], Peer]


def begun(address: Address, data: bytes) -> Peer:
    """Who sent this and nothing more; on a slow machine the server's patience may be over before."""
    peer = address.peer()
    with contextlib.suppress(OSError):
        peer.send(data)
    return peer


def opened(opening: Opening, address: Address) -> Peer | None:
    """A connection in that state; None where the server's patience was over while they shook hands."""
    try:
        return opening(address)
    except OSError:
        return None


SILENT: dict[str, tuple[Opening, str]] = {
    "that say nothing": (lambda address: address.tcp(), "first-request-late"),
    "that begin a handshake": (lambda address: address.tcp().send(b"\x16\x03\x01"), "first-request-late"),
    "that shake hands and say nothing": (lambda address: address.peer(), "first-request-late"),
    "that begin a request": (lambda address: begun(address, b"GET / HT"), "first-request-late"),
    "that begin a body": (lambda address: begun(address, post(b"abc")[:-1]), "first-request-late"),
}


@pytest.mark.parametrize(("opening", "reason"), SILENT.values(), ids=SILENT.keys())
def test_many_clients(opening: Opening, reason: str, pki: Pki) -> None:
    """More of them than there are threads; they are ended in time, and nobody else notices them."""
    with serving(limits=ASKING, pki=pki, threads=2) as (_, address):
        before = ended(reason)
        peers = [opened(opening, address) for _ in range(20)]
        assert is_answered(address)
        assert all(peer is None or peer.is_ended() for peer in peers)
        assert ended(reason) >= before + 20


@pytest.mark.parametrize(
    "start", [b"GET / HTTP/1.1\r\nHost: x\r\nA: ", post(b"x" * 100_000)[:-90_000]], ids=["a header", "a body"]
)
@pytest.mark.parametrize("first", [True, False], ids=["at first", "later"])
def test_who_sends_without_end_is_ended(start: bytes, first: bool) -> None:
    """What counts is the whole request, not the last byte."""
    with serving(limits=ASKING) as (_, address):
        reason = "first-request-late" if first else "request-late"
        before, peer = ended(reason), address.peer()
        if not first:
            assert peer.ask(get()).status == 200
        peer.send(start)
        for _ in range(2000):
            try:
                peer.send(b"a")
            except OSError:
                break
            threading.Event().wait(0.01)
        assert peer.is_ended()
        assert ended(reason) == before + 1


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_who_takes_no_answer_keeps_no_thread_and_is_ended(pki: Pki, tls: bool) -> None:
    with serving(limits=TAKING, pki=pki if tls else None, threads=1) as (_, address):
        before = ended("answer-not-taken")
        for _ in range(4):
            address.peer().send(get("/big"))
        assert is_answered(address)
        eventually(lambda: ended("answer-not-taken") == before + 4, "they are ended")


def test_who_takes_an_answer_slowly_gets_all_of_it(pki: Pki) -> None:
    with serving(limits=PATIENT, pki=pki) as (_, address):
        answer = address.ask(get("/big"))
        assert answer.body == b"x" * 32_000_000


def test_an_idle_connection_ends_without_a_complaint() -> None:
    with serving(limits=IDLE) as (_, address):
        peer = address.peer()
        assert peer.ask(get()).status == 200
        assert peer.sock.recv(1) == b"", "a reset would look like a failure to the client"


# --- more clients than there is room for ----------------------------------------------------------------------------


def test_the_slowest_make_room(pki: Pki) -> None:
    """Those who never asked anything, the oldest first; who did is there to the end."""
    with serving(limits=PATIENT, pki=pki) as (server, address):
        good = address.peer()
        assert good.ask(get()).status == 200
        before = ended("evicted")
        idle = [address.tcp() for _ in range(PATIENT.connections * 3)]
        assert address.ask(get()).status == 200
        assert good.ask(get()).status == 200
        assert len(server.peers) <= PATIENT.connections
        assert ended("evicted") >= before + PATIENT.connections * 2
        assert idle[0].is_ended()


def test_idle_connections_do_not_make_newcomers_drive_out_each_other() -> None:
    """Who fills the places by asking once, and goes on connecting, would end every good client before it has asked."""
    with serving(limits=PATIENT) as (_, address):
        for _ in range(PATIENT.connections):
            assert address.peer().ask(get()).status == 200
        good = address.tcp()
        for _ in range(PATIENT.connections // 4 - 1):
            address.tcp()
        assert good.ask(get()).status == 200


@contextlib.contextmanager
def no_descriptors_left() -> Iterator[None]:
    """This process may open nothing more, for as long as it takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(one.name) for one in Path("/proc/self/fd").iterdir())
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
        with contextlib.suppress(OSError):  # those between are taken too
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for one in taken:
            os.close(one)


@contextlib.contextmanager
def newcomers(count: int) -> Iterator[list[Peer]]:
    """Clients that have a socket already, and are not connected yet."""
    peers = [Peer(socket.socket()) for _ in range(count)]
    try:
        yield peers
    finally:
        for peer in peers:
            peer.close()


def test_where_no_descriptor_is_left_the_slowest_make_room() -> None:
    """Far below the cap: others than clients have taken them."""
    with newcomers(1) as (good,), serving(limits=PATIENT) as (server, address):
        slow = [address.peer() for _ in range(3)]
        eventually(lambda: len(server.peers) == 3, "they are there")
        with no_descriptors_left():
            good.sock.connect((address.host, address.port))
            assert good.ask(get()).status == 200
        assert slow[0].is_ended()


def test_where_no_descriptor_is_left_and_nobody_can_go_newcomers_are_turned_away(desk: Desk) -> None:
    """At once, so that they can ask another replica, and nothing spins over connections that cannot be taken."""
    with newcomers(3) as clients, serving(desk, PATIENT) as (_, address):
        busy = address.peer().send(get("/hang"))
        assert desk.hung.acquire(timeout=20)
        with no_descriptors_left():
            for one in clients:
                with contextlib.suppress(ConnectionResetError):
                    one.sock.connect((address.host, address.port))
                assert one.is_ended()

        def answered() -> bool:
            with contextlib.suppress(ConnectionResetError):  # the round that turned the last one away is not over yet
                return address.ask(get()).status == 200
            return False

        eventually(answered, "there are descriptors again")
        desk.go_on.set()
        assert busy.answer().body == b"at last"


def test_who_is_being_answered_never_makes_room(desk: Desk) -> None:
    with serving(desk, PATIENT) as (_, address):
        busy = address.peer().send(get("/hang"))
        assert desk.hung.acquire(timeout=20)
        for _ in range(PATIENT.connections * 2):
            address.tcp()
        desk.go_on.set()
        assert busy.answer().body == b"at last"


@pytest.mark.parametrize("requests", [0, 40], ids=["at first", "after others on one connection"])
def test_long_bodies_do_not_fill_the_memory(requests: int) -> None:
    limits = Limits(body_bytes=1_000_000, held_bytes=5_000_000, first_request_seconds=60)
    with serving(limits=limits) as (server, address):
        client = address.peer()
        assert all(client.ask(post(b"x" * 999_999)).status == 200 for _ in range(requests))
        assert client.send(post(b"one") + post(b"two")).answer().body == b"one"
        assert client.answer().body == b"two"
        eventually(lambda: server.peers.held == 0, "nothing is held for nobody")
        before = ended("memory")
        peers = []
        for _ in range(12):
            peer = address.peer()
            peers.append(peer)
            try:
                peer.send(post(b"x" * 999_999)[:-1])
            except OSError:
                continue  # it was this one
        assert address.ask(post(b"short")).body == b"short"
        eventually(lambda: ended("memory") >= before + 6, "the longest are ended")
        assert server.peers.held <= limits.held_bytes
        address.leave()
        eventually(lambda: not server.peers, "all are gone")
        assert server.peers.held == 0


def test_answers_that_nobody_takes_do_not_fill_the_memory() -> None:
    """60 clients that did not read a page of 8 MB held 400 MB."""
    limits = Limits(unsent_bytes=80_000_000, taking_seconds=60)
    with serving(limits=limits) as (server, address):
        before = ended("memory")
        for _ in range(8):
            address.peer().send(get("/big"))
        eventually(lambda: ended("memory") >= before + 6, "those with most of their answers left are ended")
        assert server.peers.unsent <= limits.unsent_bytes
        assert address.ask(post(b"short")).body == b"short"
        eventually(lambda: len(server.peers) == 2, "others stay")
        assert ended("memory") == before + 6
        address.leave()
        eventually(lambda: not server.peers, "all are gone")
        assert server.peers.unsent == 0


def test_one_answer_may_be_larger_than_all_together() -> None:
    with serving(limits=Limits(unsent_bytes=1000, taking_seconds=60)) as (server, address):
        peer = address.peer()
        for _ in range(2):
            assert len(peer.ask(get("/big")).body) == 32_000_000
        eventually(lambda: server.peers.unsent == 0, "nothing is left")


# --- handlers that hang ---------------------------------------------------------------------------------------------


def test_a_hanging_handler_costs_its_thread_and_not_its_client(desk: Desk) -> None:
    with serving(desk, ANSWERING, threads=2) as (_, address):
        before = refused("late")
        answer = address.ask(get("/hang"))
        assert (answer.status, answer.headers["connection"]) == (503, "close")
        assert refused("late") == before + 1
        assert is_answered(address)


def test_when_all_threads_hang_everybody_is_told_at_once_until_they_go_on(desk: Desk) -> None:
    with serving(desk, ANSWERING, threads=2) as (server, address):
        for _ in range(2):
            assert address.ask(get("/hang")).status == 503
        before = refused("busy")
        assert address.ask(get()).status == 503
        assert refused("busy") == before + 1
        desk.go_on.set()
        eventually(lambda: not server._late, "the threads are back")
        assert is_answered(address)


def test_who_waits_for_a_thread_too_long_is_told_so_and_no_thread_answers_later(desk: Desk) -> None:
    with serving(desk, ANSWERING, threads=1) as (_, address):
        hanging = address.peer().send(get("/hang"))
        assert desk.hung.acquire(timeout=20)
        waiting = address.peer().send(get("/waited"))
        assert waiting.answer().status == 503
        assert hanging.answer().status == 503
        desk.go_on.set()
        assert is_answered(address)
        assert [request.path for request in desk.requests if request.path == "/waited"] == []


def test_only_so_many_may_wait_for_a_thread(desk: Desk) -> None:
    limits = Limits(waiting=3, answer_seconds=60)
    with serving(desk, limits, threads=1) as (_, address):
        hanging = address.peer().send(get("/hang"))
        assert desk.hung.acquire(timeout=20)
        waiting = [address.peer().send(get("/w")) for _ in range(3)]
        eventually(lambda: address.ask(get("/more")).status == 503, "one too many is told so")
        desk.go_on.set()
        assert hanging.answer().status == 200
        assert {peer.answer().status for peer in waiting} == {200}


# --- asking itself -----------------------------------------------------------------------------------------------------


def test_a_server_asks_itself_as_a_client_would(pki: Pki, desk: Desk) -> None:
    with serving(desk, pki=pki) as (server, _):
        assert server.ask("/page", 20) == (200, "/page")
        assert server.ask("/broken", 20)[0] == 500
        assert desk.requests[0].client == ("", "")


def test_a_server_whose_threads_hang_notices_it(desk: Desk) -> None:
    with serving(desk, ANSWERING, threads=1) as (server, address):
        address.peer().send(get("/hang"))
        assert desk.hung.acquire(timeout=20)
        assert server.ask("/page", 20)[0] == 503
        assert server.ask("/page", 20)[0] == 503
        desk.go_on.set()
        eventually(lambda: server.ask("/page", 20)[0] == 200, "the thread is back")


def test_a_server_that_does_not_run_has_no_answer() -> None:
    server = HttpServer("test", [listen("127.0.0.1", 0)], Desk())
    with pytest.raises(TimeoutError):
        server.ask("/page", 0.05)
    server.stop()


def test_questions_to_itself_are_answered_while_others_fill_every_place() -> None:
    with serving(limits=PATIENT) as (server, address):
        for _ in range(PATIENT.connections * 2):
            address.tcp()
        assert server.ask("/page", 20) == (200, "/page")


# --- beginning and ending -------------------------------------------------------------------------------------------


def test_stopping_finishes_what_is_under_way(desk: Desk) -> None:
    with serving(desk) as (server, address):
        idle, busy = address.peer(), address.peer().send(get("/hang"))
        assert idle.ask(get()).status == 200
        assert desk.hung.acquire(timeout=20)
        stopping = threading.Thread(target=server.stop, args=(20.0,))
        stopping.start()
        eventually(lambda: not connects(address), "the port is closed")
        answer = idle.ask(get())  # it was on its way
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        desk.go_on.set()
        answer = busy.answer()
        assert (answer.body, answer.headers["connection"]) == (b"at last", "close")
        stopping.join(20)
        assert not stopping.is_alive()


def test_stopping_does_not_wait_for_a_handler_that_hangs(desk: Desk) -> None:
    with serving(desk) as (server, address):
        busy = address.peer().send(get("/hang"))
        assert desk.hung.acquire(timeout=20)
        server.stop(grace=0.1)
        assert busy.is_ended()


def connects(address: Address) -> bool:
    try:
        address.tcp().close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("host", "reached"), [("", ["127.0.0.1", "::1"]), ("::1", ["::1"]), ("127.0.0.1", ["127.0.0.1"])]
)
def test_where_it_listens(host: str, reached: list[str]) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    server = HttpServer("test", [listen(host, 0)], lambda request: Response(200, request.client[0].encode()))
    server.start()
    try:
        for each in reached:
            address = Address(server.port, host=each)
            assert address.ask(get()).status == 200
            address.leave()
        with pytest.raises(OSError, match=rf"cannot listen on .*:{server.port}: Address already in use$"):
            listen(host, server.port)
    finally:
        server.stop(grace=0.0)


def test_a_connection_that_breaks_the_server_is_the_only_one() -> None:
    def handle(request: HttpRequest) -> Response:
        if request.path == "/odd":
            return Response(200, b"", headers=[("not a header", "\n")])
        return Response(200)

    with serving(handle) as (_, address):
        assert address.peer().send(get("/odd")).is_ended()
        assert address.ask(get()).status == 200


def test_a_wake_up_that_comes_after_its_work_was_done_keeps_nobody_awake() -> None:
    with serving() as (server, address):
        assert is_answered(address)
        turns = 0
        patience = server._patience

        def counted(every: float) -> float:
            nonlocal turns
            turns += 1
            return patience(every)

        server._patience = counted  # type: ignore[method-assign]
        server._wake_in.send(b"\0")  # as from a thread that was held up between its mark and its byte
        eventually(lambda: turns, "it is awake")
        before = turns
        threading.Event().wait(0.5)
        assert turns - before < 20, "it never sleeps again"


# --- answers that take no time --------------------------------------------------------------------------------------


class Quick:
    """Answers by itself what is posted to /now; remembers in which threads."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.before: Callable[[], object] = lambda: None

    def __call__(self, request: HttpRequest) -> Response | None:
        if request.path not in {"/now", "/now-big"}:
            return None
        self.threads.append(threading.current_thread().name)
        self.before()
        return Response(200, b"y" * 32_000_000 if request.path == "/now-big" else request.body)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_what_takes_no_time_is_answered_by_the_thread_that_reads(pki: Pki, desk: Desk, tls: bool) -> None:
    quick = Quick()
    with serving(desk, pki=pki if tls else None, prompt=quick) as (_, address):
        peer = address.peer()
        for number in range(3):
            body = b"x" * 100_000 * number
            assert peer.ask(post(body, "/now")).body == body
            assert peer.ask(post(b"else")).body == b"else"
    assert quick.threads == ["test"] * 3
    assert [request.path for request in desk.requests] == ["/"] * 3


def test_threads_that_hang_do_not_keep_such_answers(desk: Desk) -> None:
    with serving(desk, threads=2, prompt=Quick()) as (_, address):
        address.peer().send(get("/hang"))
        assert desk.hung.acquire(timeout=20)
        assert address.ask(post(b"a", "/now")).body == b"a"


def test_requests_in_a_row_are_left_to_threads(desk: Desk) -> None:
    """One would be answered within the other, as deep as a client likes."""
    with serving(desk, prompt=Quick()) as (_, address):
        peer = address.peer()
        peer.send(b"".join(post(b"%d" % number, "/now") for number in range(200)))
        assert [peer.answer().body for _ in range(200)] == [b"%d" % number for number in range(200)]
    assert len(desk.requests) >= 199


def test_a_prompt_answer_that_fails_is_a_threads(desk: Desk) -> None:
    quick = Quick()

    def fail() -> None:
        raise RuntimeError("broken")

    quick.before = fail
    with serving(desk, prompt=quick) as (_, address):
        assert address.ask(post(b"a", "/now")).body == b"a"
    assert [request.path for request in desk.requests] == ["/now"]


def asked_promptly(address: Address, quick: Quick) -> bool:
    before = len(quick.threads)
    return address.ask(post(b"c", "/now")).body == b"c" and len(quick.threads) > before


def think() -> None:
    began = time.thread_time()
    while time.thread_time() < began + 2 * PROMPT_SECONDS:
        pass


def test_after_a_prompt_answer_that_took_long_threads_answer_for_a_while(desk: Desk) -> None:
    quick = Quick()
    quick.before = think
    with serving(desk, prompt=quick) as (_, address):
        assert address.ask(post(b"a", "/now")).body == b"a"
        assert not desk.requests
        assert address.ask(post(b"b", "/now")).body == b"b"
        assert [request.body for request in desk.requests] == [b"b"]
        quick.before = lambda: None
        eventually(lambda: asked_promptly(address, quick), "it is asked again")


def test_who_takes_no_prompt_answer_is_ended_and_keeps_nobody(desk: Desk) -> None:
    with serving(desk, TAKING, prompt=Quick()) as (_, address):
        before = ended("answer-not-taken")
        address.peer().send(post(b"", "/now-big"))
        assert address.ask(post(b"a", "/now")).body == b"a"
        eventually(lambda: ended("answer-not-taken") == before + 1, "it is ended")


def test_a_prompt_answer_of_a_server_that_stops_is_the_last(desk: Desk) -> None:
    quick = Quick()
    with serving(desk, prompt=quick) as (server, address):
        peer = address.peer()
        assert peer.ask(post(b"a", "/now")).headers.get("connection") is None
        stopper = threading.Thread(target=server.stop, args=(20.0,))
        peer.send(post(b"b", "/now")[:-1])
        stopper.start()
        eventually(lambda: is_refused(address), "it takes no more connections")
        answer = peer.ask(b"b")
        assert (answer.body, answer.headers["connection"]) == (b"b", "close")
        assert peer.sock.recv(1) == b""
        stopper.join(20)


def is_refused(address: Address) -> bool:
    try:
        address.tcp()
    except OSError:
        return True
    return False
