"""Nodes whose pods fit elsewhere, or for less on other nodes: alone, then several together. Source: core spec 6.9-6.11."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from provisioner.disruption.acceptance import AcceptanceRule
from provisioner.disruption.candidates import Candidate, CandidateTypes, candidates
from provisioner.disruption.gangs import moves_together
from provisioner.disruption.methods.candidate_sets import MOST, POOL, ZONE, Labels, Sets
from provisioner.disruption.methods.moves import Consolidation, Move, by_price, in_turns, would_save
from provisioner.disruption.proposal import Proposal
from provisioner.disruption.simulation.foresight import Play, ahead
from provisioner.disruption.simulation.simulator import STEPS
from provisioner.disruption.simulation.wishes import given_up
from provisioner.disruption.view import DisruptionView, MethodAnswer
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.problem import Changes, PreferencePolicy
from provisioner.state.pause import Activity

SINGLE: Final = "single"
MULTI: Final = "multi"
"""Of one node and of several: the types of consolidation that Karpenter's metrics know. A pass does both, and counts as the first."""
NEW: Final = 2
"""Most nodes that take the place of one."""
SMALL: Final = 250
"""With so many candidates or fewer, passes are made after Karpenter's sequence as well, and the best one counts,"""
_MANY: Final = 10
"""if one candidate in so many can go: else the beginning hardly matters."""
_NEAR: Final = 0.95
"""Of what the best pass brings by itself: those that bring less are behind. Of the others the next passes are played:"""
_PASSES: Final = 2
"""so many."""
_TRIES: Final = 3
"""Sets that are asked about for each node from which they grow."""
_BARREN: Final = 64
"""Nodes in a row of which no set promises anything; those after them have less to bring."""
_MOST_TOGETHER, _SHARE_TOGETHER = 100, 0.1
"""Nodes that go together for one new node in Karpenter's sequence: so many, and such a share of the candidates."""
_QUESTIONS: Final = 100
"""Questions about sets in one pass, and one more for every so many candidates:"""
_CANDIDATES_A_QUESTION: Final = 5
_POOLS_TOLD: Final = 20
"""NodePools that are asked about one node; of more, the others are not told of."""
_Found: TypeAlias = tuple[Consolidation, list[Candidate]]
"""A pass, and whom it did not come to."""


def propose(view: DisruptionView) -> MethodAnswer:
    """Every move that pays, each after those before it, within budgets.

    First every node by itself, most saved for each unit of disruption first: those that need no new node go. Every candidate is judged in
    every pass: by a question, or by the proof that no answer to it could pay. Where time is up, the rest comes first in the next pass,
    and nodes that were found to be too dear are replaced one by one. Then replacements: of one node by one or two, and of sets of m nodes
    by any number below m, whatever brings most. A set is taken where it brings more than its nodes do alone.

    All of this is done with what pays soon, then with what pays at all, and where any saving pays, with that: a move that saves next to nothing
    takes no node from one that saves much.

    No order is best for every fleet. So where the fleet is small enough, many nodes can go and there is time, all of this is also done after
    what Karpenter would do, in two ways: pods go to the nodes last that are the next to go in its order, or in ours. Of these passes the one
    is proposed after which most is saved by as many evictions once the next passes are played, too, unless one brings clearly most by itself.

    Nodes of PodGroups that lose all pods at once or none go last, if their owner allows that. Where nothing goes and no command is under way, a set
    that is larger than budgets allow begins with one of its nodes; see `Consolidation.first_step`.

    Differs: Karpenter proposes one command a pass, of several nodes if any prefix of its order can go for one new node, else of one;
    it never makes two nodes of one, and nodes that need none make one command there.

    Cost: O(nodes + pods), one question for each candidate, one more for each that needs a new node, and for sets a fifth of the candidates; two or
    three times that, once for each of what pays, and up to nine times for small fleets; where nothing goes, besides `_TRIES`
    for each of `_BARREN` nodes, one for each node of a set that pays, and what it takes to see whether the others would follow, `MOST` times.
    """
    if view.prepared is None:
        return MethodAnswer()
    work, left = _best(view, view.prepared)
    unreached = [*left, *_units(work)]
    if not work.proposals and not unreached and not view.under_way:
        _one_by_one(view, view.prepared, work)
    return work.answer(unreached)


