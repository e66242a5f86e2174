"""Which PodDisruptionBudgets of a namespace select a pod, without asking each of them. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from provisioner.apis.core import PodDisruptionBudget
from provisioner.apis.meta import LabelSelector, selects
from provisioner.apis.pods import Pod

_Pair: TypeAlias = tuple[str, str]
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


def _keys(selector: LabelSelector) -> Iterator[str]:
    yield from selector.match_labels
    yield from (one.key for one in selector.match_expressions)


def _demanded(selector: LabelSelector) -> Iterator[tuple[_Pair, ...]]:
    """Labels of which a pod that is selected has one, for each label key of which some value is demanded."""
    yield from ((pair,) for pair in selector.match_labels.items())
    for one in selector.match_expressions:
        if one.operator == "In" and 0 < len(one.values) <= _MOST_VALUES:
            yield tuple((one.key, value) for value in dict.fromkeys(one.values))
