"""Gathers what a verdict of drift depends on, and asks EC2 only for what is not at hand."""

from collections.abc import Callable

from provisioner.apis import names
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import NodeClaim
from provisioner.cloudprovider.aws import drift
from provisioner.cloudprovider.aws.inventory import Inventory
from provisioner.cloudprovider.errors import MachineNotFoundError
from provisioner.cloudprovider.types import InstanceType


class DriftJudge:
    """Why a claim's machine is no longer what its class asks for; thread-safe.

    Args:
        inventory: the machines.
        node_class: the EC2NodeClass of that name.
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
        if found := drift.static_drift(claim, node_class):
            return found
        kind = claim.metadata.labels.get(names.INSTANCE_TYPE_LABEL, "")
        instance_type = next((one for one in self._types(node_class) if one.name == kind), None)
        group = self._group_of(node_class)
        try:
            machine = self._inventory.find(claim.status.provider_id)
            found = drift.drifted(claim, node_class, machine, instance_type, group)
            if found == drift.RESERVATION:  # machines leave reservations by themselves: not on an old word
                machine = self._inventory.get(claim.status.provider_id)
                found = drift.drifted(claim, node_class, machine, instance_type, group)
        except MachineNotFoundError:
            return ""  # garbage collection finds it
        return found
