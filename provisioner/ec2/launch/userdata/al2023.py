"""AL2023: a NodeConfig for nodeadm, in a MIME document behind the user's parts, so that its values win. Pure.

Source: AWS spec 2.5. Differs: user data that begins like a script is one, even where it also parses as a YAML mapping, and so is a text of
    comments alone, which the provider gives to nodeadm.
"""

import functools
import re
from typing import Any, Final

import msgspec
import yaml

from provisioner.ec2.launch.userdata import mime, node_config
from provisioner.ec2.launch.userdata.flags import label_flag
from provisioner.ec2.launch.userdata.inputs import NodeInput, UserDataError
from provisioner.values import yamltext

HEADING: Final = "# Karpenter Generated NodeConfig\n"


_PLAIN: Final = re.compile(r"[A-Za-z/][\w./:-]+", re.ASCII)


class _Dumper(yaml.SafeDumper):
    """Without anchors, and every text quoted that some YAML reads as something else: y, 1e3, 0x1f, 12:30."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - yaml's signature
        return True


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _PLAIN.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text_node)


def parts_of(user_data: str) -> tuple[mime.MimePart, ...]:
    """The user's parts: those of a MIME document, else one NodeConfig or one script.

    Raises:
        UserDataError: the MIME document cannot be read, or it is YAML nested too deeply.
    """
    if not user_data.strip():
        return ()
    if mime.is_mime(user_data):
        return mime.read(user_data)
    return (mime.MimePart.of(mime.NODE_CONFIG if is_mapping(user_data) else mime.SHELL_SCRIPT, user_data),)


def render(node: NodeInput) -> str:
    """The whole user data.

    Raises:
        UserDataError: the user's MIME document cannot be read, or the cluster's service CIDR is not known.
    """
    return mime.write((*parts_of(node.user_data), mime.MimePart.of(mime.NODE_CONFIG, _text(node))))


def kubelet_config(node: NodeInput) -> dict[str, Any]:
    """The KubeletConfiguration: the user's fields, with those on top that are ours to say."""
    config: dict[str, Any] = {**node.kubelet, "maxPods": node.max_pods}
    if node.cluster_dns:
        config["clusterDNS"] = list(node.cluster_dns)
    if node.taints:
        config["registerWithTaints"] = [
            {"key": one.key, "effect": one.effect} | ({"value": one.value} if one.value else {}) for one in node.taints
        ]
    return config


def _text(node: NodeInput) -> str:
    cluster = node.cluster
    if not cluster.cidr:
        raise UserDataError("AL2023 needs the service CIDR of the cluster, which is not known")
    kubelet: dict[str, Any] = {"config": kubelet_config(node)}
    if flag := label_flag(node.labels):
        kubelet["flags"] = [flag]
    document = {
        "apiVersion": node_config.API_VERSION,
        "kind": node_config.KIND,
        "metadata": {},
        "spec": {
            "cluster": {
                "apiServerEndpoint": cluster.endpoint,
                "certificateAuthority": cluster.ca_bundle,
                "cidr": cluster.cidr,
                "name": cluster.name,
            },
            "containerd": {},
            "instance": {"localStorage": {"strategy": "RAID0"} if node.raid0 else {}},
            "kubelet": kubelet,
        },
    }
    return HEADING + _yaml(msgspec.json.encode(document, order="sorted"))


@functools.lru_cache(maxsize=512)
def _yaml(document: bytes) -> str:
    """YAML of a JSON document. Kept, because it takes 3 ms, and the nodes of a launch differ in little but maxPods."""
    return yaml.dump(
        msgspec.json.decode(document),
        Dumper=_Dumper,
        sort_keys=True,
        default_flow_style=False,
        width=1 << 20,
        allow_unicode=True,
    )


@functools.lru_cache(maxsize=32)
def is_mapping(text: str) -> bool:
    """Whether a text that does not say its type is YAML: its first document is a mapping, and it is no script.

    Raises:
        UserDataError: it is nested too deeply.
    """
    if text.lstrip().startswith("#!"):
        return False
    try:
        return isinstance(yamltext.first(text).value, dict)
    except yamltext.UnboundedError:
        raise UserDataError("the YAML is nested too deeply, or its aliases expand to too much") from None
    except yamltext.YamlDocumentError:
        return False
