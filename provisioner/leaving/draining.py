"""Empties the nodes of Dovetail: which pods would find no room, and which NodeClaims are deleted next."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import condition
from provisioner.apis.pods import Pod, is_reschedulable
from provisioner.disruption.budgets import AllowanceLedger
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.state.confirmation import guard_of, why_waits
from provisioner.state.pause import Activity, value_of
from provisioner.state.snapshot import Snapshot
from provisioner.values.message import Said

_WAITS: Final = (names.DRAINED, names.VOLUMES_DETACHED, names.INSTANCE_TERMINATING)


def without_room(snapshot: Snapshot, prepared: Prepared) -> tuple[Pod, ...]:
    """The pods on nodes of ours that find no room on the other nodes, by name. Cost: one plan."""
    moved = [pod for node in snapshot.nodes if node.claim is not None for pod in node.pods if is_reschedulable(pod)]
    mine = {str(node.key) for node in snapshot.nodes if node.claim is not None}
    world = prepared.world
    others = replace(world, pools=(), bins=tuple(one for one in world.bins if one.name not in mine))
    left = prepare(others).solve(moved, explain=False).unplaced
    return tuple(sorted((one.pod for one in left), key=lambda pod: pod.key))


def next_to_delete(snapshot: Snapshot) -> tuple[NodeClaim, ...]:
    """The NodeClaims that budgets of their NodePools let go now, by name; those without a Node, or without a NodePool, always."""
    ledger, found = AllowanceLedger(snapshot), list[NodeClaim]()
    for node in snapshot.nodes:
        claim = node.claim
        if claim is None or claim.metadata.deletion_timestamp is not None:
            continue
        if node.initialized and ledger.knows(node.pool):
            if ledger.refusal((node.key.name,), names.REASON_SCHEDULED_CHANGE):
                continue
            ledger.spend((node.key.name,))
        found.append(claim)
    return tuple(found)


def why_waiting(claims: Iterable[NodeClaim]) -> list[str]:
    """What each NodeClaim that is left waits for, in sentences."""
    return [_why(one) for one in claims]


def _why(claim: NodeClaim) -> str:
    if claim.metadata.deletion_timestamp is None:
        return Said(f"NodeClaim {claim.name} waits for the disruption budgets of NodePool {claim.pool}")
    if (guard := guard_of(claim)) is not None:
        return Said(f"NodeClaim {claim.name}: {why_waits(guard)}")
    told = (condition(claim.status.conditions, kind) for kind in _WAITS)
    open_ = next((one for one in told if one is not None and one.status != names.TRUE), None)
    what = (open_.message or open_.reason) if open_ is not None else "its instance is being terminated"
    return Said(f"NodeClaim {claim.name}: {what}")


def with_launches_paused(value: str) -> str:
    """The value of a pause, and launches besides; the same where they are paused already."""
    if Activity.LAUNCH in value_of(value).activities:
        return value
    words = [one for one in (part.strip() for part in value.split(",")) if one and one.lower() != "false"]
    return ",".join([*words, Activity.LAUNCH.value])
