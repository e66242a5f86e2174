"""What is known of images, and who finds out the rest: `Lookups`.

Answers come from memory alone; what is not there is looked up by a few threads behind the answer, and namespaces take turns. Everything is bounded:
what is remembered, what waits (of each namespace too, so that one cannot keep out the others), how many lookups of one registry run, and how often a
registry that fails is asked.
"""

import functools
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from provisioner.apis.stamping import Images, ImagesAsked
from provisioner.support import heartbeat, logs, metrics
from provisioner.support.backoff import doubled
from provisioner.support.clock import Clock
from provisioner.values.bounded import forget_oldest
from webhook.images.documents import Login
from webhook.images.fair_cache import FairCache
from webhook.images.references import LONGEST, Host, Reference, UnusableReferenceError, parse
from webhook.images.registry import FoundImage, LookupFailedError

THREADS: Final = 4
AT_ONCE_OF_ONE: Final = 2
"""Lookups of one registry at a time: a slow one leaves threads for the others."""
MAX_KNOWN: Final = 2048
MAX_WAITING: Final = 1000
MAX_OF_NAMESPACE: Final = MAX_WAITING // 4
MAX_PLACES: Final = 4 * MAX_WAITING
"""Of namespaces that wait; several may wait for one image."""
MAX_REGISTRIES: Final = 256
FRESH_SECONDS: Final = 3600.0
"""A tag that is asked for later than this is compared with its registry; meanwhile what is known of it counts."""
TAG_SECONDS: Final = 6 * 3600.0
"""For how long what is known of a tag counts; a digest means the same for ever."""
FAILED_SECONDS: Final = 60.0
"""For how long an image that could not be looked up is not tried again."""
FAILURES_IN_A_ROW: Final = 3
PAUSE_SECONDS: Final = 30.0
MAX_PAUSE_SECONDS: Final = 600.0

_log = logs.get_logger(__name__)
LOOKUPS = metrics.counter(
    "dovetail_webhook_image_lookups_total",
    "Lookups of images in registries, by outcome: found, failed (of this image), unavailable (the registry), dropped (too many wait), paused.",
    ["outcome"],
)
SECONDS = metrics.histogram(
    "dovetail_webhook_image_lookup_duration_seconds",
    "Time that a lookup of an image took.",
    [],
    buckets=(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0),
)
_WAITING = metrics.gauge("dovetail_webhook_image_lookups_waiting", "Images that are still to be looked up.")
_FAILED_TO_LOOK_UP_IMAGE: Final = (
    "Failed to look up the architectures of an image; pods that use it are admitted without them"
)


@dataclass(frozen=True, slots=True)
class Key:
    """What is looked up, and with whose credentials: nobody learns of an image by the credentials of another namespace.

    Attributes:
        namespace: that the secrets are of; "" without secrets.
        secrets: names of pull secrets.
    """

    reference: Reference
    namespace: str = ""
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Entry:
    """What came of a lookup.

    Attributes:
        found: None where it failed.
        fresh_until: when it is looked up again if somebody asks.
        until: when it counts no longer.
        namespace: the only one that asked for it so far; "" where several did.
    """

    found: FoundImage | None
    fresh_until: float
    until: float
    namespace: str


@dataclass(slots=True)
class _Line:
    """One registry that failed, for those who ask it with the pull secrets of one namespace, or without any.

    Attributes:
        failures: in a row.
        closed_until: it is not asked before.
    """

    failures: int = 0
    closed_until: float = float("-inf")


@dataclass(slots=True)
class _Work:
    """What waits and what runs, of all keys.

    Attributes:
        waiting: by namespace, the one that was served longest ago first. A key waits in every namespace that wants it.
        wanted: the namespaces that want a key which waits or runs.
        running: keys that are looked up.
        at_work: how many of them are of a registry.
        of_namespace: the keys that a namespace wants.
        places: their sum.
    """

    waiting: OrderedDict[str, dict[Key, None]] = field(default_factory=OrderedDict)
    wanted: dict[Key, set[str]] = field(default_factory=dict)
    running: set[Key] = field(default_factory=set)
    at_work: Counter[Host] = field(default_factory=Counter)
    of_namespace: Counter[str] = field(default_factory=Counter)
    places: int = 0

    def add(self, key: Key, namespace: str) -> None:
        """A namespace wants a key."""
        self.wanted.setdefault(key, set()).add(namespace)
        self.waiting.setdefault(namespace, {})[key] = None
        self.of_namespace[namespace] += 1
        self.places += 1

    def begin(self, key: Key, namespace: str) -> None:
        """A key is looked up, and it was the turn of this namespace."""
        self.running.add(key)
        self.at_work[key.reference.host] += 1
        self.waiting.move_to_end(namespace)
        for other in self.wanted[key]:
            keys = self.waiting[other]
            del keys[key]
            if not keys:
                del self.waiting[other]

    def end(self, key: Key) -> None:
        """A key was looked up."""
        self.running.discard(key)
        namespaces = self.wanted.pop(key)
        self.places -= len(namespaces)
        _less(self.at_work, key.reference.host)
        for namespace in namespaces:
            _less(self.of_namespace, namespace)


