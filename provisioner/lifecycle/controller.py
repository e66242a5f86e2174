"""A NodeClaim's way: launched, registered, initialised, and its end. Source: core spec 5; design 3.7, 3b.6.

Every step is idempotent and begins from what the cluster says, so a crash anywhere is resumed by the next look.
Writes until Initialized, the create included: labels and status after the launch, the Node, the status again; a
Node that takes long to become ready costs one pair more.

A claim is not deleted for a shortage: it stays, says so in its condition Launched, and is tried again when its provider expects more. It gives way
only when nothing that it allows can ever be had, or when its pods can go elsewhere while all that it allows is refused (`launch_fallback`).
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from provisioner.apis import names
from provisioner.apis.command import awaited_by
from provisioner.apis.conditions import CLAIM_CONDITIONS
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.launches import may_have_begun
from provisioner.apis.meta import Condition, condition, is_true
from provisioner.apis.pods import is_pending
from provisioner.apis.reboot import reboots_of
from provisioner.buffers.virtual_pods import is_virtual
from provisioner.cloudprovider.errors import (
    CloudError,
    CreateError,
    InsufficientCapacityError,
    LaunchUnderWayError,
    NodeClassNotReadyError,
)
from provisioner.cloudprovider.types import CloudProviderView, LaunchedInstance, manages
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, Conflict, NotFound
from provisioner.kube.events import Recorder
from provisioner.lifecycle import registration
from provisioner.lifecycle.gang_keeper import GangKeeper
from provisioner.lifecycle.launch_fallback import Fallback
from provisioner.lifecycle.launch_gate import LaunchGate, gate_of
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.options import Options
from provisioner.runtime import metrics
from provisioner.runtime.live_reads import DECIDED_SECONDS, Postponed, never
from provisioner.runtime.object_reference import pod_reference, reference_of
from provisioner.state.claim_plans import Launch
from provisioner.state.cluster import Cluster
from provisioner.state.joining import Rivals
from provisioner.state.keys import NodeKey
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, ReconcileResult
from provisioner.termination.eviction_queue import grace_end
from provisioner.termination.terminator import EndState, Terminator
from provisioner.termination.unfinished import INSTANCE_TERMINATING, grace_period_expiring, not_ended, retry_of
from provisioner.values.message import ConditionMessage, EventMessage, Said

#: While another Karpenter leads or launches are paused, a NodeClaim is looked at again after so long.
BESIDE_SECONDS = 5.0
FINALIZE_REQUEUE_SECONDS = 5.0
AWAITS_SECONDS = 2.0
RIVALS_REQUEUE_SECONDS = 10.0
#: Asking whether the pods of a claim could go elsewhere is a planning run, so one claim at a time.
ELSEWHERE_SECONDS = 0.5
#: A NodeClaim of a launch set for which there is no capacity is tried again after so long at most, until it is decided about the set.
SET_SECONDS = 5.0
#: A claim whose pods are being planned again is looked at again after so long.
REPLANNING_SECONDS = 0.5
POSTPONED_SECONDS = 1.0
#: A NodeClaim that waits for the end of another one is looked at again after so long; no event is of both.
GATED_SECONDS = 0.5
CONTROLLER = "nodeclaim.lifecycle"
_MESSAGE_LENGTH = 300
_TOLD_FOR_SECONDS = 300.0
_PLANNED_AGAIN = Said("the pod is planned again")
_log = logs.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a NodeClaim may take for a step.

    Attributes:
        launch: until its instance is launched; then it is deleted.
        registration: until its Node has registered; likewise.
        drain: of a claim without a terminationGracePeriod, from its deletion until its pods are deleted whatever forbids it; None waits for ever.
    """

    launch: timedelta = timedelta(minutes=5)
    registration: timedelta = timedelta(minutes=15)
    drain: timedelta | None = None


def timeouts_of(options: Options) -> Timeouts:
    """As the program was started."""
    return Timeouts(options.timeouts.launch, options.timeouts.registration, options.drain_timeout or None)


