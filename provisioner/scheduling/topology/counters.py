"""How many pods are in which domain while places are being filled: spread, affinity and anti-affinity in numbers.

A place is an existing node or a claim, by number; a set of places is one integer. Of each label that any term names
there is one `Axis`: which place may be in which domain. The hostname needs none, as every place is a domain of its own.
"""

import functools
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from provisioner.apis.names import DISRUPTED_TAINT
from provisioner.scheduling.capacity.nodes import Bins
from provisioner.scheduling.constraints.bitsets import members
from provisioner.scheduling.constraints.demands import Count, Demand, Eligibility
from provisioner.scheduling.constraints.filters import FilterTerm
from provisioner.scheduling.constraints.selectors import LabelSet
from provisioner.scheduling.topology.census import Census, SelectorIndex, Spots
from provisioner.values.taints import first_untolerated

ALL: Final = -1
"""The set of all places, those to come included."""
NOTHING_MORE: Final[Mapping[int, int]] = {}


class Axis:
    """One label as a line of domains.

    Attributes:
        values: the domains, sorted.
        could: by domain, the places that are in it or may still come to be.
        fixed: places whose domain is known, or that have none.
        absent: places without the label.
        loads: by domain, how often it was chosen where nothing else decided.
        numbers: of all domains.
        pins: by domain, the one choice of it.
        uneven: what new nodes there are, and what they cost, is not the same in every domain.
    """

    __slots__ = ("absent", "could", "fixed", "index", "key", "loads", "numbers", "pins", "uneven", "values")

    def __init__(self, key: str, values: Iterable[str], *, uneven: bool = False) -> None:
        self.uneven: Final = uneven
        self.key: Final = key
        self.values: Final = sorted(set(values))
        self.index: Final = {value: number for number, value in enumerate(self.values)}
        self.could: Final = [0] * len(self.values)
        self.loads: Final = [0] * len(self.values)
        self.numbers: Final = range(len(self.values))
        self.pins: Final = [((self, domain),) for domain in self.numbers]
        self.fixed = 0
        self.absent = 0

    def settle_in(self, places: Mapping[str | None, int]) -> None:
        """Existing nodes are where they are."""
        for value, some in places.items():
            self.fixed |= some
            if value is None:
                self.absent |= some
            else:
                self.could[self.index[value]] |= some

    def afresh(self) -> "Axis":
        """One for another attempt, with existing nodes alone."""
        found = Axis.__new__(Axis)
        found.key, found.values, found.index, found.numbers = self.key, self.values, self.index, self.numbers  # type: ignore[misc]
        found.could = self.could.copy()  # type: ignore[misc]
        found.uneven = self.uneven  # type: ignore[misc]
        found.loads = [0] * len(self.values)  # type: ignore[misc]
        found.pins = [((found, domain),) for domain in found.numbers]  # type: ignore[misc]
        found.fixed, found.absent = self.fixed, self.absent
        return found

    def settle(self, low: int, domain: int) -> None:
        """A place that could be in several domains is in this one."""
        if self.fixed & low:
            return
        self.fixed |= low
        could = self.could
        for other, places in enumerate(could):
            if other != domain and places & low:
                could[other] = places & ~low

    def enter(self, low: int, domains: Sequence[int]) -> None:
        """A new place that may be in any of these domains; in none where there are none."""
        for domain in domains:
            self.could[domain] |= low
        if len(domains) <= 1:
            self.fixed |= low
            if not domains:
                self.absent |= low

    def domain_of(self, low: int) -> int:
        """The domain of a place that is fixed; -1 where it has none."""
        for domain, places in enumerate(self.could):
            if places & low:
                return domain
        return -1


@dataclass(eq=False, slots=True)
class Eligible:
    """The places that count under one eligibility; every counter under it looks here.

    Attributes:
        places: existing ones that count, and those to come that may.
    """

    eligibility: Eligibility | None
    places: int


