"""`dovetail demo --hpa`: load rises and falls, the HorizontalPodAutoscaler follows it with pods, and Dovetail with nodes."""

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from provisioner.lab.devcluster import metrics
from provisioner.lab.devcluster.components import HPA_SYNC_SECONDS
from provisioner.lab.devcluster.progress import StepProgress
from provisioner.lab.harness import results
from provisioner.lab.harness.chart import chart
from provisioner.lab.harness.course import Moment, dollars, steps, too_fast
from provisioner.lab.harness.modes import Mode
from provisioner.lab.harness.results import Figure, at_least, at_most
from provisioner.lab.harness.running import watch
from provisioner.lab.harness.scoreboard import RunCounts
from provisioner.lab.harness.session import Report, Session, Setup, session
from provisioner.lab.harness.table import Show
from provisioner.lab.harness.workload import example, manifests

NODEPOOL: Final = "hpa-nodepool.yaml"
WORKLOAD: Final = "hpa-workload.yaml"
NAMESPACE, DEPLOYMENT, HPA = "test-app", "test-app", "test-hpa"
REPLICAS: Final = 10
REPLICAS_A_NODE: Final = 3
IDLE_CPUS, BUSY_CPUS = 0.01, 0.6  # at 50 % of 100m: one replica, and more than the ten that are allowed
LIMIT_CPUS: Final = 0.2
"""Of one replica, as the workload says; a container is not given more, however much there is to do."""

FALL_PERCENT, FALL_SECONDS = 30, 60.0
"""How fast the workload's HPA takes replicas away, and how long it waits before."""

