"""Carries out disruption commands: `CommandQueue`. What comes next is decided by `disruption.commands.progress`, from what is written.

Before anything of a command is done its record is written on its first candidate, so a crash at any point leaves either a command
that the next leader goes on with, or marks of none, which it takes back. Source: core spec 6.14.
"""

import contextlib
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Final

import msgspec

from provisioner.apis import names
from provisioner.apis.budget_index import PodBudgets
from provisioner.apis.command import (
    CandidateRecord,
    CommandPhase,
    CommandRecord,
    CommandTooLargeError,
    Replacement,
    encode_command,
    is_marked,
    member_of,
)
from provisioner.apis.conditions import CLAIM_CONDITIONS
from provisioner.apis.core import Node, PodDisruptionBudget
from provisioner.apis.interruption import INSTANCE_TERMINATED, interruption_of
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import condition, is_true
from provisioner.apis.plan import PlanError, decode_plan
from provisioner.apis.pods import Pod, is_evictable
from provisioner.disruption.commands.progress import (
    CandidateFacts,
    CommandFacts,
    CommandStep,
    CommandVerdict,
    ReplacementState,
    being_deleted,
    next_step,
)
from provisioner.disruption.commands.validation import Sighted, verdict
from provisioner.disruption.loop_detector import LoopDetector
from provisioner.disruption.loops import LoopHolds
from provisioner.disruption.methods import rebuilding
from provisioner.disruption.proposal import DISRUPTING_NODE, Proposal, disrupting_node
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from provisioner.kube.events import Recorder
from provisioner.kube.survey import survey
from provisioner.nodeclaims.creator import REFUSALS, ClaimCreator, NoFreeNameError
from provisioner.nodeclaims.growth_ledger import HeldBackError
from provisioner.nodeclaims.plan_writer import PlanWriter
from provisioner.nodeclaims.writer import ClaimWriter, with_conditions
from provisioner.runtime import metrics
from provisioner.runtime.live_reads import Postponed, never
from provisioner.runtime.object_reference import publish, reference_of
from provisioner.scheduling.node_claims import NewClaim, planned_claim
from provisioner.state.cluster import Cluster
from provisioner.state.disruption_commands import Command
from provisioner.state.keys import NodeKey
from provisioner.state.pause import NOTHING, Pause
from provisioner.state.snapshot import NodeView, Snapshot
from provisioner.support import logs
from provisioner.support.backoff import doubled
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, KeyedQueue, ReconcileResult
from provisioner.termination.disrupted_taint import DisruptedTaints, is_disrupted
from provisioner.termination.terminator import InstanceSight, Terminator
from provisioner.values.message import ConditionMessage, EventMessage, Said

#: A command of which nothing has changed for so long is called off.
TIMEOUT: Final = timedelta(minutes=10)
#: Threads of each queue: one call that hangs holds up one of them.
HEALERS, DISRUPTERS = 2, 8
#: After another writer was faster: by then the watch has told what it wrote.
AGAIN_SECONDS: Final = 0.2
#: Replacements are watched; this is for what no event tells.
WAIT_SECONDS: Final = 5.0
#: A PodDisruptionBudget that allows nothing at the moment is looked at again after so long, in the caches first.
BUDGET_SECONDS: Final = 1.0
STALE_SECONDS: Final = 1.0
#: What is chosen to go is closed before the first pod of it is evicted; a command waits no longer for others that are not.
CLOSING_SECONDS: Final = 5.0
#: Candidates that the caches have not shown as they are for so long were chosen by an outdated view: the command is called off, and another may follow.
OUTDATED_SECONDS: Final = 5.0
#: A command that is paused looks again after so long.
PAUSED_SECONDS: Final = 0.5
#: A node whose command was called off is left alone for so long: until then the caches have caught up.
SPARED_SECONDS: Final = 30.0
#: A pool whose replacement did not register or was not initialized is left alone for so long, and twice as long each time.
BACKOFF_SECONDS, BACKOFF_MOST_SECONDS = 30.0, 600.0
#: Failures in a row after which a command is called off that is not written, has no replacements, or whose candidates are refused to go: some 20 s.
GIVE_UP_AFTER: Final = 8
_MOST_STEPS: Final = 20
_log = logs.get_logger(__name__)


@dataclass(slots=True)
class _Memory:
    """What this process remembers of a command; nothing that is needed after a restart.

    Attributes:
        new: replacements as they were announced.
        seen: replacements that were seen to exist.
        launched: replacements that were seen with an instance.
        failed: replacements that the API server refuses to create, or whose command it refuses.
        looks: what all objects looked like last, and since when.
        placed: nodes that keep room for its pods, whose plans do not say so yet.
        awaits: IDs of commands whose candidates were not closed at the first look; None before it.
        awaits_until: until when that is waited for (monotonic); None before anybody asked.
        postponed_at: since when the caches do not show its candidates as they are, before these are closed; None while they did.
    """

    new: dict[str, NewClaim] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    launched: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    looks: tuple[object, float] | None = None
    placed: tuple[NodeKey, ...] = ()
    awaits: frozenset[str] | None = None
    awaits_until: float | None = None
    postponed_at: float | None = None


