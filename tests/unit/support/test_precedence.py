"""Long work waits for short work, within bounds."""

import threading

from provisioner.support.precedence import GRACE_SECONDS, LongWork, Precedence
from tests.support.clock import FakeClock


class Pieces:
    """A piece of long work in a thread of its own; it has worked for long, so it may wait for long."""

    def __init__(self, precedence: Precedence, clock: FakeClock) -> None:
        self._work = precedence.long_work()
        clock.advance(1000.0)
        self.went_on = threading.Event()
        threading.Thread(target=self._piece, daemon=True).start()

    def _piece(self) -> None:
        self._work.give_way()
        self.went_on.set()


class ShortWork(threading.Event):
    """Short work that takes so long, by a clock that nobody else moves."""

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        super().__init__()
        self._clock, self._seconds = clock, seconds

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None, "long work waits within bounds"
        self._clock.advance(min(timeout, self._seconds))
        return timeout >= self._seconds


def test_long_work_waits_for_nobody_where_nothing_short_is_under_way() -> None:
    clock = FakeClock()
    work = Precedence(clock).long_work()
    clock.advance(3.0)
    work.give_way()
    assert (work.worked, work.waited) == (3.0, 0.0)


def test_long_work_goes_on_once_all_short_work_is_done() -> None:
    clock = FakeClock()
    precedence = Precedence(clock)
    with precedence.short_work():
        with precedence.short_work():
            pieces = Pieces(precedence, clock)
        assert not pieces.went_on.wait(0.1), "one is still under way"
    assert pieces.went_on.wait(30)


def test_short_work_that_fails_holds_up_nobody() -> None:
    clock = FakeClock()
    precedence = Precedence(clock)
    try:
        with precedence.short_work():
            raise ValueError
    except ValueError:
        pass
    assert Pieces(precedence, clock).went_on.wait(30)


def test_time_of_waiting_is_no_time_of_work() -> None:
    clock = FakeClock()
    work = LongWork(ShortWork(clock, 5.0), clock)
    clock.advance(20.0)
    work.give_way()
    assert (work.worked, work.waited) == (20.0, 5.0)


def test_long_work_waits_no_longer_than_it_has_worked() -> None:
    clock = FakeClock()
    work = LongWork(ShortWork(clock, 1000.0), clock)
    for _ in range(10):
        clock.advance(1.0)
        work.give_way()
        assert work.waited == work.worked + GRACE_SECONDS


def test_what_is_over_waits_for_nobody() -> None:
    """What it has found would only grow older."""
    clock = FakeClock()
    work = LongWork(ShortWork(clock, 5.0), clock)
    clock.advance(20.0)
    assert work.is_over(20.0)
    assert work.waited == 0.0
    assert not work.is_over(21.0)
    assert (work.worked, work.waited) == (20.0, 5.0)
