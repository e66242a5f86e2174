"""How this process is, over HTTP: /healthz, /readyz and /metrics.

It has a loop and threads of its own, so that a long solve never looks like death, on the server that slow clients cannot
stop (`support.http`).
"""

import gzip
import sys
import threading
import time
import traceback
import zlib
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Final

from provisioner.support import heartbeat, logs, metrics
from provisioner.support.addresses import Address
from provisioner.support.http.server import HttpServer, listen
from provisioner.support.http.values import HttpRequest, Limits, Response

Check = Callable[[], str]
"""Says what is wrong in a sentence, "" when nothing is. Must not block for longer than a probe waits."""

LIMITS: Final = Limits(
    connections=64,
    first_request_seconds=5.0,
    answer_seconds=10.0,
    idle_seconds=60.0,
    waiting=64,  # a question each: a probe may have to wait, and is never turned away
    head_bytes=8 * 1024,
    body_bytes=0,
)
THREADS: Final = 3
ASK_SECONDS: Final = 2.0
"""How long a probe may take on its way through the server that it asks."""
KEPT_SECONDS: Final = 1.0
"""How long an answer of `through` holds: probes of many shall not become a load on what they ask."""
_GZIP_WINDOW: Final = 31  # zlib's word for gzip's header
_VARY: Final = ("vary", "accept-encoding")

_log = logs.get_logger(__name__)


class HealthServer:
    """A running server; `serve` makes one.

    Attributes:
        port: where it listens; the one the system chose where 0 was asked for.
    """

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self.port = server.port
        server.start()

    def stop(self) -> None:
        """Answer nobody any more."""
        self._server.stop(grace=0.0)


