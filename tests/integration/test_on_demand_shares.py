"""Shares on demand with the real ReplicaSet controller and the webhook program: a burst, evictions and a scale-down."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from provisioner.devcluster.cluster import DevCluster
from tests.support.eventually import eventually
from tests.support.hook import Hook, Replicas, replicas

pytestmark = pytest.mark.plane

REPLICAS: Final = 200
AT_ONCE: Final = 500
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/{}/deployments"


@pytest.fixture
def hook(plane: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hook]:
    """A webhook that counts pods."""
    hook = Hook(plane, tmp_path_factory.mktemp("certs"), "--on-demand-shares")
    hook.start()
    hook.ask_patiently()
    try:
        yield hook
    finally:
        hook.close()


@pytest.fixture
def pair(plane: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    """Two replicas of it."""
    with replicas(plane, [tmp_path_factory.mktemp("certs") for _ in range(2)], "--on-demand-shares") as found:
        found.hooks[0].ask_patiently()
        yield found


class Web:
    """A Deployment whose pods wait for nodes that never come."""

    def __init__(self, hook: Hook, replicas: int = REPLICAS) -> None:
        self._hook, self.namespace = hook, hook.namespace()
        self._path = DEPLOYMENTS.format(self.namespace)
        template = {
            "metadata": {"labels": {"app": "web"}, "annotations": {"dovetail.dev/on-demand": "30%"}},
            "spec": {"serviceAccountName": "mine", "containers": [{"name": "c", "image": "x"}]},
        }
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        hook.client.raw("POST", self._path, {"metadata": {"name": "web"}, "spec": spec})

    def scale(self, replicas: int) -> None:
        change = {"spec": {"replicas": replicas}}
        path = f"{self._path}/web/scale"
        self._hook.client.raw("PATCH", path, change, content_type="application/merge-patch+json")

    def pods(self) -> list[dict[str, Any]]:
        found = json.loads(self._hook.client.raw("GET", f"/api/v1/namespaces/{self.namespace}/pods"))["items"]
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    def delete(self, name: str) -> None:
        self._hook.client.raw("DELETE", f"/api/v1/namespaces/{self.namespace}/pods/{name}")

    def settled(self, replicas: int) -> list[dict[str, Any]]:
        """The pods, once there are so many and no others."""

        def there() -> list[dict[str, Any]]:
            pods = self.pods()
            return pods if len(pods) == replicas else []

        return eventually(there, f"{replicas} pods", seconds=90)


def on_demand(pods: list[dict[str, Any]]) -> int:
    return sum(one["metadata"]["labels"].get("dovetail.dev/on-demand-share") == "on-demand" for one in pods)


def test_a_share_holds_over_a_burst_evictions_and_a_scale_down(hook: Hook) -> None:
    web = Web(hook)
    pods = web.settled(REPLICAS)
    assert all("dovetail.dev/on-demand-share" in one["metadata"]["labels"] for one in pods)
    assert abs(on_demand(pods) - REPLICAS * 0.3) <= 2
    # all that run on demand go at once: the worst that the next admissions can find
    going = [
        one["metadata"]["name"]
        for one in pods
        if one["metadata"]["labels"]["dovetail.dev/on-demand-share"] == "on-demand"
    ]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(web.delete, going))
    pods = web.settled(REPLICAS)
    assert abs(on_demand(pods) - REPLICAS * 0.3) <= REPLICAS * 0.05
    web.scale(REPLICAS // 4)
    pods = web.settled(REPLICAS // 4)
    assert abs(on_demand(pods) - REPLICAS / 4 * 0.3) <= max(2, REPLICAS / 4 * 0.05)
    web.scale(0)
    eventually(lambda: not web.pods(), "no pod is left")


def test_two_replicas_keep_the_share_of_five_hundred_pods_at_once(pair: Replicas) -> None:
    before = list(pair.splitter.taken)
    web = Web(pair.hooks[0], AT_ONCE)
    pods = web.settled(AT_ONCE)
    deciders = [after - one for after, one in zip(pair.splitter.taken, before, strict=True)]
    assert all(deciders), f"connections of the burst to each replica: {deciders}"
    print(f"{on_demand(pods)} of {AT_ONCE} on demand, connections {deciders}")
    unstamped = [
        one["metadata"]["name"] for one in pods if "dovetail.dev/on-demand-share" not in one["metadata"]["labels"]
    ]
    assert unstamped == []
    assert abs(on_demand(pods) - AT_ONCE * 0.3) <= AT_ONCE * 0.05
    web.scale(0)
    eventually(lambda: not web.pods(), "no pod is left")
