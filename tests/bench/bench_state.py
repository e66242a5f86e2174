"""What the state costs at 5,000 nodes and 50,000 pods, in CPU time; keeps results/state.json.

Every row is the time under the lock that all watches need. "After N pods" is a snapshot after so many pods were bound, the
events themselves apart.

What looks at the pods in the cache for the repair of on-demand shares cost at 100,000 pods, each ten seconds, is in results/shares-*.json.
"""

import gc
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from statistics import median

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.budget_index import PodBudgets
from provisioner.apis.core import DaemonSet, Node
from provisioner.apis.meta import OwnerReference
from provisioner.apis.pods import Pod
from provisioner.cloudprovider.kwok import catalogue
from provisioner.kube.client import Client
from provisioner.lab.harness.results import Figure, at_most, write
from provisioner.scheduling.prepared import prepare
from provisioner.scheduling.world import world_of
from provisioner.shares.controller import LOOK_SECONDS, ShareRepair
from provisioner.shares.repair import SETTLE_SECONDS
from provisioner.state.cluster import Cluster
from provisioner.state.keys import NodeKey
from provisioner.state.pause import NOTHING
from provisioner.support.clock import SystemClock
from tests.support.clock import FakeClock
from tests.support.cluster import World, bound, claim, node, pod, pool
from tests.support.kube import FakeApi
from tests.support.problems import shape
from tests.support.worldserver import WorldServer

pytestmark = pytest.mark.bench

ROOT = Path(__file__).parents[2]
NODES, RUNNING, WAITING = 5_000, 10, 2_000
ALL_TRUE = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)
KIND = "c-16x-amd64-linux"
MILLISECONDS = 1000.0
TYPES = {one.name: one for one in catalogue.generated().types}


def agent(name: str) -> DaemonSet:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]
    body = {
        "metadata": {"name": name, "namespace": "kube-system", "uid": name},
        "spec": {"template": {"spec": {"containers": containers}}},
    }
    return msgspec.convert(body, DaemonSet)


def filled() -> Cluster:
    """A settled state of that size."""
    cluster = Cluster(lambda _: TYPES, SystemClock())
    cluster.pool_changed(None, pool(limits={"cpu": "1M"}))
    for number in range(10):
        cluster.daemonset_changed(None, agent(f"agent-{number}"))
    one = pod("shape")
    for number in range(NODES):
        name = f"n{number:05d}"
        cluster.claim_changed(None, claim(name, planned=KIND, provider_id=f"kwok://{name}", true=ALL_TRUE))
        cluster.node_changed(None, node(name, labels={names.NODEPOOL_LABEL: "general"}, kind=KIND))
        for index in range(RUNNING):
            named = f"{name}-{index}"
            cluster.pod_changed(None, msgspec.structs.replace(one, name=named, uid=named, node_name=name))
    cluster.settle()
    cluster.snapshot()
    return cluster


