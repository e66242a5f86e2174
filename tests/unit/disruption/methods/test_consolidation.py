"""Consolidation of one node: core spec 6.5, 6.9, 6.11, 6.12, rows 101-103, 105-108."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.meta import OwnerReference
from provisioner.cloudprovider.types import InstanceType, Offering
from provisioner.disruption.acceptance import EVICTION_USD, HORIZON, OVERLAP
from provisioner.disruption.candidates import Candidate
from provisioner.disruption.methods import consolidation
from provisioner.disruption.methods.moves import LAUNCHED_RECENTLY, Consolidation, Move
from provisioner.disruption.price_history import NO_PRICE_HISTORY, PriceHistory
from provisioner.disruption.proposal import Proposal
from provisioner.disruption.replacement import NO_CHEAPER_NODE, SPOT_TO_SPOT_DISABLED, too_few_spot_types
from provisioner.disruption.simulation import simulator as simulation
from provisioner.disruption.simulation.simulator import NOT_JUDGED_IN_TIME
from provisioner.disruption.view import Acceptance, DisruptionSettings
from provisioner.scheduling.reasons import NOT_TRIED, NoPools
from provisioner.scheduling.result import Result, Unplaced
from provisioner.scheduling.world import Policies
from provisioner.values.requirement import Requirements
from tests.support.clock import NOON
from tests.support.fleets import (
    ABC,
    LARGE,
    MEDIUM,
    SMALL,
    TINY,
    Fleet,
    budget,
    gist,
    gone,
    pool,
    running,
    several,
    told,
)
from tests.support.problems import apart, app, instance_type, near, of_app, shape, spread

HALF = shape("500m", "512Mi")

NOWHERE = tuple((zone, "on-demand") for zone in ABC)


def two(**of_pool: Any) -> Fleet:
    """A full node, and one with a pod that fits on it."""
    fleet = Fleet([pool(**of_pool)])
    fleet.node("full", several(3, "f"))
    fleet.node("slack", several(1, "s"), kind=SMALL)
    return fleet


def test_row_103_a_node_whose_pods_fit_elsewhere_goes() -> None:
    (one,) = consolidation.propose(two().view()).proposals
    assert gist(one) == (("slack",), [], {"full": 1})
    assert (one.reason, one.method) == ("Underutilized", "single")
    assert one.saving_usd_per_hour == pytest.approx(0.1)


def test_once_the_only_room_is_taken_no_other_node_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, asked, ask = Fleet(), list[str](), simulation.Simulation.ask
    fleet.node("roomy", several(1, "r", shape("5", "10Gi")), kind=LARGE)
    for number in range(20):
        fleet.node(f"n{number:02d}", several(1, f"p{number}", shape("3", "6Gi")))

    def noted(self: simulation.Simulation, some: Sequence[Candidate], **more: Any) -> simulation.SimulationAnswer:
        asked.extend(one.key for one in some)
        return ask(self, some, **more)

    monkeypatch.setattr(simulation.Simulation, "ask", noted)
    (one,) = consolidation.propose(fleet.view()).proposals
    assert one.placements.keys() == {"roomy"}
    assert asked == list(one.candidates)


def test_nodes_that_go_without_a_new_one_come_before_those_that_need_one() -> None:
    """The full node saves as much for each pod, by a launch and three moves."""
    answer = consolidation.propose(two().view())
    assert [gist(one)[:2] for one in answer.proposals] == [(("slack",), [])]


def test_row_103_a_node_is_replaced_by_a_cheaper_one() -> None:
    fleet = Fleet()
    fleet.node("big", several(2, "w"), kind=LARGE)
    (one,) = consolidation.propose(fleet.view()).proposals
    assert gist(one) == (("big",), ["small"], {})
    assert one.saving_usd_per_hour == pytest.approx(0.3)
    assert one.replacements[0].instance_types == ("small", "medium")


def test_a_node_that_is_right_stays_and_says_so() -> None:
    fleet = Fleet()
    fleet.node("a", several(2, "w"), kind=SMALL)
    answer = consolidation.propose(fleet.view())
    assert answer.proposals == ()
    assert told(answer)["a"] == NO_CHEAPER_NODE
    assert {one.event for one in answer.blocked} == {"Unconsolidatable"}


def test_a_node_whose_pods_need_one_as_dear_says_that_none_is_cheaper() -> None:
    """One pod of node a would go to node b; the other, and with it all of them, to a new node of the same price."""
    fleet = Fleet(types=(MEDIUM,))
    fleet.node("a", several(2, "w"))
    fleet.node("b", several(3, "x"))
    assert told(consolidation.propose(fleet.view())) == dict.fromkeys("ab", NO_CHEAPER_NODE)


def test_a_node_that_would_become_three_says_so() -> None:
    """Three small ones would cost less than the large one, of which there are no more: a node becomes two at the most.

    Only a question tells so, where other nodes have room that the pods may not use; where there is none, two are surely too dear or too small.
    """
    small, dear = (
        instance_type(name, cpu, "8Gi", usd, zones=ABC, capacity_types=("on-demand",), unavailable=gone)
        for name, cpu, usd, gone in (("small", "1", 0.1, ()), ("dear", "4", 0.5, NOWHERE))
    )
    fleet = Fleet(types=(small, dear))
    fleet.node("a", several(3, "w", of_app("web")), kind=dear)
    assert told(consolidation.propose(fleet.view())) == {"a": NO_CHEAPER_NODE}
    alone = of_app("alone", affinity=apart(names.HOSTNAME_LABEL, app("web")))
    fleet.node("b", several(1, "alone", alone), do_not_disrupt=True)
    assert told(consolidation.propose(fleet.view()))["a"] == "Can't remove without creating 3 candidates"


def test_one_node_becomes_two_where_that_is_cheaper() -> None:
    """Karpenter never does that; here spot prices make two small ones cheaper than one large one."""
    dear = instance_type("dear", "4", "8Gi", 0.5, zones=ABC, capacity_types=("on-demand",))
    fleet = Fleet(types=(SMALL, dear))
    fleet.node("a", several(4, "w"), kind=dear)
    (one,) = consolidation.propose(fleet.view()).proposals
    assert gist(one) == (("a",), ["small", "small"], {})
    assert one.saving_usd_per_hour == pytest.approx(0.3)


@pytest.mark.parametrize(("penalty", "goes"), [("0.04", True), ("0.05", False)])
def test_two_nodes_for_one_save_what_another_node_is_reckoned_to_cost(penalty: str, goes: bool) -> None:
    """Whoever buys reckons with the penalty, and would have bought the one node, of which there are no more."""
    dear = instance_type("dear", "4", "8Gi", 0.245, zones=ABC, capacity_types=("on-demand",), unavailable=NOWHERE)
    of = pool()
    of.metadata.annotations[names.NODE_PENALTY] = penalty
    fleet = Fleet([of], types=(SMALL, dear, LARGE))
    fleet.node("a", several(4, "w"), kind=dear)
    assert bool(consolidation.propose(fleet.view()).proposals) == goes


@pytest.mark.parametrize(("most", "going"), [("2", 0), ("3", 1), ("4", 2)])
def test_nodes_that_become_two_keep_the_limit_on_nodes_together(most: str, going: int) -> None:
    dear = instance_type("dear", "4", "8Gi", 0.5, zones=ABC, capacity_types=("on-demand",))
    fleet = Fleet([pool(limits={"nodes": most})], types=(SMALL, dear))
    for name in "ab":
        fleet.node(name, several(2, name, shape("1500m", "1Gi")), kind=dear)
    assert len(consolidation.propose(fleet.view()).proposals) == going


def test_two_nodes_that_cost_as_much_are_no_replacement() -> None:
    fleet = Fleet(types=(SMALL, MEDIUM))
    fleet.node("a", several(4, "w"), kind=MEDIUM)
    assert consolidation.propose(fleet.view()).proposals == ()


UNCONSOLIDATABLE: dict[str, tuple[dict[str, Any], dict[str, Any], str | None]] = {
    "row 101: policy WhenEmpty": (
        {"disruption": {"consolidationPolicy": "WhenEmpty"}},
        {},
        'NodePool "general" has consolidation policy WhenEmpty, but node is not empty',
    ),
    "row 102: consolidateAfter Never": (
        {"disruption": {"consolidateAfter": "Never"}},
        {},
        'NodePool "general" has consolidation disabled',
    ),
    "an unknown type": (
        {},
        {"labels": {names.INSTANCE_TYPE_LABEL: "gone"}},
        'Instance Type "gone" not found',
    ),
    "no zone": ({}, {"labels": {names.ZONE_LABEL: ""}}, f'Node does not have label "{names.ZONE_LABEL}"'),
    "no capacity type": (
        {},
        {"labels": {names.CAPACITY_TYPE_LABEL: ""}},
        f'Node does not have label "{names.CAPACITY_TYPE_LABEL}"',
    ),
    "a static pool, of which nothing is said": ({"replicas": 2}, {}, None),
}


@pytest.mark.parametrize(("of_pool", "of_node", "message"), UNCONSOLIDATABLE.values(), ids=UNCONSOLIDATABLE)
def test_who_is_left_alone(of_pool: dict[str, Any], of_node: dict[str, Any], message: str | None) -> None:
    fleet = Fleet([pool(**of_pool)])
    fleet.node("a", several(1, "w"), kind=LARGE, **of_node)
    answer = consolidation.propose(fleet.view())
    assert answer.proposals == ()
    assert told(answer) == ({} if message is None else {"a": message})


def test_row_102_a_node_that_saw_a_pod_of_late_waits_and_takes_none() -> None:
    fleet = two(disruption={"consolidateAfter": "30s"})
    fleet.nodes = [replace(one, last_pod_event=NOON - timedelta(seconds=10)) for one in fleet.nodes[:1]] + fleet.nodes[
        1:
    ]
    answer = consolidation.propose(fleet.view())
    assert answer.proposals == (), "its only destination saw a pod come"
    assert answer.recheck_at == NOON + timedelta(seconds=20)


def test_empty_nodes_are_left_to_emptiness_and_take_nothing() -> None:
    fleet = Fleet()
    fleet.node("void")
    fleet.node("a", several(2, "w"), kind=SMALL)
    assert consolidation.propose(fleet.view()).proposals == ()


def test_row_89_budgets_hold_for_all_proposals_together() -> None:
    fleet = Fleet([pool(disruption={"budgets": [{"nodes": "1"}]})])
    for number in range(3):
        fleet.node(f"n{number}", several(1, f"p{number}"), kind=LARGE)
    answer = consolidation.propose(fleet.view())
    assert len(answer.proposals) == 1
    assert answer.recheck_at is None, "who asks sees by itself when a budget leaves more"


def test_pools_take_turns_under_one_order() -> None:
    fleet = Fleet([pool("one"), pool("two")])
    for number in range(2):
        fleet.node(f"a{number}", several(1, f"p{number}"), kind=LARGE, of="one")
        fleet.node(f"b{number}", several(2, f"q{number}"), kind=LARGE, of="two")
    found = [one for names_ in gone(consolidation.propose(fleet.view())) for one in names_]
    assert found[:2] == ["a0", "b0"]


def test_a_node_that_takes_pods_of_another_is_not_moved_in_the_same_pass() -> None:
    fleet = Fleet()
    fleet.node("a", several(1, "a"), kind=SMALL)
    fleet.node("b", several(1, "b"), kind=SMALL)
    assert [gist(one) for one in consolidation.propose(fleet.view()).proposals] == [(("a",), [], {"b": 1})]


def test_pods_that_nobody_may_evict_keep_their_node() -> None:
    fleet = Fleet()
    fleet.node("a", several(1, "w", of_app("web")), kind=LARGE)
    fleet.budgets = [budget("pdb", "web", 0)]
    answer = consolidation.propose(fleet.view())
    assert answer.proposals == ()
    assert told(answer) == {"a": "Pdb prevents pod evictions (PodDisruptionBudget=default/pdb)"}


# --- what pays ---


def test_a_saving_that_does_not_pay_for_the_move_is_left() -> None:
    """120 pods for two cents an hour: Karpenter moves them."""
    fleet = Fleet(types=(MEDIUM, instance_type("almost", "4", "8Gi", 0.18, zones=ABC, capacity_types=("on-demand",))))
    fleet.node("a", several(80, "w", shape("40m", "64Mi")))
    answer = consolidation.propose(fleet.view())
    assert answer.proposals == ()
    fleet.settings = DisruptionSettings(acceptance=Acceptance.KARPENTER)
    assert [gist(one)[1] for one in consolidation.propose(fleet.view()).proposals] == [["almost"]]


@pytest.mark.parametrize("daemons", [0, 2])
@pytest.mark.parametrize(("share", "pays"), [(0.99, True), (1.01, False)], ids=["a little less", "a little more"])
def test_a_replacement_pays_for_the_time_that_both_nodes_run(share: float, pays: bool, daemons: int) -> None:
    """Three minutes of the new node are the price of its launch, and of daemons that run twice; these cost nothing besides."""
    hour = timedelta(hours=1)
    horizon, overlap = HORIZON / hour, OVERLAP / hour
    even = (0.2 * horizon - EVICTION_USD) / (horizon + overlap)
    kind = instance_type("almost", "4", "8Gi", even * share, zones=ABC, capacity_types=("on-demand",))
    fleet = Fleet(types=(MEDIUM, kind), daemons=(shape("100m", "64Mi"),) * daemons)
    owner = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="agent", uid="agent", controller=True)
    agents = several(daemons, "agent", shape("100m", "64Mi"), owner=owner)
    fleet.node("a", (running("w"), *agents))
    assert bool(consolidation.propose(fleet.view()).proposals) is pays


@pytest.mark.parametrize(("share", "pays"), [(1.01, True), (0.99, False)], ids=["a little dearer", "a little cheaper"])
def test_where_nothing_comes_the_evictions_alone_are_paid(share: float, pays: bool) -> None:
    price = EVICTION_USD / (HORIZON / timedelta(hours=1)) * share
    kind = instance_type("cheap", "4", "8Gi", price, zones=ABC, capacity_types=("on-demand",))
    fleet = Fleet(types=(kind,))
    fleet.node("a", several(1, "w"), kind=kind)
    fleet.node("b", several(3, "x"), kind=kind)
    assert bool(consolidation.propose(fleet.view()).proposals) is pays


def test_a_node_that_ends_soon_anyway_is_not_replaced() -> None:
    fleet = Fleet()
    life = {"expireAfter": "24h3m"}
    fleet.node("a", several(8, "w", HALF), kind=LARGE, claim_spec=life)
    assert consolidation.propose(fleet.view()).proposals == ()


def test_a_node_just_bought_is_not_replaced_but_may_be_deleted() -> None:
    young = NOON - timedelta(minutes=5)
    spec = {"resources": {"requests": {"cpu": "2", "memory": "2Gi"}}}
    fleet = Fleet()
    fleet.node("a", several(2, "w"), kind=LARGE, created=young, claim_spec=spec)
    answer = consolidation.propose(fleet.view())
    assert answer.proposals == ()
    assert told(answer)["a"] == "Node was recently launched for the pods that it runs"
    fleet.node("room", several(2, "x"))
    assert gone(consolidation.propose(fleet.view())) == [("a",)]


BOUGHT: dict[str, tuple[dict[str, Any], bool]] = {
    "its pods are what it was bought for": ({}, False),
    "half of its pods have gone": ({"claim_spec": {"resources": {"requests": {"cpu": "4", "memory": "4Gi"}}}}, True),
    "it is of the offering that was planned": (
        {"annotations": {names.PLANNED_OFFERING_ANNOTATION: "large/a/on-demand"}},
        False,
    ),
    "it is of another offering than was planned": (
        {"annotations": {names.PLANNED_OFFERING_ANNOTATION: "small/a/on-demand"}},
        True,
    ),
    "it is old": ({"created": NOON - HORIZON}, True),
}


@pytest.mark.parametrize(("more", "goes"), BOUGHT.values(), ids=BOUGHT)
def test_what_makes_a_young_node_replaceable(more: dict[str, Any], goes: bool) -> None:
    fleet = Fleet()
    spec = {"resources": {"requests": {"cpu": "2", "memory": "2Gi"}}}
    fleet.node("a", several(2, "w"), kind=LARGE, **{"created": NOON - timedelta(minutes=5), "claim_spec": spec, **more})
    assert bool(consolidation.propose(fleet.view()).proposals) is goes


YOUNG = NOON - timedelta(minutes=5)
DEAR_MEDIUM = instance_type("medium", "4", "8Gi", 0.35, zones=ABC, capacity_types=("on-demand",))
NO_SMALL = instance_type(
    "small",
    "2",
    "4Gi",
    0.1,
    zones=ABC,
    capacity_types=("on-demand",),
    unavailable=[(zone, "on-demand") for zone in ABC],
)
DEAR_SMALL = instance_type("small", "2", "4Gi", 0.3, zones=ABC, capacity_types=("on-demand",))
CHEAP_LARGE = instance_type("large", "8", "16Gi", 0.3, zones=ABC, capacity_types=("on-demand",))
MARKETS: dict[str, tuple[tuple[InstanceType, ...], timedelta, bool]] = {
    "what takes its place became cheaper": ((DEAR_SMALL, MEDIUM, LARGE), timedelta(minutes=1), True),
    "what takes its place became available": ((NO_SMALL, MEDIUM, LARGE), timedelta(minutes=1), True),
    "it did so before the node was bought": ((NO_SMALL, MEDIUM, LARGE), timedelta(minutes=6), False),
    "another type became cheaper": ((SMALL, DEAR_MEDIUM, LARGE), timedelta(minutes=1), False),
    "its own price rose": ((SMALL, MEDIUM, CHEAP_LARGE), timedelta(minutes=1), True),
    "its own price rose before the node was bought": ((SMALL, MEDIUM, CHEAP_LARGE), timedelta(minutes=6), False),
}


def market(before: tuple[InstanceType, ...], now: tuple[InstanceType, ...], ago: timedelta) -> PriceHistory:
    """What is known where so long ago the catalogue changed."""
    long_ago = NO_PRICE_HISTORY.noted({"general": before}, NOON - timedelta(days=1), HORIZON)
    return long_ago.noted({"general": now}, NOON - ago, HORIZON)


@pytest.mark.parametrize(("before", "ago", "goes"), MARKETS.values(), ids=MARKETS)
def test_a_young_node_is_replaced_where_prices_or_availability_changed_since(
    before: tuple[InstanceType, ...], ago: timedelta, goes: bool
) -> None:
    fleet = Fleet()
    spec = {"resources": {"requests": {"cpu": "2", "memory": "2Gi"}}}
    fleet.node("a", several(2, "w"), kind=LARGE, created=YOUNG, claim_spec=spec)
    view = replace(fleet.view(), prices=market(before, fleet.types, ago))
    answer = consolidation.propose(view)
    assert [gist(one)[:2] for one in answer.proposals] == ([(("a",), ["small"])] if goes else [])
    assert goes or told(answer)["a"] == LAUNCHED_RECENTLY


GAPS = {
    "far from the least price": ("0.3000", True),
    "near it": ("0.0499", False),
    "nobody knows how far": ("?", False),
}


@pytest.mark.parametrize(("gap", "goes"), GAPS.values(), ids=GAPS)
def test_a_young_node_that_was_packed_far_from_the_least_price_is_replaced_where_that_pays(
    gap: str, *, goes: bool
) -> None:
    fleet = Fleet()
    spec = {"resources": {"requests": {"cpu": "2", "memory": "2Gi"}}}
    fleet.node("a", several(2, "w"), kind=LARGE, created=YOUNG, claim_spec=spec, annotations={names.PLAN_GAP: gap})
    answer = consolidation.propose(fleet.view())
    assert [gist(one)[:2] for one in answer.proposals] == ([(("a",), ["small"])] if goes else [])
    assert goes or told(answer)["a"] == LAUNCHED_RECENTLY


WIDE = instance_type("wide", "4", "16Gi", 0.22, zones=ABC, capacity_types=("on-demand",))
APART = {
    "in one batch": (timedelta(0), timedelta(minutes=5), False),
    "in one batch, whose nodes took a moment": (timedelta(seconds=50), timedelta(minutes=5), False),
    "in two batches": (timedelta(seconds=70), timedelta(minutes=5), True),
    "in two batches, the first hours ago": (timedelta(hours=5), timedelta(minutes=5), True),
}


@pytest.mark.parametrize(("before", "age", "go"), APART.values(), ids=APART)
def test_young_nodes_that_no_batch_could_buy_together_are_replaced_together(
    before: timedelta, age: timedelta, *, go: bool
) -> None:
    """Each is the cheapest for its own pods."""
    fleet = Fleet(types=(SMALL, MEDIUM, WIDE))
    for name, cpu, memory, at in (("a", "1", "7000Mi", NOON - age - before), ("b", "2500m", "6Gi", NOON - age)):
        spec = {"resources": {"requests": {"cpu": cpu, "memory": memory}}}
        fleet.node(name, several(1, name, shape(cpu, memory)), kind=MEDIUM, created=at, claim_spec=spec)
    answer = consolidation.propose(fleet.view())
    assert [gist(one)[:2] for one in answer.proposals] == ([(("a", "b"), ["wide"])] if go else [])


def test_a_price_that_changed_does_not_make_a_move_pay() -> None:
    """The node would not be replaced were it old."""
    fleet = Fleet(types=(MEDIUM, instance_type("almost", "4", "8Gi", 0.18, zones=ABC, capacity_types=("on-demand",))))
    spec = {"resources": {"requests": {"cpu": "3200m", "memory": "5120Mi"}}}
    fleet.node("a", several(80, "w", shape("40m", "64Mi")), created=YOUNG, claim_spec=spec)
    view = replace(fleet.view(), prices=market((MEDIUM,), fleet.types, timedelta(minutes=1)))
    assert consolidation.propose(view).proposals == ()


@pytest.mark.parametrize("new", [True, False])
def test_young_nodes_are_replaced_together_where_each_could_be_by_itself(new: bool) -> None:
    """Four nodes of 0.3: each could go for 0.27, all of them for 0.4."""
    odd, small = (
        instance_type(name, "2", "4Gi", usd, zones=ABC, capacity_types=("on-demand",))
        for name, usd in (("odd", 0.3), ("small", 0.27))
    )
    fleet = Fleet(types=(odd, small, LARGE))
    spec = {"resources": {"requests": {"cpu": "2", "memory": "2Gi"}}}
    for name in "abcd":
        fleet.node(name, several(2, name), kind=odd, created=YOUNG, claim_spec=spec)
    before = (odd,) if new else fleet.types
    answer = consolidation.propose(replace(fleet.view(), prices=market(before, fleet.types, timedelta(minutes=1))))
    assert gone(answer) == ([("a", "b", "c", "d")] if new else [])


SETS: dict[str, tuple[float, timedelta, bool]] = {
    "a type became cheaper than all of them": (0.8, timedelta(minutes=1), True),
    "it did so before they were bought": (0.8, timedelta(minutes=6), False),
    "nothing changed": (0.5, timedelta(minutes=1), False),
}


@pytest.mark.parametrize(("was", "ago", "goes"), SETS.values(), ids=SETS)
def test_young_nodes_of_which_none_is_replaced_by_itself_are_replaced_together(
    was: float, ago: timedelta, goes: bool
) -> None:
    """Three nodes of 4 CPUs for 0.2 each, and one of 8 for 0.5."""
    eight, before = (
        instance_type("eight", "8", "16Gi", usd, zones=ABC, capacity_types=("on-demand",)) for usd in (0.5, was)
    )
    fleet = Fleet(types=(MEDIUM, eight))
    spec = {"resources": {"requests": {"cpu": "2600m", "memory": "1Gi"}}}
    for name in "abc":
        fleet.node(name, [running(name, shape("2600m"))], created=YOUNG, claim_spec=spec)
    answer = consolidation.propose(replace(fleet.view(), prices=market((MEDIUM, before), fleet.types, ago)))
    assert [gist(one)[:2] for one in answer.proposals] == ([(("a", "b", "c"), ["eight"])] if goes else [])


@pytest.mark.parametrize("ago", [1, 6])
def test_a_young_node_moves_into_a_reservation_that_appeared_since(ago: int) -> None:
    """For its own type and zone, as on EC2."""
    labels = {names.ZONE_LABEL: "a", names.CAPACITY_TYPE_LABEL: "reserved"}
    reserved = Offering(Requirements.from_labels(labels), 0.0, available=True, reservation_capacity=1)
    kind = instance_type("large", "8", "16Gi", offerings=(*LARGE.offerings, reserved))
    fleet = Fleet(types=(kind,))
    spec = {"resources": {"requests": {"cpu": "2", "memory": "2Gi"}}}
    fleet.node("a", several(2, "w"), kind=kind, created=YOUNG, claim_spec=spec)
    view = replace(fleet.view(), prices=market((LARGE,), fleet.types, timedelta(minutes=ago)))
    planned = [one.planned_capacity_type for move in consolidation.propose(view).proposals for one in move.replacements]
    assert planned == (["reserved"] if ago == 1 else [])


def test_pods_that_were_not_looked_at_in_time_wait_for_no_batch() -> None:
    late = Result((), {}, (Unplaced(running("w"), (NOT_TRIED,)),))
    assert simulation.told(late) == NOT_JUDGED_IN_TIME
    mixed = Result((), {}, (Unplaced(running("v"), (NOT_TRIED,)), Unplaced(running("w"), (NoPools(),))))
    assert simulation.told(mixed) == f"not all pods would schedule, default/w => {NoPools()}"


# --- spot and reserved ---


def spot_types(count: int) -> tuple[InstanceType, ...]:
    """So many types, each a cent dearer, spot and on-demand."""
    return tuple(instance_type(f"t{n:02d}", "4", "8Gi", 0.2 + 0.02 * n, zones=ABC) for n in range(count))


def test_a_move_to_spot_saves_what_the_launch_is_expected_to_cost_not_the_least() -> None:
    cheap, *others = spot_types(4)
    types = tuple(
        replace(one, offerings=tuple(replace(way, alternatives=3) for way in one.offerings)) for one in (cheap, *others)
    )
    moves: list[Proposal] = []
    for some in (types, (cheap, *others)):
        fleet = Fleet(types=some)
        fleet.node("a", several(2, "w"), kind=some[-1])
        moves += consolidation.propose(fleet.view()).proposals
    assert [one.saving_usd_per_hour for one in moves] == pytest.approx([0.26 - 0.11, 0.26 - 0.10])
    (claim,) = moves[0].replacements
    assert claim.requirements.requirement(names.CAPACITY_TYPE_LABEL).single_value == "spot"


def test_row_105_spot_is_not_replaced_by_spot_unless_the_gate_is_open() -> None:
    types = spot_types(20)
    fleet = Fleet(types=types)
    fleet.node("a", several(2, "w"), kind=types[-1], capacity_type="spot")
    answer = consolidation.propose(fleet.view())
    assert answer.proposals == ()
    assert told(answer)["a"] == "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
    fleet.settings = DisruptionSettings(spot_to_spot=True)
    (one,) = consolidation.propose(fleet.view()).proposals
    claim = one.replacements[0]
    assert claim.instance_types == tuple(f"t{n:02d}" for n in range(15)), (
        "cut, so that one replacement does not follow another"
    )
    assert claim.requirements.requirement(names.CAPACITY_TYPE_LABEL).single_value == "spot"


def test_row_105_fifteen_cheaper_types_are_needed() -> None:
    types = spot_types(10)
    fleet = Fleet(types=types, settings=DisruptionSettings(spot_to_spot=True))
    fleet.node("a", several(2, "w"), kind=types[-1], capacity_type="spot")
    answer = consolidation.propose(fleet.view())
    assert answer.proposals == ()
    assert told(answer)["a"] == (
        "SpotToSpotConsolidation requires 15 cheaper instance type options than the current candidate to consolidate, got 9"
    )


@pytest.mark.parametrize("count", [20, 10])
def test_row_105_counts_in_company_too(count: int) -> None:
    """Nodes that have nothing to do with each other may be found to pay together; what takes the place of the spot node is still spot for spot."""
    types = spot_types(count)
    fleet = Fleet(types=types)
    for name, zone, capacity_type in (("a", "a", "on-demand"), ("b", "b", "spot")):
        own = of_app(name, selector={names.ZONE_LABEL: zone})
        fleet.node(name, several(2, name, own), kind=types[-1], zone=zone, capacity_type=capacity_type)
    assert judged_together(fleet) == SPOT_TO_SPOT_DISABLED
    fleet.settings = DisruptionSettings(spot_to_spot=True)
    move = judged_together(fleet)
    if count < 15:
        assert move == too_few_spot_types(15, 9)
        return
    assert isinstance(move, Move)
    of_spot = next(one for one in move.result.claims if one.planned_zone == "b")
    assert len(of_spot.instance_types) == 15


def judged_together(fleet: Fleet) -> Move | str:
    view = fleet.view()
    assert view.prepared is not None
    work = Consolidation(view, view.prepared)
    return work.judge(work.order, max_new=2)


def test_row_105_spot_may_be_deleted_whatever_the_gate_says() -> None:
    types = spot_types(3)
    fleet = Fleet(types=types)
    fleet.node("a", several(1, "w"), kind=types[0], capacity_type="spot")
    fleet.node("b", several(2, "x"), kind=types[0], capacity_type="spot")
    assert len(consolidation.propose(fleet.view()).proposals) == 1


def test_row_106_on_demand_is_replaced_by_spot_alone_where_both_would_do() -> None:
    types = spot_types(3)
    fleet = Fleet(types=types)
    fleet.node("a", several(2, "w"), kind=types[-1])
    (one,) = consolidation.propose(fleet.view()).proposals
    claim = one.replacements[0]
    assert claim.requirements.requirement(names.CAPACITY_TYPE_LABEL).single_value == "spot"
    assert claim.planned_capacity_type == "spot"


def test_no_type_is_named_whose_dearest_offering_is_not_cheaper() -> None:
    odd = instance_type(
        "odd",
        "2",
        "4Gi",
        offerings=[_offer("a", 0.05), _offer("b", 0.9)],
    )
    fleet = Fleet(types=(odd, SMALL, LARGE))
    fleet.node("a", several(2, "w"), kind=LARGE)
    (one,) = consolidation.propose(fleet.view()).proposals
    assert one.replacements[0].instance_types == ("small",)


def test_reserved_capacity_is_taken_first() -> None:
    labels = {names.ZONE_LABEL: "a", names.CAPACITY_TYPE_LABEL: "reserved"}
    free = Offering(Requirements.from_labels(labels), 0.0001, reservation_capacity=1)
    held = instance_type("held", "4", "8Gi", offerings=[_offer("a", 0.2), free])
    fleet = Fleet(types=(held,))
    fleet.node("a", several(4, "w"), kind=held)
    fleet.node("b", several(4, "x"), kind=held)
    (one,) = consolidation.propose(fleet.view()).proposals
    assert one.replacements[0].planned_capacity_type == "reserved"


def _offer(zone: str, price: float) -> Offering:
    return Offering(Requirements.from_labels({names.ZONE_LABEL: zone, names.CAPACITY_TYPE_LABEL: "on-demand"}), price)


# --- minValues ---


def test_min_values_are_kept_by_what_is_left_after_the_price_filter() -> None:
    key = "provider.example/cpu"
    wanted = ({"key": key, "operator": "Exists", "minValues": 2},)
    fleet = Fleet([pool(requirements=wanted)], types=(SMALL, MEDIUM, LARGE))
    fleet.node("a", several(1, "w"), kind=MEDIUM)
    assert consolidation.propose(fleet.view()).proposals == ()
    fleet.types = (TINY, SMALL, MEDIUM, LARGE)
    (one,) = consolidation.propose(fleet.view()).proposals
    assert one.replacements[0].instance_types == ("tiny", "small")


# --- Balanced ---


@pytest.mark.parametrize(("pods", "goes"), [(2, True), (8, False)])
def test_row_108_a_balanced_pool_weighs_savings_against_disruption(pods: int, goes: bool) -> None:
    """One node of four would be replaced at half its price; it has a share of the pool's pods that is small, or too large."""
    fleet = Fleet([pool(disruption={"consolidationPolicy": "Balanced"})])
    small = shape("100m", "128Mi")
    fleet.node("a", several(pods, "w", small))
    for number in range(3):
        fleet.node(f"n{number}", several(2, f"p{number}"), kind=SMALL, do_not_disrupt=True)
    fleet.types = (SMALL, MEDIUM)
    answer = consolidation.propose(fleet.view())
    assert bool(answer.proposals) is goes
    assert [one.pool for one in answer.rejected] == ["general"] * (not goes)
    assert [score.pool for one in answer.proposals for score in one.scores] == ["general"] * goes
    if not goes:
        assert "balances savings with disruption: score" in told(answer)["a"]


