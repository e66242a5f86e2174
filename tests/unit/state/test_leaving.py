"""Pods on nodes that go: their places are kept through the eviction; and objects that nobody can read."""

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.state.keys import NodeKey
from tests.support.clock import NOON
from tests.support.cluster import World, bound, claim, node, pod


@pytest.fixture
def world() -> World:
    """One node named `old` that goes, another named `new` that is empty."""
    world = World()
    world.existing_node("old")
    world.existing_node("new")
    taint = {"key": names.DISRUPTED_TAINT.key, "effect": names.NO_SCHEDULE}
    world.cluster.node_changed(None, node("old", labels={names.NODEPOOL_LABEL: "general"}, taints=(taint,)))
    return world


def evicted(one: Pod) -> Pod:
    return msgspec.structs.replace(one, deleted=NOON)


def test_a_pod_on_a_leaving_node_is_planned_once(world: World) -> None:
    world.add(pod("a", node="old"))
    assert [one.name for one in world.cluster.snapshot().leaving] == ["a"]
    world.cluster.claim_changed(None, claim("fresh", pods=(pod("a"),)))
    assert world.cluster.snapshot().leaving == ()


def test_a_leaving_pod_that_fits_an_existing_node_keeps_that_room(world: World) -> None:
    leaving = pod("a", node="old", cpu="3")
    world.add(leaving)
    before = world.view("new").room["cpu"]
    assert world.cluster.assign(NodeKey("new"), [leaving]) == []
    assert world.cluster.snapshot().leaving == ()
    assert world.view("new").room["cpu"] == before - 3000


def test_the_successor_takes_the_place_while_the_evicted_pod_still_ends(world: World) -> None:
    old = pod("a", node="old")
    world.add(old)
    world.cluster.claim_changed(None, claim("fresh", pods=(old,)))
    world.cluster.pod_changed(old, evicted(old))
    world.add(pod("b"))
    assert world.cluster.is_planned("b")
    assert world.cluster.snapshot().pending == ()
    world.cluster.pod_changed(evicted(old), None)
    assert world.assigned("fresh") == ["b"]


def test_the_successor_of_a_statefulset_pod_takes_the_place_when_the_old_one_is_gone(world: World) -> None:
    old = pod("a", uid="a-1", owner="db", kind="StatefulSet", node="old")
    world.add(old)
    world.cluster.claim_changed(None, claim("fresh", pods=(old,)))
    world.cluster.pod_changed(old, evicted(old))
    world.clock.advance(60)  # a long grace period; the place waits
    world.cluster.expire()
    assert world.cluster.is_planned("a-1")
    world.cluster.pod_changed(evicted(old), None)
    world.add(pod("a", uid="a-2", owner="db", kind="StatefulSet"))
    assert world.cluster.is_planned("a-2")


def test_a_pod_that_is_bound_to_a_node_that_stays_frees_its_place(world: World) -> None:
    one = pod("a")
    world.add(one)
    world.cluster.claim_changed(None, claim("fresh", pods=(one,)))
    world.cluster.pod_changed(one, bound(one, "new"))
    assert not world.cluster.is_planned("a")


def test_a_claim_that_cannot_be_read_hides_no_node(world: World) -> None:
    bad = msgspec.convert(
        {
            "metadata": {"name": "bad", "uid": "uid-bad", "resourceVersion": "1"},
            "spec": {
                "requirements": [{"key": "example.com/team", "operator": "Exists", "values": ["a"]}],
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            },
        },
        type(claim("x")),
    )
    world.cluster.claim_changed(None, bad)
    assert {view.key.name for view in world.cluster.snapshot().nodes} == {"old", "new", "bad"}


def test_the_pods_of_a_node_that_is_initialized_while_it_goes_take_their_turn() -> None:
    """Those of nodes that are not initialized come last."""
    world = World()
    registered = (names.LAUNCHED, names.REGISTERED)
    young = claim("a", provider_id="kwok://a", true=registered)
    world.cluster.claim_changed(None, young)
    world.existing_node("b")
    for name in ("a", "b"):
        taint = {"key": names.DISRUPTED_TAINT.key, "effect": names.NO_SCHEDULE}
        world.cluster.node_changed(None, node(name, labels={names.NODEPOOL_LABEL: "general"}, taints=(taint,)))
        world.add(pod(f"of-{name}", node=name))
    assert [one.name for one in world.cluster.snapshot().leaving] == ["of-b", "of-a"]
    world.cluster.claim_changed(young, claim("a", provider_id="kwok://a", true=(*registered, names.INITIALIZED)))
    assert [one.name for one in world.cluster.snapshot().leaving] == ["of-a", "of-b"]
