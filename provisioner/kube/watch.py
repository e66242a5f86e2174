"""List-watch of one kind into a typed store: `Reflector`.

One thread a reflector. It asks for everything (WatchList where the server has it, else pages of 500), then follows the
changes, and goes on from the last version that it saw when the connection ends. When the server no longer knows that
version it asks for everything again and tells the handlers exactly what differs. Objects are decoded once, from the bytes of
the event. While the server is away it is asked at most once a second, less and less often.

No object can stop a watch, whoever wrote it. Fields nested too deeply for the decoder are left out and the rest is used. An object that
cannot be decoded at all is left out: it is counted, named in the log and in `Reflector.bad`, and what was known of it before stays, for it is
there. Its identity is then read from the bytes. Where that fails too, the object may be any of those that we know: a list that holds it implies
no deletions, and everything is listed again when the stream ends.
"""

import contextlib
import math
import random
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

import msgspec
import urllib3

from provisioner.apis.meta import key_of, version_number
from provisioner.kube.client import ListPage, decode_page, page_by_brackets, query_text
from provisioner.kube.config import Api, WatchStream, connection_failed
from provisioner.kube.errors import (
    ApiError,
    BadRequest,
    ConnectionFailed,
    DecodeError,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    TooManyRequests,
    Unauthorized,
    error_from,
)
from provisioner.kube.lag import WatchProbe
from provisioner.kube.resources import ObjectIdentity, PartialIdentity, Resource, identity_in
from provisioner.kube.watched_objects import WatchedObjects
from provisioner.support import heartbeat, logs, metrics
from provisioner.support.backoff import DecorrelatedJitter
from provisioner.support.clock import Clock, SystemClock
from provisioner.values import jsontext
from provisioner.values.message import Said

T = TypeVar("T")

PAGE_SIZE = 500
READ_TIMEOUT_SECONDS = (
    70.0  # longer than from one bookmark to the next: a stream that is opened anew has to wait for its first
)
WATCH_TIMEOUT_SECONDS = (300, 600)  # drawn anew for each watch, so that not all of them end at once
MIN_INTERVAL_SECONDS = 1.0  # between two requests of one reflector
MAX_BACKOFF_SECONDS = 15.0
MAX_RETRY_AFTER_SECONDS = 60.0
MAX_WATCH_LIST_FAILURES = 3  # streams that break off before everything was sent; then pages are tried
MIN_RELIST_SECONDS = 300.0  # between two lists that we ask for because something could not be read
PATIENCE_SECONDS = 300.0  # a watch that neither hears nor asks anything for so long hangs
SETTLED_SECONDS = 2.0  # a stream that has stood for so long brought everything that had happened before it was opened

_REQUESTS = metrics.counter(
    "dovetail_watch_requests_total", "List and watch requests to the API server.", ("resource",)
)
_RELISTS = metrics.counter(
    "dovetail_watch_relists_total", "Times that the complete list of objects was delivered.", ("resource",)
)
_BAD_NOW = metrics.gauge(
    "dovetail_watch_unreadable_objects",
    "Objects that are ignored, or read without fields that are nested too deeply.",
    ("resource",),
)
_OBJECTS = metrics.gauge("dovetail_watch_objects", "Objects in the cache.", ("resource",))
_STALENESS = metrics.gauge(
    "dovetail_watch_staleness_seconds", "Time since data from the API server was last processed.", ("resource",)
)

_LAG = metrics.gauge(
    "dovetail_watch_lag_seconds",
    "Age of the oldest state of the API server that the watch has not reached; up to 62 for a kind that does not change.",
    ("resource",),
)

_CHANGES: Final = ("ADDED", "MODIFIED", "DELETED")
_END_OF_INITIAL_EVENTS = "k8s.io/initial-events-end"
_TRIMMED = f"read without the fields that are nested more than {jsontext.MAX_DEPTH} levels deep"

