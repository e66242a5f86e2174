"""Who runs where, by what selectors see of them: counters of running pods, kept by adding and subtracting.

Running pods that look alike to selectors are one entry with the nodes that they are on. What is counted is found by its
labels, so a count costs the pods that it means, whatever else runs. A census never changes; `changed` gives the next one, and
the two share all that is equal.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Final, Generic, TypeVar, cast

from provisioner.apis.pods import Pod
from provisioner.scheduling.constraints.bitsets import mask_of
from provisioner.scheduling.constraints.demands import Count, Relations, facts_of, ties_of
from provisioner.scheduling.constraints.filters import FilterError
from provisioner.scheduling.constraints.ports import Port, ports_of
from provisioner.scheduling.constraints.selectors import LabelSet, label_set
from provisioner.scheduling.constraints.volumes import claim_keys
from provisioner.scheduling.problem import Bin

K = TypeVar("K")
V = TypeVar("V")
Namespaces = Mapping[str, Mapping[str, str]]
Stay = tuple[int, int]
"""(pods that stay, pods that are being deleted)"""
_ONE: Final[Stay] = (1, 0)
"""Most of them: one object, not one a pod."""
_FEW_CHANGES: Final = 256
"""So many changes lie on top before they are merged into what is below."""
_MOST_SPOTS: Final = 50_000
"""Counts of which the nodes are remembered."""


@dataclass(frozen=True, slots=True)
class Tally:
    """The pods of one node, as selectors see them.

    Attributes:
        uids: of all of them.
        strays: of those that are not bound to the node yet.
        pods: (labels, how many stay, how many are being deleted).
        guarding: (relations, how many) of those with required anti-affinity.
        ports: of the node, that they take.
        claims: (volume claim by "namespace/name", UID of the pod that uses it).
        named: labels that differ between brothers of a class and that anti-affinity of these pods looks at.
    """

    uids: frozenset[str] = frozenset()
    strays: tuple[str, ...] = ()
    pods: tuple[tuple[LabelSet, int, int], ...] = ()
    guarding: tuple[tuple[Relations, int], ...] = ()
    ports: tuple[Port, ...] = ()
    claims: tuple[tuple[str, str], ...] = ()
    named: frozenset[str] = frozenset()


NOBODY: Final = Tally()


def tally_of(pods: Iterable[Pod], node_name: str = "", *, exact: bool = False) -> Tally:
    """Count pods; with `exact`, labels that differ between brothers are seen too."""
    staying: Counter[LabelSet] = Counter()
    dying: Counter[LabelSet] = Counter()
    guarding: Counter[Relations] = Counter()
    ports: set[Port] = set()
    claims: list[tuple[str, str]] = []
    named: frozenset[str] = frozenset()
    uids, strays = [], []
    for pod in pods:
        shape = pod.shape
        uids.append(pod.uid)
        if not pod.node_name or pod.node_name != node_name:
            strays.append(pod.uid)
        try:
            facts = facts_of(shape)
            labels = facts.pod
            affinity = shape.affinity
            if affinity is not None and affinity.pod_anti_affinity is not None:
                named |= facts.ties.per_pod_labels
                if affinity.pod_anti_affinity.required:
                    guarding[facts.required.relations] += 1
        except FilterError:
            labels = label_set(shape.namespace, shape.labels, unjudged=shape.unjudged)
            if shape.unjudged and shape.affinity is not None:
                guarding[ties_of(shape).required.relations] += 1
        if exact:
            labels = label_set(pod.namespace, pod.labels, unjudged=shape.unjudged)
        if shape.host_ports:
            ports.update(ports_of(shape.host_ports))
        if shape.volumes:
            claims += [(claim, pod.uid) for claim in claim_keys(pod)]
        (staying if pod.deleted is None else dying)[labels] += 1
    return Tally(
        frozenset(uids),
        tuple(strays),
        tuple([(labels, staying[labels], dying[labels]) for labels in dict.fromkeys((*staying, *dying))]),
        tuple(guarding.items()),
        tuple(sorted(ports)),
        tuple(claims),
        named,
    )


def tally_of_bin(one: Bin, *, exact: bool) -> Tally:
    """The tally of a node, kept on it; two threads that make it at once make the same."""
    if not one.pods:
        return NOBODY
    if exact:
        return tally_of(one.pods, one.node_name, exact=True)
    kept = one.__dict__
    found: Tally | None = kept.get("_tally")
    if found is None:
        found = kept["_tally"] = tally_of(one.pods, one.node_name)
    return found


class SelectorIndex:
    """Counts by a label that the pods they mean must have, so that a pod finds those that mean it without a look at all.

    Grows only; a count is in it once.
    """

    def __init__(self, counts: Iterable[Count] = ()) -> None:
        self.numbers: Final[dict[Count, int]] = {}
        self._by_label: Final[dict[tuple[str, str, str], list[Count]]] = {}
        self._others: Final[list[Count]] = []
        for count in counts:
            self.add(count)

    def add(self, count: Count) -> None:
        """Find this one too, after all others."""
        number = len(self.numbers)
        if self.numbers.setdefault(count, number) != number:
            return
        best = _rarest(count, self._by_label)
        if best is None:
            self._others.append(count)
        for key in best or ():
            self._by_label.setdefault(key, []).append(count)

    def including(self, pod: LabelSet, namespaces: Namespaces) -> list[Count]:
        """The counts that mean a pod with these labels, in the order in which they came."""
        by_label, space = self._by_label, pod.namespace
        looked_at = self.numbers if pod.unjudged else self._others
        found = [one for one in looked_at if one.include(pod, namespaces)]
        if by_label and not pod.unjudged:
            for key, value in pod.labels.items():
                for entry in ((space, key, value), ("", key, value)):
                    some = by_label.get(entry)
                    if some is not None:
                        found += [one for one in some if one.include(pod, namespaces)]
        if len(found) > 1:
            found.sort(key=self.numbers.__getitem__)
        return found


def _rarest(
    count: Count, crowds: Mapping[tuple[str, str, str], Collection[object]]
) -> Sequence[tuple[str, str, str]] | None:
    """Labels one of which each pod that is counted has, the least crowded; None where there are none such.

    A namespace is part of them where only one is meant; "" stands for any.
    """
    best: Sequence[tuple[str, str, str]] | None = None
    least = -1
    for peers in count.peers:
        if peers.selector is None:
            return ()
        space = ""
        if peers.namespace_selector is None and len(peers.namespaces) == 1:
            (space,) = peers.namespaces
        for key, operator, values in peers.selector:
            if operator == "In":
                keys = [(space, key, value) for value in sorted(values)]
                crowd = sum(len(crowds.get(one, ())) for one in keys)
                if best is None or crowd < least:
                    best, least = keys, crowd
    return best


class LabelIndex:
    """Sets of labels by each of their labels, so that a count finds those that it means. Grows only."""

    def __init__(self) -> None:
        self.known: Final[dict[LabelSet, None]] = {}
        self._by_label: Final[dict[tuple[str, str, str], dict[LabelSet, None]]] = {}
        self._unjudged: Final[dict[LabelSet, None]] = {}

    def add(self, labels: LabelSet) -> None:
        """Find these too."""
        if labels in self.known:
            return
        space, by_label = labels.namespace, self._by_label
        for key, value in labels.labels.items():
            by_label.setdefault((space, key, value), {})[labels] = None
            by_label.setdefault(("", key, value), {})[labels] = None
        if labels.unjudged:
            self._unjudged[labels] = None
        self.known[labels] = None  # last: whoever sees the number grow finds them

    def meant(self, count: Count, namespaces: Namespaces) -> list[LabelSet]:
        """Those that a count means, in the order in which they came."""
        keys = _rarest(count, self._by_label)
        if keys is None:
            return [one for one in list(self.known) if count.include(one, namespaces)]
        found = dict.fromkeys(one for key in keys for one in list(self._by_label.get(key, ())))
        found.update(dict.fromkeys(list(self._unjudged)))
        return [one for one in found if count.include(one, namespaces)]


class Layers(Generic[K, V]):
    """A dict that never changes; the next one shares what is equal. None stands for what is not there."""

    __slots__ = ("_base", "_over")

    def __init__(self, base: dict[K, V | None], over: dict[K, V | None] | None = None) -> None:
        self._base: Final = base
        self._over: Final = {} if over is None else over

    def get(self, key: K) -> V | None:
        over = self._over
        return over[key] if key in over else self._base.get(key)

    def changed(self, changes: Mapping[K, V | None], *, passing: bool = False) -> "Layers[K, V]":
        """With other values for some keys; `passing`: it is not kept, so what is equal is not worth a copy."""
        if not changes:
            return self
        over = {**self._over, **changes}
        if not passing and len(over) > max(_FEW_CHANGES, len(self._base) // 16):
            return Layers({key: value for key, value in {**self._base, **over}.items() if value is not None})
        return Layers(self._base, over)


class Spots:
    """The nodes on which pods of one count run.

    Attributes:
        counts: pods by node.
        at_least: by number, the nodes with so many or more; nothing at 0.
    """

    __slots__ = ("at_least", "counts", "known", "parts")

    def __init__(
        self, counts: dict[int, int], known: int, parts: Sequence[object], at_least: list[int] | None = None
    ) -> None:
        self.counts: Final = counts
        self.known: Final = known
        self.parts: Final = parts
        self.at_least: Final = _levels(counts) if at_least is None else at_least

    def moved(self, counts: dict[int, int], parts: Sequence[object], slots: Iterable[int]) -> "Spots":
        """The same with other numbers of pods on some nodes. Cost: these nodes."""
        levels, before = self.at_least.copy(), self.counts
        for slot in slots:
            low, high = sorted((before.get(slot, 0), counts.get(slot, 0)))
            levels += [0] * (high + 1 - len(levels))
            for level in range(low + 1, high + 1):
                levels[level] ^= 1 << slot
        while len(levels) > 1 and not levels[-1]:
            levels.pop()
        return Spots(counts, self.known, parts, levels)

    def pods_on(self, places: int) -> int:
        """Pods on a set of nodes."""
        return sum([(level & places).bit_count() for level in self.at_least])


def _levels(counts: Mapping[int, int]) -> list[int]:
    """By number, the nodes with so many pods or more; nothing at 0."""
    by_level: dict[int, list[int]] = {}
    for slot, pods in counts.items():
        by_level.setdefault(pods, []).append(slot)
    at_least = [0] * (max(by_level, default=0) + 1)
    mask = 0
    for level in range(len(at_least) - 1, 0, -1):
        if level in by_level:
            mask |= mask_of(by_level[level])
        at_least[level] = mask
    return at_least


@dataclass(eq=False)
class Census:
    """The pods that run, at one instant.

    Attributes:
        exact: whether labels that differ between brothers of a class are seen.
        strays: UIDs of pods that are promised to a node and not bound to it, with its number.
        ports: of nodes, and the nodes on which they are taken.
        guards: what anti-affinity of running pods keeps away, by a label of these.
        with_claims: nodes on which volume claims are used.
    """

    _labels: LabelIndex
    guards: SelectorIndex
    _sets: Layers[LabelSet, dict[int, Stay]]
    _guarding: Layers[Count, dict[int, int]]
    strays: Layers[str, int]
    ports: Mapping[Port, int]
    with_claims: int
    exact: bool
    _spots: dict[Count, Spots] = field(default_factory=dict)
    _below: "Census | None" = None
    _slots: tuple[int, ...] = ()
    """Of a passing one: the nodes on which other pods are than in the one below."""

    @classmethod
    def of(cls, tallies: Sequence[Tally], *, exact: bool) -> "Census":
        """Of nodes in their order."""
        sets: dict[LabelSet, dict[int, Stay] | None] = {}
        guarding: dict[Count, dict[int, int] | None] = {}
        strays: dict[str, int | None] = {}
        ports: dict[Port, list[int]] = {}
        with_claims = []
        for slot, tally in enumerate(tallies):
            if tally is NOBODY:
                continue
            for labels, staying, dying in tally.pods:
                known = sets.get(labels)
                if known is None:
                    known = sets[labels] = {}
                known[slot] = (staying, dying) if dying or staying != 1 else _ONE
            for relations, pods in tally.guarding:
                for count in relations.guards:
                    some = guarding.get(count)
                    if some is None:
                        some = guarding[count] = {}
                    some[slot] = some.get(slot, 0) + pods
            for uid in tally.strays:
                strays[uid] = slot
            for port in tally.ports:
                ports.setdefault(port, []).append(slot)
            if tally.claims:
                with_claims.append(slot)
        known_labels = LabelIndex()
        for labels in sets:
            known_labels.add(labels)
        return cls(
            known_labels,
            SelectorIndex(guarding),
            Layers(sets),
            Layers(guarding),
            Layers(strays),
            {port: mask_of(slots) for port, slots in ports.items()},
            mask_of(with_claims),
            exact,
        )

    def changed(self, changes: Iterable[tuple[int, Tally, Tally]], *, passing: bool = False) -> "Census":
        """The next one: by node, what was on it and what is.

        Args:
            changes: (node, before, after).
            passing: it is for one question only, so nothing is remembered for it.
        """
        sets: dict[LabelSet, dict[int, Stay] | None] = {}
        guarding: dict[Count, dict[int, int] | None] = {}
        strays: dict[str, int | None] = {}
        ports: dict[Port, int] | None = None
        with_claims = self.with_claims
        slots = []
        for slot, before, after in changes:
            slots.append(slot)
            new = {labels: (staying, dying) if dying or staying != 1 else _ONE for labels, staying, dying in after.pods}
            old = {
                labels: (staying, dying) if dying or staying != 1 else _ONE for labels, staying, dying in before.pods
            }
            for labels in dict.fromkeys((*old, *new)):
                stay = new.get(labels)
                if stay == old.get(labels):
                    continue
                some = sets.get(labels)
                if some is None:
                    some = sets[labels] = dict(self._sets.get(labels) or {})
                    self._labels.add(labels)
                _put(some, slot, stay)
            if before.guarding != after.guarding:
                self._guard(guarding, slot, before, after)
            for uid in before.strays:
                strays[uid] = None
            for uid in after.strays:
                strays[uid] = slot
            if before.ports != after.ports:
                ports = dict(self.ports) if ports is None else ports
                for port in before.ports:
                    ports[port] &= ~(1 << slot)
                for port in after.ports:
                    ports[port] = ports.get(port, 0) | 1 << slot
            with_claims = with_claims | 1 << slot if after.claims else with_claims & ~(1 << slot)
        return replace(
            self,
            _sets=self._sets.changed({labels: some or None for labels, some in sets.items()}, passing=passing),
            _guarding=self._guarding.changed(
                {count: some or None for count, some in guarding.items()}, passing=passing
            ),
            strays=self.strays.changed(strays, passing=passing),
            ports=self.ports if ports is None else {port: taken for port, taken in ports.items() if taken},
            with_claims=with_claims,
            _spots={} if passing else self._spots,
            _below=self if passing else None,
            _slots=tuple(slots) if passing else (),
        )

    def afresh(self) -> "Census":
        """The same pods, with nothing remembered of what namespaces mean."""
        return replace(self, _spots={}, _below=None, _slots=())

    def _guard(self, changed: dict[Count, dict[int, int] | None], slot: int, before: Tally, after: Tally) -> None:
        delta: Counter[Count] = Counter()
        for sign, tally in ((-1, before), (1, after)):
            for relations, pods in tally.guarding:
                for count in relations.guards:
                    delta[count] += sign * pods
        for count, change in delta.items():
            if change:
                some = changed.get(count)
                if some is None:
                    some = changed[count] = dict(self._guarding.get(count) or {})
                    self.guards.add(count)
                _put(some, slot, (some.get(slot, 0) + change) or None)

    def guarded(self, pod: LabelSet, namespaces: Namespaces) -> list[Count]:
        """What keeps a pod with these labels away from running pods."""
        return [count for count in self.guards.including(pod, namespaces) if self._guarding.get(count)]

    def spots(self, count: Count, namespaces: Namespaces) -> Spots:
        """Where what is counted runs. Cost: the pods that are meant, once; of a passing one, the nodes with other pods where it is known of the one below."""
        known = self._spots.get(count) or (None if self._below is None else self._below._spots.get(count))  # noqa: SLF001 - another of its class
        if count.owners:
            own = self._guarding.get(count) or _NOWHERE
            if known is not None and known.parts[0] is own:
                return known
            below = None if self._below is None else self._below._guarding.get(count) or _NOWHERE  # noqa: SLF001 - likewise
            if known is not None and known.parts[0] is below:
                return self._keep(count, known.moved(own, (own,), self._slots))
            return self._keep(count, Spots(own, 0, (own,)))
        size = len(self._labels.known)
        if known is not None and known.known != size:
            known = None
        sets = self._labels.meant(count, namespaces) if known is None else cast("list[LabelSet]", known.parts[0])
        found = [self._sets.get(labels) for labels in sets]
        if known is not None:
            if all(map(is_, found, known.parts[1:])):
                return known
            if self._is_of_below(sets, found, known.parts[1:]):
                counts = known.counts.copy()
                for slot in self._slots:
                    _put(counts, slot, _counted(count, [part[slot] for part in found if part and slot in part]))
                return self._keep(count, known.moved(counts, (sets, *found), self._slots))
        counts = {}
        for part in found:
            if part:
                for slot, (staying, dying) in part.items():
                    pods = staying if count.spread else staying + dying
                    if pods:
                        counts[slot] = counts.get(slot, 0) + pods
        return self._keep(count, Spots(counts, size, (sets, *found)))

    def _is_of_below(self, sets: Iterable[LabelSet], found: Iterable[object], known: Iterable[object]) -> bool:
        """Whether what is known of these labels is what holds in the census below."""
        if self._below is None:
            return False
        below = self._below._sets  # noqa: SLF001 - another of its class
        return all(new is old or below.get(labels) is old for labels, new, old in zip(sets, found, known, strict=True))

    def _keep(self, count: Count, spots: Spots) -> Spots:
        if len(self._spots) >= _MOST_SPOTS:
            self._spots.clear()
        self._spots[count] = spots
        return spots


_NOWHERE: Final[dict[int, int]] = {}


def _counted(count: Count, stays: Iterable[Stay]) -> int | None:
    """The pods of one node that count; None for none."""
    return sum([staying if count.spread else staying + dying for staying, dying in stays]) or None


def _put(some: dict[int, V], slot: int, value: V | None) -> None:
    if value is None:
        some.pop(slot, None)
    else:
        some[slot] = value
