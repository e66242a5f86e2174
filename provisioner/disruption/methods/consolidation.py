"""Nodes whose pods fit elsewhere, or for less on other nodes: alone, then several together. Pure. Source: core spec 6.9-6.11."""

from collections.abc import Mapping
from typing import Final

from provisioner.disruption import messages
from provisioner.disruption.candidates import Candidate
from provisioner.disruption.consolidation import Consolidation, Move, by_price
from provisioner.disruption.sets import Sets
from provisioner.disruption.view import MethodAnswer, View

SINGLE: Final = "single"
MULTI: Final = "multi"
"""Of one node and of several: the types of consolidation that Karpenter's metrics know. A pass does both, and counts as the first."""
NEW: Final = 2
"""Most nodes that take the place of one."""
NEVER_PAYS: Final = messages.SAVES_TOO_LITTLE
SMALL: Final = 500
"""With so many candidates or fewer, a pass is made in Karpenter's order as well, and the better one of the two counts,"""
_MANY: Final = 10
"""if one candidate in so many can go: else the order hardly matters."""
_TRIES: Final = 3
"""Sets that are asked about for each node from which they grow."""
_BARREN: Final = 64
"""Nodes in a row of which no set promises anything; those after them have less to bring."""
_MOST_TOGETHER, _SHARE_TOGETHER = 100, 0.1
"""Nodes that go together for one new node in Karpenter's sequence: so many, and such a share of the candidates."""
_QUESTIONS: Final = 100
"""Questions about sets in one pass, and one more for every so many candidates:"""
_CANDIDATES_A_QUESTION: Final = 5


def propose(view: View) -> MethodAnswer:
    """Every move that pays, each after those before it, within budgets.

    First every node by itself, most saved for each unit of disruption first: those that need no new node go. Every candidate is judged in
    every pass: by a question, or by the proof that no answer to it could pay. Where time is up, the rest comes first in the next pass,
    and nodes that were found to be too dear are replaced one by one. Then replacements: of one node by one or two, and of sets of m nodes
    by any number below m, whatever brings most. A set is taken where it brings more than its nodes do alone.

    No order is best for every fleet. So where the fleet is small enough, many nodes can go and there is time, all of this is done three times:
    in the order of `in_turns`, in Karpenter's, and so again after what Karpenter would do of several nodes at once. The pass that brings
    more, less what it costs, is proposed.

    Differs: Karpenter proposes one command a pass, of several nodes if any prefix of its order can go for one new node, else of one;
    it never makes two nodes of one, and nodes that need none make one command there.

    Cost: O(nodes + pods), one question for each candidate, one more for each that needs a new node, and for sets a fifth of the candidates; three times
    that with more orders.
    """
    if view.prepared is None:
        return MethodAnswer()
    work, left = _searched(Consolidation(view, view.prepared))
    if len(work.proposals) * _MANY >= len(work.order) > 0 and len(work.order) <= SMALL:
        for several_first in (False, True):
            if work.over:
                break
            other = Consolidation(view, view.prepared, by_price)
            if several_first:
                _prefixes(other)
            other, others = _searched(other)
            if other.gain > work.gain and not other.over:
                work, left = other, others
    return work.answer(left)


def _searched(work: Consolidation) -> tuple[Consolidation, list[Candidate]]:
    """A pass in one order; and whom it did not come to."""
    alone: dict[str, Move] = {}
    for number, one in enumerate(work.order):
        if work.over:
            return work, [*_at_once(work, alone), *work.order[number:]]
        if not work.free(one) or work.allowance.lacks(one.node.pool):
            continue
        if not work.can_pay((one,)):
            work.refuse(one, NEVER_PAYS)
            continue
        found = work.judge((one,), max_new=NEW)
        if not isinstance(found, Move):
            work.refuse(one, found)
        elif found.result.claims:
            alone[one.key] = found
        else:
            work.accept(found, SINGLE)
    return work, _replaced(work, alone)


def _prefixes(work: Consolidation) -> None:
    """Accept what Karpenter would propose one after another: as many of the next nodes as can go together for one new node."""
    while not work.over:
        listed = [one for one in work.order if work.free(one)]
        most = min(_MOST_TOGETHER, max(1, round(_SHARE_TOGETHER * len(work.order))))
        low, high, best = 2, min(most, len(listed)), None
        while low <= high:
            middle = (low + high) // 2
            found = work.judge(listed[:middle], max_new=1) if work.allows(listed[:middle]) else ""
            if isinstance(found, Move):
                best, low = found, middle + 1
            else:
                high = middle - 1
        if best is None:
            return
        work.accept(best, MULTI)


def _at_once(work: Consolidation, alone: Mapping[str, Move]) -> list[Candidate]:
    """Accept, where time is up, what was found to pay and moves no pod to a node that others may have filled since; returns the others."""
    left = []
    for move in sorted(alone.values(), key=lambda move: (-move.gain / move.some[0].cost, move.some[0].key)):
        (one,) = move.some
        if not work.free(one) or work.allowance.lacks(one.node.pool):
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
            together, asked = _together(work, sets, one, alone, min(left, _TRIES))
            left, barren[young] = left - asked, 0 if asked else barren[young] + 1
        if together is not None:
            work.accept(together, MULTI)
        elif own is not None:
            found = work.judge((one,), max_new=NEW)
            if isinstance(found, Move):
                work.accept(found, SINGLE)
            else:
                work.refuse(one, found)
    return unreached


def _together(
    work: Consolidation, sets: Sets, seed: Candidate, alone: Mapping[str, Move], most: int
) -> tuple[Move | None, int]:
    """The first set with a node, of the most promising, that brings more than its nodes do alone; and how many were asked about."""
    asked = 0
    for promised, some in sets.grown(seed, work.free):
        by_themselves = sum(alone[one.key].gain for one in some if one.key in alone)
        if asked == most or promised <= 0:
            break
        if promised <= by_themselves or not work.allows(some) or not work.can_pay(some):
            continue
        asked += 1
        found = work.judge(some, max_new=len(some) - 1)
        if isinstance(found, Move) and found.gain > by_themselves:
            return found, asked
    return None, asked
