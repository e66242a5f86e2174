"""Which broken nodes go regardless of budgets: those without a NodePool, drains that are under way, and all with `--legacy-node-repair`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from provisioner.disruption.candidates import SHARED_PROVIDER_ID
from provisioner.disruption.methods.repair import VETO
from provisioner.disruption.proposal import NODE_REPAIR_BLOCKED, Blocked
from provisioner.disruption.repair_breaker import RepairBreaker
from provisioner.disruption.repair_policies import Illnesses
from provisioner.state.snapshot import NodeView, Snapshot


@dataclass(frozen=True, slots=True)
class Repair:
    """A node to be replaced.

    Attributes:
        key: name of its NodeClaim.
        condition: the Node condition that has lasted too long.
        grace: the longest time that its drain may take; None leaves it to the NodeClaim.
    """

    key: str
    condition: str
    status: str
    grace: timedelta | None = None


@dataclass(frozen=True, slots=True)
class RepairDecision:
    """What to do about broken nodes, whatever budgets say.

    Attributes:
        repair: by name; their NodeClaims get the termination timestamp that ends their drain in time, unless they have an earlier one, and are deleted,
            unless they are already.
        blocked: broken nodes that stay, for the event NodeRepairBlocked.
        not_due: by NodeClaim, when the time is over for which the condition of a broken node is tolerated.
        ending: NodeClaims of broken nodes whose instances end.
    """

    repair: tuple[Repair, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    not_due: Mapping[str, datetime] = field(default_factory=dict)
    ending: frozenset[str] = frozenset()


def decide_repairs(snapshot: Snapshot, ill: Illnesses, breaker: RepairBreaker, *, legacy: bool) -> RepairDecision:
    """Broken nodes whose conditions are tolerated no longer, where nothing has tripped. Source: core spec 6.15.

    Budgets, PodDisruptionBudgets, do-not-disrupt and, for `legacy`, do-not-repair are not asked: pods of a broken node hardly run. So what holds the drain of
    one that is being deleted holds it no longer than a policy says. A node whose NodeClaim stands alone is judged by all nodes of ours.

    Args:
        snapshot: the instant.
        ill: its broken nodes.
        breaker: of the instant.
        legacy: all nodes are repaired so; without it `methods.repair` replaces those of NodePools that stay.

    Cost: O(broken nodes).
    """
    broken = [one for one in snapshot.nodes if one.key.name in ill and (legacy or _is_forced(one))]
    repair: list[Repair] = []
    ending = frozenset(one.key.name for one in broken if one.is_ending)
    blocked: list[Blocked] = []
    not_due: dict[str, datetime] = {}
    for node in broken:
        key, choice = node.key.name, ill[node.key.name].choice(snapshot.at)
        if key in ending:
            continue
        if node.ambiguous:
            blocked.append(Blocked(key, node.pool, SHARED_PROVIDER_ID, NODE_REPAIR_BLOCKED))
        elif choice is None:
            not_due[key] = ill[key].due_at
        elif why := VETO if node.do_not_repair and not legacy else breaker.why(node):
            blocked.append(Blocked(key, node.pool, why, NODE_REPAIR_BLOCKED))
        else:
            repair.append(Repair(key, choice.match.kind, choice.match.status, choice.grace))
    return RepairDecision(
        tuple(sorted(repair, key=lambda one: one.key)),
        tuple(sorted(blocked, key=lambda one: one.key)),
        not_due,
        ending,
    )


def _is_forced(node: NodeView) -> bool:
    """Whether no command can repair a node, which is without a NodePool, or is being deleted."""
    return not node.pool or not node.is_ours
