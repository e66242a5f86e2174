"""Why a pod has no node: what a fresh plan of everything that waits makes of it."""

import functools
import itertools
from collections.abc import Iterable, Sequence
from datetime import timedelta
from math import inf
from typing import Final, TypeAlias

from msgspec.structs import replace

from provisioner.apis import names
from provisioner.apis.gangs import GroupSource, annotated, group_of, source_of
from provisioner.apis.gangs import told as of_group
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.meta import Condition, key_of
from provisioner.apis.pods import Pod, is_reschedulable
from provisioner.disruption.gangs import what_lacks
from provisioner.disruption.refusals import PATIENCE
from provisioner.provisioning.failed_scheduling import no_pool
from provisioner.scheduling.capacity.spending import within
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.reasons import (
    NOT_TRIED,
    GroupTooLarge,
    NoPools,
    PoolRefuses,
    PoolsRefuse,
    Reason,
    unset_by_all,
)
from provisioner.scheduling.result import PlannedClaim, Result
from provisioner.scheduling.world import PoolClosed, by_weight, closed, refused_by_itself, successors, why_closed
from provisioner.state.groups import Group, GroupLack
from provisioner.state.pause import Activity
from provisioner.state.snapshot import NodeView, Snapshot
from provisioner.state.waiting import NeverWaits, awaits_verdict, never_waits
from provisioner.support.clock import SystemClock
from provisioner.values.message import Said
from provisioner.values.spelling import closest
from provisioner.why.answers import PodAnswer, PoolAnswer, WhyPlace, WhyReason, WhyRefused, time_text, told
from provisioner.why.gangs import gang_in_words, gang_of, launching
from provisioner.why.instant import Instant, NoSuchObjectError
from provisioner.why.type_refusals import PoolTypes, refused_types
from provisioner.why.unknown_values import KnownValues, known_values, unknown_values

_Found: TypeAlias = tuple[str, str, WhyPlace | None, tuple[WhyReason, ...]]
"""(state, summary, place, reasons) of a PodAnswer"""
_PLANNED_SOON: Final = " It is planned with the next batch after kube-scheduler has marked it as unschedulable."
_NOBODY_PLANS: Final = (
    " The provisioner has not planned it yet; it plans a pod once kube-scheduler marks it as unschedulable. If this does not "
    "change, check whether the provisioner is running."
)


def why_pod(instant: Instant, namespace: str, name: str) -> PodAnswer:
    """The answer about one pod.

    Raises:
        NoSuchObjectError: there is no such pod.
    """
    pod = instant.pod(namespace, name)
    if pod is None:
        raise NoSuchObjectError(f"there is no pod {namespace}/{name}")
    return _answer(instant, pod, _FreshPlan(instant, (pod,)))


def why_pods(instant: Instant, pods: Sequence[Pod]) -> tuple[PodAnswer, ...]:
    """The answers about several pods, without what each NodePool says of them. Cost: that of one answer, and a little for each pod."""
    plan = _FreshPlan(instant, pods)
    return tuple(_answer(instant, pod, plan, pools=False) for pod in pods)


def _answer(instant: Instant, pod: Pod, plan: "_FreshPlan", *, pools: bool = True) -> PodAnswer:
    known = _settled(instant, pod) or _not_followed(instant, pod) or _given_up(instant, pod)
    state, summary, place, reasons = known or _planned_anew(plan, pod)
    if pod.node_name and is_reschedulable(pod) and (message := predicted(instant.snapshot, pod)):
        reasons += (WhyReason(type="Predicted", message=message),)
    gang = gang_of(instant, pod)
    if gang is not None:
        reasons += launching(instant, gang)
    if known is None:
        reasons += tuple(
            WhyReason(type="RefusedAgain", message=refused_again(one, node))
            for one, node in instant.memory.refused
            if one.uid == pod.uid
        )
        if error := annotated(pod).error:
            reasons += (WhyReason(type="GangIgnored", message=f"{error}. The pod is planned on its own"),)
    return PodAnswer(
        pod=pod.key,
        at=instant.snapshot.at,
        state=state,
        summary=summary,
        place=place,
        gang=gang_in_words(gang) if gang is not None else "",
        scheduler=pod.scheduled_message if not pod.node_name else "",
        reasons=reasons,
        node_pools=_pools(instant, pod) if known is None and pools else (),
        missing=instant.missing if known is None else (),
    )


