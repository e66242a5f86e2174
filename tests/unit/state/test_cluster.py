"""The cluster state: joining, room, plans and their ends."""

from datetime import timedelta

import msgspec

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.pods import Pod
from provisioner.state.cluster import ClaimUnneeded, Cluster, NominationLost, PodSettled
from tests.support.clock import NOON
from tests.support.cluster import World, bound, claim, node, plan_text, pod

UNREGISTERED = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def test_a_claim_without_a_machine_has_the_room_of_its_planned_type() -> None:
    world = World()
    world.cluster.claim_changed(None, claim("a", planned="c-4x-amd64-linux"))
    assert world.view("a").room["cpu"] == 3900
    assert world.view("a").labels[names.INSTANCE_TYPE_LABEL] == "c-4x-amd64-linux"


def test_a_planned_pod_takes_room_before_it_is_bound_and_only_once_after() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.machine("a", pods=(one,))
    assert world.view("a").room["cpu"] == 2900
    world.cluster.pod_changed(one, bound(one, "a"))
    view = world.view("a")
    assert (view.room["cpu"], view.used["cpu"], dict(view.planned)) == (2900, 1000, {})


def test_a_planned_pod_is_not_pending() -> None:
    world, one, two = World(), pod("one"), pod("two")
    world.add(one, two)
    world.cluster.claim_changed(None, claim("a", pods=(one,)))
    assert [found.name for found in world.cluster.snapshot().pending] == ["two"]


def test_a_pod_that_found_another_place_gives_its_room_back() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.machine("a", pods=(one,))
    world.machine("b")
    effects = world.cluster.pod_changed(one, bound(one, "b"))
    assert effects == [PodSettled("a", "one", "absorbed")]
    assert world.view("a").room["cpu"] == 3900


def test_an_unlaunched_claim_that_lost_all_its_pods_is_not_needed() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.cluster.claim_changed(None, claim("a", pods=(one,)))
    world.machine("b")
    assert ClaimUnneeded("a") in world.cluster.pod_changed(one, bound(one, "b"))


def test_a_launched_claim_that_lost_its_pods_stays_for_emptiness_to_judge() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.machine("a", pods=(one,))
    world.machine("b")
    assert ClaimUnneeded("a") not in world.cluster.pod_changed(one, bound(one, "b"))


def test_a_recreated_pod_takes_its_brothers_place() -> None:
    world, one, successor = World(), pod("one"), pod("one-again")
    world.add(one)
    world.cluster.claim_changed(None, claim("a", pods=(one,)))
    world.cluster.pod_changed(one, None)
    world.add(successor)
    assert world.cluster.is_planned("one-again")
    assert [found.name for found in world.cluster.promised("a")] == ["one-again"]


def test_a_place_that_nobody_takes_is_given_back_after_a_while() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.machine("a", pods=(one,))
    world.cluster.pod_changed(one, None)
    assert world.view("a").room["cpu"] == 2900
    world.clock.advance(31)
    world.cluster.expire()
    assert world.view("a").room["cpu"] == 3900


def test_a_promise_ends_two_minutes_after_its_machine_is_ready() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.machine("a", pods=(one,))
    world.clock.advance(119)
    assert world.cluster.expire() == []
    world.clock.advance(2)
    assert world.cluster.expire() == [PodSettled("a", "one", "expired")]
    assert [found.name for found in world.cluster.snapshot().pending] == ["one"]


def test_a_pod_whose_room_others_took_is_planned_again_at_once() -> None:
    world, planned, stranger = World(), pod("planned", cpu="3"), pod("stranger", cpu="2")
    world.add(planned)
    world.machine("a", pods=(planned,))
    world.add(bound(stranger, "a"))
    world.cluster.snapshot()
    assert world.cluster.expire() == [PodSettled("a", "planned", "displaced")]
    assert [found.name for found in world.cluster.snapshot().pending] == ["planned"]


def test_the_pods_of_a_leaving_machine_are_planned_until_a_plan_covers_them() -> None:
    world = World()
    here = pod("here", node="a")
    world.machine("a", deletionTimestamp=NOON.isoformat())
    world.add(here)
    assert [found.name for found in world.cluster.snapshot().leaving] == ["here"]
    world.cluster.claim_changed(None, claim("b", pods=(here,)))
    assert world.cluster.snapshot().leaving == ()
    # it is evicted, and its successor takes the place
    world.cluster.pod_changed(here, None)
    world.add(pod("there"))
    assert world.cluster.is_planned("there")


def test_a_daemon_that_is_still_due_takes_room_and_once_there_only_its_own() -> None:
    from provisioner.apis.core import DaemonSet

    daemonset = msgspec.convert(
        {
            "metadata": {"name": "agent", "namespace": "kube-system", "uid": "ds"},
            "spec": {
                "template": {
                    "spec": {"containers": [{"name": "agent", "resources": {"requests": {"cpu": "500m"}}}]},
                }
            },
        },
        DaemonSet,
    )
    world = World()
    world.machine("a")
    world.cluster.daemonset_changed(None, daemonset)
    assert world.view("a").room["cpu"] == 3400
    world.add(pod("agent-1", owner="ds", kind="DaemonSet", node="a", cpu="500m"))
    assert world.view("a").room["cpu"] == 3400


