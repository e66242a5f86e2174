"""Asking the provisioner that leads: its Lease names its pod, a port-forward through the API server reaches that, the user's token says who asks.

The token goes to nobody but the API server and the pod that holds the Lease, or to a port of this machine's loopback (`--leader`).
"""

import re
import socket
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol, TypeVar

import h11
import msgspec
from msgspec.structs import replace

from provisioner.apis import names
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.config import ApiConnection
from provisioner.kube.errors import ApiError, Forbidden, NotFound
from provisioner.kube.forwarding import BoundedSocket, open_port
from provisioner.support.addresses import is_loopback
from provisioner.support.clock import Clock
from provisioner.values.errors import UndeterminedError, UserError
from provisioner.why.answers import NodeAnswer, PodAnswer
from provisioner.why.instant import NoSuchObjectError

SECONDS: Final = 25.0
MOST_BYTES: Final = 32 * 1024 * 1024
TRIES: Final = 2
"""A leader that has just changed, or that was asked too often, is asked once more."""
MOST_WAIT_SECONDS: Final = 5
"""A leader that says when to ask again is waited for so long; after more than that the user is told."""
_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
A = TypeVar("A", PodAnswer, NodeAnswer)


def is_name(text: str) -> bool:
    """Whether an object may be called so."""
    return _NAME.fullmatch(text) is not None


class NotAnsweredError(Exception):
    """The leader cannot be asked, or does not answer; the message is a clause that says why."""


class StreamBounds(NamedTuple):
    """Of one connection: from the first byte to the last, and what may come from the leader, or from whoever says to be it."""

    seconds: float = SECONDS
    most_bytes: int = MOST_BYTES


QUESTION: Final = StreamBounds()


class PortStream(Protocol):
    """A connection to the leader; `kube.forwarding.Forwarded` is one."""

    def send(self, data: bytes) -> None: ...

    def receive(self) -> bytes: ...

    def close(self) -> None: ...


class _Refusal(msgspec.Struct, frozen=True):
    error: str = ""
    leader: str = ""


@dataclass(frozen=True, slots=True)
class Leader:
    """A way to the leader.

    Attributes:
        source: who answers, in words.
        authorization: the header that says who asks.
        clock: waits until the leader may be asked again.
    """

    source: str
    opens: Callable[[], PortStream]
    authorization: str
    clock: Clock


class _Plain:
    """A connection to a port of this machine; in time and bounded as one through the API server."""

    def __init__(self, address: tuple[str, int], clock: Clock, bounds: "StreamBounds") -> None:
        deadline = clock.monotonic() + bounds.seconds
        self._socket = BoundedSocket(socket.create_connection(address, SECONDS), clock, deadline, bounds.most_bytes)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes:
        return self._socket.recv(65536)

    def close(self) -> None:
        self._socket.close()


def at(url: str, connection: ApiConnection, clock: Clock, bounds: StreamBounds = QUESTION) -> Leader:
    """The leader behind a port of this machine, as `kubectl port-forward` opens one.

    Raises:
        UserError: it is not `http://` and a loopback address with a port: the token would leave the machine as it is.
        NotAnsweredError: the user has no token.
    """
    parts = urllib.parse.urlsplit(url)
    try:
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if parts.scheme != "http" or not is_loopback(host) or port is None or parts.path not in ("", "/") or parts.query:
        raise UserError(f"--leader {url} is not http://127.0.0.1:PORT, the local end of a port-forward to the leader")
    return Leader(f"the leader at {url}", lambda: _Plain((host, port), clock, bounds), _token(connection), clock)


def through(
    connection: ApiConnection, lease: str, namespace: str, clock: Clock, bounds: StreamBounds = QUESTION
) -> Leader:
    """The leader by its Lease, through the API server.

    Raises:
        NotAnsweredError: nobody leads, or the user may not know who, or has no token.
    """
    authorization = _token(connection)
    try:
        found = Client(connection, clock).get(resources.LEASES, lease, namespace)
    except Forbidden:
        raise NotAnsweredError(f"you may not get Lease {namespace}/{lease}, which names the leader") from None
    except NotFound:
        raise NotAnsweredError(f"there is no Lease {namespace}/{lease}, so no provisioner runs") from None
    except ApiError as error:
        raise NotAnsweredError(f"Lease {namespace}/{lease} could not be read ({error.message})") from None
    holder, port = found.spec.holder_identity or "", found.metadata.annotations.get(names.WHY_PORT_ANNOTATION, "")
    pod = holder.rpartition("_")[0]
    if not holder:
        raise NotAnsweredError("no provisioner leads now")
    if not (port.isdigit() and 0 < int(port) < 65536):
        raise NotAnsweredError(f"the leader ({holder}) was started without --why-port")
    if not (_NAME.fullmatch(pod) and _NAME.fullmatch(namespace)):
        raise NotAnsweredError(f"the leader ({holder}) does not run in a pod")

    def opens() -> PortStream:
        try:
            return open_port(connection.endpoint(), namespace, pod, int(port), clock, *bounds)
        except Forbidden:
            text = f"you may not open port-forwards to pod {namespace}/{pod} (get and create of pods/portforward)"
            raise NotAnsweredError(text) from None

    return Leader(f"the leader (pod {namespace}/{pod})", opens, authorization, clock)


