"""Pods that we left without a node, and when to wake kube-scheduler for them. No I/O, no clock.

kube-scheduler retries a pod that an extender refused when something in the cluster changes, and cannot see that room
which we held is free again. So every refusal is remembered per kind of pod until the same question would be answered
otherwise; then one of the refused nodes is to be touched (`due`).
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from extender.placement import refusal
from extender.plan import Member, PlanTable

MAX_KINDS: Final = 2000
MAX_NODES: Final = 64
"""Refused nodes that are remembered per kind of pod; one of them suffices to wake it."""


class _Kind(NamedTuple):
    """Pods that get the same answers: of one family, with the same place."""

    owner: str
    klass: str
    home: str


class Refusals:
    """Bounded: beyond `MAX_KINDS` kinds the oldest are forgotten (and counted); their pods wait for any other event.

    Not thread-safe: the owner serialises calls, together with those of the plan table.
    """

    def __init__(self) -> None:
        self.forgotten = 0
        self._kinds: OrderedDict[_Kind, tuple[Member, set[str]]] = OrderedDict()
        self._inherited: set[str] = set()

    def __len__(self) -> int:
        return len(self._kinds) + len(self._inherited)

    def record(self, pod: Member, home: str, nodes: Iterable[str]) -> None:
        """`pod` was left without a node; `nodes` are those that were refused because of holds."""
        kind = _Kind(pod.owner, pod.klass, home)
        _, known = self._kinds.pop(kind, (pod, set()))
        for node in sorted(nodes):
            if len(known) >= MAX_NODES:
                break
            known.add(node)
        self._kinds[kind] = (pod, known)
        if len(self._kinds) > MAX_KINDS:
            self._kinds.popitem(last=False)
            self.forgotten += 1

    def inherit(self, nodes: Iterable[str]) -> None:
        """These nodes were held when we began: whoever was here before us may have refused pods there."""
        self._inherited.update(nodes)

    def due(self, table: PlanTable, now: float) -> list[str]:
        """Nodes to touch, by name: a pod that was refused there would be let in now. They are forgotten.

        At most one node for each kind of pod; touching it makes kube-scheduler try all of its refused pods again.
        """
        holds = table.holds
        due = {node for node in self._inherited if node not in holds}
        self._inherited -= due
        for kind, (pod, nodes) in list(self._kinds.items()):
            present = sorted(node for node in nodes if table.knows(node))
            opened = next((node for node in present if _would_pass(table, pod, node, now)), "")
            if opened or not present:
                del self._kinds[kind]
            if opened:
                due.add(opened)
        return sorted(node for node in due if table.knows(node))


def _would_pass(table: PlanTable, pod: Member, node: str, now: float) -> bool:
    hold = table.holds.get(node)
    standing = table.standing(pod, now)
    if node == standing.home or node in standing.others:
        return True
    if hold is not None and refusal(pod, hold, standing.coming):
        return False
    return pod.requests.fits(table.ledger.room(node))  # full by now: nothing to wake it for
