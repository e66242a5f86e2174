"""What becomes of nodes that their cloud takes back, step by step."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest

from provisioner.apis import names
from provisioner.apis.interruption import Interruption
from provisioner.apis.pods import Pod
from provisioner.disruption.budgets import AllowanceLedger
from provisioner.disruption.proposal import InterruptionDecision
from provisioner.interruption.response import decide_interruptions
from tests.support.clock import NOON
from tests.support.cluster import World, claim, node, pod, pool

DISRUPTED = {"key": names.DISRUPTED_TAINT.key, "effect": "NoSchedule"}
SPOT = Interruption(
    "spot_interrupted", replaced=True, evicts=NOON + timedelta(seconds=45), ends=NOON + timedelta(seconds=120)
)
CHANGE = Interruption(
    "scheduled_change",
    begins=NOON - timedelta(hours=1),
    budgeted=True,
    replaced=True,
    evicts=NOON + timedelta(hours=21),
    ends=NOON + timedelta(hours=21, minutes=2),
)


def closed(world: World, name: str) -> None:
    """The Node has got the taint, and the watch tells it."""
    before = world.cluster.node(name)
    labels = {names.NODEPOOL_LABEL: "general"}
    world.cluster.node_changed(before, node(name, provider_id=f"kwok://{name}", taints=(DISRUPTED,), labels=labels))


def in_flight(world: World, name: str, *pods: Pod) -> None:
    """A claim that is launched for these pods and has no Node yet."""
    world.cluster.claim_changed(None, claim(name, pods=pods, provider_id=f"kwok://{name}", true=(names.LAUNCHED,)))


def decide_all(world: World, marks: Mapping[str, Interruption], *, most: int = 0) -> InterruptionDecision:
    snapshot = world.cluster.snapshot()
    return decide_interruptions(snapshot, marks, AllowanceLedger(snapshot, most=most))


def decide(world: World, *keys: str, mark: Interruption = SPOT, most: int = 0) -> InterruptionDecision:
    return decide_all(world, dict.fromkeys(keys, mark), most=most)


def test_nothing_is_done_where_nothing_is_marked() -> None:
    world = World()
    world.existing_node("a")
    assert decide_all(world, {}) == InterruptionDecision()


def test_a_node_is_closed_first_and_looked_at_again_when_time_runs_out() -> None:
    world = World()
    world.existing_node("a")
    world.add(pod("p", node="a"))
    assert decide(world, "a") == InterruptionDecision(close=("a",))


def test_then_its_pods_are_planned_elsewhere() -> None:
    world = World()
    world.existing_node("a")
    world.add(pod("p", node="a"))
    closed(world, "a")
    assert decide(world, "a").plan == ("a",)
    assert [one.name for one in world.cluster.snapshot().leaving] == ["p"]


def test_pods_with_a_place_on_a_node_to_come_keep_running_until_it_is_ready() -> None:
    world = World()
    world.existing_node("a")
    moving = pod("p", node="a")
    world.add(moving)
    closed(world, "a")
    in_flight(world, "b", moving)
    assert decide(world, "a") == InterruptionDecision()
    world = World()
    world.existing_node("a")
    world.add(moving)
    closed(world, "a")
    world.existing_node("b", pods=(moving,))
    assert decide(world, "a").evict == ("a",)


def test_a_replacement_that_is_interrupted_itself_is_not_ready() -> None:
    world = World()
    world.existing_node("a")
    moving = pod("p", node="a")
    world.add(moving)
    closed(world, "a")
    world.existing_node("b", pods=(moving,))
    closed(world, "b")
    assert decide(world, "a").evict == ()


def test_one_pod_without_a_place_holds_back_the_others() -> None:
    world = World()
    world.existing_node("a")
    moving, waiting = pod("p", node="a"), pod("q", node="a")
    world.add(moving, waiting)
    closed(world, "a")
    world.existing_node("b", pods=(moving,))
    assert decide(world, "a").plan == ("a",)


def test_when_time_runs_out_nothing_is_waited_for() -> None:
    world = World()
    world.existing_node("a")
    world.add(pod("p", node="a"))
    world.clock.advance(44.9)
    assert decide(world, "a").close == ("a",)
    world.clock.advance(0.1)
    assert decide(world, "a") == InterruptionDecision(evict=("a",))


AT_ONCE: dict[str, Interruption] = {
    "a node that ends already": Interruption("instance_terminated"),
    "a node that is broken": Interruption("instance_status", ends=NOON),
}


@pytest.mark.parametrize("mark", AT_ONCE.values(), ids=AT_ONCE)
def test_without_a_replacement_evictions_begin_at_once(mark: Interruption) -> None:
    world = World()
    world.existing_node("a")
    world.add(pod("p", node="a"))
    assert decide(world, "a", mark=mark) == InterruptionDecision(evict=("a",))


def test_an_empty_node_is_closed_and_then_deleted() -> None:
    world = World()
    world.existing_node("a")
    world.add(pod("daemon", node="a", kind="DaemonSet", owner="ds"))
    assert decide(world, "a").close == ("a",)
    closed(world, "a")
    assert decide(world, "a").evict == ("a",)


def test_a_node_that_has_not_joined_is_deleted_at_once() -> None:
    world = World()
    in_flight(world, "a")
    assert decide(world, "a").evict == ("a",)


def test_a_node_that_is_going_needs_nothing() -> None:
    world = World()
    world.cluster.claim_changed(None, claim("a", provider_id="kwok://a", deletionTimestamp=NOON.isoformat()))
    assert decide(world, "a") == InterruptionDecision()


def test_nothing_happens_before_the_day_of_a_scheduled_change() -> None:
    world = World()
    world.existing_node("a")
    mark = Interruption("scheduled_change", begins=NOON + timedelta(hours=3), budgeted=True, replaced=True)
    assert decide(world, "a", mark=mark) == InterruptionDecision()


def budgeted(*budgets: dict[str, object]) -> World:
    """Three nodes of a pool with these budgets."""
    world = World()
    world.cluster.pool_changed(None, pool(disruption={"consolidateAfter": "0s", "budgets": list(budgets)}))
    for name in ("a", "b", "c"):
        world.existing_node(name)
    return world


BUDGETS: dict[str, tuple[dict[str, object], tuple[str, ...], int]] = {
    "a budget of one": ({"nodes": "1"}, ("a",), 2),
    "a budget of none": ({"nodes": "0"}, (), 3),
    "a share, rounded up": ({"nodes": "34%"}, ("a", "b"), 1),
    "a budget that speaks of other reasons only": ({"nodes": "0", "reasons": ["Empty"]}, ("a", "b", "c"), 0),
}


@pytest.mark.parametrize(("budget", "close", "blocked"), BUDGETS.values(), ids=BUDGETS)
def test_scheduled_changes_keep_budgets(budget: dict[str, object], close: tuple[str, ...], blocked: int) -> None:
    decision = decide(budgeted(budget), "a", "b", "c", mark=CHANGE)
    assert decision.close == close
    assert len(decision.blocked) == blocked


@pytest.mark.parametrize(("budget", "close"), [({"nodes": "0"}, ()), ({"nodes": "0%"}, ()), ({"nodes": "1"}, ("a",))])
def test_a_node_that_is_not_ready_keeps_a_closed_budget_and_takes_nothing_of_an_open_one(
    budget: dict[str, object], close: tuple[str, ...]
) -> None:
    world = budgeted(budget)
    labels = {names.NODEPOOL_LABEL: "general"}
    world.cluster.node_changed(world.cluster.node("a"), node("a", ready=False, labels=labels))
    decision = decide(world, "a", mark=CHANGE)
    assert decision.close == close
    assert [str(one) for one in decision.blocked] == (
        [] if close else ["No allowed disruptions for disruption reason ScheduledChange due to blocking budget"]
    )


def test_a_node_that_is_closed_already_takes_no_second_share() -> None:
    world = budgeted({"nodes": "1"})
    closed(world, "b")
    world.add(pod("p", node="b"))
    decision = decide(world, "a", "b", mark=CHANGE)
    assert (decision.close, decision.plan, [blocked.key for blocked in decision.blocked]) == ((), ("b",), ["a"])


def test_budgets_end_two_hours_before_the_change() -> None:
    world = budgeted({"nodes": "0"})
    world.clock.advance(21 * 3600)
    assert decide(world, "a", "b", "c", mark=CHANGE).evict == ("a", "b", "c")


def test_the_cloud_does_not_ask_for_budgets_when_it_takes_a_node_back() -> None:
    assert decide(budgeted({"nodes": "0"}), "a", "b", "c").close == ("a", "b", "c")


def test_a_protected_node_is_left_until_time_runs_out() -> None:
    world = World()
    world.existing_node("a", annotations={names.DO_NOT_DISRUPT: "true"})
    decision = decide(world, "a", mark=CHANGE)
    assert [str(blocked) for blocked in decision.blocked] == [
        'Disruption is blocked through the "karpenter.sh/do-not-disrupt" annotation'
    ]
    assert decide(world, "a").close == ("a",), "the cloud does not ask"


def test_the_most_pressing_node_takes_the_budget() -> None:
    world = budgeted({"nodes": "1"})
    later = datetime.fromisoformat("2026-11-22T10:00:00+00:00")
    marks = {
        "a": CHANGE,
        "b": Interruption("event_status", budgeted=True, replaced=True, evicts=later - timedelta(hours=5)),
    }
    assert decide_all(world, marks).close == ("b",)


def test_the_limit_over_all_pools_keeps_a_node_of_a_scheduled_change_and_is_named() -> None:
    """Else it would be closed in every pass, ten times a second, and refused by the ledger each time."""
    world = budgeted({"nodes": "100%"})
    assert decide(world, "a", "b", mark=CHANGE, most=1).close == ("a",)
    closed(world, "c")
    decision = decide(world, "a", mark=CHANGE, most=1)
    assert decision.close == ()
    assert [str(one) for one in decision.blocked] == [
        (
            "No allowed disruptions for disruption reason ScheduledChange because --max-disrupting-nodes is 1, "
            "and 1 node is being disrupted or not Ready"
        )
    ]
    assert decide(world, "a", most=1).close == ("a",), "the cloud does not ask"