_log = logs.get_logger(__name__)


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Mark(msgspec.Struct, frozen=True):
    """The metadata of a bookmark."""

    resource_version: str = msgspec.field(name="resourceVersion")
    annotations: dict[str, str] | None = None


class _Bookmark(msgspec.Struct, frozen=True):
    metadata: _Mark


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_bookmark = msgspec.json.Decoder(_Bookmark).decode
_TYPE = ("type",)


class Reflector(Generic[T]):
    """Keeps a store equal to what the server has of one kind.

    It tells functions of what it sees, in its thread, one call at a time, in the order of the server; the store holds the new state already. What
    they raise is logged and goes no further. One that takes long delays all that follow: put work into a queue.

    Args:
        changed: hears of each change: what is new has no old state, what is deleted no new one (the old one is the last that we knew).
        listed: hears that everything which was there when we asked has been told; after each complete list, the first and later ones.
        unreadable: hears of objects that cannot be decoded; the state known before, if any, stays. Parts of the identity may be "".
        field_selector: e.g. "spec.nodeName=". An object that leaves the selection arrives as one that is deleted.
        label_selector: likewise.
        namespace: "" is all of them.
        read_timeout: seconds without a byte after which the watch is opened anew (nothing is lost by that).
        page: objects a request, where the server streams no lists. A page is in memory twice while it arrives, and a pod may have 1.5 MB.

    Attributes:
        objects: what the server has, as far as we know; `store` and `bad` are its own.
        synced: set once everything has been delivered for the first time, `listed` included.
        relists: how often everything was asked for, the first time included.
    """

    def __init__(
        self,
        connection: Api,
        resource: Resource[T],
        *,
        changed: Callable[[T | None, T | None], None] | None = None,
        listed: Callable[[], None] | None = None,
        unreadable: Callable[[ObjectIdentity, Exception], None] | None = None,
        field_selector: str = "",
        label_selector: str = "",
        namespace: str = "",
        clock: Clock | None = None,
        rng: random.Random | None = None,
        read_timeout: float = READ_TIMEOUT_SECONDS,
        page: int = PAGE_SIZE,
    ) -> None:
        self._connection = connection
        self.resource = resource
        self.objects = WatchedObjects(resource, changed, listed, unreadable)
        self.store, self.bad = self.objects.store, self.objects.bad
        self._selectors = {"fieldSelector": field_selector, "labelSelector": label_selector}
        self._path = resource.path(namespace)
        self._clock = clock if clock is not None else SystemClock()
        self._rng = rng if rng is not None else random.Random()
        self._read_timeout = read_timeout
        self._page_size = page
        self._backoff = DecorrelatedJitter(MIN_INTERVAL_SECONDS, MAX_BACKOFF_SECONDS, self._rng)
        self._version = ""  # where to go on watching; "" asks for everything
        self._watch_list = True  # whether to ask for everything in a stream
        self._watch_list_refused = False  # for good: the server does not know it
        self._watch_list_failures = 0
        self._applied: float | None = None  # when something was last taken in
        self._opened: float | None = None  # since when the stream stands, where it brings changes
        self._garbled_at: str | None = None  # the version after which a line could not be read
        self._listed = float("-inf")  # when everything was last delivered
        self._blind = False  # something may have been missed: list everything when the stream ends
        self._asked: float | None = None
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._response: WatchStream | None = None
        self._thread: threading.Thread | None = None
        self._probe = WatchProbe(connection, self.objects, self._path, self._selectors, self._clock, self._stopping)
        self._pulse = heartbeat.pulse(f"watch of {self._path} {field_selector}".strip(), PATIENCE_SECONDS)
        self.synced = threading.Event()
        self._error: ApiError | None = None
        self.relists = 0
        self.requests = 0

    def __repr__(self) -> str:
        state = "synced" if self.synced.is_set() else "not synced"
        error = f", {trouble(self.error, self.resource)}" if self.error else ""
        return f"<Reflector {self.resource}: {len(self.store)} objects, {state}, at {self._version or 'none'}{error}>"

    def start(self) -> None:
        """Start the thread; once."""
        if self._thread is not None:
            raise RuntimeError(f"{self!r} was started before")
        name, itself = str(self.resource), weakref.ref(self)
        _OBJECTS.labels(name).set_function(lambda: len(found.store) if (found := itself()) is not None else 0)
        _BAD_NOW.labels(name).set_function(lambda: len(found.bad) if (found := itself()) is not None else 0)
        _STALENESS.labels(name).set_function(lambda: found.staleness() if (found := itself()) is not None else math.nan)
        _LAG.labels(name).set_function(lambda: found.lag() if (found := itself()) is not None else math.nan)
        self._thread = threading.Thread(target=self._run, name=f"watch-{self.resource.plural}", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """End the thread, whatever it waits for; the store stays as it is."""
        self._stopping.set()
        with self._lock:
            response = self._response
        if response is not None:
            _interrupt(response)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def staleness(self) -> float:
        """Seconds since what the server sent was last taken in: an event, a bookmark or a list. Infinite before the first.

        A kind in which nothing happens is silent: a stream that stands and brings nothing counts from when it was opened, and is opened anew
        after `read_timeout`. Only more than twice that is a sign of trouble.
        """
        fresh = [at for at in (self._applied, self._settled()) if at is not None]
        return max(0.0, self._clock.monotonic() - max(fresh)) if fresh else float("inf")

    @property
    def error(self) -> ApiError | None:
        """What ended the last stream; None as soon as something was taken in, or the next one stands."""
        return None if self._settled() is not None else self._error

    def _settled(self) -> float | None:
        """When the stream was opened, if it has stood for a while: whatever had happened before would have come by now."""
        opened = self._opened
        return opened if opened is not None and self._clock.monotonic() - opened >= SETTLED_SECONDS else None

    # How far it is behind

    def lag(self) -> float:
        """Seconds since the oldest probe that no event, bookmark or list has reached; 0 where all are reached. See `kube.lag`."""
        return self._probe.lag.seconds(version_number(self._version), self._clock.monotonic())

    def probe(self) -> None:
        """Ask which version the API server has now, and, where a bookmark is overdue, whether the cache equals what is there.

        Cost: a list of one object, metadata only; at most once a minute, and only of a watch that is late, the metadata of its whole selection.

        Raises:
            ApiError: it is not known.
        """
        if self.synced.is_set():
            self._probe.ask(self.lag)

    # The loop

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._pulse.beat()
            pause = max(self.step(), self._interval())
            if pause > 0:
                self._stopping.wait(pause)

    def step(self) -> float:
        """Ask for everything, or watch until the stream ends; what the thread does over and over.

        Returns:
            Seconds to wait before the next step.
        """
        try:
            if self._version:
                self._watch(initial=False)
            elif self._watch_list:
                self._watch(initial=True)
            else:
                self._list()
        except Exception as error:  # noqa: BLE001 - one bad object, or one handler that fails, stops no watch
            if not self._stopping.is_set():
                return self._pause_after(error)
        return 0.0

    def _pause_after(self, error: Exception) -> float:
        """What a failure means for the next request; seconds to wait before it."""
        if not isinstance(error, ApiError):
            _log.error("Watch failed; retrying", exc_info=error, resource=str(self.resource))
            self._version = ""
            self._error = ApiError(0, type(error).__name__, str(error))
            return self._backoff.next()
        known = type(self._error) is type(error)
        self._error = error
        if isinstance(error, Gone):
            self._version = ""
            _log.info("The resource version is too old; listing all objects again", resource=str(self.resource))
            return 0.0
        if isinstance(error, Unauthorized):
            self._connection.refresh()
        level = _log.debug if known else _log.warning
        level(
            "watch interrupted",
            resource=str(self.resource),
            error=trouble(error, self.resource),
            retry=not is_refused(error),
        )
        if isinstance(error, TooManyRequests) and error.retry_after:
            return min(MAX_RETRY_AFTER_SECONDS, error.retry_after) * self._rng.uniform(1.0, 1.25)
        return self._backoff.next()

    def _interval(self) -> float:
        """Seconds until the next request may be sent."""
        if self._asked is None:
            return 0.0
        return MIN_INTERVAL_SECONDS - (self._clock.monotonic() - self._asked)

    # Listing

    def _list(self) -> None:
        """Everything, page by page: for servers without WatchList."""
        relist = _Relist(self._clock.monotonic())
        token, version = "", ""
        while True:
            page = self._page(token, relist)
            for item in page.items or ():
                self._take(item, relist)
            version = page.metadata.resourceVersion
            token = page.metadata.continue_
            if not token or self._stopping.is_set():
                break
            self._took_in()
        if not token:
            self._finish_list(relist, version)
            self._took_in()

    def _page(self, token: str, relist: "_Relist") -> ListPage:
        query = {**self._selectors, "limit": str(self._page_size), "continue": token}
        path = self._path + query_text(query)
        self._sent()
        answer = self._connection.request("GET", path, read_timeout=self._read_timeout)
        if answer.status != 200:
            raise error_from(
                answer.status, answer.data, retry_after=answer.headers.get("retry-after"), request=f"GET {path}"
            )
        try:
            return decode_page(answer.data)
        except (RecursionError, ValueError) as error:  # msgspec's own are ValueErrors
            found = page_by_brackets(answer.data)
            if found is None:
                raise DecodeError(200, "BadAnswer", str(error), None, f"GET {path}") from error
            if not found[1]:
                self._lose_sight(relist)
            return found[0]

    def _finish_list(self, relist: "_Relist", version: str) -> None:
        self._version = version
        self._probe.lag.listed(relist.asked)
        self._listed = self._clock.monotonic()
        self._blind = relist.blind
        if relist.blind:
            _log.error(
                "A list contains an object without a readable identity; no deletions are inferred from it",
                resource=str(self.resource),
            )
        else:
            self.objects.keep_only(relist.seen)
        self._watch_list = not self._watch_list_refused
        self.relists += 1
        _RELISTS.labels(str(self.resource)).inc()
        self._recovered()
        _log.debug("Listed objects", resource=str(self.resource), objects=len(self.store), version=version)
        self.objects.tell_listed()
        self.synced.set()

    # Watching

    def _watch(self, *, initial: bool) -> None:
        """One stream, until the server ends it; raises what ended it otherwise."""
        query = {
            **self._selectors,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._rng.randint(*WATCH_TIMEOUT_SECONDS)),
            "resourceVersion": self._version,
        }
        if initial:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        path = self._path + query_text(query)
        relist = _Relist(self._clock.monotonic()) if initial else None
        try:
            with contextlib.closing(self._lines(path)) as lines:
                for line in lines:
                    if self._line(line, relist):
                        relist = None
            if relist is not None and not self._stopping.is_set():
                raise _SilenceError(
                    "the stream ended before the initial list was complete", f"GET {path}", maybe_applied=True
                )
            self._ended()
        except ApiError as error:
            if relist is not None:
                self._give_up_watch_list(error)
            elif not isinstance(error, _SilenceError):  # where nothing happens it is silent, and nothing is wrong
                raise
            else:
                self._ended()
        finally:
            self._opened = None

    def _ended(self) -> None:
        """A stream came to its end in order: what it brought was everything until then."""
        opened = self._settled()
        if opened is not None:
            self._applied = opened if self._applied is None else max(self._applied, opened)
            self._recovered()
        if self._blind and self._clock.monotonic() - self._listed >= MIN_RELIST_SECONDS:
            self._version = ""

    def _give_up_watch_list(self, error: ApiError) -> None:
        """Ask for pages next, if a failure during the initial events says that the server has no WatchList; else raise it."""
        refused = isinstance(error, BadRequest | Invalid) or error.status in (405, 501)
        self._watch_list_failures += isinstance(error, _SilenceError)
        if not refused and error.status != 500 and self._watch_list_failures < MAX_WATCH_LIST_FAILURES:
            raise error
        self._watch_list, self._watch_list_refused = False, refused
        self._asked = None  # ask the other way at once
        _log.info(
            "The API server does not support WatchList; reading lists in pages",
            resource=str(self.resource),
            error=str(error),
        )

    def _lines(self, path: str) -> Generator[bytes, None, None]:
        """The lines of one stream, each as soon as it is complete."""
        self._sent()
        response = self._connection.stream(path, read_timeout=self._read_timeout)
        with self._lock:
            self._response = response
        try:
            if self._stopping.is_set():
                return
            if response.status != 200:
                body = response.read(65536)
                raise error_from(
                    response.status, body, retry_after=response.headers.get("retry-after"), request=f"GET {path}"
                )
            if self._version:
                self._opened = self._clock.monotonic()
            yield from split_lines(response.stream(None))
        except (urllib3.exceptions.HTTPError, OSError) as error:
            if isinstance(error, urllib3.exceptions.ReadTimeoutError):
                silence = f"no data was received for {self._read_timeout:g} s"
                raise _SilenceError(silence, f"GET {path}", maybe_applied=True) from error
            raise connection_failed(error, f"GET {path}") from error
        finally:
            with self._lock:
                self._response = None
            with contextlib.suppress(Exception):
                response.close()

    def _line(self, line: bytes, relist: "_Relist | None") -> bool:
        """Take in one event; whether it ended the initial events."""
        self._pulse.beat()
        try:
            event, trimmed = jsontext.decode_trimmed(_decode_event, line)
        except Exception as error:  # noqa: BLE001 - whatever the decoder raises concerns this object alone
            self._garbled(line, relist, error)
            return False
        ended = False
        match event.type:
            case kind if kind in _CHANGES:
                self._take(event.object, relist, deleted=kind == "DELETED", trimmed=trimmed)
            case "BOOKMARK":
                ended = self._bookmark(event.object, relist)
            case "ERROR":
                raise error_from(0, bytes(event.object), request=f"GET {self._path}")
            case _:
                _log.warning("Ignored a watch event of unknown type", resource=str(self.resource), type=event.type)
                return False
        self._took_in()
        return ended

    def _bookmark(self, data: msgspec.Raw, relist: "_Relist | None") -> bool:
        try:
            mark = _decode_bookmark(data).metadata
        except Exception as error:
            raise ConnectionFailed(
                Said(f"a bookmark cannot be read: {error}"), f"GET {self._path}", maybe_applied=True
            ) from error
        if relist is None:
            self._version = mark.resource_version
            return False
        if (mark.annotations or {}).get(_END_OF_INITIAL_EVENTS) != "true":
            return False
        self._finish_list(relist, mark.resource_version)
        return True

    def _garbled(self, line: bytes, relist: "_Relist | None", error: Exception) -> None:
        """A line that is no event: what it was about is read from its bytes; else it is asked for once more, then passed by."""
        identity = identity_in(line, "object")
        kind = jsontext.strings_at(line, [_TYPE]).get(_TYPE, "")
        if kind in _CHANGES and self.objects.is_complete(identity):
            self._skip(identity, relist, error, deleted=kind == "DELETED")
            self._took_in()
            return
        if relist is None and self._garbled_at != self._version:
            self._garbled_at = self._version
            raise ConnectionFailed(
                Said(f"the stream is garbled: {error}"), f"GET {self._path}", maybe_applied=True
            ) from error
        self.objects.count_bad(PartialIdentity(), error)
        self._lose_sight(relist)

    # Objects

    def _take(
        self, data: msgspec.Raw, relist: "_Relist | None", *, deleted: bool = False, trimmed: bool = False
    ) -> None:
        """One object in; `trimmed`: parts of it are left out already."""
        try:
            obj, cut = jsontext.decode_trimmed(self.resource.decode, data)
        except Exception as error:  # noqa: BLE001 - whatever the decoder raises concerns this object alone
            self._skip(identity_in(data), relist, error, deleted=deleted)
            return
        identity = self.resource.identity(obj)
        key = key_of(identity)
        if trimmed or cut:
            self.objects.count_bad(identity, _TRIMMED)
        else:
            self.bad.pop(key, None)
        if deleted:
            if relist is not None:
                relist.seen.discard(key)
            self.objects.remove(key)
            self.bad.pop(key, None)
        else:
            if relist is not None:
                relist.seen.add(key)
            self.objects.put(key, obj)
        if relist is None and identity.resource_version:
            self._version = identity.resource_version

    def _skip(self, identity: PartialIdentity, relist: "_Relist | None", error: Exception, *, deleted: bool) -> None:
        """Go on past an object that cannot be decoded."""
        self.objects.skip(identity, error, deleted=deleted)
        if not self.objects.is_complete(identity):
            self._lose_sight(relist)
        if relist is not None and identity.name:
            relist.seen.add(key_of(identity))
        if relist is None and identity.resource_version:
            self._version = identity.resource_version

    def _lose_sight(self, relist: "_Relist | None") -> None:
        """Something came that may have been about any object."""
        if relist is not None:
            relist.blind = True
        self._blind = True

    # Bookkeeping

    def _sent(self) -> None:
        self.requests += 1
        _REQUESTS.labels(str(self.resource)).inc()
        self._asked = self._clock.monotonic()

    def _took_in(self) -> None:
        """What the server sent last is in the store and with the handlers, or known to be bad."""
        self._applied = self._clock.monotonic()
        if self._version:
            self._recovered()

    def _recovered(self) -> None:
        self._error = None
        self._watch_list_failures = 0
        self._backoff.reset()


