"""Texts that `scheduling` makes and others publish, by the module that uses them; docs/reference/messages.md is generated from here. Pure."""

from typing import Final

# capacity_buffers.py


def pod_template_unreadable(error: str) -> str:
    """What `ResolutionError` says."""
    return f"the pod template cannot be read: {error}"


def invalid_limits(error: Exception) -> str:
    """What `ResolutionError` says."""
    return f"spec.limits: {error}"


# demands.py
NEGATIVE_REQUEST: Final = "spec.containers.resources.requests: negative amount"


def max_skew_not_positive(where: str) -> str:
    """What `FilterError` says."""
    return f"{where}.maxSkew: must be greater than zero"


def topology_key_missing(where: str) -> str:
    """What `FilterError` says."""
    return f"{where}.topologyKey: is required"


# filters.py


def field_key_not_supported(where: str, key: str, supported: str) -> str:
    """What `FilterError` says."""
    return f"{where}.key: {key!r} is not supported, only {supported}"


def too_many(where: str, count: int, most: int) -> str:
    """What `FilterError` says."""
    return f"{where}: has {count} elements; pods with at most {most} are planned"


# selecting.py


def invalid_operator(where: str, number: int, operator: str) -> str:
    """What `FilterError` says."""
    return f"{where}.matchExpressions[{number}].operator: {operator!r} is not a valid operator"


def values_not_allowed(where: str, number: int, operator: str) -> str:
    """What `FilterError` says."""
    return f"{where}.matchExpressions[{number}].values: must be empty with operator {operator}"


# volumes.py


def claim_does_not_exist(key: str) -> str:
    """What `VolumeError` says."""
    return f"persistentvolumeclaim {key} does not exist"


def claim_waits_to_be_bound(key: str) -> str:
    """What `VolumeError` says."""
    return f"persistentvolumeclaim {key} is waiting to be bound (immediate binding)"


def claim_without_class(key: str) -> str:
    """What `VolumeError` says."""
    return f"persistentvolumeclaim {key} is not bound and has no storage class"


def class_does_not_exist(name: str, key: str) -> str:
    """What `VolumeError` says."""
    return f"storage class {name} of claim {key} does not exist"


def no_volume_matches(storage_class: str, key: str) -> str:
    """What `VolumeError` says."""
    return f"no available PersistentVolume of storage class {storage_class} matches claim {key}"


def claim_of_other_pod(key: str, volume: str) -> str:
    """What `VolumeError` says."""
    return f"persistentvolumeclaim {key} was not created for this pod's ephemeral volume {volume}"


def claim_is_being_deleted(key: str) -> str:
    """What `VolumeError` says."""
    return f"persistentvolumeclaim {key} is being deleted"


def claim_lost_its_volume(key: str) -> str:
    """What `VolumeError` says."""
    return f"persistentvolumeclaim {key} has lost its PersistentVolume"


def claim_not_yet_bound(key: str) -> str:
    """What `VolumeError` says."""
    return f"persistentvolumeclaim {key} is not yet bound to its PersistentVolume"


def volume_does_not_exist(volume: str, key: str) -> str:
    """What `VolumeError` says."""
    return f"persistentvolume {volume} of claim {key} does not exist"


def volume_is_being_deleted(volume: str, key: str) -> str:
    """What `VolumeError` says."""
    return f"persistentvolume {volume} of claim {key} is being deleted"


def invalid_topologies(storage_class: str, error: Exception) -> str:
    """What `VolumeError` says."""
    return f"storage class {storage_class}: allowedTopologies: {error}"


# world.py


def not_a_number_of_domains(key: str, value: str) -> str:
    """Why a pod, an annotation or a design is refused."""
    return f"metadata.annotations[{key}]: {value!r} is not a whole number of 0 or more"


def unknown_packing(key: str, value: str, known: str) -> str:
    """Why a pod, an annotation or a design is refused."""
    return f"metadata.annotations[{key}]: {value!r} is neither {known}"


def not_a_node_penalty(key: str, value: str) -> str:
    """Why a pod, an annotation or a design is refused."""
    return f"metadata.annotations[{key}]: {value!r} is not a decimal number from 0 to 9999, such as 0.01"


# explaining.py
NO_FREE_PORTS: Final = "didn't have free ports for the requested pod ports"
ENOUGH_PODS_OF_OWNER: Final = "had as many pods of the same owner as the NodePool takes on one node"


def away_from_pods(keys: str) -> str:
    """Why a pod, an annotation or a design is refused."""
    return f"didn't match pod affinity rules ({keys})"


def not_apart_from_pods(keys: str) -> str:
    """Why a pod, an annotation or a design is refused."""
    return f"didn't match pod anti-affinity rules ({keys})"


def kept_apart_by_pods(keys: str) -> str:
    """Why a pod, an annotation or a design is refused."""
    return f"didn't satisfy existing pods' anti-affinity rules ({keys})"


def topology_spread_not_met(keys: str) -> str:
    """Why a pod, an annotation or a design is refused."""
    return f"didn't match pod topology spread constraints ({keys})"


# judging.py


def pool_has_no_offering(pool: str, instance_type: str, zone: str, capacity_type: str) -> str:
    """Why a pod, an annotation or a design is refused."""
    return f"NodePool {pool!r} has no {instance_type} in {zone} ({capacity_type})"


def anti_affinity_over(key: str) -> str:
    """Why a pod, an annotation or a design is refused."""
    return f"anti-affinity over {key}"


def spread_without_the_node(key: str) -> str:
    """Why a pod, an annotation or a design is refused."""
    return f"topology spread over {key}: the node does not count"


def spread_over(key: str) -> str:
    """Why a pod, an annotation or a design is refused."""
    return f"topology spread over {key}"


def affinity_over(key: str) -> str:
    """Why a pod, an annotation or a design is refused."""
    return f"affinity over {key}"


def domain_not_settled(key: str) -> str:
    """Why a pod, an annotation or a design is refused."""
    return f"the node's {key} is not decided yet"


VOLUME_IS_IN_USE: Final = "a volume that only one pod may use is in use"
OWNER_HAS_ENOUGH_PODS_THERE: Final = "the NodePool takes no more pods of its owner on one node"


def pool_cannot_launch(pool: str) -> str:
    """Why a pod, an annotation or a design is refused."""
    return f"NodePool {pool!r} does not exist or cannot launch nodes"


def does_not_fit_with_others(instance_type: str) -> str:
    """Why a pod, an annotation or a design is refused."""
    return f"does not fit on {instance_type} with the others"


NO_SUCH_NODE: Final = "the node does not exist"
PORT_IS_TAKEN: Final = "a host port of the pod is in use on the node"
NO_ORDER_FOUND: Final = "no order was found in which the pods can be bound"
NO_ROOM_BESIDE_OTHERS: Final = "does not fit beside the other pods"
POOL_TAINT_NOT_TOLERATED: Final = "a taint of the NodePool is not tolerated"
NODE_REFUSES_POD: Final = "the taints, labels or state of the node do not allow the pod"
