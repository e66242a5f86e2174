"""What changes of objects come to as entries: `ObjectTracker` keeps of each object no more than is needed to tell what is new. Pure.

Whoever watches tells it objects as they are now, in any order and as often as they like: what it knows already makes no entry. So after a gap
everything that is there is told once more (`renew`), and the history is right again.
"""

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from provisioner.apis import names
from provisioner.apis.command import CommandPhase, command_on
from provisioner.apis.core import Node
from provisioner.apis.interruption import interruption_of
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.meta import Condition, condition
from provisioner.apis.pods import Pod, is_terminal
from provisioner.history.entries import (
    NO_NODE,
    ClaimGone,
    ClaimSeen,
    ClassSeen,
    CommandSeen,
    CommandTurn,
    EventTold,
    FleetCost,
    HistoryEntry,
    HistoryPodClass,
    InstanceInterrupted,
    KindSeen,
    NodeGone,
    NodeKind,
    NodeSeen,
    OfferingTurned,
    PodEnd,
    PodsArrived,
    PodsBound,
    PodsEnded,
    PodsStanding,
    PoolSeen,
)
from provisioner.history.pod_classes import class_key, class_of, plain
from provisioner.values.bounded import put_newest
from provisioner.values.quantity import QuantityError
from provisioner.values.resources import EMPTY, Resources

GROUP_LABELS: Final = (names.NODEPOOL_LABEL, "eks.amazonaws.com/nodegroup", "alpha.eksctl.io/nodegroup-name")
"""Of nodes, in the order in which they are asked."""
_CAPACITY_LABELS: Final = (names.CAPACITY_TYPE_LABEL, "eks.amazonaws.com/capacityType")
MOST_MESSAGE: Final = 300
_SAID_SECONDS: Final = 900.0
_MOST_SAID: Final = 4096
_OF_ONE_NODE: Final = frozenset({names.HOSTNAME_LABEL, *names.READY_LABELS})
_TURNS: Final = {
    CommandPhase.COMMITTED: CommandTurn.COMMITTED,
    CommandPhase.DRAINING: CommandTurn.DRAINING,
    CommandPhase.DELETING: CommandTurn.DELETING,
}

PriceOf = Callable[[Mapping[str, str], Mapping[str, str]], float]
"""USD per hour of a node with these labels and annotations; 0 where nobody knows."""


class _PodPlace(NamedTuple):
    """Where a pod is, and since when it is there or waits."""

    pod_class: int
    node: int
    since: float


class _Numbers:
    """Numbers of values, and which the segment has introduced already."""

    def __init__(self) -> None:
        self.of: dict[Hashable, int] = {}
        self._next = 1

    def number(self, key: Hashable) -> tuple[int, bool]:
        """The number of a key, and whether it is new."""
        known = self.of.get(key)
        if known is not None:
            return known, False
        number = self.of[key] = self._next
        self._next += 1
        return number, True

    def keep(self, used: Collection[int]) -> None:
        """Forget all others."""
        self.of = {key: number for key, number in self.of.items() if number in used}


