"""A world that is asked many times: what a question may say, what time and effort do, and what the next instant shares."""

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as changed

from provisioner.apis import names
from provisioner.apis.core import Affinity, NodeAffinity, PreferredSchedulingTerm
from provisioner.apis.meta import LabelSelector
from provisioner.apis.pods import Pod, PodShape
from provisioner.scheduling import prepared as prepared_module
from provisioner.scheduling.attempts.binding_order import domain_not_settled
from provisioner.scheduling.judging import Design, DesignedNode, LegalityVerdict, design_of, judge
from provisioner.scheduling.prepared import Prepared, derived, prepare
from provisioner.scheduling.problem import Bin, Changes, SchedulingPool
from provisioner.scheduling.reasons import NOT_TRIED, NoMoreClaims, PoolRefuses
from provisioner.scheduling.result import Result, Unplaced
from provisioner.values.taints import Taint, Toleration
from tests.support import checker, loads
from tests.support.problems import (
    DRIVER,
    apart,
    app,
    instance_type,
    near,
    node,
    of_app,
    pod,
    pods,
    pool,
    problem,
    required,
    shape,
    spread,
    storage,
    term,
    uses,
    volume,
    volume_claim,
)
from tests.support.question import Problem, solve

ZONE, HOST = names.ZONE_LABEL, names.HOSTNAME_LABEL
ABC = ("a", "b", "c")
SMALL = instance_type("small", "2", "4Gi", 1.0, zones=ABC)
LARGE = instance_type("large", "8", "16Gi", 4.0, zones=ABC)
ONE, BOTH = pool(types=(SMALL,)), pool(types=(SMALL, LARGE))
WEB = app("web")


def running(name: str, on: str, label: str = "web", cpu: str = "1") -> Pod:
    return changed(pod(name, of_app(label, cpu)), node_name=on, phase="Running", scheduled=True)


def gist(result: Result) -> object:
    return result.claims, result.existing, [(one.pod.uid, str(one)) for one in result.unplaced]


def where(result: Result) -> dict[str, list[str]]:
    return {name: sorted(pod.name for pod in some) for name, some in result.existing.items()}


# --- what is learnt meanwhile ---


@pytest.mark.parametrize("kinds", ["learnt", "told by the type"])
@pytest.mark.parametrize("apart", [False, True], ids=["with a node that changes", "by itself"])
def test_what_becomes_known_of_a_kind_counts_for_its_nodes_from_then_on(kinds: str, apart: bool) -> None:
    """The room of nodes is remembered from one question to the next, as far as nothing of their kind changes."""
    asked = [pod(f"p{n}", shape("100m", volumes=uses(f"c{n}"))) for n in range(3)]
    claims = [volume_claim(f"c{n}") for n in range(3)]
    one = replace(node("n", labels={names.INSTANCE_TYPE_LABEL: "small"}), pool="default")
    before = prepare(problem(asked, ONE, bins=[one], storage=storage(*claims)))
    assert where(before.solve(asked)) == {"n": ["p0", "p1", "p2"]}
    told = instance_type("small", "2", "4Gi", 1.0, zones=ABC, more={f"attachable-volumes-csi-{DRIVER}": "2"})
    changes = (
        Changes(storage=storage(*claims, attach={"small": {DRIVER: 2}}))
        if kinds == "learnt"
        else Changes(pools=(pool(types=(told,)),))
    )
    if not apart:
        changes = replace(changes, bins={"n": replace(one, node_name="n")})
    after = before.updated(changes)
    assert where(after.solve(asked)) == {"n": ["p0", "p1"]}


# --- nodes that a pod avoids ---

SHAPES = {
    "no wishes": shape(),
    "a selector": shape(selector={"team": "a"}),
    "a term": shape(affinity=required(term(("team", "In", ["a"])))),
    "two terms": shape(affinity=required(term(("team", "In", ["a"])), term(("team", "In", ["b"])))),
    "a volume's zone": shape(volumes=uses("data")),
    "a term that matches nothing": shape(affinity=required(term())),
}


@pytest.mark.parametrize("wish", SHAPES)
def test_a_pod_takes_no_node_that_it_avoids_and_keeps_its_other_wishes(wish: str) -> None:
    labels = {"team": "a", ZONE: "a"}
    bins = [node(name, labels=labels) for name in ("n1", "n2", "n3")]
    bins.append(node("foreign", labels={"team": "c", ZONE: "c"}))
    one, other = pod("one", SHAPES[wish]), pod("other", SHAPES[wish])
    stored = storage(volume_claim("data", volume="pv"), volume("pv", "a"))
    prepared = prepare(problem((), bins=bins, storage=stored))
    alone = prepared.solve((one,), avoided={one.uid: frozenset({"n1", "n2"}), "somebody": frozenset({"n3"})})
    if wish == "a term that matches nothing":
        assert [left.pod for left in alone.unplaced] == [one]
        return
    assert alone.existing == {"n3": (one,)}
    together = prepared.solve((one, other), avoided={one.uid: frozenset({"n1", "n2"})})
    assert where(together)["n3"] == ["one"]
    assert where(together)["n1"] == ["other"]
    everywhere = ({"foreign"} if wish == "no wishes" else set()) | {"n1", "n2", "n3"}
    nowhere = prepared.solve((one,), avoided={one.uid: frozenset(everywhere)})
    assert [left.pod for left in nowhere.unplaced] == [one]


