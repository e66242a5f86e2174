"""Nodes whose pods fit elsewhere, or on a cheaper node, or on two: one by one. Pure. Source: core spec 6.9, 6.11."""

from typing import Final

from provisioner.disruption.candidates import Candidate
from provisioner.disruption.consolidation import Consolidation, Move
from provisioner.disruption.view import MethodAnswer, View

METHOD: Final = "single"
NEW: Final = 2
"""Most nodes that take the place of one."""
NEVER_PAYS: Final = "Moving its pods does not save enough to justify the disruption"


def propose(view: View) -> MethodAnswer:
    """Every node that pays, each after those before it, within budgets: first those that need no new node, then by what they bring.

    Every candidate is judged in every pass: by a question, or by the proof that no answer to it could pay. Where time is up, the rest comes first
    in the next pass.

    Differs: Karpenter proposes one node a pass and never makes two nodes of one.

    Cost: O(nodes + pods), and one question for each candidate; one more for each that needs a new node.
    """
    if view.prepared is None:
        return MethodAnswer()
    work = Consolidation(view, view.prepared)
    later: list[Move] = []
    unreached: list[Candidate] = []
    for number, one in enumerate(work.order):
        if work.over:
            unreached += work.order[number:]
            break
        if not work.free(one) or work.allowance.lacks(one.node.pool):
            continue
        if not work.can_pay((one,)):
            work.refuse(one, NEVER_PAYS)
            continue
        found = work.judge((one,), max_new=NEW)
        if not isinstance(found, Move):
            work.refuse(one, found)
        elif found.result.claims:
            later.append(found)
        else:
            work.accept(found, METHOD)
    for move in sorted(later, key=lambda move: (-move.gain / move.some[0].cost, move.some[0].key)):
        (one,) = move.some
        if work.over:
            unreached.append(one)
            continue
        if not work.free(one) or work.allowance.lacks(one.node.pool):
            continue
        found = work.judge((one,), max_new=NEW)
        if isinstance(found, Move):
            work.accept(found, METHOD)
        else:
            work.refuse(one, found)
    return work.answer(unreached)
