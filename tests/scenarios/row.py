"""One scenario, and what the program is started with for it."""

from dataclasses import dataclass

from tests.scenarios.steps import Step

DEFAULT = "default"
GATES = "--feature-gates=NodeRepair=true,StaticCapacity=true,NodeOverlay=true,CapacityBuffer=true"
GROUPS: dict[str, tuple[str, ...]] = {
    DEFAULT: (GATES,),
    "impatient": (GATES, "--command-timeout=25s", "--registration-timeout=25s", "--drain-timeout=20s"),
    "karpenter": (GATES, "--consolidation=karpenter"),
    "capped": (GATES, "--max-disrupting-nodes=1"),
    "slow": (GATES, "--max-claims-per-minute=2"),
    "gates-off": (),
    "stopped": (GATES,),
}
"""The provisioner's flags by name of a group; rows of a group run side by side, groups one after another.

"stopped" is for rows that stop the disruption of the whole cluster.
"""


@dataclass(frozen=True)
class Row:
    """A scenario.

    Attributes:
        name: a sentence.
        steps: in order.
        group: see `GROUPS`.
        quick: part of `make test`.
        broken: why it fails at present, where that is known; it must fail then.
    """

    name: str
    steps: tuple[Step, ...]
    group: str = DEFAULT
    quick: bool = False
    broken: str = ""


def row(name: str, *steps: Step, group: str = DEFAULT, quick: bool = False, broken: str = "") -> Row:
    """Short for `Row`."""
    return Row(name, steps, group, quick, broken)
