"""Zonal shifts: which zones are avoided, and which NodePools are told."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.ec2 import labels
from provisioner.ec2.interruption.zonal_shift import ZonalShifts, shifts_of
from provisioner.ec2.interruption.zonal_shift_controller import ZonalShiftController, may_use
from tests.support.clock import NOON, FakeClock
from tests.support.cluster import World, pool
from tests.support.worldserver import WorldServer

SOON, LATER = NOON + timedelta(hours=1), NOON + timedelta(hours=2)


def shift(zone: str, until: datetime | None = SOON, status: str = "APPLIED") -> dict[str, Any]:
    return {"awayFrom": zone, "appliedStatus": status, **({"expiryTime": until} if until is not None else {})}


ANSWERS: dict[str, tuple[dict[str, Any], dict[str, datetime | None]]] = {
    "no shifts": ({}, {}),
    "one": ({"zonalShifts": [shift("use1-az1")]}, {"use1-az1": SOON}),
    "one that is not applied": ({"zonalShifts": [shift("use1-az1", status="NOT_APPLIED")]}, {}),
    "two of one zone": ({"zonalShifts": [shift("use1-az1", LATER), shift("use1-az1")]}, {"use1-az1": LATER}),
    "AWS's own": ({"autoshifts": [shift("use1-az2", None)]}, {"use1-az2": None}),
    "AWS's own beside ours": (
        {"zonalShifts": [shift("use1-az2")], "autoshifts": [shift("use1-az2", None)]},
        {"use1-az2": None},
    ),
}


@pytest.mark.parametrize(("answer", "want"), ANSWERS.values(), ids=ANSWERS)
def test_what_arc_says(answer: dict[str, Any], want: dict[str, datetime | None]) -> None:
    assert shifts_of(answer) == want


class Arc:
    """Clients whose only service answers what the test says."""

    answer: dict[str, Any]

    def client(self, service: str, region: str = "") -> "Arc":
        assert (service, region) == ("arc-zonal-shift", "")
        return self

    def get_managed_resource(self, *, resourceIdentifier: str) -> dict[str, Any]:  # noqa: N803
        assert resourceIdentifier == "arn:cluster"
        if not self.answer:
            raise ConnectionError
        return self.answer


def test_shifts_end_by_themselves_by_being_cancelled_and_not_by_silence() -> None:
    clock, arc = FakeClock(), Arc()
    arn = ""
    shifts = ZonalShifts(arc, lambda: arn, clock)
    assert shifts.refresh() == frozenset(), "nobody is asked about a cluster that is not known"
    assert not shifts.can_ask()
    arn = "arn:cluster"
    assert shifts.can_ask()
    assert shifts.zones() == frozenset()
    arc.answer = {"zonalShifts": [shift("use1-az1"), shift("use1-az2", LATER)]}
    assert shifts.refresh() == {"use1-az1", "use1-az2"}
    clock.advance(3600)
    assert shifts.zones() == {"use1-az2"}
    arc.answer = {}
    with pytest.raises(ConnectionError):
        shifts.refresh()
    assert "use1-az2" in shifts.zones()
    arc.answer = {"zonalShifts": [shift("use1-az3", LATER)]}
    shifts.refresh()
    assert shifts.zones() == {"use1-az3"}, "the other was cancelled while this one goes on"


def zoned(*zones: str) -> Any:
    return pool(requirements=({"key": names.ZONE_LABEL, "operator": "In", "values": list(zones)},))


USES: dict[str, tuple[Any, str, bool]] = {
    "a pool for all zones": (pool(), "us-east-1a", True),
    "a pool of this zone": (zoned("us-east-1a", "us-east-1b"), "us-east-1a", True),
    "a pool of another": (zoned("us-east-1b"), "us-east-1a", False),
    "a pool by zone id": (
        pool(requirements=({"key": labels.ZONE_ID, "operator": "NotIn", "values": ["use1-az1"]},)),
        "",
        False,
    ),
    "a pool by name, of a zone whose name is not known": (zoned("us-east-1b"), "", True),
    "a pool that nobody can read": (
        pool(requirements=({"key": "team", "operator": "Gt", "values": ["x"]},)),
        "us-east-1a",
        False,
    ),
}


@pytest.mark.parametrize(("one", "zone", "uses"), USES.values(), ids=USES)
def test_which_pools_a_zone_concerns(one: Any, zone: str, uses: bool) -> None:
    assert may_use(one, zone, "use1-az1") is uses


def test_pools_hear_when_a_shift_begins_and_when_it_ends() -> None:
    server = WorldServer(World())
    shifted: set[str] = set()
    changed: list[frozenset[str]] = []
    controller = ZonalShiftController(
        lambda: set(shifted),
        lambda: {"use1-az1": "us-east-1a"},
        lambda: [pool("everywhere"), zoned_pool("elsewhere", "us-east-1b")],
        server.recorder,
        changed=changed.append,
    )
    controller.poll()
    assert server.recorder.events == []
    shifted.add("use1-az1")
    controller.poll()
    controller.poll()
    shifted.clear()
    controller.poll()
    assert server.recorder.events == [
        ("NodePool", "everywhere", "Warning", "ZonalShiftActive"),
        ("NodePool", "everywhere", "Normal", "ZonalShiftCleared"),
    ]
    assert changed == [{"use1-az1"}, set()]


def test_shifts_are_asked_for_as_soon_as_the_cluster_is_known() -> None:
    asked: list[bool] = []
    known = False

    def refresh() -> frozenset[str]:
        asked.append(known)
        return frozenset()

    controller = ZonalShiftController(refresh, dict, list, WorldServer(World()).recorder, can_ask=lambda: known)
    assert controller.poll() == 1.0
    assert controller.poll() == 1.0
    known = True
    assert controller.poll() == 30.0
    assert asked == [True]


def zoned_pool(name: str, zone: str) -> Any:
    return pool(name, requirements=({"key": names.ZONE_LABEL, "operator": "In", "values": [zone]},))
