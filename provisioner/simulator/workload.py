"""What happens to a cluster in a day: workloads that come, change and end, as values; and the file in which they are written."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from provisioner.apis.pods import decode_pod
from provisioner.scheduling.constraints.demands import facts_of
from provisioner.scheduling.constraints.filters import FilterError
from provisioner.simulator.admission import PodAdmission
from provisioner.simulator.errors import SimulationError

MOST_PODS: Final = 200_000
"""Of one workload."""
MOST_PODS_OF_DAY: Final = 500_000
"""Of all workloads, by `pods_in`."""
MOST_SECONDS: Final = 31 * 86_400.0
_Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=MOST_SECONDS)]
_Name: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]
_Namespace: TypeAlias = Annotated[str, Meta(pattern="^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
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

    name: _Name
    namespace: _Namespace = "default"
    kind: OwnerKind = "Deployment"
    template: dict[str, Any]
    count: _Count = 1
    lifetimes: tuple[_Seconds, ...] | None = None


class Scale(_Change, frozen=True, kw_only=True, tag="Scale"):
    """A Deployment wants another number of pods."""

    name: _Name
    namespace: _Namespace = "default"
    count: _Count


class End(_Change, frozen=True, kw_only=True, tag="End"):
    """A workload is deleted, with its pods."""

    name: _Name
    namespace: _Namespace = "default"


class Apply(_Change, frozen=True, kw_only=True, tag="Apply"):
    """An object is created or replaced, as of `kubectl apply`: a NodePool whose nodes drift by it, a PodDisruptionBudget."""

    object: dict[str, Any]


class Shortage(_Change, frozen=True, kw_only=True, tag="Shortage"):
    """Some offerings cannot be had from `at` to `until`; a list that is empty means all.

    Attributes:
        until: seconds from the day's start.
    """

    until: _Seconds
    instance_types: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    capacity_types: tuple[str, ...] = ()


Change: TypeAlias = Arrival | Scale | End | Apply | Shortage


class Day(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What is simulated.

    Attributes:
        duration_seconds: after which everything is counted up, whatever still runs.
        changes: in order of their time.
    """

    duration_seconds: Annotated[float, Meta(gt=0, le=MOST_SECONDS)]
    changes: tuple[Change, ...]


def day_of(document: object, name: str, given: Iterable[Mapping[str, Any]] = ()) -> Day:
    """A day as a file has it.

    Args:
        document: the file's only document.
        name: of the file.
        given: objects that are there when it begins, as in manifests; those of other kinds than admission reads are ignored.

    Raises:
        SimulationError: it is none; says which field is wrong.
    """
    try:
        day = msgspec.convert(document, Day, strict=True)
    except msgspec.ValidationError as error:
        raise SimulationError(f"{name}: {error}; see docs/guides/simulate.md for the form of a day") from None
    if (pods := pods_in(day.changes)) > MOST_PODS_OF_DAY:
        raise SimulationError(f"{name}: {pods:,} pods come in this day; use at most {MOST_PODS_OF_DAY:,}")
    admission = PodAdmission()
    for one in given:
        admission.applied(one)
    problems: dict[tuple[bytes, str], str] = {}
    for number, change in enumerate(day.changes):
        where = f"{name}: changes[{number}]"
        if change.at >= day.duration_seconds:
            raise SimulationError(f"{where}.at: {change.at:g} s is not within the day; use less than durationSeconds")
        if isinstance(change, Arrival):
            key = msgspec.json.encode(change.template), change.namespace
            if key not in problems:
                problems[key] = _problem_of(change.template, change.namespace, admission)
            if problems[key]:
                raise SimulationError(f"{where}.{problems[key]}")
        if isinstance(change, Shortage) and change.until <= change.at:
            raise SimulationError(f"{where}.until: {change.until:g} s is not after at; use more than {change.at:g}")
        if isinstance(change, Apply):
            if not (isinstance(change.object.get("metadata"), dict) and change.object["metadata"].get("name")):
                raise SimulationError(f"{where}.object.metadata.name: is missing; give the object a name")
            try:
                if admission.applied(change.object):
                    problems.clear()
            except msgspec.ValidationError as error:
                raise SimulationError(f"{where}.object: {error}") from None
    return day


def pods_in(changes: Iterable[Change]) -> int:
    """How many pods come, replacements not counted: those of arrivals, and what is added by scaling."""
    wanted: dict[tuple[str, str], int] = {}
    pods = 0
    for one in changes:
        if isinstance(one, Arrival | Scale):
            key = one.namespace, one.name
            before = wanted.get(key, 0) if isinstance(one, Scale) else 0
            wanted[key] = one.count
            pods += max(0, one.count - before)
    return pods


class _TemplateMeta(msgspec.Struct, frozen=True):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Template(msgspec.Struct, frozen=True):
    """What is looked at before a pod is made of it, since its errors are told with their place."""

    metadata: _TemplateMeta = _TemplateMeta()
    spec: dict[str, Any] = {}


def _problem_of(template: dict[str, Any], namespace: str, admission: PodAdmission) -> str:
    """Why no pods can be made of a template, from its field on; "" where they can."""
    try:
        spec = msgspec.convert(template, _Template, strict=True).spec
        if not spec.get("containers"):
            return "template.spec.containers: is missing; list at least one container"
        body = admission.body(template, namespace)
        ties = facts_of(decode_pod(msgspec.json.encode(body.pod("pod", namespace))).shape).ties
        _ = ties.ladder, ties.ladder_with_taints
    except msgspec.MsgspecError as error:
        return f"template: {error}; see `kubectl explain pod`"
    except FilterError as error:
        return f"template: {error}"
    if body.refusal:
        return f"template: the API server refuses its pods: {body.refusal}"
    if spec.get("resourceClaims"):
        return "template.spec.resourceClaims: devices are not simulated; leave them out"
    for number, volume in enumerate(spec.get("volumes") or ()):
        if volume.get("persistentVolumeClaim") or volume.get("ephemeral"):
            return f"template.spec.volumes[{number}]: PersistentVolumeClaims are not simulated; leave the volume out"
    return ""
