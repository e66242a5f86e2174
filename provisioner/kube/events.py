"""Events about objects, as `kubectl describe` shows them: `Recorder`.

core/v1 Events as client-go's recorder (and so Karpenter) writes them: the same sentence about the same object again raises the count of the event
that is there. In front of that Karpenter's own rules: nothing twice within its time, and at most
so many of a reason per second where a limit is given.
"""

import itertools
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from provisioner.apis.core import ObjectReference
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, NotFound
from provisioner.kube.lease import LostLease
from provisioner.kube.limits import TokenBucket
from provisioner.kube.resources import EVENTS
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.poller import Poller
from provisioner.values.bounded import put_newest

EventType = Literal["Normal", "Warning"]

DEFAULT_TTL_SECONDS = 120.0
QUEUE_SIZE = 1000  # events that wait; beyond it the oldest is dropped and counted
REMEMBERED = 4096  # sentences, for dedupe and for counts
MAX_MESSAGE = 1024  # characters that the API server takes
MAX_NAME = 253

LIMITS: Mapping[str, tuple[float, int]] = {
    "Nominated": (5.0, 10),
    "Pod/InsufficientCapacityError": (5.0, 10),
    "UnreadableObject": (1.0, 10),
    "Unconsolidatable": (2.0, 100),
    "DisruptionBlocked": (5.0, 200),
    "ConsolidationCandidate": (2.0, 100),
    "ConsolidationRejected": (2.0, 100),
    "InvalidDoNotDisruptAnnotation": (2.0, 100),
    "DoNotDisruptUntil": (2.0, 100),
    "DoNotDisruptGracePeriodElapsed": (2.0, 100),
    **dict.fromkeys(("GangPlanned", "GangLaunched", "GangGivenUp", "GangIncomplete", "GangMoved"), (2.0, 100)),
}
"""Per reason, or kind and reason: events a second, and how many at once; others are not limited.

Source of the first: karpenter `pkg/controllers/provisioning/scheduling/events.go`; of the second: Karpenter 1.15.
"""

TTL_SECONDS: Mapping[str, float] = dict.fromkeys(
    ("DisruptionBlocked", "DisruptionLoop", "NodeRepairBlocked", "Unconsolidatable"), 900.0
)
"""Per reason: for so long the same event is not published again, `DEFAULT_TTL_SECONDS` for all others. Why a node is left alone stays true for long.

Differs: Karpenter repeats what blocks a disruption after two minutes.
"""

_log = logs.get_logger(__name__)
_FAILED_TO_WRITE_EVENT: Final = "Failed to write an event"


@dataclass(frozen=True, slots=True)
class _Saying:
    """One event on its way.

    Attributes:
        at: when it was said, in the API's form: it may wait for the server for a while.
    """

    ref: ObjectReference
    type: str
    reason: str
    message: str
    at: str

    @property
    def namespace(self) -> str:
        return self.ref.namespace or "default"  # where events about cluster-wide objects live

    @property
    def sameness(self) -> tuple[str, ...]:
        ref = self.ref
        return (ref.kind, ref.namespace, ref.name, ref.uid, self.type, self.reason, self.message)


@dataclass(slots=True)
class _Written:
    """An event that is on the server."""

    name: str
    count: int


