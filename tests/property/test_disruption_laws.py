"""What holds of every method of disruption, whatever the fleet: budgets, protection, legality by the second judge, money, an end."""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from provisioner.apis import names
from provisioner.apis.core import ContainerPort
from provisioner.apis.pods import Pod, PodShape, do_not_disrupt
from provisioner.disruption.methods import consolidation, drift, rebuilding
from provisioner.disruption.methods.moves import Consolidation, Move
from provisioner.disruption.proposal import Proposal
from provisioner.disruption.view import Acceptance, DisruptionSettings, DisruptionView, MethodAnswer
from provisioner.scheduling.result import Result
from provisioner.values.resources import EMPTY, Resources
from tests.support import checker
from tests.support.clock import NOON
from tests.support.fleets import ABC, LARGE, MEDIUM, OLD, SMALL, TINY, Fleet, budget, moved, pool, running
from tests.support.problems import apart, app, instance_type, near, of_app, spread
from tests.support.question import Problem
from tests.support.upkeep import is_late, of_two

METHODS: dict[str, Callable[[DisruptionView], MethodAnswer]] = {
    "drift": drift.propose,
    "consolidation": consolidation.propose,
    "consolidation of tight fleets": consolidation.propose,
}
BARGAIN = instance_type("bargain", "8", "16Gi", 0.22, zones=ABC, capacity_types=("on-demand",))
KINDS = (TINY, SMALL, MEDIUM, LARGE, BARGAIN)
APPS = ("web", "db", "job")
ZONE, HOST = names.ZONE_LABEL, names.HOSTNAME_LABEL
ROUNDS = 12


def terms(name: str, kind: str) -> dict[str, object]:
    """What an app demands of its places."""
    made: dict[str, dict[str, object]] = {
        "nothing": {},
        "zones": {"topology_spread_constraints": (spread(ZONE, app(name)),)},
        "hosts": {"topology_spread_constraints": (spread(HOST, app(name), skew=2),)},
        "honest hosts": {"topology_spread_constraints": (spread(HOST, app(name), node_taints_policy="Honor"),)},
        "apart": {"affinity": apart(HOST, app(name))},
        "near": {"affinity": near(ZONE, app(name))},
    }
    return made[kind]


KINDS_OF_TERMS = ("nothing", "nothing", "nothing", "nothing", "zones", "hosts", "honest hosts", "apart", "near")


@st.composite
def shapes(draw: st.DrawFn, sizes: tuple[str, ...]) -> dict[str, PodShape]:
    return {
        name: of_app(
            name,
            cpu=draw(st.sampled_from(sizes)),
            memory=draw(st.sampled_from(("256Mi", "1Gi"))),
            **terms(name, draw(st.sampled_from(KINDS_OF_TERMS))),
        )
        for name in APPS
    }


@st.composite
def fleets(draw: st.DrawFn, *, tight: bool = False) -> Fleet:
    """Some nodes with what fits on them, whether it may be there or not; kube-scheduler may have bound it before things changed.

    In a tight one hardly a pod fits on another's node, so that only nodes that go together bring anything.
    """
    of = draw(shapes(("1200m", "1500m", "1700m") if tight else ("250m", "500m", "900m", "1500m")))
    limits = draw(st.sampled_from(({}, {}, {"nodes": "9"})))
    nodes = draw(st.sampled_from(("100%", "100%", "100%", "2", "1")))
    policy = draw(st.sampled_from(("WhenEmptyOrUnderutilized", "WhenEmptyOrUnderutilized", "Balanced")))
    disruption = {"budgets": [{"nodes": nodes}], "consolidationPolicy": policy}
    fleet = Fleet([pool(disruption=disruption, limits=limits)], types=KINDS)
    fleet.settings = DisruptionSettings(acceptance=draw(st.sampled_from(Acceptance)))
    number = 0
    for node in range(draw(st.integers(2, 8))):
        kind = SMALL if tight else draw(st.sampled_from((SMALL, SMALL, *KINDS)))
        room = kind.allocatable
        pods: list[Pod] = []
        for name in draw(st.lists(st.sampled_from(APPS), min_size=1, max_size=6)):
            if not of[name].requests.fits(room):
                continue
            room -= of[name].requests
            protected = draw(st.sampled_from((*[""] * 20, "true", "36h", "1h")))
            annotations = {names.DO_NOT_DISRUPT: protected} if protected else {}
            pods.append(running(f"{name}-{number}", of[name], annotations=annotations))
            number += 1
        since = NOON - timedelta(minutes=node) if draw(st.booleans()) else None
        grace = {"terminationGracePeriod": "1h"} if draw(st.integers(0, 4)) == 0 else {}
        fleet.node(f"n{node}", pods, kind=kind, zone=draw(st.sampled_from(ABC)), drifted=since, claim_spec=grace)
    fleet.budgets = [
        budget(f"pdb-{name}", name, allowed)
        for name in APPS
        if (allowed := draw(st.sampled_from((None, None, None, None, 0, 1, 5)))) is not None
    ]
    return fleet


