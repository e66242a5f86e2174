"""What a run of the demo came to: its last line and whether it succeeded."""

import math
from dataclasses import dataclass

from provisioner.lab.harness.modes import PLACEMENT_GOAL
from provisioner.lab.harness.running import DemoRun


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What was seen of a run and what was left of it.

    Attributes:
        nodes_left: after every Deployment was scaled to 0.
        placement_goal, nomination_goal: percent of planned and of nominated pods that must run where they were planned;
            None for no goal.
    """

    out: DemoRun
    nodes_left: int
    placement_goal: float | None = PLACEMENT_GOAL
    nomination_goal: float | None = None

    def problems(self) -> tuple[str, ...]:
        """Why this run is not a success, a sentence each; empty when it is one."""
        found = []
        running, pods = self.out.counts.running, self.out.pods
        planned, nominated = self.out.placement.percent, self.out.nominations.percent
        if running != pods:
            found.append(f"{running} of {pods} pods were running when the time was up")
        if self.nodes_left:
            found.append(f"{self.nodes_left} nodes were left after every Deployment was scaled to 0")
        if math.isnan(planned):
            found.append("no pod had a plan, so planned placement could not be measured")
        elif self.placement_goal is not None and planned < self.placement_goal:
            found.append(f"planned placement {_percent(planned)} % is below {self.placement_goal:g} %")
        if self.nomination_goal is not None and nominated < self.nomination_goal:  # NaN where nobody needed one
            found.append(f"placement of the nominated pods {_percent(nominated)} % is below {self.nomination_goal:g} %")
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
        out, counts = self.out, self.out.counts
        return (
            f"demo ok: {counts.running}/{out.pods} pods running, {counts.nodes} nodes, {counts.usd_per_hour:.2f} $/h, "
            f"planned placement {_percent(out.placement.percent)} %, "
            f"first pod running after {out.first_running_seconds:.1f} s, "
            f"all after {out.all_running_seconds:.1f} s, {self.nodes_left} nodes left"
        )


def _percent(value: float) -> str:
    # Rounded down: 98.99 is not shown as the 99 that it missed.
    return f"{math.floor(value * 10) / 10:g}"
