"""Which nodes have no pods that would have to move, and when to look again. Source: core spec 6.2, 6.5, 6.6."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

from provisioner.apis import names
from provisioner.apis.budget_index import PodBudgets
from provisioner.apis.karpenter import NodePool
from provisioner.apis.meta import condition
from provisioner.apis.pods import Pod, is_active, is_reschedulable
from provisioner.apis.pods import do_not_disrupt as is_protected
from provisioner.disruption.allowance import RECHECK, Allowance, soonest
from provisioner.disruption.candidates import (
    Obstacle,
    RefusedNode,
    awaited_nodes,
    blocked_by_annotation,
    held_back,
    of_node,
    pod_is_annotated,
    pool_not_found,
)
from provisioner.disruption.loops import LoopHolds
from provisioner.disruption.proposal import DISRUPTION_LOOP, Blocked, Proposal
from provisioner.disruption.view import DisruptionStanding, DisruptionVerdict, DisruptionView, MethodAnswer
from provisioner.state.pause import Activity
from provisioner.state.snapshot import NodeView, Snapshot
from provisioner.values.duration import parse_duration
from provisioner.values.message import Said

METHOD: Final = "empty"
_TOLD_HERE: Final = (Obstacle.NODE_PROTECTED, Obstacle.NO_POOL)
"""Of what is refused for every reason; consolidation tells the rest."""


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


def came_or_went(after: str) -> str:
    """Of `emptiness`: what is said while consolidateAfter is not over."""
    return Said(f"a pod was added or removed less than consolidateAfter ({after}) ago")


def emptiness(view: DisruptionView) -> MethodAnswer:
    """Empty, consolidatable nodes within budget, each a command of its own: none of them waits for another.

    Cost: O(nodes + pods on them).
    """
    snapshot = view.snapshot
    pools = {one.pool.metadata.name: one.pool for one in snapshot.pools}
    allowance = Allowance(view, names.REASON_EMPTY)
    short: list[NodeView] = []
    quiet: dict[str, DisruptionVerdict] = {}
    proposals: list[Proposal] = []
    blocked: list[Blocked] = []
    rechecks: list[datetime] = []
    awaited, loops = awaited_nodes(snapshot), _of_the_living(view.loops, snapshot)
    for node in sorted(snapshot.nodes, key=lambda one: one.key):
        key = node.key.name
        if node.claim is None or not node.pool or not is_empty(node.pods):
            continue
        found = of_node(node, view, pools, awaited, Activity.CONSOLIDATION)
        if found is not None and found[0] not in _TOLD_HERE:
            quiet[key] = RefusedNode(node, *found).verdict
            continue
        pool = pools.get(node.pool)
        if pool is None:
            blocked.append(Blocked(key, node.pool, pool_not_found(node.pool)))
            continue
        due = consolidatable_at(node, pool)
        if due is None:
            continue
        seen = snapshot.at + view.validation - view.empty_for.get(key, timedelta(0))
        if max(due, seen) > snapshot.at:
            rechecks.append(max(due, seen))
            after = pool.spec.disruption.consolidate_after
            text = (
                came_or_went(after)
                if due >= seen
                else Said(f"it has been empty for less than {view.validation.total_seconds():g} s")
            )
            quiet[key] = DisruptionVerdict(DisruptionStanding.NOT_DUE, text, max(due, seen))
        elif reason := refusal(node.pods, snapshot.at, snapshot.pod_budgets, do_not_disrupt=node.do_not_disrupt):
            blocked.append(Blocked(key, node.pool, reason))
            rechecks.append(snapshot.at + RECHECK)
        elif view.buffered(str(node.key)):
            text = Said(f'Node "{node.name}" keeps room for a CapacityBuffer or a ProvisioningRequest')
            blocked.append(Blocked(key, node.pool, text))
            rechecks.append(snapshot.at + RECHECK)
        elif (loop := loops.refusal(node)) is not None:
            blocked.append(Blocked(key, node.pool, loop[0], DISRUPTION_LOOP, until=loop[1]))
            rechecks.append(loop[1])
        elif allowance.lacks(node.pool):
            short.append(node)
        else:
            allowance.take(node)
            proposals.append(Proposal(names.REASON_EMPTY, METHOD, (key,)))
    quiet.update((node.key.name, allowance.why(node.pool)) for node in short)
    told, recheck = (*blocked, *allowance.blocked), soonest(allowance.recheck_at, *rechecks)
    return MethodAnswer(tuple(proposals), told, recheck, len(proposals) + len(short), quiet=quiet)


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
        return blocked_by_annotation(names.DO_NOT_DISRUPT)
    for pod in pods:
        if is_active(pod) and is_protected(pod, now):
            return pod_is_annotated(names.DO_NOT_DISRUPT, pod.key)
    held = held_back(budgets, pods, now)
    return "" if held is None else held[1]
