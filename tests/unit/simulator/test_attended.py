"""Controllers without threads."""

import random
import threading

import pytest

from provisioner.runtime.controller import Controller
from provisioner.simulator.attended import AttendedManager, InlinePool
from provisioner.simulator.virtual_time import VirtualClock
from provisioner.support.poller import Poller
from provisioner.support.workers import ReconcileResult, run_parallel


def test_each_does_what_is_due_and_no_thread_is_started() -> None:
    clock, seen = VirtualClock(), list[tuple[str, float]]()

    def reconcile(key: str) -> ReconcileResult | None:
        seen.append((key, clock.seconds))
        return ReconcileResult(requeue_after=30.0) if key == "again" and clock.seconds < 30 else None

    def poll() -> float:
        seen.append(("poll", clock.seconds))
        return 10.0

    manager = AttendedManager(clock, random.Random(1), interval=25.0, left_out=["idle"])
    manager.take(
        [
            Controller(name="keys", reconcile=reconcile, initial=lambda: ["again", ("later", 5.0)]),
            Controller(runner=Poller("disruption", poll, first=10.0)),
            Controller(name="idle", poll=poll),
        ]
    )
    before = threading.active_count()
    manager.start()
    while (at := manager.next_time()) <= 60:
        clock.seconds = at
        while manager.turn():
            pass
    # the second look of two comes 15 s after the first: a node that has not changed meanwhile may go by then
    assert seen == [("again", 0.0), ("later", 5.0), ("poll", 10.0), ("poll", 25.0), ("again", 30.0), ("poll", 50.0)]
    assert manager.rounds == 3
    assert threading.active_count() == before


@pytest.mark.parametrize(("interval", "rounds"), [(0.0, 30), (4.0, 8), (60.0, 3)])
def test_what_looks_for_expired_things_every_second_does_so_every_ten_where_passes_are_coarse(
    interval: float, rounds: int
) -> None:
    clock = VirtualClock()
    manager = AttendedManager(clock, random.Random(1), interval=interval)
    manager.take([Controller(runner=Poller("housekeeping", lambda: 1.0, first=1.0))])
    manager.start()
    while (at := manager.next_time()) <= 30:
        clock.seconds = at
        while manager.turn():
            pass
    assert manager.rounds == rounds


def test_a_poller_that_is_woken_goes_first_and_one_that_fails_is_asked_again() -> None:
    clock, rounds = VirtualClock(), list[float]()

    def poll() -> float:
        rounds.append(clock.seconds)
        if len(rounds) == 1:
            raise ValueError("once")
        return 100.0

    poller = Poller("p", poll, retry=7.0, first=50.0, expected=(ValueError,))
    manager = AttendedManager(clock, random.Random(1))
    manager.take([Controller(runner=poller)])
    manager.start()
    assert not manager.turn()
    poller.wake()
    assert manager.turn()
    assert manager.next_time() == 7.0
    clock.seconds = 7.0
    assert manager.turn()
    assert rounds == [0.0, 7.0]


def test_a_pool_runs_calls_in_place() -> None:
    here = threading.current_thread()
    found = run_parallel(InlinePool(4, "test"), lambda item: (item * 2, threading.current_thread()), [1, 2, 3])
    assert [one.unwrap() for one in found] == [(2, here), (4, here), (6, here)]


def test_a_wait_that_the_clock_cannot_tell_does_not_go_on_for_ever() -> None:
    clock = VirtualClock()
    clock.seconds = 304.733
    manager = AttendedManager(clock, random.Random(1))
    manager.take([Controller(runner=Poller("late", lambda: 1e-15))])
    manager.start()
    assert manager.turn()
    assert not manager.turn()
    assert manager.next_time() > clock.seconds
