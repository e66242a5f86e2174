"""The cost planner of the provisioner: what it saves, and that pods get their nodes by the greedy plan whatever happens to its process."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.gangs import GroupSource
from provisioner.packing import process as planner_process
from provisioner.packing.planner import LEAST_SECONDS, PackingOutcome, Patience, Planner, PlanOutcome
from provisioner.packing.process import (
    COMMAND,
    MEMORY_BYTES,
    PLANNER_NOT_INSTALLED,
    PackingRefusal,
    PlannerProcess,
    ProcessReply,
)
from provisioner.packing.protocol import ROUNDS
from provisioner.scheduling.improvement.partitions import MOST_PODS
from provisioner.scheduling.judging import design_of
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.problem import Packing, World
from provisioner.scheduling.result import Result
from provisioner.support.clock import SystemClock
from tests.support.podgroups import grouped
from tests.support.problems import instance_type, pods, pool, problem, shape
from tests.unit.scheduling.improvement import test_balancing as balancing

LEAN = instance_type("lean", "4", "8Gi", 0.5, capacity_types=("on-demand",))
WIDE = instance_type("wide", "8", "64Gi", 4.0, capacity_types=("on-demand",))
POOL = pool("pool", types=(LEAN, WIDE))
GREEDY_USD, MENDED_USD, BEST_USD = 8.0, 2.0, 2.0
PATIENT = Patience(least=120.0, most=120.0, grace=60.0)
"""A process answers as soon as it can; on a crowded node that may take long."""
HASTY = Patience(least=0.4, most=0.4, grace=0.1)
WINDOW = 120.0


class Movable(SystemClock):
    """The machine's clock, and hours may pass at once."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


#: A planning process of the test's own: it says that it is ready, and does with each question what stands where `{}` is.
SCRIPT = """
import os, signal, sys, time
from provisioner.packing.protocol import *
out = sys.stdout.buffer
def write(data):
    out.write(len(data).to_bytes(4, "little") + data)
    out.flush()
def say(answered):
    write(answer_bytes(answered))
say(PackingReply(0))
receiver, late = Receiver(), []
while head := sys.stdin.buffer.read(4):
    q, _ = receiver.question(sys.stdin.buffer.read(int.from_bytes(head, "little")))
    everything = tuple(range(len(q.pods)))
    {}
"""


def scripted(does: str) -> tuple[str, ...]:
    return sys.executable, "-c", SCRIPT.format(does)


def nobody(_scheduler: str) -> bool:
    """Steers no pods."""
    return False


def asked(count: int = 16) -> tuple[Prepared, Result]:
    question = problem(pods(count, shape("1", "1Gi")), POOL)
    world = World(**{name: getattr(question, name) for name in World.__dataclass_fields__})
    prepared = prepare(world)
    return prepared, prepared.solve(question.pods)


@contextmanager
def planners(
    command: tuple[str, ...] = COMMAND, patience: Patience = PATIENT, clock: SystemClock | None = None
) -> Iterator[tuple[Planner, PlannerProcess]]:
    process = PlannerProcess(clock or SystemClock(), command=command)
    try:
        yield Planner(process, clock or SystemClock(), patience, steers=nobody), process
    finally:
        process.stop()
        process.tidy()


def checked(planned: PackingOutcome, prepared: Prepared, greedy: Result) -> PackingOutcome:
    """Whatever came of it: every pod has its node, legally, and for no more money than the greedy plan's."""
    assert planned.result.usd_per_hour <= greedy.usd_per_hour
    assert prepared.judge(design_of(planned.result)).legal
    placed = [one.uid for claim in planned.result.claims for one in claim.pods]
    assert sorted(placed) == sorted(one.uid for claim in greedy.claims for one in claim.pods)
    assert planned.usd_at_least is None or planned.usd_at_least <= planned.result.usd_per_hour
    return planned


def plan(planner: Planner, count: int = 16, seconds: float = WINDOW) -> PackingOutcome:
    prepared, greedy = asked(count)
    return checked(planner.planned(prepared, greedy, seconds), prepared, greedy)


