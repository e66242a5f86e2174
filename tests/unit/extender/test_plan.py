"""Laws of the plan table: the order of events does not matter, asking changes nothing, no hold lasts for ever."""

import random
import tracemalloc
from collections.abc import Callable
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.facts import ClaimFacts, ExtenderNode, FamilyMember
from extender.plan import PlanTable
from provisioner.apis.plan import PlanEntry
from provisioner.state.promises import VACANT_SECONDS
from provisioner.values.resources import Resources
from tests.support.clock import NOON
from tests.support.extender import HOLD_SECONDS, World, cpus, entry, member, passing
from tests.support.work import Lines

UIDS = tuple("abcdefgh")
NODES = ("n1", "n2", "n3")
KLASSES = ("small", "big")
OWNERS = {uid: "rs" if uid < "f" else "" for uid in (*UIDS, "new")}
"""Pods may become ones of another class, and plans still say what they were; none changes its owner, or is planned as another one's."""

members = st.builds(
    lambda uid, klass, node, over: member(
        uid,
        owner=OWNERS[uid],
        klass=klass,
        cores=1 if klass == "small" else 2,
        priority=0 if klass == "small" else 7,
        node=node,
        over=over,
    ),
    st.sampled_from(UIDS),
    st.sampled_from(KLASSES),
    st.sampled_from(("", "", "", *NODES)),
    st.booleans(),
)
entries: st.SearchStrategy[PlanEntry] = st.builds(
    lambda owner, uids, klass, more: entry(
        *(uid for uid in uids if OWNERS[uid] == owner), owner=owner, klass=klass, count=len(uids) + more
    ),
    st.sampled_from(("rs", "")),
    st.lists(st.sampled_from(UIDS), max_size=3, unique=True),
    st.sampled_from(KLASSES),
    st.integers(0, 2),
).filter(lambda made: made.count > 0)
plans = st.lists(entries, max_size=2)

PARTS = ("families", "holds", "nodes", "places", "plan", "room", "sites")
TABLE = (
    *(f"extender/{part}.py" for part in PARTS),
    "state/joining.py",
    "state/room_ledger.py",
    "state/promises.py",
    "values/resources.py",
)
"""Where everything that the table keeps is made."""
Step = Callable[[World], None]


def claim_step(name: str, plan: list[PlanEntry], node: str, *, leaving: bool) -> Step:
    return lambda world: world.claim(name, *plan, node=node, leaving=leaving, born_at=world.now)


def node_step(name: str, *, ready: bool, leaving: bool) -> Step:
    return lambda world: world.node(name, ready=ready, leaving=leaving)


steps: st.SearchStrategy[Step] = st.one_of(
    members.map(lambda pod: lambda world: world.pods(pod)),
    st.sampled_from(UIDS).map(lambda uid: lambda world: world.table.drop_pod(uid)),
    st.builds(claim_step, st.sampled_from(("c1", "c2")), plans, st.sampled_from(("", *NODES)), leaving=st.booleans()),
    st.sampled_from(("c1", "c2")).map(lambda name: lambda world: world.table.drop_claim(name)),
    st.builds(node_step, st.sampled_from(NODES), ready=st.booleans(), leaving=st.booleans()),
    st.sampled_from(NODES).map(lambda name: lambda world: world.table.drop_node(name, world.now)),
)


asking: st.SearchStrategy[Step] = st.one_of(
    st.builds(
        lambda uid, node: lambda world: world.table.assume(uid, node, world.now),
        st.sampled_from(UIDS),
        st.sampled_from(NODES),
    ),
    st.sampled_from(UIDS).map(lambda uid: lambda world: world.table.recall(uid, world.now)),
    st.sampled_from((1, VACANT_SECONDS, HOLD_SECONDS)).map(lambda seconds: lambda world: world.pass_time(seconds)),
)


def tell_node(facts: ExtenderNode, world: World) -> None:
    world.table.set_node(facts, world.now)


def tell_claim(facts: ClaimFacts, world: World) -> None:
    world.table.set_claim(facts, world.now)


def tell_pod(pod: FamilyMember, world: World) -> None:
    world.table.set_pod(pod)


