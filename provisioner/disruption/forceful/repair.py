"""Which nodes are unhealthy for longer than the repair policies of their provider tolerate. Source: core spec 6.15."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from provisioner.apis.meta import Condition
from provisioner.cloudprovider.types import RepairPolicy
from provisioner.disruption.candidates import SHARED_PROVIDER_ID
from provisioner.disruption.proposal import Blocked
from provisioner.state.snapshot import Snapshot
from provisioner.values.message import Said

SHARE_PERCENT: Final = 20
"""Where more of a pool's nodes are unhealthy, rounded up, it is not the nodes: nothing is repaired."""
SEEN_SECONDS: Final = 60.0
"""A condition is to be seen for so long at least, however old it says it is: a kubelet whose clock is slow may have begun anew."""

Sighted = tuple[Condition, datetime]
"""A condition of a Node, and when it was first seen as it is."""


@dataclass(frozen=True, slots=True)
class Repair:
    """A node to be replaced.

    Attributes:
        key: name of its NodeClaim.
        condition: the Node condition that has lasted too long.
    """

    key: str
    condition: str
    status: str


@dataclass(frozen=True, slots=True)
class RepairDecision:
    """What to do about broken nodes.

    Attributes:
        repair: by name; their NodeClaims get a termination timestamp of now, unless they have an earlier one, and are deleted, unless they are already.
        blocked: broken nodes that stay, for the event NodeRepairBlocked.
        not_due: by NodeClaim, when the time is over for which the condition of a broken node is tolerated.
        ending: NodeClaims of broken nodes whose instances end.
    """

    repair: tuple[Repair, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    not_due: Mapping[str, datetime] = field(default_factory=dict)
    ending: frozenset[str] = frozenset()


def decide_repairs(
    snapshot: Snapshot, policies: Sequence[RepairPolicy], conditions: Mapping[str, tuple[Sighted, ...]]
) -> RepairDecision:
    """Nodes on which a condition has lasted for its toleration, where no more than 20 % of their pool's nodes are unhealthy.

    Budgets, PodDisruptionBudgets, do-not-disrupt and the terminationGracePeriod are not asked: pods of a broken node do not run. So what
    holds the drain of one that is being deleted holds it no longer.
    A node whose NodeClaim stands alone is judged by all nodes of ours. A condition lasts since it says so, as in Karpenter, or since it was first seen.
    Differs: it has to be seen for a minute, too.

    Args:
        snapshot: the instant.
        policies: of the provider.
        conditions: of each Node, by its name.

    Cost: O(nodes x policies).
    """
    named = [one for one in snapshot.nodes if one.claim is not None and one.name]
    nodes = [one for one in named if not one.ambiguous]
    judged = ((one, _earliest(conditions.get(one.name, ()), policies, snapshot.at)) for one in named)
    every = [(one, found) for one, found in judged if found is not None]
    broken = [(one, found) for one, found in every if not one.ambiguous]
    unhealthy, whole = Counter(one.pool for one, _ in broken), Counter(one.pool for one in nodes)
    repair: list[Repair] = []
    ending = frozenset(one.key.name for one, _ in every if one.is_ending)
    blocked: list[Blocked] = []
    not_due: dict[str, datetime] = {}
    for node, (left, policy) in every:
        if node.key.name in ending:
            continue
        if node.ambiguous:
            blocked.append(Blocked(node.key.name, node.pool, SHARED_PROVIDER_ID, "NodeRepairBlocked"))
        elif left > timedelta(0):
            not_due[node.key.name] = snapshot.at + left
        elif not _within(*((unhealthy[node.pool], whole[node.pool]) if node.pool else (len(broken), len(nodes)))):
            where = f'of NodePool "{node.pool}"' if node.pool else "of the cluster"
            text = Said(f"More than {SHARE_PERCENT}% of the nodes {where} are unhealthy")
            blocked.append(Blocked(node.key.name, node.pool, text, "NodeRepairBlocked"))
        else:
            repair.append(Repair(node.key.name, policy.condition_type, policy.condition_status))
    return RepairDecision(
        tuple(sorted(repair, key=lambda one: one.key)),
        tuple(sorted(blocked, key=lambda one: one.key)),
        not_due,
        ending,
    )


def _earliest(
    conditions: tuple[Sighted, ...], policies: Sequence[RepairPolicy], now: datetime
) -> tuple[timedelta, RepairPolicy] | None:
    """The policy whose toleration ends first among those that match, and how much of it is left; None for a healthy node."""
    found = []
    for number, policy in enumerate(policies):
        for one, seen in conditions:
            if (one.type, one.status) == (policy.condition_type, policy.condition_status):
                said = one.last_transition_time
                since = seen if said is None or said.tzinfo is None else min(said, seen)
                least = min(policy.toleration, timedelta(seconds=SEEN_SECONDS))
                found.append((max(policy.toleration - (now - since), least - (now - seen)), number))
    if not found:
        return None
    left, number = min(found)
    return left, policies[number]


def _within(unhealthy: int, nodes: int) -> bool:
    return unhealthy <= -(-nodes * SHARE_PERCENT // 100)
