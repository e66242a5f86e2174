"""What the pods of a DaemonSet will request, and whether the DaemonSet runs one on a given node."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from provisioner.apis import names
from provisioner.apis.core import (
    Container,
    DaemonSet,
    NodeSelectorTerm,
    PodSpec,
    ResourceRequirements,
)
from provisioner.apis.pods import PodShape
from provisioner.apis.selections import excess
from provisioner.apis.shapes import host_ports_of, unreadable_shape
from provisioner.apis.templates import NO_ADMISSION, Admission, Admitted, admitted
from provisioner.values.requirement import Requirement, RequirementError, Requirements
from provisioner.values.resources import Resources
from provisioner.values.taints import Taint, Toleration, first_untolerated

_AUTOMATIC: Final = (
    ("node.kubernetes.io/not-ready", names.NO_EXECUTE),
    ("node.kubernetes.io/unreachable", names.NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", names.NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", names.NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", names.NO_SCHEDULE),
    (names.CORDONED_TAINT_KEY, names.NO_SCHEDULE),
)
"""Taints that the DaemonSet controller lets every pod of its own tolerate. Source: kubernetes `pkg/controller/daemon/util`."""
DAEMON_SET: Final = "daemon_set"
"""Where a shape keeps the name of the DaemonSet whose pods it is of, for people; of DaemonSets with equal pods the first."""
_TERMS: Final = "daemon_terms"
"""Where the terms are kept on a shape."""
_ON_HOST_NETWORK: Final = ("node.kubernetes.io/network-unavailable", names.NO_SCHEDULE)


def daemon_shape(daemon: DaemonSet, admission: Admission = NO_ADMISSION, seen: Resources | None = None) -> PodShape:
    """The shape of the pods that a DaemonSet will make; one with an error where it selects nodes by more than `selections` allows.

    Args:
        daemon: the DaemonSet.
        admission: what its namespace makes of its pods.
        seen: effective requests of the newest pod that it has made; they win, since webhooks and autoscalers change
            pods. Source: core spec 3.7.
    """
    spec, namespace = daemon.spec.template.spec, daemon.metadata.namespace
    error = excess(
        spec.node_selector, spec.affinity, spec.tolerations, spec.topology_spread_constraints, host_ports_of(spec)
    )
    if error:
        return unreadable_shape(namespace, {}, error)
    made = admitted_daemon(daemon, admission)
    if seen is not None:
        made = Admitted(msgspec.structs.replace(made.template, spec=_requesting(made.template.spec, seen)))
    shape = made.shape(namespace, daemon=True)
    shape.derived.setdefault(DAEMON_SET, daemon.metadata.key)
    return shape


def admitted_daemon(daemon: DaemonSet, admission: Admission) -> Admitted:
    """The pods that a DaemonSet will make. Cost: as of `admitted`."""
    template = daemon.spec.template
    tolerations = template.spec.tolerations + _automatic(template.spec)
    placed = msgspec.structs.replace(template.spec, tolerations=tolerations)
    return admitted(msgspec.structs.replace(template, spec=placed), daemon.metadata.namespace, admission)


def _requesting(spec: PodSpec, total: Resources) -> PodSpec:
    """The same pod with these effective requests, however its containers share them."""
    wire = {name: amount for name, amount in total.to_wire().items() if name != names.PODS}
    ports = tuple(port for container in spec.containers for port in container.ports)
    sidecars = tuple(
        msgspec.structs.replace(container, resources=ResourceRequirements())
        for container in spec.init_containers
        if container.restart_policy == "Always"
    )
    whole = Container(name="all", ports=ports, resources=ResourceRequirements(requests=dict(wire)))
    return msgspec.structs.replace(spec, containers=(whole,), init_containers=sidecars, overhead={}, resources=None)


def _automatic(spec: PodSpec) -> tuple[Toleration, ...]:
    taints = (*_AUTOMATIC, _ON_HOST_NETWORK) if spec.host_network else _AUTOMATIC
    return tuple(Toleration(key=key, operator="Exists", effect=effect) for key, effect in taints)


def runs_on(shape: PodShape, labels: Mapping[str, str], taints: Iterable[Taint]) -> bool:
    """Whether the DaemonSet controller places a pod of this shape on a node with these labels and taints.

    A shape that cannot be read runs nowhere. Source: core spec 3.6 (strict requirements, nothing undefined).
    """
    if shape.error or first_untolerated(shape.tolerations, taints) is not None:
        return False
    if any(labels.get(key) != value for key, value in shape.node_selector.items()):
        return False
    terms = _terms_of(shape)
    return terms is None or any(_matches(term, labels) for term in terms)


def _terms_of(shape: PodShape) -> tuple[Requirements, ...] | None:
    """The terms of its required node affinity that can match, read once a shape; None without such an affinity."""
    kept = shape.derived
    if _TERMS not in kept:
        affinity = shape.affinity.node_affinity if shape.affinity is not None else None
        required = affinity.required if affinity is not None else None
        read = None if required is None else [_read(term) for term in required.node_selector_terms]
        kept[_TERMS] = None if read is None else tuple(dict.fromkeys(one for one in read if one is not None))
    return kept[_TERMS]  # type: ignore[return-value]


def _read(term: NodeSelectorTerm) -> Requirements | None:
    """None for a term that is empty or cannot be read: it matches nothing."""
    if not term.match_expressions:
        return None
    try:
        return Requirements.of(Requirement.of(one.key, one.operator, one.values) for one in term.match_expressions)
    except RequirementError:
        return None


def _matches(term: Requirements, labels: Mapping[str, str]) -> bool:
    return all(one.admits(labels.get(key)) for key, one in term.items())
