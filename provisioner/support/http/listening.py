"""The listening sockets of a server: who comes is admitted, unless the process has no descriptors left."""

import contextlib
import errno
import os
import selectors
import socket
import time
from collections.abc import Iterable
from typing import Final

from provisioner.support import logs
from provisioner.support.http.connection import abort
from provisioner.support.http.peers import PeerTable

_ACCEPTS_AT_ONCE: Final = 64
_PAUSE_SECONDS: Final = 0.2
_NEVER: Final = float("inf")
_OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_log = logs.get_logger(__name__)


class ListeningSockets:
    """Of the one thread of a server, which calls `accept` where the poller tells of one of them."""

    def __init__(self, sockets: Iterable[socket.socket], peers: PeerTable) -> None:
        self.sockets, self._peers = list(sockets), peers
        self._accepting = False
        self._accept_at = 0.0
        self._spare = _spare()

    def accept_on(self) -> None:
        """The poller tells of them, unless they rest."""
        if self._accepting or time.monotonic() < self._accept_at:
            return
        for listener in self.sockets:
            listener.setblocking(False)
            self._peers.poller.register(listener, selectors.EVENT_READ, listener)
        self._accepting = True

    def _accept_off(self, until: float) -> None:
        for listener in self.sockets:
            self._peers.poller.unregister(listener)
        self._accepting, self._accept_at = False, until

    def close(self) -> None:
        """Take nobody more; the descriptor that was kept for that is given up."""
        if self._accepting:
            self._accept_off(_NEVER)
        for listener in self.sockets:
            listener.close()
        self._close_spare()

    def accept(self, listener: socket.socket) -> None:
        """Take in who waits at one of them."""
        for _ in range(_ACCEPTS_AT_ONCE):
            if not self._accepting:
                return
            try:
                sock, address = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_DESCRIPTORS:
                    self._find_descriptor(listener)
                elif error.errno != errno.ECONNABORTED:
                    _log.warning("Failed to accept a connection", server=self._peers.server, error=str(error))
                    self._accept_off(time.monotonic() + _PAUSE_SECONDS)
                continue
            if self._peers.has_room():
                self._peers.admit(sock, (str(address[0]), str(address[1])))
            else:
                abort(sock)  # all others are being answered

    def _find_descriptor(self, listener: socket.socket) -> None:
        """The process may open no more: the slowest goes, or else whoever comes."""
        if self._peers.evict():
            return
        if self._close_spare():
            with contextlib.suppress(OSError):
                abort(listener.accept()[0])
        self._spare = _spare()
        if self._spare is None:
            self._accept_off(time.monotonic() + _PAUSE_SECONDS)

    def _close_spare(self) -> bool:
        """Whether there was one."""
        spare, self._spare = self._spare, None
        if spare is not None:
            os.close(spare)
        return spare is not None


def _spare() -> int | None:
    """A descriptor to be given up when there is no other."""
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
