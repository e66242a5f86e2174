"""How fast the fleet may grow: what limits hold back, for how long, and that no order of creations exceeds them."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.nodeclaims.growth_limits import WINDOW_SECONDS, Growth, GrowthLimit, GrowthLimits, HeldBack
from provisioner.scheduling.capacity.hourly_price import lacks_price, usd_per_hour
from tests.support.cluster import TYPES, claim

BOTH = GrowthLimits(3, 10.0)


@dataclass(frozen=True)
class Case:
    want: HeldBack | None
    limits: GrowthLimits = BOTH
    ages: tuple[float, ...] = ()
    usd: float = 0.0
    asks: float = 1.0


CASES = {
    "no limits": Case(None, GrowthLimits(), (0.0,) * 100, 1e6),
    "nothing there": Case(None),
    "the last of a minute": Case(None, ages=(1.0, 2.0)),
    "one too many, until the oldest is a minute old": Case(HeldBack(GrowthLimit.CLAIMS, 50.0), ages=(1.0, 10.0, 2.0)),
    "more than allowed, until so many are a minute old": Case(
        HeldBack(GrowthLimit.CLAIMS, 30.0), ages=(50.0, 40.0, 30.0, 20.0, 10.0)
    ),
    "those that are a minute old count no more": Case(None, ages=(60.0, 61.0, 1.0, 2.0)),
    "creations of a clock that is ahead are new": Case(HeldBack(GrowthLimit.CLAIMS, 60.0), ages=(-3600.0,) * 3),
    "exactly the money": Case(None, usd=9.0),
    "a cent too much, until a node goes": Case(HeldBack(GrowthLimit.USD), usd=9.01),
    "a free node is always affordable": Case(None, usd=10.0, asks=0.0),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_held_back(case: Case) -> None:
    assert Growth(case.limits, case.ages, case.usd).refusal(case.asks) == case.want


def test_what_was_taken_counts_and_time_lets_it_go() -> None:
    growth = Growth(GrowthLimits(claims_per_minute=2), (30.0,), 0.0)
    growth.take(1.0, elapsed=5.0)
    assert growth.refusal(1.0, elapsed=5.0) == HeldBack(GrowthLimit.CLAIMS, 25.0)
    assert growth.refusal(1.0, elapsed=30.0) is None
    growth.take(1.0, elapsed=30.0)
    assert growth.refusal(1.0, elapsed=31.0) == HeldBack(GrowthLimit.CLAIMS, 34.0)


@given(
    ages=st.lists(st.floats(-10, 120)),
    asks=st.lists(st.tuples(st.floats(0, 20), st.floats(0, 3))),
    most=st.integers(1, 5),
    usd=st.floats(0.01, 10),
)
def test_no_order_of_creations_exceeds_a_limit(
    ages: list[float], asks: list[tuple[float, float]], most: int, usd: float
) -> None:
    growth, now, spent = Growth(GrowthLimits(most, usd), ages, 0.0), 0.0, 0.0
    created = [-max(0.0, age) for age in ages]
    for after, price in asks:
        now += after
        if growth.refusal(price, elapsed=now) is None:
            growth.take(price, elapsed=now)
            created.append(now)
            spent += price
            assert sum(now - at < WINDOW_SECONDS for at in created) <= most
    assert spent <= usd


def price(**changes: Any) -> float:
    return usd_per_hour(claim("a", **changes), TYPES)


def test_a_node_costs_what_was_launched_else_what_was_planned_else_the_least_that_it_may_be() -> None:
    of = {one.capacity_type: one.price for one in TYPES["c-4x-amd64-linux"].offerings if one.zone == "test-zone-a"}
    labels = {
        names.NODEPOOL_LABEL: "general",
        names.INSTANCE_TYPE_LABEL: "c-4x-amd64-linux",
        names.ZONE_LABEL: "test-zone-a",
        names.CAPACITY_TYPE_LABEL: names.CAPACITY_ON_DEMAND,
    }
    assert price(labels=labels) == of[names.CAPACITY_ON_DEMAND]
    assert price() == of[names.CAPACITY_SPOT]
    least = min(
        offering.price
        for kind in TYPES.values()
        if "amd64" in kind.name
        for offering in kind.offerings
        if offering.available
    )
    assert price(annotations={}) == least
    assert price(annotations={}, labels={**labels, names.INSTANCE_TYPE_LABEL: "gone"}) == 0.0
    assert usd_per_hour(claim("a"), {}) == 0.0


def test_a_missing_price_counts_nothing_and_is_told() -> None:
    unknown = {
        name: replace(kind, offerings=tuple(replace(one, price=100_000.0) for one in kind.offerings))
        for name, kind in TYPES.items()
    }
    for one in (claim("a"), claim("b", annotations={})):
        assert usd_per_hour(one, unknown) == 0.0
        assert lacks_price(one, unknown)
        assert not lacks_price(one, TYPES)
    assert not lacks_price(claim("a"), {})  # nothing is known of any type: nobody says that there is no price


@given(
    ages=st.lists(st.floats(0, 120)),
    usd=st.floats(0, 10),
    prices=st.lists(st.floats(0.1, 3), min_size=1, max_size=6),
    most=st.integers(0, 6),
)
def test_claims_that_are_needed_together_are_allowed_where_one_after_another_would_be(
    ages: list[float], usd: float, prices: list[float], most: int
) -> None:
    growth = Growth(GrowthLimits(most, 10.0), ages, usd)
    held = growth.refusal(sum(prices), claims=len(prices))
    if not most or len(prices) <= most:
        assert (held is None) == (growth.refusals(prices) == [None] * len(prices))
    if held is not None and held.seconds is not None:  # it says when: not before, and then it is
        early, then = (growth.refusal(0.0, held.seconds + late, len(prices)) for late in (-1e-3, 0.0))
        assert held.seconds < 1e-3 or early is not None
        assert then is None or (then.seconds or 1.0) < 1e-9


def test_more_claims_than_a_minute_allows_wait_for_an_empty_one_and_fill_those_that_follow() -> None:
    growth = Growth(GrowthLimits(claims_per_minute=2), (30.0,), 0.0)
    assert growth.refusal(1.0, claims=5) == HeldBack(GrowthLimit.CLAIMS, 30.0)
    assert growth.refusal(1.0, 30.0, claims=5) is None
    for number in range(5):
        growth.take(1.0, 30.0 + growth.counted_after(number))
    free = [growth.refusal(1.0, 30.0 + later) is None for later in (0, 59, 119, 120, 149, 150)]
    assert free == [False, False, False, True, True, True]
