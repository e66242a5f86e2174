"""Which pod of an owner is evicted next, so that as many of its pods run on demand as `dovetail.dev/on-demand` asks for.

The webhook gives each pod a side when it is admitted, so only a pod that is admitted anew can change it: one pod of the side that has too many
is evicted, and its successor is put on the other by the webhook. That is done for ReplicaSets and StatefulSets whose pods ask for it, one pod
at a time, while nothing else moves, and no further than to the tolerance.

What keeps it from evicting for ever: the decision to evict comes with an `ShareAttempt`, which is written on a brother of the pod before it is evicted. Where
no pod that the webhook put on the side that lacks some came after two such evictions, nothing is evicted for a day. An eviction whose pod is still there
when all pods have settled was not carried out, and counts as none: repeated, it evicts nothing else.

The webhook counts pods by their label. Pods that were admitted without it have none and count here by the capacity type of their node; so that the
webhook counts them too, they are given the label first (`Adopt`). Without that their successors would be given their sides as if they were not there.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from provisioner.apis import names
from provisioner.apis.core import Deployment, Node, ReplicaSet, StatefulSet
from provisioner.apis.deletion_cost import deletion_cost
from provisioner.apis.meta import OwnerReference, controller_of
from provisioner.apis.pods import Pod, do_not_disrupt, is_terminal
from provisioner.apis.shapes import PodShape
from provisioner.apis.shares import REPAIR_BY_EVICTION, SeatedPod, Share, ShareAttempt, Side, gave, read_attempt
from provisioner.state.node_views import is_going
from provisioner.termination.surge_steps import is_rolling

SETTLE_SECONDS: Final = 60.0
"""So long nothing may have changed among the pods of an owner."""
MOST_ATTEMPTS: Final = 2
"""Evictions in a row that may bring no pod to the side that lacks some."""
STOPPED_FOR: Final = timedelta(days=1)
TOLERATED_PODS: Final = 2
TOLERATED_PERCENT: Final = 5

_LABELLED: Final = {side.value: side for side in Side}
_REPAIRED: Final = frozenset({("ReplicaSet", "apps"), ("StatefulSet", "apps")})
"""By kind and group. A pod of a Job would lose its work and count as failed."""


class Unrepaired(enum.Enum):
    """Why no pod is evicted."""

    WITHIN = "within"
    """The share is kept, within the tolerance."""
    NOT_ASKED = "not asked"
    """The template of the owner does not ask for it, or for no share that can be read."""
    ROLLING = "rolling"
    """The owner is being updated, or ends (`is_moving`)."""
    UNSETTLED = "unsettled"
    """Pods start, end, are not ready or are missing, or their nodes are being drained."""
    UNKNOWN = "unknown"
    """The capacity type of the node of a pod is not known."""
    STOPPED = "stopped"
    """Evictions did not help."""
    PROTECTED = "protected"
    """Every pod of the side that has too many is protected."""
    BUDGET = "budget"
    """No PodDisruptionBudget allows the eviction of any of them."""


class Bar(enum.Enum):
    """What keeps one pod from being evicted."""

    NONE = "none"
    PROTECTED = "protected"
    """By itself, by what it says of its capacity type, or by a pause of its NodePool."""
    BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class ShareMember:
    """One pod of an owner, which is not done.

    Attributes:
        side: what it counts as; None where nobody knows.
        seated: the webhook put it there.
        leaving: its node is being drained, or is not known.
        bar: what keeps it from being evicted.
    """

    pod: Pod
    side: Side | None
    seated: bool = True
    leaving: bool = False
    bar: Bar = Bar.NONE

    @property
    def labelled(self) -> bool:
        """Whether the webhook counts it as what it counts as here."""
        return self.side is not None and self.pod.labels.get(names.ON_DEMAND_SHARE_LABEL) == self.side.value


@dataclass(frozen=True, slots=True)
class ShareView:
    """An owner at one instant at which it does not move.

    Attributes:
        share: of its pods that must run on demand.
        wanted: how many pods it is to have.
        members: its pods that are not done.
        steady: seconds for which they have been as they are.
        now: UTC.
        known: the last attempt, where whoever asks remembers one.
    """

    share: Share
    wanted: int
    members: tuple[ShareMember, ...]
    steady: float
    now: datetime
    known: ShareAttempt | None = None


@dataclass(frozen=True, slots=True)
class Adopt:
    """Label these pods with what they count as: the webhook does not count them."""

    members: tuple[ShareMember, ...]


@dataclass(frozen=True, slots=True)
class Evict:
    """Write the attempt on `bearer`, then evict the pod.

    Attributes:
        bearer: the oldest of its brothers.
        on_demand: pods that run on demand now.
        wanted: pods that must.
    """

    member: ShareMember
    bearer: Pod
    attempt: ShareAttempt
    on_demand: int
    wanted: int


Decision: TypeAlias = Evict | Adopt | Unrepaired


def asks(pod: Pod) -> bool:
    """Whether a pod asks for repair, and its owner is of a kind that can be repaired."""
    return pod.annotations.get(names.ON_DEMAND_REPAIR) == REPAIR_BY_EVICTION and is_repairable(pod.owner)


def is_repairable(owner: OwnerReference | None) -> bool:
    """Whether a controller of pods is of a kind that makes an evicted one again."""
    return owner is not None and bool(owner.uid) and (owner.kind, owner.api_version.partition("/")[0]) in _REPAIRED


def tolerance(pods: int) -> int:
    """By how many pods a share of so many may be wrong."""
    return max(TOLERATED_PODS, pods * TOLERATED_PERCENT // 100)


def drift(share: Share, sides: Iterable[Side | None]) -> int:
    """How many pods too many run on demand, beyond the tolerance or not; negative for too few."""
    all_sides = tuple(sides)
    return sum(side is Side.ON_DEMAND for side in all_sides) - share.of(len(all_sides))


def is_drifted(share: Share, sides: Iterable[Side | None]) -> bool:
    """Whether so many pods are on the wrong side that it is to be repaired."""
    all_sides = tuple(sides)
    return abs(drift(share, all_sides)) > tolerance(len(all_sides))


def decide(view: ShareView) -> Decision:
    """What comes next. Never wrong by more than before once the successor is on the side that lacked pods, and done within the tolerance."""
    unclear = _unclear(view)
    if unclear is not None:
        return unclear
    sides = [member.side for member in view.members]
    too_many = drift(view.share, sides)
    if abs(too_many) <= tolerance(len(sides)):
        return Unrepaired.WITHIN
    excess, toward = (Side.ON_DEMAND, Side.SPOT) if too_many > 0 else (Side.SPOT, Side.ON_DEMAND)
    spent = _spent(view, toward)
    if spent is None:
        return Unrepaired.STOPPED
    strangers = tuple(member for member in view.members if not member.labelled)
    if strangers:
        return Adopt(strangers)
    going = [member for member in view.members if member.side is excess]
    free = [member for member in going if member.bar is Bar.NONE]
    if not free:
        return Unrepaired.BUDGET if any(member.bar is Bar.BUDGET for member in going) else Unrepaired.PROTECTED
    member = min(free, key=_order)
    newest = max(one.pod.created for one in view.members)
    attempt = ShareAttempt(
        attempts=spent + 1, toward=toward, newest=newest, at=view.now, share=str(view.share), pod=member.pod.uid
    )
    brothers = (one.pod for one in view.members if one is not member)
    # a drift beyond the tolerance has three pods at least
    bearer = min(brothers, key=lambda pod: (pod.created, pod.name))
    on_demand = sum(side is Side.ON_DEMAND for side in sides)
    return Evict(member, bearer, attempt, on_demand, on_demand - too_many)


def _unclear(view: ShareView) -> Unrepaired | None:
    """What comes before any count."""
    if (
        view.steady < SETTLE_SECONDS
        or len(view.members) != view.wanted
        or any(member.leaving or not is_settled(member.pod) for member in view.members)
    ):
        return Unrepaired.UNSETTLED
    return Unrepaired.UNKNOWN if any(member.side is None for member in view.members) else None


def is_settled(pod: Pod) -> bool:
    """Whether a pod runs, and is to go on."""
    return pod.deleted is None and bool(pod.node_name) and pod.ready


def _spent(view: ShareView, toward: Side) -> int | None:
    """Evictions in a row that were carried out and did not help; None where that were too many, a short while ago."""
    last = last_attempt((member.pod for member in view.members), view.known)
    if last is None or last.share != str(view.share) or last.toward is not toward:
        return 0
    if any(one.seated and one.side is toward and one.pod.created > last.newest for one in view.members):
        return 0
    spent = last.attempts - any(one.pod.uid == last.pod for one in view.members)
    if spent < MOST_ATTEMPTS:
        return spent
    return None if view.now - _made_at(last, view) < STOPPED_FOR else MOST_ATTEMPTS - 1


def _made_at(last: ShareAttempt, view: ShareView) -> datetime:
    """When an attempt was made; where the clock of who made it was ahead, when its first successor was created, by the API server's."""
    if last.at <= view.now:
        return last.at
    later = (one.pod.created for one in view.members if one.pod.created > last.newest)
    return min(later, default=last.newest)


