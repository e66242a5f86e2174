"""The watch of pods alone is cut while pods bind: no live pod is killed, voluntary disruption stops, and a user's delete goes on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.pods import Pod, is_daemon
from provisioner.kube.client import Client
from provisioner.kube.config import Api, ApiConnection, connect
from provisioner.kube.resources import NODECLAIMS, PODS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.runtime.freshness import stale
from provisioner.support.clock import SystemClock
from tests.support.eventually import eventually
from tests.support.kube_proxy import TcpProxy, proxy_to
from tests.support.provisioner import SECONDS, InProcess, Plot

pytestmark = pytest.mark.plane

CUT_SECONDS = 120.0


class Detour:
    """A connection on which whatever concerns pods takes another way."""

    def __init__(self, direct: ApiConnection, detour: ApiConnection) -> None:
        self._direct, self._detour = direct, detour

    def __getattr__(self, name: str) -> Any:
        return getattr(self._direct, name)

    def request(self, method: str, path: str, **options: Any) -> Any:
        return self._way(path).request(method, path, **options)

    def stream(self, path: str, *, read_timeout: float) -> Any:
        return self._way(path).stream(path, read_timeout=read_timeout)

    def _way(self, path: str) -> Api:
        return self._detour if path.partition("?")[0] == PODS.path() else self._direct


@pytest.fixture(scope="module")
def proxy(plane: DevCluster, client: Client) -> Iterator[TcpProxy]:
    with proxy_to(int(client.connection.host.rpartition(":")[2])) as one:
        yield one


@pytest.fixture(scope="module")
def provisioner(
    plane: DevCluster, client: Client, proxy: TcpProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InProcess]:
    target = tmp_path_factory.mktemp("cut") / "kubeconfig"
    detour = connect(proxy.kubeconfig(Path(str(plane.kubeconfig)), target), user_agent="dovetail-test-pods")

    def watching(direct: ApiConnection) -> ApiConnection:
        return cast(ApiConnection, Detour(direct, detour))

    process = InProcess(str(plane.kubeconfig), watching=watching)
    process.start()
    yield process
    proxy.thaw()
    process.stop()
    detour.close()


@pytest.fixture
def plot(client: Client, provisioner: InProcess, proxy: TcpProxy) -> Iterator[Plot]:
    one = Plot(client)
    yield one
    proxy.thaw()
    one.clear()


def existing_node(plot: Plot, pool: str) -> NodeClaim:
    """The one node of a pool, initialised."""
    eventually(lambda: len(plot.initialized(pool)) == 1, f"the node of {pool} is initialised", SECONDS)
    return plot.initialized(pool)[0]


def empty_node(plot: Plot, provisioner: InProcess, suffix: str, **disruption: Any) -> tuple[str, NodeClaim]:
    """A pool with one node that has no pods, and of which the provisioner knows that."""
    pool = plot.pool(
        suffix, disruption={"consolidationPolicy": "WhenEmpty", "budgets": [{"nodes": "100%"}], **disruption}
    )
    app = f"first{suffix}"
    plot.deploy(app, 1, pool=pool)
    plot.await_running(1, app)
    claim = existing_node(plot, pool)
    plot.scale(app, 0)
    cluster = provisioner.caches.cluster

    def known_to_be_empty() -> bool:
        return all(is_daemon(pod) for pod in cluster.bound_to(claim.status.node_name))

    eventually(known_to_be_empty, "the provisioner knows that the node is empty", SECONDS)
    return pool, claim


def only_pod(plot: Plot, app: str) -> Pod:
    plot.await_running(1, app)
    (found,) = plot.pods(app)
    return found


def test_two_minutes_without_the_watch_of_pods_kill_no_pod(
    plot: Plot, provisioner: InProcess, proxy: TcpProxy, client: Client
) -> None:
    clock = SystemClock()
    quiet, spared = empty_node(plot, provisioner, "-a", consolidateAfter="Never")
    asked, deleted = empty_node(plot, provisioner, "-b", consolidateAfter="Never")
    proxy.freeze()
    began = clock.monotonic()
    plot.deploy("late", 1, pool=quiet)
    plot.deploy("guarded", 1, pool=asked)
    late, guarded = only_pod(plot, "late"), only_pod(plot, "guarded")
    assert (late.node_name, guarded.node_name) == (spared.status.node_name, deleted.status.node_name)
    assert not provisioner.has_seen(PODS, late.key), "the watch of pods is not cut"
    # now, and not before: however long a busy machine took until here, nothing has been taken for empty
    plot.change_pool(quiet, disruption={"consolidateAfter": "0s"})
    plot.protect("guarded")
    client.delete(NODECLAIMS, deleted.name)

    suspended, protected = False, True
    while (gone := clock.monotonic() - began) < CUT_SECONDS:
        assert [one.uid for one in plot.pods("late")] == [late.uid], f"killed after {gone:.0f} s"
        suspended = suspended or bool(stale(provisioner.caches.behind_disruption))
        if gone < CUT_SECONDS / 2:
            assert [one.uid for one in plot.pods("guarded")] == [guarded.uid], f"evicted after {gone:.0f} s"
        elif protected:
            plot.unprotect("guarded")
            protected = False
        clock.sleep(0.5)
    tries = plot.events("DisruptionBlocked", "NodeClaim", [spared.name])  # the taint is off again within moments
    assert [one for one in tries if late.key in one.message], "the node that seemed empty was never tried"
    (node,) = plot.nodes(quiet)
    assert names.DISRUPTED_TAINT not in node.spec.taints
    assert suspended, "the caches never said that they are behind"
    assert existing_node(plot, quiet).metadata.uid == spared.metadata.uid
    eventually(
        lambda: not [one for one in plot.claims(asked) if one.name == deleted.name],
        "the delete of a user goes on",
        SECONDS,
    )
    eventually(lambda: plot.events("Evicted", "Pod", [guarded.name]), "the eviction is told", SECONDS)
    eventually(lambda: plot.events("FailedDraining", "NodeClaim", [deleted.name]), "the drain is told", SECONDS)

    proxy.thaw()
    plot.await_running(1, "guarded")
    eventually(lambda: not stale(provisioner.caches.behind_disruption), "the caches are current again", SECONDS)
    eventually(
        lambda: all(taint.key != names.DISRUPTED_TAINT.key for taint in plot.nodes(quiet)[0].spec.taints),
        "the node with the pod is open",
        SECONDS,
    )
