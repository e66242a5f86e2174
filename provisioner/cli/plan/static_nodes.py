"""The nodes of static NodePools, which exist whatever pods there are, for input that has no nodes."""

from typing import Final

from provisioner.apis import names
from provisioner.apis.core import Node, NodeSpec, NodeStatus
from provisioner.apis.karpenter import NodePool
from provisioner.apis.meta import Condition, ObjectMeta
from provisioner.cloudprovider.types import InstanceType, Offering
from provisioner.scheduling.node_claims import template_requirements
from provisioner.values.requirement import RequirementError, Requirements
from provisioner.values.resources import Resources

_MOST: Final = 10_000


def static_nodes(pool: NodePool, types: tuple[InstanceType, ...]) -> tuple[list[Node], str]:
    """Its nodes, each of the cheapest instance type that it may have, and a sentence about them."""
    said = f'NodePool "{pool.name}" is static'
    try:
        wanted = template_requirements(pool)
    except RequirementError as error:
        return [], f"{said} and is not used: {error}."
    limit = Resources.parse(pool.spec.limits).get(names.NODES, _MOST)
    count = min(pool.spec.replicas or 0, limit, _MOST)
    found = [
        (offering.price, one.name, one, offering)
        for one in types
        if one.requirements.conflict(wanted) is None
        for offering in one.offerings
        if offering.launchable and offering.requirements.conflict(wanted) is None
    ]
    if not found or count < 1:
        return [], f"{said} and has no nodes in this plan."
    price, _, kind, offering = min(found, key=lambda entry: entry[:2])
    made = [_node(pool, f"{pool.name}-{number}", wanted, kind, offering) for number in range(count)]
    nodes = "its node is" if count == 1 else f"its {count:,} nodes are"
    return made, (
        f"{said}: {nodes} always there ({kind.name}, {price:.4f} an hour each); pods can use them, and their cost is not shown."
    )


def _node(pool: NodePool, name: str, wanted: Requirements, kind: InstanceType, offering: Offering) -> Node:
    labels: dict[str, str] = {}
    for some in (wanted, kind.requirements, offering.requirements):
        labels |= {key: value for key, one in some.items() if (value := one.single_value) is not None}
    labels |= {names.HOSTNAME_LABEL: name, names.INSTANCE_TYPE_LABEL: kind.name}
    labels |= {names.REGISTERED_LABEL: "true", names.INITIALIZED_LABEL: "true"}
    ready = Condition(type=names.READY, status="True", reason="Planned", message="")
    return Node(
        metadata=ObjectMeta(name=name, uid=name, labels=labels),
        spec=NodeSpec(provider_id=f"static:///{name}", taints=pool.taints),
        status=NodeStatus(
            capacity={**kind.capacity.to_wire()}, allocatable={**kind.allocatable.to_wire()}, conditions=(ready,)
        ),
    )
