"""Our programs as child process groups: started, watched, killed, paused and stopped by name."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from provisioner.cli.harness import memory

STOP_SECONDS = 10.0
POLL_SECONDS = 0.05
PR_SET_PDEATHSIG = 1
LOG_TAIL_BYTES = 2000


class ProgramError(Exception):
    """A program ended or did not become ready; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Program:
    """One of our programs and how to see that it serves."""

    name: str
    arguments: tuple[str, ...]  # of the `dovetail` command
    ready: Callable[[], bool]


def _die_with_parent() -> Callable[[], None] | None:
    """A preexec function after which the kernel kills the child when this process ends, however it ends."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)  # loaded here: nothing is allocated between fork and exec
    parent = os.getpid()

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before prctl
            os._exit(1)

    return prepare


class Programs:
    """Children of this process. Start them from the main thread: the kernel ties them to the thread that forks."""

    def __init__(self, log_directory: Path) -> None:
        self._logs = log_directory
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._paused: set[str] = set()
        self._expected_dead: set[str] = set()
        self._lock = threading.Lock()

    def start(self, program: Program) -> None:
        """Start it in a process group of its own; output is appended to NAME.log."""
        command = [sys.executable, "-m", "provisioner.cli.main", *program.arguments]
        with self.log(program.name).open("ab") as log:
            self._children[program.name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent(),  # noqa: PLW1509
                env=_environment(),
            )
        self._expected_dead.discard(program.name)

    def wait_ready(self, program: Program, seconds: float) -> float:
        """Wait until it serves; returns the seconds that took.

        Raises:
            ProgramError: it ended, or was not ready in time.
        """
        began = time.monotonic()
        while not program.ready():
            self.check()
            if time.monotonic() - began > seconds:
                raise ProgramError(f"{program.name} was not ready after {seconds:g} s\n{self.tail(program.name)}")
            time.sleep(POLL_SECONDS)
        return time.monotonic() - began

    def check(self) -> None:
        """Raise ProgramError if a program ended that nobody here stopped."""
        for name, child in list(self._children.items()):
            status = child.poll()
            if status is not None and name not in self._expected_dead:
                self._expected_dead.add(name)
                raise ProgramError(f"{name} ended with status {status}\n{self.tail(name)}")

    def running(self, name: str) -> bool:
        """Whether it was started and has not ended (a paused one counts as running)."""
        child = self._children.get(name)
        return child is not None and child.poll() is None

    def kill(self, name: str) -> None:
        """SIGKILL to the whole group, as a crash of the machine under it."""
        self._expected_dead.add(name)
        self._signal(name, signal.SIGKILL)
        self._children[name].wait(STOP_SECONDS)

    def pause(self, name: str) -> None:
        """SIGSTOP to the whole group: sockets stay open and nobody answers."""
        self._paused.add(name)
        self._signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """SIGCONT after `pause`."""
        self._paused.discard(name)
        self._signal(name, signal.SIGCONT)

    def stop(self, name: str) -> None:
        """SIGTERM, then SIGKILL to what is left of the group; nothing happens when it is gone."""
        child = self._children.get(name)
        if child is None:
            return
        with self._lock:
            self._expected_dead.add(name)
            if name in self._paused:
                self.resume(name)
            self._signal(name, signal.SIGTERM)
            try:
                child.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            self._signal(name, signal.SIGKILL)
            child.wait(STOP_SECONDS)
            del self._children[name]

    def stop_all(self) -> None:
        """Stop everything, last started first."""
        for name in reversed(list(self._children)):
            self.stop(name)

    def pss_bytes(self, name: str) -> float:
        """Memory of the program's process tree; `nan` when it is not running."""
        child = self._children.get(name)
        return float("nan") if child is None else memory.pss_bytes(child.pid)

    def cpu_seconds(self, name: str) -> float:
        """CPU time that the program's processes have used so far; `nan` when it is not running."""
        child = self._children.get(name)
        return float("nan") if child is None else memory.cpu_seconds(child.pid)

    def log(self, name: str) -> Path:
        """Where the program writes."""
        self._logs.mkdir(parents=True, exist_ok=True)
        return self._logs / f"{name}.log"

    def tail(self, name: str) -> str:
        """The end of its log, for an error message."""
        try:
            return self.log(name).read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace").strip()
        except OSError as error:
            return f"(no log: {error})"

    def _signal(self, name: str, number: signal.Signals) -> None:
        # The group's id is its leader's; a group outlives its leader while a member lives.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._children[name].pid, number)


def _environment() -> Mapping[str, str]:
    # The checkout first, so that the programs are the ones beside this file.
    repository = str(Path(__file__).resolve().parents[3])
    paths: Sequence[str] = [repository, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
