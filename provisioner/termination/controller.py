"""The end of a Node: taint it, drain it through the Eviction API, end its instance, remove its finalizer. Source: core spec 7."""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import condition, is_true
from provisioner.apis.pods import Pod
from provisioner.cloudprovider.errors import CloudError
from provisioner.cloudprovider.types import CloudProviderView
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, Conflict, NotFound
from provisioner.kube.events import Recorder
from provisioner.nodeclaims.writer import ClaimWriter, with_conditions
from provisioner.runtime import metrics
from provisioner.runtime.live_reads import DECIDED_SECONDS, Postponed, never
from provisioner.runtime.node_patch import patch_node
from provisioner.runtime.object_reference import node_reference, reference_of
from provisioner.state.cluster import Cluster
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.metrics import GaugeSeries, gauge
from provisioner.support.workers import DONE, ReconcileResult
from provisioner.termination.blockers import Blocker, Cause, blockers, sentence
from provisioner.termination.disrupted_taint import DisruptedTaints, is_disrupted
from provisioner.termination.eviction_queue import Evictions, drain_step, failed_draining, newer
from provisioner.termination.terminator import (
    MIN_TAINTED_SECONDS,
    EndState,
    InstanceEnding,
    Terminator,
    instance_is_gone,
    pods_waiting,
)
from provisioner.termination.unfinished import INSTANCE_TERMINATING, grace_period_expiring, not_ended, retry_of
from provisioner.values.bounded import put_newest
from provisioner.values.message import ConditionMessage, Said

DRAIN_REQUEUE_SECONDS = 1.0
#: While the watch of pods is stale, every look at a drain is a list at the API server.
STALE_REQUEUE_SECONDS = 3.0
INSTANCE_REQUEUE_SECONDS = 5.0
#: What holds a drain changes with every pod that goes; its NodeClaim is written so often at most.
TELL_SECONDS = 10.0
CONTROLLER = "node.termination"
_MOST_TOLD = 20_000
_BLOCKED = gauge(
    "dovetail_nodes_drain_blocked",
    "Nodes whose drain is blocked, by cause: pod-budget, impossible-pod-budget, several-pod-budgets, pod-protected.",
    ("nodepool", "cause"),
)
_log = logs.get_logger(__name__)


