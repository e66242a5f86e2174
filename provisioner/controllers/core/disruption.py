"""Carries out what `provisioner.disruption` decides, and keeps the conditions that people read. Source: core spec 6.

A command is persisted as the Node's taint and the claim's DisruptionReason before anything is deleted: after a crash
the next leader finds it, heals it (the taint comes off) and decides anew.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from provisioner.apis import names
from provisioner.apis.conditions import CLAIM_CONDITIONS
from provisioner.apis.core import Node
from provisioner.apis.interruption import interruption_of
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import Condition, condition, is_true
from provisioner.apis.pods import is_reschedulable
from provisioner.controllers.core.claim_writer import ClaimWriter
from provisioner.controllers.core.disrupted_taint import DisruptedTaints
from provisioner.controllers.core.terminator import Terminator
from provisioner.controllers.metrics import Metrics
from provisioner.controllers.references import node_reference, reference_of
from provisioner.disruption.emptiness import (
    EmptinessDecision,
    consolidatable_at,
    decide_emptiness,
    is_empty,
    refusal,
)
from provisioner.kube.errors import ApiError, Conflict, NotFound
from provisioner.kube.events import Recorder
from provisioner.state.cluster import Cluster
from provisioner.state.snapshot import NodeView, Snapshot
from provisioner.support import heartbeat, logs
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, KeyedQueue, Result

POLL_SECONDS = 1.0
#: A machine must have been empty and consolidatable for this long before it is disrupted: rollouts leave machines
#: empty for moments. Differs: Karpenter sleeps 15 s inside its loop to the same end.
VALIDATION = timedelta(seconds=5)
POD_EVENT_DELAY = timedelta(seconds=5)
POD_EVENT_INTERVAL = timedelta(seconds=10)
#: Threads of each queue: one call that hangs holds up one of them.
HEALERS, TELLERS, DISRUPTERS = 2, 4, 8
#: After another writer was faster: by then the watch has told what it wrote.
AGAIN_SECONDS = 0.2
#: A node that the API server showed not to be empty is left alone for so long: until then the caches have caught up.
SPARED_SECONDS = 30.0
#: Failures in a row after which a command is called off and the Node opened again: some 20 s.
GIVE_UP_AFTER = 8
_log = logs.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Telling:
    """What one claim's status should say."""

    holds: bool
    pod_event: datetime | None


