"""A term and the process end together, whatever ends the term."""

import contextlib
import http.server
import json
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from provisioner.kube.client import Client
from provisioner.kube.config import Api, ApiConnection, connect
from provisioner.kube.errors import ApiError, ConnectionFailed
from provisioner.kube.lease import LeaderElector, LeaseTerm, LostLease
from provisioner.kube.resources import CONFIGMAPS
from provisioner.kube.sending import SWEEP_SECONDS
from provisioner.operator.leadership import Leadership
from provisioner.support.clock import SystemClock
from tests.support.eventually import eventually
from tests.support.kube import FakeAnswer, FakeApi, Responder, Script, Sent, ok, refusal, thing
from tests.unit.kube.test_lease import LeaseServer
from tests.unit.kube.test_sending import kubeconfig

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


@contextlib.contextmanager
def over_loopback(respond: Responder, folder: Path) -> Iterator[ApiConnection]:
    """The real connection to a server that answers so."""
    lock = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do(self) -> None:
            url = urllib.parse.urlsplit(self.path)
            length = int(self.headers.get("content-length", "0"))
            body = json.loads(self.rfile.read(length)) if length else None
            kind = self.headers.get("content-type", "")
            sent = Sent(self.command, url.path, dict(urllib.parse.parse_qsl(url.query)), body, kind, clock.monotonic())
            if "configmaps" in sent.path:
                answer = respond(sent)
            else:
                with lock:
                    answer = respond(sent)
            assert isinstance(answer, FakeAnswer)
            with contextlib.suppress(OSError):
                self.send_response(answer.status)
                self.send_header("content-length", str(len(answer.data)))
                self.end_headers()
                self.wfile.write(answer.data)

        do_GET = do_POST = do_PATCH = do  # noqa: N815 - the names of BaseHTTPRequestHandler

    clock = SystemClock()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    serving.start()
    connection = connect(kubeconfig(folder / "kubeconfig", f"http://127.0.0.1:{server.server_port}"))
    try:
        yield connection
    finally:
        connection.close()
        server.shutdown()
        serving.join(10)
        server.server_close()


class Candidacy:
    """One candidate and a server with one Lease, in real time; `connected` makes the way to it."""

    def __init__(
        self, begin: Callable[[], None] = lambda: None, connected: Callable[[Responder], Api] | None = None
    ) -> None:
        clock = SystemClock()
        self.server = LeaseServer()
        self.respond: Callable[[Sent], Script] = self.server.respond
        self.api: Api = (
            connected(lambda sent: self.respond(sent))
            if connected is not None
            else FakeApi(respond=lambda sent: self.respond(sent), clock=clock)
        )
        self.term = LeaseTerm()
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

    def start(self) -> "Candidacy":
        self.leadership.start()
        eventually(self.leads, "it leads")
        return self


def test_stop_gives_the_lease_back_and_ends_nothing() -> None:
    stage = Candidacy().start()
    stage.leadership.stop()
    assert stage.server.holder == ""
    assert not stage.process.ended.is_set()
    assert stage.process.alarms[-1] == 0, "the kernel's timer is called off"
    with pytest.raises(LostLease):
        stage.client.create(CONFIGMAPS, thing("a"), "ns")


def test_before_it_leads_nothing_can_be_written() -> None:
    stage = Candidacy()
    stage.server.lease = {"metadata": {}, "spec": {"holderIdentity": "other", "leaseDurationSeconds": 60}}
    stage.leadership.start()
    time.sleep(0.3)
    with pytest.raises(LostLease, match="not the leader"):
        stage.client.create(CONFIGMAPS, thing("a"), "ns")
    stage.leadership.stop()
    assert not stage.process.ended.is_set()


ENDS: dict[str, Callable[[Candidacy], object]] = {
    "another holder": lambda stage: stage.server.touch(holderIdentity="other"),
    "a Lease that was deleted": lambda stage: setattr(stage.server, "lease", None),
    "a server that is gone": lambda stage: setattr(stage, "respond", lambda _: ConnectionFailed("refused")),
    "answers that are no Lease": lambda stage: setattr(stage, "respond", lambda _: ok({"spec": []})),
    "answers nested too deeply": lambda stage: setattr(stage, "respond", lambda _: FakeAnswer(data=b"[" * 5000)),
    "a fault of our own": lambda stage: setattr(stage, "respond", lambda _: RuntimeError("unforeseen")),
}


@pytest.mark.parametrize("happens", ENDS.values(), ids=ENDS)
def test_any_other_end_of_the_election_ends_the_process(happens: Callable[[Candidacy], object]) -> None:
    stage = Candidacy().start()
    happens(stage)
    assert stage.process.ended.wait(5)
    assert not stage.leads()


