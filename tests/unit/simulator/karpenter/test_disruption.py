"""Karpenter's disruption: core spec 6.1-6.13."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.cloudprovider.types import InstanceType
from provisioner.disruption.view import DisruptionSettings
from provisioner.simulator.karpenter.disruption import (
    MOST_TOGETHER,
    consolidate,
    disrupt,
    drifted,
    empty,
    still_holds,
)
from provisioner.values.resources import EMPTY
from tests.support.clock import NOON
from tests.support.fleets import ABC, LARGE, MEDIUM, SMALL, TINY, TYPES, Fleet, budget, gist, pool, running, several
from tests.support.problems import instance_type, pod, shape

HALF = shape("500m", "512Mi")
SPOT = DisruptionSettings(spot_to_spot=True)


def two(**of_pool: Any) -> Fleet:
    """A full node, and one with a pod that fits on it."""
    fleet = Fleet([pool(**of_pool)])
    fleet.node("whole", several(3, "f"))
    fleet.node("slack", several(1, "s"), kind=SMALL)
    return fleet


def spot_types(cheaper: int) -> tuple[InstanceType, ...]:
    """So many spot types that cost less than the first."""
    prices = [0.4, *(0.1 + number / 1000 for number in range(cheaper))]
    return tuple(
        instance_type(f"s{number:02d}", "4", "8Gi", 2 * price, zones=ABC, capacity_types=("spot",))
        for number, price in enumerate(prices)
    )


def command(fleet: Fleet, **how: Any) -> tuple[str, str, tuple[str, ...]] | None:
    """Its reason, its method, and who goes."""
    found = disrupt(fleet.view(**how), skipped=()).command
    return None if found is None else (found.reason, found.method, found.candidates)


# --- emptiness


def test_all_empty_nodes_that_budgets_allow_go_in_one_command_the_dearest_first() -> None:
    fleet = Fleet([pool(disruption={"budgets": [{"nodes": "2"}]})])
    for name, kind in (("a", SMALL), ("b", LARGE), ("c", MEDIUM), ("d", SMALL)):
        fleet.node(name, kind=kind)
    assert command(fleet) == ("Empty", "empty", ("b", "c"))


def test_emptiness_comes_before_drift_and_consolidation() -> None:
    fleet = two()
    fleet.node("old", several(1, "o"), drifted=NOON)
    assert command(fleet) == ("Drifted", "drift", ("old",))
    fleet.node("none")
    assert command(fleet) == ("Empty", "empty", ("none",))


def test_a_pass_goes_on_behind_the_method_whose_command_did_not_hold() -> None:
    fleet = two()
    fleet.node("old", several(1, "o"), drifted=NOON)
    fleet.node("none")
    found = [disrupt(fleet.view(), skipped=(), after=one).command for one in ("", "empty", "drift", "multi", "single")]
    assert [one.method if one is not None else "" for one in found] == ["empty", "drift", "multi", "single", ""]


def test_pods_of_very_low_priority_leave_a_node_empty() -> None:
    """[Q]: their disruption costs nothing, so they are not simulated."""
    fleet = Fleet()
    fleet.node("pauses", several(2, "p", shape(priority=-(2**25))))
    assert command(fleet) == ("Empty", "empty", ("pauses",))


@pytest.mark.parametrize(
    "of_pool",
    [{"consolidateAfter": "Never"}, {"consolidateAfter": "48h"}, {"budgets": [{"nodes": "0", "reasons": ["Empty"]}]}],
    ids=["never", "not yet", "no budget"],
)
def test_an_empty_node_stays(of_pool: Mapping[str, Any]) -> None:
    fleet = Fleet([pool(disruption=of_pool)])
    fleet.node("none")
    assert empty(fleet.view()) is None


# --- drift


def test_the_longest_drifted_goes_first_and_one_at_a_time() -> None:
    fleet = Fleet()
    fleet.node("young", several(1, "y"), drifted=NOON - timedelta(minutes=1))
    fleet.node("old", several(4, "o"), drifted=NOON - timedelta(hours=1))
    found = drifted(fleet.view())
    assert found is not None
    assert gist(found) == (("old",), ["small"], {"young": 3})


def test_a_drifted_node_gets_as_many_successors_as_its_pods_take() -> None:
    fleet = Fleet(types=(TINY,))
    fleet.node("old", several(2, "o"), kind=SMALL, drifted=NOON)
    found = drifted(fleet.view())
    assert found is not None
    assert gist(found) == (("old",), ["tiny", "tiny"], {})


def test_a_drifted_node_whose_pods_have_no_place_is_passed_over() -> None:
    fleet = Fleet(types=(SMALL,))
    fleet.node("huge", several(1, "h", shape("6")), kind=LARGE, drifted=NOON - timedelta(hours=1))
    fleet.node("next", several(1, "n", shape("2")), drifted=NOON)
    found = drifted(fleet.view())
    assert found is not None
    assert found.candidates == ("next",)


def test_a_grace_period_lets_drift_pass_pods_that_object() -> None:
    fleet = Fleet()
    stubborn = running("s", annotations={names.DO_NOT_DISRUPT: "true"})
    fleet.node("a", (stubborn,), drifted=NOON)
    assert drifted(fleet.view()) is None
    fleet.nodes.clear()
    fleet.node("a", (stubborn,), drifted=NOON, claim_spec={"terminationGracePeriod": "1h"})
    found = drifted(fleet.view())
    assert found is not None
    assert not found.replacements  # the pod is not moved; it ends with its node


# --- consolidation


def test_a_node_whose_pods_fit_elsewhere_goes() -> None:
    found = disrupt(two().view(), skipped=()).command
    assert found is not None
    assert gist(found) == (("slack",), [], {"whole": 1})
    assert found.saving_usd_per_hour == pytest.approx(0.1)


def test_any_saving_pays() -> None:
    fleet = Fleet(types=(SMALL, instance_type("same", "2", "4Gi", 0.0999, zones=ABC, capacity_types=("on-demand",))))
    fleet.node("a", several(2, "w"), kind=SMALL)
    found = disrupt(fleet.view(), skipped=()).command
    assert found is not None
    assert (found.method, found.replacements[0].instance_types) == ("single", ("same",))


def test_a_pod_budget_that_allows_nothing_keeps_the_node() -> None:
    fleet = Fleet(budgets=[budget("guard", "s", 0)])
    fleet.node("slack", several(1, "s", shape(labels={"app": "s"})), kind=LARGE)
    assert command(fleet) is None
    fleet.budgets = [budget("guard", "s", 1)]
    assert command(fleet) == ("Underutilized", "single", ("slack",))


def test_nodes_within_their_own_consolidateafter_take_no_pods() -> None:
    """Of another pool, which waits; without room elsewhere the node stays."""
    fleet = Fleet([pool(), pool("calm", disruption={"consolidateAfter": "48h"})], types=(TINY, *TYPES))
    fleet.node("slack", several(1, "s"), kind=TINY)
    fleet.node("room", several(1, "r"), kind=LARGE, of="calm")
    assert command(fleet) is None
    fleet.pools[1] = pool("calm", disruption={"consolidateAfter": "Never"})
    assert command(fleet) == ("Underutilized", "single", ("slack",))


def test_nodes_that_are_not_initialized_take_no_pods_of_others() -> None:
    fleet = Fleet(types=(TINY, *TYPES))
    fleet.node("slack", several(1, "s"), kind=TINY)
    fleet.node("comes", kind=LARGE, initialized=False)
    assert command(fleet) is None


def test_pods_that_wait_need_their_nodes_first() -> None:
    """Together with the pod that waits, the pods of the node take as dear a one, so it stays."""
    fleet = Fleet()
    fleet.node("big", several(2, "w"), kind=MEDIUM)
    assert command(fleet) is not None
    fleet.pending = [pod("waits", shape("2"))]
    assert command(fleet) is None


def several_at_half(count: int) -> Fleet:
    """Nodes of two CPUs, each with a pod of half a CPU."""
    fleet = Fleet()
    for number in range(count):
        fleet.node(f"n{number:03d}", several(1, f"p{number}", HALF), kind=SMALL)
    return fleet


def test_several_nodes_go_for_one_or_none_before_single_ones() -> None:
    found = disrupt(several_at_half(4).view(), skipped=()).command
    assert found is not None
    assert (found.method, found.candidates, len(found.replacements)) == ("multi", ("n000", "n001", "n002"), 0)


def test_no_more_than_a_hundred_and_one_go_together() -> None:
    found = disrupt(several_at_half(2 * MOST_TOGETHER).view(), skipped=()).command
    assert found is not None
    assert len(found.candidates) == MOST_TOGETHER + 1


def test_budgets_cut_what_goes_together() -> None:
    fleet = several_at_half(10)
    found = disrupt(fleet.view(allowed=lambda *_: 3), skipped=()).command
    assert found is not None
    assert found.candidates == ("n000", "n001", "n002")


def test_several_are_not_replaced_by_one_of_their_own_type() -> None:
    """Two small nodes whose pods need one small node: that one could have stayed. A cheaper type may come."""
    fleet = Fleet(types=(SMALL,))
    for name in ("a", "b"):
        fleet.node(name, several(1, name, shape("1")), kind=SMALL, room=EMPTY)
    assert command(fleet) is None


def test_the_spoiler_of_a_prefix_spoils_every_longer_one() -> None:
    """[W]: the dearest node cannot go, so no prefix pays, and one node goes by itself."""
    fleet = several_at_half(3)
    fleet.node("dear", several(1, "d", shape("7")), kind=replace(LARGE, name="large"))
    found = consolidate(fleet.view(), skipped=()).command
    assert found is not None
    assert found.method == "single"


def test_spot_is_replaced_by_spot_only_with_the_gate_and_fifteen_cheaper_types() -> None:
    def fleet(cheaper: int, settings: DisruptionSettings) -> Fleet:
        types = spot_types(cheaper)
        found = Fleet(types=types, settings=settings)
        found.node("spot", several(2, "w"), kind=types[0], capacity_type="spot")
        return found

    assert command(fleet(20, DisruptionSettings())) is None
    assert command(fleet(14, SPOT)) is None
    found = disrupt(fleet(20, SPOT).view(), skipped=()).command
    assert found is not None
    assert (found.method, len(found.replacements[0].instance_types)) == ("single", 15)


def test_of_several_spot_nodes_fewer_types_do() -> None:
    types = spot_types(3)
    fleet = Fleet(types=types, settings=SPOT)
    for name in ("a", "b"):
        fleet.node(name, several(2, name, HALF), kind=types[0], capacity_type="spot", room=EMPTY)
    found = disrupt(fleet.view(), skipped=()).command
    assert found is not None
    assert (found.method, len(found.replacements)) == ("multi", 1)


def test_balanced_pools_refuse_what_disrupts_more_than_it_saves() -> None:
    """Ten pods of a node that is hardly worth anything."""
    fleet = Fleet([pool(disruption={"consolidationPolicy": "Balanced"})], types=(TINY, *TYPES))
    fleet.node("dear", several(1, "d", shape("7")), kind=LARGE)
    fleet.node("crowd", several(10, "c", shape("100m", "64Mi")), kind=TINY)
    assert command(fleet) is None
    fleet.pools = [pool()]
    assert command(fleet) == ("Underutilized", "single", ("crowd",))


def test_balanced_pools_look_at_what_is_saved_not_at_what_could_be() -> None:
    """To delete the node would pay; the cheaper one that it needs takes most of that."""
    fleet = Fleet([pool(disruption={"consolidationPolicy": "Balanced"})], types=(TINY, *TYPES))
    fleet.node("dear", several(1, "d", shape("3500m")), kind=MEDIUM)
    fleet.node("light", several(1, "l", shape("600m")), kind=SMALL)
    assert command(fleet) is None
    fleet.pools = [pool()]
    assert command(fleet) == ("Underutilized", "single", ("light",))


def test_nodes_that_were_refused_before_can_be_skipped() -> None:
    fleet = Fleet(types=(SMALL,))
    fleet.node("right", several(2, "w"), kind=SMALL)
    assert consolidate(fleet.view(), skipped=()).refused == {"right"}
    assert consolidate(fleet.view(), skipped={"right"}).refused == frozenset()


# --- 15 seconds later


def test_of_empty_nodes_those_go_that_are_still_empty() -> None:
    fleet = Fleet()
    fleet.node("a")
    fleet.node("b")
    found = disrupt(fleet.view(), skipped=()).command
    assert found is not None
    fleet.nodes.clear()
    fleet.node("a")
    fleet.node("b", several(1, "b"))
    later = still_holds(fleet.view(), found)
    assert later is not None
    assert later.candidates == ("a",)
    fleet.nodes.clear()
    assert still_holds(fleet.view(), found) is None


@pytest.mark.parametrize("what", ["nothing", "room", "budget", "nominated", "gone"])
def test_consolidation_is_called_off_where_anything_has_changed(what: str) -> None:
    found = disrupt(two().view(), skipped=()).command
    assert found is not None
    later = two()
    match what:
        case "room":
            later.nodes[0] = replace(later.nodes[0], room=EMPTY)
        case "nominated":
            later.nodes[1] = replace(later.nodes[1], nominated=True)
        case "gone":
            later.nodes.pop()
        case _:
            pass
    view = later.view(allowed=lambda *_: 0) if what == "budget" else later.view()
    assert (still_holds(view, found) is found) == (what == "nothing")


def test_drift_is_not_looked_at_again() -> None:
    fleet = Fleet()
    fleet.node("old", several(1, "o"), drifted=NOON)
    found = disrupt(fleet.view(), skipped=()).command
    assert found is not None
    assert still_holds(Fleet().view(), found) is found


def test_without_a_world_only_what_asks_nothing_is_done() -> None:
    fleet = two()
    assert disrupt(replace(fleet.view(), prepared=None), skipped=()).command is None
    fleet.node("none")
    assert disrupt(replace(fleet.view(), prepared=None), skipped=()).command is not None
