"""One peer: a socket, perhaps TLS on it, and what h11 makes of its bytes. Never blocks; knows no clock and no poller.

A client that asks again and again sends the same head each time, but for the length of its body: that is most of what a request costs
h11. So a head that h11 has read on this connection is known (`_Known`), and one that differs from it in the digits of its length alone means
the same. Whatever else comes is h11's to judge, but for bodies in chunks: each chunk, of one byte perhaps, would be an event of h11's, and none of
our clients sends them. So what is read at a time amounts to at most three events: a head, all that is there of its body, and its end.
"""

import contextlib
import functools
import re
import selectors
import socket
import ssl
import struct
import threading
import time
from collections.abc import Mapping
from email.utils import formatdate
from enum import Enum
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import h11

from provisioner.support.http.values import Feed, HttpRequest, Response

RECEIVE_BYTES: Final = 16 * 1024
"""Read at a time: a TLS record, and the most that a peer may have sent ahead of its turn."""
BODY_BYTES: Final = 256 * 1024
"""Read at a time of a body whose length is known."""
KNOWN_HEADS: Final = 4
"""Heads that are remembered of one connection: the verbs that its client asks for."""
KNOWN_HEAD_BYTES: Final = 1024
"""The longest head that is remembered."""
_LONGEST_LENGTH: Final = 9
_LENGTH: Final = re.compile(rb"\r\ncontent-length: ([0-9]{1,9})(?=\r\n)", re.IGNORECASE)
_FRAMING: Final = frozenset({b"expect", b"connection", b"upgrade"})
"""Headers that say more of where a request or its connection ends than a length."""
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
_NO_BODY: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
_PHRASES: Final = {status.value: status.phrase.encode() for status in HTTPStatus}


class ConnectionPhase(Enum):
    """What a connection is doing; the value is why it ends when that takes too long."""

    FRESH = "first-request-late"  # no request of it was ever complete
    READING = "request-late"
    WORKING = "late"  # in a thread, or waiting for one
    WRITING = "answer-not-taken"
    IDLE = "idle"
    FEEDING = "fed"  # between two pieces of an answer that goes on
    CLOSING = "closed"  # answered for the last time; only read to be thrown away


class ConnectionStep(Enum):
    """What the bytes of a peer amount to."""

    MORE = "more are needed"
    WHOLE = "a request is complete"
    GONE = "the peer has ended the connection"


