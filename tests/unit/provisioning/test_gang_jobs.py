"""How many pods a gang of a Job needs, where its annotations do not say it."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.meta import OwnerReference
from provisioner.apis.pods import Pod
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError
from provisioner.provisioning.gang_jobs import AGAIN_SECONDS, MOST_READ, PAUSE_SECONDS, GangJobs, in_turn
from provisioner.runtime.changes import PodChanged
from provisioner.state.checking import CheckedCluster
from provisioner.state.groups import GangJob
from tests.support.clock import FakeClock
from tests.support.cluster import TYPES, pod
from tests.support.kube import FakeAnswer, FakeApi, ok, refusal

JOB = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="u1", controller=True)


def member(name: str, owner: OwnerReference = JOB, minimum: str = "") -> Pod:
    notes = {names.GANG: "train"} | ({names.GANG_MINIMUM: minimum} if minimum else {})
    return msgspec.structs.replace(pod(name, annotations=notes), owner=owner)


def job(parallelism: int, uid: str = "u1", **spec: Any) -> FakeAnswer:
    return ok({"metadata": {"name": "train", "uid": uid}, "spec": {"parallelism": parallelism, **spec}})


class Stage:
    """A state with pods, and the reader of their Jobs."""

    def __init__(self, *answers: FakeAnswer) -> None:
        self.clock, self.api = FakeClock(), FakeApi(*answers)
        self.cluster = CheckedCluster(lambda _: TYPES, self.clock, grace=timedelta(0))
        self.cluster.settle()
        self.reader = GangJobs(self.cluster, Client(self.api, self.clock), self.clock)

    def add(self, *pods: Pod) -> None:
        for one in pods:
            self.cluster.pod_changed(None, one)

    def waiting(self) -> list[str]:
        return [one.name for one in self.cluster.snapshot().waiting]

    def read(self) -> float | None:
        return self.reader._poll()


@pytest.mark.parametrize("answer", [job(3), job(5, completions=3)], ids=["parallelism", "fewer completions"])
def test_pods_of_a_job_wait_until_as_many_are_there_as_it_runs_at_once(answer: FakeAnswer) -> None:
    stage = Stage(answer)
    stage.add(member("a"), member("b"))
    assert not stage.waiting()
    assert stage.read() == AGAIN_SECONDS
    assert not stage.waiting()
    stage.add(member("c"))
    assert stage.waiting() == ["a", "b", "c"]
    assert set(stage.cluster.snapshot().minima.values()) == {3}
    assert [sent.path for sent in stage.api.sent] == ["/apis/batch/v1/namespaces/default/jobs/train"]


def test_a_job_is_read_again_while_its_gang_waits_and_no_more_when_it_is_complete() -> None:
    stage = Stage(job(3), job(2))
    stage.add(member("a"), member("b"))
    stage.read()
    stage.clock.advance(AGAIN_SECONDS)
    assert stage.read() == AGAIN_SECONDS
    assert stage.waiting() == ["a", "b"]
    stage.clock.advance(AGAIN_SECONDS)
    assert stage.read() is None


@pytest.mark.parametrize(
    "answer",
    [refusal(404, "NotFound"), job(3, uid="another"), refusal(403, "Forbidden"), refusal(400, "BadRequest")],
    ids=["gone", "other", "403", "no name of a Job"],
)
def test_where_nobody_can_tell_the_pods_are_single(answer: FakeAnswer) -> None:
    stage = Stage(answer)
    stage.add(member("a"))
    stage.read()
    assert stage.waiting() == ["a"]
    assert not stage.cluster.snapshot().minima


def test_the_last_pods_of_a_job_wait_for_no_more_than_there_will_be() -> None:
    """Of ten completions, eight at once, the last two come when eight have succeeded."""
    stage = Stage(job(3, completions=4), job(3, completions=4))
    some = [member(name) for name in "abc"]
    stage.add(*some)
    stage.read()
    for one in some:
        running = msgspec.structs.replace(one, node_name="n", phase="Running")
        done = msgspec.structs.replace(running, phase="Succeeded")
        stage.cluster.pod_changed(one, running)
        stage.cluster.pod_changed(running, done)
    stage.add(member("d"))
    stage.clock.advance(AGAIN_SECONDS)
    stage.read()
    assert stage.waiting() == ["d"]
    assert not stage.cluster.snapshot().groups
    for one in some:
        stage.cluster.pod_changed(msgspec.structs.replace(one, phase="Succeeded"), None)
    groups = stage.cluster._pending.groups
    assert (groups._succeeded, groups._succeeded_of) == ({}, {})
    assert not stage.waiting()


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_pods_of_another_run_do_not_count_as_the_end_of_this_one(phase: str) -> None:
    stage = Stage()
    earlier = member("a", msgspec.structs.replace(JOB, uid="u0"), minimum="2")
    label = msgspec.structs.replace(
        pod("b", annotations={names.GANG_LABEL: "run", names.GANG_MINIMUM: "2"}, labels={"run": "x"}), owner=JOB
    )
    failed = member("c", minimum="2")
    stage.add(*(msgspec.structs.replace(one, node_name="n", phase=phase) for one in (earlier, label)))
    stage.add(msgspec.structs.replace(failed, node_name="n", phase="Failed"))
    stage.add(msgspec.structs.replace(label, name="d", uid="d"), member("e", minimum="2"))
    assert not stage.waiting()


def test_while_the_api_server_does_not_answer_they_wait() -> None:
    stage = Stage(refusal(500, "InternalError"), job(1))
    stage.add(member("a"))
    with pytest.raises(ApiError):
        stage.read()
    assert not stage.waiting()
    stage.clock.advance(PAUSE_SECONDS)
    stage.read()
    assert stage.waiting() == ["a"]


def test_a_job_that_cannot_be_read_keeps_no_other_from_being_read() -> None:
    """The names of controllers are not validated: the API server may answer anything about one of them, again and again."""
    stage = Stage(refusal(500, "InternalError"), job(1, uid="u2"))
    stage.add(
        member("a", msgspec.structs.replace(JOB, name="bad")), member("b", msgspec.structs.replace(JOB, uid="u2"))
    )
    with pytest.raises(ApiError):
        stage.read()
    assert stage.waiting() == ["b"]


def test_an_annotated_minimum_counts_before_the_job() -> None:
    stage = Stage()
    stage.add(member("a", minimum="1"))
    assert stage.read() is None
    assert stage.waiting() == ["a"]


def test_of_a_gang_that_is_gone_nothing_is_kept() -> None:
    stage = Stage(job(3))
    one = member("a")
    stage.add(one)
    stage.read()
    stage.cluster.pod_changed(one, None)
    groups = stage.cluster._pending.groups
    assert (groups._jobs, groups._of_jobs) == ({}, {})
    stage.clock.advance(AGAIN_SECONDS)
    assert stage.read() is None
    assert not stage.reader._read_at


def test_the_first_pod_of_such_a_gang_wakes_it_and_others_do_not() -> None:
    stage = Stage(job(2))
    (heard,) = stage.reader.controller().watches.values()
    wake = stage.reader.poller._wake
    heard(PodChanged(None, pod("single")))
    heard(PodChanged(None, member("said", minimum="2")))
    assert not wake.is_set()
    stage.add(member("a"))
    heard(PodChanged(None, member("a")))
    assert wake.is_set()
    stage.read()
    wake.clear()
    heard(PodChanged(None, member("b")))
    assert not wake.is_set()


def test_a_round_reads_only_so_many_and_each_namespace_has_its_turn() -> None:
    stage = Stage(*(refusal(404, "NotFound") for _ in range(MOST_READ)))
    stage.add(*(member(f"p{n}", msgspec.structs.replace(JOB, uid=f"u{n}")) for n in range(MOST_READ + 1)))
    assert stage.read() == PAUSE_SECONDS
    assert len(stage.api.sent) == MOST_READ
    jobs = [GangJob(f"{space}/{n}", space, "j", str(n)) for n, space in enumerate("aaab")]
    assert [one.namespace for one in in_turn(jobs)] == ["a", "b", "a", "a"]
