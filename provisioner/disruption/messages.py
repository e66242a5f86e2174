"""Texts that `disruption` makes and others publish, by the module that uses them; docs/reference/messages.md is generated from here. Pure.

Where nothing else is said, a text is why a node is not disrupted, or why a command does not go on.
"""

from typing import Final

# acceptance.py
NO_CHEAPER_NODE: Final = "Can't replace with a cheaper node"


def saving_too_small(saving: float, pods: int) -> str:
    return f"Saving ${saving:.2f} per hour does not justify moving {pods} pods"


def score_below_threshold(pool: str, score: float, threshold: float) -> str:
    return f'NodePool "{pool}" balances savings with disruption: score {score:.2f} < threshold {threshold:.2f}'


# allowance.py


def budget_spent(reason: str) -> str:
    return f"No allowed disruptions for disruption reason {reason} due to blocking budget"


# budgets.py


def ceiling_reached(reason: str, most: int, consuming: int) -> str:
    return (
        f"No allowed disruptions for disruption reason {reason} because --max-disrupting-nodes is {most}, "
        f"and {consuming} {'node is' if consuming == 1 else 'nodes are'} being disrupted or not Ready"
    )


# candidates.py


def pod_is_annotated(annotation: str, pod: str) -> str:
    return f'Pod has "{annotation}" annotation (Pod={pod})'


def pod_is_unjudged(pod: str, error: str) -> str:
    """Why a node is not consolidated."""
    return f"Pod cannot be planned onto another node (Pod={pod}): {error}"


ALREADY_DISRUPTED: Final = "Node is already being disrupted"
REPLACES: Final = "it replaces nodes whose disruption is under way"
CALLED_OFF: Final = "its disruption was called off a moment ago, so it is left alone for now"
BACKING_OFF: Final = (
    "replacements of its NodePool did not become nodes a moment ago, so no node of it is replaced for now"
)
NOT_MANAGED: Final = "Node isn't managed by karpenter"
SHARED_PROVIDER_ID: Final = "Several Nodes or NodeClaims have the same provider ID"
NO_NODE: Final = "Nodeclaim does not have an associated node"
NOT_INITIALIZED: Final = "Node isn't initialized"
BEING_DELETED: Final = "Node is deleting or marked for deletion"
NOMINATED: Final = "Node is nominated for a pending pod"


def blocked_by_annotation(annotation: str) -> str:
    return f'Disruption is blocked through the "{annotation}" annotation'


def label_is_missing(label: str) -> str:
    return f'Node does not have label "{label}"'


def pool_not_found(pool: str) -> str:
    return f"NodePool not found (NodePool={pool})"


SEVERAL_BUDGETS: Final = "Eviction does not support multiple PDBs"


def budget_prevents_evictions(budget: str) -> str:
    return f"Pdb prevents pod evictions (PodDisruptionBudget={budget})"


# consolidation.py


def type_not_found(instance_type: str) -> str:
    return f'Instance Type "{instance_type}" not found'


def consolidation_disabled(pool: str) -> str:
    return f'NodePool "{pool}" has consolidation disabled'


def only_when_empty(pool: str) -> str:
    return f'NodePool "{pool}" has consolidation policy WhenEmpty, but node is not empty'


LAUNCHED_RECENTLY: Final = "Node was recently launched for the pods that it runs"


def several_replacements_needed(count: int) -> str:
    return f"Can't remove without creating {count} candidates"


# emptiness.py


def buffer_pods(node: str) -> str:
    return f'Node "{node}" has buffer pods'


# legality.py


def planned_claim(number: int) -> str:
    return f"planned claim {number}"


def replacement_would_wait(pod: str, node: str, reason: str) -> str:
    return (
        f'Evicting pod {pod} from Node "{node}" would leave its replacement without a node while the Node drains, because a '
        f"draining node remains a topology domain: {reason}"
    )


# loops.py


def loop_found(owner: str, cycles: int) -> str:
    return (
        f"Nodes for pods of {owner} were launched and removed {cycles} times within an hour; the node is not "
        "disrupted until an hour after the first time"
    )


def owner_with_uid(uid: str) -> str:
    return f"the owner with UID {uid}"


