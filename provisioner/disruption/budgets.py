"""How many nodes of a pool may be disrupted now. Source: core spec 6.4."""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from datetime import datetime

from msgspec import UNSET

from provisioner.apis import names
from provisioner.apis.karpenter import Budget, NodePool
from provisioner.apis.meta import is_true
from provisioner.state.snapshot import NodeView, Snapshot
from provisioner.values.duration import parse_duration
from provisioner.values.schedule import is_open


@dataclass(frozen=True, slots=True)
class PoolBudget:
    """One pool's budget for one reason at one instant, in nodes."""

    pool: str
    nodes: int
    allowed: int
    consuming: int


def pool_budget(pool: NodePool, snapshot: Snapshot, reason: str, under_way: Container[str] = ()) -> PoolBudget:
    """What the budgets of `pool` allow at the instant of `snapshot`. Cost: O(nodes).

    Args:
        pool: the pool.
        snapshot: one instant.
        reason: Empty, Drifted or Underutilized.
        under_way: keys of machines whose disruption has begun, though the snapshot may not show it yet.
    """
    name = pool.metadata.name
    nodes = [
        node
        for node in snapshot.nodes
        if node.pool == name and node.claim is not None and node.initialized and not _ending(node)
    ]
    consuming = sum(1 for node in nodes if node.deleting or not node.ready or node.key.name in under_way)
    allowed = allowed_disruptions(
        pool.spec.disruption.budgets, reason=reason, nodes=len(nodes), consuming=consuming, now=snapshot.at
    )
    return PoolBudget(name, len(nodes), allowed, consuming)


def allowed_disruptions(budgets: Iterable[Budget], *, reason: str, nodes: int, consuming: int, now: datetime) -> int:
    """Nodes of one pool that may still be disrupted for `reason` at `now`; never negative.

    Args:
        budgets: the pool's budgets; one that cannot be read allows nothing (fail closed).
        reason: Empty, Drifted or Underutilized.
        nodes: the pool's initialised nodes, less those whose machine is already ending.
        consuming: of those, the ones not ready or already being disrupted, for whatever reason.
        now: UTC.
    """
    limits = [limit for budget in budgets if (limit := _limit(budget, reason, nodes, now)) is not None]
    return max(0, min([nodes, *limits]) - consuming)


def _limit(budget: Budget, reason: str, nodes: int, now: datetime) -> int | None:
    """None where the budget does not speak about this reason or this moment."""
    if budget.reasons is not UNSET and reason not in budget.reasons:
        return None
    try:
        if budget.schedule and not is_open(budget.schedule, parse_duration(budget.duration or ""), now):
            return None
        if budget.nodes.endswith("%"):
            return -(-nodes * int(budget.nodes[:-1]) // 100)  # rounded up
        return int(budget.nodes)
    except ValueError:
        return 0


def _ending(node: NodeView) -> bool:
    return node.claim is not None and is_true(node.claim.status.conditions, names.INSTANCE_TERMINATING)
