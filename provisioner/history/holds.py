"""What keeps nodes from being given up for cheaper ones: causes that hold now, by node. Pure.

A command that is under way, and a budget that it uses up, is no cause: both are over soon.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from provisioner.apis import names
from provisioner.apis.karpenter import NEVER, NodePool
from provisioner.apis.pods import do_not_disrupt, is_active, is_reschedulable
from provisioner.cloudprovider.types import InstanceType
from provisioner.disruption.budgets import AllowanceLedger
from provisioner.disruption.candidates import awaited_nodes, held_back
from provisioner.disruption.methods.emptiness import consolidatable_at
from provisioner.history.causes import BUDGET, MEANINGS, PDB, POLICY, PROTECTED, YOUNG
from provisioner.scheduling.capacity.hourly_price import usd_per_hour
from provisioner.state.snapshot import NodeView, Snapshot


@dataclass(frozen=True, slots=True)
class NodeHold:
    """A node of a dynamic NodePool.

    Attributes:
        usd: per hour; 0 where it is not known.
        causes: what keeps it; none where it may go, or goes.
    """

    node: NodeView
    usd: float
    causes: frozenset[str]


def holds_of(snapshot: Snapshot, types_of: Callable[[NodePool], tuple[InstanceType, ...]]) -> tuple[NodeHold, ...]:
    """Every node of a dynamic NodePool, and what keeps it. Cost: O(nodes + pods on them)."""
    pools = {one.pool.name: one.pool for one in snapshot.pools if not one.pool.is_static}
    types = {name: {kind.name: kind for kind in types_of(pool)} for name, pool in pools.items()}
    ledger, awaited = AllowanceLedger(snapshot), awaited_nodes(snapshot)
    closed = {name for name in pools if ledger.is_closed(name, names.REASON_UNDERUTILIZED)}
    found = []
    for node in snapshot.nodes:
        pool = pools.get(node.pool)
        if node.claim is None or pool is None:
            continue
        causes = frozenset(_causes(node, pool, snapshot, closed=node.pool in closed, awaited=node.name in awaited))
        found.append(NodeHold(node, usd_per_hour(node.claim, types[node.pool]), causes))
    return tuple(found)


def _causes(node: NodeView, pool: NodePool, snapshot: Snapshot, *, closed: bool, awaited: bool) -> Iterable[str]:
    now = snapshot.at
    if node.deleting or node.is_ending or node.rebooting:
        return
    if held_back(snapshot.pod_budgets, node.pods, now) is not None:
        yield PDB
    if node.do_not_disrupt or any(is_active(pod) and do_not_disrupt(pod, now) for pod in node.pods):
        yield PROTECTED
    if closed:
        yield BUDGET
    if not node.initialized or node.nominated or awaited or _is_young(node, pool, now):
        yield YOUNG
    disruption = pool.spec.disruption
    empties = disruption.consolidation_policy == "WhenEmpty" and any(is_reschedulable(pod) for pod in node.pods)
    if empties or disruption.consolidate_after == NEVER:
        yield POLICY


def _is_young(node: NodeView, pool: NodePool, now: datetime) -> bool:
    due = consolidatable_at(node, pool)
    return due is not None and due > now


def kept_by(holds: Iterable[NodeHold], causes: frozenset[str]) -> tuple[NodeHold, ...]:
    """The nodes that stay while these causes hold."""
    return tuple([one for one in holds if one.causes & causes])


def counts_of(holds: Iterable[NodeHold]) -> Mapping[str, int]:
    """How many nodes each cause keeps, in the order of `MEANINGS`; those that keep none are left out."""
    counts = Counter(cause for one in holds for cause in one.causes)
    return {cause: counts[cause] for cause in MEANINGS if counts[cause]}
