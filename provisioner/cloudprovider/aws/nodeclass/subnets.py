"""Subnets: which there are, how many addresses are free, and which one the next instances of a zone go to.

The book counts launches that are under way, so a burst does not go to one subnet until it is full. Source: spec/karpenter-aws.md 3.1.
Differs: launches are counted until a reading that began after them, where the provider forgets them at every reading; a subnet that is known to be
    full is not chosen; subnets with IPv6 alone have addresses without end; only available subnets count.
"""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from provisioner.apis import ec2
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.cloudprovider.aws.nodeclass.queries import Query, tag_filters
from provisioner.support.bounded import forget_oldest

OPERATION: Final = "describe_subnets"
MEMBER: Final = "Subnets"
ENDLESS: Final = 1 << 20
"""Addresses of a subnet that has IPv6 only."""

MAX_SUBNETS: Final = 4096
_PREFIX: Final = 16
"""Addresses of an IPv4 prefix, a /28. Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-prefix-eni.html"""


@dataclass(frozen=True, slots=True)
class Subnet:
    """One subnet.

    Attributes:
        free_ips: addresses that EC2 says are free.
    """

    id: str
    zone: str
    zone_id: str = ""
    free_ips: int = 0
    vpc: str = ""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Subnet":
        """From a row of DescribeSubnets."""
        return cls(
            row["SubnetId"],
            row.get("AvailabilityZone", ""),
            row.get("AvailabilityZoneId", ""),
            ENDLESS if row.get("Ipv6Native") else int(row.get("AvailableIpAddressCount", 0)),
            row.get("VpcId", ""),
        )


@dataclass(frozen=True, slots=True)
class ChosenSubnet:
    """The subnet that instances of a zone go to; `free_ips` is without what launches under way will take, and may be negative."""

    id: str
    zone: str
    zone_id: str
    free_ips: int


def queries(terms: Iterable[ec2.SubnetSelectorTerm]) -> tuple[Query, ...]:
    """What to ask EC2 for: one question a term with tags, one for all ids."""
    terms = tuple(terms)
    tagged = [Query(OPERATION, MEMBER, tag_filters(term.tags)) for term in terms if term.tags and not term.id]
    ids = tuple(sorted({term.id for term in terms if term.id}))
    if ids:
        tagged.append(Query(OPERATION, MEMBER, (("subnet-id", ids),)))
    return tuple(dict.fromkeys(tagged))


def found(rows: Iterable[Mapping[str, Any]]) -> tuple[Subnet, ...]:
    """The available subnets of these answers, once each: those with most free addresses first, then by id."""
    by_id = {row["SubnetId"]: Subnet.of(row) for row in rows if row.get("State", "available") == "available"}
    return tuple(sorted(by_id.values(), key=lambda one: (-one.free_ips, one.id)))


def to_status(subnets: Iterable[Subnet]) -> tuple[ec2.Subnet, ...]:
    """As the class's status tells them, in the same order."""
    return tuple(ec2.Subnet(id=one.id, zone=one.zone, zone_id=one.zone_id) for one in subnets)


def addresses_of(node_class: EC2NodeClass, *, ipv6: bool) -> int:
    """IPv4 addresses that one instance of the class takes from its subnet, at least 1.

    Args:
        node_class: an interface of type efa-only has no address; every other one has one, and its prefixes.
        ipv6: whether the cluster's pods have IPv6 addresses; then the prefixes are IPv6's.
    """
    interfaces = sum(one.interface_type != ec2.EFA_ONLY for one in node_class.network_interfaces)
    prefixes = 0 if ipv6 else node_class.spec.ip_prefix_count or 0
    return max(1, interfaces) * (1 + _PREFIX * prefixes)


@dataclass(slots=True)
class _Entry:
    """One subnet: what EC2 said, when, and what was launched since.

    Attributes:
        pending: addresses of launches under way.
        taken: (when, addresses) of launches that ended after the reading.
    """

    free: int = 0
    read_at: datetime | None = None
    pending: int = 0
    taken: list[tuple[datetime, int]] = field(default_factory=list)

    @property
    def left(self) -> int:
        return self.free - self.pending - sum(count for _, count in self.taken)


class IsOpen(Protocol):
    """What of `Shortages.subnet_open` is needed."""

    def __call__(self, subnet: str, now: datetime, /, *, prefixes: bool) -> bool: ...


class SubnetBook:
    """Free addresses by subnet. Thread-safe; knows no clock and does no I/O.

    Args:
        is_open: whether a subnet may be tried at a time, with prefixes or without: `Shortages.subnet_open`.
    """

    def __init__(self, is_open: IsOpen = lambda _id, _now, *, prefixes: True) -> None:  # noqa: ARG005 - the seam has it
        self._is_open = is_open
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}

    def __repr__(self) -> str:
        return f"<SubnetBook {', '.join(f'{name}: {self.free(name)}' for name in sorted(self._entries))}>"

    def note(self, subnets: Iterable[Subnet], now: datetime) -> None:
        """Take over what EC2 says.

        Args:
            subnets: as they were found.
            now: when EC2 was asked (not: when it answered), so that launches in between still count.
        """
        with self._lock:
            for one in subnets:
                entry = self._entries.pop(one.id, None) or _Entry()
                if entry.read_at is None or now > entry.read_at:
                    entry.free, entry.read_at = one.free_ips, now
                    entry.taken = [pair for pair in entry.taken if pair[0] >= now]
                self._entries[one.id] = entry
            forget_oldest(self._entries, MAX_SUBNETS)

    def free(self, subnet_id: str) -> int:
        """Addresses that are left of a subnet when everything under way is launched; 0 where it was never read."""
        with self._lock:
            entry = self._entries.get(subnet_id)
            return 0 if entry is None else entry.left

    def by_zone(self, node_class: EC2NodeClass, now: datetime, addresses: int = 1) -> Mapping[str, ChosenSubnet]:
        """For each zone of the class the subnet with most addresses left; of equal ones the first in its status.

        A zone is missing when all of its subnets are closed, or were read and have fewer than `addresses`, which one instance takes.
        """
        chosen: dict[str, ChosenSubnet] = {}
        for one in node_class.status.subnets:
            if not self._is_open(one.id, now, prefixes=bool(node_class.spec.ip_prefix_count)):
                continue
            with self._lock:
                entry = self._entries.get(one.id)
                left, full = (
                    (0, False) if entry is None else (entry.left, entry.read_at is not None and entry.free < addresses)
                )
            best = chosen.get(one.zone)
            if not full and (best is None or left > best.free_ips):
                chosen[one.zone] = ChosenSubnet(one.id, one.zone, one.zone_id, left)
        return chosen

    def reserve(self, subnet_id: str, addresses: int, now: datetime) -> None:  # noqa: ARG002  (a seam: every change has a time)
        """A launch that takes so many addresses is about to be asked for."""
        with self._lock:
            self._entries.setdefault(subnet_id, _Entry()).pending += addresses

    def settle(self, subnet_id: str, wanted: int, launched: int, now: datetime) -> None:
        """A launch ended: `wanted` as given to `reserve`, `launched` of them are taken of this subnet."""
        with self._lock:
            entry = self._entries.setdefault(subnet_id, _Entry())
            entry.pending = max(0, entry.pending - wanted)
            if launched:
                entry.taken.append((now, launched))

    def exhausted(self, subnet_id: str, now: datetime) -> None:
        """EC2 says that the subnet has no address left."""
        with self._lock:
            entry = self._entries.setdefault(subnet_id, _Entry())
            entry.free, entry.read_at, entry.taken = 0, now, []
