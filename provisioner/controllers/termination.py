"""The end of a Node: taint, drain through the Eviction API, end the machine, let the Node go. Source: core spec 7."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from provisioner.apis import names
from provisioner.apis.conditions import CLAIM_CONDITIONS
from provisioner.apis.core import Node, ObjectReference
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import condition, is_true
from provisioner.apis.pods import Pod, is_active, is_daemon, is_drainable, is_evictable
from provisioner.cloudprovider.errors import CloudError, MachineNotFoundError
from provisioner.cloudprovider.types import CloudProvider
from provisioner.controllers.lifecycle import FAILED_TERMINATION, not_ended
from provisioner.controllers.metrics import Metrics
from provisioner.controllers.references import node_reference, pod_reference, reference_of
from provisioner.controllers.registration import merged, patch_node
from provisioner.controllers.store import ClaimWriter
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, Conflict, NotFound, ServerError, TooManyRequests
from provisioner.kube.events import Recorder
from provisioner.state.cluster import Cluster
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, KeyedQueue, Result

MIN_DRAIN_SECONDS = 5.0  # catches pods that were bound before kube-scheduler saw the taint
DRAIN_REQUEUE_SECONDS = 1.0
INSTANCE_REQUEUE_SECONDS = 5.0
_SHORTEST_GRACE = timedelta(seconds=1)
_MULTIPLE_BUDGETS = "more than one PodDisruptionBudget"
_log = logs.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DrainStep:
    """What draining wants now.

    Attributes:
        evict: pods of the first tier that still has any; only these are asked to leave.
        waiting: pods of all tiers that still hold the drain.
        force: pods that are deleted without asking, so that their grace period ends with the Node's.
    """

    evict: tuple[Pod, ...]
    waiting: int
    force: tuple[Pod, ...] = ()


def drain_step(pods: Iterable[Pod], now: datetime, deadline: datetime | None = None) -> DrainStep:
    """The next step of a drain; pure.

    Tiers, one after another: ordinary pods, ordinary daemons, critical pods, critical daemons. Source: core spec 7.3.
    A pod that is protected by karpenter.sh/do-not-disrupt holds the drain and is not asked, until `deadline`: when the
    Node ends whatever runs on it; None for a Node that waits for its pods.
    """
    holding = [pod for pod in pods if is_drainable(pod, now) and pod.phase not in ("Succeeded", "Failed")]
    if not holding:
        return DrainStep((), 0)
    tier = min(_tier(pod) for pod in holding)
    force = {pod.uid for pod in holding if deadline is not None and _must_go(pod, now, deadline)}
    evict = (pod for pod in holding if _tier(pod) == tier and is_active(pod) and is_evictable(pod, now))
    return DrainStep(
        tuple(sorted((pod for pod in evict if pod.uid not in force), key=lambda pod: pod.key)),
        len(holding),
        tuple(sorted((pod for pod in holding if pod.uid in force), key=lambda pod: pod.key)),
    )


def _must_go(pod: Pod, now: datetime, deadline: datetime) -> bool:
    """Whether the pod's grace period would outlast the Node."""
    if pod.deleted is not None:
        return pod.deleted > max(deadline, now + _SHORTEST_GRACE)  # it has been told the shortest time otherwise
    return pod.grace_seconds is not None and now > deadline - timedelta(seconds=pod.grace_seconds)


def deadline_of(claim: NodeClaim) -> datetime | None:
    """When the claim's Node ends whatever runs on it; None where nothing says so, or what says so cannot be read."""
    try:
        found = datetime.fromisoformat(claim.metadata.annotations.get(names.TERMINATION_TIMESTAMP, ""))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _tier(pod: Pod) -> tuple[bool, bool]:
    return pod.shape.priority_class_name in names.CRITICAL_PRIORITY_CLASSES, is_daemon(pod)


