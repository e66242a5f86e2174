"""Machines that leave their reservation, and reservations that end."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.interruption import interruption_of
from provisioner.cloudprovider.aws import labels
from provisioner.cloudprovider.aws.instances import Instance
from provisioner.controllers.interruption import Interruptions
from provisioner.controllers.metrics import Metrics
from provisioner.controllers.reservations import BlockExpiry, CapacityTypeSync, expiring_blocks, left_reservations
from provisioner.support.workers import Pool, pool
from tests.support.clock import NOON
from tests.support.cluster import World, claim, node
from tests.support.tinyserver import TinyServer

RESERVED = {
    names.NODEPOOL_LABEL: "general",
    names.REGISTERED_LABEL: "true",
    names.CAPACITY_TYPE_LABEL: "reserved",
    labels.RESERVATION_ID: "cr-1",
    labels.RESERVATION_TYPE: "default",
    labels.RESERVATION_INTERRUPTIBLE: "false",
}
ON_DEMAND = {names.NODEPOOL_LABEL: "general", names.REGISTERED_LABEL: "true", names.CAPACITY_TYPE_LABEL: "on-demand"}
LEFT = Instance("i-00000000000000001", "running", "m5.large", "us-east-1a", "on-demand")
STAYS = Instance("i-00000000000000001", "running", "m5.large", "us-east-1a", "reserved", reservation_id="cr-1")


def owner(**fields: Any) -> Any:
    return claim("a", **{"provider_id": LEFT.provider_id, "labels": RESERVED, **fields})


CASES: dict[str, tuple[Any, Instance, bool]] = {
    "a machine that has left": (owner(), LEFT, True),
    "one that stays": (owner(), STAYS, False),
    "one that never was in one": (owner(labels=ON_DEMAND), LEFT, False),
    "one that is going": (owner(deletionTimestamp=NOON.isoformat()), LEFT, False),
    "one that was not listed": (owner(provider_id="aws:///us-east-1a/i-00000000000000009"), LEFT, False),
}


@pytest.mark.parametrize(("one", "machine", "left"), CASES.values(), ids=CASES)
def test_who_has_left(one: Any, machine: Instance, left: bool) -> None:
    assert bool(left_reservations([one], [machine])) is left


def sync(server: TinyServer) -> None:
    CapacityTypeSync(lambda: [LEFT], server.world.cluster, server.client, server.writer).poll()


def test_all_labels_of_the_reservation_fall_from_node_and_claim() -> None:
    server = TinyServer(World())
    server.put(owner(), node("n", provider_id=LEFT.provider_id, labels=RESERVED))
    sync(server)
    assert server.claim("a").metadata.labels == ON_DEMAND
    assert server.node("n").metadata.labels == ON_DEMAND
    server.done.clear()
    sync(server)
    assert server.done == []


def test_a_node_that_has_not_registered_is_left_to_registration() -> None:
    server = TinyServer(World())
    server.put(owner(), node("n", provider_id=LEFT.provider_id, labels={}))
    sync(server)
    assert server.done == ["PATCH nodeclaims/a"]


def test_a_refused_write_is_tried_again() -> None:
    server = TinyServer(World())
    server.put(owner(), node("n", provider_id=LEFT.provider_id, labels=RESERVED))
    server.refuse["n"] = 500
    sync(server)
    assert server.claim("a").metadata.labels == RESERVED, "it is what brings us back"
    server.refuse.clear()
    sync(server)
    assert server.claim("a").metadata.labels == ON_DEMAND


def reservation(minutes: float | None, kind: str = "capacity-block", **fields: Any) -> dict[str, Any]:
    return {
        "CapacityReservationId": "cr-1",
        "ReservationType": kind,
        "InstanceMatchCriteria": "targeted",
        "State": "active",
        **({} if minutes is None else {"EndDate": NOON + timedelta(minutes=minutes)}),
        **fields,
    }


ENDS: dict[str, tuple[dict[str, Any], bool]] = {
    "a block that ends in forty minutes": (reservation(40), True),
    "a block with time left": (reservation(41), False),
    "a reservation that ends": (reservation(10, "default"), False),
    "a block without an end": (reservation(None), False),
    "a block that has ended": (reservation(0), False),
}


@pytest.mark.parametrize(("row", "expiring"), ENDS.values(), ids=ENDS)
def test_which_blocks_are_left(row: dict[str, Any], expiring: bool) -> None:
    assert list(expiring_blocks([row], NOON)) == (["cr-1"] if expiring else [])


@pytest.fixture
def workers() -> Iterator[Pool]:
    with pool(1) as threads:
        yield threads


def test_machines_of_a_block_that_ends_are_marked_once(workers: Pool) -> None:
    server = TinyServer(World())
    server.put(owner(), claim("b", provider_id="aws:///us-east-1a/i-00000000000000002"))
    asked: list[Sequence[str]] = []

    def read(ids: Sequence[str]) -> list[Mapping[str, Any]]:
        asked.append(ids)
        return [reservation(39)]

    interruptions = Interruptions(
        server.world.cluster,
        server.client,
        server.writer,
        server.recorder,
        Metrics(),
        workers,
        server.world.clock,
        plan=lambda _: None,
    )
    expiry = BlockExpiry(read, interruptions, server.world.cluster, server.world.clock)
    for _ in range(2):
        expiry.poll()
    assert asked == [["cr-1"], ["cr-1"]]
    mark = interruption_of(server.claim("a").metadata.annotations)
    assert mark is not None
    assert (mark.evicts, mark.ends) == (NOON + timedelta(minutes=4), NOON + timedelta(minutes=9))
    assert server.done == ["PATCH nodeclaims/a"]


def test_without_reservations_nobody_is_asked(workers: Pool) -> None:
    server = TinyServer(World())
    server.put(claim("b", provider_id="aws:///us-east-1a/i-00000000000000002"))

    def read(_: Sequence[str]) -> list[Mapping[str, Any]]:
        raise AssertionError

    interruptions: Any = None
    BlockExpiry(read, interruptions, server.world.cluster, server.world.clock).poll()
