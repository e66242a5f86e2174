"""Which group a pod is of: pods that are to be placed all, or as many as a minimum says, or not at all. Pure.

Four sources, and a pod is of the first that it names: `spec.schedulingGroup` names a PodGroup, which says the minimum and which kube-scheduler knows
too; annotations of ours say both themselves, for clusters without PodGroups, where kube-scheduler binds one pod after the other, and nodes alone are
planned for all or none; an annotation names a PodGroup of Volcano, which binds the pods itself; a label names one of the coscheduling plugin.

Source: Volcano 1.15 (the annotation, and that kube-scheduler's pods are none of its); the coscheduling plugin of scheduler-plugins (the label).
"""

import enum
import re
from typing import Final, NamedTuple, assert_never

from provisioner.apis import names
from provisioner.apis.core import AnyPodGroup, CoschedulingGroup, PodGroup, VolcanoGroup
from provisioner.apis.meta import OwnerReference, key_of
from provisioner.apis.pods import Pod
from provisioner.values.message import Said

MOST_MEMBERS: Final = 10_000
"""The highest minimum that an annotation may say."""
REQUEST_PREFIX: Final = "provisioning-request."
"""With which the names of gangs of virtual pods begin, and of no others: all pods of a ProvisioningRequest, or of one of its pod sets."""
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)
_OBJECT: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,5}", re.ASCII)


class GroupSource(enum.StrEnum):
    """What says that pods are of a group, and how many of them it needs."""

    POD_GROUP = "podgroup"
    ANNOTATIONS = "annotations"
    VOLCANO = "volcano"
    COSCHEDULING = "coscheduling"


_SOURCES: Final = {
    "gang": GroupSource.ANNOTATIONS,
    "gang-label": GroupSource.ANNOTATIONS,
    "volcano": GroupSource.VOLCANO,
    "coscheduling": GroupSource.COSCHEDULING,
}
"""By the second part of a key of three parts or more."""


class AnnotatedGang(NamedTuple):
    """What annotations of a pod say of its group.

    Attributes:
        key: "namespace/gang/NAME/UID of the controller/minimum", or "namespace/gang-label/KEY/value/minimum"; "" for a pod that is of none. Pods that
            do not agree on the minimum are of different groups.
        name: as people know it: the value of the annotation, or of the label.
        minimum: so many of its pods must have places at once; 0 where its Job says it.
        error: why the annotations have no effect, so that the pod is planned by itself; "" where they can be read or say nothing.
    """

    key: str = ""
    name: str = ""
    minimum: int = 0
    error: str = ""


NO_GANG: Final = AnnotatedGang()


def group_of(pod: Pod) -> str:
    """The key of the group that a pod is of, "" for a single pod. O(1).

    "namespace/name" of a PodGroup of Kubernetes, else that of `annotated`, else "namespace/volcano/name" or "namespace/coscheduling/name".
    """
    if pod.group:
        return f"{pod.namespace}/{pod.group}"
    if pod.annotations:
        if key := annotated(pod).key:
            return key
        if name := _of_volcano(pod):
            return f"{pod.namespace}/volcano/{name}"
    label = pod.labels.get(names.COSCHEDULING_GROUP)
    return f"{pod.namespace}/coscheduling/{label}" if label and _OBJECT.fullmatch(label) else ""


def _of_volcano(pod: Pod) -> str:
    """The name of the PodGroup that Volcano has the pod in; "" where it is none of its pods."""
    named = next((pod.annotations[key] for key in names.VOLCANO_GROUPS if pod.annotations.get(key)), "")
    if not named or pod.shape.scheduler_name in names.KUBE_SCHEDULER_NAMES:
        return ""
    return named if _OBJECT.fullmatch(named) else ""


def bound_by_volcano(pod: Pod) -> bool:
    """Whether Volcano binds a pod, whichever group it is of: neither a nomination nor the extender leads it to a node."""
    return bool(pod.annotations) and bool(_of_volcano(pod))


def key_of_object(one: AnyPodGroup) -> str:
    """The key of the group that an object tells of."""
    match one:
        case PodGroup():
            return key_of(one.metadata)
        case VolcanoGroup():
            return f"{one.metadata.namespace}/volcano/{one.metadata.name}"
        case CoschedulingGroup():
            return f"{one.metadata.namespace}/coscheduling/{one.metadata.name}"
        case _:
            assert_never(one)


def source_of(key: str) -> GroupSource:
    """What says that there is a group."""
    parts = key.split("/", 2)
    return _SOURCES.get(parts[1], GroupSource.POD_GROUP) if len(parts) > 2 else GroupSource.POD_GROUP


