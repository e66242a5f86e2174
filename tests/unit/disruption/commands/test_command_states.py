"""Every edge between the states of a command's record, and the edges that must not be there: the real queue over an API server in memory, in many orders."""

import itertools
import random
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import pytest

from provisioner.apis.command import command_on
from provisioner.apis.karpenter import NodeClaim
from provisioner.disruption.commands.queue import BUDGET_SECONDS
from provisioner.disruption.controller import METHODS, Method
from provisioner.disruption.proposal import Proposal
from provisioner.disruption.view import DisruptionView, MethodAnswer
from provisioner.simulator.api_server import ServerChange, Wire
from tests.interleaving.edges import COMMAND_EDGES, Edge, command_state
from tests.support.cluster import pod
from tests.support.disrupting import Make, staged

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


def record_state(wire: Wire | None) -> str:
    """How far the command has come whose record a NodeClaim holds."""
    record = command_on(msgspec.convert(wire, NodeClaim, strict=False)) if wire is not None else None
    return command_state(record.id, record.phase, wire) if record is not None else GONE


class Play:
    """A command and everything that leads it from state to state."""

    def __init__(self, make: Make, kind: str) -> None:
        self.stage = stage = make(*NODES[kind], methods=KINDS[kind], after="Never")
        if kind == ONE:
            stage.drifted(HOLDER, pod("web", cpu="3", ready=True))
        self.seen: list[Edge] = []
        self._heard, stage.server.told = stage.server.told, self._noted

    def _noted(self, change: ServerChange) -> None:
        if (change.plural, change.name) == ("nodeclaims", HOLDER):
            edge = record_state(change.before), record_state(change.after)
            self.seen += [edge] if edge[0] != edge[1] else []
        self._heard(change)

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
            SOON_DELETES: lambda: server.meanwhile.update({HOLDER: lambda: self.delete(HOLDER)}),
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
        self.stage.server.remove("nodeclaims", name)

    def end(self, name: str) -> None:
        """What is being deleted is gone."""
        server = self.stage.server
        if server.get("nodeclaims", name) is not None and not server.has("nodeclaims", name):
            server.drop("nodeclaims", name)

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
