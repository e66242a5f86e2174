"""What the relations of a class mean in one attempt, and the class while its pods are being placed."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, TypeVar

import msgspec

from provisioner.apis.attachments import Attachment
from provisioner.scheduling.constraints.classes import PodClass
from provisioner.scheduling.constraints.demands import Count, Demand, Relations, Spread
from provisioner.scheduling.constraints.filters import TRIVIAL, FilterTerm, NodeFilter
from provisioner.scheduling.constraints.ports import Ports
from provisioner.scheduling.constraints.vectors import Need
from provisioner.scheduling.constraints.volumes import NO_VOLUMES
from provisioner.scheduling.constraints.workload_limits import Crowd
from provisioner.scheduling.topology.counters import Axis, DomainCounter, Effects, HostCounter, Topology

HostSpread = tuple[HostCounter, int, bool, int]
"""(counter, max_skew, whether the pod counts itself, min_domains)"""
Counter = HostCounter | DomainCounter
Question = tuple[NodeFilter, int, Ports, tuple[str, ...]] | tuple[NodeFilter, int]
"""Where does such a pod fit: (filter, identity of the need, ports of the node, the driver of each volume to attach); without ports,
volumes and nodes that it keeps off, the first two."""
T = TypeVar("T", HostCounter, DomainCounter)
A_STEP: Final = 16
"""So many counters, terms, ports or volumes are looked at in one step."""
_DomainSpread = tuple[DomainCounter, int, bool, int]


class AxisPlan:
    """What the relations of a class mean on one axis.

    Attributes:
        spreads: its own constraints.
        holds: (counter, (max_skew, min_domains)) of those that are no wishes: what came later must not break them.
        wanted: counters that count it and by which other pods are spread, with the least skew of these.
        together, apart: its affinity and anti-affinity.
        blocked: where pods are that keep it away.
        adds: counters that count it, or what it guards.
        strict: whether a node without the label is out of the question.
        alone: two such pods cannot share a domain.
        lead: (counter, max_skew, min_domains) of the only counter that the pods raise and that has to stay even; only
            set where it decides alone.
        others: the same of the other spreads, then.
    """

    def __init__(self, axis: Axis, adds: Sequence[DomainCounter] = (), blocked: Sequence[DomainCounter] = ()) -> None:
        self.axis: Final = axis
        self.spreads: list[_DomainSpread] = []
        self.holds: list[tuple[DomainCounter, tuple[int, int]]] = []
        self.wanted: list[tuple[DomainCounter, int]] = []
        self.together: list[DomainCounter] = []
        self.apart: list[DomainCounter] = []
        self.blocked: Final = blocked
        self.adds: Final = [*adds]
        self.strict = False
        self.alone = False
        self.lead: tuple[DomainCounter, int, int]
        self.others: list[tuple[DomainCounter, int, int]]


class TopologyPlan:
    """What the relations of a class mean in one attempt; attributes as of `AxisPlan`, places in place of domains.

    Attributes:
        plain: nothing at all.
        hostless: nothing that keeps a pod off single places.
        single: two such pods cannot share a place.
        guarded: counters that count it, and by which pods that are placed already are spread over hosts.
        tops, caps: as of `PodRun`, while the emptiest node is taken as empty: 0 is always right, a node may be added.
        ties: whether anything besides hosts has to know where its pods are.
        considerate: whether the pods leave room for the spread of others while they can.
        choosy: the terms of each spread that counts the pods on some nodes only.
        cost: how many steps a look at all of this is worth.
    """

    def __init__(
        self, relations: Relations, topology: Topology, skews: Mapping[Count, int], least_of: Callable[[Spread], int]
    ) -> None:
        effects: Effects = topology.effects(relations.pod)
        self.spreads: list[HostSpread] = []
        self.holds: list[tuple[HostCounter, tuple[int, int]]] = []
        self.together: list[HostCounter] = []
        self.apart: list[HostCounter] = []
        self.blocked: Final = effects.blocked
        self.adds: Final = effects.hosts.copy()
        self.tops: Final[list[int]] = []
        self.caps: Final[list[tuple[HostCounter, int]]] = []
        axes = {axis: AxisPlan(axis, some.adds, some.blocked) for axis, some in effects.axes.items()}

        def on(axis: Axis) -> AxisPlan:
            return axes.get(axis) or axes.setdefault(axis, AxisPlan(axis))

        for spread in relations.spreads:
            skew, own = spread.max_skew, spread.own
            if spread.count.on_hosts:
                host = topology.host(spread.count)
                least = least_of(spread)
                self.spreads.append((host, skew, own, least))
                self.tops.append(skew)
                if own:
                    self.caps.append((host, skew))
                if not spread.wish:
                    self.holds.append((host, (skew, least)))
            else:
                counter = topology.domain(spread.count)
                plan = on(counter.axis)
                plan.spreads.append((counter, skew, own, spread.min_domains))
                plan.strict = True
                if not spread.wish:
                    plan.holds.append((counter, (skew, spread.min_domains)))
        self.bootstraps = bool(relations.together)
        for count in relations.together:
            self.bootstraps = self.bootstraps and count.include(relations.pod, topology.namespaces)
            if count.on_hosts:
                self.together.append(topology.host(count))
            else:
                counter = topology.domain(count)
                plan = on(counter.axis)
                plan.together.append(counter)
                plan.strict = True
        self.single = False
        for count in relations.apart:
            own = count.include(relations.pod, topology.namespaces)
            if count.on_hosts:
                self.apart.append(topology.host(count))
                self.single = self.single or own
            else:
                counter = topology.domain(count)
                plan = on(counter.axis)
                plan.apart.append(counter)
                plan.alone = plan.alone or own
        for count in relations.guards:
            if count.on_hosts:
                self.adds.append(topology.host(count))
            else:
                counter = topology.domain(count)
                on(counter.axis).adds.append(counter)
        spread_by = {spread.count for spread in relations.spreads}
        self.guarded: Final = _wanted(effects.hosts, skews, spread_by)
        self.considerate = bool(self.guarded)
        for plan in axes.values():
            plan.wanted = _wanted(plan.adds, skews, spread_by)
            self.considerate = self.considerate or bool(plan.wanted)
        self.by_axis: Final = axes
        self.axes: Final = [axes[axis] for axis in sorted(axes, key=_key_of)] if len(axes) > 1 else [*axes.values()]
        self.even: Final = self._even()
        self.ties: Final = bool(self.axes or self.guarded)
        self.choosy: Final = effects.choosy
        self.hostless: Final = not (self.spreads or self.together or self.apart or self.blocked or self.guarded)
        self.plain: Final = self.hostless and not (self.axes or self.adds)
        self.cost: Final = 1 + (len(relations.counts) + len(topology.scope.including(relations.pod))) // A_STEP

    @property
    def anywhere(self) -> bool:
        """Whether any pod is counted that the class wants to be with."""
        return any(one.anywhere for one in self.together) or any(
            one.anywhere for ap in self.axes for one in ap.together
        )

    def domains_of(self, low: int) -> tuple[int, ...]:
        """By axis, where a place is; -1 for nowhere."""
        return tuple([ap.axis.domain_of(low) if ap.axis.fixed & low else -1 for ap in self.axes])

    def _even(self) -> AxisPlan | None:
        """The only axis, where shares by one counter settle everything."""
        if len(self.axes) != 1:
            return None
        (ap,) = self.axes
        if ap.together or ap.apart or ap.blocked:
            return None
        leads = [(counter, skew, 1) for counter, skew in ap.wanted]
        others: list[tuple[DomainCounter, int, int]] = []
        for counter, skew, own, least in ap.spreads:
            (leads if own else others).append((counter, skew, least))
        if len(leads) != 1:
            return None
        (ap.lead,), ap.others = leads, others
        return ap


def _wanted(counters: Iterable[T], skews: Mapping[Count, int], spread_by: Collection[Count]) -> list[tuple[T, int]]:
    """Of counters, those by which others are spread, with the least skew of these."""
    return [(one, skews[one.count]) for one in counters if one.count in skews and one.count not in spread_by]


_key_of: Final = attrgetter("key")


class PodRun(msgspec.Struct, eq=False, gc=False):
    """One class with one demand, while its pods are being placed.

    Attributes:
        filter: of nodes, by its wishes and its volumes.
        required: the same without wishes.
        question, widest: numbers of the questions "where does such a pod fit", by `filter` and by `required`.
        start: number of its first pod without a place.
        end: number after the last pod to be placed.
        tops: by hostname spread of the plan, the most pods on a place that it allows.
        caps: the same of those spreads by which the pods count themselves.
        ties: of the plan; ports are ties too.
        easy: no term, port, volume or choosy spread has to be looked at on a claim.
        crowd: where pods of the same owner are, where a NodePool counts them.
        soft: whether to leave room for the spread of other pods.
        opening: whether new claims may be opened.
        together: whether the pods must be with those that they want to be with; not while the first of them gets a place.
        over: of how many pods, and on how many new nodes these are to be shared out evenly; (0, 0) to fill one after another.
    """

    pods: PodClass
    filter: NodeFilter
    required: NodeFilter
    plan: TopologyPlan
    need: Need
    question: int
    widest: int
    start: int
    end: int
    ports: Ports
    volumes: tuple[Attachment, ...]
    tops: Sequence[int]
    caps: Sequence[tuple[HostCounter, int]]
    easy: bool
    ties: bool
    crowd: Crowd | None = None
    soft: bool = True
    over: tuple[int, int] = (0, 0)
    opening: bool = False
    together: bool = True

    @property
    def left(self) -> int:
        """Pods without a place."""
        return self.end - self.start

    @property
    def cost(self) -> int:
        """How many steps a look for a place is worth."""
        return self.plan.cost + (len(self.filter.terms) + len(self.ports) + len(self.volumes)) // A_STEP

    def allow(self, floors: Sequence[int]) -> None:
        """Spread over hosts by these numbers of pods, one a spread, on the emptiest node."""
        spreads = self.plan.spreads
        self.tops = [floor + skew for floor, (_, skew, _, _) in zip(floors, spreads, strict=True)]
        self.caps = [(host, top) for top, (host, _, own, _) in zip(self.tops, spreads, strict=True) if own]


def run_of(
    pods: PodClass,
    demand: Demand,
    plan: TopologyPlan,
    need: Need,
    numbers: dict[Question, int],
    start: int,
    reached: tuple[FilterTerm, ...] = (),
    crowd: Crowd | None = None,
) -> PodRun:
    """The run of one class with one of its demands; `numbers` tells questions apart.

    `reached`: as of `PodClass.narrowed`. `crowd`: as of `PodRun`.
    """
    facts = pods.facts
    own, ports = facts.filter, facts.ports
    attached: tuple[Attachment, ...] = ()
    features = pods.shape.features
    if not ports and pods.volumes is NO_VOLUMES and pods.elsewhere is TRIVIAL and not features:  # as a rule
        node_filter, required = demand.filter, own
        question = widest = numbers.setdefault((own, id(need)), len(numbers))
        if node_filter is not own:
            question = numbers.setdefault((node_filter, id(need)), len(numbers))
    else:
        attached = pods.volumes.attachments
        node_filter = required = pods.narrowed(own, reached)
        drivers = tuple([driver for driver, _ in attached]) if attached else ()
        question = widest = numbers.setdefault((required, id(need), ports, drivers), len(numbers))
        if demand.filter is not own:
            node_filter = pods.narrowed(demand.filter, reached)
            question = numbers.setdefault((node_filter, id(need), ports, drivers), len(numbers))
    return PodRun(
        pods,
        node_filter,
        required,
        plan,
        need,
        question,
        widest,
        start,
        len(pods.pods),
        ports,
        attached,
        plan.tops,
        plan.caps,
        node_filter.easy and not ports and not attached and not plan.choosy,
        plan.ties or bool(ports),
        crowd,
    )
