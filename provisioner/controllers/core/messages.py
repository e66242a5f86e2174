"""Texts that `controllers/core` publishes: events and conditions by subject, logs by the module that writes them.

docs/reference/messages.md is generated from here. What a reason of `scheduling` or `disruption` says is said there, purely.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from provisioner.apis import names
from provisioner.apis.messages import unknown_fields_ignored
from provisioner.disruption.acceptance import THRESHOLD
from provisioner.disruption.proposal import DISRUPTION_LOOP, Proposal, Score
from provisioner.disruption.protections import ELAPSED, Protection
from provisioner.disruption.shares import MOST_ATTEMPTS, Unrepaired
from provisioner.disruption.surge import Refusal
from provisioner.scheduling.nomination import WITHDRAW_AFTER_SECONDS
from provisioner.values.message import ConditionMessage, EventMessage

# ------------------------------------------------------------------ events: pods


def failed_scheduling(text: str) -> EventMessage:
    """Why a pod gets no node: one of the four texts that follow."""
    return EventMessage("Warning", "FailedScheduling", text)


def unschedulable(reasons: str, more: int = 0) -> str:
    """The reasons of a pod that fit into an event, joined, and how many do not."""
    return f"Failed to schedule pod, {reasons}; and {more} more" if more else f"Failed to schedule pod, {reasons}"


def not_bound_as_planned(misses: int, seconds: float, said: str) -> str:
    """Of a pod of a class that is not planned for a while; `said` is `scheduler_said` or `SCHEDULER_SAID_NOTHING`."""
    return (
        f"Failed to schedule pod, kube-scheduler did not bind pods like this one to the nodes planned for them {misses} times in a row; "
        f"no nodes are launched for them for {seconds:.0f} s; {said}"
    )


def scheduler_said(message: str) -> str:
    return f'its message was: "{message}"'


SCHEDULER_SAID_NOTHING: Final = "it gave no message"


def claim_refused_for_pod(pool: str, problem: str) -> EventMessage:
    """To each pod of a NodeClaim that the API server does not take."""
    return EventMessage(
        "Warning",
        "FailedScheduling",
        f'Failed to schedule pod, NodePool "{pool}": could not create a NodeClaim: {problem}',
    )


def pool_not_ready(pool: str, cause: str) -> str:
    """Part of `unschedulable`; `cause` names the conditions that are not True, in parentheses after a space, or is ""."""
    return f'NodePool "{pool}": not Ready{cause}'


def nominated(target: str) -> EventMessage:
    """`target` as "nodeclaim/NAME" or "node/NAME"."""
    return EventMessage("Normal", "Nominated", f"Pod should schedule on: {target}")


def scheduler_not_running(scheduler: str, seconds: float) -> EventMessage:
    """To each pod that waits for a scheduler that shows no sign of life."""
    return EventMessage(
        "Warning",
        "SchedulerNotRunning",
        f'Scheduler "{scheduler}" of the pod has processed no pod for {seconds:.0f} s. '
        "Check that the scheduler runs, or recreate the pod without this schedulerName",
    )


def recreated(scheduler: str, seconds: float) -> EventMessage:
    """To a pod that is deleted so that its controller makes it again."""
    return EventMessage(
        "Warning",
        "RecreatedUnscheduled",
        f'Deleted the pod: scheduler "{scheduler}" has processed no pod for {seconds:.0f} s, '
        "and the controller of the pod creates it again",
    )


def evicted(reason: str) -> EventMessage:
    """`reason` is why the node is disrupted."""
    return EventMessage("Normal", "Evicted", f"Evicted pod: {reason}")


def evicted_for_share(owner: str, on_demand: int, wanted: int) -> EventMessage:
    """To a pod that is evicted so that the webhook gives its successor the other capacity; `owner` as "KIND NAMESPACE/NAME"."""
    return EventMessage(
        "Normal",
        "Evicted",
        f"Evicted pod: {on_demand} pods of {owner} run on demand, and {names.STAMP_ON_DEMAND} asks for {wanted}",
    )


_NOT_REPAIRED: Final = {
    Unrepaired.STOPPED: f"after {MOST_ATTEMPTS} evictions, no new pod was assigned to the capacity that lacks pods; the next attempt is in a day. Check that "
    "the webhook runs with --on-demand-shares, and that nothing else sets the capacity type of the pods",
    Unrepaired.UNKNOWN: f"the node of a pod has no label {names.CAPACITY_TYPE_LABEL}",
    Unrepaired.PROTECTED: f"each pod that could be evicted is protected by {names.DO_NOT_DISRUPT}, by its own node selector or affinity, "
    "or by a pause of its NodePool",
    Unrepaired.BUDGET: "no PodDisruptionBudget of the pods allows an eviction now",
}


def share_not_repaired(why: Unrepaired) -> EventMessage:
    """To the owner of pods of which too many or too few run on demand."""
    return EventMessage(
        "Warning",
        "OnDemandShareNotRepaired",
        f"Not repairing the share of pods that run on demand ({names.STAMP_ON_DEMAND}): {_NOT_REPAIRED[why]}",
    )


def share_eviction_denied(pod: str, error: str) -> EventMessage:
    """To the same; `pod` as "NAMESPACE/NAME"."""
    return EventMessage(
        "Warning",
        "OnDemandShareNotRepaired",
        f"Not repairing the share of pods that run on demand ({names.STAMP_ON_DEMAND}): the API server denied the eviction of pod {pod}; retrying. "
        f"Check the admission webhooks for pods/eviction: {error}",
    )


def deleted_at_deadline(seconds: int, deadline: datetime) -> EventMessage:
    """The pod was deleted, not evicted, because the termination grace period of its node is nearly over."""
    return EventMessage(
        "Normal",
        "Disrupted",
        f"Deleted the pod with a grace period of {seconds} s because its node is terminated at {deadline:%Y-%m-%dT%H:%M:%SZ}",
    )


def surge_started(deployment: str) -> EventMessage:
    """The Deployment, as namespace/name, was restarted before its pod is evicted."""
    return EventMessage(
        "Normal",
        "SurgeStarted",
        f"Restarted Deployment {deployment} so that its new pod is available before this pod is removed from its node",
    )


_NO_SURGE: Final = {
    Refusal.REPLICAS: "the Deployment does not have exactly one replica; use a PodDisruptionBudget instead",
    Refusal.RECREATE: "spec.strategy.type of the Deployment is Recreate; set it to RollingUpdate",
    Refusal.MAX_SURGE: "spec.strategy.rollingUpdate.maxSurge of the Deployment is 0; set it to 1 or more",
    Refusal.PAUSED: "the rollout of the Deployment is paused; resume it",
    Refusal.OWNER: "only Deployments can be restarted; use more replicas and a PodDisruptionBudget instead",
    Refusal.FORBIDDEN: "the provisioner may not patch Deployments; add the component manifests/components/surge",
    Refusal.INVALID: "the API server rejected the restart of the Deployment",
    Refusal.LATE: "its new pod was not available in time",
}


def surge_refused(why: Refusal) -> EventMessage:
    """The pod is evicted though its owner asks for a surge."""
    return EventMessage("Warning", "SurgeNotPossible", f"Evicting the pod without a surge: {_NO_SURGE[why]}")


# ------------------------------------------------------------------ events: NodePools


def no_compatible_instance_types(constraint: str) -> EventMessage:
    """The NodePool has no instance type to offer to any pod."""
    return EventMessage(
        "Warning",
        "NoCompatibleInstanceTypes",
        f"NodePool requirements filtered out all compatible available instance types: {constraint}",
    )


def invalid_annotation(problem: str) -> EventMessage:
    """An annotation of the NodePool is taken as if it were not there; `problem` begins with its path."""
    return EventMessage(
        "Warning", "InvalidAnnotation", f"{problem}. The default applies until the value is corrected or removed"
    )


def claim_refused(problem: str) -> EventMessage:
    """The API server does not take a NodeClaim, for pods or of a static NodePool."""
    return EventMessage("Warning", "FailedCreate", f"Failed to create a NodeClaim: {problem}")


STATIC_CAPACITY_DISABLED: Final = EventMessage(
    "Warning",
    "StaticCapacityDisabled",
    "spec.replicas has no effect because the feature gate StaticCapacity is disabled; "
    "start the provisioner with --feature-gates=StaticCapacity=true",
)


def node_limit_reached(refused: int, replicas: int | None, limit: str) -> EventMessage:
    """Of a static NodePool."""
    return EventMessage(
        "Warning",
        "NodeLimitReached",
        f"{refused} of {replicas} nodes (spec.replicas) are missing because "
        f"limits.nodes is {limit}; raise the limit or lower spec.replicas",
    )


# ------------------------------------------------------------------ events: NodeClaims and Nodes


def nodeclass_not_ready(claim: str, error: str) -> EventMessage:
    """A NodeClaim is deleted because its node class cannot be used."""
    return EventMessage("Warning", "NodeClassNotReady", f"NodeClaim {claim} event: {error}")


def insufficient_capacity(claim: str, error: str) -> EventMessage:
    """The cloud had none of the instances that the NodeClaim allows."""
    return EventMessage("Warning", "InsufficientCapacityError", f"NodeClaim {claim} event: {error}")


def launch_failed(claim: str, why: str) -> EventMessage:
    """On a NodeClaim whose instance the cloud provider ended before its Node registered."""
    return EventMessage("Warning", names.LAUNCH_FAILED, f"the launch of NodeClaim {claim} failed: {why}")


def launches_failed(why: str) -> EventMessage:
    """On a NodePool of whose most recent launches half failed or more."""
    return EventMessage("Warning", names.LAUNCH_FAILED, f"nodes of this NodePool do not come up: {why}")


UNREGISTERED_TAINT_MISSING: Final = EventMessage(
    "Warning",
    "UnregisteredTaintMissing",
    f'Missing required NoExecute taint "{names.UNREGISTERED_TAINT}" which is required for proper registration',
)


def failed_consistency_check(shortfall: str) -> EventMessage:
    """A Node has clearly less of a resource than its instance was said to have."""
    return EventMessage("Warning", "FailedConsistencyCheck", shortfall)


def shortfall(resource: str, expected: str, found: str, percent: int) -> str:
    """What `failed_consistency_check` and the condition ConsistentStateFound say."""
    return f"expected {expected} of {resource}, but the Node has {found} ({percent}%)"


def several_objects(text: str) -> EventMessage:
    """`text` as `provider_id_of_several` says it."""
    return EventMessage("Warning", names.MULTIPLE_NODES_FOUND, text)


def provider_id_of_several(provider_id: str, rivals: str) -> str:
    """Nobody can tell whose instance it is, so it is left alone."""
    return f"Provider ID {provider_id} belongs to more than one object: {rivals}"


def disruption_blocked(why: str) -> EventMessage:
    """A command waits or was canceled, or a NodePool is paused; `why` is a reason of `disruption`, or `disruption_canceled`."""
    return EventMessage("Normal", "DisruptionBlocked", why)


def not_known_as_it_is(kind: str, name: str) -> str:
    return f"the cache does not have the current version of {kind} {name} yet"


def live_read_failed(error: str) -> str:
    return f"its objects could not be read from the API server: {error}"


def disruption_canceled(reason: str, why: str) -> EventMessage:
    """The command is taken back, with its taints."""
    return EventMessage(
        "Normal", "DisruptionBlocked", f"Canceled the disruption ({reason}), the node accepts pods again: {why}"
    )


def not_disruptable(reason: str, text: str) -> EventMessage:
    """Why a node is left alone: reason and text of a `disruption.proposal.Blocked`."""
    return EventMessage("Normal", reason, text)


def node_labels_restored(node: str, labels: Iterable[str]) -> EventMessage:
    """Of a Node and its NodeClaim, where the Node no longer had the labels that the NodeClaim decides."""
    text = f'Restored labels of Node "{node}" that no longer agreed with its NodeClaim: {", ".join(sorted(labels))}'
    return EventMessage("Warning", "NodeLabelsRestored", text)


def pool_has_unknown_fields(paths: Sequence[str]) -> EventMessage:
    """Of a NodePool that a newer version wrote."""
    return EventMessage("Warning", "UnknownFields", unknown_fields_ignored("NodePool", paths))


def not_repaired(reason: str, text: str) -> EventMessage:
    """Why an unhealthy node is not replaced: reason and text of a `disruption.node_repair` value."""
    return EventMessage("Warning", reason, text)


def disrupting_node(reason: str) -> EventMessage:
    """A NodeClaim is deleted by a command, an expiration or a repair."""
    return EventMessage("Normal", "DisruptionTerminating", f"Disrupting Node: {reason}")


def scaled_down(pool: str, replicas: int | None) -> EventMessage:
    """A NodeClaim of a static NodePool is deleted."""
    return EventMessage(
        "Normal",
        "DisruptionTerminating",
        f'Terminating the node because NodePool "{pool}" has more nodes than spec.replicas ({replicas})',
    )


def launching_replacement(reason: str) -> EventMessage:
    """To a replacement that has no instance yet."""
    return EventMessage("Normal", "DisruptionLaunching", f"Launching NodeClaim: {reason}")


WAITING_ON_READINESS: Final = EventMessage(
    "Normal", "DisruptionWaitingReadiness", "Waiting on readiness to continue disruption"
)
TERMINATING_ON_INTERRUPTION: Final = EventMessage(
    "Warning", "TerminatingOnInterruption", "Interruption triggered termination"
)


def transitioned(type: str, text: str) -> EventMessage:  # noqa: A002  (the API's word)
    """`text` as `transition` says it."""
    return EventMessage("Normal", type, text)


def transition(type: str, before: str, after: str, reason: str, message: str = "") -> str:  # noqa: A002 - the API's word for it
    """The status of a condition changed; `message` is the condition's."""
    if not message:
        return f"Status condition transitioned, Type: {type}, Status: {before} -> {after}, Reason: {reason}"
    return f"Status condition transitioned, Type: {type}, Status: {before} -> {after}, Reason: {reason}, Message: {message}"


