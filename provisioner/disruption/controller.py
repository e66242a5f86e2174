"""Asks every disruption method each second, begins what budgets allow, and keeps the conditions that people read. Source: core spec 6.

What a method proposes is pure (`disruption.methods`); the one ledger admits it (`budget_ledger`), and the queue of commands carries
it out (`commands`). No method waits for another, and none is left out because another found something. Consolidation takes longer,
so it has a thread of its own, and passes of its own (`consolidation`).
"""

import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from provisioner.apis import names
from provisioner.apis.conditions import CLAIM_CONDITIONS
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import is_true
from provisioner.apis.pods import Pod
from provisioner.buffers.virtual_pods import RoomKeeper
from provisioner.disruption import candidates
from provisioner.disruption.acceptance import HORIZON, THRESHOLD
from provisioner.disruption.allowance import soonest
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.disruption.budgets import AllowanceLedger
from provisioner.disruption.commands.queue import AGAIN_SECONDS, CommandQueue, consolidation_type
from provisioner.disruption.commands.validation import standing
from provisioner.disruption.consolidation_state import TIMEOUT_SECONDS, Looks, Passes, Stillness
from provisioner.disruption.methods import consolidation, rebuilding, repair, static_drift
from provisioner.disruption.methods import drift as drifted
from provisioner.disruption.methods import emptiness as empty
from provisioner.disruption.methods.emptiness import consolidatable_at, emptiness, is_empty
from provisioner.disruption.methods.moves import UNCONSOLIDATABLE
from provisioner.disruption.node_health import share_of
from provisioner.disruption.price_history import NO_PRICE_HISTORY
from provisioner.disruption.proposal import NODE_REPAIR_BLOCKED, Blocked, Proposal
from provisioner.disruption.protections import ELAPSED, DoNotDisruptNotice, protections
from provisioner.disruption.reboots.controller import Reboots
from provisioner.disruption.rebuilding_planner import Rebuilding
from provisioner.disruption.repair_policies import Illnesses
from provisioner.disruption.simulation.simulator import NOT_ALL_PODS_FIT
from provisioner.disruption.simulation.turns import InOrder
from provisioner.disruption.view import Acceptance, DisruptionSettings, DisruptionView, Improved, MethodAnswer, Spared
from provisioner.disruption.waste import potential_usd_per_hour
from provisioner.disruption.worlds import WORLD_SECONDS, DisruptionWorlds
from provisioner.kube.errors import ApiError, Conflict, NotFound
from provisioner.kube.events import Recorder
from provisioner.nodeclaims.writer import ClaimWriter, with_conditions
from provisioner.options import Options
from provisioner.provisioning.worlds import Worlds
from provisioner.runtime import metrics
from provisioner.runtime.object_reference import node_reference, pod_reference, publish, reference_of
from provisioner.runtime.poller import ApiPoller
from provisioner.state.cluster import Cluster
from provisioner.state.pause import DISRUPTION, NOTHING, Pause
from provisioner.state.snapshot import Snapshot
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.precedence import LongWork, Precedence
from provisioner.support.workers import DONE, KeyedQueue, ReconcileResult
from provisioner.values.message import ConditionMessage, EventMessage, Said

POLL_SECONDS = 1.0
#: A pass that took long is followed by a pause as long, at most so long; one that failed by all of it.
PAUSE_MOST_SECONDS: Final = 10.0
#: One answer of a method that the first loop asks; whom it did not come to is asked about first in the next pass.
ANSWER_SECONDS: Final = 5.0
POD_EVENT_DELAY = timedelta(seconds=5)
POD_EVENT_INTERVAL = timedelta(seconds=10)
#: Threads of the queue that writes conditions: one call that hangs holds up one of them.
TELLERS = 4
#: What pods say of their disruption is looked at so often.
PROTECTIONS_SECONDS: Final = 10.0
_log = logs.get_logger(__name__)
_DISRUPTION_METHOD_FAILED: Final = "A disruption method failed; continuing with the other methods"


