"""The planning process, asked with time that does not count: it ends by the rounds that it is allowed, however busy the machine is."""

from collections.abc import Sequence
from typing import Final

from provisioner.packing.process import COMMAND, PackingRefusal, PlannerProcess, ProcessReply
from provisioner.scheduling.problem import World
from provisioner.scheduling.result import Result
from provisioner.simulator.errors import SimulationError
from provisioner.support.clock import SystemClock

PATIENCE_SECONDS: Final = 900.0
"""Of the machine; a start or a search that takes longer is no answer, and the simulation ends."""
_COMMAND: Final = (*COMMAND[:-1], "86400")
"""It does not end by itself between two questions, however long the simulation has other things to do."""


class PatientPlanner(PlannerProcess):
    """Waits for each answer.

    Args:
        command: starts it.

    Attributes:
        failed: why there was none; "" where every question was answered.
        searches: that were made.
    """

    def __init__(self, command: Sequence[str] = _COMMAND) -> None:
        self._machine = SystemClock()
        super().__init__(self._machine, command=command, start_seconds=PATIENCE_SECONDS)
        self.failed, self.searches = "", 0

    def ask(
        self,
        world: World,
        result: Result,
        *,
        search_until: float,  # noqa: ARG002 - in virtual time, which does not pass meanwhile
        wait_until: float,  # noqa: ARG002 - likewise
        rounds: int,
        seed: int,
    ) -> ProcessReply | PackingRefusal:
        """See `PlannerProcess`.

        Raises:
            SimulationError: it did not answer, so that the simulation would not be the same again.
        """
        end = self._machine.monotonic() + PATIENCE_SECONDS
        reply = super().ask(world, result, search_until=end, wait_until=end, rounds=rounds, seed=seed)
        if isinstance(reply, PackingRefusal) and reply not in (PackingRefusal.NOT_INSTALLED, PackingRefusal.TOO_LARGE):
            self.failed = f"the planning process did not answer ({reply}: {self.problem})"
            raise SimulationError(self.failed)
        self.searches += 1
        return reply
