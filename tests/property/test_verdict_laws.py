"""Every node that is drifted, expired, unhealthy, interrupted or a candidate is in a command, proposed, blocked, not due, or not reached: exactly one of them."""

import itertools
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.interruption import Interruption
from provisioner.apis.meta import Condition
from provisioner.cloudprovider.types import RepairPolicy
from provisioner.disruption.budgets import AllowanceLedger
from provisioner.disruption.candidates import BACKING_OFF, CALLED_OFF, REPLACES
from provisioner.disruption.costs import time_left
from provisioner.disruption.forceful.repair import decide_repairs
from provisioner.disruption.methods import consolidation, drift, emptiness, repair, static_drift
from provisioner.disruption.methods.emptiness import is_empty
from provisioner.disruption.repair_breaker import repair_breaker
from provisioner.disruption.repair_policies import RepairPolicySet
from provisioner.disruption.verdicts import EXPIRED, INTERRUPTED, UNHEALTHY, forced, of_method
from provisioner.disruption.view import VALIDATION, DisruptionStanding, DisruptionView, MethodAnswer
from provisioner.interruption.response import decide_interruptions
from provisioner.state.pause import DISRUPTION, NOTHING, Pause, PauseValue
from provisioner.state.snapshot import NodeView
from tests.support.clock import NOON
from tests.support.fleets import ABC, LARGE, MEDIUM, SMALL, TINY, Fleet, budget, pool, running
from tests.support.problems import of_app

WORLDS: Final = 2000 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 100
METHODS: Final[dict[str, Callable[[DisruptionView], MethodAnswer]]] = {
    UNHEALTHY: repair.propose,
    "Empty": emptiness.emptiness,
    "Drifted": drift.propose,
    "Static": static_drift.propose,
    "Underutilized": consolidation.propose,
}
STATIC: Final = "static"
POLICIES: Final = RepairPolicySet(
    [
        RepairPolicy("Ready", "False", timedelta(minutes=10)),
        RepairPolicy("Disk", "False", timedelta(0), termination_grace_period=timedelta(0), priority=1),
    ]
)


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """Nodes in all states, of dynamic and static NodePools, with pods that wait."""
    pools = [
        pool(
            name,
            disruption={
                "budgets": [{"nodes": draw(st.sampled_from(("100%", "100%", "1", "0")))}],
                "consolidateAfter": draw(st.sampled_from(("0s", "0s", "5m", "Never"))),
                "consolidationPolicy": draw(st.sampled_from(("WhenEmptyOrUnderutilized", "WhenEmpty", "Balanced"))),
            },
        )
        for name in ("general", "other")
    ]
    pools.append(pool(STATIC, replicas=draw(st.integers(0, 3))))
    fleet = Fleet(pools)
    numbers = itertools.count()

    def pods(most: int) -> list[Any]:
        of = of_app("web", draw(st.sampled_from(("250m", "900m", "1500m"))), "256Mi")
        count = draw(st.integers(0, most))
        protected = {names.DO_NOT_DISRUPT: "true"} if draw(st.integers(0, 9)) == 0 else {}
        return [running(f"web-{next(numbers)}", of, annotations=protected) for _ in range(count)]

    for number in range(draw(st.integers(1, 7))):
        state = draw(
            st.sampled_from(
                (
                    *("", "", "", "deleting", "nominated", "starting", "protected", "elsewhere"),
                    "in a command",
                    "shared",
                    "ending",
                )
            )
        )
        since = NOON - timedelta(seconds=draw(st.sampled_from((1, 60, 6000)))) if draw(st.booleans()) else None
        event = NOON - timedelta(seconds=draw(st.sampled_from((1, 200, 6000)))) if draw(st.booleans()) else None
        fleet.node(
            f"n{number}",
            pods(3),
            kind=draw(st.sampled_from((TINY, SMALL, MEDIUM, LARGE))),
            zone=draw(st.sampled_from(ABC)),
            of="unknown" if state == "elsewhere" else draw(st.sampled_from(("general", "general", "other", STATIC))),
            drifted=since,
            conditions=[{"type": names.INSTANCE_TERMINATING, "status": "True"}] if state == "ending" else (),
            ambiguous=state == "shared",
            claim_spec={"expireAfter": draw(st.sampled_from(("Never", "1h", "20000h")))},
            last_pod_event=event,
            deleting=state in ("deleting", "in a command"),
            command="c" if state == "in a command" else "",
            nominated=state == "nominated",
            initialized=state != "starting",
            do_not_repair=draw(st.integers(0, 9)) == 0,
            do_not_disrupt=state == "protected",
            ready=draw(st.integers(0, 5)) > 0,
        )
    fleet.budgets = [budget("web", "web", draw(st.sampled_from((0, 1, 9))))] if draw(st.integers(0, 3)) == 0 else []
    for one in fleet.nodes:
        if one.claim is not None and draw(st.integers(0, 3)) == 0:
            since = NOON - timedelta(seconds=draw(st.sampled_from((1, 599, 6000))))
            said = Condition(type=draw(st.sampled_from(("Ready", "Disk"))), status="False", last_transition_time=since)
            if (wrong := POLICIES.illness([(said, since)], None)) is not None:
                fleet.ill[one.key.name] = wrong
    fleet.pending = [
        running(one.name, one.shape, phase="Pending", node_name="", scheduled=False, unschedulable=True)
        for one in pods(3)
    ]
    return fleet


