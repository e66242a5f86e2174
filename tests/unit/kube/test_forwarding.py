"""A connection to a port of a pod: what of the API server's messages is the port's, and how it ends."""

import base64
import contextlib
import hashlib
import re
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Self

import pytest
from websocket import WebSocketConnectionClosedException

from provisioner.kube.errors import ConnectionFailed, Forbidden
from provisioner.kube.forwarding import SUBPROTOCOL, Endpoint, Forwarded, open_port
from provisioner.support.clock import SystemClock


class Messages:
    """A WebSocket of which the messages are known beforehand."""

    def __init__(self, *messages: bytes | str | Exception) -> None:
        self.messages, self.sent, self.closed = list(messages), list[bytes](), False

    def send_binary(self, payload: bytes) -> None:
        self.sent.append(payload)

    def recv(self) -> str | bytes:
        if not self.messages:
            raise WebSocketConnectionClosedException("closed")
        first = self.messages.pop(0)
        if isinstance(first, Exception):
            raise first
        return first

    def close(self, *, timeout: int) -> None:
        self.closed = timeout == 0


def forwarded(*messages: bytes | str | Exception) -> tuple[Forwarded, Messages]:
    socket = Messages(*messages)
    return Forwarded(socket, "port 7 of pod a/b"), socket


PORTS = (b"\x00\x07\x00", b"\x01\x07\x00")


def test_what_the_port_says_comes_without_channels_and_port_numbers() -> None:
    one, _ = forwarded(*PORTS, b"\x00HTTP/1.1", b"\x00", b"\x00 200")
    assert [one.receive() for _ in range(3)] == [b"HTTP/1.1", b" 200", b""]
    one, _ = forwarded(b"\x00\x07\x00at once")
    assert one.receive() == b"at once"


def test_what_is_sent_goes_to_the_channel_of_the_port() -> None:
    one, socket = forwarded()
    one.send(b"GET /")
    one.close()
    assert (socket.sent, socket.closed) == ([b"\x00GET /"], True)


BROKEN = {
    "the pod refuses": ((*PORTS, b"\x01failed to connect to localhost:7: refused"), "failed to connect to localhost:7"),
    "text": (("what",), "sent text"),
    "a broken connection": ((OSError("reset"),), "reset"),
}


@pytest.mark.parametrize(("messages", "says"), BROKEN.values(), ids=BROKEN)
def test_a_connection_that_breaks_says_which_one(messages: tuple[bytes | str | Exception, ...], says: str) -> None:
    one, _ = forwarded(*messages)
    with pytest.raises(ConnectionFailed, match=f"(?s)port 7 of pod a/b broke: .*{says}"):
        one.receive()


def answering(answer: bytes) -> tuple[Endpoint, Callable[[], bytes]]:
    """An API server that answers the first request so; what it was asked."""
    listener = socket.create_server(("127.0.0.1", 0))
    seen: list[bytes] = []

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            head = b""
            while b"\r\n\r\n" not in head:
                head += peer.recv(4096)
            seen.append(head)
            peer.sendall(answer)
        listener.close()

    threading.Thread(target=serve, daemon=True).start()
    port = listener.getsockname()[1]
    return Endpoint(f"http://127.0.0.1:{port}/prefix", {}, "", {"authorization": "Bearer t"}), lambda: seen[0]