STRANGER = member("x", owner="other", klass="other")
ASKERS = (
    STRANGER,
    *(member(uid, owner=owner, klass=klass, cores=1) for uid, owner in OWNERS.items() for klass in KLASSES),
)


def answers(world: World) -> list[object]:
    """Everything that can be asked, in a form that compares."""
    found: list[object] = [world.ask(pod, *NODES, "free") for pod in ASKERS]
    found += [(name, hold.parts, dict(hold.room)) for name, hold in sorted(world.table.room.holds.items())]
    return found


def counts(table: PlanTable) -> list[object]:
    """Every number that is kept up."""
    found: list[object] = [(name, hold.parts, dict(hold.room)) for name, hold in sorted(table.room.holds.items())]
    for family, house in sorted(table.families.houses.items()):
        found.append((family, house.listed, house.kept, house.strays, house.surplus, table.room.open_nodes(house)))
        found += [[getattr(room, one) for one in room.__slots__ if one != "site"] for room in house.ordered]
    return found


@given(st.lists(st.one_of(steps, asking), min_size=20, max_size=60))
def test_counts_kept_up_equal_counts_made_anew(history: list[Step]) -> None:
    """The same table counts once more. Another one need not come to the same: only who saw a pod go lets its successor have its place."""
    world = World()
    for step in history:
        step(world)
        world.table.room.planned  # noqa: B018 - settle in between, so that increments are used
    before = counts(world.table)
    for site in world.table.places.sites.values():
        world.table.families.mark_site(site)
    for name in NODES:
        world.table.families.mark_node(name)
    assert counts(world.table) == before


@given(st.lists(steps, max_size=15), st.randoms(use_true_random=False))
def test_the_order_of_facts_does_not_matter(history: list[Step], rng: random.Random) -> None:
    world = World()
    for step in history:
        step(world)
    table = world.table
    told: list[Step] = [partial(tell_node, facts) for facts in table.nodes.nodes.values()]
    told += [partial(tell_claim, claim) for claim in table.nodes.claims.values()]
    told += [partial(tell_pod, pod) for pod in table.families.members.values()]
    results = []
    for _ in range(2):
        rng.shuffle(told)
        other = World()
        for step in told:
            step(other)
        other.now += 10
        results.append(answers(other))
    assert results[0] == results[1]


@given(st.lists(steps, max_size=25))
def test_asking_twice_gives_the_same_answer_and_changes_nothing(history: list[Step]) -> None:
    world = World()
    for step in history:
        step(world)
    first = answers(world)
    assert answers(world) == first


@given(st.lists(steps, max_size=25))
def test_nobody_is_refused_once_every_hold_has_ended(history: list[Step]) -> None:
    world = World()
    for step in history:
        step(world)
    for name in NODES:  # as long as a node is not ready nobody could go there anyway
        world.node(name, ready=True)
    world.pass_time(0)  # pods that are not there yet are waited for from now on
    world.pass_time(HOLD_SECONDS + 2)
    for pod in ASKERS:
        verdict = world.ask(pod, *NODES, "free")
        assert not verdict.refused


@given(st.lists(steps, max_size=25))
def test_an_answer_names_only_nodes_that_were_asked_about(history: list[Step]) -> None:
    world = World()
    for step in history:
        step(world)
    for pod in ASKERS:
        asked = ["n2", "free"]
        verdict = world.ask(pod, *asked)
        assert set(passing(verdict, asked)) <= set(asked)
        assert set(verdict.refused) <= set(asked)


@given(st.lists(steps, max_size=25))
def test_no_more_is_held_than_pods_wait_or_leave_their_nodes(history: list[Step]) -> None:
    """A pod that waits and became one of another class has its place, for what it was planned as; plans that count pods of its new class without naming them look for another."""
    world = World()
    for step in history:
        step(world)
    world.pass_time(0)
    world.pass_time(VACANT_SECONDS)  # until then successors are waited for
    table = world.table
    waiting = [
        pod for pod in table.families.members.values() if pod.waiting or (pod.node and not table.nodes.stays(pod.node))
    ]
    changed = sum(
        (place := table.places.promises.of_pod(pod.uid)) is not None and place.family != pod.family for pod in waiting
    )
    need = Resources.of({})
    for hold in world.table.room.holds.values():
        need += hold.needed(-1)
    assert world.table.room.planned <= len(waiting)
    assert need.fits(sum((pod.requests for pod in waiting), cpus(2).scaled(changed)))


