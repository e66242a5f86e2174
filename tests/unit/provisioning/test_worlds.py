"""What is said of NodePools of another provider."""

from typing import Any, cast

from provisioner.cloudprovider.types import CloudProvider
from provisioner.provisioning.worlds import Worlds
from tests.support.cluster import pool


class _Aws:
    name = "aws"

    def node_class_kinds(self) -> Any:
        return frozenset({("karpenter.k8s.aws", "EC2NodeClass")})


def test_a_pool_of_another_provider_names_its_node_class_and_what_to_do() -> None:
    assert Worlds(cast(CloudProvider, _Aws())).why_not_served(pool()) == (
        "nodeClassRef names KWOKNodeClass, which the provider aws does not serve; create the NodePool again with EC2NodeClass in "
        "nodeClassRef, or run the provisioner with --provider=kwok"
    )
