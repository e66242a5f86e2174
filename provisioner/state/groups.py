"""Which PodGroups kube-scheduler tries, and what keeps it from trying the others: their pods wait for no node, however long it takes.

It has all pods of a group in one queue entry, and places them in one cycle. Until the group is complete none of them gets a condition or an event, so
without this they would look like pods that nobody has got round to.

Volcano and the coscheduling plugin bind no pod of a group before as many as the group needs have places at once. Volcano, besides, tries none before its
queue has room for the group, by quota; nodes would not help it. Pods whose group it tries it marks as Unschedulable, Schedulable (one that would have a
place) or Undetermined (one that it did not come to).

Groups of annotations (`apis.gangs`) are counted here, too. kube-scheduler knows nothing of them; their pods wait for no node before as many as are
needed at once exist without scheduling gates. Once one of them runs, or one of the same controller has succeeded, the others are waited for no longer:
a Job makes fewer pods at its end.

Source: kube-scheduler 1.37 (plugin GangScheduling, checks at the start of a group's cycle); PodGroup of scheduling.k8s.io/v1beta1; Volcano 1.15 (actions
enqueue and allocate, plugin gang, JobInfo.TaskSchedulingReason); scheduler-plugins (Coscheduling: PreFilter and Permit).
"""

import enum
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from provisioner.apis import names
from provisioner.apis.core import AnyPodGroup, Job, PodGroup, VolcanoGroup
from provisioner.apis.gangs import GroupSource, group_of, key_of_object, minimum_of, source_of
from provisioner.apis.pods import Pod
from provisioner.state.knowledge import KindKnowledge

_NONE: Final[Mapping[str, "Group"]] = MappingProxyType({})
REST_SECONDS: Final = (60.0, 600.0)
"""For how long a group whose nodes were given up waits for none: at first, and at most."""
MOST_SCHEDULED: Final = 1000
"""Groups that were scheduled of which it is kept how long that took, until somebody asks."""
_NO_MINIMA: Final[Mapping[str, int]] = MappingProxyType({})
_NO_TOPOLOGY: Final[Mapping[str, str]] = MappingProxyType({})
_OF_MEMBERS: Final = frozenset((GroupSource.VOLCANO, GroupSource.COSCHEDULING))
_OF_OBJECTS: Final = (GroupSource.POD_GROUP, GroupSource.VOLCANO, GroupSource.COSCHEDULING)
_NOTHING_KNOWN: Final[Mapping[GroupSource, tuple[KindKnowledge, float]]] = MappingProxyType(
    dict.fromkeys(_OF_OBJECTS, (KindKnowledge.NOT_YET, -inf))
)
_UNREAD: Final = frozenset((KindKnowledge.NOT_YET, KindKnowledge.UNREADABLE))
_PARTIAL: Final = frozenset(("Schedulable", "Undetermined"))
"""Reasons of PodScheduled: the pod would have a place, or was not tried, because others of its group have none. Source: Volcano, unschedule_info.go."""


T = TypeVar("T")


class GroupLack(enum.Enum):
    """What keeps its scheduler from trying a group; the first that holds is told. Of one that is `UNREAD` nobody knows whether it is tried."""

    UNREAD = enum.auto()
    UNKNOWN = enum.auto()
    QUEUED = enum.auto()
    INCOMPLETE = enum.auto()
    GATED = enum.auto()
    CONTRADICTION = enum.auto()


@dataclass(frozen=True, slots=True)
class Group:
    """A group and its pods.

    Attributes:
        key: as of `apis.gangs.group_of`.
        minimum: how many members it must have; 1 of a basic PodGroup, None where there is no such PodGroup. Of one of Volcano, less those that have
            succeeded.
        members: pods that name it and have not finished, gated and terminating ones among them.
        scheduled: how many of them are bound.
        gated: the name of a member with scheduling gates, "" where there is none.
        differing: fields of which members must all have one value, and have not.
        unread: PodGroups cannot be read now, so only its scheduler knows what it lacks; or its Job has not been read yet.
        queued: it waits in a queue of Volcano.
    """

    key: str
    minimum: int | None
    members: int
    scheduled: int
    gated: str = ""
    differing: tuple[str, ...] = ()
    unread: bool = False
    queued: bool = False

    @property
    def least(self) -> int:
        """How many of its pods must run at once: all that have not finished, where nobody knows."""
        return min(self.minimum or self.members, self.members)

    @property
    def at_once(self) -> int:
        """How many of its pods must run, or have places, at once, where its scheduler tries it and these are several; else 0."""
        return self.minimum if self.lacks is None and self.minimum is not None and self.minimum > 1 else 0

    @property
    def runs(self) -> bool:
        """Whether as many of its pods as it needs are bound, or all that have not finished."""
        return self.scheduled >= self.least

    @property
    def lacks(self) -> GroupLack | None:
        """What keeps its scheduler from trying it; None of one that is tried."""
        if self.unread:
            return GroupLack.UNREAD
        if self.minimum is None:
            return GroupLack.UNKNOWN
        if self.queued:
            return GroupLack.QUEUED
        if self.members < self.minimum:
            return GroupLack.INCOMPLETE
        if self.gated:
            return GroupLack.GATED
        return GroupLack.CONTRADICTION if self.differing else None


