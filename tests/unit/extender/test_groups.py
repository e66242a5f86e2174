"""Members of a group whose nodes are launched together pass their planned node alone, once all of those take pods."""

import json
from typing import Any

import msgspec
import pytest

from extender.answering import Answerer
from extender.board import Board
from extender.facts import FamilyMember
from extender.groups import OPEN_SECONDS, PASS_SECONDS, WRITTEN_SECONDS
from extender.placement import Victims, preemptible
from extender.plan import ASSUMED_SECONDS, NO_STANDING
from extender.protocol import REASONS, ExtenderQuestion
from extender.refusals import Refusals
from provisioner.apis.launch_sets import LaunchSet
from provisioner.apis.reports import PodReport
from provisioner.state.promises import PLAN_SECONDS
from provisioner.values.resources import EMPTY
from tests.support.clock import FakeClock
from tests.support.extender import Watch, World, entry, member
from tests.support.work import Lines

GROUP = "ns/train"
FULL = 4


def train(uid: str, **changes: Any) -> FamilyMember:
    """A member that fills a node; all are of one Job."""
    return member(uid, owner="job", klass="big", cores=FULL, group=GROUP, **changes)


def job(uid: str) -> Any:
    return entry(uid, owner="job", klass="big")


def pair(key: str = "d1", nodes: int = 2) -> tuple[LaunchSet, ...]:
    return (LaunchSet(id=key, group=GROUP, nodes=nodes),)


@pytest.fixture
def world() -> World:
    """Two members, for which two nodes come, and a node with room for one that was there before."""
    made = World()
    made.table.caught_up = True
    made.node("old", FULL)
    made.pods(train("a"), train("b"))
    made.planned_node("n1", job("a"), ready=False, sets=pair())
    made.planned_node("n2", job("b"), ready=False, sets=pair())
    return made


def test_nobody_passes_before_every_node_of_the_set_takes_pods(world: World) -> None:
    assert world.passing(train("a"), "old", "n1") == []
    world.node("n1", FULL)
    assert world.passing(train("a"), "old", "n1") == []
    world.node("n2", FULL)
    assert world.passing(train("a"), "old", "n2", "n1") == ["n1"]
    assert world.passing(train("b"), "old", "n1", "n2") == ["n2"]
    assert world.passing(train("b"), "old", "n1") == [], "not the place of a brother either"


def test_the_one_node_that_preemption_nominated_does_not_pass_either(world: World) -> None:
    assert world.passing(train("a"), "old", nominated="old") == []


def test_members_are_as_other_pods_once_their_nodes_have_been_open_for_a_while(world: World) -> None:
    world.node("n1", FULL)
    world.pass_time(20)
    world.node("n2", FULL)
    world.pass_time(OPEN_SECONDS - 0.1)
    assert world.passing(train("a"), "old", "n2") == []
    world.pass_time(0.1)
    assert world.passing(train("a"), "old", "n2") == ["n2"], "a brother's place"
    assert world.passing(train("a"), "old") == ["old"]


def test_a_node_that_fails_again_does_not_begin_the_time_anew(world: World) -> None:
    world.node("n1", FULL)
    world.node("n2", FULL)
    assert world.passing(train("a"), "old", "n1") == ["n1"]
    world.node("n2", FULL, ready=False)
    assert world.passing(train("a"), "old", "n1") == []
    world.pass_time(OPEN_SECONDS / 2)
    world.node("n2", FULL)
    assert world.passing(train("a"), "old", "n1") == ["n1"]
    world.pass_time(OPEN_SECONDS / 2)
    assert world.passing(train("a"), "old") == ["old"]


GIVEN_UP = {
    "a claim is deleted": lambda world: world.table.drop_claim("c-n2"),
    "a claim is being deleted": lambda world: world.claim("c-n2", job("b"), node="n2", leaving=True, sets=pair()),
    "a command takes a node": lambda world: world.claim("c-n2", job("b"), node="n2", disrupted=True, sets=pair()),
    "a claim has no plan any more": lambda world: world.claim("c-n2", node="n2", sets=pair()),
    "a claim is of no set any more": lambda world: world.claim("c-n2", job("b"), node="n2"),
    "the plans are over": lambda world: world.pass_time(PLAN_SECONDS),
}


