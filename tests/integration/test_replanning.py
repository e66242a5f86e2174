"""Plans that kube-scheduler does not follow, and plans that kubelets write, on a real control plane."""

import time
from collections.abc import Callable, Iterator

import pytest

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.plan import decode_plan
from provisioner.kube.client import Client
from provisioner.kube.resources import NODES
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.runtime.node_patch import merged, patch_node
from provisioner.support.metrics import REGISTRY
from tests.support.eventually import PATIENCE, eventually
from tests.support.provisioner import SECONDS, InProcess, Plot

pytestmark = pytest.mark.plane

NEVER = {"consolidateAfter": "Never"}
CLOSED = {"key": "dovetail.example/closed", "effect": "NoSchedule"}


TAKEN = {names.HOSTNAME_LABEL: "taken"}
"""A label that the Node alone decides: one that its NodeClaim decides is put back."""
NOT_TAKEN = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": names.HOSTNAME_LABEL, "operator": "NotIn", "values": ["taken"]}]}
            ]
        }
    }
}


@pytest.fixture(scope="module")
def provisioner(plane: DevCluster, client: Client) -> Iterator[InProcess]:
    with InProcess(str(plane.kubeconfig)) as one:
        yield one


@pytest.fixture
def plot(client: Client, provisioner: InProcess) -> Iterator[Plot]:
    one = Plot(client)
    yield one
    one.clear()


def missed() -> float:
    """Planned pods that were refused for their selector, so far."""
    return REGISTRY.get_sample_value("dovetail_plan_misses_total", {"cause": "node_affinity"}) or 0.0


def closed(plot: Plot) -> list[Node]:
    """Registered Nodes that still wait for their startup taint to fall."""
    return [
        one
        for one in plot.nodes()
        if one.metadata.labels.get(names.REGISTERED_LABEL) == "true"
        and any(taint.key == CLOSED["key"] for taint in one.spec.taints)
    ]


def opening(label: Callable[[Node], dict[str, str]]) -> Callable[[Node], list[dict[str, object]]]:
    """The patch that takes the startup taint off, and in the same moment changes labels."""

    def patch_of(node: Node) -> list[dict[str, object]]:
        left = [{"key": one.key, "effect": one.effect, "value": one.value} for one in node.spec.taints]
        return [
            {"op": "add", "path": "/spec/taints", "value": [one for one in left if one["key"] != CLOSED["key"]]},
            *merged("/metadata/labels", node.metadata.labels, label(node)),
        ]

    return patch_of


def test_a_pod_that_is_refused_where_it_was_planned_is_planned_elsewhere_within_seconds(
    plot: Plot, client: Client
) -> None:
    """Without evidence it would wait for two minutes until its hold is over."""
    before = missed()
    plot.pool(disruption=NEVER, template={"startupTaints": [CLOSED]})
    plot.deploy("web", 1, affinity=NOT_TAKEN)
    (first,) = eventually(lambda: closed(plot), "its node is there", SECONDS, 0.02)
    time.sleep(3)  # kube-scheduler has said what it has against the taint
    patch_node(client, first, opening(lambda _: TAKEN))
    started = time.monotonic()
    (second,) = eventually(
        lambda: [one for one in closed(plot) if one.metadata.name != first.metadata.name], "another node", SECONDS, 0.1
    )
    print(f"another node after {time.monotonic() - started:.1f} s")
    assert time.monotonic() - started < 30 * PATIENCE
    assert missed() == before + 1
    patch_node(client, second, opening(lambda _: {}))
    plot.await_running(1)
    (pod,) = plot.pods()
    assert pod.node_name == second.metadata.name
    by_node = {claim.status.node_name: claim for claim in plot.claims()}
    assert names.PLAN_ANNOTATION not in by_node[first.metadata.name].metadata.annotations, "it holds no room any more"


def test_three_plans_that_fail_stop_new_nodes_and_the_pod_is_told_what_kube_scheduler_said(
    plot: Plot, client: Client
) -> None:
    pool = plot.pool(disruption=NEVER, template={"startupTaints": [CLOSED]})
    plot.deploy("web", 1, affinity=NOT_TAKEN)
    opened: set[str] = set()

    def all_refused() -> bool:
        for node in closed(plot):
            if node.metadata.name not in opened:
                time.sleep(2)
                patch_node(client, node, opening(lambda _: TAKEN))
                opened.add(node.metadata.name)
        return bool(told())

    def told() -> list[str]:
        found = plot.events("FailedScheduling", "Pod", [pod.name for pod in plot.pods()])
        return [one.message for one in found if "3 times in a row" in one.message]

    eventually(all_refused, "it is told that no more nodes come", 2 * SECONDS, 0.1)
    (text,) = told()
    assert "node affinity/selector" in text
    assert len(plot.claims(pool)) == 3
    time.sleep(10)
    assert len(plot.claims(pool)) == 3


def test_a_plan_that_a_kubelet_writes_on_its_node_lures_no_pod_and_is_taken_off(plot: Plot, client: Client) -> None:
    first = plot.pool("-a", disruption=NEVER)
    second = plot.pool("-b", disruption=NEVER)
    plot.deploy("filler", 1, cpu="1", pool=first)
    plot.await_running(1)
    (trap,) = plot.nodes(first)
    plot.deploy("web", 1, pool=second, schedulerName="nobody")
    (pod,) = eventually(lambda: plot.pods("web"), "the pod is there", SECONDS)
    lure = f'{{"v":1,"pods":[{{"class":"{pod.shape.key}","count":1,"owner":"x","uids":["{pod.uid}"]}}]}}'
    assert decode_plan(lure).total == 1
    client.patch(NODES, trap.metadata.name, {"metadata": {"annotations": {names.PLAN_ANNOTATION: lure}}})
    eventually(
        lambda: names.PLAN_ANNOTATION not in client.get(NODES, trap.metadata.name).metadata.annotations,
        "the annotation is removed",
        SECONDS,
    )
