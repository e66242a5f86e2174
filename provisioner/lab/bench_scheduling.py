"""Cases of `dovetail bench-cluster` about kube-scheduler beside the extender: a rollout over many new nodes, and throughput."""

import math
import statistics
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple

import urllib3

from provisioner.apis import names
from provisioner.kube.resources import NODES, PODS
from provisioner.lab.demo import placement_figures
from provisioner.lab.harness import applying, figures
from provisioner.lab.harness.bench import PODS_RUNNING, Bench, Case
from provisioner.lab.harness.modes import Mode
from provisioner.lab.harness.results import Figure, at_least
from provisioner.lab.harness.running import scale_out, watch
from provisioner.lab.harness.session import EXTENDER, Session, Setup, session
from provisioner.lab.harness.table import Show, live
from provisioner.lab.harness.workload import Document, deployment, example, namespace, spread

DEPLOYMENTS: Final = 20
ROLLOUT: Final = "rollout"
FIFTH_OF_A_NODE: Final = {"cpu": "2900m", "memory": "4Gi"}
"""Five of them fill a node of 16 CPU."""
ROLLOUT_NODES: Final = 200
NODE_COUNT: Final = 1000
ROUNDS: Final = 2
THREADS: Final = 16
ROUND_SECONDS: Final = 120.0
SAMPLE_SECONDS: Final = 0.05
THROUGHPUT_GOAL: Final = 0.8
THROUGHPUT: Final = "throughput"
ATTEMPTS: Final = "scheduler_schedule_attempts_total"
NAMESPACE: Final = THROUGHPUT
SMALL: Final = {"cpu": "100m", "memory": "64Mi"}


def rollout(bench: Bench, mode: Mode, prefix: str) -> list[Figure]:
    """Twenty Deployments at once over two hundred new nodes: a third spread hard over zones, a third kept in one zone, a third plain."""
    replicas = 3 if bench.quick else max(1, bench.pods // DEPLOYMENTS)
    with session(bench.setup(ROLLOUT, mode), bench.say, bench.progress) as run:
        run.apply_pools(example("bench-nodepool.yaml"))
        with live(bench.console) as show:
            out = scale_out(run, rollout_workload(replicas), show)
    found = out.placement
    bench.say(
        f"{prefix}{found.on_plan} of {found.planned} planned pods on their node, {found.absorbed} absorbed elsewhere"
    )
    return [
        Figure(f"{prefix}{PODS_RUNNING}", out.counts.running, "pods", at_least(out.pods)),
        Figure(f"{prefix}all pods running", out.all_running_seconds, "s"),
        Figure(f"{prefix}nodes", out.counts.nodes, "nodes", None if bench.quick else at_least(ROLLOUT_NODES)),
        *placement_figures(out, mode, prefix),
        Figure(f"{prefix}pods bound", out.bound_per_second, "1/s"),
    ]


def rollout_workload(replicas: int) -> list[Document]:
    """The Deployments with their namespace."""
    found = [namespace(ROLLOUT)]
    for number in range(DEPLOYMENTS):
        document = deployment(f"app-{number:02}", ROLLOUT, replicas, FIFTH_OF_A_NODE)
        if number % 3 == 0:
            spread(document, names.ZONE_LABEL)
        elif number % 3 == 1:
            term = {"topologyKey": names.ZONE_LABEL, "labelSelector": document["spec"]["selector"]}
            affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
            document["spec"]["template"]["spec"]["affinity"] = affinity
        found.append(document)
    return found


@dataclass(frozen=True, slots=True)
class Round:
    """What kube-scheduler did with one queue of pods.

    Attributes:
        bound: pods.
        per_second: from the first binding that was seen to the last.
        scheduled_per_second: the same by kube-scheduler's own count, as of `scheduled_per_second`.
        cycle_seconds: mean time to choose a node, extender included, by kube-scheduler's own metrics: its only loop waits for it.
    """

    bound: int
    per_second: float
    scheduled_per_second: float
    cycle_seconds: float


class ThroughputSample(NamedTuple):
    """A look at kube-scheduler's metrics.

    Attributes:
        moment: of the monotonic clock, in seconds.
        scheduled: pods that it has given a node since it started.
    """

    moment: float
    scheduled: float


def throughput(bench: Bench, mode: Mode, prefix: str) -> list[Figure]:  # noqa: ARG001 - both are in the one run
    """A thousand pods wait when kube-scheduler starts, on a thousand nodes: with the extender and without, in turn, in one cluster."""
    nodes, pods, rounds = (20, 20, 1) if bench.quick else (NODE_COUNT, bench.pods, ROUNDS)
    setup = Setup("bench-throughput", (EXTENDER,), logs=bench.logs / "throughput-logs")
    found: dict[bool, list[Round]] = {False: [], True: []}
    with session(setup, bench.say, bench.progress) as run:
        applying.apply(run.client, [namespace(NAMESPACE)])
        _create_nodes(run, nodes)
        with live(bench.console) as show:
            for number in range(2 * rounds):
                extended = number % 2 == 1
                with _queue(run, show, number, pods):
                    one = _measured(run, show, pods, extender=extended)
                found[extended].append(one)
                bench.say(
                    f"{prefix}{'with' if extended else 'without'} the extender: {one.bound} pods, {one.per_second:.0f} a second"
                )
    without, extended_rounds = found[False], found[True]
    goal = None if bench.quick else at_least(THROUGHPUT_GOAL)
    bound, scheduled = (_ratio(found, of) for of in (_bound, _scheduled))
    return [
        Figure(f"{prefix}{PODS_RUNNING}", min(one.bound for one in without + extended_rounds), "pods", at_least(pods)),
        Figure(f"{prefix}pods bound without the extender", _median(without, _bound), "1/s"),
        Figure(f"{prefix}pods bound with the extender", _median(extended_rounds, _bound), "1/s"),
        Figure(f"{prefix}share of the throughput that is left", bound, "", goal),
        Figure(f"{prefix}{ATTEMPTS} without the extender", _median(without, _scheduled), "1/s"),
        Figure(f"{prefix}{ATTEMPTS} with the extender", _median(extended_rounds, _scheduled), "1/s"),
        Figure(f"{prefix}share of {ATTEMPTS} that is left", scheduled, "", goal),
        Figure(f"{prefix}choosing a node without the extender", 1000 * _median(without, _cycle), "ms"),
        Figure(f"{prefix}choosing a node with the extender", 1000 * _median(extended_rounds, _cycle), "ms"),
    ]


_bound, _scheduled, _cycle = map(attrgetter, ("per_second", "scheduled_per_second", "cycle_seconds"))


def _median(rounds: Sequence[Round], of: Callable[[Round], float]) -> float:
    return statistics.median(map(of, rounds))


def _ratio(rounds: Mapping[bool, Sequence[Round]], of: Callable[[Round], float]) -> float:
    """With the extender to without; nan where there is none."""
    without = _median(rounds[False], of)
    return _median(rounds[True], of) / without if without else math.nan


def _create_nodes(run: Session, count: int) -> None:
    def create(number: int) -> None:
        name = f"node-{number:04}"
        labels = {names.HOSTNAME_LABEL: name, names.ZONE_LABEL: f"zone-{number % 3}", "type": "kwok"}
        size = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": labels},
            "status": {"capacity": size, "allocatable": size},
        }
        run.client.create(NODES, body)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(create, range(count)))


