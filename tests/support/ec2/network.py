"""Networks: VPC, subnets with their free addresses, security groups.

Five addresses of each subnet are nobody's. Source: https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html
An IPv4 prefix is 16 contiguous addresses, so a subnet with many free ones may have none.
Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-prefix-eni.html; what is said then is in `shortages`.
"""

import ipaddress
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.ec2.filters import next_token, paged, selected, tag_list
from tests.support.ec2.protocol import AwsError
from tests.support.ec2.shortages import shortage

_KEPT_BY_AWS = 5
_BLOCK = 16


@dataclass
class Subnet:
    """A subnet; `taken` are addresses in use."""

    id: str
    vpc: str
    zone: str
    zone_id: str
    cidr: ipaddress.IPv4Network
    tags: dict[str, str]
    public: bool = False
    taken: set[int] = field(default_factory=set)
    withheld: int = 0
    _next: int = _KEPT_BY_AWS - 1

    @property
    def free(self) -> int:
        """Addresses left."""
        return max(0, self.cidr.num_addresses - _KEPT_BY_AWS - len(self.taken) - self.withheld)

    def check(self, interfaces: int, prefixes: int) -> None:
        """See that an instance's interfaces and prefixes have room.

        Raises:
            AwsError: they have not.
        """
        if self.free < interfaces + _BLOCK * prefixes:
            raise shortage("PrefixAddresses" if prefixes else "SubnetId", subnet=self.id)
        if prefixes > len(self._blocks()):
            raise shortage("Ipv4PrefixCount", subnet=self.id)

    def _blocks(self) -> list[int]:
        """Where free blocks of 16 begin; the first and the last have addresses that are nobody's."""
        starts = range(_BLOCK, self.cidr.num_addresses - _BLOCK, _BLOCK)
        return [start for start in starts if self.taken.isdisjoint(range(start, start + _BLOCK))]

    def take_prefix(self) -> list[str]:
        """The addresses of one prefix; `check` has found it."""
        start = self._blocks()[-1]
        block = range(start, start + _BLOCK)
        self.taken.update(block)
        return [str(self.cidr[place]) for place in block]

    def scatter(self) -> None:
        """Have an address of every block of 16 in use, as after years of coming and going."""
        self.taken.update(range(_BLOCK // 2, self.cidr.num_addresses, _BLOCK))

    def take(self) -> str:
        """One address.

        Raises:
            AwsError: there is none.
        """
        self.check(1, 0)
        size = self.cidr.num_addresses
        for offset in itertools.count():
            place = _KEPT_BY_AWS - 1 + (self._next - _KEPT_BY_AWS + 1 + offset) % (size - _KEPT_BY_AWS)
            if place not in self.taken:
                self.taken.add(place)
                self._next = place + 1
                return str(self.cidr[place])
        raise AssertionError

    def give_back(self, address: str) -> None:
        """An address is free again."""
        self.taken.discard(int(ipaddress.IPv4Address(address)) - int(self.cidr.network_address))


@dataclass
class SecurityGroup:
    """A security group."""

    id: str
    name: str
    vpc: str
    tags: dict[str, str]


class Network:
    """The account's network in one region."""

    def __init__(self, account: str) -> None:
        self._account = account
        self.subnets: dict[str, Subnet] = {}
        self.groups: dict[str, SecurityGroup] = {}

    def subnet(self, subnet_id: str) -> Subnet:
        """By id.

        Raises:
            AwsError: there is none.
        """
        found = self.subnets.get(subnet_id)
        if found is None:
            raise AwsError("InvalidSubnetID.NotFound", f"The subnet ID '{subnet_id}' does not exist")
        return found

    def group(self, group_id: str) -> SecurityGroup:
        """By id.

        Raises:
            AwsError: there is none.
        """
        found = self.groups.get(group_id)
        if found is None:
            raise AwsError("InvalidGroup.NotFound", f"The security group '{group_id}' does not exist")
        return found

    def check(self, subnet: Subnet, groups: Iterable[str]) -> None:
        """See that security groups and subnet are of one VPC.

        Raises:
            AwsError: they are not.
        """
        for group in groups:
            if self.group(group).vpc != subnet.vpc:
                raise AwsError(
                    "InvalidParameter", f"Security group {group} and subnet {subnet.id} belong to different networks."
                )

    def describe_subnets(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """DescribeSubnets."""
        wanted = request.get("SubnetIds")
        chosen = [self.subnet(one) for one in wanted] if wanted else list(self.subnets.values())
        chosen = selected(chosen, request.get("Filters"), _subnet_facts, lambda one: one.tags)
        page, token = paged(chosen, request)
        return {"Subnets": [self._subnet(one) for one in page], **next_token(token)}

    def describe_groups(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """DescribeSecurityGroups."""
        wanted = request.get("GroupIds")
        chosen = [self.group(one) for one in wanted] if wanted else list(self.groups.values())
        chosen = selected(chosen, request.get("Filters"), _group_facts, lambda one: one.tags)
        page, token = paged(chosen, request)
        rows = [
            {
                "GroupId": one.id,
                "GroupName": one.name,
                "Description": one.name,
                "VpcId": one.vpc,
                "OwnerId": self._account,
                "Tags": tag_list(one.tags),
            }
            for one in page
        ]
        return {"SecurityGroups": rows, **next_token(token)}

    def _subnet(self, one: Subnet) -> dict[str, Any]:
        return {
            "SubnetId": one.id,
            "VpcId": one.vpc,
            "State": "available",
            "CidrBlock": str(one.cidr),
            "AvailabilityZone": one.zone,
            "AvailabilityZoneId": one.zone_id,
            "AvailableIpAddressCount": one.free,
            "MapPublicIpOnLaunch": one.public,
            "Ipv6Native": False,
            "DefaultForAz": False,
            "OwnerId": self._account,
            "Tags": tag_list(one.tags),
        }


def _subnet_facts(one: Subnet) -> Mapping[str, Iterable[str]]:
    return {
        "subnet-id": (one.id,),
        "vpc-id": (one.vpc,),
        "availability-zone": (one.zone,),
        "availability-zone-id": (one.zone_id,),
        "state": ("available",),
        "cidr-block": (str(one.cidr),),
    }


def _group_facts(one: SecurityGroup) -> Mapping[str, Iterable[str]]:
    return {"group-id": (one.id,), "group-name": (one.name,), "vpc-id": (one.vpc,)}
