"""Broken nodes of NodePools: rebooted where a policy says so, else replaced first, each by itself, and drained within a bound.

Source: Karpenter 1.15 spec 3, 4.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Final

from provisioner.apis import names
from provisioner.apis.command import RepairTerms, TerminateFirst
from provisioner.apis.karpenter import grace_of
from provisioner.cloudprovider.types import RepairAction, StructuralCap
from provisioner.disruption.allowance import Allowance, soonest
from provisioner.disruption.candidates import Candidate, CandidateTypes, candidates, pods_blocking
from provisioner.disruption.methods import static_drift, terminate_first
from provisioner.disruption.methods.drift import ask_alone
from provisioner.disruption.proposal import NODE_REPAIR_BLOCKED, Blocked, Proposal
from provisioner.disruption.repair_breaker import repair_breaker
from provisioner.disruption.repair_policies import RepairChoice
from provisioner.disruption.simulation.simulator import Simulation
from provisioner.disruption.simulation.turns import turns_of
from provisioner.disruption.view import NOT_JUDGED, DisruptionStanding, DisruptionVerdict, DisruptionView, MethodAnswer
from provisioner.scheduling.prepared import Prepared
from provisioner.state.pause import Activity
from provisioner.values.message import Said

METHOD: Final = "repair"
VETO: Final = Said(f'Repair is blocked through the "{names.DO_NOT_REPAIR}" annotation')
TOLERATED: Final = Said("a condition of the node says that it is unhealthy, which is tolerated for a while")


def propose(view: DisruptionView) -> MethodAnswer:
    """Every broken node that budgets and the breaker allow, each with what takes its pods: the longest overdue first, then whoever is cheaper to disrupt.

    No pod moves to another broken node. A node that never was initialized needs no budget. Every node that is due and stays is told why.

    Differs: Karpenter proposes one node a pass, and a node of which it cannot tell what becomes of its pods holds up all others.

    Cost: O(nodes + pods of broken ones). Only what budgets allow is asked about, until the time of the pass is up; whoever was not reached comes first in
    the next pass.
    """
    if view.prepared is None or not view.ill:
        return MethodAnswer()
    at = view.snapshot.at
    choices = {key: choice for key, one in view.ill.items() if (choice := one.choice(at)) is not None}
    found = candidates(view, Activity.REPAIR, only=lambda claim: claim.metadata.name in view.ill)
    quiet = {
        one.node.key.name: one.verdict for one in found.refused if one.verdict.standing is DisruptionStanding.UNDER_WAY
    }
    due = {key: one.due_at for key, one in view.ill.items() if key not in choices and key not in quiet}
    quiet.update((key, DisruptionVerdict(DisruptionStanding.NOT_DUE, TOLERATED, until)) for key, until in due.items())
    blocked = [
        Blocked(key, one.node.pool, one.message, until=one.until)
        for one in found.refused
        if (key := one.node.key.name) not in quiet
    ]
    allowance = Allowance(view, names.REASON_UNHEALTHY)
    places = _Places(view, view.prepared)
    breaker = repair_breaker(view.snapshot, view.ill, view.settings.repair_breaker)
    proposals: list[Proposal] = []
    unreached: set[str] = set()
    held: set[str] = set()
    short: list[Candidate] = []
    eligible = 0
    for one in _in_order(view, (one for one in found.eligible if one.key in choices), choices):
        terms = RepairTerms.of(choices[one.key].match.kind, _bound(one, choices[one.key], view.settings.drain_timeout))
        if told := _refused(one, view, terms):
            blocked.append(told)
            continue
        eligible += 1
        if why := breaker.why(one.node):
            blocked.append(Blocked(one.key, one.node.pool, why, NODE_REPAIR_BLOCKED))
            if one.node.pool in breaker.pools:
                held.add(one.node.pool)
        elif one.node.spends and allowance.lacks(one.node.pool):
            short.append(one)
        elif view.expired():
            unreached.add(one.key)
            quiet[one.key] = DisruptionVerdict(DisruptionStanding.NOT_REACHED, NOT_JUDGED)
        else:
            reboots = choices[one.key].match.policy.action is RepairAction.REBOOT and view.ill[one.key].may_reboot
            answer = _reboot(one, terms) if reboots else places.of(one, terms)
            if isinstance(answer, str):
                blocked.append(Blocked(one.key, one.node.pool, answer))
            else:
                allowance.take(one.node)
                proposals.append(answer)
    blocked += [Blocked(one.key, one.node.pool, allowance.why(one.node.pool).message) for one in short]
    blocked += [Blocked("", pool, breaker.pools[pool], NODE_REPAIR_BLOCKED) for pool in sorted(held)]
    return MethodAnswer(
        tuple(proposals),
        (*blocked, *allowance.blocked),
        soonest(found.recheck_at, allowance.recheck_at, *due.values()),
        eligible,
        unreached=frozenset(unreached & view.first or unreached),
        judged=places.judged,
        quiet=quiet,
    )


def _in_order(view: DisruptionView, some: Iterable[Candidate], choices: Mapping[str, RepairChoice]) -> list[Candidate]:
    def place(one: Candidate) -> tuple[bool, float, float, str]:
        return one.key not in view.first, -choices[one.key].score, one.cost, one.node.name

    return sorted(some, key=place)


def _bound(one: Candidate, choice: RepairChoice, longest: timedelta | None) -> timedelta | None:
    """The longest time that the drain may take, by the policies and by the NodeClaim; None for no end."""
    both = (choice.grace, grace_of(one.claim, longest))
    return min((grace for grace in both if grace is not None), default=None)


def _reboot(one: Candidate, terms: RepairTerms) -> Proposal:
    """Its pods wait for the node, so nothing takes its place."""
    return Proposal(names.REASON_UNHEALTHY, METHOD, (one.key,), repair=terms, reboot=True)


def _refused(one: Candidate, view: DisruptionView, terms: RepairTerms) -> Blocked | None:
    """Why a node is no candidate though a policy says that it is broken."""
    if one.node.do_not_repair:
        return Blocked(one.key, one.node.pool, VETO)
    if terms.grace_seconds is not None or (found := pods_blocking(one.node, view, eventual=True)) is None:
        return None
    text = Said(f"Repair requires a termination grace period to bypass blocking pods: {found.message}")
    return Blocked(one.key, one.node.pool, text, until=found.until)


class _Places:
    """What takes the place of one broken node after the other, and of their pods."""

    def __init__(self, view: DisruptionView, prepared: Prepared) -> None:
        self._view, self._prepared = view, prepared
        self._types: Final = CandidateTypes(view)
        self._turns: Final = turns_of(view)
        self._simulation: Simulation | None = None
        self._rooms: Final[dict[str, int | None]] = {}
        self._may_go_first: Final = names.REASON_UNHEALTHY in view.settings.first_for

    @property
    def judged(self) -> Mapping[str, str]:
        """As of `MethodAnswer`."""
        return self._simulation.judged if self._simulation is not None else {}

    def of(self, one: Candidate, terms: RepairTerms) -> Proposal | str:
        """The repair of a node, after those before; else why there is none, as users read it."""
        return self._static(one, terms) if one.pool.spec.replicas is not None else self._dynamic(one, terms)

    def _dynamic(self, one: Candidate, terms: RepairTerms) -> Proposal | str:
        if self._simulation is None:
            closed = {str(node.key) for node in self._view.snapshot.nodes if node.key.name in self._view.ill}
            self._simulation = Simulation(self._view, self._prepared, closed)
        answer = ask_alone(self._simulation, (one,))
        result, first = answer.result, None
        if result is None:
            place = terminate_first.ask_first(self._simulation, one) if self._may_go_first else None
            if place is None:
                return answer.refusal
            result, first = place[0], self._first(place[1], one)
        proposal = Proposal(
            names.REASON_UNHEALTHY,
            METHOD,
            (one.key,),
            result.claims,
            dict(result.existing),
            late=answer.late,
            repair=terms,
            first=first,
        )
        if why := self._turns.turn_of(proposal):
            return why
        self._simulation.accept((one,), result)
        return proposal

    def _static(self, one: Candidate, terms: RepairTerms) -> Proposal | str:
        """One node of the NodePool's template, within its limit of nodes."""
        pool, name = one.pool, one.pool.name
        if why := static_drift.why_kept(self._view, pool):
            return why
        room = self._rooms[name] if name in self._rooms else static_drift.room_left(self._view, pool)
        types = tuple(self._types.of_pool(name).values())
        place = static_drift.successor_of(pool, types, room, one, enabled=self._may_go_first)
        if isinstance(place, str):
            return place
        made, cap = place
        first = None if cap is None else self._first(cap, one)
        self._rooms[name] = room if room is None or first is not None else room - 1
        return Proposal(names.REASON_UNHEALTHY, METHOD, (one.key,), (made,), repair=terms, first=first)

    def _first(self, cap: StructuralCap, one: Candidate) -> TerminateFirst:
        choice = self._view.ill[one.key].choice(self._view.snapshot.at)
        return terminate_first.terms(cap, one, self._view, forced=choice is not None and choice.grace is not None)
