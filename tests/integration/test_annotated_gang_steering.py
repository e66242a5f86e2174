"""Gangs of annotations on a real control plane as it is by default, without feature gates, with the extender: none runs before all of its nodes are ready."""

import sys
from collections.abc import Iterator

import pytest

from provisioner.apis import names
from provisioner.kube.client import Client
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.progress import progress_for
from tests.integration.test_gang_steering import (
    GANG,
    LATE,
    NEVER,
    all_bound,
    bound,
    nobody_is_evicted_while_nodes_come,
    of_annotations,
    planned,
    put_pod,
    steered,
    with_priorities,
)
from tests.support.eventually import eventually
from tests.support.provisioner import SECONDS, InProcess, Plot

pytestmark = pytest.mark.plane


@pytest.fixture(scope="module")
def cluster() -> Iterator[DevCluster]:
    plane = DevCluster(temporary=True, extender=True, progress=progress_for(sys.__stderr__))
    plane.up()
    try:
        yield plane
    finally:
        plane.down()


@pytest.fixture(scope="module")
def client(cluster: DevCluster) -> Iterator[Client]:
    yield from with_priorities(cluster)


@pytest.fixture(scope="module")
def provisioner(cluster: DevCluster, client: Client) -> Iterator[InProcess]:
    yield from steered(cluster)


@pytest.fixture
def plot(client: Client, provisioner: InProcess) -> Iterator[Plot]:
    one = Plot(client)
    yield one
    one.clear()


def test_each_of_a_gang_runs_on_its_planned_node_once_the_last_is_ready(plot: Plot) -> None:
    early, late = plot.pool("-early", **NEVER), plot.pool("-late", delay=LATE, **NEVER)
    more = of_annotations(plot)
    for name in GANG:
        put_pod(plot, name, [early if name in "ab" else late], **more)
    eventually(lambda: sorted(planned(plot)) == list(GANG), "all are planned", SECONDS)
    assert not any(bound(plot, *GANG).values())
    eventually(lambda: all_bound(plot, *GANG), "all are bound", SECONDS)
    eventually(lambda: bound(plot, *GANG) == planned(plot), "each runs on its planned node", SECONDS)


def test_no_member_takes_other_room_and_nobody_is_evicted_while_nodes_come(cluster: DevCluster, plot: Plot) -> None:
    notes = {names.GANG_LABEL: "job", names.GANG_MINIMUM: "2"}
    nobody_is_evicted_while_nodes_come(cluster, plot, notes=notes)
