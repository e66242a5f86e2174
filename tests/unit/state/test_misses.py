"""When a plan was not followed, why, and how often pods are planned again."""

from dataclasses import replace

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.command import CandidateRecord, CommandRecord, Replacement
from provisioner.apis.core import Node
from provisioner.apis.pods import Pod
from provisioner.state.effects import Effect, PodMissed, PodSettled
from provisioner.state.keys import NodeKey
from provisioner.state.misses import (
    AVOID_SECONDS,
    LONGEST_STOP_SECONDS,
    OTHER,
    UNANSWERED,
    Look,
    Misses,
    PlanProgress,
    Stop,
    cause_of,
    counted,
    is_evidence,
    is_relative,
    patience,
    verdict,
)
from tests.support.clock import NOON
from tests.support.cluster import World, bound, claim, node, pod
from tests.support.cluster import refused as told
from tests.support.fleets import budget

A = NodeKey("a")
UNREGISTERED = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}
DISRUPTED = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
TAINTED = "0/3 nodes are available: 2 Insufficient cpu, 1 node(s) had untolerated taint(s). no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
SPREAD = "0/3 nodes are available: 1 node(s) didn't match pod topology spread constraints, 2 Insufficient cpu. preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
NO_GROUP = "minCount (4) is not yet satisfied: 2 scheduled, 0 remaining; pod group preemption: no candidates"
BEFORE_IT_JOINED = "0/2 nodes are available: 2 Insufficient cpu."
LOOK = Look(
    open_for=0.1,
    said_then=TAINTED,
    said=SPREAD,
    unschedulable=True,
    least=3,
    nodes=3,
    tainted=0,
    nodes_then=3,
    tainted_then=0,
    waiting=0,
    quiet_for=0.1,
    coming=False,
    older=False,
    came_open=False,
    leaving=False,
    held=False,
    nominated=False,
    grouped=False,
    alive=True,
)

EVIDENCE = {
    "a text that changed after the taint fell": (LOOK, True),
    "the text of then": (replace(LOOK, said=TAINTED), False),
    "a text from before the node opened, as versions tell": (replace(LOOK, older=True), False),
    "no text": (replace(LOOK, said="", unschedulable=False), False),
    "an error of kube-scheduler's own": (replace(LOOK, unschedulable=False), False),
    "a text from before the node joined, that comes late": (
        replace(LOOK, said_then="", said=BEFORE_IT_JOINED),
        False,
    ),
    "a text from before the taint fell, that comes late": (replace(LOOK, said_then="", said=TAINTED), False),
    "a text that counts a node with a taint of its own": (
        replace(LOOK, said_then="", said=TAINTED, tainted=1, tainted_then=1),
        True,
    ),
    "a text from before the taint fell, while another node is tainted": (
        replace(LOOK, said_then="", said=TAINTED, tainted=1),
        False,
    ),
    "a text that counts a node with a taint that joined since": (
        replace(LOOK, said_then="", said=TAINTED.replace("0/3", "0/4"), nodes=4, tainted=1),
        True,
    ),
    "a text of a pod that came later, which counts a node that was tainted then": (
        replace(LOOK, said_then="", said=TAINTED, tainted=1, came_open=True),
        True,
    ),
    "a text from before the taint fell while a new node joined": (
        replace(LOOK, said_then="", said=TAINTED, nodes=4, tainted=1),
        False,
    ),
    "a text after a node went": (
        replace(LOOK, said_then=TAINTED, said=SPREAD.replace("0/3", "0/2"), least=2, nodes=2),
        True,
    ),
    "a change at once of a pod planned onto an old node": (replace(LOOK, least=0), False),
    "a later change of a pod planned onto an old node": (replace(LOOK, least=0, open_for=1.5), True),
    "the words of another scheduler, at once": (replace(LOOK, said="no"), False),
    "the words of another scheduler of a pod that came later": (replace(LOOK, said="no", came_open=True), True),
    "a text of a pod that came later, before the node was seen": (
        replace(LOOK, said_then="", said=BEFORE_IT_JOINED, came_open=True),
        False,
    ),
    "the words of another scheduler, later": (replace(LOOK, said="no", open_for=1.5), True),
}


@pytest.mark.parametrize(("look", "want"), EVIDENCE.values(), ids=EVIDENCE.keys())
def test_a_refusal_is_shown_by(look: Look, want: bool) -> None:
    assert is_evidence(look) is want


def waited(look: Look, seconds: float, quiet: float | None = None, waiting: int = 0) -> Look:
    """A look so long after the node opened, and so long after anything was done for the pods that were planned."""
    return replace(look, open_for=seconds, quiet_for=seconds if quiet is None else quiet, waiting=waiting)


