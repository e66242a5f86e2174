"""Disruption and pods that need each other: no group comes below what it needs because there is no room, and nobody is evicted who would not come back."""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from provisioner.apis import names
from provisioner.apis.budget_index import PodBudgets
from provisioner.apis.gangs import group_of
from provisioner.apis.launch_sets import LaunchSet, encode_sets
from provisioner.apis.pods import Pod
from provisioner.disruption.candidates import Obstacle, candidates
from provisioner.disruption.commands.validation import Sighted, verdict
from provisioner.disruption.gangs import PDBS_ALLOW_FEWER, STATIC_ONE_BY_ONE
from provisioner.disruption.methods import consolidation, drift, static_drift, units
from provisioner.disruption.methods.emptiness import emptiness
from provisioner.disruption.proposal import Proposal
from provisioner.disruption.simulation.turns import in_turn
from provisioner.scheduling import prepared
from provisioner.scheduling.gangs import NO_GROUPS, groups_asked
from provisioner.state.groups import Group
from provisioner.state.pause import Activity
from tests.support.clock import NOON
from tests.support.fleets import LARGE, SMALL, Fleet, budget, gone, moved, planned, pool, running
from tests.support.problems import of_app

GANG: Final = "default/g"
SHAPE: Final = of_app("web", cpu="1500m")
DRIFTED: Final = NOON - timedelta(hours=1)


def member(name: str, **more: Any) -> Pod:
    return running(name, SHAPE, group="g", **more)


def gang_of(nodes: int, minimum: int, *, limited: bool = False, **more: Any) -> Fleet:
    """So many drifted nodes with a member on each; if `limited`, no NodePool may have another node."""
    fleet = Fleet([pool(limits={"nodes": str(nodes)})] if limited else [pool()], types=(SMALL,))
    for number in range(nodes):
        fleet.node(f"n{number}", [member(f"m{number}")], kind=SMALL, drifted=DRIFTED, **more)
    fleet.minima = {GANG: minimum} if minimum > 1 else {}
    return fleet


def waiting(fleet: Fleet, count: int) -> None:
    """Members that have no node."""
    fleet.pending = [
        changed(member(f"w{number}"), phase="Pending", scheduled=False, ready=False) for number in range(count)
    ]


@pytest.mark.parametrize(("minimum", "may"), [(3, True), (4, False)])
def test_what_has_too_few_pods_already_loses_none_that_could_not_come_back_alone(minimum: int, may: bool) -> None:
    """Three run, one waits and there is no room for it: kube-scheduler binds a successor of the three only together with it."""
    fleet = gang_of(3, minimum, limited=True)
    waiting(fleet, 1)
    assert bool(gone(drift.propose(fleet.view()))) is may


@pytest.mark.parametrize(("running_pods", "together"), [(3, False), (2, True)])
def test_pods_of_annotations_move_though_others_of_their_gang_can_never_fit(running_pods: int, together: bool) -> None:
    """kube-scheduler binds them one by one, so one that can never fit keeps no other from a place that is there."""
    notes = {names.GANG: "g", names.GANG_MINIMUM: "4"}
    fleet = Fleet([pool()], types=(SMALL,))
    for number in range(running_pods):
        mine = [running(f"m{number}", SHAPE, annotations=notes)]
        fleet.node(f"n{number}", mine, kind=SMALL, drifted=DRIFTED)
    fleet.minima = {group_of(fleet.nodes[0].pods[0]): 4}
    huge = running("w", of_app("web", cpu="5000"), annotations=notes)
    fleet.pending = [changed(huge, phase="Pending", scheduled=False, ready=False)]
    assert gone(drift.propose(fleet.view()))
    if together:
        asked = groups_asked(
            [one for node in fleet.nodes for one in node.pods],
            fleet.minima,
            {key: {one.uid for node in fleet.nodes for one in node.pods} for key in fleet.minima},
        )
        assert [*asked.needed.values()] == [2], "what moves at once comes back at once, or stays"


