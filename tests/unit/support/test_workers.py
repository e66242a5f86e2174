import sys
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.support import heartbeat
from provisioner.support.heartbeat import Pulses
from provisioner.support.workers import (
    DONE,
    KeyedQueue,
    ReconcileResult,
    Schedule,
    StillRunningError,
    WorkerPool,
    join_all,
    pool,
    run_parallel,
)
from tests.support.clock import FakeClock
from tests.support.eventually import eventually

WAIT = 10.0  # seconds that nothing here comes near


def test_a_key_added_twice_runs_once() -> None:
    schedule = Schedule()
    schedule.add("a", 0)
    schedule.add("a", 0)
    assert [schedule.pop(0), schedule.pop(0)] == ["a", None]


def test_a_key_added_while_it_runs_runs_once_more_afterwards() -> None:
    schedule = Schedule()
    schedule.add("a", 0)
    assert schedule.pop(0) == "a"
    schedule.add("a", 0)
    schedule.add("a", 0)
    assert schedule.pop(0) is None
    schedule.done("a")
    assert [schedule.pop(0), schedule.pop(0)] == ["a", None]


def test_the_earlier_of_two_times_counts() -> None:
    schedule = Schedule()
    schedule.add("a", 10)
    schedule.add("a", 5)
    schedule.add("a", 20)
    assert (schedule.pop(4.9), schedule.next_time(), schedule.pop(5), schedule.pop(100)) == (None, 5, "a", None)


def test_keys_leave_by_time_then_by_arrival() -> None:
    schedule = Schedule()
    for key, at in (("late", 3), ("b", 1), ("a", 1), ("now", 0)):
        schedule.add(key, at)
    assert [schedule.pop(3) for _ in range(4)] == ["now", "b", "a", "late"]


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["add", "pop", "done"]), st.sampled_from("abc"), st.integers(0, 5)), max_size=60
    )
)
def test_no_key_runs_twice_at_once_and_none_is_lost(steps: list[tuple[str, str, int]]) -> None:
    schedule, running, wanted = Schedule(), set[str](), set[str]()
    for step, key, at in steps:
        if step == "add":
            schedule.add(key, at)
            wanted.add(key)
        elif step == "pop":
            popped = schedule.pop(at)
            if popped is not None:
                assert popped not in running
                running.add(popped)
                wanted.discard(popped)
        elif key in running:
            schedule.done(key)
            running.discard(key)
    for key in sorted(running):
        schedule.done(key)
    rest = []
    while (key_left := schedule.pop(10)) is not None:
        rest.append(key_left)
    assert sorted(rest) == sorted(wanted)


class Working:
    """A reconciler that records its runs and can be held up."""

    def __init__(self, result: Callable[[str, int], ReconcileResult | None] = lambda key, run: DONE) -> None:
        self.result = result
        self.runs: list[str] = []
        self.lock = threading.Condition()
        self.gate = threading.Event()
        self.gate.set()
        self.inside: list[str] = []
        self.overlaps = 0

    def __call__(self, key: str) -> ReconcileResult | None:
        with self.lock:
            self.overlaps += key in self.inside
            self.inside.append(key)
            self.lock.notify_all()
        assert self.gate.wait(WAIT)
        with self.lock:
            self.inside.remove(key)
            self.runs.append(key)
            self.lock.notify_all()
        return self.result(key, self.runs.count(key))

    def until(self, condition: Callable[[], bool]) -> None:
        with self.lock:
            assert self.lock.wait_for(condition, WAIT)


def test_every_key_is_worked_on_and_equal_ones_once() -> None:
    work = Working()
    queue = KeyedQueue("test", work, workers=3)
    queue.add_all(["a", "b", "c", "a"])
    queue.start()
    work.until(lambda: len(work.runs) == 3)
    assert queue.stop()
    assert sorted(work.runs) == ["a", "b", "c"]


def test_a_key_that_is_added_while_it_runs_runs_again_and_never_beside_itself() -> None:
    work = Working()
    work.gate.clear()
    queue = KeyedQueue("test", work, workers=4)
    queue.start()
    queue.add("a")
    work.until(lambda: work.inside == ["a"])
    for _ in range(5):
        queue.add("a")
    work.gate.set()
    work.until(lambda: len(work.runs) == 2)
    assert queue.stop()
    assert (work.runs, work.overlaps) == (["a", "a"], 0)


