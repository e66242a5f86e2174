"""Which nodes have reached their `expireAfter`. Source: core spec 5."""

from datetime import timedelta

from provisioner.disruption.costs import time_left
from provisioner.state.snapshot import Snapshot


def decide_expirations(snapshot: Snapshot) -> tuple[str, ...]:
    """Names of the NodeClaims whose expireAfter has passed since they were created, whatever their state, pool and pods; the longest over is first.

    Budgets, do-not-disrupt and PodDisruptionBudgets are not asked, as in Karpenter; the drain that follows keeps the last two.

    Cost: O(nodes).
    """
    over: list[tuple[timedelta, str]] = []
    for node in snapshot.nodes:
        if node.claim is None or node.claim.metadata.deletion_timestamp is not None:
            continue
        left = time_left(node.claim, snapshot.at)
        if left is not None and left <= timedelta(0):
            over.append((left, node.key.name))
    return tuple(name for _, name in sorted(over))
