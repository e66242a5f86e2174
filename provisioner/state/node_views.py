"""Makes the frozen view of a node that decisions read, from its Node, its NodeClaim and what is known of both. Source: core spec 3.6."""

import functools
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from provisioner.apis import names
from provisioner.apis.core import Amounts, Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import is_true
from provisioner.apis.pods import Pod
from provisioner.apis.reboot import is_rebooting
from provisioner.apis.shapes import FEATURES
from provisioner.cloudprovider.types import InstanceType
from provisioner.state.confirmation import guard_of
from provisioner.state.expected_node import Expected, claim_labels, claim_requirements, own_labels
from provisioner.state.keys import NodeKey
from provisioner.state.snapshot import NodeView
from provisioner.values.quantity import QuantityError
from provisioner.values.resources import EMPTY, Resources
from provisioner.values.taints import Taint

NODE: Final = Resources.of({names.NODES: 1})
_NEEDED: Final = frozenset(FEATURES)


class Inputs(msgspec.Struct, frozen=True):
    """Everything that one view is made of.

    Attributes:
        key: of the node.
        node, claim: what stands behind it; at least one.
        ambiguous: the instance is claimed twice, or joined twice.
        pods: bound to the Node, by name.
        used: what they request.
        kept: requests of the pods assigned to it.
        assigned: those pods, by name.
        nominated: whether any room is kept.
        last_pod_event: as this process saw it.
        attach_limits: of the Node.
        drivers_absent: CSI drivers that do not run there, and without which it takes no pod with a volume of theirs.
        expected: what the claim's node will be like; None where nobody knows, or a Node tells.
        due: what DaemonSets still need of a node with these labels and taints, whose pods are these.
        most: what limits are charged with for a claim that is not launched yet.
        command: the ID of the command of which the claim is a candidate, "" for none.
        unneeded: the claim is not launched, and nobody needs it any more.
    """

    key: NodeKey
    node: Node | None
    claim: NodeClaim | None
    ambiguous: bool
    pods: tuple[Pod, ...]
    used: Resources
    kept: Resources
    assigned: tuple[Pod, ...]
    nominated: bool
    last_pod_event: datetime | None
    attach_limits: Mapping[str, int]
    drivers_absent: frozenset[str]
    expected: Expected | None
    due: Callable[[Mapping[str, str], tuple[Taint, ...], tuple[Pod, ...]], Resources]
    most: Callable[[NodeClaim], Resources | None]
    command: str = ""
    unneeded: bool = False


def view_of(given: Inputs) -> NodeView:
    """The view. Cost: O(pods assigned + DaemonSets), less where the latter are remembered."""
    node, claim = given.node, given.claim
    conditions = claim.status.conditions if claim is not None else ()
    registered = claim is None or is_true(conditions, names.REGISTERED)
    initialized = is_initialized(node, claim)
    expected = given.expected if not registered else None
    labels, taints = _labels_and_taints(node, claim, expected, registered=registered, initialized=initialized)
    capacity, allocatable = _sizes(node, claim, expected, initialized=initialized)
    told = claim.status.last_pod_event_time if claim is not None else None
    both = [one.metadata for one in (node, claim) if one is not None]
    room, pods, used = EMPTY, given.pods, given.used
    if claim is not None and is_rebooting(claim):
        pods, used = _after_reboot(pods, used)
    if (not given.ambiguous or claim is None) and not is_lost(node, claim):
        # DaemonSets may ask for labels that the planned type decides, but nothing has said yet
        coming = {} if initialized or claim is None else names.READY_LABELS
        likely = expected.likely if expected is not None else {}
        due = given.due({**likely, **coming, **labels} if coming else labels, taints, pods)
        room = allocatable - used - due - given.kept
    return NodeView(
        key=given.key,
        name=node.metadata.name if node is not None else "",
        claim=claim,
        pool=(claim.metadata.labels if claim is not None else labels).get(names.NODEPOOL_LABEL, ""),
        provider_id=node.spec.provider_id if node is not None else claim.status.provider_id if claim else "",
        labels=labels,
        taints=taints,
        capacity=capacity,
        allocatable=allocatable,
        used=used,
        planned=given.kept,
        room=room,
        pods=pods,
        initialized=initialized,
        ready=node is not None and is_true(node.status.conditions, names.READY),
        deleting=is_going(node, claim) or bool(given.command),
        do_not_disrupt=any(meta.annotations.get(names.DO_NOT_DISRUPT) == "true" for meta in both),
        do_not_repair=any(meta.annotations.get(names.DO_NOT_REPAIR) == "true" for meta in both),
        nominated=given.nominated,
        last_pod_event=max((at for at in (given.last_pod_event, told) if at is not None), default=None),
        assigned=given.assigned,
        attach_limits=_limits(given) if given.drivers_absent else given.attach_limits,
        features=_features(node),
        charge=EMPTY if claim is None or goes(given) else charge_of(claim, capacity, given.most),
        ambiguous=given.ambiguous,
        command=given.command,
        awaits=any(one is not None and guard_of(one) is not None for one in (node, claim)),
    )


