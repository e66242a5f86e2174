"""Disruption commands in the state: what a candidate is from the moment that one begins until it is over."""

from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.command import CandidateRecord, CommandRecord, Replacement, encode_command
from provisioner.apis.karpenter import NodeClaim
from provisioner.state.keys import NodeKey
from tests.support.clock import NOON
from tests.support.cluster import World, claim, node, pod

ALL_TRUE = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)


def record(*candidates: str, replacements: tuple[str, ...] = (), id: str = "id") -> CommandRecord:  # noqa: A002
    return CommandRecord(
        id=id,
        reason="Drifted",
        method="drift",
        candidates=tuple(CandidateRecord(name, f"uid-{name}") for name in candidates),
        replacements=tuple(Replacement(name) for name in replacements),
    )


def held(name: str, one: CommandRecord | None = None, **changes: Any) -> NodeClaim:
    """A claim of an initialized node, with a record or without."""
    annotations = {names.COMMAND_ANNOTATION: encode_command(one)} if one is not None else {}
    return claim(name, provider_id=f"kwok://{name}", true=ALL_TRUE, annotations=annotations, **changes)


@pytest.fixture
def world() -> World:
    """Two nodes, `a` and `b`, with a pod on `a`."""
    one = World()
    one.existing_node("a")
    one.existing_node("b")
    one.add(pod("web", node="a"))
    return one


def test_a_candidate_is_deleting_before_anything_is_written(world: World) -> None:
    assert world.cluster.command_begun(record("a"))
    view = world.view("a")
    assert (view.deleting, view.command) == (True, "id")
    assert world.cluster.snapshot().leaving == ()
    late = pod("late")
    world.add(late)
    assert world.cluster.assign(NodeKey("a"), (late,)) == [late]


def test_a_candidate_that_a_command_leaves_out_when_it_is_told_again_is_one_no_more(world: World) -> None:
    assert world.cluster.command_begun(record("a", "b"))
    assert world.cluster.command_begun(record("a"))
    assert (world.view("a").deleting, world.view("b").deleting) == (True, False)


def test_a_command_that_came_to_nothing_leaves_no_trace(world: World) -> None:
    before = world.cluster.snapshot()
    assert world.cluster.command_begun(record("a"))
    world.cluster.command_dropped(record("a"))
    after = world.cluster.snapshot()
    assert (after.nodes, after.commands) == (before.nodes, ())


def test_a_command_whose_record_was_found_on_its_claim_cannot_be_forgotten(world: World) -> None:
    """Its write was given up, and had been carried out."""
    one = record("a")
    assert world.cluster.command_begun(one)
    world.cluster.claim_changed(world.cluster.claim("a"), held("a", one))
    world.cluster.command_dropped(one)
    assert world.view("a").command == "id"


def going(world: World) -> None:
    world.cluster.claim_changed(world.cluster.claim("a"), held("a", deletionTimestamp=NOON.isoformat()))


def promised(world: World) -> None:
    world.add(pod("other"))
    assert world.cluster.assign(NodeKey("a"), (pod("other"),)) == []


def taken(world: World) -> None:
    assert world.cluster.command_begun(record("a", "b", id="first"))


def tainted(world: World) -> None:
    taint = {"key": names.DISRUPTED_TAINT.key, "effect": names.NO_SCHEDULE}
    world.cluster.node_changed(None, node("a", labels={names.NODEPOOL_LABEL: "general"}, taints=(taint,)))


def unknown(world: World) -> None:
    world.cluster.claim_changed(world.cluster.claim("a"), None)


@pytest.mark.parametrize("happen", [going, promised, taken, tainted, unknown])
def test_a_command_does_not_begin_about_a_node_that_is(world: World, happen: Any) -> None:
    happen(world)
    commands = world.cluster.commands()
    assert not world.cluster.command_begun(record("a"))
    assert world.cluster.commands() == commands


