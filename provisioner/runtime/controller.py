"""What the leader runs, as one list: a `Controller` says what one of them is; the `Manager` feeds, starts, and stops all of them."""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from provisioner.runtime.changes import Change
from provisioner.runtime.poller import ApiPoller
from provisioner.support.clock import Clock
from provisioner.support.ending import stop_all
from provisioner.support.poller import Poller
from provisioner.support.workers import KeyedQueue, ReconcileResult, WorkerPool

Keys: TypeAlias = Iterable[str | tuple[str, float]]
"""What is looked at again: by key, at once or after so many seconds."""
Runner: TypeAlias = KeyedQueue | Poller


@dataclass(frozen=True, kw_only=True)
class Controller:
    """One controller of a term. Exactly one of `reconcile`, `poll` and `runner` does its work.

    Attributes:
        name: of its threads, heartbeats and metrics; that of the runner where there is one.
        reconcile: looks at one key.
        poll: does all that there is; seconds until it should be done again.
        runner: whose controller feeds, wakes or times it by itself.
        watches: by kind of change, the keys that it concerns, if any; called in the thread of the watch, after the state has taken the change in.
        initial: the keys at the start of a term, if any; called before anything of its list runs.
        workers: the most threads of `reconcile`.
        expected: errors of `poll` that are no defect, beside those of the API server and of the cloud.
        closing: called when the stop begins, so that what is under way ends soon.
        waited: whether a stop waits for what is under way.
        last: stopped after the others of its list: whoever of them ends may still hand it work.
        pools: threads that it calls in; closed after everything has stopped.
    """

    name: str = ""
    reconcile: Callable[[str], ReconcileResult | None] | None = None
    poll: Callable[[], float] | None = None
    runner: Runner | None = None
    watches: Mapping[type[Change], Callable[[Any], Keys | None]] = field(default_factory=dict)
    initial: Callable[[], Keys | None] = lambda: None
    workers: int = 1
    expected: tuple[type[Exception], ...] = ()
    closing: Callable[[], object] | None = None
    waited: bool = True
    last: bool = False
    pools: tuple[WorkerPool, ...] = ()

    def made(self, clock: Clock) -> Runner:
        """What runs it.

        Raises:
            ValueError: nothing does its work, or more than one thing.
        """
        match self.reconcile, self.poll, self.runner:
            case reconcile, None, None if reconcile is not None:
                return KeyedQueue(self.name, reconcile, clock, workers=self.workers)
            case None, poll, None if poll is not None:
                return ApiPoller(self.name, poll, expected=self.expected)
            case None, None, runner if runner is not None:
                return runner
            case _:
                raise ValueError(f"controller {self.name} needs exactly one of reconcile, poll and runner")


class Manager:
    """Runs controllers from `start` to `stop`. It is made before them, so that they can be lent `add`.

    Attributes:
        controllers: the list, with what runs each, by name; `make docs` writes it into ARCHITECTURE.md.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.controllers: dict[str, tuple[Controller, Runner]] = {}
        self._lists: list[list[str]] = []  # names, in the order in which they were taken
        self._watching: dict[type[Change], list[tuple[str, Callable[[Any], Keys | None]]]] = {}
        self._stopping = threading.Event()

    def take(self, controllers: Iterable[Controller]) -> None:
        """Run these as well, after those that it has; before `start`.

        Raises:
            ValueError: two have one name, or one does not say what does its work.
        """
        taken: list[str] = []
        self._lists.append(taken)
        for one in controllers:
            runner = one.made(self._clock)
            if runner.name in self.controllers:
                raise ValueError(f"two controllers have the name {runner.name}")
            self.controllers[runner.name] = one, runner
            taken.append(runner.name)
            for kind, keys in one.watches.items():
                self._watching.setdefault(kind, []).append((runner.name, keys))

    def start(self) -> None:
        """List by list, as they were taken: feed every controller of it what is there, then let all of them begin, in their order."""
        for taken in self._lists:
            for name in taken:
                self.add(name, self.controllers[name][0].initial() or ())
            for name in taken:
                self.controllers[name][1].start()

    def add(self, name: str, keys: Keys) -> None:
        """Have a controller look at these again. Never blocks; may be called before `start`."""
        for key in keys:
            queue = self.controllers[name][1]
            if not isinstance(queue, KeyedQueue):
                raise TypeError(f"controller {name} has no keys")
            queue.add_after(*key) if isinstance(key, tuple) else queue.add(key)

    def heard(self, change: Change) -> None:
        """One change, for those that watch its kind.

        Raises:
            Exception: what the first of them raised that failed; the others are told all the same.
        """
        failed: Exception | None = None
        if not self._stopping.is_set():
            for name, keys in self._watching.get(type(change), ()):
                try:
                    self.add(name, keys(change) or ())
                except Exception as error:  # noqa: BLE001 - raised once all others were told
                    failed = failed or error
        if failed is not None:
            raise failed

    def stop(self, seconds: float, pools_seconds: float) -> list[str]:
        """Stop all lists at once, of each those last that come last, within so many seconds together, then close their pools.

        Returns:
            The names of the controllers and pools that did not end in time.
        """
        self._stopping.set()
        pools = [pool for one, _ in self.controllers.values() for pool in one.pools]
        hang = [*self.controllers, *(pool.name for pool in pools)]

        def end(name: str, runner: Runner, *, waited: bool) -> None:
            if runner.stop(seconds if waited else 0.0) or not waited:
                hang.remove(name)

        def close(pool: WorkerPool) -> None:
            if pool.close(pools_seconds):
                hang.remove(pool.name)

        deadline = self._clock.monotonic() + seconds

        def end_list(taken: Iterable[str]) -> None:
            rows = [self.controllers[name] for name in taken]
            closing: list[Callable[[], object]] = [one.closing for one, _ in rows if one.closing is not None]
            for last in (False, True):
                ends = [partial(end, its.name, its, waited=one.waited) for one, its in rows if one.last is last]
                stop_all([*closing, *ends], max(0.0, deadline - self._clock.monotonic()))
                closing = []

        stop_all([partial(end_list, taken) for taken in self._lists], seconds + 1.0)  # each keeps the bound by itself
        stop_all([partial(close, pool) for pool in pools], pools_seconds)
        return list(hang)
