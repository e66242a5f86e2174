"""Whether a move may be made for money: it may give up no wish that a pod has where it runs, and no weight of a NodePool.

Nor may a pod come from whole devices to parts of some (GPUs of g6f), which count alike: what it does there may not fit.

The only owner of that question: every method that moves pods to save asks it, whatever it asked the solver, which gives wishes up where they are
in the way. Wishes are preferred node affinity, preferred pod affinity and anti-affinity, PreferNoSchedule taints and ScheduleAnyway spreads that the
pod names itself; defaults of the cluster are none. What a pod does not have, it does not lose. Weight binds new nodes: any existing node may
take a pod.

Differs: Karpenter gives wishes up in its simulation, and lets a replacement come to a NodePool of less weight.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec.structs import replace as changed

from provisioner.apis import names
from provisioner.apis.core import (
    Affinity,
    NodeAffinity,
    NodeSelectorTerm,
    PodAffinity,
    PreferredSchedulingTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from provisioner.apis.pods import Pod, PodShape
from provisioner.cloudprovider.types import InstanceType
from provisioner.disruption.candidates import Candidate, CandidateTypes
from provisioner.scheduling.attempts.setting import Setting
from provisioner.scheduling.becoming import opened
from provisioner.scheduling.constraints.demands import Count, Spread, Wishes, facts_of
from provisioner.scheduling.constraints.filters import FilterError, FilterTerm, label_value
from provisioner.scheduling.drainability import name_of
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.problem import Bin, PreferencePolicy
from provisioner.scheduling.result import PlannedClaim, Result
from provisioner.values.message import Said
from provisioner.values.requirement import Requirement, Requirements
from provisioner.values.taints import PREFER_NO_SCHEDULE, Taint, Toleration, first_untolerated

_SOFT: Final = (PREFER_NO_SCHEDULE,)
_MOST_LOOKS: Final = 1 << 20
"""What is counted times the different labels of pods that move; with more, wishes about other pods are not looked at, and nothing moves for money."""
_MOST_KEPT: Final = 16
"""Of one shape, for so many different wishes had at most is remembered what it becomes."""


_NO_WISHES: Final = Wishes()


@dataclass(frozen=True, slots=True)
class _Way:
    pod: Pod
    home: Bin
    goal: Bin
    claim: PlannedClaim | None

    @property
    def wishes(self) -> Wishes:
        return _wishes_of(self.pod)


def _wishes_of(pod: Pod) -> Wishes:
    """None of a pod that cannot be read: the solver says why it has no place."""
    try:
        return facts_of(pod.shape).ties.wishes
    except FilterError:
        return _NO_WISHES


def _about_others(wishes: Wishes) -> tuple[Count, ...]:
    return (*wishes.together, *wishes.apart, *[one.count for one in wishes.spreads])


def _wish_given_up(pod: str, wish: str) -> str:
    return Said(
        f"pod {pod} would lose its {wish}; to allow this, remove the preference or set --preference-policy=Ignore"
    )


def given_up(
    prepared: Prepared, bins: Mapping[str, Bin], some: Sequence[Candidate], result: Result, types: CandidateTypes
) -> str:
    """What a move would give up, as users read it: the wish of a pod or the weight of a NodePool, and whose; "" for nothing.

    Args:
        prepared: the world before it.
        bins: the nodes of that world, by name.
        some: the nodes that go.
        result: where their pods come to.
        types: of the pools.

    Cost: what pods look alike is looked at once; where wishes are about other pods, what a question costs before it is tried, and `_MOST_LOOKS`.
    """
    weights = {pool.name: pool.weight for pool in prepared.world.pools}
    homes = {pod.uid: one for one in some for pod in one.pods}
    for claim in result.claims:
        for pod in claim.pods:
            source = homes[pod.uid].pool
            if weights.get(claim.pool, 0) < source.spec.weight:
                return Said(
                    f'they would leave NodePool "{source.metadata.name}" for a new node of NodePool "{claim.pool}", '
                    f"whose weight is less than {source.spec.weight}; to allow this, give both NodePools the same "
                    "weight"
                )
    ways = list(_ways(bins, {uid: bins[str(one.node.key)] for uid, one in homes.items()}, result))
    alike = {(way.pod.shape.key, way.home.name, way.goal.name): way for way in ways}
    for way in alike.values():
        if resource := _whole_devices_lost(way, types):
            return Said(
                f"pod {way.pod.key} has a whole device of {resource} and would get a part of one; to allow this, "
                "delete the pod: its successor is scheduled again"
            )
    if prepared.world.preferences is PreferencePolicy.IGNORE:
        return ""
    for way in alike.values():
        lost = _of_nodes(way, types)
        if lost:
            return _wish_given_up(way.pod.key, lost)
    return _of_pods(_domains_of(prepared, ways), alike.values(), len(result.claims) - len(some))


def as_judged(prepared: Prepared, claims: Iterable[PlannedClaim]) -> tuple[PlannedClaim, ...]:
    """The claims, held to the zone and capacity type that they are planned in where their pods wish something about others there.

    `given_up` judges that place. Of pods that are asked for without a spread, a launch could take any other.
    """
    if prepared.world.preferences is PreferencePolicy.IGNORE:
        return tuple(claims)
    return tuple(map(_held, claims))


def _held(claim: PlannedClaim) -> PlannedClaim:
    looked_at = {count.key for pod in claim.pods for count in _about_others(_wishes_of(pod))}
    planned = {names.ZONE_LABEL: claim.planned_zone, names.CAPACITY_TYPE_LABEL: claim.planned_capacity_type}
    free = {
        key: value
        for key, value in planned.items()
        if value and key in looked_at and claim.requirements.requirement(key).single_value is None
    }
    if not free:
        return claim
    return changed(claim, requirements=claim.requirements.merged(Requirements.from_labels(free)))


def kept(prepared: Prepared, bins: Mapping[str, Bin], some: Sequence[Candidate]) -> tuple[dict[str, Pod], ...]:
    """By UID, the pods of nodes that have wishes, with those alone that they have there: what a move for money is asked for, one after the other.

    Preferred node affinity is one preference then: of several the solver would look at one only. Required, it would change which nodes the
    pod's spreads count. Whoever lacks a wish does not get a new node for it. Pods that are more uneven than a spread wishes are asked for without it
    first; where the answer would make them more uneven, with the maxSkew that holds. The solver prefers the emptiest zones then, where that may
    take more nodes, and longer.

    Cost: as of `given_up`.
    """
    if prepared.world.preferences is PreferencePolicy.IGNORE:
        return ({},)
    ways = [_Way(pod, home, home, None) for one in some for home in (bins[str(one.node.key)],) for pod in one.pods]
    domains = _domains_of(prepared, ways)
    pods: dict[str, Pod] = {}
    loosely: dict[str, Pod] = {}
    uneven = False
    for way in ways:
        wishes, shape = way.wishes, way.pod.shape
        has = _Has(
            tuple([term.matches(way.home.labels, way.home.node_name) for term in wishes.nodes]),
            tuple([(found := domains(one)) is not None and found.others(way)[0] > 0 for one in wishes.together]),
            tuple([(found := domains(one)) is not None and found.others(way)[0] <= 0 for one in wishes.apart]),
            tuple([None if (found := domains(one.count)) is None else found.had(one) for one in wishes.spreads]),
            tuple([one for one in way.home.taints if one.effect == PREFER_NO_SCHEDULE]),
        )
        even = tuple(
            [
                had if had is not None and had.max_skew <= one.max_skew else None
                for one, had in zip(wishes.spreads, has.spreads, strict=True)
            ]
        )
        own = loose = _narrowed(shape, has)
        if even != has.spreads:
            uneven, loose = True, _narrowed(shape, has._replace(spreads=even))
        for asked, what in ((pods, own), (loosely, loose)):
            if what is not shape:
                asked[way.pod.uid] = changed(way.pod, shape=what)
    return (loosely, pods) if uneven else (pods,)


class _Had(NamedTuple):
    """How even pods are spread: the maxSkew that holds, and how many domains there must be before the emptiest counts."""

    max_skew: int
    least: int


class _Has(NamedTuple):
    """Which of its wishes a pod has, by number; what is left of its spreads, None for nothing; and the PreferNoSchedule taints of its node."""

    nodes: tuple[bool, ...]
    together: tuple[bool, ...]
    apart: tuple[bool, ...]
    spreads: tuple[_Had | None, ...]
    taints: tuple[Taint, ...]


def _narrowed(shape: PodShape, has: _Has) -> PodShape:
    """A shape that wishes what it has alone; remembered with it."""
    soft = [one for one in shape.spread if one.when_unsatisfiable == "ScheduleAnyway"]
    left = {id(one): _left(one, had) for one, had in zip(soft, has.spreads, strict=False)}
    whole = all(left.get(id(one), one) is one for one in soft)
    if not has.nodes and all(has.together) and all(has.apart) and whole and not has.taints:
        return shape
    known: dict[_Has, PodShape] = shape.derived.setdefault("kept", {})  # type: ignore[assignment]
    if has not in known:
        if len(known) >= _MOST_KEPT:
            known.clear()
        affinity = shape.affinity or Affinity()
        known[has] = changed(
            shape,
            key=f"{shape.key} with {has}",
            affinity=Affinity(
                node_affinity=_as_one(affinity.node_affinity, has.nodes),
                pod_affinity=_of_peers(affinity.pod_affinity, has.together),
                pod_anti_affinity=_of_peers(affinity.pod_anti_affinity, has.apart),
            ),
            spread=tuple([own for one in shape.spread if (own := left.get(id(one), one)) is not None]),
            tolerations=shape.tolerations
            + tuple([Toleration(key=one.key, operator="Exists", effect=one.effect) for one in has.taints]),
        )
    return known[has]


def _left(one: TopologySpreadConstraint, had: _Had | None) -> TopologySpreadConstraint | None:
    if had is None:
        return None
    if had == (one.max_skew, 1):
        return one
    return changed(one, max_skew=had.max_skew, min_domains=had.least if had.least > 1 else one.min_domains)


def _as_one(own: NodeAffinity | None, has: Iterable[bool]) -> NodeAffinity | None:
    if own is None:
        return None
    listed = [one for one in own.preferred if one.preference.match_expressions or one.preference.match_fields]
    some = [one.preference for one, holds in zip(sorted(listed, key=_weight), has, strict=False) if holds]
    whole = NodeSelectorTerm(
        match_expressions=tuple([each for one in some for each in one.match_expressions]),
        match_fields=tuple([each for one in some for each in one.match_fields]),
    )
    preferred = (PreferredSchedulingTerm(weight=1, preference=whole),) if some else ()
    return NodeAffinity(required=own.required, preferred=preferred)


def _of_peers(own: PodAffinity | None, has: Iterable[bool]) -> PodAffinity | None:
    if own is None:
        return None
    some = [one for one, holds in zip(sorted(own.preferred, key=_weight), has, strict=False) if holds]
    return PodAffinity(required=own.required, preferred=tuple(some))


def _weight(one: PreferredSchedulingTerm | WeightedPodAffinityTerm) -> int:
    return -one.weight


def _ways(bins: Mapping[str, Bin], homes: Mapping[str, Bin], result: Result) -> Iterable[_Way]:
    for name, pods in result.existing.items():
        for pod in pods:
            yield _Way(pod, homes[pod.uid], bins[name], None)
    for number, claim in enumerate(result.claims):
        new = opened(claim, name_of(number))
        for pod in claim.pods:
            yield _Way(pod, homes[pod.uid], new, claim)


def _whole_devices_lost(way: _Way, types: CandidateTypes) -> str:
    """A resource of which the pod has whole devices, and may get parts of some; "" for none."""
    goal = way.claim.pool if way.claim is not None else way.goal.pool
    kinds = way.claim.instance_types if way.claim is not None else (_kind(way.goal),)
    known = types.of_pool(goal)
    parts = {resource for name in kinds if name in known for resource in known[name].partial}
    if not parts:
        return ""
    home = types.of_pool(way.home.pool).get(_kind(way.home))
    lost = sorted(
        one for one in parts if way.pod.shape.requests.amount(one) and (home is None or one not in home.partial)
    )
    return lost[0] if lost else ""


def _kind(node: Bin) -> str:
    return node.labels.get(names.INSTANCE_TYPE_LABEL, "")


# --- wishes about nodes ---


def _of_nodes(way: _Way, types: CandidateTypes) -> str:
    home, goal, tolerations = way.home, way.goal, way.pod.shape.tolerations
    if first_untolerated(tolerations, home.taints, _SOFT) is None:
        taint = first_untolerated(tolerations, goal.taints, _SOFT)
        if taint is not None:
            return Said(f"place without the taint {taint}, which it does not tolerate")
    for term in way.wishes.nodes:
        if term.matches(home.labels, home.node_name) and not (
            term.matches(goal.labels, goal.node_name)
            if way.claim is None
            else _surely(term, way.claim, types.of_pool(way.claim.pool))
        ):
            asked = ", ".join(str(one) for _, one in sorted(term.requirements.items()))
            return Said(f"preferred node affinity ({asked or str(term.names)})")
    return ""


def _surely(term: FilterTerm, claim: PlannedClaim, types: Mapping[str, InstanceType]) -> bool:
    """Whether the node of a claim matches whatever it becomes."""
    kinds = [types[name] for name in claim.instance_types if name in types]

    def has(key: str, asked: Requirement) -> bool:
        own = claim.requirements.get(key)
        if own is not None and not own.complement:
            return own.present and all(map(asked.has, own.values))
        if key in claim.labels:
            return asked.has(claim.labels[key])
        of_types = [kind.requirements.get(key) for kind in kinds]
        return all(
            asked.admits(None) if one is None else not one.complement and all(map(asked.has, one.values))
            for one in of_types
        )

    return term.new_nodes and all(has(key, one) for key, one in term.requirements.items())


# --- wishes about other pods ---


class _Domains:
    """How many pods of one count are in each domain, before and after a move."""

    def __init__(self, setting: Setting, count: Count, meant: Sequence[_Way]) -> None:
        """`meant`: the ways of pods that are counted."""
        self._count: Final = count
        scope = setting.scope
        eligible = setting.bins.everything
        if count.eligibility is not None:
            eligible &= scope.eligible[count.eligibility]
        self.hosts: Final = eligible.bit_count()
        places = {} if count.on_hosts else setting.bins.by_label(count.key)
        self.nodes: Final = Counter({value: (some & eligible).bit_count() for value, some in places.items() if value})
        staying: dict[str, int]
        if count.on_hosts:
            bins = setting.bins.bins
            spots = scope.spots(count).counts
            staying = {bins[number].name: pods for number, pods in spots.items() if eligible >> number & 1}
        else:
            values = scope.axes[count.key].values
            staying = dict(zip(values, scope.sums(count) or [0] * len(values), strict=True))
        self.meant: Final = {way.pod.uid for way in meant}
        self.before: Final = Counter(staying)
        self.after: Final = Counter(staying)
        for way in meant:
            for pods, one in ((self.before, way.home), (self.after, way.goal)):
                if domain := self.of(one):
                    pods[domain] += 1

    def of(self, one: Bin) -> str:
        """The domain of a node; "" for none."""
        return one.name if self._count.on_hosts else label_value(one.labels, self._count.key) or ""

    def others(self, way: _Way) -> tuple[int, int]:
        """Pods beside one, before and after."""
        own = way.pod.uid in self.meant
        return self.before[self.of(way.home)] - own, self.after[self.of(way.goal)] - own

    def leaves_all(self, way: _Way) -> bool:
        """Whether a pod comes from a domain to a node that is in none, or of which that is not known."""
        return bool(self.of(way.home)) and not self.of(way.goal)

    def had(self, spread: Spread) -> _Had:
        """What holds before the move: pods that are more uneven than a spread wishes still get no more uneven.

        As the solver counts: a zone that only new nodes can have is one without pods. A host that goes is left without pods, as in `skews`.
        """
        if self._count.on_hosts:
            return _Had(max(spread.max_skew, self.skews(spread, 0)[0]), max(spread.min_domains, self.hosts))
        zones = {value for value in (*self.before, *self.nodes) if value and _counts(spread.count, value)}
        pods = [self.before[value] for value in zones]
        return _Had(max(spread.max_skew, max(pods, default=0) - min(pods, default=0)), spread.min_domains)

    def skews(self, spread: Spread, more: int) -> tuple[int, int]:
        """How uneven they are, before and after; `more` nodes come than go. A host that goes counts as one that is left without pods."""
        if not self._count.on_hosts:
            known = self.before | self.after | self.nodes  # one with nodes alone is one without pods
            values = [value for value in known if value and _counts(spread.count, value)]
            then, now = ([pods[value] for value in values] for pods in (self.before, self.after))
            return max(then, default=0) - min(then, default=0), max(now, default=0) - min(now, default=0)
        found = []
        for pods, hosts in ((self.before, self.hosts), (self.after, max(self.hosts, self.hosts + more))):
            some = [number for number in pods.values() if number]
            found.append(max(some, default=0) - (min(some) if len(some) >= hosts and some else 0))
        return found[0], found[1]


def _counts(count: Count, value: str) -> bool:
    """Whether a domain is one for the pods of a spread: their own node affinity may leave it out."""
    terms = None if count.eligibility is None else count.eligibility.terms
    if terms is None:
        return True
    asked = (term.requirements.get(count.key) for term in terms)
    return any(one is None or one.has(value) for one in asked)


def _domains_of(prepared: Prepared, ways: Sequence[_Way]) -> Callable[[Count], _Domains | None]:
    """Counts domains when they are asked for; each once. None for what a question about these pods does not count."""
    known: dict[Count, _Domains | None] = {}
    counted: tuple[Setting, Mapping[Count, Sequence[_Way]]] | None = None

    def domains(count: Count) -> _Domains | None:
        nonlocal counted
        counted = counted or _counted(prepared, ways)
        if count not in known:
            setting, meant = counted
            known[count] = _Domains(setting, count, meant[count]) if count in meant else None
        return known[count]

    return domains


def _counted(prepared: Prepared, ways: Sequence[_Way]) -> tuple[Setting, Mapping[Count, Sequence[_Way]]]:
    """A question about these pods, and whom each thing means that it counts; nothing where that takes too long."""
    setting = prepared.setting([way.pod for way in ways])
    scope = setting.scope
    labels = {pod.uid: one.facts.pod for one in setting.classes for pod in one.pods}
    meant: dict[Count, list[_Way]] = {count: [] for count in scope.index.numbers}
    if len(meant) * len(set(labels.values())) > _MOST_LOOKS:
        return setting, {}
    for way in ways:
        if way.pod.uid in labels:
            for count in scope.including(labels[way.pod.uid]):
                meant[count].append(way)
    return setting, meant


def _of_pods(domains: Callable[[Count], _Domains | None], alike: Iterable[_Way], more: int) -> str:
    for way in alike:
        wishes, pod = way.wishes, way.pod.key
        counts = _about_others(wishes)
        found = {count: one for count in counts if (one := domains(count)) is not None}
        if len(found) < len(set(counts)):
            return Said(
                f"pod {pod} may lose a preference: the pods that would move have too many preferences about other "
                "pods to compare them all; to allow this, remove some of them or set --preference-policy=Ignore"
            )
        for count in wishes.together:
            then, now = found[count].others(way)
            if then > 0 >= now:
                return _wish_given_up(pod, Said(f"preferred pod affinity on {count.key}"))
        for count in wishes.apart:
            then, now = found[count].others(way)
            if then <= 0 < now:
                return _wish_given_up(pod, Said(f"preferred pod anti-affinity on {count.key}"))
        for spread in wishes.spreads:
            then, now = found[spread.count].skews(spread, more)
            if now > max(then, spread.max_skew) or found[spread.count].leaves_all(way):
                return _wish_given_up(pod, Said(f"topology spread (ScheduleAnyway) across {spread.count.key}"))
    return ""
