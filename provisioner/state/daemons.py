"""Whether a DaemonSet puts a pod on a machine."""

from collections.abc import Iterable, Mapping

from provisioner.apis.core import NodeSelectorTerm
from provisioner.apis.pods import PodShape
from provisioner.values.requirement import Requirement, RequirementError, Requirements
from provisioner.values.taints import Taint, first_untolerated


def runs_on(shape: PodShape, labels: Mapping[str, str], taints: Iterable[Taint]) -> bool:
    """Whether the DaemonSet controller places a pod of this shape on a machine with these labels and taints.

    A shape that cannot be read runs nowhere. Source: core spec 3.6 (strict requirements, nothing undefined).
    """
    if shape.error or first_untolerated(shape.tolerations, taints) is not None:
        return False
    if any(labels.get(key) != value for key, value in shape.node_selector.items()):
        return False
    affinity = shape.affinity.node_affinity if shape.affinity is not None else None
    if affinity is None or affinity.required is None:
        return True
    node = Requirements.from_labels(labels)
    return any(_matches(term, node) for term in affinity.required.node_selector_terms)


def _matches(term: NodeSelectorTerm, node: Requirements) -> bool:
    if not term.match_expressions:
        return False
    try:
        wanted = Requirements.of(Requirement.of(one.key, one.operator, one.values) for one in term.match_expressions)
    except RequirementError:
        return False
    return node.incompatibility(wanted) is None
