"""Work by key: `KeyedQueue` for controllers, `WorkerPool` and `run_parallel` for a batch of calls.

`Schedule` decides what is due and is pure (time is an argument); `KeyedQueue` adds the lock and the threads.
"""

import contextlib
import heapq
import itertools
import queue
import random
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar

from provisioner.support import heartbeat, logs
from provisioner.support.backoff import doubling
from provisioner.support.clock import Clock, SystemClock
from provisioner.support.reconciles import QueueCounts, Rounds

T = TypeVar("T")
R = TypeVar("R")

BACKOFF_BASE_SECONDS = 0.1
BACKOFF_CAP_SECONDS = 10.0

_log = logs.get_logger(__name__)

LEAST_REQUEUE_SECONDS: Final = 0.001
"""What is left of a wait may be less than the clock can tell: added to now, it would be now again, and the thread would spin."""


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """What a reconciler wants next.

    Attributes:
        requeue_after: seconds until the same key shall run again; None: not before somebody adds it.
        failed: run it again with back-off, as if it had raised, but without a stack trace in the log.
    """

    requeue_after: float | None = None
    failed: bool = False


DONE = ReconcileResult()


class Schedule:
    """Which key runs when; not thread-safe, knows no clock.

    A key is in at most one of these states: waiting (due now or later), running, or running and wanted again.
    Adding a waiting key keeps the earlier of the two times, so a delay never postpones work that is due.
    """

    def __init__(self) -> None:
        self._due: dict[str, float] = {}  # waiting keys
        self._heap: list[tuple[float, int, str]] = []  # may hold outdated entries; _due decides
        self._order = itertools.count()  # equal times leave in the order in which they came
        self._running: set[str] = set()
        self._again: dict[str, float] = {}  # running keys that are wanted again, with their time

    def __len__(self) -> int:
        """Keys waiting, now or later; keys that only run are not counted."""
        return len(self._due) + len(self._again)

    @property
    def running(self) -> int:
        """How many keys have been handed out and not been given back."""
        return len(self._running)

    def add(self, key: str, at: float) -> None:
        """Want `key` to run at `at` or earlier."""
        if key in self._running:
            self._again[key] = min(at, self._again.get(key, at))
        elif at < self._due.get(key, float("inf")):
            self._due[key] = at
            heapq.heappush(self._heap, (at, next(self._order), key))

    def pop(self, now: float) -> str | None:
        """The next key that is due at `now`, which counts as running from here on; None when there is none."""
        self._drop_outdated()
        if not self._heap or self._heap[0][0] > now:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._due[key]
        self._running.add(key)
        return key

    def done(self, key: str) -> None:
        """Give a running key back; if it was added meanwhile it waits again."""
        self._running.discard(key)
        at = self._again.pop(key, None)
        if at is not None:
            self.add(key, at)

    def next_time(self) -> float | None:
        """When the earliest waiting key is due; None when none waits."""
        self._drop_outdated()
        return self._heap[0][0] if self._heap else None

    def ready(self, now: float) -> int:
        """How many waiting keys are due at `now`."""
        return sum(1 for at in self._due.values() if at <= now)

    def clear(self) -> None:
        """Forget every waiting key."""
        self._due.clear()
        self._heap.clear()
        self._again.clear()

    def _drop_outdated(self) -> None:
        heap = self._heap
        while heap and self._due.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)


def join_all(threads: Iterable[threading.Thread], seconds: float, clock: Clock) -> bool:
    """Wait for all of these threads but this one together, at most so long; whether every one has ended."""
    waited = [thread for thread in threads if thread is not threading.current_thread()]
    deadline = clock.monotonic() + seconds
    for thread in waited:
        thread.join(max(0.0, deadline - clock.monotonic()))
    return not any(thread.is_alive() for thread in waited)


