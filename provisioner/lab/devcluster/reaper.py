"""The process that outlives the owner of a temporary cluster: when the owner is gone, however, it stops everything.

It watches the owner through a pidfd. Not PR_SET_PDEATHSIG: that fires when the *thread* that started the child ends,
knows no order (etcd must go last), and reaches no grandchildren. Should the reaper be killed too, the pid files and
the mark in the environment let the next `up` clean.
"""

import os
import select
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from provisioner.lab.devcluster.processes import Record
from provisioner.lab.devcluster.teardown import locked, stop_everything
from provisioner.support.clock import Clock, SystemClock


def main(arguments: Sequence[str]) -> int:
    """`reaper DIRECTORY PID STARTED BOOT`: wait for that process to end, then stop the cluster and delete it."""
    directory = Path(arguments[0])
    owner = Record(int(arguments[1]), int(arguments[2]), arguments[3])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    clock = SystemClock()
    wait_for_end(owner, clock)
    with locked(lock_file(directory)):
        if directory.exists():
            stop_everything(directory, clock, keep_data=False)
            shutil.rmtree(directory, ignore_errors=True)
    lock_file(directory).unlink(missing_ok=True)
    return 0


def lock_file(directory: Path) -> Path:
    """The lock beside a cluster's directory that `up`, `down` and the reaper take turns with."""
    return directory.with_name(f".{directory.name}.lock")


def wait_for_end(owner: Record, clock: Clock) -> None:
    """Return once the process has ended; at once when it is gone already."""
    try:
        descriptor = os.pidfd_open(owner.pid)
    except OSError:
        descriptor = -1  # gone, or a kernel before 5.3
    if descriptor >= 0 and owner.is_alive():  # checked after opening: the pid may be another's
        select.select([descriptor], [], [])
        return
    while owner.is_alive():
        clock.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
