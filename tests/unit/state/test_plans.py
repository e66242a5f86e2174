"""How assignments begin, pass on and end."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.plan import Plan, PlanEntry, decode_plan, encode_plan
from provisioner.apis.pods import Pod
from provisioner.state.claim_plans import Launch
from provisioner.state.cluster import Cluster
from provisioner.state.effects import ClaimUnneeded, NominationLost, PodSettled
from provisioner.state.keys import NodeKey
from provisioner.values.taints import Toleration
from tests.support.clock import NOON
from tests.support.cluster import World, bound, claim, node, plan_text, pod
from tests.support.problems import shape

A = NodeKey("a")
DISRUPTED = {"key": names.DISRUPTED_TAINT.key, "effect": names.NO_SCHEDULE}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": names.NO_SCHEDULE}


def announced(name: str, *pods: Pod) -> NodeClaim:
    """A claim as it is before it is created."""
    made = claim(name, pods=pods)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, uid=""))


def going(one: NodeClaim) -> NodeClaim:
    """The claim after somebody deleted it."""
    version = str(int(one.metadata.resource_version) + 1_000_000)
    meta = msgspec.structs.replace(one.metadata, deletion_timestamp=NOON, resource_version=version)
    return msgspec.structs.replace(one, metadata=meta)


def pending(world: World) -> list[str]:
    return [found.name for found in world.cluster.snapshot().pending]


# --- where a pod found a place ------------------------------------------------------------------------------------------


def test_a_pod_that_found_another_place_gives_its_room_back() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.existing_node("a", pods=(one,))
    world.existing_node("b")
    effects = world.cluster.pod_changed(one, bound(one, "b"))
    assert effects == [PodSettled(A, "one", "absorbed")]
    assert world.view("a").room["cpu"] == 3900


def test_equals_that_took_each_others_places_are_on_plan_and_nobody_is_displaced() -> None:
    """A hard spread decides the order: kube-scheduler binds a pod where its brother was planned, and the other way round."""
    world, one, two = World(), pod("one", cpu="3"), pod("two", cpu="3")
    world.add(one, two)
    world.existing_node("a", pods=(one,))
    world.existing_node("b", pods=(two,))
    assert world.cluster.pod_changed(one, bound(one, "b")) == [PodSettled(NodeKey("b"), "one", "planned")]
    assert world.cluster.expire() == []
    assert world.assigned("a") == ["two"]
    assert world.view("a").assigned == (two,)
    assert (world.view("a").room["cpu"], world.view("b").room["cpu"]) == (900, 900)
    assert world.cluster.pod_changed(two, bound(two, "a")) == [PodSettled(A, "two", "planned")]


def test_a_pod_that_took_the_place_of_one_that_is_gone_leaves_its_own_to_the_successor() -> None:
    world, one, two, three = World(), pod("one"), pod("two"), pod("three")
    world.add(one, two)
    world.existing_node("a", pods=(one,))
    world.existing_node("b", pods=(two,))
    world.cluster.pod_changed(two, None)
    assert world.cluster.pod_changed(one, bound(one, "b")) == [PodSettled(NodeKey("b"), "one", "planned")]
    world.add(three)
    assert world.assigned("a") == ["three"]
    assert world.assigned("b") == []


def test_a_pod_that_leaves_its_node_gets_no_place_there_in_exchange() -> None:
    """Its brother, who was planned onto that node, takes the place that it was to move to: it is to be planned again."""
    world, one, two = World(), bound(pod("one"), "a"), pod("two")
    world.add(one, two)
    world.existing_node("a", pods=(two,))
    world.existing_node("b")
    world.cluster.node_changed(None, node("a", labels={names.NODEPOOL_LABEL: "general"}, taints=(DISRUPTED,)))
    assert world.cluster.assign(NodeKey("b"), (one,)) == []
    effects = world.cluster.pod_changed(two, bound(two, "b"))
    assert effects == [PodSettled(NodeKey("b"), "two", "planned"), PodSettled(A, "one", "displaced")]
    assert world.assigned("a") == []
    assert [found.name for found in world.cluster.snapshot().leaving] == ["one"]


def test_pods_of_different_owners_do_not_swap() -> None:
    world, one, two = World(), pod("one"), pod("two", owner="other")
    world.add(one, two)
    world.existing_node("a", pods=(one,))
    world.existing_node("b", pods=(two,))
    assert world.cluster.pod_changed(one, bound(one, "b")) == [PodSettled(A, "one", "absorbed")]
    assert world.assigned("b") == ["two"]


def test_a_pod_on_an_unmanaged_node_that_it_was_planned_on_is_on_plan() -> None:
    world, one, key = World(), pod("one"), NodeKey.of_node("n")
    world.add(one)
    world.cluster.node_changed(None, node("n"))
    assert world.cluster.assign(key, (one,)) == []
    assert world.cluster.pod_changed(one, bound(one, "n")) == [PodSettled(key, "one", "planned")]


def test_a_node_and_a_claim_of_one_name_are_not_taken_for_each_other() -> None:
    world, one, two = World(), pod("one"), pod("two")
    world.add(one, two)
    world.cluster.node_changed(None, node("a"))
    world.cluster.claim_changed(None, claim("a"))
    world.cluster.assign(NodeKey.of_node("a"), (one,))
    world.cluster.assign(A, (two,))
    assert [found.name for found in world.view(NodeKey.of_node("a")).assigned] == ["one"]
    assert [found.name for found in world.view("a").assigned] == ["two"]


# --- claims that nobody needs any more -------------------------------------------------------------------------------------


def test_an_unlaunched_claim_that_lost_all_its_pods_is_not_needed() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.cluster.claim_changed(None, claim("a", pods=(one,)))
    world.existing_node("b")
    assert ClaimUnneeded("a") in world.cluster.pod_changed(one, bound(one, "b"))
    assert world.cluster.is_unneeded("a")


def test_a_launched_claim_that_lost_its_pods_stays_for_emptiness_to_judge() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.existing_node("a", pods=(one,))
    world.existing_node("b")
    assert ClaimUnneeded("a") not in world.cluster.pod_changed(one, bound(one, "b"))
    assert not world.cluster.is_unneeded("a")


def test_a_claim_whose_pods_found_places_while_it_was_created_is_not_needed() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.existing_node("b")
    assert world.cluster.announce(announced("a", one), (one,)) is True
    world.cluster.pod_changed(one, bound(one, "b"))
    assert world.cluster.is_unneeded("a")
    assert ClaimUnneeded("a") in world.cluster.claim_written(claim("a", pods=(one,)))


@pytest.mark.parametrize("now", [bound(pod("one"), "b"), None], ids=["was bound", "is gone"])
def test_a_claim_is_not_made_whose_only_pod_while_it_was_planned(now: Pod | None) -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.existing_node("b")
    world.cluster.pod_changed(one, now)
    assert world.cluster.announce(announced("a", one), (one,)) is None
    assert world.cluster.claim("a") is None


def test_what_a_standby_was_told_is_carried_out_by_the_leader_that_it_becomes() -> None:
    world, one = World(), pod("one")
    standby = Cluster(lambda _: {}, world.clock)
    standby.claim_changed(None, claim("a", pods=(one,)))
    standby.pod_changed(None, one)
    standby.settle()
    standby.pod_changed(one, bound(one, "b"))  # nobody carries its effects out
    assert standby.unneeded() == [ClaimUnneeded("a")]


def test_a_claim_whose_pods_were_bound_before_we_started_is_not_needed() -> None:
    world, one = World(), pod("one")
    started = Cluster(lambda _: {}, world.clock)
    started.claim_changed(None, claim("a", pods=(one,)))
    started.node_changed(None, node("b"))
    started.pod_changed(None, bound(one, "b"))
    assert ClaimUnneeded("a") in started.settle()


def test_a_claim_of_unknown_outcome_whose_pods_were_planned_again_is_not_needed() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.cluster.announce(announced("a", one), (one,))
    world.cluster.claim_failed("a")  # the answer was lost
    world.cluster.announce(announced("b", one), (one,))
    assert ClaimUnneeded("a") in world.cluster.claim_changed(None, claim("a", pods=(one,)))
    assert world.assigned("b") == ["one"]


def test_a_claim_of_unknown_outcome_that_shows_itself_in_time_gets_its_pods_back() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.cluster.announce(announced("a", one), (one,))
    world.cluster.claim_failed("a")
    assert world.cluster.claim_changed(None, claim("a", pods=(one,))) == []
    assert world.assigned("a") == ["one"]


def without_pods(mark: str) -> tuple[World, NodeClaim]:
    """A claim whose only pod found another place, with a mark of its launch."""
    world, one = World(), pod("one")
    world.add(one)
    made = claim("a", pods=(one,))
    made.metadata.annotations[names.LAUNCH_ANNOTATION] = mark
    world.cluster.claim_changed(None, made)
    world.existing_node("b")
    assert world.cluster.pod_changed(one, bound(one, "b")) == [PodSettled(A, "one", "absorbed")]
    return world, made


def test_a_claim_that_may_have_an_instance_is_needed_until_its_launch_is_decided() -> None:
    world, made = without_pods("batch/1/0")
    assert world.cluster.unneeded() == []
    assert world.cluster.launch_begins("a") is Launch.BEGIN
    annotations = {names.PLAN_ANNOTATION: made.metadata.annotations[names.PLAN_ANNOTATION]}
    assert world.cluster.claim_changed(made, claim("a", annotations=annotations)) == [ClaimUnneeded("a")]


def test_a_claim_whose_mark_stays_is_not_needed_once_its_provider_said_that_there_is_none() -> None:
    world, _ = without_pods("batch/1/0")
    assert world.cluster.launch_begins("a") is Launch.BEGIN
    world.cluster.launch_refused("a")
    assert world.cluster.unneeded() == [ClaimUnneeded("a")]
    assert world.cluster.launch_begins("a") is Launch.UNNEEDED


def test_a_claim_that_was_made_for_no_pods_is_never_unneeded() -> None:
    world = World()
    assert world.cluster.claim_changed(None, claim("by-hand")) == []
    assert world.cluster.unneeded() == []


def test_a_plan_without_uids_is_shared_among_the_pods_that_wait() -> None:
    pods = tuple(pod(f"p{number}") for number in range(3))
    text = encode_plan(Plan(pods=(PlanEntry(owner="rs", klass=pods[0].shape.key, count=2),)))
    world = World()
    world.add(*pods)
    assert world.cluster.claim_changed(None, claim("a", annotations={names.PLAN_ANNOTATION: text})) == []
    assert world.assigned("a") == ["p0", "p1"]
    assert pending(world) == ["p2"]


# --- names that are taken ---------------------------------------------------------------------------------------------------


def test_a_name_that_is_taken_is_not_announced_and_the_live_node_stays() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.existing_node("a")
    assert world.cluster.announce(announced("a", one), (one,)) is False
    found = world.cluster.claim("a")
    assert found is not None
    assert found.metadata.uid == "uid-a"
    assert world.view("a").initialized
    assert not world.cluster.is_planned("one")


def test_a_claim_of_somebody_else_that_gets_an_announced_name_does_not_get_its_pods() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.cluster.announce(announced("a", one), (one,))
    effects = world.cluster.claim_changed(None, claim("a"))
    assert effects == [PodSettled(A, "one", "lost")]
    assert pending(world) == ["one"]
    world.cluster.claim_failed("a")  # our create call was told that the name is taken
    assert world.cluster.claim("a") is not None


def test_a_create_that_failed_frees_its_pods() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.cluster.announce(announced("a", one), (one,))
    assert world.cluster.is_planned("one")
    world.cluster.claim_failed("a")
    assert pending(world) == ["one"]


# --- nodes that take nobody ---------------------------------------------------------------------------------------------------


def test_a_pod_is_not_planned_onto_a_claim_that_vanished_while_it_was_solved() -> None:
    world, one = World(), pod("one")
    world.add(one)
    assert world.cluster.assign(NodeKey("vanished"), (one,)) == [one]
    assert world.cluster.assign(NodeKey.of_node("vanished"), (one,)) == [one]
    assert pending(world) == ["one"]


GOING: dict[str, dict[str, Any]] = {
    "its claim": {"deletionTimestamp": NOON.isoformat()},
    "its Node": {},
    "the taint of a disruption": {},
}


@pytest.mark.parametrize("what", GOING)
def test_no_pod_is_planned_onto_a_node_that_goes(what: str) -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.existing_node("a", **GOING[what])
    if what == "its Node":
        world.cluster.node_changed(None, node("a", deletionTimestamp=NOON.isoformat()))
    if what == "the taint of a disruption":
        world.cluster.node_changed(None, node("a", taints=(DISRUPTED,)))
    assert world.cluster.assign(A, (one,)) == [one]
    assert not world.cluster.is_planned("one")


def test_no_pod_is_planned_onto_an_instance_whose_node_somebody_took() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.existing_node("a")
    world.cluster.node_changed(world.cluster.node("a"), None)
    assert world.view("a").room.amount("cpu") == 0
    assert world.cluster.assign(A, [one]) == [one]
    world.cluster.node_changed(None, node("a"))  # its kubelet made it again
    assert world.view("a").room["cpu"] == 3900
    assert world.cluster.assign(A, [one]) == []


@pytest.mark.parametrize("warned", [True, False], ids=["is deleted", "is gone without a warning"])
def test_the_pods_of_a_claim_are_planned_again_at_once_when_it(warned: bool) -> None:
    world, one, made = World(), pod("one"), claim("a", pods=(pod("one"),))
    world.add(one)
    world.cluster.claim_changed(None, made)
    assert world.cluster.claim_changed(made, going(made) if warned else None) == [PodSettled(A, "one", "lost")]
    assert pending(world) == ["one"]


@pytest.mark.parametrize("interrupted", [True, False], ids=["for an interruption", "for a disruption that looks again"])
def test_so_are_those_of_a_node_that_is_closed(interrupted: bool) -> None:
    world, one = World(), pod("one")
    world.add(one)
    mark = {names.INTERRUPTION_ANNOTATION: "{}"} if interrupted else {}
    world.existing_node("a", annotations={names.PLAN_ANNOTATION: plan_text((one,)), **mark})
    effects = world.cluster.node_changed(None, node("a", taints=(DISRUPTED,)))
    assert effects == ([PodSettled(A, "one", "lost")] if interrupted else [])
    assert world.cluster.is_planned("one") is not interrupted


@pytest.mark.parametrize("tolerated", [True, False], ids=["who minds it not", "who minds it"])
def test_so_are_those_of_a_node_that_is_cordoned_before_it_is_open(*, tolerated: bool) -> None:
    """As long as a taint that will fall is there, kube-scheduler's word about the cordon does not count."""
    tolerations = (Toleration(key=names.CORDONED_TAINT_KEY, operator="Exists"),) if tolerated else ()
    world, one = World(), pod("one", shape=shape(tolerations=tolerations))
    waits = node("a", taints=(NOT_READY,))
    world.add(one)
    world.cluster.claim_changed(None, claim("a", pods=(one,), provider_id="kwok://a", true=(names.LAUNCHED,)))
    assert world.cluster.node_changed(None, waits) == []
    cordoned = node("a", taints=({"key": names.CORDONED_TAINT_KEY, "effect": names.NO_SCHEDULE}, NOT_READY))
    effects = world.cluster.node_changed(waits, cordoned)
    assert effects == ([] if tolerated else [PodSettled(A, "one", "lost")])
    assert pending(world) == ([] if tolerated else ["one"])


