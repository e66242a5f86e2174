"""Consolidation of several nodes together: core spec 6.10, rows 104, 107."""

import pytest

from provisioner.apis import names
from provisioner.disruption.methods import consolidation_multi as multi
from provisioner.disruption.methods import consolidation_single as single
from provisioner.disruption.view import Settings
from tests.support.fleets import ABC, LARGE, MEDIUM, SMALL, Fleet, gist, gone, pool, several
from tests.support.problems import apart, app, instance_type, of_app, shape

THREE_QUARTERS = shape("1500m", "1Gi")


def test_row_104_two_nodes_become_one() -> None:
    """Each is right for its pods, so neither goes alone; together they fit on one that is cheaper than both."""
    fleet = Fleet(types=(SMALL, instance_type("cheap", "4", "8Gi", 0.15, zones=ABC, capacity_types=("on-demand",))))
    for name in "ab":
        fleet.node(name, several(1, name, THREE_QUARTERS), kind=SMALL)
    assert single.propose(fleet.view()).proposals == ()
    (one,) = multi.propose(fleet.view()).proposals
    assert gist(one) == (("a", "b"), ["cheap"], {})
    assert (one.method, one.saving_usd_per_hour) == ("multi", pytest.approx(0.05))


def test_row_104_nodes_that_fit_into_the_room_of_others_go_together() -> None:
    fleet = Fleet()
    fleet.node("room", several(4, "r"), kind=LARGE, do_not_disrupt=True)
    for name in "ab":
        fleet.node(name, several(1, name), kind=SMALL)
    (one,) = multi.propose(fleet.view()).proposals
    assert gist(one) == (("a", "b"), [], {"room": 2})


def test_three_nodes_become_two() -> None:
    """Karpenter makes one or none of several."""
    fleet = Fleet(types=(SMALL, MEDIUM))
    alone = of_app("db", cpu="1", memory="2Gi", affinity=apart(names.HOSTNAME_LABEL, app("db")))
    fleet.node("a", several(1, "a", alone), kind=MEDIUM)
    fleet.node("b", several(1, "b", alone), kind=MEDIUM)
    fleet.node("c", several(1, "c", shape("900m", "1Gi")), kind=MEDIUM)
    found = multi.propose(fleet.view()).proposals
    assert len(found) == 1
    assert found[0].candidates == ("a", "b", "c")
    assert sorted(claim.planned_type for claim in found[0].replacements) == ["small", "small"]


def test_row_107_a_type_that_goes_does_not_come_again() -> None:
    """Two nodes, of which one could simply stay, are not replaced by one of its type."""
    dear = instance_type("dear", "4", "8Gi", 0.5, zones=ABC, capacity_types=("on-demand",))
    fleet = Fleet(types=(MEDIUM, dear))
    fleet.node("a", several(2, "a", THREE_QUARTERS), kind=MEDIUM)
    fleet.node("b", several(1, "b", shape("900m", "1Gi")), kind=dear)
    for one in multi.propose(fleet.view()).proposals:
        assert all(claim.planned_type != "medium" for claim in one.replacements)


def test_budgets_hold_for_a_whole_set() -> None:
    fleet = Fleet([pool(disruption={"budgets": [{"nodes": "1"}]})])
    fleet.node("room", several(4, "r"), kind=LARGE, do_not_disrupt=True)
    for name in "ab":
        fleet.node(name, several(1, name), kind=SMALL)
    assert multi.propose(fleet.view()).proposals == ()


def test_a_set_is_no_larger_than_allowed() -> None:
    fleet = Fleet(types=(*Fleet().types, instance_type("vast", "64", "128Gi", 3.2, zones=ABC)))
    fleet.node("room", several(1, "r"), kind=fleet.types[-1], do_not_disrupt=True)
    for number in range(25):
        fleet.node(f"n{number:02d}", several(1, f"p{number}"), kind=SMALL)
    found = gone(multi.propose(fleet.view()))
    assert [len(one) for one in found] == [10, 10, 5]


def test_spot_nodes_are_not_made_one_unless_the_gate_is_open() -> None:
    kinds = (instance_type("s", "2", "4Gi", 0.2, zones=ABC), instance_type("m", "4", "8Gi", 0.3, zones=ABC))
    fleet = Fleet(types=kinds)
    for name in "ab":
        fleet.node(name, several(1, name, THREE_QUARTERS), kind=kinds[0], capacity_type="spot")
    assert multi.propose(fleet.view()).proposals == ()
    fleet.settings = Settings(spot_to_spot=True)
    assert [gist(one)[1] for one in multi.propose(fleet.view()).proposals] == [["m"]]


def test_one_bad_node_does_not_spoil_the_others() -> None:
    """Karpenter tries prefixes of one order, so the first that cannot go poisons them all."""
    fleet = Fleet()
    fleet.node("room", several(4, "r"), kind=LARGE, do_not_disrupt=True)
    fleet.node(
        "bad", several(1, "bad", shape("100m", "64Mi", selector={"gpu": "yes"})), kind=LARGE, labels={"gpu": "yes"}
    )
    for name in "ab":
        fleet.node(name, several(1, name), kind=SMALL)
    assert gone(multi.propose(fleet.view())) == [("a", "b")]
