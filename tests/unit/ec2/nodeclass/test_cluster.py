"""What is known of the cluster, from which source."""

import base64
from typing import Any

import pytest

from provisioner.ec2.launch.userdata.inputs import JoinedCluster
from provisioner.ec2.nodeclass.cluster import EksCluster, NotKnownYet, Sources, decide
from provisioner.ec2.settings import AwsSettings

EKS = EksCluster("arn:x", "https://eks", "RUtT", 33, "10.100.0.0/16", "vpc-1")
FILE = b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"
FILE_TEXT = base64.b64encode(FILE).decode()


def settings(**more: Any) -> AwsSettings:
    return AwsSettings(cluster_name="c", region="us-east-1", **more)


CASES: dict[str, tuple[AwsSettings, Sources, JoinedCluster]] = {
    "everything of EKS but the version": (
        settings(),
        Sources(eks=EKS, server_minor=34, dns="10.100.0.10"),
        JoinedCluster("c", "https://eks", "RUtT", 34, "10.100.0.0/16", "10.100.0.10"),
    ),
    "the version of EKS where it is said so": (
        settings(eks_control_plane=True),
        Sources(eks=EKS, server_minor=34),
        JoinedCluster("c", "https://eks", "RUtT", 33, "10.100.0.0/16", ""),
    ),
    "the API server's, when EKS has none": (
        settings(eks_control_plane=True, cluster_endpoint="https://x"),
        Sources(server_minor=34, authority=FILE),
        JoinedCluster("c", "https://x", FILE_TEXT, 34, "", ""),
    ),
    "the file that we trust, byte by byte, before EKS": (
        settings(),
        Sources(eks=EKS, server_minor=34, authority=FILE),
        JoinedCluster("c", "https://eks", FILE_TEXT, 34, "10.100.0.0/16", ""),
    ),
    "settings before everything": (
        settings(cluster_endpoint="https://mine", cluster_ca_bundle="TUlORQ=="),
        Sources(eks=EKS, server_minor=34, authority=FILE),
        JoinedCluster("c", "https://mine", "TUlORQ==", 34, "10.100.0.0/16", ""),
    ),
    "the CIDR of the API server, when EKS does not know the cluster": (
        settings(cluster_endpoint="https://x"),
        Sources(server_minor=34, cidr="10.96.0.0/12", authority=FILE),
        JoinedCluster("c", "https://x", FILE_TEXT, 34, "10.96.0.0/12", ""),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_cluster(case: tuple[AwsSettings, Sources, JoinedCluster]) -> None:
    given, sources, want = case
    assert decide(given, sources) == want


@pytest.mark.parametrize("unread", [{"dns": None}, {"cidr": None}, {"dns": None, "cidr": None}], ids=str)
def test_whose_addresses_pods_have_must_be_known(unread: dict[str, Any]) -> None:
    """IPv4 is what there is where nobody has anything to say, not where nobody could be asked."""
    given = settings(cluster_endpoint="https://x")
    with pytest.raises(NotKnownYet, match="IPv4 or IPv6"):
        decide(given, Sources(server_minor=34, authority=FILE, **unread))
    assert not decide(given, Sources(server_minor=34, authority=FILE)).ipv6


FAMILIES: dict[str, tuple[Sources, bool]] = {
    "the DNS Service tells": (Sources(server_minor=34, dns="fd00::a", cidr=None), True),
    "where it could not be read, the Services of the API server do": (
        Sources(server_minor=34, dns=None, cidr="fd00::/108"),
        True,
    ),
    "or those of EKS": (
        Sources(eks=EksCluster("a", "", "", 33, "fd00::/108", ""), server_minor=34, dns=None, cidr=None),
        True,
    ),
    "IPv4 likewise": (Sources(server_minor=34, dns=None, cidr="10.96.0.0/12"), False),
}


@pytest.mark.parametrize(("sources", "ipv6"), FAMILIES.values(), ids=FAMILIES)
def test_whose_addresses_pods_have(sources: Sources, ipv6: bool) -> None:
    given = settings(cluster_endpoint="https://x", cluster_ca_bundle="Q0E=")
    assert decide(given, sources).ipv6 is ipv6


def test_what_is_missing_is_named_with_what_to_set() -> None:
    with pytest.raises(NotKnownYet) as caught:
        decide(settings(), Sources(dns="10.0.0.10"))
    text = str(caught.value)
    assert "set CLUSTER_ENDPOINT" in text
    assert "set CLUSTER_CA_BUNDLE" in text
    assert "version" in text


ANSWERS: dict[str, tuple[dict[str, Any], EksCluster]] = {
    "a cluster": (
        {
            "arn": "a",
            "endpoint": "https://e",
            "version": "1.33",
            "certificateAuthority": {"data": "Q0E="},
            "kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.100.0.0/16"},
            "resourcesVpcConfig": {"vpcId": "vpc-1"},
        },
        EksCluster("a", "https://e", "Q0E=", 33, "10.100.0.0/16", "vpc-1"),
    ),
    "one of IPv6": (
        {"arn": "a", "version": "1.33", "kubernetesNetworkConfig": {"serviceIpv6Cidr": "fd00::/108"}},
        EksCluster("a", "", "", 33, "fd00::/108", ""),
    ),
    "one of IPv6 that has an IPv4 range too": (
        {
            "arn": "a",
            "version": "1.33",
            "kubernetesNetworkConfig": {
                "ipFamily": "ipv6",
                "serviceIpv4Cidr": "10.100.0.0/16",
                "serviceIpv6Cidr": "fd00::/108",
            },
        },
        EksCluster("a", "", "", 33, "fd00::/108", ""),
    ),
    "one that is being made": ({"arn": "a", "kubernetesNetworkConfig": None}, EksCluster("a", "", "", 0, "", "")),
}


@pytest.mark.parametrize("case", ANSWERS.values(), ids=ANSWERS)
def test_what_eks_says(case: tuple[dict[str, Any], EksCluster]) -> None:
    answer, want = case
    assert EksCluster.of({"cluster": answer}) == want
