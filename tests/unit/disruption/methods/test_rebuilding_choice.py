"""Which nodes are compared together with the cheapest fleet that is found for their pods, and what comes of it."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace as changed

from provisioner.apis.pods import Pod
from provisioner.disruption import acceptance
from provisioner.disruption.methods import rebuilding as method
from provisioner.disruption.methods import rebuilding_choice as rebuilding
from provisioner.disruption.methods.moves import Consolidation
from provisioner.disruption.methods.rebuilding_choice import choices
from provisioner.disruption.proposal import Proposal
from provisioner.disruption.simulation import simulator as simulation
from provisioner.disruption.view import Acceptance, DisruptionSettings, DisruptionView
from provisioner.scheduling.drainability import StuckEviction
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.result import Result
from provisioner.values.resources import Resources
from provisioner.values.taints import Taint
from tests.support.clock import NOON
from tests.support.fleets import ABC, SMALL, Fleet, budget, gist, several
from tests.support.improving import improve
from tests.support.problems import apart, app, instance_type, near, pod, shape, spread

ONE, FOUR = (
    instance_type(name, cpu, memory, usd, zones=ABC, capacity_types=("on-demand",))
    for name, cpu, memory, usd in (("one", "2", "8Gi", 0.1), ("four", "8", "32Gi", 0.4))
)
DAEMON = shape("500m", "512Mi")
OWN = shape("1500m", "1Gi")


def improved(prepared: Prepared, result: Result) -> Result:
    """What the planner finds in a few rounds, however long they take."""
    return improve(prepared, result.placed, result, iterations=4).result


BOUGHT = {"resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}


def fleet_of(count: int = 10, **more: Any) -> Fleet:
    """Full nodes, of which a quarter is a daemon's: five pods and one daemon share a node of four times the size."""
    fleet = Fleet(types=(ONE, FOUR), daemons=(DAEMON,))
    for number in range(count):
        room = ONE.allocatable - OWN.requests - DAEMON.requests
        fleet.node(f"n{number:02}", several(1, f"w{number:02}", OWN), kind=ONE, room=room, **more)
    return fleet


def view_of(
    fleet: Fleet, search: Callable[[Prepared, Result], Result] | None = improved, **more: Any
) -> DisruptionView:
    return replace(fleet.view(**more), improved=search)


def proposed(
    fleet: Fleet, search: Callable[[Prepared, Result], Result] | None = improved, **more: Any
) -> tuple[Proposal, ...]:
    return method.propose(view_of(fleet, search, **more)).proposals


def test_many_nodes_are_built_anew_together_where_that_pays() -> None:
    (one,) = proposed(fleet_of())
    assert len(one.candidates) == 10
    assert [claim.planned_type for claim in one.replacements] == ["four", "four"]
    assert one.saving_usd_per_hour == pytest.approx(0.2)
    assert (one.reason, one.method) == ("Underutilized", "rebuild")


def test_one_node_becomes_two_where_that_is_cheaper() -> None:
    """Scheduling puts its pods on one again; that two cost less is for the planner to find."""
    dear = instance_type("dear", "4", "8Gi", 0.5, zones=ABC, capacity_types=("on-demand",))
    fleet = Fleet(types=(SMALL, dear))
    fleet.node("a", several(4, "w"), kind=dear)
    (one,) = proposed(fleet)
    assert gist(one) == (("a",), ["small", "small"], {})
    assert one.saving_usd_per_hour == pytest.approx(0.3)


def test_nobody_looks_where_the_view_has_nobody() -> None:
    assert proposed(fleet_of(), None) == ()


def test_where_nothing_cheaper_is_found_scheduling_says_what_it_brings() -> None:
    (one,) = proposed(fleet_of(), lambda _, result: result)
    assert one.saving_usd_per_hour > 0