class GroupRest(NamedTuple):
    """A group waits for no node, since its nodes were given up.

    Attributes:
        seconds: for how long altogether.
        left: how much of that is to come.
    """

    seconds: float
    left: float


class _Sort(NamedTuple):
    """What all members have in common in a group that kube-scheduler tries."""

    scheduler: str
    priority: int
    preemption: str


_MOST_SORTS: Final = 8
"""Are compared: anybody may write any schedulerName."""
_FIELDS: Final = ("spec.schedulerName", "spec.priority", "spec.preemptionPolicy")


@dataclass(slots=True)
class _Tally:
    """The members of one group, counted. The first of an OrderedDict is O(1) to find, however many before it are gone; of a dict it is not."""

    members: dict[str, tuple[_Sort, bool]] = field(default_factory=dict)  # by UID; whether it is bound
    sorts: OrderedDict[_Sort, int] = field(default_factory=OrderedDict)
    gated: OrderedDict[str, str] = field(default_factory=OrderedDict)  # name by UID
    scheduled: int = 0

    def put(self, pod: Pod) -> None:
        self.drop(pod.uid)
        shape, bound = pod.shape, bool(pod.node_name)
        sort = _Sort(shape.scheduler_name, shape.priority, shape.preemption_policy)
        self.members[pod.uid] = sort, bound
        self.sorts[sort] = self.sorts.get(sort, 0) + 1
        self.scheduled += bound
        if pod.gated:
            self.gated[pod.uid] = pod.name

    def drop(self, uid: str) -> None:
        if (known := self.members.pop(uid, None)) is None:
            return
        sort, bound = known
        self.scheduled -= bound
        self.sorts[sort] -= 1
        if not self.sorts[sort]:
            del self.sorts[sort]
        self.gated.pop(uid, None)


class GangJob(NamedTuple):
    """The Job that says how many pods a gang needs at once: those that run at the same time.

    Attributes:
        key: of the gang.
        namespace: of both.
        name: of the Job.
        uid: of the Job that made the pods; one of the same name may be another one by now.
    """

    key: str
    namespace: str
    name: str
    uid: str

    def says(self, found: Job | None) -> int:
        """The minimum that the Job of this name says; 0 where there is none, or where another one made the pods."""
        return found.spec.at_once if found is not None and found.metadata.uid == self.uid else 0


