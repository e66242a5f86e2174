"""Questions and results as arrays, for another process of ours: numbers and text in a few blocks of bytes, no object a pod.

What pods or claims have in common (shapes, requirements, lists of types, reasons) is written once, by pickle: read only what a
process of this program wrote. Places speak of pods by their number in the question.
"""

import copyreg
import pickle
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

import msgspec

from provisioner.apis.pods import Pod
from provisioner.apis.shapes import interned_shape
from provisioner.scheduling.problem import Bin, Changes
from provisioner.scheduling.reasons import Reason
from provisioner.scheduling.result import PlannedClaim, Result, Unplaced
from provisioner.values.resources import Resources

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_NEVER: Final = -(1 << 62)
_TEXTS: Final = msgspec.msgpack.Decoder(list[str])
_NO_CHANGES: Final = Changes()


class PodArrays(msgspec.Struct, frozen=True, gc=False):
    """Pods, in order.

    Attributes:
        kinds: what pods have in common, pickled.
        kind: by pod, the number of its kind; 32 bits each.
        texts: name, UID, resource version and node of each; msgpack.
        times: creation, deletion and start of each, in microseconds; 64 bits each.
    """

    kinds: bytes
    kind: bytes
    texts: bytes
    times: bytes


class QuestionArrays(msgspec.Struct, frozen=True, gc=False):
    """What happened since the last question, and the pods that are asked about.

    Attributes:
        pods: that are asked about, then those on changed nodes.
        asked: how many are asked about.
        on_bins: by changed node, how many of the pods it has; 32 bits each.
        rest: everything else of the changes, pickled.
    """

    pods: PodArrays
    asked: int
    on_bins: bytes
    rest: bytes

    @property
    def size(self) -> int:
        """Bytes."""
        pods = self.pods
        return sum(map(len, (pods.kinds, pods.kind, pods.texts, pods.times, self.on_bins, self.rest)))


class ResultArrays(msgspec.Struct, frozen=True, gc=False):
    """A result, of pods that both sides know.

    Attributes:
        shared: what claims and unplaced pods have in common, pickled.
        claims: by claim, the numbers of its kind and of its requests, and how many pods it has; 32 bits each.
        existing: how many pods each node takes, likewise.
        unplaced: by unplaced pod, the number of its reasons, likewise.
        pods: number in the question of every pod: of the claims, of the nodes, of the unplaced; likewise.
        usd_at_least: as of `Result`.
    """

    shared: bytes
    claims: bytes
    existing: bytes
    unplaced: bytes
    pods: bytes
    usd_at_least: float | None

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(map(len, (self.shared, self.claims, self.existing, self.unplaced, self.pods)))


# --- pods ---


def _pack_pods(pods: Iterable[Pod]) -> PodArrays:
    kinds: list[Pod] = []
    numbers: dict[object, int] = {}
    kind, times = array("I"), array("q")
    texts: list[str] = []
    moments: dict[datetime | None, int] = {}
    for pod in pods:
        shape = pod.shape
        key = (
            id(shape),
            pod.namespace,
            id(pod.labels) if pod.labels is shape.labels else tuple(pod.labels.items()),
            tuple(pod.annotations.items()),
            pod.owner,
            pod.grace_seconds,
            pod.nominated_node_name,
            pod.phase,
            (pod.scheduled, pod.unschedulable, pod.ready, pod.gated),
            pod.scheduled_reason,
            pod.scheduled_message,
        )
        number = numbers.get(key)
        if number is None:
            number = numbers[key] = len(kinds)
            kinds.append(pod)
        kind.append(number)
        texts += (pod.name, pod.uid, pod.resource_version, pod.node_name)
        for moment in (pod.created, pod.deleted, pod.start_time):
            microseconds = moments.get(moment)
            if microseconds is None and moment is not None:
                microseconds = moments[moment] = (moment - _EPOCH) // _MICROSECOND
            times.append(_NEVER if microseconds is None else microseconds)
    return PodArrays(_dumps(kinds), _bytes(kind), msgspec.msgpack.encode(texts), _bytes(times))


def _unpack_pods(arrays: PodArrays) -> tuple[Pod, ...]:
    kinds: list[Pod] = _loads(arrays.kinds)
    fields = []
    for one in kinds:
        shape = interned_shape(one.shape)
        labels = shape.labels if one.labels == one.shape.labels else one.labels
        common = {name: getattr(one, name) for name in Pod.__struct_fields__}
        fields.append({**common, "shape": shape, "labels": labels})
    microseconds = _numbers("q", arrays.times)
    moments = {one: _time(one) for one in set(microseconds)}
    texts, times = iter(_TEXTS.decode(arrays.texts)), map(moments.__getitem__, microseconds)
    found = []
    for number in _numbers("I", arrays.kind):
        created = next(times)
        values = {
            **fields[number],
            "name": next(texts),
            "uid": next(texts),
            "resource_version": next(texts),
            "node_name": sys.intern(next(texts)),
            "created": _EPOCH if created is None else created,
            "deleted": next(times),
            "start_time": next(times),
        }
        found.append(Pod(**values))
    return tuple(found)


def _time(microseconds: int) -> datetime | None:
    return None if microseconds == _NEVER else _EPOCH + timedelta(microseconds=microseconds)


# --- questions ---


