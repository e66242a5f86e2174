"""What `dovetail why` answers, as values: sent and printed as JSON, or printed as sentences (`cli.why.text`)."""

import json
from datetime import datetime

import msgspec

from provisioner.apis.meta import Condition


class WhyAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Some part of an answer; what is empty is left out of the JSON."""


class WhyReason(WhyAnswer, frozen=True, kw_only=True):
    """Why something is not done.

    Attributes:
        type: one CamelCase word, for programs.
        message: in words.
        node_pools: whom it is about; empty where it is about nodes that are there, or about the pod itself.
        until: when the clock alone lifts it.
    """

    type: str
    message: str
    node_pools: tuple[str, ...] = ()
    until: datetime | None = None


class WhyRefused(WhyAnswer, frozen=True, kw_only=True):
    """Instance types that one cause refuses; see `why.type_refusals.RefusedTypes`."""

    cause: str
    message: str
    instance_types: tuple[str, ...]


class PoolAnswer(WhyAnswer, frozen=True, kw_only=True):
    """What a NodePool has to do with a pod.

    Attributes:
        state: Usable, Refuses, NotReady, Static, Deleting, or Unknown where its instance types are not known here.
        message: in words; "" for one that could launch a node for the pod alone.
        fitting: instance types that would take the pod by itself, ties to other pods and volumes left aside.
        refused: the others, each under the first cause that refuses it.
    """

    name: str
    state: str
    message: str = ""
    fitting: tuple[str, ...] = ()
    refused: tuple[WhyRefused, ...] = ()


class Told(WhyAnswer, frozen=True, kw_only=True):
    """A condition as it is written on an object."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None


def told(one: Condition) -> Told:
    """The condition, in an answer."""
    since = one.last_transition_time
    return Told(type=one.type, status=one.status, reason=one.reason, message=one.message, since=since)


class WhyPlace(WhyAnswer, frozen=True, kw_only=True):
    """Where a pod is, is planned, or would be placed.

    Attributes:
        waits_for: conditions of the NodeClaim that are not True yet.
    """

    node_claim: str = ""
    node: str = ""
    node_pool: str = ""
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    usd_per_hour: float | None = None
    waits_for: tuple[Told, ...] = ()


class PodAnswer(WhyAnswer, frozen=True, kw_only=True):
    """Why a pod has no node.

    Attributes:
        state: Bound, Finished, Gated, Mirror, DaemonSet, OptedOut, Requested, OtherScheduler, Preempting, NotFollowed, Planned, FitsExistingNode, FitsNewNode,
            GroupUnknown, GroupQueued, GroupIncomplete, GroupGated, GroupContradiction, GroupGivenUp, Unschedulable or NotTried.
        summary: the answer in one sentence.
        gang: the gang of the pod, and how many of its pods have places; "" for none, and of a pod that is bound.
        scheduler: what kube-scheduler said last.
        missing: what the answer leaves out, in sentences.
        source: who answered, and why not the leader; "" of a dump.
    """

    pod: str
    at: datetime
    state: str
    summary: str
    place: WhyPlace | None = None
    gang: str = ""
    scheduler: str = ""
    reasons: tuple[WhyReason, ...] = ()
    node_pools: tuple[PoolAnswer, ...] = ()
    missing: tuple[str, ...] = ()
    source: str = ""


class WhyMethod(WhyAnswer, frozen=True, kw_only=True):
    """What one reason for disruption has to say of a node.

    Attributes:
        reason: Empty, Drifted or Underutilized; Expired, Unhealthy and Interrupted where they concern the node.
        standing: UnderWay, Proposed, Blocked, NotDue or NotReached; "" where the reason does not concern the node.
        disrupts: whether a fresh look would disrupt the node for it.
        message: what would be done, or why not.
        until: when the clock alone may change that.
        allowed: nodes of the NodePool that its budgets allow to disrupt for this reason now; 0 for reasons that ask no budget.
    """

    reason: str
    disrupts: bool
    message: str
    until: datetime | None = None
    allowed: int
    standing: str = ""


class WhyBlocker(WhyAnswer, frozen=True, kw_only=True):
    """What holds a drain; see `termination.blockers.Blocker`.

    Attributes:
        since: when it began to hold the drain; None where the API's own times do not tell.
        pods_elsewhere: how many pods of namespaces that whoever asks may not see.
    """

    cause: str
    message: str
    pods: tuple[str, ...] = ()
    pods_elsewhere: int = 0
    owner: str = ""
    budgets: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None


class Drain(WhyAnswer, frozen=True, kw_only=True):
    """How far the termination of a node has come.

    Attributes:
        since: when the deletion of its NodeClaim, or of its Node, began.
        paused: what pauses it; "" where nothing does.
        deadline: when its pods are deleted whatever forbids it; none counts while the drain is paused.
        waiting: pods that are not gone yet,
        waiting_elsewhere: and how many more of namespaces that whoever asks may not see.
        blockers: what holds them.
        volumes: that are still attached.
        conditions: Drained, VolumesDetached, InstanceTerminating as they are written.
        ended: the instance has ended, so that nothing of ours holds the Node, or the NodeClaim, any more.
        finalizers: of other controllers, on the Node and its NodeClaim.
    """

    since: datetime | None = None
    paused: str = ""
    deadline: datetime | None = None
    waiting: tuple[str, ...] = ()
    waiting_elsewhere: int = 0
    blockers: tuple[WhyBlocker, ...] = ()
    volumes: tuple[str, ...] = ()
    conditions: tuple[Told, ...] = ()
    ended: bool = False
    finalizers: tuple[str, ...] = ()


class NodeAnswer(WhyAnswer, frozen=True, kw_only=True):
    """Why a node stays, or what holds its drain.

    Attributes:
        state: Unmanaged, NotInitialized, Terminating, UnderWay (a disruption command), Rebooting, Blocked or Candidate.
        summary: the answer in one sentence.
        pods: that would need another node,
        pods_elsewhere: and how many more of namespaces that whoever asks may not see.
        reasons: why it is no candidate for any disruption.
        methods: what each reason for voluntary disruption says of it.
        predicted: a sentence for each pod that is expected to ask for more when it comes back elsewhere.
    """

    node: str
    node_claim: str
    node_pool: str
    at: datetime
    state: str
    summary: str
    place: WhyPlace
    pods: tuple[str, ...] = ()
    pods_elsewhere: int = 0
    reasons: tuple[WhyReason, ...] = ()
    methods: tuple[WhyMethod, ...] = ()
    predicted: tuple[str, ...] = ()
    drain: Drain | None = None
    missing: tuple[str, ...] = ()
    source: str = ""


def as_json(answer: WhyAnswer) -> str:
    """For programs; in ASCII, so that a terminal shows it as it is."""
    return json.dumps(json.loads(msgspec.json.encode(answer)), indent=2)


def time_text(at: datetime) -> str:
    """A time as Kubernetes writes it."""
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
