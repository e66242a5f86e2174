"""Keeps as many nodes of each static NodePool as its spec.replicas says. Source: core spec 5.1.

Before anything is created or deleted, the pool's NodeClaims are listed at the API server: a watch that is behind decides nothing.
"""

import random
import threading
from collections.abc import Callable

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.meta import is_true
from provisioner.cloudprovider.types import manages
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError
from provisioner.kube.events import Recorder
from provisioner.nodeclaims.creator import REFUSALS, ClaimCreator, NoFreeNameError, claim_refused
from provisioner.nodeclaims.growth_ledger import pool_held_back
from provisioner.nodeclaims.growth_limits import HeldBackError
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.nodeclaims.writers import Writers
from provisioner.runtime import metrics
from provisioner.runtime.base import Base
from provisioner.runtime.changes import NodeClaimChanged, NodePoolChanged
from provisioner.runtime.controller import Controller, Keys
from provisioner.runtime.live_reads import CHOSEN_SECONDS, Postponed, never
from provisioner.runtime.object_reference import reference_of
from provisioner.scheduling.node_claims import NewClaim, static_claim
from provisioner.state.cluster import Cluster
from provisioner.state.pause import NOTHING, Activity, Pause
from provisioner.static.scaling import StaticDecision, decide
from provisioner.support import logs
from provisioner.support.backoff import doubling
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, ReconcileResult, WorkerPool, run_parallel
from provisioner.termination.ends import Ends
from provisioner.values.message import EventMessage
from provisioner.values.requirement import RequirementError

#: NodeClaims that one pass creates or deletes at most; the next pass goes on.
MOST_A_PASS = 50
CREATE_PATIENCE_SECONDS = 30.0
RECHECK_SECONDS = 60.0
LIMITED_RECHECK_SECONDS = 30.0
REFUSED_SECONDS = 10.0
TELL_SECONDS = 600.0
STALE_SECONDS = 1.0
#: While nodes are too many and their NodePool is paused.
PAUSED_SECONDS = 0.5
BACKOFF_BASE_SECONDS, BACKOFF_CAP_SECONDS = 1.0, 300.0
"""Between creations of a pool whose NodeClaims end before their nodes register."""
SCALED_DOWN = "scaled-down"
_log = logs.get_logger(__name__)


class _Failures:
    """By pool: until when nothing is created, since NodeClaims of it came to nothing. Thread-safe."""

    def __init__(self, clock: Clock, chance: random.Random) -> None:
        self._clock, self._chance, self._lock = clock, chance, threading.Lock()
        self._known: dict[str, tuple[int, float]] = {}

    def failed(self, pool: str) -> None:
        """A NodeClaim ended before its node registered; those that fail during one pause count as one."""
        now = self._clock.monotonic()
        with self._lock:
            count, until = self._known.get(pool, (0, now))
            if now >= until:
                pause = doubling(count + 1, base=BACKOFF_BASE_SECONDS, cap=BACKOFF_CAP_SECONDS, chance=self._chance)
                self._known[pool] = (count + 1, now + pause)

    def forget(self, pool: str) -> None:
        """A node registered, or the pool is another one now."""
        with self._lock:
            self._known.pop(pool, None)

    def seconds(self, pool: str) -> float:
        """How long nothing is to be created yet; 0 as a rule."""
        with self._lock:
            known = self._known.get(pool)
        return max(0.0, known[1] - self._clock.monotonic()) if known is not None else 0.0


