"""Writes on NodeClaims what is reserved on their nodes, so that the extender keeps other pods out. Nodes without a NodeClaim carry nothing."""

import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.reservations import (
    RequestReservations,
    ReservationError,
    ReservedRoom,
    decode_reservations,
    encode_reservations,
)
from provisioner.kube.errors import ApiError, Conflict, Invalid, NotFound
from provisioner.nodeclaims.plan_writer import annotation_patch
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.workers import DONE, KeyedQueue, ReconcileResult
from provisioner.values.resources import Resources

LASTS: Final = timedelta(minutes=15)
"""What is written holds for so long where nobody takes it back or renews it."""
RENEWED_WITHIN: Final = timedelta(minutes=5)
RENEW_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 1.0
FIRST_SECONDS: Final = 60.0
"""A new leader takes nothing back before it has found what there is, or so long has passed."""
_log = logs.get_logger(__name__)


class ReservationWriter:
    """One key is a NodeClaim's name. Thread-safe.

    Args:
        claims: every NodeClaim that the caches hold.
        claim: one by name.
    """

    def __init__(
        self,
        claims: Callable[[], Iterable[NodeClaim]],
        claim: Callable[[str], NodeClaim | None],
        writer: ClaimWriter,
        clock: Clock,
    ) -> None:
        self._claims, self._claim, self._writer, self._clock = claims, claim, writer, clock
        self._lock = threading.Lock()
        self._rooms: dict[str, tuple[ReservedRoom, ...]] = {}
        self._told = False
        self._began = clock.monotonic()
        self.queue = KeyedQueue("provisioningrequest.reservation", self.reconcile, clock)

    def initial(self) -> list[str]:
        """The NodeClaims on which an earlier leader has written."""
        return [one.name for one in self._claims() if names.RESERVED in one.metadata.annotations]

    def reserve(self, rooms: Mapping[str, Mapping[tuple[str, int], Resources]]) -> None:
        """This is reserved from now on, by key of a node and by request and priority, and nothing else."""
        wanted = {node: _listed(some) for node, some in rooms.items() if "/" not in node}  # a Node has no NodeClaim
        with self._lock:
            known, self._rooms, self._told = self._rooms, wanted, True
        for node in known.keys() | wanted.keys():
            if known.get(node) != wanted.get(node):
                self.queue.add(node)

    def reconcile(self, name: str) -> ReconcileResult:
        """Write what is reserved on one node, if it says something else."""
        with self._lock:
            rooms, told = self._rooms.get(name, ()), self._told
        if not told and self._clock.monotonic() - self._began < FIRST_SECONDS:
            return ReconcileResult(requeue_after=RETRY_SECONDS)
        claim = self._claim(name)
        if claim is None or not claim.metadata.uid or claim.metadata.deletion_timestamp is not None:
            return DONE if claim is not None or not rooms else ReconcileResult(requeue_after=RENEW_SECONDS)
        if (patch := self._patch(claim, rooms)) and not self._is_written(claim, patch):
            return ReconcileResult(requeue_after=RETRY_SECONDS)
        return ReconcileResult(requeue_after=RENEW_SECONDS) if rooms else DONE

    def _is_written(self, claim: NodeClaim, patch: list[dict[str, Any]]) -> bool:
        try:
            self._writer.patch(claim, patch)
        except (NotFound, Invalid, Conflict):  # it is another one by now: its watch tells
            return False
        except ApiError as error:
            _log.warning("Failed to write reserved room; retrying", nodeclaim=claim.name, error=str(error))
            return False
        return True

    def _patch(self, claim: NodeClaim, rooms: tuple[ReservedRoom, ...]) -> list[dict[str, Any]]:
        """What is to be written; nothing where the annotation says the same for long enough."""
        now = self._clock.now()
        former = _readable(claim.metadata.annotations.get(names.RESERVED, ""))
        lasts = former is not None and former.until - now > RENEWED_WITHIN
        if former is not None and former.rooms == rooms and lasts:
            return []
        return annotation_patch(claim, names.RESERVED, encode_reservations(rooms, now + LASTS))


def _listed(some: Mapping[tuple[str, int], Resources]) -> tuple[ReservedRoom, ...]:
    return tuple(
        ReservedRoom(request=request, requests=dict(needed.to_wire()), priority=priority)
        for (request, priority), needed in sorted(some.items(), key=lambda one: one[0])
    )


def _readable(text: str) -> RequestReservations | None:
    try:
        return decode_reservations(text) if text else None
    except ReservationError:
        return None
