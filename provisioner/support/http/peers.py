"""Whom a server is connected with, what each does and until when, and what is held for them."""

import resource
import selectors
import socket
import time
from typing import Final

from provisioner.support import logs, metrics
from provisioner.support.http.connection import ConnectionPhase, PeerConnection, Ticket
from provisioner.support.http.values import Limits

RESERVED_DESCRIPTORS: Final = 128
"""Descriptors that a server leaves to the rest of its process: watches, files, other servers."""
MIN_CONNECTIONS: Final = 16
LINGER_SECONDS: Final = 2.0
"""How long a closing connection is still read from, and how long idle ones stay open in a server that stops."""
_SLOW: Final = (ConnectionPhase.FRESH, ConnectionPhase.READING, ConnectionPhase.WRITING)

ENDED = metrics.counter(
    "dovetail_http_connections_ended_total",
    "Connections that the server closed early, by reason: evicted (the cap was reached), handshake-failed, first-request-late,"
    " request-late, answer-not-taken, memory (request bodies, or answers that were not taken, exceeded the limit), bad-request.",
    ("server", "reason"),
)

_log = logs.get_logger(__name__)


class PeerTable:
    """The connections of one server; its one thread alone may use it.

    Attributes:
        phases: who does what, and when that ends. Each phase lasts equally long for all, so the order in which they entered it is that of their ends.
        tickets: requests that threads have, or will have.
        held: bytes of requests.
        unsent: bytes of answers, of those that are written to.
    """

    def __init__(self, server: str, limits: Limits, poller: selectors.BaseSelector) -> None:
        self.server, self.poller, self._limits = server, poller, limits
        self._cap = min(
            limits.connections,
            max(MIN_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - RESERVED_DESCRIPTORS),
        )
        self.phases: dict[ConnectionPhase, dict[PeerConnection, float]] = {phase: {} for phase in ConnectionPhase}
        self._seconds = {
            ConnectionPhase.FRESH: limits.first_request_seconds,
            ConnectionPhase.READING: limits.request_seconds,
            ConnectionPhase.WORKING: limits.answer_seconds,
            ConnectionPhase.WRITING: limits.taking_seconds,
            ConnectionPhase.IDLE: limits.idle_seconds,
            ConnectionPhase.FEEDING: limits.feed_seconds,
            ConnectionPhase.CLOSING: LINGER_SECONDS,
        }
        self.tickets: dict[PeerConnection, Ticket] = {}
        self.held = self.unsent = 0

    def __len__(self) -> int:
        return sum(map(len, self.phases.values()))

    def __contains__(self, connection: PeerConnection) -> bool:
        return connection in self.phases[connection.phase]

    def has_room(self) -> bool:
        """Whether one more may come, if need be in the place of another."""
        return len(self) < self._cap or self.evict()

    def evict(self) -> bool:
        """Make room for one; whether there was somebody to go.

        Those who wait for us go before those we wait for. But each kind of the slow keeps a quarter of the places: else
        who fills the others with idle connections would have every new one end with the next.
        """
        share = self._cap // 4
        kinds = [
            (ConnectionPhase.CLOSING, 0),
            *((phase, share) for phase in _SLOW),
            (ConnectionPhase.IDLE, 0),
            *((phase, 0) for phase in _SLOW),
        ]
        for phase, kept in kinds:
            if len(self.phases[phase]) > kept:
                slowest = next((each for each in self.phases[phase] if not each.own), None)
                if slowest is not None:
                    self.drop(slowest, "evicted")
                    return True
        return False

    def admit(self, sock: socket.socket, client: tuple[str, str], *, own: bool = False) -> None:
        """A new one."""
        connection = PeerConnection(sock, client, self._limits.head_bytes, own=own)
        self.phases[ConnectionPhase.FRESH][connection] = time.monotonic() + self._seconds[ConnectionPhase.FRESH]
        self.watch(connection, selectors.EVENT_READ)

    def move(self, connection: PeerConnection, phase: ConnectionPhase) -> None:
        """From now on it does something else."""
        del self.phases[connection.phase][connection]
        connection.phase = phase
        self.phases[phase][connection] = time.monotonic() + self._seconds[phase]

    def watch(self, connection: PeerConnection, events: int) -> None:
        """From now on the poller tells of these events; 0 for none."""
        if events == connection.events:
            return
        if not events:
            self.poller.unregister(connection.sock)
        elif not connection.events:
            self.poller.register(connection.sock, events, connection)
        else:
            self.poller.modify(connection.sock, events, connection)
        connection.events = events

    def forget(self, connection: PeerConnection) -> None:
        """Its present request is over."""
        self.held -= connection.forget()

    def _leave(self, connection: PeerConnection) -> bool:
        """Forget a connection; False where that has been done."""
        if self.phases[connection.phase].pop(connection, None) is None:
            return False
        if connection.phase is ConnectionPhase.WRITING:
            self.unsent -= len(connection.unsent)
        self.watch(connection, 0)
        connection.unfeed()
        self.tickets.pop(connection, None)
        self.forget(connection)
        return True

    def drop(self, connection: PeerConnection, reason: str = "") -> None:
        """End a connection at once, whatever it does."""
        if self._leave(connection):
            if reason:
                ENDED.labels(self.server, reason).inc()
                _log.debug("Closed a connection", server=self.server, reason=reason, client=connection.client[0])
            connection.abort()

    def close(self, connection: PeerConnection) -> None:
        """End a connection that was answered."""
        if self._leave(connection):
            connection.close()

    def fit(self) -> None:
        """While too much is held or unsent, end those with the longest bodies that are still being read, and with the longest answers."""
        while self.held > self._limits.held_bytes and self._drop_longest():
            pass
        writers = self.phases[ConnectionPhase.WRITING]
        while self.unsent > self._limits.unsent_bytes and len(writers) > 1:
            self.drop(max(writers, key=lambda peer: len(peer.unsent)), "memory")

    def _drop_longest(self) -> bool:
        """End the connection with the longest body that is still being read; whether there was one."""
        readers = (*self.phases[ConnectionPhase.FRESH], *self.phases[ConnectionPhase.READING])
        longest = max(readers, key=lambda reader: reader.held, default=None)
        if longest is None or not longest.held:
            return False
        self.drop(longest, "memory")
        return True
