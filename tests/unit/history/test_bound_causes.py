"""What keeps a fleet from the least that it could cost: which nodes for which cause, and by how much the bound falls without it."""

from typing import Any, cast

import pytest

from provisioner.apis import names
from provisioner.cloudprovider.kwok import catalogue
from provisioner.cloudprovider.types import CloudProvider
from provisioner.history.entries import BoundCauses, FleetBound
from provisioner.history.fleet_pricing import CAUSES_SECONDS, MOST_SECONDS, SHARE, FleetPricing, fleet_question
from provisioner.history.holds import holds_of, kept_by
from provisioner.packing.process import PackingRefusal, PlannerProcess
from provisioner.packing.protocol import PackingReply
from provisioner.provisioning.worlds import Worlds
from provisioner.support.clock import SystemClock
from tests.support.clock import FakeClock
from tests.support.cluster import World, pod, pod_budget, pool
from tests.support.disrupting import FakeCloud

WORLDS = Worlds(cast(CloudProvider, FakeCloud()))
PROTECTED = {names.DO_NOT_DISRUPT: "true"}


def world(*, after: str = "0s", age: float = 60.0, budget: str = "10%", **disruption: Any) -> World:
    """Nodes a, b and c of four cores each, and a small pod on each."""
    found = World()
    found.cluster.pool_changed(
        None, pool(disruption={"consolidateAfter": after, "budgets": [{"nodes": budget}], **disruption})
    )
    for name in "abc":
        found.existing_node(name, age=age)
        found.add(pod(f"p-{name}", node=name, cpu="500m"))
    return found


def causes(found: World) -> dict[str, set[str]]:
    return {one.node.name: set(one.causes) for one in holds_of(found.cluster.snapshot(), WORLDS.types_of)}


NOTHING: dict[str, set[str]] = {"a": set(), "b": set(), "c": set()}


def every(cause: str) -> dict[str, set[str]]:
    return {name: {cause} for name in "abc"}


def test_nodes_that_may_go_are_kept_by_nothing() -> None:
    found = world()
    assert causes(found) == NOTHING
    assert all(one.usd > 0 for one in holds_of(found.cluster.snapshot(), WORLDS.types_of))


def test_a_pod_disruption_budget_keeps_the_nodes_of_its_pods_while_it_allows_nothing() -> None:
    found = world()
    budget = pod_budget(allowed=0, healthy=1, required=2)
    found.cluster.budget_changed(None, budget)
    assert causes(found) == every("PodDisruptionBudgets")
    found.cluster.budget_changed(budget, pod_budget(allowed=1))
    assert causes(found) == NOTHING


def test_the_annotation_keeps_a_node_on_it_or_on_a_pod() -> None:
    found = world()
    found.add(pod("x", node="a", annotations=PROTECTED))
    found.existing_node("d", age=60.0, annotations=PROTECTED)
    assert causes(found) == {**NOTHING, "a": {"do-not-disrupt"}, "d": {"do-not-disrupt"}}


@pytest.mark.parametrize(
    ("kept", "cause"),
    [
        (world(budget="0"), "budgets"),
        (world(after="2m"), "young nodes"),
        (world(after="Never"), "consolidation policy"),
        (world(consolidationPolicy="WhenEmpty"), "consolidation policy"),
    ],
    ids=["closed", "young", "never", "only empty nodes"],
)
def test_what_a_nodepool_says_keeps_its_nodes(kept: World, cause: str) -> None:
    assert causes(kept) == every(cause)


def test_nodes_that_go_are_kept_by_nothing() -> None:
    found = world(budget="0")
    found.existing_node("d", age=60.0, deletionTimestamp="2026-11-21T12:30:00Z")
    assert causes(found) == {**every("budgets"), "d": set()}


def test_nodes_that_stay_are_part_of_the_question_and_their_pods_are_not() -> None:
    found = world()
    found.add(pod("x", node="a", annotations=PROTECTED))
    snapshot = found.cluster.snapshot()
    kept = kept_by(holds_of(snapshot, WORLDS.types_of), frozenset({"do-not-disrupt"}))
    question = fleet_question(snapshot, WORLDS, kept)
    assert [one.node_name for one in question.world.bins] == ["a"]
    assert sum(question.counts) == 2


