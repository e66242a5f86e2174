"""The watch of pods brings everything 100 s late and is lively all the time: that shows, nothing that looks empty goes, and what ends is read once more."""

from collections.abc import Iterator
from typing import Any, cast

import pytest

from provisioner.apis import names
from provisioner.apis.pods import is_daemon
from provisioner.kube.client import Client
from provisioner.kube.config import Api, ApiConnection, connect
from provisioner.kube.lag import BEHIND_SECONDS, PROBE_SECONDS
from provisioner.kube.resources import NODECLAIMS, PODS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.runtime.freshness import stale
from provisioner.support.clock import SystemClock
from tests.support.apiproxy import ApiProxy, Rule, api_proxy
from tests.support.eventually import PATIENCE, eventually
from tests.support.provisioner import SECONDS, InProcess, Plot

pytestmark = pytest.mark.plane

LATE_SECONDS = 100.0


class Detour:
    """A connection on which the watch of pods takes another way; everything else is fresh."""

    def __init__(self, direct: ApiConnection, detour: ApiConnection) -> None:
        self._direct, self._detour = direct, detour

    def __getattr__(self, name: str) -> Any:
        return getattr(self._direct, name)

    def stream(self, path: str, *, read_timeout: float) -> Any:
        way: Api = self._detour if path.partition("?")[0] == PODS.path() else self._direct
        return way.stream(path, read_timeout=read_timeout)


@pytest.fixture
def proxy(plane: DevCluster) -> Iterator[ApiProxy]:
    with api_proxy(plane) as one:
        yield one


@pytest.fixture
def provisioner(plane: DevCluster, client: Client, proxy: ApiProxy) -> Iterator[InProcess]:
    detour = connect(proxy.kubeconfig(), user_agent="dovetail-test-late")
    process = InProcess(str(plane.kubeconfig), watching=lambda direct: cast(ApiConnection, Detour(direct, detour)))
    process.start()
    yield process
    process.stop()
    detour.close()


@pytest.fixture
def plot(client: Client, provisioner: InProcess) -> Iterator[Plot]:
    one = Plot(client)
    yield one
    one.clear()


def test_a_watch_that_is_late_is_not_ready_and_ends_nothing(
    plot: Plot, provisioner: InProcess, proxy: ApiProxy, client: Client
) -> None:
    clock, caches = SystemClock(), provisioner.caches
    pool = plot.pool(
        "-late",
        disruption={"consolidationPolicy": "WhenEmpty", "budgets": [{"nodes": "100%"}], "consolidateAfter": "Never"},
    )
    plot.deploy("first", 1, pool=pool)
    plot.await_running(1, "first")
    eventually(lambda: len(plot.initialized(pool)) == 1, "the node is initialised", SECONDS)
    (claim,) = plot.initialized(pool)
    plot.scale("first", 0)

    def known_to_be_empty() -> bool:
        return all(is_daemon(pod) for pod in caches.cluster.bound_to(claim.status.node_name))

    eventually(known_to_be_empty, "the provisioner knows that the node is empty", SECONDS)
    assert caches.problem() == ""
    with proxy.during(Rule("late", path=r"/api/v1/pods\?.*", seconds=LATE_SECONDS, watches=True)):
        began = clock.monotonic()
        plot.deploy("late", 1, pool=pool)
        plot.await_running(1, "late")
        (late,) = plot.pods("late")
        assert late.node_name == claim.status.node_name
        assert not provisioner.has_seen(PODS, late.key), "the watch of pods is not late"
        plot.change_pool(pool, disruption={"consolidateAfter": "0s"})  # now, and not before: the node looks empty
        while not (problem := caches.problem()):
            (node,) = plot.nodes(pool)
            assert names.DISRUPTED_TAINT not in node.spec.taints, "a node with a pod was closed"
            assert clock.monotonic() - began < BEHIND_SECONDS + 3 * PATIENCE * PROBE_SECONDS, "nobody noticed"
            clock.sleep(0.2)
        assert "the watch of pods is at least" in problem
        assert stale(caches.behind_disruption) == problem
        assert [one.uid for one in plot.pods("late")] == [late.uid]
        assert client.get(NODECLAIMS, claim.name).metadata.deletion_timestamp is None

        def told() -> list[str]:
            """That something was tried, and compared."""
            return [one.message for one in plot.events("DisruptionBlocked", "NodeClaim", [claim.name])]

        eventually(lambda: [text for text in told() if late.key in text], told)
    eventually(lambda: caches.problem() == "", "the watch has caught up", SECONDS)
