"""What a disruption method proposes: nodes to give up together, and what takes their pods."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from provisioner.apis.command import RepairTerms, TerminateFirst
from provisioner.apis.pods import Pod
from provisioner.scheduling.result import PlannedClaim
from provisioner.values.message import EventMessage

DISRUPTION_LOOP: Final = "DisruptionLoop"
DISRUPTING_NODE: Final = "Disrupting node"
NODE_REPAIR_BLOCKED: Final = "NodeRepairBlocked"


def disrupting_node(reason: str) -> EventMessage:
    """A NodeClaim is deleted by a command, an expiration or a repair."""
    return EventMessage("Normal", "DisruptionTerminating", f"Disrupting Node: {reason}")


@dataclass(frozen=True, slots=True)
class Score:
    """What a move is worth to a Balanced pool.

    Attributes:
        value: savings by disruption; infinite where nothing is disrupted.
        savings: share of the pool's price that is saved, from 0 to 1.
        disruption: share of the pool's disruption that the move takes.
    """

    pool: str
    value: float
    savings: float
    disruption: float


@dataclass(frozen=True, slots=True)
class Proposal:
    """Candidates that go together, once every replacement is initialized.

    Attributes:
        reason: Empty, Drifted, Underutilized or Unhealthy; the budgets' word, the NodeClaim's DisruptionReason and the metrics' label.
        method: which method proposes it, for metrics and logs (consolidation_type where it consolidates): empty, drift,
            static_drift, repair, single, multi.
        candidates: names of the NodeClaims to disrupt, sorted.
        replacements: NodeClaims to create first, in the order the solver opened them; empty where none is needed.
        placements: pods of the candidates by name of the existing node that takes them.
        saving_usd_per_hour: price of the candidates less that of the replacements; 0 where money is not the reason.
        scores: of each Balanced pool that it takes nodes of, by name.
        late: its pods' places are legal once the candidates are gone, not while they drain.
        repair: how a broken node goes; None for other reasons.
        reboot: it is rebooted, and stays; no command carries that out.
        first: that the candidate goes before its replacement is launched; None where it does not.
        then: names of the NodeClaims that are to follow it, each by a proposal of its own, once the replacement has room for their pods; the saving counts
            them.
    """

    reason: str
    method: str
    candidates: tuple[str, ...]
    replacements: tuple[PlannedClaim, ...] = ()
    placements: Mapping[str, tuple[Pod, ...]] = field(default_factory=dict)
    saving_usd_per_hour: float = 0.0
    scores: tuple[Score, ...] = ()
    late: bool = False
    repair: RepairTerms | None = None
    reboot: bool = False
    first: TerminateFirst | None = None
    then: tuple[str, ...] = ()

    @property
    def pods(self) -> Iterator[Pod]:
        for some in (*self.placements.values(), *(new.pods for new in self.replacements)):
            yield from some


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why a node (by its NodeClaim's name), or with "" a pool, is left alone; `str` is the event's message.

    Attributes:
        event: the event's reason: DisruptionBlocked, DisruptionLoop, NodeRepairBlocked, or Unconsolidatable for a node that consolidation leaves alone.
        until: when the clock alone lifts it; None when only an event can.
    """

    key: str
    pool: str
    message: str
    event: str = "DisruptionBlocked"
    until: datetime | None = None

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class InterruptionDecision:
    """What to do about interrupted nodes; keys are names of NodeClaims, sorted.

    Attributes:
        close: to take no more pods; their own are planned elsewhere from then on.
        plan: closed, with pods that have no place elsewhere yet.
        evict: to be deleted now, and drained.
        blocked: left alone for now by a budget or by do-not-disrupt.
    """

    close: tuple[str, ...] = ()
    plan: tuple[str, ...] = ()
    evict: tuple[str, ...] = ()
    blocked: tuple[Blocked, ...] = ()
