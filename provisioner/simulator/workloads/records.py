"""A day from a history: from the segments of `dovetail record`, or of the leader. Pure.

A history counts pods by class; it names neither pods nor their owners. So this is inferred:

- **Workloads.** All pods of one class and owner kind are one workload, but those of Jobs and pods of their own: there, the pods of a class that came in
  the same moment are one. Two Deployments of equal pods are one; one Deployment before and after a change of its template is two.
- **What is a replacement.** A pod that comes within `REPLACED_SECONDS` after one of its class was deleted replaces it, and no more is said of both: so
  evictions, restarts and drains of the recorded cluster do not happen again by themselves. A rollout whose pods stay equal is not seen either.
- **Lifetimes** are told of pods of Jobs, and of their own, that succeeded or failed: for so many seconds one had been on its node. Which pod of its class
  that was is not told; it is taken to be the one that came first. Those that were deleted, or still run when the record ends, end then or run on.
- **Other owners** (StatefulSets and the rest) are Deployments here.
- **DaemonSets** are DaemonSets of one class each, whenever it was first seen; pods of Nodes (mirror pods) are left out.
- **Templates** have what decides where pods run: requests, labels that selectors see, selectors, affinity, tolerations, spread, ports, priority, the
  annotation do-not-disrupt and the grace period. Not images, limits, probes, or how long pods take to start; volumes and resource claims are left out, since
  no history has the claims that they name. Classes that a later version wrote are left out and told.
- **Gaps.** Where a record has one, pods that are there after it and were not before come at its end, and pods that are not there any more go then.

NodePools are told beside the day, as they were at its start and as they changed: whoever tries others leaves them out. What became of nodes, decisions,
prices and interruptions is no part of a day.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from provisioner.apis import names
from provisioner.apis.shapes import PodShape
from provisioner.history.entries import (
    AnyHistoryEntry,
    ClassSeen,
    Gap,
    HistoryPodClass,
    PodEnd,
    PodsArrived,
    PodsEnded,
    PodsStanding,
    PoolSeen,
)
from provisioner.history.pod_classes import is_daemon_class, is_mirror_class, shape_of_class
from provisioner.history.segments import Segment, SegmentError
from provisioner.simulator.workload import MOST_PODS_OF_DAY, MOST_SECONDS, Apply, Arrival, Change, Day, OwnerKind, Scale
from provisioner.simulator.workloads.errors import WorkloadError

REPLACED_SECONDS: Final = 60.0
"""A controller makes a pod again within seconds; on a busy API server it may take longer."""
_JOB, _NONE = "Job", ""
_MOST_CLASSES: Final = 20_000
_MOST_POOLS: Final = 10_000
_MOST_RECKONED: Final = 20_000_000
"""Classes that are looked at where segments do not follow each other, of all such places together."""
_LEAST_SECONDS: Final = 1.0
_DIGITS: Final = 3


@dataclass(frozen=True, slots=True)
class RecordedDay:
    """What a history comes to.

    Attributes:
        began: of the record, in seconds since 1970.
        pools: NodePools as objects, to be put among the changes of the day or left out; one that was deleted stays.
        problems: what was left out, a sentence each.
    """

    day: Day
    began: float
    pools: tuple[Apply, ...]
    problems: tuple[str, ...]


def day_of_segments(
    segments: Sequence[Segment], heard: Callable[[float, AnyHistoryEntry], object] = lambda *_: None
) -> RecordedDay:
    """The day that these segments tell, from the beginning of the first to the end of the last; see the module.

    Args:
        segments: of one source, by time, as `history.stores.read_directory` has them. One that cannot be read to its end is told, and what follows counts.
        heard: is called with every entry that could be read and its time in seconds since 1970, those of openings too.

    Raises:
        WorkloadError: there is nothing in them, it is longer than 31 days, or more than `MOST_PODS_OF_DAY` pods come.

    Cost: O(entries).
    """
    if not segments:
        raise WorkloadError("there is no segment of a history; give the directory that dovetail record wrote")
    began, ended = segments[0].head.began, max(one.head.ended for one in segments)
    if not 0 < ended - began <= MOST_SECONDS:
        raise WorkloadError(f"the record lasts {ended - began:g} s; give segments of more than 0 s and at most 31 days")
    replay = _Replay(began, ended, heard)
    before = ""
    for one in segments:
        replay.begin(one, follows=bool(before) and one.head.follows == before)
        before = one.head.id
    return replay.day()


@dataclass(slots=True)
class _Kind:
    """The pods of one class.

    Attributes:
        count: that there are, or whose replacement is awaited.
        gone: when each of those was deleted whose replacement may still come.
        steps: of a workload that is scaled: when, and how many pods there were from then on.
        open: of Jobs: arrivals of which pods have not ended, each with how many.
        lives: of Jobs: by arrival, the lifetimes that are known.
        came: likewise, how many pods.
    """

    pod_class: HistoryPodClass
    number: int
    count: int = 0
    gone: deque[float] = field(default_factory=deque)
    steps: list[tuple[float, int]] = field(default_factory=list)
    open: deque[list[float]] = field(default_factory=deque)
    lives: dict[float, list[float]] = field(default_factory=dict)
    came: dict[float, int] = field(default_factory=dict)

    @property
    def ends_by_itself(self) -> bool:
        return self.pod_class.owner_kind in (_JOB, _NONE)

    def arrive(self, at: float, count: int) -> None:
        self.settle(at)
        replaced = min(count, len(self.gone))
        for _ in range(replaced):
            self.gone.popleft()
        self._add(at, count - replaced)

    def _add(self, at: float, more: int) -> None:
        if not more:
            return
        self.count += more
        if self.ends_by_itself:
            self.came[at] = self.came.get(at, 0) + more
            self.open.append([at, more])
        else:
            self._step(at)

    def end(self, at: float, how: PodEnd, seconds: Sequence[int]) -> None:
        self.settle(at)
        if how is PodEnd.DELETED or not self.ends_by_itself:
            self.gone.extend([at] * len(seconds))
            return
        for life in seconds:
            arrived = self._take()
            if arrived is not None:  # one that ran before the record began has only the rest of its life in it
                self.lives.setdefault(arrived, []).append(min(float(life), at - arrived))

    def _take(self) -> float | None:
        if not self.open:
            return None
        first = self.open[0]
        first[1] -= 1
        if not first[1]:
            self.open.popleft()
        self.count -= 1
        return first[0]

    def settle(self, at: float) -> None:
        """Whoever was not replaced by now was not to be."""
        while self.gone and self.gone[0] < at - REPLACED_SECONDS:
            then = self.gone.popleft()
            if self.ends_by_itself:
                arrived = self._take()
                if arrived is not None:
                    self.lives.setdefault(arrived, []).append(then - arrived)
            elif self.count:
                self.count -= 1
                self._step(then)

    def _step(self, at: float) -> None:
        at = max(at, self.steps[-1][0]) if self.steps else at
        if self.steps and self.steps[-1][0] == at:
            self.steps.pop()
        self.steps.append((at, self.count))


class _Replay:
    def __init__(self, began: float, ended: float, heard: Callable[[float, AnyHistoryEntry], object]) -> None:
        self._began, self._ended, self._heard = began, ended, heard
        self._kinds: dict[bytes, _Kind] = {}
        self._numbers: dict[int, _Kind] = {}
        self._pools: list[Apply] = []
        self._problems: dict[str, None] = {}
        self._pods = self._reckoned = 0

    def begin(self, segment: Segment, *, follows: bool) -> None:
        """A segment; where it does not follow the last one, what stands at its beginning is new, or was missed."""
        self._numbers = {}
        standing: Counter[bytes] = Counter()
        at = segment.head.began - self._began
        try:
            for entry in segment.opening:
                self._heard(segment.head.began, entry)
                if isinstance(entry, PodsStanding) and (kind := self._numbers.get(entry.pod_class)) is not None:
                    standing[_key(kind.pod_class)] += entry.count
                elif isinstance(entry, ClassSeen) or (isinstance(entry, PoolSeen) and not follows):
                    self._entry(at, entry)
            if not follows:
                self._stand(at, standing)
            for then, one in segment:
                self._heard(then, one)
                self._entry(then - self._began, one)
        except SegmentError as error:
            self._problems[f"the rest of a segment is left out: {error}"] = None

    def _stand(self, at: float, standing: Mapping[bytes, int]) -> None:
        self._reckoned += len(self._kinds)
        if self._reckoned > _MOST_RECKONED:
            raise WorkloadError("the record has too many gaps and classes of pods; give fewer segments")
        for key, kind in self._kinds.items():
            kind.settle(at + 2 * REPLACED_SECONDS)
            more = standing.get(key, 0) - kind.count
            if more > 0:
                self._arrive(kind, at, more)
            elif more < 0:
                kind.end(at, PodEnd.DELETED, (0,) * -more)
                kind.settle(at + 2 * REPLACED_SECONDS)

    def _entry(self, at: float, entry: AnyHistoryEntry) -> None:
        match entry:
            case ClassSeen():
                key = _key(entry.pod_class)
                kind = self._kinds.get(key)
                if kind is None:
                    if len(self._kinds) >= _MOST_CLASSES:
                        raise WorkloadError(
                            f"the record has more than {_MOST_CLASSES:,} classes of pods; give fewer segments"
                        )
                    kind = self._kinds[key] = _Kind(entry.pod_class, len(self._kinds))
                self._numbers[entry.number] = kind
            case PodsArrived() if (kind := self._numbers.get(entry.pod_class)) is not None:
                self._arrive(kind, at, entry.count)
            case PodsEnded() if (kind := self._numbers.get(entry.pod_class)) is not None:
                kind.end(at, entry.how, entry.seconds)
            case PoolSeen() if entry.spec is not None:
                body = {
                    "apiVersion": "karpenter.sh/v1",
                    "kind": "NodePool",
                    "metadata": {"name": entry.name},
                    "spec": entry.spec,
                }
                if len(self._pools) >= _MOST_POOLS:
                    raise WorkloadError(f"NodePools change more than {_MOST_POOLS:,} times; give fewer segments")
                self._pools.append(Apply(at=self._within(at), object=body))
            case Gap():
                self._problems["changes were dropped while the record was made, since there were too many at once"] = (
                    None
                )
            case _:
                pass

    def _arrive(self, kind: _Kind, at: float, count: int) -> None:
        self._pods += count
        if self._pods > MOST_PODS_OF_DAY:
            raise WorkloadError(f"more than {MOST_PODS_OF_DAY:,} pods come in this record; give fewer segments")
        kind.arrive(at, count)

    def _within(self, at: float) -> float:
        last = self._ended - self._began
        return round(min(max(0.0, at), last - min(_LEAST_SECONDS, last / 2)), _DIGITS)

    def day(self) -> RecordedDay:
        changes: list[Change] = []
        for kind in self._kinds.values():
            kind.settle(self._ended - self._began + 2 * REPLACED_SECONDS)
            changes += self._workload(kind)
        changes.sort(key=lambda one: one.at)
        day = Day(duration_seconds=self._ended - self._began, changes=tuple(changes))
        return RecordedDay(day, self._began, tuple(self._pools), tuple(self._problems))

    def _workload(self, kind: _Kind) -> list[Change]:
        if is_mirror_class(kind.pod_class):
            return []
        try:
            template, cut = _template(kind.pod_class)
        except (msgspec.ValidationError, ValueError, TypeError):
            self._problems["pods of classes that this version does not know are left out"] = None
            return []
        if cut:
            self._problems[f"{cut} of pods are left out"] = None
        name, namespace = f"class-{kind.number:04d}", kind.pod_class.namespace or "default"
        if is_daemon_class(kind.pod_class):
            return [Apply(at=0.0, object=_daemon_set(name, namespace, template))]
        return self._jobs(kind, name, template) if kind.ends_by_itself else self._deployment(kind, name, template)

    def _deployment(self, kind: _Kind, name: str, template: dict[str, Any]) -> list[Change]:
        namespace = kind.pod_class.namespace or "default"
        found: list[Change] = []
        for at, count in kind.steps:
            when = self._within(at)
            if not found:
                found.append(Arrival(at=when, name=name, namespace=namespace, template=template, count=count))
            else:
                found.append(Scale(at=when, name=name, namespace=namespace, count=count))
        return found

    def _jobs(self, kind: _Kind, name: str, template: dict[str, Any]) -> list[Change]:
        namespace = kind.pod_class.namespace or "default"
        own: OwnerKind = "Job" if kind.pod_class.owner_kind == _JOB else "Pod"
        found: list[Change] = []
        for number, (at, count) in enumerate(sorted(kind.came.items())):
            lives = [round(min(MOST_SECONDS, max(_LEAST_SECONDS, one)), _DIGITS) for one in kind.lives.get(at, ())]
            common: dict[str, Any] = {"at": self._within(at), "namespace": namespace, "kind": own, "template": template}
            if lives:
                found.append(Arrival(name=f"{name}-{number:05d}", count=len(lives), lifetimes=tuple(lives), **common))
            if count > len(lives):
                found.append(Arrival(name=f"{name}-{number:05d}-on", count=count - len(lives), **common))
        return found


def _key(pod_class: HistoryPodClass) -> bytes:
    return msgspec.json.encode(pod_class, order="deterministic")


def _daemon_set(name: str, namespace: str, template: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": template["metadata"]["labels"]}, "template": template},
    }


def _template(pod_class: HistoryPodClass) -> tuple[dict[str, Any], str]:
    """The template of such pods, and what of them it does not have."""
    shape = shape_of_class(pod_class)
    requests = {key: value for key, value in shape.requests.to_wire().items() if key != names.PODS}
    container: dict[str, Any] = {"name": "main", "resources": {"requests": requests}}
    if shape.host_ports:
        container["ports"] = [msgspec.to_builtins(one) for one in shape.host_ports]
    spec: dict[str, Any] = {"containers": [container], **_placement(shape)}
    if pod_class.grace_seconds is not None:
        spec["terminationGracePeriodSeconds"] = pod_class.grace_seconds
    metadata: dict[str, Any] = {"labels": dict(shape.labels)}
    if pod_class.do_not_disrupt:
        metadata["annotations"] = {names.DO_NOT_DISRUPT: pod_class.do_not_disrupt}
    cut = [what for what, some in (("volumes", shape.volumes), ("resource claims", shape.resource_claims)) if some]
    return {"metadata": metadata, "spec": spec}, " and ".join(cut)


def _placement(shape: PodShape) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "nodeSelector": dict(shape.node_selector),
        "affinity": None if shape.affinity is None else msgspec.to_builtins(shape.affinity),
        "tolerations": [msgspec.to_builtins(one) for one in shape.tolerations],
        "topologySpreadConstraints": [msgspec.to_builtins(one) for one in shape.spread],
        "priority": shape.priority,
    }
    return {key: value for key, value in fields.items() if value}
