"""The bound: rates that no instance type can be filled beyond its price at, checked without the code that found them."""

import itertools
import random
from collections.abc import Sequence
from fractions import Fraction

import pytest

from provisioner.apis.pods import Pod
from provisioner.cloudprovider.types import InstanceType
from provisioner.packing.dual_prices import Prices, prices_of, proved, slots_by_groups
from provisioner.packing.model import ItemGroup, PackingMarket, Slot, models_of
from provisioner.scheduling.prepared import prepare
from tests.support import priced_fleets
from tests.support.problems import instance_type, node, pods, pool, problem, shape

KINDS = ("micro", "batch", "memory", "zonal", "gpu")


def priced(world_of_types: Sequence[InstanceType], some: tuple[Pod, ...]) -> tuple[PackingMarket, Prices]:
    prepared = prepare(priced_fleets.world_of(world_of_types))
    market = next(models_of(prepared.setting(some), prepared.solve(some))).market
    return market, prices_of(market)


@pytest.mark.parametrize("kind", KINDS)
def test_no_type_of_ec2_holds_pods_that_are_worth_more_than_it_costs(kind: str) -> None:
    """Worth is a rate times a request, so what fits on a node is worth at most the rates times what the node has for pods."""
    types = priced_fleets.ec2_types(gpus=kind == "gpu")
    some = priced_fleets.workload(kind, 500)
    market, prices = priced(types, some)
    (rates,) = prices.rates  # every pod may go to every type
    daemons = [one.requests for one in priced_fleets.DAEMONS]
    tight = 0
    for one in types:
        room = {
            name: max(0, one.allocatable.amount(name) - sum(daemon.amount(name) for daemon in daemons))
            for name in market.names
        }
        worth = sum((rate * room[name] for name, rate in zip(market.names, rates, strict=True)), Fraction(0))
        for offering in one.offerings:
            assert worth <= Fraction(str(offering.price))
        tight += worth > Fraction(str(one.offerings[0].price)) * Fraction(999, 1000)
    assert tight  # the rates are as high as they can be
    total = sum(
        (
            rate * pod.shape.requests.amount(name)
            for pod in some
            for name, rate in zip(market.names, rates, strict=True)
        ),
        Fraction(0),
    )
    assert total - Fraction(1, 10**6) <= Fraction(str(prices.usd_at_least)) <= total


def some_types(chance: random.Random) -> tuple[InstanceType, ...]:
    """Four by chance, and one that holds any pod of these tests."""
    drawn = [
        instance_type(f"t{n}", str(chance.randint(2, 9)), f"{chance.randint(2, 20)}Gi", chance.randint(3, 40) / 10)
        for n in range(4)
    ]
    return (*drawn, instance_type("all", "10", "24Gi", 6.0))


@pytest.mark.parametrize("seed", range(12))
def test_no_fleet_of_a_few_pods_costs_less_than_the_bound(seed: int) -> None:
    """All ways to share five pods out among nodes, each node of the cheapest type that holds it."""
    chance = random.Random(seed)
    types = some_types(chance)
    shapes = [shape(str(chance.randint(1, 5)), f"{chance.randint(1, 9)}Gi") for _ in range(5)]
    some = tuple(one for number, own in enumerate(shapes) for one in pods(1, own, f"p{number}"))
    asked = problem(some, pool(types=types))
    prepared = prepare(asked)
    prices = prices_of(next(models_of(prepared.setting(some), prepared.solve(some))).market)
    best = min(_cost(parts, types) for parts in _partitions(list(some)))
    assert 0 < prices.usd_at_least <= best


def _partitions(some: list[Pod]) -> list[list[list[Pod]]]:
    if not some:
        return [[]]
    first, found = some[0], []
    for rest in _partitions(some[1:]):
        found.append([[first], *rest])
        found += [[*rest[:n], [first, *rest[n]], *rest[n + 1 :]] for n in range(len(rest))]
    return found


def _cost(parts: list[list[Pod]], types: Sequence[InstanceType]) -> float:
    total = 0.0
    for part in parts:
        fitting = [
            min(one.price for one in kind.offerings)
            for kind in types
            if all(
                sum(pod.shape.requests.amount(name) for pod in part) <= kind.allocatable.amount(name)
                for name in ("cpu", "memory", "pods")
            )
        ]
        total += min(fitting, default=float("inf"))
    return total


