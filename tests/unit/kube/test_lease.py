import json
import threading
from collections.abc import Callable

import pytest

from provisioner.kube.client import Client
from provisioner.kube.errors import ConnectionFailed
from provisioner.kube.lease import Fence, LeaderElector, LeaseTerm, LostLease, TermEnding
from provisioner.kube.limits import TokenBucket
from tests.support.clock import FakeClock
from tests.support.kube import FakeAnswer, FakeApi, Script, Sent, nested, ok, refusal


class LeaseServer:
    """One Lease with optimistic locking; `fail` makes the next requests fail."""

    def __init__(self) -> None:
        self.lease: dict[str, dict[str, object]] | None = None
        self.version = 0
        self.fail: Script | None = None
        self.only_by_name = False  # a role that names the Lease allows no POST

    def respond(self, sent: Sent) -> Script:
        if self.fail is not None:
            return self.fail
        if sent.method == "POST" and self.only_by_name:
            return refusal(403, "Forbidden")
        applied = sent.content_type.startswith("application/apply-patch")
        if sent.method == "POST" or applied:
            if self.lease is not None:
                return refusal(409, "Conflict" if applied else "AlreadyExists")  # another manager owns its holder
            assert sent.query.get("force", "false") == "false"
            self.lease = {"metadata": dict(sent.body["metadata"]), "spec": dict(sent.body["spec"])}
            return self._written()
        if self.lease is None:
            return refusal(404)
        if sent.method == "PATCH":
            if sent.body["metadata"]["resourceVersion"] != str(self.version):
                return refusal(409, "Conflict")
            annotations = dict(self.lease["metadata"].get("annotations") or {})  # type: ignore[call-overload]
            annotations.update(sent.body["metadata"].get("annotations") or {})
            self.lease["metadata"]["annotations"] = {
                name: value for name, value in annotations.items() if value is not None
            }
            self.lease["spec"].update(sent.body["spec"])
            return self._written()
        return self._answer()

    def touch(self, **spec: object) -> None:
        """Somebody else writes."""
        assert self.lease is not None
        self.lease["spec"].update(spec)
        self._written()

    def _written(self) -> FakeAnswer:
        self.version += 1
        return self._answer()

    def _answer(self) -> FakeAnswer:
        assert self.lease is not None
        body = json.loads(json.dumps(self.lease))
        body["metadata"]["resourceVersion"] = str(self.version)
        return ok(body)

    @property
    def holder(self) -> object:
        return self.lease["spec"]["holderIdentity"] if self.lease is not None else None


class SteppingSignal(threading.Event):
    """A stop signal on which waiting moves the clock; `script` runs after each wait."""

    def __init__(self, clock: FakeClock, script: Callable[[int], None]) -> None:
        super().__init__()
        self.clock, self.script = clock, script
        self.waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        if not self.is_set():
            self.clock.advance(timeout or 0.0)
            self.waits += 1
            assert self.waits < 1000, "the elector never stops"
            self.script(self.waits)
        return self.is_set()


class World:
    """A server with one lease, a clock, and one elector; the test's script is called after each of its waits."""

    def __init__(self, script: Callable[[int], None] = lambda wait: None, **annotations: str) -> None:
        self.clock = FakeClock()
        self.server = LeaseServer()
        self.signal = SteppingSignal(self.clock, script)
        self.api = FakeApi(respond=self.server.respond, clock=self.clock)
        self.elector = LeaderElector(Client(self.api, self.clock), "lead", "ns", "me", self.clock, stopping=self.signal)
        self.elector.annotate(annotations)
        self.fences: list[Fence] = []
        self.losses: list[bool] = []
        self.ending: TermEnding | None = None
        self._started = threading.Event()

    def run(self) -> "World":
        """One term; `losses` holds whether the fence still stood when the loss was told."""
        self.ending = self.elector.run(self._on_started)
        if self.ending is TermEnding.LOST:
            self.losses.append(self.fence().valid)
        return self

    def fence(self) -> Fence:
        assert self._started.wait(5)
        return self.fences[0]

    def held_by(self, holder: str, duration: int = 15) -> None:
        self.server.lease = {
            "metadata": {},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": duration, "renewTime": "t0"},
        }
        self.server.version = 1

    def _on_started(self, fence: Fence) -> None:
        self.fences.append(fence)
        self._started.set()


