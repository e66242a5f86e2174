"""What a handler gets and gives, and the bounds of a server."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request, all of it.

    Attributes:
        method: in capital letters, as sent.
        target: path and query, as sent.
        headers: names in small letters, in their order.
        body: all of it.
        version: "1.0" or "1.1".
        scheme: "http" or "https".
        client: address and port of the peer, empty strings for this process itself.
        server: address and port that it connected to.
        peer_names: DNS names that the client's certificate is for, or else its common name; empty where none was asked for.
    """

    method: str
    target: str
    headers: Sequence[tuple[bytes, bytes]] = ()
    body: bytes = b""
    version: str = "1.1"
    scheme: str = "http"
    client: tuple[str, str] = ("", "")
    server: tuple[str, str] = ("", "")
    peer_names: frozenset[str] = frozenset()

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]


class Feed(Protocol):
    """What follows a body piece by piece, for as long as it lasts. The next piece is asked for when the peer has taken the one before."""

    def take(self) -> bytes | None:
        """The next piece, b"" for none now, None at the end. Called every `Limits.feed_seconds` in the thread that all connections share: at once."""
        ...

    def close(self) -> None:
        """The peer is gone, or has had the end; may be called twice."""
        ...


@dataclass(frozen=True, slots=True)
class Response:
    """What is answered; the server adds length, date, and what becomes of the connection.

    Attributes:
        status: 200 to 599.
        body: all of it, or what comes before the pieces of `feed`.
        content_type: "" for none.
        headers: others.
        feed: where the answer goes on; its connection is of no other use afterwards.
    """

    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Sequence[tuple[str, str]] = ()
    feed: Feed | None = None


Handler = Callable[[HttpRequest], Response]
"""Answers one request, in a thread of the server's; whatever it raises is a 500."""

Prompt = Callable[[HttpRequest], Response | None]
"""Answers one request in the thread that all connections share: at once and without waiting for anything. None, or whatever it
raises, leaves the request to a handler."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The bounds of a server.

    Attributes:
        connections: open at once; also never more than the process may open, less what others in it need.
        first_request_seconds: from the first packet until a handshake is done and a first request is complete.
        request_seconds: from the first byte of a later request to its last.
        answer_seconds: waiting for a thread and being answered by it; then 503.
        taking_seconds: for the peer to take the answer.
        idle_seconds: between two requests.
        feed_seconds: until a feed that had nothing is asked again.
        waiting: complete requests that may wait for a thread; more are told 503 at once.
        head_bytes: request line and headers.
        body_bytes: of one request.
        held_bytes: of all bodies that are being read or answered; beyond, the longest that is still being read goes.
        unsent_bytes: of all answers that peers have not taken yet; beyond, the one with most of it left goes, but for the last: one answer may be larger.
    """

    connections: int = 512
    first_request_seconds: float = 10.0
    request_seconds: float = 5.0
    answer_seconds: float = 10.0
    taking_seconds: float = 5.0
    idle_seconds: float = 120.0
    feed_seconds: float = 0.5
    waiting: int = 256
    head_bytes: int = 16 * 1024
    body_bytes: int = 1024 * 1024
    held_bytes: int = 32 * 1024 * 1024
    unsent_bytes: int = 32 * 1024 * 1024