def serve(
    port: int,
    bind: str = "",
    checks: Mapping[str, Check] | None = None,
    *,
    live_checks: Mapping[str, Check] | None = None,
    notes: Mapping[str, Check] | None = None,
    with_metrics: bool = True,
    profiling: bool = False,
) -> HealthServer:
    """Start answering, in threads of its own.

    Args:
        port: 0 lets the system choose.
        bind: address; "" is every address of this machine, IPv4 and IPv6.
        checks: what /readyz asks, by name; all must answer "".
        live_checks: what /healthz asks; none is always alive.
        notes: what /readyz tells beside its checks, by name; nothing of it makes the process unready.
        with_metrics: whether /metrics is served.
        profiling: whether /debug/stacks shows where every thread is.

    Raises:
        OSError: the port is taken; the sentence names it.
    """
    pages: dict[str, Callable[[HttpRequest], Response]] = {
        "/healthz": lambda _: _checked(live_checks or {}),
        "/readyz": lambda _: _checked(checks or {}, notes or {}),
    }
    if with_metrics:
        pages["/metrics"] = _Rendered().answer
    if profiling:
        pages["/debug/stacks"] = lambda _: Response(HTTPStatus.OK, _stacks().encode())

    def answer(request: HttpRequest) -> Response:
        if request.method not in {"GET", "HEAD"}:
            return Response(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET\n", headers=[("allow", "GET, HEAD")])
        page = pages.get(request.path)
        return page(request) if page is not None else Response(HTTPStatus.NOT_FOUND, b"not found\n")

    name = "metrics" if with_metrics else "health"
    return HealthServer(HttpServer(name, [listen(bind, port)], answer, limits=LIMITS, threads=THREADS))


def serve_all(
    figures: Address, probes: Address | None, *, checks: Mapping[str, Check], live_checks: Mapping[str, Check]
) -> list[HealthServer]:
    """Start what a program with an address of its own for probes needs; an address that cannot be had is logged.

    Args:
        figures: where /metrics is, and the probes too.
        probes: where only the probes are; None for nowhere.
        checks: as for `serve`.
        live_checks: as for `serve`.
    """
    running = []
    for address, with_metrics in ((figures, True), (probes, False)):
        if address is None:
            continue
        host, port = address
        try:
            running.append(serve(port, host, checks, live_checks=live_checks, with_metrics=with_metrics))
        except OSError as error:
            _log.error("Failed to serve metrics and probes; the program continues without them", error=str(error))
    return running


def live_checks(server: HttpServer, what: str) -> dict[str, Check]:
    """What the liveness probe of an HTTP program asks: whether its server answers, the way its clients ask it, and whether every thread lives.

    Args:
        server: of the program.
        what: it answers, as the probe names it.
    """
    return {what: through(server, "/healthz", ASK_SECONDS), "threads": heartbeat.problem}


def through(server: HttpServer, target: str, seconds: float) -> Check:
    """A check that asks a server as its clients do: what hangs there shall not look alive.

    Args:
        server: that serves.
        target: what to GET; every answer but 200 is a complaint.
        seconds: for an answer.
    """
    lock = threading.Lock()
    last: tuple[float, str] = (-KEPT_SECONDS, "")

    def check() -> str:
        nonlocal last
        with lock:
            if time.monotonic() - last[0] >= KEPT_SECONDS:
                last = (time.monotonic(), ask())
            return last[1]

    def ask() -> str:
        try:
            status, text = server.ask(target, seconds)
        except OSError as error:
            return f"GET {target} was not answered within {seconds:g} s: {error}"
        return "" if status == HTTPStatus.OK else f"GET {target} answered {status}: {text.strip()[:500]}"

    return check


class _Rendered:
    """The metrics, compressed; an answer is kept for as long as it kept a core busy, so that many askers never take more than half a core.

    They are tens of megabytes of text with 100,000 pods, which compress to a twentieth and are never in memory as a whole: but for those who cannot read
    gzip, who share one text until the next is rendered.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._packed, self._until = b"", 0.0
        self._text: bytes | None = None

    def answer(self, request: HttpRequest) -> Response:
        """Compressed for who accepts that, as Prometheus does."""
        with self._lock:
            self._refresh()
            if _accepts_gzip(request):
                return Response(
                    HTTPStatus.OK, self._packed, metrics.CONTENT_TYPE, [("content-encoding", "gzip"), _VARY]
                )
            if self._text is None:
                self._text = gzip.decompress(self._packed)
            return Response(HTTPStatus.OK, self._text, metrics.CONTENT_TYPE, [_VARY])

    def _refresh(self) -> None:
        if time.monotonic() >= self._until:
            self._text = None
            began = time.thread_time()
            self._packed = _packed(metrics.chunks())
            self._until = time.monotonic() + (time.thread_time() - began)


def _packed(pieces: Iterable[bytes]) -> bytes:
    packer = zlib.compressobj(1, wbits=_GZIP_WINDOW)
    return b"".join([*map(packer.compress, pieces), packer.flush()])


def _accepts_gzip(request: HttpRequest) -> bool:
    for name, value in request.headers:
        for one in value.decode("latin-1").lower().split(",") if name == b"accept-encoding" else ():
            coding, _, weight = one.partition(";")
            if coding.strip() == "gzip":
                return weight.replace(" ", "").rstrip("0.") != "q="
    return False


def _checked(checks: Mapping[str, Check], notes: Mapping[str, Check] | None = None) -> Response:
    lines, healthy = [], True
    for name, check in sorted(checks.items()):
        complaint = _ask(name, check)
        healthy = healthy and not complaint
        lines.append(f"[-] {name}: {complaint}" if complaint else f"[+] {name}: ok")
    lines += [f"[!] {name}: {text}" for name, note in sorted((notes or {}).items()) if (text := _ask(name, note))]
    lines.append("ok" if healthy else "not ok")
    return Response(HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE, ("\n".join(lines) + "\n").encode())


def _ask(name: str, check: Check) -> str:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - a check that fails is a failed check
        _log.exception("Health check failed", check=name)
        return f"the check failed: {error}"


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sorted(sys._current_frames().items()):  # noqa: SLF001 - the only way to them
        parts.append(f"{names.get(ident, 'unknown')}:\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(parts)
