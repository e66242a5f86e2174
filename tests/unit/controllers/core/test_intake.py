"""Batch windows, and which pods count."""

import threading
from collections.abc import Callable
from datetime import timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from provisioner.controllers.core.intake import Intake, Window
from tests.support.clock import FakeClock
from tests.support.cluster import pod
from tests.support.eventually import eventually
from tests.support.problems import shape


def an_intake(
    clock: FakeClock, gathering: Callable[[int], float] = lambda _: 0.0, idle: timedelta = timedelta(seconds=1)
) -> Intake:
    """One that no pod waits for and that plans nothing."""
    return Intake(
        lambda: None,
        list,
        lambda _: False,
        clock,
        idle=idle,
        longest=10 * idle,
        grace=timedelta(milliseconds=300),
        gathering=gathering,
    )


def test_a_window_closes_a_second_after_its_last_new_member() -> None:
    window = Window(1.0, 10.0)
    window.add("a", 0.0)
    window.add("b", 0.5)
    assert window.closes_at() == 1.5


def test_a_known_member_does_not_keep_a_window_open() -> None:
    window = Window(1.0, 10.0)
    window.add("a", 0.0)
    assert not window.add("a", 0.9)
    assert window.closes_at() == 1.0


def test_an_empty_window_never_closes() -> None:
    assert Window(1.0, 10.0).closes_at() is None


@given(st.lists(st.floats(0, 60), min_size=1, unique=True))
def test_a_window_is_never_open_longer_than_its_longest(times: list[float]) -> None:
    window = Window(1.0, 10.0)
    for number, at in enumerate(sorted(times)):
        window.add(str(number), at)
    closes = window.closes_at()
    assert closes is not None
    assert closes <= min(times) + 10.0


def test_a_window_ends_early_by_what_planning_needs_and_at_most_by_half() -> None:
    window = Window(1.0, 10.0)
    for second in range(40):
        window.add(str(second), second / 4)
    assert (window.closes_at(), window.closes_at(1.5), window.closes_at(60.0)) == (10.0, 8.5, 5.0)
    assert window.ends_at() == 10.0
    assert len(window) == 40


def test_a_window_that_nobody_adds_to_closes_as_early_as_ever() -> None:
    window = Window(1.0, 10.0)
    window.add("a", 0.0)
    assert window.closes_at(2.0) == 1.0


def test_a_pod_counts_after_the_grace_period() -> None:
    clock = FakeClock()
    intake, one = an_intake(clock), pod("one")
    intake.pod_seen(one)
    assert not intake.counts(one)
    clock.advance(0.3)
    assert intake.counts(one)


def test_a_pod_of_another_scheduler_counts_once_that_one_has_no_place_for_it() -> None:
    clock = FakeClock()
    intake, one = an_intake(clock), pod("one", shape=shape(scheduler_name="volcano"))
    intake.pod_seen(one)
    clock.advance(3600)
    assert not intake.counts(one)
    assert intake.counts(msgspec.structs.replace(one, unschedulable=True))


def test_an_unschedulable_pod_counts_at_once() -> None:
    clock = FakeClock()
    intake, one = an_intake(clock), msgspec.structs.replace(pod("one"), unschedulable=True)
    intake.pod_seen(one)
    assert intake.counts(one)


def test_a_reported_pod_counts_at_once() -> None:
    clock = FakeClock()
    intake, one = an_intake(clock), pod("one")
    intake.pod_seen(one)
    intake.report(["one"])
    assert intake.counts(one)


def test_a_report_about_a_pod_that_is_not_known_counts_nothing() -> None:
    intake = an_intake(FakeClock())
    intake.report(["stranger"])
    assert not intake.counts(pod("stranger"))


def test_a_bound_pod_is_forgotten() -> None:
    clock = FakeClock()
    intake, one = an_intake(clock), pod("one")
    intake.pod_seen(one)
    intake.pod_gone("one")
    clock.advance(5)
    assert not intake.counts(one)


def test_a_run_that_is_asked_for_later_comes_later() -> None:
    runs, clock = list[float](), FakeClock()
    intake = Intake(
        lambda: runs.append(clock.monotonic()),
        list,
        lambda _: False,
        clock,
        idle=timedelta(seconds=1),
        longest=timedelta(seconds=10),
        grace=timedelta(milliseconds=300),
    )
    began = clock.monotonic()
    intake.trigger_after(8.0)
    intake.trigger_after(5.0)
    clock.advance(5.0)
    intake.start()
    eventually(lambda: runs, "the run came", 10.0)
    intake.stop()
    assert [at - began for at in runs] == [5.0]


def test_who_tells_of_a_pod_does_not_wait_for_what_a_gathering_batch_starts() -> None:
    """The planning process is started by the thread of the intake; a watch waited for that, and with it the whole state."""
    begun, goes_on = threading.Event(), threading.Event()

    def starts_a_process(members: int) -> float:
        if members:
            begun.set()
            goes_on.wait(10.0)
        return 0.0

    clock = FakeClock()
    intake = an_intake(clock, starts_a_process)
    intake.start()
    intake.pod_seen(pod("one"))
    assert begun.wait(10.0)
    told = threading.Thread(target=lambda: intake.pod_seen(pod("two")), daemon=True)
    told.start()
    told.join(5.0)
    waited = told.is_alive()
    goes_on.set()
    intake.stop()
    assert not waited


def test_what_planning_needs_is_asked_again_for_a_batch_that_grew_meanwhile() -> None:
    asked, goes_on = list[int](), threading.Event()
    clock = FakeClock()

    def needs(members: int) -> float:
        asked.append(members)
        if members == 1:
            goes_on.wait(10.0)
        return 0.0

    intake = an_intake(clock, needs, timedelta(hours=1))
    intake.start()
    intake.pod_seen(pod("one"))
    eventually(lambda: 1 in asked, "the first was told of", 10.0)
    intake.pod_seen(pod("two"))
    goes_on.set()
    eventually(lambda: 2 in asked, "the second was told of", 10.0)
    intake.stop()
