"""How many nodes budgets leave to disrupt."""

from collections.abc import Container
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.karpenter import Budget
from provisioner.apis.reboot import RebootEnd, RebootEpisode, RebootRecord, encode_reboots
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.disruption.budgets import AllowanceLedger, PoolBudget, disruptions_at_once
from tests.support.clock import NOON
from tests.support.cluster import World, claim, node, pool


@dataclass(frozen=True)
class Case:
    want: int
    budgets: tuple[Budget, ...] = ()
    nodes: int = 10
    reason: str = "Empty"
    now: datetime = NOON


CASES = {
    "no budget leaves the whole pool": Case(10),
    "ten percent of eleven rounds up": Case(2, (Budget(nodes="10%"),), nodes=11),
    "a number is itself": Case(3, (Budget(nodes="3"),)),
    "zero percent of many is none": Case(0, (Budget(nodes="0%"),)),
    "the tightest of several counts": Case(1, (Budget(nodes="50%"), Budget(nodes="1"))),
    "a budget for other reasons does not speak": Case(10, (Budget(nodes="0", reasons=("Drifted",)),)),
    "a budget for this reason speaks": Case(0, (Budget(nodes="0", reasons=("Empty",)),)),
    "an explicit empty list of reasons speaks about none": Case(10, (Budget(nodes="0", reasons=()),)),
    "a window that is open speaks": Case(0, (Budget(nodes="0", schedule="0 11 * * *", duration="2h"),)),
    "a window that is closed does not": Case(10, (Budget(nodes="0", schedule="0 9 * * *", duration="2h"),)),
    "a schedule that cannot be read allows nothing": Case(0, (Budget(nodes="5", schedule="soon", duration="2h"),)),
    "a schedule without a duration allows nothing": Case(0, (Budget(nodes="5", schedule="0 9 * * *"),)),
    "a count that cannot be read allows nothing": Case(0, (Budget(nodes="many"),)),
    "an empty pool has none": Case(0, nodes=0),
    "the minute the window opens": Case(
        0, (Budget(nodes="0", schedule="@daily", duration="1h"),), now=datetime(2026, 11, 21, tzinfo=UTC)
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_disruptions_at_once(case: Case) -> None:
    assert disruptions_at_once(case.budgets, reason=case.reason, nodes=case.nodes, now=case.now) == case.want


AWAY = {"75%": PoolBudget("blue", 4, 3, 1, 2), "1": PoolBudget("blue", 4, 1, 0, 2), "0": PoolBudget("blue", 4, 0, 0, 2)}
"""By budget: what two nodes leave of it that are away already."""


@pytest.mark.parametrize(("nodes", "want"), AWAY.items())
def test_nodes_that_are_away_are_taken_off_what_may_go_and_not_off_the_limit(nodes: str, want: PoolBudget) -> None:
    world = a_pool(*"abcd", budget=nodes)
    assert AllowanceLedger(world.cluster.snapshot(), {"a", "b"}).budget("blue", "Empty") == want


NOT_READY = {
    "one that is not ready consumes what others may take": ("Drifted", (), 1, 2),
    "and nothing of what repair may take": ("Unhealthy", (), 0, 3),
    "one that goes consumes for all": ("Unhealthy", ("a",), 1, 2),
    "one that goes and is not ready as well": ("Unhealthy", ("d",), 1, 2),
    "and once": ("Drifted", ("d",), 1, 2),
}


@pytest.mark.parametrize(("reason", "taken", "consuming", "allowed"), NOT_READY.values(), ids=NOT_READY)
@pytest.mark.parametrize("later", [False, True])
def test_nodes_that_are_not_ready_consume_no_budget_of_repair(
    reason: str, taken: tuple[str, ...], consuming: int, allowed: int, *, later: bool
) -> None:
    world = a_pool(*"abcd", budget="75%", unready="d")
    ledger = AllowanceLedger(world.cluster.snapshot(), () if later else taken)
    if later:
        ledger.spend(taken)
    assert ledger.budget("blue", reason) == PoolBudget("blue", 4, 3, allowed, consuming)


def test_a_node_that_is_not_ready_takes_from_the_budget_of_repair_alone() -> None:
    ledger = AllowanceLedger(a_pool(*"ab", budget="0", unready="b").cluster.snapshot())
    assert {reason: ledger.refusal("b", reason) for reason in names.BUDGET_REASONS} == dict.fromkeys(
        names.BUDGET_REASONS, ""
    ) | {names.REASON_UNHEALTHY: "blue"}


@pytest.mark.parametrize("reason", names.BUDGET_REASONS)
def test_a_node_that_is_rebooting_consumes_for_every_reason(reason: str) -> None:
    """Though it is not initialized meanwhile. One whose reboot failed takes from what is left for repair, like one that is not Ready."""
    world = a_pool(*"abcd", budget="2")
    for name, end in (("c", None), ("d", RebootEnd.RECOVERY_TIMEOUT)):
        episode = RebootEpisode(requested=NOON, condition="Gpu", boot_id="a", end=end)
        marks = {names.REBOOT_ANNOTATION: encode_reboots(RebootRecord(episode=episode))}
        true = (names.LAUNCHED, names.REGISTERED)
        labels = {names.NODEPOOL_LABEL: "blue"}
        known = claim(name, provider_id=f"kwok://{name}", true=true, labels=labels, annotations=marks)
        world.cluster.claim_changed(world.cluster.claim(name), known)
    ledger = AllowanceLedger(world.cluster.snapshot())
    repair = reason == names.REASON_UNHEALTHY
    assert ledger.budget("blue", reason) == PoolBudget("blue", 4, 2, 1 if repair else 0, 1 if repair else 2)
    assert ledger.refusal("d", reason) == ""
    assert ledger.refusal(("d", "a"), reason) == "blue"


def test_broken_nodes_do_not_keep_the_limit_over_all_pools_from_repair() -> None:
    world = a_pool(*"abc", budget="100%", unready="bc")
    ledger = AllowanceLedger(world.cluster.snapshot(), most=1)
    assert (ledger.ceiling("Unhealthy"), ledger.ceiling("Drifted")) == (1, 0)
    assert not ledger.refusal("b", "Unhealthy")
    ledger.spend("b")
    assert ledger.refusal("c", "Unhealthy") == "blue"
    assert ledger.why_none("blue", "Unhealthy").endswith("and 1 node is being disrupted")


@given(
    going=st.sets(st.sampled_from("abcdef")),
    unready=st.sets(st.sampled_from("abcdef")),
    wanted=st.sets(st.sampled_from("abcdef")),
    reason=st.sampled_from(names.BUDGET_REASONS),
    nodes=st.integers(0, 7),
    most=st.integers(0, 7),
)
def test_what_is_not_refused_keeps_the_budget_once_it_is_spent(
    going: set[str], unready: set[str], wanted: set[str], reason: str, nodes: int, most: int
) -> None:
    """Whoever paid nothing was away before; whoever paid is within the budget."""
    ledger = AllowanceLedger(a_pool(*"abcdef", budget=str(nodes), unready=unready).cluster.snapshot(), going, most=most)
    before = ledger.budget("blue", reason).consuming
    refused = ledger.refusal(wanted, reason)
    ledger.spend(wanted)
    after = ledger.budget("blue", reason)
    if refused:
        assert after.consuming > min(after.limit, most or after.limit)
    else:
        assert after.consuming <= max(before, min(after.limit, most or after.limit))


@given(limits=st.lists(st.integers(0, 50)), extra=st.integers(0, 50), nodes=st.integers(0, 60))
def test_one_more_budget_never_allows_more(limits: list[int], extra: int, nodes: int) -> None:
    def allowed(numbers: list[int]) -> int:
        budgets = [Budget(nodes=str(number)) for number in numbers]
        return disruptions_at_once(budgets, reason="Empty", nodes=nodes, now=NOON)

    assert allowed([*limits, extra]) <= allowed(limits)


LIMITS = {0: (6, 3), 4: (4, 3), 2: (2, 2), 1: (1, 1)}
"""By limit over all pools: how many of three nodes of each of two pools go one by one, and how many of one pool are allowed first."""


@pytest.mark.parametrize(("most", "want"), LIMITS.items())
def test_a_limit_over_all_pools_holds_beside_their_budgets(most: int, want: tuple[int, int]) -> None:
    world = World()
    wanted = [f"{name}-{number}" for number in range(3) for name in ("blue", "green")]
    for name in ("blue", "green"):
        world.cluster.pool_changed(None, pool(name, disruption={"budgets": [{"nodes": "100%"}]}))
    for name in wanted:
        labels = {names.NODEPOOL_LABEL: name.partition("-")[0]}
        true = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)
        world.cluster.claim_changed(None, claim(name, provider_id=f"kwok://{name}", true=true, labels=labels))
        world.cluster.node_changed(None, node(name, labels=labels))
    ledger = BudgetLedger(world.cluster, most=most)
    assert ledger.at(world.cluster.snapshot()).allowed("blue", "Drifted") == want[1]
    begun = ledger.admit(wanted, lambda one: (one,), lambda _: "Drifted", lambda _: True)
    assert begun == wanted[: want[0]]
    assert ledger.admit([tuple(wanted)], lambda all_: all_, lambda _: "Drifted", lambda _: True) == (
        [tuple(wanted)] if most == 0 else []
    ), "together they are no exception"


def a_pool(*nodes: str, budget: str, unready: Container[str] = ()) -> World:
    """A NodePool with these nodes, of which some are not Ready."""
    world = World()
    world.cluster.pool_changed(None, pool("blue", disruption={"budgets": [{"nodes": budget}]}))
    labels = {names.NODEPOOL_LABEL: "blue"}
    for name in nodes:
        true = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)
        world.cluster.claim_changed(None, claim(name, provider_id=f"kwok://{name}", true=true, labels=labels))
        world.cluster.node_changed(None, node(name, labels=labels, ready=name not in unready))
    return world


