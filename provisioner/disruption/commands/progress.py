"""What a disruption command does next. Pure: `next_step` looks at the record and at facts of one instant, and at nothing else.

    committed ─▶ candidates marked ─▶ replacements created ─▶ initialized ─▶ valid ─▶ candidates deleted ─▶ gone
        └────────────┴──────────────────────┴───────────────────┴─────────────┴─▶ rolled back

Where there is no room for both (`CommandRecord.first`), the replacement is created, and not launched before the candidate is gone:

    committed ─▶ candidate marked ─▶ replacement created ─▶ valid ─▶ drained, within a bound ─▶ valid ─▶ candidate deleted ─▶ gone ─▶ launched

Every step is idempotent and taken from what is written on objects, so that whoever leads next goes on with it.
Source: core spec 6.14. Differs: Karpenter's queue is forgotten in a restart, and its timeout counts from the command's beginning.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from provisioner.apis.command import CommandPhase, CommandRecord
from provisioner.values.message import Said


class CommandStep(enum.Enum):
    """What to do."""

    MARK = "mark"
    """Close the Nodes of these candidates, and set their DisruptionReason."""
    CREATE = "create"
    """Create these replacements."""
    AWAIT_REPLACEMENTS = "await replacements"
    """Wait for these replacements to be initialized."""
    VALIDATE = "validate"
    """Look at the API server whether the candidates may still go."""
    AWAIT_BUDGET = "await budget"
    """Wait for a PodDisruptionBudget; look again."""
    BEGIN_DRAIN = "begin drain"
    """Write that pods leave, and until when."""
    DRAIN = "drain"
    """Ask the pods of the candidate to leave; look again."""
    SEAL = "seal"
    """Write that the candidates go, so that a crash between two deletions leaves no half of it."""
    DELETE = "delete"
    """Delete these candidates, in this order."""
    AWAIT_END = "await end"
    """Wait for the candidates to be gone."""
    ROLL_BACK = "roll back"
    """Call it off: the candidates take pods again, replacements are left to themselves."""
    DONE = "done"
    """Nothing is left to do."""


class ReplacementState(enum.Enum):
    """How far a replacement has come."""

    ABSENT = "absent"
    """It was not seen yet."""
    COMING = "coming"
    """It is there, and not initialized."""
    INITIALIZED = "initialized"
    """It takes pods."""
    FAILED = "failed"
    """It is being deleted, is gone, is taken back by its cloud, or cannot be created."""


@dataclass(frozen=True, slots=True)
class CandidateFacts:
    """What is known of a candidate.

    Attributes:
        name: of the NodeClaim.
        there: the NodeClaim of this name and UID exists.
        deleting: it is being deleted.
        joined: it has exactly one Node, which has no other.
        marked: its Node is closed and its DisruptionReason says why.
        interrupted: its cloud takes it back, which comes first.
    """

    name: str
    there: bool = True
    deleting: bool = False
    joined: bool = True
    marked: bool = False
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class CommandVerdict:
    """What a look at the API server showed.

    Attributes:
        objection: why the candidates must not go; "" where nothing is in the way.
        waits: what is in the way goes by itself, and it pays to wait.
    """

    objection: str = ""
    waits: bool = False


@dataclass(frozen=True, slots=True)
class CommandFacts:
    """One instant of a command.

    Attributes:
        candidates: in the record's order.
        replacements: by name, in the record's order.
        creatable: names of the replacements that can be created: what to send is written, or remembered.
        stalled: why it is given up, since nothing has changed for too long; "" while it is not.
        verdict: of a look that was just taken; None where none was.
        drained: no pod holds the only candidate any more, as a look that was just taken showed.
        overdue: why it is given up, since its pods took too long to leave; "" while they may.
    """

    candidates: tuple[CandidateFacts, ...]
    replacements: tuple[tuple[str, ReplacementState], ...] = ()
    creatable: frozenset[str] = frozenset()
    stalled: str = ""
    verdict: CommandVerdict | None = None
    drained: bool = False
    overdue: str = ""


@dataclass(frozen=True, slots=True)
class Next:
    """A step.

    Attributes:
        names: with which candidates or replacements; of a roll-back, the replacements that it is for.
        why: for events and logs; says why it is called off, or what it waits for.
    """

    step: CommandStep
    names: tuple[str, ...] = ()
    why: str = field(default="", compare=False)


def next_step(record: CommandRecord, facts: CommandFacts) -> Next:
    """What the command does next. Cost: its candidates and replacements."""
    here = [one for one in facts.candidates if one.there]
    if not here:
        return Next(CommandStep.DONE)
    staying = [one.name for one in here if not one.deleting]
    if record.phase is CommandPhase.DELETING:
        return Next(CommandStep.DELETE, _holder_last(record, staying)) if staying else Next(CommandStep.AWAIT_END)
    if len(facts.candidates) == 1 and not staying and not _those(facts, ReplacementState.ABSENT):
        return Next(CommandStep.AWAIT_END)  # it went by other hands; its replacements keep their room for its pods
    if why := _lost(facts):
        return Next(CommandStep.ROLL_BACK, why=why)
    if failed := _those(facts, ReplacementState.FAILED):
        return Next(CommandStep.ROLL_BACK, failed, f"replacement NodeClaim {failed[0]} failed")
    draining = record.phase is CommandPhase.DRAINING
    if draining and facts.overdue and not facts.drained:
        return Next(CommandStep.ROLL_BACK, why=facts.overdue)
    if facts.stalled and not draining:  # a drain has its own end
        return Next(CommandStep.ROLL_BACK, _those(facts, ReplacementState.COMING), facts.stalled)
    if unmarked := tuple(one.name for one in here if not one.marked):
        return Next(CommandStep.MARK, unmarked)
    if absent := _those(facts, ReplacementState.ABSENT):
        if not facts.creatable.issuperset(absent):
            return Next(CommandStep.ROLL_BACK, why=Said(f"replacement NodeClaim {absent[0]} was never created"))
        return Next(CommandStep.CREATE, absent)
    if (coming := _those(facts, ReplacementState.COMING)) and record.first is None:
        return Next(CommandStep.AWAIT_REPLACEMENTS, coming)
    if draining and not facts.drained:
        return Next(CommandStep.DRAIN, tuple(staying))
    if facts.verdict is None:
        return Next(CommandStep.VALIDATE)
    if facts.verdict.objection:
        waits = facts.verdict.waits and record.first is None  # whoever goes first waits with nothing begun
        return Next(CommandStep.AWAIT_BUDGET if waits else CommandStep.ROLL_BACK, why=facts.verdict.objection)
    if record.first is not None and record.first.bound_seconds is not None and not draining:
        return Next(CommandStep.BEGIN_DRAIN)
    return Next(CommandStep.SEAL) if len(staying) > 1 else Next(CommandStep.DELETE, tuple(staying))


def being_deleted(claim: str) -> str:
    """Why a command does not come to its end as it was decided."""
    return Said(f"NodeClaim {claim} is being deleted")


def _lost(facts: CommandFacts) -> str:
    """Which candidate keeps the command from coming to its end as it was decided, and why; "" where none does."""
    for one in facts.candidates:
        if not one.there:
            return Said(f"NodeClaim {one.name} no longer exists")
        if one.deleting:
            return being_deleted(one.name)
        if one.interrupted:
            return Said(f"NodeClaim {one.name} is being interrupted")
        if not one.joined:
            return Said(f"NodeClaim {one.name} has no Node, or shares it with another NodeClaim")
    return ""


def _those(facts: CommandFacts, state: ReplacementState) -> tuple[str, ...]:
    return tuple(name for name, found in facts.replacements if found is state)


def _holder_last(record: CommandRecord, those: Iterable[str]) -> tuple[str, ...]:
    """The record goes with its holder: what is left of a half-done deletion must still be known to belong together."""
    return tuple(sorted(those, key=lambda name: (name == record.holder, name)))
