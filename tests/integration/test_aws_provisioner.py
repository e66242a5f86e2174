"""The provisioner with AWS on a real control plane and an emulated EC2: from a pending pod to a machine, and back to nothing."""

from collections.abc import Iterator

import pytest

from provisioner.apis import ec2, names
from provisioner.devcluster.cluster import DevCluster
from tests.support.awscluster import CLUSTER, AwsCluster, aws_cluster

pytestmark = [pytest.mark.plane, pytest.mark.timeout(600)]


@pytest.fixture
def aws(fresh_plane: DevCluster) -> Iterator[AwsCluster]:
    with aws_cluster(fresh_plane) as one:
        yield one


def test_one_pod_gets_one_machine_which_goes_with_it(aws: AwsCluster) -> None:
    aws.start("--nominate=true")
    aws.node_class()
    aws.pool()
    aws.deploy("web", 1)
    aws.await_running(1)
    (claim,) = aws.eventually(aws.initialized, "the claim is initialised")
    (node,) = aws.machine_nodes()
    (machine,) = aws.ec2.alive()
    assert claim.status.provider_id == node.spec.provider_id == f"aws:///{machine['zone']}/{machine['id']}"
    assert claim.metadata.labels[names.INSTANCE_TYPE_LABEL] == machine["type"]
    assert machine["tags"][ec2.CLUSTER_NAME_TAG] == CLUSTER
    aws.eventually(lambda: aws.ec2.alive()[0]["tags"].get(ec2.NODECLAIM_TAG) == claim.name, "the machine is tagged")
    aws.deploy("web", 0)
    aws.await_empty()
