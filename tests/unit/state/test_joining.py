"""Which NodeClaim belongs to which Node."""

import msgspec
import pytest

from provisioner.apis import names
from provisioner.state.keys import NodeKey
from tests.support.cluster import World, claim, node, pod

LAUNCHED = (names.LAUNCHED,)
A, B, NODE = NodeKey("a"), NodeKey("b"), NodeKey.of_node("a")


def keys(world: World) -> set[NodeKey]:
    return {view.key for view in world.cluster.snapshot().nodes}


@pytest.mark.parametrize("claim_first", [True, False])
def test_a_claim_and_its_node_are_one_whichever_came_first(claim_first: bool) -> None:
    world = World()
    made = claim("a", provider_id="kwok://a", true=LAUNCHED)
    if claim_first:
        world.cluster.claim_changed(None, made)
    world.cluster.node_changed(None, node("a"))
    if not claim_first:
        world.cluster.claim_changed(None, made)
    assert keys(world) == {A}
    assert world.view("a").name == "a"


def test_a_claim_that_loses_its_node_and_a_node_that_loses_its_claim_are_shown_alone() -> None:
    world = World()
    world.existing_node("a")
    world.cluster.node_changed(node("a"), None)
    assert world.view("a").name == ""
    world.cluster.node_changed(None, node("a"))
    world.cluster.claim_changed(claim("a"), None)
    assert keys(world) == {NODE}


def test_the_claims_of_an_instance_are_found_when_its_node_has_gone() -> None:
    world = World()
    world.existing_node("a")
    world.cluster.node_changed(node("a"), None)
    assert world.cluster.claim_of(node("a")) is None, "joined to a Node that is not there"
    assert [one.name for one in world.cluster.claims_with("kwok://a")] == ["a"]
    assert world.cluster.claims_with("") == []


def test_a_node_is_joined_when_its_provider_id_comes_later() -> None:
    world = World()
    world.cluster.claim_changed(None, claim("a", provider_id="kwok://a", true=LAUNCHED))
    nameless = node("a")
    nameless = msgspec.structs.replace(nameless, spec=msgspec.structs.replace(nameless.spec, provider_id=""))
    world.cluster.node_changed(None, nameless)
    assert keys(world) == {A, NODE}
    world.cluster.node_changed(nameless, node("a"))
    assert keys(world) == {A}


def test_two_claims_of_one_instance_do_not_hide_its_node() -> None:
    world, here = World(), pod("here", node="a")
    world.existing_node("a")
    world.add(here)
    second = claim("b", provider_id="kwok://a", true=LAUNCHED)
    world.cluster.claim_changed(None, second)
    assert keys(world) == {A, B, NODE}
    shown = world.view(NODE)
    assert (shown.claim, shown.pods) == (None, (here,)), "it takes pods as any other, and nobody disrupts it"
    for name in ("a", "b"):
        view = world.view(name)
        assert (view.ambiguous, view.name, dict(view.room)) == (True, "", {})
    found = world.cluster.claim("a")
    existing_node = world.cluster.node("a")
    assert found is not None
    assert existing_node is not None
    assert str(world.cluster.rivals(found)) == "NodeClaims a, b; Nodes a"
    assert (world.cluster.node_of(found), world.cluster.claim_of(existing_node)) == (None, None)
    world.cluster.claim_changed(second, None)
    assert keys(world) == {A}
    assert not world.view("a").ambiguous
    assert world.view("a").pods == (here,)


def test_two_nodes_of_one_instance_are_joined_to_nobody() -> None:
    world = World()
    world.existing_node("a")
    again = node("other", provider_id="kwok://a")
    world.cluster.node_changed(None, again)
    assert keys(world) == {A, NODE, NodeKey.of_node("other")}
    assert world.view("a").ambiguous
    world.cluster.node_changed(again, None)
    assert keys(world) == {A}


def test_two_nodes_without_a_claim_are_nobodys_rivals() -> None:
    world = World()
    for name in ("a", "b"):
        world.cluster.node_changed(None, node(name, provider_id="kwok://same"))
    assert not any(view.ambiguous for view in world.cluster.snapshot().nodes)


def test_no_pod_is_planned_onto_a_claim_that_shares_its_instance() -> None:
    world, one, two = World(), pod("one"), pod("two")
    world.add(one, two)
    world.existing_node("a", pods=(one,))
    world.cluster.claim_changed(None, claim("b", provider_id="kwok://a", true=LAUNCHED))
    assert not world.cluster.is_planned("one"), "nobody knows whether its room is there"
    assert world.cluster.assign(A, (two,)) == [two]


def test_nodes_that_are_being_deleted_are_told_by_name_whatever_joined_them() -> None:
    world = World()
    world.existing_node("b")
    world.existing_node("stays")
    world.cluster.node_changed(None, node("c", provider_id="kwok://b"))
    world.cluster.node_changed(None, node("a"))
    assert world.cluster.ending_nodes() == []
    for name in ("c", "b", "a"):
        found = world.cluster.node(name)
        assert found is not None
        world.cluster.node_deleted(found)
    assert [one.metadata.name for one in world.cluster.ending_nodes()] == ["a", "b", "c"]


def test_an_older_answer_never_replaces_a_newer_one() -> None:
    world = World()
    world.cluster.claim_changed(None, claim("a", version=1000, provider_id="kwok://a"))
    world.cluster.claim_written(claim("a", version=999))
    found = world.cluster.claim("a")
    assert found is not None
    assert found.status.provider_id == "kwok://a"


def test_a_late_answer_does_not_bring_a_deleted_claim_back() -> None:
    world, made = World(), claim("a")
    world.cluster.claim_changed(None, made)
    world.cluster.claim_changed(made, None)
    world.cluster.claim_written(made)
    assert world.cluster.claim("a") is None


def test_an_answer_about_a_claim_does_not_touch_another_of_its_name() -> None:
    world, made = World(), claim("a")
    world.cluster.claim_changed(None, made)
    other = msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, uid="another"))
    world.cluster.claim_changed(made, other)
    world.cluster.claim_written(made)
    found = world.cluster.claim("a")
    assert found is not None
    assert found.metadata.uid == "another"
