"""Laws of `dovetail plan`: legal for an independent judge, every pod once, never dearer than the greedy plan, never below its bound."""

import random

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from provisioner.cli.plan.fleet_summary import fleet_of
from provisioner.cli.plan.planning import GREEDY, PlanAnswer, PlanSettings, plan
from provisioner.cli.plan.questions import PlanQuestion
from provisioner.packing.optimizer import propose
from provisioner.packing.process import PlannerProcess, ProcessReply
from provisioner.packing.protocol import Receiver, Sender, answer_bytes, answer_of, read_answer
from provisioner.scheduling.prepared import prepare
from provisioner.scheduling.problem import World
from provisioner.scheduling.result import Result
from provisioner.support.clock import SystemClock
from tests.property.packing.test_planner_laws import many
from tests.support import checker
from tests.support.question import Problem
from tests.support.rich import Stock

EXAMPLES = settings(
    max_examples=max(15, settings().max_examples // 4), phases=[Phase.explicit, Phase.generate], deadline=None
)
EVERYTHING = Stock(20261123).problems()
QUICK = PlanSettings(seconds=600.0, rounds=4)


class InThisProcess(PlannerProcess):
    """As the process does it, with what goes through the pipes."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self._told, self._hears = Sender(), Receiver()

    def await_start(self, until: float) -> None:
        """It has started."""

    def ask(
        self, world: World, result: Result, *, search_until: float, wait_until: float, rounds: int, seed: int
    ) -> ProcessReply:
        _, data, pods = self._told.asked(world, result, deadline=search_until, rounds=rounds, seed=seed)
        asked, prepared = self._hears.question(data)
        found = propose(prepared, asked.pods, asked.greedy, iterations=asked.rounds, seed=asked.seed)
        answered = answer_of(asked, found.usd_at_least, found.stage, found.kept, found.nodes)
        return ProcessReply(read_answer(answer_bytes(answered)), pods)


def holds(asked: Problem) -> PlanAnswer:
    world = World(**{name: getattr(asked, name) for name in World.__dataclass_fields__})
    found = plan(PlanQuestion(world, asked.pods, ()), QUICK, InThisProcess())
    greedy = prepare(asked).solve(asked.pods)
    left = {
        one.pod.name for one in greedy.unplaced
    }  # a cheaper fleet may use less of a limit than theirs, for which they wait
    wrong = checker.violations(asked, found.result)
    wrong = [text for text in wrong if not (" would fit on a new " in text and text.split()[0] in left)]
    assert not wrong, "\n".join(wrong)
    assert not found.faults
    assert not found.fallback or found.stage == GREEDY
    assert found.result.usd_per_hour <= greedy.usd_per_hour + 1e-9
    assert found.usd_at_least is None or found.usd_at_least <= found.result.usd_per_hour + 1e-9
    placed = [pod.uid for claim in found.result.claims for pod in claim.pods]
    placed += [pod.uid for some in found.result.existing.values() for pod in some]
    placed += [one.pod.uid for one in found.result.unplaced]
    assert sorted(placed) == sorted(pod.uid for pod in asked.pods)
    assert len(found.result.unplaced) == len(greedy.unplaced)
    fleet = fleet_of(found.result)
    assert abs(sum(one.count * one.usd_per_hour for one in fleet.groups) - found.result.usd_per_hour) < 1e-6
    assert fleet.pods == sum(len(claim.pods) for claim in found.result.claims)
    return found


@EXAMPLES
@given(EVERYTHING)
def test_a_plan_for_anything_is_legal_complete_and_never_dearer(asked: Problem) -> None:
    holds(asked)


@EXAMPLES
@given(st.integers(0, 2**32))
def test_so_is_one_for_many_pods(number: int) -> None:
    holds(many(random.Random(number)))


def test_it_is_often_cheaper_than_the_greedy_plan() -> None:
    plans = [holds(many(random.Random(number))) for number in range(8)]
    assert sum(one.stage != GREEDY for one in plans) > 1