def test_who_gets_no_answer_is_missed_after_fifteen_seconds_and_a_fiftieth_for_each_pod_that_waited() -> None:
    silent = replace(LOOK, said=TAINTED)
    for waiting, seconds in ((0, 15.0), (1000, 35.0)):
        assert patience(waiting) == seconds
        assert verdict(waited(silent, seconds, waiting=waiting)) is None
        assert verdict(waited(silent, seconds + 0.1, waiting=waiting)) == UNANSWERED
    assert verdict(replace(waited(silent, 1000.0), alive=False)) is None, "a scheduler that does nothing refuses nobody"


def test_a_scheduler_that_is_merely_slow_misses_nobody_while_it_binds_who_was_planned_before() -> None:
    """On a loaded machine 65 of 1,000 pods were given up while kube-scheduler was still binding those before them."""
    silent = replace(LOOK, said=TAINTED)
    assert verdict(waited(silent, 100.0, 15.0)) is None
    assert verdict(waited(silent, 100.0, 15.1)) == UNANSWERED


HELD = SPREAD.replace("2 Insufficient cpu", "2 waiting for its own room on a")
FRIENDS = HELD.replace("topology spread constraints", "pod affinity rules")
NO_MEMORY = HELD.replace("node(s) didn't match pod topology spread constraints", "Insufficient memory")
BESIDE_SPREAD = "0/3 nodes are available: 2 node(s) didn't match pod topology spread constraints, 1 node(s) had untolerated taint(s)."
NO_VOLUME = BESIDE_SPREAD.replace("1 node(s) had untolerated taint(s)", "1 node(s) exceed max volume count")
TURNS = {
    "a spread that others must fill first, while its room is held": (replace(LOOK, said=HELD), None),
    "the same, with more time for each pod that waited": (waited(replace(LOOK, said=HELD), 6.9, waiting=100), None),
    "the same, when everybody had time enough": (waited(replace(LOOK, said=HELD), 5.1), "topology_spread"),
    "the same, while others are being bound": (waited(replace(LOOK, said=HELD), 60.0, 4.9), None),
    "the same, while the other nodes are coming": (waited(replace(LOOK, said=HELD, coming=True), 60.0), None),
    "friends who must be there first": (replace(LOOK, said=FRIENDS), None),
    "a spread that others must fill first, while its nomination holds its room": (replace(LOOK, nominated=True), None),
    "the same, when everybody had time": (waited(replace(LOOK, nominated=True), 5.1), "topology_spread"),
    "the same, though thousands wait: it is nominated no longer": (
        waited(replace(LOOK, nominated=True), 15.1, waiting=8_000),
        "topology_spread",
    ),
    "a volume that does not fit, where a spread had refused other nodes before": (
        replace(LOOK, said_then=BESIDE_SPREAD, said=NO_VOLUME, nominated=True),
        "volumes",
    ),
    "a spread, where nobody holds its room": (LOOK, "topology_spread"),
    "a spread, where nobody holds its room and the other nodes are coming": (replace(LOOK, coming=True), None),
    "a spread, while the nodes that its pods leave are still domains": (replace(LOOK, leaving=True), None),
    "the same, while others have moved within the minute": (waited(replace(LOOK, leaving=True), 600.0, 60.0), None),
    "the same, when nobody has": (waited(replace(LOOK, leaving=True), 600.0, 60.1), "topology_spread"),
    "a spread, where the others may not leave before it is bound": (
        waited(replace(LOOK, leaving=True, held=True), 600.0, 5.0),
        None,
    ),
    "the same, when every caller had time": (
        waited(replace(LOOK, leaving=True, held=True), 600.0, 5.1),
        "topology_spread",
    ),
    "what is said of its group, while the other nodes are coming": (
        waited(replace(LOOK, said=NO_GROUP, grouped=True, coming=True), 600.0),
        None,
    ),
    "the same, while kube-scheduler may still try it with all of them": (
        waited(replace(LOOK, said=NO_GROUP, grouped=True), 600.0, 14.9),
        None,
    ),
    "the same, when it had time": (waited(replace(LOOK, said=NO_GROUP, grouped=True), 600.0, 15.1), "other"),
    "too little room, whatever nodes are left": (
        replace(LOOK, said_then="", said=NO_MEMORY, leaving=True),
        "resources",
    ),
    "too little room, which no pod that comes will mend": (replace(LOOK, said_then="", said=NO_MEMORY), "resources"),
    "too little room, whatever nodes are coming": (
        replace(LOOK, said_then="", said=NO_MEMORY, coming=True),
        "resources",
    ),
}


@pytest.mark.parametrize(("look", "want"), TURNS.values(), ids=TURNS)
def test_a_pod_that_others_must_precede_gets_its_turn(look: Look, want: str | None) -> None:
    assert is_evidence(look)
    assert verdict(look) == want


