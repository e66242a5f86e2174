"""Nodes whose pods have the webhook's stamp of a share on demand: the successors get the same stamp, and their room is planned for it."""

from typing import Any

import msgspec
import pytest

from provisioner.apis.pods import PodShape, decode_pod
from provisioner.apis.stamping import StampFacts
from provisioner.cloudprovider.types import InstanceType
from provisioner.disruption.methods import consolidation, drift
from tests.support.fleets import ABC, OLD, Fleet, gist, gone, several
from tests.support.problems import instance_type
from tests.unit.webhook.test_stamping import ON_DEMAND, SPOT, owned, stamped

SMALL, LARGE = (
    instance_type(name, cpu, "16Gi", price, zones=ABC)
    for name, cpu, price in (("small", "4", 0.2), ("large", "8", 0.4))
)
SIDES = pytest.mark.parametrize(("facts", "capacity_type"), [(ON_DEMAND, "on-demand"), (SPOT, "spot")])


def shape(facts: StampFacts) -> PodShape:
    """Of a pod of one CPU that the webhook stamped, as the provisioner reads it."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    stored = stamped(owned(containers=[container]), facts)
    stored["metadata"] |= {"name": "web-1-x", "namespace": "default"}
    return decode_pod(msgspec.json.encode(stored)).shape


def fleet(kind: InstanceType, facts: StampFacts, **more: Any) -> Fleet:
    """An on-demand node with two pods of a share."""
    made = Fleet(types=(SMALL, LARGE))
    made.node("a", several(2, "w", shape(facts)), kind=kind, **more)
    return made


@SIDES
def test_a_node_is_replaced_by_one_that_its_pods_successors_may_run_on(facts: StampFacts, capacity_type: str) -> None:
    (one,) = consolidation.propose(fleet(LARGE, facts).view()).proposals
    assert gist(one) == (("a",), ["small"], {})
    assert one.replacements[0].planned_capacity_type == capacity_type


@SIDES
def test_a_drifted_node_is_replaced_by_one_that_its_pods_successors_may_run_on(
    facts: StampFacts, capacity_type: str
) -> None:
    (one,) = drift.propose(fleet(SMALL, facts, drifted=OLD).view()).proposals
    assert [claim.planned_capacity_type for claim in one.replacements] == [capacity_type]


@pytest.mark.parametrize(("facts", "goes"), [(ON_DEMAND, []), (SPOT, [("a",)])])
def test_room_on_spot_is_none_for_pods_whose_successors_run_on_demand(
    facts: StampFacts, goes: list[tuple[str]]
) -> None:
    made = fleet(SMALL, facts)
    made.node("room", several(1, "x"), kind=SMALL, capacity_type="spot")
    spared = made.view(spared=["room"])
    assert gone(consolidation.propose(spared)) == goes
