"""Pods of PodGroups of Volcano and of the coscheduling plugin on a real control plane as it is by default.

Only their definitions are there, cut down to what is read, and they are created while the provisioner runs. The test plays Volcano: it says why pods have no
node, admits PodGroups, and binds. Pods of the coscheduling plugin are bound by kube-scheduler, which has no such plugin here and binds them one by one.
"""

from collections.abc import Iterator

import pytest

from provisioner.apis import names
from provisioner.apis.gangs import GroupSource
from provisioner.apis.launch_sets import sets_of
from provisioner.kube.client import Client
from provisioner.kube.discovery import serves
from provisioner.kube.resources import CRDS, GROUP_KINDS, NODEPOOLS, PODS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.state.knowledge import KindKnowledge
from tests.integration.test_gangs import THERE, answer_about, no_node_before_it_is_complete, planned, put_pod, runs
from tests.support.eventually import eventually
from tests.support.podgroups import MEMBERS
from tests.support.pods import Wire
from tests.support.provisioner import SECONDS, InProcess, Plot

pytestmark = pytest.mark.plane

VOLCANO, COSCHEDULING = (GROUP_KINDS[source] for source in MEMBERS)
KEPT: Wire = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
APPROVED = {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"}
THREE = ("a", "b", "c")


def definition(source: GroupSource) -> Wire:
    kind = GROUP_KINDS[source]
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": KEPT, "status": KEPT}}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": str(kind), "annotations": APPROVED},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {"plural": kind.plural, "kind": kind.kind},
            "versions": [version],
        },
    }


@pytest.fixture(scope="module")
def provisioner(plane: DevCluster, client: Client) -> Iterator[InProcess]:
    """It has asked for the kinds, and found none, before they are defined."""
    with InProcess(str(plane.kubeconfig)) as one:
        caches = one.caches
        known = caches.cluster._pending.groups
        for source in MEMBERS:
            eventually(lambda: known.known[source][0] is KindKnowledge.NOT_SERVED, "it has asked", SECONDS)  # noqa: B023
        assert [source for source in MEMBERS if caches.pod_groups[source] in caches.all] == []
        for source in MEMBERS:
            client.create(CRDS, definition(source))
        try:
            for source in MEMBERS:
                eventually(lambda: serves(client, GROUP_KINDS[source]), "they are served", SECONDS)  # noqa: B023
                eventually(lambda: caches.pod_groups[source].synced.is_set(), "they are watched", SECONDS)  # noqa: B023
            yield one
        finally:
            for source in MEMBERS:
                client.delete(CRDS, str(GROUP_KINDS[source]))


@pytest.fixture
def plot(client: Client, provisioner: InProcess) -> Iterator[Plot]:
    one = Plot(client)
    yield one
    one.clear()


@pytest.fixture
def field(plot: Plot) -> Plot:
    """A plot with a pool."""
    plot.pool(disruption={"consolidateAfter": "Never"})
    return plot


def put_group(plot: Plot, source: GroupSource, minimum: int, phase: str = "") -> None:
    kind = GROUP_KINDS[source]
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "train"}}
    plot.client.create(kind, {**body, "spec": {"minMember": minimum}}, plot.name)
    if phase:
        admit(plot, phase)


def admit(plot: Plot, phase: str = "Inqueue") -> None:
    plot.client.patch(VOLCANO, "train", {"status": {"phase": phase}}, plot.name, "status")


def put_member(plot: Plot, name: str, reason: str = "Undetermined") -> None:
    """A pod of Volcano, which has left it without a node."""
    put_pod(plot, name, notes={names.VOLCANO_GROUPS[0]: "train"}, schedulerName="volcano")
    said = {"type": names.POD_SCHEDULED, "status": "False", "reason": reason, "message": "pod group is not ready"}
    plot.client.patch(PODS, name, {"status": {"conditions": [said]}}, plot.name, "status")


def bind(plot: Plot, *pods: str) -> None:
    """Volcano binds each to a node of its own."""
    nodes = sorted(one.metadata.name for one in plot.nodes())
    for name, node in zip(pods, nodes, strict=True):
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        plot.client.raw("POST", PODS.path(plot.name, name, "binding"), body)


