"""Which unbound pods wait for a node of ours: the one answer for provisioning, disruption and whoever explains them.

Source: core spec 3.3; design 3b.5.
"""

import enum
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import timedelta
from math import inf
from typing import Final

import msgspec

from provisioner.apis import names
from provisioner.apis.core import AnyPodGroup
from provisioner.apis.gangs import GroupSource, group_of
from provisioner.apis.pods import STUCK_AFTER, Pod, is_daemon, is_mirror, is_pending, is_terminal, opted_out
from provisioner.state.assignments import Assignments
from provisioner.state.groups import PodGroups
from provisioner.state.knowledge import KindKnowledge
from provisioner.state.misses import Stop
from provisioner.state.ordered import Ordered
from provisioner.state.pod_index import PodIndex

IMAGES_SECONDS: Final = 5.0
"""For so long at most a pod whose images are being looked up does not wait for a node, from the moment at which it was seen."""


class PodSight(msgspec.Struct, frozen=True, gc=False):
    """What is known of an unbound pod beside its object; times are of the monotonic clock.

    Attributes:
        since: when it was first seen without scheduling gates; infinity before.
        reported: the extender said that kube-scheduler left it without a node.
        deferred_until: when its images will have been looked up for long enough.
    """

    since: float = inf
    reported: bool = False
    deferred_until: float = -inf


NOT_SEEN: Final = PodSight()


class NeverWaits(enum.Enum):
    """Why a pod, as it is, waits for no node of ours, whatever its scheduler says of it."""

    FINISHED = enum.auto()
    BOUND = enum.auto()
    DELETED = enum.auto()
    GATED = enum.auto()
    MIRROR = enum.auto()
    DAEMON = enum.auto()
    OPTED_OUT = enum.auto()


def never_waits(pod: Pod) -> NeverWaits | None:
    """What of a pod takes it out of our hands, for people; None of one that waits as soon as `waits_from` says."""
    said = {
        NeverWaits.FINISHED: is_terminal(pod),
        NeverWaits.BOUND: bool(pod.node_name),
        NeverWaits.DELETED: pod.deleted is not None,
        NeverWaits.GATED: pod.gated,
        NeverWaits.MIRROR: is_mirror(pod),
        NeverWaits.DAEMON: is_daemon(pod),
        NeverWaits.OPTED_OUT: opted_out(pod),
    }
    return next((why for why, holds in said.items() if holds), None)


def awaits_verdict(pod: Pod) -> bool:
    """Whether a pod waits for its own scheduler's refusal first: it names another one than those whose pods are planned at once."""
    return pod.shape.scheduler_name not in names.KUBE_SCHEDULER_NAMES and not pod.unschedulable


def waits_from(pod: Pod, sight: PodSight, grace: timedelta) -> float:
    """The moment from which a pod waits for a node of ours: in the past for one that does, infinity where only an event can make it wait.

    A pod waits once a scheduler, whichever it is, has refused it or the extender has reported it. Of kube-scheduler's pods, those that are unbound
    for the grace period wait, too: it takes every pod at once. Another scheduler may hold pods back on purpose, or not be there at all, so its
    verdict is waited for. Gated, daemon and deferred pods do not wait, nor do those that demand a node that is not ours, nor those whose group
    its scheduler does not try yet (`PendingPods`).
    """
    return _of_pending(pod, sight, grace.total_seconds()) if is_pending(pod) else inf


def _of_pending(pod: Pod, sight: PodSight, grace_seconds: float) -> float:
    if opted_out(pod):
        return inf
    deferred = sight.deferred_until if awaits_images(pod) else -inf
    if pod.unschedulable or sight.reported:
        return deferred
    return inf if awaits_verdict(pod) else max(deferred, sight.since + grace_seconds)


def awaits_images(pod: Pod) -> bool:
    """Whether the webhook still looks up for which architectures the images of a pod were built."""
    return names.IMAGE_ARCH_PENDING in pod.labels


def _is_ready(pod: Pod) -> bool:
    """Whether a pending pod could be planned, as soon as one of its group waits."""
    return not (opted_out(pod) or awaits_images(pod))


