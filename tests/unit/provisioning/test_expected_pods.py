"""When a batch ends before others have been waited for: once nothing more can come."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.meta import OwnerReference
from provisioner.apis.pods import Pod
from provisioner.kube.client import Client
from provisioner.provisioning.batcher import Intake
from provisioner.provisioning.expected_pods import (
    MOST_BYTES,
    MOST_NAMESPACES,
    MOST_OTHERS,
    MOST_OWNERS,
    MOST_PODS,
    MOST_ROUNDS,
    QUIET_SECONDS,
    REMEMBERED,
    ExpectedPods,
)
from provisioner.state.checking import CheckedCluster
from tests.support.clock import FakeClock
from tests.support.cluster import TYPES, pod
from tests.support.kube import FakeAnswer, FakeApi, Sent, ok, refusal

IDLE, LONGEST, GRACE = pytest.approx(1.0, abs=0.005), 10.0, 0.3
SOON = pytest.approx(1.5 * QUIET_SECONDS, abs=0.6 * QUIET_SECONDS)
"""Owners are read first, then what else their namespaces are about to have."""


class Stage:
    """A state, an API server with owners, and an intake that notes when it plans."""

    def __init__(self, owners: Mapping[str, FakeAnswer] | None = None) -> None:
        self.clock = FakeClock()
        self.owners = dict(owners or {})
        self.others: dict[str, list[dict[str, Any]]] = {}  # by plural
        self.api = FakeApi(respond=self._answer, clock=self.clock)
        self.cluster = CheckedCluster(lambda _: TYPES, self.clock, grace=timedelta(seconds=GRACE))
        self.cluster.settle()
        self.expected = ExpectedPods(self.cluster, Client(self.api, self.clock), self.clock)
        self.intake = Intake(
            self.cluster,
            self.clock,
            idle=timedelta(seconds=1),
            longest=timedelta(seconds=LONGEST),
            expected=self.expected,
        )
        self.runs: list[float] = []
        self.intake.begin(lambda: self.runs.append(self.clock.monotonic()))

    def _answer(self, sent: Sent) -> FakeAnswer:
        name = sent.path.rpartition("/")[2]
        if name in {"deployments", "statefulsets"}:
            return ok({"metadata": {}, "items": self.others.get(name, [])})
        return self.owners.get(name, refusal(404, "NotFound"))

    def reads(self, kind: str) -> int:
        return sum(f"/{kind}" in sent.path for sent in self.api.sent)

    def come(self, *pods: Pod, refused: bool = True) -> None:
        """Pods are created, and kube-scheduler has no node for them."""
        for one in pods:
            new = msgspec.structs.replace(one, unschedulable=refused)
            self.cluster.pod_changed(None, new)
            self.intake.pod_seen(new)

    def place(self) -> None:
        """Whoever waits gets a node."""
        for one in list(self.cluster.waiting()):
            self.cluster.pod_changed(one, msgspec.structs.replace(one, node_name="n1", unschedulable=False))

    def pass_time(self, seconds: float) -> None:
        """Batches end in it, and owners are read at once."""
        until = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until:
            self.expected._poll()
            self.clock.advance(min(max(0.001, self.intake._poll()), until - self.clock.monotonic()))

    def waited(self, *, answered: bool = True) -> float:
        """Seconds until the batch is planned, where owners are read in time, or never."""
        begun = self.clock.monotonic()
        self.runs.clear()
        while not self.runs:
            if answered:
                self.expected._poll()
            self.clock.advance(self.intake._poll() if not self.runs else 0.0)
        return self.runs[0] - begun


def wants(count: int, uid: str = "rs", **spec: Any) -> FakeAnswer:
    return ok({"metadata": {"name": uid, "uid": uid}, "spec": {"replicas": count, **spec}})


def some(count: int, **changes: Any) -> list[Pod]:
    return [pod(f"{changes.get('owner', 'rs')}-{number}", **changes) for number in range(count)]


def of(kind: str, api_version: str) -> OwnerReference:
    return OwnerReference(api_version=api_version, kind=kind, name="rs", uid="rs", controller=True)


def test_a_batch_with_all_pods_of_its_owner_is_planned_at_once() -> None:
    stage = Stage({"rs": wants(20)})
    stage.come(*some(20))
    assert stage.waited() == SOON


def test_one_that_is_missing_is_waited_for() -> None:
    stage = Stage({"rs": wants(20)})
    stage.come(*some(19))
    assert stage.waited() == IDLE


def test_pods_that_run_count() -> None:
    stage = Stage({"rs": wants(3)})
    stage.cluster.pod_changed(None, pod("rs-9", node="n1"))
    stage.come(*some(2))
    assert stage.waited() == SOON


def test_pods_that_end_do_not_count() -> None:
    stage = Stage({"rs": wants(3)})
    stage.cluster.pod_changed(None, pod("rs-9", node="n1", deleted=stage.clock.now()))
    stage.come(*some(2))
    assert stage.waited() == IDLE


def test_pods_that_kube_scheduler_has_not_refused_yet_are_waited_for_as_long_as_it_is_given() -> None:
    stage = Stage({"rs": wants(3)})
    stage.come(*some(2))
    stage.come(pod("rs-9"), refused=False)
    assert GRACE <= stage.waited() <= GRACE + 2 * QUIET_SECONDS


def test_each_of_two_owners_must_have_all_its_pods() -> None:
    stage = Stage({"rs": wants(2), "other": wants(2, "other")})
    stage.come(*some(2), *some(1, owner="other"))
    assert stage.waited() == IDLE
    stage.pass_time(1.0)
    stage.come(*some(2, owner="other")[1:], pod("rs-9"))
    assert stage.waited() == SOON


@pytest.mark.parametrize(
    ("owner", "answer", "seconds"),
    [
        (of("Job", "batch/v1"), ok({"metadata": {"uid": "rs"}, "spec": {"parallelism": 2}}), SOON),
        (of("Job", "batch/v1"), ok({"metadata": {"uid": "rs"}, "spec": {"parallelism": 9, "completions": 2}}), SOON),
        (of("Job", "batch/v1"), ok({"metadata": {"uid": "rs"}, "spec": {"parallelism": 3}}), IDLE),
        (of("StatefulSet", "apps/v1"), wants(2, podManagementPolicy="Parallel"), SOON),
        (of("StatefulSet", "apps/v1"), wants(2, podManagementPolicy="OrderedReady"), IDLE),
        (of("ReplicaSet", "apps/v1"), ok({"metadata": {"uid": "rs"}}), SOON),
        (of("ReplicaSet", "example.com/v1"), wants(2), IDLE),
        (of("ReplicationController", "v1"), wants(2), IDLE),
        (of("ReplicaSet", "apps/v1"), wants(2, "another of that name"), IDLE),
        (of("ReplicaSet", "apps/v1"), refusal(404, "NotFound"), IDLE),
        (of("ReplicaSet", "apps/v1"), refusal(403, "Forbidden"), IDLE),
        (of("ReplicaSet", "apps/v1"), refusal(400, "BadRequest"), IDLE),
    ],
)
def test_owners_that_say_how_many_pods_they_want(owner: OwnerReference, answer: FakeAnswer, seconds: float) -> None:
    stage = Stage({"rs": answer})
    stage.come(*(msgspec.structs.replace(one, owner=owner) for one in some(2)))
    assert stage.waited() == seconds


@pytest.mark.parametrize(
    "more",
    [pod("alone", owner=""), pod("of-a-gang", annotations={names.GANG: "train", names.GANG_MINIMUM: "1"})],
    ids=["no owner", "a gang"],
)
def test_beside_a_pod_of_which_nobody_knows_what_follows_others_are_waited_for(more: Pod) -> None:
    stage = Stage({"rs": wants(2)})
    stage.come(*some(2), more)
    assert stage.waited() == IDLE


def test_a_trigger_that_is_no_pod_makes_nobody_wait() -> None:
    stage = Stage({"rs": wants(2)})
    stage.intake.trigger("pool/general/2")
    stage.come(*some(2))
    assert stage.waited() == SOON


def test_pods_that_keep_coming_are_planned_together() -> None:
    """Small Jobs, five a second: only the first is planned alone."""
    stage = Stage({f"j{number}": ok({"metadata": {"uid": f"j{number}"}, "spec": {}}) for number in range(30)})
    for number in range(30):
        owner = OwnerReference(api_version="batch/v1", kind="Job", name=f"j{number}", uid=f"j{number}", controller=True)
        stage.come(msgspec.structs.replace(pod(f"p{number}"), owner=owner))
        stage.pass_time(0.2)
    assert len(stage.runs) == 1
    assert stage.waited() == pytest.approx(0.8, abs=0.01)


def a_deployment(uid: str, wanted: int, counted: int, *, behind: bool = False, **spec: Any) -> dict[str, Any]:
    status = {"observedGeneration": 1 if behind else 2, "replicas": counted}
    return {"metadata": {"uid": uid, "generation": 2}, "spec": {"replicas": wanted, **spec}, "status": status}


def a_set(uid: str, wanted: int, policy: str) -> dict[str, Any]:
    return {"metadata": {"uid": uid}, "spec": {"replicas": wanted, "podManagementPolicy": policy}}


@pytest.mark.parametrize(
    ("kind", "others", "seconds"),
    [
        ("deployments", [a_deployment("d", 5, 5)], SOON),
        ("deployments", [a_deployment("d", 5, 4)], IDLE),
        ("deployments", [a_deployment("d", 5, 5, behind=True)], IDLE),
        ("deployments", [a_deployment("d", 5, 4, paused=True)], SOON),
        ("deployments", [a_deployment("above", 2, 0)], SOON),
        ("deployments", [a_deployment("d", 5, 5)] * MOST_OTHERS, SOON),
        ("deployments", [a_deployment("d", 5, 5)] * (MOST_OTHERS + 1), IDLE),
        ("deployments", [a_deployment("d", 5, 5, text="x" * (MOST_BYTES // 2))] * 2, IDLE),
        ("statefulsets", [{"metadata": {"uid": "s"}, "spec": 1}], IDLE),
        ("statefulsets", [a_set("s", 1, "Parallel")], IDLE),
        ("statefulsets", [a_set("rs", 2, "Parallel")], SOON),
        ("statefulsets", [a_set("s", 1, "OrderedReady")], SOON),
    ],
)
def test_other_workloads_of_the_namespace_that_are_to_have_more_pods_are_waited_for(
    kind: str, others: list[dict[str, Any]], seconds: float
) -> None:
    """The controller of a Deployment makes its ReplicaSet first; of the batch's own one it has not counted the pods yet."""
    above = [{"kind": "Deployment", "apiVersion": "apps/v1", "name": "d", "uid": "above", "controller": True}]
    owner = ok({"metadata": {"name": "rs", "uid": "rs", "ownerReferences": above}, "spec": {"replicas": 2}})
    stage = Stage({"rs": owner})
    stage.others[kind] = others
    stage.come(*some(2))
    assert stage.waited() == seconds


