"""Whether more pods are to come for a batch: those of its owners are all there when as many exist as the owners want.

A batch waits a second for others that come. Where a ReplicaSet, a Job or a StatefulSet says how many pods it wants, so many exist and wait or run,
and no other Deployment or StatefulSet of the namespace is about to have more, there is nothing to wait for. Where pods keep coming, such as those of
many small Jobs, others are waited for all the same: nodes for each alone cost more. So they do where workloads are applied one after another, some
tenths of a second apart, which nobody can foresee. Therefore it is remembered of the last batches that had everybody, ended early or not, whether others
came within the second all the same: where one was followed so, none ends early. At most one in nine is planned apart from what belonged to it.
Owners are read for a batch, once; nobody watches those of a cluster. What cannot be told, or not in time, leaves a batch as it is.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from provisioner.apis.core import Deployment, Job, ReplicaSet, StatefulSet
from provisioner.apis.gangs import group_of
from provisioner.apis.meta import OwnerReference, controller_of
from provisioner.apis.pods import Pod
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError
from provisioner.kube.resources import DEPLOYMENTS, JOBS, STATEFULSETS, WORKLOADS, Resource
from provisioner.runtime.controller import Controller
from provisioner.runtime.poller import ApiPoller
from provisioner.state.cluster import Cluster
from provisioner.support.clock import Clock
from provisioner.values import jsontext

T = TypeVar("T")

MOST_OWNERS: Final = 20
"""Owners whose pods one batch may have and still end early."""
MOST_NAMESPACES: Final = 3
MOST_PODS: Final = 2000
"""Pods that its owners may want together: pending ones are looked at under the lock of the state, 2 us each."""
MOST_OTHERS: Final = 100
"""Deployments, and StatefulSets, of one namespace."""
MOST_BYTES: Final = 4_000_000
"""Of these, each: anybody may fill a template with text."""
_PAGE: Final = 20
MOST_ROUNDS: Final = 3
"""Times that these are read for one batch: anybody may make pods of one owner again and again."""
QUIET_SECONDS: Final = 0.1
"""For so long nothing new may come before a batch ends early; owners are read in rounds that are at least so far apart."""
STREAM_SECONDS: Final = 1.0
"""A batch that begins so soon after a pod of the last one does not end early."""
REMEMBERED: Final = 8
"""Batches of which it is remembered whether others followed."""
_GROUPS: Final = {"ReplicaSet": "apps", "StatefulSet": "apps", "Job": "batch"}


@dataclass(slots=True)
class _Batch:
    """Whose pods a batch has. Anything but pods of a few owners that may be known makes it `open_ended`."""

    owners: dict[str, tuple[OwnerReference, str]] = field(default_factory=dict)  # with the namespace, by UID
    wanted: dict[str, int] = field(default_factory=dict)  # by UID, of those that have been read
    above: set[str] = field(default_factory=set)  # UIDs of their Deployments
    joined_at: float = float("-inf")  # when the last pod came
    asked: bool = False  # what else its namespaces are about to have is to be read
    rounds: int = 0  # how often that was read
    alone_at: float = float("-inf")  # when that was nothing
    had_all: bool = False  # nothing more was known to come
    open_ended: bool = False


class ExpectedPods:
    """What is known of the batch that gathers now. Thread-safe. Memory: `MOST_OWNERS` entries.

    Attributes:
        poller: reads owners; in a round, at most `MOST_OWNERS` and, of `MOST_NAMESPACES`, what `MOST_OTHERS` bounds, this in at most `MOST_ROUNDS`.
        answered: is called when it has read what is asked.
    """

    def __init__(self, cluster: Cluster, client: Client, clock: Clock) -> None:
        self._cluster, self._client, self._clock = cluster, client, clock
        self._lock = threading.Lock()
        self._batch = _Batch()
        self._last_had_all = False
        self._followed: deque[bool] = deque(
            maxlen=REMEMBERED
        )  # of batches that had everybody: whether others came within the second
        self._round_at = float("-inf")
        self.answered: Callable[[], None] = lambda: None
        self.poller = ApiPoller("expected-pods", self._poll)

    def controller(self) -> Controller:
        """Its row in the list of controllers."""
        return Controller(runner=self.poller)

    def joined(self, pod: Pod) -> None:
        """A pod is in the batch."""
        owner, now = pod.owner if not group_of(pod) else None, self._clock.monotonic()
        seen = self._cluster.seen_since(pod.uid)
        with self._lock:
            batch, since = self._batch, now - self._batch.joined_at
            # one that waits on is looked at again every few seconds, and one of the last batch when anything of it changes
            is_new = seen > max(batch.joined_at, now - STREAM_SECONDS)
            batch.joined_at = now
            if is_new and (batch.had_all or self._last_had_all):
                self._followed.append(since < STREAM_SECONDS)
                batch.had_all = self._last_had_all = False
            if not batch.owners and since < STREAM_SECONDS:
                batch.open_ended = True
            if owner is not None and owner.uid in batch.owners:
                return
            if owner is None or not _is_read(owner) or len(batch.owners) >= MOST_OWNERS:
                batch.open_ended = True
                return
            batch.owners[owner.uid] = owner, pod.namespace
            batch.open_ended |= len({namespace for _, namespace in batch.owners.values()}) > MOST_NAMESPACES
        self.poller.wake()

    def over(self) -> None:
        """The batch is planned; the next one begins."""
        with self._lock:
            self._last_had_all = self._batch.had_all
            self._batch = _Batch(joined_at=self._batch.joined_at)

    @property
    def may_be_known(self) -> bool:
        """Whether the batch may end early once its owners have been read."""
        with self._lock:
            return bool(self._batch.owners) and not self._batch.open_ended

    def are_there(self) -> bool:
        """Whether every pod that the owners want exists, and has a place or waits in this batch, no others are about to come, nor came after such batches.

        Asks for what it needs.

        Cost: O(owners), and O(pending pods) where all exist.
        """
        with self._lock:
            batch = self._batch
            if batch.open_ended or not batch.owners or batch.owners.keys() != batch.wanted.keys():
                return False
            wanted = dict(batch.wanted)
        if not self._cluster.has_all(wanted):
            return False
        with self._lock:
            if batch.alone_at > batch.joined_at:
                batch.had_all = True
                return not any(self._followed)
            batch.open_ended |= batch.rounds >= MOST_ROUNDS
            batch.asked = True
        self.poller.wake()
        return False

    def _poll(self) -> float | None:
        now = self._clock.monotonic()
        if (left := self._round_at + QUIET_SECONDS - now) > 0:
            return left
        self._round_at = now
        with self._lock:
            batch = self._batch
            if batch.open_ended:
                return None
            unread = [one for uid, one in batch.owners.items() if uid not in batch.wanted]
            asked, batch.asked = batch.asked and not unread, False
            batch.rounds += asked
            namespaces = {namespace for _, namespace in batch.owners.values()} if asked else ()
        try:
            known = all(self._read(batch, *one) for one in unread) and not self._others_come(batch, namespaces)
        except ApiError:
            known = False
        with self._lock:
            batch.open_ended |= not known
            if asked:
                batch.alone_at = now
        if asked:
            self.answered()
        return None

    def _read(self, batch: _Batch, owner: OwnerReference, namespace: str) -> bool:
        """Enter how many pods an owner wants; whether anybody can tell.

        Raises:
            ApiError: the API server did not say.
        """
        client = self._client
        found: Job | Deployment | StatefulSet | ReplicaSet | None
        if owner.kind == "Job":
            found = client.find(JOBS, owner.name, namespace)
        else:
            found = client.find(WORKLOADS[owner.kind], owner.name, namespace)
        if found is None or found.metadata.uid != owner.uid:  # whoever makes a pod names its owner as they like
            return False
        if isinstance(found, StatefulSet) and not _at_once(found):
            return False
        wanted = found.spec.at_once if isinstance(found, Job) else found.spec.wanted
        above = None if isinstance(found, Job) else controller_of(found.metadata)
        with self._lock:
            batch.wanted[owner.uid] = wanted
            if above is not None:
                batch.above.add(above.uid)
            return sum(batch.wanted.values()) <= MOST_PODS

    def _others_come(self, batch: _Batch, namespaces: Collection[str]) -> bool:
        """Whether other workloads of these namespaces are about to have more pods.

        Raises:
            ApiError: the API server did not say.
        """
        for namespace in namespaces:
            deployments = _few(self._client.items(DEPLOYMENTS, namespace, limit=_PAGE), DEPLOYMENTS)
            sets = _few(self._client.items(STATEFULSETS, namespace, limit=_PAGE), STATEFULSETS)
            if deployments is None or sets is None:
                return True
            if any(one.metadata.uid not in batch.above and _grows(one) for one in deployments):
                return True
            wanted = {one.metadata.uid: one.spec.wanted for one in sets if _at_once(one)}
            if not self._cluster.has_all(wanted):
                return True
        return False


def _few(items: Iterable[msgspec.Raw], resource: Resource[T]) -> list[T] | None:
    """All of these workloads; None where they are too many or too large, or one cannot be read. One page is in memory at a time."""
    found: list[T] = []
    left = MOST_BYTES
    for item in items:
        left -= memoryview(item).nbytes
        if left < 0 or len(found) == MOST_OTHERS:
            return None
        try:
            found.append(jsontext.decode_trimmed(resource.decode, item)[0])
        except (msgspec.MsgspecError, ValueError):
            return None
    return found


def _is_read(owner: OwnerReference) -> bool:
    """Whether this kind of owner says how many pods it wants."""
    return _GROUPS.get(owner.kind) == owner.api_version.partition("/")[0]


def _at_once(found: StatefulSet) -> bool:
    """Whether its pods do not come one after another, each once the last is ready."""
    return found.spec.pod_management_policy == "Parallel"


def _grows(one: Deployment) -> bool:
    """Whether a Deployment is to have more pods than its controller has counted."""
    seen = one.status.observed_generation >= one.metadata.generation
    return not one.spec.paused and not (seen and one.status.replicas >= one.spec.wanted)
