"""How far a watch is behind what the API server has: `Lag` of one watch, `WatchProbe`, which asks for it, and `Prober`, which has many asked for.

A stream that brings something may bring what happened minutes ago, so a sign of life proves nothing. Every ten seconds the API server is asked for the
version of each kind, and an event or a bookmark of that version or a later one has to arrive. Versions of one kind are compared as numbers, which is
documented since Kubernetes 1.35 (KEP-5504) and was so before. The question is a list without `resourceVersion`: for it the API server's own cache
catches up with etcd, so the next bookmark, which comes about once a minute, is not older.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from provisioner.apis.meta import version_number
from provisioner.kube.client import METADATA_ONLY, PAGE_SIZE, ListPage, query_text, read_page
from provisioner.kube.config import Api
from provisioner.kube.errors import ApiError, error_from
from provisioner.kube.resources import identity_in
from provisioner.kube.watched_objects import WatchedObjects
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.poller import Poller

PROBE_SECONDS: Final = 10.0
#: Between the end of a round of probes and the next, however long it took.
SHORTEST_PAUSE_SECONDS: Final = 1.0
#: A watch that has not reached a probe of this age is behind. Bookmarks of a kind in which nothing happens come every 60 to 62 s.
BEHIND_SECONDS: Final = 75.0
#: After that time a bookmark should have come. It does not where a stream was cut a moment ago, or where etcd reports no progress: then what is
#: there is compared with the cache, and a cache that equals it is not behind.
LATE_SECONDS: Final = 63.0
#: Between two comparisons of one watch, and the most objects that are compared.
COMPARE_SECONDS: Final = 60.0
MOST_COMPARED: Final = 20_000
PROBE_TIMEOUT_SECONDS, PROBE_TOTAL_SECONDS = 5.0, 10.0
#: More are not remembered: the oldest counts.
MOST_PROBES: Final = 64

_log = logs.get_logger(__name__)
_PROBE_FAILED: Final = "Failed to read the current resource version; retrying"


class Lag:
    """The probes that one watch has not reached. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._probes: deque[tuple[int, float]] = deque()  # version, when it was asked for; oldest first

    def probed(self, version: int, at: float) -> None:
        """The API server had this version at some time after `at` (monotonic); 0 is one that cannot be compared."""
        with self._lock:
            if version and len(self._probes) < MOST_PROBES:
                self._probes.append((version, at))

    def listed(self, at: float) -> None:
        """The cache equals a list that was asked for at this time (monotonic): earlier probes are reached, whatever their versions."""
        with self._lock:
            while self._probes and self._probes[0][1] <= at:
                self._probes.popleft()

    def seconds(self, reached: int, now: float) -> float:
        """Age of the oldest probe that is later than the version `reached`; 0 where there is none."""
        with self._lock:
            while self._probes and self._probes[0][0] <= reached:
                self._probes.popleft()
            return max(0.0, now - self._probes[0][1]) if self._probes else 0.0


class WatchProbe:
    """Asks for the version that one watch should have reached, and compares its cache with what is there until `stopping`.

    Attributes:
        lag: the probes that the watch has not reached.
    """

    def __init__(
        self,
        connection: Api,
        objects: WatchedObjects[Any],
        path: str,
        selectors: Mapping[str, str],
        clock: Clock,
        stopping: threading.Event,
    ) -> None:
        self._connection, self._objects, self._path, self._selectors = connection, objects, path, selectors
        self._clock, self._stopping = clock, stopping
        self._compared = float("-inf")  # when the cache was last compared with what is there
        self.lag = Lag()

    def ask(self, lag: Callable[[], float]) -> None:
        """See `Reflector.probe`; `lag` is the watch's, asked after the answer."""
        now = self._clock.monotonic()
        field = self._selectors["fieldSelector"]
        # what is selected otherwise may take a search; the version is the same
        found = self._metadata(1, "", {"fieldSelector": field} if field.startswith("metadata.name=") else {})
        self.lag.probed(version_number(found.metadata.resourceVersion), now)
        due = now - self._compared >= COMPARE_SECONDS and len(self._objects.store) <= MOST_COMPARED
        if lag() > LATE_SECONDS and due:
            self._compared = now
            if self._equals_server():
                self.lag.listed(now)

    def _equals_server(self) -> bool:
        """Whether the cache has all that is there, as it is there."""
        token, seen = "", 0
        while not self._stopping.is_set():
            found = self._metadata(PAGE_SIZE, token, self._selectors)
            for identity in map(identity_in, found.items or ()):
                if not self._objects.has(identity):
                    return False
                seen += 1
            token = found.metadata.continue_
            if not token:
                return seen == len({*self._objects.store.keys(), *self._objects.bad})
        return False

    def _metadata(self, limit: int, token: str, selectors: Mapping[str, str]) -> ListPage:
        query = {**selectors, "limit": str(limit), "continue": token}
        path = self._path + query_text(query)
        answer = self._connection.request(
            "GET",
            path,
            headers=METADATA_ONLY,
            read_timeout=PROBE_TIMEOUT_SECONDS,
            total_timeout=PROBE_TOTAL_SECONDS,
        )
        if answer.status != 200:
            raise error_from(answer.status, answer.data, request=f"GET {path}")
        return read_page(answer.data, path)


class Probed(Protocol):
    """What of `watch.Reflector` is needed."""

    @property
    def resource(self) -> object: ...

    def probe(self) -> None:
        """Ask for the version; raises ApiError."""
        ...


class Prober:
    """Probes watches in the thread of `poller`, one after another; nobody waits for the last probe. Cost: a small list of each every `PROBE_SECONDS`."""

    def __init__(self, watches: Iterable[Probed], clock: Clock) -> None:
        self._watches, self._clock = tuple(watches), clock
        self.poller = Poller("watch-probes", self.run_once, PROBE_SECONDS, first=PROBE_SECONDS)

    def add(self, watch: Probed) -> None:
        """Probe one more from the next round on."""
        self._watches = (*self._watches, watch)

    def run_once(self) -> float:
        """Probe each watch; one that fails keeps none of the others from it. Seconds until the next round, which counts from when this one began.

        From its end, rounds of an API server that answers slowly would come too seldom to compare a late watch before it counts as behind.
        """
        began = self._clock.monotonic()
        for watch in self._watches:
            if self.poller.stopped:
                break
            try:
                watch.probe()
            except ApiError as error:
                _log.debug(_PROBE_FAILED, resource=str(watch.resource), error=str(error))
            except Exception:  # noqa: BLE001 - the thread outlives a probe that fails
                _log.exception(_PROBE_FAILED, resource=str(watch.resource))
        return max(SHORTEST_PAUSE_SECONDS, PROBE_SECONDS - (self._clock.monotonic() - began))