@pytest.mark.parametrize("label", [names.ZONE_LABEL, names.HOSTNAME_LABEL])
@pytest.mark.parametrize(("allowed", "may"), [(1, False), (2, True), (None, True)])
def test_pods_of_one_domain_change_it_only_if_all_can_be_evicted_at_once(
    label: str, allowed: int | None, may: bool
) -> None:
    """As long as one of them runs, kube-scheduler places the successors of the others in its domain."""
    zones = ({"key": names.ZONE_LABEL, "operator": "In", "values": ["b"]},)
    fleet = Fleet([pool(requirements=zones)], types=(LARGE,))
    fleet.node("n", [member("m0"), member("m1")], kind=LARGE, zone="a", drifted=DRIFTED)
    fleet.topology = {GANG: label}
    fleet.budgets = [budget("pdb", "web", allowed)] if allowed is not None else []
    answer = drift.propose(fleet.view())
    assert gone(answer) == ([("n",)] if may else [])
    if not may:
        (why,) = [one.message for one in answer.blocked]
        assert "would leave its replacement without a node while the Node drains" in why


def test_pods_of_one_domain_that_go_one_by_one_get_their_new_node_there() -> None:
    fleet = Fleet(types=(LARGE,))
    fleet.node("n", [member("m0"), member("m1")], kind=LARGE, zone="c", drifted=DRIFTED)
    fleet.topology = {GANG: names.ZONE_LABEL}
    fleet.budgets = [budget("pdb", "web", 1)]
    (one,) = drift.propose(fleet.view()).proposals
    assert [claim.planned_zone for claim in one.replacements] == ["c"]


def test_that_what_a_gang_needs_is_not_asked_of_the_solver_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "groups_asked", lambda *_, **__: NO_GROUPS)
    with pytest.raises(AssertionError):
        test_pods_of_one_domain_that_go_one_by_one_get_their_new_node_there()


LACKS: dict[str, tuple[Group, str]] = {
    "no such PodGroup": (Group(GANG, None, 1, 1), "PodGroup default/g does not exist"),
    "too few pods": (
        Group(GANG, 2, 1, 1),
        "PodGroup default/g has 1 of the 2 pods that it needs (finished pods do not count)",
    ),
    "too few pods for Volcano, which counts those that have finished": (
        Group("default/volcano/g", 2, 1, 1),
        "PodGroup default/g of Volcano has 1 of the 2 pods that it needs",
    ),
    "a gated pod": (Group(GANG, 2, 3, 1, gated="h"), "PodGroup default/g has a pod with scheduling gates (h)"),
    "a contradiction": (
        Group(GANG, 2, 3, 1, differing=("spec.priority",)),
        "PodGroup default/g has pods that differ in spec.priority, or from its priority",
    ),
    "a queue": (Group(GANG, 1, 1, 1, queued=True), "PodGroup default/g waits in a queue of Volcano"),
    "PodGroups that cannot be read": (Group(GANG, None, 1, 1, unread=True), "PodGroup default/g cannot be read"),
}


@pytest.mark.parametrize(("group", "why"), LACKS.values(), ids=LACKS)
def test_a_pod_that_would_not_be_scheduled_again_stays(group: Group, why: str) -> None:
    fleet = gang_of(1, 1)
    assert gone(drift.propose(fleet.view())) == [("n0",)]
    fleet.groups = {GANG: group}
    text = f"The successor of pod default/m0 would not be scheduled, because {why}"
    for activity in (Activity.CONSOLIDATION, Activity.DRIFT):
        (one,) = candidates(fleet.view(), activity).refused
        assert (one.obstacle, one.message) == (Obstacle.POD_GROUP, text)
    last = verdict(
        names.REASON_UNDERUTILIZED,
        [Sighted("n0", tuple(changed(one, deleted=NOON) for one in fleet.nodes[0].pods))],
        PodBudgets({}),
        fleet.snapshot(),
        replaced=True,
    )
    assert not last.objection, "it goes anyhow"
    own = replace(fleet.snapshot(), nodes=(replace(fleet.nodes[0], assigned=fleet.nodes[0].pods),))
    last = verdict(names.REASON_UNDERUTILIZED, [Sighted("n0", fleet.nodes[0].pods)], PodBudgets({}), own, replaced=True)
    assert last.objection == text
    fleet.nodes[0] = replace(fleet.nodes[0], pods=(changed(fleet.nodes[0].pods[0], deleted=NOON),))
    assert candidates(fleet.view(), Activity.DRIFT).eligible, "a pod that goes anyhow holds nothing"


def test_drift_with_an_end_of_drains_asks_no_group() -> None:
    fleet = gang_of(1, 1, claim_spec={"terminationGracePeriod": "1h"})
    fleet.groups = {GANG: Group(GANG, 2, 1, 1)}
    assert gone(drift.propose(fleet.view())) == [("n0",)]


# ------------------------------------------------------------------ turns