@pytest.mark.parametrize("give_up", GIVEN_UP.values(), ids=GIVEN_UP)
def test_members_are_as_other_pods_once_the_plan_is_given_up_and_stay_so(world: World, give_up: Any) -> None:
    assert world.passing(train("a"), "old") == []
    give_up(world)
    assert world.passing(train("a"), "old") == ["old"]
    world.claim("c-n2", job("b"), node="n2", sets=pair())
    assert world.passing(train("a"), "old") == ["old"]


def test_a_set_of_which_claims_are_never_seen_is_waited_for_as_long_as_it_takes_to_write_them() -> None:
    world = World()
    world.table.caught_up = True
    world.node("old", FULL)
    world.pods(train("a"), train("b"))
    world.planned_node("n1", job("a"), ready=False, sets=pair())
    assert world.passing(train("b"), "old") == []
    world.pass_time(WRITTEN_SECONDS)
    assert world.passing(train("b"), "old") == ["old"]


def test_what_is_there_before_the_program_began_is_as_old_as_it_says() -> None:
    world = World()
    world.node("old", FULL)
    world.pods(train("a"), train("b"))
    world.claim("c-n1", job("a"), sets=pair(), born_at=world.now - WRITTEN_SECONDS)
    assert world.passing(train("a"), "old") == ["old"]


def test_a_later_decision_for_the_group_counts_beside_what_is_left_of_the_former(world: World) -> None:
    world.table.drop_claim("c-n2")
    world.planned_node("n3", job("b"), ready=False, sets=pair("d2", 1))
    assert world.passing(train("a"), "old", "n1") == []
    world.node("n1", FULL)
    world.node("n3", FULL)
    assert world.passing(train("a"), "old", "n3", "n1") == ["n1"]
    assert world.passing(train("b"), "old", "n1", "n3") == ["n3"]
    world.planned_node("n4", job("c"), ready=False, sets=pair("d3", 2))
    assert world.passing(train("a"), "old", "n3", "n1") == []


def test_a_member_that_is_planned_on_a_node_that_was_there_waits_for_the_others_and_keeps_to_it(world: World) -> None:
    world.pods(train("c"))
    world.planned_node("m", job("c"))
    assert world.passing(train("c"), "m", "old") == []
    world.node("n1", FULL)
    world.node("n2", FULL)
    assert world.passing(train("c"), "n1", "n2", "old", "m") == ["m"]


def test_a_member_without_a_place_takes_none_of_the_others(world: World) -> None:
    world.pods(train("d"))
    assert world.passing(train("d"), "old") == []
    world.node("n1", FULL)
    world.node("n2", FULL)
    assert world.passing(train("d"), "n1", "n2", "old") == ["old"]


def test_pods_of_no_group_and_of_another_one_are_answered_as_ever(world: World) -> None:
    assert world.passing(member("x", owner="x"), "old") == ["old"]
    assert world.passing(member("y", owner="y", group="ns/other"), "old") == ["old"]


def test_nobody_is_evicted_for_a_node_that_would_not_pass(world: World) -> None:
    victims = {name: Victims(1, EMPTY) for name in ("old", "n1")}
    standing = world.table.standing(train("a"), world.now)
    assert preemptible(train("a"), standing, world.table.room.holds, victims) == []
    world.node("n1", FULL)
    world.node("n2", FULL)
    standing = world.table.standing(train("a"), world.now)
    assert preemptible(train("a"), standing, world.table.room.holds, victims) == ["n1"]


# --- passes ---------------------------------------------------------------------------------------------------------


def later(pod: FamilyMember, version: int, *, refused: bool = True) -> FamilyMember:
    return msgspec.structs.replace(pod, refused=refused, resource_version=str(version))


def counted(world: World) -> set[str]:
    return set(world.table.families.assumed)