# --- spread while a node drains (issue 11, part 5) ---


def test_12_pods_spread_over_three_hosts_move_to_two_one_by_one() -> None:
    web = of_app(
        "web", cpu="500m", memory="512Mi", topology_spread_constraints=(spread(names.HOSTNAME_LABEL, app("web")),)
    )
    fleet = Fleet()
    for name in "xyz":
        fleet.node(name, several(4, f"w{name}", web))
    fleet.budgets = [budget("pdb", "web", 1, maxUnavailable=1)]
    (one,) = consolidation.propose(fleet.view()).proposals
    assert gist(one) == (("x",), [], {"y": 2, "z": 2})


def test_six_pods_spread_over_six_hosts_move_to_three() -> None:
    """And no further: hard hostname spread is planned over three nodes (design 3b.9)."""
    web = of_app(
        "web", cpu="500m", memory="512Mi", topology_spread_constraints=(spread(names.HOSTNAME_LABEL, app("web")),)
    )
    fleet = Fleet(policies=Policies())
    for name in "uvwxyz":
        fleet.node(name, several(1, f"w{name}", web))
    fleet.budgets = [budget("pdb", "web", 1, maxUnavailable=1)]
    found = consolidation.propose(fleet.view()).proposals
    assert [(len(one.candidates), len(one.replacements)) for one in found] == [(1, 0)] * 3
    homes = [name for one in found for name in one.placements]
    assert len({*homes}) == 3, "each of those that stay takes one"


