"""Laws of the solver over small problems that use everything; the naive checker, a brute-force search and repetition judge."""

import os
import random
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from provisioner.apis.pods import Pod
from provisioner.scheduling.problem import MinValuesPolicy, PreferencePolicy
from provisioner.scheduling.result import Result
from tests.support import checker, search
from tests.support.problems import shuffled
from tests.support.question import Problem, solve
from tests.support.rich import Stock, foreign_node, foreign_pool, without_offerings
from tests.support.telling import told

REPOSITORY = Path(__file__).parents[3]
RICH = Stock(20260401)
OWNED = Stock(20260402, own=True)
GENTLE = Stock(20260403, gentle=True)
PROBLEMS = RICH.problems()
EXAMPLES = settings(max_examples=max(150, settings().max_examples))
POLICIES = st.tuples(st.sampled_from(PreferencePolicy), st.sampled_from(MinValuesPolicy))


def gist(result: Result) -> object:
    """Everything that a result says, comparable."""
    return (
        result.claims,
        result.existing,
        [(one.pod.uid, str(one)) for one in result.unplaced],
    )


def places(result: Result) -> object:
    """Which kinds of pods are where, without the words of reasons; equal pods and equal nodes are interchangeable."""

    def kinds(pods: Iterable[Pod]) -> list[tuple[str, str]]:
        return sorted((pod.namespace, pod.shape.key) for pod in pods)

    return (
        sorted((claim.pool, claim.planned_type, claim.planned_zone, kinds(claim.pods)) for claim in result.claims),
        {name: kinds(pods) for name, pods in result.existing.items()},
        kinds(one.pod for one in result.unplaced),
    )


def _assert_same(asked: Problem, more: Problem) -> None:
    """More was asked, and nothing else answered."""
    before, after = solve(asked), solve(more)
    assert places(after) == places(before), f"{told(asked, before)}\nwith more\n{told(more, after)}"


@EXAMPLES
@given(PROBLEMS, POLICIES)
def test_nothing_is_illegal_and_nothing_that_fits_is_left_over(
    asked: Problem, policies: tuple[PreferencePolicy, MinValuesPolicy]
) -> None:
    asked = replace(asked, preferences=policies[0], min_values=policies[1])
    result = solve(asked)
    wrong = checker.violations(asked, result)
    assert not wrong, "\n".join([*wrong, told(asked, result)])


REFUSED = {
    "an order of binding that only who comes last tells: spread over a label of the pool": (RICH, 1183),
    "an order of binding that only who comes last tells: spread over zones, beside pods that it counts": (OWNED, 92),
    "an order of binding that only who comes last tells: a pod that must be the first of its kind": (OWNED, 302),
    "an order of binding that only who comes last tells: spread over zones, and friends that must be there": (
        OWNED,
        887,
    ),
    "a node too full for its spread already, before pods without another place came to it": (OWNED, 212),
    "a node too full for its spread, and the pod that had no other place must be there first": (GENTLE, 88),
    "a pod that must be the first of its kind, and its spread, for which another of its kind must be there before": (
        GENTLE,
        1439,
    ),
    "a pod that is left though there is a node on which it fits, where a spread does not count it": (RICH, 709),
    "pods that wait for each other: a zone that is too empty, what fills it, and what must come before that": (
        OWNED,
        1248,
    ),
}
"""Problems of which the judge refused an answer once, and what was wrong, there or here."""


@pytest.mark.parametrize(("stock", "seed"), REFUSED.values(), ids=REFUSED)
def test_an_answer_that_was_refused_once_is_legal(stock: Stock, seed: int) -> None:
    asked = stock.drawn(random.Random(seed))
    result = solve(asked)
    wrong = checker.violations(asked, result)
    assert not wrong, "\n".join([*wrong, told(asked, result)])


@EXAMPLES
@given(PROBLEMS, st.sampled_from((0, 2, 3)))
def test_nothing_is_illegal_over_however_many_nodes_a_hostname_spread_is_planned(asked: Problem, domains: int) -> None:
    asked = replace(asked, hostname_domains=domains)
    result = solve(asked)
    wrong = [text for text in checker.violations(asked, result) if " would fit " not in text]  # by the letter
    assert not wrong, "\n".join([*wrong, told(asked, result)])


@EXAMPLES
@given(PROBLEMS, st.randoms(use_true_random=False))
def test_the_order_of_input_does_not_matter(asked: Problem, chance: random.Random) -> None:
    assert gist(solve(shuffled(asked, chance))) == gist(solve(asked))


@EXAMPLES
@given(PROBLEMS)
def test_the_same_question_gets_the_same_answer(asked: Problem) -> None:
    assert gist(solve(asked)) == gist(solve(asked))


ELSEWHERE = """
import hashlib, random
from tests.support.question import solve
from tests.support.rich import Stock

stock, chance, digest = Stock(20260404), random.Random(7), hashlib.sha256()
for _ in range(60):
    result = solve(stock.drawn(chance))
    digest.update(repr([(claim, [pod.uid for pod in claim.pods]) for claim in result.claims]).encode())
    digest.update(repr([(name, [pod.uid for pod in pods]) for name, pods in result.existing.items()]).encode())
    digest.update(repr([(one.pod.uid, str(one)) for one in result.unplaced]).encode())
print(digest.hexdigest())
"""


def test_another_process_gives_the_same_answers() -> None:
    """Sets and dicts are ordered otherwise with another hash seed."""

    def answers(seed: str) -> str:
        command = [sys.executable, "-c", ELSEWHERE]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        return subprocess.run(
            command, env=environment, cwd=REPOSITORY, check=True, capture_output=True, text=True
        ).stdout

    assert answers("1") == answers("2")


@EXAMPLES
@given(OWNED.problems())
def test_a_node_that_no_pod_selects_changes_nothing(asked: Problem) -> None:
    more = replace(asked, bins=(*asked.bins, foreign_node()))
    _assert_same(asked, more)


@EXAMPLES
@given(OWNED.problems())
def test_a_pool_that_no_pod_selects_changes_nothing(asked: Problem) -> None:
    more = replace(asked, pools=(*asked.pools, foreign_pool()))
    _assert_same(asked, more)


@EXAMPLES
@given(PROBLEMS)
def test_a_zone_without_an_offering_changes_nothing(asked: Problem) -> None:
    more = replace(asked, pools=tuple(without_offerings(one) for one in asked.pools))
    _assert_same(asked, more)


@EXAMPLES
@given(GENTLE.problems(most_kinds=3, copies=(1, 1, 2), most_bins=2))
def test_nothing_is_left_that_a_search_places(asked: Problem) -> None:
    asked = replace(asked, pods=asked.pods[:4])
    result = solve(asked)
    if not result.unplaced:
        return
    placed = [pod for pod, _ in checker.placements_of(result)]
    for one in {one.pod.shape.key: one for one in result.unplaced}.values():
        try:
            found = search.placeable(asked, [*placed, one.pod])
        except search.TooHardError:
            reject()
        assert not found, f"{one.pod.name} was left: {one}\n{told(asked, result)}"
