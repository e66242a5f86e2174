"""An HTTP/1.1 server that slow and silent clients cannot stop.

One thread waits for all connections: it shakes hands, reads requests to their end and writes what a peer was slow to
take. A request gets one of a few threads only when all of it has arrived, and no thread ever waits for a peer. Where a program knows answers that
take no time (`Prompt`), the one thread gives them itself: to hand a request on and its answer back costs more than they do.

- Every phase of a connection has an end (`Limits`), and a peer that keeps doing something does not move it.
- There is one cap on all connections, none for a source, because API servers, kubelets and loopback share theirs. Whoever
  comes beyond the cap takes the place of the slowest: first those that never finished a request, oldest first.
- The same happens when the process has no file descriptors left.
- A handler that hangs costs its thread. Its client is told 503 in time, and when all threads hang, everybody at once.

h11 does the protocol; what is here is sockets and time. Why not another server: docs/decisions/0015-one-http-server.md.
"""

import contextlib
import errno
import os
import queue
import resource
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Final

import h11

from provisioner.support import logs, metrics
from provisioner.support.http.connection import (
    RECEIVE_BYTES,
    ConnectionPhase,
    ConnectionStep,
    PeerConnection,
    RequestRefusedError,
    Ticket,
    abort,
)
from provisioner.support.http.values import Handler, HttpRequest, Limits, Prompt, Response

RESERVED_DESCRIPTORS: Final = 128
"""Descriptors that a server leaves to the rest of its process: watches, files, other servers."""
MIN_CONNECTIONS: Final = 16
LINGER_SECONDS: Final = 2.0
"""How long a closing connection is still read from, and how long idle ones stay open in a server that stops."""
PROMPT_SECONDS: Final = 0.02
"""CPU time that no prompt answer should take, because everybody else waits for it; after one that did, threads answer for a while."""
PROMPT_PAUSE_SECONDS: Final = 1.0
_READS_AT_ONCE: Final = 16
_ACCEPTS_AT_ONCE: Final = 64
_PAUSE_SECONDS: Final = 0.2
_NEVER: Final = float("inf")
_OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_LISTENING: Final = frozenset(
    {ConnectionPhase.FRESH, ConnectionPhase.READING, ConnectionPhase.IDLE, ConnectionPhase.CLOSING}
)
_SLOW: Final = (ConnectionPhase.FRESH, ConnectionPhase.READING, ConnectionPhase.WRITING)

CONNECTIONS = metrics.gauge("dovetail_http_connections", "Open connections.", ("server",))
ENDED = metrics.counter(
    "dovetail_http_connections_ended_total",
    "Connections that the server closed early, by reason: evicted (the cap was reached), handshake-failed, first-request-late,"
    " request-late, answer-not-taken, memory (request bodies, or answers that were not taken, exceeded the limit), bad-request.",
    ("server", "reason"),
)
REFUSED = metrics.counter(
    "dovetail_http_requests_refused_total",
    "Requests answered with status 503, by reason: busy (too many requests were waiting for a thread), late (no answer in time).",
    ("server", "reason"),
)

_log = logs.get_logger(__name__)


