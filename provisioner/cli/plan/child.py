"""The process that improves a plan: it alone loads numpy and the solver of linear programs, within bounds of memory and time.

`main` reads one pickled `Asked` from standard input and writes one pickled `Answered`.
"""

import pickle
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.apis.pods import Pod
from provisioner.planner.confinement import NOT_INSTALLED, OUT_OF_MEMORY, confine
from provisioner.planning.relaxing import CONSTRAINTS, Priced
from provisioner.scheduling.arrays import ResultArrays, pack_result, unpack_result
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.scheduling.problem import World
from provisioner.scheduling.result import Result
from provisioner.support.clock import Clock, SystemClock

MEMORY_BYTES: Final = 3 << 30
"""Of address space; the planner's own use is below 0.3 GB at 100,000 pods."""
_MAIN_SHARE: Final = 0.7
"""Of the time, for the plan itself; the rest is for what its constraints cost, and for judging."""
_FEW_ROUNDS: Final = 8


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to the child.

    Attributes:
        greedy: the scheduler's answer, packed.
        seconds: how long the child may look.
        rounds: most rounds of improvement.
        patience: seconds after which it ends itself.
        memory_bytes: of address space at most.
    """

    world: World
    pods: tuple[Pod, ...]
    greedy: ResultArrays
    seconds: float
    rounds: int
    seed: int
    patience: float
    memory_bytes: int = MEMORY_BYTES


@dataclass(frozen=True, slots=True)
class Answered:
    """What the child found.

    Attributes:
        result: packed.
        in_time: every round was done: then equal questions have equal answers.
        priced: what constraints cost.
        refused: why a cheaper fleet was not taken; "" where there was none.
    """

    result: ResultArrays
    usd_at_least: float
    stage: str
    in_time: bool
    priced: tuple[Priced, ...]
    refused: str = ""


def answer(asked: Asked, clock: Clock) -> Answered:
    """Improve the answer, then look at what each kind of constraint costs, within the time."""
    from provisioner.planning.planner import improve  # noqa: PLC0415 - numpy and highspy are loaded in the child process only

    began = clock.monotonic()
    late = False

    def expired_at(seconds: float) -> Callable[[], bool]:
        def expired() -> bool:
            nonlocal late
            late = late or clock.monotonic() - began >= seconds
            return clock.monotonic() - began >= seconds

        return expired

    templates = {pool.name: pool.template for pool in asked.world.pools}
    greedy = unpack_result(asked.greedy, asked.pods, templates)
    prepared = prepare(asked.world)
    plan = improve(
        prepared,
        asked.pods,
        greedy,
        expired=expired_at(asked.seconds * _MAIN_SHARE),
        iterations=asked.rounds,
        seed=asked.seed,
    )
    in_time = not late

    def expired() -> bool:
        return clock.monotonic() - began >= asked.seconds

    def cheaper(other: Prepared, pods: Sequence[Pod], result: Result) -> Result:
        rounds = min(_FEW_ROUNDS, asked.rounds)
        return improve(other, pods, result, expired=expired, iterations=rounds, seed=asked.seed).result

    priced = prices_of_constraints(prepared, asked.pods, plan.result, cheaper, expired)
    return Answered(
        pack_result(plan.result, asked.pods),
        plan.usd_at_least,
        plan.stage,
        in_time,
        priced,
        "; ".join(map(str, plan.refused[:3])),
    )


def prices_of_constraints(
    prepared: Prepared,
    pods: Sequence[Pod],
    planned: Result,
    cheaper: Callable[[Prepared, Sequence[Pod], Result], Result],
    expired: Callable[[], bool],
) -> tuple[Priced, ...]:
    """What each kind of constraint that is there costs, where there is time to look; `cheaper` improves scheduling's answer to a question."""
    found = []
    for constraint in CONSTRAINTS:
        relaxed = constraint.relaxed(prepared.world, pods)
        if relaxed is None:
            continue
        if expired():
            found.append(Priced(constraint.name, None))
            continue
        world, own = relaxed
        other = prepare(world, prepared)
        result = other.solve(own, expired=expired, explain=False)
        more = len(planned.unplaced) - len(result.unplaced)
        if expired():
            found.append(Priced(constraint.name, None))
            continue
        better = cheaper(other, own, result)
        usd = (
            better.usd_per_hour if more > 0 else min(better.usd_per_hour, planned.usd_per_hour)
        )  # the plan is one without it, too
        found.append(Priced(constraint.name, usd, more))
    return tuple(found)


def main() -> int:
    """One question in, one answer out."""
    asked: Asked = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by the process that started this one
    signal.alarm(max(1, int(asked.patience)))  # also where whoever asked is gone
    confine(asked.memory_bytes)
    try:
        answered = answer(asked, SystemClock())
    except ModuleNotFoundError as error:
        print(error.name, file=sys.stderr)  # noqa: T201 - what the parent tells its user
        return NOT_INSTALLED
    except MemoryError:
        return OUT_OF_MEMORY
    pickle.dump(answered, sys.stdout.buffer, protocol=pickle.HIGHEST_PROTOCOL)
    return 0
