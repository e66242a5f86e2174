"""The one door to the clock: everything that asks for the time takes a `Clock`."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What may be asked about time; a test passes one that stands still until it is told to move."""

    def now(self) -> datetime:
        """The wall clock, aware and in UTC. May jump; for what is written to objects."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed instant; never goes back. For durations and deadlines."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block this thread; zero or less returns at once."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)
