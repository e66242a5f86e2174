"""Bottlerocket: settings with ours on top."""

import tomllib
from typing import Any

import msgspec
import pytest

from provisioner.apis.ec2 import EC2NodeClass
from provisioner.ec2.launch.userdata.bottlerocket import version_of
from provisioner.ec2.launch.userdata.inputs import UserDataError
from provisioner.ec2.launch.userdata.rendering import render
from provisioner.values.taints import Taint
from tests.support.userdata import node

WHOLE = """[settings.kubernetes]
api-server = "https://prod.eks.amazonaws.com"
cluster-certificate = "Q0EtQlVORExF"
cluster-dns-ip = "10.100.0.10"
cluster-name = "prod"
max-pods = 58

[settings.kubernetes.node-labels]
"karpenter.sh/capacity-type" = "spot"
"karpenter.sh/do-not-sync-taints" = "true"
"karpenter.sh/nodepool" = "p"

[settings.kubernetes.node-taints]
dedicated = ["gpu:NoSchedule"]
"karpenter.sh/unregistered" = [":NoExecute"]
"""


def settings(user: str = "", **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(render(node("Bottlerocket", user_data=user, **changes)))["settings"]
    return found


def kubernetes(user: str = "", **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = settings(user, **changes)["kubernetes"]
    return found


def test_the_whole_of_it() -> None:
    assert render(node("Bottlerocket")) == WHOLE


def test_other_settings_of_the_user_are_kept() -> None:
    user = """
[settings.ntp]
time-servers = ["a", "b"]
[settings.network]
https-proxy = "p:80"
[[settings.container-registry.mirrors]]
registry = "docker.io"
endpoint = ["https://m"]
[settings.bootstrap-containers.a]
mode = "once"
"""
    found = settings(user)
    assert {key: found[key] for key in found.keys() - {"kubernetes"}} == {
        "ntp": {"time-servers": ["a", "b"]},
        "network": {"https-proxy": "p:80"},
        "container-registry": {"mirrors": [{"registry": "docker.io", "endpoint": ["https://m"]}]},
        "bootstrap-containers": {"a": {"mode": "once"}},
    }


def test_what_is_not_a_setting_is_left_out() -> None:
    assert tomllib.loads(render(node("Bottlerocket", user_data='other = "x"'))).keys() == {"settings"}


KNOWN_BY_NOBODY = """
[settings.kubernetes]
brand-new-key = 7
registry-qps = 10
cluster-name = "other"
api-server = "https://other"
cluster-certificate = "T1RIRVI="
max-pods = 1
cluster-dns-ip = "9.9.9.9"
[settings.kubernetes.credential-providers.ecr]
enabled = true
[settings.kubernetes.node-labels]
mine = "1"
"karpenter.sh/nodepool" = "other"
[settings.kubernetes.node-taints]
mine = ["1:NoSchedule"]
"""


def test_the_user_s_keys_are_kept_the_unknown_ones_too() -> None:
    found = kubernetes(KNOWN_BY_NOBODY)
    assert (found["brand-new-key"], found["registry-qps"]) == (7, 10)
    assert found["credential-providers"] == {"ecr": {"enabled": True}}


def test_ours_win() -> None:
    found = kubernetes(KNOWN_BY_NOBODY)
    assert found["cluster-name"] == "prod"
    assert found["api-server"] == "https://prod.eks.amazonaws.com"
    assert found["cluster-certificate"] == "Q0EtQlVORExF"
    assert (found["max-pods"], found["cluster-dns-ip"]) == (58, "10.100.0.10")


def test_labels_are_joined_and_ours_win() -> None:
    assert kubernetes(KNOWN_BY_NOBODY)["node-labels"] == {
        "karpenter.sh/capacity-type": "spot",
        "karpenter.sh/do-not-sync-taints": "true",
        "karpenter.sh/nodepool": "p",
        "mine": "1",
    }


def test_taints_are_replaced_wholly() -> None:
    taints = (Taint("a", "NoSchedule", "x"), Taint("a", "NoExecute", "x"), Taint("b", "NoExecute"))
    assert kubernetes(KNOWN_BY_NOBODY, taints=taints)["node-taints"] == {
        "a": ["x:NoSchedule", "x:NoExecute"],
        "b": [":NoExecute"],
    }


KUBELET: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the first DNS server": ({"clusterDNS": ["1.1.1.1", "2.2.2.2"]}, {"cluster-dns-ip": "1.1.1.1"}),
    "hard eviction": ({"evictionHard": {"memory.available": "5%"}}, {"eviction-hard": {"memory.available": "5%"}}),
    "soft eviction": (
        {"evictionSoft": {"memory.available": "5%"}, "evictionSoftGracePeriod": {"memory.available": "1m"}},
        {"eviction-soft": {"memory.available": "5%"}, "eviction-soft-grace-period": {"memory.available": "1m"}},
    ),
    "grace period of pods": ({"evictionMaxPodGracePeriod": 60}, {"eviction-max-pod-grace-period": 60}),
    "reserved": (
        {"kubeReserved": {"cpu": "1"}, "systemReserved": {"memory": "1Gi"}},
        {"kube-reserved": {"cpu": "1"}, "system-reserved": {"memory": "1Gi"}},
    ),
    "image percentages are texts": (
        {"imageGCHighThresholdPercent": 85, "imageGCLowThresholdPercent": 80},
        {"image-gc-high-threshold-percent": "85", "image-gc-low-threshold-percent": "80"},
    ),
    "no CPU quota": ({"cpuCFSQuota": False}, {"cpu-cfs-quota-enforced": False}),
}


@pytest.mark.parametrize("name", KUBELET)
def test_a_field_of_the_kubelet(name: str) -> None:
    kubelet, want = KUBELET[name]
    assert kubernetes(kubelet=kubelet) == kubernetes() | want


def test_null_is_absent() -> None:
    assert kubernetes(kubelet={"evictionHard": None, "cpuCFSQuota": None, "clusterDNS": None}) == kubernetes()


OLD = ["apiclient", "ephemeral-storage", "bind", "--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]
NEW = ["apiclient", "ephemeral-storage", "bind"]


@pytest.mark.parametrize(
    ("version", "bind"),
    [
        ("1.46.0", NEW),
        ("latest", NEW),
        ("2.0.0", NEW),
        ("v1.46.1", NEW),
        ("1.45.9", OLD),
        ("1.9.0", OLD),
        ("", OLD),
        ("x", OLD),
    ],
)
def test_local_disks(version: str, bind: list[str]) -> None:
    user = '[settings.bootstrap-commands.mine]\nmode = "once"\n'
    assert settings(user, raid0=True, bottlerocket_version=version)["bootstrap-commands"] == {
        "mine": {"mode": "once"},
        "000-mount-instance-storage": {
            "commands": [["apiclient", "ephemeral-storage", "init"], bind],
            "essential": True,
            "mode": "always",
        },
    }


def test_without_local_disks_the_user_s_commands_stay() -> None:
    assert "bootstrap-commands" not in settings()
    assert settings('[settings.bootstrap-commands.a]\nmode = "once"\n')["bootstrap-commands"] == {"a": {"mode": "once"}}


def test_an_instance_of_no_auto_scaling_group_does_not_wait_for_one() -> None:
    assert settings("[settings.autoscaling]\nshould-wait = true\nother = 1\n")["autoscaling"] == {
        "should-wait": False,
        "other": 1,
    }
    assert settings("[settings.autoscaling]\nother = 1\n")["autoscaling"] == {"other": 1}


BROKEN: dict[str, tuple[str, str]] = {
    "no TOML": ("[settings", "not valid TOML"),
    "TOML that is nested too deeply": (f"a = {'[' * 5000}{']' * 5000}", "nested too deeply"),
    "a key that is nested too deeply": (f"a{'.a' * 200} = 1", "nested too deeply"),
    "an integer of more digits than Python reads": (f"[settings]\na = {'1' * 5000}", "does not fit into 64 bits"),
    "an integer that it reads and cannot write": (
        f"[settings]\na = [{{b = 0x{'f' * 4000}}}]",
        "does not fit into 64 bits",
    ),
    "an integer that Bottlerocket does not read": ("[settings]\na = 9223372036854775808", "does not fit into 64 bits"),
    "settings that are a text": ('settings = "x"', "settings is not a table"),
    "kubernetes that is a number": ("[settings]\nkubernetes = 1", "settings.kubernetes is not a table"),
    "labels that are a list": ("[settings.kubernetes]\nnode-labels = []", "node-labels is not a table"),
    "commands that are a text": ('[settings]\nbootstrap-commands = "x"', "settings.bootstrap-commands is not a table"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_read(name: str) -> None:
    text, words = BROKEN[name]
    with pytest.raises(UserDataError, match=words):
        render(node("Bottlerocket", user_data=text))


NAMED = {"id": "ami-1", "name": "bottlerocket-aws-k8s-1.33-x86_64-v1.45.2-abc", "requirements": []}
VERSIONS: dict[str, tuple[list[dict[str, str]], list[dict[str, Any]], str]] = {
    "of the alias": ([{"alias": "bottlerocket@v1.20.4"}], [NAMED], "1.20.4"),
    "of the alias, latest": ([{"alias": "bottlerocket@latest"}], [], "latest"),
    "of the alias, without v": ([{"alias": "bottlerocket@1.20.4"}], [], "1.20.4"),
    "of the name that is asked for": ([{"name": "bottlerocket-aws-k8s-*-v1.46.0-*"}], [NAMED], "1.46.0"),
    "of the image with the id that is asked for": ([{"id": "ami-1"}], [NAMED], "1.45.2"),
    "of the name of any image": ([{"ssmParameter": "/a"}], [NAMED], "1.45.2"),
    "not of an image of another name": ([{"ssmParameter": "/a"}], [NAMED | {"name": "mine-v1.45.2"}], ""),
    "not of the Kubernetes version in a name": ([{"name": "bottlerocket-aws-k8s-1.33-*"}], [], ""),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_the_version(name: str) -> None:
    terms, amis, want = VERSIONS[name]
    wire = {"spec": {"amiSelectorTerms": terms, "amiFamily": "Bottlerocket"}, "status": {"amis": amis}}
    assert version_of(msgspec.convert(wire, EC2NodeClass)) == want