class Evictions:
    """Asks for evictions, one queue for all Nodes; a refused one is tried again with back-off."""

    def __init__(
        self, cluster: Cluster, client: Client, recorder: Recorder, metrics: Metrics, clock: Clock, *, workers: int
    ) -> None:
        self._cluster, self._client, self._recorder, self._metrics, self._clock = (
            cluster,
            client,
            recorder,
            metrics,
            clock,
        )
        self._deadlines: dict[str, datetime] = {}  # by UID, of pods that are not asked any more
        self.queue = KeyedQueue("eviction", self._evict, clock, workers=workers)

    def add(self, pods: Iterable[Pod]) -> None:
        """Want these pods evicted; asking twice changes nothing."""
        for pod in pods:
            if not self.queue.failures(pod.uid):  # one that failed comes again by itself, later
                self.queue.add(pod.uid)

    def force(self, pods: Iterable[Pod], deadline: datetime) -> None:
        """Delete these pods so that they are gone by `deadline`; budgets and do-not-disrupt count no more."""
        for pod in pods:
            self._deadlines[pod.uid] = deadline
            self.queue.add(pod.uid)

    def _evict(self, uid: str) -> Result:
        pod = self._cluster.pod(uid)
        deadline = self._deadlines.pop(uid, None)
        if pod is not None and deadline is not None and _must_go(pod, self._clock.now(), deadline):
            return self._delete(pod, deadline)
        if pod is None or not is_active(pod) or not pod.node_name:
            return DONE
        if not is_evictable(pod, self._clock.now()):
            return DONE  # the drain asks again when that changes
        try:
            self._client.evict(pod.name, pod.namespace, pod.uid)
        except (NotFound, Conflict):
            self._metrics.eviction("404")
            return DONE
        except TooManyRequests as error:
            self._metrics.eviction("429")
            self._refused(pod, f"evicting pod violates a PDB (Pod={pod.key})")
            _log.debug("eviction refused", pod=pod.key, error=str(error))
            return Result(failed=True)
        except ServerError as error:
            self._metrics.eviction(str(error.status))
            if _MULTIPLE_BUDGETS in error.message:
                self._refused(pod, f"eviction does not support multiple PDBs (Pod={pod.key})")
            return Result(failed=True)
        except ApiError as error:
            self._metrics.eviction(str(error.status))
            _log.info("eviction failed, it is tried again", pod=pod.key, error=str(error))
            return Result(failed=True)
        self._metrics.eviction("200")
        reason = self._reason(pod)
        self._metrics.pod_drained(reason)
        self._recorder.publish(pod_reference(pod), "Normal", "Evicted", f"Evicted pod: {reason}")
        return DONE

    def _delete(self, pod: Pod, deadline: datetime) -> Result:
        left = max(1, int((deadline - self._clock.now()).total_seconds()))
        try:
            self._client.delete(resources.PODS, pod.name, pod.namespace, uid=pod.uid, grace_seconds=left)
        except (NotFound, Conflict):
            return DONE
        except ApiError as error:
            _log.info("deleting a pod failed, it is tried again", pod=pod.key, error=str(error))
            self._deadlines[pod.uid] = deadline
            return Result(failed=True)
        self._metrics.pod_drained(self._reason(pod))
        message = f"Deleted the pod: its node ends at {deadline:%Y-%m-%dT%H:%M:%SZ}, it has {left} s of grace"
        self._recorder.publish(pod_reference(pod), "Normal", "Disrupted", message)
        return DONE

    def _refused(self, pod: Pod, why: str) -> None:
        reference = ObjectReference(api_version="v1", kind="Node", name=pod.node_name, uid=pod.node_name)
        self._recorder.publish(
            reference, "Warning", "FailedDraining", f"Failed to drain node, {why}", dedupe=(pod.key,)
        )

    def _reason(self, pod: Pod) -> str:
        for claim in self._cluster.claims():
            if claim.status.node_name == pod.node_name:
                found = condition(claim.status.conditions, names.DISRUPTION_REASON)
                return found.reason if found is not None else "Forceful Termination"
        return ""


