"""Pods whose scheduler is gone: when they are counted and told, and when not."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.core import PodResourceClaim
from provisioner.apis.meta import OwnerReference
from provisioner.apis.pods import Pod
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, Conflict
from provisioner.kube.resources import Resource
from provisioner.provisioning.scheduler_liveness import (
    LOOK_SECONDS,
    MAX_DELETIONS,
    SILENCE_SECONDS,
    SchedulerLiveness,
)
from provisioner.runtime.changes import Change, NodeChanged, PodChanged
from provisioner.support.metrics import REGISTRY
from tests.support.clock import NOON, FakeClock
from tests.support.cluster import World, bound, node, pod, refused
from tests.support.worldserver import WorldServer


def ours(name: str) -> Pod:
    made = pod(name)
    return msgspec.structs.replace(made, shape=msgspec.structs.replace(made.shape, scheduler_name=names.SCHEDULER_NAME))


def judged(one: Pod) -> Pod:
    return msgspec.structs.replace(one, unschedulable=True, scheduled_reason="Unschedulable")


class Bench:
    def __init__(self, *pods: Pod) -> None:
        self.clock = FakeClock()
        self.pods = list(pods)
        self.recorder = WorldServer(World()).recorder
        self.deleted: list[str] = []
        self.refusal: ApiError | None = None
        self.seconds = 0.0  # that a deletion takes
        self.unanswered: set[str] = set()
        self.liveness = SchedulerLiveness(
            lambda: self.pods, self.recorder, self.clock, cast(Client, self), self.unanswered.__contains__
        )
        self.liveness.look()

    def delete(
        self, resource: Resource[Any], name: str, namespace: str = "", *, uid: str = "", resource_version: str = ""
    ) -> None:
        assert (resource.plural, namespace) == ("pods", "default")
        assert uid
        assert resource_version
        self.clock.advance(self.seconds)
        if self.refusal is not None:
            raise self.refusal
        self.deleted.append(name)
        self.pods = [one for one in self.pods if one.name != name]

    def after(self, seconds: float) -> list[str]:
        """Names of the pods that are told of by then, by a look every second."""
        for _ in range(int(seconds)):
            self.clock.advance(1)
            self.liveness.look()
        return [name for _, name, _, reason in self.recorder.events if reason == "SchedulerNotRunning"]


def counted() -> float:
    labels = {"scheduler": names.SCHEDULER_NAME}
    return REGISTRY.get_sample_value("dovetail_pods_without_scheduler", labels) or 0.0


def test_a_pod_that_was_gated_once_has_been_seen_by_nobody() -> None:
    """The API server writes SchedulingGated when such a pod is created, and takes nothing back when its gates are removed."""
    bench = Bench(msgspec.structs.replace(ours("a"), scheduled_reason="SchedulingGated"))
    assert bench.after(SILENCE_SECONDS + 1) == ["a"]


def test_pods_that_nobody_looks_at_are_counted_and_told_after_a_minute() -> None:
    bench = Bench(ours("a"), ours("b"))
    assert bench.after(SILENCE_SECONDS - 1) == []
    assert counted() == 0
    assert sorted(bench.after(LOOK_SECONDS + 1)) == ["a", "b"]
    assert counted() == 2
    assert bench.recorder.messages[0].startswith(
        'Scheduler "dovetail-scheduler" of the pod has processed no pod for 60 s'
    )


def test_they_are_told_once_in_five_minutes_and_counted_until_they_are_gone() -> None:
    bench = Bench(ours("a"))
    assert bench.after(300) == ["a"]
    assert bench.after(100) == ["a", "a"]
    bench.pods = []
    bench.after(LOOK_SECONDS)
    assert counted() == 0


SIGNS: dict[str, Callable[[Pod], Pod]] = {
    "judged": judged,
    "bound": lambda one: bound(one, "n"),
    "judged anew": lambda one: refused(one, "0/4 nodes are available: 4 Insufficient cpu."),
}


@pytest.mark.parametrize(
    ("sign", "again"), [(sign, name == "judged anew") for name, sign in SIGNS.items()], ids=SIGNS.keys()
)
def test_a_scheduler_that_is_only_busy_does_something_for_somebody(sign: Callable[[Pod], Pod], again: bool) -> None:
    """Ten thousand pods take it longer than a minute."""
    bench = Bench(ours("a"))
    for _ in range(5):
        assert bench.after(SILENCE_SECONDS / 2) == []
        other = refused(ours("other"), "0/3 nodes are available: 3 Insufficient cpu.") if again else ours("other")
        bench.liveness.heard(PodChanged(other, sign(other)))
    assert sorted(bench.after(SILENCE_SECONDS * 2)) == ["a"]


NO_SIGNS: dict[str, Change] = {
    "a pod of another scheduler": PodChanged(pod("x"), judged(pod("x"))),
    "a pod that was bound before we came": PodChanged(None, bound(ours("x"), "n")),
    "a change of something else": PodChanged(ours("x"), msgspec.structs.replace(ours("x"), ready=True)),
    "a pod that went": PodChanged(ours("x"), None),
    "another object": NodeChanged(node("n"), node("n")),
}


@pytest.mark.parametrize("change", NO_SIGNS.values(), ids=NO_SIGNS.keys())
def test_it_is_no_sign_of_life(change: Change) -> None:
    bench = Bench(ours("a"))
    bench.after(SILENCE_SECONDS / 2)
    bench.liveness.heard(change)
    assert bench.after(SILENCE_SECONDS) == ["a"]


def test_others_are_not_ours_to_watch_over() -> None:
    bench = Bench(pod("of-another-scheduler"), judged(ours("that-was-looked-at")))
    assert bench.after(SILENCE_SECONDS * 3) == []


def test_a_pod_that_was_refused_waits_for_its_scheduler_once_its_node_is_there() -> None:
    """The scheduler died while the node was launched: the pod stood there with its old condition for ever."""
    bench = Bench(judged(opted_in("a")))
    assert bench.after(SILENCE_SECONDS * 3) == []
    bench.unanswered.add(bench.pods[0].uid)
    assert bench.after(SILENCE_SECONDS - LOOK_SECONDS) == []
    assert bench.after(LOOK_SECONDS * 2) == ["a"]
    assert bench.deleted == ["a"]


def test_it_waits_on_when_the_time_of_its_plan_is_over_and_until_there_is_a_sign_of_life() -> None:
    one = judged(ours("a"))
    bench = Bench(one)
    bench.unanswered.add(one.uid)
    bench.after(SILENCE_SECONDS / 2)
    bench.unanswered.clear()
    assert bench.after(SILENCE_SECONDS) == ["a"]
    assert counted() == 1
    other = ours("other")
    bench.liveness.heard(PodChanged(other, bound(other, "n")))
    bench.after(SILENCE_SECONDS * 3)
    assert counted() == 0


def test_a_pod_whose_resource_claims_may_be_missing_tells_nothing_and_waits_with_the_others() -> None:
    one = ours("a")
    claims = (PodResourceClaim(name="gpu"),)
    one = msgspec.structs.replace(one, shape=msgspec.structs.replace(one.shape, resource_claims=claims))
    bench = Bench(one)
    assert bench.after(SILENCE_SECONDS * 3) == []
    bench.pods.append(ours("b"))
    assert sorted(bench.after(SILENCE_SECONDS + LOOK_SECONDS)) == ["a", "b"]


def test_a_pod_whose_group_may_not_be_complete_tells_nothing_and_waits_with_the_others() -> None:
    """Else a gang that waits for its last member would be deleted."""
    bench = Bench(msgspec.structs.replace(ours("a"), group="train"))
    assert bench.after(SILENCE_SECONDS * 3) == []
    bench.pods.append(ours("b"))
    assert sorted(bench.after(SILENCE_SECONDS + LOOK_SECONDS)) == ["a", "b"]


def test_all_that_a_silent_scheduler_refused_wait_for_it() -> None:
    bench = Bench(ours("a"), judged(ours("b")))
    assert sorted(bench.after(SILENCE_SECONDS + LOOK_SECONDS)) == ["a", "b"]
    assert counted() == 2


def test_a_pod_that_has_just_come_is_given_its_minute() -> None:
    bench = Bench()
    bench.after(SILENCE_SECONDS * 3)
    bench.pods = [ours("a")]
    assert bench.after(SILENCE_SECONDS - 1) == []
    assert bench.after(LOOK_SECONDS * 2) == ["a"]


OWNER = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="r", controller=True)


def opted_in(name: str, **changes: Any) -> Pod:
    annotations = {"dovetail.dev/recreate-unscheduled": "true"}
    found = {"annotations": annotations, "owner": OWNER, "resource_version": "7"} | changes
    return msgspec.structs.replace(ours(name), **found)


def test_pods_that_opted_in_are_deleted_and_told() -> None:
    bench = Bench(opted_in("a"), opted_in("b", annotations={}), opted_in("c", owner=None))
    bench.after(SILENCE_SECONDS - 1)
    assert bench.deleted == []
    bench.after(LOOK_SECONDS + 1)
    assert bench.deleted == ["a"]
    assert [name for _, name, _, reason in bench.recorder.events if reason == "RecreatedUnscheduled"] == ["a"]


def test_a_pod_that_is_given_to_the_silent_scheduler_again_is_not_deleted_again() -> None:
    """Its template names that scheduler, or the Lease is renewed by one that does nothing: a Job would have failed in minutes."""
    bench = Bench(opted_in("first", created=NOON))
    bench.after(SILENCE_SECONDS + 1)
    bench.pods = [opted_in("second", created=NOON + timedelta(seconds=70))]
    bench.after(SILENCE_SECONDS * 3)
    assert bench.deleted == ["first"]
    assert counted() == 1
    other = ours("other")
    bench.liveness.heard(PodChanged(other, bound(other, "n")))
    bench.after(SILENCE_SECONDS + LOOK_SECONDS)
    assert bench.deleted == ["first", "second"], "the scheduler lived, and is gone again"


def test_no_more_than_a_few_are_deleted_at_a_time() -> None:
    bench = Bench(*(opted_in(f"p{at}") for at in range(3 * MAX_DELETIONS)))
    bench.after(SILENCE_SECONDS)
    assert len(bench.deleted) <= MAX_DELETIONS
    bench.after(LOOK_SECONDS)
    assert MAX_DELETIONS <= len(bench.deleted) <= 2 * MAX_DELETIONS


def test_a_slow_api_server_holds_nobody_up_for_longer_than_until_the_next_look() -> None:
    bench = Bench(*(opted_in(f"p{at}") for at in range(MAX_DELETIONS)))
    bench.seconds = LOOK_SECONDS
    bench.clock.advance(SILENCE_SECONDS)
    bench.liveness.look()
    assert len(bench.deleted) == 1


def test_a_pod_that_was_written_meanwhile_stays_and_the_others_go_on() -> None:
    bench = Bench(opted_in("a"))
    bench.refusal = Conflict(409, "Conflict", "the pod was bound")
    bench.after(SILENCE_SECONDS + LOOK_SECONDS + 1)
    assert "RecreatedUnscheduled" not in [reason for *_, reason in bench.recorder.events]