_NODES: Final = -(-REPLICAS // REPLICAS_A_NODE)
_SEEN_SECONDS, _UP_SECONDS, _STAY_SECONDS, _DOWN_SECONDS, _GONE_SECONDS = 180.0, 300.0, 20.0, 900.0, 300.0
_SAMPLE_SECONDS: Final = 1.0
_MEMORY: Final = "20Mi"
_TITLE: Final = "Load rises and falls: pods by the HPA, nodes by Dovetail"


@dataclass(slots=True)
class Loop:
    """A workload under load, and what was seen of it.

    Attributes:
        show: told of the counts once a second.
        fall_seconds: as `FALL_SECONDS`; the workload is applied as it was published where it is that.
        course: a moment a second.
    """

    run: Session
    show: Show
    fall_seconds: float
    course: list[Moment] = field(default_factory=list)
    _load: float = IDLE_CPUS
    _told: str = ""
    _began: float = 0.0
    _next: float = 0.0

    def begin(self) -> None:
        """Apply the workload as a user does; seconds count from here."""
        self._began = self.run.clock.monotonic()
        self.run.cluster.kubectl("apply", "-f", str(manifests() / "examples" / WORKLOAD))
        if self.fall_seconds != FALL_SECONDS:
            seconds = int(self.fall_seconds)
            policy = {"type": "Percent", "value": FALL_PERCENT, "periodSeconds": seconds}
            falls = {"scaleDown": {"policies": [policy], "stabilizationWindowSeconds": seconds}}
            patch = json.dumps({"spec": {"behavior": falls}})
            self.run.cluster.kubectl("-n", NAMESPACE, "patch", "hpa", HPA, "--type=merge", "-p", patch)

    def put(self, cpus: float) -> None:
        """From now on there is so much to do."""
        self._load = cpus

    def until(self, what: str, done: Callable[[Moment], bool], seconds: float) -> Moment:
        """Watch until `done`; that moment.

        Raises:
            TimeoutError: it was not within `seconds`; says `what`, and what there was.
        """
        if not self._watch(done, seconds):
            raise TimeoutError(f"not within {seconds:g} s: {what}; last seen: {self.course[-1]}")
        return self.course[-1]

    def stay(self, seconds: float) -> Moment:
        """Watch for so long; the last moment."""
        self._watch(lambda _: False, seconds)
        return self.course[-1]

    def is_measured(self) -> bool:
        """Whether the HPA has seen what the pods use."""
        path = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers/{HPA}"
        status = json.loads(self.run.client.raw("GET", path)).get("status", {})
        return any(one.get("type") == "Resource" for one in status.get("currentMetrics") or ())

    def _watch(self, done: Callable[[Moment], bool], seconds: float) -> bool:
        finished = False

        def look(counts: RunCounts) -> bool:
            nonlocal finished
            self._share(counts.running)
            now = self.run.clock.monotonic()
            if now >= self._next:
                self._next = now + _SAMPLE_SECONDS
                self.course.append(self._moment(counts))
                finished = done(self.course[-1])
            return finished

        watch(self.run, self.show, look, self._began, self.run.clock.monotonic() - self._began + seconds)
        return finished

    def _moment(self, counts: RunCounts) -> Moment:
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{DEPLOYMENT}"
        wanted = int(json.loads(self.run.client.raw("GET", path))["spec"]["replicas"])
        seconds = self.run.clock.monotonic() - self._began
        return Moment(seconds, self._load, wanted, counts.running, counts.nodes, counts.usd_per_hour)

    def _share(self, running: int) -> None:
        """Tell kwok what each replica uses: load by running pods, at most the limit."""
        cpus = min(self._load / max(running, 1), LIMIT_CPUS)
        cpu = f"{cpus * 1000:.0f}m"
        if cpu == self._told:
            return
        document = metrics.usage(_here(cpu, "1m"), _here(_MEMORY, "1Mi"))
        path = f"/apis/{metrics.GROUP}/v1alpha1/{metrics.PLURAL}/{metrics.USAGE}"
        self.run.client.raw("PATCH", path, document, content_type="application/merge-patch+json")
        self._told = cpu


def run_hpa(
    say: Report,
    view: Callable[[], contextlib.AbstractContextManager[Show]],
    results_directory: Path,
    progress: StepProgress,
    mode: Mode = Mode.EVERYTHING_ON,
    packing: str = "cost",
    fall_seconds: float = FALL_SECONDS,
) -> list[Figure]:
    """The whole run, as `demo.run_demo`; everything is taken down again when this returns or raises.

    In `fall_seconds` the HPA takes `FALL_PERCENT` of the replicas away, and it waits as long before.

    Returns:
        What was measured; the run went as it must if every goal is met.

    Raises:
        TimeoutError: what did not come in time.
    """
    name = "hpa" if mode is Mode.EVERYTHING_ON else f"hpa-{mode}"
    flags = (*mode.flags, f"--packing={packing}")
    setup = Setup(name, mode.programs, flags, logs=results_directory / f"{name}-logs", metrics=True)
    picture = results_directory / f"{name}.svg"
    with session(setup, say, progress) as run:
        run.apply_pools(example(NODEPOOL))
        say(f"applying {WORKLOAD}: one replica, at most {REPLICAS}; {REPLICAS_A_NODE} fit on a node")
        with view() as show:
            loop = Loop(run, show, fall_seconds)
            try:
                figures = _course(loop, say)
            finally:
                picture.parent.mkdir(parents=True, exist_ok=True)
                if loop.course:  # also of a run that went wrong
                    picture.write_text(chart(_TITLE, loop.course), encoding="utf-8")
                    say(f"picture: {picture}")
        if any(figure.met is False for figure in figures):
            run.keep_logs(say)
    say(f"figures: {results.write(results_directory, name, figures)}")
    return figures


def _course(loop: Loop, say: Report) -> list[Figure]:
    loop.begin()
    before = loop.until(
        "one replica runs, and the HPA knows what it uses",
        lambda moment: moment.running == 1 and loop.is_measured(),
        _SEEN_SECONDS,
    )
    say(
        f"one replica runs and is measured after {before.seconds:.0f} s; from now on there is work for {BUSY_CPUS:g} CPUs"
    )
    loop.put(BUSY_CPUS)
    grown = loop.until(
        f"{REPLICAS} replicas run", lambda moment: moment.running == moment.wanted == REPLICAS, _UP_SECONDS
    )
    full = loop.stay(_STAY_SECONDS)
    took = grown.seconds - before.seconds
    say(
        f"{full.running} replicas on {full.nodes} nodes after {took:.0f} s; from now on there is work for {IDLE_CPUS:g} CPUs"
    )
    loop.put(IDLE_CPUS)
    loop.until("one replica is left", lambda moment: moment.running == moment.wanted == 1, _DOWN_SECONDS)
    end = loop.until(
        "the nodes of the other replicas are gone", lambda moment: moment.nodes <= before.nodes, _GONE_SECONDS
    )
    up = [moment for moment in loop.course if moment.seconds >= before.seconds]
    fast = too_fast(loop.course, FALL_PERCENT, loop.fall_seconds - HPA_SYNC_SECONDS)
    say("replicas wanted: " + ", ".join(f"{count} at {moment:.0f} s" for moment, count in steps(loop.course)))
    return [
        Figure("nodes before", before.nodes, "nodes", at_most(1)),
        Figure("replicas under load", full.running, "pods", at_least(REPLICAS)),
        Figure("nodes under load", full.nodes, "nodes", at_least(_NODES)),
        Figure("cost under load", full.usd_per_hour, "$/h"),
        Figure("load to all replicas running", took, "s"),
        Figure("fewest replicas running", min(moment.running for moment in up), "pods"),
        Figure(
            f"looks at which the HPA had taken more than {FALL_PERCENT} % in {loop.fall_seconds:g} s",
            len(fast),
            "looks",
            at_most(0),
        ),
        Figure("replicas at the end", end.running, "pods", at_most(1)),
        Figure("nodes at the end", end.nodes, "nodes", at_most(before.nodes)),
        Figure("cost at the end", end.usd_per_hour, "$/h", at_most(before.usd_per_hour)),
        Figure("cost of the whole run", 100 * dollars(loop.course), "cents"),
    ]


def _here(quantity: str, elsewhere: str) -> str:
    return f'pod.metadata.namespace == "{NAMESPACE}" ? Quantity("{quantity}") : Quantity("{elsewhere}")'