CAUSES = {
    "what replaced the taint": (TAINTED, SPREAD, "topology_spread"),
    "what is new": ("", "0/1 nodes are available: 1 Insufficient memory.", "resources"),
    "the most frequent": (
        "",
        "0/5 nodes are available: 1 Insufficient cpu, 4 node(s) didn't match pod anti-affinity rules.",
        "pod_affinity",
    ),
    "the rarest of equal ones": (
        "",
        "0/2 nodes are available: 1 Too many pods, 1 node(s) had volume node affinity conflict.",
        "volumes",
    ),
    "a port": (
        "",
        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.",
        "host_ports",
    ),
    "a selector": (
        "",
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",
        "node_affinity",
    ),
    "a hold of the extender": ("", "0/1 nodes are available: 1 held for planned pods.", "held"),
    "a feature": ("", "0/1 nodes are available: 1 node(s) didn't match Pod's required features.", "features"),
    "a CSI driver": (
        "",
        "0/1 nodes are available: 1 disk.example.com CSI driver is not installed on the node.",
        "volumes",
    ),
    "what it says before a preemption, in 1.37": (
        "",
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s). preemption: found a potential placement for pod on node volume-1, preempting 2 victims",
        "resources",
    ),
    "a cordon": ("", "0/1 nodes are available: 1 node(s) were unschedulable.", "cordoned"),
    "a text that nobody knows": ("", "0/1 nodes are available: 1 the moon.", OTHER),
    "no text": ("", "", OTHER),
}


@pytest.mark.parametrize(("before", "after", "want"), CAUSES.values(), ids=CAUSES.keys())
def test_the_cause_is(before: str, after: str, want: str) -> None:
    assert cause_of(before, after) == want


PREEMPTS = (
    "",
    " preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling.",
    " preemption: found a potential placement for pod on node a, preempting 2 victims",
    " no new claims to deallocate, preemption: found a potential placement for pod on node a, preempting 2 victims",
)
"""What kube-scheduler says of preemption: nothing, that it was of no use, and, from 1.37 on, that it goes on. Source: plugin DefaultPreemption."""


@pytest.mark.parametrize("ending", PREEMPTS)
def test_what_is_said_of_preemption_is_no_cause_and_is_not_counted(ending: str) -> None:
    text = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s)."
    assert counted(text + ending) == counted(text) == (3, 2)
    assert not is_relative(text + ending)
    for before, after in ((TAINTED, SPREAD), ("", text), (text, SPREAD)):
        bare = [one.partition(" no new claims")[0].partition(" preemption")[0] for one in (before, after)]
        assert cause_of(bare[0] + ending, bare[1]) == cause_of(bare[0], bare[1] + ending) == cause_of(*bare)
    assert verdict(replace(LOOK, said=SPREAD.partition(" preemption")[0] + ending)) == "topology_spread"


# --- planning again, within bounds -----------------------------------------------------------------------------------------


def miss(book: Misses, at: float, *, planned_at: float | None = None, uid: str = "p", node: str = "n") -> Stop | None:
    return book.missed(uid, "class", node, "said", at - 1 if planned_at is None else planned_at, at)


def test_a_pod_avoids_the_node_for_a_while() -> None:
    book = Misses()
    miss(book, 0.0)
    assert book.avoided(1.0) == {"p": frozenset({"n"})}
    assert book.avoided(AVOID_SECONDS + 1) == {}
    book.gone("p")
    assert book.avoided(1.0) == {}


def test_a_pod_avoids_so_many_nodes_at_most() -> None:
    book = Misses()
    for number in range(100):
        miss(book, float(number), node=f"n{number}")
    (nodes,) = book.avoided(100.0).values()
    assert nodes == {f"n{number}" for number in range(84, 100)}


def test_three_plans_in_a_row_that_fail_stop_new_nodes_for_twice_as_long_each_time() -> None:
    book, now = Misses(), 0.0
    assert [miss(book, 1.0), miss(book, 2.0)] == [None, None]
    stops = []
    for _ in range(9):
        now += 10.0
        stop = miss(book, now)
        assert stop is not None
        stops.append(stop.seconds)
        assert set(book.stopped(now + stop.seconds - 0.1)) == {"class"}
        now += stop.seconds
        assert book.stopped(now) == {}
    assert stops == [30.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1800.0, 1800.0, 1800.0]


def test_pods_of_one_plan_that_are_missed_together_count_once() -> None:
    book = Misses()
    assert [miss(book, 5.0, planned_at=0.0, uid=f"p{number}") for number in range(96)] == [None] * 96
    assert miss(book, 6.0, planned_at=5.5) is None
    assert miss(book, 7.0, planned_at=6.5) is not None


def test_a_pod_that_is_bound_as_planned_clears_its_class() -> None:
    book = Misses()
    for at in (1.0, 2.0):
        miss(book, at)
    book.landed("class")
    assert miss(book, 3.0) is None
    miss(book, 4.0)
    assert miss(book, 5.0) is not None
    book.landed("class")
    assert book.stopped(5.1) == {}


def test_what_is_over_is_forgotten() -> None:
    book = Misses()
    for number in range(20_000):
        book.missed(f"p{number}", f"class-{number}", "n", "", 0.0, number / 1000)
    assert len(book._classes) == 10_000
    book.forget_old(20.0 + LONGEST_STOP_SECONDS + AVOID_SECONDS)
    assert (book._classes, book._avoided) == ({}, {})