@contextmanager
def _queue(run: Session, show: Show, number: int, count: int) -> Iterator[None]:
    """So many pods, made while no kube-scheduler runs; gone afterwards."""
    run.cluster.stop("kube-scheduler")
    spec = deployment("queue", NAMESPACE, 1, SMALL)["spec"]["template"]["spec"]

    def create(pod: int) -> None:
        metadata = {"name": f"p-{number}-{pod:04}", "labels": {"app": "queue"}}
        run.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, NAMESPACE)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(create, range(count)))
    yield
    run.client.raw("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods", {"gracePeriodSeconds": 0})
    watch(run, show, lambda counts: counts.pods == 0, run.clock.monotonic(), ROUND_SECONDS)


def _measured(run: Session, show: Show, pods: int, *, extender: bool) -> Round:
    began = run.clock.monotonic()

    def bound() -> list[float]:
        return [moment for moment in run.observer.bound_moments() if moment >= began]

    with _sampled(run) as samples:
        run.cluster.restart_scheduler(extender=extender)  # pods are bound before it says that it is ready
        watch(run, show, lambda _: len(bound()) >= pods, began, ROUND_SECONDS)
        run.clock.sleep(10 * SAMPLE_SECONDS)  # it counts a pod after it has bound it
    moments = bound()
    seconds = moments[-1] - moments[0] if len(moments) > 1 else 0.0
    per_second = (len(moments) - 1) / seconds if seconds else 0.0
    return Round(len(moments), per_second, scheduled_per_second(samples), _cycle_seconds(run))


def scheduled_per_second(samples: Sequence[ThroughputSample]) -> float:
    """Pods that kube-scheduler gave a node, per second; nan where it was not seen doing so.

    From the last look before the first of them to the first look after the last.
    """
    if not samples:
        return math.nan
    most = max(one.scheduled for one in samples)
    end = next(one for one in samples if one.scheduled == most)
    start = next((one for one in reversed(samples) if one.scheduled == 0), samples[0])
    seconds = end.moment - start.moment
    return (most - start.scheduled) / seconds if seconds > 0 else math.nan


def attempts(page: str) -> float:
    """The pods of all profiles that were given a node, of kube-scheduler's metrics."""
    return sum(value for labels, value in figures.series(page, ATTEMPTS) if labels.get("result") == "scheduled")


@contextmanager
def _sampled(run: Session) -> Iterator[list[ThroughputSample]]:
    """Looks at kube-scheduler's metrics, from its start on, for as long as the block lasts."""
    samples: list[ThroughputSample] = []
    enough = threading.Event()

    def look() -> None:
        while not enough.wait(SAMPLE_SECONDS):
            try:
                page = scheduler_metrics(run)
            except urllib3.exceptions.HTTPError:  # it does not serve yet
                continue
            samples.append(ThroughputSample(run.clock.monotonic(), attempts(page)))

    thread = threading.Thread(target=look, name="kube-scheduler's metrics")
    thread.start()
    try:
        yield samples
    finally:
        enough.set()
        thread.join()


def scheduler_metrics(run: Session) -> str:
    """The page of kube-scheduler's own metrics.

    Raises:
        urllib3.exceptions.HTTPError: it does not answer.
    """
    url = f"https://127.0.0.1:{run.cluster.ports['kube-scheduler']}/metrics"
    with urllib3.PoolManager(cert_reqs="CERT_REQUIRED", ca_cert_data=run.cluster.ca.certificate_pem.decode()) as pool:
        return pool.request("GET", url, timeout=10.0, retries=False).data.decode()


def _cycle_seconds(run: Session) -> float:
    """By kube-scheduler's own metrics, since it started."""
    page, metric = scheduler_metrics(run), "scheduler_scheduling_algorithm_duration_seconds"
    seconds, cycles = (figures.total(page, f"{metric}_{part}") for part in ("sum", "count"))
    return seconds / cycles if cycles else 0.0


CASES: Final[dict[str, Case]] = {ROLLOUT: rollout, THROUGHPUT: throughput}
