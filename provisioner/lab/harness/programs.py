"""Our programs as children of a dev cluster: started, watched, killed, paused and stopped by name.

They belong to the cluster (`DevCluster.start_program`): own process group, own log, and its reaper ends them too when
this process is killed.
"""

import math
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.devcluster.processes import Record
from provisioner.lab.harness import memory
from provisioner.lab.harness.workload import REPOSITORY
from provisioner.support.clock import Clock

PLANNER_MODULE = "provisioner.packing"
AS_DEPLOYED: Final = {"PYTHONOPTIMIZE": "2"}
"""Variables of the interpreter in our containers (manifests/base and scheduler): no docstrings in memory."""
STOP_SECONDS = 10.0
POLL_SECONDS = 0.05
LOG_TAIL_BYTES = 2000
MOST_HEALED = 10


class ProgramError(Exception):
    """A program ended or did not become ready; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class ProgramSpec:
    """One of our programs and how to see that it serves."""

    name: str
    arguments: tuple[str, ...]
    ready: Callable[[], bool]
    module: str = "provisioner.cli.main"  # that takes the arguments: the `dovetail` command
    environment: Mapping[str, str] = field(default_factory=dict)


class Programs:
    """The programs that run against one dev cluster.

    What ends by itself is started again, as a kubelet would, kube-scheduler and the like included: a busy machine costs them their Leases.

    Args:
        report: is told of each restart.

    Attributes:
        healed: the names of what was started again, once for each time; at most `MOST_HEALED` of ours.
    """

    def __init__(self, cluster: DevCluster, clock: Clock, report: Callable[[str], None]) -> None:
        self._cluster, self._clock, self._report = cluster, clock, report
        self._children: dict[str, Record] = {}
        self._started: dict[str, ProgramSpec] = {}
        self.healed: list[str] = []
        self._killed: set[str] = set()

    def start(self, program: ProgramSpec) -> None:
        """Start it in a process group of its own; output is appended to its log."""
        command = [sys.executable, "-m", program.module, *program.arguments]
        # The checkout first, so that the programs are the ones beside this file.
        paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**AS_DEPLOYED, **program.environment, "PYTHONPATH": os.pathsep.join(paths)}
        self._children[program.name] = self._cluster.start_program(program.name, command, environment)
        self._started[program.name] = program
        self._killed.discard(program.name)

    def wait_ready(self, program: ProgramSpec, seconds: float) -> float:
        """Wait until it serves; returns the seconds that took.

        Raises:
            ProgramError: it ended, or was not ready in time.
        """
        began = self._clock.monotonic()
        while not program.ready():
            self.check()
            if self._clock.monotonic() - began > seconds:
                raise ProgramError(f"{program.name} was not ready after {seconds:g} s\n{self.tail(program.name)}")
            self._clock.sleep(POLL_SECONDS)
        return self._clock.monotonic() - began

    def check(self) -> None:
        """Start again what ended and nobody here stopped.

        Raises:
            ProgramError: a program of ours ended once more than `MOST_HEALED` times.
        """
        for name, child in list(self._children.items()):
            if name in self._killed or child.is_alive():
                continue
            if sum(map(self._started.__contains__, self.healed)) >= MOST_HEALED:
                raise ProgramError(f"{name} has ended by itself; the end of its log:\n{self.tail(name)}")
            self._report(f"{name} has ended by itself and is started again; the end of its log:\n{self.tail(name)}")
            self.healed.append(name)
            self.start(self._started[name])
        again = self._cluster.heal()
        for name in again:
            self._report(f"{name} had ended by itself and was started again")
        self.healed += again

    def is_running(self, name: str) -> bool:
        """Whether it was started and has not ended (a paused one counts as running)."""
        child = self._children.get(name)
        return child is not None and child.is_alive()

    def kill(self, name: str) -> None:
        """SIGKILL to the whole group, as if its machine were gone."""
        self._killed.add(name)
        self._cluster.signal(name, signal.SIGKILL)

    def pause(self, name: str) -> None:
        """SIGSTOP to the whole group: sockets stay open and nobody answers."""
        self._cluster.signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """SIGCONT after `pause`."""
        self._cluster.signal(name, signal.SIGCONT)

    def stop(self, name: str) -> None:
        """SIGTERM, then SIGKILL after a while; nothing happens when it is gone."""
        if self._children.pop(name, None) is not None:
            self._cluster.stop(name, STOP_SECONDS)

    def stop_all(self) -> None:
        """Stop everything, last started first."""
        for name in reversed(list(self._children)):
            self.stop(name)

    def pss_bytes(self, name: str) -> float:
        """Memory of the program's process tree, its planning processes left out; `nan` when it is not running."""
        child = self._children.get(name)
        return math.nan if child is None else memory.pss_bytes(child.pid, apart=PLANNER_MODULE)

    def pids(self, name: str) -> tuple[int, ...]:
        """The processes of the program, its planning processes left out; none when it is not running."""
        child = self._children.get(name)
        return () if child is None else memory.members(child.pid, apart=PLANNER_MODULE)

    def planner_pss_bytes(self, name: str) -> float:
        """Memory of the program's planning processes together; `nan` when none is running."""
        child = self._children.get(name)
        pids = () if child is None else memory.running(child.pid, PLANNER_MODULE)
        found = [one for one in map(memory.pss_bytes, pids) if not math.isnan(one)]  # one may just have ended
        return sum(found) if found else math.nan

    def cpu_seconds(self, name: str) -> float:
        """CPU time that the program's processes have used so far; `nan` when it is not running."""
        child = self._children.get(name)
        return math.nan if child is None else memory.cpu_seconds(child.pid)

    def tail(self, name: str) -> str:
        """The end of its log, for an error message."""
        try:
            return self._cluster.log(name).read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace").strip()
        except OSError as error:
            return f"(no log: {error})"

    def keep_logs(self, directory: Path) -> Path:
        """Copy every log of the cluster, the control plane's included, to a directory that outlives it."""
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(self._cluster.log("any").parent, directory)
        return directory