def stop_after(waits: int, also: Callable[["World"], None] = lambda world: None) -> "World":
    def script(wait: int) -> None:
        if wait == waits:
            also(world)
            world.elector.stop()

    world = World(script)
    return world


def test_a_lease_that_nobody_has_is_made_and_given_back_at_the_end() -> None:
    held: list[object] = []
    world = stop_after(3, lambda world: held.append(world.server.holder)).run()
    assert held == ["me"]
    assert world.server.holder == ""
    assert world.server.lease is not None
    assert world.server.lease["spec"]["leaseDurationSeconds"] == 1
    assert not world.fence().valid
    assert world.losses == []


def test_an_annotation_that_comes_later_is_on_the_lease_with_the_next_renewal_that_succeeds() -> None:
    """The address for reports waits for its certificates."""
    seen: list[object] = []

    def script(wait: int) -> None:
        if wait == 2:
            world.elector.annotate({"b": "2"})
            world.server.fail = ConnectionFailed("cut")
        if wait == 3:
            world.server.fail = None
        if wait == 6:
            world.elector.stop()
        assert world.server.lease is not None
        seen.append(world.server.lease["metadata"].get("annotations"))

    world = World(script, a="1")
    world.run()
    assert seen == [{"a": "1"}] * 3 + [{"a": "1", "b": "2"}] * 3
    patches = [sent.body["metadata"].get("annotations") for sent in world.api.sent if sent.method == "PATCH"]
    assert patches.count({"a": "1", "b": "2"}) == 2, "one that failed, and one that did not"


def test_where_leases_may_be_made_by_their_name_only_it_is_applied() -> None:
    held: list[object] = []
    world = stop_after(3, lambda world: held.append(world.server.holder))
    world.server.only_by_name = True
    world.run()
    assert held == ["me"]


def test_annotations_are_there_while_it_leads_and_gone_afterwards() -> None:
    seen: list[object] = []

    def script(wait: int) -> None:
        assert world.server.lease is not None
        seen.append(world.server.lease["metadata"].get("annotations"))
        world.elector.stop()

    world = World(script, **{"dovetail.dev/reports": "10.0.0.7:8444"})
    world.run()
    assert seen == [{"dovetail.dev/reports": "10.0.0.7:8444"}]
    assert world.server.lease is not None
    assert world.server.lease["metadata"]["annotations"] == {}


def test_a_lease_that_is_renewed_by_another_is_never_taken() -> None:
    def script(wait: int) -> None:
        world.server.touch(renewTime=f"t{wait}")
        if wait == 100:
            world.elector.stop()

    world = World(script)
    world.held_by("other")
    world.run()
    assert (world.server.holder, world.fences, world.elector.holder) == ("other", [], "other")


def test_a_lease_that_is_not_renewed_is_taken_after_its_own_duration_and_not_before() -> None:
    taken: list[float] = []

    def script(wait: int) -> None:
        if world.server.holder == "me":
            taken.append(world.clock.monotonic())
            world.elector.stop()

    world = World(script)
    world.held_by("other", duration=30)
    world.run()
    assert 30 <= taken[0] - 2 <= 32  # the first sight was at 0, it looks every 2 s, and the script runs one wait later
    assert world.server.lease is not None
    assert world.server.lease["spec"]["leaseTransitions"] == 1


def test_a_lease_that_was_given_back_is_taken_at_once() -> None:
    world = stop_after(1)
    world.held_by("")
    world.run()
    assert world.fences != []


def test_its_own_lease_of_before_a_restart_is_taken_at_once_and_is_no_transition() -> None:
    world = stop_after(1)
    world.held_by("me")
    world.run()
    assert world.fences != []
    assert world.server.lease is not None
    assert world.server.lease["spec"]["leaseTransitions"] == 0


