"""Broken nodes of NodePools: Karpenter 1.15 spec 3.2 to 3.6."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace as changed

from provisioner.apis import names
from provisioner.apis.command import RepairTerms
from provisioner.apis.meta import Condition
from provisioner.apis.pods import Pod
from provisioner.cloudprovider.types import RepairPolicy
from provisioner.disruption.methods import repair
from provisioner.disruption.methods.repair import TOLERATED, VETO
from provisioner.disruption.repair_policies import Illness, RepairMatch
from provisioner.disruption.view import DisruptionSettings, DisruptionStanding
from tests.support.clock import NOON
from tests.support.fleets import SMALL, Fleet, budget, gist, gone, pool, running, several, told
from tests.support.problems import of_app

MINUTE = timedelta(minutes=1)


def ill(minutes: float = 1, *, grace: timedelta | None = MINUTE, rank: int = 0) -> Illness:
    """Due for so many minutes, or not before so many."""
    policy = RepairPolicy(names.READY, "False", 30 * MINUTE, termination_grace_period=grace, priority=rank)
    return Illness((RepairMatch(names.READY, "False", policy, rank, NOON - timedelta(minutes=minutes)),))


def broken(fleet: Fleet, *some: tuple[str, Iterable[Pod]], wrong: Illness | None = None, **more: Any) -> Fleet:
    """Nodes that are not Ready, due one after another, the first for the longest."""
    for number, (name, pods) in enumerate(some):
        fleet.node(name, pods, **{"ready": False, **more})
        fleet.ill[name] = wrong or ill(10 - number)
    return fleet


def healthy(fleet: Fleet, count: int, **more: Any) -> Fleet:
    """Full ones."""
    for number in range(count):
        fleet.node(f"ok{number}", several(1, f"ok{number}", of_app("ok", cpu="1800m")), kind=SMALL, **more)
    return fleet


def test_a_broken_node_gets_its_replacement_first() -> None:
    fleet = broken(Fleet(), ("a", several(2, "w")))
    (one,) = repair.propose(fleet.view()).proposals
    assert (one.reason, one.method, one.repair) == ("Unhealthy", "repair", RepairTerms(names.READY, 60))
    assert gist(one) == (("a",), ["small"], {})
    assert {pod.name for pod in one.replacements[0].pods} == {"w-0", "w-1"}


def test_an_empty_one_needs_none() -> None:
    (one,) = repair.propose(broken(Fleet(), ("a", ())).view()).proposals
    assert gist(one) == (("a",), [], {})


def test_a_fleet_without_broken_nodes_is_no_question() -> None:
    answer = repair.propose(healthy(Fleet(), 2).view())
    assert (answer.proposals, answer.blocked, dict(answer.quiet)) == ((), (), {})


def test_all_that_the_budget_allows_go_in_one_pass_the_longest_overdue_first() -> None:
    fleet = Fleet([pool(disruption={"budgets": [{"nodes": "2", "reasons": ["Unhealthy"]}]})])
    healthy(broken(fleet, *((f"n{number}", several(1, f"w{number}")) for number in range(4))), 16)
    answer = repair.propose(fleet.view())
    assert gone(answer) == [("n0",), ("n1",)]
    assert answer.eligible == 4
    text = "2 more nodes of its NodePool may be disrupted now, and other nodes come first"
    assert told(answer) == {"n2": text, "n3": text}, "each node that waits is told so"
    assert answer.recheck_at == NOON + timedelta(seconds=10)


def test_a_higher_priority_goes_first_until_the_other_has_waited_for_half_an_hour() -> None:
    fleet = healthy(Fleet(), 16)
    for name, wrong in {"low": ill(20), "high": ill(1, rank=1), "older": ill(40)}.items():
        broken(fleet, (name, several(1, name)), wrong=wrong)
    assert gone(repair.propose(fleet.view())) == [("older",), ("high",), ("low",)]


def test_of_equals_the_cheaper_to_disrupt_goes_first_then_by_name() -> None:
    fleet = healthy(Fleet(), 16)
    for name, pods in {"c": 1, "a": 3, "b": 1}.items():
        broken(fleet, (name, several(pods, name)), wrong=ill(5))
    assert gone(repair.propose(fleet.view())) == [("b",), ("c",), ("a",)]


def test_a_node_whose_pods_have_no_place_holds_up_nobody_else() -> None:
    fleet = healthy(Fleet(), 8)
    broken(fleet, ("a", several(1, "huge", of_app("huge", cpu="64"))), ("b", several(1, "w")))
    answer = repair.propose(fleet.view())
    assert gone(answer) == [("b",)]
    assert told(answer)["a"].startswith("not all pods would schedule")


def test_no_pod_moves_to_another_broken_node() -> None:
    fleet = broken(Fleet(), ("a", several(1, "w")), ("b", ()), ready=True)
    healthy(fleet, 8)
    first = repair.propose(fleet.view()).proposals[0]
    assert gist(first) == (("a",), ["small"], {})


@pytest.mark.parametrize("nodes", ["0", "0%"])
def test_a_budget_of_none_stops_repair_and_both_node_and_pool_are_told(nodes: str) -> None:
    fleet = healthy(Fleet([pool(disruption={"budgets": [{"nodes": nodes}]})]), 5)
    answer = repair.propose(broken(fleet, ("a", several(1, "w"))).view())
    text = "No allowed disruptions for disruption reason Unhealthy due to blocking budget"
    assert (answer.proposals, told(answer)) == ((), {"a": text, "": text})


def test_broken_nodes_do_not_use_up_the_budget_that_they_need() -> None:
    """Both are not Ready; the one that goes counts."""
    fleet = healthy(Fleet([pool(disruption={"budgets": [{"nodes": "1"}]})]), 8)
    broken(fleet, ("a", several(1, "w")), ("b", several(1, "x")))
    assert gone(repair.propose(fleet.view())) == [("a",)]


def test_the_limit_over_all_pools_holds() -> None:
    fleet = healthy(Fleet(), 8)
    broken(fleet, ("a", several(1, "w")), ("b", several(1, "x")))
    assert gone(repair.propose(replace(fleet.view(most=1), ceiling=1))) == [("a",)]


@pytest.mark.parametrize("registered", [False, True])
def test_a_node_that_never_was_initialized_goes_without_a_budget_once_it_has_registered(registered: bool) -> None:
    fleet = Fleet([pool(disruption={"budgets": [{"nodes": "0"}]})])
    broken(fleet, ("a", ()), initialized=False, nominated=True)
    if not registered:
        fleet.nodes = [replace(one, claim=with_conditions(one.claim)) for one in fleet.nodes]
    answer = repair.propose(fleet.view())
    assert gone(answer) == ([("a",)] if registered else [])
    assert told(answer) == ({} if registered else {"a": "Node isn't initialized"})


def test_neither_a_nomination_nor_do_not_disrupt_keeps_a_broken_node() -> None:
    fleet = broken(Fleet(), ("a", several(1, "w")), do_not_disrupt=True, nominated=True)
    assert gone(repair.propose(fleet.view())) == [("a",)]


def test_do_not_repair_keeps_it_and_is_told_only_when_it_is_due() -> None:
    fleet = broken(Fleet(), ("a", several(1, "w")), do_not_repair=True)
    assert told(repair.propose(fleet.view())) == {"a": VETO}
    fleet.ill["a"] = ill(-5)
    answer = repair.propose(fleet.view())
    assert (told(answer), answer.recheck_at) == ({}, NOON + 5 * MINUTE)
    assert answer.quiet["a"].standing is DisruptionStanding.NOT_DUE
    assert (answer.quiet["a"].message, answer.quiet["a"].until) == (TOLERATED, NOON + 5 * MINUTE)


PROTECTED = {names.DO_NOT_DISRUPT: "true"}
BOUNDS: dict[str, tuple[timedelta | None, str, timedelta | None, int | None]] = {
    "nobody bounds it": (None, "", None, None),
    "the policy": (MINUTE, "", None, 60),
    "the NodeClaim": (None, "2m", None, 120),
    "the shorter": (MINUTE, "30s", None, 30),
    "the shorter again": (MINUTE, "2m", None, 60),
    "--drain-timeout": (None, "", 3 * MINUTE, 180),
    "the policy before --drain-timeout": (MINUTE, "", 3 * MINUTE, 60),
    "the NodeClaim's own before --drain-timeout": (None, "9m", 3 * MINUTE, 540),
    "a period of the NodeClaim that nobody can read": (None, "soon", 3 * MINUTE, None),
    "at once": (timedelta(0), "2m", None, 0),
    "half a second": (timedelta(milliseconds=500), "", None, 1),
}


@pytest.mark.parametrize(("policy", "own", "longest", "want"), BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize("held", ["", "do-not-disrupt", "budget"])
def test_pods_hold_a_node_only_where_nothing_bounds_its_drain(
    policy: timedelta | None, own: str, longest: timedelta | None, want: int | None, held: str
) -> None:
    fleet = Fleet(settings=DisruptionSettings(drain_timeout=longest))
    pods = [running("w", of_app("web"), annotations=PROTECTED if held == "do-not-disrupt" else {})]
    fleet.budgets = [budget("web", "web", 0)] if held == "budget" else []
    spec = {"terminationGracePeriod": own} if own else {}
    broken(fleet, ("a", pods), wrong=ill(grace=policy), claim_spec=spec)
    answer = repair.propose(fleet.view())
    if held and want is None:
        assert told(answer)["a"].startswith("Repair requires a termination grace period to bypass blocking pods: ")
    else:
        (one,) = answer.proposals
        assert one.repair == RepairTerms(names.READY, want)


def test_a_pool_of_which_too_many_are_broken_is_held_and_told_once_more_itself() -> None:
    fleet = Fleet([pool(), pool("other")])
    broken(fleet, ("a", ()), ("b", ()))
    broken(fleet, ("c", ()), of="other")
    healthy(fleet, 3)
    answer = repair.propose(fleet.view())
    assert gone(answer) == [("c",)]
    text = 'More than 20% of the nodes of NodePool "general" are unhealthy'
    assert [(one.key, one.pool, one.event, one.message) for one in answer.blocked] == [
        ("a", "general", "NodeRepairBlocked", text),
        ("b", "general", "NodeRepairBlocked", text),
        ("", "general", "NodeRepairBlocked", text),
    ]


def test_a_zone_of_which_too_many_are_broken_is_held_and_the_others_are_repaired() -> None:
    fleet = Fleet([pool(f"p{number}") for number in range(5)])
    for number in range(10):
        fleet.node(f"a{number}", zone="a", of=f"p{number % 5}", ready=number > 2)
    for number in range(20):
        fleet.node(f"b{number}", zone="b", of=f"p{number % 5}", ready=number != 3)
    fleet.ill.update({"a0": ill(), "a1": ill(), "a2": ill(), "b3": ill()})
    answer = repair.propose(fleet.view())
    assert gone(answer) == [("b3",)]
    assert {(one.key, one.event) for one in answer.blocked} == {
        (name, "NodeRepairBlocked") for name in ("a0", "a1", "a2")
    }


@pytest.mark.parametrize(
    ("limit", "gone_", "why"), [("3", ["a"], "may be disrupted"), ("2", [], "its limit for nodes")]
)
def test_a_node_of_a_static_nodepool_gets_one_from_the_template(limit: str, gone_: list[str], why: str) -> None:
    static = pool(replicas=2, limits={"nodes": limit}, disruption={"budgets": [{"nodes": "1"}]})
    fleet = broken(Fleet([ready_pool(static)]), ("a", several(1, "w")))
    healthy(fleet, 1)
    answer = repair.propose(fleet.view())
    assert [one.candidates[0] for one in answer.proposals] == gone_
    assert all(len(one.replacements) == 1 and not one.placements for one in answer.proposals)
    assert not gone_ or answer.proposals[0].repair == RepairTerms(names.READY, 60)
    assert gone_ or told(answer)["a"].endswith(why)


def with_conditions(one: Any, *conditions: Condition) -> Any:
    return changed(one, status=changed(one.status, conditions=conditions))


def ready_pool(one: Any) -> Any:
    return with_conditions(one, Condition(type=names.READY, status="True"))


def test_a_static_nodepool_with_more_nodes_than_replicas_waits() -> None:
    fleet = healthy(broken(Fleet([ready_pool(pool(replicas=1))]), ("a", ())), 1)
    assert "more nodes than replicas" in told(repair.propose(fleet.view()))["a"]


def test_who_was_not_reached_comes_first() -> None:
    fleet = healthy(Fleet(), 12)
    broken(fleet, ("a", several(1, "w")), ("b", several(1, "x")))
    steps = iter((False, True))
    answer = repair.propose(fleet.view(expired=lambda: next(steps)))
    assert (gone(answer), answer.unreached) == ([("a",)], frozenset({"b"}))
    assert gone(repair.propose(fleet.view(first=answer.unreached)))[0] == ("b",)
