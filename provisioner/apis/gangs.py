"""Which group a pod is of: pods that are to be placed all, or as many as a minimum says, or not at all. Pure.

Two sources: `spec.schedulingGroup` names a PodGroup, which says the minimum and which kube-scheduler knows too; annotations say both themselves,
for clusters without PodGroups. There kube-scheduler binds one pod after the other, and nodes alone are planned for all or none.
"""

import re
from typing import Final, NamedTuple

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.values.message import Said

MOST_MEMBERS: Final = 10_000
"""The highest minimum that an annotation may say."""
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,5}", re.ASCII)


class AnnotatedGang(NamedTuple):
    """What annotations of a pod say of its group.

    Attributes:
        key: "namespace/gang/NAME/UID of the controller/minimum", or "namespace/gang-label/KEY/value/minimum"; "" for a pod that is of none. Pods that
            do not agree on the minimum are of different groups.
        name: as people know it: the value of the annotation, or of the label.
        minimum: so many of its pods must have places at once.
        error: why the annotations have no effect, so that the pod is planned by itself; "" where they can be read or say nothing.
    """

    key: str = ""
    name: str = ""
    minimum: int = 0
    error: str = ""


NO_GANG: Final = AnnotatedGang()


def group_of(pod: Pod) -> str:
    """The key of the group that a pod is of: "namespace/name" of a PodGroup, else that of `annotated`; "" for a single pod. O(1)."""
    if pod.group:
        return f"{pod.namespace}/{pod.group}"
    return annotated(pod).key if pod.annotations else ""


def minimum_of(key: str) -> int | None:
    """How many pods a group needs at once, where annotations say it; None of a PodGroup."""
    _, name, *rest = key.split("/")
    return int(rest[-1]) if rest and name else None


def told(key: str) -> str:
    """A group by its key, for people."""
    namespace, *rest = key.split("/")
    match rest:
        case ["gang", name, _, _]:
            return f"gang {namespace}/{name}"
        case ["gang-label", *label, value, _]:
            return f"gang {namespace}/{'/'.join(label)}={value}"
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
    if error := gang_error(gang, label, written):
        return AnnotatedGang(error=error)
    name = gang if gang is not None else pod.labels.get(label or "")
    if not name:
        return AnnotatedGang(error=Said(f"{names.GANG_LABEL}: the pod has no value for label {label}"))
    key = f"gang-label/{label}/{name}" if gang is None else f"gang/{name}/{'' if pod.owner is None else pod.owner.uid}"
    return AnnotatedGang(f"{pod.namespace}/{key}/{written}", name, int(written or 0))


def gang_error(gang: str | None, label: str | None, minimum: str | None) -> str:
    """What is wrong with these three annotations of a pod; "" for nothing. A template is judged by it, too."""
    if gang is None and label is None:
        return "" if minimum is None else _without(names.GANG_MINIMUM)
    if gang is not None and label is not None:
        return Said(f"{names.GANG} and {names.GANG_LABEL} exclude each other")
    if gang is not None and not _NAME.fullmatch(gang):
        return Said(f"{names.GANG}: {gang[:64]!r} is not a name of 1 to 63 letters, digits, '-', '_' or '.'")
    if minimum is None:
        return Said(f"{names.GANG_MINIMUM} is required: the number of pods that need nodes at the same time")
    if not _NUMBER.fullmatch(minimum) or int(minimum) > MOST_MEMBERS:
        return Said(f"{names.GANG_MINIMUM}: {minimum[:64]!r} is not a whole number from 1 to {MOST_MEMBERS}")
    return ""


def _without(key: str) -> str:
    return Said(f"{key} has no effect without {names.GANG} or {names.GANG_LABEL}")
