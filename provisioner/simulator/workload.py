"""What happens to a cluster in a day: workloads that come, change and end, as values; and the file in which they are written."""

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from provisioner.simulator.errors import SimulationError

MOST_PODS: Final = 200_000
"""Of one workload."""
MOST_SECONDS: Final = 31 * 86_400.0
_Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=MOST_SECONDS)]
_Count: TypeAlias = Annotated[int, Meta(ge=0, le=MOST_PODS)]
OwnerKind: TypeAlias = Literal["Deployment", "Job", "Pod"]


class _Change(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, tag_field="type"):
    """`at`: seconds from the day's start."""

    at: _Seconds


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
    count: _Count = 1
    lifetimes: tuple[_Seconds, ...] | None = None


class Scale(_Change, frozen=True, kw_only=True, tag="Scale"):
    """A Deployment wants another number of pods."""

    name: str
    namespace: str = "default"
    count: _Count


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

    duration_seconds: Annotated[float, Meta(gt=0, le=MOST_SECONDS)]
    changes: tuple[Change, ...]


def day_of(document: object, name: str) -> Day:
    """A day as a file has it.

    Args:
        document: the file's only document.
        name: of the file.

    Raises:
        SimulationError: it is none; says which field is wrong.
    """
    try:
        day = msgspec.convert(document, Day, strict=True)
    except msgspec.ValidationError as error:
        raise SimulationError(f"{name}: {error}; see docs/guides/simulate.md for the form of a day") from None
    for number, change in enumerate(day.changes):
        where = f"{name}: changes[{number}]"
        if change.at >= day.duration_seconds:
            raise SimulationError(f"{where}.at: {change.at:g} s is not within the day; use less than durationSeconds")
        if isinstance(change, Arrival) and not change.template.get("spec", {}).get("containers"):
            raise SimulationError(f"{where}.template.spec.containers: is missing; list at least one container")
        if isinstance(change, Apply) and not (
            isinstance(change.object.get("metadata"), dict) and change.object["metadata"].get("name")
        ):
            raise SimulationError(f"{where}.object.metadata.name: is missing; give the object a name")
    return day