def test_so_are_those_of_an_unmanaged_node_that_is_gone() -> None:
    world, one, key = World(), pod("one"), NodeKey.of_node("n")
    world.add(one)
    world.cluster.node_changed(None, node("n"))
    world.cluster.assign(key, (one,))
    assert world.cluster.node_changed(node("n"), None) == [PodSettled(key, "one", "lost")]


# --- time -------------------------------------------------------------------------------------------------------------------


def test_an_assignment_ends_two_minutes_after_its_node_is_ready() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.existing_node("a", pods=(one,))
    world.clock.advance(119)
    assert world.cluster.expire() == []
    world.clock.advance(2)
    assert world.cluster.expire() == [PodSettled(A, "one", "expired")]
    assert pending(world) == ["one"]


def test_an_assignment_ends_a_quarter_of_an_hour_after_it_was_made_where_its_node_never_gets_ready() -> None:
    world, one = World(), pod("one")
    world.add(one)
    launched = claim("a", pods=(one,), provider_id="kwok://a", true=(names.LAUNCHED,))
    world.cluster.claim_changed(None, launched)
    world.clock.advance(899)
    assert world.cluster.expire() == []
    world.clock.advance(2)
    assert world.cluster.expire() == [PodSettled(A, "one", "expired")]
    assert pending(world) == ["one"]


