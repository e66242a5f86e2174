"""Four weeks in virtual time: `dovetail simulate` of a small fleet, looked at from outside while it runs."""

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from provisioner.lab.harness.workload import REPOSITORY
from tests.soak import counted
from tests.soak.laws import Look
from tests.soak.looking import of_process, told

NAME: Final = "simulator"
REQUIRED: Final = tuple(f"{what} of {NAME}" for what in ("memory", "threads", "descriptors"))
LOOK_SECONDS: Final = 1.0
PASS_SECONDS: Final = 300
HOURS_A_WEEK: Final = 168
MOST_SECONDS: Final = 7_200.0
_DAYS: Final[dict[str, Any]] = {
    "services": {"count": 4, "pods": 16, "stepMinutes": 60},
    "bursts": {"perDay": 2},
    "jobs": {"perHour": 6, "pods": 2},
    "nightBatch": {"jobs": 2, "pods": 6},
}
_POOL: Final[dict[str, Any]] = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "default"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [],
                "expireAfter": "72h",
            }
        },
        "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "10m"},
    },
}


@dataclass(frozen=True)
class WeeksResult:
    """What was seen.

    Attributes:
        seconds: that the simulation took.
        told: its report; empty where it failed.
        wrong: why.
    """

    looks: tuple[Look, ...]
    seconds: float
    told: dict[str, Any]
    wrong: tuple[str, ...]


def run(directory: Path, weeks: float, seed: int) -> WeeksResult:
    """Run it; its files are kept in a directory."""
    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    day, pool, counts = directory / "weeks.yaml", directory / "pool.yaml", directory / "counts"
    day.write_text(yaml.safe_dump({"hours": weeks * HOURS_A_WEEK, **_DAYS}), encoding="utf-8")
    pool.write_text(yaml.safe_dump(_POOL), encoding="utf-8")
    counts.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.soak.counted", "simulate", str(day), "-f", str(pool)]
    command += ["--pass-interval", str(PASS_SECONDS), "--seed", str(seed), "-o", "json"]
    began = time.monotonic()
    looks: list[Look] = []
    with (directory / "weeks.json").open("w+b") as output, (directory / "weeks.log").open("w+b") as log:
        environment = {**os.environ, counted.FILE: str(counts)}
        with subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=output, stderr=log) as process:
            while process.poll() is None and time.monotonic() - began < MOST_SECONDS:
                looks.append(Look(time.monotonic() - began, of_process(NAME, process.pid) | told(counts)))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK_SECONDS)
            process.kill()
        seconds = time.monotonic() - began
        output.seek(0)
        log.seek(0)
        if process.returncode != 0:
            return WeeksResult(tuple(looks), seconds, {}, (f"the simulation ended: {log.read()[-2000:].decode()}",))
        return WeeksResult(tuple(looks), seconds, json.loads(output.read()), ())
