"""NodePools, conditions and reservations of the emulated EC2, as words of rows."""

from collections.abc import Iterable, Mapping
from typing import Any

from provisioner.apis import names
from provisioner.lab.harness.aws import CLUSTER_NAME
from tests.scenarios.health import says
from tests.scenarios.scene import Scene
from tests.scenarios.steps import Step, pool_says
from tests.support.awscluster import node_class, pool
from tests.support.provisioner import TEAM

GPU = "AcceleratedHardwareReady"
ZONE = "us-west-2a"
TYPE = "m5.large"
ON_DEMAND = {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": [names.CAPACITY_ON_DEMAND]}
RESERVED = {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": [names.CAPACITY_RESERVED]}
OF_CLUSTER = [{"tags": {"karpenter.sh/discovery": CLUSTER_NAME}}]


def ec2_pool(
    *requirements: Mapping[str, Any], reserved: bool = False, template: Mapping[str, Any] | None = None, **spec: Any
) -> Step:
    """A NodePool of EC2 and its class, whose instances are of `TYPE`.

    Args:
        *requirements: of the template, besides.
        reserved: the class selects what `reservation` has made.
        template: more of the template's spec.
        **spec: of the NodePool.
    """

    def step(scene: Scene) -> None:
        own: dict[str, Any] = (
            {"capacityReservationSelectorTerms": [{"id": scene.facts.reservation}]} if reserved else {}
        )
        of_cluster = {"subnetSelectorTerms": OF_CLUSTER, "securityGroupSelectorTerms": OF_CLUSTER}
        scene.put(node_class(scene.name, role=f"KarpenterNodeRole-{CLUSTER_NAME}", **of_cluster, **own))
        of_type = {"key": names.INSTANCE_TYPE_LABEL, "operator": "In", "values": [TYPE]}
        document = pool(scene.name, scene.name, (of_type, *requirements), **spec)
        made = document["spec"]["template"]
        made["metadata"] = {"labels": {TEAM: scene.name}}
        made["spec"] |= {"taints": [{"key": TEAM, "value": scene.name, "effect": "NoSchedule"}], **(template or {})}
        scene.put(document)
        scene.owns_pool(scene.name)
        pool_says(names.READY, "True")(scene)

    return step


def reservation(count: int = 1) -> Step:
    """A capacity reservation of so many instances."""

    def step(scene: Scene) -> None:
        scene.facts.reservation = scene.ec2.add_reservation(TYPE, ZONE, count)

    return step


def gpu_says(status: str, reason: str, *those: int) -> Step:
    """The condition that EKS' node monitoring agent sets of GPUs, on these Nodes."""
    return says(GPU, status, reason, *those)


def mine(scene: Scene, nodes: Iterable[str] = ()) -> list[dict[str, Any]]:
    """The row's instances, of these Nodes or of all that `settled` saw."""
    wanted = {*(nodes or scene.facts.nodes)}
    return [one for one in scene.ec2.instances() if one["node"] in wanted]


def in_the_reservation(scene: Scene) -> list[str]:
    """Instances that take places of the row's reservation now."""
    return [str(one["id"]) for one in scene.ec2.alive() if one["reservation"] == scene.facts.reservation]