def test_a_claim_that_is_not_launched_until_its_plan_is_over_is_not_needed() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.cluster.claim_changed(None, claim("a", pods=(one,)))
    world.clock.advance(901)
    assert world.cluster.expire() == [PodSettled(A, "one", "expired"), ClaimUnneeded("a")]


@pytest.mark.parametrize("age", [-3600.0, 3600.0], ids=["goes an hour ahead", "goes an hour behind"])
def test_the_time_of_a_plan_counts_from_what_we_saw_where_the_clock_of_who_wrote_it(age: float) -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.existing_node("a", pods=(one,), age=age)
    world.clock.advance(119)
    assert world.cluster.expire() == []
    world.clock.advance(2)
    assert world.cluster.expire() == [PodSettled(A, "one", "expired")]


def test_a_pod_that_is_planned_onto_an_old_node_has_the_same_time_as_any() -> None:
    world, one = World(), pod("one")
    world.existing_node("a")
    world.clock.advance(3600)
    world.add(one)
    world.cluster.assign(A, (one,))
    world.clock.advance(119)
    assert world.cluster.expire() == []
    world.clock.advance(2)
    assert world.cluster.expire() == [PodSettled(A, "one", "expired")]


# --- successors ---------------------------------------------------------------------------------------------------------------


def test_a_recreated_pod_takes_its_brothers_place() -> None:
    world, one, successor = World(), pod("one"), pod("one-again")
    world.add(one)
    world.cluster.claim_changed(None, claim("a", pods=(one,)))
    world.cluster.pod_changed(one, None)
    world.add(successor)
    assert world.cluster.is_planned("one-again")
    assert world.assigned("a") == ["one-again"]


