"""How fast the machine is that benchmarks run on, and how much memory this process has had at most."""

import re
import time
from pathlib import Path

REFERENCE = 0.069
"""Seconds of the calibration loop on the machine that goals are written for."""


def calibration() -> float:
    """CPU seconds of a fixed loop, to compare machines by."""
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        total = 0
        for number in range(3_000_000):
            total += number % 7
        assert total > 0
        best = min(best, time.process_time() - started)
    return best


def slowness(calibrated: float) -> float:
    """How many times as long as there something takes where the loop takes so long; 1 at the least. Goals in time scale with it."""
    return max(1.0, calibrated / REFERENCE)


def peak_megabytes(process: int | str = "self") -> float:
    """The most that was resident of a program (VmHWM), of this one by default; ru_maxrss is what the process had before exec, too, and so its parent's."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024