class Disruption:
    """A loop that decides every second, and queues that carry out: emptiness, healing, the Consolidatable condition and lastPodEventTime.

    The loop waits for no call. What fails is logged, counted and tried again with back-off, each machine by itself.

    Args:
        taints: closes Nodes and opens them again.
        terminator: lists pods at the API server.
        stale: which watch is behind, in words; nothing is disrupted, nor healed, before all have caught up.
    """

    def __init__(
        self,
        cluster: Cluster,
        writer: ClaimWriter,
        recorder: Recorder,
        metrics: Metrics,
        taints: DisruptedTaints,
        terminator: Terminator,
        clock: Clock,
        *,
        stale: Callable[[], str],
    ) -> None:
        self._cluster, self._writer, self._recorder = cluster, writer, recorder
        self._metrics, self._taints, self._terminator, self._clock = metrics, taints, terminator, clock
        self._stale = stale
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._empty_since: dict[str, float] = {}
        self._spared_until: dict[str, float] = {}
        self._disrupting: set[str] = set()  # keys whose command is under way, until the machine is gone
        self._untold: dict[str, _Telling] = {}
        self._was_stale = ""
        self._heals = KeyedQueue("disruption-heal", self._heal, clock, workers=HEALERS)
        self._tells = KeyedQueue("disruption-status", self._tell, clock, workers=TELLERS)
        self._commands = KeyedQueue("disruption-command", self._disrupt, clock, workers=DISRUPTERS)
        self._thread = threading.Thread(target=self._loop, name="disruption", daemon=True)

    def start(self) -> None:
        """Start the loop."""
        for queue in (self._heals, self._tells, self._commands):
            queue.start()
        self._thread.start()

    def stop(self) -> None:
        """End the loop after the pass that is under way."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(10)
        for queue in (self._heals, self._tells, self._commands):
            queue.stop(5.0)

    def _loop(self) -> None:
        pulse = heartbeat.pulse("disruption")
        while not self._stop.wait(POLL_SECONDS):
            pulse.beat()
            try:
                self.run_once()
            except Exception:
                _log.exception("A disruption pass failed; the next one begins anew")

    def run_once(self) -> EmptinessDecision:
        """One pass over one snapshot: decides, and hands over to the queues. Waits for no call."""
        if self._is_stale():
            return EmptinessDecision((), (), (), None)
        snapshot = self._cluster.snapshot()
        nodes = {node.key.name: node for node in snapshot.nodes if node.claim is not None}
        with self._lock:
            self._disrupting &= nodes.keys()
            under_way = frozenset(self._disrupting)
        for node in snapshot.nodes:
            if _is_marked(node) and self._is_left_over(node.key.name):
                self._heals.offer(node.key.name)
        self._untold = self._to_tell(snapshot)
        for name in self._untold:
            self._tells.offer(name)
        empty_for = self._note_empty(snapshot)
        with self._metrics.evaluating("empty", "empty", self._clock.monotonic):
            decision = decide_emptiness(snapshot, empty_for=empty_for, validation=VALIDATION, under_way=under_way)
        self._metrics.eligible_nodes(names.REASON_EMPTY, len(empty_for))
        budgets = {budget.pool: (budget.allowed, budget.consuming) for budget in decision.budgets}
        self._metrics.budgets(names.REASON_EMPTY, budgets)
        for blocked in decision.blocked:
            self._say_blocked(blocked.key, blocked.pool, str(blocked), snapshot)
        with self._lock:
            self._disrupting.update(decision.delete)
        for key in decision.delete:
            self._commands.add(key)
        return decision

    def _is_stale(self) -> bool:
        why = self._stale()
        if why and not self._was_stale:
            _log.warning("Voluntary disruption is suspended until the caches are current", reason=why)
        elif self._was_stale and not why:
            _log.info("The caches are current again; voluntary disruption resumes")
        self._was_stale = why
        if why:
            self._empty_since.clear()  # nobody saw what happened meanwhile
        return bool(why)

    def _note_empty(self, snapshot: Snapshot) -> dict[str, timedelta]:
        """For how long each machine is seen empty without a break; memory of this process only."""
        now = self._clock.monotonic()
        seen = {
            node.key.name
            for node in snapshot.nodes
            if node.claim is not None and is_empty(node.pods) and not node.nominated
        }
        with self._lock:
            self._spared_until = {key: until for key, until in self._spared_until.items() if until > now}
            seen -= self._spared_until.keys()
        self._empty_since = {key: self._empty_since.get(key, now) for key in seen}
        return {key: timedelta(seconds=now - since) for key, since in self._empty_since.items()}

    # ------------------------------------------------------------------ acting

    def _disrupt(self, key: str) -> Result:
        """Taint first, look once more at the API server, then delete the claim; whoever was bound meanwhile is spared."""
        try:
            going = self._end(key)
        except (NotFound, Conflict) as error:
            _log.info("A disruption was called off; it is decided again", nodeclaim=key, reason=str(error))
            going = False
        except ApiError as error:
            if self._commands.failures(key) < GIVE_UP_AFTER and not self._stale():
                _log.warning("A disruption waits for the API server; retrying", nodeclaim=key, error=str(error))
                return Result(failed=True)
            _log.warning("A disruption was called off; it is decided again", nodeclaim=key, error=str(error))
            going = False
        if not going:
            with self._lock:
                self._disrupting.discard(key)  # healed by the next pass
        return DONE

    def _end(self, key: str) -> bool:
        """Whether the claim goes now."""
        claim = self._cluster.claim(key)
        node = self._cluster.node_of(claim) if claim is not None else None
        if claim is None or node is None or claim.metadata.deletion_timestamp is not None or self._stale():
            return False
        node = self._taints.close(node)
        claim = self._cluster.claim(key)
        if claim is None or claim.metadata.deletion_timestamp is not None:
            return False
        claim = self._writer.status(claim, self._with_reason(claim))
        why = self._objection(key, claim, node)
        if why:
            _log.info("Sparing a node that was about to be disrupted", node=node.metadata.name, reason=why)
            with self._lock:
                self._spared_until[key] = self._clock.monotonic() + SPARED_SECONDS
            return False
        for reference in (reference_of(claim), node_reference(node)):
            self._recorder.publish(
                reference, "Normal", "DisruptionTerminating", f"Disrupting Node: {names.REASON_EMPTY}"
            )
        self._writer.delete(claim)
        self._metrics.claim_disrupted(claim, "empty")
        self._metrics.decision("delete", "empty", "empty", [claim.pool])
        _log.info("Disrupting node", node=node.metadata.name, nodeclaim=key, reason="empty")
        return True

    def _objection(self, key: str, claim: NodeClaim, node: Node) -> str:
        """Why the machine is not empty, or not free to go, now that nothing more can be bound to it; "" where it is.

        Raises:
            ApiError: it is not known.
        """
        sight = self._terminator.look(claim)
        if len(sight.nodes) > 1:
            return f"Nodes {sight.nodes[0].metadata.name} and {sight.nodes[1].metadata.name} have one provider ID"
        if unknown := (*sight.unreadable, *sight.strangers):
            return f"there may be a live pod: {unknown[0]}"
        found = next((pod for pod in sight.pods if is_reschedulable(pod)), None)
        if found is not None:
            return f"pod {found.key} is on it"
        view = next(
            (one for one in self._cluster.snapshot().nodes if one.claim is not None and one.key.name == key), None
        )
        if view is None or view.nominated:
            return "pods are planned onto it"
        annotations = [node.metadata.annotations, claim.metadata.annotations]
        annotations += [one.metadata.annotations for one in sight.nodes]
        protected = any(found.get(names.DO_NOT_DISRUPT) == "true" for found in annotations)
        return refusal(sight.pods, self._clock.now(), do_not_disrupt=protected)

    def _with_reason(self, claim: NodeClaim) -> tuple[Condition, ...]:
        return CLAIM_CONDITIONS.set(
            claim.status.conditions,
            names.DISRUPTION_REASON,
            names.TRUE,
            names.REASON_EMPTY,
            names.REASON_EMPTY,
            generation=claim.metadata.generation,
            now=self._clock.now(),
        )

    def _is_left_over(self, key: str) -> bool:
        """Marked by a command that nobody carries out any more."""
        claim = self._cluster.claim(key)
        found = self._cluster.node_of(claim) if claim is not None else None
        with self._lock:
            if claim is None or found is None or key in self._disrupting:
                return False
        if found.metadata.deletion_timestamp or claim.metadata.deletion_timestamp:
            return False
        mark = interruption_of(claim.metadata.annotations)
        if mark is not None and mark.has_begun(self._clock.now()):
            return False  # `Interruptions` carries it out
        return any(taint.key == names.DISRUPTED_TAINT.key for taint in found.spec.taints) or (
            condition(claim.status.conditions, names.DISRUPTION_REASON) is not None
        )

    def _heal(self, key: str) -> Result:
        claim = self._cluster.claim(key)
        found = self._cluster.node_of(claim) if claim is not None else None
        if claim is None or found is None or self._stale() or not self._is_left_over(key):
            return DONE
        try:
            self._taints.reopen(found)
            self._writer.status(claim, CLAIM_CONDITIONS.clear(claim.status.conditions, names.DISRUPTION_REASON))
        except NotFound:
            return DONE
        except Conflict:
            return Result(requeue_after=AGAIN_SECONDS)
        except ApiError as error:
            _log.warning(
                "A disruption that nobody carries out could not be taken back; retrying", node=key, error=str(error)
            )
            return Result(failed=True)
        _log.info("Took back a disruption that nobody carries out", node=found.metadata.name)
        return DONE

    # ------------------------------------------------------------------ telling

    def _to_tell(self, snapshot: Snapshot) -> dict[str, _Telling]:
        """Claims, by name, whose Consolidatable or lastPodEventTime is not what the cluster shows."""
        pools = {view.pool.metadata.name: view.pool for view in snapshot.pools}
        untold = {}
        for node in snapshot.nodes:
            claim = node.claim
            if claim is None or not claim.metadata.uid or claim.metadata.deletion_timestamp is not None:
                continue
            pool = pools.get(node.pool)
            due = consolidatable_at(node, pool) if pool is not None else None
            holds = due is not None and due <= snapshot.at
            told, event = claim.status.last_pod_event_time, self._cluster.last_pod_event(node.name)
            settled = event is not None and snapshot.at - event >= POD_EVENT_DELAY
            # a time that lies ahead is of another clock, and would hold for as long as that one was fast
            old = told is None or (event is not None and event - told >= POD_EVENT_INTERVAL) or told > snapshot.at
            late = settled and old
            if late or holds != is_true(claim.status.conditions, names.CONSOLIDATABLE):
                untold[claim.metadata.name] = _Telling(holds, event if late else None)
        return untold

    def _tell(self, name: str) -> Result:
        claim, telling = self._cluster.claim(name), self._untold.get(name)
        if claim is None or telling is None or claim.metadata.deletion_timestamp is not None:
            return DONE
        event = telling.pod_event
        fields = {"lastPodEventTime": event.replace(microsecond=0)} if event is not None else {}
        try:
            self._writer.status(claim, self._consolidatable(claim, holds=telling.holds), **fields)
        except NotFound:
            return DONE
        except Conflict:
            return Result(requeue_after=AGAIN_SECONDS)
        except ApiError as error:
            _log.warning("The status of a NodeClaim could not be written; retrying", nodeclaim=name, error=str(error))
            return Result(failed=True)
        return DONE

    def _consolidatable(self, claim: NodeClaim, *, holds: bool) -> Any:
        conditions = claim.status.conditions
        if holds == is_true(conditions, names.CONSOLIDATABLE):
            return conditions
        if not holds:
            return CLAIM_CONDITIONS.clear(conditions, names.CONSOLIDATABLE)
        return CLAIM_CONDITIONS.set(
            conditions,
            names.CONSOLIDATABLE,
            names.TRUE,
            names.CONSOLIDATABLE,
            "",
            generation=claim.metadata.generation,
            now=self._clock.now(),
        )

    def _say_blocked(self, key: str, pool: str, message: str, snapshot: Snapshot) -> None:
        if not key:
            view = next((view.pool for view in snapshot.pools if view.pool.metadata.name == pool), None)
            if view is not None:
                self._recorder.publish(reference_of(view), "Normal", "DisruptionBlocked", message, ttl=60.0)
            return
        node = next((node for node in snapshot.nodes if node.claim is not None and node.key.name == key), None)
        found: Node | None = self._cluster.node(node.name) if node is not None else None
        if node is not None and node.claim is not None and found is not None:
            for reference in (reference_of(node.claim), node_reference(found)):
                self._recorder.publish(reference, "Normal", "DisruptionBlocked", message)


def _is_marked(node: NodeView) -> bool:
    """Whether a command may have begun on the machine, as far as a snapshot shows."""
    if node.claim is None or not node.name or node.claim.metadata.deletion_timestamp is not None:
        return False
    return node.deleting or condition(node.claim.status.conditions, names.DISRUPTION_REASON) is not None