def predicted(snapshot: Snapshot, pod: Pod) -> str:
    """What a pod will ask for when it is admitted again, as a sentence; "" where that is no more than it asks for now."""
    one, after = snapshot.predictions.autoscaler_of(pod), snapshot.predictions.readmitted(pod)
    if one is None or after is pod:
        return ""
    now, then = (each.shape.requests.to_wire() for each in (pod, after))
    more = [f"{name} {then[name]} instead of {now.get(name, '0')}" for name in then if then[name] != now.get(name)]
    return Said(
        f"room elsewhere is planned for pod {pod.key} with {' and '.join(more)}, as VerticalPodAutoscaler {key_of(one.metadata)} recommends"
    )


def _settled(instant: Instant, pod: Pod) -> _Found | None:
    """What is found of a pod that needs no plan; None about every other."""
    why = never_waits(pod)
    if why is not None:
        return _out_of_our_hands(pod, why)
    view = _assigned(instant, pod)
    if view is None:
        return _of_its_request(instant, pod) or _of_its_group(instant, pod) or _of_its_scheduler(instant, pod)
    place = _waiting_place(view)
    return "Planned", _plan_in_words(pod, view, place), place, ()


def _out_of_our_hands(pod: Pod, why: NeverWaits) -> _Found:
    """With the field that says so."""
    match why:
        case NeverWaits.FINISHED:
            return "Finished", f"Pod {pod.key} has ended ({pod.phase}) and needs no node.", None, ()
        case NeverWaits.BOUND:
            text = f"Pod {pod.key} is bound to node {pod.node_name} (phase {pod.phase or 'Pending'})."
            return "Bound", text, WhyPlace(node=pod.node_name), ()
        case NeverWaits.DELETED:
            return "Finished", f"Pod {pod.key} is being deleted and gets no node.", None, ()
        case NeverWaits.GATED:
            text = (
                f"Pod {pod.key} has scheduling gates (spec.schedulingGates: {', '.join(pod.gates)}); no node is planned "
                "for it until they are removed."
            )
            return "Gated", text, None, ()
        case NeverWaits.MIRROR:
            text = f"Pod {pod.key} is the mirror pod of a static pod; no node is launched for such pods."
            return "Mirror", text, None, ()
        case NeverWaits.DAEMON:
            owner = pod.owner.name if pod.owner is not None else ""
            text = (
                f"Pod {pod.key} belongs to DaemonSet {owner} and only runs on the node that it names; no node is "
                "launched for such a pod."
            )
            return "DaemonSet", text, None, ()
        case _:
            text = (
                f"Pod {pod.key} requires, in spec.affinity.nodeAffinity, a node without the label "
                f"{names.NODEPOOL_LABEL}, so no node is launched for it."
            )
            return "OptedOut", text, None, ()


def _of_its_request(instant: Instant, pod: Pod) -> _Found | None:
    """What is found of a pod that takes the room of a ProvisioningRequest; None about every other."""
    held = instant.memory.held.get(pod.uid)
    if held is None:
        return None
    text = (
        f"Pod {pod.key} uses the room of ProvisioningRequest {held[0]} (annotation), so no node is launched for it until "
        "the request has ended."
    )
    return "Requested", f"{text} The request says: {held[1]}." if held[1] else text, None, ()


def _of_its_group(instant: Instant, pod: Pod) -> _Found | None:
    """Likewise of a pod that waits for others of its group; None about every other."""
    key = group_of(pod)
    group = instant.snapshot.groups.get(key) if key else None
    lack = group.lacks if group is not None else None
    if group is None or lack is None:
        return None
    if source_of(key) is not GroupSource.ANNOTATIONS:
        return _of_its_pod_group(pod, group, lack)
    if lack is GroupLack.UNREAD:
        text = (
            f"Pod {pod.key} belongs to {of_group(key)} (annotation {names.GANG}), and its Job has not been read yet. The Job's "
            f"parallelism is the number of pods that need nodes at the same time; the annotation {names.GANG_MINIMUM} overrides it."
        )
        return "GroupUnread", text, None, ()
    text = (
        f"Pod {pod.key} belongs to {of_group(key)} (annotation {names.GANG if names.GANG in pod.annotations else names.GANG_LABEL}), "
        f"which {what_lacks(group)}. Nodes are launched as soon as {group.minimum} of its pods can be scheduled."
    )
    return f"Group{lack.name.capitalize()}", text, None, ()


