"""Every edge of a command's way, and the edges that must not be there."""

import itertools
from dataclasses import dataclass, replace
from typing import Any

import pytest

from provisioner.apis.command import CandidateRecord, CommandPhase, CommandRecord, Replacement, TerminateFirst
from provisioner.disruption.commands.progress import (
    CandidateFacts,
    CommandFacts,
    CommandStep,
    CommandVerdict,
    Next,
    ReplacementState,
    next_step,
)

ABSENT, COMING, READY, FAILED = ReplacementState
ONE = (CandidateFacts("a", marked=True),)
TWO = (CandidateFacts("a", marked=True), CandidateFacts("b", marked=True))


def facts(
    candidates: tuple[CandidateFacts, ...] = ONE,
    *states: ReplacementState,
    creatable: bool = True,
    stalled: str = "",
    verdict: CommandVerdict | None = None,
) -> CommandFacts:
    named = tuple((f"new-{number}", state) for number, state in enumerate(states))
    return CommandFacts(candidates, named, frozenset(name for name, _ in named if creatable), stalled, verdict)


def changed(candidates: tuple[CandidateFacts, ...], which: int, **changes: Any) -> tuple[CandidateFacts, ...]:
    """With other facts of one candidate."""
    return tuple(replace(one, **changes) if number == which else one for number, one in enumerate(candidates))


def step_of(
    given: CommandFacts, phase: CommandPhase = CommandPhase.COMMITTED, first: TerminateFirst | None = None
) -> Next:
    record = CommandRecord(
        id="id",
        reason="Drifted",
        method="drift",
        candidates=tuple(CandidateRecord(one.name, f"uid-{one.name}") for one in given.candidates),
        replacements=tuple(Replacement(name) for name, _ in given.replacements),
        phase=phase,
        first=first,
    )
    return next_step(record, given)


@dataclass(frozen=True)
class Case:
    want: Next
    given: CommandFacts
    phase: CommandPhase = CommandPhase.COMMITTED


VALID, BLOCKED, WAITS = CommandVerdict(), CommandVerdict("a pod"), CommandVerdict("a budget", waits=True)
ROLL_BACK = Next(CommandStep.ROLL_BACK)


def blames(*replacements: str) -> Next:
    return Next(CommandStep.ROLL_BACK, replacements)


EDGES = {
    "what is not marked is marked": Case(Next(CommandStep.MARK, ("b",)), facts(changed(TWO, 1, marked=False), ABSENT)),
    "what lost its mark is marked again": Case(
        Next(CommandStep.MARK, ("a",)), facts(changed(ONE, 0, marked=False), READY)
    ),
    "marked, replacements are created": Case(Next(CommandStep.CREATE, ("new-1",)), facts(ONE, COMING, ABSENT)),
    "what cannot be created again is rolled back": Case(ROLL_BACK, facts(ONE, COMING, ABSENT, creatable=False)),
    "what comes is waited for": Case(Next(CommandStep.AWAIT_REPLACEMENTS, ("new-1",)), facts(ONE, READY, COMING)),
    "all are ready, it is validated": Case(Next(CommandStep.VALIDATE), facts(ONE, READY)),
    "nothing to replace, it is validated": Case(Next(CommandStep.VALIDATE), facts(ONE)),
    "valid, one candidate is deleted": Case(Next(CommandStep.DELETE, ("a",)), facts(ONE, READY, verdict=VALID)),
    "valid, several are sealed first": Case(Next(CommandStep.SEAL), facts(TWO, READY, verdict=VALID)),
    "not valid, it is rolled back": Case(ROLL_BACK, facts(ONE, READY, verdict=BLOCKED)),
    "a budget is waited for": Case(Next(CommandStep.AWAIT_BUDGET), facts(ONE, READY, verdict=WAITS)),
    "sealed, the record's holder goes last": Case(
        Next(CommandStep.DELETE, ("b", "a")), facts(TWO, READY), CommandPhase.DELETING
    ),
    "sealed and half done, the rest goes": Case(
        Next(CommandStep.DELETE, ("a",)), facts(changed(TWO, 1, deleting=True), READY), CommandPhase.DELETING
    ),
    "sealed, what is gone already is not missed": Case(
        Next(CommandStep.DELETE, ("a",)), facts(changed(TWO, 1, there=False), READY), CommandPhase.DELETING
    ),
    "sealed, nothing calls it off": Case(
        Next(CommandStep.DELETE, ("b", "a")), facts(TWO, FAILED, stalled="x", verdict=BLOCKED), CommandPhase.DELETING
    ),
    "all go, their end is awaited": Case(
        Next(CommandStep.AWAIT_END), facts(tuple(replace(one, deleting=True) for one in TWO)), CommandPhase.DELETING
    ),
    "the only candidate goes, its end is awaited": Case(
        Next(CommandStep.AWAIT_END), facts(changed(ONE, 0, deleting=True), READY)
    ),
    "all are gone": Case(Next(CommandStep.DONE), facts(changed(ONE, 0, there=False), COMING)),
    "one of several is gone": Case(ROLL_BACK, facts(changed(TWO, 1, there=False), READY)),
    "one of several is deleted by somebody": Case(ROLL_BACK, facts(changed(TWO, 0, deleting=True), READY)),
    "one is interrupted": Case(ROLL_BACK, facts(changed(TWO, 1, interrupted=True), READY)),
    "one has no Node of its own": Case(ROLL_BACK, facts(changed(ONE, 0, joined=False), READY)),
    "a replacement failed": Case(blames("new-1"), facts(ONE, READY, FAILED)),
    "a replacement failed while another is to be created": Case(blames("new-0"), facts(ONE, FAILED, ABSENT)),
    "nothing happens for too long": Case(blames("new-1"), facts(ONE, READY, COMING, stalled="no progress")),
    "a budget allows nothing for too long": Case(ROLL_BACK, facts(ONE, READY, stalled="no progress")),
    "a candidate is lost after a replacement failed": Case(ROLL_BACK, facts(changed(ONE, 0, joined=False), FAILED)),
}


