"""A question to its answer: the scheduler's own plan at once, a cheaper one of the planning process where that is legal and in time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.apis.pods import Pod
from provisioner.cli.plan.gangs import PlannedGang, gangs_of
from provisioner.cli.plan.questions import PlanQuestion
from provisioner.cli.plan.relaxation import CONSTRAINTS, PricedConstraint
from provisioner.cli.plan.unnominated import Unnominated, unnominated
from provisioner.packing.planner import settled
from provisioner.packing.process import PackingRefusal, PlannerProcess, ProcessReply
from provisioner.packing.protocol import ROUNDS, SEED, PackingProtocolError
from provisioner.scheduling.improvement.acceptance import is_near
from provisioner.scheduling.improvement.mending import mended
from provisioner.scheduling.improvement.partitions import are_few
from provisioner.scheduling.judging import Fault, design_of
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.result import Result
from provisioner.support.clock import SystemClock

GREEDY: Final = "greedy"
EXACT: Final = "exact"
MENDED: Final = "mended"
_MAIN_SHARE: Final = 0.7
"""Of the time, for the plan itself; the rest is for what its constraints cost, and for judging."""
_FEW_ROUNDS: Final = 8
_START_SECONDS: Final = 20.0
_EXTRA_SECONDS: Final = 20.0
"""For the process's reading and answering, on a busy machine."""


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """How the process looks: see `PlannerProcess.ask`. Without `improve` it is not asked. `solve_seconds`: as `--timeouts=solve` of the provisioner."""

    seconds: float = 3.0
    rounds: int = ROUNDS
    seed: int = SEED
    improve: bool = True
    solve_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """A plan.

    Attributes:
        result: legal as a whole.
        usd_at_least: no plan for these pods costs less; None where nothing is known.
        stage: what found it; "greedy" for the scheduler's own, "exact" where all partitions of a few pods were compared,
            "mended" where nodes of what was found were given up for cheaper ones.
        fallback: why the planner was not asked, or its answer not taken; "" where it was.
        in_time: every round of improvement was done.
        greedy_usd_per_hour: what the scheduler's own plan costs.
        faults: what the judge says against the plan; empty.
        gangs: what it comes to for each group of pods.
        unnominated: what it comes to with nominations off; None where that is not known.
    """

    result: Result
    usd_at_least: float | None
    stage: str
    fallback: str
    in_time: bool
    priced: tuple[PricedConstraint, ...]
    greedy_usd_per_hour: float
    faults: tuple[str, ...] = ()
    gangs: tuple[PlannedGang, ...] = ()
    unnominated: Unnominated | None = None


def plan(question: PlanQuestion, settings: PlanSettings, process: PlannerProcess | None = None) -> PlanAnswer:
    """The cheapest plan that is found in time, never dearer than the scheduler's own, and judged as a whole."""
    process = process or PlannerProcess(SystemClock())
    try:
        return _planned(question, settings, process)
    finally:
        process.stop()
        process.tidy()