def test_what_is_written_is_believed_after_a_restart(world: World) -> None:
    fresh = World(settled=False)
    fresh.add(pod("web", node="a"))
    fresh.cluster.claim_changed(None, claim("new", pods=(pod("web"),)))  # the lists come in any order
    fresh.cluster.node_changed(None, node("a", labels={names.NODEPOOL_LABEL: "general"}))
    fresh.cluster.claim_changed(None, held("a", record("a", replacements=("new",))))
    fresh.cluster.settle()
    assert fresh.view("a").deleting
    assert fresh.cluster.is_planned("web")
    assert fresh.cluster.unneeded() == []
    waiting = fresh.cluster.command_waiting_for("new")
    assert waiting is not None
    assert waiting.written
    assert world.cluster.commands() == ()


def test_its_pods_are_planned_like_any_once_its_candidate_goes(world: World) -> None:
    one = record("a")
    assert world.cluster.command_begun(one)
    world.cluster.claim_changed(None, held("a", one))
    assert world.cluster.snapshot().leaving == ()
    world.cluster.claim_changed(None, held("a", one, deletionTimestamp=NOON.isoformat()))
    assert [one.name for one in world.cluster.snapshot().leaving] == ["web"]


def test_an_interrupted_candidate_owns_its_pods_no_more(world: World) -> None:
    one = record("a")
    world.cluster.claim_changed(None, held("a", one))
    marked = held("a", one)
    marked.metadata.annotations[names.INTERRUPTION_ANNOTATION] = "{}"
    world.cluster.claim_changed(None, marked)
    assert [one.name for one in world.cluster.snapshot().leaving] == ["web"]


def test_when_it_is_called_off_pods_stay_and_the_replacement_is_unneeded(world: World) -> None:
    one = record("a", replacements=("new",))
    world.cluster.claim_changed(None, held("a", one))
    world.cluster.claim_changed(None, claim("new", pods=(pod("web"),)))
    assert world.cluster.is_planned("web")
    assert not world.cluster.is_unneeded("new")
    effects = world.cluster.claim_changed(None, held("a"))
    assert not world.cluster.is_planned("web")
    assert world.cluster.is_unneeded("new")
    assert [type(one).__name__ for one in effects] == ["PodSettled", "ClaimUnneeded", "ClaimUnneeded"]


def test_it_ends_with_the_claim_that_holds_it(world: World) -> None:
    world.cluster.claim_changed(None, held("a", record("a", "b")))
    assert world.view("b").deleting
    world.cluster.claim_changed(world.cluster.claim("a"), None)
    assert world.cluster.commands() == ()
    assert not world.view("b").deleting


def test_of_two_records_over_one_node_the_first_counts(world: World) -> None:
    first, second = record("b", id="first"), record("a", "b", id="second")
    world.cluster.claim_changed(None, held("b", first))
    world.cluster.claim_changed(None, held("a", second))
    assert [one.record.id for one in world.cluster.commands()] == ["first"]
    assert not world.view("a").deleting
    world.cluster.claim_changed(None, held("b"))
    assert world.cluster.commands() == (), "it does not come to life later"


def test_another_record_on_the_same_claim_takes_its_place(world: World) -> None:
    world.cluster.claim_changed(None, held("a", record("a", "b", id="first")))
    world.cluster.claim_changed(None, held("a", record("a", id="second")))
    assert [one.record.id for one in world.cluster.commands()] == ["second"]
    assert not world.view("b").deleting


def test_an_old_state_of_the_watch_ends_no_command(world: World) -> None:
    old, one = world.cluster.claim("a"), record("a")
    assert old is not None
    assert world.cluster.command_begun(one)
    newer = msgspec.structs.replace(
        held("a", one), metadata=msgspec.structs.replace(held("a", one).metadata, resource_version="1000000")
    )
    world.cluster.claim_written(newer)
    world.cluster.claim_changed(None, old)
    assert [command.written for command in world.cluster.commands()] == [True]