#: Every method is tried on fleets that it can do something about.
FLEETS = {"drift": fleets(), "consolidation": fleets(), "consolidation of tight fleets": fleets(tight=True)}


def together(fleet: Fleet, proposals: tuple[Proposal, ...]) -> tuple[Problem, Result]:
    """All commands of a pass carried out: what was asked, and what was answered."""
    going = {name for one in proposals for name in one.candidates}
    world = fleet.prepared().world
    staying = replace(fleet, nodes=[one for one in fleet.nodes if one.key.name not in going])
    pods = [pod for node in fleet.nodes if node.key.name in going for pod in moved(node)]
    existing: dict[str, tuple[Pod, ...]] = {}
    for one in proposals:
        for name, some in one.placements.items():
            existing[name] = (*existing.get(name, ()), *some)
    bins = tuple(one for one in world.bins if one.name not in going)
    problem = Problem(
        pools=staying.prepared().world.pools,  # what goes counts against no limit
        bins=bins,
        well_known=world.well_known,
        pods=tuple(pods),
        hostname_domains=world.hostname_domains,
    )
    ordered = {one.name: existing[one.name] for one in bins if one.name in existing}
    return problem, Result(tuple(claim for one in proposals for claim in one.replacements), ordered, ())


def after(fleet: Fleet, proposals: tuple[Proposal, ...], turn: int, *, created: datetime = OLD) -> Fleet:
    """The fleet once all commands are done. `created`: since when new nodes are there."""
    going = {name for one in proposals for name in one.candidates}
    coming: dict[str, list[Pod]] = {}
    for one in proposals:
        for name, pods in one.placements.items():
            coming.setdefault(name, []).extend(pods)
    nodes, fleet = fleet.nodes, replace(fleet, nodes=[])
    by_name = {one.name: one for one in KINDS}
    for node in nodes:
        if node.key.name not in going:
            labels, pods = node.labels, (*node.pods, *coming.get(node.key.name, ()))
            assert node.claim is not None
            drifted = NOON if any(one.type == names.DRIFTED for one in node.claim.status.conditions) else None
            kind, zone = by_name[labels[names.INSTANCE_TYPE_LABEL]], labels[ZONE]
            since = node.claim.metadata.creation_timestamp or OLD
            fleet.node(node.key.name, pods, kind=kind, zone=zone, drifted=drifted, created=since)
    for number, claim in enumerate(claim for one in proposals for claim in one.replacements):
        kind = by_name[claim.planned_type]
        name = f"new-{turn:02d}-{number:02d}"
        fleet.node(name, claim.pods, kind=kind, zone=claim.planned_zone, created=created)
    return fleet


