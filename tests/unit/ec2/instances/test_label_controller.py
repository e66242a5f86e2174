"""Labels that EC2 decides after the launch."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.cloudprovider.errors import CloudError
from provisioner.ec2 import labels
from provisioner.ec2.instances.instances import Ec2Instance
from provisioner.ec2.instances.label_controller import PartitionSync, Relabeller, left_reservations, sync_capacity_types
from provisioner.ec2.instances.partitions import PATIENCE_SECONDS, PartitionHook
from tests.support.clock import NOON
from tests.support.cluster import World, claim, node
from tests.support.worldserver import WorldServer

RESERVED = {
    names.NODEPOOL_LABEL: "general",
    names.REGISTERED_LABEL: "true",
    names.CAPACITY_TYPE_LABEL: "reserved",
    labels.RESERVATION_ID: "cr-1",
    labels.RESERVATION_TYPE: "default",
    labels.RESERVATION_INTERRUPTIBLE: "false",
}
ON_DEMAND = {names.NODEPOOL_LABEL: "general", names.REGISTERED_LABEL: "true", names.CAPACITY_TYPE_LABEL: "on-demand"}
LEFT = Ec2Instance("i-00000000000000001", "running", "m5.large", "us-east-1a", "on-demand")
STAYS = Ec2Instance("i-00000000000000001", "running", "m5.large", "us-east-1a", "reserved", reservation_id="cr-1")


def owner(**fields: Any) -> Any:
    return claim("a", **{"provider_id": LEFT.provider_id, "labels": RESERVED, **fields})


CASES: dict[str, tuple[Any, Ec2Instance, bool]] = {
    "an instance that has left": (owner(), LEFT, True),
    "one that stays": (owner(), STAYS, False),
    "one that never was in one": (owner(labels=ON_DEMAND), LEFT, False),
    "one that is going": (owner(deletionTimestamp=NOON.isoformat()), LEFT, False),
    "one that was not listed": (owner(provider_id="aws:///us-east-1a/i-00000000000000009"), LEFT, False),
}


@pytest.mark.parametrize(("one", "instance", "left"), CASES.values(), ids=CASES)
def test_who_has_left(one: Any, instance: Ec2Instance, left: bool) -> None:
    assert bool(left_reservations([one], [instance])) is left


def sync(server: WorldServer) -> None:
    relabeller = Relabeller(server.world.cluster, server.writer)
    sync_capacity_types(relabeller, lambda: [LEFT])


def test_all_labels_of_the_reservation_fall_from_node_and_claim() -> None:
    server = WorldServer(World())
    server.put(owner(), node("n", provider_id=LEFT.provider_id, labels=RESERVED))
    sync(server)
    assert server.claim("a").metadata.labels == ON_DEMAND
    assert server.node("n").metadata.labels == ON_DEMAND
    server.done.clear()
    sync(server)
    assert server.done == []


def test_a_node_that_has_not_registered_is_left_to_registration() -> None:
    server = WorldServer(World())
    server.put(owner(), node("n", provider_id=LEFT.provider_id, labels={}))
    sync(server)
    assert server.done == ["PATCH nodeclaims/a"]


def test_a_refused_write_is_tried_again() -> None:
    server = WorldServer(World())
    server.put(owner(), node("n", provider_id=LEFT.provider_id, labels=RESERVED))
    server.refuse["n"] = 500
    sync(server)
    assert server.claim("a").metadata.labels == RESERVED, "it is what brings us back"
    server.refuse.clear()
    sync(server)
    assert server.claim("a").metadata.labels == ON_DEMAND


GROUPED = {names.NODEPOOL_LABEL: "general", names.REGISTERED_LABEL: "true", labels.PLACEMENT_GROUP_ID: "pg-1"}


class Partitions:
    """A sync over one instance in a placement group."""

    def __init__(self, partition: int, state: str = "running") -> None:
        self.server = WorldServer(World())
        self.instance = replace(LEFT, partition=partition, state=state)
        self.asked = 0
        self.broken = False
        cluster = self.server.world.cluster
        self.hook = PartitionHook(self.server.world.clock)
        self.sync = PartitionSync(cluster.claims, self._get_all, Relabeller(cluster, self.server.writer), self.hook)
        self.server.put(
            owner(labels=GROUPED), node("n", provider_id=LEFT.provider_id, labels=GROUPED), claim("elsewhere")
        )

    def _get_all(self, provider_ids: Collection[str]) -> Mapping[str, Ec2Instance]:
        self.asked += 1
        if self.broken:
            raise CloudError("throttled")
        return dict.fromkeys(provider_ids, self.instance)

    @property
    def waits(self) -> bool:
        """Whether the Node is kept waiting."""
        return self.hook.wait(self.server.claim("a")) > 0

    def polled(self) -> str | None:
        """The label of the Node after one look, which the claim has too."""
        self.sync.poll()
        found = [
            one.metadata.labels.get(labels.PLACEMENT_GROUP_PARTITION)
            for one in (self.server.node("n"), self.server.claim("a"))
        ]
        assert found[0] == found[1]
        return found[0]


def test_a_partition_that_ec2_chose_is_labelled_once() -> None:
    one = Partitions(3)
    assert [one.polled(), one.polled()] == ["3", "3"]
    assert one.asked == 1


def test_a_group_without_partitions_is_asked_about_once() -> None:
    one = Partitions(0)
    assert [one.polled(), one.polled()] == [None, None]
    assert one.asked == 1


def test_an_instance_that_is_still_pending_is_asked_about_again() -> None:
    one = Partitions(0, "pending")
    one.polled()
    one.instance = replace(one.instance, partition=2, state="running")
    assert one.polled() == "2"


def test_instances_are_asked_about_together() -> None:
    one = Partitions(3)
    other = LEFT.provider_id.replace("0001", "0002")
    one.server.put(claim("b", provider_id=other, labels=GROUPED), node("m", provider_id=other, labels=GROUPED))
    assert one.polled() == "3"
    assert one.server.node("m").metadata.labels[labels.PLACEMENT_GROUP_PARTITION] == "3"
    assert one.asked == 1


def test_while_ec2_does_not_answer_it_is_tried_again() -> None:
    one = Partitions(3)
    one.broken = True
    with pytest.raises(CloudError, match="throttled"):
        one.polled()
    one.broken = False
    assert one.polled() == "3"


def test_a_node_waits_until_its_partition_is_known() -> None:
    one = Partitions(3)
    assert one.waits
    one.polled()
    assert not one.waits


def test_a_node_of_a_group_without_partitions_waits_until_that_is_known() -> None:
    one = Partitions(0, "pending")
    one.polled()
    assert one.waits
    one.instance = replace(one.instance, state="running")
    one.polled()
    assert not one.waits


def test_a_node_outside_of_placement_groups_waits_for_nothing() -> None:
    one = Partitions(0)
    assert one.hook.wait(claim("other", provider_id="aws:///us-east-1a/i-00000000000000007")) == 0


def test_while_ec2_does_not_answer_a_node_waits_for_a_minute() -> None:
    one = Partitions(3)
    assert one.waits
    one.server.world.clock.advance(PATIENCE_SECONDS - 1)
    assert one.waits
    one.server.world.clock.advance(1)
    assert not one.waits
