"""Which proposals wait until other nodes are drained.

Whether a command can be drained eviction by eviction is judged with all other pods where they are (`drainability`). That is not so for two commands whose
pods are tied by a hard spread or affinity over zones while some of them change zones: where PodDisruptionBudgets let them go one after another, each may
wait for the other's next eviction, for ever. So one of them begins once the nodes of the other are drained. Pods without a PodDisruptionBudget leave at
once, and are waited for by nobody. Nor is it so for two commands that would leave a group of pods with too few (`disruption.gangs`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.apis.budget_index import PodBudgets
from provisioner.apis.names import HOSTNAME_LABEL, REASON_UNHEALTHY
from provisioner.apis.pods import Pod, is_reschedulable
from provisioner.disruption.gangs import GangTurns
from provisioner.disruption.proposal import Blocked, Proposal
from provisioner.scheduling.becoming import labels_of
from provisioner.scheduling.topology.ties import (
    Mover,
    TieKind,
    any_ties,
    kinds,
    spread_keys,
    tied_across,
    topology_keys,
)
from provisioner.state.keys import NodeKey
from provisioner.state.snapshot import NodeView, Snapshot
from provisioner.values.message import Said

_NO_LABELS: Final[Mapping[str, str]] = {}
WAITS_FOR_TIED: Final = Said(
    "Its pods have topology spread or affinity with pods on other nodes that are being disrupted, and some of these pods "
    "move to another zone (or another value of the topology key); waiting for these nodes"
)


@dataclass(frozen=True, slots=True)
class _Move:
    """A pod, with the labels of the node that it leaves, and of the one that takes its successor; None where that is not known."""

    pod: Pod
    start: Mapping[str, str]
    goal: Mapping[str, str] | None

    def crossed(self, keys: frozenset[str]) -> frozenset[str]:
        """Those of the labels whose value is another at the goal, or is not known."""
        start, goal = self.start, self.goal
        return keys if goal is None else frozenset(key for key in keys if start.get(key) != goal.get(key))


def in_turn(
    proposals: Iterable[Proposal], now: Snapshot, default_keys: frozenset[str] = frozenset()
) -> tuple[tuple[Proposal, ...], tuple[Blocked, ...]]:
    """Those proposals that may begin now, in their order, and the nodes of those that wait.

    A proposal waits for the pods of every node that goes, for whatever reason, and of those before it here, as far as PodDisruptionBudgets are about both. None
    of these waits for it, so the first begins once nothing is under way that it is tied to. Pods that keep their zones hold up only those that do not.
    Whoever is tied to one that waits was decided as if that had moved already, so it waits too.

    Args:
        proposals: in the order in which they would begin.
        now: the instant.
        default_keys: labels over whose values the cluster spreads pods without constraints of their own by hard ones.

    Cost: O(nodes + pods that move), and at most `MOST_PAIRS` comparisons for each proposal; none where all pods keep their zones.
    """
    proposals = tuple(proposals)
    held = _held_by_gangs(proposals, GangTurns(now))
    nodes = {str(node.key): node for node in now.nodes}
    homes = {node.name: node.labels for node in now.nodes if node.name}
    keys = default_keys - {HOSTNAME_LABEL}
    moves = [list(_under_way(now)), *(list(_planned(one, nodes, homes)) for one in proposals)]
    groups = _alike(moves, keys, now.pod_budgets)
    if not any(held) and not any(crossed and guarded for group in groups for crossed, guarded in group):
        return proposals, ()
    amounts = iter(kinds(*(pods for group in groups for pods in group.values()), by_default=bool(keys)))
    found = [[(kind, crossed, guarded) for crossed, guarded in group for kind in next(amounts)] for group in groups]
    busy, *movers = [{Mover(kind, crossed) for kind, crossed, guarded in group if guarded} for group in found]
    kept, blocked, waiting = list[Proposal](), list[Blocked](), set[TieKind]()
    for one, why, mine, group in zip(proposals, held, movers, found[1:], strict=True):
        own = {kind for kind, *_ in group}
        if why or tied_across(mine, busy, now.around.namespaces) or any_ties(own, waiting, now.around.namespaces):
            waiting |= own
            those = [node for name in one.candidates if (node := nodes.get(str(NodeKey(name)))) is not None]
            blocked += [Blocked(node.key.name, node.pool, why or WAITS_FOR_TIED) for node in those]
        else:
            kept.append(one)
            busy |= mine
    return tuple(kept), tuple(blocked)


def _held_by_gangs(proposals: Iterable[Proposal], gangs: GangTurns) -> list[str]:
    """Of each proposal why it waits for its pods' groups, "" where it does not. Broken nodes wait for nobody."""
    held: list[str] = []
    for one in proposals:
        held.append(gangs.why_not(one.candidates) if one.reason != REASON_UNHEALTHY else "")
        if not held[-1]:
            gangs.take(one.candidates)
    return held


