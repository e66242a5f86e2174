"""Deletion costs of pods, as a real API server keeps them and the controller of ReplicaSets reads them."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.deletion_cost import ManagedPod, deletion_cost, is_marked
from provisioner.disruption.deletion_cost_controller import MANAGER
from provisioner.kube.client import Client
from provisioner.kube.resources import PODS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.options import FeatureGates
from tests.support.eventually import eventually
from tests.support.provisioner import SECONDS, InProcess, Plot

pytestmark = pytest.mark.plane

COST = names.POD_DELETION_COST
ON_DEMAND = [{"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": [names.CAPACITY_ON_DEMAND]}]


def started(plane: DevCluster, *, on: bool = True) -> InProcess:
    one = InProcess(str(plane.kubeconfig), feature_gates=FeatureGates(pod_deletion_cost_management=on))
    one.start()
    return one


@pytest.fixture
def plot(plane: DevCluster, client: Client) -> Iterator[Plot]:
    one = Plot(client)
    yield one
    if one.claims():  # the test failed
        program = started(plane, on=False)
        try:
            one.clear()
        finally:
            program.stop()


def costs(plot: Plot, app: str) -> dict[str, set[int]]:
    """By node, the deletion costs of the pods of an app."""
    found: dict[str, set[int]] = {}
    for one in plot.pods(app):
        found.setdefault(one.node_name, set()).add(deletion_cost(one))
    return found


def managers(client: Client, plot: Plot, name: str) -> set[str]:
    """The field managers that own the deletion cost of a pod."""
    items = client.items(PODS, plot.name, {"fieldSelector": f"metadata.name={name}"})
    (one,) = (msgspec.json.decode(item, type=ManagedPod) for item in items)

    def owns(fields: dict[str, Any]) -> bool:
        return f"f:{COST}" in fields.get("f:metadata", {}).get("f:annotations", {})

    return {entry.manager for entry in one.metadata.managed_fields if owns(entry.fields)}


def test_a_replica_set_that_shrinks_gives_up_the_pods_of_the_cheapest_node_first(
    plane: DevCluster, client: Client, plot: Plot
) -> None:
    program = started(plane)
    try:
        plot.pool(requirements=ON_DEMAND)
        plot.deploy("large", 3)
        plot.await_running(3)
        plot.deploy("web", 6, cpu="400m")
        plot.await_running(9)
        assert [len([one for one in plot.pods("web") if one.node_name == node]) for node in costs(plot, "web")] == [
            2
        ] * 3
        eventually(lambda: all(max(one) < 0 for one in costs(plot, "large").values()), "all are ranked", SECONDS)
        plot.scale("large", 2)
        eventually(lambda: plot.running("large") == 2 and len(plot.pods("large")) == 2, "one is gone", SECONDS)
        (cheapest,) = {one.node_name for one in plot.pods("web")} - {one.node_name for one in plot.pods("large")}

        def first() -> bool:
            """Whether the node with the least to move comes first, and all pods of a node have one cost."""
            found = costs(plot, "web")
            ranked = all(len(one) == 1 and max(one) < 0 for one in found.values())
            return ranked and min(found, key=lambda node: min(found[node])) == cheapest

        eventually(first, "the costs follow the nodes", SECONDS)
        kept = {one.uid for one in plot.pods("web") if one.node_name != cheapest}
        assert managers(client, plot, plot.pods("web")[0].name) == {MANAGER}
        plot.scale("web", 4)
        eventually(lambda: len(plot.pods("web")) == 4, "two are gone", SECONDS)
        assert {one.uid for one in plot.pods("web")} == kept
        eventually(lambda: len(plot.claims()) == 2, "so is their node", SECONDS)

        # a user's word stays, beside and over ours; Karpenter's is removed by the next program, and with the gate off ours is, too
        mine, *_ = plot.pods("web")
        plane.kubectl("annotate", "pod", "-n", plot.name, mine.name, f"{COST}=77", "--overwrite")
        assert managers(client, plot, mine.name) == {"kubectl-annotate"}
        left, *_ = plot.pods("large")
        by = "--field-manager=karpenter"
        plane.kubectl("annotate", "pod", "-n", plot.name, left.name, f"{COST}=-2147483648", "--overwrite", by)
    finally:
        program.stop()
    program = started(plane, on=False)
    try:
        eventually(
            lambda: (
                not any(is_marked(one) for one in plot.pods())
                and deletion_cost(client.get(PODS, left.name, plot.name)) == 0
            ),
            "the costs are withdrawn",
            SECONDS,
        )
        assert {one.name: deletion_cost(one) for one in plot.pods() if deletion_cost(one)} == {mine.name: 77}
        plot.clear()
    finally:
        program.stop()
