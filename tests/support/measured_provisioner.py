"""`dovetail provisioner` with a stopwatch: `python -m tests.support.measured_provisioner DIRECTORY [FLAGS]`.

Of each pass of consolidation that asked anything it writes a line to `passes`, and of each batch of pods to `batches`: its seconds, the CPU seconds of its
thread, and those of the whole process meanwhile.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from provisioner.disruption.controller import DisruptionController
from provisioner.operator.main import main
from provisioner.provisioning.provisioner import ProvisioningController

R = TypeVar("R")


def _timed(file: Path, run: Callable[[Any], R]) -> Callable[[Any], R]:
    def timed(self: Any) -> R:
        began, cpu, process = time.monotonic(), time.thread_time(), time.process_time()
        done = run(self)
        if done:
            told = {
                "at": began,
                "seconds": time.monotonic() - began,
                "cpu": time.thread_time() - cpu,
                "process": time.process_time() - process,
            }
            with file.open("a", encoding="ascii") as lines:
                lines.write(json.dumps(told) + "\n")
        return done

    return timed


def measured(directory: Path) -> None:
    """From now on passes and batches of this process are written to files."""
    passes = _timed(directory / "passes", DisruptionController.consolidate_once)
    batches = _timed(directory / "batches", ProvisioningController.run)
    DisruptionController.consolidate_once = passes  # type: ignore[method-assign,assignment]
    ProvisioningController.run = batches  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    measured(Path(sys.argv[1]))
    os._exit(main(sys.argv[2:]))
