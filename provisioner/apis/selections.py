"""How much a pod's spec may say of where it runs: all of it is held against every node and NodePool, for everybody who waits. Pure."""

from collections.abc import Iterable, Mapping, Sized
from typing import Final, NamedTuple

from provisioner.apis.core import (
    Affinity,
    NodeAffinity,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from provisioner.apis.meta import LabelSelector
from provisioner.values.message import Said

MOST_ELEMENTS: Final = 256
"""What one list of a pod's constraints may have: node selector terms, tolerations, terms of affinity, spreads, host ports of all containers."""
MOST_EXPRESSIONS: Final = 512
"""What all selectors of a pod may have together: entries (of the node selector, once for each node selector term), expressions, namespaces and keys.
Each is held against each node."""
MOST_VALUES: Final = 2048
"""What these expressions may list together; all instance types of EC2 fit. A value costs less than an expression: it is looked up."""
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_AT_TERMS: Final = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def too_long(
    affinity: Affinity | None, tolerations: Sized, spread: Sized, host_ports: Sized
) -> tuple[str, str, int] | None:
    """The first list of a pod of more than `MOST_ELEMENTS`: its path, its elements in words, and how many it has; None where there is none."""
    nodes, together, apart = _parts(affinity)
    lists: tuple[tuple[str, str, Sized], ...] = (
        (_AT_TERMS, "required node selector terms", _terms(nodes)),
        ("spec.tolerations", "tolerations", tolerations),
        ("spec.topologySpreadConstraints", "topology spread constraints", spread),
        (f"spec.affinity.podAffinity.{REQUIRED}", "required terms of podAffinity", together.required),
        (f"spec.affinity.podAntiAffinity.{REQUIRED}", "required terms of podAntiAffinity", apart.required),
        ("spec.containers[*].ports[*].hostPort", "host ports", host_ports),
    )
    return next(((where, what, len(listed)) for where, what, listed in lists if len(listed) > MOST_ELEMENTS), None)


def excess(
    node_selector: Mapping[str, str],
    affinity: Affinity | None,
    tolerations: Sized,
    spread: tuple[TopologySpreadConstraint, ...],
    host_ports: Sized = (),
) -> str:
    """What there is too much of, and where; "" where everything is within bounds.

    Cost: O(what the spec says).
    """
    if (found := too_long(affinity, tolerations, spread, host_ports)) is not None:
        where, _, count = found
        return Said(f"{where}: has {count} elements; only pods with at most {MOST_ELEMENTS} are planned")
    nodes, together, apart = _parts(affinity)
    terms = _terms(nodes)
    # it is part of each term
    said = {"spec.nodeSelector": _Size(len(node_selector) * max(1, len(terms))), _AT_TERMS: _all(map(_of_term, terms))}
    said["spec.topologySpreadConstraints"] = _all(
        _of_selector(one.label_selector, len(one.match_label_keys)) for one in spread
    )
    said[f"spec.affinity.nodeAffinity.{PREFERRED}"] = _all(_of_term(one.preference) for one in nodes.preferred)
    for name, group in (("podAffinity", together), ("podAntiAffinity", apart)):
        said[f"spec.affinity.{name}.{REQUIRED}"] = _all(map(_of_peers, group.required))
        said[f"spec.affinity.{name}.{PREFERRED}"] = _all(_of_peers(one.pod_affinity_term) for one in group.preferred)
    expressions, values = _all(said.values())
    if expressions > MOST_EXPRESSIONS:
        where = max(said, key=lambda one: said[one].expressions)
        return Said(
            f"{where}: has {said[where].expressions} of the {expressions} expressions in the pod's selectors; only pods "
            f"with at most {MOST_EXPRESSIONS} are planned"
        )
    if values > MOST_VALUES:
        where = max(said, key=lambda one: said[one].values)
        return Said(
            f"{where}: has {said[where].values} of the {values} values in the pod's selectors; only pods with at most "
            f"{MOST_VALUES} are planned"
        )
    return ""


def _parts(affinity: Affinity | None) -> tuple[NodeAffinity, PodAffinity, PodAffinity]:
    """An affinity's three parts; one that is absent is empty."""
    given = affinity or Affinity()
    return (
        given.node_affinity or NodeAffinity(),
        given.pod_affinity or PodAffinity(),
        given.pod_anti_affinity or PodAffinity(),
    )


def _terms(nodes: NodeAffinity) -> tuple[NodeSelectorTerm, ...]:
    return nodes.required.node_selector_terms if nodes.required is not None else ()


class _Size(NamedTuple):
    expressions: int
    values: int = 0


def _all(sizes: Iterable[_Size]) -> _Size:
    expressions = values = 0
    for one in sizes:
        expressions += one.expressions
        values += one.values
    return _Size(expressions, values)


def _of_term(term: NodeSelectorTerm) -> _Size:
    both = (*term.match_expressions, *term.match_fields)
    return _Size(len(both), sum(len(one.values) for one in both))


def _of_selector(selector: LabelSelector | None, more: int = 0) -> _Size:
    if selector is None:
        return _Size(more)
    listed = selector.match_expressions
    return _Size(more + len(selector.match_labels) + len(listed), sum(len(one.values) for one in listed))


def _of_peers(term: PodAffinityTerm) -> _Size:
    more = len(term.namespaces) + len(term.match_label_keys) + len(term.mismatch_label_keys)
    return _all((_of_selector(term.label_selector, more), _of_selector(term.namespace_selector)))
