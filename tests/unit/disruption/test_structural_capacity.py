"""Whether capacity is structurally full, and by what."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.cloudprovider.types import NO_INSTANCES_PRICE, CapKind, InstanceType, Offering, StructuralCap
from provisioner.disruption.structural_capacity import (
    caps_held,
    credited,
    draws,
    full_by,
    no_room,
    recovered,
    released,
)
from provisioner.scheduling.problem import SchedulingPool
from provisioner.scheduling.result import PlannedClaim, Result
from provisioner.values.requirement import Requirement, Requirements
from provisioner.values.resources import EMPTY, Resources

ID = "reservation-id"
CR1, CR2 = (StructuralCap(CapKind.RESERVATION, name) for name in ("cr-1", "cr-2"))
GROUP = StructuralCap(CapKind.PLACEMENT_GROUP, "pg-1 in a")
ADDRESSES = StructuralCap(CapKind.ADDRESSES, "subnet-a")


def reserved(name: str, left: int = 0, *, zone: str = "a", **more: Any) -> Offering:
    labels = {names.ZONE_LABEL: zone, names.CAPACITY_TYPE_LABEL: "reserved", ID: name}
    full = StructuralCap(CapKind.RESERVATION, name) if left < 1 else None
    return Offering(
        Requirements.from_labels(labels), **{"price": 0.01, "reservation_capacity": left, "full": full, **more}
    )


def bought(kind: str = "on-demand", zone: str = "a", **more: Any) -> Offering:
    labels = {names.ZONE_LABEL: zone, names.CAPACITY_TYPE_LABEL: kind}
    own = Requirements.from_labels(labels).merged(Requirements.of([Requirement.of(ID, "DoesNotExist", ())]))
    return Offering(own, **{"price": 0.1, **more})


def type_of(
    *offerings: Offering, name: str = "m5.large", cpu: str = "2", zones: Iterable[str] = ("a", "b")
) -> InstanceType:
    own = Requirements.from_labels({names.INSTANCE_TYPE_LABEL: name}).merged(
        Requirements.of([Requirement.of(names.ZONE_LABEL, "In", list(zones))])
    )
    return InstanceType(name, own, Resources.parse({"cpu": cpu, "memory": "4Gi"}), EMPTY, offerings)


RESERVED = Requirements.from_labels({names.CAPACITY_TYPE_LABEL: "reserved"})
ANY = Requirements.of([])

FULL = {
    "a full reservation": ([reserved("cr-1")], ANY, {CR1}),
    "two full reservations": ([reserved("cr-1"), reserved("cr-2")], ANY, {CR1, CR2}),
    "another reservation has room": ([reserved("cr-1"), reserved("cr-2", 1)], ANY, set()),
    "on-demand will do": ([reserved("cr-1"), bought()], ANY, set()),
    "on-demand would do, and is short": ([reserved("cr-1"), bought(available=False)], ANY, set()),
    "on-demand is not asked for": ([reserved("cr-1"), bought()], RESERVED, {CR1}),
    "on-demand in a zone that does not sell it is no way": (
        [reserved("cr-1"), bought(zone="c", available=False)],
        ANY,
        {CR1},
    ),
    "spot that the market does not list is no way": (
        [reserved("cr-1"), bought("spot", price=NO_INSTANCES_PRICE, available=False)],
        ANY,
        {CR1},
    ),
    "a reservation that expires is no way, though it is full": ([reserved("cr-1", available=False)], ANY, set()),
    "nor does one beside a full one matter": ([reserved("cr-1"), reserved("cr-2", 3, available=False)], ANY, {CR1}),
    "a launch said that it is full, and nobody has read it since": ([reserved("cr-1", full=None)], ANY, set()),
    "only a shortage": ([bought(available=False)], ANY, set()),
    "a placement group, where the type is short besides": (
        [bought(full=GROUP), bought("spot", full=GROUP)],
        ANY,
        {GROUP},
    ),
    "another zone has room": ([bought(full=GROUP), bought(zone="b")], ANY, set()),
    "another zone is short": ([bought(full=GROUP), bought(zone="b", available=False)], ANY, set()),
    "nothing is sold at all": ([], ANY, set()),
}


@pytest.mark.parametrize(("offerings", "asked", "want"), FULL.values(), ids=FULL)
def test_what_is_full(offerings: list[Offering], asked: Requirements, want: set[StructuralCap]) -> None:
    assert full_by([type_of(*offerings)], asked) == want


def test_types_that_are_not_asked_for_do_not_count() -> None:
    types = [type_of(reserved("cr-1")), type_of(bought(), name="c5.large")]
    assert full_by(types, ANY) == set()
    assert full_by(types, Requirements.from_labels({names.INSTANCE_TYPE_LABEL: "m5.large"})) == {CR1}


offerings = st.lists(
    st.one_of(
        st.builds(reserved, st.sampled_from(["cr-1", "cr-2"]), st.integers(0, 1), available=st.booleans()),
        st.builds(
            bought,
            st.sampled_from(["on-demand", "spot"]),
            st.sampled_from(["a", "b"]),
            available=st.booleans(),
            full=st.sampled_from([None, None, GROUP, ADDRESSES]),
        ),
    ),
    max_size=6,
)


@given(offerings)
def test_what_can_be_launched_is_never_full(some: list[Offering]) -> None:
    if any(one.launchable for one in some):
        assert full_by([type_of(*some)], ANY) == set()


@given(offerings)
def test_a_shortage_alone_never_makes_anything_full(some: list[Offering]) -> None:
    """What is full is so by a cap, whatever is short beside it; and nothing that is short only adds to it."""
    found = full_by([type_of(*some)], ANY)
    assert found <= {one.full for one in some if one.full is not None and one.available}
    if found:
        assert not any(one.full is None and one.capacity_type != "reserved" for one in some)


PLACES = {
    "in the reservation": ({"capacity": "reserved", "zone": "a", ID: "cr-1"}, {CR1}),
    "in another one, which has room": ({"capacity": "reserved", "zone": "a", ID: "cr-2"}, set()),
    "bought, in a group that is full": ({"capacity": "on-demand", "zone": "a"}, {GROUP}),
    "bought, in another zone": ({"capacity": "on-demand", "zone": "b"}, set()),
}


@pytest.mark.parametrize(("labels", "want"), PLACES.values(), ids=PLACES)
def test_what_a_node_holds(labels: dict[str, str], want: set[StructuralCap]) -> None:
    kind = type_of(reserved("cr-1"), reserved("cr-2", 1), bought(full=GROUP), bought(zone="b"))
    own = {names.CAPACITY_TYPE_LABEL: labels["capacity"], names.ZONE_LABEL: labels["zone"]}
    own |= {key: value for key, value in labels.items() if key == ID}
    assert caps_held(own, kind) == want
    assert caps_held(own, None) == set()


def test_only_who_holds_a_place_of_it_gives_one_back() -> None:
    assert released({CR1, CR2}, frozenset({CR2, GROUP})) == CR2
    assert released({CR1}, frozenset({CR2})) is None
    assert released({CR1}, frozenset()) is None
    assert released(set(), frozenset({CR1})) is None


def pool(*types: InstanceType) -> SchedulingPool:
    return SchedulingPool("general", ANY, types)


def offers(pools: Iterable[SchedulingPool]) -> list[Offering]:
    return [one for each in pools for kind in each.instance_types for one in kind.offerings]


def test_a_credit_opens_one_place_of_one_cap() -> None:
    pools = (pool(type_of(reserved("cr-1"), reserved("cr-2"), bought(full=GROUP))),)
    first, second, third = offers(credited(pools, CR1))
    assert (first.launchable, first.reservation_capacity) == (True, 1)
    assert (second.launchable, third.launchable) == (False, False)
    assert [one.launchable for one in offers(credited(pools, GROUP))] == [False, False, True]


def test_a_credit_does_not_open_what_is_not_available() -> None:
    (one,) = offers(credited((pool(type_of(reserved("cr-1", available=False))),), CR1))
    assert not one.launchable


def test_what_is_short_comes_back_and_what_is_full_does_not() -> None:
    some = (
        bought(available=False),
        bought(zone="c", available=False),
        bought("spot", price=NO_INSTANCES_PRICE, available=False),
        bought(zone="b", full=GROUP),
        reserved("cr-1"),
        reserved("cr-2", 1, available=False),
    )
    found = offers(recovered((pool(type_of(*some)),)))
    assert [one.launchable for one in found] == [True, False, False, False, False, False]


def planned(zone: str, capacity_type: str, name: str = "m5.large", of: str = "general") -> PlannedClaim:
    return PlannedClaim(
        pool=of,
        template=None,
        requirements=ANY,
        labels={},
        requests=EMPTY,
        pods=(),
        instance_types=(name,),
        planned_type=name,
        planned_zone=zone,
        planned_capacity_type=capacity_type,
        usd_per_hour=0.1,
        capacity=EMPTY,
        allocatable=EMPTY,
        charge=EMPTY,
    )


def test_new_nodes_that_draw_on_a_cap_are_counted() -> None:
    pools = (pool(type_of(bought(full=GROUP), bought(zone="b"), reserved("cr-1"))),)
    claims = (
        planned("a", "on-demand"),
        planned("a", "on-demand"),
        planned("b", "on-demand"),
        planned("a", "reserved"),
        planned("a", "on-demand", "other"),
        planned("a", "on-demand", of="other"),
    )
    answer = Result(claims, {}, ())
    assert [draws(answer, pools, cap) for cap in (GROUP, CR1, ADDRESSES)] == [2, 1, 0]


@pytest.mark.parametrize("kind", CapKind)
def test_each_cap_is_told(kind: CapKind) -> None:
    cap = StructuralCap(kind, "x-1")
    assert "x-1" in no_room(cap, held=True)
    assert no_room(cap, held=False) == f"{no_room(cap, held=True)}, and the node does not count there"
