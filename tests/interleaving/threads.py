"""Python's threads, of which one runs at a time: whoever asks for a lock, waits, sleeps or makes a request may be made to stand while others go on.

`install` puts these in the place of those of `threading`, in a process that does nothing else; the code under test is loaded afterwards.
"""

import _thread
import contextlib
import queue
import random
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from concurrent import futures
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from provisioner.support import clock as system
from tests.support.clock import NOON

T = TypeVar("T")
_REAL_LOCK: Final = threading.Lock
STUCK_SECONDS: Final = 60.0
_TICK: Final = 1e-6
"""A wait is this much longer than asked for: it must not end before its time by a rounding, and be asked for again for ever."""


class Dead(BaseException):
    """The process of this thread was killed."""


class Deadlock(Exception):  # noqa: N818 - what happened
    """A thread waits for something that nobody of ours gives."""


class _Worker:
    """A thread of the machine, which runs one task after another."""

    def __init__(self, stage: "Interleaver") -> None:
        self.go, self._stage = _REAL_LOCK(), stage
        self.task: Task | None = None
        self.go.acquire()
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        while True:
            self.go.acquire()
            task = self.task
            assert task is not None
            try:
                if not task.dead:
                    task.call()
            except Dead:
                pass
            except BaseException:  # noqa: BLE001 - a thread that ends so is a finding
                self._stage.crashes.append(f"thread {task.name}: {traceback.format_exc()}")
            self.task = None
            self._stage.finished(task, self)


class Task:
    """One thread of ours.

    Attributes:
        owner: of which process it is.
        dead: its process was killed.
        until: when it goes on by itself; None where only somebody else wakes it.
    """

    __slots__ = ("call", "dead", "done", "name", "owner", "ready", "thread", "until", "worker")

    def __init__(self, name: str, call: Callable[[], Any], owner: object) -> None:
        self.name, self.call, self.owner = name, call, owner
        self.ready, self.done, self.dead = True, False, False
        self.until: float | None = None
        self.worker: _Worker | None = None
        self.thread: Thread | None = None


class Interleaver:
    """Who runs, and what time it is. One for all plays of a process; `reset` begins another one."""

    def __init__(self) -> None:
        self._back = _REAL_LOCK()
        self._back.acquire()
        self._idle: list[_Worker] = []
        self.reset(random.Random(0))

    def reset(self, chance: random.Random, *, requests: float = 0.5, locks: float = 0.01) -> None:
        """Begin anew; nothing of an earlier play may run any more."""
        self.chance = chance
        self.seconds = 0.0
        self.current: Task | None = None
        self.tasks: list[Task] = []
        self.crashes: list[str] = []
        self.switches = 0
        self.at_requests, self.at_locks = requests, locks

    # --- for the director

    def spawn(self, name: str, call: Callable[[], Any], owner: object) -> Task:
        task = Task(name, call, owner)
        self.tasks.append(task)
        return task

    def ready(self) -> list[Task]:
        """Those that can go on now."""
        now = self.seconds
        return [task for task in self.tasks if task.ready or (task.until is not None and task.until <= now)]

    def wakes_at(self) -> float | None:
        """When the next one goes on by itself."""
        return min((task.until for task in self.tasks if task.until is not None), default=None)

    def resume(self, task: Task) -> None:
        """Let one go on until it stands again."""
        assert self.current is None
        if task.worker is None:
            task.worker = self._idle.pop() if self._idle else _Worker(self)
            task.worker.task = task
        self.current, self.switches = task, self.switches + 1
        task.ready, task.until = False, None
        task.worker.go.release()
        if not self._back.acquire(timeout=STUCK_SECONDS):
            frames = "".join(
                line for one in sys._current_frames().values() for line in traceback.format_stack(one)[-6:]
            )
            raise Deadlock(f"{task.name} does not come back:\n{frames}")
        self.current = None

    def kill(self, owner: object) -> None:
        """End every thread of a process where it stands."""
        for _ in range(100):
            mine = [task for task in self.tasks if task.owner is owner]
            if not mine:
                return
            for task in mine:
                task.dead = True
                if task.worker is None:
                    self.tasks.remove(task)
                else:
                    self.resume(task)
        raise Deadlock("threads outlive their process")

    def finished(self, task: Task, worker: _Worker) -> None:
        task.done = True
        self.tasks.remove(task)
        self._idle.append(worker)
        self._back.release()

    # --- for the threads

    def stand(self, *, ready: bool = False, until: float | None = None) -> None:
        """Let others go on, until this one is woken, or its time has come."""
        task = self.current
        assert task is not None, "only a thread of ours waits"
        assert task.worker is not None
        if task.dead:
            raise Dead
        task.ready, task.until = ready, until
        worker = task.worker
        self._back.release()
        worker.go.acquire()
        if task.dead:
            raise Dead

    def maybe_stand(self, probability: float) -> None:
        """Perhaps let others go on."""
        task = self.current
        if task is None:
            return
        if task.dead:
            raise Dead
        if probability and self.chance.random() < probability:
            self.stand(ready=True)

    def wake(self, task: Task) -> None:
        task.ready = True


STAGE: Final = Interleaver()


class Clock:
    """The clock of everybody."""

    def now(self) -> datetime:
        return NOON + timedelta(seconds=STAGE.seconds)

    def monotonic(self) -> float:
        return STAGE.seconds

    def sleep(self, seconds: float) -> None:
        if seconds > 0 and STAGE.current is not None:
            STAGE.stand(until=STAGE.seconds + seconds)


