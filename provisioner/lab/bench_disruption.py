"""The cases of `dovetail bench-cluster` that reconsider a fleet: consolidation, drift, empty and deleted nodes."""

import math
from typing import Final

from provisioner.apis import names
from provisioner.kube.resources import NODES
from provisioner.lab.harness import applying
from provisioner.lab.harness.bench import ALL_REPLACED, LEAST_UP, PODS, PODS_RUNNING, Bench, Case
from provisioner.lab.harness.modes import Mode
from provisioner.lab.harness.renewal import NAMESPACE, Stage, apart, budget, fleet, pods
from provisioner.lab.harness.results import Figure, Goal, at_least, at_most
from provisioner.lab.harness.scoreboard import RunCounts
from provisioner.lab.harness.turnover import rounds
from provisioner.lab.harness.workload import Document, spread

SMALL: Final = ("900m", "3100Mi")
LARGE: Final = ("3500m", "28Gi")
CPU_USED: Final = "CPU of the provisioner"
CPU_GOAL_SECONDS: Final = 90.0
"""Of the first two cases together."""
MEGABYTES_GOAL: Final = 150.0
MOST_SECONDS: Final = 900.0
_DELETIONS: Final = 3


def consolidation(bench: Bench, mode: Mode, prefix: str) -> list[Figure]:
    """1,000 pods, then 700: half of the pods small, half large, nodes of at most 16 CPUs."""
    count, quiet, after = (12, 30.0, "0s") if bench.quick else (bench.pods // 2, 180.0, "30s")
    workload = [pods("small", count, *SMALL), pods("large", count, *LARGE)]
    with fleet(bench, "consolidation", mode, workload, consolidate_after=after) as stage:
        left = 2 * (count * 7 // 10)
        began = stage.run.clock.monotonic()
        applying.scale(stage.run.client, workload, left // 2)
        stage.until(lambda counts: counts.pods == left, began, MOST_SECONDS)
        seconds, counts = stage.until_quiet(quiet, began, MOST_SECONDS)
        goal, dollars = _goal(bench, 300.0, quiet + 30.0), _goal(bench, 53.0)
        return [
            *_course(stage, counts, left, prefix, began),
            Figure(f"{prefix}until nothing drains for {quiet:g} s", seconds, "s", goal, "816 s"),
            Figure(f"{prefix}cost before", stage.out.counts.usd_per_hour, "$/h"),
            Figure(f"{prefix}cost", counts.usd_per_hour, "$/h", dollars, "about 52.8 $/h"),
            Figure(f"{prefix}nodes", counts.nodes, "nodes", None, "110 nodes"),
            *_programs(bench, stage, prefix),
        ]


def drift(bench: Bench, mode: Mode, prefix: str) -> list[Figure]:
    """300 nodes drift by a label of their template: 300 pods a host apart, and 300 large ones."""
    count, quiet, after = (6, 8.0, "30s") if bench.quick else (bench.pods * 3 // 10, 120.0, "30s")
    workload = [apart(pods("apart", count, *SMALL), names.HOSTNAME_LABEL), pods("large", count, *LARGE)]
    with fleet(bench, "drift", mode, workload, consolidate_after=after) as stage:
        old = stage.run.observer.turnover.nodes()
        began = stage.run.clock.monotonic()
        stage.change_template()
        _until_replaced(stage, old, began)
        seconds, counts = stage.until_quiet(quiet, began, MOST_SECONDS)
        goal = _goal(bench, 210.0, quiet)
        return [
            *_course(stage, counts, 2 * count, prefix, began),
            Figure(f"{prefix}{ALL_REPLACED}", _replaced(stage, old), "nodes", at_least(len(old))),
            Figure(f"{prefix}until nothing is replaced for {quiet:g} s", seconds, "s", goal, "738 s"),
            Figure(f"{prefix}cost before", stage.out.counts.usd_per_hour, "$/h"),
            Figure(f"{prefix}cost", counts.usd_per_hour, "$/h"),
            Figure(f"{prefix}nodes", counts.nodes, "nodes"),
            *_programs(bench, stage, prefix),
        ]


def drift_fast(bench: Bench, mode: Mode, prefix: str) -> list[Figure]:
    """300 nodes of one pod each drift by a label of their template."""
    count = 6 if bench.quick else bench.pods * 3 // 10
    workload = [apart(pods("apart", count, *SMALL), names.HOSTNAME_LABEL)]
    with fleet(bench, "drift-fast", mode, workload, consolidate_after="30s") as stage:
        old = stage.run.observer.turnover.nodes()
        began = stage.run.clock.monotonic()
        stage.change_template()
        counts = _until_replaced(stage, old, began)
        goal = _goal(bench, 80.0)
        return [
            *_course(stage, counts, count, prefix, began),
            Figure(f"{prefix}{ALL_REPLACED}", _replaced(stage, old), "nodes", at_least(len(old))),
            Figure(f"{prefix}until every old node is gone", _all_gone(stage, old) - began, "s", goal, "432 s"),
            *_programs(bench, stage, prefix),
        ]


def drift_pdb(bench: Bench, mode: Mode, prefix: str) -> list[Figure]:
    """Three nodes drift under a PodDisruptionBudget: 40 pods of which 36 must be up; and 12 spread over three zones, of which 11."""
    plain = pods("plain", 40, "1", "1Gi")
    zoned = spread(pods("zoned", 12, "3500m", "4Gi"), names.ZONE_LABEL)
    return [
        *_under_budget(bench, "drift-pdb", mode, f"{prefix}36 of 40, ", plain, 4),
        *_under_budget(bench, "drift-zones", mode, f"{prefix}11 of 12 in 3 zones, ", zoned, 1),
    ]


def _under_budget(bench: Bench, name: str, mode: Mode, prefix: str, workload: Document, down: int) -> list[Figure]:
    count = workload["spec"]["replicas"]
    documents = [budget(workload, down), workload]
    with fleet(bench, name, mode, documents, consolidate_after="30s", empty_only=True) as stage:
        turnover = stage.run.observer.turnover
        began, old = stage.run.clock.monotonic(), turnover.nodes()
        stage.until(lambda _: len(turnover.up(NAMESPACE)) == count, began, MOST_SECONDS)
        turnover.note_least(NAMESPACE)
        began = stage.run.clock.monotonic()
        stage.change_template()
        counts = _until_replaced(stage, old, began, 420.0)
        seconds = _all_gone(stage, old) - began
        return [
            *_course(stage, counts, count, prefix, began),
            Figure(f"{prefix}{LEAST_UP}", turnover.least(NAMESPACE), "pods", at_least(count - down)),
            Figure(f"{prefix}{ALL_REPLACED}", _replaced(stage, old), "nodes", at_least(len(old))),
            Figure(f"{prefix}until every old node is gone", seconds, "s", _goal(bench, 120.0), "not after 420 s"),
        ]


def empty(bench: Bench, mode: Mode, prefix: str) -> list[Figure]:
    """Ten nodes lose their pods; consolidateAfter is 10 s. From a node's last pod to its end."""
    workload = [apart(pods("apart", 10, *SMALL), names.HOSTNAME_LABEL)]
    after = "1s" if bench.quick else "10s"
    with fleet(bench, "empty", mode, workload, consolidate_after=after, empty_only=True) as stage:
        before, turnover = stage.out.counts.nodes, stage.run.observer.turnover
        began = stage.run.clock.monotonic()
        applying.scale(stage.run.client, workload, 0)
        stage.until(lambda counts: counts.nodes == 0 and counts.claims == 0, began, 120.0)
        gone, emptied = turnover.gone(), turnover.emptied()
        waits = [gone[name] - moment for name, moment in emptied.items() if name in gone]
        slowest = max(waits) if len(waits) >= before else math.nan
        return [
            Figure(f"{prefix}{ALL_REPLACED.replace('replaced', 'gone')}", len(waits), "nodes", at_least(before)),
            Figure(f"{prefix}last pod to end of the node, slowest", slowest, "s", _goal(bench, 14.0, 10.0), "29-33 s"),
        ]


def deleted(bench: Bench, mode: Mode, prefix: str) -> list[Figure]:
    """Somebody deletes a Node with ten pods, three times: until ten others run."""
    workload = [pods("plain", 10, "750m", "1Gi")]  # a node of 8 CPUs is cheapest
    with fleet(bench, "deleted", mode, workload, consolidate_after="30s", empty_only=True) as stage:
        turnover, waits = stage.run.observer.turnover, list[float]()
        for _ in range(1 if bench.quick else _DELETIONS):
            stage.until(lambda counts: counts.nodes == 1 and counts.claims == 1, stage.run.clock.monotonic(), 60.0)
            stage.until(lambda _: len(turnover.up(NAMESPACE)) >= 10, stage.run.clock.monotonic(), 60.0)
            stage.run.clock.sleep(3.0)
            old = turnover.up(NAMESPACE).keys()
            node = next(iter(stage.run.client.list(NODES))).metadata.name
            began = stage.run.clock.monotonic()
            stage.run.client.delete(NODES, node)

            def new(old: "frozenset[str]" = frozenset(old)) -> dict[str, float]:
                return {uid: at for uid, at in turnover.up(NAMESPACE).items() if uid not in old}

            stage.until(lambda _: len(new()) >= 10, began, 120.0)
            waits.append(sorted(new().values())[9] - began if len(new()) >= 10 else math.nan)
        slowest = math.nan if any(map(math.isnan, waits)) else max(waits)
        return [
            Figure(f"{prefix}{PODS_RUNNING}", len(turnover.up(NAMESPACE)), "pods", at_least(10)),
            Figure(
                f"{prefix}deletion of the Node to its pods running, slowest",
                slowest,
                "s",
                _goal(bench, 4.0),
                "5.5 s",
            ),
        ]


def _goal(bench: Bench, most: float, waits: float = 0.0) -> Goal | None:
    """Of full size only: a small run measures nothing."""
    return None if bench.quick or bench.pods != PODS else at_most(most, waits)


def _until_replaced(stage: Stage, old: frozenset[str], began: float, seconds: float = MOST_SECONDS) -> RunCounts:
    turnover = stage.run.observer.turnover

    def done(counts: RunCounts) -> bool:
        return old <= turnover.gone().keys() and counts.running >= counts.pods >= stage.out.pods

    return stage.until(done, began, seconds)


def _replaced(stage: Stage, old: frozenset[str]) -> int:
    return len(old & stage.run.observer.turnover.gone().keys())


def _all_gone(stage: Stage, old: frozenset[str]) -> float:
    gone = stage.run.observer.turnover.gone()
    return max(gone[name] for name in old) if old and old <= gone.keys() else math.nan


def _course(stage: Stage, counts: RunCounts, expected: int, prefix: str, began: float) -> list[Figure]:
    left = stage.run.observer.turnover.began().values()
    first, last = (min(left) - began, max(left) - began) if left else (math.nan, math.nan)
    return [
        Figure(f"{prefix}{PODS_RUNNING}", counts.running, "pods", at_least(expected)),
        Figure(f"{prefix}programs that ended and were started again", len(stage.run.programs.healed), "programs"),
        Figure(f"{prefix}nodes bought", stage.out.counts.nodes, "nodes"),
        Figure(f"{prefix}nodes that left", len(left), "nodes"),
        Figure(f"{prefix}rounds", rounds(left), "rounds"),
        Figure(f"{prefix}first node leaves after", first, "s"),
        Figure(f"{prefix}last node leaves after", last, "s"),
    ]


def _programs(bench: Bench, stage: Stage, prefix: str) -> list[Figure]:
    goal = _goal(bench, MEGABYTES_GOAL)
    return [
        Figure(f"{prefix}{CPU_USED}", stage.cpu_seconds(), "s"),
        Figure(f"{prefix}requests of the provisioner to the API server", stage.requests(), "requests"),
        Figure(f"{prefix}memory of the provisioner, most", max(stage.megabytes), "MB PSS", goal, "157-208 MB"),
    ]


CASES: Final[dict[str, Case]] = {
    "consolidation": consolidation,
    "drift": drift,
    "drift-fast": drift_fast,
    "drift-pdb": drift_pdb,
    "empty": empty,
    "deleted": deleted,
}
