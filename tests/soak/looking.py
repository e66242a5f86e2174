"""What is read of processes and programs at one moment, by the names that `laws` judges."""

import contextlib
import json
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from provisioner.lab.devcluster.processes import PROC, memory_bytes
from provisioner.lab.harness import figures, memory
from provisioner.lab.harness.programs import PLANNER_MODULE
from provisioner.lab.harness.session import ALL_PROGRAMS, MEGABYTE, PROVISIONER
from tests.chaos.stage import ChaosCluster
from tests.soak.laws import FLEET

NODES: Final = "karpenter_cluster_state_node_count"
METRICS: Final = {name: f"{name}-metrics" for name in ALL_PROGRAMS}
"""Ports, by program."""


def of_process(name: str, root: int) -> dict[str, float]:
    """Memory in MB, threads and descriptors of a process and all below it but for planning processes; nothing of one that is gone."""
    try:
        pids = memory.members(root, apart=PLANNER_MODULE)
    except OSError:
        return {}
    return _of(name, pids)


def of_programs(stage: ChaosCluster, counts: Path) -> dict[str, float]:
    """The same of each program, its watches and series, and what `counted` wrote last of the provisioner. What does not answer is left out."""
    found: dict[str, float] = {}
    for name in ALL_PROGRAMS:
        found |= _of(name, stage.programs.pids(name))
        found[f"watches of {name}"] = stage.proxies[name].open_watches
        with contextlib.suppress(OSError):
            page = figures.read(f"http://127.0.0.1:{stage.cluster.ports[METRICS[name]]}/metrics")
            found |= series(name, page)
            if name == PROVISIONER:
                found[FLEET] = figures.total(page, NODES)
    planning = stage.programs.planner_pss_bytes(PROVISIONER) / MEGABYTE
    return found | ({} if math.isnan(planning) else {"planning processes' memory": planning}) | told(counts)


def series(name: str, page: str) -> dict[str, float]:
    """How many series there are, of all families and of each."""
    families: Counter[str] = Counter()
    family = ""
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            family = line.split()[2]
        elif line and not line.startswith("#"):
            families[family] += 1
    found: dict[str, float] = {f"series, {name}": families.total()}
    return found | {f"series of {name}: {one}": number for one, number in families.items()}


def _of(name: str, pids: Iterable[int]) -> dict[str, float]:
    threads = descriptors = 0
    pss = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):  # it has just ended
            threads += len(list((PROC / str(pid) / "task").iterdir()))
            descriptors += len(list((PROC / str(pid) / "fd").iterdir()))
            pss += memory_bytes(pid) / MEGABYTE
    return (
        {f"memory of {name}": pss, f"threads of {name}": threads, f"descriptors of {name}": descriptors} if pss else {}
    )


def told(counts: Path) -> dict[str, float]:
    """What `counted` wrote last; nothing where it has not written yet."""
    try:
        lines = counts.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    found: dict[str, float] = json.loads(lines[-1]) if lines else {}
    return found
