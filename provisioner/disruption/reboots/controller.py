"""Reboots broken nodes: `Reboots`. What comes next is decided by `disruption.reboots.steps`, from what is written on the NodeClaim.

Whatever a crash leaves is gone on with by the next leader, also where node repair is off: but it makes no call that it has not written itself.
"""

import threading
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from provisioner.apis import names
from provisioner.apis.command import RepairTerms
from provisioner.apis.conditions import CLAIM_CONDITIONS
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import Condition, condition, is_true
from provisioner.apis.reboot import (
    NO_REBOOTS,
    RebootEnd,
    RebootEpisode,
    RebootIntent,
    RebootRecord,
    encode_reboots,
    reboots_of,
)
from provisioner.cloudprovider.errors import CloudError, InstanceNotFoundError, RebootRefusedError
from provisioner.cloudprovider.types import CloudProviderView
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.disruption.proposal import Proposal
from provisioner.disruption.reboots.steps import (
    NextReboot,
    RebootFacts,
    RebootNode,
    RebootStep,
    Refusal,
    next_reboot_step,
)
from provisioner.kube.errors import ApiError, Conflict, Invalid, NotFound
from provisioner.kube.events import Recorder
from provisioner.nodeclaims.writer import ClaimWriter, with_conditions
from provisioner.runtime import metrics
from provisioner.runtime.controller import Keys
from provisioner.runtime.live_reads import DECIDED_SECONDS, Postponed, never
from provisioner.runtime.object_reference import reference_of
from provisioner.state.cluster import Cluster
from provisioner.state.pause import NOTHING, Activity, Pause
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, KeyedQueue, ReconcileResult
from provisioner.termination.eviction_queue import Evictions, drain_step
from provisioner.termination.rebooting_taint import RebootingTaints, is_closed_for_reboot
from provisioner.values.bounded import put_newest
from provisioner.values.message import ConditionMessage, EventMessage

#: Threads; the cloud answers one call of each.
WORKERS: Final = 10
STALE_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = 0.2
_MOST_STEPS: Final = 20
_MOST_REMEMBERED: Final = 10_000
_log = logs.get_logger(__name__)


class _Memory:
    """What this process knows of one reboot, and no other.

    Attributes:
        uid: of the NodeClaim.
        called: attempts for which the cloud was called, by the time of their intent.
        refusal: of the last call.
        watched: since when the reboot is where it is, by a clock that does not jump.
    """

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.called: set[tuple[datetime, int]] = set()
        self.refusal: Refusal | None = None
        self.watched: tuple[object, float] | None = None


