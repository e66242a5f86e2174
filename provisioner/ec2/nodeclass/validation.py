"""What is wrong with a class that its schema cannot say, and what is only odd: values that become conditions and events. Pure.

Source: AWS spec 1.2 to 1.4. A term that combines what excludes each other is admitted by the schema as long as another
term does not, so it is a warning here, with what is done about it.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec import UnsetType

from provisioner.apis import ec2, names, verdicts
from provisioner.apis.openapi import Violation
from provisioner.ec2.launch.userdata.contradictions import contradictions
from provisioner.ec2.launch.userdata.inputs import JoinedCluster, UserDataError, has_ipv6
from provisioner.ec2.launch.userdata.rendering import SIZE_LIMIT, SIZE_WARNING, check, refused, size_of
from provisioner.ec2.launch.userdata.unread import unread
from provisioner.ec2.nodeclass.kubelet import check_kubelet
from provisioner.values.message import Said
from provisioner.values.requirement import parse_int

INVALID_USER_DATA: Final = "InvalidUserData"
"""Our own reason: the provider finds out at the launch."""

_MOST_READ: Final = 4 * SIZE_LIMIT
"""Characters of user data that is judged."""

LAST_MINOR_OF_AL2: Final = 32
FIRST_MINOR_OF_WINDOWS_2025: Final = 35

_TAG_KEY_LENGTH: Final = 128
_TAG_VALUE_LENGTH: Final = 256
_CLUSTER_TAG: Final = re.compile(r"kubernetes\.io/cluster/[0-9A-Za-z][A-Za-z0-9\-_]*")
_RESTRICTED_TAGS: Final = frozenset({ec2.CLUSTER_NAME_TAG, ec2.NODEPOOL_TAG, ec2.NODECLAIM_TAG, ec2.NODECLASS_TAG})
PUBLIC_ADDRESS_WITH_SEVERAL_INTERFACES: Final = Said(
    "spec.associatePublicIPAddress: EC2 assigns public IP addresses only to instances with one network interface, so no instances can be "
    "launched with the interfaces of spec.networkInterfaces; remove one of the two fields"
)
_WINDOWS_WITHOUT_IPV6: Final = Said(
    "no instance is launched for this class because Windows nodes do not support IPv6, which this cluster uses"
)


@dataclass(frozen=True, slots=True)
class ClassGates:
    """AWS feature gates that say what a class may ask for.

    Attributes:
        expressions: NodeClassCEL.
        gpu_sharing: DRANVIDIAGPU.
    """

    expressions: bool = False
    gpu_sharing: bool = False


@dataclass(frozen=True, slots=True)
class ClassVerdict:
    """Whether a class can be used, as far as it alone can tell.

    Attributes:
        reason: of ValidationSucceeded being False; "" when it can be used.
        message: what to change, with the fields' paths.
        kept: what a new class could not be used with, and this one is, because it was in use before that was found; among the warnings.
        warnings: what is odd but does no harm; sorted as the fields stand.
    """

    reason: str = ""
    message: str = ""
    kept: str = ""
    warnings: tuple[str, ...] = ()


def user_data_too_long(problem: str) -> str:
    """`problem` as `user_data_exceeds_limit` says it."""
    return Said(f"spec.userData: {problem}; shorten it")


def validate(node_class: ec2.EC2NodeClass, cluster: JoinedCluster, gates: "ClassGates | None" = None) -> ClassVerdict:
    """Judge one class by itself; what it selects and what AWS permits is for others.

    Returns:
        The first reason in the provider's order (kubelet, sharing of GPUs, tags), then ours.
    """
    gates = gates or ClassGates()
    kubelet = check_kubelet(node_class.kubelet, node_class.family, cluster.minor, expressions=gates.expressions)
    sharing = _gpu_sharing(node_class, gates)
    user_data = _user_data(node_class)
    reason, message, kept = "", "", ""
    if too_long := _unread_for_its_size(user_data):
        reason, message, user_data = ec2.USER_DATA_SIZE_LIMIT_EXCEEDED, user_data_too_long(too_long), ""
    elif node_class.family == ec2.AL2023 and not cluster.cidr:
        reason = ec2.CLUSTER_CIDR_RESOLUTION_FAILED
        message = Said("AMI family AL2023 requires the service CIDR of the cluster, which could not be discovered")
    elif kubelet.reason:
        reason, message = kubelet.reason, Said(f"spec.kubelet: {kubelet.message}")
    elif sharing is not None:
        reason, message = sharing
    elif tags := tuple(_restricted_tags(node_class.tags)):
        reason, message = ec2.TAG_VALIDATION_FAILED, "; ".join(tags)
    elif problem := _unreadable(node_class.family, user_data):
        reason, message = INVALID_USER_DATA, Said(f"spec.userData: {problem}")
    elif problem := refused(node_class.family, user_data):
        problem = Said(f"spec.userData: {problem}")
        if acceptance(node_class).items() <= node_class.metadata.annotations.items():
            kept = problem
        else:
            reason, message = INVALID_USER_DATA, problem
    return ClassVerdict(
        reason,
        message,
        kept,
        (
            *([kept] if kept else []),
            *_odd_terms(node_class.spec),
            *_odd_devices(node_class),
            *_odd_interfaces(node_class),
            *([_WINDOWS_WITHOUT_IPV6] if _is_windows_with_ipv6(node_class, cluster) else []),
            *(Said(f"spec.kubelet: {one}") for one in kubelet.warnings),
            *(Said(f"spec.userData: {one}") for one in contradictions(node_class.family, user_data, cluster)),
            *(Said(f"spec.userData: {one}") for one in unread(node_class.family, user_data)),
        ),
    )


def _gpu_sharing(node_class: ec2.EC2NodeClass, gates: ClassGates) -> tuple[str, str] | None:
    """What is wrong with how GPUs are to be shared over DRA, as reason and message; None for nothing."""
    value = node_class.gpu_sharing
    if not value:
        return None
    shares = parse_int(value.removeprefix("+")) or 0
    if value not in ("memory", "unlimited") and shares < 1:
        text = Said(
            f'annotation {ec2.CONSUMABLE_CAPACITY_ANNOTATION}: "{value}" is not disabled, memory, unlimited or a number of 1 or more'
        )
        return ec2.NVIDIA_CONSUMABLE_CAPACITY_INVALID, text
    if not gates.gpu_sharing:
        text = Said(
            f"annotation {ec2.CONSUMABLE_CAPACITY_ANNOTATION} enables GPU sharing, but the AWS feature gate DRANVIDIAGPU is disabled; remove it"
        )
        return ec2.DRA_DISABLED, text
    return None


def acceptance(node_class: ec2.EC2NodeClass) -> dict[str, str]:
    """The annotation with which `validate` lets a class be used whose nodes never join with its user data, as long as that stays; else {}."""
    user_data = _user_data(node_class)
    if (
        _unread_for_its_size(user_data)
        or _unreadable(node_class.family, user_data)
        or not refused(node_class.family, user_data)
    ):
        return {}
    return {names.ACCEPTED_USER_DATA: hashlib.sha256(f"{node_class.family}\n{user_data}".encode()).hexdigest()[:16]}


def offline(node_class: ec2.EC2NodeClass) -> verdicts.ObjectVerdict:
    """What is to be said of a class whatever the cluster is: for its errors `validate` finds no cluster that could use it."""
    kubelet = check_kubelet(node_class.kubelet, node_class.family, expressions=True)
    user_data = _user_data(node_class)
    too_long = size_problem(user_data)  # rendered, it may be shorter; but it is not worth being read here
    problem = "" if too_long else _unreadable(node_class.family, user_data) or refused(node_class.family, user_data)
    odd = () if too_long or problem else unread(node_class.family, user_data)
    return verdicts.ObjectVerdict(
        (
            *(_of_kubelet(one) for one in kubelet.problems),
            *map(_violation, _restricted_tags(node_class.tags)),
            *([Violation("spec.userData", problem)] if problem else []),
        ),
        (
            *map(_violation, _odd_terms(node_class.spec)),
            *map(_violation, _odd_devices(node_class)),
            *map(_violation, _odd_interfaces(node_class)),
            *(_of_kubelet(one) for one in kubelet.warnings),
            *([Violation("spec.userData", too_long)] if too_long else []),
            *(Violation("spec.userData", one) for one in odd),
        ),
    )


def _is_windows_with_ipv6(node_class: ec2.EC2NodeClass, cluster: JoinedCluster) -> bool:
    return node_class.family in ec2.WINDOWS_FAMILIES and has_ipv6(node_class.kubelet, cluster)


def _of_kubelet(problem: str) -> Violation:
    return Violation("spec.kubelet", problem) if ": " not in problem else _violation(f"spec.kubelet.{problem}")


def _violation(text: str) -> Violation:
    """Of a sentence that begins with its field."""
    path, _, rest = text.partition(": ")
    return Violation(path, rest)


def size_problem(text: str) -> str:
    """Why EC2 will not take rendered user data; "" when it will. The reason is UserDataSizeLimitExceeded."""
    size = size_of(text)
    return Said(f"user data of {size} bytes exceeds the EC2 limit of {SIZE_LIMIT} bytes") if size > SIZE_LIMIT else ""


def size_warning(text: str) -> str:
    """A sentence when rendered user data is close to what EC2 takes; "" when it is not."""
    size = size_of(text)
    return Said(f"user data uses {size} of the {SIZE_LIMIT} bytes that EC2 allows") if size >= SIZE_WARNING else ""


def unsupported_alias(node_class: ec2.EC2NodeClass, minor: int) -> str:
    """Why AWS publishes no image for the class's alias and this minor; "" when it does, or there is no alias.

    The condition AMIsReady is False with reason UnsupportedAlias then, until class or cluster change.
    """
    family = next((term.alias_family for term in node_class.spec.ami_selector_terms if term.alias_family), "")
    if family == ec2.AL2 and minor > LAST_MINOR_OF_AL2:
        return Said(f"AWS publishes no AL2 images for Kubernetes 1.{minor}; the last minor is 1.{LAST_MINOR_OF_AL2}")
    if family == ec2.WINDOWS_2025 and minor < FIRST_MINOR_OF_WINDOWS_2025:
        return Said(
            f"AWS publishes no Windows2025 images for Kubernetes 1.{minor}; the first minor is "
            f"1.{FIRST_MINOR_OF_WINDOWS_2025}"
        )
    return ""


def _user_data(node_class: ec2.EC2NodeClass) -> str:
    return "" if isinstance(node_class.spec.user_data, UnsetType) else node_class.spec.user_data


def _unread_for_its_size(text: str) -> str:
    """Why user data is so long that it is not even read: comments and carriage returns, which are left out, do not make it fit."""
    return size_problem(text) if len(text) > _MOST_READ else ""


def _unreadable(family: str, user_data: str) -> str:
    try:
        check(family, user_data)
    except UserDataError as error:
        return str(error)
    return ""


def _restricted_tags(tags: Mapping[str, str]) -> Iterator[str]:
    for key in sorted(tags):
        if not key:
            yield Said("spec.tags: a key is empty")
        elif key in _RESTRICTED_TAGS or _CLUSTER_TAG.fullmatch(key):
            yield Said(f"spec.tags[{key}]: the provisioner sets this tag; use another key")
        elif key.lower().startswith("aws:"):
            yield Said(f"spec.tags[{key}]: keys that begin with aws: are reserved by AWS; use another key")
        elif len(key) > _TAG_KEY_LENGTH or len(tags[key]) > _TAG_VALUE_LENGTH:
            yield Said(
                f"spec.tags[{key}]: longer than AWS allows: at most {_TAG_KEY_LENGTH} characters in the key, "
                f"{_TAG_VALUE_LENGTH} in the value"
            )


def _odd_terms(spec: ec2.EC2NodeClassSpec) -> Iterator[str]:
    """Terms that say more than is looked at; the schema refuses a list only when all of its terms do."""
    for place, subnet in enumerate(spec.subnet_selector_terms):
        if subnet.id and subnet.tags:
            yield Said(f"spec.subnetSelectorTerms[{place}]: id and tags are mutually exclusive; tags are ignored")
    for place, group in enumerate(spec.security_group_selector_terms):
        if group.id and (group.name or group.tags):
            yield Said(
                f"spec.securityGroupSelectorTerms[{place}]: id cannot be combined with name or tags, which are ignored"
            )
        elif group.name and group.tags:
            yield Said(
                f"spec.securityGroupSelectorTerms[{place}]: name and tags are mutually exclusive; tags are ignored"
            )
    for place, one in enumerate(spec.capacity_reservation_selector_terms):
        if one.id and (one.tags or one.owner_id or one.instance_match_criteria):
            yield Said(
                f"spec.capacityReservationSelectorTerms[{place}]: id cannot be combined with tags, ownerID or "
                "instanceMatchCriteria, which are ignored"
            )
    for place, image in enumerate(spec.ami_selector_terms):
        if image.ssm_parameter and (image.id or image.name or image.tags or image.alias):
            yield Said(
                f"spec.amiSelectorTerms[{place}]: ssmParameter cannot be combined with another selector; use one of "
                "them"
            )


def _odd_devices(node_class: ec2.EC2NodeClass) -> Iterator[str]:
    for place, one in enumerate(node_class.block_device_mappings):
        if isinstance(one.device_name, UnsetType):
            yield Said(
                f"spec.blockDeviceMappings[{place}]: deviceName is missing; EC2 cannot launch instances without it"
            )
    if isinstance(node_class.spec.instance_store_policy, str) and node_class.family in (
        ec2.CUSTOM,
        *ec2.WINDOWS_FAMILIES,
    ):
        yield Said(f"spec.instanceStorePolicy: has no effect on images of family {node_class.family}")


def _odd_interfaces(node_class: ec2.EC2NodeClass) -> Iterator[str]:
    if node_class.spec.associate_public_ip_address is True and len(node_class.network_interfaces) > 1:
        yield PUBLIC_ADDRESS_WITH_SEVERAL_INTERFACES