def test_a_pod_that_comes_while_others_are_read_has_them_read_again() -> None:
    stage = Stage({"rs": wants(2)})
    stage.come(*some(2))
    stage.pass_time(QUIET_SECONDS / 2)
    assert not stage.expected.are_there()
    stage.clock.advance(QUIET_SECONDS)
    stage.expected._poll()
    stage.come(pod("rs-9"))
    assert not stage.expected.are_there()


def test_pods_that_come_again_and_again_have_others_read_a_few_times_only() -> None:
    """Anybody may make pods that name one owner, each as soon as the last was looked into."""
    stage = Stage({"rs": wants(1)})
    for number in range(50):
        stage.come(pod(f"p{number}"))
        stage.clock.advance(1.1 * QUIET_SECONDS)
        stage.intake._poll()  # asks, and the next pod comes before the answer
        stage.expected._poll()
    assert 1 <= stage.reads("deployments") <= MOST_ROUNDS


def test_owners_of_too_many_pods_are_not_looked_into() -> None:
    stage = Stage({"rs": wants(0), "large": wants(MOST_PODS + 1, "large")})
    stage.come(*some(2), pod("one", owner="large"))
    assert stage.waited() == IDLE
    assert not stage.reads("deployments")


def test_pods_of_too_many_namespaces_are_not_looked_into() -> None:
    stage = Stage({f"o{number}": wants(1, f"o{number}") for number in range(MOST_NAMESPACES + 1)})
    stage.come(*(pod(f"p{n}", owner=f"o{n}", namespace=f"n{n}") for n in range(MOST_NAMESPACES + 1)))
    assert stage.waited() == IDLE


