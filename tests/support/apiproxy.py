"""A proxy between one program and the API server that knows HTTP: faults hit single requests, by method and path.

It ends the program's TLS with a certificate of the cluster's own authority and passes everything else on as it is,
watches piece by piece. Credentials must be tokens: a client certificate would end here.
"""

import contextlib
import http.client
import queue
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.support.clock import SystemClock

KINDS: Final = ("status", "slow", "cut", "hang", "after-effect", "late")
_PIECE: Final = 65536
_HOP_BY_HOP: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade"})


@dataclass
class Rule:
    """What happens to requests that match.

    Attributes:
        kind: "status" answers with `status` instead of asking; "slow" waits `seconds` before it asks; "cut" breaks the
            connection before it asks; "hang" gives no answer until the rule is taken away; "after-effect" asks, and breaks
            the connection instead of passing the answer on; "late" passes each piece of a watch on `seconds` after it came.
        method, path: regular expressions over the whole method and the path with its query.
        watches: whether watches that are open when the rule comes are cut as well.
        times: so many requests; 0 is no limit.
        after: so many matching requests pass before.
        retry_after: of "status": seconds in that header, none where 0.
    """

    kind: str
    method: str = ".*"
    path: str = ".*"
    status: int = 500
    seconds: float = 0.0
    times: int = 0
    after: int = 0
    watches: bool = False
    retry_after: int = 0
    hits: int = 0
    passed: int = 0
    gone: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"no fault is called {self.kind}; there are {', '.join(KINDS)}")

    def takes(self, method: str, path: str) -> bool:
        """Whether a request is hit."""
        if self.gone.is_set() or (self.times and self.hits >= self.times):
            return False
        return re.fullmatch(self.method, method) is not None and re.fullmatch(self.path, path) is not None


class ApiProxy:
    """See the module. Attributes: `port`, where it listens."""

    def __init__(self, cluster: DevCluster) -> None:
        self.upstream = ("127.0.0.1", cluster.ports["kube-apiserver"])
        self.trust = ssl.create_default_context(cadata=cluster.ca.certificate_pem.decode())
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._watches: dict[int, tuple[str, socket.socket]] = {}
        self._server = _Server(("127.0.0.1", 0), self)
        self.port: int = self._server.server_address[1]
        self._original = cluster.kubeconfig
        folder = cluster.dir / f"proxy-{self.port}"
        folder.mkdir()
        pair = cluster.ca.issue_server(["localhost"], ["127.0.0.1"], SystemClock().now(), 1)
        (folder / "tls.pem").write_bytes(pair.key_pem + pair.cert_pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "tls.pem")
        self._server.tls = context
        self._folder = folder
        self._thread = threading.Thread(target=self._server.serve_forever, name="apiproxy", daemon=True)
        self._thread.start()

    def kubeconfig(self) -> str:
        """A copy of the administrator's kubeconfig that leads through this proxy; its path."""
        text = self._original.read_text()
        address = f"127.0.0.1:{self.upstream[1]}"
        assert address in text, f"{self._original} does not lead to {address}"
        path = self._folder / "kubeconfig"
        path.write_text(text.replace(address, f"127.0.0.1:{self.port}"))
        path.chmod(0o600)
        return str(path)

    def add(self, rule: Rule) -> Rule:
        """From now on requests meet this rule."""
        with self._lock:
            self._rules.append(rule)
            hit = [end for path, end in self._watches.values() if rule.watches and rule.takes("GET", path)]
        for end in hit:
            _break(end)
        return rule

    def remove(self, rule: Rule) -> None:
        """No more; who hangs goes on."""
        with self._lock:
            if rule in self._rules:
                self._rules.remove(rule)
        rule.gone.set()

    @contextlib.contextmanager
    def during(self, rule: Rule) -> Iterator[Rule]:
        """The rule for one block."""
        try:
            yield self.add(rule)
        finally:
            self.remove(rule)

    def rule_for(self, method: str, path: str) -> Rule | None:
        """The first rule that takes a request; it counts as a hit."""
        with self._lock:
            for rule in self._rules:
                if not rule.takes(method, path):
                    continue
                if rule.passed < rule.after:
                    rule.passed += 1
                    continue
                rule.hits += 1
                return rule
        return None

    def watching(self, path: str, end: socket.socket) -> int:
        """A watch has begun; the number to end it with."""
        with self._lock:
            number = max(self._watches, default=0) + 1
            self._watches[number] = (path, end)
        return number

    def watched(self, number: int) -> None:
        """A watch has ended."""
        with self._lock:
            self._watches.pop(number, None)

    @property
    def open_watches(self) -> int:
        """Watches of the program that have begun and not ended."""
        with self._lock:
            return len(self._watches)

    def close(self) -> None:
        """Stop for good."""
        with self._lock:
            rules, self._rules = self._rules, []
            ends = [end for _, end in self._watches.values()]
        for rule in rules:
            rule.gone.set()
        for end in ends:
            _break(end)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


