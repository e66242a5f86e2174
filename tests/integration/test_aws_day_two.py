"""What happens to instances after their launch, over HTTP against the emulated EC2: messages, health, garbage, tags, reservations, shifts."""

import contextlib
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from provisioner.apis import ec2 as api
from provisioner.apis.interruption import interruption_of
from provisioner.ec2.access.client import AwsClients, CallPolicy
from provisioner.ec2.access.errors import FailureKind, classify_exception
from provisioner.ec2.instances.instances import InstanceError, Instances, provider_id
from provisioner.ec2.instances.inventory import Inventory
from provisioner.ec2.instances.orphans import sort_out
from provisioner.ec2.instances.tagging_controller import missing_tags
from provisioner.ec2.interruption import health as statuses
from provisioner.ec2.interruption.capacity_block_controller import expiring_blocks, read_reservations
from provisioner.ec2.interruption.health import Category
from provisioner.ec2.interruption.health_controller import DENIED_SECONDS, HealthPoller, read_statuses
from provisioner.ec2.interruption.messages import MessageError, Notice, NoticeKind, parse
from provisioner.ec2.interruption.queue import InterruptionQueue, Received
from provisioner.ec2.interruption.queue_controller import QueueReader
from provisioner.ec2.interruption.zonal_shift import ZonalShifts
from provisioner.ec2.market.unavailable_offerings import Shortages
from provisioner.ec2.settings import AwsSettings
from provisioner.lifecycle.garbage_collection import InstanceCollector
from provisioner.support.clock import SystemClock
from provisioner.support.workers import pool
from tests.support.clock import FakeClock
from tests.support.cluster import World, claim
from tests.support.ec2 import Ec2, Fault
from tests.support.eventually import eventually
from tests.support.worldserver import WorldServer

CLUSTER = "dovetail"


class Cloud:
    """The emulator, and our way to it."""

    def __init__(self, ec2: Ec2) -> None:
        self.ec2 = ec2
        self.aws = AwsClients(CallPolicy(ec2.region, attempts=1), SystemClock(), ec2.session())
        self.instances = Instances(self.aws, SystemClock(), ec2.vpc.cluster, idle=0.0)
        self.queue = InterruptionQueue(self.aws, ec2.vpc.queue, wait_seconds=1)

    def launch(self, **tags: str) -> str:
        """An instance of the cluster, launched without anybody's claim; its id."""
        return self.launch_many(1, **tags)[0]

    def launch_many(self, count: int, **tags: str) -> list[str]:
        """Several of them, in order of id."""
        given = {
            api.NODEPOOL_TAG: "general",
            api.NODECLASS_TAG: "default",
            api.CLUSTER_NAME_TAG: self.ec2.vpc.cluster,
            **tags,
        }
        image = self.ec2.client("ec2").describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
        answer = self.ec2.client("ec2").run_instances(
            ImageId=image,
            InstanceType="m5.large",
            SubnetId=next(iter(self.ec2.vpc.subnets.values())),
            MinCount=count,
            MaxCount=count,
            TagSpecifications=[
                {
                    "ResourceType": "instance",
                    "Tags": [{"Key": key, "Value": value} for key, value in sorted(given.items())],
                }
            ],
        )
        made = sorted(one["InstanceId"] for one in answer["Instances"])
        wanted = [{"Name": "instance-id", "Values": made}]
        eventually(
            lambda: len(self.ec2.client("ec2").describe_instances(Filters=wanted)["Reservations"]),
            "EC2 shows them",
            20.0,
        )
        return made

    def notice(self, instance: str, kind: NoticeKind) -> Notice:
        """What the queue says of this kind about an instance; other messages are read and deleted too."""
        for _ in range(20):
            received = self.queue.receive()
            assert all(one.sent is not None for one in received)
            self.queue.delete(received)
            for one in received:
                found = parse(one.body)
                if found.kind is kind and instance in found.instances:
                    return found
        raise AssertionError(f"no {kind} about {instance}")


@pytest.fixture(scope="module")
def emulator() -> Iterator[Ec2]:
    with Ec2.start(data="small", rate_limits=False, name=CLUSTER, clock_factor=4.0) as one:
        yield one


