"""What is found out about the cluster: of a real API server and an emulated EKS, and when either of them does not answer."""

import base64
import os
from collections.abc import Iterator
from typing import Any, Final

import pytest
from botocore.exceptions import ClientError

from provisioner.ec2.access.client import AwsClients, CallPolicy
from provisioner.ec2.nodeclass.cluster import EksFacts, NotKnownYet
from provisioner.ec2.settings import AwsSettings
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.resources import SERVICES
from provisioner.lab.devcluster import versions
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.support.clock import SystemClock
from provisioner.takeover.eks_groups import EksGroups
from provisioner.takeover.node_groups import ScalingConfig
from tests.support.clock import FakeClock
from tests.support.ec2 import ClusterOfNodes, Ec2, Fault
from tests.support.eventually import eventually
from tests.support.kube import FakeAnswer, FakeApi, Sent, ok, refusal

ENDPOINT: Final = "https://api.example"


@pytest.fixture(scope="module")
def ec2() -> Iterator[Ec2]:
    with Ec2.start(ClusterOfNodes("blue", ENDPOINT, "RUtT", ""), data="small", version="1.35") as running:
        yield running


@pytest.fixture
def aws(ec2: Ec2) -> Iterator[AwsClients]:
    made = AwsClients(CallPolicy("us-west-2", attempts=1), FakeClock(), ec2.session())
    yield made
    made.close()
    ec2.script()


def settings(**more: Any) -> AwsSettings:
    return AwsSettings(**{"cluster_name": "blue", "region": "us-west-2", **more})


class Server:
    """The four questions that the API server is asked."""

    def __init__(self) -> None:
        self.minor, self.dns, self.cidr = "36+", "10.96.0.10", "10.96.0.0/12"
        self.down = False

    def client(self) -> Client:
        return Client(FakeApi(respond=self._answer), FakeClock())

    def _answer(self, sent: Sent) -> FakeAnswer:
        if self.down:
            return refusal(403, "Forbidden")
        if sent.path == "/version":
            return ok({"major": "1", "minor": self.minor})
        if sent.path.endswith("/services/kube-dns"):
            return (
                ok({"metadata": {"name": "kube-dns"}, "spec": {"clusterIP": self.dns}})
                if self.dns
                else refusal(404, "NotFound")
            )
        if sent.path.endswith("/servicecidrs/kubernetes") and self.cidr:
            return ok({"spec": {"cidrs": [self.cidr]}})
        return refusal(404, "NotFound")


@pytest.mark.plane
def test_a_real_api_server(plane: DevCluster, aws: AwsClients) -> None:
    connection = connect(str(plane.kubeconfig), user_agent="dovetail-test")
    client = Client(connection, SystemClock())
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns"},
        "spec": {"selector": {"k8s-app": "kube-dns"}, "ports": [{"port": 53, "protocol": "UDP"}]},
    }
    made = client.create(SERVICES, service, "kube-system")
    try:
        facts = EksFacts(aws, client, settings(cluster_name="other"), connection.authority)
        assert not facts.refresh()  # EKS does not know it, so nobody says where it is
        facts = EksFacts(aws, client, settings(cluster_name="other", cluster_endpoint=plane.host), connection.authority)
        assert facts.refresh()
        found = facts.cluster()
        assert (found.name, found.endpoint, found.minor) == (
            "other",
            plane.host,
            int(versions.chosen_minor(os.environ).partition(".")[2]),
        )
        assert found.dns == made.spec.cluster_ip
        assert found.cidr.rpartition(".")[0].split(".")[0] == found.dns.split(".")[0]
        assert base64.b64decode(found.ca_bundle) == connection.authority
        assert connection.authority.startswith(b"-----BEGIN CERTIFICATE-----")
    finally:
        client.delete(SERVICES, "kube-dns", "kube-system")
        connection.close()


def test_eks_tells_what_is_not_set(aws: AwsClients) -> None:
    facts = EksFacts(aws, Server().client(), settings())
    assert facts.refresh()
    found = facts.cluster()
    assert (found.endpoint, found.ca_bundle, found.minor, found.cidr) == (ENDPOINT, "RUtT", 36, "10.96.0.0/16")
    assert facts.eks is not None
    assert facts.eks.arn.endswith(":cluster/blue")