def test_while_it_is_renewed_the_fence_stands() -> None:
    valid: list[bool] = []

    def script(wait: int) -> None:
        valid.append(world.fence().valid)
        if wait == 50:
            world.elector.stop()

    world = World(script)
    world.run()
    assert valid == [True] * 50
    assert world.server.lease is not None


OUTAGES = {
    "refused connections": ConnectionFailed("refused"),
    "a server that hangs up": ConnectionFailed("reset", maybe_applied=True),
    "a server at fault": refusal(500),
    "an overloaded server": refusal(429),
    "a rule that was taken away": refusal(403),
    "an answer that is no JSON": FakeAnswer(data=b"<html>"),
    "an answer that is no Lease": FakeAnswer(data=b'{"spec": {"leaseDurationSeconds": "soon"}}'),
    "an answer that is nothing but depth": FakeAnswer(data=b"[" * 5000),
    "a fault of our own": RuntimeError("nobody thought of this"),
}


@pytest.mark.parametrize("failure", OUTAGES.values(), ids=OUTAGES)
def test_when_renewal_fails_the_fence_falls_before_anybody_else_can_lead(failure: Script) -> None:
    last_good: list[float] = []
    fell: list[float] = []

    def script(wait: int) -> None:
        if wait == 3:
            last_good.append(world.clock.monotonic() - 2)  # the renewal after the second wait
            world.server.fail = failure
        if not world.fence().valid:
            fell.append(world.clock.monotonic())

    world = World(script)
    world.run()
    assert world.losses == [False]
    assert fell[0] - last_good[0] < 15, "others wait 15 s from our last renewal"
    assert fell[0] - last_good[0] >= 10, "a short outage costs nothing"


@pytest.mark.parametrize("failure", OUTAGES.values(), ids=OUTAGES)
def test_a_candidate_goes_on_trying_whatever_it_is_told(failure: Script) -> None:
    def script(wait: int) -> None:
        world.server.fail = None if wait >= 5 else failure
        if wait == 8:
            world.elector.stop()

    world = World(script)
    world.server.fail = failure
    assert world.run().ending is TermEnding.STOPPED
    assert len(world.fences) == 1


def test_a_lease_nested_too_deeply_is_read_all_the_same() -> None:
    def deepen(sent: Sent) -> Script:
        answer = world.server.respond(sent)
        assert isinstance(answer, FakeAnswer)
        return FakeAnswer(data=answer.data[:-1] + b', "x": ' + nested(1000) + b"}") if answer.status == 200 else answer

    world = stop_after(30)
    world.api.respond = deepen
    assert world.run().ending is TermEnding.STOPPED
    assert (world.losses, world.server.holder) == ([], "")


def test_a_start_that_fails_ends_the_term_gives_the_lease_back_and_can_be_tried_again() -> None:
    started: list[bool] = []
    fell = threading.Event()

    def start(fence: Fence) -> None:
        started.append(fence.valid)
        if len(started) == 1:
            world.fences.append(fence)
            raise OSError("no such file")

    def script(wait: int) -> None:
        if len(started) < 2:
            threading.Event().wait(0.05)  # the start has a thread of its own
        if len(started) == 1 and world.fences and not world.fences[0].valid:
            fell.set()
        if len(started) == 2:
            world.elector.stop()

    world = World(script)
    assert world.elector.run(start) is TermEnding.FAILED
    assert fell.is_set()
    assert world.server.holder == ""
    assert world.elector.run(start) is TermEnding.STOPPED
    assert started == [True, True]


def test_a_lease_is_not_given_back_while_a_write_may_be_under_way() -> None:
    def script(wait: int) -> None:
        if wait == 3:
            world.elector.stop(release=False)

    world = World(script)
    assert world.run().ending is TermEnding.STOPPED
    assert world.server.holder == "me"
    assert not world.fence().valid


