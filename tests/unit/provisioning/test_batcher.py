"""Batch windows."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.pods import Pod
from provisioner.provisioning.batcher import Intake, Window
from provisioner.support.clock import SystemClock
from provisioner.support.precedence import Precedence
from tests.support.cluster import World, pod
from tests.support.eventually import eventually


class Waiting:
    """A state with pods, and an intake that plans nothing."""

    def __init__(
        self,
        run: Callable[[], object] = lambda: None,
        gathering: Callable[[int], float] = lambda _: 0.0,
        idle: timedelta = timedelta(seconds=1),
        precedence: Precedence | None = None,
    ) -> None:
        self.world = World()
        self.clock = self.world.clock
        self.intake = Intake(
            self.world.cluster, self.clock, idle=idle, longest=10 * idle, gathering=gathering, precedence=precedence
        )
        self._run = run

    def start(self) -> None:
        self.intake.begin(self._run)
        self.intake.poller.start()

    def stop(self) -> None:
        self.intake.poller.stop(10.0)

    def seen(self, *pods: Pod) -> None:
        """A watch tells of pods."""
        for one in pods:
            self.world.add(one)
            self.intake.pod_seen(one)


class NotedPrecedence(Precedence):
    def __init__(self, noted: list[str]) -> None:
        super().__init__(SystemClock())
        self._noted = noted

    @contextlib.contextmanager
    def short_work(self) -> Iterator[None]:
        self._noted.append("goes first")
        yield
        self._noted.append("done")


def test_planning_goes_before_long_work() -> None:
    noted: list[str] = []
    stage = Waiting(lambda: noted.append("planned"), precedence=NotedPrecedence(noted))
    stage.start()
    try:
        stage.seen(pod("a"))
        eventually(lambda: len(stage.intake._window) == 1, "the window is open")
        assert not noted, "a batch that only waits for more holds up nobody"
        stage.clock.advance(1.0)
        stage.intake.poller.wake()
        eventually(lambda: noted == ["goes first", "planned", "done"], "planning went first")
    finally:
        stage.stop()


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


def test_a_tenant_whose_pods_cannot_be_planned_makes_nobody_wait_for_them() -> None:
    """One such pod a second kept every window open for its longest, for the pods of all others."""
    runs = list[float]()
    at = Waiting(lambda: runs.append(at.clock.monotonic()))
    began = at.clock.monotonic()
    at.seen(pod("good"))
    at.clock.advance(0.6)
    at.seen(pod("bad", shape=msgspec.structs.replace(pod("good").shape, error="more than 256 host ports")))
    at.intake.report(["bad"])
    at.clock.advance(0.4)
    at.start()
    eventually(lambda: runs, "the window closed", 10.0)
    at.stop()
    assert [at - began for at in runs] == [1.0]


def test_a_pod_that_only_an_event_makes_wait_opens_no_window_before() -> None:
    at, looks = members_of()
    foreign = msgspec.structs.replace(pod("good").shape, scheduler_name="another")
    at.start()
    at.seen(pod("foreign", shape=foreign))
    at.seen(pod("good"))
    eventually(lambda: looks and looks[-1] == 1, "the other opened a window", 10.0)
    at.seen(pod("foreign", shape=foreign, unschedulable=True))
    eventually(lambda: looks[-1] == 2, "it joined when it was refused", 10.0)
    at.stop()


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


def test_a_run_that_is_asked_for_later_comes_later() -> None:
    runs = list[float]()
    at = Waiting(lambda: runs.append(at.clock.monotonic()))
    intake, clock = at.intake, at.clock
    began = clock.monotonic()
    intake.trigger_after(8.0)
    intake.trigger_after(5.0)
    clock.advance(5.0)
    at.start()
    eventually(lambda: runs, "the run came", 10.0)
    at.stop()
    assert [at - began for at in runs] == [5.0]


def test_who_tells_of_a_pod_does_not_wait_for_what_a_gathering_batch_starts() -> None:
    """The planning process is started by the thread of the intake; a watch waited for that, and with it the whole state."""
    begun, goes_on = threading.Event(), threading.Event()

    def starts_a_process(members: int) -> float:
        if members:
            begun.set()
            goes_on.wait(10.0)
        return 0.0

    at = Waiting(gathering=starts_a_process)
    at.start()
    at.seen(pod("one"))
    assert begun.wait(10.0)
    told = threading.Thread(target=lambda: at.seen(pod("two")), daemon=True)
    told.start()
    told.join(5.0)
    waited = told.is_alive()
    goes_on.set()
    at.stop()
    assert not waited


def test_what_planning_needs_is_asked_again_for_a_batch_that_grew_meanwhile() -> None:
    asked, goes_on = list[int](), threading.Event()

    def needs(members: int) -> float:
        asked.append(members)
        if members == 1:
            goes_on.wait(10.0)
        return 0.0

    at = Waiting(gathering=needs, idle=timedelta(hours=1))
    at.start()
    at.seen(pod("one"))
    eventually(lambda: 1 in asked, "the first was told of", 10.0)
    at.seen(pod("two"))
    goes_on.set()
    eventually(lambda: 2 in asked, "the second was told of", 10.0)
    at.stop()


# --- pods whose images are being looked up --------------------------------------------------------------------------


def awaiting(name: str, **changes: Any) -> Pod:
    """A pod that the webhook admitted before it knew for which architectures its images were built."""
    return msgspec.structs.replace(pod(name), labels={names.IMAGE_ARCH_PENDING: "true"}, **changes)


def members_of() -> tuple[Waiting, list[int]]:
    """An intake, and how many members its window had whenever it looked."""
    looks = list[int]()

    def gathering(members: int) -> float:
        looks.append(members)
        return 0.0

    return Waiting(gathering=gathering, idle=timedelta(hours=1)), looks


def test_a_pod_whose_images_are_looked_up_joins_no_batch_before_they_are_known() -> None:
    at, looks = members_of()
    one = awaiting("one")
    at.start()
    at.seen(one)
    at.intake.report(["one"])
    at.seen(pod("plain"))
    eventually(lambda: looks and looks[-1] == 1, "the other opened a window", 10.0)
    at.seen(msgspec.structs.replace(one, labels={}))
    eventually(lambda: looks[-1] == 2, "it joined", 10.0)
    at.stop()


def test_a_pod_whose_images_nobody_tells_joins_a_batch_by_itself() -> None:
    at, looks = members_of()
    at.seen(*map(awaiting, ("told", "gone", "untold")))
    at.seen(awaiting("gated", gated=True))
    at.world.cluster.pod_changed(awaiting("gone"), None)
    at.seen(pod("told"))
    at.clock.advance(4.99)
    at.start()
    eventually(lambda: looks and looks[-1] == 1, "the one that is told is in the window", 10.0)
    at.clock.advance(0.01)
    eventually(lambda: looks[-1] == 2, "so is the one that is not", 10.0)
    at.stop()
    assert max(looks) == 2


def test_a_pod_that_is_marked_anew_keeps_no_other_waiting() -> None:
    at, looks = members_of()
    again = awaiting("again")
    at.seen(again)
    at.clock.advance(1.0)
    at.seen(awaiting("other"))
    at.clock.advance(3.0)
    at.seen(msgspec.structs.replace(again, labels={}, gated=True), again)
    at.clock.advance(1.99)
    at.start()
    eventually(lambda: looks, "it looks", 10.0)
    at.clock.advance(0.01)
    eventually(lambda: looks[-1] == 1, "the other is in the window", 10.0)
    at.stop()
    assert [one.name for one in at.world.cluster.snapshot().waiting] == ["other"]
