"""A model of kube-scheduler: the filters as `scheduling` reads them, the default scores, and preemption; one pod after another, by priority and age.

Source: kube-scheduler 1.36 with default plugins, weights and feature gates. Whoever found no node is looked at as soon as something has changed that may
help: an idle kube-scheduler waits for no back-off (SchedulerPopFromBackoffQ, on since 1.33), and this one is idle whenever time passes. Left out: images,
volumes, devices, and groups of pods.
"""

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from provisioner.apis import names
from provisioner.apis.core import NodeSelectorTerm
from provisioner.apis.pods import Pod
from provisioner.kube.resources import PODS
from provisioner.scheduling.constraints.demands import Count, Relations, ShapeFacts, Spread, facts_of
from provisioner.scheduling.constraints.filters import FilterError, FilterTerm, NodeFilter, read_term
from provisioner.scheduling.constraints.selectors import LabelSet
from provisioner.simulator.api_server import ApiServer, ServerChange, Wire, covers
from provisioner.simulator.preemption import PreemptionCandidate, importance, preferred
from provisioner.simulator.virtual_time import Agenda, VirtualClock
from provisioner.values.resources import CPU, MEMORY, Resources
from provisioner.values.taints import Taint, Toleration, first_untolerated, tolerates

_encode: Final = msgspec.json.Encoder().encode
_NO_REQUEST: Final = {CPU: 100, MEMORY: 200 << 20}
"""What a pod that requests nothing counts for in scores."""
_SYSTEM_SPREAD: Final = ((names.HOSTNAME_LABEL, 3), (names.ZONE_LABEL, 5))
"""Default constraints of kube-scheduler, with their skew: for pods that have an owner and no constraint of their own."""
_WEIGHTS: Final = {"resources": 1, "balanced": 1, "spread": 2, "affinity": 2, "pods": 2, "taints": 3}
_TAINT_UNSCHEDULABLE: Final = Taint(key=names.CORDONED_TAINT_KEY, effect=names.NO_SCHEDULE)
_DONE: Final = ("Succeeded", "Failed")
_NEVER: Final = "Never"
_MOST_KINDS: Final = 64
"""Of pods, for which is kept which nodes let them in."""
_MOST_LABELS: Final = 1_000
"""Sets of labels, for which is kept who counts such pods."""
_MOST_COUNTS: Final = 2_000
"""Kinds of count that are kept."""
_FEWEST_CANDIDATES, _CANDIDATES_SHARE = 100, 10
"""Nodes on which preemption is tried: a tenth of them, but no fewer than a hundred. Source: DefaultPreemptionArgs."""


@dataclass(eq=False, slots=True)
class _Pod:
    """A pod. `facts`: None where it can go nowhere; `asks`: its requests that are not 0; `order`: of its creation; `since`: when it was bound."""

    key: tuple[str, str]
    pod: Pod
    facts: ShapeFacts | None
    requests: Resources
    asks: tuple[tuple[str, int], ...]
    counted: tuple[int, int]
    order: int
    node: str = ""
    nominated: str = ""
    since: float = 0.0
    waits: bool = True
    leaving: bool = False
    preempted: bool = False
    told: bool = False

    @property
    def rank(self) -> tuple[int, int]:
        """In the queue."""
        return -self.priority, self.order

    @property
    def priority(self) -> int:
        """The higher, the more important."""
        return self.pod.shape.priority


@dataclass(eq=False, slots=True)
class _Node:
    """A Node. `order`: of its arrival; `limits`: `room` by name; `used`: by pods that are bound to it; `counted`: the same as scores see it."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    room: Resources
    limits: Mapping[str, int]
    order: int
    used: dict[str, int] = field(default_factory=dict)
    counted: list[int] = field(default_factory=lambda: [0, 0])
    pods: dict[str, _Pod] = field(default_factory=dict)
    owners: Counter[str] = field(default_factory=Counter)
    nominated: dict[str, _Pod] = field(default_factory=dict)
    admitted: dict[NodeFilter, bool] = field(default_factory=dict)  # by its taints and labels

    def has_room(self, pod: _Pod) -> bool:
        """Beside what is bound to it, and whoever is nominated to it and no less important."""
        limits, used = self.limits, self.used
        for name, amount in pod.asks:
            if used.get(name, 0) + amount > limits.get(name, 0):
                return False
        if not self.nominated:
            return True
        beside = [
            one.requests
            for uid, one in self.nominated.items()
            if uid != pod.pod.uid and one.pod.shape.priority >= pod.pod.shape.priority
        ]
        return all(
            used.get(name, 0) + amount + sum(one.amount(name) for one in beside) <= limits.get(name, 0)
            for name, amount in pod.asks
        )

    def label(self, key: str) -> str | None:
        """A label's value."""
        return self.labels.get(key)