def test_when_the_fence_falls_the_process_ends_though_the_election_hangs() -> None:
    hanging = threading.Event()

    def hang(sent: Sent) -> Script:
        hanging.wait(20)
        return ConnectionFailed("cut")

    stage = Candidacy().start()
    stage.respond = hang
    assert stage.process.ended.wait(5)
    assert "not renewed in time" in stage.process.why
    hanging.set()


def test_the_kernel_is_told_to_end_the_process_before_another_may_lead() -> None:
    stage = Candidacy().start()
    eventually(lambda: len(stage.process.alarms) >= 2, "the timer is set anew while it leads")
    stage.leadership.stop()
    armed = [alarm for alarm in stage.process.alarms if alarm]
    assert len(armed) >= 2
    margin = (LEASE - RENEW) / 2
    assert all(margin < alarm <= RENEW + margin for alarm in armed)


def test_an_election_that_raises_what_no_handler_takes_ends_the_process() -> None:
    def leave(sent: Sent) -> Script:
        raise SystemExit  # no Exception

    stage = Candidacy()
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

    stage = Candidacy(begin)
    stage.process = stage.leadership._process = Looking()
    stage.leadership.start()
    assert stage.process.ended.wait(5)
    assert "failed to start the controllers: no such region" in stage.process.why
    assert down[0]


class Writer:
    """Writes once, in a thread of its own."""

    def __init__(self, stage: Candidacy) -> None:
        self.outcome: object = None
        self._stage = stage
        self.thread = threading.Thread(target=self._write, daemon=True)
        self.thread.start()

    def _write(self) -> None:
        try:
            self.outcome = self._stage.client.create(CONFIGMAPS, thing("a"), "ns").metadata.name
        except (ApiError, LostLease) as error:
            self.outcome = error


def held_writes(stage: Candidacy) -> tuple[threading.Event, threading.Event]:
    """Writes come to the server and get no answer: set once one came, and what lets them be answered."""
    came, answers = threading.Event(), threading.Event()

    def respond(sent: Sent) -> Script:
        if "configmaps" in sent.path:
            came.set()
            answers.wait(20)
            return ok(thing("a"))
        return stage.server.respond(sent)

    stage.respond = respond
    return came, answers


@pytest.fixture(params=["scripted", "real"])
def connected_stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Candidacy]:
    """Over a scripted connection, and over the real one, which cuts off what is not permitted any more."""
    with contextlib.ExitStack() as stack:
        real = request.param == "real"
        yield Candidacy(
            connected=(lambda respond: stack.enter_context(over_loopback(respond, tmp_path))) if real else None
        )


def test_a_lease_is_left_to_run_out_while_a_write_does_not_return(
    connected_stage: Candidacy, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = connected_stage
    monkeypatch.setattr("provisioner.operator.leadership.LAST_WRITES_SECONDS", 0.3)
    came, answered = held_writes(stage)
    stage.start()
    writer = Writer(stage)
    assert came.wait(5), "a write is under way"
    stage.leadership.stop()
    assert stage.server.holder == "me"
    answered.set()
    writer.thread.join(5)
    assert not writer.thread.is_alive()


def test_a_write_under_way_is_waited_for_when_it_stops_and_no_other_begins(connected_stage: Candidacy) -> None:
    stage = connected_stage
    came, answers = held_writes(stage)

    def refused() -> bool:
        try:
            stage.term.check()
        except LostLease:
            return True
        return False

    stage.start()
    writer = Writer(stage)
    assert came.wait(5)
    stopping = threading.Thread(target=stage.leadership.stop)
    stopping.start()
    eventually(refused, "no write begins")
    with pytest.raises(LostLease):
        stage.client.create(CONFIGMAPS, thing("b"), "ns")
    assert not answers.wait(3 * SWEEP_SECONDS), "nothing cuts it off meanwhile"
    assert stage.server.holder == "me"
    answers.set()
    stopping.join(10)
    writer.thread.join(5)
    assert (writer.outcome, stage.server.holder) == ("a", "")


UNANSWERED: dict[str, tuple[Script, object]] = {
    "cut after it was sent": (ConnectionFailed("cut", maybe_applied=True), "me"),
    "a gateway that waited in vain": (refusal(504), "me"),
    "never sent": (ConnectionFailed("refused"), ""),
    "a refusal": (refusal(409, "Conflict"), ""),
    "an eviction that several budgets forbid": (refusal(500), ""),
}


@pytest.mark.parametrize(("answer", "holder"), UNANSWERED.values(), ids=UNANSWERED)
def test_a_lease_is_left_to_run_out_after_a_write_without_an_answer(answer: Script, holder: str) -> None:
    stage = Candidacy()
    stage.respond = lambda sent: answer if "configmaps" in sent.path else stage.server.respond(sent)
    stage.start()
    writer = Writer(stage)
    writer.thread.join(20)
    assert isinstance(writer.outcome, ApiError)
    stage.leadership.stop()
    assert stage.server.holder == holder


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
    stage = Candidacy()
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
