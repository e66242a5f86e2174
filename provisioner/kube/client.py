"""Reads and writes of single objects and small lists; for whole kinds that are read all the time use `watch.Reflector`."""

import functools
import itertools
import random
import threading
import urllib.parse
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeVar

import msgspec

from provisioner.kube.config import READ_TIMEOUT_SECONDS, TOTAL_TIMEOUT_SECONDS, Api, HttpAnswer
from provisioner.kube.errors import (
    ApiError,
    ConnectionFailed,
    DecodeError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    error_from,
)
from provisioner.kube.resources import PartialIdentity, Resource, identity_in
from provisioner.kube.sending import Permit
from provisioner.support import metrics
from provisioner.support.backoff import doubling
from provisioner.support.clock import Clock
from provisioner.values import jsontext

T = TypeVar("T")
PatchKind = Literal["merge", "json", "strategic"]

PAGE_SIZE = 500
MAX_TRIES = 4
CALL_SECONDS = 120.0  # of one call with all its tries: none begins later
MAX_RETRY_AFTER_SECONDS = 10.0
BACKOFF_BASE_SECONDS = 0.2
BACKOFF_CAP_SECONDS = 2.0
MAY_LAND_SECONDS = 60.0
"""For so long after its end a write without an answer may still be carried out: kube-apiserver gives up what takes longer (`--request-timeout`)."""
_MOST_UNANSWERED = 1000

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_UNANSWERED = frozenset({502, 504})
"""Statuses of who waited for the answer in our place."""
_JSON = {"content-type": "application/json"}
_PATCH_TYPES: Mapping[str, Mapping[str, str]] = {
    "merge": {"content-type": "application/merge-patch+json"},
    "json": {"content-type": "application/json-patch+json"},
    "strategic": {"content-type": "application/strategic-merge-patch+json"},
    "apply": {"content-type": "application/apply-patch+yaml"},  # JSON is YAML
}

