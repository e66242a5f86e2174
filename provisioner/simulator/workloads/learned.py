"""What a history says of a cloud: how long instances boot, how often they are interrupted, and what was short. Pure.

- **Boot times** are those of NodeClaims, from launched to initialized; a history of another autoscaler than Karpenter or Dovetail has none.
- **Interruptions** are notices about spot instances, by the hours that spot instances ran. An instance type has a rate of its own from
  `ENOUGH_INTERRUPTIONS` on, and all others that of all instances.
- **Shortages** are told by Dovetail's leader alone: the times for which it took an offering for short. One that is short again within `SAME_SECONDS` was
  so all the while, since the provisioner only tries from time to time. What nobody tried to launch is not known, and an offering whose instance has just
  been interrupted is closed without being short.
"""

import bisect
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from provisioner.apis import names
from provisioner.history.entries import (
    AnyHistoryEntry,
    ClaimGone,
    ClaimSeen,
    EventTold,
    InstanceInterrupted,
    OfferingTurned,
)
from provisioner.simulator.market import MOST_PER_HOUR, ByOffering
from provisioner.simulator.workload import Shortage
from provisioner.simulator.workloads.errors import WorkloadError

ENOUGH_INTERRUPTIONS: Final = 5
SAME_SECONDS: Final = 600.0
MOST_BOOTS: Final = 200
"""Boot times that are kept: as many quantiles of all."""
MOST_SHORTAGES: Final = 20_000
_MOST_SEEN: Final = 500_000
"""Of NodeClaims and of shortages, each, before any of them is chosen."""
LONGEST_BOOT: Final = 3600
_TAKEN_BACK_SECONDS: Final = 5.0
"""After a notice the offering is closed at once; a history tells it a little later."""
_HOUR: Final = 3600.0
_SPOT_INTERRUPTED: Final = "spot_interrupted"
_EVENT: Final = "SpotInterrupted"
"""Of Karpenter, about the NodeClaim. Source: spec/karpenter-aws.md 6.5."""

_Offering = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class LearnedMarket:
    """What is known.

    Attributes:
        boot_seconds: each as likely, in order; none where no NodeClaim was seen to boot.
        interruptions_per_hour: of spot instances, at most `MOST_PER_HOUR`; None where none ran.
        shortages: at their times, in seconds since the history's beginning.
        boot_note, interruption_note, shortage_note: what each is learned from, a sentence; "" where nothing is.
    """

    boot_seconds: tuple[float, ...]
    interruptions_per_hour: ByOffering | None
    shortages: tuple[Shortage, ...]
    boot_note: str = ""
    interruption_note: str = ""
    shortage_note: str = ""


