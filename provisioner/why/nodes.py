"""Why a node is not disrupted, or what holds its drain: what the methods of disruption make of it now."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace as replaced
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec.structs import replace

from provisioner.apis import names
from provisioner.apis.command import CommandRecord
from provisioner.apis.core import Node
from provisioner.apis.interruption import interruption_of
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.meta import ObjectMeta, condition, is_true
from provisioner.apis.pods import is_reschedulable, is_waiting_for_eviction
from provisioner.apis.reboot import RebootEpisode, reboots_of
from provisioner.disruption import costs
from provisioner.disruption.candidates import RefusedNode, awaited_nodes, refusal
from provisioner.disruption.consolidation_state import STILL_SECONDS
from provisioner.disruption.controller import CONSOLIDATIONS, METHODS, Method
from provisioner.disruption.methods import consolidation, static_drift
from provisioner.disruption.methods.emptiness import consolidatable_at, is_empty
from provisioner.disruption.proposal import InterruptionDecision, Proposal
from provisioner.disruption.reboots.steps import RECOVERY
from provisioner.disruption.replacement import NO_CHEAPER_NODE
from provisioner.disruption.verdicts import forced, of_method
from provisioner.disruption.view import DisruptionStanding, DisruptionVerdict, DisruptionView, MethodAnswer
from provisioner.interruption.response import decide_interruptions
from provisioner.state.confirmation import guard_of, why_waits
from provisioner.state.pause import Activity, activity_of
from provisioner.state.snapshot import NodeView
from provisioner.termination.blockers import Cause, blockers
from provisioner.termination.eviction_queue import counting_deadline, why_paused
from provisioner.values.message import Said
from provisioner.why.answers import Drain, NodeAnswer, WhyBlocker, WhyMethod, WhyPlace, WhyReason, time_text, told
from provisioner.why.gangs import moves_with_others, waits_for_others
from provisioner.why.instant import Instant, NoSuchObjectError
from provisioner.why.pods import place_of, predicted, refused_again, unmet, why_pod

NO_INTERRUPTIONS: Final = InterruptionDecision()
_NAMED: Final = 10
"""Pods that are named in one answer for what is true of many."""
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_WITHOUT_A_PLACE: Final = 3
"""Pods that wait of which a drain names what they lack: each is planned anew."""
_ENDS: Final = (names.DRAINED, names.VOLUMES_DETACHED, names.INSTANCE_TERMINATING)


def why_node(instant: Instant, name: str, *, nodes: bool = True, claims: bool = True) -> NodeAnswer:
    """The answer about one node, by the name of its Node or of its NodeClaim.

    Args:
        instant: of the cluster.
        name: of either.
        nodes: whether it may be the name of a Node,
        claims: or of a NodeClaim.

    Raises:
        NoSuchObjectError: there is no such node.
    """
    node = _find(instant, name, nodes=nodes, claims=claims)
    claim = node.claim
    moving = [pod for pod in node.pods if is_reschedulable(pod)]
    pods = tuple(pod.key for pod in moving)

    def answer(
        state: str,
        summary: str = "",
        *,
        reasons: tuple[WhyReason, ...] = (),
        methods: tuple[WhyMethod, ...] = (),
        drain: Drain | None = None,
    ) -> NodeAnswer:
        made = NodeAnswer(
            node=node.name,
            node_claim=claim.name if claim is not None else "",
            node_pool=node.pool,
            at=instant.snapshot.at,
            state=state,
            summary=summary,
            place=_place(instant, node),
            pods=pods,
            reasons=(*_postponed(instant, claim), *reasons),
            methods=methods,
            predicted=tuple(filter(None, (predicted(instant.snapshot, pod) for pod in moving))),
            drain=drain,
            missing=(*instant.missing, *(refused_again(*one) for one in instant.memory.refused[:_NAMED])),
        )
        return made if summary else replace(made, summary=summary_of(made))

    shown = f"Node {node.name}" if node.name else f"NodeClaim {name}"
    if claim is None and not _awaits(instant, node):
        return answer("Unmanaged", f"{shown} has no NodeClaim, so it is neither disrupted nor terminated.")
    if claim is None or _ends(instant, node):
        return answer("Terminating", reasons=_awaits(instant, node), drain=_drain(instant, node))
    if node.command:
        kept_by = tuple(_waits(instant, node))
        return answer("UnderWay", f"{shown} is being disrupted{_command(instant, node, kept_by)}", reasons=kept_by)
    record = reboots_of(claim)
    if record.under_way and record.episode is not None:
        return answer("Rebooting", f"{shown} is being rebooted: {_reboot(record.episode)}.")
    if (waits := unmet(claim)) and not record.failed:
        reasons = tuple(
            WhyReason(type=one.reason or one.type, message=one.message or one.type) for one in map(told, waits)
        )
        reasons += tuple(waits_for_others(instant, node))
        return answer(
            "NotInitialized", f"{shown} is not {told(waits[0]).type} yet, so it is not disrupted.", reasons=reasons
        )
    return _judged(instant, node, answer)


def _reboot(episode: RebootEpisode) -> str:
    """How far a reboot has come."""
    if (intent := episode.intent) is not None:
        until = time_text(intent.at + RECOVERY)
        return Said(
            f"its instance was to be rebooted at {time_text(intent.at)}, and it is replaced unless its Node is Ready with another boot ID by {until}"
        )
    for_what = Said(f"because of its condition {episode.condition}, its pods leave first")
    if episode.grace_seconds is None:
        return for_what
    end = episode.requested + timedelta(seconds=episode.grace_seconds)
    return Said(f"{for_what}, until {time_text(end)} at the latest")


def summary_of(answer: NodeAnswer) -> str:
    """The sentence about a node that terminates, is blocked or is a candidate, from the rest of its answer; the given one for others."""
    shown = f"Node {answer.node}" if answer.node else f"NodeClaim {answer.node_claim}"
    if waits := next((one for one in answer.reasons if one.type == "AwaitsConfirmation"), None):
        return f"{shown} is being deleted, and waits: {waits.message}."
    if answer.state == "Terminating" and answer.drain is not None:
        return f"{shown} is being terminated{_held(answer.drain)}"
    if answer.state == "Candidate":
        going = [one for one in answer.methods if one.disrupts]
        return f"{shown} would be disrupted now ({', '.join(one.reason for one in going)}): {going[0].message}"
    if answer.state == "Blocked":
        return (
            f"{shown} is not disrupted: {answer.reasons[0].message}."
            if answer.reasons
            else f"{shown} is not disrupted."
        )
    return answer.summary


def _postponed(instant: Instant, claim: NodeClaim | None) -> tuple[WhyReason, ...]:
    why = instant.memory.postponed.get(claim.name, "") if claim is not None else ""
    return (WhyReason(type="Postponed", message=why),) if why else ()


def _find(instant: Instant, name: str, *, nodes: bool, claims: bool) -> NodeView:
    there = instant.snapshot.nodes
    found = next((one for one in there if nodes and one.name == name), None)
    found = found or next((one for one in there if claims and one.claim is not None and one.claim.name == name), None)
    if found is None:
        raise NoSuchObjectError(f'no Node or NodeClaim is named "{name}"')
    return found


def _place(instant: Instant, node: NodeView) -> WhyPlace:
    pool = next((one.pool for one in instant.snapshot.pools if one.pool.name == node.pool), None)
    kind = node.labels.get(names.INSTANCE_TYPE_LABEL, "")
    types = instant.types.types_of(pool) if pool is not None and instant.types.manages(pool) else ()
    price = costs.price_of(node.labels, next((one for one in types if one.name == kind), None))
    return replace(place_of(node), usd_per_hour=price or None)


# ------------------------------------------------------------------ disruption


def _judged(instant: Instant, node: NodeView, answer: Callable[..., NodeAnswer]) -> NodeAnswer:
    view = instant.view(node.key.name)
    snapshot = view.snapshot
    pools = {one.pool.name: one.pool for one in snapshot.pools}
    found = refusal(node, view, pools, awaited_nodes(snapshot), Activity.CONSOLIDATION)
    reasons = tuple(_reasons(instant, node, found))
    pool = pools.get(node.pool)
    static = pool is not None and pool.spec.replicas is not None
    methods = tuple(
        _method(one, one.ask(_for(one, view, instant)), node, pool, view, instant.memory.answers.get(one.reason))
        for one in (*METHODS, *CONSOLIDATIONS)
        if (one.reason != names.REASON_DRIFTED or static is (one.name == static_drift.METHOD))
        and (one.reason != names.REASON_UNHEALTHY or _is_for_command(node, view))
    )
    methods += tuple(_forced(instant, node, view))
    if behind := instant.memory.behind:
        methods = tuple(
            replace(one, disrupts=False, message=behind, standing=DisruptionStanding.BLOCKED.value)
            if one.disrupts
            else one
            for one in methods
        )
    state = "Candidate" if any(one.disrupts for one in methods) else "Blocked"
    return answer(state, reasons=reasons, methods=methods)


def _for(method: Method, view: DisruptionView, instant: Instant) -> DisruptionView:
    """As the method would be asked: nodes that are not Ready leave repair all that budgets allow."""
    return replaced(view, ceiling=instant.budgets().ceiling(method.reason))


def _is_for_command(node: NodeView, view: DisruptionView) -> bool:
    """Whether a node is broken, and no business of the forceful repairs: those of a NodePool are replaced by commands."""
    return node.key.name in view.ill and bool(node.pool)


def _reasons(instant: Instant, node: NodeView, found: RefusedNode | None) -> Iterator[WhyReason]:
    """Why the node is no candidate: what holds all nodes, then the node itself or its pool; and what else is paused there."""
    if instant.memory.behind:
        yield WhyReason(type="Behind", message=instant.memory.behind)
    if found is not None:
        yield WhyReason(type=_title(found.obstacle), message=found.message, until=found.until)
    if (paused := instant.pause.summary(node.pool)) and (found is None or found.message != paused):
        yield WhyReason(type="Paused", message=paused)
    yield from moves_with_others(instant, node)


def _title(obstacle: str) -> str:
    return "".join(part.title() for part in obstacle.split("-"))


def _forced(instant: Instant, node: NodeView, view: DisruptionView) -> Iterator[WhyMethod]:
    """What becomes of the node for expiration, repair and interruption, where they concern it."""
    snapshot = view.snapshot
    every = ((one.claim.name, interruption_of(one.claim.metadata.annotations)) for one in snapshot.nodes if one.claim)
    marks = {name: mark for name, mark in every if mark is not None}
    decision = decide_interruptions(snapshot, marks, instant.budgets()) if node.key.name in marks else NO_INTERRUPTIONS
    for reason, one in forced(node, snapshot, instant.pause, instant.repairs, marks, decision):
        yield WhyMethod(
            reason=reason,
            disrupts=one.standing is DisruptionStanding.PROPOSED,
            message=one.message,
            until=one.until,
            allowed=0,
            standing=one.standing.value,
        )


def _method(
    method: Method,
    asked: MethodAnswer,
    node: NodeView,
    pool: NodePool | None,
    view: DisruptionView,
    known: MethodAnswer | None,
) -> WhyMethod:
    """What a method makes of the node now; what its last pass made of it where there is no time for that (`known`)."""
    key = node.key.name
    verdict = of_method(asked, node)
    if verdict is not None and verdict.standing is DisruptionStanding.NOT_REACHED and known is not None:
        before = of_method(known, node)
        verdict = before if before is not None and before.standing is not DisruptionStanding.PROPOSED else verdict
    if verdict is None:
        verdict = DisruptionVerdict(DisruptionStanding.BLOCKED, _why_not(method, node, pool))
        standing = ""
    else:
        standing = verdict.standing.value
    if verdict.standing is DisruptionStanding.PROPOSED:
        text = _proposal(next(one for one in asked.proposals if key in one.candidates), key)
        verdict = DisruptionVerdict(DisruptionStanding.PROPOSED, text)
    if method.reason == names.REASON_UNDERUTILIZED and verdict.message == NO_CHEAPER_NODE:
        verdict = replaced(verdict, message=consolidation.held(view, key) or NO_CHEAPER_NODE)
    return WhyMethod(
        reason=method.reason,
        disrupts=verdict.standing is DisruptionStanding.PROPOSED,
        message=verdict.message,
        until=verdict.until,
        allowed=view.allowed(node.pool, method.reason),
        standing=standing,
    )


def _why_not(method: Method, node: NodeView, pool: NodePool | None) -> str:
    """Why a node does not concern a method."""
    if method.reason == names.REASON_DRIFTED:
        return "it has not drifted"
    if pool is None:
        return "its NodePool does not exist"
    if pool.spec.replicas is not None:
        return "its NodePool is static"
    if method.reason == names.REASON_EMPTY and not is_empty(node.pods):
        count = sum(map(is_reschedulable, node.pods))
        return f"it is not empty: {count} pod{'s' if count > 1 else ''} would need another node"
    if consolidatable_at(node, pool) is None:
        return f"consolidateAfter of its NodePool is {pool.spec.disruption.consolidate_after}"
    return "it is empty, so no pods have to move"


def still_at(node: NodeView) -> datetime:
    """Until when consolidation leaves a node alone for what happened on it, as far as its NodeClaim tells."""
    if node.claim is None:
        return _LONG_AGO
    initialized = condition(node.claim.status.conditions, names.INITIALIZED)
    times = (node.claim.status.last_pod_event_time, initialized.last_transition_time if initialized else None)
    return max((one for one in times if one is not None), default=_LONG_AGO) + timedelta(seconds=STILL_SECONDS)


def _proposal(one: Proposal, key: str) -> str:
    others = [name for name in one.candidates if name != key]
    parts = []
    if one.reboot:
        return "rebooted"
    if others:
        parts.append(f"together with {', '.join(others)}")
    if one.replacements:
        shown = ", ".join(
            f"{claim.planned_type} in {claim.planned_zone} ({claim.planned_capacity_type}, ${claim.usd_per_hour:.4f} per hour)"
            for claim in one.replacements
        )
        parts.append(f"replaced by {shown}")
    if one.then:
        parts.append(f"then {', '.join(one.then)} one after another, as their pods fit on it")
    moved = sum(map(len, one.placements.values()))
    if moved:
        parts.append(f"{moved} pods move to existing nodes")
    if one.saving_usd_per_hour:
        parts.append(f"saving ${one.saving_usd_per_hour:.4f} per hour")
    return "; ".join(parts) or "deleted without replacement"


def _record(instant: Instant, node: NodeView) -> CommandRecord | None:
    return next((one.record for one in instant.snapshot.commands if one.record.id == node.command), None)


def _coming(instant: Instant, record: CommandRecord) -> list[str]:
    """Replacements that are not initialized yet."""
    claims = {one.claim.name: one.claim for one in instant.snapshot.nodes if one.claim is not None}
    return [
        name
        for name in record.replacement_names
        if (known := claims.get(name)) is None or not is_true(known.status.conditions, names.INITIALIZED)
    ]


def _waits(instant: Instant, node: NodeView) -> Iterator[WhyReason]:
    """What a command that has begun waits for, beside its replacements."""
    record = _record(instant, node)
    if record is None:
        return
    nodes = [one for one in instant.snapshot.nodes if one.key.name in record.candidate_names]
    activity = activity_of(record.reason)
    if paused := next(filter(None, (instant.pause.why(one.pool, activity) for one in nodes)), ""):
        yield WhyReason(type="Paused", message=paused)
    if _coming(instant, record):
        return
    for one in nodes:
        forceful = one.claim is not None and bool(one.claim.spec.termination_grace_period)
        bounded = record.repair is not None and (forceful or record.repair.grace is not None)
        if bounded or (record.reason == names.REASON_DRIFTED and forceful):
            continue
        for held in blockers(one.pods, instant.snapshot.pod_budgets, instant.snapshot.at):
            if held.cause is not Cause.TERMINATING:
                yield WhyReason(type=_title(held.cause), message=str(held))


def _command(instant: Instant, node: NodeView, waits: Sequence[WhyReason]) -> str:
    """The rest of the sentence about a node of a command; names no pod."""
    record = _record(instant, node)
    if record is None:
        return "."
    coming = _coming(instant, record)
    if any(one.type == "Paused" for one in waits):
        rest = ", which is paused"
    elif coming:
        rest = f"; it waits for its replacement{'s' if len(coming) > 1 else ''} {', '.join(coming)}"
    elif waits:
        rest = "; it waits until its pods can be evicted"
    else:
        rest = "; its replacements are ready" if record.replacements else ""
    return f" ({record.reason}){rest}."


# ------------------------------------------------------------------ termination


def _ends(instant: Instant, node: NodeView) -> bool:
    claim = node.claim
    if claim is not None and claim.metadata.deletion_timestamp is not None:
        return True
    return _deleted(instant, node) is not None


def _awaits(instant: Instant, node: NodeView) -> tuple[WhyReason, ...]:
    """That its deletion waits for a confirmation, as its NodeClaim or its Node says."""
    found = instant.node(node.name) if node.name else None
    those: tuple[NodeClaim | Node | None, ...] = (node.claim, found)
    for one in those:
        if one is not None and (guard := guard_of(one)) is not None:
            return (WhyReason(type="AwaitsConfirmation", message=why_waits(guard, one.kind)),)
    return ()


def _deleted(instant: Instant, node: NodeView) -> datetime | None:
    found = instant.node(node.name) if node.name else None
    return found.metadata.deletion_timestamp if found is not None else None


def _drain(instant: Instant, node: NodeView) -> Drain:
    at, claim = instant.snapshot.at, node.claim
    conditions = claim.status.conditions if claim is not None else ()
    asked = claim.metadata.deletion_timestamp if claim is not None else None
    begun = _deleted(instant, node) or asked
    held = blockers(node.pods, instant.snapshot.pod_budgets, at, begun)
    return Drain(
        since=asked or begun,
        paused=why_paused(claim, instant.pause, at),
        deadline=counting_deadline(claim, instant.pause, at),
        waiting=tuple(pod.key for pod in node.pods if is_waiting_for_eviction(pod, at)),
        blockers=tuple(
            WhyBlocker(
                cause=one.cause.value,
                message=str(one),
                pods=one.pods,
                owner=one.owner,
                budgets=one.budgets,
                since=one.since,
                until=one.until,
            )
            for one in held
        )
        + tuple(_without_a_place(instant, frozenset(key for one in held for key in one.budgets))),
        volumes=instant.attached(node.name) if node.name else (),
        conditions=tuple(told(one) for one in conditions if one.type in _ENDS),
        ended=any(names.TERMINATION_FINALIZER not in one.finalizers for one in _going(instant, node, claim)),
        finalizers=_finalizers(instant, node, claim),
    )


def _without_a_place(instant: Instant, held: frozenset[str]) -> Iterator[WhyBlocker]:
    """What pods lack that wait for a place, as long as PodDisruptionBudgets that hold the drain count them as missing."""
    budgets = instant.snapshot.pod_budgets
    waiting = (pod for pod in instant.snapshot.waiting if held)
    counted = (pod for pod in waiting if not held.isdisjoint(one.metadata.key for one in budgets.of(pod)))
    for pod in itertools.islice(counted, _MOST_WITHOUT_A_PLACE):
        answer = why_pod(instant, pod.namespace, pod.name)
        why = "; ".join(one.message for one in answer.reasons) or answer.summary.removesuffix(".")
        yield WhyBlocker(
            cause="without-a-place", message=Said(f"pod {pod.key} waits for a node: {why}"), pods=(pod.key,)
        )


def _going(instant: Instant, node: NodeView, claim: NodeClaim | None) -> list[ObjectMeta]:
    """The Node and the NodeClaim, as far as they are being deleted."""
    found = instant.node(node.name) if node.name else None
    metas = [one.metadata for one in (found, claim) if one is not None]
    return [one for one in metas if one.deletion_timestamp is not None]


def _finalizers(instant: Instant, node: NodeView, claim: NodeClaim | None) -> tuple[str, ...]:
    every = {each for one in _going(instant, node, claim) for each in one.finalizers}
    return tuple(sorted(every - {names.TERMINATION_FINALIZER}))


def _held(drain: Drain) -> str:
    """The rest of the sentence."""
    hard = [one.message for one in drain.blockers if one.cause != "terminating"]
    end = f" All pods will be deleted by {time_text(drain.deadline)}." if drain.deadline is not None else ""
    if drain.paused:
        end = f" Its drain is paused, and its deadline does not apply until it resumes: {drain.paused}."
    waiting = len(drain.waiting) + drain.waiting_elsewhere
    if hard:
        return f"; its drain is blocked: {'; '.join(hard)}.{end}"
    if waiting:
        return f"; {waiting} pod{'s have' if waiting > 1 else ' has'} to leave it first.{end}"
    if drain.volumes:
        return f"; it waits for {len(drain.volumes)} volume{'s' if len(drain.volumes) > 1 else ''} to detach.{end}"
    written = {one.type: one for one in drain.conditions}
    if (detached := written.get(names.VOLUMES_DETACHED)) is not None and detached.status != names.TRUE:
        return f"; it waits for volumes to detach.{end}"
    if drain.ended and drain.finalizers:
        return (
            f"; its instance is terminated, and finalizers of other controllers remain: {', '.join(drain.finalizers)}."
        )
    if names.INSTANCE_TERMINATING in written:
        return "; it is drained, and its instance is being terminated."
    return "; it is drained, and its instance is terminated next."
