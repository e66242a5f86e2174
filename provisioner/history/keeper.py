"""Writes a history: `HistoryKeeper`. Whoever tells it something puts it into a queue and goes on; one thread of its own makes entries of it.

The queue is bounded: what does not fit is counted, and everything that is there is told anew, so nothing is wrong afterwards, it only came later.
"""

import math
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from provisioner import __version__
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.pods import Pod
from provisioner.history.entries import Gap, HistoryEntry
from provisioner.history.segments import TICKS, SegmentHead, SegmentWriter
from provisioner.history.tracker import ObjectTracker, PriceOf
from provisioner.runtime.changes import Change, Changed, NodeChanged, NodeClaimChanged, NodePoolChanged, PodChanged
from provisioner.support import metrics
from provisioner.support.clock import Clock
from provisioner.support.poller import Poller

MOST_WAITING: Final = 50_000
"""Changes that wait for the thread; each holds an object that was there a moment ago."""
FLUSH_SECONDS: Final = 1.0
FIGURES_SECONDS: Final = 60.0
SEGMENTS: Final = 16
"""A history is kept in so many pieces at the least: what goes at once is no more than one of them."""
_LEAST_SEGMENT_SECONDS: Final = 60.0
_BYTES = metrics.gauge("dovetail_history_bytes", "Memory that the history takes.")
_SPAN = metrics.gauge("dovetail_history_span_seconds", "Time that the history covers.")
_ENTRIES = metrics.counter("dovetail_history_entries_total", "Entries written to the history.")
_DROPPED = metrics.counter(
    "dovetail_history_dropped_total", "Changes that the history missed because its queue was full; it was then renewed."
)

_KINDS: Final = frozenset({PodChanged, NodeChanged, NodeClaimChanged, NodePoolChanged})

Task = Callable[[ObjectTracker, float], None]
"""What one change does to the tracker at its time."""


@dataclass(frozen=True, slots=True)
class HistorySources:
    """Everything that is there now, and what it costs.

    Attributes:
        closed: offerings that cannot be had now, as (instance type, zone, capacity type).
    """

    pods: Callable[[], Iterable[Pod]]
    nodes: Callable[[], Iterable[Node]]
    claims: Callable[[], Iterable[NodeClaim]]
    pools: Callable[[], Iterable[NodePool]]
    price_of: PriceOf
    closed: Callable[[], frozenset[tuple[str, str, str]]] = frozenset


@dataclass(frozen=True, slots=True)
class HistoryBounds:
    """How much is kept: seconds, and bytes with the segment that is being written, which ends after `longest_segment` seconds at the latest."""

    seconds: float
    most_bytes: int
    longest_segment: float = math.inf

    @property
    def segment_seconds(self) -> float:
        """After which a segment ends."""
        return min(self.longest_segment, max(_LEAST_SEGMENT_SECONDS, self.seconds / SEGMENTS))

    @property
    def segment_bytes(self) -> int:
        """Likewise."""
        return self.most_bytes // SEGMENTS


class SegmentStore(Protocol):
    """Keeps segments that are complete."""

    def keep(self, segment: bytes, began: float, ended: float) -> None:
        """One more."""
        ...

    def trim(self, now: float, reserved: int) -> int:
        """Let the oldest go, until all of them and `reserved` bytes are within bounds; bytes that they have now."""
        ...

    def since(self, default: float) -> float:
        """When the oldest began; `default` where there is none."""
        ...


class MemorySegments:
    """Keeps segments in memory. Any thread may read."""

    def __init__(self, bounds: HistoryBounds) -> None:
        self._bounds = bounds
        self._kept: deque[tuple[bytes, float, float]] = deque()

    def keep(self, segment: bytes, began: float, ended: float) -> None:
        self._kept.append((segment, began, ended))

    def trim(self, now: float, reserved: int) -> int:
        size = sum(len(one) for one, _, _ in self._kept)
        while self._kept and (
            size + reserved > self._bounds.most_bytes or self._kept[0][2] < now - self._bounds.seconds
        ):
            size -= len(self._kept.popleft()[0])
        return size

    def since(self, default: float) -> float:
        return self._kept[0][1] if self._kept else default

    def segments(self) -> tuple[bytes, ...]:
        """The oldest first."""
        return tuple([one for one, _, _ in tuple(self._kept)])


