"""Which planned pods kube-scheduler would bind all the same, were none of them nominated: the others need a nomination.

Nodes of one plan that open together are filled by kube-scheduler's scores: a node gets pods by the share of it that is free, and of each
workload as many pods as the next node, whatever its size. Often all pods find a place that way, though another than the planned one; where
sizes or zones have to be met they do not. That is tried here with the pods of a few nodes, in a few orders, and as many of them are
nominated as it takes. Differs: kube-scheduler knows more scores and looks at existing nodes too; what is left out makes room, or changes
who lands where.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log
from typing import Final, NamedTuple

from provisioner.apis import names
from provisioner.apis.gangs import group_of
from provisioner.apis.pods import Pod, PodShape
from provisioner.scheduling.constraints.filters import FilterError, FilterTerm, NodeFilter, label_value, node_filter
from provisioner.scheduling.constraints.selectors import Expressions, holds
from provisioner.scheduling.nomination.nomination_rules import is_hard, selector_of
from provisioner.values.resources import Resources
from provisioner.values.taints import Taint, first_untolerated

MOST_LOOKS: Final = 300_000
"""Pods and nodes that are looked at for one answer, 2 us each; who needs more is nominated."""
FEW: Final = 100
"""Up to so many pods all have to find places though each node opens by itself, too: some are bound before the second one is open. More would be
as many writes at once, and wait for them; what one small node costs is the less of their price."""
_QUARTERS: Final = 4
_LEFT_OF: Final = 200
"""One pod of so many may be left."""
_WEIGHT_OF_SPREAD: Final = 2
_DEFAULT_SPREAD: Final = ((names.HOSTNAME_LABEL, 3), (names.ZONE_LABEL, 5))
"""What kube-scheduler gives to workloads that ask for no spread: keys and maxSkew, as scores."""
_MOST_ASKED: Final = 32
"""Terms, expressions and labels of one pod."""


@dataclass(frozen=True, slots=True)
class OpenNode:
    """A node that is about to be let in.

    Attributes:
        labels: of its Node.
        allocatable: what pods and daemons may use of it.
        room: what its planned pods may use.
        taints: of its Node, as far as they will not fall.
        late: it is not ready, or has startup taints: it takes pods later than the others, and by itself.
    """

    labels: Mapping[str, str]
    allocatable: Resources
    room: Resources
    planned: tuple[Pod, ...]
    taints: tuple[Taint, ...] = ()
    late: bool = False


class Running:
    """The nodes that are there, with their pods, as hard spreads count them: each kind of spread once, however often it asks.

    Args:
        nodes: labels and pods of each.
    """

    def __init__(self, nodes: Iterable[tuple[Mapping[str, str], Sequence[Pod]]] = ()) -> None:
        self._nodes: Final = tuple(nodes)
        self._known: Final[dict[tuple[str, Expressions, str, tuple[FilterTerm, ...]], tuple[dict[str, int], int]]] = {}

    def counted(
        self, namespace: str, selector: Expressions, key: str, terms: tuple[FilterTerm, ...]
    ) -> tuple[Mapping[str, int], int]:
        """Pods by domain, of the nodes that the terms admit, and the looks that it takes to count them; beyond `MOST_LOOKS`, in part."""
        if not self._nodes:
            return {}, 0
        asked = (namespace, selector, key, terms)
        if asked not in self._known:
            counts: dict[str, int] = {}
            looks = 0
            for labels, pods in self._nodes:
                domain = label_value(labels, key)
                if domain is None or not _match(terms, labels):
                    continue
                mine = [pod for pod in pods if pod.namespace == namespace and pod.deleted is None]
                looks += len(terms) + len(mine) * (1 + len(selector))
                if looks > MOST_LOOKS:
                    break
                counts[domain] = counts.get(domain, 0) + sum(holds(selector, pod.labels) for pod in mine)
            self._known[asked] = counts, looks
        return self._known[asked]


_NOTHING: Final = Running()


class Needed(NamedTuple):
    """What kube-scheduler would do with a plan.

    Attributes:
        nominated: UIDs of the planned pods that need a nomination.
        left: how many it would leave all the same, in the worst order; 0 for a few, and where that is not known.
    """

    nominated: frozenset[str]
    left: int = 0


class Unaided(NamedTuple):
    """What kube-scheduler would do with a plan of which no pod is nominated.

    Attributes:
        bound: where planned pods end, hostnames by UID; who is absent finds no place on these nodes.
        assumed: how many pods are said to be where they are planned, as it is not modelled where they go.
    """

    bound: Mapping[str, str]
    assumed: int


def needed(
    nodes: Sequence[OpenNode], withheld: Collection[str], others: Iterable[Pod] = (), running: Running = _NOTHING
) -> Needed:
    """Which of the planned pods need a nomination: as few as it takes, or, where some are left whoever is nominated, those with whom the fewest are.

    Pods that ask for what is not modelled here (others near or far, preferences, volumes, ports) need one anyway. Of the others, those of the nodes
    with the fewest pods come first: a small node is filled by what belongs on larger ones.

    Args:
        nodes: which open together.
        withheld: UIDs of pods that may not be nominated.
        others: pods that wait without a place on these nodes, and may take room there.
        running: the nodes that are there.
    """
    may = frozenset(pod.uid for one in nodes for pod in one.planned).difference(withheld)
    strangers = tuple(pod for pod in others if is_modelled(pod.shape))
    if not strangers and _are_alike(pod.shape for one in nodes for pod in one.planned):
        return Needed(frozenset())
    if len(nodes) * (sum(len(one.planned) for one in nodes) + len(strangers)) > MOST_LOOKS:
        return Needed(may)
    world = _World(nodes, strangers, running)
    alone = [] if withheld else list(_alone(nodes, strangers, running))
    asking = {pod.uid for one in nodes for pod in one.planned if not is_modelled(pod.shape)} & may
    if not asking and len(world.orders) * world.looks_of_all > MOST_LOOKS:
        return Needed(may)
    by_size = sorted(range(len(nodes)), key=lambda number: (len(nodes[number].planned), number))
    best: Needed | None = None
    for quarter in range(_QUARTERS + 1):
        some = by_size[: len(nodes) * quarter // _QUARTERS]
        chosen = frozenset(asking | {pod.uid for number in some for pod in nodes[number].planned} & may)
        if best is not None and chosen == best.nominated:
            continue
        left = max(world.left(order, chosen) for order in world.orders)
        if world.looks > MOST_LOOKS:
            return Needed(may)
        if best is None or left < best.left:
            best = Needed(chosen, left)
        if not left and not any(each.left(order, chosen) for each, orders in alone for order in orders):
            return Needed(chosen)
    return best if best is not None and best.left else Needed(may)


def _alone(
    nodes: Sequence[OpenNode], others: Sequence[Pod], running: Running
) -> Iterator[tuple["_World", tuple[tuple[Pod, ...], ...]]]:
    """Of a few pods, the worlds in which each node opens by itself, and the orders of pods to be tried there."""
    if 0 < sum(len(one.planned) for one in nodes) <= FEW:
        late = [replace(one, late=True) for one in nodes]
        for some in (late, late[::-1]):
            world = _World(some, others, running)
            yield world, (*world.orders, world.hardest_first, world.hardest_first[::-1])


def unaided(nodes: Sequence[OpenNode], running: Running) -> Unaided | None:
    """Where kube-scheduler would bind the planned pods of these nodes, were none of them nominated: of the orders that `needed` tries, in one that leaves most.

    Members of groups, and pods that ask for what is not modelled, are taken to be where they are planned. None where it takes too many looks.
    """
    pods = [pod for one in nodes for pod in one.planned]
    worst = {pod.uid: one.labels[names.HOSTNAME_LABEL] for one in nodes for pod in one.planned}
    assumed = frozenset([pod.uid for pod in pods if group_of(pod) or not is_modelled(pod.shape)])
    if not assumed and _are_alike(pod.shape for pod in pods):
        return Unaided(worst, 0)
    if len(nodes) * len(pods) > MOST_LOOKS:
        return None
    world = _World(nodes, (), running)
    if len(world.orders) * world.looks_of_all > MOST_LOOKS:
        return None
    for each, orders in ((world, world.orders), *_alone(nodes, (), running)):
        for order in orders:
            found = each.bound(order, assumed)
            if each.looks > MOST_LOOKS:
                return None
            if len(found) < len(worst):
                worst = {uid: each.hostname(number) for uid, number in found.items()}
    return Unaided(worst, len(assumed))


def _are_alike(shapes: Iterable[PodShape]) -> bool:
    """Whether all ask for the same room on the same nodes, and for nothing else: whichever place one of them takes, it leaves its own."""
    some = list({id(shape): shape for shape in shapes}.values())
    if not some or any(one.spread or not is_modelled(one) for one in some):
        return False
    asked = [(one.requests, one.node_selector, one.affinity, one.tolerations) for one in some]
    return all(each == asked[0] for each in asked)


def packed(nodes: Sequence[OpenNode], running: Running = _NOTHING) -> dict[str, int] | None:
    """Where kube-scheduler would bind the planned pods of these nodes, whichever of them they are planned on, in the first order that leaves none.

    Numbers of nodes by UID; None where pods are left in each order.
    """
    world = _World(nodes, (), running)
    for order in (world.hardest_first, world.spread_first, *world.orders):
        found = world.bound(order, (), whole=True)
        if len(found) == len(order):
            return found
    return None


class _Class:
    """Pods that are alike to kube-scheduler.

    Attributes:
        requests: in the order of the world's resources.
        needs: those of them that are not zero, by number.
        nodes: numbers of those that let them in.
        hard: (number of what is counted, maxSkew) of their hard spreads.
        counted: numbers of what counts them.
        evenly: whether the default spread is theirs.
        cpu, memory: requested.
    """

    __slots__ = ("counted", "cpu", "evenly", "hard", "memory", "needs", "nodes", "requests")

    def __init__(self, requests: tuple[int, ...], nodes: tuple[int, ...], shape: PodShape) -> None:
        self.requests: Final = requests
        self.needs: Final = [(number, amount) for number, amount in enumerate(requests) if amount]
        self.nodes: Final = nodes
        self.hard: list[tuple[int, int]] = []
        self.counted: list[int] = []
        self.evenly: Final = not shape.spread
        self.cpu: Final = shape.requests.amount(names.CPU)
        self.memory: Final = shape.requests.amount(names.MEMORY)


@dataclass(slots=True)
class _State:
    """One order under way.

    Attributes:
        room: by resource and node.
        used: CPU and memory of each node.
        counts: pods of each count by domain.
        mine: pods of each class by domain of the default spread.
        bound: numbers of nodes by UID.
    """

    open: set[int]

    room: list[list[int]]
    used: list[list[int]]
    counts: list[dict[str, int]]
    mine: list[dict[str, int]]
    bound: dict[str, int] = field(default_factory=dict)


class _World:
    """Nodes and pods, asked again and again."""

    def __init__(self, nodes: Sequence[OpenNode], others: Iterable[Pod], running: Running) -> None:
        self.looks = 0
        self._nodes: Final = nodes
        planned = [(pod, number) for number, one in enumerate(nodes) for pod in one.planned]
        pods = [*planned, *((pod, -1) for pod in others)]
        self._names: Final = tuple(sorted({name for pod, _ in pods for name in pod.shape.requests}))
        self._place: Final = {pod.uid: number for pod, number in planned}
        self._size: Final = [
            (one.allocatable.amount(names.CPU) or 1, one.allocatable.amount(names.MEMORY) or 1) for one in nodes
        ]
        self._domain: Final = [
            tuple(label_value(one.labels, key) or str(number) for key, _ in _DEFAULT_SPREAD)
            for number, one in enumerate(nodes)
        ]
        self._spreads: Final[dict[tuple[str, Expressions, str], int]] = {}
        self._asking: Final[list[PodShape]] = []  # by number of a spread
        self._class: Final[dict[str, _Class]] = {}
        self._classes(pod for pod, _ in pods)
        self._number: Final = {one: number for number, one in enumerate(dict.fromkeys(self._class.values()))}
        self._where: Final = [[label_value(one.labels, key) for one in nodes] for _, _, key in self._spreads]
        self._counts: Final = [{domain: 0 for domain in where if domain is not None} for where in self._where]
        if self.looks <= MOST_LOOKS:
            self._count(running)
        by_uid = sorted((pod for pod, _ in pods), key=lambda pod: pod.uid)
        self.orders: Final = tuple(
            tuple(sorted(some, key=lambda pod: -pod.shape.priority))
            for some in (sorted(by_uid, key=lambda pod: pod.created), by_uid, by_uid[::-1])
        )

    def hostname(self, number: int) -> str:
        """Of one of the nodes."""
        return self._nodes[number].labels[names.HOSTNAME_LABEL]

    @property
    def looks_of_all(self) -> int:
        """How many it takes to bind all pods of these nodes once, none of them nominated."""
        return sum(len(one.nodes) * (1 + len(one.hard)) for one in self._class.values())

    @property
    def hardest_first(self) -> tuple[Pod, ...]:
        """Pods of hard spreads, then the others; large ones first."""
        cpus, memory = self._size[0]

        def rank(pod: Pod) -> tuple[bool, float]:
            one = self._class[pod.uid]
            return not one.hard, -one.cpu / cpus - one.memory / memory

        return tuple(sorted(self.orders[1], key=rank))

    @property
    def spread_first(self) -> tuple[Pod, ...]:
        """Pods of hard spreads, then the others, as they come."""
        return tuple(sorted(self.orders[1], key=lambda pod: not self._class[pod.uid].hard))

    def _classes(self, pods: Iterable[Pod]) -> None:
        known: dict[tuple[object, ...], _Class] = {}
        kinds: list[tuple[_Class, Pod]] = []
        for pod in pods:
            key = (
                (id(pod.shape), *sorted(pod.labels.items())) if pod.labels is not pod.shape.labels else (id(pod.shape),)
            )
            one = known.get(key)
            if one is None:
                one = known[key] = _Class(
                    pod.shape.requests.amounts_of(self._names), self._open_to(pod.shape), pod.shape
                )
                kinds.append((one, pod))
                for constraint in filter(is_hard, pod.shape.spread):
                    selector = selector_of(constraint, pod.labels)
                    if selector is not None:
                        what = (pod.namespace, selector, constraint.topology_key)
                        number = self._spreads.setdefault(what, len(self._spreads))
                        one.hard.append((number, constraint.max_skew))
                        if number == len(self._asking):
                            self._asking.append(pod.shape)
            self._class[pod.uid] = one
        for one, pod in kinds:
            if self.looks > MOST_LOOKS:
                return
            for (namespace, selector, _), number in self._spreads.items():
                self.looks += 1 + len(selector)
                if namespace == pod.namespace and holds(selector, pod.labels):
                    one.counted.append(number)

    def _count(self, running: Running) -> None:
        """Count pods of nodes that are there, and these as domains; a spread looks at nodes that its own pods may be on, whatever the taints."""
        for (namespace, selector, key), shape, counts in zip(self._spreads, self._asking, self._counts, strict=True):
            asked = _filter(shape)
            there, looks = running.counted(namespace, selector, key, asked.terms if asked is not None else ())
            self.looks += looks
            if self.looks > MOST_LOOKS:
                return
            for domain, count in there.items():
                counts[domain] = counts.get(domain, 0) + count

    def _open_to(self, shape: PodShape) -> tuple[int, ...]:
        asked = _filter(shape) if _is_short(shape) else None
        if asked is None:
            return ()
        taints = sum(len(one.taints) for one in self._nodes)
        self.looks += len(self._nodes) * len(asked.terms) + taints * len(asked.tolerations)
        if self.looks > MOST_LOOKS:
            return ()
        return tuple(
            number
            for number, one in enumerate(self._nodes)
            if first_untolerated(asked.tolerations, one.taints) is None
            and (asked.easy or _match(asked.terms, one.labels))
        )

    def left(self, order: Sequence[Pod], nominated: Collection[str]) -> int:
        """How many planned pods are left; 0 for a few."""
        count = len(self._place.keys() - self.bound(order, nominated).keys())
        return count if count > len(self._place) // _LEFT_OF else 0

    def bound(self, order: Sequence[Pod], nominated: Collection[str], *, whole: bool = False) -> dict[str, int]:
        """Where pods end, by UID: those that are nominated where they are planned, the others as they come. `whole`: up to the first that is left.

        kube-scheduler keeps no room of a nominated pod from others of a higher priority. Nodes that are late open one after another when all others
        are full; in the last order, the last one first.
        """
        late = [number for number, one in enumerate(self._nodes) if one.late]
        state = _State(
            {number for number, one in enumerate(self._nodes) if not one.late},
            [[one.room.amount(name) for one in self._nodes] for name in self._names],
            [
                [one.allocatable.amount(name) - one.room.amount(name) for name in (names.CPU, names.MEMORY)]
                for one in self._nodes
            ],
            [dict(one) for one in self._counts],
            [{} for _ in self._number],
        )
        waiting = sorted(order, key=lambda pod: (-pod.shape.priority, pod.uid not in nominated))
        for opening in (None, *(late if order is not self.orders[-1] else late[::-1])):
            if opening is not None:
                state.open.add(opening)
            rest = [pod for pod in waiting if pod.uid not in state.bound]
            self._fill(state, rest, nominated, whole=whole and not late)
        return state.bound

    def _fill(self, state: _State, order: Sequence[Pod], nominated: Collection[str], *, whole: bool) -> None:
        """Bind what the open nodes take, until that costs too many looks."""
        waiting = deque(order)
        refused: dict[int, list[Pod]] = {}
        while waiting:
            pod = waiting.popleft()
            one = self._class[pod.uid]
            if self.looks > MOST_LOOKS:
                return
            node = self._place[pod.uid] if pod.uid in nominated else None
            if node is None or node not in state.open or not self._has_room(state, one, node):
                node = self._chosen(state, one)
            if node is None:
                if whole and not self._may_wait(state, one):
                    return
                if one.hard:
                    refused.setdefault(id(one), []).append(pod)
                continue
            self._bind(state, one, node)
            state.bound[pod.uid] = node
            if one.counted:
                for others in refused.values():
                    if others:
                        waiting.append(others.pop())

    def _may_wait(self, state: _State, one: _Class) -> bool:
        """Whether others may yet make a place for such a pod: its spread, where there is room; room never grows."""
        return bool(one.hard) and any(self._has_room(state, one, node) for node in one.nodes)

    def _has_room(self, state: _State, one: _Class, node: int) -> bool:
        return all(state.room[number][node] >= amount for number, amount in one.needs)

    def _bind(self, state: _State, one: _Class, node: int) -> None:
        self.looks += 1 + len(one.counted)
        used = state.used[node]
        for number, amount in one.needs:
            state.room[number][node] -= amount
        used[0] += one.cpu
        used[1] += one.memory
        if one.evenly:
            mine = state.mine[self._number[one]]
            for domain in self._domain[node]:
                mine[domain] = mine.get(domain, 0) + 1
        for number in one.counted:
            where = self._where[number][node]
            if where is not None:
                state.counts[number][where] += 1

    def _chosen(self, state: _State, one: _Class) -> int | None:
        """The node with the best score of those that are legal; the first of equals."""
        self.looks += 1 + len(one.nodes) * (1 + len(one.hard))
        found: Sequence[int] = one.nodes
        if len(state.open) < len(self._nodes):
            found = [node for node in found if node in state.open]
        for number, amount in one.needs:
            room = state.room[number]
            found = [node for node in found if room[node] >= amount]
        for number, skew in one.hard:
            counts, where = state.counts[number], self._where[number]
            most = min(counts.values(), default=0) + skew - (number in one.counted)
            found = [node for node in found if (domain := where[node]) is not None and counts[domain] <= most]
        if len(found) < 2:
            return found[0] if found else None
        uneven = self._uneven(state.mine[self._number[one]], found) if one.evenly else None
        best, score = found[0], -1.0
        for place, node in enumerate(found):
            (cpus, memory), used = self._size[node], state.used[node]
            cpu, gib = (used[0] + one.cpu) / cpus, (used[1] + one.memory) / memory
            mark = 100 - 50 * (cpu + gib) + 100 - 50 * abs(cpu - gib)
            if uneven is not None:
                mark += _WEIGHT_OF_SPREAD * uneven[place]
            if mark > score:
                best, score = node, mark
        return best

    def _uneven(self, mine: Mapping[str, int], found: Sequence[int]) -> list[float]:
        """The scores of the default spread, as kube-scheduler makes them of the pods of a workload in each domain (`mine`)."""
        if not mine:
            return [100.0] * len(found)
        raw = [0.0] * len(found)
        for at, (_, skew) in enumerate(_DEFAULT_SPREAD):
            domains = [self._domain[node][at] for node in found]
            weight = log(len({*domains}) + 2)
            raw = [mark + (mine.get(domain, 0) * weight + skew - 1) for mark, domain in zip(raw, domains, strict=True)]
        most, least = max(raw), min(raw)
        return [100 * (most + least - mark) / most for mark in raw]


def _filter(shape: PodShape) -> NodeFilter | None:
    """None where it cannot be read: kube-scheduler binds no such pod. The API server takes Gt with a value that is no number, say."""
    try:
        return node_filter(shape)
    except FilterError:
        return None


def _match(terms: Iterable[FilterTerm], labels: Mapping[str, str]) -> bool:
    return any(term.matches(labels, labels.get(names.HOSTNAME_LABEL, "")) for term in terms)


def looks_at_others(shape: PodShape) -> bool:
    """Whether where other pods are decides, or is to decide, where such a pod runs."""
    affinity = shape.affinity
    near = affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)
    return near or bool(shape.spread)


def is_modelled(shape: PodShape) -> bool:
    """Whether room, labels of nodes and hard spreads are all that such a pod asks for."""
    wishes = shape.affinity is not None and (
        shape.affinity.pod_affinity is not None
        or shape.affinity.pod_anti_affinity is not None
        or (shape.affinity.node_affinity is not None and bool(shape.affinity.node_affinity.preferred))
    )
    soft = any(not is_hard(one) for one in shape.spread) or not _is_short(shape)
    return not (wishes or soft or shape.host_ports or shape.volumes or shape.resource_claims or shape.unjudged)


def _is_short(shape: PodShape) -> bool:
    """Whether what such a pod asks of a node's labels is little enough to be held against each node."""
    asked = shape.affinity.node_affinity if shape.affinity is not None else None
    terms = asked.required.node_selector_terms if asked is not None and asked.required is not None else ()
    return len(terms) + len(shape.node_selector) + sum(len(one.match_expressions) for one in terms) <= _MOST_ASKED