class InOrder:
    """Who may begin where some of those before were not begun: its places were decided as if their pods had moved, and their nodes were gone.

    Args:
        proposals: in the order in which they may begin.
        namespaces: labels by name.
        nodes: all that are there.
        by_default: as of `kinds`.
    """

    def __init__(
        self,
        proposals: Iterable[Proposal],
        namespaces: Mapping[str, Mapping[str, str]],
        nodes: Iterable[NodeView] = (),
        *,
        by_default: bool = False,
    ) -> None:
        self._proposals, self._namespaces, self._by_default = list(proposals), namespaces, by_default
        self._nodes = nodes
        self._next = 0
        self._kinds: list[frozenset[TieKind]] = []  # of all, once one is left out
        self._left: set[TieKind] = set()
        self._domains: dict[str, frozenset[str]] | None = None  # likewise
        self._staying: set[str] = set()

    def may_begin(self, one: Proposal) -> bool:
        """Whether the next that budgets allow has nothing to do with one that was left out. At most `MOST_PAIRS` comparisons.

        A node that stays may be all there is of a zone or host that was to go: no hard spread over it can be as it was decided.
        """
        while self._proposals[self._next] is not one:
            self._leave_out(self._next)
            self._next += 1
        self._next += 1
        tied = bool(self._left) and any_ties(self._kinds_of(self._next - 1), self._left, self._namespaces)
        if not tied and (not self._staying or self._staying.isdisjoint(spread_keys(one.pods))):
            return True
        self._leave_out(self._next - 1)
        return False

    def note(self, *, begun: bool) -> bool:
        """Whether the one that may begin did."""
        if not begun:
            self._leave_out(self._next - 1)
        return begun

    def _leave_out(self, number: int) -> None:
        self._left |= self._kinds_of(number)
        if self._domains is None:
            self._domains = _ending(self._proposals, self._nodes)
        self._staying.update(*(self._domains.get(name, ()) for name in self._proposals[number].candidates))

    def _kinds_of(self, number: int) -> frozenset[TieKind]:
        if not self._kinds:
            found = kinds(*(one.pods for one in self._proposals), by_default=self._by_default)
            self._kinds = [frozenset(one) for one in found]
        return self._kinds[number]


def _ending(proposals: Sequence[Proposal], nodes: Iterable[NodeView]) -> dict[str, frozenset[str]]:
    """By candidate, the labels of which its node has a value that no node has any more once all candidates are gone.

    Of the labels over which any of the pods are spread. Cost: O(nodes x labels).
    """
    keys = spread_keys(pod for one in proposals for pod in one.pods)
    going = {name for one in proposals for name in one.candidates}
    own = {node.key.name: node.labels for node in nodes if node.key.of_claim and node.key.name in going}
    left = {
        (key, node.labels.get(key))
        for node in nodes
        if not node.deleting and not (node.key.of_claim and node.key.name in going)
        for key in keys
    }
    return {
        name: frozenset(key for key in keys if key == HOSTNAME_LABEL or (key, labels.get(key)) not in left)
        for name, labels in own.items()
    }


def _alike(
    moves: Sequence[Sequence[_Move]], more: frozenset[str], budgets: PodBudgets
) -> list[dict[tuple[frozenset[str], bool], list[Pod]]]:
    """For each of `moves`, its pods by the labels that tie any and that differ where they go, or are not known there, and by whether they have a budget."""
    keys = topology_keys(move.pod for some in moves for move in some) | more
    known: dict[tuple[int, int], frozenset[str]] = {}
    groups: list[dict[tuple[frozenset[str], bool], list[Pod]]] = []
    for some in moves:
        groups.append({})
        for move in some:
            between = id(move.start), id(move.goal)
            if between not in known:
                known[between] = move.crossed(keys)
            groups[-1].setdefault((known[between], bool(budgets.of(move.pod))), []).append(move.pod)
    return groups


def _planned(one: Proposal, nodes: Mapping[str, NodeView], homes: Mapping[str, Mapping[str, str]]) -> Iterator[_Move]:
    for name, pods in one.placements.items():
        there = nodes.get(name)
        for pod in pods:
            yield _Move(pod, homes.get(pod.node_name, _NO_LABELS), there.labels if there is not None else None)
    for new in one.replacements:
        labels = labels_of(new)
        for pod in new.pods:
            yield _Move(pod, homes.get(pod.node_name, _NO_LABELS), labels)


def _under_way(now: Snapshot) -> Iterator[_Move]:
    """The pods that still have to move: those of nodes that go. One that nothing may evict stays, where no command wants it to move."""
    goals = {pod.uid: node.labels for node in now.nodes for pod in node.assigned}
    unplanned = {pod.uid for pod in now.leaving}
    for node in now.nodes:
        for pod in node.pods if node.deleting else ():
            goal = goals.get(pod.uid)
            if goal is not None or pod.uid in unplanned or (node.command and is_reschedulable(pod)):
                yield _Move(pod, node.labels, goal)
