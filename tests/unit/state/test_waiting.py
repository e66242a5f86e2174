"""Which pods wait for a node of ours."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import Affinity
from provisioner.apis.pods import Pod
from provisioner.state import waiting as module
from provisioner.state.checking import CheckedCluster
from provisioner.state.cluster import Cluster
from provisioner.state.waiting import NeverWaits, PodSight, awaits_verdict, never_waits, waits_from
from tests.support.clock import NOON
from tests.support.cluster import TYPES, World, bound, claim, pod, refused
from tests.support.problems import shape

GRACE = timedelta(milliseconds=300)
NEVER = float("inf")
NOW = float("-inf")
VOLCANO = shape(cpu="1", scheduler_name="volcano")
ELSEWHERE = shape(
    cpu="1",
    affinity=msgspec.convert(
        {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": names.NODEPOOL_LABEL, "operator": "DoesNotExist"}]}
                    ]
                }
            }
        },
        Affinity,
    ),
)
SEEN = PodSight(since=10.0)
REPORTED = PodSight(since=10.0, reported=True)
ROWS: dict[str, tuple[Pod, PodSight, float]] = {
    "kube-scheduler's pod after the grace period": (pod("one"), SEEN, 10.3),
    "a pod that the extender reported at once": (pod("one"), REPORTED, NOW),
    "a pod that kube-scheduler refused at once": (refused(pod("one"), "no"), SEEN, NOW),
    "another scheduler's pod never by time alone": (pod("one", shape=VOLCANO), SEEN, NEVER),
    "another scheduler's pod once that one refused it": (refused(pod("one", shape=VOLCANO), "no"), SEEN, NOW),
    "another scheduler's pod once it is reported": (pod("one", shape=VOLCANO), REPORTED, NOW),
    "a gated pod never": (refused(pod("one", gated=True), "no"), REPORTED, NEVER),
    "a daemon never": (refused(pod("one", kind="DaemonSet"), "no"), REPORTED, NEVER),
    "a bound pod never": (refused(pod("one", node="a"), "no"), REPORTED, NEVER),
    "a pod that is being deleted never": (refused(pod("one", deleted=pod("x").created), "no"), REPORTED, NEVER),
    "a pod that demands a node that is not ours never": (refused(pod("one", shape=ELSEWHERE), "no"), REPORTED, NEVER),
    "a pod whose images are looked up not before their time is over": (
        refused(pod("one", labels={names.IMAGE_ARCH_PENDING: "true"}), "no"),
        PodSight(since=10.0, deferred_until=15.0),
        15.0,
    ),
    "a pod whose images are known at once": (refused(pod("one"), "no"), PodSight(since=10.0, deferred_until=15.0), NOW),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_from_when_a_pod_waits(row: tuple[Pod, PodSight, float]) -> None:
    one, sight, want = row
    assert waits_from(one, sight, GRACE) == want


TAKEN: dict[NeverWaits, dict[str, Any]] = {
    NeverWaits.FINISHED: {"phase": "Failed"},
    NeverWaits.BOUND: {"node_name": "n"},
    NeverWaits.DELETED: {"deleted": NOON},
    NeverWaits.GATED: {"gated": True},
    NeverWaits.MIRROR: {"annotations": {names.CONFIG_MIRROR: "x"}},
    NeverWaits.DAEMON: {"kind": "DaemonSet"},
    NeverWaits.OPTED_OUT: {"shape": ELSEWHERE},
}


@pytest.mark.parametrize("why", NeverWaits, ids=lambda one: one.name)
def test_everything_that_takes_a_pod_out_of_our_hands_has_a_name_and_nothing_else_does(why: NeverWaits) -> None:
    one = pod("a", **TAKEN[why])
    assert never_waits(one) is why
    for sight in (SEEN, REPORTED):
        for refused_too in (one, msgspec.structs.replace(one, unschedulable=True)):
            assert waits_from(refused_too, sight, GRACE) == NEVER
    later = [other for other in NeverWaits if other.value >= why.value]
    both = pod("a", **{key: value for other in later for key, value in TAKEN[other].items()})
    assert never_waits(both) is why, "the first that holds is told"


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_pod_that_may_wait_is_not_out_of_our_hands(row: tuple[Pod, PodSight, float]) -> None:
    one = row[0]
    confirmed = waits_from(msgspec.structs.replace(one, unschedulable=True), SEEN, GRACE)
    assert (never_waits(one) is None) == (confirmed != NEVER)
    if never_waits(one) is None:
        assert awaits_verdict(one) == (waits_from(one, SEEN, GRACE) == NEVER)


class Graced(World):
    """A world in which kube-scheduler is given a while."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = CheckedCluster(lambda _: TYPES, self.clock, grace=GRACE)
        self.cluster.settle()

    def waiting(self) -> list[str]:
        return [one.name for one in self.cluster.snapshot().waiting]


