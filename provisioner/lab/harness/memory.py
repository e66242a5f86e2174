"""Memory of a program as the sum of PSS over its process tree (design §3b.13); Linux only, `nan` elsewhere."""

import math
import os
from pathlib import Path

from provisioner.lab.devcluster.processes import PROC, memory_bytes, stat_fields


def tree(root: int, proc: Path = PROC) -> tuple[int, ...]:
    """The process and everything below it, parents first; empty when it is gone. Cost: one read a process."""
    children: dict[int, list[int]] = {}
    alive: set[int] = set()
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = stat_fields(int(entry.name), proc)
        except OSError:
            continue  # ended while we looked
        alive.add(int(entry.name))
        children.setdefault(int(fields[1]), []).append(int(entry.name))
    if root not in alive:
        return ()
    found, queue = [], [root]
    while queue:
        pid = queue.pop(0)
        found.append(pid)
        queue.extend(sorted(children.get(pid, ())))
    return tuple(found)


def running(root: int, module: str, proc: Path = PROC) -> tuple[int, ...]:
    """Processes of the tree that were started as `python -m MODULE`."""
    found = []
    for pid in tree(root, proc):
        try:
            words = (proc / str(pid) / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if module.encode() in words:
            found.append(pid)
    return tuple(found)


def members(root: int, proc: Path = PROC, *, apart: str = "") -> tuple[int, ...]:
    """The process tree without processes of the module `apart`."""
    others = set(running(root, apart, proc)) if apart else set()
    return tuple(pid for pid in tree(root, proc) if pid not in others)


def pss_bytes(root: int, proc: Path = PROC, *, apart: str = "") -> float:
    """Proportional set size of the process tree in bytes; `nan` when nothing of it can be read. Without processes of the module `apart`."""
    try:
        pids = members(root, proc, apart=apart)
    except OSError:
        return math.nan
    found = [memory_bytes(pid, proc) for pid in pids]
    return float(sum(found)) if any(found) else math.nan


def cpu_seconds(root: int, proc: Path = PROC, *, children: bool = True) -> float:
    """User and system time of the process so far, with all below it and ended children, or of it alone.

    `nan` when it is gone.
    """
    ticks, read = 0, False
    for pid in tree(root, proc) if children else (root,):
        try:
            fields = stat_fields(pid, proc)
        except OSError:
            continue
        ticks += sum(int(field) for field in fields[11 : 15 if children else 13])
        read = True
    return ticks / os.sysconf("SC_CLK_TCK") if read else math.nan
