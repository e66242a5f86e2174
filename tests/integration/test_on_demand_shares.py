"""Shares on demand with the real ReplicaSet controller and the webhook program: a burst, evictions and a scale-down."""

from collections.abc import Iterator
from typing import Final

import pytest

from provisioner.lab.devcluster.cluster import DevCluster
from tests.support.eventually import eventually
from tests.support.hook import Hook, Replicas, replicas
from tests.support.shares import Web, is_seated, on_demand

pytestmark = pytest.mark.plane

REPLICAS: Final = 200
AT_ONCE: Final = 500


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


def test_a_share_holds_over_a_burst_evictions_and_a_scale_down(hook: Hook) -> None:
    web = Web(hook, REPLICAS)
    pods = web.settled(REPLICAS)
    assert all(map(is_seated, pods))
    assert abs(len(on_demand(pods)) - REPLICAS * 0.3) <= 2
    web.delete_on_demand()
    pods = web.settled(REPLICAS)
    assert abs(len(on_demand(pods)) - REPLICAS * 0.3) <= REPLICAS * 0.05
    web.scale(REPLICAS // 4)
    pods = web.settled(REPLICAS // 4)
    assert abs(len(on_demand(pods)) - REPLICAS / 4 * 0.3) <= max(2, REPLICAS / 4 * 0.05)
    web.scale(0)
    eventually(lambda: not web.pods(), "no pod is left")


def test_two_replicas_keep_the_share_of_five_hundred_pods_at_once(pair: Replicas) -> None:
    before = list(pair.splitter.taken)
    web = Web(pair.hooks[0], AT_ONCE)
    pods = web.settled(AT_ONCE)
    deciders = [after - one for after, one in zip(pair.splitter.taken, before, strict=True)]
    assert all(deciders), f"connections of the burst to each replica: {deciders}"
    print(f"{len(on_demand(pods))} of {AT_ONCE} on demand, connections {deciders}")
    assert [one["metadata"]["name"] for one in pods if not is_seated(one)] == []
    assert abs(len(on_demand(pods)) - AT_ONCE * 0.3) <= AT_ONCE * 0.05
    web.scale(0)
    eventually(lambda: not web.pods(), "no pod is left")
