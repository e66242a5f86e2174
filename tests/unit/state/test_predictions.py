"""What is expected of pods that are admitted again, and the room that plans keep for it until they are."""

from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import BriefMeta, LimitRange, LimitRangeItem, LimitRangeSpec
from provisioner.apis.pods import Pod
from provisioner.apis.vpa import VerticalPodAutoscaler
from provisioner.state import predictions
from provisioner.state.effects import PodSettled
from provisioner.state.keys import NodeKey
from provisioner.state.knowledge import KindKnowledge
from provisioner.state.predictions import NO_PREDICTIONS, AutoscalerKeeper, PodPredictions
from tests.support.autoscalers import autoscaler, sized_pod
from tests.support.clock import NOON
from tests.support.cluster import World, bound, claim, node

DISRUPTED = {"key": names.DISRUPTED_TAINT.key, "effect": names.NO_SCHEDULE}
BIG: dict[str, Any] = {"app": {"cpu": "900m"}}


def kept(*some: VerticalPodAutoscaler) -> PodPredictions:
    keeper = AutoscalerKeeper()
    keeper.know(KindKnowledge.READ)
    for one in some:
        keeper.changed(None, one)
    return keeper.frozen()


def cpu(made: PodPredictions, pod: Pod) -> int:
    return made.readmitted(pod).shape.requests["cpu"]


def test_of_several_for_one_target_the_oldest_that_applies_counts() -> None:
    old = autoscaler("z", created="2026-01-01T00:00:00Z", app={"cpu": "2"})
    new = autoscaler("a", created="2026-02-01T00:00:00Z", app={"cpu": "3"})
    off = autoscaler("b", mode="Off", created="2025-01-01T00:00:00Z", app={"cpu": "4"})
    same = autoscaler("y", created="2026-01-01T00:00:00Z", app={"cpu": "5"})
    pod = sized_pod()
    assert [cpu(kept(*some), pod) for some in ((new, off), (new, old, off), (old, same))] == [3000, 2000, 5000]


ELSEWHERE: dict[str, dict[str, Any]] = {
    "another namespace": {"namespace": "other"},
    "another name": {"target": ("Deployment", "web2")},
    "another kind": {"target": ("StatefulSet", "web")},
    "the ReplicaSet of a Deployment": {"target": ("ReplicaSet", "web-5d4f8c7b9")},
}


@pytest.mark.parametrize("where", ELSEWHERE.values(), ids=ELSEWHERE)
def test_one_for_other_pods_says_nothing(where: dict[str, Any]) -> None:
    pod = sized_pod()
    assert kept(autoscaler(**where, **BIG)).readmitted(pod) is pod


def test_of_a_pod_whose_containers_are_not_known_nothing_is_predicted() -> None:
    pod = msgspec.structs.replace(sized_pod(), amounts=None)
    assert kept(autoscaler(**BIG)).readmitted(pod) is pod


def test_equal_pods_have_one_shape_again() -> None:
    made = kept(autoscaler(**BIG))
    one, two = (made.readmitted(sized_pod(name)) for name in "ab")
    assert one.shape is two.shape
    assert (one.name, one.shape.requests["cpu"]) == ("a", 900)


def test_nothing_is_predicted_until_that_is_said_and_after_it_is_taken_back() -> None:
    keeper, pod = AutoscalerKeeper(), sized_pod()
    keeper.changed(None, autoscaler(**BIG))
    seen = [keeper.frozen()]
    for known in (KindKnowledge.READ, KindKnowledge.UNREADABLE, KindKnowledge.NOT_SERVED):
        keeper.know(known)
        seen.append(keeper.frozen())
    assert [cpu(one, pod) for one in seen] == [100, 900, 100, 100]
    assert {id(one) for one in (seen[0], *seen[2:])} == {id(NO_PREDICTIONS)}


def test_what_changes_nothing_that_counts_is_no_change() -> None:
    """The recommender writes bounds and conditions every minute."""
    keeper, one = AutoscalerKeeper(), autoscaler(**BIG)
    keeper.know(KindKnowledge.READ)
    keeper.changed(None, one)
    before = keeper.frozen()
    again = msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, resource_version="2"))
    keeper.changed(one, again)
    keeper.changed(None, autoscaler("off", mode="Off", **BIG))
    assert keeper.frozen() is before
    more = autoscaler(app={"cpu": "2"})
    keeper.changed(again, more)
    assert cpu(keeper.frozen(), sized_pod()) == 2000
    keeper.changed(more, None)
    assert keeper.frozen() is NO_PREDICTIONS