def finalized(finalizers: str) -> EventMessage:
    """The object is gone; `finalizers` are those that it had."""
    return EventMessage("Normal", "Finalized", f"Finalized {finalizers}")


def failed_draining(why: str) -> EventMessage:
    """`why` is one of the texts that follow, or what blocks the drain as `disruption.blockers` says it."""
    return EventMessage("Warning", "FailedDraining", f"Failed to drain node, {why}")


def not_terminated_yet(claim: str, why: str) -> EventMessage:
    """The same, on the NodeClaim."""
    return EventMessage("Warning", "FailedDraining", f"The instance of NodeClaim {claim} is not terminated yet: {why}")


def pods_waiting(waiting: int, which: str) -> str:
    """`which` names them, or says what blocks them."""
    return f"{waiting} pods are waiting to be evicted: {which}"


def violates_budget(pod: str) -> str:
    """The API server refused an eviction."""
    return f"evicting pod violates a PDB (Pod={pod})"


def eviction_refused(pod: str, why: str) -> str:
    """Something else than a budget refused an eviction, as a policy or a webhook does; `why` is the API server's sentence."""
    return f"evicting pod {pod} failed: {why}"


def several_budgets(pod: str) -> str:
    """The API server can never evict the pod."""
    return f"eviction does not support multiple PDBs (Pod={pod})"


