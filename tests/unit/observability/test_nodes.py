"""Figures of single nodes, and what NodePools cost."""

import math
from dataclasses import replace

import msgspec

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.cloudprovider.kwok import catalogue
from provisioner.observability.nodes import cost_lines, metric_labels, node_lines
from tests.support.clock import NOON
from tests.support.cluster import World, bound, pod

TYPES = {one.name: one for one in catalogue.generated().types}


def figures(world: World) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in node_lines(world.cluster.snapshot().nodes, world.cluster.node, names.WELL_KNOWN_LABELS, NOON):
        if not line.startswith("#"):
            found.setdefault(line.partition("{")[0], []).append(line.strip())
    return found


def test_requests_of_pods_and_daemons_are_apart() -> None:
    world = World()
    world.existing_node("a")
    world.add(bound(pod("one"), "a"), bound(pod("two", kind="DaemonSet", cpu="250m"), "a"))
    found = figures(world)
    assert [line.rpartition(" ")[2] for line in found["karpenter_nodes_total_pod_requests"] if '"cpu"' in line] == [
        "1.0"
    ]
    daemons = found["karpenter_nodes_total_daemon_requests"]
    assert [line.rpartition(" ")[2] for line in daemons if '"cpu"' in line] == ["0.25"]
    assert 'nodepool="general"' in daemons[0]
    (share,) = [line for line in found["karpenter_cluster_utilization_percent"] if '"cpu"' in line]
    assert round(float(share.rpartition(" ")[2]), 2) == round(100 * 1.25 / 3.9, 2)


def test_a_node_that_says_nonsense_has_no_figures() -> None:
    world = World()
    world.existing_node("a")
    bad = world.cluster.node("a")
    assert bad is not None
    broken = Node(metadata=bad.metadata, spec=bad.spec, status=type(bad.status)(allocatable={"cpu": "many"}))
    lines = node_lines(world.cluster.snapshot().nodes, lambda _: broken, names.WELL_KNOWN_LABELS, NOON)
    assert not any(line.startswith("karpenter_nodes_allocatable{") for line in lines)


def test_labels_are_named_by_what_stands_behind_the_slash() -> None:
    labels = metric_labels([names.ZONE_LABEL, "karpenter.k8s.aws/instance-gpu-count", "example.com/zone"])
    assert labels == {"karpenter.k8s.aws/instance-gpu-count": "instance_gpu_count", "example.com/zone": "zone"}


def test_a_pool_costs_what_its_nodes_cost_and_unknown_prices_are_told() -> None:
    world = World()
    world.existing_node("a")
    world.existing_node("b")
    known = {view.key: view for view in world.cluster.snapshot().nodes}
    lines, unknown = cost_lines(known.values(), ["general", "empty"], lambda _: {})
    assert unknown == {("general", "a"), ("general", "b")}
    assert lines[1:] == [
        'karpenter_nodepools_cost_total{nodepool="empty"} 0.0\n',
        'karpenter_nodepools_cost_total{nodepool="general"} 0.0\n',
    ]
    labels = {
        names.INSTANCE_TYPE_LABEL: "c-4x-amd64-linux",
        names.ZONE_LABEL: "test-zone-a",
        names.CAPACITY_TYPE_LABEL: "spot",
    }
    world.cluster.node_changed(None, labelled(world, "a", labels))
    lines, unknown = cost_lines(world.cluster.snapshot().nodes, ["general"], lambda _: TYPES)
    assert unknown == {("general", "b")}
    assert float(lines[1].rpartition(" ")[2]) > 0
    priceless = tuple(replace(one, price=math.nan) for one in TYPES["c-4x-amd64-linux"].offerings)
    odd = replace(TYPES["c-4x-amd64-linux"], offerings=priceless)
    lines, unknown = cost_lines(world.cluster.snapshot().nodes, ["general"], lambda _: {odd.name: odd})
    assert unknown == {("general", "a"), ("general", "b")}, "what is no number is not known, as for consolidation"
    assert lines[1].endswith(" 0.0\n")


def labelled(world: World, name: str, labels: dict[str, str]) -> Node:
    found = world.cluster.node(name)
    assert found is not None
    return msgspec.structs.replace(
        found, metadata=msgspec.structs.replace(found.metadata, labels={**found.metadata.labels, **labels})
    )