def settings_of(options: Options) -> DisruptionSettings:
    """How nodes are disrupted, as the program was started."""
    return DisruptionSettings(
        spot_to_spot=options.feature_gates.spot_to_spot_consolidation,
        acceptance=Acceptance(options.consolidation),
        repair_breaker=share_of(options),
        drain_timeout=options.drain_timeout or None,
        first_for=frozenset(
            reason
            for reason, gate in (
                (names.REASON_DRIFTED, options.feature_gates.terminate_first_drift),
                (names.REASON_UNHEALTHY, options.feature_gates.terminate_first_repair),
            )
            if gate
        ),
    )


@dataclass(frozen=True, slots=True)
class Method:
    """One way to find nodes that should go.

    Attributes:
        name: as of `Proposal.method`.
        reason: Empty, Drifted, Underutilized or Unhealthy.
        ask: what it would do now; pure.
        buys: it may replace nodes, so it leaves pools alone whose replacements have just failed.
        concerns: whether it has anything to look at, among it nodes that are broken; where it has not, nothing is prepared for it.
    """

    name: str
    reason: str
    ask: Callable[[DisruptionView], MethodAnswer]
    buys: bool = True
    concerns: Callable[[Snapshot, Illnesses], bool] = lambda _, __: True


METHODS: Final = (
    Method(repair.METHOD, names.REASON_UNHEALTHY, repair.propose, concerns=lambda _, ill: bool(ill)),
    Method(empty.METHOD, names.REASON_EMPTY, emptiness, buys=False),
    Method(
        static_drift.METHOD,
        names.REASON_DRIFTED,
        static_drift.propose,
        concerns=lambda at, _: static_drift.concerns(at),
    ),
    Method(drifted.METHOD, names.REASON_DRIFTED, drifted.propose, concerns=lambda at, _: drifted.concerns(at)),
)
"""In the order in which they get what budgets allow."""
CONSOLIDATIONS: Final = (Method(consolidation.SINGLE, names.REASON_UNDERUTILIZED, consolidation.propose),)
"""Likewise; asked in a thread of their own."""
REBUILDING: Final = Method(rebuilding.METHOD, names.REASON_UNDERUTILIZED, rebuilding.propose)
"""Asked after them, when somebody may look for cheaper fleets."""


