"""Which nodes may be worth building anew together: the most wasteful ones, many at once.

One new node for a few (`candidate_sets`) helps where they are nearly empty. A fleet that was bought little by little is full, and still has more nodes, and so
more daemons and more room of the wrong kind, than one that is bought at once: only many of its nodes together have pods enough for better ones.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from provisioner.disruption.candidates import Candidate

FEWEST: Final = 3
"""Nodes of one choice, if not all of them bring something by themselves."""
MOST_NODES: Final = 60
MOST_PODS: Final = 400
MOST_WAVES: Final = 4
"""In which PodDisruptionBudgets let the pods of one choice be evicted, at the least: the old nodes are paid for until the last one is over."""
_REFUSED: Final = 200
"""Nodes that are passed over, for budgets or too many pods, before no more are looked for."""
_SHARES: Final = (1.0, 0.75, 0.5, 0.33)
"""Of the nodes that may go, the most wasteful first."""


def choices(
    those: Iterable[Candidate], margins: Mapping[str, float], allows: Callable[[Sequence[Candidate]], bool]
) -> list[tuple[Candidate, ...]]:
    """A few ways to choose nodes that go together: shares of the most wasteful ones; those first that bring something by themselves, however few.

    Args:
        those: every node that may go.
        margins: by NodeClaim, what each brings where its pods cost the least that they can on new nodes, in USD; less than nothing for most.
        allows: whether budgets and PodDisruptionBudgets leave room for all of these at once.

    Cost: O(nodes log nodes), and a question to the budgets for each node that goes, and for `_REFUSED` that do not.
    """
    ranked = sorted(those, key=lambda one: (-margins[one.key] / one.cost, one.key))
    mine = _together(ranked, margins, allows)
    own = sum(margins[one.key] > 0 for one in mine)
    counts = [count for share in _SHARES if (count := int(share * len(mine))) >= FEWEST]
    return [mine[:count] for count in dict.fromkeys((own, *counts)) if count]


def _together(
    ranked: Iterable[Candidate], margins: Mapping[str, float], allows: Callable[[Sequence[Candidate]], bool]
) -> tuple[Candidate, ...]:
    """As many of the first ones as may bring something together, less those that are too much beside the ones before them."""
    some: list[Candidate] = []
    pods, margin, refused = 0, 0.0, 0
    for one in ranked:
        if len(some) == MOST_NODES or refused == _REFUSED or margin + margins[one.key] <= 0:
            break
        if pods + len(one.pods) > MOST_PODS or not allows([*some, one]):
            refused += 1
            continue
        margin += margins[one.key]
        pods += len(one.pods)
        some.append(one)
    return tuple(some)