def test_a_target_that_changes_is_followed() -> None:
    keeper, pod = AutoscalerKeeper(), sized_pod()
    keeper.know(KindKnowledge.READ)
    keeper.changed(None, autoscaler(**BIG))
    keeper.changed(None, autoscaler(target=("Deployment", "other"), **BIG))
    assert keeper.frozen().readmitted(pod) is pod
    keeper.changed(None, autoscaler(**BIG))
    assert cpu(keeper.frozen(), pod) == 900


def test_beyond_so_many_the_others_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one namespace: neither others nor those that size nobody take their places."""
    monkeypatch.setattr(predictions, "MOST_OF_NAMESPACE", 1)
    keeper, pod = AutoscalerKeeper(), sized_pod()
    keeper.know(KindKnowledge.READ)
    for elsewhere in "abc":
        keeper.changed(None, autoscaler(namespace=elsewhere, **BIG))
    keeper.changed(None, autoscaler("nobody's", target=None, **BIG))
    keeper.changed(None, autoscaler("off", mode="Off", **BIG))
    assert len(keeper.frozen().by_target) == 3
    first, second = autoscaler("other", target=("Deployment", "other"), **BIG), autoscaler(**BIG)
    keeper.changed(None, first)
    assert len(keeper.frozen().by_target) == 4
    keeper.changed(None, second)
    assert keeper.frozen().readmitted(pod) is pod
    keeper.changed(first, None)
    keeper.changed(second, second)
    assert cpu(keeper.frozen(), pod) == 900


def test_limit_ranges_of_the_namespace_bound_what_is_predicted() -> None:
    world, pod = World(), sized_pod(app={"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}})
    world.cluster.predictions_known(KindKnowledge.READ)
    world.cluster.autoscaler_changed(None, autoscaler(**BIG))
    seen = [cpu(world.cluster.snapshot().predictions, pod)]
    item = LimitRangeItem(type="Container", max={"cpu": "1"})
    ranges = [
        LimitRange(metadata=BriefMeta(name="r", namespace=namespace), spec=LimitRangeSpec(limits=(item,)))
        for namespace in ("other", "shop")
    ]
    for one in ranges:
        world.cluster.admission_changed(None, one)
        seen.append(cpu(world.cluster.snapshot().predictions, pod))
    world.cluster.admission_changed(ranges[1], None)
    assert [*seen, cpu(world.cluster.snapshot().predictions, pod)] == [900, 900, 500, 900]


# --- plans --------------------------------------------------------------------------------------------------------------


def leaving_node(world: World) -> World:
    """Its nodes are a, which is to go, and b."""
    world.existing_node("a")
    world.existing_node("b")
    world.cluster.node_changed(None, node("a", labels={names.NODEPOOL_LABEL: "general"}, taints=(DISRUPTED,)))
    return world


def moving(**containers: Any) -> tuple[World, Pod, Pod]:
    """A world in which a pod of web is to leave node a for b; the pod as it is and as it is expected to be."""
    world = World()
    world.cluster.predictions_known(KindKnowledge.READ)
    world.cluster.autoscaler_changed(None, autoscaler(**(containers or BIG)))
    one = sized_pod("one", node="a")
    world.add(one)
    leaving_node(world)
    again = world.cluster.snapshot().predictions.readmitted(one)
    return world, one, again


def test_pods_of_a_node_that_goes_are_shown_as_they_will_be() -> None:
    world, _, again = moving()
    snapshot = world.cluster.snapshot()
    assert snapshot.leaving == (again,)
    assert again.shape.requests["cpu"] == 900
    assert world.cluster.snapshot().leaving is snapshot.leaving
    assert world.view("a").used["cpu"] == 100
    world.cluster.predictions_known(KindKnowledge.UNREADABLE)
    assert [one.shape.requests["cpu"] for one in world.cluster.snapshot().leaving] == [100]


def test_a_plan_keeps_the_room_that_the_pod_will_need() -> None:
    world, one, again = moving()
    free = world.view("b").room["cpu"]
    assert world.cluster.assign(NodeKey("b"), (again,)) == []
    assert world.view("b").room["cpu"] == free - 900
    assert world.cluster.plan_of(NodeKey("b")).pods[0].klass == again.shape.key
    world.cluster.pod_changed(one, msgspec.structs.replace(one, resource_version="9"))
    assert world.view("b").room["cpu"] == free - 900


def test_a_new_claim_keeps_it_too() -> None:
    world, _, again = moving()
    made = claim("new", pods=(again,))
    made = msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, uid=""))
    assert world.cluster.announce(made, (again,))
    assert world.view("new").planned["cpu"] == 900


def test_the_successor_takes_the_place_over() -> None:
    world, one, again = moving()
    free = world.view("b").room["cpu"]
    world.cluster.assign(NodeKey("b"), (again,))
    world.cluster.pod_changed(one, msgspec.structs.replace(one, deleted=NOON, phase="Failed"))
    assert world.view("b").room["cpu"] == free - 900
    two = sized_pod("two", app={"cpu": "900m"})
    assert two.shape is again.shape
    world.add(two)
    assert world.assigned("b") == ["two"]
    assert world.view("b").room["cpu"] == free - 900
    assert world.cluster.pod_changed(two, bound(two, "b")) == [PodSettled(NodeKey("b"), "two", "planned")]
    assert world.view("b").room["cpu"] == free - 900


def test_once_the_successor_is_there_its_own_requests_count() -> None:
    world, one, again = moving()
    free = world.view("b").room["cpu"]
    world.cluster.assign(NodeKey("b"), (again,))
    world.cluster.pod_changed(one, None)
    two = sized_pod("two", app={"cpu": "900m"})
    world.add(two)
    world.cluster.pod_changed(two, msgspec.structs.replace(sized_pod("two"), resource_version="9"))
    assert world.view("b").room["cpu"] == free - 100


def test_a_successor_of_another_size_is_planned_by_itself_in_the_room_that_was_kept() -> None:
    world, one, again = moving()
    free = world.view("b").room["cpu"]
    world.cluster.assign(NodeKey("b"), (again,))
    world.cluster.pod_changed(one, None)
    two = sized_pod("two", app={"cpu": "800m"})
    world.add(two)
    assert world.assigned("b") == []
    assert [found.name for found in world.cluster.snapshot().pending] == ["two"]
    assert world.view("b").room["cpu"] == free


def test_brothers_that_change_places_keep_what_is_expected_of_each() -> None:
    world, one, again = moving()
    other = sized_pod("other", node="a")
    world.add(other)
    world.existing_node("c")
    free = world.view("b").room["cpu"]
    world.cluster.assign(NodeKey("b"), (again,))
    world.cluster.assign(NodeKey("c"), (world.cluster.snapshot().predictions.readmitted(other),))
    world.cluster.pod_changed(one, None)
    two = sized_pod("two", app={"cpu": "900m"})
    world.add(two)
    world.cluster.pod_changed(two, bound(two, "c"))
    assert (world.assigned("b"), world.assigned("c")) == ([], [])
    assert [pod.name for pod in world.view("b").assigned] == ["other"]
    assert (world.view("b").room["cpu"], world.view("c").room["cpu"]) == (free - 900, free - 900)


def test_a_pod_that_was_resized_in_place_keeps_the_larger() -> None:
    world, one, again = moving()
    free = world.view("b").room["cpu"]
    world.cluster.assign(NodeKey("b"), (again,))
    resized = sized_pod("one", node="a", app={"cpu": "1200m"})
    world.cluster.pod_changed(one, msgspec.structs.replace(resized, resource_version="9"))
    assert world.view("b").room["cpu"] == free - 1200


def test_another_leader_keeps_the_room_that_a_plan_was_made_with() -> None:
    _, one, again = moving()
    world = leaving_node(World(settled=False))
    world.cluster.autoscaler_changed(None, autoscaler(**BIG))
    world.add(one, sized_pod("stays", node="b"))
    world.cluster.claim_changed(None, claim("new", pods=(again,)))
    world.cluster.settle()
    assert world.view("new").planned["cpu"] == 100
    world.cluster.predictions_known(KindKnowledge.READ)
    assert world.view("new").planned["cpu"] == 900
    world.cluster.predictions_known(KindKnowledge.UNREADABLE)
    assert world.view("new").planned["cpu"] == 900


def test_a_plan_that_was_made_for_a_pod_as_it_is_keeps_no_more_than_that() -> None:
    world, one, _ = moving()
    world.cluster.predictions_known(KindKnowledge.UNREADABLE)
    free = world.view("b").room["cpu"]
    world.cluster.assign(NodeKey("b"), (one,))
    world.cluster.predictions_known(KindKnowledge.READ)
    assert world.view("b").room["cpu"] == free - 100
