"""AL2: the call of the image's start script, behind the user's parts."""

import shlex
from typing import Any

import pytest

from provisioner.ec2.launch.userdata import mime
from provisioner.ec2.launch.userdata.flags import kubelet_flags
from provisioner.ec2.launch.userdata.rendering import render
from provisioner.values.taints import Taint
from tests.support.userdata import node

WHOLE = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/bash -xe
exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1
/etc/eks/bootstrap.sh 'prod' --apiserver-endpoint 'https://prod.eks.amazonaws.com' --b64-cluster-ca 'Q0EtQlVORExF' \\
--dns-cluster-ip '10.100.0.10' \\
--use-max-pods false \\
--kubelet-extra-args '--node-labels="karpenter.sh/capacity-type=spot,karpenter.sh/do-not-sync-taints=true,karpenter.sh/nodepool=p" --register-with-taints="dedicated=gpu:NoSchedule,karpenter.sh/unregistered:NoExecute" --max-pods=58'
--//--
"""


def call(**changes: Any) -> list[str]:
    """The words of the generated call, as a shell reads them."""
    (*_, part) = mime.read(render(node("AL2", **changes)))
    lines = part.text.replace("\\\n", " ").splitlines()
    assert lines[0] == "#!/bin/bash -xe"
    return shlex.split(lines[-1])


def test_the_whole_of_it() -> None:
    assert render(node("AL2")) == WHOLE


CALLS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "the user's DNS server": ({"kubelet": {"clusterDNS": ["1.1.1.1"]}}, ["--dns-cluster-ip", "1.1.1.1"]),
    "IPv6": (
        {"kubelet": {"clusterDNS": ["fd00::a"]}},
        ["--ip-family", "ipv6", "--dns-cluster-ip", "fd00::a", "--use-max-pods", "false"],
    ),
    "local disks": ({"raid0": True}, ["--local-disks", "raid0"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_call(name: str) -> None:
    changes, words = CALLS[name]
    found = call(**changes)
    place = found.index(words[0])
    assert found[place : place + len(words)] == words


def test_what_is_not_wanted_is_not_said() -> None:
    found = call()
    assert "--ip-family" not in found
    assert "--local-disks" not in found


FLAGS: dict[str, tuple[dict[str, Any], str]] = {
    "pods per core": ({"podsPerCore": 4}, "--pods-per-core=4"),
    "reserved by the system, sorted": (
        {"systemReserved": {"memory": "1Gi", "cpu": "100m"}},
        '--system-reserved="cpu=100m,memory=1Gi"',
    ),
    "reserved by Kubernetes": ({"kubeReserved": {"pid": "100"}}, '--kube-reserved="pid=100"'),
    "hard eviction": (
        {"evictionHard": {"nodefs.available": "10%", "memory.available": "5%"}},
        '--eviction-hard="memory.available<5%,nodefs.available<10%"',
    ),
    "soft eviction": (
        {"evictionSoft": {"memory.available": "5%"}, "evictionSoftGracePeriod": {"memory.available": "1m"}},
        '--eviction-soft="memory.available<5%" --eviction-soft-grace-period="memory.available=1m"',
    ),
    "grace period of pods": ({"evictionMaxPodGracePeriod": 0}, "--eviction-max-pod-grace-period=0"),
    "images": (
        {"imageGCHighThresholdPercent": 85, "imageGCLowThresholdPercent": 80},
        "--image-gc-high-threshold=85 --image-gc-low-threshold=80",
    ),
    "no CPU quota": ({"cpuCFSQuota": False}, "--cpu-cfs-quota=false"),
    "empty maps and null": ({"kubeReserved": {}, "evictionHard": None, "podsPerCore": None, "cpuCFSQuota": None}, ""),
    "the user's pods are in what is computed": ({"maxPods": 9}, ""),
}


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag(name: str) -> None:
    kubelet, flags = FLAGS[name]
    usual = kubelet_flags(node("AL2"))
    assert kubelet_flags(node("AL2", kubelet=kubelet)) == f"{usual} {flags}".strip()


def test_flags_come_in_one_order() -> None:
    kubelet = {
        "cpuCFSQuota": True,
        "imageGCLowThresholdPercent": 1,
        "imageGCHighThresholdPercent": 2,
        "evictionMaxPodGracePeriod": 3,
        "evictionSoftGracePeriod": {"memory.available": "1m"},
        "evictionSoft": {"memory.available": "5%"},
        "evictionHard": {"memory.available": "5%"},
        "kubeReserved": {"cpu": "1"},
        "systemReserved": {"cpu": "1"},
        "podsPerCore": 4,
    }
    assert [flag.partition("=")[0] for flag in kubelet_flags(node("AL2", kubelet=kubelet)).split()] == [
        "--node-labels",
        "--register-with-taints",
        "--max-pods",
        "--pods-per-core",
        "--system-reserved",
        "--kube-reserved",
        "--eviction-hard",
        "--eviction-soft",
        "--eviction-soft-grace-period",
        "--eviction-max-pod-grace-period",
        "--image-gc-high-threshold",
        "--image-gc-low-threshold",
        "--cpu-cfs-quota",
    ]


def test_without_labels_and_taints_there_are_no_flags_of_them() -> None:
    assert kubelet_flags(node("AL2", labels={}, taints=())) == "--max-pods=58"


def test_the_order_of_a_map_does_not_matter() -> None:
    one = node("AL2", kubelet={"kubeReserved": {"cpu": "1", "memory": "1Gi"}}, labels={"a": "1", "b": "2"})
    other = node("AL2", kubelet={"kubeReserved": {"memory": "1Gi", "cpu": "1"}}, labels={"b": "2", "a": "1"})
    assert render(one) == render(other)


def test_a_quote_within_a_value_stays_within_it() -> None:
    taint = Taint(key="a", value="it's", effect="NoSchedule")
    found = call(taints=(taint,))
    assert "it's" in found[found.index("--kubelet-extra-args") + 1]


SCRIPT = "#!/bin/bash\necho hi\n"
USERS: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "nothing": ("", []),
    "space": (" \n", []),
    "a script": (SCRIPT, [("text/x-shellscript", SCRIPT)]),
    "anything else is a script": ("a: b", [("text/x-shellscript", "a: b")]),
    "a MIME document": (
        mime.write([mime.MimePart.of("text/cloud-config", "a: b"), mime.MimePart.of(mime.SHELL_SCRIPT, SCRIPT)]),
        [("text/cloud-config", "a: b"), ("text/x-shellscript", SCRIPT)],
    ),
}


@pytest.mark.parametrize("name", USERS)
def test_the_users_parts_come_first(name: str) -> None:
    text, want = USERS[name]
    *user, ours = mime.read(render(node("AL2", user_data=text)))
    assert [(part.media_type, part.text) for part in user] == want
    assert "/etc/eks/bootstrap.sh" in ours.text
