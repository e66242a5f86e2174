"""The list of controllers: started in its order, fed, and stopped together, whatever one of them does."""

import queue
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from provisioner.runtime.changes import NodeChanged, NodePoolChanged, PodChanged
from provisioner.runtime.controller import Controller, Keys, Manager
from provisioner.support.clock import SystemClock
from provisioner.support.ending import stop_all
from provisioner.support.poller import Poller
from provisioner.support.workers import KeyedQueue, ReconcileResult, WorkerPool
from tests.support.clock import FakeClock
from tests.support.cluster import node, pod, pool
from tests.support.eventually import eventually

SECONDS = 5.0


class Running:
    """A manager of these, and what they did, in order."""

    def __init__(self) -> None:
        self.manager, self.done = Manager(SystemClock()), queue.SimpleQueue[str]()

    def does(self, name: str) -> Controller:
        return Controller(name=name, reconcile=lambda key: self.done.put(f"{name} {key}"))

    def next(self) -> str:
        return self.done.get(timeout=SECONDS)

    def stop(self) -> list[str]:
        return self.manager.stop(SECONDS, SECONDS)


@pytest.fixture
def running() -> Iterator[Running]:
    one = Running()
    yield one
    one.manager.stop(0.1, 0.1)


class Noted(KeyedQueue):
    """A queue that says when it starts."""

    def __init__(self, name: str, started: list[str]) -> None:
        super().__init__(name, lambda _: None)
        self._starts = started

    def start(self) -> None:
        self._starts.append(f"{self.name} with {len(self)}")
        super().start()


def test_all_are_fed_before_the_first_begins_and_begin_in_their_order(running: Running) -> None:
    started: list[str] = []
    fed: list[str] = []

    def initial(name: str) -> Keys:
        fed.append(f"{name} after {len(started)} starts")
        return [f"{name}1", (f"{name}2", 60.0)]

    running.manager.take(
        Controller(runner=Noted(name, started), initial=partial(initial, name)) for name in ("b", "a", "c")
    )
    running.manager.start()
    assert fed == ["b after 0 starts", "a after 0 starts", "c after 0 starts"]
    assert started == ["b with 2", "a with 2", "c with 2"]


def test_a_list_begins_before_the_next_one_is_fed(running: Running) -> None:
    started: list[str] = []
    fed: list[list[str]] = []
    for name in ("cloud", "claims"):
        one = Controller(runner=Noted(name, started), initial=lambda: fed.append(list(started)))
        running.manager.take([one])
    running.manager.start()
    assert fed == [[], ["cloud with 0"]]


def test_a_change_is_for_those_that_watch_its_kind_and_brings_keys_now_or_later() -> None:
    clock = FakeClock()
    manager = Manager(clock)
    pools, nodes = KeyedQueue("pools", lambda _: None, clock), KeyedQueue("nodes", lambda _: None, clock)
    manager.take(
        [
            Controller(
                runner=pools,
                watches={
                    NodePoolChanged: lambda change: [change.latest.name],
                    NodeChanged: lambda change: [(change.latest.metadata.name, 3.0)],
                },
            ),
            Controller(runner=nodes, watches={NodeChanged: lambda change: [change.latest.metadata.name]}),
        ]
    )
    manager.heard(NodePoolChanged(None, pool("p")))
    manager.heard(PodChanged(None, pod("one")))
    assert (pools.depth(), len(pools), len(nodes)) == (1, 1, 0)
    manager.heard(NodeChanged(None, node("n")))
    assert (pools.depth(), len(pools), nodes.depth()) == (1, 2, 1)
    clock.advance(3.0)
    assert pools.depth() == 2


def test_a_controller_that_fails_at_a_change_keeps_it_from_no_other() -> None:
    clock = FakeClock()
    manager = Manager(clock)
    queues = [KeyedQueue(name, lambda _: None, clock) for name in ("before", "broken", "behind")]

    def named(change: NodeChanged) -> list[str]:
        return [change.latest.metadata.name]

    def broken(change: NodeChanged) -> list[str]:
        raise ValueError(change.latest.metadata.name)

    manager.take(
        Controller(runner=queue, watches={NodeChanged: broken if queue.name == "broken" else named}) for queue in queues
    )
    with pytest.raises(ValueError, match=r"^n$"):
        manager.heard(NodeChanged(None, node("n")))
    assert [queue.depth() for queue in queues] == [1, 0, 1]


def test_controllers_are_handed_work_by_name_also_before_they_begin(running: Running) -> None:
    running.manager.take([running.does("claims"), Controller(name="poll", poll=lambda: 60.0)])
    running.manager.add("claims", ["early"])
    running.manager.start()
    assert running.next() == "claims early"
    running.manager.add("claims", ["late"])
    assert running.next() == "claims late"
    with pytest.raises(KeyError):
        running.manager.add("nobody", ["x"])
    with pytest.raises(TypeError, match="poll has no keys"):
        running.manager.add("poll", ["x"])


def test_one_that_raises_is_called_again_and_holds_up_nobody(running: Running) -> None:
    rounds: list[int] = []

    def broken(key: str) -> ReconcileResult:
        rounds.append(1)
        raise RuntimeError(key)

    def failing() -> float:
        running.done.put("poll")
        raise OSError

    running.manager.take(
        [
            Controller(name="broken", reconcile=broken, initial=lambda: ["x"]),
            Controller(name="failing", poll=failing, expected=(OSError,)),
            running.does("whole"),
        ]
    )
    running.manager.start()
    assert running.next() == "poll"
    running.manager.add("whole", ["y"])
    assert running.next() == "whole y"
    eventually(lambda: len(rounds) > 1, "it is called again")