def is_refused(error: Exception | None) -> bool:
    """Whether a watch goes on only when somebody changes the cluster: a role lacks a rule, or the kind does not exist."""
    return isinstance(error, Forbidden | NotFound)


def trouble(error: Exception, resource: object) -> str:
    """What keeps a watch of this resource from going on, for people, and where it is refused what to do."""
    match error:
        case Forbidden():
            return Said(
                f"{error.message}; allow the verbs list and watch on {resource} in the role of this program, as the "
                "manifests of this version do"
            )
        case NotFound():
            return Said(
                f"the API server does not serve {resource}; install its CustomResourceDefinition, which is in "
                "manifests/crds if it belongs to Dovetail"
            )
        case _:
            return str(error)


class _SilenceError(ConnectionFailed):
    """A stream that had been answered said nothing more."""


class _Relist:
    """What the server has named since everything was asked for.

    Attributes:
        asked: when that was (monotonic).
        seen: keys.
        blind: an object was among it that cannot be told from the others.
    """

    __slots__ = ("asked", "blind", "seen")

    def __init__(self, asked: float) -> None:
        self.asked = asked
        self.seen: set[str] = set()
        self.blind = False


def split_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Complete lines from chunks cut anywhere; an unfinished last line is dropped. O(bytes), also for lines of many chunks."""
    parts: list[bytes] = []
    for chunk in chunks:
        if b"\n" not in chunk:
            parts.append(chunk)
            continue
        lines = chunk.split(b"\n")
        if parts:
            lines[0] = b"".join((*parts, lines[0]))
            parts.clear()
        rest = lines.pop()
        if rest:
            parts.append(rest)
        for line in lines:
            if line.strip():
                yield line


def _interrupt(response: WatchStream) -> None:
    """Wake the thread that reads this response; it gets an end of file or an error."""
    with contextlib.suppress(Exception):
        response.shutdown()


def wait_for_sync(reflectors: Iterable[Reflector[Any]], timeout: float) -> list[Reflector[Any]]:
    """Wait until all are synced; those that are not after `timeout` seconds, none if all went well."""
    clock = SystemClock()
    deadline = clock.monotonic() + timeout
    return [reflector for reflector in reflectors if not reflector.synced.wait(max(0.0, deadline - clock.monotonic()))]
