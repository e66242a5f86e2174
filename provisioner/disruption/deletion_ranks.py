"""Which pods of a ReplicaSet should go first when it shrinks: those on the nodes that disruption would take first. Pure.

A ReplicaSet's controller takes pods with the least `controller.kubernetes.io/pod-deletion-cost` first, after those that are not bound, pending or not
ready. So its pods get ascending costs below 0 in the order of their nodes; 0, which is nothing, is what pods have whose nodes stay.

Only the order of pods of one owner matters, so each owner has values of its own, far apart: a node that comes between two others costs the
writes of its own pods, and where the order stays nothing is written.

Differs: Karpenter numbers all nodes, so each new node changes the values of all pods; it ranks no more nodes than budgets allow at once, none with pods
of StatefulSets, and writes over values of users.
"""

import bisect
import itertools
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from provisioner.apis import deletion_cost
from provisioner.apis.karpenter import NEVER
from provisioner.apis.pods import Pod, is_active
from provisioner.disruption.candidates import Candidate, Obstacle, candidates
from provisioner.disruption.methods.drift import has_drifted, in_order
from provisioner.disruption.methods.moves import in_turns
from provisioner.disruption.view import DisruptionView
from provisioner.disruption.waste import Rates
from provisioner.state.pause import Activity
from provisioner.state.snapshot import NodeView

_PASSING: Final = frozenset(
    {Obstacle.NOMINATED, Obstacle.CALLED_OFF, Obstacle.BACKING_OFF, Obstacle.REPLACEMENT, Obstacle.POD_BUDGET}
)
"""What keeps a node for a moment: its pods keep the costs that they have."""


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """In which order nodes go, by name; those that are not named stay.

    Attributes:
        going: they go already.
        turns: those that disruption may take, the first to go first.
        kept: nobody can tell now.
    """

    going: frozenset[str]
    turns: tuple[str, ...]
    kept: frozenset[str] = frozenset()


class CostWrite(NamedTuple):
    """What a pod should say. Attributes: pod: as it is; value: its deletion cost, None for none of ours."""

    pod: Pod
    value: int | None


@dataclass(frozen=True, slots=True)
class DeletionRanks:
    """What is to be written now.

    Attributes:
        writes: in the order in which they should be done; no more than asked for.
        settled: pods of ours whose value stays.
        pending: by NodePool, how many nodes have a pod that is to be written, now or later.
        after: of whom the writes came last; where the next pass begins.
    """

    writes: tuple[CostWrite, ...] = ()
    settled: int = 0
    pending: Mapping[str, int] = field(default_factory=dict)
    after: str = ""


def node_order(view: DisruptionView) -> NodeOrder:
    """The order in which disruption would take nodes: what goes, what has drifted, then as consolidation looks at them. Cost: O(nodes + pods)."""
    going = frozenset(one.name for one in view.snapshot.nodes if one.name and one.claim is not None and one.deleting)
    drifted = in_order(_dynamic(candidates(view, Activity.DRIFT, only=has_drifted).eligible))
    found = candidates(view, Activity.CONSOLIDATION)
    pools = view.prepared.world.pools if view.prepared is not None else ()
    rates = Rates.of(kind for pool in pools for kind in pool.instance_types)
    some = [one for one in _dynamic(found.eligible) if one.pool.spec.disruption.consolidate_after != NEVER]
    turns = dict.fromkeys(one.node.name for one in (*drifted, *in_turns(some, rates)))
    kept = {one.node.name for one in found.refused if one.obstacle in _PASSING}
    return NodeOrder(going, tuple(turns), frozenset(kept - turns.keys() - going))


def _dynamic(some: Iterable[Candidate]) -> list[Candidate]:
    """Nodes of static NodePools are replaced when they go."""
    return [one for one in some if one.pool.spec.replicas is None]


