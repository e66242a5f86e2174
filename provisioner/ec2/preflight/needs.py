"""Which permissions these settings and classes need, and on which resources of the account. Pure.

A policy of somebody else may name single subnets, images or keys; so what was discovered is asked about, and an invented resource only where nothing was.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import UnsetType

from provisioner.apis.ec2 import EC2NodeClass
from provisioner.ec2.access.permissions import ANY, CREATED, PERMISSIONS, Feature, Permission, PolicyNames
from provisioner.ec2.market.prices import has_pricing_api
from provisioner.ec2.settings import AwsSettings

_PUBLISHED: Final = "/aws/service/"
_KIND_FEATURES: Final = {
    "capacity-reservation": Feature.RESERVATIONS,
    "placement-group": Feature.PLACEMENT_GROUPS,
    "snapshot": Feature.SNAPSHOTS,
    "spot-instances-request": Feature.SPOT,
}
"""What EC2 checks an action for only where the feature is used."""

_NOT_CHECKED: Final = {
    "ec2:RunInstances": frozenset({"fleet"}),
    "ec2:CreateFleet": frozenset({"spot-instances-request"}),
    "ec2:CreateLaunchTemplate": frozenset(
        {"fleet", "instance", "volume", "network-interface", "spot-instances-request"}
    ),
    "ec2:TerminateInstances": frozenset({"launch-template"}),
    "ec2:DeleteLaunchTemplate": frozenset({"instance"}),
}
"""Resources of an action's statement that EC2 never checks that action for."""

_INVENTED: Final = {
    "image": "ami-0123456789abcdef0",
    "subnet": "subnet-0123456789abcdef0",
    "security-group": "sg-0123456789abcdef0",
    "instance": "i-0123456789abcdef0",
    "volume": "vol-0123456789abcdef0",
    "network-interface": "eni-0123456789abcdef0",
    "launch-template": "lt-0123456789abcdef0",
    "fleet": "fleet-01234567-89ab-cdef-0123-456789abcdef",
    "spot-instances-request": "sir-01234567",
    "snapshot": "snap-0123456789abcdef0",
    "capacity-reservation": "cr-0123456789abcdef0",
}
EXAMPLE: Final = "preflight"
"""Stands for any name."""

MOST_IDS: Final = 5
"""Of one kind; a policy that takes these takes the others too, but for odd ones."""


@dataclass(frozen=True)
class AwsAccount:
    """What the questions are about.

    Attributes:
        names: of the cluster; `node_role_arn` is that of manifests/aws.
        node_roles: ARNs of the roles that nodes of the classes get; those of manifests/aws where none is known.
        ids: what was discovered by kind of resource: subnet, image, ...
        parameters: SSM parameters that classes name.
        keys: ARNs of KMS keys that classes name.
    """

    names: PolicyNames
    node_roles: tuple[str, ...] = ()
    ids: Mapping[str, Sequence[str]] = field(default_factory=dict)
    parameters: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Need:
    """One permission with the resources that it is needed for, and what a request will say.

    Attributes:
        resources: ARNs; "*" for what has none.
        context: condition keys and their values, in order.
    """

    row: Permission
    resources: tuple[str, ...]
    context: tuple[tuple[str, tuple[str, ...]], ...]


def features(settings: AwsSettings, classes: Iterable[EC2NodeClass] | None) -> frozenset[Feature]:
    """What is in use. Without classes (None: they could not be read) what the usual ones use."""
    used = {Feature.ALWAYS, Feature.SPOT}  # which capacity types pools allow may change at any time
    if not settings.cluster_endpoint or settings.eks_control_plane or settings.enable_zonal_shift:
        used.add(Feature.ENDPOINT)
    if settings.interruption_queue:
        used.add(Feature.INTERRUPTION)
    if settings.enable_zonal_shift:
        used.add(Feature.ZONAL_SHIFT)
    if settings.reboots:
        used.add(Feature.REBOOTS)
    if has_pricing_api(settings.region, isolated_vpc=settings.isolated_vpc):
        used.add(Feature.PRICES)
    if classes is None:
        return frozenset(used | {Feature.PROFILES, Feature.ALIASES})
    for one in classes:
        used |= set(_features_of(one))
    return frozenset(used)


def _features_of(node_class: EC2NodeClass) -> Iterable[Feature]:
    spec = node_class.spec
    if _text(spec.role):
        yield Feature.PROFILES
    if spec.capacity_reservation_selector_terms:
        yield Feature.RESERVATIONS
    if not isinstance(spec.placement_group_selector, UnsetType):
        yield Feature.PLACEMENT_GROUPS
    for term in spec.ami_selector_terms:
        if term.alias or published(term.ssm_parameter):
            yield Feature.ALIASES
        elif term.ssm_parameter:
            yield Feature.OWN_PARAMETERS
    for device in node_class.block_device_mappings:
        if not isinstance(device.ebs, UnsetType):
            if _text(device.ebs.kms_key_id):
                yield Feature.OWN_KEYS
            if _text(device.ebs.snapshot_id):
                yield Feature.SNAPSHOTS


