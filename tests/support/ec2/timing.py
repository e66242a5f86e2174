"""EC2's time: the machine's clock, moved ahead on demand, and a thread that does what is due.

What EC2 does in its own time (boots, state changes, notices, shortages) is told in EC2's seconds, of which `factor` pass in one real
second. Timestamps are the instance's, plus what was skipped.
"""

import heapq
import itertools
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta


class Timing:
    """A clock and its due actions. Thread-safe."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self._skipped = 0.0
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="ec2-time", daemon=True)
        self._thread.start()

    def now(self) -> datetime:
        """What EC2 writes into timestamps."""
        return datetime.now(UTC) + timedelta(seconds=self._skipped / self.factor)

    def seconds(self) -> float:
        """EC2's seconds since some instant; `skip` moves them."""
        return time.monotonic() * self.factor + self._skipped

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something in so many of EC2's seconds, in the thread of the clock."""
        with self._changed:
            heapq.heappush(self._due, (self.seconds() + seconds, next(self._numbers), action))
            self._changed.notify()

    def skip(self, seconds: float) -> None:
        """Let so many of EC2's seconds pass at once."""
        with self._changed:
            self._skipped += seconds
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._due or self._due[0][0] > self.seconds():
                    wait = (self._due[0][0] - self.seconds()) / self.factor if self._due else None
                    self._changed.wait(wait)
                _, _, action = heapq.heappop(self._due)
            try:
                action()
            except Exception:  # noqa: BLE001 - one action that fails stops no other
                traceback.print_exc(file=sys.stderr)
