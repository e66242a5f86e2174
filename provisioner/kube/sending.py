"""One request under way, as the HTTP library's connection sees it: it asks for leave right before its bytes go out, and is cut off when its time
or its leave ends.

urllib3 bounds each read and not their sum, so a server that sends a byte now and then holds a thread for ever; and between the caller's decision to
write and the write itself lie the wait for a free connection, the TCP and the TLS handshake. Both are mended where the bytes go out: in `send` of the
connection classes below, the one place that every request passes.
"""

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterator
from typing import Any, Protocol

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from provisioner.kube.errors import ConnectionFailed
from provisioner.support import heartbeat
from provisioner.support.clock import Clock

SWEEP_SECONDS = 0.25  # how late a request may be cut off

_here = threading.local()


class Permit(Protocol):
    """The right to write, which may end at any time; `lease.Fence` and `lease.LeaseTerm` are such."""

    def check(self) -> None:
        """Raises something where there is none."""
        ...

    def left(self) -> float:
        """Seconds until it ends, unless it is extended; 0 or less when it has ended, may be infinite."""
        ...


class SendAttempt:
    """One try of one request.

    Attributes:
        sent: whether anything of it may have reached the server.
        expired: whether it was cut off because its time was up, or because it was no longer permitted.
    """

    __slots__ = ("_connection", "_deadline", "_permit", "expired", "sent")

    def __init__(self, deadline: float, permit: Permit | None) -> None:
        self._deadline = deadline  # monotonic seconds
        self.sent = self.expired = False
        self._permit = permit
        self._connection: Any = None

    def is_late(self, now: float) -> bool:
        """Whether nobody may wait for its answer any more."""
        return now >= self._deadline or (self._permit is not None and self._permit.left() <= 0)

    def sends(self, connection: Any) -> None:
        """Called when bytes are about to go out over an open connection.

        Raises:
            Exception: whatever the permit raises; nothing is sent then.
            TimeoutError: the time is up.
        """
        if self._permit is not None:
            self._permit.check()
        if self.expired:
            raise TimeoutError
        self._connection = connection
        connection.attempt = self
        self.sent = True

    def failure(self, request: str, seconds: float) -> ConnectionFailed:
        """What the caller of an expired attempt is told."""
        forbidden = self._permit is not None and self._permit.left() <= 0
        why = (
            "the right to write ended before the answer came" if forbidden else f"no whole answer within {seconds:g} s"
        )
        return ConnectionFailed(why, request, maybe_applied=self.sent)

    def expire(self) -> None:
        """Wake the thread that waits for the server; it gets an end of file or an error."""
        self.expired = True
        connection = self._connection
        if connection is not None and connection.attempt is self and connection.sock is not None:
            with contextlib.suppress(Exception):
                connection.sock.shutdown(socket.SHUT_RDWR)


_numbers = itertools.count(1)
"""Of sweepers: a pulse of a name that is there already would take its place."""


class Sweeper:
    """Cuts off attempts whose time is up; one thread, which starts with the first attempt and sleeps while there is none."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._number = clock, next(_numbers)
        self._changed = threading.Condition()
        self._under_way: set[SendAttempt] = set()
        self._thread: threading.Thread | None = None
        self._stopping = False

    @contextlib.contextmanager
    def attempt(self, seconds: float, permit: Permit | None) -> Iterator[SendAttempt]:
        """What this thread sends inside the block belongs to one attempt, which may take so many seconds."""
        attempt = SendAttempt(self._clock.monotonic() + seconds, permit)
        with self._changed:
            attempt.expired = self._stopping
            if not self._under_way:
                self._changed.notify()
            self._under_way.add(attempt)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kube-deadlines", daemon=True)
                self._thread.start()
        _here.attempt = attempt
        try:
            yield attempt
        finally:
            _here.attempt = None
            with self._changed:
                self._under_way.discard(attempt)

    def stop(self) -> None:
        """End the thread. What is under way is cut off, and what comes later is not sent."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
            cut = list(self._under_way)
        for attempt in cut:
            attempt.expire()

    def _run(self) -> None:
        pulse = heartbeat.pulse(f"deadlines of requests {self._number}")
        while True:
            pulse.beat()
            with self._changed:
                while not self._under_way and not self._stopping:
                    pulse.rest()
                    self._changed.wait()
                    pulse.beat()
                if self._stopping:
                    pulse.end()
                    return
                now = self._clock.monotonic()
                late = [attempt for attempt in self._under_way if attempt.is_late(now)]
                self._under_way.difference_update(late)
                if not late:
                    self._changed.wait(SWEEP_SECONDS)
            for attempt in late:
                attempt.expire()


class _Asking:
    """Asks the attempt of this thread before anything is sent."""

    sock: Any

    def send(self, data: Any) -> None:
        attempt: SendAttempt | None = getattr(_here, "attempt", None)
        if attempt is not None:
            if self.sock is None:
                self.connect()  # type: ignore[attr-defined]
            attempt.sends(self)
        super().send(data)  # type: ignore[misc]


class _AskingHttp(_Asking, HTTPConnection):
    pass


class _AskingHttps(_Asking, HTTPSConnection):
    pass


def asking(pool: urllib3.HTTPConnectionPool) -> urllib3.HTTPConnectionPool:
    """The same pool, whose connections ask."""
    pool.ConnectionCls = _AskingHttps if isinstance(pool, urllib3.HTTPSConnectionPool) else _AskingHttp
    return pool
