"""A TCP proxy on loopback between a client and the API server, which a test can cut, close or freeze."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from provisioner.support.clock import SystemClock

_PIECE = 65536


class TcpProxy:
    """Forwards bytes to one port; TLS passes through untouched.

    Attributes:
        port: where it listens.
        accepted: when each connection was made, in monotonic seconds; those that were refused at once included.
    """

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._flowing = threading.Event()
        self._flowing.set()
        self._open = True
        self._clock = SystemClock()
        self.accepted: list[float] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Break every connection there is; new ones are welcome."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def shut(self) -> None:
        """Break every connection and hang up on new ones, until `reopen`."""
        self._open = False
        self.cut()

    def reopen(self) -> None:
        """Be there again."""
        self._open = True

    def freeze(self) -> None:
        """Keep every connection but pass nothing on, as a network that swallows packets; until `thaw`."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Pass on what was held back and what comes."""
        self._flowing.set()

    def close(self) -> None:
        """Stop for good."""
        self.shut()
        self.thaw()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
        self.cut()  # what was accepted while we shut

    def kubeconfig(self, original: Path, target: Path) -> str:
        """Write a copy of a kubeconfig that leads through this proxy; its path."""
        text = original.read_text()
        address = f"127.0.0.1:{self._target[1]}"
        assert address in text, f"{original} does not lead to {address}"
        target.write_text(text.replace(address, f"127.0.0.1:{self.port}"))
        target.chmod(0o600)
        return str(target)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.accepted.append(self._clock.monotonic())
            if not self._open:
                near.close()
                continue
            try:
                far = socket.create_connection(self._target, timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                is_open = self._open
                if is_open:
                    self._pairs.append((near, far))
            if not is_open:  # shut meanwhile
                near.close()
                far.close()
                continue
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE):
                self._flowing.wait()
                sink.sendall(piece)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def proxy_to(port: int) -> Iterator[TcpProxy]:
    """A proxy for one block."""
    proxy = TcpProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