def test_a_pod_that_became_one_of_another_class_is_looked_for_once() -> None:
    world = World()
    world.pods(member("a", klass="small"))
    world.planned_node("n1", entry("a", klass="small"))
    world.planned_node("n2", entry(klass="big", count=1))
    world.pods(member("a", klass="big"))
    assert sorted(world.table.room.holds) == ["n1"], "it has its place"
    world.claim("c-n1", node="n1")
    assert sorted(world.table.room.holds) == ["n2"]
    world.claim("c-n1", entry("a", klass="small"), node="n1", again_at=NOON)
    assert sorted(world.table.room.holds) == ["n1"]
    world.table.drop_claim("c-n1")
    world.table.drop_pod("a")
    world.pods(member("b", klass="big"))
    assert sorted(world.table.room.holds) == ["n2"]


def test_a_planned_pod_takes_half_a_kilobyte_of_the_table() -> None:
    """A set of all pods that wait, another of those that were bound, and a set for each name of a node made it 850 bytes."""
    waiting = [member(f"uid-{number:05}") for number in range(5_000)]
    bound = [msgspec.structs.replace(one, node=f"n{number // 10}") for number, one in enumerate(waiting)]
    plans = [entry(*(one.uid for one in waiting[first : first + 10])) for first in range(0, len(waiting), 10)]
    where = [tracemalloc.Filter(inclusive=True, filename_pattern=f"*/{name}") for name in TABLE]
    tracemalloc.start()
    try:
        world = World()
        world.pods(*waiting)
        for number, plan in enumerate(plans):
            uid, instance = f"claim-{number}", f"aws:///a/i-{number}"
            world.node(f"n{number}", 20, claim_uid=uid, provider_id=instance)
            world.claim(f"c{number}", plan, node=f"n{number}", uid=uid, provider_id=instance)
        assert world.table.room.planned == len(waiting)
        world.pods(*bound)
        assert world.table.room.planned == 0
        kept = tracemalloc.take_snapshot().filter_traces(where)
    finally:
        tracemalloc.stop()
    assert sum(one.size for one in kept.statistics("filename")) < 523 * len(waiting)


def test_a_change_of_nothing_but_the_version_costs_no_count() -> None:
    world = World()
    pod = member("a")
    world.pods(pod)
    world.planned_node("n1", entry("a"))
    world.pods(msgspec.structs.replace(pod, resource_version="2"))
    assert world.table.families.members.get("a") == msgspec.structs.replace(pod, resource_version="2")
    assert world.table.room.holds["n1"].needed(0) == cpus(1)


@pytest.mark.parametrize("owner", ["rs", ""])
def test_a_pod_that_is_planned_keeps_its_place_where_it_is_known_as_gated_still(owner: str) -> None:
    """The watch of pods may lag behind that of NodeClaims; each event of a gated pod ended what the plan promises it."""
    world = World()
    gated = member("a", owner=owner, over=True)
    world.pods(gated)
    world.planned_node("n1", entry("a", owner=owner))
    assert world.table.standing(gated, world.now).home == "n1", "kube-scheduler asks about no pod that is gated"
    world.pods(msgspec.structs.replace(gated, resource_version="2"))
    world.pods(member("a", owner=owner))
    assert world.table.room.holds["n1"].needed(0) == cpus(1)
    assert world.table.standing(member("a", owner=owner), world.now).home == "n1"


def test_what_a_pod_takes_is_held_when_its_plan_and_node_were_told_before_it() -> None:
    world = World()
    world.planned_node("n1", entry("a"))
    assert world.table.room.planned == 1, "asked before anybody knows what it takes"
    world.pods(member("a"))
    assert world.table.room.holds["n1"].needed(0) == cpus(1)


def test_a_pod_has_found_its_place_on_a_node_that_is_told_after_it() -> None:
    world, placed = World(), member("a")
    world.pods(placed)
    world.bind(placed, "n2")
    world.planned_node("n1", entry("a"))
    world.node("n2")
    assert not world.table.room.holds


