"""Which pods are tied: a hard topology spread constraint or pod affinity of one pod selects the other."""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from provisioner.apis.names import ZONE_LABEL
from provisioner.apis.pods import Pod
from provisioner.scheduling.constraints.demands import Count, facts_of
from provisioner.scheduling.constraints.filters import FilterError
from provisioner.scheduling.constraints.selectors import LabelSet, SelectedPeers, label_set
from provisioner.scheduling.topology.census import SelectorIndex

MOST_PAIRS: Final = 50_000
"""Kinds that are compared, a microsecond each; one that looks at many others counts once for each expression by which it does."""


@dataclass(frozen=True, slots=True)
class TieKind:
    """Pods that ties cannot tell apart.

    Attributes:
        labels: what selectors see of them.
        shape: the key of their shape.
        counts: what they look at; None where that is not known.
    """

    labels: LabelSet
    shape: str
    counts: tuple[Count, ...] | None


@dataclass(frozen=True, slots=True)
class Mover:
    """Pods that ties cannot tell apart and that move alike.

    Attributes:
        crosses: labels whose value is another where they go, or is not known.
    """

    kind: TieKind
    crosses: frozenset[str]


class KindReader:
    """Tells pods apart as far as ties do: of their labels those count that a selector of any of them reads; pods of a StatefulSet differ in one that
    is seldom read. Cost: O(pods), and the labels that are read for each different set of labels.

    Args:
        pods: at least one of each shape that is asked about.
        by_default: the cluster spreads pods without constraints of their own by hard ones; whom these mean is not looked for.
    """

    def __init__(self, pods: Iterable[Pod], *, by_default: bool = False) -> None:
        looks = {counts for pod in pods if (counts := _counts(pod, by_default))}
        self._by_default: Final = by_default
        self._read: Final = {
            key for counts in looks for one in counts for peer in one.peers for key, *_ in peer.selector or ()
        }
        self._kept: Final[dict[tuple[int, bool], tuple[Mapping[str, str], dict[str, LabelSet]]]] = {}

    def of(self, pods: Iterable[Pod]) -> Counter[TieKind]:
        """How many pods there are of each kind, in the order in which they are first met."""
        return Counter(TieKind(self._seen(pod), pod.shape.key, _counts(pod, self._by_default)) for pod in pods)

    def _seen(self, pod: Pod) -> LabelSet:
        """What selectors see of a pod; kept for pods that share their labels."""
        unjudged = pod.shape.unjudged
        _, mine = self._kept.setdefault((id(pod.labels), unjudged), (pod.labels, {}))
        if pod.namespace not in mine:
            seen = {key: pod.labels[key] for key in self._read if key in pod.labels}
            mine[pod.namespace] = label_set(pod.namespace, seen, unjudged=unjudged)
        return mine[pod.namespace]


def kinds(*groups: Iterable[Pod], by_default: bool = False) -> list[Counter[TieKind]]:
    """The kinds of some groups of pods, by group; `by_default` and the cost as of `KindReader`."""
    found = [list(group) for group in groups]
    reader = KindReader(chain.from_iterable(found), by_default=by_default)
    return [reader.of(group) for group in found]


