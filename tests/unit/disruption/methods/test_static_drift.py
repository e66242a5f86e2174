"""Drift of static pools: core spec 6.7, row 12."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.disruption.methods import drift, static_drift
from tests.support.clock import NOON
from tests.support.fleets import Fleet, gone, pool, several, told


def a_pool(nodes: int, drifted: int, **spec: Any) -> Fleet:
    fleet = Fleet([pool(**{"replicas": nodes, **spec})])
    for number in range(nodes):
        since = NOON - timedelta(minutes=1 + number) if number < drifted else None
        fleet.node(f"n{number}", several(1, f"p{number}"), drifted=since)
    return fleet


def test_each_drifted_node_gets_one_from_the_template() -> None:
    found = static_drift.propose(a_pool(3, 2).view()).proposals
    assert [(one.candidates, one.reason, one.method) for one in found] == [
        (("n1",), "Drifted", "static_drift"),
        (("n0",), "Drifted", "static_drift"),
    ]
    claim = found[0].replacements[0]
    assert (len(claim.pods), claim.planned_type, dict(claim.charge)) == (0, "small", {names.NODES: 1})
    assert names.INSTANCE_TYPE_LABEL not in claim.requirements, "the provider chooses"


LEFT: dict[str, tuple[dict[str, Any], int]] = {
    "nothing in the way": ({}, 3),
    "a budget of two": ({"disruption": {"budgets": [{"nodes": "2"}]}}, 2),
    "a budget of none": ({"disruption": {"budgets": [{"nodes": "0"}]}}, 0),
    "a limit that leaves one": ({"limits": {"nodes": "5"}}, 1),
    "a limit that is reached": ({"limits": {"nodes": "4"}}, 0),
    "more nodes than replicas": ({"replicas": 3}, 0),
}


@pytest.mark.parametrize(("spec", "want"), LEFT.values(), ids=LEFT)
def test_how_many_go(spec: dict[str, Any], want: int) -> None:
    assert len(static_drift.propose(a_pool(4, 3, **spec).view()).proposals) == want


NOT_READY = {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": NOON.isoformat()}]}


def test_a_pool_that_makes_no_nodes_keeps_those_that_it_has() -> None:
    """A replacement would be refused, and its node closed and opened again for it."""
    answer = static_drift.propose(a_pool(1, 1, status=NOT_READY).view())
    assert (answer.proposals, told(answer)) == ((), {"n0": 'NodePool "general" is not Ready'})


def test_a_pool_that_is_being_deleted_replaces_nothing() -> None:
    fleet = a_pool(1, 1)
    (one,) = fleet.pools
    fleet.pools = [
        msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, deletion_timestamp=NOON))
    ]
    assert static_drift.propose(fleet.view()).proposals == ()


def test_a_limit_that_is_reached_is_said() -> None:
    answer = static_drift.propose(a_pool(2, 1, limits={"nodes": "2"}).view())
    assert told(answer) == {"n0": 'NodePool "general" has reached its limit for nodes'}


def test_requirements_that_nothing_meets_are_said() -> None:
    wanted = ({"key": names.ARCH_LABEL, "operator": "In", "values": ["riscv"]},)
    answer = static_drift.propose(a_pool(1, 1, requirements=wanted).view())
    assert told(answer) == {"n0": 'No instance type meets the requirements of NodePool "general"'}


def test_nodes_that_drift_together_begin_together() -> None:
    """Else pods of the first go to the second, which takes pods until it is found drifted too, and are evicted twice."""
    hashed = {names.NODEPOOL_HASH: "1", names.NODEPOOL_HASH_VERSION: "v3"}
    static = pool(replicas=2)
    metadata = msgspec.structs.replace(static.metadata, annotations={**hashed, names.NODEPOOL_HASH: "2"})
    fleet = Fleet([msgspec.structs.replace(static, metadata=metadata)])
    since = NOON - timedelta(seconds=1)
    found = {
        "type": names.DRIFTED,
        "status": "True",
        "reason": "NodePoolDrifted",
        "lastTransitionTime": since.isoformat(),
    }
    fleet.node("a", several(1, "p"), annotations=hashed, conditions=[found])
    fleet.node("b", several(1, "q"), annotations=hashed)
    answer = static_drift.propose(fleet.view())
    assert (answer.proposals, answer.recheck_at) == ((), since + drift.WAVE)
    fleet.at = since + drift.WAVE
    assert gone(static_drift.propose(fleet.view())) == [("a",)], "nobody waits for a verdict that does not come"


def test_a_command_that_is_under_way_counts() -> None:
    """The replacement is there, and the node that it replaces: one more than replicas."""
    fleet = a_pool(3, 3)
    fleet.node("new")
    assert static_drift.propose(fleet.view(under_way=["n0"])).proposals == ()


def test_dynamic_pools_are_not_its_business() -> None:
    fleet = Fleet()
    fleet.node("a", drifted=NOON)
    assert gone(static_drift.propose(fleet.view())) == []