def _best(view: DisruptionView, prepared: Prepared) -> _Found:
    """A pass, or the best of several where the fleet is small."""
    found = [_searched(Consolidation(view, prepared))]
    work = found[0][0]
    if not len(work.proposals) * _MANY >= len(work.order) > 0 or len(work.order) > SMALL:
        return found[0]
    for order in (by_price, in_turns):
        other = Consolidation(view, prepared, order)
        _karpenters(other)
        other.reorder(in_turns)
        found.append(_searched(other))
    if not work.over:  # else what others have found is cut off
        least = _NEAR * max(one.gain for one, _ in found)
        found = [one for one in found if one[0].gain >= least]
    return found[0] if work.over or len(found) == 1 else _ahead(view, prepared, found)


def _units(work: Consolidation) -> list[Candidate]:
    """Accept, of nodes that go all at once or not at all, those whose pods cost less elsewhere; whom the pass did not come to.

    After all others: the evictions of a whole job are the dearest.
    """
    unreached: list[Candidate] = []
    for unit in work.units:
        if work.over:
            unreached += work.of_unit(unit)
            continue
        some = work.whole(unit)
        if not some:
            continue
        found = work.never_pays(some, len(some)) or work.judge(some, max_new=len(some), anew=len(some) > 1)
        if isinstance(found, Move):
            work.accept(found, MULTI)
            continue
        for one in some:
            work.refuse(one, found)
    return unreached


def _ahead(view: DisruptionView, prepared: Prepared, found: Sequence[_Found]) -> _Found:
    """The pass that leads to most saved by as many evictions: what follows each is played."""
    plays = []
    for one in found:
        play = Play(view, prepared)
        play.carry_out(one[0].proposals)
        play.go_on(_going_on, _PASSES)
        plays.append((one, play.curve))
    return ahead(plays)


def _going_on(view: DisruptionView, prepared: Prepared) -> Sequence[Proposal]:
    """What is played after the first pass; what brings less than it costs decides nothing."""
    work = Consolidation(view, prepared)
    _searched_once(work)
    return work.proposals


def _searched(work: Consolidation) -> tuple[Consolidation, list[Candidate]]:
    """A pass over what is free, and whom it did not come to: what pays soon, then what is accepted besides."""
    left = _searched_once(work)
    while not left and work.relax():
        left = _searched_once(work)
    return work, left


def _searched_once(work: Consolidation) -> list[Candidate]:
    alone: dict[str, Move] = {}
    for number, one in enumerate(work.order):
        if work.over:
            return [*_at_once(work, alone), *work.order[number:]]
        if not work.free(one) or work.allowance.lacks(one.node.pool) or work.is_dear(one):
            continue
        if why := work.never_pays((one,), NEW):
            work.refuse(one, why)
            continue
        found = work.judge((one,), max_new=NEW)
        if not isinstance(found, Move):
            work.refuse(one, found)
        elif found.result.claims:
            alone[one.key] = found
        else:
            work.accept(found, SINGLE)
    return _replaced(work, alone)


def _karpenters(work: Consolidation) -> None:
    """Accept what Karpenter would do one after another, until it would give up a node whose pods it has only just placed."""
    hopeless: set[tuple[str, int]] = set()
    together = True
    while not work.over:
        order = by_price([work.by_now(one) for one in work.order if not work.gone(one)])
        move = _several(work, order) if together else None
        together = move is not None
        move = move or _next(work, order, hopeless)
        if move is None or not all(map(work.free, move.some)):
            return
        work.accept(move, MULTI if together else SINGLE)


def _several(work: Consolidation, order: Sequence[Candidate]) -> Move | None:
    """As many of the first nodes as can go together for one new node, by bisection; None where two cannot."""
    most = min(_MOST_TOGETHER, max(1, round(_SHARE_TOGETHER * len(order))))
    low, high, best = 2, min(most, len(order)), None
    while low <= high:
        middle = (low + high) // 2
        found = work.judge(order[:middle], max_new=1) if work.allows(order[:middle]) else ""
        if isinstance(found, Move):
            best, low = found, middle + 1
        else:
            high = middle - 1
    return best