class ObjectTracker:
    """See the module. One thread.

    Args:
        price_of: see `PriceOf`.
    """

    def __init__(self, price_of: PriceOf) -> None:
        self._price_of = price_of
        self._pods: dict[str, _PodPlace] = {}
        self._classes, self._class_values = _Numbers(), dict[int, HistoryPodClass]()
        self._kinds, self._kind_values = _Numbers(), dict[int, NodeKind]()
        self._node_numbers = _Numbers()
        self._nodes: dict[str, tuple[NodeSeen, Mapping[str, str], Mapping[str, str]]] = {}
        self._claims: dict[str, ClaimSeen] = {}
        self._interrupted: dict[str, str] = {}
        self._pools: dict[str, PoolSeen] = {}
        self._commands: dict[str, CommandSeen] = {}
        self._closed: frozenset[tuple[str, str, str]] = frozenset()
        self._said: dict[tuple[str, ...], float] = {}
        self._first: list[HistoryEntry] = []
        self._last: list[HistoryEntry] = []
        self._arrived: dict[int, int] = {}
        self._bound: dict[tuple[int, int], list[int]] = {}
        self._ended: dict[tuple[int, int, PodEnd], list[int]] = {}

    def take(self) -> list[HistoryEntry]:
        """The entries since this was asked last: what numbers mean first."""
        if not (self._first or self._last or self._arrived or self._bound or self._ended):
            return []
        made = [
            *self._first,
            *(PodsArrived(number, count) for number, count in self._arrived.items()),
            *(PodsBound(number, node, tuple(waited)) for (number, node), waited in self._bound.items()),
            *(PodsEnded(number, node, how, tuple(ran)) for (number, node, how), ran in self._ended.items()),
            *self._last,
        ]
        self._first, self._last, self._arrived, self._bound, self._ended = [], [], {}, {}, {}
        return made

    def opening(self) -> list[HistoryEntry]:
        """How things stand, for the beginning of a segment; what has ended is forgotten. Cost: O(pods + nodes)."""
        standing: dict[tuple[int, int], int] = {}
        for place in self._pods.values():
            key = place.pod_class, place.node
            standing[key] = standing.get(key, 0) + 1
        nodes = [one for one, _, _ in self._nodes.values()]
        self._forget({number for number, _ in standing}, {one.kind for one in nodes}, {one.number for one in nodes})
        return [
            *(ClassSeen(number, value) for number, value in self._class_values.items()),
            *(KindSeen(number, value) for number, value in self._kind_values.items()),
            *self._pools.values(),
            *self._claims.values(),
            *nodes,
            *self._commands.values(),
            *(OfferingTurned(*one, available=False) for one in sorted(self._closed)),
            *(PodsStanding(number, node, count) for (number, node), count in standing.items()),
        ]

    def _forget(self, classes: Collection[int], kinds: Collection[int], nodes: Collection[int]) -> None:
        self._classes.keep(classes)
        self._class_values = {number: self._class_values[number] for number in self._classes.of.values()}
        self._kinds.keep(kinds)
        self._kind_values = {number: self._kind_values[number] for number in self._kinds.of.values()}
        self._node_numbers.keep({*nodes, *(place.node for place in self._pods.values())})

    def renew(
        self,
        pods: Iterable[Pod],
        nodes: Iterable[Node],
        claims: Iterable[NodeClaim],
        pools: Iterable[NodePool],
        at: float,
    ) -> None:
        """This is all there is; what is known besides has ended."""
        there = {"node": set[str](), "claim": set[str](), "pool": set[str](), "pod": set[str]()}
        for pool in pools:
            there["pool"].add(pool.name)
            self.pool(pool)
        for claim in claims:
            there["claim"].add(claim.name)
            self.claim(claim)
        for node in nodes:
            there["node"].add(node.metadata.name)
            self.node(node)
        for pod in pods:
            there["pod"].add(pod.uid)
            self.pod(pod, at)
        for uid in self._pods.keys() - there["pod"]:
            self._end(uid, PodEnd.DELETED, at)
        for name in self._nodes.keys() - there["node"]:
            self.node_gone(name)
        for name in self._claims.keys() - there["claim"]:
            self.claim_gone(name)
        for name in self._pools.keys() - there["pool"]:
            self.pool_gone(name)

    # ------------------------------------------------------------------ pods

    def pod(self, pod: Pod, at: float) -> None:
        """A pod as it is now."""
        known = self._pods.get(pod.uid)
        if is_terminal(pod):
            if known is not None:
                self._end(pod.uid, PodEnd.SUCCEEDED if pod.phase == "Succeeded" else PodEnd.FAILED, at)
            return
        node = self._node_number(pod.node_name) if pod.node_name else NO_NODE
        if known is not None and known.node == node:
            return  # a class that changes meanwhile, as by a resize, keeps the number that it has
        if known is None:
            number, new = self._classes.number(class_key(pod))
            if new:
                value = self._class_values[number] = class_of(pod)
                self._first.append(ClassSeen(number, value))
            self._arrived[number] = self._arrived.get(number, 0) + 1
            known = _PodPlace(number, NO_NODE, min(at, pod.created.timestamp() or at))
        if node != NO_NODE:
            waited = max(0, round((at - known.since) * 1000))
            self._bound.setdefault((known.pod_class, node), []).append(waited)
            known = _PodPlace(known.pod_class, node, at)
        self._pods[pod.uid] = known

    def pod_gone(self, pod: Pod, at: float) -> None:
        """A pod is no more; as it was last."""
        self._end(pod.uid, PodEnd.DELETED, at)

    def _end(self, uid: str, how: PodEnd, at: float) -> None:
        known = self._pods.pop(uid, None)
        if known is not None:
            key = known.pod_class, known.node, how
            self._ended.setdefault(key, []).append(max(0, round(at - known.since)))

    # ------------------------------------------------------------------ nodes

    def node(self, node: Node) -> None:
        """A Node as it is now."""
        meta, name = node.metadata, node.metadata.name
        value, same = _kind_of(node)
        kind, new = self._kinds.number(same)
        if new:
            self._kind_values[kind] = value
            self._first.append(KindSeen(kind, value))
        ready = condition(node.status.conditions, names.READY)
        seen = NodeSeen(
            self._node_number(name),
            name,
            kind,
            _seconds(meta.creation_timestamp),
            _since(ready),
            _seconds(meta.deletion_timestamp),
            self._price_of(meta.labels, meta.annotations),
        )
        known = self._nodes.get(name)
        if known is None or known[0] != seen:
            self._first.append(seen)
        self._nodes[name] = seen, meta.labels, meta.annotations

    def node_gone(self, name: str) -> None:
        """A Node is no more."""
        known = self._nodes.pop(name, None)
        if known is not None:
            self._last.append(NodeGone(known[0].number))

    def _node_number(self, name: str) -> int:
        return self._node_numbers.number(name)[0]

    # ------------------------------------------------------------------ NodeClaims and NodePools

    def claim(self, claim: NodeClaim) -> None:
        """A NodeClaim as it is now, with the command and the interruption that are written on it."""
        meta, status = claim.metadata, claim.status
        launched = condition(status.conditions, names.LAUNCHED)
        seen = ClaimSeen(
            claim.name,
            claim.pool,
            meta.labels.get(names.INSTANCE_TYPE_LABEL, ""),
            meta.labels.get(names.ZONE_LABEL, ""),
            meta.labels.get(names.CAPACITY_TYPE_LABEL, ""),
            status.node_name,
            _seconds(meta.creation_timestamp),
            _since(launched),
            _since(condition(status.conditions, names.REGISTERED)),
            _since(condition(status.conditions, names.INITIALIZED)),
            _seconds(meta.deletion_timestamp),
            self._price_of(meta.labels, meta.annotations),
            launched.reason if launched is not None and launched.status == names.FALSE else "",
        )
        if self._claims.get(claim.name) != seen:
            self._claims[claim.name] = seen
            self._first.append(seen)
        self._note_interruption(claim, seen)
        self._note_command(claim)

    def claim_gone(self, name: str) -> None:
        """A NodeClaim is no more; a command of which it was the first candidate is done."""
        self._interrupted.pop(name, None)
        if self._claims.pop(name, None) is not None:
            self._last.append(ClaimGone(name))
        self._turn_commands(name, "", CommandTurn.DONE)

    def _note_interruption(self, claim: NodeClaim, seen: ClaimSeen) -> None:
        mark = interruption_of(claim.metadata.annotations)
        if mark is None:
            self._interrupted.pop(claim.name, None)
        elif self._interrupted.get(claim.name) != mark.reason:
            self._interrupted[claim.name] = mark.reason
            where = seen.instance_type, seen.zone, seen.capacity_type
            self._last.append(InstanceInterrupted(claim.name, *where, mark.reason, _seconds(mark.ends)))

    def _note_command(self, claim: NodeClaim) -> None:
        record = command_on(claim)
        self._turn_commands(claim.name, "" if record is None else record.id, CommandTurn.CALLED_OFF)
        if record is None:
            return
        known = self._commands.get(record.id)
        turn = _TURNS[record.phase]
        if known is None:
            known = CommandSeen(record.id, CommandTurn.BEGUN, record.reason, record.method, record.candidate_names)
        if known.turn < turn:
            self.command(msgspec.structs.replace(known, turn=turn))

    def _turn_commands(self, holder: str, but: str, turn: CommandTurn) -> None:
        for known in [one for one in self._commands.values() if one.candidates[0] == holder]:
            if known.id != but and (known.turn is not CommandTurn.BEGUN or turn is CommandTurn.DONE):
                del self._commands[known.id]
                deleting = known.turn is CommandTurn.DELETING
                self._last.append(msgspec.structs.replace(known, turn=CommandTurn.DONE if deleting else turn))

    def command(self, seen: CommandSeen) -> None:
        """A command as it is now."""
        self._commands[seen.id] = seen
        self._last.append(seen)

    def usd_of(self, claims: Iterable[str]) -> float:
        """What these NodeClaims cost per hour, as far as that is known."""
        return sum(known.usd_per_hour for name in claims if (known := self._claims.get(name)) is not None)

    def pool(self, pool: NodePool) -> None:
        """A NodePool as it is now."""
        seen = PoolSeen(pool.name, plain(pool.spec))
        if self._pools.get(pool.name) != seen:
            self._pools[pool.name] = seen
            self._first.append(seen)

    def pool_gone(self, name: str) -> None:
        """A NodePool is no more."""
        if self._pools.pop(name, None) is not None:
            self._last.append(PoolSeen(name, None))

    # ------------------------------------------------------------------ what was said, and figures

    def said(self, kind: str, name: str, reason: str, message: str, at: float) -> None:
        """An event was published; the same one again within a quarter of an hour makes no entry."""
        told = EventTold(kind, name, reason, message[:MOST_MESSAGE])
        key = kind, name, reason, told.message
        if kind != "Pod" and self._said.get(key, -math.inf) <= at - _SAID_SECONDS:
            put_newest(self._said, key, at, _MOST_SAID)
            self._last.append(told)

    def closed(self, offerings: frozenset[tuple[str, str, str]]) -> None:
        """The offerings that cannot be had now, as (instance type, zone, capacity type)."""
        self._last += [OfferingTurned(*one, available=False) for one in sorted(offerings - self._closed)]
        self._last += [OfferingTurned(*one, available=True) for one in sorted(self._closed - offerings)]
        self._closed = offerings

    def entry(self, entry: HistoryEntry) -> None:
        """An entry that follows from no object."""
        self._last.append(entry)

    def cost(self) -> FleetCost:
        """What the fleet costs now; Nodes whose price has changed are told. Cost: O(nodes + pods)."""
        for name, (known, labels, annotations) in self._nodes.items():
            usd = self._price_of(labels, annotations)
            if usd != known.usd_per_hour:
                seen = msgspec.structs.replace(known, usd_per_hour=usd)
                self._nodes[name] = seen, labels, annotations
                self._first.append(seen)
        prices = [one.usd_per_hour for one, _, _ in self._nodes.values()]
        waiting = sum(1 for place in self._pods.values() if place.node == NO_NODE)
        running = len(self._pods) - waiting
        return FleetCost(round(math.fsum(prices), 6), len(prices), prices.count(0.0), running, waiting)


