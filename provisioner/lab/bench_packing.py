"""The case of `dovetail bench-cluster` about what fleets cost: four workloads at EC2's prices, packed greedily and by cost."""

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

import yaml

from provisioner.lab.harness import mixes
from provisioner.lab.harness.bench import PODS_RUNNING, Bench, Case
from provisioner.lab.harness.modes import Mode
from provisioner.lab.harness.results import Figure, at_least, at_most
from provisioner.lab.harness.running import DemoRun, scale_out
from provisioner.lab.harness.session import session
from provisioner.lab.harness.table import live
from provisioner.lab.harness.workload import REPOSITORY, Document, example, pods_of

PACKING: Final = "packing"
GREEDY, COST = "greedy", "cost"
LATER_GOAL_SECONDS: Final = 2.0
OVER_GOAL_PERCENT: Final = 6.0
QUICK_PODS: Final = 100
PLAN_SECONDS: Final = 300.0


def packing(bench: Bench, mode: Mode, prefix: str) -> list[Figure]:
    """Services, jobs, memory-heavy pods and pods spread over zones, each on a fresh cluster, from apply to all running."""
    bench.logs.mkdir(parents=True, exist_ok=True)
    catalogue = bench.logs / "packing-catalogue.json"
    bench.say(f"{prefix}{mixes.write_catalogue(catalogue)} instance types")
    pools = _pools()
    figures = []
    for kind in mixes.MIXES:
        documents = mixes.mix(kind, QUICK_PODS if bench.quick else bench.pods)
        greedy, cost = (_packed(bench, mode, kind, way, catalogue, pools, documents) for way in (GREEDY, COST))
        bound = _bound(catalogue, [*pools, *documents], bench.logs / "packing.yaml")
        figures += _figures(f"{prefix}{kind}: ", documents, greedy, cost, bound, measures=not bench.quick)
    return figures


def _figures(
    prefix: str, documents: Iterable[Document], greedy: DemoRun, cost: DemoRun, bound: float, *, measures: bool
) -> list[Figure]:
    running = min(greedy.counts.running, cost.counts.running)
    return [
        Figure(f"{prefix}{PODS_RUNNING}", running, "pods", at_least(pods_of(documents))),
        Figure(f"{prefix}all pods running, greedy", greedy.all_running_seconds, "s"),
        Figure(f"{prefix}all pods running, by cost", cost.all_running_seconds, "s"),
        Figure(
            f"{prefix}later than greedy",
            cost.all_running_seconds - greedy.all_running_seconds,
            "s",
            at_most(LATER_GOAL_SECONDS) if measures else None,
        ),
        Figure(f"{prefix}cost, greedy", greedy.counts.usd_per_hour, "$/h"),
        Figure(f"{prefix}cost, by cost", cost.counts.usd_per_hour, "$/h"),
        Figure(f"{prefix}proved lower bound", bound, "$/h"),
        Figure(f"{prefix}over the bound, greedy", 100 * (greedy.counts.usd_per_hour / bound - 1), "%"),
        Figure(
            f"{prefix}over the bound",
            100 * (cost.counts.usd_per_hour / bound - 1),
            "%",
            at_most(OVER_GOAL_PERCENT) if measures else None,
        ),
        Figure(f"{prefix}nodes", cost.counts.nodes, "nodes"),
    ]


def _packed(
    bench: Bench, mode: Mode, kind: str, way: str, catalogue: Path, pools: list[Document], documents: list[Document]
) -> DemoRun:
    setup = bench.setup(f"{kind}-{way}", mode)
    flags = (*setup.provisioner_flags, "--instance-types-file-path", str(catalogue), f"--packing={way}")
    with session(replace(setup, provisioner_flags=flags), bench.say, bench.progress) as run:
        run.apply_pools(pools)
        with live(bench.console) as show:
            return scale_out(run, documents, show)


def _pools() -> list[Document]:
    """The pool of the other cases, of any size."""
    documents = example("bench-nodepool.yaml")
    for document in documents:
        if document["kind"] == "NodePool":
            spec = document["spec"]["template"]["spec"]
            spec["requirements"] = [one for one in spec["requirements"] if one["operator"] == "In"]
    return documents


def _bound(catalogue: Path, documents: list[Document], path: Path) -> float:
    """What any fleet for these pods costs at least, USD per hour, as `dovetail plan` proves it for all of them at once.

    A process of its own: this one has no numpy, as the provisioner has none.
    """
    path.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    line = (
        sys.executable,
        "-m",
        "provisioner.cli.main",
        "plan",
        str(path),
        "--catalogue",
        f"kwok:{catalogue}",
        "-o",
        "json",
    )
    done = subprocess.run(line, cwd=REPOSITORY, check=True, capture_output=True, timeout=PLAN_SECONDS)
    (plan,) = json.loads(done.stdout)["plans"]
    return float(plan["perHourAtLeast"])


CASES: dict[str, Case] = {PACKING: packing}
