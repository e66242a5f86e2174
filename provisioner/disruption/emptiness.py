"""Which nodes have no pods that would have to move, and when to look again. Pure. Source: core spec 6.2, 6.5, 6.6."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

from provisioner.apis import names
from provisioner.apis.karpenter import NodePool
from provisioner.apis.meta import condition
from provisioner.apis.pods import Pod, is_active, is_reschedulable
from provisioner.apis.pods import do_not_disrupt as is_protected
from provisioner.disruption import messages
from provisioner.disruption.allowance import RECHECK, Allowance, soonest
from provisioner.disruption.candidates import PodBudgets, awaited_nodes
from provisioner.disruption.loops import LoopHolds
from provisioner.disruption.proposal import DISRUPTION_LOOP, Blocked, Proposal
from provisioner.disruption.view import MethodAnswer, View
from provisioner.state.snapshot import NodeView, Snapshot
from provisioner.values.duration import parse_duration

METHOD: Final = "empty"


def consolidate_after(pool: NodePool) -> timedelta | None:
    """The pool's spec.disruption.consolidateAfter; None for Never."""
    raw = pool.spec.disruption.consolidate_after
    return None if raw == "Never" else parse_duration(raw)


def consolidatable_at(node: NodeView, pool: NodePool) -> datetime | None:
    """When the node may be consolidated if no pod comes or goes before; None for never.

    The clock starts at the last pod event, else when the claim became Initialized.
    Static pools (spec.replicas) keep their nodes.
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


def emptiness(view: View) -> MethodAnswer:
    """Empty, consolidatable nodes within budget, each a command of its own: none of them waits for another.

    Cost: O(nodes + pods on them).
    """
    snapshot = view.snapshot
    pools = {one.pool.metadata.name: one.pool for one in snapshot.pools}
    allowance, held = Allowance(view, names.REASON_EMPTY), 0
    proposals: list[Proposal] = []
    blocked: list[Blocked] = []
    rechecks: list[datetime] = []
    pod_budgets = PodBudgets(snapshot.pod_budgets)
    awaited, loops = awaited_nodes(snapshot), _of_the_living(view.loops, snapshot)
    for node in _candidates(snapshot.nodes, view.under_way | view.spared, awaited):
        pool = pools.get(node.pool)
        if pool is None:
            blocked.append(Blocked(node.key.name, node.pool, messages.pool_not_found(node.pool)))
            continue
        due = consolidatable_at(node, pool)
        if due is None:
            continue
        due = max(due, snapshot.at + view.validation - view.empty_for.get(node.key.name, timedelta(0)))
        if due > snapshot.at:
            rechecks.append(due)
            continue
        if reason := refusal(node.pods, snapshot.at, pod_budgets, do_not_disrupt=node.do_not_disrupt):
            blocked.append(Blocked(node.key.name, node.pool, reason))
            rechecks.append(snapshot.at + RECHECK)
        elif view.buffered(str(node.key)):
            blocked.append(Blocked(node.key.name, node.pool, messages.buffer_pods(node.name)))
            rechecks.append(snapshot.at + RECHECK)
        elif (loop := loops.refusal(node)) is not None:
            blocked.append(Blocked(node.key.name, node.pool, loop[0], DISRUPTION_LOOP))
            rechecks.append(loop[1])
        elif allowance.lacks(node.pool):
            held += 1
        else:
            allowance.take(node)
            proposals.append(Proposal(names.REASON_EMPTY, METHOD, (node.key.name,)))
    told, recheck = (*blocked, *allowance.blocked), soonest(allowance.recheck_at, *rechecks)
    return MethodAnswer(tuple(proposals), told, recheck, len(proposals) + held)


def _of_the_living(loops: LoopHolds, snapshot: Snapshot) -> LoopHolds:
    """Without workloads that have no pods any more: nobody launches nodes for them, and their empty ones would cost an hour for nothing.

    Cost: the pods, while anybody is held.
    """
    if not loops.owners:
        return loops
    every = chain(
        snapshot.pending, snapshot.leaving, *(pods for node in snapshot.nodes for pods in (node.pods, node.assigned))
    )
    living = {pod.owner.uid for pod in every if pod.owner is not None}
    return replace(loops, owners={uid: until for uid, until in loops.owners.items() if uid in living})


def is_empty(pods: Iterable[Pod]) -> bool:
    """No pod would have to find another place.

    Differs: Karpenter also calls a node empty whose pods all have a very low priority or deletion cost,
    and deletes it without a simulation (core spec 6.3 [Q]); here such pods count.
    """
    return not any(is_reschedulable(pod) for pod in pods)


def refusal(pods: Sequence[Pod], now: datetime, budgets: PodBudgets, *, do_not_disrupt: bool) -> str:
    """What forbids the disruption of an empty node, as the event says it; "" where nothing does.

    Every pod that runs has a say, daemons and mirror pods too. Source: core spec 6.2.

    Args:
        pods: on the node.
        now: protection may end by itself.
        budgets: PodDisruptionBudgets, which daemons may have too.
        do_not_disrupt: whether the node itself is protected.
    """
    if do_not_disrupt:
        return messages.blocked_by_annotation(names.DO_NOT_DISRUPT)
    for pod in pods:
        if is_active(pod) and is_protected(pod, now):
            return messages.pod_is_annotated(names.DO_NOT_DISRUPT, pod.key)
    held = budgets.refusal(pods, now)
    return "" if held is None else held[1]


def _candidates(nodes: Iterable[NodeView], under_way: Container[str], awaited: Container[str]) -> list[NodeView]:
    mine = (
        node
        for node in nodes
        if node.claim is not None
        and node.pool
        and node.initialized
        and not node.deleting
        and node.key.name not in under_way
        and node.name not in awaited
    )
    return sorted((node for node in mine if is_empty(node.pods) and not node.nominated), key=lambda node: node.key)
