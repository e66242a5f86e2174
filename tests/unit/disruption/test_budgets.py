"""How many nodes budgets leave to disrupt."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.karpenter import Budget
from provisioner.controllers.core.budget_ledger import BudgetLedger
from provisioner.disruption.budgets import allowed_disruptions
from tests.support.clock import NOON
from tests.support.cluster import World, claim, node, pool


@dataclass(frozen=True)
class Case:
    want: int
    budgets: tuple[Budget, ...] = ()
    nodes: int = 10
    consuming: int = 0
    reason: str = "Empty"
    now: datetime = NOON


CASES = {
    "no budget leaves the whole pool": Case(10),
    "ten percent of eleven rounds up": Case(2, (Budget(nodes="10%"),), nodes=11),
    "a number is itself": Case(3, (Budget(nodes="3"),)),
    "zero percent of many is none": Case(0, (Budget(nodes="0%"),)),
    "the tightest of several counts": Case(1, (Budget(nodes="50%"), Budget(nodes="1"))),
    "nodes already away are taken off": Case(2, (Budget(nodes="50%"),), consuming=3),
    "never negative": Case(0, (Budget(nodes="1"),), consuming=4),
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
def test_allowed_disruptions(case: Case) -> None:
    got = allowed_disruptions(
        case.budgets, reason=case.reason, nodes=case.nodes, consuming=case.consuming, now=case.now
    )
    assert got == case.want


@given(limits=st.lists(st.integers(0, 50)), extra=st.integers(0, 50), nodes=st.integers(0, 60))
def test_one_more_budget_never_allows_more(limits: list[int], extra: int, nodes: int) -> None:
    def allowed(numbers: list[int]) -> int:
        budgets = [Budget(nodes=str(number)) for number in numbers]
        return allowed_disruptions(budgets, reason="Empty", nodes=nodes, consuming=0, now=NOON)

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


def test_the_limit_over_all_pools_counts_what_goes_already() -> None:
    world = World()
    world.cluster.pool_changed(None, pool("blue", disruption={"budgets": [{"nodes": "100%"}]}))
    labels = {names.NODEPOOL_LABEL: "blue"}
    for name in ("a", "b"):
        true = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)
        world.cluster.claim_changed(None, claim(name, provider_id=f"kwok://{name}", true=true, labels=labels))
        world.cluster.node_changed(None, node(name, labels=labels))
    ledger = BudgetLedger(world.cluster, most=1)
    ledger.seize("a")
    assert ledger.admit(["b"], lambda one: (one,), lambda _: "Drifted", lambda _: True) == []
    ledger.release("a")
    assert ledger.admit(["b"], lambda one: (one,), lambda _: "Drifted", lambda _: True) == ["b"]