def unreadable_objects(which: str) -> str:
    """Objects that cannot be decoded count as pods that run."""
    return f"objects that cannot be read may have running pods: {which}"


def unknown_node(which: str) -> str:
    """A Node that has not said whose it is counts as this instance's."""
    return (
        f"the instance may belong to a Node without spec.providerID or with an unknown NodeClaim, "
        f"which has running pods: {which}"
    )


def shares_provider_id(claim: str, provider_id: str) -> str:
    """Another NodeClaim has the instance too."""
    return f"NodeClaim {claim} has the same provider ID {provider_id}"


def grace_period_expiring(deadline: datetime) -> EventMessage:
    """The node has a termination grace period and is being deleted."""
    return EventMessage(
        "Warning", "TerminationGracePeriodExpiring", f"All pods will be deleted by {deadline:%Y-%m-%dT%H:%M:%SZ}"
    )


def failed_termination(instance: str, error: str) -> EventMessage:
    """The cloud refused to terminate the instance."""
    return EventMessage("Warning", "FailedTermination", f"Failed to terminate {instance}; retrying: {error}")


def unnamed_instance(claim: str) -> str:
    """In place of a provider ID that is not known."""
    return f"the instance of NodeClaim {claim}"


def awaiting_volume_detachment(why: str) -> EventMessage:
    """`why` as `volumes_attached` says it."""
    return EventMessage("Normal", names.AWAITING_VOLUME_DETACHMENT, why)


def volumes_attached(count: int, s: str, which: str) -> str:
    """`s` is the ending of the plural."""
    return f"Waiting for {count} volume{s} to detach: {which}"


# ------------------------------------------------------------------ events: growth limits, loops, moves, protections


def pod_held_back(pool: str, why: str) -> str:
    """To each pod whose node may not be launched yet; `why` is `claims_held_back`, `usd_held_back`, `limit_held_back`, or that Karpenter runs."""
    return f'Failed to schedule pod, NodePool "{pool}": {why}'


def pool_held_back(nodes: int, why: str) -> EventMessage:
    """To a NodePool whose NodeClaims wait."""
    return EventMessage("Warning", "GrowthLimited", f"{nodes} {'node waits' if nodes == 1 else 'nodes wait'}: {why}")


