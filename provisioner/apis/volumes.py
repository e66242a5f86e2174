"""Volumes and claims as they are kept: what many of them have in common is one object.

A cluster may have tens of thousands of either, each with the same few classes, sizes, zones and drivers.
"""

import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from provisioner.apis import names
from provisioner.apis.core import PersistentVolume, PersistentVolumeClaim
from provisioner.apis.footprint import check_kept

_CLAIM: Final = msgspec.json.Decoder(PersistentVolumeClaim)
_VOLUME: Final = msgspec.json.Decoder(PersistentVolume)
_KEPT_ANNOTATIONS: Final = (names.BIND_COMPLETED, names.SELECTED_NODE)
_REMEMBERED: Final = 4096
_NONE: Final[dict[str, str]] = {}


def decode_volume_claim(data: bytes) -> PersistentVolumeClaim:
    """The claim in the JSON that the API server sent; of its annotations only the volume binder's are kept.

    Raises:
        msgspec.MsgspecError: no JSON, or not a claim.
        ValueError: it would keep too much.
    """
    claim = _CLAIM.decode(data)
    meta, spec = claim.metadata, claim.spec
    annotations: dict[str, str] = {key: meta.annotations[key] for key in _KEPT_ANNOTATIONS if key in meta.annotations}
    check_kept(data, (annotations, meta.owner_references, spec, claim.status))
    return msgspec.structs.replace(
        claim,
        metadata=msgspec.structs.replace(
            meta, namespace=sys.intern(meta.namespace), annotations=_shared(annotations) if annotations else _NONE
        ),
        spec=msgspec.structs.replace(
            spec,
            access_modes=_first(spec.access_modes),
            storage_class_name=spec.storage_class_name and sys.intern(spec.storage_class_name),
            volume_mode=sys.intern(spec.volume_mode),
            resources=msgspec.structs.replace(spec.resources, requests=_shared(spec.resources.requests)),
        ),
        status=_first(claim.status),
    )


def decode_volume(data: bytes) -> PersistentVolume:
    """The volume in the JSON that the API server sent.

    Raises:
        msgspec.MsgspecError: no JSON, or not a volume.
    """
    volume = _VOLUME.decode(data)
    meta, spec = volume.metadata, volume.spec
    return msgspec.structs.replace(
        volume,
        metadata=msgspec.structs.replace(meta, labels=_shared(meta.labels) if meta.labels else _NONE),
        spec=msgspec.structs.replace(
            spec,
            storage_class_name=sys.intern(spec.storage_class_name),
            access_modes=_first(spec.access_modes),
            volume_mode=sys.intern(spec.volume_mode),
            capacity=_shared(spec.capacity),
            node_affinity=spec.node_affinity and _first(spec.node_affinity),
            csi=spec.csi and msgspec.structs.replace(spec.csi, driver=sys.intern(spec.csi.driver)),
        ),
        status=_first(volume.status),
    )


@lru_cache(_REMEMBERED)
def _first(value: Any) -> Any:
    """The first of all equal values."""
    return value


@lru_cache(_REMEMBERED)
def _as_dict(items: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return dict(items)


def _shared(one: Mapping[str, Any]) -> dict[str, Any]:
    """The first of all equal dicts; nobody writes to a decoded object."""
    return _as_dict(tuple(one.items()))
