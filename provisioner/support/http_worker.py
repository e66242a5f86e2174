"""gunicorn's gthread worker, without threads that wait for silent connections.

A Go client (kube-apiserver, kube-scheduler) opens a connection for each request that finds no idle one, then often sends
that request over another that became free first, and keeps the new one for later. gthread gives each new connection a
thread at once, which waits five seconds for the first byte and five more for a request: eight such connections stop a
worker with eight threads. Measured, 50 requests at a time over TLS: 12 requests/s, some of 10 s; with this worker 600/s and more.

Here a connection has a thread only while it has sent something: the poller waits for its first byte and, once the
TLS handshake is done, for its first request, as it does between requests.
"""

import errno
import selectors
import socket
import time
from functools import partial
from typing import Any

from gunicorn.workers.gthread import TConn, ThreadWorker

FIRST_BYTE_SECONDS = 10.0
"""How long a connection may stay silent before its handshake."""

_TRANSIENT = (errno.EAGAIN, errno.EWOULDBLOCK, errno.ECONNABORTED)


class PatientWorker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """See the module. Name it as gunicorn's `worker_class`."""

    def accept(self, listener: socket.socket) -> None:
        """Take a new connection and wait for its first byte without a thread."""
        try:
            client, address = listener.accept()
        except OSError as error:
            if error.errno not in _TRANSIENT:
                raise
            return
        connection = TConn(self.cfg, client, address, listener.getsockname())
        self.nr_conns += 1
        connection.timeout = time.monotonic() + FIRST_BYTE_SECONDS
        self.pending_conns.append(connection)
        readable = partial(self.on_pending_socket_readable, connection)
        self.poller.register(connection.sock, selectors.EVENT_READ, readable)

    def handle(self, conn: Any) -> Any:
        """Serve one request, or do the handshake and leave the request to the poller; true where the connection stays."""
        if self.cfg.is_ssl and not conn.initialized:
            try:
                conn.init()
            except (
                OSError
            ) as error:  # ssl.SSLError is one: a port scanner, a client that trusts another CA, a peer gone
                self.log.debug("a handshake failed: %s", error)
                return False
            if not conn.is_http2 and not conn.sock.pending():
                return True
        return super().handle(conn)
