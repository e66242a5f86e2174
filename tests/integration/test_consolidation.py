"""Consolidation, expiration and what holds them, on a real control plane with kwok."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.meta import condition
from provisioner.kube.client import Client
from provisioner.kube.resources import NODEPOOLS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.packing.planner import PlanOutcome
from provisioner.packing.process import PackingRefusal
from provisioner.support.metrics import REGISTRY
from tests.support.eventually import PATIENCE, eventually
from tests.support.provisioner import SECONDS, InProcess, Plot

pytestmark = pytest.mark.plane

ON_DEMAND = [{"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": [names.CAPACITY_ON_DEMAND]}]
UNDERUTILIZED = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"}
NEVER = {"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]}
EVERYTHING = {**UNDERUTILIZED, "budgets": [{"nodes": "100%"}]}


@pytest.fixture(scope="module")
def program(plane: DevCluster, client: Client) -> Iterator[InProcess]:
    del client  # the CRDs are there
    with InProcess(str(plane.kubeconfig)) as one:
        yield one


@pytest.fixture
def plot(program: InProcess, client: Client) -> Iterator[Plot]:
    del program  # it runs
    one = Plot(client)
    yield one
    one.clear()


def test_a_fleet_that_is_scaled_down_shrinks_and_keeps_its_pod_disruption_budget(plot: Plot) -> None:
    plot.pool(disruption=EVERYTHING)
    plot.deploy("large", 8, cpu="3")
    plot.await_running(8)
    plot.deploy("web", 8, cpu="600m")
    plot.await_running(16)
    before = eventually(lambda: len(plot.initialized()) >= 8 and len(plot.initialized()), "nodes are there", SECONDS)
    plot.protect("web", minAvailable=7)
    plot.scale("large", 0)
    fewest = 8

    def shrunk() -> bool:
        nonlocal fewest
        fewest = min(fewest, plot.running("web"))
        return len(plot.claims()) <= 2 and all(one.metadata.deletion_timestamp is None for one in plot.claims())

    eventually(shrunk, f"{before} nodes become two", 3 * SECONDS, 0.2)
    plot.await_running(8)
    assert fewest >= 7, "a pod was evicted before its successor ran"

    def reasons() -> set[str]:
        return {one.message for one in plot.events("DisruptionTerminating", "NodeClaim")}

    eventually(lambda: "Disrupting Node: Underutilized" in reasons(), reasons)


def pause(plot: Plot, value: str | None) -> None:
    plot.client.patch(NODEPOOLS, plot.name, {"metadata": {"annotations": {names.PAUSED: value}}})


def test_a_node_that_is_too_large_is_replaced_by_a_cheaper_one_unless_its_pool_is_paused(plot: Plot) -> None:
    plot.pool(cpu=(2, 4, 8, 16), requirements=ON_DEMAND, disruption=EVERYTHING, delay=f"{3 * PATIENCE}s")
    plot.deploy("large", 1, cpu="12")
    plot.await_running(1)
    (old,) = eventually(plot.initialized, "the node is initialized", SECONDS)
    plot.deploy("small", 1, cpu="1")
    plot.await_running(2)
    assert [one.name for one in plot.claims()] == [old.name], "the small pod has a node of its own"
    plot.scale("large", 0)
    eventually(lambda: len(plot.claims()) == 2, "a replacement is launched", 2 * SECONDS, 0.1)
    pause(plot, "true")
    eventually(lambda: len(plot.initialized()) == 2, "the replacement is initialized", SECONDS, 0.2)
    paused = f'Disruption is paused by the annotation "{names.PAUSED}" of NodePool "{plot.name}"'
    eventually(
        lambda: paused in {one.message for one in plot.events("DisruptionBlocked", "NodeClaim", [old.name])},
        "the command waits",
        SECONDS,
        0.2,
    )
    assert {one.metadata.deletion_timestamp for one in plot.claims()} == {None}
    pause(plot, None)

    def replaced() -> bool:
        found = plot.initialized()
        return len(found) == 1 and found[0].name != old.name and len(plot.claims()) == 1

    eventually(replaced, "a smaller node takes its place", 2 * SECONDS, 0.2)
    plot.await_running(1)
    (new,) = plot.claims()
    size = "karpenter.kwok.sh/instance-cpu"
    assert (old.metadata.labels[size], new.metadata.labels[size]) == ("16", "2")


def by_zone(app: str) -> list[dict[str, Any]]:
    return [
        {
            "maxSkew": 1,
            "topologyKey": names.ZONE_LABEL,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": app}},
        }
    ]


HELD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "-budget": ({**UNDERUTILIZED, "budgets": [{"nodes": "0", "reasons": ["Underutilized"]}]}, {}),
    "-never": ({**EVERYTHING, "consolidateAfter": "Never"}, {}),
    "-empty": ({**EVERYTHING, "consolidationPolicy": "WhenEmpty"}, {}),
    "-kept": (EVERYTHING, {"annotations": {names.DO_NOT_DISRUPT: "true"}}),
    "-pdb": (EVERYTHING, {}),
    "-spread": (EVERYTHING, {}),
}
"""By suffix of a pool: what holds its nodes, on the pool and on its pods; "-pdb" has a PodDisruptionBudget of none
besides, and "-spread" a pod in each zone."""


def test_what_holds_a_node(plot: Plot) -> None:
    """Side by side: every pool has two nodes with a small pod each that one of them could hold."""
    held = {suffix: plot.pool(suffix, disruption=disruption, ready=False) for suffix, (disruption, _) in HELD.items()}
    free = plot.pool("-free", disruption=EVERYTHING)
    pools = {**held, "-free": free}

    def deploy(size: str, cpu: str) -> None:
        for suffix, pool in pools.items():
            app, more = f"{size}{suffix}", HELD.get(suffix, ({}, {}))[1]
            if suffix == "-spread":
                more = {"topologySpreadConstraints": by_zone(app)}
            plot.deploy(app, 2, pool=pool, cpu=cpu, **more)

    deploy("large", "3")
    plot.await_running(2 * len(pools))
    deploy("small", "600m")
    plot.protect("small-pdb")
    plot.await_running(4 * len(pools))
    eventually(lambda: len(plot.initialized()) == 2 * len(pools), "every pool has its nodes", SECONDS, 0.2)
    before = {one.name for one in plot.claims()}
    assert len(before) == 2 * len(pools)
    for suffix in pools:  # the one that may shrink last
        plot.scale(f"large{suffix}", 0)
    eventually(lambda: len(plot.claims(free)) == 1, "the free pool shrinks", 2 * SECONDS, 0.2)
    plot.await_running(2 * len(pools))
    for suffix, pool in held.items():
        found = plot.claims(pool)
        assert {one.name for one in found} <= before, suffix
        assert len(found) == 2, suffix
        assert all(one.metadata.deletion_timestamp is None for one in found), suffix
        assert all(condition(one.status.conditions, names.DISRUPTION_REASON) is None for one in found), suffix
    said = {
        "-empty": (
            "Unconsolidatable",
            f'NodePool "{held["-empty"]}" has consolidation policy WhenEmpty, but node is not empty',
        ),
        "-pdb": ("DisruptionBlocked", f"Pdb prevents pod evictions (PodDisruptionBudget={plot.name}/small-pdb)"),
        "-kept": ("DisruptionBlocked", f'Pod has "{names.DO_NOT_DISRUPT}" annotation'),
    }
    for suffix, (reason, message) in said.items():
        claims = [one.name for one in plot.claims(held[suffix])]
        told = partial(messages, plot, reason, claims)
        eventually(lambda: any(one.startswith(message) for one in told()), told, SECONDS)  # noqa: B023 - asked at once


def messages(plot: Plot, reason: str, claims: list[str]) -> list[str]:
    return [one.message for one in plot.events(reason, "NodeClaim", claims)]


def test_a_node_expires_and_its_pod_finds_another(plot: Plot) -> None:
    plot.pool(disruption=NEVER, template={"expireAfter": "20s"})
    plot.deploy("web", 1)
    plot.await_running(1)
    (old, *_) = eventually(plot.initialized, "the node is initialized", SECONDS)  # a crowded machine may be at the next

    def renewed() -> bool:
        return old.name not in {one.name for one in plot.claims()} and plot.running() == 1

    eventually(renewed, "another node has the pod", 2 * SECONDS, 0.1)
    told = eventually(lambda: messages(plot, "DisruptionTerminating", [old.name]), "it is told", SECONDS)
    assert told == ["Disrupting Node: Expired"]


def searches() -> dict[str, float]:
    """What came of consolidation's questions to the planner, by outcome."""
    name = "dovetail_consolidation_plans_total"
    outcomes = [*PlanOutcome, *PackingRefusal]
    return {one: REGISTRY.get_sample_value(name, {"outcome": one}) or 0.0 for one in outcomes}


def test_many_small_nodes_are_built_anew_together_where_that_pays_and_the_planner_is_asked(plot: Plot) -> None:
    """Of ten of them, no single new node is cheaper: a node of 32 CPUs must have the pods of more than 16."""
    plot.pool(cpu=2, requirements=ON_DEMAND, disruption=NEVER)
    plot.deploy("web", 24, cpu="1500m")
    plot.deploy("beside", 24, cpu="250m")
    plot.await_running(48)
    before = searches()
    plot.scale("beside", 0)  # nodes are not what they were bought for any more
    plot.pool(cpu=(2, 32), requirements=ON_DEMAND, disruption=EVERYTHING)

    def shrunk() -> bool:
        claims = plot.claims()
        return len(claims) <= 6 and all(one.metadata.deletion_timestamp is None for one in claims)

    eventually(shrunk, "few nodes are left", 5 * SECONDS, 0.5)  # a search rests for a minute
    plot.await_running(24)
    eventually(lambda: searches() != before, "the planner was asked")
    assert "32" in {one.metadata.labels["karpenter.kwok.sh/instance-cpu"] for one in plot.claims()}
