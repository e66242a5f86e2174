"""What the pods of a DaemonSet will request, and whether the DaemonSet runs one on a given node."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from provisioner.apis import names
from provisioner.apis.core import (
    Amounts,
    Container,
    DaemonSet,
    LimitRange,
    NodeSelectorTerm,
    PodSpec,
    ResourceRequirements,
)
from provisioner.apis.pods import PodShape, template_shape
from provisioner.apis.selections import excess
from provisioner.apis.shapes import unjudged
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
_TERMS: Final = "daemon_terms"
"""Where the terms are kept on a shape."""
_ON_HOST_NETWORK: Final = ("node.kubernetes.io/network-unavailable", names.NO_SCHEDULE)


def daemon_shape(daemon: DaemonSet, ranges: Iterable[LimitRange], seen: Resources | None = None) -> PodShape:
    """The shape of the pods that a DaemonSet will make; one with an error where it selects nodes by more than `selections` allows.

    Args:
        daemon: the DaemonSet.
        ranges: of its namespace; they give containers requests that the template lacks. Any order.
        seen: effective requests of the newest pod that it has made; they win, since webhooks and autoscalers change
            pods. Source: core spec 3.7.
    """
    spec = daemon.spec.template.spec
    error = excess(spec.node_selector, spec.affinity, spec.tolerations, spec.topology_spread_constraints)
    if error:
        return unjudged(daemon.metadata.namespace, {}, error)
    containers = [_limited(container) for container in spec.containers]
    inits = [_limited(container) for container in spec.init_containers]
    for one in sorted(ranges, key=lambda found: found.metadata.name):
        for item in one.spec.limits:
            if item.type == "Container":
                containers = [_defaulted(container, item.default_request, item.default) for container in containers]
                inits = [_defaulted(container, item.default_request, item.default) for container in inits]
    spec = msgspec.structs.replace(
        spec,
        containers=tuple(containers),
        init_containers=tuple(inits),
        tolerations=spec.tolerations + _automatic(spec),
    )
    if seen is not None:
        spec = _requesting(spec, seen)
    template = msgspec.structs.replace(daemon.spec.template, spec=spec)
    return template_shape(template, daemon.metadata.namespace, daemon=True)


def _limited(container: Container) -> Container:
    """Limits are the requests of a container that has none: done when a pod is read, before LimitRanges see it."""
    return _defaulted(container, container.resources.limits, {})


def _defaulted(container: Container, requests: Amounts, limits: Amounts) -> Container:
    """With the amounts that it does not give itself; the admission plugin adds requests and limits independently."""
    given = container.resources
    if requests.keys() <= given.requests.keys() and limits.keys() <= given.limits.keys():
        return container
    whole = ResourceRequirements(requests={**requests, **given.requests}, limits={**limits, **given.limits})
    return msgspec.structs.replace(container, resources=whole)


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
