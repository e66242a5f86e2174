"""What a static NodePool lacks, and which of its nodes go first."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.command import Awaited, CandidateRecord, CommandRecord, Replacement
from provisioner.apis.interruption import Interruption
from provisioner.apis.karpenter import NodePool
from provisioner.state.cluster import Cluster
from provisioner.static.scaling import StaticDecision, decide
from tests.support.clock import NOON
from tests.support.cluster import World, claim, pod, pool


def a_world(*nodes: str) -> World:
    world = World()
    for name in nodes:
        world.existing_node(name)
    return world


def decided(world: World, replicas: int, **spec: Any) -> StaticDecision:
    return decide(world.cluster.snapshot(), static(replicas, **spec))


def static(replicas: int, **spec: Any) -> NodePool:
    return pool(replicas=replicas, **spec)


def begin(cluster: Cluster, *candidates: str, replacements: tuple[str, ...] = ()) -> None:
    record = CommandRecord(
        id="one",
        reason="Drifted",
        method="static_drift",
        candidates=tuple(CandidateRecord(name, f"uid-{name}") for name in candidates),
        replacements=tuple(Replacement(name) for name in replacements),
    )
    assert cluster.command_begun(record)


COUNTS: dict[str, tuple[tuple[str, ...], int, dict[str, str], StaticDecision]] = {
    "none of two": ((), 2, {}, StaticDecision(create=2)),
    "one of three": (("a",), 3, {}, StaticDecision(create=2)),
    "all are there": (("a", "b"), 2, {}, StaticDecision()),
    "zero replicas are none": (("a",), 0, {}, StaticDecision(delete=("a",))),
    "the limit admits one more": (("a",), 5, {"nodes": "2"}, StaticDecision(create=1, refused=3, limit="2")),
    "the limit is reached": (("a", "b"), 3, {"nodes": "2"}, StaticDecision(refused=1, limit="2")),
    "a limit below what is there deletes nothing": (("a", "b"), 2, {"nodes": "1"}, StaticDecision(limit="1")),
    "a limit that nobody can read admits nothing": (("a",), 2, {"nodes": "x"}, StaticDecision(refused=1, limit="x")),
    "other limits are none": (("a",), 2, {"cpu": "1"}, StaticDecision(create=1)),
}


@pytest.mark.parametrize(("nodes", "replicas", "limits", "want"), COUNTS.values(), ids=COUNTS)
def test_counts(nodes: tuple[str, ...], replicas: int, limits: dict[str, str], want: StaticDecision) -> None:
    assert decided(a_world(*nodes), replicas, limits=limits) == want


def test_pools_that_are_dynamic_or_deleted_and_nodes_of_others_are_left_alone() -> None:
    world = a_world("a", "b")
    snapshot = world.cluster.snapshot()
    assert decide(snapshot, pool()) == StaticDecision()
    assert decide(snapshot, pool("other", replicas=1)) == StaticDecision(create=1)


def test_a_pool_that_is_deleted_gets_and_loses_nothing() -> None:
    world = a_world("a", "b")
    going = static(5)
    going = msgspec.structs.replace(going, metadata=msgspec.structs.replace(going.metadata, deletion_timestamp=NOON))
    assert decide(world.cluster.snapshot(), going) == StaticDecision()


def test_what_is_announced_counts_before_it_is_written() -> None:
    world = a_world("a")
    assert world.cluster.announce(claim("new", resourceVersion="", uid=""), ())
    assert decided(world, 3).create == 1


def test_a_node_that_is_deleted_or_interrupted_is_missing_and_still_uses_the_limit() -> None:
    world = a_world("a")
    world.existing_node("b", deletionTimestamp=NOON.isoformat())
    world.existing_node("c", annotations={names.INTERRUPTION_ANNOTATION: "{}"})
    assert decided(world, 3).create == 2
    assert decided(world, 3, limits={"nodes": "4"}) == StaticDecision(create=1, refused=1, limit="4")


def test_a_node_that_is_interrupted_on_another_day_is_missing_from_then_on() -> None:
    """A scheduled event is told days before; until it is due the node runs on, and another one beside it would cost as much."""
    world = a_world("a")
    mark = Interruption("scheduled_change", begins=NOON + timedelta(days=13))
    world.existing_node("b", annotations={names.INTERRUPTION_ANNOTATION: str(mark)})
    assert decided(world, 2) == StaticDecision()
    world.clock.advance(13 * 86_400)
    assert decided(world, 2).create == 1


def test_a_node_that_a_command_replaces_is_not_replaced_twice() -> None:
    world = a_world("a", "b", "c")
    begin(world.cluster, "a")
    assert decided(world, 3) == StaticDecision()  # its replacement is still to come
    world.cluster.claim_changed(None, claim("new"))
    assert decided(world, 3) == StaticDecision()
    assert decided(world, 5).create == 1  # a stays until new is ready


def test_a_scale_down_in_the_middle_of_a_command_spares_its_replacement() -> None:
    world = a_world("a", "b", "c")
    begin(world.cluster, "a", replacements=("new",))
    world.cluster.claim_changed(None, claim("new"))
    assert decided(world, 2).delete == ("b",)
    assert decided(world, 0).delete == ("b", "c")


def test_a_successor_that_waits_for_the_place_of_another_node_is_no_node_yet() -> None:
    world = a_world("a", "b")
    begin(world.cluster, "a", replacements=("new",))
    waits = {names.AWAITS_ANNOTATION: Awaited("a", "uid-a", "node-limit", "general").to_text()}
    world.cluster.claim_changed(None, claim("new", annotations=waits))
    assert decided(world, 2, limits={"nodes": "2"}) == StaticDecision(limit="2")
    assert decided(world, 4, limits={"nodes": "3"}) == StaticDecision(create=1, limit="3"), (
        "one is missing, and has room"
    )
    world.cluster.pool_changed(None, static(2, limits={"nodes": "2"}))
    (seen,) = world.cluster.snapshot().pools
    assert seen.nodes == 2
    assert world.cluster.asked_of_limits(claim("new", annotations=waits)) is None, "the limit keeps it from nothing"
    assert world.cluster.asked_of_limits(claim("other")) is not None


def aged(hours: float, **more: Any) -> dict[str, Any]:
    return {"creationTimestamp": (NOON - timedelta(hours=hours)).isoformat(), **more}


def test_what_goes_first() -> None:
    """Not launched (newest first), empty, cheap, dear, and what is protected at the end."""
    world = World()
    protect = {names.DO_NOT_DISRUPT: "true"}
    world.existing_node("protected-node", **aged(9, annotations=protect))
    world.existing_node("protected-pod", **aged(9))
    world.existing_node("dear", **aged(9))
    world.existing_node("cheap", **aged(1))
    world.existing_node("empty-young", **aged(1))
    world.existing_node("empty-old", **aged(5))
    world.cluster.claim_changed(None, claim("unlaunched-old", **aged(1)))
    world.cluster.claim_changed(None, claim("unlaunched-new", **aged(0)))
    world.add(
        pod("p", node="protected-pod", annotations=protect),
        pod("d1", node="dear"),
        pod("d2", node="dear"),
        pod("c", node="cheap"),
        pod("agent", node="empty-old", kind="DaemonSet"),
    )
    assert decided(world, 0).delete == (
        "unlaunched-new",
        "unlaunched-old",
        "empty-old",
        "empty-young",
        "cheap",
        "dear",
        "protected-node",
        "protected-pod",
    )
    assert decided(world, 6).delete == ("unlaunched-new", "unlaunched-old")


def test_a_node_that_pods_are_planned_onto_is_not_empty() -> None:
    world = World()
    waiting = pod("w")
    world.add(waiting)
    world.existing_node("planned", pods=(waiting,), **aged(9))
    world.existing_node("empty", **aged(1))
    assert decided(world, 1).delete == ("empty",)


def test_a_drifted_node_goes_before_its_equals() -> None:
    world = a_world("a")
    world.cluster.claim_changed(
        None, claim("b", provider_id="kwok://b", true=(names.LAUNCHED, names.REGISTERED, names.DRIFTED))
    )
    assert decided(world, 1).delete == ("b",)


def test_a_node_with_half_its_life_behind_it_costs_half() -> None:
    world = World()
    for name, hours in (("young", 0.0), ("old", 600.0)):
        world.existing_node(name, **aged(hours))
        world.add(pod(f"on-{name}", node=name))
    assert decided(world, 1).delete == ("old",)
