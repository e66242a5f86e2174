"""Whether a question is judged or passes at once: kube-scheduler's only loop waits for every answer.

An answer that takes long costs every pod of the cluster, and one that never comes costs `httpTimeout` each time. After a few
slow judgements in a row all questions pass unjudged for a while, then one is tried again. What fails fast is not counted: it
delays nobody, and one odd pod shall not cost the others their places.
"""

import threading
from collections.abc import Callable
from typing import Final

SLOW_SECONDS: Final = 0.25
"""A quarter of the time after which kube-scheduler gives up (`httpTimeout: 1s`)."""
SLOW_IN_A_ROW: Final = 3
PAUSE_SECONDS: Final = 5.0


class Breaker:
    """See the module. Thread-safe.

    Args:
        monotonic: seconds that never go back.
        changed: told when it opens (True) and closes.
    """

    def __init__(self, monotonic: Callable[[], float], changed: Callable[[bool], None] = lambda _: None) -> None:
        self._monotonic, self._changed = monotonic, changed
        self._lock = threading.Lock()
        self._slow = 0
        self._opened_at: float | None = None
        self._retry_at = 0.0

    def admits(self) -> bool:
        """Whether to judge the next question. Whoever is told so has to `record` how long it took."""
        with self._lock:
            if self._opened_at is None:
                return True
            now = self._monotonic()
            if now < self._retry_at:
                return False
            self._retry_at = now + PAUSE_SECONDS  # one tries, also where it never comes back
            return True

    def record(self, seconds: float) -> None:
        """A judgement took so long."""
        with self._lock:
            was_open = self._opened_at is not None
            if seconds < SLOW_SECONDS:
                self._slow, self._opened_at = 0, None
            else:
                self._slow += 1
                now = self._monotonic()
                if self._slow >= SLOW_IN_A_ROW and not was_open:
                    self._opened_at, self._retry_at = now, now + PAUSE_SECONDS
            is_open = self._opened_at is not None
        if is_open != was_open:
            self._changed(is_open)

    def open_seconds(self) -> float:
        """How long no question was judged in time; 0 while they are."""
        with self._lock:
            return 0.0 if self._opened_at is None else self._monotonic() - self._opened_at