def pool_out_of_money(pods: int, why: str) -> EventMessage:
    """To a NodePool of which the money limit keeps pods waiting."""
    return EventMessage(
        "Warning",
        "GrowthLimited",
        f"{pods} {'pod waits' if pods == 1 else 'pods wait'} because of the annotation {names.MAX_USD_PER_HOUR}: {why}; "
        "raise it, or remove workloads",
    )


def replacement_held_back(reason: str, why: str) -> str:
    """Why a node that needs a replacement stays for now."""
    return f"Cannot launch a replacement ({reason}): {why}"


def claims_held_back(most: int) -> str:
    """Why a NodeClaim waits for the next minute."""
    return (
        f"no further NodeClaim is created for now, because --max-claims-per-minute is {most}; "
        "it is planned again as soon as the limit allows it"
    )


def usd_held_back(most: float) -> str:
    """Why a NodeClaim waits for nodes to go."""
    return (
        f"no further NodeClaim of this price is created, because all nodes together may cost ${most:g} per hour "
        "(--max-usd-per-hour); raise the flag, or remove workloads"
    )


def unpriced_held_back(pool: str) -> str:
    """Why a NodeClaim waits for which there is a limit on money, but no price."""
    return (
        f"no NodeClaim of NodePool {pool} is created of instance types without a known price, because the price of nodes is limited "
        "(--max-usd-per-hour, or dovetail.dev/max-usd-per-hour on the NodePool); allow other instance types, or remove the limit"
    )


def limit_held_back(pool: str, resource: str) -> str:
    """Why a NodeClaim waits that was planned within the limits of its NodePool."""
    return f"other NodeClaims took what the limit on {resource} of NodePool {pool} left meanwhile; it is planned again"


def disruption_loop(text: str) -> EventMessage:
    """To the last NodeClaim of a loop and to pods of the workload; the text is `disruption.loops.loop_text`."""
    return EventMessage("Warning", DISRUPTION_LOOP, text)


def consolidation_candidate(proposal: Proposal) -> EventMessage:
    """To each node that consolidation wants to take."""
    text = f"Consolidation candidate: {_move(proposal)} (savings: ${proposal.saving_usd_per_hour:.2f} per hour)"
    return EventMessage("Normal", "ConsolidationCandidate", text)


def consolidation_approved(score: Score) -> EventMessage:
    """Why a NodePool that balances savings with disruption agrees to a move."""
    return EventMessage(
        "Normal",
        "ConsolidationApproved",
        f"score {score.value:.2f} >= threshold {THRESHOLD:.2f} "
        f"(k: {1 / THRESHOLD:g}, savings {score.savings:.1%}, disruption {score.disruption:.1%})",
    )


def consolidation_rejected(proposal: Proposal, why: str) -> EventMessage:
    """Why a move does not come to be that was decided: budget, or churn (something changed meanwhile)."""
    return EventMessage(
        "Normal",
        "ConsolidationRejected",
        f"Consolidation rejected: {_move(proposal)}, reason: {why} (savings: ${proposal.saving_usd_per_hour:.2f} per hour)",
    )


def consolidation_invalid(candidates: Iterable[str], why: str) -> EventMessage:
    """Why a move does not come to be that was begun."""
    text = f"Consolidation rejected: {', '.join(candidates)}, reason: {why}"
    return EventMessage("Normal", "ConsolidationRejected", text)


def _move(proposal: Proposal) -> str:
    gone = ", ".join(proposal.candidates)
    types = ", ".join(one.planned_type for one in proposal.replacements)
    return f"replace {gone} with {types}" if types else f"delete {gone}"


def do_not_disrupt(protection: Protection) -> EventMessage:
    """To a pod: what its annotation does, or has done."""
    value, end = protection.value, protection.end
    if end is None:
        return invalid_do_not_disrupt(value)
    return do_not_disrupt_elapsed(value) if protection.reason == ELAPSED else do_not_disrupt_until(value, end)


def invalid_do_not_disrupt(value: str) -> EventMessage:
    """To a pod whose annotation is neither "true" nor a duration."""
    return EventMessage(
        "Warning",
        "InvalidDoNotDisruptAnnotation",
        f'The annotation "karpenter.sh/do-not-disrupt" is {value!r}, which is ignored; set it to "true", or to a duration above 0 such as "4h"',
    )


def do_not_disrupt_until(value: str, end: datetime) -> EventMessage:
    """To a pod whose annotation is a duration that has not passed."""
    return EventMessage(
        "Normal",
        "DoNotDisruptUntil",
        f'Voluntary disruption of its node is blocked until {end:%Y-%m-%dT%H:%M:%SZ}, because its annotation "karpenter.sh/do-not-disrupt" is {value!r}',
    )


def do_not_disrupt_elapsed(value: str) -> EventMessage:
    """To a pod whose annotation is a duration that passed a short time ago."""
    return EventMessage(
        "Normal",
        "DoNotDisruptGracePeriodElapsed",
        f'The pod no longer blocks the disruption of its node: its annotation "karpenter.sh/do-not-disrupt" is {value!r}, and it has run for longer',
    )


# ------------------------------------------------------------------ conditions


def launch_pending(reason: str, error: str) -> ConditionMessage:
    """Why there is no instance yet, in the words of the cloud provider."""
    return ConditionMessage(names.LAUNCHED, names.UNKNOWN, reason, error)


LAUNCHED: Final = ConditionMessage(names.LAUNCHED, names.TRUE)
NODE_NOT_REGISTERED: Final = ConditionMessage(
    names.REGISTERED, names.UNKNOWN, names.NODE_NOT_FOUND, "Node not registered with cluster"
)


def not_registered_for(why: str) -> ConditionMessage:
    """The cloud provider ended the instance before its Node registered, in its words."""
    return ConditionMessage(names.REGISTERED, names.FALSE, names.LAUNCH_FAILED, why)


