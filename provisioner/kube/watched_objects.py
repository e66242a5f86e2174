"""What a watch knows: the objects that can be read, those that cannot, and who hears of a change."""

import logging
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Generic, TypeVar

from provisioner.apis.meta import key_of, version_number
from provisioner.kube.resources import ObjectIdentity, PartialIdentity, Resource
from provisioner.kube.store import Store
from provisioner.support import logs, metrics

T = TypeVar("T")

_BAD_OBJECTS = metrics.counter(
    "dovetail_watch_bad_objects_total",
    "Objects from the API server that could not be read; every delivery is counted.",
    ("resource",),
)
_HANDLER_FAILURES = metrics.counter(
    "dovetail_watch_handler_failures_total", "Changes that an event handler failed to process.", ("resource",)
)
_MAX_PROBLEM = 300  # characters of an error that are kept
_log = logs.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BadObject:
    """An object that is there and is not as it should be.

    Attributes:
        identity: as far as it could be read.
        problem: what is wrong with it.
        left_out: nothing is known of it, or only what it was before; otherwise it is used as far as it goes.
    """

    identity: ObjectIdentity
    problem: str
    left_out: bool


class WatchedObjects(Generic[T]):
    """The store of a watch and its bad objects; one thread writes. The arguments are those of `Reflector`.

    Attributes:
        store: what can be read.
        bad: what is there now and was left out, read in part, or refused by a handler, by key ("" is one that has none).
        decode_failures: objects that could not be decoded, counted each time.
    """

    def __init__(
        self,
        resource: Resource[T],
        changed: Callable[[T | None, T | None], None] | None,
        listed: Callable[[], None] | None,
        unreadable: Callable[[ObjectIdentity, Exception], None] | None,
    ) -> None:
        self._resource = resource
        self._changed, self._told_all, self._unreadable = changed, listed, unreadable
        self.store: Store[T] = Store()
        self.bad: dict[str, BadObject] = {}
        self.decode_failures = 0

    def has(self, identity: ObjectIdentity) -> bool:
        """Whether what is known of an object is this version of it or a later one."""
        key = key_of(identity)
        bad, obj = self.bad.get(key), self.store.get(key)
        known = bad.identity if bad is not None else self._resource.identity(obj) if obj is not None else None
        if known is None or known.uid != identity.uid:
            return False
        return version_number(known.resource_version) >= version_number(identity.resource_version)

    def is_complete(self, identity: PartialIdentity) -> bool:
        """Whether it is known which object this is, and where to go on after it."""
        return bool(
            identity.name
            and identity.uid
            and identity.resource_version
            and (identity.namespace or not self._resource.namespaced)
        )

    def put(self, key: str, obj: T) -> None:
        """An object is there as it is now."""
        known = self.store.get(key)
        if known is None:
            self.store.put(key, obj)
            self._tell(key, None, obj)
            return
        before, after = self._resource.identity(known), self._resource.identity(obj)
        if before.resource_version == after.resource_version and before.uid == after.uid:
            return
        if before.uid != after.uid:  # deleted and made anew while we did not look: two events, not one
            self.remove(key)
            self.store.put(key, obj)
            self._tell(key, None, obj)
            return
        self.store.put(key, obj)
        self._tell(key, known, obj)

    def remove(self, key: str) -> None:
        """An object is gone; one that we never told of needs no farewell."""
        old = self.store.remove(key)
        if old is not None:
            self._tell(key, old, None)

    def keep_only(self, seen: Container[str]) -> None:
        """All others are gone."""
        for key in [key for key in self.store.keys() if key not in seen]:  # noqa: SIM118  (no mapping)
            self.remove(key)
        for key in [key for key in self.bad if key not in seen]:
            del self.bad[key]

    def skip(self, identity: ObjectIdentity, error: Exception, *, deleted: bool) -> None:
        """Go on past an object that cannot be decoded; what was known of it before stays, unless it is gone."""
        key = key_of(identity)
        known = self.store.get(key)
        gone = known is not None and identity.uid not in ("", self._resource.identity(known).uid)
        if deleted or gone:
            self.remove(key)
        self.count_bad(identity, error)
        if deleted:
            self.bad.pop(key, None)
        elif self._unreadable is not None:
            try:
                self._unreadable(identity, error)
            except Exception:  # noqa: BLE001 - one bad object, or a handler that fails, stops no watch
                _log.exception(
                    "Event handler failed for an unreadable object", resource=str(self._resource), object=key
                )

    def count_bad(self, identity: ObjectIdentity, problem: Exception | str) -> None:
        """An object is left out, for what the decoder raised, or read in part."""
        left_out = isinstance(problem, Exception)
        self.decode_failures += left_out
        _BAD_OBJECTS.labels(str(self._resource)).inc()
        key, text = key_of(identity), str(problem)[:_MAX_PROBLEM]
        known = self.bad.get(key)
        self.bad[key] = BadObject(identity, text, left_out)
        is_news = known is None or known.problem != text  # its owner may change it as often as he likes
        _log.log(
            logging.WARNING if is_news else logging.DEBUG,
            "Ignoring an object that cannot be read" if left_out else "Ignoring parts of an object that cannot be read",
            resource=str(self._resource),
            object=key or "unknown",
            error=text,
        )

    def _tell(self, key: str, old: T | None, new: T | None) -> None:
        if self._changed is None:
            return
        try:
            self._changed(old, new)
        except Exception as error:  # noqa: BLE001 - one bad object, or a handler that fails, stops no watch
            if new is not None:
                problem = f"{type(error).__name__}: {error}"
                self.bad[key] = BadObject(self._resource.identity(new), problem[:_MAX_PROBLEM], left_out=False)
            _HANDLER_FAILURES.labels(str(self._resource)).inc()
            _log.exception(
                "Event handler failed",
                resource=str(self._resource),
                object=key,
                event="DELETED" if new is None else "ADDED" if old is None else "MODIFIED",
            )

    def tell_listed(self) -> None:
        """Everything which was there when we asked has been told."""
        if self._told_all is None:
            return
        try:
            self._told_all()
        except Exception:  # noqa: BLE001 - one bad object, or one handler that fails, stops no watch
            _HANDLER_FAILURES.labels(str(self._resource)).inc()
            _log.exception("Event handler failed at the initial sync", resource=str(self._resource))
