"""The provisioner killed, doubled and cut off from its API server: no pod is forgotten, no instance is launched twice."""

import signal
import time
from collections.abc import Iterator

import pytest

from provisioner.apis.reports import LEASE_NAME
from provisioner.kube.client import Client
from provisioner.kube.resources import LEASES
from provisioner.lab.devcluster.cluster import DevCluster
from tests.support.eventually import eventually
from tests.support.provisioner import SECONDS, Plot, revived, start_child

pytestmark = pytest.mark.plane

FIRST, SECOND = "provisioner-a", "provisioner-b"
NEVER = {"consolidateAfter": "Never"}
PODS = 20
AWAY_SECONDS = 12.0
"""Longer than every leader waits for a renewal of its Lease (10 s)."""


@pytest.fixture
def plot(plane: DevCluster, client: Client) -> Iterator[Plot]:
    """The first of two leads."""
    before = leader(client)  # of another test, and may be dead
    start_child(plane, FIRST)
    try:
        eventually(lambda: leader(client) not in ("", before), "it leads", SECONDS)
        one = Plot(client)
        yield one
        one.clear()
    finally:  # one that is left over would serve the other modules' pools beside their own provisioner, and tell every event again
        for name in (FIRST, SECOND):
            plane.stop(name)


def everything_fits(plot: Plot) -> None:
    """One pod fills one node: as many claims and Nodes as pods, each initialised, none beside them."""
    plot.await_running(PODS)
    eventually(lambda: len(plot.initialized()) == PODS, "every claim is initialised", SECONDS)
    assert len(plot.claims()) == PODS
    assert len(plot.nodes()) == PODS
    assert len({pod.node_name for pod in plot.pods()}) == PODS


def leader(client: Client) -> str:
    leases = client.list(LEASES, "dovetail-system", field_selector=f"metadata.name={LEASE_NAME}")
    return leases[0].spec.holder_identity or "" if leases else ""


def test_killed_between_its_first_claim_and_its_last_it_goes_on_where_it_was(plane: DevCluster, plot: Plot) -> None:
    plot.pool(disruption=NEVER)
    plot.deploy("web", PODS)
    eventually(plot.claims, "the first claim is there", SECONDS, 0.01)
    plane.signal(FIRST, signal.SIGKILL)
    plane.stop(FIRST)
    start_child(plane, FIRST)
    everything_fits(plot)


def test_the_second_replica_takes_over_from_a_killed_leader(plane: DevCluster, plot: Plot, client: Client) -> None:
    plot.pool(disruption=NEVER)
    before = leader(client)
    start_child(plane, SECOND)
    plot.deploy("web", PODS)
    eventually(plot.nodes, "the first Node has come", SECONDS, 0.01)
    plane.signal(FIRST, signal.SIGKILL)
    eventually(lambda: leader(client) not in ("", before), "the other leads", SECONDS)
    everything_fits(plot)


def test_an_api_server_that_is_away_for_a_while_costs_time_only(plane: DevCluster, plot: Plot) -> None:
    plot.pool(disruption=NEVER)
    plot.deploy("web", PODS)
    eventually(plot.claims, "the first claim is there", SECONDS, 0.01)
    plane.signal("kube-apiserver", signal.SIGKILL)
    time.sleep(AWAY_SECONDS)
    plane.restart("kube-apiserver")
    eventually(lambda: not revived(plane, FIRST) and plot.running() == PODS, lambda: plot.claims(), SECONDS, 1.0)
    everything_fits(plot)