def test_a_pod_that_was_evicted_while_it_was_planned_leaves_its_place_to_its_successor() -> None:
    """It ends for as long as its grace period is, and its successor comes at once; the room was kept for nobody, and a second node bought."""
    world = World()
    old = msgspec.structs.replace(bound(pod("one"), "going"), deleted=NOON)
    successor = pod("one-again")
    world.cluster.node_changed(None, node("going", deletionTimestamp=NOON.isoformat()))
    world.add(old)
    assert world.cluster.announce(announced("a", old), (old,)) is True
    world.add(successor)
    assert world.cluster.is_planned("one-again")
    assert world.assigned("a") == ["one-again"]


def test_a_successor_that_came_before_the_plan_of_the_evicted_pod_takes_its_place() -> None:
    """Both while a batch was planned. A second node was bought for the successor."""
    world = World()
    old = msgspec.structs.replace(bound(pod("one"), "going"), deleted=NOON)
    world.cluster.node_changed(None, node("going", deletionTimestamp=NOON.isoformat()))
    world.add(old, pod("one-again"), pod("another", owner="other"))
    assert world.cluster.announce(announced("a", old), (old,)) is True
    assert world.cluster.is_planned("one-again")
    assert world.assigned("a") == ["one-again"]


def test_a_place_that_nobody_takes_is_given_back_after_a_while() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.existing_node("a", pods=(one,))
    world.cluster.pod_changed(one, None)
    assert world.view("a").room["cpu"] == 2900
    world.clock.advance(31)
    world.cluster.expire()
    assert world.view("a").room["cpu"] == 3900


