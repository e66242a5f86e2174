"""How many nodes a static NodePool lacks, and which go where it has too many. Source: core spec 5.1."""

from dataclasses import dataclass
from datetime import datetime

from provisioner.apis import names
from provisioner.apis.command import is_gated
from provisioner.apis.interruption import has_begun
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.meta import is_true
from provisioner.apis.pods import do_not_disrupt, is_active
from provisioner.disruption.costs import disruption_cost
from provisioner.disruption.methods.emptiness import is_empty
from provisioner.state.confirmation import guard_of
from provisioner.state.pool_usage import room_of
from provisioner.state.snapshot import NodeView, Snapshot


@dataclass(frozen=True, slots=True)
class StaticDecision:
    """What brings a static NodePool to its replicas.

    Attributes:
        create: how many NodeClaims to create.
        delete: names of the NodeClaims to delete, in the order in which they are chosen; none where some are created.
        refused: how many more are missing and must wait, since the pool's limit of nodes is reached or cannot be read.
        limit: the limit as it is written; "" without one.
    """

    create: int = 0
    delete: tuple[str, ...] = ()
    refused: int = 0
    limit: str = ""


def decide(snapshot: Snapshot, pool: NodePool) -> StaticDecision:
    """What to do about one NodePool now; nothing for one that is not static or is being deleted.

    Nodes that a command replaces count as long as they are there, so nothing is created beside their replacements; where nodes
    are too many they do not count, since they go anyway, and neither they nor the replacements that their command waits for are
    chosen. Nodes that are deleted, or whose interruption has begun, are missing at once, and use up the limit until they are gone.

    Those that go are chosen in this order: not launched yet, the newest first; empty; by what their disruption costs, those that
    have drifted first among equals. Nodes that are protected by karpenter.sh/do-not-disrupt, or whose pods are, come after all
    others. Budgets are not asked.

    Cost: O(nodes + pods of the pool).
    Differs: Karpenter subtracts the nodes that a command replaces only from the question whether anything is missing, not from how
        much; and it may choose a replacement, so that its command fails.
    """
    replicas = pool.spec.replicas
    if replicas is None or pool.metadata.deletion_timestamp is not None:
        return StaticDecision()
    mine = [(one, one.claim) for one in snapshot.nodes if one.claim is not None and one.pool == pool.metadata.name]
    there = [one for one in mine if not _is_ending(one[1], snapshot.at)]
    active = [one for one in there if not one[0].command]
    if len(active) > replicas:
        coming = {name for command in snapshot.commands for name in command.record.replacement_names}
        may_go = [one for one in active if one[0].key.name not in coming and not one[0].ambiguous]
        may_go.sort(key=lambda one: _rank(one[0], one[1], snapshot.at))
        return StaticDecision(delete=tuple(node.key.name for node, _ in may_go[: len(active) - replicas]))
    missing = max(0, replicas - len(there))
    room, limit = (
        room_of(pool, sum(not is_gated(claim) for _, claim in mine)),
        str(pool.spec.limits.get(names.NODES, "")),
    )
    create = missing if room is None else min(missing, room)
    return StaticDecision(create=create, refused=missing - create, limit=limit)


def _is_ending(claim: NodeClaim, at: datetime) -> bool:
    meta = claim.metadata
    deleted = meta.deletion_timestamp is not None and guard_of(claim) is None
    return deleted or has_begun(meta.annotations, at)


def _rank(node: NodeView, claim: NodeClaim, at: datetime) -> tuple[bool, int, float, bool, float, str]:
    """Those that go first are the least."""
    born = (claim.metadata.creation_timestamp or at).timestamp()  # one that is still being written is the newest
    protected = node.do_not_disrupt or any(is_active(pod) and do_not_disrupt(pod, at) for pod in node.pods)
    pods = (*node.pods, *node.assigned)
    if not claim.status.provider_id and not pods:
        return protected, 0, 0.0, False, -born, node.key.name
    empty = is_empty(pods)
    cost = 0.0 if empty else disruption_cost(claim, pods, at)
    return protected, 1 if empty else 2, cost, not is_true(claim.status.conditions, names.DRIFTED), born, node.key.name
