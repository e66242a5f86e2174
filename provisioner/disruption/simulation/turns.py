"""Which proposals wait until other nodes are drained.

Whether a command can be drained eviction by eviction is judged with all other pods where they are (`drainability`). That is not so for two commands whose
pods are tied by a hard spread or affinity over zones while some of them change zones: where PodDisruptionBudgets let them go one after another, each may
wait for the other's next eviction, for ever. So one of them begins once the nodes of the other are drained. Pods without a PodDisruptionBudget leave at
once, and are waited for by nobody. Nor is it so for two commands that would leave a group of pods with too few (`disruption.gangs`).
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final, TypeAlias

from provisioner.apis.names import HOSTNAME_LABEL, REASON_UNHEALTHY
from provisioner.apis.pods import Pod, is_reschedulable
from provisioner.disruption.gangs import GangTurns
from provisioner.disruption.proposal import Blocked, Proposal
from provisioner.disruption.view import DisruptionView
from provisioner.scheduling.becoming import labels_of
from provisioner.scheduling.topology.ties import (
    KindReader,
    Mover,
    TieKind,
    any_ties,
    kinds,
    spread_keys,
    tied_across,
    topology_keys,
)
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


_Alike: TypeAlias = dict[tuple[frozenset[str], bool], list[Pod]]
"""Pods by those labels of which the value is another where they go, or not known, and by whether they have a PodDisruptionBudget."""


class Turns:
    """Which commands may begin, one asked after the other: whoever proposes asks as well as whoever begins, so what waits takes nothing of a budget.

    A command waits for its pods' groups (`disruption.gangs`; broken nodes do not), and for the pods of every node that goes, for whatever reason, and
    of those that have their turn before it, as far as PodDisruptionBudgets are about both. None of these waits for it, so the first begins once nothing
    is under way that it is tied to. Pods that keep their zones hold up only those that do not. A broken node whose drain has an end waits for nobody: what
    it waited for might wait in turn for a PodDisruptionBudget that counts its pods, which are not ready.

    Args:
        now: the instant.
        pods: one of each shape at least of the pods that commands may move; read when they are needed.
        default_keys: labels over whose values the cluster spreads pods without constraints of their own by hard ones.
        under_way: names of NodeClaims whose disruption has begun, though the instant may not show it yet.
        begun: commands of them.

    Cost: O(nodes); for each command its pods, and at most `MOST_PAIRS` comparisons; none where all pods keep their zones.
    """

    def __init__(
        self,
        now: Snapshot,
        pods: Iterable[Pod],
        default_keys: frozenset[str] = frozenset(),
        *,
        under_way: Container[str] = (),
        begun: Iterable[Proposal] = (),
    ) -> None:
        self.gangs: Final = GangTurns(now, under_way)
        self._now, self._pods, self._begun = now, pods, tuple(begun)
        self._keys: Final = default_keys - {HOSTNAME_LABEL}
        self._going: Final[list[_Alike]] = []  # they are read when somebody may be tied to them
        self._busy: Final[set[Mover]] = set()  # of those that were read
        self._crosses = self._looked = False
        self._waiting: Final[set[TieKind]] = set()

    def why_not(self, one: Proposal) -> str:
        """Why a command waits, as users read it; "" where it does not."""
        if one.repair is not None and one.repair.grace_seconds is not None:
            return ""
        why = self.gangs.why_not(one.candidates) if one.reason != REASON_UNHEALTHY else ""
        return why or (WAITS_FOR_TIED if self._are_tied(_planned(one, self._nodes, self._homes)) else "")

    def take(self, one: Proposal) -> None:
        """A command has its turn."""
        self.gangs.take(one.candidates)
        self._note(_planned(one, self._nodes, self._homes))

    def turn_of(self, one: Proposal) -> str:
        """Why a command waits, "" where it has its turn; whoever is tied to one that waits does, too.

        It may have been decided as if the pods of the other had moved already, and if not, it might come before the other again and again.
        """
        if why := self.why_not(one):
            self._waiting.update(self._reader.of(one.pods))
        else:
            self.take(one)
        return why

    def wherever(self, pods: Sequence[Pod]) -> str:
        """As of `turn_of`, why a command of these pods would wait for others, wherever they have places; "" where that depends on these."""
        homes = [self._homes.get(pod.node_name, _NO_LABELS) for pod in pods]
        if not self._are_tied(_Move(pod, home, home) for pod, home in zip(pods, homes, strict=True)):
            return ""
        self._waiting.update(self._reader.of(pods))
        return WAITS_FOR_TIED

    def _are_tied(self, moves: Iterable[_Move]) -> bool:
        if not self._looked:
            self._looked = True
            self._note(_under_way(self._now))
            for one in self._begun:
                self._note(_planned(one, self._nodes, self._homes))
        mine = self._alike(moves)
        if not self._crosses and not self._waiting and not any(crossed and guarded for crossed, guarded in mine):
            return False
        while self._going:
            self._busy.update(self._movers(self._going.pop()))
        namespaces = self._now.around.namespaces
        own = {kind for pods in mine.values() for kind in self._reader.of(pods)} if self._waiting else ()
        return tied_across(self._movers(mine), self._busy, namespaces) or any_ties(own, self._waiting, namespaces)

    def _note(self, moves: Iterable[_Move]) -> None:
        self._going.append(some := self._alike(moves))
        self._crosses = self._crosses or any(crossed and guarded for crossed, guarded in some)

    def _movers(self, some: _Alike) -> set[Mover]:
        """Those with a PodDisruptionBudget."""
        those = ((crossed, pods) for (crossed, guarded), pods in some.items() if guarded)
        return {Mover(kind, crossed) for crossed, pods in those for kind in self._reader.of(pods)}

    def _alike(self, moves: Iterable[_Move]) -> _Alike:
        moves = list(moves)  # so that the labels live as long as what is known of them
        known: dict[tuple[int, int], frozenset[str]] = {}
        found: _Alike = {}
        for move in moves:
            between = id(move.start), id(move.goal)
            if between not in known:
                known[between] = move.crossed(self._topology)
            found.setdefault((known[between], bool(self._now.pod_budgets.of(move.pod))), []).append(move.pod)
        return found

    @cached_property
    def _nodes(self) -> dict[str, NodeView]:
        return {str(node.key): node for node in self._now.nodes}

    @cached_property
    def _homes(self) -> dict[str, Mapping[str, str]]:
        return {node.name: node.labels for node in self._now.nodes if node.name}

    @cached_property
    def _shapes(self) -> list[Pod]:
        """A pod of each."""
        begun = (pod for one in self._begun for pod in one.pods)
        going = (pod for node in self._now.nodes if node.deleting for pod in node.pods)
        return [*{pod.shape.key: pod for pod in chain(self._pods, begun, going)}.values()]

    @cached_property
    def _topology(self) -> frozenset[str]:
        """The labels that tie any."""
        return topology_keys(self._shapes) | self._keys

    @cached_property
    def _reader(self) -> KindReader:
        return KindReader(self._shapes, by_default=bool(self._keys))


def turns_of(view: DisruptionView) -> Turns:
    """Whose turn it is at the instant that a method is asked about."""
    pods = (pod for node in view.snapshot.nodes for pod in node.pods)
    keys = view.prepared.world.spread_defaults.hard_keys if view.prepared is not None else frozenset[str]()
    return Turns(view.snapshot, pods, keys, under_way=view.under_way, begun=view.begun)


def in_turn(
    proposals: Iterable[Proposal], now: Snapshot, default_keys: frozenset[str] = frozenset()
) -> tuple[tuple[Proposal, ...], tuple[Blocked, ...]]:
    """Those proposals that may begin now, in their order, and the nodes of those that wait.

    Args:
        proposals: in the order in which they would begin.
        now: the instant.
        default_keys: as of `Turns`.
    """
    proposals = tuple(proposals)
    turns = Turns(now, (pod for one in proposals for pod in one.pods), default_keys)
    nodes = {node.key.name: node for node in now.nodes if node.key.of_claim}
    kept, blocked = list[Proposal](), list[Blocked]()
    for one in proposals:
        if why := turns.turn_of(one):
            blocked += [Blocked(name, nodes[name].pool, why) for name in one.candidates if name in nodes]
        else:
            kept.append(one)
    return tuple(kept), tuple(blocked)


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
