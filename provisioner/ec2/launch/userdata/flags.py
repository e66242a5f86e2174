"""The kubelet's fields as command line flags, for the families whose start script takes no file. Pure."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from provisioner.ec2.launch.userdata.inputs import NodeInput

_BEFORE_EVICTION: Final = (("--system-reserved", "systemReserved", "="), ("--kube-reserved", "kubeReserved", "="))
_EVICTION: Final = (
    ("--eviction-hard", "evictionHard", "<"),
    ("--eviction-soft", "evictionSoft", "<"),
    ("--eviction-soft-grace-period", "evictionSoftGracePeriod", "="),
)
_NUMBERS: Final = (
    ("--eviction-max-pod-grace-period", "evictionMaxPodGracePeriod"),
    ("--image-gc-high-threshold", "imageGCHighThresholdPercent"),
    ("--image-gc-low-threshold", "imageGCLowThresholdPercent"),
)


def kubelet_flags(node: NodeInput) -> str:
    """All flags in one line; maps are sorted, what is empty is left out."""
    return " ".join(_flags(node))


def label_flag(labels: Mapping[str, str]) -> str:
    """`--node-labels="..."`, sorted; "" without labels."""
    pairs = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    return f"--node-labels={_quoted(pairs)}" if pairs else ""


def _flags(node: NodeInput) -> Iterator[str]:
    kubelet = node.kubelet
    if labels := label_flag(node.labels):
        yield labels
    if taints := ",".join(map(str, node.taints)):
        yield f"--register-with-taints={_quoted(taints)}"
    yield f"--max-pods={node.max_pods}"
    if kubelet.get("podsPerCore") is not None:
        yield f"--pods-per-core={kubelet['podsPerCore']}"
    for flag, field, sign in (*_BEFORE_EVICTION, *_EVICTION):
        if pairs := _pairs(kubelet.get(field), sign):
            yield f"{flag}={_quoted(pairs)}"
    for flag, field in _NUMBERS:
        if kubelet.get(field) is not None:
            yield f"{flag}={kubelet[field]}"
    if kubelet.get("cpuCFSQuota") is not None:
        yield f"--cpu-cfs-quota={str(kubelet['cpuCFSQuota']).lower()}"


def _pairs(entries: Mapping[str, Any] | None, sign: str) -> str:
    return ",".join(f"{key}{sign}{value}" for key, value in sorted((entries or {}).items()))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