@pytest.mark.parametrize("allowed", [0, 2])
def test_budgets_that_leave_too_few_nodes_leave_none(allowed: int) -> None:
    assert proposed(fleet_of(), allowed=lambda *_: allowed) == ()


def test_no_more_nodes_go_than_budgets_allow() -> None:
    (one,) = proposed(fleet_of(), allowed=lambda *_: 7)
    assert len(one.candidates) == 5  # of the seven that may go, three quarters bring as much by fewer evictions


def test_young_nodes_are_left() -> None:
    assert proposed(fleet_of(created=NOON - timedelta(minutes=5), claim_spec=BOUGHT)) == ()


def test_nodes_that_say_they_are_not_to_be_disrupted_are_left() -> None:
    fleet = fleet_of(12)
    fleet.nodes[:2] = [replace(one, do_not_disrupt=True) for one in fleet.nodes[:2]]
    (one,) = proposed(fleet)
    assert {"n00", "n01"}.isdisjoint(one.candidates)


def test_an_answer_that_is_not_legal_is_refused() -> None:
    """Whoever looks is not trusted: all pods on one new node, and none of them on any. What is too much for it stays where it is."""

    def crowded(_: Prepared, result: Result) -> Result:
        first, *others = result.claims
        return replace(
            result, claims=(changed(first, pods=(*first.pods, *(pod for one in others for pod in one.pods))),)
        )

    (one,) = proposed(fleet_of(20), crowded)
    assert [len(claim.pods) for claim in one.replacements] == [5]
    assert proposed(fleet_of(20), lambda _, result: replace(result, claims=())) == ()


def test_pods_that_are_spread_keep_their_zones_while_nodes_drain() -> None:
    fleet = Fleet(types=(ONE, FOUR), daemons=(DAEMON,))
    term = spread("topology.kubernetes.io/zone", app("web"))
    own = shape("1500m", "1Gi", labels={"app": "web"}, topology_spread_constraints=(term,))
    for number in range(30):
        room = ONE.allocatable - own.requests - DAEMON.requests
        fleet.node(f"n{number:02}", several(1, f"w{number:02}", own), kind=ONE, zone="abc"[number % 3], room=room)
    (one,) = proposed(fleet)
    zones = {f"w{number:02}-0": "abc"[number % 3] for number in range(30)}
    for claim in one.replacements:
        assert {zones[pod.name] for pod in claim.pods} == {claim.planned_zone}
        assert {pod.shape.key for pod in claim.pods} == {own.key}


def test_a_saving_that_does_not_pay_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptance, "EVICTION_USD", 0.1)
    assert proposed(fleet_of()) == ()


def test_a_saving_that_does_not_pay_is_none_where_any_is_accepted_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptance, "EVICTION_USD", 0.1)
    fleet = fleet_of()
    fleet.settings = DisruptionSettings(acceptance=Acceptance.KARPENTER)
    assert proposed(fleet) == ()


def test_what_one_node_brings_is_not_spent_on_the_pods_of_others() -> None:
    """A large node with four small pods that may not be together: they go to four nodes, and the full ones stay."""
    alone = shape("100m", "64Mi", labels={"app": "odd"}, affinity=apart("kubernetes.io/hostname", app("odd")))
    dear = instance_type("dear", "64", "256Gi", 3.2, zones=ABC, capacity_types=("on-demand",))
    fleet = Fleet(types=(ONE, dear), daemons=(DAEMON,))
    for number in range(12):
        fleet.node(
            f"n{number:02}",
            several(1, f"w{number:02}", OWN),
            kind=ONE,
            room=ONE.allocatable - OWN.requests - DAEMON.requests,
        )
    fleet.node("dear", several(4, "odd", alone), kind=dear)
    (one,) = proposed(fleet)
    assert one.candidates == ("dear",)
    assert one.method == "single", "as metrics count it"
    assert len(one.replacements) == 4


