"""Why a node is not disrupted, or what holds its drain: what the methods of disruption make of it now."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec.structs import replace

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.meta import condition, is_true
from provisioner.apis.pods import is_reschedulable, is_waiting_for_eviction
from provisioner.cli.why.answers import Blocker, Drain, MethodAnswer, NodeAnswer, Place, Reason, Told, time_text, told
from provisioner.cli.why.pods import unmet
from provisioner.cli.why.world import Local
from provisioner.controllers.core.consolidation import STILL_SECONDS
from provisioner.controllers.core.disruption import settings_of
from provisioner.controllers.core.drain import deadline_of
from provisioner.disruption import costs, emptiness
from provisioner.disruption.blockers import blockers
from provisioner.disruption.budgets import AllowanceLedger
from provisioner.disruption.candidates import PodBudgets, awaited_nodes, refusal
from provisioner.disruption.emptiness import consolidatable_at, is_empty
from provisioner.disruption.methods import consolidation, drift, static_drift
from provisioner.disruption.proposal import Proposal
from provisioner.disruption.view import VALIDATION, View
from provisioner.disruption.view import MethodAnswer as Asked
from provisioner.kube import resources
from provisioner.state.snapshot import NodeView
from provisioner.support.errors import UserError


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
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ENDS: Final = (names.DRAINED, names.VOLUMES_DETACHED, names.INSTANCE_TERMINATING)


def why_node(local: Local, name: str) -> NodeAnswer:
    """The answer about one node, by the name of its Node or of its NodeClaim.

    Raises:
        UserError: there is no such node.
    """
    node = _find(local, name)
    claim = node.claim
    pods = tuple(pod.key for pod in node.pods if is_reschedulable(pod))

    def answer(
        state: str,
        summary: str,
        *,
        reasons: tuple[Reason, ...] = (),
        methods: tuple[MethodAnswer, ...] = (),
        drain: Drain | None = None,
    ) -> NodeAnswer:
        return NodeAnswer(
            node=node.name,
            node_claim=claim.name if claim is not None else "",
            node_pool=node.pool,
            at=local.snapshot.at,
            state=state,
            summary=summary,
            place=_place(local, node),
            pods=pods,
            reasons=reasons,
            methods=methods,
            drain=drain,
            missing=local.missing,
        )

    shown = f"Node {node.name}" if node.name else f"NodeClaim {name}"
    if claim is None:
        return answer("Unmanaged", f"{shown} has no NodeClaim, so it is neither disrupted nor terminated.")
    if _ends(local, node):
        drain = _drain(local, node)
        return answer("Terminating", f"{shown} is being terminated{_held(drain)}", drain=drain)
    if node.command:
        return answer("UnderWay", f"{shown} is being disrupted{_command(local, node)}")
    if waits := unmet(claim):
        reasons = tuple(
            Reason(type=one.reason or one.type, message=one.message or one.type) for one in map(told, waits)
        )
        return answer(
            "NotInitialized", f"{shown} is not {told(waits[0]).type} yet, so it is not disrupted.", reasons=reasons
        )
    return _judged(local, node, shown, answer)


def _find(local: Local, name: str) -> NodeView:
    nodes = local.snapshot.nodes
    found = next((one for one in nodes if one.name == name), None)
    found = found or next((one for one in nodes if one.claim is not None and one.claim.name == name), None)
    if found is None:
        raise UserError(f"there is no Node and no NodeClaim {name}")
    return found


def _place(local: Local, node: NodeView) -> Place:
    pool = next((one.pool for one in local.snapshot.pools if one.pool.name == node.pool), None)
    kind = node.labels.get(names.INSTANCE_TYPE_LABEL, "")
    types = local.types.of(pool) if pool is not None and local.types.manages(pool) else ()
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


def _judged(local: Local, node: NodeView, shown: str, answer: Callable[..., NodeAnswer]) -> NodeAnswer:
    snapshot = local.snapshot
    ledger, budgets = AllowanceLedger(snapshot), PodBudgets(snapshot.pod_budgets)
    commands = [one.record for one in snapshot.commands]
    view = View(
        snapshot=snapshot,
        prepared=local.prepared,
        allowed=ledger.allowed,
        empty_for={one.key.name: VALIDATION for one in snapshot.nodes},
        under_way=frozenset().union(*(one.candidate_names for one in commands)),
        spared=frozenset().union(*(one.replacement_names for one in commands)),
        settings=settings_of(local.options),
        loops=local.loops,
        restless=frozenset(one.key.name for one in snapshot.nodes if _still_at(one) > snapshot.at),
        types_of=lambda pool: local.types.of(pool) if local.types.manages(pool) else (),
    )
    pools = {one.pool.name: one.pool for one in snapshot.pools}
    reasons = []
    paused = local.pause.why(node.pool)
    found = refusal(node, view, pools, budgets, awaited_nodes(snapshot), eventual=False)
    if paused:
        reasons.append(Reason(type="Paused", message=paused))
    if found is not None:
        kind = "".join(part.title() for part in found.obstacle.split("-"))
        reasons.append(Reason(type=kind, message=found.message, until=found.until))
    pool = pools.get(node.pool)
    static = pool is not None and pool.spec.replicas is not None
    methods = tuple(
        _method(one, one.ask(view), node, pool, snapshot.at, ledger.allowed(node.pool, one.reason))
        for one in _METHODS
        if one.static is static or (not one.static and one.reason != names.REASON_DRIFTED)
    )
    if paused:
        methods = tuple(replace(one, disrupts=False, message=paused) if one.disrupts else one for one in methods)
    going = [one for one in methods if one.disrupts]
    if going:
        summary = f"{shown} would be disrupted now ({', '.join(one.reason for one in going)}): {going[0].message}"
        return answer("Candidate", summary, reasons=tuple(reasons), methods=methods)
    why = f"{shown} is not disrupted: {reasons[0].message}." if reasons else f"{shown} is not disrupted."
    return answer("Blocked", why, reasons=tuple(reasons), methods=methods)


def _method(
    method: _Method, asked: Asked, node: NodeView, pool: NodePool | None, at: datetime, allowed: int
) -> MethodAnswer:
    key = node.key.name
    mine = next((one for one in asked.proposals if key in one.candidates), None)
    if mine is not None:
        return MethodAnswer(reason=method.reason, disrupts=True, message=_proposal(mine, key), allowed=allowed)
    message, until = _why_not(method, node, pool, at)
    blocked = [one.message for one in asked.blocked if one.key == key]
    pooled = [one.message for one in asked.blocked if not one.key and one.pool == node.pool]
    if key in asked.unreached:
        blocked = ["it was not judged, because other nodes took all the time of one pass"]
    # what is about the node itself, then what the method found out, then what holds its whole pool
    text = message or next(iter((*blocked, *pooled)), "no other node would take its pods at a saving")
    if not message and not blocked and not pooled and not allowed:
        text = f"No allowed disruptions for disruption reason {method.reason} due to blocking budget"
    return MethodAnswer(reason=method.reason, disrupts=False, message=text, until=until, allowed=allowed)


def _why_not(method: _Method, node: NodeView, pool: NodePool | None, at: datetime) -> tuple[str, datetime | None]:
    """Why a method does not look at a node at all; "" where it does."""
    claim = node.claim
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
    if method.reason == names.REASON_UNDERUTILIZED and (still := _still_at(node)) > at:
        return f"a pod came or went, or the node was initialized, less than {STILL_SECONDS:g} s ago", still
    return "", None


def _still_at(node: NodeView) -> datetime:
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


def _command(local: Local, node: NodeView) -> str:
    record = next((one.record for one in local.snapshot.commands if one.record.id == node.command), None)
    if record is None:
        return "."
    claims = {one.claim.name: one.claim for one in local.snapshot.nodes if one.claim is not None}
    waiting = [
        name
        for name in record.replacement_names
        if (known := claims.get(name)) is None or not is_true(known.status.conditions, names.INITIALIZED)
    ]
    if not waiting:
        return f" ({record.reason}); its replacements are ready."
    return f" ({record.reason}); it waits for its replacement{'s' if len(waiting) > 1 else ''} {', '.join(waiting)}."


# ------------------------------------------------------------------ termination


def _ends(local: Local, node: NodeView) -> bool:
    claim = node.claim
    if claim is not None and claim.metadata.deletion_timestamp is not None:
        return True
    return _deleted(local, node) is not None


def _deleted(local: Local, node: NodeView) -> datetime | None:
    found: datetime | None = next(
        (
            one.metadata.deletion_timestamp
            for one in local.objects.of(resources.NODES)
            if one.metadata.name == node.name
        ),
        None,
    )
    return found


def _drain(local: Local, node: NodeView) -> Drain:
    at, claim = local.snapshot.at, node.claim
    held = blockers(node.pods, PodBudgets(local.snapshot.pod_budgets), at)
    attached = {
        one.spec.source.persistent_volume_name or one.metadata.name
        for one in local.objects.of(resources.VOLUMEATTACHMENTS)
        if one.spec.node_name == node.name and node.name
    }
    conditions = claim.status.conditions if claim is not None else ()
    begun = claim.metadata.deletion_timestamp if claim is not None else None
    return Drain(
        since=begun or _deleted(local, node),
        deadline=deadline_of(claim) if claim is not None else None,
        waiting=tuple(pod.key for pod in node.pods if is_waiting_for_eviction(pod, at)),
        blockers=tuple(
            Blocker(
                cause=one.cause.value,
                message=str(one),
                pods=one.pods,
                owner=one.owner,
                budgets=one.budgets,
                until=one.until,
            )
            for one in held
        ),
        volumes=tuple(sorted(attached)),
        conditions=tuple(told(one) for one in conditions if one.type in _ENDS),
        finalizers=_finalizers(local, node, claim),
    )


def _finalizers(local: Local, node: NodeView, claim: NodeClaim | None) -> tuple[str, ...]:
    metas = [one.metadata for one in local.objects.of(resources.NODES) if one.metadata.name == node.name]
    metas += [claim.metadata] if claim is not None else []
    found = {each for meta in metas for each in meta.finalizers if each != names.TERMINATION_FINALIZER}
    return tuple(sorted(found))


def _held(drain: Drain) -> str:
    """The rest of the sentence."""
    hard = [one.message for one in drain.blockers if one.cause != "terminating"]
    end = f" All pods will be deleted by {time_text(drain.deadline)}." if drain.deadline is not None else ""
    if hard:
        return f"; its drain is blocked: {'; '.join(hard)}.{end}"
    if drain.waiting:
        return f"; {len(drain.waiting)} pod{'s have' if len(drain.waiting) > 1 else ' has'} to leave it first.{end}"
    if drain.volumes:
        return f"; it waits for {len(drain.volumes)} volume{'s' if len(drain.volumes) > 1 else ''} to detach.{end}"
    unfinished: Told | None = next((one for one in drain.conditions if one.type == names.INSTANCE_TERMINATING), None)
    if unfinished is not None:
        return "; it is drained, and its instance is being terminated."
    if drain.finalizers:
        return f"; finalizers of other controllers are left: {', '.join(drain.finalizers)}."
    return "; it is drained, and its instance is terminated next."
