"""Which nodes a pod lets itself run on: its node selector, required node affinity and tolerations, as one value."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from provisioner.apis.core import NodeSelectorRequirement, NodeSelectorTerm
from provisioner.apis.names import HOSTNAME_LABEL, LABEL_ALIASES, normalized_label
from provisioner.apis.pods import PodShape
from provisioner.apis.selections import excess
from provisioner.values.requirement import NONE, Operator, Requirement, RequirementError, Requirements
from provisioner.values.taints import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, Toleration

_HARD = (NO_SCHEDULE, NO_EXECUTE)
_HARD_AND_SOFT = (NO_SCHEDULE, NO_EXECUTE, PREFER_NO_SCHEDULE)
NAME_FIELD = "metadata.name"
"""The only field that Kubernetes allows in matchFields."""
_EXCESS: Final = "excess"
"""Where the answer is kept on a shape."""
UNKNOWN_HOSTNAME = "not known yet"
"""The hostname of a node to come; no label has spaces."""
NEW_NODE_OF = "new node of"
"""A label that only planning knows: the groups that have a node to come for themselves, by any name."""
_ALIASES_OF: dict[str, tuple[str, ...]] = {}
for _alias, _stable in LABEL_ALIASES.items():
    _ALIASES_OF[_stable] = (*_ALIASES_OF.get(_stable, ()), _alias)


class FilterError(ValueError):
    """A selector or affinity that cannot be read; says where in the pod."""


class FilterTerm(msgspec.Struct, frozen=True, cache_hash=True):
    """One way to match: all of it must hold. Terms are keys of the innermost tables.

    Attributes:
        requirements: of labels, by their stable names; the node selector is part of every term.
        names: of the node's name; None where any will do.
        features: that the node must declare, sorted; a node to come does.
    """

    requirements: Requirements = NONE
    names: Requirement | None = None
    features: tuple[str, ...] = ()

    @property
    def trivial(self) -> bool:
        """Whether any node matches."""
        return not self.requirements and self.names is None and not self.features

    def joined(self, other: "FilterTerm") -> "FilterTerm":
        """Both at once."""
        if other.trivial:
            return self
        if self.trivial:
            return other
        names = self.names
        if other.names is not None:
            names = other.names if names is None else names.intersection(other.names)
        features = tuple(sorted({*self.features, *other.features}))
        return FilterTerm(self.requirements.merged(other.requirements), names, features)

    @property
    def new_nodes(self) -> bool:
        """Whether a node whose name is not known yet may match."""
        return self.names is None or self.names.complement

    @property
    def opposites(self) -> tuple[Requirement, ...]:
        """For each label, what its requirement refuses, as far as that is one requirement."""
        found = []
        for key, one in self.requirements.items():
            if one.gte is None and one.lte is None:
                if one.values:
                    found.append(Requirement.of(key, Operator.IN if one.complement else Operator.NOT_IN, one.values))
                elif one.complement or not one.present:
                    found.append(
                        Requirement.of(key, Operator.DOES_NOT_EXIST if one.complement else Operator.EXISTS, ())
                    )
        return tuple(found)

    def matches(self, labels: Mapping[str, str], node_name: str) -> bool:
        """Whether a node with exactly these labels matches, as kube-scheduler judges it; one that has no Node yet will have a hostname."""
        if self.names is not None and not self.names.has(node_name):
            return False
        return all(
            requirement.admits(value_on(labels, key, node_name)) for key, requirement in self.requirements.items()
        )


class NodeFilter(msgspec.Struct, frozen=True, cache_hash=True):
    """What a class of pods asks of a node; equal filters are one.

    Attributes:
        terms: any one must match; none at all means that nothing matches.
        soft_taints: whether PreferNoSchedule keeps the pods off too (until that wish is given up).
        easy: whether taints alone decide; follows from the terms.
    """

    terms: tuple[FilterTerm, ...] = (FilterTerm(),)
    tolerations: tuple[Toleration, ...] = ()
    soft_taints: bool = False
    easy: bool = False

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "easy", len(self.terms) == 1 and self.terms[0].trivial)

    @property
    def effects(self) -> tuple[str, ...]:
        """The effects of taints that keep the pods off."""
        return _HARD_AND_SOFT if self.soft_taints else _HARD

    def narrowed(self, terms: Iterable[FilterTerm]) -> "NodeFilter":
        """As this one, and any of `terms` must match too."""
        joined = tuple(dict.fromkeys(own.joined(other) for own in self.terms for other in terms))
        return NodeFilter(joined, self.tolerations, self.soft_taints)

    @property
    def unconditional(self) -> bool:
        """Whether labels and names do not matter."""
        return any(not term.requirements and term.names is None for term in self.terms)


def label_value(labels: Mapping[str, str], key: str) -> str | None:
    """The value of a label by its stable name; a legacy name of it counts where the stable one is missing."""
    value = labels.get(key)
    if value is None:
        for alias in _ALIASES_OF.get(key, ()):
            value = labels.get(alias)
            if value is not None:
                break
    return value


def value_on(labels: Mapping[str, str], key: str, node_name: str) -> str | None:
    """As `label_value`; a node that has no Node yet will have a hostname."""
    value = label_value(labels, key)
    return UNKNOWN_HOSTNAME if value is None and key == HOSTNAME_LABEL and not node_name else value


def node_filter(shape: PodShape) -> NodeFilter:
    """Read the filter of a class of pods; preferences are no part of it.

    Raises:
        FilterError: an operator or value cannot be read.

    Source: kube-scheduler 1.36 nodeaffinity: terms are alternatives, an empty term matches nothing, so does an affinity of
    nothing but empty terms.
    """
    selector = _selector(shape)
    required = _required_terms(shape)
    if required is None:
        if not selector and not shape.tolerations:
            return ANYWHERE
        return NodeFilter((FilterTerm(selector),), shape.tolerations)
    terms = dict.fromkeys(
        read_term(term, f"{_TERMS}[{number}]", selector)
        for number, term in enumerate(required)
        if term.match_expressions or term.match_fields
    )
    return NodeFilter(tuple(terms), shape.tolerations)


def check_counts(shape: PodShape) -> None:
    """Refuse constraints so long that planning one pod of a tenant would keep everybody waiting: each node and NodePool is held against each element.

    Raises:
        FilterError: there is more than `selections` allows; says where.
    """
    found = shape.derived.get(_EXCESS)
    if found is None:
        found = shape.derived[_EXCESS] = excess(
            shape.node_selector, shape.affinity, shape.tolerations, shape.spread, shape.host_ports
        )
    if found:
        raise FilterError(found)


_TERMS = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"


def _required_terms(shape: PodShape) -> tuple[NodeSelectorTerm, ...] | None:
    if shape.affinity is None or shape.affinity.node_affinity is None:
        return None
    required = shape.affinity.node_affinity.required
    return None if required is None else tuple(required.node_selector_terms)


def _selector(shape: PodShape) -> Requirements:
    if not shape.node_selector:
        return NONE
    return Requirements.of(
        Requirement.of(normalized_label(key), Operator.IN, (value,)) for key, value in shape.node_selector.items()
    )


def read_term(term: NodeSelectorTerm, where: str, selector: Requirements = NONE) -> FilterTerm:
    """One term of a node affinity, with `selector` in it.

    Raises:
        FilterError: an operator, value or field cannot be read; `where` in the pod it stands is named.
    """
    expressions = [
        _requirement(one, normalized_label(one.key), f"{where}.matchExpressions[{number}]")
        for number, one in enumerate(term.match_expressions)
    ]
    names: Requirement | None = None
    for number, one in enumerate(term.match_fields):
        at = f"{where}.matchFields[{number}]"
        if one.key != NAME_FIELD:
            raise FilterError(f"{at}.key: {one.key!r} is not supported, only {NAME_FIELD}")
        name = _requirement(one, NAME_FIELD, at)
        names = name if names is None else names.intersection(name)
    return FilterTerm(selector.merged(Requirements.of(expressions)), names)


def _requirement(one: NodeSelectorRequirement, key: str, where: str) -> Requirement:
    try:
        return Requirement.of(key, one.operator, one.values)
    except RequirementError as error:
        raise FilterError(f"{where}.{error.field}: {error.problem}") from None


TRIVIAL = FilterTerm()
"""The term that any node matches."""
ANYWHERE = NodeFilter((TRIVIAL,))
"""The filter of a pod that asks for nothing."""