# --- in the state ------------------------------------------------------------------------------------------------------------


def arranged(*, said: str = TAINTED) -> tuple[World, Pod]:
    """Two other nodes, and a pod planned for the claim `a`, whose Node has joined with its taint."""
    world, one = World(), told(pod("one"), BEFORE_IT_JOINED)
    for name in ("x", "y"):
        world.cluster.node_changed(None, node(name))
    world.add(one)
    world.cluster.claim_changed(None, claim("a", pods=(one,), provider_id="kwok://a", true=(names.LAUNCHED,)))
    world.cluster.node_changed(None, node("a", taints=(UNREGISTERED,)))
    seen = told(one, said)
    world.cluster.pod_changed(one, seen)
    return world, seen


def fall(world: World, opened: Node | None = None) -> list[Effect]:
    """Our watch tells that the taint is gone; `opened`: the Node since."""
    return world.cluster.node_changed(world.cluster.node("a"), opened or node("a"))


def test_a_pod_whose_text_changes_after_the_taint_fell_is_planned_again_at_once_and_not_there() -> None:
    world, one = arranged()
    assert fall(world) == []
    refused = told(one, SPREAD)
    effects = world.cluster.pod_changed(one, refused)
    assert effects == [PodMissed(A, refused, "topology_spread"), PodSettled(A, "one", "missed")]
    snapshot = world.cluster.snapshot()
    assert snapshot.pending == (refused,)
    assert snapshot.avoided == {"one": frozenset({"a"})}
    assert world.view("a").room["cpu"] == 3900, "the room goes back"


def test_a_pod_whose_room_is_held_until_others_are_bound_is_not_missed_at_once() -> None:
    """On a slow machine the nodes of a plan open seconds apart: of 100 pods six were planned again, and found other places."""
    world, one = arranged()
    fall(world)
    refused = told(one, HELD)
    assert world.cluster.pod_changed(one, refused) == []
    world.clock.advance(4)
    assert world.cluster.expire() == []
    assert world.cluster.is_planned("one")
    world.clock.advance(2)
    assert world.cluster.expire() == [
        PodMissed(A, refused, "topology_spread"),
        PodSettled(A, "one", "missed"),
    ]


def test_a_pod_is_unanswered_from_when_its_node_opens_until_its_scheduler_says_something_about_that() -> None:
    world, one = arranged()
    assert not world.cluster.is_unanswered("one"), "the node has its taint"
    fall(world)
    assert world.cluster.is_unanswered("one")
    late = told(one, BEFORE_IT_JOINED)
    world.cluster.pod_changed(one, late)
    assert world.cluster.is_unanswered("one"), "what is said is from before"
    world.cluster.pod_changed(late, told(one, HELD))
    assert world.cluster.is_planned("one")
    assert not world.cluster.is_unanswered("one")


def test_a_pod_is_not_unanswered_on_a_node_that_was_open_before_it_was_planned_there() -> None:
    """Its scheduler may have nothing new to say."""
    world, one = World(), told(pod("one"), BEFORE_IT_JOINED)
    world.existing_node("a", pods=())
    world.add(one)
    world.clock.advance(5)
    world.cluster.assign(A, [one])
    assert not world.cluster.is_unanswered("one")
    world, one = arranged()
    fall(world)
    world.clock.advance(1)
    world.add(told(pod("two"), BEFORE_IT_JOINED))
    world.cluster.assign(A, [pod("two")])
    assert world.cluster.is_planned("two")
    assert not world.cluster.is_unanswered("two")


def crowd(world: World, *uids: str) -> list[Pod]:
    """Pods planned for the claim `b`, in the same moment; its Node has joined with its taint."""
    pods = [pod(uid) for uid in uids]
    world.add(*pods)
    world.cluster.claim_changed(None, claim("b", pods=tuple(pods), provider_id="kwok://b", true=(names.LAUNCHED,)))
    world.cluster.node_changed(None, node("b", taints=(UNREGISTERED,)))
    return pods


def outcomes(effects: list[Effect]) -> list[str]:
    return [effect.outcome for effect in effects if isinstance(effect, PodSettled)]


def test_a_pod_whose_turn_comes_after_others_is_not_missed_while_they_are_bound() -> None:
    """The demo's: 27 pods of a zone spread were planned again in the moment in which the last of the others was bound."""
    world, one = arranged()
    others = crowd(world, *"stuvwxyz")
    fall(world)
    world.cluster.node_changed(world.cluster.node("b"), node("b"))
    refused = told(one, HELD.replace("0/3", "0/4"))
    assert world.cluster.pod_changed(one, refused) == []
    for other in others:
        world.clock.advance(3)
        assert outcomes(world.cluster.expire()) == []
        world.cluster.pod_changed(other, bound(other, "b"))
    world.clock.advance(4)
    assert outcomes(world.cluster.expire()) == []
    world.clock.advance(2)
    assert outcomes(world.cluster.expire()) == ["missed"]


