"""Why an instance is no longer what its EC2NodeClass asks for. Pure. Source: spec/karpenter-aws.md 6.4."""

from collections.abc import Callable, Collection, Mapping, Sized
from typing import Final

from provisioner.apis import names
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.ec2_hash import static_drift
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.errors import CloudError, InstanceNotFoundError
from provisioner.cloudprovider.types import InstanceType
from provisioner.ec2 import labels
from provisioner.ec2.instances.instances import Ec2Instance
from provisioner.ec2.instances.inventory import Inventory
from provisioner.ec2.market.instance_types import image_for

AMI: Final = "AMIDrift"
SECURITY_GROUP: Final = "SecurityGroupDrift"
SUBNET: Final = "SubnetDrift"
RESERVATION: Final = "CapacityReservationDrift"
PLACEMENT_GROUP: Final = "PlacementGroupDrift"


class NotJudgedError(CloudError):
    """Something that the verdict depends on is not known now; ask again later."""


def drifted(
    claim: NodeClaim,
    node_class: EC2NodeClass,
    instance: Ec2Instance,
    instance_type: InstanceType | None,
    group_id: str = "",
) -> str:
    """The first reason why the instance is no longer what the class asks for; "" where there is none.

    Args:
        claim: launched.
        node_class: with what was discovered for it.
        instance: as EC2 describes it now.
        instance_type: of the class, by the claim's label; None where the class has none of that name.
        group_id: what the class's placement group selector resolved to; "" without one.

    Raises:
        NotJudgedError: the image, the type, or the class's images, security groups or subnets are not known.
    """
    status = node_class.status
    return (
        static_drift(claim, node_class)
        or _image_drift(claim, node_class, instance_type)
        or _group_drift(claim, node_class, instance)
        or _subnet_drift(claim, node_class, instance)
        or _if(RESERVATION, _outside(instance, {one.id for one in status.capacity_reservations}))
        or _if(PLACEMENT_GROUP, claim.metadata.labels.get(labels.PLACEMENT_GROUP_ID, "") != group_id)
    )


class DriftJudge:
    """Why a claim's instance is no longer what its class asks for; thread-safe.

    Args:
        types: of a class, as they are known; nobody waits for them.
        group_of: id of the placement group that a class resolved to; "" without one; raises while it is not known.
    """

    def __init__(
        self,
        inventory: Inventory,
        node_class: Callable[[str], EC2NodeClass | None],
        types: Callable[[EC2NodeClass], tuple[InstanceType, ...]],
        group_of: Callable[[EC2NodeClass], str],
    ) -> None:
        self._inventory, self._node_class, self._types, self._group_of = inventory, node_class, types, group_of

    def __call__(self, claim: NodeClaim) -> str:
        """One word; "" where nothing has drifted.

        Raises:
            CloudError: nobody can tell now: what EC2 says, or what the class found, is not known.
        """
        node_class = self._node_class(claim.spec.node_class_ref.name)
        if node_class is None or names.NODEPOOL_LABEL not in claim.metadata.labels:
            return ""
        if found := static_drift(claim, node_class):
            return found
        kind = claim.metadata.labels.get(names.INSTANCE_TYPE_LABEL, "")
        instance_type = next((one for one in self._types(node_class) if one.name == kind), None)
        group = self._group_of(node_class)
        try:
            described = self._inventory.find(claim.status.provider_id)
            found = drifted(claim, node_class, described, instance_type, group)
            if found == RESERVATION:  # instances leave reservations by themselves: not on an old word
                described = self._inventory.get(claim.status.provider_id)
                found = drifted(claim, node_class, described, instance_type, group)
        except InstanceNotFoundError:
            return ""  # garbage collection finds it
        return found


def _if(reason: str, holds: bool) -> str:
    return reason if holds else ""


def _image_drift(claim: NodeClaim, node_class: EC2NodeClass, instance_type: InstanceType | None) -> str:
    """Differs: the provider asks whether the image is any of those that the type could boot; of each variant it keeps the newest only, so that is the same."""
    images = node_class.status.amis
    _must_know(claim, {"its image": claim.status.image_id, "the images of its class": images})
    if instance_type is None:
        raise NotJudgedError(f"{claim.name}: its type is not known")
    usable = {one.id for one in images if image_for(instance_type.requirements, (one,)) is not None}
    return _if(AMI, claim.status.image_id not in usable)


def _group_drift(claim: NodeClaim, node_class: EC2NodeClass, instance: Ec2Instance) -> str:
    wanted, there = {one.id for one in node_class.status.security_groups}, set(instance.security_group_ids)
    _must_know(claim, {"the security groups of its class": wanted, "its security groups": there})
    return _if(SECURITY_GROUP, wanted != there)


def _subnet_drift(claim: NodeClaim, node_class: EC2NodeClass, instance: Ec2Instance) -> str:
    wanted = {one.id for one in node_class.status.subnets}
    _must_know(claim, {"the subnets of its class": wanted, "its subnet": instance.subnet_id})
    return _if(SUBNET, instance.subnet_id not in wanted)


def _must_know(claim: NodeClaim, facts: Mapping[str, Sized]) -> None:
    """A class whose discovery found nothing says nothing of instances that run."""
    missing = next((what for what, known in facts.items() if not known), "")
    if missing:
        raise NotJudgedError(f"{claim.name}: {missing} {'are' if missing.endswith(('s', 'class')) else 'is'} not known")


def _outside(instance: Ec2Instance, reservations: Collection[str]) -> bool:
    """Whether it was bought in a reservation that the class has not; EC2 counts on-demand instances to open reservations by itself."""
    return (
        instance.capacity_type == names.CAPACITY_RESERVED
        and bool(instance.reservation_id)
        and instance.reservation_id not in reservations
    )
