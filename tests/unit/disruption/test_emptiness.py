"""Which machines are empty enough to go."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.disruption.emptiness import EmptinessDecision, decide_emptiness
from tests.support.clock import NOON
from tests.support.cluster import World, pod, pool

VALIDATION = timedelta(seconds=5)
LONG_AGO = NOON - timedelta(hours=1)


def decide(world: World, empty_since: dict[str, datetime] | None = None) -> EmptinessDecision:
    since = dict.fromkeys("abc", LONG_AGO) if empty_since is None else empty_since
    return decide_emptiness(world.cluster.snapshot(), empty_since=since, validation=VALIDATION)


def a_world(*machines: str, **spec: Any) -> World:
    world = World()
    disruption = {"budgets": [{"nodes": "100%"}], **spec.pop("disruption", {})}
    world.cluster.pool_changed(None, pool(disruption=disruption, **spec))
    for name in machines or ("a",):
        world.machine(name, age=3600)
    return world


def test_an_empty_machine_goes() -> None:
    assert decide(a_world()).delete == ("a",)


def test_machines_go_in_a_fixed_order_and_within_the_budget() -> None:
    world = a_world("c", "a", "b", disruption={"budgets": [{"nodes": "2"}]})
    decision = decide(world)
    assert decision.delete == ("a", "b")
    assert decision.budgets[0].allowed == 2


def test_a_closed_budget_is_said_on_the_pool() -> None:
    decision = decide(a_world(disruption={"budgets": [{"nodes": "0"}]}))
    assert decision.delete == ()
    assert [str(blocked) for blocked in decision.blocked] == [
        "No allowed disruptions for disruption reason Empty due to blocking budget"
    ]


def test_a_machine_with_a_pod_stays() -> None:
    world = a_world()
    world.add(pod("one", node="a"))
    assert decide(world).delete == ()


def test_a_machine_with_only_daemons_goes() -> None:
    world = a_world()
    world.add(pod("agent", kind="DaemonSet", node="a"))
    assert decide(world).delete == ("a",)


def test_a_machine_that_pods_are_promised_to_stays() -> None:
    world, one = a_world(), pod("one")
    world.add(one)
    world.cluster.promise("a", (one,), timedelta(seconds=20))
    assert decide(world).delete == ()


@pytest.mark.parametrize("value", ["true"])
def test_do_not_disrupt_on_the_claim_keeps_it_and_is_said(value: str) -> None:
    world = World()
    world.cluster.pool_changed(None, pool(disruption={"budgets": [{"nodes": "100%"}]}))
    world.machine("a", age=3600, annotations={names.DO_NOT_DISRUPT: value})
    decision = decide(world)
    assert decision.delete == ()
    assert "karpenter.sh/do-not-disrupt" in str(decision.blocked[0])


def test_consolidate_after_counts_from_initialisation() -> None:
    world = World()
    world.cluster.pool_changed(None, pool(disruption={"consolidateAfter": "30s", "budgets": [{"nodes": "100%"}]}))
    world.machine("a", age=20)
    decision = decide(world)
    assert (decision.delete, decision.recheck_at) == ((), NOON + timedelta(seconds=10))


def test_never_keeps_empty_machines() -> None:
    assert decide(a_world(disruption={"consolidateAfter": "Never"})).delete == ()


def test_a_machine_empty_for_a_moment_only_is_looked_at_again() -> None:
    decision = decide(a_world(), empty_since={"a": NOON - timedelta(seconds=3)})
    assert (decision.delete, decision.recheck_at) == ((), NOON + timedelta(seconds=2))


def test_a_machine_that_leaves_already_counts_against_the_budget() -> None:
    world = a_world("a", "b", disruption={"budgets": [{"nodes": "1"}]})
    world.machine("c", age=3600, deletionTimestamp=NOON.isoformat())
    assert decide(world).delete == ()


def test_static_pools_keep_their_machines() -> None:
    assert decide(a_world(replicas=1)).delete == ()


def test_a_machine_of_a_pool_that_is_gone_is_left_alone_and_said() -> None:
    world = World()
    world.machine("a", age=3600)
    decision = decide(world)
    assert decision.delete == ()
    assert str(decision.blocked[0]) == "NodePool not found (NodePool=general)"