_NO_SELECTORS: Mapping[str, str] = {}
METADATA_ONLY: Mapping[str, str] = {"accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
_METADATA_OF_ONE: Mapping[str, str] = {"accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
_IDENTITY_SECONDS, _IDENTITY_TRIES = (5.0, 10.0), 2
"""Timeouts of one try, and tries, of what is asked just before something ends: nobody waits long for that."""

encode = msgspec.json.Encoder().encode

_REQUESTS = metrics.counter(
    "dovetail_kube_requests_total",
    "Requests to the API server, excluding watches; code 0 means that no response arrived.",
    ("method", "code"),
)
_SECONDS = metrics.histogram(
    "dovetail_kube_request_duration_seconds",
    "Time from sending a request to the API server to the end of its response.",
    ("method",),
)
_THROTTLED = metrics.counter(
    "dovetail_kube_throttled_seconds_total", "Time that requests waited for the client-side rate limiter."
)


class _ListMeta(msgspec.Struct, frozen=True, gc=False):
    resourceVersion: str = ""  # noqa: N815  (wire name)
    continue_: str = msgspec.field(default="", name="continue")


class ListPage(msgspec.Struct, frozen=True):
    """One page of a list; items stay undecoded bytes."""

    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


decode_page = msgspec.json.Decoder(ListPage).decode
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode


def page_by_brackets(data: bytes) -> tuple[ListPage, bool] | None:
    """A page that the decoder refuses, taken apart by its brackets, so that one bad item costs itself alone.

    Returns:
        The page, and whether every item is JSON: one that is not may have swallowed those behind it. None where there is no telling.
    """
    version, token = ("metadata", "resourceVersion"), ("metadata", "continue")
    found = jsontext.strings_at(data, (version, token))
    items = jsontext.elements(data, "items")
    if items is None or version not in found:
        return None
    meta = _ListMeta(resourceVersion=found[version], continue_=found.get(token, ""))
    return ListPage(metadata=meta, items=[msgspec.Raw(item) for item in items]), all(map(_is_json, items))


def _is_json(text: bytes) -> bool:
    try:
        jsontext.decode_trimmed(_decode_raw, text)
    except (RecursionError, ValueError):
        return False
    return True


class Client:
    """Talks to one API server; thread-safe, cheap, shared by all controllers.

    Every request waits for its turn under the connection's rate limit. What cannot have been carried out is tried
    again, at most 4 times in all: 429 after the time the server names, refused connections and 5xx after a short back-off. A
    POST that may have arrived is never sent twice unless its caller says that this is harmless.

    Every method raises one of `errors.ApiError`, within bounded time: a connection is waited for 5 s; 30 s of silence end a try, and 65 s in all;
    no try begins later than 120 s after the call.

    Args:
        permit: asked before every try of every request that may change something, and once more when its bytes are about to go out; what it
            raises comes out of the method. When it ends, answers are waited for no longer. None: everything is permitted.

    Attributes:
        writes: requests that change something, sent so far, by (verb, resource), e.g. ("patch", "nodes"),
            ("create", "nodeclaims"), ("patch", "nodeclaims/status"), ("create", "pods/eviction"). Retries count.
        writing: such requests under way now.
        unanswered: such requests that were sent, got no answer, or one of a gateway that got none, and may still be carried out.
    """

    def __init__(
        self, connection: Api, clock: Clock, permit: Permit | None = None, chance: random.Random | None = None
    ) -> None:
        self.connection = connection
        self.permit = permit
        self._clock = clock
        self._chance = chance if chance is not None else random.Random()
        self._lock = threading.Lock()
        self.writes: Counter[tuple[str, str]] = Counter()
        self.writing = 0
        self._unanswered: deque[float] = deque(maxlen=_MOST_UNANSWERED)  # monotonic seconds at which they ended

    def __repr__(self) -> str:
        return f"<Client of {self.connection.host}, {sum(self.writes.values())} writes>"

    @property
    def unanswered(self) -> int:
        """See the class."""
        since = self._clock.monotonic() - MAY_LAND_SECONDS
        with self._lock:
            return sum(1 for at in self._unanswered if at > since)

    def under(self, permit: Permit) -> "Client":
        """A client over the same connection that writes only while it is permitted."""
        return Client(self.connection, self._clock, permit, self._chance)

    def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        """Read one object from the server, not from a cache."""
        return _decode(resource, self._send("GET", resource.path(namespace, name)))

    def find(self, resource: Resource[T], name: str, namespace: str = "") -> T | None:
        """The same, or None where the server has none."""
        try:
            return self.get(resource, name, namespace)
        except NotFound:
            return None

    def identity(self, resource: Resource[Any], name: str) -> PartialIdentity:
        """Which version of an object without a namespace the server has; nothing but its metadata is sent.

        Raises:
            NotFound: it is gone.
        """
        path = resource.path(name=name)
        timeouts, tries = _IDENTITY_SECONDS, _IDENTITY_TRIES
        return identity_in(self._send("GET", path, headers=_METADATA_OF_ONE, timeouts=timeouts, tries=tries))

    def identities(self, resource: Resource[Any], field_selector: str) -> tuple[tuple[PartialIdentity, ...], str]:
        """Which objects the server has in all namespaces, and the version of the list; nothing but metadata is sent, in one answer."""
        path = resource.path()
        body = self._send(
            "GET",
            path,
            query={"fieldSelector": field_selector},
            headers=METADATA_ONLY,
            timeouts=_IDENTITY_SECONDS,
            tries=_IDENTITY_TRIES,
        )
        page = read_page(body, path)
        return tuple(map(identity_in, page.items or ())), page.metadata.resourceVersion

    def list(
        self,
        resource: Resource[T],
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE_SIZE,
        most: int | None = None,
    ) -> list[T]:
        """Read every object that the selectors pick, page by page.

        Args:
            resource: the kind.
            namespace: "" is all of them.
            label_selector: in the API's own syntax, "a=b,c in (d,e)".
            field_selector: likewise, "spec.nodeName=a".
            limit: objects a page; 0 is everything in one answer.
            most: after so many objects nothing more is read.

        Raises:
            DecodeError: an object is not as its kind should be; a list is whole or an error. Reflectors skip such objects.
            Gone: it took so long that the server dropped the snapshot; start again.
        """
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        found = itertools.islice(self.items(resource, namespace, selectors, limit), most)
        return [_decode(resource, item) for item in found]

    def items(
        self,
        resource: Resource[Any],
        namespace: str = "",
        selectors: Mapping[str, str] = _NO_SELECTORS,
        limit: int = PAGE_SIZE,
        *,
        read_timeout: float = READ_TIMEOUT_SECONDS,
        tries: int = MAX_TRIES,
    ) -> Iterator[msgspec.Raw]:
        """The objects of `list`, undecoded, as their pages arrive; the pages are of one instant, and one is in memory at a time."""
        path, token = resource.path(namespace), ""
        while True:
            query = {**selectors, "limit": str(limit or ""), "continue": token}
            timeouts = (read_timeout, TOTAL_TIMEOUT_SECONDS)
            page = read_page(self._send("GET", path, query=query, timeouts=timeouts, tries=tries), path)
            yield from page.items or ()
            token = page.metadata.continue_
            if not token:
                return

    def create(self, resource: Resource[T], body: object, namespace: str = "", *, retry: bool = False) -> T:
        """Create one object.

        Args:
            resource: the kind.
            body: anything msgspec encodes; apiVersion and kind included.
            namespace: where to.
            retry: send again even if a first try may have arrived; the caller can tell AlreadyExists by itself from its own success.
        """
        answer = self._send(
            "POST",
            resource.path(namespace),
            encode(body),
            headers=_JSON,
            counts=("create", resource.plural),
            repeatable=retry,
        )
        return _decode(resource, answer)

    def replace(self, resource: Resource[T], name: str, body: object, namespace: str = "", subresource: str = "") -> T:
        """Replace one object; with metadata.resourceVersion in the body, only if it is still at that version (else Conflict)."""
        answer = self._send(
            "PUT",
            resource.path(namespace, name, subresource),
            encode(body),
            headers=_JSON,
            counts=("update", _full_name(resource, subresource)),
        )
        return _decode(resource, answer)

    def patch(
        self,
        resource: Resource[T],
        name: str,
        body: object,
        namespace: str = "",
        subresource: str = "",
        *,
        kind: PatchKind = "merge",
    ) -> T:
        """Change some fields of one object.

        Args:
            resource: the kind.
            name: of the object.
            body: a merge patch (null removes a field), a list of JSON Patch operations, or a strategic merge patch. A merge patch
                with metadata.resourceVersion is guarded: Conflict if the object has changed since.
            namespace: of the object.
            subresource: e.g. "status".
            kind: which of the three. JSON patches are not sent twice when a first try may have arrived.
        """
        answer = self._send(
            "PATCH",
            resource.path(namespace, name, subresource),
            encode(body),
            headers=_PATCH_TYPES[kind],
            counts=("patch", _full_name(resource, subresource)),
            repeatable=kind != "json",
        )
        return _decode(resource, answer)

    def apply(
        self,
        resource: Resource[T],
        name: str,
        body: object,
        manager: str,
        namespace: str = "",
        subresource: str = "",
        *,
        force: bool = True,
    ) -> T:
        """Server-side apply: create the object, or own exactly the fields of `body` in it as `manager`.

        Raises:
            Conflict: without `force`, another manager owns one of them, with another value.
        """
        answer = self._send(
            "PATCH",
            resource.path(namespace, name, subresource),
            encode(body),
            query={"fieldManager": manager, "force": "true" if force else "false"},
            headers=_PATCH_TYPES["apply"],
            counts=("apply", _full_name(resource, subresource)),
        )
        return _decode(resource, answer)

    def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete one object.

        Args:
            resource: the kind.
            name: of the object.
            namespace: of the object.
            uid: only this very object (Conflict if another has the name now).
            resource_version: only at this version (Conflict otherwise).
            grace_seconds: None leaves it to the object; 0 is at once.

        Raises:
            NotFound: it is gone already.
        """
        preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
        options: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions:
            options["preconditions"] = preconditions
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        self._send(
            "DELETE", resource.path(namespace, name), encode(options), headers=_JSON, counts=("delete", resource.plural)
        )

    def evict(self, name: str, namespace: str, uid: str) -> None:
        """Ask for the eviction of one pod (policy/v1).

        Raises:
            TooManyRequests: a PodDisruptionBudget forbids it now, or the server is overloaded; never tried again here.
            NotFound: the pod is gone.
            Conflict: another pod has the name now.
            ServerError: with status 500: more than one budget covers the pod.
        """
        path = f"/api/v1/namespaces/{_quoted(namespace)}/pods/{_quoted(name)}/eviction"
        body: dict[str, object] = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        if uid:
            body["deleteOptions"] = {"preconditions": {"uid": uid}}
        self._send("POST", path, encode(body), headers=_JSON, counts=("create", "pods/eviction"), tries=1)

    def raw(
        self,
        method: str,
        path: str,
        body: object | None = None,
        query: Mapping[str, str] | None = None,
        *,
        content_type: str = "application/json",
        read_timeout: float = READ_TIMEOUT_SECONDS,
        total_timeout: float = TOTAL_TIMEOUT_SECONDS,
        retry: bool = False,
        tries: int = MAX_TRIES,
        urgent: bool = False,
    ) -> bytes:
        """Any request, for paths without a `Resource`: /readyz, /version, subresources.

        Args:
            method: HTTP verb, upper case.
            path: absolute, without query.
            body: bytes are sent as they are, anything else is encoded.
            query: parameters; empty values are left out.
            content_type: of the body.
            read_timeout: seconds without a byte before giving up.
            total_timeout: seconds for one try as a whole.
            retry: whether a POST may be sent again although it may have arrived.
            tries: requests at most.
            urgent: go ahead of the rate limit and of what waits for a connection; for what must not be late, as the renewal of a lease.
        """
        data = body if isinstance(body, bytes) or body is None else encode(body)
        return self._send(
            method,
            path,
            data,
            query=query,
            headers={"content-type": content_type} if data is not None else None,
            counts=None if method in ("GET", "HEAD", "OPTIONS") else (method.lower(), path),
            timeouts=(read_timeout, total_timeout),
            repeatable=retry or method != "POST",
            tries=tries,
            urgent=urgent,
        )

    def _send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        counts: tuple[str, str] | None = None,
        timeouts: tuple[float, float] = (READ_TIMEOUT_SECONDS, TOTAL_TIMEOUT_SECONDS),
        repeatable: bool | None = None,
        tries: int = MAX_TRIES,
        urgent: bool = False,
    ) -> bytes:
        """One request with its retries; the answer's body."""
        target = path + query_text(query)
        may_repeat = method != "POST" if repeatable is None else repeatable
        permit = self.permit if method not in _READING else None
        read, total = timeouts
        ask = functools.partial(
            self.connection.request,
            method,
            target,
            body=body,
            headers=headers,
            read_timeout=read,
            total_timeout=total,
            urgent=urgent,
            permit=permit,
        )
        deadline = self._clock.monotonic() + CALL_SECONDS
        for attempt in range(1, tries + 1):
            if not urgent:
                _THROTTLED.inc(self.connection.limiter.take())
            if permit is not None:
                permit.check()
            if counts is not None:
                with self._lock:
                    self.writes[counts] += 1
            try:
                return self._once(method, target, ask)
            except ApiError as error:
                wait = self._wait_before_retry(error, attempt, may_repeat=may_repeat)
                if wait is None or attempt == tries or self._clock.monotonic() + wait >= deadline:
                    raise
                self._clock.sleep(wait)
        raise AssertionError("the loop returns or raises")  # pragma: no cover

    def _once(self, method: str, target: str, ask: Callable[[], HttpAnswer]) -> bytes:
        begun, code = self._clock.monotonic(), 0
        writes, lost = method not in _READING, False
        with self._lock:
            self.writing += writes
        try:
            answer = ask()
            code = answer.status
        except ConnectionFailed as error:
            lost = error.maybe_applied
            raise
        finally:
            with self._lock:  # both at once: whoever waits for the last write sees what became of it
                self.writing -= writes
                if writes and (lost or code in _UNANSWERED):
                    self._unanswered.append(self._clock.monotonic())
            _REQUESTS.labels(method, str(code)).inc()
            _SECONDS.labels(method).observe(self._clock.monotonic() - begun)
        if 200 <= code < 300:
            return answer.data
        raise error_from(code, answer.data, retry_after=answer.headers.get("retry-after"), request=f"{method} {target}")

    def _wait_before_retry(self, error: ApiError, attempt: int, *, may_repeat: bool) -> float | None:
        """Seconds until another try makes sense; None: it does not."""
        backoff = doubling(attempt, base=BACKOFF_BASE_SECONDS, cap=BACKOFF_CAP_SECONDS, chance=self._chance)
        match error:
            case TooManyRequests():  # refused before anything was done, so any verb may be repeated
                return min(MAX_RETRY_AFTER_SECONDS, error.retry_after or backoff)
            case Unauthorized():
                return 0.0 if self.connection.refresh() else None
            case ConnectionFailed():
                return backoff if may_repeat or not error.maybe_applied else None
            case ServerError(status=500 | 502 | 503 | 504) if may_repeat:
                if error.status == 500 and error.retry_after is None:
                    return None  # a fault that will be there again
                return min(MAX_RETRY_AFTER_SECONDS, error.retry_after or backoff)
            case _:
                return None


def read_page(body: bytes, path: str) -> ListPage:
    """One page of a list; its items may hold fields that are nested too deeply to be decoded.

    Raises:
        DecodeError: it is no page, or an item in it is no JSON.
    """
    try:
        return decode_page(body)
    except (RecursionError, ValueError) as error:
        found = page_by_brackets(body)
        if found is None or not found[1]:
            raise DecodeError(200, "BadAnswer", str(error), None, f"GET {path}") from error
        return found[0]


def _decode(resource: Resource[T], data: bytes | msgspec.Raw) -> T:
    """The object, without fields that are nested too deeply to be read."""
    try:
        return jsontext.decode_trimmed(resource.decode, data)[0]
    except Exception as error:  # whatever it is, it concerns this object alone
        raise DecodeError(200, "BadObject", f"{resource}: {error}", None) from error


def _full_name(resource: Resource[Any], subresource: str) -> str:
    return f"{resource.plural}/{subresource}" if subresource else resource.plural


def query_text(query: Mapping[str, str] | None) -> str:
    """What stands behind a path; without what is ""."""
    given = {key: value for key, value in (query or {}).items() if value}
    return f"?{urllib.parse.urlencode(given)}" if given else ""


def _quoted(part: str) -> str:
    return urllib.parse.quote(part, safe="")
