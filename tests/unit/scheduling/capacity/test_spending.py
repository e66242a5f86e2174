"""The money limit of a NodePool, as one more resource of its limits."""

from dataclasses import replace

import pytest

from provisioner.apis import names
from provisioner.apis.karpenter import NodePool
from provisioner.apis.pool_limits import USD, PoolLimitError, spending_limit
from provisioner.scheduling.capacity.spending import PricedTypes, reached, spent
from provisioner.scheduling.judging import design_of
from provisioner.scheduling.prepared import prepare
from provisioner.scheduling.problem import SchedulingPool
from provisioner.values.resources import Resources
from tests.support import cluster
from tests.support.fleets import Fleet
from tests.support.improving import improve
from tests.support.problems import instance_type, offering, pods, pool, problem, shape

SPOT = (names.CAPACITY_TYPE_LABEL, "In", ("spot",))
BOTH = instance_type("both", "4", "8Gi", offerings=[offering("a", 0.3, "spot"), offering("b", 1.0)])


def annotated(text: str | None) -> NodePool:
    one = cluster.pool()
    if text is not None:
        one.metadata.annotations[names.MAX_USD_PER_HOUR] = text
    return one


def limited(own: SchedulingPool, usd: float) -> SchedulingPool:
    """With a money limit, as `scheduling.world` makes it."""
    types = PricedTypes().of(own.name, own.instance_types, own.requirements)
    return replace(own, instance_types=types, remaining=Resources.of({USD: round(usd * 1e6)}))


@pytest.mark.parametrize(
    ("text", "micros"), [(None, None), ("12", 12_000_000), ("0.5", 500_000), ("0.000001", 1), ("7.25", 7_250_000)]
)
def test_a_limit_is_read_exactly(text: str | None, micros: int | None) -> None:
    assert spending_limit(annotated(text)) == micros


@pytest.mark.parametrize(
    "text", ["", "0", "0.0", "-1", "1e3", "nan", "inf", "$5", "1,5", "1.", "٣", "1" * 10, "0.0000001"]
)
def test_what_is_no_amount_is_refused_with_its_path(text: str) -> None:
    with pytest.raises(PoolLimitError, match=r"metadata\.annotations\[dovetail\.dev/max-usd-per-hour\]"):
        spending_limit(annotated(text))


@pytest.mark.parametrize(
    ("own", "nodes"),
    [(pool(types=(BOTH,)), 2), (pool("default", SPOT, types=(BOTH,)), 8)],
    ids=["of both capacity types, where a node may come to cost a dollar", "of spot"],
)
def test_no_more_nodes_are_planned_than_the_limit_pays_for(own: SchedulingPool, nodes: int) -> None:
    asked = problem(pods(10, shape("3", "1Gi")), limited(own, 2.5))
    prepared = prepare(asked)
    result = prepared.solve(asked.pods)
    assert len(result.claims) == nodes
    said = {str(reason) for one in result.unplaced for reason in one.reasons}
    assert any("limit on USD per hour:" in one for one in said), said
    plan = improve(prepared, asked.pods, result)
    assert prepared.judge(design_of(plan.result)).legal
    assert len(plan.result.claims) <= nodes


def test_other_pools_take_what_a_limit_leaves() -> None:
    first = limited(pool("first", SPOT, types=(BOTH,), weight=10), 0.7)
    asked = problem(pods(5, shape("3", "1Gi")), first, pool("second", types=(instance_type("other", "4", "8Gi", 2.0),)))
    result = prepare(asked).solve(asked.pods)
    assert sorted(claim.pool for claim in result.claims) == ["first"] * 2 + ["second"] * 3


def test_a_planned_node_may_not_become_a_type_that_costs_more_than_its_share() -> None:
    dear = instance_type("dear", "8", "16Gi", 5.0)
    asked = problem(
        pods(
            2,
            shape("3", "1Gi"),
        ),
        limited(pool(types=(BOTH, dear)), 2.5),
    )
    result = prepare(asked).solve(asked.pods)
    assert result.claims
    assert all(claim.instance_types == ("both",) for claim in result.claims)


def test_a_zone_that_does_not_sell_a_type_keeps_it_from_nobody() -> None:
    absent = offering("c", 100_000.0, "spot", available=False)  # as the AWS provider says it
    dear = offering("c", 7.0, "spot", available=False)  # out of stock for now
    own = pool(types=(replace(BOTH, offerings=(*BOTH.offerings, absent)),))
    (priced,) = PricedTypes().of(own.name, own.instance_types, own.requirements)
    assert priced.capacity.amount(USD) == 1_000_000
    (priced,) = PricedTypes().of(own.name, (replace(BOTH, offerings=(*BOTH.offerings, dear)),), own.requirements)
    assert priced.capacity.amount(USD) == 7_000_000


def test_a_running_node_whose_price_vanished_counts_as_on_demand() -> None:
    """At 100,000 USD per hour it would stop its NodePool for as long as it runs."""
    vanished = replace(BOTH, offerings=(offering("b", 100_000.0, "spot", available=False), offering("b", 1.0)))
    node = Fleet().node("a", kind=BOTH, zone="b", capacity_type="spot")
    assert spent([node], {"both": vanished}) == 1_000_000


def test_a_limit_says_that_a_price_is_missing() -> None:
    unknown = replace(BOTH, offerings=(offering("b", 100_000.0),))
    asked = problem(pods(1, shape("3", "1Gi")), limited(pool(types=(unknown,)), 2.5))
    (left,) = prepare(asked).solve(asked.pods).unplaced
    (reason,) = left.reasons
    assert str(reason).endswith("limit on USD per hour: no instance type that fits has a known price")


def test_a_node_that_goes_costs_nothing() -> None:
    node = Fleet().node("a", kind=BOTH, zone="b", deleting=True)
    assert spent([node], {"both": BOTH}) == 0


def test_nobody_can_ask_for_money() -> None:
    asked = problem(pods(1, shape("1", "1Gi", more={USD: "1"})), limited(pool(types=(BOTH,)), 50))
    assert prepare(asked).solve(asked.pods).unplaced


def test_types_stay_the_same_object_while_nothing_changed() -> None:
    own, priced = pool(types=(BOTH,)), PricedTypes()
    first = priced.of("one", own.instance_types, own.requirements)
    assert priced.of("one", own.instance_types, own.requirements) is first
    other = (replace(BOTH, offerings=(offering("a", 0.4, "spot"),)),)
    assert priced.of("one", other, own.requirements)[0].capacity.amount(USD) == 400_000


@pytest.mark.parametrize(("left", "full"), [(1_000_000, False), (999_999, True), (-1, True)])
def test_a_limit_is_reached_where_no_type_fits_any_more(left: int, *, full: bool) -> None:
    own = pool(types=(BOTH,))
    assert reached(left, own.instance_types, own.requirements) is full
