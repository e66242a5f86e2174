"""Deletes nodes that have reached their `expireAfter`, and nodes that their provider's repair policies call unhealthy. Source: core spec 5, 6.15.

Both are Karpenter's forceful disruptions: they ask no budget, but every budget counts them from the moment at which they begin. The drain that
follows a deletion keeps PodDisruptionBudgets, except on a broken node, whose terminationGracePeriod is over at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeVar

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.interruption import has_begun
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.types import RepairPolicy
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.disruption.costs import time_left
from provisioner.disruption.forceful.expiration import decide_expirations
from provisioner.disruption.forceful.repair import Repair, RepairDecision, Sighted, decide_repairs
from provisioner.disruption.proposal import DISRUPTING_NODE, disrupting_node
from provisioner.disruption.verdicts import EXPIRED, UNHEALTHY
from provisioner.kube.errors import ApiError, NotFound
from provisioner.kube.events import Recorder
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.options import Options
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
from provisioner.termination.eviction_queue import deadline_of
from provisioner.values.message import EventMessage

POLL_SECONDS: Final = 2.0
#: Threads that delete: one call that hangs holds up one of them.
WORKERS: Final = 4
STALE_SECONDS: Final = 1.0
_log = logs.get_logger(__name__)
_Decision = TypeVar("_Decision")


def repair_policies_of(options: Options, policies: Sequence[RepairPolicy]) -> tuple[RepairPolicy, ...]:
    """Which conditions mean a broken node, and for how long they must last, as the program was started."""
    if not options.feature_gates.node_repair:
        return ()
    if not options.repair_timeout:
        return tuple(policies)
    return tuple(replace(one, toleration=options.repair_timeout) for one in policies)


class ForcefulDisruption:
    """A `poller` that decides every two seconds, and a `queue` that deletes; one key is a NodeClaim's name.

    Args:
        ledger: of the budgets; it is informed, not asked.
        policies: which conditions mean a broken node; none where the gate NodeRepair is off.
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
        policies: Sequence[RepairPolicy],
        stale: Callable[[], str],
        pause: Callable[[], Pause] = lambda: NOTHING,
        postponed: Postponed = never,
    ) -> None:
        self._pause, self._postponed = pause, postponed
        self._cluster, self._writer, self._recorder = cluster, writer, recorder
        self._ledger, self._clock, self._policies, self._stale = ledger, clock, tuple(policies), stale
        self._repairs: dict[str, Repair] = {}
        self._conditions: dict[tuple[str, str, str, datetime | None], datetime] = {}  # when each was first seen
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
        if not self._policies:
            return RepairDecision()
        found = {node.name: self._cluster.node(node.name) for node in snapshot.nodes if node.name}
        nodes = {name: node for name, node in found.items() if node is not None}
        return decide_repairs(snapshot, self._policies, self._as_first_seen(nodes))

    def _as_first_seen(self, nodes: Mapping[str, Node]) -> dict[str, tuple[Sighted, ...]]:
        """Conditions of Nodes that a policy names, and when this process first saw each as it is: kubelets have clocks of their own."""
        kinds, now = {one.condition_type for one in self._policies}, self._clock.now()
        before, seen = self._conditions, dict[tuple[str, str, str, datetime | None], datetime]()
        found: dict[str, tuple[Sighted, ...]] = {}
        for name, node in nodes.items():
            mine = [one for one in node.status.conditions if one.type in kinds]
            keys = [(node.metadata.uid, one.type, one.status, one.last_transition_time) for one in mine]
            seen.update((key, before.get(key, now)) for key in keys)
            found[name] = tuple((one, seen[key]) for one, key in zip(mine, keys, strict=True))
        self._conditions = seen  # at once: other threads may ask meanwhile
        return found

    def reconcile(self, name: str) -> ReconcileResult:
        """Delete one NodeClaim, where it still is to be deleted."""
        if self._stale():
            return ReconcileResult(requeue_after=STALE_SECONDS)
        claim, repair = self._cluster.claim(name), self._repairs.get(name)
        if claim is None or not claim.metadata.uid:
            return DONE
        if claim.metadata.deletion_timestamp is not None and (repair is None or self._has_ended(claim)):
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
                self._writer.delete(self._ended_now(claim))
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
            and not has_begun(claim.metadata.annotations, self._clock.now())
        )

    def _ended_now(self, claim: NodeClaim) -> NodeClaim:
        """Its drain is over at once, unless it is paused: pods of a broken node do not run, and what holds them would hold them for ever."""
        if self._has_ended(claim):
            return claim
        marks = {names.TERMINATION_TIMESTAMP: self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")}
        if claim.metadata.deletion_timestamp is None:  # who deleted it before is told already
            marks[names.ENDED_FOR] = UNHEALTHY.lower()
        return self._writer.metadata(claim, annotations=marks)

    def _has_ended(self, claim: NodeClaim) -> bool:
        known = deadline_of(claim)
        return known is not None and known <= self._clock.now()

    def _tell(self, claim: NodeClaim, repair: Repair | None) -> None:
        reason = EXPIRED if repair is None else UNHEALTHY
        if claim.metadata.deletion_timestamp is None:  # else it was counted
            metrics.claim_disrupted(claim, reason.lower(), self._cluster.pods_of(claim))
        if repair is not None:
            metrics.unhealthy_disrupted(claim, repair.condition)
        self._say(claim.name, disrupting_node(reason), 0.0)
        what = f"{repair.condition}={repair.status}" if repair is not None else claim.spec.expire_after
        _log.info(DISRUPTING_NODE, nodeclaim=claim.name, reason=reason.lower(), because=what)

    def _say(self, name: str, message: EventMessage, ttl: float | None = None) -> None:
        publish(self._recorder, self._cluster, (name,), message, ttl=ttl)
