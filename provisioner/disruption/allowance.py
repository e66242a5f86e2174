"""How many more nodes of each NodePool one method may disrupt in one pass, by their budgets."""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from provisioner.disruption.budgets import counts_unready
from provisioner.disruption.proposal import Blocked
from provisioner.disruption.view import DisruptionStanding, DisruptionVerdict, DisruptionView
from provisioner.state.snapshot import NodeView
from provisioner.values.message import Said

RECHECK: Final = timedelta(seconds=10)
"""A budget's window opens by the clock."""


class Allowance:
    """How many nodes of each pool one method may still propose."""

    def __init__(self, view: DisruptionView, reason: str) -> None:
        self._view: Final = view
        self._reason: Final = reason
        self._allowed: Final[dict[str, int]] = {}
        self._taken: Final[dict[str, int]] = {}
        self._short: Final[set[str]] = set()
        self._together = math.inf if view.ceiling is None else view.ceiling  # what is left of the limit over all pools

    def left(self, pool: str) -> float:
        """Nodes of the pool that may still be proposed."""
        allowed = self._allowed.get(pool)
        if allowed is None:
            allowed = self._allowed[pool] = max(0, self._view.allowed(pool, self._reason))
        return min(self._together, allowed - self._taken.get(pool, 0))

    def allows(self, pools: Sequence[str]) -> bool:
        """Whether a node of each of these, named as often as it has one of them, may be proposed; whom that holds back is remembered."""
        short = [pool for pool in set(pools) if self.lacks(pool, pools.count(pool))]
        return not short and len(pools) <= self._together

    def lacks(self, pool: str, nodes: int = 1) -> bool:
        """Whether the budget leaves fewer; it is remembered that one was held back."""
        if self.left(pool) >= nodes:
            return False
        self._short.add(pool)
        return True

    def why(self, pool: str) -> DisruptionVerdict:
        """Why no node of a pool may go now, where the budget leaves none."""
        allowed, ceiling = self._allowed.get(pool, 0), self._view.ceiling
        if not allowed:
            text = self._view.why_none(pool, self._reason)
        elif allowed - self._taken.get(pool, 0) > 0 and ceiling is not None:
            text = Said(
                f"{ceiling} more node{'s' if ceiling > 1 else ''} of all NodePools (--max-disrupting-nodes) may be "
                "disrupted now, and other nodes come first"
            )
        else:
            text = Said(
                f"{allowed} more node{'s' if allowed > 1 else ''} of its NodePool may be disrupted now, and other nodes come "
                "first"
            )
        return DisruptionVerdict(DisruptionStanding.BLOCKED, text)

    def take(self, node: NodeView) -> None:
        """A node is proposed; what it takes is told by `budgets.AllowanceLedger`: nothing where it counts as away already, or does not count."""
        takes = node.spends and ((node.ready and node.initialized) or not counts_unready(self._reason))
        self._taken[node.pool] = self._taken.get(node.pool, 0) + takes
        self._together -= takes

    @property
    def blocked(self) -> tuple[Blocked, ...]:
        """Pools whose budget allowed nothing at all, though there was a candidate."""
        none = (pool for pool in sorted(self._short) if not self._allowed[pool])
        return tuple(Blocked("", pool, self._view.why_none(pool, self._reason)) for pool in none)

    @property
    def recheck_at(self) -> datetime | None:
        """When to ask again, because a budget held somebody back; None where none did."""
        return self._view.snapshot.at + RECHECK if self._short else None


def soonest(*times: datetime | None) -> datetime | None:
    """The first of some instants."""
    return min((one for one in times if one is not None), default=None)
