"""What a user's own user data says of another cluster."""

import dataclasses

import pytest

from provisioner.ec2.launch.userdata import mime
from provisioner.ec2.launch.userdata.contradictions import contradictions
from tests.support.userdata import CLUSTER

OTHER_CONFIG = """
spec:
  cluster:
    name: staging
    apiServerEndpoint: https://staging
    certificateAuthority: T1RIRVI=
    cidr: 10.0.0.0/16
"""
SAME_CONFIG = """
spec:
  cluster:
    name: prod
    apiServerEndpoint: https://PROD.eks.amazonaws.com:443/
    certificateAuthority: |
      Q0EtQlVO
      RExF
    cidr: 10.100.0.0/16
"""
NAME = 'has the cluster name "staging", but this cluster has "prod"'
ENDPOINT = 'has the endpoint "https://staging", but this cluster has "https://prod.eks.amazonaws.com"'
CA = "has a different certificate authority than this cluster"
CONFIGURED = (
    f"NodeConfig spec.cluster.name {NAME}",
    f"NodeConfig spec.cluster.apiServerEndpoint {ENDPOINT}",
    f"NodeConfig spec.cluster.certificateAuthority {CA}",
    'NodeConfig spec.cluster.cidr has the service CIDR "10.0.0.0/16", but this cluster has "10.100.0.0/16"',
)
CALL = """#!/bin/bash
set -e
/etc/eks/bootstrap.sh staging \\
  --apiserver-endpoint https://staging --b64-cluster-ca=T1RIRVI= --kubelet-extra-args '--v=4' # later
"""
CALLED = (
    f"the call of /etc/eks/bootstrap.sh {NAME}",
    f"--apiserver-endpoint of the call of /etc/eks/bootstrap.sh {ENDPOINT}",
    f"--b64-cluster-ca of the call of /etc/eks/bootstrap.sh {CA}",
)
POWERSHELL = (
    """& $file -EKSClusterName "staging" -APIServerEndpoint 'https://staging' -Base64ClusterCA T1RIRVI= -Other x"""
)
STARTED = (
    f"-EKSClusterName of the start script {NAME}",
    f"-APIServerEndpoint of the start script {ENDPOINT}",
    f"-Base64ClusterCA of the start script {CA}",
)
SETTINGS = """
[settings.kubernetes]
cluster-name = "staging"
api-server = "https://staging"
cluster-certificate = "T1RIRVI="
"""
SET = (
    f"settings.kubernetes.cluster-name {NAME}",
    f"settings.kubernetes.api-server {ENDPOINT}",
    f"settings.kubernetes.cluster-certificate {CA}",
)


def document(kind: str, text: str) -> str:
    return mime.write([mime.MimePart.of(mime.SHELL_SCRIPT, "#!/bin/sh\necho"), mime.MimePart.of(kind, text)])


