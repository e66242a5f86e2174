"""Inputs of user data with overridable defaults."""

from typing import Any, Final

from provisioner.ec2.launch.userdata.inputs import JoinedCluster, NodeInput, node_labels, node_taints
from provisioner.values.taints import Taint

CLUSTER: Final = JoinedCluster(
    name="prod",
    endpoint="https://prod.eks.amazonaws.com",
    ca_bundle="Q0EtQlVORExF",
    minor=33,
    cidr="10.100.0.0/16",
    dns="10.100.0.10",
)
TAINT: Final = Taint(key="dedicated", value="gpu", effect="NoSchedule")


def node(family: str, **changes: Any) -> NodeInput:
    """A node of pool p with one taint and 58 pods, changed."""
    usual: dict[str, Any] = {
        "cluster": CLUSTER,
        "max_pods": 58,
        "labels": node_labels({"karpenter.sh/nodepool": "p"}, "spot", family),
        "taints": node_taints((TAINT,), ()),
    }
    return NodeInput(family=family, **usual | changes)
