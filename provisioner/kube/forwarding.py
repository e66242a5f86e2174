"""One connection to a port of a pod, through the API server: what `kubectl port-forward` opens, without a local port.

It is the WebSocket form of pods/portforward (subprotocol v4.channel.k8s.io): of every message the first byte is the channel, 0 for what the port
says and takes, 1 for what went wrong; on each the first two bytes are the number of the port. The user needs the verbs get and create of
pods/portforward: the request is a GET, and Kubernetes 1.35 and newer ask for both.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from provisioner.kube.errors import ConnectionFailed, error_from
from provisioner.support.clock import Clock
from provisioner.values.message import Said

SUBPROTOCOL: Final = "v4.channel.k8s.io"
MOST_ERROR_BYTES: Final = 4096
_DATA, _ERROR = 0, 1
_PORT_BYTES: Final = 2
_MOST_AT_ONCE: Final = 65536


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an API server is, and who asks.

    Attributes:
        url: of the server, with the path below which it serves.
        tls: context and name for TLS, as `sslopt` of websocket-client; empty for plain HTTP.
        proxy: URL of a proxy; "" for none.
        headers: that say who asks.
    """

    url: str
    tls: Mapping[str, Any]
    proxy: str
    headers: Mapping[str, str]


class Socket(Protocol):
    """What of a WebSocket is used; websocket-client's is one."""

    def send_binary(self, payload: bytes) -> object: ...

    def recv(self) -> str | bytes: ...

    def close(self, *, timeout: int) -> None: ...


class BoundedSocket:
    """A socket that ends by a deadline and after so many bytes, however its peer cuts them up.

    A timeout of the socket counts for each read alone, and whoever reads a message asks for as many as its peer's pieces are; nor does
    websocket-client bound the length of a message. Everything else of the socket is as it was.

    Raises from `recv`, `send` and `sendall`:
        OSError: it broke, time is up, or more came.
    """

    def __init__(self, socket: Any, clock: Clock, deadline: float, most_bytes: int) -> None:
        self._socket, self._clock, self._deadline, self._bytes_left = socket, clock, deadline, most_bytes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def recv(self, size: int) -> bytes:
        """Like a socket's."""
        data: bytes = self._in_time(lambda: self._socket.recv(min(size, _MOST_AT_ONCE)))
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            raise OSError("it sent too much")
        return data

    def send(self, data: bytes) -> int:
        """Like a socket's."""
        return int(self._in_time(lambda: self._socket.send(data)))

    def sendall(self, data: bytes) -> None:
        """Like a socket's."""
        self._in_time(lambda: self._socket.sendall(data))

    def _in_time(self, act: Callable[[], Any]) -> Any:
        left = self._deadline - self._clock.monotonic()
        try:
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            return act()
        except TimeoutError:
            raise OSError("it took too long") from None


class Forwarded:
    """An open connection; not thread-safe. `receive` and `send` end when its `BoundedSocket` does.

    Raises from both:
        ConnectionFailed: it broke, was refused by the pod, or time is up.
    """

    def __init__(self, socket: Socket, about: str) -> None:
        self._socket, self._about = socket, about
        self._skip = {_DATA: _PORT_BYTES, _ERROR: _PORT_BYTES}

    def send(self, data: bytes) -> None:
        """Give the port all of this."""
        try:
            self._socket.send_binary(bytes((_DATA,)) + data)
        except Exception as error:
            raise self._failed(error) from error

    def receive(self) -> bytes:
        """What the port said next; b"" at the end."""
        while True:
            try:
                message = self._socket.recv()
            except Exception as error:
                if type(error).__name__ == "WebSocketConnectionClosedException":
                    return b""
                raise self._failed(error) from error
            if not message:
                return b""
            if isinstance(message, str):
                raise self._failed(Said("the API server sent text"))
            channel, data = message[0], message[1:]
            skipped = min(self._skip.get(channel, 0), len(data))
            if skipped:
                self._skip[channel] -= skipped
                data = data[skipped:]
            if data and channel == _ERROR:
                raise self._failed(data[:MOST_ERROR_BYTES].decode("utf-8", "replace").strip())
            if data and channel == _DATA:
                return data

    def close(self) -> None:
        """Give it up; waits for nobody."""
        self._socket.close(timeout=0)

    def _failed(self, why: object) -> ConnectionFailed:
        return ConnectionFailed(f"the connection to {self._about} broke: {why}")


def open_port(
    endpoint: Endpoint, namespace: str, pod: str, port: int, clock: Clock, seconds: float, most_bytes: int
) -> Forwarded:
    """Connect to a port on the loopback of a pod.

    Args:
        endpoint: the API server.
        namespace: of the pod,
        pod: and its name; both are known to be names, since they become part of a path.
        port: of the pod.
        clock: for the deadline.
        seconds: for everything that is done with the connection.
        most_bytes: that may come, what the WebSocket adds included.

    Raises:
        ApiError: the API server refused it, or cannot be reached.
    """
    import websocket  # noqa: PLC0415 - half a megabyte that only this needs

    deadline = clock.monotonic() + seconds

    class Bounded(websocket.WebSocket):  # type: ignore[misc]  # has no types
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "sock" and value is not None:  # set when it is connected: the handshake is bounded too
                value = BoundedSocket(value, clock, deadline, most_bytes)
            super().__setattr__(name, value)

    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/portforward"
    url = f"ws{endpoint.url.removeprefix('http').rstrip('/')}{path}?ports={port}"
    proxy = _proxy(endpoint.proxy)
    try:
        socket = websocket.create_connection(
            url,
            timeout=seconds,
            class_=Bounded,
            header=[f"{key}: {value}" for key, value in endpoint.headers.items()],
            subprotocols=[SUBPROTOCOL],
            sslopt=dict(endpoint.tls),
            redirect_limit=0,  # whoever is redirected to would get the token
            enable_multithread=False,
            suppress_origin=True,
            **proxy,
        )
    except websocket.WebSocketBadStatusException as error:
        body = error.resp_body or b""
        raise error_from(int(error.status_code), body, request=f"GET {path}") from None
    except (OSError, ValueError, websocket.WebSocketException) as error:
        raise ConnectionFailed(" ".join(str(error).split()) or Said("the connection was cut"), f"GET {path}") from None
    return Forwarded(socket, f"port {port} of pod {namespace}/{pod}")


def _proxy(url: str) -> dict[str, Any]:
    if not url:
        return {}
    parts = urlsplit(url)
    found: dict[str, Any] = {"http_proxy_host": parts.hostname, "http_proxy_port": parts.port, "proxy_type": "http"}
    if parts.username:
        found["http_proxy_auth"] = (parts.username, parts.password or "")
    return found
