"""Pods that cannot be evicted get no node made for them; they would leave it empty."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from provisioner.apis import names
from provisioner.apis.core import PodDisruptionBudget
from provisioner.apis.interruption import Interruption
from provisioner.state.pod_protection import PodProtection
from tests.support.clock import NOON
from tests.support.cluster import World, claim, node, pod

WEB = {"matchLabels": {"app": "web"}}
GOING = {"key": names.DISRUPTED_TAINT.key, "effect": names.NO_SCHEDULE}


def budget(name: str = "web", *, namespace: str = "default", **spec: Any) -> PodDisruptionBudget:
    body = {"metadata": {"name": name, "namespace": namespace}, "spec": {"selector": WEB, **spec}}
    return msgspec.convert(body, PodDisruptionBudget, strict=False)


HOLDS: dict[str, tuple[tuple[PodDisruptionBudget, ...], bool]] = {
    "no budget": ((), False),
    "a budget that lets one go": ((budget(maxUnavailable=1),), False),
    "a budget that lets none go": ((budget(maxUnavailable=0),), True),
    "a budget that lets no share of them go": ((budget(maxUnavailable="0%"),), True),
    "a budget that wants all": ((budget(minAvailable="100%"),), True),
    "a budget that wants as many as there happen to be": ((budget(minAvailable=1),), False),
    "two budgets, which the eviction API refuses": ((budget(maxUnavailable=1), budget("b", maxUnavailable=1)), True),
    "a budget that lets the unready go, whatever it says": (
        (budget(maxUnavailable=0, unhealthyPodEvictionPolicy="AlwaysAllow"),),
        False,
    ),
    "a budget without a selector": ((budget(maxUnavailable=0, selector=None),), False),
    "a budget for everybody": ((budget(maxUnavailable=0, selector={}),), True),
    "a budget of another namespace": ((budget(namespace="other", maxUnavailable=0),), False),
    "a budget for other pods": ((budget(maxUnavailable=0, selector={"matchLabels": {"app": "db"}}),), False),
}


@pytest.mark.parametrize(("budgets", "want"), HOLDS.values(), ids=HOLDS.keys())
def test_a_budget_holds_a_pod(budgets: tuple[PodDisruptionBudget, ...], want: bool) -> None:
    protection = PodProtection()
    for one in budgets:
        protection.budget_changed(None, one)
    web = pod("a", node="n", labels={"app": "web"})
    assert protection.holds(web, NOON) is want
    assert not protection.holds(replace(web, phase="Pending"), NOON), (
        "no budget is asked for a pod that has not started"
    )
    for one in budgets:
        protection.budget_changed(one, None)
    assert not protection.holds(web, NOON)


def test_a_budget_that_lets_the_unready_go_holds_the_ready() -> None:
    protection = PodProtection()
    protection.budget_changed(None, budget(maxUnavailable=0, unhealthyPodEvictionPolicy="AlwaysAllow"))
    assert protection.holds(replace(pod("a", node="n", labels={"app": "web"}), ready=True), NOON)


def test_the_annotation_holds_a_pod_for_as_long_as_it_says() -> None:
    one = pod("a", annotations={names.DO_NOT_DISRUPT: "1h"}, start_time=NOON)
    assert PodProtection().holds(one, NOON)
    assert not PodProtection().holds(one, NOON + timedelta(hours=1))


@pytest.fixture
def world() -> World:
    """A node that goes, with one pod under a budget that lets none go and one that may not be disrupted."""
    world = World()
    world.existing_node("old")
    world.cluster.node_changed(None, node("old", labels={names.NODEPOOL_LABEL: "general"}, taints=(GOING,)))
    world.cluster.budget_changed(None, budget(maxUnavailable=0))
    world.add(pod("a", node="old", labels={"app": "web"}), pod("b", node="old"))
    world.add(pod("c", node="old", annotations={names.DO_NOT_DISRUPT: "true"}))
    return world


def leaving(world: World) -> list[str]:
    return [one.name for one in world.cluster.snapshot().leaving]


def test_a_pod_that_cannot_be_evicted_does_not_leave(world: World) -> None:
    assert leaving(world) == ["b"]
    world.cluster.budget_changed(budget(maxUnavailable=0), budget(maxUnavailable=1))
    assert leaving(world) == ["a", "b"]


def test_what_is_counted_for_a_budget_moves_no_pod_unless_it_lets_none_go(world: World) -> None:
    """Counts change with every eviction, and each time every pod of every node that goes would be asked about."""
    protection, one = PodProtection(), budget(maxUnavailable=1)
    assert protection.budget_changed(None, one)
    assert not protection.budget_changed(one, counted(one, healthy=3))
    assert protection.budget_changed(one, budget(maxUnavailable=2))
    assert protection.budget_changed(one, None)
    none = budget(maxUnavailable=0)
    world.cluster.budget_changed(none, counted(none, healthy=3))  # the pod is not Ready, and the others are enough
    assert leaving(world) == ["a", "b"]


def counted(one: PodDisruptionBudget, *, healthy: int) -> PodDisruptionBudget:
    return replace(one, status=replace(one.status, current_healthy=healthy, desired_healthy=healthy))


def test_on_an_interrupted_node_every_pod_leaves(world: World) -> None:
    interrupted = claim(
        "old",
        provider_id="kwok://old",
        true=(names.LAUNCHED, names.REGISTERED, names.INITIALIZED),
        annotations={names.INTERRUPTION_ANNOTATION: "{}"},
    )
    world.cluster.claim_changed(None, interrupted)
    assert leaving(world) == ["a", "b", "c"]


def test_on_a_node_that_is_interrupted_on_another_day_pods_leave_that_can(world: World) -> None:
    """A node that is launched for a pod which nobody may evict stays empty, is removed, and would be launched again, for days."""
    mark = Interruption("scheduled_change", begins=NOON + timedelta(days=1))
    interrupted = claim(
        "old",
        provider_id="kwok://old",
        true=(names.LAUNCHED, names.REGISTERED, names.INITIALIZED),
        annotations={names.INTERRUPTION_ANNOTATION: str(mark)},
    )
    world.cluster.claim_changed(None, interrupted)
    assert leaving(world) == ["b"]
    world.clock.advance(86_400)
    assert leaving(world) == ["a", "b", "c"]


def test_a_snapshot_tells_the_budgets_and_shares_them_while_none_changes() -> None:
    world = World()
    first, second = budget("b", maxUnavailable=1), budget("a", maxUnavailable=1)
    for one in (first, second, budget(namespace="other", maxUnavailable=1)):
        world.cluster.budget_changed(None, one)
    told = world.cluster.snapshot().pod_budgets
    assert {space: [one.metadata.name for one in some] for space, some in told.items()} == {
        "default": ["a", "b"],
        "other": ["web"],
    }
    assert world.cluster.snapshot().pod_budgets is told
    world.cluster.budget_changed(first, None)
    assert [one.metadata.name for one in world.cluster.snapshot().pod_budgets["default"]] == ["a"]
