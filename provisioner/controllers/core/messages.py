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
