"""What a Node still lacks of what is planned there, so that kube-scheduler refuses the pods that need it: resources and CSI drivers."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from provisioner.apis.core import Node
from provisioner.state.keys import NodeKey

ABSENT_SECONDS: Final = 60.0
"""A CSI driver whose pod starts or restarts is on its node again long before."""


class Lacking(NamedTuple):
    """What is lacking, sorted.

    Attributes:
        resources: requested ones that no device plugin has registered.
        drivers: CSI drivers that pods' volumes need and the Node's CSINode does not list.
    """

    resources: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()


NOTHING = Lacking()


def resources_of(node: Node) -> frozenset[str]:
    """The resources of which a Node has some. Of one whose device plugin is not there yet, or restarts, it tells no amount, or 0."""
    return frozenset(name for name, amount in node.status.allocatable.items() if str(amount) != "0")


class AbsentDrivers:
    """Which of the CSI drivers that initialized nodes lack are not expected there any more. Not thread-safe; times are monotonic seconds.

    Args:
        seconds: for so long a driver is expected from when it was first seen to be missing.
    """

    def __init__(self, seconds: float = ABSENT_SECONDS) -> None:
        self._seconds = seconds
        self._since: dict[NodeKey, dict[str, float]] = {}
        self._expected: dict[NodeKey, float] = {}  # until when the next of a node's drivers is

    def note(self, key: NodeKey, missing: Iterable[str], now: float) -> frozenset[str]:
        """A node lacks these drivers now, and no others: those of them that are not expected any more."""
        known = self._since.pop(key, {})
        self._expected.pop(key, None)
        since = {driver: known.get(driver, now) for driver in missing}
        if since:
            self._since[key] = since
        ends = [end for at in since.values() if (end := at + self._seconds) > now]
        if ends:
            self._expected[key] = min(ends)
        return frozenset(driver for driver, at in since.items() if at + self._seconds <= now)

    def is_expected(self, key: NodeKey, driver: str, now: float) -> bool:
        """Whether a driver that a node lacks is still expected there; one that was not noted yet is."""
        at = self._since.get(key, {}).get(driver)
        return at is None or now < at + self._seconds

    def due(self, now: float) -> list[NodeKey]:
        """The nodes with a driver that was still expected when they were noted, and is not by now. O(nodes with such drivers)."""
        return [key for key, end in self._expected.items() if end <= now]
