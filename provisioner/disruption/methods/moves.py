"""What the methods of consolidation have in common: who may be consolidated, what a move of some nodes brings, and what was found out on the way.

Source: core spec 6.5, 6.8-6.12. Differs: many moves of one pass, each judged after those before it; a move may make as many nodes as it takes
less one, and one node may become two; what cannot pay by a proved bound is not asked.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeAlias

from msgspec.structs import replace as changed

from provisioner.apis import names
from provisioner.apis.karpenter import NEVER
from provisioner.apis.pods import Pod, is_reschedulable
from provisioner.disruption import costs, replacement
from provisioner.disruption.acceptance import (
    OVERLAP,
    WHOLE,
    AcceptanceRule,
    are_apart,
    is_news,
    is_settled,
    offering_of,
)
from provisioner.disruption.allowance import RECHECK, Allowance, soonest
from provisioner.disruption.budgets import disruptions_at_once
from provisioner.disruption.candidates import Candidate, Candidates, CandidateTypes, candidates, label_is_missing
from provisioner.disruption.gangs import NodeUnit, needs_others, units
from provisioner.disruption.methods.candidate_sets import Sets, margins, priced_kinds
from provisioner.disruption.methods.emptiness import came_or_went, consolidatable_at, consolidate_after
from provisioner.disruption.methods.rebuilding_choice import FEWEST, MOST_WAVES, choices
from provisioner.disruption.methods.units import keys_of, never_whole, whole
from provisioner.disruption.proposal import Blocked, Proposal
from provisioner.disruption.simulation.simulator import Simulation
from provisioner.disruption.simulation.turns import WAITS_FOR_TIED, turns_of
from provisioner.disruption.view import (
    NOT_JUDGED,
    TAKES_PODS,
    DisruptionStanding,
    DisruptionVerdict,
    DisruptionView,
    MethodAnswer,
)
from provisioner.disruption.waste import Rates
from provisioner.scheduling.prepared import Prepared, derived
from provisioner.scheduling.problem import NODE_PENALTY
from provisioner.scheduling.result import PlannedClaim, Result
from provisioner.state.pause import Activity
from provisioner.values.message import Said
from provisioner.values.resources import Resources

UNCONSOLIDATABLE: Final = "Unconsolidatable"
_ROOM_SHARE: Final = 0.95
"""Of what room is worth. With all of it nodes of the best types are left however few pods they have; from 0.9 on fleets come out alike."""
Ranked: TypeAlias = Callable[[Sequence[Candidate], Rates], tuple[Candidate, ...]]
SOON: Final = timedelta(seconds=1)
"""A clock that tells whole seconds may say that a node is still already."""
_TRIES: Final = 2
"""More searches for nodes that are built anew, each without those that were in the way."""
NEVER_PAYS: Final = Said("Moving its pods does not save enough to justify the disruption")
LAUNCHED_RECENTLY: Final = Said("Node was recently launched for the pods that it runs")


@dataclass(frozen=True, slots=True)
class Move:
    """Nodes that could go together.

    Attributes:
        saving: USD per hour.
        gain: see `acceptance.AcceptanceRule.gain`.
        then: nodes that are to follow, each by a move of its own, once the result has room for their pods; what is saved counts them.
    """

    some: tuple[Candidate, ...]
    result: Result
    saving: float
    gain: float
    then: tuple[Candidate, ...] = ()


def _several_replacements_needed(count: int) -> str:
    return Said(f"Can't remove without creating {count} candidates")


def would_save(saving: float, lost: str) -> str:
    """Why a node is not disrupted, or a command does not go on: what a move for money would give up."""
    return Said(f"Moving its pods would save ${saving:.2f} per hour, but {lost}")


class Consolidation:
    """One pass of one method.

    Attributes:
        order: who may be consolidated: those that the last pass did not come to, then in the order that is asked for.
        units: nodes that go all at once or not at all, of which some may be consolidated; none of them is in the order.
        proposals: accepted so far.
        gain: of these together within the whole horizon, see `acceptance.AcceptanceRule.gain`.
    """

    def __init__(self, view: DisruptionView, prepared: Prepared, ranked: Ranked | None = None) -> None:
        """`ranked`: the order, `in_turns` unless told otherwise."""
        self._view: Final = view
        self.gain = 0.0
        self._found: Final = candidates(view, Activity.CONSOLIDATION)
        self._types: Final = CandidateTypes(view)
        self._rule: Final = AcceptanceRule(view, self._types)
        self._rates: Final = Rates.in_world(prepared)
        self._penalties: Final = {pool.name: pool.node_penalty for pool in prepared.world.pools}
        self._rechecks: Final[list[datetime]] = []
        self._quiet: Final = self._found.quiet
        self._blocked: Final[list[Blocked]] = []
        self._refused: Final[dict[str, Blocked]] = {}
        joined = units(view.snapshot) if view.snapshot.consolidated else {}
        those = tuple(self._consolidatable(self._found))
        self._in_units: Final = {one.key: one for one in those if one.key in joined}
        found = {id(unit): unit for key, unit in joined.items() if key in self._in_units}.values()
        self._eligible: Final = {one.key: one for one in self._found.eligible if one.key in joined}
        refused = [(one.node.key.name, one.message) for one in self._found.refused]
        self._why_none: Final = dict([*refused, *[(one.key, one.message) for one in self._blocked]]) if joined else {}
        self.units: Final = tuple(sorted(found, key=lambda unit: view.first.isdisjoint(keys_of(unit))))
        self.order, last = self._ranked([one for one in those if one.key not in joined], ranked or in_turns)
        self.allowance: Final = Allowance(view, names.REASON_UNDERUTILIZED)
        self._turns: Final = turns_of(view)
        self.proposals: Final[list[Proposal]] = []
        self._gone: Final[set[str]] = set()
        self._dear: Final[
            dict[str, int]
        ] = {}  # without a cheaper node, whatever pays: how many moves had been accepted
        self._taken: Final[dict[str, tuple[Pod, ...]]] = {}
        asks = bool(self.order or self.units)
        self._shut: Final = self._closed(view) if asks else set()
        self._simulation = Simulation(view, prepared, self._shut, last) if asks else None
        self._open: Simulation | None = None
        self._soon: Final[dict[str, bool]] = {}

    # ------------------------------------------------------------------ who

    def _consolidatable(self, found: Candidates) -> Iterable[Candidate]:
        for one in found.eligible:
            why = unconsolidatable(one)
            if why:
                self._blocked.append(Blocked(one.key, one.node.pool, why, UNCONSOLIDATABLE))
            if why is not None:
                continue
            due, at = consolidatable_at(one.node, one.pool), self._view.snapshot.at
            if due is None:
                continue  # consolidateAfter cannot be read; its NodePool says so
            if due > at:
                after = one.pool.spec.disruption.consolidate_after
                self._quiet[one.key] = DisruptionVerdict(DisruptionStanding.NOT_DUE, came_or_went(after), due)
                self._rechecks.append(due)
            elif (still := self._view.restless.get(one.key)) is not None:
                self._quiet[one.key] = DisruptionVerdict(
                    DisruptionStanding.NOT_DUE,
                    Said("a pod was added or removed, or the node was initialized, a moment ago"),
                    max(still, at + SOON),
                )
                self._rechecks.append(at + RECHECK)
            else:
                yield one

    def of_unit(self, unit: NodeUnit) -> list[Candidate]:
        """Those of its nodes that may be consolidated by themselves."""
        return [self._in_units[key] for key in keys_of(unit) if key in self._in_units]

    def whole(self, unit: NodeUnit) -> tuple[Candidate, ...]:
        """All nodes of a unit, where they may be consolidated now; else nothing, and it is said why not, or when."""
        mine = self.of_unit(unit)
        quiet = {key: self._quiet[key] for key in keys_of(unit) if key in self._quiet}
        waits = [one for one in quiet.values() if one.standing is DisruptionStanding.NOT_DUE]
        due = max(waits, key=lambda one: one.until or self._view.snapshot.at, default=None)
        never = never_whole(unit, self._eligible)
        if due is not None and not never:
            self._quiet.update((one.key, due) for one in mine)
            return ()
        found = never or whole(unit, self._in_units, self._why_none, self._view, self.allowance)
        if isinstance(found, str):
            for one in mine:
                self.refuse(one, found)
            return ()
        if any(map(self.allowance.lacks, {one.node.pool for one in found})):
            return ()  # of one node: `_judge_rest` says it
        busy = next((one for one in found if not self.free(one)), None)
        if busy is None:
            return found
        if not self._turns.gangs.why_not(one.key for one in found):
            why = needs_others(unit.group, len(found), Said(f'Node "{busy.node.name}" is not disrupted: {TAKES_PODS}'))
            for one in found:
                if self.free(one):
                    self.refuse(one, why)
        return ()

    def _ranked(self, some: Sequence[Candidate], ranked: Ranked) -> tuple[tuple[Candidate, ...], list[str]]:
        """Who is judged when, and the names of the nodes in the order in which they would rather go."""
        turns = ranked(some, self._rates)
        first = self._view.first
        return tuple(sorted(turns, key=lambda one: one.key not in first)), [str(one.node.key) for one in turns]

    def reorder(self, ranked: Ranked) -> None:
        """Go on in another order."""
        self.order, last = self._ranked(self.order, ranked)
        self._dear.clear()
        if self._simulation is not None:
            self._simulation.prefer(last)

    def _closed(self, view: DisruptionView) -> set[str]:
        """Nodes that take no pod of a candidate: those that saw a pod come or go of late, and empty ones that will go themselves."""
        pools = {one.pool.metadata.name: one.pool for one in view.snapshot.pools}
        empty = {one.key for one in self._found.eligible if not one.pods}
        closed = set()
        for node in view.snapshot.nodes:
            pool = pools.get(node.pool)
            due = consolidatable_at(node, pool) if pool is not None and node.claim is not None else None
            if due is not None and (due > view.snapshot.at or node.key.name in empty):
                closed.add(str(node.key))
        return closed

    def free(self, one: Candidate) -> bool:
        """Whether nothing that was proposed so far has to do with the node, nor its pods' groups with anything that is under way."""
        simulation = self._simulation
        return (
            one.key not in self._gone
            and not (simulation is not None and str(one.node.key) in simulation.destinations)
            and not self._turns.gangs.why_not((one.key,))
        )

    def gone(self, one: Candidate) -> bool:
        """Whether the node goes by what was proposed so far."""
        return one.key in self._gone

    def by_now(self, one: Candidate) -> Candidate:
        """The node with the pods that it takes by what was proposed so far."""
        taken = self._taken.get(str(one.node.key))
        return replace(one, pods=one.pods + taken, cost=one.cost + costs.reschedule_cost(taken) - 1) if taken else one

    # ------------------------------------------------------------------ what

    def never_pays(self, some: Sequence[Candidate], max_new: int | None = None) -> str:
        """Why no move of these nodes can pay, whatever their pods' places, as users read it; "" where one may. A proof, without a question.

        Pods that some other node may take, each by itself, are taken to cost nothing, the rest the least that any nodes for them cost, of which there
        are `max_new` at most.
        """
        if self._simulation is None:
            return ""
        pods = self._simulation.needs_new_node(some)
        least = self._rates.at_least(pods, max_new)
        saving = sum(one.usd_per_hour for one in some) - least
        if self._rule.gain(some, saving, least) > 0:
            return ""
        return NEVER_PAYS if saving > 0 else replacement.NO_CHEAPER_NODE

    def judge(
        self, some: Sequence[Candidate], *, max_new: int, above: float = -math.inf, anew: bool = False
    ) -> Move | str:
        """What comes of it if these nodes go together; else why they do not, as users read it. One question.

        Money decides about the answer, not in it: a solver that may not pay more, or not open more nodes, gives up wishes and weights instead.
        Everything that takes no further question is looked at before the drain, which takes several.

        Args:
            some: the nodes.
            max_new: most nodes that may take their place.
            above: a move that brings no more than this is none; see `acceptance.AcceptanceRule.gain`.
            anew: none of them could stay without the others; see `replacement.settled`.
        """
        if self._simulation is None:
            return ""
        found: list[Move] = []

        def unpaid(result: Result) -> str:
            several = len(result.claims) > max_new
            return _several_replacements_needed(len(result.claims)) if several else self._why_not(some, result)

        def why_not(result: Result) -> str:
            move = unpaid(result) or self._weighed(some, result, anew=anew)
            if isinstance(move, str):
                return move
            found[:] = [move]
            return "" if move.gain > above else NEVER_PAYS

        price = sum(one.usd_per_hour for one in some)

        def hopeless(result: Result) -> str:
            least = self._rates.at_least([pod for claim in result.claims for pod in claim.pods], max_new)
            if self._rule.gain(some, price - least, least) > 0:
                return ""
            why = unpaid(result)
            return NEVER_PAYS if why == replacement.NO_CHEAPER_NODE and least < price else why

        answer = self._simulation.ask(some, for_money=True, max_new=max_new, pays=why_not, hopeless=hopeless)
        if answer.result is None:
            return answer.refusal
        return found[0] if found else self._weighed(some, answer.result, anew=anew)

    def rebuild(self, some: Sequence[Candidate]) -> Move | str:
        """What comes of it if these nodes go together for the cheapest others that are found; else as `judge`.

        Nodes that are in the way of the others stay: those with a pod that has no place, or that would come again as they are. One search, and
        `_TRIES` more.
        """
        simulation, improved = self._simulation, self._view.improved
        if simulation is None or improved is None:
            return ""
        found: Move | str = ""
        for _ in range(1 + _TRIES):
            if self.over or not some or self.never_pays(some):
                break
            answer = simulation.rebuild(some, improved, partial(self._why_not, some))
            spoilt = {pod.uid for pod in answer.spoilt}
            anew = len(some) >= FEWEST  # of two nodes for one of their type, the one could have stayed
            comes = answer.refusal if answer.result is None else self._weighed(some, answer.result, anew=anew)
            if isinstance(comes, Move) or not isinstance(found, Move):
                found = comes
            if answer.result is not None:
                spoilt = {pod.uid for claim in answer.result.claims for pod in claim.pods if _comes_again(claim, some)}
            if not spoilt:
                break
            some = [one for one in some if not any(pod.uid in spoilt for pod in one.pods)]
        return found

    def _why_not(self, some: Sequence[Candidate], result: Result) -> str:
        """Why it does not pay that these go for what comes by a result, "" where it does.

        More nodes than before must save their penalty as well: whoever buys reckons with it, and would buy the fewer again.
        """
        saving = sum(one.usd_per_hour for one in some) - result.usd_per_hour
        if len(result.claims) > 1:
            penalties = [self._penalties.get(one.pool, NODE_PENALTY) for one in result.claims]
            before = [self._penalties.get(one.node.pool, NODE_PENALTY) for one in some]
            if saving <= max(0.0, sum(penalties) - sum(before)):
                return _several_replacements_needed(len(penalties))
        return self._rule.refusal(some, saving, result.usd_per_hour)

    def _weighed(self, some: Sequence[Candidate], result: Result, *, anew: bool = False) -> Move | str:
        """The move, if it pays; else why it does not. `anew` as of `replacement.settled`."""
        if result.claims:
            if why := self._why_not(some, result):
                return why
            claims = self._simulation.as_judged(result.claims) if self._simulation is not None else result.claims
            settled = replacement.settled(some, claims, self._types, self._view.settings, anew=anew)
            if isinstance(settled, str):
                return settled
            if not are_apart(some) and any(
                is_settled(one, self._view) and not is_news(one, settled, self._types, self._view) for one in some
            ):
                return LAUNCHED_RECENTLY
            result = Result(settled, result.existing, ())
        if why := self._why_not(some, result):
            return why
        planned = result.usd_per_hour
        saving = sum(one.usd_per_hour for one in some) - planned
        if self._simulation is not None and (lost := self._simulation.given_up(some, result, self._types)):
            return would_save(saving, lost)
        move = Move(tuple(some), result, saving, self._rule.gain(some, saving, planned))
        return self.waits(move) or move

    def waits(self, move: Move) -> str:
        """Why a move waits until other nodes are drained, "" where it does not."""
        return self._turns.why_not(self.proposal(move, ""))

    def allows(self, some: Sequence[Candidate]) -> bool:
        """Whether budgets leave room for all of these nodes at once, and the groups of their pods may lose them."""
        waits = self._turns.gangs.why_not(one.key for one in some)
        return not waits and self.allowance.allows([one.node.pool for one in some])

    def first_step(self, move: Move) -> Move | None:
        """The first node of a move of several for one new node, to which the others follow one after another; None where they may not, or it is not worth it.

        Each of the others follows by a move of its own, if that pays and its pods still fit then. One whose pods fit on a node that takes none for
        now, such as one of an earlier step, needs no new one.

        For a pass that has accepted nothing. Cost: two questions about the first, and one about each node that was not in such a set before.
        """
        simulation = self._simulation
        if simulation is None or len(move.result.claims) != 1:
            return None
        first, *then = some = sorted(move.some, key=lambda one: (-one.usd_per_hour, one.cost, one.key))
        if not self.allows((first,)) or any(self._rule.refusal((one,), one.usd_per_hour, 0.0) for one in then):
            return None
        (claim,) = move.result.claims
        turn = _turn(some, claim, self._view)
        if turn is None or _is_late(some, turn, self._view.snapshot.at):
            return None
        types = self._types.of_pool(claim.pool)
        most = self._rule.most_one_by_one(some, turn)
        new = replacement.cheaper(some, claim, types, self._view.settings, most, sources=some)
        if isinstance(new, str):
            return None
        result = _share(replace(move.result, claims=(new,)), first.pods)
        if (
            not result.claims
            or simulation.goes_first(first, result)
            or simulation.given_up((first,), result, self._types)
            or any(self._fits_soon(one, simulation) for one in some)
        ):
            return None
        saving = sum(one.usd_per_hour for one in some) - new.usd_per_hour
        step = Move((first,), result, saving, self._rule.gain(some, saving, new.usd_per_hour), tuple(then))
        return None if self.waits(step) else step

    def _fits_soon(self, one: Candidate, simulation: Simulation) -> bool:
        """Whether the pods of a node fit on others once all of these take pods. Asked once for each node, while nothing is accepted."""
        if self._open is None:
            self._open = simulation.reopened(self._shut)
        world = self._open
        if one.key not in self._soon:
            lost = partial(world.given_up, (one,), types=self._types)
            alone = world.ask((one,), for_money=True, max_new=1, pays=lost)
            self._soon[one.key] = alone.result is not None and not alone.result.claims
        return self._soon[one.key]

    def sets(self, alone: Collection[str] = ()) -> Sets:
        """Sets of the nodes that are free by now; those that were bought a moment ago are in one only where there is news for them.

        Args:
            alone: the keys of those that could be replaced by themselves, however young they are.
        """
        view = self._view
        those = [one for one in self.order if self.free(one)]
        young = {
            one.key: one.claim.metadata.creation_timestamp or view.snapshot.at
            for one in those
            if one.key not in alone and is_settled(one, view)
        }
        kinds = derived(view.prepared, "kinds", priced_kinds) if view.prepared is not None else ()
        return Sets(those, kinds, self._rates, self._rule, young, view.prices)

    def rebuilds(self) -> list[tuple[Candidate, ...]]:
        """Nodes that are free by now, many together, whose pods may cost less on other nodes; see `rebuilding_choice.choices`.

        One node that may not be replaced, or will soon be gone, would spoil the whole of a choice, so none is in it.
        """
        view, budgets = self._view, self._view.snapshot.pod_budgets
        those = [
            one
            for one in self.order
            if self.free(one)
            and (view.settings.spot_to_spot or not one.spot)
            and self._rule.lasts(one)
            and not is_settled(one, view)
        ]

        def allowed(some: Sequence[Candidate]) -> bool:
            return self.allows(some) and budgets.waves(pod for one in some for pod in one.pods) <= MOST_WAVES

        return choices(those, margins(those, self._rates, self._rule), allowed)

    def accept(self, move: Move, method: str) -> None:
        """Propose a move; budgets must leave room for it."""
        if self._simulation is None:
            return
        self._simulation.accept(move.some, move.result)
        self.gain += self._rule.gain(move.some, move.saving, move.result.usd_per_hour, WHOLE)
        for one in move.some:
            self._gone.add(one.key)
            self.allowance.take(one.node)
        for name, pods in move.result.existing.items():
            self._taken[name] = (*self._taken.get(name, ()), *pods)
        self.proposals.append(proposal := self.proposal(move, method))
        self._turns.take(proposal)

    def proposal(self, move: Move, method: str) -> Proposal:
        """A move, as it is proposed."""
        return Proposal(
            names.REASON_UNDERUTILIZED,
            method,
            tuple(sorted(one.key for one in move.some)),
            move.result.claims,
            dict(move.result.existing),
            move.saving,
            self._rule.scores((*move.some, *move.then), move.saving),
            then=tuple(one.key for one in move.then),
        )

    @property
    def over(self) -> bool:
        """Whether the time of the pass is up."""
        return self._view.expired()

    def relax(self) -> bool:
        """See `acceptance.AcceptanceRule.relax`."""
        return self._rule.relax()

    def refuse(self, one: Candidate, why: str) -> None:
        """Say why a node stays; what is said last counts."""
        if why == replacement.NO_CHEAPER_NODE:
            self._dear[one.key] = len(self.proposals)
        event = "DisruptionBlocked" if why == WAITS_FOR_TIED else UNCONSOLIDATABLE
        self._refused[one.key] = Blocked(one.key, one.node.pool, why, event)

    def is_dear(self, one: Candidate) -> bool:
        """Whether it was found that no cheaper node is to be had, and nothing was accepted since: then that is so whatever pays by now."""
        return self._dear.get(one.key) == len(self.proposals)

    def answer(self, unreached: Iterable[Candidate] = ()) -> MethodAnswer:
        """All that was found out; whoever asks sees by itself when budgets leave more.

        Args:
            unreached: those that there was no time for.
        """
        unreached = list(unreached)
        self._judge_rest({one.key for one in unreached})
        return MethodAnswer(
            tuple(self.proposals),
            (
                *self._found.blocked,
                *self._blocked,
                # alone it stays; with others it goes
                *(one for key, one in self._refused.items() if key not in self._gone),
                *self.allowance.blocked,
            ),
            soonest(self._found.recheck_at, *self._rechecks),
            len(self.order) + len(self._in_units),
            frozenset(one.key for one in unreached),
            tuple(self._rule.rejected),
            self._simulation.judged if self._simulation is not None else {},
            self._quiet,
        )

    def _judge_rest(self, unreached: Collection[str]) -> None:
        """Say of each node that neither goes nor was refused what became of it."""
        for one in (*self.order, *self._in_units.values()):
            if one.key in self._gone:
                continue
            if one.key in unreached:
                self._refused.pop(one.key, None)
                self._quiet[one.key] = DisruptionVerdict(DisruptionStanding.NOT_REACHED, NOT_JUDGED)
            elif one.key in self._refused or one.key in self._quiet:
                continue
            elif why := self._turns.gangs.why_not((one.key,)):
                self._blocked.append(Blocked(one.key, one.node.pool, why))
            elif not self.free(one):
                if self._simulation is not None and (why := self._simulation.expects(one.node)):
                    self.refuse(one, why)
                else:
                    self._quiet[one.key] = DisruptionVerdict(DisruptionStanding.BLOCKED, TAKES_PODS)
            elif self.allowance.lacks(one.node.pool):
                self._quiet[one.key] = self.allowance.why(one.node.pool)
            else:
                self._quiet[one.key] = DisruptionVerdict(DisruptionStanding.NOT_REACHED, NOT_JUDGED)


