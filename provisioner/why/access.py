"""Who asks and what they may see, by TokenReview and SubjectAccessReview at the API server; answers are kept for a few seconds.

A token is kept nowhere but in the request that brought it: what is remembered is filed under a keyed digest of it. Who is not known costs the
API server one review, so strangers have one small account of them together; who was accepted within the hour has one alone.
"""

import hashlib
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Generic, TypeVar

import msgspec

from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError
from provisioner.support.clock import Clock
from provisioner.values.bounded import put_newest
from provisioner.why.limits import Quota

T = TypeVar("T")

TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
REMEMBERED_SECONDS: Final = 10.0
"""A right that was taken away, and a token that was revoked, are good for so long here."""
MOST_REMEMBERED: Final = 4096
REVIEW_SECONDS: Final = 4.0
STRANGERS: Final = (2.0, 20.0)
"""Tokens that are reviewed a second, and at once: of everybody who is not known together."""
KNOWN: Final = (0.5, 5.0)
"""Likewise, of one user whose token was accepted within the last `KNOWN_SECONDS`; strangers do not use up that."""
KNOWN_SECONDS: Final = 3600.0
REVIEWS: Final = (20.0, 100.0)
"""Access reviews and tokens of known users likewise, of everybody together."""
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,12288}")
TOKEN_NEEDED: Final = "the request has no bearer token; set the header Authorization"


class AccessError(Exception):
    """Somebody is refused, or nobody can say whether they may.

    Attributes:
        status: of the answer.
        text: one sentence for whoever asked.
        retry_after: seconds after which another try makes sense; None where none does.
    """

    def __init__(self, status: HTTPStatus, text: str, retry_after: float | None = None) -> None:
        super().__init__(status, text, retry_after)
        self.status, self.text, self.retry_after = status, text, retry_after

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class User:
    """Whom the API server says that a token belongs to."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Right:
    """What somebody wants to do; fields as of SubjectAccessReview.spec.resourceAttributes."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""


class _UserInfo(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _UserInfo = msgspec.field(default_factory=_UserInfo)


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False
    denied: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


@dataclass(slots=True)
class _Remembered(Generic[T]):
    """Verdicts that are not too old. Thread-safe."""

    clock: Clock
    seconds: float = REMEMBERED_SECONDS
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _known: OrderedDict[object, tuple[float, T]] = field(default_factory=OrderedDict)

    def get(self, key: object) -> tuple[T] | None:
        with self._lock:
            known = self._known.get(key)
            return (known[1],) if known is not None and known[0] > self.clock.monotonic() else None

    def put(self, key: object, value: T) -> T:
        with self._lock:
            put_newest(self._known, key, (self.clock.monotonic() + self.seconds, value), MOST_REMEMBERED)
        return value

    def __len__(self) -> int:
        return len(self._known)


class Access:
    """Asks the API server, a few times a second at most. Thread-safe; `client` needs the right to create both reviews."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._salt = secrets.token_bytes(32)
        self._users: _Remembered[User | None] = _Remembered(clock)
        self._accepted: _Remembered[str | None] = _Remembered(clock, KNOWN_SECONDS)  # names of users
        self._rights: _Remembered[bool] = _Remembered(clock)
        self._strangers, self._known, self._reviews = (Quota(*rate, clock) for rate in (STRANGERS, KNOWN, REVIEWS))

    def user(self, authorization: str | None) -> User:
        """Whose token this is.

        Args:
            authorization: the header of that name; None where there is none, or several.

        Raises:
            AccessError: nobody's, or it cannot be found out.
        """
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or _TOKEN.fullmatch(token) is None:
            raise AccessError(HTTPStatus.UNAUTHORIZED, TOKEN_NEEDED)
        key = hashlib.blake2b(token.encode(), key=self._salt).digest()
        known = self._users.get(key)
        if known is None:
            (name,) = self._accepted.get(key) or (None,)
            wait = self._strangers.take() if name is None else self._known.take(name) or self._reviews.take()
            if wait:
                raise AccessError(
                    HTTPStatus.TOO_MANY_REQUESTS, "too many tokens are being reviewed; try again later", wait
                )
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
            status = self._reviewed(TOKEN_REVIEWS, body, _TokenReview).status
            user = _user(status.user) if status.authenticated else None
            known = (self._users.put(key, user),)
            if user is not None or name is not None:
                self._accepted.put(key, user.name if user is not None else None)
        (found,) = known
        if found is None:
            raise AccessError(HTTPStatus.UNAUTHORIZED, "the API server does not accept this token")
        return found

    def may(self, user: User, right: Right) -> bool:
        """Whether somebody has a right.

        Raises:
            AccessError: it cannot be found out.
        """
        known = self._rights.get((user, right))
        if known is not None:
            return known[0]
        if wait := self._reviews.take():
            raise AccessError(
                HTTPStatus.TOO_MANY_REQUESTS, "too many permissions are being reviewed; try again later", wait
            )
        attributes = {"verb": right.verb, "group": right.group, "version": "*", "resource": right.resource}
        attributes |= {key: value for key, value in (("namespace", right.namespace), ("name", right.name)) if value}
        spec: dict[str, Any] = {"user": user.name, "groups": user.groups, "resourceAttributes": attributes}
        spec |= {"uid": user.uid, "extra": dict(user.extra)}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        status = self._reviewed(ACCESS_REVIEWS, body, _AccessReview).status
        return self._rights.put((user, right), status.allowed and not status.denied)

    def _reviewed(self, path: str, body: Mapping[str, Any], kind: type[T]) -> T:
        try:
            answer = self._client.raw(
                "POST", path, body, read_timeout=REVIEW_SECONDS, total_timeout=REVIEW_SECONDS, retry=True, tries=2
            )
            return msgspec.json.decode(answer, type=kind)
        except (ApiError, msgspec.MsgspecError) as error:  # what it says may quote the request
            status = error.status if isinstance(error, ApiError) else 0
            why = " (its role does not allow it)" if status == HTTPStatus.FORBIDDEN else ""
            text = f"the provisioner could not ask the API server about your permissions{why}"
            raise AccessError(HTTPStatus.SERVICE_UNAVAILABLE, text) from None


def _user(info: _UserInfo) -> User | None:
    if not info.username:
        return None
    extra = tuple((key, tuple(values)) for key, values in sorted((info.extra or {}).items()))
    return User(info.username, info.uid, tuple(info.groups or ()), extra)
