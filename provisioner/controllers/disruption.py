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
from provisioner.apis.meta import condition, is_true
from provisioner.controllers.metrics import Metrics
from provisioner.controllers.references import node_reference, reference_of
from provisioner.controllers.registration import patch_node
from provisioner.controllers.store import ClaimWriter
from provisioner.controllers.termination import disruption_patch, healing_patch
from provisioner.disruption.emptiness import EmptinessDecision, consolidatable_at, decide_emptiness, is_empty
from provisioner.kube.client import Client
from provisioner.kube.errors import NotFound
from provisioner.kube.events import Recorder
from provisioner.state.cluster import Cluster
from provisioner.state.snapshot import NodeView, Snapshot
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.workers import Pool as Workers
from provisioner.support.workers import run_parallel

POLL_SECONDS = 1.0
#: A machine must have been empty and consolidatable for this long before it is disrupted: rollouts leave machines
#: empty for moments. Differs: Karpenter sleeps 15 s inside its loop to the same end.
VALIDATION = timedelta(seconds=5)
POD_EVENT_DELAY = timedelta(seconds=5)
POD_EVENT_INTERVAL = timedelta(seconds=10)
_log = logs.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Telling:
    """What one claim's status should say."""

    claim: str
    holds: bool
    pod_event: datetime | None


