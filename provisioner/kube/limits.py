"""So many at once, and so many per second after that: the client-side rate limit of requests, and of events."""

import threading

from provisioner.support.clock import Clock


class TokenBucket:
    """A bucket of `burst` tokens, refilled at `qps` per second; every request takes one.

    Who comes first goes first: a place is reserved at once, under a lock, and waited for outside of it.

    Args:
        qps: tokens per second; 0 or less: no limit.
        burst: size of the bucket, at least 1.
    """

    def __init__(self, qps: float, burst: int, clock: Clock) -> None:
        if qps > 0 and burst < 1:
            raise ValueError(f"burst must be at least 1, not {burst}")
        self.qps, self.burst = qps, burst
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens = float(burst)
        self._filled = clock.monotonic()

    def reserve(self) -> float:
        """Take one token, on credit if need be; how many seconds the caller has to wait before using it."""
        if self.qps <= 0:
            return 0.0
        with self._lock:
            self._tokens = self._refilled() - 1.0
            return max(0.0, -self._tokens / self.qps)

    def spare(self) -> bool:
        """Take one token if there is one; whether there was."""
        with self._lock:
            self._tokens = self._refilled()
            if self._tokens < 1.0:
                return False
            self._tokens -= 1.0
            return True

    def take(self) -> float:
        """Take one token and wait until it may be used; how many seconds that took."""
        wait = self.reserve()
        if wait > 0:
            self._clock.sleep(wait)
        return wait

    def _refilled(self) -> float:
        now, before = self._clock.monotonic(), self._filled
        self._filled = now
        return min(float(self.burst), self._tokens + (now - before) * self.qps)