# node_repair.py


def too_many_unhealthy(percent: int, where: str) -> str:
    return f"More than {percent}% of the nodes {where} are unhealthy"


# pause.py


def settings_not_read(configmap: str) -> str:
    return f'the provisioner has not read ConfigMap "{configmap}" yet'


def waits_for_settings(unread: str) -> str:
    return f"Disruption is suspended because {unread}; its Role must allow listing and watching it"


def waits_for_karpenter(beside: str) -> str:
    """Why a node is not disrupted, or a command does not go on; `beside` is that Karpenter runs."""
    return f"Disruption is suspended because {beside}"


def paused_by_settings(key: str, configmap: str) -> str:
    return f'Disruption is paused by the key "{key}" of ConfigMap "{configmap}"'


def paused_by_annotation(annotation: str, pool: str) -> str:
    return f'Disruption is paused by the annotation "{annotation}" of NodePool "{pool}"'


# progress.py


def claim_is_gone(one: str) -> str:
    return f"NodeClaim {one} no longer exists"


def claim_is_being_deleted(one: str) -> str:
    return f"NodeClaim {one} is being deleted"


def claim_is_being_interrupted(one: str) -> str:
    return f"NodeClaim {one} is being interrupted"


def claim_has_no_node(one: str) -> str:
    return f"NodeClaim {one} has no Node, or shares it with another NodeClaim"


def replacement_never_created(claim: str) -> str:
    return f"replacement NodeClaim {claim} was never created"


# replacement.py
SPOT_TO_SPOT_DISABLED: Final = "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"


def too_few_spot_types(wanted: int, found: int) -> str:
    return (
        f"SpotToSpotConsolidation requires {wanted} cheaper instance type options than the current candidate "
        f"to consolidate, got {found}"
    )


MIN_VALUES_NOT_MET: Final = "Filtering by price: minValues requirement is not met for label(s) "

# simulation.py


def more_pods(count: int) -> str:
    return f" and {count} more pods"


NOT_ALL_PODS_FIT: Final = "not all pods would schedule, "
NOT_JUDGED_IN_TIME: Final = (
    "Dovetail did not finish looking for other places for its pods within one pass; the next pass looks again"
)
AFFINITY_TO_OTHERS: Final = (
    "Its pods have affinity to pods on other nodes that are being disrupted; waiting for these nodes"
)


def reservation_held_by_other(reservation: str) -> str:
    return f"capacity reservation {reservation} is held for another replacement"


# turns.py
WAITS_FOR_TIED: Final = (
    "Its pods have topology spread or affinity with pods on other nodes that are being disrupted, and some of these pods "
    "move to another zone (or another value of the topology key); waiting for these nodes"
)

# validation.py


def expects_pods(pod: str, more: int) -> str:
    """Of `simulation`: what is said of a node on which pods that wait are expected."""
    others = f" and {more} other pod{'s' if more > 1 else ''}" if more else ""
    return f'Pod "{pod}"{others} can be bound to the node, and no other place is looked for'


TAKES_PODS: Final = "Pods of other nodes that are disrupted first are to move to the node"


def others_first(nodes: int) -> str:
    """Of `allowance`: what is said of a node while others of its NodePool take what its budgets allow."""
    return f"{nodes} more node{'s' if nodes > 1 else ''} of its NodePool may be disrupted now, and others go first"


def others_first_of_all(nodes: int) -> str:
    """Likewise, of what --max-disrupting-nodes allows."""
    return f"{nodes} more node{'s' if nodes > 1 else ''} of all NodePools (--max-disrupting-nodes) may be disrupted now, and others go first"


NOT_REACHED: Final = "Node was not judged, because other nodes took all the time of one pass"
LATER: Final = "Node waits until other nodes are drained"


def came_or_went(after: str) -> str:
    """Of `emptiness`: what is said while consolidateAfter is not over."""
    return f"a pod came or went less than consolidateAfter ({after}) ago"


def not_seen_empty(seconds: float) -> str:
    """Likewise, of a node that may be empty for a moment only."""
    return f"it has not been seen empty for {seconds:g} s yet"


RESTLESS: Final = "a pod came or went, or the node was initialized, a moment ago"


