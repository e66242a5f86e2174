"""Which machines hold nothing worth keeping, and when to look again. Pure. Source: core spec 6.2, 6.5, 6.6."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from provisioner.apis import names
from provisioner.apis.karpenter import NodePool
from provisioner.apis.meta import condition
from provisioner.apis.pods import Pod, is_active, is_reschedulable
from provisioner.apis.pods import do_not_disrupt as is_protected
from provisioner.disruption.budgets import PoolBudget, pool_budget
from provisioner.disruption.proposal import Blocked
from provisioner.state.snapshot import NodeView, Snapshot
from provisioner.values.duration import parse_duration

#: A budget's window opens by the clock, and so does the protection of a pod end.
RECHECK: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class EmptinessDecision:
    """What to do about empty machines.

    Attributes:
        delete: names of the NodeClaims to disrupt now, in a fixed order, within every budget.
        blocked: candidates that stay, each with its reason.
        budgets: by pool name.
        recheck_at: when the clock alone may change this answer; None when only events can.
    """

    delete: tuple[str, ...]
    blocked: tuple[Blocked, ...]
    budgets: tuple[PoolBudget, ...]
    recheck_at: datetime | None


def consolidate_after(pool: NodePool) -> timedelta | None:
    """The pool's spec.disruption.consolidateAfter; None for Never."""
    raw = pool.spec.disruption.consolidate_after
    return None if raw == "Never" else parse_duration(raw)


def consolidatable_at(node: NodeView, pool: NodePool) -> datetime | None:
    """When the machine may be consolidated if no pod comes or goes before; None for never.

    The clock starts at the last pod event, else when the claim became Initialized.
    Static pools (spec.replicas) keep their machines.
    """
    if node.claim is None or not node.initialized or pool.spec.replicas is not None:
        return None
    try:
        wait = consolidate_after(pool)
    except ValueError:
        return None  # unreadable: the pool says so itself; disruption does nothing
    initialized = condition(node.claim.status.conditions, names.INITIALIZED)
    since = node.last_pod_event or (initialized.last_transition_time if initialized else None)
    return None if wait is None or since is None else since + wait


def decide_emptiness(
    snapshot: Snapshot,
    *,
    empty_for: Mapping[str, timedelta],
    validation: timedelta,
    under_way: Container[str] = (),
) -> EmptinessDecision:
    """Empty, consolidatable machines within budget.

    Args:
        snapshot: one instant.
        empty_for: by NodeClaim, for how long each has been seen empty without a break, by a clock that does not jump.
        validation: how long it must have been (validation as data, not as a sleep).
        under_way: keys of machines whose disruption has begun; they count against budgets and are not chosen again.

    Cost: O(nodes + pods on them).
    """
    pools = {view.pool.metadata.name: view.pool for view in snapshot.pools}
    budgets = {name: pool_budget(pool, snapshot, names.REASON_EMPTY, under_way) for name, pool in pools.items()}
    left = {name: budget.allowed for name, budget in budgets.items()}
    delete: list[str] = []
    blocked: list[Blocked] = []
    rechecks: list[datetime] = []
    held: set[str] = set()
    for node in _candidates(snapshot.nodes, under_way):
        pool = pools.get(node.pool)
        if pool is None:
            blocked.append(Blocked(node.key.name, node.pool, f"NodePool not found (NodePool={node.pool})"))
            continue
        due = consolidatable_at(node, pool)
        if due is None:
            continue
        due = max(due, snapshot.at + validation - empty_for.get(node.key.name, timedelta(0)))
        if due > snapshot.at:
            rechecks.append(due)
            continue
        if reason := refusal(node.pods, snapshot.at, do_not_disrupt=node.do_not_disrupt):
            blocked.append(Blocked(node.key.name, node.pool, reason))
            rechecks.append(snapshot.at + RECHECK)
        elif left[node.pool] <= 0:
            held.add(node.pool)
            rechecks.append(snapshot.at + RECHECK)  # a budget's window opens by the clock
        else:
            left[node.pool] -= 1
            delete.append(node.key.name)
    blocked.extend(
        Blocked("", name, "No allowed disruptions for disruption reason Empty due to blocking budget")
        for name in sorted(held)
        if budgets[name].allowed == 0
    )
    return EmptinessDecision(
        tuple(delete), tuple(blocked), tuple(budgets[name] for name in sorted(budgets)), min(rechecks, default=None)
    )


def is_empty(pods: Iterable[Pod]) -> bool:
    """No pod would have to find another place.

    Differs: Karpenter also calls a node empty whose pods all have a very low priority or deletion cost,
    and deletes it without a simulation (core spec 6.3 [Q]); here such pods count.
    """
    return not any(is_reschedulable(pod) for pod in pods)


def refusal(pods: Iterable[Pod], now: datetime, *, do_not_disrupt: bool) -> str:
    """What forbids the disruption of an empty machine, as the event says it; "" where nothing does.

    Every pod that runs has a say, daemons and mirror pods too. Source: core spec 6.2.

    Args:
        pods: on the machine.
        now: protection may end by itself.
        do_not_disrupt: whether the machine itself is protected.
    """
    if do_not_disrupt:
        return f'Disruption is blocked through the "{names.DO_NOT_DISRUPT}" annotation'
    for pod in pods:
        if is_active(pod) and is_protected(pod, now):
            return f'Pod has "{names.DO_NOT_DISRUPT}" annotation (Pod={pod.key})'
    return ""


def _candidates(nodes: Iterable[NodeView], under_way: Container[str]) -> list[NodeView]:
    mine = (
        node
        for node in nodes
        if node.claim is not None
        and node.pool
        and node.initialized
        and not node.deleting
        and node.key.name not in under_way
    )
    return sorted((node for node in mine if is_empty(node.pods) and not node.nominated), key=lambda node: node.key)