# --- room that others took ------------------------------------------------------------------------------------------------------


def test_a_pod_whose_room_others_took_is_planned_again_at_once() -> None:
    world, planned, stranger = World(), pod("planned", cpu="3"), pod("stranger", cpu="2")
    world.add(planned)
    world.existing_node("a", pods=(planned,))
    world.add(bound(stranger, "a"))
    assert world.cluster.expire() == [PodSettled(A, "planned", "displaced")]
    assert pending(world) == ["planned"]


def test_a_cleared_nomination_of_a_planned_pod_is_told() -> None:
    world, one = World(), pod("one")
    nominated = msgspec.structs.replace(one, nominated_node_name="a")
    world.add(nominated)
    world.existing_node("a", pods=(one,))
    assert world.cluster.pod_changed(nominated, one) == [NominationLost("a", one)]


def test_a_new_leader_knows_which_pods_were_nominated_to_their_planned_nodes() -> None:
    """The next that it sees of them is the failed cycle that clears it."""
    world, one, other = World(), pod("one", nominated_node_name="a"), pod("other")
    world.add(one, other)
    world.existing_node("a", pods=(one, other))
    assert [each.nominated for each in world.cluster._plans.assignments.on(A)] == [("one", "a"), ("", "")]


# --- plans that are read --------------------------------------------------------------------------------------------------------


