"""Answers that go on: each peer gets what there is when it has taken what was before, and nobody waits for it."""

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from provisioner.support.http.values import HttpRequest, Limits, Response
from tests.support.eventually import eventually
from tests.support.rawhttp import Pki, get, serving

QUICK = Limits(feed_seconds=0.01, taking_seconds=0.5, unsent_bytes=200_000_000)


class Pieces:
    """A feed that gives what it is told to."""

    def __init__(self, *pieces: bytes | None) -> None:
        self.pieces = list(pieces)
        self.asked = 0
        self.closed = threading.Event()

    def take(self) -> bytes | None:
        self.asked += 1
        return self.pieces.pop(0) if self.pieces else b""

    def close(self) -> None:
        self.closed.set()


def fed(feed: Pieces) -> Callable[[HttpRequest], Response]:
    return lambda request: (
        Response(200, b"first\n", "text/event-stream", feed=feed) if request.path == "/" else Response(200)
    )


def read(sock: socket.socket, until: bytes) -> bytes:
    found = b""
    while until not in found and (more := sock.recv(65536)):
        found += more
    return found


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_pieces_follow_until_the_end(tls: bool, tmp_path: Path) -> None:
    feed = Pieces(b"one\n", b"", b"two\n", None)
    pki = Pki(tmp_path) if tls else None
    with serving(fed(feed), pki=pki, limits=QUICK) as (_, address):
        found = read(address.peer().send(get()).sock, b"0\r\n\r\n")
    head, _, body = found.partition(b"\r\n\r\n")
    assert b"content-length" not in head.lower()
    assert b"connection: close" in head.lower()
    assert body == b"6\r\nfirst\n\r\n4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\n"
    assert feed.closed.wait(5)


def test_a_peer_that_leaves_is_forgotten() -> None:
    feed = Pieces()
    with serving(fed(feed), limits=QUICK) as (_, address):
        peer = address.peer().send(get())
        read(peer.sock, b"first")
        peer.sock.close()
        assert feed.closed.wait(5)


def test_a_peer_that_asks_for_more_is_ended() -> None:
    feed = Pieces()
    with serving(fed(feed), limits=QUICK) as (_, address):
        peer = address.peer().send(get())
        read(peer.sock, b"first")
        peer.send(get())
        assert feed.closed.wait(5)


def test_who_takes_no_piece_is_asked_for_no_other_and_is_ended() -> None:
    feed = Pieces(*[bytes(20_000_000)] * 10)
    with serving(fed(feed), limits=QUICK) as (_, address):
        address.peer().send(get())
        eventually(lambda: feed.asked > 0, "the feed is asked")
        assert address.ask(get("/other")).status == 200
        assert feed.closed.wait(5)
        assert feed.asked == 1


def test_a_server_that_stops_ends_its_feeds() -> None:
    feed = Pieces()
    with serving(fed(feed), limits=QUICK) as (server, address):
        read(address.peer().send(get()).sock, b"first")
        server.stop(grace=5.0)
        assert feed.closed.is_set()


def test_a_feed_that_fails_ends_its_own_connection_only() -> None:
    class Broken(Pieces):
        def take(self) -> bytes | None:
            raise ValueError("broken")

    feed = Broken()
    with serving(fed(feed), limits=QUICK) as (_, address):
        peer = address.peer().send(get())
        assert peer.sock.recv(65536).endswith(b"first\n\r\n")
        assert peer.is_ended()
        assert feed.closed.wait(5)
        assert address.ask(get("/other")).status == 200