def counts_finished(key: str) -> bool:
    """Whether pods of a group that have succeeded count for its minimum, or lower it."""
    return source_of(key) in (GroupSource.ANNOTATIONS, GroupSource.VOLCANO)


def minimum_of(key: str) -> int | None:
    """How many pods a group needs at once, where annotations say it; 0 where the Job of its pods does, None of one that an object tells of."""
    return int(key.rpartition("/")[2] or 0) if source_of(key) is GroupSource.ANNOTATIONS else None


def of_request(key: str) -> bool:
    """Whether a group is the virtual pods of a ProvisioningRequest: none of them exists, so none is ever bound or planned by name."""
    return key.partition("/")[2].startswith(f"gang/{REQUEST_PREFIX}")


def minimum_of_pod(pod: Pod) -> int | None:
    """As `minimum_of`, of the group of a pod; None of a single one, too."""
    return minimum_of(key) if pod.annotations and (key := group_of(pod)) else None


def of_job(pod: Pod) -> bool:
    """Whether a Job made a pod."""
    return pod.owner is not None and is_job(pod.owner)


def is_job(owner: OwnerReference) -> bool:
    """Whether a controller is a Job."""
    return owner.kind == "Job" and owner.api_version.partition("/")[0] == "batch"


def told(key: str) -> str:
    """A group by its key, for people."""
    if of_request(key):
        return "the ProvisioningRequest"
    namespace, *rest = key.split("/")
    match rest:
        case ["gang", name, _, *_]:
            return f"gang {namespace}/{name}"
        case ["gang-label", *label, value, _]:
            return f"gang {namespace}/{'/'.join(label)}={value}"
        case ["volcano", name]:
            return f"PodGroup {namespace}/{name} of Volcano"
        case ["coscheduling", name]:
            return f"PodGroup {namespace}/{name} of the coscheduling plugin"
        case _:
            return f"PodGroup {key}"


def annotated(pod: Pod) -> AnnotatedGang:
    """What the annotations of a pod say of its group; a PodGroup that it names counts before them."""
    notes = pod.annotations
    gang, label = notes.get(names.GANG), notes.get(names.GANG_LABEL)
    if gang is None and label is None:
        stray = names.GANG_MINIMUM in notes
        return AnnotatedGang(error=_without(names.GANG_MINIMUM)) if stray else NO_GANG
    written = notes.get(names.GANG_MINIMUM)
    is_virtual = names.BUFFER_FAKE_POD in notes  # of our own making
    if not is_virtual and (error := gang_error(gang, label, written, of_job=of_job(pod))):
        return AnnotatedGang(error=error)
    name = gang if gang is not None else pod.labels.get(label or "")
    if not name:
        return AnnotatedGang(error=Said(f"{names.GANG_LABEL}: the pod has no value for label {label}"))
    key = f"gang-label/{label}/{name}" if gang is None else f"gang/{name}/{'' if pod.owner is None else pod.owner.uid}"
    return AnnotatedGang(f"{pod.namespace}/{key}/{written or ''}", name, int(written or 0))


def gang_error(gang: str | None, label: str | None, minimum: str | None, *, of_job: bool) -> str:
    """What is wrong with these three annotations of a pod; "" for nothing. A Job says the minimum of a gang of its own pods."""
    if gang is None and label is None:
        return "" if minimum is None else _without(names.GANG_MINIMUM)
    if gang is not None and label is not None:
        return Said(f"{names.GANG} and {names.GANG_LABEL} exclude each other")
    if gang is not None and not _NAME.fullmatch(gang):
        return Said(f"{names.GANG}: {gang[:64]!r} is not a name of 1 to 63 letters, digits, '-', '_' or '.'")
    if gang is not None and gang.startswith(REQUEST_PREFIX):
        return Said(f"{names.GANG}: names that begin with {REQUEST_PREFIX!r} are reserved for ProvisioningRequests")
    if minimum is None:
        if of_job and gang is not None:
            return ""
        return Said(f"{names.GANG_MINIMUM} is required: the number of pods that need nodes at the same time")
    if not _NUMBER.fullmatch(minimum) or int(minimum) > MOST_MEMBERS:
        return Said(f"{names.GANG_MINIMUM}: {minimum[:64]!r} is not a whole number from 1 to {MOST_MEMBERS}")
    return ""


def _without(key: str) -> str:
    return Said(f"{key} has no effect without {names.GANG} or {names.GANG_LABEL}")