class HostCounter:
    """Pods of one count by place.

    Attributes:
        counts: by place; absent where none.
        at_least: by number, the places with so many or more; nothing at 0.
        held: by (max_skew, min_domains), the places on which a spread constraint has placed a pod.
        raised: by place, the pods that were put there against what `held` allows, because they had no other.
        under: which places count.
    """

    __slots__ = ("at_least", "count", "counts", "held", "raised", "under")

    def __init__(self, count: Count, eligible: Eligible, spots: Spots | None = None) -> None:
        self.count: Final = count
        self.counts: Final[dict[int, int]] = {}
        self.at_least: Final = [0]
        self.under: Final = eligible
        self.held: Final[dict[tuple[int, int], int]] = {}
        self.raised: Final[dict[int, int]] = {}
        if spots is not None and spots.counts:
            places = eligible.places
            if places == ALL:
                self.counts.update(spots.counts)
                self.at_least[:] = spots.at_least
            else:
                self.counts.update({place: pods for place, pods in spots.counts.items() if places >> place & 1})
                self.at_least[:] = [some & places for some in spots.at_least]
                while len(self.at_least) > 1 and not self.at_least[-1]:
                    self.at_least.pop()

    @property
    def eligible(self) -> int:
        """The places that count."""
        return self.under.places

    def add(self, place: int, low: int, pods: int) -> None:
        """So many more pods on a place."""
        if not self.under.places & low:
            return
        counts, at_least = self.counts, self.at_least
        level = counts.get(place, 0)
        counts[place] = top = level + pods
        while top >= len(at_least):
            at_least.append(0)
        at_least[top] |= low
        while top > level + 1:
            top -= 1
            at_least[top] |= low

    def enter(self, first: int, pods: Sequence[int]) -> None:
        """As `add`, on places that are new and count: so many pods on each, from the place `first` on."""
        self.counts.update(enumerate(pods, first))
        at_least = self.at_least
        highest = max(pods)
        if highest >= len(at_least):
            at_least += [0] * (highest + 1 - len(at_least))
        for amount, alike in itertools.groupby(pods):
            number = len([*alike])
            places = ((1 << number) - 1) << first
            first += number
            for level in range(1, amount + 1):
                at_least[level] |= places

    @property
    def anywhere(self) -> bool:
        """Whether there is any pod."""
        return len(self.at_least) > 1

    def with_at_least(self, level: int) -> int:
        """Places with `level` pods or more."""
        if level <= 0:
            return ALL
        return self.at_least[level] if level < len(self.at_least) else 0

    def surprised(self, places: int) -> bool:
        """Whether some of `places`, which came last, were too empty for what was spread when they came."""
        return bool(places & self.eligible) and any(
            held & self.with_at_least(max_skew + 1) for (max_skew, _), held in self.held.items()
        )

    def emptiest(self, places: int) -> int:
        """The least number on any of `places`; 0 where there are none."""
        if not places:
            return 0
        level = 0
        while level + 1 < len(self.at_least) and not places & ~self.at_least[level + 1]:
            level += 1
        return level