def last_attempt(pods: Iterable[Pod], known: ShareAttempt | None = None) -> ShareAttempt | None:
    """The last attempt that pods of an owner, or whoever asks, know of; told by the API server's clock, as those of leaders may differ."""
    found = [one for pod in pods if (one := read_attempt(pod)) is not None]
    return max([*found, *([known] if known is not None else [])], key=lambda one: (one.newest, one.at), default=None)


def _order(member: ShareMember) -> tuple[bool, int, float, str]:
    """Pods that came without the webhook first, then those that go first when the owner shrinks, then the newest."""
    pod = member.pod
    return member.seated, deletion_cost(pod), -pod.created.timestamp(), pod.name


# --- from objects to a view ------------------------------------------------------------------------------------


def side_of_node(node: Node | None) -> Side | None:
    """What a pod counts as that runs on a node; None where the node does not say."""
    found = None if node is None else node.metadata.labels.get(names.CAPACITY_TYPE_LABEL)
    if found == names.CAPACITY_SPOT:
        return Side.SPOT
    return Side.ON_DEMAND if found in (names.CAPACITY_ON_DEMAND, names.CAPACITY_RESERVED) else None


def side_of_label(pod: Pod) -> Side | None:
    """What the label of a pod says."""
    return _LABELLED.get(pod.labels.get(names.ON_DEMAND_SHARE_LABEL, ""))


