"""The worth of whole loads, and the bound that follows, against every load and every fleet of a few pods."""

import itertools
import random
from fractions import Fraction

import numpy as np
import pytest

from provisioner.packing.dual_prices import prices_of
from provisioner.packing.knapsack import NANO, Knapsacks
from provisioner.packing.model import Model, models_of
from provisioner.packing.patterns import arrays_of
from provisioner.scheduling.prepared import prepare
from tests.support import priced_fleets
from tests.support.improving import improve
from tests.support.problems import instance_type, node, pods, pool, problem, shape
from tests.support.question import Problem


def model_of(asked: Problem) -> Model:
    prepared = prepare(asked)
    return next(models_of(prepared.setting(asked.pods), prepared.solve(asked.pods)))


def knapsacks_of(asked: Problem) -> Knapsacks | None:
    model = model_of(asked)
    return Knapsacks.of(model, arrays_of(model)[1].tolist())


@pytest.mark.parametrize("seed", range(6))
def test_a_table_says_the_worth_of_the_best_load_and_which_it_is(seed: int) -> None:
    chance = random.Random(seed)
    needs = tuple({(chance.randint(1, 4), chance.randint(0, 5)): None for _ in range(4)})
    rooms = np.array([(chance.randint(3, 9), chance.randint(3, 12)) for _ in range(3)])
    own = Knapsacks(needs, rooms, rooms, (Fraction(1),) * 3, (9,) * len(needs))
    worth = np.array([chance.randint(0, 50) for _ in needs], dtype=np.int64)
    table = own.table(worth)
    for slot, (cpu, memory) in enumerate(rooms.tolist()):
        loads = [
            load
            for load in itertools.product(range(10), repeat=len(needs))
            if sum(n * k for n, (k, _) in zip(load, needs, strict=True)) <= cpu
            and sum(n * m for n, (_, m) in zip(load, needs, strict=True)) <= memory
        ]
        best = max(int(np.dot(load, worth)) for load in loads)
        assert own.values(table)[slot] == pytest.approx(best / NANO)
        found = own.load(table, worth, slot)
        assert int(np.dot(found, worth)) == best
        assert tuple(found.tolist()) in loads


@pytest.mark.parametrize("seed", range(8))
def test_no_worths_make_a_bound_that_a_fleet_costs_less_than(seed: int) -> None:
    chance = random.Random(seed)
    types = tuple(
        instance_type(f"t{n}", str(chance.randint(4, 8)), f"{chance.randint(8, 20)}Gi", chance.randint(10, 40) / 10)
        for n in range(3)
    )
    some = [*pods(4, shape("1", "2Gi"), "a"), *pods(3, shape("3", "3Gi"), "b")]
    asked = problem(some, pool(types=types))
    own = knapsacks_of(asked)
    assert own is not None
    fleet = improve(prepare(asked), some, prepare(asked).solve(some)).usd_per_hour
    for _ in range(20):
        worth = np.array([chance.randint(1, 10**9) for _ in own.needs], dtype=np.int64)
        assert own.usd_at_least(worth, own.table(worth)) <= fleet


def test_the_bound_is_higher_where_pods_are_a_large_part_of_a_node() -> None:
    four = instance_type("four", "4", "64Gi", 1.0, capacity_types=("on-demand",))
    some = pods(30, shape("3", "1Gi"))
    asked = problem(some, pool(types=(four,)))
    assert prices_of(model_of(asked).market).usd_at_least == pytest.approx(22.5, abs=1e-3)
    prepared = prepare(asked)
    plan = improve(prepared, some, prepared.solve(some))
    assert plan.usd_at_least == pytest.approx(30.0, abs=1e-3)
    assert plan.gap == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    "asked",
    [
        problem(pods(4, shape("1", "1Gi")), pool(), bins=[node("n", "2", "8Gi")]),
        problem(
            [*pods(2, shape("1", "1Gi")), *pods(2, shape("1", "1Gi", selector={"a": "b"}), "b")],
            pool(),
            pool("b", labels={"a": "b"}),
        ),
        problem(pods(4, shape("0", "1Gi")), pool()),
        problem([*pods(4, shape("1", "1Gi")), *pods(1, shape("1m", "1000001"), "odd")], pool()),
        problem(
            [*pods(2, shape("13001m", "64Gi"), "a"), *pods(2, shape("13003m", "64Gi"), "b")],
            pool(types=(instance_type("huge", "192", "1536Gi", 9.0),)),
        ),
    ],
    ids=["existing nodes", "pods of several kinds of nodes", "no cpu", "sizes of no common unit", "many short rows"],
)
def test_where_it_does_not_hold_or_costs_too_much_there_is_none(asked: Problem) -> None:
    assert knapsacks_of(asked) is None


def test_a_pool_of_small_nodes_is_packed_within_a_hundredth_of_the_bound() -> None:
    some = priced_fleets.workload("batch", 1000)
    prepared = prepare(priced_fleets.world_of(priced_fleets.ec2_types(most_cpus=32)))
    plan = improve(prepared, some, prepared.solve(some), iterations=30)
    assert plan.gap < 0.01
