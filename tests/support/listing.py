"""An API server that tells whoever watches what there is, and nothing more: for programs that are to be seen with large clusters."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.support.kube import bookmark, kubeconfig

Lines = Callable[[], Iterable[bytes]]


class Listing(ThreadingHTTPServer):
    """Answers watches of `kinds`: events by path and label selector ("/api/v1/pods?app=web"), made anew for each; of others there are no objects.

    Lists are empty, and whatever else is asked for is not there.
    """

    daemon_threads = True

    def __init__(self, kinds: Mapping[str, Lines]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.kinds = kinds
        self.told: set[str] = set()
        """Of which kinds everything was sent."""
        self.ended = threading.Event()

    def kubeconfig(self, directory: Path) -> Path:
        """A file that points here."""
        return kubeconfig(directory, self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    server: Listing
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: value for name, (value, *_) in parse_qs(parts.query).items()}
        if query.get("watch") == "true":
            selector = query.get("labelSelector", "")
            kind = f"{parts.path}?{selector}" if selector else parts.path
            lines = self.server.kinds.get(kind)
            is_first = query.get("sendInitialEvents") == "true"
            self._stream(kind, lines() if lines is not None and is_first else ())
        elif "limit" in query:
            self._whole(200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []})
        else:
            self._missing()

    def _missing(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", "0")))
        self._whole(404, {"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"})

    def do_POST(self) -> None:
        self._missing()

    def do_PUT(self) -> None:
        self._missing()

    def do_PATCH(self) -> None:
        self._missing()

    def _whole(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, kind: str, lines: Iterable[bytes]) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for line in lines:
                self._chunk(line)
            self._chunk(bookmark(10**9, end=True))
            self.server.told.add(kind)
            while not self.server.ended.wait(5):
                self._chunk(bookmark(10**9))
        except OSError:
            pass  # the program is gone

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nobody reads it."""


@contextmanager
def listing(kinds: Mapping[str, Lines]) -> Iterator[Listing]:
    """The server, until the test ends."""
    server = Listing(kinds)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.ended.set()
        server.shutdown()
        server.server_close()
        thread.join(5)
