"""The process that starts again what ends by itself in a cluster of `dovetail dev`, as a kubelet would.

A busy machine costs kube-scheduler and kube-controller-manager their Leases, and then they end. The keeper takes turns with `up` and `down`, and ends
when its own record is gone. A temporary cluster has none: its program looks after it (`DevCluster.heal`).
"""

import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.devcluster.errors import DevClusterError
from provisioner.lab.devcluster.reaper import lock_file
from provisioner.lab.devcluster.teardown import GUARD, locked, records
from provisioner.support.clock import SystemClock

LOOK_SECONDS: Final = 2.0
FIRST_PAUSE_SECONDS: Final = 10.0
LONGEST_PAUSE_SECONDS: Final = 300.0
FORGOTTEN_AFTER_SECONDS: Final = 600.0
"""Pauses between restarts, and after how long without one the first restart is immediate again.

Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy
"""


class Pauses:
    """How long to wait between one restart and the next."""

    def __init__(self) -> None:
        self._due, self._pause, self._last = 0.0, 0.0, 0.0

    def is_due(self, now: float) -> bool:
        """Whether something that has ended may be started again."""
        return now >= self._due

    def restarted(self, now: float) -> None:
        """Count a restart."""
        forgotten = now - self._last > FORGOTTEN_AFTER_SECONDS
        longer = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        self._pause = FIRST_PAUSE_SECONDS if forgotten or not self._pause else longer
        self._due, self._last = now + self._pause, now


def main(arguments: Sequence[str]) -> int:
    """`keeper NAME`: look after the cluster of that name until the cluster is stopped."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    clock, pauses = SystemClock(), Pauses()
    directory = DevCluster(arguments[0]).dir
    while True:
        clock.sleep(LOOK_SECONDS)
        guard = records(directory).get(GUARD)
        if guard is None or guard.pid != os.getpid():
            return 0
        if not pauses.is_due(clock.monotonic()):
            continue
        with locked(lock_file(directory)):
            try:
                again = DevCluster(arguments[0]).heal()  # anew: `up` may have changed what it is
            except DevClusterError as error:
                again = [str(error)]
        if again:
            pauses.restarted(clock.monotonic())
            sys.stdout.write(f"started again: {', '.join(again)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
