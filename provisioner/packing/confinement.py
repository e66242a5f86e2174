"""What keeps a planning process from harming others: little of their environment, a bound of memory, and first in line when memory runs out.

Where a container exceeds its limit, a kubelet with cgroup v2 has the kernel end all of its processes (`memory.oom.group`), whoever is first in
line. So the bound, and a limit of the container above what both need, are what counts there.
"""

import os
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

NOT_INSTALLED: Final = 3
OUT_OF_MEMORY: Final = 4
"""Exit statuses."""
_KEPT: Final = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "HOME", "TMPDIR")
_ONE_THREAD: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def environment(given: Mapping[str, str], path: Sequence[str]) -> dict[str, str]:
    """What the process gets: no credentials, one thread for linear algebra, and the places where modules are found here."""
    kept = {name: given[name] for name in _KEPT if name in given}
    threads = dict.fromkeys(_ONE_THREAD, "1")
    found = os.pathsep.join(one for one in path if one)
    return {**kept, **threads, "MALLOC_ARENA_MAX": "1", "PYTHONPATH": found, "PYTHONSAFEPATH": "1"}


def confine(memory_bytes: int) -> None:
    """Bound the address space of this process, write no core file, and have the kernel take it before others when memory runs out."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = memory_bytes if hard == resource.RLIM_INFINITY else min(hard, memory_bytes)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    except OSError:
        pass  # no Linux, or not allowed: then it counts as every other process
