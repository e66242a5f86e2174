"""Time that passes only when everybody has done what is due: a clock, and what is to happen at which instant."""

import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

BEGIN: Final = datetime(2026, 1, 5, tzinfo=UTC)
"""Every simulated day begins at this instant, a Monday: what depends on the wall clock, as schedules of budgets do, is the same each time."""


class VirtualClock:
    """A `Clock` that stands still until somebody moves it. Whoever sleeps has the world around it go on meanwhile.

    Attributes:
        seconds: since the begin.
        passing: makes so much time pass for whoever sleeps.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.passing: Callable[[float], None] = self.forward

    def now(self) -> datetime:
        """Aware, UTC."""
        return BEGIN + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        """Seconds since the begin."""
        return self.seconds

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        if seconds > 0:
            self.passing(seconds)

    def forward(self, seconds: float) -> None:
        """Move on."""
        self.seconds += seconds

    def stamp(self) -> str:
        """Now, as objects have it."""
        return self.now().strftime("%Y-%m-%dT%H:%M:%SZ")


class Agenda:
    """What happens when; of equal instants what was entered first."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """Have `call` happen in so many seconds."""
        heapq.heappush(self._heap, (self._clock.seconds + seconds, next(self._order), call))

    def next_time(self) -> float:
        """When the next thing happens; infinite where nothing does."""
        return self._heap[0][0] if self._heap else float("inf")

    def turn(self, until: float) -> bool:
        """Have the next thing happen that is due at `until`, at its own instant; whether there was one."""
        if not self._heap or self._heap[0][0] > until:
            return False
        at, _, call = heapq.heappop(self._heap)
        self._clock.seconds = max(self._clock.seconds, at)
        call()
        return True