def test_a_reconciler_that_raises_is_tried_again_until_it_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    def result(key: str, run: int) -> ReconcileResult:
        if run < 3:
            raise RuntimeError(f"fault {run}")
        return DONE

    work = Working(result)
    queue = KeyedQueue("test", work)
    queue.start()
    queue.add("a")
    queue.add("b")
    work.until(lambda: work.runs.count("a") == 3 and work.runs.count("b") == 3)
    assert queue.stop()
    assert queue.failures("a") == 0
    assert {(record.message, record.__dict__["fields"]["key"]) for record in caplog.records} == {
        ("Reconcile failed; retrying", "a"),
        ("Reconcile failed; retrying", "b"),
    }


def test_a_result_may_ask_to_run_again_later() -> None:
    work = Working(lambda key, run: ReconcileResult(requeue_after=0.02) if run < 3 else None)
    queue = KeyedQueue("test", work)
    queue.start()
    begun = time.monotonic()
    queue.add("a")
    work.until(lambda: len(work.runs) == 3)
    assert time.monotonic() - begun >= 0.04
    assert queue.stop()


def test_a_wait_that_the_clock_cannot_tell_from_none_is_no_spin() -> None:
    clock = FakeClock()
    clock.advance(1e6)
    assert clock.monotonic() + 1e-12 == clock.monotonic()
    work = Working(lambda key, run: ReconcileResult(requeue_after=1e-12))
    queue = KeyedQueue("test", work, clock)
    queue.start()
    queue.add("a")
    work.until(lambda: len(work.runs) == 1)
    time.sleep(0.05)
    assert len(work.runs) == 1, "it runs again although no time has passed"
    assert queue.stop()


def test_a_result_may_say_that_it_failed_without_raising(caplog: pytest.LogCaptureFixture) -> None:
    work = Working(lambda key, run: ReconcileResult(failed=run < 2))
    queue = KeyedQueue("test", work)
    queue.start()
    queue.add("a")
    work.until(lambda: len(work.runs) == 2)
    assert queue.stop()
    assert caplog.records == []


def test_work_for_later_does_not_hold_up_what_is_due() -> None:
    work = Working()
    queue = KeyedQueue("test", work)
    queue.start()
    queue.add_after("later", 3600)
    queue.add("now")
    work.until(lambda: work.runs == ["now"])
    assert len(queue) == 1
    assert queue.idle()
    assert queue.stop()


def test_stop_finishes_what_runs_and_drops_the_rest() -> None:
    work = Working()
    work.gate.clear()
    queue = KeyedQueue("test", work)
    queue.add_all(["a", "b"])
    queue.start()
    work.until(lambda: len(work.inside) == 1)
    assert not queue.stop(timeout=0.01)
    work.gate.set()
    assert queue.stop()
    queue.add("late")
    assert len(work.runs) == 1


def test_a_key_never_waits_behind_others_while_a_thread_may_be_started() -> None:
    for added in (False, True):
        together = threading.Barrier(8, timeout=WAIT)

        def work(_key: str, together: threading.Barrier = together) -> None:
            together.wait()

        queue = KeyedQueue("test", work, workers=8)
        if not added:
            queue.add_all(map(str, range(8)))
        queue.start()
        if added:
            for key in range(8):
                queue.add(str(key))
        eventually(queue.idle, "every key has run")
        assert not any(map(queue.failures, map(str, range(8))))
        assert queue.stop()


def test_a_key_for_later_is_not_forgotten_while_all_threads_that_there_are_hang() -> None:
    hanging, may_go, ran = threading.Event(), threading.Event(), threading.Event()

    def work(key: str) -> None:
        if key == "hangs":
            hanging.set()
            may_go.wait(WAIT)
        else:
            ran.set()

    queue = KeyedQueue("test", work, workers=2)
    queue.start()
    queue.add_after("later", 0.05)
    queue.add("hangs")
    assert hanging.wait(WAIT)
    assert ran.wait(WAIT)
    may_go.set()
    assert queue.stop()


def test_a_queue_has_no_more_threads_than_its_keys_needed_at_once() -> None:
    work = Working()
    queue = KeyedQueue("threads-by-need", work, workers=8)
    queue.start()
    for number in range(20):
        queue.add(str(number))
        eventually(lambda: queue.idle() and not len(queue), "the key has run")
    assert sum(thread.name.startswith("threads-by-need-") for thread in threading.enumerate()) == 1
    assert queue.stop()


