"""NodeConfigs, which nodeadm of the AL2023 images reads: which of them it takes, and which of their fields it looks at. Pure.

nodeadm reads every part of type application/node.eks.aws, merges them, and gives up at the first that it cannot take: the node never joins.

Source: https://awslabs.github.io/amazon-eks-ami/nodeadm/doc/api, https://awslabs.github.io/amazon-eks-ami/nodeadm/doc/examples, and
    nodeadm/internal/configprovider and nodeadm/internal/api/bridge of github.com/awslabs/amazon-eks-ami.
"""

import base64
import binascii
import functools
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from provisioner.apis import openapi
from provisioner.values import yamltext
from provisioner.values.message import Said

API_VERSION: Final = "node.eks.aws/v1alpha1"
KIND: Final = "NodeConfig"
_MOST_BYTES: Final = 1 << 17
"""Of a part that is compressed; a longer one is not judged."""

_TEXT: Final = {"type": "string"}
_FLAG: Final = {"type": "boolean"}
_ANYTHING: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_ONLY_THE_FIRST_DOCUMENT: Final = Said(
    "nodeadm reads only the first YAML document; remove the --- behind it and what follows, or use a MIME part for "
    "each NodeConfig"
)


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


_SCHEMA: Final = _object(
    apiVersion=_TEXT,
    kind=_TEXT,
    metadata=_ANYTHING,
    spec=_object(
        cluster=_object(
            name=_TEXT,
            apiServerEndpoint=_TEXT,
            certificateAuthority={**_TEXT, "pattern": "^[A-Za-z0-9+/\\r\\n]*(?:=[=\\r\\n]*)?$"},
            cidr=_TEXT,
            enableOutpost=_FLAG,
            id=_TEXT,
        ),
        containerd=_object(config=_TEXT, baseRuntimeSpec=_ANYTHING),
        featureGates={"type": "object", "additionalProperties": _FLAG},
        instance=_object(
            localStorage=_object(
                strategy={**_TEXT, "enum": ["RAID0", "RAID10", "Mount"]},
                mountPath=_TEXT,
                disabledMounts={"type": "array", "items": {**_TEXT, "enum": ["Containerd", "PodLogs"]}},
            )
        ),
        kubelet=_object(config=_ANYTHING, flags={"type": "array", "items": _TEXT}, maxPodsExpression=_TEXT),
    ),
)


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """A part of type application/node.eks.aws, read.

    Attributes:
        problem: why nodeadm does not take it; "" when it does, or that cannot be told.
        unread: a sentence for what nodeadm passes over in a part that it takes; unknown fields may be those of a newer nodeadm.
        cluster: its spec.cluster, as it stands there; empty where there is none.
    """

    problem: str = ""
    unread: tuple[str, ...] = ()
    cluster: Mapping[str, Any] = field(default_factory=dict)


def _not_a_node_config(problem: str) -> str:
    return Said(f"nodeadm cannot read a part of type application/node.eks.aws, and nodes would not join: {problem}")


def _unknown_node_config_field(field: str) -> str:
    """A warning; `field` is a path and what is wrong with it."""
    return Said(f"NodeConfig {field}; nodeadm ignores it, unless the image has a newer version that supports it")


@functools.lru_cache(maxsize=32)  # whoever judges a class asks for each of these; a part has 64 KiB at most
def read(text: str) -> NodeConfig:
    """What a part says.

    Args:
        text: of the part; it may be base64, and compressed within.
    """
    try:
        found = _first(text)
    except yamltext.UnboundedError:
        return NodeConfig()
    except ValueError as error:
        return NodeConfig(
            Said(
                f"nodeadm cannot decompress a part of type application/node.eks.aws, and nodes would not join: {error}"
            )
        )
    except yamltext.YamlDocumentError as error:
        return NodeConfig(_not_a_node_config(str(error)))
    document = found.value
    if not isinstance(document, Mapping):
        return NodeConfig(_not_a_node_config(Said("its first document is not a mapping")))
    spec = document.get("spec")
    cluster = spec.get("cluster") if isinstance(spec, Mapping) else None
    cluster = cluster if isinstance(cluster, Mapping) else {}
    version, kind = document.get("apiVersion"), document.get("kind")
    if (version, kind) != (API_VERSION, KIND):
        said = f"apiVersion {openapi.shown(version)}, kind {openapi.shown(kind)}" if version or kind else ""
        return NodeConfig(
            Said(
                f"YAML for AL2023 must be a {KIND} of {API_VERSION}, or nodes would not join; found "
                f"{said or 'neither apiVersion nor kind'}. Put other content into a separate MIME part of the matching type, such "
                "as text/cloud-config"
            ),
            cluster=cluster,
        )
    wrong, unknown = openapi.judged(_SCHEMA, document)
    if wrong:
        return NodeConfig(
            Said(f"nodeadm refuses the NodeConfig, and nodes would not join: {wrong[0]}"), cluster=cluster
        )
    passed_over = [_unknown_node_config_field(str(one)) for one in unknown]
    return NodeConfig("", (*passed_over, *([_ONLY_THE_FIRST_DOCUMENT] if found.more else ())), cluster)


def _first(text: str) -> yamltext.First:
    """The first document of a part.

    Raises:
        ValueError: it is compressed and cannot be read.
        YamlDocumentError: of `yamltext.first`.
    """
    try:
        data = base64.b64decode(text.replace("\n", "").encode(), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return yamltext.first(text)
    if data.startswith(b"\x1f\x8b"):
        try:
            unpacking = zlib.decompressobj(31)
            data = unpacking.decompress(data, _MOST_BYTES)
        except zlib.error as error:
            raise ValueError(str(error)) from None
        if not unpacking.eof:
            raise yamltext.UnboundedError
    return yamltext.first(data.decode(errors="replace"))