class KeyedQueue:
    """A work queue of keys with its own threads: the engine of every controller.

    A key that is added twice before it runs, runs once. One key never runs in two threads at once; if it is added
    while it runs, it runs once more afterwards. A reconciler that raises is tried again after 100 ms, doubling to
    10 s, with jitter, for as long as it fails; what it raised is logged with the key.

    Args:
        name: for logs and thread names.
        reconcile: does the work of one key; called in one of `workers` threads.
        workers: the most threads; each is started when a key waits and all others are at work, and stays.
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[str], ReconcileResult | None],
        clock: Clock | None = None,
        *,
        workers: int = 1,
    ) -> None:
        if workers < 1:
            raise ValueError(f"queue {name} needs at least one worker, not {workers}")
        self.name = name
        self._reconcile = reconcile
        self._clock = clock if clock is not None else SystemClock()
        self.workers = workers
        self._chance = random.Random()
        self._schedule = Schedule()
        self._rounds, self._counts = Rounds(name, workers), QueueCounts(name)
        self._begun: dict[str, float] = {}  # keys that run, with their time
        self._failures: dict[str, int] = {}
        self._lock = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._started = False
        self._stopping = False

    def __repr__(self) -> str:
        with self._lock:
            return f"<KeyedQueue {self.name}: {len(self._schedule)} waiting, {self._schedule.running} running, {len(self._failures)} failing>"

    def __len__(self) -> int:
        """Keys waiting, now or later; keys that only run are not counted."""
        with self._lock:
            return len(self._schedule)

    def depth(self) -> int:
        """Keys that are due and wait for a thread: what a saturation metric shows."""
        with self._lock:
            return self._schedule.ready(self._clock.monotonic())

    def running_for(self) -> list[float]:
        """For how many seconds each key that runs has run."""
        with self._lock:
            now = self._clock.monotonic()
            return [now - begun for begun in self._begun.values()]

    def start(self) -> None:
        """Start the first thread; keys may have been added before. Starting twice does nothing."""
        with self._lock:
            if self._started or self._stopping:
                return
            itself = weakref.ref(self)
            self._counts.watch(
                lambda: found.depth() if (found := itself()) is not None else 0,
                lambda: found.running_for() if (found := itself()) is not None else [],
            )
            self._add_thread()
            self._started = True

    def add(self, key: str) -> None:
        """Run `key` as soon as a thread is free. Never blocks; does nothing once stopping."""
        self.add_after(key, 0.0)

    def offer(self, key: str) -> None:
        """Run `key` as soon as a thread is free, unless it has failed and waits for its next try: that is not hastened."""
        with self._lock:
            if self._stopping or self._failures.get(key):
                return
            self._counts.added()
            self._schedule.add(key, self._clock.monotonic())
            self._wake()

    def add_after(self, key: str, seconds: float) -> None:
        """Run `key` in `seconds`, or earlier if it is already wanted earlier."""
        with self._lock:
            if self._stopping:
                return
            self._counts.added()
            self._schedule.add(key, self._clock.monotonic() + max(0.0, seconds))
            self._wake()

    def add_all(self, keys: Iterable[str]) -> None:
        """Add many keys at once."""
        with self._lock:
            if self._stopping:
                return
            now = self._clock.monotonic()
            for key in keys:
                self._counts.added()
                self._schedule.add(key, now)
            self._wake()

    def attended(self, chance: random.Random) -> None:
        """Begin without threads: whoever asks for that has the work done by `turn`.

        Args:
            chance: of the jitter.
        """
        self._chance = chance

    def due_at(self) -> float | None:
        """When the next key is due, by the clock's monotonic time; None while none waits."""
        with self._lock:
            return self._schedule.next_time()

    def turn(self) -> bool:
        """Work on one key that is due, in the caller's thread; whether there was one. Only where there are no threads."""
        with self._lock:
            now = self._clock.monotonic()
            key = None if self._stopping else self._schedule.pop(now)
            if key is None:
                return False
            self._begun[key] = now
        self._run(key)
        return True

    def failures(self, key: str) -> int:
        """How often `key` has failed in a row."""
        with self._lock:
            return self._failures.get(key, 0)

    def idle(self) -> bool:
        """Whether nothing runs and nothing is due now; work for later may wait."""
        with self._lock:
            return not self._schedule.running and not self._schedule.ready(self._clock.monotonic())

    def stop(self, timeout: float = 10.0) -> bool:
        """Take no more keys and end the threads, for which it waits so many seconds; what runs is finished.

        Returns:
            Whether every thread ended in time, but for this one.
        """
        with self._lock:
            self._stopping = True
            self._schedule.clear()
            self._lock.notify_all()
        return join_all(self._threads, timeout, self._clock)

    def _work(self) -> None:
        pulse = heartbeat.pulse(f"thread {threading.current_thread().name}")
        while (key := self._take(pulse)) is not None:
            pulse.beat()
            self._run(key)
        pulse.end()

    def _run(self, key: str) -> None:
        result: ReconcileResult | None = None
        begun = self._clock.monotonic()
        try:
            with self._rounds.running():
                result = self._reconcile(key)
            failed = result is not None and result.failed
        except Exception:  # noqa: BLE001 - one call that fails ends no thread
            failed = True
            _log.exception("Reconcile failed; retrying", queue=self.name, key=key, failures=self.failures(key) + 1)
        self._count(self._clock.monotonic() - begun, result, failed=failed)
        self._finish(key, result, failed=failed)

    def _count(self, seconds: float, result: ReconcileResult | None, *, failed: bool) -> None:
        self._rounds.ended(seconds, failed=failed, later=result is not None and result.requeue_after is not None)
        self._counts.worked(seconds, failed=failed)

    def _take(self, pulse: heartbeat.Pulse) -> str | None:
        pulse.rest()
        with self._lock:
            while True:
                now = self._clock.monotonic()
                if self._stopping:
                    return None
                due = self._schedule.next_time()
                key = self._schedule.pop(now)
                at = self._schedule.next_time()
                if key is not None and due is not None:
                    self._begun[key] = now
                    self._counts.taken(now - due)
                    if at is not None:
                        self._wake()
                    return key
                self._lock.wait(None if at is None else max(0.0, at - now))

    def _wake(self) -> None:
        """See that a thread looks at what waits, now or later; with the lock."""
        if self._schedule.running < len(self._threads):
            self._lock.notify()  # whoever is not at work and does not wait looks by itself
        elif self._started and not self._stopping and len(self._threads) < self.workers:
            self._add_thread()

    def _add_thread(self) -> None:
        """Start one more; with the lock, so that a stop that comes now does not join what has not been started."""
        thread = threading.Thread(target=self._work, name=f"{self.name}-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads for this process: those that there are do the work
            if not self._threads:
                raise
            _log.warning(
                "Failed to start a thread; the queue continues with the threads that it has",
                queue=self.name,
                threads=len(self._threads),
            )
            return
        self._threads.append(thread)

    def _finish(self, key: str, result: ReconcileResult | None, *, failed: bool) -> None:
        with self._lock:
            now = self._clock.monotonic()
            self._begun.pop(key, None)
            if failed:
                count = self._failures[key] = self._failures.get(key, 0) + 1
                wait = doubling(count, base=BACKOFF_BASE_SECONDS, cap=BACKOFF_CAP_SECONDS, chance=self._chance)
                if not self._stopping:
                    self._schedule.add(key, now + wait)
            else:
                self._failures.pop(key, None)
                if result is not None and result.requeue_after is not None and not self._stopping:
                    self._schedule.add(key, now + max(LEAST_REQUEUE_SECONDS, result.requeue_after))
            self._schedule.done(key)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T, R]):
    """What became of one item of `run_parallel`: a value, or the error that was raised."""

    item: T
    value: R | None = None
    error: Exception | None = None

    def unwrap(self) -> R:
        """The value; raises the error where there was one."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # R itself may be None


class WorkerPool:
    """A fixed number of threads that run calls; shared by everything that fans out API or cloud calls.

    Threads start on demand and stay. A call that raises is logged and harms nobody else.
    """

    def __init__(self, workers: int, name: str = "pool") -> None:
        if workers < 1:
            raise ValueError(f"pool {name} needs at least one worker, not {workers}")
        self.workers, self.name = workers, name
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._closed = False

    def submit(self, call: Callable[[], None]) -> None:
        """Run `call` in one of the threads, as soon as one is free.

        Raises:
            RuntimeError: the pool is closed.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError(f"pool {self.name} is closed")
            self._calls.put(call)
            self._unfinished += 1
            if len(self._threads) < min(self._unfinished, self.workers):
                thread = threading.Thread(target=self._work, name=f"{self.name}-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def close(self, timeout: float = 10.0) -> bool:
        """Finish what was submitted and end the threads; whether all ended within `timeout` seconds altogether."""
        with self._lock:
            self._closed = True
            threads = list(self._threads)
        for _ in threads:
            self._calls.put(None)
        return join_all(threads, timeout, SystemClock())

    def _work(self) -> None:
        pulse = heartbeat.pulse(f"thread {threading.current_thread().name}")
        while True:
            pulse.rest()
            call = self._calls.get()
            if call is None:
                pulse.end()
                return
            pulse.beat()
            try:
                call()
            except Exception:  # noqa: BLE001 - one call that fails ends no thread
                _log.exception("Call failed", pool=self.name)
            with self._lock:
                self._unfinished -= 1


class StillRunningError(Exception):
    """A call that had no answer within the time that its caller waits; it goes on in its thread."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds

    def __str__(self) -> str:
        return f"no answer within {self.seconds:g} s; the call continues"


def run_parallel(
    pool: WorkerPool, fn: Callable[[T], R], items: Iterable[T], *, patience: float | None = None
) -> list[Outcome[T, R]]:
    """Call `fn` for every item in the pool's threads and wait for them.

    Args:
        pool: bounds how many run at once. Must not be called from one of this pool's own threads: it would wait for itself.
        fn: may raise; the error is kept with its item.
        items: any number, none included.
        patience: seconds after which nobody is waited for any more; None waits for all. A call that has not begun by
            then is left out, one that has begun goes on in its thread, and both are `StillRunningError` to the caller.

    Returns:
        One outcome per item, in the order of the items.
    """

    def run(item: T, call: futures.Future[Outcome[T, R]]) -> None:
        if not call.set_running_or_notify_cancel():
            return
        try:
            call.set_result(Outcome(item, value=fn(item)))
        except Exception as error:  # noqa: BLE001 - one call that fails ends no thread
            call.set_result(Outcome(item, error=error))

    calls: list[tuple[T, futures.Future[Outcome[T, R]]]] = [(item, futures.Future()) for item in items]
    for item, call in calls:
        pool.submit(partial(run, item, call))
    futures.wait([call for _, call in calls], patience)
    late = StillRunningError(patience or 0.0)
    return [call.result() if not call.cancel() and call.done() else Outcome(item, error=late) for item, call in calls]


@contextlib.contextmanager
def pool(workers: int, name: str = "pool") -> Iterator[WorkerPool]:
    """A pool for one block of code; closed at its end."""
    threads = WorkerPool(workers, name)
    try:
        yield threads
    finally:
        threads.close()