class PodGroups:
    """Groups as the watches tell them. Memory: an entry a member. Every event is O(1); the members of `turned` are for others to look at. Not thread-safe.

    Attributes:
        known: by source, what is known of its objects at all, and since when. While nobody has asked, every member waits for the answer. Where they
            cannot be read the scheduler's own verdict counts: kube-scheduler refuses no member of a group that it does not try, so a member that was
            refused waits for a node, and no other does. Where there are none pods are single.
        turned: keys of groups that turned to be tried, or not to be, since they were last taken out; each has members.
    """

    def __init__(self) -> None:
        self.known = _NOTHING_KNOWN
        self.turned: set[str] = set()
        self._objects: dict[str, AnyPodGroup] = {}
        self._tallies: dict[str, _Tally] = {}
        self._of: dict[str, str] = {}  # by UID of a member, the key of its group: annotations and labels change
        self._succeeded_of: dict[str, str] = {}  # likewise of pods that have succeeded, as far as these count
        self._succeeded: Counter[str] = Counter()  # how many of each gang
        self._minima: dict[str, int] = {}  # of the groups that are tried, where it is more than one
        self._frozen_minima: Mapping[str, int] = _NO_MINIMA
        self._at_once: dict[
            str, bool
        ] = {}  # by key of a PodGroup whose pods are disrupted all at once, whether consolidation may do that
        self._frozen_at_once: tuple[frozenset[str], frozenset[str]] | None = None  # all of them, and those that it may
        self._topology: dict[str, str] = {}  # by key of a PodGroup that says one, its topology key
        self._frozen_topology: Mapping[str, str] | None = None
        self._held: dict[str, Group] = {}  # groups with members that kube-scheduler does not try
        self._rests: dict[
            str, tuple[float, float]
        ] = {}  # of those whose nodes were given up: until when, and for how long
        self._tried: dict[str, float] = {}  # since when it tries the others
        self._unbound: set[str] = set()  # those of them of which no pod was bound when that began, and too few are
        self._scheduled: deque[float] = deque(
            maxlen=MOST_SCHEDULED
        )  # of those of which enough are: for how long it tried them
        self._frozen: Mapping[str, Group] = _NONE
        self._jobs: dict[str, GangJob] = {}  # of the gangs of which a Job says the minimum
        self._of_jobs: dict[str, int] = {}  # what they said; 0 where nobody can tell

    def know(self, now: float, known: KindKnowledge, source: GroupSource = GroupSource.POD_GROUP) -> None:
        """Something else is known of the objects of a source. O(groups)."""
        if known is not self.known[source][0]:
            self.known = MappingProxyType({**self.known, source: (known, now)})
            self._frozen, self._frozen_minima = _NONE, _NO_MINIMA
            self.turned |= {key for key in self._tallies if source_of(key) is source}

    def changed(self, now: float, old: AnyPodGroup | None, new: AnyPodGroup | None) -> None:
        """A PodGroup was added, changed or removed."""
        one = new or old
        if one is None:
            return
        key = key_of_object(one)
        if isinstance(one, PodGroup):
            self._note_extras(key, new if isinstance(new, PodGroup) else None)
        if new is None:
            self._objects.pop(key, None)
        else:
            self._objects[key] = new
        self._review(key, now)

    def _note_extras(self, key: str, new: PodGroup | None) -> None:
        allows = new.consolidated if new is not None and new.moves_together else None
        if allows != self._at_once.pop(key, None):
            self._frozen_at_once = None
        if allows is not None:
            self._at_once[key] = allows
        label = new.topology_key if new is not None else ""
        if label != self._topology.pop(key, ""):
            self._frozen_topology = None
        if label:
            self._topology[key] = label

    def pod_changed(self, now: float, pod: Pod, *, alive: bool, there: bool = False) -> None:
        """A pod was added, changed, or has finished, and is still `there`; of one without a group nothing is kept."""
        key = group_of(pod)
        ended = key if there and not alive and _tells_of_others(pod, key) else ""
        if ended or self._succeeded_of:
            self._succeeds(now, pod.uid, ended)
        if self._of and (before := self._of.pop(pod.uid, key)) != key:
            self._drop(now, before, pod.uid)
        if not key:
            return
        if not alive:
            self._drop(now, key, pod.uid)
            return
        self._of[pod.uid] = key
        self._tallies.setdefault(key, _Tally()).put(pod)
        if pod.owner is not None and not pod.group and key not in self._jobs and minimum_of(key) == 0:
            self._jobs[key] = GangJob(key, pod.namespace, pod.owner.name, pod.owner.uid)
        self._review(key, now)

    def _succeeds(self, now: float, uid: str, key: str) -> None:
        before = self._succeeded_of.pop(uid, "")
        if key:
            self._succeeded_of[uid] = key
            self._succeeded[key] += 1
        if before:
            self._succeeded[before] -= 1
            if not self._succeeded[before]:
                del self._succeeded[before]
        for one in {before, key} - {""} if before != key else ():
            self._review(one, now)

    def job_read(self, now: float, key: str, minimum: int) -> None:
        """What the Job of a gang says; 0 where nobody can tell, so that its pods are single. Of a gang without pods nothing is kept."""
        if key in self._jobs:
            self._of_jobs[key] = minimum
            self._review(key, now)

    def jobs(self) -> tuple[GangJob, ...]:
        """The Jobs that are to be read: of gangs that wait for what one says, or for more pods than it said. O(gangs of Jobs)."""
        return tuple([job for key, job in self._jobs.items() if key in self._held])

    def _drop(self, now: float, key: str, uid: str) -> None:
        if (tally := self._tallies.get(key)) is not None:
            tally.drop(uid)
            if not tally.members:
                del self._tallies[key]
                self._jobs.pop(key, None)
                self._of_jobs.pop(key, None)
        self._review(key, now)

    def tried_since(self, pod: Pod) -> float:
        """When its scheduler began to try the group of a pod, by the monotonic clock: infinity while the pod waits for its group and for no node. O(1)."""
        key = group_of(pod) if pod.group else self._of.get(pod.uid, "") if self._of else ""
        source = source_of(key) if key else GroupSource.ANNOTATIONS
        if source is GroupSource.ANNOTATIONS:
            return inf if key in self._held else self._tried.get(key, -inf)
        known, since = self.known[source]
        match known:
            case KindKnowledge.NOT_YET:
                return inf
            case KindKnowledge.UNREADABLE:
                return -inf if pod.unschedulable else inf
            case KindKnowledge.NOT_SERVED:
                return since
            case KindKnowledge.READ:
                return inf if key in self._held else max(since, self._tried.get(key, -inf))

    def is_left(self, pod: Pod) -> bool:
        """Whether the scheduler of a group left one of its pods without a node although it does not call the pod unschedulable: the others lack one. O(1)."""
        if pod.scheduled or pod.scheduled_reason not in _PARTIAL:
            return False
        source = source_of(self._of.get(pod.uid, ""))
        return source in _OF_MEMBERS and self.known[source][0] is KindKnowledge.READ

    def rest(self, now: float, key: str) -> float:
        """Nodes for a group were given up: it waits for none for a while, which doubles from time to time until it runs. How long, in seconds."""
        if key not in self._tallies:
            return 0.0
        _, before = self._rests.pop(key, (0.0, 0.0))
        seconds = min(2 * before or REST_SECONDS[0], REST_SECONDS[1])
        self._rests[key] = now + seconds, seconds
        return seconds

    def resting(self, now: float) -> Mapping[str, GroupRest]:
        """The groups that wait for no node now."""
        if not self._rests:
            return {}
        return {key: GroupRest(seconds, until - now) for key, (until, seconds) in self._rests.items() if until > now}

    def object_of(self, key: str) -> AnyPodGroup | None:
        """The PodGroup of this key, if there is one."""
        return self._objects.get(key)

    def of(self, key: str) -> Group | None:
        """One group; None where no pod is of it, or where PodGroups are not served, so that their pods are single. O(1)."""
        tally, source = self._tallies.get(key), source_of(key)
        known = KindKnowledge.READ if source is GroupSource.ANNOTATIONS else self.known[source][0]
        if tally is None or known is KindKnowledge.NOT_SERVED:
            return None
        found = self._group(key, tally)
        return found if known is KindKnowledge.READ else replace(found, unread=True)

    def every(self) -> Iterator[Group]:
        """All of them, in the order in which their first pods came. O(groups)."""
        return filter(None, map(self.of, self._tallies))

    def take_scheduled(self) -> tuple[float, ...]:
        """Of the groups of which enough pods were bound since this was last asked: for how many seconds kube-scheduler could try them before.

        Only of those of which no pod was bound when it began to. Where pods are read for the first time it begins then.
        """
        found = tuple(self._scheduled)
        self._scheduled.clear()
        return found

    def members(self, key: str) -> Iterable[str]:
        """UIDs of the members of a group."""
        tally = self._tallies.get(key)
        return tuple(tally.members) if tally is not None else ()

    def frozen(self) -> Mapping[str, Group]:
        """The groups that kube-scheduler does not try, by key, or of which nobody knows whether it does; the same object while nothing changes."""
        if self._frozen is _NONE:
            found = self._read(self._held)
            if any(known in _UNREAD for known, _ in self.known.values()):
                found |= {one.key: one for one in self.every() if one.unread}
            if found:
                self._frozen = MappingProxyType(found)
        return self._frozen

    def minima(self) -> Mapping[str, int]:
        """By key of a group that is tried, how many of its pods must run or have places at once, where these are several; the same object while nothing
        changes.
        """
        if self._frozen_minima is _NO_MINIMA and self._minima and (found := self._read(self._minima)):
            self._frozen_minima = MappingProxyType(found)
        return self._frozen_minima

    def together(self) -> frozenset[str]:
        """Keys of the PodGroups whose pods are disrupted all at once or not at all; the same object while nothing changes. O(these) after a change."""
        return self._both()[0]

    def consolidated(self) -> frozenset[str]:
        """Those of `together` that consolidation may disrupt; likewise."""
        return self._both()[1]

    def _both(self) -> tuple[frozenset[str], frozenset[str]]:
        if not self._is_read(GroupSource.POD_GROUP):
            return frozenset(), frozenset()
        if self._frozen_at_once is None:
            self._frozen_at_once = frozenset(self._at_once), frozenset(key for key, may in self._at_once.items() if may)
        return self._frozen_at_once

    def topology(self) -> Mapping[str, str]:
        """By key of a PodGroup whose pods must all run in one domain, the node label; the same object while nothing changes. O(these) after a change."""
        if not self._is_read(GroupSource.POD_GROUP) or not self._topology:
            return _NO_TOPOLOGY
        if self._frozen_topology is None:
            self._frozen_topology = MappingProxyType(dict(self._topology))
        return self._frozen_topology

    def _read(self, some: Mapping[str, T]) -> dict[str, T]:
        """What of this is known: of objects of one source nothing, unless they are read."""
        return {key: one for key, one in some.items() if self._is_read(source_of(key))}

    def _is_read(self, source: GroupSource) -> bool:
        return source is GroupSource.ANNOTATIONS or self.known[source][0] is KindKnowledge.READ

    def _review(self, key: str, now: float) -> None:
        tally, before = self._tallies.get(key), self._held.pop(key, None)
        after = None if tally is None else self._group(key, tally)
        least = after.at_once if after is not None else 0
        if after is not None and after.lacks is None:
            after = None
        if least != self._minima.get(key, 0):
            self._frozen_minima = _NO_MINIMA
            if least:
                self._minima[key] = least
            else:
                self._minima.pop(key, None)
        if after is not None:
            self._held[key] = after
        if after is not None or tally is None:
            self._tried.pop(key, None)
            self._unbound.discard(key)
        elif key not in self._tried:
            self._tried[key] = now
            self.turned.add(key)  # also of pods that waited without it
            if not tally.scheduled:
                self._unbound.add(key)
        elif key in self._unbound and tally.scheduled >= max(least, 1):
            self._unbound.discard(key)
            self._scheduled.append(now - self._tried[key])
        if tally is None or (least and tally.scheduled >= least):
            self._rests.pop(key, None)
        if after != before or not self._is_read(source_of(key)):
            self._frozen = _NONE
        if tally is None:
            self.turned.discard(key)
        elif (before is None) != (after is None):
            self.turned.add(key)

    def _group(self, key: str, tally: _Tally) -> Group:
        if (least := minimum_of(key)) is not None:
            if not least and (least := self._of_jobs.get(key)) is None:
                return Group(key, None, len(tally.members), tally.scheduled, unread=True)
            return _annotated(key, tally, least, ending=key in self._succeeded)
        found = self._objects.get(key)
        if source_of(key) in _OF_MEMBERS:
            return _of_members(key, tally, found, self._succeeded[key])
        sorts = list(islice(tally.sorts, _MOST_SORTS))
        if isinstance(found, PodGroup) and found.spec.priority is not None:
            sorts.append(sorts[0]._replace(priority=found.spec.priority))
        return Group(
            key,
            found.minimum if found is not None else None,
            len(tally.members),
            tally.scheduled,
            next(iter(tally.gated.values()), ""),
            tuple(name for name, values in zip(_FIELDS, zip(*sorts, strict=True), strict=True) if len(set(values)) > 1),
        )