def begun(fleet: Fleet, proposals: tuple[Proposal, ...]) -> Fleet:
    """The fleet when all commands have just begun: their nodes take no pod, and room is kept where the pods will go."""
    going = {name for one in proposals for name in one.candidates}
    coming: dict[str, list[Pod]] = {}
    for one in proposals:
        for name, pods in one.placements.items():
            coming.setdefault(name, []).extend(pods)
    now = replace(fleet, nodes=[])
    for node in fleet.nodes:
        kept = tuple(coming.get(node.key.name, ()))
        planned = needed(kept)
        now.nodes.append(
            replace(
                node,
                deleting=node.key.name in going,
                charge=EMPTY if node.key.name in going else node.charge,
                assigned=kept,
                planned=planned,
                room=node.room - planned,
                nominated=bool(kept),
            )
        )
    by_name = {one.name: one for one in KINDS}
    for number, claim in enumerate(claim for one in proposals for claim in one.replacements):
        planned, kind = needed(claim.pods), by_name[claim.planned_type]
        now.node(
            f"new-{number:02d}",
            kind=kind,
            zone=claim.planned_zone,
            created=NOON,
            name="",
            assigned=claim.pods,
            planned=planned,
            room=kind.allocatable - planned,
            nominated=bool(claim.pods),
            initialized=False,
            ready=False,
        )
    return now


def needed(pods: tuple[Pod, ...]) -> Resources:
    total = EMPTY
    for one in pods:
        total += one.shape.requests
    return total


def price(fleet: Fleet) -> float:
    prices = {one.name: one.offerings[0].price for one in KINDS}
    return sum(prices[one.labels[names.INSTANCE_TYPE_LABEL]] for one in fleet.nodes)


@pytest.mark.parametrize("method", METHODS)
@given(data=st.data())
def test_budgets_are_never_exceeded(method: str, data: st.DataObject) -> None:
    fleet = data.draw(FLEETS[method])
    view = fleet.view()
    proposals = METHODS[method](view).proposals
    reasons = Counter(one.reason for one in proposals for _ in one.candidates)
    every = [name for one in proposals for name in one.candidates]
    assert len(every) == len(set(every)), "no node twice"
    assert all(count <= view.allowed("general", reason) for reason, count in reasons.items())


@pytest.mark.parametrize("method", METHODS)
@given(data=st.data())
def test_protection_is_respected(method: str, data: st.DataObject) -> None:
    fleet = data.draw(FLEETS[method])
    nodes = {one.key.name: one for one in fleet.nodes}
    blocked = {one.metadata.name.removeprefix("pdb-") for one in fleet.budgets if one.status.disruptions_allowed == 0}
    for one in METHODS[method](fleet.view()).proposals:
        for name in one.candidates:
            node = nodes[name]
            assert node.claim is not None
            if one.reason == "Drifted" and node.claim.spec.termination_grace_period:
                continue
            assert not any(do_not_disrupt(pod, NOON) for pod in node.pods)
            assert not any(pod.labels.get("app") in blocked for pod in node.pods)


@pytest.mark.parametrize("method", METHODS)
@given(data=st.data())
def test_after_all_commands_every_pod_has_a_legal_place(method: str, data: st.DataObject) -> None:
    fleet = data.draw(FLEETS[method])
    proposals = METHODS[method](fleet.view()).proposals
    problem, result = together(fleet, proposals)
    assert checker.violations(problem, result) == []


@st.composite
def tied_fleets(draw: st.DrawFn, kinds: Sequence[str]) -> Fleet:
    """A few nodes with the pods of one app that look at each other, however these came to be where they are."""
    kind = draw(st.sampled_from(kinds))
    of = of_app(
        "web", draw(st.sampled_from(("250m", "900m"))), "256Mi", **({} if kind == "port" else terms("web", kind))
    )
    if kind == "port":
        of = changed(of, host_ports=(ContainerPort(host_port=80),))
    limits = draw(st.sampled_from(({}, {}, {"nodes": "9"})))
    fleet = Fleet([pool(disruption={"budgets": [{"nodes": "100%"}]}, limits=limits)], types=KINDS)
    fleet.settings = DisruptionSettings(acceptance=draw(st.sampled_from(Acceptance)))
    numbers = itertools.count()
    for node in range(draw(st.integers(4, 8))):
        size = draw(st.sampled_from((TINY, MEDIUM, LARGE)))
        most = 1 if kind in ("apart", "port") or size is TINY else 3
        some = [running(f"web-{next(numbers)}", of) for _ in range(draw(st.integers(0, most)))]
        since = NOON - timedelta(minutes=node) if draw(st.integers(0, 2)) == 0 else None
        fleet.node(f"n{node}", some, kind=size, zone=ABC[node % 3], drifted=since)
    if draw(st.integers(0, 2)):
        fleet.budgets = [budget("pdb-web", "web", 1)]
    return fleet


