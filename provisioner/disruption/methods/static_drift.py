"""Drifted nodes of static pools: each gets one node from the pool's template first. Source: core spec 6.7."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from provisioner.apis import names
from provisioner.apis.command import is_gated
from provisioner.apis.karpenter import NodePool, requirements_of
from provisioner.apis.meta import is_true
from provisioner.cloudprovider.types import CapKind, InstanceType, StructuralCap, by_price, price_of_ways
from provisioner.disruption.allowance import Allowance, soonest
from provisioner.disruption.candidates import Candidate, CandidateTypes, candidates
from provisioner.disruption.gangs import STATIC_ONE_BY_ONE, GangTurns, needs_others, units
from provisioner.disruption.methods import terminate_first
from provisioner.disruption.methods.drift import has_drifted, in_order, more_drift, unjudged
from provisioner.disruption.proposal import Blocked, Proposal
from provisioner.disruption.structural_capacity import caps_held, credited_types, full_by, no_room, released
from provisioner.disruption.view import DisruptionStanding, DisruptionVerdict, DisruptionView, MethodAnswer
from provisioner.scheduling.node_claims import template_labels, template_requirements
from provisioner.scheduling.result import PlannedClaim
from provisioner.state.pause import Activity
from provisioner.state.pool_usage import room_of
from provisioner.state.snapshot import Snapshot
from provisioner.values.message import Said
from provisioner.values.requirement import RequirementError, Requirements
from provisioner.values.resources import EMPTY, Resources

METHOD: Final = "static_drift"


def _too_many_static(pool: str) -> str:
    """What is said while a static NodePool has more nodes than replicas."""
    return Said(f'NodePool "{pool}" has more nodes than replicas, so it scales down or replaces others first')


def why_kept(view: DisruptionView, pool: NodePool) -> str:
    """Why a static NodePool replaces no node at all for now, as users read it: it is deleted, or has more nodes than replicas, those that leave counted;
    "" where it does.
    """
    surplus = _count(view, pool.name) > (pool.spec.replicas or 0)
    return _too_many_static(pool.name) if surplus or pool.metadata.deletion_timestamp is not None else ""


def successor(pool: NodePool, types: Iterable[InstanceType]) -> PlannedClaim | str:
    """A new node of a static NodePool that takes the place of another one; else why there is none, as users read it."""
    if not is_true(pool.status.conditions, names.READY):
        return Said(f'NodePool "{pool.name}" is not Ready')
    return _claim(pool, tuple(types))


def room_left(view: DisruptionView, pool: NodePool) -> int | None:
    """How many nodes more a static NodePool may have; None for no limit."""
    mine = (one.claim for one in view.snapshot.nodes if one.pool == pool.name and one.claim is not None)
    return room_of(pool, sum(not is_gated(claim) for claim in mine))


def successor_of(
    pool: NodePool, types: tuple[InstanceType, ...], room: int | None, one: Candidate, *, enabled: bool
) -> tuple[PlannedClaim, StructuralCap | None] | str:
    """What takes the place of a node of a static NodePool, and for what the node must go first; else why there is nothing, as users read it.

    Args:
        pool: the NodePool.
        types: its instance types.
        room: how many nodes more it may have; None for no limit.
        one: the node.
        enabled: the node may go first.

    Cost: the offerings.
    """
    made = successor(pool, types)
    if isinstance(made, str):
        try:
            caps = full_by(types, template_requirements(pool))
        except RequirementError:
            caps = frozenset()
        if not caps:
            return made
        cap = released(caps, caps_held(one.node.labels, one.instance_type))
        if cap is None or not enabled:
            return no_room(cap or min(caps), held=cap is not None)
        made = successor(pool, credited_types(types, cap))
        return made if isinstance(made, str) else (made, cap)
    if room is None or room > 0:
        return made, None
    limit = StructuralCap(CapKind.NODE_LIMIT, pool.name)
    return (made, limit) if enabled else no_room(limit, held=True)


def propose(view: DisruptionView) -> MethodAnswer:
    """As many drifted nodes of each static pool as its budget and its limit of nodes allow, the longest drifted first.

    A pool that has more nodes than replicas, those that leave counted, is left alone: it scales down, or rolls already. One that is not
    Ready makes no nodes, so it keeps those that it has. What pods there are does not matter: the new node is like the old one. Nodes
    that drift together begin together, as in `drift`: what is not known to be drifted yet would take pods of those before it.

    Differs: the order is that of drift; Karpenter's is arbitrary.

    Cost: O(nodes + pods).
    """
    pools = {one.pool.metadata.name: one.pool for one in view.snapshot.pools if one.pool.spec.replicas is not None}
    if not pools:
        return MethodAnswer()
    found = candidates(view, Activity.DRIFT)
    types, joined = CandidateTypes(view), units(view.snapshot)
    allowance, turns = Allowance(view, names.REASON_DRIFTED), GangTurns(view.snapshot, view.under_way)
    awaited, may_go_first = unjudged(view), names.REASON_DRIFTED in view.settings.first_for
    proposals: list[Proposal] = []
    rechecks: list[datetime] = []
    short: list[Candidate] = []
    eligible = 0
    mine = [
        one
        for one in found.refused
        if one.node.pool in pools and one.node.claim is not None and has_drifted(one.node.claim)
    ]
    blocked = [told for one in mine if (told := one.blocked) is not None]
    quiet = {one.node.key.name: one.verdict for one in mine if one.blocked is None}
    for name, pool in sorted(pools.items()):
        those = in_order(one for one in found.eligible if one.node.pool == name and has_drifted(one.claim))
        eligible += len(those)
        if not those:
            continue
        if why := why_kept(view, pool):
            quiet.update((one.key, DisruptionVerdict(DisruptionStanding.BLOCKED, why)) for one in those)
            continue
        if name in awaited:
            rechecks.append(awaited[name])
            wave = DisruptionVerdict(DisruptionStanding.NOT_DUE, more_drift(name), awaited[name])
            quiet.update((one.key, wave) for one in those)
            continue
        room = room_left(view, pool)
        for one in those:
            place = successor_of(pool, tuple(types.of_pool(name).values()), room, one, enabled=may_go_first)
            unit = joined.get(one.key)
            if unit is not None and len(unit.nodes) > 1 and not one.claim.spec.termination_grace_period:
                blocked.append(Blocked(one.key, name, needs_others(unit.group, len(unit.nodes), STATIC_ONE_BY_ONE)))
            elif isinstance(place, str):
                blocked.append(Blocked(one.key, name, place))
            elif why := turns.why_not((one.key,)):
                blocked.append(Blocked(one.key, name, why))
            elif allowance.lacks(name):
                short.append(one)
            else:
                allowance.take(one.node)
                turns.take((one.key,))
                made, cap = place
                first = None if cap is None else terminate_first.terms(cap, one, view, forced=False)
                room = room if room is None or first is not None else room - 1
                proposals.append(Proposal(names.REASON_DRIFTED, METHOD, (one.key,), (made,), first=first))
    quiet.update((one.key, allowance.why(one.node.pool)) for one in short)
    return MethodAnswer(
        tuple(proposals),
        (*blocked, *allowance.blocked),
        soonest(found.recheck_at, allowance.recheck_at, *rechecks),
        eligible,
        quiet=quiet,
    )


def concerns(snapshot: Snapshot) -> bool:
    """Whether any node of a static pool has drifted; else there is nothing to ask."""
    static = {one.pool.metadata.name for one in snapshot.pools if one.pool.spec.replicas is not None}
    return bool(static) and any(
        node.pool in static and node.claim is not None and has_drifted(node.claim) for node in snapshot.nodes
    )


def _count(view: DisruptionView, pool: str) -> int:
    """Nodes of the pool that are not deleted yet, those that a command replaces among them."""
    mine = (one.claim for one in view.snapshot.nodes if one.pool == pool and one.claim is not None)
    return sum(1 for one in mine if one.metadata.deletion_timestamp is None)


def _claim(pool: NodePool, types: tuple[InstanceType, ...]) -> PlannedClaim | str:
    """A node of the pool's template, planned as the cheapest that it admits; the provider chooses among all types. Else why there is none."""
    labels = template_labels(pool)
    try:
        asked = requirements_of(pool.spec.template.spec.requirements)
    except RequirementError as error:
        return str(error)
    asked_of_types = asked.merged(Requirements.from_labels(labels))
    ways = by_price(types, asked_of_types)
    if not ways:
        return Said(f'No instance type meets the requirements of NodePool "{pool.metadata.name}"')
    kind, offering = ways[0]
    return PlannedClaim(
        pool=pool.metadata.name,
        template=pool,
        requirements=asked,
        labels=labels,
        requests=EMPTY,
        pods=(),
        instance_types=tuple(dict.fromkeys(one.name for one, _ in ways)),
        planned_type=kind.name,
        planned_zone=offering.zone,
        planned_capacity_type=offering.capacity_type,
        usd_per_hour=price_of_ways(ways, asked_of_types),
        capacity=kind.capacity,
        allocatable=kind.allocatable,
        charge=Resources.of({names.NODES: 1}),
    )
