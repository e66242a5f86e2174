"""Laws of what a result says besides places: prices, the reason of each launch, and the least that anybody must pay."""

from dataclasses import replace

from hypothesis import given, settings

from provisioner.scheduling.prepared import prepare
from provisioner.values.resources import Resources
from tests.support import checker, search
from tests.support.agreement import EFFORT
from tests.support.question import Problem
from tests.support.rich import Stock
from tests.support.telling import told

RICH = Stock(20260501)
EXAMPLES = settings(max_examples=max(100, settings().max_examples))
SMALL = RICH.problems(most_kinds=2, copies=(1, 1, 2), most_bins=1)


@EXAMPLES
@given(RICH.problems())
def test_every_type_of_a_claim_has_the_price_of_its_cheapest_offering(asked: Problem) -> None:
    result = prepare(asked).solve(asked.pods, effort=EFFORT, explain=False)
    for claim in result.claims:
        assert len(claim.prices) == len(claim.instance_types)
        assert claim.prices[0] == claim.usd_per_hour
        assert [round(price, 6) for price in claim.prices] == sorted(round(price, 6) for price in claim.prices)
        least: dict[str, float] = {}
        for option in checker.options_of(asked, claim):
            least[option.type.name] = min(option.offering.price, least.get(option.type.name, option.offering.price))
        named = dict(zip(claim.instance_types, claim.prices, strict=True))
        assert {name: named[name] for name in least} == least, told(asked, result)


@EXAMPLES
@given(RICH.problems())
def test_every_type_of_the_pool_is_left_or_refused_for_one_reason(asked: Problem) -> None:
    result = prepare(asked).solve(asked.pods, effort=EFFORT, explain=False)
    types = {pool.name: len(pool.instance_types) for pool in asked.pools}
    for claim in result.claims:
        reason = claim.reason
        assert reason is not None
        assert reason.considered == types[claim.pool]
        assert reason.left == len(claim.instance_types)
        assert min(reason.not_offered, reason.incompatible, reason.too_small, reason.over_limits) >= 0
        if asked.pools[0].remaining is None and len(asked.pools) == 1:
            assert reason.over_limits == 0


@EXAMPLES
@given(SMALL)
def test_no_legal_plan_is_cheaper_than_the_bound(asked: Problem) -> None:
    result = prepare(asked).solve(asked.pods, effort=EFFORT, explain=False)
    least = result.usd_at_least
    assert least is not None
    assert least <= result.usd_per_hour, told(asked, result)
    placed = [pod for pod, _ in checker.placements_of(result)]
    found = search.cheapest(asked, placed)
    assert found is None or least <= found, told(asked, result)


@EXAMPLES
@given(RICH.problems())
def test_more_room_on_existing_nodes_never_raises_the_bound(asked: Problem) -> None:
    result = prepare(asked).solve(asked.pods, effort=EFFORT, explain=False)
    if result.unplaced or not asked.bins:
        return
    first = asked.bins[0]
    roomier = replace(first, room=first.room + Resources.parse({"cpu": "2", "memory": "4Gi", "pods": "5"}))
    other = prepare(replace(asked, bins=(roomier, *asked.bins[1:]))).solve(asked.pods, effort=EFFORT, explain=False)
    if not other.unplaced:
        assert (other.usd_at_least or 0.0) <= (result.usd_at_least or 0.0) + 1e-9
