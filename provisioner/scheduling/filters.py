"""Which nodes a pod lets itself run on: its node selector, required node affinity and tolerations, as one value."""

from collections.abc import Mapping
from dataclasses import dataclass

from provisioner.apis.core import NodeSelectorRequirement, NodeSelectorTerm
from provisioner.apis.names import LABEL_ALIASES, normalized_label
from provisioner.apis.pods import PodShape
from provisioner.values.requirement import NONE, Operator, Requirement, RequirementError, Requirements
from provisioner.values.taints import Toleration

NAME_FIELD = "metadata.name"
"""The only field that Kubernetes allows in matchFields."""
_ALIASES_OF: dict[str, tuple[str, ...]] = {}
for _alias, _stable in LABEL_ALIASES.items():
    _ALIASES_OF[_stable] = (*_ALIASES_OF.get(_stable, ()), _alias)


class FilterError(ValueError):
    """A selector or affinity that cannot be read; says where in the pod."""


@dataclass(frozen=True, slots=True)
class Term:
    """One way to match: all of it must hold.

    Attributes:
        requirements: of labels, by their stable names; the node selector is part of every term.
        names: of the node's name; None where any will do.
    """

    requirements: Requirements = NONE
    names: Requirement | None = None

    @property
    def new_machines(self) -> bool:
        """Whether a machine whose name is not known yet may match."""
        return self.names is None or self.names.complement

    def matches(self, labels: Mapping[str, str], node_name: str) -> bool:
        """Whether a node with exactly these labels matches, as kube-scheduler judges it."""
        if self.names is not None and not self.names.has(node_name):
            return False
        for key, requirement in self.requirements.items():
            value = label_value(labels, key)
            if not (requirement.admits_absence if value is None else requirement.has(value)):
                return False
        return True


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """What a class of pods asks of a node; equal filters are one.

    Attributes:
        terms: any one must match; none at all means that nothing matches.
        tolerations: of taints.
    """

    terms: tuple[Term, ...] = (Term(),)
    tolerations: tuple[Toleration, ...] = ()

    @property
    def unconditional(self) -> bool:
        """Whether labels and names do not matter."""
        return any(not term.requirements and term.names is None for term in self.terms)

    @property
    def keys(self) -> tuple[str, ...]:
        """Every label that decides, sorted."""
        return tuple(sorted({key for term in self.terms for key in term.requirements}))

    @property
    def named(self) -> bool:
        """Whether the node's name decides."""
        return any(term.names is not None for term in self.terms)


def label_value(labels: Mapping[str, str], key: str) -> str | None:
    """The value of a label by its stable name; a legacy name of it counts where the stable one is missing."""
    value = labels.get(key)
    if value is None:
        for alias in _ALIASES_OF.get(key, ()):
            value = labels.get(alias)
            if value is not None:
                break
    return value


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
        return NodeFilter((Term(selector),), shape.tolerations)
    terms = []
    for number, term in enumerate(required):
        if term.match_expressions or term.match_fields:
            read = _term(term, selector, f"{_TERMS}[{number}]")
            if read not in terms:
                terms.append(read)
    return NodeFilter(tuple(terms), shape.tolerations)


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


def _term(term: NodeSelectorTerm, selector: Requirements, field: str) -> Term:
    expressions = [
        _requirement(one, normalized_label(one.key), f"{field}.matchExpressions[{number}]")
        for number, one in enumerate(term.match_expressions)
    ]
    names: Requirement | None = None
    for number, one in enumerate(term.match_fields):
        where = f"{field}.matchFields[{number}]"
        if one.key != NAME_FIELD:
            raise FilterError(f"{where}.key: {one.key!r} is not supported, only {NAME_FIELD}")
        name = _requirement(one, NAME_FIELD, where)
        names = name if names is None else names.intersection(name)
    return Term(selector.merged(Requirements.of(expressions)), names)


def _requirement(one: NodeSelectorRequirement, key: str, field: str) -> Requirement:
    try:
        return Requirement.of(key, one.operator, one.values)
    except RequirementError as error:
        raise FilterError(f"{field}.{error.field}: {error.problem}") from None


ANYWHERE = NodeFilter()
"""The filter of a pod that asks for nothing."""
