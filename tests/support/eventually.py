"""Waiting for what must become true, with a bound and a sentence."""

import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

PATIENCE: Final = 3 if "PYTEST_XDIST_WORKER" in os.environ else 1
"""How many times as long a test waits that shares the machine with others: what comes late there is not missing."""

_GROWTH: Final = 5
"""How many times as long pauses become, with the wait: looking is work, too, for the test and for the API server."""


def eventually(
    look: Callable[[], T], what: str | Callable[[], object], seconds: float = 20.0, pause: float = 0.05
) -> T:
    """The first true answer of `look`; fails with `what` when none comes in so many seconds of a machine that the test has to itself.

    A `what` that is a function is asked then: what there is instead.
    """
    seconds *= PATIENCE
    began = time.monotonic()
    deadline = began + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what if isinstance(what, str) else what()}"
        time.sleep(min(_GROWTH * pause, max(pause, (time.monotonic() - began) / 40)))
