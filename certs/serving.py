"""A server's TLS context from one PEM file, cached until the file changes, for gunicorn's `ssl_context` hook.

gunicorn asks for a context at every connection, so a new certificate is served from the next connection on, without
a reload; building one each time costs several milliseconds. The file holds the key, the leaf, and its CA: one file can be
replaced atomically, two cannot.
"""

import os
import socket
import ssl
import tempfile
import threading
from pathlib import Path
from typing import Any

IO_TIMEOUT_SECONDS = 5.0
"""How long one read or write on a connection may take; a silent peer would keep a worker thread for ever."""


class _BoundedSocket(ssl.SSLSocket):
    """A TLS socket whose blocking mode means "at most IO_TIMEOUT_SECONDS"."""

    def setblocking(self, flag: bool) -> None:
        self.settimeout(IO_TIMEOUT_SECONDS if flag else 0.0)


class _BoundedContext(ssl.SSLContext):
    """A context whose handshakes end in time too."""

    sslsocket_class = _BoundedSocket

    def wrap_socket(self, sock: socket.socket, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        sock.settimeout(IO_TIMEOUT_SECONDS)
        return super().wrap_socket(sock, *args, **kwargs)


class ServingContext:
    """The present TLS context of one file. Thread-safe; `current` costs one `stat` while nothing changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._context: ssl.SSLContext | None = None

    def current(self) -> ssl.SSLContext:
        """The context of the file as it is now.

        A file that cannot be read or used leaves the former context in place: a bad write must not stop the server.

        Raises:
            OSError: the file is unusable (ssl.SSLError is one) and there is no former context.
        """
        with self._lock:
            try:
                status = self._path.stat()
                stamp = (status.st_mtime_ns, status.st_ino, status.st_size)
                if self._context is None or stamp != self._stamp:
                    self._context, self._stamp = _load(self._path), stamp
            except OSError:
                if self._context is None:
                    raise
            return self._context


def _load(path: Path) -> ssl.SSLContext:
    context = _BoundedContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(path)
    return context


def write_atomically(path: Path, content: bytes) -> None:
    """Replaces a file in one step, readable by its owner only; a reader sees the old content or the new.

    Raises:
        OSError: the directory cannot be written.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # created with mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
