"""Asks EC2 every minute which instances are impaired or will be worked on. Source: spec/karpenter-aws.md 6.6.

Differs: where the permission is missing it is tried again every hour, not only after a restart.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from provisioner.apis.karpenter import NodeClaim
from provisioner.ec2.access.client import Clients, pages
from provisioner.ec2.access.errors import FailureKind, classify_exception
from provisioner.ec2.interruption import health, notices
from provisioner.ec2.interruption.health import Category, HealthFinding
from provisioner.ec2.interruption.notices import MAINTENANCE
from provisioner.ec2.interruption.queue_controller import claims_by_instance
from provisioner.ec2.settings import AwsSettings
from provisioner.interruption.controller import Interruptions
from provisioner.kube.errors import ApiError
from provisioner.kube.events import Recorder
from provisioner.runtime.object_reference import publish
from provisioner.state.cluster import Cluster
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.metrics import counter
from provisioner.values.message import EventMessage

POLL_SECONDS = 60.0
DENIED_SECONDS = 3600.0
_PAGE = 1000
_UNHEALTHY = counter(
    "karpenter_interruption_instance_status_unhealthy_total",
    "Instances that were found unhealthy, counted once per episode.",
    ("category",),
)
_log = logs.get_logger(__name__)
FAILED_TO_ANNOTATE_NODECLAIM: Final = "Failed to annotate a NodeClaim; retrying"


def read_statuses(aws: Clients) -> Iterator[Mapping[str, Any]]:
    """Rows of DescribeInstanceStatus that may be of interest.

    Raises:
        botocore.exceptions.ClientError: as the call.
    """
    for wanted in health.FILTERS:
        for page in pages(aws.client("ec2").describe_instance_status, Filters=[wanted], MaxResults=_PAGE):
            yield from page.get("InstanceStatuses", ())


class HealthPoller:
    """Marks instances that EC2 says are impaired; asks once an hour where it may not."""

    def __init__(
        self,
        read: Callable[[], Iterator[Mapping[str, Any]]],
        interruptions: Interruptions,
        cluster: Cluster,
        recorder: Recorder,
        settings: AwsSettings,
        clock: Clock,
    ) -> None:
        self._read, self._interruptions, self._cluster, self._recorder = read, interruptions, cluster, recorder
        self._settings, self._clock = settings, clock
        self._known: set[tuple[str, Category]] = set()

    def poll(self) -> float:
        """Ask once; seconds until the next time.

        Raises:
            Exception: EC2 did not answer.
        """
        now = self._clock.now()
        try:
            found = health.judge(self._read(), now)
        except Exception as error:
            failure = classify_exception(error)
            if failure.kind is not FailureKind.DENIED:
                raise
            _log.error("Instance health is not monitored because the permission is missing", error=str(failure))
            return DENIED_SECONDS
        claims = claims_by_instance(self._cluster.claims())
        mine = [finding for finding in found.findings if finding.instance in claims]
        for finding in mine:
            self._act(finding, claims[finding.instance])
        self._known = {(finding.instance, finding.category) for finding in mine}
        for instance_id in found.cleared:
            if (claim := claims.get(instance_id)) is not None:
                self._call_off(claim)
        return POLL_SECONDS

    def _act(self, finding: HealthFinding, claim: NodeClaim) -> None:
        if (finding.instance, finding.category) not in self._known:
            _UNHEALTHY.labels(str(finding.category)).inc()
        if claim.metadata.deletion_timestamp is not None and finding.category is Category.EVENT:
            return  # it goes by then, as a rule; of one that does not work, nothing that holds the drain counts any more
        now = self._clock.now()
        mark = (
            notices.scheduled(str(finding.category), finding.starts, self._settings, now)
            if finding.category is Category.EVENT
            else notices.impaired(str(finding.category), now)
        )
        message = (
            EventMessage("Warning", "InstanceUnhealthy", "EC2 reports this instance as impaired")
            if finding.category is not Category.EVENT
            else MAINTENANCE
        )
        try:
            # the earliest of all events was found: one that was to come before it has been rescheduled
            # (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/reschedule-event.html)
            new = self._interruptions.mark(claim, mark, moved=True)
        except ApiError as error:
            _log.warning(FAILED_TO_ANNOTATE_NODECLAIM, nodeclaim=claim.name, error=str(error))
            return
        if new:
            publish(self._recorder, self._cluster, (claim.name,), message)

    def _call_off(self, claim: NodeClaim) -> None:
        try:
            self._interruptions.call_off(claim)
        except ApiError as error:
            _log.warning("Failed to cancel an interruption; retrying", nodeclaim=claim.name, error=str(error))