def test_plans_are_read_against_everything_after_a_restart() -> None:
    world, one, two = World(), pod("one"), pod("two")
    restarted = Cluster(lambda _: {}, world.clock)
    restarted.claim_changed(None, claim("a", pods=(one, two), provider_id="kwok://a", true=(names.LAUNCHED,)))
    restarted.node_changed(None, node("a"))
    restarted.pod_changed(None, bound(one, "a"))
    restarted.pod_changed(None, two)
    restarted.settle()
    assert (restarted.is_planned("one"), restarted.is_planned("two")) == (False, True)


def test_of_two_plans_for_one_pod_the_newer_claims_counts_after_a_restart() -> None:
    world, one = World(), pod("one")
    restarted = Cluster(lambda _: {}, world.clock)
    restarted.pod_changed(None, one)
    for name, minute in (("a", 1), ("b", 2)):
        made = NOON.replace(minute=minute).isoformat()
        restarted.claim_changed(None, claim(name, pods=(one,), creationTimestamp=made))
    restarted.settle()
    assert [found.name for found in restarted.assigned(NodeKey("b"))] == ["one"]
    assert restarted.assigned(A) == ()


@pytest.mark.parametrize("launched", [False, True], ids=["is not launched", "is launched"])
@pytest.mark.parametrize("later", [0, 60], ids=["in the same second", "later"])
def test_of_two_plans_for_one_pod_the_newer_claims_counts_for_a_standby_too(later: int, launched: bool) -> None:
    """As leader it deleted the newer one, which the leader had just made."""
    world, one = World(), pod("one")
    world.add(one)
    status: dict[str, Any] = {"provider_id": "kwok://a", "true": (names.LAUNCHED,)} if launched else {}
    old = claim("a", pods=(one,), **status)
    world.cluster.claim_changed(None, old)
    made = (NOON + timedelta(seconds=later)).isoformat()
    world.cluster.claim_changed(None, claim("b", pods=(one,), creationTimestamp=made))
    assert (world.assigned("a"), world.assigned("b")) == ([], ["one"])
    assert world.cluster.unneeded() == ([] if launched else [ClaimUnneeded("a")])
    world.cluster.claim_changed(old, going(old))
    assert world.assigned("b") == ["one"]


def test_a_plan_that_this_process_made_counts_more_than_that_of_another_leader() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.cluster.announce(announced("a", one), (one,))
    world.cluster.claim_written(claim("a", pods=(one,)))
    made = (NOON + timedelta(seconds=60)).isoformat()
    world.cluster.claim_changed(None, claim("b", pods=(one,), creationTimestamp=made))
    assert world.assigned("a") == ["one"]


def test_a_text_that_names_a_successor_moves_nobody_who_was_planned_again_since() -> None:
    """The answer to a write of the plan came after the pod was missed, and planned on an older node."""
    world, one = World(), pod("one")
    world.add(one)
    old = claim("b", creationTimestamp=(NOON - timedelta(seconds=60)).isoformat())
    world.cluster.claim_changed(None, old)
    world.existing_node("a", pods=(one,))
    world.cluster.pod_changed(one, None)
    successor = pod("one-again")
    world.add(successor)
    world.clock.advance(121)
    world.cluster.expire()
    world.cluster.assign(NodeKey("b"), (successor,))
    assert world.assigned("b") == ["one-again"]
    every = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)
    world.cluster.claim_written(claim("a", pods=(successor,), provider_id="kwok://a", true=every))
    assert world.assigned("b") == ["one-again"]


