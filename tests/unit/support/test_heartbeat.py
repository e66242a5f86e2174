"""Which threads count as dead or hanging."""

import threading
from collections.abc import Callable, Iterator

import pytest

from provisioner.support.heartbeat import Pulses, watch_threads
from provisioner.support.metrics import REGISTRY
from tests.support.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def pulses(clock: FakeClock) -> Pulses:
    return Pulses(clock)


def in_thread(run: Callable[[], None], name: str = "loop") -> None:
    thread = threading.Thread(target=run, name=name)
    thread.start()
    thread.join(10)


def test_a_loop_that_turns_is_well(pulses: Pulses, clock: FakeClock) -> None:
    pulse = pulses.pulse("election", 60)
    assert pulses.problem() == "", "one that has not begun is not missed"
    for _ in range(10):
        pulse.beat()
        clock.advance(59)
        assert pulses.problem() == ""


def test_a_loop_that_hangs_is_named(pulses: Pulses, clock: FakeClock) -> None:
    pulse = pulses.pulse("election", 60)
    pulse.beat()
    clock.advance(61)
    assert pulses.problem() == "election has made no progress for 61 s"
    pulse.beat()
    assert pulses.problem() == ""


def test_a_loop_that_waits_for_work_may_wait_for_ever(pulses: Pulses, clock: FakeClock) -> None:
    pulse = pulses.pulse("creates-3", 60)
    pulse.beat()
    pulse.rest()
    clock.advance(1_000_000)
    assert pulses.problem() == ""


@pytest.mark.parametrize("last", ["beat", "rest"])
def test_a_loop_whose_thread_is_gone_is_dead(pulses: Pulses, last: str) -> None:
    in_thread(getattr(pulses.pulse("intake", 60), last))
    assert pulses.problem() == "intake has ended"


def test_a_loop_that_ends_as_it_should_is_not_missed(pulses: Pulses, clock: FakeClock) -> None:
    pulse = pulses.pulse("events", 60)

    def run() -> None:
        pulse.beat()
        pulse.end()

    in_thread(run)
    clock.advance(61)
    assert pulses.problem() == ""


def test_the_later_of_two_loops_of_one_name_counts(pulses: Pulses) -> None:
    in_thread(pulses.pulse("intake", 60).beat)
    pulses.pulse("intake", 60).beat()
    assert pulses.problem() == ""


@pytest.fixture
def hooked(pulses: Pulses) -> Iterator[None]:
    before = watch_threads(pulses)
    yield
    threading.excepthook = before


@pytest.mark.usefixtures("hooked")
def test_a_thread_that_ends_with_an_error_stays_dead_is_logged_and_counted(
    pulses: Pulses, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RecursionError("too deep")

    before = REGISTRY.get_sample_value("dovetail_threads_died_total") or 0.0
    in_thread(fail, "watch-pods")
    in_thread(lambda: None)
    assert pulses.problem() == "thread watch-pods ended with RecursionError: too deep"
    assert [getattr(record, "fields", {}).get("thread") for record in caplog.records] == ["watch-pods"]
    assert REGISTRY.get_sample_value("dovetail_threads_died_total") == before + 1


@pytest.mark.usefixtures("hooked")
def test_a_thread_that_asks_to_end_has_not_died(pulses: Pulses) -> None:
    def leave() -> None:
        raise SystemExit

    in_thread(leave)
    assert pulses.problem() == ""