class Termination:
    """The reconciler of Nodes that are being deleted; one key is a Node's name."""

    def __init__(
        self,
        cluster: Cluster,
        client: Client,
        provider: CloudProvider,
        writer: ClaimWriter,
        evictions: Evictions,
        recorder: Recorder,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._cluster, self._client, self._provider, self._writer = cluster, client, provider, writer
        self._evictions, self._recorder, self._metrics, self._clock = evictions, recorder, metrics, clock
        self._lock = threading.Lock()
        self._tainted_at: dict[str, float] = {}

    def tainted(self, node_name: str) -> None:
        """The disrupted taint was written to this Node now: the time that draining must take counts from here."""
        with self._lock:
            self._tainted_at.setdefault(node_name, self._clock.monotonic())

    def reconcile(self, name: str) -> Result:
        """One look at one Node that is being deleted."""
        node = self._cluster.node(name)
        if (
            node is None
            or node.metadata.deletion_timestamp is None
            or names.TERMINATION_FINALIZER not in node.metadata.finalizers
        ):
            with self._lock:
                if node is None:
                    self._tainted_at.pop(name, None)
            return DONE
        claim = self._cluster.claim_of(node)
        if claim is None and not self._is_ours(node):
            return DONE
        try:
            return self._end(node, claim)
        except NotFound:
            return DONE
        except Conflict:
            return Result(requeue_after=0.1)

    def _end(self, node: Node, claim: NodeClaim | None) -> Result:
        if claim is not None:
            self._writer.delete(claim)
            if not is_true(node.status.conditions, names.READY) and self._machine_is_gone(claim):
                return self._let_go(node, claim)
        node = self._cordon(node)
        deadline = deadline_of(claim) if claim is not None else None
        drain = drain_step(self._cluster.bound_to(node.metadata.name), self._clock.now(), deadline)
        if drain.waiting:
            if claim is not None:
                self._draining(claim)
            self._evictions.add(drain.evict)
            if deadline is not None:
                self._expiring(node, claim, deadline)
                self._evictions.force(drain.force, deadline)
            if len(drain.evict) + len(drain.force) < drain.waiting:
                message = f"Failed to drain node, {drain.waiting} pods are waiting to be evicted"
                self._recorder.publish(node_reference(node), "Warning", "FailedDraining", message)
            return Result(requeue_after=DRAIN_REQUEUE_SECONDS)
        with self._lock:
            left = MIN_DRAIN_SECONDS - (self._clock.monotonic() - self._tainted_at[node.metadata.name])
        if left > 0:
            return Result(requeue_after=left)
        if claim is not None:
            claim = self._cluster.claim(claim.metadata.name) or claim
            conditions = self._set(claim, claim.status.conditions, names.DRAINED)
            conditions = self._set(claim, conditions, names.VOLUMES_DETACHED)
            try:
                self._provider.delete(claim)
                claim = self._writer.status(claim, self._set(claim, conditions, names.INSTANCE_TERMINATING))
                self._provider.delete(claim)
            except MachineNotFoundError:
                pass
            except CloudError as error:
                self._recorder.publish(reference_of(claim), "Warning", FAILED_TERMINATION, not_ended(claim, error))
                return Result(failed=True)
            else:
                return Result(requeue_after=INSTANCE_REQUEUE_SECONDS)
        return self._let_go(node, claim)

    def _cordon(self, node: Node) -> Node:
        """The disrupted taint and the label that takes the Node out of external load balancers, in one write."""

        def patch_of(current: Node) -> list[dict[str, Any]]:
            return disruption_patch(current) + merged(
                "/metadata/labels",
                current.metadata.labels,
                {names.EXCLUDE_BALANCERS_LABEL: names.EXCLUDE_BALANCERS_VALUE},
            )

        written = patch_node(self._client, node, patch_of)
        self.tainted(node.metadata.name)
        return written

    def _expiring(self, node: Node, claim: NodeClaim | None, deadline: datetime) -> None:
        message = f"All pods will be deleted by {deadline:%Y-%m-%dT%H:%M:%SZ}"
        for reference in (node_reference(node), *((reference_of(claim),) if claim is not None else ())):
            self._recorder.publish(reference, "Warning", "TerminationGracePeriodExpiring", message)

    def _draining(self, claim: NodeClaim) -> None:
        claim = self._cluster.claim(claim.metadata.name) or claim
        if condition(claim.status.conditions, names.DRAINED) is None:
            conditions = CLAIM_CONDITIONS.set(
                claim.status.conditions,
                names.DRAINED,
                names.UNKNOWN,
                names.DRAINING,
                "Draining",
                generation=claim.metadata.generation,
                now=self._clock.now(),
            )
            self._writer.status(claim, conditions)

    def _set(self, claim: NodeClaim, conditions: Any, kind: str) -> Any:
        return CLAIM_CONDITIONS.set(
            conditions, kind, names.TRUE, kind, "", generation=claim.metadata.generation, now=self._clock.now()
        )

    def _machine_is_gone(self, claim: NodeClaim) -> bool:
        try:
            self._provider.get(claim.status.provider_id)
        except MachineNotFoundError:
            return True
        except CloudError:  # while nobody says, its pods leave as from any other
            return False
        return False

    def _let_go(self, node: Node, claim: NodeClaim | None) -> Result:
        def patch_of(current: Node) -> list[dict[str, Any]]:
            finalizers = list(current.metadata.finalizers)
            if names.TERMINATION_FINALIZER not in finalizers:
                return []
            left = [finalizer for finalizer in finalizers if finalizer != names.TERMINATION_FINALIZER]
            return [
                {"op": "test", "path": "/metadata/finalizers", "value": finalizers},
                {"op": "replace", "path": "/metadata/finalizers", "value": left},
            ]

        patch_node(self._client, node, patch_of)
        if claim is not None:
            self._metrics.node_terminated(claim, node, self._clock.now())
        return DONE

    def _is_ours(self, node: Node) -> bool:
        kinds = self._provider.node_class_kinds()
        return any(names.nodeclass_label(group, kind) in node.metadata.labels for group, kind in kinds)


def disruption_patch(node: Node) -> list[dict[str, Any]]:
    """Operations that give a Node the disrupted taint, replacing one of the same key; none where it has it; pure."""
    wanted = names.DISRUPTED_TAINT
    if any(taint.key == wanted.key and taint.effect == wanted.effect for taint in node.spec.taints):
        return []
    return _taints_patch(node, (*(taint for taint in node.spec.taints if taint.key != wanted.key), wanted))


def healing_patch(node: Node) -> list[dict[str, Any]]:
    """Operations that take the disrupted taint off again; pure."""
    left = tuple(taint for taint in node.spec.taints if taint.key != names.DISRUPTED_TAINT.key)
    return _taints_patch(node, left) if left != node.spec.taints else []


def _taints_patch(node: Node, taints: tuple[Any, ...]) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = []
    if node.spec.taints:
        operations.append({"op": "test", "path": "/spec/taints", "value": msgspec.to_builtins(node.spec.taints)})
    operations.append({"op": "add", "path": "/spec/taints", "value": msgspec.to_builtins(taints)})
    return operations
