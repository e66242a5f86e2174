"""Whether every thread that matters still works: what /healthz asks.

A loop beats its pulse at every turn; one that is silent for longer than its patience hangs, and one whose thread is gone is dead. A thread that ends
with an exception is dead too, whoever it was: nothing of ours ends that way in order (`watch_threads`).
"""

import threading
from collections.abc import Callable
from typing import Final

from provisioner.support import logs, metrics
from provisioner.support.clock import Clock, SystemClock

PATIENCE_SECONDS: Final = 900.0
"""A single piece of work that takes so long hangs: every request ends within two minutes, and a solve at its deadline."""

_log = logs.get_logger(__name__)
_DIED = metrics.counter("dovetail_threads_died_total", "Threads that ended with an error; the expected value is 0.")


class Pulse:
    """The sign of life of one loop. Only its own thread calls `beat`, `rest` and `end`; they cost next to nothing.

    Args:
        name: of the loop, in words.
        patience: seconds between two beats after which it counts as hanging.
    """

    __slots__ = ("_at", "_clock", "_thread", "name", "patience")

    def __init__(self, name: str, patience: float, clock: Clock) -> None:
        self.name, self.patience, self._clock = name, patience, clock
        self._thread: threading.Thread | None = None
        self._at: float | None = None

    def beat(self) -> None:
        """The loop turns; the next beat, or `rest`, comes within its patience."""
        self._thread = threading.current_thread()
        self._at = self._clock.monotonic()

    def rest(self) -> None:
        """The loop waits for work, however long that takes."""
        self._thread = threading.current_thread()
        self._at = None

    def end(self) -> None:
        """The loop ends as it should, while its process goes on."""
        self._thread = self._at = None

    def problem(self) -> str:
        """What is wrong with the loop, "" when nothing is."""
        thread, at = self._thread, self._at
        if thread is not None and not thread.is_alive():
            return f"{self.name} has ended"
        silent = 0.0 if at is None else self._clock.monotonic() - at
        return f"{self.name} has made no progress for {silent:.0f} s" if silent > self.patience else ""


class Pulses:
    """All pulses of a process, by name; a later one of the same name takes the place of the earlier. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pulses: dict[str, Pulse] = {}
        self._died: list[str] = []

    def pulse(self, name: str, patience: float = PATIENCE_SECONDS) -> Pulse:
        """A new pulse; it counts from its first beat."""
        made = Pulse(name, patience, self._clock)
        with self._lock:
            self._pulses[name] = made
        return made

    def problem(self) -> str:
        """What is wrong with the threads of this process, "" when nothing is. Never blocks."""
        with self._lock:
            problems = [*self._died, *(pulse.problem() for pulse in self._pulses.values())]
        return "; ".join(problem for problem in problems if problem)

    def died(self, name: str, error: BaseException | None) -> None:
        """A thread ended with an error."""
        with self._lock:
            self._died.append(f"thread {name} ended with {type(error).__name__}: {error}")


_OURS = Pulses(SystemClock())


def pulse(name: str, patience: float = PATIENCE_SECONDS) -> Pulse:
    """A pulse of this process; see `Pulses.pulse`."""
    return _OURS.pulse(name, patience)


def problem() -> str:
    """See `Pulses.problem`."""
    return _OURS.problem()


def watch_threads(pulses: Pulses = _OURS) -> Callable[[threading.ExceptHookArgs], object]:
    """From now on every thread that ends with an error is logged, counted and dead for good; the hook that was there before."""

    def hook(args: threading.ExceptHookArgs) -> None:
        if args.exc_type is SystemExit:
            return
        name = args.thread.name if args.thread is not None else "unknown"
        _DIED.inc()
        _log.critical("A thread ended with an error", exc_info=args.exc_value, thread=name)
        pulses.died(name, args.exc_value)

    before, threading.excepthook = threading.excepthook, hook
    return before