def command(fleet: Fleet, *keys: str) -> Proposal:
    nodes = [one for one in fleet.nodes if one.key.name in keys]
    return Proposal("Drifted", "drift", keys, tuple(planned(moved(one)) for one in nodes))


def test_the_next_nodes_of_a_gang_without_pods_to_spare_wait_for_its_members_that_are_moved() -> None:
    fleet = gang_of(3, 3)
    kept, blocked = in_turn([command(fleet, one) for one in ("n0", "n1")], fleet.snapshot())
    text = (
        "Its pods belong to PodGroup default/g, which needs all pods that still run, and others of them are being moved; "
        "waiting until these are bound"
    )
    assert ([one.candidates for one in kept], told_of(blocked)) == ([("n0",)], {"n1": text})
    assert len(in_turn([command(fleet, "n0", "n1")], fleet.snapshot())[0]) == 1, "in one command both may go"
    fleet.nodes[0] = replace(fleet.nodes[0], deleting=True)
    assert not in_turn([command(fleet, "n1")], fleet.snapshot())[0], "its pod has not left"
    there = fleet.node("new", kind=SMALL)
    fleet.nodes[0] = replace(fleet.nodes[0], pods=())
    coming = changed(member("m3"), node_name="", phase="Pending", scheduled=False)
    fleet.nodes[-1] = replace(there, assigned=(coming,))
    assert not in_turn([command(fleet, "n1")], fleet.snapshot())[0], "its successor is not bound"
    fleet.nodes[-1] = replace(there, pods=(changed(coming, node_name=there.name, phase="Running"),))
    assert in_turn([command(fleet, "n1")], fleet.snapshot())[0]


def told_of(blocked: Any) -> dict[str, str]:
    return {one.key: str(one) for one in blocked}


@given(
    members=st.lists(st.integers(0, 3), min_size=2, max_size=6),
    minimum=st.integers(2, 8),
    going=st.sets(st.integers(0, 5), max_size=2),
    data=st.data(),
)
def test_no_two_commands_leave_a_group_fewer_pods_than_it_needs(
    members: list[int], minimum: int, going: set[int], data: st.DataObject
) -> None:
    """Only one at a time may, whose pods have their places; and the first of those that are asked about always begins where nothing is under way."""
    fleet = Fleet()
    fleet.minima = {GANG: minimum}
    for number, count in enumerate(members):
        pods = [member(f"m{number}-{one}") for one in range(count)]
        fleet.node(f"n{number}", pods, kind=LARGE, deleting=number in going)
    left = [f"n{number}" for number in range(len(members)) if number not in going]
    cuts = data.draw(st.lists(st.sampled_from((1, 1, 2)), min_size=len(left), max_size=len(left)))
    commands = []
    while left:
        taken, left = left[: cuts[0]], left[cuts.pop(0) :]
        commands.append(command(fleet, *taken))
    kept, blocked = in_turn(commands, fleet.snapshot())
    sizes = {f"n{number}": count for number, count in enumerate(members)}
    away = sum(sizes[f"n{number}"] for number in going if number < len(members))
    staying = sum(members) - away
    for one in kept:
        mine = sum(sizes[name] for name in one.candidates)
        assert not mine or not away or staying - mine >= minimum
        away, staying = away + mine, staying - mine
    assert {one.key for one in blocked} == {name for one in commands for name in one.candidates if one not in kept}
    if commands and not any(sizes[f"n{number}"] for number in going if number < len(members)):
        assert commands[0] in kept


def test_a_gang_with_pods_to_spare_moves_like_single_pods() -> None:
    fleet = gang_of(4, 2)
    answer = drift.propose(fleet.view())
    assert (len(answer.proposals), sorted(told_of(answer.blocked))) == (2, ["n2", "n3"]), "two are to spare"
    commands = [command(fleet, f"n{number}") for number in range(4)]
    kept, blocked = in_turn(commands, fleet.snapshot())
    assert ([one.candidates for one in kept], told_of(blocked)) == (gone(answer), told_of(answer.blocked))
    fleet.minima = {}
    assert len(in_turn(drift.propose(fleet.view()).proposals, fleet.snapshot())[0]) == 4