def test_a_pass_of_a_member_counts_for_a_few_seconds_behind_longer_ones(world: World) -> None:
    world.pods(member("single"))
    world.table.assume("single", "old", world.now)
    world.table.assume("a", "n1", world.now)
    world.table.recall("nobody", world.now + PASS_SECONDS - 0.1)
    assert counted(world) == {"single", "a"}
    world.table.recall("nobody", world.now + PASS_SECONDS)
    assert counted(world) == {"single"}
    world.table.recall("nobody", world.now + ASSUMED_SECONDS)
    assert counted(world) == set()


def test_all_passes_of_a_group_are_over_when_a_member_is_said_to_have_no_room(world: World) -> None:
    world.pods(member("single"), train("c"))
    world.table.assume("single", "old", world.now)
    world.table.assume("a", "n1", world.now, 5)
    world.table.suppose(train("b"), frozenset({"n2"}), world.now, 7)
    world.pods(later(train("c"), 7))
    assert (counted(world), len(world.table.supposed)) == ({"single", "a"}, 1), "said of an earlier cycle"
    world.pods(later(train("c"), 8))
    assert (counted(world), world.table.supposed) == ({"single"}, ())


def test_a_member_that_passed_and_is_said_to_have_no_room_is_not_bound(world: World) -> None:
    world.node("n1", FULL)
    world.node("n2", FULL)
    world.table.assume("a", "n1", world.now, 5)
    world.pods(later(train("a"), 6, refused=False))
    assert counted(world) == {"a"}
    world.pods(later(train("a"), 9))
    assert counted(world) == set()
    assert world.passing(train("a"), "n1") == ["n1"]


# --- what kube-scheduler is told ------------------------------------------------------------------------------------


class Reports:
    def __init__(self) -> None:
        self.put = list[PodReport]().append


def asked(pod: FamilyMember, *names: str, version: str = "3") -> bytes:
    meta = {"uid": pod.uid, "name": pod.uid, "namespace": "ns", "resourceVersion": version}
    return json.dumps({"Pod": {"metadata": meta}, "Nodes": None, "NodeNames": list(names)}).encode()


@pytest.fixture
def board(world: World) -> Board:
    made = Board(FakeClock())
    made.depend_on([Watch()])
    made.table = world.table
    return made


def test_why_nobody_passes_is_said_of_a_few_nodes(world: World, board: Board) -> None:
    answerer = Answerer(board, Reports())
    world.now = board.clock.monotonic()
    listed = [f"x{number}" for number in range(REASONS + 20)]
    reply = json.loads(answerer.filter(asked(train("a"), *listed)))
    assert reply["NodeNames"] == []
    assert reply["FailedAndUnresolvableNodes"] == dict.fromkeys(
        listed[:REASONS], "waiting for its own room on the nodes of its group"
    )


def test_a_pass_is_noted_with_the_version_that_kube_scheduler_knows(world: World, board: Board) -> None:
    world.node("n1", FULL)
    world.node("n2", FULL)
    answerer = Answerer(board, Reports())
    assert json.loads(answerer.filter(asked(train("a"), "n2", "n1", version="30")))["NodeNames"] == ["n1"]
    world.pods(later(train("b"), 30))
    assert counted(world) == {"a"}
    world.pods(later(train("b"), 31))
    assert counted(world) == set()
    assert ExtenderQuestion(asked(train("a"), "n1", version="x")).pod.version() == 0


def test_a_pod_of_a_daemonset_is_of_no_group(world: World, board: Board) -> None:
    world.pods(train("z", daemon=True))
    assert json.loads(Answerer(board, Reports()).filter(asked(train("z"), "old")))["NodeNames"] == ["old"]


def test_no_eviction_for_a_member_that_waits_is_let_through_the_second_time(world: World, board: Board) -> None:
    body = json.loads(asked(train("a"), "old"))
    victims = {"old": {"Pods": [{"UID": "victim"}], "NumPDBViolations": 0}}
    message = json.dumps({"Pod": body["Pod"], "NodeNameToMetaVictims": victims}).encode()
    answerer = Answerer(board, Reports())
    assert [json.loads(answerer.preempt(message))["NodeNameToMetaVictims"] for _ in "12"] == [{}, {}]
    world.node("old", FULL)
    world.pass_time(PLAN_SECONDS)
    board.clock.advance(PLAN_SECONDS)  # type: ignore[attr-defined]
    assert list(json.loads(answerer.preempt(message))["NodeNameToMetaVictims"]) == ["old"]


