"""Nodes that are no longer what their NodePool asks for, replaced one by one. Pure. Source: core spec 6.2, 6.7, 6.8.

Differs: Karpenter proposes one node a pass; here a pass proposes all that budgets allow, each legal after those before it.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from provisioner.apis import names
from provisioner.apis.karpenter import NodePool
from provisioner.apis.meta import condition, is_true
from provisioner.apis.pods import Pod, do_not_disrupt, is_active, is_evictable, is_reschedulable
from provisioner.disruption.proposal import Blocked, Proposal
from provisioner.disruption.validation import blocked_by
from provisioner.disruption.view import MethodAnswer, View
from provisioner.state.snapshot import NodeView

METHOD: Final = "drift"
#: A budget's window opens by the clock, and so does the protection of a pod end.
RECHECK: Final = timedelta(seconds=10)
_ALWAYS: Final = datetime(1970, 1, 1, tzinfo=UTC)


def propose(view: View) -> MethodAnswer:
    """Drifted nodes of dynamic pools within budget: empty ones first, then those that drifted first.

    A node that the solver gave pods of one candidate, and a node that is still coming up, take no pods of the next candidate in
    the same pass; the next pass sees them as they are then.

    Cost: O(nodes), and a solve for each drifted node within budget.
    """
    snapshot, prepared = view.snapshot, view.prepared
    if prepared is None:
        return MethodAnswer()
    pools = {one.pool.metadata.name: one.pool for one in snapshot.pools}
    spent: Counter[str] = Counter()
    taken = {str(node.key) for node in snapshot.nodes if node.claim is not None and not node.initialized}
    proposals: list[Proposal] = []
    blocked: list[Blocked] = []
    held: set[str] = set()
    for node in sorted((one for one in snapshot.nodes if _is_drifted(one, view)), key=_order):
        pool = pools.get(node.pool)
        if pool is not None and pool.spec.replicas is not None:
            continue
        if reason := _refusal(node, pool, view):
            blocked.append(Blocked(node.key.name, node.pool, reason))
            continue
        if view.allowed(node.pool, names.REASON_DRIFTED) <= spent[node.pool]:
            held.add(node.pool)
            continue
        pods = _moving(node.pods)
        result = prepared.solve(pods, leaving=taken | {str(node.key)}, stop_at_first_unplaced=True)
        if result.unplaced:
            one = result.unplaced[0]
            why = "; ".join(map(str, one.reasons)) or "no node takes it"
            blocked.append(Blocked(node.key.name, node.pool, f"Pod {one.pod.key} has no other place: {why}"))
            continue
        spent[node.pool] += 1
        taken |= {str(node.key), *result.existing}
        proposals.append(Proposal(names.REASON_DRIFTED, METHOD, (node.key.name,), result.claims, dict(result.existing)))
    blocked += [
        Blocked("", name, "No allowed disruptions for disruption reason Drifted due to blocking budget")
        for name in sorted(held)
        if not spent[name]
    ]
    return MethodAnswer(tuple(proposals), tuple(blocked), snapshot.at + RECHECK if blocked or held else None)


def _is_drifted(node: NodeView, view: View) -> bool:
    return (
        node.claim is not None
        and is_true(node.claim.status.conditions, names.DRIFTED)
        and node.claim.metadata.deletion_timestamp is None
        and not node.command
        and node.key.name not in view.under_way
    )


def _order(node: NodeView) -> tuple[bool, datetime, str]:
    found = condition(node.claim.status.conditions, names.DRIFTED) if node.claim is not None else None
    since = found.last_transition_time if found is not None else None
    return bool(_moving(node.pods)), since or _ALWAYS, node.key.name


def _moving(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    return tuple(pod for pod in pods if pod.deleted is None and is_reschedulable(pod))


def _refusal(node: NodeView, pool: NodePool | None, view: View) -> str:
    """Why a drifted node is no candidate, in the order of Karpenter; "" where it is one."""
    now = view.snapshot.at
    if not node.name:
        return "Nodeclaim does not have an associated node"
    if node.ambiguous:
        return "Several Nodes or NodeClaims have the same provider ID"
    if not node.initialized:
        return "Node isn't initialized"
    if node.deleting:
        return "Node is deleting or marked for deletion"
    if node.nominated:
        return "Node is nominated for a pending pod"
    if node.do_not_disrupt:
        return f'Disruption is blocked through the "{names.DO_NOT_DISRUPT}" annotation'
    if pool is None:
        return f"NodePool not found (NodePool={node.pool})"
    if node.claim is not None and node.claim.spec.termination_grace_period:
        return ""
    for pod in node.pods:
        if is_active(pod) and do_not_disrupt(pod, now):
            return f'Pod has "{names.DO_NOT_DISRUPT}" annotation (Pod={pod.key})'
        budgets = view.snapshot.pod_budgets.get(pod.namespace, ())
        if is_evictable(pod, now) and (held := blocked_by(pod, budgets)):
            return held.objection
    return ""
