"""Child processes that can be found again: started in a session of their own, remembered by pid and start time.

A record names a process for good: the pid alone may be another program's by the next time somebody looks, so the
start time (in clock ticks since boot) and the boot's id are kept with it. Every child also carries the cluster's
directory in its environment; that finds the ones whose record was never written.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from provisioner.support.clock import Clock

MARK: Final = "DOVETAIL_DEVCLUSTER_DIR"
"""Environment variable that marks every process of a cluster; its value is the cluster's directory."""

TERM_SECONDS: Final = 10.0
KILL_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.02
PROC: Final = Path("/proc")


@dataclass(frozen=True)
class Record:
    """One process, for good: pid, start time in ticks since boot, and which boot."""

    pid: int
    started: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> "Record | None":
        """The record of a process that runs now; None when there is none."""
        started = _start_ticks(pid)
        return None if started is None else cls(pid, started, _boot_id())

    def is_alive(self) -> bool:
        """Whether this very process still runs; a zombie does not. Reaps it, where it is our child."""
        with contextlib.suppress(ChildProcessError, OSError):
            os.waitpid(self.pid, os.WNOHANG)
        return _start_ticks(self.pid) == self.started and _boot_id() == self.boot


def output_of(
    argv: Sequence[str | Path],
    env: Mapping[str, str],
    *,
    seconds: float | None = None,
    stdin: str = "",
    where: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """What a program that ends by itself wrote, and how it ended.

    Raises:
        OSError: it cannot be executed.
        subprocess.TimeoutExpired: it took longer than `seconds`.
    """
    return subprocess.run(
        argv, env=dict(env), input=stdin, capture_output=True, text=True, timeout=seconds, cwd=where, check=False
    )


def write_record(path: Path, record: Record) -> None:
    """Keep a record, atomically: a reader sees a whole one or none."""
    partial = path.with_suffix(".partial")
    partial.write_bytes(msgspec.json.encode(record))
    partial.replace(path)


def read_record(path: Path) -> Record | None:
    """The record in a file; None where there is none or it is damaged (then `marked` still finds the process)."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def spawn(argv: Sequence[str], log: Path, env: Mapping[str, str]) -> Record:
    """Start a program in a session and process group of its own, its output appended to a log file.

    Nothing is inherited but the environment given: no terminal, no descriptors.

    Args:
        argv: absolute path of the program, then its arguments.
        log: file for both its outputs.
        env: its whole environment.

    Raises:
        OSError: the program cannot be executed.
    """
    pid = os.posix_spawn(
        argv[0],
        list(argv),
        dict(env),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            *((os.POSIX_SPAWN_CLOSE, number) for number in _inheritable()),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE],
    )
    # An exited child stays a zombie until it is waited for, so its /proc entry is there to be read.
    return Record(pid, _start_ticks(pid, zombies=True) or 0, _boot_id())


def _inheritable() -> list[int]:
    """Descriptors that whoever started this process left open, beside the standard streams: a pipe among them, and its reader waits for our children."""
    found = []
    for entry in (PROC / "self" / "fd").iterdir():
        number = int(entry.name)
        try:
            if number > 2 and os.get_inheritable(number):
                found.append(number)
        except OSError:
            continue  # the one that the directory itself was read with
    return found


def send(record: Record, number: signal.Signals) -> bool:
    """Send a signal to the process group of a process that still runs; False when it does not."""
    if not record.is_alive():
        return False
    try:
        os.killpg(record.pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        os.kill(record.pid, number)
    return True


def stop(group: Iterable[Record], clock: Clock, term_seconds: float = TERM_SECONDS) -> list[Record]:
    """SIGTERM to all, a bounded wait, SIGKILL, a bounded wait; each to the whole process group. Stopped processes are continued first.

    Returns:
        Those that are still there.
    """
    group = [record for record in group if send(record, signal.SIGTERM)]
    for record in group:
        send(record, signal.SIGCONT)  # SIGTERM waits while a process is stopped
    slow = _wait_for(group, clock, term_seconds)
    for record in slow:
        send(record, signal.SIGKILL)
    return _wait_for(slow, clock, KILL_SECONDS)


def _wait_for(group: Iterable[Record], clock: Clock, seconds: float) -> list[Record]:
    """Wait until the processes are gone, at most so long; those that are not."""
    deadline = clock.monotonic() + seconds
    return [record for record in group if not wait_gone(record, clock, max(0.0, deadline - clock.monotonic()))]


def wait_gone(record: Record, clock: Clock, seconds: float) -> bool:
    """Wait until the process is gone, at most so long; whether it is."""
    deadline = clock.monotonic() + seconds
    while record.is_alive():
        if clock.monotonic() >= deadline:
            return False
        clock.sleep(_POLL_SECONDS)
    return True


def marked(directory: Path) -> list[Record]:
    """Processes of this user that carry the mark of a cluster's directory, whatever wrote or lost their record.

    Cost: one small read per process of the machine, a few milliseconds.
    """
    needle = f"{MARK}={directory}".encode()
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # gone meanwhile, or another user's
        if needle in environment:
            record = Record.of(int(entry.name))
            if record is not None:
                found.append(record)
    return sorted(found, key=lambda record: record.pid)


def command_of(pid: int) -> str:
    """The command line of a process, for people; "" when it is gone."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def memory_bytes(pid: int, proc: Path = PROC) -> int:
    """Proportional set size of one process; 0 when it is gone or may not be looked at."""
    try:
        text = (proc / str(pid) / "smaps_rollup").read_text(encoding="utf-8")
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0)


def stat_fields(pid: int, proc: Path = PROC) -> list[str]:
    """What the kernel says of a process, from its state on. Raises OSError where it is gone."""
    text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()  # the name in parentheses may hold anything


def _start_ticks(pid: int, *, zombies: bool = False) -> int | None:
    try:
        fields = stat_fields(pid)
    except OSError:
        return None
    exited = fields[0] == "X" or (fields[0] == "Z" and int(fields[17]) <= 1)
    if exited and not zombies:  # a zombie with threads left still holds its ports
        return None
    return int(fields[19])


def _boot_id() -> str:
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
