"""When consolidation has somebody look for a cheaper fleet for the pods of many nodes, and who that is: a planning process of its own."""

from typing import Final

from provisioner.controllers.core.consolidation import Looks
from provisioner.controllers.core.planner import Patience, Planner
from provisioner.controllers.metrics import Metrics
from provisioner.disruption.view import Improved
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.result import Result
from provisioner.support.clock import Clock

PATIENT: Final = Patience(grace=15.0)
"""Nobody waits for nodes; the process may still have to start."""
REST_SECONDS: Final = 60.0
"""Between two passes that ask, at the least;"""
RESTS: Final = 10
"""and so many times as long as the last one's searches took, so that they use a tenth of a core."""
_SECONDS: Final = 60.0
"""Of one search, at the most: more than the planner takes for any."""


class Rebuilding:
    """Lends consolidation a planner, pass by pass. One thread; any may stop it."""

    def __init__(self, planner: Planner, metrics: Metrics, clock: Clock) -> None:
        self._planner, self._metrics, self._clock = planner, metrics, clock
        self._spent = 0.0
        self._asked = False
        self._not_before = -1.0
        self._settled: Looks | None = None

    def improved(self, looks: Looks) -> Improved | None:
        """Who looks for cheaper fleets in a pass that begins now; None for nobody: the last one rests, or found nothing in what looks the same."""
        if self.rest() or (self._settled is not None and self._settled.same(looks)):
            self._planner.expect(0)  # takes notice of a process that has ended since
            return None
        self._spent, self._asked = 0.0, False
        return self._search

    def rest(self) -> float:
        """Seconds until it may be asked again."""
        return max(0.0, self._not_before - self._clock.monotonic())

    def ended(self, looks: Looks, *, settled: bool) -> None:
        """A pass is over that had the planner; `settled` where it found nothing to do and came to every node."""
        self._settled = looks if settled else None
        if self._asked:
            self._not_before = self._clock.monotonic() + max(REST_SECONDS, RESTS * self._spent)

    def stop(self) -> None:
        """End the process; a search that waits for it ends."""
        self._planner.stop()

    def _search(self, prepared: Prepared, result: Result) -> Result:
        began, self._asked = self._clock.monotonic(), True
        planned = self._planner.planned(prepared, result, _SECONDS)
        self._spent += self._clock.monotonic() - began
        self._metrics.rebuild(planned.outcome)
        return planned.result