def _token(connection: ApiConnection) -> str:
    try:
        headers: Mapping[str, str] = connection.authorization()
    except ApiError as error:
        raise NotAnsweredError(error.message) from None
    found = next((value for key, value in headers.items() if key.lower() == "authorization"), "")
    if not found.lower().startswith("bearer "):
        raise NotAnsweredError(
            "your credentials have no token (the leader knows users by their tokens, not by certificates)"
        )
    return found


def ask(find: Callable[[], Leader], path: str, kind: type[A]) -> A:
    """What the leader answers.

    Args:
        find: the way to whoever leads now; asked again where another leads by then.
        path: of the question.
        kind: what is expected.

    Raises:
        NotAnsweredError: there is no answer.
        NoSuchObjectError: the leader says that there is no such object.
        UndeterminedError: it says that the user may not see it.
    """
    source, pieces = follow(find, path)
    try:
        return replace(msgspec.json.decode(b"".join(pieces), type=kind), source=source)
    except msgspec.MsgspecError as error:
        raise NotAnsweredError(f"{source} is of another version ({error})") from None


def follow(find: Callable[[], Leader], path: str) -> tuple[str, Iterator[bytes]]:
    """Who answers, and an answer that goes on, piece by piece, until the leader ends it. Whoever leaves before that closes the iterator.

    Raises:
        NotAnsweredError, NoSuchObjectError, UndeterminedError: as of `ask`; from the iterator the first of them.
    """
    why = ""
    for left in reversed(range(TRIES)):
        leader = find()
        head, bodies = _answered(leader, path)
        if head.status_code == HTTPStatus.OK:
            return leader.source, bodies
        why = _reason(b"".join(bodies), head.status_code)
        if head.status_code == HTTPStatus.NOT_FOUND:
            raise NoSuchObjectError(f"{why} (says {leader.source})")
        if head.status_code == HTTPStatus.FORBIDDEN:
            raise UndeterminedError(f"{why} (says {leader.source})")
        if head.status_code == HTTPStatus.TOO_MANY_REQUESTS:
            wait = _retry_after(head)
            if not left or wait > MOST_WAIT_SECONDS:
                raise NotAnsweredError(f"{why}; ask again in {wait} s")
            leader.clock.sleep(wait)
        elif head.status_code != HTTPStatus.SERVICE_UNAVAILABLE:
            break
    raise NotAnsweredError(why)


def _retry_after(head: h11.Response) -> int:
    """Seconds, of the header: our leader writes whole ones, and at least 1."""
    text = dict(head.headers).get(b"retry-after", b"").decode("ascii", "replace")
    return max(1, int(text)) if re.fullmatch(r"[0-9]{1,9}", text) else 1


def _answered(leader: Leader, path: str) -> tuple[h11.Response, Iterator[bytes]]:
    """The head of the answer to one request, and its body as it comes.

    Raises:
        NotAnsweredError: there is none, or, from the iterator, it breaks off.
    """
    events = _events(leader, path)
    head = next(events)
    if not isinstance(head, h11.Response):  # h11 gives the head first
        raise NotAnsweredError(f"{leader.source} answered without a status")
    return head, (bytes(one.data) for one in events if isinstance(one, h11.Data))


def _reason(body: bytes, status: int) -> str:
    try:
        refusal = msgspec.json.decode(body, type=_Refusal)
    except msgspec.MsgspecError:
        refusal = _Refusal()
    leads = f"; {refusal.leader} leads" if refusal.leader else ""
    return f"{refusal.error or f'the leader answered with status {status}'}{leads}"


def _events(leader: Leader, path: str) -> Iterator[h11.Response | h11.Data]:
    """The head of the answer to one request, then its body as it comes.

    Raises:
        NotAnsweredError: there is none, or it breaks off.
    """
    stream: PortStream | None = None
    try:
        stream = leader.opens()
        talk = h11.Connection(h11.CLIENT)
        headers = [("host", "localhost"), ("authorization", leader.authorization), ("connection", "close")]
        request = talk.send(h11.Request(method="GET", target=path, headers=headers)) or b""
        stream.send(request + (talk.send(h11.EndOfMessage()) or b""))
        while True:
            event = talk.next_event()
            if event is h11.NEED_DATA:
                talk.receive_data(stream.receive())
            elif isinstance(event, h11.Response | h11.Data):
                yield event
            elif isinstance(event, h11.EndOfMessage):
                return
            elif isinstance(event, h11.ConnectionClosed):
                raise OSError("the connection was closed")
    except ApiError as error:
        raise NotAnsweredError(error.message) from None
    except (OSError, h11.ProtocolError) as error:
        raise NotAnsweredError(f"{leader.source} did not answer ({error})") from None
    finally:
        if stream is not None:
            stream.close()
