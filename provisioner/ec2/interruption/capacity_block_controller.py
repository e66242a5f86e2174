"""Instances of capacity blocks that end are replaced before EC2 takes them back. Source: spec/karpenter-aws.md 3.4, 6.3."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from provisioner.ec2 import labels
from provisioner.ec2.access.client import Clients
from provisioner.ec2.access.errors import FailureKind, classify_exception
from provisioner.ec2.interruption import notices
from provisioner.ec2.interruption.health_controller import FAILED_TO_ANNOTATE_NODECLAIM
from provisioner.ec2.nodeclass import reservations
from provisioner.interruption.controller import Interruptions
from provisioner.kube.errors import ApiError
from provisioner.state.cluster import Cluster
from provisioner.support import logs
from provisioner.support.clock import Clock

POLL_SECONDS = 60.0
_log = logs.get_logger(__name__)


def expiring_blocks(rows: Iterable[Mapping[str, Any]], now: datetime) -> dict[str, datetime]:
    """Ends of the capacity blocks among rows of DescribeCapacityReservations that are to be left now, by id. Pure."""
    return {
        one.id: one.end_time
        for one in reservations.found(rows, now).reservations
        if one.state == "expiring" and one.end_time is not None
    }


def read_reservations(aws: Clients, ids: Sequence[str]) -> list[Mapping[str, Any]]:
    """Rows of the reservations of these ids; ids that are gone are left out.

    Raises:
        botocore.exceptions.ClientError: as the call.
    """
    try:
        answer = aws.client("ec2").describe_capacity_reservations(CapacityReservationIds=list(ids))
    except Exception as error:
        if classify_exception(error).kind is not FailureKind.NOT_FOUND:
            raise
        return [row for one in ids for row in read_reservations(aws, [one])] if len(ids) > 1 else []
    return list(answer.get("CapacityReservations", ()))


def mark_expiring(
    read: Callable[[Sequence[str]], Iterable[Mapping[str, Any]]],
    interruptions: Interruptions,
    cluster: Cluster,
    clock: Clock,
) -> float:
    """Mark the instances of capacity blocks that end soon; seconds until the next look. `read` tells rows of reservations by id.

    Raises:
        Exception: EC2 did not answer.
    """
    claims = [claim for claim in cluster.claims() if labels.RESERVATION_ID in claim.metadata.labels]
    ids = sorted({claim.metadata.labels[labels.RESERVATION_ID] for claim in claims})
    if not ids:
        return POLL_SECONDS
    ends = expiring_blocks(read(ids), clock.now())
    for claim in claims:
        end = ends.get(claim.metadata.labels[labels.RESERVATION_ID])
        if end is None:
            continue
        try:
            interruptions.mark(claim, notices.block_ends(end))
        except ApiError as error:
            _log.warning(FAILED_TO_ANNOTATE_NODECLAIM, nodeclaim=claim.name, error=str(error))
    return POLL_SECONDS