class Lifecycle:
    """The reconciler of NodeClaims; one key is a claim's name.

    Args:
        register: takes the name of a claim whose Node has come.
        health: notes whether an instance of a pool came up, and why it did not, where that is known.
        elsewhere: whether all pods that wait for a claim would find other places now.
        nodes_are_stale: whether the watch of Nodes is behind, so that what it does not show says nothing.
        beside: that another Karpenter leads, as a sentence: nothing is launched or given up then; "" where none does.
        awaits: why the end of a NodeClaim waits for a confirmation, in words; "" where it does not.
        paused: what pauses launches of a NodePool; what has begun to be launched before is finished.
        gangs: decides what becomes of NodeClaims of launch sets that cannot be launched; None: they are like all others.

    Timeouts count from the moment at which this process first saw the claim in that state (of a launch: first sent it), on its own monotonic clock:
    times in objects are of other clocks, and nothing may be given up for what happened, or came, while nobody looked.
    A new leader therefore waits a whole timeout once more.
    """

    def __init__(
        self,
        cluster: Cluster,
        client: Client,
        provider: CloudProviderView,
        terminator: Terminator,
        writer: ClaimWriter,
        recorder: Recorder,
        clock: Clock,
        *,
        register: Callable[[str], None],
        health: Callable[[str, bool, str], None],
        nodes_are_stale: Callable[[], bool],
        elsewhere: Callable[[str], bool] = lambda _: False,
        beside: Callable[[], str] = lambda: "",
        paused: Callable[[str], str] = lambda _: "",
        timeouts: Timeouts = Timeouts(),
        postponed: Postponed = never,
        awaits: Callable[[NodeClaim], str] = lambda _: "",
        gangs: GangKeeper | None = None,
    ) -> None:
        self._gangs = gangs
        self._postponed, self._awaits = postponed, awaits
        self._timeouts = timeouts
        self._cluster, self._client, self._provider, self._writer = cluster, client, provider, writer
        self._terminator, self._nodes_are_stale = terminator, nodes_are_stale
        self._recorder, self._clock = recorder, clock
        self._register, self._health, self._elsewhere = register, health, elsewhere
        self._beside, self._paused = beside, paused
        self._waits_since: dict[str, tuple[str, str, float]] = {}  # claim -> UID, what for, and since when it was seen
        self._asked_elsewhere = float("-inf")
        self._fallback, self._falling = Fallback(), threading.Lock()

    def reconcile(self, name: str) -> ReconcileResult:
        """One look at one claim, and what follows from it."""
        claim = self._cluster.claim(name)
        if claim is None:
            self._waits_since.pop(name, None)
            with self._falling:
                self._fallback.gone(name)
            return DONE
        if not claim.metadata.uid or not manages(self._provider, claim.spec.node_class_ref):
            return DONE
        try:
            if claim.metadata.deletion_timestamp is not None:
                return self._finalize(claim)
            if names.TERMINATION_FINALIZER not in claim.metadata.finalizers:
                claim = self._writer.metadata(
                    claim,
                    resourceVersion=claim.metadata.resource_version,
                    finalizers=[*claim.metadata.finalizers, names.TERMINATION_FINALIZER],
                )
            rivals = self._cluster.rivals(claim)
            if rivals is not None:
                return self._say_rivals(claim, rivals)
            conditions = claim.status.conditions
            if not is_true(conditions, names.LAUNCHED):
                return self._launch(claim)
            if not is_true(conditions, names.REGISTERED):
                return self._await_registration(claim)
            record = reboots_of(claim)
            if record.under_way or record.failed:
                return DONE  # it is initialized anew once it is back
            if not is_true(conditions, names.INITIALIZED):
                return self._initialize(claim)
        except Conflict:
            return ReconcileResult(requeue_after=0.05)  # the watch brings the newer one
        except NotFound:
            return ReconcileResult(requeue_after=1.0)
        self._waits_since.pop(name, None)
        return DONE

    # ------------------------------------------------------------------ launch

    def _launch(self, claim: NodeClaim) -> ReconcileResult:
        if (gated := self._gated(claim)) is not None:
            return gated
        if self._beside():
            self._waits_since.pop(claim.metadata.name, None)  # what Karpenter takes is no time of ours
            return ReconcileResult(requeue_after=BESIDE_SECONDS)
        if (paused := self._paused(claim.pool)) and not may_have_begun(claim.metadata.annotations):
            self._waits_since.pop(claim.metadata.name, None)
            self._say_not_launched(claim, names.LAUNCH_PAUSED, paused)
            return ReconcileResult(requeue_after=BESIDE_SECONDS)
        if self._cluster.is_unneeded(claim.metadata.name):
            self._writer.delete_unneeded(claim)
            return DONE
        match self._cluster.launch_begins(claim.metadata.name):
            case Launch.UNNEEDED:
                self._writer.delete_unneeded(claim)
                return DONE
            case Launch.HELD:
                return ReconcileResult(requeue_after=REPLANNING_SECONDS)
            case Launch.BEGIN:
                pass
        waited = self._waited(claim, names.LAUNCHED)  # what came before is no time of its provider
        late = waited > self._timeouts.launch.total_seconds()
        if late and not _may_still_come(claim):
            return self._give_up(claim, "launch_timeout", unhealthy=True)
        try:
            launched = self._provider.create(claim)
        except LaunchUnderWayError as error:
            if error.reason:
                self._not_launched(claim, error.reason, error)
            return ReconcileResult(requeue_after=error.retry_after)
        except InsufficientCapacityError as error:
            self._cluster.launch_refused(claim.metadata.name)
            return self._short(claim, error)
        except NodeClassNotReadyError as error:
            self._event(
                claim, EventMessage("Warning", "NodeClassNotReady", f"NodeClaim {claim.metadata.name} event: {error}")
            )
            return self._give_up(claim, "nodeclass_not_ready", unhealthy=False)
        except CloudError as error:
            if late:
                return self._give_up(claim, "launch_timeout", unhealthy=True)
            if isinstance(error, CreateError):
                self._cluster.launch_refused(claim.metadata.name)
            reason = error.reason if isinstance(error, CreateError) else names.LAUNCH_FAILED
            self._not_launched(claim, reason, error)
            return retry_of(error)
        self._launched(claim, launched)
        if self._gangs is not None:
            self._gangs.launched(claim.metadata.name)
        with self._falling:
            self._fallback.launched(claim.metadata.name, waited, self._clock.monotonic())
        return self._deadline(claim)

    def _gated(self, claim: NodeClaim) -> ReconcileResult | None:
        """What is done with a claim whose place is not free; None where it may be launched, or waits for nothing."""
        awaited = awaited_by(claim)
        other = self._cluster.claim(awaited.claim) if awaited is not None else None
        match gate_of(claim, other, self._cluster.command_waiting_for(claim.metadata.name)):
            case LaunchGate.OPEN:
                return None
            case LaunchGate.FREED:
                self._writer.metadata(claim, annotations={names.AWAITS_ANNOTATION: None})
                return ReconcileResult(requeue_after=0.0)
            case LaunchGate.RELEASED:
                _log.info("Deleting NodeClaim because the node that it was to replace stays", nodeclaim=claim.name)
                self._writer.delete(claim, version=claim.metadata.resource_version)
                return DONE
            case LaunchGate.HELD:
                self._waits_since.pop(claim.metadata.name, None)
                if awaited is not None:
                    why = Said(f"waiting until NodeClaim {awaited.claim} is terminated, whose place it takes")
                    self._say_not_launched(claim, names.AWAITS_TERMINATION, why)
                return ReconcileResult(requeue_after=GATED_SECONDS)

    def _short(self, claim: NodeClaim, error: InsufficientCapacityError) -> ReconcileResult:
        """Nothing to be had: wait in place, unless that is in vain or there is a better place."""
        name, wait = claim.metadata.name, error.retry_after
        self._event(claim, EventMessage("Warning", "InsufficientCapacityError", f"NodeClaim {name} event: {error}"))
        if (
            (wait is None or error.exhausted)
            and self._gangs is not None
            and self._gangs.short(name, ever=wait is not None)
        ):
            wait = SET_SECONDS if wait is None else min(wait, SET_SECONDS)
        elif wait is None:
            self._tell_pods(claim, error, _PLANNED_AGAIN)
            return self._give_up(claim, "insufficient_capacity", unhealthy=False)
        elif error.exhausted:
            now = self._clock.monotonic()
            with self._falling:
                may = self._fallback.may_leave(name, now)
                turn = now - self._asked_elsewhere >= ELSEWHERE_SECONDS
                if may and turn:
                    self._asked_elsewhere = now
            if may and turn and self._elsewhere(name):
                with self._falling:
                    self._fallback.left(name, self._clock.monotonic())
                self._tell_pods(claim, error, _PLANNED_AGAIN)
                return self._give_up(claim, "insufficient_capacity", unhealthy=False)
            if may and not turn:
                wait = min(wait, ELSEWHERE_SECONDS)  # the next turn may be this one's
        self._not_launched(claim, names.INSUFFICIENT_CAPACITY, error)
        self._tell_pods(claim, error, Said(f"the launch is retried in {wait:.0f} s"))
        return ReconcileResult(requeue_after=wait)

    def _tell_pods(self, claim: NodeClaim, error: InsufficientCapacityError, then: str) -> None:
        """Say to the pods that wait for a claim why it is not launched, and what happens next; the recorder keeps them few. Source: Karpenter 1.15."""
        name = claim.metadata.name
        for pod in filter(is_pending, self._cluster.assigned(NodeKey(name))):
            if not is_virtual(pod):
                self._recorder.publish(
                    pod_reference(pod),
                    "Warning",
                    "InsufficientCapacityError",
                    f"NodeClaim {name} nominated for this pod failed to launch: {error}; {then}",
                    (pod.uid,),
                    ttl=_TOLD_FOR_SECONDS,
                )

    def _not_launched(self, claim: NodeClaim, reason: str, error: CloudError) -> None:
        self._say_not_launched(claim, reason, str(error))

    def _say_not_launched(self, claim: NodeClaim, reason: str, why: str) -> None:
        message = ConditionMessage(names.LAUNCHED, names.UNKNOWN, reason, why[:_MESSAGE_LENGTH])
        self._writer.status(claim, self._with(claim, message))

    def _launched(self, claim: NodeClaim, launched: LaunchedInstance) -> None:
        labels = {key: value for key, value in launched.labels.items() if key not in claim.metadata.labels}
        if labels or launched.annotations:
            claim = self._writer.metadata(claim, labels=labels, annotations=dict(launched.annotations))
        self._writer.status(
            claim,
            self._with(
                claim,
                ConditionMessage(names.LAUNCHED, names.TRUE),
                ConditionMessage(
                    names.REGISTERED, names.UNKNOWN, names.NODE_NOT_FOUND, "Node not registered with cluster"
                ),
            ),
            providerID=launched.provider_id,
            imageID=launched.image_id,
            capacity=launched.capacity.to_wire(),
            allocatable=launched.allocatable.to_wire(),
        )
        _log.info(
            "Launched NodeClaim",
            nodeclaim=claim.metadata.name,
            provider_id=launched.provider_id,
            instance_type=launched.instance_type,
            zone=launched.zone,
            capacity_type=launched.capacity_type,
        )

    # ------------------------------------------------------------------ registration and initialisation

    def _await_registration(self, claim: NodeClaim) -> ReconcileResult:
        node = self._cluster.node_of(claim)
        if node is None:
            return self._deadline(claim)
        if not registration.was_registered(claim, node) and (waits := self._hooks(claim)):
            self._writer.status(
                claim,
                self._with(
                    claim,
                    ConditionMessage(
                        names.REGISTERED,
                        names.UNKNOWN,
                        names.REGISTRATION_HOOK_PENDING,
                        f"Waiting for registration hooks: {', '.join(sorted(waits))}",
                    ),
                ),
            )
            result = self._deadline(claim)
            return (
                ReconcileResult(min(result.requeue_after, *waits.values()))
                if result.requeue_after is not None
                else result
            )
        self._register(claim.metadata.name)
        return self._deadline(claim)

    def _hooks(self, claim: NodeClaim) -> dict[str, float]:
        """Of the provider's hooks that the claim's Node waits for: the name, and seconds until it should be asked again."""
        every = {hook.name: hook.wait(claim) for hook in self._provider.registration_hooks()}
        return {name: seconds for name, seconds in every.items() if seconds > 0}

    def _deadline(self, claim: NodeClaim) -> ReconcileResult:
        """Wait for the Node until the registration timeout."""
        longest = self._timeouts.registration.total_seconds()
        left = longest - self._waited(claim, names.REGISTERED)
        if left <= 0:
            node = self._cluster.node_of(claim)
            if node is not None and registration.was_registered(claim, node):
                return ReconcileResult(
                    requeue_after=registration.PATIENCE_SECONDS
                )  # its Node is open; that is about to be said
            if not self._nodes_are_stale() and not self._beside():
                return self._give_up(claim, "registration_timeout", unhealthy=True)
            del self._waits_since[claim.metadata.name]  # its Node may be there, or was kept from coming
            left = longest - self._waited(claim, names.REGISTERED)
        return ReconcileResult(requeue_after=left)

    def _waited(self, claim: NodeClaim, what: str) -> float:
        """Seconds since this process first saw the claim wait for its condition `what`."""
        now, uid = self._clock.monotonic(), claim.metadata.uid
        known = self._waits_since.get(claim.metadata.name)
        if known is None or known[:2] != (uid, what):
            known = self._waits_since[claim.metadata.name] = (uid, what, now)
        return now - known[2]

    def _initialize(self, claim: NodeClaim) -> ReconcileResult:
        node = self._cluster.node_of(claim)
        if node is None:
            return self._pending(
                claim, ConditionMessage(names.INITIALIZED, names.UNKNOWN, names.NODE_NOT_FOUND, "Node not found")
            )
        problem = registration.missing(claim, node, self._cluster.lacking(NodeKey(claim.name), node))
        if problem is not None:
            return self._pending(claim, problem)
        self._writer.label_node(node, {names.INITIALIZED_LABEL: "true"})
        self._writer.status(claim, self._with(claim, ConditionMessage(names.INITIALIZED, names.TRUE)))
        return DONE

    def _pending(self, claim: NodeClaim, message: ConditionMessage) -> ReconcileResult:
        self._writer.status(claim, self._with(claim, message))
        return ReconcileResult(requeue_after=10.0)  # an event comes first as a rule

    def _say_rivals(self, claim: NodeClaim, rivals: Rivals) -> ReconcileResult:
        """Several claims or Nodes have the provider ID: nobody can tell whose instance it is, so it is left alone."""
        text = Said(f"Provider ID {claim.status.provider_id} belongs to more than one object: {rivals}")
        self._event(claim, EventMessage("Warning", names.MULTIPLE_NODES_FOUND, text))
        if not is_true(claim.status.conditions, names.REGISTERED):
            self._writer.status(
                claim,
                self._with(claim, ConditionMessage(names.REGISTERED, names.FALSE, names.MULTIPLE_NODES_FOUND, text)),
            )
        return ReconcileResult(requeue_after=RIVALS_REQUEUE_SECONDS)

    # ------------------------------------------------------------------ the end

    def _give_up(self, claim: NodeClaim, reason: str, *, unhealthy: bool) -> ReconcileResult:
        if claim.status.provider_id and self._postponed(claim, self._cluster.node_of(claim), patience=DECIDED_SECONDS):
            return ReconcileResult(requeue_after=POSTPONED_SECONDS)
        self._writer.delete(claim, version=claim.metadata.resource_version)
        _log.warning("Deleting NodeClaim", nodeclaim=claim.metadata.name, reason=reason)
        if unhealthy:
            self._health(claim.pool, False, "")
        metrics.claim_disrupted(claim, reason)
        return DONE

    def _finalize(self, claim: NodeClaim) -> ReconcileResult:
        if names.TERMINATION_FINALIZER not in claim.metadata.finalizers:
            return DONE
        if self._awaits(claim):
            return ReconcileResult(requeue_after=AWAITS_SECONDS)
        rivals = self._cluster.rivals(claim)
        if rivals is not None and len(rivals.claims) > 1:
            return self._finalize_rival(claim, rivals)
        claim = self._with_deadline(claim)
        registered = is_true(claim.status.conditions, names.REGISTERED)
        node = self._cluster.node_of(claim)
        if node is not None and registered and not self._nodes_are_stale():
            self._writer.delete_node(node)
            return ReconcileResult(requeue_after=FINALIZE_REQUEUE_SECONDS)  # its end brings us back
        try:
            # also where no provider ID is written: the launch may have succeeded and its status been lost
            ending = self._terminator.end(claim, by=CONTROLLER)
        except CloudError as error:
            self._event(claim, not_ended(claim, error))
            return retry_of(error)
        except ApiError as error:  # what is not known counts as live: wait, and ask again
            _log.warning(
                "A request to the API server failed during the termination of a NodeClaim; retrying",
                nodeclaim=claim.name,
                error=str(error),
            )
            return ReconcileResult(failed=True)
        if registered:
            for one in ending.nodes:  # the caches do not know it, the API server does
                if one.metadata.deletion_timestamp is None:
                    self._client.delete(resources.NODES, one.metadata.name, uid=one.metadata.uid)
        match ending.state:
            case EndState.HELD:
                return ReconcileResult(requeue_after=ending.requeue_after)
            case EndState.UNDER_WAY:
                claim = self._cluster.claim(claim.metadata.name) or claim  # it may have been registered meanwhile
                self._writer.status(claim, self._with(claim, INSTANCE_TERMINATING))
                return ReconcileResult(requeue_after=FINALIZE_REQUEUE_SECONDS)
            case EndState.GONE:
                if ending.failed_launch and not registered:
                    claim = self._say_failed(claim, ending.failed_launch)
                if len(claim.metadata.finalizers) > 1:  # who holds the claim besides holds no budget with it
                    claim = self._cluster.claim(claim.metadata.name) or claim
                    claim = self._writer.status(claim, self._with(claim, INSTANCE_TERMINATING))
                self._writer.drop_finalizer(claim)
                self._terminator.forget(claim)
                metrics.claim_terminated(claim, self._clock.now(), with_instance=True)
                return DONE

    def _say_failed(self, claim: NodeClaim, why: str) -> NodeClaim:
        """The cloud ended its instance before its Node registered: a launch that failed, however the claim came to be deleted."""
        self._event(
            claim,
            EventMessage(
                "Warning", names.LAUNCH_FAILED, f"the launch of NodeClaim {claim.metadata.name} failed: {why}"
            ),
        )
        self._health(claim.pool, False, why)
        claim = self._cluster.claim(claim.metadata.name) or claim
        return self._writer.status(
            claim, self._with(claim, ConditionMessage(names.REGISTERED, names.FALSE, names.LAUNCH_FAILED, why))
        )

    def _with_deadline(self, claim: NodeClaim) -> NodeClaim:
        """With the time at which its Node is terminated whatever runs on it, where it has one; one that is written already counts."""
        end = grace_end(claim, self._timeouts.drain)
        if end is None or names.TERMINATION_TIMESTAMP in claim.metadata.annotations:
            return claim
        text = end.strftime("%Y-%m-%dT%H:%M:%SZ")
        self._event(claim, grace_period_expiring(end))
        return self._writer.metadata(claim, annotations={names.TERMINATION_TIMESTAMP: text})

    def _finalize_rival(self, claim: NodeClaim, rivals: Rivals) -> ReconcileResult:
        """The instance stays with the last claim that has it; all its Nodes are drained before it may be ended."""
        name = claim.metadata.name
        others = [one for other in rivals.claims if other != name and (one := self._cluster.claim(other)) is not None]
        if any(one.metadata.deletion_timestamp is None or one.metadata.name > name for one in others):
            _log.warning(
                "Removing a NodeClaim without terminating its instance, which belongs to another NodeClaim",
                nodeclaim=name,
                rivals=str(rivals),
            )
            self._writer.drop_finalizer(claim)
            metrics.claim_terminated(claim, self._clock.now(), with_instance=False)
            return DONE
        for node_name in rivals.nodes:
            if (node := self._cluster.node(node_name)) is not None:
                self._writer.delete_node(node)
        return ReconcileResult(requeue_after=FINALIZE_REQUEUE_SECONDS)

    # ------------------------------------------------------------------ helpers

    def _with(self, claim: NodeClaim, *said: ConditionMessage) -> tuple[Condition, ...]:
        now, generation = self._clock.now(), claim.metadata.generation
        created = claim.metadata.creation_timestamp or now
        conditions = CLAIM_CONDITIONS.initialise(claim.status.conditions, generation=generation, created=created)
        for one in said:
            conditions = CLAIM_CONDITIONS.set(conditions, *one, generation=generation, now=now)
        return conditions

    def _event(self, claim: NodeClaim, message: EventMessage) -> None:
        self._recorder.publish(reference_of(claim), *message)


def _may_still_come(claim: NodeClaim) -> bool:
    """Whether age is no reason to give the claim up unasked: it waits for capacity, or its instance may have been launched already."""
    launched = condition(claim.status.conditions, names.LAUNCHED)
    waits = launched is not None and launched.reason == names.INSUFFICIENT_CAPACITY
    return waits or may_have_begun(claim.metadata.annotations)