@st.composite
def views(draw: st.DrawFn) -> tuple[Fleet, DisruptionView, bool]:
    """An instant of a fleet, and whether the time of the pass may be up."""
    fleet = draw(fleets())
    keys = [one.key.name for one in fleet.nodes]

    def some() -> list[str]:
        return draw(st.lists(st.sampled_from(keys), max_size=2, unique=True))

    late = draw(st.integers(0, 3)) == 0
    steps = itertools.count()
    most = draw(st.integers(0, 4))
    ceiling = draw(st.sampled_from((None, None, 0, 1)))
    spared = {name: draw(st.sampled_from((REPLACES, CALLED_OFF, BACKING_OFF))) for name in some()[:1]}
    view = replace(
        fleet.view(),
        ceiling=ceiling,
        under_way=frozenset(some()[:1]),
        spared=spared,
        restless=dict.fromkeys(some(), fleet.at + timedelta(seconds=9)),
        empty_for={name: draw(st.sampled_from((timedelta(0), VALIDATION))) for name in keys},
        expired=(lambda: next(steps) > most) if late else (lambda: False),
    )
    return fleet, view, late


def concerned(reason: str, node: NodeView, fleet: Fleet) -> bool:
    """Whether a node is this method's business, said without asking it."""
    mine = next((one for one in fleet.pools if one.metadata.name == node.pool), None)
    static = mine is not None and mine.spec.replicas is not None
    has_drifted = node.claim is not None and drift.has_drifted(node.claim)
    if reason == UNHEALTHY:
        return node.key.name in fleet.ill
    if reason in ("Drifted", "Static"):
        return has_drifted and static is (reason == "Static")
    if mine is None or static or mine.spec.disruption.consolidate_after == "Never":
        return False
    return is_empty(node.pods) is (reason == "Empty")


@settings(max_examples=WORLDS, deadline=None)
@given(views())
def test_a_method_answers_for_every_node_that_concerns_it_and_once(seen: tuple[Fleet, DisruptionView, bool]) -> None:
    fleet, view, late = seen
    for reason, ask in METHODS.items():
        answer = ask(view)
        keys = [name for one in answer.proposals for name in one.candidates] + [
            one.key for one in answer.blocked if one.key
        ]
        times = Counter([*keys, *answer.quiet])
        for node in view.snapshot.nodes:
            if not concerned(reason, node, fleet):
                continue
            key = node.key.name
            verdict = of_method(answer, node)
            assert verdict is not None, f"{reason} says nothing of {node}"
            going = bool(node.deleting or node.command or key in view.under_way)
            assert times[key] == 1 or node.deleting, f"{reason} says of {node} {times[key]} things"
            assert (verdict.standing is DisruptionStanding.UNDER_WAY) is going, verdict
            assert verdict.message or verdict.standing is DisruptionStanding.PROPOSED, verdict
            if verdict.standing is DisruptionStanding.NOT_DUE:
                assert verdict.until is not None
                assert verdict.until > view.snapshot.at, verdict
            if verdict.standing is DisruptionStanding.NOT_REACHED:
                assert late, f"{reason} did not come to {node}, though there was time"