def of_a_user(fleet: Fleet, number: int) -> tuple[Proposal, ...]:
    """A node that somebody deletes, with what provisioning makes of its pods."""
    node = fleet.nodes[number % len(fleet.nodes)]
    result = fleet.prepared().solve(moved(node), leaving=(str(node.key),))
    one = Proposal("Drifted", "deletion", (node.key.name,), result.claims, dict(result.existing))
    return () if result.unplaced else (one,)


def wrong_together(fleet: Fleet, before: tuple[Proposal, ...], those: tuple[Proposal, ...]) -> list[str]:
    """What the second judge says of what has begun and what is proposed then, but for two things that no command can know, or that end by themselves.

    The node of one may come to another zone than another command counts on. And new nodes may have fewer pods than all others, so that a pod which
    moves already, to one that has many, is refused there once they have come, and is planned anew (decision 102).
    """
    problem, result = together(fleet, (*before, *those))
    more = any(one.replacements for one in those)
    refused = {pod.name for one in before for pod in one.pods} if more else set()
    return [
        text
        for text in checker.violations(problem, result)
        if not of_two(text, (*before, *those))
        and not (f"spread over {HOST}" in text and text.split(" cannot be bound as planned")[0] in refused)
    ]


LATER: dict[str, Callable[[DisruptionView], MethodAnswer]] = {
    "drift": drift.propose,
    "consolidation": consolidation.propose,
    "rebuilding": lambda view: rebuilding.propose(replace(view, improved=lambda _, result: result)),
}


TIED: dict[str, tuple[str, ...]] = {
    "spread over zones": ("zones",),
    "spread over hosts": ("hosts", "honest hosts"),
    "others": ("apart", "near", "port"),
}


@pytest.mark.parametrize("tied", TIED)
@pytest.mark.parametrize("method", LATER)
@given(data=st.data())
def test_what_is_decided_while_pods_move_has_a_legal_place_with_them(
    method: str, tied: str, data: st.DataObject
) -> None:
    """Whatever moves them: the pods that move count where they go, and where they still run only as long as they do."""
    fleet = data.draw(tied_fleets(TIED[tied]))
    first = data.draw(st.sampled_from(("drift", "consolidation", "a deletion")))
    number, count = data.draw(st.integers(0, 7)), data.draw(st.integers(1, 4))
    before = of_a_user(fleet, number) if first == "a deletion" else METHODS[first](fleet.view()).proposals[:count]
    if not before or wrong_together(fleet, before, ()):
        return  # of the beginnings of a pass, in which those left out may have made room
    going = {name for one in before for name in one.candidates}
    those = LATER[method](begun(fleet, before).view(under_way=going)).proposals
    assert wrong_together(fleet, before, those) == []


@pytest.mark.parametrize("method", [one for one in METHODS if one != "drift"])
@given(data=st.data())
def test_the_cost_never_rises_by_consolidation(method: str, data: st.DataObject) -> None:
    fleet = data.draw(FLEETS[method])
    proposals = METHODS[method](fleet.view()).proposals
    then = {name for one in proposals for name in one.then}
    followed = after(fleet, proposals, 0)
    saved = price(fleet) - price(replace(followed, nodes=[one for one in followed.nodes if one.key.name not in then]))
    assert saved == pytest.approx(sum(one.saving_usd_per_hour for one in proposals))
    assert all(one.saving_usd_per_hour > 0 for one in proposals)


