"""Nodes of dynamic pools that are no longer what their NodePool or NodeClass asks for: replaced first, then drained. Source: core spec 6.7."""

from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from provisioner.apis import names
from provisioner.apis.command import TerminateFirst
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.meta import condition, is_true
from provisioner.disruption.allowance import Allowance, soonest
from provisioner.disruption.candidates import Candidate, candidates
from provisioner.disruption.gangs import MOST_NODES, NodeUnit, units
from provisioner.disruption.methods import terminate_first
from provisioner.disruption.methods.units import never_whole, whole
from provisioner.disruption.pool_drift import NODE_POOL, REQUIREMENTS, pool_drift
from provisioner.disruption.proposal import Blocked, Proposal
from provisioner.disruption.simulation.simulator import Simulation, SimulationAnswer
from provisioner.disruption.simulation.turns import Turns, turns_of
from provisioner.disruption.view import (
    NOT_JUDGED,
    TAKES_PODS,
    DisruptionStanding,
    DisruptionVerdict,
    DisruptionView,
    MethodAnswer,
)
from provisioner.scheduling.attempts.solution import EFFORT
from provisioner.scheduling.result import Result
from provisioner.state.pause import Activity
from provisioner.state.snapshot import NodeView, Snapshot
from provisioner.values.message import Said

METHOD: Final = "drift"
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
WAVE: Final = timedelta(seconds=3)
"""Verdicts about nodes of a NodePool come one after another; the first of them waits no longer for the others."""
_LULL: Final = timedelta(seconds=2)
"""After the last verdict that no object foretells; conditions tell whole seconds."""


def more_drift(pool: str) -> str:
    """Of `drift`: what is said while nodes of a NodePool are found drifted one after another."""
    return Said(f'more nodes of NodePool "{pool}" are about to be marked as drifted, and they are replaced together')


