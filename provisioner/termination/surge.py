"""Has Deployments that ask for it start the successor of a pod before the pod is evicted. The next step is decided by `termination.surge_steps`.

Asked for every eviction, in its thread: a read of the pod's owner, shared by all its pods for ten seconds, and of the Deployment for those
that ask. For whom a Deployment was restarted is written on it in the same write, so a new leader goes on with it and restarts nothing twice.
"""

import threading
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from provisioner.apis.core import Deployment
from provisioner.apis.interruption import interruption_of
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import OwnerReference
from provisioner.apis.pods import Pod
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, BadRequest, Conflict, DecodeError, Forbidden, Invalid, NotFound
from provisioner.kube.events import Recorder
from provisioner.nodeclaims.plan_writer import PlanWriter
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.runtime.object_reference import pod_reference
from provisioner.state.cluster import Cluster
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.termination.surge_steps import LONGEST, SurgeRefusal, SurgeStep, asks, decide, evicted_by, restart
from provisioner.values.bounded import forget_oldest, put_newest
from provisioner.values.message import Said

#: What an owner asks for is read again after so long.
OWNER_SECONDS: Final = 10.0
_MOST_OWNERS: Final = 10_000
_MOST_PODS: Final = 10_000
_log = logs.get_logger(__name__)
_SURGE_DELAYED: Final = "Failed to determine whether a pod is evicted with a surge; retrying"
_NO_SURGE: Final = {
    SurgeRefusal.REPLICAS: Said("the Deployment does not have exactly one replica; use a PodDisruptionBudget instead"),
    SurgeRefusal.RECREATE: Said("spec.strategy.type of the Deployment is Recreate; set it to RollingUpdate"),
    SurgeRefusal.MAX_SURGE: Said("spec.strategy.rollingUpdate.maxSurge of the Deployment is 0; set it to 1 or more"),
    SurgeRefusal.PAUSED: Said("the rollout of the Deployment is paused; resume it"),
    SurgeRefusal.OWNER: Said("only Deployments can be restarted; use more replicas and a PodDisruptionBudget instead"),
    SurgeRefusal.FORBIDDEN: Said(
        "the provisioner may not patch Deployments; add the component manifests/components/surge"
    ),
    SurgeRefusal.INVALID: Said("the API server rejected the restart of the Deployment"),
    SurgeRefusal.LATE: Said("its new pod was not available in time"),
}


@dataclass(slots=True)
class _Memory:
    """What is known of a pod whose owner asks.

    Attributes:
        since: when it was asked for first, UTC.
        counted: the same by the monotonic clock.
        restarted: its Deployment was restarted for it by this process.
        told: what was said last.
    """

    since: datetime
    counted: float
    restarted: bool = False
    told: SurgeRefusal | None = None


