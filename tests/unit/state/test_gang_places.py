"""How far gangs are, as the state tells."""

from typing import Any

import pytest

from provisioner.apis.core import PodGroup
from provisioner.apis.gangs import GroupSource
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.launch_sets import LaunchSet, encode_sets
from provisioner.apis.names import GANG, GANG_MINIMUM, LAUNCH_SET
from provisioner.apis.pods import Pod
from provisioner.state.gang_places import GangState
from provisioner.state.keys import NodeKey
from provisioner.state.knowledge import KindKnowledge
from tests.support.cluster import World, bound, claim, pod
from tests.unit.state.test_groups import Grouped, group, member

KEY = "default/train"
GANG_KEY = "default/gang/train/rs/2"
NOTES = {GANG: "train", GANG_MINIMUM: "2"}


def coming(name: str, *, launched: bool = False, key: str = KEY, nodes: int = 2) -> NodeClaim:
    """A NodeClaim of a launch set."""
    text = encode_sets([LaunchSet(id="a", group=key, nodes=nodes)])
    return claim(name, provider_id=f"kwok://{name}" if launched else "", annotations={LAUNCH_SET: text})


def state_of(world: World, key: str = KEY) -> GangState | None:
    found = world.cluster.gang_standing(key)
    states = {one.group.key: one.state for one in world.cluster.gang_standings()}
    assert states.get(key) is (found.state if found is not None else None)
    return states.get(key)


ROWS: dict[str, tuple[GangState | None, tuple[Pod, ...], tuple[PodGroup, ...]]] = {
    "no pod": (None, (), (group(),)),
    "no PodGroup": (GangState.UNKNOWN, (member("a"), member("b")), ()),
    "pods are missing": (GangState.INCOMPLETE, (member("a"),), (group(),)),
    "a pod has gates": (GangState.GATED, (member("a"), member("b", gated=True)), (group(),)),
    "priorities differ": (GangState.CONTRADICTION, (member("a"), member("b", priority=5)), (group(),)),
    "no places": (GangState.WAITING, (member("a"), member("b")), (group(),)),
    "one of two runs": (GangState.WAITING, (member("a", node="n"), member("b")), (group(),)),
    "it runs": (GangState.RUNNING, (member("a", node="n"), member("b", node="n"), member("c")), (group(),)),
    "what has not finished runs": (GangState.RUNNING, (member("a", node="n"),), (group(),)),
}


@pytest.mark.parametrize(("state", "pods", "objects"), ROWS.values(), ids=ROWS)
def test_states(state: GangState | None, pods: tuple[Pod, ...], objects: tuple[PodGroup, ...]) -> None:
    world = Grouped()
    for one in objects:
        world.cluster.pod_group_changed(None, one)
    world.add(*pods)
    assert state_of(world) is state


def complete(**changes: Any) -> Grouped:
    world = Grouped()
    world.cluster.pod_group_changed(None, group(**changes))
    world.add(member("a"), member("b"))
    return world


def test_nodes_come_then_pods_have_places_then_they_run() -> None:
    world = complete()
    for number, name in enumerate(("x", "y")):
        world.cluster.claim_changed(None, coming(name, launched=bool(number)))
        assert not world.cluster.assign(NodeKey(name), [member("ab"[number])])
    found = world.cluster.gang_standing(KEY)
    assert found is not None
    assert (found.state, found.placed, found.source) == (GangState.LAUNCHING, 2, GroupSource.POD_GROUP)
    assert [(one.claim.name, one.begun) for one in found.coming] == [("x", False), ("y", True)]
    for name in ("x", "y"):
        world.cluster.claim_changed(coming(name), None)
    assert state_of(world) is GangState.WAITING
    world.add(bound(member("a"), "n"), bound(member("b"), "n"))
    assert state_of(world) is GangState.RUNNING


def test_a_gang_whose_nodes_were_given_up_says_until_when_it_waits() -> None:
    world = complete()
    world.cluster.group_rests(KEY)
    world.clock.advance(20.0)
    found = world.cluster.gang_standing(KEY)
    assert found is not None
    assert found.rest is not None
    assert (found.state, *found.rest) == (GangState.GIVEN_UP, 60.0, 40.0)
    world.clock.advance(41.0)
    assert state_of(world) is GangState.WAITING


def test_pod_groups_that_are_not_served_are_no_gangs_and_those_that_cannot_be_read_are_unread() -> None:
    world = complete()
    world.add(pod("c", annotations=NOTES))
    world.cluster.pod_groups_known(KindKnowledge.UNREADABLE)
    assert state_of(world) is GangState.UNREAD
    assert state_of(world, GANG_KEY) is GangState.INCOMPLETE
    world.cluster.pod_groups_known(KindKnowledge.NOT_SERVED)
    (one,) = world.cluster.gang_standings()
    assert (one.group.key, one.source) == (GANG_KEY, GroupSource.ANNOTATIONS)
    assert world.cluster.gang_standing(KEY) is None


def test_which_gang_has_all_of_its_nodes_launched() -> None:
    world = complete()
    world.cluster.claim_changed(None, coming("x"))
    world.cluster.claim_changed(None, coming("y", launched=True))
    assert world.cluster.gang_launched_with("y") == {}
    world.cluster.claim_changed(coming("x"), coming("x", launched=True))
    assert world.cluster.gang_launched_with("x") == {KEY: 2}
    assert world.cluster.gang_launched_with("z") == {}


def test_what_events_of_a_gang_are_about() -> None:
    world = complete()
    found, first = world.cluster.gang_told_of(KEY)
    assert (found, first and first.name) == (group(), "a")
    assert world.cluster.gang_told_of("default/other") == (None, None)


def test_how_long_a_gang_took_is_told_once_and_not_of_one_that_ran_before() -> None:
    world = complete()
    world.clock.advance(30.0)
    world.add(bound(member("a"), "n"))
    assert world.cluster.gangs_scheduled() == ()
    world.add(bound(member("b"), "n"))
    assert world.cluster.gangs_scheduled() == (30.0,)
    assert world.cluster.gangs_scheduled() == ()
    world.add(member("a"))  # its successor
    world.clock.advance(5.0)
    world.add(bound(member("a"), "n"))
    assert world.cluster.gangs_scheduled() == ()
    other = Grouped()
    other.cluster.pod_group_changed(None, group())
    other.add(member("a", node="n"), member("b"))
    other.add(bound(member("b"), "n"))
    assert other.cluster.gangs_scheduled() == ()