@given(fleet=st.one_of(FLEETS["consolidation"], FLEETS["consolidation of tight fleets"]))
def test_nodes_that_go_one_by_one_cost_less_in_the_end_and_little_until_then(fleet: Fleet) -> None:
    """Whatever stops it on the way has cost no more, for as long as the new node is settled, than the whole would have brought meanwhile."""
    fleet = replace(fleet, pools=[pool(disruption={"budgets": [{"nodes": "1"}]})], at=NOON)
    cost, risked = price(fleet), 0.0
    for turn in range(3 * ROUNDS):
        proposals = consolidation.propose(fleet.view()).proposals
        if not proposals:
            break
        (one,) = proposals
        assert len(one.candidates) == 1
        before = price(fleet)
        fleet = after(fleet, proposals, turn, created=NOON)
        if one.then:
            risked += one.saving_usd_per_hour
        assert price(fleet) < before or (one.then and price(fleet) - before <= one.saving_usd_per_hour)
        cost = min(cost, price(fleet))
        assert price(fleet) <= cost + risked
    else:
        pytest.fail(f"there is always something more to do after {3 * ROUNDS} passes")
    assert price(fleet) <= cost


@given(fleet=st.one_of(FLEETS["consolidation"], FLEETS["consolidation of tight fleets"]))
def test_consolidation_ends(fleet: Fleet) -> None:
    fleet = replace(fleet, pools=[pool()])
    for turn in range(ROUNDS):
        view = fleet.view()
        proposals = consolidation.propose(view).proposals
        if not proposals:
            return
        cost = price(fleet)
        fleet = after(fleet, proposals, turn)
        assert price(fleet) < cost
    pytest.fail(f"there is always something more to do after {ROUNDS} passes")


@pytest.mark.parametrize("method", METHODS)
@given(data=st.data())
def test_a_second_pass_right_after_finds_nothing_new(method: str, data: st.DataObject) -> None:
    fleet = data.draw(FLEETS[method])
    first = METHODS[method](fleet.view()).proposals
    going = {name for one in first for name in one.candidates}
    takers = {name for one in first for name in one.placements}
    second = METHODS[method](begun(fleet, first).view(under_way=going)).proposals
    assert [one for one in second if method == "drift" or not is_late(one)] == []
    for one in second:
        assert not going & {*one.candidates, *one.placements}
        assert not takers & set(one.candidates)


@pytest.mark.parametrize("method", METHODS)
@given(data=st.data())
def test_the_same_view_gives_the_same_answer(method: str, data: st.DataObject) -> None:
    fleet = data.draw(FLEETS[method])
    first = METHODS[method](fleet.view())
    fleet.nodes.reverse()
    assert METHODS[method](fleet.view()) == first


@pytest.mark.parametrize("method", METHODS)
def test_the_laws_are_about_something(method: str) -> None:
    """Of the fleets that they are tried on, one of ten at least gives the method something to do."""
    found: list[bool] = []

    @settings(max_examples=30, derandomize=True, deadline=None, database=None)
    @given(fleet=FLEETS[method])
    def count(fleet: Fleet) -> None:
        found.append(bool(METHODS[method](fleet.view()).proposals))

    count()
    assert sum(found) >= len(found) / 10


@given(st.one_of(fleets(), fleets(tight=True)), st.integers(1, 2))
def test_what_is_proved_not_to_pay_does_not_pay_when_it_is_asked(fleet: Fleet, together: int) -> None:
    view = fleet.view()
    assert view.prepared is not None
    work = Consolidation(view, view.prepared)
    while True:
        for some in itertools.combinations(work.order, together):
            if work.never_pays(some, together):
                assert not isinstance(work.judge(some, max_new=together), Move)
        if not work.relax():
            break


@given(st.one_of(fleets(), fleets(tight=True)))
def test_what_is_remembered_to_be_dear_is_dear_when_it_is_asked_again(fleet: Fleet) -> None:
    view = fleet.view()
    assert view.prepared is not None
    work = Consolidation(view, view.prepared)
    while True:
        consolidation._searched_once(work)
        if not work.relax():
            break
        for one in work.order:
            if work.free(one) and work.is_dear(one):
                assert not isinstance(work.judge((one,), max_new=consolidation.NEW), Move)
