"""The planner's process, and what happens without its answer."""

import subprocess
import sys
from dataclasses import replace

import pytest

from provisioner.cli.plan.planning import EXACT, GREEDY, MENDED, PlanAnswer, PlanSettings, plan
from provisioner.cli.plan.questions import PlanQuestion
from provisioner.packing.process import COMMAND, PlannerProcess
from provisioner.scheduling.problem import World
from provisioner.support.clock import SystemClock
from tests.support.problems import instance_type, pods, pool, problem, shape
from tests.unit.packing.test_planner import scripted

# first fit fills two large nodes; four of the small ones hold the same for 2.0
POOL = pool(
    types=(
        instance_type("lean", "4", "8Gi", 0.5, capacity_types=("on-demand",)),
        instance_type("wide", "8", "64Gi", 4.0, capacity_types=("on-demand",)),
    )
)
QUICK = PlanSettings(seconds=60.0, rounds=5)


def question(count: int = 16) -> PlanQuestion:
    asked = problem(pods(count, shape("1", "1Gi")), POOL)
    world = World(**{name: getattr(asked, name) for name in World.__dataclass_fields__})
    return PlanQuestion(world, asked.pods, ())


def test_the_planner_finds_a_cheaper_fleet_in_a_process_of_its_own() -> None:
    found = plan(question(), QUICK)
    assert (found.greedy_usd_per_hour, found.result.usd_per_hour) == (8.0, 2.0)
    assert (found.fallback, found.faults, found.in_time) == ("", (), True)
    assert found.stage != GREEDY
    gap = found.result.gap(found.usd_at_least)
    assert gap is not None
    assert gap < 0.001


def test_a_few_pods_get_the_cheapest_nodes_and_nobody_is_asked() -> None:
    process = PlannerProcess(SystemClock(), command=("/no/such/program",))
    found = plan(question(8), QUICK, process)
    assert process.problem == "", "it was not started"
    assert (found.greedy_usd_per_hour, found.result.usd_per_hour) == (4.0, 1.0)
    assert (found.stage, found.fallback, found.faults, found.in_time) == (EXACT, "", (), True)


def test_the_same_question_has_the_same_plan() -> None:
    assert plan(question(), QUICK) == plan(question(), QUICK)


def mended_because(found: PlanAnswer) -> str:
    assert (found.result.usd_per_hour, found.greedy_usd_per_hour) == (2.0, 8.0)
    assert (found.stage, found.faults) == (MENDED, ())
    assert not found.in_time
    return found.fallback


def unasked(count: int, command: tuple[str, ...] = COMMAND, *, seconds: float = 60.0) -> str:
    """Why the plan is the greedy one, mended, when another process is asked."""
    return mended_because(
        plan(question(count), replace(QUICK, seconds=seconds), PlannerProcess(SystemClock(), command=command))
    )


def test_without_its_packages_the_plan_is_mended_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.packing.process.PACKAGES", ("highspy", "no_such_module"))
    said = unasked(16)
    assert "no_such_module cannot be imported; install" in said


REPLIES = {
    "it is late": ("time.sleep(60)", "it did not answer in time"),
    "it dies": ("os.kill(os.getpid(), 9)", "it was ended by signal 9"),
    "it needs too much memory": ("os._exit(4)", "of address space"),
    "it says nothing that can be read": ('write(b"nonsense")', "its answer cannot be read"),
}


@pytest.mark.parametrize(("does", "says"), REPLIES.values(), ids=REPLIES)
def test_without_an_answer_the_plan_is_mended_alone(monkeypatch: pytest.MonkeyPatch, does: str, says: str) -> None:
    monkeypatch.setattr("provisioner.cli.plan.planning._EXTRA_SECONDS", 0.1)
    assert says in unasked(16, scripted(does), seconds=1.0)


WRONG = {
    "not all pods": (
        '(ProposedNode("{}", "lean", "", "on-demand", (0,)),)',
        "not contain every pod exactly once",
        MENDED,
    ),
    "more pods than fit": ('(ProposedNode("{}", "lean", "", "on-demand", everything),)', "with the others", GREEDY),
}


@pytest.mark.parametrize(("nodes", "says", "stage"), WRONG.values(), ids=WRONG)
def test_an_answer_that_is_incomplete_or_illegal_is_refused(nodes: str, says: str, stage: str) -> None:
    command = scripted(f'say(PackingReply(q.number, 0.1, "dive", (), {nodes.format(POOL.name)}))')
    found = plan(question(), QUICK, PlannerProcess(SystemClock(), command=command))
    assert (found.stage, found.result.usd_per_hour) == (stage, 2.0 if stage == MENDED else 8.0)
    assert "rejected: " in found.fallback
    assert says in found.fallback


def test_only_the_process_loads_numpy_and_the_solver() -> None:
    code = (
        "import sys;"
        "from tests.unit.cli.plan.test_planning import QUICK, question;"
        "import provisioner.cli.plan.command;"
        "from provisioner.cli.plan.planning import plan;"
        "print(plan(question(), QUICK).result.usd_per_hour, [m for m in ('numpy', 'highspy') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout.strip() == "2.0 []", result.stderr