def test_new_nodes_may_be_of_a_type_that_goes() -> None:
    fleet = fleet_of(6)
    for name in ("x", "y"):
        fleet.node(name, several(2, name, OWN), kind=FOUR)
    (one,) = proposed(fleet)
    assert {"x", "y"} <= set(one.candidates)
    assert {claim.planned_type for claim in one.replacements} == {"four"}


@pytest.mark.parametrize(("count", "goes"), [(2, False), (3, True)])
def test_of_two_nodes_for_one_of_their_type_the_one_stays(count: int, goes: bool) -> None:
    """They take no more pods, so neither can go for the other; what is true of three was not told of two."""
    fleet = Fleet(types=(FOUR,))
    for number in range(count):
        fleet.node(
            f"n{number}", several(1, f"w{number}", OWN), kind=FOUR, taints=(Taint(key="full", effect="NoSchedule"),)
        )
    assert bool(proposed(fleet)) == goes


def in_the_way(fleet: Fleet, why: str) -> None:
    """Three more nodes, the most wasteful by far."""
    kinds = ("on-demand", "spot") if why == "spot" else ("on-demand",)
    dear = instance_type("dear", "2", "8Gi", 3.0, zones=ABC, capacity_types=kinds)
    selector = (
        {"node.kubernetes.io/instance-type": "dear"} if why == "comes again" else {"kubernetes.io/hostname": "it"}
    )
    own = shape("1500m", "1Gi", selector=selector if why in ("comes again", "has no place") else None)
    more: dict[str, Any] = {}
    if why == "spot":
        more["capacity_type"] = "spot"
    if why == "ends soon":
        more["claim_spec"] = {"expireAfter": "25h"}
    if why == "young":
        more = {"created": NOON - timedelta(minutes=5), "claim_spec": BOUGHT}
    fleet.types = (*fleet.types, dear)
    for number in range(3):
        fleet.node(
            f"w{number}", several(1, f"way{number}", own), kind=dear, room=dear.allocatable - own.requests, **more
        )


@pytest.mark.parametrize("why", ["comes again", "has no place", "spot", "ends soon", "young"])
def test_nodes_that_are_in_the_way_stay_and_the_others_go(why: str) -> None:
    fleet = fleet_of()
    in_the_way(fleet, why)
    (one,) = proposed(fleet)
    assert set(one.candidates) == {f"n{number:02}" for number in range(10)}


@pytest.mark.parametrize(("allowed", "most"), [(1, 4), (2, 8), (3, 10)])
def test_pods_that_budgets_let_go_only_one_by_one_are_left(allowed: int, most: int) -> None:
    own = shape("1500m", "1Gi", labels={"app": "web"})
    fleet = Fleet(types=(ONE, FOUR), daemons=(DAEMON,), budgets=[budget("pdb", "web", allowed)])
    room = ONE.allocatable - own.requests - DAEMON.requests
    for number in range(10):
        fleet.node(f"n{number:02}", several(1, f"w{number:02}", own), kind=ONE, room=room)
    assert max(map(len, order(fleet).rebuilds())) == most


def test_where_the_time_is_over_nothing_more_is_looked_for() -> None:
    asked = 0

    def search(prepared: Prepared, result: Result) -> Result:
        nonlocal asked
        asked += 1
        return improved(prepared, result)

    view = replace(view_of(fleet_of(), search), expired=lambda: asked > 0)
    assert len(method.propose(view).proposals) == asked == 1


def test_where_only_types_that_are_too_dear_may_be_spot_new_nodes_are_on_demand() -> None:
    """Both are of the plan: the cheaper one is launched, the other never."""
    fleet = fleet_of()
    fleet.types = (*fleet.types, instance_type("dear", "8", "32Gi", 3.0, zones=ABC))
    (one,) = proposed(fleet)
    assert {claim.instance_types for claim in one.replacements} == {("four",)}
    assert {claim.planned_capacity_type for claim in one.replacements} == {"on-demand"}


