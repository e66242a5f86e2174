"""Every edge between the states of a command's record, and the edges that must not be there: the real queue over a small API server, in many orders."""

import itertools
import random
from collections.abc import Callable, Iterable
from typing import Any, Final

import pytest

from provisioner.apis.command import command_on
from provisioner.disruption.commands.queue import BUDGET_SECONDS
from provisioner.disruption.controller import METHODS, Method
from provisioner.disruption.proposal import Proposal
from provisioner.disruption.view import DisruptionView, MethodAnswer
from tests.interleaving.edges import COMMAND_EDGES, Edge, command_state
from tests.support.cluster import pod
from tests.support.disrupting import Make, staged
from tests.support.kube import FakeAnswer, Sent

STATES: Final = sorted({state for edge in COMMAND_EDGES for state in edge})
HOLDER, OTHER = "a", "b"
COMMITTED, DELETING, GONE = "committed", "deleting", "none"
BEGINS, COMES_UP, FAILS = "a pass", "its replacement comes up", "its replacement is deleted"
PASSES = "a moment passes"
UNREADABLE, READABLE = "pods cannot be listed", "pods can be listed"
REFUSES, TAKES = "the API server refuses writes of its other candidate", "the API server takes them again"
DELETES, OTHER_DELETES = "a user deletes its holder", "a user deletes its other candidate"
SOON_DELETES = "a user deletes its holder just before the next write of it"
ENDS, OTHER_ENDS = "its holder is gone", "its other candidate is gone"
ONE, TWO = "of one candidate with a replacement", "of two candidates"
WAYS: Final[dict[Edge, tuple[str, tuple[str, ...]]]] = {
    (GONE, COMMITTED): (ONE, (BEGINS,)),
    (GONE, "committed, going"): (ONE, (SOON_DELETES, BEGINS)),
    ("committed, going", "deleting, going"): (TWO, (UNREADABLE, BEGINS, SOON_DELETES, READABLE, PASSES)),
    (COMMITTED, GONE): (ONE, (BEGINS, FAILS)),
    (COMMITTED, DELETING): (TWO, (UNREADABLE, BEGINS, REFUSES, READABLE, PASSES)),
    (COMMITTED, "committed, going"): (ONE, (BEGINS, COMES_UP)),
    (DELETING, "deleting, going"): (TWO, (BEGINS,)),
    ("committed, going", GONE): (ONE, (BEGINS, COMES_UP, ENDS)),
    ("deleting, going", GONE): (TWO, (BEGINS, OTHER_ENDS, ENDS)),
}
"""How a command comes to go along each edge."""
STEPS = 4


def together(view: DisruptionView) -> MethodAnswer:
    """Every node that no command has, at once."""
    free = tuple(sorted(node.key.name for node in view.snapshot.nodes if not node.deleting and node.initialized))
    return MethodAnswer((Proposal("Underutilized", "multi", free),)) if len(free) > 1 else MethodAnswer()


KINDS: Final = {
    ONE: tuple(one for one in METHODS if one.name == "drift"),
    TWO: (Method("multi", "Underutilized", together),),
}


NODES: Final = {ONE: (HOLDER,), TWO: (HOLDER, OTHER)}


def nothing() -> None:
    """What happens as a rule."""


