"""Pods of PodGroups on a real control plane with the feature gate GenericWorkload: no node for a part of a group."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from provisioner.apis import names
from provisioner.apis.plan import decode_plan
from provisioner.cli.why.command import command as why_command
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.resources import PODGROUPS, PODS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.support.clock import SystemClock
from tests.support.eventually import eventually
from tests.support.provisioner import SECONDS, TEAM, InProcess, Plot, prepare

pytestmark = pytest.mark.plane


@pytest.fixture(scope="module")
def gang_client(gang_plane: DevCluster) -> Iterator[Client]:
    connection = connect(str(gang_plane.kubeconfig), user_agent="dovetail-test")
    found = Client(connection, SystemClock())
    prepare(found)
    yield found
    connection.close()


@pytest.fixture(scope="module")
def provisioner(gang_plane: DevCluster, gang_client: Client) -> Iterator[InProcess]:
    with InProcess(str(gang_plane.kubeconfig)) as one:
        yield one


@pytest.fixture
def plot(gang_client: Client, provisioner: InProcess) -> Iterator[Plot]:
    one = Plot(gang_client)
    yield one
    one.clear()


def put_group(plot: Plot, minimum: int) -> None:
    body = {
        "apiVersion": PODGROUPS.api_version,
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}},
    }
    plot.client.create(PODGROUPS, body, plot.name)


def put_pod(plot: Plot, name: str, *, group: str = "train", **spec: Any) -> None:
    """A pod that fills a node of the plot."""
    terms = [{"matchExpressions": [{"key": TEAM, "operator": "In", "values": plot.pool_names}]}]
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "3", "memory": "64Mi"}}}],
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            },
            "tolerations": [{"key": TEAM, "operator": "Exists"}],
            **({"schedulingGroup": {"podGroupName": group}} if group else {}),
            **spec,
        },
    }
    plot.client.create(PODS, body, plot.name)


def runs(plot: Plot, *wanted: str) -> bool:
    return sorted(one.name for one in plot.pods() if one.phase == "Running") == sorted(wanted)


def planned(plot: Plot) -> set[str]:
    """Names of the pods for which a node was launched."""
    uids = {one.uid: one.name for one in plot.pods()}
    plans = [decode_plan(one.metadata.annotations[names.PLAN_ANNOTATION]) for one in plot.claims()]
    return {uids.get(uid, uid) for plan in plans for entry in plan.pods for uid in entry.uids}


def state_of(cluster: DevCluster, plot: Plot, name: str) -> str:
    """What `dovetail why` says, with the permissions of whoever asks."""
    asked = ["pod", f"{plot.name}/{name}", "--kubeconfig", str(cluster.kubeconfig), "-o", "json"]
    return str(json.loads(CliRunner().invoke(why_command, asked).stdout)["state"])


def ungate(plot: Plot) -> None:
    plot.client.patch(PODS, "gated", {"spec": {"schedulingGates": None}}, plot.name)


Act = Callable[[Plot], None]
GATED: dict[str, Any] = {"schedulingGates": [{"name": "example.com/later"}]}
ROWS: dict[str, tuple[tuple[Act, ...], str, Act, tuple[str, ...]]] = {
    "whose last member is missing": (
        (lambda plot: put_group(plot, 2), lambda plot: put_pod(plot, "first")),
        "GroupIncomplete",
        lambda plot: put_pod(plot, "second"),
        ("first", "second"),
    ),
    "of which there is no object": (
        (lambda plot: put_pod(plot, "first"), lambda plot: put_pod(plot, "second")),
        "GroupUnknown",
        lambda plot: put_group(plot, 2),
        ("first", "second"),
    ),
    "of which a member has gates": (
        (
            lambda plot: put_group(plot, 2),
            lambda plot: put_pod(plot, "first"),
            lambda plot: put_pod(plot, "gated", **GATED),
        ),
        "GroupGated",
        ungate,
        ("first", "gated"),
    ),
}


@pytest.mark.parametrize(("begin", "state", "complete", "members"), ROWS.values(), ids=ROWS)
def test_a_group_gets_no_node_before_it_is_complete(
    gang_plane: DevCluster,
    provisioner: InProcess,
    plot: Plot,
    begin: tuple[Act, ...],
    state: str,
    complete: Act,
    members: tuple[str, ...],
) -> None:
    plot.pool(disruption={"consolidateAfter": "Never"})
    for act in begin:
        act(plot)
    for single in (
        "alone",
        "later",
    ):  # each is planned in a batch of its own, long after the grace period of the members
        put_pod(plot, single, group="")
        eventually(lambda: single in planned(plot), f"{single} is planned", SECONDS)  # noqa: B023 - asked at once
    eventually(lambda: runs(plot, "alone", "later"), "single pods run", SECONDS)
    assert (planned(plot), len(plot.claims())) == ({"alone", "later"}, 2)
    assert state_of(gang_plane, plot, "first") == state
    complete(plot)
    eventually(lambda: runs(plot, "alone", "later", *members), "the whole group runs", SECONDS)
    assert (planned(plot), len(plot.claims())) == ({"alone", "later", *members}, 4)
    assert provisioner.caches.pod_groups in provisioner.caches.all