class DomainCounter:
    """Pods of one count by domain of an axis.

    Attributes:
        counts: by domain.
        held: by (max_skew, min_domains), the pods in each domain in which a spread constraint has placed one, once it had; with the daemons
            that came to the domain since, as these may be there before any pod.
        blind: some of these pods cannot go to every domain, so domains may have come that they did not see.
        under: which places count.
    """

    __slots__ = ("axis", "blind", "count", "counts", "held", "under")

    def __init__(self, count: Count, axis: Axis, eligible: Eligible, base: Sequence[int] | None = None) -> None:
        self.count: Final = count
        self.axis: Final = axis
        self.counts: Final = [0] * len(axis.values) if base is None else list(base)
        self.under: Final = eligible
        self.held: Final[dict[tuple[int, int], dict[int, int]]] = {}
        self.blind = False

    @property
    def eligible(self) -> int:
        """The places that count."""
        return self.under.places

    def add(self, domain: int, pods: int) -> None:
        """So many more pods in a domain."""
        self.counts[domain] += pods

    @property
    def anywhere(self) -> bool:
        """Whether there is any pod."""
        return any(self.counts)

    def at_best(self, usable: int, most: int) -> int:
        """The number in the emptiest domain, if each place that is not settled comes to the fullest that it could; at most `most`."""
        places = self.eligible & usable & ~self.axis.fixed
        for pods, could in sorted(zip(self.counts, self.axis.could, strict=True), reverse=True) if places else ():
            places &= ~could
            if not places:
                return min(pods, most)
        return most

    def scarce(self, usable: int, brought: int = 0) -> list[int]:
        """The domains that do not exist yet, and would hold too little for what was spread if a node brought so much."""
        if not self.held:
            return []
        lowest = self._lowest - brought
        if lowest <= min(self.counts):
            return []
        existing = self.existing(usable)
        return [domain for domain, pods in enumerate(self.counts) if pods < lowest and domain not in existing]

    def surprised(self, usable: int, before: int, base: Sequence[int]) -> bool:
        """Whether a domain has come that was too empty for what was spread when it came.

        Args:
            usable: places that make domains.
            before: those of them that were there from the start.
            base: by domain, the pods that were.
        """
        if not self.blind or not self.held:
            return False
        lowest = self._lowest
        known = self.existing(before)
        return any(base[domain] < lowest for domain in self.existing(usable) if domain not in known)

    @property
    def _lowest(self) -> int:
        """The fewest pods in any domain with which all holds that was spread."""
        return max(max(there.values()) - max_skew for (max_skew, _), there in self.held.items())

    def existing(self, usable: int) -> list[int]:
        """The domains that some eligible place of `usable` is known to be in."""
        places = self.axis.fixed & self.eligible & usable
        return [domain for domain, could in enumerate(self.axis.could) if could & places]

    def emptiest(self, usable: int) -> int:
        """The least number in any of these domains; 0 where there are none."""
        return min([self.counts[domain] for domain in self.existing(usable)], default=0)


@dataclass(slots=True)
class AxisEffects:
    """What placing a pod of some labels means on one axis."""

    adds: list[DomainCounter] = field(default_factory=list)
    blocked: list[DomainCounter] = field(default_factory=list)


@dataclass
class Effects:
    """What placing a pod of some labels means for others.

    Attributes:
        hosts: counters that count it.
        blocked: counters of places that it must keep away from, because pods there want so.
        axes: the same by axis.
    """

    hosts: list[HostCounter] = field(default_factory=list)
    blocked: list[HostCounter] = field(default_factory=list)
    axes: dict[Axis, AxisEffects] = field(default_factory=dict)

    @functools.cached_property
    def choosy(self) -> tuple[tuple[FilterTerm, ...], ...]:
        """The terms of each counter that counts the pods on some nodes only."""
        found = [one.count.eligibility for one in self.hosts]
        for some in self.axes.values():
            found += [one.count.eligibility for one in some.adds]
        if found == [None] * len(found):
            return ()
        return tuple(dict.fromkeys([one.terms for one in found if one is not None and one.terms is not None]))