def _turn(some: Iterable[Candidate], claim: PlannedClaim, view: DisruptionView) -> timedelta | None:
    """From one node that goes to the next: until then, the new node takes no pods of others; None where that cannot be told."""
    pools = [*(one.pool for one in some)]
    pools += [one.pool for one in view.snapshot.pools if one.pool.metadata.name == claim.pool]
    try:
        rests = [rest for pool in pools if (rest := consolidate_after(pool)) is not None]
    except ValueError:
        return None
    return max(rests) + OVERLAP


def _is_late(some: Iterable[Candidate], turn: timedelta, now: datetime) -> bool:
    """Whether budgets let one of these nodes go no more when its turn comes, or not yet."""
    return any(
        not disruptions_at_once(
            one.pool.spec.disruption.budgets,
            reason=names.REASON_UNDERUTILIZED,
            nodes=1,
            now=now + turns * turn,
        )
        for turns, one in enumerate(some)
    )


def _share(result: Result, pods: Iterable[Pod]) -> Result:
    """What becomes of some of its pods alone; a new node is for these, however large it is planned."""
    uids = {pod.uid for pod in pods}
    claims = []
    for claim in result.claims:
        others = Resources.total(pod.shape.requests for pod in claim.pods if pod.uid not in uids)
        own = tuple(pod for pod in claim.pods if pod.uid in uids)
        if own:
            claims.append(changed(claim, pods=own, requests=claim.requests - others))
    existing = {name: tuple(pod for pod in some if pod.uid in uids) for name, some in result.existing.items()}
    return Result(tuple(claims), {name: some for name, some in existing.items() if some}, ())