class Disruption:
    """One loop, every second: emptiness, healing, the Consolidatable condition and lastPodEventTime."""

    def __init__(
        self,
        cluster: Cluster,
        client: Client,
        writer: ClaimWriter,
        recorder: Recorder,
        metrics: Metrics,
        workers: Workers,
        clock: Clock,
        *,
        tainted: Callable[[str], None],
    ) -> None:
        self._cluster, self._client, self._writer, self._recorder = cluster, client, writer, recorder
        self._metrics, self._workers, self._clock, self._tainted = metrics, workers, clock, tainted
        self._stop = threading.Event()
        self._empty_since: dict[str, datetime] = {}
        self._disrupting: set[str] = set()
        self._thread = threading.Thread(target=self._loop, name="disruption", daemon=True)

    def start(self) -> None:
        """Start the loop."""
        self._thread.start()

    def stop(self) -> None:
        """End the loop after the pass that is under way."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def _loop(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            try:
                self.run_once()
            except Exception:
                _log.exception("a disruption pass failed, the next one begins anew")

    def run_once(self) -> EmptinessDecision:
        """One pass over one snapshot."""
        snapshot = self._cluster.snapshot()
        run_parallel(self._workers, self._heal, [node for node in snapshot.nodes if self._is_left_over(node)])
        run_parallel(self._workers, self._tell, self._untold(snapshot))
        decision = decide_emptiness(snapshot, empty_since=self._note_empty(snapshot), validation=VALIDATION)
        budgets = {budget.pool: (budget.allowed, budget.consuming) for budget in decision.budgets}
        self._metrics.budgets(names.REASON_EMPTY, budgets)
        for blocked in decision.blocked:
            self._say_blocked(blocked.key, blocked.pool, str(blocked), snapshot)
        nodes = {node.key: node for node in snapshot.nodes}
        for outcome in run_parallel(self._workers, self._disrupt, [nodes[key] for key in decision.delete]):
            if outcome.error is not None:
                self._disrupting.discard(outcome.item.key)
                _log.warning("could not disrupt, it is decided again", node=outcome.item.name, error=str(outcome.error))
        self._disrupting &= set(nodes)
        return decision

    def _note_empty(self, snapshot: Snapshot) -> dict[str, datetime]:
        """Since when each machine is seen empty without a break; memory of this process only."""
        seen = {node.key for node in snapshot.nodes if is_empty(node.pods) and not node.nominated}
        self._empty_since = {key: self._empty_since.get(key, snapshot.at) for key in seen}
        return self._empty_since

    # ------------------------------------------------------------------ acting

    def _disrupt(self, node: NodeView) -> None:
        """Taint first, look once more, then delete the claim; whoever was bound meanwhile is drained or spared."""
        claim = node.claim
        found = self._cluster.node(node.name)
        if claim is None or found is None:
            return
        self._disrupting.add(node.key)
        patch_node(self._client, found, disruption_patch)
        self._tainted(node.name)
        fresh = self._cluster.claim(claim.metadata.name)
        if fresh is None or fresh.metadata.deletion_timestamp is not None:
            return
        conditions = CLAIM_CONDITIONS.set(
            fresh.status.conditions,
            names.DISRUPTION_REASON,
            names.TRUE,
            names.REASON_EMPTY,
            names.REASON_EMPTY,
            generation=fresh.metadata.generation,
            now=self._clock.now(),
        )
        fresh = self._writer.status(fresh, conditions)
        if not is_empty(self._cluster.bound_to(node.name)):
            self._disrupting.discard(node.key)  # healed by the next pass
            return
        for reference in (reference_of(fresh), node_reference(found)):
            self._recorder.publish(
                reference, "Normal", "DisruptionTerminating", f"Disrupting Node: {names.REASON_EMPTY}"
            )
        self._writer.delete(fresh)
        self._metrics.claim_disrupted(fresh, "empty")
        self._metrics.decision("delete", "empty", "empty")
        _log.info("disrupting node", node=node.name, nodeclaim=claim.metadata.name, reason="empty")

    def _is_left_over(self, node: NodeView) -> bool:
        """Marked by a command that nobody carries out any more."""
        if node.claim is None or node.key in self._disrupting or not node.name:
            return False
        found = self._cluster.node(node.name)
        if found is None or found.metadata.deletion_timestamp or node.claim.metadata.deletion_timestamp:
            return False
        mark = interruption_of(node.claim.metadata.annotations)
        if mark is not None and mark.has_begun(self._clock.now()):
            return False  # `Interruptions` carries it out
        return any(taint.key == names.DISRUPTED_TAINT.key for taint in found.spec.taints) or (
            condition(node.claim.status.conditions, names.DISRUPTION_REASON) is not None
        )

    def _heal(self, node: NodeView) -> None:
        found = self._cluster.node(node.name)
        claim = self._cluster.claim(node.key)
        if found is None or claim is None or claim.metadata.deletion_timestamp is not None:
            return
        try:
            patch_node(self._client, found, healing_patch)
            self._writer.status(claim, CLAIM_CONDITIONS.clear(claim.status.conditions, names.DISRUPTION_REASON))
        except NotFound:
            return
        _log.info("took back a disruption that nobody carries out", node=node.name)

    # ------------------------------------------------------------------ telling

    def _untold(self, snapshot: Snapshot) -> list[_Telling]:
        """Claims whose Consolidatable or lastPodEventTime is not what the cluster shows."""
        pools = {view.pool.metadata.name: view.pool for view in snapshot.pools}
        untold = []
        for node in snapshot.nodes:
            claim = node.claim
            if claim is None or not claim.metadata.uid or claim.metadata.deletion_timestamp is not None:
                continue
            pool = pools.get(node.pool)
            due = consolidatable_at(node, pool) if pool is not None else None
            holds = due is not None and due <= snapshot.at
            told, event = claim.status.last_pod_event_time, self._cluster.last_pod_event(node.name)
            settled = event is not None and snapshot.at - event >= POD_EVENT_DELAY
            late = settled and event is not None and (told is None or event - told >= POD_EVENT_INTERVAL)
            if late or holds != is_true(claim.status.conditions, names.CONSOLIDATABLE):
                untold.append(_Telling(claim.metadata.name, holds, event if late else None))
        return untold

    def _tell(self, telling: _Telling) -> None:
        claim = self._cluster.claim(telling.claim)
        if claim is None or claim.metadata.deletion_timestamp is not None:
            return
        event = telling.pod_event
        fields = {"lastPodEventTime": event.replace(microsecond=0)} if event is not None else {}
        self._writer.status(claim, self._consolidatable(claim, holds=telling.holds), **fields)

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
        node = next((node for node in snapshot.nodes if node.key == key), None)
        found: Node | None = self._cluster.node(node.name) if node is not None else None
        if node is not None and node.claim is not None and found is not None:
            for reference in (reference_of(node.claim), node_reference(found)):
                self._recorder.publish(reference, "Normal", "DisruptionBlocked", message)
