"""What a term runs on: threads, the planning processes, and chance. The program takes the machine's own; a simulation brings others."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from provisioner.packing.process import PlannerProcess
from provisioner.runtime.controller import Manager
from provisioner.support.clock import Clock
from provisioner.support.workers import WorkerPool


@dataclass(frozen=True)
class Machinery:
    """Makes what runs.

    Attributes:
        manager: of the controllers.
        pool: of so many threads with a name.
        planner: a planning process.
        chance: what is left to chance.
    """

    manager: Callable[[Clock], Manager] = Manager
    pool: Callable[[int, str], WorkerPool] = WorkerPool
    planner: Callable[[Clock], PlannerProcess] = PlannerProcess
    chance: Callable[[], random.Random] = random.Random