@pytest.mark.parametrize("seed", range(12))
def test_no_fleet_within_limits_costs_less_than_the_bound(seed: int) -> None:
    """All ways to share four pods out among nodes of any type that holds them, those that count more cpus than is left put aside."""
    chance = random.Random(seed)
    types = some_types(chance)
    some = tuple(pods(1, shape("1", f"{chance.randint(2, 9)}Gi"), f"p{n}")[0] for n in range(4))
    cpus = chance.randint(8, 20)
    free, within = problem(some, pool(types=types)), problem(some, pool(types=types, limits={"cpu": str(cpus)}))
    bounds = []
    for asked in (free, within):
        prepared = prepare(asked)
        result = prepared.solve(some)
        if result.unplaced:
            return
        bounds.append(prices_of(next(models_of(prepared.setting(some), result)).market).usd_at_least)
    best = min(
        sum(usd for usd, _ in chosen)
        for parts in _partitions(list(some))
        for chosen in itertools.product(*[_choices(part, types) for part in parts])
        if sum(amount for _, amount in chosen) <= cpus * 1000
    )
    assert 0 < bounds[0] <= bounds[1] <= best


def _choices(part: list[Pod], types: Sequence[InstanceType]) -> list[tuple[float, int]]:
    """(price, cpu) of each type that holds these pods."""
    return [(usd, kind.capacity.amount("cpu")) for kind in types if (usd := _cost([part], [kind])) < float("inf")]


def test_a_limit_makes_the_bound_higher() -> None:
    slots = (Slot(0, 0, "", "", Fraction(1), (4,), charge=(4,)), Slot(0, 1, "", "", Fraction(3), (8,), charge=(2,)))
    groups = (ItemGroup((80,), 0b11, 0),)
    assert prices_of(PackingMarket(("cpu",), slots, groups, budgets=(80,))).usd_at_least == pytest.approx(20, abs=1e-5)
    prices = prices_of(PackingMarket(("cpu",), slots, groups, budgets=(50,)))  # 10 of the first and 5 of the second
    assert prices.usd_at_least == pytest.approx(25, abs=1e-5)
    assert prices.tolls == pytest.approx([1 / 6])


def test_what_existing_nodes_can_take_is_for_nothing() -> None:
    some = pods(10, shape("1", "1Gi"))
    alone, beside = problem(some, pool()), problem(some, pool(), bins=[node("n", "4", "64Gi")])
    bounds = []
    for asked in (alone, beside):
        prepared = prepare(asked)
        bounds.append(prices_of(next(models_of(prepared.setting(some), prepared.solve(some))).market).usd_at_least)
    assert 0 < bounds[1] <= bounds[0] * 0.6 + 1e-5


def test_rates_that_are_too_high_are_scaled_down_until_they_are_exactly_feasible() -> None:
    slots = (Slot(0, 0, "", "", Fraction("0.3"), (3, 7)), Slot(0, 1, "", "", Fraction("0.5"), (10, 1)))
    market = PackingMarket(("cpu", "memory"), slots, (ItemGroup((30, 10), 0b11, 0), ItemGroup((1, 5), 0b01, 0)), (), ())
    prices = proved(market, slots_by_groups(market), [[Fraction(1, 7), Fraction(1, 3)], [Fraction(1, 5), Fraction(0)]])
    mixed = [max(a, b) for a, b in zip(*prices.rates, strict=True)]
    assert mixed[0] * 3 + mixed[1] * 7 <= Fraction("0.3")
    assert prices.rates[0][0] * 10 + prices.rates[0][1] <= Fraction("0.5")
    loads = itertools.product(range(4), range(8), range(4), range(8))
    for cpu, memory, other_cpu, other_memory in loads:  # whatever of both groups fits on the first slot
        if cpu + other_cpu <= 3 and memory + other_memory <= 7:
            worth = prices.worth(0, (cpu, memory)) + prices.worth(1, (other_cpu, other_memory))
            assert worth <= Fraction("0.3")


def test_a_reservation_is_cheap_as_often_as_there_are_nodes_of_it() -> None:
    slots = (Slot(0, 0, "", "", Fraction(1), (4,)), Slot(0, 0, "*", "*", Fraction(0), (4,), 0))
    market = PackingMarket(("cpu",), slots, (ItemGroup((40,), 0b11, 0),), (), (3,))
    assert prices_of(market).usd_at_least == pytest.approx(7, abs=1e-5)
