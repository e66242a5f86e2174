"""A question to its answer: the scheduler's own plan at once, a cheaper one from the child process where that is legal and in time."""

import importlib.util
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.apis.pods import Pod
from provisioner.cli.plan import child
from provisioner.cli.plan.child import Answered, Asked, prices_of_constraints
from provisioner.cli.plan.questions import Question
from provisioner.planner.confinement import OUT_OF_MEMORY, environment
from provisioner.planning.protocol import ROUNDS, SEED
from provisioner.planning.relaxing import Priced
from provisioner.scheduling.acceptance import is_near, weighed
from provisioner.scheduling.arrays import pack_result, unpack_result
from provisioner.scheduling.judging import design_of
from provisioner.scheduling.mending import mended
from provisioner.scheduling.partitions import are_few
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.result import Result
from provisioner.support.clock import SystemClock

GREEDY: Final = "greedy"
EXACT: Final = "exact"
MENDED: Final = "mended"
_MODULES: Final = ("numpy", "highspy")
_CODE: Final = "import sys; from provisioner.cli.plan.child import main; sys.exit(main())"
_EXTRA_SECONDS: Final = 20.0
"""For the child's start, its reading and its judging, on a busy machine."""
_EPSILON: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Settings:
    """How the child looks: see `child.Asked`. Without `improve` it is not asked. `solve_seconds`: as the provisioner's `--solve-deadline`."""

    seconds: float = 3.0
    rounds: int = ROUNDS
    seed: int = SEED
    improve: bool = True
    memory_bytes: int = child.MEMORY_BYTES
    solve_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
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
    """

    result: Result
    usd_at_least: float | None
    stage: str
    fallback: str
    in_time: bool
    priced: tuple[Priced, ...]
    greedy_usd_per_hour: float
    faults: tuple[str, ...] = ()


def plan(question: Question, settings: Settings, ask: Callable[[Asked], "Answered | str"] | None = None) -> Answer:
    """The cheapest plan that is found in time, never dearer than the scheduler's own, and judged as a whole.

    Args:
        question: what to plan.
        settings: how to look.
        ask: gives the planner's answer, or why there is none; a process of its own by default.
    """
    prepared = prepare(question.world)
    greedy = prepared.solve(question.pods, expired=_expired_in(settings.solve_seconds))
    least, stage, fallback = greedy.usd_at_least, GREEDY, ""
    planned_all = in_time = not greedy.is_late
    priced: tuple[Priced, ...] = ()
    found = greedy
    if settings.improve and greedy.claims and are_few(prepared, greedy):
        found = mended(prepared, greedy)
        stage = EXACT
        priced = prices_of_constraints(prepared, question.pods, found, _mended, _expired_in(settings.seconds))
    elif settings.improve and greedy.claims:
        answered = (ask or ask_child)(_asked(question, greedy, settings))
        if isinstance(answered, str):
            fallback, in_time = answered, False
        else:
            result = unpack_result(answered.result, question.pods, question.templates)
            least = max(least or 0.0, answered.usd_at_least)
            in_time, priced = planned_all and answered.in_time, answered.priced
            problem = _objection(prepared, question.pods, greedy, result)
            if problem:
                fallback = f"the planner's answer was refused: {problem}"
            elif not is_near(greedy) and weighed(prepared, result.claims) < weighed(prepared, greedy.claims) - _EPSILON:
                found, stage = result, answered.stage
            elif answered.refused:
                fallback = f"a cheaper fleet was refused: {answered.refused}"
            better = found if problem else mended(prepared, found, expired=_expired_in(settings.seconds))
            if better is not found:
                found, stage = better, MENDED
    verdict = prepared.judge(design_of(found))
    faults = tuple(map(str, verdict.faults[:3]))
    usd = greedy.usd_per_hour
    return Answer(found, least, stage, fallback, in_time, priced, usd, faults)


def _mended(prepared: Prepared, _pods: Sequence[Pod], result: Result) -> Result:
    return mended(prepared, result)


def _expired_in(seconds: float) -> Callable[[], bool]:
    clock = SystemClock()
    end = clock.monotonic() + seconds
    return lambda: clock.monotonic() >= end


def missing_modules() -> tuple[str, ...]:
    """What the planner needs and this Python does not have; nothing is loaded."""
    return tuple(name for name in _MODULES if importlib.util.find_spec(name) is None)


def _objection(prepared: Prepared, pods: Sequence[Pod], greedy: Result, result: Result) -> str:
    """Why a result must not take the place of the scheduler's; "" where it may."""
    if result.usd_per_hour > greedy.usd_per_hour + _EPSILON:
        return "it costs more"
    placed = [pod.uid for pod in result.placed]
    unplaced = {one.pod.uid for one in result.unplaced}
    if len(placed) != len(set(placed)) or {*placed, *unplaced} != {pod.uid for pod in pods}:
        return "its plan does not contain every pod exactly once"
    if len(unplaced) > len(greedy.unplaced):
        return "it leaves more pods"
    verdict = prepared.judge(design_of(result))
    return "; ".join(map(str, verdict.faults[:3])) if not verdict.legal else ""


def _asked(question: Question, greedy: Result, settings: Settings) -> Asked:
    return Asked(
        question.world,
        question.pods,
        pack_result(greedy, question.pods),
        settings.seconds,
        settings.rounds,
        settings.seed,
        settings.seconds * 2 + _EXTRA_SECONDS,
        settings.memory_bytes,
    )


def ask_child(asked: Asked) -> Answered | str:
    """The answer of a process of its own, or why there is none."""
    missing = missing_modules()
    if missing:
        return f"{' and '.join(missing)} cannot be imported; install what planning needs with `pip install 'dovetail[planner]'`"
    command = [sys.executable, "-c", _CODE]
    try:
        ended = subprocess.run(
            command,
            input=pickle.dumps(asked, protocol=pickle.HIGHEST_PROTOCOL),
            capture_output=True,
            timeout=asked.patience,
            check=False,
            env=environment(os.environ, sys.path),
        )
    except subprocess.TimeoutExpired:
        return f"the planning process did not answer within {asked.patience:.0f} s"
    except (OSError, pickle.PicklingError) as error:
        return f"the planning process could not be started: {error}"
    if ended.returncode == 0:
        try:
            return _read(ended.stdout)
        except (pickle.UnpicklingError, EOFError, TypeError, AttributeError) as error:
            return f"the planning process wrote nothing that can be read: {type(error).__name__}"
    if ended.returncode == OUT_OF_MEMORY:
        return f"the planning process needed more than {asked.memory_bytes >> 20} MiB"
    said = ended.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
    how = (
        f"was ended by signal {-ended.returncode}" if ended.returncode < 0 else f"ended with status {ended.returncode}"
    )
    return f"the planning process {how}: {said[0][:200]}"


def _read(data: bytes) -> Answered:
    answered = pickle.loads(data)  # noqa: S301 - written by a process of this program
    if not isinstance(answered, Answered):
        raise TypeError(type(answered).__name__)
    return answered
