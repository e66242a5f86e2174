"""What one batch is asked: which pools, machines and pods take part."""

from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.karpenter import NodePool
from provisioner.cloudprovider.kwok import catalogue
from provisioner.controllers.provisioning import problem_of
from provisioner.scheduling.problem import Problem
from tests.support.clock import NOON
from tests.support.cluster import World, claim, node, pod, pool

TYPES = catalogue.generated().types
READY = {"type": "Ready", "status": "True", "lastTransitionTime": NOON.isoformat()}


def ask(world: World, *, ours: bool = True) -> Problem:
    snapshot = world.cluster.snapshot()
    return problem_of(snapshot, snapshot.pending, lambda _: TYPES, frozenset(), lambda _: ours)


def world_of(*pools: NodePool) -> World:
    world = World()
    for one in pools:
        world.cluster.pool_changed(None, one)
    return world


LEFT_OUT: dict[str, dict[str, Any]] = {
    "is not ready": {"status": {"conditions": [READY | {"status": "False"}]}},
    "is not known to be ready": {"status": {}},
    "is static": {"replicas": 2},
    "has limits that cannot be read": {"limits": {"cpu": "many"}},
    "has a requirement that cannot be read": {
        "requirements": ({"key": "example.com/team", "operator": "Exists", "values": ["a"]},)
    },
}


@pytest.mark.parametrize("spec", LEFT_OUT.values(), ids=LEFT_OUT.keys())
def test_a_pool_is_left_out_alone_that(spec: dict[str, Any]) -> None:
    problem = ask(world_of(pool("bad", **spec), pool("good")))
    assert [one.name for one in problem.pools] == ["good"]


def test_a_pool_of_another_provider_takes_no_part() -> None:
    assert ask(world_of(pool("foreign")), ours=False).pools == ()


def test_a_pool_offers_what_remains_of_its_limits() -> None:
    world = world_of(pool(limits={"cpu": "10", "nodes": "3"}))
    world.machine("m")
    (one,) = ask(world).pools
    assert one.remaining is not None
    assert dict(one.remaining) == {"cpu": 6000, "nodes": 2}


def test_a_pool_without_limits_has_no_remainder() -> None:
    (one,) = ask(world_of(pool())).pools
    assert one.remaining is None


def test_a_pools_own_labels_are_requirements() -> None:
    (one,) = ask(world_of(pool(requirements=({"key": names.ARCH_LABEL, "operator": "In", "values": ["arm64"]},)))).pools
    assert one.requirements.requirement(names.NODEPOOL_LABEL).is_single == "general"
    assert one.requirements.requirement("karpenter.kwok.sh/kwoknodeclass").is_single == "default"
    assert one.requirements.requirement(names.ARCH_LABEL).is_single == "arm64"


def test_machines_take_pods_unless_they_leave() -> None:
    world = world_of(pool())
    for name in ("stays", "claim-goes", "node-goes", "disrupted"):
        world.machine(name)
    world.cluster.claim_changed(None, claim("coming"))
    world.cluster.claim_changed(
        None, claim("claim-goes", provider_id="kwok://claim-goes", deletionTimestamp=NOON.isoformat())
    )
    world.cluster.node_changed(None, node("node-goes", deletionTimestamp=NOON.isoformat()))
    taint = {"key": names.DISRUPTED_TAINT.key, "effect": names.NO_SCHEDULE}
    world.cluster.node_changed(None, node("disrupted", taints=(taint,)))
    bins = ask(world).bins
    assert [one.name for one in bins if not one.leaving] == ["stays", "coming"]
    assert {one.name for one in bins if one.leaving} == {"claim-goes", "node-goes", "disrupted"}


def test_a_machine_shows_its_room_less_what_is_promised() -> None:
    world = world_of(pool())
    world.add(pod("running", node="m", cpu="500m"), pod("waits", cpu="1"))
    world.machine("m", pods=(pod("waits"),))
    (one,) = ask(world).bins
    full = next(kind for kind in TYPES if kind.name == "c-4x-amd64-linux").allocatable["cpu"]
    assert one.room["cpu"] == full - 1500
    assert ask(world).pods == ()