@pytest.mark.parametrize("most", [0, 2], ids=["of its NodePool", "over all NodePools"])
@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
def test_a_node_that_waits_for_its_gang_takes_no_budget_from_others(most: int, static: bool) -> None:
    """Of four drifted nodes two may go; of three with a gang one may go at a time."""
    few = [{"nodes": "2"}] if not most else [{"nodes": "100%"}]
    fixed: dict[str, Any] = {"replicas": 4} if static else {}
    fleet = gang_of(3, 3)
    fleet.node("x", [running("x", SHAPE)], kind=SMALL, drifted=DRIFTED + timedelta(minutes=1))
    fleet.pools = [pool(disruption={"budgets": few}, **fixed)]
    propose = static_drift.propose if static else drift.propose
    answer = propose(fleet.view(most=most))
    assert gone(answer) == [("n0",), ("x",)]
    assert sorted(told_of(answer.blocked)) == ["n1", "n2"]
    begun = propose(fleet.view(most=most, under_way=["n0"]))
    assert (gone(begun), sorted(told_of(begun.blocked))) == ([("x",)], ["n1", "n2"]), (
        "also by who began in the same pass"
    )


def test_a_node_that_waits_for_its_gang_takes_no_budget_from_others_that_consolidation_moves() -> None:
    fleet = Fleet([pool(disruption={"budgets": [{"nodes": "2"}]})])
    fleet.minima = {GANG: 3}
    for number in range(3):
        fleet.node(f"n{number}", [member(f"m{number}")], kind=LARGE)
    for number in range(2):
        fleet.node(f"x{number}", [running(f"x{number}", SHAPE), running(f"y{number}", SHAPE)], kind=LARGE)
    answer = consolidation.propose(fleet.view())
    moved_nodes = [name for some in gone(answer) for name in some]
    assert len(moved_nodes) == 2
    assert len([name for name in moved_nodes if name.startswith("n")]) == 1
    assert any("waiting until these are bound" in one for one in told_of(answer.blocked).values())


def test_consolidation_takes_turns_at_a_gang() -> None:
    """Of four nodes that are nearly empty, with a member on each, one goes at a time."""
    fleet = Fleet()
    fleet.minima = {GANG: 4}
    for number in range(4):
        fleet.node(f"n{number}", [member(f"m{number}")], kind=LARGE)
    proposals = consolidation.propose(fleet.view()).proposals
    assert len(proposals) == 1
    assert in_turn(proposals, fleet.snapshot())[0] == proposals
    fleet.minima = {}
    assert len(consolidation.propose(fleet.view()).proposals) > 1


def test_consolidation_beside_fifty_gangs_leaves_none_with_too_few() -> None:
    """Three members each, of which two or all are needed, on nodes that are half empty: all that move have places, and no gang is in two commands."""
    fleet = Fleet()
    small = of_app("web", cpu="900m")
    on: dict[int, list[Pod]] = {number: [] for number in range(40)}
    for gang in range(50):
        fleet.minima[f"default/g{gang}"] = 2 + gang % 2
        for number in range(3):
            on[(gang * 7 + number * 13) % 40].append(running(f"m{gang}-{number}", small, group=f"g{gang}"))
    for number, pods in on.items():
        fleet.node(f"n{number:02}", pods, kind=LARGE)
    proposals = consolidation.propose(fleet.view()).proposals
    kept, _ = in_turn(proposals, fleet.snapshot())
    assert len(kept) > 1
    moving = Counter[str]()
    for each in kept:
        mine = Counter(group_of(pod) for pod in each.pods)
        assert mine.total() == sum(len(on[int(name[1:])]) for name in each.candidates)
        for key, count in mine.items():
            assert not moving[key] or 3 - moving[key] - count >= fleet.minima[key]
        moving += mine


# ------------------------------------------------------------------ nodes that were launched together


def launched(**more: Any) -> Fleet:
    """Two nodes of one set, one of which has a bound member; another waits. And a node of no set."""
    fleet = Fleet()
    both = {names.LAUNCH_SET: encode_sets([LaunchSet(id="a", group=GANG, nodes=2)])}
    created = NOON - timedelta(minutes=5)
    fleet.node("n0", [member("m0")], annotations=both, created=created, drifted=DRIFTED)
    fleet.node("n1", annotations=both, created=created, **more)
    fleet.node("x", [running("x")], drifted=DRIFTED)
    waiting(fleet, 1)
    return fleet