class Reboots:
    """Begins reboots and carries them out; one key is a NodeClaim's name. Thread-safe.

    Args:
        provider: reboots instances.
        evictions: asks pods to leave.
        ledger: what has begun counts there until the state shows it.
        is_broken: whether a Node still needs a repair.
        stale: which watch is behind, in words; no step is taken before all have caught up.
        pause: what has not come to a call is called off there.
        postponed: see `live_reads`; asked before a Node is closed, before each round of evictions, and before a call.
    """

    def __init__(
        self,
        cluster: Cluster,
        provider: CloudProviderView,
        writer: ClaimWriter,
        taints: RebootingTaints,
        evictions: Evictions,
        ledger: BudgetLedger,
        recorder: Recorder,
        clock: Clock,
        *,
        is_broken: Callable[[Node], bool],
        stale: Callable[[], str],
        pause: Callable[[], Pause] = lambda: NOTHING,
        postponed: Postponed = never,
    ) -> None:
        self._cluster, self._provider, self._writer, self._taints = cluster, provider, writer, taints
        self._evictions, self._ledger, self._recorder, self._clock = evictions, ledger, recorder, clock
        self._is_broken, self._stale, self._pause, self._postponed = is_broken, stale, pause, postponed
        self._by: Final = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._begun: dict[str, tuple[str, RepairTerms]] = {}  # NodeClaim -> UID; what is not written yet
        self._memories: dict[str, _Memory] = {}
        self.queue = KeyedQueue("nodeclaim.reboot", self.reconcile, clock, workers=WORKERS)

    def begin(self, proposal: Proposal) -> bool:
        """Reboot the node of a proposal from now on; makes no call. Whether it begins."""
        (name,) = proposal.candidates
        claim = self._cluster.claim(name)
        if claim is None or proposal.repair is None or claim.metadata.deletion_timestamp is not None:
            return False
        with self._lock:
            if name in self._begun or not reboots_of(claim).may_begin(self._clock.now()):
                return False
            self._begun[name] = claim.metadata.uid, proposal.repair
        self.queue.add(name)
        return True

    def begun(self) -> frozenset[str]:
        """NodeClaims whose reboot has begun, though the state does not show it yet."""
        with self._lock:
            return frozenset(self._begun)

    def initial(self) -> Keys:
        """What has marks of a reboot, to go on with at the start of a term."""
        return [claim.name for claim in self._cluster.claims() if self._concerns(claim, self._cluster.node_of(claim))]

    def claim_heard(self, claim: NodeClaim) -> Keys:
        """The NodeClaims to look at after a change of one."""
        return (claim.name,) if self._concerns(claim, self._cluster.node_of(claim)) else ()

    def node_heard(self, node: Node) -> Keys:
        """The NodeClaims to look at after a change of a Node."""
        claim = self._cluster.claim_of(node)
        return (claim.name,) if claim is not None and self._concerns(claim, node) else ()

    def _concerns(self, claim: NodeClaim, node: Node | None) -> bool:
        marked = names.REBOOT_ANNOTATION in claim.metadata.annotations or _is_marked(claim)
        told = is_true(claim.status.conditions, names.REBOOTING)
        return marked or told or (node is not None and is_closed_for_reboot(node))

    # ------------------------------------------------------------------ going on

    def reconcile(self, name: str) -> ReconcileResult:
        """Take every step of one reboot that can be taken now."""
        claim = self._cluster.claim(name)
        if claim is None:
            self._forget(name)
            return DONE
        if self._stale() or self._pause().beside:  # what another Karpenter began is its own while it leads
            return ReconcileResult(requeue_after=STALE_SECONDS)
        try:
            self._write_begun(claim)
            return self._go_on(name)
        except NotFound:
            self._release(name)
            return ReconcileResult(requeue_after=AGAIN_SECONDS)
        except (Conflict, Invalid):
            return ReconcileResult(requeue_after=AGAIN_SECONDS)  # by then the watch has told what another writer did
        except ApiError as error:
            _log.warning(
                "A request to the API server failed during a reboot; retrying", nodeclaim=name, error=str(error)
            )
            return ReconcileResult(failed=True)

    def _go_on(self, name: str) -> ReconcileResult:
        for _ in range(_MOST_STEPS):
            claim = self._cluster.claim(name)
            if claim is None or not claim.metadata.uid:
                return DONE
            node, memory = self._cluster.node_of(claim), self._memory(claim)
            following = next_reboot_step(self._facts(claim, node, memory))
            if following.step in _ENDS_PODS and self._postponed(claim, node, patience=DECIDED_SECONDS):
                return ReconcileResult(requeue_after=STALE_SECONDS)
            if following.step is RebootStep.DRAIN and node is not None:
                self._drain(node)
            elif following.step is RebootStep.NOTHING:
                return DONE
            elif following.step is not RebootStep.AWAIT:
                self._take(claim, node, memory, following)
                continue
            return ReconcileResult(requeue_after=self._seconds(following.until))
        return ReconcileResult(requeue_after=AGAIN_SECONDS)

    def _seconds(self, until: datetime | None) -> float:
        return max(AGAIN_SECONDS, (until - self._clock.now()).total_seconds()) if until is not None else STALE_SECONDS

    def _take(self, claim: NodeClaim, node: Node | None, memory: _Memory, following: NextReboot) -> None:
        """One step that writes, or calls."""
        record = reboots_of(claim)
        match following.step:
            case RebootStep.CLEAR:
                self._clear(claim, node)
            case RebootStep.ADOPT:
                self._write(claim, self._adopted(claim))
            case RebootStep.ANNOUNCE:
                self._announce(claim, record)
            case RebootStep.CLOSE if node is not None:
                self._taints.close(node)
            case RebootStep.INTEND if node is not None:
                at = _whole(self._clock.now())
                intent = RebootIntent(node.status.node_info.boot_id, following.attempt, at, self._by)
                self._write(claim, record.intended(intent), **{names.REBOOT_PRE_BOOT_ID: intent.boot_id})
            case RebootStep.CALL:
                self._call(claim, record, memory)
            case RebootStep.ISSUED:
                self._issued(claim, node)
            case RebootStep.OPEN if node is not None:
                self._open(claim, record, node)
            case RebootStep.END if following.end is not None:
                self._end(claim, record, following.end, following.why)
            case RebootStep.CONCLUDE if following.end is not None:
                self._conclude(claim, following.end)
            case RebootStep.DROP:
                kept = record.kept(self._clock.now())
                self._write(claim, kept, **dict.fromkeys(_marks(claim)))
                self._forget(claim.name)
            case _:
                pass  # the others take no write

    def _facts(self, claim: NodeClaim, node: Node | None, memory: _Memory) -> RebootFacts:
        record, conditions, now = reboots_of(claim), claim.status.conditions, self._clock.monotonic()
        told, initialized = condition(conditions, names.REBOOTING), condition(conditions, names.INITIALIZED)
        reason = told.reason if told is not None and told.status == names.TRUE else ""
        intent = record.episode.intent if record.episode is not None else None
        where = record.episode, reason
        if memory.watched is None or memory.watched[0] != where:
            memory.watched = where, now
        seen = None if node is None else _seen(node)
        return RebootFacts(
            now=self._clock.now(),
            by=self._by,
            record=record,
            deleting=claim.metadata.deletion_timestamp is not None,
            told=reason,
            pre_boot_id=claim.metadata.annotations.get(names.REBOOT_PRE_BOOT_ID, ""),
            marked=_is_marked(claim),
            away=initialized is not None
            and (initialized.status, initialized.reason) == (names.UNKNOWN, names.REBOOTING),
            node=seen,
            ill=node is None or self._is_broken(node),
            held=self._pause().why(claim.pool, Activity.REPAIR),
            left=0 if node is None else self._left(node),
            called=intent is not None and (intent.at, intent.attempt) in memory.called,
            refusal=memory.refusal,
            watched=timedelta(seconds=now - memory.watched[1]),
        )

    def _left(self, node: Node) -> int:
        return drain_step(self._cluster.bound_to(node.metadata.name), self._clock.now()).waiting

    def _drain(self, node: Node) -> None:
        step = drain_step(self._cluster.bound_to(node.metadata.name), self._clock.now())
        self._evictions.add(self._evictions.due(step.evict))

    # ------------------------------------------------------------------ steps

    def _write_begun(self, claim: NodeClaim) -> None:
        """Write that a reboot has begun; it counts from then on."""
        with self._lock:
            uid, terms = self._begun.get(claim.name, ("", None))
        if terms is None:
            return
        node, record, now = self._cluster.node_of(claim), reboots_of(claim), self._clock.now()
        boot_id = node.status.node_info.boot_id if node is not None else ""
        going = claim.metadata.deletion_timestamp is not None or claim.metadata.uid != uid
        if boot_id and not going and record.may_begin(now):
            episode = RebootEpisode(
                requested=_whole(now), condition=terms.condition, boot_id=boot_id, grace_seconds=terms.grace_seconds
            )
            kept = record.kept(now) or NO_REBOOTS
            self._write(claim, RebootRecord(episode=episode, times=kept.times))
            metrics.decision("reboot", names.REASON_UNHEALTHY.lower(), "", [claim.pool])
            _log.info(
                "Started a reboot",
                nodeclaim=claim.name,
                condition=terms.condition,
                termination_grace_period_seconds=terms.grace_seconds,
            )
        self._release(claim.name)

    def _write(self, claim: NodeClaim, record: RebootRecord | None, **annotations: str | None) -> None:
        """Write the record where the NodeClaim is as it was decided from: of two leaders one writes an intent."""
        text = None if record is None else encode_reboots(record)
        self._writer.metadata(
            claim,
            resourceVersion=claim.metadata.resource_version,
            annotations={names.REBOOT_ANNOTATION: text, **annotations},
        )

    def _adopted(self, claim: NodeClaim) -> RebootRecord:
        """What Karpenter has begun: it has called, or was about to."""
        told = condition(claim.status.conditions, names.REBOOTING)
        now = _whole(self._clock.now())
        at = told.last_transition_time if told is not None and told.last_transition_time is not None else now
        boot_id = claim.metadata.annotations.get(names.REBOOT_PRE_BOOT_ID, "")
        intent = RebootIntent(boot_id, 1, now)
        _log.info("Continuing a reboot that Karpenter started", nodeclaim=claim.name)
        episode = RebootEpisode(requested=min(at, now), condition="", boot_id=boot_id, intent=intent)
        return RebootRecord(episode=episode, times=(now,))

    def _clear(self, claim: NodeClaim, node: Node | None) -> None:
        _log.info("Removed the marks of a reboot that is not in progress", nodeclaim=claim.name)
        if node is not None and is_closed_for_reboot(node):
            self._taints.reopen(node)
        if marks := _marks(claim):
            claim = self._writer.metadata(claim, annotations=dict.fromkeys(marks))
        if condition(claim.status.conditions, names.REBOOTING) is not None:
            conditions = CLAIM_CONDITIONS.clear(claim.status.conditions, names.REBOOTING)
            self._writer.status(claim, CLAIM_CONDITIONS.clear(conditions, names.DISRUPTION_REASON))

    def _announce(self, claim: NodeClaim, record: RebootRecord) -> None:
        kind = record.episode.condition if record.episode is not None else ""
        self._say(
            claim,
            ConditionMessage(names.DISRUPTION_REASON, names.TRUE, names.REASON_UNHEALTHY, names.REASON_UNHEALTHY),
            ConditionMessage(names.REBOOTING, names.TRUE, names.REBOOT_REQUESTED, f"rebooting for {kind}"),
        )

    def _issued(self, claim: NodeClaim, node: Node | None) -> None:
        if node is not None and names.INITIALIZED_LABEL in node.metadata.labels:
            self._writer.label_node(node, {names.INITIALIZED_LABEL: None})
        self._say(
            claim,
            ConditionMessage(
                names.REBOOTING, names.TRUE, names.REBOOT_ISSUED, "waiting for the Node to report another boot ID"
            ),
            ConditionMessage(names.INITIALIZED, names.UNKNOWN, names.REBOOTING, "Node is rebooting"),
        )

    def _call(self, claim: NodeClaim, record: RebootRecord, memory: _Memory) -> None:
        """The one call of an intent, which this process has written."""
        intent = record.episode.intent if record.episode is not None else None
        if intent is None:
            return
        memory.called.add((intent.at, intent.attempt))  # first: whatever comes of it, there is no other
        operation = f"{claim.metadata.uid}-{int(intent.at.timestamp())}-{intent.attempt}"
        final: bool | None = None
        try:
            self._provider.reboot(claim, operation)
            why = ""
        except RebootRefusedError as error:
            final, why = error.final, str(error)
        except InstanceNotFoundError as error:
            final, why = True, str(error)
        except CloudError as error:
            why = str(error)
        if final is not None:
            memory.refusal = Refusal(final, intent.attempt, self._clock.now())
        _log.info(
            "Asked the cloud provider to reboot an instance", nodeclaim=claim.name, operation=operation, error=why
        )

    def _open(self, claim: NodeClaim, record: RebootRecord, node: Node) -> None:
        self._taints.reopen(node)
        if record.under_way:
            observed = EventMessage("Normal", "RebootObserved", "The Node reported another boot ID")
            self._recorder.publish(reference_of(claim), *observed)

    def _end(self, claim: NodeClaim, record: RebootRecord, end: RebootEnd, why: str) -> None:
        self._write(claim, record.ended(end))
        _log.info("Ended a reboot", nodeclaim=claim.name, result=end.value, reason=why)
        if record.episode is None or record.episode.end is not None or end is RebootEnd.CALLED_OFF:
            return
        now, intent = self._clock.now(), record.episode.intent
        issued = intent.at if intent is not None else None
        metrics.rebooted(end.value, record.episode.requested, issued, now)
        if end.failed:
            failed = EventMessage("Warning", "RebootFailed", f"The reboot of the node failed and it is replaced: {why}")
            self._recorder.publish(reference_of(claim), *failed)

    def _conclude(self, claim: NodeClaim, end: RebootEnd) -> None:
        """Say how it ended; lifecycle looks whether it is initialized."""
        conditions = CLAIM_CONDITIONS.clear(claim.status.conditions, names.DISRUPTION_REASON)
        if end is RebootEnd.CALLED_OFF:
            conditions = CLAIM_CONDITIONS.clear(conditions, names.REBOOTING)
        else:
            reason = names.REBOOT_FAILED if end.failed else names.REBOOT_SUCCEEDED
            conditions = self._with(claim, conditions, ConditionMessage(names.REBOOTING, names.FALSE, reason, ""))
        self._writer.status(claim, conditions)

    def _say(self, claim: NodeClaim, *said: ConditionMessage) -> None:
        self._writer.status(claim, with_conditions(claim, *said, now=self._clock.now()))

    def _with(
        self, claim: NodeClaim, conditions: tuple[Condition, ...], said: ConditionMessage
    ) -> tuple[Condition, ...]:
        return CLAIM_CONDITIONS.set(conditions, *said, generation=claim.metadata.generation, now=self._clock.now())

    # ------------------------------------------------------------------ memory

    def _memory(self, claim: NodeClaim) -> _Memory:
        with self._lock:
            known = self._memories.get(claim.name)
            if known is None or known.uid != claim.metadata.uid:
                known = _Memory(claim.metadata.uid)
                put_newest(self._memories, claim.name, known, _MOST_REMEMBERED)
            return known

    def _release(self, name: str) -> None:
        """The state shows what became of it."""
        with self._lock:
            begun = self._begun.pop(name, None) is not None
        if begun:
            self._ledger.release(name)

    def _forget(self, name: str) -> None:
        self._release(name)
        with self._lock:
            self._memories.pop(name, None)


_ENDS_PODS: Final = (RebootStep.CLOSE, RebootStep.DRAIN, RebootStep.INTEND)


def _seen(node: Node) -> RebootNode:
    return RebootNode(
        node.status.node_info.boot_id,
        is_true(node.status.conditions, names.READY),
        is_closed_for_reboot(node),
        names.INITIALIZED_LABEL in node.metadata.labels,
    )


def _marks(claim: NodeClaim) -> list[str]:
    """Annotations of Karpenter's about a reboot."""
    return [key for key in (names.REBOOT_PRE_BOOT_ID, names.REBOOT_GRACE_PERIOD) if key in claim.metadata.annotations]


def _is_marked(claim: NodeClaim) -> bool:
    return bool(_marks(claim))


def _whole(at: datetime) -> datetime:
    return at.replace(microsecond=0)
