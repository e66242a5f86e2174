"""Where the extender's reports arrive: POST /reports, over mTLS wherever it is not loopback. Design 3b.5."""

import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from provisioner.apis.reports import MAX_BYTES, PATH, Report, ReportsError, decode_reports
from provisioner.support import logs

_log = logs.get_logger(__name__)
_REQUEST_SECONDS = 10.0
_FILES = ("tls.crt", "tls.key", "ca.crt")


class ReportServer:
    """A small server with bounded bodies; it only hands reports on.

    Args:
        host, port: where to listen; port 0 takes a free one, see `url`.
        accept: called with each batch, in the request's thread; must not block.
        tls: a server context that demands client certificates. None is allowed on loopback only.
        address: "host:port" under which others reach this server; "" is where it listens, or this host's name.

    Raises:
        ValueError: plain HTTP was asked for on an address that others reach.
    """

    def __init__(
        self,
        host: str,
        port: int,
        accept: Callable[[tuple[Report, ...]], None],
        tls: ssl.SSLContext | None,
        address: str = "",
    ) -> None:
        if tls is None and not ipaddress.ip_address(host).is_loopback:
            raise ValueError(f"reports on {host} need certificates: give --report-cert-dir, or listen on 127.0.0.1")

        class Handler(BaseHTTPRequestHandler):
            timeout = _REQUEST_SECONDS
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self._answer(*_take(self.path, self.headers.get("content-length"), self.rfile.read, accept))

            def _answer(self, status: int, text: str) -> None:
                body = text.encode()
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Requests are counted by the metrics."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        scheme = "https" if tls is not None else "http"
        reached = socket.gethostname() if ipaddress.ip_address(host).is_unspecified else host
        self.url = f"{scheme}://{address or f'{reached}:{self._server.server_address[1]}'}{PATH}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="reports", daemon=True)

    def start(self) -> None:
        """Serve in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


def _take(
    path: str, length: str | None, read: Callable[[int], bytes], accept: Callable[[tuple[Report, ...]], None]
) -> tuple[int, str]:
    """Status and text for one request."""
    if path != PATH:
        return 404, "not found"
    if length is None or not length.isdigit():
        return 411, "content-length is needed"
    if int(length) > MAX_BYTES:
        return 413, f"at most {MAX_BYTES} bytes"
    try:
        reports = decode_reports(read(int(length)))
    except ReportsError as error:
        _log.warning("reports refused", error=str(error))
        return 400, str(error)
    accept(reports)
    return 204, ""


def is_empty(cert_dir: str) -> bool:
    """Whether the directory is there without any of its files: an optional Secret that nobody made."""
    directory = Path(cert_dir)
    return directory.is_dir() and not any((directory / name).exists() for name in _FILES)


def server_context(cert_dir: str) -> ssl.SSLContext:
    """A context from tls.crt, tls.key and ca.crt of one directory; clients must show a certificate of that CA."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(f"{cert_dir}/tls.crt", f"{cert_dir}/tls.key")
    context.load_verify_locations(f"{cert_dir}/ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    return context
