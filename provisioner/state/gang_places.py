"""How far gangs are: what they wait for, and where their pods have places while nodes come. Not thread-safe: the owner serialises calls."""

import enum
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from provisioner.apis import names
from provisioner.apis.core import AnyPodGroup
from provisioner.apis.gangs import GroupSource, group_of, source_of
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.launches import is_launched, may_have_instance
from provisioner.apis.meta import is_true
from provisioner.apis.pods import Pod, is_daemon
from provisioner.state.assignments import Assignments
from provisioner.state.groups import Group, GroupLack, GroupRest, PodGroups
from provisioner.state.joining import Joining
from provisioner.state.keys import NodeKey
from provisioner.state.pod_index import PodIndex


class ComingNode(NamedTuple):
    """A NodeClaim that a gang needs beside others, and whose Node was not let in yet.

    Attributes:
        members: pods of the gang that are planned there.
        begun: it has an instance, or may have one.
        ready: its Node has come, and is Ready.
        shared: a pod that is not of the gang is planned there, or any but a daemon runs there.
    """

    claim: NodeClaim
    members: int
    begun: bool
    ready: bool
    shared: bool

    @property
    def launched(self) -> bool:
        """Whether it has an instance."""
        return is_launched(self.claim)


class ComingGang(NamedTuple):
    """A gang that nodes come for.

    Attributes:
        group: its key.
        minimum: how many of its pods must run at once; 0 where nobody knows, or one is enough.
        bound: how many run on a node.
        placed: how many run, or are planned on a node.
        rests: its nodes were given up a while ago.
        nodes: that are to come, by name.
    """

    group: str
    minimum: int
    bound: int
    placed: int
    rests: bool
    nodes: tuple[ComingNode, ...]

    @property
    def is_bound(self) -> bool:
        """Whether as many of its pods run as must: it needs none of its nodes."""
        return self.bound >= self.minimum

    @property
    def has_places(self) -> bool:
        """Whether as many of its pods as must run do, or are planned on a node."""
        return self.placed >= self.minimum


class GangState(enum.StrEnum):
    """How far a gang is; the first that holds.

    RUNNING: as many pods as it needs are bound, or all that have not finished.
    UNREAD, UNKNOWN, QUEUED, INCOMPLETE, GATED, CONTRADICTION: see `GroupLack`; nobody schedules its pods.
    GIVEN_UP: its nodes were given up, and it waits for none now.
    LAUNCHING: nodes come that are launched for it.
    PLACED: as many pods as it needs are bound or have places.
    WAITING: they have none.
    """

    RUNNING = "running"
    UNREAD = "unread"
    UNKNOWN = "unknown"
    QUEUED = "queued"
    INCOMPLETE = "incomplete"
    GATED = "gated"
    CONTRADICTION = "contradiction"
    GIVEN_UP = "given_up"
    LAUNCHING = "launching"
    PLACED = "placed"
    WAITING = "waiting"


_LACKING: Final = {lack: GangState[lack.name] for lack in GroupLack}


class GangStanding(NamedTuple):
    """A gang, and how far it is.

    Attributes:
        group: its pods, counted.
        state: how far it is.
        placed: how many pods are bound, or have a place; of one that lacks something, or runs, only those that are bound.
        coming: NodeClaims that it needs, and whose Nodes were not let in yet.
        rest: for how long it waits for no node; None where it does not.
    """

    group: Group
    state: GangState
    placed: int
    coming: tuple[ComingNode, ...] = ()
    rest: GroupRest | None = None

    @property
    def source(self) -> GroupSource:
        return source_of(self.group.key)


class GangPlaces:
    """See the module."""

    def __init__(self, joining: Joining, pods: PodIndex, assignments: Assignments, groups: PodGroups) -> None:
        self._joining, self._pods, self._assignments, self._groups = joining, pods, assignments, groups

    def coming(self, now: float) -> tuple[ComingGang, ...]:
        """The gangs that launch sets of several NodeClaims come for. Cost: their pods, and those of these nodes; nothing without any."""
        awaited = self._joining.sets.awaited()
        if not awaited:
            return ()
        resting = self._groups.resting(now)
        return tuple([self._gang(key, sorted(claims), rests=key in resting) for key, claims in sorted(awaited.items())])

    def standing(self, now: float, key: str) -> GangStanding | None:
        """One gang; None where no pod is of it. Cost: its pods, and those of the nodes that come for it."""
        group = self._groups.of(key)
        if group is None:
            return None
        resting = self._groups.resting(now)
        coming = [self._node(key, name) for name in sorted(self._joining.sets.awaited_by(key))]
        return self._standing(group, resting)._replace(coming=tuple(coming), rest=resting.get(key))

    def standings(self, now: float) -> tuple[GangStanding, ...]:
        """All of them, without `coming` and `rest`. Cost: the gangs, and the pods of those that kube-scheduler tries and that do not run."""
        resting = self._groups.resting(now)
        return tuple([self._standing(group, resting) for group in self._groups.every()])

    def _standing(self, group: Group, resting: Mapping[str, GroupRest]) -> GangStanding:
        if group.runs:
            return GangStanding(group, GangState.RUNNING, group.scheduled)
        if (lack := group.lacks) is not None:
            return GangStanding(group, _LACKING[lack], group.scheduled)
        placed = self._placed(group)
        if group.key in resting:
            state = GangState.GIVEN_UP
        elif self._joining.sets.awaited_by(group.key):
            state = GangState.LAUNCHING
        else:
            state = GangState.PLACED if placed >= group.least else GangState.WAITING
        return GangStanding(group, state, placed)

    def told_of(self, key: str) -> tuple[AnyPodGroup | None, Pod | None]:
        """The objects that events of a gang are about: its PodGroup, where there is one, and the first of its pods by name. O(its pods)."""
        return self._groups.object_of(key), min(self._pods_of(key), key=lambda pod: pod.name, default=None)

    def launched_with(self, name: str) -> dict[str, int]:
        """The gangs for which a NodeClaim is launched and was the last that had to be; how many NodeClaims come for each. O(these)."""
        found = {key: self._joining.sets.awaited_by(key) for key in self._joining.sets.groups_of(name)}
        return {
            key: len(some) for key, some in found.items() if all(is_launched(self._joining.claims[one]) for one in some)
        }

    def _pods_of(self, key: str) -> Iterator[Pod]:
        return filter(None, map(self._pods.get, self._groups.members(key)))

    def _is_planned(self, pod: Pod) -> bool:
        return not pod.node_name and self._assignments.is_planned(pod.uid)

    def _placed(self, group: Group) -> int:
        """How many of its pods are bound, or have a place. O(its pods)."""
        return group.scheduled + sum(map(self._is_planned, self._pods_of(group.key)))

    def _gang(self, key: str, claims: list[str], *, rests: bool) -> ComingGang:
        nodes = tuple([self._node(key, one) for one in claims])
        if (group := self._groups.of(key)) is None:
            return ComingGang(key, 0, 0, 0, rests, nodes)
        return ComingGang(key, group.at_once, group.scheduled, self._placed(group), rests, nodes)

    def _node(self, group: str, name: str) -> ComingNode:
        claim = self._joining.claims[name]
        node = self._joining.node_of(claim)
        planned = [self._pods.get(one.uid) for one in self._assignments.on(NodeKey(name)) if one.uid]
        mine = [pod is not None and group_of(pod) == group for pod in planned]
        runs = node is not None and not all(map(is_daemon, self._pods.on(node.metadata.name)))
        ready = node is not None and is_true(node.status.conditions, names.READY)
        return ComingNode(claim, sum(mine), may_have_instance(claim), ready, runs or not all(mine))
