"""Pods that their scheduler goes on refusing although there is a place for them in the world as it is modelled.

Something keeps them from it that nobody here knows of: storage that is full, a plugin, a scheduler that is busy. For a while the place is theirs, since
a scheduler may be late. After that they take no room in simulations, so that they hold no disruption for ever.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

PATIENCE: Final = timedelta(seconds=60)
"""For so long a pod that is refused keeps the place that it has in simulations."""


@dataclass(frozen=True, slots=True)
class SimulatedRefusals:
    """What simulations have found so far; a value.

    Attributes:
        known: by UID of a pod, since when it has had a place (seconds of the monotonic clock), and the key of the node.
    """

    known: Mapping[str, tuple[float, str]] = field(default_factory=dict)

    def noted(self, judged: Mapping[str, str], unbound: Container[str], now: float) -> "SimulatedRefusals":
        """The same after another simulation.

        Args:
            judged: by UID, each refused pod that was simulated, with the key of the initialized node that has a place for it, "" for none.
            unbound: UIDs of the pods that have no node yet, planned or not; all others are forgotten.
            now: seconds of the monotonic clock.
        """
        kept = {uid: one for uid, one in self.known.items() if uid in unbound and judged.get(uid) != ""}
        found = {uid: kept.get(uid, (now, node)) for uid, node in judged.items() if node and uid in unbound}
        return SimulatedRefusals(kept | found)

    def over(self, now: float) -> Mapping[str, str]:
        """By UID, the pods that take no room any more, with the key of the node that has a place for them."""
        patience = PATIENCE.total_seconds()
        return {uid: node for uid, (since, node) in self.known.items() if now - since >= patience}

    def next_over(self, now: float) -> timedelta | None:
        """How soon another one is over; None where none is going to be."""
        left = [PATIENCE.total_seconds() - (now - since) for since, _ in self.known.values()]
        return min((timedelta(seconds=one) for one in left if one > 0), default=None)


NONE: Final = SimulatedRefusals()
