"""Pods that we left without a node, and when to wake kube-scheduler for them. No I/O, no clock.

kube-scheduler retries a pod that an extender refused when something in the cluster changes, and cannot see that room
which we held is free again. So every refusal is remembered per kind of pod until the same question would be answered
otherwise; then one of the refused nodes is to be touched (`due`).
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from extender.facts import FamilyMember
from extender.holds import beside
from extender.placement import avoids_disrupted, refusal
from extender.plan import NodeStanding, PlanTable
from provisioner.values.resources import Resources

MAX_KINDS: Final = 2000
MAX_NODES: Final = 64
"""Refused nodes that are remembered per kind of pod; one of them suffices to wake it."""

MAX_PODS: Final = 256
"""Pods that are remembered per kind; beyond, some pod of the kind is taken to be waiting still."""


class RefusalKind(NamedTuple):
    """Pods that get the same answers: of one family, with the same place; of a group all, as kube-scheduler tries them in one cycle."""

    owner: str
    klass: str
    home: str
    group: str = ""


class _Refused:
    """Pods of one kind that were left without a node, and on which nodes; whether one was because its own alone would pass, and was not there yet."""

    __slots__ = ("alone", "early", "nodes", "overflow", "pod", "uids")

    def __init__(self, pod: FamilyMember) -> None:
        self.pod = pod
        self.nodes: set[str] = set()
        self.uids: set[str] = set()
        self.overflow = self.alone = self.early = False

    def add(self, pod: FamilyMember, standing: NodeStanding, nodes: Iterable[str]) -> None:
        self.pod = pod
        self.alone = standing.alone
        self.early = standing.alone and not standing.home
        if len(self.uids) < MAX_PODS:
            self.uids.add(pod.uid)
        elif pod.uid not in self.uids:
            self.overflow = True
        for node in sorted(nodes):
            if len(self.nodes) >= MAX_NODES:
                return
            self.nodes.add(node)

    def matters(self, table: PlanTable) -> bool:
        """Whether one of the pods still waits, as far as the watch has told."""
        return self.overflow or any(
            (pod := table.families.members.get(uid)) is not None and pod.waiting for uid in self.uids
        )


class Refusals:
    """Bounded: beyond `MAX_KINDS` kinds the oldest are forgotten; their pods wait for any other event.

    Attributes:
        forgotten: kinds, since somebody set it to 0.

    Not thread-safe: the owner serialises calls, together with those of the plan table.
    """

    def __init__(self) -> None:
        self.forgotten = 0
        self._kinds: OrderedDict[RefusalKind, _Refused] = OrderedDict()
        self._inherited: set[str] = set()

    def __len__(self) -> int:
        return len(self._kinds) + len(self._inherited)

    def record(self, pod: FamilyMember, standing: NodeStanding, nodes: Iterable[str] = ()) -> None:
        """`pod` was left without a node; `nodes` are those that were refused because of holds or commands, none where only its own would pass."""
        kind = RefusalKind(pod.owner, pod.klass, "" if pod.group else standing.coming, pod.group)
        refused = self._kinds.pop(kind, None) or _Refused(pod)
        refused.add(pod, standing, nodes)
        self._kinds[kind] = refused
        if len(self._kinds) > MAX_KINDS:
            self._kinds.popitem(last=False)
            self.forgotten += 1

    def inherit(self, nodes: Iterable[str]) -> None:
        """These nodes were held when we began: whoever was here before us may have refused pods there."""
        self._inherited.update(nodes)

    def released(self, table: PlanTable) -> list[str]:
        """Inherited nodes that nothing is held on any more, by name; to be touched. They are forgotten."""
        free = {node for node in self._inherited if node not in table.room.holds}
        self._inherited -= free
        return sorted(node for node in free if node in table.nodes)

    def kinds(self) -> list[RefusalKind]:
        """Every kind with a refusal to look at, oldest first."""
        return list(self._kinds)

    def due(self, kind: RefusalKind, table: PlanTable, now: float) -> str:
        """A node to touch, because a pod of this kind was refused there and would be let in now; "" for none.

        One node suffices: touching it makes kube-scheduler try every refused pod again. The kind is forgotten then, and
        also when none of its pods waits any longer. O(nodes it was refused on + nodes of all supposed).
        """
        refused = self._kinds.get(kind)
        if refused is None:
            return ""
        standing = table.standing(refused.pod, now)
        if refused.alone or standing.alone:
            return self._together(kind, refused, table, standing)
        present = sorted(node for node in refused.nodes if node in table.nodes)
        going = table.nodes.disrupted(now) if avoids_disrupted(refused.pod) else frozenset()
        stay = [node for node in present if node not in going]
        others = beside(refused.nodes, (one for one in table.supposed if now < one.until))
        opened = next((node for node in stay if _would_pass(table, refused.pod, standing, node, others)), "")
        if opened or not present:
            del self._kinds[kind]
        return opened if opened and refused.matters(table) else ""

    def _together(self, kind: RefusalKind, refused: _Refused, table: PlanTable, standing: NodeStanding) -> str:
        """As `due`, of a pod that passed its own node alone, or does now: once that is there, or as soon as it is like other pods."""
        matters = refused.matters(table)
        if matters and standing.alone and not (refused.early and standing.home in table.nodes):
            return ""
        del self._kinds[kind]
        return (standing.home or next(iter(table.nodes.nodes), "")) if matters else ""


def _would_pass(
    table: PlanTable, pod: FamilyMember, standing: NodeStanding, node: str, others: Mapping[str, Sequence[Resources]]
) -> bool:
    if node == standing.home or node in standing.others:
        return True
    hold = table.room.holds.get(node)
    crowd = Resources.total(others.get(node, ()))
    if hold is not None:
        own = hold.reserved_for(pod.request)
        if refusal(pod.requests, pod.priority, hold, standing.coming, crowd, own):
            return False
    return pod.requests.fits(table.ledger.room(node))  # full by now: nothing to wake it for
