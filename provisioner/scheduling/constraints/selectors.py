"""Which pods a term of spread, affinity or anti-affinity means, as values that are compared and looked up quickly."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from provisioner.apis.meta import LabelSelector
from provisioner.apis.names import PER_POD_LABELS
from provisioner.scheduling.constraints.filters import FilterError

_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_Expression = tuple[str, str, frozenset[str]]
Expressions = tuple[_Expression, ...]
"""A label selector: all must hold; none at all means everything."""


def read_selector(selector: LabelSelector | None, where: str) -> Expressions | None:
    """The selector in one canonical form; None for an absent one, which means nothing.

    Raises:
        FilterError: an operator cannot be read, or its values do not go with it.
    """
    if selector is None:
        return None
    found: set[_Expression] = {(key, "In", frozenset((value,))) for key, value in selector.match_labels.items()}
    for number, one in enumerate(selector.match_expressions):
        if one.operator not in _OPERATORS:
            raise FilterError(f"{where}.matchExpressions[{number}].operator: {one.operator!r} is not a valid operator")
        if (one.operator in ("In", "NotIn")) != bool(one.values):
            raise FilterError(f"{where}.matchExpressions[{number}].values: must be empty with operator {one.operator}")
        found.add((one.key, one.operator, frozenset(one.values)))
    return tuple(sorted(found, key=lambda entry: (entry[0], entry[1], sorted(entry[2]))))


def holds(expressions: Expressions | None, labels: Mapping[str, str]) -> bool:
    """Whether `labels` satisfy a selector."""
    if expressions is None:
        return False
    for key, operator, values in expressions:
        value = labels.get(key)
        if operator == "In":
            if value is None or value not in values:
                return False
        elif operator == "NotIn":
            if value is not None and value in values:
                return False
        elif (value is None) != (operator == "DoesNotExist"):
            return False
    return True


@dataclass(frozen=True, slots=True, weakref_slot=True)
class LabelSet:
    """What selectors see of a pod; equal ones are one object as a rule, so that comparing them costs nothing.

    Attributes:
        labels: all that are known.
        unjudged: they are not known: any selector may match.
    """

    namespace: str
    labels: Mapping[str, str]
    unjudged: bool = False
    _hash: int = field(init=False, compare=False, repr=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.namespace, self.unjudged, *sorted(self.labels.items()))))

    def __hash__(self) -> int:
        return self._hash


_label_sets: Final[WeakValueDictionary[tuple[object, ...], LabelSet]] = WeakValueDictionary()


def label_set(namespace: str, labels: Mapping[str, str], *, unjudged: bool = False) -> LabelSet:
    """The one object for these labels."""
    key = (namespace, unjudged, *sorted(labels.items()))
    return _label_sets.get(key) or _label_sets.setdefault(key, LabelSet(namespace, dict(labels), unjudged))


class SelectedPeers(msgspec.Struct, frozen=True, cache_hash=True):
    """The pods that one term means.

    Attributes:
        namespaces: by name.
        namespace_selector: besides, by the namespace's labels; None for none.
        selector: of the pods; None selects nothing.
    """

    namespaces: frozenset[str]
    selector: Expressions | None
    namespace_selector: Expressions | None = None

    def include(self, pod: LabelSet, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
        """Whether a pod with these labels is meant, or may be, given the labels of all namespaces."""
        if pod.namespace not in self.namespaces and not (
            self.namespace_selector is not None and holds(self.namespace_selector, namespaces.get(pod.namespace, {}))
        ):
            return False
        return holds(self.selector, pod.labels) or (pod.unjudged and self.selector is not None)

    @property
    def per_pod_labels(self) -> frozenset[str]:
        """The labels it looks at that differ between brothers of one class."""
        return frozenset(key for key, _, _ in self.selector or ()) & PER_POD_LABELS