def test_nodes_of_a_launch_set_stay_until_the_pods_of_their_group_are_bound() -> None:
    why = "Node was launched for PodGroup default/g, of which pods are not bound yet"
    fleet = launched()
    found = candidates(fleet.view(), Activity.DRIFT)
    assert [one.key for one in found.eligible] == ["x"], "a waiting group blocks nothing else"
    assert {one.message for one in found.refused} == {why}
    assert found.recheck_at == NOON + timedelta(minutes=10)
    empty = emptiness(replace(fleet.view(), empty_for={"n1": timedelta(hours=1)}))
    assert not empty.proposals
    assert empty.quiet["n1"].message == why
    assert len(candidates(fleet.view(), Activity.REPAIR).eligible) == 3, "what is broken holds nothing"
    fleet.at = NOON + timedelta(minutes=10)
    assert len(candidates(fleet.view(), Activity.DRIFT).eligible) == 3, "not for longer than it takes"
    fleet.at, fleet.pending = NOON, [changed(one, group="other") for one in fleet.pending]
    assert len(candidates(fleet.view(), Activity.DRIFT).eligible) == 3, "the group has all its pods"


def test_a_member_that_is_planned_holds_the_nodes_too() -> None:
    fleet = launched()
    fleet.node("later", assigned=tuple(fleet.pending), initialized=False)
    fleet.pending = []
    assert [one.key for one in candidates(fleet.view(), Activity.DRIFT).eligible] == ["x"]


# ------------------------------------------------------------------ all at once


def at_once(nodes: int, *more: int, **spec: Any) -> Fleet:
    """A PodGroup with the mode `all` on so many nodes, the first of which has drifted; `more` are nodes of other drifted pods."""
    fleet = Fleet([pool(**spec)], types=(SMALL,))
    for number in range(nodes):
        fleet.node(f"n{number}", [member(f"m{number}")], kind=SMALL, drifted=DRIFTED if number == 0 else None)
    for number in more:
        fleet.node(f"x{number}", [running(f"x{number}", SHAPE)], kind=SMALL, drifted=NOON - timedelta(minutes=number))
    fleet.minima, fleet.together = {GANG: nodes} if nodes > 1 else {}, frozenset([GANG])
    return fleet


def test_all_nodes_of_a_gang_go_in_one_command_with_replacements_for_all() -> None:
    (one,) = drift.propose(at_once(4).view()).proposals
    assert (one.candidates, len(one.replacements)) == (("n0", "n1", "n2", "n3"), 4)
    assert in_turn([one], at_once(4).snapshot())[0] == (one,)


def test_groups_that_share_nodes_go_together() -> None:
    fleet = at_once(2)
    fleet.node("n2", [running("o0", of_app("web", cpu="100m"), group="other")], kind=SMALL)
    fleet.nodes[1] = replace(
        fleet.nodes[1], pods=(*fleet.nodes[1].pods, *[changed(one, name="o1", uid="o1") for one in fleet.nodes[2].pods])
    )
    assert gone(drift.propose(fleet.view())) == [("n0", "n1")]
    fleet.together |= {"default/other"}
    assert gone(drift.propose(fleet.view())) == [("n0", "n1", "n2")]


NEEDS: Final = "PodGroup default/g (disruptionMode all) needs 4 nodes to be disrupted at once: "


def small_budget(fleet: Fleet) -> None:
    fleet.pools = [pool(disruption={"budgets": [{"nodes": "3"}]})]


def half_a_pod_budget(fleet: Fleet) -> None:
    fleet.budgets = [budget("pdb", "web", 2)]


def a_pod_that_stays(fleet: Fleet) -> None:
    pods = tuple(changed(one, annotations={names.DO_NOT_DISRUPT: "true"}) for one in fleet.nodes[2].pods)
    fleet.nodes[2] = replace(fleet.nodes[2], pods=pods)


def a_node_of_nobody(fleet: Fleet) -> None:
    fleet.nodes[2] = replace(fleet.nodes[2], claim=None)


BLOCKS: dict[str, tuple[Any, str]] = {
    "a budget": (small_budget, '4 are of NodePool "general", which may have 3 disrupted now'),
    "a PodDisruptionBudget that allows half": (
        half_a_pod_budget,
        "PodDisruptionBudgets do not allow the eviction of all their pods at the same time",
    ),
    "a pod that says do-not-disrupt": (
        a_pod_that_stays,
        'Node "node-n2" is not disrupted: Pod has "karpenter.sh/do-not-disrupt" annotation (Pod=default/m2)',
    ),
    "a node of nobody": (a_node_of_nobody, 'Node "node-n2" is not disrupted: Node isn\'t managed by karpenter'),
}


