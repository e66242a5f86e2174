"""What offerings cost, and whether they were available, when a node was bought: as far as that was not as it is now."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from provisioner.cloudprovider.types import NO_INSTANCES_PRICE, InstanceType, Offering, cheapest_offering
from provisioner.values.requirement import Requirements

LEARNING: Final = timedelta(seconds=30)
"""What changes so soon after the first catalogue was learned late (prices, reservations), and did not change."""
_LEAST: Final = 0.05
"""A price that moves by a smaller share is as it was: spot prices move all the time."""
_MOST: Final = 4
"""Former states of one offering."""


class Former(NamedTuple):
    """What an offering was like until an instant.

    Attributes:
        until: then it changed.
        asked: USD per hour for which it could be had; infinity where it was not available, or did not exist.
        usd: its price, USD per hour, available or not.
    """

    until: datetime
    asked: float
    usd: float


_Ways = Mapping[Requirements, tuple[Former, ...]]
_Kinds = Mapping[str, _Ways]


@dataclass(frozen=True, slots=True)
class PriceHistory:
    """The catalogue of each NodePool, and what its offerings were like before their last changes; memory of one process.

    What it does not know counts as it is now: a new leader, which knows nothing, sees no change, nor what is learned late after its start.
    A state is compared with that at one instant, not with the last one: an offering that was closed meanwhile, and is available again as
    it was when a node was bought, has not changed for that node. For a node that was bought while it was closed, it has, though the
    provider may only guess that there is capacity again: a replacement is launched before anything is evicted, so a guess that was
    wrong moves no pod, and a node that was bought on it does not move again when it closes.

    Attributes:
        began: when the first catalogue was seen; None before.
        catalogues: the last one that was not empty, by NodePool.
        former: by NodePool, instance type and the offering's requirements, oldest first; only of offerings of the catalogue that changed.
    """

    began: datetime | None = None
    catalogues: Mapping[str, tuple[InstanceType, ...]] = field(default_factory=dict)
    former: Mapping[str, _Kinds] = field(default_factory=dict)

    def noted(
        self, catalogues: Mapping[str, tuple[InstanceType, ...]], at: datetime, remember: timedelta
    ) -> "PriceHistory":
        """The history after a look at every NodePool's catalogue; itself where none has changed.

        An empty catalogue says nothing: nobody could tell it.

        Args:
            catalogues: by NodePool, each the same object while nothing of it changes.
            at: the time of the look.
            remember: what ended longer ago is forgotten.

        Cost: O(NodePools) where nothing has changed; O(offerings) for each catalogue with a change, however many NodePools share it.
        """
        now = {pool: types or self.catalogues.get(pool, ()) for pool, types in catalogues.items()}
        now = {pool: types for pool, types in now.items() if types}
        if now.keys() == self.catalogues.keys() and all(types is self.catalogues[pool] for pool, types in now.items()):
            return self
        began = self.began or at
        former: dict[str, _Kinds] = {}
        made: dict[tuple[int, int, int], _Kinds] = {}
        for pool, types in now.items():
            before, known = self.catalogues.get(pool), self.former.get(pool, _NOTHING)
            if before is None or at - began < LEARNING:
                continue
            key = (id(before), id(types), id(known))
            if key not in made:
                made[key] = known if before is types else _changed(before, types, known, at, at - remember)
            if made[key]:
                former[pool] = made[key]
        return PriceHistory(began, now, former)

    def has_fallen(self, pool: str, kind: InstanceType, asked: Requirements, since: datetime) -> bool:
        """Whether a type can now be had for less than at an instant, or can be had now and could not then.

        Args:
            pool: the NodePool's name.
            kind: the type, as it is now.
            asked: which of its offerings are meant.
            since: the instant.
        """
        cheapest = cheapest_offering(kind, asked)
        ways = self._ways(pool, kind)
        if cheapest is None or not ways:
            return False
        open_to_us = [one for one in kind.offerings if asked.conflict(one.requirements) is None]
        return cheapest.price < (1 - _LEAST) * min(_then(ways, one, since).asked for one in open_to_us)

    def last_fall(self, pool: str, kind: InstanceType, asked: Requirements) -> datetime | None:
        """The instant before which a node must have been bought for `has_fallen` to be possible, of `asked` or any part of it.

        None where nothing has fallen.
        """
        ways = self._ways(pool, kind)
        if not ways:
            return None
        falls = (
            former.until
            for one in kind.offerings
            if one.launchable and asked.conflict(one.requirements) is None
            for former in ways.get(one.requirements, ())
            if one.price < (1 - _LEAST) * former.asked
        )
        return max(falls, default=None)

    def has_risen(self, pool: str, kind: InstanceType, zone: str, capacity_type: str, since: datetime) -> bool:
        """Whether an instance in that zone and of that capacity type costs more now than at an instant, available or not."""
        ways = self._ways(pool, kind)
        if not ways:
            return False
        for one in kind.offerings:
            if one.zone == zone and one.capacity_type == capacity_type:
                return (1 + _LEAST) * _then(ways, one, since).usd < one.price < NO_INSTANCES_PRICE
        return False

    def _ways(self, pool: str, kind: InstanceType) -> _Ways | None:
        return self.former.get(pool, _NOTHING).get(kind.name)


_NOTHING: Final[_Kinds] = {}
NO_PRICE_HISTORY: Final = PriceHistory()


def _then(ways: _Ways, one: Offering, at: datetime) -> Former:
    known = next((former for former in ways.get(one.requirements, ()) if at < former.until), None)
    return known or _state(one, at)


def _state(one: Offering, until: datetime) -> Former:
    return Former(until, one.price if one.launchable else math.inf, one.price)


def _changed(
    before: tuple[InstanceType, ...], types: tuple[InstanceType, ...], known: _Kinds, at: datetime, forget: datetime
) -> _Kinds:
    were = {one.name: one for one in before}
    found: dict[str, _Ways] = {}
    for kind in types:
        was, ways = were.get(kind.name), known.get(kind.name, {})
        if was is not kind:
            ways = _changed_ways(was, kind, ways, at)
        ways = {way: past for way, past in ways.items() if past[-1].until > forget}
        if ways:
            found[kind.name] = ways
    return found


def _changed_ways(was: InstanceType | None, kind: InstanceType, known: _Ways, at: datetime) -> _Ways:
    old = {one.requirements: one for one in was.offerings} if was is not None else {}
    found: dict[Requirements, tuple[Former, ...]] = {}
    for one in kind.offerings:
        past, before = known.get(one.requirements, ()), old.get(one.requirements)
        if before is None:
            past = _with(past, Former(at, math.inf, one.price)) if one.launchable else past
        elif before.launchable and before.price >= NO_INSTANCES_PRICE:
            pass  # its price was not known, so nobody can tell whether it changed
        elif (before.price, before.launchable) != (one.price, one.launchable):
            past = _with(past, _state(before, at))
        if past:
            found[one.requirements] = past
    return found


def _with(past: tuple[Former, ...], last: Former) -> tuple[Former, ...]:
    """One more; of those that are too many, one is made that no state of now is a change from that was none from both."""
    if len(past) < _MOST:
        return (*past, last)
    first, second = past[:2]
    return (Former(second.until, min(first.asked, second.asked), max(first.usd, second.usd)), *past[2:], last)