def test_eks_is_asked_again_only_for_its_version(ec2: Ec2, aws: AwsClients) -> None:
    for eks_control_plane, minor, asked in ((False, 36, 1), (True, 35, 3)):
        ec2.reset_calls()
        facts = EksFacts(aws, Server().client(), settings(eks_control_plane=eks_control_plane))
        for _ in range(3):
            facts.refresh()
        assert facts.cluster().minor == minor
        assert ec2.calls()["DescribeCluster"] == asked


def test_what_was_known_stays_while_nobody_answers(ec2: Ec2, aws: AwsClients) -> None:
    server = Server()
    facts = EksFacts(aws, server.client(), settings(eks_control_plane=True))
    facts.refresh()
    known = facts.cluster()
    server.down = True
    ec2.script([Fault("DescribeCluster", "denied")])
    assert facts.refresh()
    assert facts.cluster() == known
    server.down, server.dns = False, "10.96.0.11"
    facts.refresh()
    assert facts.cluster().dns == "10.96.0.11"


def test_an_upgrade_is_seen(aws: AwsClients) -> None:
    server = Server()
    facts = EksFacts(aws, server.client(), settings())
    facts.refresh()
    server.minor = "37"
    facts.refresh()
    assert facts.cluster().minor == 37


def test_eks_is_not_to_be_reached(ec2: Ec2, aws: AwsClients) -> None:
    ec2.script([Fault("DescribeCluster", "denied")])
    facts = EksFacts(aws, Server().client(), settings(cluster_endpoint=ENDPOINT), b"CA")
    assert facts.refresh()
    assert facts.cluster().cidr == "10.96.0.0/12"
    assert facts.eks is None


def test_nothing_is_known_at_first_and_the_background_finds_out(ec2: Ec2, aws: AwsClients) -> None:
    facts = EksFacts(aws, Server().client(), settings())
    with pytest.raises(NotKnownYet, match="endpoint"):
        facts.cluster()
    facts.poller.start()
    try:
        eventually(lambda: facts.eks is not None, "EKS was asked", 10.0)
    finally:
        facts.poller.stop()
    assert facts.cluster().endpoint == ENDPOINT


def test_whose_nodes_have_ipv6_addresses(aws: AwsClients) -> None:
    server = Server()
    server.dns = "fd00::a"
    facts = EksFacts(aws, server.client(), settings(cluster_endpoint=ENDPOINT), b"CA")
    own: tuple[dict[str, list[str]], ...] = ({}, {"clusterDNS": ["fd00::b"]}, {"clusterDNS": ["10.0.0.10"]})
    assert [facts.ipv6(kubelet) for kubelet in own] == [False, True, False]
    assert facts.refresh()
    assert [facts.ipv6(kubelet) for kubelet in own] == [True, True, False]


def test_a_cluster_without_dns_and_cidr_is_usable(ec2: Ec2, aws: AwsClients) -> None:
    server = Server()
    server.dns = server.cidr = ""
    ec2.script([Fault("DescribeCluster", "not-found")])
    facts = EksFacts(aws, server.client(), settings(cluster_endpoint=ENDPOINT), b"CA")
    assert facts.refresh()
    assert (facts.cluster().dns, facts.cluster().cidr) == ("", "")


def test_node_groups_are_listed_described_and_reduced_never_below_their_minimum(aws: AwsClients) -> None:
    scaling = {"minSize": 1, "maxSize": 5, "desiredSize": 3}
    for name in ("web", "db"):
        aws.client("eks").create_nodegroup(
            clusterName="blue",
            nodegroupName=name,
            scalingConfig=scaling,
            subnets=["subnet-0a1b2c3d"],
            nodeRole="arn:aws:iam::123456789012:role/nodes",
        )
    groups = EksGroups(aws, "blue")
    assert [one.name for one in groups.all()] == ["db", "web"]
    web = groups.describe("web")
    assert (web.cluster_name, web.scaling_groups) == ("blue", ("eks-web-0c1",))
    groups.reduce(web, 0)
    assert groups.describe("web").scaling_config == ScalingConfig(1, 5, 1)
    assert groups.describe("db").scaling_config == ScalingConfig(1, 5, 3)
    with pytest.raises(ClientError, match="No node group found"):
        groups.describe("none")