def registration_hooks_pending(hooks: Iterable[str]) -> ConditionMessage:
    """The provider has not said yet all that the Node should have."""
    return ConditionMessage(
        names.REGISTERED,
        names.UNKNOWN,
        names.REGISTRATION_HOOK_PENDING,
        f"Waiting for registration hooks: {', '.join(sorted(hooks))}",
    )


def rivals_found(text: str) -> ConditionMessage:
    """`text` as `provider_id_of_several` says it."""
    return ConditionMessage(names.REGISTERED, names.FALSE, names.MULTIPLE_NODES_FOUND, text)


NODE_NOT_FOUND: Final = ConditionMessage(names.INITIALIZED, names.UNKNOWN, names.NODE_NOT_FOUND, "Node not found")
NODE_NOT_READY: Final = ConditionMessage(
    names.INITIALIZED, names.UNKNOWN, names.NODE_NOT_READY, "Node status is NotReady"
)


def startup_taint_exists(taint: str) -> ConditionMessage:
    """The software that removes it has not done so yet."""
    return ConditionMessage(
        names.INITIALIZED, names.UNKNOWN, names.STARTUP_TAINTS_EXIST, f'StartupTaint "{taint}" still exists'
    )


def ephemeral_taint_exists(taint: str) -> ConditionMessage:
    """One of the taints that Kubernetes itself removes."""
    return ConditionMessage(
        names.INITIALIZED, names.UNKNOWN, names.EPHEMERAL_TAINTS_EXIST, f'KnownEphemeralTaint "{taint}" still exists'
    )


def resource_not_registered(resource: str) -> ConditionMessage:
    """A device plugin has not said what the Node has yet."""
    return ConditionMessage(
        names.INITIALIZED,
        names.UNKNOWN,
        names.RESOURCE_NOT_REGISTERED,
        f'Resource "{resource}" was requested but not registered',
    )


INITIALIZED: Final = ConditionMessage(names.INITIALIZED, names.TRUE)
CONSOLIDATABLE: Final = ConditionMessage(names.CONSOLIDATABLE, names.TRUE, names.CONSOLIDATABLE)
CONSISTENT: Final = ConditionMessage(names.CONSISTENT_STATE_FOUND, names.TRUE)


def inconsistent(shortfalls: str) -> ConditionMessage:
    """`shortfalls` as `shortfall` says each."""
    return ConditionMessage(names.CONSISTENT_STATE_FOUND, names.FALSE, names.CONSISTENCY_CHECK_FAILED, shortfalls)


def drifted(reason: str) -> ConditionMessage:
    """`reason` is NodePoolDrifted, RequirementsDrifted or one of the cloud provider."""
    return ConditionMessage(names.DRIFTED, names.TRUE, reason, reason)


def disruption_reason(reason: str) -> ConditionMessage:
    """A command has marked the NodeClaim."""
    return ConditionMessage(names.DISRUPTION_REASON, names.TRUE, reason, reason)


def draining(why: str) -> ConditionMessage:
    """`why` is what blocks the drain, with `until` where it has an end, or `DRAINING`."""
    return ConditionMessage(names.DRAINED, names.UNKNOWN, names.DRAINING, why)


DRAINING: Final = "Draining"


def until(why: str, deadline: datetime) -> str:
    """What blocks a drain that has an end."""
    return f"{why}; all pods will be deleted by {deadline:%Y-%m-%dT%H:%M:%SZ}"


DRAINED: Final = ConditionMessage(names.DRAINED, names.TRUE)


def awaiting_volumes(why: str) -> ConditionMessage:
    """`why` as `volumes_attached` says it."""
    return ConditionMessage(names.VOLUMES_DETACHED, names.UNKNOWN, names.AWAITING_VOLUME_DETACHMENT, why)


def volumes_not_awaited(count: int) -> ConditionMessage:
    """The termination grace period ended first."""
    return ConditionMessage(
        names.VOLUMES_DETACHED,
        names.FALSE,
        names.TERMINATION_GRACE_PERIOD_ELAPSED,
        f"{count} volumes are still attached",
    )


VOLUMES_DETACHED: Final = ConditionMessage(names.VOLUMES_DETACHED, names.TRUE)
INSTANCE_TERMINATING: Final = ConditionMessage(names.INSTANCE_TERMINATING, names.TRUE)


def pool_invalid(problems: str) -> ConditionMessage:
    """`problems` as validation says them."""
    return ConditionMessage(names.VALIDATION_SUCCEEDED, names.FALSE, names.NODEPOOL_VALIDATION_FAILED, problems)


VALIDATION_SUCCEEDED: Final = ConditionMessage(names.VALIDATION_SUCCEEDED, names.TRUE)


def pool_valid_but_reserved(reserved: str) -> ConditionMessage:
    """`reserved` as validation says it of taints that a pool may keep but not gain."""
    return ConditionMessage(names.VALIDATION_SUCCEEDED, names.TRUE, names.RESERVED_TAINTS, reserved)


def pool_has_reserved_taints(reserved: str) -> EventMessage:
    """`reserved` as validation says it."""
    return EventMessage("Warning", "ReservedTaints", f"NodePool has taints that Dovetail uses itself: {reserved}")


def spending(spent: float, most: float, unpriced: int, *, reached: bool) -> ConditionMessage:
    """What the nodes of a NodePool with a money limit cost, and whether it leaves room for another one; `unpriced` of them count as free."""
    status = names.TRUE if reached else names.FALSE
    rest = "no further node fits" if reached else "further nodes fit"
    free = f"; nodes without a known price, which count as free: {unpriced}" if unpriced else ""
    text = f"nodes cost ${spent:.4f} of ${most:g} per hour; {rest}{free}"
    return ConditionMessage(names.SPENDING_LIMIT_REACHED, status, names.SPENDING_LIMIT_REACHED, text)


SPENDING_UNKNOWN: Final = ConditionMessage(
    names.SPENDING_LIMIT_REACHED,
    names.UNKNOWN,
    names.SPENDING_LIMIT_REACHED,
    "the prices of the instance types are not known",
)


