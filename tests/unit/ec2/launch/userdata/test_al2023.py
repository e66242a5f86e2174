"""AL2023: a NodeConfig behind the user's parts."""

import dataclasses
import tracemalloc
from typing import Any

import pytest
import yaml

from provisioner.ec2.launch.userdata import al2023, mime
from provisioner.ec2.launch.userdata.contradictions import contradictions
from provisioner.ec2.launch.userdata.inputs import UserDataError
from provisioner.ec2.launch.userdata.rendering import refused, render
from tests.support.userdata import CLUSTER, node

WHOLE = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: application/node.eks.aws

# Karpenter Generated NodeConfig
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
metadata: {}
spec:
  cluster:
    apiServerEndpoint: https://prod.eks.amazonaws.com
    certificateAuthority: Q0EtQlVORExF
    cidr: "10.100.0.0/16"
    name: prod
  containerd: {}
  instance:
    localStorage: {}
  kubelet:
    config:
      clusterDNS:
      - "10.100.0.10"
      maxPods: 58
      registerWithTaints:
      - effect: NoSchedule
        key: dedicated
        value: gpu
      - effect: NoExecute
        key: karpenter.sh/unregistered
    flags:
    - "--node-labels=\\"karpenter.sh/capacity-type=spot,karpenter.sh/do-not-sync-taints=true,karpenter.sh/nodepool=p\\""

--//--
"""


def config(**changes: Any) -> dict[str, Any]:
    """The spec of the generated NodeConfig."""
    (*_, part) = mime.read(render(node("AL2023", **changes)))
    assert part.headers == (("Content-Type", "application/node.eks.aws"),)
    spec: dict[str, Any] = yaml.safe_load(part.text)["spec"]
    return spec


def test_the_whole_of_it() -> None:
    assert render(node("AL2023")) == WHOLE


def test_local_disks() -> None:
    assert config(raid0=True)["instance"] == {"localStorage": {"strategy": "RAID0"}}


def test_the_kubelet_s_fields_go_through_as_they_are() -> None:
    kubelet = {
        "featureGates": {"B": False, "A": True},
        "memoryThrottlingFactor": 0.8,
        "kubeReserved": {"cpu": "1"},
        "allowedUnsafeSysctls": ["net.*"],
    }
    assert kubelet.items() <= config(kubelet=kubelet)["kubelet"]["config"].items()


def test_our_fields_win() -> None:
    found = config(kubelet={"maxPods": 9, "clusterDNS": ["1.1.1.1", "2.2.2.2"]})["kubelet"]["config"]
    assert (found["maxPods"], found["clusterDNS"]) == (58, ["1.1.1.1", "2.2.2.2"])


def test_without_dns_labels_and_taints() -> None:
    found = config(cluster=dataclasses.replace(CLUSTER, dns=""), labels={}, taints=())
    assert found["kubelet"] == {"config": {"maxPods": 58}}


@pytest.mark.parametrize(
    "text", ["y", "n", "1e3", "0x1f", "0o17", "12:30", "1_000", "~", "null", "on", ".5", "2026-01-01", ""]
)
def test_texts_that_some_yaml_takes_for_something_else_are_quoted(text: str) -> None:
    rendered = render(node("AL2023", kubelet={"clusterDomain": text}))
    assert f"clusterDomain: '{text}'" in rendered or f'clusterDomain: "{text}"' in rendered


def test_the_service_cidr_must_be_known() -> None:
    with pytest.raises(UserDataError, match="service CIDR"):
        render(node("AL2023", cluster=dataclasses.replace(CLUSTER, cidr="")))


def test_yaml_that_is_nested_too_deeply_is_the_users_error() -> None:
    with pytest.raises(UserDataError, match="nested too deeply"):
        render(node("AL2023", user_data="a: " + "[" * 5000 + "]" * 5000))


def test_merge_keys_are_not_unfolded() -> None:
    """Of 10,000 bytes they made gigabytes, in the webhook and in the leader."""
    keys = ", ".join(f"k{at}: 1" for at in range(300))
    inner = f"<<: [&a {{{keys}}}, {', '.join(['*a'] * 300)}]"
    bomb = f"<<: [&b {{{inner}}}, {', '.join(['*b'] * 30)}]"
    tracemalloc.start()
    try:
        with pytest.raises(UserDataError, match="expand to too much"):
            al2023.parts_of(bomb)
        assert refused("AL2023", mime.write([mime.MimePart.of(mime.NODE_CONFIG, bomb)])) == ""
        assert contradictions("AL2023", bomb, CLUSTER) == ()
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


CONFIG = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet:\n    flags: [--v=4]\n"
USERS: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "nothing": ("", []),
    "a NodeConfig": (CONFIG, [("application/node.eks.aws", CONFIG)]),
    "a script": ("#!/bin/bash\necho hi\n", [("text/x-shellscript", "#!/bin/bash\necho hi\n")]),
    "a script that YAML takes for a mapping": ("#!/bin/bash\na: b", [("text/x-shellscript", "#!/bin/bash\na: b")]),
    "a text that YAML takes for a text": ("echo hi", [("text/x-shellscript", "echo hi")]),
    "a text that is not valid YAML": ("a: [", [("text/x-shellscript", "a: [")]),
    "a text with a date that is none": ("2026-99-99", [("text/x-shellscript", "2026-99-99")]),
    "a NodeConfig with a date that is none": (
        f"{CONFIG}a: 2026-99-99",
        [("application/node.eks.aws", f"{CONFIG}a: 2026-99-99")],
    ),
    "two documents": (f"{CONFIG}---\n{CONFIG}", [("application/node.eks.aws", f"{CONFIG}---\n{CONFIG}")]),
    "a document and something else": (f"{CONFIG}---\n[", [("application/node.eks.aws", f"{CONFIG}---\n[")]),
    "a key that stands twice": ("a: 1\na: 2", [("application/node.eks.aws", "a: 1\na: 2")]),
    "comments alone": ("# nothing\n", [("text/x-shellscript", "# nothing\n")]),
    "a MIME document": (
        mime.write([mime.MimePart.of(mime.NODE_CONFIG, CONFIG), mime.MimePart.of(mime.SHELL_SCRIPT, "x")]),
        [("application/node.eks.aws", CONFIG), ("text/x-shellscript", "x")],
    ),
}


@pytest.mark.parametrize("name", USERS)
def test_the_users_parts_come_first(name: str) -> None:
    text, want = USERS[name]
    *user, ours = mime.read(render(node("AL2023", user_data=text)))
    assert [(part.media_type, part.text) for part in user] == want
    assert ours.text.startswith("# Karpenter Generated NodeConfig\n")


def test_equal_inputs_give_equal_bytes() -> None:
    one = node("AL2023", kubelet={"a": {"x": 1, "y": 2}, "b": 1}, labels={"a": "1", "b": "2"})
    other = node("AL2023", kubelet={"b": 1, "a": {"y": 2, "x": 1}}, labels={"b": "2", "a": "1"})
    assert render(one) == render(other)
