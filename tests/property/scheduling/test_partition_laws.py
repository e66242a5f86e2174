"""Laws of the search for the cheapest nodes of a few pods: as cheap as trying everything, legal, and nothing given up for money."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.scheduling.improvement.acceptance import weighed
from provisioner.scheduling.improvement.partitions import cheapest, split_little
from provisioner.scheduling.judging import design_of
from provisioner.scheduling.prepared import prepare
from provisioner.scheduling.problem import Packing
from tests.support import checker
from tests.support.partitions import usd_of_groups
from tests.support.problems import apart, app, instance_type, of_app, pod, pool, problem, shuffled
from tests.support.question import Problem
from tests.support.rich import Stock

EXAMPLES = settings(max_examples=max(100, settings().max_examples))
pytestmark = pytest.mark.timeout(3600 if settings().max_examples > 1000 else 600)
RICH = Stock(20261127)


@st.composite
def plain(draw: st.DrawFn) -> Problem:
    """Up to five pods that ask for resources, an architecture, and hosts without certain others; prices as they come."""
    types = tuple(
        instance_type(
            f"t{number}",
            str(draw(st.integers(1, 8))),
            f"{draw(st.integers(1, 16))}Gi",
            draw(st.integers(1, 40)) / 8,
            arch=draw(st.sampled_from(("amd64", "arm64"))),
            capacity_types=("on-demand",),
            zones=("a",),
            more={"example.com/gpu": str(gpus)} if (gpus := draw(st.sampled_from((0, 0, 1, 4)))) else {},
        )
        for number in range(draw(st.integers(2, 6)))
    )
    pools = [pool(name, types=tuple(draw(st.lists(st.sampled_from(types), min_size=1, unique=True)))) for name in "ab"]
    kinds = [
        of_app(
            name,
            draw(st.sampled_from(("250m", "1", "2"))),
            draw(st.sampled_from(("256Mi", "1Gi", "3Gi"))),
            more={"example.com/gpu": "1"} if draw(st.booleans()) and name == "gpu" else {},
            selector={names.ARCH_LABEL: "arm64"} if draw(st.integers(0, 3)) == 0 else {},
            affinity=apart(names.HOSTNAME_LABEL, app(draw(st.sampled_from(("x", "y")))))
            if draw(st.integers(0, 3)) == 0
            else None,
        )
        for name in ("x", "y", "gpu")
    ]
    pods = [pod(f"p{number}", draw(st.sampled_from(kinds))) for number in range(draw(st.integers(1, 5)))]
    return problem(pods, *pools)


@EXAMPLES
@given(plain())
def test_nothing_cheaper_is_found_by_trying_everything(asked: Problem) -> None:
    prepared = prepare(asked)
    greedy = prepared.solve(asked.pods)
    found = cheapest(prepared, greedy)
    placed = [pod for claim in greedy.claims for pod in claim.pods]
    assert weighed(prepared, found.claims) == pytest.approx(usd_of_groups(prepared, placed, asked.pools), abs=1e-6)


@EXAMPLES
@given(RICH.problems(), st.randoms(use_true_random=False))
def test_a_cheaper_answer_is_legal_and_of_the_same_pods_and_one_question_has_one_answer(
    asked: Problem, chance: random.Random
) -> None:
    prepared = prepare(asked)
    greedy = prepared.solve(asked.pods)
    found = cheapest(prepared, greedy)
    assert found.usd_per_hour <= greedy.usd_per_hour
    assert (found.existing, found.unplaced) == (greedy.existing, greedy.unplaced)
    other = shuffled(asked, chance)
    again = prepare(other)
    assert weighed(again, cheapest(again, again.solve(other.pods)).claims) == pytest.approx(
        weighed(prepared, found.claims)
    )
    if found is not greedy:
        by_cost = {one.name for one in asked.pools if one.packing is Packing.COST}
        assert split_little(pod for claim in greedy.claims if claim.pool in by_cost for pod in claim.pods)
        assert sorted(one.uid for one in found.placed) == sorted(one.uid for one in greedy.placed)
        assert prepared.judge(design_of(found)).legal
        before = set(checker.violations(asked, greedy))
        spared = {  # of a limit: the next batch has room for pods that this one left out
            f"{left.pod.name} would fit on a new {of.name} of {pool.name}"
            for pool in asked.pools
            if pool.remaining
            for of in pool.instance_types
            for left in greedy.unplaced
        }
        assert set(checker.violations(asked, found)) - before <= spared
        weights = {one.name: one.weight for one in asked.pools}
        of = {pod.uid: weights[claim.pool] for claim in greedy.claims for pod in claim.pods}
        assert {pod.uid: weights[claim.pool] for claim in found.claims for pod in claim.pods} == of
