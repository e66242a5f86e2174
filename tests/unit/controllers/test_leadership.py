"""A term and the process end together, whatever ends the term."""

import threading
import time
from collections.abc import Callable

import pytest

from provisioner.controllers.leadership import Leadership
from provisioner.kube.client import Client
from provisioner.kube.errors import ConnectionFailed
from provisioner.kube.lease import LeaderElector, LostLease, Term
from provisioner.kube.resources import CONFIGMAPS
from provisioner.support.clock import SystemClock
from tests.support.eventually import eventually
from tests.support.kube import FakeAnswer, FakeApi, Script, Sent, ok, thing
from tests.unit.kube.test_lease import LeaseServer

LEASE, RENEW = 1.5, 0.8


class Doomed:
    """The process, which notes what would have ended it."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.why = ""
        self.alarms: list[float] = []

    def end(self, why: str) -> None:
        self.why = self.why or why
        self.ended.set()

    def end_in(self, seconds: float) -> None:
        self.alarms.append(seconds)


class Stage:
    """One candidate and a server with one Lease, in real time."""

    def __init__(self, begin: Callable[[], None] = lambda: None) -> None:
        clock = SystemClock()
        self.server = LeaseServer()
        self.respond: Callable[[Sent], Script] = self.server.respond
        self.api = FakeApi(respond=lambda sent: self.respond(sent), clock=clock)
        self.term = Term()
        self.client = Client(self.api, clock, self.term)
        self.process = Doomed()
        elector = LeaderElector(
            Client(self.api, clock),
            "lead",
            "ns",
            "me",
            clock,
            lease_duration=LEASE,
            renew_deadline=RENEW,
            retry_period=0.05,
        )
        self.leadership = Leadership(elector, self.term, self.client, begin, self.process, clock)

    def leads(self) -> bool:
        return self.term.left() > 0

    def start(self) -> "Stage":
        self.leadership.start()
        eventually(self.leads, "it leads")
        return self


def test_stop_gives_the_lease_back_and_ends_nothing() -> None:
    stage = Stage().start()
    stage.leadership.stop()
    assert stage.server.holder == ""
    assert not stage.process.ended.is_set()
    assert stage.process.alarms[-1] == 0, "the kernel's timer is called off"
    with pytest.raises(LostLease):
        stage.client.create(CONFIGMAPS, thing("a"), "ns")


def test_before_it_leads_nothing_can_be_written() -> None:
    stage = Stage()
    stage.server.lease = {"metadata": {}, "spec": {"holderIdentity": "other", "leaseDurationSeconds": 60}}
    stage.leadership.start()
    time.sleep(0.3)
    with pytest.raises(LostLease, match="not the leader"):
        stage.client.create(CONFIGMAPS, thing("a"), "ns")
    stage.leadership.stop()
    assert not stage.process.ended.is_set()


ENDS: dict[str, Callable[[Stage], object]] = {
    "another holder": lambda stage: stage.server.touch(holderIdentity="other"),
    "a Lease that was deleted": lambda stage: setattr(stage.server, "lease", None),
    "a server that is gone": lambda stage: setattr(stage, "respond", lambda _: ConnectionFailed("refused")),
    "answers that are no Lease": lambda stage: setattr(stage, "respond", lambda _: ok({"spec": []})),
    "answers nested too deeply": lambda stage: setattr(stage, "respond", lambda _: FakeAnswer(data=b"[" * 5000)),
    "a fault of our own": lambda stage: setattr(stage, "respond", lambda _: RuntimeError("unforeseen")),
}


@pytest.mark.parametrize("happens", ENDS.values(), ids=ENDS)
def test_any_other_end_of_the_election_ends_the_process(happens: Callable[[Stage], object]) -> None:
    stage = Stage().start()
    happens(stage)
    assert stage.process.ended.wait(5)
    assert not stage.leads()


def test_when_the_fence_falls_the_process_ends_though_the_election_hangs() -> None:
    hanging = threading.Event()

    def hang(sent: Sent) -> Script:
        hanging.wait(20)
        return ConnectionFailed("cut")

    stage = Stage().start()
    stage.respond = hang
    assert stage.process.ended.wait(5)
    assert "not renewed in time" in stage.process.why
    hanging.set()


def test_the_kernel_is_told_to_end_the_process_before_another_may_lead() -> None:
    stage = Stage().start()
    eventually(lambda: len(stage.process.alarms) >= 2, "the timer is set anew while it leads")
    stage.leadership.stop()
    armed = [alarm for alarm in stage.process.alarms if alarm]
    margin = (LEASE - RENEW) / 2
    assert all(margin < alarm <= RENEW + margin for alarm in armed)


def test_an_election_that_raises_what_no_handler_takes_ends_the_process() -> None:
    def leave(sent: Sent) -> Script:
        raise SystemExit  # no Exception

    stage = Stage()
    stage.respond = leave
    stage.leadership.start()
    assert stage.process.ended.wait(5)
    assert "leader election failed" in stage.process.why


def test_a_start_that_fails_ends_the_process_and_the_fence_is_down_before() -> None:
    down: list[bool] = []

    def begin() -> None:
        raise OSError("no such region")

    class Looking(Doomed):
        def end(self, why: str) -> None:
            down.append(not stage.leads())
            super().end(why)

    stage = Stage(begin)
    stage.process = stage.leadership._process = Looking()
    stage.leadership.start()
    assert stage.process.ended.wait(5)
    assert "failed to start the controllers: no such region" in stage.process.why
    assert down[0]


def test_a_lease_is_left_to_run_out_while_a_write_does_not_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.controllers.leadership.LAST_WRITES_SECONDS", 0.3)
    answered = threading.Event()

    def respond(sent: Sent) -> Script:
        if "configmaps" in sent.path:
            answered.wait(20)
            return ok(thing("a"))
        return stage.server.respond(sent)

    stage = Stage()
    stage.respond = respond
    stage.start()
    writer = threading.Thread(target=lambda: stage.client.create(CONFIGMAPS, thing("a"), "ns"))
    writer.start()
    eventually(lambda: stage.client.writing, "a write is under way")
    stage.leadership.stop()
    assert stage.server.holder == "me"
    answered.set()
    writer.join(5)


def test_no_write_is_sent_after_the_fence_has_fallen() -> None:
    """Writers hammer away while nothing ends the process: the fence alone stops each of them."""
    sent_by_the_fallen: list[float] = []

    def respond(sent: Sent) -> Script:
        if "configmaps" not in sent.path:
            return ConnectionFailed("refused") if cut.is_set() else stage.server.respond(sent)
        if fallen.is_set():
            sent_by_the_fallen.append(sent.at)
        return ok(thing("a"))

    def write() -> None:
        while True:
            try:
                stage.client.create(CONFIGMAPS, thing("a"), "ns")
            except LostLease:
                return

    cut, fallen = threading.Event(), threading.Event()
    stage = Stage()
    stage.respond = respond
    stage.start()
    writers = [threading.Thread(target=write, daemon=True) for _ in range(4)]
    for writer in writers:
        writer.start()
    cut.set()
    for writer in writers:
        writer.join(30)
        assert not writer.is_alive()
    fallen.set()
    assert stage.process.ended.wait(10)
    write()
    assert sent_by_the_fallen == []
