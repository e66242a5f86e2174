"""`dovetail provisioner` with a stopwatch on its passes: `python -m tests.support.measured_provisioner FILE [FLAGS]`.

Of each pass of consolidation that asked anything it writes a line: its seconds, and the CPU seconds of its thread.
"""

import json
import os
import sys
import time
from pathlib import Path

from provisioner.disruption.controller import DisruptionController
from provisioner.operator.main import main


def measured(path: Path) -> None:
    """From now on passes of this process are written to a file."""
    once = DisruptionController.consolidate_once

    def timed(self: DisruptionController) -> bool:
        began, cpu = time.monotonic(), time.thread_time()
        done = once(self)
        if done:
            told = {"at": began, "seconds": time.monotonic() - began, "cpu": time.thread_time() - cpu}
            with path.open("a", encoding="ascii") as file:
                file.write(json.dumps(told) + "\n")
        return done

    DisruptionController.consolidate_once = timed  # type: ignore[method-assign]


if __name__ == "__main__":
    measured(Path(sys.argv[1]))
    os._exit(main(sys.argv[2:]))
