"""How this process ends: on a signal and in time, at once when it must do nothing more, or by the kernel at a time that nobody can miss."""

import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from provisioner.support import logs
from provisioner.support.clock import SystemClock

_log = logs.get_logger(__name__)
_FLUSH_SECONDS = 0.5


class Process(Protocol):
    """The process as whoever must end it sees it."""

    def end(self, why: str) -> None:
        """End now, with status 1, whatever other threads do; nothing is cleaned up."""
        ...

    def end_in(self, seconds: float) -> None:
        """Have it ended after so many seconds, unless this is called again before; 0 calls it off."""
        ...


class ThisProcess:
    """This very process; made in its main thread.

    `end_in` is an interval timer of the kernel, whose signal kills: it needs no thread of ours, no lock and no interpreter. It runs on while the
    process is stopped (SIGSTOP, a debugger, a frozen cgroup), and what is due then is delivered before anything else of the process runs.
    """

    def __init__(self) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a parent may have had it ignored
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})

    def end(self, why: str) -> None:
        """See `Process.end`."""
        say = threading.Thread(target=_say, args=(why,), name="last-words", daemon=True)
        say.start()
        say.join(_FLUSH_SECONDS)  # whoever reads our log may have stopped reading
        os._exit(1)

    def end_in(self, seconds: float) -> None:
        """See `Process.end_in`."""
        signal.setitimer(signal.ITIMER_REAL, seconds)


def stop_on_signals(stopping: threading.Event, process: Process, seconds: float) -> None:
    """From now on SIGTERM and SIGINT set `stopping`; a process that has not ended so many seconds later is ended. Call in the main thread.

    The kernel may give a signal to any thread, and Python's handlers run in the main thread only, which a signal of another thread does not wake:
    so Python writes each signal into a pipe, from whichever thread has it, and a thread of ours reads that. A handler could not set the event either:
    it interrupts the main thread anywhere, also where it holds the lock of the very event that it waits for.
    """
    heard, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)

    def wait() -> None:
        os.read(heard, 1)
        stopping.set()
        threading.Event().wait(seconds)
        process.end(f"the process did not stop within {seconds:g} s of the signal")

    threading.Thread(target=wait, name="signals", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)


def stop_all(stops: Iterable[Callable[[], object]], seconds: float) -> bool:
    """Call all of these at once, each in a thread of its own, and wait for them, so many seconds altogether; whether all came back.

    What one raises is logged, and the others are called all the same.
    """
    done: queue.SimpleQueue[None] = queue.SimpleQueue()

    def call(stop: Callable[[], object]) -> None:
        try:
            stop()
        except Exception:  # noqa: BLE001 - the others are stopped all the same
            _log.exception("Failed to stop a component cleanly")
        done.put(None)

    threads = [threading.Thread(target=call, args=(stop,), name="stop", daemon=True) for stop in stops]
    for thread in threads:
        thread.start()
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    for _ in threads:
        try:
            done.get(timeout=max(0.0, deadline - clock.monotonic()))
        except queue.Empty:
            return False
    return True


def _say(why: str) -> None:
    _log.critical("Ending this process", why=why)
    sys.stdout.flush()
    sys.stderr.flush()
