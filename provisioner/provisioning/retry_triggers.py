"""Which events about volumes, namespaces and defaults may give a waiting pod a place, so that it is tried again at once.

Pods that wait are looked at every ten seconds anyway; this makes it the next batch.
"""

from provisioner.apis.core import (
    CoschedulingGroup,
    CSIDriver,
    CSINode,
    LabelledNamespace,
    LimitRange,
    PersistentVolume,
    PersistentVolumeClaim,
    PodGroup,
    PriorityClass,
    RuntimeClass,
    StorageClass,
    VolcanoGroup,
)
from provisioner.runtime.changes import Surrounding, SurroundingChanged


def concerns_placement(change: SurroundingChanged) -> bool:
    """Whether a change of one object may turn "no place" into a place.

    What is written without meaning for placement (finalizers, sizes, conditions) does not count.
    """
    return _facts(change.old) != _facts(change.new)


def _facts(thing: Surrounding | None) -> object:
    """The part of an object that decides where pods may run; None where there is no object."""
    match thing:
        case PersistentVolumeClaim(metadata=meta, spec=spec, status=status):
            bound = meta.annotations.keys() if meta.annotations else ()
            return (
                meta.uid,
                meta.deletion_timestamp is not None,
                tuple(sorted(bound)),
                spec.volume_name,
                spec.storage_class_name,
                status.phase,
            )
        case PersistentVolume(metadata=meta, spec=spec, status=status):
            return meta.uid, meta.deletion_timestamp is not None, meta.labels, spec, status.phase
        case StorageClass():
            return thing.metadata.uid, thing.provisioner, thing.volume_binding_mode, thing.allowed_topologies
        case LabelledNamespace():
            return thing.metadata.uid, thing.metadata.labels
        case LimitRange() | CSINode() | CSIDriver():
            return thing.metadata.uid, thing.spec
        case RuntimeClass():
            return thing.metadata.uid, thing.overhead, thing.scheduling
        case PodGroup():
            return thing.metadata.uid, thing.minimum, thing.spec.priority
        case VolcanoGroup():
            return thing.metadata.uid, thing.minimum, thing.queued
        case CoschedulingGroup():
            return thing.metadata.uid, thing.minimum
        case PriorityClass():
            return None  # it counts for pods that are created from now on
        case None:
            return None
