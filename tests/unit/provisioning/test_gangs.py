"""Batches with groups of pods: nodes for all that are needed, or for none."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import PodGroup
from provisioner.apis.launch_sets import sets_of
from provisioner.apis.pods import Pod
from provisioner.nodeclaims.growth_ledger import GrowthLedger
from provisioner.nodeclaims.growth_limits import GrowthLimits
from provisioner.provisioning.questions import BatchQuestion
from provisioner.requests.bookings import NOTHING_ASKED
from provisioner.state.checking import CheckedCluster
from provisioner.state.knowledge import KindKnowledge
from provisioner.support.workers import WorkerPool
from provisioner.values.resources import CPU
from tests.support.batches import Batches
from tests.support.clock import NOON
from tests.support.cluster import TYPES, World, bound, claim, node, pod, pool, refused

FOUR = 4_000
ONE_TYPE = ({"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": ["c-4x-amd64-linux"]},)


def member(pod_name: str, *, name: str = "train", minimum: int = 3, cpu: str = "3", **changes: Any) -> Pod:
    """A pod of a gang, for a node of 4 CPUs or more."""
    return pod(
        pod_name, owner="job", cpu=cpu, annotations={names.GANG: name, names.GANG_MINIMUM: str(minimum)}, **changes
    )


def stage_with(*pods: Pod, **pool: Any) -> Batches:
    """Nodes of 4 CPUs alone."""
    stage = Batches(*pods, **pool)
    stage.provider.types = tuple(one for one in stage.provider.types if one.capacity.amount(CPU) == FOUR)
    return stage


def sets_of_claims(stage: Batches) -> list[dict[str, int]]:
    """Of each NodeClaim that there is, by name: the groups of its sets, and how many nodes each has."""
    claims = sorted(stage.world.cluster.claims(), key=lambda claim: claim.name)
    return [{one.group: one.nodes for one in sets_of(claim.metadata.annotations)} for claim in claims]


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


@pytest.mark.parametrize(("last", "placed"), [("train", ["d", "e"]), ("walk", ["a", "b"])])
def test_a_gang_that_failed_comes_after_others_also_where_pods_are_asked_about_again(
    last: str, placed: list[str]
) -> None:
    gangs = [member(name, name=gang, minimum=2) for gang, some in (("train", "ab"), ("walk", "de")) for name in some]
    stage, workers = stage_with(*gangs, limits={"cpu": "8"}), WorkerPool(1)
    planning, snapshot = stage.provisioner(workers).planning, stage.world.cluster.snapshot()
    failed = (f"default/gang/{last}/job/2",)
    question = BatchQuestion("", snapshot, snapshot.waiting, (), NOTHING_ASKED, frozenset(), failed, frozenset())
    plan = planning.plan(question)
    again = planning.again(plan, {one.uid for one in gangs}, planning.expired(), runs=False, usd=None)
    workers.close()
    assert again is not None
    found = [plan.planned.result, again.planned.result]
    assert [sorted(one.name for one in each.placed) for each in found] == [placed, placed]


def test_a_pod_whose_node_is_lost_is_planned_beside_those_that_have_places() -> None:
    stage = stage_with(member("a"), member("b"), member("c"), limits={"cpu": "12"})
    stage.run()
    assert with_places(stage) == ["a", "b", "c"]
    stage.world.cluster.launch_begins(stage.created[1])
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


def test_nodes_of_a_gang_say_how_many_it_needs_together() -> None:
    stage = stage_with(member("a"), member("b"), member("c"), pod("alone", cpu="3"))
    stage.run()
    key = "default/gang/train/job/3"
    assert sorted(sets_of_claims(stage), key=len) == [{}, {key: 3}, {key: 3}, {key: 3}]


def test_what_a_gang_could_do_without_is_a_single_pod() -> None:
    stage = stage_with(member("a"), member("b"), member("c"), limits={"cpu": "12"})
    stage.run()
    stage.world.add(member("later"))
    stage.world.cluster.pool_changed(stage.pool, pool(limits={"cpu": "40"}))
    stage.run()
    assert min(sets_of_claims(stage), key=len) == {}
    assert len(sets_of_claims(stage)) == 4


class Limited(Batches):
    """Nodes of one type for pods of 3 CPUs each, and growth limits."""

    def __init__(self, limits: GrowthLimits, *pods: Pod) -> None:
        super().__init__(*pods, requirements=ONE_TYPE)
        self.growth = GrowthLedger(self.world.cluster, limits, lambda _: self.world.types, self.world.clock)
        self.workers = WorkerPool(1)
        self.controller = self.provisioner(self.workers)

    def placed(self) -> list[str]:
        """Who has a place after another batch."""
        self.controller.run()
        return sorted(name for claim in self.world.cluster.claims() for name in self.world.assigned(claim.name))

    def add(self, *pods: Pod) -> None:
        self.world.add(*pods)


@pytest.fixture
def limited() -> Iterator[Callable[..., Limited]]:
    made: list[Limited] = []

    def make(limits: GrowthLimits, *pods: Pod) -> Limited:
        made.append(Limited(limits, *pods))
        return made[-1]

    yield make
    for one in made:
        one.workers.close()


def test_a_gang_that_is_larger_than_the_growth_limit_is_created_at_once_and_takes_the_minutes_that_follow(
    limited: Callable[..., Limited],
) -> None:
    stage = limited(GrowthLimits(claims_per_minute=2), *(member(name, minimum=5) for name in "abcde"))
    assert stage.placed() == ["a", "b", "c", "d", "e"]
    stage.add(pod("alone", cpu="3"))
    for seconds, placed in ((119.0, False), (1.0, True)):
        stage.world.clock.advance(seconds)
        assert ("alone" in stage.placed()) is placed


def test_a_gang_that_a_limit_holds_back_says_so_and_comes_before_those_that_came_later(
    limited: Callable[..., Limited],
) -> None:
    stage = limited(GrowthLimits(claims_per_minute=3), pod("first", cpu="3"))
    assert stage.placed() == ["first"]
    stage.add(member("a"), member("b"), member("c"))
    assert stage.placed() == ["first"]
    (text,) = {one for one in stage.told.messages if one.startswith("Failed to schedule")}
    assert "--max-claims-per-minute is 3" in text
    assert text.endswith("the 3 nodes for gang default/train are created at the same time or not at all")
    stage.world.clock.advance(60.0)
    stage.add(pod("later", cpu="3"))
    assert stage.placed() == ["a", "b", "c", "first"]


def test_a_gang_that_no_money_is_left_for_gets_no_node_and_a_single_pod_does(limited: Callable[..., Limited]) -> None:
    stage = limited(GrowthLimits(usd_per_hour=0.2), member("a"), member("b"), member("c"), pod("alone", cpu="3"))
    assert stage.placed() == ["alone"]


def test_a_large_gang_whose_claims_are_gone_counts_for_one_minute(limited: Callable[..., Limited]) -> None:
    stage = limited(GrowthLimits(claims_per_minute=2), *(member(name, minimum=5) for name in "abcde"))
    assert stage.placed() == ["a", "b", "c", "d", "e"]
    stage.workers.close()  # all are written
    stage.workers = WorkerPool(1)
    stage.controller = stage.provisioner(stage.workers)
    for name in list(stage.server.objects["nodeclaims"]):
        stage.server.drop("nodeclaims", name)
    stage.world.cluster.pod_changed(member("a", minimum=5), None)
    stage.add(pod("alone", cpu="3"))
    assert stage.placed() == []
    stage.world.clock.advance(60.0)
    assert stage.placed() == ["alone"]


def test_large_gangs_that_keep_coming_leave_single_pods_their_turn(limited: Callable[..., Limited]) -> None:
    stage = limited(GrowthLimits(claims_per_minute=2), pod("first", cpu="3"))
    gangs = [[member(f"{gang}{number}", name=gang) for number in range(3)] for gang in "abc"]
    stage.add(*(one for gang in gangs for one in gang))
    assert stage.placed() == ["first"]
    stage.add(pod("alone", cpu="3"))
    placed: list[str] = []
    for _ in range(4 * 6):
        stage.world.clock.advance(10.0)
        placed = stage.placed()
        if "alone" in placed:
            break
    assert "alone" in placed
    assert len(placed) == len(("first", "alone", *gangs[0]))


def test_successors_of_drained_pods_come_before_gangs_that_were_held_back(limited: Callable[..., Limited]) -> None:
    stage = limited(GrowthLimits(claims_per_minute=3), pod("first", cpu="3"))
    assert stage.placed() == ["first"]
    stage.add(*(member(f"{gang}{number}", name=gang) for gang in "abc" for number in range(3)))
    assert stage.placed() == ["first"]
    stage.world.cluster.node_changed(None, node("going", deletionTimestamp=NOON.isoformat(), finalizers=["x"]))
    stage.world.add(pod("leaving", owner="web", node="going"))
    stage.add(pod("successor", owner="web", cpu="3"))
    stage.world.clock.advance(60.0)
    assert stage.placed() == ["first", "successor"]


def test_a_gang_that_is_held_back_keeps_no_room_on_nodes_that_are_there(limited: Callable[..., Limited]) -> None:
    stage = limited(GrowthLimits(claims_per_minute=2), pod("old", cpu="500m"))
    assert stage.placed() == ["old"]
    stage.add(member("a"), member("b"), member("c"))
    assert stage.placed() == ["old"]
    stage.add(pod("alone", cpu="3"))
    assert stage.placed() == ["alone", "old"]


def test_of_claims_that_are_announced_together_all_are_known_or_none() -> None:
    world = World()
    one, other = pod("one"), pod("other")
    world.add(one, other)
    a, b = (claim(name) for name in "ab")
    cluster = world.cluster
    assert cluster.announce_all([(a, (one,)), (b, (pod("gone"),))]) is None
    assert not cluster.claims()
    assert cluster.announce(b, (other,)) is True
    assert cluster.announce_all([(a, (one,)), (b, ())]) is False
    assert [known.name for known in cluster.claims()] == ["b"]
    assert not cluster.is_planned(one.uid)


@pytest.mark.parametrize("topology", [names.ZONE_LABEL, names.HOSTNAME_LABEL])
def test_who_was_evicted_first_gets_its_node_where_the_others_of_its_domain_still_run(topology: str) -> None:
    """kube-scheduler places it nowhere else, and a PodDisruptionBudget may let none of them go before it is bound; on one host they all wait for the last."""
    zone = "test-zone-d"
    stage, constraints = Batches(), {"topology": [{"key": topology}]}
    group = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"schedulingConstraints": constraints}}
    world, cluster = stage.world, stage.world.cluster
    cluster.pod_groups_known(KindKnowledge.READ)
    cluster.pod_group_changed(None, msgspec.convert(group, PodGroup))
    labels = {names.NODEPOOL_LABEL: "general", names.ZONE_LABEL: zone, names.HOSTNAME_LABEL: "n"}
    there = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)
    at = NOON.isoformat()
    cluster.claim_changed(None, claim("n", provider_id="kwok://n", true=there, deletionTimestamp=at, labels=labels))
    cluster.node_changed(None, node("n", labels={**labels, names.REGISTERED_LABEL: "true"}))
    first, second = (msgspec.structs.replace(pod(name, owner="rs", cpu="3"), group="g") for name in ("first", "second"))
    world.add(bound(second, "n"), first)
    assert [one.name for one in cluster.snapshot().leaving] == ["second"]
    stage.run()
    zones = {
        value
        for made in stage.created
        if (found := cluster.claim(made)) is not None
        for one in found.spec.requirements
        if one.key == names.ZONE_LABEL
        for value in one.values
    }
    assert "first" in with_places(stage)
    assert topology == names.HOSTNAME_LABEL or zones == {zone}