@pytest.mark.parametrize("more", [{}, {"selector": {"team": "a"}}], ids=["anywhere", "by a selector"])
def test_a_node_that_a_pod_avoids_counts_for_its_spread(more: dict[str, Any]) -> None:
    """kube-scheduler knows nothing of it: planned without that node's pods, the pod would be refused wherever it is planned."""
    of = of_app("web", topology_spread_constraints=(spread(ZONE, WEB),), **more)

    def full(zone: str, count: int) -> Bin:
        pods = [changed(running(f"{zone}-{number}", zone), shape=of) for number in range(count)]
        return node(zone, cpu="1", labels={ZONE: zone, "team": "a"}, running=pods)

    bins = [full("a", 2), full("b", 1), full("c", 2)]
    one = pod("one", of)
    made = pool(types=(SMALL,), labels={"team": "a"})
    result = prepare(problem((), made, bins=bins)).solve((one,), avoided={one.uid: frozenset({"b", "c"})})
    assert [claim.planned_zone for claim in result.claims] == ["b"]


# --- time ---


def knotty() -> Problem:
    """Pods that need turns and lots: followers before leaders, apart in zones, spread over hosts."""
    asked = [
        *pods(4, of_app("web", topology_spread_constraints=(spread(HOST, WEB), spread(ZONE, WEB))), "web"),
        *pods(3, of_app("db", affinity=apart(ZONE, app("db"))), "db"),
        *pods(3, shape(affinity=near(ZONE, app("db"))), "near"),
        *pods(4, of_app("x", affinity=apart(ZONE, WEB)), "x"),
    ]
    return problem(asked, pool(types=(SMALL,), limits={"nodes": "5"}))


@pytest.mark.parametrize("budget", [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 1_000])
def test_whatever_the_budget_the_answer_is_legal_and_names_what_was_not_tried(budget: int) -> None:
    asked = knotty()
    result = prepare(asked).solve(asked.pods, budget=budget)
    placed = [pod for pod, _ in checker.placements_of(result)]
    assert len(placed) + len(result.unplaced) == len(asked.pods)
    left = [one.pod for one in result.unplaced if NOT_TRIED not in one.reasons]
    wrong = checker.violations(replace(asked, pods=(*placed, *left)), replace(result, unplaced=_tried(result)))
    assert [text for text in wrong if "would fit" not in text] == []
    if not budget:
        assert {one.reasons for one in result.unplaced} == {(NOT_TRIED,)}
        assert len(result.unplaced) == len(asked.pods)


def _tried(result: Result) -> tuple[Unplaced, ...]:
    return tuple(one for one in result.unplaced if NOT_TRIED not in one.reasons)


def test_the_same_budget_gives_the_same_answer() -> None:
    asked = knotty()
    for budget in (7, 40, 300):
        assert gist(prepare(asked).solve(asked.pods, budget=budget)) == gist(
            prepare(asked).solve(asked.pods, budget=budget)
        )


def test_time_that_is_up_ends_a_question_within_some_steps() -> None:
    looks = itertools.count()
    many = [one for number in range(200) for one in pods(1, of_app(f"a{number}"), f"p{number}")]
    asked = problem(many, ONE)
    result = prepare(asked).solve(asked.pods, expired=lambda: next(looks) >= 2)
    left = [one for one in result.unplaced if one.reasons == (NOT_TRIED,)]
    assert 0 < len(left) < 200
    assert len(left) == len(result.unplaced)
    assert "solve deadline" in str(left[0])


def test_explanations_end_with_the_time() -> None:
    huge = [one for number in range(50) for one in pods(1, shape(f"{100 + number}"), f"p{number}")]
    over: list[bool] = []
    asked = problem(huge, ONE)

    def expired() -> bool:
        over.append(True)
        return len(over) > 25

    result = prepare(asked).solve(asked.pods, expired=expired)
    told = [one for one in result.unplaced if one.reasons != (NOT_TRIED,)]
    assert 0 < len(told) < 50


def test_no_lots_are_drawn_for_pods_that_are_impossible_however_they_are_ordered() -> None:
    """Five replicas that want a zone each, of which there are three."""
    others = [one for number in range(10) for one in pods(2, of_app(f"a{number}"), f"p{number}")]
    asked = problem([*others, *pods(5, of_app("db", affinity=apart(ZONE, app("db"))), "db")], BOTH)
    looks = itertools.count()
    result = prepare(asked).solve(asked.pods, expired=lambda: next(looks) < 0)
    assert [one.pod.name for one in result.unplaced] == ["db-00003", "db-00004"]
    assert next(looks) < 12  # a hundred lots would look hundreds of times


# --- effort, explanations, prices, numbers ---


def test_without_effort_no_answer_is_a_false_yes() -> None:
    asked = knotty()
    result = prepare(asked).solve(asked.pods, effort=0)
    placed = [pod for pod, _ in checker.placements_of(result)]
    only = replace(asked, pods=tuple(placed))
    wrong = checker.violations(only, replace(result, unplaced=()))
    assert wrong == []


def test_reasons_are_found_when_they_are_asked_for() -> None:
    asked = problem([*pods(2), *pods(2, shape("100"), "huge")], ONE)
    prepared = prepare(asked)
    now, later = prepared.solve(asked.pods), prepared.solve(asked.pods, explain=False)
    assert [str(one) for one in now.unplaced] == [str(one) for one in later.unplaced]
    assert later.unplaced[0].reasons is later.unplaced[1].reasons


