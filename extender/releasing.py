"""Ends plans whose time is over and wakes kube-scheduler for pods that we refused: one thread.

kube-scheduler retries a pod that an extender refused when any object it watches changes, so a release writes an
annotation of a node where the pod would be let in now.

What a former process refused died with it, and its reason may have ended while nobody was there to see it. So the first thing
that a process does when its data is fresh is one such write: every refused pod asks again, and what is refused then is remembered.
"""

from typing import Final, Protocol

from extender import metrics
from extender.board import Board
from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.kube.errors import ApiError, NotFound
from provisioner.kube.resources import NODES, Resource
from provisioner.support import logs
from provisioner.support.poller import Poller

TICK_SECONDS: Final = 0.5
"""With a retry this stays well under the 2 s that a pod may wait beyond the TTL."""

_log = logs.get_logger(__name__)


class Patcher(Protocol):
    """What is asked of the API server; a Client."""

    def patch(self, resource: Resource[Node], name: str, body: object) -> Node: ...


class Releaser:
    """See the module.

    Args:
        board: what is known and what was refused.
        client: to write with; RBAC: patch nodes.
    """

    def __init__(self, board: Board, client: Patcher) -> None:
        self._board = board
        self._client = client
        self.poller = Poller("releaser", self._poll, TICK_SECONDS, first=TICK_SECONDS)
        self._began = False
        self._retry: set[str] = set()

    def tick(self) -> list[str]:
        """End what is over, touch the nodes that are due; the nodes that were touched."""
        board = self._board
        fresh = not board.problem()
        metrics.FRESH.set(fresh)
        if not fresh:
            return []
        touched = [name for name in self._due() if self._touch(name)]
        with board.lock:
            held, planned, plans = len(board.table.room.holds), board.table.room.planned, len(board.table.live_plans)
            forgotten, board.refusals.forgotten = board.refusals.forgotten, 0
        metrics.HELD_NODES.set(held)
        metrics.PLANNED_PODS.set(planned)
        metrics.PLANS.set(plans)
        metrics.FORGOTTEN.inc(forgotten)
        return touched

    def _due(self) -> list[str]:
        board = self._board
        now = board.clock.monotonic()
        with board.lock:
            if not self._began:
                self._began = True
                board.refusals.inherit(board.table.room.holds)
                self._retry.add(min(board.table.nodes.nodes, default=""))
            board.vetoes.forget(self._waits, now)
            ended = board.table.expire(now)
            due = {*board.refusals.released(board.table), *self._retry}
            kinds = board.refusals.kinds()
        self._retry.clear()
        if ended:
            metrics.EXPIRED.inc(len(ended))
            _log.info("Plans ended", plans=len(ended), first=ended[0])
        for kind in kinds:
            with board.lock:  # for each anew: a verb must not wait for all of them
                due.add(board.refusals.due(kind, board.table, now))
        return sorted(due - {""})

    def _waits(self, uid: str) -> bool:
        member = self._board.table.families.members.get(uid)
        return member is not None and member.waiting

    def _touch(self, name: str) -> bool:
        stamp = self._board.clock.now().isoformat(timespec="milliseconds")
        body = {"metadata": {"annotations": {names.HOLD_RELEASED_ANNOTATION: stamp}}}
        try:
            self._client.patch(NODES, name, body)
        except NotFound:
            metrics.RELEASES.labels("gone").inc()
            return False
        except ApiError as error:
            metrics.RELEASES.labels("failed").inc()
            self._retry.add(name)
            _log.warning("Failed to annotate a Node; retrying", node=name, error=str(error))
            return False
        metrics.RELEASES.labels("touched").inc()
        _log.info("Released a hold", node=name)
        return True

    def _poll(self) -> float:
        self.tick()
        return TICK_SECONDS
