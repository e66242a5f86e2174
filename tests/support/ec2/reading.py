"""What an instance makes of its user data at first boot: the settings that its kubelet starts with.

Written from the documents of nodeadm, of the AL2 image's bootstrap.sh, of Bottlerocket and of the Windows image; it shares nothing with the
product's code that writes user data.
"""

import base64
import binascii
import functools
import gzip
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from email import message_from_string
from typing import Any, Final

import yaml

_BOOTSTRAP: Final = "/etc/eks/bootstrap.sh"
_POWERSHELL: Final = re.compile(r"-(\w+)\s+(?:'((?:[^']|'')*)'|\"([^\"]*)\"|(\S+))")


class UserDataError(Exception):
    """The instance cannot make anything of it; it boots, and no kubelet starts."""


@dataclass
class Kubelet:
    """What a kubelet starts with; None and empty are the family's own defaults."""

    cluster: str = ""
    endpoint: str = ""
    ca_bundle: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[dict[str, str]] = field(default_factory=list)
    max_pods: int | None = None
    pods_per_core: int = 0
    kube_reserved: dict[str, str] | None = None
    system_reserved: dict[str, str] = field(default_factory=dict)
    eviction_hard: dict[str, str] | None = None
    raid0: bool = False
    dns: list[str] = field(default_factory=list)


@functools.lru_cache(maxsize=256)  # instances of one launch are alike, and YAML takes its time
def read(family: str, encoded: str) -> Kubelet:
    """The kubelet's settings; not to be changed.

    Args:
        family: of the image.
        encoded: base64, as in the launch template.

    Raises:
        UserDataError: there is none, or it cannot be read.
    """
    if not encoded:
        raise UserDataError("there is no user data")
    text = base64.b64decode(encoded).decode()
    if family == "bottlerocket":
        return _bottlerocket(text)
    if family == "windows":
        return _windows(text)
    kubelet = Kubelet()
    configs = [part for kind, part in _parts(text) if kind == "application/node.eks.aws"]
    if configs:
        _node_config(configs, kubelet)
        return kubelet
    for kind, part in _parts(text):
        if kind in {"text/x-shellscript", "text/plain"} and _script(part, kubelet):
            return kubelet
    raise UserDataError("nothing in it starts a kubelet")


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """(media type, text) as cloud-init sees them."""
    if text.lstrip().startswith(("MIME-Version:", "Content-Type:")):
        for part in message_from_string(text.lstrip()).walk():
            if not part.is_multipart():
                payload = part.get_payload(decode=True)
                yield part.get_content_type(), payload.decode() if isinstance(payload, bytes) else str(payload)
    elif text.startswith("#!"):
        yield "text/x-shellscript", text
    else:
        yield "application/node.eks.aws", text


# ---------------------------------------------------------------------- AL2023


def _node_config(texts: Iterable[str], kubelet: Kubelet) -> None:
    merged: dict[str, Any] = {}
    flags: list[str] = []
    for text in texts:
        try:
            document = next(yaml.load_all(_unpacked(text), _GoYaml), None)
        except (yaml.YAMLError, TypeError) as error:
            raise UserDataError(f"a NodeConfig is not valid YAML: {error}") from None
        if not isinstance(document, dict):
            raise UserDataError("a NodeConfig is no mapping")
        if (document.get("apiVersion"), document.get("kind")) != ("node.eks.aws/v1alpha1", "NodeConfig"):
            raise UserDataError(
                f"no kind {document.get('kind')} is registered for version {document.get('apiVersion')}"
            )
        if (wrong := _mistyped(document, _NODE_CONFIG, "NodeConfig")) is not None:
            raise UserDataError(f"cannot unmarshal into {wrong}")
        spec = document.get("spec") or {}
        flags += (spec.get("kubelet") or {}).get("flags") or []
        merged = _merged(merged, spec)
    cluster = merged.get("cluster") or {}
    if not cluster.get("cidr"):
        raise UserDataError("nodeadm: cidr is missing in cluster configuration")
    kubelet.cluster = str(cluster.get("name", ""))
    kubelet.endpoint = str(cluster.get("apiServerEndpoint", ""))
    kubelet.ca_bundle = str(cluster.get("certificateAuthority", ""))
    kubelet.raid0 = ((merged.get("instance") or {}).get("localStorage") or {}).get("strategy") == "RAID0"
    _configuration((merged.get("kubelet") or {}).get("config") or {}, kubelet)
    _flags(flags, kubelet)


