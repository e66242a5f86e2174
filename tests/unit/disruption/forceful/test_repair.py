"""Node repair: core spec 6.15, row 114."""

from datetime import UTC, datetime, timedelta

import pytest

from provisioner.apis import names
from provisioner.apis.meta import Condition
from provisioner.cloudprovider.types import RepairPolicy
from provisioner.disruption.forceful.repair import RepairDecision, decide_repairs
from tests.support.clock import NOON
from tests.support.fleets import Fleet

HALF = timedelta(minutes=30)
POLICIES = (
    RepairPolicy(names.READY, "False", HALF),
    RepairPolicy(names.READY, "Unknown", HALF),
    RepairPolicy("AcceleratedHardwareReady", "False", timedelta(minutes=10)),
)


LONG_AGO = NOON - timedelta(minutes=2)


def said(kind: str, status: str, minutes: float) -> Condition:
    return Condition(type=kind, status=status, last_transition_time=NOON - timedelta(minutes=minutes))


def decide(fleet: Fleet, **conditions: tuple[Condition, ...]) -> RepairDecision:
    seen = {f"node-{name}": tuple((one, LONG_AGO) for one in some) for name, some in conditions.items()}
    return decide_repairs(fleet.snapshot(), POLICIES, seen)


CASES: dict[str, tuple[tuple[Condition, ...], str, datetime | None]] = {
    "healthy": ((said(names.READY, "True", 100),), "", None),
    "nothing is known": ((), "", None),
    "not ready for long": ((said(names.READY, "False", 31),), names.READY, None),
    "unknown for long": ((said(names.READY, "Unknown", 31),), names.READY, None),
    "not ready for a moment": ((said(names.READY, "False", 5),), "", NOON + timedelta(minutes=25)),
    "the earliest counts": (
        (said(names.READY, "False", 29), said("AcceleratedHardwareReady", "False", 11)),
        "AcceleratedHardwareReady",
        None,
    ),
    "not ready since the first": (
        (Condition(type=names.READY, status="False", last_transition_time=datetime.min.replace(tzinfo=UTC)),),
        names.READY,
        None,
    ),
    "a condition without a time": ((Condition(type=names.READY, status="False"),), "", NOON + timedelta(minutes=28)),
}


@pytest.mark.parametrize(("conditions", "why", "recheck"), CASES.values(), ids=CASES)
def test_what_is_broken(conditions: tuple[Condition, ...], why: str, recheck: datetime | None) -> None:
    fleet = Fleet()
    fleet.node("a")
    found = decide(fleet, a=conditions)
    assert [(one.key, one.condition) for one in found.repair] == ([("a", why)] if why else [])
    assert found.not_due == ({"a": recheck} if recheck else {})


@pytest.mark.parametrize(("sick", "repaired"), [(1, 1), (2, 2), (3, 0)])
def test_no_more_than_a_fifth_of_a_pool_is_taken_for_broken(sick: int, repaired: int) -> None:
    """Of six nodes two are a fifth, rounded up."""
    fleet = Fleet()
    for number in range(6):
        fleet.node(f"n{number}")
    found = decide(fleet, **{f"n{number}": (said(names.READY, "False", 40),) for number in range(sick)})
    assert len(found.repair) == repaired
    if not repaired:
        assert {str(one) for one in found.blocked} == {'More than 20% of the nodes of NodePool "general" are unhealthy'}
        assert {one.event for one in found.blocked} == {"NodeRepairBlocked"}


def test_those_that_are_sick_but_not_for_long_count_too() -> None:
    fleet = Fleet()
    for number in range(5):
        fleet.node(f"n{number}")
    old, young = (said(names.READY, "False", 40),), (said(names.READY, "False", 1),)
    assert decide(fleet, n0=old, n1=young).repair == ()


def test_a_node_that_stands_alone_is_judged_by_the_whole_cluster() -> None:
    fleet = Fleet()
    fleet.node("alone", pool="")
    for number in range(9):
        fleet.node(f"n{number}")
    sick = (said(names.READY, "False", 40),)
    assert [one.key for one in decide(fleet, alone=sick, n0=sick).repair] == ["alone", "n0"]
    assert [one.key for one in decide(fleet, alone=sick, n0=sick, n1=sick).repair] == ["n0", "n1"]
