"""Nodes of gangs that are disrupted on a real control plane with the feature gate GenericWorkload: the group comes back, and those that go at once do."""

import time
from collections.abc import Iterator

import pytest

from provisioner.apis.karpenter import NodeClaim
from provisioner.kube.client import Client
from provisioner.kube.resources import NODECLAIMS, NODEPOOLS, PODGROUPS, PODS
from provisioner.lab.devcluster.cluster import DevCluster
from tests.support.eventually import eventually
from tests.support.provisioner import SECONDS, TEAM, InProcess, Plot

pytestmark = pytest.mark.plane
BUSY = {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}
NODES = 4
STILL_SECONDS = 6.0


@pytest.fixture(scope="module")
def provisioner(gang_plane: DevCluster, gang_client: Client) -> Iterator[InProcess]:
    with InProcess(str(gang_plane.kubeconfig)) as one:
        yield one


@pytest.fixture
def plot(gang_client: Client, provisioner: InProcess) -> Iterator[Plot]:
    one = Plot(gang_client)
    yield one
    one.clear()


def train(plot: Plot, mode: str) -> str:
    """A gang of exactly as many pods as it needs, one on each node; the name of the pool."""
    pool = plot.pool(disruption=BUSY)
    body = {
        "apiVersion": PODGROUPS.api_version,
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": NODES}}, "disruptionMode": {mode: {}}},
    }
    plot.client.create(PODGROUPS, body, plot.name)
    plot.deploy("train", NODES, schedulingGroup={"podGroupName": "train"})
    plot.await_running(NODES)
    eventually(lambda: len(plot.initialized()) == NODES, "all nodes are initialized", SECONDS)
    return pool


def drift(plot: Plot, pool: str) -> set[str]:
    """Change a label of the template; the names of the claims that have drifted."""
    before = {one.name for one in plot.claims()}
    body = {"spec": {"template": {"metadata": {"labels": {TEAM: pool, "dovetail.example/generation": "2"}}}}}
    plot.client.patch(NODEPOOLS, pool, body)
    return before


def going(claims: list[NodeClaim]) -> set[str]:
    return {one.name for one in claims if one.metadata.deletion_timestamp is not None}


def is_renewed(plot: Plot, old: set[str]) -> bool:
    claims = plot.claims()
    return len(claims) == NODES and old.isdisjoint(one.name for one in claims) and plot.running() == NODES


def blocked(plot: Plot, claims: set[str]) -> list[str]:
    return [one.message for one in plot.events("DisruptionBlocked", "NodeClaim", claims)]


@pytest.mark.parametrize("count", [1, 2])
def test_evicted_pods_of_a_gang_of_exactly_as_many_as_it_needs_come_back(plot: Plot, count: int) -> None:
    """One comes back alone, and two together: until then both wait."""
    train(plot, "single")
    gone = sorted(one.name for one in plot.claims())[:count]
    for name in gone:
        plot.client.delete(NODECLAIMS, name)
    eventually(lambda: is_renewed_but(plot, gone), f"{count} pods run elsewhere", SECONDS)


def is_renewed_but(plot: Plot, gone: list[str]) -> bool:
    claims = {one.name for one in plot.claims()}
    return len(claims) == NODES and claims.isdisjoint(gone) and plot.running() == NODES


def test_the_nodes_of_a_gang_without_pods_to_spare_drift_one_after_another(plot: Plot) -> None:
    pool = train(plot, "single")
    old = drift(plot, pool)

    def done() -> bool:
        bound = sum(bool(one.node_name) for one in plot.pods())
        assert bound >= NODES - 1  # an instance may still end when the next node's turn comes
        return is_renewed(plot, old)

    eventually(done, "all nodes are renewed", 2 * SECONDS, 0.2)
    eventually(
        lambda: any("waiting until these are bound" in one for one in blocked(plot, old)),
        lambda: blocked(plot, old),
    )


def test_the_nodes_of_a_gang_that_moves_at_once_drift_in_one_command(plot: Plot) -> None:
    pool = train(plot, "all")
    old = drift(plot, pool)

    def first() -> bool:
        claims = plot.claims()
        ready = {one.name for one in plot.initialized()} - old
        if not going(claims) & old:
            return False
        assert len(ready) == NODES, "replacements for the whole gang come first"
        return True

    eventually(first, "the nodes go", SECONDS, 0.1)
    eventually(lambda: is_renewed(plot, old), "all nodes are renewed", SECONDS, 0.2)
    assert not [one for one in blocked(plot, old) if "waiting until" in one]
    (one,) = eventually(lambda: plot.events("GangMoved", "PodGroup", ["train"]), "the group says that it moves")
    assert f"{NODES} nodes will be disrupted at once (Drifted)" in one.message


def test_a_gang_that_moves_at_once_stays_where_a_pod_disruption_budget_allows_half(plot: Plot) -> None:
    pool = train(plot, "all")
    plot.protect("train", maxUnavailable=NODES // 2)
    old = drift(plot, pool)
    why = f"(disruptionMode all) needs {NODES} nodes to be disrupted at once: PodDisruptionBudgets do not allow"
    eventually(lambda: any(why in one for one in blocked(plot, old)), "an event says why", SECONDS)
    time.sleep(STILL_SECONDS)
    assert ({one.name for one in plot.claims()}, going(plot.claims())) == (old, set())
    plot.unprotect("train")
    eventually(lambda: is_renewed(plot, old), "all nodes are renewed", SECONDS, 0.2)


@pytest.mark.parametrize("allowed", [True, False], ids=["allowed", "not allowed"])
def test_consolidation_moves_a_gang_at_once_only_where_its_owner_allows_that(plot: Plot, allowed: bool) -> None:
    """Two pods of a gang, one on each node of four CPUs; what else was on a third node leaves room there for both."""
    quick = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}
    pool = plot.pool(disruption=BUSY, cpu=4)
    notes = {"dovetail.dev/gang-consolidation": "allow"} if allowed else {}
    body = {
        "apiVersion": PODGROUPS.api_version,
        "kind": "PodGroup",
        "metadata": {"name": "train", "annotations": notes},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": {"all": {}}},
    }
    plot.deploy("large", 2, cpu="2500m", pool=pool)
    plot.await_running(2)
    plot.client.create(PODGROUPS, body, plot.name)
    plot.deploy("train", 2, cpu="1300m", pool=pool, schedulingGroup={"podGroupName": "train"})
    plot.await_running(4)
    plot.deploy("rest", 1, cpu="2500m", pool=pool)
    plot.await_running(5)
    before = {one.node_name for one in plot.pods("train")}
    assert len(before) == 2
    plot.scale("large", 0)
    plot.scale("rest", 0)
    eventually(lambda: len(plot.client.list(PODS, plot.name)) == 2, "the others are gone", SECONDS)
    plot.deploy("stays", 1, cpu="100m", pool=pool)
    plot.await_running(3)
    plot.protect("stays")
    plot.client.patch(NODEPOOLS, pool, {"spec": {"disruption": quick}})
    if allowed:
        (one,) = eventually(lambda: plot.events("GangMoved", "PodGroup", ["train"]), "it is told", SECONDS)
        assert "(Underutilized)" in one.message
        eventually(lambda: len(plot.nodes()) == 1 and plot.running() == 3, "one node is left", SECONDS, 0.2)
    else:
        eventually(
            lambda: any(
                "dovetail.dev/gang-consolidation" in one for one in blocked(plot, {c.name for c in plot.claims()})
            ),
            "an event says what is missing",
            SECONDS,
        )
        assert {one.node_name for one in plot.pods("train")} == before