@pytest.mark.parametrize(("make", "why"), BLOCKS.values(), ids=BLOCKS)
def test_what_holds_one_node_of_a_gang_holds_all_and_no_other_node(make: Any, why: str) -> None:
    fleet = at_once(4, 1, 2)
    make(fleet)
    answer = drift.propose(fleet.view())
    allowed = [("x2",), ("x1",)] if make is not half_a_pod_budget else gone(answer)
    assert gone(answer) == allowed
    assert {one.key: str(one) for one in answer.blocked if one.key} == {"n0": NEEDS + why}


def test_more_nodes_than_a_group_may_hold_together_stay_unless_their_drains_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (drift, units):
        monkeypatch.setattr(module, "MOST_NODES", 3)
    fleet = at_once(4)
    (blocked,) = drift.propose(fleet.view()).blocked
    assert str(blocked) == NEEDS + "the maximum is 3"
    claim = fleet.nodes[0].claim
    assert claim is not None
    ends = changed(claim, spec=changed(claim.spec, termination_grace_period="1h"))
    fleet.nodes[0] = replace(fleet.nodes[0], claim=ends)
    assert gone(drift.propose(fleet.view())) == [("n0",)]


def test_a_gang_with_a_node_of_a_static_pool_does_not_move_all_at_once() -> None:
    fleet = at_once(4)
    fleet.pools.append(pool("static", replicas=1))
    fleet.nodes[3] = replace(fleet.nodes[3], pool="static")
    (blocked,) = drift.propose(fleet.view()).blocked
    assert str(blocked) == NEEDS + "nodes of static NodePools are replaced one by one"


@pytest.mark.parametrize("nodes", [1, 3])
def test_consolidation_moves_no_pod_of_a_gang_that_moves_at_once(nodes: int) -> None:
    fleet = at_once(nodes)
    for number in range(nodes):
        fleet.nodes[number] = replace(
            fleet.nodes[number], labels={**fleet.nodes[number].labels, names.INSTANCE_TYPE_LABEL: "large"}
        )
    fleet.types = (SMALL, LARGE)
    refused = candidates(fleet.view(), Activity.CONSOLIDATION).refused
    why = (
        "Its pods belong to PodGroup default/g, whose pods can only be disrupted all at once (disruptionMode all); "
        "consolidation moves them only if the PodGroup has the annotation dovetail.dev/gang-consolidation: allow"
    )
    assert {one.message for one in refused} == {why}
    assert not consolidation.propose(fleet.view()).proposals
    fleet.together = frozenset()
    assert consolidation.propose(fleet.view()).proposals


def allowed_at_once(nodes: int, **spec: Any) -> Fleet:
    """A PodGroup with the mode `all`, on nodes that are larger than it needs, which consolidation may disrupt."""
    fleet = Fleet([pool(**spec)], types=(SMALL, LARGE))
    for number in range(nodes):
        fleet.node(f"n{number}", [member(f"m{number}")], kind=LARGE)
    fleet.minima, fleet.together = {GANG: nodes} if nodes > 1 else {}, frozenset([GANG])
    fleet.consolidated = fleet.together
    return fleet


@pytest.mark.parametrize("nodes", [1, 4])
def test_consolidation_moves_all_pods_of_a_gang_at_once_where_its_owner_allows_that(nodes: int) -> None:
    fleet = allowed_at_once(nodes)
    (one,) = consolidation.propose(fleet.view()).proposals
    assert one.candidates == tuple(f"n{number}" for number in range(nodes))
    assert sum(len(claim.pods) for claim in one.replacements) == nodes
    assert one.saving_usd_per_hour > 0
    fleet.types = (LARGE,)
    cheap = Fleet([pool()], types=(SMALL,), consolidated=fleet.together, together=fleet.together, minima=fleet.minima)
    for number in range(nodes):
        cheap.node(f"n{number}", [member(f"m{number}")], kind=SMALL)
    answer = consolidation.propose(cheap.view())
    assert not answer.proposals
    assert {blocked.event for blocked in answer.blocked} == {"Unconsolidatable"}


@pytest.mark.parametrize(("make", "why"), BLOCKS.values(), ids=BLOCKS)
def test_what_holds_one_node_of_a_gang_holds_all_from_consolidation_too(make: Any, why: str) -> None:
    fleet = allowed_at_once(4)
    fleet.node("x1", [running("x1", SHAPE)], kind=LARGE)
    make(fleet)
    answer = consolidation.propose(fleet.view())
    assert gone(answer) in ([("x1",)], []) if make is half_a_pod_budget else gone(answer) == [("x1",)]
    held = {one.key: str(one) for one in answer.blocked if one.key in ("n0", "n1", "n3")}
    expected = why.replace("may have 3 disrupted", "may have 2 disrupted")  # x1 has one of them
    assert held == dict.fromkeys(("n0", "n1", "n3"), NEEDS + expected)


