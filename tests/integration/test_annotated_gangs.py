"""Gangs of annotations on a real control plane as it is by default, without feature gates: no node for a part of a gang.

kube-scheduler knows nothing of them, and binds their pods one by one.
"""

import json
from collections.abc import Iterator

import pytest

from provisioner.apis import names
from provisioner.kube.client import Client
from provisioner.kube.resources import JOBS, NODEPOOLS, NODES, PODS, PRIORITYCLASSES
from provisioner.lab.devcluster.cluster import DevCluster
from tests.integration.test_gang_steering import LATE, bound, put_node
from tests.integration.test_gangs import (
    GATED,
    SINGLES,
    THERE,
    Act,
    Market,
    all_but_those_that_others_use_go_and_the_gang_comes_back,
    all_run_once_there_is_room,
    answer_about,
    four_nodes_are_let_in_together,
    no_node_before_it_is_complete,
    no_node_where_there_is_too_little_room,
    of_two_gangs_one_runs,
    planned,
    put_pod,
    running,
    singles_and_ten_gangs,
    ungate,
)
from tests.support.eventually import eventually
from tests.support.provisioner import SECONDS, InProcess, Plot

pytestmark = pytest.mark.plane


@pytest.fixture(scope="module")
def market() -> Market:
    return Market()


@pytest.fixture(scope="module")
def provisioner(plane: DevCluster, client: Client, market: Market) -> Iterator[InProcess]:
    with InProcess(str(plane.kubeconfig), cloud=market.around) as one:
        yield one


@pytest.fixture
def plot(client: Client, provisioner: InProcess) -> Iterator[Plot]:
    one = Plot(client)
    yield one
    one.clear()


def in_a_gang(minimum: int, name: str = "train") -> dict[str, str]:
    return {names.GANG: name, names.GANG_MINIMUM: str(minimum)}


ROWS: dict[str, tuple[tuple[Act, ...], str, Act, tuple[str, ...]]] = {
    "whose last member is missing": (
        (lambda plot: put_pod(plot, "first", notes=in_a_gang(2), nodeSelector=THERE),),
        "GroupIncomplete",
        lambda plot: put_pod(plot, "second", notes=in_a_gang(2), nodeSelector=THERE),
        ("first", "second"),
    ),
    "of which a member has gates": (
        (
            lambda plot: put_pod(plot, "first", notes=in_a_gang(2), nodeSelector=THERE),
            lambda plot: put_pod(plot, "gated", notes=in_a_gang(2), nodeSelector=THERE, **GATED),
        ),
        "GroupGated",
        ungate,
        ("first", "gated"),
    ),
}


@pytest.mark.parametrize(("begin", "state", "complete", "members"), ROWS.values(), ids=ROWS)
def test_a_gang_gets_no_node_before_it_is_complete(
    plane: DevCluster, plot: Plot, begin: tuple[Act, ...], state: str, complete: Act, members: tuple[str, ...]
) -> None:
    no_node_before_it_is_complete(plane, plot, begin, state, complete, members)


def put_job(plot: Plot, parallelism: int) -> None:
    """A Job whose pods are a gang that does not say how many it needs."""
    put_pod(plot, "sample", notes={names.GANG: "train"}, schedulingGates=GATED["schedulingGates"])
    sample = json.loads(plot.client.raw("GET", PODS.path(plot.name, "sample")))
    plot.client.delete(PODS, "sample", plot.name)
    spec = {key: sample["spec"][key] for key in ("affinity", "tolerations")}
    spec["containers"] = [{key: sample["spec"]["containers"][0][key] for key in ("name", "image", "resources")}]
    template = {"metadata": {"annotations": {names.GANG: "train"}}, "spec": {**spec, "restartPolicy": "Never"}}
    body = {"metadata": {"name": "train"}, "spec": {"parallelism": parallelism, "template": template}}
    plot.client.create(JOBS, {"apiVersion": "batch/v1", "kind": "Job", **body}, plot.name)


def test_the_pods_of_a_job_are_as_many_as_it_runs_at_once(plane: DevCluster, plot: Plot) -> None:
    pool = plot.pool(disruption={"consolidateAfter": "Never"}, limits={"cpu": "8"})
    put_job(plot, 3)

    def summary() -> str:
        return "".join(str(answer_about(plane, plot, one.name)["summary"]) for one in plot.pods()[:1])

    eventually(lambda: "3 pods of gang" in summary() and "only 2 of them" in summary(), "why says so", SECONDS)
    assert plot.claims() == []
    plot.client.patch(NODEPOOLS, pool, {"spec": {"limits": {"cpu": "40"}}})
    eventually(lambda: [bool(one.node_name) for one in plot.pods()] == [True] * 3, "all pods have nodes", SECONDS)
    assert len(plot.claims()) == 3


