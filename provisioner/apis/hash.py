"""The hash of a NodePool's template, as it stands on the pools and claims of existing clusters.

A claim whose hash differs from its pool's has drifted and is replaced, so one wrong bit replaces a fleet; the values of
97 templates hold this module in place (tests/golden). Requirements, budgets, limits and weight are not in it.

Source: core spec 1.1; the scheme is hashstructure's format 2 over 64-bit FNV-1 with lists as sets, absent fields
skipped. Two equal elements of one list cancel each other, there and here.
"""

import struct
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import UnsetType

from provisioner.apis.karpenter import NEVER, NodeClaimTemplate, NodeClassReference, TemplateMetadata
from provisioner.values.duration import parse_duration
from provisioner.values.taints import Taint

HASH_VERSION: Final = "v3"

_OFFSET: Final = 14695981039346656037
_PRIME: Final = 1099511628211
_MASK: Final = 2**64 - 1
_YEAR_ONE: Final = datetime(1, 1, 1, tzinfo=UTC)
_Fields = Iterable[tuple[str, int | None]]


def nodepool_hash(template: NodeClaimTemplate) -> str:
    """The decimal text of `karpenter.sh/nodepool-hash` for `template`, version `HASH_VERSION`.

    Raises:
        DurationError: expireAfter or terminationGracePeriod is no duration; the API server admits no such pool.
        ValueError: a taint's timeAdded is no RFC 3339 time.

    Cost: some 100 us for a usual template.
    """
    spec = template.spec
    return str(
        _struct(
            "NodeClaimTemplate",
            (
                ("ObjectMeta", _metadata(template.metadata)),
                (
                    "Spec",
                    _struct(
                        "NodeClaimTemplateSpec",
                        (
                            ("Taints", _taints(spec.taints)),
                            ("StartupTaints", _taints(spec.startup_taints)),
                            ("NodeClassRef", _reference(spec.node_class_ref)),
                            ("TerminationGracePeriod", _grace(spec.termination_grace_period)),
                            ("ExpireAfter", _expiry(spec.expire_after)),
                        ),
                    ),
                ),
            ),
        )
    )


def _metadata(metadata: TemplateMetadata) -> int | None:
    labels = None if isinstance(metadata.labels, UnsetType) else _map(metadata.labels)
    annotations = None if isinstance(metadata.annotations, UnsetType) else _map(metadata.annotations)
    if labels is None and annotations is None:
        return None
    return _struct("ObjectMeta", (("Labels", labels), ("Annotations", annotations)))


def _taints(taints: tuple[Taint, ...] | UnsetType) -> int | None:
    if isinstance(taints, UnsetType):
        return None
    return _set(
        _struct(
            "Taint",
            (
                ("Key", _given(taint.key)),
                ("Value", _given(taint.value)),
                ("Effect", _given(taint.effect)),
                ("TimeAdded", None if taint.time_added is None else _time(taint.time_added)),
            ),
        )
        for taint in taints
    )


def _reference(reference: NodeClassReference) -> int:
    return _struct(
        "NodeClassReference",
        (("Kind", _given(reference.kind)), ("Name", _given(reference.name)), ("Group", _given(reference.group))),
    )


def _grace(text: str | UnsetType) -> int | None:
    """A grace period of zero is set, though the number in it is skipped."""
    if isinstance(text, UnsetType):
        return None
    nanos = _nanos(text)
    return _struct("Duration", (("Duration", _integer(nanos) if nanos else None),))


def _expiry(text: str | UnsetType) -> int | None:
    """Unlike in a grace period, a zero counts; Never is the same as none."""
    if isinstance(text, UnsetType) or text == NEVER:
        return None
    return _struct("NillableDuration", (("Duration", _integer(_nanos(text))),))


def _nanos(text: str) -> int:
    return parse_duration(text) // timedelta(microseconds=1) * 1000


def _time(text: str) -> int:
    """Of Go's binary form of a time in UTC: version 1, seconds since year 1, nanoseconds, zone in minutes."""
    since = datetime.fromisoformat(text).astimezone(UTC) - _YEAR_ONE
    seconds, rest = divmod(since, timedelta(seconds=1))
    # Go writes -1 for UTC itself; what the API server gives has been read in the local zone of a pod, with offset 0.
    binary = struct.pack(">bqih", 1, seconds, rest // timedelta(microseconds=1) * 1000, 0)
    return _struct("Time", (("Time", _fnv(binary)),))


def _given(text: str) -> int | None:
    """Empty strings are skipped within a struct, not within a map."""
    return _fnv(text.encode()) if text else None


def _map(mapping: Mapping[str, str]) -> int:
    entries = 0
    for key, value in mapping.items():
        entries ^= _pair(_fnv(key.encode()), _fnv(value.encode()))
    return _finish(entries)


def _set(elements: Iterable[int]) -> int:
    combined = 0
    for element in elements:
        combined ^= element
    return combined


def _struct(name: str, fields: _Fields) -> int:
    combined = _fnv(name.encode())
    for field, value in fields:
        if value is not None:
            combined = _finish(combined ^ _pair(_fnv(field.encode()), value))
    return combined


def _integer(value: int) -> int:
    return _fnv(value.to_bytes(8, "little", signed=True))


def _pair(left: int, right: int) -> int:
    return _fnv(left.to_bytes(8, "little") + right.to_bytes(8, "little"))


def _finish(value: int) -> int:
    return _fnv(value.to_bytes(8, "little"))


def _fnv(data: bytes) -> int:
    """64-bit FNV-1: multiply, then XOR (1a does it the other way round)."""
    digest = _OFFSET
    for byte in data:
        digest = digest * _PRIME & _MASK ^ byte
    return digest