@pytest.fixture
def cloud(emulator: Ec2) -> Iterator[Cloud]:
    one = Cloud(emulator)
    yield one
    emulator.script()
    if left := [instance["id"] for instance in emulator.instances("pending", "running", "stopping", "stopped")]:
        emulator.client("ec2").terminate_instances(InstanceIds=left)
    one.aws.close()


# ------------------------------------------------------------------ messages


@pytest.mark.parametrize(
    ("kind", "want"),
    [
        ("spot", NoticeKind.SPOT_INTERRUPTED),
        ("rebalance", NoticeKind.REBALANCE),
        ("reservation-interruption", NoticeKind.RESERVATION_INTERRUPTED),
        ("scheduled-change", NoticeKind.SCHEDULED_CHANGE),
    ],
)
def test_a_notice_comes_through_the_queue(cloud: Cloud, kind: str, want: NoticeKind) -> None:
    instance = cloud.launch()
    cloud.ec2.interrupt(instance, kind, seconds=86400)
    found = cloud.notice(instance, want)
    assert found.instances == (instance,)
    assert found.at is not None
    if want is NoticeKind.SCHEDULED_CHANGE:
        assert found.starts is not None
        assert timedelta(hours=23) < found.starts - found.at < timedelta(hours=25)


@pytest.mark.parametrize(("kind", "want"), [("terminate", NoticeKind.TERMINATED), ("stop", NoticeKind.STOPPED)])
def test_an_instance_that_somebody_ends_is_told_by_its_states(cloud: Cloud, kind: str, want: NoticeKind) -> None:
    instance = cloud.launch()
    cloud.ec2.interrupt(instance, kind)
    assert cloud.notice(instance, want).instances == (instance,)


def test_a_message_stays_until_it_is_deleted(cloud: Cloud) -> None:
    body = f"what? {uuid.uuid4()}"
    cloud.ec2.send(body)

    def seen() -> list[Received]:
        received = cloud.queue.receive()
        cloud.queue.delete([one for one in received if one.body != body])  # or the next test would wait for them
        return [one for one in received if one.body == body]

    (received,) = eventually(seen, "the message comes", 10.0)
    with pytest.raises(MessageError):
        parse(received.body)
    assert seen() == [], "nobody else sees it for a while"
    assert cloud.ec2.left()["messages"].count(body) == 1
    assert cloud.queue.delete([received]) == 1
    assert body not in cloud.ec2.left()["messages"], "whatever came meanwhile of instances that other tests ended"
    assert cloud.queue.delete([]) == 0


def test_a_queue_that_is_missing_is_looked_up_again(cloud: Cloud) -> None:
    nobodys = InterruptionQueue(cloud.aws, "nobodys", wait_seconds=1)
    for _ in range(2):
        with pytest.raises(ClientError) as error:
            nobodys.receive()
        assert classify_exception(error.value).kind is FailureKind.NOT_FOUND


QUEUE_FAULTS: dict[str, Fault] = {
    f"{action}: {kind}": Fault(action, kind, times=1)
    for action in ("ReceiveMessage", "DeleteMessageBatch")
    for kind in ("throttled", "500", "denied", "timeout-after-effect")
}


@pytest.mark.parametrize("fault", QUEUE_FAULTS.values(), ids=QUEUE_FAULTS)
def test_no_trouble_of_the_queue_loses_a_notice(cloud: Cloud, fault: Fault) -> None:
    instance = cloud.launch()
    server = WorldServer(World())
    server.put(claim("mine", provider_id=provider_id("z", instance)))
    settings = AwsSettings(cluster_name=CLUSTER, region=cloud.ec2.region)
    queue = InterruptionQueue(cloud.aws, cloud.ec2.vpc.queue, wait_seconds=1, visibility_seconds=2)
    with pool(2) as workers:
        clock = server.world.clock
        interruptions = server.interruptions(workers)
        reader = QueueReader(
            queue,
            interruptions,
            server.world.cluster,
            server.recorder,
            Shortages(),
            settings,
            workers,
            clock,
        )
        cloud.ec2.interrupt(instance, "rebalance")
        cloud.ec2.interrupt(instance, "spot", seconds=86400)
        cloud.ec2.script([fault])

        def settled() -> bool:
            with contextlib.suppress(Exception):
                reader.poll()
            return (
                interruption_of(server.claim("mine").metadata.annotations) is not None
                and not (cloud.ec2.left()["messages"])
            )

        eventually(settled, "the notice is written, and the queue empty", 40.0)
    assert server.done == ["PATCH nodeclaims/mine"]


