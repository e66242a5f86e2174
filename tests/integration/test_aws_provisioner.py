"""The provisioner with AWS on a real control plane and an emulated EC2: from a pending pod to an instance, and back to nothing."""

import base64
import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from click.testing import CliRunner

from provisioner.apis import ec2, names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import is_true
from provisioner.cli.why.command import command as why
from provisioner.ec2.cloud import tables_of
from provisioner.ec2.launch.templates import TemplateUses
from provisioner.ec2.market.discovered_capacity import MemoryTable
from provisioner.ec2.market.persistence import MAX_PARTS
from provisioner.ec2.market.unavailable_offerings import Shortages
from provisioner.kube.resources import CONFIGMAPS, EC2NODECLASSES, NODEPOOLS, PODS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.progress import progress_for
from provisioner.support.clock import SystemClock
from provisioner.values.resources import Resources
from tests.support.awscluster import CLUSTER, NAMESPACE, PROVISIONER, AwsCluster, aws_cluster
from tests.support.faulttable import QUICK
from tests.support.iam import default_policies

pytestmark = [pytest.mark.plane, pytest.mark.timeout(600)]

SECRET = "marker-in-the-user-data"
DENIED = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"})
OUR_OWN_LOOK = {"Statement": [{"Effect": "Allow", "Action": "ec2:DescribeLaunchTemplateVersions", "Resource": "*"}]}
"""What these tests ask for beside the provisioner, which never does."""

RESERVING = ("one", "other")
"""Deployments, and the pools that they are for."""

TOKEN = "FwoGZXIvYXdzEXAMPLETOKENOFASESSION"


@pytest.fixture(scope="module")
def bare() -> Iterator[AwsCluster]:
    """A cluster of this module's own, with a provisioner that logs everything and may do no more than it needs."""
    cluster = DevCluster(temporary=True, extender=False, progress=progress_for(sys.__stderr__))
    cluster.up()
    try:
        with aws_cluster(cluster, policies=[*default_policies(CLUSTER), OUR_OWN_LOOK], clock_factor=8.0) as one:
            one.start(
                *("--nominate=true", "--enable-zonal-shift"),
                kubeconfig=one.account(),
                environment={"LOG_LEVEL": "debug", "AWS_SESSION_TOKEN": TOKEN, "SYSTEM_NAMESPACE": "dovetail-system"},
            )
            yield one
    finally:
        cluster.down()


@pytest.fixture(scope="module")
def reservation(bare: AwsCluster) -> str:
    """The id of a reservation of two instances."""
    return bare.ec2.add_reservation("m5.large", "us-west-2a", 2)


@pytest.fixture(scope="module")
def aws(bare: AwsCluster, reservation: str) -> Iterator[AwsCluster]:
    """Every test has pools and pods of its own, which all begin here, so that their instances boot at one time.

    A test takes its pods away; nothing is left of any instance in the end.
    """
    kinds = {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["reserved", "on-demand"]}
    bare.node_class(userData=f"#!/bin/bash\necho {SECRET}\n")
    bare.node_class("mortal")
    bare.node_class("reserving", capacityReservationSelectorTerms=[{"id": reservation}])
    bare.pool(ready=False)
    bare.pool("mortal", node_class="mortal", ready=False)
    for name in RESERVING:
        bare.pool(name, node_class="reserving", requirements=(kinds,), ready=False)
    bare.eventually(
        lambda: all(is_true(one.status.conditions, names.READY) for one in bare.client.list(NODEPOOLS)),
        "the pools are Ready",
    )
    bare.deploy("web", 1, nodeSelector={names.NODEPOOL_LABEL: "general"})
    bare.deploy("brief", 2, nodeSelector={names.NODEPOOL_LABEL: "mortal"})
    size = {"cpu": "1200m", "memory": "4Gi"}  # one an instance of m5.large
    for name in RESERVING:
        bare.deploy(name, 2, size, nodeSelector={names.NODEPOOL_LABEL: name})
    yield bare
    for name in ("web", "brief", *RESERVING):  # those of tests that did not run, too
        bare.deploy(name, 0)
    bare.await_empty()


def claims_of(aws: AwsCluster, *pools: str) -> list[NodeClaim]:
    return [one for one in aws.claims() if one.pool in pools]


def nodes_of(aws: AwsCluster, pool: str) -> list[Node]:
    return [one for one in aws.instance_nodes() if one.metadata.labels[names.NODEPOOL_LABEL] == pool]


def instances_of(aws: AwsCluster, pool: str) -> list[dict[str, Any]]:
    """Those that are paid for."""
    return [one for one in aws.ec2.alive() if one["tags"][ec2.NODEPOOL_TAG] == pool]