@dataclass(eq=False, slots=True)
class _Fitting:
    """The nodes that let in pods of one kind, by their order, as of the change `seen`."""

    nodes: dict[int, _Node] = field(default_factory=dict)
    seen: int = 0


@dataclass(eq=False, slots=True)
class _Counted:
    """The pods that a `Count` means: `by_node` of all, and `sums` by domain, of nodes that count.

    Attributes:
        domain_of: of each node that counts.
        known: whether `domain_of` and `sums` are as the nodes are.
    """

    by_node: Counter[str] = field(default_factory=Counter)
    domain_of: dict[str, str] = field(default_factory=dict)
    sums: Counter[str] = field(default_factory=Counter)
    known: bool = False

    def add(self, node: str, pods: int) -> None:
        """So many more are on a node."""
        self.by_node[node] += pods
        if self.known and (domain := self.domain_of.get(node)) is not None:
            self.sums[domain] += pods


class _Fittings:
    """The nodes that let pods in, whatever is said of topology: kept for each kind of pods, and looked at again when they change."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], _Fitting] = {}  # those last that were asked about last
        self._touched: dict[_Node, int] = {}  # the change that each node saw last, in their order
        self._changes = 0

    def touch(self, node: _Node) -> None:
        """Something has changed on which it depends whom the node lets in."""
        self._changes += 1
        self._touched.pop(node, None)
        self._touched[node] = self._changes

    def drop(self, node: _Node) -> None:
        """A node is gone."""
        self._touched.pop(node, None)
        for one in self._known.values():
            one.nodes.pop(node.order, None)

    def of(self, pod: _Pod, facts: ShapeFacts, takes: Callable[[_Node, _Pod, ShapeFacts, None], bool]) -> list[_Node]:
        """The nodes that take a pod, in their order. Cost: O(these, and what has changed since one of its kind asked)."""
        kind = (facts.filter, pod.requests, facts.ports, pod.priority)
        known = self._known.pop(kind, None) or _Fitting()
        if len(self._known) >= _MOST_KINDS:
            del self._known[next(iter(self._known))]
        self._known[kind] = known
        for node, change in reversed(self._touched.items()):
            if change <= known.seen:
                break
            if takes(node, pod, facts, None):
                known.nodes[node.order] = node
            else:
                known.nodes.pop(node.order, None)
        known.seen = self._changes
        return [known.nodes[one] for one in sorted(known.nodes)]


class _Counts:
    """The pods on nodes, counted for whoever asked about them once.

    Args:
        nodes: that are there, by name.
    """

    def __init__(self, nodes: Mapping[str, _Node]) -> None:
        self._nodes = nodes
        self._known: dict[Count, _Counted] = {}  # those last that were asked about last
        self._meant_by: dict[LabelSet, list[Count]] = {}

    def add(self, node: _Node, pod: _Pod, pods: int) -> None:
        """So many more such pods are on a node."""
        if pod.facts is None:
            return
        found = self._meant_by.get(pod.facts.pod)
        if found is None:
            if len(self._meant_by) >= _MOST_LABELS:
                self._meant_by.clear()
            found = self._meant_by[pod.facts.pod] = [one for one in self._known if one.include(pod.facts.pod, {})]
        for count in found:
            if _sees(count, pod):
                self._known[count].add(node.name, pods)

    def recount(self) -> None:
        """Nodes have come, or changed what decides where they count."""
        for one in self._known.values():
            one.known = False

    def drop(self, node: _Node) -> None:
        """A node is gone."""
        for one in self._known.values():
            one.by_node.pop(node.name, None)
            one.known = False

    def by_node(self, count: Count) -> Counter[str]:
        """How many pods that a count means each node has."""
        return self._of(count).by_node

    def sums(self, count: Count) -> Counter[str]:
        """The same by domain, of the nodes that count; those without any are there."""
        found = self._of(count)
        if not found.known:
            found.domain_of = {
                node.name: value
                for node in self._nodes.values()
                if (value := node.label(count.key)) is not None and _is_eligible(node, count)
            }
            found.sums = Counter()
            for name, domain in found.domain_of.items():
                found.sums[domain] += found.by_node[name]
            found.known = True
        return found.sums

    def _of(self, count: Count) -> _Counted:
        found = self._known.pop(count, None)
        if found is None:
            if len(self._known) >= _MOST_COUNTS:
                del self._known[next(iter(self._known))]
            found = _Counted()
            self._meant_by.clear()
            for node in self._nodes.values():
                for pod in node.pods.values():
                    if pod.facts is not None and _sees(count, pod) and count.include(pod.facts.pod, {}):
                        found.by_node[node.name] += 1
        self._known[count] = found
        return found


class SchedulerExtender(Protocol):
    """Whom kube-scheduler asks about nodes that its own filters let pass; nodes by name."""

    def filtered(self, pod: Wire, nodes: Sequence[str]) -> list[str]: ...

    def scores(self, pod: Wire, nodes: Sequence[str]) -> Mapping[str, int]: ...

    def preemptible(self, pod: Wire, victims: Mapping[str, tuple[Iterable[str], int]]) -> Collection[str]: ...


class KubeScheduler:
    """Binds pods that wait as soon as something has changed.

    Args:
        chance: decides between nodes of equal score.

    Attributes:
        bound: is called with the UID of each pod that is bound.
        preempted: is called with each pod that is deleted for a more important one.
        extender: None where it has none.
        priorities: of bound pods, with how many.
    """

    def __init__(self, server: ApiServer, clock: VirtualClock, agenda: Agenda, chance: random.Random) -> None:
        self._server, self._clock, self._agenda, self._chance = server, clock, agenda, chance
        self.bound: Callable[[str], object] = lambda _: None
        self.preempted: Callable[[Wire], object] = lambda _: None
        self.extender: SchedulerExtender | None = None
        self._nodes: dict[str, _Node] = {}
        self._pods: dict[tuple[str, str], _Pod] = {}
        self._orphans: dict[str, dict[str, _Pod]] = {}  # bound to Nodes that are not there, by their name
        self._active: dict[str, _Pod] = {}
        self._stuck: dict[str, _Pod] = {}
        self._guarding: dict[str, _Pod] = {}  # bound pods that keep others away
        self.counts = _Counts(self._nodes)
        self._fittings = _Fittings()
        self._arrivals = itertools.count()
        self.priorities: Counter[int] = Counter()
        self._preemption = _Preemption(self, server, chance)
        self._asked, self._orders = False, 0

    # ------------------------------------------------------------------ what it hears

    def heard(self, change: ServerChange) -> None:
        """A change of any object."""
        if change.plural == "pods":
            self._pod_changed(change)
        elif change.plural == "nodes":
            self._node_changed(change)

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self._agenda.after(0.0, self._schedule)

    def _help(self) -> None:
        """Whoever found no node may find one now."""
        self._active |= self._stuck
        self._stuck = {}
        if self._active:
            self._ask()

    def _node_changed(self, change: ServerChange) -> None:
        wire, name = change.after, change.name
        if wire is None:
            node = self._nodes.pop(name, None)
            if node is not None:
                if node.pods:
                    self._orphans[name] = node.pods
                self._fittings.drop(node)
                self.counts.drop(node)
            return
        spec, known = wire["spec"], self._nodes.get(name)
        taints = tuple(
            Taint(key=one["key"], effect=one["effect"], value=one.get("value", "")) for one in spec.get("taints") or ()
        )
        if spec.get("unschedulable"):
            taints += (_TAINT_UNSCHEDULABLE,)
        labels, room = wire["metadata"].get("labels") or {}, Resources.parse(wire["status"]["allocatable"])
        if known is None:
            known = self._nodes[name] = _Node(name, labels, taints, room, room.to_dict(), next(self._arrivals))
            self._fittings.touch(known)
            self.counts.recount()
            for pod in self._orphans.pop(name, {}).values():
                self._put(known, pod)
        elif (known.labels, known.taints, known.room) == (labels, taints, room):
            if self.extender is None:
                return  # else it may be a sign of the extender's
        else:
            known.labels, known.taints, known.room, known.limits = labels, taints, room, room.to_dict()
            known.admitted.clear()
            self._fittings.touch(known)
            self.counts.recount()
        self._help()

    def _pod_changed(self, change: ServerChange) -> None:
        wire = change.after
        shown = wire or change.before or {}
        meta = shown["metadata"]
        key = meta["namespace"], meta["name"]
        known = self._pods.get(key)
        if wire is None:
            if known is not None:
                self._forget(known)
            return
        if known is None:
            known = self._pods[key] = self._read(key, wire)
        status, node = wire.get("status", {}), wire["spec"].get("nodeName", "")
        if status.get("phase") in _DONE:
            self._forget(known)
            return
        if not known.leaving and "deletionTimestamp" in meta:
            self._leave(known)
        self._nominate(known, status.get("nominatedNodeName", "") if not node else "")
        if node and not known.node:
            self._active.pop(known.pod.uid, None)
            self._stuck.pop(known.pod.uid, None)
            known.node, known.waits, known.since = node, False, self._clock.seconds
            there = self._nodes.get(node)
            if there is not None:
                self._put(there, known)
            else:
                self._orphans.setdefault(node, {})[known.pod.uid] = known
        elif not node and known.leaving:
            self._active.pop(known.pod.uid, None)
            self._stuck.pop(known.pod.uid, None)
        elif not node and known.pod.uid not in self._stuck and known.facts is not None:
            self._active[known.pod.uid] = known
            self._ask()

    def _read(self, key: tuple[str, str], wire: Wire) -> _Pod:
        pod = PODS.decode(_encode(wire))
        try:
            facts = facts_of(pod.shape) if not pod.gated else None
        except FilterError:
            facts = None
        self._orders += 1
        requests = pod.shape.requests
        counted = requests.amount(CPU) or _NO_REQUEST[CPU], requests.amount(MEMORY) or _NO_REQUEST[MEMORY]
        asks = tuple((name, amount) for name, amount in requests.items() if amount > 0)
        return _Pod(key, pod, facts, requests, asks, counted, self._orders)

    def _nominate(self, pod: _Pod, node: str) -> None:
        if pod.nominated == node:
            return
        self._unnominate(pod)
        pod.nominated = node
        if (there := self._nodes.get(node)) is not None:
            there.nominated[pod.pod.uid] = pod
            self._fittings.touch(there)
        if self._stuck.pop(pod.pod.uid, None) is not None:
            self._active[pod.pod.uid] = pod
        self._help()

    def _unnominate(self, pod: _Pod) -> None:
        there = self._nodes.get(pod.nominated)
        if there is not None and there.nominated.pop(pod.pod.uid, None) is not None:
            self._fittings.touch(there)

    def _leave(self, pod: _Pod) -> None:
        """It is being deleted: it takes its room until it is gone, but spreads do not count it any more."""
        node = self._nodes.get(pod.node)
        if node is None or pod.pod.uid not in node.pods:
            pod.leaving = True
            return
        self.lift(node, pod)
        pod.leaving = True
        self.lay(node, pod)

    def _put(self, node: _Node, pod: _Pod) -> None:
        self.lay(node, pod)
        if any(one.facts is not None and not one.facts.plain for one in self._stuck.values()):
            self._help()  # of affinity to it, perhaps

    def lay(self, node: _Node, pod: _Pod) -> None:
        """A pod is on a node."""
        self._fittings.touch(node)
        node.pods[pod.pod.uid] = pod
        self.priorities[pod.priority] += 1
        for name, amount in pod.requests.items():
            node.used[name] = node.used.get(name, 0) + amount
        node.counted[0] += pod.counted[0]
        node.counted[1] += pod.counted[1]
        if pod.pod.owner is not None and not pod.leaving:
            node.owners[pod.pod.owner.uid] += 1
        if pod.facts is not None:
            if pod.facts.required.relations.apart:
                self._guarding[pod.pod.uid] = pod
            self.counts.add(node, pod, 1)

    def lift(self, node: _Node, pod: _Pod) -> None:
        """A pod is on a node no more."""
        self._fittings.touch(node)
        del node.pods[pod.pod.uid]
        self._guarding.pop(pod.pod.uid, None)
        self.priorities[pod.priority] -= 1
        for name, amount in pod.requests.items():
            node.used[name] -= amount
        node.counted[0] -= pod.counted[0]
        node.counted[1] -= pod.counted[1]
        if pod.pod.owner is not None and not pod.leaving:
            node.owners[pod.pod.owner.uid] -= 1
        self.counts.add(node, pod, -1)

    def _forget(self, pod: _Pod) -> None:
        """It is gone, or has ended."""
        uid = pod.pod.uid
        self._pods.pop(pod.key, None)
        self._active.pop(uid, None)
        self._stuck.pop(uid, None)
        self._guarding.pop(uid, None)
        orphans = self._orphans.get(pod.node, {})
        if orphans.pop(uid, None) is not None and not orphans:
            del self._orphans[pod.node]
        node = self._nodes.get(pod.node)
        self._unnominate(pod)
        if node is None or uid not in node.pods:
            return
        self.lift(node, pod)
        self._help()

    # ------------------------------------------------------------------ scheduling

    def _schedule(self) -> None:
        """Bind whoever can be bound; the others are told so, once."""
        self._asked = False
        failed: set[tuple[object, Resources]] = set()  # classes of pods without ties that found no node
        in_vain: set[tuple[object, Resources, int]] = set()  # classes and priorities for which nobody can be preempted
        for pod in sorted(self._active.values(), key=lambda one: one.rank):
            if pod.facts is None or pod.pod.uid not in self._active:
                continue
            self._active.pop(pod.pod.uid)
            alike = (pod.facts.ties, pod.requests)
            found = [] if alike in failed and not pod.nominated else self._feasible(pod, pod.facts)
            if not found and pod.facts.plain and not pod.nominated:
                failed.add(alike)
            found = self._extended(pod, found)
            if found:
                self._bind(pod, self._best(pod, pod.facts, found))
                continue
            self._stuck[pod.pod.uid] = pod
            if (*alike, pod.priority) not in in_vain and not self._preemption.preempt(pod, pod.facts):
                in_vain.add((*alike, pod.priority))
            if not pod.told:
                pod.told = True
                told = self._condition("False", reason="Unschedulable", message="no node is available")
                self._server.change("pods", pod.key[1], {"status": {"conditions": [told]}}, pod.key[0])

    def _bind(self, pod: _Pod, node: _Node) -> None:
        self.bound(pod.pod.uid)
        patch = {"spec": {"nodeName": node.name}, "status": {"conditions": [self._condition("True")]}}
        self._server.change("pods", pod.key[1], patch, pod.key[0])

    def _condition(self, status: str, **more: str) -> dict[str, str]:
        return {"type": "PodScheduled", "status": status, "lastTransitionTime": self._clock.stamp(), **more}

    def check(self, pod: _Pod, facts: ShapeFacts) -> "_Topology | None":
        """What other pods say; None where nothing can."""
        return _Topology(self, pod, facts) if self._guarding or not facts.plain else None

    def _feasible(self, pod: _Pod, facts: ShapeFacts) -> list[_Node]:
        """The nodes that it could have; where its nominated node is among them, that alone."""
        nominated, check = self._nodes.get(pod.nominated), self.check(pod, facts)
        if nominated is not None and self.takes(nominated, pod, facts, check) and self._extended(pod, [nominated]):
            return [nominated]
        fitting = self._fitting_of(pod, facts)
        return fitting if check is None else [node for node in fitting if check.admits(node)]

    def _fitting_of(self, pod: _Pod, facts: ShapeFacts) -> list[_Node]:
        """The nodes that have room for it and let it in, in their order."""
        nominated = self._nodes.get(pod.nominated)
        if nominated is None:
            return self._fittings.of(pod, facts, self.takes)
        self._fittings.touch(nominated)  # where it does not stand in its own way,
        found = self._fittings.of(pod, facts, self.takes)
        self._fittings.touch(nominated)  # but in that of others
        return found

    def _extended(self, pod: _Pod, found: list[_Node]) -> list[_Node]:
        """Those of them that the extender lets pass."""
        if self.extender is None or not found:
            return found
        passing = self.extender.filtered(self.wire_of(pod), [one.name for one in found])
        return [self._nodes[one] for one in passing]

    def wire_of(self, pod: _Pod) -> Wire:
        """As the API server has it."""
        return self._server.get("pods", pod.key[1], pod.key[0]) or {}

    def _best(self, pod: _Pod, facts: ShapeFacts, found: list[_Node]) -> _Node:
        if len(found) == 1:
            return found[0]
        scores = self._scores(pod, facts, found)
        if self.extender is not None:
            more = self.extender.scores(self.wire_of(pod), [one.name for one in found])
            scores = [score + more.get(one.name, 0) for score, one in zip(scores, found, strict=True)]
        most = max(scores)
        best = [node for node, score in zip(found, scores, strict=True) if score == most]
        return best[0] if len(best) == 1 else self._chance.choice(best)

    def takes(self, node: _Node, pod: _Pod, facts: ShapeFacts, check: "_Topology | None") -> bool:
        """Whether all filters let a pod have a node."""
        if not node.has_room(pod):
            return False
        if not self.may_run(node, facts):
            return False
        ports = facts.ports
        if ports and any(one.facts is not None and set(one.facts.ports) & set(ports) for one in node.pods.values()):
            return False
        return check is None or check.admits(node)

    def may_run(self, node: _Node, facts: ShapeFacts) -> bool:
        """Whether taints and labels of a node admit it, whoever else is there."""
        admitted = node.admitted.get(facts.filter)
        if admitted is None:
            tolerated = first_untolerated(facts.filter.tolerations, node.taints) is None
            admitted = tolerated and any(term.matches(node.labels, node.name) for term in facts.filter.terms)
            if len(node.admitted) >= _MOST_KINDS:
                node.admitted.clear()
            node.admitted[facts.filter] = admitted
        return admitted

    @property
    def nodes(self) -> Mapping[str, _Node]:
        """By name."""
        return self._nodes

    def keeping_off(self, pod: ShapeFacts) -> Iterator[tuple[str, str]]:
        """(label, value) of every domain that a bound pod keeps this one off."""
        for one in self._guarding.values():
            node = self._nodes.get(one.node)
            for count in one.facts.required.relations.apart if one.facts is not None and node is not None else ():
                value = node.label(count.key) if node is not None else None
                if value is not None and count.include(pod.pod, {}):
                    yield count.key, value

    # ------------------------------------------------------------------ scores

    def _scores(self, pod: _Pod, facts: ShapeFacts, nodes: list[_Node]) -> list[int]:
        total = [
            _WEIGHTS["resources"] * _least_allocated(pod, node) + _WEIGHTS["balanced"] * _balanced(pod, node)
            for node in nodes
        ]
        for weight, raw, upside_down in (
            (_WEIGHTS["taints"], _soft_taints(pod.pod.shape.tolerations, nodes), True),
            (_WEIGHTS["affinity"], _preferred_nodes(pod, nodes), False),
        ):
            most = max(raw)
            if most:
                for number, one in enumerate(raw):
                    score = one * 100 // most
                    total[number] += weight * (100 - score if upside_down else score)
            elif upside_down:
                total = [one + weight * 100 for one in total]
        for weight, some in (
            (_WEIGHTS["spread"], self._spread(pod, facts, nodes)),
            (_WEIGHTS["pods"], self._near(facts, nodes)),
        ):
            total = [one + weight * score for one, score in zip(total, some, strict=True)]
        return total

    def _spread(self, pod: _Pod, facts: ShapeFacts, nodes: list[_Node]) -> list[int]:
        """PodTopologySpread: what is counted in the domains of a node, weighed by their number, lowest first."""
        raw = [0.0] * len(nodes)
        wishes = facts.ties.wishes.spreads
        by_key: list[tuple[str, int, Callable[[_Node], int]]] = []
        for spread in wishes:
            by_node = self.counts.by_node(spread.count)
            by_key.append((spread.count.key, spread.max_skew, lambda node, by_node=by_node: by_node[node.name]))  # type: ignore[misc]
        owner = pod.pod.owner
        if not wishes and not pod.pod.shape.spread and owner is not None:
            uid = owner.uid
            by_key = [(key, skew, lambda node: node.owners[uid]) for key, skew in _SYSTEM_SPREAD]
        if not by_key:
            return [0] * len(nodes)
        for key, skew, number_on in by_key:
            on_hosts = key == names.HOSTNAME_LABEL
            values = {node.label(key) for node in nodes}
            weight = math.log((len(nodes) if on_hosts else len(values)) + 2)
            sums: Counter[str | None] = Counter()
            if not on_hosts:
                for node in self._nodes.values():
                    if node.label(key) in values:
                        sums[node.label(key)] += number_on(node)
            for number, node in enumerate(nodes):
                there = number_on(node) if on_hosts else sums[node.label(key)]
                raw[number] += there * weight + (skew - 1)
        scores = [round(one) for one in raw]
        least, most = min(scores), max(scores)
        return [100 if not most else 100 * (most + least - one) // most for one in scores]

    def _near(self, facts: ShapeFacts, nodes: list[_Node]) -> list[int]:
        """InterPodAffinity, preferred terms only; each counts the same."""
        wishes = facts.ties.wishes
        raw = [0] * len(nodes)
        for sign, counts in ((1, wishes.together), (-1, wishes.apart)):
            for count in counts:
                by_node, sums = self.counts.by_node(count), Counter[str | None]()
                for node in self._nodes.values():
                    sums[node.label(count.key)] += by_node[node.name]
                for number, node in enumerate(nodes):
                    raw[number] += sign * sums[node.label(count.key)]
        least, most = min(raw), max(raw)
        return [100 * (one - least) // (most - least) if most > least else 0 for one in raw]


class _Preemption:
    """Makes room for a pod that found none."""

    def __init__(self, scheduler: KubeScheduler, server: ApiServer, chance: random.Random) -> None:
        self._of, self._server, self._chance = scheduler, server, chance

    def preempt(self, pod: _Pod, facts: ShapeFacts) -> bool:
        """Delete less important pods where that makes room, and nominate the pod there; False where nobody less important can go."""
        if pod.pod.shape.preemption_policy == _NEVER:
            return False
        if not any(count and one < pod.priority for one, count in self._of.priorities.items()):
            return False
        there = self._of.nodes.get(pod.nominated)
        if there is not None and any(
            one.leaving and one.preempted and one.priority < pod.priority for one in there.pods.values()
        ):
            return True  # it waits for their end
        found: list[PreemptionCandidate[_Pod]] = []
        nodes = [node for node in self._of.nodes.values() if self._of.may_run(node, facts)]
        most = max(len(nodes) // _CANDIDATES_SHARE, _FEWEST_CANDIDATES)
        first = self._chance.randrange(len(nodes)) if len(nodes) > most else 0
        for node in (*nodes[first:], *nodes[:first]):
            if (one := self._victims(node, pod, facts)) is not None:
                found.append(one)
            if len(found) >= most:
                break
        if found and self._of.extender is not None:
            asked = {one.node: ([victim.pod.uid for victim in one.victims], one.violations) for one in found}
            kept = self._of.extender.preemptible(self._of.wire_of(pod), asked)
            found = [one for one in found if one.node in kept]
        if not found:
            return False
        self._carry_out(pod, preferred(found))
        return True

    def _victims(self, node: _Node, pod: _Pod, facts: ShapeFacts) -> PreemptionCandidate[_Pod] | None:
        """Who must go from a node so that the pod can run there: as few as possible, the least important first."""
        lower = sorted((one for one in node.pods.values() if one.priority < pod.priority), key=importance)
        if not lower:
            return None
        for one in lower:
            self._of.lift(node, one)
        victims: list[_Pod] = []
        violations = 0
        away = dict.fromkeys(lower)
        try:
            if not self._of.takes(node, pod, facts, self._of.check(pod, facts)):
                return None
            violating = self._violating(lower)
            for one in sorted(lower, key=lambda one: one not in violating):
                self._of.lay(node, one)
                if self._of.takes(node, pod, facts, self._of.check(pod, facts)):
                    del away[one]
                    continue
                self._of.lift(node, one)
                victims.append(one)
                violations += one in violating
        finally:
            for one in away:
                self._of.lay(node, one)
        return PreemptionCandidate(node.name, tuple(victims), violations) if victims else None

    def _violating(self, pods: Iterable[_Pod]) -> set[_Pod]:
        """Those whose end no PodDisruptionBudget allows, if they go in this order."""
        budgets = self._server.objects["poddisruptionbudgets"]
        left = {key: one.get("status", {}).get("disruptionsAllowed", 0) for key, one in budgets.items()}
        found = set()
        for pod in pods if budgets else ():
            wire = self._of.wire_of(pod)
            for key, budget in budgets.items():
                if covers(budget, wire):
                    left[key] -= 1
                    if left[key] < 0:
                        found.add(pod)
        return found

    def _carry_out(self, pod: _Pod, chosen: PreemptionCandidate[_Pod]) -> None:
        for victim in chosen.victims:
            victim.preempted = True
            if not victim.leaving:
                namespace, name = victim.key
                told = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
                wire = self._server.change("pods", name, {"status": {"conditions": [told]}}, namespace)
                self._of.preempted(wire)
                self._server.remove("pods", name, namespace)
        for other in list(self._of.nodes[chosen.node].nominated.values()):
            if other.priority < pod.priority:
                self._server.change("pods", other.key[1], {"status": {"nominatedNodeName": None}}, other.key[0])
        self._server.change("pods", pod.key[1], {"status": {"nominatedNodeName": chosen.node}}, pod.key[0])


class _Topology:
    """What other pods say about where one may go, for as long as nothing is bound."""

    def __init__(self, scheduler: KubeScheduler, pod: _Pod, facts: ShapeFacts) -> None:
        self._scheduler, self._pod = scheduler, pod
        self._relations: Relations = facts.required.relations
        self._kept_off = set(scheduler.keeping_off(facts))
        self._spreads = [(spread, *self._domains(spread)) for spread in self._relations.spreads]
        self._near = [(count, scheduler.counts.sums(count)) for count in self._relations.together]
        self._apart = [(count, scheduler.counts.sums(count)) for count in self._relations.apart]
        nobody = not any(sums.total() for _, sums in self._near)
        self._first = nobody and all(count.include(facts.pod, {}) for count, _ in self._near)

    def admits(self, node: _Node) -> bool:
        """Whether the pod may go there as far as others are concerned."""
        if any(node.label(key) == value for key, value in self._kept_off):
            return False
        for count, sums in self._apart:
            value = node.label(count.key)
            if value is not None and sums[value]:
                return False
        for count, sums in self._near:
            value = node.label(count.key)
            if value is None or not (sums[value] or self._first):
                return False
        for spread, sums, least in self._spreads:
            value = node.label(spread.count.key)
            if value is None or sums[value] + spread.own - least > spread.max_skew:
                return False
        return True

    def _domains(self, spread: Spread) -> tuple[Counter[str], int]:
        """Pods by domain, and the least of them."""
        sums = self._scheduler.counts.sums(spread.count)
        least = min(sums.values(), default=0)
        return sums, least if not spread.stated or len(sums) >= spread.min_domains else 0


def _sees(count: Count, pod: _Pod) -> bool:
    """Whether a pod on a node counts, if it is meant. Affinity sees it until it is gone, spreads only until it is being deleted."""
    return not (count.spread and pod.leaving)


def _is_eligible(node: _Node, count: Count) -> bool:
    of = count.eligibility
    if of is None:
        return True
    if any(key not in node.labels for key in of.keys):
        return False
    if of.terms is not None and not any(term.matches(node.labels, node.name) for term in of.terms):
        return False
    return of.tolerations is None or first_untolerated(of.tolerations, node.taints) is None


def _fractions(pod: _Pod, node: _Node) -> list[float]:
    room = node.room.amount(CPU), node.room.amount(MEMORY)
    return [
        min(1.0, (used + own) / whole) if whole else 1.0
        for used, own, whole in zip(node.counted, pod.counted, room, strict=True)
    ]


def _least_allocated(pod: _Pod, node: _Node) -> int:
    """The share of cpu and memory that stays free, in percent, each rounded down."""
    return sum(int((1.0 - one) * 100) for one in _fractions(pod, node)) // 2


def _balanced(pod: _Pod, node: _Node) -> int:
    """How alike the used shares of cpu and memory are. Those who request neither have no score."""
    if not pod.requests.amount(CPU) and not pod.requests.amount(MEMORY):
        return 0
    cpu, memory = (
        min(1.0, (node.used.get(name, 0) + pod.requests.amount(name)) / (node.room.amount(name) or 1))
        for name in (CPU, MEMORY)
    )
    return int((1.0 - abs(cpu - memory) / 2) * 100)


def _soft_taints(tolerations: Iterable[Toleration], nodes: list[_Node]) -> list[int]:
    """PreferNoSchedule taints that are not tolerated."""
    own = tuple(tolerations)
    return [
        sum(one.effect == names.PREFER_NO_SCHEDULE and not tolerates(own, one) for one in node.taints) for node in nodes
    ]


def _preferred_nodes(pod: _Pod, nodes: list[_Node]) -> list[int]:
    """Preferred node affinity: the weights of all terms that match."""
    affinity = pod.pod.shape.affinity
    wanted = affinity.node_affinity.preferred if affinity is not None and affinity.node_affinity is not None else ()
    terms = [(one.weight, _term(one.preference)) for one in wanted]
    return [sum(weight for weight, term in terms if term.matches(node.labels, node.name)) for node in nodes]


def _term(term: NodeSelectorTerm) -> FilterTerm:
    return read_term(term, "preference")
