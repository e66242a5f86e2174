"""When the pods of a claim that cannot be launched are sent elsewhere. Pure; times are monotonic seconds. Not thread-safe.

Whether there is capacity elsewhere is not known: an offering that was not tried lately counts as available. So one claim goes first, after it has
waited for a while. If a claim that was made after it is launched soon, more may follow; else the others stay where they are. So a shortage of
everything costs hardly any claims, and a NodePool whose pods other NodePools can take is left within a minute.
"""

from typing import Final

PATIENCE: Final = 30.0
"""Seconds for which everything that a claim allows was refused, again and again, before it may give way."""

SOON: Final = 30.0
"""A claim that is launched within so many seconds of a departure shows that it was right."""

AGAIN, LONGEST = 60.0, 600.0
"""Seconds after which one claim may try again, if nothing came of the last departure; doubling, up to so many."""

GROWTH: Final = 4
MOST: Final = 64


class Fallback:
    """Who has waited how long, and how many may leave."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._left: float | None = None
        self._allowed = 1
        self._again = AGAIN

    def __len__(self) -> int:
        return len(self._since)

    def may_leave(self, claim: str, now: float) -> bool:
        """Whether a claim, whose launch was just refused with nothing left to try, may give way."""
        since = self._since.setdefault(claim, now)
        if self._allowed == 0 and self._left is not None and now - self._left >= self._again:
            self._allowed = 1
            self._again = min(LONGEST, self._again * 2)
        return self._allowed > 0 and now - since >= PATIENCE

    def left(self, claim: str, now: float) -> None:
        """It gave way."""
        self._since.pop(claim, None)
        self._allowed -= 1
        self._left = now

    def launched(self, claim: str, age: float, now: float) -> None:
        """A claim that was made `age` seconds ago is launched."""
        self._since.pop(claim, None)
        if self._left is not None and now - self._left <= SOON and age <= now - self._left:
            self._allowed = min(MOST, self._allowed + GROWTH)
            self._again = AGAIN

    def gone(self, claim: str) -> None:
        """It does not exist any more."""
        self._since.pop(claim, None)