def _after_reboot(pods: tuple[Pod, ...], used: Resources) -> tuple[tuple[Pod, ...], Resources]:
    """The pods of a node, and what they request, once it is back: those that leave it now are gone then, and their successors wait for it."""
    gone = [pod for pod in pods if pod.deleted is not None]
    if not gone:
        return pods, used
    return tuple(pod for pod in pods if pod.deleted is None), used - Resources.total(pod.shape.requests for pod in gone)


def _features(node: Node | None) -> frozenset[str] | None:
    """What the kubelet declares of that which pods can need, however much it says; it says so together with its version."""
    if node is None or not node.status.node_info.kubelet_version:
        return None
    return _one_for_all(_NEEDED.intersection(node.status.declared_features))


@functools.lru_cache(maxsize=8)
def _one_for_all(features: frozenset[str]) -> frozenset[str]:
    return features


def _limits(given: Inputs) -> Mapping[str, int]:
    """A node without such a driver takes none of its volumes.

    Source: kube-scheduler 1.37 plugins/nodevolumelimits. Differs: a volume that the node has attached already is not refused.
    """
    return {**given.attach_limits, **dict.fromkeys(given.drivers_absent, 0)}


def goes(given: Inputs) -> bool:
    """Whether a node counts against no limit any more: its deletion or a command is written, or it was closed for an interruption. One whose deletion
    waits for a confirmation counts.

    A taint alone does not tell: it outlives a command that was taken back, and a kubelet may write it on its own Node.
    Source: core spec 3.4 (nodes that are marked for deletion).
    """
    node, claim = given.node, given.claim
    interrupted = claim is not None and names.INTERRUPTION_ANNOTATION in claim.metadata.annotations
    by_itself = node is not None and node.metadata.deletion_timestamp is not None
    says = node if by_itself else claim
    stays = says is not None and guard_of(says) is not None
    ends = is_deleted(node, claim) and not stays
    return ends or bool(given.command) or given.unneeded or (interrupted and is_disrupted(node))


def charge_of(claim: NodeClaim, capacity: Resources, most: Callable[[NodeClaim], Resources | None]) -> Resources:
    """What limits are charged with for a claim whose node has, or is expected to have, this capacity."""
    if claim.status.capacity:
        return capacity + NODE
    largest = most(claim)
    return (capacity.maximum(largest) if largest is not None else capacity) + NODE


def is_initialized(node: Node | None, claim: NodeClaim | None) -> bool:
    """Whether a node has, as far as is known, all that it will have: one without a NodeClaim has from the first."""
    return node is not None and (claim is None or is_true(claim.status.conditions, names.INITIALIZED))


def is_disrupted(node: Node | None) -> bool:
    """Whether the Node carries the taint of a disruption."""
    return node is not None and any(taint.key == names.DISRUPTED_TAINT.key for taint in node.spec.taints)


def is_going(node: Node | None, claim: NodeClaim | None) -> bool:
    """Whether nothing should be planned onto this node any more."""
    return is_deleted(node, claim) or is_disrupted(node)


