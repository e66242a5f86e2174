"""The page of a record's end: nodes and pods by class as the last segment leaves them, and the history of all segments.

A record names no pods and does not tell why they wait; what it does not know stays empty.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from provisioner.history.digest import HistoryDigest
from provisioner.history.entries import (
    NO_NODE,
    AnyHistoryEntry,
    ClaimGone,
    ClaimSeen,
    ClassSeen,
    CommandSeen,
    CommandTurn,
    FleetCost,
    HistoryPodClass,
    KindSeen,
    NodeGone,
    NodeKind,
    NodeSeen,
    PodsArrived,
    PodsBound,
    PodsEnded,
    PodsStanding,
    PoolSeen,
)
from provisioner.history.pod_classes import is_daemon_class, is_mirror_class
from provisioner.history.segments import Segment
from provisioner.ui.page import (
    LONGEST,
    NO_PODS,
    Page,
    PageClass,
    PageCommand,
    PageNode,
    PagePool,
    PageSums,
    PageWaiting,
    PodRow,
    PodsApart,
    few,
)
from provisioner.ui.past import history_of
from provisioner.ui.sight import ALL
from provisioner.values.printable import counted
from provisioner.values.resources import CPU, MEMORY, PODS

_MOST_ROWS: Final = 500
MOST_STANDING: Final = 200_000
"""Of nodes, of NodeClaims, of classes, and so on, each, at the end of a record; of classes on nodes ten times as many."""
_OF_PODS: Final = (PodsArrived, PodsBound, PodsEnded, PodsStanding)
_NAMES: Final = ("app.kubernetes.io/name", "app", "k8s-app", "name")
"""Labels that tell what a pod is part of, in the order in which they are asked."""
_ENDED: Final = (CommandTurn.DONE, CommandTurn.CALLED_OFF)
NO_WHY: Final = "A record does not tell why."


@dataclass(slots=True)
class _Standing:
    """How things stand, by the numbers of one segment."""

    classes: dict[int, HistoryPodClass] = field(default_factory=dict)
    kinds: dict[int, NodeKind] = field(default_factory=dict)
    nodes: dict[int, NodeSeen] = field(default_factory=dict)
    claims: dict[str, ClaimSeen] = field(default_factory=dict)
    pools: dict[str, PoolSeen] = field(default_factory=dict)
    commands: dict[str, CommandSeen] = field(default_factory=dict)
    pods: Counter[tuple[int, int]] = field(default_factory=Counter)

    def check(self) -> None:
        """No recorder's cluster is so large.

        Raises:
            ValueError: this one is.
        """
        named: tuple[Mapping[Any, object], ...] = (
            self.classes,
            self.kinds,
            self.nodes,
            self.claims,
            self.pools,
            self.commands,
        )
        if any(len(one) > MOST_STANDING for one in named) or len(self.pods) > 10 * MOST_STANDING:
            raise ValueError("there are too many nodes, NodeClaims, NodePools, commands or classes of pods")

    def add(self, one: AnyHistoryEntry) -> None:
        match one:
            case ClassSeen():
                self.classes[one.number] = one.pod_class
            case KindSeen():
                self.kinds[one.number] = one.kind
            case NodeSeen():
                self.nodes[one.number] = one
            case NodeGone():
                self.nodes.pop(one.node, None)
            case ClaimSeen():
                self.claims[one.name] = one
            case ClaimGone():
                self.claims.pop(one.name, None)
            case PoolSeen(spec=None):
                self.pools.pop(one.name, None)
            case PoolSeen():
                self.pools[one.name] = one
            case CommandSeen():
                self.commands[one.id] = one
                if one.turn in _ENDED:
                    del self.commands[one.id]
            case PodsStanding() | PodsArrived():
                node = one.node if isinstance(one, PodsStanding) else NO_NODE
                self.pods[one.pod_class, node] += one.count
            case PodsBound():
                self.pods[one.pod_class, NO_NODE] -= len(one.waited_ms)
                self.pods[one.pod_class, one.node] += len(one.waited_ms)
            case PodsEnded():
                self.pods[one.pod_class, one.node] -= len(one.seconds)
            case _:
                pass


def recorded_page(segments: Sequence[Segment], problems: Sequence[str] = (), *, title: str = "") -> Page:
    """The page of a record.

    Args:
        segments: one or more, in the order of time.
        problems: what could not be read, in sentences.
        title: of the page.

    Raises:
        SegmentError: a segment cannot be decoded.
        LookupError, ValueError, OverflowError: its entries contradict each other, which no recorder writes.

    Cost: O(entries); some microseconds for each.
    """
    digest, standing, since = HistoryDigest(), _Standing(), segments[0].head.began
    gaps, before = 0, ""
    for number, segment in enumerate(segments):
        gaps += bool(number) and segment.head.follows != before
        before = segment.head.id
        last = number == len(segments) - 1
        opening = ((segment.head.began, one) for one in segment.opening)
        for told_before, (at, one) in enumerate(itertools.chain(opening, segment)):
            if not isinstance(one, _OF_PODS):
                digest.add(at, (one,))
            if last:
                standing.add(one)
                if told_before % MOST_STANDING == 0:
                    standing.check()
        standing.check()
    head = segments[-1].head
    missing = [one.rstrip(".") for one in problems]
    if gaps:
        missing.append(f"The record has {counted(gaps, 'gap')}, when nothing was recorded")
    source = "the leader's history" if head.source == "leader" else "a record"
    told = digest.told()
    waits, classes = _waiting(standing), _Classes(standing)
    rows = _rows(standing)
    claims = {one.node: one.name for one in standing.claims.values() if one.node}
    reasons = {name: one.reason for one in standing.commands.values() for name in one.candidates}
    nodes = tuple(
        _node(standing, one, rows.get(one.number, {}), classes, claim, reasons.get(claim))
        for one in sorted(standing.nodes.values(), key=lambda one: one.name)
        for claim in (claims.get(one.name, ""),)
    )
    nodes += tuple(_coming(one) for one in standing.claims.values() if not one.node)
    usd: defaultdict[str, float] = defaultdict(float)
    for node in nodes:
        usd[node.pool] += node.usd or 0.0
    count = Counter(one.pool for one in nodes)
    waiting = tuple(
        PageWaiting(of=classes.index(number), pods=pods, text=NO_WHY) for number, pods in waits.most_common(_MOST_ROWS)
    )
    return Page(
        at=int(head.ended),
        title=title,
        source=source + (", without names" if head.anonymous else ""),
        sums=_sums(standing, nodes, told.costs[-1][1] if told.costs else None),
        nodes=nodes,
        waiting=waiting,
        hidden_waiting=sum(pods for _, pods in waits.most_common()[_MOST_ROWS:]),
        pools=tuple(
            PagePool(
                name=name, nodes=count[name], usd=round(usd[name], 4), weight=_weight(one), replicas=_replicas(one)
            )
            for name, one in sorted(standing.pools.items())[:_MOST_ROWS]
        ),
        commands=tuple(_command(standing, one) for one in list(standing.commands.values())[:_MOST_ROWS]),
        history=history_of(told, since, ALL),
        missing=tuple(one[:LONGEST] for one in missing[:20]),
        classes=tuple(classes.all),
    )


class _Classes:
    """The classes of a page, by order of first use."""

    def __init__(self, standing: _Standing) -> None:
        self._of, self._index = standing.classes, dict[int, int]()
        self.all: list[PageClass] = []

    def index(self, number: int) -> int:
        found = self._index.get(number)
        if found is None:
            found = self._index[number] = len(self.all)
            self.all.append(_class(self._of[number]))
        return found


def _amount(amounts: Mapping[str, int], resource: str) -> int:
    return amounts.get(resource, 0)


def _class(one: HistoryPodClass) -> PageClass:
    labels = one.constraints.get("labels")
    labels = labels if isinstance(labels, Mapping) else {}
    name = next((text for key in _NAMES if isinstance(text := labels.get(key), str)), f"class {one.key[:8]}")
    others = (f"{key} {amount}" for key, amount in sorted(one.requests.items()) if key not in (CPU, MEMORY, PODS))
    return PageClass(
        namespace=one.namespace,
        kind=one.owner_kind or "Pod",
        name=name,
        cpu=_amount(one.requests, CPU),
        memory=_amount(one.requests, MEMORY),
        more=", ".join(others),
    )


def _rows(standing: _Standing) -> dict[int, dict[int, int]]:
    """By number of a node, then of a class, how many pods."""
    found: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for (number, node), count in standing.pods.items():
        if count > 0 and node != NO_NODE and number in standing.classes:
            found[node][number] = count
    return found


def _waiting(standing: _Standing) -> Counter[int]:
    return Counter(
        {
            number: count
            for (number, node), count in standing.pods.items()
            if node == NO_NODE and count > 0 and number in standing.classes
        }
    )


def _node(
    standing: _Standing, seen: NodeSeen, rows: Mapping[int, int], classes: _Classes, claim: str, reason: str | None
) -> PageNode:
    kind = standing.kinds[seen.kind]
    daemons, pods = NO_PODS, list[PodRow]()
    for number, count in rows.items():
        one = standing.classes[number]
        if is_daemon_class(one) or is_mirror_class(one):
            cpu, memory = _amount(one.requests, CPU) * count, _amount(one.requests, MEMORY) * count
            daemons += PodsApart(pods=count, cpu=cpu, memory=memory)
        else:
            pods.append((classes.index(number), count))
    state = "draining" if seen.deleting else "disrupted" if reason else "ready" if seen.ready else "not-ready"
    return PageNode(
        name=seen.name,
        claim=claim,
        pool=kind.group,
        type=kind.instance_type,
        zone=kind.zone,
        capacity_type=kind.capacity_type,
        usd=round(seen.usd_per_hour, 5) or None,
        created=seen.created,
        state=state,
        text=reason or "",
        cpu=_amount(kind.allocatable, CPU),
        memory=_amount(kind.allocatable, MEMORY),
        slots=_amount(kind.allocatable, PODS),
        daemons=daemons,
        pods=tuple(sorted(pods)),
    )


def _coming(one: ClaimSeen) -> PageNode:
    return PageNode(
        claim=one.name,
        pool=one.pool,
        type=one.instance_type,
        zone=one.zone,
        capacity_type=one.capacity_type,
        usd=round(one.usd_per_hour, 5) or None,
        created=one.created,
        state="draining" if one.deleting else "launching",
        text=one.failed[:LONGEST],
    )


def _command(standing: _Standing, one: CommandSeen) -> PageCommand:
    nodes = [claim.node if (claim := standing.claims.get(name)) and claim.node else name for name in one.candidates]
    return PageCommand(reason=one.reason, phase=one.turn.name.capitalize(), nodes=few(nodes))


def _sums(standing: _Standing, nodes: Sequence[PageNode], cost: FleetCost | None) -> PageSums:
    used: Counter[str] = Counter()
    for (number, node), count in standing.pods.items():
        if node in standing.nodes and number in standing.classes:
            used[PODS] += count
            for key in (CPU, MEMORY):
                used[key] += _amount(standing.classes[number].requests, key) * count
    there = [one for one in nodes if one.name]
    return PageSums(
        nodes=len(nodes),
        pods=used[PODS],
        usd=round(cost.usd_per_hour if cost is not None else sum(one.usd or 0.0 for one in there), 4),
        unpriced=sum(one.usd is None for one in there),
        cpu=sum(one.cpu for one in there),
        memory=sum(one.memory for one in there),
        used_cpu=used[CPU],
        used_memory=used[MEMORY],
    )


def _weight(one: PoolSeen) -> int:
    weight = (one.spec or {}).get("weight")
    return weight if isinstance(weight, int) else 0


def _replicas(one: PoolSeen) -> int | None:
    replicas = (one.spec or {}).get("replicas")
    return replicas if isinstance(replicas, int) else None
