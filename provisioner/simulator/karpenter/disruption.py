"""Which nodes Karpenter disrupts: one command at a time, by the first method that finds one. Pure.

Source: karpenter `pkg/controllers/disruption` at 226646810 (6.1-6.13).
Differs: static NodePools, node repair and reserved capacity are left out; passes are as long as they need (there, multi-node consolidation ends
after a minute, single-node consolidation after three). Whoever asks keeps the time: commands are carried out `VALIDATION_WAIT` after they were
found, and where nothing was found, nobody asks before the cluster has changed, or `LOOK_AGAIN` is over.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from provisioner.apis import names
from provisioner.disruption import replacement
from provisioner.disruption.acceptance import THRESHOLD, AcceptanceRule
from provisioner.disruption.allowance import Allowance
from provisioner.disruption.candidates import Candidate, CandidateTypes, candidates
from provisioner.disruption.methods.drift import METHOD as DRIFT
from provisioner.disruption.methods.drift import has_drifted, in_order
from provisioner.disruption.methods.emptiness import METHOD as EMPTY
from provisioner.disruption.methods.emptiness import consolidatable_at
from provisioner.disruption.methods.moves import by_price, unconsolidatable
from provisioner.disruption.proposal import Proposal
from provisioner.disruption.view import DisruptionView
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.result import PlannedClaim, Result
from provisioner.simulator.karpenter.simulation import KarpenterSimulation
from provisioner.state.pause import Activity

VALIDATION_WAIT: Final = timedelta(seconds=15)
"""Between the finding of a command and `still_holds`, for all but drift: the loop waits meanwhile (6.13)."""
POLL: Final = timedelta(seconds=10)
"""Until the next pass, where the last one found nothing; after a command it begins at once (6.1)."""
LOOK_AGAIN: Final = timedelta(minutes=5)
"""Consolidation is asked again though nothing has changed (6.5)."""
MOST_TOGETHER: Final = 100
"""More nodes are not consolidated together; there may be one more, as in Karpenter (6.10)."""
MULTI: Final = "multi"
SINGLE: Final = "single"
_ORDER: Final = (EMPTY, DRIFT, MULTI, SINGLE)


@dataclass(frozen=True, slots=True)
class KarpenterDecision:
    """What one pass comes to.

    Attributes:
        command: None where nothing is done.
        refused: NodeClaims of which single-node consolidation found that they stay.
    """

    command: Proposal | None
    refused: frozenset[str] = frozenset()


def disrupt(view: DisruptionView, *, skipped: Collection[str], after: str = "") -> KarpenterDecision:
    """The command that one pass of Karpenter begins: emptiness, then drift, then consolidation of several nodes, then of one.

    Args:
        view: the instant; commands under way show in its snapshot.
        skipped: NodeClaims that single-node consolidation need not ask about: `refused` by a pass since which nothing has changed for them.
        after: the method whose command did not hold: those behind it go on with the pass.

    Cost: that of `provision` at most 7 times for several nodes, and once for each node that is asked about alone.
    """
    passed = _ORDER.index(after) + 1 if after else 0
    for method in (empty, drifted)[passed:]:
        command = method(view)
        if command is not None:
            return KarpenterDecision(command)
    return consolidate(view, skipped=skipped, after=after)


def empty(view: DisruptionView) -> Proposal | None:
    """All empty nodes that budgets allow, in one command; those first that cost most for their disruption.

    Differs from ours: a node is empty when disrupting its pods costs nothing, so one of pods of very low priority is (6.3 [Q]).
    """
    found = [one for one in candidates(view, Activity.CONSOLIDATION).eligible if _is_empty(one) and _is_due(one, view)]
    found = [one for one in found if one.pool.spec.replicas is None and not view.buffered(str(one.node.key))]
    chosen = _allowed(view, names.REASON_EMPTY, _ranked(found))
    keys = tuple(sorted([one.key for one in chosen]))
    saving = sum(one.usd_per_hour for one in chosen)
    return Proposal(names.REASON_EMPTY, EMPTY, keys, saving_usd_per_hour=saving) if chosen else None


def drifted(view: DisruptionView) -> Proposal | None:
    """The node that has drifted longest, empty ones before all, of those whose pods have places, with as many new nodes as these take (6.7)."""
    found = candidates(view, Activity.DRIFT, only=has_drifted).eligible
    allowance, simulation = Allowance(view, names.REASON_DRIFTED), None
    for one in in_order(each for each in found if each.pool.spec.replicas is None):
        if allowance.lacks(one.node.pool):
            continue
        if not one.pods:
            return Proposal(names.REASON_DRIFTED, DRIFT, (one.key,))
        if view.prepared is None:
            continue
        simulation = simulation or KarpenterSimulation(view, view.prepared)
        result = simulation.ask((one,), consolidating=False)
        if result is not None:
            return _proposal(names.REASON_DRIFTED, DRIFT, (one,), result, 0.0)
    return None


def consolidate(view: DisruptionView, *, skipped: Collection[str], after: str = "") -> KarpenterDecision:
    """Several nodes for one or none, else one node for a cheaper one or none (6.9-6.12). Arguments and cost as of `disrupt`."""
    if view.prepared is None or after == SINGLE:
        return KarpenterDecision(None)
    work = _Consolidation(view, view.prepared)
    command = work.of_several() if after != MULTI else None
    return KarpenterDecision(command) if command is not None else work.of_one(skipped)


def still_holds(view: DisruptionView, command: Proposal) -> Proposal | None:
    """The command as Karpenter carries it out `VALIDATION_WAIT` later; None where it does not (6.6, 6.13).

    Of empty nodes those go that are still empty and that budgets allow. Consolidation is off where any node is no candidate any more, budgets do not
    allow all of them, or the same question has another answer: another number of new nodes, or one that may not be of every type of the command's.
    Prices are not looked at again. Drift is not validated.

    Args:
        view: the instant at which it is carried out.
        command: of an earlier one.
    """
    if command.method == DRIFT:
        return command
    found = {one.key: one for one in candidates(view, Activity.CONSOLIDATION).eligible}
    some = [found[key] for key in command.candidates if key in found and _is_due(found[key], view)]
    some = _allowed(view, command.reason, some)
    if command.method == EMPTY:
        keys = tuple([one.key for one in some if _is_empty(one) and not view.buffered(str(one.node.key))])
        saving = sum(found[key].usd_per_hour for key in keys)
        return Proposal(command.reason, EMPTY, keys, saving_usd_per_hour=saving) if keys else None
    if len(some) < len(command.candidates) or view.prepared is None:
        return None
    result = KarpenterSimulation(view, view.prepared).ask(some, consolidating=True)
    if result is None or len(result.claims) != len(command.replacements):
        return None
    for planned, now in zip(command.replacements, result.claims, strict=True):
        if not set(planned.instance_types) <= set(now.instance_types):
            return None
    return command


class _Consolidation:
    """One pass."""

    def __init__(self, view: DisruptionView, prepared: Prepared) -> None:
        self._view: Final = view
        self._types: Final = CandidateTypes(view)
        self._balance: Final = AcceptanceRule(view, self._types)
        self._simulation: Final = KarpenterSimulation(view, prepared)
        self._those: Final = [
            one
            for one in candidates(view, Activity.CONSOLIDATION).eligible
            if unconsolidatable(one) is None and not _is_empty(one) and _is_due(one, view)
        ]

    def of_several(self) -> Proposal | None:
        """The longest prefix that pays, found by halving: a prefix that does not pay is taken to spoil every longer one."""
        some = _allowed(self._view, names.REASON_UNDERUTILIZED, _ranked(self._those))
        best: Proposal | None = None
        low, high = 1, min(MOST_TOGETHER, len(some) - 1)
        while low <= high:
            middle = (low + high) // 2
            found = self._judged(some[: middle + 1], MULTI)
            if found is not None:
                best, low = found, middle + 1
            else:
                high = middle - 1
        return best

    def of_one(self, skipped: Collection[str]) -> KarpenterDecision:
        """The first that pays; NodePools take turns."""
        allowance = Allowance(self._view, names.REASON_UNDERUTILIZED)
        refused: list[str] = []
        for one in by_price(self._those):
            if one.key in skipped or allowance.lacks(one.node.pool) or not self._balanced((one,), one.usd_per_hour):
                continue
            found = self._judged((one,), SINGLE)
            if found is not None:
                return KarpenterDecision(found, frozenset(refused))
            refused.append(one.key)
        return KarpenterDecision(None, frozenset(refused))

    def _judged(self, some: Sequence[Candidate], method: str) -> Proposal | None:
        price = sum(one.usd_per_hour for one in some)
        result = self._simulation.ask(some, consolidating=True, max_new=1, below=price)
        if result is None or len(result.claims) > 1:
            return None
        claims: tuple[PlannedClaim, ...] = ()
        for claim in result.claims:
            types = self._types.of_pool(claim.pool)
            cheaper = replacement.cheaper(some, claim, types, self._view.settings, price, sources=some)
            if isinstance(cheaper, str):
                return None
            claims = (cheaper,)
        saving = price - sum(one.usd_per_hour for one in claims)
        if not self._balanced(some, saving):
            return None
        return _proposal(names.REASON_UNDERUTILIZED, method, some, Result(claims, result.existing, ()), saving)

    def _balanced(self, some: Sequence[Candidate], saving: float) -> bool:
        return all(score.value >= THRESHOLD for score in self._balance.scores(some, saving))


def _proposal(reason: str, method: str, some: Sequence[Candidate], result: Result, saving: float) -> Proposal:
    mine = {pod.uid for one in some for pod in one.pods}
    placements = {
        name: own for name, pods in result.existing.items() if (own := tuple([pod for pod in pods if pod.uid in mine]))
    }
    return Proposal(reason, method, tuple(sorted([one.key for one in some])), result.claims, placements, saving)


def _is_empty(one: Candidate) -> bool:
    return one.cost <= 1.0


def _is_due(one: Candidate, view: DisruptionView) -> bool:
    """Whether consolidateAfter is over."""
    due = consolidatable_at(one.node, one.pool)
    return due is not None and due <= view.snapshot.at


def _ranked(some: Sequence[Candidate]) -> list[Candidate]:
    """Those first that cost most for each unit of disruption. Differs: of equals the first by name."""
    return sorted(some, key=lambda one: (-one.usd_per_hour / one.cost, one.key))


def _allowed(view: DisruptionView, reason: str, some: Sequence[Candidate]) -> list[Candidate]:
    """As many of each NodePool as its budgets allow, in their order."""
    allowance = Allowance(view, reason)
    chosen = []
    for one in some:
        if not allowance.lacks(one.node.pool):
            allowance.take(one.node)
            chosen.append(one)
    return chosen
