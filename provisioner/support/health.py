"""The small HTTP server that tells others how this process is: /healthz, /readyz and /metrics.

It has threads of its own, so that a long solve never looks like death, and few of them, so that nobody can exhaust the process.
"""

import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from provisioner.support import logs, metrics

Check = Callable[[], str]
"""Says what is wrong in a sentence, "" when nothing is. Must not block."""

MAX_CONNECTIONS = 16
TIMEOUT_SECONDS = 5.0

_log = logs.get_logger(__name__)


class HealthServer:
    """A running server; `serve` makes one.

    Attributes:
        port: where it listens; the one the system chose where 0 was asked for.
    """

    def __init__(self, server: "_Server") -> None:
        self._server = server
        self.port: int = server.server_address[1]
        self._thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.2}, name="health", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Answer nobody any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(TIMEOUT_SECONDS)


def serve(
    port: int,
    bind: str = "",
    checks: Mapping[str, Check] | None = None,
    *,
    live_checks: Mapping[str, Check] | None = None,
    with_metrics: bool = True,
    profiling: bool = False,
) -> HealthServer:
    """Start answering, in threads of its own.

    Args:
        port: 0 lets the system choose.
        bind: address; "" is all of IPv4.
        checks: what /readyz asks, by name; all must answer "".
        live_checks: what /healthz asks; none is always alive.
        with_metrics: whether /metrics is served.
        profiling: whether /debug/stacks shows where every thread is.

    Raises:
        OSError: the port is taken; the sentence names it.
    """
    pages: dict[str, Callable[[], _Page]] = {
        "/healthz": lambda: _checked(live_checks or {}),
        "/readyz": lambda: _checked(checks or {}),
    }
    if with_metrics:
        pages["/metrics"] = lambda: _Page(HTTPStatus.OK, metrics.render(), metrics.CONTENT_TYPE)
    if profiling:
        pages["/debug/stacks"] = lambda: _Page(HTTPStatus.OK, _stacks().encode())
    try:
        return HealthServer(_Server((bind, port), pages))
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {bind or '0.0.0.0'}:{port}: {error.strerror}") from error


class _Page:
    __slots__ = ("body", "content_type", "status")

    def __init__(self, status: HTTPStatus, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        self.status, self.body, self.content_type = status, body, content_type


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, address: tuple[str, int], pages: Mapping[str, Callable[[], _Page]]) -> None:
        self.pages = pages
        self._room = threading.BoundedSemaphore(MAX_CONNECTIONS)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)  # too many at once: hang up
            return
        super().process_request(request, client_address)

    def process_request_thread(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:  # noqa: ARG002
        _log.debug("health request failed", client=str(client_address), error=repr(sys.exc_info()[1]))


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = TIMEOUT_SECONDS
    protocol_version = "HTTP/1.0"  # no connection outlives its answer
    wbufsize = -1  # one segment
    server_version = "dovetail"
    sys_version = ""

    def do_GET(self) -> None:
        page_of = self.server.pages.get(self.path.partition("?")[0])
        page = page_of() if page_of is not None else _Page(HTTPStatus.NOT_FOUND, b"not found\n")
        self.send_response(page.status)
        self.send_header("content-type", page.content_type)
        self.send_header("content-length", str(len(page.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.body)

    do_HEAD = do_GET  # noqa: N815  (the base class's form)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Probes come every few seconds; they are not news."""


def _checked(checks: Mapping[str, Check]) -> _Page:
    lines, healthy = [], True
    for name, check in sorted(checks.items()):
        try:
            complaint = check()
        except Exception as error:
            _log.exception("check failed", check=name)
            complaint = f"the check failed: {error}"
        healthy = healthy and not complaint
        lines.append(f"[-] {name}: {complaint}" if complaint else f"[+] {name}: ok")
    lines.append("ok" if healthy else "not ok")
    return _Page(HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE, ("\n".join(lines) + "\n").encode())


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sorted(sys._current_frames().items()):
        parts.append(f"{names.get(ident, 'unknown')}:\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(parts)
