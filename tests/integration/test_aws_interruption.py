"""The life of instances end to end: EC2 says something, EventBridge and SQS bring it, and pods move before their instance goes."""

import sys
from collections.abc import Iterator, Sequence

import pytest

from provisioner.apis import ec2, names
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import Condition, condition, is_true
from provisioner.ec2 import labels
from provisioner.ec2.instances.instances import instance_id_of
from provisioner.kube.resources import EC2NODECLASSES, EVENTS, NODECLAIMS, NODEPOOLS, NODES, PODS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.progress import progress_for
from provisioner.support.clock import SystemClock
from tests.support.awscluster import NAMESPACE, SECONDS, AwsCluster, aws_cluster
from tests.support.ec2 import Fault

pytestmark = [pytest.mark.plane, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def aws() -> Iterator[AwsCluster]:
    """One instance with one pod; each test leaves another one. EC2's clock is faster than ours, so that instances boot soon."""
    cluster = DevCluster(temporary=True, extender=True, ending_seed=1, progress=progress_for(sys.__stderr__))
    cluster.up()
    try:
        with aws_cluster(cluster, clock_factor=8.0) as one:
            one.start("--nominate=true", "--batch-idle-duration=200ms")
            one.node_class()
            one.pool(requirements=({"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["spot"]},))
            yield one
            one.eventually(
                lambda: (
                    {instance_of(claim) for claim in one.claims()} == {instance["id"] for instance in one.ec2.alive()}
                ),
                "claims whose instances have ended are gone",
            )
    finally:
        cluster.down()


def the_claim(aws: AwsCluster) -> NodeClaim:
    """One pod, on one instance; the one that is there, where there is one. No budget of an earlier test holds it."""
    aws.client.patch(NODEPOOLS, "general", {"spec": {"disruption": {"budgets": [{"nodes": "100%"}]}}})
    aws.deploy("web", 1)
    aws.await_running(1)
    aws.eventually(lambda: len(standing(aws.initialized())) == 1, "the claim is initialised", SECONDS)
    (claim,) = standing(aws.initialized())
    aws.eventually(lambda: {one["id"] for one in aws.ec2.alive()} == {instance_of(claim)}, "the others end", SECONDS)
    return claim


def standing(claims: Sequence[NodeClaim]) -> list[NodeClaim]:
    """Those that are not being deleted; a claim whose instance has ended goes some time after it, see `aws`."""
    return [one for one in claims if one.metadata.deletion_timestamp is None]


def instance_of(claim: NodeClaim) -> str:
    return instance_id_of(claim.status.provider_id)


def await_replaced(aws: AwsCluster, old: NodeClaim) -> NodeClaim:
    """Until another instance has taken over, and instance and Node of the old one are gone."""
    aws.eventually(
        lambda: [one for one in standing(aws.initialized()) if one.name != old.name], "a replacement", SECONDS
    )
    aws.eventually(lambda: old.name not in {one.name for one in standing(aws.claims())}, "the old claim goes", SECONDS)
    aws.await_running(1)
    (new,) = standing(aws.initialized())
    aws.eventually(
        lambda: [one.metadata.name for one in aws.instance_nodes()] == [new.status.node_name], "Nodes = claims", SECONDS
    )
    aws.eventually(lambda: {one["id"] for one in aws.ec2.alive()} == {instance_of(new)}, "instances = claims", SECONDS)
    return new


def pod_node(aws: AwsCluster) -> str:
    return next((one.node_name for one in aws.client.list(PODS, NAMESPACE) if one.deleted is None), "")


def reasons(aws: AwsCluster, name: str) -> set[str]:
    found = aws.client.list(EVENTS, "default", field_selector=f"involvedObject.name={name}")
    return {one.reason for one in found}


def await_told(aws: AwsCluster, claim: NodeClaim, *wanted: str) -> None:
    aws.eventually(lambda: {*wanted} <= reasons(aws, claim.name), f"{' and '.join(wanted)} are told")


def test_a_spot_instances_pods_move_to_its_replacement_before_it_ends(aws: AwsCluster) -> None:
    old = the_claim(aws)
    aws.ec2.interrupt(instance_of(old), "spot", seconds=1600)
    while True:
        where, runs = pod_node(aws), aws.running()
        if any(one.name != old.name for one in standing(aws.initialized())):  # asked last: the pod may move at once
            break
        assert where in (old.status.node_name, ""), "nothing moves before there is a place"
        assert runs in (1, -1), f"the pod runs on meanwhile\n{aws.log()[-3000:]}"
        SystemClock().sleep(0.05)
    new = await_replaced(aws, old)
    assert pod_node(aws) == new.status.node_name
    await_told(aws, old, "SpotInterrupted", "TerminatingOnInterruption")
    bought = ("node.kubernetes.io/instance-type", names.ZONE_LABEL)
    assert [new.metadata.labels[key] for key in bought] != [old.metadata.labels[key] for key in bought]
    ended = next(one for one in aws.ec2.instances() if one["id"] == instance_of(old))
    assert "Spot" not in (ended["terminated_by"] or ""), "we were faster than EC2"
    aws.eventually(lambda: not aws.ec2.left()["messages"], "every message was deleted", 60.0)


def test_an_instance_that_somebody_ends_is_replaced(aws: AwsCluster) -> None:
    old = the_claim(aws)
    aws.ec2.interrupt(instance_of(old), "terminate")
    await_replaced(aws, old)
    await_told(aws, old, "InstanceTerminating", "TerminatingOnInterruption")


def test_planned_work_moves_pods_within_the_budget(aws: AwsCluster) -> None:
    old = the_claim(aws)
    held = [{"nodes": "0"}]
    aws.client.patch(NODEPOOLS, "general", {"spec": {"disruption": {"budgets": held}}})
    aws.ec2.interrupt(instance_of(old), "scheduled-change", seconds=20 * 3600)
    aws.eventually(lambda: "DisruptionBlocked" in reasons(aws, old.name), "the budget holds it", 60.0)
    assert [one.name for one in standing(aws.claims())] == [old.name]
    aws.client.patch(NODEPOOLS, "general", {"spec": {"disruption": {"budgets": [{"nodes": "100%"}]}}})
    await_replaced(aws, old)


def test_a_claim_says_when_its_class_has_changed(aws: AwsCluster) -> None:
    claim = the_claim(aws)

    def reason() -> str:
        (found,) = standing(aws.claims())
        drifted = condition(found.status.conditions, names.DRIFTED)
        return drifted.reason if drifted is not None else ""

    assert reason() == ""
    held = [{"nodes": "0"}]
    aws.client.patch(NODEPOOLS, "general", {"spec": {"disruption": {"budgets": held}}})
    aws.client.patch(EC2NODECLASSES, "default", {"spec": {"tags": {"team": "shop"}}})
    aws.eventually(lambda: reason() == "NodeClassDrift", "the claim has drifted", 60.0)
    assert [one.name for one in standing(aws.claims())] == [claim.name], "the budget holds it"
    aws.client.patch(EC2NODECLASSES, "default", {"spec": {"tags": None}})
    aws.eventually(lambda: reason() == "", "the claim has drifted no more", 60.0)
    aws.client.patch(NODEPOOLS, "general", {"spec": {"disruption": {"budgets": [{"nodes": "100%"}]}}})


def test_a_node_of_a_placement_group_is_let_in_with_the_partition_that_ec2_chose(aws: AwsCluster) -> None:
    """Its pods may be spread over partitions: none is bound before the label is there."""
    aws.ec2.client("ec2").create_placement_group(GroupName="rack", Strategy="partition", PartitionCount=3)
    aws.node_class("grouped", placementGroupSelector={"name": "rack"})
    aws.pool("grouped", node_class="grouped")
    body = aws.claim("grouped")
    made = aws.client.create(NODECLAIMS, body)
    lacking = list[str]()

    def initialized() -> bool:
        (claim,) = [one for one in aws.claims() if one.name == made.name]
        for node in aws.instance_nodes():
            mine = node.spec.provider_id == claim.status.provider_id
            if mine and node.metadata.labels.get(names.REGISTERED_LABEL) == "true":
                lacking.extend({labels.PLACEMENT_GROUP_PARTITION} - node.metadata.labels.keys())
        return is_true(claim.status.conditions, names.INITIALIZED)

    try:
        aws.eventually(initialized, "the claim is initialised")
        assert not lacking
        (claim,) = [one for one in aws.claims() if one.name == made.name]
        described = aws.ec2.client("ec2").describe_instances(InstanceIds=[instance_of(claim)])
        partition = described["Reservations"][0]["Instances"][0]["Placement"]["PartitionNumber"]
        node = aws.client.get(NODES, claim.status.node_name)
        for found in (claim.metadata.labels, node.metadata.labels):
            assert found[labels.PLACEMENT_GROUP_PARTITION] == str(partition)
    finally:
        aws.client.delete(NODEPOOLS, "grouped")
        aws.client.delete(NODECLAIMS, made.name)
        aws.eventually(lambda: made.name not in {one.name for one in aws.claims()}, "the claim is gone")


def test_instances_that_ec2_ends_at_launch_are_not_bought_again_and_again(aws: AwsCluster) -> None:
    """A key that may not be used: each launch is answered with an instance, and each instance ends by itself."""
    the_claim(aws)
    before = {one["id"] for one in aws.ec2.instances()}
    aws.ec2.script([Fault("", "ends-at-launch", code="Client.InternalError")])
    try:
        aws.deploy("big", 1, {"cpu": "12"})

        def unhealthy() -> Condition | None:
            (pool,) = aws.client.list(NODEPOOLS)
            found = condition(pool.status.conditions, "NodeRegistrationHealthy")
            return found if found is not None and found.status == "False" else None

        said = aws.eventually(unhealthy, "the NodePool says that its launches fail", SECONDS)
        assert said is not None
        assert "Client.InternalError" in said.message
        assert "KMS key" in said.message

        def waiting() -> str:
            launched = [condition(one.status.conditions, names.LAUNCHED) for one in standing(aws.claims())]
            return next((one.message for one in launched if one is not None and one.reason == "LaunchFailed"), "")

        assert "KMS key" in aws.eventually(waiting, "the next NodeClaim says what it waits for", SECONDS)
        assert len({one["id"] for one in aws.ec2.instances()} - before) <= 3
    finally:
        aws.ec2.script()
        aws.cluster.kubectl("-n", NAMESPACE, "delete", "deployment", "big")
        aws.eventually(lambda: len(standing(aws.claims())) == 1, "nobody waits for the pod any more", SECONDS)


def test_an_instance_is_tagged_with_its_node(aws: AwsCluster) -> None:
    claim = the_claim(aws)
    wanted = {ec2.NAME_TAG: claim.status.node_name, ec2.NODECLAIM_TAG: claim.name}

    def is_tagged() -> bool:
        (instance,) = aws.ec2.alive()
        return all(instance["tags"].get(key) == value for key, value in wanted.items())

    aws.eventually(is_tagged, "the instance carries the names", 90.0)
    aws.eventually(
        lambda: standing(aws.claims())[0].metadata.annotations.get(ec2.TAGGED_ANNOTATION) == "true",
        "the claim says so",
        30.0,
    )