def test_an_owner_that_nobody_reads_in_time_changes_nothing() -> None:
    stage = Stage({"rs": wants(2)})
    stage.come(*some(2))
    assert stage.waited(answered=False) == IDLE


def test_owners_are_read_once_a_batch_and_never_more_than_a_few() -> None:
    stage = Stage({f"o{number}": wants(1, f"o{number}") for number in range(MOST_OWNERS + 1)})
    stage.come(*(pod(f"p{number}", owner=f"o{number}") for number in range(MOST_OWNERS)))
    assert stage.waited() == SOON
    assert (stage.reads("replicasets"), stage.reads("deployments")) == (MOST_OWNERS, 1)
    stage.pass_time(1.0)
    stage.come(*(pod(f"q{number}", owner=f"o{number}") for number in range(MOST_OWNERS + 1)))
    assert stage.waited() == IDLE
    assert stage.reads("replicasets") == MOST_OWNERS, "none of too many is read"


def rounds(stage: Stage, count: int, first: int = 0) -> list[float]:
    """How long batches waited that had all pods of an owner each, one every three seconds."""
    found = []
    for number in range(first, first + count):
        stage.owners[f"o{number}"] = wants(1, f"o{number}")
        stage.come(pod(f"p{number}", owner=f"o{number}"))
        found.append(stage.waited())
        stage.place()
        stage.pass_time(3.0)
    return found