def propose(view: DisruptionView) -> MethodAnswer:
    """Every drifted node that its pool's budget allows, each with what takes its pods; the longest drifted first, empty ones before all.

    Pods of a drifted node do not move to another drifted node unless there is nowhere else to go: they would move twice. So nodes that drift
    together begin together: what is not known to be drifted yet would take pods of those before it.

    Nodes with pods that are disrupted all at once or not at all go together, drifted or not. One that waits until others are drained, or pods of
    its group are bound elsewhere, takes nothing of the budget.

    A node that only several can replace goes when nothing of its pool is on its way: those after it find the new ones there. What
    they cost is not asked, as in Karpenter: the user wants other nodes, and consolidation follows.

    Differs: Karpenter proposes one node a pass, and begins each pass with the same one, though it failed; here the whole budget is
    spent in one pass, so a pool that cannot be replaced keeps back nobody else.

    Cost: O(nodes + pods of drifted ones). Only what budgets allow is asked about, until the time of the pass is up; whoever was not
    reached comes first in the next pass.
    """
    if view.prepared is None:
        return MethodAnswer()
    joined = units(view.snapshot)
    others = _with(joined)
    found = candidates(view, Activity.DRIFT, only=lambda claim: has_drifted(claim) or claim.name in others)
    drifted = in_order(one for one in found.eligible if one.pool.spec.replicas is None and has_drifted(one.claim))
    mine = {node.key.name for node in view.snapshot.nodes if node.claim is not None and has_drifted(node.claim)}
    blocked = [one for one in found.blocked if one.key in mine]
    quiet = {key: one for key, one in found.quiet.items() if key in mine}
    allowance, turns = Allowance(view, names.REASON_DRIFTED), turns_of(view)
    awaited, may_go_first = unjudged(view), names.REASON_DRIFTED in view.settings.first_for
    closed = {str(node.key) for one in drifted for node in _nodes(one, joined)}
    simulation: Simulation | None = None  # none while budgets allow nothing: it asks about all pods that wait
    anywhere: Simulation | None = None
    moving = _moving(view)
    proposals: list[Proposal] = []
    unreached: set[str] = set()
    short: list[Candidate] = []
    gone: set[str] = set()
    eligible = {one.key: one for one in found.eligible}
    refused = {one.node.key.name: one.message for one in found.refused}
    for one in sorted(drifted, key=lambda one: one.key not in view.first):
        if one.node.pool in awaited:
            quiet[one.key] = DisruptionVerdict(
                DisruptionStanding.NOT_DUE, more_drift(one.node.pool), awaited[one.node.pool]
            )
            continue
        if one.key in gone:
            continue
        some = _together(one, joined.get(one.key), eligible, refused, view, allowance)
        if isinstance(some, str):
            blocked.append(Blocked(one.key, one.node.pool, some))
            continue
        if why := turns.gangs.why_not(each.key for each in some):
            blocked += [Blocked(each.key, each.node.pool, why) for each in some]
            continue
        if allowance.lacks(one.node.pool):
            short.append(one)
            continue
        if view.expired():
            unreached.add(one.key)
            quiet[one.key] = DisruptionVerdict(DisruptionStanding.NOT_REACHED, NOT_JUDGED)
            continue
        simulation = simulation or Simulation(view, view.prepared, closed)
        busy = [each.node for each in some if str(each.node.key) in simulation.destinations]
        waits = turns.wherever([pod for each in some for pod in each.pods])
        if why := waits or (simulation.expects(busy[0]) if busy else ""):
            blocked.append(Blocked(one.key, one.node.pool, why))
            continue
        if busy:
            quiet[one.key] = DisruptionVerdict(DisruptionStanding.BLOCKED, TAKES_PODS)
            continue
        answer = ask_alone(simulation, some)
        if answer.result is None and len(drifted) > 1:
            anywhere = anywhere or simulation.reopened(closed)
            answer = ask_alone(anywhere, some)
        result, first = answer.result, None
        if result is None and len(some) == 1 and may_go_first:
            result, first = _going_first(anywhere or simulation, one, view)
        decided = _decided(some, answer, result, first, moving, turns)
        if isinstance(decided, str):
            blocked.append(Blocked(one.key, one.node.pool, decided))
            continue
        result, proposal = decided
        if len(result.claims) > 1:
            moving.update(each.node.pool for each in some)
        for world in (simulation, anywhere):
            if world is not None:
                world.accept(some, result)
        for each in some:
            allowance.take(each.node)
        gone.update(proposal.candidates)
        proposals.append(proposal)
    quiet.update((one.key, allowance.why(one.node.pool)) for one in short)
    return MethodAnswer(
        tuple(proposals),
        (*blocked, *allowance.blocked),
        soonest(found.recheck_at, allowance.recheck_at, *awaited.values()),
        eligible=len(drifted),
        unreached=frozenset(unreached & view.first or unreached),  # whoever waits longest
        judged=simulation.judged if simulation is not None else {},
        quiet=quiet,
    )


def _with(joined: Mapping[str, NodeUnit]) -> frozenset[str]:
    """The NodeClaims that go with drifted ones."""
    return frozenset(
        node.key.name
        for unit in joined.values()
        if any(node.claim is not None and has_drifted(node.claim) for node in unit.nodes)
        for node in unit.nodes
    )


def _nodes(one: Candidate, joined: Mapping[str, NodeUnit]) -> tuple[NodeView, ...]:
    """The node, and those that go with it."""
    unit = joined.get(one.key)
    return unit.nodes if unit is not None and len(unit.nodes) <= MOST_NODES else (one.node,)


def _together(
    one: Candidate,
    unit: NodeUnit | None,
    eligible: Mapping[str, Candidate],
    refused: Mapping[str, str],
    view: DisruptionView,
    allowance: Allowance,
) -> tuple[Candidate, ...] | str:
    """The node with those that go with it; else why they do not, as users read it. Too many go with nobody if their drains have an end."""
    if unit is None:
        return (one,)
    if never := never_whole(unit, eligible):
        return (one,) if one.claim.spec.termination_grace_period else never
    return whole(unit, eligible, refused, view, allowance, eventual=True)


def concerns(snapshot: Snapshot) -> bool:
    """Whether any node has drifted; else there is nothing to ask."""
    return any(node.claim is not None and has_drifted(node.claim) for node in snapshot.nodes)


def has_drifted(claim: NodeClaim) -> bool:
    """Whether the claim's condition Drifted is True."""
    return is_true(claim.status.conditions, names.DRIFTED)


