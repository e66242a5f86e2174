"""Short work goes before long work of the same interpreter, which runs one thread at a time.

Two threads that compute have half of the interpreter each, and every call of a third waits for its turn behind them. So long work, made of many small
pieces, waits between two of them while short work is under way. It waits no longer than it has worked, and `GRACE_SECONDS`: however much short work there is,
long work goes on with half of the time.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Final

from provisioner.support.clock import Clock

GRACE_SECONDS: Final = 1.0
"""By so much long work may have waited longer than it has worked."""


class Precedence:
    """Who goes first. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._short = 0
        self._free = threading.Event()
        self._free.set()

    @contextlib.contextmanager
    def short_work(self) -> Iterator[None]:
        """Short work is under way: long work waits. Several threads may be in it at once."""
        with self._lock:
            self._short += 1
            self._free.clear()
        try:
            yield
        finally:
            with self._lock:
                self._short -= 1
                if not self._short:
                    self._free.set()

    def long_work(self) -> "LongWork":
        """Long work of the calling thread begins."""
        return LongWork(self._free, self._clock)


class LongWork:
    """Long work of one thread, since it was begun.

    Attributes:
        waited: seconds for which short work had precedence.
    """

    def __init__(self, free: threading.Event, clock: Clock) -> None:
        self._free, self._clock = free, clock
        self._began = clock.monotonic()
        self.waited = 0.0

    @property
    def worked(self) -> float:
        """Seconds since it began, without those for which it has waited."""
        return self._clock.monotonic() - self._began - self.waited

    def is_over(self, most: float) -> bool:
        """Asked between two pieces: whether it has worked for so many seconds; give way where it goes on."""
        if self.worked >= most:
            return True
        self.give_way()
        return False

    def give_way(self) -> None:
        """Between two pieces: wait while short work is under way, within bounds. Costs next to nothing where none is."""
        if self._free.is_set():
            return
        left = self.worked + GRACE_SECONDS - self.waited
        if left > 0:
            since = self._clock.monotonic()
            self._free.wait(left)
            self.waited += self._clock.monotonic() - since
