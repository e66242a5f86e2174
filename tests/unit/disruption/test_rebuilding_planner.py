"""When consolidation has somebody look for cheaper fleets, and that it rests in between."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import cast

import pytest

from provisioner.disruption.consolidation_state import Looks
from provisioner.disruption.rebuilding_planner import PATIENT, REST_SECONDS, Rebuilding
from provisioner.packing.planner import PackingOutcome, Planner, PlanOutcome
from provisioner.packing.process import COMMAND, PackingRefusal, PlannerProcess
from provisioner.runtime import metrics
from provisioner.scheduling.prepared import Prepared
from provisioner.scheduling.result import Result
from tests.support.clock import NOON
from tests.unit.packing.test_planner import BEST_USD, GREEDY_USD, Movable, asked, scripted

ONE, OTHER = Looks((), (1,)), Looks((), (2,))
HOUR = timedelta(hours=1)


class Outcomes:
    """What the metric was told since."""

    def __init__(self) -> None:
        self._before = self._counts()

    @staticmethod
    def _counts() -> Counter[str]:
        every = (one for family in metrics.REBUILDS.collect() for one in family.samples)
        return Counter({one.labels["outcome"]: int(one.value) for one in every})

    @property
    def told(self) -> list[str]:
        return [*(self._counts() - self._before).elements()]


class Timed:
    """A clock that stands still but for searches."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Told:
    """A planner that takes so long for each answer, and adds nothing to scheduling's."""

    seconds, asks, expected, stopped = 0.0, 0, 0, False
    outcome: PlanOutcome | PackingRefusal = PlanOutcome.UNCHANGED

    def __init__(self, clock: Timed) -> None:
        self._clock = clock

    def planned(self, _prepared: Prepared, result: Result, _seconds: float) -> PackingOutcome:
        self.asks += 1
        self._clock.now += self.seconds
        return PackingOutcome(result, None, self.outcome)

    def expect(self, _pods: int) -> float:
        self.expected += 1
        return 0.0

    def stop(self) -> None:
        self.stopped = True


class Passes:
    """Passes of consolidation, one after another, on a cluster that looks the same."""

    def __init__(self) -> None:
        self.clock, self.outcomes = Timed(), Outcomes()
        self.planner = Told(self.clock)
        self.rebuilding = Rebuilding(cast(Planner, self.planner), self.clock)  # type: ignore[arg-type]

    def go(
        self,
        searches: int = 1,
        *,
        settled: bool = False,
        begun: bool = False,
        called_off: int = 0,
        looks: Looks = ONE,
        at: timedelta = timedelta(0),
        recheck: timedelta | None = None,
    ) -> float | None:
        """One pass with so many searches: how long it rests after it; None where nobody is lent."""
        search = self.rebuilding.searcher(looks, NOON + at)
        if search is None:
            return None
        question = asked()
        for _ in range(searches):
            assert search(*question) is question[1]
        until = NOON + recheck if recheck is not None else None
        self.rebuilding.ended(looks, NOON + at, until, settled=settled, begun=begun, called_off=called_off)
        return self.rebuilding.rest()

    def rest(self) -> None:
        self.clock.now += self.rebuilding.rest()


@pytest.fixture
def passes() -> Passes:
    return Passes()


def found_by(command: tuple[str, ...]) -> Iterator[tuple[Rebuilding, Outcomes]]:
    clock, outcomes = Movable(), Outcomes()
    process = PlannerProcess(clock, command=command)
    rebuilding = Rebuilding(Planner(process, clock, PATIENT, steers=lambda _: False), clock)
    try:
        yield rebuilding, outcomes
    finally:
        rebuilding.stop()
        process.tidy()


@pytest.fixture
def real() -> Iterator[tuple[Rebuilding, Outcomes]]:
    yield from found_by(COMMAND)


@pytest.fixture
def dead() -> Iterator[tuple[Rebuilding, Outcomes]]:
    yield from found_by(scripted("os._exit(1)"))


