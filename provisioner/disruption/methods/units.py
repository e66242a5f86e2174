"""Nodes that are disrupted all at once or not at all, since a PodGroup asks for it (`disruption.gangs`): who goes with whom, and why they stay. Pure."""

from collections.abc import Mapping
from typing import Final

from provisioner.apis.pods import is_evictable
from provisioner.disruption.allowance import Allowance
from provisioner.disruption.candidates import Candidate
from provisioner.disruption.gangs import MOST_NODES, PDBS_ALLOW_FEWER, STATIC_ONE_BY_ONE, NodeUnit, needs_others
from provisioner.disruption.view import DisruptionView
from provisioner.values.message import Said

_NO_REASON: Final = Said("it cannot be disrupted now")


def keys_of(unit: NodeUnit) -> list[str]:
    """The names of its NodeClaims."""
    return [node.key.name for node in unit.nodes]


def never_whole(unit: NodeUnit, eligible: Mapping[str, Candidate]) -> str:
    """Why its nodes cannot go at once, whatever comes, as users read it; "" where they may."""
    if len(unit.nodes) > MOST_NODES:
        return needs_others(unit.group, len(unit.nodes), Said(f"the maximum is {MOST_NODES}"))
    if any(each is not None and each.pool.spec.replicas is not None for each in map(eligible.get, keys_of(unit))):
        return needs_others(unit.group, len(unit.nodes), STATIC_ONE_BY_ONE)
    return ""


def whole(
    unit: NodeUnit,
    eligible: Mapping[str, Candidate],
    refused: Mapping[str, str],
    view: DisruptionView,
    allowance: Allowance,
    *,
    eventual: bool = False,
) -> tuple[Candidate, ...] | str:
    """All of its nodes; else why they do not go now, as users read it.

    No budget is saved up for them: other nodes would wait for a group that may never have enough.

    Args:
        unit: of which `never_whole` says nothing.
        eligible: candidates by NodeClaim.
        refused: why the others are none, likewise.
        view: the instant.
        allowance: what budgets leave.
        eventual: it must come to pass: nodes whose drains have an end do not wait for PodDisruptionBudgets.
    """
    group, count = unit.group, len(unit.nodes)
    for node in unit.nodes:
        if node.key.name not in eligible:
            why = refused.get(node.key.name) or _NO_REASON
            return needs_others(group, count, Said(f'Node "{node.name}" is not disrupted: {why}'))
    some = tuple([eligible[key] for key in keys_of(unit)])
    held = [
        pod for each in some if not (eventual and each.claim.spec.termination_grace_period) for pod in each.node.pods
    ]
    evicted = [pod for pod in held if is_evictable(pod, view.snapshot.at)]
    if view.snapshot.pod_budgets.waves(evicted) > 1:
        return needs_others(group, count, PDBS_ALLOW_FEWER)
    pools = [each.node.pool for each in some]
    if count > 1 and not allowance.allows(pools):
        pool = next((pool for pool in sorted(set(pools)) if allowance.left(pool) < pools.count(pool)), "")
        left = max(0, int(allowance.left(pool))) if pool else view.ceiling
        whose = Said(f'{pools.count(pool)} are of NodePool "{pool}", which') if pool else Said("all NodePools together")
        return needs_others(group, count, Said(f"{whose} may have {left} disrupted now"))
    return some