def _unpacked(text: str) -> str:
    try:
        data = base64.b64decode(text.strip(), validate=True)
    except ValueError:
        return text
    try:
        return (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).decode(errors="replace")
    except (OSError, EOFError) as error:
        raise UserDataError(f"failed to create GZIP reader: {error}") from None


class _GoYaml(yaml.SafeLoader):
    """Times and sexagesimal numbers are texts to go-yaml."""


_GoYaml.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if not tag.endswith(("timestamp", "int", "float", "value"))]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_GoYaml.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"[-+]?(0|[1-9][0-9]*)$"), list("-+0123456789"))
_GoYaml.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?$"), list("-+.0123456789")
)

_NODE_CONFIG: Final[Any] = {
    "metadata": dict,
    "spec": {
        "cluster": {
            **dict.fromkeys(("name", "apiServerEndpoint", "cidr", "id"), str),
            "certificateAuthority": bytes,
            "enableOutpost": bool,
        },
        "containerd": {"config": str, "baseRuntimeSpec": dict},
        "featureGates": [bool],
        "instance": {
            "localStorage": {
                "strategy": ("RAID0", "RAID10", "Mount"),
                "mountPath": str,
                "disabledMounts": [("Containerd", "PodLogs")],
            }
        },
        "kubelet": {"config": dict, "flags": [str], "maxPodsExpression": str},
    },
}
"""What nodeadm decodes into: the Go type of each field; of a list or map that of its values; texts where it takes no other."""


def _mistyped(value: Any, kind: Any, where: str) -> str | None:
    """The first field that Go's decoder or the schema refuses; unknown fields are passed over, and null is nothing."""
    if value is None:
        return None
    match kind:
        case dict():
            if not isinstance(value, dict):
                return where
            inner = [(value.get(name), one, f"{where}.{name}") for name, one in kind.items()]
        case [one]:
            if not isinstance(value, dict if one is bool else list):
                return where
            inner = [(each, one, where) for each in (value.values() if isinstance(value, dict) else value)]
        case tuple():
            return None if value in kind else where
        case _ if kind is bytes:
            try:
                base64.b64decode(value, validate=True)
            except (binascii.Error, TypeError, ValueError):
                return where
            return None if isinstance(value, str) else where
        case _:
            return None if isinstance(value, kind) else where
    return next((wrong for one in inner if (wrong := _mistyped(*one)) is not None), None)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(base)
    for key, value in over.items():
        inner = found.get(key)
        found[key] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return found


def _configuration(config: Mapping[str, Any], kubelet: Kubelet) -> None:
    """KubeletConfiguration, as far as it shows in a Node."""
    if "maxPods" in config:
        kubelet.max_pods = int(config["maxPods"])
    kubelet.pods_per_core = int(config.get("podsPerCore") or 0)
    if "kubeReserved" in config:
        kubelet.kube_reserved = {key: str(value) for key, value in config["kubeReserved"].items()}
    kubelet.system_reserved = {key: str(value) for key, value in (config.get("systemReserved") or {}).items()}
    if "evictionHard" in config:
        kubelet.eviction_hard = {key: str(value) for key, value in config["evictionHard"].items()}
    kubelet.dns = [str(one) for one in config.get("clusterDNS") or ()]
    kubelet.taints += [
        {key: str(one[key]) for key in ("key", "value", "effect") if one.get(key)}
        for one in config.get("registerWithTaints") or ()
    ]


# ---------------------------------------------------------------------- AL2


def _script(text: str, kubelet: Kubelet) -> bool:
    """Follow the call of bootstrap.sh in a script; whether there is one."""
    for line in text.replace("\\\n", " ").splitlines():
        if _BOOTSTRAP not in line:
            continue
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise UserDataError(f"the shell cannot read its script: {error}") from None
        if _BOOTSTRAP in words:
            _bootstrap(words[words.index(_BOOTSTRAP) + 1 :], kubelet)
            return True
    return False