# ------------------------------------------------------------------ health


def judged(cloud: Cloud) -> statuses.InstanceHealth:
    return statuses.judge(read_statuses(cloud.aws), SystemClock().now())


def test_healthy_instances_are_no_finding(cloud: Cloud) -> None:
    cloud.launch()
    assert judged(cloud) == statuses.InstanceHealth()


def test_findings_of_ec2(cloud: Cloud) -> None:
    broken, host, fresh, planned, cancelled = cloud.launch_many(5)
    cloud.ec2.interrupt(broken, "impair", check="instance", seconds=600)
    cloud.ec2.interrupt(host, "impair", check="system", seconds=600)
    cloud.ec2.interrupt(fresh, "impair", check="instance", seconds=10)
    cloud.ec2.interrupt(planned, "schedule", seconds=3600)
    cloud.ec2.interrupt(cancelled, "schedule", seconds=3600, done="Canceled")

    def all_run() -> statuses.InstanceHealth | None:
        found = judged(cloud)
        return found if len(found.findings) == 3 and found.cleared else None

    found = eventually(all_run, "all of them run", 30.0)
    assert found is not None
    assert {(one.instance, one.category) for one in found.findings} == {
        (broken, Category.INSTANCE),
        (host, Category.SYSTEM),
        (planned, Category.EVENT),
    }
    assert found.cleared == (cancelled,)


@pytest.mark.parametrize("kind", ["throttled", "500", "timeout-after-effect", "denied"])
def test_while_ec2_does_not_say_nobody_is_marked(cloud: Cloud, kind: Any) -> None:
    instance = cloud.launch()
    server = WorldServer(World())
    server.put(claim("mine", provider_id=provider_id("z", instance)))
    with pool(1) as workers:
        interruptions = server.interruptions(workers)
        settings = AwsSettings(cluster_name=CLUSTER, region=cloud.ec2.region)
        poller = HealthPoller(
            lambda: read_statuses(cloud.aws),
            interruptions,
            server.world.cluster,
            server.recorder,
            settings,
            SystemClock(),
        )
        cloud.ec2.interrupt(instance, "schedule", seconds=30 * 3600)
        cloud.ec2.script([Fault("DescribeInstanceStatus", kind, times=1)])
        if kind == "denied":
            assert poller.poll() == DENIED_SECONDS
        else:
            with pytest.raises((ClientError, BotoCoreError)):
                poller.poll()
        assert server.done == []

        def marked() -> bool:
            poller.poll()
            return server.done == ["PATCH nodeclaims/mine"]

        eventually(marked, "the instance runs, and is marked", 30.0)


# ------------------------------------------------------------------ garbage and tags


class Collecting:
    """A collector of the emulator's instances, on a clock of its own."""

    def __init__(self, cloud: Cloud) -> None:
        self.server = WorldServer(World())
        self.clock: FakeClock = self.server.world.clock
        self.again: list[str] = []
        self.inventory = Inventory(cloud.instances, self.clock)
        self.collector = InstanceCollector(
            self.inventory.refresh,
            sort_out,
            lambda one: self.server.terminator().end_orphan(one, cloud.instances.terminate),
            self.server.world.cluster,
            self.server.client,
            self.server.writer,
            self.clock,
            look_again=self.again.append,
            orphan_after=timedelta(minutes=5),
        )

    def after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.collector.poll()


def alive(cloud: Cloud) -> set[str]:
    """Instances that are paid for."""
    return {one["id"] for one in cloud.ec2.alive()}


def test_orphans_end_and_others_stay(cloud: Cloud) -> None:
    orphan, owned = cloud.launch_many(2)
    awaited, foreign = (
        cloud.launch(**{api.NODECLAIM_TAG: "waits"}),
        cloud.launch(**{api.CLUSTER_NAME_TAG: "other"}),
    )
    one = Collecting(cloud)
    zone = next(iter(cloud.ec2.vpc.subnets))
    one.server.put(claim("owns", provider_id=provider_id(zone, owned)), claim("waits"))
    one.after(0)
    one.after(299)
    assert alive(cloud) == {orphan, owned, awaited, foreign}
    one.after(1)
    assert alive(cloud) == {owned, awaited, foreign}
    assert set(one.again) == {"waits"}