def _of_its_pod_group(pod: Pod, group: Group, lack: GroupLack) -> _Found | None:
    """Of a pod whose group an object tells of."""
    if lack is GroupLack.UNREAD and pod.unschedulable:
        return None
    where, scheduler = _named_by(pod, source_of(group.key))
    belongs = f"Pod {pod.key} belongs to {of_group(group.key)} ({where})"
    if lack is GroupLack.UNREAD:
        only = " which it does only if the group is complete" if scheduler == _KUBE_SCHEDULER else ""
        text = (
            f"{belongs}, and PodGroups cannot be read. No node is launched for the pod until its scheduler reports it as unschedulable"
            f"{',' if only else ''}{only}."
        )
    elif lack is GroupLack.QUEUED:
        text = (
            f"{belongs}, which waits in its queue (status.phase Pending). Volcano does not schedule the pods of such a group, so no node is "
            "launched for them. If the quota of the queue is not used up, check whether a plugin of Volcano (overcommit, proportion) compares "
            "spec.minResources of the PodGroup with the nodes that exist."
        )
    else:
        text = f"{belongs}, which {what_lacks(group)}. {scheduler} does not schedule the pods of such a group, so no node is launched for them."
    return f"Group{lack.name.capitalize()}", text, None, ()


_KUBE_SCHEDULER: Final = "kube-scheduler"


def _named_by(pod: Pod, source: GroupSource) -> tuple[str, str]:
    """What of a pod names its PodGroup, and the scheduler that reads it."""
    match source:
        case GroupSource.VOLCANO:
            return f"annotation {next(key for key in names.VOLCANO_GROUPS if pod.annotations.get(key))}", "Volcano"
        case GroupSource.COSCHEDULING:
            return f"label {names.COSCHEDULING_GROUP}", "The coscheduling plugin"
        case _:
            return "spec.schedulingGroup", _KUBE_SCHEDULER


def _of_its_scheduler(instant: Instant, pod: Pod) -> _Found | None:
    """Likewise of a pod that waits for what its scheduler does; None about every other."""
    if any(one.uid == pod.uid for one in instant.snapshot.waiting):
        return None
    if awaits_verdict(pod):
        return "OtherScheduler", _other_scheduler(instant, pod), None, ()
    if pod.nominated_node_name and pod.unschedulable:
        text = (
            f"Pod {pod.key} is nominated to node {pod.nominated_node_name} (status.nominatedNodeName): its scheduler preempts "
            "pods of lower priority there, so no node is launched for it in the meantime."
        )
        return "Preempting", text, WhyPlace(node=pod.nominated_node_name), ()
    return None


def _other_scheduler(instant: Instant, pod: Pod) -> str:
    name = pod.shape.scheduler_name
    text = (
        f'Pod {pod.key} has spec.schedulerName "{name}". That scheduler has not marked it as unschedulable, and only '
        f"pods of {' and '.join(names.KUBE_SCHEDULER_NAMES)} are planned before that, so no node is launched for it."
    )
    if any(one.shape.scheduler_name == name for view in instant.snapshot.nodes for one in view.pods):
        return text
    meant = closest(name, names.KUBE_SCHEDULER_NAMES)
    hint = f' Did you mean "{meant}"?' if meant else ""
    return f"{text} No pod of that scheduler is bound to a node; check that it runs and that the name is right.{hint}"


def _not_followed(instant: Instant, pod: Pod) -> _Found | None:
    """Likewise of a pod for which no node is launched, because kube-scheduler did not bind pods like it where they were planned."""
    stop = instant.snapshot.stopped.get(pod.shape.key)
    if stop is None:
        return None
    text = (
        f"kube-scheduler did not bind pods like this one to the nodes planned for them {stop.misses} times in a row; "
        f"no nodes are launched for them for {stop.seconds:.0f} s"
    )
    reasons = (WhyReason(type="PlansNotFollowed", message=text),)
    return "NotFollowed", f"No node is launched for pod {pod.key}: {text}.", None, reasons