def test_no_more_claims_than_allowed() -> None:
    asked = problem(pods(6, shape("2")), ONE)
    prepared = prepare(asked)
    assert [len(prepared.solve(asked.pods, max_new=most).claims) for most in (0, 1, 4, 9)] == [0, 1, 4, 6]
    left = prepared.solve(asked.pods, max_new=1).unplaced
    assert (len(left), left[0].reasons) == (5, (PoolRefuses("default", NoMoreClaims(1)),))


def test_a_pod_without_a_place_is_answer_enough() -> None:
    asked = problem([*pods(1, shape("100"), "huge"), *pods(50)], ONE)
    result = prepare(asked).solve(asked.pods, stop_at_first_unplaced=True, effort=0, explain=False)
    assert not result.claims
    assert len(result.unplaced) == 51
    (told,) = _tried(result)
    assert (told.pod.name, told.reasons) == ("huge-00000", prepare(asked).solve(asked.pods).unplaced[0].reasons)


@pytest.mark.parametrize(("budget", "tried"), [(0, 0), (1, 0), (100, 1)])
def test_a_pod_that_had_no_turn_has_no_reason_where_one_without_a_place_is_answer_enough(
    budget: int, tried: int
) -> None:
    asked = problem([*pods(1, shape("2"), "large"), *pods(1, shape("100m", priority=-1), "small")], ONE)
    result = prepare(asked).solve(
        asked.pods, stop_at_first_unplaced=True, effort=0, max_new=0, explain=False, budget=budget
    )
    assert [one.pod.name for one in _tried(result)] == ["large-00000"] * tried
    assert len(result.unplaced) == 2


# --- nodes that leave, are gone, or are closed ---


def two_nodes(**more: Any) -> tuple[Bin, Bin]:
    return (
        node("m", "4", labels={ZONE: "a"}, running=[running("w1", "m"), running("w2", "m")], **more),
        node("n", "4", labels={ZONE: "b"}, running=[running("w3", "n")]),
    )


def test_a_node_that_is_gone_is_as_if_it_had_never_been() -> None:
    m, n = two_nodes()
    asked = problem(pods(3, of_app("web", topology_spread_constraints=(spread(ZONE, WEB),)), "new"), BOTH, bins=[m, n])
    whole, less = prepare(asked), prepare(replace(asked, bins=(n,)))
    assert gist(whole.solve(asked.pods, gone={"m"})) == gist(less.solve(asked.pods))


def test_pods_of_a_leaving_node_find_another_place() -> None:
    m, n = two_nodes()
    prepared = prepare(problem((), BOTH, bins=[m, n]))
    result = prepared.solve(m.pods, leaving={"m"})
    assert where(result) == {"n": ["w1", "w2"]}


def test_a_leaving_node_is_a_domain_until_it_is_gone() -> None:
    """kube-scheduler counts it as an empty one, unless the pod honours taints."""
    old = [running(f"o{number}", "n") for number in range(2)]
    bins = [node("m", "4", labels={ZONE: "a"}), node("n", "8", labels={ZONE: "b"}, running=old)]
    asked = pods(1, of_app("web", topology_spread_constraints=(spread(ZONE, WEB),)), "w")
    prepared = prepare(problem((), bins=bins))
    (left,) = prepared.solve(asked, leaving={"m"}).unplaced
    assert "topology spread" in str(left)
    assert where(prepared.solve(asked, gone={"m"})) == {"n": ["w-00000"]}
    honest = pods(1, of_app("web", topology_spread_constraints=(spread(ZONE, WEB, node_taints_policy="Honor"),)), "w")
    assert where(prepared.solve(honest, leaving={"m"})) == {"n": ["w-00000"]}


@pytest.mark.parametrize("already", [False, True])
def test_a_leaving_node_is_no_host_to_spread_over(already: bool) -> None:
    """Its Node loses the hostname label before its first pod is evicted, and kube-scheduler passes over Nodes without it."""
    old = [running(f"o{number}", "n") for number in range(2)]
    bins = [node("m", "4", labels={ZONE: "a"}, leaving=already), node("n", "8", labels={ZONE: "b"}, running=old)]
    asked = pods(1, of_app("web", topology_spread_constraints=(spread(HOST, WEB),)), "w")
    assert where(prepare(problem((), bins=bins)).solve(asked, leaving={"m"})) == {"n": ["w-00000"]}


def test_a_node_that_leaves_already_is_a_domain_where_a_question_names_it() -> None:
    """The world counts what is on it, and not the node: as it is once it is gone."""
    old = [running(f"o{number}", "n") for number in range(2)]
    bins = [node("m", "4", labels={ZONE: "a"}, leaving=True), node("n", "8", labels={ZONE: "b"}, running=old)]
    asked = pods(1, of_app("web", topology_spread_constraints=(spread(ZONE, WEB),)), "w")
    prepared = prepare(problem((), bins=bins))
    assert where(prepared.solve(asked)) == {"n": ["w-00000"]}
    (left,) = prepared.solve(asked, leaving={"m"}).unplaced
    assert "topology spread" in str(left)