@dataclass(slots=True)
class MarketLesson:
    """Hears the entries of a history, one after another, and says what they teach; see the module.

    Attributes:
        began, ended: of the history, in seconds since 1970.
    """

    began: float
    ended: float
    _claims: dict[str, ClaimSeen] = field(default_factory=dict)
    _gone: dict[str, float] = field(default_factory=dict)
    _noticed: dict[str, float] = field(default_factory=dict)  # when which NodeClaim was interrupted
    _closed: dict[_Offering, float] = field(default_factory=dict)
    _spells: list[tuple[_Offering, float, float]] = field(default_factory=list)

    def take(self, at: float, entry: AnyHistoryEntry) -> None:
        """One entry, at its time in seconds since 1970.

        Raises:
            WorkloadError: there are too many NodeClaims or shortages.
        """
        match entry:
            case ClaimSeen():
                self._claims[entry.name] = entry
            case ClaimGone() if entry.name in self._claims:
                self._gone.setdefault(entry.name, at)
            case InstanceInterrupted(reason=reason) if reason == _SPOT_INTERRUPTED and entry.claim in self._claims:
                self._noticed.setdefault(entry.claim, at)
            case EventTold(kind="NodeClaim", reason=reason) if reason == _EVENT and entry.name in self._claims:
                self._noticed.setdefault(entry.name, at)
            case OfferingTurned():
                offering = entry.instance_type, entry.zone, entry.capacity_type
                if not entry.available:
                    self._closed.setdefault(offering, at)
                elif (since := self._closed.pop(offering, None)) is not None:
                    self._spells.append((offering, since, at))
            case _:
                pass
        if max(len(self._claims), len(self._spells)) > _MOST_SEEN:
            raise WorkloadError(f"the record has more than {_MOST_SEEN:,} NodeClaims or shortages; give fewer segments")

    def learned(self) -> LearnedMarket:
        """What has been heard comes to this. Cost: O(entries), with a sort."""
        boots, (rates, hours, count) = self._boots(), self._interruptions()
        shortages = self._shortages()
        return LearnedMarket(
            _quantiles(boots),
            rates,
            shortages,
            f"Boot times are those of the record: {len(boots)}, from {min(boots):g} to {max(boots):g} s."
            if boots
            else "",
            ""
            if rates is None
            else f"Spot is interrupted as often as in the record: {count} times in {hours:,.0f} hours of instances.",
            f"Shortages are those of the record: {len(shortages)}." if shortages else "",
        )

    def _boots(self) -> list[float]:
        found = [
            float(one.initialized - one.launched) for one in self._claims.values() if 0 < one.launched < one.initialized
        ]
        return sorted(one for one in found if one <= LONGEST_BOOT)

    def _interruptions(self) -> tuple[ByOffering | None, float, int]:
        hours: defaultdict[str, float] = defaultdict(float)
        notices: Counter[str] = Counter()
        for name, one in self._claims.items():
            if one.capacity_type != names.CAPACITY_SPOT or not one.launched:
                continue
            ran = min(self._gone.get(name, self.ended), self.ended) - max(float(one.launched), self.began)
            hours[one.instance_type] += max(0.0, ran) / _HOUR
            notices[one.instance_type] += name in self._noticed
        whole, count = math.fsum(hours.values()), notices.total()
        if whole <= 0:
            return None, 0.0, 0
        own = {
            kind: min(MOST_PER_HOUR, round(number / hours[kind], 6))
            for kind, number in sorted(notices.items())
            if number >= ENOUGH_INTERRUPTIONS and hours[kind] > 0
        }
        return ByOffering(min(MOST_PER_HOUR, round(count / whole, 6)), own), whole, count

    def _shortages(self) -> tuple[Shortage, ...]:
        """Of each offering, and joined where little time lies between."""
        taken: dict[_Offering, list[float]] = {}
        for name, at in self._noticed.items():
            if (one := self._claims.get(name)) is not None:
                taken.setdefault((one.instance_type, one.zone, one.capacity_type), []).append(at)
        for notices in taken.values():
            notices.sort()
        every = [*self._spells, *((offering, since, self.ended) for offering, since in self._closed.items())]
        joined: list[tuple[_Offering, float, float]] = []
        for offering, since, until in sorted(every):
            notices = taken.get(offering, [])
            before = bisect.bisect_right(notices, since)
            if before and since - notices[before - 1] <= _TAKEN_BACK_SECONDS:
                continue
            if joined and joined[-1][0] == offering and since - joined[-1][2] <= SAME_SECONDS:
                joined[-1] = offering, joined[-1][1], max(until, joined[-1][2])
            else:
                joined.append((offering, since, until))
        found = [
            Shortage(
                at=round(max(0.0, since - self.began), 3),
                until=round(until - self.began, 3),
                instance_types=(kind,),
                zones=(zone,),
                capacity_types=(capacity_type,),
            )
            for (kind, zone, capacity_type), since, until in joined
            if until > max(since, self.began)
        ]
        return tuple(sorted(found, key=lambda one: (one.at, one.instance_types, one.zones))[:MOST_SHORTAGES])


def _quantiles(ordered: Sequence[float]) -> tuple[float, ...]:
    """At most `MOST_BOOTS` of them, that lie alike."""
    count = len(ordered)
    if count <= MOST_BOOTS:
        return tuple(ordered)
    return tuple(ordered[(2 * number + 1) * count // (2 * MOST_BOOTS)] for number in range(MOST_BOOTS))