def test_where_no_thread_can_be_started_those_that_there_are_do_the_work(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    work = Working()
    work.gate.clear()
    queue = KeyedQueue("test", work, workers=2)
    queue.start()
    queue.add("a")
    work.until(lambda: len(work.inside) == 1)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", _refused)
        queue.add("b")
    assert "Failed to start a thread" in caplog.text
    work.gate.set()
    eventually(lambda: sorted(work.runs) == ["a", "b"], "both keys have run")
    assert queue.stop()


def _refused(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_queue_may_be_stopped_by_its_own_work() -> None:
    stopped = threading.Event()

    def work(key: str) -> None:
        queue.stop()
        stopped.set()

    queue = KeyedQueue("test", work)
    queue.start()
    queue.add("a")
    assert stopped.wait(WAIT)
    assert queue.stop()


def test_results_come_in_the_order_of_the_items_with_their_errors() -> None:
    def double(number: int) -> int:
        if number == 3:
            raise ValueError("three")
        return number * 2

    with pool(4) as threads:
        outcomes = run_parallel(threads, double, [5, 3, 1])
    assert [outcome.item for outcome in outcomes] == [5, 3, 1]
    assert [outcome.value for outcome in outcomes] == [10, None, 2]
    assert str(outcomes[1].error) == "three"
    with pytest.raises(ValueError, match="three"):
        outcomes[1].unwrap()


def test_no_items_are_no_work() -> None:
    with pool(1) as threads:
        assert run_parallel(threads, str, []) == []


def test_as_many_run_at_once_as_there_are_threads_and_no_more() -> None:
    lock, inside, most = threading.Lock(), 0, 0
    together = threading.Barrier(3)

    def work(number: int) -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        together.wait(WAIT)
        with lock:
            inside -= 1

    with pool(3) as threads:
        assert all(outcome.error is None for outcome in run_parallel(threads, work, range(9)))
    assert most == 3


def test_a_queue_may_be_stopped_while_it_is_started() -> None:
    failures: list[BaseException] = []

    def stop(queue: KeyedQueue) -> None:
        try:
            assert queue.stop(WAIT)
        except BaseException as error:  # noqa: BLE001 - it is what the test fails with
            failures.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(50):
            queue = KeyedQueue("q", lambda _: DONE, workers=20)
            stopping = threading.Thread(target=stop, args=(queue,))
            stopping.start()
            queue.start()
            stopping.join(WAIT)
    finally:
        sys.setswitchinterval(before)
    assert failures == []


def test_a_pool_whose_calls_all_hang_is_waited_for_once_and_not_for_each_thread() -> None:
    let_go = threading.Event()
    threads = WorkerPool(12, "cloud")

    def hang() -> None:
        let_go.wait(60)

    for _ in range(12):
        threads.submit(hang)
    begun = time.monotonic()
    assert not threads.close(0.5)
    assert time.monotonic() - begun < 5
    let_go.set()
    assert threads.close(WAIT)


def test_a_closed_pool_takes_nothing() -> None:
    threads = WorkerPool(1, "cloud")
    threads.close()
    with pytest.raises(RuntimeError, match="pool cloud is closed"):
        threads.submit(lambda: None)


def test_nothing_works_without_workers() -> None:
    with pytest.raises(ValueError, match="queue test needs at least one worker, not 0"):
        KeyedQueue("test", lambda key: None, workers=0)
    with pytest.raises(ValueError, match="pool x needs at least one worker, not 0"):
        WorkerPool(0, "x")


def test_a_call_never_waits_behind_another_while_a_thread_may_be_started() -> None:
    for _ in range(30):  # three of ten runs would fail if threads were counted as idle that have taken a call
        together = threading.Barrier(24, timeout=10.0)
        with pool(24) as threads:
            outcomes = run_parallel(threads, lambda _: together.wait(), range(24))  # noqa: B023  (called in the block)
            assert sorted(outcome.unwrap() for outcome in outcomes) == list(range(24))


def test_a_call_that_hangs_is_left_behind_and_ends_by_itself() -> None:
    may_go, done = threading.Event(), threading.Event()

    def work(item: int) -> int:
        if item == 1:
            assert may_go.wait(WAIT)
            done.set()
        return item

    with pool(2) as workers:
        outcomes = run_parallel(workers, work, range(4), patience=0.2)
        assert [one.value for one in outcomes] == [0, None, 2, 3]
        assert isinstance(outcomes[1].error, StillRunningError)
        may_go.set()
        assert done.wait(WAIT)


def test_calls_that_had_not_begun_when_nobody_waited_any_more_are_left_out() -> None:
    may_go, begun = threading.Event(), list[int]()

    def work(item: int) -> None:
        begun.append(item)
        assert may_go.wait(WAIT)

    with pool(1) as workers:
        outcomes = run_parallel(workers, work, range(3), patience=0.1)
        assert all(isinstance(one.error, StillRunningError) for one in outcomes)
        may_go.set()
        assert [one.value for one in run_parallel(workers, lambda item: item, [7])] == [7]
    assert begun == [0]


def test_an_offer_does_not_hasten_a_key_that_failed() -> None:
    tried: list[str] = []

    def reconcile(key: str) -> ReconcileResult:
        tried.append(key)
        return ReconcileResult(failed=key == "bad")

    queue = KeyedQueue("offers", reconcile, FakeClock())
    queue.start()
    for _ in range(20):
        queue.offer("bad")
        queue.offer("good")
        eventually(queue.idle, "the offers are taken", WAIT, 0.001)
    queue.stop()
    assert tried.count("bad") == 1
    assert tried.count("good") == 20


@pytest.fixture
def pulses(monkeypatch: pytest.MonkeyPatch) -> tuple[Pulses, FakeClock]:
    """The pulses of this process, on a clock that the test moves."""
    clock = FakeClock()
    found = Pulses(clock)
    monkeypatch.setattr(heartbeat, "_OURS", found)
    return found, clock


def test_a_reconciler_that_hangs_is_told_by_its_thread_and_a_queue_without_work_is_well(
    pulses: tuple[Pulses, FakeClock],
) -> None:
    found, clock = pulses
    begun, release = threading.Event(), threading.Event()

    def hang(key: str) -> None:
        begun.set()
        release.wait(WAIT)

    queue = KeyedQueue("slow", hang)
    queue.start()
    clock.advance(2 * heartbeat.PATIENCE_SECONDS)
    assert found.problem() == ""
    queue.add("a")
    assert begun.wait(WAIT)
    clock.advance(heartbeat.PATIENCE_SECONDS + 1)
    assert found.problem() == "thread slow-0 has made no progress for 901 s"
    release.set()
    eventually(queue.idle, "it goes on")
    eventually(lambda: found.problem() == "", "it is well again")
    queue.stop()


def test_a_call_that_hangs_is_told_by_its_thread(pulses: tuple[Pulses, FakeClock]) -> None:
    found, clock = pulses
    begun, release = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        release.wait(WAIT)

    with pool(1, "creates") as threads:
        threads.submit(hang)
        assert begun.wait(WAIT)
        clock.advance(heartbeat.PATIENCE_SECONDS + 1)
        assert found.problem() == "thread creates-0 has made no progress for 901 s"
        release.set()


def test_threads_of_a_pool_or_queue_that_is_closed_are_not_missed(pulses: tuple[Pulses, FakeClock]) -> None:
    """A pool for one purpose lives for moments, as that which makes launch templates."""
    found, clock = pulses
    done = threading.Event()
    with pool(1, "launch-templates") as threads:
        threads.submit(done.set)
    assert done.wait(WAIT)
    queue = KeyedQueue("short", lambda _: None)
    queue.start()
    queue.stop()
    clock.advance(heartbeat.PATIENCE_SECONDS + 1)
    assert found.problem() == ""


class Endless(threading.Thread):
    """Never ends; waiting for it takes all the time that is given."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(daemon=True)
        self._clock = clock

    def join(self, timeout: float | None = None) -> None:
        assert timeout is not None
        self._clock.sleep(timeout)

    def is_alive(self) -> bool:
        return True


def test_threads_that_do_not_end_are_waited_for_together_not_one_after_the_other() -> None:
    clock = FakeClock()
    began = clock.monotonic()
    assert not join_all([Endless(clock) for _ in range(3)], 10.0, clock)
    assert clock.monotonic() - began == 10.0
