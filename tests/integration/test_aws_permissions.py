"""The provisioner under Karpenter's permissions, unchanged: a machine from its launch to its end, and no call that is refused."""

from collections.abc import Iterator

import pytest

from provisioner.apis import ec2
from provisioner.devcluster.cluster import DevCluster
from provisioner.kube.resources import EC2NODECLASSES, NODEPOOLS
from tests.support.awscluster import CLUSTER, AwsCluster, aws_cluster
from tests.support.iam import default_policies

pytestmark = [pytest.mark.plane, pytest.mark.timeout(600)]

DENIED = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"})


@pytest.fixture
def aws(fresh_plane: DevCluster) -> Iterator[AwsCluster]:
    with aws_cluster(fresh_plane, policies=default_policies(CLUSTER), clock_factor=5.0) as one:
        yield one


def test_the_whole_life_of_a_machine_needs_no_more_than_karpenter_asks_for(aws: AwsCluster) -> None:
    aws.start("--nominate=true", "--enable-zonal-shift")
    aws.node_class()
    aws.pool()
    aws.deploy("web", 3)
    aws.await_running(3)
    aws.eventually(
        lambda: all(ec2.NODECLAIM_TAG in machine["tags"] for machine in aws.ec2.alive()), "the machines are tagged"
    )
    aws.deploy("web", 0)
    aws.await_empty()
    aws.client.delete(NODEPOOLS, "general")
    aws.client.delete(EC2NODECLASSES, "default")
    aws.eventually(lambda: not aws.client.list(EC2NODECLASSES), "the class is gone, with profile and templates")
    calls = aws.ec2.log()
    called = {(one.service, one.action) for one in calls}
    assert sorted(f"{one.service}:{one.action}" for one in calls if one.code in DENIED) == []
    assert called >= {
        *(
            ("ec2", "CreateFleet"),
            ("ec2", "CreateTags"),
            ("ec2", "TerminateInstances"),
            ("ec2", "DeleteLaunchTemplate"),
        ),
        *(("iam", "CreateInstanceProfile"), ("iam", "DeleteInstanceProfile"), ("sqs", "ReceiveMessage")),
        ("arc-zonal-shift", "GetManagedResource"),
    }
