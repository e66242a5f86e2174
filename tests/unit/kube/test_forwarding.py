"""A connection to a port of a pod: what of the API server's messages is the port's, and how it ends."""

import ssl
import threading
from collections.abc import Callable

import pytest
from websocket import WebSocketConnectionClosedException

from provisioner.kube.errors import ConnectionFailed, Forbidden
from provisioner.kube.forwarding import Endpoint, Forwarded, open_port
from provisioner.support.clock import SystemClock
from tests.support.clock import FakeClock


class Messages:
    """A WebSocket of which the messages are known beforehand."""

    def __init__(self, *messages: bytes | str | Exception) -> None:
        self.messages, self.sent, self.limits, self.closed = list(messages), list[bytes](), list[float](), False

    def send_binary(self, payload: bytes) -> None:
        self.sent.append(payload)

    def recv(self) -> str | bytes:
        if not self.messages:
            raise WebSocketConnectionClosedException("closed")
        first = self.messages.pop(0)
        if isinstance(first, Exception):
            raise first
        return first

    def settimeout(self, timeout: float) -> None:
        self.limits.append(timeout)

    def close(self, *, timeout: int) -> None:
        self.closed = timeout == 0


def forwarded(*messages: bytes | str | Exception, clock: FakeClock | None = None) -> tuple[Forwarded, Messages]:
    socket = Messages(*messages)
    return Forwarded(socket, clock or FakeClock(), 10.0, "port 7 of pod a/b"), socket


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


def test_messages_without_end_end_with_the_deadline() -> None:
    clock = FakeClock()

    class Endless(Messages):
        def recv(self) -> bytes:
            clock.advance(1.0)
            return b"\x01"

    one = Forwarded(Endless(), clock, 10.0, "port 7")
    with pytest.raises(ConnectionFailed, match="took too long"):
        one.receive()


def answering(answer: bytes) -> tuple[Endpoint, Callable[[], bytes]]:
    """An API server that answers the first request so; what it was asked."""
    import socket

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
        open_port(endpoint, "a", "b", 7, SystemClock(), 5.0)
    head = asked().decode()
    assert head.startswith("GET /prefix/api/v1/namespaces/a/pods/b/portforward?ports=7 HTTP/1.1\r\n")
    assert "authorization: Bearer t" in head
    assert "Sec-WebSocket-Protocol: v4.channel.k8s.io" in head


def test_a_redirect_is_not_followed_with_the_token() -> None:
    endpoint, _ = answering(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n")
    with pytest.raises(ConnectionFailed, match="Redirect limit"):
        open_port(endpoint, "a", "b", 7, SystemClock(), 5.0)


def test_an_api_server_that_is_not_there_is_a_connection_that_failed() -> None:
    with pytest.raises(ConnectionFailed):
        open_port(
            Endpoint("https://127.0.0.1:1", {"context": ssl.create_default_context()}, "", {}),
            "a",
            "b",
            7,
            SystemClock(),
            2.0,
        )