@pytest.mark.parametrize(("domains", "leave"), [(3, 0), (2, 1), (1, 1)])
def test_a_fleet_keeps_as_many_nodes_as_a_hostname_spread_is_planned_over(domains: int, leave: int) -> None:
    """kube-scheduler would have all six pods on one node."""
    web = of_app(
        "web", cpu="500m", memory="512Mi", topology_spread_constraints=(spread(names.HOSTNAME_LABEL, app("web")),)
    )
    fleet = Fleet(policies=Policies(hostname_domains=domains))
    for name in "xyz":
        fleet.node(name, several(2, f"w{name}", web))
    found = consolidation.propose(fleet.view()).proposals
    assert sum(len(one.candidates) - len(one.replacements) for one in found) == leave


def test_consolidation_that_would_wedge_is_not_proposed() -> None:
    """A rack is a domain for as long as its Node is there."""
    web = of_app(
        "web", cpu="500m", memory="512Mi", topology_spread_constraints=(spread("example.com/rack", app("web")),)
    )
    fleet = Fleet()
    for name in "xyz":
        fleet.node(name, several(4, f"w{name}", web), labels={"example.com/rack": name})
    fleet.budgets = [budget("pdb", "web", 1, maxUnavailable=1)]
    answer = consolidation.propose(fleet.view())
    assert answer.proposals == ()
    assert told(answer).keys() == {"x", "y", "z"}
    for name, said in told(answer).items():
        assert said.startswith(
            f"not all pods would schedule, default/w{name}-0 => 0/3 existing nodes: 1 being removed, "
        )
        assert "2 didn't match pod topology spread constraints (example.com/rack)" in said


