"""What admits no further instance, of EC2."""

from dataclasses import replace

import pytest

from provisioner.apis import names
from provisioner.apis.command import Awaited
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.types import CapKind, StructuralCap
from provisioner.ec2 import labels
from provisioner.ec2.market.instance_types import PlacementGroup, Shape
from provisioner.ec2.market.structural_caps import SPREAD_MOST, FullCapacity, occupancy
from provisioner.ec2.market.unavailable_offerings import OfferingKey
from tests.support.cluster import claim

SPREAD = Shape(
    "AL2023",
    (("a", "id-a"),),
    group=PlacementGroup("pg-1", "spread"),
    subnets=(("a", "s-1"), ("a", "s-2"), ("b", "s-3")),
)
OFFER = OfferingKey("on-demand", "m5.large", "a", "pg-1")
FULL = FullCapacity(groups=frozenset({("pg-1", "a")}))

CASES = {
    "nothing is full": (FullCapacity(), SPREAD, OFFER, None),
    "the group in the zone": (FULL, SPREAD, OFFER, (CapKind.PLACEMENT_GROUP, "pg-1 in a")),
    "the group in another zone": (FULL, SPREAD, replace(OFFER, zone="b"), None),
    "a cluster group has no such limit": (FULL, replace(SPREAD, group=PlacementGroup("pg-1", "cluster")), OFFER, None),
    "one of two subnets": (FullCapacity(subnets=frozenset({"s-1"})), SPREAD, OFFER, None),
    "both subnets": (FullCapacity(subnets=frozenset({"s-1", "s-2"})), SPREAD, OFFER, (CapKind.ADDRESSES, "s-1, s-2")),
    "both, of instances with prefixes, of which nobody knows how many they give back": (
        FullCapacity(subnets=frozenset({"s-1", "s-2"})),
        replace(SPREAD, prefixes=1, addresses=17),
        OFFER,
        None,
    ),
    "a zone without a subnet": (
        FullCapacity(subnets=frozenset({"s-1", "s-2"})),
        SPREAD,
        replace(OFFER, zone="c"),
        None,
    ),
}


@pytest.mark.parametrize(("full", "shape", "offer", "want"), CASES.values(), ids=CASES)
def test_what_is_full(full: FullCapacity, shape: Shape, offer: OfferingKey, want: tuple[CapKind, str] | None) -> None:
    assert full.of(offer, shape) == (StructuralCap(*want) if want else None)


def test_a_reservation_needs_its_place_too() -> None:
    full = replace(FULL, reservations=frozenset({"cr-1"}))
    assert full.of_reservation("cr-1", OFFER, SPREAD) == (CapKind.RESERVATION, "cr-1")
    assert full.of_reservation("cr-2", OFFER, SPREAD) == (CapKind.PLACEMENT_GROUP, "pg-1 in a")
    assert full.of_reservation("cr-2", replace(OFFER, zone="b"), SPREAD) is None


def test_instances_of_a_group_are_counted_by_zone() -> None:
    def some(count: int, zone: str, group: str = "pg-1", launched: bool = True) -> list[NodeClaim]:
        own = {labels.PLACEMENT_GROUP_ID: group, names.ZONE_LABEL: zone} if group else {names.ZONE_LABEL: zone}
        return [
            claim(f"{zone}-{group}-{number}-{launched}", provider_id=f"aws:///{number}" if launched else "", labels=own)
            for number in range(count)
        ]

    claims = [
        *some(SPREAD_MOST, "a"),
        *some(SPREAD_MOST - 1, "b"),
        *some(1, "b", launched=False),
        *some(SPREAD_MOST, "c", group=""),
    ]
    assert occupancy(claims)[1] == {("pg-1", "a")}
    waits = claim(
        "w", annotations={names.AWAITS_ANNOTATION: Awaited("b-0", "u", "placement-group", "pg-1 in b").to_text()}
    )
    assert occupancy([*claims, waits])[1] == {("pg-1", "a"), ("pg-1", "b")}, "its place is held"


def test_a_place_of_a_reservation_is_held_for_whoever_waits_for_it() -> None:
    waits = claim("w", annotations={names.AWAITS_ANNOTATION: Awaited("a", "u", "reservation", "cr-1").to_text()})
    assert occupancy([waits, claim("other")])[0] == {"cr-1": 1}