class RequestRefusedError(Exception):
    """What the peer sent gets no handler; `status` is the answer."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(status, why)
        self.status, self.why = status, why

    def __str__(self) -> str:
        return self.why


class _Known(NamedTuple):
    """A head that h11 has read: a POST with a length, and nothing else that says where it ends.

    Attributes:
        before: its bytes up to the length,
        after: and behind it, the empty line included.
        event: what h11 made of it.
    """

    before: bytes
    after: bytes
    event: h11.Request

    def length(self, data: bytes) -> tuple[int, int] | None:
        """Of the body behind this head, and where that begins; None where it is another head, or not all of it."""
        if not data.startswith(self.before):
            return None
        begin = len(self.before)
        end = data.find(b"\r", begin, begin + _LONGEST_LENGTH + 1)
        digits = data[begin:end] if end > begin else b""
        if not digits.isdigit() or (digits[:1] == b"0" and len(digits) > 1) or not data.startswith(self.after, end):
            return None
        return int(digits), end + len(self.after)


class _Short(NamedTuple):
    """A request that came with a known head; h11 has not seen it."""

    known: _Known
    length: int


class PeerConnection:
    """See the module.

    Args:
        sock: connected; made non-blocking here.
        head_bytes: the most that request line and headers may have.
        own: it comes from this process itself: plain, and never in anybody's way.

    Attributes:
        phase, events: kept by the server: what it does, and what the poller is asked for.
        held: bytes of the present body, until it is answered.
        unsent: of an answer, because the peer did not take them at once.
        pieces: what the answer goes on with; None for one that is whole.
    """

    __slots__ = (
        "_ahead",
        "_answered",
        "_begins",
        "_body",
        "_broken",
        "_ending",
        "_first",
        "_head",
        "_http",
        "_known",
        "_missing",
        "_names",
        "_server",
        "_shaken",
        "_short",
        "client",
        "events",
        "held",
        "own",
        "phase",
        "pieces",
        "sock",
        "unsent",
    )

    def __init__(self, sock: socket.socket, client: tuple[str, str], head_bytes: int, *, own: bool = False) -> None:
        sock.setblocking(False)
        if not own:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.client = client
        self.own = own
        self.phase = ConnectionPhase.FRESH
        self.events = 0
        self.held = 0
        self.unsent = b""
        self.pieces: Feed | None = None
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=head_bytes)
        self._shaken = False
        self._names: frozenset[str] = frozenset()
        self._server: tuple[str, str] | None = None  # where the peer connected to
        self._head: h11.Request | None = None
        self._body: list[bytes] = []
        self._known: list[_Known] = []
        self._begins = True  # nothing of the next request has come
        self._first = b""  # what came of it first
        self._short: _Short | None = None
        self._missing = 0  # bytes of its body
        self._ahead = b""  # what came behind it
        self._broken = False  # the peer ended in the middle of it
        self._answered = False
        self._ending = False  # it was answered for the last time

    # TLS

    @property
    def shaken(self) -> bool:
        """Whether the handshake is done."""
        return self._shaken

    @property
    def encrypted(self) -> bool:
        return isinstance(self.sock, ssl.SSLSocket)

    @property
    def has_unread(self) -> bool:
        """Whether TLS has taken bytes from the socket that it has not given: no poller will tell of them."""
        return isinstance(self.sock, ssl.SSLSocket) and self.sock.pending() > 0

    def wrap(self, context: ssl.SSLContext) -> None:
        """Put TLS on the socket, before the first `shake`. The poller must not watch it: the object changes.

        Raises:
            OSError: the peer is gone already.
            ValueError: it sent something before it was known to be gone.
        """
        self.sock = context.wrap_socket(self.sock, server_side=True, do_handshake_on_connect=False)

    def shake(self) -> int:
        """One step of the handshake; the events to wait for, 0 when it is done.

        Raises:
            OSError: it failed; ssl.SSLError is one.
        """
        try:
            self.sock.do_handshake()  # type: ignore[attr-defined]  # wrapped
        except ssl.SSLWantReadError:
            return selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            return selectors.EVENT_WRITE
        self._shaken = True
        self._names = _names(self.sock.getpeercert())  # type: ignore[attr-defined]
        return 0

    # Reading

    def receive(self) -> bytes | int:
        """Up to `RECEIVE_BYTES`, or `BODY_BYTES` of a body, b"" at the end; or the events to wait for.

        Raises:
            OSError: the connection broke.
        """
        try:
            return self.sock.recv(max(RECEIVE_BYTES, min(self._missing, BODY_BYTES)))
        except (BlockingIOError, ssl.SSLWantReadError):
            return selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            return selectors.EVENT_WRITE

    def feed(self, data: bytes) -> None:
        """Hand bytes to the protocol; `step` tells what they are."""
        if self._short is not None:
            self._broken = not data and self._missing > 0
            self._take(data)
            return
        if self._begins:
            self._begins = False
            for known in self._known:
                found = known.length(data)
                if found is not None:
                    length, begin = found
                    self._short, self._missing, self._head = _Short(known, length), length, known.event
                    self._take(data[begin:])
                    return
            self._first = data[:KNOWN_HEAD_BYTES]
        self._http.receive_data(data)

    def _take(self, data: bytes) -> None:
        """Bytes behind a known head."""
        part = data[: self._missing]
        if part:
            self._body.append(part)
            self._missing -= len(part)
        self._ahead += data[len(part) :]

    def step(self, most: int) -> ConnectionStep:
        """What has come so far, without reading.

        Args:
            most: bytes that a body may have.

        Raises:
            RequestRefusedError: it is no request, or too large.
            OSError: the connection broke (where the peer wants to be told to go on).
        """
        if self._short is not None:
            self.held = self._short.length - self._missing
            _check_length(self._short.length, most)
            if self._broken:
                raise RequestRefusedError(
                    HTTPStatus.BAD_REQUEST, "the peer ended the connection in the middle of a body"
                )
            return ConnectionStep.MORE if self._missing else ConnectionStep.WHOLE
        try:
            while True:
                event = self._http.next_event()
                if isinstance(event, h11.Data):
                    self._body.append(bytes(event.data))
                    self.held += len(event.data)
                    _check_length(self.held, most)
                elif isinstance(event, h11.Request):
                    self._head = event
                    if any(name == b"transfer-encoding" for name, _ in event.headers):
                        raise RequestRefusedError(
                            HTTPStatus.LENGTH_REQUIRED,
                            "bodies with Transfer-Encoding are not supported; send Content-Length",
                        )
                    _check_length(_announced(event), most)
                    self._remember(event)
                elif isinstance(event, h11.EndOfMessage):
                    return ConnectionStep.WHOLE
                elif event is h11.NEED_DATA:
                    if self._http.they_are_waiting_for_100_continue:
                        go_on = h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[])
                        self.sock.send(self._http.send(go_on) or b"")
                    return ConnectionStep.MORE
                else:
                    return ConnectionStep.GONE
        except h11.RemoteProtocolError as error:
            raise RequestRefusedError(HTTPStatus(error.error_status_hint), str(error)) from error

    def _remember(self, event: h11.Request) -> None:
        """The head that h11 has just read is known from now on, if it is one of those that may be."""
        first, self._first = self._first, b""
        end = first.find(b"\r\n\r\n") + 4
        names = {name for name, _ in event.headers}
        if end < 4 or event.method != b"POST" or event.http_version != b"1.1" or names & _FRAMING:
            return
        head = first[:end]
        lengths = list(_LENGTH.finditer(head))
        # h11 takes equal lengths for one, in whatever spelling; where the first differs later, they do not agree any more
        if head.lower().count(b"content-length") != 1:
            return
        bare = head.count(b"\n") != head.count(b"\r\n")  # h11 takes these for ends of lines too, perhaps of the head
        if bare or not head.startswith(b"POST ") or len(lengths) != 1 or len(self._known) >= KNOWN_HEADS:
            return
        begin, behind = lengths[0].span(1)
        if [value for name, value in event.headers if name == b"content-length"] == [head[begin:behind]]:
            self._known.append(_Known(head[:begin], head[behind:], event))

    def request(self) -> HttpRequest:
        """The request that `step` said is complete. Its body is given away.

        Raises:
            OSError: the connection broke.
            LookupError: there is none.
        """
        head = self._head
        if head is None:
            raise LookupError("no request is complete")
        if self._server is None:
            address = ("", "") if self.own else self.sock.getsockname()
            self._server = (str(address[0]), str(address[1]))
        body, self._body = b"".join(self._body), []
        headers = list(head.headers)
        if self._short is not None:
            length = str(self._short.length).encode()
            headers = [(name, length if name == b"content-length" else value) for name, value in headers]
        return HttpRequest(
            head.method.decode("ascii"),
            head.target.decode("ascii"),
            headers,
            body,
            head.http_version.decode("ascii"),
            "https" if self.encrypted else "http",
            self.client,
            self._server,
            self._names,
        )

    def forget(self) -> int:
        """The present request is over; how many bytes were held for it."""
        held, self.held, self._head, self._body = self.held, 0, None, []
        return held

    # Answering

    @property
    def may_answer(self) -> bool:
        """Whether no part of an answer has been made yet."""
        return not self._answered and self._http.our_state in {h11.IDLE, h11.SEND_RESPONSE}

    def encode(self, response: Response, *, close: bool) -> bytes:
        """The answer on the wire, in one piece: two would be two segments, and the second might wait for an ACK.

        Raises:
            LocalProtocolError: h11's; a header is not one.
        """
        if self._short is not None:
            whole = response.feed is None and response.status not in _NO_BODY
            if whole and not response.headers and _is_plain(response.content_type):
                self._answered, self._ending = True, close
                now = int(time.monotonic())
                start = _start(now, response.status, response.content_type)
                end = b"\r\nconnection: close\r\n\r\n" if close else b"\r\n\r\n"
                return b"%b%d%b%b" % (start, len(response.body), end, response.body)
            self._retell(self._short)
        head = self._head
        headers = [("date", _date(int(time.monotonic()))), *response.headers]
        if response.content_type:
            headers.append(("content-type", response.content_type))
        is_head = head is not None and head.method == b"HEAD"
        bodiless = response.status in _NO_BODY
        self.pieces = response.feed
        close = close or self.pieces is not None
        if not bodiless and self.pieces is None and (response.body or not is_head):
            headers.append(("content-length", str(len(response.body))))
        if close:
            headers.append(("connection", "close"))
        reason = _PHRASES.get(response.status, b"")
        parts = [self._http.send(h11.Response(status_code=response.status, headers=headers, reason=reason))]
        if response.body and not bodiless and not is_head:
            parts.append(self._http.send(h11.Data(data=response.body)))
        if self.pieces is None:
            parts.append(self._http.send(h11.EndOfMessage()))
        return b"".join(part for part in parts if part)

    def fed(self) -> bytes | None:
        """What the feed has now, on the wire; None where it has nothing."""
        piece = self.pieces.take() if self.pieces is not None else None
        if piece is None:
            self.unfeed()
            return self._http.send(h11.EndOfMessage())
        return self._http.send(h11.Data(data=piece)) if piece else None

    def unfeed(self) -> None:
        """Nothing follows any more."""
        if self.pieces is not None:
            self.pieces.close()
            self.pieces = None

    def _retell(self, short: _Short) -> None:
        """Tell h11 of the request after all, because its answer is none of the usual ones."""
        known, self._short = short.known, None
        self._http.receive_data(b"%b%d%b" % (known.before, short.length, known.after))
        left = short.length
        while not isinstance(event := self._http.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                piece = min(left, RECEIVE_BYTES)
                self._http.receive_data(bytes(piece))  # what is in it is all the same to h11
                left -= piece
        if self._ahead:
            ahead, self._ahead = self._ahead, b""
            self._http.receive_data(ahead)

    def send(self, data: bytes) -> None:
        """Send what the peer takes now; the rest is `unsent`.

        Raises:
            OSError: the connection broke.
        """
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self.sock.send(rest) :]
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                break
        self.unsent = bytes(rest)

    def next_request(self) -> bool:
        """Begin anew after an answer that was sent; False where the connection has to end."""
        if self._short is not None:
            if self._ending:
                return False
            ahead, self._ahead = self._ahead, b""
            self._short, self._answered, self._begins = None, False, True
            if ahead:
                self.feed(ahead)
            return True
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        self._begins = self._http.trailing_data == (b"", False)
        return True

    @property
    def has_more(self) -> bool:
        """Whether bytes of the next request came with the last one; asked after `next_request`."""
        return self._short is not None or bool(self._http.trailing_data[0])

    @property
    def is_known(self) -> bool:
        """Whether the present request came with a head that h11 had read before."""
        return self._short is not None

    @property
    def is_followed(self) -> bool:
        """The same, asked before the answer."""
        return bool(self._ahead) or bool(self._http.trailing_data[0])

    # Ending

    def close(self) -> None:
        """End it; with TLS the peer is told, and its own farewell is not waited for."""
        if self.encrypted and self._shaken:
            with contextlib.suppress(OSError, ValueError):
                self.sock.unwrap()  # type: ignore[attr-defined]
        self.sock.close()

    def half_close(self) -> None:
        """Send no more; the peer may still be sending, and a reset would take our last answer from it."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def abort(self) -> None:
        """End it without a word: the kernel shall not go on with it for us either."""
        abort(self.sock)


