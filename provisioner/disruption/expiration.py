"""Which nodes have reached their `expireAfter`. Pure. Source: core spec 5."""

from datetime import datetime

from provisioner.disruption.costs import time_left
from provisioner.state.snapshot import Snapshot


def decide_expirations(snapshot: Snapshot) -> tuple[str, ...]:
    """Names of the NodeClaims whose expireAfter has passed since they were created, whatever their state, pool and pods; the longest over is first.

    Budgets, do-not-disrupt and PodDisruptionBudgets are not asked, as in Karpenter; the drain that follows keeps the last two.

    Cost: O(nodes).
    """
    now = snapshot.at
    over: list[tuple[datetime, str]] = []
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
    return tuple(name for _, name in sorted(over))