class Recorder:
    """Publishes events without ever holding up its caller; thread-safe, one thread of its own.

    Args:
        component: who speaks, e.g. "karpenter".

    Attributes:
        published: events handed over to be written.
        suppressed: not published because they were said a short while ago, or too many of the reason.
        dropped: lost because the queue was full or the server refused them.
    """

    def __init__(self, client: Client, component: str, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self.component = component
        #: Hears of each event that is published, less its type; it waits for nothing and raises nothing.
        self.heard: Callable[[ObjectReference, str, str], None] = lambda _object, _reason, _message: None
        self._allowances: dict[str, TokenBucket] = {}
        self._said: OrderedDict[tuple[str, ...], float] = OrderedDict()  # to the time until which it is not said again
        self._written: OrderedDict[tuple[str, ...], _Written] = OrderedDict()  # touched by the thread only
        self._queue: deque[_Saying] = deque()
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._busy = False
        self._started = self._stopping = False
        self._poller = Poller("events", self._poll)
        self.published = self.suppressed = self.dropped = 0

    def __repr__(self) -> str:
        return f"<Recorder {self.component}: {self.published} published, {self.suppressed} suppressed, {self.dropped} dropped>"

    def publish(
        self,
        ref: ObjectReference,
        type: EventType,  # noqa: A002  (the API's word)
        reason: str,
        message: str,
        dedupe: tuple[str, ...] = (),
        ttl: float | None = None,
    ) -> None:
        """Say something about an object. Never blocks, never raises.

        Args:
            ref: the object; apiVersion, kind, name, and namespace and uid where it has them.
            type: "Normal" or "Warning".
            reason: one CamelCase word.
            message: a sentence; cut at 1,024 characters.
            dedupe: what makes it the same event as an earlier one, beside the reason; () is the object and the message.
            ttl: seconds during which the same event is not said again, `TTL_SECONDS` by default; 0 says it always.
        """
        if ttl is None:
            ttl = TTL_SECONDS.get(reason, DEFAULT_TTL_SECONDS)
        sameness = (reason, *(dedupe or (ref.kind, ref.namespace, ref.name, ref.uid, message)))
        with self._changed:
            now = self._clock.monotonic()
            if self._stopping or self._is_repeated(sameness, now, ttl) or not self._is_allowed(ref, reason):
                self.suppressed += 1
                return
            if ttl > 0:
                put_newest(self._said, sameness, now + ttl, REMEMBERED)
            if len(self._queue) >= QUEUE_SIZE:
                self._queue.popleft()
                self.dropped += 1
            self._queue.append(_Saying(ref, type, reason, message[:MAX_MESSAGE], self._now()))
            self.published += 1
            if not self._started:
                self._started = True
                self._poller.start()
        self._poller.wake()
        self.heard(ref, reason, message)

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until everything said so far is written; whether that was done in `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and not self._busy, timeout)

    def stop(self, timeout: float = 2.0) -> None:
        """Write what waits, for `timeout` seconds at most, then end; what is said later is not heard."""
        with self._changed:
            self._stopping = True
        self.flush(timeout)
        with self._changed:
            self.dropped += len(self._queue)
            self._queue.clear()
            self._changed.notify_all()
        self._poller.stop(timeout)

    def _is_repeated(self, sameness: tuple[str, ...], now: float, ttl: float) -> bool:
        return ttl > 0 and self._said.get(sameness, float("-inf")) > now

    def _is_allowed(self, ref: ObjectReference, reason: str) -> bool:
        limited = reason if reason in LIMITS else f"{ref.kind}/{reason}"
        limit = LIMITS.get(limited)
        if limit is None:
            return True
        if limited not in self._allowances:
            self._allowances[limited] = TokenBucket(*limit, self._clock)
        return self._allowances[limited].spare()

    def _poll(self) -> float | None:
        with self._changed:
            if not self._queue:
                return None
            saying = self._queue.popleft()
            self._busy = True
        try:
            self._write(saying)
        except (ApiError, LostLease) as error:
            with self._changed:
                self.dropped += 1
            _log.debug(_FAILED_TO_WRITE_EVENT, reason=saying.reason, object=saying.ref.name, error=str(error))
        except Exception:  # noqa: BLE001 - the thread outlives a pass that fails
            with self._changed:
                self.dropped += 1
            _log.exception(_FAILED_TO_WRITE_EVENT, reason=saying.reason, object=saying.ref.name)
        finally:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
        return 0.0

    def _write(self, saying: _Saying) -> None:
        written = self._written.get(saying.sameness)
        if written is not None:
            try:
                self._raise_count(saying, written)
            except NotFound:  # the server forgets events after an hour
                del self._written[saying.sameness]
            else:
                self._written.move_to_end(saying.sameness)
                return
        name = self._create(saying)
        put_newest(self._written, saying.sameness, _Written(name, 1), REMEMBERED)

    def _raise_count(self, saying: _Saying, written: _Written) -> None:
        body = {"count": written.count + 1, "lastTimestamp": saying.at}
        self._client.patch(EVENTS, written.name, body, saying.namespace)
        written.count += 1

    def _create(self, saying: _Saying) -> str:
        suffix = f".{int(self._clock.now().timestamp() * 1e6):x}{next(self._numbers):x}"
        name = saying.ref.name[: MAX_NAME - len(suffix)].rstrip(".-") + suffix
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": saying.namespace},
            "involvedObject": saying.ref,
            "type": saying.type,
            "reason": saying.reason,
            "message": saying.message,
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "reportingInstance": "",
            "firstTimestamp": saying.at,
            "lastTimestamp": saying.at,
            "count": 1,
        }
        self._client.create(EVENTS, body, saying.namespace)
        return name

    def _now(self) -> str:
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
