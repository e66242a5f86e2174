"""How long to wait before trying again: decorrelated jitter, and doubling with jitter or without. Pure given a source of chance."""

import random


class DecorrelatedJitter:
    """Waits that grow towards a cap and never align between clients: each is drawn from [base, 3 x the last one].

    Args:
        base: the shortest wait, in seconds; the first wait is in [base, 3 x base].
        cap: the longest wait, in seconds.
        chance: where randomness comes from.

    Source: "Exponential Backoff And Jitter", AWS Architecture Blog.
    """

    def __init__(self, base: float, cap: float, chance: random.Random) -> None:
        if not 0 < base <= cap:
            raise ValueError(f"need 0 < base <= cap, not base {base} and cap {cap}")
        self.base, self.cap = base, cap
        self._chance = chance
        self._last = base

    def next(self) -> float:
        """Seconds to wait now; at least `base`, at most `cap`."""
        self._last = min(self.cap, self._chance.uniform(self.base, self._last * 3))
        return self._last

    def reset(self) -> None:
        """Begin again at `base`; call after a success."""
        self._last = self.base


def doubled(failures: int, *, base: float, cap: float) -> float:
    """The wait after so many failures in a row, in seconds: min(cap, base x 2^(failures-1)); 0 after none."""
    return min(cap, base * 2.0 ** min(failures - 1, 60)) if failures > 0 else 0.0


def doubling(attempt: int, *, base: float, cap: float, chance: random.Random) -> float:
    """The wait before try number `attempt` + 1, in seconds.

    Args:
        attempt: failures so far, from 1.
        base: the wait after the first failure.
        cap: the longest wait.
        chance: where randomness comes from.

    Returns:
        What `doubled` says, less up to a fifth at random.
    """
    return doubled(attempt, base=base, cap=cap) * chance.uniform(0.8, 1.0)
