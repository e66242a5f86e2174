"""Why a machine is no longer what its EC2NodeClass asks for. Pure. Source: spec/karpenter-aws.md 6.4."""

from collections.abc import Mapping
from typing import Final

from provisioner.apis import ec2_hash
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.aws import labels
from provisioner.cloudprovider.aws.instances import Instance
from provisioner.cloudprovider.aws.types import image_for
from provisioner.cloudprovider.types import InstanceType

NODE_CLASS: Final = "NodeClassDrift"
AMI: Final = "AMIDrift"
SECURITY_GROUP: Final = "SecurityGroupDrift"
SUBNET: Final = "SubnetDrift"
RESERVATION: Final = "CapacityReservationDrift"
PLACEMENT_GROUP: Final = "PlacementGroupDrift"


class NotJudgedError(ValueError):
    """Something that the verdict depends on is not known now; ask again later."""


def static_drift(claim: NodeClaim, node_class: EC2NodeClass) -> str:
    """What the hashes say, without asking EC2: NodeClassDrift, or ""."""
    drifted = ec2_hash.is_drifted(node_class.metadata.annotations, claim.metadata.annotations)
    return NODE_CLASS if drifted else ""


def drifted(
    claim: NodeClaim,
    node_class: EC2NodeClass,
    instance: Instance,
    instance_type: InstanceType | None,
    group_id: str = "",
) -> str:
    """The first reason why the machine is no longer what the class asks for; "" where there is none.

    Args:
        claim: launched.
        node_class: with what was discovered for it.
        instance: as EC2 describes it now.
        instance_type: of the class, by the claim's label; None where the class has none of that name.
        group_id: what the class's placement group selector resolved to; "" without one.

    Raises:
        NotJudgedError: the image, the type or the class's images are not known.
    """
    status = node_class.status
    return (
        static_drift(claim, node_class)
        or _image_drift(claim, node_class, instance_type)
        or _if(SECURITY_GROUP, {one.id for one in status.security_groups} != set(instance.security_group_ids))
        or _if(SUBNET, instance.subnet_id not in {one.id for one in status.subnets})
        or _if(RESERVATION, _outside(instance, {one.id for one in status.capacity_reservations}))
        or _if(PLACEMENT_GROUP, claim.metadata.labels.get(labels.PLACEMENT_GROUP_ID, "") != group_id)
    )


def _if(reason: str, holds: bool) -> str:
    return reason if holds else ""


def _image_drift(claim: NodeClaim, node_class: EC2NodeClass, instance_type: InstanceType | None) -> str:
    """Differs: the provider asks whether the image is any of those that the type could boot; of each variant it keeps the newest only, so that is the same."""
    images = node_class.status.amis
    if not claim.status.image_id or not images or instance_type is None:
        missing = "its image" if not claim.status.image_id else "the images of its class" if not images else "its type"
        raise NotJudgedError(f"{claim.name}: {missing} is not known")
    usable = {one.id for one in images if image_for(instance_type.requirements, (one,)) is not None}
    return _if(AMI, claim.status.image_id not in usable)


def _outside(instance: Instance, reservations: Mapping[str, object] | set[str]) -> bool:
    return bool(instance.reservation_id) and instance.reservation_id not in reservations