def _given_up(instant: Instant, pod: Pod) -> _Found | None:
    """Likewise of a pod of a group whose nodes were given up."""
    key = group_of(pod)
    rest = instant.snapshot.resting.get(key)
    if rest is None:
        return None
    until = time_text(instant.snapshot.at + timedelta(seconds=rest.left))
    text = f"not all nodes for {of_group(key)} could be launched; it is planned again at {until}"
    return "GroupGivenUp", f"No node is launched for pod {pod.key}: {text}.", None, ()


def _assigned(instant: Instant, pod: Pod) -> NodeView | None:
    return next((view for view in instant.snapshot.nodes if any(one.uid == pod.uid for one in view.assigned)), None)


def place_of(view: NodeView) -> WhyPlace:
    """Of a node that is there or comes."""
    return WhyPlace(
        node_claim=view.claim.name if view.claim is not None else "",
        node=view.name,
        node_pool=view.pool,
        instance_type=view.labels.get(names.INSTANCE_TYPE_LABEL, ""),
        zone=view.labels.get(names.ZONE_LABEL, ""),
        capacity_type=view.labels.get(names.CAPACITY_TYPE_LABEL, ""),
    )


def _waiting_place(view: NodeView) -> WhyPlace:
    waits = unmet(view.claim) if view.claim is not None else ()
    return replace(place_of(view), waits_for=tuple(map(told, waits)))


def refused_again(pod: Pod, node: str) -> str:
    """What is said of a pod that its scheduler refuses although a node has room for it."""
    return Said(
        f"{pod.shape.scheduler_name} has refused pod {pod.key} for {PATIENCE.total_seconds():g} s or longer although "
        f"node {node} has room for it as far as the provisioner knows, so no room is kept for the pod and it "
        "does not block disruption; its condition PodScheduled says what the scheduler found"
    )


def unmet(claim: NodeClaim) -> list[Condition]:
    """The conditions on the way of a claim to Initialized that are not True, the first of them first."""
    by_type = {one.type: one for one in claim.status.conditions}
    wanted = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)
    return [by_type[kind] for kind in wanted if kind in by_type and by_type[kind].status != names.TRUE]


def _plan_in_words(pod: Pod, view: NodeView, place: WhyPlace) -> str:
    on = f"node {view.name}" if view.name else f"NodeClaim {place.node_claim}"
    what = " ".join(part for part in (place.instance_type, place.zone, place.capacity_type) if part)
    text = f"Pod {pod.key} is planned onto {on}{f' ({what})' if what else ''}"
    if view.deleting:
        return f"{text}, which is being disrupted; it is planned again when the node is gone."
    if place.waits_for:
        first = place.waits_for[0]
        why = ": ".join(part for part in (first.reason, first.message) if part)
        return f"{text}, which is not {first.type} yet{f' ({why})' if why else ''}."
    if view.initialized:
        return f"{text}, which is ready; kube-scheduler has not bound the pod yet."
    return f"{text}, which is not ready yet."


