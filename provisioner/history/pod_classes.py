"""The class of a pod as a history keeps it, and back. Pure."""

from typing import Any, Final

import msgspec

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.apis.shapes import PodShape, altered_shape, unreadable_shape
from provisioner.history.entries import HistoryPodClass
from provisioner.values.resources import Resources

_OWN: Final = frozenset({"key", "namespace", "priority", "requests", "limits"})
"""Fields of a shape that are told by themselves, and limits, which nobody plans by."""
_DERIVED: Final = "history"


def class_key(pod: Pod) -> tuple[str, str, str, int | None]:
    """Equal for pods of one class. Cost: some lookups."""
    kind = "" if pod.owner is None else pod.owner.kind
    return pod.shape.key, kind, pod.annotations.get(names.DO_NOT_DISRUPT, ""), pod.grace_seconds


def class_of(pod: Pod) -> HistoryPodClass:
    """The class of a pod. Cost: about 50 us the first time for a shape."""
    shape = pod.shape
    constraints = shape.derived.get(_DERIVED)
    if not isinstance(constraints, dict):
        constraints = shape.derived[_DERIVED] = _constraints(shape)
    key, kind, do_not_disrupt, grace = class_key(pod)
    requests = shape.requests.to_dict()
    return HistoryPodClass(key, shape.namespace, kind, shape.priority, requests, constraints, do_not_disrupt, grace)


def is_daemon_class(pod_class: HistoryPodClass) -> bool:
    """Of a DaemonSet: each node has its own."""
    return pod_class.owner_kind == "DaemonSet"


def is_mirror_class(pod_class: HistoryPodClass) -> bool:
    """Static pods of kubelets, owned by their Nodes."""
    return pod_class.owner_kind == "Node"


def _constraints(shape: PodShape) -> dict[str, Any]:
    fields = ((name, getattr(shape, name)) for name in PodShape.__struct_fields__ if name not in _OWN)
    return plain({name: value for name, value in fields if value})


def plain(value: object) -> dict[str, Any]:
    """An object as its JSON is read: dicts, lists, texts and numbers."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return found


def shape_of_class(pod_class: HistoryPodClass) -> PodShape:
    """The shape that a class was made of, but for its limits. Of an anonymous class the same with other names.

    Raises:
        msgspec.ValidationError: its constraints are none that this version knows.
    """
    known = {"key": "", "namespace": pod_class.namespace, **pod_class.constraints}
    found = msgspec.convert(known, PodShape)
    fields = {name: getattr(found, name) for name in PodShape.__struct_fields__ if name not in _OWN}
    bare = unreadable_shape(pod_class.namespace, {}, "")
    return altered_shape(bare, **fields, requests=Resources.of(pod_class.requests), priority=pod_class.priority)
