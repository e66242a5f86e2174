"""The page's server on this machine: for whoever has the address that the command printed, and for no other page that a browser has open.

The secret of the address is in its fragment, which no browser sends; the page trades it once for the key of its session, and sends that with each
request. So neither is in a history of requests, and an address that was used is of no use to others. The names of Host and Origin keep other pages out
that make a browser ask this port, also by a name that leads here.
"""

import hmac
import re
import secrets
import urllib.parse
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import msgspec

from provisioner.support.clock import Clock
from provisioner.support.http.server import HttpServer, listen
from provisioner.support.http.values import HttpRequest, Limits, Response
from provisioner.ui.document import SERVED_POLICY, served
from provisioner.ui.events import EventBoard, EventFeed
from provisioner.values.errors import UserError

LOOPBACK: Final = "127.0.0.1"
LIMITS: Final = Limits(
    connections=32,
    answer_seconds=60.0,
    taking_seconds=30.0,
    idle_seconds=30.0,
    waiting=8,
    body_bytes=256,
    held_bytes=4096,
)
STREAM_SECONDS: Final = 3600.0
"""After which the page asks anew."""
SESSION_HEADER: Final = b"x-dovetail-session"
_HEADERS: Final = [
    ("cache-control", "no-store"),
    ("content-security-policy", SERVED_POLICY),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
]
_WHY: Final = re.compile(r"/why/(node|pod)/([a-z0-9][-a-z0-9.]{0,252}(?:/[a-z0-9][-a-z0-9.]{0,252})?)")

Question = Callable[[str, str], str]
"""Why, of a kind and a name, in words; raises UserError."""


class UiServer:
    """See the module.

    Args:
        port: of the loopback; 0 takes a free one.
        board: whose events are shown.
        why: answers why a node stays or a pod waits.
        clock: of the time.

    Raises:
        UserError: the port is taken.
    """

    def __init__(self, port: int, board: EventBoard, why: Question, clock: Clock) -> None:
        self._board, self._why, self._clock = board, why, clock
        self._secret, self._key = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self._used = False
        try:
            self._server = HttpServer("ui", [listen(LOOPBACK, port)], self.handle, limits=LIMITS, threads=2)
        except OSError as error:
            raise UserError(f"{error.strerror}; specify another port with --port") from None
        self._hosts = {f"{name}:{self._server.port}" for name in (LOOPBACK, "localhost")}

    @property
    def url(self) -> str:
        """What to open; good for one browser."""
        return f"http://{LOOPBACK}:{self._server.port}/#{self._secret}"

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop(grace=0.5)

    def handle(self, request: HttpRequest) -> Response:
        """One answer; public for tests."""
        if not self._is_ours(request):
            return _said(HTTPStatus.FORBIDDEN, "this address is for the page of dovetail ui only")
        match request.method, request.target:
            case "POST", "/session":
                return self._session(request)
            case "GET", target if (found := served().get(target)) is not None:
                kind, body = found
                return Response(HTTPStatus.OK, body, kind, _HEADERS)
            case "GET", "/events" if self._has_key(request):
                feed = EventFeed(self._board, self._clock, STREAM_SECONDS, lambda _: None)
                return feed.response()
            case "GET", target if self._has_key(request) and (asked := _WHY.fullmatch(target)):
                return self._answered(asked[1], asked[2])
            case "GET", target if target == "/events" or _WHY.fullmatch(target):
                return _said(HTTPStatus.UNAUTHORIZED, "the session has ended; run dovetail ui again")
            case _:
                return _said(HTTPStatus.NOT_FOUND, "not found")

    def _is_ours(self, request: HttpRequest) -> bool:
        """Whether no other page made the browser ask."""
        hosts = _header(request, b"host")
        origins = _header(request, b"origin")
        site = _header(request, b"sec-fetch-site")
        return (
            len(hosts) == 1
            and hosts[0] in self._hosts
            and all(one == f"http://{hosts[0]}" for one in origins)
            and all(one in ("same-origin", "none") for one in site)
        )

    def _session(self, request: HttpRequest) -> Response:
        if self._used or not hmac.compare_digest(request.body, self._secret.encode()):
            text = "this address has been used, or is of another run; run dovetail ui again"
            return _said(HTTPStatus.FORBIDDEN, text)
        self._used = True
        return Response(HTTPStatus.OK, self._key.encode(), "text/plain; charset=utf-8", _HEADERS)

    def _has_key(self, request: HttpRequest) -> bool:
        given = _header(request, SESSION_HEADER)
        return len(given) == 1 and hmac.compare_digest(given[0].encode(), self._key.encode())

    def _answered(self, kind: str, name: str) -> Response:
        try:
            text = self._why(kind, urllib.parse.unquote(name))
        except UserError as error:
            return _said(HTTPStatus.BAD_GATEWAY, str(error))
        return Response(HTTPStatus.OK, msgspec.json.encode({"text": text}), "application/json", _HEADERS)


def _header(request: HttpRequest, wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in request.headers if name == wanted]


def _said(status: HTTPStatus, text: str) -> Response:
    return Response(status, msgspec.json.encode({"error": text}), "application/json", _HEADERS)
