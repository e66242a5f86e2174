"""Stopping everything that belongs to a cluster's directory, whoever started it; light enough for the reaper.

Order: our own programs, then kwok, controllers and scheduler together, then the API server, then etcd, then whatever
else carries the cluster's mark. Each gets SIGTERM, a bounded wait and SIGKILL.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from provisioner.lab.devcluster.errors import StateError
from provisioner.lab.devcluster.processes import (
    TERM_SECONDS,
    Record,
    command_of,
    marked,
    read_record,
    stop,
)
from provisioner.support.clock import Clock

GUARD: Final = "guard"
"""Record of the process that looks after the cluster: `reaper` or `keeper`."""
_LAST: Final = (("kwok", "kube-controller-manager", "kube-scheduler"), ("kube-apiserver",), ("etcd",))


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an advisory lock on a file; other processes wait. It ends with the process, however that ends."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def records(directory: Path) -> dict[str, Record]:
    """What the pid files of a cluster say, by component or program; stale ones included."""
    found = {}
    for path in sorted((directory / "pids").glob("*.json")):
        record = read_record(path)
        if record is not None:
            found[path.stem] = record
    return found


def stop_everything(directory: Path, clock: Clock, *, keep_data: bool = True) -> None:
    """Stop every process of the cluster and remove its pid files; nothing to do is fine.

    Args:
        directory: the cluster's.
        clock: to wait with.
        keep_data: False where the data is deleted next: then the control plane is not given time to end in order.

    Raises:
        StateError: a process survived SIGKILL.
    """
    known = records(directory)
    guard = known.pop(GUARD, None)
    if guard is not None and guard.pid != os.getpid():
        stop([guard], clock)
    plane = {name for group in _LAST for name in group}
    survivors = stop([known[name] for name in sorted(set(known) - plane)], clock)
    for group in _LAST:
        present = [known[name] for name in group if name in known]
        survivors += stop(present, clock, TERM_SECONDS if keep_data else 0.0)
    survivors += stop(marked(directory), clock, TERM_SECONDS if keep_data else 0.0)
    if survivors:
        process = survivors[0]
        raise StateError(
            f"process {process.pid} of cluster {directory.name} does not stop ({command_of(process.pid)[:80]})",
            f"End it with `kill -9 {process.pid}` and run `dovetail dev down` again",
        )
    shutil.rmtree(directory / "pids", ignore_errors=True)