def only_a_single_pod_gets_a_node(plot: Plot) -> None:
    """In a batch of its own, long after the members could have been planned."""
    put_pod(plot, "alone", group="", nodeSelector=THERE)
    eventually(lambda: runs(plot, "alone"), "the single pod runs", SECONDS)
    assert planned(plot) <= {"alone"}
    assert len(plot.claims()) == 1


REASONS = {
    "none of which Volcano came to": ("Undetermined",) * 3,
    "that would have places, and one": ("Schedulable", "Unschedulable", "Schedulable"),
}


@pytest.mark.parametrize("reasons", REASONS.values(), ids=REASONS)
def test_a_group_of_volcano_gets_all_its_nodes_together_and_volcano_binds(
    field: Plot, reasons: tuple[str, ...]
) -> None:
    """Nobody else writes where its pods are to go."""
    put_group(field, GroupSource.VOLCANO, 3, "Inqueue")
    for name, reason in zip(THREE, reasons, strict=True):
        put_member(field, name, reason)
    eventually(lambda: len(field.initialized()) == 3, "three nodes are initialised", SECONDS)
    (one,) = {sets_of(claim.metadata.annotations) for claim in field.claims()}
    assert [(each.group, each.nodes) for each in one] == [(f"{field.name}/volcano/train", 3)]
    assert {pod.nominated_node_name for pod in field.pods()} == {""}
    bind(field, *THREE)
    eventually(lambda: runs(field, *THREE), "the group runs", SECONDS)
    assert len(field.claims()) == 3


def test_a_group_of_volcano_gets_no_node_before_it_is_complete(plane: DevCluster, field: Plot) -> None:
    put_group(field, GroupSource.VOLCANO, 3, "Inqueue")
    for name in THREE[:2]:
        put_member(field, name, "Unschedulable")
    only_a_single_pod_gets_a_node(field)
    assert answer_about(plane, field, "a")["state"] == "GroupIncomplete"
    put_member(field, "c")
    eventually(lambda: planned(field) - {"alone"} == set(THREE), "the group is planned", SECONDS)


def test_a_group_that_waits_in_a_queue_of_volcano_buys_nothing(plane: DevCluster, field: Plot) -> None:
    put_group(field, GroupSource.VOLCANO, 3, "Pending")
    for name in THREE:
        put_member(field, name, "Unschedulable")
    only_a_single_pod_gets_a_node(field)
    assert answer_about(plane, field, "a")["state"] == "GroupQueued"
    admit(field)
    eventually(lambda: planned(field) - {"alone"} == set(THREE), "the group is planned", SECONDS)


def test_a_group_of_volcano_for_which_there_is_too_little_room_gets_no_node(plane: DevCluster, field: Plot) -> None:
    (pool,) = field.pool_names
    field.client.patch(NODEPOOLS, pool, {"spec": {"limits": {"cpu": "8"}}})
    put_group(field, GroupSource.VOLCANO, 3, "Inqueue")
    for name in THREE:
        put_member(field, name)
    eventually(lambda: "room for only 2 of them" in answer_about(plane, field, "a")["summary"], "why says so", SECONDS)
    only_a_single_pod_gets_a_node(field)
    field.client.patch(NODEPOOLS, pool, {"spec": {"limits": {"cpu": "40"}}})
    eventually(lambda: planned(field) - {"alone"} == set(THREE), "the group is planned", SECONDS)


def test_a_group_of_the_coscheduling_plugin_gets_no_node_before_it_is_complete(plane: DevCluster, plot: Plot) -> None:
    label = {names.COSCHEDULING_GROUP: "train"}
    no_node_before_it_is_complete(
        plane,
        plot,
        (
            lambda plot: put_group(plot, GroupSource.COSCHEDULING, 2),
            lambda plot: put_pod(plot, "first", group="", labels=label, nodeSelector=THERE),
        ),
        "GroupIncomplete",
        lambda plot: put_pod(plot, "second", group="", labels=label, nodeSelector=THERE),
        ("first", "second"),
    )
    (ours,) = {one.group for claim in plot.claims() for one in sets_of(claim.metadata.annotations)}
    assert ours == f"{plot.name}/coscheduling/train"