def pack_question(pods: Sequence[Pod], changes: Changes = _NO_CHANGES) -> QuestionArrays:
    """A question as arrays. Cost: O(pods), with those on changed nodes."""
    bins = list(changes.bins.items())
    on_bins = [pod for _, one in bins for pod in one.pods]
    bare = {name: replace(one, pods=()) for name, one in bins}
    return QuestionArrays(
        _pack_pods([*pods, *on_bins]),
        len(pods),
        _bytes(array("I", [len(one.pods) for _, one in bins])),
        _dumps(replace(changes, bins=bare)),
    )


def unpack_question(arrays: QuestionArrays) -> tuple[tuple[Pod, ...], Changes]:
    """(pods, changes) of `pack_question`; equal to what was packed."""
    pods = _unpack_pods(arrays.pods)
    changes: Changes = _loads(arrays.rest)
    if not changes.bins:
        return pods, changes
    rest = iter(pods[arrays.asked :])
    bins: dict[str, Bin] = {}
    for (name, one), count in zip(changes.bins.items(), _numbers("I", arrays.on_bins), strict=True):
        bins[name] = replace(one, pods=_take(rest, count))
    return pods[: arrays.asked], replace(changes, bins=bins)


# --- results ---


def pack_result(result: Result, asked: Sequence[Pod]) -> ResultArrays:
    """A result of the question `asked` as arrays; reasons and the bound are found for it. Cost: O(pods)."""
    number_of = {pod.uid: number for number, pod in enumerate(asked)}
    kinds: list[PlannedClaim] = []
    kind_numbers: dict[object, int] = {}
    requests: dict[Resources, int] = {}
    claims, pods = array("I"), array("I")
    for claim in result.claims:
        key = _kind_of(claim)
        kind = kind_numbers.get(key)
        if kind is None:
            kind = kind_numbers[key] = len(kinds)
            kinds.append(msgspec.structs.replace(claim, template=None, pods=(), requests=Resources.of({})))
        claims.extend((kind, requests.setdefault(claim.requests, len(requests)), len(claim.pods)))
        pods.extend([number_of[pod.uid] for pod in claim.pods])
    for some in result.existing.values():
        pods.extend([number_of[pod.uid] for pod in some])
    reasons: dict[int, tuple[int, tuple[Reason, ...]]] = {}  # by identity: equal pods share their reasons
    unplaced = array("I")
    for one in result.unplaced:
        why = one.reasons
        unplaced.append(reasons.setdefault(id(why), (len(reasons), why))[0])
        pods.append(number_of[one.pod.uid])
    shared = kinds, list(requests), list(result.existing), [why for _, why in reasons.values()]
    return ResultArrays(
        _dumps(shared),
        _bytes(claims),
        _bytes(array("I", map(len, result.existing.values()))),
        _bytes(unplaced),
        _bytes(pods),
        result.usd_at_least,
    )


def unpack_result(arrays: ResultArrays, asked: Sequence[Pod], templates: Mapping[str, object]) -> Result:
    """The result of `pack_result`.

    Args:
        arrays: it.
        asked: the question's pods, in the order in which they were packed.
        templates: of the NodePools, by name; a NodePool that is absent gives its claims none.
    """
    kinds, requests, names, reasons = _loads(arrays.shared)
    placed = map(asked.__getitem__, _numbers("I", arrays.pods))
    fields = [{name: getattr(one, name) for name in PlannedClaim.__struct_fields__} for one in kinds]
    for one in fields:
        one["template"] = templates.get(one["pool"])
    numbers = iter(_numbers("I", arrays.claims))
    claims = []
    for kind in numbers:
        asks, count = requests[next(numbers)], next(numbers)
        values = {**fields[kind], "requests": asks, "pods": _take(placed, count)}
        claims.append(PlannedClaim(**values))
    counts = _numbers("I", arrays.existing)
    existing = {name: _take(placed, count) for name, count in zip(names, counts, strict=True)}
    unplaced = tuple([Unplaced(next(placed), reasons[why]) for why in _numbers("I", arrays.unplaced)])
    return Result(tuple(claims), existing, unplaced, arrays.usd_at_least)


def _kind_of(claim: PlannedClaim) -> object:
    """Equal for claims that differ in requests and pods only; what solvers share is compared by identity."""
    return (
        claim.pool,
        id(claim.requirements),
        id(claim.labels),
        id(claim.instance_types),
        claim.planned_type,
        claim.planned_zone,
        claim.planned_capacity_type,
        claim.usd_per_hour,
        claim.charge,
        claim.min_values_relaxed,
        claim.reservations,
        id(claim.reason),
    )


def _take(pods: Iterator[Pod], count: int) -> tuple[Pod, ...]:
    return tuple([next(pods) for _ in range(count)])


def _bytes(numbers: "array[int]") -> bytes:
    return numbers.tobytes()


def _numbers(code: str, data: bytes) -> Sequence[int]:
    numbers: array[int] = array(code)
    numbers.frombytes(data)
    return numbers


def _view(known: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(known)


def _reduced(view: MappingProxyType[Any, Any]) -> tuple[Callable[..., MappingProxyType[Any, Any]], tuple[object]]:
    return _view, (dict(view),)


copyreg.pickle(MappingProxyType, _reduced)  # snapshots give out views of their dicts


def _dumps(shared: object) -> bytes:
    return pickle.dumps(shared, protocol=pickle.HIGHEST_PROTOCOL)


def _loads(data: bytes) -> Any:
    return pickle.loads(data)  # noqa: S301 - written by a process of this program
