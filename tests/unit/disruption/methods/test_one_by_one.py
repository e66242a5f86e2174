"""Several nodes for one that costs less, where budgets never let go of all of them at once: one goes first, and the others follow."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.core import Affinity, PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm
from provisioner.apis.meta import LabelSelector
from provisioner.disruption.candidates import Candidate, candidates
from provisioner.disruption.methods import consolidation
from provisioner.disruption.methods.candidate_sets import Sets
from provisioner.disruption.methods.moves import Consolidation
from provisioner.disruption.proposal import Proposal
from provisioner.disruption.simulation.simulator import NOT_ALL_PODS_FIT, Simulation
from provisioner.scheduling.result import Result
from provisioner.state.pause import Activity
from tests.support.clock import NOON
from tests.support.fleets import ABC, Fleet, gist, pool, running, several
from tests.support.problems import instance_type, of_app, shape, spread

TWO = instance_type("two", "2", "4Gi", 0.054, zones=ABC, capacity_types=("on-demand",))
FOUR = instance_type("four", "4", "16Gi", 0.117, zones=ABC, capacity_types=("on-demand",))
WIDE = instance_type("wide", "8", "16Gi", 0.06, zones=ABC, capacity_types=("on-demand",))
ELSEWHERE = instance_type("four", "4", "16Gi", 0.117, zones=("b",), capacity_types=("on-demand",))
LOAD = shape("700m", "3Gi")
LONG_AGO = NOON - timedelta(hours=1)


def small_fleet(count: int = 4, *, kind: Any = FOUR, disruption: Any = None, **spec: Any) -> Fleet:
    """Nodes of which none can be replaced alone, and whose pods all fit on one of a larger kind; one of them may go at a time."""
    fleet = Fleet([pool(disruption={"budgets": [{"nodes": "1"}], **(disruption or {})}, **spec)], types=(TWO, kind))
    for name in "abcdef"[:count]:
        fleet.node(name, several(1, name, LOAD), kind=TWO, last_pod_event=LONG_AGO)
    return fleet


def proposals(fleet: Fleet, **view: Any) -> tuple[Proposal, ...]:
    return consolidation.propose(fleet.view(**view)).proposals


def done(fleet: Fleet, one: Proposal, **new: Any) -> None:
    """Carry out a proposal; the replacement was just made."""
    going = [node for node in fleet.nodes if node.key.name in one.candidates]
    fleet.nodes = [node for node in fleet.nodes if node not in going]
    for name, pods in one.placements.items():
        (old,) = (node for node in fleet.nodes if str(node.key) == name)
        fleet.nodes.remove(old)
        kind = next(kind for kind in fleet.types if kind.name == old.labels[names.INSTANCE_TYPE_LABEL])
        assert old.claim is not None
        created = old.claim.metadata.creation_timestamp or NOON
        fleet.node(old.key.name, (*old.pods, *pods), kind=kind, created=created, last_pod_event=old.last_pod_event)
    for claim in one.replacements:
        spec = {"resources": {"requests": {key: str(claim.requests.amount(key)) for key in ("memory",)}}}
        kind = next(kind for kind in fleet.types if kind.name == claim.planned_type)
        fleet.node("new", claim.pods, kind=kind, created=NOON, claim_spec=spec, **new)


def test_one_goes_for_a_node_that_has_room_for_the_pods_of_all() -> None:
    (one,) = proposals(small_fleet())
    assert gist(one) == (("a",), ["four"], {})
    assert one.then == ("b", "c", "d")
    assert one.saving_usd_per_hour == pytest.approx(4 * 0.054 - 0.117), "once all of them have gone"
    (new,) = one.replacements
    assert [pod.name for pod in new.pods] == ["a-0"]
    assert new.requests == LOAD.requests, "it is as full as it was bought for, so nothing takes its place meanwhile"


def test_the_others_follow_one_after_another() -> None:
    fleet = small_fleet()
    went = []
    while len(fleet.nodes) > 1:
        (one,) = proposals(fleet)
        went.append(one.candidates)
        done(fleet, one)
    assert went == [("a",), ("b",), ("c",), ("d",)]
    assert proposals(fleet) == ()


def test_all_go_at_once_where_budgets_allow_it() -> None:
    (one,) = proposals(small_fleet(disruption={"budgets": [{"nodes": "4"}]}))
    assert gist(one)[0] == ("a", "b", "c", "d")
    assert one.then == ()


@pytest.mark.parametrize("count", [2, 3])
def test_no_more_is_risked_than_there_is_to_gain(count: int) -> None:
    """Three would save $0.045 per hour; one alone, if no other follows, wastes $0.063."""
    assert proposals(small_fleet(count)) == ()


@pytest.mark.parametrize(("after", "begins"), [("0s", True), ("10m", True), ("30m", False)])
def test_nodes_that_wait_for_their_turn_are_paid_for(after: str, begins: bool) -> None:
    assert bool(proposals(small_fleet(disruption={"consolidateAfter": after}))) is begins


def test_nothing_begins_beside_another_command() -> None:
    fleet = small_fleet(disruption={"budgets": [{"nodes": "2"}]})
    fleet.node("z", several(1, "z", LOAD), kind=TWO)
    assert proposals(fleet)
    assert proposals(fleet, under_way=["z"]) == ()


def test_a_second_step_waits_for_the_room_of_the_first() -> None:
    """Until consolidateAfter is over, the new node takes no pod of a candidate; that is no reason to buy another one."""
    fleet = small_fleet(5, disruption={"consolidateAfter": "10m"})
    (one,) = proposals(fleet)
    done(fleet, one, last_pod_event=NOON - timedelta(minutes=1))
    assert proposals(fleet) == ()


def test_the_first_needs_a_legal_place_while_the_others_are_still_there() -> None:
    fleet = small_fleet(2)
    view = fleet.view()
    assert view.prepared is not None
    first = next(one for one in candidates(view, Activity.CONSOLIDATION).eligible if one.key == "a")
    why = Simulation(view, view.prepared).goes_first(first, Result((), {"b": first.pods}, ()))
    assert why.startswith(NOT_ALL_PODS_FIT)


def test_limits_hold_while_the_others_are_still_there() -> None:
    """Of 8 CPUs, the new node takes 4, and the three that stay take 6."""
    assert proposals(small_fleet(limits={"cpu": "8"})) == ()
    assert proposals(small_fleet(limits={"cpu": "10"}))


def test_nobody_is_to_follow_whose_own_move_is_refused() -> None:
    """A third of the price for 26 of 30 parts of the disruption is no balance, though all three nodes together are one."""
    fleet = small_fleet(2, kind=WIDE, disruption={"consolidationPolicy": "Balanced"})
    fleet.node("c", several(25, "c", shape("50m", "100Mi")), kind=TWO)
    (one,) = proposals(fleet)
    assert {*one.candidates, *one.then} == {"a", "b"}


NEAR = Affinity(
    pod_affinity=PodAffinity(
        preferred=(
            WeightedPodAffinityTerm(
                weight=10,
                pod_affinity_term=PodAffinityTerm(
                    topology_key=names.ZONE_LABEL, label_selector=LabelSelector(match_labels={"app": "web"})
                ),
            ),
        )
    )
)


@pytest.mark.parametrize(("allowed", "going"), [("4", [4]), ("1", [])])
def test_no_wish_is_given_up_until_the_others_follow(allowed: str, going: list[int]) -> None:
    """The larger kind is in another zone: pods that wish to be near each other go there together, or not at all."""
    fleet = small_fleet(0, kind=ELSEWHERE, disruption={"budgets": [{"nodes": allowed}]})
    wishful = of_app("web", cpu="700m", memory="3Gi", affinity=NEAR)
    for name in "abcd":
        fleet.node(name, [running(name, wishful)], kind=TWO)
    assert [len(one.candidates) for one in proposals(fleet)] == going


@pytest.mark.parametrize("when", ["DoNotSchedule", "ScheduleAnyway"])
def test_pods_that_are_spread_over_zones_are_gathered_in_each_zone(when: str) -> None:
    """Larger sets promise more, as far as sizes tell, but no single node takes pods of two zones."""
    fleet = small_fleet(0)
    spreads = (spread(names.ZONE_LABEL, LabelSelector(match_labels={"app": "web"}), when_unsatisfiable=when),)
    web = of_app("web", cpu="700m", memory="3Gi", topology_spread_constraints=spreads)
    for zone in ABC:
        for number in range(4):
            name = f"{zone}{number}"
            fleet.node(name, [running(name, web)], kind=TWO, zone=zone, last_pod_event=LONG_AGO)
    (one,) = proposals(fleet)
    zone = one.candidates[0][0]
    assert sorted((*one.candidates, *one.then)) == [f"{zone}{number}" for number in range(4)]


def two_pools(first: Mapping[str, Any], second: Mapping[str, Any], *, of: str = "abbb", **spec: Any) -> Fleet:
    """The same nodes in two NodePools; the larger kind comes from the second one. `first`, `second`: how they disrupt; `of`: whose each node is."""
    one = {"budgets": [{"nodes": "1"}]}
    kinds = {"requirements": [{"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["two"]}]}
    fleet = Fleet([pool("a", disruption={**one, **first}, **kinds), pool("b", disruption={**one, **second}, **spec)])
    fleet.types = (TWO, FOUR)
    for name, owner in zip("abcdef", of, strict=False):
        fleet.node(name, several(1, name, LOAD), kind=TWO, of=owner, last_pod_event=LONG_AGO)
    return fleet


CLOSED = [{"nodes": "0"}]
NIGHT = [{"nodes": "1"}, {"nodes": "0", "schedule": "5 12 * * *", "duration": "12h"}]


@pytest.mark.parametrize(("budgets", "begins"), [([{"nodes": "1"}], True), (CLOSED, False), (NIGHT, False)])
def test_none_begins_where_budgets_never_let_the_others_follow(budgets: Any, begins: bool) -> None:
    """The last one would go nine minutes past noon."""
    assert bool(proposals(two_pools({}, {"budgets": budgets}))) is begins


@pytest.mark.parametrize(("after", "begins"), [("0s", True), ("10m", True), ("5h", False), ("Never", True)])
def test_how_long_a_turn_takes_is_also_a_matter_of_the_new_nodes_pool(after: str, begins: bool) -> None:
    """It takes no pod of a candidate until its own consolidateAfter is over."""
    assert bool(proposals(two_pools({}, {"consolidateAfter": after}, of="aaaa"))) is begins


def test_the_others_give_up_no_wish_either() -> None:
    """Those that wish to be near each other would stay where they are, beside a node that is too large."""
    fleet = small_fleet(1, kind=ELSEWHERE)
    wishful = of_app("web", cpu="700m", memory="3Gi", affinity=NEAR)
    for name in "bcd":
        fleet.node(name, [running(name, wishful)], kind=TWO)
    assert proposals(fleet) == ()


def test_no_set_is_grown_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = small_fleet()
    asked: list[str] = []

    def grown(_: Sets, seed: Candidate, _free: Any) -> list[Any]:
        asked.append(seed.key)
        return []

    monkeypatch.setattr(Sets, "grown", grown)
    view, prepared = fleet.view(expired=lambda: True), fleet.prepared()
    consolidation._one_by_one(view, prepared, Consolidation(view, prepared))
    assert asked == []


def test_few_questions_are_asked_where_no_step_may_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The NodePool is at its limit: sets are asked about, their nodes are not."""
    fleet = small_fleet(0, limits={"cpu": "61"})
    for number in range(30):
        fleet.node(f"n{number:02}", several(1, f"n{number:02}", LOAD), kind=TWO, last_pod_event=LONG_AGO)
    asked: list[int] = []
    ask = Simulation.ask

    def counted(self: Simulation, some: Any, **how: Any) -> Any:
        asked.append(len(some))
        return ask(self, some, **how)

    monkeypatch.setattr(Simulation, "ask", counted)
    assert proposals(fleet) == ()
    assert 0 < len(asked) <= 3 * 30
