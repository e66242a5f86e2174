"""Two provisioners on a real control plane that writes an audit log: a leader that was stopped or cut off changes nothing any more."""

import signal
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from provisioner.apis.reports import LEASE_NAME
from provisioner.kube.client import Client
from provisioner.kube.resources import LEASES
from provisioner.lab.devcluster.cluster import DevCluster
from tests.support.audit import Change, changes
from tests.support.eventually import eventually
from tests.support.kube_proxy import TcpProxy, proxy_to
from tests.support.provisioner import SECONDS, Plot, revived, runs, start_child

pytestmark = pytest.mark.plane

FIRST, SECOND = "provisioner-a", "provisioner-b"
LEASE_SECONDS, RENEW_SECONDS = 15.0, 10.0


@pytest.fixture
def plot(plane: DevCluster, client: Client) -> Iterator[Plot]:
    one = Plot(client)
    yield one
    try:
        if not any(runs(plane, name) for name in (FIRST, SECOND)):
            start_child(plane, FIRST)
        one.clear()
    finally:
        for name in (FIRST, SECOND):
            plane.stop(name)


def leader(client: Client) -> str:
    leases = client.list(LEASES, "dovetail-system", field_selector=f"metadata.name={LEASE_NAME}")
    return leases[0].spec.holder_identity or "" if leases else ""


def other_than(client: Client, first: str) -> str:
    """Who leads, if it is somebody else."""
    found = leader(client)
    return "" if found == first else found


def by(cluster: DevCluster, identity: str) -> list[Change]:
    """What one replica changed, its Lease and refused tries included."""
    return changes(cluster.audit_log, f"dovetail-provisioner/{identity}")


def two_replicas(cluster: DevCluster, client: Client) -> str:
    """Start both; who of them leads: the first."""
    before = leader(client)  # of another test, and may be dead
    start_child(cluster, FIRST)
    first = eventually(lambda: other_than(client, before), "the first leads", SECONDS)
    start_child(cluster, SECOND)
    return first


def await_running_beside(plane: DevCluster, plot: Plot, count: int) -> None:
    """Until so many pods run; whoever leads beside the first is started again if it ends."""

    def there() -> str:
        found = (
            Counter(one.phase for one in plot.pods()),
            len(plot.claims()),
            len(plot.initialized()),
            len(plot.nodes()),
        )
        return f"{found}\n{plane.log(SECOND).read_text()[-3000:]}"

    eventually(lambda: not revived(plane, SECOND) and plot.running() == count, there, SECONDS, 0.5)


CUT_OFF = 500
STOPS = {
    "for longer than another waits": LEASE_SECONDS + 8,
    "until the fence has fallen and nobody else leads yet": RENEW_SECONDS + 1,
}


@pytest.mark.parametrize("seconds", STOPS.values(), ids=STOPS)
def test_a_leader_that_was_stopped_in_the_middle_of_its_writes_sends_none_when_it_goes_on(
    plane: DevCluster, client: Client, plot: Plot, seconds: float
) -> None:
    first = two_replicas(plane, client)
    plot.pool(disruption={"consolidateAfter": "Never"})
    plot.deploy("web", 60)
    eventually(lambda: len(plot.claims()) >= 5, "it is in the middle of its writes", SECONDS, 0.02)
    plane.signal(FIRST, signal.SIGSTOP)
    stopped = datetime.now(UTC)
    time.sleep(seconds)
    if seconds > LEASE_SECONDS:
        second = eventually(lambda: other_than(client, first), "the other leads", SECONDS)
        eventually(lambda: by(plane, second), "the other writes", SECONDS)
    goes_on = datetime.now(UTC)
    plane.signal(FIRST, signal.SIGCONT)
    eventually(lambda: not runs(plane, FIRST), "the old leader ends", 10)
    await_running_beside(plane, plot, 60)
    written = by(plane, first)
    assert [change for change in written if change.received < stopped], "it wrote before it was stopped"
    # 500: its end cut off the body of a request whose first bytes were on their way
    late = [change for change in written if change.received >= goes_on and change.status != CUT_OFF]
    assert late == [], "what it was about to send when it was stopped was sent afterwards"
    assert leader(client) not in ("", first)
    assert len(plot.claims()) == 60
    assert len(plot.nodes()) == 60


def has_heard(plane: DevCluster, identity: str) -> bool:
    """Whether the answer has come by which a provisioner leads: before that, it is a candidate, and goes on asking."""
    said = plane.log(FIRST).read_text().splitlines()
    return any("Became the leader" in line and identity in line for line in said)


@pytest.fixture
def proxy(plane: DevCluster) -> Iterator[TcpProxy]:
    with proxy_to(plane.ports["kube-apiserver"]) as proxy:
        yield proxy


def test_a_leader_whose_api_server_hangs_ends_before_another_may_lead(
    plane: DevCluster, client: Client, proxy: TcpProxy, tmp_path: Path
) -> None:
    """Nothing answers and nothing is refused: the election hangs in a call, as everything else does."""
    kubeconfig = proxy.kubeconfig(plane.kubeconfig, tmp_path / "kubeconfig")
    before = leader(client)
    start_child(plane, FIRST, "--kubeconfig", kubeconfig)
    try:
        first = eventually(lambda: other_than(client, before), "it leads", SECONDS)
        eventually(lambda: has_heard(plane, first), "it has heard that it leads", SECONDS)
        begun = time.monotonic()
        proxy.freeze()
        eventually(lambda: not runs(plane, FIRST), "it ends", LEASE_SECONDS)
        assert time.monotonic() - begun < LEASE_SECONDS
        assert leader(client) == first, "nobody gave the Lease back"
        assert "Ending this process" in plane.log(FIRST).read_text()
    finally:
        plane.stop(FIRST)


def test_a_leader_that_is_asked_to_end_hands_over_at_once_and_writes_nothing_afterwards(
    plane: DevCluster, client: Client, plot: Plot
) -> None:
    first = two_replicas(plane, client)
    plot.pool(disruption={"consolidateAfter": "Never"})
    plot.deploy("web", 30)
    eventually(lambda: len(plot.claims()) >= 5, "it is in the middle of its writes", SECONDS, 0.02)
    plane.signal(FIRST, signal.SIGTERM)
    second = eventually(lambda: other_than(client, first), "the other leads", 20)
    await_running_beside(plane, plot, 30)
    given = client.get(LEASES, LEASE_NAME, "dovetail-system").spec
    assert given.holder_identity == second
    acquired = min(change.received for change in by(plane, second))
    written = by(plane, first)
    assert [change for change in written if change.answered > acquired] == []
    last = max(change.answered for change in written if f"leases dovetail-system/{LEASE_NAME}" in change.what)
    assert (acquired - last).total_seconds() < LEASE_SECONDS, "the Lease was given back"
    assert len(plot.claims()) == 30
