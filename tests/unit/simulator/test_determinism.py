"""The same seed gives the same bytes: in another process, with other hashes, on a busy machine, with the planning process."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path

from provisioner.simulator.simulation import SimulationSetting, simulated
from provisioner.simulator.workload import Arrival, Scale
from tests.unit.simulator.days import market, pool, setting, template

REPOSITORY = Path(__file__).parents[3]
ELSEWHERE = "from tests.unit.simulator.test_determinism import written; print(written(7), end='')"


def a_day() -> SimulationSetting:
    """Two workloads of which a planner can make something, nodes that boot at different times, a consolidation, interruptions and shortages."""
    return setting(
        Arrival(at=5, name="web", template=template("web", "900m", "1500Mi"), count=12),
        Arrival(at=5, name="cache", template=template("cache", "300m", "3Gi"), count=8),
        Scale(at=150, name="web", count=3),
        seconds=300,
        packing="cost",
        boot_seconds=(30.0, 40.0, 50.0),
        pass_interval=10.0,
        objects=(pool(capacity_types=("spot", "on-demand")),),
        market=market(interruptions=15.0, shortages=0.3, seconds=(20.0, 50.0)),
    )


def written(seed: int) -> str:
    return json.dumps(asdict(simulated(a_day(), seed)))


def test_the_same_seed_gives_the_same_bytes_on_a_busy_machine_and_with_other_hashes() -> None:
    stopping = threading.Event()

    def burn() -> None:
        while not stopping.is_set():
            sum(range(1000))

    other = subprocess.Popen(
        [sys.executable, "-c", ELSEWHERE],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
    )
    busy = threading.Thread(target=burn)
    busy.start()
    try:
        here = written(7)
    finally:
        stopping.set()
        busy.join()
    there, _ = other.communicate()
    assert here == there.decode()
    figures = json.loads(here)
    assert figures["searches"] > 0, "else the planner is no part of this"
    assert figures["interruptions"] > 0
    assert figures["refused"] > 0
    assert written(8) != here, "another seed draws other boot times"