class Lock:
    """`threading.Lock`."""

    def __init__(self) -> None:
        self._held = False
        self._waiting: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        STAGE.maybe_stand(STAGE.at_locks)
        until = STAGE.seconds + timeout if timeout >= 0 else None
        while self._held:
            if not blocking or (until is not None and STAGE.seconds >= until):
                return False
            if STAGE.current is None:
                raise Deadlock("a lock is held by a thread that stands")
            self._waiting.append(STAGE.current)
            STAGE.stand(until=until)
        self._held = True
        return True

    def release(self) -> None:
        self._held = False
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            STAGE.wake(task)

    def locked(self) -> bool:
        return self._held

    def give_up(self) -> int:
        self.release()
        return 1

    def take_back(self, _times: int) -> None:
        self.acquire()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock:
    """`threading.RLock`."""

    def __init__(self) -> None:
        self._lock, self._times = Lock(), 0
        self._owner: object = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._times and self._owner is STAGE.current:
            self._times += 1
            return True
        if not self._lock.acquire(blocking, timeout):
            return False
        self._owner, self._times = STAGE.current, 1
        return True

    def release(self) -> None:
        self._times -= 1
        if not self._times:
            self._owner = None
            self._lock.release()

    def give_up(self) -> int:
        times, self._times, self._owner = self._times, 0, None
        self._lock.release()
        return times

    def take_back(self, times: int) -> None:
        self._lock.acquire()
        self._owner, self._times = STAGE.current, times

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        if self._owner is STAGE.current:  # a thread that was killed while it waited does not have it
            self.release()


class Condition:
    """`threading.Condition`."""

    def __init__(self, lock: Any = None) -> None:
        self._lock = lock if lock is not None else RLock()
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self._waiting: list[list[Any]] = []

    def wait(self, timeout: float | None = None) -> bool:
        task = STAGE.current
        if task is None:
            raise Deadlock("nobody else runs")
        ticket: list[Any] = [task, False]
        self._waiting.append(ticket)
        until = None if timeout is None else STAGE.seconds + max(0.0, timeout) + _TICK
        times = self._lock.give_up()
        while not ticket[1] and (until is None or STAGE.seconds < until):
            STAGE.stand(until=until)
        if ticket in self._waiting:
            self._waiting.remove(ticket)
        self._lock.take_back(times)
        return bool(ticket[1])

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        until = None if timeout is None else STAGE.seconds + timeout
        while not (found := predicate()):
            left = None if until is None else until - STAGE.seconds
            if left is not None and left <= 0:
                break
            self.wait(left)
        return found

    def notify(self, n: int = 1) -> None:
        for ticket in self._waiting[:n]:
            ticket[1] = True
            STAGE.wake(ticket[0])
        del self._waiting[:n]

    def notify_all(self) -> None:
        self.notify(len(self._waiting))

    def __enter__(self) -> bool:
        return bool(self._lock.__enter__())

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__()


class Event:
    """`threading.Event`."""

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Task] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            STAGE.wake(task)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        until = None if timeout is None else STAGE.seconds + max(0.0, timeout) + _TICK
        while not self._set and (until is None or STAGE.seconds < until):
            if STAGE.current is None:
                raise Deadlock("nobody else runs")
            self._waiting.append(STAGE.current)
            STAGE.stand(until=until)
        return self._set


class Thread:
    """`threading.Thread`, of the process of whoever starts it."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., Any] | None = None,
        name: str | None = None,
        args: Any = (),
        kwargs: Any = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name, self.daemon = name or "thread", daemon
        self._call = lambda: target(*args, **(kwargs or {})) if target is not None else None
        self._task: Task | None = None

    def start(self) -> None:
        assert STAGE.current is not None, "a thread is started by a process"
        self._task = STAGE.spawn(self.name, self._call, STAGE.current.owner)
        self._task.thread = self

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done

    def join(self, timeout: float | None = None) -> None:
        until = None if timeout is None else STAGE.seconds + timeout
        while self.is_alive() and (until is None or STAGE.seconds < until):
            STAGE.stand(until=STAGE.seconds + 0.1)


class SimpleQueue:
    """`queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._changed = Condition()

    def put(self, item: Any) -> None:
        with self._changed:
            self._items.append(item)
            self._changed.notify()

    def get(self) -> Any:
        with self._changed:
            while not self._items:
                self._changed.wait()
            return self._items.pop(0)


class Seeded(random.Random):
    """`random.Random`: one that nobody seeds follows from the play's seed."""

    def __new__(cls, *args: Any) -> "Seeded":  # noqa: PYI034 - as its base
        return super().__new__(cls)

    def __init__(self, seed: Any = None) -> None:
        super().__init__(STAGE.chance.getrandbits(64) if seed is None else seed)


_MAIN: Final = threading.current_thread()


def _current() -> Any:
    task = STAGE.current
    if task is None:
        return _MAIN
    if task.thread is None:
        task.thread = Thread(name=task.name)
    return task.thread


def _wait(calls: Iterable[futures.Future[Any]], timeout: float | None = None) -> None:
    """`concurrent.futures.wait`, in the order in which they were made: its own goes by their addresses in memory, and no play would be the same again."""
    end = None if timeout is None else STAGE.seconds + timeout
    for call in calls:
        with contextlib.suppress(futures.TimeoutError):
            call.exception(None if end is None else max(0.0, end - STAGE.seconds))


def install() -> None:
    """From now on whatever is loaded gets these; and the clock of everybody, wherever it asks for the machine's."""
    system.SystemClock = Clock  # type: ignore[misc,assignment]
    futures.wait = _wait  # type: ignore[assignment]
    threading.current_thread = _current
    changes = {"Lock": Lock, "RLock": RLock, "Condition": Condition, "Event": Event, "Thread": Thread}
    for name, made in changes.items():
        setattr(threading, name, made)
    queue.SimpleQueue = SimpleQueue  # type: ignore[misc,assignment]
    random.Random = Seeded  # type: ignore[misc,assignment]
