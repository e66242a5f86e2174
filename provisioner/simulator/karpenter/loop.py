"""Karpenter's loop of disruption over time: one command after another, each of which waits before it is carried out. Pure: time is that of the views.

Source: 6.1, 6.5, 6.13.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from provisioner.disruption.consolidation_state import Looks
from provisioner.disruption.loops import NO_HOLDS
from provisioner.disruption.methods.drift import METHOD as DRIFT
from provisioner.disruption.proposal import Proposal
from provisioner.disruption.view import DisruptionView, MethodAnswer
from provisioner.simulator.karpenter.disruption import LOOK_AGAIN, POLL, VALIDATION_WAIT, disrupt, still_holds


class KarpenterLoop:
    """Asked at one instant after another, as a method of ours. One thread.

    Differs: emptiness and drift, too, are not looked for while nothing has changed, for `LOOK_AGAIN` at most.

    Args:
        interval: least time from a pass that found nothing to the next; no less than `POLL`, which is Karpenter's.

    Attributes:
        due: when it is to be asked again; None before it was asked at all.
    """

    def __init__(self, interval: timedelta = POLL) -> None:
        self._interval: Final = max(interval, POLL)
        self._awaited: Proposal | None = None
        self._settled: tuple[Looks, datetime] | None = None
        self.due: datetime | None = None

    def ask(self, view: DisruptionView) -> MethodAnswer:
        """The command that is carried out now, if any."""
        at = view.snapshot.at
        if self.due is not None and at < self.due:
            return MethodAnswer(recheck_at=self.due)
        view = replace(view, loops=NO_HOLDS)
        awaited, self._awaited = self._awaited, None
        if awaited is not None and (command := still_holds(view, awaited)) is not None:
            return self._begun(command, at)
        looks = _looks(view)
        if awaited is None and self._is_settled(looks, at):
            return self._rest(at)
        found = disrupt(view, skipped=(), after=awaited.method if awaited is not None else "").command
        if found is None:
            self._settled = looks, at
            return self._rest(at)
        if found.method == DRIFT:
            return self._begun(found, at)
        self._awaited, self.due = found, at + VALIDATION_WAIT
        return MethodAnswer(recheck_at=self.due, eligible=len(found.candidates))

    def _is_settled(self, looks: Looks, at: datetime) -> bool:
        return self._settled is not None and self._settled[0].same(looks) and at < self._settled[1] + LOOK_AGAIN

    def _rest(self, at: datetime) -> MethodAnswer:
        self.due = at + self._interval
        return MethodAnswer(recheck_at=self.due)

    def _begun(self, command: Proposal, at: datetime) -> MethodAnswer:
        """The next pass follows at once."""
        self.due, self._settled = at, None
        return MethodAnswer((command,), recheck_at=at, eligible=len(command.candidates))


def _looks(view: DisruptionView) -> Looks:
    return Looks.of(view.snapshot, (), (view.under_way, view.pause))