def overlay_invalid(reason: str, problem: str) -> ConditionMessage:
    """A NodeOverlay that is not applied."""
    return ConditionMessage(names.VALIDATION_SUCCEEDED, names.FALSE, reason, problem)


REGISTRATION_NOT_JUDGED: Final = ConditionMessage(
    names.NODE_REGISTRATION_HEALTHY,
    names.UNKNOWN,
    names.AWAITING_RECONCILIATION,
    "object is awaiting reconciliation",
)
REGISTRATION_UNHEALTHY: Final = ConditionMessage(
    names.NODE_REGISTRATION_HEALTHY,
    names.FALSE,
    names.REGISTRATION_FAILED,
    "At least half of the most recent launches did not register",
)


def registration_unhealthy(why: str) -> ConditionMessage:
    """With why one of them failed, in the words of the cloud provider; "" where it is not known."""
    found = REGISTRATION_UNHEALTHY
    return found._replace(text=f"{found.text}: {why}") if why else found


BUFFER_NOT_READY: Final = ConditionMessage(
    names.PROVISIONING,
    names.FALSE,
    "NotReadyForProvisioning",
    "the buffer is not resolved; see the condition ReadyForProvisioning",
)
BUFFER_EMPTY: Final = ConditionMessage(
    names.PROVISIONING,
    names.FALSE,
    "BufferEmpty",
    "the buffer asks for no units; set spec.replicas, spec.percentage or spec.limits",
)
BUFFER_FITS: Final = ConditionMessage(names.PROVISIONING, names.TRUE, "FitsExistingCapacity")
SCALABLE_REF_UNKNOWN: Final = "the buffer needs spec.podTemplateRef, or spec.scalableRef to a Deployment, StatefulSet or ReplicaSet (apiGroup apps)"


def buffer_resolved(unknown: Sequence[str]) -> ConditionMessage:
    """`unknown` are classes that the template names and that do not exist, or may not be read."""
    if not unknown:
        return ConditionMessage(names.READY_FOR_PROVISIONING, names.TRUE, "Resolved")
    text = f"{' and '.join(unknown)} cannot be read, so what it adds to pods is left out; create it, or let Dovetail list that kind"
    return ConditionMessage(names.READY_FOR_PROVISIONING, names.TRUE, "Resolved", text)


def buffer_not_resolved(reason: str, text: str) -> ConditionMessage:
    """What a buffer refers to is not there, or cannot be read."""
    return ConditionMessage(names.READY_FOR_PROVISIONING, names.FALSE, reason, text)


def buffer_needs_nodes(ready: int, units: int) -> ConditionMessage:
    """How much of a buffer is there."""
    return ConditionMessage(
        names.PROVISIONING,
        names.FALSE,
        "RequiresNewCapacity",
        f"{ready} of {units} units fit on nodes that are ready; the others need new nodes",
    )


def pod_template_not_found(name: str) -> str:
    return (
        f'PodTemplate "{name}" does not exist in the namespace of the buffer; create it, or correct spec.podTemplateRef'
    )


def workload_not_found(kind: str, name: str) -> str:
    return f'{kind} "{name}" does not exist in the namespace of the buffer; create it, or correct spec.scalableRef'


# ------------------------------------------------------------------ why a command was rejected or canceled


def pods_need_no_replacement(pool: str) -> str:
    """They were scheduled elsewhere meanwhile."""
    return f"its pods no longer need a replacement from NodePool {pool}"


RECORD_WITHOUT_CLAIM: Final = "the record of the command does not contain a valid NodeClaim with this name"
OTHER_COMMAND_FIRST: Final = "another command was started first"


def node_left(node: str) -> str:
    """A node that pods were to move to."""
    return f"node {node} no longer accepts pods"


def no_progress(seconds: float) -> str:
    """The command timed out."""
    return f"no progress for {seconds:.0f} s"


def same_provider_id(one: str, other: str) -> str:
    """Nobody can tell whose instance it is."""
    return f"Nodes {one} and {other} have the same provider ID"


def budget_unreadable(budget: str) -> str:
    """What it allows is not known, so it allows nothing."""
    return f"PodDisruptionBudget {budget} cannot be decoded"


# ------------------------------------------------------------------ logs

# capacity_buffers.py
BUFFER_NOT_RESOLVED: Final = "The CapacityBuffer cannot be resolved; no room is kept for it"
BUFFER_NOT_READ: Final = "Failed to read what a CapacityBuffer refers to; retrying"
BUFFER_STATUS_NOT_WRITTEN: Final = "Failed to write the status of a CapacityBuffer; retrying"

# claim_creator.py
SKIPPED_UNNEEDED_NODECLAIM: Final = "Skipped a NodeClaim because its pods were scheduled to other nodes"
FAILED_TO_CREATE_NODECLAIM: Final = "Failed to create a NodeClaim; planning its pods again"

# commands.py
FAILED_TO_START_DISRUPTION: Final = "Failed to start a disruption; continuing with the others"
REJECTED_DISRUPTION: Final = "Rejected a disruption before it started; the next pass decides again"
REQUEST_FAILED_DURING_DISRUPTION: Final = "A request to the API server failed during a disruption; retrying"
RESUMING_DISRUPTION: Final = "Resuming a disruption that was started earlier"
STARTED_DISRUPTION: Final = "Started a disruption"
FAILED_TO_CREATE_REPLACEMENT: Final = "Failed to create a replacement NodeClaim"
CANCELED_DISRUPTION: Final = "Canceled a disruption"
FAILED_TO_ROLL_BACK_DISRUPTION: Final = "Failed to roll back a disruption that no command carries out; retrying"
ROLLED_BACK_DISRUPTION: Final = "Rolled back a disruption that no command carries out"

# several modules
DISRUPTING_NODE: Final = "Disrupting node"