class PendingPods:
    """The pods that have no place yet, and which of them wait. Memory: a few entries a pod; every event is O(1). Not thread-safe.

    Args:
        grace: see `waits_from`.

    Attributes:
        pending: those without a place, by UID; the oldest first.
        groups: of those that wait for their PodGroup first.
    """

    def __init__(self, pods: PodIndex, assignments: Assignments, grace: timedelta) -> None:
        self._pods, self._assignments = pods, assignments
        self.grace: Final = grace
        self._grace_seconds = grace.total_seconds()
        self.groups: Final = PodGroups()
        self._seen: dict[str, PodSight] = {}
        # both ascend: all pods of one are given equally long
        self._graces: deque[tuple[float, str]] = deque()
        self._deferrals: deque[tuple[float, str]] = deque()
        self.pending: Ordered[str, Pod] = Ordered()
        self._waiting: Ordered[str, Pod] = Ordered()
        # of those that wait, by UID: the node that is nominated, since when
        self._preempting: dict[str, tuple[str, float]] = {}
        self._grouped: tuple[tuple[object, object, object], tuple[Pod, ...]] = (None, None, None), ()
        self._less: tuple[tuple[Pod, ...], frozenset[str], tuple[Pod, ...]] = (), frozenset(), ()

    def pod_changed(self, pod: Pod, now: float, *, alive: bool, there: bool) -> None:
        """A pod is another one, has finished and is still `there`, or is gone; call after it was entered into the index.

        The others of its group are looked at when time passes.
        """
        self.groups.pod_changed(now, pod, alive=alive, there=there)
        if alive and not pod.node_name and pod.deleted is None:
            self._see(pod, now)
        elif self._seen.pop(pod.uid, None) is not None:
            self._times_passed(now)  # here, too: of a standby nobody takes a snapshot, and its pods come and go
        self.refresh(pod.uid, now)

    def pod_group_changed(self, now: float, old: AnyPodGroup | None, new: AnyPodGroup | None) -> None:
        """A PodGroup was added, changed or removed."""
        self.groups.changed(now, old, new)

    def pod_groups_known(self, now: float, known: KindKnowledge, source: GroupSource = GroupSource.POD_GROUP) -> bool:
        """What is known of the PodGroups of one source; whether that may let pods wait that did not."""
        self.groups.know(now, known, source)
        return bool(self.groups.turned)

    def gang_job_read(self, now: float, key: str, minimum: int) -> None:
        """What the Job of a gang says of it."""
        self.groups.job_read(now, key, minimum)

    def reported(self, now: float, uids: Iterable[str]) -> None:
        """The extender says that kube-scheduler left these pods without a node."""
        for uid in uids:
            if (known := self._seen.get(uid)) is not None:
                self._seen[uid] = msgspec.structs.replace(known, reported=True)
                self.refresh(uid, now)

    def time_passed(self, now: float) -> None:
        """Pods that wait with nothing but time wait from their moment on, and those of a group from when kube-scheduler has had time for the group.

        Cost: those pods, and all pods of the groups that turned since, and of those that did less than the grace period ago.
        """
        turned, self.groups.turned = self.groups.turned, set()
        for key in turned:
            early = False
            for uid in self.groups.members(key):
                self.refresh(uid, now)
                early |= now < self.waits_from(uid) < inf
            if early:
                self.groups.turned.add(key)
        self._times_passed(now)

    def _times_passed(self, now: float) -> None:
        for some in (self._graces, self._deferrals):
            while some and some[0][0] <= now:
                if (uid := some.popleft()[1]) in self._seen:
                    self.refresh(uid, now)

    def refresh(self, uid: str, now: float) -> None:
        """Look again whether a pod has a place, or waits for one."""
        pod = self._pods.get(uid)
        if pod is None or not is_pending(pod) or self._assignments.is_planned(uid):
            self.pending.drop(uid)
            self._waiting.drop(uid)
            self._preempting.pop(uid, None)
            return
        rank = pod.created, uid
        self.pending.put(uid, rank, pod)
        if self._waits_from(pod, self._seen.get(uid, NOT_SEEN)) > now:
            self._waiting.drop(uid)
            self._preempting.pop(uid, None)
            return
        self._waiting.put(uid, rank, pod)
        node = pod.nominated_node_name
        if not node:
            self._preempting.pop(uid, None)
        elif self._preempting.get(uid, ("", 0.0))[0] != node:
            self._preempting[uid] = node, now

    def waiting_less(self, stopped: Mapping[str, Stop], now: float) -> tuple[Pod, ...]:
        """The pods that wait, less those that get room by preemption, stopped classes, and groups that rest; the same tuple while nothing changes.

        A pod that ends keeps nobody from waiting once its kubelet has had its time, and a minute more.

        Cost: the pods that have a nominated node, and while a class is stopped or a group rests, all of them.
        """
        every = self._with_groups(self._waiting.frozen())
        resting = self.groups.resting(now)
        if not self._preempting and not stopped and not resting:
            return every
        less = {
            uid
            for uid, (node, since) in self._preempting.items()
            if any(
                victim.deleted is not None and now - since <= victim.ends_in + STUCK_AFTER.total_seconds()
                for victim in self._pods.on(node)
            )
        }
        if stopped:
            less |= {one.uid for one in every if one.shape.key in stopped}
        if resting:
            less |= {one.uid for one in every if group_of(one) in resting}
        if not less:
            return every
        if self._less[0] is not every or self._less[1] != less:
            self._less = every, frozenset(less), tuple(one for one in every if one.uid not in less)
        return self._less[2]

    def _with_groups(self, every: tuple[Pod, ...]) -> tuple[Pod, ...]:
        """Those that wait, and the others of their groups that could be planned: a group is planned as a whole.

        Cost: O(pending pods), where something changed.
        """
        minima = self.groups.minima()
        if not minima or not every:
            return every
        facts = every, self.pending.frozen(), minima
        if any(mine is not known for mine, known in zip(facts, self._grouped[0], strict=True)):
            waiting = {pod.uid for pod in every}
            keys = {group_of(pod) for pod in every} & minima.keys()
            some = facts[1] if keys else ()
            more = [one for one in some if one.uid not in waiting and group_of(one) in keys and _is_ready(one)]
            both = tuple(sorted((*every, *more), key=lambda pod: (pod.created, pod.uid))) if more else every
            self._grouped = facts, both
        return self._grouped[1]

    def has_all(self, now: float, wanted: Mapping[str, int]) -> bool:
        """Whether so many pods of each controller, by UID, exist, and each of theirs that has no place waits. O(these), and O(pending pods) where all exist."""
        if any(self._pods.living_of(uid) < count for uid, count in wanted.items()):
            return False
        return not any(
            pod.owner is not None and pod.owner.uid in wanted and self.waits_from(pod.uid) > now
            for pod in self.pending.frozen()
        )

    @property
    def any_early(self) -> bool:
        """Whether the grace period of some pod was not over when time was last said to have passed: it may wait in a moment, though nothing happens."""
        return len(self._waiting) < len(self.pending) and (
            bool(self.groups.turned)
            or any(uid in self._seen and uid in self.pending and uid not in self._waiting for _, uid in self._graces)
        )

    def waits_from(self, uid: str) -> float:
        """`waits_from` of one unfinished pod, by the monotonic clock; infinity where it is not known."""
        pod = self._pods.get(uid)
        return self._waits_from(pod, self._seen.get(uid, NOT_SEEN)) if pod is not None and is_pending(pod) else inf

    def seen_since(self, uid: str) -> float:
        """When a pod without a node was first seen without scheduling gates, by the monotonic clock; infinity where it is not known."""
        return self._seen.get(uid, NOT_SEEN).since

    def _waits_from(self, pod: Pod, sight: PodSight) -> float:
        """Of a pending pod; whatever is said of one whose group is not complete, it is of the time when it was."""
        tried = self.groups.tried_since(pod)
        if tried == inf:
            return inf
        if sight.since < tried:
            sight = msgspec.structs.replace(sight, since=tried)
        if not sight.reported and self.groups.is_left(pod):
            sight = msgspec.structs.replace(sight, reported=True)
        return _of_pending(pod, sight, self._grace_seconds)

    def _see(self, pod: Pod, now: float) -> None:
        known = self._seen.get(pod.uid, NOT_SEEN)
        since, deferred_until = known.since, known.deferred_until
        if not awaits_images(pod):
            deferred_until = -inf
        elif deferred_until == -inf:
            deferred_until = now + IMAGES_SECONDS
            self._deferrals.append((deferred_until, pod.uid))
        if since == inf and not pod.gated:
            since = now
            if self._grace_seconds:
                self._graces.append((now + self._grace_seconds, pod.uid))
        self._seen[pod.uid] = PodSight(since, known.reported, deferred_until)
