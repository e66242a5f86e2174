"""The controllers of a term without threads: whoever runs the simulation has each do what is due, one after another."""

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from provisioner.disruption.consolidation_state import STILL_SECONDS
from provisioner.runtime.controller import Manager
from provisioner.support.clock import Clock
from provisioner.support.poller import Poller
from provisioner.support.workers import LEAST_REQUEUE_SECONDS, KeyedQueue, WorkerPool

PASSES: Final = frozenset({"disruption", "consolidation", "forceful-disruption"})
"""Controllers whose rounds look at the whole cluster, so that `--pass-interval` coarsens them."""
CLOCKS: Final = frozenset({"housekeeping", "launch-sets"})
"""Those that look every second whether something has expired: where passes are coarser, `CLOCK_SECONDS` do."""
CLOCK_SECONDS: Final = 10.0
_NEVER: Final = float("inf")


class InlinePool(WorkerPool):
    """Runs each call at once, in the caller's thread: of so many threads it has that one."""

    def __init__(self, workers: int, name: str = "pool") -> None:
        super().__init__(min(workers, 1), name)

    def submit(self, call: Callable[[], None]) -> None:
        """Run it; what it raises is raised."""
        call()


@dataclass
class _Round:
    """A periodic controller, and when its next round is due.

    Attributes:
        again: of `PASSES`, whether the next round is the second of its two.
    """

    poller: Poller
    due: float
    again: bool = False


class AttendedManager(Manager):
    """A `Manager` that starts no thread.

    Args:
        chance: of jitter.
        interval: least seconds of rest between rounds of `PASSES`; 0: as they want. They come in twos, `STILL_SECONDS` apart: the first sees what has
            changed, the second finds what has been still since, or empty, and may go. See also `CLOCKS`.
        left_out: names of controllers that do nothing.
        wanted: the instant of a round of `PASSES` for which the interval is not waited.

    Attributes:
        rounds: of periodic controllers that were made.
    """

    def __init__(
        self,
        clock: Clock,
        chance: random.Random,
        *,
        interval: float = 0.0,
        left_out: Collection[str] = (),
        wanted: Callable[[], float] = lambda: _NEVER,
    ) -> None:
        super().__init__(clock)
        self._wanted = wanted
        self._time, self._chance, self._interval, self._left_out = clock, chance, interval, left_out
        self._queues: list[KeyedQueue] = []
        self._pollers: list[_Round] = []
        self.rounds = 0

    def start(self) -> None:
        """Feed every controller what is there; `turn` has the work done."""
        for name, (controller, runner) in self.controllers.items():
            self.add(name, controller.initial() or ())
            if name in self._left_out:
                continue
            if isinstance(runner, KeyedQueue):
                runner.attended(self._chance)
                self._queues.append(runner)
            else:
                self._pollers.append(_Round(runner, self._time.monotonic() + runner.first))

    def turn(self) -> bool:
        """Each controller that has something to do now does one thing; whether there was any."""
        worked = False
        for queue in self._queues:
            worked |= queue.turn()
        for one in self._pollers:
            now = self._time.monotonic()
            if one.due <= now or one.poller.awake():
                worked = True
                self.rounds += 1
                wait = one.poller.once()
                if wait:
                    wait = max(wait, LEAST_REQUEUE_SECONDS)  # added to now, less would be now again, for ever
                one.due = _NEVER if wait is None else now + wait
                if one.poller.name in PASSES and wait is not None:
                    one.again = not one.again
                    rest = min(STILL_SECONDS, self._interval) if one.again else self._interval
                    one.due = max(one.due, min(now + rest, self._wanted()))
                elif one.poller.name in CLOCKS and wait is not None:
                    one.due = max(one.due, now + min(self._interval, CLOCK_SECONDS))
        return worked

    def next_time(self) -> float:
        """When somebody has something to do, as far as is known now."""
        due = [at for one in self._queues if (at := one.due_at()) is not None]
        return min([*due, *(one.due for one in self._pollers)], default=_NEVER)