def is_deleted(node: Node | None, claim: NodeClaim | None) -> bool:
    """Whether its Node or its NodeClaim is being deleted."""
    ends = claim is not None and claim.metadata.deletion_timestamp is not None
    return ends or (node is not None and node.metadata.deletion_timestamp is not None)


def is_lost(node: Node | None, claim: NodeClaim | None) -> bool:
    """Whether somebody took the Node of an instance that had registered: nothing says that one will come again, so no pod waits for it."""
    return node is None and claim is not None and is_true(claim.status.conditions, names.REGISTERED)


def falling_taints(node: Node, claim: NodeClaim | None) -> tuple[Taint, ...]:
    """The taints of a Node that keep its planned pods off for now and will fall."""
    startup = (claim.spec.startup_taints or ()) if claim is not None else ()
    rebooting = claim is not None and is_rebooting(claim)
    return tuple(
        taint
        for taint in node.spec.taints
        if names.is_ephemeral(taint)
        or any(_same(taint, other) for other in startup)
        or (rebooting and taint.key == names.REBOOTING_TAINT.key)
    )


def most_of(claim: NodeClaim, types: Mapping[str, InstanceType], limited: Iterable[str]) -> Resources | None:
    """The most of each limited resource that any type has which the claim may become; None where it names none that is known.

    Until a claim is launched its pool's limits have to be charged with this: what it becomes is the provider's choice.
    O(types that it names).
    """
    wanted = claim_requirements(claim).get(names.INSTANCE_TYPE_LABEL)
    if wanted is None or wanted.complement:
        return None
    known = [types[name].capacity for name in wanted.values if name in types]
    if not known:
        return None
    return Resources.of({name: max(one.amount(name) for one in known) for name in limited if name != names.NODES})


def _labels_and_taints(
    node: Node | None, claim: NodeClaim | None, expected: Expected | None, *, registered: bool, initialized: bool
) -> tuple[Mapping[str, str], tuple[Taint, ...]]:
    if claim is None:
        return (node.metadata.labels, node.spec.taints) if node is not None else ({}, ())
    if node is None or not registered:
        certain = expected.certain if expected is not None else {}
        return {**certain, **claim_labels(claim)}, claim.spec.taints or ()
    labels, own = node.metadata.labels, own_labels(claim)
    if any(labels.get(key) != value for key, value in own.items()):
        labels = {**labels, **own}
    if initialized and not is_rebooting(claim):
        return labels, node.spec.taints
    falling = falling_taints(node, claim)
    return labels, tuple(taint for taint in node.spec.taints if taint not in falling)


def _sizes(
    node: Node | None, claim: NodeClaim | None, expected: Expected | None, *, initialized: bool
) -> tuple[Resources, Resources]:
    """(capacity, allocatable): the claim's until initialised, then the Node's; what is expected before launch."""
    if node is not None and (claim is None or initialized):
        capacity, allocatable = _amounts(node.status.capacity), _amounts(node.status.allocatable)
        if claim is None:
            return capacity, allocatable
        # a device plugin that restarts reports zero for a moment: the claim knows better
        known = _amounts(claim.status.allocatable)
        own = allocatable.to_dict()
        revived = {key: known.amount(key) for key, amount in own.items() if amount == 0 and known.amount(key)}
        return capacity, Resources.of({**own, **revived}) if revived else allocatable
    if claim is None:
        return EMPTY, EMPTY
    if claim.status.capacity:
        return _amounts(claim.status.capacity), _amounts(claim.status.allocatable)
    return (expected.capacity, expected.allocatable) if expected is not None else (EMPTY, EMPTY)


def _same(left: Taint, right: Taint) -> bool:
    return (left.key, left.value, left.effect) == (right.key, right.value, right.effect)


def _amounts(wire: Amounts) -> Resources:
    """What a status says; nothing where it cannot be read, so that nothing is planned there."""
    try:
        return Resources.parse(wire)
    except QuantityError:
        return EMPTY