# disruption.py
DISRUPTION_METHOD_FAILED: Final = "A disruption method failed; continuing with the other methods"
CONSOLIDATION_PASS_TIMED_OUT: Final = (
    "A consolidation pass timed out; the remaining nodes are evaluated first in the next pass"
)
SUSPENDED_VOLUNTARY_DISRUPTION: Final = "Suspended voluntary disruption until the caches are current"
RESUMED_VOLUNTARY_DISRUPTION: Final = "Resumed voluntary disruption because the caches are current"
DISRUPTION_PAUSE_CHANGED: Final = "Disruption was paused or resumed"
FAILED_TO_UPDATE_NODECLAIM_STATUS: Final = "Failed to update the status of a NodeClaim; retrying"

# drain.py
EVICTION_FAILED: Final = "Eviction failed; retrying"
FAILED_TO_DELETE_POD: Final = "Failed to delete a pod; retrying"

# surge.py
RESTARTED_DEPLOYMENT: Final = "Restarted a Deployment before its pod is evicted"
SURGE_DELAYED: Final = "Failed to determine whether a pod is evicted with a surge; retrying"

# drift.py
SKIPPED_DRIFT_CHECK: Final = "Skipped the drift check of a NodeClaim"
NODECLAIM_NO_LONGER_DRIFTED: Final = "NodeClaim no longer differs from its NodePool and NodeClass"
NODECLAIM_HAS_DRIFTED: Final = "NodeClaim has drifted"

# forceful.py
FORCEFUL_PASS_FAILED: Final = "An expiration and node repair pass failed; retrying with the next pass"
NODECLAIM_COULD_NOT_BE_DELETED: Final = "A NodeClaim could not be deleted; retrying"

# garbage.py
FAILED_TO_TERMINATE_ORPHAN: Final = "Failed to terminate an instance without a NodeClaim; retrying"
DRAINING_ORPHAN: Final = "Draining an instance without a NodeClaim before terminating it"
TERMINATED_ORPHAN: Final = "Terminated an instance without a NodeClaim"
FAILED_TO_DELETE_NODE_OF_ORPHAN: Final = "Failed to delete the Node of an instance without a NodeClaim; retrying"
FAILED_TO_DELETE_NODECLAIM: Final = "Failed to delete a NodeClaim; retrying"
DELETED_NODECLAIM_WITHOUT_INSTANCE: Final = "Deleted a NodeClaim whose instance no longer exists"
COULD_NOT_FIND_OUT_ABOUT_INSTANCE: Final = "Could not determine whether an instance still exists; retrying"

# loops.py
DISRUPTION_LOOP_FOUND: Final = (
    "Nodes for a workload were launched and removed three times within an hour; leaving its nodes alone"
)

# intake.py
PROVISIONING_FAILED: Final = "Provisioning failed; retrying with the same pods"

# interruption.py
INSTANCE_IS_BEING_INTERRUPTED: Final = "Instance is being interrupted"
INTERRUPTION_CANCELED: Final = "Interruption was canceled"
FAILED_TO_HANDLE_INTERRUPTED_NODECLAIM: Final = "Failed to handle an interrupted NodeClaim; retrying"
TAINTED_INTERRUPTED_NODE: Final = "Tainted an interrupted Node"
TERMINATING_INTERRUPTED_NODECLAIM: Final = "Terminating an interrupted NodeClaim"

# lifecycle.py
LAUNCHED_NODECLAIM: Final = "Launched NodeClaim"
DELETING_NODECLAIM: Final = "Deleting NodeClaim"
REQUEST_FAILED_DURING_TERMINATION: Final = (
    "A request to the API server failed during the termination of a NodeClaim; retrying"
)
REMOVING_NODECLAIM_WITHOUT_INSTANCE: Final = (
    "Removing a NodeClaim without terminating its instance, which belongs to another NodeClaim"
)

# nominations.py
NOMINATIONS_NOT_BOUND: Final = (
    f"Withdrawing the nominations of pods that were not bound within {WITHDRAW_AFTER_SECONDS:g} s"
    " of their Node becoming ready; kube-scheduler places them on its own"
)
NOMINATIONS_NOT_PLANNED: Final = "Withdrawing the nominations of pods that are no longer planned for that Node"
NOMINATIONS_COUNTED_BY_SPREAD: Final = (
    "Withdrawing the nominations of pods that a topology spread constraint with DoNotSchedule now counts"
    " together with other pods planned for that Node"
)
ADOPTED_NOMINATIONS: Final = "Adopted nominations of a previous leader"
FAILED_TO_NOMINATE_POD: Final = "Failed to nominate a pod; continuing without a nomination"
FAILED_TO_WITHDRAW_NOMINATION: Final = "Failed to withdraw a nomination; retrying"

# overlay_status.py
NODEOVERLAY_NOT_APPLIED: Final = "The NodeOverlay is not applied"
FAILED_TO_WRITE_NODEOVERLAY_STATUS: Final = "Failed to write the status of a NodeOverlay; retrying"

# planner.py
SEARCH_FAILED: Final = "The search for cheaper nodes failed; launching the greedy plan; please report this bug"
CHEAPER_PLAN_REFUSED: Final = "Launching the greedy plan because a cheaper one is not possible"

# planner_process.py
PLANNING_PROCESS_FAILED: Final = "The planning process failed; packing nodes greedily until it is restarted"
PLANNER_NOT_INSTALLED: Final = "Packages of the cost planner are not installed; packing nodes greedily. Install them with `pip install 'dovetail[planner]'`"

# plans.py
FAILED_TO_WRITE_PLAN: Final = "Failed to write the plan of a NodeClaim"
FAILED_TO_REMOVE_OUTDATED_PLAN: Final = "Failed to remove an outdated plan from a Node; retrying"
REMOVED_OUTDATED_PLAN: Final = "Removed an outdated plan from a Node"

