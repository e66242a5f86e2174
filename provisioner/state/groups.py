"""Which PodGroups kube-scheduler tries, and what keeps it from trying the others: their pods wait for no node, however long it takes.

It has all pods of a group in one queue entry, and places them in one cycle. Until the group is complete none of them gets a condition or an event, so
without this they would look like pods that nobody has got round to.

Source: kube-scheduler 1.37 (plugin GangScheduling, checks at the start of a group's cycle); PodGroup of scheduling.k8s.io/v1beta1.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple

from provisioner.apis.core import PodGroup
from provisioner.apis.meta import key_of
from provisioner.apis.pods import Pod

_NONE: Final[Mapping[str, "Group"]] = MappingProxyType({})


class GroupLack(enum.Enum):
    """What keeps kube-scheduler from trying a group; the first that holds is told."""

    UNKNOWN = enum.auto()
    INCOMPLETE = enum.auto()
    GATED = enum.auto()
    CONTRADICTION = enum.auto()


@dataclass(frozen=True, slots=True)
class Group:
    """A PodGroup and its pods.

    Attributes:
        key: namespace and name of the PodGroup.
        minimum: how many members it must have; 1 of a basic one, None where there is no such PodGroup.
        members: pods that name it and have not finished, gated and terminating ones among them.
        scheduled: how many of them are bound.
        gated: the name of a member with scheduling gates, "" where there is none.
        differing: fields of which members must all have one value, and have not.
    """

    key: str
    minimum: int | None
    members: int
    scheduled: int
    gated: str = ""
    differing: tuple[str, ...] = ()

    @property
    def lacks(self) -> GroupLack | None:
        """What keeps kube-scheduler from trying it; None of one that it tries."""
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
    """The members of one group, counted."""

    members: dict[str, tuple[_Sort, bool]] = field(default_factory=dict)  # by UID; whether it is bound
    sorts: Counter[_Sort] = field(default_factory=Counter)
    gated: dict[str, str] = field(default_factory=dict)  # name by UID
    scheduled: int = 0

    def put(self, pod: Pod) -> None:
        self.drop(pod.uid)
        shape, bound = pod.shape, bool(pod.node_name)
        sort = _Sort(shape.scheduler_name, shape.priority, shape.preemption_policy)
        self.members[pod.uid] = sort, bound
        self.sorts[sort] += 1
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
    """Groups as the watches tell them. Memory: an entry a member. An event is O(1), or O(members) where it turns whether the group is tried. Not thread-safe.

    Attributes:
        served: whether the API server has PodGroups; until that is known, members wait for their group. Where it has none, pods are single.
    """

    def __init__(self) -> None:
        self.served = True
        self._objects: dict[str, PodGroup] = {}
        self._tallies: dict[str, _Tally] = {}
        self._held: dict[str, Group] = {}  # groups with members that kube-scheduler does not try
        self._frozen: Mapping[str, Group] = _NONE

    def serve(self, *, served: bool) -> Iterable[str]:
        """Whether there are PodGroups; UIDs of pods that must be looked at again."""
        if served == self.served:
            return ()
        self.served, self._frozen = served, _NONE
        return [uid for key in self._held for uid in self._tallies[key].members]

    def changed(self, old: PodGroup | None, new: PodGroup | None) -> Iterable[str]:
        """A PodGroup was added, changed or removed; UIDs of pods that must be looked at again."""
        one = new or old
        if one is None:
            return ()
        key = key_of(one.metadata)
        if new is None:
            self._objects.pop(key, None)
        else:
            self._objects[key] = new
        return self._review(key)

    def pod_changed(self, pod: Pod, *, alive: bool) -> Iterable[str]:
        """A member was added, changed, or has finished; UIDs of the pods of its group that must be looked at again."""
        key = _key(pod)
        if alive:
            self._tallies.setdefault(key, _Tally()).put(pod)
        elif (tally := self._tallies.get(key)) is not None:
            tally.drop(pod.uid)
            if not tally.members:
                del self._tallies[key]
        return self._review(key)

    def holds(self, pod: Pod) -> bool:
        """Whether a pod waits for its group and for no node. O(1)."""
        return bool(pod.group) and self.served and _key(pod) in self._held

    def frozen(self) -> Mapping[str, Group]:
        """The groups that kube-scheduler does not try, by key; the same object while nothing changes."""
        if self._frozen is _NONE and self.served and self._held:
            self._frozen = MappingProxyType(dict(self._held))
        return self._frozen

    def _review(self, key: str) -> Iterable[str]:
        tally, before = self._tallies.get(key), self._held.get(key)
        after = None if tally is None else self._group(key, tally)
        if after is not None and after.lacks is None:
            after = None
        if after != before:
            self._frozen = _NONE
        if after is None:
            self._held.pop(key, None)
        else:
            self._held[key] = after
        is_other = (before is None) != (after is None)
        return tuple(tally.members) if tally is not None and is_other else ()

    def _group(self, key: str, tally: _Tally) -> Group:
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


def _key(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.group}"
