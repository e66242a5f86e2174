"""Kubernetes objects -> the facts that the plan table keeps of them. Pure."""

from collections.abc import Mapping
from datetime import datetime

from extender.plan import EMPTY_PLAN, ClaimFacts, Member, NodeFacts
from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import ObjectMeta, condition
from provisioner.apis.plan import Plan, PlanError, decode_plan
from provisioner.apis.pods import Pod, decode_pod, is_daemon, is_mirror, is_terminal
from provisioner.values.quantity import QuantityError
from provisioner.values.resources import EMPTY, Resources


class Timeline:
    """Turns instants of objects into seconds of the monotonic clock; a jump of the wall clock later on changes nothing.

    Args:
        now: the wall clock,
        monotonic: and the monotonic one at the same moment.
    """

    def __init__(self, now: datetime, monotonic: float) -> None:
        self._now = now
        self._monotonic = monotonic

    def at(self, instant: datetime) -> float:
        """Seconds of the monotonic clock at `instant`."""
        return self._monotonic + (instant - self._now).total_seconds()


def member_of(pod: Pod) -> Member:
    """The facts about a pod."""
    return Member(
        uid=pod.uid,
        name=pod.name,
        namespace=pod.namespace,
        resource_version=pod.resource_version,
        owner=pod.owner.uid if pod.owner is not None else "",
        klass=pod.shape.key,
        requests=pod.shape.requests,
        priority=pod.shape.priority,
        node=pod.node_name,
        finished=is_terminal(pod),
        idle=pod.deleted is not None or pod.gated,
        daemon=is_daemon(pod),
        static=is_mirror(pod),
        shape=pod.shape,
    )


def decode_member(data: bytes) -> Member:
    """The facts about the pod in this JSON.

    Raises:
        msgspec.MsgspecError: no JSON, or not a pod.
    """
    return member_of(decode_pod(data))


def node_facts(node: Node, timeline: Timeline) -> NodeFacts:
    """The facts about a node; a part that cannot be read is left out and named in `problem`."""
    allocatable, bad_amount = _amounts(node.status.allocatable)
    plan, bad_plan = _plan(node.metadata)
    ready = condition(node.status.conditions, names.READY)
    is_ready = ready is not None and ready.status == names.TRUE
    since = (ready.last_transition_time if ready is not None else None) or node.metadata.creation_timestamp
    managed = names.NODEPOOL_LABEL in node.metadata.labels
    initialized = not managed or node.metadata.labels.get(names.INITIALIZED_LABEL) == "true"
    rising = any(names.is_ephemeral(taint) and taint.effect != names.PREFER_NO_SCHEDULE for taint in node.spec.taints)
    return NodeFacts(
        name=node.metadata.name,
        allocatable=allocatable,
        provider_id=node.spec.provider_id,
        claim=_owning_claim(node.metadata),
        schedulable=is_ready and initialized and not rising,
        ready_at=timeline.at(since) if is_ready and since is not None else None,
        leaving=node.metadata.deletion_timestamp is not None
        or any(taint.key == names.DISRUPTED_TAINT.key for taint in node.spec.taints),
        plan=plan,
        problem=bad_plan or bad_amount,
    )


def claim_facts(claim: NodeClaim, timeline: Timeline) -> ClaimFacts:
    """The facts about a NodeClaim; a part that cannot be read is left out and named in `problem`."""
    meta = claim.metadata
    requests, bad_amount = _amounts(claim.spec.resources.requests)
    plan, bad_plan = _plan(meta)
    return ClaimFacts(
        name=meta.name,
        born_at=timeline.at(meta.creation_timestamp) if meta.creation_timestamp is not None else 0.0,
        node=claim.status.node_name,
        provider_id=claim.status.provider_id,
        leaving=meta.deletion_timestamp is not None,
        requests=requests,
        plan=plan,
        problem=bad_plan or bad_amount,
    )


def _plan(meta: ObjectMeta) -> tuple[Plan, str]:
    text = meta.annotations.get(names.PLAN_ANNOTATION, "")
    if not text:
        return EMPTY_PLAN, ""
    try:
        return decode_plan(text), ""
    except PlanError as error:
        return EMPTY_PLAN, f"annotation {names.PLAN_ANNOTATION}: {error}"


def _amounts(wire: Mapping[str, str | int | float]) -> tuple[Resources, str]:
    try:
        return Resources.parse(wire), ""
    except QuantityError as error:
        return EMPTY, str(error)


def _owning_claim(meta: ObjectMeta) -> str:
    for owner in meta.owner_references:
        if owner.kind == "NodeClaim":
            return owner.name
    return ""