def awaiting(name: str, **changes: Any) -> Pod:
    """A pod that the webhook admitted before it knew for which architectures its images were built."""
    return msgspec.structs.replace(pod(name), labels={names.IMAGE_ARCH_PENDING: "true"}, **changes)


def test_a_pod_counts_after_the_grace_period() -> None:
    world = Graced()
    world.add(pod("one"))
    assert (world.waiting(), world.cluster.snapshot().early) == ([], True)
    world.clock.advance(0.3)
    assert (world.waiting(), world.cluster.snapshot().early) == (["one"], False)


def test_a_report_about_a_pod_that_is_not_known_counts_nothing() -> None:
    world = Graced()
    world.cluster.reported(["one"])
    world.add(pod("one"))
    assert world.waiting() == []
    world.cluster.reported(["one"])
    assert world.waiting() == ["one"]


def test_a_bound_pod_is_forgotten() -> None:
    world = Graced()
    one = refused(pod("one"), "no")
    world.add(one)
    world.cluster.pod_changed(one, bound(one, "a"))
    assert (world.waiting(), world.cluster._pending._seen) == ([], {})


def test_pods_that_came_and_went_are_forgotten_though_nobody_takes_a_snapshot() -> None:
    world = Graced()
    world.cluster = Cluster(lambda _: TYPES, world.clock, grace=GRACE)  # type: ignore[assignment]  # as of a standby
    for number in range(1000):
        one = awaiting(f"p{number}")
        world.add(one)
        world.cluster.pod_changed(one, None)
        world.clock.advance(1)
    pending = world.cluster._pending
    assert len(pending._graces) + len(pending._deferrals) < 10


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_pod_does_not_count_before_its_images_are_known(confirmed: bool) -> None:
    world = Graced()
    one = awaiting("one", unschedulable=confirmed)
    world.add(one)
    world.cluster.reported(["one"])
    world.clock.advance(module.IMAGES_SECONDS - 0.1)
    assert (world.waiting(), world.cluster.snapshot().early) == ([], False)
    world.add(msgspec.structs.replace(one, labels={}))
    assert world.waiting() == ["one"]


def test_a_pod_whose_images_nobody_tells_counts_five_seconds_after_it_was_seen() -> None:
    world = Graced()
    one = awaiting("one")
    world.add(one)
    world.clock.advance(4.9)
    assert world.waiting() == []
    world.add(msgspec.structs.replace(one, unschedulable=True))  # a change of its status begins no other five seconds
    world.clock.advance(0.1)
    assert world.waiting() == ["one"]


def test_the_time_behind_a_gate_is_part_of_the_five_seconds() -> None:
    world = Graced()
    one = awaiting("one")
    world.add(msgspec.structs.replace(one, gated=True))
    world.clock.advance(5.0)
    world.add(one)
    assert world.waiting() == [], "its grace period begins without the gate"
    world.clock.advance(0.4)
    assert world.waiting() == ["one"]


def test_a_pod_with_a_plan_does_not_wait() -> None:
    world = Graced()
    one = refused(pod("one"), "no")
    world.add(one)
    assert world.cluster.announce(claim("new"), (one,))
    assert world.waiting() == []


def test_a_pod_for_which_kube_scheduler_makes_room_does_not_wait_until_the_victims_are_gone() -> None:
    world = Graced()
    world.existing_node("a")
    victim = pod("victim", node="a", deleted=pod("x").created)
    world.add(victim, refused(pod("vip", nominated_node_name="a"), "no"), refused(pod("other"), "no"))
    first = world.cluster.snapshot().waiting
    assert [one.name for one in first] == ["other"]
    assert world.cluster.snapshot().waiting is first, "the same tuple while nothing changes"
    world.cluster.pod_changed(victim, None)
    assert world.waiting() == ["other", "vip"]


@pytest.mark.parametrize(("seconds", "waits"), [(10 + 59, False), (10 + 61, True)])
def test_a_victim_that_is_stuck_keeps_a_pod_from_a_node_for_no_longer_than_its_grace_and_a_minute(
    seconds: float, waits: bool
) -> None:
    world = Graced()
    world.existing_node("a")
    world.add(pod("victim", node="a", deleted=pod("x").created, ends_in=10))
    world.add(refused(pod("vip", nominated_node_name="a"), "no"))
    assert world.waiting() == []
    world.clock.advance(seconds)
    assert world.waiting() == ["vip"] * waits