def test_of_several_choices_the_one_counts_that_brings_most(monkeypatch: pytest.MonkeyPatch) -> None:
    view = view_of(fleet_of())
    monkeypatch.setattr(Consolidation, "rebuilds", lambda work: [work.order[:5], work.order, work.order[5:]])
    (one,) = method.propose(view).proposals
    assert len(one.candidates) == 10


def test_a_node_that_is_to_take_a_pod_is_in_no_choice() -> None:
    fleet = fleet_of()
    fleet.node("roomy", several(1, "r", OWN), kind=FOUR)
    assert any("roomy" in {one.key for one in some} for some in order(fleet).rebuilds())
    fleet.pending = [pod("waits", shape("4", "1Gi"))]
    assert not any("roomy" in {one.key for one in some} for some in order(fleet).rebuilds())


def test_whoever_looks_sees_the_nodes_that_go_closed_and_without_their_pods() -> None:
    fleet = fleet_of()
    going = str(fleet.node("going", several(1, "g", OWN), kind=FOUR, deleting=True).key)
    seen: list[tuple[bool, bool, int]] = []

    def search(prepared: Prepared, result: Result) -> Result:
        seen.extend((one.name == going, one.closed, len(one.pods)) for one in prepared.world.bins)
        return result

    proposed(fleet, search)
    assert set(seen[:11]) == {(False, True, 0), (True, True, 1)}


def test_nobody_is_promised_a_node_that_leaves_by_itself() -> None:
    fleet = fleet_of()
    fleet.node("going", kind=instance_type("huge", "64", "256Gi", 3.0, zones=ABC), deleting=True)
    onto = {str(fleet.nodes[-1].key): tuple(pod for node in fleet.nodes for pod in node.pods)}
    assert proposed(fleet, lambda _, result: replace(result, claims=(), existing=onto)) == ()


def test_pods_that_must_follow_others_that_move_already_stay() -> None:
    fleet = fleet_of(0)
    follower = shape("1500m", "1Gi", affinity=near("topology.kubernetes.io/zone", app("lead")))
    for number in range(10):
        room = ONE.allocatable - OWN.requests - DAEMON.requests
        fleet.node(f"n{number:02}", several(1, f"w{number:02}", follower), kind=ONE, room=room)
    fleet.node(
        "leads", several(1, "lead", shape("100m", "64Mi", labels={"app": "lead"})), kind=FOUR, room=Resources.of({})
    )
    assert proposed(fleet)
    fleet.nodes[-1] = replace(fleet.nodes[-1], deleting=True)
    assert proposed(fleet) == ()


def test_a_pod_whose_eviction_would_be_stuck_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def stuck(
        _: Prepared, result: Result, _leaving: Iterable[str], **_terms: bool
    ) -> StuckEviction | dict[str, list[Pod]]:
        return next((StuckEviction(pod, "no") for pod in result.placed if pod.name == "w03-0"), {})

    monkeypatch.setattr(simulation, "drained", stuck)
    (one,) = proposed(fleet_of(11))
    assert len(one.candidates) == 10
    assert "n03" not in one.candidates


def test_what_does_not_pay_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """To ask of each tied pod whether its eviction would be stuck may take seconds."""
    monkeypatch.setattr(simulation, "drained", lambda *_, **_terms: pytest.fail("asked"))
    monkeypatch.setattr(acceptance, "EVICTION_USD", 0.078)  # less than it could bring, more than it does
    searched: list[Result] = []

    def search(_: Prepared, result: Result) -> Result:
        searched.append(result)
        return result

    assert proposed(fleet_of(), search) == ()
    assert searched


ELSEWHERE = "topology.kubernetes.io/zone", app("other")


