"""Whether a NodeClaim that takes the place of another one may be launched."""

from dataclasses import dataclass
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.command import (
    Awaited,
    CandidateRecord,
    CommandRecord,
    Replacement,
    TerminateFirst,
    awaited_by,
    command_on,
    encode_command,
    is_gated,
)
from provisioner.apis.karpenter import NodeClaim
from provisioner.lifecycle.launch_gate import LaunchGate, gate_of
from provisioner.state.disruption_commands import Command
from tests.support.clock import NOON
from tests.support.cluster import claim

AWAITED = Awaited("a", "uid-a", "reservation", "cr-1")


def other(uid: str = "uid-a", **metadata: Any) -> NodeClaim:
    return claim("a", uid=uid, **metadata)


def command(ident: str = "c-1") -> Command:
    record = CommandRecord(
        id=ident,
        reason="Drifted",
        method="drift",
        candidates=(CandidateRecord("a", "uid-a"),),
        replacements=(Replacement("new"),),
        first=TerminateFirst("reservation", "cr-1", 600),
    )
    return Command(record, written=True)


@dataclass(frozen=True)
class Case:
    want: LaunchGate
    other: NodeClaim | None = None
    command: Command | None = None
    awaits: str | None = AWAITED.to_text()


CASES = {
    "it waits for nothing": Case(LaunchGate.OPEN, other(), awaits=None),
    "the other one is there, and the command holds": Case(LaunchGate.HELD, other(), command()),
    "the other one goes": Case(LaunchGate.HELD, other(deletionTimestamp=NOON.isoformat()), command()),
    "the other one goes by other hands": Case(LaunchGate.HELD, other(deletionTimestamp=NOON.isoformat())),
    "the other one is gone": Case(LaunchGate.FREED),
    "another one has its name": Case(LaunchGate.FREED, other("uid-b")),
    "the command was called off": Case(LaunchGate.RELEASED, other()),
    "another command is meant": Case(LaunchGate.RELEASED, other(), command("c-2")),
    "what it waits for cannot be read": Case(LaunchGate.RELEASED, other(), command(), awaits="{"),
    "it waits for nobody by name": Case(LaunchGate.RELEASED, other(), command(), awaits="{}"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_gate(case: Case) -> None:
    marks = {names.REPLACES_ANNOTATION: "c-1"}
    marks |= {names.AWAITS_ANNOTATION: case.awaits} if case.awaits is not None else {}
    assert gate_of(claim("new", annotations=marks), case.other, case.command) is case.want


def test_what_is_written_is_read_back() -> None:
    assert awaited_by(claim("new", annotations={names.AWAITS_ANNOTATION: AWAITED.to_text()})) == AWAITED
    assert awaited_by(claim("new", annotations={names.AWAITS_ANNOTATION: "x" * 5000})) is None
    launched = claim("new", annotations={names.AWAITS_ANNOTATION: AWAITED.to_text()}, provider_id="aws:///a/i-1")
    assert (awaited_by(launched), is_gated(launched)) == (None, False), "it was launched by a version without gates"
    record = command().record
    begun = CommandRecord(
        **{
            **{one: getattr(record, one) for one in record.__struct_fields__},
            "first": TerminateFirst("a", "b", 60).begun(NOON),
        }
    )
    assert command_on(other(annotations={names.COMMAND_ANNOTATION: encode_command(begun)})) == begun


def test_a_command_of_several_candidates_never_goes_first() -> None:
    several = CommandRecord(
        id="c-1",
        reason="Drifted",
        method="drift",
        candidates=(CandidateRecord("a", "uid-a"), CandidateRecord("b", "uid-b")),
        replacements=(Replacement("new"),),
        first=TerminateFirst("reservation", "cr-1"),
    )
    assert command_on(other(annotations={names.COMMAND_ANNOTATION: encode_command(several)})) is None
