"""What a node's view keeps of what its kubelet says."""

from msgspec.structs import replace

from provisioner.apis.core import NodeSystemInfo
from provisioner.apis.shapes import FEATURES
from tests.support.cluster import World, node


def test_of_declared_features_only_those_count_that_pods_can_need() -> None:
    world = World()
    made = node("a")
    status = replace(
        made.status,
        node_info=NodeSystemInfo(kubelet_version="v1.37.2"),
        declared_features=(FEATURES[0], *(f"Feature{number}" for number in range(1000))),
    )
    world.cluster.node_changed(None, replace(made, status=status))
    assert [one.features for one in world.cluster.snapshot().nodes] == [frozenset({FEATURES[0]})]
