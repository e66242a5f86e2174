"""When consolidation has somebody look for cheaper fleets, and that it rests in between."""

from collections.abc import Iterator

import pytest

from provisioner.controllers.core.consolidation import Looks
from provisioner.controllers.core.planner import Planner, PlanOutcome
from provisioner.controllers.core.planner_process import COMMAND, PlannerProcess, Refusal
from provisioner.controllers.core.rebuilding import REST_SECONDS, RESTS, Rebuilding
from tests.unit.controllers.core.test_planner import BEST_USD, GREEDY_USD, PATIENT, Movable, asked, scripted

ONE, OTHER = Looks((), (1,)), Looks((), (2,))


class Outcomes:
    """What metrics were told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def rebuild(self, outcome: str) -> None:
        self.told.append(outcome)


class Slow(Planner):
    """Each answer takes so long."""

    seconds = 0.0

    def planned(self, *args: object) -> object:  # type: ignore[override]
        found = super().planned(*args)  # type: ignore[arg-type]
        self._clock.ahead += self.seconds  # type: ignore[attr-defined]
        return found


Made = tuple[Rebuilding, Slow, Movable, Outcomes]


def made(command: tuple[str, ...]) -> Iterator[Made]:
    clock, outcomes = Movable(), Outcomes()
    process = PlannerProcess(clock, command=command)
    planner = Slow(process, clock, PATIENT)
    rebuilding = Rebuilding(planner, outcomes, clock)  # type: ignore[arg-type]
    try:
        yield rebuilding, planner, clock, outcomes
    finally:
        rebuilding.stop()
        process.tidy()


def found_by(rebuilding: Rebuilding) -> float:
    """The price of what is found in a pass that begins now."""
    search = rebuilding.improved(ONE)
    assert search is not None
    return search(*asked()).usd_per_hour


@pytest.fixture
def real() -> Iterator[Made]:
    yield from made(COMMAND)


@pytest.fixture
def dead() -> Iterator[Made]:
    yield from made(scripted("os._exit(1)"))


def test_a_cheaper_fleet_is_found(real: Made) -> None:
    rebuilding, _, _, outcomes = real
    assert found_by(rebuilding) == BEST_USD
    assert outcomes.told == [PlanOutcome.IMPROVED]


def test_where_the_process_dies_scheduling_has_the_word(dead: Made) -> None:
    rebuilding, _, _, outcomes = dead
    assert found_by(rebuilding) == GREEDY_USD
    assert outcomes.told == [Refusal.FAILED]


def test_after_searches_it_rests_ten_times_as_long_and_a_minute_at_least(real: Made) -> None:
    rebuilding, planner, clock, _ = real
    for seconds, rest in ((0.0, REST_SECONDS), (30.0, 30.0 * RESTS)):
        planner.seconds = seconds
        found_by(rebuilding)
        rebuilding.ended(ONE, settled=False)
        assert rest - 1 < rebuilding.rest() < rest + 30 * RESTS - 1
        assert rebuilding.improved(OTHER) is None
        clock.ahead += rebuilding.rest()


def test_a_pass_that_asked_nothing_costs_no_rest(real: Made) -> None:
    rebuilding, *_ = real
    assert rebuilding.improved(ONE) is not None
    rebuilding.ended(ONE, settled=False)
    assert rebuilding.rest() == 0.0


def test_what_led_to_nothing_is_not_asked_again_while_it_looks_the_same(real: Made) -> None:
    rebuilding, *_ = real
    assert rebuilding.improved(ONE) is not None
    rebuilding.ended(ONE, settled=True)
    assert rebuilding.improved(ONE) is None
    assert rebuilding.improved(OTHER) is not None


def test_a_search_that_waits_ends_with_the_program(real: Made) -> None:
    rebuilding, _, _, outcomes = real
    rebuilding.stop()
    assert found_by(rebuilding) == GREEDY_USD
    assert outcomes.told == [Refusal.FAILED]
