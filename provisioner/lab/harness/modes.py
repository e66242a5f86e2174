"""The three ways to run, by what may carry a plan into kube-scheduler (design §3.7); each must bring every pod home."""

import enum

from provisioner.lab.harness.session import ALL_PROGRAMS, PROVISIONER

PLACEMENT_GOAL = 99.0
NOMINATION_GOAL = 95.0


class Mode(enum.StrEnum):
    """What runs, in the words of `--mode`."""

    ALL_OFF = "all-off"
    """The provisioner alone, and it does not nominate: plain Karpenter."""
    NOMINATIONS_ONLY = "nominations-only"
    """The provisioner alone, with its defaults: what a managed control plane gets."""
    EVERYTHING_ON = "everything-on"
    """Webhook, extender and provisioner, with their defaults."""

    @property
    def words(self) -> str:
        """For people."""
        return self.value.replace("-", " ")

    @property
    def programs(self) -> tuple[str, ...]:
        """Which of ours are started."""
        return ALL_PROGRAMS if self is Mode.EVERYTHING_ON else (PROVISIONER,)

    @property
    def flags(self) -> tuple[str, ...]:
        """Of the provisioner; what is on stays at its default, because the defaults are what must be safe."""
        return ("--nominate=false",) if self is Mode.ALL_OFF else ()

    @property
    def placement_goal(self) -> float | None:
        """Percent of the planned pods that must run where they were planned; None where nothing steers all of them."""
        return PLACEMENT_GOAL if self is Mode.EVERYTHING_ON else None

    @property
    def nomination_goal(self) -> float | None:
        """Percent of the nominated pods that must run where they were nominated; None where none are."""
        return NOMINATION_GOAL if self is Mode.NOMINATIONS_ONLY else None
