"""The hour: chaos's stage and mild faults under pods that come at a rate, looked at every 15 s."""

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import urllib3

from provisioner.kube.resources import NAMESPACES
from provisioner.lab.bench_scheduling import attempts, scheduler_metrics
from provisioner.lab.devcluster.progress import SILENT, StepProgress
from provisioner.lab.harness.programs import ProgramSpec
from provisioner.lab.harness.session import ALL_PROGRAMS, PROVISIONER
from tests.chaos.churn import Churn
from tests.chaos.faults import ABUSE, Director, mild
from tests.chaos.run import disruptions, settled, untried
from tests.chaos.stage import EXPIRING, ChaosCluster, stage
from tests.soak import counted
from tests.soak.laws import FLEET, Look
from tests.soak.load import Passing
from tests.soak.looking import of_programs

PODS_PER_SECOND: Final = 20.0
"""On a machine that goals are written for; elsewhere as many fewer as it is slower."""
LOOK_SECONDS: Final = 15.0
PAUSE: Final = (10.0, 25.0)
"""Least and most seconds between two faults."""
EVERY_METHOD_SECONDS: Final = 1800.0
"""In a run of so long every method of disruption takes nodes."""
REQUIRED: Final = (
    *(f"{what} of {name}" for what in ("memory", "threads", "descriptors", "watches") for name in ALL_PROGRAMS),
    *(f"series, {name}" for name in ALL_PROGRAMS),
    *(FLEET, "tasks", "keys of queues", "keys in heaps of queues"),
)


@dataclass(frozen=True)
class HourResult:
    """What was seen.

    Attributes:
        pods_per_second: that kube-scheduler gave a node.
        wrong: why the run proves less than it should.
    """

    looks: tuple[Look, ...]
    pods_per_second: float
    disrupted: dict[str, int]
    faults: int
    wrong: tuple[str, ...]


class _Looks:
    """Looks when it is time."""

    def __init__(self, place: ChaosCluster, counts: Path) -> None:
        self._place, self._counts = place, counts
        self._begun = self._next = place.session.clock.monotonic()
        self.made: list[Look] = []

    def check(self) -> None:
        """Called all the time."""
        now = self._place.session.clock.monotonic()
        if now >= self._next:
            self._next = now + LOOK_SECONDS
            self.made.append(Look(now - self._begun, of_programs(self._place, self._counts)))


def run(
    cloud: str,
    seed: int,
    seconds: float,
    rate: float,
    say: Callable[[str], None] = lambda _: None,
    progress: StepProgress = SILENT,
) -> HourResult:
    """Run it.

    Args:
        cloud: kwok or aws.
        rate: pods that come each second.
        say: told what begins.
    """
    counts: list[Path] = []

    def started_as(spec: ProgramSpec) -> ProgramSpec:
        if spec.name != PROVISIONER:
            return spec
        file = Path(spec.environment["DOVETAIL_CLOCK_OFFSET_FILE"]).with_name("counts")
        counts[:] = [file]
        return replace(spec, module="tests.soak.counted", environment={**spec.environment, counted.FILE: str(file)})

    with stage(cloud, random.Random(seed + 1), progress, every_method=True, started_as=started_as) as place:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ABUSE}}
        place.client.raw("POST", NAMESPACES.path(), body)
        churn = Churn(place.client, random.Random(seed + 2), 1.0, pools={"small": EXPIRING}, rate=rate)
        passing = Passing(place.client, random.Random(seed + 3))
        churn.start()
        passing.start()
        settled(place, churn)
        looks = _Looks(place, counts[0])
        began, bound = time.monotonic(), _bound(place)
        director = Director(place, random.Random(seed), PAUSE, say, mild(cloud))
        director.run(seconds, looks.check)
        per_second = (_bound(place) - bound) / (time.monotonic() - began)
        churn.stop()
        passing.stop()
        disrupted = dict(disruptions(place))
        wrong = [f"{name} ended {number} times: what it kept is not known" for name, number in place.restarts.items()]
        wrong += untried(disrupted) if seconds >= EVERY_METHOD_SECONDS else []
        say(f"{passing.came} workloads came once")
        return HourResult(tuple(looks.made), per_second, disrupted, len(director.begun), tuple(wrong))


def _bound(place: ChaosCluster) -> float:
    with suppress(urllib3.exceptions.HTTPError):
        return attempts(scheduler_metrics(place.session))
    return float("nan")
