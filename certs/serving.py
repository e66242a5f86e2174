"""A server's TLS context from its files, made anew when one of them changes.

A server asks for it at every connection, so a new certificate is served from the next connection on, without a restart;
building one each time costs several milliseconds.
"""

import os
import ssl
import tempfile
import threading
from pathlib import Path
from typing import TypeAlias

from provisioner.support import logs

_Stamp: TypeAlias = tuple[tuple[int, int, int], ...]
_log = logs.get_logger(__name__)


class ServingContext:
    """The present TLS context. Thread-safe; `current` costs one `stat` a file while nothing changes.

    Two files cannot be replaced in one step, and a kubelet replaces a directory: a pair that does not match leaves the
    former context in place until it does.

    Args:
        certificate: PEM of the leaf and what leads to its CA; of the key too where that has no file of its own.
        key: PEM of the key.
        client_ca: whom clients have to have a certificate from; None for nobody.
    """

    def __init__(self, certificate: Path, key: Path | None = None, client_ca: Path | None = None) -> None:
        self._certificate, self._key, self._client_ca = certificate, key, client_ca
        self._lock = threading.Lock()
        self._stamp: _Stamp = ()  # of what was tried last, with success or without
        self._context: ssl.SSLContext | None = None
        self._problem = ""

    def current(self) -> ssl.SSLContext:
        """The context of the files as they are now.

        Files that cannot be read or used leave the former context in place: a bad write must not stop the server.

        Raises:
            OSError: they are unusable (ssl.SSLError is one) and there is no former context.
        """
        with self._lock:
            try:
                stamp = self._look()
                if self._context is None or stamp != self._stamp:
                    self._stamp = stamp
                    self._context = self._load(stamp)
                    self._problem = ""
            except OSError as error:
                if self._context is None:
                    raise
                if self._problem != str(error):
                    self._problem = str(error)
                    _log.warning(
                        "Failed to reload the serving certificate; serving the previous one",
                        file=str(self._certificate),
                        error=str(error),
                    )
            return self._context

    def _look(self) -> _Stamp:
        found = [path.stat() for path in (self._certificate, self._key, self._client_ca) if path is not None]
        return tuple((status.st_mtime_ns, status.st_ino, status.st_size) for status in found)

    def _load(self, stamp: _Stamp) -> ssl.SSLContext:
        """The context of the files; read again where they were replaced meanwhile, for a first context has no former one to fall back to.

        Even of one file OpenSSL reads certificate and key one after the other.
        """
        while True:
            try:
                return self._read()
            except OSError:
                before, stamp = stamp, self._look()
                if stamp == before:
                    raise

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # offers no HTTP/2: Go falls back to what it is offered
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._certificate, self._key)
        if self._client_ca is not None:
            context.load_verify_locations(self._client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
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