class HistoryKeeper:
    """See the module. Any thread may tell it something, and read.

    Args:
        sources: what is there.
        store: keeps segments that are complete.
        bounds: of all of it.
        source: as of `SegmentHead`.
        changed: makes other entries of those that are written, as to hide names; the segments say that they are anonymous.
        wrote: hears of everything that is written, openings of segments included, in the thread.
        most_waiting: changes that wait for the thread at the most.

    Attributes:
        poller: its thread.
    """

    def __init__(
        self,
        sources: HistorySources,
        store: SegmentStore,
        bounds: HistoryBounds,
        clock: Clock,
        *,
        source: str,
        changed: Callable[[Sequence[HistoryEntry]], Sequence[HistoryEntry]] | None,
        wrote: Callable[[float, Sequence[HistoryEntry]], object] = lambda *_: None,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self._sources, self._store, self._bounds, self._clock = sources, store, bounds, clock
        self._wrote = wrote
        self._source, self._changed, self._most_waiting = source, changed, most_waiting
        self._tracker = ObjectTracker(sources.price_of)
        self._queue: deque[tuple[float, Change | Task]] = deque()  # with the monotonic time
        self._dropped, self._counting = 0, threading.Lock()
        self._writing = threading.Lock()  # whoever reads the open segment holds up no more than the thread
        self._writer: SegmentWriter | None = None
        self._tick, self._figures_at = 0, 0.0
        self.poller = Poller("history", self.flush, FLUSH_SECONDS)

    # ------------------------------------------------------------------ telling; never waits

    def heard(self, change: Change) -> None:
        """One change of an object that a watch has told. Cost: a microsecond; the thread does the rest."""
        if type(change) in _KINDS:
            self._offer(change)

    def said(self, kind: str, name: str, reason: str, message: str) -> None:
        """An event about an object was published."""
        if kind != "Pod":
            self.tell(lambda tracker, at: tracker.said(kind, name, reason, message, at))

    def tell(self, task: Task) -> None:
        """Have the thread make entries of something. Where too much waits, it is dropped and counted."""
        self._offer(task)

    def _offer(self, what: "Change | Task") -> None:
        if len(self._queue) < self._most_waiting:
            self._queue.append((self._clock.monotonic(), what))
            return
        with self._counting:
            self._dropped += 1

    # ------------------------------------------------------------------ reading

    @property
    def since(self) -> float:
        """Since when it is known what happened, in seconds since 1970."""
        with self._writing:
            own = self._writer.began if self._writer is not None else self._clock.now().timestamp()
            return self._store.since(own)

    def open_segment(self) -> bytes:
        """The segment that is being written, as it is now; empty before the first."""
        with self._writing:
            return self._writer.to_bytes() if self._writer is not None else b""

    # ------------------------------------------------------------------ the thread

    def flush(self) -> float:
        """Make entries of all that waits; seconds until the next time."""
        now = self._clock.now().timestamp()
        if self._writer is None:
            self._renew(now)
            self._tracker.take()  # the opening says it
            self._begin(now, "")
        self._drain()
        if now >= self._figures_at:
            self._figures_at = now + FIGURES_SECONDS
            self._tracker.closed(self._sources.closed())
            self._tracker.entry(self._tracker.cost())
        self._write(now)
        self._roll(now)
        return FLUSH_SECONDS

    def close(self) -> None:
        """Write what waits, and end the segment; no thread runs any more."""
        self.flush()
        self._seal()

    def _drain(self) -> None:
        with self._counting:
            dropped, self._dropped = self._dropped, 0
        started = self._clock.now().timestamp() - self._clock.monotonic()
        for _ in range(len(self._queue)):
            since, what = self._queue.popleft()
            at = started + since
            tick = int(at * TICKS)
            if tick > self._tick:
                self._write(self._tick / TICKS)
                self._tick = tick
            if isinstance(what, Changed):
                _take(what, self._tracker, at)
            else:
                what(self._tracker, at)
        if dropped:  # what is there now is newer than all that was in the queue
            _DROPPED.inc(dropped)
            now = self._clock.now().timestamp()
            self._write(self._tick / TICKS)
            self._tracker.entry(Gap(dropped))
            self._renew(now)

    def _renew(self, now: float) -> None:
        sources = self._sources
        self._tracker.renew(sources.pods(), sources.nodes(), sources.claims(), sources.pools(), now)

    def _write(self, at: float) -> None:
        entries: Sequence[HistoryEntry] = self._tracker.take()
        if not entries:
            return
        if self._changed is not None:
            entries = self._changed(entries)
        _ENTRIES.inc(len(entries))
        with self._writing:
            if self._writer is not None:
                self._writer.add(at, entries)
        self._wrote(at, entries)

    def _roll(self, now: float) -> None:
        writer, bounds = self._writer, self._bounds
        if writer is None:
            return
        if writer.size >= bounds.segment_bytes or now - writer.began >= bounds.segment_seconds:
            self._seal()
            self._begin(now, writer.id)
        with self._writing:
            own = self._writer.size if self._writer is not None else 0
            size = self._store.trim(now, own)
        _BYTES.set(size + own)
        _SPAN.set(max(0.0, now - self.since))

    def _seal(self) -> None:
        with self._writing:
            writer = self._writer
            if writer is not None:
                ended = max(writer.last, self._clock.now().timestamp())
                self._store.keep(writer.to_bytes(), writer.began, ended)
                self._writer = None

    def _begin(self, now: float, follows: str) -> None:
        opening: Sequence[HistoryEntry] = self._tracker.opening()
        if self._changed is not None:
            opening = self._changed(opening)
        head = SegmentHead(
            uuid.uuid4().hex[:16],
            self._source,
            began=now,
            ended=now,
            entries=0,
            follows=follows,
            anonymous=self._changed is not None,
            software=__version__,
        )
        begun = SegmentWriter(head, opening)
        if begun.size > self._bounds.most_bytes // 4:  # a tiny bound on a large cluster: without how things stand
            begun = SegmentWriter(msgspec.structs.replace(head, follows=""), ())
        with self._writing:
            self._writer = begun
        self._wrote(now, opening)


def _take(change: Change, tracker: ObjectTracker, at: float) -> None:
    match change:
        case PodChanged(new=None):
            tracker.pod_gone(change.latest, at)
        case PodChanged(new=new) if new is not None:
            tracker.pod(new, at)
        case NodeChanged(new=None):
            tracker.node_gone(change.latest.metadata.name)
        case NodeChanged(new=new) if new is not None:
            tracker.node(new)
        case NodeClaimChanged(new=None):
            tracker.claim_gone(change.latest.name)
        case NodeClaimChanged(new=new) if new is not None:
            tracker.claim(new)
        case NodePoolChanged(new=None):
            tracker.pool_gone(change.latest.name)
        case NodePoolChanged(new=new) if new is not None:
            tracker.pool(new)
        case _:
            pass
