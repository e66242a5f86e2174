"""Which PodGroups kube-scheduler tries, and what keeps it from trying the others: their pods wait for no node, however long it takes.

It has all pods of a group in one queue entry, and places them in one cycle. Until the group is complete none of them gets a condition or an event, so
without this they would look like pods that nobody has got round to.

Groups of annotations (`apis.gangs`) are counted here, too. kube-scheduler knows nothing of them; their pods wait for no node before as many as are
needed at once exist without scheduling gates. Once one of them runs, the others are waited for no longer: of a Job's pods some may have finished.

Source: kube-scheduler 1.37 (plugin GangScheduling, checks at the start of a group's cycle); PodGroup of scheduling.k8s.io/v1beta1.
"""

import enum
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from provisioner.apis.core import PodGroup
from provisioner.apis.gangs import group_of, minimum_of
from provisioner.apis.meta import key_of
from provisioner.apis.pods import Pod

_NONE: Final[Mapping[str, "Group"]] = MappingProxyType({})
_NO_MINIMA: Final[Mapping[str, int]] = MappingProxyType({})


T = TypeVar("T")


class GroupKnowledge(enum.Enum):
    """What is known of the PodGroups of the cluster.

    NOT_YET: nobody has asked; every member waits for the answer.
    UNREADABLE: they may not be read, or their watch is behind. Then kube-scheduler's own verdict counts: it refuses no member of a group that it
        does not try, so a member that was refused waits for a node, and no other does.
    READ: they are as the watch tells them.
    NOT_SERVED: the API server has none, so pods are single.
    """

    NOT_YET = enum.auto()
    UNREADABLE = enum.auto()
    READ = enum.auto()
    NOT_SERVED = enum.auto()


class GroupLack(enum.Enum):
    """What keeps kube-scheduler from trying a group; the first that holds is told. Of one that is `UNREAD` nobody knows whether it is tried."""

    UNREAD = enum.auto()
    UNKNOWN = enum.auto()
    INCOMPLETE = enum.auto()
    GATED = enum.auto()
    CONTRADICTION = enum.auto()


@dataclass(frozen=True, slots=True)
class Group:
    """A group and its pods.

    Attributes:
        key: as of `apis.gangs.group_of`.
        minimum: how many members it must have; 1 of a basic PodGroup, None where there is no such PodGroup.
        members: pods that name it and have not finished, gated and terminating ones among them.
        scheduled: how many of them are bound.
        gated: the name of a member with scheduling gates, "" where there is none.
        differing: fields of which members must all have one value, and have not.
        unread: PodGroups cannot be read now, so only kube-scheduler knows what it lacks.
    """

    key: str
    minimum: int | None
    members: int
    scheduled: int
    gated: str = ""
    differing: tuple[str, ...] = ()
    unread: bool = False

    @property
    def lacks(self) -> GroupLack | None:
        """What keeps kube-scheduler from trying it; None of one that it tries."""
        if self.unread:
            return GroupLack.UNREAD
        if self.minimum is None:
            return GroupLack.UNKNOWN
        if self.members < self.minimum:
            return GroupLack.INCOMPLETE
        if self.gated:
            return GroupLack.GATED
        return GroupLack.CONTRADICTION if self.differing else None


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