T = TypeVar("T")


def _less(counter: Counter[T], of: T) -> None:
    counter[of] -= 1
    if counter[of] <= 0:
        del counter[of]


class Lookups:
    """See the module. Thread-safe.

    Args:
        look: asks a registry for one image, of which something may be known; raises `LookupFailedError`.
        asks: whether a registry may be asked at all.
        login: the credentials for a key, as far as there are some.
        proved: the architectures on which a digest was seen to run in a namespace.
    """

    def __init__(
        self,
        look: Callable[[Reference, Callable[[], Login | None], FoundImage | None], FoundImage],
        asks: Callable[[Host], bool],
        login: Callable[[Key], Login | None],
        proved: Callable[[str, str], frozenset[str]],
        clock: Clock,
    ) -> None:
        self._look, self._asks, self._login, self._proved, self._clock = look, asks, login, proved, clock
        self._lock = threading.Condition()
        self._known: FairCache[Key, _Entry] = FairCache(lambda: MAX_KNOWN, lambda entry: entry.namespace)
        self._lines: OrderedDict[tuple[Host, str], _Line] = OrderedDict()
        self._work = _Work()
        self._stopping = False
        self._threads: list[threading.Thread] = []
        self._told: Callable[[Key], None] = lambda _: None

    def __len__(self) -> int:
        """The keys of which something is remembered."""
        return len(self._known)

    def waiting(self) -> int:
        """The keys that wait or are looked up."""
        with self._lock:
            return len(self._work.wanted)

    def listen(self, told: Callable[[Key], None]) -> None:
        """Call this with every key that was looked up, whatever came of it; from a thread of this."""
        self._told = told

    def start(self) -> None:
        _WAITING.set_function(self.waiting)
        self._threads = [
            threading.Thread(target=self._run, name=f"images-{number}", daemon=True) for number in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads; what runs goes on until its deadline, and nobody waits for it."""
        with self._lock:
            self._stopping = True
            self._lock.notify_all()

    # ------------------------------------------------------------------ questions

    def images(self, asked: ImagesAsked, *, keep: bool) -> Images:
        """What is known; with `keep`, what is not known is looked up. Never waits. Cost: O(images)."""
        found: dict[str, frozenset[tuple[str, str]]] = {}
        pending: set[str] = set()
        for image in asked.images:
            key = key_of(image, asked)
            if key is None or not self._asks(key.reference.host):
                continue
            known, is_coming = self._of(key, asked.namespace, keep=keep)
            if known is not None:
                found[image] = self._widened(known, asked.namespace)
            elif is_coming:
                pending.add(image)
        return Images(found, frozenset(pending))

    def _widened(self, known: FoundImage, namespace: str) -> frozenset[tuple[str, str]]:
        """What the registry says, and where it was seen to run: configurations of images name wrong architectures."""
        proved = self._proved(namespace, known.digest)
        return known.platforms | {("linux", architecture) for architecture in proved} if proved else known.platforms

    def _of(self, key: Key, namespace: str, *, keep: bool) -> tuple[FoundImage | None, bool]:
        """What is known of a key, and whether more will be."""
        with self._lock:
            now = self._clock.monotonic()
            entry = self._known.get(key)
            if entry is not None and now >= entry.until:
                self._known.drop(key)
                entry = None
            if entry is None:
                return None, keep and self._want(key, namespace, now)
            if entry.namespace and entry.namespace != namespace:
                entry = replace(entry, namespace="")
                self._known.put(key, entry)
            else:
                self._known.use(key)
            if entry.found is not None and now >= entry.fresh_until and keep:
                self._want(key, namespace, now)
            return entry.found, False

    def _want(self, key: Key, namespace: str, now: float) -> bool:
        """Whether the key will be looked up; called under the lock."""
        work = self._work
        namespaces = work.wanted.get(key)
        if namespaces is not None and (namespace in namespaces or key in work.running):
            return True
        if self._stopping or self._is_closed(key, now):
            LOOKUPS.labels("paused").inc()
            return False
        full = work.of_namespace[namespace] >= MAX_OF_NAMESPACE or work.places >= MAX_PLACES
        if namespaces is not None and full:
            return True  # it comes when it is the turn of another namespace
        if full or (namespaces is None and len(work.wanted) >= MAX_WAITING):
            LOOKUPS.labels("dropped").inc()
            return False
        work.add(key, namespace)
        self._lock.notify()
        return True

    def _is_closed(self, key: Key, now: float) -> bool:
        line = self._lines.get((key.reference.host, key.namespace))
        return line is not None and now < line.closed_until

    # ------------------------------------------------------------------ the threads

    def _run(self) -> None:
        pulse = heartbeat.pulse(f"thread {threading.current_thread().name}")
        while (key := self._take(pulse)) is not None:
            pulse.beat()
            self._look_up(key)

    def _take(self, pulse: heartbeat.Pulse) -> Key | None:
        pulse.rest()
        with self._lock:
            while not self._stopping:
                if (key := self._next()) is not None:
                    return key
                self._lock.wait()
            return None

    def _next(self) -> Key | None:
        """The key whose turn it is, begun; called under the lock. Cost: O(keys that wait)."""
        work = self._work
        for namespace, keys in work.waiting.items():
            for key in keys:
                if work.at_work[key.reference.host] < AT_ONCE_OF_ONE:
                    work.begin(key, namespace)
                    return key
        return None

    def _look_up(self, key: Key) -> None:
        reference, found, outcome, wait = key.reference, None, "found", 0.0
        begun = self._clock.monotonic()
        with self._lock:
            is_paused = self._is_closed(key, begun)
            entry = self._known.get(key)
            known = None if entry is None else entry.found
        try:
            if is_paused:
                outcome = "paused"
            else:
                found = self._look(reference, functools.partial(self._login, key), known)
        except LookupFailedError as error:
            outcome, wait = ("failed" if error.ours else "unavailable"), error.retry_after
            _log.info(_FAILED_TO_LOOK_UP_IMAGE, image=str(reference), error=str(error))
        except Exception as error:  # noqa: BLE001 - one image that nobody thought of ends no thread
            outcome = "failed"
            _log.warning(_FAILED_TO_LOOK_UP_IMAGE, image=str(reference), error=type(error).__name__)
        now = self._clock.monotonic()
        LOOKUPS.labels(outcome).inc()
        if outcome != "paused":
            SECONDS.observe(now - begun)
        with self._lock:
            self._keep(key, found, outcome, wait, now)
            self._work.end(key)
            self._lock.notify_all()
        self._told(key)

    def _keep(self, key: Key, found: FoundImage | None, outcome: str, wait: float, now: float) -> None:
        where = (key.reference.host, key.namespace)
        if outcome == "unavailable":
            line = self._lines.setdefault(where, _Line())
            line.failures += 1
            pause = doubled(line.failures - FAILURES_IN_A_ROW + 1, base=PAUSE_SECONDS, cap=MAX_PAUSE_SECONDS)
            line.closed_until = max(line.closed_until, now + max(pause, wait))
            self._lines.move_to_end(where)
            forget_oldest(self._lines, MAX_REGISTRIES)
        elif outcome != "paused" and where in self._lines:
            self._lines[where].failures = 0  # a time that the registry named stands
        known = self._known.get(key)
        namespaces = self._work.wanted.get(key, set()) | ({known.namespace} if known is not None else set())
        owner = min(namespaces) if len(namespaces) == 1 else ""
        if found is not None:
            lasting = bool(key.reference.digest)
            until, fresh = (float("inf"),) * 2 if lasting else (now + TAG_SECONDS, now + FRESH_SECONDS)
            self._known.put(key, _Entry(found, fresh, until, owner))
        elif known is not None and known.found is not None:
            # what is known counts until its time is over
            self._known.put(key, replace(known, fresh_until=now + FAILED_SECONDS, namespace=owner))
        else:
            self._known.put(key, _Entry(None, now, now + FAILED_SECONDS, owner))


def key_of(image: str, asked: ImagesAsked) -> Key | None:
    """What an image of a pod is looked up by; None for what is no reference."""
    reference = _reference(image) if len(image) <= LONGEST else None  # what is longer is not remembered either
    if reference is None:
        return None
    return Key(reference, asked.namespace, asked.secrets) if asked.secrets else Key(reference)


@functools.lru_cache(maxsize=1024)
def _reference(image: str) -> Reference | None:
    try:
        return parse(image)
    except UnusableReferenceError:
        return None
