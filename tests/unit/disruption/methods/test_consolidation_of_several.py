"""Consolidation of several nodes together: core spec 6.10, rows 104, 107."""

from typing import Any

import pytest

from provisioner.apis import names
from provisioner.disruption.methods import candidate_sets as sets
from provisioner.disruption.methods import consolidation
from provisioner.disruption.view import DisruptionSettings
from tests.support.fleets import ABC, LARGE, MEDIUM, SMALL, Fleet, gist, gone, pool, running, several, told
from tests.support.problems import apart, app, instance_type, of_app, shape

THREE_QUARTERS = shape("1500m", "1Gi")


def test_row_104_two_nodes_become_one() -> None:
    """Each is right for its pods, so neither goes alone; together they fit on one that is cheaper than both."""
    fleet = Fleet(types=(SMALL, instance_type("cheap", "4", "8Gi", 0.15, zones=ABC, capacity_types=("on-demand",))))
    for name in "ab":
        fleet.node(name, several(1, name, THREE_QUARTERS), kind=SMALL)
    (one,) = consolidation.propose(fleet.view()).proposals
    assert gist(one) == (("a", "b"), ["cheap"], {})
    assert one.method == "multi"
    assert one.saving_usd_per_hour == pytest.approx(0.05)


@pytest.mark.parametrize(("most", "want"), [(0, [("a", "b")]), (2, [("a", "b")]), (1, [])])
def test_a_set_over_two_pools_keeps_the_limit_over_all_pools(most: int, want: list[tuple[str, ...]]) -> None:
    """Else it is proposed in every pass and refused each time."""
    fleet = Fleet(
        [pool("general"), pool("other")],
        types=(SMALL, instance_type("cheap", "4", "8Gi", 0.15, zones=ABC, capacity_types=("on-demand",))),
    )
    for name, of in (("a", "general"), ("b", "other")):
        fleet.node(name, several(1, name, THREE_QUARTERS), kind=SMALL, of=of)
    assert gone(consolidation.propose(fleet.view(most=most))) == want


def test_row_104_nodes_that_fit_into_the_room_of_others_go_one_by_one_in_one_pass() -> None:
    fleet = Fleet()
    fleet.node("room", several(4, "r"), kind=LARGE, do_not_disrupt=True)
    for name in "ab":
        fleet.node(name, several(1, name), kind=SMALL)
    assert [gist(one) for one in consolidation.propose(fleet.view()).proposals] == [
        (("a",), [], {"room": 1}),
        (("b",), [], {"room": 1}),
    ]


def test_three_nodes_become_two() -> None:
    """Karpenter makes one or none of several. Two pods must be apart, so that one or two of these nodes bring nothing."""
    fleet = Fleet(types=(SMALL, MEDIUM, LARGE))
    alone = of_app("db", cpu="900m", memory="1Gi", affinity=apart(names.HOSTNAME_LABEL, app("db")))
    for name in "ab":
        fleet.node(name, [running(name, alone), running(f"{name}-more", shape("1700m", "1Gi"))])
    fleet.node("c", several(1, "c", shape("2700m", "7680Mi")))
    answer = consolidation.propose(fleet.view())
    (one,) = answer.proposals
    assert gist(one) == (("a", "b", "c"), ["large", "small"], {})
    assert one.method == "multi"
    assert one.saving_usd_per_hour == pytest.approx(0.1)
    assert told(answer) == {}, "what each of them was refused for alone is not said"


def test_row_107_a_type_that_goes_does_not_come_again() -> None:
    """Two nodes, of which one could simply stay, are not replaced by one of its type."""
    dear = instance_type("dear", "4", "8Gi", 0.5, zones=ABC, capacity_types=("on-demand",))
    fleet = Fleet(types=(MEDIUM, dear))
    fleet.node("a", several(2, "a", THREE_QUARTERS), kind=MEDIUM)
    fleet.node("b", several(1, "b", shape("900m", "1Gi")), kind=dear)
    (one,) = consolidation.propose(fleet.view()).proposals
    assert gist(one)[:2] == (("b",), [])


CHEAP = instance_type("cheap", "4", "8Gi", 0.15, zones=ABC, capacity_types=("on-demand",))


def pairs(count: int, *pools: Any) -> Fleet:
    """Nodes of which any two make one cheaper one."""
    fleet = Fleet(list(pools) or [pool()], types=(SMALL, CHEAP))
    for number in range(count):
        fleet.node(f"n{number:02d}", several(1, f"p{number}", THREE_QUARTERS), kind=SMALL)
    return fleet


def test_budgets_hold_for_a_whole_set() -> None:
    answer = consolidation.propose(pairs(4, pool(disruption={"budgets": [{"nodes": "3"}]})).view())
    assert sum(len(one) for one in gone(answer)) == 2


def test_a_set_is_no_larger_than_allowed_and_its_nodes_are_in_no_other() -> None:
    found = gone(consolidation.propose(pairs(25).view()))
    assert max(len(one) for one in found) <= sets.MOST
    every = [name for one in found for name in one]
    assert len(every) == len(set(every)) >= 20


def test_spot_nodes_are_not_made_one_unless_the_gate_is_open() -> None:
    kinds = (instance_type("s", "2", "4Gi", 0.2, zones=ABC), instance_type("m", "4", "8Gi", 0.3, zones=ABC))
    fleet = Fleet(types=kinds)
    for name in "ab":
        fleet.node(name, several(1, name, THREE_QUARTERS), kind=kinds[0], capacity_type="spot")
    assert consolidation.propose(fleet.view()).proposals == ()
    fleet.settings = DisruptionSettings(spot_to_spot=True)
    assert [gist(one)[1] for one in consolidation.propose(fleet.view()).proposals] == [["m"]]


def test_one_bad_node_does_not_spoil_the_others() -> None:
    """Karpenter tries prefixes of one order, so the first that cannot go poisons them all."""
    fleet = pairs(2)
    bad = shape("1900m", "64Mi", selector={"gpu": "yes"})
    fleet.node("bad", several(1, "bad", bad), kind=SMALL, labels={"gpu": "yes"})
    assert gone(consolidation.propose(fleet.view())) == [("n00", "n01")]