class PodGroups:
    """Groups as the watches tell them. Memory: an entry a member. Every event is O(1); the members of `turned` are for others to look at. Not thread-safe.

    Attributes:
        known: what is known of PodGroups at all.
        turned: keys of groups that turned to be tried, or not to be, since they were last taken out; each has members.
    """

    def __init__(self) -> None:
        self.known = GroupKnowledge.NOT_YET
        self.turned: set[str] = set()
        self._known_since = -inf
        self._objects: dict[str, PodGroup] = {}
        self._tallies: dict[str, _Tally] = {}
        self._of: dict[str, str] = {}  # by UID of a member, the key of its group: annotations change
        self._minima: dict[str, int] = {}  # of the groups that are tried, where it is more than one
        self._frozen_minima: Mapping[str, int] = _NO_MINIMA
        self._held: dict[str, Group] = {}  # groups with members that kube-scheduler does not try
        self._tried: dict[str, float] = {}  # since when it tries the others
        self._frozen: Mapping[str, Group] = _NONE

    def know(self, now: float, known: GroupKnowledge) -> None:
        """Something else is known of PodGroups. O(groups)."""
        if known is not self.known:
            self.known, self._known_since, self._frozen, self._frozen_minima = known, now, _NONE, _NO_MINIMA
            self.turned |= self._tallies.keys()

    def changed(self, now: float, old: PodGroup | None, new: PodGroup | None) -> None:
        """A PodGroup was added, changed or removed."""
        one = new or old
        if one is None:
            return
        key = key_of(one.metadata)
        if new is None:
            self._objects.pop(key, None)
        else:
            self._objects[key] = new
        self._review(key, now)

    def pod_changed(self, now: float, pod: Pod, *, alive: bool) -> None:
        """A pod was added, changed, or has finished; of one without a group nothing is kept."""
        key = group_of(pod)
        if self._of and (before := self._of.pop(pod.uid, key)) != key:
            self._drop(now, before, pod.uid)
        if not key:
            return
        if not alive:
            self._drop(now, key, pod.uid)
            return
        self._of[pod.uid] = key
        self._tallies.setdefault(key, _Tally()).put(pod)
        self._review(key, now)

    def _drop(self, now: float, key: str, uid: str) -> None:
        if (tally := self._tallies.get(key)) is not None:
            tally.drop(uid)
            if not tally.members:
                del self._tallies[key]
        self._review(key, now)

    def tried_since(self, pod: Pod) -> float:
        """When kube-scheduler began to try the group of a pod, by the monotonic clock: infinity while the pod waits for its group and for no node. O(1)."""
        if not pod.group:
            key = self._of.get(pod.uid, "") if self._of else ""
            return inf if key in self._held else self._tried.get(key, -inf)
        match self.known:
            case GroupKnowledge.NOT_YET:
                return inf
            case GroupKnowledge.UNREADABLE:
                return -inf if pod.unschedulable else inf
            case GroupKnowledge.NOT_SERVED:
                return self._known_since
            case GroupKnowledge.READ:
                key = group_of(pod)
                return inf if key in self._held else max(self._known_since, self._tried.get(key, -inf))

    def members(self, key: str) -> Iterable[str]:
        """UIDs of the members of a group."""
        tally = self._tallies.get(key)
        return tuple(tally.members) if tally is not None else ()

    def frozen(self) -> Mapping[str, Group]:
        """The groups that kube-scheduler does not try, by key, or of which nobody knows whether it does; the same object while nothing changes."""
        if self._frozen is _NONE:
            found = self._read(self._held)
            if self.known in {GroupKnowledge.NOT_YET, GroupKnowledge.UNREADABLE}:
                unread = {key: one for key, one in self._tallies.items() if minimum_of(key) is None}
                found |= {key: replace(self._group(key, one), unread=True) for key, one in unread.items()}
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

    def _read(self, some: Mapping[str, T]) -> dict[str, T]:
        """What of this is known: of PodGroups nothing, unless they are read."""
        if self.known is GroupKnowledge.READ:
            return dict(some)
        return {key: one for key, one in some.items() if minimum_of(key) is not None}

    def _review(self, key: str, now: float) -> None:
        tally, before = self._tallies.get(key), self._held.pop(key, None)
        after = None if tally is None else self._group(key, tally)
        least = 0
        if after is not None and after.lacks is None:
            least = after.minimum if after.minimum is not None and after.minimum > 1 else 0
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
        elif key not in self._tried:
            self._tried[key] = now
        if after != before or self.known is not GroupKnowledge.READ:
            self._frozen = _NONE
        if tally is None:
            self.turned.discard(key)
        elif (before is None) != (after is None):
            self.turned.add(key)

    def _group(self, key: str, tally: _Tally) -> Group:
        if (least := minimum_of(key)) is not None:
            return _annotated(key, tally, least)
        found = self._objects.get(key)
        sorts = list(islice(tally.sorts, _MOST_SORTS))
        if found is not None and found.spec.priority is not None:
            sorts.append(sorts[0]._replace(priority=found.spec.priority))
        return Group(
            key,
            found.minimum if found is not None else None,
            len(tally.members),
            tally.scheduled,
            next(iter(tally.gated.values()), ""),
            tuple(name for name, values in zip(_FIELDS, zip(*sorts, strict=True), strict=True) if len(set(values)) > 1),
        )


def _annotated(key: str, tally: _Tally, least: int) -> Group:
    members, ready = len(tally.members), len(tally.members) - len(tally.gated)
    least = min(least, ready) if tally.scheduled else least
    gated = next(iter(tally.gated.values()), "") if ready < least else ""
    return Group(key, least, members, tally.scheduled, gated)
