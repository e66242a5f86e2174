"""The API server in memory over HTTP, for real programs: lists, watches with initial events, and writes; as fast as one process of Python answers."""

import queue
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import msgspec

from provisioner.simulator.api_server import ApiServer, Asked, ServerChange, Wire, asked
from provisioner.support.clock import SystemClock
from tests.support.kube import FakeAnswer, bookmark, kubeconfig, refusal, request

BOOKMARK_SECONDS: Final = 30.0
_MOST_IN_ONE_WRITE: Final = 256
_encode = msgspec.json.Encoder().encode


class _Stream:
    """A watch that is open: lines in the order in which they happened."""

    def __init__(self, about: Asked, names: str) -> None:
        self.about, self.names = about, names
        self.lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def is_about(self, wire: Wire) -> bool:
        meta = wire["metadata"]
        return (not self.about.namespace or meta.get("namespace") == self.about.namespace) and (
            not self.names or meta["name"] == self.names
        )


class HttpApiServer(ThreadingHTTPServer):
    """Serves `objects`, whose lock is `lock`: whoever changes something holds it. Events are taken and forgotten.

    Attributes:
        heard: is called with every change, under the lock.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects = ApiServer(SystemClock())
        self.objects.told = self._told
        self.lock = threading.RLock()
        self.heard: Callable[[ServerChange], object] = lambda _: None
        self._watching: list[_Stream] = []

    def kubeconfig(self, directory: Path) -> Path:
        """A file that points here."""
        return kubeconfig(directory, self.server_address[1])

    def fill(self, plural: str, wires: Iterator[Wire]) -> None:
        """Objects that were there before anybody watched; of these no history is kept."""
        with self.lock:
            for wire in wires:
                self.objects.version += 1
                meta = wire["metadata"]
                meta.setdefault("creationTimestamp", self.objects.stamp())
                meta["resourceVersion"] = str(self.objects.version)
                self.objects.objects[plural][
                    f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
                ] = wire

    def _told(self, change: ServerChange) -> None:
        shown = change.after if change.after is not None else change.before
        assert shown is not None
        log = self.objects._logs[change.plural]
        for one in self._watching:
            if one.about.plural == change.plural and one.is_about(shown):
                one.lines.put(log.lines[-1])
        log.lines.clear()
        log.versions.clear()
        self.heard(change)

    def watch(self, about: Asked, query: dict[str, str]) -> tuple[_Stream, list[Wire], int]:
        """A stream, what is there when it begins, and the version of that."""
        names = query.get("fieldSelector", "").removeprefix("metadata.name=")
        stream = _Stream(about, names)
        with self.lock:
            self._watching.append(stream)
            there = [one for one in self.objects.objects[about.plural].values() if stream.is_about(one)]
            return stream, there, self.objects.version

    def forget(self, stream: _Stream) -> None:
        with self.lock:
            self._watching.remove(stream)

    def ask(self, method: str, path: str, body: bytes | None, content_type: str) -> FakeAnswer:
        """Any request but a watch."""
        sent = request(method, path, body, content_type, 0.0)
        about = asked(sent.path)
        if about is None:
            return refusal(404, "NotFound", f"nobody serves {sent.path}")
        if about.plural == "events":
            return FakeAnswer(201, body or b"{}")
        with self.lock:
            if not about.name and method == "GET" and sent.query.get("limit") == "1":
                found = {"metadata": {"resourceVersion": str(self.objects.version)}, "items": []}
                return FakeAnswer(data=_encode(found))
            return self.objects.answer(sent, self)


class _Handler(BaseHTTPRequestHandler):
    server: HttpApiServer
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query))
        about = asked(parts.path)
        if query.get("watch") == "true" and about is not None:
            self._stream(about, query)
        else:
            self._answer()

    def do_POST(self) -> None:
        self._answer()

    do_PUT = do_PATCH = do_DELETE = do_POST  # noqa: N815 - the names of the base class

    def _answer(self) -> None:
        length = int(self.headers.get("content-length", "0"))
        body = self.rfile.read(length) if length else None
        answer = self.server.ask(self.command, self.path, body, self.headers.get("content-type", ""))
        self.send_response(answer.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer.data)))
        self.end_headers()
        self.wfile.write(answer.data)
        self.wfile.flush()

    def _stream(self, about: Asked, query: dict[str, str]) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        if query.get("sendInitialEvents") != "true":
            # it goes on from a version whose history is not kept
            gone = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}
            self._chunk(b'{"type":"ERROR","object":%s}\n' % _encode(gone))
            self._chunk(b"")
            return
        stream, there, version = self.server.watch(about, query)
        try:
            for start in range(0, len(there), _MOST_IN_ONE_WRITE):
                some = there[start : start + _MOST_IN_ONE_WRITE]
                self._chunk(b"".join([b'{"type":"ADDED","object":%s}\n' % _encode(one) for one in some]))
            del there
            self._chunk(bookmark(version, end=True))
            self._follow(stream)
        except OSError:
            pass  # the program is gone
        finally:
            self.server.forget(stream)

    def _follow(self, stream: _Stream) -> None:
        silent = time.monotonic()
        while True:
            try:
                lines = [stream.lines.get(timeout=1.0)]
            except queue.Empty:
                if time.monotonic() - silent > BOOKMARK_SECONDS:
                    silent = time.monotonic()
                    with self.server.lock:
                        version, more = self.server.objects.version, not stream.lines.empty()
                    if not more:
                        self._chunk(bookmark(version))
                continue
            while not stream.lines.empty() and len(lines) < _MOST_IN_ONE_WRITE:
                lines.append(stream.lines.get())
            self._chunk(b"".join(lines))

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nobody reads it."""


@contextmanager
def serving() -> Iterator[HttpApiServer]:
    """The server, until the test ends."""
    server = HttpApiServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
