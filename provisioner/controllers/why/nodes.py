"""Why a node is not disrupted, or what holds its drain: what the methods of disruption make of it now."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec.structs import replace

from provisioner.apis import names
from provisioner.apis.command import CommandRecord
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.meta import condition, is_true
from provisioner.apis.pods import is_reschedulable, is_waiting_for_eviction
from provisioner.controllers.core.consolidation import STILL_SECONDS
from provisioner.controllers.core.drain import counting_deadline, why_paused
from provisioner.controllers.why import messages
from provisioner.controllers.why.answers import Blocker, Drain, MethodAnswer, NodeAnswer, Place, Reason, time_text, told
from provisioner.controllers.why.instant import Instant, NoSuchObjectError
from provisioner.controllers.why.pods import refused_again, unmet, why_pod
from provisioner.disruption import costs, emptiness
from provisioner.disruption.blockers import Cause, blockers
from provisioner.disruption.candidates import Obstacle, PodBudgets, Refused, awaited_nodes, refusal
from provisioner.disruption.emptiness import consolidatable_at, is_empty
from provisioner.disruption.messages import NO_CHEAPER_NODE
from provisioner.disruption.methods import consolidation, drift, static_drift
from provisioner.disruption.proposal import Proposal
from provisioner.disruption.turns import in_turn
from provisioner.disruption.view import MethodAnswer as Asked
from provisioner.disruption.view import View
from provisioner.state.snapshot import NodeView


@dataclass(frozen=True, slots=True)
class _Method:
    """One method of disruption.

    Attributes:
        reason: Empty, Drifted or Underutilized.
        ask: what it would do now; pure.
        static: whether it is for nodes of static NodePools; the others are for those of dynamic ones.
    """

    reason: str
    ask: Callable[[View], Asked]
    static: bool = False


_METHODS: Final = (
    _Method(names.REASON_EMPTY, emptiness.emptiness),
    _Method(names.REASON_DRIFTED, drift.propose),
    _Method(names.REASON_DRIFTED, static_drift.propose, static=True),
    _Method(names.REASON_UNDERUTILIZED, consolidation.propose),
)
_OF_PODS: Final = frozenset({"PodProtected", "PodBudget", "SeveralPodBudgets"})
"""Types of reasons that are about pods, of which consolidation and drift speak themselves: drift may go on although they object."""
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
    pods = tuple(pod.key for pod in node.pods if is_reschedulable(pod))

    def answer(
        state: str,
        summary: str = "",
        *,
        reasons: tuple[Reason, ...] = (),
        methods: tuple[MethodAnswer, ...] = (),
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
            drain=drain,
            missing=(*instant.missing, *(refused_again(*one) for one in instant.memory.refused[:_NAMED])),
        )
        return made if summary else replace(made, summary=summary_of(made))

    shown = f"Node {node.name}" if node.name else f"NodeClaim {name}"
    if claim is None:
        return answer("Unmanaged", f"{shown} has no NodeClaim, so it is neither disrupted nor terminated.")
    if _ends(instant, node):
        return answer("Terminating", drain=_drain(instant, node))
    if node.command:
        kept_by = tuple(_waits(instant, node))
        return answer("UnderWay", f"{shown} is being disrupted{_command(instant, node, kept_by)}", reasons=kept_by)
    if waits := unmet(claim):
        reasons = tuple(
            Reason(type=one.reason or one.type, message=one.message or one.type) for one in map(told, waits)
        )
        return answer(
            "NotInitialized", f"{shown} is not {told(waits[0]).type} yet, so it is not disrupted.", reasons=reasons
        )
    return _judged(instant, node, answer)


def summary_of(answer: NodeAnswer) -> str:
    """The sentence about a node that terminates, is blocked or is a candidate, from the rest of its answer; the given one for others."""
    shown = f"Node {answer.node}" if answer.node else f"NodeClaim {answer.node_claim}"
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


def _postponed(instant: Instant, claim: NodeClaim | None) -> tuple[Reason, ...]:
    why = instant.memory.postponed.get(claim.name, "") if claim is not None else ""
    return (Reason(type="Postponed", message=why),) if why else ()


def _find(instant: Instant, name: str, *, nodes: bool, claims: bool) -> NodeView:
    there = instant.snapshot.nodes
    found = next((one for one in there if nodes and one.name == name), None)
    found = found or next((one for one in there if claims and one.claim is not None and one.claim.name == name), None)
    if found is None:
        raise NoSuchObjectError(messages.no_node(name))
    return found


def _place(instant: Instant, node: NodeView) -> Place:
    pool = next((one.pool for one in instant.snapshot.pools if one.pool.name == node.pool), None)
    kind = node.labels.get(names.INSTANCE_TYPE_LABEL, "")
    types = instant.types.of(pool) if pool is not None and instant.types.manages(pool) else ()
    price = costs.price_of(node.labels, next((one for one in types if one.name == kind), None))
    return Place(
        node=node.name,
        node_claim=node.claim.name if node.claim is not None else "",
        node_pool=node.pool,
        instance_type=kind,
        zone=node.labels.get(names.ZONE_LABEL, ""),
        capacity_type=node.labels.get(names.CAPACITY_TYPE_LABEL, ""),
        usd_per_hour=price or None,
    )


# ------------------------------------------------------------------ disruption


def _judged(instant: Instant, node: NodeView, answer: Callable[..., NodeAnswer]) -> NodeAnswer:
    view = instant.view(node.key.name)
    snapshot = view.snapshot
    pools = {one.pool.name: one.pool for one in snapshot.pools}
    paused = instant.pause.why(node.pool)
    found = refusal(node, view, pools, PodBudgets(snapshot.pod_budgets), awaited_nodes(snapshot), eventual=False)
    reasons = tuple(_reasons(instant, node, view, found))
    pool = pools.get(node.pool)
    static = pool is not None and pool.spec.replicas is not None
    methods = tuple(
        _method(one, one.ask(view), node, pool, view, reasons)
        for one in _METHODS
        if one.static is static or (not one.static and one.reason != names.REASON_DRIFTED)
    )
    waits = paused or instant.memory.behind
    if waits:
        methods = tuple(replace(one, disrupts=False, message=waits) if one.disrupts else one for one in methods)
    state = "Candidate" if any(one.disrupts for one in methods) else "Blocked"
    return answer(state, reasons=reasons, methods=methods)


def _reasons(instant: Instant, node: NodeView, view: View, found: Refused | None) -> Iterator[Reason]:
    """Why the node is no candidate: what holds all nodes, then what holds its pool, then the node itself."""
    memory, key = instant.memory, node.key.name
    if memory.behind:
        yield Reason(type="Behind", message=memory.behind)
    if paused := instant.pause.why(node.pool):
        yield Reason(type="Paused", message=paused)
    if node.pool in memory.backing_off:
        text = "replacements of its NodePool did not become nodes a moment ago, so no node of it is replaced for now"
        yield Reason(type="BackingOff", message=text)
    if key in memory.called_off:
        text = "its disruption was called off a moment ago, so it is left alone for now"
        yield Reason(type="CalledOff", message=text)
    if any(key in one.record.replacement_names for one in view.snapshot.commands):
        yield Reason(type="Replacement", message="it replaces nodes whose disruption is under way")
    elif found is not None and (found.obstacle is not Obstacle.UNDER_WAY or key in view.under_way):
        yield Reason(type=_title(found.obstacle), message=found.message, until=found.until)


def _title(obstacle: str) -> str:
    return "".join(part.title() for part in obstacle.split("-"))


def _method(
    method: _Method, asked: Asked, node: NodeView, pool: NodePool | None, view: View, reasons: Sequence[Reason]
) -> MethodAnswer:
    key, allowed = node.key.name, view.allowed(node.pool, method.reason)
    mine = next((one for one in asked.proposals if key in one.candidates), None)
    if mine is not None:
        _, waiting = in_turn(asked.proposals, view.snapshot, _default_keys(view))
        waits = next((str(one) for one in waiting if one.key == key), "")
        text = waits or _proposal(mine, key)
        return MethodAnswer(reason=method.reason, disrupts=not waits, message=text, allowed=allowed)
    message, until = _why_not(method, node, pool, view)
    blocked = [one.message for one in asked.blocked if one.key == key]
    pooled = [one.message for one in asked.blocked if not one.key and one.pool == node.pool]
    if method.reason == names.REASON_UNDERUTILIZED and NO_CHEAPER_NODE in blocked and not message:
        blocked = [consolidation.held(view, key) or NO_CHEAPER_NODE]
    if key in asked.unreached:
        blocked = ["it was not judged, because other nodes took all the time of one pass"]
    refused = [one.message for one in reasons if method.reason == names.REASON_EMPTY or one.type not in _OF_PODS]
    # what is about the node itself, then what the method found out, then what holds its whole pool
    text = message or next(iter((*blocked, *refused, *pooled)), "")
    if not text and not allowed:
        text = view.why_none(node.pool, method.reason)
    text = text or _others_first(asked, node.pool, allowed, view) or "no other node would take its pods at a saving"
    return MethodAnswer(reason=method.reason, disrupts=False, message=text, until=until, allowed=allowed)


def _others_first(asked: Asked, pool: str, allowed: int, view: View) -> str:
    """That others take what is allowed, where they do; "" where something is left."""
    going = {name for one in asked.proposals for name in one.candidates}
    taken = Counter(one.pool for one in view.snapshot.nodes if one.key.name in going and one.ready)
    if taken[pool] >= allowed:
        most, whose = allowed, " of its NodePool"
    elif view.ceiling is not None and taken.total() >= view.ceiling:
        most, whose = view.ceiling, " of all NodePools (--max-disrupting-nodes)"
    else:
        return ""
    return f"{most} more node{'s' if most > 1 else ''}{whose} may be disrupted now, and others go first"


def _default_keys(view: View) -> frozenset[str]:
    """Labels over whose values the cluster spreads pods without constraints of their own by hard ones."""
    return view.prepared.world.spread_defaults.hard_keys if view.prepared is not None else frozenset()


def _why_not(method: _Method, node: NodeView, pool: NodePool | None, view: View) -> tuple[str, datetime | None]:
    """Why a method does not look at a node at all; "" where it does."""
    claim, at = node.claim, view.snapshot.at
    if claim is None or pool is None:
        return "", None
    if method.reason == names.REASON_DRIFTED:
        drifted = condition(claim.status.conditions, names.DRIFTED)
        if drifted is None or drifted.status != names.TRUE:
            return "it has not drifted", None
        return "", None
    if pool.spec.replicas is not None:
        return "its NodePool is static", None
    if method.reason == names.REASON_EMPTY and not is_empty(node.pods):
        count = sum(map(is_reschedulable, node.pods))
        return f"it is not empty: {count} pod{'s' if count > 1 else ''} would need another place", None
    policy = pool.spec.disruption.consolidation_policy
    if method.reason == names.REASON_UNDERUTILIZED and policy == "WhenEmpty":
        return "consolidationPolicy of its NodePool is WhenEmpty", None
    due = consolidatable_at(node, pool)
    if due is None:
        after = pool.spec.disruption.consolidate_after
        return f"consolidateAfter of its NodePool is {after}", None
    if due > at:
        after = pool.spec.disruption.consolidate_after
        return f"a pod came or went less than consolidateAfter ({after}) ago", due
    if method.reason == names.REASON_EMPTY and view.empty_for.get(node.key.name, timedelta(0)) < view.validation:
        return f"it has not been seen empty for {view.validation.total_seconds():g} s yet", None
    if method.reason == names.REASON_UNDERUTILIZED and node.key.name in view.restless:
        text = f"a pod came or went, or the node was initialized, less than {STILL_SECONDS:g} s ago"
        return text, still if (still := still_at(node)) > at else None
    if method.reason == names.REASON_UNDERUTILIZED and is_empty(node.pods):
        return "it is empty, so no pods have to move", None
    return "", None


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
    if others:
        parts.append(f"together with {', '.join(others)}")
    if one.replacements:
        shown = ", ".join(
            f"{claim.planned_type} in {claim.planned_zone} ({claim.planned_capacity_type}, ${claim.usd_per_hour:.4f} per hour)"
            for claim in one.replacements
        )
        parts.append(f"replaced by {shown}")
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


def _waits(instant: Instant, node: NodeView) -> Iterator[Reason]:
    """What a command that has begun waits for, beside its replacements."""
    record = _record(instant, node)
    if record is None:
        return
    nodes = [one for one in instant.snapshot.nodes if one.key.name in record.candidate_names]
    if paused := next(filter(None, (instant.pause.why(one.pool) for one in nodes)), ""):
        yield Reason(type="Paused", message=paused)
    if _coming(instant, record):
        return
    budgets = PodBudgets(instant.snapshot.pod_budgets)
    for one in nodes:
        forceful = one.claim is not None and bool(one.claim.spec.termination_grace_period)
        if record.reason == names.REASON_DRIFTED and forceful:
            continue
        for held in blockers(one.pods, budgets, instant.snapshot.at):
            if held.cause is not Cause.TERMINATING:
                yield Reason(type=_title(held.cause), message=str(held))


def _command(instant: Instant, node: NodeView, waits: Sequence[Reason]) -> str:
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


def _deleted(instant: Instant, node: NodeView) -> datetime | None:
    found = instant.node(node.name) if node.name else None
    return found.metadata.deletion_timestamp if found is not None else None


def _drain(instant: Instant, node: NodeView) -> Drain:
    at, claim = instant.snapshot.at, node.claim
    conditions = claim.status.conditions if claim is not None else ()
    asked = claim.metadata.deletion_timestamp if claim is not None else None
    begun = _deleted(instant, node) or asked
    held = blockers(node.pods, PodBudgets(instant.snapshot.pod_budgets), at, begun)
    return Drain(
        since=asked or begun,
        paused=why_paused(claim, instant.pause, at),
        deadline=counting_deadline(claim, instant.pause, at),
        waiting=tuple(pod.key for pod in node.pods if is_waiting_for_eviction(pod, at)),
        blockers=tuple(
            Blocker(
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
        finalizers=_finalizers(instant, node, claim),
    )


def _without_a_place(instant: Instant, held: frozenset[str]) -> Iterator[Blocker]:
    """What pods lack that wait for a place, as long as PodDisruptionBudgets that hold the drain count them as missing."""
    budgets = PodBudgets(instant.snapshot.pod_budgets)
    waiting = (pod for pod in instant.snapshot.waiting if held)
    counted = (
        pod
        for pod in waiting
        if not held.isdisjoint(f"{one.metadata.namespace}/{one.metadata.name}" for one in budgets.of(pod))
    )
    for pod in itertools.islice(counted, _MOST_WITHOUT_A_PLACE):
        answer = why_pod(instant, pod.namespace, pod.name)
        why = "; ".join(one.message for one in answer.reasons) or answer.summary.removesuffix(".")
        yield Blocker(cause="without-a-place", message=messages.without_a_place(pod.key, why), pods=(pod.key,))


def _finalizers(instant: Instant, node: NodeView, claim: NodeClaim | None) -> tuple[str, ...]:
    found = instant.node(node.name) if node.name else None
    metas = [found.metadata] if found is not None else []
    metas += [claim.metadata] if claim is not None else []
    others = {each for meta in metas for each in meta.finalizers if each != names.TERMINATION_FINALIZER}
    return tuple(sorted(others))


def _held(drain: Drain) -> str:
    """The rest of the sentence."""
    hard = [one.message for one in drain.blockers if one.cause != "terminating"]
    end = f" All pods will be deleted by {time_text(drain.deadline)}." if drain.deadline is not None else ""
    if drain.paused:
        end = f" Its drain is paused, and no deadline counts until it resumes: {drain.paused}."
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
    if names.INSTANCE_TERMINATING in written:
        return "; it is drained, and its instance is being terminated."
    if drain.finalizers:
        return f"; finalizers of other controllers are left: {', '.join(drain.finalizers)}."
    return "; it is drained, and its instance is terminated next."