def _comes_again(claim: PlannedClaim, some: Iterable[Candidate]) -> bool:
    """Whether a new node would be what one that goes is, with the same pods."""
    mine = {pod.uid for pod in claim.pods}
    planned = [claim.planned_type, claim.planned_zone, claim.planned_capacity_type]
    return any({pod.uid for pod in one.pods} == mine and offering_of(one) == planned for one in some)


def unconsolidatable(one: Candidate) -> str | None:
    """Why consolidation leaves a node alone, "" where nobody needs to hear; None where it does not. Source: core spec 6.5."""
    pool, labels = one.pool, one.node.labels
    if pool.spec.replicas is not None:
        return ""
    if one.instance_type is None:
        return Said(f'Instance Type "{labels.get(names.INSTANCE_TYPE_LABEL, "")}" not found')
    for key in (names.CAPACITY_TYPE_LABEL, names.ZONE_LABEL):
        if not labels.get(key):
            return label_is_missing(key)
    if pool.spec.disruption.consolidate_after == NEVER:
        return Said(f'NodePool "{pool.metadata.name}" has consolidation disabled')
    if not any(is_reschedulable(pod) for pod in one.pods):
        return ""
    if pool.spec.disruption.consolidation_policy == "WhenEmpty":
        return Said(f'NodePool "{pool.metadata.name}" has consolidation policy WhenEmpty, but node is not empty')
    return None


