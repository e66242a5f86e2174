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
from provisioner.kube.resources import NODEPOOLS, PODGROUPS, PODS
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


def put_pod(plot: Plot, name: str, *, group: str = "train", notes: dict[str, str] | None = None, **spec: Any) -> None:
    """A pod that fills a node of the plot; one with annotations names no PodGroup."""
    terms = [{"matchExpressions": [{"key": TEAM, "operator": "In", "values": plot.pool_names}]}]
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": notes or {}},
        "spec": {
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "3", "memory": "64Mi"}}}],
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            },
            "tolerations": [{"key": TEAM, "operator": "Exists"}],
            **({"schedulingGroup": {"podGroupName": group}} if group and not notes else {}),
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


def answer_about(cluster: DevCluster, plot: Plot, name: str) -> dict[str, Any]:
    """What `dovetail why` says, with the permissions of whoever asks."""
    asked = ["pod", f"{plot.name}/{name}", "--kubeconfig", str(cluster.kubeconfig), "-o", "json"]
    found: dict[str, Any] = json.loads(CliRunner().invoke(why_command, asked).stdout)
    return found


def in_a_gang(minimum: int) -> dict[str, str]:
    return {names.GANG: "train", names.GANG_MINIMUM: str(minimum)}


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
    "of annotations, whose last member is missing": (
        (lambda plot: put_pod(plot, "first", notes=in_a_gang(2)),),
        "GroupIncomplete",
        lambda plot: put_pod(plot, "second", notes=in_a_gang(2)),
        ("first", "second"),
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
    assert answer_about(gang_plane, plot, "first")["state"] == state
    complete(plot)
    eventually(lambda: runs(plot, "alone", "later", *members), "the whole group runs", SECONDS)
    assert (planned(plot), len(plot.claims())) == ({"alone", "later", *members}, 4)
    assert provisioner.caches.pod_groups in provisioner.caches.all


SOURCES: dict[str, tuple[Act, dict[str, str] | None]] = {
    "of a PodGroup": (lambda plot: put_group(plot, 3), None),
    "of annotations": (lambda _: None, in_a_gang(3)),
}


@pytest.mark.parametrize(("begin", "notes"), SOURCES.values(), ids=SOURCES)
def test_a_group_for_which_there_is_too_little_room_gets_no_node(
    gang_plane: DevCluster, provisioner: InProcess, plot: Plot, begin: Act, notes: dict[str, str] | None
) -> None:
    pool = plot.pool(disruption={"consolidateAfter": "Never"}, limits={"cpu": "8"})
    begin(plot)
    for name in ("a", "b", "c"):
        put_pod(plot, name, notes=notes)
    eventually(
        lambda: "room for only 2 of them" in answer_about(gang_plane, plot, "a")["summary"], "why says so", SECONDS
    )
    put_pod(plot, "alone", group="")
    eventually(lambda: runs(plot, "alone"), "the single pod runs", SECONDS)
    assert (planned(plot), len(plot.claims())) == ({"alone"}, 1)
    plot.client.patch(NODEPOOLS, pool, {"spec": {"limits": {"cpu": "40"}}})
    eventually(lambda: runs(plot, "a", "alone", "b", "c"), "the whole group runs", SECONDS)
    assert len(plot.claims()) == 4
