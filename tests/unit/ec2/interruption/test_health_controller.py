"""The poll of EC2's status checks: who is marked, how hard, and what is called off."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from provisioner.apis import names
from provisioner.apis.interruption import Interruption, interruption_of
from provisioner.ec2.interruption.health_controller import DENIED_SECONDS, POLL_SECONDS, HealthPoller
from provisioner.ec2.settings import AwsSettings
from provisioner.support.metrics import REGISTRY
from provisioner.support.workers import WorkerPool
from tests.support.clock import NOON
from tests.support.cluster import World, claim
from tests.support.worldserver import WorldServer

INSTANCE = "i-00000000000000001"
LONG_AGO = NOON - timedelta(minutes=10)
IMPAIRED = {"Details": [{"Status": "failed", "ImpairedSince": LONG_AGO}]}


def planned(hours: float, description: str = "") -> dict[str, Any]:
    event = {"Code": "instance-retirement", "Description": description, "NotBefore": NOON + timedelta(hours=hours)}
    return {"InstanceId": INSTANCE, "Events": [event]}


class Stage:
    def __init__(self, workers: WorkerPool) -> None:
        self.world = World()
        self.server = WorldServer(self.world)
        self.rows: list[Mapping[str, Any]] = []
        self.error: Exception | None = None
        self.poller = HealthPoller(
            self._read,
            self.server.interruptions(workers),
            self.world.cluster,
            self.server.recorder,
            AwsSettings(cluster_name="c", region="us-east-1"),
            self.world.clock,
        )
        self.server.put(claim("mine", provider_id=f"aws:///us-east-1a/{INSTANCE}"))

    def _read(self) -> Iterator[Mapping[str, Any]]:
        if self.error is not None:
            raise self.error
        return iter(self.rows)

    def mark(self) -> Interruption | None:
        return interruption_of(self.server.claim("mine").metadata.annotations)


@pytest.mark.parametrize(
    ("field", "reason"), [("InstanceStatus", "instance_status"), ("SystemStatus", "system_status")]
)
def test_an_impaired_instance_is_ended_without_waiting_for_its_pods(
    workers: WorkerPool, field: str, reason: str
) -> None:
    stage = Stage(workers)
    stage.rows = [{"InstanceId": INSTANCE, field: IMPAIRED}]
    assert stage.poller.poll() == POLL_SECONDS
    assert stage.mark() == Interruption(reason, ends=NOON)
    stage.world.clock.advance(60)
    stage.poller.poll()
    assert stage.server.done == ["PATCH nodeclaims/mine"]
    assert stage.server.recorder.events == [("NodeClaim", "mine", "Warning", "InstanceUnhealthy")]


def test_planned_work_waits_for_its_day(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.rows = [planned(48)]
    stage.poller.poll()
    found = stage.mark()
    assert found is not None
    assert (found.reason, found.begins, found.budgeted) == ("event_status", NOON + timedelta(hours=24), True)
    assert stage.server.has("nodeclaims", "mine")


def test_planned_work_that_is_cancelled_is_forgotten_unless_it_has_begun(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.rows = [planned(48)]
    stage.poller.poll()
    stage.rows = [planned(48, "[Canceled] The")]
    stage.poller.poll()
    assert stage.mark() is None
    stage.rows = [planned(12)]
    stage.poller.poll()
    stage.rows = [planned(12, "[Completed] The")]
    stage.poller.poll()
    assert stage.mark() is not None, "it is closed already, its pods may have left"


def test_planned_work_that_is_moved_waits_for_its_new_day_unless_it_has_begun(workers: WorkerPool) -> None:
    stage = Stage(workers)
    for hours, begins in ((48, 24), (96, 72), (30, 6)):
        stage.rows = [planned(hours)]
        for _ in range(2):
            stage.poller.poll()
        found = stage.mark()
        assert found is not None
        assert (found.reason, found.begins, found.budgeted) == ("event_status", NOON + timedelta(hours=begins), True)
    assert stage.server.done == ["PATCH nodeclaims/mine"] * 3
    begun = stage.mark()
    stage.world.clock.advance(6 * 3600)
    stage.rows = [planned(96)]
    stage.poller.poll()
    assert stage.mark() == begun, "it is closed already, its pods may have left"


def test_planned_work_is_not_moved_by_another_notice(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.rows = [planned(48)]
    stage.poller.poll()
    own = stage.server.claim("mine")
    stage.poller._interruptions.mark(
        own, Interruption("spot_interrupted", replaced=True, ends=NOON + timedelta(hours=50))
    )
    stage.rows = [planned(96)]
    stage.poller.poll()
    found = stage.mark()
    assert found is not None
    assert (found.begins, found.budgeted) == (None, False)


def test_instances_of_others_are_nothing_to_us(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.rows = [{**planned(1), "InstanceId": "i-00000000000000002"}]
    stage.poller.poll()
    assert stage.server.done == []


def test_without_the_permission_it_says_so_and_asks_once_an_hour(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.error = ClientError({"Error": {"Code": "UnauthorizedOperation", "Message": "no"}}, "DescribeInstanceStatus")
    assert stage.poller.poll() == DENIED_SECONDS
    stage.error = ClientError({"Error": {"Code": "InternalError", "Message": "no"}}, "DescribeInstanceStatus")
    with pytest.raises(ClientError):
        stage.poller.poll()


def test_a_mark_that_is_refused_is_tried_with_the_next_poll(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.rows = [planned(48)]
    stage.server.refuse["mine"] = 403
    stage.poller.poll()
    stage.server.refuse.clear()
    stage.poller.poll()
    assert stage.mark() is not None


def test_an_episode_is_counted_once(workers: WorkerPool) -> None:
    def count() -> float:
        name = "karpenter_interruption_instance_status_unhealthy_total"
        return REGISTRY.get_sample_value(name, {"category": "event_status"}) or 0.0

    stage, before = Stage(workers), count()
    stage.rows = [planned(48)]
    for _ in range(3):
        stage.poller.poll()
    assert count() == before + 1
    stage.rows = []
    stage.poller.poll()
    stage.rows = [planned(48)]
    stage.poller.poll()
    assert count() == before + 2


def test_an_instance_that_breaks_while_it_is_drained_is_marked_too(workers: WorkerPool) -> None:
    stage = Stage(workers)
    provider_id = f"aws:///us-east-1a/{INSTANCE}"
    stage.server.put(claim("mine", provider_id=provider_id, deletionTimestamp=NOON.isoformat()))
    stage.rows = [{"InstanceId": INSTANCE, "SystemStatus": IMPAIRED}]
    for _ in range(2):
        stage.poller.poll()
        stage.world.clock.advance(60)
    assert stage.mark() == Interruption("system_status", ends=NOON)
    assert stage.server.done == ["PATCH nodeclaims/mine"]


def test_a_claim_that_is_going_is_left_by_planned_work(workers: WorkerPool) -> None:
    stage = Stage(workers)
    going = NOON.isoformat()
    stage.server.put(
        claim(
            "mine",
            provider_id=f"aws:///us-east-1a/{INSTANCE}",
            deletionTimestamp=going,
            annotations={names.DO_NOT_DISRUPT: "true"},
        )
    )
    stage.rows = [planned(1)]
    stage.poller.poll()
    assert stage.server.done == []