# --- who is woken ---------------------------------------------------------------------------------------------------


def refuse(world: World, refusals: Refusals, *uids: str) -> None:
    for uid in uids:
        standing = world.table.standing(train(uid), world.now)
        assert standing.alone
        refusals.record(train(uid), standing)


def test_one_member_is_woken_once_all_nodes_are_there(world: World) -> None:
    refusals = Refusals()
    refuse(world, refusals, "a", "b")
    (kind,) = refusals.kinds()
    assert refusals.due(kind, world.table, world.now) == ""
    world.node("n1", FULL)
    assert refusals.due(kind, world.table, world.now) == ""
    world.node("n2", FULL)
    assert refusals.due(kind, world.table, world.now) == "n2"
    assert len(refusals) == 0


def test_a_member_whose_node_was_there_and_not_asked_about_is_woken_when_it_is_as_other_pods(world: World) -> None:
    world.node("n1", FULL)
    world.node("n2", FULL)
    refusals = Refusals()
    refuse(world, refusals, "a")
    (kind,) = refusals.kinds()
    assert refusals.due(kind, world.table, world.now) == ""
    world.pass_time(OPEN_SECONDS)
    assert refusals.due(kind, world.table, world.now) in world.table.nodes
    assert len(refusals) == 0


def test_a_member_that_is_gone_is_forgotten_and_not_woken(world: World) -> None:
    refusals = Refusals()
    refuse(world, refusals, "a")
    (kind,) = refusals.kinds()
    world.table.drop_pod("a")
    assert refusals.due(kind, world.table, world.now) == ""
    assert len(refusals) == 0


def test_members_that_hold_back_for_others_are_of_one_kind_for_each_class(world: World) -> None:
    refusals = Refusals()
    for uid in ("p", "q"):
        refusals.record(train(uid), NO_STANDING, ["n1"])
    refusals.record(member("r", group=GROUP), NO_STANDING, ["n1"])
    assert len(refusals) == 2


def lines_of_a_set(nodes: int) -> int:
    """While the nodes of a set come one after the other, and kube-scheduler asks about a member each time."""
    made = World()
    made.table.caught_up = True
    members = [train(f"m{number}") for number in range(nodes)]
    made.pods(*members)
    for number, one in enumerate(members):
        made.planned_node(f"n{number}", job(one.uid), ready=False, sets=pair(nodes=nodes))
    with Lines() as lines:
        for number, one in enumerate(members):
            made.node(f"n{number}", FULL)
            assert bool(made.passing(one, "n0", f"n{number}")) is (number == nodes - 1)
    return lines.count


def lines_of_sets(sets: int) -> int:
    """While kube-scheduler asks about the members of a group of which many sets are over."""
    made = World()
    made.table.caught_up = True
    members = [train(f"m{number}") for number in range(sets)]
    made.pods(*members)
    for number, one in enumerate(members):
        made.planned_node(f"n{number}", job(one.uid), ready=True, sets=pair(f"d{number}", 1))
    made.pass_time(OPEN_SECONDS)
    made.passing(members[0], "n0")
    with Lines() as lines:
        for one in members:
            made.table.groups.phase(one.group, made.now)
    return lines.count


@pytest.mark.parametrize("work", [lines_of_a_set, lines_of_sets])
def test_twice_as_many_nodes_or_sets_are_twice_the_work(work: Any) -> None:
    assert work(80) <= 2.5 * work(40)


def test_a_set_of_which_a_claim_is_gone_is_over_at_once(world: World) -> None:
    world.node("n1", FULL)
    world.node("n2", FULL)
    assert world.passing(train("a"), "old", "n1") == ["n1"]
    world.table.drop_claim("c-n2")
    assert world.passing(train("a"), "old") == ["old"]
    world.table.drop_claim("c-n1")
    groups = world.table.groups
    assert (groups._sets, groups._of_group, groups._of_claim) == ({}, {}, {})
