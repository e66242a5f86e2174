"""What a disruption method proposes: nodes to give up together, and what takes their pods. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from provisioner.apis.pods import Pod
from provisioner.scheduling.result import PlannedClaim


@dataclass(frozen=True, slots=True)
class Proposal:
    """Candidates that go together, once every replacement is initialized.

    Attributes:
        reason: Empty, Drifted or Underutilized; the budgets' word, the NodeClaim's DisruptionReason and the metrics' label.
        method: which method proposes it, for metrics and logs (consolidation_type where it consolidates): empty, drift,
            static_drift, single, multi, balanced.
        candidates: names of the NodeClaims to disrupt, sorted.
        replacements: NodeClaims to create first, in the order the solver opened them; empty where none is needed.
        placements: pods of the candidates by name of the existing node that takes them.
        saving_usd_per_hour: price of the candidates less that of the replacements; 0 where money is not the reason.
    """

    reason: str
    method: str
    candidates: tuple[str, ...]
    replacements: tuple[PlannedClaim, ...] = ()
    placements: Mapping[str, tuple[Pod, ...]] = field(default_factory=dict)
    saving_usd_per_hour: float = 0.0


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why a node (by its NodeClaim's name), or with "" a pool, is left alone; `str` is the event's message.

    Attributes:
        event: the event's reason: DisruptionBlocked, or Unconsolidatable for a node that consolidation leaves alone.
        pod: whom it is told instead, where it is about the pod's own annotation; it need not block the node then.
    """

    key: str
    pool: str
    message: str
    event: str = "DisruptionBlocked"
    pod: Pod | None = None

    def __str__(self) -> str:
        return self.message
