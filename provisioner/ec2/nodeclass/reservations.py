"""Capacity reservations and capacity blocks: which there are, and how many instances are left of each.

Source: spec/karpenter-aws.md 3.4.
Differs: launches that were not yet known to a reading are counted on top of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from provisioner.apis import ec2
from provisioner.apis.ec2 import CapacityReservation
from provisioner.ec2 import labels
from provisioner.ec2.nodeclass.counts import Counts
from provisioner.ec2.nodeclass.queries import Filters, Query, tag_filters
from provisioner.values.message import Said

OPERATION: Final = "describe_capacity_reservations"
MEMBER: Final = "CapacityReservations"
ENDS_EARLY: Final = timedelta(minutes=40)
"""A capacity block is left so long before its end; EC2 takes the instances back 30 minutes before."""

_ACTIVE: Final = ("state", ("active",))
_PAGE: Final = 1000
_CRITERIA: Final = frozenset({"open", "targeted"})
_TYPES: Final = frozenset({labels.DEFAULT_RESERVATION, labels.CAPACITY_BLOCK})


@dataclass(frozen=True, slots=True)
class FoundReservation:
    """What the answers mean.

    Attributes:
        reservations: by id, as the class's status tells them.
        left: instances left by reservation id.
        strange: a sentence for each reservation that we do not understand and left out.
    """

    reservations: tuple[CapacityReservation, ...]
    left: Mapping[str, int]
    strange: tuple[str, ...] = ()

    def next_change(self, now: datetime) -> datetime | None:
        """When one of them next begins to expire or ends; None where none does."""
        turns = [
            turn
            for one in self.reservations
            if one.end_time is not None
            for turn in (
                one.end_time,
                *((one.end_time - ENDS_EARLY,) if one.reservation_type == labels.CAPACITY_BLOCK else ()),
            )
            if turn > now
        ]
        return min(turns, default=None)


def queries(terms: Iterable[ec2.CapacityReservationSelectorTerm]) -> tuple[Query, ...]:
    """What to ask EC2 for, one question a term; of a term with an id nothing else counts."""
    return tuple(dict.fromkeys(map(_query, terms)))


def _query(term: ec2.CapacityReservationSelectorTerm) -> Query:
    if term.id:
        return Query(OPERATION, MEMBER, (_ACTIVE,), (("CapacityReservationIds", (term.id,)),), page=0)
    wanted: Filters = tag_filters(term.tags)
    if term.owner_id:
        wanted += (("owner-id", (term.owner_id,)),)
    if term.instance_match_criteria:
        wanted += (("instance-match-criteria", (term.instance_match_criteria,)),)
    return Query(OPERATION, MEMBER, (*wanted, _ACTIVE), page=_PAGE)


def found(rows: Iterable[Mapping[str, Any]], now: datetime) -> FoundReservation:
    """Read the rows of all answers."""
    by_id: dict[str, CapacityReservation] = {}
    left: dict[str, int] = {}
    strange: dict[str, str] = {}
    for row in rows:
        name, kind = row["CapacityReservationId"], row.get("ReservationType", "default")
        criteria, end = row.get("InstanceMatchCriteria", ""), row.get("EndDate")
        if criteria not in _CRITERIA or kind not in _TYPES:
            strange[name] = Said(f"{name} is of type {kind!r} with match criteria {criteria!r}, which is not supported")
        elif row.get("State", "active") == "active" and (end is None or end > now):
            expiring = kind == labels.CAPACITY_BLOCK and end is not None and end - ENDS_EARLY <= now
            by_id[name] = CapacityReservation(
                id=name,
                availability_zone=row.get("AvailabilityZone", ""),
                end_time=end,
                instance_match_criteria=criteria,
                instance_type=row.get("InstanceType", ""),
                interruptible=bool(row.get("Interruptible", False)),
                owner_id=row.get("OwnerId", ""),
                reservation_type=kind,
                state="expiring" if expiring else "active",
            )
            left[name] = int(row.get("AvailableInstanceCount", 0))
    ordered = sorted(by_id)
    return FoundReservation(
        tuple(by_id[name] for name in ordered),
        {name: left[name] for name in ordered},
        tuple(strange[name] for name in sorted(strange)),
    )


class ReservationBook(Counts):
    """Instances left by reservation."""

    def available(self, reservation_id: str) -> int:
        """Instances left; 0 of a reservation that was never read."""
        return self.counts().get(reservation_id, 0)

    def counts(self) -> dict[str, int]:
        """Instances left of every reservation that is known."""
        return {name: max(0, left) for name, left in super().counts().items()}

    def launched(self, reservation_id: str, instances: int, now: datetime) -> None:
        """So many instances were launched into it."""
        self.change(reservation_id, -instances, now)

    def terminated(self, reservation_id: str, now: datetime) -> None:
        """An instance of it is gone."""
        self.change(reservation_id, 1, now)
