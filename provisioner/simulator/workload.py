"""What happens to a cluster in a day: workloads that come, change and end, as values; and the file in which they are written."""

from typing import Any, Literal, TypeAlias

import msgspec

OwnerKind: TypeAlias = Literal["Deployment", "Job", "Pod"]


class _Change(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, tag_field="type"):
    """`at`: seconds from the day's start."""

    at: float


class Arrival(_Change, frozen=True, kw_only=True, tag="Arrival"):
    """A workload is created.

    Attributes:
        name: unique in its namespace as long as it is there.
        kind: of the owner. A Deployment replaces every pod that ends or is evicted, a Job every pod that is evicted before its lifetime is over,
            nobody replaces pods of kind Pod.
        template: a pod template as in a manifest, with `metadata` (labels, annotations) and `spec`.
        count: of its pods.
        lifetimes: seconds for which each pod runs, from when it started; of a replacement, for a Job, anew. A pod whose number is beyond the
            last takes them from the first again. None: until the workload is scaled or ends.
    """

    name: str
    namespace: str = "default"
    kind: OwnerKind = "Deployment"
    template: dict[str, Any]
    count: int = 1
    lifetimes: tuple[float, ...] | None = None


class Scale(_Change, frozen=True, kw_only=True, tag="Scale"):
    """A Deployment wants another number of pods."""

    name: str
    namespace: str = "default"
    count: int


class End(_Change, frozen=True, kw_only=True, tag="End"):
    """A workload is deleted, with its pods."""

    name: str
    namespace: str = "default"


class Apply(_Change, frozen=True, kw_only=True, tag="Apply"):
    """An object is created or replaced, as of `kubectl apply`: a NodePool whose nodes drift by it, a PodDisruptionBudget."""

    object: dict[str, Any]


Change: TypeAlias = Arrival | Scale | End | Apply


class Day(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What is simulated.

    Attributes:
        duration_seconds: after which everything is counted up, whatever still runs.
        changes: in order of their time.
    """

    duration_seconds: float
    changes: tuple[Change, ...]
