"""A node that goes before its successor is launched, with leaders that are lost and crashes between two writes: `TerminateFirstMachine`.

What decides is real: the steps of the command, the gate of the launch, and the records as they are written. What is written is all that a leader who
comes knows. Whatever happens, in any order: no successor is launched while the place is taken, none is made twice, and no place is held for ever. Each
mutant is caught.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from provisioner.apis import names
from provisioner.apis.command import (
    Awaited,
    CandidateRecord,
    CommandPhase,
    CommandRecord,
    Replacement,
    TerminateFirst,
    command_on,
    encode_command,
)
from provisioner.disruption.commands.progress import (
    CandidateFacts,
    CommandFacts,
    CommandStep,
    CommandVerdict,
    ReplacementState,
    next_step,
)
from provisioner.lifecycle.launch_gate import LaunchGate, gate_of
from provisioner.state.disruption_commands import Command
from tests.support.clock import NOON
from tests.support.cluster import claim

OLD, NEW = "old", "new"
ROUNDS: Final = 60
SOME, MANY = 300, 2_000
"""Lives, and those that a mutant is given."""


class TerminateFirstMachine(RuleBasedStateMachine):
    """One node, its command and its successor; `annotations` are what the API server has of each NodeClaim."""

    def __init__(self) -> None:
        super().__init__()
        self.now: datetime = NOON
        self.annotations: dict[str, dict[str, str]] = {OLD: {}}
        self.deleting: set[str] = set()
        self.marked = False
        self.pods, self.stuck, self.protected = 3, False, False
        self.launched = self.created = 0
        self.forced = False
        self.refused = 0

    @initialize(forced=st.booleans(), pods=st.integers(0, 6))
    def begin(self, forced: bool, pods: int) -> None:
        self.forced, self.pods = forced, pods
        first = TerminateFirst("reservation", "cr-1", None if forced else 600)
        record = CommandRecord(
            id="c-1",
            reason="Drifted",
            method="drift",
            candidates=(CandidateRecord(OLD, "uid-old"),),
            replacements=(Replacement(NEW, {}),),
            first=first,
        )
        self._write(record)

    def _write(self, record: CommandRecord) -> None:
        self.annotations[OLD][names.COMMAND_ANNOTATION] = encode_command(record)

    def _claim(self, name: str) -> object:
        if name not in self.annotations:
            return None
        more: dict[str, Any] = {"deletionTimestamp": NOON.isoformat()} if name in self.deleting else {}
        return claim(name, uid=f"uid-{name}", annotations=self.annotations[name], **more)

    def _record(self) -> CommandRecord | None:
        found = self._claim(OLD)
        return command_on(found) if found is not None else None  # type: ignore[arg-type]

    def _facts(self, record: CommandRecord, verdict: CommandVerdict | None, *, drained: bool) -> CommandFacts:
        there = OLD in self.annotations
        state = ReplacementState.COMING if NEW in self.annotations else ReplacementState.ABSENT
        if NEW in self.deleting or (self.created and NEW not in self.annotations):
            state = ReplacementState.FAILED
        until = record.first.until if record.first is not None else None
        return CommandFacts(
            (CandidateFacts(OLD, there=there, deleting=OLD in self.deleting, marked=self.marked),),
            ((NEW, state),),
            frozenset({NEW}),
            verdict=verdict,
            drained=drained,
            overdue="late" if until is not None and self.now >= until else "",
        )

    def _verdict(self) -> CommandVerdict:
        return CommandVerdict("protected" if self.protected and not self.forced else "")

    # ------------------------------------------------------------------ who leads

    @precondition(lambda self: OLD in self.annotations)
    @rule(writes=st.integers(1, 3))
    def a_leader_goes_on_and_is_lost(self, writes: int) -> None:
        """It makes so many writes at most, and forgets everything."""
        verdict, drained = None, False
        for _ in range(12):
            record = self._record()
            if record is None or writes < 1:
                return
            following = next_step(record, self._facts(record, verdict, drained=drained))
            verdict = None
            writes -= 1
            match following.step:
                case CommandStep.MARK:
                    self.marked = True
                case CommandStep.CREATE:
                    self.created += 1
                    waits = Awaited(OLD, "uid-old", "reservation", "cr-1").to_text()
                    self.annotations[NEW] = {names.AWAITS_ANNOTATION: waits, names.REPLACES_ANNOTATION: "c-1"}
                case CommandStep.VALIDATE:
                    writes, verdict = writes + 1, self._verdict()
                case CommandStep.BEGIN_DRAIN:
                    assert self.forced or not self.protected, "it begins though a pod cannot be evicted"
                    assert record.first is not None
                    first = record.first.begun(self.now)
                    self._write(_changed(record, phase=CommandPhase.DRAINING, first=first))
                case CommandStep.DRAIN:
                    assert record.first is not None
                    assert record.first.until is None or self.now < record.first.until, (
                        "its pods had longer than they may"
                    )
                    if self.pods and not self.stuck:
                        self.pods -= 1
                    drained = not self.pods
                    if not drained:
                        return
                case CommandStep.DELETE:
                    assert NEW in self.annotations.keys() - self.deleting, "nothing ends before its place is held"
                    assert self.forced or not self.pods, "nobody forces its pods"
                    assert self.forced or not self.protected, "it ends though a pod cannot be evicted"
                    assert self.marked, "it ends while it takes pods"
                    self.deleting.add(OLD)
                case CommandStep.ROLL_BACK:
                    del self.annotations[OLD][names.COMMAND_ANNOTATION]
                    self.marked = False
                    return
                case _:
                    return

    @precondition(lambda self: NEW in self.annotations)
    @rule()
    def the_successor_is_looked_at(self) -> None:
        found = self._claim(NEW)
        if found is None or NEW in self.deleting or self.launched:
            return
        record = self._record()
        command = Command(record, written=True) if record is not None else None
        match gate_of(found, self._claim(OLD), command):  # type: ignore[arg-type]
            case LaunchGate.OPEN:
                assert OLD not in self.annotations, "launched while its place is taken"
                self.launched += 1
            case LaunchGate.FREED:
                del self.annotations[NEW][names.AWAITS_ANNOTATION]
            case LaunchGate.RELEASED:
                self.deleting.add(NEW)
            case LaunchGate.HELD:
                pass

    # ------------------------------------------------------------------ what else happens

    @precondition(lambda self: OLD in self.deleting)
    @rule()
    def the_old_node_ends(self) -> None:
        self.annotations.pop(OLD, None)

    @precondition(lambda self: NEW in self.deleting)
    @rule()
    def the_successor_ends(self) -> None:
        self.annotations.pop(NEW, None)

    @precondition(lambda self: self.created)
    @rule(name=st.sampled_from((OLD, NEW)))
    def a_user_deletes(self, name: str) -> None:
        if name in self.annotations and not self.launched:
            self.deleting.add(name)

    @precondition(lambda self: self.marked)
    @rule()
    def what_belongs_to_no_command_is_taken_back(self) -> None:
        if self._record() is None:
            self.marked = False

    @precondition(lambda self: self.created and OLD in self.annotations)
    @rule()
    def a_user_cancels(self) -> None:
        self.annotations[OLD].pop(names.COMMAND_ANNOTATION, None)

    @precondition(lambda self: OLD in self.annotations)
    @rule(stuck=st.booleans(), protected=st.booleans())
    def pods_change(self, stuck: bool, protected: bool) -> None:
        self.stuck, self.protected = stuck, protected

    @precondition(lambda self: OLD in self.annotations)
    @rule(seconds=st.sampled_from((1, 300, 601)))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    # ------------------------------------------------------------------ what holds

    @invariant()
    def at_most_one_is_made_and_launched(self) -> None:
        assert self.created <= 1
        assert self.launched <= 1
        assert not self.launched or OLD not in self.annotations

    def teardown(self) -> None:
        LIVES.append(self.launched)
        """Left alone, with somebody who leads, it comes to an end: the place is free, or taken by the successor."""
        self.stuck = self.protected = False
        for _ in range(ROUNDS):
            self.a_leader_goes_on_and_is_lost(6)
            self.the_successor_is_looked_at()
            self.what_belongs_to_no_command_is_taken_back()
            if OLD in self.deleting:
                self.the_old_node_ends()
            if NEW in self.deleting:
                self.the_successor_ends()
            self.now += timedelta(seconds=30)
        waits = NEW in self.annotations and names.AWAITS_ANNOTATION in self.annotations[NEW]
        assert not waits, "the place is held for ever"
        assert NEW not in self.annotations or self.launched
        assert OLD not in self.annotations or (self._record() is None and not self.marked) or not self.created


def _changed(record: CommandRecord, **fields: object) -> CommandRecord:
    known = {name: getattr(record, name) for name in record.__struct_fields__}
    return CommandRecord(**{**known, **fields})


LIVES: list[int] = []


def live(most: int, *phases: Phase) -> None:
    """Lives of a command, the same every time."""
    run_state_machine_as_test(
        TerminateFirstMachine,
        settings=settings(
            derandomize=True,
            max_examples=most,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=phases,
        ),
    )


def test_any_life_of_a_command() -> None:
    live(SOME, *Phase)
    assert {0, 1} <= set(LIVES), "some successors are launched, and some give their place up"


# ---------------------------------------------------------------------- mutants


STEP: Final = next_step
GATE: Final = gate_of


def _facts(change: Callable[[CommandFacts], CommandFacts]) -> dict[str, Any]:
    """The steps see facts that are not so."""
    return {"next_step": lambda record, facts: STEP(record, change(facts))}


def _replacement(state: ReplacementState, *those: ReplacementState) -> dict[str, Any]:
    """The successor seems to have come so far, where it has come so far as one of those."""
    return _facts(
        lambda facts: replace(
            facts, replacements=tuple((name, state if one in those else one) for name, one in facts.replacements)
        )
    )


def _gate(wrong: LaunchGate, right: LaunchGate) -> dict[str, Any]:
    """Whoever launches takes one answer for another."""

    def gate(*asked: Any) -> LaunchGate:
        found = GATE(*asked)
        return wrong if found is right else found

    return {"gate_of": gate}


def _end_at_once(found: Any, other: Any, command: Any) -> LaunchGate:
    """What is being deleted is taken to be gone."""
    return GATE(found, None if other is not None and other.metadata.deletion_timestamp else other, command)


STATES: Final = ReplacementState
MUTANTS: Final[dict[str, dict[str, Any]]] = {
    "the successor is launched while the node is there": _gate(LaunchGate.OPEN, LaunchGate.HELD),
    "a node that is being deleted counts as gone": {"gate_of": _end_at_once},
    "a place is held without a command": _gate(LaunchGate.HELD, LaunchGate.RELEASED),
    "a place that is free is held": _gate(LaunchGate.HELD, LaunchGate.FREED),
    "the node ends before its place is held": _replacement(STATES.COMING, STATES.ABSENT),
    "a successor that has gone is no failure": _replacement(STATES.COMING, STATES.FAILED),
    "the successor is made again and again": _replacement(STATES.ABSENT, STATES.COMING),
    "nobody waits for the pods": _facts(lambda facts: replace(facts, drained=True)),
    "pods may take as long as they want": _facts(lambda facts: replace(facts, overdue="")),
    "pods that cannot be evicted do not count": _facts(
        lambda facts: replace(facts, verdict=facts.verdict and CommandVerdict())
    ),
    "the node is not closed": _facts(
        lambda facts: replace(facts, candidates=tuple(replace(one, marked=True) for one in facts.candidates))
    ),
    "that pods leave is not written": {"_changed": lambda record, **_: record},
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, wrong in MUTANTS[mutant].items():
        monkeypatch.setitem(globals(), name, wrong)
    with pytest.raises(AssertionError):
        live(MANY, Phase.generate)
