"""What of two legal answers is taken."""

import functools
from dataclasses import replace

import pytest

from provisioner.scheduling.improvement.acceptance import taken
from provisioner.scheduling.judging import Design, DesignedNode
from provisioner.scheduling.prepared import prepare
from tests.support import problems
from tests.support.problems import pods, pool, problem, shape

instance_type = functools.partial(problems.instance_type, capacity_types=("on-demand",), zones=("a",))
SOME = pods(8, shape("1", "1Gi"))


def fleet(kind: str, count: int) -> list[DesignedNode]:
    each = len(SOME) // count
    return [DesignedNode("default", kind, "a", "on-demand", SOME[n * each : (n + 1) * each]) for n in range(count)]


@pytest.mark.parametrize(
    ("small_usd", "from_small", "is_taken"),
    [
        pytest.param(0.5, True, True, id="as dear with fewer nodes"),
        pytest.param(0.49, True, False, id="a little dearer with fewer nodes"),
        pytest.param(0.499, False, False, id="cheaper by less than the nodes that it has more"),
        pytest.param(0.4, False, True, id="cheaper by more than that"),
    ],
)
def test_a_fleet_is_taken_that_costs_no_more_and_is_worth_less_with_its_nodes(
    small_usd: float, *, from_small: bool, is_taken: bool
) -> None:
    types = instance_type("small", "4", "8Gi", small_usd), instance_type("large", "8", "16Gi", 1.0)
    prepared = prepare(problem(SOME, replace(pool(types=types), node_penalty=0.01)))
    solved = prepared.solve(SOME)
    small, large = fleet("small", 2), fleet("large", 1)
    verdict, claims = prepared.settle(Design(tuple(small if from_small else large)))
    assert verdict.legal
    result = replace(solved, claims=claims)
    found, faults = taken(prepared, result, (), large if from_small else small)
    assert not faults
    assert (found is not result) is is_taken
    assert found.usd_per_hour <= result.usd_per_hour
