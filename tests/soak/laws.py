"""What has grown: medians of two parts of a run, compared. Pure.

A quantity that goes up and down with the load has the same median in both parts, however far it goes; one of which something stays each time has not.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

EARLY: Final = (15 / 60, 25 / 60)
"""Of the run: what is there once caches, pools of threads and the fleet have their size."""
LATE: Final = (50 / 60, 1.0)
FLEET: Final = "nodes"
LEAST_LOOKS: Final = 3
"""In each of the two; of fewer a median says nothing."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was read at one moment.

    Attributes:
        at: seconds since the begin.
        values: by name; what could not be read is left out.
    """

    at: float
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Law:
    """How far the late median of a quantity may be over the early one.

    Attributes:
        share: of the early one.
        extra: besides, in the quantity's unit.
        follows: it may grow as the fleet does, by its nodes.
    """

    share: float
    extra: float = 0.0
    follows: bool = False

    def limit(self, early: float) -> float:
        return early * (1 + self.share) + self.extra


LAWS: Final[Mapping[str, Law]] = {
    "memory": Law(0.05),
    "threads": Law(0.0, 2),  # a look may meet a thread that is about to end
    "descriptors": Law(0.05, 4),  # requests under way have connections
    "watches": Law(0.0, 1),  # one may begin anew at the moment
    "tasks": Law(0.05, 4),  # as connections
    "keys": Law(0.10, 20, follows=True),  # one for each object that is there, and the fleet is never quite as large
    "series": Law(
        0.05, 100, follows=True
    ),  # likewise; and what happens for the first time makes the series of two histograms
    "series of": Law(0.10, 100, follows=True),  # of one family; likewise
}
"""By the first words of a quantity's name, the longest that fit. Others are told, and not judged."""


@dataclass(frozen=True, slots=True)
class Growth:
    """One quantity in both parts; nan where it was not read often enough.

    Attributes:
        limit: of `late`; infinite for what is not judged.
    """

    name: str
    early: float
    late: float
    limit: float

    @property
    def grew(self) -> bool:
        """Whether it is over its limit; also where that cannot be told."""
        return not math.isinf(self.limit) and not self.late <= self.limit

    @property
    def percent(self) -> float:
        """How far the late median is over the early one."""
        return 100 * (self.late / self.early - 1) if self.early else (math.inf if self.late else 0.0)


def law_of(name: str) -> Law | None:
    """The law of a quantity; None where there is none."""
    found = [prefix for prefix in LAWS if name.startswith(prefix)]
    return LAWS[max(found, key=len)] if found else None


def judged(looks: Sequence[Look], seconds: float, required: Iterable[str] = ()) -> list[Growth]:
    """Every quantity, in the order in which it was first read; those that grew are broken laws.

    Args:
        seconds: how long the run took.
        required: these must have been read, so that what cannot be read is not taken for what does not grow.
    """
    names = dict.fromkeys([*required, *(name for look in looks for name in look.values)])
    early, late = _medians(FLEET, looks, seconds)
    larger = late / early if late > early > 0 else 1.0
    return [_growth(name, looks, seconds, larger) for name in names]


def _growth(name: str, looks: Sequence[Look], seconds: float, larger: float) -> Growth:
    early, late = _medians(name, looks, seconds)
    law = law_of(name)
    if law is None:
        return Growth(name, early, late, math.inf)
    return Growth(name, early, late, law.limit(early * larger if law.follows else early))


def _medians(name: str, looks: Sequence[Look], seconds: float) -> tuple[float, float]:
    """In both parts."""
    early, late = (
        _median(name, [one for one in looks if begin * seconds <= one.at <= end * seconds])
        for begin, end in (EARLY, LATE)
    )
    return early, late


def _median(name: str, looks: Sequence[Look]) -> float:
    """Of a family of which the others have no series at that moment, those count as none."""
    missing = 0.0 if name.startswith("series of") else math.nan
    found = [value for one in looks if not math.isnan(value := one.values.get(name, missing))]
    return statistics.median(found) if len(found) >= LEAST_LOOKS else math.nan
