"""How fast and how much may be ordered while things go wrong: a pace for those that are short, a trial size and a hold for each lane. No clock, no I/O.

A lane is a class and a pool (`Order.lane`). A lane is short for a while after a fleet of it got nothing; all short lanes share one pace, so that EC2 is not
asked too often in vain, and the others are not slowed by them. Times are monotonic seconds. Not thread-safe: the launcher's lock guards it.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from provisioner.cloudprovider.errors import CloudError
from provisioner.support.bounded import forget_oldest

GAP: Final = 0.6
"""Seconds between two fleets of short lanes: at most 17 in ten seconds."""

SHORT: Final = 60.0
"""For so long after a fleet that got nothing its lane counts as short."""

GROWTH: Final = 4
TRUST: Final = 64
FIRST_HOLD, LONGEST_HOLD = 1.0, 30.0
MAX_LANES: Final = 4096


@dataclass(slots=True)
class _Lane:
    """One lane.

    Attributes:
        size: instances that may be ordered at once; None: any number.
        failures: launches in a row that failed for another reason than a shortage.
        until: nothing is ordered before.
        error: what to tell until then.
        short: until then it is.
    """

    size: int | None = None
    failures: int = 0
    until: float = 0.0
    error: CloudError | None = None
    short: float = float("-inf")


class Pacing:
    """What has gone wrong lately, and what follows for the next order."""

    def __init__(self) -> None:
        self._lanes: dict[Hashable, _Lane] = {}
        self._next = float("-inf")

    def wait(self, lane: Hashable, now: float) -> float:
        """Seconds until the next fleet of a lane may be ordered; 0 where it may be now."""
        return max(0.0, self._next - now) if self.short(lane, now) else 0.0

    def short(self, lane: Hashable, now: float) -> bool:
        """Whether a fleet of the lane got nothing lately."""
        known = self._lanes.get(lane)
        return known is not None and now < known.short

    def sent(self, lane: Hashable, now: float) -> None:
        """A fleet is ordered."""
        if self.short(lane, now):
            self._next = max(self._next, now) + GAP

    def size(self, lane: Hashable, wanted: int) -> int:
        """How many of the wanted instances a lane may order at once."""
        known = self._lanes.get(lane)
        return wanted if known is None or known.size is None else min(wanted, known.size)

    def held(self, lane: Hashable, now: float) -> tuple[float, CloudError] | None:
        """How long nothing is ordered for a lane, and why; None where nothing speaks against it."""
        known = self._lanes.get(lane)
        if known is None or known.error is None or now >= known.until:
            return None
        return known.until - now, known.error

    def answered(self, lane: Hashable, wanted: int, launched: int, now: float) -> None:
        """EC2 answered an order; `launched` of `wanted` instances came."""
        known = self._lane(lane)
        known.failures, known.error = 0, None
        if launched == 0:
            known.short = now + SHORT
            self._next = max(self._next, now + GAP)
            known.size = 1
        elif launched < wanted:
            known.size = launched
        elif known.size is not None:
            known.size = known.size * GROWTH if known.size * GROWTH <= TRUST else None
        if known.size is None and now >= known.short:
            del self._lanes[lane]

    def failed(self, lane: Hashable, error: CloudError, now: float) -> float:
        """An order could not be placed; seconds until the next try, doubling up to half a minute."""
        known = self._lane(lane)
        known.failures += 1
        wait = min(FIRST_HOLD * 2.0 ** (known.failures - 1), LONGEST_HOLD)
        known.until, known.error = now + wait, error
        return wait

    def _lane(self, lane: Hashable) -> _Lane:
        known = self._lanes.pop(lane, None) or _Lane()
        self._lanes[lane] = known
        forget_oldest(self._lanes, MAX_LANES)
        return known