def _kind_of(node: Node) -> tuple[NodeKind, Hashable]:
    """The kind, and what makes it the same as another one's."""
    labels = {
        key: value
        for key, value in node.metadata.labels.items()
        if key not in _OF_ONE_NODE and value != node.metadata.name
    }
    kept = (one for one in node.spec.taints if not names.is_ephemeral(one) and not one.key.startswith("karpenter.sh/"))
    taints = tuple(sorted((one.key, one.value, one.effect) for one in kept))
    try:
        allocatable = Resources.parse(node.status.allocatable)
    except QuantityError:
        allocatable = EMPTY  # a Node that says nonsense has no room
    kind = NodeKind(
        labels.get(names.INSTANCE_TYPE_LABEL, ""),
        labels.get(names.ZONE_LABEL, ""),
        capacity_type_of(labels),
        _first_of(labels, GROUP_LABELS),
        labels,
        taints,
        allocatable.to_dict(),
    )
    return kind, (tuple(sorted(labels.items())), taints, allocatable)


def capacity_type_of(labels: Mapping[str, str]) -> str:
    """As Karpenter writes it, whichever autoscaler a node has; "" where no label tells it."""
    return _first_of(labels, _CAPACITY_LABELS).lower().replace("_", "-")


def _first_of(labels: Mapping[str, str], keys: Iterable[str]) -> str:
    return next((labels[key] for key in keys if key in labels), "")


def _seconds(time: datetime | None) -> int:
    return 0 if time is None else max(0, int(time.timestamp()))


def _since(found: Condition | None) -> int:
    return _seconds(found.last_transition_time) if found is not None and found.status == names.TRUE else 0