CASES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "AL2023: nothing": ("AL2023", "", ()),
    "AL2023: another cluster": ("AL2023", OTHER_CONFIG, CONFIGURED),
    "AL2023: this cluster, spelled otherwise": ("AL2023", SAME_CONFIG, ()),
    "AL2023: another cluster in a part": ("AL2023", document(mime.NODE_CONFIG, OTHER_CONFIG), CONFIGURED),
    "AL2023: only the first document of a part is read": (
        "AL2023",
        document(mime.NODE_CONFIG, f"{OTHER_CONFIG}---\n{SAME_CONFIG}"),
        CONFIGURED,
    ),
    "AL2023: a later document of a part is not read": (
        "AL2023",
        document(mime.NODE_CONFIG, f"{SAME_CONFIG}---\n{OTHER_CONFIG}"),
        (),
    ),
    "AL2023: a part that cannot be read": ("AL2023", document(mime.NODE_CONFIG, "a: ["), ()),
    "AL2023: a document that cannot be read": ("AL2023", "MIME-Version: 1.0\n\n", ()),
    "AL2023: values of other types": ("AL2023", "spec:\n  cluster:\n    name: 1\n    cidr: []\n", ()),
    "AL2023: a cluster that is a text": ("AL2023", "spec:\n  cluster: x\n", ()),
    "AL2: another cluster": ("AL2", CALL, CALLED),
    "AL2: another cluster in a part": ("AL2", document(mime.SHELL_SCRIPT, CALL), CALLED),
    "AL2: this cluster": (
        "AL2",
        "/etc/eks/bootstrap.sh prod --apiserver-endpoint 'https://prod.eks.amazonaws.com'",
        (),
    ),
    "AL2: flags before the name": (
        "AL2",
        "/etc/eks/bootstrap.sh --apiserver-endpoint https://staging --use-max-pods false staging",
        (CALLED[1], CALLED[0]),
    ),
    "AL2: what the shell makes says nothing": (
        "AL2",
        '/etc/eks/bootstrap.sh "$CLUSTER" --apiserver-endpoint "${URL}" --b64-cluster-ca `cat ca`',
        (),
    ),
    "AL2: another command behind": ("AL2", "/etc/eks/bootstrap.sh prod && echo --apiserver-endpoint https://x", ()),
    "AL2: a comment": ("AL2", "# /etc/eks/bootstrap.sh staging", ()),
    "AL2: a quote that does not end": ("AL2", "/etc/eks/bootstrap.sh 'staging", ()),
    "AL2: a flag without value": ("AL2", "/etc/eks/bootstrap.sh prod --b64-cluster-ca", ()),
    "AL2: the same twice is told once": ("AL2", f"{CALL}\n{CALL}", CALLED),
    "Windows: another cluster": ("Windows2022", POWERSHELL, STARTED),
    "Windows: this cluster": ("Windows2022", "-EKSClusterName prod", ()),
    "Windows: a variable": ("Windows2022", "-EKSClusterName $name", ()),
    "Windows: another service CIDR": (
        "Windows2022",
        "-ServiceCIDR 10.0.0.0/16",
        ('-ServiceCIDR of the start script has the service CIDR "10.0.0.0/16", but this cluster has "10.100.0.0/16"',),
    ),
    "Bottlerocket: another cluster": ("Bottlerocket", SETTINGS, SET),
    "Bottlerocket: what cannot be read": ("Bottlerocket", "[settings", ()),
    "Bottlerocket: values of other types": ("Bottlerocket", "[settings.kubernetes]\ncluster-name = 1", ()),
    "Custom: a script": ("Custom", CALL, CALLED),
    "Custom: a NodeConfig": ("Custom", OTHER_CONFIG, CONFIGURED),
    "Custom: PowerShell": ("Custom", f"<powershell>\n{POWERSHELL}\n</powershell>", STARTED),
    "Custom: settings": ("Custom", SETTINGS, SET),
    "Custom: anything": ("Custom", "\x00\x01", ()),
}


@pytest.mark.parametrize("name", CASES)
def test_a_contradiction(name: str) -> None:
    family, text, want = CASES[name]
    assert contradictions(family, text, CLUSTER) == want


def test_what_is_not_known_of_the_cluster_contradicts_nothing() -> None:
    unknown = dataclasses.replace(CLUSTER, cidr="", ca_bundle="")
    assert contradictions("AL2023", OTHER_CONFIG, unknown) == CONFIGURED[:2]


def test_certificates_are_never_shown() -> None:
    for family, text, _ in CASES.values():
        for sentence in contradictions(family, text, CLUSTER):
            assert "T1RIRVI=" not in sentence
            assert CLUSTER.ca_bundle not in sentence


def test_thousands_of_calls_are_no_thousands_of_events() -> None:
    script = "#!/bin/sh\n" + "".join(f"/etc/eks/bootstrap.sh c{number}\n" for number in range(1000))
    found = contradictions("AL2", script, CLUSTER)
    assert (len(found), '"c0"' in found[0], '"c9"' in found[-1]) == (10, True, True)