class StaticCapacity:
    """One key is a NodePool's name; pools that are not static are left alone.

    Args:
        workers: the threads that creations run in.
        enabled: the feature gate StaticCapacity; while it is off, static pools are only told so.
        pool: the NodePool of that name.
        manages: whether a NodePool is this provider's.
        stale: which watch is behind, in words; nothing is done before all have caught up.
        ledger: of the budgets; it is told of deletions, not asked.
        pause: whose nodes are left alone for now; missing ones are created all the same.
    """

    def __init__(
        self,
        cluster: Cluster,
        client: Client,
        creator: ClaimCreator,
        writer: ClaimWriter,
        recorder: Recorder,
        workers: WorkerPool,
        clock: Clock,
        *,
        enabled: bool,
        pool: Callable[[str], NodePool | None],
        manages: Callable[[NodePool], bool],
        stale: Callable[[], str],
        chance: random.Random,
        ledger: BudgetLedger,
        pause: Callable[[], Pause] = lambda: NOTHING,
        postponed: Postponed = never,
    ) -> None:
        self._ledger, self._pause, self._postponed = ledger, pause, postponed
        self._cluster, self._client, self._creator, self._writer = cluster, client, creator, writer
        self._recorder, self._workers = recorder, workers
        self._enabled, self._pool, self._manages, self._stale = enabled, pool, manages, stale
        self._failures = _Failures(clock, chance)
        self._given_up: set[str] = set()  # NodeClaims that were deleted here and are not gone yet

    def pool_heard(self, change: NodePoolChanged) -> Keys:
        """The pool, where it is static and another one than before."""
        old, new, one = change.old, change.new, change.latest
        if not one.is_static:
            return ()
        if old is None or new is None or old.metadata.generation != new.metadata.generation:
            self._failures.forget(one.name)
        if new is not None and (old is None or old.spec != new.spec or old.status.conditions != new.status.conditions):
            return (one.name,)
        return ()

    def claim_heard(self, change: NodeClaimChanged) -> Keys:
        """The static pool of a claim that counts in another way than before."""
        old, new, one = change.old, change.new, change.latest
        pool = self._pool(one.pool)
        if pool is None or not pool.is_static:
            return ()
        if new is None and one.name in self._given_up:
            self._given_up.discard(one.name)
        elif not is_true(one.status.conditions, names.REGISTERED):
            if new is None:
                self._failures.failed(one.pool)
        elif old is not None and not is_true(old.status.conditions, names.REGISTERED):
            self._failures.forget(one.pool)
        return (one.pool,) if old is None or new is None or _counted_by(old) != _counted_by(new) else ()

    # ------------------------------------------------------------------ one pass

    def reconcile(self, name: str) -> ReconcileResult:
        """Bring one pool nearer to its replicas."""
        pool = self._pool(name)
        if pool is None or not pool.is_static or not self._manages(pool):
            return DONE
        if not self._enabled:
            message = EventMessage(
                "Warning",
                "StaticCapacityDisabled",
                "spec.replicas has no effect because the feature gate StaticCapacity is disabled; start the "
                "provisioner with --feature-gates=StaticCapacity=true",
            )
            self._recorder.publish(reference_of(pool), *message, ttl=TELL_SECONDS * 0.9)
            return ReconcileResult(requeue_after=TELL_SECONDS)
        if self._stale():
            return ReconcileResult(requeue_after=STALE_SECONDS)
        decision = decide(self._cluster.snapshot(), pool)
        try:
            if decision.create or decision.delete:
                if not self._caught_up(pool):
                    return ReconcileResult(requeue_after=STALE_SECONDS)
                decision = decide(self._cluster.snapshot(), pool)
            if decision.delete:
                return self._delete(pool, decision)
            return self._create(pool, decision)
        except ApiError as error:
            _log.warning(
                "Failed to bring a static NodePool to spec.replicas; retrying", nodepool=name, error=str(error)
            )
            return ReconcileResult(failed=True)

    def _caught_up(self, pool: NodePool) -> bool:
        """Whether the state knows the NodeClaims of the pool that the API server has, and no others; it is told what is newer there."""
        listed = self._client.list(resources.NODECLAIMS, label_selector=f"{names.NODEPOOL_LABEL}={pool.name}")
        for claim in listed:
            self._writer.take(self._cluster.claim_written(claim))
        there = {claim.name for claim in listed}
        mine = [claim for claim in self._cluster.claims() if claim.pool == pool.name]
        return there <= {claim.name for claim in mine} and {claim.name for claim in mine if claim.metadata.uid} <= there

    def _delete(self, pool: NodePool, decision: StaticDecision) -> ReconcileResult:
        if paused := self._pause().why(pool.name, Activity.CONSOLIDATION):
            self._recorder.publish(reference_of(pool), "Normal", "DisruptionBlocked", paused)
            return ReconcileResult(requeue_after=PAUSED_SECONDS)
        postponed = False
        for name in decision.delete[:MOST_A_PASS]:
            claim = self._cluster.claim(name)
            if claim is None or not claim.metadata.uid or claim.metadata.deletion_timestamp is not None:
                continue
            if self._cluster.command_of(name) is not None:
                continue  # begun a moment ago; the next pass counts it
            if self._postponed(claim, self._cluster.node_of(claim), patience=CHOSEN_SECONDS):
                postponed = True
                continue
            self._given_up.add(name)
            self._ledger.seize(name)
            try:
                ended = self._writer.end(claim, SCALED_DOWN)  # told to the state at once, where it counts from then on
            finally:
                self._ledger.release(name)
            if not ended:
                continue
            metrics.claim_disrupted(claim, "scaled_down")
            _log.info(
                "Deleting a NodeClaim of a static NodePool",
                nodeclaim=name,
                nodepool=pool.name,
                replicas=pool.spec.replicas,
            )
            self._recorder.publish(
                reference_of(claim),
                "Normal",
                "DisruptionTerminating",
                f'Terminating the node because NodePool "{pool.name}" has more nodes than spec.replicas '
                f"({pool.spec.replicas})",
            )
        more = postponed or len(decision.delete) > MOST_A_PASS
        return ReconcileResult(requeue_after=STALE_SECONDS if more else RECHECK_SECONDS)

    def _create(self, pool: NodePool, decision: StaticDecision) -> ReconcileResult:
        if decision.refused:
            message = EventMessage(
                "Warning",
                "NodeLimitReached",
                f"{decision.refused} of {pool.spec.replicas} nodes (spec.replicas) are missing because limits.nodes "
                f"is {decision.limit}; raise the limit or lower spec.replicas",
            )
            self._recorder.publish(reference_of(pool), *message, ttl=300.0)
        idle = ReconcileResult(requeue_after=LIMITED_RECHECK_SECONDS if decision.refused else RECHECK_SECONDS)
        if not decision.create or not is_true(pool.status.conditions, names.READY):
            return idle
        if wait := self._failures.seconds(pool.name):
            return ReconcileResult(requeue_after=wait)
        announced: list[NewClaim | None] = []
        held: HeldBackError | None = None
        try:
            for _ in range(min(decision.create, MOST_A_PASS)):
                announced.append(self._announce(pool))  # noqa: PERF401  (those before the error stay)
        except HeldBackError as error:
            held = error
        except (NoFreeNameError, RequirementError) as error:
            _log.error(
                "Failed to make a NodeClaim of a static NodePool; retrying", nodepool=pool.name, error=str(error)
            )
            return ReconcileResult(requeue_after=LIMITED_RECHECK_SECONDS)
        asked = run_parallel(
            self._workers,
            self._creator.create,
            [one for one in announced if one is not None],
            patience=CREATE_PATIENCE_SECONDS,
        )
        errors = [one.error for one in asked if one.error is not None]
        _log.info(
            "Created NodeClaims of a static NodePool",
            nodepool=pool.name,
            replicas=pool.spec.replicas,
            created=len(asked) - len(errors),
            failed=len(errors),
        )
        refused = next((one for one in errors if isinstance(one, REFUSALS)), None)
        if refused is not None:
            message = claim_refused(refused.message)
            self._recorder.publish(reference_of(pool), *message, (pool.name,), ttl=60.0)
            return ReconcileResult(requeue_after=REFUSED_SECONDS)
        if errors:
            return ReconcileResult(failed=True)
        if held is not None:
            text = pool_held_back(decision.create - len(announced), str(held))
            dedupe = (pool.metadata.uid, held.held.limit)
            self._recorder.publish(reference_of(pool), *text, dedupe, ttl=60.0)
            seconds = held.held.seconds
            return ReconcileResult(
                requeue_after=LIMITED_RECHECK_SECONDS if seconds is None else max(STALE_SECONDS, seconds)
            )
        return ReconcileResult(requeue_after=0.0) if decision.create > MOST_A_PASS else idle

    def _announce(self, pool: NodePool) -> NewClaim | None:
        return self._creator.announce(pool.name, lambda name: static_claim(pool, name))


def _counted_by(claim: NodeClaim) -> tuple[object, ...]:
    """What of a claim decides how it counts."""
    return claim.metadata.deletion_timestamp, claim.metadata.annotations, claim.metadata.uid


def controllers(
    base: Base, writing: Writers, ending: Ends, creator: ClaimCreator, ledger: BudgetLedger
) -> list[Controller]:
    """Who scales static NodePools."""
    pools = base.caches.pools.store
    static = StaticCapacity(
        base.cluster,
        base.client,
        creator,
        writing.claims,
        base.recorder,
        writing.creates,
        base.clock,
        enabled=base.options.feature_gates.static_capacity,
        pool=pools.get,
        manages=lambda pool: manages(base.provider, pool.node_class_ref),
        stale=base.caches.static_pools_are_stale,
        chance=random.Random(),
        ledger=ledger,
        pause=base.caches.pause,
        postponed=ending.live.postponed,
    )
    return [
        Controller(
            name="static-capacity",
            reconcile=static.reconcile,
            watches={NodePoolChanged: static.pool_heard, NodeClaimChanged: static.claim_heard},
            initial=lambda: [pool.name for pool in pools.list() if pool.is_static],
        )
    ]
