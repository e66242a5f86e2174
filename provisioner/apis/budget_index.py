"""Which PodDisruptionBudgets select a pod, without asking each of them, and which of them keep it from being evicted. Pure."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from provisioner.apis import names
from provisioner.apis.core import PodDisruptionBudget
from provisioner.apis.eviction import asks_no_budget, refuses
from provisioner.apis.meta import LabelSelector, selects
from provisioner.apis.pods import Pod

_Pair: TypeAlias = tuple[str, str]
_MOST_KNOWN: Final = 50_000
"""Kinds of pods of which it is remembered who selects them."""
_MOST_VALUES: Final = 8
"""Of an expression that is looked at: a budget is entered once for each."""


class BudgetIndex:
    """The budgets of one namespace by the label that tells most, of those that each demands.

    Charts give all their objects some labels that hardly differ, so that one which is chosen at random tells nothing. A budget that
    demands no value of any label is asked about every pod.

    Cost: O(labels that budgets demand).
    """

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._by_label: Final[defaultdict[_Pair, list[PodDisruptionBudget]]] = defaultdict(list)
        self._others: Final[list[PodDisruptionBudget]] = []
        self.keys: Final[set[str]] = set()
        """Every label key that a budget looks at."""
        every: list[tuple[PodDisruptionBudget, list[tuple[_Pair, ...]]]] = []
        for one in budgets:
            if one.spec.selector is not None:
                self.keys.update(_keys(one.spec.selector))
                every.append((one, list(_demanded(one.spec.selector))))
        self._every: Final = [one for one, _ in every]
        common = Counter(pair for _, ways in every for pairs in ways for pair in pairs)
        for one, ways in every:
            if not ways:
                self._others.append(one)
            for pair in min(ways, key=lambda pairs: sum(common[pair] for pair in pairs), default=()):
                self._by_label[pair].append(one)

    def of(self, pod: Pod) -> tuple[PodDisruptionBudget, ...]:
        """Those that select the pod, by name; all of them where its labels are not known."""
        if not pod.shape.unjudged:
            return self.selecting(pod.labels)
        return tuple(sorted(self._every, key=lambda one: one.metadata.name))

    def selecting(self, labels: Mapping[str, str]) -> tuple[PodDisruptionBudget, ...]:
        """Those that select a pod with these labels, by name. Cost: the labels, and the budgets that share the pod's rarest ones."""
        found = [*self._others]
        for pair in labels.items():
            found += self._by_label.get(pair, ())
        mine = (one for one in found if selects(one.spec.selector, labels))
        return tuple(sorted(mine, key=lambda one: one.metadata.name))


class PodBudgets(Mapping[str, tuple[PodDisruptionBudget, ...]]):
    """PodDisruptionBudgets by namespace, each namespace's by name, asked pod by pod; what equal pods are told is remembered."""

    def __init__(self, by_namespace: Mapping[str, tuple[PodDisruptionBudget, ...]] = MappingProxyType({})) -> None:
        self._by_namespace: Final = by_namespace
        self._indexed: Final[dict[str, BudgetIndex]] = {}
        self._known: Final[dict[tuple[str, str], tuple[PodDisruptionBudget, ...]]] = {}

    def __getitem__(self, namespace: str) -> tuple[PodDisruptionBudget, ...]:
        return self._by_namespace[namespace]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_namespace)

    def __len__(self) -> int:
        return len(self._by_namespace)

    def of(self, pod: Pod) -> tuple[PodDisruptionBudget, ...]:
        """Those that select the pod, by name."""
        if pod.namespace not in self._by_namespace:
            return ()
        index = self._indexed.get(pod.namespace)
        if index is None:
            index = self._indexed[pod.namespace] = BudgetIndex(self._by_namespace[pod.namespace])
        if not index.keys.isdisjoint(names.PER_POD_LABELS):
            return index.of(pod)
        key = pod.namespace, pod.shape.key
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = self._known[key] = index.of(pod)
        return found

    def waves(self, pods: Iterable[Pod]) -> float:
        """How often, at the least, as many as budgets allow at the moment must go until all of these have; infinity where one allows nothing."""
        allowed: dict[str, int] = {}
        wanted = Counter[str]()
        for pod in pods:
            for one in self.of(pod):
                key = one.metadata.key
                wanted[key] += 1
                allowed[key] = one.status.disruptions_allowed
        return max(
            (math.ceil(count / most) if (most := allowed[key]) > 0 else math.inf for key, count in wanted.items()),
            default=1,
        )

    def holding(self, pod: Pod, *, soon: bool = False) -> tuple[PodDisruptionBudget, ...]:
        """Those for which the Eviction API refuses the pod now: all that select it where they are several, since it supports one; none where it may go.

        `soon` as of `asks_no_budget`.
        """
        mine = () if asks_no_budget(pod, soon=soon) else self.of(pod)
        return mine if len(mine) > 1 else tuple([one for one in mine if refuses(one, pod)])


def _keys(selector: LabelSelector) -> Iterator[str]:
    yield from selector.match_labels
    yield from (one.key for one in selector.match_expressions)


def _demanded(selector: LabelSelector) -> Iterator[tuple[_Pair, ...]]:
    """Labels of which a pod that is selected has one, for each label key of which some value is demanded."""
    yield from ((pair,) for pair in selector.match_labels.items())
    for one in selector.match_expressions:
        if one.operator == "In" and 0 < len(one.values) <= _MOST_VALUES:
            yield tuple((one.key, value) for value in dict.fromkeys(one.values))
