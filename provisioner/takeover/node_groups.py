"""Managed node groups of EKS to NodePools and EC2NodeClasses. Pure.

Source: https://docs.aws.amazon.com/eks/latest/APIReference/API_Nodegroup.html; defaults of nodes without a launch template:
https://docs.aws.amazon.com/eks/latest/userguide/launch-templates.html (IMDSv2 with a hop limit of 2, gp3 since 2023, 20 GiB).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from provisioner.apis import ec2, names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import API_VERSION
from provisioner.apis.openapi import definition_of, violations
from provisioner.values.printable import listed

GROUP_LABEL: Final = "eks.amazonaws.com/nodegroup"
EKS_LABELS: Final = "eks.amazonaws.com/"
MOST_GROUPS: Final = 500
_DEFAULT_DISK_GIB: Final = 20
_HOPS: Final = 2
_CAPACITY: Final = {"ON_DEMAND": names.CAPACITY_ON_DEMAND, "SPOT": names.CAPACITY_SPOT}
_EFFECTS: Final = {
    "NO_SCHEDULE": names.NO_SCHEDULE,
    "NO_EXECUTE": names.NO_EXECUTE,
    "PREFER_NO_SCHEDULE": names.PREFER_NO_SCHEDULE,
}
_FAMILIES: Final = (
    ("AL2023_", "al2023"),
    ("AL2_", "al2"),
    ("BOTTLEROCKET_", "bottlerocket"),
    ("WINDOWS_CORE_2019", "windows2019"),
    ("WINDOWS_CORE_2022", "windows2022"),
    ("WINDOWS_CORE_2025", "windows2025"),
)
_DEVICES: Final = {"al2023": "/dev/xvda", "al2": "/dev/xvda", "bottlerocket": "/dev/xvdb"}
_WINDOWS_DEVICE: Final = "/dev/sda1"
_DATED: Final = re.compile(r"\d+\.\d+(?:\.\d+)?-(\d{8})")
_BOTTLEROCKET: Final = re.compile(r"(\d+\.\d+\.\d+)-[0-9a-f]+")
_FOREIGN_TAGS: Final = ("aws:", "eks:", "kubernetes.io/cluster/", "karpenter.", "eks.amazonaws.com")
_SYSTEM_LABELS: Final = re.compile(
    r"(?:.*\.)?(?:kubernetes\.io|k8s\.io|amazonaws\.com|amazonaws\.com\.cn|karpenter\.sh|aws|dovetail\.dev)"
)
"""Domains of labels that a kubelet, a cloud's controller or we set ourselves."""
_NOT_NAME: Final = re.compile(r"[^a-z0-9]+")


EksName = Annotated[str, msgspec.Meta(pattern=r"^([0-9A-Za-z][0-9A-Za-z_-]*)?\Z")]
"""Of clusters and node groups; stands in commands for a shell as it is."""


class ScalingConfig(msgspec.Struct, frozen=True, rename="camel"):
    """How many nodes a group has."""

    min_size: int = 0
    max_size: int = 0
    desired_size: int = 0


