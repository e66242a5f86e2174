"""NodeOverlays, law by law, over a small catalogue."""

from itertools import permutations
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.overlay import NodeOverlay
from provisioner.apis.overlay_conflicts import OverlayConflict, conflict
from provisioner.cloudprovider.types import InstanceType, Offering
from tests.support.overlays import OverlayFleet, catalogue, overlay

TYPES, ZONES, HOW = ["arm", "big", "small"], ["a", "b"], ["on-demand", "spot"]
POOLS = ("general", "team")
CHOICES = {
    names.INSTANCE_TYPE_LABEL: TYPES,
    names.ZONE_LABEL: ZONES,
    names.CAPACITY_TYPE_LABEL: HOW,
    names.NODEPOOL_LABEL: [*POOLS],
}


CHANGES: list[dict[str, Any]] = [
    {"price": "0.3"},
    {"price": "3"},
    {"priceAdjustment": "-50%"},
    {"priceAdjustment": "+0.1"},
    {"capacity": {"example.com/x": "1"}},
    {"price": "1", "capacity": {"example.com/x": "2", "example.com/y": "1"}},
]


IN_A, IN_B = ((names.ZONE_LABEL, "In", [zone]) for zone in ZONES)


@st.composite
def overlay_sets(draw: st.DrawFn) -> list[NodeOverlay]:
    """Up to four overlays of few weights, so that they meet."""
    found = []
    for name in draw(st.lists(st.sampled_from("pqrs"), unique=True, max_size=4)):
        keys = draw(st.lists(st.sampled_from(sorted(CHOICES)), unique=True, max_size=2))
        said = [
            (
                key,
                draw(st.sampled_from(["In", "NotIn"])),
                draw(st.lists(st.sampled_from(CHOICES[key]), min_size=1, max_size=2, unique=True)),
            )
            for key in keys
        ]
        found.append(overlay(name, *said, weight=draw(st.integers(0, 2)), **draw(st.sampled_from(CHANGES))))
    return found


@st.composite
def pairs(draw: st.DrawFn) -> tuple[NodeOverlay, NodeOverlay]:
    """Two overlays of one weight, mostly by the same labels."""
    keys = draw(st.lists(st.sampled_from(sorted(CHOICES)), unique=True, max_size=2))
    said = [[(key, "In", [draw(st.sampled_from(CHOICES[key]))]) for key in keys] for _ in range(2)]
    one, other = (draw(st.sampled_from(CHANGES)) for _ in range(2))
    return overlay("p", *said[0], **one), overlay("q", *said[1][: draw(st.integers(0, 2))], **other)


def is_about(one: NodeOverlay, pool: str, kind: InstanceType, offering: Offering) -> bool:
    """Said again, without the algebra: the labels that a node of this offering has meet every requirement."""
    labels = {
        names.INSTANCE_TYPE_LABEL: kind.name,
        names.ZONE_LABEL: offering.zone,
        names.CAPACITY_TYPE_LABEL: offering.capacity_type,
        names.NODEPOOL_LABEL: pool,
    }
    return all((labels[said.key] in said.values) is (said.operator == "In") for said in one.spec.requirements)


def price_after(one: NodeOverlay, price: float) -> float:
    return {None: float(one.spec.price or 0), "-50%": price / 2, "+0.1": price + 0.1}[one.spec.price_adjustment]


def has_price(one: NodeOverlay) -> bool:
    return one.spec.price is not None or one.spec.price_adjustment is not None


@given(overlay_sets())
def test_each_price_and_resource_is_that_of_the_heaviest_overlay_in_force(overlays: list[NodeOverlay]) -> None:
    stage = OverlayFleet(*overlays)
    force = [one for one in overlays if stage.overlays.problem(one.metadata.name) is None]
    for pool in ("general", "team"):
        for before, after in zip(stage.types, stage.of(pool), strict=True):
            about = [
                one for one in force if any(is_about(one, pool, before, offering) for offering in before.offerings)
            ]
            for resource in ("example.com/x", "example.com/y"):
                speakers = [one for one in about if resource in one.spec.capacity]
                heaviest = max(speakers, key=lambda one: one.spec.weight, default=None)
                want = int(heaviest.spec.capacity[resource]) if heaviest is not None else 0
                assert after.capacity.amount(resource) == want
                assert len({one.spec.weight for one in speakers}) == len(speakers)  # equals were in conflict
            for old, new in zip(before.offerings, after.offerings, strict=True):
                speakers = [one for one in force if has_price(one) and is_about(one, pool, before, old)]
                heaviest = max(speakers, key=lambda one: one.spec.weight, default=None)
                assert new.price == (price_after(heaviest, old.price) if heaviest is not None else old.price)
                assert len({one.spec.weight for one in speakers}) == len(speakers)


@given(pairs())
@example((overlay("p", IN_A, **CHANGES[4]), overlay("q", IN_B, **CHANGES[4])))
@example((overlay("p", IN_A, **CHANGES[5]), overlay("q", IN_B, **CHANGES[5])))
@example((overlay("p", IN_A, **CHANGES[0]), overlay("q", IN_B, **CHANGES[0])))
def test_what_is_said_without_instance_types_is_what_is_found_with_them(pair: tuple[NodeOverlay, NodeOverlay]) -> None:
    stage, said = OverlayFleet(*pair), conflict(*pair)
    refused = any(stage.overlays.problem(each.metadata.name) for each in pair)
    assert said is conflict(*reversed(pair))
    assert not (refused and said is OverlayConflict.NEVER)
    if said is OverlayConflict.CERTAIN:
        places = [(name, kind, each) for name in POOLS for kind in stage.types for each in kind.offerings]
        assert refused is all(any(is_about(one, *place) for place in places) for one in pair)


@given(overlay_sets())
def test_the_order_in_which_overlays_come_does_not_matter(overlays: list[NodeOverlay]) -> None:
    answers = []
    for some in permutations(overlays):
        stage = OverlayFleet(*some)
        answers.append(
            (
                stage.of("general"),
                stage.of("team"),
                {one.metadata.name: stage.overlays.problem(one.metadata.name) for one in overlays},
            )
        )
    assert all(one == answers[0] for one in answers)


@given(overlay_sets())
def test_equal_inputs_give_the_same_objects_and_a_second_time_changes_nothing(overlays: list[NodeOverlay]) -> None:
    stage = OverlayFleet(*overlays)
    first = stage.of()
    assert stage.of() is first
    assert stage.overlays.applied("general", first) == first
    if overlays:  # without, the types are the provider's own
        stage.types = catalogue()
    assert all(one is other for one, other in zip(first, stage.of(), strict=True))


@given(overlay_sets())
def test_an_overlay_that_comes_and_goes_leaves_nothing(overlays: list[NodeOverlay]) -> None:
    stage = OverlayFleet(*overlays[1:])
    before, problems = (
        stage.of(),
        {one.metadata.name: stage.overlays.problem(one.metadata.name) for one in overlays[1:]},
    )
    for one in overlays[:1]:
        stage.overlays.changed(None, one)
        stage.of()
        stage.overlays.changed(one, None)
    assert stage.of() == before
    assert {name: stage.overlays.problem(name) for name in problems} == problems