def more_drift(pool: str) -> str:
    """Of `drift`: what is said while nodes of a NodePool are found drifted one after another."""
    return f'more nodes of NodePool "{pool}" are about to be found drifted, and they are replaced together'


def too_many_static(pool: str) -> str:
    """Of `static_drift`: what is said while a static NodePool has more nodes than replicas."""
    return f'NodePool "{pool}" has more nodes than replicas, so it scales down or replaces others first'


def not_expired(after: str) -> str:
    """Of `verdicts`: what is said of a node that will expire."""
    return f"expireAfter ({after}) is not over"


EXPIRED: Final = "expireAfter is over, so the node is deleted next"
UNHEALTHY: Final = "a condition of the node has lasted too long, so the node is deleted next"
TOLERATED: Final = "a condition of the node says that it is unhealthy, which is tolerated for a while"
INTERRUPTED: Final = "the instance is interrupted, so the node is drained next"
INTERRUPTION_TO_COME: Final = "the interruption of the instance has been announced for later"


def pod_fits_nowhere(pod: str) -> str:
    return f"pod {pod} fits on no other node"


def no_longer_drifted(claim: str) -> str:
    """Why a command does not go on: somebody took back what its replacement was launched for."""
    return f"NodeClaim {claim} no longer differs from its NodePool and NodeClass"


def place_not_ready(node: str, pod: str) -> str:
    return f"node {node}, on which pod {pod} is to run, is not ready"


def several_budgets_of_pod(pod: str) -> str:
    return f"Eviction does not support multiple PDBs (Pod={pod})"


def unreadable_object(name: str) -> str:
    return f"an object that cannot be read may be a running pod: {name}"


PODS_ARE_PLANNED: Final = "pods are planned for the node"


def pod_runs_there(pod: str) -> str:
    return f"pod {pod} runs on the node"


# methods/consolidation.py
SAVES_TOO_LITTLE: Final = "Moving its pods does not save enough to justify the disruption"

# methods/drift.py


def several_nodes_needed(nodes: int) -> str:
    return (
        f"Replacing this node takes {nodes} nodes; waiting until no other nodes of its NodePool are being "
        "launched or terminated"
    )


# methods/static_drift.py


def no_type_meets_requirements(pool: str) -> str:
    return f'No instance type meets the requirements of NodePool "{pool}"'


def pool_not_ready(pool: str) -> str:
    return f'NodePool "{pool}" is not Ready'


def pool_reached_its_limit(pool: str) -> str:
    return f'NodePool "{pool}" has reached its limit for nodes'


# wishes.py


def would_save(saving: float, lost: str) -> str:
    """Why a node is not disrupted, or a command does not go on: what a move for money would give up."""
    return f"Moving its pods would save ${saving:.2f} per hour, but {lost}"


def weight_given_up(pool: str, weight: int, other: str) -> str:
    return (
        f'they would leave NodePool "{pool}" for a new node of NodePool "{other}", whose weight is less than {weight}; '
        "to allow this, give both NodePools the same weight"
    )


def wish_given_up(pod: str, wish: str) -> str:
    return f"pod {pod} would lose its {wish}; to allow this, remove the preference or set --preference-policy=Ignore"


def whole_device_given_up(pod: str, resource: str) -> str:
    return (
        f"pod {pod} has a whole device of {resource} and would get a part of one; "
        "to allow this, delete the pod: where its successor runs is decided anew"
    )


def wishes_uncounted(pod: str) -> str:
    return (
        f"pod {pod} may lose a preference: the pods that would move have too many preferences about other pods to compare them all; "
        "to allow this, remove some of them or set --preference-policy=Ignore"
    )


def node_affinity_wished(asked: str) -> str:
    return f"preferred node affinity ({asked})"


def no_taint_wished(taint: str) -> str:
    return f"place without the taint {taint}, which it does not tolerate"


def pod_affinity_wished(key: str) -> str:
    return f"preferred pod affinity over {key}"


def pod_anti_affinity_wished(key: str) -> str:
    return f"preferred pod anti-affinity over {key}"


def spread_wished(key: str) -> str:
    return f"topology spread (ScheduleAnyway) over {key}"
