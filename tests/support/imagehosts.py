"""Registries, token services and stores that answer whatever a test says, over real TLS on loopback, under any name; and whatever an attacker would try."""

import base64
import hashlib
import json
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from certs.authority import Authority
from webhook.images.references import Host, parse
from webhook.images.registry import Registry
from webhook.images.transport import RegistryReply, Transport
from webhook.images.trust import Trust, parse_networks, parse_registries

ECR = "123456789012.dkr.ecr.eu-central-1.amazonaws.com"
ECR_STORE = "prod-eu-central-1-starport-layer-bucket.s3.eu-central-1.amazonaws.com"
PUBLIC_ECR, PUBLIC_ECR_STORE = "public.ecr.aws", "d2glxqk2uabbnd.cloudfront.net"
NAMES = (
    *("registry.test", "tokens.test", "store.test", "evil.test", "other.test"),
    *(ECR, ECR_STORE, PUBLIC_ECR, PUBLIC_ECR_STORE),
)
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"


def digest_of(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def encoded(document: object) -> bytes:
    return json.dumps(document).encode()


def index(*platforms: tuple[str, str], attestations: int = 0, **more: Any) -> dict[str, Any]:
    """An index with an image for each platform, and what BuildKit puts beside them."""

    def entry(os: str, architecture: str, **other: Any) -> dict[str, Any]:
        platform = {"os": os, "architecture": architecture}
        return {"mediaType": MANIFEST, "digest": f"sha256:{'a' * 64}", "size": 1, "platform": platform, **other}

    known = {"annotations": {"vnd.docker.reference.type": "attestation-manifest"}}
    entries = [entry(*one) for one in platforms]
    return {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": entries + [entry("unknown", "unknown", **known) for _ in range(attestations)],
        **more,
    }


def manifest(config: bytes, media_type: str = CONFIG) -> dict[str, Any]:
    """A manifest of one image."""
    descriptor = {"mediaType": media_type, "digest": digest_of(config), "size": len(config)}
    return {"schemaVersion": 2, "mediaType": MANIFEST, "config": descriptor, "layers": []}


class Forwarded(Transport):
    """Reaches every host at one port of this machine, whatever port it has: those that are known by their name have 443."""

    def __init__(self, hosts: "Hosts", trust: Trust) -> None:
        super().__init__(trust, hosts.context(), time.monotonic, lambda *_: ["127.0.0.1"])
        self._port = hosts.port

    def ask(
        self, method: str, host: Host, target: str, headers: Mapping[str, str], most: int, deadline: float
    ) -> RegistryReply:
        return super().ask(method, Host(host.name, self._port), target, headers, most, deadline)


@dataclass
class Asked:
    """One request as it came."""

    host: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    method: str = "GET"


@dataclass
class Answer:
    """One answer, of whose body HEAD gets nothing; `drip` sends the body byte by byte with so many seconds between."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    drip: float = 0.0


Respond = Callable[[Asked], Answer]


class Hosts:
    """A TLS server that is every host of `NAMES`; `asked` is what came, in order."""

    def __init__(self, respond: Respond, directory: Path) -> None:
        self.asked: list[Asked] = []
        self.respond = respond
        self.resolved: list[str] = []
        self.addresses: Callable[[str], list[str]] = lambda _: ["127.0.0.1"]
        self.ended = threading.Event()
        now = datetime.now(UTC)
        authority = Authority.create("test registries", now, 2)
        pair = authority.issue_server(NAMES, ["127.0.0.1"], now, 1)
        self.ca = directory / "registries.pem"
        self.ca.write_bytes(authority.certificate_pem)
        with tempfile.NamedTemporaryFile(dir=directory) as file:
            file.write(pair.cert_pem + pair.key_pem)
            file.flush()
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(file.name)
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._server.context = context
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca))

    def trust(self, registries: str = "", networks: str = "127.0.0.0/8") -> Trust:
        """By default registry.test, which sends to no other host."""
        return Trust(parse_registries(registries or self.at("registry.test")), parse_networks(networks))

    def at(self, name: str) -> str:
        return f"{name}:{self.port}"

    def registry(self, trust: Trust | None = None) -> Registry:
        def resolve(name: str, _: int) -> list[str]:
            self.resolved.append(name)
            return self.addresses(name)

        trust = trust or self.trust()
        return Registry(Transport(trust, self.context(), time.monotonic, resolve), trust, time.monotonic)

    def reference(self, name: str = "app:1", host: str = "registry.test") -> Any:
        return parse(f"{self.at(host)}/team/{name}")

    def authorizations(self, host: str) -> list[str]:
        """What a host was told in Authorization headers."""
        return [
            one.headers["authorization"] for one in self.asked if one.host == host and "authorization" in one.headers
        ]


class _Server(ThreadingHTTPServer):
    context: ssl.SSLContext
    daemon_threads = True

    def finish_request(self: Any, request: Any, client_address: Any) -> None:
        """TLS in the thread of the request, so that a slow handshake holds up nobody."""
        try:
            request.settimeout(5)
            with self.context.wrap_socket(request, server_side=True) as tls:
                self.RequestHandlerClass(tls, client_address, self)
        except (OSError, ssl.SSLError):
            pass

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error of the test."""


def _handler(hosts: Hosts) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(headers["host"].partition(":")[0], parts.path, parse_qs(parts.query), headers, self.command)
            hosts.asked.append(asked)
            answer = hosts.respond(asked)
            try:
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if "content-length" not in answer.headers:
                    self.send_header("content-length", str(len(answer.body)))
                self.end_headers()
                if self.command == "HEAD":
                    return
                if not answer.drip:
                    self.wfile.write(answer.body)
                    return
                for byte in answer.body:
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    if hosts.ended.wait(answer.drip):
                        return
            except (OSError, ssl.SSLError):
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    return Handler


class Store:
    """What a registry holds: manifests by tag and digest, and blobs."""

    def __init__(self) -> None:
        self.documents: dict[str, tuple[str, bytes]] = {}

    def put(self, path: str, body: bytes, media_type: str = "application/octet-stream") -> str:
        """Store a document under a path; its digest."""
        self.documents[path] = (media_type, body)
        return digest_of(body)

    def image(self, name: str, tag: str, os: str, architecture: str) -> str:
        """An image of one platform; the digest of its manifest."""
        config = encoded({"os": os, "architecture": architecture, "rootfs": {"type": "layers", "diff_ids": []}})
        self.put(f"/v2/{name}/blobs/{digest_of(config)}", config)
        body = encoded(manifest(config))
        self.put(f"/v2/{name}/manifests/{digest_of(body)}", body, MANIFEST)
        return self.put(f"/v2/{name}/manifests/{tag}", body, MANIFEST)

    def list(self, name: str, tag: str, document: dict[str, Any]) -> str:
        """An index; its digest."""
        body = encoded(document)
        self.put(f"/v2/{name}/manifests/{digest_of(body)}", body, INDEX)
        return self.put(f"/v2/{name}/manifests/{tag}", body, INDEX)

    def __call__(self, asked: Asked) -> Answer:
        found = self.documents.get(asked.path)
        if found is None:
            return Answer(404, b"{}")
        return Answer(200, found[1], {"content-type": found[0], "docker-content-digest": digest_of(found[1])})


def basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


@contextmanager
def hosts(respond: Respond, directory: Path) -> Iterator[Hosts]:
    """The hosts, until the test ends."""
    made = Hosts(respond, directory)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def silent_listener() -> Iterator[int]:
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]