def published(parameter: str) -> bool:
    """Whether AWS publishes the SSM parameter."""
    return parameter.startswith(_PUBLISHED) or f":parameter{_PUBLISHED}" in parameter


def parameters(classes: Iterable[EC2NodeClass]) -> tuple[str, ...]:
    """The SSM parameters of the user's own that classes name, in order."""
    named = {term.ssm_parameter for one in classes for term in one.spec.ami_selector_terms if term.ssm_parameter}
    return tuple(sorted(name for name in named if not published(name)))


def keys(classes: Iterable[EC2NodeClass], names: PolicyNames) -> tuple[str, ...]:
    """The ARNs of the KMS keys and aliases that classes name, in order."""
    found = set()
    for one in classes:
        for device in one.block_device_mappings:
            key = "" if isinstance(device.ebs, UnsetType) else _text(device.ebs.kms_key_id)
            if key:
                found.add(key if key.startswith("arn:") else _key_arn(names, key))
    return tuple(sorted(found))


def _key_arn(names: PolicyNames, key: str) -> str:
    name = key if key.startswith("alias/") else f"key/{key}"
    return f"arn:{names.partition}:kms:{names.region}:{names.account}:{name}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def needs(used: frozenset[Feature], account: AwsAccount) -> tuple[Need, ...]:
    """Every permission that is needed, in the order of the table."""
    asked = []
    for row in PERMISSIONS:
        if row.feature in used:
            resources = tuple(_resources(row, used, account))
            if resources:
                asked.append(Need(row, resources, _context(row, account.names)))
    return tuple(asked)


def told_keys(names: PolicyNames) -> frozenset[str]:
    """Every condition key that our own statements look at: where a request is said to lack one of these, it does lack it."""
    return frozenset(names.fill(one.key) for row in PERMISSIONS for one in row.scope.conditions)


def _resources(row: Permission, used: frozenset[Feature], account: AwsAccount) -> Iterable[str]:
    if row.feature is Feature.OWN_PARAMETERS:
        yield from (_parameter_arn(account.names, name) for name in account.parameters)
    elif row.feature is Feature.OWN_KEYS:
        yield from account.keys
    elif row.action == "iam:PassRole":
        yield from account.node_roles or (account.names.node_role_arn,)
    else:
        for pattern in row.scope.resources:
            filled = account.names.fill(pattern)
            kind = _kind(filled)
            if _is_checked(row, kind) and _KIND_FEATURES.get(kind, Feature.ALWAYS) in used:
                yield from _examples(filled, kind, account)


def _is_checked(row: Permission, kind: str) -> bool:
    """Whether EC2 ever checks the action for this kind under this statement."""
    if row.scope == CREATED and kind == "launch-template" and row.action != "ec2:CreateLaunchTemplate":
        return False  # launches use templates, they make none
    return kind not in _NOT_CHECKED.get(row.action, ())


def _parameter_arn(names: PolicyNames, name: str) -> str:
    if name.startswith("arn:"):
        return name
    return f"arn:{names.partition}:ssm:{names.region}:{names.account}:parameter/{name.lstrip('/')}"


def _kind(arn: str) -> str:
    """`subnet` of `arn:aws:ec2:eu-west-1:*:subnet/*`; "" for what is not EC2's."""
    return arn.rpartition(":")[2].partition("/")[0] if ":ec2:" in arn else ""


def _examples(arn: str, kind: str, account: AwsAccount) -> Iterable[str]:
    """The ARN with what was discovered in place of its stars."""
    if arn == ANY or ANY not in arn:
        yield arn
        return
    parts = arn.split(":", 5)
    if parts[4] == ANY:
        parts[4] = account.names.account
    stem = ":".join(parts).removesuffix(ANY)
    for name in list(account.ids.get(kind, ()))[:MOST_IDS] or [_INVENTED.get(kind, EXAMPLE)]:
        yield f"{stem}{name}"


def _context(row: Permission, names: PolicyNames) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Values that our own requests will have for every key that the statement looks at."""
    values: dict[str, tuple[str, ...]] = {}
    for one in row.scope.conditions:
        filled = tuple(names.fill(value) for value in one.values)
        several = one.operator.startswith("ForAllValues:")
        chosen = filled if several else (_of_partition(filled, names.partition),)
        values[names.fill(one.key)] = tuple(EXAMPLE if value == ANY else value for value in chosen)
    return tuple(values.items())


def _of_partition(values: Sequence[str], partition: str) -> str:
    """Of a service's names the one that the partition has; else the first."""
    china = [value for value in values if value.endswith(".cn")]
    return china[0] if china and partition == "aws-cn" else values[0]