def test_an_uninitialised_machine_shows_no_taint_that_will_fall() -> None:
    world = World()
    made = claim("a", provider_id="kwok://a", true=(names.LAUNCHED, names.REGISTERED))
    world.cluster.claim_changed(None, made)
    world.cluster.node_changed(
        None, node("a", taints=(UNREGISTERED, NOT_READY, {"key": "team", "effect": "NoSchedule"}))
    )
    assert [taint.key for taint in world.view("a").taints] == ["team"]


def test_an_older_answer_never_replaces_a_newer_one() -> None:
    world = World()
    world.cluster.claim_changed(None, claim("a", version=1000, provider_id="kwok://a"))
    world.cluster.claim_written(claim("a", version=999))
    found = world.cluster.claim("a")
    assert found is not None
    assert found.status.provider_id == "kwok://a"


def test_a_late_answer_does_not_bring_a_deleted_claim_back() -> None:
    world, made = World(), claim("a")
    world.cluster.claim_changed(None, made)
    world.cluster.claim_changed(made, None)
    world.cluster.claim_written(made)
    assert world.cluster.claim("a") is None


def test_a_create_that_failed_frees_its_pods() -> None:
    world, one = World(), pod("one")
    world.add(one)
    announced = msgspec.structs.replace(
        claim("a", pods=(one,)), metadata=msgspec.structs.replace(claim("a", pods=(one,)).metadata, uid="")
    )
    world.cluster.claim_written(announced)
    assert world.cluster.is_planned("one")
    world.cluster.claim_failed("a")
    assert not world.cluster.is_planned("one")


def test_a_cleared_nomination_of_a_promised_pod_is_told() -> None:
    world, one = World(), pod("one")
    nominated = msgspec.structs.replace(one, nominated_node_name="a")
    world.add(nominated)
    world.machine("a", pods=(one,))
    assert world.cluster.pod_changed(nominated, one) == [NominationLost("a", one)]


def test_plans_are_read_against_everything_after_a_restart() -> None:
    world, one, two = World(), pod("one"), pod("two")
    restarted = Cluster(lambda _: {}, world.clock.now)
    restarted.claim_changed(None, claim("a", pods=(one, two), provider_id="kwok://a", true=(names.LAUNCHED,)))
    restarted.node_changed(None, node("a"))
    restarted.pod_changed(None, bound(one, "a"))
    restarted.pod_changed(None, two)
    restarted.settle()
    assert (restarted.is_planned("one"), restarted.is_planned("two")) == (False, True)


def test_a_plan_that_cannot_be_read_leaves_the_claim_in_use() -> None:
    world = World()
    world.cluster.claim_changed(None, claim("a", annotations={names.PLAN_ANNOTATION: "nonsense"}))
    assert not dict(world.view("a").planned)


def test_the_first_listing_starts_no_consolidation_clock_and_later_binds_do() -> None:
    world = World()
    cluster = Cluster(lambda _: {}, world.clock.now)
    cluster.pod_changed(None, pod("old", node="a"))
    cluster.settle()
    assert cluster.last_pod_event("a") is None
    fresh = pod("fresh")
    cluster.pod_changed(None, fresh)
    cluster.pod_changed(fresh, bound(fresh, "a"))
    assert cluster.last_pod_event("a") == NOON


def test_room_kept_on_a_machine_of_now_ends_by_itself() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.machine("a")
    world.cluster.promise("a", (one,), timedelta(seconds=20))
    assert world.view("a").room["cpu"] == 2900
    world.clock.advance(21)
    world.cluster.expire()
    assert world.view("a").room["cpu"] == 3900


def planned_on(machine: Node, *pods: Pod) -> Node:
    """The Node with a plan on it."""
    annotations = {names.PLAN_ANNOTATION: plan_text(pods)}
    return msgspec.structs.replace(machine, metadata=msgspec.structs.replace(machine.metadata, annotations=annotations))


def test_a_plan_on_a_node_that_another_leader_wrote_keeps_its_room_for_a_while() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.machine("a")
    machine = world.cluster.node("a")
    assert machine is not None
    annotated = planned_on(machine, one)
    world.cluster.node_changed(machine, annotated)
    assert world.view("a").room["cpu"] == 2900
    assert world.cluster.promised("a") == (one,)
    world.clock.advance(21)
    world.cluster.expire()
    world.cluster.node_changed(annotated, annotated)
    assert world.view("a").room["cpu"] == 3900, "the same text is not read twice"
    assert world.cluster.finished_node_plans() == ["a"], "and its annotation may go"


def test_a_plan_that_we_write_ourselves_is_not_read_back() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.machine("a")
    machine = world.cluster.node("a")
    assert machine is not None
    world.cluster.node_plan_written("a", plan_text((one,)))
    world.cluster.node_changed(machine, planned_on(machine, one))
    assert world.cluster.promised("a") == ()


def test_a_pod_on_an_unmanaged_node_that_it_was_promised_is_on_plan() -> None:
    world, one = World(), pod("one")
    world.add(one)
    world.cluster.node_changed(None, node("n"))
    world.cluster.promise("node/n", (one,), timedelta(seconds=20))
    effects = world.cluster.pod_changed(one, bound(one, "n"))
    assert effects == [PodSettled("node/n", "one", "planned")]
