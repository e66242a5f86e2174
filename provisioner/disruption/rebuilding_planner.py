"""When consolidation has somebody look for a cheaper fleet for the pods of many nodes, and who that is: a planning process of its own."""

from datetime import datetime, timedelta
from typing import Final

from provisioner.disruption.consolidation_state import Looks
from provisioner.disruption.view import Improved
from provisioner.packing.planner import Patience, Planner
from provisioner.packing.process import PackingRefusal
from provisioner.runtime import metrics
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.result import Result
from provisioner.support.clock import Clock

PATIENT: Final = Patience(least=3.0, grace=15.0)
"""Nobody waits for nodes, and a slow machine finds little in a second; the process may still have to start."""
REST_SECONDS: Final = 60.0
"""Between two passes that ask, at the least;"""
RESTS: Final = 10
"""and so many times as long as the last one took with its searches, so that they use a tenth of a core;"""
_DOUBLINGS: Final = 6
"""and twice as long for each command in a row that was called off, up to so many: what it bought is paid for in vain."""
_SECONDS: Final = 60.0
"""Of one search, at the most: more than the planner takes for any."""
_SETTLED: Final = timedelta(hours=1)
"""After so long it is asked again though nothing changed: nodes are no longer young."""


class Rebuilding:
    """Lends consolidation a planner, pass by pass. One thread; any may stop it."""

    def __init__(self, planner: Planner, clock: Clock) -> None:
        self._planner, self._clock = planner, clock
        self._began = 0.0
        self._asked = self._failed = False
        self._not_before = 0.0
        self._called_off = self._in_vain = 0
        self._settled: tuple[Looks, datetime] | None = None

    def searcher(self, looks: Looks, at: datetime) -> Improved | None:
        """Who looks for cheaper fleets in a pass that begins now; None for nobody: the last one rests, or found nothing in what looks the same.

        Args:
            looks: what the answer depends on.
            at: the wall clock.
        """
        settled = self._settled
        if self.rest() or (settled is not None and at < settled[1] and settled[0].same(looks)):
            self._planner.expect(0)  # takes notice of a process that has ended since
            return None
        self._began = self._clock.monotonic()
        self._asked = self._failed = False
        return self._search

    def rest(self) -> float:
        """Seconds until it may be asked again."""
        return max(0.0, self._not_before - self._clock.monotonic())

    def ended(
        self, looks: Looks, at: datetime, recheck: datetime | None, *, settled: bool, begun: bool, called_off: int
    ) -> None:
        """A pass is over that had the planner.

        Args:
            looks: as it began.
            at: the wall clock then.
            recheck: when the clock alone may change what it found; None for never.
            settled: it found nothing to do and came to every node.
            begun: it began something.
            called_off: commands of such passes that were called off by now.
        """
        until = at + _SETTLED
        self._settled = (looks, min(until, recheck or until)) if settled and not self._failed else None
        if called_off > self._called_off:
            self._in_vain = min(_DOUBLINGS, self._in_vain + 1)
        elif begun:
            self._in_vain = 0
        self._called_off = called_off
        if self._asked:
            now = self._clock.monotonic()
            self._not_before = now + max(REST_SECONDS, RESTS * (now - self._began)) * 2**self._in_vain

    def stop(self) -> None:
        """End the process; a search that waits for it ends."""
        self._planner.stop()

    def _search(self, prepared: Prepared, result: Result) -> Result:
        if self._failed:
            return result  # the next one would be waited for in vain, too
        self._asked = True
        planned = self._planner.planned(prepared, result, _SECONDS)
        metrics.REBUILDS.labels(planned.outcome).inc()
        self._failed = (
            isinstance(planned.outcome, PackingRefusal) and planned.outcome is not PackingRefusal.NOT_INSTALLED
        )
        return result if self._failed else planned.result