def test_pods_that_are_planned_on_a_node_are_part_of_the_fleet() -> None:
    found = world()
    coming = pod("coming")
    found.add(coming)
    found.existing_node("d", pods=(coming,))
    assert sum(fleet_question(found.cluster.snapshot(), WORLDS).counts) == 4


def asked(found: World, rounds: int = 1) -> tuple[list[FleetBound | BoundCauses], float]:
    told: list[FleetBound | BoundCauses] = []
    process = PlannerProcess(SystemClock())
    pricing = FleetPricing(found.cluster.snapshot, WORLDS, process, SystemClock(), told.append)
    try:
        rest = max(pricing.poll() for _ in range(rounds))
    finally:
        process.stop()
        process.tidy()
    return told, rest


def test_each_cause_tells_how_far_the_bound_falls_without_it() -> None:
    found = world()
    found.add(pod("guarded", node="a", cpu="100m", annotations=PROTECTED))
    found.add(pod("other", node="b", cpu="100m", annotations=PROTECTED))
    found.cluster.budget_changed(
        None, pod_budget(allowed=0, healthy=1, required=2, selector={"matchLabels": {"app": "c"}})
    )
    found.add(pod("c-1", node="c", cpu="150m", labels={"app": "c"}))
    (bound, kept, again), rest = asked(found, 2)
    assert isinstance(bound, FleetBound)
    assert isinstance(again, FleetBound), f"causes are told every {CAUSES_SECONDS} s at most"
    assert isinstance(kept, BoundCauses)
    price = 3 * catalogue_price()
    assert bound.usd_now == kept.usd_now == pytest.approx(price)
    assert kept.usd_kept == pytest.approx(price), "nothing may go"
    assert kept.usd_at_least == bound.usd_at_least < price / 2
    by_cause = {one.cause: one for one in kept.causes}
    assert {name: one.nodes for name, one in by_cause.items()} == {"PodDisruptionBudgets": 1, "do-not-disrupt": 2}
    one, two = by_cause["PodDisruptionBudgets"].usd, by_cause["do-not-disrupt"].usd
    assert one == pytest.approx(price / 3), "its pods have room on the others"
    assert two == pytest.approx(price * 2 / 3)
    assert one + two > kept.usd_kept - kept.usd_at_least, "the parts do not add up"
    assert rest >= (bound.cpu_seconds + kept.cpu_seconds) / SHARE


class TiredProcess:
    """Answers so many questions at once, and is late with the next one. Its pods all have a place."""

    def __init__(self, clock: FakeClock, answers: int) -> None:
        self._clock, self._answers = clock, answers

    def price(self, _world: object, _pods: object, counts: tuple[int, ...], *, until: float) -> PackingReply | PackingRefusal:  # fmt: skip
        if not self._answers:
            self._clock.advance(until + 15 - self._clock.monotonic())
            return PackingRefusal.LATE
        self._answers -= 1
        return PackingReply(1, 0.1, usd_greedy=0.2, placed=sum(counts), cpu_seconds=1.0)


@pytest.mark.parametrize("answers", [0, 1, 2], ids=["the bound", "what is kept", "a cause"])
def test_a_process_that_is_late_has_taken_of_its_share_as_long_as_it_was_awaited(answers: int) -> None:
    clock = FakeClock()
    process = cast(PlannerProcess, TiredProcess(clock, answers))
    found = world()
    found.add(pod("x", node="a", annotations=PROTECTED))
    pricing = FleetPricing(found.cluster.snapshot, WORLDS, process, clock, lambda _: None)
    assert pricing.poll() >= (MOST_SECONDS + 15) / SHARE


def catalogue_price() -> float:
    kind = next(one for one in catalogue.generated().types if one.name == "c-4x-amd64-linux")
    return next(one.price for one in kind.offerings if (one.zone, one.capacity_type) == ("test-zone-a", "spot"))


def test_where_nothing_keeps_a_node_no_more_is_asked() -> None:
    (bound, kept), _ = asked(world())
    assert isinstance(bound, FleetBound)
    assert isinstance(kept, BoundCauses)
    assert kept.causes == ()
    assert kept.usd_kept == kept.usd_at_least == bound.usd_at_least
