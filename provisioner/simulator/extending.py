"""The scheduler extender in a simulated day: its own code, asked without HTTP, and told of every change at once."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from extender.answering import Answerer
from extender.board import Board
from extender.facts import claim_facts, decode_member, node_facts
from extender.protocol import MAX_SCORE, FilterResult, HostPriority, MetaVictims, PreemptionResult, Victim
from extender.releasing import TICK_SECONDS, Releaser
from provisioner.apis.core import Node
from provisioner.apis.reports import PodReport
from provisioner.kube.errors import NotFound
from provisioner.kube.resources import NODECLAIMS, NODES, Resource
from provisioner.simulator.api_server import ApiServer, ServerChange, Wire
from provisioner.simulator.virtual_time import Agenda, VirtualClock
from provisioner.values.message import Said

T = TypeVar("T")
WEIGHT: Final = 2
"""Of its scores, as manifests/scheduler sets it."""
_encode: Final = msgspec.json.Encoder().encode
_filtered: Final = msgspec.json.Decoder(FilterResult).decode
_scored: Final = msgspec.json.Decoder(list[HostPriority]).decode
_kept: Final = msgspec.json.Decoder(PreemptionResult).decode


class _Fresh:
    """Watches that are never late."""

    synced = threading.Event()
    synced.set()
    error = None

    def staleness(self) -> float:
        return 0.0

    def lag(self) -> float:
        return 0.0


class SimulatedExtender:
    """The extender beside kube-scheduler. One thread.

    Args:
        reported: takes reports of pods that it left without a node.
    """

    def __init__(
        self,
        server: ApiServer,
        clock: VirtualClock,
        agenda: Agenda,
        reported: Callable[[tuple[PodReport, ...]], None],
    ) -> None:
        self._server, self._agenda, self._reported = server, agenda, reported
        self._board = Board(clock)
        self._board.depend_on([_Fresh()])
        self._answerer = Answerer(self._board, self)
        self._releaser = Releaser(self._board, self)
        with self._board.lock:
            self._board.table.caught_up = True
            self._board.vetoes.begin(())
        agenda.after(TICK_SECONDS, self._tick)

    # ------------------------------------------------------------------ what it hears and writes

    def heard(self, change: ServerChange) -> None:
        """A change of any object."""
        match change.plural:
            case "pods":
                self._board.pod_changed(*_read(change, decode_member))
            case "nodes":
                self._board.node_changed(*_read(change, lambda data: node_facts(NODES.decode(data))))
            case "nodeclaims":
                at = self._board.timeline
                self._board.claim_changed(*_read(change, lambda data: claim_facts(NODECLAIMS.decode(data), at)))
            case _:
                pass

    def put(self, report: PodReport) -> None:
        """`Outbox`: the provisioner hears of it at once."""
        self._agenda.after(0.0, lambda: self._reported((report,)))

    def patch(self, resource: Resource[Node], name: str, body: object) -> Node:
        """`Patcher`: its only writes."""
        if not isinstance(body, dict) or self._server.get(resource.plural, name) is None:
            raise NotFound(404, "NotFound", Said(f"{resource.plural} {name} is not there"))
        return resource.decode(_encode(self._server.change(resource.plural, name, body)))

    def _tick(self) -> None:
        self._releaser.tick()
        self._agenda.after(TICK_SECONDS, self._tick)

    # ------------------------------------------------------------------ what it is asked

    def filtered(self, pod: Wire, nodes: Sequence[str]) -> list[str]:
        """Those of the nodes that a pod may have, in their order."""
        answer = _filtered(self._answerer.filter(_encode({"Pod": pod, "NodeNames": nodes})))
        kept = frozenset(answer.node_names or ())
        return [one for one in nodes if one in kept]

    def scores(self, pod: Wire, nodes: Sequence[str]) -> dict[str, int]:
        """What it adds to the scores of nodes, by name, as kube-scheduler weighs it."""
        found = _scored(self._answerer.prioritize(_encode({"Pod": pod, "NodeNames": nodes})))
        return {one.host: one.score * WEIGHT * (100 // MAX_SCORE) for one in found}

    def preemptible(self, pod: Wire, victims: Mapping[str, tuple[Iterable[str], int]]) -> frozenset[str]:
        """The nodes on which it lets these pods be preempted: UIDs and how many budgets are broken, by node."""
        asked = {
            node: MetaVictims(tuple(Victim(uid) for uid in uids), violations)
            for node, (uids, violations) in victims.items()
        }
        body = _encode({"Pod": pod, "NodeNameToMetaVictims": asked})
        return frozenset(_kept(self._answerer.preempt(body)).meta_victims)


def _read(change: ServerChange, read: Callable[[bytes], T]) -> tuple[T | None, T | None]:
    """Before and after, as the extender keeps it."""
    before, after = (None if one is None else read(_encode(one)) for one in (change.before, change.after))
    return before, after