def test_the_places_of_pods_that_are_gone_are_not_kept_on_a_node_that_was_ready_long_ago() -> None:
    world, one, two = World(), pod("one"), pod("two")
    restarted = Cluster(lambda _: {}, world.clock)
    every = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)
    restarted.claim_changed(None, claim("a", pods=(one, two), provider_id="kwok://a", true=every))
    restarted.node_changed(None, node("a"))
    restarted.pod_changed(None, two)
    restarted.settle()
    (view,) = restarted.snapshot().nodes
    assert view.planned == two.shape.requests


def test_a_plan_that_cannot_be_read_leaves_the_claim_in_use() -> None:
    world = World()
    world.cluster.claim_changed(None, claim("a", annotations={names.PLAN_ANNOTATION: "nonsense"}))
    assert not dict(world.view("a").planned)


def test_pods_that_the_leader_adds_to_a_plan_are_planned_for_a_standby_too() -> None:
    world, one, two = World(), pod("one"), pod("two")
    world.add(one, two)
    made = claim("a", pods=(one,))
    world.cluster.claim_changed(None, made)
    world.cluster.claim_changed(made, claim("a", pods=(one, two)))
    assert world.assigned("a") == ["one", "two"]


def test_a_text_that_is_told_again_plans_nobody_a_second_time() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.existing_node("a", pods=(one,))
    world.clock.advance(121)
    world.cluster.expire()
    every = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)
    for _ in range(2):
        text = plan_text((one,)) + " " * _  # other text, the same plan
        annotations = {names.PLAN_ANNOTATION: text}
        world.cluster.claim_changed(None, claim("a", provider_id="kwok://a", true=every, annotations=annotations))
    assert not world.cluster.is_planned("one")


def annotated(existing_node: Node, *pods: Pod) -> Node:
    """The Node with a plan on it."""
    meta = msgspec.structs.replace(existing_node.metadata, annotations={names.PLAN_ANNOTATION: plan_text(pods)})
    return msgspec.structs.replace(existing_node, metadata=meta)


@pytest.mark.parametrize("ours", [True, False], ids=["a node of ours", "a node that is not ours"])
def test_a_plan_that_a_kubelet_writes_on_its_own_node_is_not_read_on(ours: bool) -> None:
    world, one = World(), pod("one")
    world.add(one)
    if ours:
        world.existing_node("a")
    else:
        world.cluster.node_changed(None, node("a"))
    existing_node = world.cluster.node("a")
    assert existing_node is not None
    world.cluster.node_changed(existing_node, annotated(existing_node, one))
    assert not world.cluster.is_planned("one")


# --- plans that are written -------------------------------------------------------------------------------------------------------


def written(world: World) -> dict[str, tuple[int, tuple[str, ...]]]:
    """Count and UIDs by class."""
    return {entry.klass: (entry.count, entry.uids) for entry in world.cluster.plan_of(A).pods}


def test_a_plan_counts_the_brothers_that_are_bound_with_those_to_come() -> None:
    # how its readers tell that a place is taken
    world, here, comes, other = World(), pod("here", node="a"), pod("comes"), pod("other", cpu="2", node="a")
    world.existing_node("a")
    world.add(here, comes, other)
    world.cluster.assign(A, (comes,))
    assert written(world) == {here.shape.key: (2, ("comes", "here"))}


def test_a_plan_keeps_a_place_for_a_successor_without_naming_it() -> None:
    world, one, two = World(), pod("one"), pod("two")
    world.add(one, two)
    world.cluster.claim_changed(None, claim("a", pods=(one, two)))
    world.cluster.pod_changed(one, None)
    assert written(world) == {one.shape.key: (2, ("two",))}


def test_a_plan_of_which_nobody_is_to_come_is_empty() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.existing_node("a", pods=(one,))
    world.cluster.pod_changed(one, bound(one, "a"))
    assert world.cluster.plan_of(A) == Plan()


