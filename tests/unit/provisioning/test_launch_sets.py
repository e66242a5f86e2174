"""Launch sets: the NodeClaims of a gang come to be and are launched together, whatever fails and whoever leads."""

from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.launch_sets import LaunchSet, encode_sets
from provisioner.apis.launches import is_launched
from provisioner.state.claim_plans import Launch
from provisioner.state.effects import LaunchSetTurned
from tests.support.cluster import World, claim, pod, pool
from tests.support.gangs import MEMBERS, ONE_TYPE, Process
from tests.support.problems import shape
from tests.support.worldserver import ServerDied

WRITES = 9
"""More than a gang of four takes: four creations, four launches."""


@pytest.mark.parametrize("write", range(WRITES))
def test_killed_at_every_write_of_a_set_a_gang_has_all_its_nodes_in_the_end_and_none_launched_alone(write: int) -> None:
    first = Process(*MEMBERS)
    first.server.dies_after = write
    try:
        first.go_on()
    except ServerDied:
        assert len(first.server.done) == write
    else:
        assert write == WRITES - 1
    then = Process(*MEMBERS, before=first)
    launched = sum(map(is_launched, then.there()))
    then.go_on()
    then.broken += first.broken
    then.assert_whole()
    assert launched == max(0, write - len(MEMBERS))
    created = [one for one in then.server.done if one.startswith("POST")]
    assert len(created) == (
        len(MEMBERS) if write < len(MEMBERS) else 0
    )  # a part of a set is deleted, a whole one is not


@pytest.mark.parametrize("refused", range(4))
@pytest.mark.parametrize("status", [422, 500])
def test_where_one_cannot_be_written_none_is_launched_and_all_are_planned_again(refused: int, status: int) -> None:
    one = Process(*MEMBERS)
    posts = iter(range(100))

    def refuse(sent: Any) -> Any:
        one.server.refuse_creates = status if sent.method == "POST" and next(posts) == refused else 0

    one.server.intercept = refuse
    one.controller.run()
    assert not any(map(is_launched, one.there()))
    assert not one.there()
    assert len(one.world.cluster.snapshot().waiting) == len(MEMBERS)
    one.go_on()
    one.assert_whole()


def test_none_is_launched_before_all_are_written_and_the_last_one_wakes_the_others() -> None:
    world, pods = World(), MEMBERS[:2]
    world.add(*pods)
    text = encode_sets([LaunchSet(id="a", group="default/g", nodes=2)])
    made = [claim(one.name, pods=(one,), annotations={names.LAUNCH_SET: text}) for one in pods]
    new = [msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, uid="")) for one in made]
    assert world.cluster.announce_all([(one, (own,)) for one, own in zip(new, pods, strict=True)])
    told = [[one for one in world.cluster.claim_written(made[0]) if isinstance(one, LaunchSetTurned)]]
    assert world.cluster.launch_begins("a") is Launch.HELD
    told.append([one for one in world.cluster.claim_written(made[1]) if isinstance(one, LaunchSetTurned)])
    assert told == [[], [LaunchSetTurned("a"), LaunchSetTurned("b")]]
    assert world.cluster.launch_begins("a") is Launch.BEGIN


def test_once_a_launch_has_begun_the_others_stay_whatever_becomes_of_one() -> None:
    one = Process(*MEMBERS)
    one.controller.run()
    first, second, *others = one.claims
    one.world.cluster.launch_begins(first)
    one.server.drop("nodeclaims", second)
    assert {one.world.cluster.launch_begins(name) for name in others} == {Launch.BEGIN}
    one.go_on()
    assert len(one.there()) == len(MEMBERS)


def test_a_set_that_cannot_be_read_is_launched_like_single_claims() -> None:
    world = World()
    world.add(pod("one"))
    text = encode_sets([LaunchSet(id="a", group="default/g", nodes=2)]).replace('"v":1', '"v":9')
    world.cluster.claim_changed(None, claim("c", pods=(pod("one"),), annotations={names.LAUNCH_SET: text}))
    assert world.cluster.launch_begins("c") is Launch.BEGIN


def test_pods_of_a_set_are_not_planned_again_while_the_others_of_it_stay() -> None:
    one = Process(*MEMBERS)
    one.controller.run()
    assert one.world.cluster.hold_launches(1.0) == ()


def test_a_gang_of_which_a_node_is_refused_for_ever_costs_single_pods_no_more_than_a_batch() -> None:
    """It shared a node with one of them, which was given up with the others of its set each time."""
    gang = {names.GANG: "train", names.GANG_MINIMUM: "2"}
    here, there = ({names.NODEPOOL_LABEL: name} for name in ("general", "refused"))
    a = pod("a", owner="job", cpu="2", annotations=gang, shape=shape(cpu="2", selector=here))
    b = pod("b", owner="job", cpu="2", annotations=gang, shape=shape(cpu="2", selector=there))
    one = Process(a, b, pod("alone", shape=shape(cpu="1", selector=here)))
    one.world.cluster.pool_changed(None, pool("refused", requirements=ONE_TYPE))

    def refuse(sent: Any) -> Any:
        creates = sent.method == "POST" and "nodeclaims" in sent.path
        one.server.refuse_creates = 422 if creates and "refused-" in str(sent.body) else 0

    one.server.intercept = refuse
    one.go_on()
    (made,) = one.there()
    assert "alone" in one.world.assigned(made.name)
    assert is_launched(made)


def test_a_claim_that_somebody_wrote_two_sets_of_one_gang_on_may_come_and_go() -> None:
    world = World()
    text = encode_sets([LaunchSet(id=one, group="default/g", nodes=1) for one in "ab"])
    one = claim("c", annotations={names.LAUNCH_SET: text})
    world.cluster.claim_changed(None, one)
    world.cluster.claim_changed(one, None)
    assert not world.cluster.claims()