def test_a_pod_without_an_answer_is_not_missed_while_its_scheduler_binds_those_planned_with_it() -> None:
    world, _ = arranged()
    others = crowd(world, *"stuvwxyz")
    fall(world)
    world.cluster.node_changed(world.cluster.node("b"), node("b"))
    for other in others:
        world.clock.advance(10)
        assert outcomes(world.cluster.expire()) == []
        world.cluster.pod_changed(other, bound(other, "b"))
    world.clock.advance(14)
    assert outcomes(world.cluster.expire()) == []
    world.clock.advance(2)
    assert outcomes(world.cluster.expire()) == ["missed"]


def test_pods_that_are_planned_later_keep_nobody_waiting() -> None:
    world, _ = arranged()
    world.clock.advance(5)
    others = crowd(world, *"stuvwxyz")
    fall(world)
    world.cluster.node_changed(world.cluster.node("b"), node("b"))
    missed = []
    for other in others:
        world.clock.advance(2)
        missed += outcomes(world.cluster.expire())
        world.cluster.pod_changed(other, bound(other, "b"))
    assert missed == ["missed"]


@pytest.mark.parametrize("text", [HELD, SPREAD], ids=["with an extender", "without"])
def test_a_pod_that_others_must_precede_waits_for_their_nodes(text: str) -> None:
    """Nodes boot many seconds apart: until the other zone's node takes pods a hard spread refuses this one."""
    world, one = arranged()
    crowd(world, "other")
    fall(world)
    assert world.cluster.pod_changed(one, told(one, text.replace("0/3", "0/4").replace("1 node(s)", "2 node(s)"))) == []
    world.clock.advance(60)
    assert outcomes(world.cluster.expire()) == []
    world.cluster.node_changed(world.cluster.node("b"), node("b"))
    world.clock.advance(6)
    assert outcomes(world.cluster.expire()) == ["missed"]


def test_a_pod_that_moves_waits_for_the_node_that_it_leaves() -> None:
    """A node that drains is a topology domain with ever fewer pods until its Node is gone: a fourth node was bought for a pod of a hard spread."""
    world, one = arranged()
    world.existing_node("old")
    record = CommandRecord(
        id="id",
        reason="Drifted",
        method="drift",
        candidates=(CandidateRecord("old", "uid-old"),),
        replacements=(Replacement("a"),),
    )
    assert world.cluster.command_begun(record)
    fall(world)
    refused = told(one, SPREAD.replace("0/3", "0/4").replace("1 node(s)", "2 node(s)"))
    assert outcomes(world.cluster.pod_changed(one, refused)) == []
    world.clock.advance(30)
    assert outcomes(world.cluster.expire()) == []
    world.cluster.command_dropped(record)
    assert outcomes(world.cluster.expire()) == ["missed"]


def moving(*uids: str, existing: bool = False) -> tuple[World, list[Pod]]:
    """A command that moves these pods from `old` to `a`, a replacement or a node that was there already; both are open."""
    world, pods = World(), [pod(uid, node="old") for uid in uids]
    world.existing_node("old")
    world.add(*pods)
    record = CommandRecord(
        id="id",
        reason="Drifted",
        method="drift",
        candidates=(CandidateRecord("old", "uid-old"),),
        replacements=() if existing else (Replacement("a"),),
    )
    assert world.cluster.command_begun(record)
    world.existing_node("a", pods=() if existing else tuple(pods))
    world.cluster.assign(A, pods)
    return world, pods


def planned_ahead(*uids: str) -> tuple[World, list[Pod]]:
    """Pods of a Node `old` that is tainted, for which the claim `a` was planned: its Node has joined with its taint."""
    world, pods = World(), [pod(uid, node="old") for uid in uids]
    world.cluster.node_changed(None, node("old", taints=(DISRUPTED,)))
    world.add(*pods)
    world.cluster.claim_changed(None, claim("a", pods=tuple(pods), provider_id="kwok://a", true=(names.LAUNCHED,)))
    world.cluster.node_changed(None, node("a", taints=(UNREGISTERED,)))
    return world, pods


def evict(world: World, one: Pod) -> Pod:
    """Its successor, which is there while it still ends."""
    world.cluster.pod_changed(one, msgspec.structs.replace(one, deleted=NOON))
    successor = pod(f"{one.uid}-again")
    world.add(successor)
    assert world.cluster.is_planned(successor.uid)
    return successor


def pass_by(world: World, seconds: int) -> list[Effect]:
    """What housekeeping does meanwhile, while kube-scheduler binds pods of somebody else."""
    done: list[Effect] = []
    for second in range(seconds):
        world.clock.advance(1)
        other = pod(f"other-{world.clock.monotonic()}-{second}", owner="other", cpu="1m")
        world.add(other)
        world.cluster.pod_changed(other, bound(other, "elsewhere"))
        done += world.cluster.expire()
    return done