class _GroupTaint(msgspec.Struct, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class _AutoScalingGroup(msgspec.Struct, frozen=True):
    name: str = ""


class _Resources(msgspec.Struct, frozen=True, rename="camel"):
    auto_scaling_groups: tuple[_AutoScalingGroup, ...] = ()


class _UpdateConfig(msgspec.Struct, frozen=True, rename="camel"):
    max_unavailable: int = 0
    max_unavailable_percentage: int = 0


class _LaunchTemplate(msgspec.Struct, frozen=True):
    name: str = ""
    id: str = ""


class _RemoteAccess(msgspec.Struct, frozen=True, rename="camel"):
    ec2_ssh_key: str = ""


class ManagedNodeGroup(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A managed node group as eks:DescribeNodegroup shows it; null is absence."""

    nodegroup_name: EksName
    cluster_name: EksName = ""
    status: str = ""
    release_version: str = ""
    capacity_type: str = "ON_DEMAND"
    scaling_config: ScalingConfig = ScalingConfig()
    instance_types: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    ami_type: str = ""
    node_role: str = ""
    labels: dict[str, str] = {}
    taints: tuple[_GroupTaint, ...] = ()
    resources: _Resources = _Resources()
    disk_size: int = 0
    update_config: _UpdateConfig = _UpdateConfig()
    launch_template: _LaunchTemplate | None = None
    remote_access: _RemoteAccess | None = None
    tags: dict[str, str] = {}

    @property
    def name(self) -> str:
        return self.nodegroup_name

    @property
    def pool_name(self) -> str:
        """The name of the NodePool and EC2NodeClass that it becomes: in the form of names of Kubernetes."""
        return _NOT_NAME.sub("-", self.nodegroup_name.lower()).strip("-")[:50] or "group"

    @property
    def scaling_groups(self) -> tuple[str, ...]:
        """Names of its Auto Scaling groups."""
        return tuple(one.name for one in self.resources.auto_scaling_groups if one.name)


class NodeGroupError(Exception):
    """A document that is not a node group; a sentence for people."""


def group_of(document: object) -> ManagedNodeGroup | None:
    """A document of `aws eks describe-nodegroup`; None for what is something else.

    Raises:
        NodeGroupError: it is one, and damaged.
    """
    if not isinstance(document, dict):
        return None
    inner = document.get("nodegroup", document)
    if not isinstance(inner, dict) or "nodegroupName" not in inner:
        return None
    try:
        return msgspec.convert(_without_nulls(inner), ManagedNodeGroup, strict=False)
    except msgspec.ValidationError as error:
        raise NodeGroupError(f'node group "{inner["nodegroupName"]}" cannot be read: {error}') from None


@dataclass(frozen=True, slots=True)
class WrittenGroup:
    """What becomes of a group.

    Attributes:
        documents: its EC2NodeClass and NodePool; none where `refusal` says why.
        notes: what is not as in the group, a sentence each.
    """

    group: ManagedNodeGroup
    documents: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]
    refusal: str = ""


def written(group: ManagedNodeGroup, nodes: Iterable[Node]) -> WrittenGroup:
    """A group's NodePool and EC2NodeClass, which the API server admits.

    Args:
        group: it.
        nodes: those of the cluster; the group's own ones tell labels that its description does not.
    """
    own = [one for one in nodes if one.metadata.labels.get(GROUP_LABEL) == group.name]
    family = _family(group.ami_type)
    types = tuple(group.instance_types) or tuple(
        sorted({one.metadata.labels.get(names.INSTANCE_TYPE_LABEL, "") for one in own} - {""})
    )
    if family is None:
        what = "a custom AMI" if group.ami_type == "CUSTOM" else f'the AMI type "{group.ami_type}"'
        return WrittenGroup(group, (), (), f"it uses {what}; write its EC2NodeClass by hand")
    if group.capacity_type not in _CAPACITY:
        return WrittenGroup(
            group,
            (),
            (),
            f"its capacity type is {group.capacity_type}; write its EC2NodeClass with capacityReservationSelectorTerms by hand",
        )
    if not types:
        return WrittenGroup(
            group, (), (), "it specifies no instance types, and none of its nodes exists; write its NodePool by hand"
        )
    if not group.cluster_name or not group.subnets or not group.node_role:
        return WrittenGroup(
            group,
            (),
            (),
            "its description lacks the cluster, the subnets or the node role; use the output of `aws eks describe-nodegroup`",
        )
    labels, dropped = _labels(group, own)
    notes = [f"label {key} is not set on nodes of a NodePool" for key in dropped]
    its_class = _class(group, family, notes)
    pool = _pool(group, types, labels)
    for one in (its_class, pool):
        definition = definition_of(str(one["apiVersion"]), str(one["kind"]))
        wrong = violations(definition, one) if definition is not None else []
        if wrong:
            return WrittenGroup(
                group, (), tuple(notes), f"{one['kind']} would not be admitted: {listed(wrong, 3, '; ')}"
            )
    if group.pool_name != group.name:
        notes.append(f'the NodePool is named "{group.pool_name}", because names in Kubernetes are in lower case')
    if group.scaling_config.min_size:
        notes.append(
            f"the group keeps at least {group.scaling_config.min_size} nodes; nodes of a NodePool are removed when they are empty"
        )
    return WrittenGroup(group, (its_class, pool), tuple(notes))


def _family(ami_type: str) -> str | None:
    return next((family for begin, family in _FAMILIES if ami_type.startswith(begin)), None)


def _labels(group: ManagedNodeGroup, nodes: list[Node]) -> tuple[dict[str, str], list[str]]:
    """Labels for the template: the group's, and those of others that all its nodes have; and those that may not be there."""
    shared = dict(nodes[0].metadata.labels) if nodes else {}
    for node in nodes[1:]:
        shared = {key: value for key, value in shared.items() if node.metadata.labels.get(key) == value}
    wanted = {
        key: value
        for key, value in shared.items()
        if "/" not in key or not _SYSTEM_LABELS.fullmatch(key.partition("/")[0])
    }
    kept, dropped = {}, []
    for key, value in sorted({**wanted, **group.labels}.items()):
        if key.startswith(EKS_LABELS) or _refuses({key: value}):
            dropped.append(key)
        else:
            kept[key] = value
    return kept, dropped


def _refuses(labels: dict[str, str]) -> bool:
    """Whether the API server refuses a NodePool for a label."""
    definition = definition_of(API_VERSION, "NodePool")
    made = _pool(ManagedNodeGroup(nodegroup_name="x", capacity_type="ON_DEMAND"), ("m5.large",), labels)
    return definition is not None and bool(violations(definition, made))


def _class(group: ManagedNodeGroup, family: str, notes: list[str]) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "amiSelectorTerms": [{"alias": f"{family}@{_version(group, family)}"}],
        "role": group.node_role.rpartition("/")[2],
        "subnetSelectorTerms": [{"id": one} for one in group.subnets],
        "securityGroupSelectorTerms": [{"tags": {"aws:eks:cluster-name": group.cluster_name}}],
    }
    tags = {key: value for key, value in sorted(group.tags.items()) if value and not key.startswith(_FOREIGN_TAGS)}
    if tags:
        spec["tags"] = tags
    if group.launch_template is None:
        device = _DEVICES.get(family, _WINDOWS_DEVICE)
        disk = {
            "volumeSize": f"{group.disk_size or _DEFAULT_DISK_GIB}Gi",
            "volumeType": "gp3",
            "deleteOnTermination": True,
        }
        spec["blockDeviceMappings"] = [{"deviceName": device, "ebs": disk}]
        spec["metadataOptions"] = {
            "httpEndpoint": "enabled",
            "httpPutResponseHopLimit": _HOPS,
            "httpTokens": "optional" if family == "al2" else "required",
        }
    else:
        name = group.launch_template.name or group.launch_template.id
        notes.append(
            f'launch template "{name}" is not read: copy its disks, security groups, user data and metadata options'
        )
    if group.remote_access is not None and group.remote_access.ec2_ssh_key:
        notes.append(f'nodes have no SSH key ("{group.remote_access.ec2_ssh_key}"); use AWS Systems Manager')
    return {"apiVersion": ec2.API_VERSION, "kind": ec2.KIND, "metadata": {"name": group.pool_name}, "spec": spec}


def _version(group: ManagedNodeGroup, family: str) -> str:
    """The release that the group's nodes run, as aliases name it; latest where that has no such name."""
    pattern = _BOTTLEROCKET if family == "bottlerocket" else _DATED
    found = pattern.fullmatch(group.release_version) if not family.startswith("windows") else None
    return f"v{found[1]}" if found is not None else "latest"


def _pool(group: ManagedNodeGroup, types: tuple[str, ...], labels: dict[str, str]) -> dict[str, Any]:
    arch = "arm64" if "_ARM_64" in group.ami_type else "amd64"
    system = "windows" if group.ami_type.startswith("WINDOWS") else "linux"
    values = {
        names.INSTANCE_TYPE_LABEL: list(types),
        names.CAPACITY_TYPE_LABEL: [_CAPACITY[group.capacity_type]],
        names.ARCH_LABEL: [arch],
        names.OS_LABEL: [system],
    }
    spec: dict[str, Any] = {
        "nodeClassRef": {"group": ec2.GROUP, "kind": ec2.KIND, "name": group.pool_name},
        "requirements": [{"key": key, "operator": "In", "values": some} for key, some in values.items()],
        "expireAfter": "Never",
    }
    taints = [
        {"key": one.key, **({"value": one.value} if one.value else {}), "effect": _EFFECTS.get(one.effect, one.effect)}
        for one in group.taints
    ]
    if taints:
        spec["taints"] = taints
    update = group.update_config
    budget = (
        f"{update.max_unavailable_percentage}%"
        if update.max_unavailable_percentage
        else str(update.max_unavailable or 1)
    )
    whole: dict[str, Any] = {
        "template": {**({"metadata": {"labels": labels}} if labels else {}), "spec": spec},
        "disruption": {
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": "1m",
            "budgets": [{"nodes": budget}],
        },
    }
    if group.scaling_config.max_size:
        whole["limits"] = {"nodes": str(group.scaling_config.max_size)}
    return {"apiVersion": API_VERSION, "kind": "NodePool", "metadata": {"name": group.pool_name}, "spec": whole}


def _without_nulls(value: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_nulls(one) if isinstance(one, Mapping) else one for key, one in value.items() if one is not None
    }
