"""How fast and how much may be ordered while things go wrong: a pace for those that are short, a trial size and a hold for each lane. No clock, no I/O.

A lane whose instances EC2 ends at launch (`endings.holds_back`) orders one at a time, in growing pauses, until a Node has registered: that CreateFleet
says yes proves nothing there.

A lane is a class and a pool (`Order.lane`). A lane is short for a while after a fleet of it got nothing; all short lanes share one pace, so that EC2 is not
asked too often in vain, and the others are not slowed by them. Times are monotonic seconds. Not thread-safe: the lock of `FleetLaunch` guards it.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from provisioner.cloudprovider.errors import CloudError
from provisioner.support.backoff import doubled
from provisioner.values.bounded import put_newest

GAP: Final = 0.6
"""Seconds between two fleets of short lanes: at most 17 in ten seconds."""

SHORT: Final = 60.0
"""For so long after a fleet that got nothing its lane counts as short."""

GROWTH: Final = 4
TRUST: Final = 64
FIRST_HOLD, LONGEST_HOLD = 1.0, 30.0
FIRST_PAUSE, LONGEST_PAUSE = 15.0, 300.0
"""Of a lane whose instances EC2 ends at launch."""

SHORT_WAIT: Final = 1.0
LONGEST_WAIT: Final = 15.0
"""Seconds after which a claim that got nothing is worth another try."""

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
        endings: orders in a row of which EC2 ended instances at launch.
        tried: whether there was another order since.
        ended: what to tell of that.
        paused: nothing is ordered before, for that.
    """

    size: int | None = None
    failures: int = 0
    until: float = 0.0
    error: CloudError | None = None
    short: float = float("-inf")
    endings: int = 0
    tried: bool = False
    ended: CloudError | None = None
    paused: float = float("-inf")


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
        known = self._lanes.get(lane)
        if known is not None and known.endings:
            known.tried, known.paused = True, now + _pause(known)  # the next one waits for what becomes of this one

    def size(self, lane: Hashable, wanted: int, *, all_or_none: bool = False) -> int:
        """How many of the wanted instances a lane may order at once; an order for all or none is a trial by itself."""
        known = self._lanes.get(lane)
        if known is None or known.size is None or (all_or_none and not known.endings):
            return wanted
        return min(wanted, known.size)

    def held(self, lane: Hashable, now: float) -> tuple[float, CloudError] | None:
        """How long nothing is ordered for a lane, and why; None where nothing speaks against it."""
        known = self._lanes.get(lane)
        if known is None:
            return None
        holds = ((known.until, known.error), (known.paused, known.ended))
        return max(((until - now, error) for until, error in holds if error and now < until), default=None, key=_first)

    def answered(self, lane: Hashable, wanted: int, launched: int, now: float, *, all_or_none: bool = False) -> None:
        """EC2 answered an order; `launched` of `wanted` instances came. That not all were to be had says nothing of smaller orders."""
        known = self._lane(lane)
        known.failures, known.error = 0, None
        if launched == 0:
            known.short = now + SHORT
            self._next = max(self._next, now + GAP)
            known.size = known.size if all_or_none else 1
        elif launched < wanted:
            known.size = launched
        elif known.size is not None:
            known.size = known.size * GROWTH if known.size * GROWTH <= TRUST else None
        if known.endings:
            known.size = 1
        if known.size is None and now >= known.short:
            del self._lanes[lane]

    def failed(self, lane: Hashable, error: CloudError, now: float) -> float:
        """An order could not be placed; seconds until the next try, doubling up to half a minute."""
        known = self._lane(lane)
        known.failures += 1
        wait = doubled(known.failures, base=FIRST_HOLD, cap=LONGEST_HOLD)
        known.until, known.error = now + wait, error
        return wait

    def ended(self, lane: Hashable, error: CloudError, now: float) -> None:
        """EC2 ended an instance of the lane at launch; those of one order count once."""
        known = self._lane(lane)
        if known.tried or not known.endings:
            known.endings += 1
            known.tried, known.paused = False, now + _pause(known)
        known.ended, known.size = error, 1

    def came_up(self, lane: Hashable) -> None:
        """A Node of the lane has registered, or its class has changed: what EC2 ended says nothing any more."""
        known = self._lanes.get(lane)
        if known is not None:
            known.endings, known.ended, known.paused = 0, None, float("-inf")

    def _lane(self, lane: Hashable) -> _Lane:
        known = self._lanes.get(lane) or _Lane()
        put_newest(self._lanes, lane, known, MAX_LANES)
        return known


def _pause(lane: _Lane) -> float:
    return doubled(lane.endings, base=FIRST_PAUSE, cap=LONGEST_PAUSE)


def _first(pair: tuple[float, CloudError]) -> float:
    return pair[0]