def _next(work: Consolidation, order: Sequence[Candidate], hopeless: set[tuple[str, int]]) -> Move | None:
    """The first node that can go by itself for one new node or none. `hopeless`: those that could not, with so many pods; it grows."""
    for one in order:
        looks = one.key, len(one.pods)
        if looks in hopeless or work.over:
            continue
        found = work.judge((one,), max_new=1) if work.allows((one,)) and not work.never_pays((one,), 1) else ""
        if isinstance(found, Move):
            return found
        hopeless.add(looks)
    return None


def _at_once(work: Consolidation, alone: Mapping[str, Move]) -> list[Candidate]:
    """Accept, where time is up, what was found to pay and moves no pod to a node that others may have filled since; returns the others."""
    left = []
    for move in sorted(alone.values(), key=lambda move: (-move.gain / move.some[0].cost, move.some[0].key)):
        (one,) = move.some
        if not work.free(one) or work.allowance.lacks(one.node.pool) or work.waits(move):
            continue
        if move.result.existing:
            left.append(one)
        else:
            work.accept(move, SINGLE)
    return left


def _replaced(work: Consolidation, alone: Mapping[str, Move]) -> list[Candidate]:
    """Accept what needs new nodes; returns who could be replaced and was not come to. `alone`: what each node brought when it was asked about by itself."""
    sets = work.sets(alone)
    left = _QUESTIONS + len(work.order) // _CANDIDATES_A_QUESTION
    seeds = {move.some[0].key: (move.gain / move.some[0].cost, move.some[0]) for move in alone.values()}
    for one in sets.seeds():
        seeds.setdefault(one.key, (sets.margins[one.key] / one.cost, one))
    refused = set[frozenset[str]]()
    unreached, barren = [], {True: 0, False: 0}  # young nodes, of which few may have news, do not end it for others
    for _, one in sorted(seeds.values(), key=lambda entry: (-entry[0], entry[1].key)):
        own = alone.get(one.key)
        if work.over:
            unreached += [one] if own is not None else []
            continue
        if not work.free(one) or work.allowance.lacks(one.node.pool):
            continue
        together: Move | None = None
        young = one.key in sets.young
        if left > 0 and barren[young] < _BARREN and one.key in sets.margins:
            together, asked = _together(work, sets, one, alone, min(left, _TRIES), refused)
            left, barren[young] = left - asked, 0 if asked else barren[young] + 1
        if together is not None:
            refused.clear()  # in another world they may bring more
            work.accept(together, MULTI)
        elif own is not None:
            found = work.never_pays((one,), NEW) or work.judge((one,), max_new=NEW)
            if isinstance(found, Move):
                refused.clear()
                work.accept(found, SINGLE)
            else:
                work.refuse(one, found)
    return unreached


def _together(
    work: Consolidation, sets: Sets, seed: Candidate, alone: Mapping[str, Move], most: int, refused: set[frozenset[str]]
) -> tuple[Move | None, int]:
    """The first set with a node, of the most promising, that brings more than its nodes do alone; and how many were asked about.

    `refused`: sets that bring no more; it grows.
    """
    asked = 0
    for promised, some in _promising(sets, seed, work.free):
        keys = frozenset(one.key for one in some)
        by_themselves = sum(alone[one.key].gain for one in some if one.key in alone)
        if (
            promised <= by_themselves
            or keys in refused
            or not work.allows(some)
            or work.never_pays(some, len(some) - 1)
        ):
            continue
        asked += 1
        found = work.judge(some, max_new=len(some) - 1, above=by_themselves)
        if isinstance(found, Move):
            return found, asked
        refused.add(keys)
        if asked == most:
            break  # before more sets are grown
    return None, asked