# provisioning.py
HELD_BACK: Final = (
    "Created fewer NodeClaims than planned because of a growth limit; the remaining pods are planned again"
)
REACHED_SOLVE_DEADLINE: Final = (
    "Reached --solve-deadline before every pod was planned; planning the remaining pods in the next batch"
)
PLANNED_PENDING_PODS: Final = "Planned pending pods"
FAILED_TO_FIND_UNUSED_NAME: Final = "Failed to find an unused name for a NodeClaim; planning its pods again"
SKIPPED_OVERTAKEN_NODECLAIM: Final = "Skipped a NodeClaim because its pods were scheduled while it was planned"
PLANNED_NODE_REMOVED: Final = "A node was removed while pods were planned for it; planning them again"

# registration.py
REGISTERING_BATCH_FAILED: Final = "Registering a batch of NodeClaims failed; retrying"
REGISTRATION_FAILED: Final = "Registration failed; retrying"

# replanning.py
REPLANNED_WAITING_NODECLAIMS: Final = (
    "Planned the pods of NodeClaims that were not launched yet again, at a lower price"
)

# reports.py
REFUSED_REPORTS_OF_OTHER_CLIENT: Final = "Refused reports because the client certificate is for another name"
REFUSED_REPORTS: Final = "Refused reports"

# scheduler_liveness.py
SCHEDULER_IS_SILENT: Final = "A scheduler has processed no pod for a minute while pods wait for it; check that it runs"
FAILED_TO_RECREATE_POD: Final = "Failed to delete a pod whose scheduler is silent; retrying"
NO_PODS_WAIT_FOR_SILENT_SCHEDULER: Final = "No pods wait for the silent scheduler anymore"

# share_repair.py
EVICTED_FOR_SHARE: Final = "Evicted a pod to repair the share of its owner's pods that run on demand"
SHARE_REPAIR_FAILED: Final = "Failed to repair the share of pods that run on demand; retrying"
SHARE_REPAIR_STOPPED: Final = (
    "Stopped repairing a share of pods that run on demand because evictions did not help; "
    "check that the webhook runs with --on-demand-shares"
)

# static_capacity.py
FAILED_TO_SCALE_STATIC_NODEPOOL: Final = "Failed to bring a static NodePool to spec.replicas; retrying"
DELETING_STATIC_NODECLAIM: Final = "Deleting a NodeClaim of a static NodePool"
FAILED_TO_MAKE_STATIC_NODECLAIM: Final = "Failed to make a NodeClaim of a static NodePool; retrying"
CREATED_STATIC_NODECLAIMS: Final = "Created NodeClaims of a static NodePool"

# termination.py
REQUEST_FAILED_DURING_DRAINING: Final = "A request to the API server failed during the draining of a Node; retrying"

# terminator.py
NOT_WAITING_FOR_VOLUMES_DETACH: Final = "Not waiting for volumes to detach, because listing VolumeAttachments is forbidden; apply the current RBAC manifests"

# worlds.py
IGNORING_UNREADABLE_NODEPOOL: Final = "Ignoring a NodePool that cannot be read"
IGNORING_UNREADABLE_FIELD: Final = "Ignoring an unreadable field of a NodePool"
IGNORING_NODEPOOL_OF_UNKNOWN_TYPES: Final = "Ignoring a NodePool because its instance types are unknown"

# claim_creator.py


def no_unused_name(pool: str, tries: int) -> str:
    return f"found no unused name for a NodeClaim of NodePool {pool!r} in {tries} attempts"


# commands.py


def claim_is_being_deleted(claim: str) -> str:
    return f"NodeClaim {claim} is being deleted"


def node_has_a_successor(node: str) -> str:
    return f"Node {node} was deleted, and a new Node has its name"


def claim_is_leaving(claim: str) -> str:
    return f"NodeClaim {claim} is being deleted or no longer exists"


# planner.py
PLANNER_NOT_ASKED: Final = "the provisioner could not ask it, or not read its answer"

# planner_process.py


def planner_wrote_too_much(size: int) -> str:
    return f"it wrote an answer of {size} bytes"


PLANNER_ANSWERED_UNASKED: Final = "it answered a question that was not asked"
PLANNER_CLOSED_PIPES: Final = "it closed its pipes"


def planner_needed_memory(mib: int) -> str:
    return f"it needed more than {mib} MiB of address space"


def planner_not_started(error: Exception) -> str:
    return f"it could not be started: {error}"


PLANNER_STARTED_LATE: Final = "it did not start in time"
PLANNER_ANSWERED_LATE: Final = "it did not answer in time"
PLANNER_QUESTION_TOO_LARGE: Final = "the question is too large for it"


def planner_not_installed(missing: str) -> str:
    return f"{missing} cannot be imported; install what planning needs with `pip install 'dovetail[planner]'`"


def planner_ended_by_signal(signal: int) -> str:
    return f"it was ended by signal {signal}"


def planner_ended_with_status(status: int) -> str:
    return f"it ended with status {status}"


# reports.py


def reports_need_certificates(host: str) -> str:
    """`host` is "" for all addresses."""
    return f"accepting reports on {host or 'all addresses'} requires certificates: set --report-cert-dir, or listen on 127.0.0.1"


def only_one_may_report(wanted: str) -> str:
    return f"only {wanted} may send reports\n"


# terminator.py


def unreadable_node(node: object, error: str) -> str:
    return f"Node {node}, which cannot be read ({error})"


def pod_on_unreadable_node(pod: object, node: str, error: str) -> str:
    return f"pod {pod} on node {node}, which cannot be read ({error})"


def pods_of_nodes(count: int, node: str) -> str:
    return f"pods of {count} nodes, among them {node}"


def pod_on_node(pod: str, node: str) -> str:
    return f"pod {pod} on node {node}"


# claim_writer.py
DELETING_UNNEEDED_NODECLAIM: Final = "Deleting NodeClaim because its pods were scheduled to other nodes"


def claim_not_written(claim: str, error: Exception) -> str:
    return f"NodeClaim {claim}: {error}"
