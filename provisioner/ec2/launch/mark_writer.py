"""Writes marks on claims so that it is known afterwards whether each is there.

An answer may be lost, and a write that was given up may still arrive. Every write is therefore guarded by the version of the claim that was read:
once the claim has another version it can never arrive any more, and reading it tells what became of it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from provisioner.apis.karpenter import NodeClaim
from provisioner.ec2.launch import launch_marks
from provisioner.ec2.launch.launch_marks import Mark
from provisioner.kube.errors import ApiError, NotFound
from provisioner.support import logs
from provisioner.support.workers import WorkerPool, run_parallel

TRIES: Final = 3
_AT_ONCE: Final = 16
_log = logs.get_logger(__name__)


class MarkRefusedError(Exception):
    """The mark is not on the claim, and this write will never put it there."""


class MarkUnknownError(Exception):
    """The mark may be on the claim, or may yet come; nobody may rely on either."""


@dataclass(frozen=True, slots=True)
class Marked:
    """What became of the marks of one attempt.

    Attributes:
        written: all of its claims, in order of their ordinals 0, 1, 2 and so on; empty where nothing may be launched by this attempt.
        left: the claims that another attempt may launch.
        turned_away: claims that this attempt does not launch, with the reason.
    """

    written: Mapping[Mark, NodeClaim]
    left: tuple[NodeClaim, ...]
    turned_away: tuple[tuple[NodeClaim, str], ...]


class Marker:
    """Thread-safe, with threads of its own.

    Args:
        write: puts a mark on a claim, or takes it off, if the claim still has the version that it was read with; raises `ApiError`.
        read: a claim by name, from the API server; raises `ApiError`.
        spent: whether nothing more will come of the attempt of this tag, so that its mark may be overwritten.
    """

    def __init__(
        self,
        write: Callable[[NodeClaim, Mark | None], NodeClaim],
        read: Callable[[str], NodeClaim],
        spent: Callable[[str], bool],
    ) -> None:
        self._write, self._read, self._spent = write, read, spent
        self._pool = WorkerPool(_AT_ONCE, "marks")

    def close(self) -> None:
        """Write no more."""
        self._pool.close(0.2)

    def commit(self, wanted: Mapping[Mark, NodeClaim]) -> Marked:
        """Write the marks of an attempt that nobody else knows yet, and that of ordinal 0 last: whoever finds it knows that the others were written.

        Claims that cannot be marked are left out, and their ordinals given to others. Where it is not known whether a claim is marked, its ordinal must
        not be used, now or later: then nothing may be launched by this attempt.
        """
        first, *others = wanted
        turned_away: list[tuple[NodeClaim, str]] = []
        head: NodeClaim | None = wanted[first]
        written, unsure = self._put_all({mark: wanted[mark] for mark in others}, turned_away)
        while head is not None and not unsure:
            ordinals = {first.ordinal: head} | {mark.ordinal: claim for mark, claim in written.items()}
            moves = launch_marks.moves(ordinals, set(range(len(wanted))) - ordinals.keys())
            if moves:
                for start, _ in moves:
                    del written[replace(first, ordinal=start)]
                to = {replace(first, ordinal=end): ordinals[start] for start, end in moves}
                moved, unsure = self._put_all(to, turned_away)
                written |= moved
                continue
            done, unsure = self._put_all({first: head}, turned_away)
            if done:
                whole = done | {mark: written[mark] for mark in sorted(written)}
                return Marked(whole, (), tuple(turned_away))
            head = written.pop(max(written)) if written and not unsure else None  # somebody else has to come first
        left = (*written.values(), *(() if head is None else (head,)))
        return Marked({}, left, tuple(turned_away))

    def take_off(self, claims: Iterable[NodeClaim]) -> None:
        """See that these claims have no mark, where that can be done at once; one that stays costs a search after a restart, and nothing else."""
        for outcome in run_parallel(self._pool, lambda claim: self._write(claim, None), list(claims)):
            if outcome.error is not None:
                _log.debug(
                    "Failed to remove a launch mark; it is resolved after the next restart",
                    nodeclaim=outcome.item.metadata.name,
                    error=repr(outcome.error),
                )

    def _put_all(
        self, wanted: Mapping[Mark, NodeClaim], turned_away: list[tuple[NodeClaim, str]]
    ) -> tuple[dict[Mark, NodeClaim], bool]:
        """Those that were written, and whether of some it is not known; who was not written joins `turned_away`."""
        written, unsure = {}, False
        for outcome in run_parallel(self._pool, lambda item: self.put(item[1], item[0]), wanted.items()):
            mark, claim = outcome.item
            if outcome.error is None:
                written[mark] = outcome.unwrap()
                continue
            unsure = unsure or not isinstance(outcome.error, MarkRefusedError)
            if not isinstance(outcome.error, MarkRefusedError | MarkUnknownError):
                _log.error(
                    "Failed to write the launch mark of a NodeClaim",
                    nodeclaim=claim.metadata.name,
                    error=repr(outcome.error),
                )
            turned_away.append((claim, str(outcome.error)))
        return written, unsure

    def put(self, claim: NodeClaim, mark: Mark) -> NodeClaim:
        """The claim with the mark on it.

        Raises:
            MarkRefusedError: it cannot be marked: it is gone, going, or in another launch.
            MarkUnknownError: the API server did not say.
        """
        before = launch_marks.mark_of(claim)
        error, may_come = ApiError(0, "", "no attempt was made"), False
        for _ in range(TRIES):
            may_come = True
            try:
                return self._write(claim, mark)
            except NotFound as gone:
                raise MarkRefusedError(str(gone)) from gone
            except ApiError as failed:
                error = failed
            try:
                current = self._read(claim.metadata.name)
            except NotFound as gone:
                raise MarkRefusedError(str(gone)) from gone
            except ApiError:
                continue  # the same guarded write again: it cannot be done twice
            if current.metadata.uid != claim.metadata.uid:
                raise MarkRefusedError("another NodeClaim with the same name exists")
            there = launch_marks.mark_of(current)
            if there == mark:
                return current
            if current.metadata.resource_version != claim.metadata.resource_version:
                if current.metadata.deletion_timestamp is not None or current.status.provider_id:
                    raise MarkRefusedError("the NodeClaim is being deleted or already has an instance")
                if there is not None and there != before and not self._spent(there.tag):
                    raise MarkRefusedError("the NodeClaim is part of another launch")
                claim, may_come = current, False
        if may_come:
            raise MarkUnknownError(str(error)) from error
        raise MarkRefusedError(str(error)) from error