def test_a_term_is_the_fence_under_way() -> None:
    clock = FakeClock()
    term = LeaseTerm()
    with pytest.raises(LostLease, match="not the leader"):
        term.check()
    assert term.left() == 0
    term.begin(Fence(clock, 10))
    term.check()
    assert term.left() == 10
    clock.advance(10)
    with pytest.raises(LostLease, match="no longer the leader"):
        term.check()
    term.begin(Fence(clock, 30))
    term.check()
    term.close()
    with pytest.raises(LostLease):
        term.check()
    assert term.left() == 20, "answers are waited for"
    term.end()
    with pytest.raises(LostLease):
        term.check()
    assert term.left() == 0
    term.begin(Fence(clock, 40))
    term.check()


def test_a_fence_that_was_brought_down_is_not_moved_by_a_renewal_that_comes_late() -> None:
    clock = FakeClock()
    fence = Fence(clock, 10)
    fence.fall()
    fence.extend(100)
    assert not fence.valid


def test_a_term_that_is_never_renewed_ends_as_early() -> None:
    fell: list[float] = []

    def script(wait: int) -> None:
        world.server.fail = refusal(503)
        if not world.fence().valid:
            fell.append(world.clock.monotonic())

    world = World(script)
    world.run()
    assert 10 <= fell[0] < 15, "others wait 15 s from the moment at which it took the lease"


def test_a_short_outage_costs_nothing() -> None:
    def script(wait: int) -> None:
        world.server.fail = refusal(503) if 3 <= wait <= 5 else None
        if wait == 30:
            assert world.fence().valid
            world.elector.stop()

    world = World(script)
    world.run()
    assert world.losses == []


def test_another_holder_ends_the_term_at_once() -> None:
    def script(wait: int) -> None:
        if wait == 3:
            world.server.touch(holderIdentity="other")

    world = World(script)
    world.run()
    assert (world.losses, world.elector.holder, world.signal.waits) == ([False], "other", 3)
    assert world.server.holder == "other", "what another holds is not given back"


def test_a_lease_that_was_deleted_ends_the_term() -> None:
    def script(wait: int) -> None:
        if wait == 3:
            world.server.lease = None

    world = World(script)
    world.run()
    assert world.losses == [False]


def test_a_lease_that_is_deleted_while_another_leads_is_made_when_its_time_is_over() -> None:
    """The other hears of it with its next renewal, and writes until then."""
    held: list[object] = []

    def script(wait: int) -> None:
        held.append(world.server.holder)
        if wait == 2:
            world.server.lease = None
        if wait == 12:
            world.elector.stop()

    world = World(script)
    world.held_by("other")
    world.run()
    assert held == ["other"] * 2 + [None] * 6 + ["me"] * 4


def test_an_annotation_written_by_somebody_else_costs_nothing() -> None:
    def script(wait: int) -> None:
        if wait == 3:
            world.server.touch()
        if wait == 10:
            world.elector.stop()

    world = World(script)
    world.run()
    assert world.losses == []
    assert world.signal.waits == 10


def test_a_paused_process_knows_at_once_that_its_term_is_over() -> None:
    def script(wait: int) -> None:
        if wait == 3:
            world.clock.advance(60)  # SIGSTOP, SIGCONT
            assert not world.fence().valid
            with pytest.raises(LostLease):
                world.fence().check()

    world = World(script)
    world.run()
    assert world.losses == [False]


def test_a_fallen_fence_never_stands_again() -> None:
    clock = FakeClock()
    fence = Fence(clock, 10)
    fence.extend(20)
    clock.advance(15)
    assert fence.valid
    clock.advance(5)
    fence.extend(100)
    assert not fence.valid
    assert repr(fence) == "<Fence fallen>"


def test_times_that_would_let_two_lead_are_refused() -> None:
    world = World()
    with pytest.raises(ValueError, match="renew deadline 20 < lease duration 15"):
        LeaderElector(Client(world.api, world.clock), "lead", "ns", "me", world.clock, renew_deadline=20)


def test_renewals_go_ahead_of_the_rate_limit() -> None:
    world = stop_after(5)
    world.api.limiter = TokenBucket(0.001, 1, world.clock)
    world.api.limiter.take()
    world.run()
    assert world.losses == []
    assert world.clock.slept == []
