"""Labels that EC2 decides or changes after the launch: reservations that an instance has left, partitions that EC2 has chosen.

Source: spec/karpenter-aws.md 3.6, 6.3.
Differs: the label that says a reservation may be taken back falls with the others.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.ec2 import labels
from provisioner.ec2.instances.instances import RUNNING, Ec2Instance, instance_id_of
from provisioner.ec2.instances.partitions import PartitionHook, lacks_partition
from provisioner.kube.errors import ApiError, NotFound
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.state.cluster import Cluster
from provisioner.support import logs

RESERVATION_SECONDS = 60.0
PARTITION_SECONDS = 2.0  # Nodes wait for it
ON_DEMAND: Mapping[str, str | None] = {
    names.CAPACITY_TYPE_LABEL: names.CAPACITY_ON_DEMAND,
    **dict.fromkeys(labels.RESERVATION_LABELS),
}
"""What an instance is labelled that has left its reservation; None is no such label."""

_log = logs.get_logger(__name__)


def left_reservations(claims: Iterable[NodeClaim], instances: Iterable[Ec2Instance]) -> tuple[NodeClaim, ...]:
    """Claims labelled reserved whose instance runs on demand now, by name. Pure."""
    by_id = {one.id: one for one in instances}
    return tuple(
        claim
        for claim in sorted(claims, key=lambda one: one.name)
        if claim.metadata.labels.get(names.CAPACITY_TYPE_LABEL) == names.CAPACITY_RESERVED
        and claim.metadata.deletion_timestamp is None
        and (instance := by_id.get(instance_id_of(claim.status.provider_id))) is not None
        and instance.capacity_type == names.CAPACITY_ON_DEMAND
    )


def changes(present: Mapping[str, str], wanted: Mapping[str, str | None]) -> dict[str, str | None]:
    """A merge patch of labels; empty where they are as wanted. Pure."""
    return {key: value for key, value in wanted.items() if present.get(key) != value}


@dataclass(frozen=True)
class Relabeller:
    """Writes labels of a claim to its Node and to itself."""

    cluster: Cluster
    writer: ClaimWriter

    def relabel(self, claim: NodeClaim, wanted: Mapping[str, str | None]) -> bool:
        """Whether both have the labels now; otherwise it should be asked for again. A Node that has not registered gets them then."""
        node = self.cluster.node_of(claim)
        try:
            if node is not None and node.registered and (lacking := changes(node.metadata.labels, wanted)):
                self.writer.label_node(node, lacking)
            # last: it is what brings us back
            self.writer.metadata(claim, labels=changes(claim.metadata.labels, wanted))
        except NotFound:
            return True
        except ApiError as error:
            _log.warning("Failed to relabel a Node; retrying", nodeclaim=claim.name, error=str(error))
            return False
        return True


def sync_capacity_types(relabeller: Relabeller, instances: Callable[[], Iterable[Ec2Instance]]) -> float:
    """Relabel what has left its reservation, among the instances as they were listed last; seconds until the next look."""
    for claim in left_reservations(relabeller.cluster.claims(), instances()):
        if relabeller.relabel(claim, ON_DEMAND):
            _log.info("Instance left its capacity reservation", nodeclaim=claim.name)
    return RESERVATION_SECONDS


class PartitionSync:
    """Labels instances with the partition of their placement group, where EC2 has chosen it.

    Args:
        get_all: those of some instances that are there, by provider ID, as EC2 says now; raises CloudError.
        hook: keeps their Nodes waiting; is told whose group has no partitions.
    """

    def __init__(
        self,
        claims: Callable[[], Iterable[NodeClaim]],
        get_all: Callable[[Collection[str]], Mapping[str, Ec2Instance]],
        relabeller: Relabeller,
        hook: PartitionHook,
    ) -> None:
        self._claims, self._get_all, self._relabeller, self._hook = claims, get_all, relabeller, hook
        self._without: set[str] = set()  # instances of groups that have no partitions

    def poll(self) -> float:
        """Look once; seconds until the next look.

        Raises:
            CloudError: EC2 did not answer.
        """
        waiting = {claim.status.provider_id: claim for claim in self._claims() if lacks_partition(claim)}
        self._without &= waiting.keys()
        if unknown := waiting.keys() - self._without:
            for provider_id, instance in self._get_all(unknown).items():
                if instance.partition:
                    partition = {labels.PLACEMENT_GROUP_PARTITION: str(instance.partition)}
                    self._relabeller.relabel(waiting[provider_id], partition)
                elif instance.state == RUNNING:
                    self._without.add(provider_id)
        self._hook.without(self._without)
        return PARTITION_SECONDS
