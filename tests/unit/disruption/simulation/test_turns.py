"""Which proposals wait until other nodes are drained."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.pods import PodShape
from provisioner.cloudprovider.types import RepairPolicy
from provisioner.disruption.methods import consolidation, drift, repair
from provisioner.disruption.proposal import Proposal
from provisioner.disruption.repair_policies import Illness, RepairMatch
from provisioner.disruption.simulation import turns
from provisioner.disruption.simulation.turns import WAITS_FOR_TIED, InOrder, in_turn, turns_of
from provisioner.scheduling.topology import ties
from provisioner.state.snapshot import Snapshot
from tests.support.clock import NOON
from tests.support.fleets import LARGE, OLD, Fleet, budget, gone, moved, planned, pool, several, told
from tests.support.problems import apart, app, near, of_app, spread

HOST, ZONE, RACK = names.HOSTNAME_LABEL, names.ZONE_LABEL, "example.com/rack"
PLAIN: Final = of_app("web")
ZONED: Final = of_app("web", topology_spread_constraints=(spread(ZONE, app("web")),))
SOFT: Final = of_app(
    "web", topology_spread_constraints=(spread(ZONE, app("web"), when_unsatisfiable="ScheduleAnyway"),)
)
HOSTED: Final = of_app("web", topology_spread_constraints=(spread(HOST, app("web")),))
RACKED: Final = of_app("web", topology_spread_constraints=(spread(RACK, app("web")),))
AWAY: Final = of_app("web", affinity=apart(ZONE, app("web")))
FRIEND: Final = of_app("web", affinity=near(ZONE, app("web")))
OTHER: Final = of_app("db", topology_spread_constraints=(spread(ZONE, app("db")),))
FULL: Final = of_app("full", cpu="3900m")
ELSEWHERE: Final = of_app("web", namespace="other")


def proposed(fleet: Fleet, name: str, zone: str) -> Proposal:
    """A node whose pods go to a new one in this zone."""
    node = next(one for one in fleet.nodes if one.key.name == name)
    return Proposal("Drifted", "drift", (name,), (planned(moved(node), zone),))


def two(one: PodShape, other: PodShape) -> Fleet:
    """A node in zone `a` and one in zone `b`, a pod on each, and PodDisruptionBudgets."""
    fleet = Fleet()
    fleet.budgets = [budget("web", "web", 1), budget("db", "db", 1)]
    fleet.node("x", several(1, "x", one), labels={RACK: "1"})
    fleet.node("y", several(1, "y", other), zone="b", labels={RACK: "1"})
    return fleet


SHAPES: dict[str, tuple[PodShape, PodShape, bool]] = {
    "one spread over zones": (ZONED, ZONED, True),
    "a spread that counts the other": (ZONED, PLAIN, True),
    "a spread that is counted by the other": (PLAIN, ZONED, True),
    "apart by zone": (AWAY, PLAIN, True),
    "together by zone": (PLAIN, FRIEND, True),
    "a spread over racks, which new nodes are not known to be in": (RACKED, RACKED, True),
    "a wish": (SOFT, SOFT, False),
    "one spread over hosts": (HOSTED, HOSTED, False),
    "a spread of others": (ZONED, OTHER, False),
    "another namespace": (ZONED, ELSEWHERE, False),
    "nothing": (PLAIN, PLAIN, False),
}


@pytest.mark.parametrize("zones", ["ba", "aa", "bb"], ids=lambda one: f"to {' and '.join(one)}")
@pytest.mark.parametrize("case", SHAPES.values(), ids=SHAPES)
def test_of_two_that_are_tied_across_zones_the_second_waits(case: tuple[PodShape, PodShape, bool], zones: str) -> None:
    one, other, tied = case
    fleet = two(one, other)
    both = [proposed(fleet, name, zone) for name, zone in zip("xy", zones, strict=True)]
    begin, waiting = in_turn(both, fleet.snapshot())
    assert begin == tuple(both[:1] if tied else both)
    assert [(blocked.key, blocked.pool) for blocked in waiting] == ([("y", "general")] if tied else [])
    assert all(str(blocked).endswith("waiting for these nodes") for blocked in waiting)


@pytest.mark.parametrize("shape", [ZONED, AWAY, FRIEND, HOSTED], ids=["spread", "apart", "together", "hosts"])
def test_who_stays_in_his_zone_waits_for_nobody_who_does(shape: PodShape) -> None:
    fleet = two(shape, shape)
    both = (proposed(fleet, "x", "a"), proposed(fleet, "y", "b"))
    assert in_turn(both, fleet.snapshot()) == (both, ())


@pytest.mark.parametrize(("zone", "may"), [("b", True), ("c", False)])
def test_a_place_on_a_node_of_another_zone_counts_like_a_new_node_there(zone: str, may: bool) -> None:
    fleet = two(ZONED, ZONED)
    fleet.node("takes", zone=zone)
    first = proposed(fleet, "x", "a")
    second = Proposal("Drifted", "drift", ("y",), placements={"takes": moved(fleet.nodes[1])})
    assert in_turn([first, second], fleet.snapshot())[0] == ((first, second) if may else (first,))


def under_way(**fields: Any) -> Callable[[Fleet], None]:
    """The node `x` goes; `fields` are of its view."""

    def change(fleet: Fleet) -> None:
        fleet.nodes[0] = replace(fleet.nodes[0], **{"deleting": True, "command": "one", **fields})

    return change


def to_zone(zone: str) -> Callable[[Fleet], None]:
    """The node `x` goes, and its pods have room kept in a zone."""

    def change(fleet: Fleet) -> None:
        under_way()(fleet)
        fleet.node("new", zone=zone, initialized=False, assigned=fleet.nodes[0].pods)

    return change


def stays_there(fleet: Fleet) -> Snapshot:
    return fleet.snapshot()


def leaves(fleet: Fleet) -> Snapshot:
    return replace(fleet.snapshot(), leaving=fleet.nodes[0].pods)


NOW: dict[str, tuple[Callable[[Fleet], None], Callable[[Fleet], Snapshot], str]] = {
    "nothing": (lambda _: None, stays_there, "bc"),
    "a command whose pods stay in their zone": (to_zone("a"), stays_there, "b"),
    "a command whose pods change zones": (to_zone("c"), stays_there, ""),
    "a command with a pod that is not planned": (under_way(), stays_there, ""),
    "a command whose nodes are drained": (under_way(pods=()), stays_there, "bc"),
    "a deletion whose pods are not planned yet": (under_way(command=""), leaves, ""),
    "a deletion with a pod that nothing may evict": (under_way(command=""), stays_there, "bc"),
}


@pytest.mark.parametrize("case", NOW.values(), ids=NOW)
def test_who_is_tied_to_what_goes_already_waits_until_it_is_drained(
    case: tuple[Callable[[Fleet], None], Callable[[Fleet], Snapshot], str],
) -> None:
    change, seen, may = case
    fleet = two(ZONED, ZONED)
    change(fleet)
    for zone in "bc":
        one = proposed(fleet, "y", zone)
        assert in_turn([one], seen(fleet))[0] == ((one,) if zone in may else ())


def test_who_is_tied_to_one_that_waits_was_decided_as_if_it_had_gone_and_waits_too() -> None:
    fleet = two(ZONED, ZONED)
    to_zone("a")(fleet)
    fleet.node("z", several(1, "z", ZONED), zone="c")
    fleet.node("q", several(1, "q", OTHER), zone="c")
    crosses, stays, other = proposed(fleet, "y", "c"), proposed(fleet, "z", "c"), proposed(fleet, "q", "a")
    assert in_turn([stays, crosses, other], fleet.snapshot())[0] == (stays, other)
    assert in_turn([crosses, stays, other], fleet.snapshot())[0] == (other,)


def test_pods_without_a_budget_leave_at_once_and_wait_for_nobody() -> None:
    """Drift spends its whole budget in one pass."""
    fleet = two(ZONED, ZONED)
    crossing = (proposed(fleet, "x", "b"), proposed(fleet, "y", "a"))
    fleet.budgets = [budget("db", "db", 1)]
    assert in_turn(crossing, fleet.snapshot()) == (crossing, ())


def test_what_moves_no_pod_waits_for_nobody() -> None:
    fleet = two(ZONED, ZONED)
    under_way()(fleet)
    empty = Proposal("Empty", "empty", ("y",))
    assert in_turn([empty], fleet.snapshot()) == ((empty,), ())


def test_where_there_are_too_many_pairs_to_ask_the_later_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = two(ZONED, OTHER)
    crossing = [proposed(fleet, "x", "b"), proposed(fleet, "y", "a")]
    staying = [proposed(fleet, "x", "a"), proposed(fleet, "y", "b")]
    monkeypatch.setattr(ties, "MOST_PAIRS", 0)
    assert in_turn(crossing, fleet.snapshot())[0] == tuple(crossing[:1])
    assert in_turn(staying, fleet.snapshot())[0] == tuple(staying), "nobody is compared"


def test_many_nodes_that_drift_in_their_zones_begin_in_one_pass_and_are_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet()
    for number in range(300):
        fleet.node(f"n{number:03}", several(2, f"p{number}", ZONED), zone="abc"[number % 3])
    every = tuple(proposed(fleet, f"n{number:03}", "abc"[number % 3]) for number in range(300))
    monkeypatch.delattr(turns, "tied_across")
    assert in_turn(every, fleet.snapshot()) == (every, ())


def over_zones(*counts: int) -> Fleet:
    """Drifted nodes `x`, `y` and `z`, in a zone each, with so many pods of one spread, of which one may go at a time."""
    fleet = Fleet()
    fleet.budgets = [budget("pdb", "web", 1, maxUnavailable=1)]
    shape = of_app("web", cpu="500m", memory="512Mi", topology_spread_constraints=(spread(ZONE, app("web")),))
    for name, zone, count in zip("xyz", "abc", counts, strict=True):
        fleet.node(name, several(count, f"w{name}", shape), kind=LARGE, zone=zone, drifted=OLD)
    return fleet


@pytest.mark.parametrize(("counts", "first"), [((4, 4, 4), "xyz"), ((6, 3, 3), "x")], ids=str)
def test_drift_of_a_spread_over_zones_begins_as_far_as_pods_stay_in_their_zones(
    counts: tuple[int, int, int], first: str
) -> None:
    fleet = over_zones(*counts)
    answer = drift.propose(fleet.view())
    assert gone(answer) == [(name,) for name in first]
    assert told(answer) == dict.fromkeys(sorted({*"xyz"} - {*first}), WAITS_FOR_TIED)
    assert in_turn(answer.proposals, fleet.snapshot()) == (answer.proposals, ()), "who proposes says the same"


@pytest.mark.parametrize("most", [0, 2], ids=["of its NodePool", "over all NodePools"])
@pytest.mark.parametrize("begins", ["in the same pass", "by a command of the same pass", "by a command"])
def test_a_node_that_waits_for_others_takes_no_budget(most: int, begins: str) -> None:
    """Of four drifted nodes two may go, and of three that are tied one at a time."""
    fleet = over_zones(6, 3, 3)
    fleet.node("w", several(1, "w", FULL), drifted=OLD + timedelta(minutes=1))
    fleet.pools = [pool(disruption={"budgets": [{"nodes": "100%" if most else "2"}]})]
    first, *_ = drift.propose(fleet.view(most=most)).proposals
    view = fleet.view(most=most)
    if begins == "by a command of the same pass":
        view = replace(fleet.view(most=most, under_way=["x"]), begun=(first,))
    elif begins == "by a command":
        fleet.nodes[0] = replace(fleet.nodes[0], deleting=True, command="one")
        for new in first.replacements:
            fleet.node(f"new-{new.planned_zone}", zone=new.planned_zone, initialized=False, assigned=new.pods)
        view = fleet.view(most=most, under_way=["x"])
    answer = drift.propose(view)
    assert gone(answer) == ([("x",)] if begins == "in the same pass" else []) + [("w",)]
    assert {told(answer)[name] for name in "yz"} == {WAITS_FOR_TIED}


def drained_elsewhere(*more: str) -> Fleet:
    """Pods of a node that goes come to another zone; those of `y` are tied to them, and those of these nodes are not."""
    fleet = Fleet([pool(disruption={"budgets": [{"nodes": "2"}]})])
    fleet.budgets = [budget("web", "web", 1)]
    fleet.node("x", several(1, "x", ZONED))
    to_zone("c")(fleet)
    fleet.nodes[1] = replace(fleet.nodes[1], nominated=True)
    fleet.node("y", several(1, "y", ZONED), zone="b", kind=LARGE)
    for name in more:
        fleet.node(name, several(1, name, OTHER), kind=LARGE, zone="a")
    return fleet


def test_consolidation_leaves_the_budget_to_those_that_need_not_wait() -> None:
    answer = consolidation.propose(drained_elsewhere("z").view(under_way=["x"]))
    assert gone(answer) == [("z",)]
    assert [(one.event, one.message) for one in answer.blocked if one.key == "y"] == [
        ("DisruptionBlocked", WAITS_FOR_TIED)
    ]


def test_repair_leaves_the_budget_to_those_that_need_not_wait() -> None:
    fleet = drained_elsewhere("z")
    for number in range(8):  # else too many would be broken
        fleet.node(f"ok{number}", several(1, f"ok{number}", FULL))
    policy = RepairPolicy(names.READY, "False", timedelta(minutes=30))
    for minutes, name in ((9, "y"), (8, "z")):
        fleet.ill[name] = Illness((RepairMatch(names.READY, "False", policy, 0, NOON - timedelta(minutes=minutes)),))
    answer = repair.propose(fleet.view(under_way=["x"]))
    assert gone(answer) == [("z",)]
    assert told(answer)["y"] == WAITS_FOR_TIED


def test_a_broken_node_whose_drain_has_an_end_waits_for_nobody() -> None:
    """Its pods may be what keeps a PodDisruptionBudget from letting the others go."""
    fleet = drained_elsewhere()
    fleet.budgets = [budget("web", "web", 0)]
    for number in range(8):  # else too many would be broken
        fleet.node(f"ok{number}", several(1, f"ok{number}", FULL))
    policy = RepairPolicy(names.READY, "False", timedelta(minutes=30), termination_grace_period=timedelta(minutes=10))
    fleet.ill["y"] = Illness((RepairMatch(names.READY, "False", policy, 0, NOON - timedelta(minutes=9)),))
    answer = repair.propose(fleet.view(under_way=["x"]))
    assert gone(answer) == [("y",)]
    assert in_turn(answer.proposals, fleet.snapshot()) == (answer.proposals, ())


@pytest.mark.parametrize(("app_of", "waits"), [(ZONED, True), (OTHER, False)], ids=["tied", "another app"])
def test_of_pods_that_are_tied_to_what_changes_zones_it_is_known_wherever_they_go(
    app_of: PodShape, waits: bool
) -> None:
    fleet = two(ZONED, app_of)
    to_zone("c")(fleet)
    asked = turns_of(fleet.view(under_way=["x"]))
    assert asked.wherever(fleet.nodes[1].pods) == (WAITS_FOR_TIED if waits else "")
    fleet = two(ZONED, app_of)
    to_zone("a")(fleet)
    assert not turns_of(fleet.view(under_way=["x"])).wherever(fleet.nodes[1].pods), "that depends on where"


def test_a_pod_that_is_ending_already_holds_nobody_up() -> None:
    fleet = two(ZONED, ZONED)
    ending = tuple(msgspec.structs.replace(one, deleted=NOON) for one in fleet.nodes[0].pods)
    under_way(pods=ending)(fleet)
    one = proposed(fleet, "y", "c")
    assert in_turn([one], fleet.snapshot())[0] == (one,)


def three() -> list[Proposal]:
    """Two nodes whose pods are spread together, and one of another app."""
    fleet = Fleet()
    fleet.node("x", several(1, "x", ZONED))
    fleet.node("y", several(1, "y", ZONED))
    fleet.node("z", several(1, "z", OTHER))
    return [proposed(fleet, name, "a") for name in "xyz"]


@pytest.mark.parametrize("how", ["budgets do not allow it", "it cannot begin"])
def test_who_is_tied_to_one_that_was_left_out_does_not_begin(how: str) -> None:
    """Its places were decided as if the other had moved."""
    first, second, third = three()
    order = InOrder([first, second, third], {})
    if how == "it cannot begin":
        assert order.may_begin(first)
        assert not order.note(begun=False)
    assert not order.may_begin(second)
    assert order.may_begin(third)
    assert order.note(begun=True)


@pytest.mark.parametrize(("more", "want"), [("b", True), ("c", False), ("", False)])
def test_a_zone_that_was_to_go_and_stays_is_counted_by_those_after(more: str, want: bool) -> None:
    """The pods of the second are spread as if there were no zone `b` any more."""
    fleet = Fleet()
    fleet.node("x", several(1, "x", PLAIN), zone="b")
    fleet.node("y", several(1, "y", OTHER), zone="a")
    if more:
        fleet.node("kept", (), zone=more)
    first, second = proposed(fleet, "x", "a"), proposed(fleet, "y", "a")
    order = InOrder([first, second], {}, fleet.snapshot().nodes)
    assert order.may_begin(first)
    assert not order.note(begun=False)
    assert order.may_begin(second) is want


def test_where_all_before_have_begun_nobody_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "kinds", None)
    made = three()
    order = InOrder(made, {})
    for one in made:
        assert order.may_begin(one)
        assert order.note(begun=True)


def test_pods_that_the_cluster_spreads_by_default_wait_for_each_other_across_zones() -> None:
    fleet = two(PLAIN, PLAIN)
    crossing = [proposed(fleet, "x", "b"), proposed(fleet, "y", "a")]
    assert in_turn(crossing, fleet.snapshot())[0] == tuple(crossing)
    assert in_turn(crossing, fleet.snapshot(), frozenset((ZONE,)))[0] == (crossing[0],)
    assert in_turn(crossing, fleet.snapshot(), frozenset((HOST,)))[0] == tuple(crossing)