def await_initialized(aws: AwsCluster, pods: Mapping[str, int], *pools: str) -> list[NodeClaim]:
    """Until so many pods of every Deployment run, and all claims of the pools are initialised; the claims."""

    def found() -> list[NodeClaim]:
        running = Counter(
            one.shape.labels["app"]
            for one in aws.client.list(PODS, NAMESPACE)
            if one.phase == "Running" and one.deleted is None
        )
        claims = claims_of(aws, *pools)
        ready = all(is_true(one.status.conditions, names.INITIALIZED) for one in claims)
        return claims if ready and all(running[name] == count for name, count in pods.items()) else []

    return aws.eventually(found, f"{dict(pods)} run on instances that are initialised")


def test_faults_tell_their_cause_wherever_one_looks(aws: AwsCluster) -> None:
    """A few of the table; `make package` has all rows."""
    for row in QUICK:
        row.begin(aws)
    try:
        for row in QUICK:
            row.await_told(aws)
        assert [text for row in QUICK for text in row.differences(aws)] == []
    finally:
        for row in QUICK:
            row.end(aws)


def test_one_pod_gets_one_instance_which_goes_with_it_and_no_secret_is_logged(aws: AwsCluster) -> None:
    (claim,) = await_initialized(aws, {"web": 1}, "general")
    (node,) = nodes_of(aws, "general")
    (instance,) = instances_of(aws, "general")
    assert claim.status.provider_id == node.spec.provider_id == f"aws:///{instance['zone']}/{instance['id']}"
    assert claim.metadata.labels[names.INSTANCE_TYPE_LABEL] == instance["type"]
    assert instance["tags"][ec2.CLUSTER_NAME_TAG] == CLUSTER
    aws.deploy("web", 0)
    node_class = aws.client.get(EC2NODECLASSES, "default")
    assert is_true(node_class.status.conditions, names.READY)
    memory, uses = MemoryTable(), TemplateUses()
    now = SystemClock().now()

    def learned() -> int | None:
        for table in tables_of(Shortages(), memory, uses):
            kept = aws.client.list(CONFIGMAPS, "dovetail-system")
            wanted = {table.map_name(index) for index in range(MAX_PARTS)}
            table.read([one.data for one in kept if one.metadata.name in wanted], now)
        return memory.lookup(instance["type"], claim.status.image_id, "AL2023") if len(uses) else None

    found = aws.eventually(learned, "the memory of the instance is kept, and which templates are in use")
    assert found == Resources.parse(node.status.capacity)["memory"]
    aws.eventually(
        lambda: (
            not nodes_of(aws, "general")
            and not instances_of(aws, "general")
            and all(one.metadata.deletion_timestamp is not None for one in claims_of(aws, "general"))
        ),
        "instance and Node are gone, and the claim goes",
    )
    _look_for_secrets(aws)


def test_the_whole_life_of_an_instance_needs_no_more_than_karpenter_asks_for(aws: AwsCluster) -> None:
    await_initialized(aws, {"brief": 2}, "mortal")
    assert instances_of(aws, "mortal")
    aws.eventually(
        lambda: all(ec2.NODECLAIM_TAG in instance["tags"] for instance in instances_of(aws, "mortal")),
        "the instances are tagged",
    )
    aws.deploy("brief", 0)
    aws.eventually(
        lambda: not claims_of(aws, "mortal") and not nodes_of(aws, "mortal") and not instances_of(aws, "mortal"),
        "nothing is left",
    )
    aws.client.delete(NODEPOOLS, "mortal")
    aws.client.delete(EC2NODECLASSES, "mortal")
    aws.eventually(
        lambda: all(one.name != "mortal" for one in aws.client.list(EC2NODECLASSES)),
        "the class is gone, with profile and templates",
    )
    wanted = {
        *(("ec2", "CreateFleet"), ("ec2", "CreateTags"), ("ec2", "TerminateInstances")),
        *(("ec2", "DeleteLaunchTemplate"), ("iam", "CreateInstanceProfile"), ("iam", "DeleteInstanceProfile")),
        *(("sqs", "ReceiveMessage"), ("arc-zonal-shift", "GetManagedResource")),
    }
    aws.eventually(
        lambda: wanted <= {(one.service, one.action) for one in aws.ec2.log()}, f"all are called: {sorted(wanted)}"
    )
    assert sorted(f"{one.service}:{one.action}" for one in aws.ec2.log() if one.code in DENIED) == []


