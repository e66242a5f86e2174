"""Which nodes have reached their `expireAfter`. Pure. Source: core spec 5."""

from dataclasses import dataclass
from datetime import datetime

from provisioner.disruption.costs import time_left
from provisioner.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class ExpirationDecision:
    """What to do about old nodes.

    Attributes:
        delete: names of the NodeClaims whose time is over, the longest first.
        recheck_at: when the next one's is; None where none expires.
    """

    delete: tuple[str, ...] = ()
    recheck_at: datetime | None = None


def decide_expirations(snapshot: Snapshot) -> ExpirationDecision:
    """Every NodeClaim whose expireAfter has passed since it was created, whatever its state, pool and pods.

    Budgets, do-not-disrupt and PodDisruptionBudgets are not asked, as in Karpenter; the drain that follows keeps the last two.

    Cost: O(nodes).
    """
    now = snapshot.at
    over: list[tuple[datetime, str]] = []
    soon: list[datetime] = []
    for node in snapshot.nodes:
        if node.claim is None or node.claim.metadata.deletion_timestamp is not None:
            continue
        left = time_left(node.claim, now)
        if left is None:
            continue
        try:
            due = now + left
        except OverflowError:
            continue  # beyond the last date
        if due <= now:
            over.append((due, node.key.name))
        else:
            soon.append(due)
    return ExpirationDecision(tuple(name for _, name in sorted(over)), min(soon, default=None))
