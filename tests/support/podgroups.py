"""Groups of equal pods, said in each of the ways that there are."""

from typing import Any

import msgspec

from provisioner.apis import names
from provisioner.apis.core import AnyPodGroup, CoschedulingGroup, PodGroup, VolcanoGroup
from provisioner.apis.gangs import GroupSource
from provisioner.apis.pods import Pod
from provisioner.apis.shapes import altered_shape

VOLCANO = "volcano"
"""The schedulerName of pods that Volcano binds."""
MEMBERS = (GroupSource.VOLCANO, GroupSource.COSCHEDULING)
"""The sources whose objects say `minMember`."""


def object_of(
    source: GroupSource, name: str = "train", minimum: object = 2, *, phase: str = "Inqueue", namespace: str = "default"
) -> AnyPodGroup | None:
    """The object that tells of a group; None where the pods say everything."""
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    members: dict[str, Any] = {"metadata": metadata, "spec": {"minMember": minimum}}
    match source:
        case GroupSource.POD_GROUP:
            policy = {"schedulingPolicy": {"gang": {"minCount": minimum}}, "priority": 0}
            return msgspec.convert({"metadata": metadata, "spec": policy}, PodGroup)
        case GroupSource.VOLCANO:
            return msgspec.convert({**members, "status": {"phase": phase}}, VolcanoGroup)
        case GroupSource.COSCHEDULING:
            return msgspec.convert(members, CoschedulingGroup)
        case _:
            return None


def grouped(one: Pod, source: GroupSource, name: str = "train", minimum: int = 2) -> Pod:
    """The pod as one of the group."""
    match source:
        case GroupSource.POD_GROUP:
            return msgspec.structs.replace(one, group=name)
        case GroupSource.ANNOTATIONS:
            notes = {names.GANG: name, names.GANG_MINIMUM: str(minimum)}
            return msgspec.structs.replace(one, annotations={**one.annotations, **notes})
        case GroupSource.VOLCANO:
            notes = {names.VOLCANO_GROUPS[0]: name}
            shape = altered_shape(one.shape, scheduler_name=VOLCANO)
            return msgspec.structs.replace(one, shape=shape, annotations={**one.annotations, **notes})
        case GroupSource.COSCHEDULING:
            return msgspec.structs.replace(one, labels={**one.labels, names.COSCHEDULING_GROUP: name})


def left(one: Pod, reason: str) -> Pod:
    """The pod as its scheduler left it without a node, for this reason."""
    return msgspec.structs.replace(
        one, unschedulable=reason == names.UNSCHEDULABLE, scheduled_reason=reason, scheduled_message=f"{reason}."
    )
