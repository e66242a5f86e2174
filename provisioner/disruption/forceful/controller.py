"""Deletes nodes that have reached their `expireAfter`, and broken ones that no command repairs. Source: core spec 5, 6.15.

Neither asks a budget, but every budget counts them from the moment at which they begin. The drain that follows a deletion keeps PodDisruptionBudgets,
on a broken node for as long as its repair policy says.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Final, TypeVar

from provisioner.apis import names
from provisioner.apis.interruption import has_begun
from provisioner.apis.karpenter import NodeClaim
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.disruption.costs import time_left
from provisioner.disruption.forceful.expiration import decide_expirations
from provisioner.disruption.forceful.repair import Repair, RepairDecision, decide_repairs
from provisioner.disruption.node_health import NodeHealth
from provisioner.disruption.proposal import DISRUPTING_NODE, disrupting_node
from provisioner.disruption.repair_breaker import SHARE, repair_breaker
from provisioner.disruption.verdicts import EXPIRED, UNHEALTHY
from provisioner.kube.errors import ApiError, NotFound
from provisioner.kube.events import Recorder
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.runtime import metrics
from provisioner.runtime.live_reads import CHOSEN_SECONDS, DECIDED_SECONDS, Postponed, never
from provisioner.runtime.object_reference import publish
from provisioner.runtime.poller import ApiPoller
from provisioner.state.cluster import Cluster
from provisioner.state.pause import NOTHING, Activity, Pause
from provisioner.state.snapshot import Snapshot
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, KeyedQueue, ReconcileResult
from provisioner.termination.eviction_queue import deadline_of, earlier_end
from provisioner.values.message import EventMessage

POLL_SECONDS: Final = 2.0
#: Threads that delete: one call that hangs holds up one of them.
WORKERS: Final = 4
STALE_SECONDS: Final = 1.0
_log = logs.get_logger(__name__)
_Decision = TypeVar("_Decision")


class ForcefulDisruption:
    """A `poller` that decides every two seconds, and a `queue` that deletes; one key is a NodeClaim's name.

    Args:
        ledger: of the budgets; it is informed, not asked.
        health: which nodes are broken; none where the gate NodeRepair is off.
        breaker: above which share of broken nodes none is repaired.
        legacy: whether all broken nodes are repaired here.
        stale: which watch is behind, in words; nothing is deleted before all have caught up.
        pause: whose nodes are left alone for now.
    """

    def __init__(
        self,
        cluster: Cluster,
        writer: ClaimWriter,
        recorder: Recorder,
        ledger: BudgetLedger,
        clock: Clock,
        *,
        health: NodeHealth,
        breaker: Fraction = SHARE,
        legacy: bool = False,
        stale: Callable[[], str],
        pause: Callable[[], Pause] = lambda: NOTHING,
        postponed: Postponed = never,
    ) -> None:
        self._pause, self._postponed = pause, postponed
        self._cluster, self._writer, self._recorder = cluster, writer, recorder
        self._ledger, self._clock, self._health, self._stale = ledger, clock, health, stale
        self._share, self._legacy = breaker, legacy
        self._repairs: dict[str, Repair] = {}
        self.queue = KeyedQueue("nodeclaim-forceful-disruption", self.reconcile, clock, workers=WORKERS)
        self.poller = ApiPoller("forceful-disruption", self.run_once, POLL_SECONDS, first=POLL_SECONDS)

    def run_once(self) -> float:
        """Decide on one snapshot; seconds until the next pass. Waits for no call. Cost: O(nodes)."""
        if self._stale():
            return POLL_SECONDS
        snapshot = self._cluster.snapshot()
        # each by itself: what one of them cannot read keeps no node from the others
        repairs = self._attempt(lambda: self.decide_repairs(snapshot), RepairDecision())
        self._repairs = {one.key: one for one in repairs.repair}
        for blocked in repairs.blocked:
            self._say(blocked.key, EventMessage("Warning", blocked.event, str(blocked)))
        expired = self._attempt(lambda: decide_expirations(snapshot), tuple[str, ...]())
        claims = [node.claim for node in snapshot.nodes if node.claim is not None]
        old = self._attempt(
            lambda: frozenset(one.name for one in claims if self._has_old_deadline(one)), frozenset[str]()
        )
        for name in (*expired, *self._repairs, *old):
            self.queue.offer(name)
        return POLL_SECONDS

    def _attempt(self, decide: Callable[[], _Decision], otherwise: _Decision) -> _Decision:
        try:
            return decide()
        except Exception:  # noqa: BLE001 - the others are decided all the same
            _log.exception("An expiration and node repair pass failed; retrying with the next pass")
            return otherwise

    def decide_repairs(self, snapshot: Snapshot) -> RepairDecision:
        """What is to be done about broken nodes at this instant. Any thread may ask."""
        ill = self._health.at(snapshot)
        breaker = repair_breaker(snapshot, ill, self._share, domains=not self._legacy)
        return decide_repairs(snapshot, ill, breaker, legacy=self._legacy)

    def reconcile(self, name: str) -> ReconcileResult:
        """Delete one NodeClaim, where it still is to be deleted."""
        if self._stale():
            return ReconcileResult(requeue_after=STALE_SECONDS)
        claim, repair = self._cluster.claim(name), self._repairs.get(name)
        if claim is None or not claim.metadata.uid:
            return DONE
        if claim.metadata.deletion_timestamp is not None and (repair is None or not self._end(claim, repair)):
            return DONE
        if repair is None and not (self._is_expired(claim) or self._has_old_deadline(claim)):
            return DONE
        self._ledger.seize(name)
        try:
            if repair is None and self._has_old_deadline(claim):
                claim = self._writer.metadata(
                    claim, annotations={names.TERMINATION_TIMESTAMP: None, names.ENDED_FOR: None}
                )
            activity = Activity.EXPIRATION if repair is None else Activity.REPAIR
            if (repair is None and not self._is_expired(claim)) or self._pause().why(claim.pool, activity):
                return DONE  # the next pass asks again
            patience = CHOSEN_SECONDS if repair is None else DECIDED_SECONDS
            if self._postponed(claim, self._cluster.node_of(claim), patience=patience):
                return ReconcileResult(requeue_after=STALE_SECONDS)
            # either is told to the state at once, where it counts from then on; pods of a broken node do not run
            if repair is not None:
                self._writer.delete(self._ended(claim, repair))
            elif not self._writer.end(claim, EXPIRED.lower()):
                return DONE
        except NotFound:
            return DONE
        except ApiError as error:
            _log.warning("A NodeClaim could not be deleted; retrying", nodeclaim=name, error=str(error))
            return ReconcileResult(failed=True)
        finally:
            self._ledger.release(name)
        self._tell(claim, repair)
        return DONE

    def _is_expired(self, claim: NodeClaim) -> bool:
        left = time_left(claim, self._clock.now())
        return left is not None and left.total_seconds() <= 0

    def _has_old_deadline(self, claim: NodeClaim) -> bool:
        """Whether the claim stays, though it says that its drain is over: a repair that came to nothing wrote it, and whatever ends
        the node later would delete its pods at once.
        """
        known = deadline_of(claim) if names.TERMINATION_TIMESTAMP in claim.metadata.annotations else None
        return (
            known is not None
            and known <= self._clock.now()
            and claim.metadata.deletion_timestamp is None
            and claim.name not in self._repairs
            and self._cluster.command_of(claim.name) is None
            and not has_begun(claim.metadata.annotations, self._clock.now())
        )

    def _end(self, claim: NodeClaim, repair: Repair) -> dict[str, str]:
        """What has its drain end in time, unless it is paused: what holds pods of a broken node would hold them for ever."""
        return earlier_end(claim, self._clock.now() + repair.grace) if repair.grace is not None else {}

    def _ended(self, claim: NodeClaim, repair: Repair) -> NodeClaim:
        marks = self._end(claim, repair)
        if claim.metadata.deletion_timestamp is None:  # who deleted it before is told already
            marks[names.ENDED_FOR] = UNHEALTHY.lower()
        return self._writer.metadata(claim, annotations=marks) if marks else claim

    def _tell(self, claim: NodeClaim, repair: Repair | None) -> None:
        reason = EXPIRED if repair is None else UNHEALTHY
        grace = None if repair is None or self._legacy else repair.grace  # Karpenter 1.14 tells of the NodeClaim's
        if claim.metadata.deletion_timestamp is None:  # else it was counted
            metrics.claim_disrupted(claim, reason.lower(), self._cluster.pods_of(claim), grace=grace)
        if repair is not None:
            metrics.unhealthy_disrupted(claim, repair.condition, grace)
        self._say(claim.name, disrupting_node(reason), 0.0)
        what = f"{repair.condition}={repair.status}" if repair is not None else claim.spec.expire_after
        _log.info(DISRUPTING_NODE, nodeclaim=claim.name, reason=reason.lower(), because=what)

    def _say(self, name: str, message: EventMessage, ttl: float | None = None) -> None:
        publish(self._recorder, self._cluster, (name,), message, ttl=ttl)
