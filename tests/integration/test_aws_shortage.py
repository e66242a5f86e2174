"""Scarcity, from the pods to the instances: the cheapest nine of ten offerings have nothing for half an hour of EC2's time."""

import re
import sys
import urllib.request

import pytest

from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.progress import progress_for
from provisioner.support.clock import SystemClock
from tests.support.awscluster import aws_cluster
from tests.support.ec2 import Ec2, Fault

pytestmark = [pytest.mark.plane, pytest.mark.timeout(900)]

PODS = 1000
FACTOR = 60.0
HALF_AN_HOUR = 1800.0
CLOCK = SystemClock()


SMALL = ({"key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": ["8", "16"]},)


def cheapest(ec2: Ec2, share: float) -> list[str]:
    """The cheapest types of what the pool may launch, by their price on demand."""
    pages = ec2.client("ec2").get_paginator("describe_instance_type_offerings").paginate()
    kinds = {one["InstanceType"] for page in pages for one in page["InstanceTypeOfferings"]}
    ours = [kind for kind in kinds if re.fullmatch(r"[cmr][5-9][\w-]*\.[24]xlarge", kind)]
    prices = ec2.prices([(kind, ec2.vpc.zones[0], "on-demand") for kind in ours])
    ordered = [kind for kind, _, _ in sorted(prices, key=lambda one: (prices[one], one))]
    return ordered[: int(len(ordered) * share)]


@pytest.mark.parametrize(
    "share",
    [
        pytest.param(0.9, id="nine of ten"),
        pytest.param(1.0, id="all that the pool may launch", marks=pytest.mark.bench),  # waits half a minute for EC2
    ],
)
def test_a_thousand_pods_while_offerings_are_sold_out(share: float) -> None:
    cluster = DevCluster(temporary=True, extender=False, progress=progress_for(sys.__stderr__))
    cluster.up()
    try:
        with aws_cluster(cluster, clock_factor=FACTOR) as aws:
            aws.start("--disable-leader-election")
            aws.node_class()
            aws.pool(disruption={"consolidateAfter": "Never"}, requirements=SMALL)
            short = cheapest(aws.ec2, share)
            assert len(short) > 50
            aws.ec2.script([Fault("", "shortage", match={"instance-type": short}, seconds=HALF_AN_HOUR)])
            aws.ec2.reset_calls()
            began = CLOCK.monotonic()
            aws.deploy("many", PODS)
            outage = HALF_AN_HOUR / FACTOR if share == 1.0 else 0.0
            aws.eventually(lambda: aws.running() == PODS, "all pods run", outage + 300)
            took = CLOCK.monotonic() - began
            counts = figures(cluster)
            sent = [call.at for call in aws.ec2.log() if call.action == "CreateFleet"]
            nodes = len(aws.ec2.alive())
            ended = [line for line in aws.log().splitlines() if "Deleting NodeClaim" in line]
    finally:
        cluster.down()
    busiest = max(sum(start <= other < start + 10 for other in sent) for start in sent)
    created, deleted = counts["karpenter_nodeclaims_created_total"], counts["karpenter_nodeclaims_disrupted_total"]
    print(
        f"{PODS} pods on {nodes} nodes after {took:.0f} s: {created:.0f} claims created, {deleted:.0f} deleted, "
        f"{len(sent)} calls of CreateFleet, at most {busiest} in ten seconds"
    )
    assert deleted < 0.1 * created, "\n".join(ended)
    assert busiest <= 20
    assert len(sent) <= 1.5 * nodes


def figures(cluster: DevCluster) -> dict[str, float]:
    """The provisioner's counters, summed over their labels."""
    url = f"http://127.0.0.1:{cluster.ports['provisioner-metrics']}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {"karpenter_nodeclaims_created_total": 0.0, "karpenter_nodeclaims_disrupted_total": 0.0}
    for name, value in re.findall(r"^(karpenter_nodeclaims_\w+_total)\{[^}]*\} (\S+)$", text, re.MULTILINE):
        found[name] = found.get(name, 0.0) + float(value)
    return found
