"""HTTPS requests to hosts that strangers name: `Transport`.

The name is resolved once, each address is judged, and the connection goes to the address that was judged: a second answer of the DNS changes nothing.
The certificate must still be for the name. There are no redirects, no proxies, no compression and no connections that stay open; every
byte is read against one deadline, and an answer that is too large is given up.
"""

import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import h11

from webhook.images.references import Host
from webhook.images.trust import Address, Trust

USER_AGENT: Final = "dovetail-webhook"
SILENCE_SECONDS: Final = 5.0
"""How long a connection, or the next bytes of an answer, are waited for."""
_MAX_HEADERS: Final = 32 * 1024
_READ: Final = 64 * 1024
_ADDRESSES_TRIED: Final = 3
_MAX_EVENTS: Final = 16 * 1024
"""Chunks of a body, and answers that are only information: each takes h11 4 us, and 4 MB in chunks of a byte or two 8 s and 100 MB of memory."""
_CHALLENGES: Final = "www-authenticate"

Resolve = Callable[[str, int], Iterable[str]]


class TransportError(Exception):
    """No answer that could be used; the message says why."""


class RegistryRefusedError(TransportError):
    """The host may not be talked to."""


class TooLargeError(TransportError):
    """The host answers, with more than is taken."""


@dataclass(frozen=True, slots=True)
class RegistryReply:
    """What a host answered.

    Attributes:
        headers: names in lower case; of equal names the last, but all challenges in `www-authenticate`.
        body: whole.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


def addresses_of(name: str, port: int) -> list[str]:
    """What the resolver of this machine says. It takes as long as its configuration allows."""
    return list(dict.fromkeys(str(one[4][0]) for one in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)))


class Transport:
    """Asks one host after another; thread-safe, keeps nothing open.

    Args:
        trust: which addresses may be connected to.
        context: TLS as a client; it checks certificates and names.
        monotonic: seconds that never go back.
        resolve: addresses of a host name.
    """

    def __init__(
        self, trust: Trust, context: ssl.SSLContext, monotonic: Callable[[], float], resolve: Resolve = addresses_of
    ) -> None:
        self._trust, self._context, self._monotonic, self._resolve = trust, context, monotonic, resolve

    def ask(
        self, method: str, host: Host, target: str, headers: Mapping[str, str], most: int, deadline: float
    ) -> RegistryReply:
        """One request.

        Args:
            method: GET or HEAD.
            host: that is asked.
            target: path and query, in ASCII.
            headers: of the request, beside those that every request has.
            most: bytes of the body.
            deadline: on `monotonic`, for everything together.

        Raises:
            RegistryRefusedError: every address of the host is one that is never connected to.
            TooLargeError: the body has more bytes than `most`, or the answer too many pieces.
            TransportError: it does not answer in time, or not in HTTP/1.1 over TLS.
        """
        request = h11.Request(
            method=method,
            target=target,
            headers=[
                ("Host", str(host)),
                ("User-Agent", USER_AGENT),
                ("Accept-Encoding", "identity"),
                ("Connection", "close"),
                *headers.items(),
            ],
        )
        try:
            with self._connected(host, deadline) as connection:
                return self._answer(connection, request, most, deadline)
        except (OSError, h11.ProtocolError, UnicodeError) as error:
            raise TransportError(f"{host}: {type(error).__name__}: {error}"[:300]) from error

    def _connected(self, host: Host, deadline: float) -> ssl.SSLSocket:
        last: Exception | None = None
        for address in self._addresses(host)[:_ADDRESSES_TRIED]:
            try:
                plain = socket.create_connection((str(address), host.port), timeout=self._left(deadline))
            except OSError as error:
                last = error
                continue
            try:
                plain.settimeout(self._left(deadline))
                return self._context.wrap_socket(plain, server_hostname=host.name)
            except BaseException:
                plain.close()
                raise
        raise TransportError(f"{host}: {last or 'no address'}")

    def _addresses(self, host: Host) -> list[Address]:
        found = [ipaddress.ip_address(text.partition("%")[0]) for text in self._resolve(host.name, host.port)]
        allowed = [address for address in found if self._trust.reaches(address)]
        if found and not allowed:
            raise RegistryRefusedError(
                f"{host} has the address {found[0]}, which is not public and not in --image-registry-networks"
            )
        return allowed

    def _answer(self, connection: ssl.SSLSocket, request: h11.Request, most: int, deadline: float) -> RegistryReply:
        http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEADERS)
        sent = (http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b"")
        connection.settimeout(self._left(deadline))
        connection.sendall(sent)
        response: h11.Response | None = None
        body, size, events = [], 0, 0
        while True:
            event = http.next_event()
            events += 1
            if events > _MAX_EVENTS:
                raise TooLargeError("the response consists of too many pieces")
            if event is h11.NEED_DATA:
                connection.settimeout(self._left(deadline))
                http.receive_data(connection.recv(_READ))
            elif isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                size += len(event.data)
                if size > most:
                    raise TooLargeError(f"the response is larger than {most} bytes")
                body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and response is not None:
                listed = [(name.decode("ascii"), value.decode("latin-1")) for name, value in response.headers]
                # a registry may offer Bearer and Basic in a header each, as Gitea does
                challenges = ", ".join(value for name, value in listed if name == _CHALLENGES)
                return RegistryReply(response.status_code, {**dict(listed), _CHALLENGES: challenges}, b"".join(body))
            elif not isinstance(event, h11.InformationalResponse):
                raise TransportError("the connection ended before the response was complete")

    def _left(self, deadline: float) -> float:
        left = deadline - self._monotonic()
        if left <= 0:
            raise TransportError("the lookup timed out")
        return min(SILENCE_SECONDS, left)
