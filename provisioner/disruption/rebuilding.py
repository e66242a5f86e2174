"""Which nodes may be worth building anew together: the most wasteful ones, many at once. Pure.

One new node for a few (`sets`) helps where they are nearly empty. A fleet that was bought little by little is full, and still has more nodes, and so
more daemons and more room of the wrong kind, than one that is bought at once: only many of its nodes together have pods enough for better ones.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from provisioner.disruption.candidates import Candidate

FEWEST: Final = 3
"""Nodes of one choice; fewer are judged otherwise."""
MOST_NODES: Final = 60
MOST_PODS: Final = 400
_SHARES: Final = (1.0, 0.75, 0.5, 0.33)
"""Of the nodes that may go, the most wasteful first."""


def choices(
    those: Iterable[Candidate], margins: Mapping[str, float], allows: Callable[[Sequence[Candidate]], bool]
) -> list[tuple[Candidate, ...]]:
    """A few ways to choose nodes that go together: shares of the most wasteful ones.

    Args:
        those: every node that may go.
        margins: by NodeClaim, what each brings where its pods cost the least that they can on new nodes, in USD; less than nothing for most.
        allows: whether budgets leave room for all of these at once.

    Cost: O(nodes log nodes), and a question to the budgets for each of `MOST_NODES` nodes.
    """
    ranked = sorted(those, key=lambda one: (-margins[one.key] / one.cost, one.key))
    mine = _allowed(_together(ranked, margins), allows)
    counts = dict.fromkeys(int(share * len(mine)) for share in _SHARES)
    return [mine[:count] for count in counts if count >= FEWEST]


def _together(ranked: Iterable[Candidate], margins: Mapping[str, float]) -> list[Candidate]:
    """As many of the first ones as may bring something together."""
    some: list[Candidate] = []
    pods, margin = 0, 0.0
    for one in ranked:
        margin += margins[one.key]
        pods += len(one.pods)
        if len(some) == MOST_NODES or pods > MOST_PODS or margin <= 0:
            break
        some.append(one)
    return some


def _allowed(some: Iterable[Candidate], allows: Callable[[Sequence[Candidate]], bool]) -> tuple[Candidate, ...]:
    found: list[Candidate] = []
    for one in some:
        if allows([*found, one]):
            found.append(one)
    return tuple(found)
