"""Disruption commands on a real control plane: replacement first, within budgets, resumed after a crash, rolled back where they fail."""

from collections.abc import Iterator

import pytest

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import condition
from provisioner.devcluster.cluster import DevCluster
from provisioner.kube.client import Client
from provisioner.kube.resources import NODEPOOLS, PDBS
from tests.support.eventually import eventually
from tests.support.provisioner import SECONDS, TEAM, InProcess, Plot

pytestmark = pytest.mark.plane

BUSY = {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}


@pytest.fixture
def program(plane: DevCluster, client: Client) -> Iterator[InProcess]:
    one = InProcess(str(plane.kubeconfig))
    one.start()
    yield one
    one.stop()


@pytest.fixture
def plot(program: InProcess, client: Client) -> Iterator[Plot]:
    one = Plot(client)
    yield one
    one.clear()


def relabel(plot: Plot, pool: str, value: str) -> None:
    """Change a label of a pool's template: every node of it is drifted then."""
    body = {"spec": {"template": {"metadata": {"labels": {TEAM: pool, "dovetail.example/generation": value}}}}}
    plot.client.patch(NODEPOOLS, pool, body)


def generation(claim: NodeClaim) -> str:
    return claim.metadata.labels.get("dovetail.example/generation", "")


def allow_one(plot: Plot, app: str, least: int) -> None:
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": app}}},
    }
    plot.client.create(PDBS, body, plot.name)


def is_renewed(plot: Plot, pool: str, value: str, nodes: int) -> bool:
    claims = plot.claims(pool)
    return len(claims) == nodes and all(
        generation(one) == value and one.metadata.deletion_timestamp is None for one in claims
    )


def test_a_pool_whose_template_changes_is_replaced_replacement_first(plot: Plot) -> None:
    pool = plot.pool(disruption={**BUSY, "budgets": [{"nodes": "2"}]})
    plot.deploy("web", 5)
    plot.await_running(5)
    eventually(lambda: len(plot.initialized()) == 5, "five nodes are initialized", SECONDS)
    allow_one(plot, "web", 4)
    old = {one.name for one in plot.claims()}
    relabel(plot, pool, "two")
    fewest, most_away = 5, 0

    def renewed() -> bool:
        nonlocal fewest, most_away
        fewest = min(fewest, plot.running("web"))
        nodes = {node.metadata.name for node in plot.nodes()}
        away = [
            one
            for one in plot.claims()
            if one.name in old
            and one.status.node_name in nodes
            and condition(one.status.conditions, names.DISRUPTION_REASON) is not None
            and condition(one.status.conditions, names.INSTANCE_TERMINATING) is None
        ]
        most_away = max(most_away, len(away))
        return is_renewed(plot, pool, "two", 5)

    eventually(renewed, "every node is of the new template", 2 * SECONDS, 0.1)
    plot.await_running(5)
    assert fewest >= 4, "a pod was evicted before its successor ran"
    assert most_away <= 2, "more nodes were disrupted at once than the budget allows"
    reasons = [one.involved_object.name for one in plot.events("DisruptionTerminating", "NodeClaim", old)]
    assert set(reasons) == old