def abort(sock: socket.socket) -> None:
    """Close a socket, and let the kernel forget what it has not sent."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    sock.close()


class Ticket:
    """A request on its way through a thread. Whoever gets one of its locks first does what it stands for."""

    __slots__ = ("answer", "connection", "failed", "request", "sent", "start")

    def __init__(self, connection: PeerConnection, request: HttpRequest) -> None:
        self.connection = connection
        self.request = request
        self.start = threading.Lock()
        self.answer = threading.Lock()
        self.sent = False
        self.failed = False


def _names(certificate: Mapping[str, Any] | None) -> frozenset[str]:
    """What a verified certificate is for, as `SSLSocket.getpeercert` tells it."""
    if not certificate:
        return frozenset()
    names = [name for kind, name in certificate.get("subjectAltName", ()) if kind == "DNS"]
    subject = (pair for part in certificate.get("subject", ()) for pair in part)
    return frozenset(names or [value for key, value in subject if key == "commonName"])


def _announced(request: h11.Request) -> int:
    """The length that a request announces; 0 for none."""
    return next((int(value) for name, value in request.headers if name == b"content-length"), 0)


def _check_length(length: int, most: int) -> None:
    if length > most:
        raise RequestRefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is longer than {most} bytes")


def _is_plain(content_type: str) -> bool:
    """Whether this can stand in a header as it is."""
    return content_type.isascii() and content_type.isprintable() and content_type == content_type.strip()


@functools.lru_cache(maxsize=8)
def _start(second: int, status: int, content_type: str) -> bytes:
    """An answer up to its length, byte for byte as h11 makes it."""
    named = f"content-type: {content_type}\r\n" if content_type else ""
    line = b"HTTP/1.1 %d %b\r\n" % (status, _PHRASES.get(status, b""))
    return line + f"date: {_date(second)}\r\n{named}content-length: ".encode("ascii")


@functools.lru_cache(maxsize=1)
def _date(second: int) -> str:  # noqa: ARG001  (the key of the cache)
    return formatdate(usegmt=True)
