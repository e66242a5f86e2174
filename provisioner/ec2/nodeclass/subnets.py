"""Subnets: which there are, how many addresses are free, and which one the next instances of a zone go to.

The book counts launches that are under way, so a burst does not go to one subnet until it is full. Source: spec/karpenter-aws.md 3.1.
Differs: launches are counted until a reading that began after them, where the provider forgets them at every reading; a subnet that is known to be
    full is not chosen; subnets with IPv6 alone have addresses without end; only available subnets count.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from provisioner.apis import ec2
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.ec2.nodeclass.counts import Counts
from provisioner.ec2.nodeclass.queries import Query, tag_filters

OPERATION: Final = "describe_subnets"
MEMBER: Final = "Subnets"
ENDLESS: Final = 1 << 20
"""Addresses of a subnet that has IPv6 only."""

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


def to_status(subnets: Iterable[Subnet]) -> tuple[ec2.SubnetStatus, ...]:
    """As the class's status tells them, in the same order."""
    return tuple(ec2.SubnetStatus(id=one.id, zone=one.zone, zone_id=one.zone_id) for one in subnets)


def addresses_of(node_class: EC2NodeClass, *, ipv6: bool) -> int:
    """IPv4 addresses that one instance of the class takes from its subnet, at least 1.

    Args:
        node_class: an interface of type efa-only has no address; every other one has one, and its prefixes.
        ipv6: whether the cluster's pods have IPv6 addresses; then the prefixes are IPv6's.
    """
    interfaces = sum(one.interface_type != ec2.EFA_ONLY for one in node_class.network_interfaces)
    prefixes = 0 if ipv6 else node_class.spec.ip_prefix_count or 0
    return max(1, interfaces) * (1 + _PREFIX * prefixes)


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
        self._counts = Counts()
        self._pending: Counter[str] = Counter()  # addresses of launches under way
        self.exhausted = self._counts.exhausted

    def note(self, subnets: Iterable[Subnet], asked: datetime) -> None:
        """Take over what EC2 says; see `Counts.note`."""
        self._counts.note({one.id: one.free_ips for one in subnets}, asked)

    def free(self, subnet_id: str) -> int:
        """Addresses that are left of a subnet when everything under way is launched; of one that was never read, none less what is launched."""
        pending = self._pending[subnet_id]  # first: a launch that ends meanwhile counts twice rather than not at all
        return self._counts.left(subnet_id) - pending

    def may_hold(self, subnet_id: str, addresses: int) -> bool:
        """Whether so many addresses are left of a subnet when everything under way is launched; yes of one that was never read."""
        return subnet_id not in self._counts.said() or self.free(subnet_id) >= addresses

    def spent(self) -> frozenset[str]:
        """Ids of those without a free address, as EC2 says: of what was launched since, some may be gone again."""
        said = self._counts.said()
        return frozenset(one for one in self._counts.spent() if said.get(one, 1) <= 0)

    def by_zone(self, node_class: EC2NodeClass, now: datetime, addresses: int = 1) -> Mapping[str, Subnet]:
        """For each zone of the class the subnet with most addresses left, which may be fewer than none; of equal ones the first in its status.

        A zone is missing when all of its subnets are closed, or have fewer than `addresses`, which one instance takes, as EC2 says: of what was launched
        since, some may be gone again.
        """
        chosen: dict[str, Subnet] = {}
        said = self._counts.said()
        for one in node_class.status.subnets:
            full = said.get(one.id, addresses) < addresses
            if full or not self._is_open(one.id, now, prefixes=bool(node_class.spec.ip_prefix_count)):
                continue
            free = self.free(one.id)
            best = chosen.get(one.zone)
            if best is None or free > best.free_ips:
                chosen[one.zone] = Subnet(one.id, one.zone, one.zone_id, free)
        return chosen

    def reserve(self, subnet_id: str, addresses: int) -> None:
        """A launch that takes so many addresses is about to be asked for."""
        with self._lock:
            self._pending[subnet_id] += addresses

    def settle(self, subnet_id: str, wanted: int, launched: int, now: datetime) -> None:
        """A launch ended: `wanted` as given to `reserve`, `launched` of them are taken of this subnet."""
        if launched:  # first: never are there more addresses than before, for whoever looks meanwhile
            self._counts.change(subnet_id, -launched, now)
        with self._lock:
            self._pending[subnet_id] -= wanted
            if not self._pending[subnet_id]:
                del self._pending[subnet_id]
