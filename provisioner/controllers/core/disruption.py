"""Asks every disruption method each second, begins what budgets allow, and keeps the conditions that people read. Source: core spec 6.

What a method proposes is pure (`disruption.methods`); the one ledger admits it (`budget_ledger`), and the queue of commands carries
it out (`commands`). No method waits for another, and none is left out because another found something.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from provisioner.apis import names
from provisioner.apis.conditions import CLAIM_CONDITIONS
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import is_true
from provisioner.controllers.core.budget_ledger import BudgetLedger
from provisioner.controllers.core.claim_writer import ClaimWriter
from provisioner.controllers.core.commands import AGAIN_SECONDS, CommandQueue, consolidation_type
from provisioner.controllers.core.worlds import Worlds
from provisioner.controllers.metrics import Metrics
from provisioner.controllers.references import node_reference, reference_of
from provisioner.disruption import emptiness as empty
from provisioner.disruption.budgets import Ledger
from provisioner.disruption.emptiness import (
    consolidatable_at,
    emptiness,
    is_empty,
)
from provisioner.disruption.methods import drift as drifted
from provisioner.disruption.proposal import Blocked
from provisioner.disruption.view import VALIDATION, MethodAnswer, View
from provisioner.kube.errors import ApiError, Conflict, NotFound
from provisioner.kube.events import Recorder
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.world import Machines
from provisioner.state.cluster import Cluster
from provisioner.state.snapshot import Snapshot
from provisioner.support import heartbeat, logs
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, KeyedQueue, Result

POLL_SECONDS = 1.0
#: A pass that took long is followed by a pause as long, at most so long.
PAUSE_MOST_SECONDS: Final = 10.0
POD_EVENT_DELAY = timedelta(seconds=5)
POD_EVENT_INTERVAL = timedelta(seconds=10)
#: Instance types, their prices and their offerings change without an event; a world is made anew after so long.
WORLD_SECONDS: Final = 10.0
#: Threads of the queue that writes conditions: one call that hangs holds up one of them.
TELLERS = 4
BUDGET_REASONS: Final = (names.REASON_EMPTY, names.REASON_DRIFTED, names.REASON_UNDERUTILIZED)
_log = logs.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Method:
    """One way to find nodes that should go.

    Attributes:
        name: as of `Proposal.method`.
        reason: Empty, Drifted or Underutilized.
        ask: what it would do now; pure.
        buys: it may replace nodes, so it leaves pools alone whose replacements have just failed.
        concerns: whether it has anything to look at; where it has not, nothing is prepared for it.
    """

    name: str
    reason: str
    ask: Callable[[View], MethodAnswer]
    buys: bool = True
    concerns: Callable[[Snapshot], bool] = lambda _: True


METHODS: Final = (
    Method(empty.METHOD, names.REASON_EMPTY, emptiness, buys=False),
    Method(drifted.METHOD, names.REASON_DRIFTED, drifted.propose, concerns=drifted.concerns),
)
"""In the order in which they get what budgets allow."""


@dataclass(frozen=True, slots=True)
class _Telling:
    """What one claim's status should say."""

    holds: bool
    pod_event: datetime | None


@dataclass(frozen=True, slots=True)
class _World:
    """A world with what it was made from, and when."""

    around: tuple[object, ...]
    at: float
    prepared: Prepared


@dataclass(slots=True)
class _Asked:
    """A question to a method that needs no repetition.

    Attributes:
        things: objects that must be the same ones.
        values: what must be equal.
        until: by the clock of the snapshots.
        expires: by the monotonic clock.
    """

    things: tuple[object, ...]
    values: tuple[object, ...]
    until: datetime | None
    expires: float

    def holds(self, things: tuple[object, ...], values: tuple[object, ...], at: datetime, now: float) -> bool:
        """Whether the answer would be the same."""
        in_time = now < self.expires and (self.until is None or at < self.until)
        same = all(one is other for one, other in zip(self.things, things, strict=True))
        return in_time and same and self.values == values


