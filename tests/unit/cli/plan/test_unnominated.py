"""What a plan comes to if nominations are off."""

from collections.abc import Mapping

import pytest

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.cli.plan.unnominated import Unnominated, unnominated
from provisioner.cloudprovider.types import InstanceType
from provisioner.scheduling.attempts import setting
from provisioner.scheduling.judging import Design, DesignedNode
from provisioner.scheduling.nomination import unaided
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.problem import Bin
from provisioner.scheduling.result import Result
from tests.support.problems import app, instance_type, node, of_app, pods, pool, problem, spread

TYPES = tuple(
    instance_type(f"of-{cpus}", str(cpus), "64Gi", 0.1 * cpus, zones=("a", "b"), capacity_types=("on-demand",))
    for cpus in (5, 10)
)
SMALL, LARGE = of_app("small", "1"), of_app("large", "4")
BY_ZONE = of_app("zonal", "1", topology_spread_constraints=(spread(names.ZONE_LABEL, app("zonal")),))
LARGES, SMALLS = pods(1, LARGE, "large"), pods(6, SMALL, "small")


def planned(
    *nodes: DesignedNode,
    types: tuple[InstanceType, ...] = TYPES,
    limits: Mapping[str, str] | None = None,
    bins: tuple[Bin, ...] = (),
    **existing: tuple[Pod, ...],
) -> tuple[Prepared, Result]:
    """These nodes as a plan; `existing`: pods for nodes that are there."""
    every = [one for some in (*(each.pods for each in nodes), *existing.values()) for one in some]
    prepared = prepare(problem(every, pool(types=types, limits=limits), bins=bins))
    verdict, claims = prepared.settle(Design(nodes, existing))
    assert verdict.legal, verdict.faults
    return prepared, Result(claims, existing, ())


def designed(kind: str, *some: Pod, zone: str = "a") -> DesignedNode:
    return DesignedNode("default", kind, zone, "on-demand", some)


SPOILED = (designed("of-5", *LARGES, SMALLS[0]), designed("of-5", *SMALLS[1:]))


def test_pods_that_are_left_get_nodes_of_their_own() -> None:
    assert unnominated(*planned(*SPOILED)) == Unnominated(3, 1.5, left=1)


def test_where_nobody_is_left_nothing_changes() -> None:
    alike = planned(designed("of-5", *SMALLS[:5]), designed("of-5", SMALLS[5]))
    assert unnominated(*alike) == Unnominated(2, 1.0)
    assert unnominated(*planned()) == Unnominated(0, 0.0)


def test_a_limit_that_the_planned_nodes_use_up_leaves_pods_without_a_node() -> None:
    assert unnominated(*planned(*SPOILED, limits={"cpu": "10"})) == Unnominated(2, 1.0, left=1, without_node=1)
    assert unnominated(*planned(*SPOILED, limits={"cpu": "15"})) == Unnominated(3, 1.5, left=1)


def test_pods_that_are_left_take_what_room_there_is_on_nodes_that_run() -> None:
    """But not what the plan gives to others."""
    assert unnominated(*planned(*SPOILED, bins=(node("there", "4"),))) == Unnominated(2, 1.0, left=1)
    full = planned(*SPOILED, bins=(node("there", "4"),), there=pods(1, of_app("other", "1"), "other"))
    assert unnominated(*full) == Unnominated(3, 1.5, left=1)


def test_what_the_plan_puts_on_nodes_that_run_counts_in_spreads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four pods run in zone b by then, so the others have to go to zone a, which small pods fill."""
    monkeypatch.setattr(unaided, "FEW", 0)
    zonal, small = pods(8, BY_ZONE, "zonal"), pods(16, SMALL, "small")
    nodes = designed("of-10", *zonal[:4], *small[:6]), designed("of-10", *small[6:], zone="b")
    there = node("there", "4", labels={names.ZONE_LABEL: "b"})
    found = unnominated(*planned(*nodes, bins=(there,), there=zonal[4:]))
    assert found == Unnominated(3, 2.5, left=2)


def test_what_takes_too_long_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = planned(*SPOILED)
    with monkeypatch.context() as patched:
        patched.setattr(setting, "_STEPS_A_LOOK", 1)
        assert unnominated(*asked, expired=lambda: True) is None
        assert unnominated(*asked, expired=lambda: False) is not None
    monkeypatch.setattr(unaided, "MOST_LOOKS", 10)
    assert unnominated(*asked) is None


def test_nodes_for_pods_that_are_left_are_mended_as_the_plan_was() -> None:
    """First fit buys the wide one for two pods, which costs more than a node for each."""
    wide = instance_type("of-10", "10", "64Gi", 4.0, zones=("a",), capacity_types=("on-demand",))
    two, small = pods(2, LARGE, "large"), pods(7, SMALL, "small")
    nodes = (designed("of-5", two[0], small[0]), designed("of-5", two[1], small[1]), designed("of-5", *small[2:]))
    asked = planned(*nodes, types=(TYPES[0], wide))
    assert unnominated(*asked, improve=False) == Unnominated(4, 5.5, left=2)
    assert unnominated(*asked) == Unnominated(5, 2.5, left=2)
