"""Where so many nodes are broken that it is not the nodes: Karpenter 1.15 spec 3.4, and zones, images and instance types."""

import itertools
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from provisioner.apis import names
from provisioner.apis.command import CandidateRecord, CommandRecord
from provisioner.disruption.repair_breaker import RepairBreaker, repair_breaker
from provisioner.state.disruption_commands import Command
from provisioner.state.snapshot import NodeView
from tests.support.fleets import ABC, LARGE, MEDIUM, SMALL, Fleet, pool


def fleet_of(*zones: int, pools: int = 1, image: str = "") -> Fleet:
    """So many nodes in each zone."""
    names_ = ["general", *(f"p{number}" for number in range(1, pools))]
    fleet = Fleet([pool(name) for name in names_])
    for zone, count in zip(ABC, zones, strict=False):
        for number in range(count):
            add(fleet, f"{zone}{number}", zone=zone, of=names_[number % pools], image=image)
    return fleet


def add(fleet: Fleet, name: str, *, image: str = "", **more: object) -> NodeView:
    made = fleet.node(name, **more)  # type: ignore[arg-type]
    assert made.claim is not None
    claim = changed(made.claim, status=changed(made.claim.status, image_id=image))
    fleet.nodes[-1] = replaced = replace(made, claim=claim)
    return replaced


def breaker(fleet: Fleet, *sick: str, share: Fraction = Fraction(1, 5)) -> RepairBreaker:
    return repair_breaker(fleet.snapshot(), frozenset(sick), share)


def held(fleet: Fleet, *sick: str, share: Fraction = Fraction(1, 5)) -> set[str]:
    found = breaker(fleet, *sick, share=share)
    return {one.key.name for one in fleet.nodes if found.why(one)}


POOL = {
    "one of one": (1, 1, False),
    "one of five": (5, 1, False),
    "two of five": (5, 2, True),
    "two of six": (6, 2, False),
    "three of six": (6, 3, True),
}


@pytest.mark.parametrize(("nodes", "sick", "tripped"), POOL.values(), ids=POOL)
def test_a_pool_trips_above_a_fifth_rounded_up(nodes: int, sick: int, tripped: bool) -> None:
    fleet = Fleet()
    for number in range(nodes):
        fleet.node(f"n{number}")
    assert bool(breaker(fleet, *(f"n{number}" for number in range(sick))).pools.get("general")) is tripped


def test_the_share_is_what_the_flag_says() -> None:
    fleet = fleet_of(10)
    sick = [f"a{number}" for number in range(5)]
    assert not held(fleet, *sick, share=Fraction(1, 2))
    assert held(fleet, *sick, share=Fraction(2, 5))
    assert held(fleet, "a0", share=Fraction(0)) == {one.key.name for one in fleet.nodes}


def test_nodes_that_go_or_never_were_initialized_count_for_their_pool() -> None:
    fleet = Fleet()
    for number in range(5):
        fleet.node(f"n{number}", deleting=number == 0, initialized=number != 1)
    assert breaker(fleet, "n0", "n1").pools


DOMAIN = {
    "three of ten, and none elsewhere": ((10, 20), ("a0", "a1", "a2"), {"a"}),
    "two of ten": ((10, 20), ("a0", "a1"), set()),
    "three of five, and none elsewhere": ((5, 20), ("a0", "a1", "a2"), {"a"}),
    "three of four": ((4, 20), ("a0", "a1", "a2"), set()),
    "a fifth": ((15, 20), ("a0", "a1", "a2"), set()),
    "three times the share of the others": ((10, 30), ("a0", "a1", "a2", "b0", "b1", "b2"), {"a"}),
    "not quite": ((10, 30), ("a0", "a1", "a2", "b0", "b1", "b2", "b3"), set()),
    "no other nodes": ((10,), ("a0", "a1", "a2"), set()),
}


@pytest.mark.parametrize(("zones", "sick", "want"), DOMAIN.values(), ids=DOMAIN)
def test_a_zone_trips(zones: tuple[int, ...], sick: tuple[str, ...], want: set[str]) -> None:
    """Every NodePool has some nodes of each zone, so that none of them trips."""
    found = breaker(fleet_of(*zones, pools=5), *sick)
    assert {value for word, value in found.domains if word == "in zone"} == want


def test_only_the_value_that_is_to_blame_is_held() -> None:
    fleet = fleet_of(10, 20, pools=5)
    assert held(fleet, "a0", "a1", "a2", "b0") == {f"a{number}" for number in range(10)}
    (text,) = breaker(fleet, "a0", "a1", "a2").domains.values()
    assert text == (
        'More than 20% of the nodes in zone "a" are unhealthy, at least 3 times the share of the other nodes'
    )