@settings(max_examples=WORLDS, deadline=None)
@given(views())
def test_what_is_not_due_is_due_then(seen: tuple[Fleet, DisruptionView, bool]) -> None:
    _, view, _ = seen
    for ask in METHODS.values():
        for key, verdict in ask(view).quiet.items():
            if verdict.standing is not DisruptionStanding.NOT_DUE or verdict.until is None:
                continue
            then = replace(
                view,
                snapshot=replace(view.snapshot, at=verdict.until),
                restless={},
                empty_for=dict.fromkeys(view.empty_for, VALIDATION),
            )
            again = ask(then).quiet.get(key)
            assert again is None or again.standing is not DisruptionStanding.NOT_DUE or again.until != verdict.until, (
                again
            )


@settings(max_examples=WORLDS, deadline=None)
@given(fleets(), st.data())
def test_what_needs_no_budget_has_one_verdict_for_each_reason_too(fleet: Fleet, data: st.DataObject) -> None:
    snapshot = fleet.snapshot()
    begins = st.sampled_from((None, NOON - timedelta(hours=1), NOON + timedelta(hours=1)))
    marks = {
        one.key.name: Interruption(
            reason="spot_interrupted",
            begins=data.draw(begins),
            budgeted=data.draw(st.booleans()),
            replaced=data.draw(st.booleans()),
        )
        for one in snapshot.nodes
        if data.draw(st.integers(0, 2)) == 0
    }
    legacy = data.draw(st.booleans())
    breaker = repair_breaker(snapshot, fleet.ill, domains=not legacy)
    repairs = decide_repairs(snapshot, fleet.ill, breaker, legacy=legacy)
    mine = {one.key.name for one in snapshot.nodes if legacy or not one.pool or not one.is_ours}
    decision = decide_interruptions(snapshot, marks, AllowanceLedger(snapshot))
    pause = data.draw(st.sampled_from((NOTHING, Pause(pools={"general": PauseValue(DISRUPTION)}))))
    for node in snapshot.nodes:
        told = list(forced(node, snapshot, pause, repairs, marks, decision))
        wanted = {
            EXPIRED: node.claim is not None and time_left(node.claim, snapshot.at) is not None,
            UNHEALTHY: node.key.name in fleet.ill and node.key.name in mine,
            INTERRUPTED: node.key.name in marks,
        }
        assert Counter(reason for reason, _ in told) == Counter(reason for reason, there in wanted.items() if there)
        for _, one in told:
            assert one.message
            assert one.standing is not DisruptionStanding.NOT_DUE or (one.until is not None and one.until > snapshot.at)


@settings(max_examples=WORLDS, deadline=None)
@given(fleets())
def test_repairs_keep_every_budget_and_hold_what_the_breaker_holds(fleet: Fleet) -> None:
    """Counted by the one ledger, one after another, as they are admitted."""
    view = fleet.view()
    ledger = AllowanceLedger(view.snapshot)
    nodes = {one.key.name: one for one in view.snapshot.nodes}
    breaker = repair_breaker(view.snapshot, fleet.ill)
    answer = repair.propose(view)
    for one in answer.proposals:
        (key,) = one.candidates
        assert not ledger.refusal(one.candidates, one.reason)
        ledger.spend(one.candidates)
        assert not breaker.why(nodes[key])
        assert not nodes[key].do_not_repair
        assert fleet.ill[key].choice(view.snapshot.at) is not None
        assert one.repair is not None
        assert all(nodes[name].key.name not in fleet.ill for name in one.placements), "pods would move twice"
    told = Counter(one.key for one in answer.blocked if one.key)
    due = {key for key, one in fleet.ill.items() if one.choice(view.snapshot.at) is not None}
    silent = {key for key, one in answer.quiet.items() if one.standing is DisruptionStanding.UNDER_WAY}
    gone = {name for one in answer.proposals for name in one.candidates}
    assert told == Counter(due - silent - gone), "each node that is due and stays is told, once"