def unjudged(view: DisruptionView) -> dict[str, datetime]:
    """NodePools of which more nodes are about to be found drifted, with the time until when that is waited for.

    A change of a NodePool tells by itself whom it concerns. What else drifts (a class, an image, a type that is gone) is known when its
    verdicts have ceased to come.

    Cost: O(nodes), and a comparison for each node of a NodePool whose first verdict is younger than `WAVE`.
    """
    now = view.snapshot.at
    told: dict[str, list[tuple[datetime, str]]] = {}
    for node in view.snapshot.nodes:
        found = condition(node.claim.status.conditions, names.DRIFTED) if node.claim is not None else None
        if found is not None and found.status == "True":
            told.setdefault(node.pool, []).append((found.last_transition_time or _FIRST, found.reason))
    young = {name: min(some)[0] for name, some in told.items() if min(some)[0] <= now < min(some)[0] + WAVE}
    if not young:
        return {}
    pools = {one.pool.name: one.pool for one in view.snapshot.pools}
    coming = {
        node.pool
        for node in view.snapshot.nodes
        if node.pool in young
        and node.pool in pools
        and node.claim is not None
        and _is_due(node.claim, pools[node.pool])
    }
    by_itself = (NODE_POOL, REQUIREMENTS)
    awaited: dict[str, datetime] = {}
    for name, first in young.items():
        others = [since for since, reason in told[name] if reason not in by_itself]
        if name in coming:
            awaited[name] = first + WAVE
        elif others and now < max(others) + _LULL:
            awaited[name] = min(first + WAVE, max(others) + _LULL)
    return awaited


def _is_due(claim: NodeClaim, pool: NodePool) -> bool:
    """Whether the claim has drifted and does not say so yet."""
    return claim.metadata.deletion_timestamp is None and not has_drifted(claim) and bool(pool_drift(claim, pool))


def in_order(some: Iterable[Candidate]) -> list[Candidate]:
    """Empty ones first, then by the time since when they are drifted, then by name."""

    def place(one: Candidate) -> tuple[bool, datetime, str]:
        drifted = condition(one.claim.status.conditions, names.DRIFTED)
        since = drifted.last_transition_time if drifted is not None else None
        return bool(one.pods), since or _FIRST, one.key

    return sorted(some, key=place)


def ask_alone(simulation: Simulation, some: Sequence[Candidate]) -> SimulationAnswer:
    """What becomes of the pods of one command's nodes: quickly, and once more with an effort where that finds no place."""
    answer = simulation.ask(some, late=True)
    return answer if answer.result is not None else simulation.ask(some, effort=EFFORT, late=True, thorough=True)


def _going_first(
    simulation: Simulation, one: Candidate, view: DisruptionView
) -> tuple[Result, TerminateFirst] | tuple[None, None]:
    """What becomes of the pods of a node that goes before its successor is launched; None where that helps nobody."""
    place = terminate_first.ask_first(simulation, one)
    return (None, None) if place is None else (place[0], terminate_first.terms(place[1], one, view, forced=False))


def _decided(
    some: Sequence[Candidate],
    answer: SimulationAnswer,
    result: Result | None,
    first: TerminateFirst | None,
    moving: Container[str],
    turns: Turns,
) -> tuple[Result, Proposal] | str:
    """What becomes of the pods, and the command that has its turn; else why the nodes stay for now, as users read it."""
    if result is None:
        return answer.refusal
    if why := _waits(some, result, moving):
        return why
    keys, existing = tuple(sorted([one.key for one in some])), dict(result.existing)
    proposal = Proposal(names.REASON_DRIFTED, METHOD, keys, result.claims, existing, late=answer.late, first=first)
    return turns.turn_of(proposal) or (result, proposal)


def _moving(view: DisruptionView) -> set[str]:
    """Pools with nodes that come or go."""
    return {
        node.pool
        for node in view.snapshot.nodes
        if node.claim is not None and (not node.initialized or node.deleting or node.key.name in view.under_way)
    }


def _several_nodes_needed(nodes: int) -> str:
    return Said(
        f"Replacing this node takes {nodes} nodes; waiting until no other nodes of its NodePool are being "
        "launched or terminated"
    )


def _waits(some: Sequence[Candidate], result: Result, moving: Container[str]) -> str:
    """Why nodes that only more can replace stay for now; "" where they go."""
    new = len(result.claims)
    return _several_nodes_needed(new) if new > len(some) and any(one.node.pool in moving for one in some) else ""