def any_ties(some: Iterable[TieKind], others: Iterable[TieKind], namespaces: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether a kind of `some` and one of `others` have to do with each other; where there are too many pairs to ask, they are said to have."""
    some, others = list(some), list(others)
    if _weight(some) * len(others) + len(some) * _weight(others) > MOST_PAIRS:
        return True
    seen = [one for one in others if one.counts != ()]
    pairs = ((one, other) for one in some for other in (others if one.counts != () else seen))
    return any(ties(one, other, namespaces) for one, other in pairs)


def any_spread(some: Iterable[TieKind]) -> bool:
    """Whether a kind has a hard topology spread constraint; what cannot be read may be one."""
    return any(one.counts is None or any(count.spread for count in one.counts) for one in some)


def ties(one: TieKind, other: TieKind, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether `one` and `other` have to do with each other. What `one` asks for and cannot be read ties it to everybody, what `other` does to nobody.

    Args:
        one: a kind of pods.
        other: another, or the same.
        namespaces: labels by name.
    """
    if one.counts is None:
        return True
    return any(count.include(other.labels, namespaces) for count in one.counts) or any(
        count.include(one.labels, namespaces) for count in other.counts or ()
    )


def topology_keys(pods: Iterable[Pod]) -> frozenset[str]:
    """The labels over whose values some of the pods are tied to any others, but for the hostname."""
    return frozenset(count.key for pod in pods for count in _counts(pod, by_default=False) or () if not count.on_hosts)


def spread_keys(pods: Iterable[Pod]) -> frozenset[str]:
    """The labels over whose values a hard topology spread constraint counts, the hostname included."""
    return frozenset(count.key for pod in pods for count in _counts(pod, by_default=False) or () if count.spread)


def tied_across(
    some: Collection[Mover], others: Collection[Mover], namespaces: Mapping[str, Mapping[str, str]]
) -> bool:
    """Whether one of `some` and one of `others` are tied over a label that either of them crosses; where there are too many pairs, they are said to be."""
    crossing, staying = [one for one in some if one.crosses], [one for one in some if not one.crosses]
    those = [one for one in others if one.crosses]
    if _weigh(crossing, others) + _weigh(staying, those) > MOST_PAIRS:
        return True
    pairs = (
        (one, other) for mine, theirs in ((crossing, others), (staying, those)) for one in mine for other in theirs
    )
    return any(
        _looks_across(one.kind, other.kind, keys, namespaces) or _looks_across(other.kind, one.kind, keys, namespaces)
        for one, other in pairs
        if (keys := one.crosses | other.crosses)
    )


def _looks_across(
    one: TieKind, other: TieKind, keys: Collection[str], namespaces: Mapping[str, Mapping[str, str]]
) -> bool:
    if one.counts is None:
        return True
    return any(count.key in keys and count.include(other.labels, namespaces) for count in one.counts)


def _weigh(some: Collection[Mover], others: Collection[Mover]) -> int:
    """What it costs to compare all of them."""
    return _weight([one.kind for one in some]) * len(others) + len(some) * _weight([one.kind for one in others])


def _weight(some: Iterable[TieKind]) -> int:
    """How much has to be compared with each other kind: the expressions of what they look at."""
    return sum(
        1 + sum(1 + sum(len(peers.selector or ()) for peers in count.peers) for count in one.counts or ())
        for one in some
        if one.counts != ()
    )


def tied_shapes(
    pods: Iterable[Pod], namespaces: Mapping[str, Mapping[str, str]], *, by_default: bool = False
) -> frozenset[str]:
    """Keys of the shapes whose pods have to do with others among `pods`; of all where there are too many pairs to ask.

    `by_default`: as of `kinds`. Cost: O(kinds), and those that have to do with each other.
    """
    (amounts,) = kinds(pods, by_default=by_default)
    if _weight(amounts) * len(amounts) > MOST_PAIRS:
        return frozenset(one.shape for one in amounts)
    looking: dict[Count, list[TieKind]] = {}
    for one in amounts:
        for count in one.counts or ():
            looking.setdefault(count, []).append(one)
    index, tied = SelectorIndex(looking), set[str]()
    to_all = [one for one in amounts if one.counts is None]
    for other in amounts:
        seen = (one for count in index.including(other.labels, namespaces) for one in looking[count])
        for one in itertools.chain(to_all, seen):
            if one is not other or amounts[one] > 1:
                tied |= {one.shape, other.shape}
    return frozenset(tied)


def _counts(pod: Pod, by_default: bool) -> tuple[Count, ...] | None:
    # it may look at any pod of its namespace; were it tied to all others, a tenant could hold everybody's drains
    if pod.shape.unjudged:
        own = SelectedPeers(frozenset((pod.namespace,)), ())
        return (Count(ZONE_LABEL, (own,), owners=False, spread=False, eligibility=None),)
    if by_default and not pod.shape.spread:
        return None
    try:
        facts = facts_of(pod.shape)
        return () if facts.plain else facts.required.relations.counts
    except FilterError:
        return None