def in_turns(some: Sequence[Candidate], rates: Rates, /) -> tuple[Candidate, ...]:
    """Those first that cost most above what their room is worth for each unit of disruption; pools take turns.

    Room on the nodes that stay is what lets others go, so it counts: a node of a good size and price keeps it for the pods of others.
    """
    worth = rates.for_load(one.requests for one in some)
    return _turns(
        some, {one.key: (one.usd_per_hour - _ROOM_SHARE * worth.of(one.node.allocatable)) / one.cost for one in some}
    )


def by_price(some: Sequence[Candidate], _rates: Rates | None = None, /) -> tuple[Candidate, ...]:
    """Those first that cost most for each unit of disruption, as in Karpenter; pools take turns."""
    return _turns(some, {one.key: one.usd_per_hour / one.cost for one in some})


def _turns(some: Sequence[Candidate], score: Mapping[str, float]) -> tuple[Candidate, ...]:
    by_pool: dict[str, list[Candidate]] = {}
    for one in sorted(some, key=lambda one: (-score[one.key], one.key)):
        by_pool.setdefault(one.node.pool, []).append(one)
    ranked = [(turn, pool, one) for pool, mine in by_pool.items() for turn, one in enumerate(mine)]
    return tuple(one for _, _, one in sorted(ranked, key=lambda entry: entry[:2]))
