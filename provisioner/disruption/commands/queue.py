"""Carries out disruption commands: `CommandQueue`. What comes next is decided by `disruption.commands.progress`, from what is written.

Before anything of a command is done its record is written on its first candidate, so a crash at any point leaves either a command
that the next leader goes on with, or marks of none, which it takes back. Source: core spec 6.14.
"""

import random
from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec

from provisioner.apis import names
from provisioner.apis.command import (
    Awaited,
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
from provisioner.apis.core import Node
from provisioner.apis.gangs import group_of, told
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import condition, is_true
from provisioner.apis.reboot import is_rebooting
from provisioner.disruption.commands.book import SPARED_SECONDS, CommandBook, CommandMemory
from provisioner.disruption.commands.inspector import CommandInspector
from provisioner.disruption.commands.progress import (
    CommandStep,
    CommandVerdict,
    ReplacementState,
    being_deleted,
    next_step,
)
from provisioner.disruption.loop_detector import LoopDetector
from provisioner.disruption.methods import rebuilding
from provisioner.disruption.proposal import DISRUPTING_NODE, Proposal, disrupting_node
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from provisioner.kube.events import Recorder
from provisioner.nodeclaims.creator import REFUSALS, ClaimCreator, NoFreeNameError
from provisioner.nodeclaims.growth_limits import HeldBackError
from provisioner.nodeclaims.plan_writer import PlanWriter
from provisioner.nodeclaims.writer import ClaimWriter, with_conditions
from provisioner.runtime import metrics
from provisioner.runtime.controller import Keys
from provisioner.runtime.live_reads import Postponed, never
from provisioner.runtime.object_reference import publish, reference_of, tell_gang
from provisioner.scheduling.node_claims import planned_claim
from provisioner.state.cluster import Cluster
from provisioner.state.disruption_commands import Command
from provisioner.state.pause import NOTHING, Pause, activity_of
from provisioner.state.snapshot import NodeView, Snapshot
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, KeyedQueue, ReconcileResult
from provisioner.termination.disrupted_taint import DisruptedTaints, is_disrupted
from provisioner.termination.eviction_queue import earlier_end
from provisioner.termination.terminator import Terminator
from provisioner.values.message import ConditionMessage, EventMessage, Said
from provisioner.values.printable import counted

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
#: Candidates that the caches have not shown as they are for so long were chosen by an outdated view: the command is called off, and another may follow.
OUTDATED_SECONDS: Final = 5.0
#: Pods that are asked to leave though their node stays are looked at again after so long.
DRAIN_SECONDS: Final = 1.0
#: A command that is paused looks again after so long.
PAUSED_SECONDS: Final = 0.5
#: Failures in a row after which a command is called off that is not written, has no replacements, or whose candidates are refused to go: some 20 s.
GIVE_UP_AFTER: Final = 8
_MOST_STEPS: Final = 20
_log = logs.get_logger(__name__)


class CommandQueue:
    """Begins, resumes, carries out and takes back commands; one key is the NodeClaim that holds the record. Thread-safe.

    Args:
        creator: the only creator of NodeClaims.
        plans: writes plans to which pods were added.
        taints: closes Nodes and opens them again.
        terminator: lists pods at the API server, and asks them to leave.
        stale: which watch is behind, in words; no step is taken before all have caught up.
        timeout: without any progress, after which a command is called off.
        pause: whose commands wait; one that is not written yet is forgotten.
        loops: is told what is removed.
        is_broken: whether a Node still needs a repair.
        begun: is told of each command that begins.
        chance: of the IDs of commands.
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
        is_broken: Callable[[Node], bool] = lambda _: True,
        begun: Callable[[CommandRecord, Proposal], None] = lambda _record, _proposal: None,
        chance: random.Random | None = None,
    ) -> None:
        self._begun = begun
        self._chance = chance if chance is not None else random.Random()
        self.loops = loops if loops is not None else LoopDetector(recorder, clock)
        self.book = CommandBook(cluster, clock)
        self.inspector = CommandInspector(
            cluster, client, writer, taints, terminator, clock, timeout, postponed, is_broken
        )
        self._cluster, self._client, self._writer, self._creator, self._plans = cluster, client, writer, creator, plans
        self._recorder, self._taints, self._clock, self._stale, self._pause = recorder, taints, clock, stale, pause
        self._terminator = terminator
        self.queue = KeyedQueue("disruption.queue", self.reconcile, clock, workers=DISRUPTERS)
        self.heals = KeyedQueue("disruption-heal", self.heal, clock, workers=HEALERS)

    def written(self) -> Keys:
        """What holds the commands that are written, to go on with at the start of a term."""
        for claim in self._cluster.claims():
            self.loops.saw(claim)
        written = self._cluster.commands()
        self.book.opened(written)  # before the first of them goes on: their nodes may be open still
        return [command.record.holder for command in written]

    def heard(self, claim: NodeClaim) -> None:
        """A NodeClaim changed: the command that waits for it goes on."""
        self.loops.saw(claim)
        name = claim.metadata.name
        for command in (self._cluster.command_waiting_for(name), self._cluster.command_of(name)):
            if command is not None:
                self.queue.offer(command.record.holder)

    def review(self, snapshot: Snapshot) -> None:
        """Look at every command, and take back what belongs to none; call every second."""
        self.book.tidy()
        for command in snapshot.commands:
            self.queue.offer(command.record.holder)
        for node in snapshot.nodes:
            if _shows_marks(node) and self._is_left_over(node.key.name):
                self.heals.offer(node.key.name)

    # ------------------------------------------------------------------ beginning

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
            id=f"{self._chance.getrandbits(48):012x}",
            reason=proposal.reason,
            method=proposal.method,
            candidates=tuple(
                sorted(
                    (CandidateRecord(one.metadata.name, one.metadata.uid) for one in claims if one is not None), key=str
                )
            ),
            repair=proposal.repair,
            first=proposal.first,
        )
        if None in claims or not claims or any(map(self._is_left_over, proposal.candidates)):
            return False  # what is taken back at this moment might be this command's
        if not self._cluster.command_begun(record):
            return False
        memory = CommandMemory()
        try:
            why = self._announced(record, proposal, memory) or self._placed(proposal, snapshot, memory)
        except HeldBackError as error:
            why = str(error)
            blocked = EventMessage(
                "Normal", "DisruptionBlocked", f"Cannot launch a replacement ({record.reason}): {why}"
            )
            self._say(record.candidate_names, blocked)
            seconds = error.held.seconds
            self.book.spare(record, SPARED_SECONDS if seconds is None else max(1.0, seconds))
        except Exception as error:  # noqa: BLE001 - a command that fails is rolled back
            _log.exception("Failed to start a disruption; continuing with the others", command=record.id)
            why = f"{type(error).__name__}: {error}"
        if why:
            _log.info(
                "Rejected a disruption before it started; the next pass decides again", command=record.id, reason=why
            )
            self._forget(record, memory)
            return False
        self.book.begun(record, memory)
        tell_moved_gangs(self._recorder, self._cluster, proposal, snapshot.together)
        self.loops.decided(record.candidate_names)
        self._begun(record, proposal)
        self.queue.add(record.holder)
        return True

    def _announced(self, record: CommandRecord, proposal: Proposal, memory: CommandMemory) -> str:
        for planned in proposal.replacements:
            try:
                marks = {**self.loops.marks(planned.pods), names.REPLACES_ANNOTATION: record.id}
                if (first := record.first) is not None:
                    (one,) = record.candidates
                    marks[names.AWAITS_ANNOTATION] = Awaited(one.name, one.uid, first.kind, first.name).to_text()
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

    def _placed(self, proposal: Proposal, snapshot: Snapshot, memory: CommandMemory) -> str:
        keys = {str(node.key): node.key for node in snapshot.nodes}
        for name, pods in proposal.placements.items():
            if self._cluster.assign(keys[name], pods):
                return Said(f"node {name} no longer accepts pods")
        memory.placed = tuple(keys[name] for name in proposal.placements)
        return ""

    def _forget(self, record: CommandRecord, memory: CommandMemory) -> None:
        for name in memory.new:
            self._cluster.claim_failed(name)
        self._writer.take(self._cluster.command_dropped(record))

    # ------------------------------------------------------------------ going on

    def reconcile(self, holder: str) -> ReconcileResult:
        """Take every step of one command that can be taken now."""
        known = self.book.known(holder)
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
        if pause == NOTHING:
            return ""
        activity = activity_of(record.reason)
        return next(filter(None, (pause.why(pool, activity) for pool in self.inspector.pools(record))), "")

    def _wait(self, command: Command, memory: CommandMemory, paused: str) -> ReconcileResult:
        """The command stays as it is, and the time does not count; one that cannot come to its end as it was decided is called off."""
        if not command.written:
            return self._call_off(command, memory, paused)
        memory.looks = None
        facts = self.inspector.facts(command.record, memory, None)
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

    def _failed(self, holder: str, memory: CommandMemory, error: ApiError) -> ReconcileResult:
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

    def _go_on(self, holder: str, memory: CommandMemory) -> ReconcileResult:
        self._tell_plans(memory)
        found: CommandVerdict | None = None
        drained = False
        for _ in range(_MOST_STEPS):
            command = self._cluster.command_held_by(holder)
            if command is None:
                return DONE
            record = command.record
            following = next_step(record, self.inspector.facts(record, memory, found, drained=drained))
            found = None
            if following.step is not CommandStep.MARK:
                self.book.closed(record)
            match following.step:
                case CommandStep.MARK:
                    if (postponed := self._postpones(command, memory, following.names)) is not None:
                        return postponed
                    self._mark(record, following.names)
                case CommandStep.CREATE:
                    self._create(record, memory, following.names)
                case CommandStep.VALIDATE:
                    if self.book.awaits_others(record, memory):
                        return ReconcileResult(requeue_after=AGAIN_SECONDS)
                    found = self.inspector.validated(record)
                case CommandStep.BEGIN_DRAIN:
                    self._write(_draining(record, self._clock.now()))
                case CommandStep.DRAIN:
                    drained = self._drained(following.names)
                    if not drained:
                        return ReconcileResult(requeue_after=DRAIN_SECONDS)
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

    def _tell_plans(self, memory: CommandMemory) -> None:
        """Not before the record: who reads a plan must know that its pods are going."""
        for key in memory.placed:
            self._plans.changed(key)
        memory.placed = ()

    def _postpones(self, command: Command, memory: CommandMemory, those: Iterable[str]) -> ReconcileResult | None:
        """What is done where the caches may not show candidates as they are, before these are closed; None where they do."""
        if not (why := self.inspector.why_postponed(those)):
            memory.postponed_at = None
            return None
        if memory.postponed_at is None:
            memory.postponed_at = self._clock.monotonic()
        if self._clock.monotonic() - memory.postponed_at >= OUTDATED_SECONDS:
            return self._call_off(command, memory, why)
        return ReconcileResult(requeue_after=AGAIN_SECONDS)

    # ------------------------------------------------------------------ steps

    def _commit(self, record: CommandRecord) -> None:
        """Write that the command exists: members first, so that the record never stands alone."""
        for one in record.candidates[1:]:
            claim = self.inspector.own(one)
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
            **_told_of(record),
        )

    def _write(self, record: CommandRecord) -> None:
        claim = self.inspector.own(record.candidates[0])
        known = claim.metadata.annotations
        marks = {names.COMMAND_ANNOTATION: encode_command(record)}
        if names.COMMAND_MEMBER_ANNOTATION in known:  # of an earlier command that was never written
            marks |= {names.COMMAND_MEMBER_ANNOTATION: None}  # type: ignore[dict-item]  # None removes a key
        self._writer.metadata(claim, annotations=marks)

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

    def _create(self, record: CommandRecord, memory: CommandMemory, those: Iterable[str]) -> None:
        """Create replacements; a name that is taken by one of this very command is a success."""
        for name in those:
            new = memory.new.get(name) or self.inspector.remembered(record, name)
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

    def _drained(self, those: Iterable[str]) -> bool:
        """Ask the pods of these candidates to leave, which stay for now; whether none is left that would hold a drain."""
        claims = (claim for name in those if (claim := self._cluster.claim(name)) is not None)
        return not sum(map(self._terminator.evict, claims))

    def _refused(self, memory: CommandMemory, name: str, error: object) -> None:
        _log.warning("Failed to create a replacement NodeClaim", nodeclaim=name, error=str(error))
        memory.failed.add(name)

    def _delete(self, record: CommandRecord, those: Iterable[str]) -> None:
        for name in those:
            claim = self._cluster.claim(name)
            if claim is None:
                continue
            self._say((name,), disrupting_node(record.reason))
            pods = self._cluster.pods_of(claim)
            grace = record.repair.grace if record.repair is not None else None
            self._writer.delete(self._bounded(claim, record))
            self.loops.removed(claim, pods)
            policy = self.inspector.policy(record, claim)
            metrics.claim_disrupted(claim, record.reason.lower(), pods, policy=policy, grace=grace)
            if record.repair is not None:
                metrics.unhealthy_disrupted(claim, record.repair.condition, grace)
            _log.info(DISRUPTING_NODE, nodeclaim=name, command=record.id, reason=record.reason.lower())
        if not record.replacements:
            self._count_decision(record)
        self.book.succeeded(self.inspector.pools(record))

    def _bounded(self, claim: NodeClaim, record: CommandRecord) -> NodeClaim:
        """With the time at which its drain ends, where a repair bounds it: only now that its replacements are there. An earlier one stays.

        The record on the claim says in the same write that it is the command's.
        """
        terms = record.repair
        if terms is None or terms.grace is None:
            return claim
        marks = earlier_end(claim, self._clock.now() + terms.grace)
        if not marks:
            return claim
        if claim.metadata.name == record.holder:
            mine = msgspec.structs.replace(terms, deadline=marks[names.TERMINATION_TIMESTAMP])
            marks = {**marks, names.COMMAND_ANNOTATION: encode_command(msgspec.structs.replace(record, repair=mine))}
        return self._writer.metadata(claim, annotations=marks)

    def _count_decision(self, record: CommandRecord) -> None:
        decision = "replace" if record.replacements else "delete"
        pools, reason = self.inspector.pools(record), record.reason.lower()
        if record.first is not None:
            decision = "terminate-first"
            metrics.terminate_first(reason, record.first.kind, pools)
        metrics.decision(decision, reason, consolidation_type(record.method), pools)

    # ------------------------------------------------------------------ calling off

    def _call_off(
        self,
        command: Command,
        memory: CommandMemory,
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
                marks = [names.COMMAND_ANNOTATION]
                terms, written = current.record.repair, claim.metadata.annotations.get(names.TERMINATION_TIMESTAMP)
                if terms is not None and terms.deadline == written and claim.metadata.deletion_timestamp is None:
                    marks.append(names.TERMINATION_TIMESTAMP)  # of a deletion that came to nothing
                try:
                    self._writer.metadata(claim, annotations=dict.fromkeys(marks))
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

    def _note_failure(self, record: CommandRecord, memory: CommandMemory, blamed: Iterable[str]) -> None:
        """Count it. A NodePool backs off where its nodes do not come up; a shortage, and what happens to candidates, is no fault of it."""
        states = {name: self.inspector.replacement(record, name, memory) for name in record.replacement_names}
        late = sum(state is not ReplacementState.INITIALIZED for state in states.values())
        decision, kind = "replace" if states else "delete", consolidation_type(record.method)
        if late:
            metrics.QUEUE_FAILURES.labels(decision, record.reason.lower(), kind).inc(late)
        else:
            metrics.FAILED_VALIDATIONS.labels(kind).inc(len(record.candidates))
        at_fault = any(self.inspector.is_at_fault(name, memory) for name in blamed)
        self.book.failed(record, self.inspector.pools(record) if at_fault else ())

    # ------------------------------------------------------------------ healing

    def _is_left_over(self, key: str) -> bool:
        claim = self._cluster.claim(key)
        if claim is None or not claim.metadata.uid or claim.metadata.deletion_timestamp is not None:
            return False
        if self._cluster.command_of(key) is not None:
            return False
        if is_marked(claim):
            return True
        if is_rebooting(claim):
            return False  # `Reboots` carries it out
        found = self._cluster.node_of(claim)
        if found is None or found.metadata.deletion_timestamp is not None:
            return False
        if self.inspector.is_interrupted(claim):
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


def tell_moved_gangs(recorder: Recorder, cluster: Cluster, proposal: Proposal, together: Collection[str]) -> None:
    """Of the gangs whose pods are disrupted all at once, that this is about to happen; `together`: as of `Snapshot`. O(pods) where there are any."""
    for key in sorted({group_of(pod) for pod in proposal.pods}.intersection(together)) if together else ():
        nodes = counted(len(proposal.candidates), "node")
        tell_gang(
            recorder,
            cluster,
            key,
            EventMessage(
                "Normal",
                "GangMoved",
                f"All pods of {told(key)} are being moved: {nodes} will be disrupted at once ({proposal.reason})",
            ),
        )


def _draining(record: CommandRecord, now: datetime) -> CommandRecord:
    """With the time at which its drain is called off."""
    first = record.first.begun(now) if record.first is not None else None
    return msgspec.structs.replace(record, phase=CommandPhase.DRAINING, first=first)


def _told_of(record: CommandRecord) -> dict[str, Any]:
    """What a log says of a command, besides."""
    told: dict[str, Any] = {}
    if (repair := record.repair) is not None:
        told |= {"condition": repair.condition, "termination_grace_period_seconds": repair.grace_seconds}
    if (first := record.first) is not None:
        told |= {"terminate_first": f"{first.kind} {first.name}"}
    return told


_CONSOLIDATION_TYPES: Final = {"empty": "empty", "multi": "multi", "single": "single", rebuilding.METHOD: "multi"}


def consolidation_type(method: str) -> str:
    """The metrics' label of a method. Source: core spec 6.1."""
    return _CONSOLIDATION_TYPES.get(method, "")


def _shows_marks(node: NodeView) -> bool:
    """Whether a disruption may have begun on a node and no command is known, as far as a snapshot shows."""
    going = node.claim is not None and node.claim.metadata.deletion_timestamp is not None
    if node.claim is None or node.command or node.rebooting or going:
        return False
    told = condition(node.claim.status.conditions, names.DISRUPTION_REASON)
    return node.deleting or is_marked(node.claim) or told is not None