@pytest.mark.parametrize("seconds", [40, 130])
def test_the_successor_of_a_pod_whose_eviction_took_long_has_the_time_of_any(seconds: int) -> None:
    """A PodDisruptionBudget let the pod go when its place was older than kube-scheduler's patience, or than the plan."""
    world, (one,) = moving("one")
    assert pass_by(world, seconds) == []
    evict(world, one)
    world.clock.advance(0.02)
    assert world.cluster.expire() == []
    assert pass_by(world, 14) == []
    assert outcomes(pass_by(world, 2)) == ["missed"]


def test_a_place_waits_for_the_successor_of_a_pod_whose_eviction_took_long() -> None:
    """That of a StatefulSet's pod comes only after the pod is gone."""
    world, (one,) = moving("one")
    pass_by(world, 130)
    world.cluster.pod_changed(one, None)
    assert pass_by(world, 5) == []
    world.add(pod("one-again"))
    assert world.cluster.is_planned("one-again")
    assert pass_by(world, 15) == []


def test_pods_that_never_run_do_not_keep_a_place_by_following_each_other() -> None:
    world, (one,) = moving("one")
    waiting = evict(world, one)
    for number in range(20):
        world.cluster.pod_changed(waiting, None)
        waiting = pod(f"one-{number}")
        world.add(waiting)
        pass_by(world, 10)
    assert not world.cluster.is_planned(waiting.uid)


@pytest.mark.parametrize("existing", [False, True], ids=["to a replacement", "to a node that was there"])
def test_each_successor_waits_a_minute_for_the_node_that_it_leaves(existing: bool) -> None:
    world, (one,) = moving("one", existing=existing)
    pass_by(world, 70)
    successor = evict(world, one)
    refused = told(successor, SPREAD.replace("0/3", "0/2"))
    assert world.cluster.pod_changed(successor, refused) == []
    assert pass_by(world, 59) == []
    assert outcomes(pass_by(world, 2)) == ["missed"]


@pytest.mark.parametrize(
    ("allowed", "seconds"), [(0, 5), (1, 59)], ids=["which must not leave before", "which may leave, too"]
)
def test_a_successor_waits_for_another_pod(allowed: int, seconds: int) -> None:
    """What is legal only once the other has left is waited for as long as it may leave."""
    world, (one, *_) = moving("one", "other")
    world.cluster.budget_changed(None, budget("all", "", allowed, selector={}))
    successor = evict(world, one)
    world.cluster.pod_changed(msgspec.structs.replace(one, deleted=NOON), None)
    refused = told(successor, SPREAD.replace("0/3", "0/2"))
    assert world.cluster.pod_changed(successor, refused) == []
    assert pass_by(world, seconds) == []
    assert outcomes(pass_by(world, 2)) == ["missed"]


@pytest.mark.parametrize("existing", [False, True], ids=["to a replacement", "to a node that was there"])
def test_it_waits_no_longer_once_that_is_gone(existing: bool) -> None:
    world, (one,) = moving("one", existing=existing)
    successor = evict(world, one)
    assert world.cluster.pod_changed(successor, told(successor, SPREAD.replace("0/3", "0/2"))) == []
    world.cluster.claim_changed(world.cluster.claim("old"), None)
    world.cluster.node_changed(world.cluster.node("old"), None)
    assert outcomes(world.cluster.expire()) == ["missed"]


def test_a_successor_that_has_too_little_room_is_missed_at_once() -> None:
    world, (one,) = moving("one", existing=True)
    successor = evict(world, one)
    refused = told(successor, NO_MEMORY.replace("0/3", "0/2"))
    assert world.cluster.pod_changed(successor, refused)[0] == PodMissed(A, refused, "resources")


def test_a_refusal_that_our_watch_tells_late_was_written_before_the_node_opened() -> None:
    """The pods' watch lags: the successor was refused while the taint of its new node was there still, and another Node has one since."""
    world, (one,) = planned_ahead("one")
    world.cluster.node_changed(None, node("x"))
    early = pod("one-again")
    refused = told(early, "0/3 nodes are available: 1 Insufficient memory, 2 node(s) had untolerated taint(s).")
    fall(world)
    world.cluster.node_changed(world.cluster.node("x"), node("x", taints=(DISRUPTED,)))
    world.cluster.pod_changed(one, None)
    world.add(early)
    assert world.cluster.is_planned("one-again")
    assert outcomes(world.cluster.pod_changed(early, refused)) == []
    again = told(refused, refused.scheduled_message.replace("1 Insufficient memory", "1 Insufficient cpu"))
    assert outcomes(world.cluster.pod_changed(refused, again)) == ["missed"]


