"""Leader election on a real API server."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.lease import Fence, LeaderElector, TermEnding
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.support.clock import SystemClock
from tests.support.eventually import PATIENCE
from tests.support.kube_proxy import proxy_to

pytestmark = pytest.mark.plane

NAMESPACE = "default"
LEASE_SECONDS = 3 * PATIENCE
"""A crowded machine holds up a renewal for seconds; who leads then is no question of these tests."""


class Replica:
    """One process that stands for election again and again."""

    def __init__(self, client: Client, lease: str, name: str) -> None:
        self.elector = LeaderElector(
            client,
            lease,
            NAMESPACE,
            name,
            SystemClock(),
            lease_duration=LEASE_SECONDS,
            renew_deadline=2 * PATIENCE,
            retry_period=0.25,
        )
        self.elector.annotate({"dovetail.dev/reports": f"{name}:8444"})
        self.fence: Fence | None = None
        self.leading = threading.Event()
        self.lost = threading.Event()
        self.lost_while_valid = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _started(self, fence: Fence) -> None:
        self.fence = fence
        self.leading.set()

    def _run(self) -> None:
        if self.elector.run(self._started) is TermEnding.LOST:
            self.lost_while_valid = self.valid
            self.lost.set()

    @property
    def valid(self) -> bool:
        return self.fence is not None and self.fence.valid

    def stop(self) -> None:
        self.elector.stop()
        self._thread.join(10 * PATIENCE)
        assert not self._thread.is_alive()


@pytest.fixture
def kube(plane: DevCluster) -> Iterator[Client]:
    connection = connect(str(plane.kubeconfig))
    yield Client(connection, SystemClock())
    connection.close()


def test_the_next_leads_at_once_when_the_first_gives_back(kube: Client) -> None:
    first = Replica(kube, "handover", "first")
    assert first.leading.wait(10 * PATIENCE)
    second = Replica(kube, "handover", "second")
    time.sleep(1)
    lease = kube.get(resources.LEASES, "handover", NAMESPACE)
    assert (lease.spec.holder_identity, lease.metadata.annotations) == ("first", {"dovetail.dev/reports": "first:8444"})
    assert not second.leading.is_set()
    begun = time.monotonic()
    first.stop()
    assert not first.valid
    assert second.leading.wait(10 * PATIENCE)
    assert time.monotonic() - begun < 2 * PATIENCE, "a lease that was given back is not waited for"
    second.stop()
    lease = kube.get(resources.LEASES, "handover", NAMESPACE)
    assert (lease.spec.holder_identity, lease.metadata.annotations, lease.spec.lease_transitions) == ("", {}, 1)


def test_a_leader_that_is_cut_off_stops_before_the_next_one_starts(
    plane: DevCluster, kube: Client, tmp_path: Path
) -> None:
    with proxy_to(plane.ports["kube-apiserver"]) as proxy:
        connection = connect(proxy.kubeconfig(plane.kubeconfig, tmp_path / "kubeconfig"))
        first = Replica(Client(connection, SystemClock()), "cut-off", "first")
        assert first.leading.wait(10 * PATIENCE)
        second = Replica(kube, "cut-off", "second")
        time.sleep(1)
        proxy.shut()
        both = 0
        deadline = time.monotonic() + 15 * PATIENCE
        while not second.leading.is_set() and time.monotonic() < deadline:
            time.sleep(0.002)
        both += first.valid and second.valid
        assert second.leading.is_set()
        assert both == 0
        assert first.lost.wait(10 * PATIENCE)
        assert not first.lost_while_valid
        proxy.reopen()
        second.stop()
        connection.close()


def test_a_crashed_leader_is_followed_after_its_lease(kube: Client) -> None:
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "crashed"},
        "spec": {
            "holderIdentity": "dead",
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": "2020-01-01T00:00:00.000000Z",
        },
    }
    kube.create(resources.LEASES, body, NAMESPACE)
    begun = time.monotonic()
    replica = Replica(kube, "crashed", "next")
    assert replica.leading.wait(10 * PATIENCE)
    assert LEASE_SECONDS <= time.monotonic() - begun < 2 * LEASE_SECONDS, (
        "the age that the dead one wrote is not believed, only what we saw"
    )
    replica.stop()
