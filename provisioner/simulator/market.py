"""What a simulated cloud has for sale: which offerings are short and when, and how often it takes spot instances back. Pure.

How the provisioner answers is no part of it: notices, the table of unavailable offerings and waiting times are those of the real cloud (`CloudManners`).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from provisioner.apis.interruption import Interruption
from provisioner.simulator.workload import Shortage
from provisioner.simulator.workloads.chance import Chance

MOST_PER_HOUR: Final = 60.0
"""Interruptions of an instance, whoever says how many."""


@dataclass(frozen=True, slots=True)
class ByOffering:
    """A number for every offering.

    Attributes:
        default: for those that have none of their own.
        named: by instance type, zone or capacity type; of those that apply, in this order the first counts.
    """

    default: float = 0.0
    named: Mapping[str, float] = field(default_factory=dict)

    def of(self, instance_type: str, zone: str, capacity_type: str) -> float:
        """The number of one offering."""
        found = (self.named.get(one) for one in (instance_type, zone, capacity_type))
        return next((one for one in found if one is not None), self.default)

    @property
    def none(self) -> bool:
        """Whether it is 0 everywhere."""
        return not self.default and not any(self.named.values())


class UnavailableOfferings(Protocol):
    """What is remembered of offerings that could not be had: the part of `ec2.market.unavailable_offerings.Shortages` that is asked here."""

    def taken_back(self, offer: Any, now: datetime, code: str) -> None: ...

    def failed(self, offer: Any, now: datetime, code: str = "") -> None: ...

    def succeeded(self, offer: Any, now: datetime, instances: int = 1) -> None: ...

    def grant(self, offer: Any, wanted: int, now: datetime) -> int: ...

    def standing(self, offer: Any, now: datetime) -> Any: ...

    def opens_at(self, offers: Iterable[Any], now: datetime) -> datetime | None: ...

    def version(self, now: datetime) -> int: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class CloudManners:
    """How a cloud behaves, and what the provisioner makes of it; given by who knows it.

    Attributes:
        notice_seconds: from a notice to the end of the instance.
        notice: what a notice of that time means for a NodeClaim; None for nothing.
        offer: names an offering by capacity type, instance type and zone.
        table: of a provisioner that has just started.
        shortest_wait, longest_wait: seconds until a launch for which there was no capacity is tried again.
    """

    notice_seconds: float
    notice: Callable[[datetime], Interruption | None]
    offer: Callable[[str, str, str], Any]
    table: Callable[[], UnavailableOfferings]
    shortest_wait: float
    longest_wait: float


@dataclass(frozen=True, slots=True)
class Market:
    """What goes wrong with instances.

    Attributes:
        interruptions_per_hour: of a running spot instance; other instances are not interrupted.
        shortage_share: the share of the time, from 0 to 1, in which an offering cannot be had.
        shortage_seconds: one of these is how long a shortage lasts, each as likely.
    """

    manners: CloudManners
    interruptions_per_hour: ByOffering = field(default_factory=ByOffering)
    shortage_share: ByOffering = field(default_factory=ByOffering)
    shortage_seconds: tuple[float, ...] = (1800.0,)


@dataclass(slots=True)
class _Spell:
    """An offering is short, or is not, until then."""

    chance: Chance
    share: float
    short: bool
    until: float


class Supply:
    """Which offerings are short. The draws of one offering depend on nothing else, so that no other question changes them.

    Args:
        seed: of the run.
        share, seconds: see `Market`.
        listed: shortages of the day.
    """

    def __init__(self, seed: int, share: ByOffering, seconds: Sequence[float], listed: Iterable[Shortage]) -> None:
        self._seed, self._share, self._seconds = seed, share, tuple(seconds)
        self._to_come = sorted(listed, key=lambda one: -one.at)
        self._listed: defaultdict[str, list[Shortage]] = defaultdict(list)  # begun, by instance type; "": of all
        self._mean = math.fsum(seconds) / len(seconds)
        self._spells: dict[tuple[str, str, str], _Spell] = {}

    def is_short(self, instance_type: str, zone: str, capacity_type: str, at: float) -> bool:
        """Whether an offering cannot be had at that second of the day; later calls ask of no earlier time. Cost: the listed shortages of the time."""
        offering = instance_type, zone, capacity_type
        while self._to_come and self._to_come[-1].at <= at:
            one = self._to_come.pop()
            for name in one.instance_types or ("",):
                self._listed[name].append(one)
        listed = (*self._going_on("", at), *self._going_on(instance_type, at))
        return any(_covers(one, *offering) for one in listed) or self._drawn(offering, at)

    def _going_on(self, name: str, at: float) -> Sequence[Shortage]:
        """What is listed of an instance type for now; what is over is forgotten."""
        begun = self._listed.get(name, ())
        if all(at < one.until for one in begun):
            return begun
        left = self._listed[name] = [one for one in begun if at < one.until]
        return left

    def _drawn(self, offering: tuple[str, str, str], at: float) -> bool:
        share = self._share.of(*offering)
        if not 0 < share < 1:
            return share >= 1
        spell = self._spells.get(offering)
        if spell is None:
            chance = Chance(self._seed, f"shortages of {'/'.join(offering)}")
            short = chance.share() < share
            spell = self._spells[offering] = _Spell(chance, share, short, 0.0)
            spell.until = self._length(spell) * (chance.share() if short else 1.0)  # it began before the day
        while spell.until <= at:
            spell.short = not spell.short
            spell.until += self._length(spell)
        return spell.short

    def _length(self, spell: _Spell) -> float:
        if spell.short:
            return spell.chance.one_of(self._seconds)
        return spell.chance.gap(self._mean * (1 - spell.share) / spell.share)


def _covers(one: Shortage, instance_type: str, zone: str, capacity_type: str) -> bool:
    named = (one.instance_types, instance_type), (one.zones, zone), (one.capacity_types, capacity_type)
    return all(not those or name in those for those, name in named)
