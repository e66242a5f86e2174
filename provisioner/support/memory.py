"""Memory of this process against the limit of its container: what can be given back is given back before the kernel ends it."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.garbage import give_back
from provisioner.support.metrics import counter

TARGET: Final = 0.9
"""Share of the limit from which memory is given back. Source: core spec 8.3 (memory-limit)."""
CHECK_SECONDS: Final = 10.0
_ARENA_MAX: Final = -8  # M_ARENA_MAX of malloc.h
_SAY_SECONDS: Final = 300.0
_PRESSURE: Final = counter(
    "dovetail_memory_pressure_total",
    "Times that unused memory was returned to the system because the process was close to its memory limit.",
)
_log = logs.get_logger(__name__)


def resident_bytes() -> int:
    """What the kernel counts against the limit, about; 0 where it does not say (not Linux)."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def few_arenas() -> None:
    """Let all threads allocate from one place, where the C library has a place for each; call it before threads are started.

    A long answer of the API server is read in some thread, and what it leaves in that thread's arena is used by no other: with
    thirty threads that drain nodes, 60 MB of 160.
    """
    try:
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)
    except (OSError, AttributeError):
        return  # another C library


class MemoryGuard:
    """Looks now and then; `limit` in bytes, -1 or 0 is none."""

    def __init__(
        self,
        limit: int,
        clock: Clock,
        *,
        resident: Callable[[], int] = resident_bytes,
        release: Callable[[], None] = give_back,
    ) -> None:
        self._limit, self._clock, self._resident, self._release = limit, clock, resident, release
        self._said = float("-inf")

    @property
    def is_set(self) -> bool:
        return self._limit > 0

    def look(self) -> bool:
        """Give memory back if the process uses more than 90 % of the limit; whether it did."""
        used = self._resident()
        if not self.is_set or used <= TARGET * self._limit:
            return False
        self._release()
        _PRESSURE.inc()
        now = self._clock.monotonic()
        if now - self._said >= _SAY_SECONDS:
            self._said = now
            _log.warning(
                "Memory usage is above 90 % of --memory-limit; raise the container's limit if this persists",
                bytes=used,
                limit=self._limit,
                bytes_after=self._resident(),
            )
        return True