SPENT = "No allowed disruptions for disruption reason Drifted due to blocking budget"
CEILING = "No allowed disruptions for disruption reason Drifted because --max-disrupting-nodes is"


@pytest.mark.parametrize(
    ("budget", "most", "want"),
    [
        ("100%", 2, f"{CEILING} 2, and 2 nodes are being disrupted or not Ready"),
        ("100%", 1, f"{CEILING} 1, and 2 nodes are being disrupted or not Ready"),
        ("2", 2, SPENT),
        ("0", 1, SPENT),
        ("2", 0, SPENT),
    ],
)
def test_what_leaves_none_to_disrupt_is_named(budget: str, most: int, want: str) -> None:
    ledger = AllowanceLedger(a_pool(*"abc", budget=budget).cluster.snapshot(), {"a", "b"}, most=most)
    assert ledger.allowed("blue", "Drifted") == 0
    assert ledger.why_none("blue", "Drifted") == want


def test_the_limit_over_all_pools_counts_what_goes_already() -> None:
    world = a_pool("a", "b", budget="100%")
    ledger = BudgetLedger(world.cluster, most=1)
    ledger.seize("a")
    assert ledger.admit(["b"], lambda one: (one,), lambda _: "Drifted", lambda _: True) == []
    ledger.release("a")
    assert ledger.admit(["b"], lambda one: (one,), lambda _: "Drifted", lambda _: True) == ["b"]
