"""What a run of the demo came to: its last line and whether it succeeded."""

import math
from dataclasses import dataclass

PLACEMENT_GOAL = 99.0
NOMINATION_GOAL = 95.0


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The figures of the last line; times in seconds after the first Deployment was applied, `nan` = never.

    Attributes:
        placement_goal, nomination_goal: percent of planned and of nominated pods that must run where they were planned;
            None for no goal.
    """

    pods: int
    running: int
    nodes: int
    usd_per_hour: float
    placement_percent: float
    first_running_seconds: float
    all_running_seconds: float
    nodes_left: int
    placement_goal: float | None = PLACEMENT_GOAL
    nominated_percent: float = math.nan
    nomination_goal: float | None = None

    def problems(self) -> tuple[str, ...]:
        """Why this run is not a success, a sentence each; empty when it is one."""
        found = []
        if self.running != self.pods:
            found.append(f"{self.running} of {self.pods} pods were running when the time was up")
        if self.nodes_left:
            found.append(f"{self.nodes_left} nodes were left after every Deployment was scaled to 0")
        if math.isnan(self.placement_percent):
            found.append("no pod had a plan, so planned placement could not be measured")
        elif self.placement_goal is not None and self.placement_percent < self.placement_goal:
            found.append(f"planned placement {_percent(self.placement_percent)} % is below {self.placement_goal:g} %")
        if (
            self.nomination_goal is not None and self.nominated_percent < self.nomination_goal
        ):  # NaN where nobody needed one
            found.append(
                f"placement of the nominated pods {_percent(self.nominated_percent)} % is below {self.nomination_goal:g} %"
            )
        return tuple(found)

    @property
    def exit_code(self) -> int:
        """0 only for a success."""
        return 1 if self.problems() else 0

    def line(self) -> str:
        """The last line of the demo's output."""
        problems = self.problems()
        if problems:
            return f"demo failed: {'; '.join(problems)}"
        return (
            f"demo ok: {self.running}/{self.pods} pods running, {self.nodes} nodes, {self.usd_per_hour:.2f} $/h, "
            f"planned placement {_percent(self.placement_percent)} %, "
            f"first pod running after {self.first_running_seconds:.1f} s, "
            f"all after {self.all_running_seconds:.1f} s, {self.nodes_left} nodes left"
        )


def _percent(value: float) -> str:
    # Rounded down: 98.99 is not shown as the 99 that it missed.
    return f"{math.floor(value * 10) / 10:g}"
