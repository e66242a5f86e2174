"""What the cases of `dovetail bench-cluster` have in common."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from provisioner.lab.devcluster.progress import StepProgress
from provisioner.lab.harness.modes import Mode
from provisioner.lab.harness.results import Figure
from provisioner.lab.harness.session import Report, Setup

PODS = 1000
PODS_RUNNING = "workload running"
LEAST_UP = "fewest pods up"
ALL_REPLACED = "nodes replaced"
MUST = (PODS_RUNNING, LEAST_UP, ALL_REPLACED)
"""How the names of figures end without whose goal a run is a failure."""


@dataclasses.dataclass(frozen=True, slots=True)
class Bench:
    """What every case needs.

    Attributes:
        logs: where the logs of a run are kept.
        quick: small fleets and short waits: shows that a case works, and measures nothing.
        keep_logs: also those of a run that went well.
    """

    say: Report
    console: Console
    progress: StepProgress
    logs: Path
    pods: int = PODS
    quick: bool = False
    keep_logs: bool = False

    def setup(self, name: str, mode: Mode) -> Setup:
        """A session's setup for one case in one mode."""
        name = f"{name}-{mode}"
        return Setup(f"bench-{name}", mode.programs, mode.flags, self.logs / f"{name}-logs")


Case = Callable[[Bench, Mode, str], list[Figure]]
