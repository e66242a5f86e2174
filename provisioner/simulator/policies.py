"""By whose rules a simulated day is decided: Dovetail's, as the program decides, or Karpenter's, for comparison."""

import enum
from dataclasses import replace
from datetime import timedelta
from math import inf
from typing import Final

from provisioner.apis import names
from provisioner.disruption.controller import METHODS, Method
from provisioner.disruption.methods import repair, static_drift
from provisioner.operator.machinery import OtherRules
from provisioner.options import Options
from provisioner.scheduling.problem import Packing
from provisioner.simulator.karpenter.loop import KarpenterLoop
from provisioner.simulator.karpenter.provisioning import provision
from provisioner.simulator.virtual_time import BEGIN

_METHOD: Final = "karpenter"
_KEPT: Final = tuple(one for one in METHODS if one.name in (repair.METHOD, static_drift.METHOD))
"""What Karpenter's rules leave out here."""


class Policy(enum.StrEnum):
    """Whose rules decide."""

    DOVETAIL = "dovetail"
    KARPENTER = "karpenter"


class PolicyRules:
    """The rules of one run, which remember what they have decided.

    Args:
        interval: least seconds between two looks at all nodes for disruption.

    Attributes:
        rules: for the term; None where it follows its own.
    """

    def __init__(self, policy: Policy, interval: float) -> None:
        self._loop = KarpenterLoop(timedelta(seconds=interval)) if policy is Policy.KARPENTER else None
        self.rules: OtherRules | None = None
        if (loop := self._loop) is not None:
            methods = (*_KEPT, Method(_METHOD, names.REASON_UNDERUTILIZED, loop.ask))
            self.rules = OtherRules(lambda prepared, pods, avoided: provision(prepared, pods, shut=avoided), methods)

    def options(self, options: Options) -> Options:
        """Those with which the term runs: Karpenter nominates no pods, and has no planner."""
        return options if self._loop is None else replace(options, nominate="false", packing=Packing.GREEDY.value)

    def due(self) -> float:
        """When the next look at all nodes is wanted, though the interval is not over; in seconds since the begin."""
        at = self._loop.due if self._loop is not None else None
        return inf if at is None else (at - BEGIN).total_seconds()