class _FreshPlan:
    """A plan of everything that waits and of these pods, made when it is first looked at."""

    def __init__(self, instant: Instant, pods: Iterable[Pod]) -> None:
        self.instant, self._pods = instant, tuple(pods)
        self.first = successors(instant.snapshot)
        self._clock = SystemClock()

    @functools.cached_property
    def _end(self) -> float:
        return self._clock.monotonic() + self.instant.seconds

    def _solved(self, prepared: Prepared, pods: Iterable[Pod], last: Sequence[str] = ()) -> Result:
        return prepared.solve(
            tuple(pods),
            avoided=self.instant.snapshot.avoided,
            first=self.first,
            last=last,
            expired=lambda: self._clock.monotonic() >= self._end,
            explain=False,
        )

    @functools.cached_property
    def result(self) -> Result:
        """Where everybody would get a place."""
        snapshot, prepared, _ = self.instant.snapshot, self.instant.prepared, self._end
        waiting = {one.uid: one for one in (*snapshot.waiting, *snapshot.leaving, *self._pods)}
        if groups := {key for one in self._pods if (key := group_of(one)) in snapshot.minima}:  # planned as a whole
            waiting |= {one.uid: one for one in snapshot.pending if group_of(one) in groups}
        return self._solved(prepared, waiting.values(), self.instant.memory.failed_groups)

    @functools.cached_property
    def _admitted(self) -> tuple[list[PlannedClaim], dict[str, str]]:
        return _admitted(self.instant, [one for _, one in self.result.in_order(self.first)])

    @functools.cached_property
    def _again(self) -> tuple[Result, dict[str, str]] | None:
        """Who waits for money, planned once more with what is left of it; None where none is."""
        admitted, dear = self._admitted
        usd = self.instant.usd_left - sum(map(_price, admitted))
        if not 0 < usd < inf:
            return None
        short = [one for each in self.result.claims for one in each.pods if one.uid in dear and not one.node_name]
        prepared = self.instant.prepared
        again = self._solved(prepare(within(prepared.world, usd), prepared), short)
        return again, _admitted(self.instant, [*admitted, *(one for _, one in again.in_order(self.first))])[1]

    def claim_of(self, pod: Pod) -> tuple[PlannedClaim | None, str]:
        """The new node that the pod would get, and why it may not be created now."""
        claim = _claim_of(pod, self.result)
        held = self._admitted[1].get(pod.uid, "") if claim is not None else ""
        if held and self._again is not None:
            again, dear = self._again
            other = _claim_of(pod, again)
            if other is not None and pod.uid not in dear:
                return other, ""
        return claim, held


def _planned_anew(plan: _FreshPlan, pod: Pod) -> _Found:
    instant = plan.instant
    late = _PLANNED_SOON if instant.memory.leads else _NOBODY_PLANS
    for key, pods in plan.result.existing.items():
        if any(one.uid == pod.uid for one in pods):
            view = next(one for one in instant.snapshot.nodes if str(one.key) == key)
            place = _waiting_place(view)
            on = f"node {view.name}" if view.name else f"NodeClaim {place.node_claim}"
            return "FitsExistingNode", f"Pod {pod.key} fits on {on}.{late}", place, ()
    claim, held = plan.claim_of(pod)
    if claim is None:
        return _unplaced(instant, pod, plan.result)
    place = WhyPlace(
        node_pool=claim.pool,
        instance_type=claim.planned_type,
        zone=claim.planned_zone,
        capacity_type=claim.planned_capacity_type,
        usd_per_hour=claim.usd_per_hour,
    )
    why = f" ({claim.reason})" if claim.reason is not None else ""
    text = (
        f"Pod {pod.key} fits on a new node of NodePool {claim.pool}: {claim.planned_type} in {claim.planned_zone}, "
        f"{claim.planned_capacity_type}, ${claim.usd_per_hour:.4f} per hour{why}.{late}"
    )
    kind = "LaunchPaused" if instant.pause.covers_all(Activity.LAUNCH) else "GrowthLimited"
    limited = (WhyReason(type=kind, message=held, node_pools=(claim.pool,)),) if held else ()
    return "FitsNewNode", text, place, limited


def _claim_of(pod: Pod, result: Result) -> PlannedClaim | None:
    return next((one for one in result.claims if any(each.uid == pod.uid for each in one.pods)), None)


def _admitted(instant: Instant, claims: Sequence[PlannedClaim]) -> tuple[list[PlannedClaim], dict[str, str]]:
    """Which of these new nodes may be created now, in this order; and why the others wait, by the uids of their pods."""
    said = list(zip(claims, instant.held_back([_price(one) for one in claims]), strict=True))
    return [one for one, text in said if not text], {pod.uid: text for one, text in said if text for pod in one.pods}


def _price(claim: PlannedClaim) -> float:
    return min(claim.prices, default=claim.usd_per_hour)  # as growth counts it until it is launched