def _planned(question: PlanQuestion, settings: PlanSettings, process: PlannerProcess) -> PlanAnswer:
    prepared = prepare(question.world)
    greedy = prepared.solve(question.pods, expired=_expired_in(settings.solve_seconds))
    found, least, stage, fallback = greedy, greedy.usd_at_least, GREEDY, ""
    in_time = not greedy.is_late
    priced: tuple[PricedConstraint, ...] = ()
    if settings.improve and greedy.claims and are_few(prepared, greedy):
        found, stage = mended(prepared, greedy), EXACT
        priced = _prices_of_constraints(prepared, question.pods, found, mended, _expired_in(settings.seconds))
    elif settings.improve and greedy.claims:
        search = _Search(process, settings)
        faults: tuple[Fault, ...] = ()
        try:
            reply = search.ask(prepared, greedy, _MAIN_SHARE, settings.rounds)
            in_time = in_time and not search.is_over(_MAIN_SHARE)
            cheaper, faults, least = settled(prepared, greedy, reply)
        except _NoAnswerError as error:
            fallback, in_time = f"the planning process did not answer: {error}", False
        except PackingProtocolError as error:
            fallback = f"the planner's answer was rejected: {error}"
        else:
            if faults:
                fallback = f"a cheaper fleet was rejected: {'; '.join(map(str, faults[:3]))}"
            if cheaper is not greedy and not is_near(greedy):
                found, stage = cheaper, reply.answered.stage
            priced = _prices_of_constraints(prepared, question.pods, cheaper, search.cheaper, search.is_over)
        better = found if faults else mended(prepared, found, expired=_expired_in(settings.seconds))
        if better is not found:
            found, stage = better, MENDED
    verdict = prepared.judge(design_of(found))
    said = tuple(map(str, verdict.faults[:3]))
    gangs = gangs_of(prepared, question.pods, found)
    other = unnominated(prepared, found, improve=settings.improve, expired=_expired_in(settings.seconds))
    return PlanAnswer(found, least, stage, fallback, in_time, priced, greedy.usd_per_hour, said, gangs, other)


def _expired_in(seconds: float) -> Callable[[], bool]:
    clock = SystemClock()
    end = clock.monotonic() + seconds
    return lambda: clock.monotonic() >= end


class _NoAnswerError(Exception):
    """The planning process gave none."""


class _Search:
    """The planning process, asked about a plan and about what its constraints cost, all within one time that begins when it can be asked."""

    def __init__(self, process: PlannerProcess, settings: PlanSettings) -> None:
        self._process, self._settings, self._clock = process, settings, SystemClock()
        process.await_start(self._clock.monotonic() + _START_SECONDS)
        self._began = self._clock.monotonic()

    def is_over(self, share: float = 1.0) -> bool:
        """Whether this share of the time has passed."""
        return self._clock.monotonic() >= self._began + share * self._settings.seconds

    def ask(self, prepared: Prepared, result: Result, share: float, rounds: int) -> ProcessReply:
        """The answer of a search that ends when this share of the time has passed."""
        end = self._began + share * self._settings.seconds
        reply = self._process.ask(
            prepared.world,
            result,
            search_until=end,
            wait_until=end + _EXTRA_SECONDS,
            rounds=rounds,
            seed=self._settings.seed,
        )
        if isinstance(reply, PackingRefusal):
            raise _NoAnswerError(self._process.problem)
        return reply

    def cheaper(self, prepared: Prepared, result: Result) -> Result:
        """The result, or a cheaper one that is found soon."""
        try:
            reply = self.ask(prepared, result, 1.0, min(_FEW_ROUNDS, self._settings.rounds))
            return settled(prepared, result, reply)[0]
        except (_NoAnswerError, PackingProtocolError):
            return result


def _prices_of_constraints(
    prepared: Prepared,
    pods: Sequence[Pod],
    planned: Result,
    cheaper: Callable[[Prepared, Result], Result],
    expired: Callable[[], bool],
) -> tuple[PricedConstraint, ...]:
    """What each kind of constraint that is there costs, where there is time to look; `cheaper` improves scheduling's answer to a question."""
    found = []
    for constraint in CONSTRAINTS:
        relaxed = constraint.relaxed(prepared.world, pods)
        if relaxed is None:
            continue
        if expired():
            found.append(PricedConstraint(constraint.name, None))
            continue
        world, own = relaxed
        other = prepare(world, prepared)
        result = other.solve(own, expired=expired, explain=False)
        more = len(planned.unplaced) - len(result.unplaced)
        if expired():
            found.append(PricedConstraint(constraint.name, None))
            continue
        better = cheaper(other, result)
        usd = (
            better.usd_per_hour if more > 0 else min(better.usd_per_hour, planned.usd_per_hour)
        )  # the plan is one without it, too
        found.append(PricedConstraint(constraint.name, usd, more))
    return tuple(found)
