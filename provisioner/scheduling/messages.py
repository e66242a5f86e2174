"""Texts that `scheduling` makes and others publish, by the module that uses them; docs/reference/messages.md is generated from here. Pure."""

from typing import Final

# capacity_buffers.py


def pod_template_refused(refusal: str) -> str:
    """`refusal` is why the API server creates no such pod."""
    return f"the API server refuses pods of the template: {refusal}"


def pod_template_unreadable(error: str) -> str:
    return f"the pod template cannot be read: {error}"


def invalid_limits(error: Exception) -> str:
    return f"spec.limits: {error}"


# demands.py
NEGATIVE_REQUEST: Final = "spec.containers.resources.requests: negative amount"


def max_skew_not_positive(where: str) -> str:
    return f"{where}.maxSkew: must be greater than zero"


def topology_key_missing(where: str) -> str:
    return f"{where}.topologyKey: is required"


# filters.py


def field_key_not_supported(where: str, key: str, supported: str) -> str:
    return f"{where}.key: {key!r} is not supported, only {supported}"


# selecting.py


def invalid_operator(where: str, number: int, operator: str) -> str:
    return f"{where}.matchExpressions[{number}].operator: {operator!r} is not a valid operator"


def values_not_allowed(where: str, number: int, operator: str) -> str:
    return f"{where}.matchExpressions[{number}].values: must be empty with operator {operator}"


# volumes.py


def claim_unreadable(key: str, error: Exception) -> str:
    return f"PersistentVolumeClaim {key}: {error}"


def claim_does_not_exist(key: str) -> str:
    return f"PersistentVolumeClaim {key} does not exist"


def claim_waits_to_be_bound(key: str) -> str:
    return f"PersistentVolumeClaim {key} is waiting to be bound (immediate binding)"


def claim_without_class(key: str) -> str:
    return f"PersistentVolumeClaim {key} is not bound and has no StorageClass"


def class_does_not_exist(name: str, key: str) -> str:
    return f"StorageClass {name} of PersistentVolumeClaim {key} does not exist"


def no_volume_matches(storage_class: str, key: str) -> str:
    return f"no available PersistentVolume of StorageClass {storage_class} matches PersistentVolumeClaim {key}"


def claim_of_other_pod(key: str, volume: str) -> str:
    return f"PersistentVolumeClaim {key} was not created for this pod's ephemeral volume {volume}"


def claim_is_being_deleted(key: str) -> str:
    return f"PersistentVolumeClaim {key} is being deleted"


def claim_lost_its_volume(key: str) -> str:
    return f"PersistentVolumeClaim {key} has lost its PersistentVolume"


def claim_not_yet_bound(key: str) -> str:
    return f"PersistentVolumeClaim {key} is not yet bound to its PersistentVolume"


def volume_does_not_exist(volume: str, key: str) -> str:
    return f"PersistentVolume {volume} of PersistentVolumeClaim {key} does not exist"


def volume_is_being_deleted(volume: str, key: str) -> str:
    return f"PersistentVolume {volume} of PersistentVolumeClaim {key} is being deleted"


def invalid_topologies(storage_class: str, error: Exception) -> str:
    return f"StorageClass {storage_class}: allowedTopologies: {error}"


# world.py


def not_a_number_of_domains(key: str, value: str) -> str:
    """Of a NodePool's annotation `key`; the event InvalidAnnotation shows it."""
    return f"metadata.annotations[{key}]: {value!r} is not a whole number of 0 or more"


def unknown_packing(key: str, value: str, known: str) -> str:
    """Likewise; `known` is the list of values, joined by " nor "."""
    return f"metadata.annotations[{key}]: {value!r} is neither {known}"


def not_a_node_penalty(key: str, value: str) -> str:
    return f"metadata.annotations[{key}]: {value!r} is not a decimal number from 0 to 9999, such as 0.01"


# explaining.py: after "0/3 existing nodes: 1", in the event FailedScheduling and in `dovetail why pod`
NO_FREE_PORTS: Final = "didn't have free ports for the requested pod ports"
ENOUGH_PODS_OF_OWNER: Final = "had as many pods of this owner as the NodePool allows on one node"


def affinity_not_met(keys: str) -> str:
    """After a number of existing nodes, in kube-scheduler's words; `keys` are the topology keys."""
    return f"didn't match pod affinity rules ({keys})"


def not_apart_from_pods(keys: str) -> str:
    """Likewise: the pod's own anti-affinity."""
    return f"didn't match pod anti-affinity rules ({keys})"


def kept_apart_by_pods(keys: str) -> str:
    """Likewise: the anti-affinity of other pods."""
    return f"didn't satisfy existing pods' anti-affinity rules ({keys})"


def topology_spread_not_met(keys: str) -> str:
    return f"didn't match pod topology spread constraints ({keys})"


# judging.py and binding_order.py: what is wrong with a design, after the pod and the node; the planner logs it, `dovetail plan` prints it.


def pool_has_no_offering(pool: str, instance_type: str, zone: str, capacity_type: str) -> str:
    """Of a node with this offering in the design."""
    return f"NodePool {pool!r} has no {instance_type} in {zone} ({capacity_type})"


def anti_affinity_over(key: str) -> str:
    """Of a pod there; `key` is the topology key."""
    return f"required pod anti-affinity over {key} would be violated"


def spread_without_the_node(key: str) -> str:
    """Likewise: the constraint's node affinity or taints policy leaves the node out."""
    return f"the node does not count for the topology spread constraint over {key}"


def spread_over(key: str) -> str:
    return f"the topology spread constraint over {key} would be violated"


def affinity_over(key: str) -> str:
    return f"required pod affinity over {key} would not be met"


def domain_not_settled(key: str) -> str:
    """Likewise: the design leaves the label `key` of a new node open."""
    return f"the node's {key} is not decided yet"


NO_ORDER_FOUND: Final = "no order was found in which the pods can be bound"
VOLUME_IS_IN_USE: Final = "a volume that only one pod may use is in use"
OWNER_HAS_ENOUGH_PODS_THERE: Final = "the NodePool allows no more pods of this owner on one node"


def pool_cannot_launch(pool: str) -> str:
    """Of a new node."""
    return f"NodePool {pool!r} does not exist or cannot launch nodes"


def does_not_fit_with_others(instance_type: str) -> str:
    """Of a pod on a new node of this type."""
    return f"does not fit on {instance_type} with the others"


NO_SUCH_NODE: Final = "the node does not exist"
PORT_IS_TAKEN: Final = "a host port of the pod is in use on the node"
KEEPS_A_DAEMON_OUT: Final = "a DaemonSet pod that it brings cannot run beside other pods"
NO_ROOM_BESIDE_OTHERS: Final = "does not fit beside the other pods"
POOL_TAINT_NOT_TOLERATED: Final = "a taint of the NodePool is not tolerated"
NODE_REFUSES_POD: Final = "the taints, labels or state of the node do not allow the pod"
