"""How many pods are in which domain while places are being filled: spread, affinity and anti-affinity in numbers.

A place is a machine of now or a claim, by number; a set of places is one integer. Of each label that any term names
there is one `Axis`: which place may be in which domain. The hostname needs none, as every place is a domain of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from provisioner.scheduling.bits import members
from provisioner.scheduling.demands import Count, Relations
from provisioner.scheduling.selecting import LabelSet

ALL: Final = -1
"""The set of all places, those to come included."""


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
    """

    __slots__ = ("absent", "could", "fixed", "index", "key", "loads", "numbers", "pins", "values")

    def __init__(self, key: str, values: Iterable[str]) -> None:
        self.key: Final = key
        self.values: Final = sorted(set(values))
        self.index: Final = {value: number for number, value in enumerate(self.values)}
        self.could: Final = [0] * len(self.values)
        self.loads: Final = [0] * len(self.values)
        self.numbers: Final = range(len(self.values))
        self.pins: Final = [((self, domain),) for domain in self.numbers]
        self.fixed = 0
        self.absent = 0

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


class HostCounter:
    """Pods of one count by place.

    Attributes:
        counts: by place; absent where none.
        at_least: by number, the places with so many or more; nothing at 0.
        eligible: the places that count.
        held: by (max_skew, min_domains), the places on which a spread constraint has placed a pod.
        raised: places on which pods were put against what `held` allows, because they had no other.
    """

    __slots__ = ("at_least", "count", "counts", "eligible", "held", "raised")

    def __init__(self, count: Count, eligible: int) -> None:
        self.count: Final = count
        self.counts: Final[dict[int, int]] = {}
        self.at_least: Final = [0]
        self.eligible = eligible
        self.held: Final[dict[tuple[int, int], int]] = {}
        self.raised = 0

    def add(self, place: int, low: int, pods: int) -> None:
        """So many more pods on a place."""
        if self.eligible != ALL and not self.eligible & low:
            return
        counts, at_least = self.counts, self.at_least
        before = counts.get(place, 0)
        counts[place] = level = before + pods
        while level >= len(at_least):
            at_least.append(0)
        at_least[level] |= low
        while level > before + 1:
            level -= 1
            at_least[level] |= low

    @property
    def anywhere(self) -> bool:
        """Whether there is any pod."""
        return len(self.at_least) > 1

    def with_at_least(self, level: int) -> int:
        """Places with `level` pods or more."""
        if level <= 0:
            return ALL
        return self.at_least[level] if level < len(self.at_least) else 0

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
        eligible: the places that count.
        held: by (max_skew, min_domains), the most pods in a domain in which a spread constraint has placed one, once it had.
    """

    __slots__ = ("axis", "count", "counts", "eligible", "held")

    def __init__(self, count: Count, axis: Axis, eligible: int) -> None:
        self.count: Final = count
        self.axis: Final = axis
        self.counts: Final = [0] * len(axis.values)
        self.eligible = eligible
        self.held: Final[dict[tuple[int, int], int]] = {}

    def add(self, domain: int, pods: int) -> None:
        """So many more pods in a domain."""
        self.counts[domain] += pods

    @property
    def anywhere(self) -> bool:
        """Whether there is any pod."""
        return any(self.counts)

    def scarce(self, usable: int, brought: int = 0) -> list[int]:
        """The domains that do not exist yet, and would hold too little for what was spread if a machine brought so much."""
        if not self.held:
            return []
        lowest = max(pods - max_skew for (max_skew, _), pods in self.held.items()) - brought
        if lowest <= min(self.counts):
            return []
        existing = self.existing(usable)
        return [domain for domain, pods in enumerate(self.counts) if pods < lowest and domain not in existing]

    def existing(self, usable: int) -> list[int]:
        """The domains that some eligible place of `usable` is known to be in."""
        places = self.axis.fixed & self.eligible & usable
        return [domain for domain, could in enumerate(self.axis.could) if could & places]


@dataclass(slots=True)
class AxisEffects:
    """What placing a pod of some labels means on one axis."""

    adds: list[DomainCounter] = field(default_factory=list)
    blocked: list[DomainCounter] = field(default_factory=list)


@dataclass(slots=True)
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


class Topology:
    """Every counter of one attempt."""

    def __init__(self, namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self.namespaces: Final = namespaces
        self.axes: Final[dict[str, Axis]] = {}
        self.hosts: Final[dict[Count, HostCounter]] = {}
        self.domains: Final[dict[Count, DomainCounter]] = {}
        self.picky: Final[list[HostCounter | DomainCounter]] = []
        self._effects: Final[dict[LabelSet, Effects]] = {}

    @property
    def empty(self) -> bool:
        """Whether nothing has to be counted."""
        return not self.hosts and not self.domains

    def watch(self, count: Count, eligible: int) -> None:
        """Count this from now on; `eligible` are the places that matter so far."""
        counter: HostCounter | DomainCounter
        if count.on_hosts:
            counter = self.hosts[count] = HostCounter(count, eligible)
        else:
            counter = self.domains[count] = DomainCounter(count, self.axes[count.key], eligible)
        if eligible != ALL:
            self.picky.append(counter)

    def effects(self, pod: LabelSet) -> Effects:
        """Of a pod with these labels. Cost: O(counters) once for each set of labels."""
        found = self._effects.get(pod)
        if found is None:
            found = self._effects[pod] = Effects()
            for count, host in self.hosts.items():
                if count.include(pod, self.namespaces):
                    (found.blocked if count.owners else found.hosts).append(host)
            for count, counter in self.domains.items():
                if count.include(pod, self.namespaces):
                    effects = found.axes.setdefault(counter.axis, AxisEffects())
                    (effects.blocked if count.owners else effects.adds).append(counter)
        return found

    def includes(self, count: Count, relations: Relations) -> bool:
        """Whether a pod is one of those that it counts itself."""
        return count.include(relations.pod, self.namespaces)


def water_fill(counts: Sequence[int], domains: Sequence[int], pods: int, ceiling: int | None) -> list[tuple[int, int]]:
    """Shares of `pods` by domain, that make the emptiest domains equal first; emptiest first, none above `ceiling`.

    `domains` are ascending. Source: planner spec 2, quotas by ascending count.
    """
    if not domains:
        return []
    if pods == 1:
        first = counts.index(min(counts)) if len(domains) == len(counts) else min(domains, key=counts.__getitem__)
        return [(first, 1)] if ceiling is None or counts[first] < ceiling else []
    if ceiling is None and pods <= _FEW:
        return _one_by_one(counts, domains, pods)
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
    more = set(sorted(order[:taken])[:extra])  # all of these are equal now
    shares = []
    for number in range(taken):
        share = top - levels[number] + (1 if order[number] in more else 0)
        if share > 0:
            shares.append((order[number], share))
    return shares


_FEW: Final = 4
"""So many pods are quicker shared out one by one."""


def _one_by_one(counts: Sequence[int], domains: Sequence[int], pods: int) -> list[tuple[int, int]]:
    """As `water_fill`; of equals the first of `domains` is filled first."""
    levels = [*counts] if len(domains) == len(counts) else [counts[domain] for domain in domains]
    shares: dict[int, int] = {}
    for _ in range(pods):
        emptiest = levels.index(min(levels))
        levels[emptiest] += 1
        domain = domains[emptiest]
        shares[domain] = shares.get(domain, 0) + 1
    return [*shares.items()]


def above(counter: HostCounter, usable: int, machines: int) -> bool:
    """Whether a place holds more than its spread constraints allow now that everything is placed.

    Args:
        counter: of the pods.
        usable: every place.
        machines: how many of them count for sure.
    """
    least = counter.emptiest(counter.eligible & usable)
    for (max_skew, min_domains), held in counter.held.items():
        lowest = 0 if machines < min_domains else least
        if held & ~counter.raised & counter.with_at_least(lowest + max_skew + 1):
            return True
    return False


def uneven(counter: DomainCounter, usable: int) -> bool:
    """The same of domains."""
    if not counter.held:
        return False
    existing = counter.existing(usable)
    least = min((counter.counts[domain] for domain in existing), default=0)
    return any(
        pods > max_skew + (0 if len(existing) < min_domains else least)
        for (max_skew, min_domains), pods in counter.held.items()
    )


def places_in(could: int) -> list[int]:
    """The numbers of a set of places."""
    return list(members(could))