@pytest.mark.parametrize("case", EDGES.values(), ids=EDGES)
def test_edges(case: Case) -> None:
    assert step_of(case.given, case.phase) == case.want


def test_why_it_is_rolled_back_is_said() -> None:
    assert {step_of(case.given).why != "" for case in EDGES.values() if case.want.step is CommandStep.ROLL_BACK} == {
        True
    }
    assert step_of(facts(changed(TWO, 1, there=False))).why == "NodeClaim b no longer exists"


EVERY = [
    facts(candidates, *states, creatable=creatable, stalled=stalled, verdict=verdict)
    for flags in itertools.product((True, False), repeat=5)
    for candidates in [
        (
            CandidateFacts("a", marked=True),
            CandidateFacts(
                "b", there=flags[0], deleting=flags[1], joined=flags[2], marked=flags[3], interrupted=flags[4]
            ),
        )
    ]
    for states in itertools.product(ReplacementState, repeat=2)
    for creatable in (True, False)
    for stalled in ("", "no progress")
    for verdict in (None, VALID, BLOCKED, WAITS)
]


FORCED, BOUNDED = TerminateFirst("reservation", "cr-1"), TerminateFirst("reservation", "cr-1", bound_seconds=600)
COMMITTED, DRAINING, DELETING = CommandPhase.COMMITTED, CommandPhase.DRAINING, CommandPhase.DELETING


@dataclass(frozen=True)
class FirstCase:
    want: Next
    given: CommandFacts
    phase: CommandPhase = COMMITTED
    first: TerminateFirst = BOUNDED


