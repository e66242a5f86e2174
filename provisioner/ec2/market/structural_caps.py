"""What admits no further instance until one under it ends: full reservations, spread placement groups, vCPU quotas, subnets without addresses. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from provisioner.apis import names
from provisioner.apis.command import awaited_by
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.types import CapKind, StructuralCap
from provisioner.ec2 import labels
from provisioner.ec2.access.errors import quota_class
from provisioner.ec2.market.instance_types import Shape
from provisioner.ec2.market.unavailable_offerings import OfferingKey

SPREAD: Final = "spread"
_IN: Final = " in "
SPREAD_MOST: Final = 7
"""Instances of a rack-level spread placement group in one zone. Source: EC2 User Guide, "Placement strategies for your placement groups"."""


@dataclass(frozen=True)
class FullCapacity:
    """Everything that is full in a region, at one instant.

    Attributes:
        reservations: ids.
        groups: placement groups, by id, and zones in which we have as many instances as a spread group takes.
        subnets: ids of those without a free address.
        vcpus_left: by capacity type and class of a quota whose limit is known, how many vCPUs it leaves.
    """

    reservations: frozenset[str] = frozenset()
    groups: frozenset[tuple[str, str]] = frozenset()
    subnets: frozenset[str] = frozenset()
    vcpus_left: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def of_reservation(self, reservation: str, offer: OfferingKey, shape: Shape) -> StructuralCap | None:
        """What keeps another instance from being launched into a reservation; None for nothing."""
        if reservation in self.reservations:
            return StructuralCap(CapKind.RESERVATION, reservation)
        return self._of_place(offer, shape)

    def of(self, offer: OfferingKey, shape: Shape, vcpus: int) -> StructuralCap | None:
        """What keeps another instance of an on-demand or spot offering from being launched; None for nothing."""
        quota = offer.capacity_type, quota_class(offer.instance_type)
        if self.vcpus_left.get(quota, vcpus) < vcpus:
            return StructuralCap(CapKind.VCPU_QUOTA, f"{quota[0]} {quota[1]}")
        return self._of_place(offer, shape)

    def _of_place(self, offer: OfferingKey, shape: Shape) -> StructuralCap | None:
        spreads = shape.group is not None and shape.group.strategy == SPREAD
        if spreads and (offer.group, offer.zone) in self.groups:
            return StructuralCap(CapKind.PLACEMENT_GROUP, f"{offer.group}{_IN}{offer.zone}")
        mine = [subnet for zone, subnet in shape.subnets if zone == offer.zone]
        if mine and self.subnets.issuperset(mine):
            return StructuralCap(CapKind.ADDRESSES, ", ".join(mine))
        return None


def occupancy(
    claims: Iterable[NodeClaim], reserved: Mapping[str, int]
) -> tuple[dict[str, int], frozenset[tuple[str, str]]]:
    """What NodeClaims that wait for a place of their own leave to others: instances left by reservation, and spread placement groups that are full, by zone.

    Args:
        claims: of the cluster.
        reserved: instances left, by reservation id.

    Cost: O(claims).
    """
    left, counts = dict(reserved), Counter[tuple[str, str]]()
    for claim in claims:
        awaited = awaited_by(claim)
        if awaited is not None and awaited.kind == CapKind.RESERVATION and awaited.name in left:
            left[awaited.name] = max(0, left[awaited.name] - 1)
        elif awaited is not None and awaited.kind == CapKind.PLACEMENT_GROUP:
            group, _, zone = awaited.name.partition(_IN)
            counts[group, zone] += 1
        elif claim.status.provider_id and (group := claim.metadata.labels.get(labels.PLACEMENT_GROUP_ID, "")):
            counts[group, claim.metadata.labels.get(names.ZONE_LABEL, "")] += 1
    return left, frozenset(place for place, count in counts.items() if count >= SPREAD_MOST)
