"""How much a pod's spec may say of where it runs: all of it is held against every node and NodePool, for everybody who waits. Pure."""

from collections.abc import Iterable, Mapping, Sized
from typing import Final, NamedTuple

from provisioner.apis.core import (
    Affinity,
    NodeSelectorTerm,
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
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


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
    nodes = affinity.node_affinity if affinity is not None else None
    together = affinity.pod_affinity if affinity is not None else None
    apart = affinity.pod_anti_affinity if affinity is not None else None
    terms = nodes.required.node_selector_terms if nodes is not None and nodes.required is not None else ()
    near = together.required if together is not None else ()
    far = apart.required if apart is not None else ()
    at_terms = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    lists: tuple[tuple[str, Sized], ...] = (
        (at_terms, terms),
        ("spec.tolerations", tolerations),
        ("spec.topologySpreadConstraints", spread),
        (f"spec.affinity.podAffinity.{_REQUIRED}", near),
        (f"spec.affinity.podAntiAffinity.{_REQUIRED}", far),
        ("spec.containers[*].ports[*].hostPort", host_ports),
    )
    for where, listed in lists:
        if len(listed) > MOST_ELEMENTS:
            return Said(f"{where}: has {len(listed)} elements; pods with at most {MOST_ELEMENTS} are planned")
    # it is part of each term
    said = {"spec.nodeSelector": _Size(len(node_selector) * max(1, len(terms))), at_terms: _all(map(_of_term, terms))}
    said["spec.topologySpreadConstraints"] = _all(
        _of_selector(one.label_selector, len(one.match_label_keys)) for one in spread
    )
    said[f"spec.affinity.podAffinity.{_REQUIRED}"] = _all(map(_of_peers, near))
    said[f"spec.affinity.podAntiAffinity.{_REQUIRED}"] = _all(map(_of_peers, far))
    if nodes is not None:
        said[f"spec.affinity.nodeAffinity.{_PREFERRED}"] = _all(_of_term(one.preference) for one in nodes.preferred)
    for name, group in (("podAffinity", together), ("podAntiAffinity", apart)):
        if group is not None:
            said[f"spec.affinity.{name}.{_PREFERRED}"] = _all(
                _of_peers(one.pod_affinity_term) for one in group.preferred
            )
    expressions, values = _all(said.values())
    if expressions > MOST_EXPRESSIONS:
        where = max(said, key=lambda one: said[one].expressions)
        return Said(
            f"{where}: has {said[where].expressions} of the {expressions} expressions in the pod's selectors; pods "
            f"with at most {MOST_EXPRESSIONS} are planned"
        )
    if values > MOST_VALUES:
        where = max(said, key=lambda one: said[one].values)
        return Said(
            f"{where}: has {said[where].values} of the {values} values in the pod's selectors; pods with at most "
            f"{MOST_VALUES} are planned"
        )
    return ""


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