@pytest.mark.parametrize("first", ["pod", "plan"])
@pytest.mark.parametrize("owner", ["rs", ""])
def test_a_pod_is_owed_its_place_while_its_node_is_not_there(first: str, owner: str) -> None:
    """Its node is gone, or is told after it: which of pod and plan was told first decided."""
    world, placed = World(), member("a", owner=owner, node="n2")
    if first == "pod":
        world.pods(placed)
    world.planned_node("n1", entry("a", owner=owner))
    world.pods(placed)
    assert set(world.table.room.holds) == {"n1"}
    world.node("n2")
    assert not world.table.room.holds
    world.table.drop_node("n2", world.now)
    assert set(world.table.room.holds) == {"n1"}


@pytest.mark.parametrize("first", ["pod", "plan"])
def test_a_pod_that_is_over_has_no_place_in_a_plan_told_before_it_or_after(first: str) -> None:
    world, failed = World(), member("f", owner="", node="n2", over=True)
    if first == "pod":
        world.pods(failed)
    world.planned_node("n1", entry("f", owner="", count=2))
    world.pods(failed)
    assert world.table.places.promises.of_pod("f") is None


def test_a_pod_that_is_bound_while_its_gates_are_known_still_has_found_its_place() -> None:
    """A watch that was interrupted tells of no state in between."""
    world = World()
    world.pods(member("a", over=True))
    world.planned_node("n1", entry("a"))
    world.node("n2")
    world.bind(member("a"), "n2")
    world.node("n2", leaving=True)
    assert not world.table.room.holds


@pytest.mark.parametrize("first", ["pod", "plan"])
def test_a_pod_keeps_its_place_when_it_becomes_one_of_another_class(first: str) -> None:
    """Somebody adds a toleration, or its images are read. The plan says what it was, and pods of that class are its brothers still."""
    world, changed = World(), member("a", klass="tolerant")
    world.pods(changed if first == "pod" else member("a"), member("b"))
    world.planned_node("n1", entry("a"))
    world.planned_node("n2", entry("b"))
    world.pods(changed)
    assert set(world.table.room.holds) == {"n1", "n2"}
    assert world.passing(changed, "n1", "n2", "free") == ["n1"]
    world.bind(changed, "n2")
    assert set(world.table.room.holds) == {"n1"}
    assert world.passing(member("b"), "n1", "n2", "free") == ["n1"]


def test_a_pod_without_an_owner_leaves_nobody_its_place_where_equal_ones_are_planned() -> None:
    """It has no brothers: an extender that was started when it ran there looked for ever for one whose place it has."""
    world = World()
    world.pods(member("a", owner="", node="n1"), member("b", owner=""))
    world.planned_node("n1", entry("b", owner=""))
    world.planned_node("n2", entry("a", owner=""))
    assert set(world.table.room.holds) == {"n1"}
    assert world.table.standing(member("b", owner=""), world.now).home == "n1"


def test_facts_that_are_the_same_change_nothing() -> None:
    world = World()
    facts = ExtenderNode(name="n1", allocatable=cpus(4), schedulable=True)
    world.table.set_node(facts, 1.0)
    world.table.set_node(facts, 99.0)
    world.table.drop_node("n2", 1.0)
    world.table.drop_pod("nobody")
    world.table.drop_claim("nothing")
    assert repr(world.table) == "<PlanTable: 1 nodes, 0 pods, 0 plans, 0 held>"


def test_a_provider_id_that_changes_lets_go_of_its_claim() -> None:
    world = World()
    world.pods(member("a"))
    world.claim("c", entry("a"), provider_id="p")
    world.node("n1", 1, provider_id="p")
    assert set(world.table.room.holds) == {"n1"}
    world.node("n1", 1, provider_id="q")
    assert not world.table.room.holds
    assert world.table.expects_nodes


def test_a_finished_pod_takes_no_room() -> None:
    world = World()
    world.node("n1", 2)
    done = FamilyMember(uid="a", klass="k", requests=cpus(1), node="n1", finished=True)
    world.pods(done)
    assert world.table.ledger.room("n1") == cpus(2, pods=110)
    assert not done.waiting


