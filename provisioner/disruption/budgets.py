"""How many nodes of a pool may be disrupted now. Source: core spec 6.4."""

from collections.abc import Iterable
from datetime import datetime

from msgspec import UNSET

from provisioner.apis.karpenter import Budget
from provisioner.values.duration import parse_duration
from provisioner.values.schedule import is_open


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
