"""The verbs: bytes in, bytes out. Pure towards the cluster, and a pass is no placement. The same question twice has the same
answer, but for samples of many nodes, and for `preempt`: a veto is given once. Whatever goes wrong inside, and whatever a message holds, every node passes.
"""

from collections.abc import Callable, Collection
from typing import Final, Protocol

from extender import metrics, placement
from extender.board import Board, TableBusyError
from extender.breaker import SLOW_SECONDS, Breaker
from extender.facts import FamilyMember, decode_member
from extender.plan import NodeArrival, NodeStanding
from extender.protocol import (
    AskedPod,
    ExtenderProtocolError,
    ExtenderQuestion,
    MetaVictims,
    NodeNames,
    PreemptionQuestion,
    encode_failure,
    encode_scores,
)
from extender.vetoes import Veto
from provisioner.apis.reports import PodReport, ReportReason
from provisioner.support import logs
from provisioner.values import jsontext
from provisioner.values.resources import Resources

_log = logs.get_logger(__name__)

_LOG_EVERY_SECONDS: Final = 10.0
PROMPT_BYTES: Final = 512 * 1024
"""The longest body that is answered by the thread that all connections share; 5,000 names are 250 KB and take it 1 ms."""
PROMPT_LOCK_SECONDS: Final = 0.002
"""How long that thread waits for the table; a watch needs it for some 20 us an event."""
HUNG_LOCK_SECONDS: Final = 1.0
HUNG_SECONDS: Final = 30.0
"""How long no question is judged in time before a new process is worth its caches."""


class Outbox(Protocol):
    """Where reports go; never blocks."""

    def put(self, report: PodReport) -> None:
        """Take one report."""
        ...


