"""Batches with groups of pods: nodes for all that are needed, or for none."""

from datetime import timedelta
from typing import Any

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.state.checking import CheckedCluster
from provisioner.support.workers import WorkerPool
from provisioner.values.resources import CPU
from tests.support.batches import Batches
from tests.support.cluster import TYPES, World, bound, pod, pool, refused

FOUR = 4_000


def member(name: str, *, minimum: int = 3, cpu: str = "3", **changes: Any) -> Pod:
    """A pod of a gang, for a node of 4 CPUs or more."""
    return pod(
        name, owner="job", cpu=cpu, annotations={names.GANG: "train", names.GANG_MINIMUM: str(minimum)}, **changes
    )


def stage_with(*pods: Pod, **pool: Any) -> Batches:
    """Nodes of 4 CPUs alone."""
    stage = Batches(*pods, **pool)
    stage.provider.types = tuple(one for one in stage.provider.types if one.capacity.amount(CPU) == FOUR)
    return stage


def with_places(stage: Batches) -> list[str]:
    return sorted(name for claim in set(stage.created) for name in stage.world.assigned(claim))


def test_a_gang_for_which_limits_leave_too_little_gets_no_node_and_others_do() -> None:
    stage = stage_with(member("a"), member("b"), member("c"), pod("alone", cpu="3"), limits={"cpu": "8"})
    stage.run()
    assert with_places(stage) == ["alone"]
    text = "3 pods of gang default/train need nodes at the same time, but there is room for only 1 of them"
    assert [text in one for one in stage.told.messages if one.startswith("Failed to schedule")] == [True] * 3


def test_more_pods_than_are_needed_are_planned_as_far_as_there_is_room() -> None:
    stage = stage_with(*(member(name) for name in "abcde"), limits={"cpu": "16"})
    stage.run()
    assert with_places(stage) == ["a", "b", "c", "d"]


def test_a_gang_that_failed_comes_after_one_that_did_not() -> None:
    workers = WorkerPool(1)
    stage = stage_with(member("a"), member("b"), member("c"), limits={"cpu": "8"})
    controller = stage.provisioner(workers)
    controller.run()
    others = {names.GANG: "walk", names.GANG_MINIMUM: "2"}
    stage.world.add(*(pod(name, owner="job", cpu="3", annotations=others) for name in "de"))
    raised = pool(limits={"cpu": "12"})
    stage.world.cluster.pool_changed(stage.pool, raised)
    controller.run()
    workers.close()
    assert with_places(stage) == ["d", "e"]


def test_a_pod_whose_node_is_lost_is_planned_beside_those_that_have_places() -> None:
    stage = stage_with(member("a"), member("b"), member("c"), limits={"cpu": "12"})
    stage.run()
    assert with_places(stage) == ["a", "b", "c"]
    stage.world.cluster.claim_changed(stage.world.cluster.claim(stage.created[0]), None)
    stage.run()
    assert with_places(stage) == ["a", "b", "c"]
    assert len(stage.created) == len("abc") + 1


def test_one_pod_that_waits_makes_its_whole_gang_be_planned() -> None:
    world = World()
    world.cluster = CheckedCluster(lambda _: TYPES, world.clock, grace=timedelta(minutes=5))
    world.cluster.settle()
    world.add(member("a"), member("b"), member("c"), pod("single"))
    assert not world.cluster.snapshot().waiting
    world.add(refused(member("b"), "no"))
    assert [one.name for one in world.cluster.snapshot().waiting] == ["a", "b", "c"]
    world.add(bound(member("b"), "n"))
    assert not world.cluster.snapshot().waiting
