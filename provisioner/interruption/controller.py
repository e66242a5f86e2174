"""Carries out what `provisioner.interruption.response` decides about instances that their cloud takes back.

An interruption is written on the claim before anything else (`Interruptions.mark`), so whoever leads next goes on with
it. Closing an instance is the disrupted taint: from then on the state counts its pods as leaving, and the provisioner plans
them like pods that wait. Evictions are the ordinary end of a claim.
"""

import threading
from collections.abc import Callable

from provisioner.apis import names
from provisioner.apis.interruption import Interruption, interruption_of, merged
from provisioner.apis.karpenter import NodeClaim
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.disruption.proposal import InterruptionDecision
from provisioner.interruption.response import decide_interruptions
from provisioner.kube.errors import ApiError, NotFound
from provisioner.kube.events import Recorder
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.runtime import metrics
from provisioner.runtime.live_reads import INTERRUPTED_SECONDS, Postponed, never
from provisioner.runtime.object_reference import publish
from provisioner.runtime.poller import ApiPoller
from provisioner.state.cluster import Cluster
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.workers import StillRunningError, WorkerPool, run_parallel
from provisioner.termination.disrupted_taint import DisruptedTaints
from provisioner.termination.eviction_queue import deadline_of
from provisioner.values.message import EventMessage

POLL_SECONDS = 1.0
#: While an instance is being closed its pods are planned as soon as the watch shows the taint.
BUSY_SECONDS = 0.1
#: A call that hangs holds up the other nodes no longer than this; it goes on by itself.
PATIENCE_SECONDS = 5.0
#: Pods that found no place are planned again after so long.
PLAN_AGAIN_SECONDS = 10.0
_log = logs.get_logger(__name__)