def member_of(owner: str, seated: SeatedPod, node: Node | None, bar: Bar, now: datetime) -> ShareMember:
    """A pod of the owner with this UID.

    Args:
        owner: UID.
        seated: the pod.
        node: that it runs on.
        bar: what keeps it from being evicted beside what it says itself.
        now: UTC.
    """
    pod, label = seated.pod, side_of_label(seated.pod)
    ours = label is not None and gave(owner, seated.ticket)
    if pod.shape.unjudged or do_not_disrupt(pod, now) or (not ours and _speaks_of_capacity(pod.shape)):
        bar = Bar.PROTECTED
    return ShareMember(pod, label if ours else side_of_node(node), ours, (node is None or is_going(node, None)), bar)


def members_of(owner: str, pods: Iterable[SeatedPod]) -> list[SeatedPod]:
    """Those of some pods that the owner with this UID controls and that are not done."""
    return [
        one for one in pods if one.pod.owner is not None and one.pod.owner.uid == owner and not is_terminal(one.pod)
    ]


def is_moving(found: ReplicaSet | StatefulSet, deployment: Deployment | None, brothers: Iterable[ReplicaSet]) -> bool:
    """Whether an owner of pods is being updated or scaled, or ends.

    Args:
        found: the owner.
        deployment: that it is of; None where it is of none.
        brothers: every ReplicaSet of its namespace.
    """
    meta, status = found.metadata, found.status
    wanted = found.spec.wanted
    if (
        meta.deletion_timestamp is not None
        or status.observed_generation < meta.generation
        or not (status.replicas == status.ready_replicas == wanted)
    ):
        return True
    if isinstance(found, StatefulSet):
        return status.updated_replicas != wanted
    if deployment is not None and (deployment.metadata.deletion_timestamp is not None or is_rolling(deployment)):
        return True
    above = controller_of(found.metadata)
    return above is not None and any(
        one.metadata.uid != meta.uid and (one.status.replicas or one.spec.wanted)
        for one in brothers
        if (its := controller_of(one.metadata)) is not None and its.uid == above.uid
    )


def _speaks_of_capacity(shape: PodShape) -> bool:
    """Whether the pod says itself on what capacity it runs, so that the webhook leaves its successor alone."""
    if any(names.normalized_label(key) == names.CAPACITY_TYPE_LABEL for key in shape.node_selector):
        return True
    nodes = None if shape.affinity is None else shape.affinity.node_affinity
    terms = () if nodes is None or nodes.required is None else nodes.required.node_selector_terms
    return bool(terms) and all(
        any(one.key == names.CAPACITY_TYPE_LABEL for one in term.match_expressions) for term in terms
    )
