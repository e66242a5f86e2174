"""Machines of capacity reservations: those that left theirs are relabelled, those of blocks that end are replaced.

Source: spec/karpenter-aws.md 3.4, 6.3.
Differs: the label that says a reservation may be taken back falls with the others; replacements come before the end of a block.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.aws import labels, notices
from provisioner.cloudprovider.aws.discovery import reservations
from provisioner.cloudprovider.aws.errors import Kind, classify_exception
from provisioner.cloudprovider.aws.instances import Clients, Instance, instance_id_of
from provisioner.controllers.interruption import Interruptions
from provisioner.controllers.store import ClaimWriter
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, NotFound
from provisioner.state.cluster import Cluster
from provisioner.support import logs
from provisioner.support.clock import Clock

POLL_SECONDS = 60.0
_log = logs.get_logger(__name__)


def left_reservations(claims: Iterable[NodeClaim], instances: Iterable[Instance]) -> tuple[NodeClaim, ...]:
    """Claims labelled reserved whose machine runs on demand now, by name. Pure."""
    by_id = {one.id: one for one in instances}
    return tuple(
        claim
        for claim in sorted(claims, key=lambda one: one.name)
        if claim.metadata.labels.get(names.CAPACITY_TYPE_LABEL) == names.CAPACITY_RESERVED
        and claim.metadata.deletion_timestamp is None
        and (machine := by_id.get(instance_id_of(claim.status.provider_id))) is not None
        and machine.capacity_type == names.CAPACITY_ON_DEMAND
    )


def relabelled(present: Mapping[str, str]) -> dict[str, str | None]:
    """A merge patch of labels that makes a reserved machine one on demand; empty where it is. Pure."""
    wanted: dict[str, str | None] = {names.CAPACITY_TYPE_LABEL: names.CAPACITY_ON_DEMAND}
    wanted |= dict.fromkeys(labels.RESERVATION_LABELS)
    return {key: value for key, value in wanted.items() if present.get(key) != value}


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
        if classify_exception(error).kind is not Kind.NOT_FOUND:
            raise
        return [row for one in ids for row in read_reservations(aws, [one])] if len(ids) > 1 else []
    return list(answer.get("CapacityReservations", ()))


class CapacityTypeSync:
    """Relabels claims and Nodes whose machine has left its reservation.

    Args:
        instances: the machines as they were listed last.
    """

    def __init__(
        self, instances: Callable[[], Iterable[Instance]], cluster: Cluster, client: Client, writer: ClaimWriter
    ) -> None:
        self._instances, self._cluster, self._client, self._writer = instances, cluster, client, writer

    def poll(self) -> float:
        """Look once; seconds until the next look."""
        for claim in left_reservations(self._cluster.claims(), self._instances()):
            try:
                self._relabel(claim)
            except NotFound:
                continue
            except ApiError as error:
                _log.warning("could not relabel, it is tried again", nodeclaim=claim.name, error=str(error))
        return POLL_SECONDS

    def _relabel(self, claim: NodeClaim) -> None:
        node = self._cluster.node_of(claim)
        registered = node is not None and node.metadata.labels.get(names.REGISTERED_LABEL) == "true"
        if node is not None and registered and (changes := relabelled(node.metadata.labels)):
            body = {"metadata": {"uid": node.metadata.uid, "labels": changes}}
            self._client.patch(resources.NODES, node.metadata.name, body)
        self._writer.metadata(claim, labels=relabelled(claim.metadata.labels))  # last: it is what brings us back
        _log.info("machine has left its capacity reservation", nodeclaim=claim.name)


class BlockExpiry:
    """Marks the machines of capacity blocks that end soon.

    Args:
        read: rows of reservations by id.
    """

    def __init__(
        self,
        read: Callable[[Sequence[str]], Iterable[Mapping[str, Any]]],
        interruptions: Interruptions,
        cluster: Cluster,
        clock: Clock,
    ) -> None:
        self._read, self._interruptions, self._cluster, self._clock = read, interruptions, cluster, clock

    def poll(self) -> float:
        """Look once; seconds until the next look.

        Raises:
            Exception: EC2 did not answer.
        """
        claims = [claim for claim in self._cluster.claims() if labels.RESERVATION_ID in claim.metadata.labels]
        ids = sorted({claim.metadata.labels[labels.RESERVATION_ID] for claim in claims})
        if not ids:
            return POLL_SECONDS
        ends = expiring_blocks(self._read(ids), self._clock.now())
        for claim in claims:
            end = ends.get(claim.metadata.labels[labels.RESERVATION_ID])
            if end is None:
                continue
            try:
                self._interruptions.mark(claim, notices.block_ends(end))
            except ApiError as error:
                _log.warning("could not mark a machine, it is tried again", nodeclaim=claim.name, error=str(error))
        return POLL_SECONDS