def test_a_refusal_of_the_api_server_is_one_of_its_errors() -> None:
    body = b'{"kind":"Status","code":403,"reason":"Forbidden","message":"no"}'
    endpoint, asked = answering(b"HTTP/1.1 403 Forbidden\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    with pytest.raises(Forbidden):
        open_port(endpoint, "a", "b", 7, SystemClock(), 5.0, 65536)
    head = asked().decode()
    assert head.startswith("GET /prefix/api/v1/namespaces/a/pods/b/portforward?ports=7 HTTP/1.1\r\n")
    assert "authorization: Bearer t" in head
    assert "Sec-WebSocket-Protocol: v4.channel.k8s.io" in head


def test_a_redirect_is_not_followed_with_the_token() -> None:
    endpoint, _ = answering(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n")
    with pytest.raises(ConnectionFailed, match="Redirect limit"):
        open_port(endpoint, "a", "b", 7, SystemClock(), 5.0, 65536)


def test_an_api_server_that_is_not_there_is_a_connection_that_failed() -> None:
    with pytest.raises(ConnectionFailed):
        open_port(
            Endpoint("https://127.0.0.1:1", {"context": ssl.create_default_context()}, "", {}),
            "a",
            "b",
            7,
            SystemClock(),
            2.0,
            65536,
        )


class Lying:
    """A WebSocket server that never comes to an end: after the handshake, `feed` sends until nobody reads, or the test gives up."""

    def __init__(self, feed: Callable[[socket.socket, threading.Event], None], *, head: str = "") -> None:
        self._listener, self._feed, self._head = socket.create_server(("127.0.0.1", 0)), feed, head
        self._over = threading.Event()
        self.endpoint = Endpoint(f"http://127.0.0.1:{self._listener.getsockname()[1]}", {}, "", {})
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        threading.Timer(GIVE_UP_SECONDS, self._over.set).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _serve(self) -> None:
        peer, _ = self._listener.accept()
        with self._listener, peer, contextlib.suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                head += peer.recv(4096)
            (key,) = re.findall(rb"Sec-WebSocket-Key: (.*)\r", head)
            accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()
            answer = f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {SUBPROTOCOL}"
            peer.sendall((self._head or f"HTTP/1.1 101 X\r\n{answer}\r\n\r\n").encode())
            self._feed(peer, self._over)


GIVE_UP_SECONDS = 4.0


def received(endpoint: Endpoint) -> bytes:
    with contextlib.closing(open_port(endpoint, "a", "b", 7, SystemClock(), 1.0, 1 << 20)) as one:
        return one.receive()


def dribbled(piece: bytes) -> Callable[[socket.socket, threading.Event], None]:
    def feed(peer: socket.socket, over: threading.Event) -> None:
        while not over.wait(0.05):
            peer.sendall(piece)

    return feed


def poured(head: bytes, piece: bytes) -> Callable[[socket.socket, threading.Event], None]:
    def feed(peer: socket.socket, over: threading.Event) -> None:
        peer.sendall(head)
        while not over.is_set():
            peer.sendall(piece)

    return feed


FRAME = b"\x82\x7f" + (1 << 40).to_bytes(8, "big")
PART = b"\x02\x7e\x40\x00" + bytes(1 << 14)
LIES = {
    "a byte of a huge message now and then": (dribbled(b"\x7f"), "", "took too long"),
    "messages without content, without end": (dribbled(b"\x82\x01\x01"), "", "took too long"),
    "pings without end": (dribbled(b"\x89\x00"), "", "took too long"),
    "headers without end": (dribbled(b"a"), "HTTP/1.1 101 X\r\n", "took too long"),
    "a refusal without end": (dribbled(b"a"), "HTTP/1.1 500 X\r\ncontent-length: 9999\r\n\r\n", "took too long"),
    "a message without end": (poured(FRAME, bytes(1 << 16)), "", "sent too much"),
    "a message of many parts": (poured(PART, b"\x00" + PART[1:]), "", "sent too much"),
    "a refusal that is huge": (
        poured(b"", bytes(1 << 16)),
        f"HTTP/1.1 500 X\r\ncontent-length: {1 << 40}\r\n\r\n",
        "sent too much",
    ),
}


@pytest.mark.parametrize(("feed", "head", "says"), LIES.values(), ids=LIES)
def test_a_peer_that_lies_takes_no_more_time_and_memory_than_it_was_given(
    feed: Callable[[socket.socket, threading.Event], None], head: str, says: str
) -> None:
    with Lying(feed, head=head) as server, pytest.raises(ConnectionFailed, match=says):
        received(server.endpoint)