def test_after_the_stop_nothing_is_heard_and_what_was_under_way_is_done(running: Running) -> None:
    under_way, go_on = threading.Event(), threading.Event()

    def busy(key: str) -> None:
        under_way.set()
        go_on.wait(SECONDS)
        running.done.put(f"busy {key}")

    heard: list[PodChanged] = []

    def watch(change: PodChanged) -> Keys:
        heard.append(change)
        return ["again"]

    running.manager.take(
        [Controller(name="busy", reconcile=busy, initial=lambda: ["x"], closing=go_on.set, watches={PodChanged: watch})]
    )
    running.manager.start()
    assert under_way.wait(SECONDS)
    assert running.stop() == []
    assert running.next() == "busy x"
    running.manager.heard(PodChanged(None, pod("one")))
    assert heard == []
    assert running.done.empty()


def test_those_that_come_last_take_work_until_the_others_have_ended(running: Running) -> None:
    under_way, go_on, worked = threading.Event(), threading.Event(), threading.Event()

    def hands_over(key: str) -> None:
        under_way.set()
        go_on.wait(SECONDS)
        running.manager.add("last", [key])
        assert worked.wait(SECONDS)
        running.done.put("handed over")

    running.manager.take(
        [
            Controller(name="last", reconcile=lambda _: worked.set(), last=True),
            Controller(name="first", reconcile=hands_over, initial=lambda: ["x"]),
        ]
    )
    running.manager.start()
    assert under_way.wait(SECONDS)
    ending = threading.Thread(target=lambda: running.done.put(f"hung: {running.stop()}"))
    ending.start()
    go_on.set()
    assert running.next() == "handed over"
    assert running.next() == "hung: []"


def test_those_that_come_last_wait_for_nobody_of_another_list(running: Running) -> None:
    """A call to AWS that hangs does not let commands go on."""
    under_way, hanging = threading.Event(), threading.Event()

    def hangs(_: str) -> None:
        under_way.set()
        hanging.wait()

    last = Noted("last", [])
    running.manager.take([Controller(name="hangs", reconcile=hangs, initial=lambda: ["x"])])
    running.manager.take([Controller(runner=last, last=True)])
    running.manager.start()
    assert under_way.wait(SECONDS)
    ending = threading.Thread(target=running.stop)
    ending.start()
    eventually(lambda: last._stopping, "it is told to stop while the other one hangs")
    assert ending.is_alive()
    hanging.set()
    ending.join(SECONDS)


def test_their_threads_are_closed_once_all_have_ended(running: Running) -> None:
    threads, under_way, go_on = WorkerPool(1, "threads"), threading.Event(), threading.Event()

    def busy(key: str) -> None:
        under_way.set()
        go_on.wait(SECONDS)
        threads.submit(lambda: running.done.put(f"written for {key}"))

    running.manager.take(
        [Controller(name="busy", reconcile=busy, initial=lambda: ["x"], pools=(threads,), closing=go_on.set)]
    )
    running.manager.start()
    assert under_way.wait(SECONDS)
    assert running.stop() == []
    assert running.next() == "written for x"
    with pytest.raises(RuntimeError, match="closed"):
        threads.submit(lambda: None)


def test_one_that_hangs_is_told_of_and_the_stop_ends_in_time_all_the_same() -> None:
    manager, hanging, threads = Manager(SystemClock()), threading.Event(), WorkerPool(1, "threads")
    told = threading.Event()
    hung = [threading.Event() for _ in range(4)]

    def hang(event: threading.Event) -> float:
        event.set()
        hanging.wait()
        return 60.0

    def reconcile(_: str) -> None:
        hang(hung[0])

    def writes() -> float:
        threads.submit(lambda: hangs_in(hung[3]))
        return 60.0

    def hangs_in(event: threading.Event) -> None:
        hang(event)

    manager.take(
        [
            Controller(name="queue", reconcile=reconcile, initial=lambda: ["x"]),
            Controller(name="poll", poll=lambda: hang(hung[1])),
            Controller(name="not waited for", poll=lambda: hang(hung[2]), waited=False),
            Controller(name="writes", poll=writes, pools=(threads,)),
            Controller(runner=Poller("whole", lambda: 60.0), last=True, closing=told.set),
        ]
    )
    manager.start()
    assert all(event.wait(SECONDS) for event in hung)
    names: list[str] = []
    assert stop_all([lambda: names.extend(manager.stop(1.0, 0.5))], SECONDS), "the stop keeps its bound"
    assert told.is_set()
    assert names == ["queue", "poll", "threads"]
    hanging.set()


WRONG: dict[str, Controller] = {
    "nothing": Controller(name="one"),
    "two ways": Controller(name="one", reconcile=lambda _: None, poll=lambda: 1.0),
    "a runner and more": Controller(runner=KeyedQueue("one", lambda _: None), poll=lambda: 1.0),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_one_that_has_no_work_or_two_kinds_is_refused(wrong: Controller) -> None:
    with pytest.raises(ValueError, match="exactly one"):
        Manager(FakeClock()).take([wrong])


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two controllers have the name one"):
        Manager(FakeClock()).take([Controller(name="one", poll=lambda: 1.0)] * 2)


def test_the_list_says_what_runs_each_in_its_order() -> None:
    manager = Manager(FakeClock())
    queue = Controller(name="queue", reconcile=lambda _: None, workers=7)
    manager.take([queue, Controller(name="poll", poll=lambda: 1.0)])
    assert list(manager.controllers) == ["queue", "poll"]
    one, runner = manager.controllers["queue"]
    assert one is queue
    assert isinstance(runner, KeyedQueue)
    assert runner.workers == 7
