"""How many nodes of each pool may be disrupted now. Source: core spec 6.4; pkg/controllers/disruption/helpers.go of karpenter 1.15.0.

What is taken away already counts whoever took it: a command of any method, an expiration, an interruption, a user. A node that
is not ready, or whose reboot failed, counts as well, but not for Unhealthy: else the nodes that are broken would keep themselves from being replaced.
"""

from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass
from datetime import datetime

from msgspec import UNSET

from provisioner.apis import names
from provisioner.apis.karpenter import Budget
from provisioner.state.snapshot import Snapshot
from provisioner.values.duration import parse_duration
from provisioner.values.message import Said
from provisioner.values.schedule import is_open


@dataclass(frozen=True, slots=True)
class PoolBudget:
    """One pool's budget for one reason at one instant, in nodes.

    Attributes:
        nodes: that count.
        limit: how many of them the budgets let go at once; Karpenter's metrics call this what is allowed.
        allowed: how many more may go now, by the limit over all pools too.
        consuming: how many are away.
    """

    pool: str
    nodes: int
    limit: int
    allowed: int
    consuming: int


def budget_spent(reason: str) -> str:
    """Why a node is not disrupted, or a command does not go on."""
    return Said(f"No allowed disruptions for disruption reason {reason} due to blocking budget")


def _ceiling_reached(reason: str, most: int, consuming: int) -> str:
    return Said(
        f"No allowed disruptions for disruption reason {reason} because --max-disrupting-nodes is {most}, "
        f"and {consuming} {'node is' if consuming == 1 else 'nodes are'} being disrupted{' or not Ready' if counts_unready(reason) else ''}"
    )


class AllowanceLedger:
    """What budgets leave at one instant, less what was spent since. Not thread-safe; whoever acts on it holds a lock.

    Args:
        snapshot: the instant; candidates of commands under way are `deleting` in it.
        taken: names of NodeClaims whose disruption has begun, though the snapshot may not show it yet.
        most: nodes of all pools together that may be disrupted at once; 0 for no such limit.

    Cost: O(nodes) once, then O(budgets of the pool) a question.
    """

    def __init__(self, snapshot: Snapshot, taken: Container[str] = (), *, most: int = 0) -> None:
        self._most = most
        self._now = snapshot.at
        self._pools = {view.pool.metadata.name: view.pool for view in snapshot.pools}
        self._nodes: Counter[str] = Counter()
        self._going: Counter[str] = Counter()  # by pool: nodes that were taken
        self._free: dict[str, str] = {}  # the others, with their pool: nodes that consume nothing yet,
        self._unready: dict[str, str] = {}  # and those that consume because they are not ready
        for node in snapshot.nodes:
            if node.claim is None or not node.spends or node.is_ending:
                continue
            self._nodes[node.pool] += 1
            if node.deleting or node.rebooting or node.key.name in taken:
                self._going[node.pool] += 1
            else:
                (self._free if node.ready and node.initialized else self._unready)[node.key.name] = node.pool
        self._unready_of = Counter(self._unready.values())

    def budget(self, pool: str, reason: str) -> PoolBudget:
        """One pool's budget; it allows nothing where the pool is unknown."""
        found, nodes, consuming = self._pools.get(pool), self._nodes[pool], self._consuming(pool, reason)
        if found is None:
            return PoolBudget(pool, nodes, 0, 0, consuming)
        limit = disruptions_at_once(found.spec.disruption.budgets, reason=reason, nodes=nodes, now=self._now)
        allowed = max(0, limit - consuming)
        if (ceiling := self.ceiling(reason)) is not None:
            allowed = min(allowed, ceiling)
        return PoolBudget(pool, nodes, limit, allowed, consuming)

    def ceiling(self, reason: str = names.REASON_DRIFTED) -> int | None:
        """How many nodes of all pools together may still be disrupted; None for no such limit. All reasons but Unhealthy have one answer."""
        return max(0, self._most - self._together(reason)) if self._most else None

    def budgets(self, reason: str) -> tuple[PoolBudget, ...]:
        """Of every pool, by name."""
        return tuple(self.budget(name, reason) for name in sorted(self._pools))

    def allowed(self, pool: str, reason: str) -> int:
        """How many nodes of a pool may still be disrupted for a reason."""
        return self.budget(pool, reason).allowed

    def why_none(self, pool: str, reason: str) -> str:
        """What leaves no node of a pool to disrupt for a reason, where `allowed` is 0; as users read it."""
        found = self.budget(pool, reason)
        if self._most and found.limit > found.consuming:
            return _ceiling_reached(reason, self._most, self._together(reason))
        return budget_spent(reason)

    def is_closed(self, pool: str, reason: str) -> bool:
        """Whether the budgets of a pool let no node go however many it has, not even one that is away already."""
        found = self._pools.get(pool)
        return found is not None and not disruptions_at_once(
            found.spec.disruption.budgets, reason=reason, nodes=1, now=self._now
        )

    def knows(self, pool: str) -> bool:
        return pool in self._pools

    def refusal(self, those: Iterable[str], reason: str) -> str:
        """The first pool, by name, that does not allow to disrupt all of these nodes together now; "" where all do, and so does the limit over all pools.

        A node that consumes already, for whatever reason, costs nothing more.
        """
        wanted = Counter(pool for name in set(those) if (pool := self._pool_that_pays(name, reason)) is not None)
        if self._most and wanted and self._together(reason) + wanted.total() > self._most:
            return min(wanted)
        return next((pool for pool in sorted(wanted) if wanted[pool] > self.allowed(pool, reason)), "")

    def spend(self, those: Iterable[str]) -> None:
        """These nodes are taken from now on."""
        for name in those:
            if (pool := self._free.pop(name, None)) is not None:
                self._going[pool] += 1
            elif (pool := self._unready.pop(name, None)) is not None:
                self._unready_of[pool] -= 1
                self._going[pool] += 1

    def _consuming(self, pool: str, reason: str) -> int:
        return self._going[pool] + (self._unready_of[pool] if counts_unready(reason) else 0)

    def _together(self, reason: str) -> int:
        """Nodes of all pools that are away."""
        return self._going.total() + (self._unready_of.total() if counts_unready(reason) else 0)

    def _pool_that_pays(self, name: str, reason: str) -> str | None:
        """The pool whose budget a node would take from; None where it consumes already, or has none."""
        found = self._free.get(name)
        return found if found is not None or counts_unready(reason) else self._unready.get(name)


def counts_unready(reason: str) -> bool:
    """Whether a node that is not ready counts as away already where nodes are disrupted for this reason."""
    return reason != names.REASON_UNHEALTHY


def disruptions_at_once(budgets: Iterable[Budget], *, reason: str, nodes: int, now: datetime) -> int:
    """Nodes of one pool that may be away together for `reason` at `now`.

    Args:
        budgets: the pool's budgets; one that cannot be read allows nothing (fail closed).
        reason: one of `names.BUDGET_REASONS`.
        nodes: the pool's initialised nodes, less those whose instance is already ending.
        now: UTC.
    """
    limits = [limit for budget in budgets if (limit := _limit(budget, reason, nodes, now)) is not None]
    return min([nodes, *limits])


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
