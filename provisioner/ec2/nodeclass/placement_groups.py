"""Placement groups: the one that a class selects. Pure. Source: spec/karpenter-aws.md 3.6."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import UnsetType

from provisioner.apis.ec2 import EC2NodeClass
from provisioner.ec2.market.instance_types import PlacementGroup
from provisioner.ec2.nodeclass.queries import Query

OPERATION: Final = "describe_placement_groups"
MEMBER: Final = "PlacementGroups"


def query(node_class: EC2NodeClass) -> Query | None:
    """What to ask EC2 for; None when the class selects no group. EC2 answers an error when there is no such group."""
    selector = node_class.spec.placement_group_selector
    if isinstance(selector, UnsetType):
        return None
    if isinstance(selector.id, str) and selector.id:
        return _query("GroupIds", selector.id)
    return _query("GroupNames", selector.name if isinstance(selector.name, str) else "")


def _query(parameter: str, value: str) -> Query:
    return Query(OPERATION, MEMBER, (("state", ("available",)),), ((parameter, (value,)),), page=0)


def found(rows: Iterable[Mapping[str, Any]]) -> PlacementGroup | None:
    """The available group of the answer; None when there is none."""
    for row in rows:
        if row.get("State", "available") == "available":
            strategy = row.get("Strategy", "")
            partitions = int(row.get("PartitionCount") or 0) if strategy == "partition" else 0
            return PlacementGroup(row.get("GroupId", ""), strategy, partitions)
    return None
