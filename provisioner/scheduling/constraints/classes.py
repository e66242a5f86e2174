"""From pods to classes: equal pods are judged once, in an order that does not depend on the order of input."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Final

import msgspec

from provisioner.apis.attachments import VolumeError
from provisioner.apis.pods import Pod, PodShape
from provisioner.scheduling.constraints.demands import (
    FACTS,
    Count,
    Demand,
    ShapeFacts,
    Ties,
    deduced_selector,
    facts_of,
)
from provisioner.scheduling.constraints.filters import (
    NAME_FIELD,
    TRIVIAL,
    FilterError,
    FilterTerm,
    NodeFilter,
    check_counts,
)
from provisioner.scheduling.constraints.selectors import label_set
from provisioner.scheduling.constraints.volumes import (
    NO_VOLUMES,
    NOTHING_SETTLED,
    VolumeDemand,
    volume_demand,
)
from provisioner.scheduling.constraints.workload_limits import owner_of
from provisioner.scheduling.problem import DevicePolicy, PreferencePolicy, World
from provisioner.scheduling.reasons import NOT_TRIED, PodGated, PodInvalid, Reason, UnsupportedConstraint
from provisioner.values.requirement import Operator, Requirement
from provisioner.values.resources import CPU, MEMORY
from provisioner.values.taints import PREFER_NO_SCHEDULE, Taint

NOTHING_AVOIDED: Final[Mapping[str, frozenset[str]]] = {}
_gated = attrgetter("gated")
_uid = attrgetter("uid")
_created = attrgetter("created")
_age = attrgetter("created", "uid")
_READ_A_LOOK: Final = 400
"""So many elements of pods are read between two looks at the clock."""
_FEW: Final = 8
"""So many are sorted quicker by two attributes at once than by one after the other."""


def said(shape: PodShape) -> int:
    """How many elements the lists have that say where pods of a shape may run."""
    lists: list[Sized] = [shape.spread, shape.tolerations, shape.host_ports, shape.volumes]
    affinity = shape.affinity
    if affinity is not None:
        if affinity.node_affinity is not None:
            required = affinity.node_affinity.required
            lists += [affinity.node_affinity.preferred, () if required is None else required.node_selector_terms]
        for some in (affinity.pod_affinity, affinity.pod_anti_affinity):
            lists += [] if some is None else [some.required, some.preferred]
    return sum(map(len, lists))


def _by_age(pods: list[Pod]) -> None:
    """Sort by age, then UID."""
    if len(pods) < _FEW:
        pods.sort(key=_age)
    else:
        pods.sort(key=_uid)
        pods.sort(key=_created)


class PodClass(msgspec.Struct, eq=False, frozen=True, gc=False):
    """Equal pods, in the order in which they get places: by age, then UID.

    Attributes:
        shape: of every pod.
        ladder: what they demand, most wishes first; the last without any.
        elsewhere: matches every node but those that they keep off by name; these count for their spread all the same.
        owner: UID of their controller, where a NodePool counts pods by it; else "".
    """

    facts: ShapeFacts
    shape: PodShape
    pods: Sequence[Pod]
    ladder: tuple[Demand, ...]
    volumes: VolumeDemand = NO_VOLUMES
    elsewhere: FilterTerm = TRIVIAL
    owner: str = ""

    @property
    def filter(self) -> NodeFilter:
        """What they require of a node, whatever they wish."""
        return self.narrowed(self.facts.filter)

    def narrowed(self, own: NodeFilter, reached: tuple[FilterTerm, ...] = ()) -> NodeFilter:
        """A filter of theirs, with what their volumes and features demand and without the nodes that they keep off.

        `reached` stands in place of the volumes' alternatives, where these depend on what other pods got.
        """
        if self.volumes is not NO_VOLUMES:
            own = own.narrowed(reached or self.volumes.alternatives)
        if self.shape.features:
            own = own.narrowed((FilterTerm(features=self.shape.features),))
        return own if self.elsewhere is TRIVIAL else own.narrowed((self.elsewhere,))

    @property
    def counts(self) -> Iterable[Count]:
        """Everything that has to be counted for them."""
        return () if self.facts.plain else [count for demand in self.ladder for count in demand.relations.counts]


@dataclass(frozen=True, slots=True, eq=False)
class LeftOut:
    """Equal pods that are not tried, and why."""

    shape: PodShape
    pods: tuple[Pod, ...]
    reason: Reason


def sort_key(shape: PodShape) -> tuple[int, int, int, str]:
    """Order of classes: priority, then cpu, then memory, each descending; then the class key."""
    amount = shape.requests.amount
    return -shape.priority, -amount(CPU), -amount(MEMORY), shape.key


def ahead(classes: Iterable[PodClass], first: Collection[str]) -> list[PodClass]:
    """The classes in the same order, but of one priority those first that have pods of these UIDs, and in them these pods."""
    listed: list[tuple[int, bool, PodClass]] = []
    for one in classes:
        mine = [pod for pod in one.pods if pod.uid in first]
        if mine and len(mine) < len(one.pods):
            one = msgspec.structs.replace(one, pods=(*mine, *(pod for pod in one.pods if pod.uid not in first)))  # noqa: PLW2901
        listed.append((-one.shape.priority, not mine, one))
    return [one for _, _, one in sorted(listed, key=lambda entry: entry[:2])]


def classify(
    world: World,
    taints: Iterable[Sequence[Taint]],
    pods: Iterable[Pod],
    named: frozenset[str] = frozenset(),
    settled: Mapping[str, FilterTerm] = NOTHING_SETTLED,
    avoided: Mapping[str, frozenset[str]] = NOTHING_AVOIDED,
    over: Callable[[], bool] = bool,
) -> tuple[list[PodClass], list[LeftOut]]:
    """Group pods by class, in order of `sort_key`; apart, those that cannot be tried.

    Args:
        world: of which policies and volumes matter.
        taints: of pools and nodes; each kind once is enough.
        pods: to group.
        named: labels that differ between brothers of a class and that pods on existing nodes look at.
        settled: as of `volume_demand`.
        avoided: by UID, names of the nodes that a pod keeps off.
        over: time is up: what was not read then is left out.

    Cost: O(pods) look-ups of interned shapes, O(classes log classes); only pods with volumes are looked at one by one.
    """
    return _Classifier(world, taints, settled, avoided, over).classified(pods, named)


class _Classifier:
    def __init__(
        self,
        problem: World,
        taints: Iterable[Sequence[Taint]],
        settled: Mapping[str, FilterTerm],
        avoided: Mapping[str, frozenset[str]],
        over: Callable[[], bool],
    ) -> None:
        self._look: Final = over
        self._unlooked, self._late = 0, False
        self.problem: Final = problem
        self.settled: Final = settled
        self.avoided: Final = avoided
        self.tried: Final[list[PodClass]] = []
        self.left_out: Final[list[LeftOut]] = []
        soft_taints = any(taint.effect == PREFER_NO_SCHEDULE for some in taints for taint in some)
        ladder = "ladder_with_taints" if soft_taints else "ladder"
        if problem.preferences is PreferencePolicy.IGNORE:
            ladder = "without_wishes"
        self.ladder_of: Final[Callable[[Ties], tuple[Demand, ...]]] = attrgetter(ladder)

    def classified(self, asked: Iterable[Pod], named: frozenset[str]) -> tuple[list[PodClass], list[LeftOut]]:
        by_shape: defaultdict[int, list[Pod]] = defaultdict(list)
        gated: defaultdict[int, list[Pod]] = defaultdict(list)
        listed = list(asked)
        if any(map(_gated, listed)):
            for pod in listed:
                (gated if pod.gated else by_shape)[id(pod.shape)].append(pod)
        else:
            for pod in listed:
                by_shape[id(pod.shape)].append(pod)
        for members in _one_a_key(gated):
            _by_age(members)
            self.left_out.append(LeftOut(members[0].shape, tuple(members), PodGated()))
        defaults = bool(self.problem.spread_defaults.constraints)
        parts: list[tuple[ShapeFacts, PodShape, Sequence[Pod]]] = []
        for members in _one_a_key(by_shape):
            if len(members) > 1:
                _by_age(members)
            for shape, pods in self._spread_by_default(members) if defaults else ((members[0].shape, members),):
                facts: ShapeFacts | None = shape.derived.get(FACTS)  # type: ignore[assignment]  # a call costs more than a lookup
                if facts is None or not facts.plannable:
                    if self._over(said(shape)):
                        self.left_out.append(LeftOut(shape, tuple(pods), NOT_TRIED))
                        continue
                    facts = self._readable(shape, pods)
                if facts is not None:
                    parts.append((facts, shape, pods))
                    if not facts.plain:
                        named |= facts.ties.per_pod_labels
        add = self._add_owners if self.problem.most_of_one else self._add_all if self.avoided else self._add
        for facts, shape, pods in parts:
            if named and any(label in pods[0].labels and label not in shape.labels for label in named):
                for apart, brothers in _told_apart(shape, pods, named):
                    add(facts_of(apart), apart, brothers)
            else:
                add(facts, shape, pods)
        for key in (_first_uid, _first_created, _order):  # quicker than once by all three
            self.tried.sort(key=key)
        self.left_out.sort(key=lambda one: (sort_key(one.shape), str(one.reason)))
        return self.tried, self.left_out

    def _over(self, read: int) -> bool:
        """Whether time is up; so much more is about to be read."""
        self._unlooked += 1 + read
        if self._unlooked >= _READ_A_LOOK:
            self._unlooked = 0
            self._late = self._look()
        return self._late

    def _readable(self, shape: PodShape, pods: Sequence[Pod]) -> ShapeFacts | None:
        reason: Reason
        try:
            check_counts(shape)
            facts = facts_of(shape)
            self.ladder_of(facts.ties)
        except FilterError as error:
            reason = PodInvalid(str(error))
        else:
            facts.plannable = not shape.resource_claims
            if facts.plannable or self.problem.devices is not DevicePolicy.REFUSE:
                return facts
            reason = UnsupportedConstraint(f"spec.resourceClaims[{shape.resource_claims[0].name}]")
        self.left_out.append(LeftOut(shape, tuple(pods), reason))
        return None

    def _add_owners(self, facts: ShapeFacts, shape: PodShape, pods: Sequence[Pod]) -> None:
        parts: dict[str, list[Pod]] = {}
        for pod in pods:
            parts.setdefault(owner_of(pod), []).append(pod)
        for owner, some in parts.items():
            first = len(self.tried)
            self._add_all(facts, shape, some)
            if owner:
                self.tried[first:] = [msgspec.structs.replace(one, owner=owner) for one in self.tried[first:]]

    def _add_all(self, facts: ShapeFacts, shape: PodShape, pods: Sequence[Pod]) -> None:
        parts: dict[frozenset[str], list[Pod]] = {}
        for pod in pods:
            parts.setdefault(self.avoided.get(pod.uid, frozenset()), []).append(pod)
        for nodes, some in parts.items():
            elsewhere = (
                FilterTerm(names=Requirement.of(NAME_FIELD, Operator.NOT_IN, sorted(nodes))) if nodes else TRIVIAL
            )
            self._add(facts, shape, some, elsewhere)

    def _add(self, facts: ShapeFacts, shape: PodShape, pods: Sequence[Pod], elsewhere: FilterTerm = TRIVIAL) -> None:
        ladder = self.ladder_of(facts.ties)
        if not shape.volumes:
            self.tried.append(PodClass(facts, shape, pods, ladder, NO_VOLUMES, elsewhere))
            return
        by_demand: dict[VolumeDemand, list[Pod]] = {}
        bad: dict[str, list[Pod]] = {}
        for number, pod in enumerate(pods):
            if self._over(len(shape.volumes)):
                self.left_out.append(LeftOut(shape, tuple(pods[number:]), NOT_TRIED))
                break
            try:
                by_demand.setdefault(volume_demand(pod, self.problem.storage, self.settled), []).append(pod)
            except VolumeError as error:
                bad.setdefault(str(error), []).append(pod)
        self.tried.extend(
            PodClass(facts, shape, brothers, ladder, demand, elsewhere) for demand, brothers in by_demand.items()
        )
        self.left_out.extend(LeftOut(shape, tuple(some), PodInvalid(text)) for text, some in bad.items())

    def _spread_by_default(self, members: Sequence[Pod]) -> Iterable[tuple[PodShape, Sequence[Pod]]]:
        """The pods by what they are spread by, each part with the shape that says so."""
        shape = members[0].shape
        if shape.spread or shape.error:
            return [(shape, members)]
        defaults = self.problem.spread_defaults
        labels = label_set(shape.namespace, shape.labels)
        by_owner: dict[str, list[Pod]] = {}
        for pod in members:
            by_owner.setdefault("" if pod.owner is None else pod.owner.uid, []).append(pod)
        parts: dict[bytes, tuple[PodShape, list[Pod]]] = {}
        for owner, pods in by_owner.items():
            services = defaults.services.get(shape.namespace, ())
            selector = deduced_selector(labels, services, defaults.controllers.get(owner))
            spread = tuple(msgspec.structs.replace(one, label_selector=selector) for one in defaults.constraints)
            judged = shape if selector is None else msgspec.structs.replace(shape, spread=spread)
            parts.setdefault(msgspec.json.encode(judged.spread, order="sorted"), (judged, []))[1].extend(pods)
        for _, pods in parts.values():
            _by_age(pods)
        return parts.values()


def ladders_of(classes: Iterable[PodClass]) -> list[Sequence[Demand]]:
    """The different ones of all classes."""
    return [*{id(one.ladder): one.ladder for one in classes}.values()]


def _one_a_key(groups: Mapping[int, list[Pod]]) -> Iterable[list[Pod]]:
    """Lists of pods by class key; two objects of one class are rare, but possible."""
    by_key: dict[str, list[Pod]] = {}
    for members in groups.values():
        known = by_key.setdefault(members[0].shape.key, members)
        if known is not members:
            known.extend(members)
    return by_key.values()


def _told_apart(
    shape: PodShape, pods: Sequence[Pod], named: frozenset[str]
) -> Iterable[tuple[PodShape, Sequence[Pod]]]:
    """Brothers by the labels in which they differ, each part with a shape that has them."""
    parts: dict[tuple[tuple[str, str], ...], list[Pod]] = {}
    for pod in pods:
        parts.setdefault(tuple((key, pod.labels[key]) for key in sorted(named & pod.labels.keys())), []).append(pod)
    return [(msgspec.structs.replace(shape, labels=shape.labels | dict(more)), some) for more, some in parts.items()]


_order = attrgetter("facts.order")


def _first_uid(one: PodClass) -> str:
    return one.pods[0].uid


def _first_created(one: PodClass) -> datetime:
    return one.pods[0].created