def test_whoever_stays_on_a_leaving_node_goes_with_it() -> None:
    friend = running("friend", "m", "db")
    bins = [node("m", "4", labels={ZONE: "a"}, running=[friend]), node("n", "4", labels={ZONE: "a"})]
    prepared = prepare(problem((), bins=bins))
    follower = pods(1, shape(affinity=near(ZONE, app("db"))), "f")
    assert where(prepared.solve(follower)) == {"m": ["f-00000"]}
    (left,) = prepared.solve(follower, leaving={"m"}).unplaced
    assert "didn't match pod affinity rules" in str(left)


@pytest.mark.parametrize(
    ("asked", "looks"), [(of_app("web", topology_spread_constraints=(spread(ZONE, WEB),)), 2), (shape(), 1)]
)
def test_a_design_is_legal_before_and_after_nodes_leave(
    asked: PodShape, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod that has to move within its zone counts on both nodes until the old one is gone; what nobody on it has to do with is judged once."""
    counted: list[object] = []

    def noted(*args: Any) -> LegalityVerdict:
        counted.append(args)
        return judge(*args)

    monkeypatch.setattr(prepared_module, "judge", noted)
    moving = running("moving", "old")
    bins = [
        node("m", "4", labels={ZONE: "a"}, running=[running(f"a{number}", "m") for number in range(2)]),
        node("n", "4", labels={ZONE: "b"}, running=[running(f"b{number}", "n") for number in range(2)]),
        node("old", "4", labels={ZONE: "c"}, running=[moving]),
        node("new", "4", labels={ZONE: "c"}, running=[moving]),
    ]
    prepared, design = prepare(problem((), bins=bins)), designed(n=pods(1, asked, "w"))
    assert prepared.judge(design, leaving={"old"}, afterwards=False).legal
    counted.clear()
    assert prepared.judge(design, leaving={"old"}).legal is (looks == 1)
    assert len(counted) == looks
    assert prepared.judge(design, gone={"old"}).legal is (looks == 1)


def test_a_closed_node_takes_nothing_and_counts() -> None:
    m, n = two_nodes(closed=True)
    asked = problem(pods(2, of_app("web", topology_spread_constraints=(spread(ZONE, WEB),)), "new"), ONE, bins=[m, n])
    result = prepare(asked).solve(asked.pods)
    assert "m" not in result.existing
    assert checker.violations(asked, result) == []


# --- the next instant ---


def test_what_did_not_change_is_shared() -> None:
    m, n = two_nodes()
    before = prepare(problem((), BOTH, bins=[m, n]))
    assert prepare(before.world, before)._ground is before._ground
    more = replace(n, pods=(*n.pods, running("w4", "n")), room=n.room)
    after = before.updated(Changes(bins={"n": more}))
    assert after._ground is before._ground
    assert after.world.bins == (m, more)
    assert before.world.bins == (m, n)


def test_the_same_world_is_what_was_prepared() -> None:
    m, n = two_nodes()
    before = prepare(problem((), BOTH, bins=[m, n]))
    assert prepare(replace(before.world), before) is before


def test_a_policy_that_changed_counts() -> None:
    before = prepare(problem((), BOTH))
    new = pods(6, of_app("web", topology_spread_constraints=(spread(HOST, WEB, 3),)), "new")
    after = prepare(replace(before.world, hostname_domains=3), before)
    assert (len(before.solve(new).claims), len(after.solve(new).claims)) == (1, 3)


def test_nodes_that_came_are_all_that_is_looked_at() -> None:
    """Each replacement of hundreds that one pass plans is another node."""
    m, n = two_nodes()
    before = prepare(problem((), BOTH, bins=[m, n]))
    after = before.updated(Changes(bins={"o": node("o", "4", labels={ZONE: "c"})}))
    same = [one is other for one, other in zip(before._ground._bins, after._ground._bins, strict=False)]
    assert same == [True, True]
    assert after._nodes == prepare(after.world)._nodes
    assert (after._ground.everything, after._ground.by_taints) == (0b111, {(): 0b111})


CHANGES: dict[str, Callable[[Bin, Bin], Changes]] = {
    "a pod came": lambda m, n: Changes(bins={"n": replace(n, pods=(*n.pods, running("w4", "n")))}),
    "a pod went": lambda m, n: Changes(bins={"m": replace(m, pods=m.pods[:1])}),
    "a node came": lambda m, n: Changes(bins={"o": node("o", "4", labels={ZONE: "c"})}),
    "a node went": lambda m, n: Changes(gone=frozenset({"m"})),
    "a node moved to another zone": lambda m, n: Changes(bins={"m": replace(m, labels={**m.labels, ZONE: "c"})}),
    "a pool came": lambda m, n: Changes(pools=(BOTH, pool("other", weight=5))),
    "room shrank": lambda m, n: Changes(bins={"m": node("m", "1", labels={ZONE: "a"}, running=m.pods)}),
    "a guard came": lambda m, n: Changes(
        bins={"m": replace(m, pods=(*m.pods, changed(pod("g", of_app("g", affinity=apart(ZONE, WEB))), node_name="m")))}
    ),
    "nothing": lambda m, n: Changes(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_next_instant_answers_like_a_fresh_one(change: Callable[[Bin, Bin], Changes]) -> None:
    m, n = two_nodes()
    new = [
        *pods(4, of_app("web", topology_spread_constraints=(spread(ZONE, WEB),)), "new"),
        *pods(2, of_app("x", affinity=near(HOST, WEB)), "x"),
    ]
    before = prepare(problem((), BOTH, bins=[m, n]))
    before.solve(new)
    after = before.updated(change(m, n))
    assert gist(after.solve(new)) == gist(prepare(after.world).solve(new))
    back = after.updated(Changes(bins={"m": m, "n": n}))
    assert gist(back.solve(new)) == gist(prepare(back.world).solve(new))


def test_a_world_prepared_after_another_is_as_if_alone() -> None:
    m, n = two_nodes()
    asked = problem(pods(3), BOTH, bins=[m, n])
    before = prepare(asked)
    for bins in ((n, m), (m,), (m, n, node("o")), (node("o"), m, n), ()):
        other = replace(asked, bins=bins)
        found: Prepared = prepare(other, before)
        assert found.world.bins == bins
        assert gist(found.solve(asked.pods)) == gist(solve(other))


# --- somebody else's design ---


def designed(*nodes: DesignedNode, **existing: tuple[Pod, ...]) -> Design:
    return Design(nodes, existing)


def on(kind: str, zone: str, *some: Pod) -> DesignedNode:
    return DesignedNode("default", kind, zone, "on-demand", some)


SPREAD = of_app("web", topology_spread_constraints=(spread(ZONE, WEB),))
APART = of_app("web", affinity=apart(HOST, WEB))
W = pods(4, SPREAD, "w")
A = pods(2, APART, "a")
DESIGNS: dict[str, tuple[Design, str]] = {
    "good": (designed(on("small", "c", W[0])), ""),
    "too much on one": (designed(on("small", "c", W[0], *pods(2))), "does not fit"),
    "more on the node than the type has": (designed(on("small", "c", *pods(3))), "does not fit on small"),
    "no such type": (designed(on("huge", "c", *pods(1))), "has no huge in c"),
    "no such zone": (designed(on("small", "mars", *pods(1))), "has no small in mars"),
    "a spread that is broken together": (designed(on("large", "c", *W[:3])), "topology spread"),
    "two that must be apart": (designed(on("large", "c", *A)), "anti-affinity"),
    "each on its own": (designed(on("small", "c", A[0]), on("small", "c", A[1])), ""),
    "an existing node": (designed(n=W[:2]), "topology spread"),
    "a node that is not there": (designed(x=pods(1)), "the node does not exist"),
    "an existing node that is full": (designed(n=pods(5)), "does not fit"),
}


@pytest.mark.parametrize(("design", "want"), DESIGNS.values(), ids=DESIGNS)
def test_a_design_is_judged(design: Design, want: str) -> None:
    """One pod of the app runs in zones a and b each."""
    bins = [
        node("m", "0", labels={ZONE: "a"}, running=[running("o1", "m")]),
        node("n", "4", labels={ZONE: "b"}, running=[running("o2", "n")]),
    ]
    verdict = prepare(problem((), BOTH, bins=bins)).judge(design)
    assert verdict.legal == (not want), verdict
    if want:
        assert want in str(verdict.faults[0])


def test_who_runs_on_a_node_without_the_label_is_nobody_to_follow() -> None:
    """kube-scheduler counts pods by the label's value only, so the pod is the first of its kind; found with two thousand examples."""
    follower = shape(labels={"app": "y"}, affinity=near(ZONE, app("y")))
    there = changed(pod("there", shape(labels={"app": "y"})), node_name="bare", phase="Running")
    asked = problem([pod("next", follower)], pool(), bins=[node("bare", "0", running=[there])])
    prepared = prepare(asked)
    result = prepared.solve(asked.pods)
    assert [len(claim.pods) for claim in result.claims] == [1]
    assert not checker.violations(asked, result)
    assert not prepared.judge(design_of(result)).faults


@pytest.mark.parametrize(("teams", "is_legal"), [(("red", "blue"), True), (("blue", "green"), False)])
def test_a_designed_node_is_kept_out_of_the_domains_that_would_break_a_spread(
    teams: tuple[str, ...], is_legal: bool
) -> None:
    """Its label is still open, and a node of another team would be a domain with too few pods; found with two thousand examples."""
    kept = of_app("web", topology_spread_constraints=(spread("team", WEB),))
    red = node("red", labels={"team": "red"}, running=[running("there", "red")])
    asked = problem((), pool("default", ("team", "In", list(teams)), types=(SMALL,)), bins=[red])
    design = designed(on("small", "a", *pods(1)), red=pods(1, kept, "kept"))
    verdict, claims = prepare(asked).settle(design)
    assert verdict.legal == is_legal, verdict
    assert [one.labels["team"] for one in claims] == (["red"] if is_legal else [])


def test_several_pods_may_each_be_the_first_of_their_kind() -> None:
    """Each group has a pod that others of it must come after, because it is first only as long as none of its kind runs."""
    some: list[Pod] = []
    for kind in ("x", "y", "z"):
        first = shape(labels={"app": kind}, affinity=near(HOST, app(kind)))
        some += [*pods(1, first, f"first-{kind}"), *pods(1, of_app(kind), f"other-{kind}")]
    design = designed(*(on("small", "a", one) for one in some))
    assert prepare(problem((), ONE)).judge(design).legal


def test_a_plan_says_which_of_the_values_that_a_pool_allows_its_nodes_have() -> None:
    blue = shape(affinity=required(term(("team", "In", ["blue"]))))
    alone = of_app("alone", affinity=apart("team", app("alone")))
    asked = problem([pod("blue", blue), *pods(2, alone, "alone")], pool("default", ("team", "In", ["blue", "red"])))
    prepared = prepare(asked)
    result = prepared.solve(asked.pods)
    design = design_of(result)
    assert prepared.judge(design).legal, prepared.judge(design)
    verdict, claims = prepared.settle(design)
    assert verdict.legal
    assert [one.labels for one in claims] == [one.labels for one in result.claims]
    without = replace(design, nodes=tuple(replace(one, labels=()) for one in design.nodes))
    assert "not decided" in str(prepared.judge(without).faults[0])


def test_a_pod_keeps_its_place_though_a_new_node_for_one_of_lower_priority_would_break_its_spread() -> None:
    """Found with two thousand examples: the other pod got the room, because no plan with a node for it was legal."""
    tainted = pool(types=(SMALL,), taints=[Taint(key="dedicated", effect="NoSchedule")])
    kept = shape(
        "2", labels={"app": "web"}, topology_spread_constraints=(spread(HOST, WEB, node_taints_policy="Ignore"),)
    )
    low = shape("1", tolerations=[Toleration(key="dedicated", operator="Exists")])
    there = node("n", "2", max_pods=2, running=[running("there", "n")])
    asked = problem([pod("kept", changed(kept, priority=10)), pod("low", low)], tainted, bins=[there])
    result = prepare(asked).solve(asked.pods)
    assert not checker.violations(asked, result)
    assert where(result) == {"n": ["kept"]}
    (left,) = result.unplaced
    assert "a new node would violate the topology spread of other pods across kubernetes.io/hostname" in str(left)
    bound = node("n", "0", max_pods=1, running=[*there.pods, changed(pod("kept", kept), node_name="n")])
    alone = prepare(replace(asked, bins=(bound,)))
    assert [len(claim.pods) for claim in alone.solve([left.pod]).claims] == [1]  # at the next pass


def test_a_hostname_spread_does_not_wait_for_pods_that_fill_another_domain_of_it() -> None:
    """Found by a search: a second pod waited on each node for the new one, whose pods left it no room in its capacity type."""
    key = names.CAPACITY_TYPE_LABEL
    both = (spread(HOST, WEB, min_domains=3), spread(key, WEB, 2, min_domains=3))
    first = [pod(f"first-{n}", of_app("web", priority=10, topology_spread_constraints=both)) for n in range(4)]
    there = [node(kind, labels={key: kind}, max_pods=2) for kind in ("spot", "on-demand")]
    bought = pool("default", (key, "In", ["on-demand"]), types=(LARGE,))
    asked = problem([*first, *pods(2, of_app("web"))], bought, bins=there)
    result = prepare(asked).solve(asked.pods)
    assert not checker.violations(asked, result)
    assert not result.unplaced


def test_the_first_of_its_kind_must_be_bound_before_those_that_its_spread_counts() -> None:
    """Found by a search: whichever of the three is bound first, another of them has to come before it."""
    key = names.CAPACITY_TYPE_LABEL
    spots = of_app("web", topology_spread_constraints=(spread(key, WEB),))
    follower = of_app("web", affinity=near("team", WEB))
    there = [
        node(f"{team}-{kind}", labels={key: kind, "team": team})
        for team, kind in (("red", "spot"), ("blue", "spot"), ("red", "on-demand"))
    ]
    on_red, on_blue, on_demand = (pod("on-red", spots), pod("on-blue", follower), pod("on-demand", follower))
    prepared = prepare(problem((), bins=there))
    both = {"red-spot": (on_red,), "red-on-demand": (on_demand,)}
    assert prepared.judge(Design(existing=both)).legal
    verdict = prepared.judge(Design(existing={**both, "blue-spot": (on_blue,)}))
    assert "required pod affinity on team would not be met" in str(verdict.faults)


def test_pods_on_designed_nodes_are_not_settled_in_a_domain_because_others_rule_the_rest_out() -> None:
    """Found by a search: both nodes were kept out of the other team for the sake of others, and their pods were not counted in it."""
    kept = of_app("kept", topology_spread_constraints=(spread("team", app("kept")),))
    both = of_app("web", topology_spread_constraints=(spread("team", WEB, min_domains=2),))
    prepared = prepare(
        problem(
            (),
            pool("default", ("team", "In", ["blue", "red"]), types=(SMALL,)),
            bins=[node("n", labels={"team": "blue"})],
        )
    )
    there = {"n": tuple(pods(2, kept, "kept"))}
    open_ones = designed(*(on("small", "a", one) for one in pods(2, both, "web")))
    verdict = prepared.judge(replace(open_ones, existing=there))
    assert {str(fault).split(": ")[1] for fault in verdict.faults} == {str(domain_not_settled("team"))}


def test_a_search_may_leave_those_of_lower_priority_without_new_nodes() -> None:
    """Found by a search: the last of the spread pods lost its place to a pod whose own node would have been too empty."""
    key = names.CAPACITY_TYPE_LABEL
    high = of_app("web", "2", "0", priority=10, topology_spread_constraints=(spread(HOST, WEB, min_domains=3),))
    joined = of_app("web", "500m", priority=10, affinity=near(HOST, WEB))
    never = of_app("web", "1", "0", affinity=apart(ZONE, app("z")), topology_spread_constraints=(spread(key, WEB),))
    there = [
        node("a", labels={ZONE: "c", key: "on-demand"}, max_pods=2, running=[running("a0", "a", "z")]),
        node("b", "2", labels={ZONE: "b", key: "on-demand"}, running=[running("b0", "b")]),
        node("c", labels={ZONE: "a", key: "spot"}),
    ]
    low = shape(
        "1500m",
        "0",
        affinity=Affinity(
            node_affinity=NodeAffinity(
                preferred=(PreferredSchedulingTerm(weight=7, preference=term((ZONE, "In", ["b"]))),)
            )
        ),
        labels={"app": "z"},
    )
    types = (instance_type("small", "1800m", "4Gi", zones=("c",), capacity_types=("on-demand",)),)
    asked = problem(
        [pod("never", never), *pods(4, high, "high"), pod("low", low), *pods(3, joined, "joined")],
        pool(types=types),
        bins=there,
    )
    result = prepare(asked).solve(asked.pods)
    assert not checker.violations(asked, result)


def test_a_hostname_spread_does_not_wait_for_a_later_node_whose_pod_waits_for_it() -> None:
    """Found by a search: the last pod of a zone waited for the spread one in the other zone, and that for the last one's new node."""
    wide = of_app("web", topology_spread_constraints=(spread(ZONE, WEB),))
    both = of_app(
        "web",
        "100m",
        affinity=near("team", app("y")),
        topology_spread_constraints=(spread(ZONE, WEB), spread(HOST, LabelSelector())),
    )
    there = [node("n", labels={ZONE: "b", "team": "blue"}, max_pods=2, running=[running("y", "n", "y")])]
    types = (instance_type("small", "2", "4Gi", zones=ABC, max_pods=1),)
    asked = problem(
        [pod("both", both), *pods(2, wide, "wide")], pool("default", (ZONE, "In", ["a", "b"]), types=types), bins=there
    )
    result = prepare(asked).solve(asked.pods)
    assert not checker.violations(asked, result)


def test_a_node_that_can_only_come_to_domains_that_are_too_empty_is_one_of_them() -> None:
    """Found with two thousand examples: the spread pod went to the fullest zone, and no zone was left for the node of the other."""
    key = names.CAPACITY_TYPE_LABEL
    kinds = required(term((key, "In", ["on-demand"])), term((key, "In", ["spot"])))
    either = of_app("z", "100m", "1Gi", affinity=kinds)
    only_c = of_app(
        "web",
        "100m",
        "128Mi",
        selector={ZONE: "c"},
        affinity=required(term((ZONE, "NotIn", ["a"])), term((ZONE, "In", ["a"]))),
        topology_spread_constraints=(
            spread(key, app("z"), 2, when_unsatisfiable="ScheduleAnyway"),
            spread(ZONE, WEB, node_affinity_policy="Ignore"),
        ),
    )
    there = node("n", "0", labels={ZONE: "c", key: "on-demand"}, running=[running("there", "n")])
    types = (
        instance_type("large", "8", "16Gi", 4.0),
        instance_type("small", "2", "4Gi", 1.0, zones=ABC, capacity_types=("on-demand",), max_pods=2),
    )
    asked = problem(
        [pod("either", either), pod("only-c", only_c)], pool(types=types, limits={"cpu": "9"}), bins=[there]
    )
    result = prepare(asked).solve(asked.pods)
    assert not checker.violations(asked, result)
    assert not result.unplaced


def test_a_node_that_comes_after_a_cautious_pod_is_put_where_its_spread_holds() -> None:
    """Found with two thousand examples: as above, where the spread pod has an existing node and is put there at once."""
    key = names.CAPACITY_TYPE_LABEL
    wide = of_app(
        "z",
        "2",
        "1Gi",
        topology_spread_constraints=(spread(key, app("z"), node_affinity_policy="Ignore", node_taints_policy="Honor"),),
    )
    only_c = of_app(
        "web",
        "100m",
        "128Mi",
        selector={ZONE: "c"},
        topology_spread_constraints=(
            spread(key, app("z"), 2, when_unsatisfiable="ScheduleAnyway", node_taints_policy="Honor"),
            spread(ZONE, WEB, node_affinity_policy="Ignore"),
        ),
    )
    there = [
        node("m", "1", labels={ZONE: "c", key: "on-demand"}),
        node("n", "0", labels={ZONE: "c", key: "on-demand"}, running=[running("there", "n")]),
    ]
    types = (
        instance_type("large", "8", "16Gi", 4.0),
        instance_type("small", "2", "4Gi", 1.0, zones=ABC, capacity_types=("on-demand",), max_pods=2),
    )
    asked = problem([pod("wide", wide), pod("only-c", only_c)], pool(types=types, limits={"cpu": "9"}), bins=there)
    result = prepare(asked).solve(asked.pods)
    assert not checker.violations(asked, result)
    assert not result.unplaced


def test_a_search_puts_the_first_of_its_kind_on_an_existing_node() -> None:
    """Found by an examination: no lot looked at nodes that a pod may only go to because none of its kind runs yet."""
    rack = "rack"
    some = [
        *pods(1, of_app("y", priority=9, topology_spread_constraints=(spread(ZONE, app("y")),)), "a"),
        *pods(1, of_app("y", priority=9), "b"),
        *pods(1, of_app("y", priority=5, topology_spread_constraints=(spread(rack, app("y"), 2, min_domains=4),)), "c"),
    ]
    first = of_app(
        "x",
        "1500m",
        affinity=near(HOST, app("x")),
        topology_spread_constraints=(spread(ZONE, app("y"), 2), spread(rack, app("x"))),
    )
    asked = problem([*some, pod("first", first)], ONE, bins=[node("n", labels={ZONE: "c", rack: "r"})])
    result = prepare(asked).solve(asked.pods)
    assert not checker.violations(asked, result)
    assert not result.unplaced


def test_whoever_is_first_of_its_kind_may_come_before_another_that_was_tried_first() -> None:
    """Found by an examination: k-0 is first, then the other, k-1, which would have been first of all that helped, and the rest."""
    two = of_app("x", topology_spread_constraints=(spread(HOST, app("x"), 2),))
    kind = of_app("x", affinity=near(HOST, app("x")), topology_spread_constraints=(spread(HOST, app("x")),))
    free, k = pods(2, of_app("x"), "free"), pods(3, kind, "k")
    design = designed(on("large", "a", pod("other", two), k[1]), on("large", "a", k[0], k[2]), on("large", "a", *free))
    assert prepare(problem((), BOTH)).judge(design).legal


def test_a_legal_part_is_kept_where_time_ends_while_an_illegal_whole_is_mended() -> None:
    """Found by an examination: the first attempt, which had no order, was kept instead, and all that has to do with it dropped."""
    asked = problem([*loads.torn_team(16, 6), *pods(8, shape("200m"), "free")], pool(types=(SMALL, LARGE)))
    left = set()
    for most in range(60):
        looks = iter([False] * most)
        result = prepare(asked).solve(asked.pods, expired=functools.partial(next, looks, True))
        left.add(len(result.unplaced))
        for claim in result.claims:  # no more than for the pods that were kept
            assert claim.requests.get("cpu") == sum(one.shape.requests.get("cpu") or 0 for one in claim.pods)
    assert len(left) > 2, "not only everything or nothing"


def test_pods_that_share_a_volume_to_come_are_not_torn_between_a_node_without_a_zone_and_zones() -> None:
    """Found with two thousand examples: the first took the node, and others came to any zone, as if the volume were everywhere."""
    wide = of_app("web", "500m", topology_spread_constraints=(spread(HOST, WEB, min_domains=3),), volumes=uses("data"))
    asked = problem(pods(4, wide), BOTH, bins=[node("n", "1")], storage=storage(volume_claim("data")))
    result = prepare(asked).solve(asked.pods)
    assert not checker.violations(asked, result)
    assert not result.unplaced


def test_two_spreads_may_hold_at_last_and_yet_leave_no_order_to_bind_in() -> None:
    """Found with two thousand examples: the second pod of `a` waits for the node of the last of zone b, and that one for it."""
    both = of_app("web", topology_spread_constraints=(spread(ZONE, WEB, min_domains=3), spread(HOST, WEB)))
    there = node("n", "0", labels={ZONE: "b"}, running=[running("there", "n")])
    asked = problem((), BOTH, bins=[there])
    a0, a1, c0, b0, c1, b1 = pods(6, both)
    whole = designed(
        on("large", "a", a0, a1), on("small", "c", c0), on("small", "b", b0), on("small", "c", c1), on("small", "b", b1)
    )
    assert not prepare(asked).judge(whole).legal
    assert prepare(asked).judge(replace(whole, nodes=whole.nodes[:-1])).legal


def test_what_pods_asked_for_that_are_gone_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pod of a pipeline may name a run of its own that no node has."""
    monkeypatch.setattr(prepared_module, "_MOST_TERMS", 50)
    before, kept = None, []
    for number in range(100):
        asked = [pod("one", shape(selector={"run": f"r{number}"}))]
        before = prepare(problem(asked, ONE), before)
        assert before.solve(asked).unplaced
        kept.append(sum(offer.terms for _, offer in before._stock._offers.values()))
    assert kept[:40] == list(range(1, 41))
    assert max(kept) <= 52


# --- what others derive ---


def test_what_follows_from_instance_types_is_made_once_while_they_are_the_same() -> None:
    made: list[object] = []

    def names_of(pools: Sequence[SchedulingPool]) -> list[str]:
        made.append(pools)
        return [kind.name for one in pools for kind in one.instance_types]

    prepared = prepare(problem((), ONE, bins=(node("n"),)))
    later = prepared.updated(Changes(bins={"n": node("n", cpu="1")}, pools=(replace(ONE, remaining=None, weight=5),)))
    afresh = prepare(replace(later.world, bins=(node("m"), node("n"))), later)
    assert [derived(one, "names", names_of) for one in (prepared, later, afresh)] == [["small"]] * 3
    assert len(made) == 1
    assert derived(afresh.updated(Changes(pools=(BOTH,))), "names", names_of) == ["small", "large"]
    narrower = replace(ONE, requirements=pool("default", (ZONE, "In", ("a",))).requirements)
    derived(afresh.updated(Changes(pools=(narrower,))), "names", names_of)
    assert len(made) == 3
