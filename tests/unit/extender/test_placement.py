"""Where the extender lets pods go: tables of situations, each a sentence."""

import dataclasses
from collections.abc import Callable
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.facts import FamilyMember
from extender.families import MOST_BROTHERS
from extender.holds import fullness
from extender.nodes import DISRUPTED_SECONDS
from extender.placement import (
    PASS,
    Victims,
    needs_nobodys_room,
    preemptible,
    sample,
    score,
    takes_any,
)
from extender.plan import NodeArrival
from extender.protocol import HostPriority, NodeNames, encode_scores
from provisioner.apis.core import (
    Affinity,
    NodeAffinity,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PodResourceClaim,
    PodSpec,
    PreferredSchedulingTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from provisioner.apis.shapes import shape_of
from provisioner.values.resources import Resources
from provisioner.values.taints import Toleration
from tests.support.extender import World, cpus, entry, member
from tests.support.work import Lines

A, B, C, D = (member(uid) for uid in "abcd")
STRANGER = member("x", owner="other", klass="other")


def two_planned(world: World) -> None:
    """n1 has room for a and b only, n2 for c and d."""
    world.pods(A, B, C, D)
    world.planned_node("n1", entry("a", "b"), cores=2)
    world.planned_node("n2", entry("c", "d"), cores=2)


def with_slack(world: World) -> None:
    """n1 has one core more than its plan."""
    world.pods(A, B)
    world.planned_node("n1", entry("a", "b"), cores=3)


def own_node_coming(world: World) -> None:
    """The node of a and b is still tainted; n2, of c, is there with two cores more than it needs."""
    world.pods(A, B, C)
    world.planned_node("n1", entry("a", "b"), ready=False)
    world.planned_node("n2", entry("c"), cores=3)


def claim_in_flight(world: World) -> None:
    """The claim of a has no node yet; n2 belongs to c."""
    world.pods(A, C)
    world.claim("c-n1", entry("a"))
    world.planned_node("n2", entry("c"), cores=4)


def brother_went_away(world: World) -> None:
    """a was planned on n1 and is gone; its owner made e."""
    world.pods(member("e"))
    world.planned_node("n1", entry("a"), cores=1)


def unnamed_places(world: World) -> None:
    """A plan that counts two pods without naming them; one is bound, one waits."""
    world.pods(A, member("b", node="n1"))
    world.planned_node("n1", entry(count=2), cores=2)


def planned_pod_elsewhere(world: World) -> None:
    """b found another place: its room is given back."""
    world.node("far")
    world.pods(A, member("b", node="far"))
    world.planned_node("n1", entry("a", "b"), cores=2)


def home_filled_by_a_brother(world: World) -> None:
    """d took a's place on n1, where a is listed; d's own place on n2 is open."""
    world.pods(A, member("d", node="n1"))
    world.planned_node("n1", entry("a"), cores=1)
    world.planned_node("n2", entry("d"), cores=1)


def important_plan(world: World) -> None:
    """The planned pod has priority 100."""
    world.pods(member("a", priority=100))
    world.planned_node("n1", entry("a"), cores=1)


def daemons_due(world: World) -> None:
    """The claim was made for one planned core and half a core of daemons that are not there yet; 2 cores in all."""
    world.pods(A)
    world.planned_node("n1", entry("a"), cores=2, requests=cpus(1.5, pods=2))


def daemons_there(world: World) -> None:
    """The same, and the daemon runs."""
    daemons_due(world)
    world.pods(member("ds", owner="ds", klass="ds", cores=0.5, node="n1", daemon=True))


def half_of_the_plan_there(world: World) -> None:
    """The claim was made for two families; that of two cores is bound, and left the plan; one core more is free."""
    world.pods(A, member("b", klass="big", cores=2, node="n1"))
    world.planned_node("n1", entry("a"), cores=4, requests=cpus(3, pods=2))


def plan_on_a_node(world: World) -> None:
    """A plan for an existing node, which runs brothers of the planned pod already: they are counted in it."""
    world.pods(A, member("old1", node="n1"), member("old2", node="n1"))
    world.planned_node("n1", entry("a", "old1", "old2"), cores=3)


def replanned(world: World) -> None:
    """a was planned on n1, and later again on n2."""
    world.pods(A)
    world.planned_node("n1", entry("a"), cores=1)
    world.now += 5
    world.planned_node("n2", entry("a"), cores=1)


@dataclasses.dataclass(frozen=True)
class Case:
    world: Callable[[World], None]
    pod: object
    names: str
    want: str
    nominated: str = ""


CASES = {
    "a planned pod gets its node alone": Case(two_planned, A, "n1 n2 n3", "n1"),
    "its brother gets the other": Case(two_planned, C, "n1 n2 n3", "n2"),
    "a planned pod whose node was filtered out takes a brother's place": Case(two_planned, A, "n2 n3", "n2"),
    "a stranger is kept off full plans and goes elsewhere": Case(two_planned, STRANGER, "n1 n2 n3", "n3"),
    "a stranger with nothing else gets nothing": Case(two_planned, STRANGER, "n1 n2", ""),
    "a stranger goes where no plan is": Case(two_planned, STRANGER, "n3 n4", "n3 n4"),
    "a stranger may use the room that a plan leaves": Case(with_slack, STRANGER, "n1", "n1"),
    "a stranger too large for that room is refused": Case(with_slack, member("x", owner="o", cores=2), "n1", ""),
    "a stranger that asks for nothing held is let in": Case(
        with_slack, member("x", owner="o", klass="o", cores=0), "n1", "n1"
    ),
    "a daemon goes anywhere": Case(two_planned, member("x", owner="ds", daemon=True), "n1 n2", "n1 n2"),
    "a pod of higher priority does not count lesser plans": Case(
        two_planned, member("x", owner="o", priority=1), "n1", "n1"
    ),
    "a pod of equal priority does": Case(important_plan, member("x", owner="o", priority=100), "n1", ""),
    "a pod of lower priority does": Case(important_plan, member("x", owner="o", priority=99), "n1", ""),
    "a pod of still higher priority does not": Case(important_plan, member("x", owner="o", priority=101), "n1", "n1"),
    "a pod whose node is coming leaves other plans alone": Case(own_node_coming, A, "n2", ""),
    "a pod whose node is coming uses room that is not held": Case(own_node_coming, A, "n2 free", "free"),
    "a pod whose claim has no node yet leaves other plans alone": Case(claim_in_flight, A, "n2 free", "free"),
    "a nominated node is judged by its room": Case(own_node_coming, A, "n2", "n2", nominated="n2"),
    "a nominated node among others is nothing special": Case(own_node_coming, A, "n2 free", "free", nominated="n2"),
    "a recreated pod takes its brother's place": Case(brother_went_away, member("e"), "n1 free", "n1"),
    "room is held for a recreated pod": Case(brother_went_away, STRANGER, "n1", ""),
    "a pod of another owner is no brother": Case(brother_went_away, member("e", owner="rs2"), "n1 free", "free"),
    "a pod of another class is no brother": Case(brother_went_away, member("f", klass="big"), "n1 free", "free"),
    "a pod that no watch told of is placed all the same": Case(unnamed_places, member("new"), "free n1", "n1"),
    "a place without a name is held while somebody waits for it": Case(unnamed_places, STRANGER, "n1", ""),
    "room of a pod that went elsewhere is given back": Case(planned_pod_elsewhere, STRANGER, "n1", "n1"),
    "the other's is still held": Case(planned_pod_elsewhere, member("x", owner="o", cores=2), "n1", ""),
    "a pod whose place was taken gets the one given in exchange": Case(home_filled_by_a_brother, A, "n1 n2 n3", "n2"),
    "the place given in exchange is held": Case(home_filled_by_a_brother, STRANGER, "n1 n2", "n1"),
    "room for daemons to come is held too": Case(daemons_due, STRANGER, "n1", ""),
    "half a core fits beside them": Case(daemons_due, member("x", owner="o", cores=0.5), "n1", "n1"),
    "room for a daemon that runs is not held twice": Case(daemons_there, member("x", owner="o", cores=0.5), "n1", "n1"),
    "but no more than that fits": Case(daemons_there, member("x", owner="o", cores=0.6), "n1", ""),
    "room of pods that left the plan as they are there is not held twice": Case(
        half_of_the_plan_there, STRANGER, "n1", "n1"
    ),
    "what is still planned is held beside them": Case(
        half_of_the_plan_there, member("x", owner="o", cores=2), "n1", ""
    ),
    "a plan on an existing node steers": Case(plan_on_a_node, A, "n0 n1", "n1"),
    "brothers who were there before fill no place": Case(plan_on_a_node, STRANGER, "n1", ""),
    "the latest plan of a pod counts": Case(replanned, A, "n1 n2", "n2"),
    "the earlier one holds nothing": Case(replanned, STRANGER, "n1 n2", "n1"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_where_a_pod_may_go(case: Case) -> None:
    world = World()
    case.world(world)
    assert " ".join(world.passing(case.pod, *case.names.split(), nominated=case.nominated)) == case.want  # type: ignore[arg-type]


def test_a_refusal_says_why() -> None:
    world = World()
    own_node_coming(world)
    assert world.ask(A, "n2").refused == {"n2": "waiting for its own room on c-n1"}
    assert world.ask(member("x", owner="o", cores=3), "n2").refused == {"n2": "held for planned pods"}


def test_without_plans_names_are_not_even_decoded() -> None:
    class Unread(NodeNames):
        def all(self) -> list[str]:
            raise AssertionError("decoded")

    from extender.placement import judge

    world = World()
    world.node("n1")
    standing = world.table.standing(STRANGER, world.now)
    assert judge(STRANGER, standing, world.table.room.holds, Unread(b'["n1"]')) == PASS


# --- disruption -------------------------------------------------------------------------------------------------------


def candidate(world: World) -> None:
    """A command takes n1 away, where a had a place; its taint is not there yet."""
    world.pods(A)
    world.planned_node("n1", entry("a"), cores=4)
    world.claim("c-n1", entry("a"), node="n1", disrupted=True)


def test_a_candidate_of_a_command_takes_no_pod_before_its_taint_is_seen() -> None:
    world = World()
    candidate(world)
    assert world.passing(STRANGER, "n1", "n2") == ["n2"]
    assert world.passing(A, "n1", "n2") == ["n2"]  # its plan is void
    assert world.ask(STRANGER, "n1").refused == {"n1": "is being disrupted"}
    assert world.passing(member("ds", daemon=True), "n1") == ["n1"]


def test_a_pod_that_tolerates_the_taint_of_disruption_is_let_in() -> None:
    world = World()
    candidate(world)
    spec = PodSpec(tolerations=(Toleration(key="karpenter.sh/disrupted", operator="Exists"),))
    patient = msgspec.structs.replace(STRANGER, shape=shape_of(spec, namespace="ns", labels={}))
    assert world.passing(patient, "n1") == ["n1"]


def test_a_command_that_was_called_off_gives_node_and_plan_back() -> None:
    world = World()
    candidate(world)
    world.claim("c-n1", entry("a"), node="n1")
    assert world.passing(A, "n1", "n2") == ["n1"]
    assert world.passing(STRANGER, "n1") == ["n1"]


def test_a_command_whose_taint_never_comes_refuses_nobody_for_long() -> None:
    world = World()
    candidate(world)
    world.pass_time(DISRUPTED_SECONDS - 1)
    world.claim("c-n1", node="n1", disrupted=True)  # another write on the claim begins no new time
    assert world.passing(STRANGER, "n1") == []
    world.pass_time(1)
    assert world.passing(STRANGER, "n1") == ["n1"]


def test_nobody_is_evicted_from_a_candidate_of_a_command() -> None:
    world = World()
    candidate(world)
    disrupted = world.table.nodes.disrupted(world.now)
    standing = world.table.standing(STRANGER, world.now)
    assert preemptible(STRANGER, standing, world.table.room.holds, VICTIMS, disrupted) == ["n2"]


# --- time -----------------------------------------------------------------------------------------------------------


def test_a_hold_ends_a_while_after_its_node_is_ready() -> None:
    world = World(hold_seconds=60)
    world.pods(A)
    world.planned_node("n1", entry("a"), cores=1, ready=False)
    world.pass_time(500)
    assert world.passing(STRANGER, "n1") == []
    world.node("n1", 1)
    world.pass_time(59)
    assert world.passing(STRANGER, "n1") == []
    world.pass_time(1)
    assert world.passing(STRANGER, "n1") == ["n1"]
    assert world.passing(A, "n1", "n2") == ["n1", "n2"]  # its plan is over as well


def test_a_node_that_flaps_does_not_prolong_its_hold() -> None:
    world = World(hold_seconds=60)
    world.pods(A)
    world.planned_node("n1", entry("a"), cores=1)
    for _ in range(4):
        world.pass_time(10)
        world.node("n1", 1, ready=False)
        world.pass_time(5)
        world.node("n1", 1, ready=True)
    assert world.passing(STRANGER, "n1") == ["n1"]


def test_a_hold_that_was_over_before_we_began_does_not_begin_again() -> None:
    world = World(hold_seconds=60)
    world.pods(A)
    world.claim("c", entry("a"), node="n1", born_at=world.now - 300, initialized_at=world.now - 61)
    world.node("n1", 1)
    assert world.passing(STRANGER, "n1") == ["n1"]


def test_a_plan_that_grows_begins_its_time_anew_and_one_that_shrinks_does_not() -> None:
    world = World(hold_seconds=60)
    world.pods(A, B)
    world.planned_node("n1", entry("a"), cores=2)
    world.pass_time(50)
    world.claim("c-n1", entry("a", "b"), node="n1")
    world.pass_time(50)
    assert world.passing(member("x", owner="o", cores=2), "n1") == []
    world.claim("c-n1", entry("a"), node="n1")
    world.pass_time(10)
    assert world.passing(member("x", owner="o", cores=2), "n1") == ["n1"]


def test_nobody_waits_for_a_claim_longer_than_a_plan_holds() -> None:
    world = World(hold_seconds=60)
    claim_in_flight(world)
    assert world.passing(A, "n2") == []
    world.pass_time(59)
    assert world.passing(A, "n2") == []
    world.pass_time(1)
    assert world.passing(A, "n2") == ["n2"]


def test_a_node_that_just_became_schedulable_is_waited_for_a_moment() -> None:
    world = World()
    own_node_coming(world)
    world.node("n1", 4)
    assert world.passing(A, "n2") == []
    world.pass_time(2)
    assert world.passing(A, "n2") == ["n2"]


@pytest.mark.parametrize("how", ["claim deleted", "claim gone", "node leaving", "node gone", "plan taken off"])
def test_a_plan_ends_with_its_claim_and_its_node(how: str) -> None:
    world = World()
    world.pods(A)
    world.planned_node("n1", entry("a"), cores=1)
    assert world.passing(STRANGER, "n1") == []
    match how:
        case "claim deleted":
            world.claim("c-n1", entry("a"), node="n1", leaving=True)
        case "claim gone":
            world.table.drop_claim("c-n1")
        case "node leaving":
            world.node("n1", 1, leaving=True)
        case "node gone":
            world.table.drop_node("n1", world.now)
        case _:
            world.claim("c-n1", node="n1")
    assert world.passing(STRANGER, "n1") == ["n1"]


@pytest.mark.parametrize("how", ["owner's UID", "provider ID", "status"])
@pytest.mark.parametrize("first", ["claim", "node"])
def test_claim_and_node_find_each_other(how: str, first: str) -> None:
    world = World()
    world.pods(A)
    node_has = {"claim_uid": "u"} if how == "owner's UID" else {"provider_id": "p"} if how == "provider ID" else {}
    claim_has = {"provider_id": "p"} if how == "provider ID" else {"node": "n1"} if how == "status" else {"uid": "u"}
    if first == "claim":
        world.claim("c", entry("a"), **claim_has)  # type: ignore[arg-type]
    world.node("n1", 1, **node_has)  # type: ignore[arg-type]
    if first == "node":
        world.claim("c", entry("a"), **claim_has)  # type: ignore[arg-type]
    assert world.passing(A, "n0", "n1") == ["n1"]
    assert not world.table.expects_nodes


def test_of_two_nodes_with_one_provider_id_neither_has_the_plan_until_the_claim_says_which() -> None:
    """A kubelet may register with the provider ID of another node."""
    world = World()
    world.pods(A)
    world.claim("c", entry("a"), provider_id="p")
    world.node("real", 1, provider_id="p")
    assert world.passing(STRANGER, "real") == []
    world.node("liar", 1, provider_id="p")
    assert world.passing(A, "liar", "other") == ["liar", "other"], "it is not steered anywhere"
    world.claim("c", entry("a"), provider_id="p", node="real")
    assert world.passing(A, "liar", "real") == ["real"]
    assert world.passing(STRANGER, "liar", "real") == ["liar"]
    world.claim("c", entry("a"), provider_id="p")
    world.table.drop_node("liar", world.now)
    assert world.passing(A, "liar", "real") == ["real"]


def test_the_claims_own_word_goes_before_what_nodes_say() -> None:
    world = World()
    world.pods(A)
    world.claim("c", entry("a"), provider_id="p", uid="u", node="real")
    world.node("liar", 1, provider_id="p", claim_uid="u")
    world.node("real", 1)
    assert world.passing(A, "liar", "real") == ["real"]


@pytest.mark.parametrize("seen_before", [True, False], ids=["that was seen to be initialized", "in a far future"])
def test_the_clock_of_another_machine_prolongs_no_hold(seen_before: bool) -> None:
    world = World(hold_seconds=60)
    world.pods(A)
    if seen_before:
        world.claim("c", entry("a"), node="n1")
    else:
        world.claim("c", entry("a"), node="n1", born_at=1e9, initialized_at=1e9)
    world.node("n1", 1)
    assert world.passing(STRANGER, "n1") == []
    world.pass_time(60)
    assert world.passing(STRANGER, "n1") == ["n1"]


def test_a_claim_without_a_node_makes_unknown_names_interesting() -> None:
    world = World()
    world.claim("c", entry("a"))
    assert world.table.expects_nodes
    assert world.table.nodes.unknown(["n1"]) == ["n1"]


# --- prioritize and preempt -----------------------------------------------------------------------------------------


def names(*listed: str) -> NodeNames:
    return NodeNames(("[" + ",".join(f'"{name}"' for name in listed) + "]").encode())


def scored(world: World, pod: FamilyMember, *listed: str) -> dict[str, int]:
    standing, table = world.table.standing(pod, world.now), world.table
    scores = score(pod, standing, names(*listed), table.room.scores, table.families.company)
    return {one.host: one.score for one in msgspec.json.decode(encode_scores(scores), type=list[HostPriority])}


def test_the_planned_node_scores_ten_and_others_nothing() -> None:
    world = World()
    two_planned(world)
    world.pods(member("old", node="n2"))
    assert scored(world, A, "n1", "n2") == {"n1": 10}


def test_a_stranger_prefers_nodes_that_are_full_already() -> None:
    world = World()
    for name in ("empty", "daemons", "half", "full", "unasked"):
        world.node(name, cores=4)
    world.pods(*(member(f"h{i}", owner="o", node="half") for i in range(2)))
    world.pods(*(member(f"f{i}", owner="o", node="full") for i in range(4)))
    world.pods(*(member(f"u{i}", owner="o", node="unasked") for i in range(4)))
    world.pods(msgspec.structs.replace(member("d", owner="ds", node="daemons"), daemon=True))
    asked = ("empty", "daemons", "half", "full")
    assert scored(world, STRANGER, *asked) == {"half": 5, "full": 10}
    assert scored(world, msgspec.structs.replace(STRANGER, daemon=True), *asked) == {}
    world.table.drop_pod("h0")
    assert scored(world, STRANGER, *asked) == {"half": 3, "full": 10}
    world.table.drop_pod("h1")
    assert scored(world, STRANGER, *asked) == {"full": 10}
    world.table.drop_node("full", world.now)
    assert scored(world, STRANGER, *asked) == {}


def test_replicas_do_not_follow_each_other_to_the_fullest_node() -> None:
    world = World()
    for name in ("full", "half"):
        world.node(name, cores=4)
    world.pods(*(member(f"f{i}", owner="o", node="full") for i in range(3)), member("h", owner="o", node="half"))
    first, second = (member(name, owner="web") for name in ("one", "two"))
    assert scored(world, first, "full", "half")["full"] > scored(world, first, "full", "half")["half"]
    world.pods(msgspec.structs.replace(first, node="full"))
    assert list(scored(world, second, "full", "half")) == ["half"]
    world.pods(msgspec.structs.replace(first, node="full", finished=True))
    assert sorted(scored(world, second, "full", "half")) == ["full", "half"]


def test_a_score_costs_no_more_for_an_owner_of_many_pods() -> None:
    def work(count: int) -> int:
        world = World()
        world.node("n", cores=4)
        world.pods(*(member(f"h{number}", owner="o", node="n") for number in range(count)))
        asked = member("one", owner="o")
        assert scored(world, asked, "n") == {}  # what is made once is made
        with Lines() as lines:
            assert scored(world, asked, "n") == {}
        return lines.count

    assert work(2 * MOST_BROTHERS) == work(MOST_BROTHERS)


def wishing(spec: PodSpec) -> FamilyMember:
    return msgspec.structs.replace(STRANGER, shape=shape_of(spec, namespace="ns", labels={}))


TERM = PodAffinityTerm(topology_key="kubernetes.io/hostname")
PREFERRED = WeightedPodAffinityTerm(weight=1, pod_affinity_term=TERM)
WISHES = {
    "a soft spread": PodSpec(
        topology_spread_constraints=(
            TopologySpreadConstraint(max_skew=1, topology_key="z", when_unsatisfiable="ScheduleAnyway"),
        )
    ),
    "hosts of its own": PodSpec(affinity=Affinity(pod_anti_affinity=PodAffinity(preferred=(PREFERRED,)))),
    "company": PodSpec(affinity=Affinity(pod_affinity=PodAffinity(preferred=(PREFERRED,)))),
    "spot": PodSpec(
        affinity=Affinity(
            node_affinity=NodeAffinity(preferred=(PreferredSchedulingTerm(weight=1, preference=NodeSelectorTerm()),))
        )
    ),
}


@pytest.mark.parametrize("spec", WISHES.values(), ids=WISHES)
def test_a_pods_own_wishes_come_first(spec: PodSpec) -> None:
    world = World()
    two_planned(world)
    world.pods(member("old", node="n2"))
    assert scored(world, wishing(spec), "n1", "n2") == {}
    hard = TopologySpreadConstraint(max_skew=1, topology_key="z", when_unsatisfiable="DoNotSchedule")
    assert scored(world, wishing(PodSpec(topology_spread_constraints=(hard,))), "n1", "n2") == {"n2": 5}


FULLNESS = {
    "nobody": (Resources.of({}), Resources.of({}), 0),
    "daemons only": (cpus(1), cpus(1), 0),
    "a little": (cpus(1), Resources.of({}), 3),
    "beside daemons": (cpus(3), cpus(1), 7),
    "all of it": (cpus(4), cpus(1), 10),
    "more than all of it": (cpus(9), cpus(1), 10),
}


@pytest.mark.parametrize(("used", "daemons", "want"), FULLNESS.values(), ids=FULLNESS)
def test_how_full_a_node_is(used: Resources, daemons: Resources, want: int) -> None:
    assert fullness(cpus(4), used, daemons) == want
    assert fullness(Resources.of({}), used, daemons) in (0, 1), "a node that offers nothing yet"


def test_a_sample_is_the_fullest_nodes_and_others_in_turn() -> None:
    listed = names(*(f"n{i}" for i in range(10)))
    levels: list[set[str]] = [set() for _ in range(11)]
    levels[10], levels[4], levels[1] = {"gone", "n7"}, {"n2"}, {"n9"}
    assert sample(listed, 4, levels, 0) == ["n7", "n2", "n0", "n1"]
    assert sample(listed, 4, levels, 7) == ["n7", "n2", "n8", "n9"]
    assert sample(listed, 4, levels, 19) == ["n7", "n2", "n9", "n0"], "the turn begins anew at the end"
    assert sample(listed, 4, levels, 19, {"n7", "n0"}) == ["n2", "n9", "n1", "n3"]
    assert sample(listed, 10, levels, 3) is None
    assert sample(listed, 8, levels, 3, {"n7", "n0"}) is None
    assert sample(names(*["n7"] * 9, "n0"), 1, levels, 3, {"n7"}) is None, "who names a node often asks about one"
    seen = {name for start in range(0, 10, 2) for name in sample(listed, 4, levels, start) or ()}
    assert seen == set(listed.all()), "everybody's turn comes"


@given(st.integers(2, 300), st.integers(1, 120), st.integers(0, 10_000), st.randoms())
def test_a_sample_has_its_size_and_none_that_refuses(nodes: int, count: int, start: int, random: Random) -> None:
    listed = [f"n{i}" for i in range(nodes)]
    refused = set(random.sample(listed, random.randrange(nodes)))
    levels: list[set[str]] = [set() for _ in range(11)]
    for i in range(nodes + 20):  # some that kube-scheduler did not ask about
        levels[random.randrange(11)].add(f"n{i}")
    chosen = sample(names(*listed), count, levels, start, refused)
    left = set(listed) - refused
    assert (chosen is None) == (len(left) <= count)
    if chosen is not None:
        assert len(chosen) == len(set(chosen)) == count
        assert set(chosen) <= left


def test_who_wishes_something_or_is_not_understood_chooses_among_all_nodes() -> None:
    assert takes_any(wishing(PodSpec()))
    assert not any(takes_any(wishing(spec)) for spec in WISHES.values())
    assert not takes_any(msgspec.structs.replace(STRANGER, shape=None))
    assert not takes_any(wishing(PodSpec(resource_claims=(PodResourceClaim(name="gpu"),))))
    assert not takes_any(msgspec.structs.replace(wishing(PodSpec()), daemon=True))


def evicted(count: int, cores: float = 0) -> Victims:
    return Victims(count, cpus(cores, pods=count))


VICTIMS = {"n1": evicted(1, 1), "n2": evicted(2, 2), "n3": evicted(0)}


def preemptible_by(world: World, pod: FamilyMember, candidates: dict[str, Victims]) -> list[str]:
    return preemptible(pod, world.table.standing(pod, world.now), world.table.room.holds, candidates)


def full_of_others(world: World) -> None:
    """n1 has two cores: one is used by a pod that may be evicted, one is held for a."""
    world.pods(A, member("victim", owner="v", klass="v", priority=-5, node="n1"))
    world.planned_node("n1", entry("a"), cores=2)


def test_preemption_drops_nodes_without_victims_and_what_filter_would_refuse() -> None:
    world = World()
    two_planned(world)
    small = {name: evicted(1, 0.5) for name in ("n1", "n2", "n4")}
    assert preemptible_by(world, STRANGER, {**small, "n3": evicted(0)}) == ["n4"]
    assert preemptible_by(world, member("x", owner="o", priority=5), VICTIMS) == ["n1", "n2"]


def test_preemption_counts_the_room_of_the_victims() -> None:
    world = World()
    full_of_others(world)
    assert preemptible_by(world, STRANGER, {"n1": evicted(1, 1)}) == ["n1"]
    assert preemptible_by(world, member("x", owner="o", cores=2), {"n1": evicted(1, 1)}) == []
    assert preemptible_by(world, STRANGER, {"n1": evicted(1)}) == [], (
        "of a victim that no watch told of nothing is known"
    )


def test_a_planned_pod_may_preempt_on_its_own_node() -> None:
    world = World()
    two_planned(world)
    assert preemptible_by(world, A, {"n1": evicted(1)}) == ["n1"]


def test_preemption_is_needless_while_capacity_is_coming_and_no_longer_than_a_plan_holds() -> None:
    world = World(hold_seconds=60)
    claim_in_flight(world)
    assert needs_nobodys_room(A, world.table.standing(A, world.now))
    assert not needs_nobodys_room(STRANGER, world.table.standing(STRANGER, world.now))
    world.pass_time(60)
    assert not needs_nobodys_room(A, world.table.standing(A, world.now))


def test_how_far_a_planned_node_is() -> None:
    world = World()
    claim_in_flight(world)
    assert world.table.arrival("c-n1") is NodeArrival.NONE
    assert world.table.arrival("c-n2") is NodeArrival.JOINED
    world.claim("c-n1", entry("a"), provider_id="p1")
    assert world.table.arrival("c-n1") is NodeArrival.LAUNCHED
    world.node("n1", ready=False, provider_id="p1")
    assert world.table.arrival("c-n1") is NodeArrival.JOINED
    world.table.drop_claim("c-n1")
    assert world.table.arrival("c-n1") is NodeArrival.NONE


def test_a_hold_knows_what_each_priority_needs() -> None:
    world = World()
    world.pods(member("a", priority=10), member("b", klass="big", cores=2, priority=5))
    world.planned_node("n1", entry("a"), entry("b", klass="big"))
    hold = world.table.room.holds["n1"]
    assert hold.needed(5) == cpus(3, pods=2)
    assert hold.needed(10) == cpus(1)
    assert hold.needed(11) == Resources.of({})
