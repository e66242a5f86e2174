"""The hash of a NodePool's template, as it stands on the pools and claims of existing clusters.

A claim whose hash differs from its pool's has drifted and is replaced, so one wrong bit replaces a fleet; the values of
97 templates hold this module in place (tests/golden). Requirements, budgets, limits and weight are not in it.

Source: core spec 1.1; the scheme is that of provisioner.apis.structural.
"""

import struct
import weakref
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import UnsetType

from provisioner.apis import names
from provisioner.apis.karpenter import NEVER, NodeClaimTemplate, NodeClassReference, TemplateMetadata
from provisioner.apis.structural import fnv, given, integer, record, strings, unordered
from provisioner.values.duration import parse_duration
from provisioner.values.taints import Taint

HASH_VERSION: Final = "v3"

_YEAR_ONE: Final = datetime(1, 1, 1, tzinfo=UTC)
# by identity, as labels are a dict, which has no hash; each as long as its template, of which every status update of a NodePool brings a new one
_known: Final[dict[int, tuple[weakref.ref[NodeClaimTemplate], str]]] = {}


def nodepool_hash(template: NodeClaimTemplate) -> str:
    """The decimal text of `karpenter.sh/nodepool-hash` for `template`, version `HASH_VERSION`.

    Raises:
        DurationError: expireAfter or terminationGracePeriod is no duration; the API server admits no such pool.
        ValueError: a taint's timeAdded is no RFC 3339 time.

    Cost: some 100 us for a usual template, and nothing to speak of where the same object was asked about before.
    """
    key = id(template)
    known = _known.get(key)
    if known is None:
        known = _known[key] = weakref.ref(template, lambda _: _known.pop(key, None)), _computed(template)
    return known[1]


def pool_stamp(template: NodeClaimTemplate) -> dict[str, str]:
    """The annotations that tell a pool's hash, and that a new claim of it gets.

    Raises:
        ValueError: as of `nodepool_hash`.
    """
    return {names.NODEPOOL_HASH: nodepool_hash(template), names.NODEPOOL_HASH_VERSION: HASH_VERSION}


def claim_stamp(annotations: Mapping[str, str], wanted: Mapping[str, str], *, drifted: bool) -> dict[str, str]:
    """The annotations that an existing claim must get when its pool comes to `HASH_VERSION`: of a hash of another version nothing can be said.

    Args:
        annotations: of the claim.
        wanted: those of its pool, see `pool_stamp`.
        drifted: whether the claim has the condition Drifted; its hash stays then.

    Returns:
        Empty when there is nothing to do.
    """
    if annotations.get(names.NODEPOOL_HASH_VERSION) == HASH_VERSION:
        return {}
    return {names.NODEPOOL_HASH_VERSION: HASH_VERSION} if drifted else dict(wanted)


def _computed(template: NodeClaimTemplate) -> str:
    spec = template.spec
    return str(
        record(
            "NodeClaimTemplate",
            (
                ("ObjectMeta", _metadata(template.metadata)),
                (
                    "Spec",
                    record(
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
    labels = None if isinstance(metadata.labels, UnsetType) else strings(metadata.labels)
    annotations = None if isinstance(metadata.annotations, UnsetType) else strings(metadata.annotations)
    if labels is None and annotations is None:
        return None
    return record("ObjectMeta", (("Labels", labels), ("Annotations", annotations)))


def _taints(taints: tuple[Taint, ...] | UnsetType) -> int | None:
    if isinstance(taints, UnsetType):
        return None
    return unordered(
        record(
            "Taint",
            (
                ("Key", given(taint.key)),
                ("Value", given(taint.value)),
                ("Effect", given(taint.effect)),
                ("TimeAdded", None if taint.time_added is None else _time(taint.time_added)),
            ),
        )
        for taint in taints
    )


def _reference(reference: NodeClassReference) -> int:
    return record(
        "NodeClassReference",
        (("Kind", given(reference.kind)), ("Name", given(reference.name)), ("Group", given(reference.group))),
    )


def _grace(text: str | UnsetType) -> int | None:
    """A grace period of zero is set, though the number in it is skipped."""
    if isinstance(text, UnsetType):
        return None
    nanos = _nanos(text)
    return record("Duration", (("Duration", integer(nanos) if nanos else None),))


def _expiry(text: str | UnsetType) -> int | None:
    """Unlike in a grace period, a zero counts; Never is the same as none."""
    if isinstance(text, UnsetType) or text == NEVER:
        return None
    return record("NillableDuration", (("Duration", integer(_nanos(text))),))


def _nanos(text: str) -> int:
    return parse_duration(text) // timedelta(microseconds=1) * 1000


def _time(text: str) -> int:
    """Of Go's binary form of a time in UTC: version 1, seconds since year 1, nanoseconds, zone in minutes."""
    since = datetime.fromisoformat(text).astimezone(UTC) - _YEAR_ONE
    seconds, rest = divmod(since, timedelta(seconds=1))
    # Go writes -1 for UTC itself; what the API server gives has been read in the local zone of a pod, with offset 0.
    binary = struct.pack(">bqih", 1, seconds, rest // timedelta(microseconds=1) * 1000, 0)
    return record("Time", (("Time", fnv(binary)),))
