"""Capacity blocks that end."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.interruption import interruption_of
from provisioner.ec2 import labels
from provisioner.ec2.interruption.capacity_block_controller import expiring_blocks, mark_expiring
from provisioner.support.workers import WorkerPool
from tests.support.clock import NOON
from tests.support.cluster import World, claim
from tests.support.worldserver import WorldServer

RESERVED = {names.NODEPOOL_LABEL: "general", labels.RESERVATION_ID: "cr-1"}


def owner() -> Any:
    return claim("a", provider_id="aws:///us-east-1a/i-00000000000000001", labels=RESERVED)


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


def test_instances_of_a_block_that_ends_are_marked_once(workers: WorkerPool) -> None:
    server = WorldServer(World())
    server.put(owner(), claim("b", provider_id="aws:///us-east-1a/i-00000000000000002"))
    asked: list[Sequence[str]] = []

    def read(ids: Sequence[str]) -> list[Mapping[str, Any]]:
        asked.append(ids)
        return [reservation(39)]

    interruptions = server.interruptions(workers)
    for _ in range(2):
        mark_expiring(read, interruptions, server.world.cluster, server.world.clock)
    assert asked == [["cr-1"], ["cr-1"]]
    mark = interruption_of(server.claim("a").metadata.annotations)
    assert mark is not None
    assert (mark.evicts, mark.ends) == (NOON + timedelta(minutes=4), NOON + timedelta(minutes=9))
    assert server.done == ["PATCH nodeclaims/a"]


def test_without_reservations_nobody_is_asked(workers: WorkerPool) -> None:
    server = WorldServer(World())
    server.put(claim("b", provider_id="aws:///us-east-1a/i-00000000000000002"))

    def read(_: Sequence[str]) -> list[Mapping[str, Any]]:
        raise AssertionError

    interruptions: Any = None
    mark_expiring(read, interruptions, server.world.cluster, server.world.clock)