class Disruption:
    """A loop that decides every second, and a queue that writes the Consolidatable condition and lastPodEventTime.

    The loop waits for no call. What fails is logged, counted and tried again with back-off, each node by itself.

    Args:
        commands: begins and carries out.
        ledger: of the budgets.
        worlds: what methods simulate in; without, only those that simulate nothing propose.
        stale: which watch is behind, in words; nothing is disrupted, nor healed, before all have caught up.
        methods: in the order in which they are asked.
    """

    def __init__(
        self,
        cluster: Cluster,
        writer: ClaimWriter,
        recorder: Recorder,
        metrics: Metrics,
        commands: CommandQueue,
        ledger: BudgetLedger,
        clock: Clock,
        *,
        stale: Callable[[], str],
        worlds: Worlds | None = None,
        methods: Sequence[Method] = METHODS,
    ) -> None:
        self._cluster, self._writer, self._recorder, self._metrics = cluster, writer, recorder, metrics
        self._commands, self._ledger, self._clock = commands, ledger, clock
        self._stale, self._worlds, self._methods = stale, worlds, tuple(methods)
        self._stop = threading.Event()
        self._empty_since: dict[str, float] = {}
        self._untold: dict[str, _Telling] = {}
        self._was_stale = ""
        self._machines = Machines()
        self._prepared: _World | None = None
        self._asked: dict[str, _Asked] = {}  # by method: a question that proposed nothing
        self._unreached: dict[str, frozenset[str]] = {}
        self._tells = KeyedQueue("disruption-status", self._tell, clock, workers=TELLERS)
        self._thread = threading.Thread(target=self._loop, name="disruption", daemon=True)

    def start(self) -> None:
        """Start the loop; commands that were begun before are gone on with."""
        self._tells.start()
        self._commands.start()
        self._thread.start()

    def stop(self) -> None:
        """End the loop after the pass that is under way."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(10)
        self._commands.stop()
        self._tells.stop(5.0)

    def _loop(self) -> None:
        pulse = heartbeat.pulse("disruption")
        pause = POLL_SECONDS
        while not self._stop.wait(pause):
            pulse.beat()
            began = self._clock.monotonic()
            try:
                self.run_once()
            except Exception:
                _log.exception("A disruption pass failed; retrying with the next pass")
            pause = min(PAUSE_MOST_SECONDS, max(POLL_SECONDS, self._clock.monotonic() - began))

    def run_once(self) -> None:
        """One pass over one snapshot: decides, and hands over to the queues. Waits for no call."""
        if self._is_stale():
            return
        snapshot = self._cluster.snapshot()
        self._commands.review(snapshot)
        self._untold = self._to_tell(snapshot)
        for name in self._untold:
            self._tells.offer(name)
        empty_for = self._note_empty(snapshot)
        self._metrics.eligible_nodes(names.REASON_EMPTY, len(empty_for))
        ledger = self._ledger.at(snapshot)
        for reason in BUDGET_REASONS:
            counts = {one.pool: (one.allowed, one.consuming) for one in ledger.budgets(reason)}
            self._metrics.budgets(reason, counts)
        begun: set[str] = set()
        for method in self._methods:
            try:
                begun |= self._run(method, snapshot, ledger, empty_for, begun)
            except Exception:
                _log.exception("A disruption method failed; continuing with the other methods", method=method.name)

    def _run(
        self,
        method: Method,
        snapshot: Snapshot,
        ledger: Ledger,
        empty_for: dict[str, timedelta],
        before: Iterable[str],
    ) -> set[str]:
        """Ask one method, and begin what it proposes; the candidates that go by now, besides those of earlier methods (`before`)."""
        if not method.concerns(snapshot):
            self._asked.pop(method.name, None)
            self._metrics.eligible_nodes(method.reason, 0)
            return set()
        commands = [one.record for one in snapshot.commands]
        under_way = frozenset(before).union(*(one.candidate_names for one in commands))
        # a replacement waits, maybe empty, for its command
        spared = self._commands.spared().union(*(one.replacement_names for one in commands))
        if method.buys:
            failing = self._commands.pools_backing_off()
            spared |= {node.key.name for node in snapshot.nodes if node.pool in failing}
        prepared = self._world(snapshot) if method.buys else None
        around = (snapshot.nodes, snapshot.pools, snapshot.daemons, snapshot.around)
        things = (*around, snapshot.pod_budgets, snapshot.commands, prepared)
        values = (snapshot.pending, snapshot.leaving, under_way, spared, ledger.budgets(method.reason))
        known, now = self._asked.get(method.name), self._clock.monotonic()
        if method.buys and known is not None and known.holds(things, values, snapshot.at, now):
            return set()
        view = View(
            snapshot=snapshot,
            prepared=prepared,
            allowed=ledger.allowed,
            empty_for=empty_for,
            validation=VALIDATION,
            under_way=under_way,
            spared=spared,
            first=self._unreached.get(method.name, frozenset()),
        )
        with self._metrics.evaluating(method.reason.lower(), consolidation_type(method.name), self._clock.monotonic):
            answer = method.ask(view)
        self._unreached[method.name] = answer.unreached
        self._asked.pop(method.name, None)
        if not answer.proposals and not answer.unreached:
            self._asked[method.name] = _Asked(things, values, answer.recheck_at, now + WORLD_SECONDS)
        if method.reason != names.REASON_EMPTY:
            self._metrics.eligible_nodes(method.reason, answer.eligible)
        for blocked in answer.blocked:
            self._say_blocked(blocked, snapshot)
        begun = self._ledger.admit(
            answer.proposals,
            lambda one: one.candidates,
            lambda one: one.reason,
            lambda one: self._commands.begin(one, snapshot),
        )
        gone = {name for one in begun for name in one.candidates}
        ledger.spend(gone)
        return gone

    def _world(self, snapshot: Snapshot) -> Prepared | None:
        """The world of an instant, made from that of the last one; the same while nothing changes."""
        if self._worlds is None:
            return None
        around = (snapshot.nodes, snapshot.pools, snapshot.daemons, snapshot.around)
        known, now = self._prepared, self._clock.monotonic()
        old = known is None or now - known.at > WORLD_SECONDS
        if known is None or old or any(one is not other for one, other in zip(known.around, around, strict=True)):
            world = self._worlds.of(snapshot, self._machines).world
            prepared = prepare(world, known.prepared if known is not None else None)
            known = self._prepared = _World(around, now, prepared)
        return known.prepared

    def _is_stale(self) -> bool:
        why = self._stale()
        if why and not self._was_stale:
            _log.warning("Suspended voluntary disruption until the caches are current", reason=why)
        elif self._was_stale and not why:
            _log.info("Resumed voluntary disruption because the caches are current")
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
        seen -= self._commands.spared()
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
            _log.warning("Failed to update the status of a NodeClaim; retrying", nodeclaim=name, error=str(error))
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

    def _say_blocked(self, blocked: Blocked, snapshot: Snapshot) -> None:
        if not blocked.key:
            found = next((view.pool for view in snapshot.pools if view.pool.metadata.name == blocked.pool), None)
            if found is not None:
                self._recorder.publish(reference_of(found), "Normal", blocked.event, str(blocked), ttl=60.0)
            return
        claim = self._cluster.claim(blocked.key)
        node: Node | None = self._cluster.node_of(claim) if claim is not None else None
        if claim is not None and node is not None:
            for reference in (reference_of(claim), node_reference(node)):
                self._recorder.publish(reference, "Normal", blocked.event, str(blocked))