def usd_of(rebuilding: Rebuilding) -> float:
    """The price of what is found in a pass that begins now."""
    search = rebuilding.searcher(ONE, NOON)
    assert search is not None
    return search(*asked()).usd_per_hour


def test_a_cheaper_fleet_is_found(real: tuple[Rebuilding, Outcomes]) -> None:
    rebuilding, outcomes = real
    assert usd_of(rebuilding) == BEST_USD
    assert outcomes.told == [PlanOutcome.IMPROVED]


def test_where_the_process_dies_scheduling_has_the_word(dead: tuple[Rebuilding, Outcomes]) -> None:
    rebuilding, outcomes = dead
    assert usd_of(rebuilding) == GREEDY_USD
    assert outcomes.told == [PackingRefusal.FAILED]


def test_a_search_that_waits_ends_with_the_program(real: tuple[Rebuilding, Outcomes]) -> None:
    rebuilding, outcomes = real
    rebuilding.stop()
    assert usd_of(rebuilding) == GREEDY_USD
    assert outcomes.told == [PackingRefusal.FAILED]


def test_nobody_waits_for_nodes_so_a_search_may_take_longer_than_one_for_pods() -> None:
    assert PATIENT.seconds(400) == pytest.approx(3.04)
    assert (PATIENT.grace, REST_SECONDS) == (15.0, 60.0)


def test_after_searches_it_rests_ten_times_as_long_and_a_minute_at_least(passes: Passes) -> None:
    assert passes.go() == 60.0
    assert passes.go() is None
    assert passes.planner.expected == 1, "of a process that has ended notice is taken"
    for searches, rest in ((2, 600.0), (1, 300.0), (0, 0.0)):
        passes.rest()
        passes.planner.seconds = 30.0
        assert passes.go(searches) == rest


def test_after_commands_that_were_called_off_it_rests_longer_until_one_holds(passes: Passes) -> None:
    rests = []
    for called_off, begun in ((0, True), (1, True), (3, True), (3, False), (3, True)):
        rests.append(passes.go(called_off=called_off, begun=begun))
        passes.rest()
    assert rests == [60.0, 120.0, 240.0, 240.0, 60.0]
    for called_off in range(4, 20):
        rests.append(passes.go(called_off=called_off, begun=True))
        passes.rest()
    assert rests[-1] == 60.0 * 64


def test_a_search_that_fails_is_the_last_one_of_its_pass(passes: Passes) -> None:
    passes.planner.outcome = PackingRefusal.LATE
    passes.go(4, settled=True)
    assert passes.planner.asks == 1
    assert passes.outcomes.told == [PackingRefusal.LATE]
    passes.rest()
    passes.planner.outcome = PlanOutcome.UNCHANGED
    passes.go(4)
    assert passes.planner.asks == 5, "whoever failed has found nothing that could be remembered"


def test_without_a_planner_what_scheduling_found_is_remembered(passes: Passes) -> None:
    passes.planner.outcome = PackingRefusal.NOT_INSTALLED
    passes.go(2, settled=True)
    assert passes.planner.asks == 2
    passes.rest()
    assert passes.go() is None


@pytest.mark.parametrize(
    ("later", "recheck", "is_lent"),
    [(0.9, None, False), (1.1, None, True), (0.4, 0.5, False), (0.6, 0.5, True), (1.1, 2.0, True)],
)
def test_what_led_to_nothing_is_asked_again_when_something_or_the_clock_changes_it(
    passes: Passes, later: float, recheck: float | None, is_lent: bool
) -> None:
    passes.go(settled=True, recheck=recheck * HOUR if recheck is not None else None)
    passes.rest()
    assert passes.rebuilding.searcher(OTHER, NOON) is not None
    assert (passes.rebuilding.searcher(ONE, NOON + later * HOUR) is not None) is is_lent


def test_what_was_found_is_asked_again(passes: Passes) -> None:
    passes.go(settled=False)
    passes.rest()
    assert passes.go() is not None


def test_with_the_program_the_planner_is_stopped(passes: Passes) -> None:
    passes.rebuilding.stop()
    assert passes.planner.stopped
