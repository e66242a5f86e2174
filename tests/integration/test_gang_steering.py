"""Pods of groups on a real control plane with the extender: each runs on its planned node, or none runs."""

import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.meta import is_true
from provisioner.apis.plan import decode_plan
from provisioner.apis.pods import Pod
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.resources import NODECLAIMS, NODES, PODGROUPS, PODS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.progress import progress_for
from provisioner.support.clock import SystemClock
from tests.support.eventually import PATIENCE, eventually
from tests.support.provisioner import SECONDS, TEAM, InProcess, Plot, prepare

pytestmark = pytest.mark.plane

NEVER: dict[str, Any] = {"disruption": {"consolidateAfter": "Never"}}
LATE = f"{8 * PATIENCE}s"
"""When the nodes of some pools join: long enough for kube-scheduler to try a group several times, and for what a test does meanwhile."""
LOW, HIGH = "low-priority", "high-priority"


@pytest.fixture(scope="module")
def cluster() -> Iterator[DevCluster]:
    plane = DevCluster(temporary=True, extender=True, gates="gangs", progress=progress_for(sys.__stderr__))
    plane.up()
    try:
        yield plane
    finally:
        plane.down()


@pytest.fixture(scope="module")
def client(cluster: DevCluster) -> Iterator[Client]:
    yield from with_priorities(cluster)


def with_priorities(cluster: DevCluster) -> Iterator[Client]:
    """A client of a cluster on which the CRDs, our system namespace and two PriorityClasses are."""
    connection = connect(str(cluster.kubeconfig), user_agent="dovetail-test")
    found = Client(connection, SystemClock())
    prepare(found)
    for name, value in ((LOW, -10), (HIGH, 1000)):
        cluster.kubectl("create", "priorityclass", name, f"--value={value}")
    yield found
    connection.close()


@pytest.fixture(scope="module")
def provisioner(cluster: DevCluster, client: Client) -> Iterator[InProcess]:
    yield from steered(cluster)


def steered(cluster: DevCluster) -> Iterator[InProcess]:
    """A provisioner beside an extender: it nominates nobody, as when the extender reports to it."""
    arguments = ["--kubeconfig", str(cluster.kubeconfig), "--bind", f"127.0.0.1:{cluster.ports['extender']}"]
    metrics = f"127.0.0.1:{cluster.ports['extender-metrics']}"
    program = [sys.executable, "-m", "provisioner.cli.main", "extender", *arguments, "--metrics-bind", metrics]
    cluster.start_program("extender", program)
    eventually(lambda: metric(cluster, "dovetail_extender_fresh") == 1, "the extender is ready", SECONDS)
    with InProcess(str(cluster.kubeconfig), nominate="false") as one:
        yield one
    cluster.stop("extender")


@pytest.fixture
def plot(client: Client, provisioner: InProcess) -> Iterator[Plot]:
    one = Plot(client)
    yield one
    one.clear()


def metric(cluster: DevCluster, series: str) -> float:
    """What the extender says of itself; 0 while it does not answer."""
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{cluster.ports['extender-metrics']}/metrics", timeout=20
        ) as page:
            lines = page.read().decode().splitlines()
    except OSError:
        return 0
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(series))


def put_group(plot: Plot, minimum: int, name: str = "train", **spec: Any) -> None:
    body = {
        "apiVersion": PODGROUPS.api_version,
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}, **spec},
    }
    plot.client.create(PODGROUPS, body, plot.name)


def put_pod(plot: Plot, name: str, pools: list[str], *, group: str = "train", cpu: str = "3", **spec: Any) -> None:
    """A pod that may run on nodes of some pools, and fills one of them; one with annotations names no PodGroup."""
    terms = [{"matchExpressions": [{"key": TEAM, "operator": "In", "values": pools}]}]
    notes = spec.pop("notes", {})
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": notes, "labels": {"job": "train"}},
        "spec": {
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}],
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            },
            "tolerations": [{"key": TEAM, "operator": "Exists"}],
            **({"schedulingGroup": {"podGroupName": group}} if group and not notes else {}),
            **spec,
        },
    }
    plot.client.create(PODS, body, plot.name)


def put_node(plot: Plot, pool: str, cpu: str, *guests: tuple[str, str, dict[str, Any]]) -> str:
    """A node that nobody planned, on which these pods (name, CPU, spec) run already when it opens."""
    name = f"{plot.name}-static"
    closed = {"key": names.UNREGISTERED_TAINT.key, "effect": "NoExecute"}
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {TEAM: pool, "type": "kwok"},
        },
        "spec": {"taints": [closed]},
        "status": {key: {"cpu": cpu, "memory": "64Gi", "pods": "110"} for key in ("capacity", "allocatable")},
    }
    plot.client.create(NODES, body)
    eventually(lambda: is_true(plot.client.get(NODES, name).status.conditions, names.READY), "it is ready", SECONDS)
    for guest, amount, spec in guests:
        tolerations = [{"operator": "Exists"}]
        put_pod(plot, guest, [pool], group="", cpu=amount, nodeName=name, **{**spec, "tolerations": tolerations})
    eventually(lambda: all(pod(plot, guest).phase == "Running" for guest, _, _ in guests), "its pods run", SECONDS)
    plot.client.patch(NODES, name, {"spec": {"taints": None}})
    return name


