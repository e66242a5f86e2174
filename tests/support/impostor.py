"""A TLS server in the place of the webhook, which does what no server should."""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

Behaviour: TypeAlias = Callable[[socket.socket, threading.Event], object]
"""What is done with a connection once a request has come; the event says that the server closes."""


def silent(connection: socket.socket, closing: threading.Event) -> None:
    """No answer."""
    closing.wait()


def slow(connection: socket.socket, closing: threading.Event) -> None:
    """Two bytes a second of an answer that would be right."""
    for byte in answer(b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"allowed":true}}'):
        connection.sendall(bytes([byte]))
        if closing.wait(0.5):
            return


def late(connection: socket.socket, closing: threading.Event) -> None:
    """A refusal, which nobody waits for any longer."""
    if not closing.wait(5.0):
        connection.sendall(answer(b'{"kind":"AdmissionReview","response":{"allowed":false}}'))


def garbage(connection: socket.socket, closing: threading.Event) -> None:
    """No HTTP."""
    connection.sendall(b"\x00\xff" * 1000)


def no_json(connection: socket.socket, closing: threading.Event) -> None:
    """HTTP with a body that is none."""
    connection.sendall(answer(b"{]"))


def endless(connection: socket.socket, closing: threading.Event) -> None:
    """A body that does not end, as fast as it is read."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n\r\n")
    while not closing.is_set():
        connection.sendall(b" " * 65536)


def somebody_elses(connection: socket.socket, closing: threading.Event) -> None:
    """A refusal of another review."""
    body = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"x","allowed":false}}'
    connection.sendall(answer(body))


def answer(body: bytes) -> bytes:
    """HTTP around a body."""
    head = (
        f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Impostor:
    """See the module.

    Args:
        address: HOST:PORT, free.
        certificate: PEM file with key and certificate.
        behave: what is done with each request.
    """

    def __init__(self, address: str, certificate: Path, behave: Behaviour) -> None:
        host, _, port = address.rpartition(":")
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._behave = behave
        self._closing = threading.Event()
        self._listener = socket.create_server((host, int(port)))
        self.requests = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                raw, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(raw,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        raw.settimeout(10.0)
        with contextlib.suppress(OSError), self._context.wrap_socket(raw, server_side=True) as connection:
            asked = b""
            while b"\r\n\r\n" not in asked:
                asked += connection.recv(65536) or b"\r\n\r\n"
            self.requests += 1
            self._behave(connection, self._closing)
            time.sleep(0.05)  # what was sent arrives before the connection is reset