def test_a_gang_for_which_there_is_too_little_room_gets_no_node(plane: DevCluster, plot: Plot) -> None:
    no_node_where_there_is_too_little_room(plane, plot, in_a_gang(3))


def test_a_gang_of_four_gets_four_nodes_that_are_let_in_together(plot: Plot) -> None:
    four_nodes_are_let_in_together(plot, in_a_gang(4))


def test_where_one_of_four_nodes_cannot_be_had_all_go_but_those_that_others_use_and_the_gang_comes_back(
    plot: Plot, market: Market
) -> None:
    all_but_those_that_others_use_go_and_the_gang_comes_back(plot, market, in_a_gang(4))


def test_of_two_gangs_with_room_for_one_one_runs_and_of_the_other_there_is_no_node(plot: Plot) -> None:
    of_two_gangs_one_runs(plot, lambda gang: in_a_gang(3, gang))


def test_ten_gangs_and_single_pods_that_wait_for_room_all_run_in_the_end(plot: Plot) -> None:
    pool = singles_and_ten_gangs(plot, lambda gang: in_a_gang(2, gang))
    eventually(lambda: set(SINGLES) <= set(running(plot)) or plot.running() >= 6, "some of them run", SECONDS)
    assert len(plot.claims()) <= 7
    all_run_once_there_is_room(plot, pool)


def test_of_five_members_of_which_three_are_needed_as_many_run_as_there_is_room_for(plot: Plot) -> None:
    plot.pool(disruption={"consolidateAfter": "Never"}, limits={"cpu": "16"})
    for name in "abcde":
        put_pod(plot, name, notes=in_a_gang(3))
    eventually(lambda: len(running(plot)) == 4, "four run, and there is no room for the fifth", SECONDS)
    assert len(plot.claims()) == 4


def test_consolidation_beside_gangs_without_pods_to_spare_moves_them_where_there_is_room(plot: Plot) -> None:
    """Six nodes that are nearly empty become two, and nobody needs another one meanwhile."""
    everything = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"}
    on_demand = {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": [names.CAPACITY_ON_DEMAND]}
    plot.pool(disruption={**everything, "budgets": [{"nodes": "100%"}]}, requirements=[on_demand])
    plot.deploy("large", 6, cpu="3")
    plot.await_running(6)
    gangs = [f"gang-{number}" for number in range(50)]
    for gang in gangs:
        plot.deploy(gang, 2, cpu="45m", annotations=in_a_gang(2, gang))
    plot.await_running(6 + 100)
    before = {one.name for one in plot.claims()}
    plot.scale("large", 0)

    def shrunk() -> bool:
        claims = {one.name for one in plot.claims()}
        assert claims <= before, "a pod that was moved had no room"
        return len(claims) <= 2 and plot.running() == 100

    eventually(shrunk, "two nodes are left, and all gangs run", 3 * SECONDS, 0.2)
    assert [plot.running(gang) for gang in gangs] == [2] * 50


def test_without_the_extender_kube_scheduler_evicts_others_while_the_nodes_of_a_gang_come(plot: Plot) -> None:
    """It knows no gang of annotations: a member takes room that it finds, and the other the place of a pod of low priority. The extender prevents both."""
    low, high = f"{plot.name}-low", f"{plot.name}-high"
    classes = {low: -10, high: 1000}
    for name, value in classes.items():
        body = {"apiVersion": PRIORITYCLASSES.api_version, "kind": "PriorityClass", "metadata": {"name": name}}
        plot.client.create(PRIORITYCLASSES, {**body, "value": value})
    pool = plot.pool(disruption={"consolidateAfter": "Never"}, delay=LATE)
    for name in ("a", "b"):
        put_pod(plot, name, notes=in_a_gang(2), priorityClassName=high)
    eventually(lambda: planned(plot) == {"a", "b"}, "both are planned", SECONDS)
    guests = [(name, "3", {"priorityClassName": low}) for name in ("low-0", "low-1")]
    node = put_node(plot, pool, "10", *guests)
    try:
        eventually(lambda: bound(plot, "a", "b") == {"a": node, "b": node}, "both are bound there", SECONDS)
        eventually(lambda: len(bound(plot, "low-0", "low-1")) == 1, "one of the others was evicted", SECONDS)
    finally:
        plot.client.delete(NODES, node)
        for name in classes:
            plot.client.delete(PRIORITYCLASSES, name)