def assert_greedy(planned: PackingOutcome, outcome: PlanOutcome | PackingRefusal) -> None:
    assert planned.outcome == outcome
    assert planned.result.usd_per_hour == GREEDY_USD


def assert_mended(planned: PackingOutcome, outcome: PackingRefusal) -> None:
    """Nobody searched, and single nodes of the greedy plan were given up for cheaper ones, as there is time."""
    assert planned.outcome == outcome
    assert planned.result.usd_per_hour == MENDED_USD


# --- what it is for ---


def test_a_cheaper_fleet_is_found_by_a_process_of_its_own_and_says_how_good_it_is() -> None:
    with planners() as (planner, process):
        planned = plan(planner)
        assert planned.outcome is PlanOutcome.IMPROVED
        assert planned.result.usd_per_hour == BEST_USD
        assert planned.usd_at_least == pytest.approx(BEST_USD)
        assert planned.annotations == {
            names.PLAN_COST: "2.0000",
            names.PLAN_LOWER_BOUND: "2.0000",
            names.PLAN_GAP: "0.0000",
        }
        first = process.pid
        assert plan(planner) == planned  # the same question, the same plan
        assert process.pid == first


def test_its_packages_are_loaded_by_that_process_alone() -> None:
    code = (
        "import sys;"
        "from tests.unit.packing.test_planner import plan, planners;"
        "import provisioner.operator.term;\n"
        "with planners() as (planner, _): usd = plan(planner).result.usd_per_hour\n"
        "print(usd, [m for m in ('numpy', 'highspy') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    assert run.stdout.strip() == f"{BEST_USD} []", run.stderr


def test_the_process_knows_no_secrets_and_is_ended_first_when_memory_runs_out() -> None:
    with planners() as (planner, process):
        plan(planner)
        proc = Path(f"/proc/{process.pid}")
        known = {one.partition("=")[0] for one in (proc / "environ").read_text().split("\0")}
        assert not {name for name in known if name.startswith(("AWS_", "KUBE", "DOVETAIL_", "PYTEST"))}
        assert (proc / "oom_score_adj").read_text().strip() == "1000"
        assert re.search(rf"^Max address space +{MEMORY_BYTES} ", (proc / "limits").read_text(), re.MULTILINE)


@pytest.mark.parametrize(("count", "rounds"), [(16, 10 * ROUNDS), (100, 3 * ROUNDS), (400, ROUNDS)])
def test_fewer_pods_are_searched_in_more_rounds(count: int, rounds: int) -> None:
    prepared, greedy = asked(count)
    with planners(scripted("say(PackingReply(q.number, float(q.rounds)))")) as (_, process):
        end = SystemClock().monotonic() + WINDOW
        reply = process.ask(prepared.world, greedy, search_until=end, wait_until=end, rounds=ROUNDS, seed=0)
        assert isinstance(reply, ProcessReply)
        assert reply.answered.usd_at_least == rounds


# --- when nobody is asked ---


@pytest.mark.parametrize("seconds", [0.0, LEAST_SECONDS])
def test_without_time_the_greedy_plan_is_launched_at_once(seconds: float) -> None:
    with planners() as (planner, process):
        assert_greedy(plan(planner, seconds=seconds), PlanOutcome.NO_TIME)
        assert process.pid is None


def test_a_few_pods_need_no_process_for_the_cheapest_nodes() -> None:
    with planners() as (planner, process):
        assert planner.expect(MOST_PODS) == 0.0
        planned = plan(planner, MOST_PODS)
        assert planned.outcome is PlanOutcome.EXACT
        assert planned.result.usd_per_hour == 1.5  # greedy packing takes the wide type, for 4.0 and more
        assert names.PLAN_GAP not in planned.annotations
        assert process.pid is None


def test_what_is_proved_to_be_cheapest_is_not_looked_at() -> None:
    question = problem(pods(16, shape("1", "1Gi")), pool(types=(instance_type("exact", "16", "256Gi", 1.0),)))
    prepared = prepare(World(**{name: getattr(question, name) for name in World.__dataclass_fields__}))
    with planners() as (planner, process):
        planned = planner.planned(prepared, prepared.solve(question.pods), WINDOW)
        assert (planned.outcome, process.pid) == (PlanOutcome.NEAR_BOUND, None)


def test_pools_that_are_packed_greedily_need_no_process() -> None:
    prepared, greedy = asked()
    other = prepare(replace(prepared.world, pools=(replace(POOL, packing=Packing.GREEDY),)))
    with planners() as (planner, process):
        assert_greedy(planner.planned(other, greedy, WINDOW), PlanOutcome.GREEDY)
        assert planner.expect(1000) == 0.0
        assert process.pid is None


def test_the_process_starts_while_the_batch_gathers_and_planning_asks_for_its_time() -> None:
    with planners(patience=Patience()) as (planner, process):
        assert planner.expect(1000) == pytest.approx(1.1)
        assert process.pid is not None


def test_worlds_of_many_instance_types_take_longer_and_the_next_batch_knows() -> None:
    assert Patience().seconds(1_000, 20_000) == pytest.approx(2.1)
    with planners(patience=Patience()) as (planner, _):
        assert planner.expect(1_000) == pytest.approx(1.1)
        plan(planner)
        assert planner.expect(1_000) == pytest.approx(1.1 + len(POOL.instance_types) / 20_000, abs=1e-9)


@pytest.mark.parametrize("steered", [True, False])
def test_a_plan_is_balanced_unless_an_extender_steers_its_pods(*, steered: bool) -> None:
    """No order of binding spoils it then; nodes of one size in each zone cost as much as a large one and two small ones."""
    prepared, uneven = balancing.planned(balancing.Case(balancing.FULL))
    schedulers: list[str] = []

    def steers(scheduler: str) -> bool:
        schedulers.append(scheduler)
        return steered

    clock = SystemClock()
    planner = Planner(PlannerProcess(clock), clock, Patience(least=0.0), steers=steers)
    uneven = replace(uneven, bound=uneven.usd_per_hour)
    found = planner.planned(prepared, uneven, WINDOW)
    assert found.outcome is (PlanOutcome.NEAR_BOUND if steered else PlanOutcome.IMPROVED)
    assert (found.result is uneven) is steered
    assert schedulers == ["default-scheduler"]


def test_a_plan_with_pods_that_volcano_binds_is_not_taken_for_steered() -> None:
    prepared, uneven = balancing.planned(balancing.Case(balancing.FULL))
    claims = tuple(
        msgspec.structs.replace(one, pods=tuple(grouped(each, GroupSource.VOLCANO) for each in one.pods))
        for one in uneven.claims
    )
    clock = SystemClock()
    planner = Planner(PlannerProcess(clock), clock, Patience(least=0.0), steers=lambda _: True)
    asked = replace(uneven, bound=uneven.usd_per_hour, claims=claims)
    assert planner.planned(prepared, asked, WINDOW).outcome is PlanOutcome.IMPROVED


def test_where_nothing_is_packed_by_cost_no_batch_starts_a_process() -> None:
    clock = SystemClock()
    process = PlannerProcess(clock)
    planner = Planner(process, clock, PATIENT, steers=nobody, wanted=False)
    assert planner.expect(1000) == 0.0
    assert process.pid is None


# --- when something goes wrong ---


def test_without_its_packages_plans_are_mended_alone_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provisioner.packing.process.PACKAGES", ("numpy", "no_such_module"))
    clock = SystemClock()
    process = PlannerProcess(clock)
    planner = Planner(process, clock, PATIENT, steers=nobody)
    assert planner.expect(1000) == 0.0
    assert_mended(plan(planner), PackingRefusal.NOT_INSTALLED)
    assert_mended(plan(planner), PackingRefusal.NOT_INSTALLED)
    assert process.pid is None
    assert [one.message for one in caplog.records].count(PLANNER_NOT_INSTALLED) == 1


def test_a_process_that_cannot_load_its_packages_is_not_started_again() -> None:
    with planners((sys.executable, "-c", "raise SystemExit(3)"), clock=(clock := Movable())) as (planner, process):
        assert_mended(plan(planner), PackingRefusal.NOT_INSTALLED)
        clock.ahead += 3600
        assert_mended(plan(planner), PackingRefusal.NOT_INSTALLED)
        assert process.pid is None


def test_a_process_that_was_killed_costs_one_plan_and_is_started_again_after_a_pause() -> None:
    with planners(clock=(clock := Movable())) as (planner, process):
        assert plan(planner).outcome is PlanOutcome.IMPROVED
        first = process.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        assert_mended(plan(planner), PackingRefusal.FAILED)
        assert planner.expect(1000) == 0.0  # not at once
        clock.ahead += 10
        assert plan(planner).outcome is PlanOutcome.IMPROVED
        assert process.pid not in (None, first)


def test_a_process_that_is_killed_while_it_is_asked_costs_that_plan() -> None:
    with planners(scripted("os.kill(os.getpid(), signal.SIGKILL)")) as (planner, _):
        assert_mended(plan(planner), PackingRefusal.FAILED)


def test_pauses_grow_and_end_with_the_first_answer(caplog: pytest.LogCaptureFixture) -> None:
    with planners(scripted("os._exit(1)"), clock=(clock := Movable())) as (planner, _):
        for _ in range(10):
            assert_mended(plan(planner), PackingRefusal.FAILED)
            clock.ahead += 3600
    told = [float(record.__dict__["fields"]["seconds_until_restart"]) for record in caplog.records]
    assert all(
        0.8 * full <= pause <= full for pause, full in zip(told, (2, 4, 8, 16, 32, 64, 128, 256, 300, 300), strict=True)
    )


def test_a_stopped_process_is_waited_for_twice_and_then_ended() -> None:
    with planners() as (planner, process):
        assert plan(planner).outcome is PlanOutcome.IMPROVED
        stopped = process.pid
        assert stopped is not None
        os.kill(stopped, signal.SIGSTOP)
        hasty = Planner(process, SystemClock(), HASTY, steers=nobody)
        assert_mended(plan(hasty), PackingRefusal.LATE)
        assert process.pid == stopped
        assert_mended(plan(hasty), PackingRefusal.LATE)
        assert process.pid is None
        with pytest.raises(ProcessLookupError):
            os.kill(stopped, 0)


def test_an_answer_that_comes_late_is_not_taken_for_another_questions() -> None:
    second = "late.append(q.number); len(late) > 1 and [say(PackingReply(n, 0.001 * n)) for n in late]"
    with planners(scripted(second)) as (planner, process):
        process.start()
        assert_greedy(plan(Planner(process, SystemClock(), PATIENT, steers=nobody), seconds=0.0), PlanOutcome.NO_TIME)
        first = Planner(process, SystemClock(), replace(PATIENT, least=5.0, most=5.0, grace=0.0), steers=nobody)
        assert plan(first).outcome in (PackingRefusal.LATE, PackingRefusal.STARTING)
        while plan(first).outcome is PackingRefusal.STARTING:
            pass
        planned = plan(planner)
        assert (planned.usd_at_least or 0.0) > 0.002, "of its own question"
        assert process.pid is not None


GARBAGE = {
    "no message at all": 'out.write(b"Segmentation fault (core dumped)" * 9); out.flush()',
    "an endless message": 'out.write(b"\\xff" * 64); out.flush()',
    "another language": 'write(b"{}")',
    "half an answer and the end": 'out.write(b"\\x50\\0\\0\\0half"); out.flush(); os._exit(0)',
    "an answer to nobody": "say(PackingReply(q.number + 1))",
    "an error": "say(PackingReply(0, error='ValueError: nothing fits'))",
    "pods twice": 'say(PackingReply(q.number, 0.0, "", (), (ProposedNode("pool", "lean", "", "on-demand", everything * 2),)))',
    "not every pod": 'say(PackingReply(q.number, 0.0, "", (), ()))',
    "an unknown NodePool": 'say(PackingReply(q.number, 0.0, "", (), (ProposedNode("x", "lean", "", "on-demand", everything),)))',
}


@pytest.mark.parametrize("does", GARBAGE.values(), ids=GARBAGE)
def test_garbage_costs_the_plan_and_ends_the_process(does: str) -> None:
    with planners(scripted(does.replace("{", "{{").replace("}", "}}").format())) as (planner, process):
        assert_mended(plan(planner), PackingRefusal.FAILED)
        assert process.pid is None


ILLEGAL = {
    "more pods than fit": '(ProposedNode("pool", "lean", "", "on-demand", everything),)',
    "an instance type that the NodePool does not have": '(ProposedNode("pool", "gold", "", "on-demand", everything),)',
    "a zone that does not exist": '(ProposedNode("pool", "wide", "moon", "on-demand", everything),)',
}


@pytest.mark.parametrize("nodes", ILLEGAL.values(), ids=ILLEGAL)
def test_an_illegal_plan_is_refused_by_scheduling(nodes: str) -> None:
    with planners(scripted(f'say(PackingReply(q.number, 0.0, "", (), {nodes}))')) as (planner, process):
        assert_greedy(plan(planner), PlanOutcome.REFUSED)
        assert process.pid is not None  # the planner knows less than scheduling: that is no fault


def test_a_dearer_plan_is_not_taken_and_a_bound_above_the_price_not_believed() -> None:
    each = 'tuple(ProposedNode("pool", "wide", "", "on-demand", (n,)) for n in everything)'
    with planners(scripted(f'say(PackingReply(q.number, 1e9, "", (), {each}))')) as (planner, _):
        planned = plan(planner)
        assert planned.outcome is PlanOutcome.IMPROVED, (
            "nodes that are not worth it are given up whatever the process says"
        )
        assert planned.result.usd_per_hour < GREEDY_USD


def test_a_process_without_memory_costs_the_plan() -> None:
    with planners((*COMMAND[:3], str(48 << 20), "30")) as (planner, process):
        assert_mended(plan(planner), PackingRefusal.FAILED)
        assert process.pid is None


def test_a_late_answer_that_took_all_time_leaves_the_greedy_plan() -> None:
    with planners(scripted("time.sleep(600)"), HASTY) as (planner, _):
        planned = plan(planner, seconds=LEAST_SECONDS + 0.05)
        assert planned.outcome in (PackingRefusal.LATE, PackingRefusal.STARTING)
        assert planned.result.usd_per_hour == GREEDY_USD


def test_a_process_that_still_starts_is_left_to_start() -> None:
    with planners((sys.executable, "-c", "import sys; sys.stdin.read()"), HASTY, clock=(clock := Movable())) as (
        planner,
        process,
    ):
        assert_mended(plan(planner), PackingRefusal.STARTING)
        starting = process.pid
        assert_mended(plan(planner), PackingRefusal.STARTING)
        assert process.pid == starting
        clock.ahead += 3600  # but not for ever
        assert_mended(plan(planner), PackingRefusal.FAILED)
        assert process.pid is None


def test_a_question_that_is_too_large_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_process, "_MOST_QUESTION", 100)
    with planners() as (planner, process):
        assert_mended(plan(planner), PackingRefusal.TOO_LARGE)
        assert process.pid is None


def test_a_process_that_nobody_asks_ends_and_the_next_batch_has_another() -> None:
    with planners((*COMMAND[:3], str(MEMORY_BYTES), "0.01")) as (planner, process):
        assert process.start() is None
        idle = process.pid
        assert idle is not None
        os.waitid(os.P_PID, idle, os.WEXITED | os.WNOWAIT)
        planner.expect(0)
        assert process.pid is None
        assert process.start() is None  # without a pause


def test_whoever_waits_for_an_answer_hears_at_once_that_the_program_stops() -> None:
    with planners(scripted("signal.pause()")) as (planner, process):
        process.start()
        asking = threading.Thread(target=lambda: outcomes.append(plan(planner).outcome))
        outcomes: list[object] = []
        asking.start()
        process.stop()
        asking.join(60)
        assert outcomes == [PackingRefusal.FAILED]
        assert_mended(plan(planner), PackingRefusal.FAILED)
        assert process.pid is None


def test_a_search_that_fails_here_costs_no_pod_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> object:
        raise TypeError("cannot pickle this")

    with planners() as (planner, process):
        monkeypatch.setattr(process, "ask", broken)
        assert_greedy(plan(planner), PackingRefusal.FAILED)
