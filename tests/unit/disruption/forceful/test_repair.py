"""Broken nodes that no command repairs: core spec 6.15, row 114."""

from datetime import timedelta

import pytest

from provisioner.apis import names
from provisioner.apis.meta import Condition
from provisioner.cloudprovider.types import RepairPolicy
from provisioner.disruption.forceful.repair import RepairDecision, decide_repairs
from provisioner.disruption.methods.repair import VETO
from provisioner.disruption.repair_breaker import repair_breaker
from provisioner.disruption.repair_policies import RepairPolicySet
from tests.support.clock import NOON
from tests.support.fleets import OLD, Fleet

HALF = timedelta(minutes=30)
POLICIES = RepairPolicySet(
    (
        RepairPolicy(names.READY, "False", HALF, termination_grace_period=timedelta(minutes=7)),
        RepairPolicy("AcceleratedHardwareReady", "False", timedelta(minutes=10)),
    )
)
LONG_AGO = NOON - timedelta(minutes=2)
SICK = Condition(type=names.READY, status="False", last_transition_time=NOON - timedelta(minutes=40))
YOUNG = Condition(type=names.READY, status="False", last_transition_time=NOON - timedelta(minutes=1))


def decide(fleet: Fleet, legacy: bool = True, /, **conditions: Condition) -> RepairDecision:
    found = {name: POLICIES.illness([(one, LONG_AGO)], OLD) for name, one in conditions.items()}
    ill = {name: one for name, one in found.items() if one is not None}
    snapshot = fleet.snapshot()
    return decide_repairs(snapshot, ill, repair_breaker(snapshot, ill, domains=not legacy), legacy=legacy)


@pytest.mark.parametrize(("sick", "repaired"), [(1, 1), (2, 2), (3, 0)])
def test_no_more_than_a_fifth_of_a_pool_is_taken_for_broken(sick: int, repaired: int) -> None:
    """Of six nodes two are a fifth, rounded up."""
    fleet = Fleet()
    for number in range(6):
        fleet.node(f"n{number}")
    found = decide(fleet, **dict.fromkeys((f"n{number}" for number in range(sick)), SICK))
    assert len(found.repair) == repaired
    if not repaired:
        assert {str(one) for one in found.blocked} == {'More than 20% of the nodes of NodePool "general" are unhealthy'}
        assert {one.event for one in found.blocked} == {"NodeRepairBlocked"}


def test_those_that_are_sick_but_not_for_long_count_too() -> None:
    fleet = Fleet()
    for number in range(5):
        fleet.node(f"n{number}")
    found = decide(fleet, n0=SICK, n1=YOUNG)
    assert found.repair == ()
    assert found.not_due == {"n1": NOON + timedelta(minutes=28)}


def test_a_node_that_stands_alone_is_judged_by_the_whole_cluster() -> None:
    fleet = Fleet()
    fleet.node("alone", pool="")
    for number in range(9):
        fleet.node(f"n{number}")
    assert [one.key for one in decide(fleet, alone=SICK, n0=SICK).repair] == ["alone", "n0"]
    assert [one.key for one in decide(fleet, alone=SICK, n0=SICK, n1=SICK).repair] == ["n0", "n1"]


def test_nodes_of_nodepools_that_stay_are_the_business_of_commands() -> None:
    fleet = Fleet()
    for name in "abcdefghi":
        fleet.node(name, pool="" if name == "a" else "general")
    assert [one.key for one in decide(fleet, a=SICK, b=SICK).repair] == ["a", "b"]
    (one,) = decide(fleet, False, a=SICK, b=SICK).repair
    assert (one.key, one.condition, one.status, one.grace) == ("a", names.READY, "False", timedelta(minutes=7))


@pytest.mark.parametrize("legacy", [False, True])
def test_do_not_repair_keeps_a_node_but_from_legacy_repair(legacy: bool) -> None:
    fleet = Fleet()
    fleet.node("a", pool="", do_not_repair=True)
    found = decide(fleet, legacy, a=SICK)
    assert len(found.repair) == legacy
    assert [one.message for one in found.blocked] == ([] if legacy else [VETO])
