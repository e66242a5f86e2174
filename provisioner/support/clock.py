"""The one door to the clock: everything that asks for the time takes a `Clock`."""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

OFFSET_FILE: Final = "DOVETAIL_CLOCK_OFFSET_FILE"
"""Environment variable for fault injection: a file that holds seconds, by which this process's wall clock goes wrong. Never set it in production.

The file is read at every look at the wall clock, so that a test can make the clock jump; durations and deadlines are not touched by it.
"""

_BOOT_TIME: Final = getattr(time, "CLOCK_BOOTTIME", None)


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
    """The machine's clock, wrong on purpose where `OFFSET_FILE` says so.

    Time during which the machine was suspended counts as passed: a leader that wakes up must find its term over.
    """

    def __init__(self) -> None:
        self._offset = os.environ.get(OFFSET_FILE, "")

    def now(self) -> datetime:
        now = datetime.now(UTC)
        return now if not self._offset else _shifted(now, Path(self._offset))

    def monotonic(self) -> float:
        return time.monotonic() if _BOOT_TIME is None else time.clock_gettime(_BOOT_TIME)

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)


def _shifted(now: datetime, path: Path) -> datetime:
    """`now` and as many seconds as the file says; none where it says nothing sensible."""
    try:
        return now + timedelta(seconds=float(path.read_text(encoding="ascii")))
    except (OSError, ValueError, OverflowError):
        return now