def pod(plot: Plot, name: str) -> Pod:
    return plot.client.get(PODS, name, plot.name)


def bound(plot: Plot, *wanted: str) -> dict[str, str]:
    """Node by name of the pod."""
    return {one.name: one.node_name for one in plot.pods() if one.name in wanted}


def all_bound(plot: Plot, *wanted: str) -> bool:
    return len([node for node in bound(plot, *wanted).values() if node]) == len(wanted)


def planned(plot: Plot) -> dict[str, str]:
    """The node of its plan by name of the pod; "" until its claim names it, which follows the Node's opening."""
    uids = {one.uid: one.name for one in plot.pods()}
    found: dict[str, str] = {}
    for claim in plot.client.list(NODECLAIMS):
        for entry in decode_plan(claim.metadata.annotations.get(names.PLAN_ANNOTATION, '{"v":1}')).pods:
            found |= {uids[uid]: claim.status.node_name for uid in entry.uids if uid in uids}
    return found


GANG = ("a", "b", "c", "d")
Begin = Callable[[Plot], dict[str, Any]]


def of_podgroup(plot: Plot) -> dict[str, Any]:
    put_group(plot, len(GANG))
    return {}


def of_annotations(plot: Plot) -> dict[str, Any]:
    return {"notes": {names.GANG_LABEL: "job", names.GANG_MINIMUM: str(len(GANG))}}


@pytest.mark.parametrize("begin", [of_podgroup, of_annotations], ids=["of a PodGroup", "of annotations"])
def test_each_of_a_group_runs_on_its_planned_node_once_the_last_is_ready(
    cluster: DevCluster, plot: Plot, begin: Begin
) -> None:
    """Two nodes are ready long before the others, and their two pods would find them."""
    early, late = plot.pool("-early", **NEVER), plot.pool("-late", delay=LATE, **NEVER)
    more = begin(plot)
    for name in GANG:
        put_pod(plot, name, [early if name in "ab" else late], **more)
    eventually(lambda: sorted(planned(plot)) == list(GANG), "all are planned", SECONDS)
    assert not any(bound(plot, *GANG).values())
    eventually(lambda: all_bound(plot, *GANG), "all are bound", SECONDS)
    eventually(lambda: bound(plot, *GANG) == planned(plot), "each runs on its planned node", SECONDS)
    assert len(set(planned(plot).values())) == len(plot.claims()) == 4


def test_no_member_takes_other_room_and_nobody_is_evicted_while_nodes_come(cluster: DevCluster, plot: Plot) -> None:
    put_group(plot, 2, priorityClassName=HIGH)
    nobody_is_evicted_while_nodes_come(cluster, plot)


def nobody_is_evicted_while_nodes_come(cluster: DevCluster, plot: Plot, **more: Any) -> None:
    """Two members of high priority, and two pods of low priority on a node that opens before theirs."""
    pool = plot.pool(delay=LATE, **NEVER)
    for name in ("a", "b"):
        put_pod(plot, name, [pool], priorityClassName=HIGH, **more)
    eventually(lambda: sorted(planned(plot)) == ["a", "b"], "both are planned", SECONDS)
    node = put_node(
        plot, pool, "10", ("low-0", "3", {"priorityClassName": LOW}), ("low-1", "3", {"priorityClassName": LOW})
    )
    try:
        assert not any(bound(plot, "a", "b").values()), "it opened before their nodes"
        eventually(lambda: all_bound(plot, "a", "b"), "both are bound", SECONDS)
        eventually(lambda: bound(plot, "a", "b") == planned(plot), "each runs on its planned node", SECONDS)
        assert bound(plot, "low-0", "low-1") == {"low-0": node, "low-1": node}
        refused = 'dovetail_extender_requests_total{answer="refused",verb="filter"'
        eventually(lambda: metric(cluster, refused) > 0, "a refusal is counted")
    finally:
        plot.client.delete(NODES, node)


def test_members_beyond_the_minimum_that_have_no_room_wait(plot: Plot) -> None:
    pool = plot.pool(limits={"cpu": "12"}, **NEVER)
    put_group(plot, 3)
    names_ = [f"m{number}" for number in range(5)]
    for name in names_:
        put_pod(plot, name, [pool])
    eventually(lambda: sum(map(bool, bound(plot, *names_).values())) == 3, "three are bound", SECONDS)
    time.sleep(2.0)
    where = {name: node for name, node in bound(plot, *names_).items() if node}
    assert len(where) == 3
    eventually(lambda: where == planned(plot), "each runs on its planned node", SECONDS)


def test_of_two_groups_with_room_for_one_one_runs_and_no_half(plot: Plot) -> None:
    pool = plot.pool(limits={"cpu": "12"}, **NEVER)
    groups = {name: [f"{name}{number}" for number in range(3)] for name in ("one", "two")}
    for name, members in groups.items():
        put_group(plot, 3, name)
        for member in members:
            put_pod(plot, member, [pool], group=name)
    eventually(lambda: any(all_bound(plot, *members) for members in groups.values()), "one group runs", SECONDS)
    time.sleep(2.0)
    assert sorted(sum(map(bool, bound(plot, *members).values())) for members in groups.values()) == [0, 3]
    assert len(plot.claims()) == 3