class Interruptions:
    """Marks instances and does, every second in the thread of `poller`, what is due about the marked ones.

    Args:
        workers: for this alone, so that nothing else holds it up.
        ledger: of the budgets, which an interruption that has time keeps like everybody else.
        plan: asks the provisioner for a run; its argument names what for.
        patience: seconds that a pass waits for its calls.
    """

    def __init__(
        self,
        cluster: Cluster,
        taints: DisruptedTaints,
        writer: ClaimWriter,
        recorder: Recorder,
        workers: WorkerPool,
        clock: Clock,
        *,
        ledger: BudgetLedger,
        plan: Callable[[str], None],
        patience: float = PATIENCE_SECONDS,
        postponed: Postponed = never,
    ) -> None:
        self._postponed = postponed
        self._patience = patience
        self._cluster, self._taints, self._writer, self._recorder = cluster, taints, writer, recorder
        self._workers, self._clock = workers, clock
        self._plan, self._ledger = plan, ledger
        self._planned_at: dict[str, float] = {}
        self._busy: set[str] = set()  # keys of steps that have no answer yet
        self._locks = tuple(threading.Lock() for _ in range(16))
        self.poller = ApiPoller("interruption", self._pass, POLL_SECONDS)

    def mark(self, claim: NodeClaim, interruption: Interruption, *, moved: bool = False) -> bool:
        """Write on a claim what will become of its instance, together with what is known already.

        One that is being deleted is told only when its instance ends: its drain may take longer, or be paused.

        Args:
            claim: whose instance it is.
            interruption: new, or known already.
            moved: whether planned work that is known, and has not begun, is no longer as early as it was.

        Returns:
            Whether anything is new.

        Raises:
            ApiError: it is not written.
        """
        # two notices of one instance are merged, not overwritten
        with self._locks[hash(claim.name) % len(self._locks)]:
            claim = self._cluster.claim(claim.name) or claim
            known = interruption_of(claim.metadata.annotations)
            wanted = interruption if moved and self._earlier(known, interruption) else merged(known, interruption)
            if wanted == known or (claim.metadata.deletion_timestamp is not None and interruption.ends is None):
                return False
            try:
                self._writer.metadata(claim, annotations={names.INTERRUPTION_ANNOTATION: str(wanted)})
            except NotFound:
                return False
        _log.info(
            "Instance is being interrupted",
            nodeclaim=claim.name,
            reason=wanted.reason,
            evicts=wanted.evicts,
            ends=wanted.ends,
        )
        self.poller.wake()
        return True

    def _earlier(self, known: Interruption | None, than: Interruption) -> bool:
        """Whether planned work was to begin earlier, and has not begun; nothing else waits for budgets."""
        if known is None or not known.budgeted or known.begins is None or than.begins is None:
            return False
        return self._clock.now() < known.begins < than.begins

    def call_off(self, claim: NodeClaim) -> bool:
        """Forget an interruption that has not begun; whether there was one.

        Raises:
            ApiError: it is not written.
        """
        known = interruption_of(claim.metadata.annotations)
        if known is None or known.has_begun(self._clock.now()):
            return False
        self._writer.metadata(claim, annotations={names.INTERRUPTION_ANNOTATION: None})
        _log.info("Interruption was canceled", nodeclaim=claim.name, reason=known.reason)
        return True

    def _pass(self) -> float:
        return BUSY_SECONDS if self.run_once().close else POLL_SECONDS

    def run_once(self) -> InterruptionDecision:
        """One pass over one snapshot."""
        every = [
            (claim, mark)
            for claim in self._cluster.claims()
            if (mark := interruption_of(claim.metadata.annotations)) is not None
        ]
        marks = {claim.name: mark for claim, mark in every}
        staying = {claim.name: mark for claim, mark in every if claim.metadata.deletion_timestamp is None}
        now = self._clock.now()
        late = [
            claim.name
            for claim, mark in every
            if claim.name not in staying and mark.has_begun(now) and _ends_before_deadline(mark, claim)
        ]
        decision = InterruptionDecision()
        if staying:
            snapshot = self._cluster.snapshot()
            decision = decide_interruptions(snapshot, staying, self._ledger.at(snapshot))
        steps: list[tuple[Callable[[str, Interruption], None], str]] = [
            *((self._evict, key) for key in decision.evict),
            *((self._close, key) for key in decision.close),
            *((self._hasten, key) for key in late),
        ]
        steps = [step for step in steps if step[1] not in self._busy]

        def take(step: tuple[Callable[[str, Interruption], None], str]) -> None:
            act, key = step
            self._busy.add(key)
            try:
                act(key, marks[key])
            finally:
                self._busy.discard(key)

        for outcome in run_parallel(self._workers, take, steps, patience=self._patience):
            if isinstance(outcome.error, ApiError | StillRunningError):
                _log.warning(
                    "Failed to handle an interrupted NodeClaim; retrying",
                    nodeclaim=outcome.item[1],
                    error=str(outcome.error),
                )
            elif outcome.error is not None:
                raise outcome.error
        self._ask_for_plans(decision)
        for blocked in decision.blocked:
            self._say(blocked.key, EventMessage("Normal", "DisruptionBlocked", str(blocked)))
        return decision

    def _ask_for_plans(self, decision: InterruptionDecision) -> None:
        now = self._clock.monotonic()
        self._planned_at = {key: at for key, at in self._planned_at.items() if key in decision.plan}
        for key in decision.plan:
            if now - self._planned_at.get(key, -PLAN_AGAIN_SECONDS) >= PLAN_AGAIN_SECONDS:
                self._planned_at[key] = now
                self._plan(f"interrupted/{key}")

    def _close(self, key: str, mark: Interruption) -> None:
        claim = self._cluster.claim(key)
        node = self._cluster.node_of(claim) if claim is not None else None
        if node is None or self._postponed(claim, node, patience=INTERRUPTED_SECONDS):
            return
        asks = mark.budgeted and (mark.evicts is None or self._clock.now() < mark.evicts)
        if asks and not self._ledger.take(key, names.REASON_SCHEDULED_CHANGE):
            return  # somebody else was faster
        try:
            self._taints.close(node)  # told to the state at once, where it counts from then on
        except NotFound:
            return
        finally:
            self._ledger.release(key)
        _log.info("Tainted an interrupted Node", nodeclaim=key, node=node.metadata.name, reason=mark.reason)

    def _evict(self, key: str, mark: Interruption) -> None:
        claim = self._cluster.claim(key)
        if claim is None or claim.metadata.deletion_timestamp is not None:
            return
        if self._postponed(claim, self._cluster.node_of(claim), patience=INTERRUPTED_SECONDS):
            return
        claim = self._with_end(claim, mark)
        self._writer.delete(claim)
        metrics.claim_disrupted(claim, mark.reason, self._cluster.pods_of(claim))
        self._say(key, EventMessage("Warning", "TerminatingOnInterruption", "Interruption triggered termination"))
        _log.info("Terminating an interrupted NodeClaim", nodeclaim=key, reason=mark.reason)

    def _hasten(self, key: str, mark: Interruption) -> None:
        """Who deletes a claim does not know when its instance ends: until then its pods must be gone, whatever holds the drain."""
        claim = self._cluster.claim(key)
        if claim is not None:
            self._with_end(claim, mark)

    def _with_end(self, claim: NodeClaim, mark: Interruption) -> NodeClaim:
        if mark.ends is None or not _ends_before_deadline(mark, claim):
            return claim
        text = mark.ends.strftime("%Y-%m-%dT%H:%M:%SZ")
        return self._writer.metadata(claim, annotations={names.TERMINATION_TIMESTAMP: text})

    def _say(self, key: str, message: EventMessage) -> None:
        publish(self._recorder, self._cluster, (key,), message)


def _ends_before_deadline(mark: Interruption, claim: NodeClaim) -> bool:
    known = deadline_of(claim)
    return mark.ends is not None and (known is None or mark.ends < known)