#: Connections that wait to be accepted.
BACKLOG: Final = 1024


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket.

    Args:
        host: an address; "" is every address of this machine, of both families where it has both.
        port: 0 lets the system choose.

    Raises:
        OSError: the sentence names the address.
    """
    try:
        if not host and socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        where = f"[{host}]" if ":" in host else host or "*"
        raise OSError(error.errno, f"cannot listen on {where}:{port}: {error.strerror}") from error


class HttpServer:
    """See the module.

    Args:
        name: of this server in metrics, logs and threads.
        listeners: listening sockets; they are closed with the server.
        handle: answers requests, in several threads at once.
        prompt: asked first, if given; never about requests that others follow on their connection already.
        context: gives the TLS context for a new connection; None is plain HTTP.
        threads: how many requests are answered at once.
    """

    def __init__(
        self,
        name: str,
        listeners: Iterable[socket.socket],
        handle: Handler,
        *,
        limits: Limits | None = None,
        context: Callable[[], ssl.SSLContext] | None = None,
        threads: int = 2,
        prompt: Prompt | None = None,
    ) -> None:
        self.name = name
        self.limits = limits or Limits()
        self._listeners = list(listeners)
        self._handle = handle
        self._prompt = prompt
        self._prompt_at = 0.0
        self._context = context
        self._cap = min(self.limits.connections, max(MIN_CONNECTIONS, _descriptors() - RESERVED_DESCRIPTORS))
        self._poller = selectors.DefaultSelector()
        # Each phase lasts equally long for all, so the order in which they entered it is that of their ends.
        self._phases: dict[ConnectionPhase, dict[PeerConnection, float]] = {phase: {} for phase in ConnectionPhase}
        self._seconds = {
            ConnectionPhase.FRESH: self.limits.first_request_seconds,
            ConnectionPhase.READING: self.limits.request_seconds,
            ConnectionPhase.WORKING: self.limits.answer_seconds,
            ConnectionPhase.WRITING: self.limits.taking_seconds,
            ConnectionPhase.IDLE: self.limits.idle_seconds,
            ConnectionPhase.CLOSING: LINGER_SECONDS,
        }
        self._more: list[
            PeerConnection
        ] = []  # to be read without being told: TLS has taken bytes from the poller's sight
        self._held = 0
        self._unsent = 0  # of those that are written to
        self._tickets: dict[PeerConnection, Ticket] = {}
        self._work: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._done: deque[Ticket] = deque()
        self._late = 0  # threads that still work on what was given up
        self._guests: deque[socket.socket] = deque()
        self._accepting = False
        self._accept_at = 0.0
        self._leave_at = self._stop_at = _NEVER
        self._ran = self._ended = False
        self._wake_out, self._wake_in = socket.socketpair()  # no pipe: a late writer must not meet a reused descriptor
        self._wake_out.setblocking(False)
        self._wake_in.setblocking(False)
        self._woken = False
        self._spare = _spare()
        self._gauge = CONNECTIONS.labels(name)
        self._threads = [
            threading.Thread(target=self._answer_all, name=f"{name}-{number}", daemon=True) for number in range(threads)
        ]
        self._loop = threading.Thread(target=self.run, name=name, daemon=True)

    @property
    def port(self) -> int:
        """Where it listens; the first of several."""
        return int(self._listeners[0].getsockname()[1])

    @property
    def connections(self) -> int:
        """How many are open."""
        return sum(map(len, self._phases.values()))

    def start(self) -> None:
        """Serve in a thread of its own; `stop` ends it."""
        self._ran = True
        self._loop.start()

    def stop(self, grace: float = LINGER_SECONDS) -> None:
        """Take no more connections, finish what is under way, end. Waits for the thread that `start` made.

        Args:
            grace: seconds until everything is dropped. A signal handler may call this too.
        """
        now = time.monotonic()
        self._leave_at = min(self._leave_at, now + LINGER_SECONDS)
        self._stop_at = now + grace
        self._wake()
        if not self._ran:
            self._ran = True
            self._end()
        elif self._loop.ident is not None:
            self._loop.join(grace + 5.0)

    def run(self, beat: Callable[[], object] = lambda: None, every: float = 1.0) -> None:
        """Serve in this thread until `stop`.

        Args:
            beat: called again and again.
            every: seconds between two calls; up to as many more when there is nothing to do.
        """
        if self._ended:
            return
        self._ran = True
        for thread in self._threads:
            thread.start()
        self._poller.register(self._wake_out, selectors.EVENT_READ)
        beat_at = 0.0
        try:
            while self._stop_at == _NEVER or (self.connections and time.monotonic() < self._stop_at):
                if time.monotonic() >= beat_at:
                    beat()
                    beat_at = time.monotonic() + every
                self._turn(every)
        finally:
            self._end()

    def ask(self, target: str, timeout: float) -> tuple[int, str]:
        """Put a GET through the loop, a thread and the handler, as a client's; status and text of its answer.

        For liveness: it fails where no client would get an answer either, and needs no certificate.

        Raises:
            OSError: no answer in `timeout` seconds.
        """
        if self._ended:
            raise ConnectionError(f"the server {self.name} has ended")
        end = time.monotonic() + timeout
        here, there = socket.socketpair()
        with here:
            self._guests.append(there)
            self._wake()
            here.sendall(f"GET {target} HTTP/1.1\r\nHost: itself\r\nConnection: close\r\n\r\n".encode())
            answer = b""
            while len(answer) < RECEIVE_BYTES:
                here.settimeout(max(0.001, end - time.monotonic()))
                if not (more := here.recv(RECEIVE_BYTES)):
                    break
                answer += more
        head, _, text = answer.partition(b"\r\n\r\n")
        if not head[9:12].isdigit():
            raise ConnectionError(f"the server {self.name} closed the connection without a response")
        return int(head[9:12]), text.decode(errors="replace")

    # The loop

    def _turn(self, every: float) -> None:
        """Wait once, and do what has come."""
        stopping = self._stop_at != _NEVER
        if stopping:
            self._close_listeners()
        elif not self._accepting and time.monotonic() >= self._accept_at:
            self._accept_on()
        ready = self._poller.select(self._patience(every))
        if any(key.data is None for key, _ in ready):
            with contextlib.suppress(OSError):
                self._wake_out.recv(64)
        self._collect()
        again, self._more = self._more, []
        for connection in again:
            self._guarded(self._ready, connection)
        callers = []
        for key, _ in ready:
            if isinstance(key.data, PeerConnection):
                self._guarded(self._ready, key.data)
            elif key.data is not None:
                callers.append(key.data)
        for listener in callers:  # last: those who are here go first
            self._accept(listener)
        self._expire(time.monotonic(), stopping=stopping)
        self._gauge.set(self.connections)

    def _patience(self, every: float) -> float:
        """How long nothing has to be done."""
        if self._more or self._done:
            return 0.0
        ends = [next(iter(each.values())) for each in self._phases.values() if each]
        now = time.monotonic()
        return max(0.0, min([now + every, self._stop_at, *ends]) - now)

    def _guarded(self, act: Callable[[PeerConnection], None], connection: PeerConnection) -> None:
        """A connection that breaks us stays the only one."""
        try:
            act(connection)
        except OSError:
            self._drop(connection)  # the peer is gone
        except Exception:  # noqa: BLE001 - one request that fails stops no other
            _log.exception("Connection failed", server=self.name)
            self._drop(connection)

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            with contextlib.suppress(OSError):  # full: it wakes anyway
                self._wake_in.send(b"\0")

    def _collect(self) -> None:
        """What threads have answered, and the questions of this process itself."""
        self._woken = False  # before looking: who comes later wakes us again
        while self._guests:
            self._admit(PeerConnection(self._guests.popleft(), ("", ""), self.limits.head_bytes, own=True))
        while self._done:
            self._answered(self._done.popleft())

    # Coming

    def _accept_on(self) -> None:
        for listener in self._listeners:
            listener.setblocking(False)
            self._poller.register(listener, selectors.EVENT_READ, listener)
        self._accepting = True

    def _accept_off(self, until: float) -> None:
        for listener in self._listeners:
            self._poller.unregister(listener)
        self._accepting, self._accept_at = False, until

    def _close_listeners(self) -> None:
        if self._accepting:
            self._accept_off(_NEVER)
        for listener in self._listeners:
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTS_AT_ONCE):
            if not self._accepting:
                return
            try:
                sock, address = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_DESCRIPTORS:
                    self._find_descriptor(listener)
                elif error.errno != errno.ECONNABORTED:
                    _log.warning("Failed to accept a connection", server=self.name, error=str(error))
                    self._accept_off(time.monotonic() + _PAUSE_SECONDS)
                continue
            if self.connections >= self._cap and not self._evict():
                abort(sock)  # all of them are being answered
            else:
                self._admit(PeerConnection(sock, (str(address[0]), str(address[1])), self.limits.head_bytes))

    def _find_descriptor(self, listener: socket.socket) -> None:
        """The process may open no more: the slowest goes, or else whoever comes."""
        if self._evict():
            return
        if self._spare is not None:
            os.close(self._spare)
            with contextlib.suppress(OSError):
                abort(listener.accept()[0])
        self._spare = _spare()
        if self._spare is None:
            self._accept_off(time.monotonic() + _PAUSE_SECONDS)

    def _evict(self) -> bool:
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
            if len(self._phases[phase]) > kept:
                slowest = next((each for each in self._phases[phase] if not each.own), None)
                if slowest is not None:
                    self._drop(slowest, "evicted")
                    return True
        return False

    def _admit(self, connection: PeerConnection) -> None:
        self._phases[ConnectionPhase.FRESH][connection] = time.monotonic() + self._seconds[ConnectionPhase.FRESH]
        self._watch(connection, selectors.EVENT_READ)

    # Going on and ending

    def _move(self, connection: PeerConnection, phase: ConnectionPhase) -> None:
        del self._phases[connection.phase][connection]
        connection.phase = phase
        self._phases[phase][connection] = time.monotonic() + self._seconds[phase]

    def _watch(self, connection: PeerConnection, events: int) -> None:
        """From now on the poller tells of these events; 0 for none."""
        if events == connection.events:
            return
        if not events:
            self._poller.unregister(connection.sock)
        elif not connection.events:
            self._poller.register(connection.sock, events, connection)
        else:
            self._poller.modify(connection.sock, events, connection)
        connection.events = events

    def _leave(self, connection: PeerConnection) -> bool:
        """Forget a connection; False where that has been done."""
        if self._phases[connection.phase].pop(connection, None) is None:
            return False
        if connection.phase is ConnectionPhase.WRITING:
            self._unsent -= len(connection.unsent)
        self._watch(connection, 0)
        self._tickets.pop(connection, None)
        self._held -= connection.forget()
        return True

    def _drop(self, connection: PeerConnection, reason: str = "") -> None:
        """End a connection at once, whatever it does."""
        if self._leave(connection):
            if reason:
                ENDED.labels(self.name, reason).inc()
                _log.debug("Closed a connection", server=self.name, reason=reason, client=connection.client[0])
            connection.abort()

    def _close(self, connection: PeerConnection) -> None:
        """End a connection that was answered."""
        if self._leave(connection):
            connection.close()

    def _expire(self, now: float, *, stopping: bool) -> None:
        for phase, connections in self._phases.items():
            while connections:
                connection, end = next(iter(connections.items()))
                if stopping and phase in {ConnectionPhase.IDLE, ConnectionPhase.FRESH}:
                    end = min(end, self._leave_at)  # a little later: a request may be on its way
                if end > now:
                    break
                if phase is ConnectionPhase.WORKING:
                    self._guarded(self._give_up, connection)
                elif phase in {ConnectionPhase.CLOSING, ConnectionPhase.IDLE}:
                    self._close(connection)
                else:
                    self._drop(connection, phase.value)

    def _end(self) -> None:
        self._ended = True
        self._close_listeners()
        for connections in self._phases.values():
            for connection in list(connections):
                self._drop(connection)
        while self._guests:
            self._guests.popleft().close()
        for _ in self._threads:
            self._work.put(None)
        self._poller.close()
        self._wake_in.close()
        self._wake_out.close()
        if self._spare is not None:
            os.close(self._spare)
        self._gauge.set(0)

    # Reading

    def _ready(self, connection: PeerConnection) -> None:
        if connection not in self._phases[connection.phase]:
            return  # it made room for another in this very turn
        if connection.phase is ConnectionPhase.WORKING:
            self._watch(connection, 0)  # its next request, or its end: both can wait for this answer
        elif connection.phase is ConnectionPhase.WRITING:
            before = len(connection.unsent)
            connection.send(connection.unsent)
            self._unsent += len(connection.unsent) - before
            self._sent(connection)
        else:
            self._readable(connection)

    def _readable(self, connection: PeerConnection) -> None:
        if self._context is not None and not connection.own and not connection.shaken:
            self._shake(connection, self._context)
            if not connection.shaken:
                return
        for _ in range(_READS_AT_ONCE):
            if connection.phase not in _LISTENING:
                return
            data = connection.receive()
            if isinstance(data, int):
                self._watch(connection, data)
                return
            if connection.phase is ConnectionPhase.CLOSING:
                if not data:
                    self._drop(connection)
                    return
            else:
                connection.feed(data)
                self._advance(connection)
            if connection.phase is ConnectionPhase.IDLE or connection not in self._phases[connection.phase]:
                return  # answered, or gone
        if connection.has_unread:
            self._more.append(connection)

    def _shake(self, connection: PeerConnection, context: Callable[[], ssl.SSLContext]) -> None:
        try:
            if not connection.encrypted:  # not before its first byte: silence shall cost nothing
                self._watch(connection, 0)
                connection.wrap(context())
            if events := connection.shake():
                self._watch(connection, events)
        except (OSError, ValueError) as error:  # a port scanner, a client that trusts another CA, a peer that is gone
            _log.debug("TLS handshake failed", server=self.name, client=connection.client[0], error=str(error))
            self._drop(connection, "handshake-failed")

    def _advance(self, connection: PeerConnection) -> None:
        """Take in what the bytes amount to."""
        before = connection.held
        try:
            step = connection.step(self.limits.body_bytes)
        except RequestRefusedError as error:
            self._held += connection.held - before
            ENDED.labels(self.name, "bad-request").inc()
            _log.debug("Refused a request", server=self.name, client=connection.client[0], error=str(error))
            self._refuse(connection, error.status)
            return
        self._held += connection.held - before
        if step is ConnectionStep.GONE:
            self._close(connection)
        elif step is ConnectionStep.WHOLE:
            self._dispatch(connection)
        else:
            if connection.phase is ConnectionPhase.IDLE:
                self._move(connection, ConnectionPhase.READING)
            self._watch(connection, selectors.EVENT_READ)
        while self._held > self.limits.held_bytes and self._drop_longest():
            pass

    def _drop_longest(self) -> bool:
        """End the connection with the longest body that is still being read; whether there was one."""
        readers = (*self._phases[ConnectionPhase.FRESH], *self._phases[ConnectionPhase.READING])
        longest = max(readers, key=lambda reader: reader.held, default=None)
        if longest is None or not longest.held:
            return False
        self._drop(longest, "memory")
        return True

    # Answering

    def _dispatch(self, connection: PeerConnection) -> None:
        """A whole request is there: a thread gets it."""
        crowd = len(self._threads) + self.limits.waiting
        if self._late >= len(self._threads) or len(self._phases[ConnectionPhase.WORKING]) >= crowd:
            REFUSED.labels(self.name, "busy").inc()
            self._refuse(connection, HTTPStatus.SERVICE_UNAVAILABLE)
            return
        request = connection.request()
        if (response := self._prompted(connection, request)) is not None:
            connection.send(connection.encode(response, close=self._stop_at != _NEVER))
            self._held -= connection.forget()
            self._sent(connection)
            return
        ticket = Ticket(connection, request)
        self._watch(connection, selectors.EVENT_READ)
        self._move(connection, ConnectionPhase.WORKING)
        self._tickets[connection] = ticket
        self._work.put(ticket)

    def _prompted(self, connection: PeerConnection, request: HttpRequest) -> Response | None:
        """The answer that can be had in this thread; None where a thread has to be asked."""
        # Requests in a row would be answered one within the other, before anybody else's.
        if self._prompt is None or connection.is_followed or time.monotonic() < self._prompt_at:
            return None
        began = time.thread_time()  # a machine that is busy makes no answer a long one
        try:
            response = self._prompt(request)
        except Exception:  # noqa: BLE001 - a thread finds out what is wrong, and answers
            response = None
        if time.thread_time() - began > PROMPT_SECONDS:
            self._prompt_at = time.monotonic() + PROMPT_PAUSE_SECONDS
        return response

    def _answer_all(self) -> None:
        """A thread: one request after another. The connection is its own from the lock on until it is done."""
        while (ticket := self._work.get()) is not None:
            if ticket.start.acquire(blocking=False):
                self._answer(ticket)
                self._done.append(ticket)
                self._wake()
            del ticket  # nor its body while it waits for the next

    def _answer(self, ticket: Ticket) -> None:
        try:
            response = self._handle(ticket.request)
        except BaseException:  # noqa: BLE001 - SystemExit too: the thread has to go on
            _log.exception("Request failed", server=self.name, target=ticket.request.target)
            response = Response(HTTPStatus.INTERNAL_SERVER_ERROR, b"internal error\n")
        if not ticket.answer.acquire(blocking=False):
            return  # the client has been told that it takes too long
        ticket.sent = True
        try:
            ticket.connection.send(ticket.connection.encode(response, close=self._stop_at != _NEVER))
        except Exception as error:  # noqa: BLE001 - one request that fails stops no other
            ticket.failed = True
            if not isinstance(error, OSError):
                _log.exception("Failed to send a response", server=self.name, target=ticket.request.target)

    def _answered(self, ticket: Ticket) -> None:
        """A thread is done."""
        connection = ticket.connection
        if not ticket.sent:
            self._late -= 1
        elif self._tickets.pop(connection, None) is ticket:
            self._held -= connection.forget()
            if ticket.failed:
                self._drop(connection)
            else:
                self._guarded(self._sent, connection)

    def _give_up(self, connection: PeerConnection) -> None:
        """A request has had no answer in time."""
        ticket = self._tickets[connection]
        waits = ticket.start.acquire(blocking=False)
        if not waits and not ticket.answer.acquire(blocking=False):
            self._move(connection, ConnectionPhase.WORKING)  # it is being sent in this moment
            return
        self._late += not waits
        del self._tickets[connection]
        REFUSED.labels(self.name, "busy" if waits else "late").inc()
        _log.warning(
            "A request was not answered in time",
            server=self.name,
            target=ticket.request.target,
            why="the request was waiting for a thread" if waits else "the handler has not finished",
        )
        self._refuse(connection, HTTPStatus.SERVICE_UNAVAILABLE)

    def _refuse(self, connection: PeerConnection, status: HTTPStatus) -> None:
        """Answer without a thread, and end the connection."""
        if not connection.may_answer:
            self._drop(connection)
            return
        try:
            connection.send(connection.encode(Response(status, f"{status.phrase.lower()}\n".encode()), close=True))
        except (OSError, h11.LocalProtocolError):
            connection.unsent = b"?"
        if connection.unsent:
            self._drop(connection)  # it does not even take this
            return
        self._held -= connection.forget()
        connection.half_close()
        self._move(connection, ConnectionPhase.CLOSING)
        self._watch(connection, selectors.EVENT_READ)

    def _sent(self, connection: PeerConnection) -> None:
        """As much of an answer as the peer takes has gone."""
        if connection.unsent:
            if connection.phase is not ConnectionPhase.WRITING:
                self._move(connection, ConnectionPhase.WRITING)
                self._unsent += len(connection.unsent)
            self._watch(connection, selectors.EVENT_WRITE)
            while self._unsent > self.limits.unsent_bytes and len(self._phases[ConnectionPhase.WRITING]) > 1:
                self._drop(max(self._phases[ConnectionPhase.WRITING], key=lambda peer: len(peer.unsent)), "memory")
        elif not connection.next_request():
            self._close(connection)
        else:
            self._move(connection, ConnectionPhase.IDLE)
            self._watch(connection, selectors.EVENT_READ)
            if connection.has_more:
                self._advance(connection)
            if connection.has_unread and connection.phase in _LISTENING:
                self._more.append(connection)


def _descriptors() -> int:
    """How many descriptors this process may have."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _spare() -> int | None:
    """A descriptor to be given up when there is no other."""
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