def seconds(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def after(cluster: Cluster, pods: list[Pod], change: Callable[[Pod, int], None], count: int, rounds: int) -> float:
    """Median of a snapshot after `count` changes."""
    taken = []
    for number in range(rounds):
        for one in pods[number * count : (number + 1) * count]:
            change(one, number)
        taken.append(seconds(cluster.snapshot))
    return median(taken)


def test_what_the_state_costs() -> None:
    cluster = filled()
    gc.collect()
    gc.freeze()
    figures: list[Figure] = []

    def figure(name: str, value: float, goal: float | None = None) -> None:
        wanted = at_most(goal) if goal is not None else None
        figures.append(Figure(name, value * MILLISECONDS, "ms of CPU", wanted))
        print(figures[-1].line())

    figure("snapshot, nothing changed", median(seconds(cluster.snapshot) for _ in range(50)), 1.0)
    waiting = [pod(f"w{number:05d}") for number in range(WAITING)]
    figure("an event: a pod is added", seconds(lambda: [cluster.pod_changed(None, one) for one in waiting]) / WAITING)
    cluster.snapshot()

    def bind(one: Pod, number: int) -> None:
        cluster.pod_changed(one, bound(one, f"n{(hash(one.uid) + number) % NODES:05d}"))

    figure("snapshot after one pod", after(cluster, waiting[:50], bind, 1, 50), 1.0)
    figure("snapshot after 100 pods", after(cluster, waiting[50:1050], bind, 100, 10), 10.0)
    left = waiting[1050:1550]

    def assign(one: Pod, number: int) -> None:
        cluster.assign(NodeKey(f"n{(hash(one.uid) + number) % NODES:05d}"), (one,))

    figure("snapshot after one assignment", after(cluster, left[:50], assign, 1, 50), 1.0)
    for one in left[50:]:
        assign(one, 0)
    figure("expire, 500 assignments on open nodes", median(seconds(cluster.expire) for _ in range(10)))

    def beat(_: Pod, number: int) -> None:
        known = cluster.node(f"n{number:05d}")
        assert known is not None
        cluster.node_changed(known, msgspec.structs.replace(known))

    figure("snapshot after a heartbeat", after(cluster, waiting[:50], beat, 1, 50), 1.0)
    write(ROOT / "results", "state", figures)
    assert (
        max(one.value for one in figures if one.goal is not None) < 50
    )  # the goals are printed; this is for a regression


KEEPING = 500
"""Nodes of which is measured what is kept."""


def test_what_is_kept_of_a_pod() -> None:
    """Bytes besides the pods themselves, with ten on a node; provisioning and disruption have a world each."""
    shapes = [pod("shape", shape=shape(labels={"app": f"app-{index}"})) for index in range(RUNNING)]
    there = [f"n{number:05d}" for number in range(KEEPING)]
    pods = [
        msgspec.structs.replace(one, name=f"{name}-{index}", uid=f"{name}-{index}", node_name=name)
        for name in there
        for index, one in enumerate(shapes)
    ]
    cluster = Cluster(lambda _: TYPES, SystemClock())
    for name in there:
        cluster.node_changed(None, node(name, kind=KIND))
    cluster.settle()
    cluster.snapshot()
    figures: list[Figure] = []
    gc.collect()
    tracemalloc.start()

    def kept(name: str, goal: float | None = None) -> None:
        before = sum(one.value for one in figures)
        gc.collect()
        value = tracemalloc.get_traced_memory()[0] / len(pods) - before
        figures.append(Figure(f"kept of a pod by {name}", value, "bytes", at_most(goal) if goal is not None else None))
        print(figures[-1].line())

    for one in pods:
        cluster.pod_changed(None, one)
    snapshot = cluster.snapshot()
    kept("the state", 300.0)
    worlds = [prepare(world_of(snapshot, lambda _: (), frozenset(), lambda _: True).world)]
    kept("a world")
    worlds.append(prepare(world_of(cluster.snapshot(), lambda _: (), frozenset(), lambda _: True).world))
    kept("another world", 100.0)
    tracemalloc.stop()
    write(ROOT / "results", "kept", figures)
    missed = [one.line() for one in figures if one.met is False]
    assert not missed, "\n".join(missed)


PODS, OWNED = 100_000, 20
PERIOD = {False: 50.0, True: 200.0}
"""Goals in ms for a look at pods of which none asks, and all do."""


def owned(*, asking: bool) -> list[Pod]:
    """Pods of owners of which 30 % run on demand, as they are to."""
    annotations = {names.STAMP_ON_DEMAND: "30%", names.ON_DEMAND_REPAIR: "evict"} if asking else {}
    one, pods = pod("shape", ready=True, annotations=annotations), []
    for number in range(PODS):
        owner, place = divmod(number, OWNED)
        capacity = names.CAPACITY_ON_DEMAND if place * 10 < OWNED * 3 else names.CAPACITY_SPOT
        named, uid = f"p{number:06d}", f"rs{owner}"
        above = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name=uid, uid=uid, controller=True)
        labels = {names.ON_DEMAND_SHARE_LABEL: capacity}
        node_name = f"{capacity}-{number % NODES}"
        pods.append(
            msgspec.structs.replace(one, name=named, uid=named, owner=above, labels=labels, node_name=node_name)
        )
    return pods


@pytest.mark.parametrize("asking", [False, True], ids=["none asks", "all ask"])
def test_what_a_look_for_shares_costs(asking: bool) -> None:
    """Nothing is read at the API server, and nodes are looked up once for as long as no pod changes."""
    pods, clock, looked_up = owned(asking=asking), FakeClock(), 0
    nodes = {one: node(one, labels={names.CAPACITY_TYPE_LABEL: one}) for one in ("spot", "on-demand")}

    def find(name: str) -> Node:
        nonlocal looked_up
        looked_up += 1
        return nodes[name.rpartition("-")[0]]

    api, recorder = FakeApi(clock=clock), WorldServer(World()).recorder
    client = Client(api, clock)
    repair = ShareRepair(
        lambda: pods, find, PodBudgets, client, recorder, clock, stale=lambda: "", pause=lambda: NOTHING
    )
    gc.collect()
    gc.freeze()
    said = "all" if asking else "none"
    figures: list[Figure] = []

    def figure(name: str, value: float, goal: float | None = None) -> None:
        wanted = at_most(goal) if goal is not None else None
        figures.append(Figure(f"{name}, of 100,000 pods {said} ask", value * MILLISECONDS, "ms of CPU", wanted))
        print(figures[-1].line())

    figure("the first look", seconds(repair.poll))
    clock.advance(SETTLE_SECONDS)
    figure("the look that judges", seconds(repair.poll))
    assert looked_up == (PODS if asking else 0)
    clock.advance(LOOK_SECONDS)
    figure("a look, nothing changed", median(seconds(repair.poll) for _ in range(5)), PERIOD[asking])
    pods[0] = msgspec.structs.replace(pods[0], resource_version="2")
    repair.poll()
    assert looked_up == (PODS + OWNED if asking else 0)
    assert api.sent == []
    write(ROOT / "results", f"shares-{said}", figures)
    assert figures[-1].value < 5 * PERIOD[asking]  # the goals are printed; this is for a regression
