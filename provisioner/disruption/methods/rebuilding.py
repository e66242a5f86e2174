"""Many nodes for the cheapest fleet that is found for their pods. Pure, but for whoever looks, who is lent like the clock: an answer may take seconds.

Differs: Karpenter replaces several nodes by one. What it lacks is the planner, which is asked here about the pods of up to 60 nodes at once.
"""

from dataclasses import replace
from typing import Final

from provisioner.disruption.methods.consolidation import SINGLE
from provisioner.disruption.methods.moves import Consolidation, Move
from provisioner.disruption.view import DisruptionView, MethodAnswer

METHOD: Final = "rebuild"
"""Of commands of several nodes; one of a single node counts as consolidation's."""


def propose(view: DisruptionView) -> MethodAnswer:
    """The one move of many nodes that brings most, if any pays; nothing where the view has nobody who looks.

    A pass of its own, after that of `consolidation`: what that one found has begun, and waits for no search. What pays is what brings more than
    it costs, also where any saving is accepted otherwise: such a move is never small. Why nodes stay has been said by then.

    Cost: as for candidates of `consolidation`; a question, a search and a judge for each of the few choices.
    """
    if view.prepared is None or view.improved is None:
        return MethodAnswer()
    work = Consolidation(view, view.prepared)
    work.relax()
    best: Move | None = None
    for some in work.rebuilds():
        found = work.rebuild(some)
        if isinstance(found, Move) and (best is None or found.gain > best.gain):
            best = found
    if best is not None:
        work.accept(best, METHOD if len(best.some) > 1 else SINGLE)
    return replace(work.answer(), blocked=(), eligible=0, quiet={})
