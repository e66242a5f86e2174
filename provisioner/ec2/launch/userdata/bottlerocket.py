"""Bottlerocket: settings in TOML, the user's with ours on top. Pure.

Source: AWS spec 2.6. Differs: keys of settings.kubernetes that the provider does not know are kept, which it drops.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from provisioner.apis import ec2
from provisioner.ec2.launch.userdata import toml
from provisioner.ec2.launch.userdata.inputs import NodeInput, UserDataError
from provisioner.values.message import Said
from provisioner.values.taints import Taint

LATEST: Final = "latest"
MOUNT_COMMAND: Final = "000-mount-instance-storage"
_BINDS_BY_ITSELF: Final = (1, 46, 0)
_DIRECTORIES: Final = ("/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods")
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_VERSION_IN_NAME: Final = re.compile(r"(?<![\w.])v\d+\.\d+\.\d+")
_MAPS: Final = {
    "eviction-hard": "evictionHard",
    "eviction-soft": "evictionSoft",
    "eviction-soft-grace-period": "evictionSoftGracePeriod",
    "kube-reserved": "kubeReserved",
    "system-reserved": "systemReserved",
}
_SCALARS: Final = {
    "eviction-max-pod-grace-period": "evictionMaxPodGracePeriod",
    "cpu-cfs-quota-enforced": "cpuCFSQuota",
}
_TEXTS: Final = {
    "image-gc-high-threshold-percent": "imageGCHighThresholdPercent",
    "image-gc-low-threshold-percent": "imageGCLowThresholdPercent",
}


_LONG_KEY: Final = re.compile(r"""(?:\.[ \t]*[\w"'-]++[ \t]*){100}""")
"""A key with a hundred dots."""
_INTEGER_TOO_LONG: Final = Said("an integer does not fit into 64 bits")
_TOML_NESTED_TOO_DEEPLY: Final = "the TOML is nested too deeply"


def _not_toml(error: object) -> str:
    return Said(f"not valid TOML: {error}")


def document_of(user_data: str) -> dict[str, Any]:
    """The user's TOML.

    Raises:
        UserDataError: it is none.
    """
    if _LONG_KEY.search(user_data):  # tomllib takes gigabytes for 100 KB of them
        raise UserDataError(_TOML_NESTED_TOO_DEEPLY)
    try:
        document = tomllib.loads(user_data)
    except tomllib.TOMLDecodeError as error:
        raise UserDataError(_not_toml(error)) from None
    except ValueError:  # from 4,300 digits on
        raise UserDataError(_not_toml(_INTEGER_TOO_LONG)) from None
    except RecursionError:
        raise UserDataError(_TOML_NESTED_TOO_DEEPLY) from None
    left: list[Any] = [document]
    while left:
        match left.pop():
            case dict() as table:
                left += table.values()
            case list() as array:
                left += array
            case int() as number if not -(2**63) <= number < 2**63:
                raise UserDataError(_not_toml(_INTEGER_TOO_LONG))
    return document


def settings_of(user_data: str) -> dict[str, Any]:
    """The user's settings, "settings" itself left out; {} without user data.

    Raises:
        UserDataError: it is no TOML, or one of the tables that we write into is not a table.
    """
    settings = document_of(user_data).get("settings", {})
    if not isinstance(settings, dict):
        raise UserDataError("settings is not a table")
    for name in ("autoscaling", "bootstrap-commands", "kubernetes"):
        if not isinstance(settings.get(name, {}), dict):
            raise UserDataError(f"settings.{name} is not a table")
    if not isinstance(settings.get("kubernetes", {}).get("node-labels", {}), dict):
        raise UserDataError("settings.kubernetes.node-labels is not a table")
    return settings


def render(node: NodeInput) -> str:
    """The whole user data.

    Raises:
        UserDataError: the user's settings cannot be read.
    """
    settings = settings_of(node.user_data)
    user = settings.get("kubernetes", {})
    settings["kubernetes"] = {
        **user,
        **_kubelet(node),
        "cluster-name": node.cluster.name,
        "api-server": node.cluster.endpoint,
        "cluster-certificate": node.cluster.ca_bundle,
        "max-pods": node.max_pods,
        "node-labels": {**user.get("node-labels", {}), **node.labels},
        "node-taints": _taints(node.taints),
    }
    if "should-wait" in settings.get("autoscaling", {}):
        # Our instances are in no auto scaling group: one that waited for its turn would never start the kubelet.
        settings["autoscaling"] = {**settings["autoscaling"], "should-wait": False}
    if node.raid0:
        commands = settings.get("bootstrap-commands", {})
        settings["bootstrap-commands"] = {**commands, MOUNT_COMMAND: _mount(node.bottlerocket_version)}
    return toml.write({"settings": settings})


def version_of(node_class: ec2.EC2NodeClass) -> str:
    """The version of the images, e.g. "1.46.0" or "latest"; "" when neither selectors nor names tell it."""
    for term in node_class.spec.ami_selector_terms:
        if term.alias_family:
            return term.alias_version.lstrip("v")
    wanted = [term.name for term in node_class.spec.ami_selector_terms if term.name]
    by_id = {ami.id: ami.name for ami in node_class.status.amis}
    chosen = [by_id[term.id] for term in node_class.spec.ami_selector_terms if term.id in by_id]
    any_name = [ami.name for ami in node_class.status.amis if "bottlerocket" in ami.name.lower()]
    for name in (*wanted, *chosen, *any_name):
        if found := _VERSION_IN_NAME.search(name):
            return found[0].lstrip("v")
    return ""


def _kubelet(node: NodeInput) -> dict[str, Any]:
    kubelet = node.kubelet
    settings: dict[str, Any] = {}
    if node.cluster_dns:
        settings["cluster-dns-ip"] = node.cluster_dns[0]
    settings |= {key: dict(kubelet[field]) for key, field in _MAPS.items() if kubelet.get(field) is not None}
    settings |= {key: kubelet[field] for key, field in _SCALARS.items() if kubelet.get(field) is not None}
    settings |= {key: str(kubelet[field]) for key, field in _TEXTS.items() if kubelet.get(field) is not None}
    return settings


def _taints(taints: Iterable[Taint]) -> Mapping[str, list[str]]:
    by_key: dict[str, list[str]] = {}
    for one in taints:
        by_key.setdefault(one.key, []).append(f"{one.value}:{one.effect}")
    return by_key


def _mount(version: str) -> dict[str, Any]:
    bind = ["apiclient", "ephemeral-storage", "bind"]
    if not _binds_by_itself(version):
        bind += ["--dirs", *_DIRECTORIES]
    return {"commands": [["apiclient", "ephemeral-storage", "init"], bind], "essential": True, "mode": "always"}


def _binds_by_itself(version: str) -> bool:
    """Whether the version knows which directories to bind."""
    if version == LATEST:
        return True
    found = _VERSION.match(version)
    return found is not None and tuple(int(number) for number in found.groups()) >= _BINDS_BY_ITSELF
