"""Kubernetes objects -> the facts that the plan table keeps of them. Pure.

Whose word is believed: the provisioner's, on NodeClaims, and the API server's. A tenant writes what it likes on its pods, and a
kubelet on its own Node (NodeRestriction forbids it its taints and the labels of kubernetes.io, not ours), so

- a pod is a DaemonSet's when everything about it says so (`is_of_daemonset`): what it could then do, whoever may create pods
  could do with `spec.nodeName` as well;
- a Node belongs to a NodeClaim when the claim names it, when it has the claim's UID, which no kubelet can read, or when it is the
  only Node with the claim's provider ID (`extender.nodes`);
- what a Node says of its own state moves the holds on itself only, and no further than now.
"""

import sys
from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Final

import msgspec

from provisioner.apis import names
from provisioner.apis.command import is_marked
from provisioner.apis.core import Affinity, Node, NodeSelectorTerm
from provisioner.apis.gangs import group_of
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.launch_sets import LaunchSet, LaunchSetError, decode_sets
from provisioner.apis.meta import Condition, Object, ObjectMeta, condition
from provisioner.apis.plan import Plan, PlanError, decode_plan
from provisioner.apis.pods import Pod, PodShape, decode_pod, is_daemon, is_terminal
from provisioner.apis.provisioning_request import request_named
from provisioner.apis.reservations import ReservationError, decode_reservations
from provisioner.state.promises import PodFamily, is_over
from provisioner.values.quantity import QuantityError
from provisioner.values.resources import EMPTY, Resources

EMPTY_PLAN: Final = Plan()