def _bootstrap(words: list[str], kubelet: Kubelet) -> None:
    arguments = iter(words)
    for word in arguments:
        if not word.startswith("--"):
            kubelet.cluster = word
            continue
        value = next(arguments, "")
        match word:
            case "--apiserver-endpoint":
                kubelet.endpoint = value
            case "--b64-cluster-ca":
                kubelet.ca_bundle = value
            case "--dns-cluster-ip":
                kubelet.dns = [value]
            case "--kubelet-extra-args":
                _flags([value], kubelet)
            case "--local-disks":
                kubelet.raid0 = value == "raid0"
            case _:
                pass


def _flags(lines: Iterable[str], kubelet: Kubelet) -> None:
    for line in lines:
        for word in shlex.split(line):
            name, _, value = word.partition("=")
            match name:
                case "--node-labels":
                    kubelet.labels |= dict(one.split("=", 1) for one in value.split(",") if "=" in one)
                case "--register-with-taints":
                    kubelet.taints += [_taint(one) for one in value.split(",") if one]
                case "--max-pods":
                    kubelet.max_pods = int(value)
                case "--pods-per-core":
                    kubelet.pods_per_core = int(value)
                case "--kube-reserved":
                    kubelet.kube_reserved = dict(one.split("=", 1) for one in value.split(","))
                case "--system-reserved":
                    kubelet.system_reserved = dict(one.split("=", 1) for one in value.split(","))
                case "--eviction-hard":
                    kubelet.eviction_hard = dict(one.split("<", 1) for one in value.split(","))
                case _:
                    pass


def _taint(text: str) -> dict[str, str]:
    """key=value:Effect, or key:Effect."""
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    return {"key": key, "effect": effect} | ({"value": value} if value else {})


# ---------------------------------------------------------------------- Bottlerocket


def _bottlerocket(text: str) -> Kubelet:
    try:
        settings = tomllib.loads(text).get("settings", {})
    except tomllib.TOMLDecodeError as error:
        raise UserDataError(f"early-boot-config: {error}") from None
    if settings.get("autoscaling", {}).get("should-wait"):
        raise UserDataError("it waits for its auto scaling group, and is in none")
    kubernetes = settings.get("kubernetes", {})
    kubelet = Kubelet(
        cluster=kubernetes.get("cluster-name", ""),
        endpoint=kubernetes.get("api-server", ""),
        ca_bundle=kubernetes.get("cluster-certificate", ""),
        labels={key: str(value) for key, value in kubernetes.get("node-labels", {}).items()},
        max_pods=kubernetes.get("max-pods"),
        kube_reserved=kubernetes.get("kube-reserved"),
        system_reserved=kubernetes.get("system-reserved", {}),
        eviction_hard=kubernetes.get("eviction-hard"),
    )
    dns = kubernetes.get("cluster-dns-ip", [])
    kubelet.dns = [dns] if isinstance(dns, str) else list(dns)
    for key, values in kubernetes.get("node-taints", {}).items():
        for one in [values] if isinstance(values, str) else values:
            value, _, effect = one.rpartition(":")
            kubelet.taints.append({"key": key, "effect": effect} | ({"value": value} if value else {}))
    commands = [
        command for one in settings.get("bootstrap-commands", {}).values() for command in one.get("commands", ())
    ]
    kubelet.raid0 = ["apiclient", "ephemeral-storage", "init"] in [list(one) for one in commands]
    return kubelet


# ---------------------------------------------------------------------- Windows


def _windows(text: str) -> Kubelet:
    script = re.search(r"<powershell>(.*?)</powershell>", text, re.DOTALL)
    if script is None:
        raise UserDataError("EC2Launch finds no <powershell>")
    if re.search(r"^\s*<", script[1], re.MULTILINE):
        raise UserDataError("PowerShell: the '<' operator is reserved for future use")
    call = next(
        (line for line in script[1].splitlines() if line.lstrip().startswith("& $EKSBootstrapScriptFile")), None
    )
    if call is None:
        raise UserDataError("nothing in it starts a kubelet")
    given = {
        found[1]: (found[2].replace("''", "'") if found[2] is not None else found[3] or found[4] or "")
        for found in _POWERSHELL.finditer(call)
    }
    kubelet = Kubelet(
        cluster=given.get("EKSClusterName", ""),
        endpoint=given.get("APIServerEndpoint", ""),
        ca_bundle=given.get("Base64ClusterCA", ""),
        dns=[given["DNSClusterIP"]] if given.get("DNSClusterIP") else [],
    )
    _flags([given.get("KubeletExtraArgs", "")], kubelet)
    return kubelet
