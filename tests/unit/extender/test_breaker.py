"""When questions pass unjudged, and when they are judged again."""

from extender.breaker import PAUSE_SECONDS, SLOW_IN_A_ROW, SLOW_SECONDS, Breaker
from tests.support.clock import FakeClock

SLOW = SLOW_SECONDS
FAST = SLOW_SECONDS / 2


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.changes: list[bool] = []
        self.breaker = Breaker(self.clock.monotonic, self.changes.append)

    def record(self, *seconds: float) -> None:
        for each in seconds:
            self.breaker.record(each)


def test_a_few_slow_judgements_in_a_row_open_it() -> None:
    bench = Bench()
    bench.record(*[SLOW] * (SLOW_IN_A_ROW - 1))
    assert bench.breaker.admits()
    bench.record(SLOW)
    assert not bench.breaker.admits()
    assert bench.changes == [True]


def test_slow_ones_between_fast_ones_do_not() -> None:
    bench = Bench()
    bench.record(*[SLOW, SLOW, FAST] * 10)
    assert bench.breaker.admits()
    assert bench.changes == []


def test_one_question_after_a_pause_is_tried_and_no_more() -> None:
    bench = Bench()
    bench.record(*[SLOW] * SLOW_IN_A_ROW)
    bench.clock.advance(PAUSE_SECONDS)
    assert [bench.breaker.admits() for _ in range(3)] == [True, False, False]
    bench.clock.advance(PAUSE_SECONDS)
    assert bench.breaker.admits(), "the trial never came back: another one"


def test_a_fast_trial_closes_it_and_a_slow_one_does_not() -> None:
    bench = Bench()
    bench.record(*[SLOW] * SLOW_IN_A_ROW)
    bench.clock.advance(PAUSE_SECONDS)
    assert bench.breaker.admits()
    bench.record(SLOW)
    assert not bench.breaker.admits()
    assert bench.breaker.open_seconds() == PAUSE_SECONDS
    bench.clock.advance(PAUSE_SECONDS)
    assert bench.breaker.admits()
    bench.record(FAST)
    assert all(bench.breaker.admits() for _ in range(3))
    assert bench.breaker.open_seconds() == 0
    assert bench.changes == [True, False]


def test_it_opens_again_only_after_as_many_as_before() -> None:
    bench = Bench()
    bench.record(*[SLOW] * SLOW_IN_A_ROW, FAST, SLOW)
    assert bench.breaker.admits()