class Surges:
    """Thread-safe; one pod is asked about in one thread at a time."""

    def __init__(
        self,
        cluster: Cluster,
        client: Client,
        writer: ClaimWriter,
        plans: PlanWriter,
        recorder: Recorder,
        clock: Clock,
    ) -> None:
        self._cluster, self._client, self._writer, self._plans = cluster, client, writer, plans
        self._recorder, self._clock = recorder, clock
        self._lock = threading.Lock()
        # by UID: read when, asks, its Deployment
        self._owners: dict[str, tuple[float, bool, OwnerReference | None]] = {}
        self._pods: dict[str, _Memory] = {}  # by UID

    def holds(self, pod: Pod, claim: NodeClaim | None, deadline: datetime | None) -> bool:
        """Whether the pod is not evicted yet, since its successor is to run first.

        Args:
            pod: of a node that is drained and takes no pods any more.
            claim: of its node.
            deadline: when that ends whatever runs on it; None for never.
        """
        try:
            owner = self._asking(pod)
        except ApiError as error:
            return self._unread(pod, claim, deadline, error)
        if owner is None:
            return False
        memory = self._memory(pod)
        if owner.kind != "Deployment":
            return self._refuse(pod, memory, SurgeRefusal.OWNER)
        until = self._until(pod, memory, claim, deadline)
        try:
            found = self._client.get(resources.DEPLOYMENTS, owner.name, pod.namespace)
            if found.metadata.uid != owner.uid:
                return False
            return self._step(pod, found, memory, until)
        except (NotFound, DecodeError):
            return False
        except ApiError as error:
            _log.info(_SURGE_DELAYED, pod=pod.key, deployment=owner.name, error=str(error))
            return self._clock.now() < until and self._within(memory)

    def _step(self, pod: Pod, found: Deployment, memory: _Memory, until: datetime) -> bool:
        now = self._clock.now()
        decision = decide(pod, found, now, until, restarted=memory.restarted)
        if decision.refusal is not None:
            return self._refuse(pod, memory, decision.refusal)
        if decision.step is SurgeStep.EVICT:
            self._cluster.surges_no_more(pod)
            return False
        if not self._within(memory):
            return self._refuse(pod, memory, SurgeRefusal.LATE)
        if decision.step is SurgeStep.WAIT:
            self._begin(pod)
            return True
        try:
            self._client.patch(resources.DEPLOYMENTS, found.metadata.name, restart(pod, found, now), pod.namespace)
        except Conflict:
            return True  # it has changed: looked at again with the next look at the drain
        except Forbidden:
            return self._refuse(pod, memory, SurgeRefusal.FORBIDDEN)
        except (Invalid, BadRequest):
            return self._refuse(pod, memory, SurgeRefusal.INVALID)
        memory.restarted = True
        self._begin(pod)
        deployment = f"{pod.namespace}/{found.metadata.name}"
        self._recorder.publish(
            pod_reference(pod),
            "Normal",
            "SurgeStarted",
            f"Restarted Deployment {deployment} so that its new pod is available before this pod is removed from its "
            "node",
        )
        _log.info(
            "Restarted a Deployment before its pod is evicted", pod=pod.key, deployment=deployment, node=pod.node_name
        )
        return True

    def _begin(self, pod: Pod) -> None:
        key, effects = self._cluster.surges(pod)
        self._writer.take(effects)
        if key is not None:
            self._plans.changed(key)

    def _refuse(self, pod: Pod, memory: _Memory, why: SurgeRefusal) -> bool:
        self._cluster.surges_no_more(pod)
        if memory.told is not why:
            memory.told = why
            self._recorder.publish(
                pod_reference(pod), "Warning", "SurgeNotPossible", f"Evicting the pod without a surge: {_NO_SURGE[why]}"
            )
        return False

    def _until(self, pod: Pod, memory: _Memory, claim: NodeClaim | None, deadline: datetime | None) -> datetime:
        mark = interruption_of(claim.metadata.annotations) if claim is not None else None
        evicts, ends = (mark.evicts, mark.ends) if mark is not None else (None, None)
        return evicted_by(pod, memory.since, deadline, evicts, ends)

    def _within(self, memory: _Memory) -> bool:
        """Whether the longest wait is not over by a clock that nobody sets."""
        return self._clock.monotonic() - memory.counted < LONGEST.total_seconds()

    def _memory(self, pod: Pod) -> _Memory:
        with self._lock:
            found = self._pods.setdefault(pod.uid, _Memory(self._clock.now(), self._clock.monotonic()))
            forget_oldest(self._pods, _MOST_PODS)
        return found

    # ------------------------------------------------------------------ owners

    def _asking(self, pod: Pod) -> OwnerReference | None:
        """The Deployment of a pod that asks for it, or another owner that does; None where none asks."""
        owner = pod.owner
        if owner is None or owner.api_version.partition("/")[0] != "apps":
            return (owner or OwnerReference()) if asks(pod.annotations) else None
        now = self._clock.monotonic()
        with self._lock:
            known = self._owners.get(owner.uid)
        if known is None or now - known[0] >= OWNER_SECONDS:
            known = (now, *self._read(owner, pod))
            with self._lock:
                put_newest(self._owners, owner.uid, known, _MOST_OWNERS)
        return (known[2] or owner) if known[1] else None

    def _read(self, owner: OwnerReference, pod: Pod) -> tuple[bool, OwnerReference | None]:
        """Whether an owner asks, and the Deployment that it is of. A ReplicaSet has the annotations of its Deployment."""
        resource = resources.WORKLOADS.get(owner.kind)
        if resource is None or owner.kind == "Deployment":
            return False, None
        try:
            found = self._client.get(resource, owner.name, pod.namespace)
        except (NotFound, Forbidden, DecodeError):
            return False, None
        if found.metadata.uid != owner.uid or not asks(found.metadata.annotations):
            return False, None
        above = found.metadata.owner_references
        return True, next((one for one in above if one.controller and one.kind == "Deployment"), None)

    def _unread(self, pod: Pod, claim: NodeClaim | None, deadline: datetime | None, error: ApiError) -> bool:
        """An owner could not be read: the pod waits, as long as for a surge."""
        _log.info(_SURGE_DELAYED, pod=pod.key, deployment="", error=str(error))
        memory = self._memory(pod)
        return self._clock.now() < self._until(pod, memory, claim, deadline) and self._within(memory)