FIRST = {
    "it is marked before the place is held": FirstCase(
        Next(CommandStep.MARK, ("a",)), facts(changed(ONE, 0, marked=False), ABSENT)
    ),
    "the place is held before anything ends": FirstCase(Next(CommandStep.CREATE, ("new-0",)), facts(ONE, ABSENT)),
    "held, it is validated though nothing is launched": FirstCase(Next(CommandStep.VALIDATE), facts(ONE, COMING)),
    "valid, its pods leave first": FirstCase(Next(CommandStep.BEGIN_DRAIN), facts(ONE, COMING, verdict=VALID)),
    "valid, and its drain is forced: it goes": FirstCase(
        Next(CommandStep.DELETE, ("a",)), facts(ONE, COMING, verdict=VALID), first=FORCED
    ),
    "a budget is not waited for": FirstCase(ROLL_BACK, facts(ONE, COMING, verdict=WAITS)),
    "nor is it where the drain is forced": FirstCase(ROLL_BACK, facts(ONE, COMING, verdict=WAITS), first=FORCED),
    "not valid, it is called off": FirstCase(ROLL_BACK, facts(ONE, COMING, verdict=BLOCKED)),
    "its pods leave": FirstCase(Next(CommandStep.DRAIN, ("a",)), facts(ONE, COMING), DRAINING),
    "its pods leave, however long nothing else happens": FirstCase(
        Next(CommandStep.DRAIN, ("a",)), facts(ONE, COMING, stalled="no progress"), DRAINING
    ),
    "its pods took too long": FirstCase(ROLL_BACK, replace(facts(ONE, COMING), overdue="too long"), DRAINING),
    "the time counts from where they are asked": FirstCase(
        Next(CommandStep.VALIDATE), replace(facts(ONE, COMING), overdue="too long")
    ),
    "they left at the last moment": FirstCase(
        Next(CommandStep.VALIDATE), replace(facts(ONE, COMING), overdue="too long", drained=True), DRAINING
    ),
    "drained, it is validated again": FirstCase(
        Next(CommandStep.VALIDATE), replace(facts(ONE, COMING), drained=True), DRAINING
    ),
    "drained and valid, it goes": FirstCase(
        Next(CommandStep.DELETE, ("a",)), replace(facts(ONE, COMING, verdict=VALID), drained=True), DRAINING
    ),
    "drained, and protected meanwhile": FirstCase(
        ROLL_BACK, replace(facts(ONE, COMING, verdict=BLOCKED), drained=True), DRAINING
    ),
    "whoever held the place is gone": FirstCase(blames("new-0"), facts(ONE, FAILED), DRAINING),
    "its cloud takes the node back": FirstCase(ROLL_BACK, facts(changed(ONE, 0, interrupted=True), COMING), DRAINING),
    "a user deletes it meanwhile": FirstCase(
        Next(CommandStep.AWAIT_END), facts(changed(ONE, 0, deleting=True), COMING), DRAINING
    ),
    "it lost its taint, and is closed again": FirstCase(
        Next(CommandStep.MARK, ("a",)), facts(changed(ONE, 0, marked=False), COMING), DRAINING
    ),
    "it is gone": FirstCase(Next(CommandStep.DONE), facts(changed(ONE, 0, there=False), COMING), DRAINING),
}


@pytest.mark.parametrize("case", FIRST.values(), ids=FIRST)
def test_edges_of_what_goes_first(case: FirstCase) -> None:
    assert step_of(case.given, case.phase, case.first) == case.want


def test_nothing_goes_first_before_its_place_is_held() -> None:
    """In every combination of facts: nothing ends, and no pod is asked to leave, without a successor that exists."""
    for state, marked, drained, overdue, verdict, phase, first in itertools.product(
        ReplacementState,
        (True, False),
        (True, False),
        ("", "late"),
        (None, VALID, BLOCKED, WAITS),
        (COMMITTED, DRAINING),
        (FORCED, BOUNDED),
    ):
        given = facts(changed(ONE, 0, marked=marked), state, verdict=verdict)
        found = step_of(replace(given, drained=drained, overdue=overdue), phase, first).step
        if found in (CommandStep.DELETE, CommandStep.BEGIN_DRAIN, CommandStep.DRAIN):
            assert marked
            assert state in (COMING, READY)
        if found is CommandStep.DELETE:
            assert verdict == VALID
            assert first is FORCED or (phase is DRAINING and drained)
        if found is CommandStep.DRAIN:
            assert (phase, overdue) == (DRAINING, "")
        assert found is not CommandStep.AWAIT_REPLACEMENTS
        assert found is not CommandStep.AWAIT_BUDGET


@pytest.mark.parametrize("phase", [COMMITTED, DELETING])
def test_edges_that_are_not_there(phase: CommandPhase) -> None:
    """In every combination of facts: nothing is deleted unvalidated, nothing before its replacements, nothing twice."""
    for given in EVERY:
        following = step_of(given, phase)
        ready = all(state is READY for _, state in given.replacements)
        sound = all(one.there and not one.deleting and one.joined and one.marked for one in given.candidates)
        if following.step is CommandStep.SEAL:
            assert phase is CommandPhase.COMMITTED
            assert ready
            assert sound
            assert given.verdict == VALID
            assert not given.stalled
        if following.step is CommandStep.DELETE:
            assert phase is CommandPhase.DELETING
            assert not {one.name for one in given.candidates if one.deleting or not one.there} & set(following.names)
        if following.step in (CommandStep.CREATE, CommandStep.MARK, CommandStep.VALIDATE, CommandStep.ROLL_BACK):
            assert phase is CommandPhase.COMMITTED
        if following.step is CommandStep.CREATE:
            assert given.creatable.issuperset(following.names)
            assert all(dict(given.replacements)[name] is ABSENT for name in following.names)


def test_what_waits_says_so_again_and_what_acts_ends() -> None:
    """Acting on a step changes the facts it was taken from, so no step follows itself for ever but those that wait."""
    after_mark = step_of(facts(TWO, ABSENT)).step
    after_create = step_of(facts(TWO, COMING)).step
    assert (after_mark, after_create) == (CommandStep.CREATE, CommandStep.AWAIT_REPLACEMENTS)
