"""What a class of pods demands of a place, read from its shape once: the node filter and how it relates to other pods.

A wish (a preference, a ScheduleAnyway spread) is a demand that may be given up: a class has a ladder of demands, the
first with every wish, the last with none.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar
from weakref import WeakValueDictionary

import msgspec

from provisioner.apis.core import PodAffinityTerm, TopologySpreadConstraint, WeightedPodAffinityTerm
from provisioner.apis.meta import LabelSelector, LabelSelectorRequirement
from provisioner.apis.names import HOSTNAME_LABEL, normalized_label
from provisioner.apis.pods import PodShape
from provisioner.scheduling.constraints.filters import FilterError, FilterTerm, NodeFilter, node_filter, read_term
from provisioner.scheduling.constraints.ports import Ports, ports_of
from provisioner.scheduling.constraints.selectors import Expressions, LabelSet, SelectedPeers, label_set, read_selector
from provisioner.values.message import Said
from provisioner.values.resources import CPU, MEMORY
from provisioner.values.taints import Toleration

T = TypeVar("T")
_HONOR: Final = "Honor"
_IGNORE: Final = "Ignore"
_MOST_WISHES: Final = 64
"""Of each kind, the heaviest: a tenant may write thousands."""
_MOST_JOINED: Final = 512
"""Requirements that all node preferences may repeat: each of them stands beside everything that the pod requires of a node."""
_MOST_STEPS: Final = 16
"""Of a ladder: each takes another attempt."""


class Eligibility(msgspec.Struct, frozen=True, cache_hash=True, weakref=True):
    """Which nodes count for a spread constraint; equal ones are one object as a rule.

    Attributes:
        terms: any one must match the node; None where the pod's node affinity does not matter.
        tolerations: the node's taints must be tolerated; None where taints do not matter.
        keys: labels that the node must have.
    """

    terms: tuple[FilterTerm, ...] | None
    tolerations: tuple[Toleration, ...] | None
    keys: tuple[str, ...]


class Count(msgspec.Struct, frozen=True, cache_hash=True, weakref=True):
    """Something that is counted by domain; equal ones are one object as a rule, so that comparing them costs nothing.

    Attributes:
        key: the label whose values are the domains.
        peers: the pods that count: those that all of these mean.
        owners: count not these pods, but those that must be kept apart from them (anti-affinity seen from the other side).
        spread: for a spread constraint, so pods that are being deleted do not count.
        eligibility: the nodes that count; None for all that have the label.
        surely: pods of which it is not known whether they are meant do not count: the pod must be near one that is.
    """

    key: str
    peers: tuple[SelectedPeers, ...]
    owners: bool
    spread: bool
    eligibility: Eligibility | None
    surely: bool = False

    @property
    def on_hosts(self) -> bool:
        """Whether each node is a domain of its own."""
        return self.key == HOSTNAME_LABEL

    def include(self, pod: LabelSet, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
        if pod.unjudged and self.surely:
            return False
        peers = self.peers
        if len(peers) == 1:  # as a rule, and quicker
            return peers[0].include(pod, namespaces)
        return all(one.include(pod, namespaces) for one in peers)


@dataclass(frozen=True, slots=True)
class Spread:
    """One spread constraint: no domain may hold `max_skew` more than the emptiest.

    Attributes:
        own: whether the pod counts itself.
        wish: it may be given up, so others need not mind it.
        stated: the pod says itself how many domains there must be.
    """

    count: Count
    max_skew: int
    min_domains: int
    own: bool
    wish: bool = False
    stated: bool = False


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Relations:
    """Everything that ties a class to other pods; equal ones are one object as a rule.

    Attributes:
        pod: its labels.
        spreads: all must hold.
        together: be in a domain where such pods are, for each; if there are none anywhere and the pod itself is meant by
            all, it may go anywhere.
        apart: be in no domain where such pods are.
        guards: of its required anti-affinity, seen from the other side: whom its presence keeps away.
        on_hosts: whether it is spread over nodes.
        counts: everything that has to be counted for it.
    """

    pod: LabelSet
    spreads: tuple[Spread, ...]
    together: tuple[Count, ...]
    apart: tuple[Count, ...]
    guards: tuple[Count, ...]
    on_hosts: bool = field(init=False, compare=False, repr=False, default=False)
    counts: tuple[Count, ...] = field(init=False, compare=False, repr=False, default=())
    _hash: int = field(init=False, compare=False, repr=False, default=0)

    def __post_init__(self) -> None:
        spread_by = tuple([one.count for one in self.spreads])
        object.__setattr__(self, "on_hosts", any(one.on_hosts for one in spread_by))
        object.__setattr__(self, "counts", (*spread_by, *self.together, *self.apart, *self.guards))
        fields = (self.pod, self.spreads, self.together, self.apart, self.guards)
        object.__setattr__(self, "_hash", hash(fields))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """One step of the ladder."""

    filter: NodeFilter
    relations: Relations


@dataclass(frozen=True, slots=True)
class Wishes:
    """Everything that a class wishes, each by itself.

    Attributes:
        nodes: preferred node affinity.
        together: preferred pod affinity.
        apart: preferred pod anti-affinity.
        spreads: topology spread with ScheduleAnyway.
    """

    nodes: tuple[FilterTerm, ...] = ()
    together: tuple[Count, ...] = ()
    apart: tuple[Count, ...] = ()
    spreads: tuple[Spread, ...] = ()


_counts: Final[WeakValueDictionary[tuple[object, ...], Count]] = WeakValueDictionary()
_relations: Final[WeakValueDictionary[tuple[object, ...], Relations]] = WeakValueDictionary()
_eligibilities: Final[WeakValueDictionary[Eligibility, Eligibility]] = WeakValueDictionary()


def _count(key: str, peers: tuple[SelectedPeers, ...], *, owners: bool = False, surely: bool = False) -> Count:
    return _counted((key, peers, owners, False, None, surely))


def _counted(fields: tuple[str, tuple[SelectedPeers, ...], bool, bool, Eligibility | None, bool]) -> Count:
    return _counts.get(fields) or _counts.setdefault(fields, Count(*fields))


def _related(
    pod: LabelSet,
    spreads: tuple[Spread, ...],
    together: tuple[Count, ...],
    apart: tuple[Count, ...],
    guards: tuple[Count, ...],
) -> Relations:
    fields = (pod, spreads, together, apart, guards)
    return _relations.get(fields) or _relations.setdefault(fields, Relations(*fields))


@dataclass(frozen=True, slots=True)
class _Constraint:
    """A spread constraint as it is read, whatever others there are."""

    stated: TopologySpreadConstraint
    key: str
    peers: tuple[SelectedPeers, ...]
    own: bool

    @property
    def wish(self) -> bool:
        """Whether it may be given up."""
        return self.stated.when_unsatisfiable == "ScheduleAnyway"


@dataclass(frozen=True, slots=True)
class _Wishes:
    """What is still wished on one step; the heaviest of a kind is given up first.

    Attributes:
        last: how many of them the next step is without.
    """

    together: Sequence[Count] = ()
    apart: Sequence[Count] = ()
    nodes: Sequence[FilterTerm] = ()
    spreads: Sequence[_Constraint] = ()
    taints: bool = False
    last: int = 1

    def steps(self) -> Iterable["_Wishes"]:
        """Fewer and fewer of them, in Karpenter's order, PreferNoSchedule alone at last. Source: core spec 3.5.

        Differs: of more than `_MOST_STEPS`, several are given up at once, so what all steps hold together grows with the wishes, not with
        their square.
        """
        wished = len(self.together) + len(self.apart) + len(self.nodes) + len(self.spreads)
        number = min(wished, _MOST_STEPS)
        given = 0
        for step in range(1, number + 1):
            end = wished * step // number
            apart = max(0, given - len(self.together))
            nodes = max(0, apart - len(self.apart))
            spreads = max(0, nodes - len(self.nodes))
            yield _Wishes(
                self.together[given:],
                self.apart[apart:],
                self.nodes[nodes:],
                self.spreads[spreads:],
                self.taints,
                end - given,
            )
            given = end
        if self.taints:
            yield _Wishes(taints=True)


def _topology_key_missing(where: str) -> str:
    return Said(f"{where}.topologyKey: is required")


class Ties:
    """What a shape asks of nodes and of other pods, whatever its size; shapes that ask the same share it.

    Attributes:
        filter: required node affinity, node selector and tolerations.
        pod: what selectors see.
        ports: of the node, that it takes.
        plain: nothing ties it to other pods, to volumes, ports or devices, and it wishes nothing but perhaps no
            PreferNoSchedule taint.
        rank: of equal sizes, lower ones are placed first.
    """

    __slots__ = ("__dict__", "__weakref__", "_affinity", "_spread", "filter", "plain", "pod", "ports", "rank")

    def __init__(self, shape: PodShape) -> None:
        # parts of the shape, not the shape: it keeps this, and would not go before the collector came by
        self._spread: Final = shape.spread
        self._affinity: Final = shape.affinity
        self.filter: Final = node_filter(shape)
        self.pod: Final = label_set(shape.namespace, shape.labels, unjudged=shape.unjudged)
        self.ports: Final[Ports] = ports_of(shape.host_ports) if shape.host_ports else ()
        self.rank: Final = _rank(shape)
        affinity = shape.affinity
        self.plain: Final = not (
            shape.spread
            or shape.host_ports
            or shape.volumes
            or shape.resource_claims
            or (
                affinity is not None
                and (
                    affinity.pod_affinity is not None
                    or affinity.pod_anti_affinity is not None
                    or (affinity.node_affinity is not None and affinity.node_affinity.preferred)
                )
            )
        )

    @functools.cached_property
    def required(self) -> Demand:
        """The demand without any wish."""
        return self._demand(_Wishes())

    @functools.cached_property
    def ladder(self) -> tuple[Demand, ...]:
        """Every demand, most wishes first."""
        return self._ladder(soft_taints=False)

    @functools.cached_property
    def ladder_with_taints(self) -> tuple[Demand, ...]:
        """As `ladder`, and before the last step PreferNoSchedule is respected too."""
        return self._ladder(soft_taints=True)

    @functools.cached_property
    def without_wishes(self) -> tuple[Demand, ...]:
        """The ladder of pods whose wishes are not looked at."""
        return (self.required,)

    @functools.cached_property
    def wishes(self) -> Wishes:
        """All of them at once, but for PreferNoSchedule."""
        if self.plain:
            return _NO_WISHES
        wishes = self._wishes
        return Wishes(tuple(wishes.nodes), tuple(wishes.together), tuple(wishes.apart), self._spreads(wishes.spreads))

    @functools.cached_property
    def per_pod_labels(self) -> frozenset[str]:
        """Labels that differ between brothers of a class and that its terms look at."""
        hard, wishes = self.required.relations, self._wishes
        peers = [one for count in (*hard.counts, *wishes.together, *wishes.apart) for one in count.peers]
        peers += [one for spread in wishes.spreads for one in spread.peers]
        return frozenset[str]().union(*[one.per_pod_labels for one in peers])

    def _ladder(self, *, soft_taints: bool) -> tuple[Demand, ...]:
        wishes = replace(self._wishes, taints=soft_taints)
        return (*map(self._demand, wishes.steps()), self.required)

    @functools.cached_property
    def _wishes(self) -> _Wishes:
        """All that count; taints are another's to say."""
        nodes: list[tuple[int, FilterTerm]] = []
        near: Iterable[WeightedPodAffinityTerm] = ()
        far: Iterable[WeightedPodAffinityTerm] = ()
        affinity = self._affinity
        if affinity is not None and affinity.node_affinity is not None:
            where = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
            nodes = [
                (one.weight, read_term(one.preference, f"{where}[{number}].preference"))
                for number, one in enumerate(affinity.node_affinity.preferred)
                if one.preference.match_expressions or one.preference.match_fields
            ]
        if affinity is not None and affinity.pod_affinity is not None:
            near = affinity.pod_affinity.preferred
        if affinity is not None and affinity.pod_anti_affinity is not None:
            far = affinity.pod_anti_affinity.preferred
        spreads = [one for one in self._constraints if one.wish]
        return _Wishes(
            self._preferred(near, "podAffinity.preferred", surely=True),
            self._preferred(far, "podAntiAffinity.preferred"),
            _heaviest(nodes)[
                : max(1, _MOST_JOINED // max(1, sum([len(term.requirements) for term in self.filter.terms])))
            ],
            spreads[:_MOST_WISHES],
        )

    def _preferred(self, terms: Iterable[WeightedPodAffinityTerm], where: str, *, surely: bool = False) -> list[Count]:
        heaviest = _heaviest((one.weight, one.pod_affinity_term) for one in terms)
        return [_count(key, (one,), surely=surely) for key, one in self._peers(heaviest, where)]

    def _demand(self, wishes: _Wishes) -> Demand:
        own = self.filter
        if wishes.taints:
            own = NodeFilter(own.terms, own.tolerations, soft_taints=True)
        if wishes.nodes:  # the heaviest alone, as Karpenter does, or any of those that the next step is without
            own = own.narrowed(wishes.nodes[: wishes.last])
        together, apart, guards = self._between_pods
        return Demand(
            own,
            _related(
                self.pod,
                self._hard_spreads + self._spreads(wishes.spreads),
                tuple(dict.fromkeys((*together, *wishes.together))),
                tuple(dict.fromkeys((*apart, *wishes.apart))),
                guards,
            ),
        )

    @functools.cached_property
    def _between_pods(self) -> tuple[Sequence[Count], Sequence[Count], tuple[Count, ...]]:
        """Required affinity, anti-affinity, and the latter seen from the other side."""
        near: Sequence[PodAffinityTerm] = ()
        far: Sequence[PodAffinityTerm] = ()
        affinity = self._affinity
        if affinity is not None and affinity.pod_affinity is not None:
            near = affinity.pod_affinity.required
        if affinity is not None and affinity.pod_anti_affinity is not None:
            far = affinity.pod_anti_affinity.required
        guards = self._peers(far, "podAntiAffinity.required")
        peers = self._peers(near, "podAffinity.required")
        everyone = tuple(dict.fromkeys(one for _, one in peers))
        return (
            [*dict.fromkeys(_count(key, everyone, surely=True) for key, _ in peers)],
            [*dict.fromkeys(_count(key, (one,)) for key, one in guards)],
            tuple(dict.fromkeys(_count(key, (one,), owners=True) for key, one in guards)),
        )

    @functools.cached_property
    def _constraints(self) -> list[_Constraint]:
        found = []
        for number, one in enumerate(self._spread):
            where = f"spec.topologySpreadConstraints[{number}]"
            if one.max_skew < 1:
                raise FilterError(f"{where}.maxSkew: must be greater than zero")
            if not one.topology_key:
                raise FilterError(_topology_key_missing(where))
            selector = read_selector(one.label_selector, f"{where}.labelSelector")
            peers = SelectedPeers(frozenset((self.pod.namespace,)), self._with_keys(selector, one.match_label_keys))
            own = peers.include(self.pod, {})
            found.append(_Constraint(one, normalized_label(one.topology_key), (peers,), own))
        return found

    @functools.cached_property
    def _hard_spreads(self) -> tuple[Spread, ...]:
        return self._spreads([one for one in self._constraints if not one.wish])

    @functools.cached_property
    def _hard_keys(self) -> frozenset[str]:
        return frozenset([one.key for one in self._constraints if not one.wish])

    def _spreads(self, constraints: Sequence[_Constraint]) -> tuple[Spread, ...]:
        """These constraints, of one kind; hard ones do not look at the labels of those that may be given up."""
        if not constraints:
            return ()
        keys = tuple(sorted(self._hard_keys.union([one.key for one in constraints])))
        # most are alike, and one for all is quicker to tell
        eligible: dict[tuple[bool, bool, bool], Eligibility | None] = {}
        found = []
        for one in constraints:
            stated = one.stated
            others = any(key not in (one.key, HOSTNAME_LABEL) for key in keys)
            kind = stated.node_affinity_policy == _IGNORE, stated.node_taints_policy == _HONOR, others
            if kind not in eligible:
                eligible[kind] = self._eligibility(kind[0], kind[1], keys if others else ())
            count = _counted((one.key, one.peers, False, True, eligible[kind], False))
            found.append(
                Spread(
                    count, stated.max_skew, stated.min_domains or 1, one.own, one.wish, stated.min_domains is not None
                )
            )
        return tuple(dict.fromkeys(found))

    def _eligibility(self, ignoring: bool, honoring: bool, keys: Sequence[str]) -> Eligibility | None:
        """`keys`: of all constraints; the hostname's domains are Nodes, which all have it, and each constraint looks at its own anyway."""
        terms = None if ignoring or self.filter.unconditional else self.filter.terms
        tolerations = self.filter.tolerations if honoring else None
        others = tuple([key for key in keys if key != HOSTNAME_LABEL])
        if terms is None and tolerations is None and not others:
            return None
        found = Eligibility(terms, tolerations, others)
        return _eligibilities.setdefault(found, found)

    def _peers(self, terms: Iterable[PodAffinityTerm], where: str) -> list[tuple[str, SelectedPeers]]:
        found = []
        for number, term in enumerate(terms):
            at = f"spec.affinity.{where}[{number}]"
            if not term.topology_key:
                raise FilterError(_topology_key_missing(at))
            selector = read_selector(term.label_selector, f"{at}.labelSelector")
            selector = self._with_keys(selector, term.match_label_keys)
            selector = self._with_keys(selector, term.mismatch_label_keys, "NotIn")
            spaces = frozenset(term.namespaces)
            by_label = read_selector(term.namespace_selector, f"{at}.namespaceSelector")
            if not spaces and by_label is None:
                spaces = frozenset((self.pod.namespace,))
            found.append((normalized_label(term.topology_key), SelectedPeers(spaces, selector, by_label)))
        return found

    def _with_keys(self, selector: Expressions | None, keys: Sequence[str], operator: str = "In") -> Expressions | None:
        """`selector` with the pod's own values of `keys` demanded (or refused), where the pod has them."""
        if selector is None:
            return None
        more = {(key, operator, frozenset((self.pod.labels[key],))) for key in keys if key in self.pod.labels}
        if not more:
            return selector
        return tuple(sorted({*selector, *more}, key=lambda entry: (entry[0], entry[1], sorted(entry[2]))))


_NO_WISHES: Final = Wishes()


def _heaviest(weighted: Iterable[tuple[int, T]]) -> list[T]:
    """The heaviest first, of equals the first."""
    return [one for _, one in sorted(weighted, key=lambda entry: -entry[0])[:_MOST_WISHES]]


def _rank(shape: PodShape) -> int:
    affinity = shape.affinity
    if affinity is not None and affinity.pod_anti_affinity is not None:
        required = affinity.pod_anti_affinity.required
        if any(one.topology_key != HOSTNAME_LABEL for one in required):
            return 3
        if required:
            return 0  # they need nodes each, which the others can then fill
    if shape.volumes:
        return 0
    if shape.node_selector or (affinity is not None and affinity.node_affinity is not None):
        return 1
    return 2


class ShapeFacts:
    """What scheduling knows of one shape, whatever the problem; made once and kept with the shape.

    Attributes:
        ties: what it shares with shapes of other sizes.
        order: sort key of its class: priority, cpu, memory, each descending; of equals those first that can go to few
            places, last those that keep others away from whole domains. Ties go by the age of the first pod.
        filter, pod, ports, plain: of `ties`.
        plannable: it was found that no world refuses to plan such pods.
    """

    __slots__ = ("filter", "order", "plain", "plannable", "pod", "ports", "requests", "ties")

    def __init__(self, shape: PodShape, ties: Ties) -> None:
        self.ties: Final = ties
        self.requests: Final = shape.requests
        self.filter: Final = ties.filter
        self.pod: Final = ties.pod
        self.ports: Final = ties.ports
        self.plain: Final = ties.plain
        self.plannable = False
        amount = shape.requests.amount
        self.order: Final = (-shape.priority, -amount(CPU), -amount(MEMORY), ties.rank)

    @property
    def required(self) -> Demand:
        """The demand without any wish."""
        return self.ties.required


FACTS: Final = "facts"
"""Under which a shape keeps its facts."""
_ties: Final[WeakValueDictionary[bytes, Ties]] = WeakValueDictionary()
_TEXT: Final = msgspec.json.Encoder(order="deterministic")


def facts_of(shape: PodShape) -> ShapeFacts:
    """The facts of a shape, made when they are first asked for.

    Raises:
        FilterError: something in the pod cannot be read; says where.
    """
    kept = shape.derived
    found = kept.get(FACTS)
    if found is None:
        if shape.error:
            raise FilterError(shape.error)
        if shape.requests.negative:
            raise FilterError("spec.containers.resources.requests: negative amount")
        found = kept[FACTS] = ShapeFacts(shape, ties_of(shape))
    return found  # type: ignore[return-value]


def ties_of(shape: PodShape) -> Ties:
    """What a shape asks of nodes and pods, whether or not its pods may be planned.

    Raises:
        FilterError: something in it cannot be read; says where.
    """
    key = _TEXT.encode(
        (
            shape.namespace,
            shape.labels,
            shape.node_selector,
            shape.affinity,
            shape.tolerations,
            shape.spread,
            shape.host_ports,
            shape.volumes,
            shape.resource_claims,
            shape.unjudged,
        )
    )
    found = _ties.get(key)
    if found is None:
        found = _ties.setdefault(key, Ties(shape))
    return found


def deduced_selector(
    pod: LabelSet, services: Iterable[Mapping[str, str]], controller: LabelSelector | None
) -> LabelSelector | None:
    """What kube-scheduler takes for the selector of default constraints; None where the pod is not spread by them.

    Source: kube-scheduler 1.36 plugins/helper/spread.go: the selectors of all Services that select the pod merged, with
    that of its controller.
    """
    labels: dict[str, str] = {}
    for selector in services:
        if selector and all(pod.labels.get(key) == value for key, value in selector.items()):
            labels.update(selector)
    expressions: tuple[LabelSelectorRequirement, ...] = ()
    if controller is not None:
        labels.update(controller.match_labels)
        expressions = controller.match_expressions
    if not labels and not expressions:
        return None
    return LabelSelector(match_labels=labels, match_expressions=expressions)