def test_nodes_that_never_were_initialized_are_no_evidence_against_a_zone() -> None:
    fleet = fleet_of(0, 20, pools=5)
    for number in range(10):
        add(fleet, f"a{number}", zone="a", of=f"p{number % 4 + 1}", initialized=number > 0)
    assert breaker(fleet, "a1", "a2", "a3").domains
    assert not breaker(fleet, "a0", "a1", "a2").domains


def test_images_and_instance_types_trip_too() -> None:
    fleet = fleet_of(0, 20, pools=5, image="ami-good")
    for number in range(10):
        add(fleet, f"i{number}", zone="b", of=f"p{number % 4 + 1}", kind=SMALL, image="ami-bad")
    found = breaker(fleet, "i0", "i1", "i2")
    assert set(found.domains) == {("with image", "ami-bad"), ("of instance type", SMALL.name)}


@pytest.mark.parametrize("reason", [names.REASON_DRIFTED, names.REASON_UNHEALTHY])
def test_nodes_that_go_for_another_reason_are_no_evidence_against_a_zone(reason: str) -> None:
    """Their kubelets stop; those that are under repair are evidence still."""
    fleet = fleet_of(0, 20, pools=5)
    for number in range(10):
        add(fleet, f"a{number}", zone="a", of=f"p{number % 4 + 1}", deleting=number < 3)
    snapshot = fleet.snapshot()
    record = CommandRecord(
        id="c",
        reason=reason,
        method="repair",
        candidates=tuple(CandidateRecord(f"a{number}", f"uid-a{number}") for number in range(3)),
    )
    there = replace(snapshot, commands=(Command(record, written=True),))
    found = repair_breaker(there, {"a0", "a1", "a2"})
    assert bool(found.domains) is (reason == names.REASON_UNHEALTHY)


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    fleet = Fleet([pool("general"), pool("other")])
    for number in range(draw(st.integers(1, 24))):
        add(
            fleet,
            f"n{number}",
            zone=draw(st.sampled_from("ab")),
            of=draw(st.sampled_from(("general", "other"))),
            kind=draw(st.sampled_from((SMALL, MEDIUM, LARGE))),
            image=draw(st.sampled_from(("", "x", "y"))),
            initialized=draw(st.integers(0, 5)) > 0,
            deleting=draw(st.integers(0, 9)) == 0,
        )
    return fleet


def inside(fleet: Fleet, key: tuple[str, str]) -> set[str]:
    def value(one: NodeView) -> str:
        assert one.claim is not None
        labels = {"in zone": names.ZONE_LABEL, "of instance type": names.INSTANCE_TYPE_LABEL}
        return one.labels[labels[key[0]]] if key[0] in labels else one.claim.status.image_id

    return {one.key.name for one in fleet.nodes if value(one) == key[1]}


def some(draw: st.DataObject, those: Iterable[str]) -> set[str]:
    listed = sorted(those)
    return set(draw.draw(st.lists(st.sampled_from(listed), unique=True))) if listed else set()


@given(fleet=fleets(), data=st.data())
def test_what_is_held_is_inside_of_what_tripped(fleet: Fleet, data: st.DataObject) -> None:
    sick = some(data, (one.key.name for one in fleet.nodes))
    found = breaker(fleet, *sick)
    within = {one.key.name for one in fleet.nodes if one.pool in found.pools}
    for key in found.domains:
        mine = inside(fleet, key)
        within |= mine
        assert key[1]
        assert len(mine & sick) >= 3
    assert held(fleet, *sick) == within


@given(fleet=fleets(), data=st.data())
def test_one_more_broken_node_lets_nothing_go_that_it_is_part_of(fleet: Fleet, data: st.DataObject) -> None:
    every = {one.key.name for one in fleet.nodes}
    sick = some(data, every)
    before = breaker(fleet, *sick)
    for more in sorted(every - sick):
        after = breaker(fleet, *sick, more)
        assert before.pools.keys() <= after.pools.keys()
        mine = {key for key in before.domains if more in inside(fleet, key)}
        assert mine <= after.domains.keys()
        added = after.domains.keys() - before.domains.keys()
        assert all(more in inside(fleet, key) for key in added), "a node outside of it trips nothing"


@given(fleet=fleets(), data=st.data())
def test_a_larger_share_holds_no_more(fleet: Fleet, data: st.DataObject) -> None:
    sick = some(data, (one.key.name for one in fleet.nodes))
    shares = [Fraction(0), Fraction(1, 10), Fraction(1, 5), Fraction(1, 2), Fraction(9, 10)]
    found = [held(fleet, *sick, share=share) for share in shares]
    assert all(larger <= smaller for smaller, larger in itertools.pairwise(found))
