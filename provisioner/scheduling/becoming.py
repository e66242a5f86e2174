"""Nodes as they become: what a planned claim will be as a node, and nodes with other pods."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from msgspec.structs import replace as changed

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.scheduling.problem import Bin
from provisioner.scheduling.result import PlannedClaim
from provisioner.values.resources import EMPTY, Resources
from provisioner.values.taints import Taint


def opened(claim: PlannedClaim, name: str) -> Bin:
    """The node that a planned claim will be, as planned, without its pods."""
    own = Resources.total(pod.shape.requests for pod in claim.pods)
    daemons = (claim.requests - own).maximum(EMPTY)
    return Bin(
        name=name,
        labels=labels_of(claim),
        room=claim.allocatable - daemons,
        taints=taints_of(claim),
        pool=claim.pool,
    )


def filled(claim: PlannedClaim, name: str) -> Bin:
    """The same with its pods; until it is there it takes no other."""
    return Bin(
        name=name,
        labels=labels_of(claim),
        room=claim.allocatable - claim.requests,
        taints=taints_of(claim),
        pool=claim.pool,
        pods=claim.pods,
        closed=True,
    )


def labels_of(claim: PlannedClaim) -> Mapping[str, str]:
    """The labels that the planned node has, as far as they are known."""
    single = {key: one.single_value for key, one in claim.requirements.items() if one.single_value is not None}
    planned = {
        names.INSTANCE_TYPE_LABEL: claim.planned_type,
        names.ZONE_LABEL: claim.planned_zone,
        names.CAPACITY_TYPE_LABEL: claim.planned_capacity_type,
    }
    return {**single, **claim.labels, names.NODEPOOL_LABEL: claim.pool, **{k: v for k, v in planned.items() if v}}


def taints_of(claim: PlannedClaim) -> tuple[Taint, ...]:
    """The taints that the planned node keeps."""
    return tuple(getattr(claim.template, "taints", ()))


def with_pods(one: Bin, pods: Iterable[Pod]) -> Bin:
    """The bin with more pods on it."""
    moved = tuple(changed(pod, node_name=one.node_name) for pod in pods)
    room = one.room
    for pod in moved:
        room -= pod.shape.requests
    return replace(one, pods=one.pods + moved, room=room)


def without(one: Bin, pods: Iterable[Pod]) -> Bin:
    """The bin without some of its pods; it leaves, so its room does not matter."""
    gone = {pod.uid for pod in pods}
    return replace(one, pods=tuple(pod for pod in one.pods if pod.uid not in gone))