@dataclass(frozen=True, slots=True)
class _Telling:
    """What one claim's status should say."""

    holds: bool
    pod_event: datetime | None


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question to a method that needs no repetition.

    Attributes:
        looks: what the answer depends on.
        until: by the clock of the snapshots.
        expires: by the monotonic clock.
    """

    looks: Looks
    until: datetime | None
    expires: float

    def holds(self, looks: Looks, at: datetime, now: float) -> bool:
        """Whether the answer would be the same."""
        return now < self.expires and (self.until is None or at < self.until) and self.looks.same(looks)


@dataclass(frozen=True, slots=True)
class _Began:
    """What became of some proposals.

    Attributes:
        current: still have a place, and need not wait.
        begun: of these, what budgets allowed.
        waiting: candidates of those that wait until other nodes are drained.
    """

    current: Collection[Proposal]
    begun: Collection[Proposal]
    waiting: frozenset[str]

    def waits(self, one: Proposal) -> bool:
        """Whether a proposal waits until other nodes are drained."""
        return not self.waiting.isdisjoint(one.candidates)


def _move(proposal: Proposal) -> str:
    gone = ", ".join(proposal.candidates)
    types = ", ".join(one.planned_type for one in proposal.replacements)
    if proposal.then:
        return Said(f"replace {gone} with {types}, then delete {', '.join(proposal.then)}")
    return Said(f"replace {gone} with {types}") if types else Said(f"delete {gone}")


def _consolidation_rejected(proposal: Proposal, why: str) -> EventMessage:
    """Why a move does not come to be that was decided: budget, or churn (something changed meanwhile)."""
    return EventMessage(
        "Normal",
        "ConsolidationRejected",
        f"Consolidation rejected: {_move(proposal)}, reason: {why} (savings: ${proposal.saving_usd_per_hour:.2f} per "
        "hour)",
    )


def do_not_disrupt(protection: DoNotDisruptNotice) -> EventMessage:
    """To a pod: what its annotation does, or has done."""
    value, end = protection.value, protection.end
    if end is None:
        return EventMessage(
            "Warning",
            "InvalidDoNotDisruptAnnotation",
            f'The annotation "karpenter.sh/do-not-disrupt" is {value!r}, which is ignored; set it to "true", or to a '
            'duration above 0 such as "4h"',
        )
    return (
        EventMessage(
            "Normal",
            "DoNotDisruptGracePeriodElapsed",
            'The pod no longer blocks the disruption of its node: its annotation "karpenter.sh/do-not-disrupt" is '
            f"{value!r}, and it has run for longer",
        )
        if protection.reason == ELAPSED
        else EventMessage(
            "Normal",
            "DoNotDisruptUntil",
            f"Voluntary disruption of its node is blocked until {end:%Y-%m-%dT%H:%M:%SZ}, because its annotation "
            f'"karpenter.sh/do-not-disrupt" is {value!r}',
        )
    )


class DisruptionController:
    """Of its `pollers` one decides every second, one consolidates after a change; `tells` writes the Consolidatable condition and lastPodEventTime.

    The loops wait for no call. What fails is logged, counted and tried again with back-off, each node by itself.

    Args:
        worlds: what methods simulate in.
        stale: which watch is behind, in words; nothing is disrupted, nor healed, before all have caught up.
        methods: in the order in which they are asked.
        consolidations: likewise, in the other thread.
        pause: whose nodes are left alone for now.
        ill: which nodes are broken, so that a command replaces them.
        buffers: whose room is kept.
        rebuilding: has somebody look for cheaper fleets; nobody does without.
        reboots: reboots broken nodes; nobody does without.
        precedence: passes of consolidation wait for short work.
    """

    def __init__(
        self,
        cluster: Cluster,
        writer: ClaimWriter,
        recorder: Recorder,
        commands: CommandQueue,
        ledger: BudgetLedger,
        clock: Clock,
        *,
        stale: Callable[[], str],
        worlds: Worlds,
        buffers: RoomKeeper,
        methods: Sequence[Method] = METHODS,
        consolidations: Sequence[Method] = CONSOLIDATIONS,
        settings: DisruptionSettings = DisruptionSettings(),  # noqa: B008  (frozen)
        pause: Callable[[], Pause] = lambda: NOTHING,
        ill: Callable[[Snapshot], Illnesses] = lambda _: {},
        rebuilding: Rebuilding | None = None,
        reboots: Reboots | None = None,
        precedence: Precedence | None = None,
    ) -> None:
        self._precedence = precedence or Precedence(clock)
        self._rebuilding, self._reboots = rebuilding, reboots
        self._pause, self._buffers, self._ill = pause, buffers, ill
        self._cluster, self._writer, self._recorder = cluster, writer, recorder
        self._commands, self._ledger, self._clock = commands, ledger, clock
        self._stale, self._methods = stale, tuple(methods)
        self.worlds = DisruptionWorlds(cluster, worlds, clock)
        self._stop = threading.Event()
        self._empty_since: dict[str, float] = {}
        self._untold: dict[str, _Telling] = {}
        self._was_stale = ""
        self._was_paused = NOTHING
        self._consolidations, self._settings = tuple(consolidations), settings
        self._stillness, self._passes = Stillness(), Passes()
        self._latest: Snapshot | None = None  # of the last pass of the first loop
        self._types: tuple[float, tuple[object, ...]] | None = None
        self._prices, self._priced_at = NO_PRICE_HISTORY, -math.inf
        self._eligible: dict[str, dict[str, int]] = {}
        self._beginning = threading.Lock()
        self._asked: dict[str, _Asked] = {}  # by method: a question that proposed nothing
        self._unreached: dict[str, frozenset[str]] = {}
        self._protected: dict[str, str] = {}  # by UID of a pod: what was said of its do-not-disrupt
        self._protections_at: float | None = None
        self._answers: Mapping[str, tuple[str, MethodAnswer]] = {}  # by method, with its reason
        self.tells = KeyedQueue("disruption-status", self._tell, clock, workers=TELLERS)
        passes = {"disruption": self.run_once, "consolidation": self.consolidate_once}
        self.pollers = [
            ApiPoller(name, partial(self._paced, run), PAUSE_MOST_SECONDS, first=POLL_SECONDS)
            for name, run in passes.items()
        ]

    def close(self) -> None:
        """Have the passes that are under way end soon."""
        self._stop.set()
        if self._rebuilding is not None:
            self._rebuilding.stop()

    def _paced(self, run: Callable[[], object]) -> float:
        """One pass, and seconds until the next: as long as it took."""
        began = self._clock.monotonic()
        run()
        return min(PAUSE_MOST_SECONDS, max(POLL_SECONDS, self._clock.monotonic() - began))

    def view(self, snapshot: Snapshot, *, first: frozenset[str], expired: Callable[[], bool]) -> DisruptionView:
        """What methods would be asked about at this instant, for whoever explains; nothing comes of what they answer. Any thread may ask.

        Args:
            snapshot: the instant.
            first: NodeClaims that are judged before all others.
            expired: says that time is up.
        """
        now = self._clock.monotonic()
        return replace(
            self._view(snapshot, self._ledger.at(snapshot), self._buffers.pods(), buys=True),
            empty_for={key: timedelta(seconds=now - since) for key, since in self._empty_since.items()},
            ill=self._ill(snapshot),
            restless=self._stillness.restless(snapshot, now),
            first=first,
            expired=expired,
        )

    def _view(
        self, snapshot: Snapshot, ledger: AllowanceLedger, virtual: tuple[Pod, ...], *, buys: bool
    ) -> DisruptionView:
        """What every question to a method has in common; virtual pods take room where the method is asked about money."""
        rebooting = self._reboots.begun() if self._reboots is not None else frozenset[str]()
        return DisruptionView(
            snapshot=self.worlds.with_room_for(snapshot, virtual),
            prepared=self.worlds.at(snapshot) if buys else None,
            allowed=ledger.allowed,
            why_none=ledger.why_none,
            ceiling=ledger.ceiling(),
            under_way=rebooting.union(*(one.record.candidate_names for one in snapshot.commands)),
            spared=self._spared(snapshot, buys=buys),
            pause=self._pause(),
            loops=self._commands.loops.holds(),
            buffered=self._buffers.keeps,
            settings=self._settings,
            types_of=self.worlds.types_of,
            prices=self._prices,
        )

    def run_once(self) -> None:
        """One pass over one snapshot: decides, and hands over to the queues. Waits for no call."""
        if self._is_stale():
            return
        snapshot = self._latest = self._cluster.snapshot()
        self._note_pause(snapshot)
        self._note_prices(snapshot)
        self._commands.review(snapshot)
        self._untold = self._to_tell(snapshot)
        for name in self._untold:
            self.tells.offer(name)
        empty_for = self._note_empty(snapshot)
        self._stillness.note(snapshot, self._clock.monotonic())
        ledger = self._ledger.at(snapshot)
        for reason in names.BUDGET_REASONS:
            counts = {one.pool: (one.limit, one.consuming) for one in ledger.budgets(reason)}
            metrics.budgets(reason, counts)
        self._say_protections(snapshot)
        begun: list[Proposal] = []
        try:
            ill = self._ill(snapshot)
        except Exception:  # noqa: BLE001 - of what it is about, nothing is repaired; other methods go on
            _log.exception("The health of nodes could not be judged; none is repaired in this pass")
            ill = {}
        for method in self._methods:
            try:
                begun += self._run(method, snapshot, ledger, empty_for, begun, ill)
            except Exception:  # noqa: BLE001 - the thread outlives a pass that fails
                _log.exception(_DISRUPTION_METHOD_FAILED, method=method.name)

    def _run(
        self,
        method: Method,
        snapshot: Snapshot,
        ledger: AllowanceLedger,
        empty_for: dict[str, timedelta],
        before: Sequence[Proposal],
        ill: Illnesses,
    ) -> Collection[Proposal]:
        """Ask one method, and begin what it proposes; what has begun, besides what earlier methods did in the same pass (`before`)."""
        if not method.concerns(snapshot, ill):
            self._asked.pop(method.name, None)
            self._note_eligible(method, 0)
            return ()
        common, now = self._view(snapshot, ledger, (), buys=method.buys), self._clock.monotonic()
        view = replace(
            common,
            ceiling=ledger.ceiling(method.reason),
            empty_for=empty_for,
            ill=ill,
            under_way=common.under_way.union(name for one in before for name in one.candidates),
            begun=tuple(before),
            first=self._unreached.get(method.name, frozenset()),
            expired=lambda: self._stop.is_set() or self._clock.monotonic() - now >= ANSWER_SECONDS,
        )
        seen, around = view.snapshot, (snapshot.nodes, snapshot.pools, snapshot.daemons, snapshot.around)
        looks = Looks(
            (*around, snapshot.pod_budgets, snapshot.commands, view.prepared),
            (
                seen.pending,
                seen.waiting,
                seen.leaving,
                view.under_way,
                view.spared,
                view.pause,
                view.loops,
                ledger.budgets(method.reason),
                ill if method.reason == names.REASON_UNHEALTHY else None,
            ),
        )
        known = self._asked.get(method.name)
        if method.buys and known is not None and known.holds(looks, snapshot.at, now):
            return ()
        answer = self._ask(method, view)
        self._asked.pop(method.name, None)
        began = self._begin(answer.proposals, snapshot)
        if not answer.unreached and not answer.proposals:
            self._asked[method.name] = _Asked(looks, answer.recheck_at, now + WORLD_SECONDS)
        ledger.spend({name for one in began.begun for name in one.candidates})
        return began.begun

    def _ask(self, method: Method, view: DisruptionView) -> MethodAnswer:
        """One question to a method; what it says of nodes that stay is published."""
        with metrics.evaluating(method.reason.lower(), consolidation_type(method.name), self._clock.monotonic):
            answer = method.ask(view)
        answer = self.worlds.note_refusals(answer, view.snapshot)
        self._answers = {**self._answers, method.name: (method.reason, answer)}
        self._unreached[method.name] = answer.unreached
        self._note_eligible(method, answer.eligible)
        for blocked in answer.blocked:
            self._say_blocked(blocked, view.snapshot)
        return answer

    def answers(self) -> Mapping[str, MethodAnswer]:
        """What the last pass of each method made of the nodes of dynamic NodePools, by reason. Any thread may ask."""
        skipped = (static_drift.METHOD, rebuilding.METHOD)
        return {reason: answer for name, (reason, answer) in self._answers.items() if name not in skipped}

    def _note_eligible(self, method: Method, nodes: int) -> None:
        counts = self._eligible.setdefault(method.reason, {})
        counts[method.name] = nodes
        metrics.ELIGIBLE_NODES.labels(method.reason.lower()).set(sum(counts.values()))

    def _begin(self, proposals: Sequence[Proposal], then: Snapshot, *, aged: bool = False) -> _Began:
        """Begin what still has a place and need not wait, as far as budgets allow; where it is `aged`, what has not changed since.

        One thread at a time: two would plan pods of one spread that do not know of each other.
        """
        if not proposals:
            return _Began((), (), frozenset())
        with self._beginning, self._commands.book.together():
            unchanged = standing(proposals, then, self._cluster.snapshot()) if aged else proposals
            current, waiting = self.worlds.roomy(unchanged, then)
            for blocked in waiting:
                self._say_blocked(blocked, then)
            held = frozenset(one.key for one in waiting)  # who is tied to these was held, too
            rest = [one for one in proposals if held.isdisjoint(one.candidates)]
            order = InOrder(rest, then.around.namespaces, then.nodes, by_default=bool(self.worlds.source.default_keys))
            begun = self._ledger.admit(
                current,
                lambda one: one.candidates,
                lambda one: one.reason,
                lambda one: order.may_begin(one) and order.note(begun=self._started(one, then)),
                seized=lambda one: one.reboot,
            )
            return _Began(current, begun, held)

    def _started(self, proposal: Proposal, then: Snapshot) -> bool:
        """Begin one proposal; makes no call."""
        if proposal.reboot:
            return self._reboots is not None and self._reboots.begin(proposal)
        return self._commands.begin(proposal, then)

    def _spared(self, snapshot: Snapshot, *, buys: bool) -> dict[str, Spared]:
        """NodeClaims that are no candidates for now, and why: their pool backs off, they replace others, or were called off."""
        failing = self._commands.book.pools_backing_off() if buys else frozenset()
        spared: dict[str, Spared] = {}
        if failing:
            spared = {node.key.name: candidates.BACKING_OFF for node in snapshot.nodes if node.pool in failing}
        for command in snapshot.commands:
            spared |= dict.fromkeys(command.record.replacement_names, candidates.REPLACES)
        spared |= dict.fromkeys(self._commands.book.spared(), candidates.CALLED_OFF)
        return spared

    # ------------------------------------------------------------------ consolidation

    def consolidate_once(self) -> bool:
        """One pass of consolidation, where one is due; whether it was made. Cost: seconds to minutes on a large cluster."""
        started, snapshot = self._clock.monotonic(), self._latest
        if snapshot is None or self._passes.rests(started) or self._stale():
            return False
        looks = self._looks(snapshot, started)
        if not self._passes.is_due(looks, snapshot.at, started):
            return False
        settled, recheck, work = True, None, self._precedence.long_work()
        for method in self._consolidations:
            if self._stop.is_set():
                return True
            answer = self._asked_about(method, work)
            settled = settled and answer is not None and not answer.proposals and not answer.unreached
            recheck = soonest(recheck, answer.recheck_at if answer is not None else None)
        if self._rebuilding is not None and not self._stop.is_set():
            settled, recheck = self._rebuild(self._rebuilding, work, looks, snapshot.at, recheck, settled=settled)
        self._passes.ended(looks, recheck, self._clock.monotonic(), work.worked, settled=settled)
        return True

    def _rebuild(
        self, lender: Rebuilding, work: LongWork, looks: Looks, at: datetime, recheck: datetime | None, *, settled: bool
    ) -> tuple[bool, datetime | None]:
        """Go on with many nodes at once, where somebody looks for cheaper fleets now; whether nothing was found, and when to look again."""
        improved = lender.searcher(looks, at)
        if improved is not None:
            answer = self._asked_about(REBUILDING, work, improved)
            if answer is not None:
                recheck = soonest(recheck, answer.recheck_at)
            settled = settled and answer is not None and not answer.proposals
            lender.ended(
                looks,
                at,
                recheck,
                settled=settled,
                begun=answer is not None and bool(answer.proposals),
                called_off=self._commands.book.called_off(REBUILDING.name),
            )
        rest = lender.rest()
        return settled, soonest(recheck, at + timedelta(seconds=rest)) if rest else recheck

    def _asked_about(self, method: Method, work: LongWork, improved: Improved | None = None) -> MethodAnswer | None:
        """What a method of consolidation answers, begun as far as it still holds; None where it fails."""
        try:
            return self._consolidate(method, self._cluster.snapshot(), work, improved)
        except Exception:  # noqa: BLE001 - the thread outlives a pass that fails
            _log.exception(_DISRUPTION_METHOD_FAILED, method=method.name)
            return None

    def _looks(self, snapshot: Snapshot, now: float) -> Looks:
        """Everything that an answer of consolidation depends on, besides the time. Cost: O(nodes)."""
        if self._types is None or now - self._types[0] >= WORLD_SECONDS:
            self._types = now, tuple(self.worlds.types_of(view.pool) for view in snapshot.pools)
        budgets = self._ledger.at(snapshot).budgets(names.REASON_UNDERUTILIZED)
        return Looks.of(
            snapshot,
            (*self._types[1], self._buffers.pods()),
            (
                budgets,
                self._spared(snapshot, buys=True),
                self._pause(),
                self._commands.loops.holds(),
                frozenset(self.worlds.refusals.over(now)),
            ),
        )

    def _consolidate(
        self, method: Method, snapshot: Snapshot, work: LongWork, improved: Improved | None = None
    ) -> MethodAnswer:
        """Ask one method of consolidation, and begin what still holds of it when it has answered."""
        now, most = self._clock.monotonic(), work.worked + TIMEOUT_SECONDS
        view = replace(
            self._view(snapshot, self._ledger.at(snapshot), self._buffers.pods(), buys=method.buys),
            restless=self._stillness.restless(snapshot, now),
            first=self._unreached.get(method.name, frozenset()),
            expired=lambda: self._stop.is_set() or work.is_over(most),
            improved=improved,
        )
        answer = self._ask(method, view)
        if self._stop.is_set():
            return answer
        if answer.unreached:
            metrics.CONSOLIDATION_TIMEOUTS.labels(consolidation_type(method.name)).inc()
            _log.info(
                "A consolidation pass timed out; the remaining nodes are evaluated first in the next pass",
                method=method.name,
                nodes=len(answer.unreached),
            )
        for score in answer.rejected:
            metrics.consolidation_scored(score.pool, score.value, approved=False)
        if not self._stale():  # it took a while
            self._begin_moves(answer.proposals, snapshot)
        metrics.CONSOLIDATION_POTENTIAL.set(potential_usd_per_hour(view))
        return answer

    def _begin_moves(self, proposals: Sequence[Proposal], snapshot: Snapshot) -> _Began:
        """Begin what still holds, and say of each what becomes of it."""
        for one in proposals:
            publish(
                self._recorder,
                self._cluster,
                (*one.candidates, *one.then),
                EventMessage(
                    "Normal",
                    "ConsolidationCandidate",
                    f"Consolidation candidate: {_move(one)} (savings: ${one.saving_usd_per_hour:.2f} per hour)",
                ),
            )
            for score in one.scores:
                metrics.consolidation_scored(score.pool, score.value, approved=True)
        began = self._begin(proposals, snapshot, aged=True)
        for one in proposals:
            if began.waits(one):
                continue  # that was said
            if one not in began.current:
                publish(self._recorder, self._cluster, one.candidates, _consolidation_rejected(one, "churn"))
            elif one not in began.begun:
                publish(self._recorder, self._cluster, one.candidates, _consolidation_rejected(one, "budget"))
            else:
                self._say_approved(one, snapshot)
        return began

    def _say_approved(self, one: Proposal, snapshot: Snapshot) -> None:
        for score in one.scores:
            text = EventMessage(
                "Normal",
                "ConsolidationApproved",
                f"score {score.value:.2f} >= threshold {THRESHOLD:.2f} (k: {1 / THRESHOLD:g}, savings "
                f"{score.savings:.1%}, disruption {score.disruption:.1%})",
            )
            if len(one.candidates) == 1:
                publish(self._recorder, self._cluster, one.candidates, text)
            else:
                for view in snapshot.pools:
                    if view.pool.metadata.name == score.pool:
                        self._recorder.publish(reference_of(view.pool), *text)

    def _is_stale(self) -> bool:
        why = self._stale()
        if why and not self._was_stale:
            _log.warning("Suspended voluntary disruption until the caches are current", reason=why)
        elif self._was_stale and not why:
            _log.info("Resumed voluntary disruption because the caches are current")
        self._was_stale = why
        if why:
            self._empty_since.clear()  # nobody saw what happened meanwhile
            self._stillness.forget()
        return bool(why)

    def _note_pause(self, snapshot: Snapshot) -> None:
        pause = self._pause()
        if pause != self._was_paused:
            _log.info(
                "Disruption or launches were paused or resumed",
                all=[str(one) for one in sorted(pause.everywhere.activities)],
                nodepools={name: [*map(str, sorted(one.activities))] for name, one in sorted(pause.pools.items())},
                unknown=sorted({word for one in (pause.everywhere, *pause.pools.values()) for word in one.unknown}),
                settings_unread=pause.unread,
            )
        self._was_paused = pause
        if pause == NOTHING or pause.unread:
            return
        for view in snapshot.pools:
            name = view.pool.name
            if why := pause.summary(name):
                disrupts = not any(pause.why(name, one) for one in DISRUPTION)
                reason = "LaunchesPaused" if disrupts else "DisruptionBlocked"
                self._recorder.publish(reference_of(view.pool), "Normal", reason, why)

    def _note_prices(self, snapshot: Snapshot) -> None:
        """What offerings cost now; the history is a value, so the other thread reads it as it is."""
        now = self._clock.monotonic()
        if now - self._priced_at < WORLD_SECONDS:
            return
        self._priced_at = now
        catalogues = {view.pool.metadata.name: self.worlds.types_of(view.pool) for view in snapshot.pools}
        self._prices = self._prices.noted(catalogues, snapshot.at, HORIZON)

    def _note_empty(self, snapshot: Snapshot) -> dict[str, timedelta]:
        """For how long each node is seen empty without a break; memory of this process only."""
        now = self._clock.monotonic()
        seen = {
            node.key.name
            for node in snapshot.nodes
            if node.claim is not None and is_empty(node.pods) and not node.nominated
        }
        seen -= self._commands.book.spared()
        self._empty_since = {key: self._empty_since.get(key, now) for key in seen}
        return {key: timedelta(seconds=now - since) for key, since in self._empty_since.items()}

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

    def _tell(self, name: str) -> ReconcileResult:
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
            return ReconcileResult(requeue_after=AGAIN_SECONDS)
        except ApiError as error:
            _log.warning("Failed to update the status of a NodeClaim; retrying", nodeclaim=name, error=str(error))
            return ReconcileResult(failed=True)
        return DONE

    def _consolidatable(self, claim: NodeClaim, *, holds: bool) -> Any:
        conditions = claim.status.conditions
        if holds == is_true(conditions, names.CONSOLIDATABLE):
            return conditions
        if not holds:
            return CLAIM_CONDITIONS.clear(conditions, names.CONSOLIDATABLE)
        return with_conditions(
            claim, ConditionMessage(names.CONSOLIDATABLE, names.TRUE, names.CONSOLIDATABLE), now=self._clock.now()
        )

    def _say_protections(self, snapshot: Snapshot) -> None:
        """Say of each pod once what its do-not-disrupt means, and when that has ended. Looks every ten seconds."""
        now = self._clock.monotonic()
        if self._protections_at is not None and now - self._protections_at < PROTECTIONS_SECONDS:
            return
        self._protections_at = now
        told = {}
        for one in protections((pod for node in snapshot.nodes for pod in node.pods), snapshot.at):
            message = do_not_disrupt(one)
            told[one.pod.uid] = message.text
            if self._protected.get(one.pod.uid) != message.text:
                self._recorder.publish(pod_reference(one.pod), *message)
        self._protected = told

    def _say_blocked(self, blocked: Blocked, snapshot: Snapshot) -> None:
        is_repair = blocked.event == NODE_REPAIR_BLOCKED
        message = EventMessage("Normal", blocked.event, str(blocked))
        if is_repair:
            message = EventMessage("Warning", NODE_REPAIR_BLOCKED, str(blocked))
        if not blocked.key:
            found = next((view.pool for view in snapshot.pools if view.pool.metadata.name == blocked.pool), None)
            if found is not None:
                self._recorder.publish(reference_of(found), *message, ttl=None if is_repair else 60.0)
            return
        claim = self._cluster.claim(blocked.key)
        node: Node | None = self._cluster.node_of(claim) if claim is not None else None
        if claim is not None and node is not None:
            for reference in (reference_of(claim), node_reference(node)):
                about: tuple[str, ...] = (reference.kind, reference.uid)
                if message.text.startswith(NOT_ALL_PODS_FIT):
                    # it counts nodes, of which some come or go every second
                    about += (NOT_ALL_PODS_FIT,)
                elif blocked.event != UNCONSOLIDATABLE:
                    about += (message.text,)
                self._recorder.publish(reference, *message, about)
