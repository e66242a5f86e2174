"""What admits no further instance until one under it ends: full reservations, spread placement groups, subnets without addresses. Pure.

A vCPU quota is none of them: its limit can be read (Service Quotas), but what other instances of the account use of it cannot be told without listing all
of them, and a launch that fails says nothing of what the end of a node would leave.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from provisioner.apis import names
from provisioner.apis.command import awaited_by
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.types import CapKind, StructuralCap
from provisioner.ec2 import labels
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
    """

    reservations: frozenset[str] = frozenset()
    groups: frozenset[tuple[str, str]] = frozenset()
    subnets: frozenset[str] = frozenset()

    def of_reservation(self, reservation: str, offer: OfferingKey, shape: Shape) -> StructuralCap | None:
        """What keeps another instance from being launched into a reservation; None for nothing."""
        if reservation in self.reservations:
            return StructuralCap(CapKind.RESERVATION, reservation)
        return self.of(offer, shape)

    def of(self, offer: OfferingKey, shape: Shape) -> StructuralCap | None:
        """What keeps another instance of an on-demand or spot offering from being launched; None for nothing."""
        spreads = shape.group is not None and shape.group.strategy == SPREAD
        if spreads and (offer.group, offer.zone) in self.groups:
            return StructuralCap(CapKind.PLACEMENT_GROUP, f"{offer.group}{_IN}{offer.zone}")
        mine = [subnet for zone, subnet in shape.subnets if zone == offer.zone]
        # with more addresses, a node of an earlier version of the class may give back fewer than its successor needs
        if shape.addresses == 1 and mine and self.subnets.issuperset(mine):
            return StructuralCap(CapKind.ADDRESSES, ", ".join(mine))
        return None


def occupancy(claims: Iterable[NodeClaim]) -> tuple[dict[str, int], frozenset[tuple[str, str]]]:
    """What NodeClaims hold: places that claims wait for by reservation, and the spread placement groups that are full, by zone. Cost: O(claims)."""
    awaited_places, counts = Counter[str](), Counter[tuple[str, str]]()
    for claim in claims:
        awaited = awaited_by(claim)
        if awaited is not None and awaited.kind == CapKind.RESERVATION:
            awaited_places[awaited.name] += 1
        elif awaited is not None and awaited.kind == CapKind.PLACEMENT_GROUP:
            group, _, zone = awaited.name.partition(_IN)
            counts[group, zone] += 1
        elif claim.status.provider_id and (group := claim.metadata.labels.get(labels.PLACEMENT_GROUP_ID, "")):
            counts[group, claim.metadata.labels.get(names.ZONE_LABEL, "")] += 1
    return dict(awaited_places), frozenset(place for place, count in counts.items() if count >= SPREAD_MOST)