def test_hundreds_of_equal_pods_are_followed_one_by_one() -> None:
    """The counts are kept up by increments here; a recount would give the same."""
    world = World()
    pods = [member(f"p{i}") for i in range(200)]
    world.pods(*pods)
    for n in range(50):
        world.planned_node(f"n{n}", entry(*(f"p{i}" for i in range(4 * n, 4 * n + 4))))
    assert world.table.room.planned == 200
    for i, pod in enumerate(pods):
        assert world.passing(pod, *(f"n{n}" for n in range(50))) == [f"n{i // 4}"]
        world.bind(pod, f"n{i // 4}")
        assert world.table.room.planned == 199 - i
    assert not world.table.room.holds


@pytest.mark.parametrize(
    "what",
    [
        *("a pod is bound", "a pod comes", "a pod is gone", "a node changes", "a claim changes"),
        "a pod comes while others are missed",
        "a pod is bound where others failed",
    ],
)
def test_an_event_costs_no_more_in_a_family_of_ten_thousand(what: str) -> None:
    def work(count: int) -> int:
        world = World()
        if what == "a pod comes while others are missed":  # by an extender that reads of plans first
            world.planned_node("big", entry(*(f"m{i}" for i in range(count))))
        if what == "a pod is bound where others failed":  # for example evicted ones, which nobody deletes
            failed = member("", node="n1", over=True)
            world.pods(*(msgspec.structs.replace(failed, uid=f"f{i}", finished=True) for i in range(count)))
        world.pods(*(member(f"p{i}") for i in range(count)))
        for n in range(20):
            world.planned_node(f"n{n}", entry(*(f"p{i}" for i in range(5 * n, 5 * n + 5))), cores=9)
        world.pods(*(member(f"r{i}", node="far") for i in range(count)))
        assert world.table.room.planned == 100 + count * (what == "a pod comes while others are missed")
        with Lines() as lines:
            match what:
                case "a pod is bound" | "a pod is bound where others failed":
                    world.bind(member("p0"), "n1")  # at a brother's place
                case "a pod comes" | "a pod comes while others are missed":
                    world.pods(member("new"))
                case "a pod is gone":
                    world.table.drop_pod("p7")
                case "a node changes":
                    world.node("n3", 8, leaving=True)
                case _:
                    world.claim("c-n3", entry("p15", "p16", "p900"), node="n3")
            assert world.table.room.holds
        return lines.count

    assert work(10_000) <= work(1_000)


# --- plans for nodes that exist --------------------------------------------------------------------------------------


def test_a_plan_that_a_claim_gets_long_after_its_node_was_ready_has_its_full_time() -> None:
    world = World()
    world.pods(member("a"))
    world.claim("c", node="n1")
    world.node("n1", 1)
    world.pass_time(10 * HOLD_SECONDS)
    world.claim("c", entry("a"), node="n1", born_at=1000.0)
    assert set(world.table.room.holds) == {"n1"}
    world.pass_time(HOLD_SECONDS - 1)
    assert set(world.table.room.holds) == {"n1"}
    world.pass_time(2)
    assert not world.table.room.holds


def test_so_has_one_to_which_pods_are_added() -> None:
    world = World()
    world.pods(member("old", node="n1"), member("a"))
    world.planned_node("n1", entry("old"))
    world.pass_time(10 * HOLD_SECONDS)
    world.claim("c-n1", entry("old", "a"), node="n1", born_at=1000.0)
    assert set(world.table.room.holds) == {"n1"}


def test_a_plan_that_was_there_before_we_were_has_none_left() -> None:
    world = World()
    world.pods(member("a"))
    world.node("n1", 1)
    world.claim("c", entry("a"), node="n1", born_at=0.0, initialized_at=0.0)
    assert not world.table.room.holds


