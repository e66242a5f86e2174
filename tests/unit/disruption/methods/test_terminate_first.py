"""Which nodes go before their successors are launched, and how."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.command import Awaited, TerminateFirst
from provisioner.cloudprovider.types import CapKind, InstanceType, Offering, StructuralCap
from provisioner.disruption.methods import drift, repair, static_drift
from provisioner.disruption.view import DisruptionSettings, MethodAnswer
from provisioner.values.requirement import Requirement, Requirements
from tests.support.clock import NOON
from tests.support.fleets import MEDIUM, Fleet, gone, pool, several, told
from tests.support.problems import apart, app, of_app
from tests.unit.disruption.methods.test_repair import ill, ready_pool

BOTH = frozenset({names.REASON_DRIFTED, names.REASON_UNHEALTHY})
GROUP = StructuralCap(CapKind.PLACEMENT_GROUP, "pg-1 in a")
CR = StructuralCap(CapKind.RESERVATION, "cr-1")


def full_in(zone: str, **more: Any) -> Callable[[Offering], Offering]:
    return lambda one: (
        replace(one, full=GROUP, **more) if one.zone == zone else replace(one, available=False, price=1e6)
    )


def of(change: Callable[[Offering], Offering], *kinds: InstanceType) -> tuple[InstanceType, ...]:
    return tuple(replace(one, offerings=tuple(map(change, one.offerings))) for one in kinds or (MEDIUM,))


def reserved(left: int = 0, **more: Any) -> tuple[InstanceType, ...]:
    """One type, in one reservation, and on demand where that is asked for."""
    labels = {names.ZONE_LABEL: "a", names.CAPACITY_TYPE_LABEL: "reserved"}
    full = CR if left < 1 else None
    mine = Offering(Requirements.from_labels(labels), 0.0001, **{"reservation_capacity": left, "full": full, **more})
    own = Requirements.of(
        [MEDIUM.requirements[key] for key in MEDIUM.requirements if key != names.CAPACITY_TYPE_LABEL]
        + [Requirement.of(names.CAPACITY_TYPE_LABEL, "In", ["reserved", "on-demand"])]
    )
    return (replace(MEDIUM, requirements=own, offerings=(mine, *MEDIUM.offerings)),)


ONLY_RESERVED = ({"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["reserved"]},)


def fleet_of(
    types: tuple[InstanceType, ...], *, on: bool = True, node: Mapping[str, Any] | None = None, **spec: Any
) -> Fleet:
    made = Fleet([ready_pool(pool(**spec))], types=types)
    made.settings = DisruptionSettings(first_for=BOTH if on else frozenset())
    made.node("a", several(2, "w"), drifted=NOON - timedelta(hours=1), **(node or {}))
    return made


METHODS = {"drift": drift.propose, "repair": repair.propose}


def asked(fleet: Fleet, reason: str) -> MethodAnswer:
    if reason == "repair":
        fleet.ill["a"] = ill()
    method = METHODS[reason]
    if fleet.pools[0].spec.replicas is not None and reason == "drift":
        method = static_drift.propose
    return method(fleet.view())


DYNAMIC: dict[str, tuple[Fleet, StructuralCap | None]] = {
    "a placement group that is full": (fleet_of(of(full_in("a"))), GROUP),
    "the gate is off": (fleet_of(of(full_in("a")), on=False), None),
    "the node is in another zone": (fleet_of(of(full_in("a")), node={"zone": "b"}), None),
    "another zone is short": (
        fleet_of(of(lambda one: replace(one, full=GROUP) if one.zone == "a" else replace(one, available=False))),
        None,
    ),
    "a full reservation, and nothing else is asked for": (
        fleet_of(reserved(), node={"capacity_type": "reserved"}, requirements=ONLY_RESERVED),
        CR,
    ),
    "a reservation that expires": (
        fleet_of(reserved(available=False), node={"capacity_type": "reserved"}, requirements=ONLY_RESERVED),
        None,
    ),
    "a launch said that it is full": (
        fleet_of(reserved(full=None), node={"capacity_type": "reserved"}, requirements=ONLY_RESERVED),
        None,
    ),
    "the node is not of the reservation": (fleet_of(reserved(), requirements=ONLY_RESERVED), None),
}


@pytest.mark.parametrize("reason", METHODS)
@pytest.mark.parametrize(("fleet", "want"), DYNAMIC.values(), ids=DYNAMIC)
def test_dynamic_pools(fleet: Fleet, want: StructuralCap | None, reason: str) -> None:
    answer = asked(fleet, reason)
    firsts = [(one.first.kind, one.first.name) for one in answer.proposals if one.first is not None]
    assert firsts == ([tuple(want)] if want else [])
    assert len(answer.proposals) == len(firsts)
    assert all(len(one.replacements) == 1 for one in answer.proposals)
    assert bool(told(answer)) is (want is None)


@pytest.mark.parametrize("reason", METHODS)
def test_where_there_is_room_the_replacement_comes_first(reason: str) -> None:
    for fleet in (
        fleet_of(of(lambda one: replace(one, full=GROUP) if one.zone == "a" else one)),
        fleet_of(reserved(), node={"capacity_type": "reserved"}),
        fleet_of(reserved(1), node={"capacity_type": "reserved"}, requirements=ONLY_RESERVED),
    ):
        (one,) = asked(fleet, reason).proposals
        assert one.first is None


def test_one_place_is_given_back_and_no_more() -> None:
    """Pods that need two new nodes stay where they are."""
    fleet = fleet_of(of(full_in("a")))
    fleet.nodes.clear()
    alone = of_app("w", "500m", "512Mi", affinity=apart(names.HOSTNAME_LABEL, app("w")))
    fleet.node("a", several(2, "w", alone), drifted=NOON - timedelta(hours=1))
    assert gone(asked(fleet, "drift")) == []
    fleet.nodes.clear()
    fleet.node("a", several(1, "w", alone), drifted=NOON - timedelta(hours=1))
    assert gone(asked(fleet, "drift")) == [("a",)]


STATIC: dict[str, tuple[Fleet, StructuralCap | None, str]] = {
    "a node is one more than the limit": (
        fleet_of(of(lambda one: one), replicas=1, limits={"nodes": "1"}),
        StructuralCap(CapKind.NODE_LIMIT, "general"),
        "",
    ),
    "the gate is off": (
        fleet_of(of(lambda one: one), on=False, replicas=1, limits={"nodes": "1"}),
        None,
        'NodePool "general" has reached its limit for nodes',
    ),
    "the limit leaves room": (fleet_of(of(lambda one: one), replicas=1, limits={"nodes": "2"}), None, "replaced"),
    "a full reservation": (
        fleet_of(reserved(), replicas=1, node={"capacity_type": "reserved"}, requirements=ONLY_RESERVED),
        CR,
        "",
    ),
    "a full reservation, and the gate is off": (
        fleet_of(reserved(), on=False, replicas=1, node={"capacity_type": "reserved"}, requirements=ONLY_RESERVED),
        None,
        "capacity reservation cr-1 is full",
    ),
    "a full reservation of others": (
        fleet_of(reserved(), replicas=1, requirements=ONLY_RESERVED),
        None,
        "capacity reservation cr-1 is full, and the node does not count there",
    ),
    "only a shortage": (
        fleet_of(of(lambda one: replace(one, available=False)), replicas=1),
        None,
        'No instance type meets the requirements of NodePool "general"',
    ),
}


@pytest.mark.parametrize("reason", METHODS)
@pytest.mark.parametrize(("fleet", "want", "why"), STATIC.values(), ids=STATIC)
def test_static_pools(fleet: Fleet, want: StructuralCap | None, why: str, reason: str) -> None:
    answer = asked(fleet, reason)
    if why == "replaced":
        assert [one.first for one in answer.proposals] == [None]
    elif want is None:
        assert (answer.proposals, told(answer)) == ((), {"a": why})
    else:
        (one,) = answer.proposals
        assert one.first is not None
        assert (one.first.kind, one.first.name) == want
        assert (len(one.replacements), one.replacements[0].pods) == (1, ())


def test_a_successor_that_waits_is_no_node_yet() -> None:
    """Two of a pool of two at its limit: both may go, and a successor that waits takes no room from the other."""
    fleet = fleet_of(of(lambda one: one), replicas=2, limits={"nodes": "2"})
    fleet.node("b", several(1, "x"), drifted=NOON - timedelta(minutes=1))
    assert [one.first is not None for one in asked(fleet, "drift").proposals] == [True, True]
    waits = {names.AWAITS_ANNOTATION: Awaited("a", "uid-a", "node-limit", "general").to_text()}
    made = fleet.node("new", annotations=waits)
    assert made.claim is not None
    status = msgspec.structs.replace(made.claim.status, provider_id="")
    fleet.nodes[-1] = replace(made, claim=msgspec.structs.replace(made.claim, status=status), provider_id="")
    fleet.pools = [ready_pool(pool(replicas=3, limits={"nodes": "3"}))]
    assert [one.first is None for one in asked(fleet, "drift").proposals] == [True, False], "one more has room"


BOUNDS: dict[str, tuple[dict[str, Any], timedelta | None, int | None]] = {
    "nothing bounds it: ten minutes": ({}, None, 600),
    "--drain-timeout": ({}, timedelta(minutes=3), 180),
    "a terminationGracePeriod forces": ({"claim_spec": {"terminationGracePeriod": "1m"}}, timedelta(minutes=3), None),
}


@pytest.mark.parametrize(("node", "timeout", "want"), BOUNDS.values(), ids=BOUNDS)
def test_what_bounds_the_drain_of_drift(node: dict[str, Any], timeout: timedelta | None, want: int | None) -> None:
    fleet = fleet_of(of(full_in("a")), node=node)
    fleet.settings = replace(fleet.settings, drain_timeout=timeout)
    (one,) = asked(fleet, "drift").proposals
    assert one.first == TerminateFirst(*GROUP, bound_seconds=want)


def test_a_repair_policy_forces() -> None:
    (one,) = asked(fleet_of(of(full_in("a"))), "repair").proposals
    assert (one.first, one.repair is not None) == (TerminateFirst(*GROUP), True)


def test_drift_does_not_begin_while_a_pod_cannot_be_evicted() -> None:
    fleet = fleet_of(of(full_in("a")))
    fleet.nodes.clear()
    fleet.node("a", several(1, "w", annotations={names.DO_NOT_DISRUPT: "true"}), drifted=NOON - timedelta(hours=1))
    assert gone(asked(fleet, "drift")) == []