class Play:
    """A command and everything that leads it from state to state."""

    def __init__(self, make: Make, kind: str) -> None:
        self.stage = stage = make(*NODES[kind], methods=KINDS[kind], after="Never")
        if kind == ONE:
            stage.drifted(HOLDER, pod("web", cpu="3", ready=True))
        self.seen: list[Edge] = []
        self.next_write: Callable[[], object] = nothing
        self._store, self._answer = stage.server._store, stage.server.api.respond
        stage.server._store = self._noted  # type: ignore[method-assign]
        stage.server.api.respond = self._answered

    def state(self) -> str:
        wire = self.stage.server.objects.get(("nodeclaims", HOLDER))
        record = command_on(self.stage.server.claim(HOLDER)) if wire is not None else None
        return command_state(record.id, record.phase, wire) if record is not None else GONE

    def _noted(self, kind: str, name: str, wire: Any) -> Any:
        before = self.state()
        stored = self._store(kind, name, wire)
        self._note(before)
        return stored

    def _note(self, before: str) -> None:
        if (after := self.state()) != before:
            self.seen.append((before, after))

    def _answered(self, sent: Sent) -> FakeAnswer | Exception:
        if sent.method != "GET" and sent.path.endswith(f"/nodeclaims/{HOLDER}"):
            happens, self.next_write = self.next_write, nothing
            happens()
        assert self._answer is not None
        return self._answer(sent)

    def moves(self) -> dict[str, Callable[[], object]]:
        """Everything that may happen to it, by name."""
        server = self.stage.server
        return {
            BEGINS: self.stage.disruption.run_once,
            PASSES: lambda: self.stage.world.clock.advance(BUDGET_SECONDS),
            COMES_UP: self.come_up,
            FAILS: self.fail,
            UNREADABLE: lambda: server.refuse.update(pods=500),
            READABLE: lambda: server.refuse.pop("pods", None),
            REFUSES: lambda: server.refuse.update({OTHER: 500}),
            TAKES: lambda: server.refuse.pop(OTHER, None),
            DELETES: lambda: self.delete(HOLDER),
            OTHER_DELETES: lambda: self.delete(OTHER),
            SOON_DELETES: lambda: setattr(self, "next_write", lambda: self.delete(HOLDER)),
            ENDS: lambda: self.end(HOLDER),
            OTHER_ENDS: lambda: self.end(OTHER),
        }

    def go(self, moves: Iterable[str]) -> list[Edge]:
        """What happens, one after another, and what the queue does about it; the edges that the command goes along."""
        known = self.moves()
        for move in moves:
            known[move]()
            for name in (HOLDER, OTHER):
                # as a watch does: what failed is not hastened, or it would be given up after eight moves instead of some 20 s
                self.stage.commands.queue.offer(name)
            self.stage.settle()
        return self.seen

    def delete(self, name: str) -> None:
        if self.stage.server.has("nodeclaims", name):
            self.stage.server._delete("nodeclaims", name, self.stage.server.objects["nodeclaims", name])

    def end(self, name: str) -> None:
        """What is being deleted is gone."""
        if ("nodeclaims", name) in self.stage.server.objects and not self.stage.server.has("nodeclaims", name):
            before, cluster = self.state(), self.stage.world.cluster
            del self.stage.server.objects["nodeclaims", name]
            self._note(before)
            cluster.claim_changed(cluster.claim(name), None)

    def come_up(self) -> None:
        for name in self.stage.replacements():
            self.stage.initialize(name)

    def fail(self) -> None:
        for name in self.stage.replacements():
            self.delete(name)
        self.stage.disruption.run_once()


@pytest.fixture(scope="module")
def seen() -> set[Edge]:
    """Every edge that commands went along: on all of the ways, then by each move, and then wherever they went on from there."""
    found: set[Edge] = set()
    chance = random.Random(0)
    with staged() as make:
        moves = list(Play(make, ONE).moves())
        for (kind, way), move in itertools.product(WAYS.values(), moves):
            found.update(Play(make, kind).go((*way, move, *chance.choices(moves, k=STEPS))))
    return found


@pytest.mark.parametrize("edge", COMMAND_EDGES, ids=" -> ".join)
def test_there_is_a_way_along_every_edge(edge: Edge) -> None:
    kind, way = WAYS[edge]
    with staged() as make:
        assert edge in Play(make, kind).go(way)


@pytest.mark.parametrize(
    "edge", [one for one in itertools.permutations(STATES, 2) if one not in COMMAND_EDGES], ids=" -> ".join
)
def test_there_is_no_way_along_any_other(edge: Edge, seen: set[Edge]) -> None:
    assert edge not in seen
