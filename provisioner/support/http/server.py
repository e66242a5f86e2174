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
import os
import queue
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
)
from provisioner.support.http.listening import ListeningSockets
from provisioner.support.http.peers import ENDED, LINGER_SECONDS, PeerTable
from provisioner.support.http.values import Handler, HttpRequest, Limits, Prompt, Response

PROMPT_SECONDS: Final = 0.02
"""CPU time that no prompt answer should take, because everybody else waits for it; after one that did, threads answer for a while."""
PROMPT_PAUSE_SECONDS: Final = 1.0
_READS_AT_ONCE: Final = 16
_NEVER: Final = float("inf")
_LISTENING: Final = frozenset(
    {ConnectionPhase.FRESH, ConnectionPhase.READING, ConnectionPhase.IDLE, ConnectionPhase.CLOSING}
)

CONNECTIONS = metrics.gauge("dovetail_http_connections", "Open connections.", ("server",))
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
        why = os.strerror(error.errno) if error.errno else error.strerror  # without the words that `socket` adds
        raise OSError(error.errno, f"cannot listen on {where}:{port}: {why}") from error


class HttpServer:
    """See the module.

    Args:
        name: of this server in metrics, logs and threads.
        listeners: listening sockets; they are closed with the server.
        handle: answers requests, in several threads at once.
        prompt: asked first, if given; never about requests that others follow on their connection already.
        context: gives the TLS context for a new connection; None is plain HTTP.
        threads: how many requests are answered at once.

    Attributes:
        peers: whom it is connected with; of its own thread, others may only look.
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
        self._handle = handle
        self._prompt = prompt
        self._prompt_at = 0.0
        self._context = context
        self._poller = selectors.DefaultSelector()
        self.peers = PeerTable(name, self.limits, self._poller)
        self._listening = ListeningSockets(listeners, self.peers)
        self._more: list[
            PeerConnection
        ] = []  # to be read without being told: TLS has taken bytes from the poller's sight
        self._work: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._done: deque[Ticket] = deque()
        self._late = 0  # threads that still work on what was given up
        self._guests: deque[socket.socket] = deque()
        self._leave_at = self._stop_at = _NEVER
        self._ran = self._ended = False
        self._wake_out, self._wake_in = socket.socketpair()  # no pipe: a late writer must not meet a reused descriptor
        self._wake_out.setblocking(False)
        self._wake_in.setblocking(False)
        self._woken = False
        self._gauge = CONNECTIONS.labels(name)
        self._threads = [
            threading.Thread(target=self._answer_all, name=f"{name}-{number}", daemon=True) for number in range(threads)
        ]
        self._loop = threading.Thread(target=self.run, name=name, daemon=True)

    @property
    def port(self) -> int:
        """Where it listens; the first of several."""
        return int(self._listening.sockets[0].getsockname()[1])

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
            while self._stop_at == _NEVER or (self.peers and time.monotonic() < self._stop_at):
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
            self._listening.close()
        else:
            self._listening.accept_on()
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
            self._listening.accept(listener)
        self._expire(time.monotonic(), stopping=stopping)
        self._gauge.set(len(self.peers))

    def _patience(self, every: float) -> float:
        """How long nothing has to be done."""
        if self._more or self._done:
            return 0.0
        ends = [next(iter(each.values())) for each in self.peers.phases.values() if each]
        now = time.monotonic()
        return max(0.0, min([now + every, self._stop_at, *ends]) - now)

    def _guarded(self, act: Callable[[PeerConnection], None], connection: PeerConnection) -> None:
        """A connection that breaks us stays the only one."""
        try:
            act(connection)
        except OSError:
            self.peers.drop(connection)  # the peer is gone
        except Exception:  # noqa: BLE001 - one request that fails stops no other
            _log.exception("Connection failed", server=self.name)
            self.peers.drop(connection)

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            with contextlib.suppress(OSError):  # full: it wakes anyway
                self._wake_in.send(b"\0")

    def _collect(self) -> None:
        """What threads have answered, and the questions of this process itself."""
        self._woken = False  # before looking: who comes later wakes us again
        while self._guests:
            self.peers.admit(self._guests.popleft(), ("", ""), own=True)
        while self._done:
            self._answered(self._done.popleft())

    # Ending

    def _expire(self, now: float, *, stopping: bool) -> None:
        for phase, connections in self.peers.phases.items():
            while connections:
                connection, end = next(iter(connections.items()))
                if stopping and phase in {ConnectionPhase.IDLE, ConnectionPhase.FRESH}:
                    end = min(end, self._leave_at)  # a little later: a request may be on its way
                if end > now:
                    break
                if phase is ConnectionPhase.WORKING:
                    self._guarded(self._give_up, connection)
                elif phase is ConnectionPhase.FEEDING and not stopping:
                    self._guarded(self._feed, connection)
                elif phase in {ConnectionPhase.CLOSING, ConnectionPhase.IDLE, ConnectionPhase.FEEDING}:
                    self.peers.close(connection)
                else:
                    self.peers.drop(connection, phase.value)

    def _end(self) -> None:
        self._ended = True
        self._listening.close()
        for connections in self.peers.phases.values():
            for connection in list(connections):
                self.peers.drop(connection)
        while self._guests:
            self._guests.popleft().close()
        for _ in self._threads:
            self._work.put(None)
        self._poller.close()
        self._wake_in.close()
        self._wake_out.close()
        self._gauge.set(0)

    # Reading

    def _ready(self, connection: PeerConnection) -> None:
        if connection not in self.peers:
            return  # it made room for another in this very turn
        if connection.phase is ConnectionPhase.WORKING:
            self.peers.watch(connection, 0)  # its next request, or its end: both can wait for this answer
        elif connection.phase is ConnectionPhase.WRITING:
            before = len(connection.unsent)
            connection.send(connection.unsent)
            self.peers.unsent += len(connection.unsent) - before
            self._sent(connection)
        elif connection.phase is ConnectionPhase.FEEDING:
            if not isinstance(connection.receive(), int):
                self.peers.close(connection)  # it has ended, or asks for more: only a feed's last answer is its end
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
                self.peers.watch(connection, data)
                return
            if connection.phase is ConnectionPhase.CLOSING:
                if not data:
                    self.peers.drop(connection)
                    return
            else:
                connection.feed(data)
                self._advance(connection)
            if connection.phase is ConnectionPhase.IDLE or connection not in self.peers:
                return  # answered, or gone
        if connection.has_unread:
            self._more.append(connection)

    def _shake(self, connection: PeerConnection, context: Callable[[], ssl.SSLContext]) -> None:
        try:
            if not connection.encrypted:  # not before its first byte: silence shall cost nothing
                self.peers.watch(connection, 0)
                connection.wrap(context())
            if events := connection.shake():
                self.peers.watch(connection, events)
        except (OSError, ValueError) as error:  # a port scanner, a client that trusts another CA, a peer that is gone
            _log.debug("TLS handshake failed", server=self.name, client=connection.client[0], error=str(error))
            self.peers.drop(connection, "handshake-failed")

    def _advance(self, connection: PeerConnection) -> None:
        """Take in what the bytes amount to."""
        before = connection.held
        try:
            step = connection.step(self.limits.body_bytes)
        except RequestRefusedError as error:
            self.peers.held += connection.held - before
            ENDED.labels(self.name, "bad-request").inc()
            _log.debug("Refused a request", server=self.name, client=connection.client[0], error=str(error))
            self._refuse(connection, error.status)
            return
        self.peers.held += connection.held - before
        if step is ConnectionStep.GONE:
            self.peers.close(connection)
        elif step is ConnectionStep.WHOLE:
            self._dispatch(connection)
        else:
            if connection.phase is ConnectionPhase.IDLE:
                self.peers.move(connection, ConnectionPhase.READING)
            self.peers.watch(connection, selectors.EVENT_READ)
        self.peers.fit()

    # Answering

    def _dispatch(self, connection: PeerConnection) -> None:
        """A whole request is there: a thread gets it."""
        crowd = len(self._threads) + self.limits.waiting
        if self._late >= len(self._threads) or len(self.peers.phases[ConnectionPhase.WORKING]) >= crowd:
            REFUSED.labels(self.name, "busy").inc()
            self._refuse(connection, HTTPStatus.SERVICE_UNAVAILABLE)
            return
        request = connection.request()
        if (response := self._prompted(connection, request)) is not None:
            connection.send(connection.encode(response, close=self._stop_at != _NEVER))
            self.peers.forget(connection)
            self._sent(connection)
            return
        ticket = Ticket(connection, request)
        self.peers.watch(connection, selectors.EVENT_READ)
        self.peers.move(connection, ConnectionPhase.WORKING)
        self.peers.tickets[connection] = ticket
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
            if response.feed is not None:
                response.feed.close()
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
        elif self.peers.tickets.pop(connection, None) is ticket:
            self.peers.forget(connection)
            if ticket.failed:
                self.peers.drop(connection)
            else:
                self._guarded(self._sent, connection)

    def _give_up(self, connection: PeerConnection) -> None:
        """A request has had no answer in time."""
        ticket = self.peers.tickets[connection]
        waits = ticket.start.acquire(blocking=False)
        if not waits and not ticket.answer.acquire(blocking=False):
            self.peers.move(connection, ConnectionPhase.WORKING)  # it is being sent in this moment
            return
        self._late += not waits
        del self.peers.tickets[connection]
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
            self.peers.drop(connection)
            return
        try:
            connection.send(connection.encode(Response(status, f"{status.phrase.lower()}\n".encode()), close=True))
        except (OSError, h11.LocalProtocolError):
            connection.unsent = b"?"
        if connection.unsent:
            self.peers.drop(connection)  # it does not even take this
            return
        self.peers.forget(connection)
        connection.half_close()
        self.peers.move(connection, ConnectionPhase.CLOSING)
        self.peers.watch(connection, selectors.EVENT_READ)

    def _feed(self, connection: PeerConnection) -> None:
        """Ask for the next piece of an answer that goes on."""
        if data := connection.fed():
            connection.send(data)
        self._sent(connection)

    def _sent(self, connection: PeerConnection) -> None:
        """As much of an answer as the peer takes has gone."""
        if connection.unsent:
            if connection.phase is not ConnectionPhase.WRITING:
                self.peers.move(connection, ConnectionPhase.WRITING)
                self.peers.unsent += len(connection.unsent)
            self.peers.watch(connection, selectors.EVENT_WRITE)
            self.peers.fit()
        elif connection.pieces is not None:
            self.peers.move(connection, ConnectionPhase.FEEDING)
            self.peers.watch(connection, selectors.EVENT_READ)
        elif not connection.next_request():
            self.peers.close(connection)
        else:
            self.peers.move(connection, ConnectionPhase.IDLE)
            self.peers.watch(connection, selectors.EVENT_READ)
            if connection.has_more:
                self._advance(connection)
            if connection.has_unread and connection.phase in _LISTENING:
                self._more.append(connection)