class FamilyMember(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The facts about one pod.

    Attributes:
        uid: of the pod.
        name: namespace and name of the pod, as the key of a store has them, so that both are one text.
        namespace: "", for it stands in `name`.
        resource_version: of the object that these facts are from.
        owner: UID of its controller, "" for none.
        klass: key of its class.
        requests: what it takes, `pods: 1` included.
        priority: of its priority class.
        node: where it is bound, "" while it is not.
        finished: Succeeded or Failed; takes no room.
        over: it needs no place itself any more (`promises.is_over`), or not yet: it is gated.
        daemon: the DaemonSet controller made it, for one node.
        group: key of its group (`apis.gangs`), "" for a single pod.
        refused: kube-scheduler said of its group that it has no room, and has not bound it since; of a single pod nobody asks.
        request: the ProvisioningRequest that it names, "namespace/name"; "" for none.
        shape: where `klass`, `requests` and `priority` come from; a class stays interned as long as somebody has it.
    """

    uid: str
    name: str = ""
    namespace: ClassVar[str] = ""
    resource_version: str = ""
    owner: str = ""
    klass: str
    requests: Resources = EMPTY
    priority: int = 0
    node: str = ""
    finished: bool = False
    over: bool = False
    daemon: bool = False
    group: str = ""
    refused: bool = False
    shape: PodShape | None = None
    request: str = ""

    @property
    def family(self) -> PodFamily:
        """Its equals in plans."""
        return PodFamily(self.owner, self.klass)

    @property
    def waiting(self) -> bool:
        """Whether kube-scheduler may still bind it."""
        return not self.node and not self.over


class ExtenderNode(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The facts about one node.

    Attributes:
        name: of the node.
        allocatable: what it offers to pods.
        provider_id: as the claim's status has it.
        claim_uid: UID of the NodeClaim that owns it, "" where no owner reference says so.
        schedulable: ready, and without taints that fall by themselves.
        leaving: being deleted; whatever is planned on it is void.
        disrupted: closed by a disruption, which may take that back.
        avoided: kube-scheduler would rather have pods elsewhere (a PreferNoSchedule taint).
        problem: what of it could not be read and is left out, "" for nothing.
    """

    name: str
    allocatable: Resources = EMPTY
    provider_id: str = ""
    claim_uid: str = ""
    schedulable: bool = False
    leaving: bool = False
    disrupted: bool = False
    avoided: bool = False
    problem: str = ""


class RequestRoom(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Room that is reserved for the pods of one ProvisioningRequest: its key, what they take, and their priority."""

    request: str
    requests: Resources
    priority: int


class ClaimFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The facts about one NodeClaim.

    Attributes:
        name: of the claim.
        uid: of the claim.
        planned_at: when it was created, or its plan was made anew since, as it says.
        node: name of its node, "" while the claim does not say.
        provider_id: "" until launched.
        leaving: being deleted; its plan is void.
        disrupted: a disruption command has it as a candidate; its plan is void.
        interrupted: its instance will be; its plan is void once its node is closed for that.
        initialized_at: when its node was initialized, as it says; None while it is not.
        requests: what it was made for, due daemons included.
        plan: the pods it was made for, or that were planned onto its node later.
        sets: the launch sets that it is of.
        reserved: room on its node for pods of ProvisioningRequests.
        reserved_until: when it is reserved no longer.
        problem: what of it could not be read and is left out, "" for nothing.
    """

    name: str
    uid: str = ""
    planned_at: float = 0.0
    node: str = ""
    provider_id: str = ""
    leaving: bool = False
    disrupted: bool = False
    interrupted: bool = False
    initialized_at: float | None = None
    requests: Resources = EMPTY
    plan: Plan = EMPTY_PLAN
    sets: tuple[LaunchSet, ...] = ()
    reserved: tuple[RequestRoom, ...] = ()
    reserved_until: float = 0.0
    problem: str = ""


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


class _PinnedSpec(Object, frozen=True, kw_only=True):
    affinity: Affinity | None = None


class _Pinned(Object, frozen=True, kw_only=True):
    spec: _PinnedSpec = _PinnedSpec()


_PINNED: Final = msgspec.json.Decoder(_Pinned)
_GENERATED: Final = 58
"""Characters that the API server keeps of a `generateName` before it adds five of its own."""


def pinned_to(data: bytes) -> str:
    """The one node that the pod in this JSON is pinned to, as the DaemonSet controller does it; "" for none.

    Raises:
        msgspec.MsgspecError: no JSON, or no pod's affinity.
    """
    affinity = _PINNED.decode(data).spec.affinity
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return ""
    nodes = {_node_of(term) for term in affinity.node_affinity.required.node_selector_terms}
    return nodes.pop() if len(nodes) == 1 else ""  # terms are ORed: every one has to name the same


def _node_of(term: NodeSelectorTerm) -> str:
    for field in term.match_fields:
        if (field.key, field.operator) == ("metadata.name", "In") and len(field.values or ()) == 1:
            return field.values[0]
    return ""


def is_of_daemonset(pod: Pod, node: str) -> bool:
    """Whether the pod, pinned to `node`, is one that the DaemonSet controller made.

    Owner references are not checked by the API server: any pod may name any DaemonSet. One that is not pinned could use the name to
    walk over held room on every node.
    """
    owner = pod.owner
    return (
        bool(node)
        and pod.node_name in ("", node)
        and owner is not None
        and is_daemon(pod)
        and bool(owner.name)
        and bool(owner.uid)
        and pod.name.startswith(f"{owner.name}-"[:_GENERATED])
    )


def member_of(pod: Pod, node: str = "") -> FamilyMember:
    """The facts about a pod.

    Args:
        pod: as the API server sent it.
        node: the one node that it is pinned to, "" for none.
    """
    group = group_of(pod)
    return FamilyMember(
        uid=pod.uid,
        name=pod.key,
        resource_version=pod.resource_version,
        owner=sys.intern(pod.owner.uid) if pod.owner is not None else "",  # brothers have one text
        klass=pod.shape.key,
        requests=pod.shape.requests,
        priority=pod.shape.priority,
        node=pod.node_name,
        finished=is_terminal(pod),
        over=is_over(pod) or pod.gated,
        daemon=is_of_daemonset(pod, node),
        group=sys.intern(group) if group else "",
        refused=bool(group) and pod.unschedulable and not pod.node_name,
        shape=pod.shape,
        request=sys.intern(request_named(pod)),
    )


def decode_member(data: bytes) -> FamilyMember:
    """The facts about the pod in this JSON.

    Raises:
        msgspec.MsgspecError: no JSON, or not a pod.
    """
    pod = decode_pod(data)
    return member_of(pod, pinned_to(data) if is_daemon(pod) else "")


def node_facts(node: Node) -> ExtenderNode:
    """The facts about a node; a part that cannot be read is left out and named in `problem`."""
    allocatable, bad_amount = _amounts(node.status.allocatable)
    ready = condition(node.status.conditions, names.READY)
    is_ready = ready is not None and ready.status == names.TRUE
    managed = names.NODEPOOL_LABEL in node.metadata.labels
    initialized = not managed or node.metadata.labels.get(names.INITIALIZED_LABEL) == "true"
    rising = any(names.is_ephemeral(taint) and taint.effect != names.PREFER_NO_SCHEDULE for taint in node.spec.taints)
    return ExtenderNode(
        name=node.metadata.name,
        allocatable=allocatable,
        provider_id=node.spec.provider_id,
        claim_uid=_owning_claim(node.metadata),
        schedulable=is_ready and initialized and not rising,
        leaving=node.metadata.deletion_timestamp is not None,
        disrupted=any(taint.key == names.DISRUPTED_TAINT.key for taint in node.spec.taints),
        avoided=any(taint.effect == names.PREFER_NO_SCHEDULE for taint in node.spec.taints),
        problem=bad_amount,
    )


def claim_facts(claim: NodeClaim, timeline: Timeline) -> ClaimFacts:
    """The facts about a NodeClaim; a part that cannot be read is left out and named in `problem`."""
    meta = claim.metadata
    requests, bad_amount = _amounts(claim.spec.resources.requests)
    plan, bad_plan = _plan(meta)
    sets, bad_sets = _sets(meta)
    reserved, until, bad_room = _reserved(meta, timeline)
    planned_at = plan.at if plan.at is not msgspec.UNSET else meta.creation_timestamp
    return ClaimFacts(
        name=meta.name,
        uid=meta.uid,
        planned_at=timeline.at(planned_at) if planned_at is not None else 0.0,
        node=claim.status.node_name,
        provider_id=claim.status.provider_id,
        leaving=meta.deletion_timestamp is not None,
        disrupted=is_marked(claim),
        interrupted=names.INTERRUPTION_ANNOTATION in meta.annotations,
        initialized_at=_since(condition(claim.status.conditions, names.INITIALIZED), timeline),
        requests=requests,
        plan=plan,
        sets=sets,
        reserved=reserved,
        reserved_until=until,
        problem=bad_plan or bad_sets or bad_room or bad_amount,
    )


def _since(found: Condition | None, timeline: Timeline) -> float | None:
    """Since when a condition has been True, as it says; None while it is not."""
    if found is None or found.status != names.TRUE:
        return None
    return timeline.at(found.last_transition_time) if found.last_transition_time is not None else float("inf")


def _plan(meta: ObjectMeta) -> tuple[Plan, str]:
    text = meta.annotations.get(names.PLAN_ANNOTATION, "")
    if not text:
        return EMPTY_PLAN, ""
    try:
        return _interned(decode_plan(text)), ""
    except PlanError as error:
        return EMPTY_PLAN, f"annotation {names.PLAN_ANNOTATION}: {error}"


def _sets(meta: ObjectMeta) -> tuple[tuple[LaunchSet, ...], str]:
    text = meta.annotations.get(names.LAUNCH_SET, "")
    try:
        return (decode_sets(text) if text else ()), ""
    except LaunchSetError as error:
        return (), f"annotation {names.LAUNCH_SET}: {error}"


def _reserved(meta: ObjectMeta, timeline: Timeline) -> tuple[tuple[RequestRoom, ...], float, str]:
    text = meta.annotations.get(names.RESERVED, "")
    if not text:
        return (), 0.0, ""
    try:
        found = decode_reservations(text)
        rooms = tuple(
            RequestRoom(request=one.request, requests=Resources.parse(one.requests), priority=one.priority)
            for one in found.rooms
        )
    except (ReservationError, QuantityError) as error:
        return (), 0.0, f"annotation {names.RESERVED}: {error}"
    return rooms, timeline.at(found.until), ""


def _interned(plan: Plan) -> Plan:
    """The same plan; owners and classes are one text in all plans."""
    entries = (
        msgspec.structs.replace(one, owner=sys.intern(one.owner), klass=sys.intern(one.klass)) for one in plan.pods
    )
    return msgspec.structs.replace(plan, pods=tuple(entries))


def _amounts(wire: Mapping[str, str | int | float]) -> tuple[Resources, str]:
    try:
        return Resources.parse(wire), ""
    except QuantityError as error:
        return EMPTY, str(error)


def _owning_claim(meta: ObjectMeta) -> str:
    for owner in meta.owner_references:
        if owner.kind == "NodeClaim" and owner.api_version.partition("/")[0] == names.GROUP:
            return owner.uid
    return ""
