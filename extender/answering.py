"""The verbs: bytes in, bytes out. Pure towards the cluster: the same question twice has the same answer, and a pass is
no placement. Whatever goes wrong inside, every node passes.
"""

from collections.abc import Callable
from typing import Final, Protocol

from extender import meters, placement
from extender.board import Board
from extender.facts import decode_member
from extender.plan import Member
from extender.protocol import (
    AskedPod,
    NodeNames,
    PreemptionQuestion,
    ProtocolError,
    Question,
    encode_failure,
    encode_preemption,
    encode_scores,
)
from provisioner.apis.reports import Reason, Report
from provisioner.support import logs

_log = logs.get_logger(__name__)

_LOG_EVERY_SECONDS: Final = 10.0


class Outbox(Protocol):
    """Where reports go; never blocks."""

    def put(self, report: Report) -> None:
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

    def filter(self, body: bytes) -> bytes:
        """ExtenderArgs -> ExtenderFilterResult."""
        began = self._board.clock.monotonic()
        try:
            question = Question(body)
        except ProtocolError as error:
            return self._unreadable("filter", error)
        answer, reply = self._guarded("filter", lambda: self._filter(question), question.echo)
        meters.REQUESTS.labels("filter", answer).inc()
        meters.SECONDS.labels("filter").observe(self._board.clock.monotonic() - began)
        return reply

    def prioritize(self, body: bytes) -> bytes:
        """ExtenderArgs -> HostPriorityList."""
        began = self._board.clock.monotonic()
        try:
            question = Question(body)
        except ProtocolError as error:
            self._unreadable("prioritize", error)
            return encode_scores(())
        answer, reply = self._guarded("prioritize", lambda: self._prioritize(question), lambda: encode_scores(()))
        meters.REQUESTS.labels("prioritize", answer).inc()
        meters.SECONDS.labels("prioritize").observe(self._board.clock.monotonic() - began)
        return reply

    def preempt(self, body: bytes) -> bytes:
        """ExtenderPreemptionArgs -> ExtenderPreemptionResult."""
        began = self._board.clock.monotonic()
        try:
            question = PreemptionQuestion(body)
        except ProtocolError as error:
            self._unreadable("preempt", error)
            return encode_preemption({})
        answer, reply = self._guarded(
            "preempt", lambda: self._preempt(question), lambda: question.kept(question.candidates)
        )
        meters.REQUESTS.labels("preempt", answer).inc()
        meters.SECONDS.labels("preempt").observe(self._board.clock.monotonic() - began)
        return reply

    def refuse(self, verb: str, problem: str) -> bytes:
        """The reply to a body that was not read at all."""
        failure = self._unreadable(verb, ProtocolError(problem))
        return failure if verb == "filter" else encode_scores(()) if verb == "prioritize" else encode_preemption({})

    def _filter(self, question: Question) -> tuple[str, bytes]:
        member = self._member(question.pod)
        self._await_nodes(question.names)
        board = self._board
        now = board.clock.monotonic()
        names = question.names
        with board.lock:
            standing = board.table.standing(member, now)
            verdict = placement.judge(member, standing, board.table.holds, names, question.pod.nominated)
            if verdict.steered:
                return "steered", question.only(verdict.steered)
            if not verdict.refused:
                return "echoed", question.echo()
            if len(verdict.refused) < len(names.all()):
                return "narrowed", question.without(verdict.refused)
            board.refusals.record(member, standing.coming, verdict.refused)
        reason = Reason.EMPTIED if standing.coming else Reason.HELD
        self._outbox.put(Report(uid=member.uid, node=min(verdict.refused), reason=reason))
        return "refused", question.without(verdict.refused)

    def _prioritize(self, question: Question) -> tuple[str, bytes]:
        member = self._member(question.pod)
        board = self._board
        with board.lock:
            standing = board.table.standing(member, board.clock.monotonic())
        scores = placement.score(member, standing, question.names)
        return ("scored" if scores else "echoed"), encode_scores(scores)

    def _preempt(self, question: PreemptionQuestion) -> tuple[str, bytes]:
        member = self._member(question.pod)
        board = self._board
        victims = {node: len(meta.pods or ()) for node, meta in question.candidates.items()}
        with board.lock:
            standing = board.table.standing(member, board.clock.monotonic())
            kept = placement.preemptible(member, standing, board.table.holds, victims)
        self._outbox.put(Report(uid=member.uid, node=min(victims, default=""), reason=Reason.PREEMPTED))
        return ("kept" if kept else "vetoed"), question.kept(kept)

    def _member(self, pod: AskedPod) -> Member:
        """The facts about who asks: the watch's, or the message's where the watch has not told of it yet."""
        with self._board.lock:
            known = self._board.table.member(pod.uid)
        return known if known is not None else decode_member(pod.raw)

    def _await_nodes(self, names: NodeNames) -> None:
        board = self._board
        with board.lock:
            expecting = board.table.expects_nodes
        if expecting:
            board.await_nodes(names.all())

    def _guarded(
        self, verb: str, judge: Callable[[], tuple[str, bytes]], echo: Callable[[], bytes]
    ) -> tuple[str, bytes]:
        """The judgement, or everything where there can be none."""
        try:
            complaint = self._board.complaint()
            if not complaint:
                return judge()
            meters.PASSED.labels("stale").inc()
            self._log("every node passes: what we know is out of date", why=complaint)
        except Exception as error:
            meters.PASSED.labels("error").inc()
            self._log("every node passes: a verb failed", error=error, verb=verb)
        return "echoed", echo()

    def _unreadable(self, verb: str, error: ProtocolError) -> bytes:
        meters.REQUESTS.labels(verb, "failed").inc()
        self._log("a message cannot be read", verb=verb, problem=str(error))
        return encode_failure(str(error))

    def _log(self, text: str, *, error: Exception | None = None, **fields: str) -> None:
        """Warn, at most once in a while: one fault may concern hundreds of calls a second."""
        now = self._board.clock.monotonic()
        if now - self._logged_at >= _LOG_EVERY_SECONDS:
            self._logged_at = now
            _log.warning(text, exc_info=error, extra=fields)
