"""What to do now about instances that their cloud takes back.

A node is first closed to new pods, its pods are planned elsewhere while they still run, and they are evicted once
every one of them has a place on a node that is ready, or when time runs out. The cloud does not ask for budgets; where
it says so long before, budgets are kept as long as possible (`Interruption.budgeted`).
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from provisioner.apis import names
from provisioner.apis.interruption import Interruption
from provisioner.apis.pods import Pod, is_reschedulable
from provisioner.disruption.budgets import AllowanceLedger, budget_spent
from provisioner.disruption.candidates import blocked_by_annotation
from provisioner.disruption.proposal import Blocked, InterruptionDecision
from provisioner.state.snapshot import NodeView, Snapshot


def decide_interruptions(
    snapshot: Snapshot, marks: Mapping[str, Interruption], budgets: AllowanceLedger
) -> InterruptionDecision:
    """The next step of every marked node.

    Args:
        snapshot: one instant.
        marks: by name of the NodeClaim; nodes that are going already may be among them.
        budgets: of the same instant; what is closed within them is spent.

    Cost: O(nodes + pods of the marked ones); nothing where there are no marks.
    """
    marked = [node for node in snapshot.nodes if node.is_ours and node.key.name in marks]
    if not marked:
        return InterruptionDecision()
    now = snapshot.at
    ready = {pod.uid for node in snapshot.nodes if node.initialized and not node.deleting for pod in node.assigned}
    placed = {pod.uid for node in snapshot.nodes for pod in node.assigned}
    close: list[str] = []
    plan: list[str] = []
    evict: list[str] = []
    blocked: list[Blocked] = []
    for node in sorted(
        marked, key=lambda one: (marks[one.key.name].evicts or datetime.max.replace(tzinfo=now.tzinfo), one.key)
    ):
        mark = marks[node.key.name]
        if not mark.has_begun(now):
            continue
        pressing = mark.evicts is not None and now >= mark.evicts
        if mark.budgeted and not pressing and not node.deleting:
            if why := _refusal(node, budgets):
                blocked.append(Blocked(node.key.name, node.pool, why))
                continue
            budgets.spend((node.key.name,))
        pods = _leaving(node.pods)
        if pressing or not mark.replaced or not node.name:
            evict.append(node.key.name)
        elif not node.deleting:
            close.append(node.key.name)
        elif pods <= ready:
            evict.append(node.key.name)
        elif not pods <= placed:
            plan.append(node.key.name)
    return InterruptionDecision(tuple(sorted(close)), tuple(sorted(plan)), tuple(sorted(evict)), tuple(blocked))


def _leaving(pods: Iterable[Pod]) -> set[str]:
    """UIDs of the pods that must find another place."""
    return {pod.uid for pod in pods if pod.deleted is None and is_reschedulable(pod)}


def _refusal(node: NodeView, budgets: AllowanceLedger) -> str:
    """Why a node is left alone for now; a pool that is gone has no budgets."""
    if node.do_not_disrupt:
        return blocked_by_annotation(names.DO_NOT_DISRUPT)
    if budgets.is_closed(node.pool, names.REASON_SCHEDULED_CHANGE):
        return budget_spent(names.REASON_SCHEDULED_CHANGE)
    refused = budgets.refusal((node.key.name,), names.REASON_SCHEDULED_CHANGE)
    return budgets.why_none(refused, names.REASON_SCHEDULED_CHANGE) if refused and budgets.knows(refused) else ""