def test_a_successor_that_was_created_after_the_node_had_opened_is_judged_with_it_in_sight() -> None:
    world, (one,) = planned_ahead("one")
    fall(world)
    world.cluster.pod_changed(one, None)
    late = pod("one-again")
    world.add(late)
    refused = told(late, "0/2 nodes are available: 1 node(s) had untolerated taint(s), 1 Insufficient memory.")
    assert outcomes(world.cluster.pod_changed(late, refused)) == ["missed"]


def test_a_node_is_coming_for_every_batch_whose_pods_were_planned_for_it() -> None:
    """The node of the other zone was bought for an earlier batch, and a pod of this batch is to fill it too."""
    world = World()
    early = crowd(world, "other")
    world.clock.advance(30)
    for name in ("x", "y"):
        world.cluster.node_changed(None, node(name))
    one, beside = pod("one"), pod("beside")
    world.add(one)
    world.add(beside)
    world.cluster.claim_changed(None, claim("a", pods=(one,), provider_id="kwok://a", true=(names.LAUNCHED,)))
    assert world.cluster.assign(NodeKey("b"), [beside]) == []
    world.cluster.node_changed(None, node("a", taints=(UNREGISTERED,)))
    fall(world)
    refused = told(one, SPREAD.replace("0/3", "0/4").replace("1 node(s)", "2 node(s)"))
    assert outcomes(world.cluster.pod_changed(one, refused)) == []
    world.cluster.pod_changed(beside, bound(beside, "y"))
    world.clock.advance(6)
    assert outcomes(world.cluster.expire()) == ["missed"], "nobody of its batch is to come any more"
    assert early


def test_a_member_of_a_group_on_a_node_that_was_there_waits_for_the_nodes_of_the_others() -> None:
    world = World()
    world.existing_node("x")
    gang = {names.GANG: "train", names.GANG_MINIMUM: "2"}
    one, other = (pod(name, annotations=gang) for name in ("one", "other"))
    world.add(one, other)
    world.cluster.assign(NodeKey("x"), [one])
    world.cluster.claim_changed(None, claim("a", pods=(other,), provider_id="kwok://a", true=(names.LAUNCHED,)))
    world.cluster.node_changed(None, node("a", taints=(UNREGISTERED,)))
    world.clock.advance(60)
    refused = told(one, NO_GROUP)
    assert outcomes(world.cluster.pod_changed(one, refused)) == []
    assert pass_by(world, 30) == []
    fall(world)
    assert pass_by(world, 14) == []
    assert outcomes(pass_by(world, 2)) == ["missed", "missed"]


def test_nodes_of_other_plans_that_never_come_keep_nobody_waiting() -> None:
    world = World()
    crowd(world, "other")
    world.clock.advance(5)
    for name in ("x", "y"):
        world.cluster.node_changed(None, node(name))
    one = pod("one")
    world.add(one)
    world.cluster.claim_changed(None, claim("a", pods=(one,), provider_id="kwok://a", true=(names.LAUNCHED,)))
    world.cluster.node_changed(None, node("a", taints=(UNREGISTERED,)))
    fall(world)
    refused = told(one, SPREAD.replace("0/3", "0/4").replace("1 node(s)", "2 node(s)"))
    assert outcomes(world.cluster.pod_changed(one, refused)) == ["missed"]


def test_the_steps_of_progress_are_bounded_and_the_latest_of_who_was_planned_before_counts() -> None:
    progress = PlanProgress()
    for number in range(5_000):
        progress.note(float(number), number + 100.0)
    assert len(progress._steps) == 1_000
    assert progress.last(4_500.0) == 4_601.0, "what is planned a second later belongs to the same batch"
    progress.note(4_500.0, 9_000.0)
    assert [progress.last(at) for at in (4_999.0, 4_500.0, 4_499.0, 4_400.0)] == [9_000.0, 9_000.0, 9_000.0, 4_501.0]
    assert progress.last(-10.0) == float("-inf")


def test_a_text_from_before_the_taint_fell_ends_nothing() -> None:
    world, one = arranged(said=BEFORE_IT_JOINED)
    fall(world)
    late = told(one, TAINTED)
    assert world.cluster.pod_changed(one, late) == []
    assert world.cluster.is_planned("one")
    refused = told(one, SPREAD)
    assert world.cluster.pod_changed(late, refused)[0] == PodMissed(A, refused, "topology_spread")


def test_a_verdict_that_is_there_before_our_watch_tells_the_fall_counts() -> None:
    world, one = arranged(said=TAINTED)
    opened = node("a")
    world.cluster.pod_changed(one, told(one, SPREAD))
    fall(world, opened)
    assert [effect.outcome for effect in world.cluster.expire() if isinstance(effect, PodSettled)] == ["missed"]


def test_also_where_nodes_joined_after_the_planned_one() -> None:
    """Of twelve nodes the fifth to join opened after kube-scheduler had refused its pod: the pod waited for 22 s."""
    world, one = arranged(said=TAINTED)
    world.cluster.node_changed(None, node("z"))
    opened = node("a")
    world.cluster.pod_changed(one, told(one, SPREAD.replace("0/3", "0/4")))
    fall(world, opened)
    assert [effect.outcome for effect in world.cluster.expire() if isinstance(effect, PodSettled)] == ["missed"]


