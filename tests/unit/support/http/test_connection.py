"""What the bytes of a peer amount to does not depend on how they come."""

import contextlib
import re
import socket
from collections.abc import Iterator
from http import HTTPStatus
from itertools import pairwise

import h11
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from provisioner.support.http.connection import (
    KNOWN_HEAD_BYTES,
    KNOWN_HEADS,
    ConnectionStep,
    PeerConnection,
    RequestRefusedError,
)
from provisioner.support.http.values import Response
from tests.support.rawhttp import get, post

STREAM = b"".join(
    (
        get("/a", "X-Long: " + "x" * 200),
        post(b"y" * 300, "/b"),
        post(b"hello, world...", "/c"),
        b"HEAD /d HTTP/1.1\r\nHost: x\r\n\r\n",
        post(b"", "/e", "Expect: 100-continue"),
        get("/f", "Connection: close"),
    )
)
WANTED = [("GET", "/a", b""), ("POST", "/b", b"y" * 300), ("POST", "/c", b"hello, world..."), ("HEAD", "/d", b"")]
WANTED += [("POST", "/e", b""), ("GET", "/f", b"")]


@pytest.fixture
def pair() -> Iterator[tuple[PeerConnection, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        yield PeerConnection(here, ("", ""), 4096, own=True), there


def requests_of(pieces: list[bytes]) -> tuple[list[tuple[str, str, bytes]], bool]:
    """The requests in a stream that comes in pieces, each answered before the next; and whether the connection goes on."""
    here, there = socket.socketpair()
    with here, there:
        connection = PeerConnection(here, ("", ""), 4096, own=True)
        found, goes_on = [], True
        for piece in pieces:
            connection.feed(piece)
            while goes_on and connection.step(1000) is ConnectionStep.WHOLE:
                request = connection.request()
                found.append((request.method, request.target, request.body))
                connection.send(connection.encode(Response(200, b"ok"), close=False))
                connection.forget()
                goes_on = connection.next_request()
        return found, goes_on


@given(cuts=st.lists(st.integers(1, len(STREAM) - 1), max_size=40))
def test_a_stream_is_the_same_however_it_is_cut(cuts: list[int]) -> None:
    places = sorted({0, *cuts, len(STREAM)})
    assert requests_of([STREAM[begin:end] for begin, end in pairwise(places)]) == (WANTED, False)


def test_a_stream_may_come_byte_by_byte() -> None:
    assert requests_of([bytes([byte]) for byte in STREAM]) == (WANTED, False)


@given(noise=st.binary(max_size=300), at=st.integers(0, len(STREAM)))
def test_noise_is_refused_or_waited_out_and_nothing_else(noise: bytes, at: int) -> None:
    with contextlib.suppress(RequestRefusedError):
        found, _ = requests_of([piece for piece in (STREAM[:at], noise, STREAM[at:]) if piece])
        assert len(found) <= len(WANTED) + len(noise)


def test_what_a_peer_did_not_take_is_kept(pair: tuple[PeerConnection, socket.socket]) -> None:
    connection, there = pair
    answer = b"x" * 5_000_000
    connection.send(answer)
    assert 0 < len(connection.unsent) < len(answer)
    taken = 0
    while taken < len(answer):
        taken += len(there.recv(1 << 20))
        connection.send(connection.unsent)
    assert connection.unsent == b""


def test_a_request_that_is_not_complete_cannot_be_had(pair: tuple[PeerConnection, socket.socket]) -> None:
    connection, _ = pair
    with pytest.raises(LookupError):
        connection.request()


class Counted(h11.Connection):
    """Counts the events that it is asked for."""

    events = 0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        self.events += 1
        return super().next_event()


def test_what_is_read_at_a_time_amounts_to_few_events(pair: tuple[PeerConnection, socket.socket]) -> None:
    """40,000 chunks of a byte each were as many events, and nobody else was answered meanwhile."""
    for stream in (
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 40_000,
        post(b"x" * 200_000) * 3,
        post(b"x" * 200_000)[:-1],
        get() * 100,
    ):
        connection = PeerConnection(socket.socket(), ("", ""), 4096, own=True)
        connection._http = http = Counted(h11.SERVER, max_incomplete_event_size=4096)
        connection.feed(stream)
        with contextlib.suppress(RequestRefusedError), connection.sock:
            connection.step(1_000_000)
        assert http.events <= 3


# --- heads that are known already -----------------------------------------------------------------------------------

HEADS = (
    b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: %b\r\nContent-Type: application/json\r\n\r\n",
    b"POST /filter HTTP/1.1\r\nHost: x\r\ncontent-length: %b\r\n\r\n",
    b"POST /other HTTP/1.1\r\nHost: x\r\nA: b\r\nContent-Length: %b\r\n\r\n",
    b"POST /bare HTTP/1.1\nHost: x\nContent-Length: %b\n\n",
    b"POST /sly HTTP/1.1\r\nContent-Length: %b\r\nHost: x\n\n",
    b"POST /half HTTP/1.1\r\nHost: x\r\nContent-Length: %b\r\nA: b\n\r\n",
    b"POST /twice HTTP/1.1\r\nHost: x\r\nContent-Length: %b\r\nContent-Length: 5\r\n\r\n",
    b"POST /alike HTTP/1.1\r\nHost: x\r\nContent-Length: %b\r\nContent-Length:5\r\n\r\n",
    b"POST /tab HTTP/1.1\r\nHost: x\r\ncontent-length:\t5\r\nContent-Length: %b\r\n\r\n",
    b"POST /list HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 5\r\nContent-Length: %b\r\n\r\n",
    b"POST /chunks HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: %b\r\n\r\n",
    b"POST /wait HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %b\r\n\r\n",
    b"POST /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %b\r\n\r\n",
    b"POST /old HTTP/1.0\r\nHost: x\r\nContent-Length: %b\r\n\r\n",
    b"GET /get HTTP/1.1\r\nHost: x\r\nContent-Length: %b\r\n\r\n",
    b"\r\nPOST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: %b\r\n\r\n",
    b"POST /folded HTTP/1.1\r\nHost: x\r\nA: b\r\n Content-Length: 9\r\nContent-Length: %b\r\n\r\n",
)
LENGTHS = (b"0", b"5", b"7", b"12", b"1001", b"007", b"1234567890123", b"-1", b"", b"1 ", b"+3", b"\xb2")
BODIES = (b"y", b"\r\n", b"0\r\n\r\n")
ANSWERS = (
    Response(200, b"ok", "application/json"),
    Response(200, b""),
    Response(503, b"no"),
    Response(204, content_type=""),
    Response(200, b"{}", "", [("x-one", "1")]),
    Response(299, b"odd", "text/plain; charset=utf-8"),
)
Told = list[tuple[str, str, list[tuple[bytes, bytes]], bytes] | str]


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """Requests with one or two heads again and again, in pieces that most often begin where a request does."""
    heads = st.sampled_from(draw(st.lists(st.sampled_from(HEADS), min_size=1, max_size=2)))
    lengths = st.sampled_from(LENGTHS if draw(st.integers(0, 2)) == 0 else LENGTHS[:4])
    filling = draw(st.sampled_from(BODIES))
    pieces: list[bytes] = []
    for _ in range(draw(st.integers(2, 5))):
        head, length, chance = draw(heads), draw(lengths), draw(st.integers(0, 11))
        size = int(length) if length.isdigit() and int(length) < 2000 else 5
        one = head % length + (filling * size)[: max(0, size - (chance == 0))]
        if chance == 1:
            one += draw(st.binary(max_size=3))
        cuts = draw(st.lists(st.integers(1, len(one) - 1), max_size=3)) if 2 <= chance <= 5 else []
        parts = [one[begin:end] for begin, end in pairwise(sorted({0, *cuts, len(one)}))]
        if chance == 6 and pieces:
            pieces[-1] += parts.pop(0)
        pieces += parts
    return pieces


def by_h11(stream: bytes, answer: Response) -> tuple[Told, bytes]:
    """What h11 makes of a stream that ends, and what it answers; as `PeerConnection` did before it knew heads."""
    http = h11.Connection(h11.SERVER, max_incomplete_event_size=4096)
    http.receive_data(stream)
    http.receive_data(b"")
    told: Told = []
    sent = b""
    while True:
        try:
            head = http.next_event()
            if not isinstance(head, h11.Request):
                return told, sent
            if any(name == b"transfer-encoding" for name, _ in head.headers):
                return [*told, "refused"], sent
            announced = next((int(value) for name, value in head.headers if name == b"content-length"), 0)
            if announced > 1000:
                return [*told, "refused"], sent
            body, event = b"", http.next_event()
            while isinstance(event, h11.Data):
                body += bytes(event.data)
                event = http.next_event()
            if not isinstance(event, h11.EndOfMessage):
                return told, sent
        except h11.RemoteProtocolError:
            return [*told, "refused"], sent
        told.append((head.method.decode(), head.target.decode(), list(head.headers), body))
        headers = list(answer.headers) + ([("content-type", answer.content_type)] if answer.content_type else [])
        if answer.status != 204:
            headers.append(("content-length", str(len(answer.body))))
        sent += http.send(h11.Response(status_code=answer.status, headers=headers, reason=phrase(answer.status))) or b""
        sent += (http.send(h11.Data(answer.body)) or b"") if answer.body else b""
        sent += http.send(h11.EndOfMessage()) or b""
        if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
            return told, sent
        http.start_next_cycle()


def phrase(status: int) -> bytes:
    return HTTPStatus(status).phrase.encode() if status in set(HTTPStatus) else b""


def by_connection(pieces: list[bytes], answer: Response) -> tuple[Told, bytes, int]:
    """The same of a `PeerConnection`, and how many heads it knew again."""
    here, there = socket.socketpair()
    told: Told = []
    sent, known = b"", 0
    with here, there:
        connection = PeerConnection(here, ("", ""), 4096, own=True)
        for piece in [*pieces, b""]:
            connection.feed(piece)
            try:
                while (step := connection.step(1000)) is ConnectionStep.WHOLE:
                    request = connection.request()
                    told.append((request.method, request.target, list(request.headers), request.body))
                    known += connection.is_known
                    sent += connection.encode(answer, close=False)
                    connection.forget()
                    if not connection.next_request():
                        return told, sent, known
            except RequestRefusedError:
                return [*told, "refused"], sent, known
            if step is ConnectionStep.GONE:
                break
    return told, sent, known


@example(pieces=[HEADS[0] % b"1" + b"y", HEADS[0] % b"001" + b"y"], answer=Response(200))
@example(pieces=[HEADS[6] % b"5" + b"y" * 5, HEADS[6] % b"7" + b"y" * 7], answer=Response(200))
@example(pieces=[HEADS[7] % b"5" + b"y" * 5, HEADS[7] % b"7" + b"y" * 7], answer=Response(200))
@example(pieces=[HEADS[8] % b"5" + b"y" * 5, HEADS[8] % b"7" + b"y" * 7], answer=Response(200))
@example(pieces=[HEADS[9] % b"5" + b"y" * 5, HEADS[9] % b"7" + b"y" * 7], answer=Response(200))
@given(pieces=streams(), answer=st.sampled_from(ANSWERS))
@settings(max_examples=500)
def test_a_head_that_is_known_means_what_h11_makes_of_it(pieces: list[bytes], answer: Response) -> None:
    told, sent, _ = by_connection(pieces, answer)
    wanted, replies = by_h11(b"".join(pieces), answer)
    assert told == wanted
    assert re.sub(rb"date: [^\r]*\r\n", b"", sent) == replies


def test_a_client_that_asks_again_and_again_is_known() -> None:
    stream = [post(b"y" * size, "/filter", "A: b") for size in (1, 22, 333, 22)]
    assert by_connection(stream, ANSWERS[0])[2] == 3
    assert by_connection([b"".join(stream)], ANSWERS[0])[2] == 0, "sent ahead: h11 reads them all"
    assert by_connection([get("/"), get("/")], ANSWERS[0])[2] == 0


def test_few_and_short_heads_are_remembered() -> None:
    many = [post(b"", f"/{number}") for number in range(KNOWN_HEADS + 3)]
    assert by_connection(many + many, ANSWERS[0])[2] == KNOWN_HEADS
    long = post(b"", "/", "A: " + "x" * KNOWN_HEAD_BYTES)
    assert by_connection([long, long], ANSWERS[0])[2] == 0
