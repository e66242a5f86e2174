"""A clock that stands still until the test moves it."""

import threading
from datetime import UTC, datetime, timedelta

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


class FakeClock:
    """Both clocks move together, by `advance` and by `sleep`; `slept` records every sleep in seconds. Thread-safe."""

    def __init__(self, start: datetime = NOON) -> None:
        self._lock = threading.Lock()
        self._start = start
        self._seconds = 0.0
        self.slept: list[float] = []

    def __repr__(self) -> str:
        return f"<FakeClock {self.now().isoformat()}>"

    def now(self) -> datetime:
        """Aware, UTC."""
        return self._start + timedelta(seconds=self._seconds)

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._seconds

    def sleep(self, seconds: float) -> None:
        """Move on by as much and return at once."""
        self.slept.append(seconds)
        self.advance(max(0.0, seconds))

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise ValueError(f"time does not go back by {-seconds} s")
        with self._lock:
            self._seconds += seconds


class RunningClock(FakeClock):
    """One that moves on whenever somebody looks at it, as a real one does: two looks are never the same instant.

    Args:
        step: seconds a look.
    """

    def __init__(self, step: float) -> None:
        super().__init__()
        self._step = step

    def now(self) -> datetime:
        self.advance(self._step)
        return super().now()

    def monotonic(self) -> float:
        self.advance(self._step)
        return super().monotonic()
