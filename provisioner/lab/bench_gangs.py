"""Case of `dovetail bench-cluster` about pods that kube-scheduler takes together: how soon their nodes and they are there, and what a failing gang costs."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from provisioner.kube.resources import PODGROUPS, PODS
from provisioner.lab.harness import applying, figures
from provisioner.lab.harness.bench import PODS_RUNNING, Bench, Case
from provisioner.lab.harness.modes import Mode
from provisioner.lab.harness.results import Figure, at_least, at_most
from provisioner.lab.harness.running import RUN_SECONDS, watch
from provisioner.lab.harness.session import EXTENDER, Session, session
from provisioner.lab.harness.table import Show, live
from provisioner.lab.harness.workload import deployment, example, namespace

GANGS: Final = "gangs"
NODE_COUNT: Final = 64
PODS_A_NODE: Final = (1, 8)
CLAIMS_GOAL_SECONDS: Final = 2.5
WINDOW_SECONDS: Final = 1.0
BOUND_GOAL_SECONDS: Final = (2.0, 5.0)
CPU_GOAL_PERCENT: Final = 5.0
WAITING: Final = 10
WAITING_SECONDS: Final = 120.0
MEMBERS_THAT_WAIT: Final = 512
THREADS: Final = 16
_FILTERED: Final = "dovetail_extender_requests_total"
REQUESTS: Final[Mapping[int, Mapping[str, str]]] = {
    1: {"cpu": "9", "memory": "1Gi"},
    8: {"cpu": "1900m", "memory": "1Gi"},
}
"""Of which so many fill a node of 16 CPU."""


def gangs(bench: Bench, mode: Mode, prefix: str) -> list[Figure]:
    """Gangs of 64 and 512 pods on 64 new nodes each, then ten that no node is large enough for."""
    nodes, pause = (3, 10.0) if bench.quick else (NODE_COUNT, WAITING_SECONDS)
    found: list[Figure] = []
    with session(replace(bench.setup(GANGS, mode), gates="gangs"), bench.say, bench.progress) as run:
        run.apply_pools(example("bench-nodepool.yaml"))
        applying.apply(run.client, [namespace(GANGS)])
        with live(bench.console) as show:
            for each, goal in zip(PODS_A_NODE, BOUND_GOAL_SECONDS, strict=True):
                found += _bought(run, show, prefix, nodes, each, goal if mode is Mode.EVERYTHING_ON else None)
            running = run.observer.counts().running
            if EXTENDER in run.setup.programs:
                found += _failing(run, show, prefix, 12 if bench.quick else MEMBERS_THAT_WAIT, pause)
    return [Figure(f"{prefix}{PODS_RUNNING}", running, "pods", at_least(nodes * sum(PODS_A_NODE))), *found]


def _bought(run: Session, show: Show, prefix: str, nodes: int, each: int, goal: float | None) -> list[Figure]:
    """One gang, from the creation of its last pod until all are bound."""
    name, observer, before = f"on-{nodes}-{each}", run.observer, len(run.observer.bound_moments())
    known = len(observer.claim_moments())
    began = run.clock.monotonic()
    last = _create(run, name, nodes * each, REQUESTS[each])
    watch(run, show, lambda counts: counts.running >= before + nodes * each, began, RUN_SECONDS)
    claims, bound = observer.claim_moments()[known:], observer.bound_moments()[before:]
    ready = [moment for moment in observer.ready_moments() if moment >= began]
    what = f"{prefix}{nodes * each} pods on {nodes} nodes"
    nothing = float("nan")
    return [
        Figure(f"{what}, NodeClaims", len(claims), ""),
        Figure(
            f"{what}, last pod to last NodeClaim",
            claims[-1] - last if claims else nothing,
            "s",
            at_most(CLAIMS_GOAL_SECONDS, WINDOW_SECONDS) if each == 1 else None,
        ),
        Figure(
            f"{what}, last node ready to last pod bound",
            bound[-1] - ready[-1] if bound and ready else nothing,
            "s",
            at_most(goal) if goal is not None else None,
        ),
    ]


def _failing(run: Session, show: Show, prefix: str, members: int, seconds: float) -> list[Figure]:
    """Gangs that no node is large enough for: what they cost the extender while kube-scheduler tries them."""
    for number in range(WAITING):
        _create(run, f"huge-{number}", members if number == 0 else 8, {"cpu": "999", "memory": "1Gi"})
    calls, used, began = _calls(run), run.cpu_seconds()[EXTENDER], run.clock.monotonic()
    watch(run, show, lambda _: False, began, seconds)
    passed = run.clock.monotonic() - began
    asked, cpu = _calls(run) - calls, run.cpu_seconds()[EXTENDER] - used
    what = f"{prefix}{WAITING} gangs that no node is large enough for"
    return [
        Figure(f"{what}, calls of the extender", asked / passed, "1/s"),
        Figure(f"{what}, CPU of the extender", 100 * cpu / passed, "%", at_most(CPU_GOAL_PERCENT)),
    ]


def _calls(run: Session) -> float:
    page = figures.read(f"http://127.0.0.1:{run.cluster.ports['extender-metrics']}/metrics")
    return sum(value for labels, value in figures.series(page, _FILTERED) if labels.get("verb") == "filter")


def _create(run: Session, name: str, count: int, requests: Mapping[str, str]) -> float:
    """A gang of so many pods; when the last was created."""
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": count}}},
    }
    run.client.create(PODGROUPS, group, GANGS)
    spec = deployment(name, GANGS, 1, requests)["spec"]["template"]["spec"]
    spec["schedulingGroup"] = {"podGroupName": name}

    def create(pod: int) -> None:
        metadata = {"name": f"{name}-{pod:04}", "labels": {"app": name}}
        run.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, GANGS)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(create, range(count)))
    return run.clock.monotonic()


CASES: Final[dict[str, Case]] = {GANGS: gangs}