def _tells_of_others(pod: Pod, key: str) -> bool:
    """Whether it has succeeded in a gang of one controller, which makes no more pods in its place; those of `gang-label` may be of an earlier run.
    Or for Volcano, which counts it.
    """
    if pod.phase != "Succeeded" or not key:
        return False
    source = source_of(key)
    return source is GroupSource.VOLCANO or (
        source is GroupSource.ANNOTATIONS and pod.owner is not None and names.GANG in pod.annotations
    )


def _of_members(key: str, tally: _Tally, found: AnyPodGroup | None, succeeded: int) -> Group:
    """Of pods that may differ in everything, and of which those with scheduling gates do not count."""
    members = len(tally.members)
    if found is None:
        return Group(key, None, members, tally.scheduled)
    least = max(found.minimum - succeeded, 1)
    gated = next(iter(tally.gated.values()), "") if members - len(tally.gated) < least else ""
    queued = isinstance(found, VolcanoGroup) and found.queued
    return Group(key, least, members, tally.scheduled, gated, queued=queued)


def _annotated(key: str, tally: _Tally, least: int, *, ending: bool) -> Group:
    members, ready = len(tally.members), len(tally.members) - len(tally.gated)
    least = min(least, max(ready, 1)) if tally.scheduled or ending else least
    gated = next(iter(tally.gated.values()), "") if ready < least else ""
    return Group(key, least, members, tally.scheduled, gated)