def _unplaced(instant: Instant, pod: Pod, result: Result) -> _Found:
    found = next((one.reasons for one in result.unplaced if one.pod.uid == pod.uid), ())
    if NOT_TRIED in found:
        return "NotTried", f"No answer about pod {pod.key} was found within {instant.seconds:.0f} s.", None, ()
    unknown = any(not instant.types.manages(one.pool) for one in instant.snapshot.pools)
    if unknown:  # of the pools that are left out something may be launched
        found = tuple(one for one in found if not isinstance(one, NoPools))
        text = f"No existing node can take pod {pod.key}; whether a new node could is not known here."
    elif found and isinstance(found[0], GroupTooLarge):
        text = f"No node is launched for pod {pod.key}: {found[0]}."
        found = found[1:]
    else:
        text = f"No node can take pod {pod.key}, and no NodePool can launch one for it."
    pools = [view.pool for view in instant.snapshot.pools]
    reasons = [_reason(one, pools) for one in found]
    unset = None if unknown else unset_by_all(found, pools)
    if unset is not None:
        reasons = [replace(one, message=unset.of_all) if one.node_pools else one for one in reasons]
    misspelt = unknown_values(pod, _known_values(instant, unknown=unknown))
    wrong = [WhyReason(type="UnknownValue", message=one) for one in misspelt]
    return "Unschedulable", text, None, (*wrong, *reasons)


def _known_values(instant: Instant, *, unknown: bool) -> KnownValues:
    tables = {id(one): one for one in (instant.types.types_of(view.pool) for view in instant.snapshot.pools)}
    return known_values(instant.snapshot, None if unknown else itertools.chain.from_iterable(tables.values()))


def _reason(one: Reason, every: Sequence[NodePool]) -> WhyReason:
    match one:
        case NoPools():  # why each of them is not Ready is said of it
            return WhyReason(type=type(one).__name__, message=no_pool(every, causes=False))
        case PoolRefuses(pool, constraint):
            return WhyReason(type=type(constraint).__name__, message=str(constraint), node_pools=(pool,))
        case PoolsRefuse(pools, constraint):
            return WhyReason(type=type(constraint).__name__, message=str(constraint), node_pools=pools)
        case _:
            return WhyReason(type=type(one).__name__, message=str(one))


# ------------------------------------------------------------------ pools


def _pools(instant: Instant, pod: Pod) -> tuple[PoolAnswer, ...]:
    by_name = {one.pool: one for one in refused_types(instant.prepared, pod)}
    pools = by_weight(view.pool for view in instant.snapshot.pools)
    return tuple(_pool(instant, pool, pod, by_name.get(pool.name)) for pool in pools)


def _pool(instant: Instant, pool: NodePool, pod: Pod, types: PoolTypes | None) -> PoolAnswer:
    shut, unserved = closed(pool), instant.types.why_not_served(pool)
    if unserved and shut not in (PoolClosed.DELETING, PoolClosed.NOT_READY):
        return PoolAnswer(name=pool.name, state="Unknown", message=unserved)
    match shut:
        case PoolClosed.DELETING:
            return PoolAnswer(name=pool.name, state="Deleting", message="it is being deleted")
        case PoolClosed.STATIC:
            return PoolAnswer(
                name=pool.name, state="Static", message="it is static: its nodes follow spec.replicas, not pods"
            )
        case PoolClosed.PAUSED:
            return PoolAnswer(name=pool.name, state="Paused", message=why_closed(pool))
        case PoolClosed.NOT_READY:
            return PoolAnswer(name=pool.name, state="NotReady", message=why_closed(pool, cause=unserved))
        case _:
            pass
    if not instant.types.manages(pool):
        refusal = refused_by_itself(pool, pod.shape, instant.types.well_known_labels)
        return PoolAnswer(
            name=pool.name,
            state="Refuses" if refusal else "Unknown",
            message=refusal or "its instance types are not known here",
        )
    if types is None:
        return PoolAnswer(name=pool.name, state="Unknown", message="the pod or the NodePool cannot be judged")
    refused = tuple(
        WhyRefused(cause=one.cause, message=one.message, instance_types=one.instance_types) for one in types.refused
    )
    text = "" if types.fitting else "no instance type takes the pod"
    if not types.fitting and not refused:
        text = "it has no instance types"
    return PoolAnswer(
        name=pool.name,
        state="Usable" if types.fitting else "Refuses",
        message=text,
        fitting=types.fitting,
        refused=refused,
    )
