"""Texts that `controllers/core` publishes, by the module that does."""

from collections.abc import Iterable
from typing import Final

from provisioner.disruption.acceptance import THRESHOLD
from provisioner.disruption.proposal import Proposal, Score

# growth.py
HELD_BACK: Final = (
    "Created fewer NodeClaims than planned because of a growth limit; the remaining pods are planned again"
)

# loops.py
DISRUPTION_LOOP: Final = (
    "Nodes for a workload were launched and removed three times within an hour; leaving its nodes alone"
)

# capacity_buffers.py
BUFFER_NOT_RESOLVED: Final = "The CapacityBuffer cannot be resolved; no room is kept for it"
BUFFER_NOT_READ: Final = "Failed to read what a CapacityBuffer refers to; retrying"
BUFFER_STATUS_NOT_WRITTEN: Final = "Failed to write the status of a CapacityBuffer; retrying"
SCALABLE_REF_UNKNOWN: Final = "the buffer needs spec.podTemplateRef, or spec.scalableRef to a Deployment, StatefulSet or ReplicaSet (apiGroup apps)"
BUFFER_NOT_READY: Final = "the buffer is not resolved; see the condition ReadyForProvisioning"
BUFFER_EMPTY: Final = "the buffer asks for no units; set spec.replicas, spec.percentage or spec.limits"


def pod_template_not_found(name: str) -> str:
    """Why a buffer is not resolved."""
    return (
        f'PodTemplate "{name}" does not exist in the namespace of the buffer; create it, or correct spec.podTemplateRef'
    )


def workload_not_found(kind: str, name: str) -> str:
    """Why a buffer is not resolved."""
    return f'{kind} "{name}" does not exist in the namespace of the buffer; create it, or correct spec.scalableRef'


def buffer_room(ready: int, units: int) -> str:
    """How much of a buffer is there."""
    return f"{ready} of {units} units fit on nodes that are ready; the others need new nodes"


# disruption.py


def consolidation_candidate(proposal: Proposal) -> str:
    """What a node is told that consolidation wants to take."""
    return f"Consolidation candidate: {_move(proposal)} (savings: ${proposal.saving_usd_per_hour:.2f} per hour)"


def consolidation_approved(score: Score) -> str:
    """Why a NodePool that balances savings with disruption agrees to a move."""
    return (
        f"score {score.value:.2f} >= threshold {THRESHOLD:.2f} "
        f"(k: {1 / THRESHOLD:g}, savings {score.savings:.1%}, disruption {score.disruption:.1%})"
    )


def consolidation_rejected(proposal: Proposal, why: str) -> str:
    """Why a move does not come to be that was decided: budget, or churn (something changed meanwhile)."""
    return f"Consolidation rejected: {_move(proposal)}, reason: {why} (savings: ${proposal.saving_usd_per_hour:.2f} per hour)"


def consolidation_invalid(candidates: Iterable[str], why: str) -> str:
    """Why a move does not come to be that was begun."""
    return f"Consolidation rejected: {', '.join(candidates)}, reason: {why}"


def _move(proposal: Proposal) -> str:
    gone = ", ".join(proposal.candidates)
    types = ", ".join(one.planned_type for one in proposal.replacements)
    return f"replace {gone} with {types}" if types else f"delete {gone}"


def claims_held_back(most: int) -> str:
    """Why a NodeClaim waits for the next minute."""
    return (
        f"no further NodeClaim is created for now, because --max-claims-per-minute is {most}; "
        "it is planned again as soon as the limit allows it"
    )


def usd_held_back(most: float) -> str:
    """Why a NodeClaim waits for nodes to go."""
    return (
        f"no further NodeClaim of this price is created, because all nodes together may cost ${most:g} per hour "
        "(--max-usd-per-hour); raise the flag, or remove workloads"
    )


def pool_held_back(nodes: int, why: str) -> str:
    """What a NodePool is told whose NodeClaims wait."""
    return f"{nodes} {'node waits' if nodes == 1 else 'nodes wait'}: {why}"


def pod_held_back(pool: str, why: str) -> str:
    """Why a pod waits whose node may not be launched yet."""
    return f'Failed to schedule pod, NodePool "{pool}": {why}'


def disruption_held_back(reason: str, why: str) -> str:
    """Why a node that needs a replacement stays for now."""
    return f"Cannot launch a replacement ({reason}): {why}"
