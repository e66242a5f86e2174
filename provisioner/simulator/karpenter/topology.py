"""In which topology domains pods are, as Karpenter counts them, and which of them one more pod may come to. Pure.

Source: karpenter `pkg/controllers/provisioning/scheduling/topology*.go` at 226646810 (3.9).
Differs: who counts for which constraint is scheduling's answer (`constraints.demands`), which reads minDomains as part of the constraint.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.scheduling.attempts.setting import Setting
from provisioner.scheduling.capacity.offers import OfferState, PreparedPool
from provisioner.scheduling.constraints.bitsets import members
from provisioner.scheduling.constraints.demands import Count, Relations
from provisioner.scheduling.constraints.filters import FilterTerm
from provisioner.values.requirement import Operator, Requirement, Requirements


class DomainCounts:
    """The pods of one count by domain.

    Attributes:
        counts: by domain. Every one that a node has, or could have, is there; of hostnames those with pods alone, since a new node can always be
            made. A hostname is a node's, or stands for a claim.
    """

    __slots__ = ("count", "counts")

    def __init__(self, count: Count, counts: dict[str, int]) -> None:
        self.count: Final = count
        self.counts: Final = counts

    def add(self, domains: Sequence[str]) -> None:
        """A pod is, or may come to be, in these: anti-affinity counts it in all of them, spread and affinity only where there is one."""
        if len(domains) == 1 or self.count.owners or not (self.count.spread or self.count.surely):
            for domain in domains:
                self.counts[domain] = self.counts.get(domain, 0) + 1


@dataclass(frozen=True, slots=True, eq=False)
class PodTopology:
    """What ties pods with some relations to others.

    Attributes:
        spreads: each with its maxSkew, whether the pod counts itself, and minDomains.
        together: its affinity, each with whether the pod is meant itself.
        apart: its anti-affinity, and that of others that mean it.
        adds: what counts it.
    """

    spreads: tuple[tuple[DomainCounts, int, bool, int], ...]
    together: tuple[tuple[DomainCounts, bool], ...]
    apart: tuple[DomainCounts, ...]
    adds: tuple[DomainCounts, ...]

    @property
    def free(self) -> bool:
        """Whether nothing keeps the pod off any node."""
        return not (self.spreads or self.together or self.apart)

    @property
    def lasting(self) -> Iterator[DomainCounts]:
        """Those of `apart` that are about hosts: what they refuse, they refuse for good."""
        return (one for one in self.apart if one.count.on_hosts)


class KarpenterTopology:
    """All that is counted for one question, while its pods get places. One thread."""

    def __init__(self, setting: Setting) -> None:
        self._setting: Final = setting
        self._counts: Final[dict[Count, DomainCounts]] = {}
        self._of: Final[dict[Relations, PodTopology]] = {}

    def of(self, relations: Relations) -> PodTopology:
        """What ties pods with these relations."""
        found = self._of.get(relations)
        if found is None:
            found = self._of[relations] = self._made(relations)
        return found

    def _made(self, relations: Relations) -> PodTopology:
        scope = self._setting.scope
        if scope.empty:
            return _FREE
        about = scope.including(relations.pod)
        counted = [*(one for one in about if not one.owners), *relations.guards]
        return PodTopology(
            tuple(
                [
                    (self._domains(one.count), one.max_skew, one.own, one.min_domains if one.stated else 1)
                    for one in relations.spreads
                ]
            ),
            tuple([(self._domains(one), one.include(relations.pod, scope.namespaces)) for one in relations.together]),
            tuple([self._domains(one) for one in (*relations.apart, *(one for one in about if one.owners))]),
            tuple([self._domains(one) for one in dict.fromkeys(counted)]),
        )

    def _domains(self, count: Count) -> DomainCounts:
        found = self._counts.get(count)
        if found is None:
            found = self._counts[count] = DomainCounts(count, self._running(count))
        return found

    def _running(self, count: Count) -> dict[str, int]:
        bins, found = self._setting.bins, dict[str, int]()
        places = bins.everything if count.eligibility is None else bins.eligible(count.eligibility)
        spots = self._setting.scope.spots(count).counts
        if not count.on_hosts:
            for offer in self._setting.offers:
                found.update(dict.fromkeys(offer.domains(offer.base, count.key), 0))
        for value, some in bins.by_label(count.key).items():
            if value is None:
                continue
            pods = sum([spots[number] for number in members(some & places) if number in spots]) if spots else 0
            if pods or (not count.on_hosts and some & places & bins.staying):
                found[value] = pods
        return found

    # ------------------------------------------------------------------ where one more may come

    def admits(self, ties: PodTopology, domain_of: Callable[[str], str | None], terms: Iterable[FilterTerm]) -> bool:
        """Whether an existing node takes one more such pod; `domain_of` tells its value of a label."""
        asked = tuple(terms)
        for counts, skew, own, least in ties.spreads:
            domain = domain_of(counts.count.key)
            if domain is None or not _is_even(counts, domain, skew, own, least, asked):
                return False
        for counts, own in ties.together:
            domain = domain_of(counts.count.key)
            if domain is None or (not counts.counts.get(domain) and not (own and _is_first(counts, asked))):
                return False
        for counts in ties.apart:
            domain = domain_of(counts.count.key)
            if domain is None or counts.counts.get(domain):
                return False
        return True

    def narrowed(
        self, ties: PodTopology, offer: PreparedPool, state: OfferState, host: str, term: FilterTerm
    ) -> OfferState | None:
        """A claim once one more such pod is on it, whose spread, affinity and anti-affinity have chosen; None where they allow nothing.

        A spread takes the domain with fewest pods, of equals the first by name, whatever a node costs there.
        Differs: which of equals is by chance there.
        """
        now: OfferState | None = state
        for counts, skew, own, least in ties.spreads:
            if now is None:
                return None
            some = [one for one in _open(counts, offer, now, host) if _is_even(counts, one, skew, own, least, (term,))]
            first = min(some, key=lambda one: (counts.counts.get(one, 0), one), default=None)
            now = None if first is None else _settled(counts, offer, now, (first,))
        for counts, own in ties.together:
            if now is None:
                return None
            every = _open(counts, offer, now, host)
            some = [one for one in every if counts.counts.get(one)]
            if not some and own and _is_first(counts, (term,)):
                some = [one for one in every if _allows((term,), counts.count.key, one)][:1]
            now = _settled(counts, offer, now, some) if some else None
        for counts in ties.apart:
            if now is None:
                return None
            every = _open(counts, offer, now, host)
            some = [one for one in every if not counts.counts.get(one)]
            now = now if len(some) == len(every) else _settled(counts, offer, now, some) if some else None
        return now

    def placed(
        self, ties: PodTopology, domains_of: Callable[[str], Sequence[str]], counts_in: Callable[[Count], bool]
    ) -> None:
        """A pod has its place; `domains_of` tells the values of a label that its node has or may have, `counts_in` whether the node counts."""
        for one in ties.adds:
            if one.count.eligibility is None or counts_in(one.count):
                one.add(domains_of(one.count.key))


_FREE: Final = PodTopology((), (), (), ())


def _open(counts: DomainCounts, offer: PreparedPool, state: OfferState, host: str) -> Sequence[str]:
    return (host,) if counts.count.on_hosts else offer.domains(state, counts.count.key)


def _settled(counts: DomainCounts, offer: PreparedPool, state: OfferState, domains: Sequence[str]) -> OfferState | None:
    if counts.count.on_hosts:
        return state
    only = Requirement.of(counts.count.key, Operator.IN, domains)
    return offer.narrowed(state, FilterTerm(Requirements.of((only,))))


def _allows(terms: Iterable[FilterTerm], key: str, domain: str) -> bool:
    """Whether what the pods ask of nodes leaves them a domain."""
    asked = [term.requirements.get(key) for term in terms]
    return any(one is None or one.has(domain) for one in asked)


def _is_even(
    counts: DomainCounts, domain: str, skew: int, own: bool, min_domains: int, terms: tuple[FilterTerm, ...]
) -> bool:
    """Whether one more pod in a domain keeps the skew. On hosts the least is always 0."""
    least = 0
    if not counts.count.on_hosts:
        if domain not in counts.counts or not _allows(terms, counts.count.key, domain):
            return False
        some = [pods for one, pods in counts.counts.items() if _allows(terms, counts.count.key, one)]
        if len(some) >= min_domains:
            least = min(some)
    return counts.counts.get(domain, 0) + own - least <= skew


def _is_first(counts: DomainCounts, terms: Iterable[FilterTerm]) -> bool:
    """Whether there is no pod to be with where such a pod may go."""
    asked = tuple(terms)
    return not any(pods and _allows(asked, counts.count.key, domain) for domain, pods in counts.counts.items())