ORPHAN_FAULTS: dict[str, Fault] = {
    "throttled": Fault("TerminateInstances", "throttled", times=1),
    "an error of EC2": Fault("TerminateInstances", "500", times=1),
    "denied": Fault("TerminateInstances", "denied", times=1),
    "an answer that is lost": Fault("TerminateInstances", "timeout-after-effect", times=1),
}


@pytest.mark.parametrize("fault", ORPHAN_FAULTS.values(), ids=ORPHAN_FAULTS)
def test_an_orphan_ends_in_spite_of_trouble(cloud: Cloud, fault: Fault) -> None:
    cloud.launch()
    one = Collecting(cloud)
    one.after(0)
    cloud.ec2.script([fault])
    one.after(300)

    def ended() -> bool:
        one.after(300)  # a description that lags behind begins the wait anew
        return alive(cloud) == set()

    eventually(ended, "the orphan ends")


@pytest.mark.parametrize("kind", ["throttled", "500", "denied"])
def test_while_ec2_does_not_list_nothing_is_ended(cloud: Cloud, kind: Any) -> None:
    instance = cloud.launch()
    one = Collecting(cloud)
    one.after(0)
    cloud.ec2.script([Fault("DescribeInstances", kind)])
    with pytest.raises(InstanceError):
        one.after(300)
    assert alive(cloud) == {instance}


def test_tags_that_are_missing_are_added(cloud: Cloud) -> None:
    instance = cloud.launch()
    found = cloud.instances.get(provider_id("z", instance))
    lacking = missing_tags(found.tags, claim("mine"), cloud.ec2.vpc.cluster)
    cloud.instances.tag(instance, {**lacking, api.NAME_TAG: "node-1"})
    tags = cloud.instances.get(provider_id("z", instance)).tags
    assert (tags[api.NODECLAIM_TAG], tags[api.NAME_TAG]) == ("mine", "node-1")


def test_nothing_is_ended_in_a_zone_that_is_shifted_away_from(cloud: Cloud) -> None:
    instance = cloud.launch()
    zone = cloud.instances.get(provider_id("z", instance)).zone_id
    shifted = {zone}
    careful = Instances(cloud.aws, SystemClock(), cloud.ec2.vpc.cluster, idle=0.0, shifted=lambda: shifted)
    with pytest.raises(InstanceError, match="zonal shift"):
        careful.terminate(provider_id("z", instance))
    assert instance in alive(cloud)
    shifted.clear()
    careful.terminate(provider_id("z", instance))
    assert instance not in alive(cloud)


# ------------------------------------------------------------------ reservations and shifts


def test_blocks_that_end_are_found_and_ids_that_are_gone_left_out(cloud: Cloud) -> None:
    zone = next(iter(cloud.ec2.vpc.subnets))
    ends, stays = (
        cloud.ec2.add_reservation("m5.large", zone, kind="capacity-block", seconds=seconds) for seconds in (1800, 7200)
    )
    rows = read_reservations(cloud.aws, [ends, stays, "cr-00000000000000000"])
    assert list(expiring_blocks(rows, SystemClock().now())) == [ends]


def test_zonal_shifts_come_and_go(cloud: Cloud) -> None:
    arn = cloud.ec2.client("eks").describe_cluster(name=cloud.ec2.vpc.cluster)["cluster"]["arn"]
    shifts = ZonalShifts(cloud.aws, lambda: arn, SystemClock())
    assert shifts.refresh() == frozenset()
    name, subnet = next(iter(cloud.ec2.vpc.subnets.items()))
    answer = cloud.ec2.client("ec2").describe_subnets(SubnetIds=[subnet])
    zone = answer["Subnets"][0]["AvailabilityZoneId"]
    cloud.ec2.shift(name)
    assert shifts.refresh() == {zone}
    cloud.ec2.script([Fault("GetManagedResource", "500")])
    with pytest.raises(ClientError):
        shifts.refresh()
    assert zone in shifts.zones()
    cloud.ec2.script()
    cloud.ec2.shift(name, cancel=True)
    assert shifts.refresh() == frozenset()
