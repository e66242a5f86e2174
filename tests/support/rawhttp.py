"""HTTP by raw sockets: what a hostile or unlucky client sends, and what it is told."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from certs.authority import Authority
from certs.serving import ServingContext
from provisioner.support.clock import SystemClock
from provisioner.support.http.server import HttpServer, listen
from provisioner.support.http.values import Handler, HttpRequest, Limits, Prompt, Response

TIMEOUT = 20.0
"""For whatever has to come; never reached where all is well."""


def get(target: str = "/", *headers: str) -> bytes:
    """A GET."""
    return "\r\n".join([f"GET {target} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def post(body: bytes, target: str = "/", *headers: str) -> bytes:
    """A POST with its length."""
    head = [f"POST {target} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(head).encode() + body


class Answer:
    """One response."""

    def __init__(self, raw: bytes, body: bytes) -> None:
        status, *lines = raw.decode("latin-1").split("\r\n")
        self.status = int(status.split(" ")[1])
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        self.body = body


class Peer:
    """A client's end of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(TIMEOUT)
        self.sock = sock
        self._rest = b""

    def send(self, data: bytes) -> "Peer":
        self.sock.sendall(data)
        return self

    def answer(self, *, bodiless: bool = False) -> Answer:
        """The next response."""
        while b"\r\n\r\n" not in self._rest:
            self._more()
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        answer = Answer(head, b"")
        length = 0 if bodiless else int(answer.headers.get("content-length", "0"))
        while len(self._rest) < length:
            self._more()
        answer.body, self._rest = self._rest[:length], self._rest[length:]
        return answer

    def ask(self, data: bytes) -> Answer:
        return self.send(data).answer()

    def _more(self) -> None:
        data = self.sock.recv(65536)
        if not data:
            raise ConnectionError(f"the server ended the connection after {self._rest!r}")
        self._rest += data

    def is_ended(self) -> bool:
        """Wait for the server to end this; False when it sends something instead, or nothing for long."""
        try:
            return self.sock.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    def reset(self) -> None:
        """Break off without a farewell."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.sock.close()

    def close(self) -> None:
        self.sock.close()


class Address:
    """Where a server listens."""

    def __init__(self, port: int, *, tls: bool = False, host: str = "127.0.0.1") -> None:
        self.host, self.port, self.tls = host, port, tls
        self._peers: list[Peer] = []

    def tcp(self) -> Peer:
        """A connection without TLS, whatever the server wants."""
        peer = Peer(socket.create_connection((self.host, self.port), TIMEOUT))
        self._peers.append(peer)
        return peer

    def peer(self, context: ssl.SSLContext | None = None) -> Peer:
        """A connection after its handshake."""
        peer = self.tcp()
        if self.tls:
            peer.sock = (context or trusting()).wrap_socket(peer.sock)
        return peer

    def leave(self) -> None:
        """Close all connections."""
        for peer in self._peers:
            peer.close()

    def ask(self, data: bytes) -> Answer:
        """One request on a connection of its own."""
        peer = self.peer()
        try:
            return peer.ask(data)
        finally:
            peer.close()


def trusting() -> ssl.SSLContext:
    """A client's context that takes every certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Pki:
    """A CA, a server's files and clients' files in a directory."""

    def __init__(self, directory: Path) -> None:
        self._since = SystemClock().now() - timedelta(days=1)
        self._authority = Authority.create("test", self._since, 30)
        self.ca = directory / "ca.crt"
        self.certificate = directory / "tls.crt"
        self.key = directory / "tls.key"
        self.ca.write_bytes(self._authority.certificate_pem)
        self.renew()

    def renew(self) -> None:
        """Another server's certificate in the same files."""
        pair = self._authority.issue_server([], ["127.0.0.1"], self._since, 30)
        self.certificate.write_bytes(pair.cert_pem)
        self.key.write_bytes(pair.key_pem)

    def client(self, name: str) -> ssl.SSLContext:
        """A context with a client's certificate for a name."""
        pair = self._authority.issue_client(name, [], self._since, 30)
        file = self.ca.parent / f"{name}.pem"
        file.write_bytes(pair.key_pem + pair.cert_pem)
        context = trusting()
        context.load_cert_chain(file)
        return context


class Desk:
    """A handler for tests: echoes what it gets, and has pages that are big, slow and broken."""

    def __init__(self) -> None:
        self.requests: list[HttpRequest] = []
        self.hung = threading.Semaphore(0)
        """One more for each request that hangs."""
        self.go_on = threading.Event()

    def __call__(self, request: HttpRequest) -> Response:
        self.requests.append(request)
        match request.path:
            case "/big":
                return Response(200, b"x" * 32_000_000)
            case "/hang":
                self.hung.release()
                self.go_on.wait(TIMEOUT)
                return Response(200, b"at last")
            case "/broken":
                raise RuntimeError("broken")
            case "/leave":
                raise SystemExit
            case "/nothing":
                return Response(204, content_type="")
            case page:
                return Response(200, request.body or page.encode())


@contextlib.contextmanager
def serving(
    handle: Handler | None = None,
    limits: Limits | None = None,
    *,
    pki: Pki | None = None,
    threads: int = 2,
    prompt: Prompt | None = None,
) -> Iterator[tuple[HttpServer, Address]]:
    """A server in this process."""
    context = ServingContext(pki.certificate, pki.key).current if pki is not None else None
    server = HttpServer(
        "test",
        [listen("127.0.0.1", 0)],
        handle or Desk(),
        limits=limits,
        context=context,
        threads=threads,
        prompt=prompt,
    )
    server.start()
    address = Address(server.port, tls=pki is not None)
    try:
        yield server, address
    finally:
        address.leave()
        server.stop(grace=0.0)