class CommandQueue:
    """Begins, resumes, carries out and takes back commands; one key is the NodeClaim that holds the record. Thread-safe.

    Args:
        creator: the only creator of NodeClaims.
        plans: writes plans to which pods were added.
        taints: closes Nodes and opens them again.
        terminator: lists pods at the API server.
        stale: which watch is behind, in words; no step is taken before all have caught up.
        timeout: without any progress, after which a command is called off.
        pause: whose commands wait; one that is not written yet is forgotten.
        loops: is told what is removed.
        postponed: see `live_reads`; asked before candidates are closed, and once more before the command is sealed: then it waits, until the timeout.
    """

    def __init__(
        self,
        cluster: Cluster,
        client: Client,
        writer: ClaimWriter,
        creator: ClaimCreator,
        plans: PlanWriter,
        recorder: Recorder,
        taints: DisruptedTaints,
        terminator: Terminator,
        clock: Clock,
        *,
        stale: Callable[[], str],
        timeout: timedelta = TIMEOUT,
        pause: Callable[[], Pause] = lambda: NOTHING,
        loops: LoopDetector | None = None,
        postponed: Postponed = never,
    ) -> None:
        self._pause, self._postponed = pause, postponed
        self._loops = loops if loops is not None else LoopDetector(recorder, clock)
        self._cluster, self._client, self._writer, self._creator, self._plans = cluster, client, writer, creator, plans
        self._recorder, self._taints, self._terminator = recorder, taints, terminator
        self._clock, self._stale, self._timeout = clock, stale, timeout
        self._lock = threading.Lock()
        self._memories: dict[str, _Memory] = {}  # by ID of the command
        self._open: set[str] = set()  # IDs of commands whose candidates may still take pods
        self._beginning = 0  # passes whose commands are being begun
        self._spared_until: dict[str, float] = {}  # claim -> monotonic
        self._called_off = Counter[str]()
        self._backoffs: dict[str, tuple[int, float]] = {}  # pool -> failures in a row, until when
        self.queue = KeyedQueue("disruption-command", self.reconcile, clock, workers=DISRUPTERS)
        self.heals = KeyedQueue("disruption-heal", self.heal, clock, workers=HEALERS)

    def start(self) -> None:
        """Go on with every command that is written."""
        for claim in self._cluster.claims():
            self._loops.saw(claim)
        written = self._cluster.commands()
        with self._lock:  # before the first of them goes on: their nodes may be open still
            self._open.update(command.record.id for command in written)
        self.queue.start()
        self.heals.start()
        self.queue.add_all(command.record.holder for command in written)

    def stop(self) -> None:
        """Finish the steps under way."""
        self.queue.stop(5.0)
        self.heals.stop(5.0)

    def heard(self, claim: NodeClaim) -> None:
        """A NodeClaim changed: the command that waits for it goes on."""
        self._loops.saw(claim)
        name = claim.metadata.name
        for command in (self._cluster.command_waiting_for(name), self._cluster.command_of(name)):
            if command is not None:
                self.queue.offer(command.record.holder)

    def review(self, snapshot: Snapshot) -> None:
        """Look at every command, and take back what belongs to none; call every second."""
        now = self._clock.monotonic()
        with self._lock:
            self._spared_until = {name: until for name, until in self._spared_until.items() if until > now}
            live = {command.record.id for command in self._cluster.commands()}
            self._memories = {key: one for key, one in self._memories.items() if key in live}
            self._open &= live
        for command in snapshot.commands:
            self.queue.offer(command.record.holder)
        for node in snapshot.nodes:
            if _shows_marks(node) and self._is_left_over(node.key.name):
                self.heals.offer(node.key.name)

    def spared(self) -> frozenset[str]:
        """NodeClaims whose command was called off a moment ago."""
        with self._lock:
            return frozenset(self._spared_until)

    def called_off(self, method: str) -> int:
        """How many commands of a method were called off by this process."""
        with self._lock:
            return self._called_off[method]

    def loops(self) -> LoopHolds:
        """Whose nodes are left alone, since they were launched and removed again and again."""
        return self._loops.holds()

    def pools_backing_off(self) -> frozenset[str]:
        """NodePools whose replacements did not become nodes a moment ago, though they had an instance."""
        now = self._clock.monotonic()
        with self._lock:
            return frozenset(pool for pool, (_, until) in self._backoffs.items() if until > now)

    # ------------------------------------------------------------------ beginning

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """What is begun within was chosen together: no pod of it is evicted before all of it is begun."""
        with self._lock:
            self._beginning += 1
        try:
            yield
        finally:
            with self._lock:
                self._beginning -= 1

    def begin(self, proposal: Proposal, snapshot: Snapshot) -> bool:
        """Enter a command into the state, to be carried out from now on; makes no call.

        Args:
            proposal: what to do; its budgets are spent.
            snapshot: of which it was decided.

        Returns:
            Whether it begins; not where something that it needs has changed.
        """
        claims = [self._cluster.claim(name) for name in proposal.candidates]
        record = CommandRecord(
            id=uuid.uuid4().hex[:12],
            reason=proposal.reason,
            method=proposal.method,
            candidates=tuple(
                sorted(
                    (CandidateRecord(one.metadata.name, one.metadata.uid) for one in claims if one is not None), key=str
                )
            ),
        )
        if None in claims or not claims or any(map(self._is_left_over, proposal.candidates)):
            return False  # what is taken back at this moment might be this command's
        if not self._cluster.command_begun(record):
            return False
        memory = _Memory()
        try:
            why = self._announced(record, proposal, memory) or self._placed(proposal, snapshot, memory)
        except HeldBackError as error:
            why = str(error)
            blocked = EventMessage(
                "Normal", "DisruptionBlocked", f"Cannot launch a replacement ({record.reason}): {why}"
            )
            self._say(record.candidate_names, blocked)
            seconds = error.held.seconds
            self._spare(record, SPARED_SECONDS if seconds is None else max(1.0, seconds))
        except Exception as error:  # noqa: BLE001 - a command that fails is rolled back
            _log.exception("Failed to start a disruption; continuing with the others", command=record.id)
            why = f"{type(error).__name__}: {error}"
        if why:
            _log.info(
                "Rejected a disruption before it started; the next pass decides again", command=record.id, reason=why
            )
            self._forget(record, memory)
            return False
        with self._lock:
            self._memories[record.id] = memory
            self._open.add(record.id)
        self._loops.decided(record.candidate_names)
        self.queue.add(record.holder)
        return True

    def _spare(self, record: CommandRecord, seconds: float) -> None:
        until = self._clock.monotonic() + seconds
        with self._lock:
            self._spared_until.update(dict.fromkeys(record.candidate_names, until))

    def _announced(self, record: CommandRecord, proposal: Proposal, memory: _Memory) -> str:
        for planned in proposal.replacements:
            try:
                marks = {**self._loops.marks(planned.pods), names.REPLACES_ANNOTATION: record.id}
                made = partial(planned_claim, planned, annotations=marks, hold_seconds=self._cluster.hold_seconds)
                new = self._creator.announce(planned.pool, made)
            except NoFreeNameError as error:
                return str(error)
            if new is None:
                return Said(f"its pods no longer need a replacement from NodePool {planned.pool}")
            memory.new[new.name] = new
        replacements = tuple(Replacement(new.name, new.body) for new in memory.new.values())
        whole = msgspec.structs.replace(record, replacements=replacements)
        try:
            encode_command(whole)
        except CommandTooLargeError as error:
            return str(error)
        return "" if self._cluster.command_begun(whole) else Said("another command was started first")

    def _placed(self, proposal: Proposal, snapshot: Snapshot, memory: _Memory) -> str:
        keys = {str(node.key): node.key for node in snapshot.nodes}
        for name, pods in proposal.placements.items():
            if self._cluster.assign(keys[name], pods):
                return Said(f"node {name} no longer accepts pods")
        memory.placed = tuple(keys[name] for name in proposal.placements)
        return ""

    def _forget(self, record: CommandRecord, memory: _Memory) -> None:
        for name in memory.new:
            self._cluster.claim_failed(name)
        self._writer.take(self._cluster.command_dropped(record))
        with self._lock:
            self._memories.pop(record.id, None)
            self._open.discard(record.id)

    # ------------------------------------------------------------------ going on

    def reconcile(self, holder: str) -> ReconcileResult:
        """Take every step of one command that can be taken now."""
        known = self._known(holder)
        if known is None:
            return DONE
        command, memory = known
        try:
            if stale := self._stale():
                if command.written:
                    return ReconcileResult(requeue_after=STALE_SECONDS)
                return self._call_off(command, memory, stale)
            if paused := self._paused(command.record):
                return self._wait(command, memory, paused)
            if not command.written:
                self._commit(command.record)
            return self._go_on(holder, memory)
        except ApiError as error:
            return self._failed(holder, memory, error)

    def _paused(self, record: CommandRecord) -> str:
        """What pauses a candidate of a command, "" where nothing does."""
        pause = self._pause()
        return next(filter(None, map(pause.why, self._pools(record))), "") if pause != NOTHING else ""

    def _wait(self, command: Command, memory: _Memory, paused: str) -> ReconcileResult:
        """The command stays as it is, and the time does not count; one that cannot come to its end as it was decided is called off."""
        if not command.written:
            return self._call_off(command, memory, paused)
        memory.looks = None
        facts = self._facts(command.record, memory, None)
        following = next_step(command.record, facts)
        coming = any(state is ReplacementState.COMING for _, state in facts.replacements)
        if following.step is CommandStep.ROLL_BACK:
            return self._call_off(command, memory, following.why, blamed=following.names)
        if following.step is CommandStep.AWAIT_END and coming and command.record.phase is CommandPhase.COMMITTED:
            # a user deleted it, and no pause holds the drain of that
            return self._call_off(command, memory, being_deleted(command.record.holder))
        memory.looks = None
        self._say(command.record.candidate_names, EventMessage("Normal", "DisruptionBlocked", paused))
        return ReconcileResult(requeue_after=PAUSED_SECONDS)

    def _failed(self, holder: str, memory: _Memory, error: ApiError) -> ReconcileResult:
        command = self._cluster.command_held_by(holder)
        if command is None:
            return DONE
        if not command.written and isinstance(error, (Conflict, *REFUSALS)):
            replacements = command.record.replacement_names
            if isinstance(error, REFUSALS):
                memory.failed.update(replacements)
            # its record is not there, nor would it be
            return self._call_off(command, memory, str(error), blamed=replacements)
        if isinstance(error, NotFound | Conflict):
            return ReconcileResult(requeue_after=AGAIN_SECONDS)  # by then the watch has told what another writer did
        # what was bought waits until the timeout; what is not written has bought nothing
        waits = command.written and command.record.replacements and command.record.phase is CommandPhase.COMMITTED
        if not waits and self.queue.failures(holder) >= GIVE_UP_AFTER:
            return self._call_off(command, memory, str(error))
        _log.warning(
            "A request to the API server failed during a disruption; retrying",
            command=command.record.id,
            nodeclaim=holder,
            error=str(error),
        )
        return ReconcileResult(failed=True)

    def _go_on(self, holder: str, memory: _Memory) -> ReconcileResult:
        for key in memory.placed:  # not before the record: who reads a plan must know that its pods are going
            self._plans.changed(key)
        memory.placed = ()
        found: CommandVerdict | None = None
        for _ in range(_MOST_STEPS):
            command = self._cluster.command_held_by(holder)
            if command is None:
                return DONE
            record = command.record
            following = next_step(record, self._facts(record, memory, found))
            found = None
            if following.step is not CommandStep.MARK:
                with self._lock:
                    self._open.discard(record.id)
            match following.step:
                case CommandStep.MARK:
                    if why := self._why_postponed(following.names):
                        if memory.postponed_at is None:
                            memory.postponed_at = self._clock.monotonic()
                        if self._clock.monotonic() - memory.postponed_at >= OUTDATED_SECONDS:
                            return self._call_off(command, memory, why, record)
                        return ReconcileResult(requeue_after=AGAIN_SECONDS)
                    memory.postponed_at = None
                    self._mark(record, following.names)
                case CommandStep.CREATE:
                    self._create(record, memory, following.names)
                case CommandStep.VALIDATE:
                    if self._awaits_others(record, memory):
                        return ReconcileResult(requeue_after=AGAIN_SECONDS)
                    found = self._validated(record)
                case CommandStep.SEAL:
                    self._write(msgspec.structs.replace(record, phase=CommandPhase.DELETING))
                case CommandStep.DELETE:
                    self._delete(record, following.names)
                case CommandStep.ROLL_BACK:
                    return self._call_off(command, memory, following.why, record, following.names)
                case CommandStep.AWAIT_REPLACEMENTS:
                    self._tell_replacements(record, following.names)
                    return ReconcileResult(requeue_after=WAIT_SECONDS)
                case CommandStep.AWAIT_BUDGET:
                    self._say(record.candidate_names, EventMessage("Normal", "DisruptionBlocked", following.why))
                    return ReconcileResult(requeue_after=BUDGET_SECONDS)
                case CommandStep.AWAIT_END | CommandStep.DONE:
                    return DONE
        return ReconcileResult(requeue_after=AGAIN_SECONDS)

    def _why_postponed(self, those: Iterable[str]) -> str:
        """Why the caches may not show one of these candidates as it is; "" where they do."""
        claims = (claim for name in those if (claim := self._cluster.claim(name)) is not None)
        return next(filter(None, (self._postponed(claim, self._cluster.node_of(claim)) for claim in claims)), "")

    def _awaits_others(self, record: CommandRecord, memory: _Memory) -> bool:
        """Whether nodes that were chosen before the first pod of this command goes would still take it, and have it evicted once more."""
        if record.reason == names.REASON_EMPTY:
            return False
        now = self._clock.monotonic()
        with self._lock:
            if memory.awaits_until is None:
                memory.awaits_until = now + CLOSING_SECONDS
            if now >= memory.awaits_until:
                return False
            if memory.awaits is None:
                if self._beginning:
                    return True  # more are chosen at this moment
                memory.awaits = frozenset(self._open - {record.id})
            return not memory.awaits.isdisjoint(self._open)

    def _known(self, holder: str) -> tuple[Command, _Memory] | None:
        """A command with what is remembered of it; None where there is none, or one that is still being begun."""
        first = self._cluster.command_held_by(holder)
        if first is None:
            return None
        with self._lock:
            memory = self._memories.get(first.record.id)
            if memory is None:
                if not first.written:
                    return None  # its replacements are not known yet; `begin` queues it
                memory = self._memories[first.record.id] = _Memory()
                self._open.add(first.record.id)
                _log.info(
                    "Resuming a disruption that was started earlier",
                    command=first.record.id,
                    reason=first.record.reason,
                )
        command = self._cluster.command_held_by(holder)  # it may have got its replacements after the first look
        return (command, memory) if command is not None and command.record.id == first.record.id else None

    # ------------------------------------------------------------------ facts

    def _facts(self, record: CommandRecord, memory: _Memory, found: CommandVerdict | None) -> CommandFacts:
        candidates = tuple(self._candidate(record, one) for one in record.candidates)
        replacements = tuple((name, self._replacement(record, name, memory)) for name in record.replacement_names)
        bodies = {one.name for one in record.replacements if one.body is not None}
        return CommandFacts(
            candidates=candidates,
            replacements=replacements,
            creatable=frozenset(bodies | memory.new.keys()),
            stalled=self._stalled(record, memory, (record.phase, candidates, replacements)),
            verdict=found,
        )

    def _candidate(self, record: CommandRecord, one: CandidateRecord) -> CandidateFacts:
        claim = self._cluster.claim(one.name)
        if claim is None or claim.metadata.uid != one.uid:
            return CandidateFacts(one.name, there=False)
        node = self._cluster.node_of(claim)
        reason = condition(claim.status.conditions, names.DISRUPTION_REASON)
        return CandidateFacts(
            one.name,
            deleting=claim.metadata.deletion_timestamp is not None,
            joined=node is not None and self._cluster.rivals(claim) is None,
            marked=node is not None and is_disrupted(node) and reason is not None and reason.reason == record.reason,
            interrupted=self._is_interrupted(claim),
        )

    def _replacement(self, record: CommandRecord, name: str, memory: _Memory) -> ReplacementState:
        claim = self._cluster.claim(name)
        if name in memory.failed:
            return ReplacementState.FAILED
        if claim is None or not claim.metadata.uid:
            return ReplacementState.FAILED if name in memory.seen else ReplacementState.ABSENT
        memory.seen.add(name)
        if is_true(claim.status.conditions, names.LAUNCHED):
            memory.launched.add(name)
        if claim.metadata.annotations.get(names.REPLACES_ANNOTATION) != record.id:
            return ReplacementState.FAILED  # somebody else's has the name
        if claim.metadata.deletion_timestamp is not None or self._is_interrupted(claim):
            return ReplacementState.FAILED
        is_ready = is_true(claim.status.conditions, names.INITIALIZED) and self._cluster.node_of(claim) is not None
        return ReplacementState.INITIALIZED if is_ready else ReplacementState.COMING

    def _is_interrupted(self, claim: NodeClaim) -> bool:
        mark = interruption_of(claim.metadata.annotations)
        return mark is not None and mark.has_begun(self._clock.now())

    def _stalled(self, record: CommandRecord, memory: _Memory, looks: object) -> str:
        now = self._clock.monotonic()
        claims = [self._cluster.claim(name) for name in record.replacement_names]
        steps = [[(one.type, one.status) for one in claim.status.conditions] for claim in claims if claim is not None]
        if memory.looks is None or memory.looks[0] != (looks, steps):
            memory.looks = ((looks, steps), now)
        seconds = now - memory.looks[1]
        return Said(f"no progress for {seconds:.0f} s") if seconds >= self._timeout.total_seconds() else ""

    # ------------------------------------------------------------------ steps

    def _commit(self, record: CommandRecord) -> None:
        """Write that the command exists: members first, so that the record never stands alone."""
        for one in record.candidates[1:]:
            claim = self._own(one)
            if member_of(claim.metadata.annotations) != record.id:
                self._writer.metadata(claim, annotations={names.COMMAND_MEMBER_ANNOTATION: record.id})
        self._write(record)
        if record.replacements:
            self._count_decision(record)
        _log.info(
            "Started a disruption",
            command=record.id,
            reason=record.reason,
            method=record.method,
            candidates=list(record.candidate_names),
            replacements=list(record.replacement_names),
        )

    def _write(self, record: CommandRecord) -> None:
        claim = self._own(record.candidates[0])
        known = claim.metadata.annotations
        marks = {names.COMMAND_ANNOTATION: encode_command(record)}
        if names.COMMAND_MEMBER_ANNOTATION in known:  # of an earlier command that was never written
            marks |= {names.COMMAND_MEMBER_ANNOTATION: None}  # type: ignore[dict-item]  # None removes a key
        self._writer.metadata(claim, annotations=marks)

    def _own(self, one: CandidateRecord) -> NodeClaim:
        claim = self._cluster.claim(one.name)
        if claim is None or claim.metadata.uid != one.uid or claim.metadata.deletion_timestamp is not None:
            raise NotFound(404, "NotFound", Said(f"NodeClaim {one.name} is being deleted or no longer exists"))
        return claim

    def _mark(self, record: CommandRecord, those: Iterable[str]) -> None:
        for name in those:
            claim = self._cluster.claim(name)
            node = self._cluster.node_of(claim) if claim is not None else None
            if node is None:
                continue  # the facts will say so
            if not is_disrupted(node):
                self._taints.close(node)
            claim = self._cluster.claim(name)
            if claim is not None:
                reason = ConditionMessage(names.DISRUPTION_REASON, names.TRUE, record.reason, record.reason)
                self._writer.status(claim, with_conditions(claim, reason, now=self._clock.now()))

    def _create(self, record: CommandRecord, memory: _Memory, those: Iterable[str]) -> None:
        """Create replacements; a name that is taken by one of this very command is a success."""
        for name in those:
            new = memory.new.get(name) or self._remembered(record, name)
            if new is None:
                self._refused(
                    memory, name, Said("the record of the command does not contain a valid NodeClaim with this name")
                )
                continue
            if self._cluster.claim(name) is None:
                self._creator.announce_again(new)
            try:
                self._creator.create(new, reason=record.reason.lower())
            except AlreadyExists as error:
                known = self._client.get(resources.NODECLAIMS, name)  # the watch tells it
                if known.metadata.annotations.get(names.REPLACES_ANNOTATION) != record.id:
                    self._refused(memory, name, error)
            except REFUSALS as error:
                self._refused(memory, name, error)

    def _refused(self, memory: _Memory, name: str, error: object) -> None:
        _log.warning("Failed to create a replacement NodeClaim", nodeclaim=name, error=str(error))
        memory.failed.add(name)

    def _remembered(self, record: CommandRecord, name: str) -> NewClaim | None:
        """A replacement as the record has it, which anybody may have written who may write NodeClaims; None for no such thing."""
        body = next((one.body for one in record.replacements if one.name == name), None) or {}
        try:
            claim = msgspec.convert(body, NodeClaim, strict=False)
        except msgspec.ValidationError:
            return None
        annotations = claim.metadata.annotations
        if claim.metadata.name != name or claim.metadata.uid or annotations.get(names.REPLACES_ANNOTATION) != record.id:
            return None
        try:
            plan = decode_plan(claim.metadata.annotations.get(names.PLAN_ANNOTATION, "") or "{}")
        except PlanError:
            return NewClaim(dict(body), claim)
        pods = (self._cluster.pod(uid) for entry in plan.pods for uid in entry.uids)
        return NewClaim(dict(body), claim, tuple(pod for pod in pods if pod is not None))

    def _delete(self, record: CommandRecord, those: Iterable[str]) -> None:
        for name in those:
            claim = self._cluster.claim(name)
            if claim is None:
                continue
            self._say((name,), disrupting_node(record.reason))
            pods = self._cluster.pods_of(claim)
            self._writer.delete(claim)
            self._loops.removed(claim, pods)
            metrics.claim_disrupted(claim, record.reason.lower(), pods, policy=self._policy(record, claim))
            _log.info(DISRUPTING_NODE, nodeclaim=name, command=record.id, reason=record.reason.lower())
        if not record.replacements:
            self._count_decision(record)
        for pool in self._pools(record):
            with self._lock:
                self._backoffs.pop(pool, None)

    def _count_decision(self, record: CommandRecord) -> None:
        decision = "replace" if record.replacements else "delete"
        metrics.decision(decision, record.reason.lower(), consolidation_type(record.method), self._pools(record))

    def _policy(self, record: CommandRecord, claim: NodeClaim) -> str:
        """The consolidationPolicy that a disruption followed; "" for drift, or where the NodePool is gone."""
        if record.reason == names.REASON_DRIFTED:
            return ""
        pools = (view.pool for view in self._cluster.snapshot().pools if view.pool.metadata.name == claim.pool)
        return next((pool.spec.disruption.consolidation_policy for pool in pools), "")

    def _pools(self, record: CommandRecord) -> list[str]:
        claims = (self._cluster.claim(name) for name in record.candidate_names)
        return sorted({claim.pool for claim in claims if claim is not None})

    # ------------------------------------------------------------------ validation

    def _validated(self, record: CommandRecord) -> CommandVerdict | None:
        """Whether the candidates may go, asked of the API server after they were closed; None where the command is another one now.

        Raises:
            ApiError: it is not known.
        """
        snapshot = self._cluster.snapshot()
        if record.replacements:  # a budget that allows nothing yet shows in the caches; only the last look is a list
            cached = [self._sighted_in_caches(name) for name in record.candidate_names]
            early = verdict(record.reason, cached, snapshot.pod_budgets, snapshot, replaced=True)
            if early.waits:
                return early
        if why := self._why_postponed(record.candidate_names):
            return CommandVerdict(why, waits=True)
        if not self._is_current(record):
            return None
        sighted = [self._sighted(one) for one in record.candidates]
        budgets, bad = self._budgets(pod for one in sighted for pod in one.pods)
        found = verdict(record.reason, sighted, budgets, snapshot, replaced=bool(record.replacements))
        return CommandVerdict(bad) if bad and not found.objection else found

    def _is_current(self, record: CommandRecord) -> bool:
        """Read the NodeClaims of a command, for a watch may be behind; whether it still counts as it did."""
        claims = [self._own(one) for one in record.candidates]
        claims += (claim for name in record.replacement_names if (claim := self._cluster.claim(name)) is not None)
        for claim in claims:
            self._writer.read(claim)
        command = self._cluster.command_held_by(record.holder)
        return command is not None and command.record == record

    def _sighted(self, one: CandidateRecord) -> Sighted:
        claim = self._own(one)
        sight = self._terminator.look(claim)
        if not all(map(is_disrupted, sight.nodes)):  # somebody opened it: pods that came are listed once it is closed
            for node in sight.nodes:
                self._taints.close(node)
            sight = self._terminator.look(claim)
        known = self._cluster.node_of(claim)
        return Sighted(
            one.name,
            sight.pods,
            unknown=_unknown(sight),
            protected=_protected(claim, *sight.nodes, *((known,) if known is not None else ())),
            forceful=bool(claim.spec.termination_grace_period),
            awaited=bool(self._cluster.assigned(NodeKey(one.name))),
            drifted=is_true(claim.status.conditions, names.DRIFTED),
        )

    def _sighted_in_caches(self, name: str) -> Sighted:
        claim = self._cluster.claim(name)
        if claim is None:
            return Sighted(name, drifted=False)
        forceful = bool(claim.spec.termination_grace_period)
        drifted = is_true(claim.status.conditions, names.DRIFTED)
        return Sighted(name, self._cluster.pods_of(claim), forceful=forceful, drifted=drifted)

    def _budgets(self, pods: Iterable[Pod]) -> tuple[PodBudgets, str]:
        """Those of the namespaces of the pods as the API server has them now, and the first that cannot be decoded."""
        found: dict[str, tuple[PodDisruptionBudget, ...]] = {}
        bad = ""
        for name in sorted({pod.namespace for pod in pods if is_evictable(pod, self._clock.now())}):
            answer = survey(self._client, resources.PDBS, decode=resources.PDBS.decode, namespace=name)
            found[name] = tuple(answer.objects)
            bad = bad or next((Said(f"PodDisruptionBudget {one} cannot be decoded") for one in answer.unreadable), "")
        return PodBudgets(found), bad

    # ------------------------------------------------------------------ calling off

    def _call_off(
        self,
        command: Command,
        memory: _Memory,
        why: str,
        record: CommandRecord | None = None,
        blamed: Iterable[str] = (),
    ) -> ReconcileResult:
        """Take the record back first: then the command is none, and what it marked is healed; `blamed` are replacements that failed."""
        record = record or command.record
        current = self._cluster.command_held_by(record.holder)
        if current is not None and current.written:
            claim = self._cluster.claim(record.holder)
            if claim is not None:
                try:
                    self._writer.metadata(claim, annotations={names.COMMAND_ANNOTATION: None})
                except NotFound:
                    pass
        else:
            self._forget(record, memory)
        self._note_failure(record, memory, blamed)
        for name in record.candidate_names:
            self.heals.add(name)
        claims = (self._cluster.claim(name) for name in record.candidate_names)
        staying = [one.name for one in claims if one is not None and one.metadata.deletion_timestamp is None]
        self._say(
            staying,
            EventMessage(
                "Normal",
                "DisruptionBlocked",
                f"Canceled the disruption ({record.reason}), the node accepts pods again: {why}",
            ),
        )
        if record.reason == names.REASON_UNDERUTILIZED:
            self._say(
                staying,
                EventMessage(
                    "Normal",
                    "ConsolidationRejected",
                    f"Consolidation rejected: {', '.join(record.candidate_names)}, reason: {why}",
                ),
            )
        _log.info("Canceled a disruption", command=record.id, nodeclaim=record.holder, reason=why)
        return DONE

    def _note_failure(self, record: CommandRecord, memory: _Memory, blamed: Iterable[str]) -> None:
        """Count it. A NodePool backs off where its nodes do not come up; a shortage, and what happens to candidates, is no fault of it."""
        states = {name: self._replacement(record, name, memory) for name in record.replacement_names}
        late = sum(state is not ReplacementState.INITIALIZED for state in states.values())
        decision, kind = "replace" if states else "delete", consolidation_type(record.method)
        if late:
            metrics.QUEUE_FAILURES.labels(decision, record.reason.lower(), kind).inc(late)
        else:
            metrics.FAILED_VALIDATIONS.labels(kind).inc(len(record.candidates))
        now = self._clock.monotonic()
        with self._lock:
            self._called_off[record.method] += 1
            self._memories.pop(record.id, None)
            self._open.discard(record.id)
            self._spared_until.update(dict.fromkeys(record.candidate_names, now + SPARED_SECONDS))
            for pool in self._pools(record) if any(self._is_at_fault(name, memory) for name in blamed) else ():
                failures = self._backoffs.get(pool, (0, 0.0))[0] + 1
                seconds = doubled(failures, base=BACKOFF_SECONDS, cap=BACKOFF_MOST_SECONDS)
                self._backoffs[pool] = (failures, now + seconds)

    def _is_at_fault(self, replacement: str, memory: _Memory) -> bool:
        """Whether a replacement that failed had an instance that did not become a node, or is refused by the API server.

        One that its cloud takes back is no fault of the pool; one that ended before its Node registered is.
        """
        claim = self._cluster.claim(replacement)
        if claim is not None and self._is_interrupted(claim) and not self._ended_early(claim):
            return False
        return replacement in memory.launched or replacement in memory.failed

    @staticmethod
    def _ended_early(claim: NodeClaim) -> bool:
        mark = interruption_of(claim.metadata.annotations)
        ended = mark is not None and mark.reason == INSTANCE_TERMINATED
        return ended and not is_true(claim.status.conditions, names.REGISTERED)

    # ------------------------------------------------------------------ healing

    def _is_left_over(self, key: str) -> bool:
        claim = self._cluster.claim(key)
        if claim is None or not claim.metadata.uid or claim.metadata.deletion_timestamp is not None:
            return False
        if self._cluster.command_of(key) is not None:
            return False
        if is_marked(claim):
            return True
        found = self._cluster.node_of(claim)
        if found is None or found.metadata.deletion_timestamp is not None:
            return False
        if self._is_interrupted(claim):
            return False  # `Interruptions` carries it out
        return any(taint.key == names.DISRUPTED_TAINT.key for taint in found.spec.taints) or (
            condition(claim.status.conditions, names.DISRUPTION_REASON) is not None
        )

    def heal(self, key: str) -> ReconcileResult:
        """Take back what is marked on a claim and its Node and belongs to no command."""
        if self._stale():
            return ReconcileResult(requeue_after=STALE_SECONDS)
        claim = self._cluster.claim(key)
        if claim is None or not self._is_left_over(key):
            return DONE
        try:
            # a command of whoever led before may be written that no watch has told yet
            claim = self._writer.read(claim)
            if not self._is_left_over(key):
                return DONE
            if is_marked(claim):
                marks = dict.fromkeys((names.COMMAND_ANNOTATION, names.COMMAND_MEMBER_ANNOTATION))
                version = claim.metadata.resource_version
                claim = self._writer.metadata(claim, resourceVersion=version, annotations=marks)
            found = self._cluster.node_of(claim)
            if found is not None and self._is_left_over(key):  # an interruption keeps its node closed
                self._taints.reopen(found)
                self._writer.status(claim, CLAIM_CONDITIONS.clear(claim.status.conditions, names.DISRUPTION_REASON))
        except NotFound:
            return DONE
        except Conflict:
            return ReconcileResult(requeue_after=AGAIN_SECONDS)
        except ApiError as error:
            _log.warning(
                "Failed to roll back a disruption that no command carries out; retrying", node=key, error=str(error)
            )
            return ReconcileResult(failed=True)
        _log.info("Rolled back a disruption that no command carries out", nodeclaim=key)
        return DONE

    # ------------------------------------------------------------------ telling

    def _tell_replacements(self, record: CommandRecord, those: Iterable[str]) -> None:
        for name in those:
            claim = self._cluster.claim(name)
            if claim is None:
                continue
            if is_true(claim.status.conditions, names.LAUNCHED):
                message = EventMessage(
                    "Normal", "DisruptionWaitingReadiness", "Waiting on readiness to continue disruption"
                )
            else:
                message = EventMessage("Normal", "DisruptionLaunching", f"Launching NodeClaim: {record.reason}")
            self._recorder.publish(reference_of(claim), *message)

    def _say(self, those: Iterable[str], message: EventMessage) -> None:
        publish(self._recorder, self._cluster, those, message)


_CONSOLIDATION_TYPES: Final = {"empty": "empty", "multi": "multi", "single": "single", rebuilding.METHOD: "multi"}


def consolidation_type(method: str) -> str:
    """The metrics' label of a method. Source: core spec 6.1."""
    return _CONSOLIDATION_TYPES.get(method, "")


def _shows_marks(node: NodeView) -> bool:
    """Whether a disruption may have begun on a node and no command is known, as far as a snapshot shows."""
    if node.claim is None or node.command or node.claim.metadata.deletion_timestamp is not None:
        return False
    told = condition(node.claim.status.conditions, names.DISRUPTION_REASON)
    return node.deleting or is_marked(node.claim) or told is not None


def _unknown(sight: InstanceSight) -> str:
    if len(sight.nodes) > 1:
        return Said(
            f"Nodes {sight.nodes[0].metadata.name} and {sight.nodes[1].metadata.name} have the same provider ID"
        )
    return next(iter((*sight.unreadable, *sight.strangers)), "")


def _protected(claim: NodeClaim, *nodes: Node) -> bool:
    annotations = [claim.metadata.annotations, *(node.metadata.annotations for node in nodes)]
    return any(found.get(names.DO_NOT_DISRUPT) == "true" for found in annotations)