def deletion_ranks(
    order: NodeOrder, nodes: Sequence[NodeView], most: int, after: str = "", refused: Container[str] = frozenset()
) -> DeletionRanks:
    """What is to be written so that the pods of every ReplicaSet go in the order of their nodes.

    Pods that carry somebody else's cost are left alone; so are ReplicaSets with all pods on one node, where no order helps.

    Args:
        order: of the nodes.
        nodes: all of them.
        most: writes.
        after: as it was answered; whoever is left out because of `most` comes first the next time.
        refused: UIDs of pods to which nothing is written now, because the API server did not take it.

    Cost: O(pods).
    """
    place = {name: number for number, name in enumerate(order.turns)}
    owners: dict[str, list[tuple[NodeView, Pod]]] = {}
    for node in nodes:
        for pod in node.pods:
            if node.name and is_active(pod) and deletion_cost.is_ranked(pod):
                owners.setdefault(pod.owner.uid if pod.owner is not None else "", []).append((node, pod))
    turns = sorted(owners)
    start = bisect.bisect_right(turns, after)
    writes: list[CostWrite] = []
    settled, last = 0, after
    waiting: dict[str, set[str]] = {}
    for uid in (*turns[start:], *turns[:start]):
        mine = list(_of_owner(order, place, owners[uid]))
        settled += sum(1 for _, pod, value in mine if value is not None and deletion_cost.own_cost(pod) == value)
        wanted = [(node, pod, value) for node, pod, value in mine if deletion_cost.own_cost(pod) != value]
        for node, _, _ in wanted:
            waiting.setdefault(node.pool, set()).add(node.name)
        due = [CostWrite(pod, value) for _, pod, value in wanted if pod.uid not in refused]
        if room := most - len(writes):
            writes += due[:room]
            last = uid if due else last
    return DeletionRanks(tuple(writes), settled, {pool: len(names) for pool, names in waiting.items()}, last)


def withdrawals(nodes: Iterable[NodeView], most: int) -> tuple[CostWrite, ...]:
    """Takes back what was written to whatever pod, as far as `most` goes."""
    marked = (pod for node in nodes for pod in node.pods if deletion_cost.is_marked(pod))
    return tuple(CostWrite(pod, None) for pod, _ in zip(marked, range(most), strict=False))


def _of_owner(
    order: NodeOrder, place: Mapping[str, int], pods: Sequence[tuple[NodeView, Pod]]
) -> Iterator[tuple[NodeView, Pod, int | None]]:
    """The cost that each pod of a ReplicaSet should have, those that go first before others; nothing of pods that stay as they are."""
    if len({node.name for node, _ in pods}) < 2:
        return
    ours = [one for one in pods if not deletion_cost.has_foreign_cost(one[1]) and one[0].name not in order.kept]
    for node, pod in ours:
        if node.name in order.going:
            yield node, pod, deletion_cost.LEAST
    by_place: dict[int, list[tuple[NodeView, Pod]]] = {}
    for node, pod in ours:
        if node.name in place:
            by_place.setdefault(place[node.name], []).append((node, pod))
    groups = [by_place[number] for number in sorted(by_place)]
    for group, value in zip(groups, ascending([_common(pod for _, pod in group) for group in groups]), strict=True):
        yield from ((node, pod, value) for node, pod in group)
    for node, pod in ours:
        if node.name not in order.going and node.name not in place:
            yield node, pod, None


def _common(pods: Iterable[Pod]) -> int | None:
    """The cost of ours that most of them have, the least of several; None where none has any but that of nodes that go."""
    found = Counter(value for pod in pods if (value := deletion_cost.own_cost(pod)) not in (None, deletion_cost.LEAST))
    return min(found, key=lambda value: (-found[value], value), default=None)


def ascending(known: Sequence[int | None]) -> list[int]:
    """Strictly ascending numbers between the least int32 and 0, as many of the known ones as can stay among them; all are new where there is no gap left."""
    least, end = deletion_cost.LEAST, 0
    stays = _longest(
        [(number, value) for number, value in enumerate(known) if value is not None and least < value < end]
    )
    found: list[int] = []
    fixed = [(-1, least), *stays, (len(known), end)]
    for (before, low), (behind, high) in itertools.pairwise(fixed):
        missing = behind - before - 1
        if high - low <= missing:
            return ascending([None] * len(known))
        found += [low + (high - low) * (one + 1) // (missing + 1) for one in range(missing)]
        found += [high] if behind < len(known) else []
    return found


def _longest(known: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest of its parts whose second numbers ascend. Cost: O(n log n)."""
    ends: list[int] = []  # by length, the least number with which such a part ends
    last: list[int] = []  # likewise, where it stands
    before: list[int] = []
    for at, (_, value) in enumerate(known):
        length = bisect.bisect_left(ends, value)
        ends[length : length + 1] = [value]
        last[length : length + 1] = [at]
        before.append(last[length - 1] if length else -1)
    found: list[tuple[int, int]] = []
    at = last[-1] if last else -1
    while at >= 0:
        found.append(known[at])
        at = before[at]
    return found[::-1]
