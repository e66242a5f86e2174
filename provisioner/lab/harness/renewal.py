"""The course of a run on a fleet that was bought already: something changes, nodes leave, and at last nothing happens any more."""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from provisioner.kube.resources import NODEPOOLS
from provisioner.lab.harness import figures
from provisioner.lab.harness.bench import Bench
from provisioner.lab.harness.modes import Mode
from provisioner.lab.harness.running import DemoRun, scale_out, watch
from provisioner.lab.harness.scoreboard import RunCounts
from provisioner.lab.harness.session import PROVISIONER, Session, session
from provisioner.lab.harness.table import Show, live
from provisioner.lab.harness.workload import Document, deployment, example, namespace

NAMESPACE = "fleet"
POOL = "general"
GENERATION_LABEL = "example.com/generation"
_SAMPLE_SECONDS = 3.0


@dataclass(slots=True)
class Stage:
    """A session with a fleet in it.

    Attributes:
        show: told of the counts once a second.
        out: how it was bought.
        megabytes: PSS of the provisioner at each look.
    """

    run: Session
    show: Show
    out: DemoRun
    megabytes: list[float] = field(default_factory=list)
    _next: float = 0.0

    def until(self, done: Callable[[RunCounts], bool], began: float, seconds: float) -> RunCounts:
        """Watch until `done`, or `seconds` after `began`; the last counts."""

        def look(counts: RunCounts) -> bool:
            now = self.run.clock.monotonic()
            if now >= self._next:
                self.megabytes.append(self.run.memory_megabytes()[PROVISIONER])
                self._next = now + _SAMPLE_SECONDS
            return done(counts)

        return watch(self.run, self.show, look, began, seconds)

    def until_quiet(self, quiet: float, began: float, seconds: float) -> tuple[float, RunCounts]:
        """Watch until for `quiet` seconds no node has begun or ended to leave, and every pod runs; seconds since `began`, and the last counts."""
        turnover = self.run.observer.turnover

        def done(counts: RunCounts) -> bool:
            busy = turnover.leaving() or counts.pending or counts.running < counts.pods or counts.claims != counts.nodes
            last = max(began, turnover.last() or began)
            return not busy and self.run.clock.monotonic() - last >= quiet

        counts = self.until(done, began, seconds)
        return self.run.clock.monotonic() - began, counts

    def change_template(self) -> None:
        """Give the NodePool's template another label: all of its nodes drift."""
        body = {"spec": {"template": {"metadata": {"labels": {GENERATION_LABEL: "2"}}}}}
        self.run.client.patch(NODEPOOLS, POOL, body)

    def requests(self) -> float:
        """Of the provisioner to the API server, from its start on; `nan` where it does not say."""
        try:
            return figures.requests(figures.read(self.run.metrics_url))
        except (OSError, ValueError):
            return math.nan

    def cpu_seconds(self) -> float:
        """Of the provisioner, from its start on."""
        return self.run.cpu_seconds()[PROVISIONER]


@contextlib.contextmanager
def fleet(
    bench: Bench, name: str, mode: Mode, workload: list[Document], *, consolidate_after: str, empty_only: bool = False
) -> Iterator[Stage]:
    """A fresh cluster whose nodes were just bought for a workload."""
    with session(bench.setup(name, mode), bench.say, bench.progress) as run, live(bench.console) as show:
        run.apply_pools(pools(consolidate_after, empty_only=empty_only))
        stage = Stage(run, show, scale_out(run, [namespace(NAMESPACE), *workload], show))
        yield stage
        if bench.keep_logs:
            run.keep_logs(bench.say)


def pools(consolidate_after: str, *, empty_only: bool) -> list[Document]:
    """The pool of the benchmarks: nodes of at most 16 CPUs, budget 100 %."""
    documents = example("bench-nodepool.yaml")
    for document in documents:
        if document["kind"] == "NodePool":
            document["spec"]["disruption"] |= {
                "consolidationPolicy": "WhenEmpty" if empty_only else "WhenEmptyOrUnderutilized",
                "consolidateAfter": consolidate_after,
            }
    return documents


def pods(name: str, count: int, cpu: str, memory: str) -> Document:
    """A Deployment of plain pods."""
    return deployment(name, NAMESPACE, count, {"cpu": cpu, "memory": memory})


def apart(document: Document, key: str) -> Document:
    """The same Deployment, whose pods keep away from each other."""
    labels = document["spec"]["selector"]["matchLabels"]
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    document["spec"]["template"]["spec"]["affinity"] = affinity
    return document


def budget(document: Document, most_down: int) -> Document:
    """A PodDisruptionBudget for the pods of a Deployment."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": document["metadata"]["name"], "namespace": document["metadata"]["namespace"]},
        "spec": {"maxUnavailable": most_down, "selector": document["spec"]["selector"]},
    }