def test_a_gang_that_shares_a_node_with_one_that_stays_is_not_consolidated() -> None:
    fleet = allowed_at_once(2)
    fleet.node("n2", [running("o0", of_app("web", cpu="100m"), group="other")], kind=LARGE)
    fleet.nodes[1] = replace(
        fleet.nodes[1], pods=(*fleet.nodes[1].pods, *[changed(one, name="o1", uid="o1") for one in fleet.nodes[2].pods])
    )
    fleet.together |= {"default/other"}
    answer = consolidation.propose(fleet.view())
    assert not answer.proposals
    fleet.consolidated = fleet.together
    assert gone(consolidation.propose(fleet.view())) == [("n0", "n1", "n2")]


def test_no_node_of_a_gang_goes_before_all_are_due() -> None:
    fleet = allowed_at_once(3, disruption={"consolidateAfter": "10m"})
    fleet.nodes[1] = replace(fleet.nodes[1], last_pod_event=NOON - timedelta(minutes=1))
    answer = consolidation.propose(fleet.view())
    assert not answer.proposals
    assert {answer.quiet[f"n{number}"].until for number in range(3)} == {NOON + timedelta(minutes=9)}
    assert not answer.blocked


@pytest.mark.parametrize(("allowed", "goes"), [(4, True), (2, False)])
def test_at_the_last_look_pod_budgets_must_allow_all_at_once(allowed: int, goes: bool) -> None:
    fleet = at_once(4)
    fleet.budgets = [budget("pdb", "web", allowed)]
    snapshot = fleet.snapshot()
    sighted = [Sighted(one.key.name, one.pods, stands=one.key.name == "n0") for one in snapshot.nodes]
    found = verdict(names.REASON_DRIFTED, sighted, snapshot.pod_budgets, snapshot, replaced=True)
    assert (not found.objection, found.waits) == (goes, not goes)
    nothing = [replace(one, stands=False) for one in sighted]
    assert verdict(names.REASON_DRIFTED, nothing, snapshot.pod_budgets, snapshot, replaced=True).objection, (
        "none has drifted any more"
    )


def test_nodes_of_a_static_pool_are_not_taken_from_a_gang_one_by_one() -> None:
    fleet = at_once(3, replicas=3)
    answer = static_drift.propose(fleet.view())
    assert not answer.proposals
    assert [str(one) for one in answer.blocked] == [
        "PodGroup default/g (disruptionMode all) needs 3 nodes to be disrupted at once: nodes of static NodePools are replaced one by one"
    ]
    fleet.together = frozenset()
    assert gone(static_drift.propose(fleet.view())) == [("n0",)]


# ------------------------------------------------------------------ at once for money


def last_look(fleet: Fleet, count: int, reason: str = names.REASON_UNDERUTILIZED, **more: Any) -> str:
    """What stands against a command of the nodes of a gang, once its replacement is there."""
    there = fleet.nodes[:count]
    fleet.node("new", kind=LARGE, assigned=tuple(pod for node in there for pod in node.pods))
    snapshot = fleet.snapshot()
    sighted = [Sighted(node.key.name, node.pods, **more) for node in there]
    found = verdict(reason, sighted, snapshot.pod_budgets, snapshot, replaced=True)
    return found.objection


def test_at_the_last_look_the_owner_must_still_allow_that_all_move_for_money() -> None:
    assert not last_look(allowed_at_once(2), 2)
    fleet = allowed_at_once(2)
    fleet.consolidated = frozenset()
    assert "dovetail.dev/gang-consolidation: allow" in last_look(fleet, 2)


@pytest.mark.parametrize("reason", [names.REASON_UNDERUTILIZED, names.REASON_DRIFTED])
def test_at_the_last_look_no_pod_of_the_gang_may_run_on_a_node_that_stays(reason: str) -> None:
    fleet = allowed_at_once(2)
    fleet.node("y", [member("m9")], kind=LARGE)
    assert 'its pod default/m9 runs on Node "node-y", which stays' in last_look(fleet, 2, reason)


def test_at_the_last_look_drift_needs_no_leave_and_does_not_wait_for_what_goes_anyway() -> None:
    fleet = allowed_at_once(2)
    fleet.consolidated = frozenset()
    fleet.node("y", [member("m9")], kind=LARGE, deleting=True)
    assert not last_look(fleet, 2, names.REASON_DRIFTED)


