"""The interruption queue: which messages are acted upon, and which are deleted."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from provisioner.apis import names
from provisioner.apis.interruption import interruption_of
from provisioner.ec2 import labels
from provisioner.ec2.interruption.queue import InterruptionQueue, Received
from provisioner.ec2.interruption.queue_controller import QueueReader
from provisioner.ec2.launch.orders import offer_of
from provisioner.ec2.market.unavailable_offerings import OfferingStanding, Shortages
from provisioner.ec2.settings import AwsSettings
from provisioner.support.metrics import REGISTRY
from provisioner.support.workers import WorkerPool, pool
from tests.support.clock import NOON
from tests.support.cluster import World, claim, node
from tests.support.worldserver import WorldServer

INSTANCE, OTHER = "i-0b662ef9931388ba0", "i-0123456789abcdef0"
ALL_TRUE = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)
BOUGHT = {
    names.NODEPOOL_LABEL: "general",
    names.CAPACITY_TYPE_LABEL: "spot",
    names.INSTANCE_TYPE_LABEL: "m5.large",
    names.ZONE_LABEL: "us-east-1a",
    labels.RESERVATION_ID: "cr-1",
}


class FakeQueue:
    """Hands out what the test put in; a message stays until it is deleted."""

    def __init__(self) -> None:
        self.messages: list[Received] = []
        self.deleted: list[str] = []

    def put(self, body: str, sent: datetime = NOON) -> str:
        receipt = f"r{len(self.messages) + len(self.deleted)}"
        self.messages.append(Received(body, receipt, sent))
        return receipt

    def receive(self) -> Sequence[Received]:
        return list(self.messages[:10])

    def delete(self, messages: Sequence[Received]) -> int:
        gone = {one.receipt for one in messages}
        self.deleted += sorted(gone)
        self.messages = [one for one in self.messages if one.receipt not in gone]
        return len(gone)


def event(detail_type: str, instance: str = INSTANCE, **detail: Any) -> str:
    return json.dumps(
        {
            "version": "0",
            "source": "aws.ec2",
            "detail-type": detail_type,
            "time": "2026-11-21T12:00:00Z",
            "detail": {"instance-id": instance, **detail},
        }
    )


SPOT, REBALANCE = "EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance Recommendation"
STATE, RESERVATION = "EC2 Instance State-change Notification", "EC2 Capacity Reservation Instance Interruption Warning"


class Stage:
    """A reader over a queue, and an instance of ours; called in this thread."""

    def __init__(self, workers: WorkerPool, **settings: Any) -> None:
        self.world = World()
        self.server = WorldServer(self.world)
        self.queue, self.shortages = FakeQueue(), Shortages()
        interruptions = self.server.interruptions(workers)
        self.reader = QueueReader(
            cast(InterruptionQueue, self.queue),
            interruptions,
            self.world.cluster,
            self.server.recorder,
            self.shortages,
            AwsSettings(cluster_name="c", region="us-east-1", **settings),
            workers,
            self.world.clock,
        )
        self.server.put(node("n", provider_id=f"aws:///us-east-1a/{INSTANCE}"))
        self.put_claim()

    def put_claim(self, **metadata: Any) -> None:
        self.server.put(
            claim("mine", provider_id=f"aws:///us-east-1a/{INSTANCE}", true=ALL_TRUE, labels=BOUGHT, **metadata)
        )

    def mark(self) -> str:
        """The reason that is written on our claim; "" without one."""
        found = interruption_of(self.server.claim("mine").metadata.annotations)
        return found.reason if found is not None else ""


@pytest.fixture
def workers() -> Iterator[WorkerPool]:
    with pool(2) as threads:
        yield threads


ACTED: dict[str, tuple[str, str, str]] = {
    "a spot notice": (event(SPOT), "spot_interrupted", "SpotInterrupted"),
    "a recommendation, which is ignored": (event(REBALANCE), "", "SpotRebalanceRecommendation"),
    "an instance that stops": (event(STATE, state="stopping"), "instance_stopped", "InstanceStopping"),
    "an instance that ends": (event(STATE, state="terminated"), "instance_terminated", "InstanceTerminating"),
    "a reservation that is taken back": (
        event(RESERVATION),
        "capacity_reservation_interrupted",
        "CapacityReservationInstanceInterrupted",
    ),
}


@pytest.mark.parametrize(("body", "reason", "told"), ACTED.values(), ids=ACTED)
def test_messages_about_our_instances_are_acted_upon_told_and_deleted(
    workers: WorkerPool, body: str, reason: str, told: str
) -> None:
    stage = Stage(workers)
    stage.queue.put(body)
    assert stage.reader.poll() == 1
    assert stage.mark() == reason
    assert {(kind, why) for kind, _, _, why in stage.server.recorder.events} == {("NodeClaim", told), ("Node", told)}
    assert stage.queue.messages == []


DELETED: dict[str, str] = {
    "malformed": "what?",
    "unknown": event("EC2 Something New"),
    "empty": "",
    "of an instance that starts": event(STATE, state="running"),
    "of an instance that is not ours": event(STATE, OTHER, state="terminated"),
    "of a spot instance that is not ours": event(SPOT, OTHER),
}


@pytest.mark.parametrize("body", DELETED.values(), ids=DELETED)
def test_messages_that_are_nothing_to_us_are_deleted(workers: WorkerPool, body: str) -> None:
    stage = Stage(workers)
    stage.queue.put(body)
    assert stage.reader.poll() == 1
    assert stage.server.done == []
    assert stage.server.recorder.events == []


def test_a_message_whose_mark_is_not_written_stays(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.queue.put(event(SPOT))
    stage.queue.put("what?")
    stage.server.refuse["mine"] = 403
    assert stage.reader.poll() == 1
    assert [one.receipt for one in stage.queue.messages] == ["r0"]
    stage.server.refuse.clear()
    assert stage.reader.poll() == 1
    assert stage.mark() == "spot_interrupted"


def test_a_message_that_comes_twice_is_written_once_and_closes_the_offering_once(workers: WorkerPool) -> None:
    stage = Stage(workers)
    for _ in range(3):
        stage.queue.put(event(SPOT))
    assert stage.reader.poll() == 3
    stage.queue.put(event(SPOT))
    stage.reader.poll()
    assert stage.server.done == ["PATCH nodeclaims/mine"]
    offer = offer_of(stage.server.claim("mine"))
    once = Shortages()
    once.taken_back(offer, NOON, "SpotInterruption")
    assert stage.shortages.to_config(NOON) == once.to_config(NOON)
    assert stage.shortages.standing(offer, NOON + timedelta(seconds=179)) is OfferingStanding.CLOSED


def test_a_reservation_that_is_taken_back_is_left_alone_for_a_while(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.queue.put(event(RESERVATION))
    stage.reader.poll()
    assert not stage.shortages.reservation_open("cr-1", NOON)
    assert stage.shortages.reservation_open("cr-2", NOON)


def test_an_instance_that_we_end_ourselves_says_nothing_new(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.put_claim(deletionTimestamp=NOON.isoformat())
    stage.queue.put(event(STATE, state="shutting-down"))
    assert stage.reader.poll() == 1
    assert stage.server.recorder.events == []


def test_an_instance_that_is_taken_back_while_it_is_drained_is_marked_all_the_same(workers: WorkerPool) -> None:
    """Its drain may wait for a budget or for the end of a pause, and its instance does not."""
    stage = Stage(workers)
    stage.put_claim(deletionTimestamp=NOON.isoformat())
    stage.queue.put(event(SPOT))
    assert stage.reader.poll() == 1
    assert stage.mark() == "spot_interrupted"
    offer = offer_of(stage.server.claim("mine"))
    assert stage.shortages.standing(offer, NOON + timedelta(seconds=1)) is OfferingStanding.CLOSED


def test_a_spot_notice_of_an_instance_that_nobody_knows_yet_waits_for_its_launch_to_be_written(
    workers: WorkerPool,
) -> None:
    stage = Stage(workers)
    stage.server.put(claim("launching", labels=BOUGHT))
    stage.queue.put(event(SPOT, OTHER))
    assert stage.reader.poll() == 0
    provider_id = f"aws:///us-east-1a/{OTHER}"
    stage.server.put(claim("launching", provider_id=provider_id, true=(names.LAUNCHED,), labels=BOUGHT))
    assert stage.reader.poll() == 1
    assert interruption_of(stage.server.claim("launching").metadata.annotations) is not None


def test_but_not_for_ever(workers: WorkerPool) -> None:
    stage = Stage(workers)
    stage.server.put(claim("launching", labels=BOUGHT))
    stage.queue.put(event(SPOT, OTHER), sent=NOON - timedelta(seconds=91))
    assert stage.reader.poll() == 1


@pytest.mark.parametrize(("rebalance", "replaced"), [("replace", True), ("drain", False)])
def test_recommendations_are_followed_where_the_setting_says_so(
    workers: WorkerPool, rebalance: str, replaced: bool
) -> None:
    stage = Stage(workers, rebalance=rebalance)
    stage.queue.put(event(REBALANCE))
    stage.reader.poll()
    found = interruption_of(stage.server.claim("mine").metadata.annotations)
    assert found is not None
    assert found.replaced is replaced


def test_messages_are_counted_under_karpenters_names(workers: WorkerPool) -> None:
    stage = Stage(workers)

    def value(name: str, **given: str) -> float:
        return REGISTRY.get_sample_value(name, given) or 0.0

    received, deleted = (
        "karpenter_interruption_received_messages_total",
        "karpenter_interruption_deleted_messages_total",
    )
    before = value(received, message_type="spot_interrupted"), value(deleted)
    waited = value("karpenter_interruption_message_queue_duration_seconds_count")
    stage.queue.put(event(SPOT))
    stage.reader.poll()
    assert (value(received, message_type="spot_interrupted"), value(deleted)) == (before[0] + 1, before[1] + 1)
    assert value("karpenter_interruption_message_queue_duration_seconds_count") == waited + 1
