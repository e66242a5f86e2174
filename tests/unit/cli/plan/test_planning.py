"""The planner's process, and what happens without its answer."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from provisioner.cli.plan.child import Answered, Asked, answer
from provisioner.cli.plan.planning import EXACT, GREEDY, Answer, Settings, plan
from provisioner.cli.plan.questions import Question
from provisioner.scheduling.arrays import pack_result, unpack_result
from provisioner.scheduling.problem import World
from provisioner.support.clock import SystemClock
from tests.support.problems import instance_type, pods, pool, problem, shape

# first fit fills two large nodes; four of the small ones hold the same for 2.0
POOL = pool(
    types=(
        instance_type("lean", "4", "8Gi", 0.5, capacity_types=("on-demand",)),
        instance_type("wide", "8", "64Gi", 4.0, capacity_types=("on-demand",)),
    )
)
QUICK = Settings(seconds=60.0, rounds=5)


def question(count: int = 16) -> Question:
    asked = problem(pods(count, shape("1", "1Gi")), POOL)
    world = World(**{name: getattr(asked, name) for name in World.__dataclass_fields__})
    return Question(world, asked.pods, {POOL.name: POOL.template}, ())


def test_the_planner_finds_a_cheaper_fleet_in_a_process_of_its_own() -> None:
    found = plan(question(), QUICK)
    assert (found.greedy_usd_per_hour, found.result.usd_per_hour) == (8.0, 2.0)
    assert (found.fallback, found.faults, found.in_time) == ("", (), True)
    assert found.stage != GREEDY
    gap = found.result.gap(found.usd_at_least)
    assert gap is not None
    assert gap < 0.001


def test_a_few_pods_get_the_cheapest_nodes_and_nobody_is_asked() -> None:
    def ask(_: Asked) -> Answered | str:
        raise AssertionError("asked")

    found = plan(question(8), QUICK, ask)
    assert (found.greedy_usd_per_hour, found.result.usd_per_hour) == (4.0, 1.0)
    assert (found.stage, found.fallback, found.faults, found.in_time) == (EXACT, "", (), True)


def test_the_same_question_has_the_same_plan() -> None:
    assert plan(question(), QUICK) == plan(question(), QUICK)


def greedy_because(found: Answer) -> str:
    assert found.result.usd_per_hour == found.greedy_usd_per_hour == 8.0
    assert (found.stage, found.faults) == (GREEDY, ())
    assert not found.in_time
    return found.fallback


def test_without_its_packages_the_plan_is_greedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.cli.plan.planning._MODULES", ("highspy", "no_such_module"))
    assert "no_such_module cannot be imported; install" in greedy_because(plan(question(), QUICK))


def test_a_process_that_is_late_is_ended_and_the_plan_is_greedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.cli.plan.planning._EXTRA_SECONDS", 0.0)
    assert "did not answer within" in greedy_because(plan(question(), replace(QUICK, seconds=0.001)))


def test_a_process_that_needs_too_much_memory_ends_and_the_plan_is_greedy() -> None:
    found = plan(question(), replace(QUICK, memory_bytes=48 << 20))
    assert greedy_because(found).startswith("the planning process")


def test_a_process_that_dies_leaves_the_greedy_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.cli.plan.planning._CODE", "import os; os.kill(os.getpid(), 9)")
    assert greedy_because(plan(question(), QUICK)).startswith("the planning process was ended by signal 9")


def test_what_is_no_answer_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.cli.plan.planning._CODE", "import sys; sys.stdin.buffer.read(); print('nonsense')")
    assert "wrote nothing that can be read" in greedy_because(plan(question(), QUICK))


def changed(how: Callable[[Asked, Answered], Answered]) -> Callable[[Asked], Answered | str]:
    def ask(asked: Asked) -> Answered | str:
        return how(asked, answer(asked, SystemClock()))

    return ask


def dearer(asked: Asked, answered: Answered) -> Answered:
    result = unpack_result(asked.greedy, asked.pods, {})
    return replace(answered, result=pack_result(replace(result, claims=result.claims * 2), asked.pods))


def fewer(asked: Asked, answered: Answered) -> Answered:
    result = unpack_result(answered.result, asked.pods, {})
    return replace(answered, result=pack_result(replace(result, claims=result.claims[:1]), asked.pods))


def crowded(asked: Asked, answered: Answered) -> Answered:
    result = unpack_result(answered.result, asked.pods, {})
    first, *rest = result.claims
    both = replace(
        result, claims=(type(first)(**{**{n: getattr(first, n) for n in first.__struct_fields__}, "pods": asked.pods}),)
    )
    assert rest
    return replace(answered, result=pack_result(both, asked.pods))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (dearer, "it costs more"),
        (fewer, "its plan does not contain every pod exactly once"),
        (crowded, "does not fit on lean with the others"),
    ],
    ids=["dearer", "not all pods", "more pods than fit"],
)
def test_an_answer_that_is_worse_or_illegal_is_refused(how: Callable[[Asked, Answered], Answered], says: str) -> None:
    found = plan(question(), QUICK, changed(how))
    assert found.stage == GREEDY
    assert found.result.usd_per_hour == 8.0
    assert found.fallback.startswith("the planner's answer was refused: ")
    assert says in found.fallback


def test_only_the_child_loads_numpy_and_the_solver() -> None:
    code = (
        "import sys;"
        "from tests.unit.cli.plan.test_planning import QUICK, question;"
        "import provisioner.cli.plan.command;"
        "from provisioner.cli.plan.planning import plan;"
        "print(plan(question(), QUICK).result.usd_per_hour, [m for m in ('numpy', 'highspy') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout.strip() == "2.0 []", result.stderr