def test_a_plan_that_we_wrote_is_read_without_harm() -> None:
    world, here, comes = World(), pod("here", node="a"), pod("comes")
    world.existing_node("a")
    world.add(here, comes)
    world.cluster.assign(A, (comes,))
    text = encode_plan(world.cluster.plan_of(A))
    assert decode_plan(text).total == 2
    every = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)
    made = claim("a", provider_id="kwok://a", true=every, annotations={names.PLAN_ANNOTATION: text})
    world.cluster.pod_changed(comes, None)  # before the watch tells what we wrote
    assert world.cluster.claim_written(made) == []
    assert world.view("a").planned == comes.shape.requests, "one place, for the successor"


def test_a_plan_that_somebody_dates_to_the_end_of_time_keeps_no_other_plan_from_being_made() -> None:
    world, one, two = World(), pod("one"), pod("two")
    world.add(one, two)
    dated = plan_text((one,)).replace('"v":1', '"v":1,"plannedAt":"9999-12-31T23:59:59.999999Z"')
    made = claim("a", annotations={names.PLAN_ANNOTATION: dated})
    world.cluster.claim_changed(None, made)
    assert world.cluster.assign(A, [two]) == []
    assert decode_plan(encode_plan(world.cluster.plan_of(A))).total == 1


def told(one: Pod, architectures: str) -> Pod:
    """The pod after the webhook wrote what its images were built for."""
    return msgspec.structs.replace(one, annotations={names.IMAGE_ARCHITECTURES: architectures})


def test_a_waiting_pod_is_planned_again_when_it_becomes_known_where_its_images_run() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.existing_node("a", pods=(one,))
    now = told(one, "arm64")
    assert world.cluster.pod_changed(one, now) == [PodSettled(A, "one", "displaced")]
    assert pending(world) == ["one"]
    world.cluster.pod_changed(now, told(one, "arm64"))
    runs, known = World(), bound(one, "a")
    runs.existing_node("a", pods=(one,))
    runs.cluster.pod_changed(None, known)
    assert runs.cluster.pod_changed(known, told(known, "amd64")) == [], "it runs there already"


@pytest.mark.parametrize(("architectures", "stays"), [("arm64", True), ("amd64,arm64", True), ("amd64", False)])
def test_a_place_on_a_node_that_runs_the_images_is_kept(architectures: str, stays: bool) -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.existing_node("a", pods=(one,))
    plain = node("a", labels={names.NODEPOOL_LABEL: "general"})
    world.cluster.node_changed(plain, node("a", labels={names.NODEPOOL_LABEL: "general", names.ARCH_LABEL: "arm64"}))
    done = world.cluster.pod_changed(one, told(one, architectures))
    assert done == ([] if stays else [PodSettled(A, "one", "displaced")])


# --- nodes of one plan ------------------------------------------------------------------------------------------------


def test_companions_are_claims_of_the_same_plan_that_are_not_let_in() -> None:
    world = World()
    cluster = world.cluster
    assert not cluster.companions_coming(["a"])
    for name in ("a", "b", "c"):
        one = pod(f"pod-of-{name}")
        world.add(one)
        assert cluster.announce(announced(name, one), [one])
        if name != "c":
            cluster.claim_changed(None, claim(name, provider_id=f"kwok://{name}", pods=(one,)))
    assert cluster.companions_coming(["a"])
    assert cluster.companions_coming(["a", "b"]), "the third takes long to launch"
    cluster.launch_refused("c")
    assert not cluster.companions_coming(["a", "b"]), "there is no instance for the third"
    joined = node("b", taints=({"key": names.UNREGISTERED_TAINT.key, "effect": "NoExecute"},))
    cluster.node_changed(None, joined)
    assert cluster.companions_coming(["a"])
    let_in = node("b", taints=({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},))
    cluster.node_changed(joined, let_in)
    assert not cluster.companions_coming(["a"]), "it is let in, and becomes ready when it does"


def test_nodes_that_were_planned_at_another_time_are_no_companions() -> None:
    world = World()
    for name in ("a", "b"):
        one = pod(f"pod-of-{name}")
        world.add(one)
        world.cluster.announce(announced(name, one), [one])
        world.cluster.claim_changed(None, claim(name, provider_id=f"kwok://{name}", pods=(one,)))
        world.clock.advance(5)
    assert not world.cluster.companions_coming(["a"])
