"""Managed node groups of EKS, with the caller's credentials: eks:ListNodegroups, eks:DescribeNodegroup and eks:UpdateNodegroupConfig.

Source: https://docs.aws.amazon.com/eks/latest/APIReference/API_UpdateNodegroupConfig.html
"""

from collections.abc import Iterator

from provisioner.ec2.access.client import Clients
from provisioner.takeover.node_groups import MOST_GROUPS, ManagedNodeGroup, NodeGroupError, group_of


class EksGroups:
    """The groups of one cluster.

    Args:
        clients: of AWS.
        cluster: its name.
    """

    def __init__(self, clients: Clients, cluster: str) -> None:
        self._clients, self._cluster = clients, cluster

    def all(self) -> Iterator[ManagedNodeGroup]:
        """Every group, by name; at most `MOST_GROUPS`.

        Raises:
            ClientError: AWS refused, or there is no such cluster.
            BotoCoreError: there are no credentials, or AWS did not answer.
        """
        found: list[str] = []
        for page in self._clients.client("eks").get_paginator("list_nodegroups").paginate(clusterName=self._cluster):
            found += page["nodegroups"]
            if len(found) > MOST_GROUPS:
                break
        for name in sorted(found)[:MOST_GROUPS]:
            yield self.describe(name)

    def describe(self, name: str) -> ManagedNodeGroup:
        """A group as it is now.

        Raises:
            NodeGroupError: the answer cannot be read.
            ClientError: as of `all`.
        """
        answer = self._clients.client("eks").describe_nodegroup(clusterName=self._cluster, nodegroupName=name)
        found = group_of({"nodegroup": answer["nodegroup"]})
        if found is None:
            raise NodeGroupError(f'node group "{name}" has no name in the answer of AWS')
        return found

    def reduce(self, group: ManagedNodeGroup, size: int) -> None:
        """Set how many nodes a group shall have; never fewer than its minimum, and its bounds stay.

        Raises:
            ClientError: as of `all`.
        """
        scaling = group.scaling_config
        self._clients.client("eks").update_nodegroup_config(
            clusterName=self._cluster,
            nodegroupName=group.name,
            scalingConfig={
                "minSize": scaling.min_size,
                "maxSize": scaling.max_size,
                "desiredSize": max(size, scaling.min_size),
            },
        )
