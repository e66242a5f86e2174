"""How often a user may ask, and for how much of the leader's time. Bounded memory, no waiting: a user who asks too often is told when to try again."""

import threading
from collections import OrderedDict
from typing import Final

from provisioner.support.clock import Clock
from provisioner.values.bounded import put_newest

MOST_KEYS: Final = 1024
"""Of whom something is remembered; who asked longest ago is forgotten first."""


class Quota:
    """An account for each key: it is filled with `rate` a second up to `most`, and may be overdrawn once. Thread-safe.

    Args:
        rate: units a second.
        most: units that may be used at once.
    """

    def __init__(self, rate: float, most: float, clock: Clock) -> None:
        self._rate, self._most, self._clock = rate, most, clock
        self._lock = threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._left)

    def take(self, key: str = "", units: float = 1.0) -> float:
        """Use some where there is any left; seconds until there is, 0 where they were used."""
        with self._lock:
            left = self._refilled(key)
            if left > 0:
                self._put(key, left - units)
            return self._until(left)

    def charge(self, key: str, units: float) -> None:
        """Use some whether there is any left or not."""
        with self._lock:
            self._put(key, self._refilled(key) - units)

    def wait(self, key: str = "") -> float:
        """Seconds until there is some left; 0 where there is."""
        with self._lock:
            return self._until(self._refilled(key))

    def _until(self, left: float) -> float:
        return 0.0 if left > 0 else -left / self._rate + 1.0

    def _refilled(self, key: str) -> float:
        known = self._left.get(key)
        if known is None:
            return self._most
        left, at = known
        return min(self._most, left + (self._clock.monotonic() - at) * self._rate)

    def _put(self, key: str, left: float) -> None:
        put_newest(self._left, key, (left, self._clock.monotonic()), MOST_KEYS)