def _promising(
    sets: Sets, seed: Candidate, free: Callable[[Candidate], bool]
) -> Iterator[tuple[float, tuple[Candidate, ...]]]:
    """Sets with a node, each with what it may bring: the most promising, then by turns those of nodes that are like it and the others.

    Sizes do not tell that pods are spread over zones, or may run on nodes of one NodePool alone; then sets of several zones or NodePools
    promise as much as those of one, and bring nothing.
    """
    told = set[frozenset[str]]()

    def grown(labels: Labels) -> Iterator[tuple[float, tuple[Candidate, ...]]]:
        yield from sets.grown(seed, free, labels)

    turns = deque([grown(()), grown(ZONE + POOL), grown(POOL), grown(ZONE)])
    while turns:
        entry = next(turns[0], None)
        if entry is None:
            turns.popleft()
            continue
        turns.rotate(-1)
        keys = frozenset(one.key for one in entry[1])
        if keys not in told:
            told.add(keys)
            yield entry


def _one_by_one(view: DisruptionView, prepared: Prepared, work: Consolidation) -> None:
    """Accept the first node of a set that budgets do not let go together, if one is worth it; for when nothing else goes."""
    sets, stuck, refused = work.sets(), set[str](), set[frozenset[str]]()
    tight = [one for one in sets.seeds() if 0 < work.allowance.left(one.node.pool) < MOST]
    for seed in tight[:_BARREN]:
        if work.over:
            return
        if seed.key in stuck:
            continue
        asked = 0
        for _, some in _promising(sets, seed, lambda one: one.key not in stuck and work.free(one)):
            if asked == _TRIES or work.over:
                break
            keys = frozenset(one.key for one in some)
            if not stuck.isdisjoint(keys) or keys in refused or work.allows(some) or work.never_pays(some, 1):
                continue
            asked += 1
            refused.add(keys)
            found = work.judge(some, max_new=1)
            if not isinstance(found, Move) or (step := work.first_step(found)) is None:
                continue
            stays = _stays(view, prepared, work.proposal(step, SINGLE))
            if not stays:
                work.accept(step, SINGLE)
                return
            stuck.add(stays)
            if len(stuck) == MOST:
                return


def _stays(view: DisruptionView, prepared: Prepared, step: Proposal) -> str:
    """The first NodeClaim that cannot follow a first step without a new node, each after those before it, if nothing else happens; "" where all can.

    Cost: a pass's beginning and a question for each that follows.
    """
    play = Play(view, prepared)
    play.carry_out([step])
    for key in step.then:
        after = Consolidation(play.view, play.prepared)
        while after.relax():
            pass
        one = next((each for each in after.order if each.key == key), None)
        if one is None or not after.free(one) or not after.allows((one,)):
            return key
        found = after.judge((one,), max_new=1)
        if not isinstance(found, Move) or found.result.claims:
            return key
        play.carry_out([after.proposal(found, SINGLE)])
    return ""


def held(view: DisruptionView, key: str) -> str:
    """Which wish or weight alone holds a node, what giving it up would save, and how to allow that; "" where none does.

    Each NodePool is asked by itself, as if there were no wishes. For whoever asks about one node: no pass does this.

    Cost: a world of its own, and a question for each of the first `_POOLS_TOLD` NodePools.
    """
    if view.prepared is None:
        return ""
    found = candidates(view, Activity.CONSOLIDATION)
    one = next((one for one in found.eligible if one.key == key and one.pods), None)
    if one is None or moves_together(one.pods, view.snapshot.together):
        return ""
    prepared, types = view.prepared, CandidateTypes(view)
    rule = AcceptanceRule(view, types)
    rule.relax()
    frank = prepare(replace(prepared.world, preferences=PreferencePolicy.IGNORE))
    best, text = 0.0, ""
    for pool in prepared.world.pools[:_POOLS_TOLD]:
        world = frank.updated(Changes(pools=(pool,)))
        result = world.solve(one.pods, leaving=(str(one.node.key),), effort=0, explain=False, budget=STEPS)
        saving = one.usd_per_hour - result.usd_per_hour
        if result.unplaced or saving <= best or rule.refusal((one,), saving, result.usd_per_hour):
            continue
        lost = given_up(prepared, {each.name: each for each in prepared.world.bins}, (one,), result, types)
        if lost:
            best, text = saving, would_save(saving, lost)
    return text
