"""`python -m tests.support.effort COMMAND…`: runs it, and says at the end how long it took and how much processor time, beside what `make test` may take.

Needs nothing that is installed, for `make test` begins with it. The processor time is that of every process that the command started, directly or not, and
that has ended: one whose parent is gone becomes a child of this process, so that the kernel adds it up too.
"""

import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final

from provisioner.lab.harness.machine import calibration

LIMITS: Final = "limits of make test: 12 minutes where that loop takes 69 ms, 30 where it takes 207 ms"
LATE_SECONDS: Final = 10.0
"""So long are processes waited for that end after the command, as a control plane's do whose test was killed."""
_PR_SET_CHILD_SUBREAPER: Final = 36


def main(command: Sequence[str]) -> int:
    """Run it; its exit status."""
    loop = calibration()
    began = time.monotonic()
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    pid = os.posix_spawnp(command[0], list(command), os.environ)
    signal.signal(signal.SIGINT, lambda *_: None)  # the terminal has told the command too
    signal.signal(signal.SIGTERM, lambda number, _: os.kill(pid, number))
    status = _ended(pid)
    minutes = (time.monotonic() - began) / 60
    _await_orphans()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{minutes:.1f} minutes, {used.ru_utime + used.ru_stime:.1f} CPU seconds; the machine's reference loop took {1000 * loop:.0f} ms before and "
        f"{1000 * calibration():.0f} ms after ({LIMITS})",
        flush=True,
    )
    return status if status >= 0 else 128 - status


def _ended(pid: int) -> int:
    """Its exit status; what ends before it is taken note of, too."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


def _await_orphans() -> None:
    deadline = time.monotonic() + LATE_SECONDS
    try:
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.05)
    except ChildProcessError:
        return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
