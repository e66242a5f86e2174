"""Server-sent events of which only the latest counts: who is slow gets the next one when it has taken the last. Source: HTML standard, section 9.2."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from provisioner.support.clock import Clock
from provisioner.support.http.values import Response

EVENT_STREAM: Final = "text/event-stream"
KEEPALIVE_SECONDS: Final = 15.0
"""Something is sent at least so often: proxies in between end what is silent."""
_ALIVE: Final = b": alive\n\n"


class EventBoard:
    """The latest event. Thread-safe: an event is replaced as a whole."""

    def __init__(self) -> None:
        self._latest = (0, b"")

    @property
    def latest(self) -> tuple[int, bytes]:
        """Its number, from 1 on, and its bytes; (0, b"") before the first."""
        return self._latest

    def put(self, kind: str, data: bytes) -> None:
        """A newer one; `data` is one line."""
        number = self._latest[0] + 1
        self._latest = (number, b"event: %b\nid: %d\ndata: %b\n\n" % (kind.encode(), number, data))


class EventFeed:
    """The events of a board, for one who looks on: a `support.http.values.Feed`.

    Args:
        board: whose events.
        clock: of the time.
        seconds: after which it ends, so that whoever goes on looking is asked again who they are.
        gone: called once when it has ended.
    """

    def __init__(self, board: EventBoard, clock: Clock, seconds: float, gone: Callable[["EventFeed"], object]) -> None:
        self.board, self._clock, self._gone = board, clock, gone
        self._end = clock.monotonic() + seconds
        self._sent, self._said = 0, clock.monotonic()
        self._closed = False

    @property
    def over(self) -> bool:
        """Whether it has ended, or its time is up."""
        return self._closed or self._clock.monotonic() >= self._end

    def take(self) -> bytes | None:
        """The latest event where it is a new one."""
        if self.over:
            return None
        number, event = self.board.latest
        now = self._clock.monotonic()
        if number != self._sent:
            self._sent, self._said = number, now
            return event
        if now - self._said >= KEEPALIVE_SECONDS:
            self._said = now
            return _ALIVE
        return b""

    def close(self) -> None:
        """It ends with the next question."""
        if not self._closed:
            self._closed = True
            self._gone(self)

    def response(self) -> Response:
        """The answer that it goes on with."""
        return Response(HTTPStatus.OK, b"", EVENT_STREAM, [("cache-control", "no-store")], self)
