"""Nodes that go before their successors are launched, because capacity is structurally full: what each method adds to a refusal.

Whether it is full is decided in `disruption.structural_capacity`. The successor is written first, and is not launched before the node is gone
(`lifecycle.launch_gate`): so the place is nobody else's. Source: Karpenter 1.15, TerminateFirstDrift and TerminateFirstRepair.

Differs: Karpenter writes no successor, so that whoever comes first takes the place, and lets pods drain without an end where nothing bounds it.
"""

import math
from datetime import timedelta
from typing import Final

from provisioner.apis.command import TerminateFirst
from provisioner.cloudprovider.types import StructuralCap
from provisioner.disruption.candidates import Candidate
from provisioner.disruption.simulation.simulator import Simulation, SimulationAnswer
from provisioner.disruption.structural_capacity import caps_held, credited, draws, recovered
from provisioner.disruption.view import DisruptionView
from provisioner.scheduling.attempts.solution import EFFORT
from provisioner.scheduling.result import Result

BOUND: Final = timedelta(minutes=10)
"""For so long pods may take to leave where nothing else bounds it; then the node stays."""


def terms(cap: StructuralCap, one: Candidate, view: DisruptionView, *, forced: bool) -> TerminateFirst:
    """How a node goes first.

    Args:
        cap: what its successor waits for.
        one: the node.
        view: says what bounds drains.
        forced: a policy, or the NodeClaim's terminationGracePeriod, ends its drain.
    """
    if forced or one.claim.spec.termination_grace_period:
        return TerminateFirst(cap.kind, cap.name)
    bound = view.settings.drain_timeout or BOUND
    return TerminateFirst(cap.kind, cap.name, bound_seconds=math.ceil(bound.total_seconds()))


def ask_first(simulation: Simulation, one: Candidate) -> tuple[Result, StructuralCap] | None:
    """Where the pods of a node go once it is gone, on one new node in its place, though nothing can be launched before; None where that is not so.

    Asked after the plain question was refused. What is short may come back: where its pods would find places then, the node waits.

    Args:
        simulation: the world of the pass.
        one: a node of a dynamic NodePool.

    Cost: two questions, in worlds with other instance types; none for a node that holds no place of anything that is full.
    """
    held = caps_held(one.node.labels, one.instance_type)
    pools = simulation.prepared.world.pools
    if not held or _ask(simulation.offered(recovered(pools)), one).result is not None:
        return None
    for cap in sorted(held):
        found = _ask(simulation.offered(credited(pools, cap)), one).result
        if found is not None and len(found.claims) == 1 and draws(found, pools, cap) == 1:
            return found, cap
    return None


def _ask(simulation: Simulation, one: Candidate) -> SimulationAnswer:
    return simulation.ask((one,), effort=EFFORT, late=True)