class DomainScope:
    """What one question counts: made once, the same for every attempt at it.

    Attributes:
        axes: every label that matters but the hostname, with existing nodes.
        index: everything that the pods of the question want counted, and what keeps them away from running ones.
        empty: nothing has to be counted.
    """

    def __init__(
        self,
        bins: Bins,
        census: Census,
        namespaces: Mapping[str, Mapping[str, str]],
        counts: Iterable[Count],
        lingering: int = 0,
    ) -> None:
        self.namespaces: Final = namespaces
        self.axes: Final[dict[str, Axis]] = {}
        self.index: Final = SelectorIndex(counts)
        self.empty: Final = not self.index.numbers
        self._bins: Final = bins
        self._census: Final = census
        self._lingering: Final = lingering
        eligible = {count.eligibility: 0 for count in self.index.numbers if count.eligibility is not None}
        self.eligible: Final = {one: bins.eligible(one) & ~(lingering if _ruled_out(one) else 0) for one in eligible}
        self._including: Final[dict[LabelSet, list[Count]]] = {}
        self._spots: Final[dict[Count, Spots]] = {}
        self._sums: Final[dict[Count, list[int] | None]] = {}

    def without(self, some: Collection[Count]) -> "DomainScope":
        """The same question where some things need not be counted."""
        counts = [count for count in self.index.numbers if count not in some]
        found = DomainScope(self._bins, self._census, self.namespaces, counts, self._lingering)
        keys = axes_of(counts)
        found.axes.update((key, axis) for key, axis in self.axes.items() if key in keys)
        return found

    def including(self, pod: LabelSet) -> list[Count]:
        """The counts that mean a pod with these labels."""
        found = self._including.get(pod)
        if found is None:
            found = self._including[pod] = self.index.including(pod, self.namespaces)
        return found

    def about(self, ladder: Iterable[Demand]) -> set[Count]:
        """What counts pods with these demands, and what they look at."""
        relations = [demand.relations for demand in ladder]
        return {count for one in relations for count in (*one.counts, *self.including(one.pod))}

    def spots(self, count: Count) -> Spots:
        """Where pods of one count run already."""
        found = self._spots.get(count)
        if found is None:
            found = self._spots[count] = self._census.spots(count, self.namespaces)
        return found

    def sums(self, count: Count) -> list[int] | None:
        """How many of them there are by domain; None for none anywhere."""
        if count not in self._sums:
            spots = self.spots(count)
            self._sums[count] = self._sum(count, spots) if spots.counts else None
        return self._sums[count]

    def _sum(self, count: Count, spots: Spots) -> list[int]:
        axis = self.axes[count.key]
        places = self._bins.everything
        if count.eligibility is not None:
            places &= self.eligible[count.eligibility]
        if len(axis.could) * len(spots.at_least) <= 4 * len(spots.counts) + 64:
            return [spots.pods_on(could & places) for could in axis.could]
        sums = [0] * len(axis.could)
        for place, pods in spots.counts.items():
            low = 1 << place
            if places & low and not axis.absent & low:
                domain = axis.domain_of(low)
                if domain >= 0:
                    sums[domain] += pods
        return sums


def axes_of(counts: Iterable[Count]) -> set[str]:
    """The labels over which pods are counted, and those that say whose pods are, but for the hostname."""
    keys: set[str] = set()
    for count in counts:
        keys.update(() if count.on_hosts else (count.key,), () if count.eligibility is None else count.eligibility.keys)
    return keys


def _ruled_out(eligibility: Eligibility) -> bool:
    """Whether a node that leaves does not count, because of the taint that it carries by then."""
    tolerations = eligibility.tolerations
    return tolerations is not None and first_untolerated(tolerations, (DISRUPTED_TAINT,)) is not None


class Topology:
    """Every counter of one attempt; a counter is made once somebody looks at it."""

    def __init__(self, scope: DomainScope, cautious: Collection[Count] = ()) -> None:
        self.scope: Final = scope
        self.namespaces: Final = scope.namespaces
        self.empty: Final = scope.empty
        self.axes: Final = {key: axis.afresh() for key, axis in scope.axes.items()}
        self.hosts: Final[dict[Count, HostCounter]] = {}
        self.domains: Final[dict[Count, DomainCounter]] = {}
        self.picky: Final = [Eligible(one, places) for one, places in scope.eligible.items()]
        self.kept: Final[list[DomainCounter]] = []
        self._cautious: Final = cautious
        self._everything: Final = Eligible(None, ALL)
        self._eligible: Final = {one.eligibility: one for one in self.picky}
        self._effects: Final[dict[LabelSet, Effects]] = {}

    def emptied(self) -> "Topology":
        """The same nodes, all that came included, with the pods alone that run already."""
        found = Topology(self.scope)
        found.axes.update(self.axes)
        for one, mine in zip(found.picky, self.picky, strict=True):
            one.places = mine.places
        return found

    def _of(self, count: Count) -> Eligible:
        return self._everything if count.eligibility is None else self._eligible[count.eligibility]

    def host(self, count: Count) -> HostCounter:
        """The counter of something that is counted by place."""
        found = self.hosts.get(count)
        if found is None:
            found = self.hosts[count] = HostCounter(count, self._of(count), self.scope.spots(count))
        return found

    def domain(self, count: Count) -> DomainCounter:
        """The counter of something that is counted by domain."""
        found = self.domains.get(count)
        if found is None:
            base = self.scope.sums(count)
            found = self.domains[count] = DomainCounter(count, self.axes[count.key], self._of(count), base)
            if count in self._cautious:
                self.kept.append(found)
                self.kept.sort(key=lambda one: self.scope.index.numbers[one.count])
        return found

    def domain_counters(self) -> list[tuple[Count, DomainCounter]]:
        """Those that anybody looked at, in the order in which pods want them."""
        numbers = self.scope.index.numbers
        return sorted(self.domains.items(), key=lambda entry: numbers[entry[0]])

    def effects(self, pod: LabelSet) -> Effects:
        """Of a pod with these labels. Cost: O(counters that mean it) once for each set of labels."""
        found = self._effects.get(pod)
        if found is None:
            found = self._effects[pod] = Effects()
            for count in self.scope.including(pod):
                if count.on_hosts:
                    (found.blocked if count.owners else found.hosts).append(self.host(count))
                else:
                    counter = self.domain(count)
                    effects = found.axes.setdefault(counter.axis, AxisEffects())
                    (effects.blocked if count.owners else effects.adds).append(counter)
        return found


