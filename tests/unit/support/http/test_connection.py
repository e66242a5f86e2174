"""What the bytes of a peer amount to does not depend on how they come."""

import contextlib
import socket
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.support.http.connection import Connection, RefusedError, Step
from provisioner.support.http.values import Response
from tests.support.rawhttp import get, post

CHUNKED = b"POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
STREAM = b"".join(
    (
        get("/a", "X-Long: " + "x" * 200),
        post(b"y" * 300, "/b"),
        CHUNKED + b"5\r\nhello\r\nA;name=value\r\n, world...\r\n0\r\nTrailer: t\r\n\r\n",
        b"HEAD /d HTTP/1.1\r\nHost: x\r\n\r\n",
        post(b"", "/e", "Expect: 100-continue"),
        get("/f", "Connection: close"),
    )
)
WANTED = [("GET", "/a", b""), ("POST", "/b", b"y" * 300), ("POST", "/c", b"hello, world..."), ("HEAD", "/d", b"")]
WANTED += [("POST", "/e", b""), ("GET", "/f", b"")]


@pytest.fixture
def pair() -> Iterator[tuple[Connection, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        yield Connection(here, ("", ""), 4096, own=True), there


def requests_of(pieces: list[bytes]) -> tuple[list[tuple[str, str, bytes]], bool]:
    """The requests in a stream that comes in pieces, each answered before the next; and whether the connection goes on."""
    here, there = socket.socketpair()
    with here, there:
        connection = Connection(here, ("", ""), 4096, own=True)
        found, goes_on = [], True
        for piece in pieces:
            connection.feed(piece)
            while goes_on and connection.step(1000) is Step.WHOLE:
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
    with contextlib.suppress(RefusedError):
        found, _ = requests_of([piece for piece in (STREAM[:at], noise, STREAM[at:]) if piece])
        assert len(found) <= len(WANTED) + len(noise)


def test_what_a_peer_did_not_take_is_kept(pair: tuple[Connection, socket.socket]) -> None:
    connection, there = pair
    answer = b"x" * 5_000_000
    connection.send(answer)
    assert 0 < len(connection.unsent) < len(answer)
    taken = 0
    while taken < len(answer):
        taken += len(there.recv(1 << 20))
        connection.send(connection.unsent)
    assert connection.unsent == b""


def test_a_request_that_is_not_complete_cannot_be_had(pair: tuple[Connection, socket.socket]) -> None:
    connection, _ = pair
    with pytest.raises(LookupError):
        connection.request()