@pytest.mark.parametrize(
    ("tie", "kept"),
    [
        ({"topology_spread_constraints": (spread(*ELSEWHERE, when_unsatisfiable="ScheduleAnyway"),)}, False),
        ({"affinity": apart("kubernetes.io/hostname", app("other"))}, False),
        ({"affinity": apart(*ELSEWHERE)}, True),
        ({"topology_spread_constraints": (spread(*ELSEWHERE),)}, True),
    ],
    ids=["soft spread", "by hostname", "anti-affinity", "spread"],
)
def test_pods_keep_their_zone_where_they_are_tied_to_others_over_it(tie: dict[str, Any], kept: bool) -> None:
    """Two nodes a zone: those of one zone alone never fill a larger node."""
    fleet = Fleet(types=(ONE, FOUR), daemons=(DAEMON,))
    own = shape("1500m", "1Gi", labels={"app": "web"}, **tie)
    for number in range(6):
        room = ONE.allocatable - own.requests - DAEMON.requests
        fleet.node(f"n{number:02}", several(1, f"w{number:02}", own), kind=ONE, zone="abc"[number % 3], room=room)
    assert bool(proposed(fleet)) is not kept


# --- who goes together ---


def order(fleet: Fleet) -> Consolidation:
    view = view_of(fleet)
    assert view.prepared is not None
    return Consolidation(view, view.prepared)


def test_whom_budgets_or_too_many_pods_leave_out_others_follow() -> None:
    work = order(fleet_of(8))
    margins = {one.key: 1.0 + int(one.key[1:]) for one in work.order}
    (whole, *_) = choices(work.order, margins, lambda some: "n07" not in {one.key for one in some})
    assert {one.key for one in whole} == {f"n{number:02}" for number in range(7)}
    many = [replace(one, pods=one.pods * 401) if one.key == "n07" else one for one in work.order]
    (whole, *_) = choices(many, margins, lambda _: True)
    assert {one.key for one in whole} == {f"n{number:02}" for number in range(7)}


def test_what_pods_need_besides_cpu_and_memory_is_no_waste() -> None:
    """A node with a GPU costs five times as much as one without, and its pod asks for it."""
    gpus = instance_type(
        "gpus", "2", "8Gi", 0.5, zones=ABC, capacity_types=("on-demand",), more={"nvidia.com/gpu": "1"}
    )
    fleet = fleet_of(2)
    fleet.types = (*fleet.types, gpus)
    fleet.node("gpu", several(1, "g", shape("100m", "1Gi", more={"nvidia.com/gpu": "1"})), kind=gpus)
    fleet.node("bare", several(1, "b", shape("100m", "1Gi")), kind=gpus)
    margins = order(fleet).sets().margins
    assert margins["gpu"] <= 0 < margins["bare"]


def test_shares_of_the_most_wasteful_are_looked_at() -> None:
    work = order(fleet_of(12))
    margins = {one.key: 1.0 + int(one.key[1:]) for one in work.order}
    found = choices(work.order, margins, lambda _: True)
    assert [len(some) for some in found] == [12, 9, 6, 3]
    assert [int(one.key[1:]) for one in found[-1]] == [11, 10, 9]


def test_those_go_along_that_may_bring_something_together() -> None:
    work = order(fleet_of(8))
    margins = dict(
        zip(sorted(one.key for one in work.order), (5.0, 1.0, -2.0, -3.0, -1.5, -9.0, -9.0, -9.0), strict=True)
    )
    found = [{one.key for one in some} for some in choices(work.order, margins, lambda _: True)]
    assert found[:2] == [
        {"n00", "n01"},
        {"n00", "n01", "n02", "n04"},
    ]  # 5 + 1 - 1.5 - 2 > 0; one more and nothing is left


def test_nodes_and_pods_of_one_choice_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    work = order(fleet_of(10))
    margins = dict.fromkeys((one.key for one in work.order), 1.0)
    for name in ("MOST_NODES", "MOST_PODS"):
        with monkeypatch.context() as bound:
            bound.setattr(rebuilding, name, 4)
            (whole, *_) = choices(work.order, margins, lambda _: True)
            assert len(whole) == 4
