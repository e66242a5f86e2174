"""Batch windows, and which pods count."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.controllers.core import intake as module
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


# --- pods whose images are being looked up --------------------------------------------------------------------------


def awaiting(name: str, **changes: Any) -> Pod:
    """A pod that the webhook admitted before it knew for which architectures its images were built."""
    return msgspec.structs.replace(pod(name), labels={names.IMAGE_ARCH_PENDING: "true"}, **changes)


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_pod_does_not_count_before_its_images_are_known(confirmed: bool) -> None:
    clock = FakeClock()
    intake, one = an_intake(clock), awaiting("one", unschedulable=confirmed)
    intake.pod_seen(one)
    intake.report(["one"])
    clock.advance(module.IMAGES_SECONDS - 0.1)
    assert not intake.counts(one)
    known = msgspec.structs.replace(one, labels={})
    intake.pod_seen(known)
    assert intake.counts(known)


def test_a_pod_whose_images_nobody_tells_counts_five_seconds_after_it_was_seen() -> None:
    clock = FakeClock()
    intake, one = an_intake(clock), awaiting("one")
    intake.pod_seen(one)
    clock.advance(4.9)
    assert not intake.counts(one)
    refused = msgspec.structs.replace(one, unschedulable=True)
    intake.pod_seen(refused)  # a change of its status begins no other five seconds
    clock.advance(0.1)
    assert intake.counts(one)
    intake.pod_seen(refused)
    assert intake.counts(refused)


def test_the_time_behind_a_gate_is_part_of_the_five_seconds() -> None:
    clock = FakeClock()
    intake, one = an_intake(clock), awaiting("one")
    intake.pod_seen(msgspec.structs.replace(one, gated=True))
    clock.advance(5.0)
    intake.pod_seen(one)
    assert not intake.counts(one), "its grace period begins without the gate"
    clock.advance(0.4)
    assert intake.counts(one)


def test_a_pod_is_early_in_its_grace_period_and_not_while_its_images_are_looked_up() -> None:
    clock = FakeClock()
    intake, one, plain = an_intake(clock), awaiting("one"), pod("plain")
    intake.pod_seen(one)
    intake.pod_seen(plain)
    assert [intake.is_early(one), intake.is_early(plain)] == [False, True]
    clock.advance(0.3)
    assert [intake.is_early(one), intake.is_early(plain)] == [False, False]


def members_of(clock: FakeClock) -> tuple[Intake, list[int]]:
    """An intake, and how many members its window had whenever it looked."""
    looks = list[int]()

    def gathering(members: int) -> float:
        looks.append(members)
        return 0.0

    return an_intake(clock, gathering, timedelta(hours=1)), looks


def test_a_pod_whose_images_are_looked_up_joins_no_batch_before_they_are_known() -> None:
    intake, looks = members_of(FakeClock())
    one = awaiting("one")
    intake.start()
    intake.pod_seen(one)
    intake.report(["one"])
    intake.pod_seen(pod("plain"))
    eventually(lambda: looks and looks[-1] == 1, "the other opened a window", 10.0)
    intake.pod_seen(msgspec.structs.replace(one, labels={}))
    eventually(lambda: looks[-1] == 2, "it joined", 10.0)
    intake.stop()


def test_a_pod_whose_images_nobody_tells_joins_a_batch_by_itself() -> None:
    clock = FakeClock()
    intake, looks = members_of(clock)
    for name in ("told", "gone", "untold"):
        intake.pod_seen(awaiting(name))
    intake.pod_seen(awaiting("gated", gated=True))
    intake.pod_gone("gone")
    intake.pod_seen(pod("told"))
    clock.advance(4.99)
    intake.start()
    eventually(lambda: looks and looks[-1] == 1, "the one that is told is in the window", 10.0)
    clock.advance(0.01)
    eventually(lambda: looks[-1] == 2, "so is the one that is not", 10.0)
    intake.stop()
    assert max(looks) == 2


def test_a_pod_that_is_marked_anew_keeps_no_other_waiting() -> None:
    clock = FakeClock()
    intake, looks = members_of(clock)
    again = awaiting("again")
    intake.pod_seen(again)
    clock.advance(1.0)
    intake.pod_seen(awaiting("other"))
    clock.advance(3.0)
    intake.pod_seen(msgspec.structs.replace(again, labels={}, gated=True))
    intake.pod_seen(again)
    clock.advance(1.99)
    intake.start()
    eventually(lambda: looks, "it looks", 10.0)
    clock.advance(0.01)
    eventually(lambda: looks[-1] == 1, "the other is in the window", 10.0)
    intake.stop()
    assert [intake.counts(again), intake.counts(awaiting("other"))] == [False, True]
