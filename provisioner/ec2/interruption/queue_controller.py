"""Reads the interruption queue and marks the instances that its messages name. Source: spec/karpenter-aws.md 6.5.

A message is deleted once what it says is written on the claims, or nothing is to be done about it; one whose write failed
comes again after 20 seconds. Two readers, or a message that comes twice, do no harm: marking twice changes nothing.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import is_true
from provisioner.ec2 import labels
from provisioner.ec2.access.errors import BOTOCORE_ERRORS
from provisioner.ec2.instances.instances import instance_id_of
from provisioner.ec2.interruption import notices
from provisioner.ec2.interruption.messages import MessageError, Notice, NoticeKind, parse
from provisioner.ec2.interruption.queue import InterruptionQueue, Received
from provisioner.ec2.launch.orders import offer_of
from provisioner.ec2.market.unavailable_offerings import Shortages
from provisioner.ec2.settings import AwsSettings
from provisioner.interruption.controller import Interruptions
from provisioner.kube.events import Recorder
from provisioner.runtime.object_reference import publish
from provisioner.runtime.poller import ApiPoller
from provisioner.state.cluster import Cluster
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.metrics import counter, histogram
from provisioner.support.workers import WorkerPool, run_parallel

MALFORMED = "malformed"
RETRY_SECONDS = 5.0
#: An instance that nobody knows may be one whose launch is not written yet: its message may come again for so long.
UNKNOWN_PATIENCE = timedelta(seconds=90)
SPOT_CODE = "SpotInterruption"
#: One message whose handling hangs holds up the queue no longer than this; it is not deleted, so it comes again.
PATIENCE_SECONDS = 10.0
_PRESSING = frozenset({NoticeKind.SPOT_INTERRUPTED, NoticeKind.RESERVATION_INTERRUPTED})
_RECEIVED = counter(
    "karpenter_interruption_received_messages_total",
    "Messages received from the interruption queue, by type.",
    ("message_type",),
)
_DELETED = counter("karpenter_interruption_deleted_messages_total", "Messages deleted from the interruption queue.")
_WAITED = histogram(
    "karpenter_interruption_message_queue_duration_seconds", "Time from the sending of a message to its deletion.", ()
)
_log = logs.get_logger(__name__)


class QueueReader:
    """One thread, of `poller`, that waits for messages; at the stop it is not waited for: what a receive brings comes again.

    Args:
        shortages: told of spot capacity and reservations that are taken back.
    """

    def __init__(
        self,
        queue: InterruptionQueue,
        interruptions: Interruptions,
        cluster: Cluster,
        recorder: Recorder,
        shortages: Shortages,
        settings: AwsSettings,
        workers: WorkerPool,
        clock: Clock,
    ) -> None:
        self._queue, self._interruptions, self._cluster, self._recorder = queue, interruptions, cluster, recorder
        self._shortages, self._settings = shortages, settings
        self._workers, self._clock = workers, clock
        self.poller = ApiPoller("interruption-queue", self._receive, RETRY_SECONDS, expected=BOTOCORE_ERRORS)

    def _receive(self) -> float:
        self.poll()
        return 0.0  # the queue itself waits

    def poll(self) -> int:
        """Receive once and act; how many messages were deleted."""
        received = self._queue.receive()
        if not received or self.poller.stopped:
            return 0
        claims = claims_by_instance(self._cluster.claims())
        outcomes = run_parallel(
            self._workers, lambda message: self._handle(message, claims), received, patience=PATIENCE_SECONDS
        )
        for outcome in outcomes:
            if outcome.error is not None:
                _log.warning("Failed to handle a queue message; it will be delivered again", error=str(outcome.error))
        done = [outcome.item for outcome in outcomes if outcome.value]
        deleted = self._queue.delete(done)
        _DELETED.inc(deleted)
        for message in done:
            if message.sent is not None:
                _WAITED.observe(max(0.0, (self._clock.now() - message.sent).total_seconds()))
        return deleted

    def _handle(self, message: Received, claims: Mapping[str, NodeClaim]) -> bool:
        """Act upon one message; whether it may be deleted."""
        try:
            notice = parse(message.body)
        except MessageError as error:
            _RECEIVED.labels(MALFORMED).inc()
            _log.warning("Ignored a malformed message of the interruption queue", error=str(error))
            return True
        _RECEIVED.labels(str(notice.kind)).inc()
        if notice.kind is NoticeKind.NO_OP:
            _log.debug("Ignored a queue message", why=notice.why)
            return True
        known = [claim for name in notice.instances if (claim := claims.get(name)) is not None]
        for claim in known:
            # of one that is being deleted we are the cause, as a rule
            if claim.metadata.deletion_timestamp is None or notice.kind in _PRESSING:
                self._act(notice, claim)
        return len(known) == len(notice.instances) or not self._may_be_launching(notice, message)

    def _act(self, notice: Notice, claim: NodeClaim) -> None:
        now = self._clock.now()
        publish(self._recorder, self._cluster, (claim.name,), notices.EVENTS[notice.kind])
        wanted = notices.interruption(notice, self._settings, now)
        new = wanted is not None and self._interruptions.mark(claim, wanted)
        if notice.kind is NoticeKind.SPOT_INTERRUPTED and new:  # once: telling it twice would double the back-off
            self._shortages.taken_back(offer_of(claim), now, SPOT_CODE)
        elif notice.kind is NoticeKind.RESERVATION_INTERRUPTED:
            reservation = claim.metadata.labels.get(labels.RESERVATION_ID, "")
            self._shortages.reservation_failed(reservation, now, str(notice.kind))

    def _may_be_launching(self, notice: Notice, message: Received) -> bool:
        if notice.kind not in _PRESSING or message.sent is None or self._clock.now() - message.sent > UNKNOWN_PATIENCE:
            return False
        return any(
            not claim.status.provider_id and not is_true(claim.status.conditions, names.LAUNCHED)
            for claim in self._cluster.claims()
        )


def claims_by_instance(claims: Sequence[NodeClaim]) -> dict[str, NodeClaim]:
    """Claims by the id of their instance; those that have none, or none of EC2's, are left out."""
    return {name: claim for claim in claims if (name := instance_id_of(claim.status.provider_id))}