@pytest.mark.parametrize(
    "said", [SPREAD, TAINTED.replace("0/3", "0/4")], ids=["without the last node", "with the taint"]
)
def test_not_where_the_verdict_may_be_older_than_the_fall(said: str) -> None:
    world, one = arranged(said=TAINTED)
    world.cluster.node_changed(None, node("z"))
    world.cluster.pod_changed(one, told(one, said))
    fall(world)
    assert world.cluster.expire() == []


def test_not_where_another_node_is_tainted_since() -> None:
    """Empty nodes were being removed while a new one opened: its pod got a second one, and the first went unused."""
    world, one = arranged(said=BEFORE_IT_JOINED)
    fall(world)
    world.cluster.node_changed(world.cluster.node("y"), node("y", taints=(DISRUPTED,)))
    assert world.cluster.pod_changed(one, told(one, TAINTED)) == []
    assert world.cluster.is_planned("one")


def test_a_taint_that_comes_back_stops_the_clock() -> None:
    world, one = arranged()
    fall(world)
    other = pod("other")
    world.add(other)
    world.cluster.pod_changed(other, bound(other, "x"))
    world.cluster.node_changed(None, node("a", taints=(UNREGISTERED,)))
    world.clock.advance(60)
    assert world.cluster.expire() == []
    assert world.cluster.is_planned(one.uid)


def test_a_pod_without_an_answer_is_missed_once_its_scheduler_has_done_something_since() -> None:
    world, one = arranged()
    fall(world)
    world.clock.advance(16)
    assert world.cluster.expire() == [], "kube-scheduler may be away"
    other = pod("other")
    world.add(other)
    world.cluster.pod_changed(other, bound(other, "x"))
    assert world.cluster.expire() == [PodMissed(A, one, UNANSWERED), PodSettled(A, "one", "missed")]


def test_a_pod_that_its_creator_bound_shows_nothing_of_the_scheduler() -> None:
    world, _ = arranged()
    fall(world)
    world.add(pod("pinned", node="x"))
    world.clock.advance(16)
    assert world.cluster.expire() == []


def test_after_three_plans_that_failed_the_class_is_not_planned_for_a_while() -> None:
    world, one = arranged()
    fall(world)
    effects: list[Effect] = []
    for number in range(3):
        effects = world.cluster.pod_changed(one, told(one, f"{SPREAD} {number}"))
        world.clock.advance(2)
        assert world.cluster.assign(A, (one,)) == []
        world.clock.advance(2)  # an old node by now
    (missed, _) = effects
    assert isinstance(missed, PodMissed)
    assert missed.stop == Stop(3, 30.0, f"{SPREAD} 2")
    assert set(world.cluster.snapshot().stopped) == {one.shape.key}
    world.clock.advance(30)
    assert world.cluster.snapshot().stopped == {}


@pytest.mark.parametrize("first", ["binding", "refusal"])
def test_plans_that_are_followed_with_equal_pods_that_came_later_stop_nobody(first: str) -> None:
    """Seen where nodes took four seconds: each was taken by a pod that had just come, for the planned one was backing off.

    kube-scheduler binds beside its next cycle, so either may be seen first.
    """
    world, one = arranged()
    fall(world)
    for number in range(4):
        newcomer = pod(f"new-{number}")
        world.add(newcomer)
        if first == "binding":
            world.cluster.pod_changed(newcomer, bound(newcomer, "a"))
        (missed, *_) = world.cluster.pod_changed(one, told(one, f"{SPREAD} {number}"))
        assert isinstance(missed, PodMissed)
        assert missed.stop is None
        if first == "refusal":
            world.cluster.pod_changed(newcomer, bound(newcomer, "a"))
        world.clock.advance(2)
        world.cluster.assign(A, (one,))
        world.clock.advance(2)
    assert world.cluster.snapshot().stopped == {}


def test_who_is_bound_long_after_where_others_were_missed_does_not_say_that_plans_are_followed() -> None:
    """Nodes that somebody taints for their first minute take pods in the end; until then one after another would be launched."""
    world, one = arranged()
    fall(world)
    for number in range(3):
        world.cluster.pod_changed(one, told(one, f"{SPREAD} {number}"))
        world.clock.advance(6)
        newcomer = pod(f"new-{number}")
        world.add(newcomer)
        world.cluster.pod_changed(newcomer, bound(newcomer, "a"))
        world.cluster.assign(A, (one,))
        world.clock.advance(2)
    assert len(world.cluster.snapshot().stopped) == 1


def test_a_pod_that_is_bound_avoids_nothing_any_more() -> None:
    world, one = arranged()
    fall(world)
    refused = told(one, SPREAD)
    world.cluster.pod_changed(one, refused)
    world.cluster.pod_changed(refused, bound(refused, "x"))
    assert world.cluster.snapshot().avoided == {}