def test_a_reservation_is_used_for_as_many_instances_as_it_has_whatever_the_pool(
    aws: AwsCluster, reservation: str
) -> None:
    claims = await_initialized(aws, dict.fromkeys(RESERVING, 2), *RESERVING)
    reserved = [one for one in claims if one.metadata.labels[names.CAPACITY_TYPE_LABEL] == "reserved"]
    bought = [one for one in claims if one.metadata.labels[names.CAPACITY_TYPE_LABEL] == "on-demand"]
    assert len(reserved) == 2
    assert bought
    assert {one.metadata.labels["karpenter.k8s.aws/capacity-reservation-id"] for one in reserved} == {reservation}
    assert [one["reservation"] for one in aws.ec2.alive() if one["reservation"]] == [reservation, reservation]
    for name in RESERVING:
        aws.deploy(name, 0)


def _look_for_secrets(aws: AwsCluster) -> None:
    """A launch is over: its log at the lowest level has neither credentials nor user data, and nothing was forbidden."""
    log = aws.log()
    assert "Forbidden" not in log, "the manifests allow what it does"
    given = aws.ec2.environment()
    assert '"level": "debug"' in log
    assert "Launched a fleet" in log
    client = aws.ec2.client("ec2")
    names_of_templates = [one["LaunchTemplateName"] for one in client.describe_launch_templates()["LaunchTemplates"]]
    texts = {
        client.describe_launch_template_versions(LaunchTemplateName=name)["LaunchTemplateVersions"][0][
            "LaunchTemplateData"
        ]["UserData"]
        for name in names_of_templates
    }
    assert any(SECRET in base64.b64decode(text).decode() for text in texts), "the marker is where it belongs"
    forbidden = {given["AWS_SECRET_ACCESS_KEY"], TOKEN, SECRET, base64.b64encode(SECRET.encode()).decode(), *texts}
    for word in (*forbidden, given["AWS_ACCESS_KEY_ID"], "AWS4-HMAC-SHA256", "Signature=", "X-Amz-Security-Token"):
        assert word not in log, word[:20]


def test_500_equal_claims_are_launched_by_few_calls(fresh_plane: DevCluster) -> None:
    with aws_cluster(
        fresh_plane, clock_factor=0.02
    ) as slow:  # instances boot for minutes: launches are what is measured
        slow.start("--disable-leader-election")
        slow.node_class()
        slow.pool("herd", disruption={"consolidateAfter": "Never"})
        fresh_plane.signal(PROVISIONER, signal.SIGSTOP)  # it hears of all of them at once
        slow.create_claims(slow.claim("herd"), 500)
        slow.ec2.reset_calls()
        clock = SystemClock()
        began = clock.monotonic()
        fresh_plane.signal(PROVISIONER, signal.SIGCONT)
        slow.eventually(lambda: len(slow.ec2.alive()) >= 500, "500 instances are launched", seconds=180)
        seconds, calls = clock.monotonic() - began, slow.ec2.calls()
        slow.eventually(
            lambda: all(one.status.provider_id for one in slow.claims()), "every claim has its instance", seconds=180
        )
        owners = [claim.status.provider_id.rpartition("/")[2] for claim in slow.claims()]
        assert sorted(owners) == sorted(instance["id"] for instance in slow.ec2.alive())
    asked = calls.total() - calls["ReceiveMessage"] - calls["DeleteMessageBatch"]
    print(f"500 claims launched after {seconds:.1f} s by {asked} calls: {dict(calls)}")
    assert calls["CreateFleet"] <= 25, calls
    assert asked <= 150, calls  # the time is the instance's, the calls are ours


def test_why_a_pod_fits_on_no_instance_type_of_ec2(aws: AwsCluster) -> None:
    """`dovetail why` asks EC2 itself, with the user's own credentials."""
    aws.deploy("huge", 1, {"cpu": "4000", "memory": "1Gi"}, nodeSelector={names.NODEPOOL_LABEL: "general"})
    try:
        (pod,) = aws.eventually(
            lambda: [
                one for one in aws.client.list(PODS, NAMESPACE) if one.name.startswith("huge") and one.unschedulable
            ],
            "the pod was judged",
        )
        arguments = ["pod", pod.key, "-o", "json", "--kubeconfig", str(aws.cluster.kubeconfig)]
        result = CliRunner().invoke(why, arguments, env=dict(aws.ec2.environment()))
        assert result.exit_code == 0, result.output
        found = json.loads(result.output)
        assert found["state"] == "Unschedulable"
        assert [one["type"] for one in found["reasons"] if one.get("nodePools") == ["general"]] == ["TooLarge"]
        (general,) = [one for one in found["nodePools"] if one["name"] == "general"]
        assert "too-small" in {one["cause"] for one in general["refused"]}
        assert "missing" not in found
    finally:
        aws.deploy("huge", 0)
