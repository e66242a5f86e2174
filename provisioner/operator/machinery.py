"""What a term runs on: threads, the planning processes, and chance; and whose rules it follows.

The program takes the machine's own, and ours; a simulation brings others.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from provisioner.disruption.controller import Method
from provisioner.packing.process import PlannerProcess
from provisioner.provisioning.planning import Solve
from provisioner.runtime.controller import Manager
from provisioner.support.clock import Clock
from provisioner.support.workers import WorkerPool


@dataclass(frozen=True)
class OtherRules:
    """Whose answers are carried out in place of ours: what others would launch, and disrupt while it still works.

    Batches then close as the flags say and no earlier, nothing is planned again before its launch, and nobody looks for cheaper fleets.

    Attributes:
        solve: where pods go.
        methods: of disruption, in the order in which they are asked; none beside them.
    """

    solve: Solve
    methods: Sequence[Method]


@dataclass(frozen=True)
class Machinery:
    """Makes what runs.

    Attributes:
        manager: of the controllers.
        pool: of so many threads with a name.
        planner: a planning process.
        chance: what is left to chance.
        rules: in place of ours.
    """

    manager: Callable[[Clock], Manager] = Manager
    pool: Callable[[int, str], WorkerPool] = WorkerPool
    planner: Callable[[Clock], PlannerProcess] = PlannerProcess
    chance: Callable[[], random.Random] = random.Random
    rules: OtherRules | None = None
