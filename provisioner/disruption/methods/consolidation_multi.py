"""Nodes that go together: into the room of others, or for fewer or cheaper nodes than they are. Pure. Source: core spec 6.10."""

from typing import Final

from provisioner.disruption.candidates import Candidate
from provisioner.disruption.consolidation import Consolidation, Move
from provisioner.disruption.view import MethodAnswer, View

METHOD: Final = "multi"
MOST: Final = 10
"""Nodes of one command."""
_PARTNERS: Final = 6
"""Nodes in a row that bring nothing to a set before it is closed."""
_LOOKS: Final = 64
"""Nodes that are looked at as partners of one."""
_MISSES: Final = 24
"""Questions that may bring nothing in one pass, and one more for every so many candidates:"""
_CANDIDATES_A_MISS: Final = 10


def propose(view: View) -> MethodAnswer:
    """Sets of nodes, each grown from the node whose disruption frees most money: one more joins while the gain of the whole grows.

    A set of m nodes may be replaced by any number below m. Sets that cannot pay by a proved bound are not asked about.

    Differs: Karpenter tries at most seven prefixes of its order, and one replacement.

    Cost: one question for each node that joins, and a bounded number of questions that bring nothing.
    """
    if view.prepared is None:
        return MethodAnswer()
    work = Consolidation(view, view.prepared)
    misses = _MISSES + len(work.order) // _CANDIDATES_A_MISS
    for number, seed in enumerate(work.order):
        if misses <= 0:
            break
        if not work.free(seed) or work.allowance.lacks(seed.node.pool):
            continue
        best, misses = _grown(work, number, misses)
        if best is not None:
            work.accept(best, METHOD)
    return work.answer()


def _grown(work: Consolidation, start: int, misses: int) -> tuple[Move | None, int]:
    """The best set that grows from one node, and how many questions may still bring nothing."""
    some: tuple[Candidate, ...] = (work.order[start],)
    best: Move | None = None
    failed = 0
    for other in work.order[start + 1 : start + 1 + _LOOKS]:
        if failed >= _PARTNERS or misses <= 0 or len(some) >= MOST:
            break
        trial = (*some, other)
        if not work.free(other) or not _within(work, trial) or not work.can_pay(trial):
            continue
        found = work.judge(trial, max_new=len(trial) - 1)
        if isinstance(found, Move) and (best is None or found.gain > best.gain):
            some, best, failed = trial, found, 0
        else:
            failed, misses = failed + 1, misses - 1
    return best, misses


def _within(work: Consolidation, some: tuple[Candidate, ...]) -> bool:
    pools = [one.node.pool for one in some]
    return not any(work.allowance.lacks(pool, pools.count(pool)) for pool in set(pools))
