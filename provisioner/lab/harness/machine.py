"""How fast the machine is that figures are measured on."""

import time

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
        best = min(best, time.process_time() - started)
    return best


def slowness(calibrated: float) -> float:
    """How many times as long as there something takes where the loop takes so long; 1 at the least. Goals in time scale with it."""
    return max(1.0, calibrated / REFERENCE)