class BlockedDrains:
    """How many drains are blocked, for the metric. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._causes: dict[str, frozenset[tuple[str, str]]] = {}  # Node -> (NodePool, cause)
        self._series = GaugeSeries(_BLOCKED)

    def set(self, node: str, claim: NodeClaim | None, held: Iterable[Blocker]) -> None:
        """The drain of this Node is held by these now."""
        pool = claim.pool if claim is not None else ""
        causes = frozenset((pool, one.cause.value) for one in held if one.cause is not Cause.TERMINATING)
        with self._lock:
            if self._causes.get(node, frozenset()) == causes:
                return
            self._causes.pop(node, None)
            if causes:
                put_newest(self._causes, node, causes, _MOST_TOLD)
            counts = Counter(pair for each in self._causes.values() for pair in each)
            self._series.replace("drains", counts.items())


class Termination:
    """The reconciler of Nodes that are being deleted; one key is a Node's name.

    Args:
        pods_are_stale: whether the watch of pods is behind, so that pods are listed anew for every look.
        awaits: why the end of a Node waits for a confirmation, in words; "" where it does not.
        postponed: see `live_reads`; asked before the NodeClaim is deleted and the Node closed, and before each round of evictions.
    """

    def __init__(
        self,
        cluster: Cluster,
        client: Client,
        provider: CloudProviderView,
        writer: ClaimWriter,
        evictions: Evictions,
        taints: DisruptedTaints,
        terminator: Terminator,
        recorder: Recorder,
        clock: Clock,
        *,
        pods_are_stale: Callable[[], bool],
        postponed: Postponed = never,
        awaits: Callable[[NodeClaim | None, Node], str] = lambda *_: "",
    ) -> None:
        self._postponed, self._awaits = postponed, awaits
        self._cluster, self._client, self._provider, self._writer = cluster, client, provider, writer
        self._evictions, self._taints, self._terminator = evictions, taints, terminator
        self._recorder, self._clock = recorder, clock
        self._pods_are_stale = pods_are_stale
        self._told: dict[str, float] = {}  # claim UID -> when its condition was written
        self._listed: dict[str, dict[str, Pod]] = {}  # Node UID -> pods of the list that its drain began with, by UID
        self._blocked = BlockedDrains()

    def reconcile(self, name: str) -> ReconcileResult:
        """One look at one Node that is being deleted."""
        node = self._cluster.node(name)
        if (
            node is None
            or node.metadata.deletion_timestamp is None
            or names.TERMINATION_FINALIZER not in node.metadata.finalizers
        ):
            self._blocked.set(name, None, ())
            return DONE
        claim = self._cluster.claim_of(node)
        if claim is None and not self._is_ours(node):
            return DONE
        if self._awaits(claim, node):
            return ReconcileResult(requeue_after=INSTANCE_REQUEUE_SECONDS)
        try:
            return self._end(node, claim)
        except NotFound:
            return DONE
        except Conflict:
            return ReconcileResult(requeue_after=0.1)
        except ApiError as error:  # what is not known counts as live: wait, and ask again
            _log.warning(
                "A request to the API server failed during the draining of a Node; retrying",
                node=name,
                error=str(error),
            )
            return ReconcileResult(failed=True)

    def _end(self, node: Node, claim: NodeClaim | None) -> ReconcileResult:
        begins = (claim is not None and claim.metadata.deletion_timestamp is None) or not is_disrupted(node)
        if begins and self._postponed(claim, node, patience=DECIDED_SECONDS):
            return ReconcileResult(requeue_after=DRAIN_REQUEUE_SECONDS)
        if claim is not None:
            self._writer.delete(claim)
            if not is_true(node.status.conditions, names.READY) and instance_is_gone(
                self._provider, claim.status.provider_id
            ):
                claim = self._cluster.claim(claim.metadata.name) or claim
                self._say(claim, INSTANCE_TERMINATING)
                return self._let_go(node, claim)
        node = self._taints.close(node, ending=True)
        deadline = self._evictions.deadline(claim)
        stale = self._pods_are_stale()
        if self._drains(node, claim, deadline, self._pods(node, stale=stale), listed=stale):
            return ReconcileResult(requeue_after=STALE_REQUEUE_SECONDS if stale else DRAIN_REQUEUE_SECONDS)
        left = MIN_TAINTED_SECONDS - self._taints.seconds(node)
        if left > 0:
            return ReconcileResult(requeue_after=left)
        if claim is None:
            ending = self._terminator.drained(node)
        else:
            claim = self._cluster.claim(claim.metadata.name) or claim
            try:
                ending = self._terminator.end(claim, by=CONTROLLER)
            except CloudError as error:  # the cloud was asked, so nothing on the node holds it any more
                self._blocked.set(node.metadata.name, claim, ())
                if not is_true(claim.status.conditions, names.DRAINED):
                    metrics.NODES_DRAINED.labels(claim.pool).inc()
                    self._tell(claim, ConditionMessage(names.DRAINED, names.TRUE))
                self._recorder.publish(reference_of(claim), *not_ended(claim, error))
                return retry_of(error)
        return self._after(ending, node, claim)

    def _after(self, ending: InstanceEnding, node: Node, claim: NodeClaim | None) -> ReconcileResult:
        drained = ending.state is not EndState.HELD or bool(ending.volumes)
        if claim is not None and drained and not is_true(claim.status.conditions, names.DRAINED):
            metrics.NODES_DRAINED.labels(claim.pool).inc()
        if drained:
            self._blocked.set(node.metadata.name, claim, ())
        match ending.state:
            case EndState.HELD:
                if claim is not None and ending.volumes:
                    self._await_volumes(claim, ending.why)
                elif claim is not None and ending.why:
                    self._draining(claim, ending.why)
                return ReconcileResult(requeue_after=ending.requeue_after)
            case EndState.UNDER_WAY:
                if claim is not None:
                    self._say_ended(claim, ending.volumes)
                return ReconcileResult(requeue_after=INSTANCE_REQUEUE_SECONDS)
            case EndState.GONE:
                if claim is not None:
                    self._say_ended(claim, ending.volumes)
                return self._let_go(node, claim)

    def _say_ended(self, claim: NodeClaim, volumes: Sequence[str]) -> None:
        """Write what has come to pass, however fast the instance was: who else holds the Node or the claim holds no budget with them."""
        claim = self._cluster.claim(claim.metadata.name) or claim
        said = [ConditionMessage(names.DRAINED, names.TRUE)]
        if volumes:
            said.append(
                ConditionMessage(
                    names.VOLUMES_DETACHED,
                    names.FALSE,
                    names.TERMINATION_GRACE_PERIOD_ELAPSED,
                    f"{len(volumes)} volumes are still attached",
                )
            )
        elif not is_elapsed(claim):
            said.append(ConditionMessage(names.VOLUMES_DETACHED, names.TRUE))
        self._say(claim, *said, INSTANCE_TERMINATING)

    def _say(self, claim: NodeClaim, *said: ConditionMessage) -> None:
        with contextlib.suppress(ApiError):  # its Node goes all the same
            self._tell(claim, *said)

    def _tell(self, claim: NodeClaim, *said: ConditionMessage) -> None:
        self._writer.status(claim, with_conditions(claim, *said, now=self._clock.now()))

    def _pods(self, node: Node, *, stale: bool) -> tuple[Pod, ...]:
        """What a step of the drain is decided from; whether anything is left is asked of the API server at the end in any case.

        A drain begins with a list: what a user wrote into a pod before deleting its NodeClaim may be in no cache yet.
        """
        name, uid = node.metadata.name, node.metadata.uid
        saw = self._evictions.departures.saw
        if stale:
            return self._terminator.pods_on(name)
        begins = uid not in self._listed
        listed = {pod.uid: pod for pod in self._terminator.pods_on(name)} if begins else self._listed[uid]
        found = {pod.uid: newer(pod, listed.get(pod.uid)) for pod in self._cluster.bound_to(name)}
        # what the caches have caught up with is not kept
        put_newest(self._listed, uid, {key: pod for key, pod in found.items() if pod is listed.get(key)}, _MOST_TOLD)
        return tuple(saw(pod) for pod in ({**listed, **found} if begins else found).values())

    def _drains(
        self, node: Node, claim: NodeClaim | None, deadline: datetime | None, pods: tuple[Pod, ...], *, listed: bool
    ) -> bool:
        """Ask the next pods to leave; whether any holds the drain. `listed`: they are as the API server has them now."""
        drain = drain_step(pods, self._clock.now(), deadline)
        if not drain.waiting:
            return False
        due = self._evictions.due(drain.evict)
        if due and self._evictions.held_by_pause(claim, node.metadata.name):
            due = ()  # else each look would read in vain
        if due and (listed or not self._postponed(claim, node, patience=DECIDED_SECONDS)):
            self._evictions.add(due)  # before anything is told: what cannot be written keeps no pod
        if deadline is not None:
            self._evictions.force(drain.force, deadline)
        held = blockers(pods, self._cluster.pod_budgets(), self._clock.now(), node.metadata.deletion_timestamp)
        self._blocked.set(node.metadata.name, claim, held)
        why = sentence(held)
        if claim is not None:
            text = (
                Said(f"{why}; all pods will be deleted by {deadline:%Y-%m-%dT%H:%M:%SZ}")
                if why and deadline is not None
                else why
            )
            self._draining(claim, text or Said("Draining"))
        if deadline is not None:
            self._expiring(node, claim, deadline)
        if any(one.cause is not Cause.TERMINATING for one in held):
            message = failed_draining(pods_waiting(drain.waiting, why))
            for reference in (node_reference(node), *((reference_of(claim),) if claim is not None else ())):
                about = reference.kind, reference.uid, *sorted({one.cause for one in held})
                self._recorder.publish(reference, *message, dedupe=about)
        return True

    def _expiring(self, node: Node, claim: NodeClaim | None, deadline: datetime) -> None:
        message = grace_period_expiring(deadline)
        for reference in (node_reference(node), *((reference_of(claim),) if claim is not None else ())):
            self._recorder.publish(reference, *message)

    def _draining(self, claim: NodeClaim, message: str) -> None:
        """Say on the claim what holds its drain; what changes is written every `TELL_SECONDS` at most."""
        claim = self._cluster.claim(claim.metadata.name) or claim
        known, now = condition(claim.status.conditions, names.DRAINED), self._clock.monotonic()
        lately = now - self._told.get(claim.metadata.uid, float("-inf")) < TELL_SECONDS
        if known is not None and (lately or known.message == message):
            return
        put_newest(self._told, claim.metadata.uid, now, _MOST_TOLD)
        self._tell(claim, ConditionMessage(names.DRAINED, names.UNKNOWN, names.DRAINING, message))

    def _await_volumes(self, claim: NodeClaim, message: str) -> None:
        claim = self._cluster.claim(claim.metadata.name) or claim
        self._tell(
            claim,
            ConditionMessage(names.DRAINED, names.TRUE),
            ConditionMessage(names.VOLUMES_DETACHED, names.UNKNOWN, names.AWAITING_VOLUME_DETACHMENT, message),
        )

    def _let_go(self, node: Node, claim: NodeClaim | None) -> ReconcileResult:
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
        self._taints.forget(node)
        self._listed.pop(node.metadata.uid, None)
        self._blocked.set(node.metadata.name, claim, ())
        if claim is not None:
            metrics.node_terminated(claim, node, self._clock.now())
        return DONE

    def _is_ours(self, node: Node) -> bool:
        kinds = self._provider.node_class_kinds()
        return any(names.nodeclass_label(group, kind) in node.metadata.labels for group, kind in kinds)


def is_elapsed(claim: NodeClaim) -> bool:
    """Whether its instance was terminated with volumes still attached, because its terminationGracePeriod was over."""
    told = condition(claim.status.conditions, names.VOLUMES_DETACHED)
    return told is not None and told.reason == names.TERMINATION_GRACE_PERIOD_ELAPSED
