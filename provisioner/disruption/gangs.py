"""What keeps pods of groups (`apis.gangs`) where they run: whether they could come back, who of their group is on the way already, and who goes with them.

A group of which as many pods run as it needs loses one only to a place that is there; two or more that have left come back together, or not at all.
So commands take turns at such a group, while one that has pods to spare moves like single pods. A PodGroup with the disruption mode `all` loses all of
its pods in one command, or none.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from datetime import datetime, timedelta
from itertools import chain
from typing import Final, NamedTuple

from provisioner.apis import names
from provisioner.apis.gangs import counts_finished, group_of, told
from provisioner.apis.launch_sets import sets_of
from provisioner.apis.pods import Pod, is_reschedulable
from provisioner.state.groups import Group, GroupLack
from provisioner.state.snapshot import NodeView, Snapshot
from provisioner.values.message import Said

MOST_NODES: Final = 100
"""That PodGroups may hold together by the disruption mode `all`: anybody may name pods on every node one group."""
HOLD: Final = timedelta(minutes=15)
"""For so long after its creation a node is kept for the group that it was launched for; longer than launch and registration take."""
_NOTHING: Final[Counter[str]] = Counter()


def never_back(pods: Iterable[Pod], groups: Mapping[str, Group]) -> str:
    """Why the successor of one of these pods would not be scheduled before its group is as it should be; "" for no such pod.

    Args:
        pods: of a node.
        groups: as of `Snapshot.groups`.
    """
    if not groups:
        return ""
    for pod in pods:
        group = groups.get(group_of(pod)) if is_reschedulable(pod) else None
        if group is not None and (why := what_lacks(group)):
            return Said(f"The successor of pod {pod.key} would not be scheduled, because {told(group.key)} {why}")
    return ""


def what_lacks(group: Group) -> str:
    """What keeps kube-scheduler from trying a group, as the rest of a sentence that begins with the group; "" for nothing."""
    match group.lacks:
        case GroupLack.UNREAD:
            return Said("cannot be read")
        case GroupLack.UNKNOWN:
            return Said("does not exist")
        case GroupLack.QUEUED:
            return Said("waits in a queue of Volcano")
        case GroupLack.INCOMPLETE:
            finished = "" if counts_finished(group.key) else " (finished pods do not count)"
            return Said(f"has {group.members} of the {group.minimum} pods that it needs{finished}")
        case GroupLack.GATED:
            return Said(f"has a pod with scheduling gates ({group.gated})")
        case GroupLack.CONTRADICTION:
            return Said(f"has pods that differ in {' and '.join(group.differing)}, or from its priority")
        case None:
            return ""


def waits_for_members(group: str) -> str:
    """Why a command does not begin yet."""
    return Said(
        f"Its pods belong to {told(group)}, which needs all pods that still run, and others of them are being moved; waiting until these are bound"
    )


STATIC_ONE_BY_ONE: Final = Said("nodes of static NodePools are replaced one by one")
PDBS_ALLOW_FEWER: Final = Said("PodDisruptionBudgets do not allow the eviction of all their pods at the same time")


class NodeUnit(NamedTuple):
    """Nodes that go together or not at all.

    Attributes:
        group: key of one of the groups that hold them together.
        nodes: in the order of the snapshot; those that are no candidates are among them.
    """

    group: str
    nodes: tuple[NodeView, ...]

    @property
    def pods(self) -> list[Pod]:
        """All pods that are moved."""
        return [pod for node in self.nodes for pod in node.pods if is_reschedulable(pod)]


def units(snapshot: Snapshot) -> dict[str, NodeUnit]:
    """By NodeClaim, the nodes that go with its node, that one among them; nothing for a node without a pod that asks for it.

    Cost: O(pods) where any PodGroup asks for it.
    """
    if not snapshot.together:
        return {}
    at: dict[str, list[int]] = {}
    for number, node in enumerate(snapshot.nodes):
        for key in {group_of(pod) for pod in node.pods if is_reschedulable(pod)} & snapshot.together:
            at.setdefault(key, []).append(number)
    leaders: dict[int, int] = {}

    def leader(number: int) -> int:
        while (above := leaders.setdefault(number, number)) != number:
            leaders[number] = number = leaders[above]
        return number

    for numbers in at.values():
        for number in numbers:
            leaders[leader(number)] = leader(numbers[0])
    named = {leader(numbers[0]): key for key, numbers in sorted(at.items(), reverse=True)}
    members: dict[int, list[NodeView]] = {}
    for number in sorted(leaders):
        members.setdefault(leader(number), []).append(snapshot.nodes[number])
    made = {number: NodeUnit(named[number], tuple(nodes)) for number, nodes in members.items()}
    return {node.key.name: unit for unit in made.values() for node in unit.nodes if node.key.of_claim}


def moves_together(pods: Iterable[Pod], together: frozenset[str], but: frozenset[str] = frozenset()) -> str:
    """The key of a PodGroup of which one of these pods is, and whose pods are disrupted all at once; "" for none but some."""
    if not together:
        return ""
    keys = (group_of(pod) for pod in pods if is_reschedulable(pod))
    return next((key for key in keys if key in together and key not in but), "")


def not_consolidated(group: str) -> str:
    """Why consolidation leaves a node alone."""
    return Said(
        f"Its pods belong to {told(group)}, whose pods can only be disrupted all at once (disruptionMode all); consolidation moves them only if the "
        f"PodGroup has the annotation {names.GANG_CONSOLIDATION}: {names.ALLOW}"
    )


def needs_others(group: str, nodes: int, why: str) -> str:
    """Why a node stays that goes with others or not at all."""
    return Said(
        f"{told(group)} (disruptionMode all) needs {nodes} node{'s' if nodes > 1 else ''} to be disrupted at once: {why}"
    )


def held_nodes(snapshot: Snapshot) -> dict[str, tuple[str, datetime]]:
    """By name, Nodes that were launched for a group of which pods are not bound yet, with why they stay, as users read it, and until when.

    Cost: the pods that are not bound; O(nodes) where any of them is of a group.
    """
    planned = (pod for node in snapshot.nodes for pod in node.assigned if not pod.node_name)
    unbound = {group_of(pod) for pod in chain(planned, snapshot.pending)} - {""}
    held: dict[str, tuple[str, datetime]] = {}
    for node in snapshot.nodes if unbound else ():
        created = node.claim.metadata.creation_timestamp if node.claim is not None else None
        if node.claim is None or created is None or snapshot.at >= created + HOLD or not node.name:
            continue
        groups = [one.group for one in sets_of(node.claim.metadata.annotations) if one.group in unbound]
        if groups:
            why = Said(f"Node was launched for {told(groups[0])}, of which pods are not bound yet")
            held[node.name] = why, created + HOLD
    return held


class GangTurns:
    """Which commands may begin, one asked after the other, so that no group comes below what it needs by two of them.

    Whoever proposes asks as well as whoever begins: a node that waits for its group takes nothing of a budget, and no room.

    Args:
        now: the instant.
        under_way: names of NodeClaims whose disruption has begun, though the instant may not show it yet.
    """

    def __init__(self, now: Snapshot, under_way: Container[str] = ()) -> None:
        self._minima: Final = now.minima
        self._staying: Counter[str] = Counter()
        self._moving: Counter[str] = Counter()
        self._pods: dict[str, Counter[str]] = {}  # by NodeClaim
        if not self._minima:
            return
        for node in now.nodes:
            going = node.deleting or (node.key.of_claim and node.key.name in under_way)
            if node.key.of_claim and (mine := self._keys(filter(is_reschedulable, node.pods))):
                self._pods[node.key.name] = Counter(mine)
            count = self._moving if going else self._staying
            count.update(self._keys(pod for pod in node.pods if going or pod.deleted is None))
            self._moving.update(self._keys(pod for pod in node.assigned if not pod.node_name))

    def why_not(self, claims: Iterable[str]) -> str:
        """Why a command of these NodeClaims would wait, as users read it; "" where it would not. O(these)."""
        for key, count in self._of(claims).items() if self._minima else ():
            if self._moving[key] and self._staying[key] - count < self._minima[key]:
                return waits_for_members(key)
        return ""

    def take(self, claims: Iterable[str]) -> None:
        """The pods of these NodeClaims are on the way from now on. O(these)."""
        mine = self._of(claims)
        self._moving.update(mine)
        self._staying.subtract(mine)

    def _of(self, claims: Iterable[str]) -> Counter[str]:
        return sum((self._pods.get(name, _NOTHING) for name in claims), Counter[str]())

    def _keys(self, pods: Iterable[Pod]) -> list[str]:
        return [key for pod in pods if (key := group_of(pod)) in self._minima]
