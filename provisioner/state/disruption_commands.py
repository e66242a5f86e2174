"""The disruption commands under way, as far as the state knows them. Not thread-safe: the owner serialises calls.

A command is known from the moment at which somebody begins it, before anything of it is written, and counts until its record is
taken off its first candidate or that is gone. What is read on claims is believed like what this process began: so a restart, and
a replica that stands by, know the same.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from provisioner.apis.command import CommandRecord, command_on
from provisioner.apis.karpenter import NodeClaim

_NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Attributes:
        record: what is, or will be, written on its first candidate.
        written: it is; until then it may be forgotten as if it had never been.
    """

    record: CommandRecord
    written: bool = False

    def __repr__(self) -> str:
        goes, comes = ", ".join(self.record.candidate_names), ", ".join(self.record.replacement_names)
        return f"<command {self.record.id} {self.record.reason}: {goes} → {comes or 'nothing'}>"


class Commands:
    """Every live command, by candidate and by replacement; a candidate belongs to one command at most. Each call is O(its claims)."""

    def __init__(self) -> None:
        self._by_holder: dict[str, Command] = {}
        self._holder_of: dict[str, str] = {}  # candidate -> the claim on which the record is
        self._replaces: dict[str, str] = {}  # replacement -> likewise
        self._refused: dict[str, str] = {}  # claim -> ID of a record on it that does not count
        self._frozen: tuple[Command, ...] | None = ()

    # ------------------------------------------------------------------ changes

    def begin(self, record: CommandRecord) -> frozenset[str]:
        """A command begins, or one that is not written yet gets its replacements.

        Returns:
            The candidates that are marked by it, or not any more; none where one of them belongs to another command, and nothing changes.
        """
        known = self._by_holder.get(record.holder)
        again = known is not None and not known.written and known.record.id == record.id
        if not again and any(name in self._holder_of for name in record.candidate_names):
            return _NOTHING
        return self._drop(record.holder) | self._put(Command(record))

    def claim_changed(self, claim: NodeClaim) -> frozenset[str]:
        """A claim is there, or is another one now; the candidates that are marked by it, or not any more."""
        name, record = claim.metadata.name, command_on(claim)
        known = self._by_holder.get(name)
        if record is None:
            self._refused.pop(name, None)
            return self._drop(name) if known is not None and known.written else _NOTHING
        if known is not None and known.written and known.record == record:
            return _NOTHING
        others = {self._holder_of.get(one, name) for one in record.candidate_names}
        # of two that want a candidate the first one known counts
        if others != {name} or self._refused.get(name) == record.id:
            self._refused[name] = record.id
            return self._drop(name) if known is not None and known.written else _NOTHING
        self._refused.pop(name, None)
        return self._drop(name) | self._put(Command(record, written=True))

    def claim_gone(self, name: str) -> frozenset[str]:
        """A claim does not exist any more: the command that was written on it is over."""
        self._refused.pop(name, None)
        return self._drop(name)

    def drop(self, record: CommandRecord) -> frozenset[str]:
        """A command that never came to be written; where its record was found on its claim meanwhile, it stays."""
        known = self._by_holder.get(record.holder)
        unwritten = known is not None and known.record.id == record.id and not known.written
        return self._drop(record.holder) if unwritten else _NOTHING

    # ------------------------------------------------------------------ questions

    def held_by(self, name: str) -> Command | None:
        """The command whose first candidate the claim is."""
        return self._by_holder.get(name)

    def of(self, name: str) -> Command | None:
        """The command of which the claim is a candidate."""
        holder = self._holder_of.get(name)
        return self._by_holder.get(holder) if holder is not None else None

    def for_which(self, name: str) -> Command | None:
        """The command that waits for the claim as one of its replacements."""
        holder = self._replaces.get(name)
        return self._by_holder.get(holder) if holder is not None else None

    def is_refused(self, record: CommandRecord) -> bool:
        """Whether a record that is written does not count, since a candidate of it belongs to another command, or did."""
        return self._refused.get(record.holder) == record.id

    def frozen(self) -> tuple[Command, ...]:
        """Every command, by its first candidate; the same tuple while nothing changes."""
        if self._frozen is None:
            self._frozen = tuple(one for _, one in sorted(self._by_holder.items()))
        return self._frozen

    # ------------------------------------------------------------------ helpers

    def _put(self, command: Command) -> frozenset[str]:
        record = command.record
        self._by_holder[record.holder] = command
        self._holder_of.update(dict.fromkeys(record.candidate_names, record.holder))
        self._replaces.update(dict.fromkeys(record.replacement_names, record.holder))
        self._frozen = None
        return frozenset(record.candidate_names)

    def _drop(self, holder: str) -> frozenset[str]:
        command = self._by_holder.pop(holder, None)
        if command is None:
            return _NOTHING
        _forget(self._holder_of, command.record.candidate_names, holder)
        _forget(self._replaces, command.record.replacement_names, holder)
        self._frozen = None
        return frozenset(command.record.candidate_names)


def _forget(index: dict[str, str], those: Iterable[str], holder: str) -> None:
    for name in those:
        if index.get(name) == holder:
            del index[name]
