"""Which nodes may be worth replacing together, found without a question."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest

from provisioner.disruption.acceptance import EVICTION_USD, OVERLAP, PROMPT
from provisioner.disruption.candidates import Candidate
from provisioner.disruption.methods.candidate_sets import MOST, Sets, priced_kinds
from provisioner.disruption.methods.moves import Consolidation
from provisioner.disruption.price_history import NO_PRICE_HISTORY
from provisioner.disruption.waste import Rates
from provisioner.values.resources import Resources
from tests.support.clock import NOON
from tests.support.fleets import ABC, SMALL, Fleet, several
from tests.support.problems import instance_type, offering, pool, shape

CHEAP = instance_type("cheap", "8", "16Gi", 0.3, zones=ABC, capacity_types=("on-demand",))
THREE = shape("1900m", "1Gi")


def of(fleet: Fleet) -> tuple[Consolidation, Sets]:
    view = fleet.view()
    assert view.prepared is not None
    work = Consolidation(view, view.prepared)
    return work, work.sets()


def keys(some: Iterable[tuple[float, tuple[Candidate, ...]]]) -> list[tuple[float, set[str]]]:
    return [(round(gain, 4), {one.key for one in own}) for gain, own in some]


def test_a_set_grows_until_one_new_node_holds_its_pods_for_less() -> None:
    """Four nodes of $0.1 fill one of $0.3; of three of them nothing is left over."""
    fleet = Fleet(types=(SMALL, CHEAP))
    for name in "abcde":
        fleet.node(name, several(1, name, THREE), kind=SMALL)
    work, sets = of(fleet)
    (first, *_) = keys(sets.grown(work.order[0], work.free))
    hour = timedelta(hours=1)
    saved, moves, beside = (4 * 0.1 - 0.3) * (PROMPT / hour), 4 * EVICTION_USD, 0.3 * (OVERLAP / hour)
    assert first[0] == pytest.approx(saved - moves - beside)
    assert len(first[1]) == 4
    assert work.order[0].key in first[1]


def test_a_node_of_the_right_size_is_no_seed_and_empty_room_makes_one() -> None:
    """What a node costs above the least that its pods can cost is all that it can add."""
    fleet = Fleet(types=(SMALL, CHEAP))
    fleet.node("full", several(4, "f", shape("1990m", "1Gi")), kind=CHEAP)
    fleet.node("half", several(1, "h", shape("400m", "512Mi")), kind=SMALL)
    _, sets = of(fleet)
    assert [one.key for one in sets.seeds()] == ["half"]
    assert sets.margins["full"] < 0 < sets.margins["half"] < 0.1 * (PROMPT / timedelta(hours=1))


def test_nodes_that_are_not_free_are_in_no_set() -> None:
    fleet = Fleet(types=(SMALL, CHEAP))
    for name in "abcde":
        fleet.node(name, several(1, name, THREE), kind=SMALL)
    work, sets = of(fleet)
    assert keys(sets.grown(work.order[0], lambda one: one.key in "abc")) == []


def test_a_set_has_so_many_nodes_at_most() -> None:
    huge = instance_type("huge", "64", "128Gi", 0.5, zones=ABC, capacity_types=("on-demand",))
    fleet = Fleet(types=(SMALL, huge))
    for number in range(20):
        fleet.node(f"n{number:02d}", several(1, f"p{number}", THREE), kind=SMALL)
    work, sets = of(fleet)
    assert max(len(own) for _, own in sets.grown(work.order[0], work.free)) == MOST


def test_only_what_the_pool_may_buy_counts() -> None:
    """A cheap offering of a capacity type that the NodePool does not allow is no price of a new node."""
    both = instance_type("both", "8", "16Gi", offerings=[offering("a", 0.01, "spot"), offering("a", 0.9)])
    allowed = pool("general", ("karpenter.sh/capacity-type", "In", ("on-demand",)), types=(both,))
    fleet = Fleet(types=(SMALL,))
    for name in "abcd":
        fleet.node(name, several(1, name, THREE), kind=SMALL)
    work, _ = of(fleet)
    sets = Sets(work.order, priced_kinds([allowed]), Rates.of([both]), work._rule)
    assert sets.grown(work.order[0], work.free) == []


def test_what_daemons_take_of_a_node_they_take_of_a_new_one() -> None:
    """The pods of four nodes leave 400m of eight CPUs."""
    for daemons in (100, 500):
        fleet = Fleet(types=(SMALL, CHEAP))
        for name in "abcd":
            pods = several(1, name, THREE)
            room = SMALL.allocatable - pods[0].shape.requests - Resources.of({"cpu": daemons, "pods": 1})
            fleet.node(name, pods, kind=SMALL, room=room)
        work, sets = of(fleet)
        found = sets.grown(work.order[0], work.free)
        assert bool(found) is (daemons == 100), "three of them cost as much as the new one"


def test_young_nodes_that_something_else_became_cheaper_for_keep_no_others_from_a_set() -> None:
    """They have more to bring than the four that go together, and nothing of a size that is news for them."""
    huge, dear = (
        instance_type("huge", "64", "128Gi", usd, zones=ABC, capacity_types=("on-demand",)) for usd in (2.4, 4.0)
    )
    fleet = Fleet(types=(SMALL, CHEAP, huge))
    moment = NOON - timedelta(minutes=5)
    for name in "abcd":  # bought for more pods than these
        spec = {"resources": {"requests": {"cpu": "3500m", "memory": "1Gi"}}}
        fleet.node(name, several(1, name, THREE), kind=SMALL, created=moment, claim_spec=spec)
    spec = {"resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}
    for number in range(60):
        pods = several(1, f"p{number}", shape("1500m", "1Gi"))
        fleet.node(f"young{number:02d}", pods, kind=SMALL, created=moment, claim_spec=spec)
    known = NO_PRICE_HISTORY.noted({"general": (SMALL, CHEAP, dear)}, NOON - timedelta(days=1), PROMPT)
    view = replace(fleet.view(), prices=known.noted({"general": fleet.types}, NOON, PROMPT))
    assert view.prepared is not None
    work = Consolidation(view, view.prepared)
    sets = work.sets()
    assert len(sets.young) == 60
    (seed,) = (one for one in work.order if one.key == "a")
    (first, *_) = keys(sets.grown(seed, work.free))
    assert first[1] == set("abcd")
