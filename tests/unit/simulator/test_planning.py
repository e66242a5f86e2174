"""The planning process of a simulation: a missing answer ends the simulation, instead of changing what comes of it."""

import sys

import pytest

from provisioner.packing.process import PackingRefusal
from provisioner.scheduling.problem import World
from provisioner.scheduling.result import Result
from provisioner.simulator.errors import SimulationError
from provisioner.simulator.planning import PatientPlanner


def test_no_answer_ends_the_simulation() -> None:
    planner = PatientPlanner((sys.executable, "-c", "raise SystemExit(5)"))
    with pytest.raises(SimulationError, match="did not answer"):
        planner.ask(World(), Result((), {}, ()), search_until=0.0, wait_until=0.0, rounds=1, seed=1)
    assert str(PackingRefusal.FAILED) in planner.failed