class Answerer:
    """Answers kube-scheduler from the board; thread-safe.

    Args:
        board: what is known.
        outbox: takes reports about pods that are left without a node.
    """

    def __init__(self, board: Board, outbox: Outbox) -> None:
        self._board = board
        self._outbox = outbox
        self._logged_at = -_LOG_EVERY_SECONDS
        self._turn = 0  # where the next sample of nodes begins; guarded by the board's lock
        self.breaker = Breaker(board.clock.monotonic, self._breaker_changed)

    def filter(self, body: bytes) -> bytes:
        """ExtenderArgs -> ExtenderFilterResult."""
        return self._read("filter", body)

    def prioritize(self, body: bytes) -> bytes:
        """ExtenderArgs -> HostPriorityList."""
        return self._read("prioritize", body)

    def _read(self, verb: str, body: bytes) -> bytes:
        began = self._board.clock.monotonic()
        try:
            question = ExtenderQuestion(body)
        except ExtenderProtocolError as error:
            return self._unreadable(verb, error)
        return self._answer(verb, question, began)

    def _answer(self, verb: str, question: ExtenderQuestion, began: float) -> bytes:
        if verb == "prioritize":
            return self._guarded(verb, began, lambda: self._prioritize(question), lambda: encode_scores(()))
        return self._guarded(verb, began, lambda: self._filter(question), question.echo)

    def promptly(self, verb: str, body: bytes) -> bytes | None:
        """What `filter` or `prioritize` answers, by a thread that must not wait: None where it might have to.

        That is so while somebody else has the table for longer than a moment, for a node that is waited for, and for bodies that are long or cannot
        be read.
        """
        began = self._board.clock.monotonic()
        if len(body) > PROMPT_BYTES:
            return None
        board = self._board
        try:
            question = ExtenderQuestion(body)
            if verb == "prioritize":
                question.names.all()  # decoded before anybody has to wait for the table
            with board.locked(PROMPT_LOCK_SECONDS):  # whoever asks for it again below has it at once
                waits = verb == "filter" and board.table.expects_nodes and board.awaitable(question.names.all())
                return None if waits else self._answer(verb, question, began)
        except (ExtenderProtocolError, TableBusyError):
            return None

    def preempt(self, body: bytes) -> bytes:
        """ExtenderPreemptionArgs -> ExtenderPreemptionResult.

        Raises:
            ExtenderProtocolError: it cannot be read; every reply that says nothing would be a veto.
        """
        began = self._board.clock.monotonic()
        try:
            question = PreemptionQuestion(body)
        except ExtenderProtocolError as error:
            return self._unreadable("preempt", error)
        return self._guarded(
            "preempt", began, lambda: self._preempt(question), lambda: question.kept(question.candidates)
        )

    def refuse(self, verb: str, problem: str) -> bytes:
        """The reply to a body that was not read at all.

        Raises:
            ExtenderProtocolError: the verb is `preempt`, where every reply that says nothing would be a veto.
        """
        return self._unreadable(verb, ExtenderProtocolError(problem))

    def _filter(self, question: ExtenderQuestion) -> tuple[str, bytes]:
        member = self._member(question.pod)
        self._await_nodes(question.names)
        board = self._board
        now = board.clock.monotonic()
        names = question.names
        version = question.pod.version() if member.group else 0
        with board.locked():
            standing = board.table.standing(member, now)
            holds = board.table.room.holds
            verdict, sampled = self._judged(member, standing, question, now)
            if verdict.steered:
                board.table.assume(member.uid, verdict.steered, now, version)
                return "steered", question.only(verdict.steered)
            if standing.alone:  # nothing that the provisioner does not know
                board.refusals.record(member, standing)
                return "refused", question.none(verdict.refused)
            if holds and not placement.is_exempt(member):
                passing = sampled if sampled is not None else names.as_set().difference(verdict.refused)
                board.table.suppose(member, frozenset(filter(holds.__contains__, passing)), now, version)
            if sampled is not None:
                return "sampled", question.those(sampled)
            if not verdict.refused:
                return "echoed", question.echo()
            if len(verdict.refused) < len(names.as_set()):
                return "narrowed", question.without(verdict.refused)
            board.refusals.record(member, standing, verdict.refused)
        reason = ReportReason.EMPTIED if standing.coming else ReportReason.HELD
        self._outbox.put(PodReport(uid=member.uid, node=min(verdict.refused), reason=reason))
        return "refused", question.without(verdict.refused)

    def _judged(
        self, member: FamilyMember, standing: NodeStanding, question: ExtenderQuestion, now: float
    ) -> tuple[placement.PlacementVerdict, list[str] | None]:
        """What is to be said of the nodes, and those of them that pass where not all have to. The board's lock is held."""
        table = self._board.table
        holds, supposed, disrupted = table.room.holds, table.supposed, table.nodes.disrupted(now)

        def judge(names: NodeNames) -> placement.PlacementVerdict:
            return placement.judge(member, standing, holds, names, question.pod.nominated, disrupted, supposed)

        def sample(names: NodeNames, refused: Collection[str]) -> list[str] | None:
            return placement.sample(names, placement.SAMPLE, table.room.levels, start, refused)

        if (
            len(table.nodes) <= placement.SAMPLE
            or table.nodes.avoided
            or not placement.takes_any(member)
            or standing.alone
        ):
            return judge(question.names), None
        # no rhythm: pods that ask in the same order again see other nodes
        self._turn = (self._turn * 1_103_515_245 + 12_345) % (1 << 31)
        start = self._turn >> 8
        # of many thousand nodes some thousand are enough to find a hundred among; to read the names of all takes a millisecond
        some = None if standing.home or standing.others else question.names.window(start)
        if some is not None:
            verdict = judge(some)
            if (sampled := sample(some, verdict.refused)) is not None:
                return verdict, sampled
        verdict = judge(question.names)
        return verdict, None if verdict.steered else sample(question.names, verdict.refused)

    def _prioritize(self, question: ExtenderQuestion) -> tuple[str, bytes]:
        member = self._member(question.pod)
        board = self._board
        question.names.all()  # decoded before anybody has to wait for the table
        with board.locked():
            standing = board.table.standing(member, board.clock.monotonic())
            scores = placement.score(
                member, standing, question.names, board.table.room.scores, board.table.families.company
            )
        return ("scored" if scores else "echoed"), encode_scores(scores)

    def _preempt(self, question: PreemptionQuestion) -> tuple[str, bytes]:
        member = self._member(question.pod)
        board = self._board
        with board.locked():
            now = board.clock.monotonic()
            holds = board.table.room.holds
            victims = {node: self._victims(meta, node in holds) for node, meta in question.candidates.items()}
            standing = board.table.standing(member, now)
            kept = placement.preemptible(member, standing, holds, victims, board.table.nodes.disrupted(now))
            coming = standing.coming if placement.needs_nobodys_room(member, standing) else ""
            if coming and Veto(member.uid, coming) in board.vetoes:
                board.await_node(coming)  # that its Node joined is why kube-scheduler asks again, most likely
            arrival = board.table.arrival(coming)
            comes = arrival is not NodeArrival.NONE  # what may never come is not worth waiting for
            if (
                comes or not kept
            ) and not standing.alone:  # whose own nodes alone would pass: nobody else's pods are to go
                everywhere = kept or [node for node, evicted in victims.items() if evicted.pods]
                veto = Veto(member.uid, coming, arrival is NodeArrival.JOINED)
                kept = [] if board.vetoes.spend(veto, now) else everywhere
        self._outbox.put(PodReport(uid=member.uid, node=min(victims, default=""), reason=ReportReason.PREEMPTED))
        return ("kept" if kept else "vetoed"), question.kept(kept)

    def _victims(self, meta: MetaVictims, held: bool) -> placement.Victims:
        """What an eviction would free; what room that is, only where some is held. The board's lock is held."""
        pods = meta.pods or ()
        known = (self._board.table.families.members.get(pod.uid) for pod in pods) if held else ()
        return placement.Victims(len(pods), Resources.total(one.requests for one in known if one is not None))

    def _member(self, pod: AskedPod) -> FamilyMember:
        """The facts about who asks: the watch's, or the message's where the watch has not told of it yet."""
        board = self._board
        with board.locked():
            board.table.recall(pod.uid, board.clock.monotonic())
            known = board.table.families.members.get(pod.uid)
        return known if known is not None else jsontext.decode_trimmed(decode_member, pod.raw)[0]

    def _await_nodes(self, names: NodeNames) -> None:
        board = self._board
        with board.locked():
            expecting = board.table.expects_nodes
        if expecting:
            board.await_nodes(names.all())

    def _guarded(
        self, verb: str, began: float, judge: Callable[[], tuple[str, bytes]], echo: Callable[[], bytes]
    ) -> bytes:
        """The reply by judgement, or with everything where there can be none."""
        answer, reply = self._judgement(verb, judge) or ("echoed", echo())
        metrics.REQUESTS.labels(verb, answer).inc()
        metrics.SECONDS.labels(verb).observe(self._board.clock.monotonic() - began)
        return reply

    def _judgement(self, verb: str, judge: Callable[[], tuple[str, bytes]]) -> tuple[str, bytes] | None:
        if not self.breaker.admits():
            metrics.PASSED.labels("breaker").inc()
            return None
        began = self._board.clock.monotonic()
        try:
            problem = self._board.problem()
            if not problem:
                return judge()
            metrics.PASSED.labels("stale").inc()
            self._log("Passing all nodes because the state of the extender is out of date", why=problem)
        except Exception as error:  # noqa: BLE001 - an extender that fails passes every node
            metrics.PASSED.labels("error").inc()
            self._log("Passing all nodes because a request failed", error=error, verb=verb)
        finally:
            self.breaker.record(self._board.clock.monotonic() - began)
        return None

    def hung(self) -> str:
        """Why this process should be started anew, "" while it should not: what liveness asks.

        Takes `HUNG_LOCK_SECONDS` at most.
        """
        try:
            with self._board.locked(HUNG_LOCK_SECONDS):
                pass
        except TableBusyError as error:
            return str(error)
        seconds = self.breaker.open_seconds()
        return f"no request was answered in time for {seconds:.0f} s" if seconds >= HUNG_SECONDS else ""

    def _breaker_changed(self, is_open: bool) -> None:
        metrics.BREAKER_OPEN.set(is_open)
        if is_open:
            _log.warning("Passing all nodes temporarily because filtering takes too long", slow_seconds=SLOW_SECONDS)
        else:
            _log.info("Filtering nodes again")

    def _unreadable(self, verb: str, error: ExtenderProtocolError) -> bytes:
        """The reply to what cannot be read.

        Raises:
            ExtenderProtocolError: this one, as of `preempt`.
        """
        metrics.REQUESTS.labels(verb, "failed").inc()
        self._log("Failed to read a request", verb=verb, problem=str(error))
        if verb == "prioritize":
            return encode_scores(())
        if verb == "preempt" and not error.reply:
            raise error
        return error.reply or encode_failure(str(error))

    def _log(self, text: str, *, error: Exception | None = None, **fields: str) -> None:
        """Warn, at most once in a while: one fault may concern hundreds of calls a second."""
        now = self._board.clock.monotonic()
        if now - self._logged_at >= _LOG_EVERY_SECONDS:
            self._logged_at = now
            _log.warning(text, exc_info=error, extra=fields)
