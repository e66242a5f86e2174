"""Which events about volumes, namespaces and defaults may give a waiting pod a place, so that it is tried again at once.

Pods that wait are looked at every ten seconds anyway; this makes it the next batch.
"""

from typing import Any

from provisioner.apis.core import (
    CSINode,
    LabelledNamespace,
    LimitRange,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)


def concerns_placement(what: str, old: object, new: object) -> bool:
    """Whether a change of one object may turn "no place" into a place.

    What is written without meaning for placement (finalizers, sizes, conditions) does not count.

    Args:
        what: how `Caches` calls the kind.
        old: the object before; None where it is new.
        new: the object now; None where it is gone.
    """
    if what not in _KINDS:
        return False
    return _facts(old) != _facts(new)


def id_of(thing: Any) -> str:
    """What tells an object of one kind from others."""
    meta = thing.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else str(meta.name)


_KINDS = frozenset({"volumeclaim", "volume", "storageclass", "namespace", "limitrange", "csinode"})


def _facts(thing: object) -> object:
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
        case LimitRange() | CSINode():
            return thing.metadata.uid, thing.spec
        case _:
            return None