def test_a_batch_that_others_followed_has_the_next_eight_wait_for_others() -> None:
    """Workloads that are applied one after another, half a second apart: the first was planned without the second."""
    stage = Stage()
    assert rounds(stage, 3) == [SOON] * 3
    stage.owners["first"] = wants(1, "first")
    stage.come(pod("first", owner="first"))
    assert stage.waited() == SOON
    stage.pass_time(0.5)
    stage.come(pod("second", owner="second"))
    stage.pass_time(1.5)
    stage.place()
    stage.pass_time(3.0)
    assert rounds(stage, REMEMBERED + 1, 10) == [IDLE] * REMEMBERED + [SOON]


def test_that_others_follow_is_also_seen_where_they_were_waited_for() -> None:
    stage = Stage()
    stage.expected._followed.append(True)
    assert rounds(stage, REMEMBERED - 1) == [IDLE] * (REMEMBERED - 1)
    stage.owners["first"] = wants(1, "first")
    stage.come(pod("first", owner="first"))
    stage.pass_time(0.5)
    stage.come(pod("second", owner="second"))
    stage.pass_time(1.5)
    stage.place()
    stage.pass_time(3.0)
    assert rounds(stage, REMEMBERED + 1, 20) == [IDLE] * REMEMBERED + [SOON]


def test_a_pod_that_waits_on_follows_nobody() -> None:
    stage = Stage()
    stuck = pod("stuck", owner="")
    stage.come(stuck)
    stage.pass_time(5.0)
    stage.owners["first"] = wants(1, "first")
    stage.come(pod("first", owner="first"))
    assert stage.waited() == SOON
    stage.pass_time(0.5)
    stage.intake.pod_seen(stuck)
    stage.pass_time(3.0)
    assert not any(stage.expected._followed)
    stage.cluster.pod_changed(stage.cluster.pod("stuck"), None)
    assert rounds(stage, 1) == [SOON]


def test_a_pod_that_was_left_without_a_place_does_not_follow_its_own_batch() -> None:
    """Whatever changes of it is told, also within the second."""
    stage = Stage({"first": wants(1, "first")})
    stage.come(pod("first", owner="first"))
    assert stage.waited() == SOON
    stage.pass_time(0.2)
    stage.intake.pod_seen(stage.cluster.waiting()[0])
    stage.pass_time(3.0)
    assert not any(stage.expected._followed)
    stage.place()
    stage.pass_time(3.0)
    assert rounds(stage, 1) == [SOON]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.floats(0, 0.4)), min_size=1, max_size=12),
    st.fixed_dictionaries({"a": st.integers(0, 8), "b": st.integers(0, 8)}),
)
def test_a_batch_ends_early_only_with_all_pods_and_never_later_than_without(
    arrivals: list[tuple[str, bool, float]], wanted: dict[str, int]
) -> None:
    """Pods come one after another, some of them refused at once; the batches are those of a plain window, or have everybody."""
    stage = Stage({owner: wants(count, owner) for owner, count in wanted.items()})
    latest = 0.0
    there = {"a": 0, "b": 0}
    for number, (owner, refused, pause) in enumerate(arrivals):
        stage.come(pod(f"p{number}", owner=owner), refused=refused)
        there[owner] += 1
        latest = stage.clock.monotonic()
        stage.pass_time(pause)
        for ran in stage.runs:
            has_all = all(there[one] >= wanted[one] for one in there if there[one])
            assert ran < latest or has_all or ran - latest == IDLE
            assert ran < latest or ran >= latest + QUIET_SECONDS - 1e-6
    if not stage.runs or stage.runs[-1] < latest:
        left = latest + 1.0 - stage.clock.monotonic()
        assert stage.waited() <= left + 0.005
