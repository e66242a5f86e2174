"""The HTTP server that receives the extender's reports: POST /reports, with mTLS unless it listens on loopback only. Design 3b.5."""

import socket
import ssl
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Final

from certs import expiry
from certs.serving import ServingContext
from provisioner.apis.reports import MAX_BYTES, PATH, PodReport, ReportsError, decode_reports
from provisioner.support import logs
from provisioner.support.addresses import host_and_port, is_everywhere, is_loopback, parse
from provisioner.support.http.server import HttpServer, listen
from provisioner.support.http.values import HttpRequest, Limits, Response
from provisioner.values.message import Said

CLIENT_NAME: Final = "dovetail-scheduler"
"""Name in the certificate of those who may report, unless another is asked for."""
LIMITS: Final = Limits(
    connections=128,
    first_request_seconds=5.0,
    request_seconds=5.0,
    answer_seconds=3.0,  # the extender waits as long
    idle_seconds=30.0,  # it speaks every three seconds
    waiting=32,
    body_bytes=MAX_BYTES,
    held_bytes=16 * MAX_BYTES,
)
THREADS: Final = 2

_log = logs.get_logger(__name__)
_FILES: Final = ("tls.crt", "tls.key", "ca.crt")


class ReportServer:
    """A small server with bounded bodies; it only hands reports on.

    Args:
        host: where to listen; "" is every address of this machine.
        port: 0 takes a free one, see `url`.
        accept: called with each batch, in the request's thread; must not block.
        context: gives the TLS context, which demands client certificates. None is allowed on loopback only.
        address: "host:port" under which others reach this server; "" is where it listens, or this host's name.

    Raises:
        ValueError: plain HTTP was asked for on an address that others reach, or `address` is none.
        OSError: the port is taken.
    """

    def __init__(
        self,
        host: str,
        port: int,
        accept: Callable[[tuple[PodReport, ...]], None],
        context: Callable[[], ssl.SSLContext] | None,
        address: str = "",
    ) -> None:
        if context is None and not is_loopback(host):
            raise ValueError(
                f"accepting reports on {host or 'all addresses'} requires certificates: set --report-cert-dir, or "
                "listen on 127.0.0.1"
            )
        wanted = CLIENT_NAME if context is not None else ""

        def handle(request: HttpRequest) -> Response:
            if wanted and wanted not in request.peer_names:
                _log.warning(
                    "Refused reports because the client certificate is for another name",
                    names=sorted(request.peer_names),
                )
                return Response(HTTPStatus.FORBIDDEN, Said(f"only {wanted} may send reports\n").encode())
            return take(request, accept)

        self._context = context
        self._server = HttpServer(
            "reports", [listen(host, port)], handle, limits=LIMITS, context=context, threads=THREADS
        )
        scheme = "https" if context is not None else "http"
        own = (socket.gethostname() if is_everywhere(host) else host, self._server.port)
        self.url = f"{scheme}://{host_and_port(*(parse(address) if address else own))}{PATH}"

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop(grace=0.0)

    @property
    def can_be_reached(self) -> bool:
        """Whether there are certificates to shake hands with; they may come later, from an optional Secret."""
        try:
            return self._context is None or bool(self._context())
        except OSError:
            return False


def take(request: HttpRequest, accept: Callable[[tuple[PodReport, ...]], None]) -> Response:
    """The answer to one request; its reports are handed on."""
    if request.path != PATH:
        return Response(HTTPStatus.NOT_FOUND, b"not found\n")
    if request.method != "POST":
        return Response(HTTPStatus.METHOD_NOT_ALLOWED, b"only POST\n", headers=[("allow", "POST")])
    try:
        reports = decode_reports(request.body)
    except ReportsError as error:
        _log.warning("Refused reports", error=str(error))
        return Response(HTTPStatus.BAD_REQUEST, f"{error}\n".encode())
    accept(reports)
    return Response(HTTPStatus.NO_CONTENT, content_type="")


def is_empty(cert_dir: str) -> bool:
    """Whether the directory is there without any of its files: an optional Secret that nobody made."""
    directory = Path(cert_dir)
    return directory.is_dir() and not any((directory / name).exists() for name in _FILES)


def serving_context(cert_dir: str) -> ServingContext:
    """Follows tls.crt, tls.key and ca.crt of one directory; clients must show a certificate of that CA."""
    certificate, key, client_ca = (Path(cert_dir) / name for name in _FILES)
    expiry.watch("reports", certificate)
    return ServingContext(certificate, key, client_ca)
