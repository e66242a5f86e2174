"""Nodes that go together for fewer or cheaper nodes than they are. Pure. Source: core spec 6.10."""

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
_QUESTIONS: Final = 100
"""Questions of one pass, and one more for every so many candidates:"""
_CANDIDATES_A_QUESTION: Final = 5


def propose(view: View) -> MethodAnswer:
    """Sets of nodes, each grown from the node whose disruption frees most money: one more joins, or two at
    once, while the gain of the whole grows.

    A set of m nodes may be replaced by any number below m. Nodes that can go alone, without a new node, are left to `consolidation_single`, and sets
    that cannot pay by a proved bound are not asked about.

    Differs: Karpenter tries at most seven prefixes of its order, and one replacement; nodes that need none make one command there.

    Cost: O(nodes + pods), and questions for a fifth of the candidates.
    """
    return MethodAnswer() if view.prepared is None else _Search(Consolidation(view, view.prepared)).answer()


class _Search:
    def __init__(self, work: Consolidation) -> None:
        self._work: Final = work
        self._left = _QUESTIONS + len(work.order) // _CANDIDATES_A_QUESTION
        self._alone: Final[dict[str, bool]] = {}

    def answer(self) -> MethodAnswer:
        work = self._work
        unreached: tuple[Candidate, ...] = ()
        for number, seed in enumerate(work.order):
            if self._left <= 0:
                break
            if work.over:
                unreached = work.order[number:]
                break
            if work.allowance.lacks(seed.node.pool) or not self._joins(seed):
                continue
            best = self._grown(number)
            if best is not None:
                work.accept(best, METHOD)
        return work.answer(unreached)

    def _grown(self, start: int) -> Move | None:
        """The best set that grows from one node."""
        work = self._work
        some: tuple[Candidate, ...] = (work.order[start],)
        best: Move | None = None
        spare: Candidate | None = None
        failed = 0
        for other in work.order[start + 1 : start + 1 + _LOOKS]:
            if failed >= _PARTNERS or len(some) >= MOST or work.over:
                break
            if not self._joins(other):
                continue
            found = self._better((*some, other), best)
            if found is None and spare is not None:
                found = self._better((*some, spare, other), best)
            if found is None:
                failed, spare = failed + 1, other
            else:
                some, best, failed, spare = found.some, found, 0, None
        return best

    def _better(self, some: tuple[Candidate, ...], best: Move | None) -> Move | None:
        """What comes of a larger set; None where that is no more than `best`."""
        if self._left <= 0 or len(some) > MOST or not self._within(some) or not self._work.can_pay(some):
            return None
        self._left -= 1
        found = self._work.judge(some, max_new=len(some) - 1)
        return found if isinstance(found, Move) and (best is None or found.gain > best.gain) else None

    def _joins(self, one: Candidate) -> bool:
        """Whether the node is free, and cannot go by itself."""
        if not self._work.free(one):
            return False
        alone = self._alone.get(one.key)
        if alone is None:
            alone = self._work.can_pay((one,))
            if alone:
                self._left -= 1
                alone = isinstance(self._work.judge((one,), max_new=0), Move)
            self._alone[one.key] = alone
        return not alone

    def _within(self, some: tuple[Candidate, ...]) -> bool:
        pools = [one.node.pool for one in some]
        return not any(self._work.allowance.lacks(pool, pools.count(pool)) for pool in set(pools))
