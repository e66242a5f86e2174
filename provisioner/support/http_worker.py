"""gunicorn's gthread worker, without threads that wait for silent connections.

A Go client (kube-apiserver, kube-scheduler) opens a connection for each request that finds no idle one, then often sends
that request over another that became free first, and keeps the new one for later. gthread gives each new connection a
thread at once, which waits five seconds for the first byte and five more for a request: eight such connections stop a
worker with eight threads. Measured, 50 requests at a time over TLS: 12 requests/s, some of 10 s; with this worker 850/s.

Here the poller waits for the first byte, for each step of the TLS handshake and for the first request, as it does
between requests; a connection has a thread only while a request of it is read and answered.
"""

import errno
import selectors
import socket
import ssl
import time
from functools import partial
from typing import Any

from gunicorn import http, sock
from gunicorn.workers.gthread import TConn, ThreadWorker

HANDSHAKE_SECONDS = 10.0
"""How long a connection may take until its handshake is done, or (without TLS) its first byte has come."""

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
        connection.timeout = time.monotonic() + HANDSHAKE_SECONDS
        self.pending_conns.append(connection)
        self._wait(connection, selectors.EVENT_READ)

    def _wait(self, connection: Any, events: int) -> None:
        ready = self._shake if self.cfg.is_ssl else self.on_pending_socket_readable
        self.poller.register(connection.sock, events, partial(ready, connection))

    def _shake(self, connection: Any, _: socket.socket) -> None:
        """One step of the handshake: it ends in a connection like one between two requests, or in none."""
        self.poller.unregister(connection.sock)
        try:
            if not isinstance(connection.sock, ssl.SSLSocket):
                connection.sock = sock.ssl_wrap_socket(connection.sock, self.cfg)
                connection.sock.setblocking(False)
            connection.sock.do_handshake()
        except ssl.SSLWantReadError:
            return self._wait(connection, selectors.EVENT_READ)
        except ssl.SSLWantWriteError:
            return self._wait(connection, selectors.EVENT_WRITE)
        except OSError as error:  # ssl.SSLError is one: a port scanner, a client that trusts another CA, a peer gone
            self.log.debug("a handshake failed: %s", error)
            self.pending_conns.remove(connection)
            self.nr_conns -= 1
            return connection.close()  # type: ignore[no-any-return]
        self.pending_conns.remove(connection)
        connection.initialized = True
        connection.parser = http.get_parser(self.cfg, connection.sock, connection.client)
        if connection.sock.pending():  # a request came with the last step: the poller would not see it
            return self.enqueue_req(connection)  # type: ignore[no-any-return]
        connection.set_timeout()
        self.keepalived_conns.append(connection)
        readable = partial(self.on_client_socket_readable, connection)
        self.poller.register(connection.sock, selectors.EVENT_READ, readable)
        return None