@pytest.mark.parametrize(
    ("reason", "forceful"),
    [(names.REASON_DRIFTED, True), (names.REASON_UNHEALTHY, False), (names.REASON_UNHEALTHY, True)],
)
def test_at_the_last_look_what_must_come_to_pass_does_not_wait_for_the_rest_of_a_gang(
    reason: str, forceful: bool
) -> None:
    fleet = allowed_at_once(2)
    fleet.node("y", [member("m9")], kind=LARGE)
    assert not last_look(fleet, 2, reason, forceful=forceful)


def test_for_money_pod_budgets_count_though_drains_have_an_end() -> None:
    fleet = Fleet([pool()], types=(SMALL, LARGE), budgets=[budget("pdb", "web", 1)])
    for number in range(4):
        fleet.node(f"n{number}", [member(f"m{number}")], kind=LARGE, claim_spec={"terminationGracePeriod": "1h"})
    fleet.minima, fleet.together, fleet.consolidated = {GANG: 4}, frozenset([GANG]), frozenset([GANG])
    answer = consolidation.propose(fleet.view())
    assert not answer.proposals
    assert {str(one) for one in answer.blocked} == {NEEDS + PDBS_ALLOW_FEWER}
    assert last_look(fleet, 4, forceful=True) == "" or "at the same time" in last_look(fleet, 4, forceful=True)


@pytest.mark.parametrize("most", [0, 1])
def test_gangs_on_one_node_each_stay_within_the_budget(most: int) -> None:
    fleet = Fleet([pool(disruption={"budgets": [{"nodes": str(most)}]})], types=(SMALL, LARGE))
    for number in range(3):
        fleet.node(f"n{number}", [running(f"m{number}", SHAPE, group=f"g{number}")], kind=LARGE)
    fleet.together = fleet.consolidated = frozenset(f"default/g{number}" for number in range(3))
    assert len(gone(consolidation.propose(fleet.view()))) == most


def test_why_a_gang_stays_of_which_a_node_takes_pods() -> None:
    fleet = allowed_at_once(3)
    fleet.types = (LARGE,)
    fleet.node("x1", [running("x1", of_app("other", cpu="500m"))], kind=LARGE)
    answer = consolidation.propose(fleet.view())
    assert gone(answer) == [("x1",)]
    held = {one.key: str(one) for one in answer.blocked}
    stays = {f"n{number}" for number in range(3)} - answer.quiet.keys()
    assert len(stays) == 2
    assert all("PodGroup default/g (disruptionMode all) needs 3 nodes" in held[key] for key in stays)


def _third(asked: Iterator[int]) -> bool:
    """Whether this is the third question or a later one."""
    return next(asked) > 1


def test_gangs_that_a_pass_did_not_come_to_are_first_in_the_next() -> None:
    fleet = Fleet([pool()], types=(SMALL, LARGE))
    for number in range(8):
        fleet.node(f"n{number}", [running(f"m{number}", SHAPE, group=f"g{number // 2}")], kind=SMALL)
    fleet.together = fleet.consolidated = frozenset(f"default/g{number}" for number in range(4))
    first, reached = frozenset[str](), set[str]()
    for _ in range(6):
        asked = itertools.count()
        answer = consolidation.propose(fleet.view(first=first, expired=partial(_third, asked)))
        reached |= {node.key.name for node in fleet.nodes} - answer.unreached
        first = answer.unreached
    assert len(reached) == 8


def test_the_last_node_of_a_gang_that_is_due_says_when_it_goes() -> None:
    fleet = allowed_at_once(3, disruption={"consolidateAfter": "10m"})
    for number, minutes in ((0, 9), (1, 1)):
        fleet.nodes[number] = replace(fleet.nodes[number], last_pod_event=NOON - timedelta(minutes=minutes))
    assert consolidation.propose(fleet.view()).quiet["n2"].until == NOON + timedelta(minutes=9)


def test_consolidation_says_that_static_nodes_go_one_by_one() -> None:
    fleet = allowed_at_once(2)
    fleet.pools.append(pool("static", replicas=1))
    fleet.node("s", [member("ms")], kind=LARGE, of="static")
    answer = consolidation.propose(fleet.view())
    assert not answer.proposals
    assert {str(one) for one in answer.blocked if one.key in ("n0", "n1")} == {
        NEEDS.replace("4", "3") + STATIC_ONE_BY_ONE
    }
