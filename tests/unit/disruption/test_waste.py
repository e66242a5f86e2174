"""What pods cost at the least: bounds that no fleet is below."""

import itertools
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from provisioner.apis.pods import Pod
from provisioner.cloudprovider.types import InstanceType
from provisioner.disruption.waste import Rates, potential_usd_per_hour
from provisioner.values.resources import Resources
from tests.support.fleets import Fleet, running, several
from tests.support.problems import instance_type, shape

LEAN = instance_type("lean", "4", "8Gi", 0.4, capacity_types=("on-demand",))
FAT = instance_type("fat", "4", "32Gi", 0.6, capacity_types=("on-demand",))
GONE = instance_type(
    "gone", "64", "512Gi", 0.01, zones=("a",), capacity_types=("on-demand",), unavailable=[("a", "on-demand")]
)


def of_size(cpu: float, memory_gib: float, number: int = 0) -> Pod:
    return running(f"p{number}", shape(f"{round(cpu * 1000)}m", f"{round(memory_gib * 1024)}Mi"))


@pytest.mark.parametrize(
    ("sizes", "want"),
    [
        ([], 0.0),
        ([(1, 1)], 0.4),  # one node at the least
        ([(4, 8)] * 3, 1.2),  # full nodes
        ([(1, 30)], 0.6),  # only one type holds it
        ([(5, 1)], math.inf),
    ],
)
def test_what_pods_cost_at_the_least(sizes: list[tuple[float, float]], want: float) -> None:
    rates = Rates.of([LEAN, FAT, GONE])
    assert rates.at_least([of_size(*size, n) for n, size in enumerate(sizes)]) == pytest.approx(want)


def cheapest_fleet(types: list[InstanceType], pods: list[Pod], most: int | None = None) -> float:
    """The least price of nodes, of every way to group the pods on so many."""
    least = math.inf
    for marks in itertools.product(range(min(len(pods), most or len(pods))), repeat=len(pods)):
        total = 0.0
        for mark in set(marks):
            inside = Resources.total(pod.shape.requests for pod, own in zip(pods, marks, strict=True) if own == mark)
            holding = [one for one in types if inside.fits(one.allocatable)]
            total += min((one.offerings[0].price for one in holding), default=math.inf)
        least = min(least, total)
    return least


@given(
    some.lists(some.tuples(some.integers(1, 16), some.integers(1, 64), some.integers(1, 40)), min_size=1, max_size=4),
    some.lists(some.tuples(some.floats(0.1, 8), some.floats(0.1, 32)), min_size=1, max_size=4),
    some.sampled_from((None, 1, 2, 3)),
)
def test_no_fleet_costs_less(
    kinds: list[tuple[int, int, int]], sizes: list[tuple[float, float]], most: int | None
) -> None:
    types = [
        instance_type(f"t{n}", str(cpu), f"{memory}Gi", dimes / 10, capacity_types=("on-demand",))
        for n, (cpu, memory, dimes) in enumerate(kinds)
    ]
    pods = [of_size(*size, n) for n, size in enumerate(sizes)]
    assert Rates.of(types).at_least(pods, most) <= cheapest_fleet(types, pods, most) + 1e-9


@pytest.mark.parametrize(("most", "want"), [(None, 0.5), (3, 0.5), (2, 0.8), (1, math.inf)])
def test_of_one_or_two_nodes_the_least_price_is_known(most: int | None, want: float) -> None:
    """Five CPUs are five fourths of a node, and two of them are needed."""
    rates = Rates.of([LEAN])
    assert rates.at_least([of_size(1, 1, n) for n in range(5)], most) == pytest.approx(want)


def test_pods_are_priced_by_what_they_have_most_of() -> None:
    rates = Rates.of([LEAN, FAT])
    by_cpu, by_memory = (rates.for_load([of_size(*size).shape.requests]) for size in ((4, 1), (1, 32)))
    assert by_cpu.cpu > by_memory.cpu
    assert by_memory.memory > by_cpu.memory


def test_what_could_be_saved_is_what_nodes_cost_above_the_least_for_their_pods() -> None:
    fleet = Fleet(types=(LEAN, FAT))
    assert potential_usd_per_hour(fleet.view()) == 0.0
    fleet.node("full", several(1, "f", shape("4", "8Gi")), kind=LEAN)
    assert potential_usd_per_hour(fleet.view()) == pytest.approx(0.0)
    fleet.node("idle", several(1, "i", shape("1", "2Gi")), kind=FAT)
    assert potential_usd_per_hour(fleet.view()) == pytest.approx(0.6 - 0.1)


@given(some.lists(some.tuples(*[some.integers(0, 6)] * 3), max_size=40))
@example([(0, 3, 1), (1, 4, 5), (2, 2, 3)])
def test_only_what_holds_more_than_all_that_is_cheaper_is_kept(priced: list[tuple[int, int, int]]) -> None:
    kinds = [
        instance_type(f"t{n}", str(cpu + 1), f"{memory + 1}Gi", (price + 1) / 10, capacity_types=("on-demand",))
        for n, (price, cpu, memory) in enumerate(priced)
    ]
    steps = Rates.of(kinds).cheapest
    offers = sorted({(one.lowest_price, one.allocatable["cpu"], one.allocatable["memory"]) for one in kinds})
    want: list[tuple[float, int, int]] = []
    for offer in offers:
        if not any(other[1] >= offer[1] and other[2] >= offer[2] for other in want):
            want.append(offer)
    assert list(steps) == want