@contextlib.contextmanager
def api_proxy(cluster: DevCluster) -> Iterator[ApiProxy]:
    """A proxy for one block."""
    proxy = ApiProxy(cluster)
    try:
        yield proxy
    finally:
        proxy.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    tls: ssl.SSLContext

    def __init__(self, address: tuple[str, int], proxy: ApiProxy) -> None:
        self.proxy = proxy
        super().__init__(address, _Handler)

    def finish_request(self, request: object, client_address: object) -> None:
        # the handshake in the connection's own thread: a silent client stops nobody
        assert isinstance(request, socket.socket)
        request.settimeout(60)
        with contextlib.suppress(OSError), self.tls.wrap_socket(request, server_side=True) as secure:
            secure.settimeout(600)
            super().finish_request(secure, client_address)

    def handle_error(self, request: object, client_address: object) -> None:
        """Connections break all the time here; that is what it is for."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self._far: http.client.HTTPSConnection | None = None

    def finish(self) -> None:
        if self._far is not None:
            self._far.close()
        with contextlib.suppress(OSError, ValueError):
            super().finish()

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        proxy = self.server.proxy
        rule = proxy.rule_for(self.command, self.path)
        if rule is not None and not self._meet(rule):
            return
        answer = self._ask(body)
        if answer is None or (rule is not None and rule.kind == "after-effect"):
            if answer is not None:
                answer.read()
            self._hang_up()
            return
        self._pass_on(answer, rule if rule is not None and rule.kind == "late" else None)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815  (the base class's form)

    def _meet(self, rule: Rule) -> bool:
        """Do what a rule says; whether the request goes on."""
        match rule.kind:
            case "slow":
                time.sleep(rule.seconds)
            case "hang":
                rule.gone.wait(600)
                self._hang_up()
                return False
            case "cut":
                self._hang_up()
                return False
            case "status":
                text = b'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"a fault of a test","code":%d}'
                text = text % rule.status
                self.send_response(rule.status)
                if rule.retry_after:
                    self.send_header("retry-after", str(rule.retry_after))
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
                return False
            case _:
                return True
        return True

    def _ask(self, body: bytes) -> http.client.HTTPResponse | None:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        proxy = self.server.proxy
        for fresh in (False, True):
            if self._far is None or fresh:
                if self._far is not None:
                    self._far.close()
                self._far = http.client.HTTPSConnection(*proxy.upstream, context=proxy.trust, timeout=600)
            kept = self._far.sock is not None
            try:
                self._far.request(self.command, self.path, body or None, headers)
                return self._far.getresponse()
            except (OSError, http.client.HTTPException):
                if not kept or fresh:
                    break  # only a connection that was kept may have been closed before it was asked
        if self._far is not None:
            self._far.close()
            self._far = None
        return None

    def _pass_on(self, answer: http.client.HTTPResponse, late: Rule | None = None) -> None:
        length = answer.getheader("content-length")
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        if length is None:
            self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        if length is not None:
            self.wfile.write(answer.read())
            return
        proxy, near = self.server.proxy, self.connection
        number = proxy.watching(self.path, near)
        try:
            pieces = iter(lambda: answer.read1(_PIECE), b"")
            for piece in pieces if late is None else _held(pieces, late):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        except (OSError, http.client.HTTPException):
            self._hang_up()
        finally:
            proxy.watched(number)
            if self._far is not None:  # a watch that was left early leaves the rest of its answer behind
                self._far.close()
                self._far = None

    def _hang_up(self) -> None:
        self.close_connection = True
        _break(self.connection)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """The test knows what it asked."""


def _held(pieces: Iterator[bytes], rule: Rule) -> Iterator[bytes]:
    """The pieces, each as long after it came as the rule says; at once when the rule is taken away."""
    waiting: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

    def read() -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError, http.client.HTTPException):
            for piece in pieces:
                waiting.put((time.monotonic() + rule.seconds, piece))
        waiting.put((0.0, b""))

    threading.Thread(target=read, name="apiproxy-late", daemon=True).start()
    while True:
        due, piece = waiting.get()
        if not piece:
            return
        rule.gone.wait(max(0.0, due - time.monotonic()))
        yield piece


def _break(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
