"""Small HTTP requests to the programs of a cluster: is it ready, make a token, compact etcd."""

import http.client
import ssl
from dataclasses import dataclass
from pathlib import Path

from provisioner.lab.devcluster.ports import LOOPBACK


@dataclass(frozen=True)
class ProbeIdentity:
    """How to talk TLS: the CA to verify the server with, and our certificate and key (PEM files)."""

    ca: Path
    cert: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """A client context; read anew each time, since tests replace the files."""
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(str(self.cert), str(self.key))
        return context


@dataclass(frozen=True)
class ProbeReply:
    """Status and body of an answer; status 0 where there was none, the body then says why."""

    status: int
    body: bytes


def request(
    port: int,
    path: str,
    *,
    method: str = "GET",
    body: bytes | None = None,
    context: ssl.SSLContext | None = None,
    timeout_seconds: float = 2.0,
) -> ProbeReply:
    """One request to a loopback port over a connection of its own; never raises for network failures."""
    connection = (
        http.client.HTTPConnection(LOOPBACK, port, timeout=timeout_seconds)
        if context is None
        else http.client.HTTPSConnection(LOOPBACK, port, timeout=timeout_seconds, context=context)
    )
    try:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        return ProbeReply(answer.status, answer.read())
    except (OSError, http.client.HTTPException) as error:
        return ProbeReply(0, f"{type(error).__name__}: {error}".encode())
    finally:
        connection.close()