def test_a_plan_that_is_over_is_not_kept_anew_for_a_pod_whose_node_is_disrupted_long_after() -> None:
    """What became of its pods is forgotten with its places; the state kept nothing for them."""
    world = World()
    world.pods(member("a", node="n2"), member("b"))
    world.claim("c-n2", node="n2")
    world.node("n2")
    world.planned_node("n1", entry("a", "b"))
    assert world.table.room.planned == 1
    world.pass_time(HOLD_SECONDS + 1)
    assert not world.table.places.promises, "nothing is kept of it"
    world.claim("c-n2", node="n2", disrupted=True)
    world.node("n1", cores=8)
    assert not world.table.room.holds
    world.claim("c-n1", entry("a", "b", "c"), node="n1")
    world.pods(member("c"))
    assert world.table.room.planned == 3, "the plan is made anew"


@pytest.mark.parametrize("first", ["plan", "command"])
def test_an_old_plan_is_kept_for_a_pod_on_a_candidate_in_whatever_order_claims_are_read(first: str) -> None:
    world = World()
    world.pods(member("a", node="n2"))
    world.node("n1")
    world.node("n2")
    for name in ("c-n1", "c-n2") if first == "plan" else ("c-n2", "c-n1"):
        plan = (entry("a"),) if name == "c-n1" else ()
        world.claim(name, *plan, node=name[2:], disrupted=not plan, born_at=0.0, initialized_at=0.0)
    world.pass_time(1)
    assert set(world.table.room.holds) == {"n1"}
    world.claim("c-n2", node="n2")
    world.pass_time(1)
    assert not world.table.places.promises


def test_a_successor_that_is_planned_where_it_left_its_place_has_one_beside_it() -> None:
    """It runs at a brother's place, whose successor is to have its own; its node goes, and it is planned there again."""
    world = World()
    world.pods(member("a"), member("b"))
    world.planned_node("n1", entry("a"))
    world.planned_node("n2", entry("b"))
    world.table.drop_pod("a")
    world.bind(member("b"), "n1")
    world.node("n1", leaving=True)
    assert world.table.room.planned == 1
    world.claim("c-n2", entry("b", count=2), node="n2", again_at=NOON)
    assert world.table.room.planned == 2


def test_so_has_one_whose_place_was_of_no_use_to_its_brother() -> None:
    world = World()
    world.pods(member("a"), member("b"))
    world.planned_node("n1", entry("a"))
    world.planned_node("n2", entry("b"))
    world.bind(member("b"), "n1")
    world.bind(member("a"), "elsewhere")
    world.node("n1", leaving=True)
    assert not world.table.room.holds
    world.claim("c-n2", entry("b"), node="n2", again_at=NOON)
    assert set(world.table.room.holds) == {"n2"}


def test_a_plan_may_tell_that_a_pod_is_gone_before_its_watch_does() -> None:
    world = World()
    world.pods(member("a"))
    world.planned_node("n1", entry("a"))
    world.claim("c-n1", entry(count=1), node="n1")
    world.table.drop_pod("a")
    world.pass_time(0)
    assert set(world.table.room.holds) == {"n1"}
    world.pass_time(VACANT_SECONDS)
    assert not world.table.room.holds


def test_a_plan_dated_to_the_future_counts_no_more_than_one_made_after_it() -> None:
    world = World()
    world.node("n1")
    world.node("n2")
    world.pods(member("p"))
    world.claim("dated", entry("p"), node="n1", born_at=world.now + 1e9)
    assert set(world.table.room.holds) == {"n1"}
    world.pass_time(10)
    world.claim("later", entry("p"), node="n2", born_at=world.now)
    assert set(world.table.room.holds) == {"n2"}


def test_a_pod_that_was_taken_off_its_plan_holds_nothing() -> None:
    world = World()
    world.pods(member("a"), member("b", klass="other"))
    world.planned_node("n1", entry("a"), entry("b", klass="other"))
    world.claim("c-n1", entry("b", klass="other"), node="n1")
    assert world.table.room.holds["n1"].needed(0) == cpus(1)


# --- whose node it is -------------------------------------------------------------------------------------------------


def test_two_nodes_with_the_provider_id_of_one_claim_get_none_of_its_pods() -> None:
    world = World()
    world.pods(member("a"))
    world.claim("c", entry("a"), provider_id="p")
    world.node("n1", 1, provider_id="p")
    world.node("liar", 1, provider_id="p")
    assert not world.table.room.holds
    world.claim("c", entry("a"), provider_id="p", node="n1")  # our own registration says which
    assert set(world.table.room.holds) == {"n1"}