def test_a_pod_that_honours_taints_may_be_consolidated() -> None:
    constraint = spread(names.HOSTNAME_LABEL, app("web"), node_taints_policy="Honor")
    web = of_app("web", cpu="500m", memory="512Mi", topology_spread_constraints=(constraint,))
    fleet = Fleet()
    for name in "xyz":
        fleet.node(name, several(4, f"w{name}", web))
    assert len(consolidation.propose(fleet.view()).proposals) == 1


def test_the_order_is_what_is_saved_for_each_disruption() -> None:
    fleet = Fleet()
    fleet.node("many", several(4, "m", HALF), kind=LARGE)
    fleet.node("few", several(1, "f"), kind=LARGE)
    fleet.node("cheap", [running("c")], kind=SMALL)
    found = [name for one in gone(consolidation.propose(fleet.view())) for name in one]
    assert found[0] == "few"


def test_followers_wait_until_those_that_they_follow_have_moved() -> None:
    """Evicted at once, both would have to follow the third, in another zone."""
    together = of_app("web", cpu="900m", memory="1Gi", affinity=near(names.ZONE_LABEL, app("web")))
    fleet = Fleet()
    fleet.node("far", [running("third", together)], kind=TINY, zone="b", do_not_disrupt=True)
    fleet.node("room", several(5, "r"), kind=LARGE, do_not_disrupt=True)
    for name in "xy":
        fleet.node(name, [running(name, together)], kind=SMALL)
    answer = consolidation.propose(fleet.view())
    assert gone(answer) == [("x",)]
    assert told(answer)["y"].startswith("Its pods have affinity to pods on other nodes that are being disrupted")


def test_where_time_is_up_nodes_that_were_found_too_dear_are_replaced() -> None:
    """Six large nodes with a pod each that no other may be beside; there is time to ask about five of them."""
    fleet, lonely = Fleet(), of_app("w", affinity=apart(names.HOSTNAME_LABEL, app("w")))
    for number in range(6):
        fleet.node(f"big{number}", [running(f"w{number}", lonely)], kind=LARGE)
    looks = iter(range(5))
    answer = consolidation.propose(replace(fleet.view(), expired=lambda: next(looks, None) is None))
    assert len(answer.proposals) == 5
    assert all(len(one.replacements) == 1 and not one.placements for one in answer.proposals)
    assert len(answer.unreached) == 1
