"""What the API server itself has now, asked past every cache: `survey`. One object that cannot be decoded spoils no list.

No resourceVersion is sent, so every answer is a quorum read: it holds all that was written before it was asked for.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from provisioner.apis.meta import key_of
from provisioner.kube.client import PAGE_SIZE, Client
from provisioner.kube.errors import ApiError
from provisioner.kube.resources import Resource, identity_in
from provisioner.values import jsontext

T = TypeVar("T")

READ_TIMEOUT_SECONDS: Final = 10.0
TRIES: Final = 2
_WAIT_SECONDS: Final = 60.0
_MOST_TEXT: Final = 200


@dataclass(frozen=True, slots=True)
class Unreadable:
    """One object of a list that cannot be decoded; its identity is "" where not even that can be read.

    Attributes:
        raw: its bytes.
        error: why it cannot be decoded.
    """

    name: str
    namespace: str
    uid: str
    raw: bytes
    error: str

    @property
    def key(self) -> str:
        """As of `meta.key_of`; "" where it cannot be read."""
        return key_of(self)

    def __str__(self) -> str:
        return self.key or "an object whose name cannot be read"


@dataclass(frozen=True, slots=True)
class Survey(Generic[T]):
    """Every object that the server had at one instant after it was asked, in the server's order."""

    objects: tuple[T, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()


def survey(
    client: Client,
    resource: Resource[Any],
    *,
    decode: Callable[[bytes], T],
    namespace: str = "",
    field_selector: str = "",
) -> Survey[T]:
    """List a kind at the API server, page by page; the pages are of one instant.

    Args:
        client: to the server.
        resource: the kind.
        namespace: "" is all of them.
        decode: what is wanted of each object, fields left out that are nested too deeply; whatever it raises makes it `Unreadable`.
        field_selector: in the API's own syntax, "spec.nodeName=a".

    Raises:
        ApiError: the list is not known; nothing may be concluded.
    """
    found: list[T] = []
    unreadable: list[Unreadable] = []
    for one in surveyed(client, resource, decode=decode, namespace=namespace, field_selector=field_selector):
        if isinstance(one, Unreadable):
            unreadable.append(one)
        else:
            found.append(one)
    return Survey(tuple(found), tuple(unreadable))


def surveyed(
    client: Client,
    resource: Resource[Any],
    *,
    decode: Callable[[bytes], T],
    namespace: str = "",
    field_selector: str = "",
    page: int = PAGE_SIZE,
) -> Iterator[T | Unreadable]:
    """As `survey`, one after the other as the pages arrive: for who may stop in the middle. One page is in memory at a time."""
    selectors = {"fieldSelector": field_selector}
    for item in client.items(resource, namespace, selectors, page, read_timeout=READ_TIMEOUT_SECONDS, tries=TRIES):
        try:
            yield jsontext.decode_trimmed(decode, item)[0]
        except Exception as error:  # noqa: BLE001 - whatever the decoder raises concerns this object alone
            known = identity_in(item)
            why = (str(error) or "it is damaged")[:_MOST_TEXT]
            yield Unreadable(known.name, known.namespace, known.uid, bytes(item), why)


class Shared(Generic[T]):
    """One call for many callers at a time: each gets an answer that was begun after it had asked. Thread-safe.

    Args:
        call: what is shared; whatever it raises is raised to all who wait for it.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._changed = threading.Condition()
        self._begun = 0
        self._ended = 0
        self._answer: Callable[[], T] = call

    def get(self) -> T:
        """The answer of a call that begins now, or of the next one where one is under way.

        Raises:
            ApiError: calls before this one take too long, or the call's own.
        """
        with self._changed:
            wanted = self._begun + 1
            if not self._changed.wait_for(lambda: self._ended >= wanted or self._begun == self._ended, _WAIT_SECONDS):
                raise ApiError(0, "Timeout", f"no answer arrived within {_WAIT_SECONDS:.0f} s")
            if self._ended >= wanted:
                answer = self._answer
            else:
                self._begun += 1
                answer = self._run
        return answer()

    def _run(self) -> T:
        answer: Callable[[], T] = _raising(ApiError(0, "Interrupted", "the call was interrupted"))
        try:
            value = self._call()
            answer = lambda: value  # noqa: E731 - read once, by whoever asked
        except Exception as error:  # noqa: BLE001 - handed to those who asked
            answer = _raising(error)
        finally:
            with self._changed:
                self._answer, self._ended = answer, self._begun
                self._changed.notify_all()
        return answer()


def _raising(error: Exception) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer
