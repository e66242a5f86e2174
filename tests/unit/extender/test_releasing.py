"""Refused pods are woken as soon as they would be let in, once."""

import threading
from typing import Any

import pytest

from extender.board import Board
from extender.nodes import DISRUPTED_SECONDS
from extender.plan import NO_STANDING, NodeStanding
from extender.refusals import MAX_KINDS, MAX_NODES, MAX_PODS, Refusals
from extender.releasing import Releaser
from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.kube.errors import ApiError, NotFound
from provisioner.state.promises import VACANT_SECONDS
from provisioner.support import metrics
from tests.support.clock import FakeClock
from tests.support.eventually import eventually
from tests.support.extender import Watch, World, cpus, entry, member


class Server:
    """Takes patches of nodes; `fail` is raised by the next one."""

    def __init__(self) -> None:
        self.touched: list[str] = []
        self.bodies: list[Any] = []
        self.fail: ApiError | None = None

    def patch(self, resource: object, name: str, body: object) -> Node:
        if self.fail is not None:
            error, self.fail = self.fail, None
            raise error
        self.touched.append(name)
        self.bodies.append(body)
        return Node()


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.board = Board(self.clock)
        self.watch = Watch()
        self.board.depend_on([self.watch])
        self.world = World()
        self.world.table = self.board.table
        self.world.now = 0.0
        self.server = Server()
        self.releaser = Releaser(self.board, self.server)

    def refuse(self, uid: str = "x") -> None:
        """A stranger that waits was refused on n1."""
        pod = member(uid, owner="other", klass="other")
        self.world.pods(pod)
        verdict = self.world.ask(pod, "n1")
        assert verdict.refused
        self.board.refusals.record(pod, NO_STANDING, verdict.refused)


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.releaser.tick()  # nothing was held when it began
    made.world.pods(member("a"))
    made.world.planned_node("n1", entry("a"), cores=1)
    return made


def gone(bench: Bench) -> None:
    """The planned pod is gone, and its successor was waited for."""
    bench.world.table.drop_pod("a")
    assert bench.releaser.tick() == []
    bench.clock.advance(VACANT_SECONDS)


RELEASES = {
    "the time is over": lambda bench: bench.clock.advance(120),
    "the planned pod is gone, and no successor came": lambda bench: gone(bench),
    "the planned pod found another place": lambda bench: bench.world.bind(member("a"), "far"),
    "the claim is being deleted": lambda bench: bench.world.claim("c-n1", entry("a"), node="n1", leaving=True),
    "the plan was taken off": lambda bench: bench.world.claim("c-n1", node="n1"),
    "the node has more room": lambda bench: bench.world.node("n1", 2),
}


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
def test_a_refused_pod_is_woken_once_when(bench: Bench, release: Any) -> None:
    bench.refuse()
    assert bench.releaser.tick() == []
    release(bench)
    assert bench.releaser.tick() == ["n1"]
    assert bench.releaser.tick() == []
    assert bench.server.touched == ["n1"]
    (stamp,) = bench.server.bodies[0]["metadata"]["annotations"].items()
    assert stamp[0] == names.HOLD_RELEASED_ANNOTATION
    assert stamp[1].startswith("2026-")


@pytest.mark.parametrize("called_off", [True, False], ids=["called off", "never seen to taint"])
def test_a_pod_that_a_command_kept_off_is_woken_when_it_is(bench: Bench, called_off: bool) -> None:
    bench.world.node("n2", 4)
    bench.world.claim("c-n2", node="n2", disrupted=True)
    pod = member("x", owner="other", klass="other")
    bench.world.pods(pod)
    verdict = bench.world.ask(pod, "n2")
    bench.board.refusals.record(pod, NO_STANDING, verdict.refused)
    assert bench.releaser.tick() == []
    if called_off:
        bench.world.claim("c-n2", node="n2")
    else:
        bench.clock.advance(DISRUPTED_SECONDS)
    assert bench.releaser.tick() == ["n2"]
    assert bench.releaser.tick() == []


def test_nothing_is_touched_for_a_node_that_planned_pods_filled(bench: Bench) -> None:
    bench.refuse()
    bench.world.bind(member("a"), "n1")
    assert bench.releaser.tick() == []
    bench.world.table.drop_pod("a")
    assert bench.releaser.tick() == ["n1"]


def test_nothing_is_touched_where_nobody_was_refused(bench: Bench) -> None:
    bench.clock.advance(200)
    assert bench.releaser.tick() == []


def test_nothing_is_touched_for_pods_that_do_not_wait_any_longer(bench: Bench) -> None:
    bench.refuse()
    bench.world.table.drop_pod("x")
    bench.clock.advance(200)
    assert bench.releaser.tick() == []
    assert len(bench.board.refusals) == 0


def test_nothing_is_touched_while_data_is_stale(bench: Bench) -> None:
    bench.refuse()
    bench.watch.synced.clear()
    bench.clock.advance(200)
    assert bench.releaser.tick() == []
    bench.watch.synced.set()
    assert bench.releaser.tick() == ["n1"]


def test_a_pod_that_waited_for_its_own_node_is_woken_when_that_fails(bench: Bench) -> None:
    bench.world.node("n1", 3)
    pod = member("b")
    bench.world.pods(pod)
    bench.world.claim("c2", entry("b"))
    verdict = bench.world.ask(pod, "n1")
    bench.board.refusals.record(pod, NodeStanding(coming="c2"), verdict.refused)
    assert bench.releaser.tick() == []
    bench.world.table.drop_claim("c2")
    assert bench.releaser.tick() == ["n1"]


def test_a_write_that_fails_is_repeated_and_a_node_that_is_gone_is_not(bench: Bench) -> None:
    bench.refuse()
    gone(bench)
    bench.server.fail = ApiError(500, "InternalError", "not now")
    assert bench.releaser.tick() == []
    assert bench.releaser.tick() == ["n1"]
    bench.world.pods(member("a"))
    bench.world.claim("c-n1", entry("a"), node="n1", born_at=1.0)
    bench.refuse("y")
    gone(bench)
    bench.server.fail = NotFound(404, "NotFound", "n1")
    assert bench.releaser.tick() == []
    assert bench.releaser.tick() == []


def test_what_was_held_when_we_began_is_released_too() -> None:
    """Whoever was here before us may have refused pods there."""
    bench = Bench()
    bench.world.pods(member("a"))
    bench.world.planned_node("n1", entry("a"), cores=1)
    assert bench.releaser.tick() == ["n1"], "who was refused by somebody before us asks again"
    assert bench.releaser.tick() == []
    bench.clock.advance(120)
    assert bench.releaser.tick() == ["n1"]
    assert bench.releaser.tick() == []


def test_pods_that_were_refused_before_a_restart_are_woken_though_the_reason_ended_meanwhile() -> None:
    """The node's plan is over, nothing is held: nobody would ever have touched it."""
    bench = Bench()
    bench.world.node("n1")
    bench.world.pods(member("x", owner="other", klass="other"))
    bench.watch.synced.clear()
    assert bench.releaser.tick() == [], "not before we know anything"
    bench.watch.synced.set()
    bench.server.fail = ApiError(500, "InternalError", "not now")
    assert bench.releaser.tick() == []
    assert bench.releaser.tick() == ["n1"]
    assert bench.releaser.tick() == []


def test_where_there_is_no_node_nobody_was_refused() -> None:
    bench = Bench()
    assert bench.releaser.tick() == []
    bench.world.node("n1")
    assert bench.releaser.tick() == []


def test_the_thread_starts_and_stops(bench: Bench) -> None:
    bench.releaser.poller.start()
    bench.releaser.poller.stop()
    eventually(lambda: "releaser" not in {one.name for one in threading.enumerate()}, "the thread ends", 10.0)


def test_refusals_are_bounded() -> None:
    refusals = Refusals()
    for number in range(MAX_KINDS + 5):
        refusals.record(member(f"x{number}", owner=f"o{number}"), NO_STANDING, [f"n{i}" for i in range(MAX_NODES + 10)])
    assert (len(refusals), refusals.forgotten) == (MAX_KINDS, 5)
    assert refusals.kinds()[0].owner == "o5"


def test_what_is_forgotten_is_counted_once(bench: Bench) -> None:
    def forgotten() -> float:
        return metrics.REGISTRY.get_sample_value("dovetail_extender_forgotten_refusals_total") or 0.0

    before = forgotten()
    for number in range(MAX_KINDS + 2):
        bench.board.refusals.record(member(f"x{number}", owner=f"o{number}"), NO_STANDING, ["n1"])
    for _ in range(2):
        bench.releaser.tick()
        assert forgotten() == before + 2


def test_more_pods_than_are_remembered_count_as_waiting() -> None:
    world = World()
    world.node("n1", 4)
    refusals = Refusals()
    for number in range(MAX_PODS + 1):
        refusals.record(member(f"x{number}", owner="o"), NO_STANDING, ["n1"])
    (kind,) = refusals.kinds()
    assert refusals.due(kind, world.table, world.now) == "n1"
    assert refusals.due(kind, world.table, world.now) == ""


def test_a_refused_pod_that_is_planned_there_later_is_woken() -> None:
    world = World()
    pod = member("x", owner="o", klass="o")
    world.pods(member("a"), pod)
    world.planned_node("n1", entry("a"), cores=1)
    refusals = Refusals()
    refusals.record(pod, NO_STANDING, ["n1"])
    (kind,) = refusals.kinds()
    assert refusals.due(kind, world.table, world.now) == ""
    world.claim("c-n1", entry("a"), entry("x", owner="o", klass="o"), node="n1")
    assert world.table.room.holds["n1"].needed(0) == cpus(2, pods=2)
    assert refusals.due(kind, world.table, world.now) == "n1"