def water_fill(counts: Sequence[int], domains: Sequence[int], pods: int, ceiling: int | None) -> list[tuple[int, int]]:
    """Shares of `pods` by domain, that make the emptiest domains equal first; emptiest first, none above `ceiling`.

    Of equals the first of `domains` is filled first, and takes what cannot be shared out evenly. Source: planner spec 2, quotas
    by ascending count.
    """
    if not domains:
        return []
    if pods == 1:
        everywhere = isinstance(domains, range) and len(domains) == len(counts)  # as a rule, and quicker
        first = counts.index(min(counts)) if everywhere else min(domains, key=counts.__getitem__)
        return [(first, 1)] if ceiling is None or counts[first] < ceiling else []
    order = sorted(domains, key=counts.__getitem__)
    levels = [counts[domain] for domain in order]
    left, top, taken = pods, levels[0], 1
    total = len(order)
    while left > 0:
        while taken < total and levels[taken] == top:
            taken += 1
        step = left // taken
        if taken < total:
            step = min(step, levels[taken] - top)
        if ceiling is not None:
            step = min(step, ceiling - top)
        if step <= 0:
            break
        top += step
        left -= step * taken
    extra = left if ceiling is None or top < ceiling else 0
    equal = set(order[:taken])
    more = set([domain for domain in domains if domain in equal][:extra])
    shares = []
    for number in range(taken):
        share = top - levels[number] + (1 if order[number] in more else 0)
        if share > 0:
            shares.append((order[number], share))
    return shares


def above(counter: HostCounter, domains: int, nodes: int) -> bool:
    """Whether a place holds more than its spread constraints allow now that everything is placed.

    Args:
        counter: of the pods.
        domains: every place that makes a domain.
        nodes: how many of them count for sure.
    """
    least = counter.emptiest(counter.eligible & domains)
    for (max_skew, min_domains), held in counter.held.items():
        top = max_skew + (0 if nodes < min_domains else least)
        crowded = held & counter.with_at_least(top + 1)
        if crowded and (
            not counter.raised
            or any(counter.counts[place] - counter.raised.get(place, 0) > top for place in members(crowded))
        ):
            return True
    return False


def uneven(counter: DomainCounter, usable: int, lingering: int = 0, more: Mapping[int, int] = NOTHING_MORE) -> bool:
    """The same of domains, with so many `more` daemons in some; those that only `lingering` places make are none once these are gone."""
    if not counter.held:
        return False
    existing = len(counter.existing(usable))
    there = counter.existing(usable | lingering)
    least = min([counter.counts[domain] + more.get(domain, 0) for domain in there], default=0)
    return any(
        pods + more.get(domain, 0) > max_skew + (0 if existing < min_domains else least)
        for (max_skew, min_domains), held in counter.held.items()
        for domain, pods in held.items()
    )
